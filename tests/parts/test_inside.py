"""Looking inside: detectors, the lens and the shares of a logit, and what they refuse."""

import pytest
import torch
import torch.nn.functional as F

from book.own import encode, own_model
from book.own.inside import heads_off
from book.own.measure import held_out, measure
from transformer_parts.inside import (
    induction_score,
    logit_attribution,
    logit_lens,
    previous_token_score,
)


def hand_made(size, places):
    """Weights with all of a row on one column."""
    weights = torch.zeros(size, size)
    for row, column in enumerate(places):
        weights[row, column] = 1.0
    return weights


def test_a_head_that_looks_one_back_has_score_one():
    assert previous_token_score(hand_made(5, [0, 0, 1, 2, 3])) == 1
    assert previous_token_score(hand_made(5, [0, 1, 2, 3, 4])) == 0
    assert previous_token_score(torch.ones(2, 3, 4, 4) / 4).shape == (2, 3)


def test_a_head_that_looks_after_the_earlier_one_has_score_one():
    # <s> a b c a b c: the second a, b and c look at b, c and the second a.
    weights = hand_made(7, [0, 0, 0, 0, 2, 3, 4])
    assert induction_score(weights, 3) == 1
    assert induction_score(weights, 2) == 0
    # Looking at the same word, or one further on, is something else.
    assert induction_score(hand_made(7, [0, 0, 0, 0, 1, 2, 3]), 3) == 0
    assert induction_score(hand_made(7, [0, 0, 0, 0, 3, 4, 5]), 3) == 0


@torch.no_grad()
def test_the_lens_at_the_top_gives_the_models_logits():
    model = own_model()
    tokens = torch.tensor([encode("one sunny day anna and ben met .")])
    found = []
    hook = model.norm.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    logits = model(tokens)
    hook.remove()
    torch.testing.assert_close(logit_lens(found[0], model.norm, model.embed.weight), logits)


def test_shares_add_up_to_the_logit():
    rng = torch.Generator().manual_seed(0)
    parts = torch.randn(4, 2, 3, 8, generator=rng, dtype=torch.float64)
    gain, row = torch.rand(2, 8, generator=rng, dtype=torch.float64)
    shares = logit_attribution(list(parts), gain, 1e-3, row)
    assert shares.shape == (4, 2, 3)
    whole = F.rms_norm(parts.sum(0), (8,), gain, 1e-3) @ row
    torch.testing.assert_close(shares.sum(0), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(logit_attribution(parts, gain, 1e-3, row), shares)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: previous_token_score(torch.ones(3, 4)), r"got \(3, 4\)"),
        (lambda: previous_token_score(torch.ones(4)), r"got \(4,\)"),
        (lambda: previous_token_score(torch.ones(1, 1)), "no token before it"),
        (lambda: induction_score(torch.ones(6, 6), 4), "from 2 to 3, got 4"),
        (lambda: induction_score(torch.ones(6, 6), 1), "from 2 to 3, got 1"),
        (lambda: induction_score(torch.ones(2, 5, 6), 2), r"got \(2, 5, 6\)"),
        (lambda: logit_lens(torch.ones(2, 5), lambda x: x, torch.ones(9, 4)), "width 5"),
        (lambda: logit_attribution([], torch.ones(3), 0.1, torch.ones(3)), "no parts"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()


@torch.no_grad()
def test_two_heads_of_which_each_is_enough_for_who():
    """The answer to the exercise with two heads at once, on stories of its own."""
    model, told = own_model(), held_out(60)

    def who(*heads):
        with heads_off(model, heads):
            asked = measure(model, told).questions["who"]
        assert asked.number > 100
        return asked.right

    assert min(who((0, 1)), who((0, 2)), who((0, 3))) > 0.97
    assert who((0, 1), (0, 2)) < 0.9
    for others in (((0, 1), (0, 3)), ((1, 1), (1, 2)), ((1, 2), (1, 3))):
        assert who(*others) > 0.95
