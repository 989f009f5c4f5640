"""Chapter 07: answers to its exercises that the checkers do not know."""

import math
from fractions import Fraction

import torch
import torch.nn.functional as F

from . import Right, Wrong


# SwiGLU
def one_batch_dimension(x, gate, up, down):
    g = torch.einsum("btd,fd->btf", x, gate)
    u = torch.einsum("btd,fd->btf", x, up)
    return torch.einsum("btf,df->btd", F.silu(g) * u, down)


def rows_of_a_matrix(x, gate, up, down):
    g, u = gate @ x.T, up @ x.T
    return (down @ (F.silu(g) * u)).T


def swiglu_without_batch(x, gate, up, down):
    flat = x.reshape(-1, x.shape[-1])
    return F.linear(F.silu(F.linear(flat, gate)) * F.linear(flat, up), down)


# a product by two units
def two_units(gate, up, down=(1.0, 1.0)):
    return lambda layer: layer(
        torch.tensor(gate).double(), torch.tensor(up).double(), torch.tensor(down).double()[:, None]
    )


def product_by_a_large_gate(layer):
    # SiLU of a large number is the number, so the gate is driven far out and divided again.
    gate = torch.tensor([[1024.0, -1024.0], [0.0, 0.0]])
    return layer(gate, torch.tensor([[0.0, 0.0], [1 / 1024, -1 / 1024]]), torch.ones(2, 1))


def product_for_columns(layer):
    gate = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    up = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    return layer(gate, up, torch.ones(1, 2))


# backwards
def silu_backward(dh, g, u, slope=None, second=None):
    s = torch.sigmoid(g)
    d = s * (1 + g * (1 - s)) if slope is None else slope(g, s)
    return dh * u * d, dh * (g * s if second is None else second(g, s))


def by_autograd(dh, g, u):
    g, u = g.detach().requires_grad_(), u.detach().requires_grad_()
    (F.silu(g) * u).backward(dh)
    return g.grad, u.grad


def by_vjp(dh, g, u):
    return torch.func.vjp(lambda a, b: F.silu(a) * b, g, u)[1](dh)


def by_jvp(dh, g, u):
    slope = torch.func.jvp(F.silu, (g,), (torch.ones_like(g),))[1]
    return dh * u * slope, dh * F.silu(g)


def by_operator(dh, g, u):
    return torch.ops.aten.silu_backward(dh * u, g), dh * F.silu(g)


def exponential_of_g(dh, g, u):
    e = torch.exp(g)
    s = e / (1 + e)
    return dh * u * (s + g * s / (1 + e)), dh * g * s


def over_dh_itself(dh, g, u):
    s = torch.sigmoid(g)
    du = dh * g * s
    dg = dh.mul_(u * s * (1 + g * (1 - s)))
    return dg, du


