"""The exercises of chapter 08: LayerNorm, RMSNorm and BatchNorm, backward passes, and folding.

The oracles are torch's own operators and autograd, never the book's library. Every section has
the same order: the oracle, the cases, the other right answers, the exercise with its wrong answers.
A wrong answer is the right formula with one thing changed, so that its line shows the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer

# --- What the sections share: inputs and small pieces of formulas ---------------------------------

# An honest float64 answer differs from the oracle by rounding, which is far below this.
EXACT = 1e-11


def _draw(
    *shape: int,
    scale: float = 1.0,
    offset: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (offset + scale * numbers).to(dtype)


def _like(x: Tensor, seed: int) -> Tensor:
    """Other numbers in the shape, the dtype and the memory layout of `x`."""
    return torch.empty_like(x).copy_(_draw(*x.shape, seed=seed))


def _with_row(x: Tensor, row: int, value: float) -> Tensor:
    """`x` with one row set to a constant."""
    x[row] = value
    return x


def _mean(x: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    return x.mean(dim, keepdim=True)


def _centred(x: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    return x - _mean(x, dim)


def _var(x: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    return _mean(_centred(x, dim).square(), dim)


def _bessel_var(x: Tensor) -> Tensor:
    return _centred(x).square().sum(-1, keepdim=True) / (x.shape[-1] - 1)


def _mean_square(x: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    return _mean(x.square(), dim)


def _sample_axes(x: Tensor) -> tuple[int, ...]:
    """All axes but the first; of a single vector, its only one."""
    return tuple(range(1, x.dim())) or (0,)


def _all_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(x.dim()))


@dataclass(frozen=True)
class Rows:
    """An `x` whose last dimension is to be normalised, and what is special about it."""

    name: str
    make: Callable[[], Tensor]
    eps: float = 1e-5
    tol: float = EXACT
    # Half precision rounds gradients too coarsely to compare.
    grad: bool = True


# LayerNorm, RMSNorm and both backward passes are tried on all of these.
ROWS = (
    Rows("four rows of six", lambda: _draw(4, 6, offset=0.5)),
    Rows("a square matrix", lambda: _draw(5, 5, offset=0.5)),
    Rows("leading dimensions 2, 1 and 3", lambda: _draw(2, 1, 3, 5, scale=2.0)),
    Rows("a single vector", lambda: _draw(7, offset=-1.0)),
    Rows("a batch of one row", lambda: _draw(1, 6)),
    Rows("rows of a single entry", lambda: _draw(3, 1)),
    Rows("rows of size 1e-4", lambda: _draw(3, 8, scale=1e-4)),
    Rows("rows of size 1e-6, with eps 1e-12", lambda: _draw(3, 8, scale=1e-6), eps=1e-12),
    Rows("rows of size 1e4", lambda: _draw(3, 8, scale=1e4)),
    Rows("a constant row among others", lambda: _with_row(_draw(3, 6), 1, 3.0)),
    Rows("a row of zeros among others", lambda: _with_row(_draw(3, 6), 0, 0.0)),
    Rows("a transposed matrix, not contiguous", lambda: _draw(6, 4, offset=0.5).T),
    Rows("a flipped matrix, every second column", lambda: _draw(3, 10).flip(0)[:, ::2]),
    Rows(
        "float32 with mean 3000 and spread 1",
        lambda: _draw(4, 8, offset=3e3, dtype=torch.float32),
        tol=2e-3,
    ),
)


def _forward_case(rows: Rows, parameters: int) -> Case:
    """`x`, then a gain and perhaps a bias (`parameters` says how many), then `eps`."""

    def inputs() -> tuple[Any, ...]:
        x = rows.make()
        d = x.shape[-1]
        vectors = [_draw(d, offset=0.5, seed=1 + i, dtype=x.dtype) for i in range(parameters)]
        return (*(t.requires_grad_(rows.grad) for t in (x, *vectors)), rows.eps)

    return Case(rows.name, inputs, rows.tol, rows.grad)


def _backward_case(rows: Rows) -> Case:
    """The gradient that arrives, `x`, the gain, and `eps`."""

    def inputs() -> tuple[Any, ...]:
        x = rows.make()
        weight = _draw(x.shape[-1], offset=0.5, seed=1, dtype=x.dtype)
        return _like(x, seed=3), x, weight, rows.eps

    return Case(rows.name, inputs, rows.tol)


# --- layer_norm -----------------------------------------------------------------------------------


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


LAYER_NORM_CASES = [
    *(_forward_case(rows, parameters=2) for rows in ROWS),
    _forward_case(
        Rows(
            "bfloat16 rows",
            lambda: _draw(3, 8, dtype=torch.bfloat16),
            tol=3e-2,
            grad=False,
        ),
        parameters=2,
    ),
]


def _layer_norm_by_var_mean(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * torch.rsqrt(var + eps), weight)


def _layer_norm_by_projection(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    d = x.shape[-1]
    ones = torch.ones(d, dtype=x.dtype)
    centred = x - torch.outer(x.reshape(-1, d) @ ones / d, ones).reshape(x.shape)
    var = torch.einsum("...i,...i->...", centred, centred) / d
    return centred / (var + eps).sqrt()[..., None] * weight + bias


def _layer_norm_without_keepdim(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    mean, var = x.mean(-1), x.var(-1, correction=0)
    return (x - mean) / (var + eps).sqrt() * weight + bias


def _layer_norm_with_constant_statistics(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    return (x - _mean(x).detach()) / (_var(x).detach() + eps).sqrt() * weight + bias


def _layer_norm_over(axes: Callable[[Tensor], int | tuple[int, ...]]) -> Answer:
    """LayerNorm but for the axes that the statistics run over."""
    return lambda x, weight, bias, eps: (
        _centred(x, axes(x)) / (_var(x, axes(x)) + eps).sqrt() * weight + bias
    )


def _layer_norm_divided_by(scale: Callable[[Tensor, float], Tensor]) -> Answer:
    """LayerNorm but for what the centred row is divided by."""
    return lambda x, weight, bias, eps: _centred(x) / scale(x, eps) * weight + bias


def _layer_norm_finished_by(affine: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Answer:
    """LayerNorm but for what is done with the gain and the bias."""
    return lambda x, weight, bias, eps: affine(
        _centred(x) / (_var(x) + eps).sqrt(), weight, bias
    )


LAYER_NORM = Exercise(
    title="LayerNorm over the last dimension",
    oracle=_layer_norm,
    cases=LAYER_NORM_CASES,
    variants=(_layer_norm_by_var_mean, _layer_norm_by_projection),
    wrong=(
        WrongAnswer(
            "eps outside the root",
            "The denominator is sqrt(var + eps), not sqrt(var) + eps. Rows much smaller than "
            "sqrt(eps) should stay small, and this blows them up.",
            _layer_norm_divided_by(lambda x, eps: _var(x).sqrt() + eps),
        ),
        WrongAnswer(
            "eps forgotten",
            "Without eps a constant row is divided by zero and becomes nan.",
            _layer_norm_divided_by(lambda x, eps: _var(x).sqrt()),
        ),
        WrongAnswer(
            "eps added twice",
            "eps belongs under the root and nowhere else. Added to the root as well, it makes "
            "every row a little too small.",
            _layer_norm_divided_by(lambda x, eps: (_var(x) + eps).sqrt() + eps),
        ),
        WrongAnswer(
            "eps as a lower limit of the variance",
            "eps is added to every variance; max(var, eps) changes only the small ones and has "
            "no gradient below eps.",
            _layer_norm_divided_by(lambda x, eps: _var(x).clamp_min(eps).sqrt()),
        ),
        WrongAnswer(
            "Bessel-corrected variance",
            "LayerNorm divides the sum of squares by d, not by d - 1. `Tensor.var` divides by "
            "d - 1 unless it is told `correction=0`.",
            _layer_norm_divided_by(lambda x, eps: (_bessel_var(x) + eps).sqrt()),
        ),
        WrongAnswer(
            "division by the variance",
            "The centred row is divided by the standard deviation, the root of the variance. "
            "Otherwise the result depends on the unit of x.",
            _layer_norm_divided_by(lambda x, eps: _var(x) + eps),
        ),
        WrongAnswer(
            "sum of squares in place of their mean",
            "The variance is a mean, so the sum of squares has to be divided by d. Otherwise "
            "the result is too small by a factor of sqrt(d).",
            _layer_norm_divided_by(lambda x, eps: (_var(x) * x.shape[-1] + eps).sqrt()),
        ),
        WrongAnswer(
            "mean absolute deviation in place of the standard deviation",
            "LayerNorm measures the spread by the root of the mean square. The mean of the "
            "absolute values is smaller than that.",
            _layer_norm_divided_by(lambda x, eps: _mean(_centred(x).abs()) + eps),
        ),
        WrongAnswer(
            "statistics over the batch axis",
            "That is BatchNorm's axis. LayerNorm takes mean and variance within each row, so a "
            "row does not depend on the other rows.",
            _layer_norm_over(lambda x: 0),
        ),
        WrongAnswer(
            "statistics over all axes of a sample",
            "Each position has its own mean and variance, over the last dimension only. Here "
            "all positions of a sample share them.",
            _layer_norm_over(_sample_axes),
        ),
        WrongAnswer(
            "statistics over the whole tensor",
            "`mean()` without `dim` gives one number for the whole batch. Each row needs its "
            "own mean and variance.",
            _layer_norm_over(_all_axes),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the statistics lose their last dimension. They then line up "
            "with the columns, or do not fit at all.",
            _layer_norm_without_keepdim,
        ),
        WrongAnswer(
            "mean not subtracted",
            "The row is divided by its standard deviation but not centred first, so its mean "
            "stays in the result.",
            lambda x, weight, bias, eps: x / (_var(x) + eps).sqrt() * weight + bias,
        ),
        WrongAnswer(
            "RMSNorm in place of LayerNorm",
            "This divides by the root mean square and leaves the mean in. LayerNorm subtracts "
            "the mean first.",
            lambda x, weight, bias, eps: x / (_mean_square(x) + eps).sqrt() * weight + bias,
        ),
        WrongAnswer(
            "variance as E[x^2] - E[x]^2",
            "Both terms are huge when the mean is large, and their difference keeps few "
            "correct digits in float32. Subtract the mean first, then square.",
            _layer_norm_divided_by(lambda x, eps: (_mean_square(x) - _mean(x) ** 2 + eps).sqrt()),
        ),
        WrongAnswer(
            "gain forgotten",
            "The normalised row is multiplied by `weight`, entry by entry, before the bias is "
            "added.",
            _layer_norm_finished_by(lambda x_hat, weight, bias: x_hat + bias),
        ),
        WrongAnswer(
            "gain of 1 + weight",
            "Some models, Gemma among them, store the gain minus one. torch multiplies by "
            "`weight` as it is.",
            _layer_norm_finished_by(lambda x_hat, weight, bias: x_hat * (1 + weight) + bias),
        ),
        WrongAnswer(
            "gain as a dot product",
            "The gain is a vector that multiplies entry by entry. A product with `@` mixes the "
            "features into one number.",
            _layer_norm_finished_by(
                lambda x_hat, weight, bias: (x_hat @ weight).unsqueeze(-1) + bias
            ),
        ),
        WrongAnswer(
            "bias forgotten",
            "After the gain, `bias` is added. A constant row should come out as exactly the bias.",
            _layer_norm_finished_by(lambda x_hat, weight, bias: x_hat * weight),
        ),
        WrongAnswer(
            "bias added before the gain",
            "The gain comes first and the bias second. In the other order the bias is "
            "multiplied by the gain too.",
            _layer_norm_finished_by(lambda x_hat, weight, bias: (x_hat + bias) * weight),
        ),
        WrongAnswer(
            "statistics cut out of the graph",
            "The values are right and the gradients are not. Mean and variance depend on x, so "
            "they must not be detached or computed under `no_grad`.",
            _layer_norm_with_constant_statistics,
        ),
        WrongAnswer(
            "float32 result for bfloat16 input",
            "Computing in float32 is fine, but the result has to be cast back to the dtype of x.",
            lambda x, weight, bias, eps: _layer_norm(x, weight, bias, eps).to(
                torch.promote_types(x.dtype, torch.float32)
            ),
        ),
    ),
)


# --- rms_norm -------------------------------------------------------------------------------------


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def _half_rows(name: str, dtype: torch.dtype, scale: float, eps: float = 1e-5) -> Rows:
    """Tolerance: two roundings, since an answer may cast back before or after the gain."""
    tol = 2.5 * torch.finfo(dtype).eps
    return Rows(name, lambda: _draw(3, 8, scale=scale, dtype=dtype), eps, tol, grad=False)


RMS_NORM_CASES = [
    _forward_case(rows, parameters=1)
    for rows in (
        *ROWS,
        _half_rows("float16 rows", torch.float16, 1.0),
        _half_rows("float16 rows of size 600, whose squares overflow", torch.float16, 600.0),
        _half_rows(
            "float16 rows of size 1e-4, whose squares underflow", torch.float16, 1e-4, eps=1e-8
        ),
        _half_rows("bfloat16 rows", torch.bfloat16, 1.0),
    )
]


def _widened(x: Tensor) -> Tensor:
    """`x` in float32 if it is shorter than that, otherwise as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _rms_norm_cast_before_the_gain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = _widened(x)
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _rms_norm_by_vector_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide, d = _widened(x), x.shape[-1]
    # hypot(|x|, sqrt(d eps)) / sqrt(d) is the denominator, and its gradient at x = 0 must be 0.
    squared = torch.einsum("...i,...i->...", wide, wide).unsqueeze(-1)
    return (wide * d**0.5 / (squared + d * eps).sqrt() * weight).to(x.dtype)


