"""Sizes and depths: an exponent to measure, a stream to estimate, an initialisation to design."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer
from book.checkers.questions import WrongNumber, number
from book.checkers.residual.common import draw

# --- exponent -------------------------------------------------------------------------------------

DEPTHS = (4, 8, 16, 32, 64)
WIDTH, TOKENS, DRAWS = 32, 8, 16


def _loss(x: Tensor, weights: Sequence[Tensor], seed: int) -> Tensor:
    """The cross-entropy of a random head above Pre-Norm layers with uniform attention."""

    def norm(t: Tensor) -> Tensor:
        return F.layer_norm(t, (WIDTH,))

    for value, out, up, down in weights:
        x = x + norm(x).mean(1, keepdim=True) @ value @ out
        x = x + (norm(x) @ up).relu() @ down
    logits = norm(x) @ (draw(DRAWS, WIDTH, WIDTH, seed=seed + 1) / WIDTH**0.5)
    loss: Tensor = (logits.logsumexp(2) - logits[:, :, 0]).mean(1).sum()
    return loss


@functools.cache
def _quotients(scaled: bool = True) -> dict[int, float]:
    """For each depth the gradient of the middle layer's W_1 over that of its W_2."""
    found = {}
    every = draw(DRAWS, DEPTHS[-1], 4, WIDTH, WIDTH, seed=71) / WIDTH**0.5
    rows = F.layer_norm(draw(DRAWS, TOKENS, WIDTH, seed=72), (WIDTH,))
    for depth in DEPTHS:
        weights = every[:, :depth].clone()
        if scaled:
            weights[:, :, 1::2] *= (2 * depth) ** -0.5  # of W_O and W_2
        weights.requires_grad_()
        layers = [layer.unbind(1) for layer in weights.unbind(1)]
        (grad,) = torch.autograd.grad(_loss(rows, layers, 73), weights)
        *_, up, down = grad[:, depth // 2].flatten(2).norm(dim=2).mean(0)
        found[depth] = float(up / down)
    return found


def _exponent(scaled: bool = True, log_depth: bool = True, log_value: bool = True) -> float:
    """The slope of the quotient over the depth, in the logarithms unless one is forgotten."""
    a, b = (
        torch.tensor([*t], dtype=torch.float64)
        for t in zip(*_quotients(scaled).items(), strict=True)
    )
    a, b = a.log() if log_depth else a, b.log() if log_value else b
    a = a - a.mean()
    return float(a @ b / (a @ a))


def _exchanged() -> float:
    """The slope of the depth over the quotient."""
    a, b = (
        torch.tensor([*t], dtype=torch.float64).log()
        for t in zip(*_quotients().items(), strict=True)
    )
    b = b - b.mean()
    return float(a @ b / (b @ b))


EXPONENT = number(
    "Measure the exponent",
    value=_exponent,
    within=0.18,
    because="The checker's own run found {value}. The gradient of W_1 comes through W_2, which the "
    "factor makes smaller by the root of 2L; that of W_2 is made of its input and of what arrives, "
    "and neither of them depends on the depth.",
    wrong=[
        WrongNumber(
            "the quotient turned round",
            "This is the exponent of W_2's gradient over W_1's. Divide W_1's by W_2's.",
            lambda: -_exponent(),
        ),
        WrongNumber(
            "the squared norms",
            "The square of a power law has twice its exponent. Take the norms themselves.",
            lambda: 2 * _exponent(),
        ),
        WrongNumber(
            "without the factor",
            "Without GPT-2's factor both matrices keep their size, and the quotient hardly changes "
            'with the depth. Take `drawn("scaled", L)`.',
            lambda: _exponent(scaled=False),
        ),
        WrongNumber(
            "logarithm of the values only",
            "That fits an exponential. A power law needs the logarithm of the depth as well.",
            lambda: _exponent(log_depth=False),
        ),
        WrongNumber(
            "logarithm of the depths only",
            "The values need a logarithm too, since c L^p is a product.",
            lambda: _exponent(log_value=False),
        ),
        WrongNumber(
            "coordinates exchanged",
            "This is the slope of log L over the log of the quotient. The depth is given, and the "
            "quotient is what is fitted.",
            _exchanged,
        ),
    ],
)


# --- init -----------------------------------------------------------------------------------------


def _init(num_layers: int, branches: int, v: float, top: float) -> float:
    return math.sqrt((top - 1) / (num_layers * branches * v))


def _init_by_search(num_layers: int, branches: int, v: float, top: float) -> float:
    """By bisection on the variance at the top."""

    def ends(factor: float) -> float:
        return 1 + sum(factor**2 * v for _ in range(num_layers * branches))

    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if ends(middle) < top else (low, middle)
    return high


def _init_case(name: str, *arguments: float) -> Case:
    return Case(name, lambda: arguments, 1e-9)


INIT = Exercise(
    "Design an initialisation",
    oracle=_init,
    cases=(
        _init_case("GPT-2's factor, 12 layers", 12, 2, 1.0, 2.0),
        _init_case("48 layers, branches of variance 0.7", 48, 2, 0.7, 2.0),
        _init_case("three branches a layer, up to 1.5", 6, 3, 0.5, 1.5),
        _init_case("one layer of one branch, up to 5", 1, 1, 2.0, 5.0),
        _init_case("a stream that may grow as it likes: factor 1", 5, 2, 1.0, 11.0),
    ),
    wrong=(
        WrongAnswer(
            "root forgotten",
            "A factor on a matrix multiplies the variance of the branch by its square.",
            lambda n, b, v, top: (top - 1) / (n * b * v),
        ),
        WrongAnswer(
            "one branch a layer",
            "Each layer adds several times; all branches of the stack share the variance.",
            lambda n, b, v, top: math.sqrt((top - 1) / (n * v)),
        ),
        WrongAnswer(
            "the input forgotten",
            "The stream starts with variance 1. The branches may add what is missing to `top`.",
            lambda n, b, v, top: math.sqrt(top / (n * b * v)),
        ),
        WrongAnswer(
            "the branch's own variance forgotten",
            "A branch adds `v` before it is scaled, which need not be 1.",
            lambda n, b, v, top: math.sqrt((top - 1) / (n * b)),
        ),
        WrongAnswer(
            "GPT-2's factor for all",
            "One over the root of the number of branches fits `v = 1` and `top = 2` only.",
            lambda n, b, v, top: (n * b) ** -0.5,
        ),
        WrongAnswer(
            "the reciprocal",
            "Deeper stacks need smaller factors, not larger ones.",
            lambda n, b, v, top: math.sqrt(n * b * v / (top - 1)),
        ),
        WrongAnswer(
            "v multiplied",
            "Branches with a larger variance of their own need a smaller factor.",
            lambda n, b, v, top: math.sqrt((top - 1) * v / (n * b)),
        ),
    ),
    variants=(_init_by_search,),
)


# --- deep -----------------------------------------------------------------------------------------


def _reaches(share: Callable[[int], float], total: float = 6.0) -> float:
    """The number of the first branch at which the shares add up to a total."""
    found, branch = 0.0, 0
    while found < total:
        branch += 1
        found += share(branch)
    return float(branch)


def _deep() -> float:
    return _reaches(lambda k: 1 / (1 + k))


DEEP = number(
    "How deep may Pre-Norm be?",
    value=_deep,
    within=0.001,  # less than one sub-layer
    because="{value} sub-layers, or some 300 layers, change the output as much as 12 sub-layers in "
    "Post-Norm, by this estimate: the harmonic numbers grow like a logarithm.",
    wrong=[
        WrongNumber(
            "the bound in place of the sum",
            "The logarithm is a bound from above: it reaches 6 where the sum is still below.",
            lambda: float(math.ceil(math.expm1(6))),
        ),
        WrongNumber(
            "the bound in place of the sum, rounded down",
            "e to the power of 6, less 1, is where the logarithm reaches 6. It is a bound from "
            "above: the sum is still below 6 there.",
            lambda: float(math.floor(math.expm1(6))),
        ),
        WrongNumber(
            "a first share of 1",
            "The input has variance 1 too, so the first branch is one half of the stream, not all "
            "of it.",
            lambda: _reaches(lambda k: 1 / k),
        ),
        WrongNumber(
            "the input counted as a branch",
            "The 1 at the beginning of the harmonic numbers stands for the input, which does not "
            "change.",
            lambda: _deep() + 1,
        ),
        WrongNumber(
            "the last one below",
            "There the sum is still below 6. Asked for is the first number that reaches it.",
            lambda: _deep() - 1,
        ),
        WrongNumber(
            "layers in place of sub-layers",
            "That is the number of layers. Each has two sub-layers.",
            lambda: float(math.ceil(_deep() / 2)),
        ),
        WrongNumber(
            "Post-Norm's shares",
            "In Pre-Norm the shares shrink, because the stream grows; only the first one is 1/2.",
            lambda: _reaches(lambda k: 1 / 2),
        ),
        WrongNumber(
            "twice as many",
            "The shares are smaller than half of Post-Norm's after the first few branches, and "
            "shrink on.",
            lambda: 24.0,
        ),
    ],
)
