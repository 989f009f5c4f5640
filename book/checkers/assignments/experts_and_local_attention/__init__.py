"""The questions of the assignment on experts and local attention.

The oracles go from token to token and from position to position, never through the book's library.
"""

from book.checkers.assignments.experts_and_local_attention.experts import EXERCISES as _EXPERTS
from book.checkers.assignments.experts_and_local_attention.local import EXERCISES as _LOCAL

EXERCISES = {**_EXPERTS, **_LOCAL}
