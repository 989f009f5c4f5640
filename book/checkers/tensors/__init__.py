"""The exercises of chapter 01: shapes, products, registration, a slip, and two tests to write.

The oracles are torch's own functions, never the book's library. A wrong answer is the right one
with one thing changed, so that its line shows the mistake.
"""

from __future__ import annotations

from book.checkers.tensors.comparisons import IS_SOFTMAX, SAME, SLIP
from book.checkers.tensors.modules import REGISTER_GAINS, module_report
from book.checkers.tensors.shapes import BROADCAST_SHAPE, LINEAR_BACKWARD, MIX, WHICH_CHECK

__all__ = ["EXERCISES", "module_report"]

EXERCISES = {
    "which_check": WHICH_CHECK,
    "broadcast_shape": BROADCAST_SHAPE,
    "mix": MIX,
    "linear_backward": LINEAR_BACKWARD,
    "register_gains": REGISTER_GAINS,
    "slip": SLIP,
    "same": SAME,
    "is_softmax": IS_SOFTMAX,
}
