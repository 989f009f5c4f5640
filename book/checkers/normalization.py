"""The exercises of chapter 08: LayerNorm, RMSNorm and BatchNorm, a conversion, sizes.

The oracles are torch's own operators and autograd, never the book's library. Every section has
the same order: the oracle, the cases, a builder of wrong answers, other right answers, the
exercise. A builder is the right computation in parts; a wrong answer replaces one part, so that
its line shows the mistake and nothing else. Mistakes that several exercises invite are written
once, as functions from a builder to wrong answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, autograd, in_parts
from book.checkers.questions import WrongNumber, choice, number

EPS = 1e-5
# An honest float64 answer differs from the oracle by rounding only, which is far below this.
EXACT = 1e-11
# torch's float32 kernels multiply before they subtract, and lose about this much at a large mean.
LARGE_MEAN = 1e-2
# What torch has for normalising, by its last names.
NORMS = (
    *("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm"),
    *("native_layer_norm", "_fused_rms_norm", "native_group_norm", "native_batch_norm"),
)


# --- Inputs that several exercises share ----------------------------------------------------------


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


def _large_mean() -> Tensor:
    """Float32 rows of 8192 + 1 and 8192 - 1, as many of each.

    Their squares lose the last digit, so that E[x^2] - E[x]^2 is 0 in whatever order one sums,
    while the variance is 1.
    """
    signs = [
        [1, -1, 1, -1, 1, -1, 1, -1],
        [1, 1, -1, -1, 1, 1, -1, -1],
        [1, 1, 1, 1, -1, -1, -1, -1],
    ]
    return 8192 + torch.tensor(signs, dtype=torch.float32)


@dataclass(frozen=True)
class Rows:
    """An `x` whose last dimension is to be normalised, and what is special about it."""

    name: str
    make: Callable[[], Tensor]
    eps: float = EPS
    tol: float = EXACT
    # Off for half precision, which rounds gradients too coarsely to compare.
    grad: bool = True


def _half_rows(name: str, dtype: torch.dtype, scale: float = 1.0, eps: float = EPS) -> Rows:
    """Rows in half precision. An answer may round twice, before the gain and after it."""
    tol = 2.5 * torch.finfo(dtype).eps
    return Rows(name, lambda: _draw(3, 8, scale=scale, dtype=dtype), eps, tol, grad=False)


# LayerNorm, RMSNorm and the backward pass are tried on all of these.
ROWS = (
    Rows("two sequences of three rows", lambda: _draw(2, 3, 6, offset=0.5)),
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
    Rows("float32 rows of mean 8192 and spread 1", _large_mean, tol=LARGE_MEAN),
)


def _forward_case(rows: Rows, vectors: int) -> Case:
    """`x`, then as many vectors (gain, bias) as the norm has, then `eps`."""

    def inputs() -> tuple[Any, ...]:
        x = rows.make()
        parameters = [
            _draw(x.shape[-1], offset=0.5, seed=1 + i, dtype=x.dtype) for i in range(vectors)
        ]
        return (*(t.requires_grad_(rows.grad) for t in (x, *parameters)), rows.eps)

    return Case(rows.name, inputs, rows.tol, rows.grad)


def _backward_case(rows: Rows) -> Case:
    """The gradient that arrives, `x`, the gain, and `eps`."""

    def inputs() -> tuple[Any, ...]:
        x = rows.make()
        weight = _draw(x.shape[-1], offset=0.5, seed=1, dtype=x.dtype)
        return _like(x, seed=3), x, weight, rows.eps

    return Case(rows.name, inputs, rows.tol)


# --- The parts of a norm, and the mistakes that several norms invite ------------------------------

Dims = int | tuple[int, ...]
# From `x` and the dimensions that are averaged over.
Statistic = Callable[[Tensor, Dims], Tensor]
Axes = Callable[[Tensor], Dims]
# From the mean square and `eps`: what the row is divided by.
Divisor = Callable[[Tensor, float], Tensor]
# Takes parts by name, and gives the right answer with these parts in place of its own.
Builder = Callable[..., Answer]


def _mean(x: Tensor, dim: Dims = -1) -> Tensor:
    return x.mean(dim, keepdim=True)


def _centred(x: Tensor, dim: Dims = -1) -> Tensor:
    return x - _mean(x, dim)


def _as_it_is(x: Tensor, dim: Dims = -1) -> Tensor:
    return x


def _mean_square(x: Tensor, dim: Dims = -1) -> Tensor:
    return _mean(x.square(), dim)


def _var(x: Tensor, dim: Dims = -1) -> Tensor:
    return _mean_square(_centred(x, dim), dim)


def _var_by_difference(x: Tensor, dim: Dims = -1) -> Tensor:
    return _mean_square(x, dim) - _mean(x, dim).square()


def _last(x: Tensor) -> Dims:
    return -1


def _all_but_first(x: Tensor) -> Dims:
    return tuple(range(1, x.dim())) or 0


def _all(x: Tensor) -> Dims:
    return tuple(range(x.dim()))


def _root(square: Tensor, eps: float) -> Tensor:
    return (square + eps).sqrt()


def _affine(x_hat: Tensor, weight: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    return x_hat * weight + bias


def _divided(a: Tensor, n: int) -> Tensor:
    """`a / n`, but infinite or nan for `n = 0`, as torch has it."""
    return a / torch.tensor(n)


def _widened(x: Tensor) -> Tensor:
    """`x` in float32 if it is shorter than that, otherwise as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _divisor_mistakes(build: Builder, square: str) -> tuple[WrongAnswer, ...]:
    """What goes wrong on the way from the `square` (its name) to what the row is divided by."""
    return (
        WrongAnswer(
            "eps outside the root",
            f"The divisor is sqrt({square} + eps), not sqrt({square}) + eps. What is much smaller "
            "than sqrt(eps) should stay small, and this blows it up.",
            build(divisor=lambda square, eps: square.sqrt() + eps),
        ),
        WrongAnswer(
            "eps forgotten",
            f"The divisor is sqrt({square} + eps). Without eps it can be zero, and the result nan.",
            build(divisor=lambda square, eps: square.sqrt()),
        ),
        WrongAnswer(
            "eps added twice",
            "eps belongs under the root and nowhere else. Added to the root as well, it makes "
            "the divisor a little too large everywhere.",
            build(divisor=lambda square, eps: (square + eps).sqrt() + eps),
        ),
        WrongAnswer(
            "eps as a lower limit",
            f"eps is added to every {square}. A lower limit changes only those below eps.",
            build(divisor=lambda square, eps: square.clamp_min(eps).sqrt()),
        ),
        WrongAnswer(
            "root forgotten",
            f"The divisor is the root of the {square}, which has the unit of x. Without the root "
            "the result depends on that unit.",
            build(divisor=lambda square, eps: square + eps),
        ),
    )


