"""Why a test failed: for the student, and for the teacher.

A student's text says nothing that came from a hidden test, nor repeats what the student's code said
or returned there: that may be a hidden test's arguments.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import traceback
from collections.abc import Collection
from typing import Any

from book import grading
from book.grading import notebooks
from book.grading.channel import GoneError, StudentError, TimeLimitError
from book.grading.notebooks import Step


def reason(
    error: BaseException | None, step: Step, dead: StudentError | None, *,
    names: Collection[str], called: bool,
) -> tuple[str, str]:  # fmt: skip
    """Why a test failed: for the student, and for the teacher.

    `names` are those that students define. `called` says whether an earlier hidden test has called
    the student's code, which may have kept its arguments.
    """
    if error is None:
        return "", ""
    by_student = getattr(error, "by_student", None)
    text = str(error) or type(error).__name__
    full = text if by_student or isinstance(error, AssertionError | StudentError) else (
        f"{type(error).__name__}: {text}"
    )  # fmt: skip
    if by_student:
        full = f"your code raised {by_student}: {text}"
    source = step.trusted or ""
    line = _line_of(error, f"<{step.name}>")
    hidden = [n for n, _ in notebooks.inside(source, notebooks.BEGIN_HIDDEN,
                                             notebooks.END_HIDDEN)]  # fmt: skip
    code = source.split("\n")[line - 1].strip() if 0 < line <= source.count("\n") + 1 else ""
    detail = f"{full}\n  line {line}: {code}" if code else full
    if not hidden or (line and line < hidden[0]):
        if called:
            # What the student's code says by now may be what an earlier hidden test gave it.
            full = _without_values(error, source, line)
        wrong = isinstance(error, grading.WrongAnswerError)
        return f"{full}\n  line {line}: {code}" if code and not wrong else full, detail
    if isinstance(error, grading.WrongAnswerError):
        ended = f" The code gave up in one: {dead}." if dead else ""
        return f"{error.hint}{ended}", detail
    if isinstance(error, TimeLimitError | GoneError):
        return f"in a hidden test: {error}", detail
    if by_student:
        kind = by_student if hasattr(builtins, by_student) else "an error of its own"
        return f"in a hidden test your code raised {kind}", detail
    if isinstance(error, NameError) and (name := getattr(error, "name", "")) in names:
        return f"`{name}` is not defined", detail
    return f"a hidden test failed{_constant_message(source, line)}", detail


def _without_values(error: BaseException, source: str, line: int) -> str:
    """What is wrong, without anything that the student's code said or returned."""
    if isinstance(error, grading.WrongAnswerError):
        return error.hint
    if isinstance(error, TimeLimitError | GoneError):
        return str(error)
    if by_student := getattr(error, "by_student", None):
        kind = by_student if hasattr(builtins, by_student) else "an error of its own"
        return f"your code raised {kind}"
    return f"{type(error).__name__}{_constant_message(source, line)}"


def cause(steps: list[Step], told: dict[int, dict[str, Any]]) -> str:
    """Which cells did not run: a name that is missing is often one of theirs."""
    failed = [
        f"`{steps[n].name}` ({one['error']['name']})"
        for n, one in sorted(told.items())
        if one["error"] and steps[n].kind in ("solution", "added", "given")
        and one["error"]["name"] not in ("NotImplementedError", "NameError")
    ]  # fmt: skip
    if not failed:
        return ""
    return f"; first repair what did not run: {', '.join(failed[:3])}"


def _line_of(error: BaseException, filename: str) -> int:
    """The line of the test cell at which `error` arose; 0 if none is known."""
    found = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == filename:
            found = frame.lineno or 0
    return found


def _constant_message(source: str, line: int) -> str:
    """The teacher's own words in the assertion at `line`, if they are a plain text."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse(notebooks.plain(source))):
            if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
                said = node.msg
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    return f": {said.value}"
    return ""
