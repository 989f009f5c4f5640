"""One decoder for all families, assembled from the parts of the other chapters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_parts.attention import causal_mask, merge_heads, split_heads
from transformer_parts.experts import MixtureOfExperts, Router, Routing
from transformer_parts.families.mixers import _mix, _mixer, _new_layer_cache
from transformer_parts.families.plan import Layer, Plan, Rope, read_plan
from transformer_parts.families.positions import split_sinusoids
from transformer_parts.feed_forward import FeedForward, GatedFeedForward
from transformer_parts.kv_cache import KVCache
from transformer_parts.local_attention import (
    chunk_mask,
    sink_attention,
    soft_cap,
    window_mask,
)
from transformer_parts.long_context import (
    alibi_slopes,
    llama3_frequencies,
    position_interpolation,
    yarn_frequencies,
    yarn_mscale,
)
from transformer_parts.mla import LatentCache, MultiHeadLatentAttention
from transformer_parts.normalization import LayerNorm, RMSNorm, layer_norm, rms_norm
from transformer_parts.rope import RotaryEmbedding, apply_rotary_emb, rope_frequencies

__all__ = [
    "ACTIVATIONS",
    "XIELU",
    "FamilyAttention",
    "FamilyBlock",
    "FamilyDecoder",
    "PlusOneLayerNorm",
    "PlusOneRMSNorm",
    "assemble",
    "greedy",
]

# From notebooks/22_families.ipynb#the-plain-version

_Cache = list[Any]

# --- Parts that no other chapter needed -----------------------------------------------


class XIELU(nn.Module):
    """Apertus's activation: a parabola above 0, and below it a bent exponential.

    Shapes: x (*) -> (*). `alpha_p` and `alpha_n` are learned, of shape (1,).

    Source: Huang and Schlag 2025; `XIELUActivation` of Hugging Face's transformers.
    """

    def __init__(self, beta: float = 0.5, eps: float = -1e-6) -> None:
        super().__init__()
        self.beta, self.eps = beta, eps
        self.alpha_p = nn.Parameter(torch.tensor([0.8]).expm1().log())
        self.alpha_n = nn.Parameter(torch.tensor([0.8 - beta]).expm1().log())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation to every number of `x`."""
        above = F.softplus(self.alpha_p)
        below = self.beta + F.softplus(self.alpha_n)
        low = torch.expm1(x.clamp(max=self.eps)) - x
        line = self.beta * x
        return torch.where(x > 0, above * x * x + line, low * below + line)


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "silu": lambda: F.silu,
    "gelu": lambda: F.gelu,
    "gelu_tanh": lambda: _gelu_tanh,
    "relu": lambda: F.relu,
    "relu2": lambda: _relu_squared,
    "xielu": XIELU,
}


class PlusOneRMSNorm(RMSNorm):
    """RMSNorm whose gain is 1 + weight: Gemma's."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` of shape (*, *normalized_shape)."""
        weight = None if self.weight is None else 1 + self.weight
        return rms_norm(x, self.normalized_shape, weight, self.eps)


class PlusOneLayerNorm(LayerNorm):
    """LayerNorm whose gain is 1 + weight: Nemotron's."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` of shape (*, *normalized_shape)."""
        weight = None if self.weight is None else 1 + self.weight
        return layer_norm(x, self.normalized_shape, weight, self.bias, self.eps)


