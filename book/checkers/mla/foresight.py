"""What is said, estimated or measured before it is derived."""

from __future__ import annotations

import torch

from book.checkers.mla.common import turned
from book.checkers.questions import WrongNumber, choice, number

BY_HAND = number(
    "A score without the query",
    value=lambda: -30.0,
    within=0.001,
    because="Query and up-projection together are one number, the absorbed query: 20 / 4 = 5. "
    "Times -6 it is {value}. Every score of one query is the same multiple of its latent.",
    wrong=[
        WrongNumber(
            "the sign lost",
            "The latent is negative, and a score is a multiple of it.",
            lambda: 30.0,
        ),
        WrongNumber(
            "the absorbed query",
            "That is the one number by which the latents are multiplied. Asked for is a score.",
            lambda: 5.0,
        ),
        WrongNumber(
            "the difference added",
            "Scores go with the latent as products do, not as sums.",
            lambda: 10.0,
        ),
        WrongNumber(
            "the score times the latent",
            "The 20 has a latent in it already, the 4. Take that out first.",
            lambda: -120.0,
        ),
    ],
)


def _independent(rotated: int) -> float:
    """The rank of the absorbed queries of 201 distances, with `rotated` of 16 features rotated."""
    draw = torch.Generator().manual_seed(3)
    query = torch.randn(16, generator=draw, dtype=torch.float64).expand(201, 16)
    w_uk = torch.randn(64, 16, generator=draw, dtype=torch.float64)
    speeds = 100.0 ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / max(rotated, 1))
    angles = torch.arange(201, dtype=torch.float64)[:, None] * speeds
    front = turned(query[:, :rotated], angles.cos(), angles.sin())
    absorbed = torch.cat([front, query[:, rotated:]], -1) @ w_uk.T
    return float(torch.linalg.matrix_rank(absorbed))


SPAN = number(
    "How many absorbed queries?",
    value=lambda: _independent(6),
    within=0.001,
    because="{value}: two for each of the three pairs, one with the cosine of its angle and one "
    "with the sine, and one for the ten features that do not turn, the same at every distance. "
    "With all sixteen rotated there are 16, with none there is 1. Each of them has to be compared "
    "with every latent.",
    wrong=[
        WrongNumber(
            "one for each distance",
            "They all differ, but each is a sum of a few fixed rows with weights that depend on "
            "the distance. Take the rank.",
            lambda: 201.0,
        ),
        WrongNumber(
            "as wide as the latent",
            "The rows have 64 numbers, but they come from a query with far fewer features.",
            lambda: 64.0,
        ),
        WrongNumber(
            "the features of the key",
            "That is so if all of them rotate. Ten do not, and give one and the same row at each "
            "distance.",
            lambda: _independent(16),
        ),
        WrongNumber(
            "the features that rest forgotten",
            "The ten features that do not rotate have a part in the score, too.",
            lambda: 6.0,
        ),
        WrongNumber(
            "one for each pair",
            "A pair turns in a plane, and a plane has two directions: cosine and sine.",
            lambda: 4.0,
        ),
        WrongNumber(
            "nothing rotated",
            "So it is without rotation, when one absorbed query serves all distances.",
            lambda: _independent(0),
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
            "before the up-projection",
            "It can be absorbed, but the up-projection stands between the two rotations. They do "
            "not meet, and the score depends on both positions.",
        ),
        "D": (
            "fewer features",
            "The few that rotate still come up from the latent, so their rotation stands between "
            "the query and the matrix: with six of them, seven rows for each query.",
        ),
    },
)

_OLDER = 95 * 2 * 8 * 128 * 16  # bits that a token leaves in DeepSeek 67B
_LEFT = 1 - 0.933


def _bits(numbers: float, older: float = _OLDER, left: float = _LEFT) -> float:
    """The bits of each of `numbers`, if together they take a share of the older cache's."""
    return left * older / numbers


BITS = number(
    "What the sizes leave open",
    value=lambda: _bits(60 * (512 + 64)),
    within=0.02,
    because="A token leaves 194,560 numbers of 16 bits in DeepSeek 67B, and 6.7 % of these bits "
    "for the 34,560 numbers of DeepSeek-V2 are {value} for each. With 16 bits in both it would "
    "save 82.2 %.",
    wrong=[
        WrongNumber(
            "keys or values, not both",
            "DeepSeek 67B caches a key and a value for each of its key–value heads.",
            lambda: _bits(60 * (512 + 64), _OLDER / 2),
        ),
        WrongNumber(
            "one layer against one layer",
            "The models have 60 layers and 95, and the share is one of whole caches.",
            lambda: _bits(512 + 64, _OLDER / 95),
        ),
        WrongNumber(
            "what is saved",
            "93.3 % is what is gone. The cache of DeepSeek-V2 is the rest.",
            lambda: _bits(60 * (512 + 64), left=1 - _LEFT),
        ),
        WrongNumber(
            "the rotated key forgotten",
            "Beside the latent of 512 numbers a token leaves the shared key, 64 more.",
            lambda: _bits(60 * 512),
        ),
        WrongNumber(
            "against DeepSeek-V2 with all its heads",
            "The paper compares with DeepSeek 67B, which has 8 key–value heads and not 128.",
            lambda: _bits(60 * (512 + 64), 60 * 2 * 128 * 128 * 16),
        ),
        WrongNumber(
            "bytes",
            "Asked for are bits, eight of which are a byte.",
            lambda: _bits(60 * (512 + 64)) / 8,
        ),
    ],
)
