"""The exercises of chapter 15: counting, the block, sampling and loading.

The oracles are torch's own operators and published numbers, never the book's library. Where it
helps, a wrong answer replaces one part of a right one, so that its line shows the mistake alone.
"""

from __future__ import annotations

from book.checkers.decoder.block import BLOCK
from book.checkers.decoder.counting import PARAMETER_COUNT
from book.checkers.decoder.foresight import BEST_CHANGE, CROSSING, DIAGNOSIS
from book.checkers.decoder.layout import CONVERT
from book.checkers.decoder.sampling import FILTERS, TOP_P

EXERCISES = {
    "parameter_count": PARAMETER_COUNT,
    "block": BLOCK,
    "top_p": TOP_P,
    "filters": FILTERS,
    "best_change": BEST_CHANGE,
    "diagnosis": DIAGNOSIS,
    "convert": CONVERT,
    "crossing": CROSSING,
}
