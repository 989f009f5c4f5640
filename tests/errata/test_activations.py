"""What people get wrong about activations: each wrong form fails, the right one holds."""

import math

import pygments.lexers
import pytest
import torch
import torch.nn.functional as F
from pygments.util import ClassNotFound
from torch import nn

from book.facts import fact
from transformer_parts import activations as ours

# Shazeer's table 1: the plain layers, and those with a gate.
TABLE = ("ReLU", "GELU", "Swish", "GLU", "Bilinear", "GEGLU", "SwiGLU", "ReGLU")
GRID = torch.arange(-5000, 5001, dtype=torch.float64) / 1000


def gap(a, b):
    return (a - b).abs().max().item()


def slope(f, at, dtype=torch.float64):
    x = torch.tensor(at, dtype=dtype, requires_grad=True)
    return torch.autograd.grad(f(x), x)[0].item()


def quotient(x):
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


def sigmoid_by_hand(x):
    return 1 / (1 + (-x).exp())


def test_e12_the_quotient_of_exponentials_overflows_and_cancels(evidence):
    for dtype, fine, broken in (
        (torch.float16, 11.08, 11.1),
        (torch.float32, 88.72, 88.73),
        (torch.float64, 709.7, 709.8),
    ):
        assert abs(quotient(torch.tensor(fine, dtype=dtype)) - 1) < 1e-6
        assert quotient(torch.tensor(broken, dtype=dtype)).isnan()
        assert torch.tanh(torch.tensor(broken, dtype=dtype)) == 1
        assert fine <= math.log(torch.finfo(dtype).max) <= broken
    assert gap(quotient(GRID.float()), torch.tanh(GRID.float())) < 1e-6

    def off(f, at):
        return abs(f(torch.tensor(at, dtype=torch.float32)).item() / math.tanh(at) - 1)

    assert 1e-5 < off(quotient, 1e-3) < 3e-5
    assert 0.01 < off(quotient, 1e-6) < 0.03
    evidence(off(quotient, 1e-3), off(quotient, 1e-6))
    assert off(quotient, 1e-8) == 1
    assert max(off(f, at) for f in (torch.tanh, ours.tanh) for at in (1e-3, 1e-6, 1e-8)) < 1e-6
    assert math.isnan(slope(quotient, 100.0, torch.float32))
    assert slope(ours.tanh, 100.0, torch.float32) == 0


def test_e13_the_right_value_and_no_gradient():
    at = torch.tensor(-100.0, dtype=torch.float32)
    for by_hand, right in (
        (sigmoid_by_hand, torch.sigmoid),
        (lambda x: x * sigmoid_by_hand(x), F.silu),
    ):
        assert abs(by_hand(at) - right(at)) < 1e-30
        assert math.isnan(slope(by_hand, -100.0, torch.float32))
        assert abs(slope(right, -100.0, torch.float32)) < 1e-30

    # The repair with |x| has the right value everywhere, and the wrong gradient at 0.
    def by_abs(x):
        t = torch.exp(-x.abs())
        return torch.where(x >= 0, 1 / (1 + t), t / (1 + t))

    assert gap(by_abs(100 * GRID), torch.sigmoid(100 * GRID)) < 1e-15
    assert slope(by_abs, 0.0) == 0
    assert slope(ours.sigmoid, 0.0) == slope(torch.sigmoid, 0.0) == 0.25


def test_e14_leaky_relu_is_a_maximum_for_small_slopes_only():
    for alpha in (-0.5, 0.01, 1.0):
        assert gap(torch.maximum(GRID, alpha * GRID), F.leaky_relu(GRID, alpha)) == 0
    assert gap(torch.maximum(GRID, 2 * GRID), F.leaky_relu(GRID, 2.0)) == 5
    assert gap(torch.minimum(GRID, 2 * GRID), F.leaky_relu(GRID, 2.0)) == 0
    assert gap(ours.leaky_relu(GRID, 2.0), F.leaky_relu(GRID, 2.0)) == 0
    assert slope(lambda x: torch.maximum(x, 0.01 * x), 0.0) == pytest.approx(0.505)
    assert slope(F.leaky_relu, 0.0) == slope(ours.leaky_relu, 0.0) == 0.01
    assert slope(lambda x: torch.maximum(x, torch.zeros_like(x)), 0.0) == 0.5
    assert slope(F.relu, 0.0) == 0


def test_e15_f_gelu_is_the_exact_form():
    erf_form = GRID / 2 * (1 + torch.erf(GRID / math.sqrt(2)))
    tanh_form = F.gelu(GRID, approximate="tanh")
    assert gap(F.gelu(GRID), erf_form) < 1e-14
    error = (F.gelu(GRID) - tanh_form).abs()
    assert 4.73e-4 < error.max() < 4.74e-4
    assert 2.69 < abs(GRID[error.argmax()]) < 2.71
    assert 0.0203 < gap(F.gelu(GRID), GRID * torch.sigmoid(1.702 * GRID)) < 0.0204


def test_e16_torch_has_swish_under_the_name_of_silu():
    assert not hasattr(F, "swish")
    assert gap(F.silu(GRID), GRID * torch.sigmoid(GRID)) < 1e-14
    assert gap(nn.SiLU()(GRID), ours.swish(GRID)) < 1e-14


