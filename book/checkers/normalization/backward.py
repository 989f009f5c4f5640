"""The exercise on LayerNorm's backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Exercise, WrongAnswer, autograd
from book.checkers.normalization.common import (
    ROWS,
    Builder,
    Statistic,
    as_it_is,
    backward_case,
    divided,
    divisor_mistakes,
    less_mean,
    mean_of,
    mean_square,
    normalised,
    var_of,
)
from book.checkers.normalization.forward import layer_norm

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
    return _by_autograd(lambda x, w, b: layer_norm(x, w, b, eps), grad_out, x, weight, bias)


BACKWARD_CASES = [backward_case(rows) for rows in ROWS]


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


def _layer_grad_x(t: Terms, average: Average = mean_of) -> Tensor:
    return (t.g - average(t.g) - t.x_hat * average(t.g * t.x_hat)) / t.s


def _rms_grad_x(t: Terms, average: Average = mean_of) -> Tensor:
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
    """A formula for each gradient; `parts` are those of `normalised`."""

    def answer(grad_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
        terms = Terms(grad_out, weight, x, *normalised(x, eps, **parts))
        return tuple(formula(terms) for formula in formulas)

    return answer


def _layer_backward(
    *,
    grad_x: Formula = _layer_grad_x,
    grad_weight: Formula = _grad_weight,
    grad_bias: Formula = _grad_bias,
    centre: Statistic = less_mean,
    square: Statistic = var_of,
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
            build(grad_x=lambda t: grad_x(t) + 2 * t.x_hat * mean_of(t.g * t.x_hat) / t.s),
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
                    t, lambda v: divided(v.sum(-1, keepdim=True), v.shape[-1] - 1)
                )
            ),
        ),
        WrongAnswer(
            "averages over the batch axis",
            "The entries of one row share their statistics, so the averages run over the last "
            "dimension. Over the batch it would be BatchNorm's gradient.",
            build(grad_x=lambda t: grad_x(t, lambda v: mean_of(v, 0))),
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
        *divisor_mistakes(_layer_backward, "variance"),
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
            _layer_backward(grad_x=lambda t: less_mean(t.g) / t.s),
        ),
        WrongAnswer(
            "x - mean in place of x_hat in grad_x",
            "The centred row still has to be divided by s, in both places where x_hat stands.",
            _layer_backward(grad_x=lambda t: _layer_grad_x(replace(t, x_hat=less_mean(t.x)))),
        ),
        WrongAnswer(
            "Bessel-corrected variance",
            "The forward pass divides the sum of squares by d, not by d - 1, and the backward "
            "pass has to use the same variance.",
            _layer_backward(
                square=lambda x, dim: divided(var_of(x, dim) * x.shape[-1], x.shape[-1] - 1)
            ),
        ),
        WrongAnswer(
            "RMSNorm's x_hat",
            "LayerNorm normalises x - mean. Here x_hat and its divisor come from x itself.",
            _layer_backward(centre=as_it_is, square=mean_square),
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
