"""Chapter 11: answers to its exercises that the checkers do not know."""

import math

import torch
import torch.nn.functional as F

from . import Right, Wrong


# the matrix
def turn(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def angle_in_float32(m, n, theta):
    angle = torch.tensor((n - m) * theta, dtype=torch.float32)
    c, s = angle.cos(), angle.sin()
    return torch.stack([torch.stack([c, -s]), torch.stack([s, c])]).double()


def of_the_default_dtype(m, n, theta):
    c, s = math.cos((n - m) * theta), math.sin((n - m) * theta)
    return torch.tensor([[c, -s], [s, c]])


def the_chain_as_printed(m, n, theta):
    return turn((m - n) * theta)


def the_distance_without_a_sign(m, n, theta):
    return turn(abs(n - m) * theta)


def in_degrees(m, n, theta):
    return turn(math.radians((n - m) * theta))


def whole_positions(m, n, theta):
    return turn((int(n) - int(m)) * theta)


def tables_in_float32(m, n, theta):
    def row(p):
        a = torch.tensor([p], dtype=torch.float32) * theta
        return torch.cat([torch.stack([a.cos(), -a.sin()], 1), torch.stack([a.sin(), a.cos()], 1)])

    return (row(m).T @ row(n)).double()


# apply
def rope_with(
    compute=None, halves=False, exponent=2.0, base_is=None, sign=1.0, ids=None, out=None, join=None
):
    def answer(x, position_ids, base):
        d = x.shape[-1]
        wide = compute(x) if compute else torch.promote_types(x.dtype, torch.float32)
        k = torch.arange(d // 2, dtype=wide)
        theta = (base if base_is is None else base_is) ** (-exponent * k / d)
        p = position_ids if ids is None else ids(position_ids)
        angle = p.to(wide)[:, None] * theta
        c, s = angle.cos(), sign * angle.sin()
        h = x.to(torch.promote_types(x.dtype, wide))
        if halves:
            a, b = h.chunk(2, -1)
            y = torch.cat([a * c - b * s, a * s + b * c], -1)
        else:
            a, b = h[..., 0::2], h[..., 1::2]
            parts = a * c - b * s, a * s + b * c
            y = torch.cat(parts, -1) if join else torch.stack(parts, -1).flatten(-2)
        return y if out else y.to(x.dtype)

    return answer


def angles_in_the_dtype_of_x(x, position_ids, base):
    d = x.shape[-1]
    theta = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = position_ids.to(x.dtype)[:, None] * theta
    c, s = angle.cos(), angle.sin()
    y = torch.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
    y[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
    return y


def tables_rounded_to_x(x, position_ids, base):
    d = x.shape[-1]
    theta = base ** (-torch.arange(0, d, 2).to(torch.float64) / d)
    angle = position_ids.double()[:, None] * theta
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def float32_whatever_x_is(x, position_ids, base):
    d = x.shape[-1]
    theta = base ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)
    angle = position_ids.float()[:, None] * theta
    z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    turned = z * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def turned_in_place(x, position_ids, base):
    d = x.shape[-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    theta = base ** (-torch.arange(0, d, 2, dtype=wide) / d)
    angle = position_ids.to(wide)[:, None] * theta
    c, s = angle.cos(), angle.sin()
    with torch.no_grad():
        a, b = x[..., 0::2].clone(), x[..., 1::2].clone()
        x[..., 0::2] = a * c - b * s
        x[..., 1::2] = a * s + b * c
    return x


def one_head_dimension(x, position_ids, base):
    d = x.shape[-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    theta = base ** (-torch.arange(0, d, 2, dtype=wide) / d)
    angle = torch.einsum("t,k->tk", position_ids.to(wide), theta)[None, None]
    c, s = angle.cos(), angle.sin()
    h = x.to(wide)
    a, b = h[..., 0::2], h[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2).to(x.dtype)


# attention
def attention_with(
    dtype=None,
    ids=None,
    mask=None,
    scale=None,
    turn_v=False,
    halves=False,
    base=10000.0,
    only_q=False,
    fill=-torch.inf,
):
    def answer(q, k, v, position_ids):
        wide = torch.promote_types(q.dtype, torch.float32)
        p = position_ids if ids is None else ids(position_ids)
        rope = rope_with(compute=dtype, halves=halves)
        a = rope(q, p, base)
        b = k if only_q else rope(k, p, base)
        c = rope(v, p, base) if turn_v else v
        z = a.to(wide) @ b.to(wide).mT
        z = z / math.sqrt(q.shape[-1]) if scale is None else z * scale(q)
        t = q.shape[-2]
        seen = torch.ones(t, t, dtype=torch.bool).tril() if mask is None else mask(position_ids)
        z = z.masked_fill(~seen, fill)
        return (z.softmax(-1) @ c.to(wide)).to(q.dtype)

    return answer


def a_large_negative_number(q, k, v, position_ids):
    rope = rope_with()
    z = rope(q, position_ids, 10000.0) @ rope(k, position_ids, 10000.0).mT / q.shape[-1] ** 0.5
    t = q.shape[-2]
    z = z + torch.full((t, t), -1e4, dtype=q.dtype).triu(1)
    return z.softmax(-1) @ v


def masked_after_the_softmax(q, k, v, position_ids):
    rope = rope_with()
    z = rope(q, position_ids, 10000.0) @ rope(k, position_ids, 10000.0).mT / q.shape[-1] ** 0.5
    return z.softmax(-1).tril() @ v


def exponentials_without_a_shift(q, k, v, position_ids):
    rope = rope_with()
    z = rope(q, position_ids, 10000.0) @ rope(k, position_ids, 10000.0).mT / q.shape[-1] ** 0.5
    e = z.exp().tril()
    return e / e.sum(-1, keepdim=True) @ v


def key_by_complex_numbers(q, distance, base):
    theta = base ** (-torch.arange(0, len(q), 2, dtype=q.dtype) / len(q))
    z = torch.complex(q[::2], q[1::2]) * torch.exp(1j * distance * theta)
    return torch.view_as_real(z).flatten()


def key_for_the_query_behind(q, distance, base):
    return key_by_complex_numbers(q, -distance, base)


def key_of_whole_degrees(q, distance, base):
    return key_by_complex_numbers(q, math.radians(distance), base)


# convert
def to_the_other_side(weight, num_heads):
    rows = weight.unflatten(0, (num_heads, -1, 2))
    return rows.transpose(1, 2).reshape(weight.shape)


def all_heads_as_one(weight, num_heads):
    n = weight.shape[0] // 2
    return torch.stack([weight[:n], weight[n:]], 1).reshape(weight.shape)


def for_a_matrix_only(weight, num_heads):
    rows, width = weight.shape
    halves = weight.view(num_heads, 2, rows // num_heads // 2, width)
    return halves.transpose(1, 2).reshape(rows, width)


def the_columns(weight, num_heads):
    turned = weight.unflatten(-1, (num_heads, 2, -1))
    return turned.transpose(-1, -2).reshape(weight.shape)


def every_other_head(weight, num_heads):
    rows = weight.unflatten(0, (2, num_heads, -1))
    return rows.permute(1, 2, 0, *range(3, rows.dim())).reshape(weight.shape)


def the_matrix_in_place(weight, num_heads):
    new = weight.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).reshape(weight.shape)
    with torch.no_grad():
        return weight.copy_(new)


def detached_and_new(weight, num_heads):
    rows = weight.detach().unflatten(0, (num_heads, 2, -1)).transpose(1, 2)
    return rows.reshape(weight.shape)


WRONG = [
    Wrong("rope.relative_matrix", "the angle in float32", angle_in_float32),
    Wrong("rope.relative_matrix", "the default dtype", of_the_default_dtype),
    Wrong(
        "rope.relative_matrix",
        "the chain as it is printed",
        the_chain_as_printed,
        named="R(m - n) in place of R(n - m)",
    ),
    Wrong(
        "rope.relative_matrix",
        "the distance without a sign",
        the_distance_without_a_sign,
        named="the distance without its sign",
    ),
    Wrong("rope.relative_matrix", "degrees", in_degrees),
    Wrong("rope.relative_matrix", "whole positions", whole_positions),
    Wrong("rope.relative_matrix", "two rotations in float32", tables_in_float32),
    Wrong(
        "rope.relative_matrix",
        "the sum of the positions",
        lambda m, n, theta: turn((m + n) * theta),
        named="angles added",
    ),
    Wrong(
        "rope.relative_matrix",
        "no theta",
        lambda m, n, theta: turn(n - m),
        named="the frequency forgotten",
    ),
    Wrong(
        "rope.apply",
        "angles in the dtype of x",
        angles_in_the_dtype_of_x,
        named="angles in bfloat16",
    ),
    Wrong(
        "rope.apply",
        "tables rounded to the dtype of x",
        tables_rounded_to_x,
        named="turned in bfloat16",
    ),
    Wrong("rope.apply", "float32 whatever x is", float32_whatever_x_is),
    Wrong("rope.apply", "in place", turned_in_place),
    Wrong("rope.apply", "four dimensions", one_head_dimension),
    Wrong("rope.apply", "halves as pairs", rope_with(halves=True), named="halves as pairs"),
    Wrong(
        "rope.apply",
        "k/d for 2k/d",
        rope_with(exponent=1.0),
        named="the 2 of the exponent forgotten",
    ),
    Wrong("rope.apply", "base 10000", rope_with(base_is=10000.0), named="base fixed at 10000"),
    Wrong("rope.apply", "backwards", rope_with(sign=-1.0), named="turned the wrong way"),
    Wrong(
        "rope.apply",
        "positions from 0",
        rope_with(ids=lambda p: torch.arange(len(p))),
        named="positions counted from 0",
    ),
    Wrong(
        "rope.apply",
        "positions from the first",
        rope_with(ids=lambda p: p - p[0]),
        named="positions counted from 0",
    ),
    Wrong("rope.apply", "rising positions", rope_with(ids=lambda p: p.sort().values)),
    Wrong(
        "rope.apply",
        "positions in bfloat16",
        rope_with(ids=lambda p: p.bfloat16()),
        named="angles in bfloat16",
    ),
    Wrong("rope.apply", "left in float32", rope_with(out=True)),
    Wrong(
        "rope.apply",
        "first entries, then second",
        rope_with(join=True),
        named="not put together again",
    ),
    Wrong("rope.apply", "float32 angles for float64", rope_with(compute=lambda x: torch.float32)),
    Wrong(
        "rope.attention", "v turned too", attention_with(turn_v=True), named="the values turned too"
    ),
    Wrong(
        "rope.attention", "q alone", attention_with(only_q=True), named="only the queries turned"
    ),
    Wrong("rope.attention", "halves as pairs", attention_with(halves=True)),
    Wrong(
        "rope.attention",
        "angles in bfloat16",
        attention_with(dtype=lambda x: x.dtype),
        named="angles in bfloat16",
    ),
    Wrong(
        "rope.attention",
        "positions from 0",
        attention_with(ids=lambda p: torch.arange(len(p))),
        named="the first rows of the tables",
    ),
    Wrong(
        "rope.attention",
        "causal by the positions",
        attention_with(mask=lambda p: p[None, :] <= p[:, None]),
        named="causal by the positions",
    ),
    Wrong(
        "rope.attention",
        "no mask",
        attention_with(mask=lambda p: torch.ones(len(p), len(p), dtype=torch.bool)),
        named="no causal mask",
    ),
    Wrong(
        "rope.attention",
        "1/sqrt(H d)",
        attention_with(scale=lambda q: (q.shape[1] * q.shape[-1]) ** -0.5),
    ),
    Wrong("rope.attention", "1/d", attention_with(scale=lambda q: 1 / q.shape[-1])),
    Wrong("rope.attention", "not scaled", attention_with(scale=lambda q: 1.0), named="no scale"),
    Wrong("rope.attention", "base 500000", attention_with(base=500000.0)),
    Wrong(
        "rope.attention",
        "−1e4 filled in",
        attention_with(fill=-1e4),
        named="a large negative number for minus infinity",
    ),
    Wrong("rope.attention", "−1e4 added", a_large_negative_number),
    Wrong("rope.attention", "masked after the softmax", masked_after_the_softmax),
    Wrong("rope.attention", "exponentials without a shift", exponentials_without_a_shift),
    Wrong(
        "rope.look_back",
        "turned back",
        key_for_the_query_behind,
        named="turned the other way",
    ),
    Wrong(
        "rope.look_back",
        "as it comes",
        lambda q, distance, base: q + 0,
        named="the query itself",
    ),
    Wrong("rope.look_back", "degrees", key_of_whole_degrees),
    Wrong(
        "rope.to_interleaved",
        "from interleaved to halves",
        to_the_other_side,
        named="the other way",
    ),
    Wrong("rope.to_interleaved", "all heads as one", all_heads_as_one, named="all heads at once"),
    Wrong("rope.to_interleaved", "a matrix only", for_a_matrix_only),
    Wrong("rope.to_interleaved", "the columns", the_columns),
    Wrong(
        "rope.to_interleaved", "halves before heads", every_other_head, named="all heads at once"
    ),
    Wrong("rope.to_interleaved", "in place", the_matrix_in_place),
    Wrong(
        "rope.to_interleaved",
        "as it is",
        lambda weight, num_heads: weight.clone(),
        named="nothing changed",
    ),
]


def matrix_by_two_rotations(m, n, theta):
    def rotation(p):
        a = torch.as_tensor(p * theta, dtype=torch.float64)
        return torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()]).view(2, 2)

    return rotation(m).T @ rotation(n)


def matrix_by_an_exponential(m, n, theta):
    j = torch.tensor([[0, -1], [1, 0]], dtype=torch.float64)
    return torch.linalg.matrix_exp((n - m) * theta * j)


def rope_by_complex_numbers(x, position_ids, base):
    d = x.size(-1)
    wide = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    theta = torch.pow(base, torch.arange(0, d, 2, dtype=wide).neg() / d)
    angle = torch.outer(position_ids.to(wide), theta)
    z = torch.complex(x[..., ::2].to(wide), x[..., 1::2].to(wide)) * torch.exp(1j * angle)
    return torch.view_as_real(z).reshape(x.shape).to(x.dtype)


def rope_with_angles_in_double(x, position_ids, base):
    d = x.shape[-1]
    exponent = torch.arange(d // 2, dtype=torch.float64) * 2 / d
    angle = position_ids.double().unsqueeze(-1) / base**exponent
    cos, sin = (t.repeat_interleave(2, -1) for t in (angle.cos(), angle.sin()))
    wide = x.double()
    partner = torch.stack([-wide[..., 1::2], wide[..., ::2]], -1).reshape(x.shape)
    return (wide * cos + partner * sin).to(x.dtype)


def rope_pair_by_pair(x, position_ids, base):
    d = x.shape[-1]
    columns = []
    for k in range(d // 2):
        angle = position_ids.double() * base ** (-2 * k / d)
        a, b = x[..., 2 * k].double(), x[..., 2 * k + 1].double()
        columns += [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
    return torch.stack(columns, -1).to(x.dtype)


def attention_of_torch(q, k, v, position_ids):
    turned = [rope_pair_by_pair(t, position_ids, 10000.0) for t in (q, k)]
    return F.scaled_dot_product_attention(*turned, v, is_causal=True)


def attention_row_by_row(q, k, v, position_ids):
    a, b = (rope_by_complex_numbers(t, position_ids, 1e4).double() for t in (q, k))
    rows = []
    for i in range(q.shape[-2]):
        z = torch.einsum("bhd,bhsd->bhs", a[:, :, i], b[:, :, : i + 1]) * q.shape[-1] ** -0.5
        rows.append(torch.einsum("bhs,bhsd->bhd", z.softmax(-1), v[:, :, : i + 1].double()))
    return torch.stack(rows, 2).to(q.dtype)


def converted_by_an_index(weight, num_heads):
    d = weight.shape[0] // num_heads
    order = [h * d + i // 2 + (i % 2) * (d // 2) for h in range(num_heads) for i in range(d)]
    return weight[order]


def converted_by_a_product(weight, num_heads):
    rows = weight.shape[0]
    p = converted_by_an_index(torch.eye(rows, dtype=weight.dtype), num_heads)
    return p @ weight


RIGHT = [
    Right("rope.relative_matrix", "two rotations", matrix_by_two_rotations),
    Right("rope.relative_matrix", "an exponential", matrix_by_an_exponential),
    Right("rope.apply", "complex numbers", rope_by_complex_numbers),
    Right("rope.apply", "angles in float64", rope_with_angles_in_double),
    Right("rope.apply", "pair by pair", rope_pair_by_pair),
    Right("rope.attention", "torch's operator", attention_of_torch),
    Right("rope.attention", "row by row", attention_row_by_row),
    Right("rope.look_back", "complex numbers", key_by_complex_numbers),
    Right("rope.to_interleaved", "an index", converted_by_an_index),
    Right("rope.to_interleaved", "a permutation matrix", converted_by_a_product),
    Right("rope.to_interleaved", "detached", detached_and_new),
]
