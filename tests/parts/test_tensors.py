"""Chapter 01: shapes, products, the first module, and the tools that every other test relies on."""

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from book.facts import fact
from transformer_parts.tensors import (
    TOLERANCE,
    ScaleShift,
    assert_parity,
    broadcast_shape,
    gradcheck64,
    hadamard,
    set_seed,
)

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
DTYPES = st.sampled_from(list(TOLERANCE))


def draw(*shape, seed=0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)


@st.composite
def fitting_shapes(draw_one):
    """Two shapes that broadcast: one shape, twice, with sizes set to 1 and leading ones cut."""
    full = draw_one(st.lists(st.integers(1, 4), max_size=4))
    pair = []
    for _ in range(2):
        kept = [n if draw_one(st.booleans()) else 1 for n in full]
        pair.append(tuple(kept[draw_one(st.integers(0, len(full))) :]))
    return pair


# --- what the chapter says of torch and of GPT-2 --------------------------------------------------


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, nn.functional.l1_loss])
def test_torchs_losses_warn_of_two_shapes_that_differ(loss):
    with pytest.warns(UserWarning, match="target size"):
        found = loss(torch.ones(8, 1), torch.zeros(8))
    assert found == 1


def test_gpt2_holds_its_matrices_as_the_fact_says():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        block = transformers.GPT2Model(transformers.GPT2Config(n_layer=1)).h[0]
    held = {
        "c_attn": block.attn.c_attn,
        "attn_c_proj": block.attn.c_proj,
        "c_fc": block.mlp.c_fc,
        "mlp_c_proj": block.mlp.c_proj,
    }
    for name, layer in held.items():
        told = tuple(fact("gpt2-conv1d", f"{name}_{end}") for end in ("in", "out"))
        assert (tuple(layer.weight.shape), tuple(layer.bias.shape)) == (told, told[1:])


# --- set_seed -------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers():
    drawn = []
    for seed in (3, 4, 3):
        set_seed(seed)
        drawn.append((torch.rand(2).tolist(), random.random()))
    assert drawn[0] == drawn[2]
    assert drawn[0] != drawn[1]


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        set_seed(-1)


# --- broadcast_shape ------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.lists(SHAPES, max_size=4))
def test_broadcast_shape_is_torchs(shapes):
    try:
        official = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(ValueError, match=r"dimension -\d has sizes"):
            broadcast_shape(*shapes)
    else:
        assert broadcast_shape(*shapes) == tuple(official)


@given(fitting_shapes())
def test_shapes_that_were_made_to_fit_do(shapes):
    a, b = shapes
    result = (torch.zeros(a) * torch.zeros(b)).shape
    assert broadcast_shape(a, b) == broadcast_shape(b, a) == tuple(result)


def test_the_error_names_the_dimension():
    with pytest.raises(
        ValueError, match=r"\(2, 3, 4\) and \(5, 4\) .*dimension -2 has sizes 3 and 5"
    ):
        broadcast_shape((2, 3, 4), (5, 4))


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match=r"no negative size, got \(2, -1\)"):
        broadcast_shape((2, -1))


# --- hadamard -------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(fitting_shapes(), DTYPES, st.sampled_from([1e-3, 1.0, 1e2]))
def test_hadamard_is_torch_mul_and_einsum(shapes, dtype, scale):
    a, b = (scale * draw(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes))
    assert_parity(hadamard, torch.mul, a, b, atol=0, rtol=0)
    if a.shape == b.shape:
        assert_parity(hadamard, lambda a, b: torch.einsum("...,...->...", a, b), a, b)


def test_hadamard_written_out():
    a, b = draw(3, 4), draw(3, 4, seed=1)
    entries = [[a[i, j] * b[i, j] for j in range(4)] for i in range(3)]
    assert torch.equal(hadamard(a, b), torch.tensor(entries, dtype=torch.float64))
    assert torch.equal(hadamard(a, b), hadamard(b, a))


