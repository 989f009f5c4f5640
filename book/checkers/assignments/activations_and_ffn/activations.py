"""Questions of the assignment: hard_swish, mish_grad, prelu_backward, quick_gelu."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, each, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Pair = tuple[Tensor, Tensor]
Map = Callable[[Tensor], Tensor]


def _points(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


# --- hard_swish -----------------------------------------------------------------------------------


def _hard_swish(x: Tensor) -> Pair:
    return F.hardswish(x), each(F.hardswish, x)


@in_parts
def _pieces(
    value: Map = lambda x: x * (x + 3) / 6,
    slope: Map = lambda x: (2 * x + 3) / 6,
    low: float = -3.0,
    high: float = 3.0,
    right: float = 1.0,
    value_right: Map = lambda x: x,
) -> Callable[[Tensor], Pair]:
    def answer(x: Tensor) -> Pair:
        y = torch.where(x < high, value(x), value_right(x)).masked_fill(x <= low, 0.0)
        d = torch.where(x < high, slope(x), right * torch.ones_like(x)).masked_fill(x <= low, 0.0)
        return y, d

    return answer


def _by_relu6(x: Tensor) -> Pair:
    gate = F.relu6(x + 3) / 6
    return x * gate, gate + x / 6 * ((x > -3) & (x < 3))


def _hard_swish_in_place(x: Tensor) -> Pair:
    slope = _pieces()(x)[1]
    return x.mul_(F.relu6(x + 3) / 6), slope


HARD_SWISH = Exercise(
    title="Hard swish and its derivative",
    oracle=_hard_swish,
    cases=[
        Case("values: the middle", lambda: (draw(3, 4),), EXACT),
        Case("values: all three pieces", lambda: (draw(4, 6, scale=4.0),), EXACT),
        Case("values: a vector", lambda: (_points(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5),), EXACT),
        Case("corners: zero and both signs of it", lambda: (_points(0.0, -0.0),), EXACT),
        Case("corners: beside the kinks", lambda: (_points(-3.001, -2.999, 2.999, 3.001),), EXACT),
        Case("corners: far out", lambda: (_points(-1e6, -50.0, 50.0, 1e6),), EXACT),
        Case("corners: float32", lambda: (draw(5, scale=3.0, dtype=torch.float32),), 1e-6),
        Case("corners: not contiguous", lambda: (draw(4, 3, scale=3.0).T,), EXACT),
    ],
    variants=(_pieces(), _by_relu6),
    wrong=(
        WrongAnswer(
            "gate taken for the derivative",
            "The product rule has a second term: x times the gate's slope of 1 / 6.",
            _pieces(slope=lambda x: (x + 3) / 6),
        ),
        WrongAnswer(
            "gate's slope forgotten to be halved",
            "The derivative of (x**2 + 3 x) / 6 is (2 x + 3) / 6.",
            _pieces(slope=lambda x: (x + 3) / 3),
        ),
        WrongAnswer(
            "right side not cut off",
            "From 3 on the gate is 1, so the value is x itself and the derivative is 1.",
            _pieces(high=math.inf),
        ),
        WrongAnswer(
            "left side not cut off",
            "Below -3 the gate is 0, so that value and derivative are 0.",
            _pieces(low=-math.inf),
        ),
        WrongAnswer(
            "hard sigmoid with slope 1 / 5",
            "Other libraries use 0.2 x + 0.5. torch and the MobileNetV3 paper use (x + 3) / 6.",
            _pieces(
                value=lambda x: x * (0.2 * x + 0.5),
                slope=lambda x: 0.4 * x + 0.5,
                low=-2.5,
                high=2.5,
            ),
        ),
        WrongAnswer(
            "gate without its factor x",
            "Hard sigmoid is the gate alone. Hard swish multiplies x by it.",
            _pieces(
                value=lambda x: (x + 3) / 6,
                slope=lambda x: torch.ones_like(x) / 6,
                right=0.0,
                value_right=torch.ones_like,
            ),
        ),
        WrongAnswer(
            "derivative 0 on the right",
            "From 3 on the value is x itself. It is the gate that stays constant there.",
            _pieces(right=0.0),
        ),
        WrongAnswer(
            "division by 6 forgotten",
            "The clamped x + 3 goes up to 6; the gate goes up to 1.",
            _pieces(
                value=lambda x: x * (x + 3),
                slope=lambda x: 2 * x + 3,
                right=6.0,
                value_right=lambda x: 6 * x,
            ),
        ),
        WrongAnswer(
            "shift by 3 forgotten",
            "The gate is 1 / 2 at zero: x + 3 is clamped, not x.",
            _pieces(value=lambda x: x * x / 6, slope=lambda x: x / 3, low=0.0, high=6.0),
        ),
        WrongAnswer(
            "x overwritten with the value",
            "mul_ changes the caller's tensor. Return a new one, and leave x as it is.",
            _hard_swish_in_place,
        ),
    ),
)


# --- mish_grad ------------------------------------------------------------------------------------


def _mish_grad(x: Tensor) -> Tensor:
    return each(F.mish, x)


@in_parts
def _mish(
    softplus: Map = F.softplus,
    inner: Map = torch.sigmoid,
    outer: Map = lambda t: 1 - t * t,
    factor: bool = True,
    first: bool = True,
) -> Map:
    def answer(x: Tensor) -> Tensor:
        t = torch.tanh(softplus(x))
        return (t if first else 0 * t) + (x if factor else 1.0) * outer(t) * inner(x)

    return answer


def _mish_rational(x: Tensor) -> Tensor:
    # tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2), with e = exp(x), kept from overflowing.
    e = x.clamp(max=20.0).exp()
    n = e * (e + 2)
    return n / (n + 2) + x * 4 * e * (1 + e) / (n + 2) ** 2


MISH_GRAD = Exercise(
    title="The derivative of Mish",
    oracle=_mish_grad,
    cases=[
        Case("values: around zero", lambda: (draw(3, 4),), EXACT),
        Case("values: a wider range", lambda: (draw(4, 5, scale=4.0),), EXACT),
        Case("values: integers", lambda: (_points(-2.0, -1.0, 0.0, 1.0, 2.0),), EXACT),
        Case("corners: far right", lambda: (_points(30.0, 100.0, 800.0, 1e4),), EXACT),
        Case("corners: far left", lambda: (_points(-30.0, -100.0, -800.0, -1e4),), EXACT),
        Case("corners: float32", lambda: (draw(6, scale=3.0, dtype=torch.float32),), 5e-6),
        Case("corners: an empty tensor", lambda: (draw(0, 3),), EXACT),
    ],
    variants=(_mish(), _mish_rational),
    wrong=(
        WrongAnswer(
            "softplus that overflows",
            "log(1 + exp(x)) is infinite beyond 709 in float64 and inf - inf or inf / inf "
            "follow. Take the sigmoid and the softplus in their stable forms.",
            _mish(
                softplus=lambda x: torch.log(1 + x.exp()), inner=lambda x: x.exp() / (1 + x.exp())
            ),
        ),
        WrongAnswer(
            "inner derivative forgotten",
            "The chain rule goes on into the softplus, whose derivative is the sigmoid.",
            _mish(inner=torch.ones_like),
        ),
        WrongAnswer(
            "product rule's second term forgotten",
            "x tanh(softplus(x)) has two factors, and the second one changes with x too.",
            lambda x: torch.tanh(F.softplus(x)),
        ),
        WrongAnswer(
            "factor x forgotten",
            "In the second term of the product rule the factor x stays.",
            _mish(factor=False),
        ),
        WrongAnswer(
            "derivative of tanh without the square",
            "The derivative of tanh is 1 - tanh squared.",
            _mish(outer=lambda t: 1 - t),
        ),
        WrongAnswer(
            "derivative of the softplus's sigmoid",
            "The derivative of softplus is the sigmoid itself, not the sigmoid's derivative.",
            _mish(inner=lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
        ),
        WrongAnswer(
            "product rule's first term forgotten",
            "Where x changes, tanh(softplus(x)) stays as the other factor: that is a term of its "
            "own.",
            _mish(first=False),
        ),
        WrongAnswer(
            "derivative of tanh forgotten",
            "The chain rule goes through tanh before it comes to the softplus.",
            _mish(outer=torch.ones_like),
        ),
        WrongAnswer(
            "sigmoid of minus x",
            "The softplus rises to the right with a slope that goes to 1, not to 0.",
            _mish(inner=lambda x: torch.sigmoid(-x)),
        ),
        WrongAnswer(
            "softplus left out",
            "tanh is taken of softplus(x), which is never negative, not of x.",
            _mish(softplus=lambda x: x),
        ),
    ),
)


# --- prelu_backward -------------------------------------------------------------------------------


def _prelu_backward(grad_out: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return gradients(F.prelu, grad_out, x, weight)


def _along(weight: Tensor, x: Tensor, dim: int = 1) -> Tensor:
    return weight.reshape([-1 if i == dim else 1 for i in range(x.dim())])


@in_parts
def _prelu(
    positive: Callable[[Tensor], Tensor] = lambda x: x > 0,
    of_w: Callable[[Tensor, Tensor], Tensor] = lambda g, x: g * x.clamp(max=0),
    how: str = "sum",
    dim: int = 1,
    swapped: bool = False,
    summed: Callable[[list[int]], list[int]] = lambda others: others,
) -> Callable[..., Pair]:
    def answer(grad_out: Tensor, x: Tensor, weight: Tensor) -> Pair:
        w = _along(weight, x, dim % x.dim())
        slope = torch.where(positive(x), torch.ones_like(x), w)
        if swapped:
            slope = torch.where(positive(x), w, torch.ones_like(x))
        others = [i for i in range(x.dim()) if i != dim % x.dim()]
        return grad_out * slope, getattr(of_w(grad_out, x), how)(summed(others))

    return answer


def _prelu_in_place(grad_out: Tensor, x: Tensor, weight: Tensor) -> Pair:
    grad_w = _prelu()(grad_out, x, weight)[1]
    return grad_out.mul_(torch.where(x > 0, 1.0, _along(weight, x))), grad_w


def _prelu_case(name: str, *shape: int, zero: bool = False) -> Case:
    def inputs() -> tuple[Tensor, ...]:
        x = draw(*shape, seed=2)
        if zero:
            x[0] = 0.0
        return draw(*shape, seed=1), x, draw(shape[1], seed=3, offset=0.25, scale=0.1)

    return Case(name, inputs, EXACT)


PRELU_BACKWARD = Exercise(
    title="A leaky ReLU whose slopes are learned, backwards",
    oracle=_prelu_backward,
    cases=[
        _prelu_case("values: a batch of features", 4, 3),
        _prelu_case("values: channels and positions", 2, 3, 5),
        _prelu_case("values: two more dimensions", 2, 3, 4, 2),
        _prelu_case("corners: entries of zero", 3, 4, zero=True),
        _prelu_case("corners: as many positions as channels", 2, 4, 4),
        _prelu_case("corners: a single channel", 5, 1),
    ],
    variants=(_prelu(), _prelu(of_w=lambda g, x: torch.where(x > 0, 0.0, g * x))),
    wrong=(
        WrongAnswer(
            "slopes along the last dimension",
            "The channels are dimension 1; the last dimension holds positions.",
            _prelu(dim=-1),
        ),
        WrongAnswer(
            "slope 1 at zero",
            "torch takes the learned slope at exactly 0: only x > 0 has slope 1.",
            _prelu(positive=lambda x: x >= 0),
        ),
        WrongAnswer(
            "slope's gradient from all entries",
            "The slope acts on negative entries only, so that positive ones send it nothing.",
            _prelu(of_w=lambda g, x: g * x),
        ),
        WrongAnswer(
            "x left out of the slope's gradient",
            "A negative entry gives weight * x, whose derivative in weight is x.",
            _prelu(of_w=lambda g, x: g * (x <= 0)),
        ),
        WrongAnswer(
            "slope's gradient averaged",
            "One slope serves every entry of its channel, so their gradients are summed.",
            _prelu(how="mean"),
        ),
        WrongAnswer(
            "sides exchanged",
            "Positive entries pass with slope 1, negative ones with the learned slope.",
            _prelu(swapped=True),
        ),
        WrongAnswer(
            "slope's gradient summed over the batch only",
            "A channel has one slope for all its positions: they are summed over too.",
            _prelu(summed=lambda others: others[:1]),
        ),
        WrongAnswer(
            "sign of x lost",
            "The derivative of weight * x in weight is x with its sign, and x is negative there.",
            _prelu(of_w=lambda g, x: g * (-x).clamp(min=0)),
        ),
        WrongAnswer(
            "slope's gradient without what arrives",
            "The chain rule multiplies by grad_out, for the slope as for x.",
            _prelu(of_w=lambda g, x: x.clamp(max=0)),
        ),
        WrongAnswer(
            "grad_out overwritten",
            "mul_ changes the caller's tensor. Return a new one, and leave grad_out as it is.",
            _prelu_in_place,
        ),
    ),
)


# --- quick_gelu -----------------------------------------------------------------------------------


def _quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _quick_gelu(x: Tensor) -> Pair:
    return _quick(x), each(_quick, x)


@in_parts
def _quick_with(
    k: float = 1.702,
    sigmoid: Map = torch.sigmoid,
    slope: Callable[[Tensor, Tensor], Tensor] = lambda x, s: s + 1.702 * x * s * (1 - s),
) -> Callable[[Tensor], Pair]:
    def answer(x: Tensor) -> Pair:
        s = sigmoid(k * x)
        return x * s, slope(x, s)

    return answer


def _quick_by_tanh(x: Tensor) -> Pair:
    s = 0.5 * (1 + torch.tanh(0.851 * x))
    return x * s, s * (1 + 1.702 * x * (1 - s))


QUICK_GELU = Exercise(
    title="QuickGELU and its derivative",
    oracle=_quick_gelu,
    cases=[
        Case("values: around zero", lambda: (draw(3, 4),), EXACT),
        Case("values: a wider range", lambda: (draw(4, 5, scale=3.0),), EXACT),
        Case("values: integers", lambda: (_points(-2.0, -1.0, 0.0, 1.0, 2.0),), EXACT),
        Case("corners: far right", lambda: (_points(50.0, 500.0, 1e4),), EXACT),
        Case("corners: far left", lambda: (_points(-50.0, -500.0, -1e4),), EXACT),
        Case("corners: float32", lambda: (draw(6, dtype=torch.float32),), 1e-6),
    ],
    variants=(_quick_with(), _quick_by_tanh),
    wrong=(
        WrongAnswer(
            "SiLU in its place",
            "QuickGELU is x sigmoid(1.702 x). SiLU is the same with factor 1.",
            _quick_with(k=1.0, slope=lambda x, s: s + x * s * (1 - s)),
        ),
        WrongAnswer(
            "inner derivative forgotten",
            "The sigmoid sees 1.702 x, so its derivative carries a factor of 1.702.",
            _quick_with(slope=lambda x, s: s + x * s * (1 - s)),
        ),
        WrongAnswer(
            "only the gate",
            "The product rule has a second term: x times the derivative of the gate.",
            _quick_with(slope=lambda x, s: s),
        ),
        WrongAnswer(
            "sigmoid that overflows",
            "exp(z) / (1 + exp(z)) is inf / inf for large z. torch.sigmoid has no such corner.",
            _quick_with(sigmoid=lambda z: z.exp() / (1 + z.exp())),
        ),
        WrongAnswer(
            "factor x forgotten in the derivative",
            "In the second term of the product rule the factor x stays.",
            _quick_with(slope=lambda x, s: s + 1.702 * s * (1 - s)),
        ),
        WrongAnswer(
            "exact GELU",
            "The task asks for the approximation with a sigmoid, which differs by up to 0.02.",
            lambda x: (F.gelu(x), each(F.gelu, x)),
        ),
        WrongAnswer(
            "1.7 in place of 1.702",
            "The constant of QuickGELU has three decimals, and its weights were trained with them.",
            _quick_with(k=1.7, slope=lambda x, s: s + 1.7 * x * s * (1 - s)),
        ),
        WrongAnswer(
            "derivative of the sigmoid without 1 - s",
            "The sigmoid flattens on both sides. Its derivative has two factors.",
            _quick_with(slope=lambda x, s: s + 1.702 * x * s),
        ),
        WrongAnswer(
            "sign of the second term",
            "The gate rises with x, so that its derivative is added, times x.",
            _quick_with(slope=lambda x, s: s - 1.702 * x * s * (1 - s)),
        ),
        WrongAnswer(
            "derivative of the sigmoid at x",
            "The derivative is taken where the sigmoid was: at 1.702 x.",
            _quick_with(slope=lambda x, s: s + 1.702 * x * torch.sigmoid(x) * torch.sigmoid(-x)),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "hard_swish": HARD_SWISH,
    "mish_grad": MISH_GRAD,
    "prelu_backward": PRELU_BACKWARD,
    "quick_gelu": QUICK_GELU,
}
