"""Chapter 03: two halves of a row, and the temperature at which a loss is smallest."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.questions import WrongNumber, number

# the maximum, the sum and the output of two halves of a row
_HALVES = ((4.0, 1.5, 3.0), (6.0, 1.2, 6.0))


def _merged(*, scale_sums: bool = True, scale_outputs: bool = True, swapped: bool = False) -> float:
    """The average over both halves; a wrong one, where a factor is left out or stands elsewhere."""
    m = torch.tensor([half[0] for half in _HALVES], dtype=torch.float64)
    s = torch.tensor([half[1] for half in _HALVES], dtype=torch.float64)
    o = torch.tensor([half[2] for half in _HALVES], dtype=torch.float64)
    factor = (m - m.max()).exp()
    factor = factor.flip(0) if swapped else factor
    one = torch.ones_like(factor)
    sums = torch.dot(s, factor if scale_sums else one)
    return (torch.dot(o, factor if scale_outputs else one) / sums).item()


MERGE = number(
    "Two halves of a row",
    value=_merged,
    within=0.01,
    because="Measured from 6, the first half shrinks by e to the power of −2, its sum and its "
    "output alike, and the quotient of the outputs by the sums is {value}.",
    wrong=[
        WrongNumber(
            "added as reported",
            "The two halves were measured from different maxima. Measure both from the larger one "
            "before they are added.",
            lambda: _merged(scale_sums=False, scale_outputs=False),
        ),
        WrongNumber(
            "the mean of the two averages",
            "The half with the larger maximum has more of the weight, so it counts for more.",
            lambda: sum(o / s for _, s, o in _HALVES) / 2,
        ),
        WrongNumber(
            "the factor on the other half",
            "The half with the smaller maximum shrinks, and the other one stays.",
            lambda: _merged(swapped=True),
        ),
        WrongNumber(
            "only the sum rescaled",
            "The output is measured from the same maximum as the sum, so both shrink.",
            lambda: _merged(scale_outputs=False),
        ),
        WrongNumber(
            "only the output rescaled",
            "The sum is measured from the same maximum as the output, so both shrink.",
            lambda: _merged(scale_sums=False),
        ),
        WrongNumber(
            "the half with the larger maximum alone",
            "The other half has less weight, but not none.",
            lambda: _HALVES[1][2] / _HALVES[1][1],
        ),
    ],
)


# --- calibration ----------------------------------------------------------------------------------


def _points(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """The points of the chapter: twenty features, of which two lie around the class's center."""
    drawn = torch.Generator().manual_seed(seed)
    centers = torch.tensor([[0.0, 1.5], [-1.3, -0.75], [1.3, -0.75]], dtype=torch.float64)
    right = torch.arange(count) % 3
    x = torch.randn(count, 20, generator=drawn, dtype=torch.float64)
    return x + F.pad(centers[right], (0, 18)), right


@functools.cache
def _trained() -> torch.nn.Linear:
    """The classifier of the chapter, by torch's own layer, loss and optimiser."""
    x, right = _points(0, 60)
    layer = torch.nn.Linear(20, 3, dtype=torch.float64)
    for part in layer.parameters():
        torch.nn.init.zeros_(part)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    with torch.enable_grad():
        for _ in range(300):
            optimizer.zero_grad()
            F.cross_entropy(layer(x), right).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return layer.requires_grad_(False)


@functools.cache
def _best_temperature(seed: int, count: int) -> float:
    """Where the loss on these points is smallest, among temperatures from 0.1 to 20."""
    x, right = _points(seed, count)
    scores = _trained()(x)
    taus = torch.logspace(-1, math.log10(20), 800, dtype=torch.float64).tolist()
    return float(min(taus, key=lambda tau: F.cross_entropy(scores / tau, right).item()))


def _least() -> float:
    x, right = _points(100, 600)
    return F.cross_entropy(_trained()(x) / _best_temperature(100, 600), right).item()


CALIBRATION = number(
    "How sure may it be?",
    value=lambda: _best_temperature(100, 600),
    within=0.05,
    because="The loss is smallest at about {value}. There as many answers are right as at the "
    "temperature 1, because a division leaves the largest score the largest; but the model is no "
    "longer too sure of them.",
    wrong=[
        WrongNumber(
            "as it was trained",
            "At the temperature 1 the model is too sure of its answers. Measure the loss on the "
            "held-out points at other temperatures.",
            lambda: 1.0,
        ),
        WrongNumber(
            "the inverse",
            "The scores are divided by the temperature. This is the number they are multiplied "
            "with.",
            lambda: 1 / _best_temperature(100, 600),
        ),
        WrongNumber(
            "on the points of the training",
            "On the points of the training all answers are right, and the lowest temperature has "
            "the smallest loss. Take the held-out points.",
            lambda: _best_temperature(0, 60),
        ),
        WrongNumber(
            "the smallest loss",
            "That is the loss at the best temperature. The temperature itself is asked for.",
            _least,
        ),
        WrongNumber(
            "the largest temperature",
            "At 10 the shares are nearly equal, and the model says less than it knows.",
            lambda: 10.0,
        ),
    ],
)
