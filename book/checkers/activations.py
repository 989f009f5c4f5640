"""The exercises of chapter 06: stable forms, derivatives, and dead units.

The oracles are torch's own operators and autograd, never the book's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, autograd, in_parts

# An honest float64 answer differs from the oracle by rounding only.
EXACT = 1e-11
CUBIC = 0.044715
ROOT = math.sqrt(2 / math.pi)


def _draw(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=rng, dtype=torch.float64)


def _leaf(numbers: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(numbers, dtype=dtype).requires_grad_()


# Gradients are compared with the weights of `torch.linspace(-1, 2, n)`. One of these is zero if
# n - 1 is a multiple of 3, so no list here has such a length.
def _points(name: str, numbers: list[float], *rest: Any, tol: float = EXACT) -> Case:
    return Case(name, lambda: (_leaf(numbers), *rest), tol, grad=True)


def _scalar_cases(*rest: Any) -> list[Case]:
    """Inputs for a function of one number, its gradient included."""
    return [
        _points("numbers around zero", [-2.0, -0.7, 0.3, 1.1, 2.5], *rest),
        _points("exactly zero", [0.0], *rest),
        _points("1e-8 and -1e-8", [-1e-8, 1e-8], *rest),
        _points("20 and -20", [-20.0, 20.0], *rest),
        _points("100 and -100", [-100.0, 100.0], *rest),
        _points("1e4 and -1e4", [-1e4, 1e4], *rest),
        Case("a table", lambda: (_draw(3, 5, scale=2.0).requires_grad_(), *rest), EXACT, grad=True),
    ]


# --- tanh -----------------------------------------------------------------------------------------

# The absolute tolerance of the other cases does not see that digits are lost near zero.
TANH_CASES = [
    *_scalar_cases(),
    Case(
        "1e-6, and 100 and -100, in float32",
        lambda: (torch.tensor([1e-6, 100.0, -100.0], dtype=torch.float32),),
        1e-9,
    ),
]


def _tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


def _tanh_by_expm1(x: Tensor) -> Tensor:
    left, right = torch.expm1(2 * x.clamp(max=0)), torch.expm1(-2 * x.clamp(min=0))
    return torch.where(x >= 0, -right / (right + 2), left / (left + 2))


def _tanh_by_limit(x: Tensor) -> Tensor:
    # Beyond 30 the value is 1 and the gradient 0 in every dtype.
    t = torch.expm1(2 * x.clamp(-30, 30))
    return t / (t + 2)


def _tanh_by_abs(x: Tensor) -> Tensor:
    t = torch.expm1(-2 * x.abs())
    return x.sign() * -t / (t + 2)


def _quotient(x: Tensor) -> Tensor:
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


TANH = Exercise(
    title="tanh from exponentials",
    oracle=_tanh,
    leading={"x": 0},
    cases=TANH_CASES,
    variants=(_tanh_by_expm1, _tanh_by_limit),
    rules=(Rule("no `torch.tanh`, no `torch.sigmoid`", ("tanh", "tanh_", "sigmoid", "sigmoid_")),),
    wrong=(
        WrongAnswer(
            "the quotient of exponentials as it stands",
            "e^x overflows, and infinity over infinity is nan. Only take exponentials of numbers "
            "that are not positive.",
            _quotient,
        ),
        WrongAnswer(
            "one exponential, of a number that may be positive",
            "(e^2x - 1) / (e^2x + 1) overflows for large positive x. Treat the two sides apart.",
            lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
        ),
        WrongAnswer(
            "one exponential, of a number that may be positive on the left",
            "(1 - e^-2x) / (1 + e^-2x) overflows for large negative x. Treat the two sides apart.",
            lambda x: (1 - torch.exp(-2 * x)) / (1 + torch.exp(-2 * x)),
        ),
        WrongAnswer(
            "the absolute value as a repair",
            "The values are right, but the gradient at 0 is 0 in place of 1: autograd takes the "
            "slope of |x|, and of sign(x), to be 0 there. Use clamp.",
            _tanh_by_abs,
        ),
        WrongAnswer(
            "where without clamps inside",
            "torch.where evaluates both sides. The side that is not chosen is infinite, and the "
            "gradient gets 0 times infinity, which is nan. Clamp inside the exponentials.",
            lambda x: torch.where(
                x >= 0,
                -torch.expm1(-2 * x) / (torch.expm1(-2 * x) + 2),
                torch.expm1(2 * x) / (torch.expm1(2 * x) + 2),
            ),
        ),
        WrongAnswer(
            "digits lost near zero",
            "e^-2x - 1 is a difference of two numbers close to 1 if x is small. torch.expm1 "
            "computes it without that loss.",
            lambda x: torch.where(
                x >= 0,
                (1 - torch.exp(-2 * x.clamp(min=0))) / (1 + torch.exp(-2 * x.clamp(min=0))),
                (torch.exp(2 * x.clamp(max=0)) - 1) / (torch.exp(2 * x.clamp(max=0)) + 1),
            ),
        ),
        WrongAnswer(
            "the sigmoid in place of tanh",
            "tanh runs from -1 to 1: it is 2 sigmoid(2x) - 1.",
            lambda x: torch.sigmoid(x),
        ),
        WrongAnswer(
            "the sigmoid stretched in one direction only",
            "2 sigmoid(x) - 1 has the right range, but it is tanh(x / 2): the argument is 2x.",
            lambda x: 2 * torch.sigmoid(x) - 1,
        ),
    ),
)


# --- softplus -------------------------------------------------------------------------------------


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _softplus_by_clamp(x: Tensor) -> Tensor:
    left = torch.log1p(torch.exp(x.clamp(max=0)))
    return torch.where(x > 0, x + torch.log1p(torch.exp(-x.clamp(min=0))), left)


def _softplus_by_log(x: Tensor) -> Tensor:
    left = torch.log(1 + torch.exp(x.clamp(max=0)))
    return torch.where(x > 0, x + torch.log(1 + torch.exp(-x.clamp(min=0))), left)


def _softplus_by_log_sigmoid(x: Tensor) -> Tensor:
    return -F.logsigmoid(-x)


SOFTPLUS = Exercise(
    title="softplus without a threshold",
    oracle=_softplus,
    leading={"x": 0},
    cases=[
        *_scalar_cases(),
        _points("25 and 30", [25.0, 30.0], tol=1e-14),
        _points("-30, where the result is tiny", [-30.0], tol=1e-17),
        Case("100 in float32", lambda: (_leaf([100.0], torch.float32),), 1e-6, grad=True),
    ],
    variants=(_softplus_by_clamp, _softplus_by_log_sigmoid),
    rules=(Rule("without `F.softplus`", ("softplus",)),),
    wrong=(
        WrongAnswer(
            "the formula as it stands",
            "e^x overflows, so that the value is infinite and the gradient nan. For positive x, "
            "log(1 + e^x) = x + log(1 + e^-x).",
            lambda x: torch.log(1 + torch.exp(x)),
        ),
        WrongAnswer(
            "log1p, but of an exponential that overflows",
            "log1p keeps the digits of a small argument, but e^x still overflows for large x.",
            lambda x: torch.log1p(torch.exp(x)),
        ),
        WrongAnswer(
            "relu and the absolute value as a repair",
            "The values are right, but the gradient at 0 is 0 in place of 1/2: relu and |x| both "
            "have slope 0 there. Use clamp and where.",
            lambda x: F.relu(x) + torch.log1p(torch.exp(-x.abs())),
        ),
        WrongAnswer(
            "clamp and the absolute value as a repair",
            "The values are right, but the gradient at 0 is 1 in place of 1/2: clamp has slope 1 "
            "there, and |x| slope 0. Clamp in both terms, and choose with where.",
            lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
        ),
        WrongAnswer(
            "torch's threshold",
            "F.softplus returns x itself from 20 on. At 25 that is off by e^-25.",
            lambda x: F.softplus(x),
        ),
        WrongAnswer(
            "the two sides exchanged",
            "e^-x belongs to the side of positive x, and e^x to that of negative x.",
            lambda x: torch.where(x < 0, x + torch.log1p(torch.exp(-x)), torch.log1p(torch.exp(x))),
        ),
        WrongAnswer(
            "digits lost in 1 + t",
            "Far to the left t = e^x is tiny, and 1 + t keeps few of its digits, or none. "
            "torch.log1p(t) computes log(1 + t) without adding.",
            _softplus_by_log,
        ),
        WrongAnswer(
            "ReLU in place of softplus",
            "Softplus is smooth, and log 2 at 0. ReLU is what it approaches far from 0.",
            lambda x: F.relu(x),
        ),
        WrongAnswer(
            "the sigmoid in place of softplus",
            "The sigmoid is the derivative of softplus.",
            lambda x: torch.sigmoid(x),
        ),
    ),
)


# --- gelu_grad ------------------------------------------------------------------------------------


def _gelu_grad(x: Tensor, approximate: str) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad(F.gelu(leaf, approximate=approximate).sum(), leaf)[0]


GELU_INPUTS: dict[str, Callable[[], Tensor]] = {
    "numbers from -6 to 6": lambda: torch.tensor(
        [-6.0, -1.4, -0.75, -1e-8, 0.0, 1e-8, 0.5, 1.4, 6.0], dtype=torch.float64
    ),
    "20, 100 and 1e4, both signs": lambda: torch.tensor(
        [-1e4, -100.0, -20.0, 20.0, 100.0, 1e4], dtype=torch.float64
    ),
    "a table": lambda: _draw(4, 5, scale=2.0),
}


def _gelu_case(name: str, approximate: str) -> Case:
    return Case(f"{name}, {approximate}", lambda: (GELU_INPUTS[name](), approximate), EXACT)


GELU_GRAD_CASES = [_gelu_case(n, form) for form in ("none", "tanh") for n in GELU_INPUTS]


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@in_parts
def _gelu_slope(
    *,
    gate: Callable[[Tensor], Tensor] = torch.special.ndtr,
    density: Callable[[Tensor], Tensor] = _density,
    outer: Callable[[Tensor], Tensor | float] = lambda x: x,
    cubic: float = CUBIC,
    inner: Callable[[Tensor, float], Tensor | float] = lambda x, c: 1 + 3 * c * x * x,
    root: float = ROOT,
    bend: Callable[[Tensor], Tensor] = lambda t: 1 - t * t,
    swap: bool = False,
) -> Answer:
    """The derivative in parts; a wrong answer replaces one."""

    def answer(x: Tensor, approximate: str) -> Tensor:
        if (approximate == "none") != swap:
            return gate(x) + outer(x) * density(x)
        t = torch.tanh(root * (x + cubic * x**3))
        return (1 + t) / 2 + outer(x) / 2 * bend(t) * root * inner(x, cubic)

    return answer


def _gelu_grad_by_erf(x: Tensor, approximate: str) -> Tensor:
    if approximate == "none":
        return (1 + torch.erf(x / math.sqrt(2))) / 2 + x * _density(x)
    u = 2 * ROOT * (x + CUBIC * x**3)
    s, rest = torch.sigmoid(u), torch.sigmoid(-u)
    return s + x * s * rest * 2 * ROOT * (1 + 3 * CUBIC * x**2)


GELU_GRAD = Exercise(
    title="the derivative of GELU, both forms",
    oracle=_gelu_grad,
    leading={"x": 0},
    cases=GELU_GRAD_CASES,
    variants=(_gelu_slope(), _gelu_grad_by_erf),
    rules=(autograd("gelu_backward"),),
    wrong=(
        WrongAnswer(
            "only the first term of the product rule",
            "x also stands inside the gate: the derivative has a second term, x times the "
            "derivative of the gate.",
            _gelu_slope(outer=lambda x: 0.0),
        ),
        WrongAnswer(
            "the factor x forgotten in the second term",
            "The product rule gives x times the derivative of the gate, not that alone.",
            _gelu_slope(outer=lambda x: 1.0),
        ),
        WrongAnswer(
            "inner derivative forgotten in the tanh form",
            "u = sqrt(2/pi) (x + c x^3) has the derivative sqrt(2/pi) (1 + 3 c x^2). The bracket "
            "is missing.",
            _gelu_slope(inner=lambda x, c: 1.0),
        ),
        WrongAnswer(
            "factor 3 forgotten in the inner derivative",
            "The derivative of c x^3 is 3 c x^2.",
            _gelu_slope(inner=lambda x, c: 1 + c * x * x),
        ),
        WrongAnswer(
            "Taylor constant in place of 0.044715",
            "(4 - pi) / (6 pi) matches the third derivative at 0. torch uses the fitted 0.044715.",
            _gelu_slope(cubic=(4 - math.pi) / (6 * math.pi)),
        ),
        WrongAnswer(
            "density without its factor",
            "The density of the standard normal is e^(-x^2/2) divided by sqrt(2 pi).",
            _gelu_slope(density=lambda x: torch.exp(-x * x / 2)),
        ),
        WrongAnswer(
            "density without the half in the exponent",
            "The exponent of the density is -x^2 / 2.",
            _gelu_slope(density=lambda x: torch.exp(-x * x) / math.sqrt(2 * math.pi)),
        ),
        WrongAnswer(
            "erf without the division by sqrt(2)",
            "The distribution function is (1 + erf(x / sqrt(2))) / 2.",
            _gelu_slope(gate=lambda x: (1 + torch.erf(x)) / 2),
        ),
        WrongAnswer(
            "1 - tanh in place of 1 - tanh squared",
            "The derivative of tanh is 1 - tanh^2.",
            _gelu_slope(bend=lambda t: 1 - t),
        ),
        WrongAnswer(
            "one form for both names",
            "'none' is the exact form with erf, and 'tanh' the approximation. They differ in the "
            "fourth decimal.",
            lambda x, approximate: _gelu_slope()(x, "tanh"),
        ),
        WrongAnswer(
            "the two names exchanged",
            "'none' means no approximation, which is the form with erf.",
            _gelu_slope(swap=True),
        ),
        WrongAnswer(
            "a constant rounded to float32",
            "sqrt(2/pi) came through a float32 tensor and has seven correct digits. Use math.sqrt.",
            _gelu_slope(root=float(torch.tensor(2 / math.pi, dtype=torch.float32).sqrt())),
        ),
    ),
)


# --- swish_backward -------------------------------------------------------------------------------


def _swish_backward(grad_out: Tensor, x: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_(), beta.detach().clone().requires_grad_()]
    return torch.autograd.grad(leaves[0] * torch.sigmoid(leaves[1] * leaves[0]), leaves, grad_out)


def _swish_case(name: str, x: Callable[[], Tensor], beta: Tensor) -> Case:
    return Case(name, lambda: (_draw(*x().shape, seed=1), x(), beta.clone()), EXACT)


BETA = torch.tensor(1.3, dtype=torch.float64)
SWISH_CASES = [
    _swish_case("a table", lambda: _draw(3, 5, scale=2.0), BETA),
    _swish_case("beta of shape (1,)", lambda: _draw(4, 3), BETA.reshape(1)),
    _swish_case("beta of 0", lambda: _draw(6), 0 * BETA),
    _swish_case("a negative beta", lambda: _draw(2, 3, 4), -BETA),
    _swish_case("large x of both signs", lambda: _draw(7, scale=1e3), BETA),
    _swish_case("beta of 1", lambda: _draw(5), BETA / BETA),
]


@in_parts
def _swish_parts(
    *,
    dx: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, b, s: s * (1 + b * x * (1 - s)),
    db: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, b, s: x * x * s * (1 - s),
    reduce: Callable[[Tensor], Tensor] = lambda t: t.sum(),
    up: Callable[[Tensor], Tensor | float] = lambda g: g,
) -> Answer:
    def answer(grad_out: Tensor, x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        s = torch.sigmoid(beta * x)
        grad_beta = reduce(up(grad_out) * db(x, beta, s))
        grad_beta = grad_beta.reshape(beta.shape) if grad_beta.numel() == 1 else grad_beta
        return up(grad_out) * dx(x, beta, s), grad_beta

    return answer


def _swish_by_value(grad_out: Tensor, x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(beta * x)
    y = x * s
    grad_x = grad_out * (beta * y + s * (1 - beta * y))
    return grad_x, (grad_out * y * (x - y)).sum().view_as(beta)


SWISH_BACKWARD = Exercise(
    title="Swish backwards, with its parameter",
    oracle=_swish_backward,
    leading={"grad_out": 0, "x": 0},
    cases=SWISH_CASES,
    variants=(_swish_parts(), _swish_by_value),
    rules=(autograd("silu_backward", "sigmoid_backward"),),
    wrong=(
        WrongAnswer(
            "beta forgotten in the gradient of x",
            "The derivative of sigmoid(beta x) with respect to x has the factor beta.",
            _swish_parts(dx=lambda x, b, s: s * (1 + x * (1 - s))),
        ),
        WrongAnswer(
            "only the gate",
            "That is the first term of the product rule. x also stands inside the sigmoid.",
            _swish_parts(dx=lambda x, b, s: s),
        ),
        WrongAnswer(
            "the derivative of the sigmoid alone",
            "Swish is x times the sigmoid: its derivative starts with the sigmoid itself.",
            _swish_parts(dx=lambda x, b, s: b * s * (1 - s)),
        ),
        WrongAnswer(
            "one factor x too few in the gradient of beta",
            "One x stands before the sigmoid, and a second comes from differentiating beta x.",
            _swish_parts(db=lambda x, b, s: x * s * (1 - s)),
        ),
        WrongAnswer(
            "a factor beta in the gradient of beta",
            "The derivative of beta x with respect to beta is x, without beta.",
            _swish_parts(db=lambda x, b, s: b * x * x * s * (1 - s)),
        ),
        WrongAnswer(
            "gradient of beta not summed",
            "All entries share beta, so its gradient is the sum over them, in the shape of beta.",
            _swish_parts(reduce=lambda t: t),
        ),
        WrongAnswer(
            "mean in place of the sum for beta",
            "Gradients of a shared parameter add up. A mean depends on how many entries there are.",
            _swish_parts(reduce=lambda t: t.mean()),
        ),
        WrongAnswer(
            "grad_out forgotten",
            "The chain rule multiplies the derivative by the gradient that arrives.",
            _swish_parts(up=lambda g: 1.0),
        ),
    ),
)


# --- leaky_relu and dead_units --------------------------------------------------------------------


def _leaky_relu(x: Tensor, negative_slope: float) -> Tensor:
    return F.leaky_relu(x, negative_slope)


LEAKY_CASES = [
    replace(case, name=f"{case.name}, slope {slope:g}")
    for slope in (0.01, -0.5, 2.0)
    for case in _scalar_cases(slope)
]

LEAKY_RELU = Exercise(
    title="Leaky ReLU for every slope",
    oracle=_leaky_relu,
    leading={"x": 0},
    cases=LEAKY_CASES,
    variants=(
        lambda x, negative_slope: torch.where(x > 0, x, negative_slope * x),
        lambda x, negative_slope: F.relu(x) + negative_slope * (x - F.relu(x)),
    ),
    rules=(Rule("without `F.leaky_relu`", ("leaky_relu", "leaky_relu_")),),
    wrong=(
        WrongAnswer(
            "a maximum",
            "max(x, a x) is right for a <= 1 only, and its slope at 0 is (1 + a) / 2.",
            lambda x, a: torch.maximum(x, a * x),
        ),
        WrongAnswer(
            "a maximum or a minimum, by the slope",
            "The values are right, but two equal arguments share the gradient at 0: it is "
            "(1 + a) / 2 in place of a.",
            lambda x, a: torch.maximum(x, a * x) if a <= 1 else torch.minimum(x, a * x),
        ),
        WrongAnswer(
            "the right side's slope at zero",
            "At 0 torch takes the slope of the left side. Compare with >, not with >=.",
            lambda x, a: torch.where(x >= 0, x, a * x),
        ),
        WrongAnswer(
            "two clamps",
            "At its bound clamp lets the gradient pass, so that at 0 the slopes of both sides add "
            "up to 1 + a.",
            lambda x, a: x.clamp(min=0) + a * x.clamp(max=0),
        ),
        WrongAnswer(
            "two ReLUs with the sign lost",
            "relu(-x) is positive: it has to be subtracted.",
            lambda x, a: F.relu(x) + a * F.relu(-x),
        ),
        WrongAnswer(
            "two ReLUs",
            "The values are right, but at 0 both ReLUs have slope 0, where torch has that of the "
            "left side.",
            lambda x, a: F.relu(x) - a * F.relu(-x),
        ),
        WrongAnswer(
            "slope on the wrong side",
            "The positive side passes unchanged, and the negative one is multiplied.",
            lambda x, a: torch.where(x > 0, a * x, x),
        ),
        WrongAnswer(
            "torch's default slope",
            "negative_slope has to be handed on: 0.01 is only its default.",
            lambda x, a: F.leaky_relu(x),
        ),
    ),
)


def _dead_units(pre: Tensor) -> int:
    leaf = pre.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.relu(leaf).sum(), leaf)
    return int((slope.flatten(0, -2).amax(0) == 0).sum())


def _with_dead(*shape: int, dead: int, seed: int = 0) -> Tensor:
    """Pre-activations of which the first `dead` units are below zero everywhere."""
    pre = _draw(*shape, seed=seed)
    pre[..., :dead] = -pre[..., :dead].abs() - 0.1
    return pre


def _with_zeros() -> Tensor:
    pre = _with_dead(6, 4, dead=1)
    pre[:, 1] = 0.0
    pre[2, 2] = 0.0
    return pre


def _balanced() -> Tensor:
    """A live unit whose mean is negative, one whose entries cancel, and a dead one."""
    columns = [[-9.0, 1.0, 1.0, -1.0], [-1.0, 1.0, -2.0, 2.0], [-1.0, -1.0, -1.0, -1.0]]
    return torch.tensor(columns, dtype=torch.float64).T


def _in_turn() -> Tensor:
    """Two sequences: a unit that is silent in the first, one in the second, and one in both."""
    pre = torch.tensor([[-1.0, 1.0, -1.0], [1.0, -1.0, -1.0]], dtype=torch.float64)
    return pre[:, None].repeat(1, 4, 1)


DEAD_UNITS = Exercise(
    title="count the dead units",
    oracle=_dead_units,
    cases=[
        Case("two dead of five", lambda: (_with_dead(7, 5, dead=2),)),
        Case("tokens in two dimensions", lambda: (_with_dead(3, 8, 6, dead=4),)),
        Case("none is dead", lambda: (_with_dead(40, 3, dead=0),)),
        Case("a unit that is exactly zero", lambda: (_with_zeros(),)),
        Case("a unit that is negative on average", lambda: (_balanced(),)),
        Case("units that are silent in one sequence of two", lambda: (_in_turn(),)),
        Case("all are dead", lambda: (_with_dead(2, 9, dead=9),)),
        Case("one token that rescues a unit", lambda: (-_with_dead(5, 3, dead=0, seed=2).abs(),)),
    ],
    variants=(
        lambda pre: int((F.relu(pre).flatten(0, -2).sum(0) == 0).sum()),
        lambda pre: int((pre.reshape(-1, pre.shape[-1]).max(0).values <= 0).sum()),
    ),
    wrong=(
        WrongAnswer(
            "silent tokens in place of silent units",
            "That reduces over the units. A unit is a column, and it is dead if it is silent for "
            "every token.",
            lambda pre: int((pre <= 0).all(-1).sum()),
        ),
        WrongAnswer(
            "silent on some token",
            "A ReLU unit may be off for some tokens and on for others. It is dead if it is off for "
            "all of them.",
            lambda pre: int((pre <= 0).flatten(0, -2).any(0).sum()),
        ),
        WrongAnswer(
            "silent entries",
            "This counts entries that are off, not units that always are.",
            lambda pre: int((pre <= 0).sum()),
        ),
        WrongAnswer(
            "negative on average",
            "A unit with a negative mean is alive if a single token lifts it above zero.",
            lambda pre: int((pre.flatten(0, -2).mean(0) <= 0).sum()),
        ),
        WrongAnswer(
            "zero taken for alive",
            "The slope of F.relu at 0 is 0, so a unit that never exceeds 0 is dead.",
            lambda pre: int((pre < 0).flatten(0, -2).all(0).sum()),
        ),
        WrongAnswer(
            "only the first dimension reduced",
            "With tokens in several dimensions, a unit must be silent over all of them.",
            lambda pre: int((pre <= 0).all(0).sum()),
        ),
        WrongAnswer(
            "silent in some sequence",
            "A unit that is silent in one sequence may be alive in another. It is dead if it is "
            "silent in all of them.",
            lambda pre: int((pre <= 0).all(-2).reshape(-1, pre.shape[-1]).any(0).sum()),
        ),
        WrongAnswer(
            "a threshold in place of zero",
            "A unit that passes 1e-10 passes a value, and a gradient that is not small at all. "
            "Compare with 0.",
            lambda pre: int((F.relu(pre).flatten(0, -2).sum(0) < 1e-6).sum()),
        ),
        WrongAnswer(
            "live units counted",
            "The question is for the dead ones.",
            lambda pre: int((pre > 0).flatten(0, -2).any(0).sum()),
        ),
    ),
)


EXERCISES = {
    "tanh": TANH,
    "softplus": SOFTPLUS,
    "gelu_grad": GELU_GRAD,
    "swish_backward": SWISH_BACKWARD,
    "leaky_relu": LEAKY_RELU,
    "dead_units": DEAD_UNITS,
}
