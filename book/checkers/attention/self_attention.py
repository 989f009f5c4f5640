"""Causal multi-head self-attention with four bugs. The oracle is torch's own module."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.attention.drawn import draw, past
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _self_attention(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    parts = zip(*(w.chunk(num_heads, 1) for w in (w_q, w_k, w_v)), strict=True)
    total = torch.zeros_like(x)
    for (a, b, c), o in zip(parts, w_o.chunk(num_heads, 0), strict=True):
        total = total + F.scaled_dot_product_attention(x @ a, x @ b, x @ c, is_causal=True) @ o
    return total


def _self_case(name: str, b: int, t: int, width: int, heads: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        x = draw(b, t, width)
        # Scores of the order of 1: larger ones make much of what float32 rounds.
        matrices = (draw(width, width, seed=1 + i, scale=width**-0.5) for i in range(4))
        return (*(m.requires_grad_() for m in (x, *matrices)), heads)

    return Case(name, inputs, 1e-10, grad=True)


def _split(x: Tensor, h: int) -> Tensor:
    return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)


def _split_by_view(x: Tensor, h: int) -> Tensor:
    b, t, width = x.shape
    return x.reshape(b, h, t, width // h)


def _masked_softmax(scores: Tensor, past: Tensor) -> Tensor:
    return scores.masked_fill(~past, -torch.inf).softmax(-1)


@in_parts
def _self_with(
    *,
    split: Callable[[Tensor, int], Tensor] = _split,
    width: Callable[[int, int], float] = lambda d_model, h: d_model / h,
    weights: Callable[[Tensor, Tensor], Tensor] = _masked_softmax,
    merge: Callable[[Tensor], Tensor] = lambda z: z.transpose(1, 2).flatten(-2),
    out: Callable[[Tensor, Tensor], Tensor] = lambda z, w_o: z @ w_o,
    layout: Callable[[Tensor], Tensor] = lambda w: w,
) -> Answer:
    def answer(
        x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
    ) -> Tensor:
        q, k, v = (split(x @ layout(w), num_heads) for w in (w_q, w_k, w_v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width(x.shape[-1], num_heads))
        return out(merge(weights(scores, past(x[0])) @ v), layout(w_o))

    return answer


def _by_einsum(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    d = x.shape[-1] // num_heads
    q, k, v = (
        torch.einsum("btm,mhc->bthc", x, w.reshape(-1, num_heads, d)) for w in (w_q, w_k, w_v)
    )
    scores = torch.einsum("bihc,bjhc->bhij", q, k) * d**-0.5
    z = torch.einsum("bhij,bjhc->bihc", _masked_softmax(scores, past(x[0])), v)
    return torch.einsum("bihc,hcm->bim", z, w_o.reshape(num_heads, d, -1))


def _by_torch(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    q, k, v = (_split(x @ w, num_heads) for w in (w_q, w_k, w_v))
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=past(x[0]))
    return z.transpose(1, 2).flatten(-2) @ w_o


SELF_ATTENTION = Exercise(
    title="Causal multi-head self-attention",
    oracle=_self_attention,
    cases=(
        _self_case("two heads of three features", 2, 5, 6, 2),
        _self_case("as many positions as heads", 1, 3, 6, 3),
        _self_case("four heads of two features", 2, 4, 8, 4),
        _self_case("heads of one feature", 1, 4, 4, 4),
        _self_case("one head", 2, 4, 4, 1),
    ),
    variants=(
        _self_with(),
        _by_einsum,
        _by_torch,
        _self_with(weights=lambda s, m: s.masked_fill(~m, -torch.inf).log_softmax(-1).exp()),
    ),
    wrong=(
        WrongAnswer(
            "scale forgotten",
            "The scores of each head are divided by the root of its number of features.",
            _self_with(width=lambda d_model, h: 1.0),
        ),
        WrongAnswer(
            "root of d_model in place of d_head",
            "A head's dot product runs over d_model / num_heads features, and the variance of "
            "the scores is that number.",
            _self_with(width=lambda d_model, h: d_model),
        ),
        WrongAnswer(
            "view without transpose",
            "A view keeps the order of the numbers, so `.view(B, H, T, d_head)` cuts the positions "
            "into groups. View as (B, T, H, d_head), then transpose.",
            _self_with(split=_split_by_view),
        ),
        WrongAnswer(
            "no transpose before the heads are merged",
            "(B, H, T, d_head) goes back to (B, T, H, d_head) before the reshape. Without that "
            "positions and heads are mixed.",
            _self_with(merge=lambda z: z.reshape(z.shape[0], z.shape[2], -1)),
        ),
        WrongAnswer(
            "features dealt out to the heads in turn",
            "Head h owns d_head neighbouring columns, not every num_heads-th one.",
            _self_with(split=lambda x, h: x.reshape(*x.shape[:2], -1, h).permute(0, 3, 1, 2)),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of each query sum to one, over the keys: the last axis of the scores.",
            _self_with(weights=lambda s, m: s.masked_fill(~m, -torch.inf).softmax(-2)),
        ),
        WrongAnswer(
            "mask after the softmax",
            "The future is hidden but still counted in the denominator. Mask the scores with "
            "-inf, before the softmax.",
            _self_with(weights=lambda s, m: s.softmax(-1) * m),
        ),
        WrongAnswer(
            "no mask",
            "Each token sees the future. The attention was to be causal.",
            _self_with(weights=lambda s, m: s.softmax(-1)),
        ),
        WrongAnswer(
            "a large negative number in place of -inf",
            "It does not fit into float16, and scores can be below it, which then lose to the "
            "future.",
            _self_with(weights=lambda s, m: s.masked_fill(~m, -1e9).softmax(-1)),
        ),
        WrongAnswer(
            "scores transposed",
            "The rows of the scores are queries, q @ k.T. In k @ q.T they are keys.",
            _self_with(weights=lambda s, m: _masked_softmax(s.transpose(-2, -1), m)),
        ),
        WrongAnswer(
            "output projection left out",
            "The heads side by side are still to be multiplied by w_o, which mixes them.",
            _self_with(out=lambda z, w_o: z + 0 * w_o.sum()),
        ),
        WrongAnswer(
            "matrices in torch's layout",
            "The matrices are in the book's layout, x @ W. Only nn.Linear stores the transpose.",
            _self_with(layout=lambda w: w.T),
        ),
    ),
    spared={"bfloat16": "three products, one after the other, each rounded"},
)
