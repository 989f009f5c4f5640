"""What the exercises on norms share: inputs, the parts of a norm, and common mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, WrongAnswer

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


def draw_normal(
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
    return torch.empty_like(x).copy_(draw_normal(*x.shape, seed=seed))


def with_row(x: Tensor, row: int, value: float) -> Tensor:
    """`x` with one row set to a constant."""
    x[row] = value
    return x


def large_mean() -> Tensor:
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


def half_rows(name: str, dtype: torch.dtype, scale: float = 1.0, eps: float = EPS) -> Rows:
    """Rows in half precision. An answer may round twice, before the gain and after it."""
    tol = 2.5 * torch.finfo(dtype).eps
    return Rows(name, lambda: draw_normal(3, 8, scale=scale, dtype=dtype), eps, tol, grad=False)


# LayerNorm, RMSNorm and the backward pass are tried on all of these.
ROWS = (
    Rows("two sequences of three rows", lambda: draw_normal(2, 3, 6, offset=0.5)),
    Rows("a square matrix", lambda: draw_normal(5, 5, offset=0.5)),
    Rows("leading dimensions 2, 1 and 3", lambda: draw_normal(2, 1, 3, 5, scale=2.0)),
    Rows("a single vector", lambda: draw_normal(7, offset=-1.0)),
    Rows("a batch of one row", lambda: draw_normal(1, 6)),
    Rows("rows of a single entry", lambda: draw_normal(3, 1)),
    Rows("rows of size 1e-4", lambda: draw_normal(3, 8, scale=1e-4)),
    Rows("rows of size 1e-6, with eps 1e-12", lambda: draw_normal(3, 8, scale=1e-6), eps=1e-12),
    Rows("rows of size 1e4", lambda: draw_normal(3, 8, scale=1e4)),
    Rows("a constant row among others", lambda: with_row(draw_normal(3, 6), 1, 3.0)),
    Rows("a row of zeros among others", lambda: with_row(draw_normal(3, 6), 0, 0.0)),
    Rows("a transposed matrix, not contiguous", lambda: draw_normal(6, 4, offset=0.5).T),
    Rows("a flipped matrix, every second column", lambda: draw_normal(3, 10).flip(0)[:, ::2]),
    Rows("float32 rows of mean 8192 and spread 1", large_mean, tol=LARGE_MEAN),
)


def forward_case(rows: Rows, vectors: int) -> Case:
    """`x`, then as many vectors (gain, bias) as the norm has, then `eps`."""

    def inputs() -> tuple[Any, ...]:
        x = rows.make()
        parameters = [
            draw_normal(x.shape[-1], offset=0.5, seed=1 + i, dtype=x.dtype) for i in range(vectors)
        ]
        return (*(t.requires_grad_(rows.grad) for t in (x, *parameters)), rows.eps)

    return Case(rows.name, inputs, rows.tol, rows.grad)


def backward_case(rows: Rows) -> Case:
    """The gradient that arrives, `x`, the gain, and `eps`."""

    def inputs() -> tuple[Any, ...]:
        x = rows.make()
        weight = draw_normal(x.shape[-1], offset=0.5, seed=1, dtype=x.dtype)
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


def mean_of(x: Tensor, dim: Dims = -1) -> Tensor:
    """The mean over `dim`, which stays."""
    return x.mean(dim, keepdim=True)


def less_mean(x: Tensor, dim: Dims = -1) -> Tensor:
    """`x` less its mean."""
    return x - mean_of(x, dim)


def as_it_is(x: Tensor, dim: Dims = -1) -> Tensor:
    """`x`, from which no mean is taken."""
    return x


def mean_square(x: Tensor, dim: Dims = -1) -> Tensor:
    """The mean of the squares."""
    return mean_of(x.square(), dim)


def var_of(x: Tensor, dim: Dims = -1) -> Tensor:
    """The variance, of all entries."""
    return mean_square(less_mean(x, dim), dim)


def var_by_difference(x: Tensor, dim: Dims = -1) -> Tensor:
    """The variance as E[x^2] - E[x]^2, which loses digits at a large mean."""
    return mean_square(x, dim) - mean_of(x, dim).square()


def _last(x: Tensor) -> Dims:
    return -1


def _all_but_first(x: Tensor) -> Dims:
    return tuple(range(1, x.dim())) or 0


def every_dim(x: Tensor) -> Dims:
    """All dimensions of `x`."""
    return tuple(range(x.dim()))


def root(square: Tensor, eps: float) -> Tensor:
    """What a row is divided by."""
    return (square + eps).sqrt()


def with_gain(x_hat: Tensor, weight: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """Gain and bias."""
    return x_hat * weight + bias


def divided(a: Tensor, n: int) -> Tensor:
    """`a / n`, but infinite or nan for `n = 0`, as torch has it."""
    return a / torch.tensor(n)


def in_float32(x: Tensor) -> Tensor:
    """`x` in float32 if it is shorter than that, otherwise as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def divisor_mistakes(build: Builder, square: str) -> tuple[WrongAnswer, ...]:
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


def statistic_mistakes(build: Builder, square: Statistic, name: str) -> tuple[WrongAnswer, ...]:
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
            build(square=lambda x, dim: divided(square(x, dim) * x.shape[-1], x.shape[-1] - 1)),
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
            build(axes=every_dim),
        ),
    )


def gain_mistakes(build: Builder) -> tuple[WrongAnswer, ...]:
    """What goes wrong with a gain."""
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


def bias_mistakes(build: Builder) -> tuple[WrongAnswer, ...]:
    """What goes wrong with a bias."""
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


def normalised(
    x: Tensor,
    eps: float,
    *,
    centre: Statistic,
    square: Statistic,
    axes: Axes = _last,
    divisor: Divisor = root,
) -> tuple[Tensor, Tensor]:
    """`x_hat = centre(x) / s` and `s = divisor(square(x), eps)`."""
    s = divisor(square(x, axes(x)), eps)
    return centre(x, axes(x)) / s, s
