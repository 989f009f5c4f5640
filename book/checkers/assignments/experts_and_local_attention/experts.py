"""Questions of the assignment: route, dispatch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# --- route ----------------------------------------------------------------------------------------

Routed = tuple[Tensor, Tensor, Tensor]


def _route(logits: Tensor, bias: Tensor, valid: Tensor, top_k: int, scale: float) -> Routed:
    """Token by token, in Python's numbers."""
    weights, chosen, load = [], [], [0] * logits.shape[1]
    for row, real in zip(logits.tolist(), valid.tolist(), strict=True):
        scores = [1 / (1 + math.exp(-z)) if z > 0 else math.exp(z) / (1 + math.exp(z)) for z in row]
        order = sorted(range(len(row)), key=lambda e: -(scores[e] + float(bias[e])))[:top_k]
        total = sum(scores[e] for e in order)
        weights.append([scale * scores[e] / total if real else 0.0 for e in order])
        chosen.append(order)
        for e in order:
            load[e] += bool(real)
    shape = len(logits), top_k
    return (
        torch.tensor(weights, dtype=logits.dtype).reshape(shape),
        torch.tensor(chosen, dtype=torch.int64).reshape(shape),
        torch.tensor(load, dtype=torch.int64),
    )


@in_parts
def _route_with(
    score: Callable[[Tensor], Tensor] = torch.sigmoid,
    wanted: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda scores, logits, bias: scores + bias,
    weighed: Callable[[Tensor, Tensor], Tensor] = lambda scores, bias: scores,
    total: Callable[[Tensor, Tensor], Any] = lambda some, every: some.sum(1, keepdim=True),
    factor: Callable[[float], float] = lambda scale: scale,
    pad: Callable[[Tensor, Tensor], Tensor] = lambda w, valid: w * valid[:, None],
    counted: Callable[[Tensor, Tensor], Tensor] = lambda chosen, valid: chosen[valid],
    load_of: Callable[[Tensor, Tensor, int], Tensor] = (
        lambda which, weights, n: which.flatten().bincount(minlength=n)
    ),
) -> Answer:
    def answer(logits: Tensor, bias: Tensor, valid: Tensor, top_k: int, scale: float) -> Routed:
        scores = score(logits)
        chosen = wanted(scores, logits, bias).argsort(1, descending=True)[:, :top_k]
        every = weighed(scores, bias)
        some = every.gather(1, chosen)
        weights = pad(factor(scale) * some / total(some, every), valid)
        return weights, chosen, load_of(counted(chosen, valid), weights, logits.shape[1])

    return answer


def _route_case(
    name: str, n: int, experts: int, top_k: int, scale: float, *, padding: tuple[int, ...] = (),
    strength: float = 1.0, size: float = 1.5,
) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        valid = torch.ones(n, dtype=torch.bool)
        valid[list(padding)] = False
        logits = draw(n, experts, seed=n + experts, scale=size)
        return logits, draw(experts, seed=top_k, scale=strength), valid, top_k, scale

    return Case(name, inputs)


