"""The difference of two configurations that call the same thing by different names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

Config = Mapping[str, Any]
Found = list[tuple[str, Any, Any]]


def _common(config: Config, names: Mapping[str, str], defaults: Config) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        if value is None:
            continue
        name = names.get(key, key)
        if name in found and found[name] != value:
            raise ValueError(f"{name} is {found[name]} and {value}")
        found[name] = value
    return {**defaults, **found}


def _diff(a: Config, b: Config, names: Mapping[str, str], defaults: Config) -> Found:
    one, other = _common(a, names, defaults), _common(b, names, defaults)
    every = sorted({*one, *other})
    return [(n, one.get(n), other.get(n)) for n in every if one.get(n) != other.get(n)]


@in_parts
def _diff_with(
    *,
    rename: bool = True,
    fill: bool = True,
    nulls: bool = False,
    of: Callable[[Config, Config], set[str]] = lambda a, b: {*a, *b},
    clash: bool = True,
    turned: bool = False,
    in_order: bool = True,
) -> Answer:
    """The difference in parts: names, defaults, nulls, which names are asked, their order."""

    def read(config: Config, names: Mapping[str, str], defaults: Config) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in config:
            name = names.get(key, key) if rename else key
            if config[key] is None and not nulls:
                continue
            if clash and name in found and found[name] != config[key]:
                raise ValueError(name)
            found[name] = config[key]
        for name in defaults if fill else ():
            found.setdefault(name, defaults[name])
        return found

    def answer(a: Config, b: Config, names: Mapping[str, str], defaults: Config) -> Found:
        one, other = read(a, names, defaults), read(b, names, defaults)
        made: Found = []
        every = of(one, other)
        for name in sorted(every) if in_order else [n for n in [*one, *other] if n in every]:
            found = (name, one.get(name), other.get(name))
            if found[1] != found[2] and found not in made:
                made.append((name, *found[:0:-1]) if turned else found)
        return made

    return answer


NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "eps",
    "rms_norm_eps": "eps",
    "activation_function": "hidden_act",
}
DEFAULTS = {"hidden_act": "silu", "eps": 1e-6, "tie_word_embeddings": False}
OLD = {"n_embd": 768, "n_layer": 12, "n_head": 12, "layer_norm_epsilon": 1e-5,
       "activation_function": "gelu_new", "tie_word_embeddings": True}  # fmt: skip
NEW = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
       "intermediate_size": 11008, "rms_norm_eps": 1e-5}  # fmt: skip


def _case(
    name: str,
    a: Config,
    b: Config,
    names: Mapping[str, str] = NAMES,
    defaults: Config = DEFAULTS,
    raises: type[Exception] | None = None,
) -> Case:
    return Case(name, lambda: (dict(a), dict(b), dict(names), dict(defaults)), raises=raises)


DIFF = Exercise(
    title="Two files, one vocabulary",
    oracle=_diff,
    cases=(
        _case("two generations", OLD, NEW),
        _case("the other way round", NEW, OLD),
        _case("the same file", NEW, NEW),
        _case(
            "two names for one number",
            {"n_embd": 1024, "n_head": 16},
            {"hidden_size": 1024, "num_attention_heads": 16},
        ),
        _case("a default that is written out", NEW, {**NEW, "hidden_act": "silu"}),
        _case("a default that is changed", NEW, {**NEW, "hidden_act": "gelu"}),
        _case("a null, where there is a default", {**NEW, "hidden_act": None}, NEW),
        _case("a null, where there is none", {**NEW, "head_dim": None}, NEW),
        _case("a field that only the second has", {}, {"sliding_window": 4096}),
        _case("a field that only the first has", {"qk_norm": True}, {}),
        _case("a zero and a false are values", {"a": 0, "b": False}, {"a": 1, "b": True}),
        _case("no names and no defaults", OLD, NEW, {}, {}),
        _case(
            "one number under two names that agree",
            {"n_embd": 64, "hidden_size": 64},
            {"hidden_size": 32},
        ),
        _case(
            "two names that contradict each other",
            {"n_embd": 64, "hidden_size": 32},
            {"hidden_size": 32},
            raises=ValueError,
        ),
        _case(
            "a contradiction in the second file",
            {"hidden_size": 32},
            {"hidden_size": 32, "n_embd": 64},
            raises=ValueError,
        ),
        _case(
            "a name and a null are no contradiction",
            {"n_embd": 64, "hidden_size": None},
            {"hidden_size": 32},
        ),
    ),
    variants=(_diff_with(),),
    wrong=(
        WrongAnswer(
            "names as they are",
            "Two files call the same number by different names. Translate both first.",
            _diff_with(rename=False),
        ),
        WrongAnswer(
            "no defaults",
            "A field that is missing has its default, which may be what the other file says.",
            _diff_with(fill=False),
        ),
        WrongAnswer(
            "nulls taken for values",
            "A field that is null is as good as missing: its default holds.",
            _diff_with(nulls=True),
        ),
        WrongAnswer(
            "only what both have",
            "What only one of the two has is a difference too; the other one's value is None.",
            _diff_with(of=lambda a, b: {*a} & {*b}),
        ),
        WrongAnswer(
            "only what the first has",
            "The second file may have fields of its own.",
            _diff_with(of=lambda a, b: {*a}),
        ),
        WrongAnswer(
            "contradictions unseen",
            "If a file gives one thing two different values under two names, raise a ValueError.",
            _diff_with(clash=False),
        ),
        WrongAnswer(
            "in the order of the files",
            "The names are to come in the order of the alphabet.",
            _diff_with(in_order=False),
        ),
        WrongAnswer(
            "the second one first",
            "The value of the first file stands first.",
            _diff_with(turned=True),
        ),
    ),
)
