"""What is said before it is computed: equal scores, and values that are turned."""

from __future__ import annotations

from book.checkers.questions import choice

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

VALUES = choice(
    "Turn the values too?",
    right="B",
    because="The weights stay as they are, and each value is turned by the angle of its own "
    "position, with nothing in plain attention that turns it back. Moved by 40 positions, the "
    "output is turned by 40 steps.",
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
