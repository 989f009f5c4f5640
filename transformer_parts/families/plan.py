"""What a family is made of: its data, and the plan that a configuration gives."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from transformer_parts.decoder import RopeScaling

__all__ = [
    "FAMILIES",
    "MISSING",
    "Difference",
    "Layer",
    "Plan",
    "Rope",
    "differences",
    "family_data",
    "lineage",
    "own_lines",
    "plan_differences",
    "read_plan",
]

# From notebooks/22_families.ipynb#a-family-in-a-dozen-lines
_DATA = tomllib.loads(
    (Path(__file__).parent / "families.toml").read_text(encoding="utf-8")
)
_DEFAULTS: dict[str, Any] = _DATA.pop("defaults")
MISSING: dict[str, str] = _DATA.pop("missing")
_NEUTRAL: dict[str, Any] = _DATA.pop("neutral")
FAMILIES: tuple[str, ...] = tuple(_DATA)


class Difference(NamedTuple):
    """A field in which two families, or two plans, are not the same."""

    field: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Rope:
    """One set of rotations: how many features of a head, how fast, and for how long.

    `dim` features are rotated, with `base` and perhaps a `scaling`; `short` and `long`
    are LongRoPE's factors, the second set for texts beyond `original_max_len`, and
    `factor` multiplies its cos and sin. `backwards` turns the other way round.
    """

    dim: int
    base: float
    scaling: RopeScaling | None = None
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    original_max_len: int = 0
    factor: float = 1.0
    backwards: bool = False


@dataclass(frozen=True)
class Layer:
    """What may differ from layer to layer.

    `kind` is the name that configurations give it, `window` and `chunk` say what a
    query sees (None: all that came before), `rope` whether queries and keys are
    rotated, `experts` whether the feed-forward layer is a mixture, `d_ff` its width if
    it is not (0: there is no feed-forward layer).

    `attention` says whether the layer attends, `mixer` what it has in place of it or
    beside it: its kind, as in `MIXERS`, and its options. `norms` are the places of
    norms where this layer differs from the plan's, `scales` the factors on the stream
    and on what is added to it, for both branches.
    """

    kind: str
    window: int | None
    chunk: int | None
    rope: bool
    experts: bool
    d_ff: int | None
    attention: bool = True
    mixer: dict[str, Any] | None = field(default=None, hash=False)
    norms: tuple[str, ...] | None = None
    scales: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Plan:
    """A model, all choices made: what `FamilyDecoder` assembles.

    Args:
        family: the family's name.
        vocab_size, d_model, num_layers, num_heads, num_kv_heads, head_dim, max_seq_len:
            sizes. Without attention the heads are 0, and max_seq_len is 0 where nothing
            in the model has an end.
        layers: what differs from layer to layer.
        ropes: the rotations of each kind of layer.
        embed_scale: factor on the embedding.
        embed_norm: whether a norm follows it.
        position: 'rope', 'learned', 'alibi', 'sinusoids' or 'none'; position_offset:
            rows of the table before that of position 0; alibi_scale: factor on ALiBi;
            sinusoid_steps: as `split_sinusoids`.
        norm: 'rms' or 'layer'; norm_gain, norm_bias: what it learns; norm_plus_one: its
            gain is 1 + weight; eps: the number inside its root.
        norms: where norms stand: of attn_in, attn_out, attn_sum, ffn_in, ffn_out,
            ffn_sum. `in` is before the branch, `out` after it, `sum` after the residual
            is added; attn_stream and ffn_stream are before the branch and its residual.
        final_norm: whether a norm follows the last block.
        parallel: attention and feed-forward layer read the same stream, and both are
            added at once; without ffn_in they share one norm.
        residual_scale: factor on both branches.
        qkv_bias, out_bias, mlp_bias, head_bias: which linear layers have a bias.
        qk_norm: None, 'rms', 'layer' or 'l2'; qk_norm_over: 'head', 'all' heads
            together, or 'heads' with a gain for each; qk_norm_after_rope, qk_norm_gain,
            qk_norm_bias, qk_eps.
        qk_norm_rope_only: the norm of queries and keys only where they are rotated.
        attn_scale: factor on the scores; attn_cap: their soft cap; sinks: a learned
            logit for each head that belongs to no key; clip: bound on q, k and v.
        temperature: (beta, length, first): scores of later queries are multiplied by
            1 + beta * log(1 + floor((position + first) / length)); temperature_at: of
            which layers, 'rope', 'nope' or 'all'.
        attn_gate: the output of the heads is multiplied by a sigmoid of its input.
        attn_in_scale, attn_out_scale: factors on attention's input and output.
        gate_scale: factor on the gate of the feed-forward layer.
        interleaved: RoPE pairs neighbours, and not the halves of a head.
        mla: the sizes of latent attention, or None.
        gated, activation: of the feed-forward layer.
        experts: the options of `Router` and `MixtureOfExperts`, or None.
        logit_scale, logit_cap: what is done to the logits.
        tie: the head is the embedding.
        data: the family's data, for the names of tensors.
    """

    family: str
    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_seq_len: int
    layers: tuple[Layer, ...]
    ropes: dict[str, Rope]
    embed_scale: float
    embed_norm: bool
    position: str
    position_offset: int
    alibi_scale: float
    sinusoid_steps: int | None
    norm: str
    norm_gain: bool
    norm_bias: bool
    norm_plus_one: bool
    eps: float
    norms: tuple[str, ...]
    final_norm: bool
    parallel: bool
    residual_scale: float
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    head_bias: bool
    qk_norm: str | None
    qk_norm_over: str
    qk_norm_after_rope: bool
    qk_norm_gain: bool
    qk_norm_bias: bool
    qk_norm_rope_only: bool
    qk_eps: float
    attn_scale: float
    attn_cap: float | None
    sinks: bool
    clip: float | None
    temperature: tuple[float, int, int] | None
    temperature_at: str
    attn_gate: bool
    attn_in_scale: float
    attn_out_scale: float
    gate_scale: float
    interleaved: bool
    mla: dict[str, Any] | None
    gated: bool
    activation: str
    experts: dict[str, Any] | None
    logit_scale: float
    logit_cap: float | None
    tie: bool
    data: dict[str, Any] = field(repr=False, compare=False)


# --- The data -----------------------------------------------------------------------


def _known(name: str) -> None:
    if name not in _DATA:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {name!r}")


def own_lines(name: str) -> dict[str, Any]:
    """What the family's own table says: its difference to the family it is `like`.

    Raises:
        ValueError: if there is no such family.
    """
    _known(name)
    return dict(_DATA[name])


def lineage(name: str) -> list[str]:
    """The family, the one that it is like, and so on.

    Raises:
        ValueError: if there is no such family.
    """
    _known(name)
    like = _DATA[name].get("like")
    return [name, *(lineage(like) if like else [])]


def family_data(name: str) -> dict[str, Any]:
    """All choices of a family, `like` followed, over the defaults.

    A text that begins with '=' is an expression over the keys of a configuration, in
    which a missing key is None. `names` maps our parameters to the published ones.

    Raises:
        ValueError: if there is no such family.
    """
    found = dict(_DEFAULTS)
    for ancestor in reversed(lineage(name)):
        for key, value in _DATA[ancestor].items():
            nested = isinstance(value, dict) and key in _NESTED
            if key == "mixer" and "kind" in value:
                nested = False
            found[key] = {**found.get(key, {}), **value} if nested else value
    found.pop("like", None)
    return found


def differences(a: str, b: str, *, names: bool = False) -> list[Difference]:
    """The choices in which two families differ; with `names`, those of tensors too.

    Raises:
        ValueError: if there is no such family.
    """
    left, right = (_flat(family_data(name), names) for name in (a, b))
    keys = [*left, *(key for key in right if key not in left)]
    return [
        Difference(key, left.get(key), right.get(key))
        for key in keys
        if left.get(key) != right.get(key)
    ]


def _flat(data: dict[str, Any], names: bool) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if key in _READING or (key in _LAYOUT and not names):
            continue
        if isinstance(value, dict):
            flat |= {f"{key}.{k}": v for k, v in value.items()}
        else:
            flat[key] = value
    return flat


# How a configuration is read, and how a file of weights: neither is a choice of parts.
_READING = ("sizes", "keys", "absent", "unsupported", "unread", "kinds")
_NESTED = ("names", "experts", "absent", "mixer")
_LAYOUT = (
    "names", "recurrent_names", "recurrent_files", "gate_in_q", "fused_qkv",
    "transposed", "stacked_transposed", "aliases", "ignored",
    "interleaved_experts", "mla_halves", "correction_row", "experts_weight",
    "experts_bias",
)  # fmt: skip


def plan_differences(a: Plan, b: Plan) -> list[Difference]:
    """The fields in which two plans differ; layers as a whole."""
    pairs = ((f.name, getattr(a, f.name), getattr(b, f.name)) for f in fields(Plan))
    return [Difference(*p) for p in pairs if p[0] != "data" and p[1] != p[2]]


# --- A configuration -----------------------------------------------------------------


class _Values(dict[str, Any]):
    """The keys of a configuration; one that is not there is None.

    `asked` gets the name of each key that was looked at.
    """

    def __init__(self, values: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(values)
        self.asked = asked

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __missing__(self, key: str) -> None:
        if key in _FUNCTIONS:
            raise KeyError(key)


_FUNCTIONS: dict[str, Any] = {
    "__builtins__": {}, "sqrt": math.sqrt, "log": math.log, "int": int, "len": len,
    "set": set, "zip": zip, "bool": bool,
    "get": lambda table, key: (table or {}).get(key),
}  # fmt: skip


def _value(text: Any, values: Mapping[str, Any]) -> Any:
    """A choice of the data file: as it stands, or its expression, evaluated."""
    if isinstance(text, dict):
        return {key: _value(v, values) for key, v in text.items()}
    if not (isinstance(text, str) and text.startswith("=")):
        return text
    return eval(text[1:].strip(), _FUNCTIONS, values)  # the book's own data file


def _read(config: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    if isinstance(config, Mapping):
        found: dict[str, Any] = dict(config)
    else:
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        found = json.loads(path.read_text(encoding="utf-8"))
    return {key: _number(value) for key, value in found.items()}


def _number(value: Any) -> Any:
    """A value of a file; infinity may be written as {"__float__": "Infinity"}."""
    if isinstance(value, list):
        return [_number(one) for one in value]
    if isinstance(value, dict) and set(value) == {"__float__"}:
        return float(value["__float__"])
    return value


_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_tanh": "gelu_tanh", "relu2": "relu2", "xielu": "xielu",
    "clamped_swiglu": "clamped_swiglu",
}  # fmt: skip
_PER_LAYER = ("window", "chunk", "rope", "moe", "layer_d_ff")
_OLD_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}
_MAY_BE_NONE = {
    "qk_norm", "attn_cap", "clip", "temperature", "mla", "logit_cap", "experts.shared",
    "q_lora_rank", "sinusoid_steps", "mixer.norms",
}  # fmt: skip


# Read in any family: rotations, kinds of layers, and what `read_plan` itself asks.
_ALWAYS = {
    "model_type", "quantization_config", "layer_types", "rope_scaling",
    "rope_parameters", "max_position_embeddings", "original_max_position_embeddings",
}  # fmt: skip


def _expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _expressions(inner)
    elif isinstance(value, str) and value.startswith("="):
        yield value[1:].strip()


@cache
def _own_keys(family: str) -> frozenset[str]:
    """The keys of config.json that the lines of a family and its ancestors speak of."""
    found: set[str] = set(_ALWAYS)
    for name in lineage(family):
        lines = _DATA[name]
        found |= {*lines.get("absent", {}), *lines.get("unread", [])}
        found |= {*lines.get("keys", {}), *lines.get("keys", {}).values()}
        for text in _expressions(lines):
            found |= {*compile(text, name, "eval").co_names}
    return frozenset(found)


def _unread(raw: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """A line for each key that may choose a part and that nobody has read."""
    lines = []
    for key, value in raw.items():
        off = value is None or value is False or value in ("", [], {})
        neutral = value in _NEUTRAL["values"].get(key, ())
        if key in known or off or neutral or re.fullmatch(_NEUTRAL["keys"], key):
            continue
        lines.append(f"{key} = {value!r}: a key that this family's data do not read")
    return lines


def read_plan(
    config: Mapping[str, Any] | str | Path, *, ignore: Collection[str] = ()
) -> Plan:
    """A plan from a published config.json.

    Args:
        config: the file, the folder that holds it, or its contents. Older keys
            (`rope_theta`, `rope_scaling`) and newer ones (`rope_parameters`) are read.
        ignore: keys that may stay unread. Without it, a key that the family's data
            do not read is an error, unless it is off (null, false, empty) or about
            training, generation or the file itself (`neutral` in the data).

    Raises:
        ValueError: with a line for everything that is missing: the family, a size, a
            part or a setting that these parts do not have, a key that is not read.

    Source: the configuration classes of Hugging Face's transformers.
    """
    raw = _read(config)
    family = raw.get("model_type")
    if family in MISSING:
        raise ValueError(f"{family} needs parts that are missing: {MISSING[family]}")
    # Here, because the module of the encoders' plans begins with this one.
    from transformer_parts.families.encoders.plan import ENCODERS

    if family in ENCODERS:
        raise ValueError(f"{family} has an encoder: read_encoder_plan reads it")
    if family not in _DATA:
        raise ValueError(
            f"model_type {family!r} is not known; known are {', '.join(FAMILIES)}"
        )
    data = family_data(family)
    asked: set[str] = set()
    values = _Values(raw, asked)
    values |= {  # aliases that many of the older configurations need
        key: raw[theirs]
        for key, theirs in data["keys"].items()
        if theirs in raw and raw.get(key) is None
    }
    for key, default in data["absent"].items():
        if key not in values:  # a null is an answer
            values[key] = _value(default, values)
    missing = [f"{key} is not given" for key in data["sizes"] if values[key] is None]
    if raw.get("quantization_config"):
        missing.append("quantization_config: weights have to be floating point")
    if missing:
        raise ValueError(_lines(family, missing))
    for text, condition in data["unsupported"].items():
        if _value(condition, values):
            missing.append(text)
    choice = _choices(data, values, missing)
    if choice["num_layers"] is None:
        raise ValueError(_lines(family, missing))
    kinds = values["layer_types"]
    layers = []
    for i in range(choice["num_layers"]):
        at = _Values({**values, "i": i}, asked)
        kind = kinds[i] if kinds else _value(data["kind"], at)
        kind = at["kind"] = _OLD_KINDS.get(kind, kind)
        if kind not in data["kinds"]:
            missing.append(f"layer {i}: {kind}")
        window, chunk, rope, moe, d_ff = (_value(data[key], at) for key in _PER_LAYER)
        attention = bool(_value(data["attention"], at))
        rope = bool(rope) and choice["position"] == "rope" and attention
        width = None if moe else d_ff
        layers.append(
            Layer(kind, window, chunk, rope, bool(moe), width, attention,
                  *_beside_attention(data, at, missing))
        )  # fmt: skip
        if not moe and d_ff is None:
            width_of = _follows(data["layer_d_ff"])
            missing.append(f"layer {i}: its hidden width is not given{width_of}")
    experts = None
    if any(layer.experts for layer in layers):
        given = {k: _given(f"experts.{k}", v, values, missing)
                 for k, v in data["experts"].items()}  # fmt: skip
        experts = given
        missing += _check_activation(experts, "activation", _EXPERT_ACTIVATIONS)
    mla = choice["mla"]
    heads, shared = choice["num_heads"], choice["num_kv_heads"]
    if not mla and any(layer.attention for layer in layers) and heads % (shared or 1):
        missing.append(
            f"a number of key heads that divides {heads}: {shared} are given"
        )
    dim = mla["qk_rope_head_dim"] if mla else choice["head_dim"]
    ropes = _ropes(data, layers, dim, values, missing)
    missing += _check_activation(choice, "activation", set(_ACTIVATIONS.values()))
    missing += _unread(raw, {*asked, *_own_keys(str(family)), *ignore})
    if missing:
        raise ValueError(_lines(family, missing))
    choice["norms"] = tuple(choice["norms"])
    names = {key: _value(name, values) for key, name in data["names"].items()}
    data["names"] = {key: name for key, name in names.items() if name}
    data["mla_halves"] = bool(_value(data["mla_halves"], values))
    for key in ("temperature",):
        choice[key] = tuple(choice[key]) if choice[key] else None
    return Plan(
        family=family, layers=tuple(layers), ropes=ropes, experts=experts, data=data,
        **choice,
    )  # fmt: skip


def _given(key: str, text: Any, values: Mapping[str, Any], missing: list[str]) -> Any:
    """A choice, or None with one line more in `missing` if its keys are not there."""
    try:
        value = _value(text, values)
    except TypeError:  # arithmetic with None
        value = None
        missing.append(f"{key} is not given{_follows(text)}")
    else:
        parts = value if isinstance(value, dict) else {key: value}
        follows = "" if isinstance(value, dict) else _follows(text)
        missing += [
            f"{name} is not given{follows}"
            for name, part in parts.items()
            if part is None and name not in _MAY_BE_NONE
        ]
    return value


def _follows(text: Any) -> str:
    """Which keys of config.json a choice is computed from, to end a line with."""
    computed = isinstance(text, str) and text.startswith("=")
    return f": it follows from {text[1:]}" if computed else ""


def _beside_attention(
    data: dict[str, Any], at: _Values, missing: list[str]
) -> tuple[dict[str, Any] | None, tuple[str, ...] | None, Any]:
    """What a layer has in place of attention or beside it, its norms, its factors."""
    lines: list[str] = []
    mixer = None
    if _value(data["recurrent"], at):
        mixer = {k: _given(f"mixer.{k}", v, at, lines)
                 for k, v in data["mixer"].items()}  # fmt: skip
    missing += [line for line in lines if line not in missing]
    norms = _value(data["layer_norms"], at)
    scales = tuple(map(float, _value(data["layer_scales"], at)))
    return mixer, None if norms is None else tuple(norms), scales


_EXPERT_ACTIVATIONS = {"silu", "gelu", "relu", "clamped_swiglu"}


def _lines(family: str, missing: list[str]) -> str:
    return f"{family} with this configuration lacks:" + "".join(
        f"\n  {line}" for line in missing
    )


def _check_activation(choice: dict[str, Any], key: str, known: set[str]) -> list[str]:
    """Translate the name of an activation in place; a line if it is not known."""
    name = choice[key]
    choice[key] = _ACTIVATIONS.get(name, name)
    return [] if choice[key] in known else [f"the activation {name!r}"]


_SCALING_FIELDS = (
    "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "attention_factor", "truncate",
)  # fmt: skip


def _choices(
    data: Mapping[str, Any], values: _Values, missing: list[str]
) -> dict[str, Any]:
    """What holds for all layers of a plan; what is missing is added to `missing`."""
    return {
        key: _given(key, data[key], values, missing)
        for key in (f.name for f in fields(Plan))
        if key in data and key not in ("layers", "ropes", "experts")
    }


def _ropes(
    data: dict[str, Any],
    layers: list[Layer],
    dim: int,
    values: _Values,
    missing: list[str],
) -> dict[str, Rope]:
    """The rotation of each kind of layer; what is missing is added to `missing`."""
    ropes: dict[str, Rope] = {}
    for kind in {layer.kind for layer in layers if layer.rope}:
        try:
            at = _Values({**values, "kind": kind}, values.asked)
            ropes[kind] = _rope(data, at, dim)
        except ValueError as error:
            missing.append(str(error))
    return ropes


def _rope(data: dict[str, Any], values: _Values, head_dim: int) -> Rope:
    """The rotations of one kind of layer, from either form of the keys."""
    given = values["rope_scaling"] or values["rope_parameters"] or {}
    given = given.get(values["kind"], given) or {}
    if any(isinstance(v, Mapping) for v in given.values()):
        raise ValueError(f"rope_parameters without an entry for {values['kind']}")
    inner = {k: v for k, v in given.items() if v is not None}
    at = _Values({**values, **inner}, values.asked)
    base = float(_value(data["rope_base"], at))
    part = _value(data["rotary"], at)
    dim = (
        head_dim
        if part is None
        else (int(head_dim * part) if isinstance(part, float) else part)
    )
    kind = given.get("rope_type") or given.get("type") or "default"
    if not _value(data["rope_scaled"], at):
        kind = "default"
    if kind == "default":
        return Rope(dim, base, backwards=data["backwards"])
    limit = values["max_position_embeddings"]
    old = (
        given.get("original_max_position_embeddings")
        or values["original_max_position_embeddings"]
        or limit
    )
    factor = given.get("factor") or limit / old
    if kind in ("longrope", "su"):
        scale = values["original_max_position_embeddings"]
        factor = limit / scale if scale else factor
        attention = given.get("attention_factor")
        if attention is None:
            attention = 1.0
            if factor > 1:
                attention = math.sqrt(1 + math.log(factor) / math.log(old))
        return Rope(
            dim, base, None, tuple(given["short_factor"]), tuple(given["long_factor"]),
            old, attention,
        )  # fmt: skip
    if kind not in ("linear", "yarn", "llama3"):
        raise ValueError(f"RoPE scaling of type {kind!r}")
    options = {k: given[k] for k in _SCALING_FIELDS if given.get(k) is not None}
    return Rope(dim, base, RopeScaling(kind, factor, old, **options))
