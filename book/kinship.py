"""The configurations of the chapter on families: one entry of `book/facts.yml` for each.

    plan = read_plan(configuration("gemma2"))

The sizes are the defaults of the family's configuration class, so they are those of one published
model or of none; `label` is what a page calls the family, `year` when it came out.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

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
    "family-granitemoeshared",
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
)


def fact_of(family: str) -> str:
    """The entry of a family, such as `family-gpt-neox` for gpt_neox."""
    return f"family-{re.sub('_', '-', family)}"


def label(family: str) -> str:
    """What a page calls the family."""
    return str(load()[fact_of(family)].values["name"])


def year(family: str) -> int:
    """The year of its paper, or the one in the copyright notice of its code."""
    return int(load()[fact_of(family)].values["year"])


def configuration(family: str) -> dict[str, Any]:
    """What a config.json of the family holds, as far as the facts have it."""
    values = dict(load()[fact_of(family)].values)
    del values["name"], values["year"]
    return {"model_type": family, **values}


@cache
def plan_of(family: str) -> Plan:
    """The plan of that configuration."""
    return read_plan(configuration(family))


def by_year() -> list[str]:
    """All families, the oldest first, in the order of the data within a year."""
    return sorted(FAMILIES, key=year)
