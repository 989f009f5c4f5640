"""What an exercise is made of: an oracle, cases, named wrong answers, and what its text forbids."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar, cast

import torch

from book.checkers.core.forbidden import Rule

Answer = Callable[..., Any]
Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Case:
    """One set of arguments. `inputs` makes them afresh, since an answer may change them."""

    name: str
    inputs: Callable[[], tuple[Any, ...]]
    tol: float = 1e-10
    # Also compare the gradients with respect to the inputs that require one.
    grad: bool = False
    # What a right answer raises here. Any other exception of the oracle is a fault of the book.
    raises: type[Exception] | None = None
    # In place of the exercise's own.
    default_dtype: torch.dtype | None = None
    # `tol` is relative to the largest number of each result, where that is not of the order of 1.
    relative: bool = False

    @classmethod
    def of(cls, name: str, *given: Any, **options: Any) -> Case:
        """The case of these arguments, the same ones each time; `options` as in the class."""
        return cls(name, lambda: given, **options)


@dataclass(frozen=True)
class WrongAnswer:
    """A mistake that people make, with its name and the reason why it is one."""

    name: str
    why: str
    answer: Answer


@dataclass(frozen=True)
class Exercise:
    """An exercise: its oracle, its cases, the named wrong answers, and other right answers.

    `variants` are right answers written in another way; the tests require that they pass, so that
    a checker asks for the result and not for one way to write it. Beside the cases each answer gets
    the probes of `core.probes`, made from them; `spared` holds the probes that this exercise does
    not have, with the reason. `leading` are the arguments that may have any number of leading
    dimensions, with the number of dimensions that come after those. `rules` are what its text
    forbids.
    """

    title: str
    oracle: Answer
    cases: Sequence[Case]
    wrong: Sequence[WrongAnswer]
    variants: Sequence[Answer]
    _: KW_ONLY
    spared: Mapping[str, str] = field(default_factory=dict)
    leading: Mapping[str, int] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    # In force while an answer runs: the chapters' own, whatever the session has.
    default_dtype: torch.dtype = torch.float64


def in_parts(factory: Factory) -> Factory:
    """Let a function that makes wrong answers out of parts be asked for two mistakes at once.

    `factory(scaled=a)` and `factory(mask=b)` are two mistakes, so `factory(scaled=a, mask=b)` is
    both. What it makes remembers what it was made of.
    """

    @functools.wraps(factory)
    def made(*args: Any, **parts: Any) -> Any:
        answer = factory(*args, **parts)
        answer.made_of = (factory, args, parts)
        return answer

    return cast(Factory, made)


def both(one: Answer, other: Answer) -> Answer | None:
    """The answer that makes the mistakes of `one` and `other`; None if that cannot be made."""
    a, b = getattr(one, "made_of", None), getattr(other, "made_of", None)
    if a is None or b is None:
        return None
    (factory, args, parts), (other_factory, other_args, other_parts) = a, b
    same = len(args) == len(other_args) and all(map(_equal, args, other_args))
    if factory is not other_factory or not same or set(parts) & set(other_parts):
        return None
    answer: Answer = factory(*args, **parts, **other_parts)
    return answer


def _equal(one: object, other: object) -> bool:
    # Only numbers and words are asked: a tensor, or a tuple of them, cannot be.
    plain = isinstance(one, int | float | str) and isinstance(other, int | float | str)
    return one is other or (plain and one == other)
