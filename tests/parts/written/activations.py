"""Chapter 06: answers to its exercises that the checkers do not know."""

import math

import torch
import torch.nn.functional as F

from . import Right, Wrong


# tanh
def one_exponential_less_one(x):
    e = torch.exp(2 * x.clamp(max=40.0))
    return (e - 1) / (e + 1)


def two_over_less_one(x):
    return 2 / (1 + torch.exp(-2 * x)) - 1


def quotient_of_expm1(x):
    e = torch.expm1(2 * x)
    return e / (e + 2)


def sides_by_where(x):
    right = -torch.expm1(-2 * x) / (1 + torch.exp(-2 * x))
    left = torch.expm1(2 * x) / (1 + torch.exp(2 * x))
    return torch.where(x > 0, right, left)


def cut_at_ten(x):
    e = torch.expm1(2 * x.clamp(-10, 10))
    return e / (e + 2)


def cut_for_float64(x):
    e = torch.expm1(2 * x.clamp(-350, 350))
    return e / (e + 2)


def both_sides_at_zero(x):
    a = torch.expm1(-2 * x.clamp(min=0))
    b = torch.expm1(2 * x.clamp(max=0))
    return -a / (a + 2) + b / (b + 2)


def tanh_of_sinh_and_cosh(x):
    return torch.sinh(x) / torch.cosh(x)


def tanh_in_double(x):
    e = torch.expm1(-2 * x.double().abs())
    return torch.sign(x) * -e / (e + 2)


# softplus
def exponential_then_log(x):
    return torch.log(1 + torch.exp(x.clamp(max=80.0))) + (x - 80).clamp(min=0)


def softplus_by_where(x):
    return torch.where(x > 0, x + torch.log1p(torch.exp(-x)), torch.log1p(torch.exp(x)))


def log_without_one_plus(x):
    m = torch.where(x > 0, x, torch.zeros_like(x))
    n = torch.where(x > 0, -x, x)
    return m + torch.log(1 + torch.exp(n))


def softplus_for_float64(x):
    return torch.where(x > 700, x, torch.log1p(torch.exp(x.clamp(max=700))))


def softplus_of_two_clamps(x):
    p, n = x.clamp(min=0), x.clamp(max=0)
    return p + torch.log1p(torch.exp(n - p))


def a_large_threshold(x):
    return F.softplus(x, threshold=40)


def softplus_of_a_stack(x):
    pair = torch.stack([x, torch.zeros_like(x)])
    return torch.logsumexp(pair, 0)


# gelu'
ROOT = math.sqrt(2 / math.pi)


def gelu_by_differences(x, approximate):
    h = 1e-6
    return (F.gelu(x + h, approximate=approximate) - F.gelu(x - h, approximate=approximate)) / (
        2 * h
    )


def gelu_by_func(x, approximate):
    return torch.func.grad(lambda t: F.gelu(t, approximate=approximate).sum())(x)


def gelu_by_jvp(x, approximate):
    one = torch.ones_like(x)
    return torch.func.jvp(lambda t: F.gelu(t, approximate=approximate), (x,), (one,))[1]


def gelu_by_operator(x, approximate):
    return torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate=approximate)


