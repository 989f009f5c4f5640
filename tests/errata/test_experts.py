"""Misconceptions of the chapter on mixtures of experts."""

import torch

from book.own.experts import rows, train
from transformer_parts.experts import MixtureOfExperts, Router

F64 = torch.float64


def gradient(logits, top_k, renormalise=True):
    """Of the weights, for some upstream gradient."""
    leaf = logits.clone().requires_grad_()
    chosen = leaf.topk(top_k).indices
    weights = leaf.softmax(-1)[chosen]
    if renormalise:
        weights = weights / weights.sum()
    (found,) = torch.autograd.grad(weights, leaf, torch.tensor([3.0, -1.0], dtype=F64)[:top_k])
    return found, chosen


def test_e140_the_others_are_never_heard():
    logits = torch.tensor([0.3, 2.0, -1.0, 1.5, 0.1], dtype=F64)
    two, chosen = gradient(logits, 2)
    others = [i for i in range(5) if i not in chosen.tolist()]
    assert len(others) == 3
    assert two[others].abs().max() < 1e-15
    assert two[chosen].abs().min() > 0.1
    assert abs(two.sum()) < 1e-15
    one, _ = gradient(logits, 1)
    assert len(one) == 5
    assert one.abs().max() < 1e-15
    plain, _ = gradient(logits, 2, renormalise=False)
    assert plain.abs().min() > 0.01
    number = plain[others] / logits.softmax(-1)[others]
    assert number.max() - number.min() < 1e-15


def test_e141_eight_times_seven_is_not_the_number_of_parameters():
    layers, width, hidden, vocabulary = 32, 4096, 14336, 32000
    attention = 2 * width * 32 * 128 + 2 * width * 8 * 128

    def model(experts):
        layer = attention + experts * 3 * width * hidden + 8 * width + 2 * width
        return (layers * layer + 2 * vocabulary * width + width) / 1e9

    assert round(model(8), 1) == 46.7 < 56
    assert round(model(2), 1) == 12.9
    assert round(model(1), 1) == 7.2


def test_e142_a_batch_reads_nearly_all_experts():
    rng = torch.Generator().manual_seed(0)

    def read(tokens, draws=2000):
        chances = torch.rand(draws, tokens, 8, generator=rng)
        used = torch.zeros(draws, 8).scatter(1, chances.topk(2).indices.flatten(1), 1.0)
        return used.sum(1).mean().item()

    assert read(1) == 2
    assert read(16) > 7.8


def test_e143_the_word_tells_the_expert_and_the_story_does_not():
    told = rows(60, "errata of experts")
    torch.manual_seed(0)
    layer = MixtureOfExperts(Router(128, 8, 2), 43).double()
    train(layer, told, 0, steps=60, batch=256, balance=0.02)
    expert = layer.router(told.inputs).chosen[:, 0]

    def entropy(counts):
        p = counts.double() / counts.sum()
        return torch.special.entr(p).sum().item()

    def explained(label):
        whole = entropy(expert.bincount())
        left = sum(
            (label == k).double().mean().item() * entropy(expert[label == k].bincount())
            for k in label.unique()
        )
        return 1 - left / whole

    assert layer.router.num_experts == 8
    assert explained(told.words) > 0.30
    assert explained(told.story) < 0.10
