"""Measures a model that somebody hands in, of which only the answers are seen.

The graded capstone asks for a function `next_word(ids)`: for rows of word numbers of one length,
shape (B, T), the logits of the word after each row, shape (B, V). It is only ever given the
beginnings of stories, the shorter ones first, so no answer can rest on a word that is to come.
Nothing that was handed in is unpickled, or run on this side.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from book.own import made
from book.own.tokens import ID, encode
from book.stories import VOCABULARY, stories, surprise

NextWord = Callable[..., Any]

# The stories are told by this name. Another one tells others: a teacher may choose it.
STREAM = "handed in"
STORIES, PLACES = 100, 4
SEARCHED, ASKED = 500, 24
BATCH = 64


class HandedInError(ValueError):
    """What was handed in does not answer as the text asks; says where and what came instead."""


@dataclass(frozen=True)
class Place:
    """A beginning of a story and the word that comes next.

    Attributes:
        before: the numbers of the words, BEGIN first.
        word: the number of the next one.
        floor: its surprise under the language's own distribution, in nats.
        kind: of the question that it answers, or nothing.
        short_cuts: what each short cut has of the answer, by its name.
    """

    before: tuple[int, ...]
    word: int
    floor: float = 0.0
    kind: str = ""
    short_cuts: Mapping[str, float] | None = None


@functools.cache
def places() -> tuple[Place, ...]:
    """Places all over the stories, at random and always the same."""
    chance = random.Random(STREAM)
    found = []
    for story in itertools.islice(stories(STREAM), STORIES):
        row, floors = encode(story.words), list(surprise(story.words))
        for at in sorted(chance.sample(range(1, len(row)), PLACES)):
            found.append(Place(tuple(row[:at]), row[at], floors[at - 1]))
    return tuple(found)


@functools.cache
def asked() -> tuple[Place, ...]:
    """Places at which a question is answered, up to `ASKED` of each kind."""
    found: dict[str, list[Place]] = defaultdict(list)
    for story in itertools.islice(stories(STREAM), SEARCHED):
        row = encode(story.words)
        for q in story.questions:
            if len(found[q.kind]) < ASKED:
                found[q.kind].append(
                    Place(tuple(row[: q.at]), ID[q.answer], 0.0, q.kind, q.short_cuts)
                )
    return tuple(itertools.chain.from_iterable(found[kind] for kind in sorted(found)))


def answers(next_word: NextWord, some: Sequence[Place]) -> Iterator[tuple[Place, Tensor]]:
    """Each place with the logits of the word after it, float64, shape (V,).

    Raises:
        HandedInError: if the function raises, or gives what are no logits.
    """
    order = sorted(some, key=lambda p: len(p.before))
    for length, group in itertools.groupby(order, key=lambda p: len(p.before)):
        rows = list(group)
        for first in range(0, len(rows), BATCH):
            part = rows[first : first + BATCH]
            ids = torch.tensor([p.before for p in part])
            yield from zip(part, _asked(next_word, ids, length), strict=True)


def _asked(next_word: NextWord, ids: Tensor, length: int) -> Tensor:
    where = f"`next_word` on {len(ids)} rows of {length} words"
    wanted = len(ids), len(VOCABULARY)
    try:
        logits = next_word(ids.clone())
    except NotImplementedError:
        raise
    except Exception as error:
        raise HandedInError(f"{where} raised {type(error).__name__}: {str(error)[:300]}") from error
    if not isinstance(logits, Tensor):
        raise HandedInError(f"{where} gave no tensor but {type(logits).__name__}")
    if tuple(logits.shape) != wanted:
        raise HandedInError(f"{where} gave the shape {tuple(logits.shape)}; {wanted} was asked for")
    if not logits.is_floating_point():
        raise HandedInError(f"{where} gave {logits.dtype}; logits are floating-point numbers")
    if logits.isnan().any() or (logits == torch.inf).any():
        broken = int((logits.isnan() | (logits == torch.inf)).any(1).sum())
        raise HandedInError(f"{where} gave nan or infinity in {broken} rows")
    return logits.detach().double()


def loss_of(next_word: NextWord) -> float:
    """The loss on held-out stories, in nats per word.

    It is the language's own loss, which is known of many stories, and what this model has more than
    the language at `places()`: so the luck of the draw hardly counts.

    Raises:
        HandedInError: as `answers`.
    """
    more = [
        -logits.log_softmax(0)[place.word].item() - place.floor
        for place, logits in answers(next_word, places())
    ]
    return float(made()["floor"]) + math.fsum(more) / len(more)


def shelves() -> dict[str, float]:
    """What a loss is compared with, the highest first: the name of each shelf and its loss."""
    counted, floor = made()["shelves"], made()["floor"]
    return {
        "counting words": counted["1"],
        "counting pairs": counted["2"],
        "counting triples": counted["3"],
        "the best that counting reaches": min(counted.values()),
        "0.3 above the floor of the language": floor + 0.3,
        "0.1 above the floor of the language": floor + 0.1,
    }


@dataclass(frozen=True)
class Kind:
    """How the questions of one kind were answered.

    Attributes:
        right: the part whose likeliest word is the answer.
        short_cut: the part that the best short cut answers.
    """

    right: float
    short_cut: float

    @property
    def known(self) -> bool:
        """Whether at least half of what the best short cut leaves is answered."""
        return self.right >= (1 + self.short_cut) / 2


def questions_of(next_word: NextWord) -> dict[str, Kind]:
    """Kind of question -> how it was answered.

    Raises:
        HandedInError: as `answers`.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    cuts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for place, logits in answers(next_word, asked()):
        right[place.kind].append(int(logits.argmax()) == place.word)
        for name, chance in (place.short_cuts or {}).items():
            cuts[place.kind][name].append(chance)
    return {
        kind: Kind(sum(found) / len(found), max(sum(c) / len(c) for c in cuts[kind].values()))
        for kind, found in sorted(right.items())
    }


