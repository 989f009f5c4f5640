"""The exercises of chapter 03: softmax and its backward pass, how steep it is, and its loss.

The oracles are torch's own operators and autograd, never the book's library. A wrong answer is the
right computation with one part replaced, so that its line shows the mistake and nothing else.
"""

from __future__ import annotations

from book.checkers.softmax.loss import CROSS_ENTROPY, DOUBLE_SOFTMAX
from book.checkers.softmax.nats import FIRST_LOSS, PERPLEXITY
from book.checkers.softmax.online import MERGE
from book.checkers.softmax.weights import SOFTMAX, SOFTMAX_BACKWARD, STEEPEST

EXERCISES = {
    "softmax": SOFTMAX,
    "first_loss": FIRST_LOSS,
    "perplexity": PERPLEXITY,
    "cross_entropy": CROSS_ENTROPY,
    "steepest": STEEPEST,
    "softmax_backward": SOFTMAX_BACKWARD,
    "merge": MERGE,
    "double_softmax": DOUBLE_SOFTMAX,
}
