"""The exercises of the chapter on the families of models."""

from __future__ import annotations

from book.checkers.families.buckets import BUCKETS
from book.checkers.families.compare import DIFF
from book.checkers.families.fused import SPLIT
from book.checkers.families.reading import CHILD, PATIENT, SILENT, TASTING
from book.checkers.families.spend import SPEND

EXERCISES = {
    "tasting": TASTING,
    "child": CHILD,
    "diff": DIFF,
    "split": SPLIT,
    "silent": SILENT,
    "patient": PATIENT,
    "spend": SPEND,
    "buckets": BUCKETS,
}
