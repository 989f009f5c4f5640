"""Assignment 1, chapters 1 and 3: broadcasting backwards, stable losses, masks and checks."""

from book.checkers.assignments.tensors_and_softmax.backwards import EXERCISES as _BACKWARDS
from book.checkers.assignments.tensors_and_softmax.losses import EXERCISES as _LOSSES
from book.checkers.assignments.tensors_and_softmax.softmax import EXERCISES as _SOFTMAX

EXERCISES = {**_BACKWARDS, **_LOSSES, **_SOFTMAX}
