"""What an encoder changes against a causal decoder, in words, for the chapter on families."""

from __future__ import annotations

from functools import cache

import torch

from book.kinship import configuration
from transformer_parts.families.encoders import (
    EncoderPlan,
    FamilyEncoder,
    Stack,
    read_encoder_plan,
)

COLUMNS = ("reads", "a position sees", "positions", "norm", "units", "head")
_READS = {"tokens": "tokens", "patches": "patches of an image", "frames": "frames of a sound"}
_PLACES = {"attn_in": "before", "attn_sum": "on sum"}
_HEADS = {
    "masked": "tokens, at every position",
    "classes": "classes, from the first position",
    "next": "the next token, by the decoder",
}


@cache
def encoder_of(family: str) -> EncoderPlan:
    """The plan of the family's configuration in the facts."""
    return read_encoder_plan(configuration(family))


def words(plan: EncoderPlan) -> dict[str, str]:
    """The choices of a plan, a few words for each column of the table."""
    stacks = [plan.encoder] + ([plan.decoder] if plan.decoder else [])
    p = plan.encoder.plan
    norm = {"rms": "RMS", "layer": "LN"}[p.norm]
    return {
        "reads": _READS[plan.front],
        "a position sees": "; decoder: ".join(map(_sees, stacks)),
        "positions": "; decoder: ".join(dict.fromkeys(map(_positions, stacks))),
        "norm": f"{norm}, {_PLACES[p.norms[0]]}",
        "units": {"gelu": "GELU", "gelu_tanh": "GELU", "relu": "ReLU"}[p.activation]
        + (", gated" if p.gated else ""),
        "head": _HEADS[plan.head["kind"]],
    }


def _sees(stack: Stack) -> str:
    windows = sorted({layer.window for layer in stack.plan.layers if layer.window})
    seen = "the past" if stack.causal else "all"
    for window in windows:
        share = sum(layer.window == window for layer in stack.plan.layers)
        seen = f"{seen}, or the nearest {window} in {share} of {stack.plan.num_layers} layers"
    return f"{seen}, and what was encoded" if stack.cross else seen


def _positions(stack: Stack) -> str:
    if stack.buckets:
        return f"{stack.buckets} buckets of distances"
    bases = sorted({int(rope.base) for rope in stack.plan.ropes.values()}, reverse=True)
    if bases:
        return "RoPE, bases " + " and ".join(f"{base:,}" for base in bases)
    return {"learned": "table", "sinusoids": "sines"}[stack.plan.position]


def millions(plan: EncoderPlan) -> float:
    """Parameters in millions, counted on a model without memory; a tied head once."""
    with torch.device("meta"):
        model = FamilyEncoder(plan)
    return sum(p.numel() for p in model.parameters()) / 1e6
