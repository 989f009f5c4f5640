"""Assignment 5, chapters 2 and 10: masks, cached memory, losses, beams, and counts of a model."""

from book.checkers.assignments.transformer.attention import EXERCISES as _ATTENTION
from book.checkers.assignments.transformer.counts import EXERCISES as _COUNTS
from book.checkers.assignments.transformer.sequences import EXERCISES as _SEQUENCES

EXERCISES = {**_ATTENTION, **_SEQUENCES, **_COUNTS}
