"""The exercises of the chapter on recurrence, beyond attention."""

from __future__ import annotations

from book.checkers.recurrence.memories import CHUNKED, DELTA
from book.checkers.recurrence.questions import EVEN, GROWS, TWICE, WIDTH
from book.checkers.recurrence.stretches import HALF_LIFE, JOIN

EXERCISES = {
    "half_life": HALF_LIFE,
    "chunked": CHUNKED,
    "twice": TWICE,
    "delta": DELTA,
    "join": JOIN,
    "width": WIDTH,
    "grows": GROWS,
    "even": EVEN,
}
