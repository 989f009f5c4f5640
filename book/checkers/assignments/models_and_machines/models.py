"""Questions of the assignment: attention_shape, longrope."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

# --- attention_shape ------------------------------------------------------------------------------

Config = dict[str, Any]

_FAMILIES: dict[str, Config] = {
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "starcoder2": {"num_key_value_heads": 2},
    "phi": {"partial_rotary_factor": 0.5},
    "glm": {"num_key_value_heads": 2, "head_dim": 128, "partial_rotary_factor": 0.5},
}


def _shape(config: Config) -> tuple[int, int, bool, float, int, float]:
    family, heads = config["model_type"], config["num_attention_heads"]
    kv_heads = head_dim = None
    if family == "gemma":
        kv_heads, head_dim = 16, 256
    elif family == "starcoder2":
        kv_heads = 2
    elif family == "glm":
        kv_heads, head_dim = 2, 128
    if "num_key_value_heads" in config:
        kv_heads = config["num_key_value_heads"]
    if "head_dim" in config:
        head_dim = config["head_dim"]
    if kv_heads is None:
        kv_heads = heads
    if head_dim is None:
        head_dim = config["hidden_size"] // heads
    bias = {
        "gemma": config.get("attention_bias", False),
        "starcoder2": config.get("use_bias", True),
        "phi": True,
        "glm": config.get("attention_bias", True),
    }[family]
    base, part, factor = 10000.0, 0.5 if family in ("phi", "glm") else 1.0, 1.0
    # From the weakest source to the strongest.
    for source in (config, config.get("rope_scaling"), config.get("rope_parameters")):
        if source is not None and source.get("rope_theta") is not None:
            base = source["rope_theta"]
        if source is not None and source.get("partial_rotary_factor") is not None:
            part = source["partial_rotary_factor"]
        if source is not None and source is not config and source.get("factor") is not None:
            factor = source["factor"]
    return kv_heads, head_dim, bias, float(base), int(head_dim * part), float(factor)


def _entry(config: Config) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found


def _first(*values: Any) -> Any:
    return next(v for v in values if v is not None)


@in_parts
def _shape_with(
    absent: Callable[[Config], Config] = lambda c: {**_FAMILIES[c["model_type"]], **c},
    kv_heads: Callable[[Config], Any] = lambda c: (
        c.get("num_key_value_heads") or c["num_attention_heads"]
    ),
    head_dim: Callable[[Config], Any] = lambda c: (
        c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    ),
    bias: Callable[[Config], Any] = lambda c: (
        c["model_type"] == "phi"
        or c.get(
            "use_bias" if c["model_type"] == "starcoder2" else "attention_bias",
            c["model_type"] != "gemma",
        )
    ),
    entry: Callable[[Config], Any] = _entry,
    pick: Callable[[Any, Any], tuple[Any, ...]] = lambda inner, outer: (inner, outer),
    turned: Callable[[int, float], int] = lambda d, part: int(d * part),
    default: float = 10000.0,
    scale: Callable[[float], float] = lambda factor: factor,
) -> Answer:
    def answer(config: Config) -> tuple[Any, ...]:
        c = absent(config)
        inner, dim = entry(config), head_dim(c)
        base = _first(*pick(inner.get("rope_theta"), config.get("rope_theta")), default)
        part = _first(
            *pick(inner.get("partial_rotary_factor"), config.get("partial_rotary_factor")),
            _FAMILIES[config["model_type"]].get("partial_rotary_factor", 1.0),
        )
        factor = scale(_first(inner.get("factor"), 1.0))
        return kv_heads(c), dim, bool(bias(c)), float(base), turned(dim, part), float(factor)

    return answer


def _config_case(name: str, family: str, width: int, heads: int, **more: Any) -> Case:
    config = {"model_type": family, "hidden_size": width, "num_attention_heads": heads, **more}
    return Case(name, lambda: (dict(config),), EXACT)


_SHAPE = Exercise(
    title="Configurations of four more families",
    oracle=_shape,
    cases=(
        _config_case("values: like Gemma 7B", "gemma", 3072, 16, num_key_value_heads=16,
                     head_dim=256, attention_bias=False, rope_theta=10000.0),
        _config_case("values: a Gemma that says nothing", "gemma", 2048, 8),
        _config_case("values: a Gemma with biases", "gemma", 1024, 8, attention_bias=True,
                     num_key_value_heads=1, head_dim=64),
        _config_case("values: like StarCoder2 3B", "starcoder2", 3072, 24, use_bias=True,
                     num_key_value_heads=2, rope_theta=999999.4420358813),
        _config_case("values: a StarCoder2 that says nothing", "starcoder2", 4608, 36),
        _config_case("values: a StarCoder2 without biases", "starcoder2", 512, 8, use_bias=False,
                     attention_bias=True, num_key_value_heads=4),
        _config_case("values: like Phi-1.5", "phi", 2048, 32,
                     partial_rotary_factor=0.5, rope_theta=10000.0),
        _config_case("values: a Phi that says it has no biases", "phi", 1024, 16,
                     attention_bias=False, use_bias=False, head_dim=80),
        _config_case("values: like GLM-4 9B", "glm", 4096, 32, num_key_value_heads=2,
                     head_dim=128, attention_bias=True, rope_theta=10000.0),
        _config_case("values: a GLM that says nothing", "glm", 2048, 32),
        _config_case("values: a GLM without biases", "glm", 1024, 16, attention_bias=False,
                     use_bias=True, head_dim=32, num_key_value_heads=4),
        _config_case("nulls: heads of a Gemma", "gemma", 2048, 8, num_key_value_heads=None),
        _config_case("nulls: width of a Gemma's heads", "gemma", 2048, 16, head_dim=None),
        _config_case("nulls: both in a GLM", "glm", 1536, 24, head_dim=None,
                     num_key_value_heads=None),
        _config_case("nulls: heads of a StarCoder2", "starcoder2", 768, 12,
                     num_key_value_heads=None, head_dim=None),
        _config_case("nulls: heads of a Phi", "phi", 2048, 32, num_key_value_heads=None,
                     partial_rotary_factor=None, rope_scaling=None),
        _config_case("nulls: a base that is null", "starcoder2", 1024, 16, rope_theta=None,
                     head_dim=None, rope_scaling=None, rope_parameters=None),
        _config_case("rope: like Phi-2, the old form", "phi", 2560, 32, rope_theta=10000.0,
                     partial_rotary_factor=0.4, rope_scaling=None),
        _config_case("rope: the new form", "phi", 2560, 32, rope_parameters={
            "rope_type": "default", "rope_theta": 250000.0, "partial_rotary_factor": 0.25}),
        _config_case("rope: old scaling beside a base", "gemma", 1024, 4, rope_theta=500000,
                     rope_scaling={"type": "linear", "factor": 4}),
        _config_case("rope: old scaling, nothing beside it", "glm", 1024, 8, rope_scaling={
            "rope_type": "dynamic", "factor": 2.0}, rope_parameters=None),
        _config_case("rope: new scaling with a base", "starcoder2", 2048, 16, rope_parameters={
            "rope_type": "linear", "factor": 2.5, "rope_theta": 1000000.0}),
        _config_case("rope: both places, the entry counts", "glm", 2048, 16, rope_theta=10000.0,
                     partial_rotary_factor=0.5, rope_parameters={
                         "rope_type": "yarn", "factor": 8.0, "rope_theta": 40000.0,
                         "partial_rotary_factor": 0.25}),
        _config_case("rope: nulls in the entry", "phi", 1024, 8, rope_theta=77000.0,
                     partial_rotary_factor=1.0, rope_parameters={
                         "rope_theta": None, "factor": None, "partial_rotary_factor": None}),
    ),
    wrong=(
        WrongAnswer(
            "null replaced by the family's default",
            "Here null is said on purpose: derive the number from the others. The family's "
            "default is for a key that is absent.",
            _shape_with(absent=lambda c: {
                **_FAMILIES[c["model_type"]], **{k: v for k, v in c.items() if v is not None}}),
        ),
        WrongAnswer(
            "null read as None",
            "dict.get returns None for a key that is there with null. Derive the number then.",
            _shape_with(
                kv_heads=lambda c: c.get("num_key_value_heads", c["num_attention_heads"]),
                head_dim=lambda c: c.get("head_dim", c["hidden_size"] // c["num_attention_heads"]),
                turned=lambda d, part: int((d or 0) * part),
            ),
        ),
        WrongAnswer(
            "a missing number counted as 0",
            "What a configuration leaves out is the family's default or derived, never 0.",
            _shape_with(
                absent=lambda c: c,
                kv_heads=lambda c: c.get("num_key_value_heads") or 0,
                head_dim=lambda c: c.get("head_dim") or 0,
            ),
        ),
        WrongAnswer(
            "the family's default heads forgotten",
            "An absent num_key_value_heads has a default in this table, which need not be H.",
            _shape_with(absent=lambda c: {
                **_FAMILIES[c["model_type"]], "num_key_value_heads": None, **c}),
        ),
        WrongAnswer(
            "head_dim always the quotient",
            "The configuration or its family may give head_dim. Divide only if neither does.",
            _shape_with(head_dim=lambda c: c["hidden_size"] // c["num_attention_heads"]),
        ),
        WrongAnswer(
            "attention_bias in every family",
            "StarCoder2's key is called use_bias, and Phi has biases whatever it says.",
            _shape_with(bias=lambda c: c.get("attention_bias", c["model_type"] != "gemma")),
        ),
        WrongAnswer(
            "no biases unless the file says so",
            "An absent key means biases in StarCoder2 and GLM, and Phi has them always.",
            _shape_with(bias=lambda c: c.get(
                "use_bias" if c["model_type"] == "starcoder2" else "attention_bias", False)),
        ),
        WrongAnswer(
            "every feature turns",
            "Only a part of a head's features turns if partial_rotary_factor is below 1.",
            _shape_with(turned=lambda d, part: d),
        ),
        WrongAnswer(
            "only the old form of the entry",
            "Newer files call it rope_parameters, and the base is in it.",
            _shape_with(entry=lambda c: c.get("rope_scaling") or {}),
        ),
        WrongAnswer(
            "only the new form of the entry",
            "Older files call it rope_scaling, with the base beside it.",
            _shape_with(entry=lambda c: c.get("rope_parameters") or {}),
        ),
        WrongAnswer(
            "a null entry opened",
            "The entry may be null, which has no keys: take an empty dictionary instead.",
            _shape_with(entry=lambda c: c.get("rope_parameters", c.get("rope_scaling", {}))),
        ),
        WrongAnswer(
            "the top level before the entry",
            "Where both give a number, the one inside the entry counts.",
            _shape_with(pick=lambda inner, outer: (outer, inner)),
        ),
        WrongAnswer(
            "the base only looked for in the entry",
            "Without a number in the entry the one at the top level counts.",
            _shape_with(pick=lambda inner, outer: (inner,)),
        ),
    ),
    variants=(_shape_with(),),
)  # fmt: skip


# --- longrope -------------------------------------------------------------------------------------


def _longrope(
    entry: Mapping[str, Any], head_dim: int, base: float, max_len: int, length: int
) -> tuple[Tensor, float]:
    old = entry["original_max_position_embeddings"]
    factors = entry["short_factor"] if length <= old else entry["long_factor"]
    frequencies = [math.pow(base, -2 * k / head_dim) / f for k, f in enumerate(factors)]
    scale = entry.get("factor")
    if scale is None:
        scale = max_len / old
    loud = entry.get("attention_factor")
    if loud is None:
        loud = math.sqrt(1 + math.log(scale) / math.log(old)) if scale > 1 else 1.0
    return torch.tensor(frequencies, dtype=torch.float64), float(loud)


@in_parts
def _longrope_with(
    use_long: Callable[[int, int, int], bool] = lambda length, old, most: length > old,
    apply: Callable[[Tensor, Tensor], Tensor] = lambda theta, f: theta / f,
    scale: Callable[..., float] = lambda given, most, old, length: given or most / old,
    loud: Callable[[float, int, int], float] = lambda s, old, most: math.sqrt(
        1 + math.log(max(s, 1.0), old)
    ),
    given: Callable[[Mapping[str, Any]], float | None] = lambda e: e.get("attention_factor"),
    width: Callable[[int], float] = lambda d: d,
    dtype: torch.dtype = torch.float64,
) -> Answer:
    def answer(
        entry: Mapping[str, Any], head_dim: int, base: float, max_len: int, length: int
    ) -> tuple[Tensor, float]:
        old = entry["original_max_position_embeddings"]
        which = "long_factor" if use_long(length, old, max_len) else "short_factor"
        theta = base ** (-torch.arange(0, head_dim, 2, dtype=dtype) / width(head_dim))
        theta = apply(theta, torch.tensor(entry[which], dtype=dtype))
        said = given(entry)
        s = scale(entry.get("factor"), max_len, old, length)
        return theta.double(), loud(s, old, max_len) if said is None else said

    return answer


def _longrope_case(
    name: str, head_dim: int, base: float, old: int, most: int, length: int, **more: Any
) -> Case:
    half = head_dim // 2
    entry = {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.05 * k for k in range(half)],
        "long_factor": [1.1 + 0.7 * k for k in range(half)],
        "original_max_position_embeddings": old,
        **more,
    }
    return Case(name, lambda: (dict(entry), head_dim, base, most, length), EXACT)


_LONGROPE = Exercise(
    title="A scaling that chapter 15 refuses: LongRoPE",
    oracle=_longrope,
    cases=(
        _longrope_case("values: like Phi-3 mini, short", 96, 1e4, 4096, 131072, 1000),
        _longrope_case("values: like Phi-3 mini, long", 96, 1e4, 4096, 131072, 60000),
        _longrope_case("values: a small head, four times", 8, 500.0, 256, 1024, 700),
        _longrope_case("values: a small head, short", 8, 1e6, 2048, 16384, 77),
        _longrope_case("switch: as long as before", 8, 1e4, 4096, 32768, 4096),
        _longrope_case("switch: one more", 8, 1e4, 4096, 32768, 4097),
        _longrope_case("switch: the whole new length", 16, 1e4, 1024, 8192, 8192),
        _longrope_case("switch: a single position", 4, 1e4, 1024, 8192, 1),
        _longrope_case("given: factor", 8, 1e4, 4096, 131072, 9000, factor=4.0),
        _longrope_case("given: attention_factor", 8, 1e4, 4096, 131072, 9000,
                       attention_factor=1.25),
        _longrope_case("given: both", 8, 1e4, 4096, 131072, 100, factor=16.0,
                       attention_factor=0.75),
        _longrope_case("given: both null", 8, 1e4, 4096, 65536, 100, factor=None,
                       attention_factor=None),
        _longrope_case("given: nothing is stretched", 8, 1e4, 4096, 4096, 100),
        _longrope_case("given: shorter than before", 8, 1e4, 4096, 2048, 100),
    ),
    wrong=(
        WrongAnswer(
            "frequencies multiplied by the factors",
            "A factor stretches the wavelength, so that the frequency is divided by it.",
            _longrope_with(apply=lambda theta, f: theta * f),
        ),
        WrongAnswer(
            "short and long exchanged",
            "The short factors are for lengths that training had, the long ones for more.",
            _longrope_with(use_long=lambda length, old, most: length <= old),
        ),
        WrongAnswer(
            "the long factors one position too early",
            "A sequence of exactly the old length still has the short factors.",
            _longrope_with(use_long=lambda length, old, most: length >= old),
        ),
        WrongAnswer(
            "chosen by what the model could read",
            "The length of the sequence at hand decides, not the model's limit.",
            _longrope_with(use_long=lambda length, old, most: most > old),
        ),
        WrongAnswer(
            "chosen by half of the model's limit",
            "The switch is at the original length, which the entry gives.",
            _longrope_with(use_long=lambda length, old, most: 2 * length > most),
        ),
        WrongAnswer(
            "the attention factor of YaRN",
            "YaRN has 0.1 ln s + 1. This method takes a root and compares two logarithms.",
            _longrope_with(loud=lambda s, old, most: 0.1 * math.log(max(s, 1.0)) + 1),
        ),
        WrongAnswer(
            "the root forgotten",
            "The factor is the square root of 1 + ln s / ln L.",
            _longrope_with(loud=lambda s, old, most: 1 + math.log(max(s, 1.0)) / math.log(old)),
        ),
        WrongAnswer(
            "compared with the new length",
            "Below the fraction stands the logarithm of the original length.",
            _longrope_with(
                loud=lambda s, old, most: math.sqrt(1 + math.log(max(s, 1.0)) / math.log(most))),
        ),
        WrongAnswer(
            "scaled by the sequence at hand",
            "s compares the model's two limits. The length at hand only chooses the list.",
            _longrope_with(scale=lambda given, most, old, length: given or length / old),
        ),
        WrongAnswer(
            "the entry's factor passed over",
            "If the entry gives a factor, it is s, whatever the limits say.",
            _longrope_with(scale=lambda given, most, old, length: most / old),
        ),
        WrongAnswer(
            "the entry's attention_factor passed over",
            "If the entry gives attention_factor, nothing is computed.",
            _longrope_with(given=lambda e: None),
        ),
        WrongAnswer(
            "quieter where nothing is stretched",
            "At s below 1 the logarithm is negative; the factor then is 1.",
            _longrope_with(
                loud=lambda s, old, most: math.sqrt(1 + math.log(s) / math.log(old))),
        ),
        WrongAnswer(
            "the exponent over the number of pairs",
            "The exponent of pair k is -2 k / head_dim. Over the pairs it would be -k.",
            _longrope_with(width=lambda d: d / 2),
        ),
        WrongAnswer(
            "frequencies in single precision",
            "The frequencies are to be computed in double precision, torch.float64.",
            _longrope_with(dtype=torch.float32),
        ),
    ),
    variants=(_longrope_with(),),
)  # fmt: skip


EXERCISES = {
    "attention_shape": _SHAPE,
    "longrope": _LONGROPE,
}
