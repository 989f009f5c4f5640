"""The family tree: one decoder, a few lines of data for each family.

`families.toml` says for every family how it differs from the one that it is like;
`read_plan` makes of that and a published config.json a plan, all choices made;
`FamilyDecoder` assembles the plan from the parts of the other chapters.

This package is written by hand, not woven: its tables are longer than a page.
"""

from transformer_parts.families.counts import (
    cache_numbers,
    parameters,
    token_flops,
)
from transformer_parts.families.mixers import (
    MIXERS,
    LayerLightning,
    SelectiveStateSpace,
    ShortConvolution,
    SplitDeltaNet,
    StateCache,
)
from transformer_parts.families.model import (
    ACTIVATIONS,
    XIELU,
    FamilyAttention,
    FamilyBlock,
    FamilyDecoder,
    PlusOneLayerNorm,
    PlusOneRMSNorm,
    assemble,
    greedy,
)
from transformer_parts.families.plan import (
    FAMILIES,
    MISSING,
    Difference,
    Layer,
    Plan,
    Rope,
    differences,
    family_data,
    lineage,
    own_lines,
    plan_differences,
    read_plan,
)
from transformer_parts.families.weights import load_weights, published_weights

__all__ = [
    "parameters",
    "cache_numbers",
    "token_flops",
    "SplitDeltaNet",
    "LayerLightning",
    "ShortConvolution",
    "SelectiveStateSpace",
    "MIXERS",
    "StateCache",
    "XIELU",
    "ACTIVATIONS",
    "PlusOneRMSNorm",
    "PlusOneLayerNorm",
    "FamilyAttention",
    "FamilyBlock",
    "FamilyDecoder",
    "assemble",
    "greedy",
    "MISSING",
    "FAMILIES",
    "Difference",
    "Rope",
    "Layer",
    "Plan",
    "own_lines",
    "lineage",
    "family_data",
    "differences",
    "plan_differences",
    "read_plan",
    "load_weights",
    "published_weights",
]
