"""Questions: where two forms of GELU differ, what a leak saves, and what a gain does."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from book.checkers.questions import WrongNumber, choice, number


def _largest_difference() -> float:
    grid = torch.arange(1, 60_001, dtype=torch.float64) / 10_000
    gaps = (F.gelu(grid) - F.gelu(grid, approximate="tanh")).abs()
    return grid[gaps.argmax()].item()


DIFFER = number(
    "Would a test notice?",
    value=_largest_difference,
    within=0.02,
    because="They differ most at {value}, by less than 5e-4, so a tolerance of 1e-3 notices "
    "nothing.",
    wrong=[
        WrongNumber(
            "the largest difference instead of its place",
            "That is how much they differ. Asked for is where.",
            lambda: 4.7e-4,
        ),
        WrongNumber(
            "the smaller hill",
            "The difference has a hill near 0.8 as well, but the one farther out is higher.",
            lambda: 0.8,
        ),
        WrongNumber(
            "the end of a table",
            "Far out both forms are x itself, to all digits. The place lies between.",
            lambda: 6.0,
        ),
        WrongNumber(
            "at zero",
            "At 0 both are 0: the two forms were made to agree there.",
            lambda: 0.0,
        ),
    ],
)

LEAK = choice(
    "Does a leak keep units alive?",
    right="C",
    because=(
        "On average nearly as many end there. Left of the bend at every input, such a unit is a "
        "straight line; its gradient says how to change the line, and does not point to the bend."
    ),
    tempting={
        "A": (
            "any gradient brings a unit back",
            "A gradient does pass, but it is that of a straight line, and need not point to the "
            "bend. Count the units whose pre-activations are negative at every input.",
        ),
        "B": (
            "some come back",
            "In some of the five networks there are fewer than with ReLU, in others more. Take "
            "the mean of all five.",
        ),
        "D": (
            "nothing stops the fall",
            "The gradient that leaks through may push the bias up as well as down. Count in all "
            "five networks.",
        ),
    },
)

GAIN = number(
    "The gain of a squared ReLU",
    value=lambda: 4 / 3,
    within=0.02,
    because="The values have the mean square 3/2 and the slopes 2, so the factor is {value}: more "
    "than with any function of the chapter, since large inputs have a large slope.",
    wrong=[
        WrongNumber(
            "as with ReLU",
            "The factor of 1 needs values that are the input times the slope. Here the slope is "
            "twice the input, and the value half of their product.",
            lambda: 1.0,
        ),
        WrongNumber(
            "the square of the gain alone",
            "2/3 is the square of the gain. It is multiplied by the mean square of the slope.",
            lambda: 2 / 3,
        ),
        WrongNumber(
            "the slope alone",
            "2 is the mean square of the slope. The weights bring the square of the gain, 2/3.",
            lambda: 2.0,
        ),
        WrongNumber(
            "the size instead of the mean square",
            "That is the factor of the size of a gradient. Asked for is that of its mean square.",
            lambda: (4 / 3) ** 0.5,
        ),
    ],
)