def gelu_grad_with(c=0.044715, root=ROOT, inner=3.0, half=0.5):
    def answer(x, approximate):
        if approximate == "none":
            return torch.special.ndtr(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        t = torch.tanh(root * (x + c * x**3))
        return 0.5 * (1 + t) + half * x * (1 - t * t) * root * (1 + inner * c * x * x)

    return answer


def density_of_another_variance(x, approximate):
    if approximate == "tanh":
        return gelu_grad_with()(x, approximate)
    return torch.special.ndtr(x) + x * torch.exp(-x * x) / math.sqrt(math.pi)


def always_the_exact_form(x, approximate):
    return gelu_grad_with()(x, "none")


def sech_by_cosh(x, approximate):
    if approximate == "none":
        return gelu_grad_with()(x, "none")
    u = ROOT * (x + 0.044715 * x**3)
    return 0.5 * (1 + torch.tanh(u)) + 0.5 * x / torch.cosh(u) ** 2 * ROOT * (
        1 + 3 * 0.044715 * x**2
    )


def one_form_by_autograd(x, approximate):
    if approximate == "none":
        return gelu_grad_with()(x, approximate)
    return gelu_by_func(x, approximate)


# leaky
def leaky_by_a_factor(x, negative_slope):
    return x * torch.where(x > 0, 1.0, negative_slope)


def leaky_in_place(x, negative_slope):
    with torch.no_grad():
        x[x <= 0] *= negative_slope
    return x


# dead units
WRONG = [
    Wrong(
        "activations.tanh",
        "(e²ˣ − 1)/(e²ˣ + 1), clamped",
        one_exponential_less_one,
        named="digits lost near zero",
    ),
    Wrong("activations.tanh", "2/(1 + e⁻²ˣ) − 1", two_over_less_one),
    Wrong(
        "activations.tanh",
        "expm1 over expm1 + 2",
        quotient_of_expm1,
        named="one exponential, of a number that may be positive",
    ),
    Wrong(
        "activations.tanh",
        "both sides computed everywhere",
        sides_by_where,
        named="where without clamps inside",
    ),
    Wrong("activations.tanh", "cut at ±10", cut_at_ten),
    Wrong(
        "activations.tanh",
        "cut where e²ˣ overflows in float64",
        cut_for_float64,
        named="one exponential, of a number that may be positive",
    ),
    Wrong(
        "activations.softplus",
        "x beyond 700",
        softplus_for_float64,
        named="log1p, but of an exponential that overflows",
    ),
    Wrong("activations.tanh", "a sum of two sides that both hold 0", both_sides_at_zero),
    Wrong(
        "activations.tanh",
        "sinh over cosh",
        tanh_of_sinh_and_cosh,
        named="the quotient of exponentials as it stands",
    ),
    Wrong("activations.tanh", "in float64, left there", tanh_in_double),
    Wrong("activations.tanh", "expit", lambda x: 2 * torch.special.expit(2 * x) - 1),
    Wrong("activations.tanh", "the method tanh", lambda x: x.tanh(), says="no `torch.tanh`"),
    Wrong(
        "activations.softplus",
        "log(1 + eˣ) up to 80",
        exponential_then_log,
        named="digits lost in 1 + t",
    ),
    Wrong(
        "activations.softplus",
        "both sides computed everywhere",
        softplus_by_where,
        named="where with sides that overflow",
    ),
    Wrong(
        "activations.softplus",
        "log(1 + t) for a tiny t",
        log_without_one_plus,
        named="digits lost in 1 + t",
    ),
    Wrong(
        "activations.softplus",
        "two clamps that both hold 0",
        softplus_of_two_clamps,
        named="clamp and the absolute value as a repair",
    ),
    Wrong(
        "activations.softplus",
        "F.softplus with a threshold of 40",
        a_large_threshold,
        says="without `F.softplus`",
    ),
    Wrong(
        "activations.softplus",
        "logsumexp of x and 0",
        softplus_of_a_stack,
        named="digits lost in 1 + t",
    ),
    Wrong("activations.gelu_grad", "central differences", gelu_by_differences),
    Wrong("activations.gelu_grad", "torch.func.grad", gelu_by_func, says="without autograd"),
    Wrong("activations.gelu_grad", "torch.func.jvp", gelu_by_jvp, says="without autograd"),
    Wrong(
        "activations.gelu_grad",
        "torch.func.grad in the tanh form",
        one_form_by_autograd,
        says="without autograd",
    ),
    Wrong(
        "activations.gelu_grad",
        "the operator gelu_backward",
        gelu_by_operator,
        says="without autograd",
    ),
    Wrong("activations.gelu_grad", "c = 0.0447", gelu_grad_with(c=0.0447)),
    Wrong("activations.gelu_grad", "sqrt(2/π) = 0.7979", gelu_grad_with(root=0.7979)),
    Wrong(
        "activations.gelu_grad",
        "u' = 1 + c x²",
        gelu_grad_with(inner=1.0),
        named="factor 3 forgotten in the inner derivative",
    ),
    Wrong("activations.gelu_grad", "no half before x", gelu_grad_with(half=1.0)),
    Wrong("activations.gelu_grad", "density of variance 1/2", density_of_another_variance),
    Wrong(
        "activations.gelu_grad",
        "the exact form for both",
        always_the_exact_form,
        named="the two names exchanged",
    ),
    Wrong(
        "activations.leaky_relu",
        "relu(x) − a relu(−x)",
        lambda x, negative_slope: F.relu(x) - negative_slope * F.relu(-x),
        named="two ReLUs",
    ),
    Wrong(
        "activations.leaky_relu",
        "two clamps",
        lambda x, negative_slope: x.clamp(min=0) + negative_slope * x.clamp(max=0),
        named="two clamps",
    ),
    Wrong(
        "activations.leaky_relu",
        "≥ at 0",
        lambda x, negative_slope: torch.where(x >= 0, x, negative_slope * x),
        named="the right side's slope at zero",
    ),
    Wrong("activations.leaky_relu", "a factor of the default dtype", leaky_by_a_factor),
    Wrong("activations.leaky_relu", "changes its argument", leaky_in_place),
    Wrong(
        "activations.leaky_relu",
        "F.leaky_relu",
        lambda x, negative_slope: F.leaky_relu(x, negative_slope),
        says="without `F.leaky_relu`",
    ),
    Wrong(
        "activations.leaky_relu",
        "max or min by the slope",
        lambda x, negative_slope: (
            torch.maximum(x, negative_slope * x)
            if negative_slope <= 1
            else torch.minimum(x, negative_slope * x)
        ),
        named="a maximum or a minimum, by the slope",
    ),
]


def tanh_by_where(x):
    right = torch.expm1(-2 * x.clamp(min=0))
    left = torch.expm1(2 * x.clamp(max=0))
    return torch.where(x > 0, -right / (right + 2), left / (left + 2))


def clamped_where_it_is_one(x):
    e = torch.expm1(2 * x.clamp(-20, 20))
    return e / (e + 2)


class TanhByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = torch.expm1(-2 * x.abs())
        y = torch.copysign(e / (e + 2), x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (1 - y) * (1 + y)


def softplus_by_where_and_clamps(x):
    right = x + torch.log1p(torch.exp(-x.clamp(min=0)))
    left = torch.log1p(torch.exp(x.clamp(max=0)))
    return torch.where(x > 0, right, left)


def softplus_beyond_forty(x):
    return torch.where(x > 40, x, torch.log1p(torch.exp(x.clamp(max=40))))


def gelu_grad_with_erf(x, approximate):
    if approximate != "tanh":
        cdf = (1 + torch.erf(x / 2**0.5)) / 2
        return cdf + x * torch.exp(-x.square() / 2) * (2 * torch.pi) ** -0.5
    t = torch.tanh((2 / torch.pi) ** 0.5 * x * (1 + 0.044715 * x.square()))
    du = (2 / torch.pi) ** 0.5 * torch.addcmul(torch.ones_like(x), x, x, value=0.134145)
    return torch.addcmul((1 + t) / 2, x / 2, (1 - t.square()) * du)


def gelu_grad_by_sigmoid(x, approximate):
    if approximate == "none":
        return gelu_grad_with_erf(x, approximate)
    a = 2 * (2 / math.pi) ** 0.5
    s = torch.sigmoid(a * (x + 0.044715 * x**3))
    return s + x * s * (1 - s) * a * (1 + 3 * 0.044715 * x**2)


def leaky_by_relu(x, negative_slope):
    return negative_slope * x + (1 - negative_slope) * F.relu(x)


def leaky_by_masked_fill(x, negative_slope):
    return x.mul(torch.full_like(x, negative_slope).masked_fill(x > 0, 1))


RIGHT = [
    Right("activations.tanh", "two sides that are clamped", tanh_by_where),
    Right("activations.tanh", "clamped where the result is 1", clamped_where_it_is_one),
    Right("activations.tanh", "its own backward pass", TanhByHand.apply),
    Right("activations.softplus", "two sides that are clamped", softplus_by_where_and_clamps),
    Right("activations.softplus", "x beyond 40", softplus_beyond_forty),
    Right("activations.gelu_grad", "erf and addcmul", gelu_grad_with_erf),
    Right("activations.gelu_grad", "the tanh as a sigmoid", gelu_grad_by_sigmoid),
    Right("activations.gelu_grad", "the tanh form by cosh", sech_by_cosh),
    Right("activations.leaky_relu", "a line and a relu", leaky_by_relu),
    Right("activations.leaky_relu", "a factor for each entry", leaky_by_masked_fill),
]
