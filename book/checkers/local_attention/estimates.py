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


def _queries(
    keys: int | None = 16, narrow: int = 1, wide: int = 1, table: int = 4, step: int = 16
) -> float:
    """The most queries, a multiple of `step`, with which a tile of so many keys fits.

    `keys` None is as many keys as queries. `narrow` and `wide` count the blocks of queries with two
    and with four bytes a number, `table` the bytes of a score; keys and values have two.
    """

    def needed(b: int) -> int:
        other = b if keys is None else keys
        return 128 * ((2 * narrow + 4 * wide) * b + 4 * other) + table * b * other

    return float(max(b for b in range(step, 4096, step) if needed(b) <= 228 * 1024))


TILE = number(
    "The tile that moves least",
    value=_queries,
    within=0.001,
    because="Keys and values are loaded once for each block of queries, so the keys of a tile are "
    "as few as allowed, 16, and the queries as many as fit then: {value}. They take 221,184 bytes "
    "of the 233,472 for which there is room.",
    wrong=[
        WrongNumber(
            "a square tile",
            "That is the largest tile with as many keys as queries. Fewer keys leave room for more "
            "queries, and only the queries decide how often the keys are loaded.",
            lambda: _queries(keys=None),
        ),
        WrongNumber(
            "as few queries as possible",
            "Then all keys and values are loaded once for every 16 queries. It is the keys of a "
            "tile that may be few.",
            lambda: 16.0,
        ),
        WrongNumber(
            "16 bits for the output",
            "The output that is summed up stays on the chip until all keys have passed by, and its "
            "numbers have four bytes.",
            lambda: _queries(narrow=2, wide=0),
        ),
        WrongNumber(
            "the output forgotten",
            "The unfinished output of the queries is on the chip as well, in 32 bits.",
            lambda: _queries(wide=0),
        ),
        WrongNumber(
            "32 bits for the queries",
            "Queries have two bytes a number.",
            lambda: _queries(narrow=0, wide=2),
        ),
        WrongNumber(
            "no multiple of 16",
            "That much would fit, but asked for is a multiple of 16.",
            lambda: _queries(step=1),
        ),
    ],
)
