"""Questions of the assignment: cache_mask, take_away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# --- cache_mask -----------------------------------------------------------------------------------


def _cache_mask(query_positions: Tensor, key_positions: Tensor, window: int, sinks: int) -> Tensor:
    rows = [
        [0 <= k <= q and (k < sinks or q - k < window) for k in key_positions.tolist()]
        for q in query_positions.tolist()
    ]
    shape = len(query_positions), len(key_positions)
    return torch.tensor(rows, dtype=torch.bool).reshape(shape)


@in_parts
def _mask_with(
    near: Callable[[Tensor, int, int], Tensor] = lambda distance, window, sinks: distance < window,
    past: Callable[[Tensor], Tensor] = lambda distance: distance >= 0,
    filled: Callable[[Tensor], Tensor] = lambda k: k >= 0,
    is_sink: Callable[[Tensor, Tensor, int], Tensor] = lambda k, slot, sinks: k < sinks,
    place: Callable[[Tensor, Tensor], Tensor] = lambda k, slot: k,
    causal_sinks: bool = True,
    turned: bool = False,
    row: Callable[[Tensor], Tensor] = lambda q: q,
) -> Answer:
    def answer(query_positions: Tensor, key_positions: Tensor, window: int, sinks: int) -> Tensor:
        q, k = row(query_positions)[:, None], key_positions[None, :]
        slot = torch.arange(len(key_positions))[None, :]
        distance = q - place(k, slot)
        sink = is_sink(k, slot, sinks).expand(distance.shape)
        seen = (near(distance, window, sinks) & past(distance)) | (
            sink & past(distance) if causal_sinks else sink
        )
        seen = seen & filled(k)
        return ~seen if turned else seen

    return answer


def _mask_case(name: str, q: list[int], k: list[int], window: int, sinks: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return torch.tensor(q, dtype=torch.int64), torch.tensor(k, dtype=torch.int64), window, sinks

    return Case(name, inputs)


_MASK = Exercise(
    title="The mask of a ring with sinks",
    oracle=_cache_mask,
    cases=(
        _mask_case("values: a ring that has gone round", [9, 10], [0, 1, 8, 9, 10, 7, 6], 3, 2),
        _mask_case("values: far on in a text", [3001, 3002, 3003],
                   [0, 1, 2, 3, 3000, 3001, 3002, 3003, 2998, 2999], 4, 4),
        _mask_case("values: a chunk of a prompt", [4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7], 3, 1),
        _mask_case("values: sinks behind the others", [600, 601], [599, 600, 601, 1, 0, 598], 2, 2),
        _mask_case("values: a window of one", [20, 21], [0, 19, 20, 21], 1, 1),
        _mask_case("values: more old keys than the window", [12], list(range(13)), 5, 3),
        _mask_case("empty: slots that hold nothing yet", [2, 3], [0, 1, 2, 3, -1, -1, -1], 4, 2),
        _mask_case("empty: nothing but empty slots", [0], [-1, -1, -1], 2, 1),
        _mask_case("empty: between the others", [300], [0, -1, 299, 300, -1], 8, 1),
        _mask_case("corners: no sinks", [8, 9], [9, 5, 6, 7, 8, 0], 3, 0),
        _mask_case("corners: sinks that come later", [0, 1], [0, 1, 2, 3], 1, 4),
        _mask_case("corners: the window sees everything", [3, 4], [4, 0, 1, 2, 3], 100, 1),
        _mask_case("corners: no query", [], [0, 1, 2], 2, 1),
        _mask_case("corners: queries out of order", [7, 5, 6], [7, 6, 5, 4, 0], 2, 1),
    ),
    wrong=(
        WrongAnswer(
            "the window without the token itself",
            "A window of w sees w positions, the query's own included: distances below w.",
            _mask_with(near=lambda distance, window, sinks: distance <= window),
        ),
        WrongAnswer(
            "the window one too short",
            "A window of w sees w positions: the query's own and w - 1 before it.",
            _mask_with(near=lambda distance, window, sinks: distance < window - 1),
        ),
        WrongAnswer(
            "sinks taken from the window",
            "Sinks are seen besides the window, which stays as long as it is.",
            _mask_with(near=lambda distance, window, sinks: distance < window - sinks),
        ),
        WrongAnswer(
            "no sinks",
            "The first positions are seen by every later query, however far away.",
            _mask_with(is_sink=lambda k, slot, sinks: k < 0),
        ),
        WrongAnswer(
            "the first slots taken for sinks",
            "A sink is known by its position; in a ring it may stand in any slot.",
            _mask_with(is_sink=lambda k, slot, sinks: slot < sinks),
        ),
        WrongAnswer(
            "one sink too many",
            "Positions count from 0: with s sinks they are the positions below s.",
            _mask_with(is_sink=lambda k, slot, sinks: k <= sinks),
        ),
        WrongAnswer(
            "slots taken for positions",
            "A ring overwrites: what a slot holds is told by key_positions, not by its place.",
            _mask_with(place=lambda k, slot: slot),
        ),
        WrongAnswer(
            "empty slots seen as sinks",
            "An empty slot has the position -1, which is below the number of sinks too.",
            _mask_with(filled=lambda k: k >= -1),
        ),
        WrongAnswer(
            "sinks that lie ahead",
            "A sink is a key like others: a query before it may not see it.",
            _mask_with(causal_sinks=False),
        ),
        WrongAnswer(
            "later keys seen",
            "A key whose position is beyond the query's is the future, and hidden.",
            _mask_with(past=lambda distance: distance > -1000),
        ),
        WrongAnswer(
            "True for hidden",
            "True means that the query may attend to the key.",
            _mask_with(turned=True),
        ),
        WrongAnswer(
            "queries taken to be the last ones",
            "The queries say where they stand; they need not be the last ones, nor in order.",
            _mask_with(row=lambda q: q.max() - torch.arange(len(q)).flip(0) if len(q) else q),
        ),
    ),
    variants=(_mask_with(),),
)  # fmt: skip


Kept = tuple[Tensor, Tensor]


# --- take_away ------------------------------------------------------------------------------------


def _take_away(output: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> Kept:
    """Row by row, in Python's numbers."""
    rows = zip(output.flatten(0, -2).tolist(), lse.flatten().tolist(),
               part.flatten(0, -2).tolist(), part_lse.flatten().tolist(), strict=True)  # fmt: skip
    outs, sums = [], []
    for whole, total, gone, taken in rows:
        if total == taken:
            outs.append([0.0] * len(whole))
            sums.append(-math.inf)
            continue
        share = math.exp(taken - total)
        left = -math.expm1(taken - total)
        outs.append([(x - share * y) / left for x, y in zip(whole, gone, strict=True)])
        sums.append(total + math.log(left))
    return (
        torch.tensor(outs, dtype=output.dtype).reshape(output.shape),
        torch.tensor(sums, dtype=lse.dtype).reshape(lse.shape),
    )


