"""Questions of the assignment: group_norm, partial_rms_norm, fold_batch_norm, fold_layer_norm."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

EPS = 1e-5
Pair = tuple[Tensor, Tensor]
Affine = Callable[[Tensor, Tensor, Tensor], Tensor]


def row_mean(x: Tensor) -> Tensor:
    """The mean over the last dimension, which stays."""
    return x.mean(-1, keepdim=True)


# --- group_norm -----------------------------------------------------------------------------------


def _group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return F.group_norm(rows, groups, weight, bias, eps).reshape(x.shape)


@in_parts
def _grouped(
    cut: Callable[[Tensor, int], Tensor] = lambda x, g: torch.unflatten(x, -1, (g, -1)),
    back: Callable[[Tensor], Tensor] = lambda y: y.flatten(-2),
    centre: bool = True,
    correction: int = 0,
    root: Callable[[Tensor, float], Tensor] = lambda var, eps: (var + eps).sqrt(),
    dims: tuple[int, ...] = (-1,),
    first: Affine = lambda x, w, b: x,
    last: Affine = lambda y, w, b: y * w + b,
    constant: bool = False,
) -> Callable[..., Tensor]:
    def answer(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y = cut(first(x, weight, bias), groups)
        c = y - y.mean(dims, keepdim=True)
        n = math.prod(y.shape[i] for i in dims)
        var = c.square().sum(dims, keepdim=True) / (n - correction)
        if constant:
            c, var = y - y.mean(dims, keepdim=True).detach(), var.detach()
        y = back((c if centre else y) / root(var, eps))
        return last(y, weight, bias)

    return answer


def _gn_case(name: str, *shape: int, groups: int, scale: float = 1.0, tol: float = EXACT,
             eps: float = EPS, dtype: torch.dtype = torch.float64) -> Case:  # fmt: skip
    def inputs() -> tuple[object, ...]:
        d = shape[-1]
        return (
            draw(*shape, scale=scale, offset=0.5 * scale, dtype=dtype).requires_grad_(), groups,
            draw(d, seed=1, offset=0.5, dtype=dtype).requires_grad_(),
            draw(d, seed=2, dtype=dtype).requires_grad_(), eps,
        )  # fmt: skip

    return Case(name, inputs, tol, grad=dtype == torch.float64)


GROUP_NORM = Exercise(
    title="Group norm over the features of each token",
    oracle=_group_norm,
    cases=[
        _gn_case("values: two groups", 2, 3, 8, groups=2),
        _gn_case("values: four groups", 2, 5, 12, groups=4),
        _gn_case("values: a matrix", 5, 6, groups=3),
        _gn_case("values: a larger eps", 2, 3, 8, groups=2, eps=0.1),
        _gn_case("corners: one group", 2, 3, 6, groups=1),
        _gn_case("corners: as many tokens as features", 2, 6, 6, groups=3),
        _gn_case("corners: tiny features", 2, 3, 8, groups=2, scale=1e-4),
        _gn_case("corners: large features", 2, 3, 8, groups=2, scale=1e4),
        _gn_case("corners: float32", 2, 3, 8, groups=2, tol=1e-5, dtype=torch.float32),
    ],
    variants=(_grouped(),),
    wrong=(
        WrongAnswer(
            "groups ignored",
            "That is LayerNorm: every group has a mean and a variance of its own.",
            lambda x, g, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps),
        ),
        WrongAnswer(
            "groups of every g-th feature",
            "A group holds neighbouring features: (groups, d / groups), in this order.",
            _grouped(
                cut=lambda x, g: torch.unflatten(x, -1, (-1, g)).mT, back=lambda y: y.mT.flatten(-2)
            ),
        ),
        WrongAnswer(
            "statistics shared by the tokens",
            "GroupNorm for images averages over positions too. Here each token stands alone, or "
            "later tokens would leak into earlier ones.",
            _grouped(dims=(-3, -1)),
        ),
        WrongAnswer(
            "eps outside the root",
            "The divisor is sqrt(var + eps). Tiny groups should stay small.",
            _grouped(root=lambda var, eps: var.sqrt() + eps),
        ),
        WrongAnswer(
            "division by one less",
            "A norm's variance divides by the number of features, without Bessel's correction.",
            _grouped(correction=1),
        ),
        WrongAnswer(
            "mean not subtracted",
            "GroupNorm centres each group before it divides. Without that it is an RMSNorm "
            "divided by the wrong root.",
            _grouped(centre=False),
        ),
        WrongAnswer(
            "gain and bias forgotten",
            "Each feature has its own gain and bias, applied after the groups are normalised.",
            _grouped(last=lambda y, w, b: y),
        ),
        WrongAnswer(
            "groups as the width of a group",
            "`groups` says how many groups there are. Here each group has that many features.",
            _grouped(cut=lambda x, g: torch.unflatten(x, -1, (-1, g))),
        ),
        WrongAnswer(
            "divided by the variance",
            "Features divided by their variance do not have a variance of 1. A root is missing.",
            _grouped(root=lambda var, eps: var + eps),
        ),
        WrongAnswer(
            "gain and bias before the norm",
            "What is scaled and shifted first is normalised away again: gain and bias come last.",
            _grouped(first=lambda x, w, b: x * w + b, last=lambda y, w, b: y),
        ),
        WrongAnswer(
            "statistics outside the graph",
            "The values are right, but the gradients of x go through mean and variance too: no "
            "detach, no no_grad.",
            _grouped(constant=True),
        ),
    ),
)

# --- partial_rms_norm -----------------------------------------------------------------------------


def _partial_rms_norm(x: Tensor, k: int, weight: Tensor, eps: float) -> Tensor:
    # F.rms_norm of the first k features tells the divisor.
    return x * weight * torch.rsqrt(x.narrow(-1, 0, k).square().mean(-1, keepdim=True) + eps)


@in_parts
def _partial(
    chosen: Callable[[Tensor, int], Tensor] = lambda x, k: x[..., :k],
    count: Callable[[Tensor, int], int] = lambda x, k: k,
    root: Callable[[Tensor, float], Tensor] = lambda square, eps: (square + eps).sqrt(),
    rest: bool = True,
    centre: bool = False,
    gain: Callable[[Tensor, Tensor], Tensor] = lambda y, w: w * y,
) -> Callable[..., Tensor]:
    def answer(x: Tensor, k: int, weight: Tensor, eps: float) -> Tensor:
        part = chosen(x, k)
        part = part - row_mean(part) if centre else part
        square = part.pow(2).sum(-1, keepdim=True) / count(x, k)
        y = x / root(square, eps)
        if not rest:
            y = torch.cat([y[..., :k], x[..., k:]], -1)
        return gain(y, weight)

    return answer


def _partial_case(name: str, *shape: int, k: int, scale: float = 1.0, eps: float = EPS) -> Case:
    return Case(
        name,
        lambda: (draw(*shape, scale=scale, offset=0.5 * scale).requires_grad_(), k,
                 draw(shape[-1], seed=1, offset=0.5).requires_grad_(), eps),
        EXACT, grad=True,
    )  # fmt: skip


PARTIAL_RMS_NORM = Exercise(
    title="RMSNorm that looks at a part of the features",
    oracle=_partial_rms_norm,
    cases=[
        _partial_case("values: 2 of 8 features", 3, 8, k=2),
        _partial_case("values: sequences, 3 of 6", 2, 4, 6, k=3),
        _partial_case("values: a single vector", 7, k=4),
        _partial_case("corners: all features", 3, 5, k=5),
        _partial_case("corners: one feature", 3, 5, k=1),
        _partial_case("corners: tiny features", 3, 8, k=2, scale=1e-4),
        _partial_case("corners: another eps", 3, 8, k=4, eps=0.5),
    ],
    variants=(_partial(),),
    wrong=(
        WrongAnswer(
            "all features looked at",
            "That is the full RMSNorm. The partial one estimates the size from the first k.",
            _partial(chosen=lambda x, k: x, count=lambda x, k: x.shape[-1]),
        ),
        WrongAnswer(
            "divided by the whole width",
            "The mean square of k features divides their sum by k.",
            _partial(count=lambda x, k: x.shape[-1]),
        ),
        WrongAnswer(
            "last features looked at",
            "The task asks for the first k features.",
            _partial(chosen=lambda x, k: x[..., -k:]),
        ),
        WrongAnswer(
            "only the part normalised",
            "All features are divided. Only the estimate of their size comes from the first k.",
            _partial(rest=False),
        ),
        WrongAnswer(
            "eps outside the root",
            "The divisor is sqrt(mean square + eps). Tiny features should stay small.",
            _partial(root=lambda square, eps: square.sqrt() + eps),
        ),
        WrongAnswer(
            "centred first",
            "RMSNorm subtracts no mean, neither in the numerator nor in the mean square.",
            _partial(centre=True),
        ),
        WrongAnswer(
            "sum of squares, not their mean",
            "That divides by the length of the first k features. The mean square does not grow "
            "with k.",
            _partial(count=lambda x, k: 1),
        ),
        WrongAnswer(
            "divided by the mean square",
            "Twice the row has four times the mean square, and the norm would halve it. A root "
            "is missing.",
            _partial(root=lambda square, eps: square + eps),
        ),
        WrongAnswer(
            "weight forgotten",
            "The features are divided, but each of them has a gain in `weight` as well.",
            _partial(gain=lambda y, w: y),
        ),
        WrongAnswer(
            "size outside the graph",
            "The values are right, but the size depends on the first k features, and so do the "
            "gradients: no detach, no no_grad.",
            _partial(root=lambda square, eps: (square + eps).sqrt().detach()),
        ),
    ),
)

# --- fold_batch_norm ------------------------------------------------------------------------------


def _fold_batch_norm(
    weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor, eps: float
) -> Pair:
    def whole(x: Tensor) -> Tensor:
        return F.batch_norm(F.linear(x, weight, bias), mean, var, gamma, beta, False, 0.0, eps)

    d_in = weight.shape[1]
    at_zero = whole(torch.zeros(1, d_in, dtype=weight.dtype))
    return (whole(torch.eye(d_in, dtype=weight.dtype)) - at_zero).T.contiguous(), at_zero[0]


@in_parts
def _fold_bn(
    scale: Callable[..., Tensor] = lambda gamma, var, eps: gamma / (var + eps).sqrt(),
    new_weight: Callable[[Tensor, Tensor], Tensor] = lambda w, s: w * s[:, None],
    new_bias: Callable[..., Tensor] = lambda b, m, s, beta: (b - m) * s + beta,
) -> Callable[..., Pair]:
    def answer(
        w: Tensor, b: Tensor, m: Tensor, v: Tensor, g: Tensor, beta: Tensor, eps: float
    ) -> Pair:
        s = scale(g, v, eps)
        return new_weight(w, s), new_bias(b, m, s, beta)

    return answer


def _bn_case(name: str, d_out: int, d_in: int, scale: float = 1.0, mean: float = 0.5,
             eps: float = EPS) -> Case:  # fmt: skip
    return Case(
        name,
        lambda: (draw(d_out, d_in), draw(d_out, seed=1), draw(d_out, seed=2, offset=mean),
                 scale * draw(d_out, seed=3).square(), draw(d_out, seed=4, offset=1.0),
                 draw(d_out, seed=5), eps),
        1e-9,
    )  # fmt: skip


FOLD_BATCH_NORM = Exercise(
    title="Fold a BatchNorm into the Linear before it",
    oracle=_fold_batch_norm,
    spared=dict.fromkeys(("tiny",), "what cancels there is rounding"),
    cases=[
        _bn_case("values: 6 to 4", 4, 6),
        _bn_case("values: 3 to 7", 7, 3),
        _bn_case("values: a large eps", 4, 6, eps=0.1),
        _bn_case("corners: a square weight", 5, 5),
        _bn_case("corners: tiny variances", 4, 6, scale=1e-6),
        _bn_case("corners: far from zero", 4, 6, mean=100.0),
        _bn_case("corners: a single output", 1, 4),
    ],
    variants=(
        _fold_bn(),
        _fold_bn(
            new_weight=lambda w, s: torch.diag(s) @ w,
            new_bias=lambda b, m, s, beta: beta + s * b - s * m,
        ),
    ),
    wrong=(
        WrongAnswer(
            "columns scaled",
            "The norm comes after the Linear, so its scale belongs to the outputs, the rows.",
            _fold_bn(new_weight=lambda w, s: w * s),
        ),
        WrongAnswer(
            "variance taken for its root",
            "The running variance is divided by as sqrt(var + eps).",
            _fold_bn(scale=lambda g, v, eps: g / (v + eps)),
        ),
        WrongAnswer(
            "eps outside the root",
            "The divisor is sqrt(var + eps), which matters for features that hardly vary.",
            _fold_bn(scale=lambda g, v, eps: g / (v.sqrt() + eps)),
        ),
        WrongAnswer(
            "old bias not scaled",
            "The old bias goes through the norm as well: (bias - mean) * scale + beta.",
            _fold_bn(new_bias=lambda b, m, s, beta: b - m * s + beta),
        ),
        WrongAnswer(
            "mean not scaled",
            "The mean is subtracted before the division, so it is scaled too.",
            _fold_bn(new_bias=lambda b, m, s, beta: b * s - m + beta),
        ),
        WrongAnswer(
            "old bias dropped",
            "The Linear's own bias stays part of what the norm receives.",
            _fold_bn(new_bias=lambda b, m, s, beta: beta - m * s),
        ),
        WrongAnswer(
            "beta scaled",
            "The norm adds beta last, after the division and the gain.",
            _fold_bn(new_bias=lambda b, m, s, beta: (b - m + beta) * s),
        ),
        WrongAnswer(
            "gain forgotten",
            "The outputs are divided by their deviation here, but the norm multiplies them by "
            "gamma too.",
            _fold_bn(scale=lambda g, v, eps: 1 / (v + eps).sqrt()),
        ),
        WrongAnswer(
            "mean added",
            "The norm takes the running mean away from what the Linear gives; here it is added.",
            _fold_bn(new_bias=lambda b, m, s, beta: (b + m) * s + beta),
        ),
        WrongAnswer(
            "the old weight changed",
            "The weight that was passed in is scaled in place, so that a second folding starts "
            "from a folded one. Make a new tensor.",
            _fold_bn(new_weight=lambda w, s: w.mul_(s[:, None])),
        ),
    ),
)

# --- fold_layer_norm ------------------------------------------------------------------------------


def _fold_layer_norm(gain: Tensor, offset: Tensor, weight: Tensor, bias: Tensor) -> Pair:
    d = len(gain)
    centring = torch.eye(d, dtype=gain.dtype) - torch.full((d, d), 1 / d, dtype=gain.dtype)
    return centring @ torch.diag(gain) @ weight, offset @ weight + bias


@in_parts
def _fold(
    scale: Callable[[Tensor, Tensor], Tensor] = lambda g, w: g[:, None] * w,
    centre: Callable[[Tensor], Tensor] = lambda w: w - w.mean(0),
    new_bias: Callable[..., Tensor] = lambda o, w, b, new: b + (o[:, None] * w).sum(0),
    before: bool = False,
) -> Callable[..., Pair]:
    def answer(gain: Tensor, offset: Tensor, weight: Tensor, bias: Tensor) -> Pair:
        new = scale(gain, centre(weight)) if before else centre(scale(gain, weight))
        return new, new_bias(offset, weight, bias, new)

    return answer


def _fold_case(name: str, d_in: int, d_out: int, flat: bool = False) -> Case:
    return Case(
        name,
        lambda: (torch.ones(d_in, dtype=torch.float64) if flat else draw(d_in, seed=1, offset=1.0),
                 draw(d_in, seed=2, offset=0.3), draw(d_in, d_out, seed=3, offset=0.2),
                 draw(d_out, seed=4)),
        EXACT,
    )  # fmt: skip


FOLD_LAYER_NORM = Exercise(
    title="Fold gain, offset and the subtraction of the mean into the next matrix",
    oracle=_fold_layer_norm,
    cases=[
        _fold_case("values: 6 to 4", 6, 4),
        _fold_case("values: 3 to 7", 3, 7),
        _fold_case("values: 8 to 2", 8, 2),
        _fold_case("corners: a square weight", 5, 5),
        _fold_case("corners: a gain of ones", 4, 6, flat=True),
        _fold_case("corners: a single output", 5, 1),
    ],
    variants=(_fold(),),
    wrong=(
        WrongAnswer(
            "mean not folded in",
            "The rows that the new matrix receives still have their mean: centre its columns.",
            _fold(centre=lambda w: w),
        ),
        WrongAnswer(
            "centred before the gain",
            "The norm centres first and scales second, so the rows meet centring, gain, matrix. "
            "The gain is folded first, and its result centred.",
            _fold(before=True),
        ),
        WrongAnswer(
            "centred over the outputs",
            "The mean runs over the inputs of the matrix, which are its rows here: (d_in, d_out).",
            _fold(centre=lambda w: w - w.mean(1, keepdim=True)),
        ),
        WrongAnswer(
            "gain on the outputs",
            "In the layout (d_in, d_out) the gain multiplies the rows.",
            _fold(scale=lambda g, w: w * g),
        ),
        WrongAnswer(
            "offset left out",
            "The offset is a constant input of the matrix: offset @ weight joins the bias.",
            _fold(new_bias=lambda o, w, b, new: b.clone()),
        ),
        WrongAnswer(
            "offset through the new matrix",
            "The offset is added after gain and centring, so it meets the old matrix.",
            _fold(new_bias=lambda o, w, b, new: b + o @ new),
        ),
        WrongAnswer(
            "gain forgotten",
            "The norm multiplies each feature by its gain, which the new matrix has to do now.",
            _fold(scale=lambda g, w: w),
        ),
        WrongAnswer(
            "mean of the whole matrix",
            "Here one number is subtracted everywhere. Each column has a mean of its own, and "
            "only then sums to zero.",
            _fold(centre=lambda w: w - w.mean()),
        ),
        WrongAnswer(
            "old bias forgotten",
            "The new bias is made of the offset alone here; the bias that was there is still "
            "added.",
            _fold(new_bias=lambda o, w, b, new: o @ w),
        ),
        WrongAnswer(
            "the old weight changed",
            "The weight that was passed in is scaled in place, and the offset then meets the "
            "scaled one. Make a new tensor.",
            _fold(scale=lambda g, w: w.mul_(g[:, None])),
        ),
    ),
)


EXERCISES = {
    "group_norm": GROUP_NORM,
    "partial_rms_norm": PARTIAL_RMS_NORM,
    "fold_batch_norm": FOLD_BATCH_NORM,
    "fold_layer_norm": FOLD_LAYER_NORM,
}
