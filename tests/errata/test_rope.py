"""What people get wrong about RoPE: each wrong form fails, the right one holds."""

import inspect
import math

import pytest
import torch

from transformer_parts import rope
from transformer_parts.attention import scaled_dot_product_attention
from transformer_parts.rope import (
    RotaryEmbedding,
    apply_rotary_emb,
    build_rope_cache,
    rope_frequencies,
    rotation_matrix,
)

F64 = torch.float64


def gap(a, b):
    return (a - b).abs().max().item()


def turn(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]])


def circulating_cache(width, length, device=None):
    """The tables of the program in circulation."""
    inv_freq = 1.0 / (10000 ** (torch.arange(0, width, 2) / width))
    angles = torch.arange(length, device=device).unsqueeze(1) * inv_freq.unsqueeze(0)
    return torch.cos(angles), torch.sin(angles)


def circulating_rope(x, cos, sin):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).reshape_as(x)


def test_e27_the_solution_is_a_family_and_there_are_d_half_blocks():
    q, k = torch.randn(2, 2)
    # A second solution, with a constant angle: the same scores.
    score = lambda m, n, gamma: (  # noqa: E731
        (q @ turn(0.3 * m + gamma).T) @ (k @ turn(0.3 * n + gamma).T)
    )
    assert abs(score(5, 2, 0.7) - score(5, 2, 0.0)) < 1e-14
    assert gap(q @ turn(0.7).T, q) > 0.1  # but another function
    # Any orthogonal matrix has powers that solve the requirement.
    one = torch.linalg.qr(torch.randn(6, 6))[0]
    power = torch.linalg.matrix_power
    assert gap(power(one, 9) @ power(one, 6).T, power(one, 3)) < 1e-13
    # With a function each, any invertible matrix does, but not with the same one for both.
    other = torch.eye(6) + 0.3 * torch.randn(6, 6)
    contra = torch.linalg.inv(other).T
    q, k = torch.randn(2, 6)
    scores = [(q @ power(other, m)) @ (k @ power(contra, m - 3)) for m in (3, 4, 9)]
    assert max(abs(s - q @ power(other, 3) @ k) for s in scores) < 1e-9
    assert abs((q @ power(other, 4)).norm() / q.norm() - 1) > 0.1
    alike = [(q @ power(other, m)) @ (k @ power(other, m - 3)) for m in (3, 4)]
    assert abs(alike[0] - alike[1]) > 0.1
    # In d dimensions there is one angle per pair, and a single one is not enough.
    q, k = torch.randn(2, 8)
    cos, sin = build_rope_cache(8, 8, dtype=F64)
    at = lambda v, p: apply_rotary_emb(v[None], cos, sin, torch.tensor([p]))[0]  # noqa: E731
    pairs = [torch.view_as_complex(v.view(4, 2)) for v in (q, k)]
    theta = rope_frequencies(8, dtype=F64)
    total = (pairs[0] * pairs[1].conj() * torch.exp(1j * 3 * theta)).sum().real
    assert abs(at(q, 5) @ at(k, 2) - total) < 1e-13
    single = (pairs[0] * pairs[1].conj() * torch.exp(1j * 3 * torch.ones(4))).sum().real
    assert abs(single - total) > 0.1


def test_e28_the_matrix_between_is_r_n_minus_m():
    q, k, m, n, theta = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 3, 1, 0.5
    score = (q @ turn(m * theta).T) @ (k @ turn(n * theta).T)
    assert round(score.item(), 4) == 0.8415
    assert abs(q @ turn((n - m) * theta) @ k - score) < 1e-15
    assert round((q @ turn((m - n) * theta) @ k).item(), 4) == -0.8415
    q, k = torch.randn(2, 2)
    error = q @ (turn((m - n) * theta) - turn((n - m) * theta)) @ k
    assert abs(error - 2 * (q[1] * k[0] - q[0] * k[1]) * math.sin((m - n) * theta)) < 1e-14
    # Parallel vectors do not notice.
    assert abs(q @ (turn(1.0) - turn(-1.0)) @ (2 * q)) < 1e-14


