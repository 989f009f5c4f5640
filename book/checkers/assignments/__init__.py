"""The questions of the graded assignments, which the chapters do not ask.

They are exercises like those of the chapters, and kept apart from them: a chapter asks exactly the
exercises of `book.checkers`, and its solutions are printed. The questions of an assignment are in
the module of its name, in `EXERCISES`. The part of an assignment that a case belongs to stands
before the colon in the case's name ("corners: an empty row"), so that each part has its own points:

    from book.checkers.assignments import require
    require("tensors_and_softmax.sum_to", sum_to, "values")

The assignments for interview practice ask what the chapters ask; the chapters' exercises go by
their own names here too.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from book.checkers import core
from book.checkers import exercise as of_chapter
from book.grading import verdict

__all__ = [
    "part_of", "questions", "require", "require_part_points", "require_share", "require_statement",
]  # fmt: skip

# `book.checkers.exercises` looks here too, and finds nothing that a chapter has to ask.
EXERCISES: dict[str, core.Exercise] = {}


def questions() -> dict[str, core.Exercise]:
    """Every question of the assignments by its full name, `assignment.question`."""
    return {
        f"{topic}.{name}": one
        for topic in _topics()
        for name, one in importlib.import_module(f"{__name__}.{topic}").EXERCISES.items()
    }


@functools.cache
def _topics() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "common")


def part_of(case: str) -> str:
    """The part of its question that the case of this name belongs to."""
    return case.partition(":")[0]


def require(name: str, answer: core.Answer, part: str) -> None:
    """Check the cases of one part of a question. Nothing is printed.

    Raises:
        book.grading.WrongAnswerError: unless all of them are right; its hint names the mistake.
        ValueError: if there is no such question, or it has no such part.
    """
    report, right, total, _ = _of_part(name, answer, part)
    _judge(report, right, total, 1.0)


def require_part_points(
    name: str, answer: core.Answer, part: str, points: float, least: float = 0.0
) -> float:
    """The points of one part: `points` times the share of its cases that are right.

    As the last line of a test cell it gives partial credit within the part, to nbgrader too. Below
    the share `least` there are none: an answer that returns its argument is right in some cases.

    Raises:
        ValueError: if there is no such question, or it has no such part.
    """
    from book.grading import WrongAnswerError

    report, right, total, share = _of_part(name, answer, part)
    try:
        _judge(report, right, total, 1.0)
    except WrongAnswerError:
        return round(points * share, 2) if report.attempted and share >= least else 0.0
    return points


def _of_part(name: str, answer: core.Answer, part: str) -> tuple[core.Report, int, int, float]:
    """The verdict, how many of the part's cases are right, of how many, and the share of them."""
    known = questions()
    if name not in known:
        raise ValueError(f"no question is called {name!r}; there are {', '.join(sorted(known))}")
    cases = [c.name for c in core.every_case(known[name]) if part_of(c.name) == part]
    if not cases:
        raise ValueError(f"question {name!r} has no part {part!r}")
    # All cases, of all parts: the more of them, the surer the mistake is known.
    report = verdict(name, known[name], answer)
    wrong = sum(part_of(case) == part for case, _ in report.failures)
    # What is made of the written cases is asked for only when all of those are right.
    asked = cases if report.probing else [c for c in known[name].cases if part_of(c.name) == part]
    share = 0.0 if report.refused else 1 - wrong / len(asked)
    return report, len(cases) - wrong, len(cases), share


def require_share(name: str, answer: core.Answer, share: float) -> None:
    """Check that `share` of the cases of a chapter's exercise are right. Nothing is printed.

    Raises:
        book.grading.WrongAnswerError: if fewer are; its hint names the mistake.
        ValueError: if there is no exercise of that name.
    """
    report = verdict(name, of_chapter(name), answer)
    _judge(report, report.total - len(report.failures), report.total, share)


def require_statement(name: str, answer: object) -> None:
    """Check what was answered to a statement of the quiz; after that, the reason may be read.

    Raises:
        book.grading.WrongAnswerError: if it is wrong; its hint says why.
        ValueError: if there is no statement of that name.
    """
    from book import quiz
    from book.grading import WrongAnswerError, hints

    found = [s for s in quiz.load() if s.id == name]
    if not found:
        raise ValueError(f"no statement of the quiz is called {name!r}")
    if answer is not found[0].answer:
        hint = f"The statement is {str(found[0].answer).lower()}. {found[0].why.strip()}"
        if not isinstance(answer, bool):
            hint = "There is no answer; it has to be True or False."
        hints.append(hint)
        raise WrongAnswerError(f"{name}: {answer!r}", hint)


def _judge(report: core.Report, right: int, total: int, share: float) -> None:
    from book.grading import WrongAnswerError, hints, told

    if report.attempted and right >= share * total:
        return
    hint = f"{right} of {total} cases of this test are right."
    if not report.attempted:
        right = 0
        hint = "There is nothing to check yet: the function raises NotImplementedError."
    else:
        hint += told(report)
    hints.append(hint)
    raise WrongAnswerError(str(report), hint, right / total)
