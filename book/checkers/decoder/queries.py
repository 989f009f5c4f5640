"""Scores with normalised queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


Norm = Callable[[Tensor, Tensor, float], Tensor]


def _rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], gain, eps)


@in_parts
def _qk(
    norm: Norm = _rms,
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor] = _rotate,
    norm_first: bool = True,
    scale: bool = True,
    keys_too: bool = True,
    swap: bool = False,
) -> Answer:
    def qk_norm_scores(
        q: Tensor, k: Tensor, q_gain: Tensor, k_gain: Tensor, cos: Tensor, sin: Tensor, eps: float
    ) -> Tensor:
        if swap:
            q_gain, k_gain = k_gain, q_gain

        def prepared(x: Tensor, gain: Tensor) -> Tensor:
            if norm_first:
                return rotate(norm(x, gain, eps), cos, sin)
            return norm(rotate(x, cos, sin), gain, eps)

        keys = prepared(k, k_gain) if keys_too else rotate(k, cos, sin)
        scores = prepared(q, q_gain) @ keys.transpose(-2, -1)
        return scores / q.shape[-1] ** 0.5 if scale else scores

    return qk_norm_scores


def _qk_by_complex(
    q: Tensor, k: Tensor, q_gain: Tensor, k_gain: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> Tensor:
    def prepared(x: Tensor, gain: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain
        return torch.view_as_complex(torch.unflatten(x, -1, (-1, 2))) * torch.complex(cos, sin)

    a, b = prepared(q, q_gain), prepared(k, k_gain)
    return torch.as_tensor((a @ b.conj().transpose(-2, -1)).real / q.shape[-1] ** 0.5)


def _over_all_heads(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    size = x.square().mean((1, 3), keepdim=True) + eps
    return x * torch.rsqrt(size) * gain


def _unit_length(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps) * gain


def _layer(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, None, eps)


def _outside(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * gain


def _tables(length: int, dim: int) -> tuple[Tensor, Tensor]:
    angle = torch.outer(
        torch.arange(length, dtype=torch.float64),
        100.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim),
    )
    return angle.cos(), angle.sin()


def _qk_case(
    name: str, b: int, h: int, t: int, dim: int, scale: float = 1.0, eps: float = 1e-3
) -> Case:
    def inputs() -> tuple[Any, ...]:
        q, k = (scale * draw(b, h, t, dim, seed=s) for s in (0, 1))
        gains = (1 + 0.5 * draw(dim, seed=s) for s in (2, 3))
        leaves = [x.requires_grad_() for x in (q, k, *gains)]
        return (*leaves, *_tables(t, dim), eps)

    return Case(name, inputs, grad=True)


QK_NORM = Exercise(
    title="QK-norm",
    oracle=_qk(),
    cases=[
        _qk_case("two heads of four", 1, 2, 5, 4),
        _qk_case("a batch, four heads of six", 2, 4, 7, 6),
        _qk_case("one head of two", 1, 1, 3, 2),
        _qk_case("small queries and keys", 2, 2, 4, 8, scale=0.02),
        _qk_case("large queries and keys", 2, 3, 4, 8, scale=1e3, eps=1e-6),
        _qk_case("sixteen features", 1, 2, 6, 16),
    ],
    variants=(_qk_by_complex,),
    wrong=(
        WrongAnswer(
            "norm after the rotation",
            "The gain differs within a pair of features, so it does not commute with the "
            "rotation: the scores would no longer depend on the distance alone.",
            _qk(norm_first=False),
        ),
        WrongAnswer(
            "only the queries normalised",
            "Keys are normalised as well, with a gain of their own. Otherwise they can still grow.",
            _qk(keys_too=False),
        ),
        WrongAnswer(
            "one norm over all heads",
            "Each head's d_head features have their own root mean square in Qwen3. (OLMo 2 "
            "normalises over all heads.)",
            _qk(norm=_over_all_heads),
        ),
        WrongAnswer(
            "divided by the length",
            "RMSNorm divides by the root of the mean square, not of the sum: the result has "
            "length sqrt(d_head), not 1.",
            _qk(norm=_unit_length),
        ),
        WrongAnswer(
            "LayerNorm in place of RMSNorm",
            "Nothing is subtracted: Qwen3 uses RMSNorm, as everywhere else.",
            _qk(norm=_layer),
        ),
        WrongAnswer(
            "without gains",
            "Without the learned gains every score is at most sqrt(d_head), and no head can "
            "become sharper than that.",
            _qk(norm=lambda x, gain, eps: _rms(x, torch.ones_like(gain), eps)),
        ),
        WrongAnswer(
            "gains exchanged",
            "q_gain belongs to the queries and k_gain to the keys. Under the rotation that makes "
            "a difference, and for their gradients too.",
            _qk(swap=True),
        ),
        WrongAnswer(
            "scale forgotten",
            "QK-norm does not replace the division by sqrt(d_head); both are there.",
            _qk(scale=False),
        ),
        WrongAnswer(
            "eps outside the root",
            "eps stands inside the root, next to the mean square. Beside the root it is felt "
            "differently by small queries.",
            _qk(norm=_outside),
        ),
        WrongAnswer(
            "halves as pairs",
            "The tables are for neighbouring features as pairs, (0, 1), (2, 3), and so on.",
            _qk(rotate=_rotate_halves),
        ),
    ),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)
