"""A stack of blocks, of an encoder or of a decoder that looks at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer_parts.attention import (
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from transformer_parts.families.encoders.plan import Stack
from transformer_parts.families.model import FamilyBlock, _norm, _rotary
from transformer_parts.families.positions import RelativePositionBias, split_sinusoids
from transformer_parts.kv_cache import KVCache

__all__ = ["CrossAttention", "EncoderBlock", "FamilyStack", "LayerCache", "near_mask"]


# From notebooks/22_families.ipynb#encoders-from-the-same-parts
def near_mask(
    length: int, window: int, device: torch.device | str | None = None
) -> Tensor:
    """Which keys a position sees if it looks to both sides: the `window` nearest.

    Args:
        length: positions, T.
        window: how many it sees, itself included and as many on either side; odd.
        device: where the mask is put.

    Returns:
        Boolean, shape (T, T), True = may attend.

    Raises:
        ValueError: if `window` is even or below 1.

    Source: Warner et al. 2024, section 2.1.2 (alternating attention).
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be odd and at least 1, got {window}")
    at = torch.arange(length, device=device)
    return (at - at[:, None]).abs() <= window // 2


class LayerCache:
    """What one layer of a decoder keeps: its own keys and values, and the memory's."""

    def __init__(self, own: KVCache) -> None:
        self.own = own
        self.memory: tuple[Tensor, Tensor] | None = None


class CrossAttention(nn.Module):
    """Attention whose queries are one stack's and whose keys and values another's.

    Args:
        stack: heads, widths, biases and scale.

    Shapes: x (B, T, d_model), memory (B, S, d_model) -> (B, T, d_model).

    Source: Vaswani et al. 2017, section 3.2.3.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        p = self.plan = stack.plan
        inner = p.num_heads * p.head_dim
        self.q_proj = nn.Linear(p.d_model, inner, bias=p.qkv_bias)
        self.k_proj = nn.Linear(p.d_model, inner, bias=p.qkv_bias and stack.k_bias)
        self.v_proj = nn.Linear(p.d_model, inner, bias=p.qkv_bias)
        self.out_proj = nn.Linear(inner, p.d_model, bias=p.out_bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Attend from x to memory; `mask` broadcasts to (B, H, T, S), True = may.

        With a cache, keys and values are computed at the first call alone.
        """
        heads = self.plan.num_heads
        kept = None if cache is None else cache.memory
        if kept is None:
            k, v = self.k_proj(memory), self.v_proj(memory)
            kept = split_heads(k, heads), split_heads(v, heads)
            if cache is not None:
                cache.memory = kept
        q = split_heads(self.q_proj(x), heads)
        out = scaled_dot_product_attention(q, *kept, mask, scale=self.plan.attn_scale)
        y: Tensor = self.out_proj(merge_heads(out))
        return y


