"""A penalty for distance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Number = Callable[..., float]


def _case(*inputs: Any, name: str | None = None, tol: float = 1e-10, grad: bool = False) -> Case:
    return Case(name or ", ".join(f"{i:g}" for i in inputs), lambda: inputs, tol, grad)


@in_parts
def _alibi_bias(
    slope: Number = lambda h, heads: 2.0 ** (-8 * h / heads),
    penalty: Number = lambda i, j: j - i,
    later: float = -math.inf,
) -> Callable[[int, int], Tensor]:
    def answer(num_heads: int, length: int) -> Tensor:
        slopes = [slope(h + 1, num_heads) for h in range(num_heads)]
        rows = [[penalty(i, j) for j in range(length)] for i in range(length)]
        bias = torch.tensor(slopes, dtype=torch.float64)[:, None, None] * torch.tensor(rows)
        for i in range(length if later else 0):
            bias[:, i, i + 1 :] = later
        return bias

    return answer


def _alibi_by_matrix(num_heads: int, length: int) -> Tensor:
    """Another right answer: the slopes by repeated multiplication, the future by torch.tril."""
    ratio, slopes = 2.0 ** (-8 / num_heads), [1.0]
    for _ in range(num_heads):
        slopes.append(slopes[-1] * ratio)
    place = torch.arange(length, dtype=torch.float64)
    bias = torch.tensor(slopes[1:], dtype=torch.float64)[:, None, None] * (place - place[:, None])
    return bias.where(torch.ones(length, length).tril() == 1, -math.inf)


ALIBI_BIAS = Exercise(
    "ALiBi from memory",
    _alibi_bias(),
    [
        _case(8, 5, name="eight heads, five positions"),
        _case(2, 7, name="two heads, seven positions"),
        _case(1, 3, name="one head"),
        _case(4, 1, name="one position"),
        _case(16, 4, name="sixteen heads"),
        _case(2, 260, name="260 positions"),
    ],
    [
        WrongAnswer(
            "heads counted from 0",
            "The first slope would be 1. Heads are counted from 1, and the last slope is 1/256.",
            _alibi_bias(slope=lambda h, heads: 2.0 ** (-8 * (h - 1) / heads)),
        ),
        WrongAnswer(
            "slopes for eight heads",
            "With 2^-h the slopes are right for eight heads only. They always end at 2^-8.",
            _alibi_bias(slope=lambda h, heads: 2.0**-h),
        ),
        WrongAnswer(
            "distant keys preferred",
            "The penalty grows with the distance i - j, so it is subtracted.",
            _alibi_bias(penalty=lambda i, j: i - j),
        ),
        WrongAnswer(
            "the future left open",
            "A causal model gives later keys minus infinity; here they even get a bonus.",
            _alibi_bias(later=0),
        ),
        WrongAnswer(
            "a large negative number for minus infinity",
            "What is hidden has the bias minus infinity: a finite number can be outweighed.",
            _alibi_bias(later=-1e9),
        ),
        WrongAnswer(
            "a bonus for the key alone",
            "After the softmax this is the same. As a bias it is not what was asked: 0 at j = i.",
            _alibi_bias(penalty=lambda i, j: j),
        ),
        WrongAnswer(
            "slopes linear in the head",
            "The slopes are a geometric sequence: each is the one before times 2^(-8/H).",
            _alibi_bias(slope=lambda h, heads: h / heads * 2.0**-8),
        ),
        WrongAnswer(
            "the distance squared",
            "The bias is linear in the distance: that is what the name says.",
            _alibi_bias(penalty=lambda i, j: -((i - j) ** 2)),
        ),
        WrongAnswer(
            "exponential base e",
            "The slopes are powers of 2.",
            _alibi_bias(slope=lambda h, heads: math.exp(-8 * h / heads)),
        ),
    ],
    [_alibi_by_matrix],
)
