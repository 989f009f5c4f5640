"""Attention from memory: scaled dot products, a mask, and queries that may attend to nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.attention.drawn import EXACT, draw, lower, some
from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts


def _sdpa(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


def _qkv(
    name: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    mask: Callable[[], Tensor | None] = lambda: None,
    scale: float = 1.0,
    layout: Callable[[Tensor], Tensor] = lambda t: t,
) -> Case:
    def inputs() -> tuple[Any, ...]:
        tensors = [draw(*shape, seed=i, scale=scale) for i, shape in enumerate((q, k, v))]
        return (*(layout(t).requires_grad_() for t in tensors), mask())

    return Case(name, inputs, EXACT, grad=True)


def _with_empty_row() -> Tensor:
    mask = some(4, 5)
    mask[1] = False
    return mask


def _one_sequence_of_padding() -> Tensor:
    mask = some(2, 1, 1, 5)
    mask[1] = False
    return mask


SDPA_CASES = (
    _qkv("no mask, square", (4, 4), (4, 4), (4, 4)),
    _qkv("more keys than queries", (2, 3, 6), (2, 5, 6), (2, 5, 2)),
    _qkv("more queries than keys", (6, 3), (2, 3), (2, 3)),
    _qkv("batch and heads", (2, 3, 4, 8), (2, 3, 4, 8), (2, 3, 4, 8)),
    _qkv("rows of one feature", (3, 1), (3, 1), (3, 1)),
    _qkv("one query, one key", (1, 4), (1, 4), (1, 4)),
    _qkv("a causal mask", (5, 4), (5, 4), (5, 4), lambda: lower(5, 5)),
    _qkv("a mask of another shape", (4, 6), (5, 6), (5, 3), lambda: some(4, 5)),
    _qkv(
        "a padding mask per sequence",
        (2, 3, 4, 6),
        (2, 3, 5, 6),
        (2, 3, 5, 6),
        lambda: some(2, 1, 1, 5),
    ),
    _qkv("a query that may attend to nothing", (4, 6), (5, 6), (5, 3), _with_empty_row),
    _qkv(
        "a sequence of nothing but padding",
        (2, 2, 4, 6),
        (2, 2, 5, 6),
        (2, 2, 5, 6),
        _one_sequence_of_padding,
    ),
    _qkv("scores of size 1000", (4, 6), (5, 6), (5, 3), lambda: some(4, 5), scale=25.0),
    _qkv("transposed, not contiguous", (4, 4), (4, 4), (4, 4), layout=lambda t: t.T.detach()),
)

Softmax = Callable[[Tensor], Tensor]


@in_parts
def _sdpa_with(
    *,
    scaled: Callable[[Tensor, int], Tensor] = lambda s, d: s / math.sqrt(d),
    mask: Callable[[Tensor, Tensor], Tensor] = lambda s, m: s.masked_fill(~m, -torch.inf),
    softmax: Softmax = lambda s: s.softmax(-1),
    after: Callable[[Tensor, Tensor], Tensor] = lambda a, m: a,
    guarded: bool = True,
) -> Answer:
    """Attention in parts; `guarded` is the care for rows in which nothing is allowed."""

    def answer(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> Tensor:
        scores = scaled(query @ key.transpose(-2, -1), query.shape[-1])
        if attn_mask is None:
            return softmax(scores) @ value
        empty = ~attn_mask.any(-1, keepdim=True) if guarded else torch.tensor(False)
        weights = softmax(mask(scores, attn_mask | empty))
        return after(weights, attn_mask).masked_fill(empty, 0.0) @ value

    return answer


def _by_exponentials(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    allowed = torch.ones_like(scores) if attn_mask is None else attn_mask.to(scores)
    top = scores.masked_fill(allowed.expand_as(scores) == 0, -torch.inf).amax(-1, keepdim=True)
    shifted = (scores - top.masked_fill(top == -torch.inf, 0.0)).clamp(max=0.0)
    e = allowed * shifted.exp()
    total = e.sum(-1, keepdim=True)
    mean: Tensor = e @ v / total.masked_fill(total == 0, 1.0)
    return mean


SDPA = Exercise(
    title="Scaled dot-product attention",
    oracle=_sdpa,
    leading={"query": 2, "key": 2, "value": 2, "attn_mask": 2},
    cases=SDPA_CASES,
    rules=(Rule("Do not call torch's function", ("scaled_dot_product_attention",)),),
    variants=(
        _sdpa_with(),
        _by_exponentials,
        # The nan of a row without keys, removed after the softmax: the mask stops its gradient.
        _sdpa_with(guarded=False, after=lambda a, m: a.masked_fill(~m, 0.0)),
    ),
    wrong=(
        WrongAnswer(
            "scale forgotten",
            "The scores are divided by the root of the number of features. Without it they grow "
            "with the width and the softmax saturates.",
            _sdpa_with(scaled=lambda s, d: s),
        ),
        WrongAnswer(
            "divided by d in place of its root",
            "The standard deviation of a dot product is the root of d. Divided by d, the scores "
            "shrink as the width grows, and the weights become nearly equal.",
            _sdpa_with(scaled=lambda s, d: s / d),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of each query sum to one, over the keys: that is the last axis of the "
            "scores. Here each key's weights sum to one.",
            _sdpa_with(softmax=lambda s: s.softmax(-2)),
        ),
        WrongAnswer(
            "mask after the softmax",
            "The forbidden keys are still counted in the denominator, so the rows sum to less "
            "than one. Mask the scores with -inf, before the softmax.",
            _sdpa_with(mask=lambda s, m: s, after=lambda a, m: a * m),
        ),
        WrongAnswer(
            "scores multiplied by the mask",
            "A score of 0 is not a forbidden one: it has the weight of exp(0). Set forbidden "
            "scores to -inf.",
            _sdpa_with(mask=lambda s, m: s * m),
        ),
        WrongAnswer(
            "boolean mask added",
            "Adding True to a score raises it by 1. Turn the mask into 0 and -inf first.",
            _sdpa_with(mask=lambda s, m: s + m),
        ),
        WrongAnswer(
            "mask the wrong way round",
            "True means may attend here. `nn.MultiheadAttention` has it the other way round.",
            lambda q, k, v, m: _sdpa_with()(q, k, v, None if m is None else ~m),
        ),
        WrongAnswer(
            "nan where nothing is allowed",
            "A row of nothing but -inf has no softmax. Replace its scores before the softmax and "
            "set its weights to zero afterwards.",
            _sdpa_with(guarded=False),
        ),
        WrongAnswer(
            "the mean where nothing is allowed",
            "With a large negative number in place of -inf such a row becomes the plain mean of "
            "all values, the forbidden ones. It should be zero.",
            _sdpa_with(guarded=False, mask=lambda s, m: s.masked_fill(~m, -1e9)),
        ),
        WrongAnswer(
            "exponentials without the maximum subtracted",
            "exp overflows for scores above 709. Subtract the largest score of each row first, or "
            "call softmax, which does.",
            _sdpa_with(softmax=lambda s: s.exp() / s.exp().sum(-1, keepdim=True)),
        ),
    ),
)
