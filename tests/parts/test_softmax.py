"""Softmax, its logarithm and its loss against torch's operators; online softmax; errors."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from book.facts import load
from transformer_parts import softmax as ours
from transformer_parts.tensors import assert_parity, gradcheck64

F64 = torch.float64
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
PAIRS = [
    (ours.softmax, torch.softmax),
    (ours.log_softmax, torch.log_softmax),
    (ours.logsumexp, torch.logsumexp),
]


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


@settings(max_examples=60)
@given(
    shape=SHAPES,
    data=st.data(),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 100.0]),
    offset=st.sampled_from([0.0, -1e4, 1e4]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_equal_torchs(shape, data, scale, offset, seed):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = offset + scale * draw(seed, *shape)
    for mine, official in PAIRS:
        # torch's slope of logsumexp at 1e4 carries the rounding of 1e4.
        assert_parity(mine, official, x, dim, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_every_dtype_gives_torchs_values_in_the_same_dtype(dtype, scale):
    x = scale * draw(0, 7, 33)
    for mine, official in PAIRS:
        assert_parity(mine, official, x.to(dtype), 1, check_grad=False)
    target = torch.arange(7)
    assert_parity(
        lambda z: ours.cross_entropy(z, target),
        lambda z: F.cross_entropy(z.float() if dtype != F64 else z, target).to(dtype),
        x.to(dtype),
        check_grad=False,
    )


def test_a_view_with_odd_strides_gives_the_same():
    x = draw(0, 6, 8, 10).transpose(0, 2)[::2, 1::3]
    for mine, official in PAIRS:
        for dim in (0, 1, 2):
            assert_parity(mine, official, x, dim)


def test_infinite_scores_give_what_torch_gives():
    inf = math.inf
    for row in ([1.0, -inf, 2.0], [-inf, -inf, 0.0]):
        for mine, official in PAIRS:
            assert_parity(mine, official, torch.tensor([row], dtype=F64), 1)
    for row in ([-inf, -inf], [inf, 1.0], [inf, -inf], [math.nan, 1.0]):
        x = torch.tensor([row], dtype=F64)
        for mine, official in PAIRS:
            assert_parity(mine, official, x, 1, check_grad=False, equal_nan=True)
    assert ours.softmax(torch.full((2, 3), -inf), 1).isnan().all()
    assert ours.logsumexp(torch.full((2, 3), -inf), 1).tolist() == [-inf, -inf]


def test_float16_is_computed_in_float32():
    x = torch.zeros(1, 60_000, dtype=torch.float16)
    assert ours.logsumexp(x + 11, 1).item() == pytest.approx(11 + math.log(60_000), abs=0.01)
    assert ours.softmax(torch.tensor([60_000.0, 0.0], dtype=torch.float16), 0).tolist() == [1, 0]


def test_logsumexp_keeps_the_dimension_on_request():
    x = draw(0, 2, 3, 4)
    for dim in (0, 1, -1):
        assert_parity(
            lambda t, dim=dim: ours.logsumexp(t, dim, keepdim=True),
            lambda t, dim=dim: torch.logsumexp(t, dim, keepdim=True),
            x,
        )


# ---------------------------------------------------------------- backward


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = ours.softmax(x, 1)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, grad_out):
        return ours.softmax_backward(grad_out, *ctx.saved_tensors, 1)


def test_backward_equals_autograd_and_difference_quotients():
    gradcheck64(_Softmax.apply, draw(0, 3, 5))
    x, g = draw(1, 3, 5, 4).requires_grad_(), draw(2, 3, 5, 4)
    for dim in (0, 1, -1):
        p = torch.softmax(x, dim)
        (official,) = torch.autograd.grad(p, x, g)
        torch.testing.assert_close(ours.softmax_backward(g, p, dim), official)
    half = ours.softmax_backward(g.half(), torch.softmax(x, 2).half(), 2)
    assert half.dtype == torch.float16


# ---------------------------------------------------------------- cross-entropy


@settings(max_examples=40)
@given(
    n=st.integers(1, 6),
    classes=st.integers(1, 9),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    scale=st.sampled_from([1.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_cross_entropy_equals_torchs(n, classes, smoothing, reduction, scale, seed):
    z = scale * draw(seed, n, classes)
    target = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))
    target[1::3] = -100  # the first row always counts
    assert_parity(
        lambda z: ours.cross_entropy(z, target, smoothing, reduction=reduction),
        lambda z: F.cross_entropy(z, target, label_smoothing=smoothing, reduction=reduction),
        z,
    )


def test_cross_entropy_at_its_corners():
    one, row = torch.tensor(2), draw(0, 5)
    assert_parity(lambda z: ours.cross_entropy(z, one), lambda z: F.cross_entropy(z, one), row)
    ignored = torch.tensor([7, 7])
    assert ours.cross_entropy(draw(0, 2, 3), ignored, ignore_index=7).isnan()
    assert ours.cross_entropy(draw(0, 2, 3), ignored, ignore_index=7, reduction="sum") == 0
    # A class that is ruled out is no obstacle, as long as nothing is smoothed onto it.
    z = torch.tensor([[0.0, -math.inf, 1.0]], dtype=F64)
    target = torch.tensor([0])
    assert_parity(ours.cross_entropy, F.cross_entropy, z, target)
    assert ours.cross_entropy(z, target, 0.1) == math.inf


# ---------------------------------------------------------------- online softmax


@settings(max_examples=40)
@given(
    keys=st.integers(1, 23),
    block_size=st.integers(1, 25),
    scale=st.sampled_from([1.0, 300.0]),
    hidden=st.integers(0, 30),
    seed=st.integers(0, 99),
)
def test_online_softmax_equals_the_two_step_average(keys, block_size, scale, hidden, seed):
    z, v = scale * draw(seed, 2, 3, keys), draw(seed + 1, 2, keys, 4)
    z[:, 1, : min(hidden, keys - 1)] = -math.inf  # the last key stays visible
    assert_parity(
        lambda z, v: ours.online_softmax(z, v, block_size), lambda z, v: z.softmax(-1) @ v, z, v
    )


def test_online_softmax_broadcasts_and_keeps_the_dtype():
    z, v = draw(0, 9), draw(1, 9, 4)
    assert_parity(lambda z, v: ours.online_softmax(z, v, 4), lambda z, v: z.softmax(-1) @ v, z, v)
    z = draw(2, 2, 3, 5, 9)
    assert_parity(lambda z, v: ours.online_softmax(z, v, 4), lambda z, v: z.softmax(-1) @ v, z, v)
    assert ours.online_softmax(z.half(), v.half(), 2).dtype == torch.float16
    assert ours.online_softmax(torch.full((2, 9), -math.inf, dtype=F64), v, 4).isnan().all()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ours.softmax(x, 2), r"dimension 2 .* got shape \(3, 4\)"),
        (lambda x: ours.log_softmax(x[:, :0], 1), r"got shape \(3, 0\)"),
        (lambda x: ours.logsumexp(x.int(), 1), "floating-point dtype, got torch.int32"),
        (lambda x: ours.softmax_backward(x, x[:2], 1), r"\(2, 4\), got \(3, 4\)"),
        (lambda x: ours.cross_entropy(x[None], x), r"\(N, n_vocab\).* got \(1, 3, 4\)"),
        (lambda x: ours.cross_entropy(x, torch.zeros(4).long()), r"\(3,\), got \(4,\)"),
        (lambda x: ours.cross_entropy(x, torch.tensor([0, 4, 1])), r"0..3 or -100, got \[0, 4"),
        (lambda x: ours.cross_entropy(x, torch.zeros(3).long(), 1.5), "0..1, got 1.5"),
        (lambda x: ours.cross_entropy(x, torch.zeros(3).long(), reduction="x"), "got 'x'"),
        (lambda x: ours.online_softmax(x, x, 2), r"\(\*, 4, d\), got \(3, 4\)"),
        (lambda x: ours.online_softmax(x, x.T, 0), "at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(3, 4))


def test_each_running_quantity_of_online_softmax_is_credited_to_who_had_it_first():
    source = " ".join(ours.online_softmax.__doc__.split("Source: ")[1].split())
    sums, output, _ = source.split("; ")
    assert load()["online-softmax"].source == "milakov2018online"
    assert sums.startswith("Milakov and Gimelshein 2018,")
    assert sums.endswith("for the maximum and the sum")
    assert load()["attention-in-one-pass"].source == "rabe2021self"
    assert output.startswith("Rabe and Staats 2021,")
    assert output.endswith("for the output")
