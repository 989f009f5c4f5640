"""One step of decoding in the absorbed form.

The oracle makes the keys and values of each head and turns by complex numbers; a wrong answer has
one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw
from book.checkers.mla.common import EXACT

Rotate = Callable[[Tensor, int], Tensor]
Made = tuple[Tensor, Tensor, Tensor]


def _rotate(x: Tensor, position: int) -> Tensor:
    """Pairs (0, 1), (2, 3), ... turned by position / 3**pair."""
    angles = position / 3.0 ** torch.arange(x.shape[-1] // 2, dtype=x.dtype)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def _decode(
    q_nope: Tensor,
    q_rope: Tensor,
    c: Tensor,
    k_rope: Tensor,
    latents: Tensor,
    shared: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    rotate: Rotate,
) -> Made:
    """Keys and values of each head, head by head."""
    here = latents.shape[1]
    latents = torch.cat([latents, c[:, None]], 1)
    shared = torch.cat([shared, rotate(k_rope, here)[:, None]], 1)
    outs = []
    for h in range(w_uk.shape[0]):
        keys = torch.cat([latents @ w_uk[h], shared], -1)
        query = torch.cat([q_nope[:, h], rotate(q_rope[:, h], here)], -1)
        scores = (keys @ query[:, :, None])[..., 0] / query.shape[-1] ** 0.5
        outs.append((scores.softmax(-1)[:, None] @ (latents @ w_uv[h]))[:, 0])
    return torch.stack(outs, 1), latents, shared


@in_parts
def _decode_with(
    *,
    place: Callable[[int], int] = lambda cached: cached,
    scale: Callable[[int, int, int], float] = lambda d_h, d_r, d_c: (d_h + d_r) ** -0.5,
    itself: bool = True,
    store: Callable[[Tensor, Tensor], Tensor] = lambda k, turned: turned,
    turn_q: bool = True,
    values: Callable[[Tensor, Tensor], Tensor] = lambda out, w_uv: out @ w_uv,
) -> Answer:
    """A step of which one part can be replaced."""

    def answer(
        q_nope: Tensor,
        q_rope: Tensor,
        c: Tensor,
        k_rope: Tensor,
        latents: Tensor,
        shared: Tensor,
        w_uk: Tensor,
        w_uv: Tensor,
        rotate: Rotate,
    ) -> Made:
        here = place(latents.shape[1])
        new, new_key = c[:, None], store(k_rope, rotate(k_rope, here))[:, None]
        latents, shared = torch.cat([latents, new], 1), torch.cat([shared, new_key], 1)
        seen = slice(None) if itself or latents.shape[1] == 1 else slice(0, -1)
        query = (q_nope[:, :, None] @ w_uk.mT)[:, :, 0]
        turned = rotate(q_rope, here) if turn_q else q_rope
        scores = query @ latents[:, seen].mT + turned @ shared[:, seen].mT
        p = (scores * scale(q_nope.shape[-1], q_rope.shape[-1], c.shape[-1])).softmax(-1)
        mean = p @ latents[:, seen]
        return values(mean[:, :, None], w_uv)[:, :, 0], latents, shared

    return answer


def _case(name: str, b: int, h: int, cached: int, *sizes: int) -> Case:
    """Sizes d_h, d_R, d_v, d_c."""
    d_h, d_r, d_v, d_c = sizes

    def inputs() -> tuple[Any, ...]:
        shapes = ((b, h, d_h), (b, h, d_r), (b, d_c), (b, d_r), (b, cached, d_c), (b, cached, d_r))
        drawn = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
        drawn += [draw(h, d_c, d_h, seed=7) / d_c**0.5, draw(h, d_c, d_v, seed=8)]
        return *drawn, _rotate

    return Case(name, inputs, EXACT)


DECODE = Exercise(
    title="A step with three mistakes",
    oracle=_decode,
    cases=(
        _case("five tokens in the cache", 2, 3, 5, 6, 4, 5, 7),
        _case("an empty cache", 1, 2, 0, 4, 2, 3, 5),
        _case("one token in the cache", 2, 1, 1, 6, 2, 4, 3),
        _case("a long cache, one head", 1, 1, 300, 4, 4, 2, 6),
        _case("four heads, a wide latent", 1, 4, 9, 5, 6, 3, 16),
    ),
    wrong=(
        WrongAnswer(
            "the scale of the wide rows",
            "The rows compared are d_c + d_R wide, but their product is the score of rows of "
            "d_h + d_R features, and that is whose root belongs here.",
            _decode_with(scale=lambda d_h, d_r, d_c: (d_c + d_r) ** -0.5),
        ),
        WrongAnswer(
            "the scale without the rotated part",
            "A score has d_h + d_R terms. The root of d_h alone leaves it too large.",
            _decode_with(scale=lambda d_h, d_r, d_c: d_h**-0.5),
        ),
        WrongAnswer(
            "the new token left out",
            "The new token attends to itself too: its latent goes into the cache first.",
            _decode_with(itself=False),
        ),
        WrongAnswer(
            "one position back",
            "With S tokens in the cache, 0 to S - 1 are taken, and the new token stands at S.",
            _decode_with(place=lambda cached: max(cached - 1, 0)),
        ),
        WrongAnswer(
            "always at position 0",
            "The new token stands behind all that is cached.",
            _decode_with(place=lambda cached: 0),
        ),
        WrongAnswer(
            "the key stored before its rotation",
            "What is cached is used again as it is, so the shared key is stored rotated.",
            _decode_with(store=lambda k, turned: k),
        ),
        WrongAnswer(
            "query not rotated",
            "The score feels the distance only if the query is rotated as the key was.",
            _decode_with(turn_q=False),
        ),
    ),
    variants=(_decode_with(),),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)
