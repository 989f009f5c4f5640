"""With which weight an expert counts, and how the load is kept even."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer, in_parts
from book.checkers.experts.common import draw

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
        return ((scale * draw(n, e, seed=seed)).requires_grad_(),)

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


# --- balance(logits, chosen) ----------------------------------------------------------------------


def _balance(logits: Tensor, chosen: Tensor) -> Tensor:
    """Expert by expert, with counts from lists."""
    n, e = logits.shape
    p = torch.log_softmax(logits, -1).exp()
    pairs = [i for row in chosen.tolist() for i in row]
    return sum(
        (e * pairs.count(i) / len(pairs) * (p[:, i].sum() / n) for i in range(e)),
        torch.zeros((), dtype=logits.dtype),
    )


def _by_pairs(logits: Tensor, chosen: Tensor) -> Tensor:
    """The mean probability of an expert, averaged over all pairs that chose it."""
    mean = logits.softmax(-1).mean(0)
    return logits.shape[-1] * mean[chosen].mean()


@in_parts
def _balance_with(
    one: str = "shares",
    other: str = "probabilities",
    factor: bool = True,
    of: int = -1,
    detach: bool = False,
) -> Callable[[Tensor, Tensor], Tensor]:
    """The balance loss with some of its parts done otherwise."""

    def answer(logits: Tensor, chosen: Tensor) -> Tensor:
        e = logits.shape[-1]
        counts = torch.zeros(e, dtype=logits.dtype).index_add(
            0, chosen.flatten(), torch.ones(chosen.numel(), dtype=logits.dtype)
        )
        p = logits.softmax(of)
        made = {
            "shares": counts / chosen.numel(),
            "counts": counts,
            "for each token": counts / len(chosen),
            "probabilities": p.mean(0),
            "sums": p.sum(0),
            "logits": logits.mean(0),
        }
        product = made[one] * made[other]
        value = product.sum()
        return (value.detach() if detach else value) * (e if factor else 1)

    return answer


def _choices(
    name: str, n: int, e: int, k: int, seed: int, scale: float = 1.0, liked: float = 0.0
) -> Case:
    def inputs() -> tuple[Any, ...]:
        logits = scale * draw(n, e, seed=seed)
        logits[:, 0] += liked
        chosen = logits.topk(k).indices
        return logits.requires_grad_(), chosen

    return Case(name, inputs, grad=True)


BALANCE = Exercise(
    "A loss that evens the load",
    oracle=_balance,
    cases=(
        _choices("one of four", 6, 4, 1, 1),
        _choices("two of five", 7, 5, 2, 2),
        _choices("an expert that all want", 6, 4, 2, 3, liked=9.0),
        _choices("a sure router", 8, 3, 1, 4, scale=5.0),
        _choices("more experts than pairs", 2, 9, 2, 5),
        _choices("one token", 1, 4, 2, 6),
        _choices("all experts", 4, 3, 3, 7),
    ),
    wrong=(
        WrongAnswer(
            "the counts alone",
            "Both factors are shares of the pairs. They are counts, so no gradient comes to the "
            "logits.",
            _balance_with(other="shares"),
        ),
        WrongAnswer(
            "the probabilities alone",
            "The mean probabilities are squared. One factor has to be the share of the pairs: that "
            "is what shall become even.",
            _balance_with(one="probabilities"),
        ),
        WrongAnswer(
            "detached",
            "The value is right, but no gradient goes through it, so nothing is balanced.",
            _balance_with(detach=True),
        ),
        WrongAnswer(
            "without the factor E",
            "The sum is multiplied by the number of experts, so that it is 1 for equal shares. A "
            "mean in the place of the sum lacks it too.",
            _balance_with(factor=False),
        ),
        WrongAnswer(
            "counts for shares",
            "The counts have to be divided by the number of all pairs, N times k.",
            _balance_with(one="counts"),
        ),
        WrongAnswer(
            "k times as much",
            "The counts are divided by the number of tokens. There are k pairs for each; Hugging "
            "Face's loss has this factor, here the shares sum to 1.",
            _balance_with(one="for each token"),
        ),
        WrongAnswer(
            "the sum over the tokens",
            "Asked is for the mean probability over the tokens, not the sum.",
            _balance_with(other="sums"),
        ),
        WrongAnswer(
            "softmax over the tokens",
            "The experts are in the last dimension, and each token has a softmax of its own.",
            _balance_with(of=0),
        ),
        WrongAnswer(
            "logits for probabilities",
            "The mean logit has a gradient, but it can be lowered without end, for all experts at "
            "once. Probabilities sum to 1.",
            _balance_with(other="logits"),
        ),
    ),
    variants=(_balance_with(), _by_pairs),
)
