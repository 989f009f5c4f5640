"""Chapter 04: answers to its exercises that the checkers do not know."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from . import Right, Wrong

# embeddings.table


def _angles(max_len, d_model, base):
    pairs = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    return torch.arange(max_len, dtype=torch.float64)[:, None] * base**-pairs


def one_half_after_the_other(max_len, d_model, base):
    angles = _angles(max_len, d_model, base)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def computed_in_single_precision(max_len, d_model, base):
    pairs = torch.arange(0, d_model, 2).float() / d_model
    angles = torch.arange(max_len).float()[:, None] / base**pairs
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).double()


def stays_in_single_precision(max_len, d_model, base):
    angles = _angles(max_len, d_model, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def pairs_counted_by_features(max_len, d_model, base):
    k = torch.arange(d_model, dtype=torch.float64)
    angles = torch.arange(max_len, dtype=torch.float64)[:, None] * base ** (-k / d_model)
    return torch.where(k % 2 == 0, angles.sin(), angles.cos())


def exponent_without_its_two(max_len, d_model, base):
    pairs = torch.arange(d_model // 2, dtype=torch.float64) / d_model
    angles = torch.arange(max_len, dtype=torch.float64)[:, None] * base**-pairs
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def base_of_the_paper(max_len, d_model, base):
    angles = _angles(max_len, d_model, 10000.0)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def positions_from_one(max_len, d_model, base):
    angles = _angles(max_len + 1, d_model, base)[1:]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def frequencies_to_the_end(max_len, d_model, base):
    f = base ** -torch.linspace(0, 1, d_model // 2, dtype=torch.float64)
    angles = torch.arange(max_len, dtype=torch.float64)[:, None] * f
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def in_numpy(max_len, d_model, base):
    n, k = np.ogrid[:max_len, :d_model]
    angles = n / np.power(float(base), 2 * (k // 2) / d_model)
    return torch.from_numpy(np.where(k % 2, np.cos(angles), np.sin(angles)))


def number_by_number(max_len, d_model, base):
    table = torch.empty(max_len, d_model, dtype=torch.float64)
    for n in range(max_len):
        for i in range(d_model // 2):
            angle = n * math.exp(-2 * i / d_model * math.log(base))
            table[n, 2 * i], table[n, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


def by_complex_numbers(max_len, d_model, base):
    z = torch.polar(
        torch.ones(max_len, d_model // 2, dtype=torch.float64), _angles(max_len, d_model, base)
    )
    return torch.view_as_real(z).flip(-1).reshape(max_len, d_model)


# embeddings.shift


def _shift(offset, d_model, base, block):
    angles = [offset * base ** (-2 * i / d_model) for i in range(d_model // 2)]
    blocks = [torch.tensor(block(math.sin(a), math.cos(a)), dtype=torch.float64) for a in angles]
    return torch.block_diag(*blocks)


def from_the_left(offset, d_model, base):
    return _shift(offset, d_model, base, lambda s, c: [[c, s], [-s, c]])


def usual_rotation(offset, d_model, base):
    return _shift(abs(offset), d_model, base, lambda s, c: [[c, -s], [s, c]])


def power_of_one_step(offset, d_model, base):
    one = _shift(1, d_model, base, lambda s, c: [[c, -s], [s, c]])
    M = torch.eye(d_model, dtype=torch.float64)
    for _ in range(offset):
        M = M @ one
    return M


def base_of_the_paper_again(offset, d_model, base):
    return _shift(offset, d_model, 10000, lambda s, c: [[c, -s], [s, c]])


def fitted(offset, d_model, base):
    n = max(64, 2 * d_model)
    angles = _angles(n + abs(offset), d_model, base)
    table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    start = max(0, -offset)
    return torch.linalg.lstsq(
        table[start : start + n], table[start + offset : start + offset + n]
    ).solution


def angles_of_single_precision(offset, d_model, base):
    f = base ** -(torch.arange(0, d_model, 2, dtype=torch.float32) / d_model)
    a = (offset * f).double()
    blocks = [torch.tensor([[x.cos(), -x.sin()], [x.sin(), x.cos()]]).double() for x in a]
    return torch.block_diag(*blocks)


def one_frequency(offset, d_model, base):
    s, c = math.sin(offset), math.cos(offset)
    block = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    return torch.block_diag(*[block] * (d_model // 2))


def halves(offset, d_model, base):
    a = _angles(2, d_model, base)[1] * offset
    c, s = torch.diag(a.cos()), torch.diag(a.sin())
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)])


def two_diagonals(offset, d_model, base):
    a = (offset * _angles(2, d_model, base)[1]).repeat_interleave(2)
    s = torch.sin(a[:-1]) * (torch.arange(d_model - 1) % 2 == 0)
    return torch.diag(a.cos()) + torch.diag(-s, 1) + torch.diag(s, -1)


def by_the_exponential(offset, d_model, base):
    G = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        G[i, i + 1] = -(float(base) ** (-i / d_model))
        G[i + 1, i] = float(base) ** (-i / d_model)
    return torch.linalg.matrix_exp(G).matrix_power(offset)


# embeddings.equivariance


def _tried(agree, orders=lambda t: [torch.randperm(t) for _ in range(12)], dtype=torch.float64):
    def answer(f, count, width):
        x = torch.randn(count, width, dtype=dtype)
        return all(agree(f, x, torch.as_tensor(o)) for o in orders(count))

    return answer


def _near(a, b):
    return bool(((a - b).abs() <= 1e-9).all())


def _right(f, x, o):
    return _near(f(x[o]), f(x)[o])


invariant = _tried(lambda f, x, o: _near(f(x[o]), f(x)))
turned_back = _tried(lambda f, x, o: _near(f(x[o]), f(x)[o.argsort()]))
relatively_close = _tried(lambda f, x, o: torch.allclose(f(x[o]), f(x)[o]))
relatively_close_besides = _tried(lambda f, x, o: torch.allclose(f(x[o]), f(x)[o], atol=1e-9))
rows_in_any_order = _tried(lambda f, x, o: _near(f(x[o]).sort(0).values, f(x)[o].sort(0).values))
sums_of_columns = _tried(lambda f, x, o: _near(f(x[o]).sum(0), f(x).sum(0)))
equal_to_the_last_bit = _tried(lambda f, x, o: torch.equal(f(x[o]), f(x)[o]))
only_reversed = _tried(_right, lambda t: [list(range(t))[::-1]])
only_one_turn = _tried(_right, lambda t: [[*range(1, t), 0]])
only_the_first_two = _tried(_right, lambda t: [[1, 0, *range(2, t)]])
only_the_last_two = _tried(_right, lambda t: [[*range(t - 2), t - 1, t - 2]])
in_single_precision = _tried(_right, dtype=torch.float32)


def rows_of_ones(f, count, width):
    x = torch.ones(count, width, dtype=torch.float64)
    return _right(f, x, torch.arange(count).flip(0))


def for_four_rows(f, count, width):
    x = torch.randn(4, width, dtype=torch.float64)
    return all(_right(f, x, torch.randperm(4)) for _ in range(20))


def a_tensor(f, count, width):
    x = torch.randn(count, width, dtype=torch.float64)
    gaps = [f(x[o]) - f(x)[o] for o in (torch.randperm(count) for _ in range(20))]
    return torch.stack(gaps).abs().max() <= 1e-9


def undone(f, count, width):
    for _ in range(20):
        x, order = torch.rand(count, width, dtype=torch.float64), torch.randperm(count)
        back = torch.empty_like(order)
        back[order] = torch.arange(count)
        if torch.dist(f(x[order])[back], f(x), p=float("inf")).item() > 1e-9:
            return False
    return True


def by_a_matrix(f, count, width):
    x = torch.randn(count, width).double()
    for i in range(1, count):
        P = torch.eye(count, dtype=x.dtype)
        P[[0, i]] = P[[i, 0]]
        gap = f(P @ x) - P @ f(x)
        if any(abs(g) > 1e-9 or g != g for g in gap.flatten().tolist()):
            return False
    return True


# embeddings.backward


def last_one_stays(grad_out, tokens, vocab_size):
    grad = grad_out.new_zeros(vocab_size, grad_out.shape[-1])
    grad[tokens] += grad_out
    return grad


def one_dimension_of_tokens(grad_out, tokens, vocab_size):
    grad = grad_out.new_zeros(vocab_size, grad_out.shape[-1])
    for t, g in zip(tokens, grad_out, strict=True):
        grad[t] += g
    return grad


def zeros_of_the_default_dtype(grad_out, tokens, vocab_size):
    grad = torch.zeros(vocab_size, grad_out.shape[-1])
    rows = grad_out.reshape(-1, grad_out.shape[-1])
    for t, g in zip(tokens.flatten().tolist(), rows, strict=True):
        grad[t] += g
    return grad


def as_many_rows_as_tokens(grad_out, tokens, vocab_size):
    one_hot = F.one_hot(tokens.flatten()).to(grad_out.dtype)
    return one_hot.T @ grad_out.reshape(-1, grad_out.shape[-1])


def mean_of_the_same(grad_out, tokens, vocab_size):
    flat, rows = tokens.flatten(), grad_out.reshape(-1, grad_out.shape[-1])
    grad = rows.new_zeros(vocab_size, rows.shape[-1]).index_add(0, flat, rows)
    return grad / flat.bincount(minlength=vocab_size).clamp(min=1)[:, None]


def first_row_is_padding(grad_out, tokens, vocab_size):
    grad = grad_out.new_zeros(vocab_size, grad_out.shape[-1])
    grad.index_add_(0, tokens.flatten(), grad_out.flatten(0, -2))
    grad[0] = 0
    return grad


def autograd_adds(grad_out, tokens, vocab_size):
    table = grad_out.new_zeros(vocab_size, grad_out.shape[-1], requires_grad=True)
    F.embedding(tokens, table).backward(grad_out)
    return table.grad


def autograd_by_a_function(grad_out, tokens, vocab_size):
    table = grad_out.new_zeros(vocab_size, grad_out.shape[-1])
    return torch.func.vjp(lambda w: w[tokens], table)[1](grad_out)[0]


def autograd_by_a_module(grad_out, tokens, vocab_size):
    table = nn.Embedding(vocab_size, grad_out.shape[-1], dtype=grad_out.dtype)
    return torch.autograd.grad(table(tokens), table.weight, grad_out)[0]


def scaled_as_the_embedding(grad_out, tokens, vocab_size):
    grad = grad_out.new_zeros(vocab_size, grad_out.shape[-1])
    grad.index_add_(0, tokens.flatten(), grad_out.flatten(0, -2))
    return grad * grad_out.shape[-1] ** 0.5


def token_by_token(grad_out, tokens, vocab_size):
    rows = [grad_out[tokens == t].sum(0) for t in range(vocab_size)]
    return torch.stack(rows)


def accumulated(grad_out, tokens, vocab_size):
    grad = torch.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)
    return grad.index_put((tokens,), grad_out, accumulate=True)


def one_hot_product(grad_out, tokens, vocab_size):
    one_hot = (tokens[..., None] == torch.arange(vocab_size)).to(grad_out.dtype)
    return torch.tensordot(one_hot, grad_out, dims=(list(range(tokens.dim())),) * 2)


# embeddings.tied


def _tied(up, down):
    return lambda weight, tokens, h: (up(weight)[tokens], h @ down(weight).mT)


def width_512(weight, tokens, h):
    return weight[tokens] * 512**0.5, h @ weight.T


def root_of_the_vocabulary(weight, tokens, h):
    return weight[tokens] * weight.shape[0] ** 0.5, h @ weight.T


def both_scaled(weight, tokens, h):
    scaled = weight * math.sqrt(weight.shape[1])
    return scaled[tokens], h @ scaled.T


def head_detached(weight, tokens, h):
    return weight[tokens] * math.sqrt(weight.shape[1]), F.linear(h, weight.detach())


def rows_detached(weight, tokens, h):
    rows = nn.Embedding.from_pretrained(weight)(tokens)
    return rows * math.sqrt(weight.shape[1]), F.linear(h, weight)


def root_rounded(weight, tokens, h):
    root = torch.tensor(weight.shape[1], dtype=torch.float32).sqrt()
    return weight[tokens] * root, h @ weight.T


def whole_root(weight, tokens, h):
    return weight[tokens] * math.isqrt(weight.shape[1]), h @ weight.T


def probabilities(weight, tokens, h):
    return weight[tokens] * weight.shape[1] ** 0.5, (h @ weight.T).softmax(-1)


def scaled_in_place(weight, tokens, h):
    rows = F.embedding(tokens, weight)
    h *= 1
    return rows.mul_(weight.shape[1] ** 0.5), h @ weight.T * weight.shape[1] ** -0.5


def one_matrix_of_rows(weight, tokens, h):
    return weight[tokens] * weight.shape[1] ** 0.5, torch.mm(h, weight.T)


def by_one_hot(weight, tokens, h):
    one_hot = F.one_hot(tokens, len(weight)).to(weight.dtype)
    return torch.einsum("...v,vd->...d", one_hot, weight).mul(math.sqrt(weight.size(1))), F.linear(
        h, weight
    )


def by_embedding(weight, tokens, h):
    d = weight.shape[-1]
    return F.embedding(tokens, weight * d**0.5), torch.einsum("...d,vd->...v", h, weight)


WRONG = [
    Wrong(
        "embeddings.row",
        "degrees",
        lambda: [0.1045, 0.9945, 0.0010, 1.0],
        named="degrees in place of radians",
        says="value",
    ),
    Wrong(
        "embeddings.row",
        "sines first",
        lambda: [-0.2794, 0.0600, 0.9602, 0.9982],
        says="value 1: expected",
    ),
    Wrong(
        "embeddings.row",
        "an exponent of one quarter",
        lambda: [-0.2794, 0.9602, 0.5646, 0.8253],
        says="value 2: expected",
    ),
    Wrong(
        "embeddings.row",
        "three decimals",
        lambda: [-0.279, 0.960, 0.060, 0.998],
        says="value 0: expected",
    ),
    Wrong(
        "embeddings.row",
        "position 5",
        lambda: [-0.9589, 0.2837, 0.0500, 0.9988],
        named="the positions counted from one",
        says="value",
    ),
    Wrong(
        "embeddings.row",
        "position 7",
        lambda: [0.6570, 0.7539, 0.0699, 0.9976],
        says="value 0: expected",
    ),
    Wrong(
        "embeddings.row",
        "a thousandth below one",
        lambda: [-0.2794, 0.9602, 0.0600, 0.999],
        says="value 3: expected",
    ),
    Wrong(
        "embeddings.row",
        "text",
        lambda: ["-0.2794", "0.9602", "0.0600", "0.9982"],
        says="value 0: expected",
    ),
    Wrong(
        "embeddings.row",
        "cut off, not rounded",
        lambda: [-0.2794, 0.9601, 0.0599, 0.9982],
        says="value 1: expected",
    ),
    Wrong(
        "embeddings.row",
        "computed by torch",
        lambda: torch.tensor([6.0, 6 + math.pi / 2, 0.06, 0.06 + math.pi / 2]).sin().tolist(),
        says="says typed in",
    ),
    Wrong(
        "embeddings.table",
        "in two halves",
        one_half_after_the_other,
        named="all sines before all cosines",
    ),
    Wrong("embeddings.table", "in float32", computed_in_single_precision),
    Wrong("embeddings.table", "float32 in the end", stays_in_single_precision),
    Wrong(
        "embeddings.table",
        "a frequency for each feature",
        pairs_counted_by_features,
        named="a frequency for every feature",
    ),
    Wrong(
        "embeddings.table",
        "the exponent without its two",
        exponent_without_its_two,
        named="exponent k/d",
    ),
    Wrong(
        "embeddings.table",
        "10000 whatever is given",
        base_of_the_paper,
        named="the base fixed at 10000",
    ),
    Wrong(
        "embeddings.table",
        "positions from 1",
        positions_from_one,
        named="positions counted from one",
    ),
    Wrong(
        "embeddings.table",
        "the last frequency is 1/base",
        frequencies_to_the_end,
        named="exponents up to one",
    ),
    Wrong("embeddings.shift", "from the left", from_the_left, named="the transposed matrix"),
    Wrong(
        "embeddings.shift",
        "the distance, not the offset",
        usual_rotation,
        named="the absolute value of the offset",
    ),
    Wrong("embeddings.shift", "step by step", power_of_one_step),
    Wrong("embeddings.shift", "10000 whatever is given", base_of_the_paper_again),
    Wrong("embeddings.shift", "fitted to a table", fitted),
    Wrong("embeddings.shift", "angles in float32", angles_of_single_precision),
    Wrong("embeddings.shift", "one frequency", one_frequency, named="one frequency for all pairs"),
    Wrong("embeddings.shift", "pairs in two halves", halves, named="the layout of halves"),
    Wrong(
        "embeddings.equivariance",
        "invariant",
        invariant,
        named="invariance in place of equivariance",
    ),
    Wrong(
        "embeddings.equivariance",
        "the inverse",
        turned_back,
        named="the inverse order on the output",
    ),
    Wrong(
        "embeddings.equivariance",
        "allclose",
        relatively_close,
        named="a limit that grows with the numbers",
    ),
    Wrong(
        "embeddings.equivariance",
        "allclose within 1e-9 besides",
        relatively_close_besides,
        named="a limit that grows with the numbers",
    ),
    Wrong(
        "embeddings.equivariance",
        "the same rows in any order",
        rows_in_any_order,
        named="rows compared as a set",
    ),
    Wrong(
        "embeddings.equivariance",
        "sums of columns",
        sums_of_columns,
        named="only sums over the rows compared",
    ),
    Wrong(
        "embeddings.equivariance",
        "a tensor for a bool",
        a_tensor,
        named="a tensor in place of a bool",
    ),
    Wrong(
        "embeddings.equivariance",
        "to the last bit",
        equal_to_the_last_bit,
        named="rounding taken for a difference",
    ),
    Wrong(
        "embeddings.equivariance",
        "the reversed order",
        only_reversed,
        named="the reversed order, and no other",
    ),
    Wrong(
        "embeddings.equivariance",
        "one turn",
        only_one_turn,
        named="all rows turned round by one, and no other order",
    ),
    Wrong(
        "embeddings.equivariance",
        "the first two",
        only_the_first_two,
        named="the first two rows exchanged, and no others",
    ),
    Wrong(
        "embeddings.equivariance",
        "the last two",
        only_the_last_two,
        named="the last two rows exchanged, and no others",
    ),
    Wrong(
        "embeddings.equivariance",
        "float32",
        in_single_precision,
        named="rounding taken for a difference",
    ),
    Wrong("embeddings.equivariance", "ones", rows_of_ones, named="all rows alike"),
    Wrong("embeddings.equivariance", "four rows", for_four_rows),
    Wrong(
        "embeddings.backward", "one of several", last_one_stays, named="the last occurrence wins"
    ),
    Wrong("embeddings.backward", "tokens in one dimension", one_dimension_of_tokens),
    Wrong("embeddings.backward", "zeros of the default dtype", zeros_of_the_default_dtype),
    Wrong("embeddings.backward", "rows up to the largest token", as_many_rows_as_tokens),
    Wrong(
        "embeddings.backward", "the mean", mean_of_the_same, named="the mean over the occurrences"
    ),
    Wrong("embeddings.backward", "token 0 for padding", first_row_is_padding),
    Wrong("embeddings.backward", "backward", autograd_adds, says="says without autograd"),
    Wrong(
        "embeddings.backward",
        "torch.func.vjp",
        autograd_by_a_function,
        says="says without autograd",
    ),
    Wrong(
        "embeddings.backward", "autograd.grad", autograd_by_a_module, says="says without autograd"
    ),
    Wrong(
        "embeddings.backward",
        "the factor of the embedding",
        scaled_as_the_embedding,
        named="the factor of the scaled embedding",
    ),
    Wrong("embeddings.tied", "a width of 512", width_512),
    Wrong("embeddings.tied", "the root of the vocabulary", root_of_the_vocabulary),
    Wrong("embeddings.tied", "both scaled", both_scaled, named="the factor at the head too"),
    Wrong("embeddings.tied", "a detached head", head_detached, named="the head detached"),
    Wrong("embeddings.tied", "from_pretrained", rows_detached, named="the embedding detached"),
    Wrong("embeddings.tied", "a root in float32", root_rounded),
    Wrong("embeddings.tied", "a whole root", whole_root),
    Wrong("embeddings.tied", "probabilities", probabilities),
    Wrong("embeddings.tied", "the scores divided", scaled_in_place),
    Wrong("embeddings.tied", "one matrix of rows", one_matrix_of_rows),
    Wrong("embeddings.tied", "not scaled", _tied(lambda w: w, lambda w: w), named="no factor"),
]
RIGHT = [
    Right("embeddings.row", "more digits", lambda: [-0.279415, 0.960170, 0.059964, 0.9982]),
    Right("embeddings.table", "NumPy", in_numpy),
    Right("embeddings.table", "number by number", number_by_number),
    Right("embeddings.table", "complex numbers", by_complex_numbers),
    Right("embeddings.shift", "two diagonals", two_diagonals),
    Right("embeddings.shift", "a matrix exponential", by_the_exponential),
    Right("embeddings.equivariance", "the output turned back", undone),
    Right("embeddings.equivariance", "a permutation matrix", by_a_matrix),
    Right("embeddings.backward", "token by token", token_by_token),
    Right("embeddings.backward", "index_put", accumulated),
    Right("embeddings.backward", "a product with one-hot rows", one_hot_product),
    Right("embeddings.tied", "one-hot rows", by_one_hot),
    Right("embeddings.tied", "a scaled copy in the graph", by_embedding),
]
