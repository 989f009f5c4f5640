"""Assignment 3, chapters 6 and 7: derivatives of activations, gated layers, widths and merging."""

from book.checkers.assignments.activations_and_ffn.activations import EXERCISES as _ACTIVATIONS
from book.checkers.assignments.activations_and_ffn.layers import EXERCISES as _LAYERS

EXERCISES = {**_ACTIVATIONS, **_LAYERS}
