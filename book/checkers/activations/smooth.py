"""Stable forms and derivatives of the smooth ones."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.activations.common import CUBIC, EXACT, ROOT, draw, leaf, points, scalar_cases
from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, autograd, in_parts

# --- tanh -----------------------------------------------------------------------------------------

# The absolute tolerance of the other cases does not see that digits are lost near zero.
TANH_CASES = [
    *scalar_cases(),
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
        *scalar_cases(),
        points("25 and 30", [25.0, 30.0], tol=1e-14),
        points("-30, where the result is tiny", [-30.0], tol=1e-17),
        Case("100 in float32", lambda: (leaf([100.0], torch.float32),), 1e-6, grad=True),
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
            "where with sides that overflow",
            "torch.where evaluates both sides. The side that is not chosen is infinite, and the "
            "gradient gets 0 times infinity, which is nan. Clamp inside the exponentials.",
            lambda x: torch.where(x > 0, x + torch.log1p(torch.exp(-x)), torch.log1p(torch.exp(x))),
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
    "a table": lambda: draw(4, 5, scale=2.0),
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
