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


def _with_keys(
    q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    k, v = c[:, None] @ w_uk, c[:, None] @ w_uv
    shared = k_rope[:, None].expand(-1, len(w_uk), -1, -1)
    q = torch.cat([q_nope, q_rope], -1)
    return F.scaled_dot_product_attention(q, torch.cat([k, shared], -1), v)


def _most_of_absorbed(
    q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
) -> int:
    """The numbers of the largest tensor without keys: an argument, the scores, wide rows."""
    b, h, t, _ = q_nope.shape
    s, wide = c.shape[1], c.shape[2] + k_rope.shape[2]
    given = max(x.numel() for x in (q_nope, q_rope, c, k_rope, w_uk, w_uv))
    return max(given, b * h * t * max(s, wide), b * s * wide)


def _absorbed_case(name: str, *sizes: int, scale: float = 1.0) -> Case:
    """Sizes B, H, T, S, d_h, d_R, d_v, d_c."""
    b, h, t, s, d_h, d_r, d_v, d_c = sizes

    def inputs() -> tuple[Any, ...]:
        shapes = ((b, h, t, d_h), (b, h, t, d_r), (b, s, d_c), (b, s, d_r))
        drawn = [draw(*shape, seed=i, scale=scale) for i, shape in enumerate(shapes)]
        drawn += [draw(h, d_c, d_h, seed=5) / d_c**0.5, draw(h, d_c, d_v, seed=6)]
        return tuple(x.requires_grad_() for x in drawn)

    return Case(name, inputs, EXACT, grad=True)


@in_parts
def _absorbed(
    query: Callable[[Tensor, Tensor], Tensor] = lambda q, w: q @ w.mT,
    scale: Callable[[int, int, int], float] = lambda d_h, d_r, d_c: (d_h + d_r) ** -0.5,
    weights: Callable[[Tensor, Tensor], Tensor] = lambda a, b: (a + b).softmax(-1),
    up: Callable[[Tensor, Tensor], Tensor] = lambda o, w: o @ w,
) -> Answer:
    def answer(
        q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
    ) -> Tensor:
        factor = scale(q_nope.shape[-1], q_rope.shape[-1], c.shape[-1])
        what = factor * query(q_nope, w_uk) @ c[:, None].mT
        where = factor * q_rope @ k_rope[:, None].mT
        return up(weights(what, where) @ c[:, None], w_uv)

    return answer


def _by_einsum(
    q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    scores = torch.einsum("bhtd,hcd,bsc->bhts", q_nope, w_uk, c)
    scores = scores + torch.einsum("bhtr,bsr->bhts", q_rope, k_rope)
    p = torch.softmax(scores / (q_nope.shape[-1] + q_rope.shape[-1]) ** 0.5, -1)
    return torch.einsum("bhts,bsc,hcv->bhtv", p, c, w_uv)


ABSORBED = Exercise(
    title="Attention without keys",
    oracle=_with_keys,
    rules=(Rule("without making a key or a value of any head", entries=_most_of_absorbed),),
    cases=(
        # So many keys that a key of each head is more than all that a right answer makes.
        _absorbed_case("one query, many keys", 1, 4, 1, 40, 6, 2, 5, 10),
        _absorbed_case("sizes that all differ", 2, 3, 5, 7, 8, 4, 6, 12),
        _absorbed_case("a latent as wide as a key", 2, 3, 4, 6, 8, 2, 8, 8),
        _absorbed_case("one head, as many queries as keys", 2, 1, 5, 5, 4, 4, 3, 7),
        _absorbed_case("one key", 1, 2, 3, 1, 4, 2, 3, 5),
        _absorbed_case("large scores", 1, 2, 3, 6, 8, 4, 4, 16, scale=4.0),
    ),
    wrong=(
        WrongAnswer(
            "the scale of the wide rows",
            "The rows compared are d_c + d_R wide now, but their product is still the score of "
            "rows of d_h + d_R features, so the root is that of d_h + d_R.",
            _absorbed(scale=lambda d_h, d_r, d_c: (d_c + d_r) ** -0.5),
        ),
        WrongAnswer(
            "the scale without the rotated part",
            "A score has d_h + d_R terms; dividing by the root of d_h leaves it too large.",
            _absorbed(scale=lambda d_h, d_r, d_c: d_h**-0.5),
        ),
        WrongAnswer(
            "no scale",
            "The scores have to be divided by the root of d_h + d_R before the softmax.",
            _absorbed(scale=lambda d_h, d_r, d_c: 1.0),
        ),
        WrongAnswer(
            "no position",
            "The rotated parts of query and shared key belong to the score; without them it has no "
            "position at all.",
            _absorbed(weights=lambda a, b: a.softmax(-1)),
        ),
        WrongAnswer(
            "two softmaxes",
            "The two parts are one score: they are added before the softmax, not after it.",
            _absorbed(weights=lambda a, b: (a.softmax(-1) + b.softmax(-1)) / 2),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of one query sum to 1 over the keys, which are the last axis.",
            _absorbed(weights=lambda a, b: (a + b).softmax(-2)),
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
