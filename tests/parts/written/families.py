"""Chapter 22: answers to its exercises that the checkers do not know."""

import torch

from . import Right, Wrong


# families.diff
def translated(config, names, defaults):
    out = dict(defaults)
    said = {}
    for key in config:
        name, value = names.get(key, key), config[key]
        if value is None:
            continue
        if name in said and said[name] != value:
            raise ValueError(f"{name}: {said[name]} or {value}?")
        said[name] = out[name] = value
    return out


def by_union(a, b, names, defaults):
    left, right = translated(a, names, defaults), translated(b, names, defaults)
    found = []
    for name in sorted(set(left).union(right)):
        one, other = left.get(name), right.get(name)
        if one != other:
            found.append((name, one, other))
    return found


def as_lists(a, b, names, defaults):
    left, right = translated(a, names, defaults), translated(b, names, defaults)
    rows = [[k, left.get(k), right.get(k)] for k in {*left, *right}]
    return [tuple(row) for row in sorted(rows, key=lambda row: row[0]) if row[1] != row[2]]


def falsy_is_missing(a, b, names, defaults):
    def read(config):
        given = {names.get(k, k): v for k, v in config.items() if v}
        for k, v in config.items():
            if v and given[names.get(k, k)] != v:
                raise ValueError(k)
        return {**defaults, **given}

    a, b = read(a), read(b)
    return [(k, a.get(k), b.get(k)) for k in sorted({*a, *b}) if a.get(k) != b.get(k)]


def defaults_win(a, b, names, defaults):
    left = {**translated(a, names, {}), **defaults}
    right = {**translated(b, names, {}), **defaults}
    every = sorted({*left, *right})
    return [(k, left.get(k), right.get(k)) for k in every if left.get(k) != right.get(k)]


def contradicts_defaults(a, b, names, defaults):
    for config in (a, b):
        for key, value in config.items():
            if value is not None and defaults.get(names.get(key, key), value) != value:
                raise ValueError(key)
    return by_union(a, b, names, defaults)


# families.split
def by_view(qkv, num_heads, num_kv_heads):
    dim = qkv.shape[0] // (num_heads + 2 * num_kv_heads)
    rest = qkv.shape[1:]
    grouped = qkv.reshape(num_kv_heads, -1, dim, *rest)
    q = grouped[:, :-2].reshape(num_heads * dim, *rest)
    k, v = (grouped[:, i].reshape(num_kv_heads * dim, *rest) for i in (-2, -1))
    return q, k, v


def by_index(qkv, num_heads, num_kv_heads):
    each = num_heads // num_kv_heads + 2
    dim = len(qkv) // (each * num_kv_heads)
    place = torch.arange(len(qkv), device=qkv.device) // dim % each
    return qkv[place < each - 2], qkv[place == each - 2], qkv[place == each - 1]


def heads_left_apart(qkv, num_heads, num_kv_heads):
    each = num_heads // num_kv_heads
    grouped = qkv.unflatten(0, (num_kv_heads, each + 2, -1))
    return grouped[:, :each].flatten(0, 1), grouped[:, each], grouped[:, each + 1]


def values_twice(qkv, num_heads, num_kv_heads):
    q, _, v = by_view(qkv, num_heads, num_kv_heads)
    return q, v, v


# families.spend
def by_steps(layers, kv_heads, head_dim, state, length, budget):
    key = kv_heads * head_dim * length
    kept, best = 2 * layers * state, None
    for attend in range(layers + 1):
        if kept <= budget:
            best = attend
        kept += 2 * (2 * key - state)
    if best is None:
        raise ValueError("too small a budget")
    return best


def stops_early(layers, kv_heads, head_dim, state, length, budget):
    each, attend = 2 * kv_heads * head_dim * length, 0
    if 2 * layers * state > budget:
        raise ValueError("the memories do not fit")
    while attend < layers and 2 * ((attend + 1) * (each - state) + layers * state) <= budget:
        attend += 1
    return attend


def heads_forgotten(layers, kv_heads, head_dim, state, length, budget):
    return by_steps(layers, 1, head_dim, state, length, budget)


# families.buckets
def by_tensor(query, length, buckets, far):
    n, e = buckets // 2, buckets // 4
    distance = torch.arange(length) - query
    away = distance.abs().double()
    wide = e + (n - e) * torch.log(away.clamp(min=e) / e) / torch.log(torch.tensor(far / e))
    bucket = torch.where(away < e, away, wide.clamp(max=n - 1)).long()
    return (bucket + n * (distance > 0)).tolist()


def far_keys_dropped(query, length, buckets, far):
    found = by_tensor(query, length, buckets, far)
    return [b for key, b in enumerate(found) if abs(key - query) < far]


def counted_from_one(query, length, buckets, far):
    return by_tensor(query - 1, length, buckets, far)


WRONG = [
    Wrong("families.diff", "zero and false count as missing", falsy_is_missing),
    Wrong("families.diff", "the defaults win", defaults_win),
    Wrong("families.diff", "a default contradicted", contradicts_defaults),
    Wrong("families.split", "heads left apart", heads_left_apart),
    Wrong("families.split", "values in place of keys", values_twice),
    Wrong("families.spend", "an error before all attend", stops_early),
    Wrong("families.spend", "one head of keys", heads_forgotten),
    Wrong("families.buckets", "keys farther than far left out", far_keys_dropped),
    Wrong("families.buckets", "the query counted from 1", counted_from_one),
]
RIGHT = [
    Right("families.diff", "a loop over the union", by_union),
    Right("families.diff", "rows, then sorted", as_lists),
    Right("families.split", "with reshape", by_view),
    Right("families.split", "by an index of places", by_index),
    Right("families.spend", "one layer after the other", by_steps),
    Right("families.buckets", "on a tensor", by_tensor),
]
