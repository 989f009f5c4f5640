"""The exercises of chapter 13: steps with a cache, shared heads, and what a cache costs."""

from __future__ import annotations

from book.checkers.kv_cache.estimates import BITS, NOT_FASTER, PAST, WINDOWS
from book.checkers.kv_cache.shared import GROUPED
from book.checkers.kv_cache.steps import CACHED_STEP, CHUNK_MASK, WINDOW_STEP

EXERCISES = {
    "past": PAST,
    "cached_step": CACHED_STEP,
    "chunk_mask": CHUNK_MASK,
    "window_step": WINDOW_STEP,
    "grouped_attention": GROUPED,
    "bits": BITS,
    "windows": WINDOWS,
    "not_faster": NOT_FASTER,
}
