"""A base for longer contexts, and what of a pair is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Number = Callable[..., float]


def _case(*inputs: Any, name: str | None = None, tol: float = 1e-10, grad: bool = False) -> Case:
    return Case(name or ", ".join(f"{i:g}" for i in inputs), lambda: inputs, tol, grad)


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
