"""Draw the stored pictures anew from their descriptions, without running a cell.

`python -m book.redraw` after a change of how `book.explorer` draws: the numbers stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from book.chapters import chapters, read
from book.explorer import page
from book.refresh import write

_ISLAND = re.compile(r'<script type="application/json" class="tp-spec">(.*?)</script>', re.S)


def redraw(path: Path) -> int:
    """Draw the pictures of a notebook; returns how many look otherwise than before."""
    notebook, changed = read(path), 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            html = "".join(output.get("data", {}).get("text/html", ""))
            if found := _ISLAND.search(html):
                output["data"]["text/html"] = page(json.loads(found[1]))
                changed += output["data"]["text/html"] != html
    if changed:
        write(notebook, path)
    return changed


def main(argv: list[str] | None = None) -> int:
    """Draw the pictures of the notebooks named on the command line, or of all chapters."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every chapter")
    for path in parser.parse_args(argv).notebooks or chapters():
        if changed := redraw(path):
            print(f"{path.name}: {changed} pictures drawn anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
