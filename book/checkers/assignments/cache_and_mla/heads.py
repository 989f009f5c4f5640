"""Questions of the assignment: quantise_heads, score_error_bound, grouped_backward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts


def apart(x: Tensor, dim: int, sizes: tuple[int, ...]) -> Tensor:
    """`Tensor.unflatten`, which has no types."""
    cut: Tensor = x.unflatten(dim, sizes)  # type: ignore[no-untyped-call]
    return cut


# --- quantise_heads -------------------------------------------------------------------------------


def _quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros(x.shape, dtype=torch.int8)
    scales = torch.ones(*x.shape[:2], 1, 1, dtype=x.dtype)
    for b in range(x.shape[0]):
        for g in range(x.shape[1]):
            largest = max((abs(v) for v in x[b, g].flatten().tolist()), default=0.0)
            if largest:
                scales[b, g] = largest / 127
            for s in range(x.shape[2]):
                out[b, g, s] = torch.round(x[b, g, s] / scales[b, g, 0]).to(torch.int8)
    return out, scales


@in_parts
def _quantise_with(
    largest: Callable[[Tensor], Tensor] = lambda x: x.abs().amax((-2, -1), keepdim=True),
    steps: float = 127.0,
    whole: Callable[[Tensor], Tensor] = torch.round,
    empty: bool = True,
    limit: bool = False,
) -> Answer:
    def answer(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = largest(x) / steps
        if empty:
            scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        steps_of_x = whole(x / scale).nan_to_num().clamp(-1e9, 1e9)
        if limit:
            steps_of_x = steps_of_x.clamp(-128, 127)
        # By way of int32, so that what does not fit comes round on every processor.
        return steps_of_x.to(torch.int32).to(torch.int8), scale

    return answer


def _quantise_case(name: str, make: Callable[[], Tensor]) -> Case:
    return Case(name, lambda: (make(),), EXACT)


def _with_an_outlier() -> Tensor:
    x = draw(2, 3, 4, 5)
    x[0, 1, 2, 3] = 900.0
    return x


def _with_an_empty_head() -> Tensor:
    x = draw(2, 3, 4, 5)
    x[1, 0] = 0.0
    return x


def _lopsided() -> Tensor:
    return draw(1, 2, 3, 4).abs() * -3.0


def _quantise_shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    low, high = x.amin((-2, -1), keepdim=True), x.amax((-2, -1), keepdim=True)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (torch.round((x - low) / scale) - 128).clamp(-128, 127).to(torch.int8), scale


def _quantise_upside_down(x: Tensor) -> tuple[Tensor, Tensor]:
    steps, scale = _quantise_with()(x)
    return steps, 1 / scale


def _quantise_by_factor(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.flatten(2).norm(float("inf"), dim=-1)[..., None, None] / 127
    scale[scale == 0] = 1
    return (x / scale).round().clamp(-127, 127).char(), scale


_QUANTISE = Exercise(
    title="A cache in eight bits",
    oracle=_quantise,
    cases=(
        _quantise_case("values: two sequences, three heads", lambda: draw(2, 3, 4, 5)),
        _quantise_case("values: one head is large", lambda: (
            draw(2, 3, 4, 5) * torch.tensor([1.0, 50.0, 0.01]).double()[:, None, None]
        )),
        _quantise_case("values: an outlier", _with_an_outlier),
        _quantise_case("values: negative numbers only", _lopsided),
        _quantise_case("corners: a head of zeros", _with_an_empty_head),
        _quantise_case("corners: one token", lambda: draw(3, 2, 1, 4)),
        _quantise_case("corners: tiny numbers", lambda: 1e-200 * draw(1, 2, 3, 4)),
        _quantise_case("corners: single precision", lambda: draw(2, 2, 3, 4, dtype=torch.float32)),
    ),
    wrong=(
        WrongAnswer(
            "one scale for all heads",
            "A head with large keys would take all the steps from the others. One scale per head.",
            _quantise_with(lambda x: x.abs().amax().expand(*x.shape[:2], 1, 1).clone()),
        ),
        WrongAnswer(
            "a scale per sequence",
            "Every key-value head of every sequence has a scale of its own.",
            _quantise_with(
                lambda x: x.abs().amax((1, 2, 3), keepdim=True).expand(-1, x.shape[1], 1, 1).clone()
            ),
        ),
        WrongAnswer(
            "the largest, not the largest size",
            "Negative numbers count by their absolute value; otherwise they are clipped.",
            _quantise_with(lambda x: x.amax((-2, -1), keepdim=True)),
        ),
        WrongAnswer(
            "divided by 128",
            "The largest number would become 128, which eight bits do not hold. Use 127.",
            _quantise_with(steps=128.0),
        ),
        WrongAnswer(
            "divided by 128 and cut off at 127",
            "The largest number is then off by a whole step. With 127 nothing has to be cut off.",
            _quantise_with(steps=128.0, limit=True),
        ),
        WrongAnswer(
            "cut off instead of rounded",
            "Cutting off is wrong by up to a whole step; rounding, by half of one.",
            _quantise_with(whole=torch.trunc),
        ),
        WrongAnswer(
            "a head of zeros not considered",
            "A scale of zero makes 0 / 0. The scale of a head of zeros is 1 by agreement.",
            _quantise_with(empty=False),
        ),
        WrongAnswer(
            "with a zero point",
            "The question asks for symmetric steps, where 0 stays 0 and no offset is stored.",
            _quantise_shifted,
        ),
        WrongAnswer(
            "a scale per token",
            "Each row has a scale of its own here. That is finer, but one number per head was "
            "asked for.",
            _quantise_with(lambda x: x.abs().amax(-1, keepdim=True)),
        ),
        WrongAnswer(
            "the scales upside down",
            "Integers times scales should be about x. What is returned here are the steps per "
            "unit.",
            _quantise_upside_down,
        ),
    ),
    variants=(_quantise_with(), _quantise_by_factor),
    spared=dict.fromkeys(SIXTEEN_BITS, "a number between two steps goes either way"),
)  # fmt: skip


# --- score_error_bound ----------------------------------------------------------------------------


def _bound(q: Tensor, scale: Tensor) -> Tensor:
    b, h, t, d = q.shape
    g = scale.shape[1]
    out = torch.zeros(b, h, t, 1, dtype=q.dtype)
    for n in range(b):
        for i in range(h):
            for j in range(t):
                total = sum(abs(v) for v in q[n, i, j].tolist())
                out[n, i, j] = total * scale[n, i // (h // g)].item() / 2 / math.sqrt(d)
    return out


@in_parts
def _bound_with(
    size: Callable[[Tensor], Tensor] = lambda q: q.abs().sum(-1, keepdim=True),
    step: float = 0.5,
    spread: Callable[[Tensor, int], Tensor] = lambda s, n: s.repeat_interleave(n, 1),
    root: Callable[[int], float] = math.sqrt,
) -> Answer:
    def answer(q: Tensor, scale: Tensor) -> Tensor:
        scales = spread(scale, q.shape[1] // scale.shape[1])
        return step * scales * size(q) / root(q.shape[-1])

    return answer


def _bound_case(name: str, h: int, g: int, t: int = 3, d: int = 4) -> Case:
    return Case(name, lambda: (draw(2, h, t, d), draw(2, g, 1, 1, seed=1).abs()), EXACT)


_BOUND = Exercise(
    title="How wrong can a score be?",
    oracle=_bound,
    cases=(
        _bound_case("values: six heads in two groups", 6, 2),
        _bound_case("values: eight heads in four groups", 8, 4),
        _bound_case("values: six heads in three groups", 6, 3, d=16),
        _bound_case("corners: every head its own", 3, 3),
        _bound_case("corners: one group", 4, 1),
        _bound_case("corners: one query", 4, 2, t=1, d=7),
    ),
    wrong=(
        WrongAnswer(
            "the Euclidean norm of the query",
            "The errors of all features may have the worst signs at once: sum absolute values.",
            _bound_with(size=lambda q: q.norm(dim=-1, keepdim=True)),
        ),
        WrongAnswer(
            "a whole step",
            "Rounding to the nearest step is wrong by half a step at most.",
            _bound_with(step=1.0),
        ),
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h reads key-value head h // (H / G).",
            _bound_with(spread=lambda s, n: s.repeat(1, n, 1, 1)),
        ),
        WrongAnswer(
            "the root of d_head forgotten",
            "The score is divided by the root of d_head, and its error with it.",
            _bound_with(root=lambda d: 1.0),
        ),
        WrongAnswer(
            "signs kept in the sum",
            "Positive and negative features must not cancel in a bound.",
            _bound_with(size=lambda q: q.sum(-1, keepdim=True).abs()),
        ),
        WrongAnswer(
            "d_head times the largest feature",
            "True, but not the smallest bound: each feature brings its own absolute value.",
            _bound_with(size=lambda q: q.shape[-1] * q.abs().amax(-1, keepdim=True)),
        ),
        WrongAnswer(
            "divided by d_head, not by its root",
            "The scores have the root of d_head below them, and their errors are divided like "
            "them.",
            _bound_with(root=float),
        ),
        WrongAnswer(
            "squares of the features",
            "A feature's error is multiplied by the feature itself, once. Squares are of "
            "another unit.",
            _bound_with(size=lambda q: q.square().sum(-1, keepdim=True)),
        ),
        WrongAnswer(
            "the largest feature only",
            "Every feature of a key is off, not only one. The errors of all of them add up.",
            _bound_with(size=lambda q: q.abs().amax(-1, keepdim=True)),
        ),
        WrongAnswer(
            "the largest scale for all heads",
            "True, but not the smallest bound: a query meets the keys of its own group only.",
            _bound_with(
                spread=lambda s, n: s.amax(1, keepdim=True).expand(-1, n * s.shape[1], 1, 1)
            ),
        ),
    ),
    variants=(_bound_with(),),
)


# --- grouped_backward -----------------------------------------------------------------------------


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def _grouped_backward(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return gradients(_grouped, grad_out, q, k, v)


@in_parts
def _grouped_backward_with(
    spread: Callable[[Tensor, int], Tensor] = lambda x, n: x.repeat_interleave(n, 1),
    gather: Callable[[Tensor, int], Tensor] = lambda x, g: apart(x, 1, (g, -1)).sum(2),
    mean_term: bool = True,
    over: Callable[[Tensor], Tensor] = lambda pdp: pdp.sum(-1, keepdim=True),
    factors: Callable[[float], tuple[float, float]] = lambda scale: (scale, scale),
    exchanged: bool = False,
    of_values: Callable[[Tensor, Tensor], Tensor] = lambda p, g: p.mT @ g,
) -> Answer:
    def answer(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        n, g = q.shape[1] // k.shape[1], k.shape[1]
        keys, values, scale = spread(k, n), spread(v, n), q.shape[-1] ** -0.5
        p = (q @ keys.mT * scale).softmax(-1)
        dp = grad_out @ values.mT
        ds = p * (dp - over(dp * p)) if mean_term else p * dp
        for_q, for_k = factors(scale)
        dk, dv = gather(for_k * ds.mT @ q, g), gather(of_values(p, grad_out), g)
        if exchanged:
            dk, dv = dv, dk
        return for_q * ds @ keys, dk, dv

    return answer


def _grouped_backward_by_heads(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    n, scale = q.shape[1] // k.shape[1], 1 / math.sqrt(q.shape[-1])
    for h in range(q.shape[1]):
        g = h // n
        p = (q[:, h] @ k[:, g].mT * scale).softmax(-1)
        dp = grad_out[:, h] @ v[:, g].mT
        ds = p * (dp - (grad_out[:, h] * (p @ v[:, g])).sum(-1, keepdim=True)) * scale
        dq[:, h] = ds @ k[:, g]
        dk[:, g] += ds.mT @ q[:, h]
        dv[:, g] += p.mT @ grad_out[:, h]
    return dq, dk, dv


def _grouped_case(name: str, h: int, g: int, t: int = 3, s: int = 5, d: int = 4) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((2, h, t, d), (2, h, t, d), (2, g, s, d), (2, g, s, d))
        return tuple(draw(*shape, seed=i) for i, shape in enumerate(shapes))

    return Case(name, inputs, 1e-9)


_GROUPED_BACKWARD = Exercise(
    title="Shared heads backwards",
    oracle=_grouped_backward,
    spared=dict.fromkeys(("huge",), "the gradients vanish there and what is left is rounding"),
    cases=(
        _grouped_case("values: six heads in two groups", 6, 2),
        _grouped_case("values: six heads in three groups", 6, 3),
        _grouped_case("values: more queries than keys", 4, 2, t=6, s=2, d=3),
        _grouped_case("corners: one group", 4, 1),
        _grouped_case("corners: every head its own", 3, 3),
        _grouped_case("corners: one query, many keys", 8, 2, t=1, s=9),
    ),
    wrong=(
        WrongAnswer(
            "mean over the group",
            "A shared key serves every head of its group, so that their gradients add up.",
            _grouped_backward_with(gather=lambda x, g: apart(x, 1, (g, -1)).mean(2)),
        ),
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h reads key-value head h // (H / G).",
            _grouped_backward_with(
                spread=lambda x, n: x.repeat(1, n, 1, 1),
                gather=lambda x, g: apart(x, 1, (-1, g)).sum(1),
            ),
        ),
        WrongAnswer(
            "gathered in another order than spread",
            "Neighbours were given the same key; their gradients belong together again.",
            _grouped_backward_with(gather=lambda x, g: apart(x, 1, (-1, g)).sum(1)),
        ),
        WrongAnswer(
            "one head of each group only",
            "All heads of a group used the key. Each of them has a gradient for it.",
            _grouped_backward_with(gather=lambda x, g: apart(x, 1, (g, -1))[:, :, 0]),
        ),
        WrongAnswer(
            "the softmax's second term forgotten",
            "Raising one score lowers the other weights: p times (dp - the sum of p dp).",
            _grouped_backward_with(mean_term=False),
        ),
        WrongAnswer(
            "the root of d_head forgotten",
            "The scores are divided by the root of d_head, hence the gradients of q and k too.",
            _grouped_backward_with(factors=lambda scale: (1.0, 1.0)),
        ),
        WrongAnswer(
            "the root of d_head in the gradient of q only",
            "The scores are divided, and both q and k stand behind them. The gradient of k has "
            "no root here.",
            _grouped_backward_with(factors=lambda scale: (scale, 1.0)),
        ),
        WrongAnswer(
            "mean in place of the softmax's sum",
            "The softmax's second term is a sum over the keys, in which p already are the "
            "shares. Nothing is divided by their number.",
            _grouped_backward_with(over=lambda pdp: pdp.mean(-1, keepdim=True)),
        ),
        WrongAnswer(
            "not gathered",
            "There is one gradient per query head here. Keys and values have one per group, as "
            "they were given.",
            _grouped_backward_with(gather=lambda x, g: x),
        ),
        WrongAnswer(
            "gradients of k and v exchanged",
            "Both have the same shape, so that nothing breaks, but the order asked for is q, k, "
            "v.",
            _grouped_backward_with(exchanged=True),
        ),
    ),
    variants=(_grouped_backward_with(), _grouped_backward_by_heads),
)  # fmt: skip


EXERCISES = {
    "quantise_heads": _QUANTISE,
    "score_error_bound": _BOUND,
    "grouped_backward": _GROUPED_BACKWARD,
}
