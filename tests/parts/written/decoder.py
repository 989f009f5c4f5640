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


# decoder.filters


def rows(above, best):
    def answer(judge, size, top_p, min_p):
        first = torch.tensor([math.log(above(min_p)), *([0.0] * (size - 1))])
        p = best(top_p, min_p)
        second = torch.tensor([math.log(1 - p), *([-80.0] * (size - 2)), math.log(p)])
        return judge(first, second)

    return answer


def lowest_that_will_do(top_p, min_p):
    return 0.99 * top_p + 0.01 / (1 + min_p)


def three_times(min_p):
    return 3 / min_p


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


# decoder.convert


def convert_with(turn=None, kv=None, values=False, biases=True):
    """The conversion by lists of row numbers."""

    def order(n, heads):
        d = n // heads
        at = [h * d + p for h in range(heads) for k in range(d // 2) for p in (k, k + d // 2)]
        return at if turn is None else turn(at)

    def answer(q, k, v, q_bias, k_bias, num_heads, num_kv_heads):
        h, g = num_heads, num_kv_heads if kv is None else kv(num_heads, num_kv_heads)
        of_q, of_k = order(len(q), h), order(len(k), g)
        return (
            q[of_q], k[of_k], v[of_k] if values else v,
            q_bias[of_q] if biases else q_bias, k_bias[of_k] if biases else k_bias,
        )  # fmt: skip

    return answer


def convert_in_place(q, k, v, q_bias, k_bias, num_heads, num_kv_heads):
    made = []
    for x, heads in (
        (q, num_heads),
        (k, num_kv_heads),
        (q_bias, num_heads),
        (k_bias, num_kv_heads),
    ):
        new = torch.zeros_like(x)
        d = len(x) // heads
        for n in range(heads):
            new[n * d : (n + 1) * d : 2] = x[n * d : n * d + d // 2]
            new[n * d + 1 : (n + 1) * d : 2] = x[n * d + d // 2 : (n + 1) * d]
        made.append(new)
    return made[0], made[1], v, made[2], made[3]


# decoder.block


def normed(x, gain, eps):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain


def by_tril(scores):
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.where(seen, scores, -math.inf)


def block_with(
    turned=lambda rotate, x, gain, eps: rotate(normed(x, gain, eps)),
    norm=normed,
    mask=lambda scores: scores + torch.full_like(scores, -math.inf).triu(1),
    shared=lambda x, n: x.repeat_interleave(n, 1),
    second=lambda x, u: u,
    last=lambda y, w, eps: y,
    split=lambda x, n: x.reshape(*x.shape[:2], n, -1).permute(0, 2, 1, 3),
):
    """A block with einsum, in which a part can be another one."""

    def answer(x, w, rotate, num_heads, num_kv_heads, eps):
        h = norm(x, w["input_layernorm"], eps)
        q, k, v = (torch.einsum("btd,ed->bte", h, w[f"{n}_proj"]) for n in "qkv")
        q, k, v = split(q, num_heads), split(k, num_kv_heads), split(v, num_kv_heads)
        q, k = turned(rotate, q, w["q_norm"], eps), turned(rotate, k, w["k_norm"], eps)
        k, v = (shared(t, num_heads // num_kv_heads) for t in (k, v))
        weights = mask(torch.einsum("bhtd,bhsd->bhts", q, k) * q.shape[-1] ** -0.5).softmax(-1)
        z = torch.einsum("bhts,bhsd->bthd", weights, v).flatten(2)
        u = x + torch.einsum("bte,de->btd", z, w["o_proj"])
        h = norm(second(x, u), w["post_attention_layernorm"], eps)
        gate = torch.einsum("btd,fd->btf", h, w["gate_proj"])
        hidden = gate / (1 + (-gate).exp()) * torch.einsum("btd,fd->btf", h, w["up_proj"])
        return last(u + torch.einsum("btf,df->btd", hidden, w["down_proj"]), w, eps)

    return answer


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
        "decoder.filters",
        "exactly the share",
        rows(lambda min_p: 1 / min_p, lowest_that_will_do),
        named="the others reach the share",
    ),
    Wrong(
        "decoder.filters",
        "nothing for the second",
        rows(three_times, lambda top_p, min_p: 1 - min_p / 10),
        named="the second row nearly certain",
    ),
    Wrong(
        "decoder.filters",
        "too little",
        rows(three_times, lambda top_p, min_p: top_p - 0.01),
        named="the best of the second row short of top_p",
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
    Wrong(
        "decoder.convert",
        "the other way",
        convert_with(turn=lambda at: [at.index(i) for i in range(len(at))]),
        named="the inverse permutation",
    ),
    Wrong(
        "decoder.convert",
        "keys in query heads",
        convert_with(kv=lambda h, g: h),
        named="keys split into as many heads as queries",
    ),
    Wrong("decoder.convert", "values too", convert_with(values=True), named="values permuted"),
    Wrong(
        "decoder.convert",
        "no biases",
        convert_with(biases=False),
        named="biases left as they are",
    ),
    Wrong(
        "decoder.block",
        "norm after rotation",
        block_with(turned=lambda rotate, x, gain, eps: normed(rotate(x), gain, eps)),
        named="QK-norm after the rotation",
    ),
    Wrong(
        "decoder.block",
        "no QK-norm",
        block_with(turned=lambda rotate, x, gain, eps: rotate(x)),
        named="QK-norm forgotten",
    ),
    Wrong(
        "decoder.block",
        "tiled heads",
        block_with(shared=lambda x, n: torch.cat([x] * n, 1)),
        named="keys and values dealt out in turn",
    ),
    Wrong("decoder.block", "sees all", block_with(mask=lambda s: s), named="no causal mask"),
    Wrong(
        "decoder.block",
        "the mask turned round",
        block_with(mask=lambda s: s.masked_fill(torch.ones_like(s).triu(1).mT.bool(), -1e9)),
    ),
    Wrong(
        "decoder.block",
        "x into the second norm",
        block_with(second=lambda x, u: x),
        named="both sub-layers on the same input",
    ),
    Wrong(
        "decoder.block",
        "a last norm as well",
        block_with(last=lambda y, w, eps: normed(y, w["post_attention_layernorm"], eps)),
    ),
]
RIGHT = [
    Right("decoder.parameter_count", "by a list of shapes", by_a_list_of_shapes),
    Right("decoder.filters", "by lists", rows(three_times, lowest_that_will_do)),
    Right("decoder.top_p", "row by row", row_by_row),
    Right("decoder.convert", "by lists of rows", convert_with()),
    Right("decoder.convert", "by slices", convert_in_place),
    Right("decoder.block", "by einsum", block_with()),
    Right("decoder.block", "a mask by tril", block_with(mask=by_tril)),
]
