"""Questions of the assignment: verify, pack_nibbles."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts


def _args(name: str, *args: Any, raises: type[Exception] | None = None) -> Case:
    return Case(name, lambda: copy.deepcopy(args), raises=raises)


# --- verify ---------------------------------------------------------------------------------------


def _verify(p: Tensor, q: Tensor, drafted: Tensor, uniforms: Tensor) -> tuple[int, Tensor]:
    """Draft by draft, in Python's numbers."""
    count = 0
    rows = zip(p.tolist(), q.tolist(), drafted.tolist(), uniforms.tolist(), strict=False)
    for model, draft, token, u in rows:
        if u * draft[token] >= model[token]:
            rest = [max(a - b, 0.0) for a, b in zip(model, draft, strict=True)]
            total = math.fsum(rest)
            if total > 0:
                rest = [x / total for x in rest]
            return count, torch.tensor(rest if total > 0 else model, dtype=p.dtype)
        count += 1
    return count, p[count].clone()


@in_parts
def _verify_with(
    stands: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda u, p, q: u * q < p,
    until: Callable[[Tensor], Tensor] = lambda ok: ok.cumprod(0),
    at: Callable[[int, int], int] = lambda count, k: count,
    rest: Callable[[Tensor, Tensor], Tensor] = lambda p, q: (p - q).clamp(min=0),
    normalise: bool = True,
    bonus: Callable[[Tensor, Tensor], Tensor] = lambda p, q: p[-1],
    draft_at: Callable[[int, int], int] = lambda count, k: count,
) -> Answer:
    def answer(p: Tensor, q: Tensor, drafted: Tensor, uniforms: Tensor) -> tuple[int, Tensor]:
        k = len(drafted)
        mine = p[:-1].gather(1, drafted[:, None])[:, 0]
        theirs = q.gather(1, drafted[:, None])[:, 0]
        count = int(until(stands(uniforms, mine, theirs)).sum())
        if count == k:
            return count, bonus(p, q)
        left = rest(p[at(count, k)], q[draft_at(count, k)])
        if normalise:
            left = left / left.sum()
        return count, left

    return answer


def _verify_case(
    name: str, uniforms: list[float], *, vocab: int = 5, seed: int = 0, drafts: Any = None
) -> Case:
    def inputs() -> tuple[Any, ...]:
        k = len(uniforms)
        p = draw(k + 1, vocab, seed=seed + vocab).softmax(1)
        q = draw(k, vocab, seed=seed + vocab + 50).softmax(1)
        # By default the draft's favourite over the model.
        tokens = (q / p[:-1]).argmax(1) if drafts is None else torch.tensor(drafts)
        return p, q, tokens, torch.tensor(uniforms, dtype=torch.float64)

    return Case(name, inputs)


