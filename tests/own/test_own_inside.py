"""What is read from inside the model is what it computes."""

import pytest
import torch

from book.own import encode, own_model
from book.own.inside import attention_maps, heads_off
from book.own.measure import held_out
from transformer_parts.attention import merge_heads, split_heads

TOKENS = torch.tensor([encode(held_out(1)[0].words)])


@pytest.fixture(scope="module")
def model():
    return own_model()


@torch.no_grad()
def test_the_maps_make_the_layers_outputs(model):
    maps = attention_maps(model, TOKENS)
    for block, weights in zip(model.layers, maps, strict=True):
        attention = block.attn.sublayer
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert (weights.triu(1) == 0).all()
        seen = {}
        hook = attention.register_forward_hook(lambda _, x, y, s=seen: s.update(x=x[0], y=y))
        model(TOKENS)
        hook.remove()
        values = split_heads(attention.v_proj(seen["x"]), attention.num_kv_heads)
        made = attention.out_proj(merge_heads(weights @ values))
        torch.testing.assert_close(made, seen["y"], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_heads_that_are_off_come_back(model):
    before = model(TOKENS)
    with heads_off(model, [(0, 1)]) as without:
        assert not torch.allclose(without(TOKENS), before, atol=1e-2)
    assert torch.equal(model(TOKENS), before)


@torch.no_grad()
def test_all_heads_of_a_layer_off_are_no_attention(model):
    seen = {}
    hook = model.layers[1].attn.sublayer.register_forward_hook(lambda _, x, y: seen.update(y=y))
    with heads_off(model, [(1, h) for h in range(model.config.num_heads)]):
        model(TOKENS)
    hook.remove()
    assert seen["y"].abs().max() == 0


def test_a_head_that_is_not_there_is_named(model):
    with pytest.raises(ValueError, match=r"\(2, 0\) is no head"), heads_off(model, [(2, 0)]):
        pass
