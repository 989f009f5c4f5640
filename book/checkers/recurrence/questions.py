"""Predictions of what a memory reads and what a hybrid costs, and two estimates."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

TWICE = choice(
    "The same key twice",
    right="B",
    because="Adding sums up all that was ever written under the key. The difference between 5 and "
    "the 3 that it reads is 2, and 3 + 2 is 5.",
    tempting={
        "A": (
            "both overwrite",
            "Adding an outer product never takes anything away: the 3 is still there.",
        ),
        "C": (
            "only the difference is read",
            "The difference, 2, is what is written. It is added to the 3 that stands there.",
        ),
        "D": (
            "adding taken as a mean",
            "Nothing divides by the number of tokens. The weights of a table do not sum to 1.",
        ),
    },
)

GROWS = choice(
    "What still grows?",
    right="B",
    because="A step reads each table of fixed size, and the caches of 12 layers, which grow with "
    "the text. In a long text these outweigh the rest.",
    tempting={
        "A": (
            "the memories alone",
            "That holds for the 36 layers with a memory. The other 12 read a cache.",
        ),
        "C": (
            "a step taken for the whole text",
            "All steps of a text together grow with the square. A single step reads each cached "
            "position once.",
        ),
        "D": (
            "the slowest layer counts",
            "The time of a step is the sum over the layers, and three of four have no cache.",
        ),
    },
)

_MEMORY = 32 * 128 * 128 * 4
_TOKEN = 2 * 2 * 256 * 2

EVEN = number(
    "From which length on?",
    value=lambda: _MEMORY / _TOKEN,
    within=0.01,
    because="The memory takes 2 MiB, a token 2 KiB of the cache: they are equal at {value} tokens.",
    wrong=[
        WrongNumber(
            "keys without values",
            "A token adds a key and a value to the cache.",
            lambda: 2.0 * _MEMORY / _TOKEN,
        ),
        WrongNumber(
            "16 bits for the memory",
            "The memory is kept in 32 bits, with 4 bytes a number.",
            lambda: 0.5 * _MEMORY / _TOKEN,
        ),
        WrongNumber(
            "one memory for all heads",
            "Each of the 32 heads has a table of its own.",
            lambda: _MEMORY / 32.0 / _TOKEN,
        ),
        WrongNumber(
            "a row in the place of a table",
            "A head keeps 128 times 128 numbers, not 128.",
            lambda: _MEMORY / 128.0 / _TOKEN,
        ),
        WrongNumber(
            "a cache for all 32 heads",
            "Only the 2 key-value heads are kept for each token.",
            lambda: _MEMORY / 16.0 / _TOKEN,
        ),
    ],
)

_PAIRS, _SHARE = 200, 0.1

WIDTH = number(
    "How wide a table?",
    value=lambda: (_PAIRS - 1) / _SHARE,
    within=0.001,
    because="Each of the 199 others adds 1/d of a value's mean square, and 199/d is a tenth at "
    "{value} features.",
    wrong=[
        WrongNumber(
            "its own pair counted as noise",
            "Its own value comes back with the weight 1. Only the other pairs are noise.",
            lambda: _PAIRS / _SHARE,
        ),
        WrongNumber(
            "the weights added up",
            "The weights have both signs and mean 0, so the mean square of the sum is the sum of "
            "the mean squares.",
            lambda: ((_PAIRS - 1) ** 2) / _SHARE,
        ),
        WrongNumber(
            "a tenth of the length",
            "Asked is a tenth of the mean square, not of its root.",
            lambda: (_PAIRS - 1) / _SHARE**2,
        ),
        WrongNumber(
            "as many features as other pairs",
            "With as many features as other pairs the error is as large as a value.",
            lambda: _PAIRS - 1.0,
        ),
        WrongNumber(
            "as many features as pairs",
            "So many features could hold the values exactly, but adding does not find that table.",
            lambda: 1.0 * _PAIRS,
        ),
        WrongNumber(
            "numbers instead of features",
            "The weights' mean square is 1/d, with the features of a key and not the numbers of "
            "the table.",
            lambda: ((_PAIRS - 1) / _SHARE) ** 0.5,
        ),
    ],
)
