"""What the chapter asks without asking for a function: a prediction, a measurement, an estimate."""

from __future__ import annotations

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


def _decided(
    width: int = 1024, keys: int = 64, power: float = 0.0, limit: float = 0.99, dim: int = -1
) -> float:
    """The share of random queries that give more than `limit` of their weight to one key."""
    rng = torch.Generator().manual_seed(0)
    q, k = (torch.randn(100, n, width, generator=rng, dtype=torch.float64) for n in (64, keys))
    weights = (q @ k.mT / width**power).softmax(dim)
    return float((weights.amax(-1) > limit).double().mean())


DECIDED = number(
    "The share of random queries that have decided, without the root",
    value=_decided,
    within=1 / 15,
    because="The checker's own run found {value}. Nothing was learned: the width alone makes most "
    "queries certain.",
    wrong=[
        WrongNumber(
            "more than a half in place of 0.99",
            "Nearly every query gives more than half of its weight to one key. The question asks "
            "for more than 0.99.",
            lambda: _decided(limit=0.5),
        ),
        WrongNumber(
            "8 keys in place of 64",
            "With fewer keys the best one is more often far ahead of the second.",
            lambda: _decided(keys=8),
        ),
        WrongNumber(
            "64 features in place of 1024",
            "The scores are spread by the root of the width: 8 with 64 features, 32 with 1024.",
            lambda: _decided(width=64),
        ),
        WrongNumber(
            "scores divided by the root",
            "Then no query has decided. Leave the scores as they are.",
            lambda: _decided(power=0.5),
        ),
        WrongNumber(
            "softmax over the queries",
            "The weights of a query sum to one over the keys, the last axis of q @ k.mT.",
            lambda: _decided(dim=-2),
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
