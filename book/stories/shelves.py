"""How far models get that only count: the shelves beside a loss curve.

An n-gram model of order n predicts a word from the n - 1 words before it. Its probabilities here
are those of Witten and Bell (1991): what was counted after these words, mixed with the order below
by how many different words were seen there.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from book.stories.words import VOCABULARY


class NGram:
    """Predicts a word from the words just before it, from counts.

    Args:
        order: how many words are looked at, the predicted one included; 1 counts words alone.
        texts: what is counted. Each begins with a word that is never predicted.

    Raises:
        ValueError: if the order is below 1.
    """

    def __init__(self, order: int, texts: Iterable[Sequence[str]]) -> None:
        if order < 1:
            raise ValueError(f"order must be at least 1, got {order}")
        self.order = order
        self._after: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for words in texts:
            for at in range(1, len(words)):
                for n in range(min(order, at + 1)):
                    self._after[tuple(words[at - n : at])][words[at]] += 1

    def probability(self, before: Sequence[str], word: str) -> float:
        """Of a word after the words before it."""
        p = 1 / len(VOCABULARY)
        for n in range(min(self.order, len(before) + 1)):
            seen = self._after.get(tuple(before[len(before) - n :]))
            if seen is None:
                break
            total, kinds = seen.total(), len(seen)
            p = (seen[word] + kinds * p) / (total + kinds)
        return p

    def loss(self, texts: Iterable[Sequence[str]], order: int | None = None) -> float:
        """Mean of -log p over the words of the texts but the first of each, in nats.

        Args:
            texts: what is predicted.
            order: of a model of lower order, whose counts this one holds too; None for its own.
        """
        look_back = (order or self.order) - 1
        surprises = [
            -math.log(self.probability(words[max(0, at - look_back) : at], words[at]))
            for words in texts
            for at in range(1, len(words))
        ]
        return math.fsum(surprises) / len(surprises)
