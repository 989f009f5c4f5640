"""What people get wrong about longer contexts: each wrong form fails, the right one holds."""

import math

import torch

from transformer_parts.long_context import (
    ntk_by_parts,
    position_interpolation,
    yarn_frequencies,
    yarn_mscale,
)
from transformer_parts.rope import rope_frequencies


def frequencies(head_dim, base):
    return rope_frequencies(head_dim, base, dtype=torch.float64)


def train_three_back(length, head_dim=16, base=100.0, steps=60):
    """Scores that depend on the distance alone, trained to find the key three positions back.

    One query and one key for all positions, as seen by RoPE: the score at distance D is the sum
    over the pairs of a_k cos(D theta_k) + b_k sin(D theta_k), so the loss is convex in a and b.
    """
    theta = frequencies(head_dim, base)
    weights = torch.zeros(2, head_dim // 2, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, line_search_fn="strong_wolfe")

    def scores(reach):
        angle = torch.outer(torch.arange(reach).double(), theta)
        return (weights[0] * angle.cos() + weights[1] * angle.sin()).sum(-1)

    def loss():
        optimizer.zero_grad()
        z = scores(length)
        value = (torch.logcumsumexp(z, 0)[3:] - z[3]).mean() + 1e-6 * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        # the weight of the key three back, at every position from 3 to 1023
        z = scores(1024)
        return (z[3] - torch.logcumsumexp(z, 0)).exp()


def test_e108_long_texts_can_be_trained_on_but_not_only_tested_on(evidence):
    turns = 4096 * frequencies(128, 1e4) / (2 * math.pi)
    assert ((turns >= 1).sum(), (turns < 1).sum()) == (46, 18)
    evidence(len(turns))
    short, long = train_three_back(12), train_three_back(1024)
    # Trained on 12 positions: sure there, lost at 1024.
    assert short[3:12].min() > 0.99
    assert short[-1] < 0.45
    # Trained on 1024 positions, with as many numbers to learn: sure to the end.
    assert long[3:].min() > 0.99


def test_e109_yarn_does_not_rescale_everything(evidence):
    theta, turns = frequencies(128, 1e4), 4096 * frequencies(128, 1e4) / (2 * math.pi)
    yarn, factor = yarn_frequencies(128, 1e4, 16.0, 4096, ramp="paper", dtype=torch.float64)
    evidence(len(theta))
    # Rescaling every pair is position interpolation.
    rescaled = position_interpolation(theta, 16.0)
    assert ((yarn / rescaled - 1).abs() < 1e-12).sum() == 18
    assert ((yarn / theta - 1).abs() < 1e-12).sum() == 21
    assert ((turns > 32).sum(), (turns < 1).sum()) == (21, 18)
    assert abs(factor - 1.2773) < 5e-5
    assert abs(factor**2 - 1.6314) < 5e-5


def test_p2_the_codes_ramp_is_not_the_papers():
    theta = frequencies(128, 1e4)
    index = [128 * math.log(4096 / (2 * math.pi * r)) / (2 * math.log(1e4)) for r in (32, 1)]
    assert (math.floor(index[0]), math.ceil(index[1])) == (20, 46)
    for scale, percent in ((4.0, 73), (16.0, 204), (32.0, 296)):
        paper, code = (
            ntk_by_parts(theta, scale, 4096, ramp=ramp) for ramp in ("paper", "reference")
        )
        assert round(100 * (code / paper - 1).max().item()) == percent


def entropy(scores):
    log_p = scores.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1).mean()


def test_p3_the_root_belongs_to_the_reciprocal():
    scores = 2 * torch.randn(64, 512)
    longer = 2 * torch.randn(64, 512 * 16)
    assert entropy(longer) > entropy(scores) + 2  # what the temperature is to undo
    root = 0.1 * math.log(16) + 1
    wrong = root**2  # from sqrt(t) = 0.1 ln s + 1
    assert wrong > 1
    assert entropy(longer / wrong) > entropy(longer)
    right = 1 / root**2  # from sqrt(1 / t) = 0.1 ln s + 1
    assert right < 1
    assert entropy(longer / right) < entropy(longer) - 1
    assert abs(yarn_mscale(40.0, 0.0707) - 1.2608) < 5e-5
