"""The exercises of the chapter on local attention and FlashAttention."""

from __future__ import annotations

from book.checkers.local_attention.estimates import CACHE, CHUNK, REACH, TILE
from book.checkers.local_attention.lost import LOST
from book.checkers.local_attention.pattern import PATTERN
from book.checkers.local_attention.tiles import MERGE, TILED

EXERCISES = {
    "reach": REACH,
    "chunk": CHUNK,
    "cache": CACHE,
    "pattern": PATTERN,
    "tile": TILE,
    "tiled": TILED,
    "merge": MERGE,
    "lost": LOST,
}