class EncoderBlock(FamilyBlock):
    """The decoders' block, which sees what its mask allows, and perhaps a memory.

    Args:
        stack: the choices of the stack.
        i: the number of the block.

    Shapes: x (B, T, d_model) -> (B, T, d_model).
    """

    def __init__(self, stack: Stack, i: int) -> None:
        p = stack.plan
        super().__init__(replace(p, norms=stack.norms(i)), p.layers[i])
        if p.qkv_bias and not stack.k_bias:
            inner = p.num_kv_heads * p.head_dim
            cast(Any, self.attn).k_proj = nn.Linear(p.d_model, inner, bias=False)
        self.cross = CrossAttention(stack) if stack.cross else None

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor] | None = None,
        attn_mask: Tensor | None = None,
        cache: Any = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Apply the block.

        Args:
            x: shape (B, T, d_model).
            rope: cos and sin of these positions, or None.
            attn_mask: broadcasting to (B, H, T, S), boolean or added to the scores.
            cache: a `LayerCache`, extended by these positions.
            memory: the other stack's output, (B, S', d_model).
            memory_mask: boolean, broadcasting to (B, H, T, S').
        """
        own = None if cache is None else cache.own
        if self.cross is None:
            return super().forward(x, rope, attn_mask, own)
        assert self.attn is not None
        assert self.ffn is not None
        assert memory is not None
        h = self._normed("attn_in", x)
        x = self._add(x, self.attn(h, rope, attn_mask, own))
        h = self._normed("cross_in", x)
        x = self._add(x, self.cross(h, memory, memory_mask, cache))
        return self._add(x, self.ffn(self._normed("ffn_in", x)))


class FamilyStack(nn.Module):
    """Positions, blocks and the last norm of an encoder or a decoder.

    Args:
        stack: the choices of the stack.

    Shapes: x (B, T, d_model), embedded -> (B, T, d_model).
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        p, self.stack = stack.plan, stack
        self.positions: nn.Embedding | None = None
        if p.position in ("learned", "sinusoids"):
            self.positions = nn.Embedding(p.max_seq_len, p.d_model)
        if self.positions is not None and p.position == "sinusoids":
            steps = cast(int, p.sinusoid_steps)
            rows = split_sinusoids(torch.arange(p.max_seq_len), p.d_model, steps)
            weight = self.positions.weight.requires_grad_(False)
            weight.copy_(rows)
        self.embed_norm = _norm(p) if p.embed_norm else None
        self.relative: RelativePositionBias | None = None
        if stack.buckets:
            self.relative = RelativePositionBias(
                p.num_heads, stack.buckets, stack.max_distance or 0, not stack.causal
            )
        self.ropes = nn.ModuleDict(
            {kind: _rotary(rope, p.max_seq_len, ()) for kind, rope in p.ropes.items()}
        )
        self.layers = nn.ModuleList(EncoderBlock(stack, i) for i in range(p.num_layers))
        self.norm = _norm(p) if p.final_norm else None

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rows: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """Apply the stack to the newest T positions.

        Args:
            x: shape (B, T, d_model).
            mask: boolean, (B, S), True = a token, False = padding.
            rows: of the table of positions, (B, T); None: those from the cache on.
            memory: for a decoder, the encoder's states, (B, S', d_model).
            memory_mask: boolean, (B, S'), True = a token.
            cache: from `new_cache`; it is extended by these positions.
        """
        p, t = self.stack.plan, x.shape[1]
        past = cache[0].own.length if cache else 0
        s = past + t
        if s > p.max_seq_len and p.position != "none":
            raise ValueError(
                f"the input must end within {p.max_seq_len} positions, got {s}"
            )
        if self.positions is not None:
            rows = torch.arange(past, s, device=x.device) if rows is None else rows
            x = x + self.positions(rows)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        windows = {layer.window for layer in p.layers}
        masks = {window: self.mask(t, s, window, mask, x) for window in windows}
        at = torch.arange(past, s, device=x.device)
        tables = {kind: table(at) for kind, table in self.ropes.items()}
        seen = None if memory_mask is None else memory_mask[:, None, None, :]
        for i, block in enumerate(self.layers):
            layer = p.layers[i]
            rope = tables[layer.kind] if layer.rope else None
            x = block(
                x, rope, masks[layer.window], cache[i] if cache else None, memory, seen
            )
        return x if self.norm is None else cast(Tensor, self.norm(x))

    def mask(
        self, t: int, s: int, window: int | None, padding: Tensor | None, like: Tensor
    ) -> Tensor:
        """Who may attend to whom, boolean, or added to the scores if it has a bias.

        Args:
            t: queries, which stand at the end of the keys.
            s: keys.
            window: how many keys on both sides are seen, or None for all.
            padding: boolean, (B, S), True = a token.
            like: has the dtype and the device.
        """
        past = causal_mask(t, s, like.device)
        seen = past if self.stack.causal else torch.ones_like(past)
        if window is not None:
            seen = seen & near_mask(s, window, like.device)[s - t :]
        if padding is not None:
            seen = seen & padding[:, None, None, :]
            alone = past ^ past.tril(s - t - 1)  # a row without tokens sees itself
            seen = seen | (alone & ~seen.any(-1, keepdim=True))
        if self.relative is None:
            return seen
        bias: Tensor = self.relative(t, s).to(like.dtype)
        return bias.masked_fill(~seen, -torch.inf)
