"""AdamW, the cosine and clipping, against torch's own."""

import itertools
import math
import re
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from book.chapters import ROOT
from book.facts import fact
from book.own.recipe import Recipe, new_model, schedule
from book.own.tokens import ID
from book.stories import stories
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
@pytest.mark.parametrize("warmup", [1, 2, 7])
def test_climb_and_cosine_are_torchs(last, warmup):
    """LinearLR up to the peak at step `warmup`, then CosineAnnealingLR to the last step."""

    def sgd():
        return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)

    schedulers = torch.optim.lr_scheduler
    up = schedulers.LinearLR(sgd(), 1 / warmup, 1.0, max(warmup - 1, 1))
    down = schedulers.CosineAnnealingLR(sgd(), T_max=30 - warmup, eta_min=last)
    for step in range(1, 31):
        now = up if step < warmup else down
        got = ours.cosine_schedule(step, 30, warmup, last)
        assert math.isclose(got, now.get_last_lr()[0], abs_tol=1e-12)
        now.optimizer.step(), now.step()


def test_without_a_warm_up_the_fall_begins_at_the_first_step():
    assert ours.cosine_schedule(1, 4) == 0.5 * (1 + math.cos(math.pi / 4))
    assert [ours.cosine_schedule(step, 3, warmup=3) for step in (1, 2, 3)] == [1 / 3, 2 / 3, 1.0]
    assert ours.cosine_schedule(2, 2, warmup=5) == 0.4


def test_the_book_s_own_recipe_multiplies_climb_and_cosine():
    """Its table says so: the peak is a little below one, where the usual form reaches it."""
    recipe = Recipe()
    for step in (1, 2, 99, 100, 101, 1500, 3000):
        half = (1 + math.cos(math.pi * (step - 1) / recipe.steps)) / 2
        mine = min(1, step / recipe.warmup) * (recipe.last + (1 - recipe.last) * half)
        assert math.isclose(mine, schedule(recipe, step - 1))
    assert ours.cosine_schedule(100, recipe.steps, recipe.warmup, recipe.last) == 1.0
    assert 0.99 < max(schedule(recipe, step) for step in range(recipe.steps)) < 0.999


def small_model_and_batch():
    """The small model of the chapter and the batch of its exercise on what is broken."""
    assert torch.get_default_dtype() == F64  # the chapter draws its weights in it
    recipe = Recipe(d_model=32, num_layers=1, num_heads=2, d_ff=64)
    told = stories("train 0")
    rows = torch.tensor([[ID[w] for w in next(told).words[:17]] for _ in range(8)])
    return new_model(recipe), rows


def blinded(model):
    """Its attention adds nothing."""
    for name, p in model.named_parameters():
        if name.endswith("out_proj.weight"):
            p.data.zero_()
            p.requires_grad_(False)
    return model


def unmasked(model):
    """Its attention looks at all places, those ahead too."""
    (layer,) = model.layers
    attend = layer.attn.sublayer.forward
    everywhere = torch.ones(16, 16, dtype=torch.bool)
    layer.attn.sublayer.forward = lambda x, rope, *_: attend(x, rope, everywhere)
    return model


def overfitted(model, rows, target, steps):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, 1e-2, (0.9, 0.95), weight_decay=0.0)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(rows[:, :-1]).mT, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def in_float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("in_float64")
def test_the_losses_of_the_four_who_overfit_a_batch():
    """The numbers that the exercise on what is broken prints, found anew."""
    text = (ROOT / "notebooks" / "18_training.ipynb").read_text(encoding="utf-8")
    model, rows = small_model_and_batch()
    unshifted = overfitted(model, rows, rows[:, :-1], 150)
    model, _ = small_model_and_batch()
    blind = overfitted(blinded(model), rows, rows[:, 1:], 250)
    model, _ = small_model_and_batch()
    sound = overfitted(model, rows, rows[:, 1:], 150)
    model, _ = small_model_and_batch()
    leaking = overfitted(unmasked(model), rows, rows[:, 1:], 150)
    pairs, firsts = Counter(), Counter()
    for row in rows.tolist():
        pairs.update(itertools.pairwise(row))
        firsts.update(row[:-1])
    best = -sum(n * math.log(n / firsts[a]) for (a, _), n in pairs.items()) / 128
    assert abs(blind[-1] - best) < 0.005
    first, lowest = (
        f"{unshifted[0]:.1f} | {blind[0]:.1f} | {sound[0]:.1f} | {leaking[0]:.1f}",
        f"{unshifted[-1]:.2f} | {best:.2f} | {sound[0]:.1f} | {leaking[-1]:.2f}",
    )
    assert f"| first loss | {first} |" in text
    assert f"| lowest loss | {lowest} |" in text
    assert f"the loss of a perfect memory of this batch is {sound[-1]:.2f}." in text


