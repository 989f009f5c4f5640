"""The questions of the assignment on chapters 13 and 14: bounded, small and factored caches.

The oracles are loops over heads and positions, autograd and torch's own operators, never the book's
library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts


def _apart(x: Tensor, dim: int, sizes: tuple[int, ...]) -> Tensor:
    """`Tensor.unflatten`, which has no types."""
    cut: Tensor = x.unflatten(dim, sizes)  # type: ignore[no-untyped-call]
    return cut


# --- ring_write -----------------------------------------------------------------------------------


def _ring_write(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    out = buffer.detach().clone()
    for t in range(new.shape[2]):
        out[:, :, (seen + t) % buffer.shape[2]] = new[:, :, t]
    return out


@in_parts
def _ring_with(
    slots: Callable[[int, int, int], Tensor] = lambda seen, t, w: torch.arange(seen, seen + t) % w,
    keep: Callable[[Tensor, int], slice] = lambda new, w: slice(max(0, new.shape[2] - w), None),
) -> Answer:
    def answer(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
        w = buffer.shape[2]
        kept = keep(new, w)
        out = buffer.clone()
        out[:, :, slots(seen, new.shape[2], w)[kept]] = new[:, :, kept]
        return out

    return answer


def _ring_by_gather(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    w, t = buffer.shape[2], new.shape[2]
    total = seen + t
    slot = torch.arange(w)
    newest = (total - 1) - (total - 1 - slot) % w  # the last position that fell into each slot
    fresh = newest >= seen
    source = new[:, :, (newest - seen).clamp(min=0)] if t else buffer
    return torch.where(fresh[:, None], source, buffer)


def _ring_by_age(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    filled = torch.cat([buffer, new], 2)
    return filled[:, :, -buffer.shape[2] :].clone()


def _ring_in_place(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    for t in range(new.shape[2]):
        buffer[:, :, (seen + t) % buffer.shape[2]] = new[:, :, t]
    return buffer


def _ring_until_full(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    out = buffer.clone()
    for t in range(new.shape[2]):
        out[:, :, min(seen + t, buffer.shape[2] - 1)] = new[:, :, t]
    return out


def _ring_case(name: str, window: int, t: int, seen: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return draw(2, 2, window, 3), draw(2, 2, t, 3, seed=1), seen

    return Case(name, inputs, EXACT)


_RING_WRITE = Exercise(
    title="Write into a ring",
    oracle=_ring_write,
    cases=(
        _ring_case("values: two into an empty ring", 5, 2, 0),
        _ring_case("values: one, once around", 4, 1, 6),
        _ring_case("values: two over the end", 5, 2, 9),
        _ring_case("values: three over the end", 4, 3, 11),
        _ring_case("corners: as many as there are slots", 4, 4, 7),
        _ring_case("corners: more than there are slots", 3, 5, 4),
        _ring_case("corners: a long prompt into an empty ring", 4, 11, 0),
        _ring_case("corners: one slot", 1, 3, 2),
        _ring_case("corners: nothing new", 3, 0, 5),
    ),
    wrong=(
        WrongAnswer(
            "kept in order of age",
            "That moves every entry at each step. In a ring position p stays in slot p mod W.",
            _ring_by_age,
        ),
        WrongAnswer(
            "slots counted from the chunk",
            "The slot comes from the position, and the chunk begins at position `seen`.",
            _ring_with(slots=lambda seen, t, w: torch.arange(t) % w),
        ),
        WrongAnswer(
            "slots off by one",
            "With `seen` tokens stored, the next has position `seen`, not one more.",
            _ring_with(slots=lambda seen, t, w: torch.arange(seen + 1, seen + 1 + t) % w),
        ),
        WrongAnswer(
            "the first of a long chunk kept",
            "If more arrive than there are slots, the newest survive.",
            _ring_with(keep=lambda new, w: slice(0, w)),
        ),
        WrongAnswer(
            "stopped at the last slot",
            "When the ring is full, the oldest entry gives way: take the position modulo W.",
            _ring_until_full,
        ),
        WrongAnswer(
            "the old ring changed",
            "A new tensor was asked for; the ring that was passed in must stay as it was.",
            _ring_in_place,
        ),
    ),
    variants=(_ring_with(), _ring_by_gather),
)


# --- ring_positions -------------------------------------------------------------------------------


def _ring_positions(window: int, seen: int) -> Tensor:
    slots = [-1] * window
    for p in range(seen):
        slots[p % window] = p
    return torch.tensor(slots)


def _newest(window: int, seen: int) -> Tensor:
    slot = torch.arange(window)
    return (seen - 1) - (seen - 1 - slot) % window


_RING_POSITIONS = Exercise(
    title="Which position lies in which slot?",
    oracle=_ring_positions,
    cases=tuple(
        Case(name, lambda args=args: args)  # type: ignore[misc]
        for name, args in {
            "values: half full": (6, 3),
            "values: once around and two": (5, 7),
            "values: three times around and one": (4, 13),
            "values: a long text": (7, 1000),
            "corners: empty": (4, 0),
            "corners: exactly full": (4, 4),
            "corners: one slot": (1, 9),
            "corners: one token": (3, 1),
        }.items()
    ),
    wrong=(
        WrongAnswer(
            "in order of age",
            "Position p lies in slot p mod W, so that the oldest need not be in the first slot.",
            lambda window, seen: (torch.arange(seen - window, seen)).clamp(min=-1),
        ),
        WrongAnswer(
            "the number of the slot",
            "That holds in the first round only. Later slot j holds j + W, j + 2 W, ...",
            lambda window, seen: torch.where(
                torch.arange(window) < seen, torch.arange(window), torch.tensor(-1)
            ),
        ),
        WrongAnswer(
            "empty slots not marked",
            "A slot that nothing was written to has no position: -1.",
            lambda window, seen: _newest(window, seen).clamp(min=0),
        ),
        WrongAnswer(
            "negative positions for empty slots",
            "Every empty slot is marked by -1, whatever the arithmetic gives.",
            _newest,
        ),
        WrongAnswer(
            "one position too far",
            "After `seen` tokens the newest position is seen - 1.",
            lambda window, seen: _ring_positions(window, seen + 1),
        ),
    ),
    variants=(lambda window, seen: _newest(window, seen).clamp(min=-1),),
)


# --- quantise_heads -------------------------------------------------------------------------------


def _quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros(x.shape, dtype=torch.int8)
    scales = torch.ones(*x.shape[:2], 1, 1, dtype=x.dtype)
    for b in range(x.shape[0]):
        for g in range(x.shape[1]):
            largest = max((abs(v) for v in x[b, g].flatten().tolist()), default=0.0)
            if largest:
                scales[b, g] = largest / 127
            for s in range(x.shape[2]):
                out[b, g, s] = torch.round(x[b, g, s] / scales[b, g, 0]).to(torch.int8)
    return out, scales


@in_parts
def _quantise_with(
    largest: Callable[[Tensor], Tensor] = lambda x: x.abs().amax((-2, -1), keepdim=True),
    steps: float = 127.0,
    whole: Callable[[Tensor], Tensor] = torch.round,
    empty: bool = True,
    limit: bool = False,
) -> Answer:
    def answer(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = largest(x) / steps
        if empty:
            scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        steps_of_x = whole(x / scale).nan_to_num().clamp(-1e9, 1e9)
        if limit:
            steps_of_x = steps_of_x.clamp(-128, 127)
        # By way of int32, so that what does not fit comes round on every processor.
        return steps_of_x.to(torch.int32).to(torch.int8), scale

    return answer


def _quantise_case(name: str, make: Callable[[], Tensor]) -> Case:
    return Case(name, lambda: (make(),), EXACT)


def _with_an_outlier() -> Tensor:
    x = draw(2, 3, 4, 5)
    x[0, 1, 2, 3] = 900.0
    return x


def _with_an_empty_head() -> Tensor:
    x = draw(2, 3, 4, 5)
    x[1, 0] = 0.0
    return x


def _lopsided() -> Tensor:
    return draw(1, 2, 3, 4).abs() * -3.0


def _quantise_shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    low, high = x.amin((-2, -1), keepdim=True), x.amax((-2, -1), keepdim=True)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (torch.round((x - low) / scale) - 128).clamp(-128, 127).to(torch.int8), scale


def _quantise_by_factor(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.flatten(2).norm(float("inf"), dim=-1)[..., None, None] / 127
    scale[scale == 0] = 1
    return (x / scale).round().clamp(-127, 127).char(), scale


_QUANTISE = Exercise(
    title="A cache in eight bits",
    oracle=_quantise,
    cases=(
        _quantise_case("values: two sequences, three heads", lambda: draw(2, 3, 4, 5)),
        _quantise_case("values: one head is large", lambda: (
            draw(2, 3, 4, 5) * torch.tensor([1.0, 50.0, 0.01]).double()[:, None, None]
        )),
        _quantise_case("values: an outlier", _with_an_outlier),
        _quantise_case("values: negative numbers only", _lopsided),
        _quantise_case("corners: a head of zeros", _with_an_empty_head),
        _quantise_case("corners: one token", lambda: draw(3, 2, 1, 4)),
        _quantise_case("corners: tiny numbers", lambda: 1e-200 * draw(1, 2, 3, 4)),
        _quantise_case("corners: single precision", lambda: draw(2, 2, 3, 4, dtype=torch.float32)),
    ),
    wrong=(
        WrongAnswer(
            "one scale for all heads",
            "A head with large keys would take all the steps from the others. One scale per head.",
            _quantise_with(lambda x: x.abs().amax().expand(*x.shape[:2], 1, 1).clone()),
        ),
        WrongAnswer(
            "a scale per sequence",
            "Every key-value head of every sequence has a scale of its own.",
            _quantise_with(
                lambda x: x.abs().amax((1, 2, 3), keepdim=True).expand(-1, x.shape[1], 1, 1).clone()
            ),
        ),
        WrongAnswer(
            "the largest, not the largest size",
            "Negative numbers count by their absolute value; otherwise they are clipped.",
            _quantise_with(lambda x: x.amax((-2, -1), keepdim=True)),
        ),
        WrongAnswer(
            "divided by 128",
            "The largest number would become 128, which eight bits do not hold. Use 127.",
            _quantise_with(steps=128.0),
        ),
        WrongAnswer(
            "divided by 128 and cut off at 127",
            "The largest number is then off by a whole step. With 127 nothing has to be cut off.",
            _quantise_with(steps=128.0, limit=True),
        ),
        WrongAnswer(
            "cut off instead of rounded",
            "Cutting off is wrong by up to a whole step; rounding, by half of one.",
            _quantise_with(whole=torch.trunc),
        ),
        WrongAnswer(
            "a head of zeros not considered",
            "A scale of zero makes 0 / 0. The scale of a head of zeros is 1 by agreement.",
            _quantise_with(empty=False),
        ),
        WrongAnswer(
            "with a zero point",
            "The question asks for symmetric steps, where 0 stays 0 and no offset is stored.",
            _quantise_shifted,
        ),
    ),
    variants=(_quantise_with(), _quantise_by_factor),
    spared=dict.fromkeys(SIXTEEN_BITS, "a number between two steps goes either way"),
)  # fmt: skip


# --- score_error_bound ----------------------------------------------------------------------------


def _bound(q: Tensor, scale: Tensor) -> Tensor:
    b, h, t, d = q.shape
    g = scale.shape[1]
    out = torch.zeros(b, h, t, 1, dtype=q.dtype)
    for n in range(b):
        for i in range(h):
            for j in range(t):
                total = sum(abs(v) for v in q[n, i, j].tolist())
                out[n, i, j] = total * scale[n, i // (h // g)].item() / 2 / math.sqrt(d)
    return out


@in_parts
def _bound_with(
    size: Callable[[Tensor], Tensor] = lambda q: q.abs().sum(-1, keepdim=True),
    step: float = 0.5,
    spread: Callable[[Tensor, int], Tensor] = lambda s, n: s.repeat_interleave(n, 1),
    root: bool = True,
) -> Answer:
    def answer(q: Tensor, scale: Tensor) -> Tensor:
        scales = spread(scale, q.shape[1] // scale.shape[1])
        return step * scales * size(q) / (math.sqrt(q.shape[-1]) if root else 1.0)

    return answer


def _bound_case(name: str, h: int, g: int, t: int = 3, d: int = 4) -> Case:
    return Case(name, lambda: (draw(2, h, t, d), draw(2, g, 1, 1, seed=1).abs()), EXACT)


_BOUND = Exercise(
    title="How wrong can a score be?",
    oracle=_bound,
    cases=(
        _bound_case("values: six heads in two groups", 6, 2),
        _bound_case("values: eight heads in four groups", 8, 4),
        _bound_case("values: six heads in three groups", 6, 3, d=16),
        _bound_case("corners: every head its own", 3, 3),
        _bound_case("corners: one group", 4, 1),
        _bound_case("corners: one query", 4, 2, t=1, d=7),
    ),
    wrong=(
        WrongAnswer(
            "the Euclidean norm of the query",
            "The errors of all features may have the worst signs at once: sum absolute values.",
            _bound_with(size=lambda q: q.norm(dim=-1, keepdim=True)),
        ),
        WrongAnswer(
            "a whole step",
            "Rounding to the nearest step is wrong by half a step at most.",
            _bound_with(step=1.0),
        ),
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h reads key-value head h // (H / G).",
            _bound_with(spread=lambda s, n: s.repeat(1, n, 1, 1)),
        ),
        WrongAnswer(
            "the root of d_head forgotten",
            "The score is divided by the root of d_head, and its error with it.",
            _bound_with(root=False),
        ),
        WrongAnswer(
            "signs kept in the sum",
            "Positive and negative features must not cancel in a bound.",
            _bound_with(size=lambda q: q.sum(-1, keepdim=True).abs()),
        ),
        WrongAnswer(
            "d_head times the largest feature",
            "True, but not the smallest bound: each feature brings its own absolute value.",
            _bound_with(size=lambda q: q.shape[-1] * q.abs().amax(-1, keepdim=True)),
        ),
    ),
    variants=(_bound_with(),),
)


# --- grouped_backward -----------------------------------------------------------------------------


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def _grouped_backward(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return gradients(_grouped, grad_out, q, k, v)


@in_parts
def _grouped_backward_with(
    spread: Callable[[Tensor, int], Tensor] = lambda x, n: x.repeat_interleave(n, 1),
    gather: Callable[[Tensor, int], Tensor] = lambda x, g: _apart(x, 1, (g, -1)).sum(2),
    mean_term: bool = True,
    root: bool = True,
    of_values: Callable[[Tensor, Tensor], Tensor] = lambda p, g: p.mT @ g,
) -> Answer:
    def answer(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        n, g = q.shape[1] // k.shape[1], k.shape[1]
        keys, values, scale = spread(k, n), spread(v, n), q.shape[-1] ** -0.5
        p = (q @ keys.mT * scale).softmax(-1)
        dp = grad_out @ values.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) if mean_term else p * dp
        ds = ds * (scale if root else 1.0)
        return ds @ keys, gather(ds.mT @ q, g), gather(of_values(p, grad_out), g)

    return answer


def _grouped_backward_by_heads(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    n, scale = q.shape[1] // k.shape[1], 1 / math.sqrt(q.shape[-1])
    for h in range(q.shape[1]):
        g = h // n
        p = (q[:, h] @ k[:, g].mT * scale).softmax(-1)
        dp = grad_out[:, h] @ v[:, g].mT
        ds = p * (dp - (grad_out[:, h] * (p @ v[:, g])).sum(-1, keepdim=True)) * scale
        dq[:, h] = ds @ k[:, g]
        dk[:, g] += ds.mT @ q[:, h]
        dv[:, g] += p.mT @ grad_out[:, h]
    return dq, dk, dv


def _grouped_case(name: str, h: int, g: int, t: int = 3, s: int = 5, d: int = 4) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((2, h, t, d), (2, h, t, d), (2, g, s, d), (2, g, s, d))
        return tuple(draw(*shape, seed=i) for i, shape in enumerate(shapes))

    return Case(name, inputs, 1e-9)


_GROUPED_BACKWARD = Exercise(
    title="Shared heads backwards",
    oracle=_grouped_backward,
    spared=dict.fromkeys(("huge",), "the gradients vanish there and what is left is rounding"),
    cases=(
        _grouped_case("values: six heads in two groups", 6, 2),
        _grouped_case("values: six heads in three groups", 6, 3),
        _grouped_case("values: more queries than keys", 4, 2, t=6, s=2, d=3),
        _grouped_case("corners: one group", 4, 1),
        _grouped_case("corners: every head its own", 3, 3),
        _grouped_case("corners: one query, many keys", 8, 2, t=1, s=9),
    ),
    wrong=(
        WrongAnswer(
            "mean over the group",
            "A shared key serves every head of its group, so that their gradients add up.",
            _grouped_backward_with(gather=lambda x, g: _apart(x, 1, (g, -1)).mean(2)),
        ),
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h reads key-value head h // (H / G).",
            _grouped_backward_with(
                spread=lambda x, n: x.repeat(1, n, 1, 1),
                gather=lambda x, g: _apart(x, 1, (-1, g)).sum(1),
            ),
        ),
        WrongAnswer(
            "gathered in another order than spread",
            "Neighbours were given the same key; their gradients belong together again.",
            _grouped_backward_with(gather=lambda x, g: _apart(x, 1, (-1, g)).sum(1)),
        ),
        WrongAnswer(
            "one head of each group only",
            "All heads of a group used the key. Each of them has a gradient for it.",
            _grouped_backward_with(gather=lambda x, g: _apart(x, 1, (g, -1))[:, :, 0]),
        ),
        WrongAnswer(
            "the softmax's second term forgotten",
            "Raising one score lowers the other weights: p times (dp - the sum of p dp).",
            _grouped_backward_with(mean_term=False),
        ),
        WrongAnswer(
            "the root of d_head forgotten",
            "The scores are divided by the root of d_head, hence the gradients of q and k too.",
            _grouped_backward_with(root=False),
        ),
    ),
    variants=(_grouped_backward_with(), _grouped_backward_by_heads),
)  # fmt: skip


# --- longest_context ------------------------------------------------------------------------------


def _longest(
    memory: int, batch: int, full_layers: int, window_layers: int, window: int, row_bytes: int
) -> int | None:
    def fits(length: int) -> bool:
        rows = full_layers * length + window_layers * min(length, window)
        return batch * rows * row_bytes <= memory

    if not full_layers and fits(window):
        return None
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@in_parts
def _longest_with(
    short: Callable[[float, int, int], float] = lambda rows, f, w: rows / (f + w),
    long: Callable[[float, int, int, int], float] = lambda rows, f, w, n: (rows - w * n) / f,
    use_batch: bool = True,
    whole: Callable[[float], int] = math.floor,
    endless: bool = True,
) -> Answer:
    def answer(
        memory: int, batch: int, full_layers: int, window_layers: int, window: int, row_bytes: int
    ) -> int | None:
        rows = memory / (row_bytes * (batch if use_batch else 1))
        if short(rows, full_layers, window_layers) < window:
            return whole(short(rows, full_layers, window_layers))
        if not full_layers:
            return None if endless else window
        return whole(long(rows, full_layers, window_layers, window))

    return answer


def _longest_case(name: str, *args: Any) -> Case:
    return Case(name, lambda: args)


_LONGEST = Exercise(
    title="The longest context that fits",
    oracle=_longest,
    cases=(
        _longest_case("values: all layers full", 10**9, 4, 32, 0, 1, 2048),
        _longest_case("values: half of the layers have a window", 10**9, 4, 16, 16, 1024, 2048),
        _longest_case("values: five windows to one full layer", 2 * 10**9, 3, 10, 52, 1024, 8192),
        _longest_case("values: shorter than the window", 10**8, 4, 16, 16, 4096, 2048),
        _longest_case("corners: windows only, with room", 10**9, 1, 0, 32, 512, 1000),
        _longest_case("corners: windows only, too little room", 10**7, 1, 0, 32, 4096, 1000),
        _longest_case("corners: room for nothing", 1000, 8, 16, 16, 1024, 2048),
        _longest_case("corners: exactly ten", 10 * 7 * 3 * 5, 3, 4, 3, 100, 5),
    ),
    wrong=(
        WrongAnswer(
            "windows treated as full layers",
            "A layer with a window keeps no more than `window` positions.",
            _longest_with(long=lambda rows, f, w, n: rows / (f + w)),
        ),
        WrongAnswer(
            "windows treated as free",
            "They are bounded, not empty: min(length, window) positions each.",
            _longest_with(short=lambda rows, f, w: rows / f if f else math.inf,
                          long=lambda rows, f, w, n: rows / f),
        ),
        WrongAnswer(
            "full windows in a short text",
            "Below `window` positions a layer with a window grows like any other.",
            _longest_with(short=lambda rows, f, w: math.inf,
                          long=lambda rows, f, w, n: max(0, (rows - w * n) / f)),
        ),
        WrongAnswer(
            "one sequence",
            "Each of the `batch` sequences has a cache of its own.",
            _longest_with(use_batch=False),
        ),
        WrongAnswer(
            "rounded up",
            "A position that does not fit as a whole does not fit. Round down.",
            _longest_with(whole=math.ceil),
        ),
        WrongAnswer(
            "no length is too long, and still a number",
            "Without full layers the cache stops growing: any length fits, which is None here.",
            _longest_with(endless=False),
        ),
    ),
    variants=(_longest_with(),),
)  # fmt: skip


# --- low_rank -------------------------------------------------------------------------------------


def _kept(product: Tensor, weight: Tensor) -> tuple[Tensor, float]:
    return product, (product.square().sum() / weight.square().sum()).item()


def _best(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    """By the eigenvectors of W W^T: project the outputs on the strongest of them."""
    values, vectors = torch.linalg.eigh(weight @ weight.mT)
    strongest = vectors[:, -rank:]
    return strongest @ strongest.mT @ weight, (values[-rank:].sum() / values.sum()).item()


def _multiplied(factor: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> Answer:
    def answer(weight: Tensor, rank: int) -> tuple[Tensor, float]:
        down, up = factor(weight, rank)
        return _kept(up @ down, weight)

    return answer


def _norms(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    product, share = _best(weight, rank)
    return product, math.sqrt(share)


def _sizes(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    s = torch.linalg.svdvals(weight)
    return _best(weight, rank)[0], (s[:rank].sum() / s.sum()).item()


@in_parts
def _factors(
    choose: Callable[[Tensor, int], Tensor] = lambda s, r: torch.arange(r),
    left: float = 0.5,
    right: float = 0.5,
) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    def answer(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        u, s, vt = torch.linalg.svd(weight, full_matrices=False)
        i = choose(s, rank)
        return s[i, None] ** right * vt[i], u[:, i] * s[i] ** left

    return answer


def _first_rows(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    return weight[:rank], torch.eye(weight.shape[0], rank, dtype=weight.dtype)


def _rank_case(name: str, rows: int, columns: int, rank: int) -> Case:
    return Case(name, lambda: (draw(rows, columns), rank), 1e-8)


_LOW_RANK = Exercise(
    title="A latent for keys that exist",
    oracle=_best,
    cases=(
        _rank_case("values: six by ten, rank 2", 6, 10, 2),
        _rank_case("values: ten by six, rank 3", 10, 6, 3),
        _rank_case("values: square", 8, 8, 5),
        _rank_case("corners: rank 1", 5, 7, 1),
        _rank_case("corners: nothing is lost", 4, 9, 4),
        _rank_case("corners: all but one", 9, 5, 4),
    ),
    wrong=(
        WrongAnswer(
            "the smallest singular values kept",
            "The error is the size of what is left out. Leave out the smallest.",
            _multiplied(_factors(choose=lambda s, r: torch.arange(len(s) - r, len(s)))),
        ),
        WrongAnswer(
            "singular values left out",
            "U and V have rows of length 1. The sizes are in S, which must go to one of them.",
            _multiplied(_factors(left=0.0, right=0.0)),
        ),
        WrongAnswer(
            "singular values taken twice",
            "Give S to one factor, or its root to both, but not S to both.",
            _multiplied(_factors(left=1.0, right=1.0)),
        ),
        WrongAnswer(
            "the first rows of the matrix",
            "This keeps some outputs and drops the others. The best subspace mixes all of them.",
            _multiplied(_first_rows),
        ),
        WrongAnswer(
            "the share of the norm",
            "The share of the sum of squares was asked for; this is its root.",
            _norms,
        ),
        WrongAnswer(
            "singular values not squared",
            "The sum of squares of a matrix is the sum of the squares of its singular values.",
            _sizes,
        ),
    ),
    variants=(
        _multiplied(_factors()),
        _multiplied(_factors(left=1.0, right=0.0)),
        _multiplied(_factors(left=0.0, right=1.0)),
    ),
    spared=dict.fromkeys(SIXTEEN_BITS, "torch decomposes no matrix in 16 bits"),
)


# --- absorb_output --------------------------------------------------------------------------------


def _absorb(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """Column by column: what one input feature of one head becomes in the output."""
    d_in, d_head = w_v.shape[1], w_v.shape[0] // num_kv_heads
    out = torch.zeros(num_heads, d_in, w_o.shape[0], dtype=w_v.dtype)
    for h in range(num_heads):
        for i in range(d_in):
            value = torch.zeros(num_heads * d_head, dtype=w_v.dtype)
            g = h // (num_heads // num_kv_heads)
            value[h * d_head : (h + 1) * d_head] = w_v[g * d_head : (g + 1) * d_head, i]
            out[h, i] = F.linear(value, w_o)
    return out


@in_parts
def _absorb_with(
    spread: Callable[[Tensor, int], Tensor] = lambda x, n: x.repeat_interleave(n, 0),
    cut: Callable[[Tensor, int], Tensor] = lambda w, h: _apart(w, 1, (h, -1)).permute(1, 2, 0),
    done: Callable[[Tensor], Tensor] = lambda x: x,
) -> Answer:
    def answer(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
        values = _apart(w_v, 0, (num_kv_heads, -1)).mT
        return done(spread(values, num_heads // num_kv_heads) @ cut(w_o, num_heads))

    return answer


def _absorb_by_einsum(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    v = w_v.reshape(num_kv_heads, -1, w_v.shape[1])
    o = w_o.reshape(len(w_o), num_kv_heads, num_heads // num_kv_heads, -1)
    return torch.einsum("gdi,ogrd->grio", v, o).flatten(0, 1)


def _absorb_case(name: str, h: int, g: int, d_in: int, d_head: int, d_out: int) -> Case:
    return Case(
        name, lambda: (draw(g * d_head, d_in), draw(d_out, h * d_head, seed=1), h, g), EXACT
    )


_ABSORB = Exercise(
    title="The values' matrix into the output's",
    oracle=_absorb,
    cases=(
        _absorb_case("values: six heads in two groups", 6, 2, 5, 3, 7),
        _absorb_case("values: four heads in two groups, square", 4, 2, 8, 2, 8),
        _absorb_case("values: six heads in three groups", 6, 3, 4, 6, 5),
        _absorb_case("corners: every head its own", 4, 4, 5, 3, 5),
        _absorb_case("corners: one group", 4, 1, 6, 4, 3),
        _absorb_case("corners: one head", 1, 1, 3, 2, 4),
    ),
    wrong=(
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h uses the values of head h // (H / G).",
            _absorb_with(spread=lambda x, n: x.repeat(n, 1, 1)),
        ),
        WrongAnswer(
            "the output's columns cut the other way",
            "The concatenated heads lie one behind the other: head h has columns h d to h d + d.",
            _absorb_with(cut=lambda w, h: _apart(w, 1, (-1, h)).permute(2, 1, 0)),
        ),
        WrongAnswer(
            "inputs and outputs exchanged",
            "Rows are multiplied from the left here, x @ M[h]: inputs first, then outputs.",
            _absorb_with(done=lambda x: x.mT),
        ),
        WrongAnswer(
            "summed over the heads",
            "Each head weighs the positions differently, so that each keeps a matrix of its own.",
            _absorb_with(done=lambda x: x.sum(0, keepdim=True).expand_as(x)),
        ),
        WrongAnswer(
            "mean over the heads",
            "The output is the sum over the heads. Nothing is divided by their number.",
            _absorb_with(done=lambda x: x / len(x)),
        ),
    ),
    variants=(_absorb_with(), _absorb_by_einsum),
)  # fmt: skip


# --- window_decode --------------------------------------------------------------------------------


def _decode(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    a, t = keys.shape[2], q.shape[2]
    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
    n = q.shape[1] // k.shape[1]
    out = torch.zeros_like(q)
    for h in range(q.shape[1]):
        for i in range(t):
            seen = slice(max(0, a + i + 1 - window), a + i + 1)
            rows, sums = keys[:, h // n, seen], values[:, h // n, seen]
            scores = (rows @ q[:, h, i, :, None])[..., 0] / math.sqrt(q.shape[-1])
            out[:, h, i] = (scores.softmax(-1)[:, None] @ sums)[:, 0]
    return out, keys[:, :, -window:], values[:, :, -window:]


def _band(a: int, t: int, window: int) -> Tensor:
    distance = torch.arange(a, a + t)[:, None] - torch.arange(a + t)
    return (distance >= 0) & (distance < window)


@in_parts
def _decode_with(
    mask: Callable[[int, int, int], Tensor] = _band,
    trim: str = "after",
    kept: Callable[[int], int] = lambda window: window,
    spread: Callable[[Tensor, int], Tensor] = lambda x, n: x.repeat_interleave(n, 1),
) -> Answer:
    def answer(
        q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        n, t, total = q.shape[1] // k.shape[1], q.shape[2], keys.shape[2]
        allowed = mask(total - t, t, window)
        if trim == "before":
            # Keys are dropped before the early queries of the chunk have read them.
            keys, values, allowed = (
                keys[:, :, -window:],
                values[:, :, -window:],
                allowed[:, -window:],
            )
        scores = q @ spread(keys, n).mT / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~allowed, -math.inf).softmax(-1).nan_to_num()
        rows = kept(window)
        out = weights @ spread(values, n)
        return out, keys[:, :, -rows:] if rows else keys, values[:, :, -rows:] if rows else values

    return answer


def _decode_case(name: str, a: int, t: int, window: int, h: int = 4, g: int = 2) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((2, h, t, 3), (2, g, t, 3), (2, g, t, 3), (2, g, a, 3), (2, g, a, 3))
        return (*(draw(*s, seed=i) for i, s in enumerate(shapes)), window)

    return Case(name, inputs, EXACT)


_DECODE = Exercise(
    title="Repair a decoding step",
    oracle=_decode,
    cases=(
        _decode_case("values: one new token, room in the window", 3, 1, 8),
        _decode_case("values: one new token, a full window", 4, 1, 4),
        _decode_case("values: a chunk of three", 4, 3, 5),
        _decode_case("values: a prompt", 0, 6, 3),
        _decode_case("values: six heads in three groups", 4, 2, 4, 6, 3),
        _decode_case("corners: a chunk longer than the window", 3, 7, 3),
        _decode_case("corners: the first token", 0, 1, 4),
        _decode_case("corners: a window of one", 1, 4, 1),
        _decode_case("corners: one key-value head", 5, 2, 6, 4, 1),
    ),
    wrong=(
        WrongAnswer(
            "causal at the top left",
            "is_causal=True lets query i see i + 1 keys. Behind a cache it stands at a + i.",
            _decode_with(mask=lambda a, t, w: torch.ones(t, a + t, dtype=torch.bool).tril()),
        ),
        WrongAnswer(
            "causal but without a window",
            "A query sees its own position and the window - 1 before it, no more.",
            _decode_with(mask=lambda a, t, w: torch.ones(t, a + t, dtype=torch.bool).tril(a)),
        ),
        WrongAnswer(
            "no mask",
            "The queries of a chunk must see neither later keys nor those before the window.",
            _decode_with(mask=lambda a, t, w: torch.ones(t, a + t, dtype=torch.bool)),
        ),
        WrongAnswer(
            "a window of one more",
            "The query's own position counts: window positions in all, the distance is below it.",
            _decode_with(mask=lambda a, t, w: _band(a, t, w + 1)),
        ),
        WrongAnswer(
            "trimmed before attending",
            "The first query of a chunk needs keys that the last one does not. Trim at the end.",
            _decode_with(trim="before"),
        ),
        WrongAnswer(
            "nothing trimmed",
            "Keys that no later query can see are dropped: at most `window` rows are returned.",
            _decode_with(kept=lambda window: 0),
        ),
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h reads key-value head h // (H / G).",
            _decode_with(spread=lambda x, n: x.repeat(1, n, 1, 1)),
        ),
    ),
    variants=(_decode_with(),),
)


EXERCISES = {
    "ring_write": _RING_WRITE,
    "ring_positions": _RING_POSITIONS,
    "quantise_heads": _QUANTISE,
    "score_error_bound": _BOUND,
    "grouped_backward": _GROUPED_BACKWARD,
    "longest_context": _LONGEST,
    "low_rank": _LOW_RANK,
    "absorb_output": _ABSORB,
    "window_decode": _DECODE,
}
