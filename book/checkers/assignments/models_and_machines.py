"""The questions of the assignment on published models and the machines that run them.

The oracles are loops, fractions and sets, never the book's library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _args(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


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


# --- prefix_batch ---------------------------------------------------------------------------------


def _prefix_batch(
    num_heads: int, num_kv_heads: int, prefix: int, own: int,
    cache_bytes: float, activation_bytes: float, ridge: float,
) -> int | None:  # fmt: skip
    # FLOPs minus ridge times bytes, over 2 d_head: a straight line over the batch.
    once = -Fraction(ridge) * Fraction(cache_bytes) * num_kv_heads * prefix
    each = 2 * num_heads * (prefix + own) - Fraction(ridge) * (
        Fraction(cache_bytes) * num_kv_heads * own + Fraction(activation_bytes) * num_heads
    )
    if once + each >= 0:
        return 1
    return math.ceil(-once / each) if each > 0 else None


@in_parts
def _prefix_with(
    flops: Callable[..., float] = lambda h, p, s: 2 * h * (p + s),
    cached_heads: Callable[[int, int], int] = lambda h, g: g,
    moved: Callable[[float, float], float] = lambda c, a: a,
    crossing: Callable[[int, int], int] = lambda h, g: h,
    per_sequence: bool = False,
    whole: Callable[[float], int] = math.ceil,
    never: Callable[[], int | None] = lambda: None,
) -> Answer:
    def answer(
        num_heads: int, num_kv_heads: int, prefix: int, own: int,
        cache_bytes: float, activation_bytes: float, ridge: float,
    ) -> int | None:  # fmt: skip
        heads = cached_heads(num_heads, num_kv_heads)
        each = own + prefix * per_sequence
        active = moved(cache_bytes, activation_bytes) * crossing(num_heads, num_kv_heads)
        gain = flops(num_heads, prefix, own) - ridge * (cache_bytes * heads * each + active)
        once = 0.0 if per_sequence else ridge * cache_bytes * heads * prefix
        if gain <= 0:
            return never() if gain < 0 or once > 0 else 1
        return max(1, whole(once / gain))

    return answer


def _prefix_search(
    num_heads: int, num_kv_heads: int, prefix: int, own: int,
    cache_bytes: float, activation_bytes: float, ridge: float,
) -> int | None:  # fmt: skip
    for batch in range(1, 10_000):
        flops = 4 * num_heads * batch * (prefix + own)
        moved = 2 * cache_bytes * num_kv_heads * (prefix + batch * own)
        moved += 2 * activation_bytes * num_heads * batch
        if flops / moved >= ridge:
            return batch
    return None


_PREFIX = Exercise(
    title="A prompt that all sequences share",
    oracle=_prefix_batch,
    cases=(
        _args("values: 64 heads in 8 groups, 16 bit", 64, 8, 32768, 100, 2, 2, 295.0),
        _args("values: a cache in 8 bits", 64, 8, 32768, 500, 1, 2, 295.0),
        _args("values: a cache in 4 bits", 32, 8, 8192, 512, 0.5, 2, 150.0),
        _args("values: multi-query, a short prefix", 32, 1, 500, 20, 2, 2, 153.0),
        _args("values: multi-head", 16, 16, 20000, 40, 2, 2, 40.0),
        _args("values: activations in 32 bit", 32, 4, 4096, 64, 1, 4, 200.0),
        _args("values: exactly at the ridge", 64, 8, 240, 8, 2, 2, 64.0),
        _args("values: at the ridge, 8 bits", 32, 2, 100, 16, 1, 2, 64.0),
        _args("corners: the queries alone are too much", 64, 8, 100, 20, 2, 2, 295.0),
        _args("corners: long answers, no batch is enough", 64, 8, 2000, 2000, 2, 2, 295.0),
        _args("corners: no prefix, above the ridge", 128, 1, 0, 4096, 2, 2, 100.0),
        _args("corners: no prefix, below the ridge", 64, 8, 0, 4096, 2, 2, 100.0),
        _args("corners: no prefix, exactly at the ridge", 32, 2, 0, 16, 2, 2, 8.0),
        _args("corners: one sequence is enough", 128, 1, 4096, 64, 1, 2, 20.0),
        _args("corners: approached but never reached", 64, 8, 88, 8, 2, 2, 48.0),
    ),
    wrong=(
        WrongAnswer(
            "the prefix read by every sequence",
            "That is what sharing avoids: the prefix's keys and values are read once.",
            _prefix_with(per_sequence=True),
        ),
        WrongAnswer(
            "operations with own positions only",
            "Every query meets the prefix too. Sharing saves bytes, not operations.",
            _prefix_with(flops=lambda h, p, s: 2 * h * s),
        ),
        WrongAnswer(
            "activations as small as the cache",
            "Queries and outputs stay in activation_bytes; only the cache is quantised.",
            _prefix_with(moved=lambda c, a: c),
        ),
        WrongAnswer(
            "queries and outputs forgotten",
            "Each sequence reads its queries and writes its outputs, in H heads.",
            _prefix_with(moved=lambda c, a: 0),
        ),
        WrongAnswer(
            "queries and outputs of G heads",
            "Queries and outputs have H heads. Only keys and values are shared.",
            _prefix_with(crossing=lambda h, g: g),
        ),
        WrongAnswer(
            "keys and values of every query head",
            "G heads of keys and values are read, not H.",
            _prefix_with(cached_heads=lambda h, g: h),
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _prefix_with(flops=lambda h, p, s: h * (p + s)),
        ),
        WrongAnswer(
            "one sequence too many at the ridge",
            "A batch that reaches the ridge exactly is enough: at least, not above.",
            _prefix_with(whole=lambda x: math.floor(x) + 1),
        ),
        WrongAnswer(
            "rounded down",
            "One sequence fewer, and the intensity is below the ridge.",
            _prefix_with(whole=math.floor),
        ),
        WrongAnswer(
            "a number where no batch is enough",
            "The intensity has a limit as the batch grows. Below the ridge the answer is None.",
            _prefix_with(never=lambda: 1),
        ),
    ),
    variants=(_prefix_with(), _prefix_search),
)


# --- absorb_from ----------------------------------------------------------------------------------


def _absorb_from(
    query_len: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int,
    kv_lora_rank: int,
) -> int | None:  # fmt: skip
    def lead(key_len: int) -> int:
        """The FLOPs that absorption saves, over 2 H."""
        seen = sum(key_len - t for t in range(query_len))
        up = kv_lora_rank * (qk_nope_head_dim + v_head_dim)
        naive = key_len * up + seen * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim)
        return naive - query_len * up - seen * (2 * kv_lora_rank + qk_rope_head_dim)

    if lead(query_len) > 0:
        return query_len
    if lead(query_len + 1) <= lead(query_len):
        return None  # a straight line that does not rise
    low, high = query_len, query_len + 1
    while lead(high) <= 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lead(middle) <= 0 else (low, middle)
    return high


@in_parts
def _absorb_with(
    hidden: Callable[[int], int] = lambda t: t * (t - 1) // 2,
    more: Callable[..., int] = lambda h, r, v, c: 2 * c - h - v,
    up: Callable[..., int] = lambda h, r, v, c: c * (h + v),
    start: Callable[[int], int] = lambda t: t,
    ties: int = 1,
    result: Callable[[int, int], int] = lambda s, t: s,
    shortest: Callable[[int], int] = lambda t: t,
    never: Callable[[int], int | None] = lambda t: None,
) -> Answer:
    def answer(
        query_len: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int,
        kv_lora_rank: int,
    ) -> int | None:  # fmt: skip
        t = query_len
        sizes = qk_nope_head_dim, qk_rope_head_dim, v_head_dim, kv_lora_rank
        # slope * S > level; absorbed expands for start(t) positions, naive for S.
        extra = more(*sizes)
        slope = up(*sizes) - t * extra
        level = start(t) * up(*sizes) - extra * hidden(t)
        if slope <= 0:
            return never(t)
        return result(max(shortest(t), (level - 1 + ties) // slope + 1), t)

    return answer


_ABSORB = Exercise(
    title="From how many positions on does absorbing pay?",
    oracle=_absorb_from,
    cases=(
        _args("values: DeepSeek-V3, one token", 1, 128, 64, 128, 512),
        _args("values: DeepSeek-V3, a chunk of 64", 64, 128, 64, 128, 512),
        _args("values: DeepSeek-V3, a chunk of 128", 128, 128, 64, 128, 512),
        _args("values: DeepSeek-V3, a chunk of 170", 170, 128, 64, 128, 512),
        _args("values: wide values", 40, 64, 32, 192, 256),
        _args("values: no rotated part", 12, 32, 0, 32, 96),
        _args("values: small sizes", 3, 8, 4, 8, 24),
        _args("corners: DeepSeek-V3, a chunk of 171", 171, 128, 64, 128, 512),
        _args("corners: a long prompt", 4096, 128, 64, 128, 512),
        _args("corners: as many features as two latents", 7, 64, 32, 64, 64),
        _args("corners: heads wider than the latent", 5, 64, 16, 96, 48),
        _args("corners: heads much wider than the latent", 8, 16, 4, 16, 2),
        _args("corners: the lines are parallel", 8, 4, 2, 4, 8),
        _args("corners: equal first, cheaper one later", 2, 6, 3, 6, 12),
        _args("corners: one token of a tiny layer", 1, 1, 0, 1, 3),
    ),
    wrong=(
        WrongAnswer(
            "every pair counted",
            "The mask forbids pairs inside the chunk, and they are not computed here.",
            _absorb_with(hidden=lambda t: 0),
        ),
        WrongAnswer(
            "a whole chunk of hidden pairs",
            "The first of T queries misses T - 1 keys, the last none: T (T - 1) / 2 pairs.",
            _absorb_with(hidden=lambda t: t * (t + 1) // 2),
        ),
        WrongAnswer(
            "one product in the latent space",
            "Absorbed, both the scores and the means have the latent's width.",
            _absorb_with(more=lambda h, r, v, c: c - h - v),
        ),
        WrongAnswer(
            "rotated features in one form only",
            "Both forms compare the rotated part, so that it cancels out.",
            _absorb_with(more=lambda h, r, v, c: 2 * c + r - h - v),
        ),
        WrongAnswer(
            "only keys made from the latent",
            "Values are made from the latent too: d_c (d_h + d_v) per position.",
            _absorb_with(up=lambda h, r, v, c: c * h),
        ),
        WrongAnswer(
            "absorption for nothing",
            "T queries go down into the latent space and T means come up again.",
            _absorb_with(start=lambda t: 0),
        ),
        WrongAnswer(
            "equal counted as cheaper",
            "Absorption has to take fewer operations, not as many.",
            _absorb_with(ties=0),
        ),
        WrongAnswer(
            "the chunk not counted",
            "S is the cache with the chunk in it, not what was there before.",
            _absorb_with(result=lambda s, t: s - t),
        ),
        WrongAnswer(
            "fewer positions than the chunk has",
            "The cache holds at least the chunk itself: S is T or more.",
            _absorb_with(shortest=lambda t: 1),
        ),
        WrongAnswer(
            "a number where it never pays",
            "If each position costs the absorbed form more, its lead never comes: None.",
            _absorb_with(never=lambda t: t),
        ),
    ),
    variants=(_absorb_with(),),
)


# --- largest_chunk --------------------------------------------------------------------------------


def _largest_chunk(
    weights: int, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int,
    lengths: Sequence[int], read: int, left: int,
    seconds: float, peak_flops: float, bandwidth: float, dtype_bytes: float,
) -> int:  # fmt: skip
    pairs, positions = sum(lengths), sum(lengths) + read
    best = 0
    for chunk in range(1, left + 1):
        pairs += read + chunk
        positions += 1
        flops = 2 * weights * (len(lengths) + chunk) + 4 * num_layers * num_heads * head_dim * pairs
        cached = 2 * num_layers * num_kv_heads * head_dim * positions
        if flops / peak_flops > seconds or dtype_bytes * (weights + cached) / bandwidth > seconds:
            break
        best = chunk
    return best


@in_parts
def _chunk_with(
    tokens: Callable[[int, int], int] = lambda b, t: b + t,
    pairs: Callable[[int, int], float] = lambda p, t: t * p + t * (t + 1) // 2,
    others: bool = True,
    scores: bool = True,
    weight_reads: Callable[[int, int], int] = lambda b, t: 1,
    positions: Callable[[int, int, int], int] = lambda s, p, t: s + p + t,
    cached_heads: Callable[[int, int], int] = lambda h, g: g,
    time: Callable[[float, float], float] = max,
    limit: Callable[[int], int] = lambda left: left,
) -> Answer:
    def answer(
        weights: int, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int,
        lengths: Sequence[int], read: int, left: int,
        seconds: float, peak_flops: float, bandwidth: float, dtype_bytes: float,
    ) -> int:  # fmt: skip
        b, s = len(lengths), sum(lengths)
        heads = cached_heads(num_heads, num_kv_heads)

        def fits(t: int) -> bool:
            met = scores * (pairs(read, t) + s * others)
            flops = 2 * weights * tokens(b, t) + 4 * num_layers * num_heads * head_dim * met
            cached = 2 * num_layers * heads * head_dim * positions(s, read, t)
            nbytes = dtype_bytes * (weights * weight_reads(b, t) + cached)
            return time(flops / peak_flops, nbytes / bandwidth) <= seconds

        low, high = 0, limit(left) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    return answer


_H100 = (989e12, 3.35e12)
_EIGHT_B = (7_504_658_432, 32, 32, 8, 128)
_TOY = (1000, 2, 4, 2, 8)

_CHUNK = Exercise(
    title="How much of a prompt fits beside decoding?",
    oracle=_largest_chunk,
    cases=(
        _args("values: 8 billion weights, 32 sequences", *_EIGHT_B, [2000] * 32, 0, 8192,
              0.012, *_H100, 2),
        _args("values: the end of a long prompt", *_EIGHT_B, [500, 9000, 30000], 60000, 4096,
              0.03, *_H100, 2),
        _args("values: long sequences, little time", *_EIGHT_B, [8192] * 40, 1000, 8192,
              0.02, *_H100, 2),
        _args("values: small numbers", *_TOY, [5, 9], 7, 100, 0.06, 1e6, 1e6, 2),
        _args("values: small numbers, long cache", *_TOY, [50, 400], 300, 500, 0.5, 1e6, 1e6, 1),
        _args("values: a slow memory", *_TOY, [20, 30, 40], 10, 1000, 0.1, 1e8, 2e5, 2),
        _args("values: a slow memory, multi-head", 1000, 2, 4, 4, 8, [20, 30], 5, 1000,
              0.15, 1e8, 2e5, 2),
        _args("values: many tokens of decoding", *_TOY, [3] * 60, 0, 100, 0.2, 1e6, 1e7, 2),
        _args("corners: nobody decodes", *_TOY, [], 0, 1000, 0.3, 1e6, 1e6, 2),
        _args("corners: all that is left", *_TOY, [10], 20, 12, 1.0, 1e6, 1e6, 2),
        _args("corners: decoding alone takes too long", *_EIGHT_B, [32768] * 64, 0, 512,
              0.02, *_H100, 2),
        _args("corners: the weights alone take too long", *_TOY, [1], 0, 50, 0.009, 1e6, 2e5, 2),
        _args("corners: nothing is left", *_TOY, [10], 30, 0, 1.0, 1e6, 1e6, 2),
        _args("corners: nothing in the cache, one token fits", *_TOY, [], 0, 40, 0.003,
              1e6, 1e6, 2),
    ),
    wrong=(
        WrongAnswer(
            "arithmetic and transfer one after the other",
            "They overlap: the step takes as long as the longer of the two.",
            _chunk_with(time=lambda a, b: a + b),
        ),
        WrongAnswer(
            "arithmetic only",
            "The bytes have to be read in the same time. With a slow memory they decide.",
            _chunk_with(time=lambda a, b: a),
        ),
        WrongAnswer(
            "memory only",
            "The operations have to be done in the same time, and a chunk has many.",
            _chunk_with(time=lambda a, b: b),
        ),
        WrongAnswer(
            "attention's operations left out",
            "Scores and means are operations too, four for each pair and feature of a head.",
            _chunk_with(scores=False),
        ),
        WrongAnswer(
            "attention of decoding left out",
            "Each decoding token meets all the positions of its own sequence.",
            _chunk_with(others=False),
        ),
        WrongAnswer(
            "every token of the chunk meets the whole chunk",
            "Under the causal mask token t of the chunk meets the first t of it.",
            _chunk_with(pairs=lambda p, t: t * (p + t)),
        ),
        WrongAnswer(
            "the chunk's tokens do not see themselves",
            "A token attends to its own position too: t of the chunk, not t - 1.",
            _chunk_with(pairs=lambda p, t: t * p + t * (t - 1) // 2),
        ),
        WrongAnswer(
            "the chunk sees only itself",
            "What was read of the prompt before is in the cache, and the chunk attends to it.",
            _chunk_with(pairs=lambda p, t: t * (t + 1) // 2, positions=lambda s, p, t: s + t),
        ),
        WrongAnswer(
            "the tokens of decoding not multiplied",
            "Each sequence brings one token, which meets every weight like the chunk's.",
            _chunk_with(tokens=lambda b, t: t),
        ),
        WrongAnswer(
            "caches not read",
            "The step reads the keys and values of all sequences, besides the weights.",
            _chunk_with(positions=lambda s, p, t: 0),
        ),
        WrongAnswer(
            "weights read for each sequence",
            "All tokens of the step share one reading of the weights.",
            _chunk_with(weight_reads=lambda b, t: b + 1),
        ),
        WrongAnswer(
            "caches of all query heads",
            "The cache holds G heads of keys and values, not H.",
            _chunk_with(cached_heads=lambda h, g: h),
        ),
        WrongAnswer(
            "more than is left of the prompt",
            "The chunk cannot be longer than what is left of the prompt.",
            _chunk_with(limit=lambda left: 1_000_000),
        ),
    ),
    variants=(_chunk_with(),),
)  # fmt: skip


# --- fused_bytes ----------------------------------------------------------------------------------

Op = tuple[tuple[str, ...], str]


def _fused_bytes(
    ops: Sequence[Op], kernels: Sequence[int], outputs: Sequence[str], nbytes: Mapping[str, int]
) -> int:
    kernel_of = [k for k, count in enumerate(kernels) for _ in range(count)]
    made = {name: kernel_of[i] for i, (_, name) in enumerate(ops)}
    crossings: set[tuple[str, str, int]] = set()
    for i, (inputs, _) in enumerate(ops):
        for name in inputs:
            if made.get(name) != kernel_of[i]:
                crossings.add(("read", name, kernel_of[i]))
                if name in made:
                    crossings.add(("write", name, made[name]))
    crossings |= {("write", name, made[name]) for name in outputs if name in made}
    return sum(nbytes[name] for _, name, _ in crossings)


@in_parts
def _fused_with(
    reads: str = "once per kernel",
    inner_reads: bool = False,
    write: Callable[[bool, bool, bool], bool] = lambda inside, later, wanted: later or wanted,
    group: Callable[[Sequence[int]], list[int]] = list,
    count: bool = False,
) -> Answer:
    """By kernels; `write` is asked whether a result is used inside, used later, and asked for."""

    def answer(
        ops: Sequence[Op], kernels: Sequence[int], outputs: Sequence[str],
        nbytes: Mapping[str, int],
    ) -> int:  # fmt: skip
        total, start, seen = 0, 0, set[str]()
        size = (lambda name: 1) if count else nbytes.__getitem__
        for length in group(kernels):
            inside, after = ops[start : start + length], ops[start + length :]
            start += length
            made = [name for _, name in inside]
            read = [n for inputs, _ in inside for n in inputs if inner_reads or n not in made]
            if reads != "each time":
                read = list(dict.fromkeys(read))
            if reads == "once at all":
                read = [n for n in read if n not in seen]
                seen |= {*read, *made}
            total += sum(map(size, read))
            for name in made:
                uses = [any(name in inputs for inputs, _ in some) for some in (inside, after)]
                total += size(name) * write(uses[0], uses[1], name in outputs)
        return total

    return answer


def _chain(n: int) -> list[Op]:
    return [((f"x{i}",), f"x{i + 1}") for i in range(n)]


_SIZES = {f"x{i}": 1000 * (i + 1) for i in range(9)}
_NORM: list[Op] = [
    (("x",), "squares"), (("squares",), "mean"), (("x", "mean"), "scaled"),
    (("scaled", "gain"), "y"),
]  # fmt: skip
_NORM_SIZES = {"x": 4096, "squares": 4096, "mean": 16, "scaled": 4096, "gain": 512, "y": 4096}
_GATED: list[Op] = [
    (("x", "w1"), "gate"), (("gate",), "s"), (("gate", "s"), "act"), (("x", "w2"), "up"),
    (("act", "up"), "h"), (("h", "w3"), "out"), (("out", "x"), "sum"),
]  # fmt: skip
_GATED_SIZES = {
    "x": 640, "w1": 10240, "w2": 10240, "w3": 10241, "gate": 2560, "s": 2561, "act": 2562,
    "up": 2563, "h": 2564, "out": 641, "sum": 642,
}  # fmt: skip
_DEAD: list[Op] = [
    (("x",), "a"), (("a", "a"), "b"), (("a",), "dead"), (("b", "x"), "c"), (("c", "a"), "d"),
]  # fmt: skip
_DEAD_SIZES = {"x": 7, "a": 110, "b": 1300, "dead": 17000, "c": 190000, "d": 2300000}

_FUSED = Exercise(
    title="The bytes of a plan of kernels",
    oracle=_fused_bytes,
    cases=(
        _args("values: a chain, operator by operator", _chain(4), [1, 1, 1, 1], ["x4"], _SIZES),
        _args("values: a chain in one kernel", _chain(4), [4], ["x4"], _SIZES),
        _args("values: a chain in two kernels", _chain(5), [2, 3], ["x5"], _SIZES),
        _args("values: a norm, operator by operator", _NORM, [1, 1, 1, 1], ["y"], _NORM_SIZES),
        _args("values: a norm in one kernel", _NORM, [4], ["y"], _NORM_SIZES),
        _args("values: a norm in two kernels", _NORM, [2, 2], ["y"], _NORM_SIZES),
        _args("values: a gated layer in three kernels", _GATED, [3, 2, 2], ["sum"], _GATED_SIZES),
        _args("values: a gated layer in two kernels", _GATED, [5, 2], ["sum"], _GATED_SIZES),
        _args("values: a gated layer, two and five", _GATED, [2, 5], ["sum"], _GATED_SIZES),
        _args("corners: a result nobody needs", _DEAD, [3, 2], ["d"], _DEAD_SIZES),
        _args("corners: kept, but also used inside", _DEAD, [5], ["b", "d"], _DEAD_SIZES),
        _args("corners: used inside and later", _DEAD, [2, 1, 2], ["d"], _DEAD_SIZES),
        _args("corners: one operand twice", _DEAD[:2], [1, 1], ["b"], _DEAD_SIZES),
        _args("corners: kept for the backward pass", _NORM, [2, 2], ["y", "mean"], _NORM_SIZES),
        _args("corners: an input that is an output too", _chain(2), [2], ["x0", "x2"], _SIZES),
        _args("corners: nothing is needed", _chain(3), [3], [], _SIZES),
    ),
    wrong=(
        WrongAnswer(
            "operator by operator",
            "Inside a kernel a result is handed on without crossing memory.",
            _fused_with(group=lambda k: [1] * sum(k)),
        ),
        WrongAnswer(
            "all in one kernel",
            "Between two kernels a result is written and read again.",
            _fused_with(group=lambda k: [sum(k)]),
        ),
        WrongAnswer(
            "every result written",
            "A result that only its own kernel uses need not be written.",
            _fused_with(write=lambda inside, later, wanted: True),
        ),
        WrongAnswer(
            "results used inside are not written",
            "A result may be used inside, and again by a later kernel or at the end.",
            _fused_with(write=lambda inside, later, wanted: not inside and (later or wanted)),
        ),
        WrongAnswer(
            "a result nobody needs is written",
            "What no later kernel reads and nobody asked for is not written.",
            _fused_with(write=lambda inside, later, wanted: later or wanted or not inside),
        ),
        WrongAnswer(
            "only the outputs written",
            "What a later kernel reads has to be in memory by then.",
            _fused_with(write=lambda inside, later, wanted: wanted),
        ),
        WrongAnswer(
            "outputs written only for later kernels",
            "What was asked for is written, even if no kernel reads it.",
            _fused_with(write=lambda inside, later, wanted: later),
        ),
        WrongAnswer(
            "read again by every operator of a kernel",
            "A kernel reads a tensor once, however many of its operators use it.",
            _fused_with(reads="each time"),
        ),
        WrongAnswer(
            "what the kernel made is read from memory",
            "A kernel has its own results at hand. It reads only what others made.",
            _fused_with(inner_reads=True),
        ),
        WrongAnswer(
            "kept at hand between kernels",
            "Nothing stays between two kernels: each one reads what it needs.",
            _fused_with(reads="once at all"),
        ),
        WrongAnswer(
            "tensors counted instead of bytes",
            "Tensors have different sizes. Add their bytes, not their number.",
            _fused_with(count=True),
        ),
    ),
    variants=(_fused_with(),),
)


# --- cheaper_from ---------------------------------------------------------------------------------

Machine = tuple[float, float, float]


def _cheaper_from(a: Machine, b: Machine) -> float | None:
    """From the corners of the two roofs, as fractions."""
    (pa, wa), (pb, wb) = ([Fraction(x) / Fraction(m[2]) for x in m[:2]] for m in (a, b))
    corners = sorted({Fraction(0), pa / wa, pb / wb, pa / wb, pb / wa})
    probes = [(x + y) / 2 for x, y in itertools.pairwise(corners)] + [corners[-1] + 1]
    found = None
    for corner, probe in zip(reversed(corners), reversed(probes), strict=True):
        if not min(pb, probe * wb) > min(pa, probe * wa):
            break
        found = float(corner)
    return found


@in_parts
def _cheaper_with(
    price: Callable[[Machine], float] = lambda m: m[2],
    corner: Callable[..., float] = lambda pa, wa, pb, wb: pa / wb,
    at_once: Callable[[float, float], bool] = lambda wa, wb: wb > wa,
    never: Callable[[float, float], bool] = lambda pa, pb: pb <= pa,
    nowhere: float | None = None,
) -> Answer:
    def answer(a: Machine, b: Machine) -> float | None:
        (pa, wa), (pb, wb) = ([x / price(m) for x in m[:2]] for m in (a, b))
        if never(pa, pb):
            return nowhere
        return 0.0 if at_once(wa, wb) else corner(pa, wa, pb, wb)

    return answer


_CHEAPER = Exercise(
    title="Two machines, two roofs, two prices",
    oracle=_cheaper_from,
    cases=(
        _args("values: more arithmetic, slower memory", (312e12, 2e12, 2.0),
              (989e12, 1.5e12, 2.0)),
        _args("values: faster in both, but dearer", (312e12, 2.0e12, 1.5), (989e12, 3.35e12, 4.0)),
        _args("values: slower in both, but cheap", (1000.0, 80.0, 8.0), (300.0, 10.0, 2.0)),
        _args("values: a processor and a card", (1e12, 1e11, 0.2), (100e12, 1e12, 2.5)),
        _args("values: unequal prices turn the order round", (400.0, 40.0, 2.0),
              (500.0, 30.0, 1.0)),
        _args("values: close to each other", (120.0, 10.0, 3.0), (126.0, 9.0, 3.0)),
        _args("corners: cheaper at every intensity", (100.0, 10.0, 2.0), (120.0, 12.0, 2.0)),
        _args("corners: never cheaper", (300.0, 20.0, 1.0), (300.0, 10.0, 2.0)),
        _args("corners: cheaper on the slope only", (400.0, 10.0, 2.0), (100.0, 20.0, 2.0)),
        _args("corners: the same slope", (100.0, 8.0, 2.0), (400.0, 16.0, 4.0)),
        _args("corners: the same flat", (200.0, 10.0, 4.0), (100.0, 8.0, 2.0)),
        _args("corners: one machine twice", (100.0, 8.0, 2.0), (100.0, 8.0, 2.0)),
    ),
    wrong=(
        WrongAnswer(
            "prices passed over",
            "Operations per second are bought: divide both roofs by the price per hour.",
            _cheaper_with(price=lambda m: 1.0),
        ),
        WrongAnswer(
            "b's own ridge",
            "b overtakes before its roof is flat: its slope crosses a's flat part.",
            _cheaper_with(corner=lambda pa, wa, pb, wb: pb / wb),
        ),
        WrongAnswer(
            "a's own ridge",
            "At a's ridge b is still below, if its slope is lower. Follow it further.",
            _cheaper_with(corner=lambda pa, wa, pb, wb: pa / wa),
        ),
        WrongAnswer(
            "b's peak over a's bandwidth",
            "a is flat where they meet, and b is rising: a's peak, b's bandwidth.",
            _cheaper_with(corner=lambda pa, wa, pb, wb: pb / wa),
        ),
        WrongAnswer(
            "the same slope taken for cheaper at once",
            "On a slope that they share neither is cheaper, up to the lower ridge.",
            _cheaper_with(at_once=lambda wa, wb: wb >= wa),
        ),
        WrongAnswer(
            "a number even if b is ahead from the start",
            "With both numbers higher per price, b is cheaper at every intensity: 0.",
            _cheaper_with(at_once=lambda wa, wb: False),
        ),
        WrongAnswer(
            "ahead for a while taken for ahead for good",
            "At high intensities only the peaks count, and there b is not cheaper: None.",
            _cheaper_with(never=lambda pa, pb: False),
        ),
        WrongAnswer(
            "as cheap taken for cheaper",
            "With equal peaks per price b is never cheaper in the end: None.",
            _cheaper_with(never=lambda pa, pb: pb < pa),
        ),
        WrongAnswer(
            "infinity for None",
            "Where there is no such intensity, None was asked for.",
            _cheaper_with(nowhere=math.inf),
        ),
    ),
    variants=(_cheaper_with(),),
)  # fmt: skip


EXERCISES = {
    "attention_shape": _SHAPE,
    "longrope": _LONGROPE,
    "prefix_batch": _PREFIX,
    "absorb_from": _ABSORB,
    "largest_chunk": _CHUNK,
    "fused_bytes": _FUSED,
    "cheaper_from": _CHEAPER,
}
