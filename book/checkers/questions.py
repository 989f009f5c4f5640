"""Exercises that are answered with a letter or a number: predictions, measurements, estimates.

Here the answer is a value, not a function: `check("attention.which_mask", "B")`, or
`check("attention.exponent", 0.5)`. A `Question` is an `Exercise` all the same. Its oracle takes no
argument and gives the right value, and each tempting choice or number is a named wrong answer, so
that the reader is told why it tempts, and where it goes wrong.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from book.checkers.core import Case, Exercise, Report, WrongAnswer
from book.checkers.core.state import fair


@dataclass(frozen=True)
class Question(Exercise):
    """An exercise whose answer is a value.

    `because` is the reason for the right answer, said once it is given. `choices` are the letters
    that may be chosen; a question without them asks for a number, and `within` is the largest
    relative error of it that counts as right.
    """

    because: str
    choices: tuple[str, ...] = ()
    within: float = 0.0

    @property
    def asks(self) -> str:
        """What stands in the place of None in an answer."""
        if not self.choices:
            return "a number"
        return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}, in quotes"

    def same(self, a: Any, b: Any) -> bool:
        """Whether two answers count as one."""
        if self.choices:
            return bool(a == b)
        return math.isclose(a, b, rel_tol=0.0, abs_tol=self.within * abs(b)) or a == b


@dataclass(frozen=True)
class WrongNumber:
    """A number that a known mistake leads to."""

    name: str
    why: str
    value: Callable[[], float]


def choice(
    title: str, *, right: str, because: str, tempting: Mapping[str, tuple[str, str]]
) -> Question:
    """A question with choices, one of them right.

    Args:
        title: what is asked about, in a few words.
        right: the letter of the right choice.
        because: why it is right.
        tempting: letter of each other choice -> what one believes who chooses it, and why that
            tempts and does not hold.
    """
    return Question(
        title=title,
        oracle=lambda: right,
        cases=(Case("the choice", tuple),),
        variants=(lambda: str(right),),
        wrong=[
            WrongAnswer(name, why, functools.partial(str, letter))
            for letter, (name, why) in tempting.items()
        ],
        because=because,
        choices=tuple(sorted([right, *tempting])),
    )


def _once(value: Callable[[], float]) -> Callable[[], float]:
    """A run of the checker, once in a process and the same whoever asks for it first.

    The default dtype and the seeds are those of a fresh session: an answer may be asked for within
    a comparison, which has set its own, or by a reader who has.
    """

    @functools.cache
    def run() -> float:
        with fair(torch.float32):
            return value()

    return run


def number(
    title: str,
    *,
    value: Callable[[], float],
    within: float,
    because: str,
    wrong: Sequence[WrongNumber],
) -> Question:
    """A question that asks for a number: measured, estimated or counted.

    Args:
        title: what is asked about, in a few words.
        value: the checker's own run. It is called when an answer is compared, once in a process.
        within: the largest relative error that counts as right, 0 for a count.
        because: what the number shows. `{value}` in it is the number of the checker's own run, with
            four digits; another format stands as in `{value:,.0f}`.
        wrong: the numbers that known mistakes lead to.
    """
    once = _once(value)
    return Question(
        title=title,
        oracle=once,
        cases=(Case("the number", tuple, tol=within, relative=True),),
        variants=(lambda: once() * (1 + 0.9 * within) if within else once(),),
        wrong=[WrongAnswer(w.name, w.why, _once(w.value)) for w in wrong],
        because=because,
        within=within,
    )


@dataclass(frozen=True)
class Answered(Report):
    """The verdict on a question: what is said about the value that was given."""

    says: str = ""

    def _lines(self) -> list[str]:
        lines = [f"{self.name}: {self.says}"]
        lines += [f"  {mistake.name}: {mistake.why}" for mistake in self.mistakes]
        return lines


# Where a reason states the number of the checker's own run.
_VALUE = re.compile(r"\{value(?::([^}]*))?\}")


def ask(name: str, question: Question, answer: object) -> Report:
    """The verdict on an answer to a question. None is no answer yet.

    Raises:
        TypeError: if the answer is of another kind than the question asks for.
    """
    if answer is None:
        nothing = f"no answer yet. It asks for {question.asks}."
        return Answered(name, 1, (), attempted=False, says=nothing)
    given = _read(name, question, answer)
    right = question.oracle()
    if question.same(given, right):
        because = _VALUE.sub(lambda found: format(right, found[1] or ".4g"), question.because)
        return Answered(name, 1, (), says=f"right. {because}")
    # A name only where the mistake and the right answer can be told apart.
    wrongs = [(w, w.answer()) for w in question.wrong]
    known = next(
        (w for w, v in wrongs if question.same(given, v) and not question.same(v, right)), None
    )
    says = f"{given} is not it."
    if not question.choices:
        says = f"{given:.4g} is too {'large' if given > right else 'small'}."
    return Answered(
        name, 1, ((question.cases[0].name, says),), (known,) if known else (), says=says
    )


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(name: str, question: Question, answer: object) -> Any:
    """The answer as a letter of the question, or as a number."""
    if question.choices:
        letter = answer.strip().upper() if isinstance(answer, str) else answer
        if letter not in question.choices:
            raise TypeError(f"{name}: the answer is {question.asks}, got {answer!r}")
        return letter
    if isinstance(answer, bool | str) or not hasattr(answer, "__float__"):
        raise TypeError(f"{name}: the answer is a number, got {answer!r}")
    given = float(answer)
    if not math.isfinite(given):
        raise TypeError(f"{name}: the answer is a finite number, got {answer!r}")
    return given
