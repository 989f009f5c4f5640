"""Layers with a memory in place of a cache, as the families of today publish them.

The parts are those of the chapter on recurrence; what a family adds to one of them is
in a subclass here, and which layer has which is in `families.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_parts.families.plan import Layer
from transformer_parts.normalization import RMSNorm, rms_norm
from transformer_parts.recurrence import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LayerState,
    LightningAttention,
    Mamba2,
    causal_conv,
    selective_scan,
)

__all__ = [
    "MIXERS",
    "LayerLightning",
    "SelectiveStateSpace",
    "ShortConvolution",
    "SplitDeltaNet",
    "StateCache",
]

# From notebooks/22_families.ipynb#what-is-not-there

# --- What a family adds to the parts of chapter 24 ------------------------------------


class _FamilyMamba2(Mamba2):
    """Mamba-2 with what hybrid models add: biases, factors, limits, another norm.

    Args:
        d_model, d_state, num_heads, head_dim, num_groups, kernel, eps: as `Mamba2`.
        bias, out_bias: whether the projection into the layer and the one out of it have
            a bias; out_bias=None: as `bias`.
        conv_bias: whether the convolution has one.
        limits: the least and the largest step, or None.
        norm: 'after' the gate, 'before' it, or 'none'.
        scales: factors on the gate, the inputs, B, C and the steps.
        in_scale, out_scale: factors on what goes in and comes out.

    Shapes: as `Mamba2`.

    Raises:
        ValueError: as `Mamba2`, or on an unknown norm.

    Source: Mamba2Mixer, BambaMixer, FalconH1Mixer, NemotronHMamba2Mixer in Hugging
    Face's transformers, with their names and layouts of parameters.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        num_heads: int,
        head_dim: int,
        num_groups: int = 1,
        kernel: int = 4,
        eps: float = 1e-5,
        *,
        bias: bool = False,
        out_bias: bool | None = None,
        conv_bias: bool = True,
        limits: Sequence[float] | None = None,
        norm: str = "after",
        scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0, 1.0),
        in_scale: float = 1.0,
        out_scale: float = 1.0,
    ) -> None:
        super().__init__(d_model, d_state, num_heads, head_dim, num_groups, kernel, eps)
        if norm not in ("after", "before", "none"):
            raise ValueError(f"norm must be 'after', 'before' or 'none', got {norm!r}")
        out_bias = bias if out_bias is None else out_bias
        if bias:
            self.in_proj = nn.Linear(d_model, self.in_proj.out_features)
        if out_bias:
            self.out_proj = nn.Linear(self.out_proj.in_features, d_model)
        if not conv_bias:
            self.conv1d.bias = None
        self.limits = None if limits is None else tuple(limits)
        self.norm_at, self.in_scale, self.out_scale = norm, in_scale, out_scale
        self.scales = tuple(scales)
        if norm == "none":
            del self.norm

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        form: str = "chunked",
        chunk_size: int = 64,
    ) -> tuple[Tensor, LayerState]:
        """As `Mamba2.forward`."""
        y, state = super().forward(x, state, form, chunk_size)
        return (y if self.out_scale == 1.0 else y * self.out_scale), state

    def _projected(self, x: Tensor) -> Tensor:
        y = super()._projected(x if self.in_scale == 1.0 else x * self.in_scale)
        if all(scale == 1.0 for scale in self.scales):
            return y
        wide, group = self.out_proj.in_features, self.num_groups * self.d_state
        widths = [wide, wide, group, group, self.num_heads]
        parts = zip(torch.split(y, widths, -1), self.scales, strict=True)
        return torch.cat([part * scale for part, scale in parts], -1)

    def _step(self, dt: Tensor) -> Tensor:
        step = super()._step(dt)
        return step if self.limits is None else step.clamp(*self.limits)

    def _gated(self, out: Tensor, z: Tensor) -> Tensor:
        if self.norm_at == "after":
            return super()._gated(out, z)
        if self.norm_at == "before":
            out = self._normed(out)
        return out * F.silu(z)


