"""Chapter 14: answers to its exercises that the checkers do not know."""

import math

import torch

from . import Right, Wrong

# mla.absorbed


def by_keys_and_values(q_nope, q_rope, c, k_rope, w_uk, w_uv):
    k = torch.einsum("bsc,hcd->bhsd", c, w_uk)
    v = torch.einsum("bsc,hcd->bhsd", c, w_uv)
    scores = q_nope @ k.mT + torch.einsum("bhtr,bsr->bhts", q_rope, k_rope)
    width = q_nope.shape[-1] + q_rope.shape[-1]
    return (scores / math.sqrt(width)).softmax(-1) @ v


def no_scale(q_nope, q_rope, c, k_rope, w_uk, w_uv):
    wide = torch.einsum("bhtd,hcd->bhtc", q_nope, w_uk)
    scores = torch.einsum("bhtc,bsc->bhts", wide, c)
    scores = scores + torch.einsum("bhtr,bsr->bhts", q_rope, k_rope)
    mixed = torch.einsum("bhts,bsc->bhtc", scores.softmax(-1), c)
    return torch.einsum("bhtc,hcv->bhtv", mixed, w_uv)


def the_first_head_for_all(q_nope, q_rope, c, k_rope, w_uk, w_uv):
    return row_after_row(
        q_nope, q_rope, c, k_rope, w_uk[:1].expand_as(w_uk), w_uv[:1].expand_as(w_uv)
    )


def causal_too(q_nope, q_rope, c, k_rope, w_uk, w_uv):
    wide = torch.einsum("bhtd,hcd->bhtc", q_nope, w_uk)
    scores = torch.einsum("bhtc,bsc->bhts", wide, c)
    scores = scores + torch.einsum("bhtr,bsr->bhts", q_rope, k_rope)
    scores = scores / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    mixed = torch.einsum("bhts,bsc->bhtc", scores.masked_fill(~mask, -math.inf).softmax(-1), c)
    return torch.einsum("bhtc,hcv->bhtv", mixed, w_uv)


def row_after_row(q_nope, q_rope, c, k_rope, w_uk, w_uv):
    scale = (q_nope.shape[-1] + q_rope.shape[-1]) ** -0.5
    heads = []
    for h in range(len(w_uk)):
        wide = torch.cat([q_nope[:, h] @ w_uk[h].T, q_rope[:, h]], -1)
        weights = (wide @ torch.cat([c, k_rope], -1).mT * scale).softmax(-1)
        heads.append((weights @ c) @ w_uv[h])
    return torch.stack(heads, 1)


# mla.cache_entry


