"""The exercises of chapter 12: the NTK-aware base, the ramps, YaRN's tables, dynamic NTK, ALiBi.

The oracles are written with plain Python or complex numbers and know nothing of the book's library.
Each exercise has a builder: the right computation in parts, of which a wrong answer replaces one,
so that its line shows the mistake and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts

Number = Callable[..., float]


def _draw(*shape: int, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _case(*inputs: Any, name: str | None = None, tol: float = 1e-10, grad: bool = False) -> Case:
    return Case(name or ", ".join(f"{i:g}" for i in inputs), lambda: inputs, tol, grad)


# --- The NTK-aware base ---------------------------------------------------------------------------


def _ntk_base(base: float, scale: float, head_dim: int) -> float:
    return base * math.exp(math.log(scale) * head_dim / (head_dim - 2))


NTK_BASE = Exercise(
    "The base that slows the last pair",
    _ntk_base,
    [
        _case(1e4, 4.0, 128, name="base 10000, scale 4, 128 features"),
        _case(5e5, 8.0, 80, name="base 500000, scale 8, 80 features"),
        _case(100.0, 2.5, 4, name="base 100, scale 2.5, 4 features"),
        _case(1e4, 1.0, 16, name="nothing is stretched"),
    ],
    [
        WrongAnswer(
            "the base times the scale",
            "That divides pair k by s^(2k/d), the last one by s^((d-2)/d): less than s.",
            lambda base, scale, head_dim: base * scale,
        ),
        WrongAnswer(
            "the base divided",
            "A smaller base makes every pair faster. Longer contexts need slower ones.",
            lambda base, scale, head_dim: base / _ntk_base(1.0, scale, head_dim),
        ),
        WrongAnswer(
            "the exponent upside down",
            "The equation is solved for b' by the power d/(d-2), not (d-2)/d.",
            lambda base, scale, head_dim: base * scale ** ((head_dim - 2) / head_dim),
        ),
        WrongAnswer(
            "half the index forgotten",
            "The exponent of pair k is 2k/d. With k = d/2 - 1 that is (d-2)/d, not (d-1)/d.",
            lambda base, scale, head_dim: base * scale ** (head_dim / (head_dim - 1)),
        ),
        WrongAnswer(
            "pairs taken for features",
            "There are d/2 pairs, but the exponent is made of d: with d/2 it is d/(d-4).",
            lambda base, scale, head_dim: (
                base * scale ** (head_dim / (head_dim - 4)) if head_dim != 4 else math.inf
            ),
        ),
        WrongAnswer(
            "the base stretched too",
            "Only the scale is taken to the power d/(d-2). The old base enters as it is.",
            lambda base, scale, head_dim: (base * scale) ** (head_dim / (head_dim - 2)),
        ),
        WrongAnswer(
            "linear instead of a power",
            "The last pair is divided by a power of the new base, so the scale enters as a power.",
            lambda base, scale, head_dim: base * scale * head_dim / (head_dim - 2),
        ),
    ],
    [
        lambda base, scale, head_dim: base * scale ** (head_dim / (head_dim - 2)),
        lambda base, scale, head_dim: (
            (base ** (1 - 2 / head_dim) * scale) ** (1 / (1 - 2 / head_dim))
        ),
    ],
)


# --- The share of one pair ------------------------------------------------------------------------


def _clamp(x: float) -> float:
    return min(max(x, 0.0), 1.0)


def _wavelength(k: int, d: int, base: float) -> float:
    return 2 * math.pi * math.exp(2 * k / d * math.log(base))


@in_parts
def _kept_share(
    turns: Number = lambda k, d, b, length: length / _wavelength(k, d, b),
    share: Number = lambda r, alpha, beta: _clamp((r - alpha) / (beta - alpha)),
) -> Number:
    def answer(
        k: int, head_dim: int, base: float, original_max_len: int, alpha: float, beta: float
    ) -> float:
        return float(share(turns(k, head_dim, base, original_max_len), alpha, beta))

    return answer


KEPT_SHARE = Exercise(
    "One pair by hand",
    _kept_share(),
    [
        _case(21, 128, 1e4, 4096, 1.0, 32.0, name="pair 21 of Llama 2"),
        _case(32, 128, 1e4, 4096, 1.0, 32.0, name="pair 32 of Llama 2"),
        _case(40, 128, 1e4, 4096, 1.0, 32.0, name="pair 40 of Llama 2"),
        _case(0, 128, 1e4, 4096, 1.0, 32.0, name="the fastest pair"),
        _case(63, 128, 1e4, 4096, 1.0, 32.0, name="the slowest pair"),
        _case(31, 128, 5e5, 8192, 1.0, 4.0, name="a pair of Llama 3"),
        _case(2, 16, 100.0, 64, 1.0, 4.0, name="a pair of the tiny model"),
        _case(3, 16, 100.0, 64, 1.5, 4.0, name="a pair of the tiny model, other ends"),
    ],
    [
        WrongAnswer(
            "radians taken for turns",
            "A turn is 2 pi radians: the wavelength is 2 pi / theta, not 1 / theta.",
            _kept_share(turns=lambda k, d, b, n: 2 * math.pi * n / _wavelength(k, d, b)),
        ),
        WrongAnswer(
            "wavelength over length",
            "The ramp is in turns, T0 over the wavelength; this is its reciprocal.",
            _kept_share(turns=lambda k, d, b, n: _wavelength(k, d, b) / n),
        ),
        WrongAnswer(
            "the share that is divided",
            "This is 1 - w: 1 for slow pairs. What is kept is 1 for fast ones.",
            _kept_share(share=lambda r, a, b: 1 - _clamp((r - a) / (b - a))),
        ),
        WrongAnswer(
            "not clamped",
            "Shares end at 0 and 1: faster pairs than beta must not be sped up.",
            _kept_share(share=lambda r, a, b: (r - a) / (b - a)),
        ),
        WrongAnswer(
            "pairs counted from 1",
            "Pair 0 has frequency 1. Some papers write b^(-2(k-1)/d) and begin at 1.",
            _kept_share(turns=lambda k, d, b, n: n / _wavelength(k - 1, d, b)),
        ),
        WrongAnswer(
            "exponent k/d",
            "The features of pair k are 2k and 2k+1, and its exponent is 2k/d.",
            _kept_share(turns=lambda k, d, b, n: n / (2 * math.pi * b ** (k / d))),
        ),
        WrongAnswer(
            "divided by beta only",
            "The ramp rises from 0 at alpha to 1 at beta, so its width is beta - alpha.",
            _kept_share(share=lambda r, a, b: _clamp((r - a) / b)),
        ),
        WrongAnswer(
            "a step instead of a ramp",
            "Between alpha and beta the share grows in proportion to the turns.",
            _kept_share(share=lambda r, a, b: float(r > (a + b) / 2)),
        ),
    ],
    [
        lambda k, d, b, n, alpha, beta: max(
            0.0, min(1.0, (n * b ** (-2 * k / d) / math.tau - alpha) / (beta - alpha))
        ),
    ],
)


# --- Scores with a dynamic base -------------------------------------------------------------------


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())


def _turned(x: Tensor, position: Tensor, theta: Tensor) -> Tensor:
    angle = position[..., None].to(x.dtype) * theta
    return _complex(x) * torch.polar(torch.ones_like(angle), angle)


def _frequencies(d: int, base: float) -> Tensor:
    return torch.tensor([base ** (-2 * k / d) for k in range(d // 2)], dtype=torch.float64)


def _dynamic_base(base: float, d: int, n: int, length: int) -> float:
    return base * math.pow(max(n, length) / length, d / (d - 2))


@in_parts
def _dynamic_scores(
    new_base: Number = _dynamic_base,
    key_base: Number | None = None,
    query_at: Callable[[int], int] = lambda n: n - 1,
    combine: Callable[[Tensor, Tensor], Tensor] = lambda q, k: (q * k.conj()).real,
    turn_keys: bool = True,
) -> Callable[..., Tensor]:
    def answer(query: Tensor, keys: Tensor, base: float, original_max_len: int) -> Tensor:
        n, d = keys.shape
        theta = _frequencies(d, new_base(base, d, n, original_max_len))
        q = _turned(query, torch.tensor(query_at(n)), theta)
        if key_base is not None:
            theta = torch.stack(
                [_frequencies(d, key_base(base, d, j + 1, original_max_len)) for j in range(n)]
            )
        k = _turned(keys, torch.arange(n) if turn_keys else torch.zeros(n), theta)
        return combine(q, k).sum(-1)

    return answer


def _scores_by_hand(query: Tensor, keys: Tensor, base: float, original_max_len: int) -> Tensor:
    """Another right answer: sums of cosines and sines of the distance."""
    n, d = keys.shape
    theta = _frequencies(d, _dynamic_base(base, d, n, original_max_len))
    angle = (n - 1 - torch.arange(n))[:, None] * theta
    a, b = query[0::2], query[1::2]
    c, e = keys[:, 0::2], keys[:, 1::2]
    return ((a * c + b * e) * angle.cos() + (a * e - b * c) * angle.sin()).sum(-1)


def _rows(n: int, d: int, length: int, name: str, base: float = 100.0) -> Case:
    return Case(name, lambda: (_draw(d, seed=n), _draw(n, d, seed=n + 1), base, length))


DYNAMIC_SCORES = Exercise(
    "A dynamic base and a cache",
    _dynamic_scores(),
    [
        _rows(5, 8, 16, "shorter than the training length"),
        _rows(16, 8, 16, "just the training length"),
        _rows(17, 8, 16, "one position more"),
        _rows(50, 8, 16, "more than three times the training length"),
        _rows(300, 8, 280, "300 positions after a training with 280"),
        _rows(40, 16, 10, "four times, 16 features", base=1e4),
    ],
    [
        WrongAnswer(
            "keys rotated when they came",
            "Each key has the frequencies of its own day, so scores depend on more than distance.",
            _dynamic_scores(key_base=_dynamic_base),
        ),
        WrongAnswer(
            "keys with the old base",
            "Query and keys must be rotated with the same frequencies.",
            _dynamic_scores(key_base=lambda base, d, n, length: base),
        ),
        WrongAnswer(
            "the base never moves",
            "Beyond the training length the base grows with the length.",
            _dynamic_scores(new_base=lambda base, d, n, length: base),
        ),
        WrongAnswer(
            "a whole ratio",
            "The base grows with every position beyond the training length, not once for each "
            "multiple of it: divide with / and not with //.",
            _dynamic_scores(
                new_base=lambda base, d, n, length: base * max(n // length, 1) ** (d / (d - 2))
            ),
        ),
        WrongAnswer(
            "a smaller base for a short text",
            "Up to the training length nothing is stretched: take max(n, original_max_len).",
            _dynamic_scores(
                new_base=lambda base, d, n, length: base * (n / length) ** (d / (d - 2))
            ),
        ),
        WrongAnswer(
            "the base times the ratio",
            "The last pair is to be divided by the ratio, so its power d/(d-2) belongs there.",
            _dynamic_scores(new_base=lambda base, d, n, length: base * max(n, length) / length),
        ),
        WrongAnswer(
            "the query one too far",
            "The query belongs to the last position, n - 1.",
            _dynamic_scores(query_at=lambda n: n),
        ),
        WrongAnswer(
            "keys not rotated",
            "They are cached before the rotation, so the rotation has still to be done.",
            _dynamic_scores(turn_keys=False),
        ),
        WrongAnswer(
            "no conjugate",
            "The product without it turns by the sum of the positions, not the distance.",
            _dynamic_scores(combine=lambda q, k: (q * k).real),
        ),
    ],
    [_scores_by_hand],
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)


# --- YaRN's tables --------------------------------------------------------------------------------


@in_parts
def _yarn_tables(
    mixed: Callable[[Tensor, Tensor, float], Tensor] = lambda f, w, s: (1 - w) * f / s + w * f,
    factor: Callable[[float], float] = lambda s: 1 + 0.1 * math.log(s),
    angle: Callable[[Tensor, Tensor], Tensor] = torch.outer,
    inside: bool = False,
) -> Callable[..., tuple[Tensor, Tensor]]:
    def answer(inv_freq: Tensor, kept: Tensor, scale: float, length: int) -> tuple[Tensor, Tensor]:
        position = torch.arange(length).to(inv_freq.dtype)
        angles = angle(position, mixed(inv_freq, kept, scale))
        size = factor(scale)
        if inside:
            return (size * angles).cos(), (size * angles).sin()
        return size * angles.cos(), size * angles.sin()

    return answer


def _tables_case(pairs: int, scale: float, length: int, name: str) -> Case:
    def inputs() -> tuple[Any, ...]:
        inv_freq = _frequencies(2 * pairs, 100.0).requires_grad_()
        kept = torch.tensor([1 - k / max(pairs - 1, 1) for k in range(pairs)], dtype=torch.float64)
        return inv_freq, kept, scale, length

    return Case(name, inputs, grad=True)


YARN_TABLES = Exercise(
    "YaRN's tables",
    _yarn_tables(),
    [
        _tables_case(8, 4.0, 12, "scale 4"),
        _tables_case(5, 16.0, 7, "scale 16"),
        _tables_case(3, 2.5, 1, "one position"),
        _tables_case(1, 40.0, 300, "one pair at 300 positions"),
    ],
    [
        WrongAnswer(
            "the factor of the scores",
            "Queries and keys both carry it, so the tables get the root of 1/t and not 1/t.",
            _yarn_tables(factor=lambda s: (1 + 0.1 * math.log(s)) ** 2),
        ),
        WrongAnswer(
            "flatter instead of sharper",
            "The tables are multiplied by the root of 1/t. This divides by it.",
            _yarn_tables(factor=lambda s: 1 / (1 + 0.1 * math.log(s))),
        ),
        WrongAnswer(
            "no temperature",
            "This is NTK-by-parts. YaRN also multiplies the tables by 0.1 ln s + 1.",
            _yarn_tables(factor=lambda s: 1.0),
        ),
        WrongAnswer(
            "logarithm to the base 10",
            "The fit is in the natural logarithm.",
            _yarn_tables(factor=lambda s: 1 + 0.1 * math.log10(s)),
        ),
        WrongAnswer(
            "the one forgotten",
            "At scale 1 nothing changes: the factor is 0.1 ln s + 1.",
            _yarn_tables(factor=lambda s: 0.1 * math.log(s)),
        ),
        WrongAnswer(
            "shares exchanged",
            "A kept share of 1 leaves the frequency alone; this divides it.",
            _yarn_tables(mixed=lambda f, w, s: w * f / s + (1 - w) * f),
        ),
        WrongAnswer(
            "every pair divided",
            "This is position interpolation: the shares are not used.",
            _yarn_tables(mixed=lambda f, w, s: f / s),
        ),
        WrongAnswer(
            "multiplied by the scale",
            "A longer context needs slower pairs: frequencies are divided.",
            _yarn_tables(mixed=lambda f, w, s: (1 - w) * f * s + w * f),
        ),
        WrongAnswer(
            "wavelengths mixed",
            "The mixture is of frequencies. Mixed wavelengths have another reciprocal.",
            _yarn_tables(mixed=lambda f, w, s: 1 / ((1 - w) * s / f + w / f)),
        ),
        WrongAnswer(
            "the factor on the angle",
            "The temperature changes the length of the rotated vectors, not how far they turn.",
            _yarn_tables(inside=True),
        ),
    ],
    [
        lambda inv_freq, kept, scale, length: (
            (1 + math.log(scale) / 10)
            * (torch.arange(length)[:, None] * (inv_freq / scale).lerp(inv_freq, kept)).cos(),
            (1 + math.log(scale) / 10)
            * (torch.arange(length)[:, None] * (inv_freq / scale).lerp(inv_freq, kept)).sin(),
        )
    ],
    spared={
        "huge": "angles of thousands of turns keep fewer digits than are compared",
        **dict.fromkeys(SIXTEEN_BITS, "no frequencies are kept in 16 bits"),
    },
)


# --- Paper against code ---------------------------------------------------------------------------


def _index(turns: float, d: int, base: float, length: int) -> float:
    return d * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))


def _paper_share(k: int, d: int, base: float, length: int) -> float:
    return _clamp((length / _wavelength(k, d, base) - 1) / 31)


@in_parts
def _code_share(
    lower: Callable[[float], float] = math.floor,
    upper: Callable[[float], float] = math.ceil,
    bound: Callable[[int], int] = lambda d: d - 1,
) -> Number:
    def share(k: int, d: int, base: float, length: int) -> float:
        low = max(lower(_index(32, d, base, length)), 0)
        high = min(upper(_index(1, d, base, length)), bound(d))
        return 1 - _clamp((k - low) / (high - low))

    return share


_CODE_SHARE = _code_share()


@in_parts
def _ramp_gap(
    paper: Number = _paper_share,
    code: Number = _CODE_SHARE,
    gap: Number = lambda c, p: c / p - 1,
    biggest: Callable[[list[float]], float] = max,
) -> Number:
    def answer(head_dim: int, base: float, scale: float, original_max_len: int) -> float:
        def frequency(share: Number, k: int) -> float:
            w = share(k, head_dim, base, original_max_len)
            theta = base ** (-2 * k / head_dim)
            return float((1 - w) * theta / scale + w * theta)

        pairs = range(head_dim // 2)
        return biggest([gap(frequency(code, k), frequency(paper, k)) for k in pairs])

    return answer


def _share_gap(d: int, base: float, scale: float, length: int) -> float:
    return max(
        _CODE_SHARE(k, d, base, length) - _paper_share(k, d, base, length) for k in range(d // 2)
    )


RAMP_GAP = Exercise(
    "How far is the code from the paper?",
    _ramp_gap(),
    [
        _case(128, 1e4, 4.0, 4096, name="Llama 2, scale 4"),
        _case(128, 1e4, 32.0, 4096, name="Llama 2, scale 32"),
        _case(64, 1e4, 16.0, 2048, name="64 features, scale 16"),
        _case(128, 1e6, 4.0, 32768, name="base 1,000,000, scale 4"),
        _case(16, 100.0, 8.0, 128, name="no pair with 32 turns"),
        _case(16, 10.0, 8.0, 1024, name="no pair with less than a turn"),
        _case(4, 10.0, 8.0, 512, name="the code nowhere above the paper"),
    ],
    [
        WrongAnswer(
            "divided by the code's frequency",
            "The question is how far the code lies above the paper: divide by the paper's.",
            _ramp_gap(gap=lambda c, p: 1 - p / c),
        ),
        WrongAnswer(
            "an absolute difference",
            "Frequencies range over four powers of ten. Take the quotient.",
            _ramp_gap(gap=lambda c, p: c - p),
        ),
        WrongAnswer(
            "the quotient without the one",
            "Equal frequencies have the difference 0, so 1 is subtracted.",
            _ramp_gap(gap=lambda c, p: c / p),
        ),
        WrongAnswer(
            "ends not rounded",
            "The code rounds them outwards: floor of the lower, ceil of the upper.",
            _ramp_gap(code=_code_share(lambda x: x, lambda x: x)),
        ),
        WrongAnswer(
            "ends rounded inwards",
            "The lower end is rounded down and the upper end up.",
            _ramp_gap(code=_code_share(math.ceil, math.floor)),
        ),
        WrongAnswer(
            "the upper end at the last pair",
            "The code's bound for the upper end is d - 1, although the last pair is d/2 - 1.",
            _ramp_gap(code=_code_share(bound=lambda d: d // 2 - 1)),
        ),
        WrongAnswer(
            "shares compared instead of frequencies",
            "A share of 0.1 more means far more where little is kept.",
            _share_gap,
        ),
        WrongAnswer(
            "the mean instead of the largest",
            "Most pairs agree. The question is about the worst.",
            _ramp_gap(biggest=lambda gaps: sum(gaps) / len(gaps)),
        ),
        WrongAnswer(
            "radians taken for turns",
            "The paper's ramp is in turns: the wavelength is 2 pi over the frequency.",
            _ramp_gap(
                paper=lambda k, d, b, n: _clamp((2 * math.pi * n / _wavelength(k, d, b) - 1) / 31)
            ),
        ),
    ],
    [
        lambda d, base, scale, n: max(
            (1 + (scale - 1) * _CODE_SHARE(k, d, base, n))
            / (1 + (scale - 1) * _paper_share(k, d, base, n))
            - 1
            for k in range(d // 2)
        )
    ],
)


# --- ALiBi ----------------------------------------------------------------------------------------


@in_parts
def _alibi_bias(
    slope: Number = lambda h, heads: 2.0 ** (-8 * h / heads),
    penalty: Number = lambda i, j: j - i,
    later: float = -math.inf,
) -> Callable[[int, int], Tensor]:
    def answer(num_heads: int, length: int) -> Tensor:
        slopes = [slope(h + 1, num_heads) for h in range(num_heads)]
        rows = [[penalty(i, j) for j in range(length)] for i in range(length)]
        bias = torch.tensor(slopes, dtype=torch.float64)[:, None, None] * torch.tensor(rows)
        for i in range(length if later else 0):
            bias[:, i, i + 1 :] = later
        return bias

    return answer


def _alibi_by_matrix(num_heads: int, length: int) -> Tensor:
    """Another right answer: the slopes by repeated multiplication, the future by torch.tril."""
    ratio, slopes = 2.0 ** (-8 / num_heads), [1.0]
    for _ in range(num_heads):
        slopes.append(slopes[-1] * ratio)
    place = torch.arange(length, dtype=torch.float64)
    bias = torch.tensor(slopes[1:], dtype=torch.float64)[:, None, None] * (place - place[:, None])
    return bias.where(torch.ones(length, length).tril() == 1, -math.inf)


ALIBI_BIAS = Exercise(
    "ALiBi from memory",
    _alibi_bias(),
    [
        _case(8, 5, name="eight heads, five positions"),
        _case(2, 7, name="two heads, seven positions"),
        _case(1, 3, name="one head"),
        _case(4, 1, name="one position"),
        _case(16, 4, name="sixteen heads"),
        _case(2, 260, name="260 positions"),
    ],
    [
        WrongAnswer(
            "heads counted from 0",
            "The first slope would be 1. Heads are counted from 1, and the last slope is 1/256.",
            _alibi_bias(slope=lambda h, heads: 2.0 ** (-8 * (h - 1) / heads)),
        ),
        WrongAnswer(
            "slopes for eight heads",
            "With 2^-h the slopes are right for eight heads only. They always end at 2^-8.",
            _alibi_bias(slope=lambda h, heads: 2.0**-h),
        ),
        WrongAnswer(
            "distant keys preferred",
            "The penalty grows with the distance i - j, so it is subtracted.",
            _alibi_bias(penalty=lambda i, j: i - j),
        ),
        WrongAnswer(
            "the future left open",
            "A causal model gives later keys minus infinity; here they even get a bonus.",
            _alibi_bias(later=0),
        ),
        WrongAnswer(
            "a large negative number for minus infinity",
            "What is hidden has the bias minus infinity: a finite number can be outweighed.",
            _alibi_bias(later=-1e9),
        ),
        WrongAnswer(
            "a bonus for the key alone",
            "After the softmax this is the same. As a bias it is not what was asked: 0 at j = i.",
            _alibi_bias(penalty=lambda i, j: j),
        ),
        WrongAnswer(
            "slopes linear in the head",
            "The slopes are a geometric sequence: each is the one before times 2^(-8/H).",
            _alibi_bias(slope=lambda h, heads: h / heads * 2.0**-8),
        ),
        WrongAnswer(
            "the distance squared",
            "The bias is linear in the distance: that is what the name says.",
            _alibi_bias(penalty=lambda i, j: -((i - j) ** 2)),
        ),
        WrongAnswer(
            "exponential base e",
            "The slopes are powers of 2.",
            _alibi_bias(slope=lambda h, heads: math.exp(-8 * h / heads)),
        ),
    ],
    [_alibi_by_matrix],
)


EXERCISES: dict[str, Exercise] = {
    "ntk_base": NTK_BASE,
    "kept_share": KEPT_SHARE,
    "dynamic_scores": DYNAMIC_SCORES,
    "yarn_tables": YARN_TABLES,
    "ramp_gap": RAMP_GAP,
    "alibi_bias": ALIBI_BIAS,
}
