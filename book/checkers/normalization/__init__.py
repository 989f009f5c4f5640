"""The exercises of chapter 08: LayerNorm, RMSNorm and BatchNorm, a conversion, sizes.

The oracles are torch's own operators and autograd, never the book's library. Every section has
the same order: the oracle, the cases, a builder of wrong answers, other right answers, the
exercise. A builder is the right computation in parts; a wrong answer replaces one part, so that
its line shows the mistake and nothing else. Mistakes that several exercises invite are written
once, as functions from a builder to wrong answers.
"""

from __future__ import annotations

from book.checkers.core import Exercise
from book.checkers.normalization.asked import DECAY, OTHER_EPS, SCALE
from book.checkers.normalization.backward import LAYER_NORM_BACKWARD
from book.checkers.normalization.batch import BATCH_NORM
from book.checkers.normalization.conversion import TO_RMS_NORM
from book.checkers.normalization.forward import LAYER_NORM, RMS_NORM

EXERCISES: dict[str, Exercise] = {
    "layer_norm": LAYER_NORM,
    "scale": SCALE,
    "batch_norm": BATCH_NORM,
    "to_rms_norm": TO_RMS_NORM,
    "eps": OTHER_EPS,
    "layer_norm_backward": LAYER_NORM_BACKWARD,
    "decay": DECAY,
    "rms_norm": RMS_NORM,
}
