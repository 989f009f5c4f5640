"""The printed formulas of the book, by their labels."""

from __future__ import annotations

import functools
from pathlib import Path

from book.chapters import NOTEBOOKS, chapters, read, topic
from book.lint import displayed


def formula(label: str) -> tuple[str, str]:
    """The LaTeX of a displayed formula, and the topic of the chapter that shows it.

    A notebook that runs in a folder of chapters reads the formulas of that folder, so a copy of the
    book is checked against itself.

    Raises:
        ValueError: if no chapter shows a formula of this label.
    """
    here = Path.cwd()
    folder = here if chapters(here) else NOTEBOOKS
    found = _formulas(folder, tuple(p.stat().st_mtime_ns for p in chapters(folder)))
    if label not in found:
        raise ValueError(f"no chapter shows a formula with the label {label!r}; is it saved?")
    return found[label]


@functools.lru_cache(maxsize=4)
def _formulas(folder: Path, times: tuple[int, ...]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for path in chapters(folder):
        for label, latex in displayed(read(path)):
            if label:
                found[label] = (latex, topic(path))
    return found
