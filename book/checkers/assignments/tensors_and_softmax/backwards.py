"""Questions of the assignment: sum_to, scale_shift_backward, numeric_gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import Case, Exercise, WrongAnswer

Shape = tuple[int, ...]


# --- sum_to ---------------------------------------------------------------------------------------


def _sum_to(grad: Tensor, shape: Shape) -> Tensor:
    small = torch.zeros(shape, dtype=grad.dtype, requires_grad=True)
    return torch.autograd.grad(small.expand(grad.shape), small, grad)[0]


def _sum_over(grad: Tensor, shape: Shape) -> Tensor:
    lead = grad.dim() - len(shape)
    ones = [i for i, n in enumerate((1,) * lead + shape) if n == 1]
    return (grad.sum(ones, keepdim=True) if ones else grad + 0).reshape(shape)


def _sum_only_leading(grad: Tensor, shape: Shape) -> Tensor:
    lead = grad.dim() - len(shape)
    return grad.sum(list(range(lead))) if lead else grad.clone()


def _sum_only_ones(grad: Tensor, shape: Shape, how: str = "sum") -> Tensor:
    lead = grad.dim() - len(shape)
    for i, n in enumerate(shape):
        if n == 1:
            grad = getattr(grad, how)(lead + i, keepdim=True)
    return grad


def _aligned_left(grad: Tensor, shape: Shape) -> Tensor:
    padded = shape + (1,) * (grad.dim() - len(shape))
    for i, n in enumerate(padded):
        if n == 1:
            grad = grad.sum(i, keepdim=True)
    return grad.reshape(shape)


def _without_keepdim(grad: Tensor, shape: Shape) -> Tensor:
    full = (1,) * (grad.dim() - len(shape)) + shape
    ones = [i for i, n in enumerate(full) if n == 1]
    return grad.sum(ones) if ones else grad.clone()


def _mean_over(grad: Tensor, shape: Shape) -> Tensor:
    full = (1,) * (grad.dim() - len(shape)) + shape
    ones = [i for i, n in enumerate(full) if n == 1]
    return (grad.mean(ones, keepdim=True) if ones else grad.clone()).reshape(shape)


def _first_copy(grad: Tensor, shape: Shape) -> Tensor:
    for _ in range(grad.dim() - len(shape)):
        grad = grad[0]
    return grad[tuple(slice(0, n) for n in shape)].clone()


def _empty_list(grad: Tensor, shape: Shape) -> Tensor:
    full = (1,) * (grad.dim() - len(shape)) + shape
    return grad.sum([i for i, n in enumerate(full) if n == 1], keepdim=True).reshape(shape)


def _one_leading(grad: Tensor, shape: Shape) -> Tensor:
    return _sum_only_ones(grad.sum(0) if grad.dim() > len(shape) else grad.clone(), shape)


def _by_sizes(grad: Tensor, shape: Shape) -> Tensor:
    other = [i for i, n in enumerate(grad.shape) if n not in shape]
    return (grad.sum(other) if other else grad.clone()).reshape(shape)


def _rows_in_a_loop(grad: Tensor, shape: Shape) -> Tensor | int:
    total: Tensor | int = grad.clone()
    while isinstance(total, Tensor) and total.dim() > len(shape):
        total = sum(total)
    return _sum_only_ones(total, shape) if isinstance(total, Tensor) else total


SUM_TO = Exercise(
    title="Broadcasting backwards: sum a gradient to a shape",
    oracle=_sum_to,
    cases=[
        Case("values: one vector for all rows", lambda: (draw(4, 3), (3,)), EXACT),
        Case("values: a column for all columns", lambda: (draw(4, 3), (4, 1)), EXACT),
        Case("values: two leading dimensions", lambda: (draw(2, 4, 3), (3,)), EXACT),
        Case("values: leading and inner at once", lambda: (draw(2, 4, 3), (4, 1)), EXACT),
        Case("values: nothing was broadcast", lambda: (draw(3, 2), (3, 2)), EXACT),
        Case("corners: a scalar", lambda: (draw(3, 2), ()), EXACT),
        Case("corners: ones on both sides", lambda: (draw(1, 3, 1), (1, 1)), EXACT),
        Case("corners: a square, rows or columns", lambda: (draw(3, 3, 3), (3, 1, 3)), EXACT),
        Case("corners: not contiguous", lambda: (draw(3, 5).T, (1, 3)), EXACT),
        Case("corners: a dimension of size zero", lambda: (draw(0, 3), (3,)), EXACT),
    ],
    variants=(_sum_over,),
    wrong=(
        WrongAnswer(
            "only the leading dimensions summed",
            "A dimension of size 1 was repeated too, so its gradient is the sum of the copies.",
            _sum_only_leading,
        ),
        WrongAnswer(
            "only the dimensions of size 1 summed",
            "Shapes are aligned at the right. Dimensions that the shape lacks at the left were "
            "repeated as well, and have to be summed away.",
            _sum_only_ones,
        ),
        WrongAnswer(
            "aligned at the left",
            "Broadcasting lines shapes up at their last dimension, so missing dimensions of size "
            "1 stand at the left.",
            _aligned_left,
        ),
        WrongAnswer(
            "dimensions of size 1 lost",
            "A gradient has the shape of its tensor. Sum the inner ones with `keepdim=True`.",
            _without_keepdim,
        ),
        WrongAnswer(
            "mean in place of the sum",
            "Each copy has its own effect on the result, and the effects add up.",
            _mean_over,
        ),
        WrongAnswer(
            "one copy's gradient taken",
            "The small tensor acts through every copy, so the copies' gradients are summed.",
            _first_copy,
        ),
        WrongAnswer(
            "sum over an empty list of dimensions",
            "In torch a sum over no dimension is a sum over all of them. Where nothing was "
            "repeated, nothing may be summed.",
            _empty_list,
        ),
        WrongAnswer(
            "one leading dimension alone summed",
            "The shape may lack more than one dimension at the left, and each of them was "
            "repeated.",
            _one_leading,
        ),
        WrongAnswer(
            "dimensions told apart by their sizes",
            "Two dimensions may have the same size. Which of them was repeated follows from its "
            "place.",
            _by_sizes,
        ),
        WrongAnswer(
            "rows added up in a loop",
            "Python's sum of no rows is the whole number 0, where a tensor of zeros is asked for.",
            _rows_in_a_loop,
        ),
    ),
)


# --- scale_shift_backward -------------------------------------------------------------------------


def _scale_shift_backward(grad_out: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return gradients(lambda x, w, b: x * w + b, grad_out, x, weight, torch.zeros_like(weight))


def _scale_shift(
    to: Callable[[Tensor, Shape], Tensor] = _sum_over,
    of_x: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda g, x, w: g * w,
    of_w: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda g, x, w: g * x,
    of_b: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda g, x, w: g,
) -> Callable[..., tuple[Tensor, ...]]:
    return lambda g, x, w: (
        of_x(g, x, w), to(of_w(g, x, w), tuple(w.shape)), to(of_b(g, x, w), tuple(w.shape)),
    )  # fmt: skip


def _by_einsum_free(grad_out: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    shape = tuple(weight.shape)
    return weight * grad_out, _sum_over(x * grad_out, shape), _sum_over(grad_out, shape)


SCALE_SHIFT_BACKWARD = Exercise(
    title="A gain and an offset, backwards",
    oracle=_scale_shift_backward,
    cases=[
        Case(
            "values: a gain per feature", lambda: (draw(4, 3, seed=1), draw(4, 3), draw(3, seed=2))
        ),
        Case(
            "values: two batch dimensions",
            lambda: (draw(2, 4, 3, seed=1), draw(2, 4, 3), draw(3, seed=2)),
        ),
        Case(
            "values: a gain per position and feature",
            lambda: (draw(2, 4, 3, seed=1), draw(2, 4, 3), draw(4, 3, seed=2)),
        ),
        Case(
            "corners: a gain per position",
            lambda: (draw(3, 3, seed=1), draw(3, 3), draw(3, 1, seed=2)),
        ),
        Case("corners: a batch of one", lambda: (draw(1, 3, seed=1), draw(1, 3), draw(3, seed=2))),
        Case("corners: a single gain", lambda: (draw(2, 3, seed=1), draw(2, 3), draw(seed=2))),
        Case(
            "corners: a gain of zeros",
            lambda: (draw(2, 3, seed=1), draw(2, 3), torch.zeros(3, dtype=torch.float64)),
        ),
    ],
    variants=(_scale_shift(), _by_einsum_free),
    wrong=(
        WrongAnswer(
            "gradients of the parameters not summed",
            "weight and bias act on every row, so their gradients are sums to their own shape.",
            _scale_shift(to=lambda t, shape: t),
        ),
        WrongAnswer(
            "gradients of the parameters averaged",
            "The gradient of a sum over rows is a sum. Whoever wants a mean puts it into the loss.",
            _scale_shift(to=_mean_over),
        ),
        WrongAnswer(
            "gain left out of the gradient of x",
            "y = x * weight + bias changes weight times as fast as x does.",
            _scale_shift(of_x=lambda g, x, w: g.clone()),
        ),
        WrongAnswer(
            "x left out of the gradient of weight",
            "The derivative of x * weight in weight is x, which multiplies what arrives.",
            _scale_shift(of_w=lambda g, x, w: g),
        ),
        WrongAnswer(
            "bias multiplied by the gain",
            "The offset is added after the gain, so it gets what arrives and nothing more.",
            _scale_shift(of_b=lambda g, x, w: g * w),
        ),
        WrongAnswer(
            "gradient of the product y * x",
            "For the gain what arrives is multiplied by x, not by the output x * weight.",
            _scale_shift(of_w=lambda g, x, w: g * x * w),
        ),
        WrongAnswer(
            "x and the gain exchanged",
            "A factor's gradient holds the other factor: that of x the gain, that of the gain x.",
            _scale_shift(of_x=lambda g, x, w: g * x, of_w=lambda g, x, w: g * w),
        ),
        WrongAnswer(
            "summed over dimension 0 alone",
            "Every dimension along which the parameters were repeated is summed, and no other. "
            "Which those are depends on the shape of the parameters.",
            _scale_shift(to=lambda t, shape: t.sum(0)),
        ),
        WrongAnswer(
            "product of the sums",
            "For the gain what arrives is multiplied by x entry by entry, and summed after that. "
            "The sum of products is no product of sums.",
            lambda g, x, w: (
                g * w,
                _sum_over(g, tuple(w.shape)) * _sum_over(x, tuple(w.shape)),
                _sum_over(g, tuple(w.shape)),
            ),
        ),
        WrongAnswer(
            "gradients of weight and bias exchanged",
            "The three gradients come in the order x, weight, bias.",
            lambda g, x, w: tuple(_scale_shift()(g, x, w)[i] for i in (0, 2, 1)),
        ),
    ),
)


# --- numeric_gradient -----------------------------------------------------------------------------

Scalar = Callable[[Tensor], Tensor]


def _numeric_gradient(f: Scalar, x: Tensor, h: float) -> Tensor:
    grad = torch.empty_like(x)
    for i in range(x.numel()):
        step = torch.zeros(x.numel(), dtype=x.dtype)
        step[i] = h
        step = step.reshape(x.shape)
        grad.view(-1)[i] = (f(x + step) - f(x - step)) / (2 * h)
    return grad


def _numeric_by_rows(f: Scalar, x: Tensor, h: float) -> Tensor:
    steps = h * torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    return torch.stack([(f(x + s) - f(x - s)) / (2 * h) for s in steps]).reshape(x.shape)


def _numeric(
    quotient: Callable[[Scalar, Tensor, Tensor, float], Tensor],
) -> Callable[[Scalar, Tensor, float], Tensor]:
    def answer(f: Scalar, x: Tensor, h: float) -> Tensor:
        steps = h * torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
        return torch.stack([quotient(f, x, s, h) for s in steps]).reshape(x.shape)

    return answer


def _in_place_and_back(f: Scalar, x: Tensor, h: float) -> Tensor:
    grad = torch.zeros_like(x)
    for i in range(x.numel()):
        x.view(-1)[i] += h
        grad.view(-1)[i] = f(x) / (2 * h)
        x.view(-1)[i] -= 2 * h
        grad.view(-1)[i] -= f(x) / (2 * h)
    return grad


def _cubes(x: Tensor) -> Tensor:
    return (x**3).sum() + x.sum() ** 2


def _rough(x: Tensor) -> Tensor:
    return (x.sin() * torch.arange(1, x.numel() + 1).reshape(x.shape)).sum()


def _row_by_row(f: Scalar, x: Tensor, h: float) -> Tensor:
    grad = torch.zeros_like(x)
    for i in range(len(x)):
        step = torch.zeros_like(x)
        step[i] = h
        grad[i] = (f(x + step) - f(x - step)) / (2 * h)
    return grad


NUMERIC_GRADIENT = Exercise(
    title="A gradient without autograd",
    oracle=_numeric_gradient,
    cases=[
        Case("values: cubes of a vector", lambda: (_cubes, draw(4), 1e-2), 1e-9),
        Case("values: cubes of a matrix", lambda: (_cubes, draw(2, 3), 1e-2), 1e-9),
        Case("values: a sine with weights", lambda: (_rough, draw(5), 1e-1), 1e-9),
        Case("corners: a large step", lambda: (_cubes, draw(3), 0.5), 1e-9),
        Case("corners: a single entry", lambda: (_cubes, draw(1), 1e-2), 1e-9),
        Case(
            "corners: a kink at zero",
            lambda: (lambda x: x.abs().sum(), torch.zeros(3).double(), 1e-2),
            1e-9,
        ),
        Case("corners: a scalar of no dimension", lambda: (lambda x: x**3, draw(), 1e-2), 1e-9),
    ],
    variants=(_numeric_by_rows,),
    wrong=(
        WrongAnswer(
            "forward difference",
            "(f(x + h) - f(x)) / h is off by a term of size h. The difference of both sides is "
            "off by a term of size h squared.",
            _numeric(lambda f, x, s, h: (f(x + s) - f(x)) / h),
        ),
        WrongAnswer(
            "divided by h",
            "From x - h to x + h the distance is 2 h.",
            _numeric(lambda f, x, s, h: (f(x + s) - f(x - s)) / h),
        ),
        WrongAnswer(
            "second difference",
            "f(x + h) - 2 f(x) + f(x - h) over h squared is the second derivative.",
            _numeric(lambda f, x, s, h: (f(x + s) - 2 * f(x) + f(x - s)) / h**2),
        ),
        WrongAnswer(
            "all entries moved at once",
            "A partial derivative moves one entry and holds the others. Moving all of them adds "
            "all partial derivatives up.",
            lambda f, x, h: (f(x + h) - f(x - h)) / (2 * h) * torch.ones_like(x),
        ),
        WrongAnswer(
            "step never taken back",
            "Each entry has to be back in its place before the next one moves. Use a new tensor "
            "for each step.",
            lambda f, x, h: _in_place_and_back(f, x.clone(), h),
        ),
        WrongAnswer(
            "sides exchanged",
            "The derivative is positive where f grows: f(x + h) comes first.",
            _numeric(lambda f, x, s, h: (f(x - s) - f(x + s)) / (2 * h)),
        ),
        WrongAnswer(
            "backward difference",
            "(f(x) - f(x - h)) / h looks to one side alone and is off by a term of size h.",
            _numeric(lambda f, x, s, h: (f(x) - f(x - s)) / h),
        ),
        WrongAnswer(
            "divided by 2 and multiplied by h",
            "Python reads a / 2 * h from the left, so that h multiplies. Put brackets around the "
            "distance.",
            _numeric(lambda f, x, s, h: (f(x + s) - f(x - s)) / 2 * h),
        ),
        WrongAnswer(
            "gradient left flat",
            "A gradient has the shape of its tensor, and so has this one: also for a matrix, or "
            "for a number of no dimension.",
            lambda f, x, h: _numeric_by_rows(f, x, h).reshape(-1),
        ),
        WrongAnswer(
            "whole rows moved",
            "x[i] is an entry of a vector, but a row of a matrix, and a number of no dimension "
            "has none. Each single entry has a derivative of its own.",
            _row_by_row,
        ),
    ),
)


EXERCISES = {
    "sum_to": SUM_TO,
    "scale_shift_backward": SCALE_SHIFT_BACKWARD,
    "numeric_gradient": NUMERIC_GRADIENT,
}