_ROUTE = Exercise(
    title="A router with a bias for the choice",
    oracle=_route,
    cases=(
        _route_case("values: two of six", 5, 6, 2, 1.0),
        _route_case("values: three of eight, with a factor", 7, 8, 3, 2.5),
        _route_case("values: a strong bias", 6, 5, 2, 0.5, strength=4.0),
        _route_case("values: one of four", 5, 4, 1, 2.0),
        _route_case("values: all of three", 4, 3, 3, 1.5),
        _route_case("values: large logits", 4, 6, 2, 1.0, size=6.0),
        _route_case("padding: at the end", 6, 5, 2, 1.5, padding=(4, 5)),
        _route_case("padding: in the middle and first", 7, 6, 3, 1.0, padding=(0, 3)),
        _route_case("padding: nothing else", 3, 4, 2, 1.0, padding=(0, 1, 2)),
        _route_case("padding: no token at all", 0, 4, 2, 1.0),
    ),
    wrong=(
        WrongAnswer(
            "the bias in the weights",
            "The bias decides who is chosen and nothing else: weights are made of the scores.",
            _route_with(weighed=lambda scores, bias: scores + bias),
        ),
        WrongAnswer(
            "the bias left out",
            "The bias is added to the scores before the experts are chosen.",
            _route_with(wanted=lambda scores, logits, bias: scores),
        ),
        WrongAnswer(
            "the bias added to the logits",
            "The bias belongs to the scores: after the sigmoid, not before it.",
            _route_with(wanted=lambda scores, logits, bias: logits + bias),
        ),
        WrongAnswer(
            "softmax for sigmoid",
            "Each expert has a score of its own here, the sigmoid of its logit.",
            _route_with(score=lambda z: z.softmax(1)),
        ),
        WrongAnswer(
            "not renormalised",
            "The chosen scores are divided by their sum, so that weights add up to the factor.",
            _route_with(total=lambda some, every: 1.0),
        ),
        WrongAnswer(
            "divided by the sum over all experts",
            "The sum goes over the chosen experts only.",
            _route_with(total=lambda some, every: every.sum(1, keepdim=True)),
        ),
        WrongAnswer(
            "the factor lost",
            "After the division the weights are multiplied by scale.",
            _route_with(factor=lambda scale: 1.0),
        ),
        WrongAnswer(
            "the factor squared",
            "The factor counts once, after the scores were divided by their sum.",
            _route_with(factor=lambda scale: scale * scale),
        ),
        WrongAnswer(
            "padding has weights",
            "A token that is padding gets the weight 0 at each of its experts.",
            _route_with(pad=lambda w, valid: w),
        ),
        WrongAnswer(
            "padding counted in the load",
            "The load counts real tokens. Padding would teach the bias a load that is none.",
            _route_with(counted=lambda chosen, valid: chosen),
        ),
        WrongAnswer(
            "only first choices counted in the load",
            "Every chosen expert has to work, so that each choice counts.",
            _route_with(counted=lambda chosen, valid: chosen[valid, :1]),
        ),
        WrongAnswer(
            "the load as a share",
            "The load is a number of tokens for each expert, an integer.",
            _route_with(
                load_of=lambda which, weights, n: (
                    which.flatten().bincount(minlength=n) / max(1, len(which))
                )
            ),
        ),
    ),
    variants=(_route_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "experts tie there"),
        "tiny": "all scores are a half there, and experts tie",
        "huge": "scores are 0 or 1 there, and experts tie",
    },
)  # fmt: skip


# --- dispatch -------------------------------------------------------------------------------------

Kept = tuple[Tensor, Tensor]


def _dispatch(chosen: Tensor, weights: Tensor, num_experts: int, capacity: int) -> Kept:
    """Place by place: all first choices, then all second ones."""
    n, k = chosen.shape
    room = [capacity] * num_experts
    kept = [[False] * k for _ in range(n)]
    for choice in range(k):
        for token in range(n):
            expert = int(chosen[token, choice])
            if room[expert] > 0:
                room[expert] -= 1
                kept[token][choice] = True
    rows = []
    for token in range(n):
        row = weights[token].tolist()
        left = sum(w for w, stays in zip(row, kept[token], strict=True) if stays)
        rows.append([w * sum(row) / left if stays else 0.0
                     for w, stays in zip(row, kept[token], strict=True)])  # fmt: skip
    mask = torch.tensor(kept, dtype=torch.bool).reshape(n, k)
    return mask, torch.tensor(rows, dtype=weights.dtype).reshape(n, k)


def _flat(chosen: Tensor, weights: Tensor) -> list[tuple[int, int]]:
    n, k = chosen.shape
    return [(token, choice) for choice in range(k) for token in range(n)]


@in_parts
def _dispatch_with(
    order: Callable[[Tensor, Tensor], list[tuple[int, int]]] = _flat,
    fits: Callable[[int, int], bool] = lambda filled, capacity: filled < capacity,
    account: Callable[[int, int], Any] = lambda expert, choice: expert,
    again: Callable[[Tensor, Tensor], Tensor] = (
        lambda kept, whole: kept * (whole / kept.sum(1, keepdim=True)).nan_to_num()
    ),
    all_or_nothing: bool = False,
) -> Answer:
    def answer(chosen: Tensor, weights: Tensor, num_experts: int, capacity: int) -> Kept:
        mask = torch.zeros(chosen.shape, dtype=torch.bool)
        filled: dict[Any, int] = {}
        for token, choice in order(chosen, weights):
            key = account(int(chosen[token, choice]), choice)
            stays = fits(filled.get(key, 0), capacity)
            mask[token, choice] = stays
            filled[key] = filled.get(key, 0) + stays
        if all_or_nothing:
            mask = mask & mask.all(1, keepdim=True)
        return mask, again(weights * mask, weights.sum(1, keepdim=True))

    return answer


def _by_token(chosen: Tensor, weights: Tensor) -> list[tuple[int, int]]:
    n, k = chosen.shape
    return [(token, choice) for token in range(n) for choice in range(k)]


