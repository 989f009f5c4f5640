"""What the model reaches on stories that it was not trained on.

Beside it stand what counting and short cuts reach, and the floor that nothing can go below.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from book.own.recipe import Recipe, padded, training_stories
from book.own.tokens import ID, PAD_ID, encode
from book.stories import Story, stories, surprise
from book.stories.shelves import NGram


def held_out(number: int = 400) -> list[Story]:
    """Stories that are told for measuring, always the same."""
    return list(itertools.islice(stories("held out"), number))


@dataclass(frozen=True)
class Asked:
    """The questions of one kind.

    Attributes:
        number: how many there were.
        right: the part of them that the model answers, its likeliest word being the answer.
        short_cuts: the part that each short cut answers, by its name.
    """

    number: int
    right: float
    short_cuts: dict[str, float]


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        loss: of the model, in nats per word.
        floor: mean surprise under the language's own distribution, of the same words.
        questions: kind -> how they were answered.
    """

    loss: float
    floor: float
    questions: dict[str, Asked]

    @property
    def excess(self) -> float:
        """How far the loss is above the floor."""
        return self.loss - self.floor


@torch.no_grad()
def measure(model: nn.Module, texts: Sequence[Story], batch: int = 50) -> Measured:
    """The model's loss and answers on these stories, beside floor and short cuts."""
    total, words = 0.0, 0
    right: dict[str, list[bool]] = defaultdict(list)
    cuts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for first in range(0, len(texts), batch):
        part = texts[first : first + batch]
        rows = padded([encode(story.words) for story in part])
        logits, wanted = model(rows[:, :-1]), rows[:, 1:]
        total += F.cross_entropy(
            logits.transpose(1, 2), wanted, ignore_index=PAD_ID, reduction="sum"
        ).item()
        words += int((wanted != PAD_ID).sum())
        best = logits.argmax(-1)
        for row, story in enumerate(part):
            for q in story.questions:
                right[q.kind].append(int(best[row, q.at - 1]) == ID[q.answer])
                for name, chance in q.short_cuts.items():
                    cuts[q.kind][name].append(chance)
    floor = math.fsum(itertools.chain.from_iterable(surprise(s.words) for s in texts)) / words
    questions = {
        kind: Asked(len(r), sum(r) / len(r), {n: sum(c) / len(c) for n, c in cuts[kind].items()})
        for kind, r in right.items()
    }
    return Measured(total / words, floor, questions)


def shelves(
    counted: int, texts: Sequence[Story], orders: Sequence[int] = (1, 2, 3, 4, 5)
) -> dict[int, float]:
    """Order -> loss of an n-gram model on these stories.

    Args:
        counted: how many of the stories that the model is trained on are counted.
        texts: what it is measured on.
        orders: of the models.
    """
    rows = (s.words for s in itertools.islice(training_stories(Recipe()), counted))
    on = [s.words for s in texts]
    # The counts of a higher order hold those of the lower ones.
    model = NGram(max(orders), rows)
    return {n: model.loss(on, n) for n in orders}
