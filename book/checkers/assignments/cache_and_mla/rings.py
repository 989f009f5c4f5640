"""Questions of the assignment: ring_write, ring_positions, window_decode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

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


def _ring_cut_off(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    first = seen % buffer.shape[2]
    out = buffer.clone()
    fits = new[:, :, : buffer.shape[2] - first]
    out[:, :, first : first + fits.shape[2]] = fits
    return out


def _ring_misaligned(buffer: Tensor, new: Tensor, seen: int) -> Tensor:
    window = buffer.shape[2]
    newest = new[:, :, -window:]
    out = buffer.clone()
    out[:, :, torch.arange(seen, seen + newest.shape[2]) % window] = newest
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
        WrongAnswer(
            "cut off at the end of the ring",
            "A slice does not go around: what does not fit before the end of the ring is lost "
            "here. It belongs in the first slots.",
            _ring_cut_off,
        ),
        WrongAnswer(
            "no modulo at all",
            "The slot is taken for the position itself, which the ring has no slot for after "
            "one round.",
            _ring_with(slots=lambda seen, t, w: torch.arange(seen, seen + t)),
        ),
        WrongAnswer(
            "the newest in the slots of the first",
            "Of a long chunk the newest rows are kept, but they are written from the slot of "
            "its first row on. Each row keeps its own position.",
            _ring_misaligned,
        ),
        WrongAnswer(
            "the chunk counted as seen",
            "`seen` counts what was written before. Here the chunk ends at this position, not "
            "begins there.",
            _ring_with(slots=lambda seen, t, w: torch.arange(seen - t, seen) % w),
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


def _last_round(window: int, seen: int) -> Tensor:
    position = (seen - 1) // window * window + torch.arange(window)
    return torch.where(position < seen, position, torch.tensor(-1))


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
        WrongAnswer(
            "one position short",
            "`seen` tokens have the positions 0 to seen - 1, and the last of them is missing here.",
            lambda window, seen: _ring_positions(window, seen - 1),
        ),
        WrongAnswer(
            "the round before forgotten",
            "A new round overwrites slot by slot. What it has not come to yet still holds the "
            "round before.",
            _last_round,
        ),
        WrongAnswer(
            "turned round the wrong way",
            "The positions in order of age are rolled to their slots, but `roll` moves to the "
            "right: the sign is the other one.",
            lambda window, seen: torch.arange(seen - window, seen).clamp(min=-1).roll(-seen),
        ),
        WrongAnswer(
            "empty slots left out",
            "One number per slot was asked for, also for those that nothing was written to.",
            lambda window, seen: _ring_positions(window, seen)[:seen],
        ),
        WrongAnswer(
            "positions as floats",
            "Positions are whole numbers and index tensors: int64, whatever the default dtype is.",
            lambda window, seen: _ring_positions(window, seen).to(torch.float32),
        ),
    ),
    variants=(lambda window, seen: _newest(window, seen).clamp(min=-1),),
)


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
    root: bool = True,
    hidden: float = -math.inf,
    late: bool = False,
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
        scores = q @ spread(keys, n).mT
        if root:
            scores = scores / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~allowed, hidden).softmax(-1).nan_to_num()
        if late:
            weights = scores.softmax(-1) * allowed
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
        WrongAnswer(
            "the root of d_head forgotten",
            "Scores are divided by the root of d_head before the softmax. Without it the "
            "weights are too sharp.",
            _decode_with(root=False),
        ),
        WrongAnswer(
            "hidden scores set to zero",
            "A score of 0 still has a weight, e to the 0. What is hidden must have none.",
            _decode_with(hidden=0.0),
        ),
        WrongAnswer(
            "masked after the softmax",
            "The hidden keys have taken their share of the softmax by then, and what is left "
            "does not sum to 1.",
            _decode_with(late=True),
        ),
    ),
    variants=(_decode_with(),),
)


EXERCISES = {
    "ring_write": _RING_WRITE,
    "ring_positions": _RING_POSITIONS,
    "window_decode": _DECODE,
}
