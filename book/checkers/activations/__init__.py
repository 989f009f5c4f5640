"""The exercises of chapter 06: stable forms, derivatives, and units that die.

The oracles are torch's own operators and autograd, never the book's library.
"""

from __future__ import annotations

from book.checkers.activations.numbers import DIFFER, GAIN, LEAK, OTHER
from book.checkers.activations.relu import LEAKY_RELU
from book.checkers.activations.smooth import GELU_GRAD, SOFTPLUS, TANH

EXERCISES = {
    "tanh": TANH,
    "softplus": SOFTPLUS,
    "leaky_relu": LEAKY_RELU,
    "gelu_grad": GELU_GRAD,
    "differ": DIFFER,
    "other": OTHER,
    "leak": LEAK,
    "gain": GAIN,
}
