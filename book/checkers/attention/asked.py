"""What the chapter asks without asking for a function: a prediction, a measurement, an estimate."""

from __future__ import annotations

import math
from functools import cache

import torch

from book.checkers.questions import WrongNumber, choice, number


def _share(width: int, keys: int, limit: float, dim: int) -> float:
    """The share of random queries that give more than `limit` of their weight to one key.

    In float64, where no weight is so near the limit that another order of a sum moves it across.
    """
    rng = torch.Generator().manual_seed(0)
    found = []
    for _ in range(4):
        q, k = (torch.randn(50, n, width, generator=rng, dtype=torch.float64) for n in (64, keys))
        weights = (q @ k.mT).softmax(dim)
        found.append(float((weights.amax(-1) > limit).double().mean()))
    return sum(found) / len(found)


@cache  # the same for every answer that is checked
def _half(keys: int = 64, limit: float = 0.97, dim: int = -1) -> float:
    """The width at which half of the queries are saturated, between two widths that were tried."""
    low, high = 1.0, 2048.0
    while high > 1.03 * low:
        middle = math.sqrt(low * high)
        if _share(round(middle), keys, limit, dim) < 0.5:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


DECIDED = number(
    "The width at which half of the random queries are saturated, without the root",
    value=_half,
    within=0.2,
    because="The checker's own runs found {value}. Nothing was learned: the width alone "
    "saturates the queries.",
    wrong=[
        WrongNumber(
            "more than a half in place of 0.97",
            "A narrow head is enough for half of the queries to give more than half of their "
            "weight to one key. The question asks for more than 0.97.",
            lambda: _half(limit=0.5),
        ),
        WrongNumber(
            "8 keys in place of 64",
            "With fewer keys the best one is more often far ahead of the second.",
            lambda: _half(keys=8),
        ),
        WrongNumber(
            "softmax over the queries",
            "The weights of a query sum to one over the keys, the last axis of q @ k.mT.",
            lambda: _half(dim=-2),
        ),
    ],
)


WRONG_KEY = choice(
    "What a query with all its weight on the wrong key sends back",
    right="B",
    because="A value receives its weight times the gradient of the output, so value 2 from the "
    "first query, values 1 and 2 from the second. A score receives its weight times dA − δ. One "
    "weight of 1 makes δ the dA of its key, and all scores receive 0. Two halves make δ the mean "
    "of two that differ, so scores 1 and 2 receive something, and through them the query and "
    "their keys.",
    tempting={
        "A": (
            "a saturated softmax stops all gradients",
            "It stops those of the scores, and so of the query and the keys. The values come after "
            "the softmax: value 2 receives its weight times the gradient of the output.",
        ),
        "C": (
            "what has weight receives something",
            "So it is with values. A score receives its weight times dA − δ, and with all the "
            "weight on one key δ is the dA of that key.",
        ),
        "D": (
            "the weight can move to the key that is right",
            "dA does say that key 1 would be better. On its way to the score it is multiplied by "
            "the weight of key 1, which is 0 for the first query.",
        ),
        "E": (
            "every key and value takes part",
            "The third weight is 0, and it stands in front of what value 3 and score 3 receive.",
        ),
    },
)


def _share_when_full(
    tables: int = 32 * 32, size: int = 2, linear: int = 6, width: int = 4096
) -> float:
    """The table's share in the operations of a block, where all tables fill 80 GB."""
    length = math.sqrt(80e9 / (tables * size))
    return length / (linear * width + length)


FULL = number(
    "The table's share of the operations when the tables fill the memory",
    value=_share_when_full,
    within=0.05,
    because="The device is full at 6,250 tokens, and there the table has the share {value}.",
    wrong=[
        WrongNumber(
            "the tables of one layer, or of one head in each",
            "Every head of every layer has a table of its own, and all are kept.",
            lambda: _share_when_full(tables=32),
        ),
        WrongNumber(
            "4 bytes a number",
            "Kept in 16 bits a number takes 2 bytes.",
            lambda: _share_when_full(size=4),
        ),
        WrongNumber(
            "the feed-forward layer forgotten",
            "A block also has a feed-forward layer, whose products cost twice as much as the four "
            "projections.",
            lambda: _share_when_full(linear=2),
        ),
        WrongNumber(
            "a ratio in place of a share",
            "This is the table against the linear layers. The share is of both together.",
            lambda: math.sqrt(80e9 / 2048) / (6 * 4096),
        ),
        WrongNumber(
            "one product with the table",
            "The table is part of two products: the scores, and the mean of the values.",
            lambda: _share_when_full(linear=12),
        ),
        WrongNumber(
            "percent in place of a share",
            "Asked for is a share between 0 and 1.",
            lambda: 100 * _share_when_full(),
        ),
    ],
)
