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
    "Which pairs may be squeezed?",
    right="B",
    because="With fewer than three a pair without a full turn runs out of its range, and the far "
    "answers fail. With seven the second pair is slowed, which helps to tell three positions from "
    "two and four, and half of the near answers fail. The pairs between bear either.",
    tempting={
        "A": (
            "only those without a full turn",
            "These have to be slowed, but does it harm to slow the next ones too? Try four.",
        ),
        "C": (
            "the more the better",
            "The far answers stay right with eight, but the near ones? Look at the first of the "
            "two lists.",
        ),
        "D": (
            "a slow pair left alone",
            "With one or two, a pair that made no full turn still meets angles that it never met.",
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
            "the exponent of the last pair taken for 1",
            "The slowest pair is number 63: its exponent is 126/128, and not 1.",
            lambda: 1e6 / (2 * math.pi),
        ),
        WrongNumber(
            "the exponent upside down",
            "The equation is solved for the base by the power 128/126, not 126/128.",
            lambda: (1e6 / (2 * math.pi)) ** (126 / 128),
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
    "RoPE. The slower pairs help the needle and raise the loss; the temperature does not raise it.",
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
