"""Chapter 03: a loss before training, and the temperature at which one is smallest after it."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.questions import WrongNumber, number

FIRST_LOSS = number(
    "The first number",
    value=lambda: math.log(50_257),
    within=0.01,
    because="A model without knowledge gives each of the 50,257 tokens about the same share, and "
    "the surprise of one of them is ln 50,257 = {value}.",
    wrong=[
        WrongNumber(
            "in bits",
            "With the natural logarithm a loss is in nats.",
            lambda: math.log2(50_257),
        ),
        WrongNumber(
            "the logarithm to the base ten",
            "With the natural logarithm a loss is in nats.",
            lambda: math.log10(50_257),
        ),
        WrongNumber(
            "the probability",
            "That is the share of each token. The loss is its negative logarithm.",
            lambda: 1 / 50_257,
        ),
        WrongNumber(
            "no loss",
            "A loss of zero needs a model that is certain and right.",
            lambda: 0.0,
        ),
        WrongNumber(
            "the perplexity",
            "That is e to the power of the loss: as many candidates as there are tokens.",
            lambda: 50_257.0,
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
