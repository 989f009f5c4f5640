"""The exercises of chapter 06: stable forms, derivatives, and dead units.

The oracles are torch's own operators and autograd, never the book's library.
"""

from __future__ import annotations

from book.checkers.activations.numbers import DIFFER, GAIN
from book.checkers.activations.relu import DEAD_UNITS, LEAKY_RELU
from book.checkers.activations.smooth import GELU_GRAD, SOFTPLUS, SWISH_BACKWARD, TANH

EXERCISES = {
    "tanh": TANH,
    "softplus": SOFTPLUS,
    "leaky_relu": LEAKY_RELU,
    "gelu_grad": GELU_GRAD,
    "differ": DIFFER,
    "swish_backward": SWISH_BACKWARD,
    "gain": GAIN,
    "dead_units": DEAD_UNITS,
}
