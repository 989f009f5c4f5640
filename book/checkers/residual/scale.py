"""Sizes and depths: an exponent to measure, a stream to estimate, an initialisation to design."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer
from book.checkers.questions import WrongNumber, number
from book.checkers.residual.common import draw

# --- exponent -------------------------------------------------------------------------------------


def _fit(a: Tensor, b: Tensor) -> float:
    a = a - a.mean()
    return float(a @ b / (a @ a))


def _exponent(depths: Tensor, values: Tensor) -> float:
    return _fit(depths.log(), values.log())


def _exponent_by_lstsq(depths: Tensor, values: Tensor) -> float:
    design = torch.stack([torch.ones_like(depths), depths.log2()], 1)
    return float(torch.linalg.lstsq(design, values.log2()[:, None]).solution[1])


def _exponent_case(name: str, power: float, noise: float, *depths: float) -> Case:
    def inputs() -> tuple[Any, ...]:
        at = torch.tensor(depths, dtype=torch.float64)
        return at, 3.7 * at**power * (noise * draw(len(depths))).exp()

    return Case(name, inputs, 1e-9)


EXPONENT = Exercise(
    "Fit the exponent",
    oracle=_exponent,
    cases=(
        _exponent_case("an exact root, falling", -0.5, 0.0, 1, 2, 4, 8, 16),
        _exponent_case("an exact square", 2.0, 0.0, 3, 5, 7),
        _exponent_case("a falling root with noise", -0.5, 0.2, 1, 2, 4, 8, 16, 32, 64),
        _exponent_case("no dependence, with noise", 0.0, 0.2, 2, 6, 12, 24),
        _exponent_case("depths out of order", -0.5, 0.3, 16, 2, 64, 8),
        _exponent_case("two points", 1.5, 0.1, 6, 12),
    ),
    wrong=(
        WrongAnswer(
            "no logarithms",
            "A power law is a straight line in the logarithms of both, not in the numbers.",
            _fit,
        ),
        WrongAnswer(
            "logarithm of the values only",
            "That fits an exponential. A power law needs the logarithm of the depth as well.",
            lambda depths, values: _fit(depths, values.log()),
        ),
        WrongAnswer(
            "logarithm of the depths only",
            "The values need a logarithm too, since c L^p is a product.",
            lambda depths, values: _fit(depths.log(), values),
        ),
        WrongAnswer(
            "no intercept",
            "The constant c is log c in the line. Forced through the origin, the line has "
            "another slope.",
            lambda depths, values: (
                (depths.log() @ values.log()) / (depths.log() @ depths.log())
            ).item(),
        ),
        WrongAnswer(
            "first and last point only",
            "Two points ignore what was measured in between. Least squares uses all of them.",
            lambda depths, values: (
                (values[-1] / values[0]).log() / (depths[-1] / depths[0]).log()
            ).item(),
        ),
        WrongAnswer(
            "coordinates exchanged",
            "This is the slope of log L over log value. The depth is given, and the value is "
            "what is fitted.",
            lambda depths, values: _fit(values.log(), depths.log()),
        ),
        WrongAnswer(
            "sign turned round",
            "Values that fall with depth have a negative exponent.",
            lambda depths, values: -_exponent(depths, values),
        ),
        WrongAnswer(
            "divided by the number of points",
            "Least squares divides the covariance by the variance of log L, so that the number "
            "of points drops out.",
            lambda depths, values: _exponent(depths, values) / len(depths),
        ),
    ),
    variants=(_exponent_by_lstsq,),
)


# --- whisper --------------------------------------------------------------------------------------


def _whispers() -> float:
    """By adding branch after branch, in whole numbers."""
    variance, layers = 1, 0
    while not layers or variance <= 100:
        variance, layers = variance + 2, layers + 1
    return float(layers)


WHISPER = number(
    "When a layer whispers",
    value=_whispers,
    within=0.002,
    because="After {value} layers there are 101 equal variances, and the newest is one of them.",
    wrong=[
        WrongNumber(
            "branches in place of layers",
            "That is the number of branches. A layer has two.",
            lambda: 2 * _whispers(),
        ),
        WrongNumber(
            "the input forgotten",
            "The input is one more of the equal variances: after S branches there are 1 + S.",
            lambda: _whispers() + 1,
        ),
        WrongNumber(
            "one branch a layer",
            "Attention and the feed-forward layer add both, so a layer adds 2.",
            lambda: 2 * _whispers() - 1,
        ),
        WrongNumber(
            "the input's share in Post-Norm",
            "Halving with each branch is what happens to the input without a norm, and in "
            "Post-Norm. In Pre-Norm all shares are equal.",
            lambda: 4.0,
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


def _changed(change: Callable[[int, int, float, float], float]) -> Callable[..., float]:
    return lambda num_layers, branches, v, top: change(num_layers, branches, v, top)


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
            _changed(lambda n, b, v, top: (top - 1) / (n * b * v)),
        ),
        WrongAnswer(
            "one branch a layer",
            "Each layer adds several times; all branches of the stack share the variance.",
            _changed(lambda n, b, v, top: math.sqrt((top - 1) / (n * v))),
        ),
        WrongAnswer(
            "the input forgotten",
            "The stream starts with variance 1. The branches may add what is missing to `top`.",
            _changed(lambda n, b, v, top: math.sqrt(top / (n * b * v))),
        ),
        WrongAnswer(
            "the branch's own variance forgotten",
            "A branch adds `v` before it is scaled, which need not be 1.",
            _changed(lambda n, b, v, top: math.sqrt((top - 1) / (n * b))),
        ),
        WrongAnswer(
            "GPT-2's factor for all",
            "One over the root of the number of branches fits `v = 1` and `top = 2` only.",
            _changed(lambda n, b, v, top: (n * b) ** -0.5),
        ),
        WrongAnswer(
            "the reciprocal",
            "Deeper stacks need smaller factors, not larger ones.",
            _changed(lambda n, b, v, top: math.sqrt(n * b * v / (top - 1))),
        ),
        WrongAnswer(
            "v multiplied",
            "Branches with a larger variance of their own need a smaller factor.",
            _changed(lambda n, b, v, top: math.sqrt((top - 1) * v / (n * b))),
        ),
    ),
    variants=(_init_by_search,),
)