def _rms_norm_without_keepdim(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = _widened(x)
    return (wide / (wide.square().mean(-1) + eps).sqrt() * weight).to(x.dtype)


def _rms_norm_divided_by(scale: Callable[[Tensor, float], Tensor]) -> Answer:
    """RMSNorm but for what the row is divided by."""
    return lambda x, weight, eps: (_widened(x) / scale(_widened(x), eps) * weight).to(x.dtype)


def _rms_norm_finished_by(gain: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """RMSNorm but for what is done with the gain."""
    return lambda x, weight, eps: gain(_rms_norm(x, torch.ones_like(weight), eps), weight)


def _rms_norm_over(axes: Callable[[Tensor], int | tuple[int, ...]]) -> Answer:
    """RMSNorm but for the axes that the mean square runs over."""
    return _rms_norm_divided_by(lambda x, eps: (_mean_square(x, axes(x)) + eps).sqrt())


RMS_NORM = Exercise(
    title="RMSNorm over the last dimension",
    oracle=_rms_norm,
    cases=RMS_NORM_CASES,
    variants=(_rms_norm_cast_before_the_gain, _rms_norm_by_vector_norm),
    wrong=(
        WrongAnswer(
            "eps outside the root",
            "The denominator is sqrt(mean(x^2) + eps), not the root plus eps. The two differ for "
            "rows that are not much larger than sqrt(eps).",
            _rms_norm_divided_by(lambda x, eps: _mean_square(x).sqrt() + eps),
        ),
        WrongAnswer(
            "eps forgotten",
            "Without eps a row of zeros is divided by zero and becomes nan.",
            _rms_norm_divided_by(lambda x, eps: _mean_square(x).sqrt()),
        ),
        WrongAnswer(
            "eps added twice",
            "eps belongs under the root and nowhere else. Added to the root as well, it makes "
            "every row a little too small.",
            _rms_norm_divided_by(lambda x, eps: (_mean_square(x) + eps).sqrt() + eps),
        ),
        WrongAnswer(
            "eps as a lower limit of the mean square",
            "eps is added to every mean square; max(mean square, eps) changes only the small "
            "ones.",
            _rms_norm_divided_by(lambda x, eps: _mean_square(x).clamp_min(eps).sqrt()),
        ),
        WrongAnswer(
            "L2 norm in place of the root mean square",
            "The squares are averaged, not summed. Dividing by the L2 norm makes the result too "
            "small by a factor of sqrt(d).",
            _rms_norm_divided_by(lambda x, eps: (_mean_square(x) * x.shape[-1] + eps).sqrt()),
        ),
        WrongAnswer(
            "no root",
            "The row is divided by the root of the mean square. Without the root the result "
            "shrinks when x grows.",
            _rms_norm_divided_by(lambda x, eps: _mean_square(x) + eps),
        ),
        WrongAnswer(
            "mean taken with d - 1",
            "The sum of squares is divided by d. There is no estimated mean here that would be "
            "a reason for d - 1.",
            _rms_norm_divided_by(
                lambda x, eps: (x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps).sqrt()
            ),
        ),
        WrongAnswer(
            "square of the mean in place of the mean of the squares",
            "Square first, then average. In the other order positive and negative entries "
            "cancel.",
            _rms_norm_divided_by(lambda x, eps: (_mean(x).square() + eps).sqrt()),
        ),
        WrongAnswer(
            "mean absolute value in place of the root mean square",
            "The size of a row is the root of its mean square. The mean of the absolute values "
            "is never larger, and equal only if all entries have the same size.",
            _rms_norm_divided_by(lambda x, eps: _mean(x.abs()) + eps),
        ),
        WrongAnswer(
            "standard deviation in place of the root mean square",
            "RMSNorm takes the mean of x^2 as it is. The variance is that minus the squared "
            "mean, so the two differ as soon as a row has a mean.",
            _rms_norm_divided_by(lambda x, eps: (_var(x) + eps).sqrt()),
        ),
        WrongAnswer(
            "LayerNorm in place of RMSNorm",
            "RMSNorm subtracts no mean. It only rescales the row.",
            lambda x, weight, eps: _layer_norm(x, weight, torch.zeros_like(weight), eps),
        ),
        WrongAnswer(
            "mean square over the batch axis",
            "Each row is divided by its own root mean square. Over the batch axis a row would "
            "depend on the other rows.",
            _rms_norm_over(lambda x: 0),
        ),
        WrongAnswer(
            "mean square over all axes of a sample",
            "Each position has its own root mean square, over the last dimension only. Here all "
            "positions of a sample share one.",
            _rms_norm_over(_sample_axes),
        ),
        WrongAnswer(
            "mean square over the whole tensor",
            "`mean()` without `dim` gives one number for the whole batch. Each row needs its own.",
            _rms_norm_over(_all_axes),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the mean square loses its last dimension. It then lines up "
            "with the columns, or does not fit at all.",
            _rms_norm_without_keepdim,
        ),
        WrongAnswer(
            "gain forgotten",
            "The normalised row is multiplied by `weight`, entry by entry.",
            _rms_norm_finished_by(lambda x_hat, weight: x_hat + 0 * weight),
        ),
        WrongAnswer(
            "gain of 1 + weight",
            "Some models, Gemma among them, store the gain minus one. torch multiplies by "
            "`weight` as it is.",
            _rms_norm_finished_by(lambda x_hat, weight: x_hat * (1 + weight)),
        ),
        WrongAnswer(
            "gain as a dot product",
            "The gain is a vector that multiplies entry by entry. A product with `@` mixes the "
            "features into one number.",
            _rms_norm_finished_by(lambda x_hat, weight: x_hat @ weight),
        ),
        WrongAnswer(
            "squares in half precision",
            "In float16 the square of anything from 256 on is infinite, and the square of a "
            "small number is zero. Square and average in float32, then cast back.",
            lambda x, weight, eps: x / (_mean_square(x) + eps).sqrt() * weight,
        ),
        WrongAnswer(
            "float32 result for half-precision input",
            "Computing in float32 is right, but the result has to be cast back to the dtype of x.",
            lambda x, weight, eps: _widened(_rms_norm(x, weight, eps)),
        ),
        WrongAnswer(
            "float64 input rounded to float32",
            "`x.float()` widens half precision, but it also cuts float64 to half its digits. "
            "Widen only what is shorter than float32.",
            lambda x, weight, eps: _rms_norm(x.float(), weight.float(), eps).to(x.dtype),
        ),
        WrongAnswer(
            "mean square cut out of the graph",
            "The values are right and the gradients are not. The mean square depends on x, so "
            "it must not be detached or computed under `no_grad`.",
            _rms_norm_divided_by(lambda x, eps: (_mean_square(x).detach() + eps).sqrt()),
        ),
    ),
)


# --- layer_norm_backward and rms_norm_backward ----------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """What the backward formulas are made of: `g` is `grad_out * weight`, `s` the denominator."""

    grad_out: Tensor
    weight: Tensor
    x: Tensor
    x_hat: Tensor
    s: Tensor

    @property
    def g(self) -> Tensor:
        """The gradient with respect to `x_hat`."""
        return self.grad_out * self.weight

    @property
    def along_x_hat(self) -> Tensor:
        """The part of `g` along `x_hat`, which the denominator takes away."""
        return self.x_hat * _mean(self.g * self.x_hat)


Formula = Callable[[Terms], Tensor]
# From `x` and `eps`: the normalised rows and what they were divided by.
Normalised = Callable[[Tensor, float], tuple[Tensor, Tensor]]


def _over_rows(x: Tensor) -> Tensor:
    """The sum over all leading dimensions."""
    return x.reshape(-1, x.shape[-1]).sum(0)


def _layer_normalised(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    s = (_var(x) + eps).sqrt()
    return _centred(x) / s, s


def _rms_normalised(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    s = (_mean_square(x) + eps).sqrt()
    return x / s, s


def _layer_grad_x(t: Terms) -> Tensor:
    return (t.g - _mean(t.g) - t.along_x_hat) / t.s


def _rms_grad_x(t: Terms) -> Tensor:
    return (t.g - t.along_x_hat) / t.s


def _grad_weight(t: Terms) -> Tensor:
    return _over_rows(t.grad_out * t.x_hat)


def _grad_bias(t: Terms) -> Tensor:
    return _over_rows(t.grad_out)


def _from_formulas(normalised: Normalised, *formulas: Formula) -> Answer:
    def answer(grad_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
        terms = Terms(grad_out, weight, x, *normalised(x, eps))
        return tuple(formula(terms) for formula in formulas)

    return answer


def _layer_backward(
    grad_x: Formula = _layer_grad_x,
    grad_weight: Formula = _grad_weight,
    grad_bias: Formula = _grad_bias,
    normalised: Normalised = _layer_normalised,
) -> Answer:
    """The backward pass of LayerNorm, with one of its formulas replaced."""
    return _from_formulas(normalised, grad_x, grad_weight, grad_bias)


def _rms_backward(
    grad_x: Formula = _rms_grad_x,
    grad_weight: Formula = _grad_weight,
    normalised: Normalised = _rms_normalised,
) -> Answer:
    """The backward pass of RMSNorm, with one of its formulas replaced."""
    return _from_formulas(normalised, grad_x, grad_weight)


def _by_autograd(
    forward: Callable[..., Tensor], grad_out: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    return torch.autograd.grad(forward(*leaves), leaves, grad_out)


def _layer_norm_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    bias = torch.zeros_like(weight)
    return _by_autograd(lambda *leaves: _layer_norm(*leaves, eps), grad_out, x, weight, bias)


def _rms_norm_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    return _by_autograd(lambda *leaves: _rms_norm(*leaves, eps), grad_out, x, weight)


BACKWARD_CASES = [_backward_case(rows) for rows in ROWS]


def _layer_norm_backward_by_jacobian(
    grad_out: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    d = x.shape[-1]
    x_hat, s = _layer_normalised(x, eps)
    jacobian = torch.eye(d, dtype=x.dtype) - 1 / d - x_hat[..., :, None] * x_hat[..., None, :] / d
    grad_x = torch.einsum("...i,...ij->...j", grad_out * weight / s, jacobian)
    return grad_x, torch.einsum("...i,...i->i", grad_out, x_hat), torch.einsum("...i->i", grad_out)


def _rms_norm_backward_by_cube(
    grad_out: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    _, r = _rms_normalised(x, eps)
    g = grad_out * weight
    grad_x = g / r - x * (g * x).sum(-1, keepdim=True) / (x.shape[-1] * r**3)
    leading = tuple(range(x.dim() - 1))
    rows = grad_out * x / r
    return grad_x, rows.sum(leading) if leading else rows


# The two backward passes differ by one term, so most mistakes can be made in both.
def _wrong_in_both(
    backward: Callable[..., Answer], grad_x: Formula, s: str, x_hat: str
) -> tuple[WrongAnswer, ...]:
    """Wrong answers that start from the right `grad_x`; `s` and `x_hat` are their names in words."""

    def changed(change: Callable[[Terms], Terms]) -> Answer:
        return backward(grad_x=lambda t: grad_x(change(t)))

    return (
        WrongAnswer(
            "gain not multiplied into the gradient",
            "The output is weight * x_hat, so the gradient that reaches x_hat is "
            "grad_out * weight.",
            changed(lambda t: Terms(t.grad_out, torch.ones_like(t.weight), t.x, t.x_hat, t.s)),
        ),
        WrongAnswer(
            "gain multiplied in last",
            "The gain has to be in the gradient before the means are taken. Means and gain may "
            "not be swapped, since the gain differs from entry to entry.",
            backward(
                grad_x=lambda t: (
                    t.weight
                    * grad_x(Terms(t.grad_out, torch.ones_like(t.weight), t.x, t.x_hat, t.s))
                )
            ),
        ),
        WrongAnswer(
            f"division by {s} forgotten",
            f"x_hat is x divided by {s}, so the whole gradient is divided by {s} too.",
            backward(grad_x=lambda t: grad_x(t) * t.s),
        ),
    )


