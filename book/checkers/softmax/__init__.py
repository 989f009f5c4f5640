"""The exercises of chapter 03: softmax, forwards and backwards, its loss, how sure, long rows.

The oracles are torch's own operators and autograd, never the book's library. A wrong answer is the
right computation with one part replaced, so that its line shows the mistake and nothing else.
"""

from __future__ import annotations

from book.checkers.softmax.loss import CROSS_ENTROPY, DOUBLE_SOFTMAX
from book.checkers.softmax.nats import CALIBRATION, MERGE
from book.checkers.softmax.weights import LONG_ROW, SOFTMAX, SOFTMAX_BACKWARD, STEEPEST

EXERCISES = {
    "softmax": SOFTMAX,
    "calibration": CALIBRATION,
    "cross_entropy": CROSS_ENTROPY,
    "steepest": STEEPEST,
    "softmax_backward": SOFTMAX_BACKWARD,
    "merge": MERGE,
    "long_row": LONG_ROW,
    "double_softmax": DOUBLE_SOFTMAX,
}
