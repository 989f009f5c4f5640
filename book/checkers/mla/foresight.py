"""What is said or estimated before it is computed."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

BY_HAND = number(
    "Absorb by hand",
    value=lambda: 5.0,
    within=0.001,
    because="2 times 3 and 1 times -1 are {value}: the widening is applied to the query. Times the "
    "latent 4 it is 20, which is the score of the key (12, -4) with the query, too.",
    wrong=[
        WrongNumber(
            "the score",
            "That is the score, the absorbed query times the latent. Asked for is the query.",
            lambda: 20.0,
        ),
        WrongNumber(
            "a sign lost",
            "The second feature of the widening is -1, so its part is taken away.",
            lambda: 7.0,
        ),
        WrongNumber(
            "the query's own sum",
            "Each feature of the query is first multiplied by the widening's.",
            lambda: 3.0,
        ),
    ],
)

WHERE = choice(
    "Where may one rotate?",
    right="C",
    because="The part from the latent has no position, so it can be absorbed, and the small part "
    "beside it has no latent, so it can be rotated. The price is one small key in the cache.",
    tempting={
        "A": (
            "the usual place",
            "Then a rotation that depends on the distance stands between the query and the matrix, "
            "and what would have to be absorbed is another matrix for each distance.",
        ),
        "B": (
            "before the widening",
            "It can be absorbed, but the widening stands between the two rotations. They do not "
            "meet, and the score depends on both positions.",
        ),
        "D": (
            "the query alone",
            "A score then depends on where the query stands and not on where the key does.",
        ),
    },
)

GROUPS = number(
    "As many groups",
    value=lambda: (512 + 64) / (2 * 128),
    within=0.001,
    because="576 numbers a token and layer; a group leaves a key and a value of 128 each. That is "
    "{value} groups, where the model has 128 heads.",
    wrong=[
        WrongNumber(
            "the rotated key forgotten",
            "The cache holds the latent and beside it the shared rotated key of 64 numbers.",
            lambda: 512 / 256,
        ),
        WrongNumber(
            "keys without values",
            "A group leaves a key and a value in the cache.",
            lambda: 576 / 128,
        ),
        WrongNumber(
            "a latent for keys and one for values",
            "One latent serves for both, so it is counted once.",
            lambda: (2 * 512 + 64) / 256,
        ),
        WrongNumber(
            "per head",
            "Nothing of the cache is per head. The numbers of heads do not enter.",
            lambda: 576 / (2 * 128 * 128),
        ),
    ],
)

BUDGET = number(
    "A latent for a budget",
    value=lambda: float(int(20e9 / (61 * 200_000 * 2) - 64) // 64 * 64),
    within=0.0005,
    because="20 billion bytes for 200,000 tokens in 61 layers are 819 numbers of two bytes; 64 are "
    "the shared key's. Of the rest the largest multiple of 64 is {value}.",
    wrong=[
        WrongNumber(
            "the rotated key forgotten",
            "The shared key of 64 numbers has to fit as well.",
            lambda: float(int(20e9 / (61 * 200_000 * 2)) // 64 * 64),
        ),
        WrongNumber(
            "not rounded",
            "A multiple of 64 is asked for, the largest that fits.",
            lambda: float(int(20e9 / (61 * 200_000 * 2) - 64)),
        ),
        WrongNumber(
            "keys and values",
            "One latent serves for keys and values, so it is counted once.",
            lambda: float(int(10e9 / (61 * 200_000 * 2) - 64) // 64 * 64),
        ),
        WrongNumber(
            "one byte a number",
            "A number of 16 bits takes two bytes.",
            lambda: float(int(20e9 / (61 * 200_000) - 64) // 64 * 64),
        ),
    ],
)
