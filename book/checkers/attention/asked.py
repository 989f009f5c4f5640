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
    for _ in range(6):
        q, k = (torch.randn(50, n, width, generator=rng, dtype=torch.float64) for n in (64, keys))
        weights = (q @ k.mT).softmax(dim)
        found.append(float((weights.amax(-1) > limit).double().mean()))
    return sum(found) / len(found)


def _half(keys: int = 64, limit: float = 0.99, dim: int = -1) -> float:
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
            "more than a half in place of 0.99",
            "A narrow head is enough for half of the queries to give more than half of their "
            "weight to one key. The question asks for more than 0.99.",
            lambda: _half(limit=0.5),
        ),
        WrongNumber(
            "8 keys in place of 64",
            "With fewer keys the best one is more often far ahead of the second.",
            lambda: _half(keys=8),
        ),
        WrongNumber(
            "the spread of the scores in place of the width",
            "The scores are spread by the root of the width. The question asks for the width.",
            lambda: math.sqrt(_half()),
        ),
        WrongNumber(
            "softmax over the queries",
            "The weights of a query sum to one over the keys, the last axis of q @ k.mT.",
            lambda: _half(dim=-2),
        ),
    ],
)


def _gib(heads: int = 32, tokens: int = 4096, bytes_each: int = 2) -> float:
    return heads * tokens**2 * bytes_each / 2**30


TABLE = number(
    "The table of weights of one layer, in GiB",
    value=_gib,
    within=0.02,
    because="2 to the 5 heads, times 2 to the 24 pairs, times 2 bytes: 2 to the 30.",
    wrong=[
        WrongNumber(
            "one head only",
            "Each of the 32 heads has a table of its own.",
            lambda: _gib(heads=1),
        ),
        WrongNumber(
            "four bytes each",
            "This is float32. In 16 bits an entry takes two bytes.",
            lambda: _gib(bytes_each=4),
        ),
        WrongNumber(
            "one byte each",
            "An entry of 16 bits takes two bytes, not one.",
            lambda: _gib(bytes_each=1),
        ),
        WrongNumber(
            "all layers",
            "The question asks for a single layer; 32 layers have 32 times as much.",
            lambda: 32 * _gib(),
        ),
        WrongNumber(
            "gigabytes in place of GiB",
            "This divides by 10 to the 9. A GiB is 2 to the 30 bytes.",
            lambda: _gib() * 2**30 / 1e9,
        ),
    ],
)