def test_hadamard_is_a_product_with_a_diagonal_matrix():
    x, gain, column = draw(5, 3), draw(3, seed=1), draw(5, 1, seed=2)
    torch.testing.assert_close(hadamard(gain, x), x @ torch.diag(gain))
    torch.testing.assert_close(hadamard(column, x), torch.diag(column[:, 0]) @ x)


def test_hadamard_keeps_strides_out_of_the_result():
    a = draw(4, 6)[:, ::2]
    assert torch.equal(hadamard(a.T, a.T), (a * a).T)


def test_hadamard_gradients_by_differences():
    gradcheck64(hadamard, draw(2, 3), draw(3, seed=1))


def test_hadamard_promotes_like_torch():
    assert hadamard(torch.ones(2, dtype=torch.int64), draw(2)).dtype == torch.float64


def test_hadamard_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="dimension -1"):
        hadamard(draw(3, 4), draw(3))
    with pytest.raises(TypeError, match="b must be a tensor, got list"):
        hadamard(draw(3), [1.0, 2.0, 3.0])


# --- ScaleShift -----------------------------------------------------------------------------------


def applied(x, weight, bias):
    layer = ScaleShift(weight.shape)
    return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 3), max_size=2),
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    DTYPES,
)
def test_scale_shift_is_addcmul(leading, shape, dtype):
    x = draw(*leading, *shape, dtype=dtype)
    weight, bias = (draw(*shape, seed=i, dtype=dtype) for i in (1, 2))
    assert_parity(applied, lambda x, w, b: torch.addcmul(b, x, w), x, weight, bias)


def test_scale_shift_is_the_affine_part_of_layer_norm():
    official = nn.LayerNorm(6, dtype=torch.float64)
    with torch.no_grad():
        official.weight.copy_(draw(6, seed=1))
        official.bias.copy_(draw(6, seed=2))
    ours = ScaleShift(6).double()
    ours.load_state_dict(official.state_dict())
    plain = nn.LayerNorm(6, elementwise_affine=False)
    assert_parity(lambda x: ours(plain(x)), official, draw(4, 6))


def test_a_new_scale_shift_changes_nothing_and_is_learned():
    layer = ScaleShift((2, 3))
    x = draw(4, 2, 3)
    assert torch.equal(layer(x), x)
    assert {n: tuple(p.shape) for n, p in layer.named_parameters()} == {
        "weight": (2, 3),
        "bias": (2, 3),
    }


def test_scale_shift_without_bias():
    layer = ScaleShift(3, bias=False)
    assert layer.bias is None
    assert [*layer.state_dict()] == ["weight"]
    assert torch.equal(layer(draw(2, 3)), draw(2, 3))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (3,) * 3])
def test_scale_shift_does_not_broadcast_its_input(shape):
    with pytest.raises(ValueError, match=r"x must end in \(2,\), got shape"):
        ScaleShift(2)(torch.ones(shape))
    with pytest.raises(ValueError, match=r"x must end in \(2, 4\), got shape"):
        ScaleShift((2, 4))(torch.ones(shape))


# --- assert_parity: what it must not let pass -----------------------------------------------------


X = torch.linspace(0, 3, 7, dtype=torch.float64)