class SplitDeltaNet(GatedDeltaNet):
    """The gated delta net with a matrix for each projection: Qwen3.5's, OLMo Hybrid's.

    Args:
        d_model, num_k_heads, num_v_heads, head_k_dim, head_v_dim, kernel, eps: as
            `GatedDeltaNet`.
        step: factor on the step towards the value. With 2 the memory may also turn the
            old value round.

    Shapes: as `GatedDeltaNet`.

    Source: Qwen3_5GatedDeltaNet and OlmoHybridGatedDeltaNet in Hugging Face's
    transformers; Grazzi et al. 2025 for a step of up to 2.
    """

    def __init__(
        self,
        d_model: int,
        num_k_heads: int,
        num_v_heads: int,
        head_k_dim: int,
        head_v_dim: int,
        kernel: int = 4,
        eps: float = 1e-6,
        *,
        step: float = 1.0,
    ) -> None:
        super().__init__(
            d_model, num_k_heads, num_v_heads, head_k_dim, head_v_dim, kernel, eps
        )
        del self.in_proj_qkvz, self.in_proj_ba
        keys, values = num_k_heads * head_k_dim, num_v_heads * head_v_dim
        self.step, self.splits = step, [keys, keys, values]
        self.in_proj_qkv = nn.Linear(d_model, 2 * keys + values, bias=False)
        self.in_proj_z = nn.Linear(d_model, values, bias=False)
        self.in_proj_b = nn.Linear(d_model, num_v_heads, bias=False)
        self.in_proj_a = nn.Linear(d_model, num_v_heads, bias=False)

    def _projected(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = torch.split(self.in_proj_qkv(x), self.splits, -1)
        small = torch.cat([self.in_proj_b.weight, self.in_proj_a.weight])
        return q, k, v, self.in_proj_z(x), *F.linear(x, small).chunk(2, -1)

    def _step(self, b: Tensor) -> Tensor:
        return super()._step(b) * self.step


class LayerLightning(LightningAttention):
    """Lightning attention whose decay follows from the layer's place.

    Args:
        d_model, num_heads, head_dim, eps: as `LightningAttention`.
        place: the number of this layer, and how many layers there are.

    Shapes: as `LightningAttention`. The rates are not in the state dict of the book's
    models; a model that was made on `meta` gets them with its memory.

    Source: `get_slope_rate` of MiniMaxLightningAttention in Hugging Face's
    transformers.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_dim: int,
        place: tuple[int, int],
        eps: float = 1e-6,
    ) -> None:
        layer, layers = place
        with torch.device("cpu"):  # of a model on meta, too, the rates have values
            head = torch.arange(num_heads, dtype=torch.float32) + 1
            rates = (1 / 2 ** (8 / num_heads)) ** head
            rates = rates * (1 - layer / (layers - 1 + 1e-5) + 1e-5)
        super().__init__(d_model, num_heads, head_dim, rates, eps)
        self._rates = rates  # not a buffer: they stay where they have values
        rates = rates.to(self.out_proj.weight.device)
        self.register_buffer("rates", rates, persistent=False)

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        form: str = "chunked",
        chunk_size: int = 64,
    ) -> tuple[Tensor, Tensor]:
        """As `LightningAttention.forward`."""
        if self.rates.is_meta and not x.is_meta:
            # load_state_dict(assign=True) fills a meta model without moving it.
            self._buffers["rates"] = self._rates.to(x.device)
        return super().forward(x, state, form, chunk_size)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Follow the module to another device, but not to another dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._buffers["rates"] = self._rates.to(self.rates.device)
        return self


# --- Layers that no chapter needed ----------------------------------------------------


class _ConvState(NamedTuple):
    """What a short convolution keeps: its last inputs, (B, kernel - 1, d_model)."""

    conv: Tensor


class ShortConvolution(nn.Module):
    """A gated short convolution: LFM2's layer without attention.

    Of an input two gates B, C and u are made; the output is C * conv(B * u), projected.

    Args:
        d_model: width of the model.
        kernel: tokens that the convolution sees.
        bias: whether projections and convolution have one.

    Source: Lfm2ShortConv in Hugging Face's transformers, with its names of parameters.
    """

    def __init__(self, d_model: int, kernel: int = 3, bias: bool = False) -> None:
        super().__init__()
        self.in_proj = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.conv = nn.Conv1d(d_model, d_model, kernel, groups=d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self, x: Tensor, state: _ConvState | None = None
    ) -> tuple[Tensor, _ConvState]:
        """From (B, T, d_model) to the same, and the last inputs."""
        b, c, u = self.in_proj(x).chunk(3, -1)
        mixed, last = causal_conv(
            b * u, self.conv.weight, self.conv.bias, state and state.conv
        )
        return self.out_proj(c * mixed), _ConvState(last)


class SelectiveStateSpace(nn.Module):
    """Mamba's layer: a state of `d_state` numbers for each channel, chosen steps.

    Args:
        d_model: width of the model.
        d_inner: channels.
        d_state: numbers that are kept of each channel.
        rank: of the projection to the steps.
        kernel: tokens of the short convolution.
        bias, conv_bias: of the projections in and out, and of the convolution.
        norms: None, 'plain' for norms of steps, B and C without gains (Falcon Mamba),
            or 'gains' for norms with gains (Jamba).
        eps: that of these norms.

    Source: MambaMixer, FalconMambaMixer and JambaMambaMixer in Hugging Face's
    transformers, with their names of parameters; Gu and Dao 2023, section 3.
    """

    def __init__(
        self,
        d_model: int,
        d_inner: int,
        d_state: int,
        rank: int,
        kernel: int = 4,
        *,
        bias: bool = False,
        conv_bias: bool = True,
        norms: str | None = None,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.widths, self.norms, self.eps = [rank, d_state, d_state], norms, eps
        self.in_proj = nn.Linear(d_model, 2 * d_inner, bias=bias)
        self.conv1d = nn.Conv1d(
            d_inner, d_inner, kernel, groups=d_inner, bias=conv_bias
        )
        self.x_proj = nn.Linear(d_inner, sum(self.widths), bias=False)
        self.dt_proj = nn.Linear(rank, d_inner)
        rates = torch.arange(1.0, d_state + 1).log()
        self.A_log = nn.Parameter(rates.expand(d_inner, -1).clone())
        self.D = nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, d_model, bias=bias)
        if norms == "gains":
            self.dt_layernorm = RMSNorm(rank, eps)
            self.b_layernorm = RMSNorm(d_state, eps)
            self.c_layernorm = RMSNorm(d_state, eps)

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        form: str = "chunked",
        chunk_size: int = 64,
    ) -> tuple[Tensor, LayerState]:
        """From (B, T, d_model) to the same; the memory is (B, d_inner, d_state)."""
        u, z = self.in_proj(x).chunk(2, -1)
        mixed, conv = causal_conv(
            u, self.conv1d.weight, self.conv1d.bias, state and state.conv
        )
        u = F.silu(mixed)
        dt, B, C = self._normed(torch.split(self.x_proj(u), self.widths, -1))
        out, memory = selective_scan(
            u, F.softplus(self.dt_proj(dt)), -self.A_log.exp(), B, C, self.D,
            state and state.memory, form=form, chunk_size=chunk_size,
        )  # fmt: skip
        return self.out_proj(out * F.silu(z)), LayerState(conv, memory)

    def _normed(self, parts: Iterable[Tensor]) -> Iterable[Tensor]:
        if self.norms == "plain":
            return (rms_norm(x, x.shape[-1:], None, self.eps) for x in parts)
        if self.norms == "gains":
            norms = (self.dt_layernorm, self.b_layernorm, self.c_layernorm)
            return (norm(x) for norm, x in zip(norms, parts, strict=True))
        return parts


# --- By data --------------------------------------------------------------------------

# The name in the data: the layer, and how often a token goes through its memory (to
# read, to write; the delta rule also asks what stands there).
MIXERS: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "mamba": (SelectiveStateSpace, 2),
    "mamba2": (_FamilyMamba2, 2),
    "lightning": (LayerLightning, 2),
    "delta": (GatedDeltaNet, 3),
    "split_delta": (SplitDeltaNet, 3),
    "kimi_delta": (KimiDeltaAttention, 3),
    "conv": (ShortConvolution, 0),
}


def _mixer(d_model: int, layer: Layer) -> nn.Module | None:
    """The recurrent part of a layer, or None if it has none."""
    if layer.mixer is None:
        return None
    options = dict(layer.mixer)
    build, _ = MIXERS[options.pop("kind")]
    return build(d_model, **options)


def _mixer_sizes(d_model: int, layer: Layer) -> tuple[int, int]:
    """What the recurrent part of a layer keeps, and the operations on its memory.

    Returns:
        Numbers that are kept of one text, whatever its length, those of the convolution
        included; and for each token two operations for every number of the memory and
        every time that the token goes through it.
    """
    if layer.mixer is None:
        return 0, 0
    with torch.device("meta"), torch.no_grad():
        part = _mixer(d_model, layer)
        assert part is not None
        _, state = part(torch.empty(1, 1, d_model))
    parts = [state] if isinstance(state, Tensor) else list(state)
    passes = MIXERS[layer.mixer["kind"]][1]
    return sum(t.numel() for t in parts), 2 * passes * parts[-1].numel()


class StateCache:
    """What a layer with a recurrent part keeps of a text.

    Args:
        keys: an empty cache for the attention beside it, if there is one.

    Attributes: `state`, None before the first token; `length`, the positions that it
    stands for; `keys`.
    """

    def __init__(self, keys: Any = None) -> None:
        self.keys, self.state, self.length = keys, None, 0

    @property
    def nbytes(self) -> int:
        """Bytes of the state, and of the keys and values beside it."""
        state: Any = self.state
        parts = [state] if isinstance(state, Tensor) else list(state or ())
        own = sum(t.nbytes for t in parts)
        return own + (0 if self.keys is None else int(self.keys.nbytes))

    def update(self, state: Any, new: int) -> None:
        """Keep the state behind `new` more positions."""
        self.state, self.length = state, self.length + new

    def truncate(self, length: int) -> None:
        """Forget everything, with length = 0, or nothing.

        Raises:
            ValueError: on any other length: a state does not forget single tokens.
        """
        if length not in (0, self.length):
            raise ValueError(
                f"a state of {self.length} positions cannot go back to {length}: "
                "forget all, or keep a copy of an earlier state"
            )
        if length == 0:
            self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.state, self.length = None, 0
        if self.keys is not None:
            self.keys.reset()


def _new_layer_cache(layer: Layer, keys: Callable[[], Any]) -> Any:
    """An empty cache for a layer: `keys()` for attention alone, else a `StateCache`."""
    if layer.mixer is None and layer.attention:
        return keys()
    return StateCache(keys() if layer.attention else None)


def _mix(
    attention: nn.Module | None,
    recurrent: nn.Module | None,
    x: Tensor,
    cache: StateCache | None,
    attend: Callable[[nn.Module, Tensor, Any], Tensor],
) -> Tensor:
    """The sum of a recurrent part and attention, whichever of the two there are.

    Args:
        attention: a part of a layer, or None.
        recurrent: another, or None.
        x: shape (B, T, d_model).
        cache: of the layer, or None; it is moved on by T positions.
        attend: calls the attention with x and its own cache.

    Returns:
        Shape (B, T, d_model); zeros if the layer has neither.
    """
    state, y = None, torch.zeros_like(x)
    if recurrent is not None:
        y, state = recurrent(x, None if cache is None else cache.state)
    if attention is not None:
        both = attend(attention, x, None if cache is None else cache.keys)
        y = y + both if recurrent is not None else both
    if cache is not None:
        cache.update(state, x.shape[1])
    return y
