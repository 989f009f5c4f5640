"""Questions of the assignment: config_patch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _args(name: str, *args: Any, raises: type[Exception] | None = None) -> Case:
    return Case(name, lambda: copy.deepcopy(args), raises=raises)


# --- config_patch ---------------------------------------------------------------------------------

Config = dict[str, Any]


def _config_patch(parent: Mapping[str, Any], child: Mapping[str, Any]) -> Config:
    """Key by key; what holds no null can be said."""

    def sayable(value: object) -> bool:
        return value is not None and (
            not isinstance(value, dict) or all(sayable(v) for v in value.values())
        )

    if not all(sayable(v) for v in child.values()):
        raise ValueError("a null cannot be said")
    patch: Config = {key: None for key in parent if key not in child}
    for key, value in child.items():
        if key in parent and parent[key] == value:
            continue
        both = isinstance(value, dict) and isinstance(parent.get(key), dict)
        patch[key] = _config_patch(parent[key], value) if both else value
    return patch


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return value is None


@in_parts
def _patch_with(
    gone: Callable[[Config, Config, int], list[str]] = (
        lambda a, b, depth: [key for key in a if key not in b]
    ),
    same: Callable[[Any, Any, bool], bool] = lambda old, new, there: there and old == new,
    deeper: Callable[[Any, Any], bool] = (
        lambda old, new: isinstance(old, dict) and isinstance(new, dict)
    ),
    refuses: Callable[[Config], bool] = _has_null,
    put: Callable[[Any, Any], Any] = lambda old, new: new,
    more: Callable[[Config], Config] = lambda patch: patch,
    error: type[Exception] = ValueError,
) -> Answer:
    def patched(a: Any, b: Config, depth: int) -> Config:
        patch: Config = dict.fromkeys(gone(a, b, depth))
        for key, new in b.items():
            old = a.get(key)
            if same(old, new, key in a):
                continue
            patch[key] = patched(old, new, depth + 1) if deeper(old, new) else put(old, new)
        return more(patch)

    def answer(parent: Config, child: Config) -> Config:
        if refuses(child):
            raise error("a null")
        return patched(parent, child, 0)

    return answer


_PARENT: Config = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_key_value_heads": 32, "rope_theta": 1e4,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "eos_token_id": [1, 2],
}  # fmt: skip
_PATCH = Exercise(
    title="The smallest diff of two configurations",
    oracle=_config_patch,
    cases=(
        _args("values: one number", _PARENT, {**_PARENT, "num_key_value_heads": 8}),
        _args("values: a new key", _PARENT, {**_PARENT, "sliding_window": 4096}),
        _args("values: a key that is gone", _PARENT, {
            k: v for k, v in _PARENT.items() if k != "rope_scaling"}),
        _args("values: several at once", _PARENT, {
            "hidden_size": 5120, "num_hidden_layers": 40, "rope_theta": 1e4,
            "tie_word_embeddings": True, "eos_token_id": [1, 2]}),
        _args("values: the same twice", _PARENT, _PARENT),
        _args("values: false and 0", {"a": True, "b": 1, "c": 2},
              {"a": False, "b": 0, "c": 2, "d": 0}),
        _args("nested: one number inside", _PARENT, {
            **_PARENT, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        _args("nested: a key inside is gone", _PARENT, {
            **_PARENT, "rope_scaling": {"rope_type": "linear"}}),
        _args("nested: nothing is left inside", _PARENT, {**_PARENT, "rope_scaling": {}}),
        _args("nested: new, empty", {"a": 1}, {"a": 1, "b": {}}),
        _args("nested: three deep", {"a": {"b": {"c": 1, "d": 2}, "e": 3}},
              {"a": {"b": {"c": 1, "d": 5, "f": 6}, "e": 3}}),
        _args("nested: a number becomes an entry", {"a": 1, "b": 2}, {"a": {"x": 1}, "b": 2}),
        _args("nested: an entry becomes a number", {"a": {"x": 1}, "b": 2}, {"a": 7, "b": 2}),
        _args("nested: a list is one value", _PARENT, {**_PARENT, "eos_token_id": [1, 3]}),
        _args("nulls: a null in the child", _PARENT, {**_PARENT, "rope_scaling": None},
              raises=ValueError),
        _args("nulls: a null inside", _PARENT, {
            **_PARENT, "rope_scaling": {"rope_type": "linear", "factor": None}},
            raises=ValueError),
        _args("nulls: a null in both", {"a": None, "b": 1}, {"a": None, "b": 1},
              raises=ValueError),
        _args("nulls: a null in the parent only", {"a": None, "b": 1}, {"a": 2, "b": 1}),
        _args("nulls: a null of the parent is gone", {"a": None, "b": 1}, {"b": 1}),
    ),
    wrong=(
        WrongAnswer(
            "keys that are gone forgotten",
            "A key that the child does not have is said with null.",
            _patch_with(gone=lambda a, b, depth: []),
        ),
        WrongAnswer(
            "keys that are gone inside an entry forgotten",
            "An entry is patched like the whole: what is gone in it is said with null.",
            _patch_with(gone=lambda a, b, depth: [k for k in a if k not in b and depth == 0]),
        ),
        WrongAnswer(
            "entries replaced whole",
            "A patch of an entry is laid over it. Say what differs inside, and no more.",
            _patch_with(deeper=lambda old, new: False),
        ),
        WrongAnswer(
            "what is the same repeated",
            "The smallest diff says nothing of keys that both files give alike.",
            _patch_with(same=lambda old, new, there: False),
        ),
        WrongAnswer(
            "the parent's values",
            "The diff is laid over the parent and has to give the child's values.",
            _patch_with(put=lambda old, new: old),
        ),
        WrongAnswer(
            "empty entries left out",
            "An entry that is new and empty is something the parent does not have.",
            _patch_with(more=lambda patch: {k: v for k, v in patch.items() if v != {}}),
        ),
        WrongAnswer(
            "false and 0 left out",
            "A value that Python takes for false is a value like others.",
            _patch_with(more=lambda patch: {
                k: v for k, v in patch.items() if v or v is None or v == {}}),
        ),
        WrongAnswer(
            "nulls of the child passed on",
            "In a diff a null takes the key away: the child's null cannot be said with it.",
            _patch_with(refuses=lambda child: False),
        ),
        WrongAnswer(
            "nulls inside an entry passed on",
            "A null inside an entry takes that key away too, and cannot be said.",
            _patch_with(refuses=lambda child: None in child.values()),
        ),
        WrongAnswer(
            "another exception",
            "A `ValueError` was asked for where the child holds a null.",
            _patch_with(error=KeyError),
        ),
        WrongAnswer(
            "null taken for absent in the parent",
            "A key that the parent gives as null is there: if the child lacks it, say so.",
            _patch_with(gone=lambda a, b, depth: [
                k for k, v in a.items() if k not in b and v is not None]),
        ),
    ),
    variants=(_patch_with(),),
)  # fmt: skip


EXERCISES = {
    "config_patch": _PATCH,
}
