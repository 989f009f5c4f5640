"""Queries, keys and values in one matrix, group by group."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

Three = tuple[Tensor, Tensor, Tensor]


def _split(qkv: Tensor, num_heads: int, num_kv_heads: int) -> Three:
    """Head after head, by counting."""
    each = num_heads // num_kv_heads
    dim = len(qkv) // (num_heads + 2 * num_kv_heads)
    heads = [qkv[i * dim : (i + 1) * dim] for i in range(num_heads + 2 * num_kv_heads)]
    parts: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for i, head in enumerate(heads):
        place = i % (each + 2)
        parts[max(0, place - each + 1)].append(head)
    q, k, v = (torch.cat(part) for part in parts)
    return q, k, v


def _grouped(qkv: Tensor, h: int, g: int) -> Three:
    per = qkv.unflatten(0, (g, h // g + 2, -1))  # type: ignore[no-untyped-call]
    q, k, v = torch.split(per, [h // g, 1, 1], dim=1)
    return q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2)


def _thirds(qkv: Tensor, h: int, g: int) -> Three:
    dim = len(qkv) // (h + 2 * g)
    q, k, v = torch.split(qkv, [h * dim, g * dim, g * dim])
    return q.clone(), k.clone(), v.clone()


def _by_feature(qkv: Tensor, h: int, g: int) -> Three:
    """Each head's rows in turns: the features outermost."""
    per = qkv.unflatten(0, (g, -1, h // g + 2))  # type: ignore[no-untyped-call]
    q, k, v = torch.split(per.movedim(2, 1), [h // g, 1, 1], dim=1)
    return q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2)


def _keys_first(qkv: Tensor, h: int, g: int) -> Three:
    per = qkv.unflatten(0, (g, h // g + 2, -1))  # type: ignore[no-untyped-call]
    k, v, q = torch.split(per, [1, 1, h // g], dim=1)
    return q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2)


def _groups_inside(qkv: Tensor, h: int, g: int) -> Three:
    """The same place of every group together, as if the groups stood innermost."""
    per = qkv.unflatten(0, (g, h // g + 2, -1))  # type: ignore[no-untyped-call]
    q, k, v = torch.split(per, [h // g, 1, 1], dim=1)
    return q.transpose(0, 1).flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2)


def _one_query_each(qkv: Tensor, h: int, g: int) -> Three:
    """As with as many key-value heads as heads, where each has its three."""
    dim = len(qkv) // (h + 2 * g)
    rows = qkv.unflatten(0, (-1, dim))  # type: ignore[no-untyped-call]
    q, k, v = rows[0::3], rows[1::3], rows[2::3]
    return q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)


@in_parts
def _split_with(
    *, parts: Callable[[Tensor, int, int], Three] = _grouped, swap: bool = False
) -> Answer:
    def answer(qkv: Tensor, num_heads: int, num_kv_heads: int) -> Three:
        q, k, v = parts(qkv, num_heads, num_kv_heads)
        return (q, v, k) if swap else (q, k, v)

    return answer


def _case(name: str, heads: int, kv_heads: int, dim: int, *rest: int) -> Case:
    rows = (heads + 2 * kv_heads) * dim
    return Case(name, lambda: (draw(rows, *rest), heads, kv_heads), 1e-12)


SPLIT = Exercise(
    title="One matrix for queries, keys and values",
    oracle=_split,
    cases=(
        _case("four heads on two", 4, 2, 3, 5),
        _case("as many key-value heads as heads", 3, 3, 4, 6),
        _case("one key-value head", 4, 1, 2, 3),
        _case("six heads on three", 6, 3, 5, 2),
        _case("a bias", 8, 2, 4),
        _case("heads of one feature", 6, 2, 1, 4),
        _case("one head", 1, 1, 3, 2),
    ),
    variants=(_split_with(),),
    wrong=(
        WrongAnswer(
            "three blocks for the whole layer",
            "The rows stand group by group, so that the queries of the second group come after the "
            "keys and values of the first.",
            _split_with(parts=_thirds),
        ),
        WrongAnswer(
            "three rows of heads for each head",
            "Queries, keys and values take turns only if each head has its own. Here several heads "
            "of queries come before one key and one value.",
            _split_with(parts=_one_query_each),
        ),
        WrongAnswer(
            "features outside, heads inside",
            "The rows of one head lie together.",
            _split_with(parts=_by_feature),
        ),
        WrongAnswer(
            "keys and values before the queries",
            "In each group the queries come first, then the key, then the value.",
            _split_with(parts=_keys_first),
        ),
        WrongAnswer(
            "the groups in turns",
            "The first heads of queries are all those of the first group, then come those of the "
            "second.",
            _split_with(parts=_groups_inside),
        ),
        WrongAnswer(
            "values and keys exchanged",
            "In each group the key comes before the value.",
            _split_with(swap=True),
        ),
    ),
)
