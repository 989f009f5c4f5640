"""The two layers: their sub-layers, additions and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

Fn = Callable[[Tensor], Tensor]
D = 6


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _linear(seed: int) -> Fn:
    """A sub-layer that mixes features, so that the order of operations shows."""
    weight = _draw(D, D, seed=seed)
    return lambda t: torch.tanh(t @ weight)


def _norm(seed: int) -> Fn:
    weight, bias = 1 + 0.3 * _draw(D, seed=seed), _draw(D, seed=seed + 1)
    return lambda t: F.layer_norm(t, (D,), weight, bias)


def _mix(t: Tensor, memory: Tensor) -> Tensor:
    """A cross-attention without projections."""
    mixed: Tensor = F.scaled_dot_product_attention(t, memory, memory)
    return mixed


def _mistake(name: str, why: str, answer: Answer) -> WrongAnswer:
    return WrongAnswer(name, why, answer)


# --- encoder_layer --------------------------------------------------------------------------------


def _encoder(x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool) -> Tensor:
    for sublayer, norm in ((attend, norm1), (feed, norm2)):
        x = x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
    return x


def _encoder_in_lines(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    if not norm_first:
        a = norm1(attend(x).add(x))
        return norm2(feed(a).add(a))
    a = attend(norm1(x)).add(x)
    return feed(norm2(a)).add(a)


def _encoder_cases() -> list[Case]:
    def inputs(norm_first: bool, scale: float) -> Callable[[], tuple[Any, ...]]:
        return lambda: (
            (scale * _draw(2, 3, D)).requires_grad_(),
            _linear(1),
            _linear(2),
            _norm(3),
            _norm(5),
            norm_first,
        )

    return [
        Case(f"{name}, rows of size {scale:g}", inputs(first, scale), grad=True)
        for name, first in (("Post-Norm", False), ("Pre-Norm", True))
        for scale in (1.0, 30.0, 0.05)
    ]


def _both_orders(step: Callable[[Tensor, Fn, Fn, bool], Tensor]) -> Answer:
    """An encoder layer that does `step` for each of its sub-layers."""

    def answer(x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool) -> Tensor:
        return step(step(x, attend, norm1, norm_first), feed, norm2, norm_first)

    return answer


def _right_step(x: Tensor, sublayer: Fn, norm: Fn, first: bool) -> Tensor:
    return x + sublayer(norm(x)) if first else norm(x + sublayer(x))


STEP_MISTAKES: list[tuple[str, str, Callable[[Tensor, Fn, Fn, bool], Tensor]]] = [
    (
        "norm_first ignored: always Post-Norm",
        "With norm_first the norm stands on the way into the sub-layer, not after the addition.",
        lambda x, f, n, first: n(x + f(x)),
    ),
    (
        "norm_first ignored: always Pre-Norm",
        "Without norm_first the sum is normalised, and the sub-layer sees x as it is.",
        lambda x, f, n, first: x + f(n(x)),
    ),
    (
        "the two orders exchanged",
        "norm_first means Pre-Norm: the norm comes first, then the sub-layer.",
        lambda x, f, n, first: n(x + f(x)) if first else x + f(n(x)),
    ),
    (
        "residual forgotten",
        "The input of each sub-layer is added to its output. Without that the layer is no "
        "longer close to the identity.",
        lambda x, f, n, first: f(n(x)) if first else n(f(x)),
    ),
    (
        "residual taken after the norm",
        "In Pre-Norm x itself is added, not its normalised copy; otherwise the stream is "
        "normalised at every step.",
        lambda x, f, n, first: n(x) + f(n(x)) if first else n(x + f(x)),
    ),
    (
        "norm on the sub-layer's output only",
        "In Post-Norm the sum is normalised, not the sub-layer's output before it is added.",
        lambda x, f, n, first: x + f(n(x)) if first else x + n(f(x)),
    ),
    (
        "a norm on both sides",
        "Each sub-layer has one norm, before it or after the addition, not both.",
        lambda x, f, n, first: n(x + f(n(x))),
    ),
]


def _encoder_one_norm(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    return _encoder(x, attend, feed, norm1, norm1, norm_first)


def _encoder_feed_first(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    return _encoder(x, feed, attend, norm1, norm2, norm_first)


def _encoder_parallel(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    if norm_first:
        return x + attend(norm1(x)) + feed(norm2(x))
    return norm2(norm1(x + attend(x)) + feed(x))


ENCODER_LAYER = Exercise(
    title="The encoder layer",
    oracle=_encoder,
    cases=_encoder_cases(),
    variants=(_encoder_in_lines, _both_orders(_right_step)),
    wrong=[
        *(_mistake(name, why, _both_orders(step)) for name, why, step in STEP_MISTAKES),
        _mistake(
            "the same norm twice",
            "Each sub-layer has a norm of its own, with its own gain and offset.",
            _encoder_one_norm,
        ),
        _mistake(
            "feed-forward before attention",
            "Attention comes first: tokens exchange what they hold, then each one is processed.",
            _encoder_feed_first,
        ),
        _mistake(
            "both sub-layers on the same input",
            "The feed-forward network works on what attention has produced, not on x.",
            _encoder_parallel,
        ),
    ],
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the layer under test is in float64"),
)


# --- decoder_layer --------------------------------------------------------------------------------

Look = Callable[[Tensor, Tensor], Tensor]


@in_parts
def _decoder_by(
    step: Callable[[Tensor, Fn, Fn, bool], Tensor] = _right_step,
    order: Sequence[int] = (0, 1, 2),
    norms_used: Sequence[int] = (0, 1, 2),
    memory_norm: bool = False,
    swapped: bool = False,
) -> Answer:
    """A decoder layer whose parts can be replaced one by one."""

    def answer(
        x: Tensor, memory: Tensor, attend: Fn, look: Look, feed: Fn, norms: Any, norm_first: bool
    ) -> Tensor:
        def cross(t: Tensor) -> Tensor:
            seen: Tensor = norms[1](memory) if memory_norm else memory
            return look(seen, t) if swapped else look(t, seen)

        sublayers = (attend, cross, feed)
        for k, n in zip(order, norms_used, strict=True):
            x = step(x, sublayers[k], norms[n], norm_first)
        return x

    return answer


def _decoder_in_lines(
    x: Tensor,
    memory: Tensor,
    attend: Fn,
    look: Look,
    feed: Fn,
    norms: Sequence[Fn],
    norm_first: bool,
) -> Tensor:
    n1, n2, n3 = norms
    if norm_first:
        a = attend(n1(x)) + x
        b = look(n2(a), memory) + a
        return feed(n3(b)) + b
    a = n1(attend(x) + x)
    b = n2(look(a, memory) + a)
    return n3(feed(b) + b)


def _decoder_cases() -> list[Case]:
    def inputs(norm_first: bool, scale: float) -> Callable[[], tuple[Any, ...]]:
        return lambda: (
            (scale * _draw(2, 4, D)).requires_grad_(),
            # As long as the target: exchanging the two then changes no shape.
            _draw(2, 4, D, seed=7).requires_grad_(),
            _linear(1),
            _mix,
            _linear(2),
            (_norm(3), _norm(5), _norm(7)),
            norm_first,
        )

    return [
        Case(f"{name}, rows of size {scale:g}", inputs(first, scale), grad=True)
        for name, first in (("Post-Norm", False), ("Pre-Norm", True))
        for scale in (1.0, 20.0, 0.05)
    ]


DECODER_LAYER = Exercise(
    title="The decoder layer",
    oracle=_decoder_by(),
    cases=_decoder_cases(),
    variants=(_decoder_in_lines,),
    wrong=[
        *(_mistake(name, why, _decoder_by(step)) for name, why, step in STEP_MISTAKES),
        _mistake(
            "cross-attention forgotten",
            "Without cross-attention the decoder never looks at the source.",
            _decoder_by(order=(0, 2), norms_used=(0, 2)),
        ),
        _mistake(
            "cross-attention before self-attention",
            "The target's tokens talk to each other first, then they ask the source.",
            _decoder_by(order=(1, 0, 2)),
        ),
        _mistake(
            "one norm for all three",
            "There are three norms, one for each sub-layer, each with its own gain and offset.",
            _decoder_by(norms_used=(0, 0, 0)),
        ),
        _mistake(
            "the memory is normalised again",
            "The encoder's output is passed on as it is. Its own stack has normalised it.",
            _decoder_by(memory_norm=True),
        ),
        _mistake(
            "queries from the source",
            "The queries come from the target, the keys and values from the source.",
            _decoder_by(swapped=True),
        ),
    ],
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the layer under test is in float64"),
)
