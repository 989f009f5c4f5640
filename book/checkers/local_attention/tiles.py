"""Attention in tiles, and the merging of what two parts of the keys gave.

The oracles are torch's own operator and a softmax over the log-sum-exps, never the book's library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.drawn import draw

EXACT = 1e-11


def _full(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


@in_parts
def _in_tiles(
    *,
    rescale_out: bool = True,
    rescale_total: bool = True,
    starts: Callable[[int, int], range] = lambda s, size: range(0, s, size),
    maximum: bool = True,
    update: bool = True,
    scale: Callable[[int], float] = lambda d: d**-0.5,
    divide: str = "end",
) -> Answer:
    """The loop over tiles in parts."""

    def answer(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
        m = q.new_full((*q.shape[:-1], 1), -torch.inf)
        total, out = torch.zeros_like(m), q.new_zeros((*q.shape[:-1], v.shape[-1]))
        for a in starts(k.shape[-2], size):
            scores = scale(q.shape[-1]) * q @ k[..., a : a + size, :].mT
            new = torch.maximum(m, scores.amax(-1, keepdim=True)) if maximum else 0 * m.exp()
            shrink, weights = torch.exp(m - new), torch.exp(scores - new)
            if not maximum:
                shrink = torch.ones_like(shrink)
            part = weights.sum(-1, keepdim=True)
            total = total * (shrink if rescale_total else 1) + part
            read = weights @ v[..., a : a + size, :]
            if divide == "each":
                read = read / part
            out = out * (shrink if rescale_out else 1) + read
            if update:
                m = new
        return out if divide == "each" else out / total

    return answer


def _from_the_end(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Tiles from the last one to the first, and a share in place of two sums."""
    lse = q.new_full((*q.shape[:-1], 1), -torch.inf)
    out = q.new_zeros((*q.shape[:-1], v.shape[-1]))
    for a in reversed(range(0, k.shape[-2], size)):
        ks, vs = k[..., a : a + size, :], v[..., a : a + size, :]
        scores = q @ ks.mT / q.shape[-1] ** 0.5
        here = scores.logsumexp(-1, keepdim=True)
        both = torch.logaddexp(lse, here)
        out = out * torch.exp(lse - both) + torch.exp(scores - both) @ vs
        lse = both
    return out


def _tiled_case(name: str, t: int, s: int, size: int, d: int = 5, scale: float = 1.0) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((2, t, d), (2, s, d), (2, s, 3))
        return (
            *(draw(*n, seed=i, scale=scale).requires_grad_() for i, n in enumerate(shapes)),
            size,
        )

    return Case(name, inputs, EXACT, grad=True)


def _room(q: Tensor, k: Tensor, v: Tensor, size: int) -> int:
    """The numbers of the largest tensor that is needed: an argument, or one tile of scores."""
    tile = q.shape[:-1].numel() * min(size, k.shape[-2])
    return max(q.numel(), k.numel(), v.numel(), q.shape[:-1].numel() * v.shape[-1], tile)


