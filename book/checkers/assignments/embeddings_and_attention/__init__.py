"""Assignment 2, chapters 4 and 5: positions with a cache, masks, biases, attention backwards."""

from book.checkers.assignments.embeddings_and_attention.attention import EXERCISES as _ATTENTION
from book.checkers.assignments.embeddings_and_attention.embeddings import EXERCISES as _EMBEDDINGS

EXERCISES = {**_EMBEDDINGS, **_ATTENTION}
