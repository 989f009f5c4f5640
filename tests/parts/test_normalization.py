"""The norms against torch's operators, over shapes, dtypes and scales; and their error messages."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_parts import normalization as ours
from transformer_parts.tensors import assert_parity, gradcheck64

F64 = torch.float64
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
    lambda lead: st.integers(1, 9).map(lambda d: (*lead, d))
)
SCALES = st.sampled_from([1e-8, 1e-4, 1.0, 1e4, 1e8])
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
EPS = st.sampled_from([1e-12, 1e-5, 0.1])


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


@settings(max_examples=60)
@given(shape=SHAPES, scale=SCALES, offset=SCALES, eps=EPS, seed=st.integers(0, 99))
def test_values_and_gradients_equal_torchs(shape, scale, offset, eps, seed):
    d = shape[-1]
    x = scale * (draw(seed, *shape) + min(offset, 1e4))
    w, b = draw(seed + 1, d), draw(seed + 2, d)
    # Centring cancels digits, in torch as here: a row of size |x| keeps an error of 1e-16 |x|,
    # which the division by s, and in the gradient a second one, makes larger.
    s = (x.var(-1, correction=0).min().item() + eps) ** 0.5
    error = 1e-13 * (1 + x.abs().max().item() / s) * max(1.0, 1 / s) * x.numel()
    assert_parity(
        lambda x, w, b: ours.layer_norm(x, d, w, b, eps),
        lambda x, w, b: F.layer_norm(x, (d,), w, b, eps),
        x, w, b, atol=error, rtol=1e-9,
    )  # fmt: skip
    assert_parity(
        lambda x, w: ours.rms_norm(x, d, w, eps), lambda x, w: F.rms_norm(x, (d,), w, eps),
        x, w, atol=1e-11 / eps**0.5, rtol=1e-9,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_every_dtype_gives_torchs_values_in_the_same_dtype(dtype, scale):
    x, w, b = (scale * draw(0, 7, 33)).to(dtype), draw(1, 33, dtype=dtype), draw(2, 33, dtype=dtype)
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(
        ours.layer_norm(x, 33, w, b), F.layer_norm(x, (33,), w, b), **tolerance
    )
    torch.testing.assert_close(ours.rms_norm(x, 33, w), F.rms_norm(x, (33,), w), **tolerance)
    torch.testing.assert_close(
        ours.batch_norm(x, None, None, w, b, training=True),
        F.batch_norm(x, None, None, w, b, training=True),
        **tolerance,
    )


def test_several_trailing_dimensions_are_normalised_together():
    x, w, b = draw(0, 3, 4, 5), draw(1, 4, 5), draw(2, 4, 5)
    assert_parity(
        lambda *t: ours.layer_norm(t[0], (4, 5), *t[1:]),
        lambda *t: F.layer_norm(t[0], (4, 5), *t[1:]),
        x, w, b,
    )  # fmt: skip
    assert_parity(
        lambda *t: ours.rms_norm(t[0], (4, 5), t[1]),
        lambda *t: F.rms_norm(t[0], (4, 5), t[1]),
        x,
        w,
    )


def test_no_rows_is_no_error():
    assert ours.layer_norm(torch.empty(0, 4), 4).shape == (0, 4)
    assert ours.rms_norm(torch.empty(0, 4), 4).shape == (0, 4)


def test_a_view_with_odd_strides_gives_the_same():
    x = draw(0, 6, 8, 10).transpose(0, 2)[::2, 1::3]
    torch.testing.assert_close(ours.layer_norm(x, 6), F.layer_norm(x, (6,)))
    torch.testing.assert_close(ours.rms_norm(x, 6), F.rms_norm(x, (6,)))


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_rows_of_zeros_and_constants_have_finite_gradients(name):
    for x in (torch.zeros(2, 4, dtype=F64), torch.full((2, 4), 7.0, dtype=F64)):
        x.requires_grad_()
        y = getattr(ours, name)(x, 4, eps=1e-5)
        (grad,) = torch.autograd.grad((y * draw(0, 2, 4)).sum(), x)
        assert y.isfinite().all()
        assert grad.isfinite().all()


def test_float16_is_squared_in_float32():
    x = torch.full((1, 4), 300.0, dtype=torch.float16)
    assert ours.rms_norm(x, 4).tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert ours.layer_norm(torch.tensor([[600.0, -600.0]], dtype=torch.float16), 2).tolist() == [
        [1.0, -1.0]
    ]


# ---------------------------------------------------------------- batch norm


@settings(max_examples=40)
@given(
    n=st.integers(2, 7), c=st.integers(1, 6), length=st.one_of(st.none(), st.integers(1, 5)),
    momentum=st.sampled_from([0.0, 0.1, 1.0]), seed=st.integers(0, 99),
)  # fmt: skip
def test_batch_norm_equals_torchs_in_both_modes_and_remembers_the_same(
    n, c, length, momentum, seed
):
    shape = (n, c) if length is None else (n, c, length)
    x, w, b = 3 + 2 * draw(seed, *shape), draw(seed + 1, c), draw(seed + 2, c)
    memories = [(torch.zeros(c, dtype=F64), torch.ones(c, dtype=F64)) for _ in range(2)]
    for training in (True, False):
        results = [
            f(x, *memory, w, b, training=training, momentum=momentum)
            for f, memory in zip((ours.batch_norm, F.batch_norm), memories, strict=True)
        ]
        torch.testing.assert_close(*results, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(*memories)


def test_batch_norm_module_follows_torchs_through_training_and_evaluation():
    mine, official = ours.BatchNorm1d(3).double(), nn.BatchNorm1d(3).double()
    assert mine.state_dict().keys() == official.state_dict().keys()
    for seed in range(3):
        assert_parity(mine, official, draw(seed, 5, 3), atol=1e-10)
    for key, value in official.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[key], value)
    mine.eval(), official.eval()
    assert_parity(mine, official, draw(9, 1, 3), atol=1e-10)


def test_evaluation_leaves_the_memory_alone():
    norm = ours.BatchNorm1d(3)
    norm(torch.randn(4, 3))
    before = {k: v.clone() for k, v in norm.state_dict().items()}
    norm.eval()
    norm(torch.randn(4, 3))
    assert all(torch.equal(v, norm.state_dict()[k]) for k, v in before.items())


# ---------------------------------------------------------------- modules


@pytest.mark.parametrize("shape", [5, (5,), (2, 5)])
def test_modules_load_each_others_weights(shape):
    for mine, official in (
        (ours.LayerNorm(shape), nn.LayerNorm(shape)),
        (ours.LayerNorm(shape, bias=False), nn.LayerNorm(shape, bias=False)),
        (
            ours.LayerNorm(shape, elementwise_affine=False),
            nn.LayerNorm(shape, elementwise_affine=False),
        ),
        (ours.RMSNorm(shape), nn.RMSNorm(shape)),
        (
            ours.RMSNorm(shape, elementwise_affine=False),
            nn.RMSNorm(shape, elementwise_affine=False),
        ),
    ):
        for p in official.parameters():
            nn.init.normal_(p)
        mine.load_state_dict(official.state_dict())
        x = torch.randn(3, 2, 5)
        torch.testing.assert_close(mine(x), official(x))


# ---------------------------------------------------------------- backward


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return ours.layer_norm(x, w.shape, w, b, 1e-2)

    @staticmethod
    def backward(ctx, grad_out):
        return ours.layer_norm_backward(grad_out, *ctx.saved_tensors, 1e-2)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return ours.rms_norm(x, w.shape, w, 1e-2)

    @staticmethod
    def backward(ctx, grad_out):
        return ours.rms_norm_backward(grad_out, *ctx.saved_tensors, 1e-2)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return ours.batch_norm(x, None, None, w, b, training=True, eps=1e-2)

    @staticmethod
    def backward(ctx, grad_out):
        return ours.batch_norm_backward(grad_out, *ctx.saved_tensors, 1e-2)


@pytest.mark.parametrize("shape", [(1, 3), (4, 5), (2, 3, 4)])
def test_gradcheck_of_the_backward_passes(shape):
    d = shape[-1]
    gradcheck64(_LayerNorm.apply, draw(0, *shape), draw(1, d), draw(2, d))
    gradcheck64(_RMSNorm.apply, draw(0, *shape), draw(1, d))
    if len(shape) == 2 and shape[0] > 1:
        gradcheck64(_BatchNorm.apply, draw(0, *shape), draw(1, d), draw(2, d))


def test_gradcheck_would_notice_a_missing_term():
    class Wrong(_RMSNorm):
        @staticmethod
        def backward(ctx, grad_out):
            x, w = ctx.saved_tensors
            grad_x, grad_w = ours.rms_norm_backward(grad_out, x, w, 1e-2)
            return grad_x + 1e-3 * x, grad_w

    with pytest.raises((RuntimeError, AssertionError)):
        gradcheck64(Wrong.apply, draw(0, 4, 5), draw(1, 5))


@settings(max_examples=30)
@given(d=st.integers(2, 9), eps=st.sampled_from([1e-8, 1e-5, 1.0]), seed=st.integers(0, 99))
def test_jacobians_equal_autograds(d, eps, seed):
    x = draw(seed, d)
    for mine, f in ((ours.layer_norm_jacobian, F.layer_norm), (ours.rms_norm_jacobian, F.rms_norm)):
        expected = torch.autograd.functional.jacobian(lambda t, f=f: f(t, (d,), eps=eps), x)
        torch.testing.assert_close(mine(x, eps), expected, atol=1e-8, rtol=1e-8)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: ours.layer_norm(torch.ones(2, 3), 4), r"normalized_shape=\(4,\).*\(2, 3\)"),
        (lambda: ours.layer_norm(torch.ones(2, 3), ()), "normalized_shape"),
        (lambda: ours.layer_norm(torch.ones(2, 3), 3, torch.ones(2)), r"weight.*\(3,\).*\(2,\)"),
        (
            lambda: ours.layer_norm(torch.ones(2, 3), 3, None, torch.ones(1, 3)),
            r"bias.*\(3,\).*\(1, 3\)",
        ),
        (lambda: ours.layer_norm(torch.ones(2, 3, dtype=torch.int64), 3), "int64"),
        (lambda: ours.rms_norm(torch.ones(2, 3), 2), r"normalized_shape=\(2,\).*\(2, 3\)"),
        (lambda: ours.rms_norm(torch.ones(2, 3), 3, torch.ones(4)), "weight"),
        (lambda: ours.rms_norm(torch.ones(2, 3, dtype=torch.int32), 3), "int32"),
        (lambda: ours.batch_norm(torch.ones(3), None, None, training=True), r"\(N, C\)"),
        (
            lambda: ours.batch_norm(torch.ones(1, 3), None, None, training=True),
            "more than one value",
        ),
        (lambda: ours.batch_norm(torch.ones(2, 3), None, None), "running_mean"),
        (
            lambda: ours.batch_norm(torch.ones(2, 3), torch.ones(2), torch.ones(3)),
            r"running_mean.*\(3,\)",
        ),
        (lambda: ours.BatchNorm1d(3)(torch.ones(2, 3, 4, 5)), r"\(N, C, L\)"),
        (
            lambda: ours.layer_norm_backward(torch.ones(2), torch.ones(2, 3), torch.ones(3)),
            "grad_out",
        ),
        (
            lambda: ours.rms_norm_backward(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2)),
            "normalized_shape",
        ),
        (
            lambda: ours.batch_norm_backward(
                torch.ones(2, 3, 1), torch.ones(2, 3, 1), torch.ones(3)
            ),
            r"\(N, C\)",
        ),
        (lambda: ours.layer_norm_jacobian(torch.ones(2, 3)), r"\(d,\).*\(2, 3\)"),
        (lambda: ours.rms_norm_jacobian(torch.ones(2, 3)), r"\(d,\).*\(2, 3\)"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()


# torch itself warns when forward-mode differentiation is first used, and of slow vmap.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_rms_norm_has_derivatives_of_every_kind(shape):
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, *shape), shape)
    x, w = (torch.randn(s, generator=generator, dtype=torch.float64) for s in sizes)
    norm = lambda x, w: ours.rms_norm(x, shape, w, 1e-3)  # noqa: E731
    official = lambda x, w: F.rms_norm(x, shape, w, 1e-3)  # noqa: E731
    leaves = (x.clone().requires_grad_(), w.clone().requires_grad_())
    assert torch.autograd.gradcheck(norm, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(norm, leaves)
    for i in (0, 1):  # one argument at a time: the other has no tangent
        want = torch.func.jacrev(official, argnums=i)(x, w)
        for jacobian in (torch.func.jacrev, torch.func.jacfwd):
            torch.testing.assert_close(jacobian(norm, argnums=i)(x, w), want)
    # Forward over reverse, with a gradient that is not linear.
    want, got = (
        torch.func.hessian(lambda x, f=f: f(x, w).pow(3).sum())(x) for f in (official, norm)
    )
    torch.testing.assert_close(got, want)


def test_only_a_layer_norm_without_offset_is_the_rms_norm_of_a_centred_linear():
    x, w, b = draw(0, 9, 5), draw(1, 5, 6), draw(2, 6)
    gain, offset = draw(3, 6), draw(4, 6)
    centre = torch.eye(6, dtype=F64) - 1 / 6
    rms = ours.rms_norm(x @ (w @ centre) + b @ centre, 6, gain, 1e-5)
    torch.testing.assert_close(rms, ours.layer_norm(x @ w + b, 6, gain), rtol=0, atol=1e-12)
    with_offset = ours.layer_norm(x @ w + b, 6, gain, offset)
    torch.testing.assert_close(rms + offset, with_offset, rtol=0, atol=1e-12)
    assert (rms - with_offset).abs().max() > 0.1


def test_float16_squares_are_finite_up_to_256():
    every = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)
    assert every[every.square().isfinite()].max() == 255.875
    assert torch.tensor(256.0, dtype=torch.float16).square().isinf()
