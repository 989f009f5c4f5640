"""Feed-forward layers and gates against torch's operators; their sizes against exact arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from book.chapters import NOTEBOOKS, read, tagged
from book.checkers import feed_forward as checkers
from transformer_parts import feed_forward as ours
from transformer_parts.tensors import assert_parity, gradcheck64

F64 = torch.float64
GATES = {
    "identity": lambda x: x, "sigmoid": torch.sigmoid, "relu": F.relu, "gelu": F.gelu,
    "silu": F.silu,
}  # fmt: skip
SEEDS = st.integers(0, 99)


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def count(module):
    return sum(p.numel() for p in module.parameters())


# ---------------------------------------------------------------- glu


@settings(max_examples=60)
@given(
    lead=st.lists(st.integers(1, 4), max_size=3), half=st.integers(1, 4),
    place=st.integers(0, 3), negative=st.booleans(), seed=SEEDS,
)  # fmt: skip
def test_glu_equals_torchs_in_every_dimension(lead, half, place, negative, seed):
    dim = min(place, len(lead))
    shape = (*lead[:dim], 2 * half, *lead[dim:])
    dim = dim - len(shape) if negative else dim
    x = 3 * draw(seed, *shape)
    assert_parity(lambda x: ours.glu(x, dim), lambda x: F.glu(x, dim), x)
    assert_parity(ours.GLU(dim), nn.GLU(dim), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_glu_keeps_the_dtype_and_survives_large_gates(dtype):
    x = torch.tensor([[2.0, -3.0, 5.0, 1e4, -1e4, 0.0]], dtype=dtype)
    expected = torch.tensor([[2.0, 0.0, 2.5]], dtype=dtype)
    torch.testing.assert_close(ours.glu(x), expected)
    torch.testing.assert_close(ours.glu(x), F.glu(x))


def test_glu_says_what_is_wrong_with_its_input():
    with pytest.raises(ValueError, match=r"even size in dimension -1.*\(4, 5\)"):
        ours.glu(torch.zeros(4, 5))
    with pytest.raises(ValueError, match="dim must be one of 2 dimensions, got 2"):
        ours.glu(torch.zeros(4, 6), 2)
    with pytest.raises(ValueError, match="dim must be one of 0 dimensions"):
        ours.glu(torch.tensor(1.0))


# ---------------------------------------------------------------- layers


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 3, 6), (0, 6)])
def test_layers_equal_their_composition_from_operators(name, bias, shape):
    phi, x = GATES[name], draw(1, *shape)
    plain = ours.FeedForward(6, 10, name, bias=bias).double()
    gated = ours.GatedFeedForward(6, 10, name, bias=bias).double()

    def linear(layer, x):
        return F.linear(x, layer.weight, layer.bias)

    assert_parity(plain, lambda x: linear(plain.w_down, phi(linear(plain.w_up, x))), x)
    assert_parity(
        gated,
        lambda x: linear(gated.w_down, phi(linear(gated.w_gate, x)) * linear(gated.w_up, x)),
        x,
    )
    assert all((m.bias is None) != bias for m in (*plain.children(), *gated.children())
               if isinstance(m, nn.Linear))  # fmt: skip


def test_gated_layer_holds_for_finite_differences():
    gated = ours.GatedFeedForward(3, 4).double()
    names = [name for name, _ in gated.named_parameters()]
    assert names == ["w_gate.weight", "w_up.weight", "w_down.weight"]

    def f(x, *weights):
        return torch.func.functional_call(gated, dict(zip(names, weights, strict=True)), (x,))

    gradcheck64(f, draw(0, 2, 3), *(p.detach() for p in gated.parameters()))


@settings(max_examples=20)
@given(tokens=st.integers(1, 9), seed=SEEDS)
def test_positions_do_not_matter_and_do_not_mix(tokens, seed):
    torch.manual_seed(seed)
    x, order = draw(seed, tokens, 4), torch.randperm(tokens)
    for layer in (ours.FeedForward(4, 7), ours.GatedFeedForward(4, 5)):
        layer = layer.double()
        torch.testing.assert_close(layer(x[order]), layer(x)[order])
        jacobian = torch.func.jacrev(layer)(x)  # (token out, feature, token in, feature)
        between = jacobian.abs().sum((1, 3)) * (1 - torch.eye(tokens))
        assert between.max() == 0


def test_feed_forward_equals_two_convolutions_of_one_tap():
    layer, x = ours.FeedForward(4, 7, "gelu").double(), draw(0, 2, 5, 4)
    up, down = layer.w_up, layer.w_down
    hidden = F.gelu(F.conv1d(x.mT, up.weight[:, :, None], up.bias))
    torch.testing.assert_close(layer(x), F.conv1d(hidden, down.weight[:, :, None], down.bias).mT)


def test_dropout_acts_in_training_on_the_hidden_units():
    layer = ours.FeedForward(4, 400, "identity", dropout=0.5).double()
    with torch.no_grad():
        layer.w_up.weight.zero_(), layer.w_up.bias.fill_(1)
        layer.w_down.weight.fill_(1), layer.w_down.bias.zero_()
    torch.manual_seed(0)
    y = layer(draw(0, 50, 4))
    # Each of 400 hidden ones is dropped or doubled: one number per token, even, near 400.
    assert torch.equal(y[:, :1].expand_as(y), y)
    assert (y % 2 == 0).all()
    assert 0 < (y - 400).abs().max() < 120
    assert torch.equal(layer.eval()(draw(0, 50, 4)), torch.full((50, 4), 400.0, dtype=F64))


def test_layers_say_what_is_wrong():
    for layer in (ours.FeedForward(4, 8), ours.GatedFeedForward(4, 8)):
        with pytest.raises(ValueError, match=r"x must have shape \(\*, 4\), got \(2, 5\)"):
            layer(torch.zeros(2, 5))
        with pytest.raises(ValueError, match=r"got \(\)"):
            layer(torch.tensor(1.0))
    for kind in (ours.FeedForward, ours.GatedFeedForward):
        with pytest.raises(ValueError, match=r"activation must be one of identity, .*'swish'"):
            kind(4, 8, "swish")


# ---------------------------------------------------------------- sizes


@given(x=st.integers(-(10**20), 10**20), m=st.integers(1, 10**6))
def test_rounding_up_gives_the_smallest_multiple(x, m):
    y = ours.round_up_to_multiple(x, m)
    assert y % m == 0
    assert 0 <= y - x < m


@given(d=st.integers(1, 10**6), m=st.integers(1, 1024))
def test_hidden_width_is_the_rounded_two_thirds_unless_cutting_bites(d, m):
    width = ours.swiglu_hidden_dim(d, m)
    exact = m * math.ceil(Fraction(8 * d, 3 * m))
    assert exact - width == (m if 8 * d % (3 * m) in (1, 2) else 0)
    if m % 4 == 0:
        assert width == exact


@pytest.mark.parametrize(
    ("d_model", "multiple_of", "factor", "width"),
    [(4096, 256, None, 11008), (5120, 256, None, 13824), (8192, 256, None, 22016),
     (8192, 4096, 1.3, 28672), (4096, 1024, 1.3, 14336), (2048, 256, 1.5, 8192),
     (16384, 4096, 1.2, 53248)],
)  # fmt: skip
def test_published_widths(d_model, multiple_of, factor, width):
    assert ours.swiglu_hidden_dim(d_model, multiple_of, factor) == width


def test_the_gated_layer_takes_its_width_from_the_rule():
    assert ours.GatedFeedForward(24, multiple_of=64).w_down.in_features == 64
    assert ours.GatedFeedForward(24).w_down.in_features == 256
    assert ours.GatedFeedForward(24, 40).w_down.in_features == 40
    assert count(ours.FeedForward(24, 96)) == 4_728
    assert count(ours.GatedFeedForward(24, bias=True, multiple_of=64)) == 4_760


def test_sizes_say_what_is_wrong():
    for bad in (0.5, 64.0, "8"):
        with pytest.raises(TypeError, match="x must be an integer"):
            ours.round_up_to_multiple(bad, 64)
        with pytest.raises(TypeError, match="d_model must be an integer"):
            ours.swiglu_hidden_dim(bad)
    with pytest.raises(ValueError, match="multiple must be at least 1, got 0"):
        ours.round_up_to_multiple(3, 0)
    with pytest.raises(ValueError, match="d_model must be at least 1, got 0"):
        ours.swiglu_hidden_dim(0)
    with pytest.raises(ValueError, match="ffn_dim_multiplier must be positive"):
        ours.swiglu_hidden_dim(8, ffn_dim_multiplier=0.0)


# ---------------------------------------------------------------- fair comparisons


def test_the_chapter_compares_only_layers_of_equal_size():
    notebook = read(NOTEBOOKS / "07_feed_forward.ipynb")
    (cell,) = (c for c in notebook.cells if "def missed(" in c.source)
    assert (
        "return (2 * d + 1) * plain_width // (3 * d + 2) if gated else plain_width" in cell.source
    )
    assert "PLAIN_WIDTHS = [12, 24, 48, 96]" in cell.source
    for plain_width in (12, 24, 48, 96):
        plain = ours.FeedForward(12, plain_width)
        widths = [25 * plain_width // 38 + more for more in (0, 1)]
        gated = [ours.GatedFeedForward(12, width, bias=True) for width in widths]
        fits, too_large = (sum(p.numel() for p in layer.parameters()) for layer in gated)
        assert fits <= sum(p.numel() for p in plain.parameters()) < too_large
    # The text names the units of the layers with a gate.
    assert [25 * plain_width // 38 for plain_width in (12, 24, 48, 96)] == [7, 15, 31, 63]
    # Every cell that times or trains a plain and a gated layer takes 4d and 8d/3.
    (timing,) = tagged(notebook, "timing")
    assert "plain_by_kernel(384, 1536" in timing.source
    assert "GatedByKernel(384, 1024)" in timing.source
    assert 2 * 384 * 1536 == 3 * 384 * 1024
    # The layers of the table that is quoted.
    assert 2 * 768 * 3072 == 3 * 768 * 2048


def test_two_gated_units_multiply_exactly():
    tokens = draw(0, 50, 2)
    layer = checkers._hidden_layer(tokens)
    product = tokens[:, :1] * tokens[:, 1:]
    for answer in (checkers.PRODUCT.oracle, *checkers.PRODUCT.variants):
        assert torch.allclose(answer(layer), product, rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match=r"down must have shape \(2, 1\), got \(1, 2\)"):
        layer(torch.ones(2, 2), torch.ones(2, 2), torch.ones(1, 2))


# ---------------------------------------------------------------- what the chapter says in words


def test_two_thirds_of_4d_is_a_round_number_for_some_widths():
    assert [8 * d // 3 for d in (768, 1536, 3072)] == [2048, 4096, 8192]
    for d in range(1, 5000):
        assert (8 * d % 3 == 0) == (d % 3 == 0)


def test_rounding_to_256_leaves_width_96_alone_and_nearly_doubles_width_97():
    assert ours.swiglu_hidden_dim(96, 256) == 8 * 96 // 3 == 256
    excess = Fraction(3 * ours.swiglu_hidden_dim(97, 256), 8 * 97) - 1
    assert Fraction(97, 100) < excess < Fraction(3 * 256, 8 * 97)
    assert Fraction(3 * ours.swiglu_hidden_dim(4096, 256), 8 * 4096) - 1 < Fraction(1, 100)


def test_attention_is_linear_for_fixed_weights_and_for_one_token_only():
    w_q, w_k, w_v = (draw(seed, 5, 5) for seed in range(3))

    def attention(x):
        return F.scaled_dot_product_attention(*((x @ w)[None] for w in (w_q, w_k, w_v)))[0]

    def defect(f, a, b):
        return (f(a + b) - f(a) - f(b) + f(torch.zeros_like(a))).abs().max()

    a, b, weights = draw(3, 6, 5), draw(4, 6, 5), draw(5, 6, 6).softmax(-1)
    assert defect(lambda x: weights @ x @ w_v, a, b) < 1e-12
    assert defect(attention, a[:1], b[:1]) < 1e-12
    assert defect(attention, a, b) > 1
    assert defect(nn.Sequential(nn.Linear(5, 20, dtype=F64), nn.ReLU()), a, b) > 0.1


@pytest.mark.parametrize(
    ("d", "heads", "groups", "d_ff"), [(8192, 64, 8, 28672), (4096, 32, 8, 14336)]
)
def test_the_factor_of_1_3_adds_more_than_grouped_queries_save(d, heads, groups, d_ff):
    saved = 2 * d * d - 2 * d * d * groups // heads  # keys and values
    equal = 1 + Fraction(saved, 8 * d * d)
    assert equal == 1 + Fraction(heads - groups, 4 * heads) < Fraction(5, 4)
    assert Fraction(3 * d_ff, 8 * d) > Fraction(13, 10) > equal
