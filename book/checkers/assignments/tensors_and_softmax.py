"""Assignment 1, chapters 1 and 3: broadcasting backwards, stable losses, masks and checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Shape = tuple[int, ...]
Pair = tuple[Tensor, Tensor]

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
    ),
)

# --- masked_mean ----------------------------------------------------------------------------------


def _masked_mean(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    m = mask.expand(x.shape)
    total = torch.where(m, x, torch.zeros((), dtype=x.dtype)).sum(dim)
    count = m.sum(dim)
    return total / torch.where(count == 0, 1, count)


def _mean_by_weights(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    kept = x.masked_fill(~mask, 0.0)
    return kept.sum(dim) / mask.broadcast_to(x.shape).sum(dim).clamp(min=1)


def _mask(*shape: int, seed: int = 5) -> Tensor:
    return draw(*shape, seed=seed) > -0.3


def _with_junk(x: Tensor, mask: Tensor, junk: float) -> Tensor:
    return x.masked_fill(~mask, junk)


def _empty_row(x: Tensor) -> tuple[Tensor, Tensor, int]:
    mask = _mask(*x.shape)
    mask[1] = False
    return x, mask, -1


def _leaf_case(name: str, make: Callable[[], tuple[Tensor, Tensor, int]]) -> Case:
    def inputs() -> tuple[Tensor, Tensor, int]:
        x, mask, dim = make()
        return x.requires_grad_(), mask, dim

    return Case(name, inputs, EXACT, grad=True)


MASKED_MEAN = Exercise(
    title="The mean of what is not padding",
    oracle=_masked_mean,
    cases=[
        _leaf_case("values: the last dimension", lambda: (draw(4, 6), _mask(4, 6), -1)),
        _leaf_case("values: the middle dimension", lambda: (draw(2, 5, 3), _mask(2, 5, 3), 1)),
        _leaf_case("values: a mask that broadcasts", lambda: (draw(2, 5, 3), _mask(2, 5, 1), 1)),
        _leaf_case("values: everything kept", lambda: (draw(3, 3), _mask(3, 3) | True, 0)),
        _leaf_case("corners: a row without any entry", lambda: _empty_row(draw(3, 4))),
        Case(
            "corners: infinities in the padding",
            lambda: (_with_junk(draw(3, 4), _mask(3, 4), math.inf), _mask(3, 4), -1),
            EXACT,
        ),
        Case(
            "corners: nan in the padding",
            lambda: (_with_junk(draw(3, 4), _mask(3, 4), math.nan), _mask(3, 4), -1),
            EXACT,
        ),
        _leaf_case("corners: a mask for the rows only", lambda: (draw(4, 4), _mask(4, 1), 0)),
        _leaf_case("corners: whole rows kept or not", lambda: (draw(4, 5), _mask(4, 1), -1)),
    ],
    variants=(_mean_by_weights,),
    wrong=(
        WrongAnswer(
            "divided by the whole length",
            "The padding counts for nothing: divide by how many entries the mask keeps.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).mean(dim),
        ),
        WrongAnswer(
            "mask multiplied in",
            "0 times inf is nan, so that junk in the padding reaches the result. Replace the "
            "entries instead, with `where` or `masked_fill`.",
            lambda x, m, dim: (x * m).sum(dim) / m.expand(x.shape).sum(dim).clamp(min=1),
        ),
        WrongAnswer(
            "0 / 0 for a row without entries",
            "Nothing to average gives 0 / 0. The task asks for 0 there, with a gradient of 0.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / m.expand(x.shape).sum(dim),
        ),
        WrongAnswer(
            "entries counted before broadcasting",
            "A mask of size 1 along a dimension stands for all of its entries. Expand it to the "
            "shape of x before counting.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / m.sum(dim).clamp(min=1),
        ),
        WrongAnswer(
            "multiplied by the mask and divided by its sum",
            "That is right for ordinary numbers only: 0 times inf is nan, a mask of size 1 along a "
            "dimension counts once for all of its entries, and a row without entries gives 0 / 0.",
            lambda x, m, dim: (x * m).sum(dim) / m.sum(dim),
        ),
        WrongAnswer(
            "divided by the mask's sum as it is",
            "A mask of size 1 along a dimension counts once for all of its entries, and a row "
            "without entries gives 0 / 0.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / m.sum(dim),
        ),
        WrongAnswer(
            "divided by the sum of the whole mask",
            "Each row has a count of its own. Sum the mask along the same dimension as x.",
            lambda x, m, dim: (x * m).sum(dim) / m.sum(),
        ),
        WrongAnswer(
            "mask turned over",
            "True keeps an entry in this book's masks. This averages the padding.",
            lambda x, m, dim: _masked_mean(x, ~m, dim),
        ),
        WrongAnswer(
            "one more in the denominator",
            "A safe denominator is at least 1. Adding 1 to it changes every row.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / (m.expand(x.shape).sum(dim) + 1),
        ),
    ),
)

# --- binary_cross_entropy -------------------------------------------------------------------------


def _bce(logits: Tensor, target: Tensor) -> Pair:
    x = logits.detach().clone().requires_grad_()
    loss = F.binary_cross_entropy_with_logits(x, target)
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def _bce_by_softplus(logits: Tensor, target: Tensor) -> Pair:
    loss = F.softplus(logits) - target * logits
    return loss.mean(), (torch.sigmoid(logits) - target) / logits.numel()


def _bce_by_sides(logits: Tensor, target: Tensor) -> Pair:
    loss = target * F.softplus(-logits) + (1 - target) * F.softplus(logits)
    return loss.mean(), (torch.sigmoid(logits) - target) / logits.numel()


def _bce_logs(logits: Tensor, target: Tensor) -> Pair:
    p = torch.sigmoid(logits)
    loss = -(target * p.log() + (1 - target) * (1 - p).log())
    return loss.mean(), (p - target) / logits.numel()


def _bce_eps(logits: Tensor, target: Tensor) -> Pair:
    p = torch.sigmoid(logits)
    loss = -(target * (p + 1e-8).log() + (1 - target) * (1 - p + 1e-8).log())
    return loss.mean(), (p - target) / logits.numel()


def _bce_naive_exp(logits: Tensor, target: Tensor) -> Pair:
    loss = torch.log(1 + torch.exp(logits)) - target * logits
    return loss.mean(), (torch.sigmoid(logits) - target) / logits.numel()


def _loss_case(
    name: str, logits: Callable[[], Tensor], hard: bool = False, tol: float = EXACT
) -> Case:
    def inputs() -> Pair:
        x = logits()
        target = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
        return x, target.round() if hard else target

    return Case(name, inputs, tol)


def _bce_with(
    loss: Callable[[Tensor, Tensor], Tensor] = lambda x, t: _bce_by_softplus(x, t)[0],
    grad: Callable[[Tensor, Tensor], Tensor] = lambda x, t: _bce_by_softplus(x, t)[1],
) -> Callable[[Tensor, Tensor], Pair]:
    return lambda x, t: (loss(x, t), grad(x, t))


BINARY_CROSS_ENTROPY = Exercise(
    title="Binary cross-entropy from logits, with its gradient",
    oracle=_bce,
    cases=[
        _loss_case("values: hard labels", lambda: draw(8), hard=True),
        _loss_case("values: soft labels", lambda: draw(6, offset=0.5)),
        _loss_case("values: a matrix", lambda: draw(3, 4)),
        _loss_case("values: one logit", lambda: draw(1)),
        _loss_case("corners: logits of size 1000", lambda: draw(6, scale=1000.0), hard=True),
        _loss_case("corners: far left", lambda: draw(4, offset=-800.0), hard=True),
        _loss_case("corners: far right", lambda: draw(4, offset=800.0), hard=True),
        _loss_case("corners: float32", lambda: draw(8, dtype=torch.float32, scale=20.0), tol=1e-6),
    ],
    variants=(_bce_by_softplus, _bce_by_sides),
    wrong=(
        WrongAnswer(
            "logarithm of a rounded sigmoid",
            "sigmoid rounds to 0 or 1 far from the origin, and its logarithm is -inf. Take the "
            "logarithm of the sigmoid in one step, as a softplus.",
            _bce_logs,
        ),
        WrongAnswer(
            "a small number inside the logarithm",
            "1e-8 hides the infinity and puts a wrong value there: no loss can exceed 18.4 then.",
            _bce_eps,
        ),
        WrongAnswer(
            "exponential that overflows",
            "exp(x) is infinite beyond 709 in float64. log(1 + exp(x)) has to be taken as "
            "max(x, 0) + log1p(exp(-|x|)).",
            _bce_naive_exp,
        ),
        WrongAnswer(
            "gradient of the sum",
            "The loss is a mean, so each entry of the gradient is divided by their number.",
            _bce_with(grad=lambda x, t: torch.sigmoid(x) - t),
        ),
        WrongAnswer(
            "gradient of the wrong sign",
            "The loss falls where the logit moves towards its label: sigmoid(x) - target.",
            _bce_with(grad=lambda x, t: (t - torch.sigmoid(x)) / x.numel()),
        ),
        WrongAnswer(
            "derivative of the sigmoid left in",
            "It cancels: the loss's derivative in p is (p - t) / (p (1 - p)), and the sigmoid's "
            "derivative is p (1 - p).",
            _bce_with(
                grad=lambda x, t: (
                    (torch.sigmoid(x) - t) * torch.sigmoid(x) * torch.sigmoid(-x) / x.numel()
                )
            ),
        ),
        WrongAnswer(
            "sum in place of the mean",
            "The task asks for the mean over all entries, in the loss and in the gradient.",
            lambda x, t: (_bce_by_softplus(x, t)[0] * x.numel(), torch.sigmoid(x) - t),
        ),
        WrongAnswer(
            "only the positive labels counted",
            "An entry with label 0 has a loss as well: the softplus of its logit.",
            _bce_with(loss=lambda x, t: (t * F.softplus(-x)).mean()),
        ),
    ),
)

# --- log_softmax ----------------------------------------------------------------------------------


def _log_softmax(x: Tensor, dim: int) -> Tensor:
    return F.log_softmax(x, dim)


def _log_softmax_shifted(x: Tensor, dim: int) -> Tensor:
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def _log_softmax_lse(x: Tensor, dim: int) -> Tensor:
    return x - torch.logsumexp(x, dim, keepdim=True)


LOG_SOFTMAX = Exercise(
    title="Repair a log_softmax",
    oracle=_log_softmax,
    cases=[
        Case("values: rows", lambda: (draw(3, 5).requires_grad_(), -1), EXACT, grad=True),
        Case("values: columns", lambda: (draw(3, 5).requires_grad_(), 0), EXACT, grad=True),
        Case(
            "values: a square, columns", lambda: (draw(4, 4).requires_grad_(), 0), EXACT, grad=True
        ),
        Case(
            "values: the middle of three",
            lambda: (draw(2, 3, 4).requires_grad_(), 1),
            EXACT,
            grad=True,
        ),
        Case("corners: entries of 1000", lambda: (draw(3, 4, offset=1000.0), -1), EXACT),
        Case("corners: entries of -1000", lambda: (draw(3, 4, offset=-1000.0), -1), EXACT),
        Case("corners: differences of 2000", lambda: (draw(3, 4, scale=1000.0), -1), EXACT),
        Case(
            "corners: rows of different size",
            lambda: (draw(3, 4) + torch.tensor([[0.0], [900.0], [-900.0]]).double(), -1),
            EXACT,
        ),
        Case("corners: a single entry", lambda: (draw(3, 1), -1), EXACT),
    ],
    variants=(_log_softmax_shifted, _log_softmax_lse),
    wrong=(
        WrongAnswer(
            "logarithm of a softmax",
            "A probability below 1e-308 is rounded to 0, and its logarithm is -inf. Subtract "
            "log(sum(exp)) from the shifted entries.",
            lambda x, dim: x.softmax(dim).log(),
        ),
        WrongAnswer(
            "no maximum subtracted",
            "exp overflows beyond 709 in float64. Subtract the maximum of the row first.",
            lambda x, dim: x - x.exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "maximum of the whole tensor",
            "A row that lies 800 below the tensor's maximum underflows. Each row needs its own.",
            lambda x, dim: (x - x.amax()) - (x - x.amax()).exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "dim ignored",
            "The sum runs over the dimension that is asked for, which is not always the last.",
            lambda x, dim: F.log_softmax(x, -1),
        ),
        WrongAnswer(
            "maximum subtracted once only",
            "The maximum that was taken out of the exponentials has to be taken off x as well.",
            lambda x, dim: x - (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the row sums line up with the columns, or fit nothing.",
            lambda x, dim: x - torch.logsumexp(x, dim),
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
    ),
)

# --- seeded_dropout -------------------------------------------------------------------------------


def _numbers(x: Tensor, seed: int) -> Tensor:
    return torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(seed))


def _seeded_dropout(x: Tensor, p: float, seed: int) -> Tensor:
    if p == 1:
        return x * 0
    return torch.where(_numbers(x, seed) < p, torch.zeros((), dtype=x.dtype), x / (1 - p))


def _dropout_by_mask(x: Tensor, p: float, seed: int) -> Tensor:
    keep = (_numbers(x, seed) >= p).to(x.dtype)
    return x * keep / (1 - p if p < 1 else 1)


def _dropout_case(
    name: str, x: Callable[[], Tensor], p: float, seed: int, tol: float = EXACT
) -> Case:
    return Case(name, lambda: (x().requires_grad_(), p, seed), tol, grad=True)


def _global_seed(x: Tensor, p: float, seed: int) -> Tensor:
    numbers = torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    return x * (numbers >= p) / (1 - p if p < 1 else 1)


SEEDED_DROPOUT = Exercise(
    title="Dropout that can be repeated",
    oracle=_seeded_dropout,
    cases=[
        _dropout_case("values: a tenth dropped", lambda: draw(5, 8), 0.1, 3),
        _dropout_case("values: seven tenths dropped", lambda: draw(5, 8), 0.7, 4),
        _dropout_case("values: another seed", lambda: draw(5, 8), 0.7, 5),
        _dropout_case("values: three dimensions", lambda: draw(2, 3, 7), 0.2, 1),
        _dropout_case("corners: nothing dropped", lambda: draw(3, 4), 0.0, 1),
        _dropout_case("corners: everything dropped", lambda: draw(3, 4), 1.0, 1),
        _dropout_case("corners: float32", lambda: draw(4, 8, dtype=torch.float32), 0.3, 2, 1e-6),
    ],
    variants=(_dropout_by_mask,),
    wrong=(
        WrongAnswer(
            "not rescaled",
            "What is kept is divided by 1 - p, so that the expected value stays what it was.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p),
        ),
        WrongAnswer(
            "divided by p",
            "A share of 1 - p is kept, so what is kept is divided by 1 - p.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p) / (p if p > 0 else 1),
        ),
        WrongAnswer(
            "multiplied by 1 - p",
            "Multiplying by 1 - p makes the expected value smaller still. Divide by it.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p) * (1 - p),
        ),
        WrongAnswer(
            "p as the share that is kept",
            "p is the probability of being dropped: keep where the draw is at least p.",
            lambda x, p, seed: x * (_numbers(x, seed) < p) / (1 - p if p < 1 else 1),
        ),
        WrongAnswer(
            "seed ignored",
            "Another seed has to give another mask: seed the generator with the argument.",
            _global_seed,
        ),
        WrongAnswer(
            "one mask for all rows",
            "Each entry is dropped by itself: draw numbers of the shape of x, not of one row.",
            lambda x, p, seed: (
                x * (_numbers(x.flatten(0, -2)[0], seed) >= p) / (1 - p if p < 1 else 1)
            ),
        ),
    ),
)

# --- running_logsumexp ----------------------------------------------------------------------------


def _running_logsumexp(blocks: Sequence[Tensor]) -> Tensor:
    return torch.logsumexp(torch.cat(list(blocks), -1), -1)


def _one_pass(blocks: Sequence[Tensor]) -> Tensor:
    total = torch.full(blocks[0].shape[:-1], -math.inf, dtype=blocks[0].dtype)
    for block in blocks:
        if block.shape[-1]:
            total = torch.logaddexp(total, torch.logsumexp(block, -1))
    return total


@in_parts
def _running(
    rescale: bool = True, start: float = -math.inf, guard: bool = True
) -> Callable[[Sequence[Tensor]], Tensor]:
    def answer(blocks: Sequence[Tensor]) -> Tensor:
        m = torch.full(blocks[0].shape[:-1], start, dtype=blocks[0].dtype)
        s = torch.zeros_like(m)
        for block in blocks:
            if not block.shape[-1]:
                continue
            new = torch.maximum(m, block.amax(-1))
            safe = torch.where(new.isinf(), 0.0, new) if guard else new
            old = s * (m - safe).exp() if rescale else s
            s = old + (block - safe[..., None]).exp().sum(-1)
            m = new
        return s.log() + (torch.where(m.isinf(), 0.0, m) if guard else m)

    return answer


def _blocks(*sizes: int, offsets: Sequence[float] = (), lead: int = 3) -> tuple[list[Tensor]]:
    offsets = offsets or [0.0] * len(sizes)
    return (
        [
            draw(lead, n, offset=o, seed=i)
            for i, (n, o) in enumerate(zip(sizes, offsets, strict=True))
        ],
    )


RUNNING_LOGSUMEXP = Exercise(
    title="logsumexp in one pass over blocks",
    oracle=_running_logsumexp,
    cases=[
        Case("values: two blocks", lambda: _blocks(4, 4), EXACT),
        Case("values: blocks of different length", lambda: _blocks(5, 1, 3), EXACT),
        Case("values: a single block", lambda: _blocks(6), EXACT),
        Case("values: one row", lambda: _blocks(3, 3, 3, lead=1), EXACT),
        Case(
            "values: a maximum that grows",
            lambda: _blocks(3, 3, 3, offsets=(0.0, 5.0, 10.0)),
            EXACT,
        ),
        Case(
            "corners: around 2000, then 1000",
            lambda: _blocks(3, 3, offsets=(2000.0, 1000.0)),
            EXACT,
        ),
        Case("corners: around -2000", lambda: _blocks(3, 3, offsets=(-2000.0, -2001.0)), EXACT),
        Case(
            "corners: a first block of -inf",
            lambda: ([torch.full((3, 2), -math.inf).double(), draw(3, 4)],),
            EXACT,
        ),
        Case(
            "corners: nothing but -inf",
            lambda: ([torch.full((2, 2), -math.inf).double()] * 2,),
            EXACT,
        ),
        Case("corners: an empty block", lambda: ([draw(3, 4), draw(3, 0)],), EXACT),
    ],
    variants=(_one_pass, _running()),
    wrong=(
        WrongAnswer(
            "old sum not rescaled",
            "When the maximum grows from m to m', the sum so far is multiplied by exp(m - m').",
            _running(rescale=False),
        ),
        WrongAnswer(
            "maximum that starts at zero",
            "For rows far below zero every exponential underflows. The maximum starts at -inf.",
            _running(start=0.0),
        ),
        WrongAnswer(
            "-inf minus -inf",
            "A block of -inf leaves the maximum at -inf, and -inf - (-inf) is nan. Subtract a "
            "finite number there.",
            _running(guard=False),
        ),
        WrongAnswer(
            "no maximum at all",
            "exp overflows beyond 709 and underflows below -745 in float64. Keep a maximum.",
            lambda blocks: torch.stack([b.exp().sum(-1) for b in blocks]).sum(0).log(),
        ),
        WrongAnswer(
            "results of the blocks added",
            "logsumexp is the logarithm of a sum. Two of them are merged by exponentials.",
            lambda blocks: torch.stack([torch.logsumexp(b, -1) for b in blocks]).sum(0),
        ),
        WrongAnswer(
            "largest block taken",
            "The largest of the blocks' results is a lower bound only; the others add to it.",
            lambda blocks: torch.stack([torch.logsumexp(b, -1) for b in blocks]).amax(0),
        ),
    ),
)

# --- temperature_backward -------------------------------------------------------------------------


def _temperature_backward(grad_out: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    return gradients(lambda x, t: (x / t).softmax(-1), grad_out, x, t)


@in_parts
def _tempered(
    scale: Callable[[Tensor, Tensor], Tensor] = lambda g, t: g / t,
    of_t: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda g, x, t: -(g * x).sum() / t**2,
    centre: bool = True,
    product: bool = False,
) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    def answer(grad_out: Tensor, x: Tensor, t: Tensor) -> Pair:
        p = (x * t if product else x / t).softmax(-1)
        g = p * (grad_out - (grad_out * p).sum(-1, keepdim=True)) if centre else p * grad_out
        return scale(g, t), of_t(g, x, t)

    return answer


def _tempered_by_matrix(grad_out: Tensor, x: Tensor, t: Tensor) -> Pair:
    p = (x / t).softmax(-1)
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    grad_x = (jacobian @ grad_out[..., None])[..., 0] / t
    return grad_x, -(grad_x * x).sum() / t


def _temperature(name: str, x: Callable[[], Tensor], t: float) -> Case:
    def inputs() -> tuple[Tensor, Tensor, Tensor]:
        y = x()
        return draw(*y.shape, seed=3), y, torch.tensor(t, dtype=torch.float64)

    return Case(name, inputs, EXACT)


TEMPERATURE_BACKWARD = Exercise(
    title="Softmax with a temperature, backwards",
    oracle=_temperature_backward,
    cases=[
        _temperature("values: warm", lambda: draw(3, 5), 2.0),
        _temperature("values: cold", lambda: draw(3, 5), 0.5),
        _temperature("values: one row", lambda: draw(5), 1.5),
        _temperature("values: three dimensions", lambda: draw(2, 3, 4), 0.8),
        _temperature("corners: temperature 1", lambda: draw(4, 4), 1.0),
        _temperature("corners: entries around 1000", lambda: draw(3, 4, offset=1000.0), 1.3),
        _temperature("corners: a single class", lambda: draw(3, 1), 2.0),
    ],
    variants=(_tempered(), _tempered_by_matrix),
    wrong=(
        WrongAnswer(
            "temperature left out of the gradient of x",
            "The softmax sees x / t, so what it sends back is divided by t once more.",
            _tempered(scale=lambda g, t: g.clone()),
        ),
        WrongAnswer(
            "gradient multiplied by the temperature",
            "The inner derivative of x / t is 1 / t.",
            _tempered(scale=lambda g, t: g * t),
        ),
        WrongAnswer(
            "sign of the temperature's gradient",
            "A higher temperature makes x / t smaller: its derivative is -x / t**2.",
            _tempered(of_t=lambda g, x, t: (g * x).sum() / t**2),
        ),
        WrongAnswer(
            "temperature's square forgotten",
            "The derivative of 1 / t is -1 / t**2, not -1 / t.",
            _tempered(of_t=lambda g, x, t: -(g * x).sum() / t),
        ),
        WrongAnswer(
            "row mean of the gradient not removed",
            "The entries of a row share their denominator, so that p * (g - sum(g p)) comes back.",
            _tempered(centre=False),
        ),
        WrongAnswer(
            "multiplied by the temperature forward",
            "Softmax with temperature t is softmax(x / t). Times t is an inverse temperature.",
            _tempered(product=True),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "sum_to": SUM_TO,
    "scale_shift_backward": SCALE_SHIFT_BACKWARD,
    "masked_mean": MASKED_MEAN,
    "binary_cross_entropy": BINARY_CROSS_ENTROPY,
    "log_softmax": LOG_SOFTMAX,
    "numeric_gradient": NUMERIC_GRADIENT,
    "seeded_dropout": SEEDED_DROPOUT,
    "running_logsumexp": RUNNING_LOGSUMEXP,
    "temperature_backward": TEMPERATURE_BACKWARD,
}