_VERIFY = Exercise(
    title="What a check of drafted tokens leaves",
    oracle=_verify,
    cases=(
        _verify_case("values: the third is refused", [0.01, 0.02, 0.97, 0.5]),
        _verify_case("values: the first is refused", [0.98, 0.01, 0.01], seed=1),
        _verify_case("values: the last is refused", [0.02, 0.01, 0.99], seed=2, vocab=4),
        _verify_case("values: two would be refused", [0.02, 0.95, 0.01, 0.99], seed=3),
        _verify_case("values: on the edge of the quotient", [0.3, 0.4, 0.45, 0.5], seed=4),
        _verify_case("values: tokens that the model likes", [0.9, 0.95, 0.99, 0.6], seed=5,
                     drafts=[0, 1, 2, 3]),
        _verify_case("values: eight words, five drafts", [0.1, 0.2, 0.1, 0.9, 0.1], seed=6,
                     vocab=8),
        _verify_case("corners: all stand", [0.01, 0.01, 0.01], seed=7),
        _verify_case("corners: one draft, refused", [0.99], seed=8),
        _verify_case("corners: one draft, accepted", [0.001], seed=9),
        _verify_case("corners: two words", [0.01, 0.99], seed=10, vocab=2),
    ),
    wrong=(
        WrongAnswer(
            "the quotient upside down",
            "A drafted token stands with probability min(1, p / q): q is the draft's.",
            _verify_with(stands=lambda u, p, q: u * p < q),
        ),
        WrongAnswer(
            "it stands with the model's probability",
            "The token was drawn from q already, so that it stands with p over q, not with p.",
            _verify_with(stands=lambda u, p, q: u < p),
        ),
        WrongAnswer(
            "accepted where it should be refused",
            "A number drawn evenly lies below p / q with that probability, and then it stands.",
            _verify_with(stands=lambda u, p, q: u * q >= p),
        ),
        WrongAnswer(
            "tokens behind a refusal accepted",
            "What was drafted behind a refused token hangs on it and falls with it.",
            _verify_with(until=lambda ok: ok),
        ),
        WrongAnswer(
            "the model's distribution after a refusal",
            "What the draft proposed too often has to be taken off: the positive part of p - q.",
            _verify_with(rest=lambda p, q: p),
        ),
        WrongAnswer(
            "the size of the difference",
            "Only words that the model likes better than the draft are left.",
            _verify_with(rest=lambda p, q: (p - q).abs()),
        ),
        WrongAnswer(
            "what the draft likes better",
            "Left is where p is above q, not where q is above p.",
            _verify_with(rest=lambda p, q: (q - p).clamp(min=0)),
        ),
        WrongAnswer(
            "not a distribution",
            "The positive part of the difference is divided by its sum.",
            _verify_with(normalise=False),
        ),
        WrongAnswer(
            "the residual of the last place",
            "The residual is taken at the place of the first refusal, for both distributions.",
            _verify_with(at=lambda count, k: k - 1, draft_at=lambda count, k: k - 1),
        ),
        WrongAnswer(
            "the model one place further",
            "p and q of one place belong together: that of the refused token.",
            _verify_with(at=lambda count, k: count + 1),
        ),
        WrongAnswer(
            "the draft of the first place",
            "The draft's distribution at the refused token is taken off, not the first one.",
            _verify_with(draft_at=lambda count, k: 0),
        ),
        WrongAnswer(
            "the draft taken off though nothing was refused",
            "Behind the last draft nothing was proposed: the model's own distribution holds.",
            _verify_with(bonus=lambda p, q: (p[-1] - q[-1]).clamp(min=0)
                         / (p[-1] - q[-1]).clamp(min=0).sum()),
        ),
        WrongAnswer(
            "the model's distribution of the last draft",
            "After all drafts stand, the next word comes from the last of the K + 1 rows.",
            _verify_with(bonus=lambda p, q: p[-2]),
        ),
    ),
    variants=(_verify_with(),),
    spared={
        **dict.fromkeys(("tiny", "huge"), "probabilities add up to one"),
        **dict.fromkeys(SIXTEEN_BITS, "small differences of probabilities are lost there"),
        "other values": "the places of model and draft would no longer belong together",
    },
)  # fmt: skip


# --- pack_nibbles ---------------------------------------------------------------------------------

Packed = tuple[Tensor, Tensor, Tensor]


