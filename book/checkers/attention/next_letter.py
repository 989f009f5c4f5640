"""Two heads that continue a repeated text. The oracle is torch's own operator, and a loop."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.attention.drawn import lower
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _next_letter(letters: Tensor, places: Tensor, match: float) -> Tensor:
    back = F.pad(places, (0, 0, 1, 0))[:-1]  # the place before; none for the first
    before = F.scaled_dot_product_attention(
        back, places, letters, is_causal=True, scale=float(match)
    )
    return F.scaled_dot_product_attention(
        letters, before, letters, is_causal=True, scale=float(match)
    )


def _case(name: str, text: str, letters: int, match: float) -> Case:
    """A text after the start symbol."""

    def inputs() -> tuple[Tensor, Tensor, float]:
        ids = torch.tensor([ord(c) - ord("a") for c in text], dtype=torch.long)
        rows = F.one_hot(ids, letters).double()
        rows = torch.cat([torch.zeros(1, letters, dtype=torch.float64), rows])
        return rows, torch.eye(len(rows), dtype=torch.float64), match

    return Case(name, inputs, 1e-10)


def _weights(q: Tensor, k: Tensor, factor: float, masked: bool = True) -> Tensor:
    scores = factor * q @ k.T
    if masked:
        scores = scores.masked_fill(~lower(len(q), len(k)), -torch.inf)
    return scores.softmax(-1)


@in_parts
def _with(
    *,
    back: Callable[[Tensor], Tensor] = lambda places: places.roll(1, 0),
    first_masked: bool = True,
    second_masked: bool = True,
    factor: Callable[[float, int], float] = lambda match, width: match,
    key: Callable[[Tensor, Tensor], Tensor] = lambda before, letters: before,
    query: Callable[[Tensor, Tensor], Tensor] = lambda before, letters: letters,
    value: Callable[[Tensor, Tensor], Tensor] = lambda before, letters: letters,
) -> Answer:
    """The right answer in parts. The first place is asked for by nobody who may see it."""

    def answer(letters: Tensor, places: Tensor, match: float) -> Tensor:
        wide = factor(match, len(places))
        before = _weights(back(places), places, wide, first_masked) @ letters
        q, k, v = (part(before, letters) for part in (query, key, value))
        return _weights(q, k, factor(match, letters.shape[1]), second_masked) @ v

    return answer


def _by_loops(letters: Tensor, places: Tensor, match: float) -> Tensor:
    """Token by token, over what each may see."""
    before: list[Tensor] = []
    out = []
    for i in range(len(letters)):
        seen = letters[: i + 1]
        scores = [match * float(j == i - 1) for j in range(i + 1)]
        before.append(letters.new_tensor(scores).softmax(0) @ seen)
        out.append((match * torch.stack(before) @ letters[i]).softmax(0) @ seen)
    return torch.stack(out)


NEXT_LETTER = Exercise(
    title="Two heads that continue a repeated text",
    oracle=_next_letter,
    cases=(
        _case("abcabdab", "abcabdab", 4, 10.0),
        _case("a letter twice in a row", "aabaa", 3, 8.0),
        _case("no letter twice", "dbca", 5, 6.0),
        _case("a soft match", "abab", 2, 1.0),
        _case("a very sharp match", "abcab", 6, 200.0),
        _case("one letter", "b", 3, 5.0),
        _case("the start symbol alone", "", 3, 5.0),
    ),
    variants=(_with(), _by_loops),
    wrong=(
        WrongAnswer(
            "the root not made up for",
            "After the division by the root a full match is to score `match`, so the query has to "
            "be larger by the root of the head's width.",
            _with(factor=lambda match, width: match / math.sqrt(width)),
        ),
        WrongAnswer(
            "the first head looks at itself",
            "The query of a place is to match the key of the place before.",
            _with(back=lambda places: places),
        ),
        WrongAnswer(
            "the first head looks ahead",
            "This is the matrix of one step forward, its transpose. The mask hides that place.",
            _with(back=lambda places: places.roll(-1, 0)),
        ),
        WrongAnswer(
            "the first head without a mask",
            "Both heads are causal. With a soft match the first one sees a little of the future.",
            _with(back=lambda places: F.pad(places, (0, 0, 1, 0))[:-1], first_masked=False),
        ),
        WrongAnswer(
            "the second head without a mask",
            "Both heads are causal: what comes after the query is not known yet.",
            _with(second_masked=False),
        ),
        WrongAnswer(
            "the same letter in place of the one after it",
            "The keys of the second head are what the first one wrote, the letter before.",
            _with(key=lambda before, letters: letters),
        ),
        WrongAnswer(
            "queries and keys exchanged",
            "The query is the own letter, the key the letter before. This is the other way round.",
            _with(key=lambda b, letters: letters, query=lambda b, letters: b),
        ),
        WrongAnswer(
            "the letter before handed over",
            "The key's own letter is asked for: it is the one that came after.",
            _with(value=lambda before, letters: before),
        ),
    ),
    spared={
        "other values": "places that do not stand in order are none",
        "tiny": "a one-hot row has a 1",
        "huge": "a one-hot row has a 1",
    },
)
