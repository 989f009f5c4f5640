"""Questions of the assignment: geglu_backward, widest, merge_for_shards, ffn_backward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, each, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Pair = tuple[Tensor, Tensor]
Map = Callable[[Tensor], Tensor]


# --- geglu_backward -------------------------------------------------------------------------------


def _geglu_backward(grad_out: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
    return gradients(lambda g, u: F.gelu(g) * u, grad_out, gate, up)


def _phi(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@in_parts
def _geglu(
    slope: Map = lambda g: torch.special.ndtr(g) + g * _phi(g),
    value: Map = F.gelu,
    with_up: bool = True,
    exchange: bool = False,
    arrives: Map = lambda g: g,
) -> Callable[..., Pair]:
    def answer(grad_out: Tensor, gate: Tensor, up: Tensor) -> Pair:
        if exchange:
            return tuple(_geglu()(grad_out, up, gate)[::-1])  # type: ignore[return-value]
        sent = arrives(grad_out) * slope(gate)
        return sent * (up if with_up else 1.0), grad_out * value(gate)

    return answer


def _geglu_erf(grad_out: Tensor, gate: Tensor, up: Tensor) -> Pair:
    cdf = 0.5 * (1 + torch.erf(gate / math.sqrt(2.0)))
    return grad_out * up * (cdf + gate * _phi(gate)), grad_out * gate * cdf


def _geglu_case(name: str, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64,
                tol: float = EXACT) -> Case:  # fmt: skip
    return Case(
        name,
        lambda: (draw(*shape, seed=1, dtype=dtype), draw(*shape, seed=2, scale=scale, dtype=dtype),
                 draw(*shape, seed=3, dtype=dtype)),
        tol,
    )  # fmt: skip


GEGLU_BACKWARD = Exercise(
    title="GeGLU backwards",
    oracle=_geglu_backward,
    cases=[
        _geglu_case("values: a matrix", 3, 5),
        _geglu_case("values: three dimensions", 2, 3, 4),
        _geglu_case("values: a vector", 6),
        _geglu_case("corners: gates far out", 4, 5, scale=30.0),
        _geglu_case("corners: tiny gates", 4, 5, scale=1e-6),
        _geglu_case("corners: float32", 4, 5, dtype=torch.float32, tol=2e-6),
    ],
    variants=(_geglu(), _geglu_erf),
    wrong=(
        WrongAnswer(
            "derivative of SiLU",
            "The gate of GeGLU is a GELU, with the normal distribution in place of the sigmoid.",
            _geglu(slope=lambda g: torch.sigmoid(g) * (1 + g * torch.sigmoid(-g)), value=F.silu),
        ),
        WrongAnswer(
            "tanh form",
            "The task asks for the exact GELU. Its approximation is off by up to 5e-4.",
            _geglu(
                slope=lambda g: each(lambda t: F.gelu(t, approximate="tanh"), g),
                value=lambda g: F.gelu(g, approximate="tanh"),
            ),
        ),
        WrongAnswer(
            "density term forgotten",
            "The derivative of g Phi(g) is Phi(g) + g phi(g): the product rule has two terms.",
            _geglu(slope=torch.special.ndtr),
        ),
        WrongAnswer(
            "density without its factor",
            "The term of the product rule is g phi(g), with the factor g.",
            _geglu(slope=lambda g: torch.special.ndtr(g) + _phi(g)),
        ),
        WrongAnswer(
            "up left out of the gate's gradient",
            "The gate multiplies `up`, so what arrives at the gate is grad_out * up.",
            _geglu(with_up=False),
        ),
        WrongAnswer(
            "gate not activated for up",
            "`up` was multiplied by gelu(gate), not by the gate itself.",
            _geglu(value=lambda g: g),
        ),
        WrongAnswer(
            "gate and up exchanged",
            "The activation is on the gate; `up` stays linear.",
            _geglu(exchange=True),
        ),
        WrongAnswer(
            "density without 1 / sqrt(2 pi)",
            "The density of the normal distribution has an area of 1, for which it needs its "
            "constant.",
            _geglu(slope=lambda g: torch.special.ndtr(g) + g * torch.exp(-g * g / 2)),
        ),
        WrongAnswer(
            "erf of the gate itself",
            "Phi(x) is made from erf at x / sqrt(2): erf belongs to a density with another width.",
            _geglu(
                slope=lambda g: (1 + torch.erf(g)) / 2 + g * _phi(g),
                value=lambda g: g * (1 + torch.erf(g)) / 2,
            ),
        ),
        WrongAnswer(
            "what arrives left out of the gate's gradient",
            "The chain rule multiplies by grad_out on both ways, to the gate as to up.",
            _geglu(arrives=torch.ones_like),
        ),
    ),
)


# --- widest ---------------------------------------------------------------------------------------


def _widest(d_model: int, budget: int, multiple: int) -> int:
    best = 0
    while 3 * d_model * (best + multiple) <= budget:
        best += multiple
    if not best:
        raise ValueError(f"budget {budget} is too small for d_model {d_model}")
    return best


@in_parts
def _width(
    matrices: int = 3,
    refuse: bool = True,
    fits: Callable[[int, int, int], int] = lambda budget, each, d: budget // each,
    steps: Callable[[int, int], int] = lambda widest, multiple: widest // multiple,
    width: Callable[[int, int, int], int] = lambda widest, count, multiple: count * multiple,
) -> Callable[[int, int, int], int]:
    def answer(d_model: int, budget: int, multiple: int) -> int:
        widest = fits(budget, matrices * d_model, d_model)
        count = steps(widest, multiple)
        if refuse and not count:
            raise ValueError("the budget is too small")
        return width(widest, count, multiple)

    return answer


WIDEST = Exercise(
    title="The widest gated layer within a budget",
    oracle=_widest,
    cases=[
        Case("values: a Llama-sized layer", lambda: (4096, 140_000_000, 256)),
        Case("values: a small layer", lambda: (64, 50_000, 32)),
        Case("values: multiple of 8", lambda: (100, 40_000, 8)),
        Case("values: multiple of 1", lambda: (7, 1000, 1)),
        Case("corners: a budget that fits exactly", lambda: (64, 3 * 64 * 96, 32)),
        Case("corners: one parameter short", lambda: (64, 3 * 64 * 96 - 1, 32)),
        replace(Case("corners: nothing fits", lambda: (64, 3 * 64 * 31, 32)), raises=ValueError),
    ],
    variants=(_width(),),
    wrong=(
        WrongAnswer(
            "two matrices counted",
            "A gated layer has three matrices: gate, up and down.",
            _width(matrices=2),
        ),
        WrongAnswer(
            "rounded up",
            "The budget is an upper limit, so the width is rounded down to the multiple.",
            _width(steps=lambda widest, multiple: -(-widest // multiple)),
        ),
        WrongAnswer(
            "multiple ignored",
            "The width has to be divisible by `multiple`.",
            _width(refuse=False, width=lambda widest, count, multiple: widest),
        ),
        WrongAnswer(
            "width 0 returned",
            "A layer of width 0 is no layer. The task asks for a ValueError there.",
            _width(refuse=False),
        ),
        WrongAnswer(
            "8 / 3 of the model",
            "8 d / 3 matches a plain layer of width 4 d. Here the budget is given instead.",
            lambda d, budget, m: m * -(-(8 * d // 3) // m),
        ),
        WrongAnswer(
            "an exact fit refused",
            "At most `budget` parameters: a layer that needs all of them fits.",
            _width(fits=lambda budget, each, d: (budget - 1) // each),
        ),
        WrongAnswer(
            "biases counted",
            "The layer has three matrices and no biases.",
            _width(fits=lambda budget, each, d: (budget - d) // (each + 2)),
        ),
        WrongAnswer(
            "rounded to the nearest multiple",
            "Half of the time the nearest multiple lies above the budget.",
            _width(steps=lambda widest, multiple: (2 * widest + multiple) // (2 * multiple)),
        ),
        WrongAnswer(
            "the number of multiples",
            "The width was asked for, not how many times `multiple` goes into it.",
            _width(width=lambda widest, count, multiple: count),
        ),
        WrongAnswer(
            "multiple returned where it does not fit",
            "A layer of this width is above the budget. The task asks for a ValueError there.",
            _width(steps=lambda widest, multiple: max(widest // multiple, 1)),
        ),
    ),
)


# --- merge_for_shards -----------------------------------------------------------------------------


def _merge_for_shards(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    if len(w_gate) % shards:
        raise ValueError(f"w_gate: {len(w_gate)} rows cannot be cut into {shards} equal parts")
    size = len(w_gate) // shards
    blocks = []
    for s in range(shards):
        blocks += [w_gate[s * size : (s + 1) * size], w_up[s * size : (s + 1) * size]]
    return torch.cat(blocks)


def _merge_by_stack(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    if len(w_gate) % shards:
        raise ValueError("the rows cannot be cut into equal parts")
    both = torch.stack([torch.unflatten(w, 0, (shards, -1)) for w in (w_gate, w_up)], 1)
    return both.flatten(0, 2)


def _merge_uneven(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    pairs = zip(w_gate.chunk(shards), w_up.chunk(shards), strict=True)
    return torch.cat([w for pair in pairs for w in pair])


def _merge_rest_dropped(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    kept = len(w_gate) // shards * shards
    return _merge_by_stack(w_gate[:kept], w_up[:kept], shards)


def _merge_columns_checked(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    if w_gate.shape[1] % shards:
        raise ValueError("the columns cannot be cut into equal parts")
    return _merge_uneven(w_gate, w_up, shards)


def _checked(f: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor, Tensor, int], Tensor]:
    def answer(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
        if len(w_gate) % shards:
            raise ValueError("the rows cannot be cut into equal parts")
        return f(w_gate, w_up, shards)

    return answer


def _merge_case(name: str, rows: int, d: int, shards: int) -> Case:
    return Case(name, lambda: (draw(rows, d, seed=1), draw(rows, d, seed=2), shards), EXACT)


MERGE_FOR_SHARDS = Exercise(
    title="Gate and up in one matrix, for several devices",
    oracle=_merge_for_shards,
    cases=[
        _merge_case("values: two devices", 8, 3, 2),
        _merge_case("values: four devices", 8, 5, 4),
        _merge_case("values: one device", 6, 4, 1),
        _merge_case("corners: a row for each device", 4, 3, 4),
        _merge_case("corners: a square, two devices", 6, 6, 2),
        replace(_merge_case("corners: rows that cannot be shared out", 7, 3, 2), raises=ValueError),
    ],
    variants=(_merge_by_stack,),
    wrong=(
        WrongAnswer(
            "all of the gate first",
            "The first device then holds gate rows only, and its halves are no gate and up. "
            "Each device needs its own gate rows and its own up rows.",
            _checked(lambda g, u, s: torch.cat([g, u])),
        ),
        WrongAnswer(
            "row by row",
            "Neighbouring rows in turn suit a split into even and odd features. Here each "
            "device cuts its own rows into two halves.",
            _checked(lambda g, u, s: torch.stack([g, u], 1).flatten(0, 1)),
        ),
        WrongAnswer(
            "up before gate",
            "The first half of each device's rows is the gate, the second half is up.",
            _checked(lambda g, u, s: _merge_for_shards(u, g, s)),
        ),
        WrongAnswer(
            "columns cut in place of rows",
            "torch stores the weight as (d_ff, d_model): the hidden features are the rows.",
            _checked(lambda g, u, s: torch.cat([g, u], 1)),
        ),
        WrongAnswer(
            "uneven shares accepted",
            "If the rows cannot be shared out equally, the task asks for a ValueError.",
            _merge_uneven,
        ),
        WrongAnswer(
            "rest of the rows dropped",
            "Rows that no device holds are hidden features that are lost. The task asks for a "
            "ValueError.",
            _merge_rest_dropped,
        ),
        WrongAnswer(
            "columns checked in place of rows",
            "What is shared out are the d_ff rows: it is their number that `shards` has to divide.",
            _merge_columns_checked,
        ),
        WrongAnswer(
            "rows dealt out in turn",
            "Device s holds the s-th part of the rows as they stand, not every shards-th row.",
            _checked(lambda g, u, s: torch.cat([w[i::s] for i in range(s) for w in (g, u)])),
        ),
        WrongAnswer(
            "blocks stacked along a new dimension",
            "One matrix was asked for: the devices' blocks are joined along the rows.",
            _checked(lambda g, u, s: torch.unflatten(_merge_by_stack(g, u, s), 0, (s, -1))),
        ),
        WrongAnswer(
            "shares and matrices exchanged in a reshape",
            "After torch.cat the matrix is the outer dimension and the device the inner one. A "
            "reshape has to name them in this order before they are exchanged.",
            _checked(
                lambda g, u, s: (
                    torch.unflatten(torch.cat([g, u]), 0, (s, 2, -1)).transpose(0, 1).flatten(0, 2)
                )
            ),
        ),
    ),
)


# --- ffn_backward ---------------------------------------------------------------------------------


def _ffn_backward(
    grad_out: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor
) -> tuple[Tensor, ...]:
    b2 = torch.zeros(w2.shape[0], dtype=x.dtype)
    return gradients(
        lambda x, w1, b1, w2, b2: F.linear(F.relu(F.linear(x, w1, b1)), w2, b2),
        grad_out, x, w1, b1, w2, b2,
    )  # fmt: skip


@in_parts
def _ffn(
    gate: Callable[[Tensor, Tensor], Tensor] = lambda d, h: d * (h > 0),
    hidden: Map = F.relu,
    rows: Callable[[Tensor], Tensor] = lambda t: t.flatten(0, -2).sum(0),
    bias: bool = True,
    layout: bool = True,
    matrix: Callable[[Tensor, Tensor], Tensor] = lambda grad, x: grad,
    to_b1: Callable[[Tensor, Tensor], Tensor] = lambda sent, dh: dh,
) -> Callable[..., tuple[Tensor, ...]]:
    def answer(g: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> tuple[Tensor, ...]:
        h = x @ w1.T + (b1 if bias else 0)
        sent = g @ w2
        dh = gate(sent, h)
        grad_w1 = torch.einsum("...h,...d->hd", dh, x)
        grad_w2 = torch.einsum("...d,...h->dh", g, hidden(h))
        if not layout:
            grad_w1, grad_w2 = grad_w1.T, grad_w2.T
        grad_w1, grad_w2 = matrix(grad_w1, x), matrix(grad_w2, x)
        return dh @ w1, grad_w1, rows(to_b1(sent, dh)), grad_w2, rows(g)

    return answer


def _ffn_case(name: str, *lead: int, d: int = 4, d_ff: int = 6, dead: bool = False) -> Case:
    return Case(
        name,
        lambda: (draw(*lead, d, seed=1), draw(*lead, d, seed=2), draw(d_ff, d, seed=3),
                 draw(d_ff, seed=4, offset=-50.0 if dead else 0.0), draw(d, d_ff, seed=5)),
        EXACT,
    )  # fmt: skip


FFN_BACKWARD = Exercise(
    title="The feed-forward layer backwards",
    oracle=_ffn_backward,
    cases=[
        _ffn_case("values: a batch of rows", 5),
        _ffn_case("values: sequences", 2, 3),
        _ffn_case("values: a narrow layer", 4, d=5, d_ff=3),
        _ffn_case("corners: everything of one size", 4, d=4, d_ff=4),
        _ffn_case("corners: a batch of one", 1),
        _ffn_case("corners: every unit off", 3, dead=True),
    ],
    variants=(_ffn(), _ffn(gate=lambda d, h: torch.where(h > 0, d, 0.0))),
    wrong=(
        WrongAnswer(
            "activation's derivative forgotten",
            "Units that are off pass nothing back: multiply by h > 0 before going on.",
            _ffn(gate=lambda d, h: d),
        ),
        WrongAnswer(
            "activation multiplied in for its derivative",
            "The derivative of ReLU is 0 or 1. Its value is what multiplies in the forward pass.",
            _ffn(gate=lambda d, h: d * F.relu(h)),
        ),
        WrongAnswer(
            "sign of what arrives",
            "The derivative of ReLU looks at its input h, not at the gradient that arrives.",
            _ffn(gate=lambda d, h: d * (d > 0)),
        ),
        WrongAnswer(
            "hidden layer taken before the activation",
            "The second matrix saw relu(h), so its gradient is made with relu(h).",
            _ffn(hidden=lambda h: h),
        ),
        WrongAnswer(
            "bias left out of the hidden layer",
            "Whether a unit is on depends on its bias: h = x @ w1.T + b1.",
            _ffn(bias=False),
        ),
        WrongAnswer(
            "gradients of the matrices transposed",
            "A gradient has the shape of its matrix: (d_ff, d_model) and (d_model, d_ff).",
            _ffn(layout=False),
        ),
        WrongAnswer(
            "gradients of the biases averaged",
            "The bias acts on every row, so its gradient is the sum over all rows.",
            _ffn(rows=lambda t: t.flatten(0, -2).mean(0)),
        ),
        WrongAnswer(
            "gradients of the biases summed over one dimension only",
            "A bias serves every row: all dimensions but the last are summed over.",
            _ffn(rows=lambda t: t.sum(0)),
        ),
        WrongAnswer(
            "gradients of the matrices averaged",
            "Every row adds its share to a matrix's gradient. The mean belongs to the loss, if "
            "at all.",
            _ffn(matrix=lambda grad, x: grad * x.shape[-1] / x.numel()),
        ),
        WrongAnswer(
            "first bias before the activation's derivative",
            "The bias acts before the ReLU, so that a unit that is off sends it nothing.",
            _ffn(to_b1=lambda sent, dh: sent),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "geglu_backward": GEGLU_BACKWARD,
    "widest": WIDEST,
    "merge_for_shards": MERGE_FOR_SHARDS,
    "ffn_backward": FFN_BACKWARD,
}
