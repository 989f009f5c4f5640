"""Longer contexts: published values bit for bit, identities, gradients, corners, named errors."""

import math

import pytest
import torch
import torch.nn.functional as F

from transformer_parts.long_context import (
    alibi_bias,
    alibi_slopes,
    dynamic_ntk_base,
    llama3_frequencies,
    ntk_aware_base,
    ntk_by_parts,
    position_interpolation,
    yarn_frequencies,
    yarn_mscale,
)
from transformer_parts.rope import rope_frequencies

SHAPES = [(4, 100.0, 64), (16, 100.0, 64), (128, 1e4, 4096), (96, 5e5, 8192), (128, 1e6, 32768)]
SCALES = [1.0, 1.5, 4.0, 32.0]


def exact(head_dim, base):
    return rope_frequencies(head_dim, base, dtype=torch.float64)


def assert_near(a, b, rtol=1e-12):
    torch.testing.assert_close(a, b, rtol=rtol, atol=0)


# ------------------------------------------------------- published code, every bit of it
# From Hugging Face's modeling_rope_utils (transformers 5.23.0), float32, pairs 0, 21, 32, 40
# and 63 of a head of 128, or 0, 11, 20, 31 and 39 of a head of 80.

GOLDEN = {
    "llama3 3.7": ("0x1.000000p+0 0x1.2417f8p-7 0x1.ae3e30p-12 0x1.36e2f6p-14 0x1.643dd4p-21"),
    "linear 4": ("0x1.000000p-2 0x1.8eec7ep-7 0x1.47ae14p-9 0x1.9e7c70p-11 0x1.e459c4p-16"),
    "linear 3.7": ("0x1.14c1bap-2 0x1.af44dap-7 0x1.623fa6p-9 0x1.c017d2p-11 0x1.05cfa8p-15"),
    "dynamic 4 at 10000": (
        "0x1.000000p+0 0x1.a5d7c2p-6 0x1.f05338p-9 0x1.ec7b5ep-11 0x1.1e5c1ap-16"
    ),
    "dynamic 2 at 100": ("0x1.000000p+0 0x1.8eec7ep-5 0x1.47ae14p-7 0x1.9e7c70p-9 0x1.e459c4p-14"),
    "dynamic 2 at tensor 5000": (
        "0x1.000000p+0 0x1.6126cep-5 0x1.102482p-7 0x1.489e90p-9 0x1.5006c8p-14"
    ),
    "yarn 4": ("0x1.000000p+0 0x1.836a98p-5 0x1.ac8130p-8 0x1.5eb810p-10 0x1.e459c4p-16"),
    "yarn 40": ("0x1.000000p+0 0x1.7ff6d2p-5 0x1.6872b2p-8 0x1.9e7c6ep-11 0x1.837b02p-19"),
    "yarn 3.7": ("0x1.000000p+0 0x1.6020a4p-7 0x1.41bdbap-11 0x1.932b84p-15 0x1.681ee8p-22"),
    "yarn 32 not truncated": (
        "0x1.000000p+0 0x1.ebc256p-7 0x1.dea878p-12 0x1.312650p-16 0x1.0d7c3cp-22"
    ),
    "yarn 16 beta 8 2": ("0x1.000000p+0 0x1.455b5ap-4 0x1.304636p-8 0x1.a074f4p-15 0x1.080408p-17"),
    "llama3 8": ("0x1.000000p+0 0x1.ba0dd8p-7 0x1.132ba4p-11 0x1.1f91f0p-15 0x1.4985fep-22"),
    "llama3 32": ("0x1.000000p+0 0x1.bbd0f2p-6 0x1.c26c40p-12 0x1.415b7ep-20 0x1.74a93ap-24"),
}


def published(name):
    return torch.tensor([float.fromhex(h) for h in GOLDEN[name].split()], dtype=torch.float32)


