"""The exercises of chapter 11: rotary position embedding, its two layouts, and its sign.

The oracles are block matrices and Python loops, never the book's library. A wrong answer is the
right computation with one part replaced, so that its line shows the mistake and nothing else.
"""

from __future__ import annotations

from book.checkers.rope.foresight import EQUAL, REACH, VALUES
from book.checkers.rope.turning import (
    APPLY,
    ATTENTION,
    LOOK_BACK,
    RELATIVE_MATRIX,
    TO_INTERLEAVED,
)

EXERCISES = {
    "equal": EQUAL,
    "reach": REACH,
    "apply": APPLY,
    "relative_matrix": RELATIVE_MATRIX,
    "values": VALUES,
    "attention": ATTENTION,
    "to_interleaved": TO_INTERLEAVED,
    "look_back": LOOK_BACK,
}
