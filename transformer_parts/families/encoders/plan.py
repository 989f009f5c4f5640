"""What an encoder is made of: its data, and the plan that a configuration gives."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from transformer_parts.families.plan import (
    _ACTIVATIONS,
    _DEFAULTS,
    _PER_LAYER,
    Layer,
    Plan,
    _check_activation,
    _choices,
    _expressions,
    _lines,
    _read,
    _ropes,
    _unread,
    _value,
    _Values,
)

__all__ = ["ENCODERS", "EncoderPlan", "Stack", "encoder_data", "read_encoder_plan"]

# From notebooks/22_families.ipynb#encoders-from-the-same-parts
_DATA = tomllib.loads(
    (Path(__file__).parent / "encoders.toml").read_text(encoding="utf-8")
)
_ENCODER_DEFAULTS: dict[str, Any] = _DATA.pop("defaults")
ENCODERS: tuple[str, ...] = tuple(_DATA)
_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class Stack:
    """A stack of blocks: a plan as decoders have it, and what only encoders add.

    Args:
        plan: the choices of its blocks. Its `position` may also be 'sinusoids', for a
            table that starts with them; a layer's `window` counts keys on both sides.
        causal: whether a position sees no later one.
        cross: whether each block has a second attention, to another stack's output.
        k_bias: whether keys have a bias where queries and values have one.
        bare_first: whether the first block has no norm before its attention.
        buckets, max_distance: of `RelativePositionBias`, or None.
    """

    plan: Plan
    causal: bool
    cross: bool
    k_bias: bool
    bare_first: bool
    buckets: int | None
    max_distance: int | None

    def norms(self, i: int) -> tuple[str, ...]:
        """Where block `i` has norms; `cross_in` is before the second attention."""
        bare = self.bare_first and i == 0
        return tuple(n for n in self.plan.norms if not (bare and n == "attn_in"))


@dataclass(frozen=True)
class EncoderPlan:
    """An encoder, all choices made, perhaps with a decoder that looks at it.

    Args:
        family: the family's name.
        front: what becomes a sequence: 'tokens', 'patches' of an image, or 'frames' of
            a sound.
        inputs: for tokens `types`, rows of the table of token types, and `count_from`,
            the padding token if positions count what is not padding, from the row after
            that number; otherwise the arguments of `PatchEmbedding`, `FrameEmbedding`.
        encoder, decoder: the stacks; decoder is None where there is none.
        head: `kind` 'masked' (a score for each token at every position), 'classes'
            (from the first position) or 'next' (of the decoder); with its options.
        tie: the head is the embedding.
        start: the token with which a decoder begins.
        data: the family's data, for the names of tensors.
    """

    family: str
    front: str
    inputs: dict[str, Any]
    encoder: Stack
    decoder: Stack | None
    head: dict[str, Any]
    tie: bool
    start: int | None
    data: dict[str, Any] = field(repr=False, compare=False)


_TABLES = (
    "inputs", "head", "encoder", "decoder", "absent", "names", "encoder_names",
    "decoder_names",
)  # fmt: skip
_STACK_ONLY = (
    "causal", "cross", "k_bias", "bare_first", "buckets", "max_distance",
)  # fmt: skip


def encoder_data(name: str) -> dict[str, Any]:
    """All choices of a family, `like` followed, over the defaults.

    `encoder` and `decoder` hold those of one stack of blocks, over the defaults of the
    decoders' data; a decoder is like its encoder.

    Raises:
        ValueError: if there is no such family.
    """
    found = _merged(name)
    found["encoder"] = {**_DEFAULTS, **found["encoder"]}
    if "decoder" in found:
        found["decoder"] = {**found["encoder"], **found["decoder"]}
        found["decoder_names"] = {**found["encoder_names"], **found["decoder_names"]}
    return found


def _merged(name: str) -> dict[str, Any]:
    if name not in _DATA:
        raise ValueError(f"family must be one of {', '.join(ENCODERS)}, got {name!r}")
    own = dict(_DATA[name])
    like = own.pop("like", None)
    found = _merged(like) if like else dict(_ENCODER_DEFAULTS)
    for key, value in own.items():
        found[key] = {**found.get(key, {}), **value} if key in _TABLES else value
    return found


@cache
def _own_keys(name: str) -> frozenset[str]:
    """The keys of config.json that the lines of a family speak of."""
    data = _merged(name)
    found = {"model_type", "quantization_config", "layer_types", *data["unread"]}
    if data["encoder"]["position"] == "rope":
        found |= {"rope_scaling", "rope_parameters"}
    found |= {*data["absent"], *data["keys"], *data["keys"].values()}
    for text in _expressions(data):
        found |= {*compile(text, name, "eval").co_names}
    return frozenset(found)


def read_encoder_plan(
    config: Mapping[str, Any] | str | Path, *, ignore: Collection[str] = ()
) -> EncoderPlan:
    """A plan from a published config.json of an encoder.

    Args:
        config: the file, the folder that holds it, or its contents.
        ignore: keys that may stay unread; see `read_plan`.

    Raises:
        ValueError: with a line for everything that is missing: the family, a size, a
            part or a setting that these parts do not have, a key that is not read.

    Source: the configuration classes of Hugging Face's transformers.
    """
    raw = _read(config)
    family = str(raw.get("model_type"))
    if family not in _DATA:
        raise ValueError(
            f"model_type {family!r} is not known; known are {', '.join(ENCODERS)}"
        )
    data = encoder_data(family)
    asked: set[str] = set()
    values = _Values(raw, asked)
    for key, default in data["absent"].items():
        if key not in raw:  # a null is an answer
            values[key] = _value(default, values)
    for key in data["pairs"]:  # a number stands for both sides
        if isinstance(values[key], int):
            values[key] = (values[key], values[key])
    missing = [f"{key} is not given" for key in data["sizes"] if values[key] is None]
    if raw.get("quantization_config"):
        missing.append("quantization_config: weights have to be floating point")
    if missing:
        raise ValueError(_lines(family, missing))
    for text, condition in data["unsupported"].items():
        if _value(condition, values):
            missing.append(text)
    stacks = {
        which: _stack(family, data[which], values, missing)
        for which in ("encoder", "decoder")
        if which in data
    }
    head = _value(data["head"], values)
    missing += _check_activation(head, "activation", set(_ACTIVATIONS.values()))
    known = {*asked, *_own_keys(family), *ignore}
    missing += _unread(raw, known)
    if missing:
        raise ValueError(_lines(family, missing))
    for key in ("names", "encoder_names", "decoder_names"):
        data[key] = _value(data.get(key, {}), values)
    inputs = {k: v for k, v in _value(data["inputs"], values).items() if v is not None}
    return EncoderPlan(
        family, data["front"], inputs, stacks["encoder"], stacks.get("decoder"), head,
        bool(_value(data["tie"], values)), _value(data["start"], values), data,
    )  # fmt: skip


def _stack(
    family: str, lines: dict[str, Any], values: _Values, missing: list[str]
) -> Stack:
    """One stack of blocks; what is missing is added to `missing`."""
    choice = _choices(lines, values, missing)
    asked, layers = values.asked, []
    for i in range(choice["num_layers"] or 0):
        at = _Values({**values, "i": i}, asked)
        at["kind"] = _value(lines["kind"], at)
        if at["kind"] not in _KINDS:
            missing.append(f"layer {i}: {at['kind']}")
        window, chunk, rope, _, d_ff = (_value(lines[key], at) for key in _PER_LAYER)
        rope = bool(rope) and choice["position"] == "rope"
        layers.append(Layer(at["kind"], window, chunk, rope, False, d_ff))
    missing += _check_activation(choice, "activation", set(_ACTIVATIONS.values()))
    ropes = _ropes(lines, layers, choice["head_dim"], values, missing)
    choice["norms"] = tuple(choice["norms"])
    plan = Plan(
        family=family, layers=tuple(layers), ropes=ropes, experts=None, data=lines,
        **choice,
    )  # fmt: skip
    return Stack(plan, **{key: _value(lines[key], values) for key in _STACK_ONLY})