class _HeadsNorm(nn.Module):
    """A norm of every head with a gain for each: Cohere's and StableLM's."""

    def __init__(self, heads: int, head_dim: int, kind: str, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads, head_dim))
        self.kind, self.eps = kind, eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` of shape (B, H, T, head_dim)."""
        norm: Callable[..., Tensor] = rms_norm if self.kind == "rms" else layer_norm
        return norm(x, x.shape[-1:], eps=self.eps) * self.weight[:, None]


def _norm(p: Plan, size: int | None = None) -> nn.Module:
    size = p.d_model if size is None else size
    if p.norm == "rms":
        kind: Any = PlusOneRMSNorm if p.norm_plus_one else RMSNorm
        norm: nn.Module = kind(size, p.eps, p.norm_gain)
        return norm
    layer = PlusOneLayerNorm if p.norm_plus_one else LayerNorm
    return layer(size, p.eps, p.norm_gain, p.norm_bias)


def _qk_norm(p: Plan, heads: int) -> nn.Module:
    size = heads * p.head_dim if p.qk_norm_over == "all" else p.head_dim
    if p.qk_norm_over == "heads":
        return _HeadsNorm(heads, p.head_dim, p.qk_norm or "layer", p.qk_eps)
    if p.qk_norm == "layer":
        return LayerNorm(size, p.qk_eps, p.qk_norm_gain, p.qk_norm_bias)
    kind = PlusOneRMSNorm if p.norm_plus_one and p.norm == "rms" else RMSNorm
    return kind(size, p.qk_eps, p.qk_norm_gain)


# --- Attention ------------------------------------------------------------------------


class FamilyAttention(nn.Module):
    """Causal self-attention with all that families add to grouped queries.

    Args:
        plan: which norms, biases, scale, cap, sinks.
        layer: whether queries and keys are rotated here.

    Shapes: x (B, T, d_model) -> (B, T, d_model).
    """

    def __init__(self, plan: Plan, layer: Layer) -> None:
        super().__init__()
        p = self.plan = plan
        if p.sinks and (p.attn_cap is not None or p.position == "alibi"):
            raise ValueError("sinks go with neither a cap on the scores nor ALiBi")
        q, kv = p.num_heads * p.head_dim, p.num_kv_heads * p.head_dim
        self.q_proj = nn.Linear(p.d_model, q, bias=p.qkv_bias)
        self.k_proj = nn.Linear(p.d_model, kv, bias=p.qkv_bias)
        self.v_proj = nn.Linear(p.d_model, kv, bias=p.qkv_bias)
        self.out_proj = nn.Linear(q, p.d_model, bias=p.out_bias)
        normed = p.qk_norm is not None and (layer.rope or not p.qk_norm_rope_only)
        self.q_norm = _qk_norm(p, p.num_heads) if normed else None
        self.k_norm = _qk_norm(p, p.num_kv_heads) if normed else None
        self.sinks = nn.Parameter(torch.zeros(p.num_heads)) if p.sinks else None
        self.gate_proj = nn.Linear(p.d_model, q, bias=False) if p.attn_gate else None
        at = {"all": True, "rope": layer.rope, "nope": not layer.rope}
        self.temperature = p.temperature if at[p.temperature_at] else None

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor] | None = None,
        attn_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend from the T newest positions to all; arguments as the block's."""
        p = self.plan
        start = 0 if cache is None else cache.length
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.q_norm is not None and p.qk_norm_over == "all":
            q, k = self._normed(q, k)
        if p.clip is not None:
            q, k, v = (part.clamp(-p.clip, p.clip) for part in (q, k, v))
        q, k, v = (
            split_heads(part, heads)
            for part, heads in (
                (q, p.num_heads), (k, p.num_kv_heads), (v, p.num_kv_heads)
            )
        )  # fmt: skip
        early = self.q_norm is not None and p.qk_norm_over != "all"
        if early and not p.qk_norm_after_rope:
            q, k = self._normed(q, k)
        if rope is not None:
            q, k = self._rotated(q, k, rope)
        if early and p.qk_norm_after_rope:
            q, k = self._normed(q, k)
        if self.temperature is not None:
            beta, length, first = self.temperature
            start += first
            at = torch.arange(start, start + x.shape[1], device=x.device)
            q = q * (1 + beta * torch.log1p((at // length).to(q.dtype)))[:, None]
        if cache is not None:
            k, v = cache.update(k, v)
        out = merge_heads(self._attend(q, k, v, attn_mask))
        if self.gate_proj is not None:
            out = out * torch.sigmoid(self.gate_proj(x))
        y: Tensor = self.out_proj(out)
        return y

    def _normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        assert self.q_norm is not None
        assert self.k_norm is not None
        return self.q_norm(q), self.k_norm(k)

    def _rotated(
        self, q: Tensor, k: Tensor, rope: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Both in one call; of a head the first features, if the tables are short."""
        heads, dim = [q.shape[1], k.shape[1]], 2 * rope[0].shape[-1]
        both = torch.cat([q, k], dim=1)
        turned = apply_rotary_emb(
            both[..., :dim], *rope, interleaved=self.plan.interleaved
        )
        if dim < both.shape[-1]:
            turned = torch.cat([turned, both[..., dim:]], -1)
        q, k = torch.split(turned, heads, dim=1)
        return q, k

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The heads' outputs, (B, H, T, head_dim)."""
        p = self.plan
        if self.sinks is None and p.attn_cap is None:
            b, heads, t, d = q.shape
            s, groups = k.shape[2], k.shape[1]
            if t == 1 and groups < heads and (mask is None or mask.dim() == 2):
                rows = q.reshape(b, groups, heads // groups, d)
                out = F.scaled_dot_product_attention(
                    rows, k, v, mask, scale=p.attn_scale
                )
                return out.reshape(b, heads, 1, d)
            if mask is None and 1 < t < s:
                mask = causal_mask(t, s, q.device)
            return F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=bool(mask is None and t > 1),
                scale=p.attn_scale, enable_gqa=groups < heads,
            )  # fmt: skip
        b, heads, t, d = q.shape
        s, groups = k.shape[2], p.num_kv_heads
        if mask is None and t > 1:
            mask = causal_mask(t, s, q.device)
        if self.sinks is not None:
            if groups < heads:
                k, v = (x.repeat_interleave(heads // groups, 1) for x in (k, v))
            return sink_attention(q, k, v, self.sinks, mask, p.attn_scale)
        # A group's queries share their keys.
        rows = p.attn_scale * q.reshape(b, groups, -1, d)
        scores = soft_cap(rows @ k.mT, p.attn_cap or 1.0)
        if mask is not None:
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(
                    ~mask, -torch.inf
                )
            if mask.dim() == 3:  # one for each head: ALiBi
                mask = mask.view(groups, -1, t, s)
            scores = scores.view(b, groups, -1, t, s) + mask
        weights = scores.softmax(-1).view(b, groups, -1, s)
        return (weights @ v).view(b, heads, t, d)


# --- Blocks ---------------------------------------------------------------------------


class _Scaled(nn.Module):
    """An activation of a multiple of its input: Falcon-H1's gate."""

    def __init__(self, activation: Callable[[Tensor], Tensor], scale: float) -> None:
        super().__init__()
        self.activation, self.scale = activation, scale

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.scale * x)


def _feed_forward(p: Plan, layer: Layer) -> nn.Module | None:
    if layer.experts:
        return _mixture(p)
    if layer.d_ff == 0:
        return None
    kind: Any = GatedFeedForward if p.gated else FeedForward
    ffn: nn.Module = kind(p.d_model, layer.d_ff, "identity", bias=p.mlp_bias)
    activation = ACTIVATIONS[p.activation]()
    if p.gate_scale != 1.0:
        activation = _Scaled(activation, p.gate_scale)
    ffn.activation = activation  # type: ignore[assignment]
    return ffn


class _SoftenedRouter(Router):
    """A router that adds `eps` to the sum that it divides by: LFM2's."""

    def __init__(self, eps: float, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.eps = eps

    def forward(self, x: Tensor) -> Routing:
        """As `Router.forward`."""
        found = super().forward(x)
        total = found.scores.gather(-1, found.chosen).sum(-1, keepdim=True)
        return found._replace(weights=found.weights * total / (total + self.eps))


def _mixture(p: Plan) -> MixtureOfExperts:
    assert p.experts is not None
    options = copy.deepcopy(p.experts)
    d_ff, count, top_k = (options.pop(key) for key in ("d_ff", "count", "top_k"))
    width, activation = options.pop("shared", None), options.pop("activation")
    of_layer = {key: options.pop(key) for key in ("bias", "scale_input", "shared_gate")}
    options["bias"] = options.pop("router_bias")
    small = options.pop("topk_eps")
    router = Router(p.d_model, count, top_k, **options)
    if small and router.norm_topk:
        router = _SoftenedRouter(small, p.d_model, count, top_k, **options)
    shared = GatedFeedForward(p.d_model, width, activation) if width else None
    if shared is None:
        of_layer["shared_gate"] = False
    return MixtureOfExperts(router, d_ff, activation, shared=shared, **of_layer)


def _attention(p: Plan, layer: Layer) -> nn.Module:
    if p.mla is None:
        return FamilyAttention(p, layer)
    extra = (p.attn_cap, p.clip, p.temperature, p.qk_norm, p.sinks or None)
    if any(option is not None for option in extra):
        raise ValueError(
            "latent attention has no cap, clip, temperature, sinks or norm of its heads"
        )
    scaling = p.ropes[layer.kind].scaling if layer.rope else None
    scale = p.attn_scale
    if scaling is not None and scaling.mscale_all_dim:
        scale *= yarn_mscale(scaling.factor, 0.1 * scaling.mscale_all_dim) ** 2
    return MultiHeadLatentAttention(p.d_model, p.num_heads, **p.mla, scale=scale)


class FamilyBlock(nn.Module):
    """Attention and a feed-forward layer, with norms wherever the plan puts them.

    Args:
        plan: the model's choices.
        layer: those of this layer.

    Shapes: x (B, T, d_model) -> (B, T, d_model).
    """

    def __init__(self, plan: Plan, layer: Layer) -> None:
        super().__init__()
        self.layer, self.parallel = layer, plan.parallel
        self.scale = plan.residual_scale
        self.attn = _attention(plan, layer) if layer.attention else None
        self.recurrent = _mixer(plan.d_model, layer)
        self.ffn = _feed_forward(plan, layer)
        self.factors = plan.attn_in_scale, plan.attn_out_scale
        places = plan.norms if layer.norms is None else layer.norms
        there = {
            "attn": self.attn is not None or self.recurrent is not None,
            "ffn": self.ffn is not None,
        }
        self.norms = nn.ModuleDict(
            {
                place: _norm(plan)
                for place in places
                if there.get(place.split("_")[0], True)
            }
        )

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor] | None = None,
        attn_mask: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """Apply the block to the newest T positions.

        Args:
            x: shape (B, T, d_model).
            rope: cos and sin of these positions, or None.
            attn_mask: broadcasting to (B, H, T, S), boolean or added; None: causal.
            cache: of this layer, extended by these positions.
        """
        x = self._normed("attn_stream", x)
        h = self._normed("attn_in", x)
        y = self._normed("attn_out", self._mixed(h, rope, attn_mask, cache))
        if self.parallel:
            assert self.ffn is not None
            h = self._normed("ffn_in", x) if "ffn_in" in self.norms else h
            both = y + self._normed("ffn_out", self.ffn(h))
            return x + (both if self.scale == 1.0 else self.scale * both)
        if self.attn is not None or self.recurrent is not None:
            x = self._normed("attn_sum", self._add(x, y, *self.layer.scales[:2]))
        if self.ffn is None:
            return x
        x = self._normed("ffn_stream", x)
        y = self._normed("ffn_out", self.ffn(self._normed("ffn_in", x)))
        return self._normed("ffn_sum", self._add(x, y, *self.layer.scales[2:]))

    def _mixed(
        self,
        h: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        attn_mask: Tensor | None,
        cache: Any,
    ) -> Tensor:
        """Attention, a recurrent part, or the sum of both."""
        if self.attn is not None and self.recurrent is None:
            y: Tensor = self._attend(self.attn, h, rope, attn_mask, cache)
            return y
        return _mix(
            self.attn, self.recurrent, h, cache,
            lambda part, x, keys: self._attend(part, x, rope, attn_mask, keys),
        )  # fmt: skip

    def _attend(self, attn: nn.Module, h: Tensor, *given: Any) -> Tensor:
        before, after = self.factors
        y: Tensor = attn(h if before == 1.0 else before * h, *given)
        return y if after == 1.0 else after * y

    def _normed(self, place: str, x: Tensor) -> Tensor:
        if place not in self.norms:
            return x
        y: Tensor = self.norms[place](x)
        return y

    def _add(self, x: Tensor, y: Tensor, keep: float = 1.0, add: float = 1.0) -> Tensor:
        add = add * self.scale
        return (x if keep == 1.0 else keep * x) + (y if add == 1.0 else add * y)


# --- The model ------------------------------------------------------------------------


def _rotary(rope: Rope, length: int, factors: tuple[float, ...]) -> RotaryEmbedding:
    with torch.device("cpu"):  # of a model on meta, too, the frequencies have values
        inv_freq, scale = rope_frequencies(rope.dim, rope.base), rope.factor
        if factors:
            exponent = torch.arange(0, rope.dim, 2).float() / rope.dim
            inv_freq = 1.0 / (torch.tensor(factors) * rope.base**exponent)
        s = rope.scaling
        if s is not None and s.rope_type == "linear":
            inv_freq = position_interpolation(inv_freq, s.factor)
        elif s is not None and s.rope_type == "llama3":
            inv_freq = llama3_frequencies(
                inv_freq, s.factor, s.low_freq_factor, s.high_freq_factor,
                s.original_max_len or 1,
            )  # fmt: skip
        elif s is not None:
            inv_freq, scale = yarn_frequencies(
                rope.dim, rope.base, s.factor, s.original_max_len or 1, s.beta_fast,
                s.beta_slow, s.mscale, s.mscale_all_dim, s.attention_factor, s.truncate,
            )  # fmt: skip
    inv_freq = -inv_freq if rope.backwards else inv_freq
    return RotaryEmbedding(rope.dim, length, inv_freq=inv_freq, attention_factor=scale)


class FamilyDecoder(nn.Module):
    """A language model of any family that its data describe.

    Args:
        plan: from `read_plan`.

    Shapes: tokens (B, T), integers -> logits (B, T, vocab_size).
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        p = self.plan = plan
        self.embed = nn.Embedding(p.vocab_size, p.d_model)
        self.embed_norm = _norm(p) if p.embed_norm else None
        rows = p.max_seq_len + p.position_offset
        learned = p.position == "learned"
        self.positions = nn.Embedding(rows, p.d_model) if learned else None
        self.ropes = nn.ModuleDict()
        for kind, rope in p.ropes.items():
            self.ropes[kind] = _rotary(rope, p.max_seq_len, rope.short)
            if rope.long:
                self.ropes[f"{kind}_long"] = _rotary(rope, p.max_seq_len, rope.long)
        self.layers = nn.ModuleList(FamilyBlock(p, layer) for layer in p.layers)
        self.norm = _norm(p) if p.final_norm else None
        self.head = (
            None if p.tie and not p.head_bias
            else nn.Linear(p.d_model, p.vocab_size, bias=p.head_bias)
        )  # fmt: skip
        if p.tie and self.head is not None:
            self.head.weight = self.embed.weight

    def forward(
        self, tokens: Tensor, cache: _Cache | None = None, last_only: bool = False
    ) -> Tensor:
        """Logits of the newest T positions.

        Args:
            tokens: shape (B, T), integers.
            cache: from `new_cache`; it is extended by these positions.
            last_only: logits of the last position alone, (B, 1, vocab_size).

        Raises:
            ValueError: on another shape, or positions from max_seq_len on where the
                model has a table of them.
        """
        p = self.plan
        if tokens.dim() != 2:
            raise ValueError(
                f"tokens must have shape (B, T), got {tuple(tokens.shape)}"
            )
        t = tokens.shape[1]
        past = cache[0].length if cache else 0
        s = past + t
        if s > p.max_seq_len and p.position in ("rope", "learned"):
            raise ValueError(
                f"tokens must end within max_seq_len={p.max_seq_len} positions, got {s}"
            )
        x = self.embed(tokens)
        if p.embed_scale != 1.0:
            x = x * p.embed_scale
        if self.positions is not None:
            first = past + p.position_offset
            x = x + self.positions.weight[first : first + t]
        if p.sinusoid_steps is not None:
            at = torch.arange(past, s) + p.position_offset
            x = x + split_sinusoids(at, p.d_model, p.sinusoid_steps).to(x)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        tables = {kind: self._tables(kind, past, s) for kind in p.ropes}
        masks: dict[tuple[int | None, int | None], Tensor | None] = {}
        for i, block in enumerate(self.layers):
            layer = p.layers[i]
            sees = layer.window, layer.chunk
            if sees not in masks:
                masks[sees] = self._mask(t, s, layer, x)
            rope = tables[layer.kind] if layer.rope else None
            x = block(x, rope, masks[sees], cache[i] if cache else None)
        if last_only:
            x = x[:, -1:]
        if self.norm is not None:
            x = self.norm(x)
        return self.logits(x)

    def logits(self, h: Tensor) -> Tensor:
        """One score for each token of the vocabulary, for `h` of shape (*, d_model)."""
        p = self.plan
        y: Tensor
        y = F.linear(h, self.embed.weight) if self.head is None else self.head(h)
        if p.logit_scale != 1.0:
            y = y * p.logit_scale
        return y if p.logit_cap is None else soft_cap(y, p.logit_cap)

    def new_cache(self, batch: int, max_len: int) -> _Cache:
        """An empty cache for every layer, with room for `max_len` positions."""
        p, like = self.plan, self.embed.weight
        place: dict[str, Any] = {"dtype": like.dtype, "device": like.device}

        def keys() -> Any:
            if p.mla is None:
                return KVCache(batch, p.num_kv_heads, max_len, p.head_dim, **place)
            rank, dim = p.mla["kv_lora_rank"], p.mla["qk_rope_head_dim"]
            return LatentCache(batch, max_len, rank, dim, **place)

        return [_new_layer_cache(layer, keys) for layer in p.layers]

    def _tables(self, kind: str, past: int, s: int) -> tuple[Tensor, Tensor]:
        rope: Rope = self.plan.ropes[kind]
        far = rope.long and s > rope.original_max_len
        table: Any = self.ropes[f"{kind}_long" if far else kind]
        if table.cos.is_meta and not self.embed.weight.is_meta:
            return table(torch.arange(past, s, device=self.embed.weight.device))  # type: ignore[no-any-return]
        return table.cos[past:s], table.sin[past:s]

    def _mask(self, t: int, s: int, layer: Layer, x: Tensor) -> Tensor | None:
        """Who may attend to whom in a layer; None: all that is causal."""
        mask = None
        if layer.window is not None and s > layer.window:
            mask = window_mask(t, s, layer.window, x.device)
        elif layer.chunk is not None and s > layer.chunk:
            mask = chunk_mask(t, s, layer.chunk, x.device)
        if self.plan.position != "alibi":
            return mask
        mask = causal_mask(t, s, x.device) if mask is None else mask
        slopes = alibi_slopes(self.plan.num_heads, x.dtype, x.device)[:, None, None]
        slopes = slopes * self.plan.alibi_scale
        query = torch.arange(s - t, s, device=x.device)[:, None]
        distance = (torch.arange(s, device=x.device) - query).to(x.dtype)
        return (slopes * distance).masked_fill(~mask, -torch.inf)


def assemble(
    config: Mapping[str, Any] | str | Path, *, ignore: Collection[str] = ()
) -> FamilyDecoder:
    """The model that a published config.json describes; arguments as `read_plan`."""
    return FamilyDecoder(read_plan(config, ignore=ignore))


@torch.no_grad()
def greedy(model: FamilyDecoder, tokens: Tensor, new: int) -> Tensor:
    """Append the most probable token `new` times, with a cache.

    Args:
        model: any family.
        tokens: shape (B, T), integers.
        new: how many tokens to add.

    Returns:
        Shape (B, T + new).
    """
    cache = model.new_cache(tokens.shape[0], tokens.shape[1] + new)
    newest = tokens
    for _ in range(new):
        newest = model(newest, cache, last_only=True)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, newest], 1)
    return tokens
