"""Each variant of the model lacks what it says, and nothing else."""

import pytest
import torch

from book.own.recipe import Recipe, new_model
from book.own.without import STEPS, VARIANTS, run
from book.own.without import new as variant_of

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
    assert one["right"].keys() == run("heads", seed=0, steps=1)["right"].keys()
