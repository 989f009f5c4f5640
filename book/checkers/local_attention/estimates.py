"""Predictions of what a mask leaves, and estimates of a cache and of a tile."""

from __future__ import annotations

import torch

from book.checkers.questions import WrongNumber, choice, number


def _seen(window: int, layers: int, length: int) -> float:
    """Tokens that the last one depends on, by following who sees whom, layer by layer."""
    sees = torch.ones(length, length).tril().triu(1 - window)
    depends = torch.eye(length)
    for _ in range(layers):
        depends = (sees @ depends).clamp(max=1)
    return float(depends[-1].sum())


REACH = number(
    "How far three windows reach",
    value=lambda: _seen(4, 3, 40),
    within=0.001,
    because="Each layer adds the three tokens before the farthest one so far: {value}, the token "
    "itself included.",
    wrong=[
        WrongNumber(
            "windows end to end",
            "The windows overlap in one token, the one at which the next one begins. Each layer "
            "adds three tokens.",
            lambda: 12.0,
        ),
        WrongNumber(
            "one layer",
            "That is what one layer sees. The tokens it sees have seen others in the layer below.",
            lambda: 4.0,
        ),
        WrongNumber(
            "the token itself forgotten",
            "That is how many others there are. The token itself counts too.",
            lambda: 9.0,
        ),
        WrongNumber(
            "windows multiplied",
            "A layer goes three tokens further back. It does not multiply: neighbours have nearly "
            "the same windows.",
            lambda: 64.0,
        ),
    ],
)

CHUNK = choice(
    "Just behind a border",
    right="B",
    because="Two chunks are full, so the last token is the sixth of the third chunk. In every "
    "layer it sees tokens of this chunk alone, and so do these.",
    tempting={
        "A": (
            "depth",
            "More layers lengthen the reach of windows. Nothing passes the border of a chunk, in "
            "however many layers.",
        ),
        "C": (
            "the last 8,192 tokens",
            "That is a window. A chunk has fixed borders, and the last token stands just behind "
            "one.",
        ),
        "D": (
            "the chunk before it too",
            "The 8,192 tokens before the border belong to the chunk before, and no layer lets the "
            "last token see them.",
        ),
    },
)

_POSITION = 2 * 8 * 128 * 2  # keys and values, heads, features, bytes

CACHE = number(
    "Five local layers for each full one",
    value=lambda: float((40 * 1024 + 8 * 131_072) * _POSITION / 2**30),
    within=0.01,
    because="40 layers keep 1,024 positions each and 8 layers all 131,072: {value} GiB. With 48 "
    "full layers it would be 24.",
    wrong=[
        WrongNumber(
            "five to one taken as a fifth",
            "Of six layers one is full, so one layer in six, 8 of 48.",
            lambda: float((38.4 * 1024 + 9.6 * 131_072) * _POSITION / 2**30),
        ),
        WrongNumber(
            "keys without values",
            "Keys and values are both kept.",
            lambda: float((40 * 1024 + 8 * 131_072) * _POSITION / 2 / 2**30),
        ),
        WrongNumber(
            "no window",
            "That is the cache of 48 layers that see everything.",
            lambda: float(48 * 131_072 * _POSITION / 2**30),
        ),
        WrongNumber(
            "only windows",
            "Eight of the layers see everything and keep everything.",
            lambda: float(48 * 1024 * _POSITION / 2**30),
        ),
        WrongNumber(
            "all query heads kept",
            "Only the 8 key-value heads are kept, not one for each of the 32 query heads.",
            lambda: float((40 * 1024 + 8 * 131_072) * 4 * _POSITION / 2**30),
        ),
    ],
)


def _largest(narrow: int, wide: int, table: int = 4, step: int = 16) -> float:
    """The largest size, a multiple of `step`, of which blocks and a tile of scores fit.

    `narrow` and `wide` count the blocks of rows with two and with four bytes a number, `table` the
    bytes of a score.
    """
    fits = (2 * narrow + 4 * wide) * 128
    return float(max(b for b in range(step, 4096, step) if fits * b + table * b * b <= 228 * 1024))


TILE = number(
    "The largest tile that fits",
    value=lambda: _largest(3, 1),
    within=0.001,
    because="Three blocks of {value} rows with 128 numbers of two bytes, one with numbers of four, "
    "and {value} times {value} scores of four bytes are 229,376 bytes of the 233,472 for which "
    "there is room.",
    wrong=[
        WrongNumber(
            "too little counted for the output or the scores",
            "The output that is summed up stays on the chip until its row of tiles is done, and "
            "its numbers have four bytes, like the scores.",
            lambda: _largest(4, 0, table=2),
        ),
        WrongNumber(
            "the scores alone",
            "The blocks of Q, K, V and O are on the chip too. They are larger than the tile of "
            "scores.",
            lambda: _largest(0, 0),
        ),
        WrongNumber(
            "the scores forgotten",
            "The tile of scores is on the chip as well.",
            lambda: _largest(3, 1, table=0),
        ),
        WrongNumber(
            "32 bits for everything",
            "Queries, keys and values have two bytes a number.",
            lambda: _largest(0, 4),
        ),
        WrongNumber(
            "no multiple of 16",
            "That much would fit, but asked for is a multiple of 16.",
            lambda: _largest(3, 1, step=1),
        ),
    ],
)
