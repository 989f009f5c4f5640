"""DeepSeek-V3's layer, written by the reader: scores, choice, weights, experts, and the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts
from book.checkers.experts.common import draw

Layer = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, float], Tensor]


def _layer(
    x: Tensor,
    w_router: Tensor,
    correction: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    k: int,
    scale: float,
) -> Tensor:
    """Token by token and expert by expert."""

    def expert(i: int, row: Tensor) -> Tensor:
        gate = row @ w_gate[i]
        return (gate * torch.sigmoid(gate) * (row @ w_up[i])) @ w_down[i]

    total = []
    for row in x:
        score = torch.sigmoid(row @ w_router)
        wanted = (score + correction).tolist()
        chosen = sorted(range(len(wanted)), key=lambda i: -wanted[i])[:k]
        whole = sum(score[i] for i in chosen)
        total.append(expert(len(wanted), row))  # the shared one
        for i in chosen:
            total[-1] = total[-1] + scale * score[i] / whole * expert(i, row)
    return torch.stack(total)


def _gated(how: str, rows: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """One expert for each row: `gate` and `up` (P, d, f), `down` (P, f, d), `rows` (P, d)."""
    a, b = (rows[:, None] @ gate)[:, 0], (rows[:, None] @ up)[:, 0]
    hidden = {
        "silu": lambda: F.silu(a) * b,
        "sigmoid": lambda: torch.sigmoid(a) * b,
        "gelu": lambda: F.gelu(a) * b,
        "other side": lambda: a * F.silu(b),
        "the product": lambda: F.silu(a * b),
        "no gate": lambda: F.silu(b),
    }[how]()
    return (hidden[:, None] @ down)[:, 0]


@in_parts
def _layer_with(
    score: str = "sigmoid",
    choose: str = "corrected",
    weigh: str = "scores",
    norm: str = "chosen",
    factor: str = "routed",
    share: str = "after",
    shared: str = "last",
    gate: str = "silu",
    add: str = "index_add",
) -> Layer:
    """The layer with some of its parts done otherwise."""

    def answer(
        x: Tensor,
        w_router: Tensor,
        correction: Tensor,
        w_gate: Tensor,
        w_up: Tensor,
        w_down: Tensor,
        k: int,
        scale: float,
    ) -> Tensor:
        n, e = len(x), len(correction)
        logits = x @ w_router
        scores = logits.softmax(-1) if score == "softmax" else torch.sigmoid(logits)
        wanted = {"corrected": scores + correction, "scores": scores,
                  "logits": logits + correction, "less": scores - correction}[choose]  # fmt: skip
        chosen = wanted.topk(k).indices
        source = {"scores": scores, "corrected": scores + correction,
                  "detached": scores.detach() + 0 * scores}[weigh]  # fmt: skip
        g = source.gather(-1, chosen)
        if norm == "chosen":
            g = g / g.sum(-1, keepdim=True)
        elif norm == "all":
            g = g / source.sum(-1, keepdim=True)
        elif norm == "softmax":
            g = g.softmax(-1)
        if factor in ("routed", "all"):
            g = scale * g
        at = torch.arange(n).repeat_interleave(k)
        which, weights, rows = chosen.flatten(), g.flatten()[:, None], x[at]
        if share == "before":
            rows = rows * weights
        out = _gated(gate, rows, w_gate[which], w_up[which], w_down[which])
        if share == "after":
            out = out * weights
        if add == "mean":
            out = out / k
        own = 0 if shared == "first" else e
        every = torch.full((n,), own)
        y = _gated(gate, x, w_gate[every], w_up[every], w_down[every])
        if shared == "forgotten":
            y = 0 * y
        if factor == "all":
            y = scale * y
        if add == "assign":
            y = y.clone()
            y[at] += out
            return y
        return y.index_add(0, at, out)

    return answer


def _all_experts(
    x: Tensor,
    w_router: Tensor,
    correction: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    k: int,
    scale: float,
) -> Tensor:
    """All experts on all tokens, and a matrix of weights with zeros."""
    scores = 1 / (1 + (-(x @ w_router)).exp())
    open_ = torch.zeros_like(scores).scatter(1, (scores + correction).topk(k).indices, 1.0)
    weights = scale * scores * open_ / (scores * open_).sum(-1, keepdim=True)
    weights = torch.cat([weights, torch.ones_like(weights[:, :1])], 1)
    gate = F.silu(torch.einsum("nd,edf->nef", x, w_gate))
    up = torch.einsum("nd,edf->nef", x, w_up)
    return torch.einsum("nef,efd,ne->nd", gate * up, w_down, weights)


def _case(
    name: str, n: int, e: int, k: int, seed: int, scale: float = 2.5, size: float = 0.3
) -> Case:
    def inputs() -> tuple[Any, ...]:
        d, f = 4, 5
        shapes = [(n, d), (d, e), (e + 1, d, f), (e + 1, d, f), (e + 1, f, d)]
        x, w_router, *experts = (
            draw(*shape, seed=seed + j).requires_grad_() for j, shape in enumerate(shapes, 10)
        )
        return (x, w_router, size * draw(e, seed=seed + 20), *experts, k, scale)

    return Case(name, inputs, grad=True)


_TIES = "scores that are equal to rounding have no order, so the choice is anybody's"

LAYER = Exercise(
    "DeepSeek-V3's layer",
    oracle=_layer,
    cases=(
        _case("two of four experts", 6, 4, 2, 1),
        _case("three of five", 7, 5, 3, 2, scale=1.5),
        _case("a correction that decides", 6, 4, 2, 3, size=2.0),
        _case("one of three", 5, 3, 1, 4, scale=0.5),
        _case("more experts than pairs", 2, 7, 2, 5),
        _case("all experts", 3, 3, 3, 6),
    ),
    wrong=(
        WrongAnswer(
            "softmax in place of the sigmoid",
            "Each expert is asked alone: its score is the sigmoid of its own logit.",
            _layer_with(score="softmax"),
        ),
        WrongAnswer(
            "no correction",
            "The experts are chosen by the score plus the correction.",
            _layer_with(choose="scores"),
        ),
        WrongAnswer(
            "the correction on the logits",
            "The correction is added to the scores, after the sigmoid.",
            _layer_with(choose="logits"),
        ),
        WrongAnswer(
            "the correction with the wrong sign",
            "A correction above zero makes an expert more likely to be chosen.",
            _layer_with(choose="less"),
        ),
        WrongAnswer(
            "the correction in the weights",
            "The correction decides who is chosen and nothing else: the weights are made of the "
            "scores without it.",
            _layer_with(weigh="corrected"),
        ),
        WrongAnswer(
            "the scores are detached",
            "The values are right, but the router gets no gradient.",
            _layer_with(weigh="detached"),
        ),
        WrongAnswer(
            "not renormalised",
            "The chosen scores are divided by their sum.",
            _layer_with(norm="nothing"),
        ),
        WrongAnswer(
            "divided by the sum over all experts",
            "The weights are renormalised among the chosen: the sum in the denominator is theirs.",
            _layer_with(norm="all"),
        ),
        WrongAnswer(
            "softmax of the chosen scores",
            "The chosen scores are divided by their sum; there is no second exponential.",
            _layer_with(norm="softmax"),
        ),
        WrongAnswer(
            "no scale",
            "The weights of the routed experts are multiplied by `scale`.",
            _layer_with(factor="never"),
        ),
        WrongAnswer(
            "the shared expert scaled too",
            "`scale` belongs to the routed experts. The shared one counts once, with no weight.",
            _layer_with(factor="all"),
        ),
        WrongAnswer(
            "no shared expert",
            "Every token uses the last expert as well, whatever the router says.",
            _layer_with(shared="forgotten"),
        ),
        WrongAnswer(
            "the first expert as the shared one",
            "The shared expert is the last of the E + 1.",
            _layer_with(shared="first"),
        ),
        WrongAnswer(
            "SiLU on the other side",
            "SiLU acts on what comes from `w_gate`.",
            _layer_with(gate="other side"),
        ),
        WrongAnswer(
            "SiLU of the product",
            "SiLU acts on the gate alone, and its value multiplies what comes from `w_up`.",
            _layer_with(gate="the product"),
        ),
        WrongAnswer(
            "a sigmoid as the gate",
            "The gate is SiLU, the number times its sigmoid.",
            _layer_with(gate="sigmoid"),
        ),
        WrongAnswer(
            "GELU as the gate",
            "The gate is SiLU, the number times its sigmoid.",
            _layer_with(gate="gelu"),
        ),
        WrongAnswer(
            "no gate",
            "The experts are gated: two matrices lead in, and what they give is multiplied.",
            _layer_with(gate="no gate"),
        ),
        WrongAnswer(
            "weights before the experts",
            "The experts are not linear, so a weight on what goes in is not one on what comes out.",
            _layer_with(share="before"),
        ),
        WrongAnswer(
            "the mean over the experts",
            "The weights make a weighted sum already; it is not divided by k.",
            _layer_with(add="mean"),
        ),
        WrongAnswer(
            "added at an index that comes twice",
            "`y[token] += out` reads, adds and writes back: of the rows with the same index only "
            "one is kept. `index_add` counts every one.",
            _layer_with(add="assign"),
        ),
    ),
    variants=(_layer_with(), _all_experts),
    spared=dict.fromkeys(("tiny", "huge", *SIXTEEN_BITS), _TIES),
)
