"""Blocks, DeepNorm's constants, schedules and the gradient profile, against torch's own."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_parts import residual as ours
from transformer_parts.normalization import LayerNorm, RMSNorm
from transformer_parts.tensors import assert_parity, gradcheck64

F64 = torch.float64
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}


def draw(*shape, seed=0, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def blocks_of(layer):
    """A torch encoder layer, rebuilt from its sub-layers."""

    def attention(x, mask=None):
        return layer.self_attn(x, x, x, attn_mask=mask, need_weights=False)[0]

    def ffn(x):
        return layer.linear2(layer.activation(layer.linear1(x)))

    first, second = (
        ours.Residual(f, norm, layer.norm_first)
        for f, norm in ((attention, layer.norm1), (ffn, layer.norm2))
    )
    return lambda x, mask=None: second(first(x, mask=mask))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(2, 5, 12), (1, 1, 12), (3, 7, 12)])
def test_two_blocks_are_torchs_encoder_layer(norm_first, dtype, shape):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        12, 3, 20, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=dtype
    )
    tol = TOLERANCE[dtype]
    causal = torch.ones(shape[1], shape[1], dtype=torch.bool).triu(1)
    for mask in (None, causal):
        assert_parity(blocks_of(layer), layer, draw(*shape, dtype=dtype), mask, atol=tol, rtol=tol)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5), d=st.integers(2, 9), alpha=st.floats(0.1, 10), seed=st.integers(0, 99))
def test_deepnorm_is_post_norm_of_the_scaled_stream(n, d, alpha, seed):
    w, x = draw(d, d, seed=seed), draw(n, d, seed=seed + 1)
    branch = lambda u: torch.tanh(u @ w)  # noqa: E731
    norm = lambda u: F.layer_norm(u, (d,), eps=1e-3)  # noqa: E731
    deep, post = ours.DeepNormResidual(branch, norm, alpha), ours.Residual(branch, norm, False)
    assert_parity(deep, lambda u: norm(alpha * u + branch(u)), x, atol=1e-9, rtol=1e-9)
    if alpha == 1.0:
        assert_parity(deep, post, x)
    gradcheck64(deep, x)


def test_parameters_of_both_parts_are_registered_once():
    block = ours.Residual(nn.Linear(4, 4), RMSNorm(4))
    assert {n for n, _ in block.named_parameters()} == {
        "sublayer.weight",
        "sublayer.bias",
        "norm.weight",
    }
    deep = ours.DeepNormResidual(nn.Linear(4, 4), LayerNorm(4), 2.0)
    assert len(list(deep.parameters())) == 4


def test_a_branch_that_would_broadcast_is_refused():
    def mean(x):
        return x.mean(-1, keepdim=True)

    for block in (
        ours.Residual(mean, nn.Identity()),
        ours.Residual(mean, nn.Identity(), norm_first=False),
        ours.DeepNormResidual(mean, nn.Identity(), 2.0),
    ):
        with pytest.raises(
            ValueError, match=r"sublayer must keep the shape \(3, 4\), got \(3, 1\)"
        ):
            block(draw(3, 4))
    with pytest.raises(ValueError, match="alpha must be positive, got 0"):
        ours.DeepNormResidual(nn.Identity(), nn.Identity(), 0)


@settings(max_examples=100)
@given(n=st.integers(1, 2000), m=st.integers(1, 2000))
def test_the_constants_satisfy_the_conditions_they_come_from(n, m):
    alone, none = ours.deepnorm_constants(n)
    assert none is None
    encoder, decoder = ours.deepnorm_constants(n, m)
    for scale, sublayers in ((alone, 2 * n), (decoder, 3 * m)):
        assert math.isclose(2 * sublayers * scale.beta**2 / scale.alpha**2, 1)
        assert math.isclose(scale.alpha * scale.beta, 0.5**0.5)
    felt = m * decoder.beta**2 / decoder.alpha * 4 * n * encoder.beta**2 / encoder.alpha**2
    assert math.isclose(felt, 1, rel_tol=0.02)  # 0.81 and 0.87 are rounded
    assert math.isclose(encoder.alpha * encoder.beta, 0.81 * 0.87)


def test_the_published_examples_of_the_constants():
    assert ours.deepnorm_constants(8)[0] == (2.0, 64**-0.25)
    encoder, decoder = ours.deepnorm_constants(1, 1)
    assert encoder == (0.81, 0.87)
    assert decoder == (3**0.25, 12**-0.25)
    for arguments, name in (((0,), "num_encoder_layers"), ((3, 0), "num_decoder_layers")):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            ours.deepnorm_constants(*arguments)


@settings(max_examples=60)
@given(d=st.integers(1, 2048), w=st.integers(1, 3000))
def test_noams_maximum_is_at_the_end_of_the_warm_up(d, w):
    rates = [ours.noam_lr(t, d, w) for t in range(1, 2 * w + 2)]
    assert math.isclose(max(rates), (d * w) ** -0.5)
    assert math.isclose(rates[w - 1], (d * w) ** -0.5)
    assert math.isclose(rates[0] * w, rates[w - 1])


def test_linear_warm_up_is_torchs_linear_lr():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    official = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 7, total_iters=6)
    for t in range(1, 20):
        assert math.isclose(ours.linear_warmup(t, 7, 0.3), optimizer.param_groups[0]["lr"])
        optimizer.step()
        official.step()
    assert ours.linear_warmup(1, 0, 0.3) == 0.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.noam_lr(0, 4, 4), "step must be at least 1, got 0"),
        (lambda: ours.noam_lr(1, 0, 4), "d_model must be at least 1, got 0"),
        (lambda: ours.noam_lr(1, 4, 0), "warmup_steps must be at least 1, got 0"),
        (lambda: ours.linear_warmup(0, 4, 1.0), "step must be at least 1, got 0"),
        (lambda: ours.linear_warmup(1, -1, 1.0), "warmup_steps must not be negative, got -1"),
        (lambda: ours.linear_warmup(1, 4, -1.0), "max_lr must not be negative, got -1"),
    ],
)
def test_a_bad_argument_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class Toy(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.pow(2).mean()


def test_the_profile_is_what_backward_leaves():
    torch.manual_seed(0)
    frozen = nn.Linear(4, 4)
    frozen.bias.requires_grad_(False)
    model, x = Toy(nn.Linear(4, 4), nn.LayerNorm(4), frozen).to(F64), draw(3, 4)
    profile = ours.grad_norm_profile(model, (x,))
    assert all(p.grad is None for p in model.parameters())
    model(x).backward()
    want = [
        sum(p.grad.pow(2).sum() for p in m.parameters() if p.grad is not None).sqrt()
        for m in model.layers
    ]
    torch.testing.assert_close(profile, torch.stack(want))


def test_what_has_no_profile_is_refused():
    x = torch.randn(2, 4)
    with pytest.raises(ValueError, match="model must have layers, got Linear"):
        ours.grad_norm_profile(nn.Linear(4, 4), (x,))
    with pytest.raises(ValueError, match=r"layers\[1\] has no parameter"):
        ours.grad_norm_profile(Toy(nn.Linear(4, 4), nn.ReLU()), (x,))
    model = Toy(nn.Linear(4, 4))
    model.forward = lambda x: model.layers[0](x)
    with pytest.raises(ValueError, match=r"a loss of one number, got \(2, 4\)"):
        ours.grad_norm_profile(model, (x,))


def test_the_norm_comes_first_unless_one_asks():
    x, norm = draw(3, 8), LayerNorm(8).to(F64)
    double = lambda h: 2 * h  # noqa: E731
    assert torch.equal(ours.Residual(double, norm)(x), x + 2 * norm(x))
    assert torch.equal(ours.Residual(double, norm, norm_first=False)(x), norm(x + 2 * x))


def test_a_parameter_that_the_loss_does_not_use_counts_as_zero():
    used, idle = nn.Linear(4, 4), nn.Linear(4, 4)
    both = nn.ModuleDict({"used": used, "idle": idle})
    both.forward = lambda x: used(x)
    x = torch.randn(2, 4)
    [found] = ours.grad_norm_profile(Toy(both), (x,))
    [alone] = ours.grad_norm_profile(Toy(used), (x,))
    assert found == alone > 0


def test_a_parameter_without_influence_counts_as_zero_in_the_profile():
    torch.manual_seed(0)
    model = Toy(nn.Linear(4, 4), nn.Linear(4, 4)).double()
    batch = (draw(5, 4),)
    profile = ours.grad_norm_profile(model, batch)
    model.layers[1].unused = nn.Parameter(torch.ones(3, dtype=F64))
    torch.testing.assert_close(ours.grad_norm_profile(model, batch), profile, rtol=0, atol=0)


def test_the_bound_of_the_last_gradient_needs_the_centred_row():
    """The norm's Jacobian is sqrt(d) / |xC|; with the whole row in its place the bound fails."""
    d, broken = 12, 0
    for seed in range(100):
        w1, w2, x, g = (
            draw(*s, seed=4 * seed + i) for i, s in enumerate(((d, d), (d, d), (d,), (d,)))
        )
        w2.requires_grad_()
        hidden = torch.relu(F.layer_norm(x, (d,)) @ w1 / d**0.5)
        total = x + hidden @ w2 / d**0.5
        y = F.layer_norm(total, (d,), eps=0.0)
        (slope,) = torch.autograd.grad(y @ g, w2)
        left, right = slope.norm(), hidden.norm() / d**0.5 * g.norm() * d**0.5
        assert left <= right / (total - total.mean()).norm() * (1 + 1e-12)
        broken += bool(left > right / total.norm())
    assert broken > 5
