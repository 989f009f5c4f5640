"""Questions of the assignment: convert_fused_qkv, fold_yarn, read_yarn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw, thetas
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

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


def _swapped(head_dim: int, rotary_dim: int) -> Tensor:
    """The second feature of each pair before the first."""
    order = _to_interleaved(head_dim, rotary_dim)
    order[:rotary_dim] = order[:rotary_dim].reshape(-1, 2).flip(1).flatten()
    return order


def _by_group(num_heads: int, num_kv_heads: int) -> list[int]:
    """The heads that turn if each group had its queries, its key and its value side by side."""
    width = num_heads // num_kv_heads + 2
    return [i for i in range(num_heads + 2 * num_kv_heads) if i % width != width - 1]


@in_parts
def _fused_with(
    order: Callable[[int, int], Tensor] = _to_interleaved,
    heads: Callable[[int, int], Sequence[int]] = lambda h, g: range(h + g),
    transposed: bool = False,
) -> Answer:
    def answer(weight: Tensor, num_heads: int, num_kv_heads: int, rotary_dim: int) -> Tensor:
        head_dim = len(weight) // (num_heads + 2 * num_kv_heads)
        source = torch.arange(len(weight)).reshape(-1, head_dim)
        if transposed:
            source = torch.arange(len(weight)).reshape(head_dim, -1).T
        some = list(heads(num_heads, num_kv_heads))
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
            _fused_with(heads=lambda h, g: range(h + 2 * g)),
        ),
        WrongAnswer(
            "queries alone",
            "A score stays the same only if queries and keys are both reordered.",
            _fused_with(heads=lambda h, g: range(h)),
        ),
        WrongAnswer(
            "keys alone",
            "A score stays the same only if keys and queries are both reordered.",
            _fused_with(heads=lambda h, g: range(h, h + g)),
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
        WrongAnswer(
            "the features of a pair exchanged",
            "A pair keeps its order: the first of its two features in the file stays the first.",
            _fused_with(order=_swapped),
        ),
        WrongAnswer(
            "each group's queries, key and value side by side",
            "Other files are laid out so. In this one all query heads come before the first key.",
            _fused_with(heads=_by_group),
        ),
    ),
    variants=(_fused_with(),),
)


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
        WrongAnswer(
            "the two coefficients exchanged",
            "mscale_all_dim is the one of whole scores; mscale is seen where the tables turn.",
            _fold_with(still=lambda a, b: a * a, turned=lambda a, b: b * b),
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
        if place == "ends":
            i, j = 0, len(before) - 1
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
        WrongAnswer(
            "a line through the first and the last pair",
            "Beyond the corners a share stays at 0 or 1 and is no longer on the line of the ramp.",
            _read_with(place="ends"),
        ),
        WrongAnswer(
            "the width of the ramp for beta",
            "beta is the place where the ramp ends, not how far that is from alpha.",
            _read_with(result=lambda s, a, b: (s, a, b - a)),
        ),
    ),
    variants=(_read_with(),),
    spared=dict.fromkeys(("other values", *SIXTEEN_BITS), "rounded they are no tables"),
)  # fmt: skip


EXERCISES = {
    "convert_fused_qkv": _FUSED,
    "fold_yarn": _FOLD,
    "read_yarn": _READ,
}
