"""Attention that compares queries with latents, without keys and without values.

The oracle makes the keys and values of each head; a wrong answer has one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.drawn import draw
from book.checkers.mla.common import EXACT


def _with_keys(q: Tensor, c: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, c[:, None] @ w_uk, c[:, None] @ w_uv)


def _most_of_absorbed(q: Tensor, c: Tensor, w_uk: Tensor, w_uv: Tensor) -> int:
    """The numbers of the largest tensor without keys: an argument, the scores, wide queries."""
    b, h, t, _ = q.shape
    s, d_c = c.shape[1:]
    given = max(x.numel() for x in (q, c, w_uk, w_uv))
    return max(given, b * h * t * max(s, d_c))


def _absorbed_case(name: str, *sizes: int, scale: float = 1.0) -> Case:
    """Sizes B, H, T, S, d_h, d_v, d_c."""
    b, h, t, s, d_h, d_v, d_c = sizes

    def inputs() -> tuple[Any, ...]:
        drawn = [draw(b, h, t, d_h, scale=scale), draw(b, s, d_c, seed=2, scale=scale)]
        drawn += [draw(h, d_c, d_h, seed=5) / d_c**0.5, draw(h, d_c, d_v, seed=6)]
        return tuple(x.requires_grad_() for x in drawn)

    return Case(name, inputs, EXACT, grad=True)


@in_parts
def _absorbed(
    query: Callable[[Tensor, Tensor], Tensor] = lambda q, w: q @ w.mT,
    scale: Callable[[int, int], float] = lambda d_h, d_c: d_h**-0.5,
    weights: Callable[[Tensor], Tensor] = lambda s: s.softmax(-1),
    up: Callable[[Tensor, Tensor], Tensor] = lambda o, w: o @ w,
) -> Answer:
    def answer(q: Tensor, c: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
        scores = scale(q.shape[-1], c.shape[-1]) * query(q, w_uk) @ c[:, None].mT
        return up(weights(scores) @ c[:, None], w_uv)

    return answer


def _by_einsum(q: Tensor, c: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
    scores = torch.einsum("bhtd,hcd,bsc->bhts", q, w_uk, c)
    p = torch.softmax(scores / q.shape[-1] ** 0.5, -1)
    return torch.einsum("bhts,bsc,hcv->bhtv", p, c, w_uv)


ABSORBED = Exercise(
    title="Attention without keys",
    oracle=_with_keys,
    rules=(Rule("without making a key or a value of any head", entries=_most_of_absorbed),),
    cases=(
        # So many keys that a key of each head is more than all that a right answer makes.
        _absorbed_case("one query, many keys", 1, 4, 1, 40, 6, 5, 10),
        _absorbed_case("sizes that all differ", 2, 3, 5, 7, 8, 6, 12),
        _absorbed_case("a latent as wide as a key", 2, 3, 4, 6, 8, 8, 8),
        _absorbed_case("one head, as many queries as keys", 2, 1, 5, 5, 4, 3, 7),
        _absorbed_case("one key", 1, 2, 3, 1, 4, 3, 5),
        _absorbed_case("large scores", 1, 2, 3, 6, 8, 4, 16, scale=4.0),
    ),
    wrong=(
        WrongAnswer(
            "the scale of the wide rows",
            "The rows compared are d_c wide now, but their product is still the score of rows of "
            "d_h features, so the root is that of d_h.",
            _absorbed(scale=lambda d_h, d_c: d_c**-0.5),
        ),
        WrongAnswer(
            "no scale",
            "The scores have to be divided by the root of d_h before the softmax.",
            _absorbed(scale=lambda d_h, d_c: 1.0),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of one query sum to 1 over the keys, which are the last axis.",
            _absorbed(weights=lambda s: s.softmax(-2)),
        ),
        WrongAnswer(
            "W_UK not transposed",
            "Making a key is c @ w_uk; the query goes the other way, with the transpose. Only for "
            "d_c = d_h do the shapes hide it.",
            _absorbed(query=lambda q, w: q @ w),
        ),
        WrongAnswer(
            "one head's matrix for all",
            "Each head has a W_UK of its own; with the first one for all the heads would be one.",
            _absorbed(query=lambda q, w: q @ w[:1].mT),
        ),
        WrongAnswer(
            "left in the latent space",
            "The mean of latents has d_c features; each head's W_UV takes it up to d_v.",
            _absorbed(up=lambda o, w: o),
        ),
    ),
    variants=(_absorbed(), _by_einsum),
)
