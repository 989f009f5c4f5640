"""The questions of the assignment on published models and the machines that run them.

The oracles are loops, fractions and sets, never the book's library.
"""

from book.checkers.assignments.models_and_machines.models import EXERCISES as _MODELS
from book.checkers.assignments.models_and_machines.roofs import EXERCISES as _ROOFS
from book.checkers.assignments.models_and_machines.serving import EXERCISES as _SERVING

EXERCISES = {**_MODELS, **_SERVING, **_ROOFS}
