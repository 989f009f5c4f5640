"""A test that finds out whether a function of a sequence sees the future."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.attention.drawn import draw, past
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

Rows = Callable[[Tensor], Tensor]


def _attend(allowed: Rows) -> Rows:
    """Self-attention on x, with the weights that `allowed` makes of the scores."""
    return lambda x: allowed(x @ x.T / math.sqrt(x.shape[1])) @ x


def _shifted(step: int) -> Rows:
    """Row i is x[i] plus a little of x[i + step]."""
    return lambda x: x + 0.1 * F.pad(x, (0, 0, 0, step))[step:]


def _one_feature(x: Tensor) -> Tensor:
    later = F.pad(x, (0, 0, 0, 1))[1:, 1:2]
    return x.cumsum(0) + later


def _last_to_first(x: Tensor) -> Tensor:
    # Little, but far more than rounding.
    return torch.cat([x[:1] + 1e-6 * x[-1:], x[1:]])


def _only(row: int) -> Rows:
    """One row, and no other, sees the next one."""
    return lambda x: torch.stack([x[i] + (i == row) * x[(i + 1) % len(x)] for i in range(len(x))])


def _rounding(x: Tensor) -> Tensor:
    return x.cumsum(0) + 1e-13 * x.sum(0)


def _sum_free(x: Tensor) -> Tensor:
    """Depends on the differences between the later rows' features only."""
    return x.cumsum(0) + (x - x.mean(1, keepdim=True)).flip(0).cumsum(0).flip(0)


def _bend_free(x: Tensor) -> Tensor:
    """Depends on how the later rows' first three features bend, and on nothing else of them."""
    bend = x[:, :1] - 2 * x[:, 1:2] + x[:, 2:3]
    return x.cumsum(0) + bend.flip(0).cumsum(0).flip(0)


BLACK_BOXES: dict[str, Rows] = {
    "attention with a causal mask": _attend(
        lambda s: s.masked_fill(~past(s), -torch.inf).softmax(-1)
    ),
    "attention without a mask": _attend(lambda s: s.softmax(-1)),
    "attention with scores times 0": _attend(lambda s: (s * past(s)).softmax(-1)),
    "attention masked after the softmax": _attend(lambda s: s.softmax(-1) * past(s)),
    "a running sum": lambda x: x.cumsum(0),
    "each row by itself": lambda x: x.square(),
    "one row ahead": _shifted(1),
    "four rows ahead": _shifted(4),
    "one feature of the next row": _one_feature,
    "the last row seen by the first": _last_to_first,
    "a middle row seen by the one before": _only(2),
    "the second row seen by the first": _only(0),
    "one row ahead, with a minus": lambda x: 2 * x - _shifted(1)(x),
    "the last row seen by the one before": _only(4),
    "differences of later features": _sum_free,
    "second differences of later features": _bend_free,
    "a running sum with rounding noise": _rounding,
    "a constant": torch.ones_like,
}


def _leaks(f: Rows, x: Tensor) -> bool:
    before = f(x)
    for j in range(1, len(x)):
        changed = x.clone()
        changed[j] += draw(x.shape[1], seed=j)
        if (f(changed) - before)[:j].abs().amax() > 1e-9:
            return True
    return False


def _leaks_by_prefixes(f: Rows, x: Tensor) -> bool:
    """What comes later is replaced by something else altogether."""
    full = f(x)
    for j in range(1, len(x)):
        other = torch.cat([x[:j], draw(*x[j:].shape, seed=j)])
        if (f(other) - full)[:j].abs().max() > 1e-9:
            return True
    return False


@in_parts
def _leak_test(
    *,
    changed: Callable[[int], Iterator[int] | range] = lambda n: range(1, n),
    by: Callable[[Tensor], Tensor] = lambda x: draw(x.shape[1], seed=9).to(x),
    seen: Callable[[Tensor, int], Tensor] = lambda moved, j: moved[:j],
    limit: float = 1e-9,
    in_place: bool = False,
) -> Answer:
    """A leak test in parts: which rows are changed, by what, and which are looked at."""

    def answer(f: Rows, x: Tensor) -> bool:
        before = f(x)
        for j in changed(len(x)):
            other = x if in_place else x.clone()
            other[j] += by(x)
            if (seen(f(other) - before, j).abs() > limit).any():
                return True
        return False

    return answer


LEAKS = Exercise(
    title="A leak test for a black box",
    oracle=_leaks,
    cases=tuple(
        Case(name, lambda f=f: (f, draw(6, 4)))  # type: ignore[misc]
        for name, f in BLACK_BOXES.items()
    ),
    variants=(_leak_test(), _leaks_by_prefixes),
    wrong=(
        WrongAnswer(
            "only the last row changed",
            "The leak may be in the middle of the sequence. Change each row in turn.",
            _leak_test(changed=lambda n: range(n - 1, n)),
        ),
        WrongAnswer(
            "only the first output looked at",
            "All outputs before the changed row must stay, not only the first.",
            _leak_test(seen=lambda moved, j: moved[:1]),
        ),
        WrongAnswer(
            "only the row just before looked at",
            "A leak may jump over rows. Look at all outputs before the changed row.",
            _leak_test(seen=lambda moved, j: moved[j - 1 : j]),
        ),
        WrongAnswer(
            "the changed row's own output looked at",
            "A row may depend on itself. Only the outputs before it must stay.",
            _leak_test(seen=lambda moved, j: moved[: j + 1]),
        ),
        WrongAnswer(
            "all features changed by the same amount",
            "A function that looks at differences of features does not notice that. Change each "
            "feature by another amount.",
            _leak_test(by=torch.ones_like),
        ),
        WrongAnswer(
            "changes in equal steps",
            "Changes like 1, 2, 3 leave x0 - 2·x1 + x2 as it was. Take unrelated amounts.",
            _leak_test(by=lambda x: torch.arange(1.0, x.shape[1] + 1).to(x)),
        ),
        WrongAnswer(
            "one feature changed",
            "The leak may go through another feature. Change all of them.",
            _leak_test(by=lambda x: torch.eye(x.shape[1])[0].to(x)),
        ),
        WrongAnswer(
            "no room for rounding",
            "A change of 1e-13 is the rounding of another order of summation, not a leak.",
            _leak_test(limit=0.0),
        ),
        WrongAnswer(
            "x changed in place",
            "The changes pile up, and the caller's x is another one afterwards. Change a clone.",
            _leak_test(in_place=True),
        ),
    ),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "what counts as rounding is said for float64"),
)
