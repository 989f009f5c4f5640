"""The exercises on the whole Transformer: its layers, its joints, and writing with it.

Every section of the modules has the same order: the oracle, the cases, the wrong answers, the
exercise.
"""

from __future__ import annotations

from book.checkers.transformer.counting import COUNT_PARAMETERS, SHIFT_RIGHT
from book.checkers.transformer.joints import EXACT, LOSS, PENALTY
from book.checkers.transformer.layers import DECODER_LAYER, ENCODER_LAYER
from book.checkers.transformer.writing import GREEDY

EXERCISES = {
    "encoder_layer": ENCODER_LAYER,
    "decoder_layer": DECODER_LAYER,
    "count_parameters": COUNT_PARAMETERS,
    "shift_right": SHIFT_RIGHT,
    "loss": LOSS,
    "greedy": GREEDY,
    "exact": EXACT,
    "penalty": PENALTY,
}
