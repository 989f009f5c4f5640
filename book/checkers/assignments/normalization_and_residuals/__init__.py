"""Assignment 4, chapters 8 and 9: norms over parts, derivatives both ways, folding, depth."""

from book.checkers.assignments.normalization_and_residuals.backwards import EXERCISES as _BACKWARDS
from book.checkers.assignments.normalization_and_residuals.norms import EXERCISES as _NORMS
from book.checkers.assignments.normalization_and_residuals.residuals import EXERCISES as _RESIDUALS

EXERCISES = {**_NORMS, **_BACKWARDS, **_RESIDUALS}
