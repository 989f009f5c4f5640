"""The exercises on residual connections: the block, the layers of a stack, and their scales.

The oracles are torch's own layers and the formulas written out, never the book's library. Every
section of the modules has the same order: the oracle, the cases, the wrong answers, the exercise.
"""

from __future__ import annotations

from book.checkers.residual.block import BLOCK, TEST, ZERO
from book.checkers.residual.layers import DEAD, PARADOX
from book.checkers.residual.scale import DEEP, EXPONENT, INIT

EXERCISES = {
    "zero": ZERO,
    "block": BLOCK,
    "test": TEST,
    "dead": DEAD,
    "init": INIT,
    "exponent": EXPONENT,
    "paradox": PARADOX,
    "deep": DEEP,
}
