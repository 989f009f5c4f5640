"""Questions: two forms of GELU, two inputs of SiLU, what a leak saves, and what a gain does."""

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


def _other_input() -> float:
    """Where SiLU has the value at -0.5 once more, by halving an interval left of the minimum."""
    value = F.silu(torch.tensor(-0.5, dtype=torch.float64))
    low, high = torch.tensor([-20.0, -1.3], dtype=torch.float64)
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if F.silu(mid) > value else (low, mid)
    return float(mid)


OTHER = number(
    "Does the output suffice?",
    value=_other_input,
    within=0.01,
    because="SiLU has the same value at {value}, where it falls; at -0.5 it rises. So the output "
    "alone does not say what a gradient is multiplied by.",
    wrong=[
        WrongNumber(
            "the input that was given",
            "That is the input that was given. SiLU has the same value once more, left of its "
            "minimum.",
            lambda: -0.5,
        ),
        WrongNumber(
            "the mirror image",
            "SiLU is not even: at 0.5 it is positive.",
            lambda: 0.5,
        ),
        WrongNumber(
            "the minimum",
            "That is where SiLU is smallest. The other input lies left of it.",
            lambda: -1.2785,
        ),
        WrongNumber(
            "mirrored at the minimum",
            "SiLU is not symmetric about its minimum: on the left it returns more slowly.",
            lambda: -2.057,
        ),
        WrongNumber(
            "the value",
            "That is the value at -0.5. Asked for is another input that has it.",
            lambda: -0.18877,
        ),
        WrongNumber(
            "GELU in place of SiLU",
            "There GELU has the value that it has at -0.5. SiLU is x times the sigmoid.",
            lambda: -1.0493,
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
