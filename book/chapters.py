"""Reading the chapters: which notebooks there are, and which cells carry a tag."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
_FENCE = re.compile(r"\s*(?P<mark>`{3,}|~{3,}|:{3,})(?P<rest>.*)")
# The first comment of a cell tagged `library`, over as many lines as it takes.
_LIBRARY = re.compile(r"# Library version: (?P<adds>.+(?:\n# .+)*)")
# A section of a chapter, as the files of data name it: 08_normalization#the-formulas.
PLACE = re.compile(r"(?P<chapter>\d\d_[a-z][a-z0-9_]*)#(?P<section>.+)")
CHAPTER = re.compile(r"(?P<number>\d\d)_(?P<topic>[a-z][a-z0-9_]*)\.ipynb")


def chapters(folder: Path = NOTEBOOKS) -> list[Path]:
    """The chapter notebooks, `NN_topic.ipynb`, of a folder, in reading order."""
    return sorted(p for p in folder.glob("*.ipynb") if CHAPTER.fullmatch(p.name))


def topic(path: Path) -> str:
    """The one name of a chapter: `08_normalization.ipynb` is `normalization` everywhere."""
    match = CHAPTER.fullmatch(path.name)
    if match is None:
        raise ValueError(
            f"{path.name}: a chapter is called NN_topic.ipynb, such as 05_attention.ipynb"
        )
    return match["topic"]


def read(path: Path) -> Any:
    """The notebook at `path`, format 4: a new object each time."""
    text = path.read_text(encoding="utf-8")
    _validate(text)
    return nbformat.v4.reads(text)


@cache  # a build reads each chapter ten times, and most of that time is the validation
def _validate(text: str) -> None:
    nbformat.reads(text, as_version=4)


@cache
def title(chapter: str) -> str:
    """Number and title of the chapter whose notebook has the stem `chapter`, `05 · Attention`.

    Raises:
        ValueError: if the notebook has no heading of the first level.
    """
    text = "\n".join(c.source for c in read(NOTEBOOKS / f"{chapter}.ipynb").cells[:3])
    found = re.search(r"^# +(.+?) *$", text, re.M)
    if found is None:
        raise ValueError(f"{chapter}: there is no title")
    return f"{chapter[:2]} · {found[1]}"


def tags(cell: Any) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def tagged(notebook: Any, tag: str) -> Iterator[Any]:
    """The code cells of `notebook` that carry `tag`, in order."""
    return (c for c in notebook.cells if c.cell_type == "code" and tag in tags(c))


def calls_of_witness(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Each call of `witness(...)` in the code of a cell, with the label that it names."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "witness"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value), node


def library_adds(source: str) -> str | None:
    """What the first comment of a library version says that it adds; `None` without one."""
    match = _LIBRARY.match(source)
    return match and match["adds"].replace("\n# ", " ")


@cache
def headings(chapter: str) -> dict[str, str]:
    """The headings of levels two and three of the chapter with this stem, by their anchors."""
    cells = read(NOTEBOOKS / f"{chapter}.ipynb").cells
    texts = [without_code(c.source) for c in cells if c.cell_type == "markdown"]
    found = re.findall(r"^#{2,3} +(.+?) *$", "\n".join(texts), re.M)
    return {slug(heading): heading.strip() for heading in found}


def without_code(markdown: str) -> str:
    """Markdown without its blocks of code. Directives, such as `{exercise}`, are not code."""
    kept: list[str] = []
    opened: list[str] = []  # the marks of the fences that are open
    code = False  # whether the innermost of them holds code
    for line in markdown.splitlines():
        fence = _FENCE.fullmatch(line)
        closing = bool(fence and opened and fence[0].strip() == opened[-1])
        if fence and not closing and not code:
            opened.append(fence["mark"])
            code = not fence["rest"].lstrip().startswith("{")
        if not code:
            kept.append(line)
        if closing:
            opened.pop()
            code = False
    return "\n".join(kept)


def slug(heading: str) -> str:
    """The anchor that the site gives to a heading (myst-parser's rule)."""
    text = re.sub(r"[`*_$]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
