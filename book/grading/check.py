"""Runs a notebook's cells and visible tests as they stand, before it is handed in."""

from __future__ import annotations

import contextlib
import io
import secrets
import traceback
from pathlib import Path
from typing import Any

from book.grading import github, notebooks
from book.grading.student import Capped


def check(path: Path, *, on_github: bool = False) -> bool:
    """Run the notebook and print a verdict for each test; whether all of them passed.

    `on_github`: report the points too, as its workflows do.

    Raises:
        notebooks.NotebookError: if it cannot be read, or has no tests.
    """
    try:
        notebook, remarks = notebooks.parse(path.read_bytes())
    except OSError as error:
        raise notebooks.NotebookError(f"{path}: {error.strerror}") from None
    cells = [c for c in notebooks.cells(notebook) if c.type == "code" and c.source.strip()]
    tests = sum(c.kind == "test" for c in cells)
    if not tests:
        raise notebooks.NotebookError(f"{path}: there are no test cells in it")
    for remark in remarks:
        print(f"note: {remark}")
    space: dict[str, Any] = {"__name__": "__main__"}
    passed = 0
    points: list[tuple[str, float, float]] = []
    wrong = False
    token = secrets.token_hex(16)
    if on_github:
        # What the notebook prints is not a command to GitHub.
        print(f"::stop-commands::{token}")
    for number, cell in enumerate(cells, 1):
        name = cell.grade_id or f"cell {number}"
        problem, out = _run(cell.source, name, space)
        if cell.kind == "test":
            passed += problem is None
            points.append((name, cell.points if problem is None else 0.0, cell.points))
            print(f"{'pass' if problem is None else 'FAIL'}  {name}")
            if problem is not None:
                told = _told_in(out.text(), problem)
                print(_indented(out.text() if told else _said(problem, name)))
        elif problem is not None:
            wrong = True
            print(f"stop  {name}: this cell does not run\n{_indented(_said(problem, name))}")
    if on_github:
        print(f"::{token}::")
        github.report(points)
    print(f"\n{passed} of {tests} tests pass.", end=" ")
    print("Grading may use further tests." if passed == tests and not wrong else "Not yet.")
    return passed == tests and not wrong


def _run(source: str, name: str, space: dict[str, Any]) -> tuple[BaseException | None, Capped]:
    out = Capped()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(notebooks.plain(source), f"<{name}>", "exec"), space)
        except BaseException as error:
            # An exit of the code's own is its error; Ctrl+C ends the command.
            if isinstance(error, KeyboardInterrupt):
                raise
            return error, out
    return None, out


def _told_in(printed: str, error: BaseException) -> bool:
    return bool(str(error)) and str(error) in printed


def _said(error: BaseException, name: str) -> str:
    lines = io.StringIO()
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == f"<{name}>":
            lines.write(f"line {frame.lineno}: ")
            break
    text = str(error)
    return f"{lines.getvalue()}{type(error).__name__}{': ' + text if text else ''}"


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.strip().split("\n"))