# ---- the measured opening


def previous_of(attention: Callable[..., Any], ids: Tensor) -> Tensor:
    """The mean weight on the token before of each head, (layers, heads).

    Args:
        attention: ids (B, T) -> weights (layers, B, heads, T, T).
        ids: rows of word numbers.

    Raises:
        HandedInError: if the weights are none: a shape, a row that does not sum to 1, a weight on
            what is to come, or weights that change when a text goes on.
    """
    b, t = ids.shape
    found = _weights(attention, ids)
    if found.dim() != 5 or found.shape[1] != b or tuple(found.shape[3:]) != (t, t):
        raise HandedInError(
            f"`attention` gave the shape {tuple(found.shape)}; "
            f"(layers, {b}, heads, {t}, {t}) was asked for"
        )
    if not torch.allclose(found.sum(-1), torch.ones((), dtype=found.dtype), atol=1e-3):
        raise HandedInError("the weights of a query do not sum to 1")
    if found.min() < 0:
        raise HandedInError("a weight is negative")
    if found.triu(1).abs().max() > 1e-6:
        raise HandedInError("a query has a weight on a word that is to come")
    half = t // 2
    shorter = _weights(attention, ids[:, :half])
    if shorter.shape != (*found.shape[:3], half, half) or not torch.allclose(
        shorter, found[..., :half, :half], atol=1e-3
    ):
        raise HandedInError("the weights of the first words change when the text goes on")
    return found.diagonal(-1, -2, -1).mean((1, -1))


def _weights(attention: Callable[..., Any], ids: Tensor) -> Tensor:
    try:
        found = attention(ids.clone())
    except NotImplementedError:
        raise
    except Exception as error:
        raise HandedInError(
            f"`attention` raised {type(error).__name__}: {str(error)[:300]}"
        ) from error
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise HandedInError("`attention` gave no tensor of floating-point numbers")
    if not found.isfinite().all():
        raise HandedInError("`attention` gave weights that are not finite")
    return found.detach().double()
