"""The questions of the assignment on chapters 13 and 14: bounded, small and factored caches.

The oracles are loops over heads and positions, autograd and torch's own operators, never the book's
library.
"""

from book.checkers.assignments.cache_and_mla.heads import EXERCISES as _HEADS
from book.checkers.assignments.cache_and_mla.latents import EXERCISES as _LATENTS
from book.checkers.assignments.cache_and_mla.rings import EXERCISES as _RINGS

EXERCISES = {**_RINGS, **_HEADS, **_LATENTS}
