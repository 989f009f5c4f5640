"""Protects `make refresh`: a run of a chapter that nobody changed gives the same bytes again."""

import nbformat

from book.chapters import NOTEBOOKS, read
from book.refresh import canonical, execute, write

CHAPTER = NOTEBOOKS / "01_tensors.ipynb"


def test_a_run_without_a_change_gives_an_empty_diff(tmp_path):
    stored = read(CHAPTER)
    fresh = execute(stored)
    assert any(cell.get("outputs") for cell in fresh.cells)
    again = tmp_path / CHAPTER.name
    write(canonical(fresh, stored), again)
    assert again.read_bytes() == CHAPTER.read_bytes()
    nbformat.validate(read(again))