def test_e17_a_constant_in_float32_spoils_float64():
    def tanh_form(root):
        return GRID / 2 * (1 + torch.tanh(root * (GRID + 0.044715 * GRID**3)))

    official = F.gelu(GRID, approximate="tanh")
    torch.set_default_dtype(torch.float32)  # as torch starts; the fixture resets it
    leaked = tanh_form(torch.tensor(math.sqrt(2 / math.pi)))
    assert leaked.dtype == torch.float64
    assert 7e-9 < gap(leaked, official) < 8e-9
    assert gap(tanh_form(math.sqrt(2 / math.pi)), official) < 1e-14


def test_e20_a_misspelt_fence_is_not_highlighted():
    with pytest.raises(ClassNotFound):
        pygments.lexers.get_lexer_by_name("pytohn3")
    assert pygments.lexers.get_lexer_by_name("python3").name == "Python"


def train(f, lr):
    """Five layers of 64 hidden units, trained for 200 steps: losses, and pre-activations."""
    drawn = []
    for seed in range(5):
        rng = torch.Generator().manual_seed(seed)
        drawn.append([torch.randn(s, generator=rng) for s in ((256, 4), (4, 64), (64, 1))])
    x, up, down = (torch.stack(t) for t in zip(*drawn, strict=True))
    y = torch.sin(2 * x[..., :1]) * torch.cos(x[..., 1:2])
    weights = [up / 2, torch.zeros(5, 1, 64), down / 32**0.5, torch.zeros(5, 1, 1)]
    weights = [w.requires_grad_() for w in weights]
    optimizer = torch.optim.Adam(weights, lr=lr)
    for _ in range(200):
        pre = x @ weights[0] + weights[1]
        loss = (f(pre) @ weights[2] + weights[3] - y).pow(2).mean((1, 2))
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    return loss.detach(), (x @ weights[0] + weights[1]).detach()


def test_e24_dead_units_come_from_large_steps_and_need_not_cost_accuracy(evidence):
    dead = {}
    loss = {}
    for lr in (0.01, 0.1, 1.0):
        loss[lr], pre = train(F.relu, lr)
        dead[lr] = (pre <= 0).all(1).sum(-1)
    assert (dead[0.01] == 0).all()
    assert (dead[0.1] > 0).all()
    # With some dead units the layer does better than with none, after smaller steps.
    assert (loss[0.1] < 0.8 * loss[0.01]).all()
    assert (loss[1.0] > 2 * loss[0.1]).all()
    extremes = [int(n) for lr in (0.1, 1.0) for n in (dead[lr].min(), dead[lr].max())]
    assert extremes[:3] == [3, 9, 8]
    evidence(pre.shape[2], extremes[3])
    # In the paper's table the order of the plain activations changes with the length of the run.
    long, short = ({n: fact(f"shazeer-table-1{s}", n) for n in TABLE} for s in ("", "-short"))
    assert sorted(TABLE[:3], key=long.get) == ["ReLU", "GELU", "Swish"]
    assert sorted(TABLE[:3], key=short.get) == ["GELU", "Swish", "ReLU"]
    spread = {n: fact("shazeer-table-1-short", f"{n}_spread") for n in TABLE[:3]}
    assert 2.5 < (short["ReLU"] - short["GELU"]) / spread["ReLU"] < 3
    assert short["ReLU"] - short["Swish"] < spread["ReLU"]
    assert round(long["GELU"] - long["ReLU"], 3) == 0.002
    assert round(long["Swish"] - long["ReLU"], 3) == 0.006
    # Every layer with a gate ends below all three of them.
    assert max(long[n] for n in TABLE[3:]) < min(long[n] for n in TABLE[:3])
    assert min(long[n] for n in TABLE[3:]) == 1.633


def test_e74_smooth_does_not_say_which_function():
    smooth = [F.softplus, F.gelu, F.silu, lambda x: F.silu(3 * x) / 3]
    for i, f in enumerate(smooth):
        for g in smooth[:i]:
            assert gap(f(GRID), g(GRID)) > 0.04
    Phi = torch.special.ndtr(GRID)
    assert gap(F.gelu(GRID), GRID * Phi) < 1e-14
    assert gap(F.silu(3 * GRID) / 3, GRID * torch.sigmoid(3 * GRID)) < 1e-14
    # GELU as a mean over thresholds.
    kept = (torch.randn(1_000_000) <= 0.7).double().mean()
    assert abs(0.7 * kept - F.gelu(torch.tensor(0.7))) < 2e-3


def test_e75_the_slope_of_silu_vanishes_once_and_is_negative_left_of_that():
    low, high = -3.0, 0.0
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if slope(F.silu, mid) < 0 else (low, mid)
    assert round(mid, 4) == -1.2785
    assert round(F.silu(torch.tensor(mid)).item(), 4) == -0.2785
    left, right = GRID[mid + 1e-2 > GRID], GRID[mid + 1e-2 < GRID]
    assert (ours.silu_grad(left[left < mid]) < 0).all()
    assert (ours.silu_grad(right) > 0).all()


def test_e110_beta_is_a_parameter_that_may_be_fixed_or_learned():
    x, beta = torch.randn(50), torch.tensor(1.3, requires_grad=True)
    (found,) = torch.autograd.grad(ours.swish(x, beta).sum(), beta)
    s = torch.sigmoid(1.3 * x)
    assert abs(found - (x * x * s * (1 - s)).sum()) < 1e-12
    # SiLU, which SwiGLU uses, has none to learn, and differs from another beta.
    assert not [*nn.SiLU().parameters()]
    assert gap(F.silu(x), ours.swish(x, 1.0)) < 1e-14
    assert gap(F.silu(x), ours.swish(x, 1.3)) > 0.01