# widths
def width_with(thirds=None, factored=None, up=None):
    def answer(d_model, multiple_of, factor):
        h = (thirds or (lambda d: 8 * d // 3))(d_model)
        if factor is not None:
            h = (factored or (lambda f, h: int(f * h)))(factor, h)
        return (up or (lambda h, m: -(-h // m) * m))(h, multiple_of)

    return answer


def factor_before_truncating(d_model, multiple_of, factor):
    h = int((factor or 1) * 8 * d_model / 3)
    return (h + multiple_of - 1) // multiple_of * multiple_of


def factor_after_rounding(d_model, multiple_of, factor):
    h = (8 * d_model // 3 + multiple_of - 1) // multiple_of * multiple_of
    return h if factor is None else int(factor * h)


def of_four_d_truncated_twice(d_model, multiple_of, factor):
    h = int(factor * 4 * d_model) if factor else 4 * d_model
    h = 2 * h // 3
    return (h + multiple_of - 1) // multiple_of * multiple_of


def rounded_as_a_float(d_model, multiple_of, factor):
    h = int(2 * 4 * d_model / 3)
    h = h if factor is None else int(factor * h)
    return multiple_of * round(h / multiple_of + 0.5)


# truncation
def search_up_to(limit):
    def answer(m):
        for d in range(1, limit(m)):
            if -(-(8 * d // 3) // m) * m != -(-8 * d // (3 * m)) * m:
                return d
        return None

    return answer


def floats_all_the_way(m):
    for d in range(1, 3 * m + 1):
        if math.ceil(int(8 * d / 3) / m) != math.ceil(8 * d / 3 / m):
            return d
    return None


def without_an_end(m):
    d = 1
    while -(-(8 * d // 3) // m) == -(-8 * d // (3 * m)):
        d += 1
    return d


def zero_for_none(m):
    return search_up_to(lambda m: 3 * m + 1)(m) or 0


def rounding_to_the_nearest(m):
    for d in range(1, 3 * m + 1):
        if round(8 * d // 3 / m) != round(8 * d / 3 / m):
            return d
    return None


def known_by_four(m):
    if m % 4 == 0:
        return None
    return next(d for d in range(1, 3 * m + 1) if 8 * d // 3 % m == 0)


def remainder_of_one(m):
    return next((d for d in range(1, 3 * m + 1) if 8 * d % (3 * m) == 1), None)


WRONG = [
    Wrong("feed_forward.swiglu", "three dimensions only", one_batch_dimension),
    Wrong(
        "feed_forward.swiglu",
        "two dimensions only",
        rows_of_a_matrix,
    ),
    Wrong("feed_forward.swiglu", "the batch lost", swiglu_without_batch),
    Wrong(
        "feed_forward.swiglu",
        "the activation on up",
        lambda x, gate, up, down: (x @ gate.T * F.silu(x @ up.T)) @ down.T,
        named="gate and up exchanged",
    ),
    Wrong(
        "feed_forward.swiglu",
        "the activation on both",
        lambda x, gate, up, down: (F.silu(x @ gate.T) * F.silu(x @ up.T)) @ down.T,
        named="activation on both branches",
    ),
    Wrong(
        "feed_forward.swiglu",
        "the activation on the product",
        lambda x, gate, up, down: F.silu((x @ gate.T) * (x @ up.T)) @ down.T,
        named="activation on the product",
    ),
    Wrong(
        "feed_forward.swiglu",
        "GELU",
        lambda x, gate, up, down: (F.gelu(x @ gate.T) * (x @ up.T)) @ down.T,
        named="GELU in place of SiLU",
    ),
    Wrong(
        "feed_forward.swiglu",
        "a sum for the product",
        lambda x, gate, up, down: (F.silu(x @ gate.T) + x @ up.T) @ down.T,
        named="sum in place of the product",
    ),
    Wrong(
        "feed_forward.product",
        "the value not turned round",
        two_units([[1.0, -1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]),
        named="the signs of the values alike",
    ),
    Wrong(
        "feed_forward.product",
        "one unit, the other at zero",
        two_units([[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]),
        named="one unit",
    ),
    Wrong(
        "feed_forward.product",
        "the sum squared less the difference squared",
        two_units([[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [1.0, -1.0]], (0.25, -0.25)),
        named="squares of sum and difference",
    ),
    Wrong("feed_forward.product", "down with shape (1, 2)", product_for_columns),
    Wrong("feed_forward.swiglu_backward", "backward()", by_autograd, says="without autograd"),
    Wrong("feed_forward.swiglu_backward", "torch.func.vjp", by_vjp, says="without autograd"),
    Wrong("feed_forward.swiglu_backward", "torch.func.jvp", by_jvp, says="without autograd"),
    Wrong(
        "feed_forward.swiglu_backward",
        "the operator silu_backward",
        by_operator,
        says="without autograd",
    ),
    Wrong("feed_forward.swiglu_backward", "eᵍ/(1 + eᵍ)", exponential_of_g),
    Wrong("feed_forward.swiglu_backward", "writes over dh", over_dh_itself),
    Wrong(
        "feed_forward.swiglu_backward",
        "s + g(1 − s)",
        lambda dh, g, u: silu_backward(dh, g, u, slope=lambda g, s: s + g * (1 - s)),
    ),
    Wrong(
        "feed_forward.swiglu_backward",
        "s(1 − s) alone",
        lambda dh, g, u: silu_backward(dh, g, u, slope=lambda g, s: s * (1 - s)),
        named="slope of the sigmoid",
    ),
    Wrong(
        "feed_forward.swiglu_backward",
        "du with the sigmoid alone",
        lambda dh, g, u: silu_backward(dh, g, u, second=lambda g, s: s),
        named="sigmoid in place of SiLU for the value",
    ),
    Wrong(
        "feed_forward.swiglu_backward",
        "(du, dg)",
        lambda dh, g, u: silu_backward(dh, g, u)[::-1],
        named="order exchanged",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "factor before truncating",
        factor_before_truncating,
        named="factor before truncating",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "factor after rounding",
        factor_after_rounding,
        named="factor after rounding",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "factor before the thirds",
        of_four_d_truncated_twice,
        named="factor before the two thirds",
    ),
    Wrong("feed_forward.hidden_width", "half a multiple added and rounded", rounded_as_a_float),
    Wrong(
        "feed_forward.hidden_width",
        "round after the factor",
        width_with(factored=lambda f, h: round(f * h)),
        named="rounded after the factor",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "round after the thirds",
        width_with(thirds=lambda d: round(8 * d / 3)),
        named="rounded after the two thirds",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "not truncated after the thirds",
        width_with(thirds=lambda d: 8 * d / 3, up=lambda h, m: math.ceil(h / m) * m),
        named="not truncated after the two thirds",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "4 d · 2 // 3, in pieces",
        width_with(thirds=lambda d: d // 3 * 8),
    ),
    Wrong(
        "feed_forward.hidden_width",
        "a float",
        width_with(up=lambda h, m: float(-(-h // m) * m)),
    ),
    Wrong(
        "feed_forward.hidden_width",
        "the next multiple, if it is one already",
        width_with(up=lambda h, m: (h // m + 1) * m),
        named="one multiple too many",
    ),
    Wrong(
        "feed_forward.hidden_width",
        "a factor in whole per cent",
        width_with(factored=lambda f, h: h * int(100 * f) // 100),
    ),
    Wrong(
        "feed_forward.first_truncation",
        "up to 100",
        search_up_to(lambda m: 100),
        named="search ends at a fixed number",
    ),
    Wrong(
        "feed_forward.first_truncation",
        "up to m",
        search_up_to(lambda m: m + 1),
        named="search ends at m",
    ),
    Wrong(
        "feed_forward.first_truncation",
        "up to 3m/8",
        search_up_to(lambda m: 3 * m // 8 + 1),
        named="never",
    ),
    Wrong("feed_forward.first_truncation", "no end", without_an_end),
    Wrong("feed_forward.first_truncation", "0 for None", zero_for_none, named="0 in place of None"),
    Wrong("feed_forward.first_truncation", "to the nearest multiple", rounding_to_the_nearest),
    Wrong(
        "feed_forward.first_truncation",
        "remainder 1 only",
        remainder_of_one,
        named="remainder 1 only",
    ),
]


def swiglu_by_einsum(x, gate, up, down):
    g = torch.einsum("...d,fd->...f", x, gate)
    u = torch.einsum("...d,fd->...f", x, up)
    return torch.einsum("...f,df->...d", g * torch.sigmoid(g) * u, down)


def swiglu_as_one_product(x, gate, up, down):
    g, u = F.linear(x, torch.cat([gate, up])).tensor_split(2, -1)
    return F.linear(F.silu(g).mul(u), weight=down)


def backward_by_parts(dh, g, u):
    y = F.silu(g)
    s = torch.sigmoid(g)
    return dh * u * (y + s * (1 - y)), dh * y


def backward_as_a_dict(dh, g, u):
    s, t = g.sigmoid(), (-g).sigmoid()
    grads = {"g": dh.mul(u).mul(torch.addcmul(s, g * s, t)), "u": dh.mul(g).mul(s)}
    return [grads["g"], grads["u"]]


def width_as_llama_prints_it(d_model, multiple_of, factor):
    hidden_dim = 4 * d_model
    hidden_dim = int(2 * hidden_dim / 3)
    if factor is not None:
        hidden_dim = int(factor * hidden_dim)
    return multiple_of * ((hidden_dim + multiple_of - 1) // multiple_of)


def width_by_divmod(d_model, multiple_of, factor):
    h = math.trunc(Fraction(8 * d_model, 3))
    h = h if factor is None else math.floor(h * factor)
    q, r = divmod(h, multiple_of)
    return (q + bool(r)) * multiple_of


def first_truncation_by_remainder(m):
    # Truncating moves across a multiple exactly if 8d is 1 or 2 above one of 3m.
    return min((d for d in range(1, 3 * m + 1) if 8 * d % (3 * m) in (1, 2)), default=None)


def first_truncation_in_fractions(m):
    for d in range(1, 6 * m):
        exact = Fraction(8 * d, 3)
        if math.ceil(Fraction(int(exact), m)) < math.ceil(exact / m):
            return d
    return None


RIGHT = [
    Right("feed_forward.swiglu", "einsum", swiglu_by_einsum),
    Right("feed_forward.swiglu", "gate and up as one product", swiglu_as_one_product),
    Right("feed_forward.product", "a gate driven far out", product_by_a_large_gate),
    Right(
        "feed_forward.product",
        "the second feature in the gate",
        two_units([[0.0, 0.0], [2.0, -2.0]], [[1.0, -1.0], [0.0, 0.0]], (0.5, 0.5)),
    ),
    Right("feed_forward.swiglu_backward", "through SiLU's value", backward_by_parts),
    Right("feed_forward.swiglu_backward", "a list", backward_as_a_dict),
    Right("feed_forward.hidden_width", "as Llama's code has it", width_as_llama_prints_it),
    Right("feed_forward.hidden_width", "fractions and divmod", width_by_divmod),
    Right("feed_forward.first_truncation", "a remainder of 1 or 2", first_truncation_by_remainder),
    Right("feed_forward.first_truncation", "8d//3 alone, where 4 is no divisor", known_by_four),
    Right("feed_forward.first_truncation", "fractions", first_truncation_in_fractions),
]
