"""Query heads that share keys and values.

The oracle is torch's own operator, never the book's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer
from book.checkers.drawn import draw
from book.checkers.kv_cache.common import EXACT


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def _by_copies(spread: Callable[[Tensor, int], Tensor], scale: float | None = None) -> Answer:
    """Attention with keys and values spread over the query heads."""

    def answer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        h = q.shape[1]
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        weights = (q @ spread(k, h).mT * factor).softmax(-1)
        return weights @ spread(v, h)

    return answer


def _neighbours(x: Tensor, h: int) -> Tensor:
    return x.repeat_interleave(h // x.shape[1], 1)


def _stacked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = q.reshape(len(q), k.shape[1], -1, q.shape[-1])
    return F.scaled_dot_product_attention(rows, k, v).reshape(q.shape)


def _stacked_across(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries interleaved by position when stacked, and cut into heads when taken apart."""
    b, h, t, d = q.shape
    g = k.shape[1]
    rows = q.reshape(b, g, h // g, t, d).transpose(2, 3).reshape(b, g, -1, d)
    return F.scaled_dot_product_attention(rows, k, v).reshape(q.shape)


def _mean_of_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    g = k.shape[1]
    means = q.unflatten(1, (g, -1)).mean(2)  # type: ignore[no-untyped-call]
    out = F.scaled_dot_product_attention(means, k, v)
    return out.repeat_interleave(q.shape[1] // g, 1)


def _over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = _neighbours(k, q.shape[1]), _neighbours(v, q.shape[1])
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-2)
    return weights @ v


def _grouped_case(name: str, h: int, g: int, t: int = 3, s: int = 5, d: int = 4) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((2, h, t, d), (2, g, s, d), (2, g, s, d))
        return tuple(draw(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes))

    return Case(name, inputs, EXACT, grad=True)


GROUPED = Exercise(
    title="Heads that share",
    oracle=_grouped,
    rules=(Rule("without `enable_gqa`", ("scaled_dot_product_attention(enable_gqa=True)",)),),
    cases=(
        _grouped_case("six heads in two groups", 6, 2),
        _grouped_case("six heads in three groups", 6, 3),
        _grouped_case("one group", 4, 1),
        _grouped_case("every head its own, as many queries as keys", 4, 4, t=5),
        _grouped_case("one query, many keys", 8, 2, t=1, s=9),
        _grouped_case("heads of three features, more queries than keys", 4, 2, t=6, s=2, d=3),
    ),
    wrong=(
        WrongAnswer(
            "repeat for repeat_interleave",
            "That is key-value head h mod G. The heads of a group are neighbours: head h uses "
            "key-value head h // (H / G).",
            _by_copies(lambda x, h: x.repeat(1, h // x.shape[1], 1, 1)),
        ),
        WrongAnswer(
            "the first key-value head for all",
            "All G of them are used, each by its own group of query heads.",
            _by_copies(lambda x, h: x[:, :1].expand(-1, h, -1, -1)),
        ),
        WrongAnswer(
            "key-value heads averaged",
            "Heads are shared, not averaged. The mean belongs to the conversion of weights.",
            _by_copies(lambda x, h: x.mean(1, keepdim=True).expand(-1, h, -1, -1)),
        ),
        WrongAnswer(
            "groups counted from the end",
            "Group 0 is that of the first query heads.",
            _by_copies(lambda x, h: _neighbours(x.flip(1), h)),
        ),
        WrongAnswer(
            "scale forgotten",
            "The scores are divided by the root of head_dim, with groups as without.",
            _by_copies(_neighbours, scale=1.0),
        ),
        WrongAnswer(
            "queries stacked in another order than taken apart",
            "When the queries of a group become rows of one matrix, a head's queries must stay "
            "together, or the result must be taken apart the same way.",
            _stacked_across,
        ),
        WrongAnswer(
            "queries of a group averaged",
            "The query heads of a group share keys and values. Each still asks its own question.",
            _mean_of_queries,
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of one query over all keys add up to one: the last axis.",
            _over_queries,
        ),
    ),
    variants=(_by_copies(_neighbours), _stacked),
)
