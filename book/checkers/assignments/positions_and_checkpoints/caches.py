"""Questions of the assignment: repair_dynamic_cache, first_broken_token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw, thetas, turned_halves, turned_pairs
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

INF = math.inf


# --- repair_dynamic_cache -------------------------------------------------------------------------


def _dynamic_base(base: float, scale: float, d: int, length: int, trained: int) -> float:
    stretch = scale * max(length, trained) / trained - scale + 1
    return base * math.pow(stretch, d / (d - 2))


Base = Callable[[float, float, int, int, int], float]


def _repair(
    keys: Tensor, chunks: Sequence[int], base: float, scale: float, original_max_len: int
) -> Tensor:
    d, out, place = keys.shape[-1], [], 0
    now = thetas(d, _dynamic_base(base, scale, d, sum(chunks), original_max_len))
    for n in chunks:
        then = thetas(d, _dynamic_base(base, scale, d, place + n, original_max_len))
        for t in range(place, place + n):
            raw = turned_pairs(keys[..., t, :], -t * then)
            out.append(turned_pairs(raw, t * now))
        place += n
    return torch.stack(out, -2)


def _ends(chunks: Sequence[int]) -> list[int]:
    return [sum(chunks[: i + 1]) for i, n in enumerate(chunks) for _ in range(n)]


def _starts(chunks: Sequence[int]) -> list[int]:
    return [sum(chunks[:i]) for i, n in enumerate(chunks) for _ in range(n)]


@in_parts
def _repair_with(
    base_of: Base = _dynamic_base,
    then_of: Base | None = None,
    lengths: Callable[[Sequence[int]], list[int]] = _ends,
    places: Callable[[Sequence[int]], list[int]] = lambda c: list(range(sum(c))),
    sign: float = 1.0,
    undo: float = 1.0,
    turn: Callable[[Tensor, Tensor], Tensor] = turned_pairs,
) -> Answer:
    def answer(
        keys: Tensor, chunks: Sequence[int], base: float, scale: float, original_max_len: int
    ) -> Tensor:
        d = keys.shape[-1]
        exponents = -torch.arange(0, d, 2, dtype=torch.float64) / d
        old = [(then_of or base_of)(base, scale, d, n, original_max_len) for n in lengths(chunks)]
        then = torch.tensor(old, dtype=torch.float64)[:, None] ** exponents
        now = base_of(base, scale, d, sum(chunks), original_max_len) ** exponents
        at = torch.tensor(places(chunks), dtype=torch.float64)[:, None]
        return turn(keys, sign * at * (now - undo * then))

    return answer


def _repair_case(
    name: str, chunks: Sequence[int], trained: int, scale: float = 1.0, d: int = 6,
    base: float = 100.0,
) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        return draw(2, 2, sum(chunks), d), list(chunks), base, scale, trained

    return Case(name, inputs, 1e-9)


_REPAIR = Exercise(
    title="A cache behind a base that moves",
    oracle=_repair,
    cases=(
        _repair_case("values: a prompt and four tokens", [7, 1, 1, 1, 1], 5),
        _repair_case("values: three chunks with a factor of 2", [6, 5, 4], 5, 2.0),
        _repair_case("values: token by token over the old length", [1] * 9, 4, 1.5),
        _repair_case("values: a longer head, base 10000", [10, 9, 12], 8, 4.0, 16, 1e4),
        _repair_case("corners: all but the last token within the old length", [5, 2, 1], 7, 2.0),
        _repair_case("corners: a chunk that is empty", [6, 0, 3, 5], 4, 3.0),
        _repair_case("corners: four features", [3, 3, 3], 2, 1.0, 4),
        _repair_case("corners: never longer than in training", [3, 2, 2], 9),
        _repair_case("corners: one chunk, nothing to repair", [8], 4, 2.0),
    ),
    wrong=(
        WrongAnswer(
            "the new angle on top of the old one",
            "The keys are turned already. Only the difference of the two angles is missing.",
            _repair_with(undo=0.0),
        ),
        WrongAnswer(
            "the difference the other way round",
            "Turn by the new angle minus the old one, not by the old minus the new.",
            _repair_with(sign=-1.0),
        ),
        WrongAnswer(
            "undone with the base of training",
            "A chunk was turned with the base of its own day, which may have been larger already.",
            _repair_with(then_of=lambda b, s, d, n, m: b),
        ),
        WrongAnswer(
            "the length before the chunk",
            "The base was that of all positions with the chunk's own, the length at its end.",
            _repair_with(lengths=_starts),
        ),
        WrongAnswer(
            "every token at a length of its own",
            "All rows of a chunk were turned together, with one base, that of the chunk's end.",
            _repair_with(lengths=lambda c: [t + 1 for t in range(sum(c))]),
        ),
        WrongAnswer(
            "positions within the chunk",
            "The positions count on from chunk to chunk; only the base was out of date.",
            _repair_with(places=lambda c: [t for n in c for t in range(n)]),
        ),
        WrongAnswer(
            "the base shrinks for short texts",
            "Up to the length of training the base is that of training.",
            _repair_with(
                base_of=lambda b, s, d, n, m: b * abs(s * n / m - s + 1) ** (d / (d - 2))
            ),
        ),
        WrongAnswer(
            "the factor left out",
            "The stretch is scale n / L - (scale - 1), which is n / L at scale 1 only.",
            _repair_with(base_of=lambda b, s, d, n, m: _dynamic_base(b, 1.0, d, n, m)),
        ),
        WrongAnswer(
            "the base times the stretch",
            "The stretch goes in with the power d / (d - 2), so that the last pair has all of it.",
            _repair_with(
                base_of=lambda b, s, d, n, m: b * (s * max(n, m) / m - s + 1)
            ),
        ),
        WrongAnswer(
            "halves as pairs",
            "Here neighbours form a pair: (0, 1), (2, 3), ...",
            _repair_with(turn=turned_halves),
        ),
    ),
    variants=(_repair_with(),),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)  # fmt: skip


# --- first_broken_token ---------------------------------------------------------------------------

Cache = dict[str, Tensor]
Step = Callable[[Tensor, Cache | None], tuple[Tensor, Cache]]
Whole = Callable[[Tensor], Tensor]


def _decoder(bug: Tensor, added: Tensor, size: Tensor, single: bool) -> tuple[Step, Whole]:
    """A decoder whose output is the mean of all inputs so far, and that errs with a cache.

    Args:
        bug: what a pass with a cache adds to the output, for each position.
        added: what the pass without a cache adds.
        size: times the output, for each position.
        single: whether the cache errs only when one token comes alone.
    """

    def means(x: Tensor, total: Tensor, seen: int) -> Tensor:
        counts = torch.arange(seen + 1, seen + x.shape[1] + 1).to(x.dtype)
        now = slice(seen, seen + x.shape[1])
        return total / counts.reshape(-1, *[1] * (x.dim() - 2)) * size[:, now]

    def step(x: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        seen = int(cache["seen"]) if cache else 0
        total = x.cumsum(1) + (cache["sum"] if cache else 0)
        out = means(x, total, seen)
        end = seen + x.shape[1]
        if not (single and x.shape[1] > 1):
            out = out + bug[:, seen:end]
        return out, {"sum": total[:, -1:], "seen": torch.tensor(end)}

    def whole(x: Tensor) -> Tensor:
        return means(x, x.cumsum(1), 0) + added

    return step, whole


def _cached(step: Step, x: Tensor, first: int = 1, keep: bool = True) -> Tensor:
    """The outputs of `first` tokens at once, and then of one by one."""
    outputs, cache, start = [], None, 0
    while start < x.shape[1]:
        end = start + (first if start == 0 else 1)
        out, new = step(x[:, start:end], cache)
        outputs.append(out)
        cache, start = new if keep else None, end
    return torch.cat(outputs, 1)


def _first_broken(step: Step, whole: Whole, x: Tensor, tol: float) -> Tensor:
    want, got = whole(x), _cached(step, x)
    found = []
    for rows, others in zip(want, got, strict=True):
        broken = [
            t
            for t, (a, b) in enumerate(zip(rows, others, strict=True))
            for p, q in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
            if not math.isfinite(p) or not math.isfinite(q) or abs(p - q) > tol * (1 + abs(p))
        ]
        found.append(min(broken, default=-1))
    return torch.tensor(found)


def _first(broken: Tensor) -> Tensor:
    """From booleans (B, S, features)."""
    some = broken.any(-1)
    return torch.where(some.any(1), some.long().argmax(1), -1)


def _last(broken: Tensor) -> Tensor:
    some = broken.any(-1)
    last = some.shape[1] - 1 - some.flip(1).long().argmax(1)
    return torch.where(some.any(1), last, -1)


def _strict(want: Tensor, got: Tensor, tol: float) -> Tensor:
    return ~((got - want).abs() <= tol * (1 + want.abs())) | ~want.isfinite()


@in_parts
def _broken_with(
    compare: Callable[[Tensor, Tensor, float], Tensor] = _strict,
    pick: Callable[[Tensor], Tensor] = _first,
    run: Callable[[Step, Tensor], Tensor] = _cached,
) -> Answer:
    def answer(step: Step, whole: Whole, x: Tensor, tol: float) -> Tensor:
        shape = (*x.shape[:2], -1)
        want, got = whole(x).reshape(shape), run(step, x).reshape(shape)
        return pick(compare(want, got, tol))

    return answer


def _in_halves(step: Step, x: Tensor) -> Tensor:
    return _cached(step, x, first=max(1, x.shape[1] // 2))


def _forgetting(step: Step, x: Tensor) -> Tensor:
    return _cached(step, x, keep=False)


def _for_all(broken: Tensor) -> Tensor:
    return _first(broken.any(0, keepdim=True)).expand(len(broken)).clone()


def _at_the_end(broken: Tensor) -> Tensor:
    return torch.where(broken[:, -1].any(-1), broken.shape[1] - 1, -1)


Bugs = Sequence[tuple[int, int, int, float]]


def _broken_case(
    name: str, shape: tuple[int, ...], bugs: Bugs, tol: float = 1e-6, single: bool = False,
    sizes: Sequence[tuple[int, float]] = (), whole: Bugs = (),
) -> Case:  # fmt: skip
    """A bug is (sequence, position, feature, what is added), a size is (position, factor)."""

    def inputs() -> tuple[Any, ...]:
        x = draw(*shape)
        bug, added, size = torch.zeros_like(x), torch.zeros_like(x), torch.ones_like(x)
        for place, some in (bug, bugs), (added, whole):
            for b, t, feature, error in some:
                place.view(*shape[:2], -1)[b, t, feature] = error
        for t, factor in sizes:
            size[:, t] = factor
        return *_decoder(bug, added, size, single), x, tol

    return Case(name, inputs)


_BROKEN = Exercise(
    title="The first token that a cache gets wrong",
    oracle=_first_broken,
    cases=(
        _broken_case("values: three sequences, three places", (3, 7, 4),
                     [(0, 2, 1, 0.1), (1, 5, 3, -0.2), (2, 1, 0, 0.3), (0, 6, 2, 0.5)]),
        _broken_case("values: one of them is right", (3, 6, 3),
                     [(0, 4, 1, -0.1), (2, 2, 2, 0.1), (0, 5, 0, 0.1)]),
        _broken_case("values: all of them are right", (2, 5, 3), []),
        _broken_case("values: right again in the end", (2, 8, 2),
                     [(0, 1, 0, 0.1), (0, 3, 1, 0.4), (1, 2, 1, -0.1), (1, 4, 0, 0.01)]),
        _broken_case("values: only tokens that come alone", (2, 8, 3),
                     [(0, 1, 1, 0.1), (1, 2, 2, -0.1), (0, 6, 0, 0.1)], single=True),
        _broken_case("tolerance: small beside a large output elsewhere", (2, 6, 3),
                     [(0, 1, 1, 1e-3), (1, 2, 0, 1e-3)], sizes=[(5, 1e6)]),
        _broken_case("tolerance: large outputs, errors of rounding", (2, 6, 3),
                     [(0, 2, 1, 1e-4), (1, 1, 0, 1e-4), (0, 4, 1, 0.5)], 1e-5, sizes=[
                         (1, 1e4), (2, 1e4)]),
        _broken_case("tolerance: errors below it", (2, 5, 2),
                     [(0, 1, 0, 1e-3), (1, 3, 1, -0.2)], 0.02),
        _broken_case("tolerance: one of many features", (1, 5, 64),
                     [(0, 2, 33, 0.05), (0, 4, 1, 5.0)], 0.01),
        _broken_case("corners: nan in the cached pass", (2, 5, 3),
                     [(0, 2, 1, math.nan), (1, 4, 0, math.nan), (0, 3, 1, 0.1)]),
        _broken_case("corners: nan and infinity in both passes", (2, 6, 3),
                     [(1, 1, 2, 0.1)], sizes=[(3, math.nan), (5, INF)]),
        _broken_case("corners: infinity in both passes", (1, 5, 2), [], sizes=[(2, INF)]),
        _broken_case("corners: infinity in the pass without a cache", (3, 5, 2),
                     [(1, 4, 0, 0.1)], whole=[(0, 3, 1, INF), (1, 2, 0, -INF)]),
        _broken_case("corners: the first token", (2, 4, 2), [(0, 0, 1, -0.1), (1, 3, 0, 0.2)]),
        _broken_case("corners: one position", (3, 1, 2), [(1, 0, 1, 0.1)]),
        _broken_case("corners: two dimensions of features", (2, 5, 2, 3), [(1, 3, 5, 0.1)]),
        _broken_case("corners: no dimension of features", (3, 5), [(0, 2, 0, 0.1), (2, 4, 0, -1)]),
    ),
    wrong=(
        WrongAnswer(
            "only the last position compared",
            "An early token may be wrong and the last one right again. Compare all of them.",
            _broken_with(pick=_at_the_end),
        ),
        WrongAnswer(
            "nan passes",
            "A comparison with nan is False. Ask for what is within the tolerance, and negate.",
            _broken_with(lambda w, g, tol: (g - w).abs() > tol * (1 + w.abs())),
        ),
        WrongAnswer(
            "any number passes for infinity",
            "Beside an infinite output the tolerance is infinite too. Ask whether it is finite.",
            _broken_with(lambda w, g, tol: ~((g - w).abs() <= tol * (1 + w.abs()))),
        ),
        WrongAnswer(
            "nan equal to nan",
            "What is not finite is a failure, also if both passes agree on it.",
            _broken_with(lambda w, g, tol: ~torch.isclose(g, w, tol, tol, equal_nan=True)),
        ),
        WrongAnswer(
            "measured by the largest output",
            "One large number somewhere would hide the errors of all the small ones.",
            _broken_with(lambda w, g, tol: (
                ~((g - w).abs() <= tol * (1 + w.nan_to_num(0, 0, 0).abs().max()))
                | ~w.isfinite())),
        ),
        WrongAnswer(
            "an absolute tolerance",
            "Large outputs have larger errors of rounding: allowed is tol (1 + |want|).",
            _broken_with(lambda w, g, tol: (
                ~((g - w).abs() <= tol) | ~w.isfinite())),
        ),
        WrongAnswer(
            "the sign of the error kept",
            "An output may be too small as well as too large. Take the absolute value.",
            _broken_with(lambda w, g, tol: (
                ~(g - w <= tol * (1 + w.abs())) | ~w.isfinite())),
        ),
        WrongAnswer(
            "the mean over the features",
            "One wrong feature is a wrong token, however many right ones it hides among.",
            _broken_with(lambda w, g, tol: ~(
                (g - w).abs().mean(-1, True) <= tol * (1 + w.abs().mean(-1, True)))),
        ),
        WrongAnswer(
            "one answer for all sequences",
            "Each sequence has a first broken token of its own, or none.",
            _broken_with(pick=_for_all),
        ),
        WrongAnswer(
            "the last broken token",
            "What breaks first leads to the fault; asked for is the first position.",
            _broken_with(pick=_last),
        ),
        WrongAnswer(
            "0 for a sequence that never breaks",
            "A position of 0 means that the first token is wrong. Nothing wrong is -1.",
            _broken_with(pick=lambda broken: broken.any(-1).long().argmax(1)),
        ),
        WrongAnswer(
            "half of it at once",
            "Tokens that come alone may take another path in the code. Feed them one by one.",
            _broken_with(run=_in_halves),
        ),
        WrongAnswer(
            "an empty cache for every token",
            "Each step takes the cache that the one before it returned. None holds nothing.",
            _broken_with(run=_forgetting),
        ),
    ),
    variants=(
        _broken_with(lambda w, g, tol: (
            ~(g.isfinite() & w.isfinite()) | ((g - w).abs() > tol * (1 + w.abs())))),
    ),
)  # fmt: skip


EXERCISES = {
    "repair_dynamic_cache": _REPAIR,
    "first_broken_token": _BROKEN,
}