F32 = rope_frequencies(128, 1e4)
OURS = {
    "linear 4": lambda: position_interpolation(F32, 4.0),
    "linear 3.7": lambda: position_interpolation(F32, 3.7),
    "dynamic 4 at 10000": lambda: rope_frequencies(
        128, dynamic_ntk_base(1e4, 4.0, 128, 10_000, 4096)
    ),
    "dynamic 2 at 100": lambda: rope_frequencies(128, dynamic_ntk_base(1e4, 2.0, 128, 100, 4096)),
    "dynamic 2 at tensor 5000": lambda: rope_frequencies(
        128, dynamic_ntk_base(1e4, 2.0, 128, torch.tensor(5000), 4096)
    ),
    "yarn 4": lambda: yarn_frequencies(128, 1e4, 4.0, 4096)[0],
    "yarn 40": lambda: yarn_frequencies(128, 1e4, 40.0, 4096)[0],
    "yarn 3.7": lambda: yarn_frequencies(128, 1e6, 3.7, 32768)[0],
    "yarn 32 not truncated": lambda: yarn_frequencies(128, 150_000.0, 32.0, 4096, truncate=False)[
        0
    ],
    "yarn 16 beta 8 2": lambda: yarn_frequencies(80, 1e4, 16.0, 2048, beta_fast=8.0, beta_slow=2.0)[
        0
    ],
    "llama3 8": lambda: llama3_frequencies(rope_frequencies(128, 5e5), 8.0, 1.0, 4.0, 8192),
    "llama3 3.7": lambda: llama3_frequencies(rope_frequencies(128, 5e5), 3.7, 1.0, 32.0, 8192),
    "llama3 32": lambda: llama3_frequencies(rope_frequencies(80, 5e5), 32.0, 1.0, 4.0, 8192),
}


@pytest.mark.parametrize("name", OURS)
def test_published_frequencies_bit_for_bit(name):
    ours = OURS[name]()
    pairs = [0, 21, 32, 40, 63] if len(ours) == 64 else [0, 11, 20, 31, 39]
    assert ours.dtype == torch.float32
    assert torch.equal(ours[pairs], published(name))


def test_every_case_has_a_published_value():
    assert set(OURS) == set(GOLDEN)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 1.3688879454113936),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707, "mscale_all_dim": 1.0}, 0.9210423553163399),
        ({"mscale": 1.0}, 1.3688879454113936),
        ({"attention_factor": 1.25}, 1.25),
        ({"attention_factor": 0.0, "mscale": 2.0, "mscale_all_dim": 1.0}, 0.0),
    ],
)
def test_attention_factor_as_published(arguments, expected):
    assert yarn_frequencies(64, 1e4, 40.0, 4096, **arguments)[1] == expected


# ------------------------------------------------------- position interpolation, NTK-aware


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_position_interpolation_divides(dtype):
    f = exact(16, 100.0).to(dtype)
    scaled = position_interpolation(f, 2.0)
    assert scaled.dtype == dtype
    assert torch.equal(scaled * 2, f)
    assert scaled is not f