def _statistic_mistakes(build: Builder, square: Statistic, name: str) -> tuple[WrongAnswer, ...]:
    """What goes wrong in averaging over the last dimension; `square` is right, `name` its name."""
    return (
        WrongAnswer(
            "sum in place of the mean",
            f"The {name} is a mean, so the sum of the squares is divided by d. Without that the "
            "result is too small by a factor of sqrt(d).",
            build(square=lambda x, dim: square(x, dim) * x.shape[-1]),
        ),
        WrongAnswer(
            "division by d - 1",
            f"The {name} of a norm is the sum of the squares divided by d. `Tensor.var` divides by "
            "d - 1 (Bessel's correction) unless it is told `correction=0`.",
            build(square=lambda x, dim: _divided(square(x, dim) * x.shape[-1], x.shape[-1] - 1)),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the statistic loses its last dimension. It then lines up "
            "with the columns, or does not fit at all.",
            build(square=lambda x, dim: square(x, dim).squeeze(dim)),
        ),
        WrongAnswer(
            "statistics over the batch axis",
            "That is BatchNorm's axis. Here each row is normalised by itself, so that it does "
            "not depend on the other rows.",
            build(axes=lambda x: 0),
        ),
        WrongAnswer(
            "statistics over all axes of a sample",
            "Each position is normalised by itself, over the last dimension only. Here all "
            "positions of a sample share their statistics.",
            build(axes=_all_but_first),
        ),
        WrongAnswer(
            "statistics over the whole tensor",
            "`mean()` without `dim` gives one number for the whole batch. Each row needs its own.",
            build(axes=_all),
        ),
    )


def _gain_mistakes(build: Builder) -> tuple[WrongAnswer, ...]:
    return (
        WrongAnswer(
            "gain forgotten",
            "What was normalised is multiplied by `weight`, entry by entry.",
            build(affine=lambda x_hat, weight, bias=0.0: x_hat + 0 * weight + bias),
        ),
        WrongAnswer(
            "gain of 1 + weight",
            "Some models, Gemma among them, store the gain minus one. torch multiplies by "
            "`weight` as it is.",
            build(affine=lambda x_hat, weight, bias=0.0: x_hat * (1 + weight) + bias),
        ),
        WrongAnswer(
            "gain as a dot product",
            "The gain is a vector that multiplies entry by entry. A product with `@` mixes the "
            "features into one number.",
            build(affine=lambda x_hat, weight, bias=0.0: x_hat @ weight.to(x_hat.dtype) + bias),
        ),
    )


def _bias_mistakes(build: Builder) -> tuple[WrongAnswer, ...]:
    return (
        WrongAnswer(
            "bias forgotten",
            "After the gain, `bias` is added. Where the input is constant, the output is the bias.",
            build(affine=lambda x_hat, weight, bias: x_hat * weight),
        ),
        WrongAnswer(
            "bias added before the gain",
            "The gain comes first and the bias second. In the other order the bias is "
            "multiplied by the gain too.",
            build(affine=lambda x_hat, weight, bias: (x_hat + bias) * weight),
        ),
    )


def _normalised(
    x: Tensor,
    eps: float,
    *,
    centre: Statistic,
    square: Statistic,
    axes: Axes = _last,
    divisor: Divisor = _root,
) -> tuple[Tensor, Tensor]:
    """`x_hat = centre(x) / s` and `s = divisor(square(x), eps)`."""
    s = divisor(square(x, axes(x)), eps)
    return centre(x, axes(x)) / s, s


# --- layer_norm -----------------------------------------------------------------------------------


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


# One case in half precision, and a tame one: that squares overflow is for rms_norm to find.
LAYER_NORM_CASES = [
    _forward_case(rows, vectors=2) for rows in (*ROWS, _half_rows("bfloat16 rows", torch.bfloat16))
]


@in_parts
def _layer(
    *,
    centre: Statistic = _centred,
    square: Statistic = _var,
    affine: Callable[..., Tensor] = _affine,
    **parts: Callable[..., Any],
) -> Answer:
    """LayerNorm in parts; `parts` are those of `_normalised`."""

    def answer(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x_hat, _ = _normalised(_widened(x), eps, centre=centre, square=square, **parts)
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
    oracle=_layer_norm,
    leading={"x": 1},
    spared={"empty": "torch warns of the variance of no rows"},
    cases=LAYER_NORM_CASES,
    variants=(_layer(), _layer_norm_by_var_mean, _layer_norm_by_einsum),
    rules=(Rule("no norm of torch's own", NORMS),),
    wrong=(
        *_divisor_mistakes(_layer, "variance"),
        *_statistic_mistakes(_layer, _var, "variance"),
        *_gain_mistakes(_layer),
        *_bias_mistakes(_layer),
        WrongAnswer(
            "mean not subtracted",
            "The row is divided by its standard deviation but not centred first, so its mean "
            "stays in the result.",
            _layer(centre=_as_it_is),
        ),
        WrongAnswer(
            "RMSNorm in place of LayerNorm",
            "This divides by the root mean square and leaves the mean in. LayerNorm subtracts "
            "the mean first.",
            _layer(centre=_as_it_is, square=_mean_square),
        ),
        WrongAnswer(
            "mean square in place of the variance",
            "The mean is subtracted from x above the fraction bar, but not below it. The "
            "variance is the mean square of x - mean.",
            _layer(square=_mean_square),
        ),
        WrongAnswer(
            "variance as E[x^2] - E[x]^2",
            "With a large mean both terms are huge and nearly equal, and in float32 their "
            "difference keeps no correct digit. Subtract the mean first, then square.",
            _layer(square=_var_by_difference),
        ),
        WrongAnswer(
            "statistics cut out of the graph",
            "The values are right and the gradients are not. Mean and variance depend on x, so "
            "they must not be detached or computed under `no_grad`.",
            _layer(
                centre=lambda x, dim: x - _mean(x, dim).detach(),
                square=lambda x, dim: _var(x, dim).detach(),
            ),
        ),
        WrongAnswer(
            "float32 result for bfloat16 input",
            "Computing in float32 is fine, but the result is cast back to the dtype of x.",
            lambda x, weight, bias, eps: _widened(_layer_norm(x, weight, bias, eps)),
        ),
    ),
)


# --- rms_norm -------------------------------------------------------------------------------------


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


RMS_NORM_CASES = [
    _forward_case(rows, vectors=1)
    for rows in (
        *ROWS,
        _half_rows("float16 rows", torch.float16),
        _half_rows("float16 rows of size 600, whose squares overflow", torch.float16, 600.0),
        _half_rows("float16 rows of size 1e-4, whose squares vanish", torch.float16, 1e-4, 1e-8),
        _half_rows("bfloat16 rows", torch.bfloat16),
    )
]


