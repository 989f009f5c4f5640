"""Where the published weights hold a tensor of ours."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from transformer_parts.families.encoders.plan import EncoderPlan, Stack
from transformer_parts.families.weights import _by_parts, _half, _Piece

__all__ = ["pieces"]

# From notebooks/22_families.ipynb#encoders-from-the-same-parts
_LINEAR = {
    "attn.q_proj": "q", "attn.k_proj": "k", "attn.v_proj": "v", "attn.out_proj": "o",
    "cross.q_proj": "cross_q", "cross.k_proj": "cross_k", "cross.v_proj": "cross_v",
    "cross.out_proj": "cross_o", "ffn.w_gate": "gate", "ffn.w_up": "up",
    "ffn.w_down": "down",
}  # fmt: skip
_TOP = {
    "embed": "embed", "types": "types", "front.project": "project",
    "front.conv1": "conv1", "front.conv2": "conv2", "head.dense": "dense",
    "head.norm": "head_norm", "head": "head",
}  # fmt: skip
_WHOLE = {"first": "first", "head.bias": "head_bias"}  # names that get no suffix


def pieces(ours: str, tensor: Tensor, plan: EncoderPlan) -> list[_Piece]:
    """The published pieces of `tensor`, which the model calls `ours`."""
    names: dict[str, str] = plan.data["names"]
    if ours in _WHOLE and _WHOLE[ours] in names:
        return [_Piece(names[_WHOLE[ours]])]
    which, _, rest = ours.partition(".")
    if which not in ("encoder", "decoder"):
        module, _, kind = ours.rpartition(".")
        return [_Piece(f"{names[_TOP[module]]}.{kind}")]
    stack = plan.encoder if which == "encoder" else plan.decoder
    assert stack is not None
    return _of_stack(rest, tensor, stack, plan.data, plan.data[f"{which}_names"])


def _of_stack(
    ours: str, tensor: Tensor, stack: Stack, data: dict[str, Any], names: dict[str, str]
) -> list[_Piece]:
    module, _, kind = ours.rpartition(".")
    if module in ("positions", "relative"):
        row = module == "positions" and data["position_row"]
        return [_Piece(names[module], (None,) if row else ())]
    if module in ("embed_norm", "norm"):
        return [_Piece(f"{names[module]}.{kind}")]
    _, i, part = module.split(".", 2)
    layer = names["layer"].format(i=i)
    if part.startswith("norms."):
        return [_Piece(f"{layer}{names[part.removeprefix('norms.')]}.{kind}")]
    key = _LINEAR[part]
    if key in ("q", "k", "v") and "qkv" in names:
        rows = _by_parts(stack.plan)["qkv".index(key)]
        return [_Piece(f"{layer}{names['qkv']}.{kind}", (), rows)]
    if key in ("gate", "up") and data["gate_up"]:
        return [_half(f"{layer}{names['gate_up']}.{kind}", tensor, key == "up")]
    return [_Piece(f"{layer}{names[key]}.{kind}")]
