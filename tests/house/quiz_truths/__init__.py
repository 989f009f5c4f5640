"""Whether a statement of the quiz is true, computed: a function for each, under the statement's id.

A statement without one is drawn from a misconception that cites a source instead.
"""

from . import modern, parts, today  # noqa: F401  (they register their statements)
from .register import TRUTHS

__all__ = ["TRUTHS"]
