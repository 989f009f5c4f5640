"""Leaky ReLU, and units that are dead."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.activations.common import draw, scalar_cases
from book.checkers.core import Case, Exercise, Rule, WrongAnswer

# --- leaky_relu and dead_units --------------------------------------------------------------------


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


def _dead_units(pre: Tensor) -> int:
    leaf = pre.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.relu(leaf).sum(), leaf)
    return int((slope.flatten(0, -2).amax(0) == 0).sum())


def _with_dead(*shape: int, dead: int, seed: int = 0) -> Tensor:
    """Pre-activations of which the first `dead` units are below zero everywhere."""
    pre = draw(*shape, seed=seed)
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
