"""The exercises of chapter 12: longer contexts by other frequencies, and by a penalty."""

from __future__ import annotations

from book.checkers.long_context.alibi import ALIBI_BIAS
from book.checkers.long_context.dynamic import DYNAMIC_SCORES
from book.checkers.long_context.foresight import BASE, NEEDLE_LOSS, SQUEEZED, WHEELS
from book.checkers.long_context.frequencies import KEPT_SHARE, NTK_BASE

EXERCISES = {
    "wheels": WHEELS,
    "ntk_base": NTK_BASE,
    "kept_share": KEPT_SHARE,
    "squeezed": SQUEEZED,
    "dynamic_scores": DYNAMIC_SCORES,
    "base": BASE,
    "needle_loss": NEEDLE_LOSS,
    "alibi_bias": ALIBI_BIAS,
}
