"""Each variant of the model lacks what it says, and nothing else."""

import functools
import json
import math

import pytest
import torch

from book.own import FOLDER, ablations, made
from book.own.measure import held_out
from book.own.recipe import Recipe, new_model
from book.own.without import SEEDS, STEPS, VARIANTS, run, start
from book.own.without import new as variant_of
from book.stories import surprise

TOKENS = torch.tensor([[1, 5, 9, 5, 30, 31, 32]])


def changed(name):
    recipe, model = variant_of(name, seed=0)
    return model, recipe


def test_the_whole_is_the_model_itself():
    model, recipe = changed("whole")
    assert torch.equal(model(TOKENS), new_model(Recipe())(TOKENS))
    assert recipe.steps == STEPS


@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in ("whole", "muon")])
def test_each_variant_computes_something_else(name):
    model, _ = changed(name)
    assert not torch.allclose(model(TOKENS), changed("whole")[0](TOKENS), atol=1e-3)


def test_without_norms_the_output_grows_with_the_embedding():
    model, _ = changed("norm")
    small = model(TOKENS)
    with torch.no_grad():
        model.embed.weight.mul_(30)
    assert model(TOKENS).norm() > 100 * small.norm()


def test_without_the_stream_a_branch_of_zero_leaves_nothing():
    model, _ = changed("residual")
    with torch.no_grad():
        model.layers[1].ffn.sublayer.w_down.weight.zero_()
    assert model.hidden_states(TOKENS).abs().max() == 0


def test_without_positions_the_past_is_a_set():
    model, _ = changed("positions")
    # A second layer learns from the causal mask how many tokens were before each.
    model.layers = model.layers[:1]
    other = TOKENS[:, [0, 3, 2, 1, 5, 4, 6]]
    torch.testing.assert_close(model(TOKENS)[:, -1], model(other)[:, -1], atol=1e-5, rtol=0)


def test_without_feed_forward_layers_none_is_left():
    names = [name for name, _ in changed("feed-forward")[0].named_parameters()]
    assert not any(".ffn." in name for name in names)


def test_without_the_root_scores_are_larger_by_it():
    with_root, without = changed("whole")[0], changed("root")[0]
    x = torch.randn(1, 3, 128)
    plain = with_root.layers[0].attn.sublayer.q_proj(x)
    assert torch.allclose(without.layers[0].attn.sublayer.q_proj(x), plain * 32**0.5)


def test_the_sizes_of_the_others():
    assert changed("heads")[0].config.d_head == 128
    assert len(changed("layer")[0].layers) == 1
    assert changed("common")[1].common == 0
    assert changed("muon")[1].optimizer == "adamw"


def test_a_run_says_what_came_out():
    one = run("whole", seed=1, steps=2)
    assert one["seed"] == 1
    assert one["loss"] > one["excess"] > 3
    assert one["right"].keys() == made()["questions"].keys()


# ---- what is stored


def test_every_variant_was_run_with_every_seed():
    stored = json.loads((FOLDER / "without.json").read_text(encoding="utf-8"))
    assert stored["steps"] == STEPS
    assert {n: v["says"] for n, v in stored["variants"].items()} == {
        n: v.says for n, v in VARIANTS.items()
    }
    for name, runs in ablations().items():
        assert [one["seed"] for one in runs] == list(SEEDS), name
        for one in runs:
            assert set(one["right"]) == set(made()["questions"])
            assert len(one["curve"]) == STEPS // 100
            # All were measured on the same stories, whose floor is known.
            assert one["loss"] - one["excess"] == pytest.approx(floor(), abs=1e-3)


@functools.cache
def floor():
    texts = held_out()
    surprises = [s for text in texts for s in surprise(text.words)]
    return math.fsum(surprises) / len(surprises)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_stored_run_began_as_the_variant_does(name):
    stored = ablations()[name][1]
    assert start(name, stored["seed"]) == pytest.approx(stored["start"], abs=2e-3)


def test_the_whole_model_is_the_best_but_for_chance():
    means = {
        name: sum(one["excess"] for one in runs) / len(runs) for name, runs in ablations().items()
    }
    assert min(means, key=means.get) == "whole"
