"""The exercises of the chapter on serving a model."""

from __future__ import annotations

from book.checkers.serving.append import APPEND
from book.checkers.serving.estimates import CHUNK, DRAFT, FITS, SPLIT
from book.checkers.serving.groups import GROUPS
from book.checkers.serving.plan import PLAN
from book.checkers.serving.residual import RESIDUAL

EXERCISES = {
    "fits": FITS,
    "append": APPEND,
    "plan": PLAN,
    "chunk": CHUNK,
    "residual": RESIDUAL,
    "draft": DRAFT,
    "groups": GROUPS,
    "split": SPLIT,
}
