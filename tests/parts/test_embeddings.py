"""Embeddings against torch's, the sinusoidal table against the closed form; and error messages."""

import cmath
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_parts import embeddings as ours
from transformer_parts.tensors import assert_parity

F64 = torch.float64
WIDTHS = st.integers(1, 8).map(lambda half: 2 * half)
BASES = st.sampled_from([0.5, 1.0, 2.5, 100.0, 10000.0, 500000.0])


@pytest.fixture
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(before)


def in_float64(f, *args):
    before = torch.get_default_dtype()
    torch.set_default_dtype(F64)
    try:
        return f(*args)
    finally:
        torch.set_default_dtype(before)


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def closed_form(max_len, d, base):
    rows = torch.empty(max_len, d, dtype=F64)
    for n in range(max_len):
        for k in range(d // 2):
            z = cmath.exp(1j * n * base ** (-2 * k / d))
            rows[n, 2 * k], rows[n, 2 * k + 1] = z.imag, z.real
    return rows


# ---------------------------------------------------------------- positions


@settings(max_examples=40)
@given(max_len=st.integers(0, 40), d=WIDTHS, base=BASES)
def test_the_table_equals_the_closed_form(max_len, d, base):
    table = in_float64(ours.sinusoidal_positional_encoding, max_len, d, base)
    torch.testing.assert_close(table, closed_form(max_len, d, base), rtol=0, atol=1e-11)


def test_the_table_by_hand_for_width_4(double):
    rows = ours.sinusoidal_positional_encoding(3, 4)
    by_hand = [[0, 1, 0, 1], [0.8415, 0.5403, 0.0100, 1.0000], [0.9093, -0.4161, 0.0200, 0.9998]]
    torch.testing.assert_close(rows, torch.tensor(by_hand), rtol=0, atol=5.1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_far_positions_are_rounded_once_in_every_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        table = ours.sinusoidal_positional_encoding(3000, 6)
    finally:
        torch.set_default_dtype(before)
    assert table.dtype == dtype
    exact = in_float64(ours.sinusoidal_positional_encoding, 3000, 6)
    torch.testing.assert_close(table, exact.to(dtype), rtol=0, atol=0)
    assert (table[256] != table[257]).any()


@settings(max_examples=40)
@given(k=st.integers(-30, 30), d=WIDTHS, base=BASES)
def test_the_shift_matrix_moves_every_row_and_is_orthogonal(k, d, base):
    table = closed_form(40, d, base)
    m = in_float64(ours.shift_matrix, k, d, base)
    first, second = table[max(0, -k) : 40 - max(0, k)], table[max(0, k) : 40 - max(0, -k)]
    # Frequencies above 1 make angles of thousands, whose rounding shows.
    error = 1e-13 * max(1.0, 70 * base ** -(2 / d * (d // 2 - 1)))
    torch.testing.assert_close(first @ m, second, rtol=0, atol=error)
    torch.testing.assert_close(m @ m.T, torch.eye(d, dtype=F64), rtol=0, atol=1e-14)


def test_shifts_add_up_and_zero_moves_nothing(double):
    m = [ours.shift_matrix(k, 10) for k in (0, 2, 3.5, 5.5, -2)]
    torch.testing.assert_close(m[0], torch.eye(10))
    torch.testing.assert_close(m[1] @ m[2], m[3], rtol=0, atol=1e-14)
    torch.testing.assert_close(m[4], m[1].T)


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (2, 3, 1, 6), (0, 4, 6), (2, 0, 6)])
def test_the_module_adds_the_table_and_passes_gradients_on(double, shape):
    module, table = ours.SinusoidalPositionalEncoding(6, max_len=5), closed_form(5, 6, 10000.0)
    assert_parity(module, lambda x: x + table[: shape[-2]], draw(0, *shape))


def test_the_module_keeps_the_dtype_and_stores_nothing():
    module = ours.SinusoidalPositionalEncoding(4)
    assert module.pe.shape == (5000, 4)
    assert module(torch.zeros(3, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert not module.state_dict()
    assert not [*module.parameters()]
    assert module.to(torch.float64).pe.dtype == torch.float64


def test_dropout_acts_on_the_sum_in_training_only():
    module = ours.SinusoidalPositionalEncoding(4, dropout=0.5)
    x = torch.full((50, 4), 3.0)
    torch.manual_seed(0)
    dropped = module(x)
    assert 40 < (dropped == 0).sum() < 160
    kept = dropped != 0
    module.eval()
    torch.testing.assert_close(dropped[kept], 2 * module(x)[kept])


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 5), (3, 0), (2, 1, 3)])
@pytest.mark.parametrize("scale", [True, False])
def test_rows_and_scores_equal_torchs_with_gradients(dtype, shape, scale):
    ids = torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(0))

    def mine(weight, h):
        module = ours.TokenEmbedding(9, 5, scale=scale)
        del module.weight
        module.weight = weight
        return module(ids), module.logits(h)

    def official(weight, h):
        return F.embedding(ids, weight) * (math.sqrt(5) if scale else 1.0), F.linear(h, weight)

    assert_parity(mine, official, draw(0, 9, 5, dtype=dtype), draw(1, *shape, 5, dtype=dtype))


def test_it_starts_with_rows_of_length_one():
    torch.manual_seed(0)
    for scale in (True, False):
        module = ours.TokenEmbedding(4000, 64, scale=scale)
        assert isinstance(module.weight, nn.Parameter)
        assert module.weight.norm(dim=1).mean().item() == pytest.approx(1, abs=0.01)
        assert [*module.state_dict()] == ["weight"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_every_integer_dtype_is_an_index(dtype):
    module = ours.TokenEmbedding(9, 4, scale=False)
    rows = module(torch.tensor([8, 0, 8], dtype=dtype))
    torch.testing.assert_close(rows, module.weight[[8, 0, 8]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.TokenEmbedding(0, 4), "vocab_size must be at least 1, got 0"),
        (lambda: ours.TokenEmbedding(4, 0), "d_model must be at least 1, got 0"),
        (lambda: ours.TokenEmbedding(4, 2)(torch.tensor([1.0])), "integer dtype, got torch.float"),
        (lambda: ours.TokenEmbedding(4, 2)(torch.tensor([True])), "dtype, got torch.bool"),
        (lambda: ours.TokenEmbedding(4, 2)(torch.tensor([0, -1])), r"0 \.\.\. 3, got .*-1 to 0"),
        (lambda: ours.TokenEmbedding(4, 2)(torch.tensor([4])), "got values from 4 to 4"),
        (lambda: ours.TokenEmbedding(4, 2).logits(torch.ones(3)), r"\(\*, 2\), got \(3,\)"),
        (lambda: ours.sinusoidal_positional_encoding(-1, 4), "max_len must be .* got -1"),
        (lambda: ours.sinusoidal_positional_encoding(4, 5), "d_model must be even .* got 5"),
        (lambda: ours.shift_matrix(1, 0), "d_model must be even and at least 2, got 0"),
        (lambda: ours.shift_matrix(1, 4, 0.0), "base must be positive, got 0.0"),
        (
            lambda: ours.SinusoidalPositionalEncoding(4, 8)(torch.ones(9, 4)),
            "at most max_len=8 positions, got 9",
        ),
        (
            lambda: ours.SinusoidalPositionalEncoding(4)(torch.ones(3, 6)),
            r"shape \(\*, T, 4\), got \(3, 6\)",
        ),
        (lambda: ours.SinusoidalPositionalEncoding(4)(torch.ones(4)), r"got \(4,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