def test_e29_a_sum_over_the_pairs_and_a_scale():
    q, k, v = torch.randn(3, 6, 8)
    cos, sin = build_rope_cache(8, 6, dtype=F64)
    turned = [apply_rotary_emb(t, cos, sin) for t in (q, k)]
    pairs = [torch.view_as_complex(t.view(6, 4, 2)) for t in turned]
    products = pairs[0][:, None] * pairs[1].conj()
    assert products.shape == (6, 6, 4)  # one complex number per pair, not a score
    scores = products.sum(-1).real / 8**0.5
    official = torch.nn.functional.scaled_dot_product_attention(*(t[None] for t in (*turned, v)))
    assert gap(scores.softmax(-1) @ v, official[0]) < 1e-13
    assert gap((products.sum(-1).real).softmax(-1) @ v, official[0]) > 0.1


def test_e30_frequencies_live_where_the_positions_are():
    with pytest.raises(RuntimeError, match="not on the expected device"):
        circulating_cache(8, 4, device="meta")
    assert build_rope_cache(8, 4, device="meta")[0].is_meta
    with torch.device("meta"):
        module = RotaryEmbedding(8, 4)
    module.to_empty(device="cpu")
    assert torch.equal(module.cos, build_rope_cache(8, 4)[0])


def test_e31_frequencies_come_from_the_width_of_a_head():
    theta = rope_frequencies(512, dtype=F64).view(8, 32)
    assert [round(t.item(), 3) for t in (theta[0, -1], theta[0, 0])] == [0.328, 1.0]
    assert theta[7, 0] < 3.3e-4
    assert theta[7, -1] > 1.0e-4
    x = torch.randn(1, 8, 10, 64)
    per_head = apply_rotary_emb(x, *build_rope_cache(64, 10, dtype=F64))
    merged = x.transpose(1, 2).flatten(2)
    before = apply_rotary_emb(merged, *build_rope_cache(512, 10, dtype=F64))
    before = before.unflatten(2, (8, 64)).transpose(1, 2)
    assert gap(before, per_head) > 4


def test_e32_sizes_lengths_and_dtypes():
    with pytest.raises(RuntimeError, match="must match"):
        circulating_rope(torch.randn(4, 7), *circulating_cache(7, 4))
    with pytest.raises(ValueError, match="head_dim must be even"):
        build_rope_cache(7, 4)
    cos, sin = circulating_cache(8, 10)
    with pytest.raises(RuntimeError, match="must match"):
        circulating_rope(torch.randn(2, 5, 8), cos, sin)
    x = torch.randn(2, 5, 8)
    assert gap(apply_rotary_emb(x, cos, sin), circulating_rope(x, cos[:5], sin[:5])) < 1e-15
    half = x.bfloat16()
    single = [t.float() for t in (cos[:5], sin[:5])]
    assert circulating_rope(half, *single).dtype == torch.float32
    assert apply_rotary_emb(half, *single).dtype == torch.bfloat16
    # (B, L, H, d) with as many heads as positions runs, and turns along the heads.
    y = torch.randn(2, 4, 4, 8)
    wrong = circulating_rope(y, cos[:4], sin[:4])
    right = apply_rotary_emb(y.transpose(1, 2), cos, sin).transpose(1, 2)
    assert gap(wrong, right) > 1
    # The error of an angle in float32 grows with the position.
    theta = rope_frequencies(128, dtype=F64)
    errors = [gap((rope_frequencies(128) * p).double(), theta * p) for p in (1e3, 32768, 1e6)]
    assert 1e-6 < errors[0] < 1e-4 < errors[1] < 5e-3 < errors[2] < 0.2
    assert torch.tensor([256, 257]).bfloat16().tolist() == [256, 256]


def test_e33_properties_and_not_a_printout():
    q, k, v = torch.randn(3, 1, 10, 16)
    cos, sin = build_rope_cache(16, 100, dtype=F64)
    turned = lambda t, at=0: apply_rotary_emb(t, cos, sin, torch.arange(10) + at)  # noqa: E731
    changed = v.clone()
    changed[:, -1] += 3
    attend = lambda v, causal, at=0: scaled_dot_product_attention(  # noqa: E731
        turned(q, at), turned(k, at), v, is_causal=causal
    )
    # Without a mask the first output depends on the last value.
    assert gap(attend(changed, False)[:, 0], attend(v, False)[:, 0]) > 1e-3
    assert gap(attend(changed, True)[:, 0], attend(v, True)[:, 0]) == 0
    # Lengths stay, shifts do not matter, the order does, and the matrix agrees.
    assert gap(turned(q).norm(dim=-1), q.norm(dim=-1)) < 1e-13
    assert gap(attend(v, True, 60), attend(v, True)) < 1e-13
    one = lambda t, p: apply_rotary_emb(t[:, :1], cos, sin, torch.tensor([p]))  # noqa: E731
    score = lambda m, n: one(q, m) @ one(k, n).mT  # noqa: E731
    assert gap(score(5, 2), score(63, 60)) < 1e-13
    assert gap(score(5, 2), score(2, 5)) > 0.1
    assert gap(turned(q)[0, 7], q[0, 7] @ rotation_matrix(7, 16).T) < 1e-13


