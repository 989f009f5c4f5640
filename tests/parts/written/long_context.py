"""Chapter 12: answers to its exercises that the checkers do not know."""

import math

import torch

from . import Right, Wrong


# kept share
def share_with(turns=None, cut=None, ends=None, keep=True):
    def answer(k, head_dim, base, original_max_len, alpha, beta):
        lo, hi = (alpha, beta) if ends is None else ends
        r = original_max_len * base ** (-2 * k / head_dim) / (2 * math.pi)
        if turns is not None:
            r = turns(k, head_dim, base, original_max_len)
        w = (r - lo) / (hi - lo)
        w = max(0.0, min(1.0, w)) if cut is None else cut(w)
        return w if keep else 1 - w

    return answer


def kappa(turns, d, base, length):
    return d * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))


def share_of_the_code(k, head_dim, base, original_max_len, alpha, beta):
    lo = max(math.floor(kappa(beta, head_dim, base, original_max_len)), 0)
    hi = min(math.ceil(kappa(alpha, head_dim, base, original_max_len)), head_dim - 1)
    return 1.0 - min(max((k - lo) / max(hi - lo, 0.001), 0.0), 1.0)


def a_line_between_unrounded_indices(k, head_dim, base, original_max_len, alpha, beta):
    lo = kappa(beta, head_dim, base, original_max_len)
    hi = kappa(alpha, head_dim, base, original_max_len)
    return 1.0 - min(max((k - lo) / (hi - lo), 0.0), 1.0)


def share_in_float32(k, head_dim, base, original_max_len, alpha, beta):
    theta = 1.0 / base ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    r = original_max_len * theta / (2 * torch.pi)
    return ((r - alpha) / (beta - alpha)).clamp(0, 1)[k].item()


# dynamic
def scores_with(scale=None, base_of=None, start=0, at=None, halves=False, factor=1.0, cached=False):
    def answer(query, keys, base, original_max_len):
        n, d = keys.shape

        def moved(length):
            s = length / original_max_len if scale is None else scale(length, original_max_len)
            if scale is None:
                s = max(s, 1.0)
            return base * s ** (d / (d - 2)) if base_of is None else base_of(base, s, d)

        def rotated(x, p, b):
            theta = b ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
            c, s = (p * theta).cos(), (p * theta).sin()
            if halves:
                u, v = x.chunk(2, -1)
                return torch.cat([u * c - v * s, u * s + v * c])
            u, v = x[0::2], x[1::2]
            return torch.stack([u * c - v * s, u * s + v * c], -1).flatten()

        q = rotated(query, start + (n - 1 if at is None else at(n)), moved(n))
        kept = [rotated(k, start + j, moved(j + 1 if cached else n)) for j, k in enumerate(keys)]
        return torch.stack([q @ k for k in kept]) * (d**-0.5 if factor is None else factor)

    return answer


# yarn


# gap


# alibi
def alibi_with(
    slopes=None, sign=-1.0, ahead=-math.inf, both=False, bonus=False, dtype=torch.float64
):
    def answer(num_heads, length):
        h = torch.arange(1, num_heads + 1, dtype=dtype)
        a = 2 ** (-8 * h / num_heads) if slopes is None else slopes(num_heads)
        i = torch.arange(length)[:, None]
        j = torch.arange(length)[None, :]
        far = (i - j).abs() if both else i - j
        z = a[:, None, None] * j.expand(length, length) if bonus else sign * a[:, None, None] * far
        return z if both else z.masked_fill(j > i, ahead)

    return answer


def by_powers(start):
    return lambda n: torch.tensor(
        [2.0 ** (-8 * (h + start) / n) for h in range(n)], dtype=torch.float64
    )


def masked_by_a_product(num_heads, length):
    h = torch.arange(1, num_heads + 1, dtype=torch.float64)
    i = torch.arange(length, dtype=torch.float64)
    z = -(2 ** (-8 * h / num_heads))[:, None, None] * (i[:, None] - i).clamp(min=0)
    return z + torch.ones(length, length, dtype=torch.float64).triu(1) * -torch.inf


def slopes_in_float32(num_heads, length):
    h = torch.arange(1, num_heads + 1, dtype=torch.float32)
    a = 2 ** (-8 * h / num_heads)
    i = torch.arange(length)
    z = -(a[:, None, None] * (i[:, None] - i)).double()
    return z.masked_fill(i > i[:, None], -torch.inf)


