"""RoPE against block matrices, complex numbers and the published half-split form; its module."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_parts import rope as ours
from transformer_parts.tensors import assert_parity

F64 = torch.float64
LEADS = st.lists(st.integers(1, 3), min_size=0, max_size=3)


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def angles(positions, d, base=10000.0):
    return torch.as_tensor(positions, dtype=F64)[..., None] * base ** (
        -torch.arange(0, d, 2, dtype=F64) / d
    )


def by_elements(x, positions, base=10000.0):
    """Interleaved, one entry at a time; positions (T,) or broadcasting to (..., T)."""
    theta = angles(positions, x.shape[-1], base).to(x.dtype)
    columns = []
    for k in range(x.shape[-1] // 2):
        a, b, c, s = x[..., 2 * k], x[..., 2 * k + 1], theta[..., k].cos(), theta[..., k].sin()
        columns += [a * c - b * s, a * s + b * c]
    return torch.stack(columns, -1)


def by_llama(x, positions, base=10000.0):
    """Half-split, as published: x * cos + rotate_half(x) * sin with tables laid side by side."""
    emb = torch.cat([angles(positions, x.shape[-1], base).to(x.dtype)] * 2, -1)
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * emb.cos() + turned * emb.sin()


REFERENCE = {True: by_elements, False: by_llama}


@settings(max_examples=50)
@given(
    lead=LEADS,
    length=st.integers(1, 6),
    pairs=st.integers(1, 6),
    interleaved=st.booleans(),
    base=st.sampled_from([100.0, 10000.0, 5e5]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients(lead, length, pairs, interleaved, base, seed):
    x = draw(seed, *lead, length, 2 * pairs)
    tables = ours.build_rope_cache(2 * pairs, length, base, dtype=F64)
    assert_parity(
        lambda x: ours.apply_rotary_emb(x, *tables, interleaved=interleaved),
        lambda x: REFERENCE[interleaved](x, range(length), base),
        x, atol=1e-12, rtol=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tol"), [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)]
)
def test_other_dtypes(interleaved, dtype, tol):
    x = draw(0, 2, 3, 300, 8, dtype=dtype)
    y = ours.apply_rotary_emb(x, *ours.build_rope_cache(8, 300), interleaved=interleaved)
    exact = REFERENCE[interleaved](x.double(), range(300))
    assert y.dtype == dtype
    # Rounded once: within half a unit of the last place, and float32's angle error.
    limit = exact.abs() * torch.finfo(dtype).eps * 0.51 + 1e-4
    assert ((y.double() - exact).abs() <= limit).all()
    leaf = x.clone().requires_grad_()
    grad = draw(1, *x.shape, dtype=dtype)
    tables = ours.build_rope_cache(8, 300)
    (got,) = torch.autograd.grad(
        ours.apply_rotary_emb(leaf, *tables, interleaved=interleaved), leaf, grad
    )
    back = REFERENCE[interleaved](grad.double(), [-p for p in range(300)])
    assert got.dtype == dtype
    assert (got.double() - back).abs().max() < 5 * tol


VIEWS = {
    "contiguous": lambda x: x,
    "transposed heads": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "features not last in memory": lambda x: x.mT.contiguous().mT,
    "every second feature": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "flipped": lambda x: x.flip(-1).flip(-1),
    "an odd offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "odd strides": lambda x: torch.cat([x, x[..., :1]], -1)[..., :-1],
    "an odd slice of a wider row": lambda x: torch.cat([x[..., :3], x, x[..., :1]], -1)[..., 3:-1],
    "expanded": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("view", VIEWS)
def test_inputs_and_gradients_of_any_stride(view, interleaved):
    x = VIEWS[view](draw(0, 2, 3, 5, 8))
    grad = VIEWS[view](draw(1, 2, 3, 5, 8))
    tables = ours.build_rope_cache(8, 5, dtype=F64)
    leaf = x.detach().requires_grad_()
    y = ours.apply_rotary_emb(leaf, *tables, interleaved=interleaved)
    (got,) = torch.autograd.grad(y, leaf, grad)
    other = x.detach().clone().requires_grad_()
    expected = REFERENCE[interleaved](other, range(5))
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-13)
    (want,) = torch.autograd.grad(expected, other, grad.clone())
    torch.testing.assert_close(got, want, rtol=0, atol=1e-13)


# torch itself warns when forward-mode differentiation is first used.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("interleaved", [True, False])
def test_derivatives_of_every_kind(interleaved):
    tables = ours.build_rope_cache(4, 3, dtype=F64)
    turn = lambda x: ours.apply_rotary_emb(x, *tables, interleaved=interleaved)  # noqa: E731
    x = draw(0, 2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(turn, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(turn, x)
    # Learned angles get their gradients too.
    leaves = [t.clone().requires_grad_() for t in tables]
    assert torch.autograd.gradcheck(
        lambda x, c, s: ours.apply_rotary_emb(x, c, s, interleaved=interleaved), (x, *leaves)
    )
    jacobian = torch.func.jacrev(turn)(x.detach())
    assert torch.allclose(jacobian, torch.func.jacfwd(turn)(x.detach()))
    # Forward over reverse, with a gradient that is not linear.
    matrices = torch.func.hessian(lambda x: turn(x).pow(3).sum())(x.detach())
    other = torch.func.jacrev(torch.func.jacrev(lambda x: turn(x).pow(3).sum()))(x.detach())
    assert torch.allclose(matrices, other, rtol=0, atol=1e-12)


def test_the_compiler_gets_the_same_numbers():
    tables = ours.build_rope_cache(6, 4, dtype=F64)
    for interleaved in (True, False):
        turn = lambda x: ours.apply_rotary_emb(x, *tables, interleaved=interleaved)  # noqa: B023, E731
        compiled = torch.compile(turn, backend="eager", fullgraph=True)
        assert_parity(compiled, turn, draw(0, 2, 4, 6), atol=1e-13)


@pytest.mark.parametrize("interleaved", [True, False])
def test_the_four_forms_agree(interleaved):
    d, length = 10, 7
    x = draw(0, 3, length, d)
    order = ours.interleaved_to_half_permutation(d)
    tables = ours.build_rope_cache(d, length, dtype=F64)
    if interleaved:
        y = ours.apply_rotary_emb(x, *tables)
    else:
        y = ours.apply_rotary_emb(x[..., order], *tables, interleaved=False)[..., order.argsort()]
    matrices = torch.stack([ours.rotation_matrix(p, d).T for p in range(length)])
    torch.testing.assert_close(y, torch.einsum("btd,tde->bte", x, matrices), rtol=0, atol=1e-13)
    theta = angles(range(length), d)
    z = torch.complex(x[..., ::2], x[..., 1::2]) * torch.polar(torch.ones_like(theta), theta)
    torch.testing.assert_close(y, torch.view_as_real(z).flatten(-2), rtol=0, atol=1e-13)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1), rtol=0, atol=1e-13)


def test_the_rotation_matrix():
    r = lambda m: ours.rotation_matrix(m, 6, 50.0)  # noqa: E731
    torch.testing.assert_close(r(5).T @ r(2), r(-3), rtol=0, atol=1e-14)
    torch.testing.assert_close(r(1.5) @ r(2), r(3.5), rtol=0, atol=1e-14)
    assert torch.equal(r(0), torch.eye(6, dtype=F64))
    column = torch.tensor([1.0, 0, 0, 0, 0, 0], dtype=F64)
    assert (r(1) @ column)[1] > 0.8  # a column turns towards its second feature
    assert ours.rotation_matrix(1, 4, dtype=torch.float32).dtype == torch.float32


def test_scores_depend_on_the_difference_and_on_its_sign():
    q, k = draw(0, 2, 8)
    tables = ours.build_rope_cache(8, 64, dtype=F64)
    at = lambda v, p: ours.apply_rotary_emb(v[None], *tables, torch.tensor([p]))[0]  # noqa: E731
    score = lambda m, n: at(q, m) @ at(k, n)  # noqa: E731
    assert abs(score(5, 2) - score(63, 60)) < 1e-13
    assert abs(score(5, 2) - score(2, 5)) > 0.1
    assert abs(score(5, 2) - q @ ours.rotation_matrix(-3, 8) @ k) < 1e-13


def test_position_ids():
    x = draw(0, 2, 3, 4, 8)
    tables = ours.build_rope_cache(8, 50, dtype=F64)
    ids = torch.tensor([[4, 1, 1, 49], [0, 2, 30, 3]])
    y = ours.apply_rotary_emb(x, *tables, ids)
    for row in range(2):
        expected = by_elements(x[row], ids[row].double())
        torch.testing.assert_close(y[row], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.apply_rotary_emb(x, *tables, ids[:1])[0], y[0])
    one = ours.apply_rotary_emb(x, *tables, ids[0].int())
    torch.testing.assert_close(one[0], y[0], rtol=0, atol=0)
    # Without position_ids: the first rows, of longer tables or of batched ones.
    first = ours.apply_rotary_emb(x, *tables)
    torch.testing.assert_close(first, by_elements(x, range(4)), rtol=0, atol=1e-12)
    rows = ours.RotaryEmbedding(8, 50, dtype=F64)(ids)
    assert rows[0].shape == (2, 1, 4, 4)
    torch.testing.assert_close(ours.apply_rotary_emb(x, *rows), y, rtol=0, atol=0)
    rows = ours.RotaryEmbedding(8, 50, dtype=F64)(ids[1])
    assert rows[0].shape == (4, 4)
    torch.testing.assert_close(ours.apply_rotary_emb(x, *rows)[1], y[1], rtol=0, atol=0)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 3, 4), (0, 2, 3, 4)])
def test_empty(shape, interleaved):
    x = torch.zeros(shape, requires_grad=True)
    y = ours.apply_rotary_emb(x, *ours.build_rope_cache(4, 5), interleaved=interleaved)
    y.sum().backward()
    assert y.shape == shape
    assert x.grad.shape == shape


@pytest.mark.parametrize(("d", "base"), [(64, 1e4), (128, 5e5), (6, 1e4), (80, 1e6)])
def test_float32_is_bit_for_bit_as_published(d, base):
    published = 1.0 / (base ** (torch.arange(0, d, 2, dtype=torch.int64).float() / d))
    assert torch.equal(ours.rope_frequencies(d, base), published)
    freqs = torch.outer(torch.arange(3000).float(), published)
    cos, sin = ours.build_rope_cache(d, 3000, base)
    assert torch.equal(cos, freqs.cos())
    assert torch.equal(sin, freqs.sin())
    assert cos.dtype == torch.float32
    module = ours.RotaryEmbedding(d, 3000, base)
    assert torch.equal(module.cos, cos)
    assert torch.equal(ours.RotaryEmbedding(d, 3000, inv_freq=published).sin, sin)
    exact = angles(range(3000), d, base)
    assert torch.allclose(ours.build_rope_cache(d, 3000, base, dtype=F64)[1], exact.sin())


def test_inv_freq_and_attention_factor():
    inv_freq = torch.tensor([1.0, 0.5], dtype=F64)
    cos, _ = ours.build_rope_cache(4, 10, inv_freq=inv_freq)
    torch.testing.assert_close(cos[:, 1], (torch.arange(10) * 0.5).double().cos())
    module = ours.RotaryEmbedding(4, 10, inv_freq=inv_freq, attention_factor=1.25)
    torch.testing.assert_close(module.cos, 1.25 * cos, rtol=0, atol=0)
    assert module.sin[0].abs().max() == 0
    torch.testing.assert_close(module.sin, 1.25 * (torch.arange(10)[:, None] * inv_freq).sin())
    assert module.cos.dtype == F64


def test_layout_conversion():
    heads, d, width = 3, 8, 5
    x = draw(0, 4, width)
    weight, bias = draw(1, heads * d, width), draw(2, heads * d)
    tables = ours.build_rope_cache(d, 4, dtype=F64)

    def rotated(weight, bias, interleaved):
        y = nn.functional.linear(x, weight, bias).view(4, heads, d).transpose(0, 1)
        return ours.apply_rotary_emb(y, *tables, interleaved=interleaved)

    half = [ours.convert_rope_layout(t, heads, "half") for t in (weight, bias)]
    order = ours.interleaved_to_half_permutation(d)
    assert order.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    expected = rotated(weight, bias, True)[..., order]
    torch.testing.assert_close(rotated(*half, False), expected, rtol=0, atol=1e-13)
    for one, original in zip(half, (weight, bias), strict=True):
        back = ours.convert_rope_layout(one, heads, "interleaved")
        assert torch.equal(back, original)
        assert not torch.equal(one, original)
    gain = draw(3, d)
    assert torch.equal(ours.convert_rope_layout(gain, 1, "half"), gain[order])


@pytest.mark.parametrize(("rotary_dim", "offset"), [(4, 0), (None, 4), (4, 2), (8, 0)])
def test_layout_conversion_of_a_part_of_each_head(rotary_dim, offset):
    heads, d = 3, 8
    weight, end = draw(1, heads * d, 5), offset + (rotary_dim or d - offset)
    half = ours.convert_rope_layout(weight, heads, "half", rotary_dim, offset)
    before, after = weight.view(heads, d, 5), half.view(heads, d, 5)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one[:offset], other[:offset])
        assert torch.equal(one[end:], other[end:])
        assert torch.equal(ours.convert_rope_layout(one[offset:end], 1, "half"), other[offset:end])
    back = ours.convert_rope_layout(half, heads, "interleaved", rotary_dim, offset)
    assert torch.equal(back, weight)


def test_the_module_follows_its_model():
    rope = ours.RotaryEmbedding(8, 16, attention_factor=1.1)
    cos, sin = rope.cos.clone(), rope.sin.clone()
    model = nn.Sequential(nn.Linear(2, 2), rope)
    for cast in ("double", "bfloat16", "half", "float"):
        getattr(model, cast)()
        assert rope.cos.dtype == torch.float32
        assert torch.equal(rope.cos, cos)
        assert torch.equal(rope.sin, sin)
    model.to(torch.float64).type(torch.bfloat16)
    assert torch.equal(rope.cos, cos)
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    assert {name for name, _ in rope.named_buffers()} == {"cos", "sin"}
    assert not list(rope.parameters())
    copied = copy.deepcopy(model).to("meta")
    assert copied[1].cos.is_meta
    assert torch.equal(rope.cos, cos)
    copied.to_empty(device="cpu")
    assert torch.equal(copied[1].cos, cos)
    assert torch.equal(copied[1].sin, sin)
    assert "head_dim=8" in repr(rope)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_made_on_meta(dtype):
    right = ours.RotaryEmbedding(8, 16, 50.0, attention_factor=0.9, dtype=dtype)
    make = lambda **kw: ours.RotaryEmbedding(  # noqa: E731
        8, 16, 50.0, attention_factor=0.9, dtype=dtype, **kw
    )
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), make())
    for one in (model, nn.Sequential(make(device="meta"))):
        rope = one[-1]
        assert rope.cos.is_meta
        one.to(torch.bfloat16)
        one.to_empty(device="cpu")
        assert torch.equal(rope.cos, right.cos)
        assert torch.equal(rope.sin, right.sin)
    # load_state_dict(assign=True) gives memory without a move.
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), make())
    model.load_state_dict(nn.Sequential(nn.Linear(2, 2)).state_dict(), assign=True)
    assert torch.equal(model[1](torch.arange(3))[0], right.cos[:3])
    inv_freq = ours.rope_frequencies(8, 50.0, dtype=dtype)
    with torch.device("meta"):
        rope = ours.RotaryEmbedding(8, 16, inv_freq=inv_freq, attention_factor=0.9)
    assert rope.cos.is_meta
    assert torch.equal(rope.to_empty(device="cpu").cos, right.cos)
    with torch.device("meta"):
        rope = ours.RotaryEmbedding(8, 16, inv_freq=ours.rope_frequencies(8))
    with pytest.raises(ValueError, match="inv_freq must have values"):
        rope.to_empty(device="cpu")


def test_tables_on_a_device():
    cos, sin = ours.build_rope_cache(8, 4, device="meta")
    assert cos.is_meta
    assert sin.is_meta
    assert ours.rope_frequencies(8, device="meta").is_meta
    given_elsewhere = ours.build_rope_cache(8, 4, device="meta", inv_freq=torch.ones(4))
    assert given_elsewhere[0].is_meta


CACHE = ours.build_rope_cache(4, 6)
X = torch.zeros(2, 3, 5, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.rope_frequencies(7), "head_dim must be even and at least 2, got 7"),
        (lambda: ours.rope_frequencies(0), "head_dim must be even"),
        (lambda: ours.rope_frequencies(4, base=0.0), "base must be positive, got 0"),
        (lambda: ours.rope_frequencies(4, dtype=torch.bfloat16), "dtype must be torch.float32 or"),
        (lambda: ours.build_rope_cache(5, 3), "head_dim must be even"),
        (lambda: ours.build_rope_cache(4, -1), "max_seq_len must not be negative, got -1"),
        (
            lambda: ours.build_rope_cache(4, 3, inv_freq=torch.ones(4)),
            r"inv_freq must have shape \(2,\), got \(4,\)",
        ),
        (
            lambda: ours.build_rope_cache(4, 3, inv_freq=torch.ones(2).bfloat16()),
            "inv_freq's dtype must be",
        ),
        (lambda: ours.rotation_matrix(1, 3), "head_dim must be even"),
        (lambda: ours.rotate_half(torch.zeros(2, 3)), r"even dimension, got shape \(2, 3\)"),
        (lambda: ours.rotate_half(torch.tensor(1.0)), "even dimension"),
        (lambda: ours.interleaved_to_half_permutation(5), "head_dim must be even"),
        (
            lambda: ours.convert_rope_layout(torch.zeros(8, 2), 2, "halves"),
            "to must be 'interleaved' or 'half', got 'halves'",
        ),
        (
            lambda: ours.convert_rope_layout(torch.zeros(8, 2), 3, "half"),
            r"weight must have shape \(3 \* head_dim, ...\), got \(8, 2\)",
        ),
        (lambda: ours.convert_rope_layout(torch.zeros(6, 2), 2, "half"), "head_dim must be even"),
        (
            lambda: ours.convert_rope_layout(torch.zeros(8, 2), 1, "half", 6, 4),
            "offset and rotary_dim must fit into head_dim=8, got 4 and 6",
        ),
        (lambda: ours.RotaryEmbedding(4, 0), "max_seq_len must be at least 1, got 0"),
        (lambda: ours.RotaryEmbedding(4, dtype=torch.float16), "dtype must be"),
        (
            lambda: ours.apply_rotary_emb(torch.zeros(5, 3), *CACHE),
            r"x must have shape \(..., T, head_dim even\), got \(5, 3\)",
        ),
        (lambda: ours.apply_rotary_emb(torch.zeros(4), *CACHE), "x must have shape"),
        (lambda: ours.apply_rotary_emb(X.long(), *CACHE), "floating-point dtype, got torch.int64"),
        (
            lambda: ours.apply_rotary_emb(X, CACHE[0], CACHE[1][:5]),
            r"one shape, got \(6, 2\) and \(5, 2\)",
        ),
        (
            lambda: ours.apply_rotary_emb(torch.zeros(5, 8), *CACHE),
            r"\(positions, 4\) for x of shape \(5, 8\), got \(6, 2\)",
        ),
        (
            lambda: ours.apply_rotary_emb(torch.zeros(7, 4), *CACHE),
            r"at least T=7 positions, got \(6, 2\)",
        ),
        (
            lambda: ours.apply_rotary_emb(X, *CACHE, torch.arange(2, 7)),
            r"lie in 0 ... 5 \(max_seq_len is 6\), got 2 ... 6",
        ),
        (
            lambda: ours.apply_rotary_emb(X, *CACHE, torch.arange(-1, 4)),
            r"lie in 0 ... 5 \(max_seq_len is 6\), got -1 ... 3",
        ),
        (
            lambda: ours.apply_rotary_emb(X, *CACHE, torch.arange(4)),
            r"must have shape \(5,\), or \(B, T\)",
        ),
        (
            lambda: ours.apply_rotary_emb(X[0], *CACHE, torch.zeros(3, 5).long()),
            r"x has shape \(3, 5, 4\), got \(3, 5\)",
        ),
        (
            lambda: ours.apply_rotary_emb(X, *CACHE, torch.zeros(3, 5).long()),
            r"x has shape \(2, 3, 5, 4\), got \(3, 5\)",
        ),
        (
            lambda: ours.apply_rotary_emb(X, *CACHE, torch.zeros(5)),
            "position_ids must be integers, got torch.float32",
        ),
        (
            lambda: ours.apply_rotary_emb(X, CACHE[0][None], CACHE[1][None], torch.arange(5)),
            r"\(positions, head_dim / 2\), got \(1, 6, 2\)",
        ),
        (lambda: ours.RotaryEmbedding(4, 6)(torch.tensor([6])), r"max_seq_len is 6\), got 6"),
        (lambda: ours.RotaryEmbedding(4, 6)(torch.tensor(3)), r"\(T,\) or \(B, T\), got \(\)"),
    ],
)
def test_errors_name_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rotate_half():
    y = ours.rotate_half(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert y.tolist() == [-3.0, -4.0, 1.0, 2.0]


def test_no_positions_at_all_are_empty_tables_and_no_module():
    assert [t.shape for t in ours.build_rope_cache(8, 0)] == [(0, 4), (0, 4)]
    with pytest.raises(ValueError, match="max_seq_len must be at least 1, got 0"):
        ours.RotaryEmbedding(8, 0)
    with pytest.raises(ValueError, match="max_seq_len must not be negative, got -1"):
        ours.build_rope_cache(8, -1)
