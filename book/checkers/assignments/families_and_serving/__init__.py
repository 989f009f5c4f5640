"""The questions of the assignment on families of models and on serving them.

The oracles count and compare, never through the book's library.
"""

from book.checkers.assignments.families_and_serving.blocks import EXERCISES as _BLOCKS
from book.checkers.assignments.families_and_serving.drafts import EXERCISES as _DRAFTS
from book.checkers.assignments.families_and_serving.families import EXERCISES as _FAMILIES

EXERCISES = {**_FAMILIES, **_BLOCKS, **_DRAFTS}
