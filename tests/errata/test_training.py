"""What people get wrong about training: each wrong form fails, the right one holds."""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from book.stories import stories, surprise

F64 = torch.float64


def steps(make, gradients, **settings):
    """Where a parameter that starts at 1 is after these gradients."""
    p = nn.Parameter(torch.ones(3, dtype=F64))
    optimizer = make([p], **settings)
    for g in gradients:
        p.grad = g.clone()
        optimizer.step()
    return p.detach()


def test_e125_below_the_floor_is_memory_or_a_leak():
    rows = [s.words[:17] for s in itertools.islice(stories("train 0"), 8)]
    floor = sum(sum(surprise(row)[:16]) for row in rows) / 128
    memory = 0.0
    for row, t in itertools.product(rows, range(1, 17)):
        alike = [other for other in rows if other[:t] == row[:t]]
        memory -= math.log(sum(other[t] == row[t] for other in alike) / len(alike)) / 128
    assert floor > 0.9
    assert abs(memory - 0.13) < 0.005
    # A model that copies the word it reads: right if the targets are those words, wrong else.
    words = {w: i for i, w in enumerate(sorted({w for row in rows for w in row}))}
    ids = torch.tensor([[words[w] for w in row] for row in rows])
    copied = 50.0 * F.one_hot(ids[:, :-1], len(words)).to(F64)
    assert F.cross_entropy(copied.mT, ids[:, :-1]) < 1e-12  # unshifted: 0
    assert F.cross_entropy(copied.mT, ids[:, 1:]) > 10


def test_e126_decay_is_l2_for_sgd_and_not_for_adam():
    g, decay, lr = torch.tensor([10.0, -10.0, 10.0], dtype=F64), 0.1, 0.01
    by_hand = 1 - lr * decay - lr * g
    assert torch.allclose(steps(torch.optim.SGD, [g], lr=lr, weight_decay=decay), by_hand)
    without = steps(torch.optim.Adam, [g], lr=lr)
    penalty = steps(torch.optim.Adam, [g], lr=lr, weight_decay=decay)
    assert torch.allclose(penalty, without, atol=1e-9)  # no effect
    decoupled = steps(torch.optim.AdamW, [g], lr=lr, weight_decay=decay)
    assert torch.allclose(without - decoupled, torch.full((3,), 0.001, dtype=F64))


def test_e127_a_mean_of_means_weighs_short_texts_more():
    losses = [torch.full((2,), 4.0), torch.full((8,), 1.0)]
    assert math.isclose(torch.cat(losses).mean().item(), 1.6, rel_tol=1e-6)
    assert sum(one.mean().item() for one in losses) / 2 == 2.5


def test_e128_a_factor_of_the_loss_cancels_in_adam():
    rng = torch.Generator().manual_seed(0)
    few = [torch.randn(3, generator=rng, dtype=F64) for _ in range(20)]
    many = [1000 * g for g in few]
    adam = {"lr": 0.01, "eps": 1e-30}
    assert torch.allclose(
        steps(torch.optim.Adam, few, **adam), steps(torch.optim.Adam, many, **adam), atol=1e-12
    )
    one, thousand = (steps(torch.optim.SGD, gs, lr=0.01) - 1 for gs in (few, many))
    assert torch.allclose(thousand, 1000 * one)


def test_e129_training_keeps_sixteen_bytes_a_parameter():
    layer = nn.Linear(30, 20)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    weights = sum(p.numel() for p in layer.parameters())
    states = sum(
        optimizer.state[p][k].numel() for p in layer.parameters() for k in ("exp_avg", "exp_avg_sq")
    )
    assert states == 2 * weights
    billions = 7
    assert billions * 2 == 14
    assert billions * (2 + 2 + 4 + 4 + 4) == billions * 16 == 112
