"""`python -m book.accelerator`: see the package."""

import argparse
import sys
from pathlib import Path

import torch

import book.accelerator


def main(words: list[str] | None = None) -> int:
    """Run one of the two; 1 if a part differs, 2 if there is no such device."""
    parser = argparse.ArgumentParser(
        prog="python -m book.accelerator", description=book.accelerator.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("what", choices=("parts", "clock"))
    parser.add_argument("file", type=Path, nargs="?", help="where `clock` writes")
    parser.add_argument("--device", default="cuda", help="as torch names it (cuda)")
    options = parser.parse_args(words)
    try:
        torch.empty(1, device=options.device)
    except (RuntimeError, AssertionError) as error:
        print(f"error: torch finds no device {options.device!r} here: {error}", file=sys.stderr)
        return 2
    if options.what == "parts":
        from book.accelerator import parts

        return parts.run(options.device)
    from book.accelerator import clock

    if options.file is None:
        parser.error("clock wants the name of a file to write")
    return clock.run(options.device, options.file)


if __name__ == "__main__":
    sys.exit(main())
