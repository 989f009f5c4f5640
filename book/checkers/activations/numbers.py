"""Numbers: where two forms of GELU differ, and for which inputs a unit is on."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from book.checkers.questions import WrongNumber, number


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

SHARE = number(
    "For how many inputs is it on?",
    value=lambda: 0.25,
    within=0.01,
    because="The unit is on for x > 1, a piece of length 1 of an interval of length 4, which is "
    "{value}. With the bias -5 it is on for no input of that interval: it is dead.",
    wrong=[
        WrongNumber(
            "half of the inputs",
            "That is so for the bias 0. The bias moves the bend to x = 1.",
            lambda: 0.5,
        ),
        WrongNumber(
            "the share that is off",
            "For x < 1 the slope is 0 and no gradient passes.",
            lambda: 0.75,
        ),
        WrongNumber(
            "the length of the piece",
            "The piece has length 1, and the interval length 4.",
            lambda: 1.0,
        ),
    ],
)
