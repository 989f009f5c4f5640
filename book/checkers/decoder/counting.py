"""The parameters of a published model, counted from its sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


@in_parts
def _count(
    embedding: Callable[[int, int, bool], int] = lambda v, d, tied: (2 - tied) * v * d,
    projections: Callable[[int, int, int, int], int] = lambda d, h, g, dh: 2 * d * dh * (h + g),
    biases: Callable[[int, int, int], int] = lambda h, g, dh: dh * (h + 2 * g),
    gains: Callable[[int, int, int], int] = lambda h, g, dh: 2 * dh,
    matrices: int = 3,
    norms: int = 2,
    final: int = 1,
) -> Answer:
    def parameter_count(
        vocab_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        d_ff: int,
        qkv_bias: bool,
        qk_norm: bool,
        tied: bool,
    ) -> int:
        h, g = num_heads, num_kv_heads
        block = projections(d_model, h, g, head_dim) + matrices * d_model * d_ff + norms * d_model
        block += qkv_bias * biases(h, g, head_dim) + qk_norm * gains(h, g, head_dim)
        return int(embedding(vocab_size, d_model, tied)) + num_layers * block + final * d_model

    return parameter_count


def _count_by_tensors(*sizes: Any) -> int:
    """Every tensor by its shape, on the meta device."""
    v, d, layers, h, g, dh, ff, qkv_bias, qk_norm, tied = sizes
    shapes: list[tuple[int, ...]] = [(v, d), (d,)] + ([] if tied else [(v, d)])
    for _ in range(layers):
        shapes += [(h * dh, d), (g * dh, d), (g * dh, d), (d, h * dh), (d,), (d,)]
        shapes += [(ff, d), (ff, d), (d, ff)]
        shapes += [(h * dh,), (g * dh,), (g * dh,)] if qkv_bias else []
        shapes += [(dh,), (dh,)] if qk_norm else []
    return sum(torch.empty(shape, device="meta").numel() for shape in shapes)


_PUBLISHED: dict[str, tuple[Any, ...]] = {
    "LLaMA-7B": (32000, 4096, 32, 32, 32, 128, 11008, False, False, False),
    "Llama-2-70B": (32000, 8192, 80, 64, 8, 128, 28672, False, False, False),
    "Llama-3-8B": (128256, 4096, 32, 32, 8, 128, 14336, False, False, False),
    "Mistral-7B": (32000, 4096, 32, 32, 8, 128, 14336, False, False, False),
    "Qwen2.5-7B": (152064, 3584, 28, 28, 4, 128, 18944, True, False, False),
    "Qwen3-8B": (151936, 4096, 36, 32, 8, 128, 12288, False, True, False),
    "Qwen3-0.6B, tied, wide heads": (151936, 1024, 28, 16, 8, 128, 3072, False, True, True),
    "a small one with everything": (11, 24, 3, 4, 2, 10, 17, True, True, True),
}


def _sizes_case(name: str, sizes: tuple[Any, ...]) -> Case:
    return Case(name, lambda: sizes)


PARAMETER_COUNT = Exercise(
    title="Parameters of a published model",
    oracle=_count(),
    cases=[_sizes_case(name, sizes) for name, sizes in _PUBLISHED.items()],
    variants=(_count_by_tensors,),
    wrong=(
        WrongAnswer(
            "keys and values with as many heads as queries",
            "Only the G key-value heads have their own key and value rows: two matrices of "
            "d_model * G * head_dim.",
            _count(projections=lambda d, h, g, dh: 4 * d * h * dh),
        ),
        WrongAnswer(
            "d_model squared for queries and output",
            "The queries have num_heads * head_dim features, which need not be d_model. In "
            "Qwen3-0.6B it is twice as much.",
            _count(projections=lambda d, h, g, dh: 2 * d * d + 2 * d * g * dh),
        ),
        WrongAnswer(
            "two matrices in the feed-forward layer",
            "A gated layer has three matrices: gate, up and down.",
            _count(matrices=2),
        ),
        WrongAnswer(
            "the output head forgotten",
            "Unless it is tied to the embedding, the head is a second matrix of "
            "vocab_size * d_model.",
            _count(embedding=lambda v, d, tied: v * d),
        ),
        WrongAnswer(
            "the head counted although it is tied",
            "A tied head is the embedding once more, and a parameter is counted once.",
            _count(embedding=lambda v, d, tied: 2 * v * d),
        ),
        WrongAnswer(
            "the last norm forgotten",
            "A Pre-Norm model has one more norm after the last block, with d_model gains.",
            _count(final=0),
        ),
        WrongAnswer(
            "one norm per block",
            "Both sub-layers of a block have a norm of their own.",
            _count(norms=1),
        ),
        WrongAnswer(
            "norms with a bias",
            "RMSNorm has a gain and no offset, so it has d_model parameters and not twice as many.",
            _count(norms=4, final=2),
        ),
        WrongAnswer(
            "a bias of the keys and values for every query head",
            "The bias has as many entries as the projection has outputs: G * head_dim for keys "
            "and for values.",
            _count(biases=lambda h, g, dh: 3 * h * dh),
        ),
        WrongAnswer(
            "QK-norm with a gain for every head",
            "One gain of head_dim numbers serves all query heads of a layer, another one all "
            "its key heads.",
            _count(gains=lambda h, g, dh: dh * (h + g)),
        ),
    ),
)