def _by_weight(chosen: Tensor, weights: Tensor) -> list[tuple[int, int]]:
    return sorted(_flat(chosen, weights), key=lambda place: -float(weights[place]))


def _backwards(chosen: Tensor, weights: Tensor) -> list[tuple[int, int]]:
    n, k = chosen.shape
    return [(token, choice) for choice in range(k) for token in reversed(range(n))]


def _last_choices(chosen: Tensor, weights: Tensor) -> list[tuple[int, int]]:
    n, k = chosen.shape
    return [(token, choice) for choice in reversed(range(k)) for token in range(n)]


def _dispatch_case(name: str, n: int, k: int, experts: int, capacity: int, seed: int = 0) -> Case:
    def inputs() -> tuple[Any, ...]:
        scores = draw(n, experts, seed=seed + n)
        scores = scores + torch.linspace(1.0, 0.0, experts, dtype=scores.dtype)
        values, chosen = scores.softmax(1).sort(1, descending=True)
        return chosen[:, :k], values[:, :k] * 0.9, experts, capacity

    return Case(name, inputs)


_DISPATCH = Exercise(
    title="Who finds a place",
    oracle=_dispatch,
    cases=(
        _dispatch_case("values: two choices, four experts", 8, 2, 4, 4),
        _dispatch_case("values: three choices", 7, 3, 5, 3),
        _dispatch_case("values: one choice", 9, 1, 3, 2),
        _dispatch_case("values: hardly any room", 6, 2, 3, 2, 3),
        _dispatch_case("values: many tokens", 20, 2, 6, 5, 1),
        _dispatch_case("values: nearly enough room", 10, 2, 4, 6, 2),
        _dispatch_case("corners: room for everybody", 5, 2, 4, 5),
        _dispatch_case("corners: one place each", 6, 2, 4, 1),
        _dispatch_case("corners: no place", 4, 2, 3, 0),
        _dispatch_case("corners: no token", 0, 2, 3, 2),
        _dispatch_case("corners: one expert", 5, 1, 1, 3),
    ),
    wrong=(
        WrongAnswer(
            "all choices of a token before the next token",
            "First choices come before second ones, whichever token they are of.",
            _dispatch_with(order=_by_token),
        ),
        WrongAnswer(
            "by weight",
            "Within a rank of choices the order of the tokens decides, not the weight.",
            _dispatch_with(order=_by_weight),
        ),
        WrongAnswer(
            "the last token first",
            "Within a rank the first tokens of the batch find a place first.",
            _dispatch_with(order=_backwards),
        ),
        WrongAnswer(
            "second choices first",
            "The best expert of each token is asked first, then the second best.",
            _dispatch_with(order=_last_choices),
        ),
        WrongAnswer(
            "one place more than there is",
            "An expert that has as many tokens as its capacity takes no other one.",
            _dispatch_with(fits=lambda filled, capacity: filled <= capacity),
        ),
        WrongAnswer(
            "room for each rank of choices",
            "An expert has one capacity, which first and second choices share.",
            _dispatch_with(account=lambda expert, choice: (expert, choice)),
        ),
        WrongAnswer(
            "one capacity for all experts",
            "Each expert has the capacity for itself.",
            _dispatch_with(account=lambda expert, choice: 0),
        ),
        WrongAnswer(
            "weights not renormalised",
            "What a refused choice had goes to the token's other choices, in proportion.",
            _dispatch_with(again=lambda kept, whole: kept),
        ),
        WrongAnswer(
            "renormalised to 1",
            "The kept weights add up to what all of the token's weights did before.",
            _dispatch_with(
                again=lambda kept, whole: (kept / kept.sum(1, keepdim=True)).nan_to_num()
            ),
        ),
        WrongAnswer(
            "nothing divided by nothing",
            "A token that finds no place has no weights left: they are 0, not nan.",
            _dispatch_with(again=lambda kept, whole: kept * whole / kept.sum(1, keepdim=True)),
        ),
        WrongAnswer(
            "a token that loses one place loses all",
            "A choice is refused for itself: the token keeps its other places.",
            _dispatch_with(all_or_nothing=True),
        ),
    ),
    variants=(_dispatch_with(),),
    spared={"other values": "a weight belongs to its expert's rank",
            "tiny": "what is left of a token's weights is compared with 0"},
)  # fmt: skip


EXERCISES = {
    "route": _ROUTE,
    "dispatch": _DISPATCH,
}
