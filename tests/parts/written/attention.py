"""Chapter 05: answers to its exercises that the checkers do not know."""

import math

import torch
import torch.nn.functional as F

from . import Right, Wrong


# causal_mask
def from_the_first_key(query_len, key_len):
    return torch.ones(query_len, key_len).tril().bool()


def of_numbers(query_len, key_len):
    return torch.ones(query_len, key_len).tril(key_len - query_len)


def forbidden_is_true(query_len, key_len):
    return torch.ones(query_len, key_len, dtype=torch.bool).triu(key_len - query_len + 1)


def strictly_earlier(query_len, key_len):
    return torch.ones(query_len, key_len, dtype=torch.bool).tril(key_len - query_len - 1)


def one_query_or_square(query_len, key_len):
    if query_len == 1:
        return torch.ones(1, key_len, dtype=torch.bool)
    return torch.ones(query_len, key_len, dtype=torch.bool).tril()


def by_positions(query_len, key_len):
    place = torch.arange(query_len)[:, None] + (key_len - query_len)
    return torch.arange(key_len) <= place


def rows_of_lists(query_len, key_len):
    mask = torch.zeros(query_len, key_len, dtype=torch.bool)
    for i in range(query_len):
        mask[i, : max(0, key_len - query_len + i + 1)] = True
    return mask


# sdpa
def scores_of(query, key):
    return torch.einsum("...td,...sd->...ts", query, key) / math.sqrt(query.shape[-1])


def torchs_function(query, key, value, attn_mask):
    return F.scaled_dot_product_attention(query, key, value, attn_mask)


def nan_made_zero(query, key, value, attn_mask):
    z = scores_of(query, key)
    if attn_mask is not None:
        z = z.masked_fill(~attn_mask, -torch.inf)
    return z.softmax(-1).nan_to_num(0.0) @ value


def the_smallest_number(query, key, value, attn_mask):
    z = scores_of(query, key)
    if attn_mask is not None:
        z = z.masked_fill(~attn_mask, torch.finfo(z.dtype).min)
    return z.softmax(-1) @ value


def masked_after(query, key, value, attn_mask):
    w = scores_of(query, key).softmax(-1)
    return (w if attn_mask is None else w * attn_mask) @ value


def scaled_by_the_value(query, key, value, attn_mask):
    return attention_by_exponentials(
        query * (query.shape[-1] / value.shape[-1]) ** 0.5, key, value, attn_mask
    )


def no_shift(query, key, value, attn_mask):
    e = scores_of(query, key).exp()
    if attn_mask is not None:
        e = e * attn_mask
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, 1.0, total) @ value


def one_batch(query, key, value, attn_mask):
    z = torch.einsum("bhtd,bhsd->bhts", query, key) / math.sqrt(query.shape[-1])
    if attn_mask is None:
        return z.softmax(-1) @ value
    empty = ~attn_mask.any(-1, keepdim=True)
    return z.masked_fill(~attn_mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0) @ value


def attention_by_exponentials(query, key, value, attn_mask):
    z = scores_of(query, key)
    if attn_mask is None:
        attn_mask = torch.ones((), dtype=torch.bool)
    top = z.masked_fill(~attn_mask, -torch.inf).amax(-1, keepdim=True).detach()
    top = torch.where(top.isinf(), 0.0, top)
    e = (z - top).masked_fill(~attn_mask, -torch.inf).exp()
    total = e.sum(-1, keepdim=True)
    return e @ value / torch.where(total == 0, 1.0, total)


def attention_by_where(query, key, value, attn_mask):
    z = query.matmul(key.mT).mul(query.size(-1) ** -0.5)
    if attn_mask is None:
        return torch.softmax(z, -1).matmul(value)
    some = attn_mask.any(-1, keepdim=True)
    z = torch.where(attn_mask, z, torch.where(some, -torch.inf, 0.0).to(z.dtype))
    return torch.where(some, z.softmax(-1), 0.0).to(value.dtype).matmul(value)


# leaks
def last_row_alone(f, x):
    y = x.clone()
    y[-1] += torch.arange(1.0, x.shape[-1] + 1)
    return not torch.allclose(f(y)[:-1], f(x)[:-1], rtol=0, atol=1e-9)


def one_number_for_a_row(f, x):
    before = f(x)
    for j in range(1, len(x)):
        y = x.clone()
        y[j] += 1
        if (f(y) - before)[:j].abs().max() > 1e-9:
            return True
    return False


def with_its_own_row(f, x):
    before = f(x)
    for j in range(len(x)):
        y = x.clone()
        y[j] += torch.randn_like(y[j])
        if (f(y) - before)[: j + 1].abs().max() > 1e-9:
            return True
    return False