WRONG = [
    Wrong(
        "long_context.ntk_base",
        "the scale itself",
        lambda base, scale, head_dim: base * scale,
        named="the base times the scale",
    ),
    Wrong(
        "long_context.ntk_base",
        "(d − 2)/d",
        lambda base, scale, head_dim: base * scale ** ((head_dim - 2) / head_dim),
        named="the exponent upside down",
    ),
    Wrong(
        "long_context.ntk_base",
        "a whole exponent",
        lambda base, scale, head_dim: base * scale ** (head_dim // (head_dim - 2)),
    ),
    Wrong(
        "long_context.ntk_base",
        "pairs for features",
        lambda base, scale, head_dim: base * scale ** (head_dim / 2 / (head_dim / 2 - 2)),
        named="pairs taken for features",
    ),
    Wrong(
        "long_context.ntk_base",
        "d/(d − 1)",
        lambda base, scale, head_dim: base * scale ** (head_dim / (head_dim - 1)),
        named="half the index forgotten",
    ),
    Wrong(
        "long_context.ntk_base",
        "the base in the power",
        lambda base, scale, head_dim: (base * scale) ** (head_dim / (head_dim - 2)),
        named="the base stretched too",
    ),
    Wrong(
        "long_context.ntk_base",
        "of width 128",
        lambda base, scale, head_dim: base * scale ** (128 / 126),
    ),
    Wrong(
        "long_context.ntk_base",
        "of base 10000",
        lambda base, scale, head_dim: 10000 * scale ** (head_dim / (head_dim - 2)),
    ),
    Wrong(
        "long_context.ntk_base",
        "a whole number",
        lambda base, scale, head_dim: int(base * scale ** (head_dim / (head_dim - 2))),
    ),
    Wrong(
        "long_context.ntk_base",
        "a tensor",
        lambda base, scale, head_dim: base * torch.tensor(scale) ** (head_dim / (head_dim - 2)),
    ),
    Wrong("long_context.kept_share", "the code's ramp", share_of_the_code),
    Wrong("long_context.kept_share", "a line in the index", a_line_between_unrounded_indices),
    Wrong("long_context.kept_share", "in float32", share_in_float32),
    Wrong("long_context.kept_share", "from 1 to 32 turns", share_with(ends=(1, 32))),
    Wrong(
        "long_context.kept_share", "not clamped", share_with(cut=lambda w: w), named="not clamped"
    ),
    Wrong("long_context.kept_share", "not clamped above", share_with(cut=lambda w: max(0.0, w))),
    Wrong(
        "long_context.kept_share", "rounded", share_with(cut=lambda w: round(min(max(w, 0), 1), 4))
    ),
    Wrong(
        "long_context.kept_share",
        "the share that is divided",
        share_with(keep=False),
        named="the share that is divided",
    ),
    Wrong(
        "long_context.kept_share",
        "pairs from 1",
        share_with(turns=lambda k, d, b, n: n * b ** (-2 * (k - 1) / d) / (2 * math.pi)),
        named="pairs counted from 1",
    ),
    Wrong(
        "long_context.kept_share",
        "k/d",
        share_with(turns=lambda k, d, b, n: n * b ** (-k / d) / (2 * math.pi)),
        named="exponent k/d",
    ),
    Wrong(
        "long_context.kept_share",
        "radians for turns",
        share_with(turns=lambda k, d, b, n: n * b ** (-2 * k / d)),
        named="radians taken for turns",
    ),
    Wrong(
        "long_context.kept_share",
        "whole turns",
        share_with(turns=lambda k, d, b, n: n * b ** (-2 * k / d) // (2 * math.pi)),
    ),
    Wrong(
        "long_context.kept_share",
        "π = 3.14",
        share_with(turns=lambda k, d, b, n: n * b ** (-2 * k / d) / 6.28),
    ),
    Wrong(
        "long_context.dynamic_scores",
        "a base that shrinks too",
        scores_with(scale=lambda n, n0: n / n0),
        named="a smaller base for a short text",
    ),
    Wrong(
        "long_context.dynamic_scores",
        "the plain base",
        scores_with(scale=lambda n, n0: 1.0),
        named="the base never moves",
    ),
    Wrong(
        "long_context.dynamic_scores",
        "the position as the length",
        scores_with(scale=lambda n, n0: max(1.0, (n - 1) / n0)),
    ),
    Wrong(
        "long_context.dynamic_scores",
        "a whole scale",
        scores_with(scale=lambda n, n0: max(1, n // n0)),
        named="a whole ratio",
    ),
    Wrong(
        "long_context.dynamic_scores",
        "the next whole scale",
        scores_with(scale=lambda n, n0: max(1, math.ceil(n / n0))),
    ),
    Wrong(
        "long_context.dynamic_scores",
        "the query at n",
        scores_with(at=lambda n: n),
        named="the query one too far",
    ),
    Wrong("long_context.dynamic_scores", "the query not rotated", scores_with(at=lambda n: 0)),
    Wrong("long_context.dynamic_scores", "halves as pairs", scores_with(halves=True)),
    Wrong("long_context.dynamic_scores", "scaled by 1/sqrt(d)", scores_with(factor=None)),
    Wrong(
        "long_context.dynamic_scores",
        "each key with its own base",
        scores_with(cached=True),
        named="keys rotated when they came",
    ),
    Wrong(
        "long_context.dynamic_scores",
        "the base times the scale",
        scores_with(base_of=lambda base, s, d: base * s),
        named="the base times the ratio",
    ),
    Wrong(
        "long_context.alibi_bias",
        "heads from 0",
        alibi_with(slopes=by_powers(0)),
        named="heads counted from 0",
    ),
    Wrong(
        "long_context.alibi_bias",
        "2^−h",
        alibi_with(
            slopes=lambda n: torch.tensor([2.0**-h for h in range(1, n + 1)], dtype=torch.float64)
        ),
        named="slopes for eight heads",
    ),
    Wrong(
        "long_context.alibi_bias",
        "the steepest last",
        alibi_with(slopes=lambda n: by_powers(1)(n).flip(0)),
    ),
    Wrong(
        "long_context.alibi_bias",
        "a reward for distance",
        alibi_with(sign=1.0),
        named="distant keys preferred",
    ),
    Wrong(
        "long_context.alibi_bias",
        "−1e9 for −∞",
        alibi_with(ahead=-1e9),
        named="a large negative number for minus infinity",
    ),
    Wrong("long_context.alibi_bias", "0 for later keys", alibi_with(ahead=0.0)),
    Wrong("long_context.alibi_bias", "+∞ for later keys", alibi_with(ahead=math.inf)),
    Wrong("long_context.alibi_bias", "both directions", alibi_with(both=True)),
    Wrong(
        "long_context.alibi_bias",
        "a bonus for late keys",
        alibi_with(bonus=True),
        named="a bonus for the key alone",
    ),
    Wrong("long_context.alibi_bias", "float32", alibi_with(dtype=torch.float32)),
    Wrong("long_context.alibi_bias", "slopes in float32", slopes_in_float32),
    Wrong("long_context.alibi_bias", "0 · −∞", masked_by_a_product),
]


def base_by_its_condition(base, scale, head_dim):
    last = base ** (-(head_dim - 2) / head_dim) / scale
    return last ** (-head_dim / (head_dim - 2))


def base_by_logarithms(base, scale, head_dim):
    return math.exp(math.log(base) + math.log(scale) / (1 - 2 / head_dim))


def share_by_wavelengths(k, head_dim, base, original_max_len, alpha, beta):
    wavelength = 2 * math.pi * base ** (2 * k / head_dim)
    if wavelength <= original_max_len / beta:
        return 1
    if wavelength >= original_max_len / alpha:
        return 0
    return (original_max_len / wavelength - alpha) / (beta - alpha)


def share_by_sorting(k, head_dim, base, original_max_len, alpha, beta):
    r = original_max_len / math.tau / math.pow(base, k / (head_dim // 2))
    return sorted((0.0, (r - alpha) / (beta - alpha), 1.0))[1]


def scores_by_relative_angles(query, keys, base, original_max_len):
    n, d = keys.shape
    if n > original_max_len:
        base = base * (n / original_max_len) ** (d / (d - 2))
    theta = base ** (-torch.arange(0, d, 2).double() / d)
    angle = torch.arange(n - 1, -1, -1).double()[:, None] * theta
    q = torch.view_as_complex(query.double().reshape(-1, 2).contiguous())
    k = torch.view_as_complex(keys.double().reshape(n, -1, 2).contiguous())
    return (q * k.conj() * torch.polar(torch.ones_like(angle), angle)).real.sum(-1).to(keys.dtype)


def scores_of_pairs(query, keys, base, original_max_len):
    n, d = keys.shape
    b = base * max(1.0, n / original_max_len) ** (d / (d - 2))
    total = torch.zeros(n, dtype=keys.dtype)
    for p in range(d // 2):
        angle = (n - 1 - torch.arange(n).double()) * b ** (-2 * p / d)
        c, s = angle.cos().to(keys.dtype), angle.sin().to(keys.dtype)
        (q0, q1), (k0, k1) = query[2 * p : 2 * p + 2], keys[:, 2 * p : 2 * p + 2].T
        total = total + c * (q0 * k0 + q1 * k1) + s * (q0 * k1 - q1 * k0)
    return total


def alibi_by_loops(num_heads, length):
    return torch.tensor(
        [
            [
                [
                    -(2.0 ** (-8 * h / num_heads)) * (i - j) if j <= i else -math.inf
                    for j in range(length)
                ]
                for i in range(length)
            ]
            for h in range(1, num_heads + 1)
        ],
        dtype=torch.float64,
    ).reshape(num_heads, length, length)


def alibi_by_cumsum(num_heads, length):
    ratio = 2.0 ** (-8 / num_heads)
    a = torch.full((num_heads,), ratio, dtype=torch.float64).cumprod(0)
    p = torch.arange(length, dtype=torch.float64)
    bias = torch.einsum("h,ij->hij", a, p - p[:, None])
    return torch.where(torch.ones(length, length).tril().bool(), bias, float("-inf"))


RIGHT = [
    Right("long_context.ntk_base", "its condition", base_by_its_condition),
    Right("long_context.ntk_base", "logarithms", base_by_logarithms),
    Right("long_context.kept_share", "wavelengths", share_by_wavelengths),
    Right("long_context.kept_share", "the middle of three", share_by_sorting),
    Right("long_context.dynamic_scores", "relative angles", scores_by_relative_angles),
    Right("long_context.dynamic_scores", "pair by pair", scores_of_pairs),
    Right("long_context.alibi_bias", "loops", alibi_by_loops),
    Right("long_context.alibi_bias", "cumprod and einsum", alibi_by_cumsum),
]
