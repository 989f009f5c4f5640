"""What is said before it is computed: equal scores, a long turn, values that are turned."""

from __future__ import annotations

import math

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

WAVELENGTH = number(
    "How long is the longest turn?",
    value=lambda: 2 * math.pi * 10_000 ** (126 / 128),
    within=0.03,
    because="The slowest pair is number 63, with 10,000 to the power of -126/128 radians a "
    "position: a turn takes {value} positions.",
    wrong=[
        WrongNumber(
            "the base itself",
            "After 10,000 positions it has turned by little more than one radian, and a turn has "
            "2 pi.",
            lambda: 10_000.0,
        ),
        WrongNumber(
            "radians for turns",
            "That many positions turn it by one radian. A full turn is 2 pi of them.",
            lambda: 10_000 ** (126 / 128),
        ),
        WrongNumber(
            "one pair too many",
            "Pairs are counted from 0, so the last of 64 has the exponent 126/128, not 1.",
            lambda: 2 * math.pi * 10_000,
        ),
        WrongNumber(
            "the fastest pair",
            "That is pair 0, which comes round after 6.3 positions.",
            lambda: 2 * math.pi,
        ),
    ],
)

VALUES = choice(
    "Turn the values too?",
    right="B",
    because="The weights stay as they are, and each value is turned by the angle of its own "
    "position, with nothing that turns it back. Moved by 40 positions, the output is turned by 40 "
    "steps.",
    tempting={
        "A": (
            "all is turned alike",
            "In a score the two rotations meet, and the common part cancels. The output is a sum "
            "of values, where none meets another.",
        ),
        "C": (
            "the weights",
            "The weights depend on the distances only, and these stay.",
        ),
        "D": (
            "the length",
            "The other way round: a rotation keeps the length, and the direction changes.",
        ),
    },
)
