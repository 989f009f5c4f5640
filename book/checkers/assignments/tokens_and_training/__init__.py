"""The questions of the assignment on tokens and training.

The oracles count, loop and use fractions, never the book's library.
"""

from book.checkers.assignments.tokens_and_training.tokens import EXERCISES as _TOKENS
from book.checkers.assignments.tokens_and_training.training import EXERCISES as _TRAINING

EXERCISES = {**_TOKENS, **_TRAINING}
