"""The activations against torch's, over shapes, dtypes and scales; and their error messages."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_parts import activations as ours
from transformer_parts.tensors import assert_parity, gradcheck64

F64 = torch.float64
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
HARD = [0.0, 1e-8, 1e-3, 0.5, 1.0, 2.7, 10.0, 20.0, 25.0, 89.0, 100.0, 1e4]
POINTS = torch.tensor([-t for t in HARD] + HARD, dtype=F64)
PAIRS = {
    "tanh": (ours.tanh, ours.tanh_grad, torch.tanh),
    "sigmoid": (ours.sigmoid, ours.sigmoid_grad, torch.sigmoid),
    "relu": (ours.relu, ours.relu_grad, F.relu),
    "leaky_relu": (ours.leaky_relu, ours.leaky_relu_grad, F.leaky_relu),
    "leaky_relu 2": (
        lambda x: ours.leaky_relu(x, 2.0),
        lambda x: ours.leaky_relu_grad(x, 2.0),
        lambda x: F.leaky_relu(x, 2.0),
    ),
    "gelu": (ours.gelu, ours.gelu_grad, F.gelu),
    "gelu tanh": (
        lambda x: ours.gelu(x, "tanh"),
        lambda x: ours.gelu_grad(x, "tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "silu": (ours.silu, ours.silu_grad, F.silu),
    # Above its threshold of 20, torch's softplus is x itself.
    "softplus": (ours.softplus, ours.softplus_grad, lambda x: F.softplus(x, threshold=50)),
}
SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3)


def slope_of(f, x):
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad(f(leaf).sum(), leaf)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients_equal_torchs_at_the_hard_places(name, dtype):
    value, grad, official = PAIRS[name]
    x = POINTS.to(dtype)
    assert_parity(value, official, x)
    assert_parity(grad, lambda t: slope_of(official, t), x, check_grad=False)
    assert value(x).dtype == grad(x).dtype == dtype


@settings(max_examples=40)
@given(shape=SHAPES, scale=st.sampled_from([1e-6, 1.0, 30.0]), seed=st.integers(0, 99))
def test_any_shape_and_scale(shape, scale, seed):
    x = scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    for value, grad, official in PAIRS.values():
        assert_parity(value, official, x)
        assert_parity(grad, lambda t, f=official: slope_of(f, t), x, check_grad=False)


def test_a_view_with_odd_strides_gives_the_same():
    x = torch.randn(6, 8, 10, dtype=F64).transpose(0, 2)[::2, 1::3]
    for value, _, official in PAIRS.values():
        assert_parity(value, official, x)


@pytest.mark.parametrize("name", PAIRS)
def test_gradcheck(name):
    gradcheck64(PAIRS[name][0], torch.randn(7, dtype=F64))


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "silu"])
def test_small_results_keep_their_digits_in_float32(name):
    value, _, official = PAIRS[name]
    x = torch.tensor([1e-8, -1e-8, 1e-4, -1e-4, -5.0, -20.0, -80.0], dtype=torch.float32)
    torch.testing.assert_close(value(x), official(x.double()).float(), rtol=2e-6, atol=0)


def test_gelu_keeps_its_digits_in_the_left_tail():
    x = torch.tensor([-4.0, -6.0, -8.0], dtype=torch.float32)
    exact = (x.double() / 2 * torch.erfc(-x.double() / math.sqrt(2))).float()
    torch.testing.assert_close(ours.gelu(x), exact, rtol=2e-5, atol=0)
    cancelled = x / 2 * (1 + torch.erf(x / math.sqrt(2)))
    assert ((cancelled - exact) / exact).abs().max() > 0.5


def test_nan_stays_nan_and_infinity_is_a_limit():
    for value, _, _ in PAIRS.values():
        assert value(torch.tensor(torch.nan)).isnan()
    ends = torch.tensor([-torch.inf, torch.inf])
    assert ours.tanh(ends).tolist() == [-1, 1]
    assert ours.sigmoid(ends).tolist() == [0, 1]
    assert ours.relu(ends).tolist() == [0, torch.inf]
    assert ours.softplus(ends).tolist() == [0, torch.inf]


@given(st.floats(-50, 50))
def test_the_bounds_on_the_slopes(x):
    t = torch.tensor(x, dtype=F64)
    assert 0 <= ours.sigmoid_grad(t) <= 0.25
    assert 0 <= ours.tanh_grad(t) <= 1
    assert -0.1290 < ours.gelu_grad(t) < 1.1291
    assert -0.0999 < ours.silu_grad(t) < 1.0999


@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0, 100.0])
def test_swish_between_a_line_and_relu(beta):
    x = torch.arange(-60, 61, dtype=F64) / 10
    torch.testing.assert_close(ours.swish(x, beta), x * torch.sigmoid(beta * x))
    torch.testing.assert_close(ours.swish_grad(x, beta), slope_of(lambda t: ours.swish(t, beta), x))
    below = (ours.relu(x) - ours.swish(x, beta)).max()
    assert below == 3 if beta == 0 else below <= 0.27847 / beta


def test_swish_with_a_learned_beta_per_feature():
    x, beta = torch.randn(4, 3, dtype=F64), torch.rand(3, dtype=F64)
    assert_parity(ours.swish, lambda x, beta: x * torch.sigmoid(beta * x), x, beta)
    gradcheck64(ours.swish, x, beta)
    half = ours.swish(x.bfloat16(), torch.nn.Parameter(torch.tensor(1.0)))
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize("name", [n for n in ours.__all__ if not n.startswith("_")])
def test_integers_are_refused(name):
    with pytest.raises(ValueError, match=r"x must have a floating-point dtype, got torch.int64"):
        getattr(ours, name)(torch.arange(3))


@pytest.mark.parametrize("f", [ours.gelu, ours.gelu_grad])
def test_an_unknown_approximation_is_refused(f):
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', got 'erf'"):
        f(torch.zeros(2), approximate="erf")


NOTEBOOK = Path(__file__).parents[2] / "notebooks/06_activations.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = "\n".join("".join(c["source"]) for c in CELLS if c["cell_type"] == "markdown")
# Code in the prose that can be run as it stands, given an x (and a number, `negative_slope`).
CODE = sorted(
    code
    for code in set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PROSE))
    if re.search(r"\bx\b", code) and "(" in code and "…" not in code
)


def test_expressions_in_the_prose_of_the_chapter_are_found():
    assert "torch.maximum(x, torch.zeros_like(x))" in CODE
    assert len(CODE) >= 5


@pytest.mark.parametrize("code", CODE)
def test_an_expression_in_the_prose_of_the_chapter_runs(code):
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    names = {"torch": torch, "F": torch.nn.functional, "x": x, "negative_slope": 0.1}
    value = eval(code, {**names, "approximate": "tanh"})
    assert value.shape == x.shape
    assert value.isfinite().all()