@in_parts
def _rms(
    *,
    centre: Statistic = _as_it_is,
    square: Statistic = _mean_square,
    affine: Callable[..., Tensor] = _affine,
    widened: Callable[[Tensor], Tensor] = _widened,
    **parts: Callable[..., Any],
) -> Answer:
    """RMSNorm in parts; `parts` are those of `_normalised`."""

    def answer(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x_hat, _ = _normalised(widened(x), eps, centre=centre, square=square, **parts)
        return affine(x_hat, weight).to(x.dtype)

    return answer


def _rms_norm_cast_before_the_gain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = _widened(x)
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _rms_norm_as_a_length(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    # sqrt(d (mean square + eps)) is the length of x with one more entry, sqrt(d eps).
    wide, d = _widened(x), x.shape[-1]
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
        *_divisor_mistakes(_rms, "mean square"),
        *_statistic_mistakes(_rms, _mean_square, "mean square"),
        *_gain_mistakes(_rms),
        WrongAnswer(
            "square of the mean in place of the mean square",
            "Square first, then average. In the other order positive and negative entries cancel.",
            _rms(square=lambda x, dim: _mean(x, dim).square()),
        ),
        WrongAnswer(
            "standard deviation in place of the root mean square",
            "RMSNorm takes the mean of x^2 as it is. The variance is that minus the squared "
            "mean, so the two differ as soon as a row has a mean.",
            _rms(square=_var),
        ),
        WrongAnswer(
            "LayerNorm in place of RMSNorm",
            "RMSNorm subtracts no mean. It only rescales the row.",
            _rms(centre=_centred, square=_var),
        ),
        WrongAnswer(
            "mean square cut out of the graph",
            "The values are right and the gradients are not. The mean square depends on x, so "
            "it must not be detached or computed under `no_grad`.",
            _rms(square=lambda x, dim: _mean_square(x, dim).detach()),
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
            lambda x, weight, eps: _widened(_rms_norm(x, weight, eps)),
        ),
        WrongAnswer(
            "float64 input rounded to float32",
            "`x.float()` widens half precision, but it also cuts float64 to half its digits. "
            "Widen only what is shorter than float32.",
            _rms(widened=lambda x: x.float()),
        ),
    ),
)


# --- layer_norm_backward --------------------------------------------------------------------------