def turned(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def normed(c, gain, eps):
    return c / (c.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def the_latent_turned(x, w_down, gain, cos, sin, eps):
    made = x @ w_down
    c, k = made[..., : len(gain)], made[..., len(gain) :]
    return normed(c, gain, eps), k


def norm_of_both(x, w_down, gain, cos, sin, eps):
    made = x @ w_down
    size = (made.square().mean(-1, keepdim=True) + eps).sqrt()
    c, k = made[..., : len(gain)] / size * gain, made[..., len(gain) :]
    return c, turned(k, cos, sin)


def eps_beside_the_root(x, w_down, gain, cos, sin, eps):
    made = x @ w_down
    c, k = made[..., : len(gain)], made[..., len(gain) :]
    c = c / (c.square().mean(-1, keepdim=True).sqrt() + eps) * gain
    return c, turned(k, cos, sin)


def key_first(x, w_down, gain, cos, sin, eps):
    made = x @ w_down
    d_r = w_down.shape[1] - len(gain)
    return normed(made[..., d_r:], gain, eps), turned(made[..., :d_r], cos, sin)


def one_after_the_other(x, w_down, gain, cos, sin, eps):
    c = torch.nn.functional.rms_norm(x @ w_down[:, : len(gain)], gain.shape, gain, eps)
    return c, turned(x @ w_down[:, len(gain) :], cos, sin)


# mla.between


def rotation(at, theta):
    blocks = [
        torch.stack([torch.stack([t.cos(), -t.sin()]), torch.stack([t.sin(), t.cos()])])
        for t in at * theta
    ]
    return torch.block_diag(*blocks)


def the_sum_of_the_places(w_q, w_uk, i, j, theta):
    return w_q @ rotation(i + j, theta) @ w_uk.T


def only_the_query(w_q, w_uk, i, j, theta):
    return w_q @ rotation(i, theta).T @ w_uk.T


def not_transposed(w_q, w_uk, i, j, theta):
    return w_uk @ rotation(i - j, theta) @ w_q.T


def by_rotated_rows(w_q, w_uk, i, j, theta):
    return (
        turned(w_q, (i * theta).cos(), (i * theta).sin())
        @ turned(w_uk, (j * theta).cos(), (j * theta).sin()).T
    )


# mla.gqa_up


def groups_in_turn(num_heads, num_kv_heads, head_dim):
    return _selected(num_heads, num_kv_heads, head_dim, lambda h: h % num_kv_heads)


def _selected(num_heads, num_kv_heads, head_dim, group):
    w_uk = torch.zeros(num_heads, 2 * num_kv_heads * head_dim, head_dim)
    w_uv = torch.zeros_like(w_uk)
    for h in range(num_heads):
        k = group(h) * head_dim
        v = (num_kv_heads + group(h)) * head_dim
        w_uk[h, k : k + head_dim] = torch.eye(head_dim)
        w_uv[h, v : v + head_dim] = torch.eye(head_dim)
    return w_uk, w_uv


def keys_for_values(num_heads, num_kv_heads, head_dim):
    w_uk, _ = by_slices(num_heads, num_kv_heads, head_dim)
    return w_uk, w_uk.clone()


def pairs_side_by_side(num_heads, num_kv_heads, head_dim):
    w_uk = torch.zeros(num_heads, 2 * num_kv_heads * head_dim, head_dim)
    w_uv = torch.zeros_like(w_uk)
    for h in range(num_heads):
        at = 2 * (h // (num_heads // num_kv_heads)) * head_dim
        w_uk[h, at : at + head_dim] = torch.eye(head_dim)
        w_uv[h, at + head_dim : at + 2 * head_dim] = torch.eye(head_dim)
    return w_uk, w_uv


def by_slices(num_heads, num_kv_heads, head_dim):
    r = num_heads // num_kv_heads
    return _selected(num_heads, num_kv_heads, head_dim, lambda h: h // r)


# mla.saving


def the_ratio(layers, rank, rope_dim, bits, gqa_layers, gqa_kv_heads, gqa_head_dim, gqa_bits):
    return (
        layers
        * (rank + rope_dim)
        * bits
        / (2 * gqa_layers * gqa_kv_heads * gqa_head_dim * gqa_bits)
    )


def keys_alone(layers, rank, rope_dim, bits, gqa_layers, gqa_kv_heads, gqa_head_dim, gqa_bits):
    ours, theirs = layers * (rank + rope_dim) * bits, gqa_layers * gqa_kv_heads * gqa_head_dim
    return 1 - ours / (theirs * gqa_bits)


def no_rope(layers, rank, rope_dim, bits, gqa_layers, gqa_kv_heads, gqa_head_dim, gqa_bits):
    return 1 - layers * rank * bits / (2 * gqa_layers * gqa_kv_heads * gqa_head_dim * gqa_bits)


def by_a_difference(layers, rank, rope_dim, bits, gqa_layers, gqa_kv_heads, gqa_head_dim, gqa_bits):
    theirs = gqa_bits * gqa_layers * gqa_head_dim * gqa_kv_heads * 2
    ours = bits * layers * rank + bits * layers * rope_dim
    return (theirs - ours) / theirs


# mla.largest_rank


def not_a_multiple(budget, layers, tokens, rope_dim, bits):
    return max(0, int(budget * 8 // (bits * layers * tokens)) - rope_dim)


def key_not_counted(budget, layers, tokens, rope_dim, bits):
    return int(budget * 8 // (bits * layers * tokens)) // 64 * 64


def the_sum_a_multiple(budget, layers, tokens, rope_dim, bits):
    return max(0, int(budget * 8 // (bits * layers * tokens)) // 64 * 64 - rope_dim)


def never_zero(budget, layers, tokens, rope_dim, bits):
    return max(64, (int(budget * 8 // (bits * layers * tokens)) - rope_dim) // 64 * 64)


def by_trying(budget, layers, tokens, rope_dim, bits):
    rank = 0
    while (rank + 64 + rope_dim) * layers * tokens * bits <= 8 * budget:
        rank += 64
    return rank


WRONG = [
    Wrong(
        "mla.absorbed",
        "by keys and values",
        by_keys_and_values,
        says="without making a key or a value of any head",
    ),
    Wrong("mla.absorbed", "no scale", no_scale, named="no scale"),
    Wrong("mla.absorbed", "the first head for all", the_first_head_for_all),
    Wrong("mla.absorbed", "causal", causal_too),
    Wrong("mla.cache_entry", "the key not turned", the_latent_turned, named="the key not rotated"),
    Wrong("mla.cache_entry", "a norm over both", norm_of_both),
    Wrong(
        "mla.cache_entry", "eps beside the root", eps_beside_the_root, named="eps outside the root"
    ),
    Wrong("mla.cache_entry", "the key first", key_first, named="the parts exchanged"),
    Wrong("mla.between", "the sum of the places", the_sum_of_the_places),
    Wrong(
        "mla.between", "only the query turned", only_the_query, named="the query's rotation only"
    ),
    Wrong("mla.between", "not transposed", not_transposed, named="transposed"),
    Wrong("mla.gqa_up", "groups in turn", groups_in_turn, named="groups dealt out in turn"),
    Wrong("mla.gqa_up", "keys for values", keys_for_values, named="values taken from the keys"),
    Wrong(
        "mla.gqa_up",
        "keys and values side by side",
        pairs_side_by_side,
        named="a key, a value, a key, a value",
    ),
    Wrong("mla.saving", "the ratio", the_ratio, named="what is left, not what is saved"),
    Wrong("mla.saving", "keys alone", keys_alone, named="keys without values"),
    Wrong("mla.saving", "no rotated key", no_rope, named="the shared key forgotten"),
    Wrong("mla.largest_rank", "no multiple", not_a_multiple, named="not a multiple of 64"),
    Wrong(
        "mla.largest_rank", "the key not counted", key_not_counted, named="the shared key forgotten"
    ),
    Wrong("mla.largest_rank", "the sum a multiple", the_sum_a_multiple),
    Wrong("mla.largest_rank", "never zero", never_zero),
]
RIGHT = [
    Right("mla.absorbed", "head by head", row_after_row),
    Right("mla.cache_entry", "one after the other", one_after_the_other),
    Right("mla.between", "by rotated rows", by_rotated_rows),
    Right("mla.gqa_up", "by slices", by_slices),
    Right("mla.saving", "by a difference", by_a_difference),
    Right("mla.largest_rank", "by trying", by_trying),
]
