"""Which distances somebody's attention loses, found from outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def _masked(sees: Callable[[Tensor, Tensor], Tensor]) -> Attend:
    """Attention in which query i sees key j where `sees(i, j)`."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        i, j = torch.arange(len(q))[:, None], torch.arange(len(k))
        allowed = sees(i, j) & (j <= i)
        scores = q @ k.T / math.sqrt(q.shape[1])
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v

    return attend


def _tiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Exact, four keys at a time."""
    i = torch.arange(len(q))[:, None]
    lse = q.new_full((len(q), 1), -torch.inf)
    out = torch.zeros_like(v)
    for a in range(0, len(k), 4):
        j = torch.arange(a, min(a + 4, len(k)))
        scores = q @ k[j].T / math.sqrt(q.shape[1])
        scores = scores.masked_fill(j > i, -torch.inf)
        both = torch.logaddexp(lse, scores.logsumexp(-1, keepdim=True))
        out = out * torch.exp(lse - both) + torch.exp(scores - both) @ v[j]
        lse = both
    return out


def _with_a_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(
        torch.ones(len(q), len(k), dtype=torch.bool).triu(1), -torch.inf
    )
    return torch.cat([scores, scores.new_full((len(q), 1), 2.0)], 1).softmax(-1)[:, :-1] @ v


def _with_a_cap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = 0.5 * torch.tanh(q @ k.T / math.sqrt(q.shape[1]) / 0.5)
    hidden = torch.ones(len(q), len(k), dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def _with_a_penalty(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Far keys have little weight, and still some."""
    i, j = torch.arange(len(q))[:, None], torch.arange(len(k))
    scores = q @ k.T / math.sqrt(q.shape[1]) - 0.5 * (i - j)
    return scores.masked_fill(j > i, -torch.inf).softmax(-1) @ v


def _mean_of(window: int) -> Attend:
    """The mean of the last values: a window without scores, so that a long one is quick."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        sums = torch.cat([v.new_zeros(window - 1, v.shape[1]), v]).unfold(0, window, 1).sum(-1)
        return sums / torch.arange(1, len(v) + 1).clamp(max=window)[:, None]

    return attend


BLACK_BOXES: dict[str, tuple[Attend, int]] = {
    "everything seen": (_masked(lambda i, j: j <= i), 9),
    "in tiles": (_tiled, 11),
    "a window of 4": (_masked(lambda i, j: j > i - 4), 12),
    "a mean of the last 300": (_mean_of(300), 307),
    "chunks of 5": (_masked(lambda i, j: i // 5 == j // 5), 13),
    "chunks of 4, the last token first in its chunk": (
        _masked(lambda i, j: i // 4 == j // 4), 13,
    ),
    "every second key": (_masked(lambda i, j: (i - j) % 2 == 0), 10),
    "a window and the first two": (_masked(lambda i, j: (j > i - 3) | (j < 2)), 11),
    "a last query that sees nothing near": (
        _masked(lambda i, j: (j < i - 2) | (i < i.max())), 9,
    ),
    "a sink": (_with_a_sink, 8),
    "scores that are capped": (_with_a_cap, 8),
    "a penalty on the distance": (_with_a_penalty, 16),
    "weights that rounding hides": (_with_a_penalty, 150),
}  # fmt: skip


def _lost(attend: Attend, length: int) -> list[int]:
    q, k = (draw(length, 3, seed=i) for i in range(2))
    found = []
    for distance in range(length):
        alone = torch.zeros(length, 3, dtype=q.dtype)  # no other value that could round it away
        alone[-1 - distance] = 1.0
        if not bool(attend(q, k, alone)[-1].any()):
            found.append(distance)
    return found


def _by_gradient(attend: Attend, length: int) -> list[int]:
    q, k, v = (draw(length, 4, seed=i) for i in range(3))
    v.requires_grad_()
    (received,) = torch.autograd.grad(attend(q, k, v)[-1].sum(), v)
    return (received.flip(0) == 0).all(1).nonzero().flatten().tolist()


@in_parts
def _probe(
    *,
    row: Callable[[Tensor], Tensor] = lambda out: out[-1],
    place: Callable[[int, int], int] = lambda distance, length: length - 1 - distance,
    distances: Callable[[int], Iterable[int]] = range,
    limit: float = 0.0,
    keep: bool = False,
    clone: bool = True,
    others: float = 0.0,
    change: float = 10.0,
) -> Answer:
    """The probe in parts: which value is changed, where it is looked for, and what is reported."""

    def answer(attend: Attend, length: int) -> list[int]:
        q = torch.zeros(length, 3, dtype=torch.float64)
        k, v = draw(length, 3, seed=7), others * draw(length, 3, seed=8)
        before = row(attend(q, k, v))
        found = []
        for distance in distances(length):
            other = v.clone() if clone else v
            other[place(distance, length)] += change
            moved = bool((row(attend(q, k, other)) - before).abs().max() > limit)
            if moved == keep:
                found.append(distance)
        return found

    return answer


LOST = Exercise(
    title="What does it lose?",
    oracle=_lost,
    cases=tuple(
        Case(name, lambda f=f, n=n: (f, n))  # type: ignore[misc]
        for name, (f, n) in BLACK_BOXES.items()
    ),
    variants=(_probe(), _by_gradient),
    wrong=(
        WrongAnswer(
            "what is kept",
            "That is the list of the distances that still count. Asked for are the others.",
            _probe(keep=True),
        ),
        WrongAnswer(
            "positions for distances",
            "The last token is at distance 0, the one before it at distance 1.",
            _probe(place=lambda distance, length: distance),
        ),
        WrongAnswer(
            "any output looked at",
            "An earlier query may see what the last one does not. Look at the last output alone.",
            _probe(row=lambda out: out),
        ),
        WrongAnswer(
            "little taken for nothing",
            "A far value with a small weight is not lost. What is lost changes nothing at all.",
            _probe(limit=0.1),
        ),
        WrongAnswer(
            "a change that is rounded away",
            "A weight of 1e-20 adds nothing to an output of 1, because the sum is rounded. Ask for "
            "the derivative, which is the weight itself, or let all other values be 0.",
            _probe(others=1.0, change=1.0),
        ),
        WrongAnswer(
            "the token itself left out",
            "Distances begin with 0, the last token itself, and end with length - 1.",
            _probe(distances=lambda n: range(1, n), place=lambda d, n: n - d),
        ),
        WrongAnswer(
            "changes that pile up",
            "Each distance is tried by itself: change a clone of the values.",
            _probe(clone=False),
        ),
    ),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "what changes nothing is said for float64"),
)
