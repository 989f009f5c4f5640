"""What goes on inside the model: its stream, the weights of every head, and it with heads off."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from transformer_parts.attention import attention_weights, split_heads
from transformer_parts.decoder import DecoderOnlyTransformer
from transformer_parts.rope import apply_rotary_emb


def blocks(model: DecoderOnlyTransformer) -> list[Any]:
    """The model's blocks, whose parts torch knows as modules only."""
    return list(model.layers)


@torch.no_grad()
def attention_maps(model: DecoderOnlyTransformer, tokens: Tensor) -> list[Tensor]:
    """The attention weights of each layer, each of shape (B, H, T, T), for rows without padding.

    Args:
        model: with grouped-query attention and RoPE or no positions.
        tokens: shape (B, T), integers.
    """
    seen: dict[int, tuple[Any, ...]] = {}
    attentions = [block.attn.sublayer for block in blocks(model)]
    hooks = [
        a.register_forward_pre_hook(lambda _, inputs, i=i: seen.__setitem__(i, inputs))
        for i, a in enumerate(attentions)
    ]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    maps = []
    for i, a in enumerate(attentions):
        x, rope = seen[i][:2]
        q, k = split_heads(a.q_proj(x), a.num_heads), split_heads(a.k_proj(x), a.num_kv_heads)
        if rope is not None:
            q, k = apply_rotary_emb(q, *rope), apply_rotary_emb(k, *rope)
        k = k.repeat_interleave(a.num_heads // a.num_kv_heads, dim=1)
        maps.append(attention_weights(q, k, is_causal=True))
    return maps


@torch.no_grad()
def streams(model: DecoderOnlyTransformer, tokens: Tensor) -> Tensor:
    """The residual stream below the first sub-layer and behind each one.

    Args:
        model: with two residual branches in each of its L blocks.
        tokens: shape (B, T), integers.

    Returns:
        Shape (1 + 2 L, B, T, d_model).
    """
    branches = [branch for block in blocks(model) for branch in (block.attn, block.ffn)]
    seen: list[Tensor] = []
    hooks = [branches[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))]
    hooks += [b.register_forward_hook(lambda _, __, output: seen.append(output)) for b in branches]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(seen)


@contextmanager
def heads_off(
    model: DecoderOnlyTransformer, heads: Collection[tuple[int, int]]
) -> Iterator[DecoderOnlyTransformer]:
    """The model with some heads giving zero, for as long as the block lasts.

    Args:
        model: as it is before and after.
        heads: pairs (layer, head), both from 0.

    Raises:
        ValueError: naming a pair that is no head of the model.
    """
    c = model.config
    for layer, head in heads:
        if not (0 <= layer < c.num_layers and 0 <= head < c.num_heads):
            raise ValueError(
                f"({layer}, {head}) is no head: the model has {c.num_layers} layers "
                f"of {c.num_heads} heads"
            )

    def silencer(layer: int) -> Any:
        keep = torch.tensor([(layer, h) not in heads for h in range(c.num_heads)])
        keep = keep.repeat_interleave(c.d_head)

        def silence(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0] * keep.to(inputs[0]),)

        return silence

    hooks = [
        block.attn.sublayer.out_proj.register_forward_pre_hook(silencer(i))
        for i, block in enumerate(blocks(model))
    ]
    try:
        yield model
    finally:
        for hook in hooks:
            hook.remove()
