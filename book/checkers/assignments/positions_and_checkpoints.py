"""The questions of the assignment on chapters 11 to 13: positions as published models have them.

The oracles are loops over rows, tokens and documents and complex numbers, never the book's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, thetas, turned_halves, turned_pairs
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

INF = math.inf


# --- convert_fused_qkv ----------------------------------------------------------------------------


def _fused(weight: Tensor, num_heads: int, num_kv_heads: int, rotary_dim: int) -> Tensor:
    head_dim = len(weight) // (num_heads + 2 * num_kv_heads)
    rows = []
    for head in range(num_heads + 2 * num_kv_heads):
        for j in range(head_dim):
            turns = head < num_heads + num_kv_heads and j < rotary_dim
            source = j // 2 + (rotary_dim // 2 if j % 2 else 0) if turns else j
            rows.append(weight[head * head_dim + source])
    return torch.stack(rows)


def _to_interleaved(head_dim: int, rotary_dim: int) -> Tensor:
    """For each feature of a head the one whose place it takes."""
    turned = torch.arange(rotary_dim).reshape(2, -1).T.flatten()
    return torch.cat([turned, torch.arange(rotary_dim, head_dim)])


def _to_half(head_dim: int, rotary_dim: int) -> Tensor:
    return _to_interleaved(head_dim, rotary_dim).argsort()


def _last_features(head_dim: int, rotary_dim: int) -> Tensor:
    still = head_dim - rotary_dim
    return torch.cat([torch.arange(still), still + _to_interleaved(rotary_dim, rotary_dim)])


def _far_halves(head_dim: int, rotary_dim: int) -> Tensor:
    """Feature k paired with k + head_dim / 2."""
    turned = torch.arange(rotary_dim // 2)
    pairs = torch.stack([turned, turned + head_dim // 2], -1).flatten()
    rest = [j for j in range(head_dim) if j not in pairs.tolist()]
    return torch.cat([pairs, torch.tensor(rest, dtype=torch.int64)])


@in_parts
def _fused_with(
    order: Callable[[int, int], Tensor] = _to_interleaved,
    heads: Callable[[int, int], int] = lambda h, g: h + g,
    first: Callable[[int, int], int] = lambda h, g: 0,
    transposed: bool = False,
) -> Answer:
    def answer(weight: Tensor, num_heads: int, num_kv_heads: int, rotary_dim: int) -> Tensor:
        head_dim = len(weight) // (num_heads + 2 * num_kv_heads)
        source = torch.arange(len(weight)).reshape(-1, head_dim)
        if transposed:
            source = torch.arange(len(weight)).reshape(head_dim, -1).T
        some = slice(first(num_heads, num_kv_heads), heads(num_heads, num_kv_heads))
        moved = source.clone()
        moved[some] = source[some][:, order(head_dim, rotary_dim)]
        return weight[(moved.T if transposed else moved).flatten()]

    return answer


def _fused_case(name: str, h: int, g: int, d: int, r: int, rest: tuple[int, ...] = (5,)) -> Case:
    return Case(name, lambda: (draw((h + 2 * g) * d, *rest), h, g, r), 0.0)


_FUSED = Exercise(
    title="A fused checkpoint in the other layout",
    oracle=_fused,
    cases=(
        _fused_case("values: six heads in two groups", 6, 2, 16, 8),
        _fused_case("values: three quarters of a head", 4, 1, 16, 12, (7,)),
        _fused_case("values: as many groups as heads", 3, 3, 12, 6),
        _fused_case("values: a head whose width is no multiple of four", 4, 2, 10, 8, (3,)),
        _fused_case("corners: a bias", 4, 2, 16, 8, ()),
        _fused_case("corners: every feature turns", 4, 2, 12, 12),
        _fused_case("corners: one pair, nothing moves", 2, 1, 8, 2),
        _fused_case("corners: no feature turns", 2, 1, 8, 0),
    ),
    wrong=(
        WrongAnswer(
            "converted the other way",
            "The file has pairs (k, k + r / 2). In the result the features of a pair lie together.",
            _fused_with(order=_to_half),
        ),
        WrongAnswer(
            "values reordered too",
            "Values are not rotated, and the output projection expects them as they are.",
            _fused_with(heads=lambda h, g: h + 2 * g),
        ),
        WrongAnswer(
            "queries alone",
            "A score stays the same only if queries and keys are both reordered.",
            _fused_with(heads=lambda h, g: h),
        ),
        WrongAnswer(
            "keys alone",
            "A score stays the same only if keys and queries are both reordered.",
            _fused_with(first=lambda h, g: h),
        ),
        WrongAnswer(
            "every feature reordered",
            "Only the first rotary_dim features of a head turn; the others keep their places.",
            _fused_with(order=lambda d, r: _to_interleaved(d, d)),
        ),
        WrongAnswer(
            "the last features of a head",
            "The features that turn are the first rotary_dim of each head.",
            _fused_with(order=_last_features),
        ),
        WrongAnswer(
            "halves of the whole head",
            "The halves are those of the features that turn: k goes with k + rotary_dim / 2.",
            _fused_with(order=_far_halves),
        ),
        WrongAnswer(
            "heads and features exchanged",
            "A head's rows lie one after the other: reshape to (heads, d_head, ...).",
            _fused_with(transposed=True),
        ),
    ),
    variants=(_fused_with(),),
)


# --- packed_angles --------------------------------------------------------------------------------


def _packed(segments: Tensor, inv_freq: Tensor, original_max_len: int) -> Tensor:
    rows = []
    for row in segments.tolist():
        seen: dict[int, int] = {}
        for document in row:
            position = seen.get(document, 0) if document else 0
            seen[document] = seen.get(document, 0) + 1
            factor = max(1.0, row.count(document) / original_max_len)
            rows.append(position * inv_freq / factor)
    return torch.stack(rows).reshape(*segments.shape, len(inv_freq))


def _same(segments: Tensor) -> Tensor:
    return segments[:, :, None] == segments[:, None, :]


def _own_position(segments: Tensor) -> Tensor:
    return _same(segments).tril(-1).sum(-1) * (segments > 0)


def _own_length(segments: Tensor) -> Tensor:
    return _same(segments).sum(-1) * (segments > 0)


@in_parts
def _packed_with(
    position: Callable[[Tensor], Tensor] = _own_position,
    length: Callable[[Tensor], Tensor] = _own_length,
    factor: Callable[[Tensor, int], Tensor] = lambda n, m: (n.double() / m).clamp(min=1),
) -> Answer:
    def answer(segments: Tensor, inv_freq: Tensor, original_max_len: int) -> Tensor:
        by = factor(length(segments), original_max_len)
        return (position(segments) / by)[..., None].to(inv_freq.dtype) * inv_freq

    return answer


def _since_first(segments: Tensor) -> Tensor:
    first = _same(segments).long().argmax(-1)
    return (torch.arange(segments.shape[1]) - first) * (segments > 0)


def _all_tokens(segments: Tensor) -> Tensor:
    return ((segments > 0).long().cumsum(1) - 1).clamp(min=0) * (segments > 0)


def _row_length(segments: Tensor) -> Tensor:
    return (segments > 0).sum(1, keepdim=True).expand_as(segments)


def _longest(segments: Tensor) -> Tensor:
    return _own_length(segments).max().expand_as(segments)


_PAIRS = (1.0, 0.31, 0.07)


def _packed_case(name: str, rows: list[list[int]], length: int, freqs: Any = _PAIRS) -> Case:
    def inputs() -> tuple[Any, ...]:
        return torch.tensor(rows), torch.tensor(freqs, dtype=torch.float64), length

    return Case(name, inputs, EXACT)


_PACKED = Exercise(
    title="Packed documents, each interpolated as it needs",
    oracle=_packed,
    cases=(
        _packed_case("values: two documents and filling", [[1, 1, 1, 2, 2, 2, 2, 2, 0, 0]], 3),
        _packed_case("values: two rows with the same numbers",
                     [[1, 1, 1, 1, 1, 2, 2, 0], [0, 1, 1, 2, 2, 2, 2, 2]], 3),
        _packed_case("values: numbers in no order",
                     [[9, 9, 4, 4, 4, 4, 4, 7], [7, 7, 7, 7, 7, 7, 7, 2]], 6),
        _packed_case("values: four documents, long and short",
                     [[1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 0, 0]], 3),
        _packed_case("corners: filling inside a document",
                     [[0, 5, 5, 0, 0, 5, 5, 5, 6, 0, 6, 0, 6, 6]], 3),
        _packed_case("corners: documents that alternate", [[1, 2, 1, 2, 2, 1, 2, 2, 1, 1, 2]], 3),
        _packed_case("corners: huge numbers", [[2**60 + 1, 2**60 + 1, 2**60, 2**60, 2**60]], 2),
        _packed_case("corners: nothing is too long", [[1, 1, 1, 1, 2, 2, 0], [3] * 7], 7, (0.5,)),
        _packed_case("corners: filling alone", [[0, 0, 0, 0], [1, 1, 1, 1]], 3),
    ),
    wrong=(
        WrongAnswer(
            "the row as one document",
            "Each document begins at position 0, whatever stands before it in the row.",
            _packed_with(position=_all_tokens),
        ),
        WrongAnswer(
            "places counted, not tokens",
            "A position is the number of earlier tokens of the document; nothing else counts.",
            _packed_with(position=_since_first),
        ),
        WrongAnswer(
            "filling as a document",
            "The number 0 is filling, and filling stands at position 0 everywhere.",
            _packed_with(position=lambda s: _same(s).tril(-1).sum(-1),
                         length=lambda s: _same(s).sum(-1)),
        ),
        WrongAnswer(
            "short documents stretched",
            "A factor below 1 would enlarge the angles. It is never less than 1.",
            _packed_with(factor=lambda n, m: (n.double() / m).clamp(min=1e-3)),
        ),
        WrongAnswer(
            "the length of the row",
            "The factor is that of the document's own tokens, not of all in its row.",
            _packed_with(length=_row_length),
        ),
        WrongAnswer(
            "the longest document for all",
            "Each document has a factor of its own; its neighbours do not slow it down.",
            _packed_with(length=_longest),
        ),
        WrongAnswer(
            "the length so far",
            "One document has one factor, from its full length, so that distances stay distances.",
            _packed_with(length=lambda s: _own_position(s) + 1),
        ),
        WrongAnswer(
            "the factor rounded up",
            "The factor is the quotient of the lengths and need not be whole.",
            _packed_with(factor=lambda n, m: (n.double() / m).ceil().clamp(min=1)),
        ),
        WrongAnswer(
            "positions from 1",
            "The first token of a document has position 0 and angle 0.",
            _packed_with(position=lambda s: (_own_position(s) + 1) * (s > 0)),
        ),
        WrongAnswer(
            "the factor in single precision",
            "Integers divided become float32. Change them to the dtype of inv_freq before.",
            _packed_with(factor=lambda n, m: (n / m).clamp(min=1)),
        ),
    ),
    variants=(_packed_with(),),
)  # fmt: skip


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


# --- fold_yarn ------------------------------------------------------------------------------------


def _m(scale: float, c: float) -> float:
    return 0.1 * c * math.log(scale) + 1.0 if scale > 1 else 1.0


def _fold(
    w_q: Tensor, num_heads: int, d_rope: int, scale: float, mscale: float, mscale_all_dim: float
) -> Tensor:
    d = len(w_q) // num_heads
    everywhere = _m(scale, mscale_all_dim) ** 2
    tables = _m(scale, mscale) / _m(scale, mscale_all_dim)
    rows = []
    for i, row in enumerate(w_q):
        turns = i % d >= d - d_rope
        rows.append(row * everywhere * (tables * tables if turns else 1.0))
    return torch.stack(rows)


Factor = Callable[[float, float], float]


@in_parts
def _fold_with(
    still: Factor = lambda a, b: b * b,
    turned: Factor = lambda a, b: a * a,
    m: Callable[[float, float], float] = _m,
    first: bool = False,
) -> Answer:
    """`still` and `turned` take m(mscale) and m(mscale_all_dim)."""

    def answer(
        w_q: Tensor, num_heads: int, d_rope: int, scale: float, mscale: float, mscale_all_dim: float
    ) -> Tensor:
        d = len(w_q) // num_heads
        a, b = m(scale, mscale), m(scale, mscale_all_dim)
        factors = [still(a, b)] * (d - d_rope) + [turned(a, b)] * d_rope
        by = torch.tensor(factors[::-1] if first else factors, dtype=w_q.dtype)
        return w_q * by.repeat(num_heads).reshape(-1, *[1] * (w_q.dim() - 1))

    return answer


def _fold_case(
    name: str, heads: int, d: int, d_rope: int, scale: float, mscale: float, all_dim: float,
    rest: tuple[int, ...] = (4,),
) -> Case:  # fmt: skip
    return Case(name, lambda: (draw(heads * d, *rest), heads, d_rope, scale, mscale, all_dim), 1e-9)


_FOLD = Exercise(
    title="YaRN's temperature in the query matrix",
    oracle=_fold,
    cases=(
        _fold_case("values: DeepSeek's numbers", 3, 12, 4, 40.0, 0.707, 0.707),
        _fold_case("values: two coefficients", 2, 10, 4, 16.0, 1.0, 0.5),
        _fold_case("values: the smaller one on the tables", 4, 8, 2, 8.0, 0.4, 1.2),
        _fold_case("values: more features with RoPE than without", 2, 9, 6, 32.0, 1.0, 0.8),
        _fold_case("corners: a bias", 3, 8, 4, 40.0, 1.0, 0.707, ()),
        _fold_case("corners: every feature turns", 2, 6, 6, 4.0, 1.0, 0.3),
        _fold_case("corners: no feature turns", 2, 6, 0, 4.0, 1.0, 0.3),
        _fold_case("corners: no longer context", 2, 6, 2, 1.0, 1.0, 0.707),
        _fold_case("corners: a shorter context", 2, 6, 2, 0.5, 1.0, 0.707),
    ),
    wrong=(
        WrongAnswer(
            "the tables' factor forgotten",
            "Where RoPE turns, the tables multiply queries and keys, on top of the softmax scale.",
            _fold_with(turned=lambda a, b: b * b),
        ),
        WrongAnswer(
            "only the features with RoPE",
            "The softmax scale multiplies whole scores, the part without RoPE too.",
            _fold_with(still=lambda a, b: 1.0),
        ),
        WrongAnswer(
            "the tables' factor once",
            "Queries and keys are both multiplied by the tables, so the score has its square.",
            _fold_with(turned=lambda a, b: a * b),
        ),
        WrongAnswer(
            "no square anywhere",
            "The softmax scale holds m squared. The keys stay, so that queries carry all of it.",
            _fold_with(still=lambda a, b: b, turned=lambda a, b: a),
        ),
        WrongAnswer(
            "the softmax scale forgotten",
            "The engine has 1 / sqrt(d_head); the factor m(mscale_all_dim) squared is missing.",
            _fold_with(still=lambda a, b: 1.0, turned=lambda a, b: (a / b) ** 2),
        ),
        WrongAnswer(
            "the quotient forgotten",
            "The tables hold m(mscale) over m(mscale_all_dim), not m(mscale) alone.",
            _fold_with(turned=lambda a, b: (a * b) ** 2),
        ),
        WrongAnswer(
            "the first features of a head",
            "RoPE turns the last d_rope features of every head here.",
            _fold_with(first=True),
        ),
        WrongAnswer(
            "divided",
            "The longer the context, the larger the scores have to be: multiply.",
            _fold_with(still=lambda a, b: 1 / b**2, turned=lambda a, b: 1 / a**2),
        ),
        WrongAnswer(
            "a factor below 1 for shorter contexts",
            "Up to scale 1 there is no temperature: m is 1 then.",
            _fold_with(m=lambda scale, c: 0.1 * c * math.log(scale) + 1.0),
        ),
    ),
    variants=(_fold_with(),),
)


# --- read_yarn ------------------------------------------------------------------------------------


def _by_parts(before: Tensor, scale: float, length: int, alpha: float, beta: float) -> Tensor:
    kept = ((length * before / (2 * math.pi) - alpha) / (beta - alpha)).clamp(0, 1)
    return before * (kept + (1 - kept) / scale)


def _read(before: Tensor, after: Tensor, original_max_len: int) -> tuple[float, float, float]:
    """A line through all pairs on the ramp, by least squares."""
    a, b = before.tolist(), after.tolist()
    scale = a[-1] / b[-1]
    xs, ys = [], []
    for f, g in zip(a, b, strict=True):
        kept = (scale * g / f - 1) / (scale - 1)
        if 1e-4 < kept < 1 - 1e-4:
            xs.append(original_max_len * f / (2 * math.pi))
            ys.append(kept)
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    up = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    slope = up / sum((x - x0) ** 2 for x in xs)
    alpha = x0 - y0 / slope
    return scale, alpha, alpha + 1 / slope


def _share(before: Tensor, after: Tensor, scale: float) -> Tensor:
    return (after / before - 1 / scale) / (1 - 1 / scale)


@in_parts
def _read_with(
    share: Callable[[Tensor, Tensor, float], Tensor] = _share,
    circle: float = 2 * math.pi,
    place: str = "turns",
    result: Callable[[float, float, float], tuple[float, ...]] = lambda s, a, b: (s, a, b),
) -> Answer:
    """A line through the fastest and the slowest pair on the ramp."""

    def answer(before: Tensor, after: Tensor, original_max_len: int) -> tuple[float, ...]:
        scale = (before[-1] / after[-1]).item()
        on = _share(before, after, scale)
        ramp = ((on > 1e-4) & (on < 1 - 1e-4)).nonzero()[:, 0]
        i, j = int(ramp[0]), int(ramp[-1])
        kept = share(before, after, scale)
        turns = original_max_len * before / circle
        if place == "corners":
            return result(scale, turns[j + 1].item(), turns[max(i - 1, 0)].item())
        x = turns.log() if place == "pairs" else 1 / turns if place == "wavelengths" else turns
        slope = (kept[i] - kept[j]) / (x[i] - x[j])
        alpha, beta = (x[i] + (y - kept[i]) / slope for y in (0.0, 1.0))
        if place == "pairs":
            alpha, beta = alpha.exp(), beta.exp()
        if place == "wavelengths":
            alpha, beta = 1 / alpha, 1 / beta
        return result(scale, alpha.item(), beta.item())

    return answer


def _of_periods(before: Tensor, after: Tensor, scale: float) -> Tensor:
    """As if wavelengths had been mixed: kept + (1 - kept) scale."""
    return (scale - before / after) / (scale - 1)


def _read_case(
    name: str, freqs: Callable[[], Tensor], scale: float, length: int, alpha: float, beta: float
) -> Case:
    def inputs() -> tuple[Any, ...]:
        before = freqs()
        return before, _by_parts(before, scale, length, alpha, beta), length

    return Case(name, inputs, 1e-6)


_READ = Exercise(
    title="YaRN read back from its frequencies",
    oracle=_read,
    cases=(
        _read_case("values: heads of 128, sixteen times longer", lambda: thetas(128, 1e4),
                   16.0, 4000, 1.0, 32.0),
        _read_case("values: Llama 3's base", lambda: thetas(128, 5e5), 8.0, 8192, 1.0, 4.0),
        _read_case("values: other corners", lambda: thetas(96, 1e4), 4.0, 2048, 2.5, 11.0),
        _read_case("values: not the powers of a base", lambda: torch.tensor(
            [1.0, 0.8, 0.5, 0.3, 0.12, 0.05, 0.01]).double(), 3.0, 100, 1.5, 10.0),
        _read_case("corners: two pairs on the ramp", lambda: thetas(16, 1e4),
                   40.0, 4096, 2.0, 16.0),
        _read_case("corners: hardly longer", lambda: thetas(64, 1e4), 1.25, 4096, 1.0, 32.0),
        _read_case("corners: no pair is kept", lambda: thetas(32, 100.0), 10.0, 50, 0.5, 20.0),
    ),
    wrong=(
        WrongAnswer(
            "the corners exchanged",
            "Pairs with few turns are divided: the lower corner, alpha, comes first.",
            _read_with(result=lambda s, a, b: (s, b, a)),
        ),
        WrongAnswer(
            "the scale upside down",
            "The slowest pair was divided by the scale: it is before over after.",
            _read_with(result=lambda s, a, b: (1 / s, a, b)),
        ),
        WrongAnswer(
            "radians taken for turns",
            "A turn is 2 pi radians: the angle at the end of training is divided by 2 pi.",
            _read_with(circle=1.0),
        ),
        WrongAnswer(
            "the quotient taken for the share",
            "A pair of which nothing is kept still has the quotient 1 / scale. Take that out.",
            _read_with(share=lambda before, after, s: after / before),
        ),
        WrongAnswer(
            "wavelengths mixed",
            "The share mixes frequencies: it is linear in after / before, not in its reciprocal.",
            _read_with(share=_of_periods),
        ),
        WrongAnswer(
            "a ramp over the number of the pair",
            "Along the ramp the share grows with the turns; the pair's number is their logarithm.",
            _read_with(place="pairs"),
        ),
        WrongAnswer(
            "a ramp over the wavelength",
            "The ramp is linear in the number of turns, not in the positions that a turn takes.",
            _read_with(place="wavelengths"),
        ),
        WrongAnswer(
            "the nearest pairs taken for the corners",
            "The corners lie between pairs. Follow the line of the pairs on the ramp to 0 and 1.",
            _read_with(place="corners"),
        ),
    ),
    variants=(_read_with(),),
    spared=dict.fromkeys(("other values", *SIXTEEN_BITS), "rounded they are no tables"),
)  # fmt: skip


# --- alibi_rows -----------------------------------------------------------------------------------


def _slopes(num_heads: int) -> list[float]:
    power = 1
    while 2 * power <= num_heads:
        power *= 2
    own = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    finer = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(2 * power)]
    return own + finer[::2][: num_heads - power]


def _alibi(tokens: Tensor, query_len: int, num_heads: int, rank: int, ranks: int) -> Tensor:
    batch, s = tokens.shape
    each = num_heads // ranks
    slopes = _slopes(num_heads)[rank * each : (rank + 1) * each]
    out = torch.zeros(batch, each, query_len, s, dtype=torch.float64)
    for b, row in enumerate(tokens.tolist()):
        for t in range(query_len):
            i = s - query_len + t
            if not row[i]:
                continue
            for j in range(s):
                seen = row[j] and j <= i
                for h, slope in enumerate(slopes):
                    out[b, h, t, j] = -slope * sum(row[j + 1 : i + 1]) if seen else -INF
    return out


@in_parts
def _alibi_with(
    slopes: Callable[[int, int, int], list[float]] = lambda h, r, n: _slopes(h)[
        r * h // n : (r + 1) * h // n
    ],
    positions: Callable[[Tensor], Tensor] = lambda tokens: tokens.long().cumsum(1),
    last: bool = True,
    sign: float = -1.0,
    future: bool = False,
    filling_seen: bool = False,
    filling_asks: float | None = 0.0,
) -> Answer:
    def answer(tokens: Tensor, query_len: int, num_heads: int, rank: int, ranks: int) -> Tensor:
        s = tokens.shape[1]
        rows = torch.arange(s - query_len, s) if last else torch.arange(query_len)
        at, keys = positions(tokens), torch.arange(s)
        far = (at[:, rows, None] - at[:, None, :]).abs().double()
        hidden = (keys > rows[:, None]) & (not future)
        hidden = hidden | (~tokens[:, None, :] & (not filling_seen))
        m = torch.tensor(slopes(num_heads, rank, ranks), dtype=torch.float64)
        bias = sign * m[:, None, None] * far[:, None]
        bias = bias.masked_fill(hidden[:, None], -INF)
        if filling_asks is None:
            return bias
        asks = tokens[:, s - query_len :]
        return bias.masked_fill(~asks[:, None, :, None], filling_asks)

    return answer


def _plain_slopes(num_heads: int, rank: int, ranks: int) -> list[float]:
    each = num_heads // ranks
    return [2.0 ** (-8 * (h + 1) / num_heads) for h in range(rank * each, (rank + 1) * each)]


def _alibi_case(name: str, rows: Sequence[str], t: int, h: int, rank: int, ranks: int) -> Case:
    """`rows` has a 1 for each token and a 0 for each place of filling."""

    def inputs() -> tuple[Any, ...]:
        return torch.tensor([[c == "1" for c in row] for row in rows]), t, h, rank, ranks

    return Case(name, inputs, EXACT)


_ALIBI = Exercise(
    title="ALiBi for a chunk, on one of several machines",
    oracle=_alibi,
    cases=(
        _alibi_case("values: eight heads on two machines", ["0011111", "1111111"], 3, 8, 1, 2),
        _alibi_case("values: a token behind a prompt that was filled up",
                    ["1110011", "1111111"], 2, 12, 1, 3),
        _alibi_case("values: the first of two machines", ["0111011", "0001111"], 4, 4, 0, 2),
        _alibi_case("values: six heads, the last machine", ["1101111", "1111101"], 3, 6, 2, 3),
        _alibi_case("queries: a whole batch with filling at the left", ["0011", "1111"], 4, 4, 1,
                    2),
        _alibi_case("queries: filling between the queries", ["11010", "10101"], 4, 6, 1, 2),
        _alibi_case("queries: filling at the end", ["111100", "111110"], 3, 8, 3, 4),
        _alibi_case("corners: one machine, twelve heads", ["01111"], 2, 12, 0, 1),
        _alibi_case("corners: a machine for each of five heads", ["11011"], 3, 5, 4, 5),
        _alibi_case("corners: one query", ["00101111", "11111111"], 1, 16, 1, 4),
        _alibi_case("corners: one head", ["1011"], 2, 1, 0, 1),
    ),
    wrong=(
        WrongAnswer(
            "slopes for the machine's own number of heads",
            "The slopes belong to the heads of the whole model; a machine takes its part of them.",
            _alibi_with(slopes=lambda h, r, n: _slopes(h // n)),
        ),
        WrongAnswer(
            "the first heads on every machine",
            "Machine `rank` has the heads from rank H / ranks on, not those from 0 on.",
            _alibi_with(slopes=lambda h, r, n: _slopes(h)[: h // n]),
        ),
        WrongAnswer(
            "heads dealt out in turn",
            "A machine has heads that follow one another, not every ranks-th.",
            _alibi_with(slopes=lambda h, r, n: _slopes(h)[r::n]),
        ),
        WrongAnswer(
            "one formula for all numbers of heads",
            "Five, six or twelve heads take the slopes of a power of two, and then finer ones.",
            _alibi_with(slopes=_plain_slopes),
        ),
        WrongAnswer(
            "filling counted in the distance",
            "A distance counts tokens: filling between query and key is not on the way.",
            _alibi_with(positions=lambda tokens: torch.arange(tokens.shape[1]).expand(
                tokens.shape)),
        ),
        WrongAnswer(
            "the first rows instead of the last",
            "With a cache the queries are the newest query_len positions, at the end.",
            _alibi_with(last=False),
        ),
        WrongAnswer(
            "filling can be seen",
            "Keys of filling get minus infinity: they hold nothing.",
            _alibi_with(filling_seen=True),
        ),
        WrongAnswer(
            "filling asks like a token",
            "The row of a query that is filling is 0 everywhere, so that no softmax gives nan.",
            _alibi_with(filling_asks=None),
        ),
        WrongAnswer(
            "a bonus for distance",
            "The bias is negative: a key loses by its distance.",
            _alibi_with(sign=1.0),
        ),
        WrongAnswer(
            "the future can be seen",
            "The decoder is causal: keys behind the query get minus infinity.",
            _alibi_with(future=True),
        ),
    ),
    variants=(_alibi_with(),),
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
    "convert_fused_qkv": _FUSED,
    "packed_angles": _PACKED,
    "repair_dynamic_cache": _REPAIR,
    "fold_yarn": _FOLD,
    "read_yarn": _READ,
    "alibi_rows": _ALIBI,
    "first_broken_token": _BROKEN,
}
