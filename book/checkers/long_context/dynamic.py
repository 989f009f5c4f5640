"""Scores with a base that moves, from keys that are cached before the rotation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

Number = Callable[..., float]


def _case(*inputs: Any, name: str | None = None, tol: float = 1e-10, grad: bool = False) -> Case:
    return Case(name or ", ".join(f"{i:g}" for i in inputs), lambda: inputs, tol, grad)


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())


def _turned(x: Tensor, position: Tensor, theta: Tensor) -> Tensor:
    angle = position[..., None].to(x.dtype) * theta
    return _complex(x) * torch.polar(torch.ones_like(angle), angle)


def _frequencies(d: int, base: float) -> Tensor:
    return torch.tensor([base ** (-2 * k / d) for k in range(d // 2)], dtype=torch.float64)


def _dynamic_base(base: float, d: int, n: int, length: int) -> float:
    return base * math.pow(max(n, length) / length, d / (d - 2))


@in_parts
def _dynamic_scores(
    new_base: Number = _dynamic_base,
    key_base: Number | None = None,
    query_at: Callable[[int], int] = lambda n: n - 1,
    combine: Callable[[Tensor, Tensor], Tensor] = lambda q, k: (q * k.conj()).real,
    turn_keys: bool = True,
) -> Callable[..., Tensor]:
    def answer(query: Tensor, keys: Tensor, base: float, original_max_len: int) -> Tensor:
        n, d = keys.shape
        theta = _frequencies(d, new_base(base, d, n, original_max_len))
        q = _turned(query, torch.tensor(query_at(n)), theta)
        if key_base is not None:
            theta = torch.stack(
                [_frequencies(d, key_base(base, d, j + 1, original_max_len)) for j in range(n)]
            )
        k = _turned(keys, torch.arange(n) if turn_keys else torch.zeros(n), theta)
        return combine(q, k).sum(-1)

    return answer


def _scores_by_hand(query: Tensor, keys: Tensor, base: float, original_max_len: int) -> Tensor:
    """Another right answer: sums of cosines and sines of the distance."""
    n, d = keys.shape
    theta = _frequencies(d, _dynamic_base(base, d, n, original_max_len))
    angle = (n - 1 - torch.arange(n))[:, None] * theta
    a, b = query[0::2], query[1::2]
    c, e = keys[:, 0::2], keys[:, 1::2]
    return ((a * c + b * e) * angle.cos() + (a * e - b * c) * angle.sin()).sum(-1)


def _rows(n: int, d: int, length: int, name: str, base: float = 100.0) -> Case:
    return Case(name, lambda: (draw(d, seed=n), draw(n, d, seed=n + 1), base, length))


DYNAMIC_SCORES = Exercise(
    "A dynamic base and a cache",
    _dynamic_scores(),
    [
        _rows(5, 8, 16, "shorter than the training length"),
        _rows(16, 8, 16, "just the training length"),
        _rows(17, 8, 16, "one position more"),
        _rows(50, 8, 16, "more than three times the training length"),
        _rows(300, 8, 280, "300 positions after a training with 280"),
        _rows(40, 16, 10, "four times, 16 features", base=1e4),
    ],
    [
        WrongAnswer(
            "keys rotated when they came",
            "Each key has the frequencies of its own day, so scores depend on more than distance.",
            _dynamic_scores(key_base=_dynamic_base),
        ),
        WrongAnswer(
            "keys with the old base",
            "Query and keys must be rotated with the same frequencies.",
            _dynamic_scores(key_base=lambda base, d, n, length: base),
        ),
        WrongAnswer(
            "the base never moves",
            "Beyond the training length the base grows with the length.",
            _dynamic_scores(new_base=lambda base, d, n, length: base),
        ),
        WrongAnswer(
            "a whole ratio",
            "The base grows with every position beyond the training length, not once for each "
            "multiple of it: divide with / and not with //.",
            _dynamic_scores(
                new_base=lambda base, d, n, length: base * max(n // length, 1) ** (d / (d - 2))
            ),
        ),
        WrongAnswer(
            "a smaller base for a short text",
            "Up to the training length nothing is stretched: take max(n, original_max_len).",
            _dynamic_scores(
                new_base=lambda base, d, n, length: base * (n / length) ** (d / (d - 2))
            ),
        ),
        WrongAnswer(
            "the base times the ratio",
            "The last pair is to be divided by the ratio, so its power d/(d-2) belongs there.",
            _dynamic_scores(new_base=lambda base, d, n, length: base * max(n, length) / length),
        ),
        WrongAnswer(
            "the query one too far",
            "The query belongs to the last position, n - 1.",
            _dynamic_scores(query_at=lambda n: n),
        ),
        WrongAnswer(
            "keys not rotated",
            "They are cached before the rotation, so the rotation has still to be done.",
            _dynamic_scores(turn_keys=False),
        ),
        WrongAnswer(
            "no conjugate",
            "The product without it turns by the sum of the positions, not the distance.",
            _dynamic_scores(combine=lambda q, k: (q * k).real),
        ),
    ],
    [_scores_by_hand],
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)
