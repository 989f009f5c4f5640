"""The book's own model with its last feed-forward layer open: the rows, the loss, the training."""

import pytest
import torch
import torch.nn.functional as F

from book.own import encode, own_model
from book.own.experts import loss, rows, train
from book.own.inside import blocks
from book.stories import stories
from transformer_parts.experts import MixtureOfExperts, Router
from transformer_parts.feed_forward import GatedFeedForward

F64 = torch.float64


@pytest.fixture(scope="module")
def told():
    return rows(12, "test of experts")


def mixture(**how):
    torch.manual_seed(1)
    return MixtureOfExperts(Router(128, 4, 1, norm_topk=False, **how), 16).double()


def test_the_rows_are_the_words_of_the_stories(told):
    source = stories("test of experts")
    words = [encode(next(source).words) for _ in range(12)]
    assert told.words.tolist() == [n for story in words for n in story[:-1]]
    assert told.targets.tolist() == [n for story in words for n in story[1:]]
    assert told.story.bincount().tolist() == [len(story) - 1 for story in words]
    assert told.place[told.story == 3].tolist() == list(range(len(words[3]) - 1))
    assert len(told) == len(told.spelled()) == len(told.inputs)


@torch.no_grad()
def test_with_the_model_s_own_layer_the_loss_is_the_model_s(told):
    model = own_model().double()
    own = blocks(model)[-1].ffn.sublayer
    source, total = stories("test of experts"), 0.0
    for _ in range(12):
        row = torch.tensor([encode(next(source).words)])
        total += F.cross_entropy(model(row)[0, :-1], row[0, 1:], reduction="sum").item()
    found = loss(own(told.inputs), told).item()
    assert abs(found - total / len(told)) < 1e-9
    assert loss(torch.zeros_like(told.stream), told) > found + 0.5


def test_training_lowers_the_loss_of_both_kinds_of_layer(told):
    torch.manual_seed(1)
    for layer in (GatedFeedForward(128, 16).double(), mixture()):
        before = loss(layer(told.inputs), told).item()
        loads = train(layer, told, 0, steps=25, batch=128)
        assert loss(layer(told.inputs), told).item() < before - 0.5
        assert len(loads) == (25 if isinstance(layer, MixtureOfExperts) else 0)
        assert all(abs(load.sum() - 1) < 1e-12 for load in loads)


def test_both_ways_to_balance_even_out_the_load(told):
    def busiest(layer, **how):
        return train(layer, told, 0, steps=60, batch=128, **how)[-1].max().item()

    alone = busiest(mixture())
    assert busiest(mixture(), balance=1.0) < alone - 0.05
    assert busiest(mixture(correction=True), speed=0.02) < alone - 0.05


def test_the_same_seed_trains_the_same_layer(told):
    one, other = mixture(), mixture()
    train(one, told, 3, steps=3)
    train(other, told, 3, steps=3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    train(other, told, 4, steps=1)
    assert not torch.equal(one.w_in, other.w_in)
