"""Chapter 13: answers to its exercises that the checkers do not know."""

import math

import torch
import torch.nn.functional as F

from . import Right, Wrong

# kv_cache.grouped_attention


def by_enable_gqa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def one_head_for_all(q, k, v):
    k, v = k[:, :1].expand(-1, q.shape[1], -1, -1), v[:, :1].expand(-1, q.shape[1], -1, -1)
    return F.scaled_dot_product_attention(q, k, v)


def a_mean_of_the_groups(q, k, v):
    r = q.shape[1] // k.shape[1]
    out = F.scaled_dot_product_attention(q.unflatten(1, (-1, r)).flatten(2, 3), k, v)
    return out.unflatten(2, (r, -1)).mean(2).repeat_interleave(r, 1)


def causal_too(q, k, v):
    r = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def without_gradients_of_the_keys(q, k, v):
    r = q.shape[1] // k.shape[1]
    k, v = k.detach().repeat_interleave(r, 1), v.repeat_interleave(r, 1)
    return F.scaled_dot_product_attention(q, k, v)


def head_by_head(q, k, v):
    r = q.shape[1] // k.shape[1]
    made = []
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // r].mT / math.sqrt(q.shape[-1])
        made.append(scores.softmax(-1) @ v[:, h // r])
    return torch.stack(made, 1)


def by_one_more_dimension(q, k, v):
    rows = q.unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("bgrtd,bgsd->bgrts", rows, k) / q.shape[-1] ** 0.5
    return torch.einsum("bgrts,bgsd->bgrtd", scores.softmax(-1), v).flatten(1, 2)


# kv_cache.chunk_mask


def causal_from_the_top(tokens, query_len):
    s = tokens.shape[1]
    mask = torch.ones(query_len, s, dtype=torch.bool).tril()
    return (mask & tokens[:, None, :])[:, None]


def not_of_the_padding(tokens, query_len):
    s = tokens.shape[1]
    mask = torch.ones(s, s, dtype=torch.bool).tril()[s - query_len :]
    return mask.expand(len(tokens), 1, query_len, s)


def by_the_number_of_tokens(tokens, query_len):
    s = tokens.shape[1]
    place = tokens.cumsum(1)
    mask = place[:, None, :] <= place[:, s - query_len :, None]
    return mask[:, None]


def without_the_heads(tokens, query_len):
    s = tokens.shape[1]
    mask = torch.ones(s, s, dtype=torch.bool).tril()[s - query_len :]
    return mask & tokens[:, None, :]


def by_positions(tokens, query_len):
    s = tokens.shape[1]
    at = torch.arange(s)
    later = at[None, :] > at[s - query_len :, None]
    return (tokens[:, None, :] & ~later)[:, None]


# kv_cache.cached_step


def positions_from_0(q, k, v, keys, values, rotate):
    at = torch.arange(q.shape[2])
    keys = torch.cat([keys, rotate(k, at)], 2)
    values = torch.cat([values, v], 2)
    mask = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).tril(keys.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(rotate(q, at), keys, values, mask), keys, values


def all_rotated_again(q, k, v, keys, values, rotate):
    a = keys.shape[2]
    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
    at = torch.arange(keys.shape[2])
    mask = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).tril(a)
    out = F.scaled_dot_product_attention(rotate(q, at[a:]), rotate(keys, at), values, mask)
    return out, keys, values


def the_future_of_the_chunk(q, k, v, keys, values, rotate):
    at = torch.arange(keys.shape[2], keys.shape[2] + q.shape[2])
    keys, values = torch.cat([keys, rotate(k, at)], 2), torch.cat([values, v], 2)
    return F.scaled_dot_product_attention(rotate(q, at), keys, values), keys, values


def only_the_new_ones_back(q, k, v, keys, values, rotate):
    out, keys, values = row_by_row(q, k, v, keys, values, rotate)
    return out, keys[:, :, -q.shape[2] :], values[:, :, -q.shape[2] :]


def row_by_row(q, k, v, keys, values, rotate):
    made = []
    for t in range(q.shape[2]):
        at = torch.tensor([keys.shape[2]])
        keys = torch.cat([keys, rotate(k[:, :, t : t + 1], at)], 2)
        values = torch.cat([values, v[:, :, t : t + 1]], 2)
        one = rotate(q[:, :, t : t + 1], at)
        scores = one @ keys.mT / q.shape[-1] ** 0.5
        made.append(scores.softmax(-1) @ values)
    return torch.cat(made, 2), keys, values


# kv_cache.pool_heads


def the_first_of_each_group(weight, num_heads, num_kv_heads):
    d = len(weight) // num_heads
    return weight.unflatten(0, (num_kv_heads, -1, d))[:, 0].flatten(0, 1)


def a_sum_of_each_group(weight, num_heads, num_kv_heads):
    d = len(weight) // num_heads
    return weight.unflatten(0, (num_kv_heads, -1, d)).sum(1).flatten(0, 1)


def heads_across_groups(weight, num_heads, num_kv_heads):
    d = len(weight) // num_heads
    return weight.unflatten(0, (-1, num_kv_heads, d)).mean(0).flatten(0, 1)


def matrices_only(weight, num_heads, num_kv_heads):
    d = len(weight) // num_heads
    return weight.view(num_kv_heads, -1, d, weight.shape[1]).mean(1).flatten(0, 1)


def by_a_matrix_of_means(weight, num_heads, num_kv_heads):
    d, r = len(weight) // num_heads, num_heads // num_kv_heads
    groups = torch.eye(num_kv_heads, dtype=weight.dtype).repeat_interleave(r, 1) / r
    means = torch.kron(groups, torch.eye(d, dtype=weight.dtype))
    return means @ weight


# kv_cache.max_batch


def keys_only(memory, parameters, num_layers, num_kv_heads, head_dim, length, dtype_bytes):
    rest = memory - parameters * dtype_bytes
    return max(0, rest // (num_layers * num_kv_heads * head_dim * length * dtype_bytes))


def rounded(memory, parameters, num_layers, num_kv_heads, head_dim, length, dtype_bytes):
    each = 2 * num_layers * num_kv_heads * head_dim * length * dtype_bytes
    return max(0, round((memory - parameters * dtype_bytes) / each))


def below_zero(memory, parameters, num_layers, num_kv_heads, head_dim, length, dtype_bytes):
    each = 2 * num_layers * num_kv_heads * head_dim * length * dtype_bytes
    return (memory - parameters * dtype_bytes) // each


def weights_in_bytes(memory, parameters, num_layers, num_kv_heads, head_dim, length, dtype_bytes):
    each = 2 * num_layers * num_kv_heads * head_dim * length * dtype_bytes
    return max(0, (memory - parameters) // each)


def counted_up(memory, parameters, num_layers, num_kv_heads, head_dim, length, dtype_bytes):
    numbers = memory // dtype_bytes - parameters
    return max(0, numbers // (2 * num_layers * num_kv_heads * head_dim * length))


# kv_cache.intensity


def keys_only_moved(num_heads, num_kv_heads, query_len, key_len, dtype_bytes):
    return 2 * num_heads * query_len / (num_kv_heads * dtype_bytes)


def one_flop_a_product(num_heads, num_kv_heads, query_len, key_len, dtype_bytes):
    moved = 2 * query_len * num_heads + 2 * key_len * num_kv_heads
    return 2 * num_heads * query_len * key_len / (moved * dtype_bytes)


def outputs_not_moved(num_heads, num_kv_heads, query_len, key_len, dtype_bytes):
    moved = query_len * num_heads + 2 * key_len * num_kv_heads
    return 4 * num_heads * query_len * key_len / (moved * dtype_bytes)


def keys_for_every_head(num_heads, num_kv_heads, query_len, key_len, dtype_bytes):
    return 2 * query_len * key_len / ((query_len + key_len) * dtype_bytes)


def with_a_width(num_heads, num_kv_heads, query_len, key_len, dtype_bytes):
    d = 128
    flops = 2 * (2 * num_heads * query_len * key_len * d)
    moved = dtype_bytes * d * (2 * num_heads * query_len + 2 * num_kv_heads * key_len)
    return flops / moved


WRONG = [
    Wrong("kv_cache.grouped_attention", "by enable_gqa", by_enable_gqa, says="enable_gqa=True"),
    Wrong(
        "kv_cache.grouped_attention",
        "one head for all",
        one_head_for_all,
        named="the first key-value head for all",
    ),
    Wrong("kv_cache.grouped_attention", "the mean of a group", a_mean_of_the_groups),
    Wrong("kv_cache.grouped_attention", "causal", causal_too),
    Wrong("kv_cache.grouped_attention", "keys detached", without_gradients_of_the_keys),
    Wrong(
        "kv_cache.chunk_mask",
        "causal from the top",
        causal_from_the_top,
        named="causal at the top left",
    ),
    Wrong("kv_cache.chunk_mask", "padding allowed", not_of_the_padding, named="no padding"),
    Wrong("kv_cache.chunk_mask", "by the number of tokens", by_the_number_of_tokens),
    Wrong("kv_cache.chunk_mask", "no dimension of heads", without_the_heads),
    Wrong(
        "kv_cache.cached_step",
        "positions from 0",
        positions_from_0,
        named="the chunk's positions start at 0",
    ),
    Wrong(
        "kv_cache.cached_step",
        "all keys rotated again",
        all_rotated_again,
        named="keys cached before the rotation",
    ),
    Wrong(
        "kv_cache.cached_step", "the future of the chunk", the_future_of_the_chunk, named="no mask"
    ),
    Wrong(
        "kv_cache.cached_step",
        "only the new keys back",
        only_the_new_ones_back,
        named="only the new keys returned",
    ),
    Wrong(
        "kv_cache.pool_heads",
        "the first of each group",
        the_first_of_each_group,
        named="the first head of each group",
    ),
    Wrong("kv_cache.pool_heads", "a sum", a_sum_of_each_group, named="the sum"),
    Wrong(
        "kv_cache.pool_heads", "heads across groups", heads_across_groups, named="every G-th head"
    ),
    Wrong("kv_cache.pool_heads", "matrices only", matrices_only),
    Wrong("kv_cache.max_batch", "keys only", keys_only, named="keys or values, not both"),
    Wrong("kv_cache.max_batch", "rounded", rounded),
    Wrong("kv_cache.max_batch", "below zero", below_zero, named="negative room"),
    Wrong(
        "kv_cache.max_batch",
        "a weight is a byte",
        weights_in_bytes,
        named="weights counted as one byte each",
    ),
    Wrong(
        "kv_cache.intensity",
        "keys and values only",
        keys_only_moved,
        named="only the limit of many keys",
    ),
    Wrong(
        "kv_cache.intensity",
        "one FLOP a product",
        one_flop_a_product,
        named="one operation per multiply-add",
    ),
    Wrong("kv_cache.intensity", "outputs not moved", outputs_not_moved, named="outputs forgotten"),
    Wrong(
        "kv_cache.intensity",
        "keys for every head",
        keys_for_every_head,
        named="keys and values of every query head",
    ),
]
RIGHT = [
    Right("kv_cache.grouped_attention", "head by head", head_by_head),
    Right("kv_cache.grouped_attention", "one more dimension", by_one_more_dimension),
    Right("kv_cache.chunk_mask", "by positions", by_positions),
    Right("kv_cache.cached_step", "row by row", row_by_row),
    Right("kv_cache.pool_heads", "by a matrix of means", by_a_matrix_of_means),
    Right("kv_cache.max_batch", "in numbers", counted_up),
    Right("kv_cache.intensity", "with some width", with_a_width),
]
