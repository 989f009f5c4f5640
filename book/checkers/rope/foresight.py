"""What is said before it is computed: equal scores, full turns, and values that are turned."""

from __future__ import annotations

import math
from collections.abc import Callable

from book.checkers.questions import WrongNumber, choice, number

EQUAL = choice(
    "Which scores are equal?",
    right="A",
    because="From (5, 3) to (12, 10) both arrows turn by the same angle. For (3, 5) the angle of "
    "60 degrees is on the other side: 20 and 60 degrees are added in the one case and subtracted "
    "in the other.",
    tempting={
        "B": (
            "only the size of the distance counts",
            "The distance has a sign. With two different rows before and after give different "
            "scores, and a model can use that.",
        ),
        "C": (
            "where it stands counts, and the direction does not",
            "It is the other way round: what both have in common cancels, and the sign of the "
            "distance stays.",
        ),
        "D": (
            "every place has a score of its own",
            "That is so for positions that are added. Turned by the same angle, the two arrows "
            "keep the angle between them.",
        ),
    },
)


def _wavelength(pair: int, base: float) -> float:
    """The positions in a full turn, step by step from the fastest pair on."""
    length = 2 * math.pi
    for _ in range(pair):
        length *= base ** (2 / 128)
    return length


def _full(base: float, wavelength: Callable[[int, float], float] = _wavelength) -> float:
    """How many of 64 pairs complete a turn within 4,096 positions."""
    return float(sum(wavelength(pair, base) <= 4096 for pair in range(64)))


REACH = number(
    "Which pairs come round?",
    value=lambda: _full(1e6),
    within=0.001,
    because="Of the 46 pairs that complete a turn with base 10000, {value} still do with 1000000, "
    "and 15 do not any longer.",
    wrong=[
        WrongNumber(
            "the smaller base",
            "So many pairs complete a turn with base 10000. The larger base slows all pairs but "
            "the first.",
            lambda: _full(1e4),
        ),
        WrongNumber(
            "pair 0 forgotten",
            "The pairs are numbered from 0: there is one more of them than the number of the last.",
            lambda: _full(1e6) - 1,
        ),
        WrongNumber(
            "the pairs that are lost",
            "So many complete a turn with the smaller base and no longer with the larger one. "
            "Asked for are those that still do.",
            lambda: _full(1e4) - _full(1e6),
        ),
        WrongNumber(
            "the pairs that the larger base leaves out",
            "These do not complete a turn with base 1000000. Asked for are those that do.",
            lambda: 64 - _full(1e6),
        ),
        WrongNumber(
            "2π forgotten",
            "A turn is 2π radians, so the wavelength is 2π over the frequency, and not 1 over it.",
            lambda: _full(1e6, lambda k, b: b ** (k / 64)),
        ),
        WrongNumber(
            "the 2 of the exponent forgotten",
            "Pair k turns by b to the power of -2k/d. Without the 2 nearly all pairs come round.",
            lambda: _full(1e6, lambda k, b: 2 * math.pi * b ** (k / 128)),
        ),
    ],
)

VALUES = choice(
    "Turn the values too?",
    right="B",
    because="The weights stay as they are, and every value is turned by 40 steps more than before. "
    "A turn goes through a weighted sum, so each row of the output is turned by 40 steps as well, "
    "and nothing in plain attention turns it back.",
    tempting={
        "A": (
            "as in a score",
            "In a score two rotations meet, and the common part cancels. The output is a sum of "
            "values, where none meets another.",
        ),
        "C": (
            "another length",
            "The angles between the values are what they were: all are turned by 40 steps more, "
            "so their sum is too, and its length stays.",
        ),
        "D": (
            "the weights",
            "The weights depend on the distances only, and these stay.",
        ),
    },
)
