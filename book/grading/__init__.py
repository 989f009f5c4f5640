"""Assignments: release them, check them, grade them. `python -m book.grading --help` lists how.

A test cell calls `require`, which is all that an assignment needs of this package:

    from book.grading import require
    require("normalization.rms_norm", rms_norm)

The files, by what they do:

- the command: `__main__`, `running` (one run of `grade`), `engine` (the grading process, as its
  parent sees it), `journal` (finished rows);
- who handed in what: `submissions`, `places` (what lies where), `owners` (whose it is by its name),
  `archives`, `names`, `roster`, `belonging` (whose it is by the roster), `late`;
- the trusted side: `server`, `judge` (the tests), `stages` (the student's cells), `reasons` (what a
  student is told), `remarks`, `limits`, `memory` and `groups`, `notebooks`, `prints`;
- the student's side: `sandbox` starts it, `student` is it, `confine` confines it, `seen` watches,
  `pages` makes its forks fast;
- between the two: `border`, `channel`, `values`, `packing`, `remote`;
- what is made of the rows: `feedback`, `hand`, `stats`, `platforms`;
- elsewhere: `release`, `check`, `leaks`, `github`, `gradescope`, `nbgrader`, `bench`.

This module imports nothing, because the process that starts the graders must start at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["WrongAnswerError", "require", "require_points", "verdict"]


# What `require` would tell a student of the tests that ran last; the grader reads and clears it.
hints: list[str] = []

# The names of the mistakes that those tests saw; likewise.
mistakes: list[str] = []

# Verdicts on answers that stay what they are. The grader opens it, and empties it when it asks
# another process of the student's; where nobody opened it, every verdict is made anew.
verdicts: dict[tuple[str, int], tuple[Any, Any]] | None = None

# Where the grader is told of every right answer, to see whether it did what the text forbids.
watch: Callable[[str, Any, Callable[..., Any]], None] | None = None


class WrongAnswerError(AssertionError):
    """An answer that a checker rejects. `hint` is its text without anything of the test."""

    def __init__(self, text: str, hint: str = "", share: float = 0.0) -> None:
        super().__init__(text)
        self.hint = hint
        self.share = share


def verdict(name: str, exercise: Any, answer: Callable[..., Any]) -> Any:
    """What `book.checkers.core.grade` says; the parts of a question share one verdict."""
    from book.checkers import core

    if verdicts is None:
        return core.grade(name, exercise, answer)
    key = name, id(answer)
    if key not in verdicts:
        # The answer too, so that its identity stays its own.
        verdicts[key] = answer, core.grade(name, exercise, answer)
        if watch is not None and verdicts[key][1].passed:
            watch(name, exercise, answer)
    return verdicts[key][1]


def told(report: Any) -> str:
    """What a student may read of a report, of hidden cases too: the mistake, or what was raised."""
    if report.looks_like:
        mistakes.append(report.looks_like.name)
        return f" It looks like this mistake: {report.looks_like.name}. {report.looks_like.why}"
    return f" Your code raises {', '.join(report.raised)}." if report.raised else ""


def require(name: str, answer: Callable[..., Any]) -> None:
    """Check `answer` with the book's checker of that name, as `book.checkers.check` does.

    Raises:
        WrongAnswerError: unless every case is right; with the verdict.
        ValueError: if there is no checker of that name.
    """
    from book.checkers import exercise

    report = verdict(name, exercise(name), answer)
    print(report)
    if not report.passed:
        right = report.total - len(report.failures) if report.attempted else 0
        hint = f"{right} of {report.total} cases of a test are right."
        if not report.attempted:
            hint = "There is nothing to check yet: the function raises NotImplementedError."
        else:
            hint += told(report)
        hints.append(hint)
        raise WrongAnswerError(str(report), hint, right / report.total)


def require_points(name: str, answer: Callable[..., Any], points: float) -> float:
    """The points of `answer`: `points` times the share of the cases that are right.

    As the last line of a test cell it gives partial credit, to nbgrader too. It prints the verdict.
    """
    try:
        require(name, answer)
    except WrongAnswerError as error:
        return round(points * error.share, 2)
    return points
