"""Answers as somebody might write them, beside those that the checkers know.

One file for each chapter. `WRONG` are answers that look plausible and are none of the named
mistakes as a checker writes them; `RIGHT` are right answers in another way than the solution's.
Both are written from the exercise's text, without a look at its checker.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Wrong:
    """A wrong answer to `exercise`: what is wrong about it, and what the verdict has to say.

    `named` is the name of the mistake that fits. Without one the verdict names none, because none
    of its mistakes fits; it shows the arguments of a failing case and how to have them again, or
    quotes what `says` holds (a signature, a line that is forbidden).
    """

    exercise: str
    what: str
    answer: Callable[..., Any] | None
    named: str | None = None
    says: str = ""


@dataclass(frozen=True)
class Right:
    """A right answer to `exercise`, and what is unusual about it."""

    exercise: str
    what: str
    answer: Callable[..., Any]
