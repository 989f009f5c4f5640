"""The family tree: one decoder, and for each family of models a few lines of data.

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
    "ACTIVATIONS",
    "FAMILIES",
    "MISSING",
    "XIELU",
    "Difference",
    "FamilyAttention",
    "FamilyBlock",
    "FamilyDecoder",
    "Layer",
    "Plan",
    "PlusOneLayerNorm",
    "PlusOneRMSNorm",
    "Rope",
    "assemble",
    "cache_numbers",
    "differences",
    "family_data",
    "greedy",
    "lineage",
    "load_weights",
    "own_lines",
    "parameters",
    "plan_differences",
    "published_weights",
    "read_plan",
    "token_flops",
]
