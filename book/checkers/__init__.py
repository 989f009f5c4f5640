"""The exercises of every chapter, each with an oracle and named wrong answers.

`check("normalization.rms_norm", my_function)` is what the chapters call. The exercises of a chapter
are in the module of its name, in the dictionary `EXERCISES`; `core` says how they are checked,
`questions` how those that are answered with a letter or a number, and `drawn` makes random inputs.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import Any

from book.checkers import core
from book.checkers.core import Answer, Exercise, Report, every_case, grade
from book.checkers.questions import Question, ask

__all__ = ["check", "exercise", "exercises", "inputs", "verdict"]

_NO_TOPIC = ("core", "drawn", "questions")


def check(name: str, answer: Answer | str | float | None) -> None:
    """Check `answer` against the exercise called `topic.exercise` and print the verdict.

    An answer is a function, or the letter or number that a question asks for.

    Raises:
        ValueError: if there is no exercise of that name.
        TypeError: if `answer` is of another kind than the exercise asks for.
    """
    print(verdict(name, exercise(name), answer))


def verdict(name: str, one: Exercise, answer: object) -> Report:
    """What `check` prints."""
    if isinstance(one, Question):
        return ask(name, one, answer)
    return grade(name, one, answer)  # type: ignore[arg-type]  # which says what it needs


def exercise(name: str) -> Exercise:
    """The exercise called `topic.exercise`.

    Raises:
        ValueError: if there is none.
    """
    known = exercises()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        topic = [n for n in known if n.partition(".")[0] == name.partition(".")[0]]
        raise ValueError(
            f"no exercise is called {name!r}; there are, for example, "
            f"{', '.join(near or topic or sorted(known)[:3])}"
        )
    return known[name]


def inputs(name: str, case: str) -> tuple[Any, ...]:
    """The arguments of a case of the exercise called `topic.exercise`, made afresh.

    A verdict says of a failing case how to have it again: `my_answer(*inputs(name, case))`.

    Raises:
        ValueError: if there is no such exercise, or it has no such case.
    """
    cases = {c.name: c for c in every_case(exercise(name))}
    if case not in cases:
        raise ValueError(f"{name} has no case {case!r}; it has {', '.join(repr(c) for c in cases)}")
    return core.inputs_of(exercise(name), cases[case])


def exercises() -> dict[str, Exercise]:
    """Every exercise of the book by its full name."""
    topics = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NO_TOPIC)
    return {
        f"{topic}.{name}": one
        for topic in topics
        for name, one in importlib.import_module(f"{__name__}.{topic}").EXERCISES.items()
    }
