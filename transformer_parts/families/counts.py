"""What a plan costs, counted on a model without memory."""

from __future__ import annotations

import torch

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
    return "attention" if ".attn." in name else "feed_forward"


def parameters(plan: Plan) -> dict[str, int]:
    """Parameters by part, in all, and those that one token uses.

    Returns:
        The keys 'embedding' (with learned positions), 'attention', 'feed_forward',
        'norms', 'head' (0 if it is the embedding), 'total', and 'active': of experts
        only the chosen ones.
    """
    found = dict.fromkeys(
        ("embedding", "attention", "feed_forward", "norms", "head"), 0
    )
    idle = 0
    for name, shape in _names(plan).items():
        found[_part(name)] += shape.numel()
        if plan.experts and name.endswith(("w_in", "ffn.w_down", "b_in", "b_down")):
            idle += shape.numel() // shape[0] * (shape[0] - plan.experts["top_k"])
    total = sum(found.values())
    return {**found, "total": total, "active": total - idle}


def cache_numbers(plan: Plan, length: int) -> int:
    """Numbers that a cache has to keep for one sequence of `length` tokens.

    A layer with a window keeps no more than its window, one with chunks no more than a
    chunk; latent attention keeps its latent and the shared rotated key.
    """
    per = 2 * plan.num_kv_heads * plan.head_dim
    if plan.mla is not None:
        per = plan.mla["kv_lora_rank"] + plan.mla["qk_rope_head_dim"]
    kept = 0
    for layer in plan.layers:
        bounds = (b for b in (layer.window, layer.chunk) if b is not None)
        kept += min(length, *bounds, length)
    return per * kept


def token_flops(plan: Plan, length: int) -> int:
    """Operations for one new token with `length` tokens in the cache, itself included.

    Two for each weight of a matrix that the token meets (of experts the chosen ones,
    the head included), and in each layer two for each number of the keys and of the
    values that it sees. For latent attention in the absorbed form.
    """
    p, matrices = plan, 0
    for name, shape in _names(plan).items():
        if (
            len(shape) < 2
            or name.startswith(("embed.", "positions."))
            or "norm" in name
        ):
            continue
        used = shape.numel()
        if len(shape) == 3 and p.experts:
            used = used // shape[0] * p.experts["top_k"]
        matrices += used
    if p.tie:
        matrices += p.vocab_size * p.d_model
    seen = 0
    for layer in p.layers:
        bounds = (b for b in (layer.window, layer.chunk) if b is not None)
        seen += min(length, *bounds, length)
    width = 2 * p.head_dim
    if p.mla is not None:
        width = 2 * p.mla["kv_lora_rank"] + p.mla["qk_rope_head_dim"]
    return 2 * matrices + 2 * p.num_heads * width * seen
