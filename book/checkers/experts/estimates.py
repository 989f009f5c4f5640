"""What is chosen, measured or estimated."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from book.checkers.questions import WrongNumber, choice, number

RENORM = choice(
    "Softmax before or after the choice",
    right="B",
    because="In the renormalised weights the sum over all eight cancels, so the first two are the "
    "same function. The third one writes as much less as the two best have less than 1 together.",
    tempting={
        "A": (
            "the order of softmax and choice matters",
            "Softmax over the two best is softmax over all, divided by what the two have together: "
            "the common denominator cancels.",
        ),
        "C": (
            "one factor for all tokens",
            "The factor is what the two best have together. That is nearly 1 where one expert "
            "leads by far, and a quarter where all eight logits are equal.",
        ),
        "D": (
            "other experts",
            "Softmax keeps the order, so all three choose by the same logits.",
        ),
    },
)


@functools.cache
def _dropped(factor: float, rounded: Callable[[float], int] = math.ceil) -> float:
    """The mean share of 512 tokens that find no room with 16 experts, one each."""
    rng = torch.Generator().manual_seed(7)
    room = rounded(round(factor * 32, 9))
    lost = 0
    for _ in range(1000):
        counts = torch.randint(16, (512,), generator=rng).bincount(minlength=16)
        lost += int((counts - room).clamp(min=0).sum())
    return lost / 512_000


def _smallest(enough: Callable[[float], bool]) -> float:
    return next(f for f in (1 + k / 20 for k in range(60)) if enough(f))


@functools.cache
def _no_drop() -> float:
    """The smallest factor with which in ninety of a hundred draws no token is dropped at all."""
    rng = torch.Generator().manual_seed(7)
    most = torch.stack(
        [torch.randint(16, (512,), generator=rng).bincount(minlength=16).max() for _ in range(500)]
    )
    return _smallest(lambda f: (most <= math.ceil(round(f * 32, 9))).double().mean().item() > 0.9)


CAPACITY = number(
    "How much room is enough?",
    value=lambda: _smallest(lambda f: _dropped(f) < 0.01),
    within=0.02,
    because="The checker's own draws find {value}. The counts are 32 give or take 5.5, so equal "
    "chances overfill some tables and leave room in others.",
    wrong=[
        WrongNumber(
            "equal chances for equal counts",
            "With room for exactly an equal share several percent are dropped, because the counts "
            "fluctuate by the root of their mean.",
            lambda: 1.0,
        ),
        WrongNumber(
            "a standard deviation",
            "With room for one standard deviation more than the mean one expert in six is still "
            "too full, and more than one percent of the tokens are dropped.",
            lambda: 1 + math.sqrt(32 * 15 / 16) / 32,
        ),
        WrongNumber(
            "no token dropped at all",
            "That is the room with which nearly always nothing is dropped. Asked is for less than "
            "one percent.",
            _no_drop,
        ),
        WrongNumber(
            "twice an equal share",
            "Twice the mean is six standard deviations away: far more room than is needed.",
            lambda: 2.0,
        ),
    ],
)

DESIGN = choice(
    "An expert for verbs?",
    right="C",
    because="It asks both ways, compares with words that are as frequent, and looks at text that "
    "was not trained on. It can come out against the name.",
    tempting={
        "A": (
            "lists beside lists",
            "Lists of frequent words show which words are frequent. They do not say how many of "
            "the verbs the expert gets.",
        ),
        "B": (
            "another seed",
            "With another seed the experts are numbered and divided in another way; expert 5 has "
            "no counterpart there.",
        ),
        "D": (
            "how much it counts",
            "The weight says how sure the router is of expert 5, not for which words.",
        ),
    },
)


def _mixtral(
    experts: int = 2, matrices: int = 3, attention: bool = True, vocabularies: int = 2,
    kv_heads: int = 8, shared: int = 1,
) -> float:  # fmt: skip
    d, d_ff, head = 4096, 14336, 128
    layer = experts * matrices * d * d_ff + 8 * d
    if attention:
        layer += shared * d * head * (32 + 32 + 2 * kv_heads)
    return (32 * layer + vocabularies * 32000 * d) / 1e9


MIXTRAL = number(
    "What a token of Mixtral meets",
    value=_mixtral,
    within=0.02,
    because="Two experts a layer are 11.27 billion, the attention 1.34, the vocabularies 0.26: "
    "{value} billion.",
    wrong=[
        WrongNumber(
            "all experts",
            "That is the model as a whole. A token meets two of the eight experts.",
            lambda: _mixtral(experts=8),
        ),
        WrongNumber(
            "eight times seven",
            "The experts replace the feed-forward layers alone, and a token meets two of them.",
            lambda: 56.0,
        ),
        WrongNumber(
            "two times seven",
            "The attention and the vocabularies are there once, not once for each expert.",
            lambda: 14.0,
        ),
        WrongNumber(
            "one expert",
            "Two experts are used for each token.",
            lambda: _mixtral(experts=1),
        ),
        WrongNumber(
            "two matrices",
            "SwiGLU has three matrices: gate, up and down.",
            lambda: _mixtral(matrices=2),
        ),
        WrongNumber(
            "the experts alone",
            "Attention and vocabularies are met by every token.",
            lambda: _mixtral(attention=False, vocabularies=0),
        ),
        WrongNumber(
            "keys and values for every head",
            "There are 8 key-value heads, so these two projections are a quarter as wide.",
            lambda: _mixtral(kv_heads=32),
        ),
        WrongNumber(
            "in parameters",
            "The number is right in parameters. Asked are billions.",
            lambda: 1e9 * _mixtral(),
        ),
    ],
)

TOUCHED = number(
    "How many experts does a step read?",
    value=lambda: 256 * (1 - (31 / 32) ** 32),
    within=0.02,
    because="A token leaves a given expert alone with probability 31/32, and 32 tokens all do so "
    "with 0.362. That leaves {value} of the 256.",
    wrong=[
        WrongNumber(
            "pairs for experts",
            "256 pairs are drawn, but some fall on the same expert.",
            lambda: 256.0,
        ),
        WrongNumber(
            "one token",
            "That is what one token uses. Others use other experts.",
            lambda: 8.0,
        ),
        WrongNumber(
            "one expert a token",
            "Each token draws 8 experts, so it leaves a given one alone with probability 248/256.",
            lambda: 256 * (1 - (255 / 256) ** 32),
        ),
        WrongNumber(
            "those left alone",
            "That is the number of experts that nobody uses.",
            lambda: 256 * (31 / 32) ** 32,
        ),
        WrongNumber(
            "a share",
            "That is the share of the experts. Asked is for their number.",
            lambda: 1 - (31 / 32) ** 32,
        ),
    ],
)