PLANTED = {
    "a millionth in every value": (lambda x: x.sin() + 1e-6, "value: at"),
    "a millionth in one value": (lambda x: x.sin() + 1e-6 * (x == X[3]), r"value: at \[3\]"),
    "1e-11 in every value": (lambda x: x.sin() + 1e-11, "value: at"),
    "the gradient doubled": (lambda x: 2 * x.sin() - x.sin().detach(), "gradient of input 0: at"),
    "the gradient off by a millionth": (
        lambda x: x.sin() + 1e-6 * (x - x.detach()),
        "gradient of input 0: at",
    ),
    "a gradient that is nan": (
        lambda x: x.sin() + 0 * x.sqrt(),
        r"gradient .* at \[0\] ours is nan",
    ),
    "a gradient that is infinite": (lambda x: x.sin() + (x - x.detach()).sqrt(), "gradient .*inf"),
    "no gradient": (lambda x: x.detach().sin(), "only official has a gradient"),
    "a value that is nan": (lambda x: x.sin().where(x != X[2], torch.nan), r"at \[2\] ours is nan"),
    "a value that is infinite": (
        lambda x: x.sin().where(x != X[2], torch.inf),
        r"at \[2\] ours is inf",
    ),
    "another dtype": (lambda x: x.sin().float(), "dtype torch.float32, official torch.float64"),
    "another dtype inside": (lambda x: x.float().sin().double(), "value: at"),
    "another shape": (lambda x: x.sin()[None], r"shape \(1, 7\), official \(7,\)"),
    "a number more": (lambda x: torch.cat([x, x[:1]]).sin(), r"shape \(8,\), official \(7,\)"),
    "a tuple": (lambda x: (x.sin(),), r"returns \['value 0'\], official \['value'\]"),
    "nothing": (lambda x: None, "ours is None"),
    "the order reversed": (lambda x: x.flip(0).sin(), "value: at"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_assert_parity_finds_a_planted_error(name):
    wrong, message = PLANTED[name]
    with pytest.raises(AssertionError, match=message):
        assert_parity(wrong, torch.sin, X)
    with pytest.raises(AssertionError):
        assert_parity(torch.sin, wrong, X)


def test_assert_parity_accepts_what_is_equal_up_to_rounding():
    assert_parity(lambda x: x.sin() / x.cos(), torch.tan, X)
    assert_parity(torch.sin, torch.sin, X, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_default_limit_is_that_of_the_dtype(dtype):
    x, limit = torch.ones(3, dtype=dtype), TOLERANCE[dtype]
    # Rounding to the dtype moves a result by half an epsilon, which is far below half the limit ...
    assert torch.finfo(dtype).eps < limit
    assert_parity(lambda x: (x.double() + 0.5 * limit).to(dtype), lambda x: 1 * x, x)
    # ... and at the number 1 the absolute and the relative limit add up to twice the limit.
    with pytest.raises(AssertionError):
        assert_parity(lambda x: (x.double() + 3.5 * limit).to(dtype), lambda x: 1 * x, x)


@settings(max_examples=60)
@given(st.integers(-11, 2), st.integers(0, 6), st.sampled_from([1e-3, 1.0, 1e3]))
def test_any_relative_error_above_the_limit_is_found(power, at, size):
    def wrong(x):
        return size * x.cos() * (1 + 10.0**power * (torch.arange(7) == at).double())

    with pytest.raises(AssertionError, match=rf"at \[{at}\]"):
        assert_parity(wrong, lambda x: size * x.cos(), X, atol=0)


def test_limits_are_absolute_plus_relative():
    def off(x):
        return x + 1e-3

    assert_parity(off, lambda x: 1 * x, X, atol=2e-3)
    with pytest.raises(AssertionError, match=r"off by 1\.0e-03, allowed 5\.0e-04"):
        assert_parity(off, lambda x: 1 * x, X[:1], atol=5e-4)
    assert_parity(off, lambda x: 1 * x, X[1:], atol=0, rtol=1e-2)
    with pytest.raises(AssertionError):
        assert_parity(off, lambda x: 1 * x, X, atol=0, rtol=1e-2)


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(ValueError, match="atol must be at least 0"):
        assert_parity(torch.sin, torch.sin, X, atol=limit)
    with pytest.raises(ValueError, match="rtol must be at least 0"):
        assert_parity(torch.sin, torch.sin, X, rtol=limit)


def test_nan_on_both_sides_needs_leave():
    with pytest.raises(AssertionError, match="ours is nan, official nan"):
        assert_parity(torch.log, torch.log, X - 1)
    assert_parity(torch.log, torch.log, X - 1, equal_nan=True)
    with pytest.raises(AssertionError, match=r"at \[1\]"):
        assert_parity(lambda x: x.where(x != X[1], torch.nan), lambda x: 1 * x, X, equal_nan=True)


def test_equal_infinities_are_equal_and_others_are_not():
    inf = torch.tensor([torch.inf, -torch.inf])
    assert_parity(lambda x: 2 * x, lambda x: 2 * x, inf)
    with pytest.raises(AssertionError):
        assert_parity(lambda x: -x, lambda x: 1 * x, inf)


def test_a_gradient_that_a_plain_sum_would_hide():
    def softmax_with_half_the_gradient(x):
        y = x.softmax(-1)
        return 0.5 * (y + y.detach())

    x = draw(3, 5).requires_grad_()
    for f in (softmax_with_half_the_gradient, lambda x: x.softmax(-1)):
        (gradient,) = torch.autograd.grad(f(x).sum(), x)
        assert gradient.abs().max() < 1e-15
    with pytest.raises(AssertionError, match="gradient of input 0"):
        assert_parity(softmax_with_half_the_gradient, lambda x: x.softmax(-1), x)


def test_only_the_second_input_has_a_wrong_gradient():
    def wrong(a, b):
        return a * (2 * b - b.detach())

    with pytest.raises(AssertionError, match="gradient of input 1: at"):
        assert_parity(wrong, torch.mul, X + 1, X + 2)
    assert_parity(wrong, torch.mul, X + 1, X + 2, check_grad=False)


def test_several_results_and_none():
    def official(x):
        return x.sin(), [x.cos(), None], 3

    assert_parity(lambda x: (x.sin(), (x.cos(), None), 3), official, X)
    with pytest.raises(AssertionError, match="value 1 0: at"):
        assert_parity(lambda x: (x.sin(), [x.cos() + 1, None], 3), official, X)
    with pytest.raises(AssertionError, match="value 2: ours is 4, official 3"):
        assert_parity(lambda x: (x.sin(), [x.cos(), None], 4), official, X)
    with pytest.raises(AssertionError, match="gradient of input 0"):
        assert_parity(lambda x: (x.sin(), [2 * x.cos() - x.cos().detach(), None], 3), official, X)


def test_numbers_are_compared_with_the_limit_and_types_exactly():
    assert_parity(lambda x: 0.1 + 0.2, lambda x: 0.3, X, check_grad=False)
    with pytest.raises(AssertionError, match=r"ours is 0\.31"):
        assert_parity(lambda x: 0.31, lambda x: 0.3, X, check_grad=False)
    with pytest.raises(AssertionError, match="ours is True, official 1"):
        assert_parity(lambda x: True, lambda x: 1, X, check_grad=False)


def test_integers_and_booleans_must_be_equal():
    big = torch.tensor([2**60, 5])
    assert_parity(lambda i: i + 0, lambda i: i, big, check_grad=False)
    with pytest.raises(AssertionError, match=r"at \[0\]"):
        assert_parity(lambda i: i + (i > 5), lambda i: i, big, check_grad=False, atol=10.0)
    with pytest.raises(AssertionError, match=r"at \[1\]"):
        assert_parity(lambda i: i > 4, lambda i: i > 5, big, check_grad=False)


def test_inputs_that_are_not_tensors_and_integers_are_passed_on():
    def embed(table, tokens, scale, name):
        assert name == "tied"
        return scale * table[tokens]

    def official(table, tokens, scale, name):
        return scale * nn.functional.embedding(tokens, table)

    assert_parity(embed, official, draw(5, 3), torch.tensor([1, 1, 4]), 0.5, "tied")


def test_complex_numbers():
    z = torch.polar(torch.ones(4, dtype=torch.float64), X[:4])
    assert_parity(lambda z: z * z, torch.square, z)
    with pytest.raises(AssertionError, match="gradient of input 0"):
        assert_parity(lambda z: 2 * z * z - (z * z).detach(), torch.square, z)
    with pytest.raises(AssertionError, match="value: at"):
        assert_parity(torch.conj, lambda z: 1 * z, z)


def test_there_must_be_a_gradient_to_compare():
    with pytest.raises(ValueError, match="check_grad=True, but no result depends"):
        assert_parity(lambda x: x.detach(), lambda x: x.detach(), X)
    with pytest.raises(ValueError, match="check_grad=True, but no result depends"):
        assert_parity(lambda i: i, lambda i: i, torch.arange(3))


def test_an_input_without_influence_has_gradient_zero_on_both_sides():
    assert_parity(lambda a, b: a.sin(), lambda a, b: a.sin() + 0 * b, X, X)


def test_inputs_are_copied_with_their_strides():
    seen = []

    def remember(x):
        seen.append((x.stride(), x.data_ptr(), x.is_leaf, x.requires_grad))
        return 1 * x

    x = draw(4, 6)[:, ::2]
    expanded = draw(1, 3).expand(4, 3)
    assert_parity(remember, remember, x)
    assert_parity(remember, remember, expanded)
    assert [s[0] for s in seen] == [(6, 2), (6, 2), (0, 1), (0, 1)]
    assert len({s[1] for s in seen[:2]} | {x.data_ptr()}) == 3
    assert all(s[2] and s[3] for s in seen)
    assert not x.requires_grad


def test_a_function_that_changes_its_input_does_not_disturb_the_other():
    x = X.clone()
    assert_parity(lambda x: x.mul_(2), lambda x: 2 * x, x, check_grad=False)
    assert torch.equal(x, X)


def test_each_function_is_called_once():
    calls = []
    assert_parity(lambda x: calls.append(1) or 1 * x, lambda x: calls.append(2) or 1 * x, X)
    assert calls == [1, 2]


def test_a_check_leaves_the_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert_parity(torch.sin, torch.sin, X)
    assert torch.equal(torch.rand(1), expected)


def test_modules_are_functions():
    official = nn.Linear(7, 3, dtype=torch.float64)
    weight, bias = official.weight, official.bias
    assert_parity(lambda x: x @ weight.T + bias, official, draw(2, 7))
    with pytest.raises(AssertionError, match="value: at"):
        assert_parity(lambda x: x @ weight.T, official, draw(2, 7))


# --- gradcheck64 ----------------------------------------------------------------------------------


class HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def test_gradcheck64_finds_a_wrong_backward():
    gradcheck64(torch.square, draw(4, dtype=torch.float32))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck64(HalfGradient.apply, draw(4))


def test_gradcheck64_casts_copies_and_passes_on():
    seen = []

    def f(table, tokens, scale):
        seen.append((table.dtype, tokens.dtype, scale))
        return scale * table[tokens]

    table = draw(3, 2, dtype=torch.float32)
    gradcheck64(f, table, torch.tensor([0, 2]), 2)
    assert set(seen) == {(torch.float64, torch.int64, 2)}
    assert table.dtype == torch.float32
    assert not table.requires_grad


def test_gradcheck64_needs_something_to_differentiate():
    with pytest.raises(ValueError, match="floating-point tensor, got none"):
        gradcheck64(lambda i: i, torch.arange(3))


def test_all_small_shapes_agree_with_torch():
    sizes = [s for n in range(3) for s in itertools.product((0, 1, 2), repeat=n)]
    for a, b in itertools.product(sizes, repeat=2):
        try:
            official = tuple(torch.broadcast_shapes(a, b))
        except RuntimeError:
            official = None
        try:
            ours = broadcast_shape(a, b)
        except ValueError:
            ours = None
        assert ours == official, (a, b)


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)],
)
def test_parity_allows_what_the_dtype_allows_and_not_a_step_more(dtype, limit):
    # At 1 the absolute and the relative limit add up. Numbers above 1 are eps apart.
    eps = torch.finfo(dtype).eps
    steps = int(2 * limit / eps)
    one = torch.ones(3, dtype=dtype)

    def off_by(count):
        return lambda x: x + torch.tensor([0.0, count * eps, 0.0], dtype=x.dtype)

    assert_parity(off_by(steps), lambda x: 1 * x, one)
    with pytest.raises(AssertionError, match=r"at \[1\] ours is"):
        assert_parity(off_by(steps + 1), lambda x: 1 * x, one)
