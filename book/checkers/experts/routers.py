"""Who is chosen, and with which weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer, in_parts


def _draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- top_one(logits) ------------------------------------------------------------------------------

Pair = tuple[Tensor, Tensor]


def _top_one(logits: Tensor) -> Pair:
    """Token by token, from torch's log-softmax."""
    chosen = torch.stack([row.argmax() for row in logits])
    p = torch.log_softmax(logits, -1).exp()
    return p.gather(-1, chosen[:, None])[:, 0], chosen


def _from_top(logits: Tensor) -> Pair:
    best, chosen = logits.max(-1)
    return 1 / (logits - best[:, None]).exp().sum(-1), chosen


def _renormalised(logits: Tensor) -> Pair:
    best, chosen = logits.topk(1, dim=-1)
    return best.softmax(-1)[:, 0], chosen[:, 0]


def _detached(logits: Tensor) -> Pair:
    best, chosen = logits.detach().softmax(-1).max(-1)
    return best, chosen


def _sigmoid(logits: Tensor) -> Pair:
    best, chosen = logits.max(-1)
    return torch.sigmoid(best), chosen


def _raw(logits: Tensor) -> Pair:
    best, chosen = logits.max(-1)
    return best, chosen


def _over_tokens(logits: Tensor) -> Pair:
    chosen = logits.argmax(-1)
    return logits.softmax(0).gather(-1, chosen[:, None])[:, 0], chosen


def _twice(logits: Tensor) -> Pair:
    best, chosen = logits.softmax(-1).softmax(-1).max(-1)
    return best, chosen


def _logits(name: str, n: int, e: int, seed: int, scale: float = 1.0) -> Case:
    def inputs() -> tuple[Any, ...]:
        return ((scale * _draw(n, e, seed=seed)).requires_grad_(),)

    return Case(name, inputs, grad=True)


TOP_ONE = Exercise(
    "The weight of a single expert",
    oracle=_top_one,
    cases=(
        _logits("five tokens, four experts", 5, 4, 1),
        _logits("more experts than tokens", 3, 9, 2),
        _logits("a sure router", 4, 6, 3, 20.0),
        _logits("one token", 1, 5, 4),
        _logits("two experts", 6, 2, 5, 0.1),
    ),
    wrong=(
        WrongAnswer(
            "renormalised",
            "A single weight divided by its sum, or the softmax of a single logit, is 1, and its "
            "gradient is 0.",
            _renormalised,
        ),
        WrongAnswer(
            "detached",
            "The weight has the right value, but no gradient goes through it, so the router still "
            "learns nothing.",
            _detached,
        ),
        WrongAnswer(
            "a sigmoid",
            "Asked is for the probability among all experts. A sigmoid looks at one logit alone.",
            _sigmoid,
        ),
        WrongAnswer(
            "the logit itself",
            "The logit can be negative and of any size. Asked is for the probability.",
            _raw,
        ),
        WrongAnswer(
            "softmax over the tokens",
            "The experts are in the last dimension, and each token has a softmax of its own.",
            _over_tokens,
        ),
        WrongAnswer(
            "softmax twice",
            "The probabilities have gone through softmax a second time, which makes them nearly "
            "equal.",
            _twice,
        ),
    ),
    variants=(_from_top,),
    spared={"tiny": "softmax makes equal what differs by less than its rounding"},
)


# --- groups(scores, num_groups, top_groups, top_k) ------------------------------------------------


def _groups(scores: Tensor, num_groups: int, top_groups: int, top_k: int) -> Tensor:
    """By sorting lists, token by token."""
    n, e = scores.shape
    size = e // num_groups
    mask = torch.zeros(n, e, dtype=torch.bool)
    for t in range(n):
        row = [float(v) for v in scores[t]]
        blocks = [list(range(g * size, (g + 1) * size)) for g in range(num_groups)]
        value = [sum(sorted((row[i] for i in block), reverse=True)[:2]) for block in blocks]
        best = sorted(range(num_groups), key=lambda g: -value[g])[:top_groups]
        left = sorted((i for g in best for i in blocks[g]), key=lambda i: -row[i])
        mask[t, left[:top_k]] = True
    return mask