def _pack_nibbles(x: Tensor, group: int) -> Packed:
    """Group by group and byte by byte."""
    n = x.shape[-1]
    packed, steps, lows = [], [], []
    for row in x.reshape(-1, n):
        codes: list[int] = []
        for start in range(0, n, group):
            part = row[start : start + group]
            low, high = part.min(), part.max()
            step = (high - low) / 15 if high > low else torch.ones_like(low)
            steps.append(step)
            lows.append(low)
            codes += [int(c) for c in ((part - low) / step).round()]
        packed += [codes[i] + 16 * codes[i + 1] for i in range(0, n, 2)]
    lead = x.shape[:-1]
    return (
        torch.tensor(packed, dtype=torch.uint8).reshape(*lead, n // 2),
        torch.stack(steps).reshape(*lead, n // group) if steps else x.new_zeros(*lead, n // group),
        torch.stack(lows).reshape(*lead, n // group) if lows else x.new_zeros(*lead, n // group),
    )


def _neighbours(codes: Tensor) -> Tensor:
    return codes[..., ::2] + 16 * codes[..., 1::2]


@in_parts
def _nibbles_with(
    groups: Callable[[Tensor, int], Tensor] = lambda x, g: x.reshape(
        *x.shape[:-1], x.shape[-1] // g, g
    ),
    low_of: Callable[[Tensor], Tensor] = lambda part: part.amin(-1, keepdim=True),
    high_of: Callable[[Tensor], Tensor] = lambda part: part.amax(-1, keepdim=True),
    steps: float = 15,
    whole: Callable[[Tensor], Tensor] = torch.round,
    pack: Callable[[Tensor], Tensor] = _neighbours,
    flat: bool = True,
    told: Callable[[Tensor, Tensor], Tensor] = lambda low, step: low,
) -> Answer:
    def answer(x: Tensor, group: int) -> Packed:
        part = groups(x, group)
        low, high = low_of(part), high_of(part)
        step = (high - low) / steps
        if flat:
            step = torch.where(high > low, step, torch.ones_like(step))
        codes = whole((part - low) / step).nan_to_num().to(torch.uint8).flatten(-2)
        lead = (*x.shape[:-1], x.shape[-1] // group)
        step = step[..., 0].expand(lead)
        return pack(codes), step.clone(), told(low[..., 0].expand(lead), step).clone()

    return answer


def _nibble_case(
    name: str, *shape: int, group: int, offset: float = 0.0, scale: float = 1.0, level: bool = False
) -> Case:
    def inputs() -> tuple[Any, ...]:
        x = draw(*shape, seed=sum(shape) + group, scale=scale, offset=offset)
        if level:
            x[..., :group] = offset
        return x, group

    return Case(name, inputs)


_NIBBLES = Exercise(
    title="Two codes in a byte, with a lowest value for each group",
    oracle=_pack_nibbles,
    leading={"x": 1},
    cases=(
        _nibble_case("values: two groups", 2, 3, 8, group=4),
        _nibble_case("values: far above 0", 3, 8, group=4, offset=9.0),
        _nibble_case("values: below 0", 2, 12, group=6, offset=-5.0, scale=0.5),
        _nibble_case("values: one group", 2, 6, group=6),
        _nibble_case("values: wide groups", 4, 64, group=32, scale=3.0),
        _nibble_case("corners: groups of one", 2, 4, group=1),
        _nibble_case("corners: groups of two", 3, 6, group=2),
        _nibble_case("corners: groups of odd length", 2, 6, group=3),
        _nibble_case("corners: a group of equal entries", 2, 8, group=4, offset=2.5, level=True),
        _nibble_case("corners: a group of zeros", 2, 8, group=4, level=True),
    ),
    wrong=(
        WrongAnswer(
            "the earlier code in the high bits",
            "The earlier of two neighbours is in the low four bits of the byte.",
            _nibbles_with(pack=lambda codes: 16 * codes[..., ::2] + codes[..., 1::2]),
        ),
        WrongAnswer(
            "halves packed in place of neighbours",
            "A byte holds two neighbours, not one of the first and one of the second half.",
            _nibbles_with(pack=lambda codes: (
                codes.chunk(2, -1)[0] + 16 * codes.chunk(2, -1)[1])),
        ),
        WrongAnswer(
            "a byte for each code",
            "A code has four bits, so that two of them share a byte.",
            _nibbles_with(pack=lambda codes: codes),
        ),
        WrongAnswer(
            "sixteen steps",
            "Sixteen codes have fifteen steps between them.",
            _nibbles_with(steps=16),
        ),
        WrongAnswer(
            "rounded down",
            "An entry goes to the nearest of the sixteen values, not to the one below.",
            _nibbles_with(whole=torch.floor),
        ),
        WrongAnswer(
            "from 0 on",
            "The lowest value is that of the group: all codes are spent on its range.",
            _nibbles_with(low_of=lambda part: torch.zeros_like(part[..., :1])),
        ),
        WrongAnswer(
            "the range set by the largest size",
            "A range from minus to plus the largest size wastes codes where a group is lopsided.",
            _nibbles_with(
                low_of=lambda part: -part.abs().amax(-1, keepdim=True),
                high_of=lambda part: part.abs().amax(-1, keepdim=True),
            ),
        ),
        WrongAnswer(
            "one range for a row",
            "Each group of neighbours has a lowest value and a step of its own.",
            _nibbles_with(groups=lambda x, g: x[..., None, :]),
        ),
        WrongAnswer(
            "one range for all",
            "Each group has its own range; a single large entry would spoil all others.",
            _nibbles_with(low_of=lambda part: part.amin().expand(*part.shape[:-1], 1),
                          high_of=lambda part: part.amax().expand(*part.shape[:-1], 1)),
        ),
        WrongAnswer(
            "a step of 0",
            "Where all entries are equal the step is 1: nothing may be divided by 0.",
            _nibbles_with(flat=False),
        ),
        WrongAnswer(
            "a code of zero in place of the lowest value",
            "The lowest value itself was asked for, not how many steps it is from 0.",
            _nibbles_with(told=lambda low, step: (-low / step).round()),
        ),
    ),
    variants=(_nibbles_with(),),
    spared=dict.fromkeys(SIXTEEN_BITS, "a number between two steps goes either way"),
)  # fmt: skip


EXERCISES = {
    "verify": _VERIFY,
    "pack_nibbles": _NIBBLES,
}
