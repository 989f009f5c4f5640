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


# kv_cache.window_step


def window_with(at=None, shown=None, slot=None):
    """A step with a window, written with a list of what is kept."""

    def answer(q, k, v, keys, values, length, rotate):
        room = keys.shape[2]
        here = torch.tensor([length if at is None else at(length, room)])
        place = length % room if slot is None else slot(length, room)
        rows = list(keys.unbind(2)), list(values.unbind(2))
        rows[0][place], rows[1][place] = rotate(k, here)[:, :, 0], v[:, :, 0]
        keys, values = (torch.stack(row, 2) for row in rows)
        seen = torch.arange(room) <= length if shown is None else shown(length, room)
        out = F.scaled_dot_product_attention(rotate(q, here), keys, values, seen[None])
        return out, keys, values

    return answer


def window_in_place(q, k, v, keys, values, length, rotate):
    keys, values, here = keys.clone(), values.clone(), torch.tensor([length])
    slot = length % keys.shape[2]
    keys[:, :, slot : slot + 1], values[:, :, slot : slot + 1] = rotate(k, here), v
    n = min(length + 1, keys.shape[2])
    query = rotate(q, here)
    out = F.scaled_dot_product_attention(query, keys[:, :, :n], values[:, :, :n])
    return out, keys, values


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
        "kv_cache.window_step",
        "positions start again",
        window_with(at=lambda length, room: length % room),
        named="rotated by the slot",
    ),
    Wrong(
        "kv_cache.window_step",
        "zeros attended to",
        window_with(shown=lambda length, room: torch.ones(room, dtype=torch.bool)),
        named="empty slots attended to",
    ),
    Wrong(
        "kv_cache.window_step",
        "one slot further",
        window_with(slot=lambda length, room: (length + 1) % room),
        named="the next slot",
    ),
    Wrong(
        "kv_cache.window_step",
        "the first slot for ever",
        window_with(slot=lambda length, room: 0),
    ),
]
RIGHT = [
    Right("kv_cache.grouped_attention", "head by head", head_by_head),
    Right("kv_cache.grouped_attention", "one more dimension", by_one_more_dimension),
    Right("kv_cache.chunk_mask", "by positions", by_positions),
    Right("kv_cache.cached_step", "row by row", row_by_row),
    Right("kv_cache.window_step", "by a list", window_with()),
    Right("kv_cache.window_step", "in place", window_in_place),
]
