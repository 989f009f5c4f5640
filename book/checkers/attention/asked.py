"""What the chapter asks without asking for a function: a prediction, a measurement, an estimate."""

from __future__ import annotations

import math

import torch

from book.checkers.questions import WrongNumber, choice, number

MASKED_KEY = choice(
    "The weights that are left when a key is forbidden",
    right="C",
    because="The forbidden key is left out of the sum below the exponentials too, so the other "
    "two share the whole in their old ratio, e squared to 1.",
    tempting={
        "A": (
            "the weight of a forbidden key is lost",
            "This is what comes out if the weights are multiplied by the mask after the softmax. "
            "The row then sums to less than one, and how much less depends on the forbidden key.",
        ),
        "B": (
            "the lost weight is shared out evenly",
            "Fair shares sum to one as well, but they change the ratio of the two weights. The "
            "softmax keeps it: it is the exponential of the difference of the scores.",
        ),
        "D": (
            "a forbidden key has the score 0",
            "A score of 0 is a score like any other, with the exponential 1. Forbidden is a score "
            "of minus infinity, whose exponential is 0.",
        ),
    },
)


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


def _half(keys: int = 64, limit: float = 0.97, dim: int = -1) -> float:
    """The width at which half of the queries have decided, between two widths that were tried."""
    low, high = 1.0, 2048.0
    while high > 1.03 * low:
        middle = math.sqrt(low * high)
        if _share(round(middle), keys, limit, dim) < 0.5:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


DECIDED = number(
    "The width at which half of the random queries have decided, without the root",
    value=_half,
    within=0.2,
    because="The checker's own runs found {value}. Nothing was learned: the width alone makes the "
    "queries certain.",
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
    "What a query that is certain of the wrong key sends back",
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