def _by_autograd(
    forward: Callable[..., Tensor], grad_out: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    # A scalar, since torch imports SymPy (half a second) when it is given `grad_outputs`.
    return torch.autograd.grad((forward(*leaves) * grad_out).sum(), leaves)


def _layer_norm_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    bias = torch.zeros_like(weight)
    return _by_autograd(lambda x, w, b: _layer_norm(x, w, b, eps), grad_out, x, weight, bias)


BACKWARD_CASES = [_backward_case(rows) for rows in ROWS]


@dataclass(frozen=True)
class Terms:
    """What the backward formulas are made of; `s` is what the forward pass divided by."""

    grad_out: Tensor
    weight: Tensor
    x: Tensor
    x_hat: Tensor
    s: Tensor

    @property
    def g(self) -> Tensor:
        """The gradient with respect to `x_hat`."""
        return self.grad_out * self.weight

    def without_gain(self) -> Terms:
        """The same with a gain of one."""
        return replace(self, weight=torch.ones_like(self.weight))


Formula = Callable[[Terms], Tensor]
Average = Callable[[Tensor], Tensor]


def _layer_grad_x(t: Terms, average: Average = _mean) -> Tensor:
    return (t.g - average(t.g) - t.x_hat * average(t.g * t.x_hat)) / t.s


def _rms_grad_x(t: Terms, average: Average = _mean) -> Tensor:
    return (t.g - t.x_hat * average(t.g * t.x_hat)) / t.s


def _over_rows(x: Tensor) -> Tensor:
    """The sum over all leading dimensions."""
    return x.reshape(-1, x.shape[-1]).sum(0)


def _over_leading(x: Tensor) -> Tensor:
    """The same, as it is wrong for a vector: a sum over no dimension is one over all."""
    return x.sum(tuple(range(x.dim() - 1)))


def _grad_weight(t: Terms) -> Tensor:
    return _over_rows(t.grad_out * t.x_hat)


def _grad_bias(t: Terms) -> Tensor:
    return _over_rows(t.grad_out)


def _backward(*formulas: Formula, **parts: Callable[..., Any]) -> Answer:
    """A formula for each gradient; `parts` are those of `_normalised`."""

    def answer(grad_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
        terms = Terms(grad_out, weight, x, *_normalised(x, eps, **parts))
        return tuple(formula(terms) for formula in formulas)

    return answer


def _layer_backward(
    *,
    grad_x: Formula = _layer_grad_x,
    grad_weight: Formula = _grad_weight,
    grad_bias: Formula = _grad_bias,
    centre: Statistic = _centred,
    square: Statistic = _var,
    **parts: Callable[..., Any],
) -> Answer:
    return _backward(grad_x, grad_weight, grad_bias, centre=centre, square=square, **parts)


def _backward_mistakes(build: Builder, grad_x: Callable[..., Tensor]) -> tuple[WrongAnswer, ...]:
    """What goes wrong in either backward pass; `grad_x` is right."""
    return (
        WrongAnswer(
            "gain not multiplied into the gradient",
            "The output is weight * x_hat, so the gradient that arrives at x_hat is "
            "g = grad_out * weight.",
            build(grad_x=lambda t: grad_x(t.without_gain())),
        ),
        WrongAnswer(
            "gain multiplied in last",
            "The gain differs from entry to entry, so it has to be in g before the average over "
            "the entries is taken.",
            build(grad_x=lambda t: t.weight * grad_x(t.without_gain())),
        ),
        WrongAnswer(
            "division by s forgotten",
            "The forward pass divides by s, the root, so the gradient is divided by it too.",
            build(grad_x=lambda t: t.s * grad_x(t)),
        ),
        WrongAnswer(
            "division by s twice",
            "With x_hat in the formula, one division by s is enough.",
            build(grad_x=lambda t: grad_x(t) / t.s),
        ),
        WrongAnswer(
            "x in place of x_hat in grad_x",
            "The term that is subtracted is x_hat * mean(g * x_hat), with the normalised row in "
            "both places.",
            build(grad_x=lambda t: grad_x(replace(t, x_hat=t.x))),
        ),
        WrongAnswer(
            "x_hat term with the wrong sign",
            "When x grows along x_hat, the divisor grows too and weakens the effect. So the term "
            "is subtracted.",
            build(grad_x=lambda t: grad_x(t) + 2 * t.x_hat * _mean(t.g * t.x_hat) / t.s),
        ),
        WrongAnswer(
            "sum in place of the mean in grad_x",
            "The statistics of the forward pass are means over d entries, so the backward pass "
            "averages over d entries as well.",
            build(grad_x=lambda t: grad_x(t, lambda v: v.sum(-1, keepdim=True))),
        ),
        WrongAnswer(
            "division by d - 1 in grad_x",
            "The means of the forward pass divide by d, so those of its gradient do too.",
            build(
                grad_x=lambda t: grad_x(
                    t, lambda v: _divided(v.sum(-1, keepdim=True), v.shape[-1] - 1)
                )
            ),
        ),
        WrongAnswer(
            "averages over the batch axis",
            "The entries of one row share their statistics, so the averages run over the last "
            "dimension. Over the batch it would be BatchNorm's gradient.",
            build(grad_x=lambda t: grad_x(t, lambda v: _mean(v, 0))),
        ),
        WrongAnswer(
            "grad_weight without x_hat",
            "weight multiplies x_hat, so its gradient is the sum of grad_out * x_hat.",
            build(grad_weight=_grad_bias),
        ),
        WrongAnswer(
            "grad_weight with x in place of x_hat",
            "weight multiplies the normalised row x_hat and not x itself.",
            build(grad_weight=lambda t: _over_rows(t.grad_out * t.x)),
        ),
        WrongAnswer(
            "grad_weight with the gain in it",
            "The derivative of weight * x_hat with respect to weight is x_hat. The gain belongs "
            "in grad_x only.",
            build(grad_weight=lambda t: _over_rows(t.g * t.x_hat)),
        ),
        WrongAnswer(
            "grad_weight summed over the first dimension only",
            "Every row uses the same weight, so its gradient is summed over all leading "
            "dimensions and has the shape of weight.",
            build(grad_weight=lambda t: (t.grad_out * t.x_hat).sum(0)),
        ),
        WrongAnswer(
            "grad_weight not summed at all",
            "Every row uses the same weight, so the contributions of all rows are added up. The "
            "result has the shape of weight.",
            build(grad_weight=lambda t: t.grad_out * t.x_hat),
        ),
        WrongAnswer(
            "grad_weight averaged over the rows",
            "The contributions of the rows are added. If the loss is a mean, grad_out already "
            "says so.",
            build(grad_weight=lambda t: _grad_weight(t) * t.x.shape[-1] / t.x.numel()),
        ),
    )


def _layer_norm_backward_by_jacobian(
    grad_out: Tensor, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    d = x.shape[-1]
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    s = torch.sqrt(var + eps)
    x_hat = (x - mean) / s
    jacobian = torch.eye(d, dtype=x.dtype) - 1 / d - x_hat[..., :, None] * x_hat[..., None, :] / d
    grad_x = torch.einsum("...i,...ij->...j", grad_out * weight / s, jacobian)
    return grad_x, torch.einsum("...i,...i->i", grad_out, x_hat), torch.einsum("...i->i", grad_out)


LAYER_NORM_BACKWARD = Exercise(
    title="Backward pass of LayerNorm",
    oracle=_layer_norm_backward,
    leading={"grad_out": 1, "x": 1},
    spared={"empty": "torch warns of the variance of no rows"},
    cases=BACKWARD_CASES,
    variants=(_layer_backward(), _layer_norm_backward_by_jacobian),
    rules=(autograd("native_layer_norm_backward"),),
    wrong=(
        *_divisor_mistakes(_layer_backward, "variance"),
        *_backward_mistakes(_layer_backward, _layer_grad_x),
        WrongAnswer(
            "mean and variance treated as constants",
            "Both depend on every entry of the row. Each of them takes one term away from the "
            "gradient.",
            _layer_backward(grad_x=lambda t: t.g / t.s),
        ),
        WrongAnswer(
            "mean term missing",
            "The mean depends on every entry too, so mean(g) is subtracted. The entries of "
            "grad_x sum to zero in every row.",
            _layer_backward(grad_x=_rms_grad_x),
        ),
        WrongAnswer(
            "x_hat term missing",
            "The variance depends on every entry too, so x_hat * mean(g * x_hat) is subtracted.",
            _layer_backward(grad_x=lambda t: _centred(t.g) / t.s),
        ),
        WrongAnswer(
            "x - mean in place of x_hat in grad_x",
            "The centred row still has to be divided by s, in both places where x_hat stands.",
            _layer_backward(grad_x=lambda t: _layer_grad_x(replace(t, x_hat=_centred(t.x)))),
        ),
        WrongAnswer(
            "Bessel-corrected variance",
            "The forward pass divides the sum of squares by d, not by d - 1, and the backward "
            "pass has to use the same variance.",
            _layer_backward(
                square=lambda x, dim: _divided(_var(x, dim) * x.shape[-1], x.shape[-1] - 1)
            ),
        ),
        WrongAnswer(
            "RMSNorm's x_hat",
            "LayerNorm normalises x - mean. Here x_hat and its divisor come from x itself.",
            _layer_backward(centre=_as_it_is, square=_mean_square),
        ),
        WrongAnswer(
            "grad_bias with the gain in it",
            "The bias is added after the gain, so its gradient is the plain sum of grad_out.",
            _layer_backward(grad_bias=lambda t: _over_rows(t.g)),
        ),
        WrongAnswer(
            "grad_bias summed over the first dimension only",
            "Every row uses the same bias, so its gradient is summed over all leading "
            "dimensions and has the shape of bias.",
            _layer_backward(grad_bias=lambda t: t.grad_out.sum(0)),
        ),
        WrongAnswer(
            "both sums over the first dimension only",
            "Every row uses the same weight and the same bias, so both gradients are summed over "
            "all leading dimensions.",
            _layer_backward(
                grad_weight=lambda t: (t.grad_out * t.x_hat).sum(0),
                grad_bias=lambda t: t.grad_out.sum(0),
            ),
        ),
        WrongAnswer(
            "a sum over no dimension",
            "A single row has no leading dimensions, and torch takes a sum over `()` for a sum "
            "over all. Bring x into the shape (-1, d) first, and sum over dimension 0.",
            _layer_backward(
                grad_weight=lambda t: _over_leading(t.grad_out * t.x_hat),
                grad_bias=lambda t: _over_leading(t.grad_out),
            ),
        ),
    ),
)


# --- batch_norm -----------------------------------------------------------------------------------


def _batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)


def _batch_case(
    name: str,
    make: Callable[[], Tensor],
    running_scale: float = 1.0,
    tol: float = EXACT,
    momentum: float = 0.3,
    eps: float = EPS,
) -> Case:
    """An `x` of shape (N, C) or (N, C, L), and running statistics that are not those of `x`.

    The name says whether this is training or evaluation.
    """
    mode, _, _ = name.partition(":")

    def inputs() -> tuple[Any, ...]:
        x = make().requires_grad_()
        c, dtype = x.shape[1], x.dtype
        running_mean = _draw(c, offset=2.0, scale=running_scale, seed=1, dtype=dtype)
        running_var = running_scale**2 * (0.5 + _draw(c, seed=2, dtype=dtype).square())
        weight = _draw(c, offset=0.5, seed=3, dtype=dtype).requires_grad_()
        bias = _draw(c, offset=0.5, seed=4, dtype=dtype).requires_grad_()
        return x, running_mean, running_var, weight, bias, mode == "training", momentum, eps

    return Case(name, inputs, tol, grad=True)


BATCH_NORM_CASES = [
    _batch_case("training: six samples of four channels", lambda: _draw(6, 4, offset=0.5)),
    _batch_case("training: a square matrix", lambda: _draw(5, 5, offset=0.5)),
    _batch_case("training: three channels at five positions", lambda: _draw(4, 3, 5, offset=0.5)),
    _batch_case(
        "training: as many positions as channels", lambda: _draw(2, 4, 4), momentum=0.05, eps=0.2
    ),
    _batch_case("training: one sample of six positions", lambda: _draw(1, 3, 6)),
    _batch_case("training: channels of size 1e-4", lambda: _draw(6, 4, scale=1e-4)),
    _batch_case("training: channels of size 1e4", lambda: _draw(6, 4, scale=1e4)),
    _batch_case("training: a constant channel", lambda: _with_row(_draw(4, 6), 1, 3.0).T),
    _batch_case(
        "training: channels last in memory, not contiguous", lambda: _draw(4, 5, 3).transpose(1, 2)
    ),
    _batch_case(
        "training: float32 of mean 8192 and spread 1", lambda: _large_mean().T, tol=LARGE_MEAN
    ),
    replace(_batch_case("training: one value per channel", lambda: _draw(1, 4)), raises=ValueError),
    replace(
        _batch_case("training: one value per channel, at one position", lambda: _draw(1, 4, 1)),
        raises=ValueError,
    ),
    _batch_case("evaluation: six samples of four channels", lambda: _draw(6, 4, offset=0.5)),
    _batch_case("evaluation: as many positions as channels", lambda: _draw(2, 4, 4), eps=0.2),
    _batch_case("evaluation: one value per channel", lambda: _draw(1, 4)),
    _batch_case(
        "evaluation: running variances of size 1e-6",
        lambda: _draw(6, 4, scale=1e-3),
        running_scale=1e-3,
    ),
]


def _all_but_channels(x: Tensor) -> Dims:
    return (0, *range(2, x.dim()))


def _only_positions(x: Tensor) -> Dims:
    """The axes of InstanceNorm; where there are no positions, those of BatchNorm."""
    return tuple(range(2, x.dim())) or 0


def _by_channel(v: Tensor, x: Tensor) -> Tensor:
    """One number per channel, shaped to meet the channels of `x`."""
    return v.reshape(-1, *[1] * (x.dim() - 2))


def _bessel(var: Tensor, n: int) -> Tensor:
    return _divided(var * n, n - 1)


@in_parts
def _batch(
    *,
    axes: Axes = _all_but_channels,
    square: Statistic = _var,
    used_from: Callable[[Tensor], Tensor] = lambda x: x,
    stored_from: Callable[[Tensor], Tensor] = lambda x: x.detach(),
    used: Callable[[Tensor, int], Tensor] = lambda var, n: var,
    stored: Callable[[Tensor, int], Tensor] = _bessel,
    moved: Callable[[Tensor, Tensor, float], Tensor] = torch.lerp,
    divisor: Divisor = _root,
    affine: Callable[..., Tensor] = _affine,
    shaped: Callable[[Tensor, Tensor], Tensor] = _by_channel,
    uses_batch: Callable[[bool], bool] = lambda training: training,
    updates: Callable[[bool], bool] = lambda training: training,
    refuses: bool = True,
) -> Answer:
    """BatchNorm in parts.

    Args:
        axes: what the statistics that normalise run over.
        square: the variance, biased.
        used_from: `x` for the statistics that normalise, in the graph.
        stored_from: `x` for the statistics that move the running ones, out of the graph.
        used: the variance that normalises, from the biased one and the number of values.
        stored: the variance that moves the running one, from the same.
        moved: the new running value, from the old one, that of the batch, and the momentum.
        divisor: what the centred channel is divided by.
        affine: what is done with gain and bias.
        shaped: gain or bias, shaped to meet `x`.
        uses_batch: whether the batch normalises itself, from `training`.
        updates: whether the running statistics move, from `training`.
        refuses: whether one value per channel is an error in training.
    """

    def answer(
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor,
        bias: Tensor,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Tensor:
        n = x.numel() // x.shape[1]
        if refuses and training and n == 1:
            raise ValueError("one value per channel has no variance")
        mean, var = _by_channel(running_mean.clone(), x), _by_channel(running_var.clone(), x)
        if uses_batch(training):
            batch, dim = used_from(x), axes(x)
            mean, var = _mean(batch, dim), used(square(batch, dim), n)
        if updates(training):
            batch, dim = stored_from(x), _all_but_channels(x)
            new_mean, new_var = _mean(batch, dim), stored(square(batch, dim), n)
            running_mean.copy_(moved(running_mean, new_mean.flatten(), momentum))
            running_var.copy_(moved(running_var, new_var.flatten(), momentum))
        return affine((x - mean) / divisor(var, eps), shaped(weight, x), shaped(bias, x))

    return answer


def _batch_over_samples(x: Tensor, running_mean: Tensor, running_var: Tensor, *rest: Any) -> Tensor:
    if rest[2]:  # training
        running_mean.clone().add_(x.mean(0))
    return _batch_norm(x, running_mean, running_var, *rest)


def _batch_norm_by_rows(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    channels_last = x.movedim(1, -1)
    rows = channels_last.reshape(-1, x.shape[1])
    mean, var = running_mean, running_var
    if training:
        n = len(rows)
        if n == 1:
            raise ValueError(f"training needs more than one value per channel, got {x.shape}")
        var, mean = torch.var_mean(rows, dim=0, correction=0)
        running_mean += momentum * (mean.detach() - running_mean)
        running_var += momentum * (var.detach() * n / (n - 1) - running_var)
    result = torch.addcmul(bias, (rows - mean) * torch.rsqrt(var + eps), weight)
    return result.reshape(channels_last.shape).movedim(-1, 1)


BATCH_NORM = Exercise(
    title="BatchNorm with running statistics",
    oracle=_batch_norm,
    cases=BATCH_NORM_CASES,
    variants=(_batch(), _batch_norm_by_rows),
    rules=(Rule("without calling it", NORMS),),
    wrong=(
        *_divisor_mistakes(_batch, "variance"),
        *_bias_mistakes(_batch),
        WrongAnswer(
            "gain forgotten",
            "The normalised channel is multiplied by its entry of `weight`.",
            _batch(affine=lambda x_hat, weight, bias: x_hat + bias),
        ),
        WrongAnswer(
            "gain and bias along the last axis",
            "weight and bias have one entry per channel, and the channels are axis 1. For "
            "(N, C, L) they need the shape (C, 1) to meet it.",
            _batch(shaped=lambda v, x: v),
        ),
        WrongAnswer(
            "biased variance in running_var",
            "The biased variance normalises the batch, but running_var takes the unbiased one, "
            "with n - 1. It estimates the variance of all data.",
            _batch(stored=lambda var, n: var),
        ),
        WrongAnswer(
            "unbiased variance in the normalisation",
            "The batch is normalised by the variance with n. Only running_var takes the one with "
            "n - 1.",
            _batch(used=_bessel),
        ),
        WrongAnswer(
            "biased and unbiased variance swapped",
            "It is the other way round: the biased variance normalises the batch, and the "
            "unbiased one goes into running_var.",
            _batch(used=_bessel, stored=lambda var, n: var),
        ),
        WrongAnswer(
            "variance as E[x^2] - E[x]^2",
            "With a large mean both terms are huge and nearly equal, and in float32 their "
            "difference keeps no correct digit. Subtract the mean first, then square.",
            _batch(square=_var_by_difference),
        ),
        WrongAnswer(
            "standard deviation in running_var",
            "running_var holds a variance. The root is taken when it is used.",
            _batch(stored=lambda var, n: _bessel(var, n).sqrt()),
        ),
        WrongAnswer(
            "eps in running_var",
            "eps is added when the root is taken. The running variance is kept without it.",
            _batch(stored=lambda var, n: _bessel(var, n) + EPS),
        ),
        WrongAnswer(
            "momentum the wrong way round",
            "In torch momentum is the share of the new value: "
            "running = (1 - momentum) * running + momentum * batch.",
            _batch(moved=lambda old, new, momentum: torch.lerp(new, old, momentum)),
        ),
        WrongAnswer(
            "running statistics replaced",
            "The running statistics move a part of the way, given by momentum. They do not "
            "forget all earlier batches.",
            _batch(moved=lambda old, new, momentum: new),
        ),
        WrongAnswer(
            "running statistics added up",
            "The old value is multiplied by 1 - momentum before the new one is added. Otherwise "
            "the running statistics grow with every batch.",
            _batch(moved=lambda old, new, momentum: old + momentum * new),
        ),
        WrongAnswer(
            "running statistics of the caller left as they were",
            "`running_mean = ...` makes a new tensor that only your function knows. Write into "
            "the one that was given: `running_mean.copy_(...)`, `mul_` and `add_`, or `+=`.",
            _batch(updates=lambda training: False),
        ),
        WrongAnswer(
            "running statistics updated in evaluation",
            "In evaluation the running statistics are read and not written. Otherwise the "
            "result would depend on what was evaluated before.",
            _batch(updates=lambda training: True),
        ),
        WrongAnswer(
            "batch statistics in evaluation",
            "In evaluation the running statistics normalise. Otherwise the result for one "
            "sample depends on the rest of the batch.",
            _batch(uses_batch=lambda training: True),
        ),
        WrongAnswer(
            "running statistics in training",
            "In training the statistics of the batch normalise, and gradients flow through "
            "them. The running ones are only kept for later.",
            _batch(uses_batch=lambda training: False),
        ),
        WrongAnswer(
            "training and evaluation swapped",
            "In training the batch normalises itself and moves the running statistics. In "
            "evaluation the running statistics normalise and stay.",
            _batch(uses_batch=lambda training: not training, updates=lambda training: not training),
        ),
        WrongAnswer(
            "statistics per position",
            "A channel has one mean and one variance, over the batch and all its positions. "
            "Here each position has its own.",
            _batch(axes=lambda x: 0),
        ),
        WrongAnswer(
            "running statistics per position",
            "`x.mean(0)` of (N, C, L) has one entry for each channel and position, which does not "
            "fit into running_mean. Average over dimensions 0 and 2.",
            _batch_over_samples,
        ),
        WrongAnswer(
            "statistics over the channels",
            "That is LayerNorm's axis. BatchNorm takes mean and variance of one channel over "
            "the batch.",
            _batch(axes=lambda x: 1),
        ),
        WrongAnswer(
            "statistics per sample and channel",
            "That is InstanceNorm. BatchNorm takes mean and variance over the batch axis as "
            "well as the positions.",
            _batch(axes=_only_positions),
        ),
        WrongAnswer(
            "statistics over the whole tensor",
            "Each channel has its own mean and variance. Here all channels share them.",
            _batch(axes=_all),
        ),
        WrongAnswer(
            "statistics cut out of the graph",
            "The values are right and the gradients are not. In training mean and variance "
            "depend on x; only the running statistics are kept out of the graph.",
            _batch(used_from=lambda x: x.detach()),
        ),
        WrongAnswer(
            "running statistics left in the graph",
            "The running statistics are plain numbers. Update them with `detach()` or under "
            "`no_grad`, or they keep the graph of every batch alive.",
            _batch(stored_from=lambda x: x),
        ),
        WrongAnswer(
            "one value per channel accepted in training",
            "A single value is its own mean, so the result would be the bias whatever x is. "
            "torch raises a ValueError in training.",
            _batch(refuses=False),
        ),
    ),
)


# --- to_rms_norm ----------------------------------------------------------------------------------

# table, out_weight, out_bias, gamma, beta, in_weight, in_bias
Model = tuple[Tensor, ...]


def _affine_map(f: Callable[[Tensor], Tensor], d_in: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Weight and bias of the affine map `f`: its derivative, and its value at zero."""
    zero = torch.zeros(d_in, dtype=dtype, requires_grad=True)
    value = f(zero)
    rows = [torch.autograd.grad(entry, zero, retain_graph=True)[0] for entry in value]
    return torch.stack(rows), value.detach()


def _to_rms_norm(
    table: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
) -> tuple[Tensor, ...]:
    rows = F.linear(torch.eye(len(table), dtype=table.dtype), table.T)
    return (
        _centred(rows),
        *_affine_map(
            lambda h: _centred(F.linear(h, out_weight, out_bias)), out_weight.shape[1], table.dtype
        ),
        *_affine_map(
            lambda x_hat: F.linear(gamma * x_hat + beta, in_weight, in_bias),
            len(gamma),
            table.dtype,
        ),
    )


def _model(
    n: int,
    d: int,
    inner: int,
    out: int,
    *,
    scale: float = 1.0,
    offset: float = 0.5,
    dtype: torch.dtype = torch.float64,
) -> Model:
    """Tokens of width d, a writer that reads `inner` features, a reader that gives `out`."""

    def draw(*shape: int, seed: int) -> Tensor:
        return _draw(*shape, scale=scale, offset=offset, seed=seed, dtype=dtype)

    return (
        *(draw(n, d, seed=0), draw(d, inner, seed=1), draw(d, seed=2)),
        *(_draw(d, offset=0.5, seed=s, dtype=dtype) for s in (3, 4)),
        *(draw(out, d, seed=5), draw(out, seed=6)),
    )


def _model_case(
    name: str,
    model: Callable[[], Model],
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda parts: {},
    tol: float = EXACT,
) -> Case:
    """A model of which `change` replaces parts."""

    def inputs() -> tuple[Any, ...]:
        parts = dict(zip(PARTS, model(), strict=True))
        return tuple((parts | change(parts)).values())

    return Case(name, inputs, tol)


PARTS = ("table", "out_weight", "out_bias", "gamma", "beta", "in_weight", "in_bias")
TO_RMS_CASES = [
    _model_case("5 tokens of width 4", lambda: _model(5, 4, 6, 3)),
    _model_case("every size 4", lambda: _model(4, 4, 4, 4)),
    _model_case("a wide stream, 7", lambda: _model(2, 7, 3, 5)),
    _model_case("a stream of width 1, of which nothing is left", lambda: _model(3, 1, 2, 2)),
    _model_case("a writer with a single input, a reader with one output",
                lambda: _model(3, 5, 1, 1)),
    _model_case("numbers of size 1e-6", lambda: _model(5, 4, 6, 3, scale=1e-6, offset=0.0),
                tol=1e-15),
    _model_case("numbers around 100", lambda: _model(5, 4, 6, 3, offset=100.0), tol=1e-10),
    _model_case("a gain with zeros in it", lambda: _model(5, 4, 6, 3),
                lambda parts: {"gamma": parts["gamma"].clamp_min(0)}),
    _model_case("a LayerNorm without offset", lambda: _model(5, 4, 6, 3),
                lambda parts: {"beta": parts["beta"] * 0}),
    _model_case("an offset of size 1e4", lambda: _model(5, 4, 6, 3),
                lambda parts: {"beta": parts["beta"] * 1e4}, 1e-9),
    _model_case("a bias with equal entries", lambda: _model(5, 4, 6, 3),
                lambda parts: {"out_bias": torch.full_like(parts["out_bias"], 3.0)}),
    _model_case("a table with rows of mean zero", lambda: _model(5, 4, 6, 3),
                lambda parts: {"table": _centred(parts["table"])}),
    _model_case("transposed weights, not contiguous", lambda: _model(5, 4, 6, 3),
                lambda parts: {name: parts[name].T.contiguous().T
                               for name in ("table", "out_weight", "in_weight")}),
    _model_case("float32", lambda: _model(5, 4, 6, 3, dtype=torch.float32), tol=1e-5),
]  # fmt: skip

# A part of the answer, from the whole model.
Part = Callable[..., Tensor]


def _new_table(m: dict[str, Tensor]) -> Tensor:
    return _centred(m["table"])


def _new_out_weight(m: dict[str, Tensor]) -> Tensor:
    return _centred(m["out_weight"], 0)


def _new_out_bias(m: dict[str, Tensor]) -> Tensor:
    return _centred(m["out_bias"])


def _new_in_weight(m: dict[str, Tensor]) -> Tensor:
    return m["in_weight"] * m["gamma"]


def _new_in_bias(m: dict[str, Tensor]) -> Tensor:
    return m["in_bias"] + m["in_weight"] @ m["beta"]


@in_parts
def _converted(
    *,
    table: Part = _new_table,
    out_weight: Part = _new_out_weight,
    out_bias: Part = _new_out_bias,
    in_weight: Part = _new_in_weight,
    in_bias: Part = _new_in_bias,
) -> Answer:
    """The model converted, for a mistake to replace one of its parts."""

    def answer(*model: Tensor) -> tuple[Tensor, ...]:
        m = dict(zip(PARTS, model, strict=True))
        return tuple(part(m) for part in (table, out_weight, out_bias, in_weight, in_bias))

    # The names of the parameters, as the text has them.
    return lambda table, out_weight, out_bias, gamma, beta, in_weight, in_bias: answer(
        table, out_weight, out_bias, gamma, beta, in_weight, in_bias
    )


def _converted_by_matrices(
    table: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
) -> tuple[Tensor, ...]:
    d = len(gamma)
    centring = torch.eye(d, dtype=table.dtype) - 1 / d
    return (
        *(table @ centring, centring @ out_weight, centring @ out_bias),
        *(in_weight @ torch.diag(gamma), F.linear(beta, in_weight, in_bias)),
    )


def _converted_in_place(
    table: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
) -> tuple[Tensor, ...]:
    in_bias += in_weight @ beta
    in_weight *= gamma
    table -= _mean(table)
    out_weight -= _mean(out_weight, 0)
    out_bias -= out_bias.mean()
    return table, out_weight, out_bias, in_weight, in_bias


TO_RMS_NORM = Exercise(
    title="Convert a model with LayerNorm to RMSNorm",
    oracle=_to_rms_norm,
    cases=TO_RMS_CASES,
    variants=(_converted(), _converted_by_matrices),
    wrong=(
        WrongAnswer(
            "the table left as it is",
            "The norm reads the sum of all that was written, and the table writes first. Its rows "
            "have means too, and RMSNorm would not subtract them.",
            _converted(table=lambda m: m["table"].clone()),
        ),
        WrongAnswer(
            "the table centred over the tokens",
            "LayerNorm subtracts the mean of one token over its features. In the table that is "
            "the mean of a row.",
            _converted(table=lambda m: _centred(m["table"], 0)),
        ),
        WrongAnswer(
            "one mean for the whole table",
            "Every token has a mean of its own, so each row of the table loses its own.",
            _converted(table=lambda m: m["table"] - m["table"].mean()),
        ),
        WrongAnswer(
            "centred over the inputs",
            "LayerNorm subtracts the mean over what the Linear writes, its outputs. In torch's "
            "layout, (d_out, d_in), that is the mean of each column.",
            _converted(out_weight=lambda m: _centred(m["out_weight"])),
        ),
        WrongAnswer(
            "centred over inputs and outputs",
            "Only the mean of each column has to go. Taking the mean of each row away as well "
            "changes what the layer computes.",
            _converted(out_weight=lambda m: _centred(_centred(m["out_weight"], 0), 1)),
        ),
        WrongAnswer(
            "one mean for the whole weight",
            "Each input has its own mean over the outputs, so each column loses its own mean.",
            _converted(out_weight=lambda m: m["out_weight"] - m["out_weight"].mean()),
        ),
        WrongAnswer(
            "the writer's weight not centred",
            "Centring the bias takes a constant away. The part of the mean that depends on the "
            "input comes from the weight.",
            _converted(out_weight=lambda m: m["out_weight"].clone()),
        ),
        WrongAnswer(
            "the writer's bias not centred",
            "The bias is part of what is written, so its mean is part of the mean that LayerNorm "
            "subtracts.",
            _converted(out_bias=lambda m: m["out_bias"].clone()),
        ),
        WrongAnswer(
            "the writer's bias set to zero",
            "Only the mean of the bias goes. The differences between its entries stay.",
            _converted(out_bias=lambda m: m["out_bias"] * 0),
        ),
        WrongAnswer(
            "rows scaled in place of columns",
            "torch stores the weight as (d_out, d_in). The gain belongs to the inputs of the "
            "reader, so gamma[i] multiplies column i.",
            _converted(in_weight=lambda m: m["gamma"][:, None] * m["in_weight"]),
        ),
        WrongAnswer(
            "division by the gain",
            "The reader used to receive gamma * x_hat and now receives x_hat, so its weight has "
            "to multiply by gamma itself.",
            _converted(in_weight=lambda m: m["in_weight"] / m["gamma"]),
        ),
        WrongAnswer(
            "gain of 1 + gamma",
            "Some models, Gemma among them, store the gain minus one. Here gamma is the gain.",
            _converted(in_weight=lambda m: m["in_weight"] * (1 + m["gamma"])),
        ),
        WrongAnswer(
            "gain left out of the reader",
            "The norm has no gain any more, so the gain has to be in the reader's weight.",
            _converted(in_weight=lambda m: m["in_weight"].clone()),
        ),
        WrongAnswer(
            "offset forgotten",
            "The reader also maps the offset, to in_weight @ beta. That is added to its bias.",
            _converted(in_bias=lambda m: m["in_bias"].clone()),
        ),
        WrongAnswer(
            "offset pushed through the new weight",
            "The offset is added after the gain, so it meets the old weight. Through the new "
            "weight it would be multiplied by gamma.",
            _converted(in_bias=lambda m: m["in_bias"] + (m["in_weight"] * m["gamma"]) @ m["beta"]),
        ),
        WrongAnswer(
            "offset subtracted",
            "The reader received gamma * x_hat + beta, so in_weight @ beta is added to the bias.",
            _converted(in_bias=lambda m: m["in_bias"] - m["in_weight"] @ m["beta"]),
        ),
        WrongAnswer(
            "old bias dropped",
            "The reader still adds its own bias, beside in_weight @ beta.",
            _converted(in_bias=lambda m: m["in_weight"] @ m["beta"]),
        ),
        WrongAnswer(
            "the given model changed in place",
            "The result is right, but the tensors that were given are now other ones. Return new "
            "tensors.",
            _converted_in_place,
        ),
    ),
)


# --- eps ------------------------------------------------------------------------------------------

OTHER_EPS = number(
    "An eps for the other convention",
    value=lambda: (2e-3 + 1e-5) ** 2 - 2e-3**2,
    within=0.02,
    because="The root of the mean square 4e-6 plus {value} is 2.01e-3, which is what the rows were "
    "divided by. For rows of another size it is another number.",
    wrong=[
        WrongNumber(
            "the same eps",
            "Under the root 1e-5 is added to a mean square of 4e-6, so the rows would be divided "
            "by 3.7e-3 in place of 2.01e-3.",
            lambda: 1e-5,
        ),
        WrongNumber(
            "eps squared",
            "The square of a sum has a mixed term, and here it is by far the larger one. The "
            "square of eps alone does for a row of zeros.",
            lambda: 1e-10,
        ),
        WrongNumber(
            "the mixed term once",
            "In the square of a sum the mixed term stands twice.",
            lambda: 2e-8,
        ),
        WrongNumber(
            "the root of eps",
            "What is added beside the root is added to a size, what is added under it to a square: "
            "the number under the root is the smaller one.",
            lambda: 1e-5**0.5,
        ),
    ],
)

# --- scale ----------------------------------------------------------------------------------------

SCALE = choice(
    "Networks with LayerNorm, and large or small weights",
    right="C",
    because="The weights have to move as far as they are large to change the function as much, and "
    "the gradient that moves them is larger the smaller they are. So a step is a ninth of what it "
    "should be for the large ones, and about 200 times as much for the small ones.",
    tempting={
        "A": (
            "the same function learns the same",
            "The function is the same at the start, and so is the loss. A step of gradient "
            "descent moves the weights, though, and how much it changes the function depends on "
            "how large they are.",
        ),
        "B": (
            "large weights mean large gradients",
            "So it is without a norm. Here the loss does not change when all weights are "
            "stretched, so a change of the weights counts by its share in them.",
        ),
        "D": (
            "large weights explode, small ones vanish",
            "So they do without a norm. LayerNorm divides by the size of its input, so the rows "
            "have the same size whatever the weights are.",
        ),
        "E": (
            "the smaller the weights, the faster",
            "A smaller weight does change by a larger share in each step, and that helps as long "
            "as the steps were too short. By how much does the share grow if the weights are "
            "divided by fourteen and their gradient is multiplied by it?",
        ),
    },
)

# --- decay ----------------------------------------------------------------------------------------


def _settled_size_exponent() -> float:
    """The exponent of the weight decay in the size at which weights before a norm settle."""
    decays, rate, steps = torch.tensor([0.01, 0.03, 0.1, 0.3]), 0.3, 1500
    g = torch.Generator().manual_seed(0)
    weights = torch.randn(len(decays), 8, 8, generator=g).requires_grad_()
    sizes = []
    for _ in range(steps):
        x, target = torch.randn(2, len(decays), 16, 8, generator=g)
        error = F.layer_norm(x @ weights, (8,), eps=0.0) - target
        [grad] = torch.autograd.grad(error.square().mean((1, 2)).sum(), weights)
        with torch.no_grad():
            weights.mul_(1 - rate * decays[:, None, None]).sub_(rate * grad)
            sizes.append(weights.square().sum((1, 2)).sqrt())
    size = torch.stack(sizes[steps // 2 :]).mean(0).log()
    a, b = (v - v.mean() for v in (decays.log(), size))
    return (a @ b / (a @ a)).item()


DECAY = number(
    "Weight decay before a norm",
    value=_settled_size_exponent,
    within=0.15,
    because="The checker's own run found {value}. The steps push the weights out by the square of "
    "a gradient that is itself inversely proportional to their size, so they settle at the fourth "
    "root.",
    wrong=[
        WrongNumber(
            "the gradient taken for independent of the size",
            "That would be the square root. It is also what the squared size does: the exponent "
            "of the size is half of that.",
            lambda: -0.5,
        ),
        WrongNumber(
            "the size inversely proportional to the decay",
            "Ten times the decay does not divide the size by ten: smaller weights get larger "
            "gradients, which push back.",
            lambda: -1.0,
        ),
        WrongNumber(
            "the size left alone by the decay",
            "The function does not depend on the size, but the decay acts on the weights all the "
            "same.",
            lambda: 0.0,
        ),
        WrongNumber(
            "the sign turned round",
            "More decay makes the weights smaller, so the exponent is negative.",
            lambda: 0.25,
        ),
    ],
)

EXERCISES: dict[str, Exercise] = {
    "layer_norm": LAYER_NORM,
    "scale": SCALE,
    "batch_norm": BATCH_NORM,
    "to_rms_norm": TO_RMS_NORM,
    "eps": OTHER_EPS,
    "layer_norm_backward": LAYER_NORM_BACKWARD,
    "decay": DECAY,
    "rms_norm": RMS_NORM,
}
