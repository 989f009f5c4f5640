"""The exercises on mixtures of experts: routers, a layer, balance, room, parameters and bytes.

The oracles are loops over tokens and experts. They never call the library.
"""

from __future__ import annotations

from book.checkers.experts.estimates import CAPACITY, DESIGN, MIXTRAL, RENORM, TOUCHED
from book.checkers.experts.layer import LAYER
from book.checkers.experts.routers import BALANCE, TOP_ONE

EXERCISES = {
    "renorm": RENORM,
    "top_one": TOP_ONE,
    "layer": LAYER,
    "balance": BALANCE,
    "capacity": CAPACITY,
    "design": DESIGN,
    "mixtral": MIXTRAL,
    "touched": TOUCHED,
}
