"""To the experts and back: the pairs, their weights, and the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer, in_parts


def _draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _dispatch(x: Tensor, w_up: Tensor, w_down: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    """Pair by pair."""
    total = [torch.zeros_like(row) for row in x]
    for t, experts in enumerate(chosen.tolist()):
        for slot, i in enumerate(experts):
            hidden = F.silu(x[t] @ w_up[i])
            total[t] = total[t] + weights[t, slot] * (hidden @ w_down[i])
    return torch.stack(total)


@in_parts
def _dispatch_with(
    add: str = "index_add",
    sort: str = "weights",
    weigh: str = "after",
    token: str = "pair",
    silu: bool = True,
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The sorted layer with some of its parts done otherwise."""

    def answer(x: Tensor, w_up: Tensor, w_down: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        n, k = chosen.shape
        order = chosen.flatten().argsort(stable=True)
        at = order // k if token == "pair" else order % n
        share = weights.flatten()
        share = (share[order] if sort == "weights" else share)[:, None]
        if weigh == "never":
            share = torch.ones_like(share)
        rows = x[at] * share if weigh == "before" else x[at]
        counts = chosen.flatten().bincount(minlength=len(w_up)).tolist()
        act = F.silu if silu else (lambda v: v)
        out = torch.cat(
            [act(r @ w_up[i]) @ w_down[i] for i, r in enumerate(torch.split(rows, counts))]
        )
        if weigh != "before":
            out = out * share
        if add == "assign":
            y = torch.zeros_like(x)
            y[at] += out
            return y
        if add == "mean":
            return torch.zeros_like(x).index_add(0, at, out) / k
        if add == "in the sorted order":
            return out.view(n, k, -1).sum(1)
        return torch.zeros_like(x).index_add(0, at, out)

    return answer


def _detached_weights(
    x: Tensor, w_up: Tensor, w_down: Tensor, weights: Tensor, chosen: Tensor
) -> Tensor:
    # A part in which the weights still take part, so that their gradient is zero and not missing.
    return _dispatch(x, w_up, w_down, weights.detach(), chosen) + 0 * weights.sum()


def _by_inverse(x: Tensor, w_up: Tensor, w_down: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    """All experts on all tokens, and a matrix of weights with zeros."""
    gates = torch.zeros(len(x), len(w_up), dtype=weights.dtype).scatter_add(1, chosen, weights)
    hidden = F.silu(torch.einsum("nd,edf->nef", x, w_up))
    return torch.einsum("nef,efd,ne->nd", hidden, w_down, gates.to(x.dtype))


def _layer(name: str, n: int, e: int, k: int, seed: int, skewed: bool = False) -> Case:
    def inputs() -> tuple[Any, ...]:
        d, f = 4, 5
        logits = _draw(n, e, seed=seed)
        if skewed:  # everybody wants the last one
            logits[:, -1] += 9
        chosen = logits.topk(k).indices
        weights = logits.gather(1, chosen).softmax(-1)
        x, w_up, w_down = (
            _draw(*shape, seed=seed + j)
            for j, shape in enumerate([(n, d), (e, d, f), (e, f, d)], 10)
        )
        leaves = [v.requires_grad_() for v in (x, w_up, w_down, weights)]
        return (*leaves, chosen)

    return Case(name, inputs, grad=True)


DISPATCH = Exercise(
    "A layer of experts that sorts its pairs",
    oracle=_dispatch,
    cases=(
        _layer("two of four experts", 6, 4, 2, 1),
        _layer("one of three", 5, 3, 1, 2),
        _layer("three of five", 7, 5, 3, 3),
        _layer("an expert that all want", 6, 4, 2, 4, skewed=True),
        _layer("more experts than pairs", 2, 7, 2, 5),
        _layer("all experts", 3, 3, 3, 6),
    ),
    wrong=(
        WrongAnswer(
            "added at an index that comes twice",
            "`y[token] += out` reads, adds and writes back: of the rows with the same index only "
            "one is kept. `index_add` counts every one.",
            _dispatch_with(add="assign"),
        ),
        WrongAnswer(
            "weights in the old order",
            "The rows have been sorted by the expert, so their weights have to be sorted with "
            "them.",
            _dispatch_with(sort="nothing"),
        ),
        WrongAnswer(
            "no weights",
            "Each expert counts with the weight that the router gave it.",
            _dispatch_with(weigh="never"),
        ),
        WrongAnswer(
            "weights before the experts",
            "The experts are not linear, so a weight on what goes in is not one on what comes out.",
            _dispatch_with(weigh="before"),
        ),
        WrongAnswer(
            "the mean over the experts",
            "The weights make a weighted sum already; it is not divided by k.",
            _dispatch_with(add="mean"),
        ),
        WrongAnswer(
            "not put back in order",
            "The outputs lie in the order of the experts. Each belongs to the token it came from.",
            _dispatch_with(add="in the sorted order"),
        ),
        WrongAnswer(
            "the wrong token",
            "In the flattened pairs a token has k neighbors, so pair p belongs to token p // k.",
            _dispatch_with(token="order"),
        ),
        WrongAnswer(
            "no activation",
            "The experts have a SiLU between their two matrices.",
            _dispatch_with(silu=False),
        ),
        WrongAnswer(
            "the weights are detached",
            "The values are right, but the router gets no gradient.",
            _detached_weights,
        ),
    ),
    variants=(_dispatch_with(), _by_inverse),
)
