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
    "The first token of a chunk",
    right="B",
    because="Token 8 is the first of its chunk, so in this layer it sees itself alone. A token at "
    "the end of a chunk sees four.",
    tempting={
        "A": (
            "the last four tokens",
            "That is a window. A chunk has fixed borders, and token 8 stands just behind one.",
        ),
        "C": (
            "the chunk before it too",
            "Nothing passes the border of a chunk. The tokens 4 to 7 belong to the chunk before.",
        ),
        "D": (
            "the whole chunk",
            "Tokens 9 to 11 are in the same chunk, but they are in the future of token 8.",
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


def _largest(room: int, width: int, blocks: int, step: int = 16) -> float:
    """The largest size, a multiple of `step`, of which blocks and a square tile fit."""
    sizes = range(step, 4096, step)
    return float(max(b for b in sizes if width * (blocks * b * 128 + b * b) <= room))


TILE = number(
    "The largest tile that fits",
    value=lambda: _largest(192 * 1024, 2, 4),
    within=0.001,
    because="Four blocks of {value} rows of 128 numbers, and {value} times {value} scores, are "
    "94,464 numbers of the 98,304 for which there is room.",
    wrong=[
        WrongNumber(
            "the scores alone",
            "The blocks of Q, K, V and O are on the chip too. They are larger than the tile of "
            "scores.",
            lambda: _largest(192 * 1024, 2, 0),
        ),
        WrongNumber(
            "the scores forgotten",
            "The tile of scores is on the chip as well.",
            lambda: float(192 * 1024 // (2 * 4 * 128) // 16 * 16),
        ),
        WrongNumber(
            "bytes taken for numbers",
            "192 KiB are bytes, and each number takes two.",
            lambda: _largest(192 * 1024, 1, 4),
        ),
        WrongNumber(
            "the output forgotten",
            "The output that is summed up stays on the chip until its row of tiles is done: four "
            "blocks, not three.",
            lambda: _largest(192 * 1024, 2, 3),
        ),
        WrongNumber(
            "no multiple of 16",
            "That much would fit, but asked for is a multiple of 16.",
            lambda: 148.0,
        ),
    ],
)
