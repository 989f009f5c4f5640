"""Leaky ReLU for every slope."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.activations.common import scalar_cases
from book.checkers.core import Exercise, Rule, WrongAnswer

# --- leaky_relu -----------------------------------------------------------------------------------


def _leaky_relu(x: Tensor, negative_slope: float) -> Tensor:
    return F.leaky_relu(x, negative_slope)


LEAKY_CASES = [
    replace(case, name=f"{case.name}, slope {slope:g}")
    for slope in (0.01, -0.5, 2.0)
    for case in scalar_cases(slope)
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