@in_parts
def _take_with(
    share: Callable[[Tensor, Tensor], Tensor] = lambda total, taken: (taken - total).exp(),
    left: Callable[[Tensor], Tensor] = lambda share: 1 - share,
    divide: bool = True,
    new: Callable[[Tensor, Tensor, Tensor], Tensor] = (
        lambda total, taken, left: total + left.log()
    ),
    sign: float = -1.0,
    guard: bool = True,
    rows_of: Callable[[Tensor], Tensor] = lambda x: x[..., None],
) -> Answer:
    def answer(output: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> Kept:
        nothing = (lse == part_lse) if guard else torch.zeros_like(lse, dtype=torch.bool)
        total = lse.masked_fill(nothing, 0.0)
        taken = part_lse.masked_fill(nothing, -torch.inf)
        fraction = share(total, taken)
        rest = left(fraction)
        out = output + sign * rows_of(fraction) * part
        if divide:
            out = out / rows_of(rest)
        found = new(total, taken, rest)
        return out.masked_fill(nothing[..., None], 0.0), found.masked_fill(nothing, -torch.inf)

    return answer


def _take_case(
    name: str, shape: tuple[int, ...], d: int, gone: int, kept: int, *, size: float = 1.0,
    shift: float = 0.0, empty: str = "",
) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        scores = draw(*shape, gone + kept, seed=d + gone, scale=size) + shift
        values = draw(*shape, gone + kept, d, seed=d + kept)
        hidden = torch.zeros(scores.shape, dtype=torch.bool)
        if "part" in empty:
            hidden[..., 0, :gone] = True
        if "rest" in empty:
            hidden[..., -1, gone:] = True
        scores = scores.masked_fill(hidden, -math.inf)

        def attend(some: slice) -> Kept:
            s, v = scores[..., some], values[..., some, :]
            weights = s.softmax(-1).nan_to_num()
            return (weights[..., None] * v).sum(-2), s.logsumexp(-1)

        (output, lse), (part, part_lse) = attend(slice(None)), attend(slice(gone))
        # Of a row that loses everything both sums are the same to the last digit.
        same = hidden[..., gone:].all(-1)
        return output, lse, part, torch.where(same, lse, part_lse)

    return Case(name, inputs, 1e-9)


_TAKE = Exercise(
    title="Attention without a part of the keys",
    oracle=_take_away,
    leading={"output": 2, "lse": 1, "part": 2, "part_lse": 1},
    cases=(
        _take_case("values: two of seven keys", (2, 4), 3, 2, 5),
        _take_case("values: heads and sequences", (2, 3, 3), 4, 3, 6),
        _take_case("values: one row", (1,), 2, 1, 3),
        _take_case("values: half of the keys", (2, 5), 3, 4, 4, size=0.5),
        _take_case("values: scores near 900", (2, 3), 3, 2, 4, shift=900.0),
        _take_case("values: scores near -900", (2, 3), 3, 2, 4, shift=-900.0),
        _take_case("corners: a part in which a row saw nothing", (2, 3), 3, 2, 4, empty="part"),
        _take_case("corners: a row of which nothing is left", (2, 3), 3, 2, 4, empty="rest"),
        _take_case("corners: both", (2, 3), 3, 2, 4, empty="part and rest"),
        _take_case("corners: a row that never saw a key", (2, 1), 3, 2, 4, empty="part and rest"),
    ),
    wrong=(
        WrongAnswer(
            "outputs subtracted as they are",
            "Each output is a mean. The part counts with its share of the whole sum.",
            _take_with(share=lambda total, taken: torch.ones_like(total),
                       left=lambda share: share, divide=False,
                       new=lambda total, taken, left: total + (1 - (taken - total).exp()).log()),
        ),
        WrongAnswer(
            "not divided by what is left",
            "The rest of the weights adds up to less than 1 and has to be divided by its sum.",
            _take_with(divide=False),
        ),
        WrongAnswer(
            "log-sum-exps subtracted",
            "Sums are subtracted, not their logarithms.",
            _take_with(new=lambda total, taken, left: total - taken),
        ),
        WrongAnswer(
            "the log-sum-exp stays",
            "Keys that are gone leave a smaller sum, also in the log-sum-exp.",
            _take_with(new=lambda total, taken, left: total.clone()),
        ),
        WrongAnswer(
            "the part added in place of taken away",
            "Keys are taken away: the part's share is subtracted, from output and sum.",
            _take_with(sign=1.0, left=lambda share: 1 + share),
        ),
        WrongAnswer(
            "added to the output only",
            "The part's share is subtracted from the output as it is from the sum.",
            _take_with(sign=1.0),
        ),
        WrongAnswer(
            "the share upside down",
            "The part's share of the whole is exp(part - whole), at most 1.",
            _take_with(share=lambda total, taken: (total - taken).exp()),
        ),
        WrongAnswer(
            "exponentials of the sums themselves",
            "exp of a log-sum-exp overflows: only differences are safe.",
            _take_with(new=lambda total, taken, left: (total.exp() - taken.exp()).log()),
        ),
        WrongAnswer(
            "a row without keys divided by nothing",
            "Where nothing is left the output is 0 and the log-sum-exp minus infinity.",
            _take_with(guard=False),
        ),
        WrongAnswer(
            "the logarithm to the base 2",
            "The log-sum-exps are natural logarithms, of the base e.",
            _take_with(new=lambda total, taken, left: total + left.log2()),
        ),
    ),
    variants=(_take_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "what is left of a difference of 16 bits is rounding"),
        "tiny": "all sums are equal there but for rounding",
    },
)  # fmt: skip


EXERCISES = {
    "cache_mask": _MASK,
    "take_away": _TAKE,
}
