"""AdamW, the cosine and clipping, against torch's own."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from book.own.recipe import Recipe, schedule
from transformer_parts import training as ours

F64 = torch.float64


def parameters(seed, dtype, shapes=((5, 3), (4,), (2, 3, 2), ())):
    rng = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(s, generator=rng, dtype=F64).to(dtype)) for s in shapes]


def steps_of(optimizer, params, seed, steps):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=rng, dtype=F64).to(p.dtype)
        optimizer.step()
    return [p.detach() for p in params]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 99),
    lr=st.floats(1e-5, 1.0),
    beta1=st.floats(0.0, 0.99),
    beta2=st.floats(0.5, 0.9999),
    decay=st.floats(0.0, 1.0),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_every_bit_is_torchs(seed, lr, beta1, beta2, decay, dtype):
    settings_ = {"lr": lr, "betas": (beta1, beta2), "eps": 1e-6, "weight_decay": decay}
    one, other = parameters(seed, dtype), parameters(seed, dtype)
    got = steps_of(ours.AdamW(one, **settings_), one, seed, 12)
    want = steps_of(torch.optim.AdamW(other, **settings_, foreach=False), other, seed, 12)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_groups_have_rates_of_their_own_and_what_has_no_gradient_stays():
    one, other = parameters(3, F64), parameters(3, F64)
    for make, params in ((ours.AdamW, one), (torch.optim.AdamW, other)):
        groups = [{"params": params[:2], "lr": 0.1, "weight_decay": 0.5}, {"params": params[2:]}]
        optimizer = make(groups, lr=0.01, weight_decay=0.0)
        params[0].grad = None
        for p in params[1:]:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert torch.equal(one[0], parameters(3, F64)[0])


def test_a_closure_is_called_and_its_loss_returned():
    p = nn.Parameter(torch.tensor([2.0], dtype=F64))
    optimizer = ours.AdamW([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert p.item() < 2.0


def test_a_run_goes_on_from_its_stored_state():
    one, other = parameters(5, F64), parameters(5, F64)
    first = ours.AdamW(one, lr=0.05)
    whole = steps_of(first, one, 6, 4)
    half = ours.AdamW(other, lr=0.05)
    rng = torch.Generator().manual_seed(6)
    for k in range(4):
        if k == 2:
            stored = half.state_dict()
            half = ours.AdamW(other, lr=0.05)
            half.load_state_dict(stored)
        for p in other:
            p.grad = torch.randn(p.shape, generator=rng, dtype=F64)
        half.step()
    assert all(torch.equal(a, b.detach()) for a, b in zip(whole, other, strict=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": -1.0}, "lr must not be negative, got -1.0"),
        ({"eps": math.nan}, "eps must not be negative, got nan"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative, got -0.1"),
        ({"betas": (0.9, 1.0)}, r"betas must lie in \[0, 1\), got \(0.9, 1.0\)"),
    ],
)
def test_adamw_refuses(wrong, message):
    with pytest.raises(ValueError, match=message):
        ours.AdamW(parameters(0, F64), **wrong)


@pytest.mark.parametrize("last", [0.0, 0.1, 1.0])
def test_the_cosine_is_torchs(last):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    official = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30, eta_min=last)
    for step in range(1, 31):
        assert math.isclose(ours.cosine_schedule(step, 30, last=last), official.get_last_lr()[0])
        optimizer.step(), official.step()


def test_the_book_s_own_recipe_has_this_schedule():
    recipe = Recipe()
    for step in (1, 2, 99, 100, 101, 1500, 3000):
        mine = ours.cosine_schedule(step, recipe.steps, recipe.warmup, recipe.last)
        assert math.isclose(mine, schedule(recipe, step - 1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 10), r"step must be in 1..10, got 0"),
        ((11, 10), r"step must be in 1..10, got 11"),
        ((1, 10, -1), "warmup must not be negative, got -1"),
        ((1, 10, 2, 1.5), r"last must be in \[0, 1\], got 1.5"),
    ],
)
def test_the_cosine_refuses(given, message):
    with pytest.raises(ValueError, match=message):
        ours.cosine_schedule(*given)


@pytest.mark.parametrize("max_norm", [0.5, 1.0, 1e6, 0.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_clipping_is_torchs(max_norm, dtype):
    one, other = parameters(8, dtype), parameters(8, dtype)
    for params in (one, other):
        rng = torch.Generator().manual_seed(9)
        for p in params[:3]:
            p.grad = torch.randn(p.shape, generator=rng, dtype=F64).to(dtype)
    got = ours.clip_grad_norm(one, max_norm)
    want = torch.nn.utils.clip_grad_norm_(other, max_norm, foreach=False)
    torch.testing.assert_close(got, want)
    for a, b in zip(one[:3], other[:3], strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert one[3].grad is None


def test_without_gradients_there_is_nothing_to_clip():
    assert ours.clip_grad_norm(parameters(0, F64), 1.0) == 0
    with pytest.raises(ValueError, match="max_norm must not be negative, got -1"):
        ours.clip_grad_norm(parameters(0, F64), -1.0)
