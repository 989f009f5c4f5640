"""What goes into the cache.

The oracle turns by complex numbers; a wrong answer has one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw
from book.checkers.mla.common import EXACT, turned


def _entry_oracle(
    x: Tensor, w_down: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rank = len(gain)
    c = F.rms_norm(x @ w_down[:, :rank], (rank,), gain, eps)
    k = x @ w_down[:, rank:]
    k = k.reshape(*k.shape[:-1], -1, 2)
    turned = torch.view_as_complex(k) * torch.complex(cos, sin)
    return c, torch.view_as_real(turned).flatten(-2)


def _entry_case(
    name: str, *sizes: int, scale: float = 1.0, start: int = 0, eps: float = 1e-6
) -> Case:
    """Sizes B, T, d_model, d_c, d_R."""
    b, t, d_model, d_c, d_r = sizes

    def inputs() -> tuple[Any, ...]:
        speed = 50.0 ** (-torch.arange(0, d_r, 2, dtype=torch.float64) / d_r)
        angles = torch.arange(start, start + t, dtype=torch.float64)[:, None] * speed
        x, w = draw(b, t, d_model, scale=scale), draw(d_model, d_c + d_r, seed=1) / d_model**0.5
        gain = 1 + 0.3 * draw(d_c, seed=2)
        leaves = [v.requires_grad_() for v in (x, w, gain)]
        return *leaves, angles.cos(), angles.sin(), eps

    return Case(name, inputs, EXACT, grad=True)


Entry = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def _root(u: Tensor, eps: float) -> Tensor:
    return (u.square().mean(-1, keepdim=True) + eps).sqrt()


@in_parts
def _entry(
    cut: Callable[[Tensor, int], tuple[Tensor, Tensor]] = lambda u, n: (u[..., :n], u[..., n:]),
    norm: Entry = lambda c, k, gain, eps: (gain * c / _root(c, eps), k),
    turn: Callable[[Tensor, Tensor, Tensor], Tensor] = turned,
) -> Answer:
    def answer(
        x: Tensor, w_down: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        c, k = cut(x @ w_down, len(gain))
        c, k = norm(c, k, gain, eps)
        return c, turn(k, cos, sin)

    return answer


def _joint(c: Tensor, k: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    root = _root(torch.cat([c, k], -1), eps)
    return gain * c / root, k / root


CACHE_ENTRY = Exercise(
    title="What goes into the cache",
    oracle=_entry_oracle,
    cases=(
        _entry_case("sizes that all differ", 2, 5, 9, 6, 4),
        _entry_case("a latent as wide as the key", 2, 3, 8, 4, 4),
        _entry_case("positions from 100 on, a larger eps", 1, 4, 7, 5, 8, start=100, eps=0.1),
        _entry_case("one token", 1, 1, 6, 3, 2, start=3),
        _entry_case("rows of size 1e-3", 2, 3, 8, 6, 4, scale=1e-3),
        _entry_case("rows of size 1e3", 2, 3, 8, 6, 4, scale=1e3),
    ),
    wrong=(
        WrongAnswer(
            "cached before the norm",
            "The RMSNorm stands between the latent and the matrices up. Cached is its result, so "
            "that nothing has to be done to it again.",
            _entry(norm=lambda c, k, gain, eps: (c, k)),
        ),
        WrongAnswer(
            "one norm over both parts",
            "The norm is the latent's: its mean square runs over d_c features, without the key's.",
            _entry(norm=_joint),
        ),
        WrongAnswer(
            "the key normalised too",
            "The shared key is not normalised, it is only rotated.",
            _entry(norm=lambda c, k, gain, eps: (gain * c / _root(c, eps), k / _root(k, eps))),
        ),
        WrongAnswer(
            "no gain",
            "The RMSNorm has a gain, one number for each feature of the latent.",
            _entry(norm=lambda c, k, gain, eps: (c / _root(c, eps), k)),
        ),
        WrongAnswer(
            "eps outside the root",
            "Epsilon is added to the mean square, under the root; small rows show the difference.",
            _entry(norm=lambda c, k, gain, eps: (gain * c / (_root(c, 0.0) + eps), k)),
        ),
        WrongAnswer(
            "the key not rotated",
            "The key is cached after its rotation; its position never changes, so once is enough.",
            _entry(turn=lambda k, cos, sin: k),
        ),
        WrongAnswer(
            "halves instead of neighbours",
            "Here the pairs are neighbours, (0, 1), (2, 3), ...; with halves the features pair up "
            "differently and every angle goes to another pair.",
            _entry(turn=lambda k, cos, sin: turned(k, cos, sin, halves=True)),
        ),
        WrongAnswer(
            "rotated the wrong way",
            "A pair (a, b) becomes (a cos - b sin, a sin + b cos); this turns by the "
            "negative angle.",
            _entry(turn=lambda k, cos, sin: turned(k, cos, -sin)),
        ),
        WrongAnswer(
            "the parts exchanged",
            "The first d_c columns are the latent's and the last d_R the key's, not the reverse.",
            _entry(cut=lambda u, n: (u[..., -n:], u[..., : u.shape[-1] - n])),
        ),
    ),
    variants=(_entry(),),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)