def test_e34_the_name_is_rotary_position_embedding():
    # The name of the paper, and the only one that the library uses.
    assert rope.__doc__ is not None
    assert "rotary position embedding" in rope.__doc__.lower()
    assert "rotary positional encoding" not in inspect.getsource(rope).lower()


def test_e107_angles_are_position_times_frequency_and_only_q_and_k_turn():
    # No complex number is needed, and the angle is a product.
    x = torch.randn(8, 4)
    theta = rope_frequencies(4, dtype=F64)
    cos, sin = build_rope_cache(4, 8, dtype=F64)
    assert gap(cos, (torch.arange(8.0)[:, None] * theta).cos()) < 1e-15
    by_matrix = torch.stack([x[p] @ rotation_matrix(p, 4).T for p in range(8)])
    assert gap(apply_rotary_emb(x, cos, sin), by_matrix) < 1e-14
    # Turn the values as well, and a shift of all positions changes the output.
    q, k, v = torch.randn(3, 1, 10, 16)
    cos, sin = build_rope_cache(16, 100, dtype=F64)

    def attend(at, values):
        turned = lambda t: apply_rotary_emb(t, cos, sin, torch.arange(10) + at)  # noqa: E731
        v_ = turned(v) if values else v
        return scaled_dot_product_attention(turned(q), turned(k), v_, is_causal=True)

    assert gap(attend(40, False), attend(0, False)) < 1e-13
    assert gap(attend(40, True), attend(0, True)) > 0.5


def test_p1_the_sign_and_the_index_in_yarn(evidence):
    q, k = torch.randn(2, 2)
    zq, zk = (torch.complex(*v) for v in (q, k))
    m, n, theta = 5, 2, 0.4
    true = (q @ turn(m * theta).T) @ (k @ turn(n * theta).T)
    # With the first factor conjugated, as the paper has it, the exponent is n - m.
    product = lambda a: (zq.conj() * zk * torch.exp(torch.tensor(1j * a))).real  # noqa: E731
    assert abs(product((n - m) * theta) - true) < 1e-14
    assert abs(product((m - n) * theta) - true) > 0.05
    # An index that starts at 1 starts with a smaller angle than 1.
    assert round(10000 ** (-2 / 128), 3) == 0.866
    assert rope_frequencies(128, dtype=F64)[0] == 1
    evidence(len(rope_frequencies(128)))


def test_p4_the_transpose_in_roformer():
    x_m, x_n = torch.randn(2, 6)  # columns, as in the paper
    w_q, w_k = torch.randn(2, 6, 6)
    m, n = 5, 2
    r = lambda p: rotation_matrix(p, 6)  # noqa: E731
    true = (r(m) @ w_q @ x_m) @ (r(n) @ w_k @ x_n)
    assert abs(x_m @ w_q.T @ r(n - m) @ w_k @ x_n - true) < 1e-12
    assert abs(x_m @ w_q @ r(n - m) @ w_k @ x_n - true) > 0.1


def test_p5_a_bound_that_falls_is_not_a_score_that_falls():
    theta = rope_frequencies(128, dtype=F64)
    distances = torch.arange(0, 1001)
    waves = torch.exp(1j * distances[:, None] * theta)
    sums = waves.cumsum(-1).abs().mean(-1)
    assert [round(sums[p].item(), 2) for p in (0, 10, 100, 1000)] == [32.5, 17.95, 10.23, 4.47]
    assert (sums[1:256] > sums[:255]).sum() > 50  # not monotone
    q, k = torch.randn(2, 2000, 128)
    q, k = (torch.view_as_complex(t.view(2000, 64, 2)) for t in (q, k))
    scores = torch.einsum("nk,pk->pn", q * k.conj(), waves[[0, 100, 1000]]).real
    assert (scores.std(1) / 128**0.5 - 1).abs().max() < 0.1  # the same spread at all distances
