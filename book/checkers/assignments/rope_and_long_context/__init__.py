"""The questions of the assignment on chapters 11 and 12: rotations that vary, and longer contexts.

The oracles use complex numbers, autograd and plain loops, never the book's library.
"""

from book.checkers.assignments.rope_and_long_context.frequencies import EXERCISES as _FREQUENCIES
from book.checkers.assignments.rope_and_long_context.rotations import EXERCISES as _ROTATIONS

EXERCISES = {**_ROTATIONS, **_FREQUENCIES}