def a_leak_above_a_thousandth(f, x):
    before = f(x)
    for j in range(1, len(x)):
        y = x.clone()
        y[j] += torch.arange(1.0, x.shape[-1] + 1)
        if not ((f(y) - before)[:j].abs() <= 1e-3).all():
            return True
    return False


def overwrites_x(f, x):
    before = f(x)
    for j in range(1, len(x)):
        x[j] += torch.arange(1.0, x.shape[-1] + 1)
        if not ((f(x) - before)[:j].abs() <= 1e-9).all():
            return True
    return False


def leaks_by_new_rows(f, x):
    rng = torch.Generator().manual_seed(3)
    before = f(x)
    for j in range(len(x) - 1, 0, -1):
        new = torch.randn(x.shape[-1], generator=rng, dtype=torch.float64).to(x)
        y = torch.cat([x[:j], (x[j] + 3 * new)[None], x[j + 1 :]])
        if not bool(((f(y)[:j] - before[:j]).abs() <= 1e-9).all()):
            return True
    return False


def leaks_by_rows_and_directions(f, x):
    before = f(x)
    for j in range(1, len(x)):
        for step in (1.0, -7.0):
            y = x.clone()
            y[j] += step * torch.linspace(0.3, 2.0, x.shape[-1], dtype=x.dtype) ** 2
            late = f(y)[:j] - before[:j]
            if not late.abs().le(1e-9).all():
                return True
    return False


# next_letter
def one_step_back(places, letters, match):
    T = len(places)
    seen = torch.ones(T, T, dtype=torch.bool).tril()
    where = places.argmax(-1)
    z = match * (where[:, None] - 1 == where).to(letters)
    return z.masked_fill(~seen, -torch.inf).softmax(-1) @ letters, seen


def next_by_positions(letters, places, match):
    before, seen = one_step_back(places, letters, match)
    z = match * torch.einsum("tn,sn->ts", letters, before)
    return z.masked_fill(~seen, -torch.inf).softmax(-1) @ letters


def next_by_rows(letters, places, match):
    before, _ = one_step_back(places, letters, match)
    rows = []
    for t in range(len(letters)):
        w = (match * (before[: t + 1] @ letters[t])).softmax(0)
        rows.append(w @ letters[: t + 1])
    return torch.stack(rows)