TILED = Exercise(
    title="Bug hunt: attention in tiles",
    oracle=_full,
    leading={"q": 2, "k": 2, "v": 2},
    rules=(
        Rule("no `softmax`", ("softmax", "aten._softmax", "scaled_dot_product_attention")),
        Rule("without making all scores at once", entries=_room),
    ),
    cases=(
        _tiled_case("three tiles and a rest", 8, 11, 3),
        _tiled_case("as many queries as keys, tiles that fit", 6, 6, 2),
        _tiled_case("one tile", 4, 7, 7),
        _tiled_case("a tile larger than the row", 3, 5, 8),
        _tiled_case("tiles of one key", 4, 6, 1),
        _tiled_case("large scores", 5, 9, 4, scale=12.0),
        _tiled_case("one query, many keys", 1, 300, 64),
    ),
    wrong=(
        WrongAnswer(
            "the output is not rescaled",
            "What is in the output so far was measured from the old maximum, like the sum. When "
            "the maximum rises, both shrink by the same factor.",
            _in_tiles(rescale_out=False),
        ),
        WrongAnswer(
            "the sum is not rescaled",
            "The sum so far was measured from the old maximum. When that rises, it shrinks too.",
            _in_tiles(rescale_total=False),
        ),
        WrongAnswer(
            "the last keys left out",
            "The number of keys need not be a multiple of the size. What is left over is a tile "
            "too.",
            _in_tiles(starts=lambda s, size: range(0, s // size * size, size)),
        ),
        WrongAnswer(
            "without a maximum",
            "Without the maximum exp overflows where a score is large.",
            _in_tiles(maximum=False),
        ),
        WrongAnswer(
            "the maximum is not kept",
            "The new maximum is the old one of the next tile.",
            _in_tiles(update=False),
        ),
        WrongAnswer(
            "scale forgotten",
            "The scores are divided by the root of the number of features, in tiles as without.",
            _in_tiles(scale=lambda d: 1.0),
        ),
        WrongAnswer(
            "each tile divided by its own sum",
            "A tile does not know the sum of the row. Divide once, at the end.",
            _in_tiles(divide="each"),
        ),
    ),
    variants=(_in_tiles(), _from_the_end),
    spared={"float16": "sums of exponentials are rounded on the way, where torch keeps 32 bits"},
)


def _merged(o1: Tensor, l1: Tensor, o2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    lses = torch.stack([l1, l2])
    nothing = (lses == -torch.inf).all(0)
    shares = lses.masked_fill(nothing, 0.0).softmax(0)[..., None]
    total = torch.logsumexp(lses, 0)
    return (shares * torch.stack([o1, o2])).sum(0), total


def _by_a_gate(o1: Tensor, l1: Tensor, o2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    gap = torch.where(l1 == l2, torch.zeros_like(l1), l1 - l2)
    gate = torch.sigmoid(gap)[..., None]
    return gate * o1 + (1 - gate) * o2, torch.logaddexp(l1, l2)


@in_parts
def _merge_with(
    *,
    shares: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda a, b: (a.exp(), b.exp()),
    divide: bool = True,
    total: Callable[[Tensor, Tensor], Tensor] = torch.logaddexp,
    shift: bool = True,
    empty: bool = True,
) -> Answer:
    """Merging in parts: what each output is multiplied by, and the new log-sum-exp."""

    def answer(o1: Tensor, l1: Tensor, o2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
        top = torch.maximum(l1, l2) if shift else torch.zeros_like(l1)
        if empty:
            top = top.masked_fill(top == -torch.inf, 0.0)
        a, b = shares(l1 - top, l2 - top)
        out = a[..., None] * o1 + b[..., None] * o2
        if divide:
            norm = a + b
            if empty:
                norm = norm.masked_fill(norm == 0, 1.0)
            out = out / norm[..., None]
        return out, total(l1, l2)

    return answer


def _merge_case(
    name: str, *shape: int, far: float = 0.0, none: tuple[int, ...] = (), grad: bool = True
) -> Case:
    def inputs() -> tuple[Any, ...]:
        o1, o2 = draw(*shape, seed=1), draw(*shape, seed=2)
        l1, l2 = draw(*shape[:-1], seed=3, scale=2.0), draw(*shape[:-1], seed=4, scale=2.0) + far
        for part, (o, lse) in enumerate(((o1, l1), (o2, l2))):
            if part in none:
                o[..., 0, :], lse[..., 0] = 0.0, -torch.inf
        return tuple(x.requires_grad_(grad) for x in (o1, l1, o2, l2))

    return Case(name, inputs, EXACT, grad=grad)


MERGE = Exercise(
    title="Two halves of the keys",
    oracle=_merged,
    leading={"o1": 2, "l1": 1, "o2": 2, "l2": 1},
    cases=(
        _merge_case("two heads", 2, 5, 3),
        _merge_case("one query", 1, 4),
        _merge_case("the second part has all the weight", 3, 2, far=900.0, grad=False),
        _merge_case("the first part has all the weight", 3, 2, far=-900.0, grad=False),
        _merge_case("a query that saw nothing in the first part", 4, 3, none=(0,), grad=False),
        _merge_case("a query that saw nothing in the second part", 4, 3, none=(1,), grad=False),
        _merge_case("a query that saw nothing at all", 4, 3, none=(0, 1), grad=False),
    ),
    wrong=(
        WrongAnswer(
            "the mean of the two",
            "A part that found better keys counts for more: its share is the exponential of its "
            "log-sum-exp.",
            _merge_with(shares=lambda a, b: (torch.ones_like(a), torch.ones_like(b))),
        ),
        WrongAnswer(
            "the sum of the two",
            "Each output is a mean already. Two means have to be weighted, with shares that sum to "
            "1.",
            _merge_with(divide=False),
        ),
        WrongAnswer(
            "the log-sum-exps as they are",
            "They are logarithms. Shares are proportional to their exponentials.",
            _merge_with(shares=lambda a, b: (a, b), shift=False),
        ),
        WrongAnswer(
            "the log-sum-exps added",
            "The sums of exponentials are added, not their logarithms.",
            _merge_with(total=lambda a, b: a + b),
        ),
        WrongAnswer(
            "the larger log-sum-exp",
            "The new one belongs to the sum of both, which is larger than either.",
            _merge_with(total=torch.maximum),
        ),
        WrongAnswer(
            "without a maximum",
            "The exponential of a large log-sum-exp overflows. Take the larger one off both first.",
            _merge_with(shift=False),
        ),
        WrongAnswer(
            "nan where nothing was seen",
            "Minus infinity from minus infinity is nan. A query that saw no key has the output 0.",
            _merge_with(empty=False),
        ),
        WrongAnswer(
            "shares exchanged",
            "The part with the larger log-sum-exp has the larger share.",
            _merge_with(shares=lambda a, b: (b.exp(), a.exp())),
        ),
    ),
    variants=(_merge_with(), _by_a_gate),
)
