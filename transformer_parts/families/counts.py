"""What a plan costs, counted on a model without memory."""

from __future__ import annotations

import torch

from transformer_parts.families.mixers import _mixer_sizes
from transformer_parts.families.model import FamilyDecoder
from transformer_parts.families.plan import Plan

__all__ = ["cache_numbers", "parameters", "token_flops"]


# From notebooks/22_families.ipynb#what-it-costs
def _names(plan: Plan) -> dict[str, torch.Size]:
    with torch.device("meta"):
        model = FamilyDecoder(plan)
    return {name: p.shape for name, p in model.named_parameters()}


def _part(name: str) -> str:
    """Which part of the model a parameter belongs to."""
    if name.startswith(("embed.", "positions.")):
        return "embedding"
    if name.startswith("head."):
        return "head"
    if "norm" in name:
        return "norms"
    if ".recurrent." in name:
        return "recurrent"
    return "attention" if ".attn." in name else "feed_forward"


def _of_experts(name: str) -> bool:
    return name.endswith((".ffn.w_in", ".ffn.w_down", ".ffn.b_in", ".ffn.b_down"))


def parameters(plan: Plan) -> dict[str, int]:
    """Parameters by part, in all, and those that one token uses.

    Returns:
        The keys 'embedding' (with learned positions), 'attention', 'recurrent' (what
        stands in its place or beside it), 'feed_forward', 'norms', 'head' (0 if it is
        the embedding), 'total', and 'active': of experts only the chosen ones.
    """
    found = dict.fromkeys(
        ("embedding", "attention", "recurrent", "feed_forward", "norms", "head"), 0
    )
    idle = 0
    for name, shape in _names(plan).items():
        found[_part(name)] += shape.numel()
        if plan.experts and _of_experts(name):
            idle += shape.numel() // shape[0] * (shape[0] - plan.experts["top_k"])
    total = sum(found.values())
    return {**found, "total": total, "active": total - idle}


def cache_numbers(plan: Plan, length: int) -> int:
    """Numbers that a cache has to keep for one sequence of `length` tokens.

    A layer with a window keeps no more than its window, one with chunks no more than a
    chunk; latent attention keeps its latent and the shared rotated key. A recurrent
    part keeps its state and the last inputs of its convolution, whatever the length.
    """
    per = 2 * plan.num_kv_heads * plan.head_dim
    if plan.mla is not None:
        per = plan.mla["kv_lora_rank"] + plan.mla["qk_rope_head_dim"]
    kept = 0
    for layer in plan.layers:
        bounds = (b for b in (layer.window, layer.chunk) if b is not None)
        kept += min(length, *bounds, length) if layer.attention else 0
    return per * kept + sum(state for state, _ in _recurrent(plan))


def _recurrent(plan: Plan) -> list[tuple[int, int]]:
    """For each layer the numbers of its state, and the operations on its memory."""
    known: list[tuple[dict[str, object] | None, tuple[int, int]]] = [(None, (0, 0))]
    found = []
    for layer in plan.layers:
        sizes = next((s for mixer, s in known if _same(mixer, layer.mixer)), None)
        if sizes is None:
            sizes = _mixer_sizes(plan.d_model, layer)
            known.append((layer.mixer, sizes))
        found.append(sizes)
    return found


def _same(a: dict[str, object] | None, b: dict[str, object] | None) -> bool:
    """Whether two recurrent parts have the same sizes: all but their places."""
    return {**(a or {}), "place": None} == {**(b or {}), "place": None}


def token_flops(plan: Plan, length: int) -> int:
    """Operations for one new token with `length` tokens in the cache, itself included.

    Two for each weight of a matrix that the token meets (of experts the chosen ones,
    the head included), and in each layer two for each number of the keys and of the
    values that it sees. For latent attention in the absorbed form. In a recurrent part
    two for each weight of the convolution, and two for each number of the memory
    whenever the token reads it or writes to it.
    """
    p, matrices = plan, 0
    for name, shape in _names(plan).items():
        if (
            len(shape) < 2
            or name.startswith(("embed.", "positions."))
            or "norm" in name
            or name.endswith((".ffn.b_in", ".ffn.b_down"))  # a row for each expert
        ):
            continue
        used = 0 if "A_log" in name else shape.numel()
        if p.experts and len(shape) == 3 and _of_experts(name):
            used = used // shape[0] * p.experts["top_k"]
        matrices += used
    if p.tie:
        matrices += p.vocab_size * p.d_model
    seen = 0
    for layer in p.layers:
        bounds = (b for b in (layer.window, layer.chunk) if b is not None)
        seen += min(length, *bounds, length) if layer.attention else 0
    width = 2 * p.head_dim
    if p.mla is not None:
        width = 2 * p.mla["kv_lora_rank"] + p.mla["qk_rope_head_dim"]
    memories = sum(operations for _, operations in _recurrent(p))
    return 2 * matrices + 2 * p.num_heads * width * seen + memories
