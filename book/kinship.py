"""The configurations of the chapter on families: one entry of `book/facts.yml` for each.

    plan = read_plan(configuration("gemma2"))

The sizes are the defaults of the family's configuration class, so they are those of one published
model or of none; `label` is what a page calls the family, `year` that of its paper or its code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from typing import Any

from torch import Tensor

from book.facts import load
from transformer_parts.families import FAMILIES, Plan, read_plan

FACTS = (
    "family-llama",
    "family-internlm3",
    "family-iquestcoder",
    "family-mistral",
    "family-ministral",
    "family-ministral3",
    "family-qwen2",
    "family-qwen3",
    "family-seed-oss",
    "family-cwm",
    "family-arcee",
    "family-jais2",
    "family-helium",
    "family-ernie4-5",
    "family-smollm3",
    "family-granite",
    "family-hyperclovax",
    "family-hunyuan-v1-dense",
    "family-phi3",
    "family-glm",
    "family-glm4",
    "family-apertus",
    "family-nanochat",
    "family-gemma",
    "family-gemma2",
    "family-vaultgemma",
    "family-gemma3-text",
    "family-olmo",
    "family-olmo2",
    "family-olmo3",
    "family-exaone4",
    "family-cohere",
    "family-cohere2",
    "family-nemotron",
    "family-starcoder2",
    "family-stablelm",
    "family-phi",
    "family-persimmon",
    "family-gpt-neox",
    "family-gpt2",
    "family-openai-gpt",
    "family-gpt-bigcode",
    "family-gpt-neo",
    "family-gptj",
    "family-codegen",
    "family-opt",
    "family-biogpt",
    "family-bloom",
    "family-mpt",
    "family-falcon",
    "family-mixtral",
    "family-qwen2-moe",
    "family-qwen3-moe",
    "family-olmoe",
    "family-flex-olmo",
    "family-granitemoe",
    "family-granite-swa",
    "family-granitemoeshared",
    "family-granitemoe-swa",
    "family-gpt-oss",
    "family-llama4-text",
    "family-deepseek-v2",
    "family-deepseek-v3",
    "family-glm4-moe-lite",
    "family-youtu",
    "family-minicpm3",
    "family-dots1",
    "family-glm4-moe",
    "family-solar-open",
    "family-exaone-moe",
    "family-afmoe",
    "family-minimax-m2",
    "family-hy-v3",
    "family-hunyuan-v1-moe",
    "family-ernie4-5-moe",
    "family-cohere2-moe",
    "family-mellum",
    "family-ctrl",
    "family-xglm",
    "family-dbrx",
    "family-mamba",
    "family-falcon-mamba",
    "family-mamba2",
    "family-jamba",
    "family-bamba",
    "family-falcon-h1",
    "family-granitemoehybrid",
    "family-nemotron-h",
    "family-lfm2",
    "family-lfm2-moe",
    "family-qwen3-next",
    "family-qwen3-5-text",
    "family-qwen3-5-moe-text",
    "family-olmo-hybrid",
    "family-kimi-linear",
    "family-minimax",
)
ENCODER_FACTS = (
    "family-bert",
    "family-roberta",
    "family-vit",
    "family-modernbert",
    "family-t5",
    "family-whisper",
)


def fact_of(family: str) -> str:
    """The entry of a family, such as `family-gpt-neox` for gpt_neox."""
    return f"family-{re.sub('_', '-', family)}"


def label(family: str) -> str:
    """What a page calls the family."""
    return str(load()[fact_of(family)].values["name"])


def year(family: str) -> int:
    """The year of its paper, or the one in the copyright notice of its code.

    A notice can be later than the model: the code of some families came into the library long
    after their weights were published.
    """
    return int(load()[fact_of(family)].values["year"])


def configuration(family: str) -> dict[str, Any]:
    """What a config.json of the family holds, as far as the facts have it."""
    values = dict(load()[fact_of(family)].values)
    del values["name"], values["year"]
    listed = {
        key: [int(one) for one in value.split(", ")]
        for key, value in values.items()
        if isinstance(value, str) and re.fullmatch(r"\d+(, \d+)+", value)
    }
    return {"model_type": family, **nested({**values, **listed})}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values whose names have a point, such as `rope_parameters.factor`, as tables."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        table, _, inner = key.partition(".")
        if inner:
            found.setdefault(table, {})[inner] = value
        else:
            found[table] = value
    return found


@cache
def plan_of(family: str) -> Plan:
    """The plan of that configuration."""
    return read_plan(configuration(family))


def by_year() -> list[str]:
    """All families, the oldest first, in the order of the data within a year."""
    return sorted(FAMILIES, key=year)


# ---------------------------------------------------------------- a plan in words

COLUMNS = (
    "norm", "placed", "heads", "memory", "positions", "q, k", "window", "units", "biases",
    "factors",
)  # fmt: skip
_PLACES = {
    ("attn_in", "ffn_in"): "before",
    ("attn_out", "ffn_out"): "after",
    ("attn_in", "attn_out", "ffn_in", "ffn_out"): "both",
    ("attn_sum", "ffn_sum"): "on sum",
    ("attn_stream", "ffn_stream"): "stream",
}
# What a layer has in place of attention or beside it.
_MEMORIES = {
    "mamba": "Mamba", "mamba2": "Mamba-2", "lightning": "lightning", "delta": "delta",
    "split_delta": "delta", "kimi_delta": "delta", "conv": "conv",
}  # fmt: skip
_GATED = {"silu": "SwiGLU", "gelu": "GeGLU", "gelu_tanh": "GeGLU"}
_PLAIN = {
    "relu": "ReLU", "gelu": "GELU", "gelu_tanh": "GELU", "relu2": "ReLU²", "xielu": "xIELU"
}  # fmt: skip


def words(plan: Plan) -> dict[str, str]:
    """The choices of a plan, a word for each column of the table."""
    return {
        "norm": {"rms": "RMS", "layer": "LN"}[plan.norm],
        "placed": "parallel" if plan.parallel else _PLACES[plan.norms],
        "heads": _heads(plan),
        "memory": _memory(plan),
        "positions": _positions(plan),
        "q, k": {None: "–", "rms": "RMS", "layer": "LN", "l2": "l2"}[plan.qk_norm],
        "window": _window(plan),
        "units": _units(plan),
        "biases": _biases(plan),
        "factors": _factors(plan),
    }


def _memory(plan: Plan) -> str:
    kinds = {_MEMORIES[layer.mixer["kind"]] for layer in plan.layers if layer.mixer}
    return ", ".join(sorted(kinds)) or "–"


def _units(plan: Plan) -> str:
    if plan.experts:
        return "experts"
    if all(layer.d_ff == 0 for layer in plan.layers):
        return "–"
    return (_GATED if plan.gated else _PLAIN)[plan.activation]


def _heads(plan: Plan) -> str:
    if not any(layer.attention for layer in plan.layers):
        return "–"
    if plan.mla:
        return "MLA"
    if plan.num_kv_heads == plan.num_heads:
        return "MHA"
    return "MQA" if plan.num_kv_heads == 1 else "GQA"


def _positions(plan: Plan) -> str:
    if plan.position != "rope":
        return {"learned": "table", "alibi": "ALiBi", "sinusoids": "sines", "none": "none"}[
            plan.position
        ]
    if not all(layer.rope for layer in plan.layers if layer.attention):
        return "some"
    return "RoPE" if all(r.dim == plan.head_dim for r in plan.ropes.values()) else "part"


def _window(plan: Plan) -> str:
    if any(layer.chunk for layer in plan.layers):
        return "chunks"
    near = sum(layer.window is not None for layer in plan.layers)
    return "–" if near == 0 else "all" if near == len(plan.layers) else "some"


def _biases(plan: Plan) -> str:
    has = plan.qkv_bias, plan.out_bias, plan.mlp_bias
    if all(has):
        return "all"
    return {(False,) * 3: "–", (True, False, False): "q, k, v"}.get(has, "some")


_FACTORS = ("cap", "sinks", "scale")


def _factors(plan: Plan) -> str:
    scaled = (plan.embed_scale, plan.residual_scale, plan.logit_scale)
    there = (bool(plan.attn_cap or plan.logit_cap), plan.sinks, scaled != (1.0, 1.0, 1.0))
    return ", ".join(w for w, has in zip(_FACTORS, there, strict=True) if has) or "–"


# What may be asked of the table: the column, and the words that fit.
FEATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "LayerNorm": ("norm", ("LN",)),
    "norms after the branch": ("placed", ("after", "both")),
    "parallel branches": ("placed", ("parallel",)),
    "as many heads of keys": ("heads", ("MHA",)),
    "shared keys": ("heads", ("GQA", "MQA")),
    "latent attention": ("heads", ("MLA",)),
    "recurrent layers": ("memory", tuple(sorted({*_MEMORIES.values()}))),
    "no attention": ("heads", ("–",)),
    "RoPE on a part": ("positions", ("part",)),
    "layers without RoPE": ("positions", ("some",)),
    "no positions at all": ("positions", ("none",)),
    "positions without RoPE": ("positions", ("table", "ALiBi", "sines")),
    "QK-norm": ("q, k", ("RMS", "LN", "l2")),
    "windows or chunks": ("window", ("all", "some", "chunks")),
    "experts": ("units", ("experts",)),
    "no gate": ("units", ("ReLU", "GELU", "ReLU²", "xIELU")),
    "biases": ("biases", ("all", "some", "q, k, v")),
    "caps, sinks or scales": (
        "factors",
        tuple(", ".join(c) for n in (1, 2, 3) for c in combinations(_FACTORS, n)),
    ),
}
PERIODS: dict[str, range] = {
    "any year": range(2018, 2100),
    "to 2022": range(2018, 2023),
    "2023 and 2024": range(2023, 2025),
    "from 2025 on": range(2025, 2100),
}


def fitting(feature: str, period: str = "any year") -> list[str]:
    """The families of a period that have a feature, the oldest first."""
    column, good = FEATURES[feature]
    return [
        family
        for family in by_year()
        if year(family) in PERIODS[period] and words(plan_of(family))[column] in good
    ]


def patient(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the book's own model with one mistake, for an exercise of the chapter.

    All names and shapes stay, so that they load. What is wrong is said in the exercise's solution.
    """
    name = "model.layers.1.self_attn.k_proj.weight"
    heads = tensors[name].unflatten(0, (4, -1))  # type: ignore[no-untyped-call]
    return {**tensors, name: heads.roll(1, 0).flatten(0, 1)}
