"""The book's own language: short stories of which everything is known.

`stories` tells them, `follow` gives the exact distribution of each word of a text. What no model
can go below is therefore known for every text; `shelves` has what models that count reach.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from book.stories.facts import Question
from book.stories.grammar import story
from book.stories.voices import EndOfText, Listener, NotOfTheLanguageError, Teller
from book.stories.words import BEGIN, END, PAD, VOCABULARY

__all__ = [
    "BEGIN",
    "END",
    "PAD",
    "VOCABULARY",
    "NotOfTheLanguageError",
    "Question",
    "Story",
    "follow",
    "stories",
    "surprise",
]


@dataclass(frozen=True)
class Story:
    """A story.

    Attributes:
        words: its words, from BEGIN to END.
        questions: the words in it that it had told before, each with what a short cut would reach.
    """

    words: tuple[str, ...]
    questions: tuple[Question, ...]

    def __str__(self) -> str:
        return " ".join(self.words[1:-1])


def stories(seed: int | str) -> Iterator[Story]:
    """Stories without end.

    Args:
        seed: the same seed tells the same stories.
    """
    rng = random.Random(seed)
    while True:
        voice = Teller(rng)
        questions = story(voice)
        yield Story(tuple(voice.words), tuple(questions))


def follow(words: Sequence[str]) -> list[dict[str, float]]:
    """The distribution that each word of a text was drawn from, and that of the word after it.

    Args:
        words: a story, or the beginning of one; with or without BEGIN.

    Returns:
        For each word after BEGIN: word -> probability; one more if the story is not at its end.

    Raises:
        NotOfTheLanguageError: naming the first word that cannot stand where it stands.
    """
    text = list(words) if words and words[0] == BEGIN else [BEGIN, *words]
    listener = Listener(text)
    try:
        story(listener)
    except EndOfText:
        return listener.chances[1:]
    if len(text) > len(listener.words):
        raise NotOfTheLanguageError(f"word {len(listener.words)}: the story has ended before")
    return listener.chances[1:]


def surprise(words: Sequence[str]) -> list[float]:
    """-log of the probability of each word after BEGIN, in nats: the floor of this text.

    Raises:
        NotOfTheLanguageError: naming the first word that cannot stand where it stands.
    """
    text = words[1:] if words and words[0] == BEGIN else words
    return [-math.log(p[word]) for word, p in zip(text, follow(words), strict=False)]
