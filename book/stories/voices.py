"""The two voices of the grammar: one draws a story word by word, one follows a given text.

Both are asked for each word with the weights of the words that could stand there. So the grammar is
written once, and tells stories as well as the exact distribution of each next word.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

Weights = Mapping[str, float]


class NotOfTheLanguageError(ValueError):
    """A text that no story begins with; says which word it is and what could stand there."""


class Voice(Protocol):
    """What the grammar asks for each word of a story."""

    words: list[str]

    def choose(self, weights: Weights) -> str:
        """One of the words; its probability is its part of the sum of the weights."""
        ...

    def say(self, *words: str) -> None:
        """Words that can only be these."""
        ...


class Teller:
    """Draws the words of a story.

    Args:
        rng: where the chances come from.

    Attributes:
        words: the words so far.
    """

    def __init__(self, rng: random.Random) -> None:
        self.words: list[str] = []
        self._rng = rng

    def choose(self, weights: Weights) -> str:
        """One of the words, drawn by its weight."""
        at = self._rng.random() * sum(weights.values())
        drawn = ""
        for word, weight in weights.items():
            if weight:
                drawn = word
                at -= weight
                if at < 0:
                    break
        self.words.append(drawn)
        return drawn

    def say(self, *words: str) -> None:
        """Words that can only be these."""
        self.words.extend(words)


class EndOfText(Exception):  # noqa: N818
    """The text ends before its story does."""


class Listener:
    """Follows a text and notes the distribution that each of its words had.

    Args:
        text: the words of a story, or of the beginning of one.

    Attributes:
        words: the words that were followed so far.
        chances: for each word of the text the distribution it was drawn from, word -> probability;
            one more if the text ends before its story does: that of the next word.
    """

    def __init__(self, text: Sequence[str]) -> None:
        self.words: list[str] = []
        self.chances: list[dict[str, float]] = []
        self._text = text

    def choose(self, weights: Weights) -> str:
        """The text's next word, which must be one of these."""
        at = len(self.words)
        total = sum(weights.values())
        self.chances.append({w: weight / total for w, weight in weights.items() if weight})
        if at == len(self._text):
            raise EndOfText
        word = self._text[at]
        if not weights.get(word):
            could = ", ".join(sorted(self.chances[-1]))
            raise NotOfTheLanguageError(f"word {at}, {word!r}: a story could go on with {could}")
        self.words.append(word)
        return word

    def say(self, *words: str) -> None:
        """Words that can only be these."""
        for word in words:
            self.choose({word: 1.0})