@pytest.mark.parametrize(("d", "base", "length"), SHAPES)
@pytest.mark.parametrize("scale", SCALES)
def test_ntk_aware_meets_both_conditions(d, base, length, scale):
    old, new = exact(d, base), exact(d, ntk_aware_base(base, scale, d))
    assert new[0] == 1
    assert_near(new[-1], old[-1] / scale)
    assert_near(new / old, scale ** (-2 * torch.arange(d // 2, dtype=torch.float64) / (d - 2)))


@pytest.mark.parametrize(("d", "base", "length"), SHAPES)
def test_dynamic_base(d, base, length):
    assert dynamic_ntk_base(base, 2.0, d, 1, length) == base
    assert dynamic_ntk_base(base, 2.0, d, length, length) == base
    assert dynamic_ntk_base(base, 1.0, d, 3 * length, length) == pytest.approx(
        ntk_aware_base(base, 3.0, d), rel=1e-14
    )
    # at the full length the last pair is divided by s * s - s + 1
    slow = exact(d, dynamic_ntk_base(base, 4.0, d, 4 * length, length))
    assert_near(slow[-1], exact(d, base)[-1] / 13)


def test_dynamic_base_of_a_tensor_is_computed_in_float32():
    base = dynamic_ntk_base(1e4, 2.0, 128, torch.tensor(5000), 4096)
    assert base.dtype == torch.float32
    assert base.item() == pytest.approx(dynamic_ntk_base(1e4, 2.0, 128, 5000, 4096), rel=1e-6)


# ------------------------------------------------------- NTK-by-parts


def by_hand(d, base, scale, length, alpha, beta):
    out = []
    for k in range(d // 2):
        theta = base ** (-2 * k / d)
        turns = length * theta / (2 * math.pi)
        w = 0.0 if turns <= alpha else 1.0 if turns >= beta else (turns - alpha) / (beta - alpha)
        out.append((1 - w) * theta / scale + w * theta)
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize(("d", "base", "length"), SHAPES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 32.0), (1.0, 4.0), (0.5, 2.0)])
def test_paper_ramp_against_a_loop(d, base, length, scale, alpha, beta):
    ours = ntk_by_parts(exact(d, base), scale, length, alpha, beta)
    assert_near(ours, by_hand(d, base, scale, length, alpha, beta))


@pytest.mark.parametrize(("d", "base", "length"), SHAPES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 32.0), (1.0, 4.0), (0.5, 2.0)])
def test_reference_ramp_against_a_loop(d, base, length, scale, alpha, beta):
    index = [d * math.log(length / (2 * math.pi * r)) / (2 * math.log(base)) for r in (beta, alpha)]
    low, high = max(math.floor(index[0]), 0), min(math.ceil(index[1]), d - 1)
    theta = [base ** (-2 * k / d) for k in range(d // 2)]
    kept = [1 - min(max((k - low) / (high - low), 0.0), 1.0) for k in range(d // 2)]
    expected = [(1 - w) * t / scale + w * t for w, t in zip(kept, theta, strict=True)]
    ours = ntk_by_parts(exact(d, base), scale, length, alpha, beta, ramp="reference")
    assert_near(ours, torch.tensor(expected, dtype=torch.float64))
    yarn, _ = yarn_frequencies(
        d, base, scale, length, beta_fast=beta, beta_slow=alpha, dtype=torch.float64
    )
    assert_near(yarn, ours)


@pytest.mark.parametrize(("d", "base", "length"), SHAPES)
@pytest.mark.parametrize("ramp", ["paper", "reference"])
def test_by_parts_ends(d, base, length, ramp):
    f = exact(d, base)
    turns = length * f / (2 * math.pi)
    ratio = ntk_by_parts(f, 8.0, length, ramp=ramp) / f
    assert ratio.min() >= 1 / 8 - 1e-12
    assert ratio.max() <= 1 + 1e-12
    assert (ratio.diff() <= 1e-12).all()
    slow = turns < 1
    assert_near(ratio[slow], torch.full_like(ratio[slow], 1 / 8))
    if ramp == "paper":
        assert_near(ratio[turns > 32], torch.ones_like(ratio[turns > 32]))


def test_constants_of_llama2():
    f = exact(128, 1e4)
    turns = 4096 * f / (2 * math.pi)
    assert (turns > 32).sum() == 21
    assert (turns < 1).sum() == 18
    shares = {
        ramp: (16 * ntk_by_parts(f, 16.0, 4096, ramp=ramp) / f - 1) / 15
        for ramp in ("paper", "reference")
    }
    assert shares["paper"][[21, 32, 40, 45]].tolist() == pytest.approx(
        [0.992, 0.178, 0.034, 0.0], abs=6e-4
    )
    assert shares["reference"][[20, 21, 32, 40, 45, 46]].tolist() == pytest.approx(
        [1.0, 0.962, 0.538, 0.231, 0.038, 0.0], abs=6e-4
    )


def test_float32_reference_ramp_equals_yarn_for_powers_of_two():
    for scale in (2.0, 8.0):
        ours = ntk_by_parts(F32, scale, 4096, ramp="reference")
        assert torch.equal(ours, yarn_frequencies(128, 1e4, scale, 4096)[0])


def test_equal_ends_make_a_step():
    # both ends fall below the first pair: everything but it is interpolated
    yarn, _ = yarn_frequencies(8, 1e4, 2.0, 6, beta_fast=32.0, beta_slow=1.0, dtype=torch.float64)
    f = exact(8, 1e4)
    assert yarn.isfinite().all()
    assert_near(yarn, torch.cat([f[:1], f[1:] / 2]))


def test_truncate_moves_the_ends():
    f = exact(128, 1e4)
    smooth, _ = yarn_frequencies(128, 1e4, 2.0, 4096, truncate=False, dtype=torch.float64)
    index = [128 * math.log(4096 / (2 * math.pi * r)) / (2 * math.log(1e4)) for r in (32, 1)]
    pair = torch.arange(64, dtype=torch.float64)
    kept = 1 - ((pair - index[0]) / (index[1] - index[0])).clamp(0, 1)
    assert_near(smooth, f / 2 * (1 - kept) + f * kept)


def test_yarn_with_the_papers_ramp():
    paper, factor = yarn_frequencies(128, 1e4, 16.0, 4096, ramp="paper", dtype=torch.float64)
    assert_near(paper, ntk_by_parts(exact(128, 1e4), 16.0, 4096))
    assert factor == pytest.approx(1.2773, abs=5e-5)


# ------------------------------------------------------- temperature, Llama 3.1


def test_mscale():
    assert yarn_mscale(1.0) == 1.0
    assert yarn_mscale(0.5) == 1.0
    assert yarn_mscale(16.0) == pytest.approx(1.2772588722239782, rel=1e-15)
    assert yarn_mscale(math.e) == pytest.approx(1.1, rel=1e-15)
    assert yarn_mscale(40.0, 0.0707) == pytest.approx(1.2608, abs=5e-5)
    assert yarn_mscale(40.0, coefficient=0.0) == 1.0


@pytest.mark.parametrize(("d", "base", "length"), SHAPES)
@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (1.0, 32.0), (0.5, 2.0)])
def test_llama3_is_the_papers_ramp(d, base, length, low, high):
    f = exact(d, base)
    ours = llama3_frequencies(f, 8.0, low, high, length)
    assert_near(ours, ntk_by_parts(f, 8.0, length, low, high))
    assert_near(ours, by_hand(d, base, 8.0, length, low, high))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_llama3_keeps_the_dtype(dtype):
    ours = llama3_frequencies(F32.to(dtype), 8.0, 1.0, 4.0, 4096)
    assert ours.dtype == dtype
    wide = llama3_frequencies(F32.double(), 8.0, 1.0, 4.0, 4096)
    torch.testing.assert_close(ours.double(), wide, rtol=0.1, atol=0)


# ------------------------------------------------------- what all have in common


METHODS = {
    "position_interpolation": lambda f: position_interpolation(f, 4.0),
    "paper": lambda f: ntk_by_parts(f, 4.0, 4096),
    "reference": lambda f: ntk_by_parts(f, 4.0, 4096, ramp="reference"),
    "llama3": lambda f: llama3_frequencies(f, 4.0, 1.0, 4.0, 4096),
}


@pytest.mark.parametrize("name", METHODS)
def test_gradients(name):
    f = exact(32, 1e4).requires_grad_()
    assert torch.autograd.gradcheck(METHODS[name], f, eps=1e-8, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_inputs_are_left_alone(name):
    f = exact(32, 1e4)
    before = f.clone()
    METHODS[name](f)
    assert torch.equal(f, before)


def test_scale_one_changes_nothing():
    f = exact(64, 1e4)
    assert_near(position_interpolation(f, 1.0), f)
    assert_near(ntk_by_parts(f, 1.0, 4096), f)
    assert_near(ntk_by_parts(f, 1.0, 4096, ramp="reference"), f)
    assert_near(llama3_frequencies(f, 1.0, 1.0, 4.0, 8192), f)
    yarn, factor = yarn_frequencies(64, 1e4, 1.0, 4096, dtype=torch.float64)
    assert_near(yarn, f)
    assert factor == 1.0


def test_meta_device():
    yarn, _ = yarn_frequencies(64, 1e4, 4.0, 4096, device="meta")
    assert yarn.is_meta
    assert yarn.shape == (32,)
    assert alibi_bias(2, 3, device="meta").is_meta


# ------------------------------------------------------- ALiBi


def test_slopes_of_powers_of_two():
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(1).tolist() == [1 / 256]
    assert alibi_slopes(2).tolist() == [1 / 16, 1 / 256]
    assert_near(
        alibi_slopes(16, torch.float64)[:3], torch.tensor([0.5**0.5, 0.5, 0.5**1.5]).double(), 1e-7
    )


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (7, [2, 4, 6, 8, 1, 3, 5]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_of_other_numbers(heads, exponents):
    expected = torch.tensor([2.0**-e for e in exponents], dtype=torch.float64)
    assert torch.equal(alibi_slopes(heads, torch.float64), expected)


@pytest.mark.parametrize("heads", [1, 2, 5, 8])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_bias_against_a_loop(heads, length):
    bias, slopes = alibi_bias(heads, length, dtype=torch.float64), alibi_slopes(heads).double()
    both = alibi_bias(heads, length, is_causal=False, dtype=torch.float64)
    assert bias.shape == both.shape == (heads, length, length)
    for h in range(heads):
        for i in range(length):
            for j in range(length):
                assert both[h, i, j] == -slopes[h] * abs(i - j)
                assert bias[h, i, j] == (-slopes[h] * (i - j) if j <= i else -math.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bias_dtype(dtype):
    bias = alibi_bias(8, 33, dtype=dtype)
    assert bias.dtype == dtype
    assert torch.equal(bias.double(), alibi_bias(8, 33, dtype=torch.float64))


@pytest.mark.parametrize(
    ("dtype", "tol"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
)
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_attention_with_the_bias(dtype, tol, heads):
    g = torch.Generator().manual_seed(0)
    q, k, v, dy = (
        torch.randn(2, heads, 9, 6, generator=g, dtype=torch.float64).to(dtype) for _ in range(4)
    )
    leaves = [t.requires_grad_() for t in (q, k, v)]
    official = F.scaled_dot_product_attention(q, k, v, attn_mask=alibi_bias(heads, 9, dtype=dtype))
    place = torch.arange(9)
    wide = [t.detach().double().requires_grad_() for t in leaves]
    scores = wide[0] @ wide[1].mT / 6**0.5 + alibi_slopes(heads).double()[:, None, None] * place
    ours = scores.masked_fill(place > place[:, None], -math.inf).softmax(-1) @ wide[2]
    torch.testing.assert_close(official.double(), ours, rtol=tol, atol=tol)
    got = torch.autograd.grad(official, leaves, dy)
    expected = torch.autograd.grad(ours, wide, dy.double())
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=tol, atol=2 * tol)


def test_last_rows_serve_a_cache():
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 4, 7, 8, generator=g, dtype=torch.float64) for _ in range(3))
    bias = alibi_bias(4, 7, dtype=torch.float64)
    full = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    last = F.scaled_dot_product_attention(q[:, :, -2:], k, v, attn_mask=bias[:, -2:])
    torch.testing.assert_close(last, full[:, :, -2:], rtol=0, atol=1e-12)


# ------------------------------------------------------- errors that name what is wrong


F8 = exact(16, 100.0)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: position_interpolation(F8, 0.5), "scale must be at least 1, got 0.5"),
        (lambda: position_interpolation(F8, math.nan), "scale must be at least 1, got nan"),
        (lambda: position_interpolation(F8[None], 2.0), r"inv_freq must have shape .*\(1, 8\)"),
        (lambda: ntk_aware_base(1e4, 0.9, 16), "scale must be at least 1, got 0.9"),
        (lambda: ntk_aware_base(1e4, 2.0, 2), "head_dim must be even and at least 4, got 2"),
        (lambda: ntk_aware_base(1e4, 2.0, 7), "head_dim must be even and at least 4, got 7"),
        (lambda: dynamic_ntk_base(1e4, 2.0, 2, 9, 8), "head_dim must be even .* got 2"),
        (lambda: dynamic_ntk_base(1e4, 0.0, 16, 9, 8), "scale must be at least 1, got 0.0"),
        (lambda: ntk_by_parts(F8, 0.5, 64), "scale must be at least 1"),
        (lambda: ntk_by_parts(F8[:1], 2.0, 64), "inv_freq must have at least 2 pairs, got 1"),
        (lambda: ntk_by_parts(F8[None], 2.0, 64), "inv_freq must have shape"),
        (lambda: ntk_by_parts(F8, 2.0, 64, 4.0, 4.0), "alpha must be positive and below beta"),
        (lambda: ntk_by_parts(F8, 2.0, 64, 0.0, 4.0), "alpha must be positive and below beta"),
        (lambda: ntk_by_parts(F8, 2.0, 64, ramp="code"), "ramp must be 'paper' or 'reference'"),
        (lambda: yarn_frequencies(3, 1e4, 2.0, 64), "head_dim must be even and at least 4, got 3"),
        (lambda: yarn_frequencies(8, 1e4, 0.1, 64), "scale must be at least 1, got 0.1"),
        (lambda: yarn_frequencies(8, 1e4, 2.0, 64, ramp="hf"), "ramp must be .* got 'hf'"),
        (lambda: yarn_frequencies(8, 1e4, 2.0, 64, 1.0, 32.0), "alpha must be positive and below"),
        (lambda: llama3_frequencies(F8, 0.5, 1.0, 4.0, 64), "scale must be at least 1"),
        (lambda: llama3_frequencies(F8, 8.0, 4.0, 1.0, 64), "alpha must be positive and below"),
        (lambda: llama3_frequencies(F8[None], 8.0, 1.0, 4.0, 64), "inv_freq must have shape"),
        (lambda: alibi_slopes(0), "num_heads must be at least 1, got 0"),
        (lambda: alibi_bias(0, 4), "num_heads must be at least 1, got 0"),
        (lambda: alibi_bias(2, -1), "length must not be negative, got -1"),
    ],
)
def test_errors_name_the_argument(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
