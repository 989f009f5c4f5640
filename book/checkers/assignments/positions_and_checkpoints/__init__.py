"""The questions of the assignment on chapters 11 to 13: positions as published models have them.

The oracles are loops over rows, tokens and documents and complex numbers, never the book's library.
"""

from book.checkers.assignments.positions_and_checkpoints.caches import EXERCISES as _CACHES
from book.checkers.assignments.positions_and_checkpoints.checkpoints import (
    EXERCISES as _CHECKPOINTS,
)
from book.checkers.assignments.positions_and_checkpoints.positions import EXERCISES as _POSITIONS

EXERCISES = {**_CHECKPOINTS, **_POSITIONS, **_CACHES}
