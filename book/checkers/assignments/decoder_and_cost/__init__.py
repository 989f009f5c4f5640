"""The questions of the assignment on chapters 15 and 16: choosing tokens, loading, and counting.

The oracles are loops over tokens, names and tiles, never the book's library.
"""

from book.checkers.assignments.decoder_and_cost.choosing import EXERCISES as _CHOOSING
from book.checkers.assignments.decoder_and_cost.costs import EXERCISES as _COSTS
from book.checkers.assignments.decoder_and_cost.models import EXERCISES as _MODELS

EXERCISES = {**_CHOOSING, **_MODELS, **_COSTS}
