"""The projections of a published checkpoint, in the order of features that this book uses.

The oracle moves row after row; a wrong answer is the right one with one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _rows(x: Tensor, heads: int) -> Tensor:
    """Row k of each head to place 2k, row k + d / 2 to 2k + 1, one after the other."""
    d, out = len(x) // heads, torch.empty_like(x)
    for h in range(heads):
        for k in range(d // 2):
            out[h * d + 2 * k] = x[h * d + k]
            out[h * d + 2 * k + 1] = x[h * d + k + d // 2]
    return out


def _convert(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_bias: Tensor,
    k_bias: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> Five:
    return (
        _rows(q, num_heads),
        _rows(k, num_kv_heads),
        v,
        _rows(q_bias, num_heads),
        _rows(k_bias, num_kv_heads),
    )


def _by_view(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)  # type: ignore[no-untyped-call,no-any-return]


def _inverse(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)  # type: ignore[no-untyped-call,no-any-return]


@in_parts
def _convert_with(
    *,
    move: Callable[[Tensor, int], Tensor] = _by_view,
    of_q: bool = True,
    of_k: bool = True,
    key_heads: Callable[[int, int], int] = lambda h, g: g,
    query_heads: Callable[[int], int] = lambda h: h,
    of_v: bool = False,
    of_biases: bool = True,
) -> Answer:
    """The conversion with one part replaced."""

    def answer(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_bias: Tensor,
        k_bias: Tensor,
        num_heads: int,
        num_kv_heads: int,
    ) -> Five:
        h, g = query_heads(num_heads), key_heads(num_heads, num_kv_heads)
        return (
            move(q, h) if of_q else q,
            move(k, g) if of_k else k,
            move(v, g) if of_v else v,
            move(q_bias, h) if of_biases else q_bias,
            move(k_bias, g) if of_biases else k_bias,
        )

    return answer


def _case(name: str, heads: int, kv_heads: int, d: int, d_model: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        rows = (heads * d, kv_heads * d, kv_heads * d)
        matrices = [draw(n, d_model, seed=i) for i, n in enumerate(rows)]
        biases = [draw(n, seed=3 + i) for i, n in enumerate(rows[:2])]
        return *matrices, *biases, heads, kv_heads

    return Case(name, inputs, 1e-11)


CONVERT = Exercise(
    title="A loader with three mistakes",
    oracle=_convert,
    cases=(
        _case("four heads on two", 4, 2, 8, 5),
        _case("as many key-value heads as heads", 3, 3, 4, 6),
        _case("one key-value head", 4, 1, 8, 3),
        _case("heads of two features", 2, 1, 2, 4),
        _case("six heads on three of twelve features", 6, 3, 12, 2),
    ),
    wrong=(
        WrongAnswer(
            "keys split into as many heads as queries",
            "The key projection has num_kv_heads heads. Split into more, each is cut in two.",
            _convert_with(key_heads=lambda h, g: h),
        ),
        WrongAnswer(
            "values permuted",
            "Values are never rotated, and the output projection expects their features as they "
            "are.",
            _convert_with(of_v=True),
        ),
        WrongAnswer(
            "biases left as they are",
            "A bias has one number for each row of its matrix, and belongs to that feature.",
            _convert_with(of_biases=False),
        ),
        WrongAnswer(
            "the inverse permutation",
            "That turns neighbours into halves. The checkpoint has halves already.",
            _convert_with(move=_inverse),
        ),
        WrongAnswer(
            "all heads as one",
            "Each head has its own pairs: feature k goes with feature k + d / 2 of the same head.",
            _convert_with(query_heads=lambda h: 1, key_heads=lambda h, g: 1),
        ),
        WrongAnswer(
            "queries only",
            "The score compares a query with a key. Both must have the same order of features.",
            _convert_with(of_k=False),
        ),
        WrongAnswer(
            "keys only",
            "The score compares a query with a key. Both must have the same order of features.",
            _convert_with(of_q=False),
        ),
    ),
    variants=(_convert_with(),),
)
