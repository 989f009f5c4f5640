"""`python -m book.take_away pdf|epub OUT`: make the book to take away."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from book.take_away.browser import chromium
from book.take_away.pages import SITE, about, chosen, collect, entries


def main(arguments: list[str] | None = None) -> int:
    """Make one book; 1 if it cannot be made, or if `--check` finds something wrong with it."""
    parser = argparse.ArgumentParser(prog="python -m book.take_away", description=__doc__)
    parser.add_argument("form", choices=["pdf", "epub"])
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--site", type=Path, default=SITE, help="the built website")
    parser.add_argument("--only", default="", help="names of pages, with commas between them")
    parser.add_argument("--check", action="store_true", help="open the book and look at it")
    asked = parser.parse_args(arguments)
    began = time.perf_counter()
    try:
        form = import_module(f"book.take_away.{asked.form}")
        wanted = chosen(entries(), [name for name in asked.only.split(",") if name])
        facts = about()
        with chromium() as browser:
            pages = collect(browser, asked.site, wanted)
            problems = form.write(browser, asked.site, pages, facts, asked.out)
        if asked.check:
            problems += form.problems(asked.out, pages, facts)
    except ModuleNotFoundError as error:
        print(f"{asked.form}: {error}: pip install -r requirements-paper.txt", file=sys.stderr)
        return 1
    except (FileNotFoundError, RuntimeError, ValueError) as error:
        print(f"{asked.form}: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"{asked.out.name}: {problem}", file=sys.stderr)
    size, seconds = asked.out.stat().st_size / 2**20, time.perf_counter() - began
    print(f"{asked.out}: {len(pages)} pages of the site, {size:.1f} MiB, in {seconds:.0f} s")
    return 1 if asked.check and problems else 0


if __name__ == "__main__":
    sys.exit(main())
