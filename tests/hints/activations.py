"""Chapter 06: what its exercises and questions print, and from where it is known."""

import math

import sympy
import torch
import torch.nn.functional as F

from book.formulas.relations import Call

from .texts import Code, Entries, Formula, LeftOut, oracle, row

X = row(-1.4, -0.3, 0.6, 2.1)
E = {"e": math.e}
POWERS = "a range, compared with the cases as a constant"


def sigmoid():
    x = 0.8
    return {**E, "x": x, "s": 1 - 1 / (1 + math.exp(x)), "f": torch.sigmoid,
            r"\operatorname{sigmoid}": torch.sigmoid}  # fmt: skip


def inner():
    """What stands in the tanh of torch's GELU, from its values."""

    def u(x):
        return (2 * F.gelu(x, approximate="tanh") / x - 1).atanh()

    return {"u": u, "x": 0.7, "c": 0.044715, r"\pi": math.pi}


def fitted():
    """The constant that matches the third order of the normal distribution function."""
    x, c = sympy.symbols("x c")
    form = sympy.sqrt(2 / sympy.pi) * (x + c * x**3)
    gap = sympy.series(sympy.erf(x / sympy.sqrt(2)), x, 0, 4).removeO() - (form - form**3 / 3)
    [root] = sympy.solve(sympy.expand(gap).coeff(x, 3), c)
    return Call({"c": float(root), r"\pi": math.pi}, approx=2e-3)


def swish(x, beta):
    """Swish from torch's SiLU, which is stretched."""
    return F.silu(beta * x) / beta


SWISH = {r"\operatorname{Swish}": swish, "x": 1.7, r"\beta": 1.0}


def at(value):
    return {**E, "x": value, "s": 1 / (1 + math.exp(-value))}


def stationary(beta):
    """The place where the slope of Swish changes its sign."""
    x = torch.linspace(-20, 20, 40001, dtype=torch.float64)
    slope = torch.func.vmap(torch.func.grad(lambda x: swish(x, beta)))(x)
    [place] = x[:-1][slope[:-1].sign() * slope[1:].sign() < 0]
    return {"a": place, r"\beta": beta}


