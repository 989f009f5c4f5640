"""What is drawn from after a drafted token was refused.

The oracle solves for the distribution that is missing, by the law that it has to keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw


def _residual(p: Tensor, q: Tensor) -> Tensor:
    accepted = torch.minimum(p, q)
    missing = p - accepted
    whole = missing.sum(-1, keepdim=True)
    none = whole == 0
    return torch.where(none, p, missing / torch.where(none, torch.ones_like(whole), whole))


@in_parts
def _with(
    *,
    left: Callable[[Tensor, Tensor], Tensor] = lambda p, q: (p - q).relu(),
    divide: bool = True,
    equal: bool = True,
) -> Answer:
    """The residual in parts: what is left, whether it is divided, what if nothing is."""

    def answer(p: Tensor, q: Tensor) -> Tensor:
        rest = left(p, q)
        total = rest.sum(-1, keepdim=True)
        if equal:
            rest = torch.where(total > 0, rest, p)
        if divide:
            rest = rest / (
                torch.where(total > 0, total, torch.ones_like(total)) if equal else total
            )
        return rest

    return answer


def _by_softmax(p: Tensor, q: Tensor) -> Tensor:
    gap = torch.log((p - q).clamp(min=0))
    none = (p <= q).all(-1, keepdim=True)
    return torch.where(none, p, gap.masked_fill(none, 0.0).softmax(-1))


def _case(name: str, *shape: int, scale: float = 1.0, same: tuple[int, ...] = ()) -> Case:
    def inputs() -> tuple[Any, ...]:
        p = draw(*shape, seed=1, scale=scale).softmax(-1)
        q = draw(*shape, seed=2, scale=scale).softmax(-1)
        for row in same:
            q[..., row, :] = p[..., row, :]
        return p, q

    return Case(name, inputs)


def _written(name: str, p: list[list[float]], q: list[list[float]]) -> Case:
    return Case(name, lambda: (torch.tensor(p).double(), torch.tensor(q).double()))


RESIDUAL = Exercise(
    title="What a refusal leaves",
    oracle=_residual,
    leading={"p": 1, "q": 1},
    cases=(
        _written("two tokens", [[0.6, 0.4]], [[0.8, 0.2]]),
        _case("a few distributions", 4, 7),
        _case("sharp distributions", 3, 12, scale=6.0),
        _written("nothing can be refused", [[0.25, 0.75], [0.5, 0.5]], [[0.25, 0.75], [0.9, 0.1]]),
        _case("one row without a refusal", 4, 5, same=(2,)),
        _written("tokens that the draft never says", [[0.5, 0.25, 0.25]], [[1.0, 0.0, 0.0]]),
        _case("a vocabulary of 300", 2, 300),
    ),
    variants=(_with(), _by_softmax),
    wrong=(
        WrongAnswer(
            "p again",
            "That gives the tokens that the draft says too often a second chance. They have been "
            "accepted as often as p allows.",
            _with(left=lambda p, q: p.clone()),
        ),
        WrongAnswer(
            "the absolute difference",
            "Where q is larger than p, the token is written often enough already: nothing is "
            "missing there.",
            _with(left=lambda p, q: (p - q).abs()),
        ),
        WrongAnswer(
            "q less p",
            "What is missing is p − q, for the tokens that the draft says too rarely.",
            _with(left=lambda p, q: (q - p).relu()),
        ),
        WrongAnswer(
            "not divided by its sum",
            "A distribution sums to 1. Divide what is left by its sum.",
            _with(divide=False),
        ),
        WrongAnswer(
            "nan where nothing can be refused",
            "If p and q are equal nothing is left, and 0 / 0 is nan. Return p there.",
            _with(equal=False),
        ),
    ),
)
