"""What is said or estimated before it is computed."""

from __future__ import annotations

import math

from book.checkers.questions import WrongNumber, choice, number

WHEELS = choice(
    "Three wheels and 1749",
    right="B",
    because="Half a step of the last wheel is now all that tells neighbours apart, where it was a "
    "whole one. With more digits on each wheel the last one still moves by a whole step.",
    tempting={
        "A": (
            "a wheel that never turned",
            "The fourth wheel is new and nobody has learned to read it, but the other three show "
            "neighbours as before.",
        ),
        "C": (
            "more digits on a wheel",
            "The digits stand closer on the wheel, but the last wheel still goes on by one digit "
            "from a number to the next.",
        ),
        "D": (
            "all the same",
            "Only one of the three changes what the last wheel does from one number to the next.",
        ),
    },
)

SQUEEZED = choice(
    "What does squeezing break?",
    right="A",
    because="Three positions back now looks like three quarters of one, so the near questions are "
    "answered wrongly everywhere, even at positions that the reader was trained on. A far match "
    "scores high at every distance that was seen, so it does not matter to which of them a new "
    "distance is squeezed.",
    tempting={
        "B": (
            "far means unseen",
            "Squeezed, the farthest position has an angle that was met in training. It is the near "
            "ones whose angles have moved.",
        ),
        "C": (
            "everything is squeezed",
            "A match of content needs only that the slow pairs stay in the range they know, and "
            "there they are.",
        ),
        "D": (
            "nothing leaves the range",
            "No angle is new, but the angle of three positions back has become that of another "
            "distance.",
        ),
    },
)

BASE = number(
    "A base for a million",
    value=lambda: (1e6 / (2 * math.pi)) ** (128 / 126),
    within=0.05,
    because="2 pi times the base to the power of 126/128 is the wavelength of the last pair. For a "
    "million positions the base is about {value}; with a larger one the last pair does not come "
    "round.",
    wrong=[
        WrongNumber(
            "radians for turns",
            "In a million positions the pair makes a turn, which is 2 pi radians.",
            lambda: 1e6 ** (128 / 126),
        ),
        WrongNumber(
            "multiplied by 2 pi",
            "The wavelength is 2 pi times the power of the base, so the million is divided by it.",
            lambda: (1e6 * 2 * math.pi) ** (128 / 126),
        ),
        WrongNumber(
            "the middle pair",
            "The slowest pair has the exponent 126/128. In the middle it is one half.",
            lambda: (1e6 / (2 * math.pi)) ** 2,
        ),
    ],
)

NEEDLE_LOSS = choice(
    "What raises the loss?",
    right="A",
    because="By parts alone has the loss of YaRN, and the temperature alone has less than plain "
    "RoPE. The slower pairs help the needle and cost the loss; the temperature does not.",
    tempting={
        "B": (
            "the temperature blamed",
            'Ask found("temperature", 400, 200, seed): sharper scores alone make the loss smaller.',
        ),
        "C": (
            "shared evenly",
            "One of the two alone has the loss of both together, and the other alone lowers it.",
        ),
        "D": (
            "only together",
            "One of the two changes raises the loss alone: compare each with plain RoPE.",
        ),
    },
)