ENTRIES: Entries = {
    ("ex-act-tanh", "10^{-8}"): LeftOut(POWERS),
    ("ex-act-tanh", "10^4"): LeftOut(POWERS),
    ("ex-act-tanh", "e^x-1"): Formula(
        lambda: {**E, "x": 0.4, "y": math.expm1(0.4)}, claim="y=@0"
    ),
    ("ex-act-softplus", r"\log(1+e^x)"): Formula(
        lambda: {**E, "x": X[2], "y": oracle("activations.softplus")(X[2])}, claim="y=@0"
    ),
    ("ex-act-softplus", "-10^4"): LeftOut(POWERS),
    ("ex-act-softplus", "10^4"): LeftOut(POWERS),
    ("ex-act-gelu-grad", "F.gelu(x, approximate=approximate)"): Code(
        lambda: ({"x": X.clone().requires_grad_(), "approximate": "tanh"},
                 oracle("activations.gelu_grad")(X, "tanh")),
        ("F.gelu(x)", "F.silu(x)"),
        of=lambda y, names: torch.autograd.grad(y.sum(), names["x"])[0],
    ),
    ("ex-act-gelu-grad", "u(x)", r"u'(x)=\sqrt{2/\pi}\,(1+3cx^2)"): Formula(
        inner, claim=r"@1,\qquad @0=\sqrt{2/\pi}(x+cx^3)"
    ),
    ("ex-act-differ", "10^{-3}", "10^{-4}"): LeftOut("the tolerances that are asked about"),
    ("ex-act-differ", "F.gelu(x)"): Code(
        lambda: ({"x": X}, X * torch.special.ndtr(X)),
        ("F.silu(x)", 'F.gelu(x, approximate="tanh")'),
    ),
    ("ex-act-differ", 'F.gelu(x, approximate="tanh")'): Code(
        lambda: (
            {"x": X},
            X / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
        ),
        ("F.gelu(x)", "F.silu(x)"),
    ),
    ("ex-act-gain", r"\max(x,0)^2"): Formula(
        lambda: {"x": 0.7, "y": 0.49}, claim="y=@0"
    ),
    ("ex-act-gain", r"\mathbb E[z^2]=1", r"\mathbb E[z^4]=3", "z"): LeftOut(
        "two moments of the normal distribution that are given"
    ),
    ("ex-act-leaky", "torch.maximum(x, negative_slope * x)"): Code(
        lambda: ({"x": X, "negative_slope": 0.2}, oracle("activations.leaky_relu")(X, 0.2)),
        ("torch.minimum(x, negative_slope * x)", "torch.maximum(x, -negative_slope * x)",
         "torch.maximum(x, negative_slope + x)"),
    ),
    (
        "Derive the derivative of the sigmoid, and bound it.",
        r"e^{-x}/(1+e^{-x})^2=\operatorname{sigmoid}(x)\operatorname{sigmoid}(-x)=s(1-s)",
        r"\frac14-(s-\frac12)^2",
    ): Formula(sigmoid, claim="f'(x)=@0=@1", says=("That is",)),
    ("Where does GELU come from?", r"x\,P(Z\le x)=x\Phi(x)"): LeftOut(
        "the probability of an event is no value of a function; it defines the letter on the right"
    ),
    ("Where does 0.044715 come from?", r"(4-\pi)/(6\pi)\approx0.0455"): Formula(
        fitted, claim="c=@0", says=("Matching the $x^3$ term",)
    ),
    (
        "What is the difference between SiLU and Swish?",
        r"\operatorname{Swish}_\beta(x)=x\operatorname{sigmoid}(\beta x)", r"\beta=1",
    ): Formula(
        lambda: Call({**SWISH, r"\operatorname{sigmoid}": torch.sigmoid,
                      r"\operatorname{SiLU}": F.silu},
                     draws=[{r"\beta": 0.6}, {"x": -0.8, r"\beta": 2.5}]),
        claim=r"@0,\qquad\operatorname{SiLU}(x)=\operatorname{Swish}_\beta(x)\iff @1",
    ),
    ("What is the difference between SiLU and Swish?", r"\beta\to0", "x/2"): Formula(
        lambda: Call(SWISH, limit={r"\beta": [1e-2, 1e-4, 1e-6, 1e-8]}),
        claim=r"\operatorname{Swish}_\beta(x)\xrightarrow{@0}@1",
    ),
    ("What is the difference between SiLU and Swish?", r"\beta\to\infty"): Formula(
        lambda: Call({**SWISH, r"\operatorname{ReLU}": F.relu}, draws=[{"x": -0.9}],
                     limit={r"\beta": [5.0, 10.0, 20.0, 40.0]}),
        claim=r"\operatorname{Swish}_\beta(x)\xrightarrow{@0}\operatorname{ReLU}(x)",
        true={
            r"\operatorname{Swish}_{\beta+1}(x)\xrightarrow{\beta\to\infty}"
            r"\operatorname{ReLU}(x)": "one more is as large"
        },
    ),
    ("Write a sigmoid that cannot overflow.", r"x\ge0", "1/(1+e^{-x})"): Formula(
        lambda: at(0.7), claim=r"s=@1\text{ for }@0"
    ),
    ("Write a sigmoid that cannot overflow.", "x<0", "e^x/(1+e^x)"): Formula(
        lambda: at(-0.7), claim=r"s=@1\text{ for }@0"
    ),
    ("Which of these functions are not monotone?", r"\beta>0"): Formula(
        lambda: Call(stationary(1.3), draws=[stationary(0.4), stationary(-0.7), stationary(-2.0)]),
        claim=r"a<0\iff@0",
        says=("has one minimum left of zero",),
    ),
}  # fmt: skip