def test_bfloat16_is_as_coarse_as_the_section_on_the_z_loss_says():
    for x in (64.0, 100.0, 127.0):
        one = torch.tensor(x, dtype=torch.bfloat16)
        assert torch.nextafter(one, torch.tensor(200.0, dtype=torch.bfloat16)) - one == 0.5
    assert 1 - torch.nextafter(*torch.tensor([1.0, 0.0], dtype=torch.bfloat16)) == 1 / 256
    tiny = torch.tensor(2.9e-8).to(torch.float16)
    assert tiny == 0 < torch.tensor(3.1e-8).to(torch.float16)  # where fp16 needs loss scaling


@pytest.mark.parametrize(("beta2", "printed"), [(0.95, "1.16"), (0.999, "7.3")])
def test_adam_s_longest_step(beta2, printed):
    """The factors that the chapter prints, from the gradients that attain them at step t."""
    found = []
    for t in (1, 2, 5, 20, 100, 1000, 5000):
        ages = torch.arange(t, dtype=F64)
        g = (0.9 / beta2) ** ages
        m = (0.1 * 0.9**ages * g).sum() / (1 - 0.9**t)
        v = ((1 - beta2) * beta2**ages * g**2).sum() / (1 - beta2**t)
        found.append((m / v.sqrt()).item())
    factor = 0.1 / math.sqrt((1 - beta2) * (1 - 0.81 / beta2))
    assert f"{factor:.{len(printed) - 2}f}" == printed
    assert 0.99 * factor < max(found) < factor * (1 + 1e-12)  # at any step, corrected
    text = (ROOT / "notebooks" / "18_training.ipynb").read_text(encoding="utf-8")
    assert "the factor is 1.16 for $\\\\beta_2=0.95$, and 7.3 for torch's $0.999$;" in text


def test_the_corrections_do_not_raise_adam_s_longest_step():
    """The factor that the chapter writes down, at every t and for many betas."""
    for beta1, beta2 in ((0.9, 0.95), (0.9, 0.999), (0.5, 0.75), (0.8, 0.65)):
        r = beta1**2 / beta2
        t = torch.arange(1, 2000, dtype=F64)
        assert (r**t + beta2**t >= 2 * beta1**t).all()
        assert (((1 - r**t) * (1 - beta2**t)).sqrt() <= (1 - beta1**t) * (1 + 1e-12)).all()
    text = (ROOT / "notebooks" / "18_training.ipynb").read_text(encoding="utf-8")
    assert "$\\\\sqrt{(1-r^t)(1-\\\\beta_2^t)}/(1-\\\\beta_1^t)$" in text
    assert "$r^t+\\\\beta_2^t\\\\ge2\\\\beta_1^t$" in text


def test_what_is_left_of_forty_gigabytes():
    """The activations of Llama 2 7B in 16 bits, beside the answer of the exercise on memory."""
    layers, d, ff, heads, words = (
        fact("llama-2-7b", k) for k in ("num_layers", "d_model", "d_ff", "num_heads", "vocab_size")
    )
    left = 40e9 - 5.5 * fact("llama-2-7b", "parameters")
    a_token = 2 * (layers * (9 * d + 4 * ff + heads) + 2 * d + words)
    text = (ROOT / "notebooks" / "18_training.ipynb").read_text(encoding="utf-8")
    assert f"would have {left / 1e9:.0f} left" in text
    assert f"some {round(left / a_token, -1):.0f} tokens in 16 bits" in text


def test_palms_two_utilisations():
    """6 N r / R from its published numbers is the one without attention."""
    n, r = fact("palm-mfu-without", "parameters"), fact("palm-mfu-without", "tokens_per_second")
    peak = fact("palm-mfu-without", "chips") * fact("palm-mfu-without", "tflops") * 1e12
    share = 100 * 6 * n * r / peak
    assert round(share, 1) == fact("palm-mfu-without", "mfu") < fact("palm-mfu", "mfu")


def test_the_hours_of_llama_2():
    """The prediction that the chapter makes with PaLM's utilization, and the one it finds."""
    flops = 6 * fact("llama-2-hours", "parameters") * 2.0e12
    an_hour = 3600e12 * fact("a100", "peak_tflops")
    predicted = flops / (an_hour * fact("palm-mfu-without", "mfu") / 100)
    share = flops / (an_hour * fact("llama-2-hours", "hours_7b"))
    text = (ROOT / "notebooks" / "18_training.ipynb").read_text(encoding="utf-8")
    assert f"Llama 2 7B, {flops:.1e} FLOPs" in text
    assert re.search(rf"predicted +45\.7% +{predicted:,.0f}\\n", text)
    assert re.search(rf"reported +{100 * share:.1f}% +184,320\\n", text)


def test_tokens_for_each_weight():
    per = fact("chinchilla-size", "trillions") * 1000 / fact("chinchilla-size", "billions")
    assert math.isclose(per, 20)
    assert round(1000 / fact("llama-sizes", "parameters_in_billions"), -1) == 150


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