@in_parts
def _groups_with(
    best: int | None = 2,
    closed: float = -torch.inf,
    neighbors: bool = True,
    grouped: bool = True,
    magnitude: bool = False,
    least: bool = False,
) -> Callable[[Tensor, int, int, int], Tensor]:
    """Group-limited choice with some of its parts done otherwise."""

    def answer(scores: Tensor, num_groups: int, top_groups: int, top_k: int) -> Tensor:
        e = scores.shape[-1]
        size = e // num_groups
        member = torch.arange(e) // size if neighbors else torch.arange(e) % num_groups
        left = scores
        if grouped:
            by_group = torch.stack([scores[:, member == g] for g in range(num_groups)], 1)
            by_group = by_group.abs() if magnitude else by_group
            value = by_group.topk(min(best or size, size), dim=-1).values.sum(-1)
            kept = value.topk(top_groups, dim=-1, largest=not least).indices
            mask = torch.zeros_like(value, dtype=torch.bool).scatter(-1, kept, True)
            left = scores.masked_fill(~mask[:, member], closed)
        chosen = left.topk(top_k, dim=-1).indices
        return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True)

    return answer


def _in_each_group(scores: Tensor, num_groups: int, top_groups: int, top_k: int) -> Tensor:
    """The best of each group that is kept, top_k of them in all."""
    groups = scores.view(len(scores), num_groups, -1)
    value = groups.topk(2, dim=-1).values.sum(-1)
    kept = value.topk(top_groups, dim=-1).indices
    each = max(1, top_k // top_groups)
    mask = torch.zeros_like(groups, dtype=torch.bool)
    mask = mask.scatter(-1, groups.topk(min(each, groups.shape[-1]), dim=-1).indices, True)
    open_ = torch.zeros_like(value, dtype=torch.bool).scatter(-1, kept, True)
    return (mask & open_[..., None]).flatten(-2)


def _integers(scores: Tensor, num_groups: int, top_groups: int, top_k: int) -> Tensor:
    mask = _groups(scores, num_groups, top_groups, top_k)
    return mask.nonzero()[:, 1].view(len(scores), top_k)


def _scored(
    name: str, n: int, sizes: tuple[int, int], kept: tuple[int, int], seed: int, shift: float = 0.0
) -> Case:
    def inputs() -> tuple[Any, ...]:
        num_groups, size = sizes
        return _draw(n, num_groups * size, seed=seed) + shift, num_groups, *kept

    return Case(name, inputs)


GROUPS = Exercise(
    "A choice within groups",
    oracle=_groups,
    cases=(
        _scored("8 experts in 4 groups", 6, (4, 2), (2, 2), 1),
        _scored("12 experts in 3 groups", 7, (3, 4), (2, 3), 2),
        _scored("all scores negative", 5, (4, 3), (2, 3), 3, -5.0),
        _scored("all scores positive", 5, (4, 3), (2, 4), 4, 5.0),
        _scored("one group is kept", 6, (5, 3), (1, 2), 5),
        _scored("all groups are kept", 4, (2, 3), (2, 4), 6),
        _scored("all of the kept groups", 4, (4, 2), (2, 4), 7),
        _scored("one token", 1, (3, 3), (2, 2), 8),
    ),
    wrong=(
        WrongAnswer(
            "the groups left out",
            "The best experts are chosen wherever they are. They have to lie in the kept groups.",
            _groups_with(grouped=False),
        ),
        WrongAnswer(
            "a group counts as its best expert",
            "That is DeepSeek-V2's way. Here a group counts as the sum of its two best.",
            _groups_with(best=1),
        ),
        WrongAnswer(
            "a group counts as the sum of all",
            "Only the two best of a group count for it.",
            _groups_with(best=None),
        ),
        WrongAnswer(
            "closed groups get zero",
            "Where scores are negative, zero is a good score, and experts of the closed groups "
            "are chosen. Minus infinity never is.",
            _groups_with(closed=0.0),
        ),
        WrongAnswer(
            "groups of every second expert",
            "Neighbors are together: the first group has the first E / num_groups experts.",
            _groups_with(neighbors=False),
        ),
        WrongAnswer(
            "the worst groups",
            "The groups with the lowest sums are kept. The best are wanted.",
            _groups_with(least=True),
        ),
        WrongAnswer(
            "by magnitude",
            "A very negative score is a bad one. The sign counts.",
            _groups_with(magnitude=True),
        ),
        WrongAnswer(
            "as many from each group",
            "The top_k experts are the best of all kept groups together, and may all lie in one.",
            _in_each_group,
        ),
        WrongAnswer(
            "numbers for a mask",
            "Asked is for a boolean mask of shape (N, E), not for the numbers of the experts.",
            _integers,
        ),
    ),
    variants=(_groups_with(),),
)
