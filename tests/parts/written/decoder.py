"""Chapter 15: answers to its exercises that the checkers do not know."""

import math

import torch

from . import Right, Wrong

# decoder.parameter_count


def parts(v, d, layers, h, g, dh, ff, bias, norm, tied):
    qkv = d * dh * (h + 2 * g) + (dh * (h + 2 * g) if bias else 0)
    block = qkv + h * dh * d + (2 * dh if norm else 0) + 3 * d * ff + 2 * d
    return layers, block, v * d, d


def two_matrices_in_the_ffn(v, d, layers, h, g, dh, ff, bias, norm, tied):
    n, block, table, last = parts(v, d, layers, h, g, dh, ff, bias, norm, tied)
    return n * (block - d * ff) + table * (1 if tied else 2) + last


def head_dim_by_division(v, d, layers, h, g, dh, ff, bias, norm, tied):
    n, block, table, last = parts(v, d, layers, h, g, d // h, ff, bias, norm, tied)
    return n * block + table * (1 if tied else 2) + last


def no_last_norm(v, d, layers, h, g, dh, ff, bias, norm, tied):
    n, block, table, _ = parts(v, d, layers, h, g, dh, ff, bias, norm, tied)
    return n * block + table * (1 if tied else 2)


def one_qk_norm(v, d, layers, h, g, dh, ff, bias, norm, tied):
    n, block, table, last = parts(v, d, layers, h, g, dh, ff, bias, norm, tied)
    return n * (block - (dh if norm else 0)) + table * (1 if tied else 2) + last


def by_a_list_of_shapes(v, d, layers, h, g, dh, ff, bias, norm, tied):
    block = [(h * dh, d), (g * dh, d), (g * dh, d), (d, h * dh), (ff, d), (ff, d), (d, ff)]
    block += [(d,), (d,)]
    block += [(h * dh,), (g * dh,), (g * dh,)] * bool(bias) + [(dh,), (dh,)] * bool(norm)
    model = [(v, d), (d,), *([] if tied else [(v, d)])]
    return layers * sum(map(math.prod, block)) + sum(map(math.prod, model))


# decoder.read_config


def read(hf, head=None, biases=None):
    kind, h = hf["model_type"], hf["num_attention_heads"]
    dim = hf.get("head_dim")
    if dim is None:
        dim = 128 if kind == "qwen3" and head is None else hf["hidden_size"] // h
    groups = hf.get("num_key_value_heads")
    groups = h if groups is None else groups
    both = bool(hf.get("attention_bias", False))
    qkv, out = (True, False) if kind == "qwen2" else (both, both)
    return dim, groups, *(biases(qkv, out, both) if biases else (qkv, out)), kind == "qwen3"


def always_divided(hf):
    return read(hf, head="divided")


def bias_as_it_is_said(hf):
    return read(hf, biases=lambda qkv, out, both: (both, both))


def output_like_the_others(hf):
    return read(hf, biases=lambda qkv, out, both: (qkv, qkv))


def none_is_a_value(hf):
    h = hf["num_attention_heads"]
    _, _, *rest = read(hf)
    dim = hf.get("head_dim", 128 if hf["model_type"] == "qwen3" else hf["hidden_size"] // h)
    return dim, hf.get("num_key_value_heads", h), *rest


def by_truth(hf):
    kind, h = hf["model_type"], hf["num_attention_heads"]
    dim = hf.get("head_dim") or {"qwen3": 128}.get(kind, hf["hidden_size"] // h)
    said = "attention_bias" in hf and hf["attention_bias"]
    both = said and kind != "qwen2"
    return dim, hf.get("num_key_value_heads") or h, both or kind == "qwen2", both, kind == "qwen3"


# decoder.top_p


def one_too_few(logits, top_p):
    p, order = logits.softmax(-1).sort(-1, descending=True)
    drop = p.cumsum(-1) >= top_p
    return logits.masked_fill(drop.gather(-1, order.argsort(-1)), -math.inf)


def one_too_many(logits, top_p):
    p, order = logits.softmax(-1).sort(-1, descending=True)
    before = p.cumsum(-1) - p
    drop = before > top_p
    return logits.masked_fill(drop.gather(-1, order.argsort(-1)), -math.inf)


def in_sorted_order(logits, top_p):
    z, _ = logits.sort(-1, descending=True)
    p = z.softmax(-1)
    return z.masked_fill(p.cumsum(-1) - p >= top_p, -math.inf)


def a_threshold(logits, top_p):
    p = logits.softmax(-1)
    return logits.masked_fill(p < 1 - top_p, -math.inf)


def row_by_row(logits, top_p):
    flat = logits.reshape(-1, logits.shape[-1])
    out = torch.full_like(flat, -math.inf)
    for row, new in zip(flat, out, strict=True):
        p = row.double().softmax(-1) if row.dtype is torch.float64 else row.softmax(-1)
        best = p.argsort(descending=True, stable=True)
        sums = p[best].cumsum(-1)
        kept = best[: int((sums < top_p).sum()) + 1]
        new[kept] = row[kept]
    return out.reshape(logits.shape)


# decoder.permute


def the_other_way(weight, num_heads):
    d = len(weight) // num_heads
    return weight.unflatten(0, (num_heads, d // 2, 2)).transpose(1, 2).flatten(0, 2)


def over_all_heads(weight, num_heads):
    return weight.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)


def unchanged(weight, num_heads):
    return weight.clone()


def columns(weight, num_heads):
    return weight.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


def by_indices(weight, num_heads):
    d = len(weight) // num_heads
    rows = [h * d + k + half * (d // 2)
            for h in range(num_heads) for k in range(d // 2) for half in (0, 1)]  # fmt: skip
    return weight[torch.tensor(rows)]


# decoder.qk_norm


def turn(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def normed(x, gain, eps):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain


def norm_after_rotation(q, k, q_gain, k_gain, cos, sin, eps):
    q, k = (normed(turn(x, cos, sin), g, eps) for x, g in ((q, q_gain), (k, k_gain)))
    return q @ k.mT / math.sqrt(q.shape[-1])


def length_in_place_of_mean(q, k, q_gain, k_gain, cos, sin, eps):
    q, k = (x / (x.square().sum(-1, keepdim=True) + eps).sqrt() * g
            for x, g in ((q, q_gain), (k, k_gain)))  # fmt: skip
    return turn(q, cos, sin) @ turn(k, cos, sin).mT / math.sqrt(q.shape[-1])


def unscaled(q, k, q_gain, k_gain, cos, sin, eps):
    return turn(normed(q, q_gain, eps), cos, sin) @ turn(normed(k, k_gain, eps), cos, sin).mT


def gains_exchanged(q, k, q_gain, k_gain, cos, sin, eps):
    return plain(q, k, k_gain, q_gain, cos, sin, eps)


def plain(q, k, q_gain, k_gain, cos, sin, eps):
    q, k = turn(normed(q, q_gain, eps), cos, sin), turn(normed(k, k_gain, eps), cos, sin)
    return torch.einsum("bhtd,bhsd->bhts", q, k) * q.shape[-1] ** -0.5


# decoder.cached_step


def one_step(q, k, v, k_cache, v_cache, cos, sin, at=None, turned=True, groups="neighbours"):
    at = k_cache.shape[2] if at is None else at
    q = turn(q, cos[at], sin[at])
    keys = torch.cat([k_cache, turn(k, cos[at], sin[at]) if turned else k], 2)
    values = torch.cat([v_cache, v], 2)
    r = q.shape[1] // k.shape[1]
    if groups == "neighbours":
        all_k, all_v = keys.repeat_interleave(r, 1), values.repeat_interleave(r, 1)
    else:
        all_k, all_v = keys.repeat(1, r, 1, 1), values.repeat(1, r, 1, 1)
    weights = (q @ all_k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ all_v, keys, values


def position_0(q, k, v, k_cache, v_cache, cos, sin):
    return one_step(q, k, v, k_cache, v_cache, cos, sin, at=0)


def one_position_on(q, k, v, k_cache, v_cache, cos, sin):
    return one_step(q, k, v, k_cache, v_cache, cos, sin, at=min(k_cache.shape[2] + 1, len(cos) - 1))


def key_not_turned(q, k, v, k_cache, v_cache, cos, sin):
    return one_step(q, k, v, k_cache, v_cache, cos, sin, turned=False)


def groups_in_turn(q, k, v, k_cache, v_cache, cos, sin):
    return one_step(q, k, v, k_cache, v_cache, cos, sin, groups="in turn")


def by_stacked_queries(q, k, v, k_cache, v_cache, cos, sin):
    s = k_cache.shape[2]
    keys = torch.cat([k_cache, turn(k, cos[s], sin[s])], 2)
    values = torch.cat([v_cache, v], 2)
    rows = turn(q, cos[s], sin[s]).reshape(len(q), k.shape[1], -1, q.shape[-1])
    weights = (rows @ keys.mT * q.shape[-1] ** -0.5).softmax(-1)
    return (weights @ values).reshape(q.shape), keys, values


WRONG = [
    Wrong(
        "decoder.parameter_count",
        "two matrices",
        two_matrices_in_the_ffn,
        named="two matrices in the feed-forward layer",
    ),
    Wrong("decoder.parameter_count", "d_model over heads", head_dim_by_division),
    Wrong("decoder.parameter_count", "no last norm", no_last_norm, named="the last norm forgotten"),
    Wrong("decoder.parameter_count", "one norm for q and k", one_qk_norm),
    Wrong(
        "decoder.read_config",
        "always divided",
        always_divided,
        named="the default of Qwen3 forgotten",
    ),
    Wrong(
        "decoder.read_config",
        "bias as it is said",
        bias_as_it_is_said,
        named="Qwen2 without biases",
    ),
    Wrong(
        "decoder.read_config",
        "output like the others",
        output_like_the_others,
        named="Qwen2 with a bias on the output",
    ),
    Wrong(
        "decoder.read_config", "None is a value", none_is_a_value, named="nulls taken for values"
    ),
    Wrong(
        "decoder.top_p",
        "one too few",
        one_too_few,
        named="the token that crosses the line is dropped",
    ),
    Wrong("decoder.top_p", "one too many", one_too_many),
    Wrong("decoder.top_p", "in sorted order", in_sorted_order),
    Wrong("decoder.top_p", "a threshold", a_threshold, named="a threshold on single probabilities"),
    Wrong("decoder.permute", "the other way", the_other_way, named="the inverse permutation"),
    Wrong("decoder.permute", "over all heads", over_all_heads, named="all heads as one"),
    Wrong("decoder.permute", "unchanged", unchanged, named="nothing permuted"),
    Wrong("decoder.permute", "columns", columns),
    Wrong(
        "decoder.qk_norm",
        "norm after rotation",
        norm_after_rotation,
        named="norm after the rotation",
    ),
    Wrong(
        "decoder.qk_norm",
        "length in place of mean",
        length_in_place_of_mean,
        named="divided by the length",
    ),
    Wrong("decoder.qk_norm", "unscaled", unscaled, named="scale forgotten"),
    Wrong("decoder.qk_norm", "gains exchanged", gains_exchanged, named="gains exchanged"),
    Wrong("decoder.cached_step", "position 0", position_0, named="the new token at position 0"),
    Wrong(
        "decoder.cached_step",
        "one position on",
        one_position_on,
        named="the new token one place too late",
    ),
    Wrong(
        "decoder.cached_step",
        "key not turned",
        key_not_turned,
        named="the key cached without its rotation",
    ),
    Wrong(
        "decoder.cached_step",
        "groups in turn",
        groups_in_turn,
        named="heads repeated in the wrong order",
    ),
]
RIGHT = [
    Right("decoder.parameter_count", "by a list of shapes", by_a_list_of_shapes),
    Right("decoder.read_config", "by truth", by_truth),
    Right("decoder.top_p", "row by row", row_by_row),
    Right("decoder.permute", "by indices", by_indices),
    Right("decoder.qk_norm", "by einsum", plain),
    Right("decoder.cached_step", "stacked queries", by_stacked_queries),
]
