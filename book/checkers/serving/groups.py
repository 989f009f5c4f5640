"""Rounding by absmax in groups. The oracle tries all codes for each entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw


def _rounded(x: Tensor, bits: int, group: int) -> Tensor:
    """Each group by itself: divided by its largest size, and rounded on the grid of codes."""
    most = 2 ** (bits - 1) - 1
    out = torch.empty_like(x)
    for start in range(0, x.shape[-1], group):
        part = x[..., start : start + group]
        step = part.abs().max(-1, keepdim=True).values / most
        step = torch.where(step > 0, step, torch.ones_like(step))
        out[..., start : start + group] = torch.round(part / step) * step
    return out


@in_parts
def _groups_with(
    *,
    size: Callable[[Tensor], Tensor] = torch.abs,
    most: Callable[[int], int] = lambda bits: 2 ** (bits - 1) - 1,
    nearest: Callable[[Tensor], Tensor] = torch.round,
    grouped: Callable[[Tensor, int], Tensor] = lambda x, group: x.reshape(
        *x.shape[:-1], x.shape[-1] // group, group
    ),
    zeros: bool = True,
    back: bool = True,
) -> Answer:
    """Absmax in parts: the largest entry, the largest code, the rounding, the groups."""

    def answer(x: Tensor, bits: int, group: int) -> Tensor:
        parts = grouped(x, group)
        step = size(parts).amax(-1, keepdim=True) / most(bits)
        if zeros:
            step = torch.where(step == 0, torch.ones_like(step), step)
        codes = nearest(parts / step)
        return ((codes * step) if back else codes).reshape(x.shape)

    return answer


def _case(name: str, *shape: int, bits: int, group: int, scale: float = 1.0, zeros: bool = False,
          sign: float = 0.0) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        x = draw(*shape, seed=bits, scale=scale)
        if sign:
            x = sign * x.abs()
        if zeros:
            x[..., :group] = 0.0
        return x, bits, group

    return Case(name, inputs)


GROUPS = Exercise(
    title="Bug hunt: four bits in groups",
    oracle=_rounded,
    leading={"x": 1},
    cases=(
        _case("four bits, groups of four", 3, 12, bits=4, group=4),
        _case("eight bits", 2, 16, bits=8, group=8),
        _case("negative numbers", 2, 10, bits=4, group=5, sign=-1.0),
        _case("positive numbers", 2, 10, bits=3, group=5, sign=1.0),
        _case("a group of zeros", 2, 12, bits=4, group=3, zeros=True),
        _case("one group for the row", 4, 6, bits=4, group=6),
        _case("groups of one", 2, 5, bits=4, group=1),
        _case("a long row", 1, 320, bits=4, group=32),
    ),
    variants=(_groups_with(),),
    spared={
        "bfloat16": "an entry near the middle between two codes falls to either side in 16 bits",
        "float16": "an entry near the middle between two codes falls to either side in 16 bits",
    },
    wrong=(
        WrongAnswer(
            "the largest, not the largest in size",
            "A group may hold its largest entry below 0. Take the absolute value first.",
            _groups_with(size=lambda x: x),
        ),
        WrongAnswer(
            "one code too many",
            "With a sign, `bits` bits have codes up to 2^(bits − 1) − 1.",
            _groups_with(most=lambda bits: 2 ** (bits - 1)),
        ),
        WrongAnswer(
            "cut off, not rounded",
            "The nearest code is meant, and not the next one towards 0.",
            _groups_with(nearest=torch.trunc),
        ),
        WrongAnswer(
            "every n-th entry in a group",
            "A group is made of neighbours in the last dimension.",
            _groups_with(
                grouped=lambda x, group: x.reshape(*x.shape[:-1], group, x.shape[-1] // group).mT
            ),
        ),
        WrongAnswer(
            "nan where a group is 0",
            "In a group of zeros the scale would be 0, and 0 / 0 is nan. Any other scale does.",
            _groups_with(zeros=False),
        ),
        WrongAnswer(
            "the codes themselves",
            "Return what comes back: the codes times their scale.",
            _groups_with(back=False),
        ),
    ),
)
