"""The exercises on LayerNorm and RMSNorm, forwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.normalization.common import (
    NORMS,
    ROWS,
    Statistic,
    as_it_is,
    bias_mistakes,
    divisor_mistakes,
    forward_case,
    gain_mistakes,
    half_rows,
    in_float32,
    less_mean,
    mean_of,
    mean_square,
    normalised,
    statistic_mistakes,
    var_by_difference,
    var_of,
    with_gain,
)

# --- layer_norm -----------------------------------------------------------------------------------


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Torch's own LayerNorm over the last dimension."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


# One case in half precision, and a tame one: that squares overflow is for rms_norm to find.
LAYER_NORM_CASES = [
    forward_case(rows, vectors=2) for rows in (*ROWS, half_rows("bfloat16 rows", torch.bfloat16))
]


@in_parts
def _layer(
    *,
    centre: Statistic = less_mean,
    square: Statistic = var_of,
    affine: Callable[..., Tensor] = with_gain,
    **parts: Callable[..., Any],
) -> Answer:
    """LayerNorm in parts; `parts` are those of `normalised`."""

    def answer(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x_hat, _ = normalised(in_float32(x), eps, centre=centre, square=square, **parts)
        return affine(x_hat, weight, bias).to(x.dtype)

    return answer


def _layer_norm_by_var_mean(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * torch.rsqrt(var + eps), weight)


def _layer_norm_by_einsum(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    d = x.shape[-1]
    centred = x - torch.einsum("...i->...", x)[..., None] / d
    var = torch.einsum("...i,...i->...", centred, centred) / d
    return centred / (var + eps).sqrt()[..., None] * weight + bias


LAYER_NORM = Exercise(
    title="LayerNorm over the last dimension",
    oracle=layer_norm,
    leading={"x": 1},
    spared={"empty": "torch warns of the variance of no rows"},
    cases=LAYER_NORM_CASES,
    variants=(_layer(), _layer_norm_by_var_mean, _layer_norm_by_einsum),
    rules=(Rule("no norm of torch's own", NORMS),),
    wrong=(
        *divisor_mistakes(_layer, "variance"),
        *statistic_mistakes(_layer, var_of, "variance"),
        *gain_mistakes(_layer),
        *bias_mistakes(_layer),
        WrongAnswer(
            "mean not subtracted",
            "The row is divided by its standard deviation but not centred first, so its mean "
            "stays in the result.",
            _layer(centre=as_it_is),
        ),
        WrongAnswer(
            "RMSNorm in place of LayerNorm",
            "This divides by the root mean square and leaves the mean in. LayerNorm subtracts "
            "the mean first.",
            _layer(centre=as_it_is, square=mean_square),
        ),
        WrongAnswer(
            "mean square in place of the variance",
            "The mean is subtracted from x above the fraction bar, but not below it. The "
            "variance is the mean square of x - mean.",
            _layer(square=mean_square),
        ),
        WrongAnswer(
            "variance as E[x^2] - E[x]^2",
            "With a large mean both terms are huge and nearly equal, and in float32 their "
            "difference keeps no correct digit. Subtract the mean first, then square.",
            _layer(square=var_by_difference),
        ),
        WrongAnswer(
            "statistics cut out of the graph",
            "The values are right and the gradients are not. Mean and variance depend on x, so "
            "they must not be detached or computed under `no_grad`.",
            _layer(
                centre=lambda x, dim: x - mean_of(x, dim).detach(),
                square=lambda x, dim: var_of(x, dim).detach(),
            ),
        ),
        WrongAnswer(
            "float32 result for bfloat16 input",
            "Computing in float32 is fine, but the result is cast back to the dtype of x.",
            lambda x, weight, bias, eps: in_float32(layer_norm(x, weight, bias, eps)),
        ),
    ),
)


# --- rms_norm -------------------------------------------------------------------------------------


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


RMS_NORM_CASES = [
    forward_case(rows, vectors=1)
    for rows in (
        *ROWS,
        half_rows("float16 rows", torch.float16),
        half_rows("float16 rows of size 600, whose squares overflow", torch.float16, 600.0),
        half_rows("float16 rows of size 1e-4, whose squares vanish", torch.float16, 1e-4, 1e-8),
        half_rows("bfloat16 rows", torch.bfloat16),
    )
]


@in_parts
def _rms(
    *,
    centre: Statistic = as_it_is,
    square: Statistic = mean_square,
    affine: Callable[..., Tensor] = with_gain,
    widened: Callable[[Tensor], Tensor] = in_float32,
    **parts: Callable[..., Any],
) -> Answer:
    """RMSNorm in parts; `parts` are those of `normalised`."""

    def answer(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x_hat, _ = normalised(widened(x), eps, centre=centre, square=square, **parts)
        return affine(x_hat, weight).to(x.dtype)

    return answer


def _rms_norm_cast_before_the_gain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = in_float32(x)
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _rms_norm_as_a_length(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    # sqrt(d (mean square + eps)) is the length of x with one more entry, sqrt(d eps).
    wide, d = in_float32(x), x.shape[-1]
    longer = F.pad(wide, (0, 1), value=math.sqrt(d * eps))
    length: Tensor = torch.linalg.vector_norm(longer, dim=-1, keepdim=True)
    return (wide * math.sqrt(d) / length * weight).to(x.dtype)


RMS_NORM = Exercise(
    title="RMSNorm over the last dimension",
    oracle=_rms_norm,
    leading={"x": 1},
    cases=RMS_NORM_CASES,
    variants=(_rms(), _rms_norm_cast_before_the_gain, _rms_norm_as_a_length),
    rules=(Rule("without `F.rms_norm`", ("rms_norm", "_fused_rms_norm")),),
    wrong=(
        *divisor_mistakes(_rms, "mean square"),
        *statistic_mistakes(_rms, mean_square, "mean square"),
        *gain_mistakes(_rms),
        WrongAnswer(
            "square of the mean in place of the mean square",
            "Square first, then average. In the other order positive and negative entries cancel.",
            _rms(square=lambda x, dim: mean_of(x, dim).square()),
        ),
        WrongAnswer(
            "standard deviation in place of the root mean square",
            "RMSNorm takes the mean of x^2 as it is. The variance is that minus the squared "
            "mean, so the two differ as soon as a row has a mean.",
            _rms(square=var_of),
        ),
        WrongAnswer(
            "LayerNorm in place of RMSNorm",
            "RMSNorm subtracts no mean. It only rescales the row.",
            _rms(centre=less_mean, square=var_of),
        ),
        WrongAnswer(
            "mean square cut out of the graph",
            "The values are right and the gradients are not. The mean square depends on x, so "
            "it must not be detached or computed under `no_grad`.",
            _rms(square=lambda x, dim: mean_square(x, dim).detach()),
        ),
        WrongAnswer(
            "squares in half precision",
            "In float16 the square of anything from 256 on is infinite, and the square of a "
            "small number is zero. Square and average in float32, then cast back.",
            _rms(widened=lambda x: x),
        ),
        WrongAnswer(
            "float32 result for half-precision input",
            "Computing in float32 is right, but the result is cast back to the dtype of x.",
            lambda x, weight, eps: in_float32(_rms_norm(x, weight, eps)),
        ),
        WrongAnswer(
            "float64 input rounded to float32",
            "`x.float()` widens half precision, but it also cuts float64 to half its digits. "
            "Widen only what is shorter than float32.",
            _rms(widened=lambda x: x.float()),
        ),
    ),
)
