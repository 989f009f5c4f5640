"""The exercises of chapter 14: what MLA caches, how it is absorbed, and what that saves."""

from __future__ import annotations

from book.checkers.mla.absorption import ABSORBED
from book.checkers.mla.decoding import DECODE
from book.checkers.mla.devices import DEVICES
from book.checkers.mla.foresight import BITS, BY_HAND, SPAN, WHERE
from book.checkers.mla.sizes import BUDGET

EXERCISES = {
    "by_hand": BY_HAND,
    "absorbed": ABSORBED,
    "span": SPAN,
    "where": WHERE,
    "decode": DECODE,
    "devices": DEVICES,
    "budget": BUDGET,
    "bits": BITS,
}