def exactly_the_letter_before(letters, places, match):
    before = torch.cat([torch.zeros_like(letters[:1]), letters[:-1]])
    seen = torch.ones(len(letters), len(letters), dtype=torch.bool).tril()
    return (match * letters @ before.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ letters


def not_causal(letters, places, match):
    before, _ = one_step_back(places, letters, match)
    return (match * letters @ before.mT).softmax(-1) @ letters


def hands_over_the_letter_before(letters, places, match):
    before, seen = one_step_back(places, letters, match)
    return (match * letters @ before.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ before


def match_divided_again(letters, places, match):
    before, seen = one_step_back(places, letters, match)
    z = match * letters @ before.mT / letters.shape[-1] ** 0.5
    return z.masked_fill(~seen, -torch.inf).softmax(-1) @ letters


def match_is_ten(letters, places, match):
    return next_by_positions(letters, places, 10.0)


# self_attention
def self_attention_with(scale=None, over=-1, mask="before", heads="right", joined=True):
    def answer(x, w_q, w_k, w_v, w_o, num_heads):
        B, T, d_model = x.shape
        d = d_model // num_heads
        if heads == "right":
            q, k, v = ((x @ w).view(B, T, num_heads, d).transpose(1, 2) for w in (w_q, w_k, w_v))
        else:
            q, k, v = ((x @ w).view(B, num_heads, T, d) for w in (w_q, w_k, w_v))
        z = q @ k.mT / (d if scale is None else scale(x, num_heads)) ** 0.5
        past = torch.ones(T, T, dtype=torch.bool).tril()
        if mask == "before":
            z = z.masked_fill(~past, -torch.inf)
        w = z.softmax(over)
        if mask == "after":
            w = w * past
        y = w @ v
        return (y.transpose(1, 2) if joined else y).reshape(B, T, d_model) @ w_o

    return answer


def self_attention_by_einsum(x, w_q, w_k, w_v, w_o, num_heads):
    T, d_model = x.shape[1:]
    d = d_model // num_heads
    q, k, v = (
        torch.einsum("btm,mhd->bhtd", x, w.reshape(d_model, num_heads, d)) for w in (w_q, w_k, w_v)
    )
    z = torch.einsum("bhtd,bhsd->bhts", q, k) * d**-0.5
    z = z + torch.full((T, T), -torch.inf, dtype=z.dtype).triu(1)
    return torch.einsum("bhts,bhsd,hdm->btm", z.softmax(-1), v, w_o.reshape(num_heads, d, d_model))


def self_attention_head_by_head(x, w_q, w_k, w_v, w_o, num_heads):
    parts = [
        F.scaled_dot_product_attention(x @ q, x @ k, x @ v, is_causal=True) @ o
        for q, k, v, o in zip(
            *(w.chunk(num_heads, 1) for w in (w_q, w_k, w_v)),
            w_o.chunk(num_heads, 0),
            strict=True,
        )
    ]
    return sum(parts)


WRONG = [
    Wrong(
        "attention.causal_mask",
        "from the first key",
        from_the_first_key,
        named="aligned at the top left",
    ),
    Wrong("attention.causal_mask", "numbers", of_numbers),
    Wrong("attention.causal_mask", "True = forbidden", forbidden_is_true, named="True = blocked"),
    Wrong(
        "attention.causal_mask",
        "not its own position",
        strictly_earlier,
        named="diagonal forbidden",
    ),
    Wrong(
        "attention.causal_mask",
        "one query, or a square",
        one_query_or_square,
        named="aligned at the top left",
    ),
    Wrong(
        "attention.sdpa", "torch's function", torchs_function, says="Do not call torch's function"
    ),
    Wrong(
        "attention.sdpa",
        "the smallest number",
        the_smallest_number,
        named="the mean where nothing is allowed",
    ),
    Wrong(
        "attention.sdpa", "masked after the softmax", masked_after, named="mask after the softmax"
    ),
    Wrong("attention.sdpa", "the root of d_v", scaled_by_the_value),
    Wrong("attention.sdpa", "exponentials without a shift", no_shift),
    Wrong("attention.sdpa", "four dimensions", one_batch),
    Wrong(
        "attention.leaks", "the last row alone", last_row_alone, named="only the last row changed"
    ),
    Wrong("attention.leaks", "one number for all of a row", one_number_for_a_row),
    Wrong(
        "attention.leaks",
        "its own row is a leak",
        with_its_own_row,
        named="the changed row's own output looked at",
    ),
    Wrong("attention.leaks", "small leaks forgiven", a_leak_above_a_thousandth),
    Wrong("attention.leaks", "overwrites x", overwrites_x, named="x changed in place"),
    Wrong("attention.next_letter", "the letter before, exactly", exactly_the_letter_before),
    Wrong(
        "attention.next_letter", "not causal", not_causal, named="the second head without a mask"
    ),
    Wrong(
        "attention.next_letter",
        "hands over the letter before",
        hands_over_the_letter_before,
        named="the letter before handed over",
    ),
    Wrong("attention.next_letter", "divided by the root again", match_divided_again),
    Wrong("attention.next_letter", "a match is 10", match_is_ten),
    Wrong(
        "attention.self_attention",
        "the root of d_model",
        self_attention_with(scale=lambda x, h: x.shape[-1]),
        named="root of d_model in place of d_head",
    ),
    Wrong(
        "attention.self_attention",
        "over the queries",
        self_attention_with(over=-2),
        named="softmax over the queries",
    ),
    Wrong(
        "attention.self_attention",
        "masked after",
        self_attention_with(mask="after"),
        named="mask after the softmax",
    ),
    Wrong(
        "attention.self_attention",
        "heads cut across",
        self_attention_with(heads="view"),
        named="view without transpose",
    ),
    Wrong(
        "attention.self_attention",
        "heads not put back",
        self_attention_with(joined=False),
        named="no transpose before the heads are merged",
    ),
    Wrong(
        "attention.self_attention",
        "the root of the number of heads",
        self_attention_with(scale=lambda x, h: h),
    ),
]

RIGHT = [
    Right("attention.causal_mask", "positions compared", by_positions),
    Right("attention.causal_mask", "row by row", rows_of_lists),
    Right("attention.sdpa", "exponentials", attention_by_exponentials),
    Right("attention.sdpa", "nan made zero", nan_made_zero),
    Right("attention.sdpa", "where", attention_by_where),
    Right("attention.leaks", "new rows", leaks_by_new_rows),
    Right("attention.leaks", "two steps for each row", leaks_by_rows_and_directions),
    Right("attention.next_letter", "positions compared", next_by_positions),
    Right("attention.next_letter", "row by row", next_by_rows),
    Right("attention.self_attention", "einsum", self_attention_by_einsum),
    Right("attention.self_attention", "head by head", self_attention_head_by_head),
]
