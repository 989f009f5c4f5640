"""The exercises of every chapter, each with an oracle and named wrong answers.

`check("normalization.rms_norm", my_function)` is what the chapters call. The exercises of a chapter
are in the module of its name, in the dictionary `EXERCISES`; `core` says how they are checked.
"""

from __future__ import annotations

import importlib
import pkgutil

from book.checkers.core import Answer, Exercise, grade

__all__ = ["check", "exercise", "exercises"]


def check(name: str, answer: Answer) -> None:
    """Check `answer` against the exercise called `topic.exercise` and print the verdict.

    Raises:
        ValueError: if there is no exercise of that name.
        TypeError: if `answer` cannot be called.
    """
    print(grade(name, exercise(name), answer))


def exercise(name: str) -> Exercise:
    """The exercise called `topic.exercise`.

    Raises:
        ValueError: if there is none.
    """
    known = exercises()
    if name not in known:
        raise ValueError(f"no exercise is called {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


def exercises() -> dict[str, Exercise]:
    """Every exercise of the book by its full name."""
    topics = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "core")
    return {
        f"{topic}.{name}": one
        for topic in topics
        for name, one in importlib.import_module(f"{__name__}.{topic}").EXERCISES.items()
    }
