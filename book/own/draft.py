"""A draft for the book's own model: a table of what followed the last words, in its stories."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import torch

from book.own.recipe import Recipe, training_stories
from book.stories import VOCABULARY
from book.stories.shelves import NGram

__all__ = ["ngram_draft"]


@functools.cache
def ngram_draft(
    order: int = 4, counted: int = 2000, dtype: torch.dtype = torch.float64
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The distribution of the next word after some tokens, by counts of n words.

    Args:
        order: words that are looked at, the predicted one included.
        counted: how many of the stories that the model is trained on are counted.
        dtype: of the probabilities.

    Returns:
        A function of the tokens so far, (T,), at least one, with a distribution of shape (V,), all
        of it above 0.
    """
    rows = (s.words for s in itertools.islice(training_stories(Recipe()), counted))
    table = NGram(order, rows)

    @functools.cache
    def after(before: tuple[str, ...]) -> torch.Tensor:
        chances = [table.probability(before, word) for word in VOCABULARY]
        p = torch.tensor(chances, dtype=torch.float64)
        return (p / p.sum()).to(dtype)

    def draft(tokens: torch.Tensor) -> torch.Tensor:
        last = tokens[max(0, len(tokens) - order + 1) :].tolist()
        return after(tuple(VOCABULARY[n] for n in last))

    return draft
