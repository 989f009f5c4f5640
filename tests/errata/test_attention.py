"""What people get wrong about attention: each wrong form fails, the right one holds."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def gap(a, b):
    return (a - b).abs().max().item()


def separate_heads(module, x):
    """The outputs of the heads of an `nn.MultiheadAttention`, before W_O: (H, T, d_head)."""
    q, k, v = (
        (x @ w.T).view(len(x), module.num_heads, -1).transpose(0, 1)
        for w in module.in_proj_weight.detach().chunk(3)
    )
    return F.scaled_dot_product_attention(q, k, v)


def test_e45_concatenated_heads_are_still_to_be_mixed():
    module = nn.MultiheadAttention(32, 4, bias=False, batch_first=True)
    x = torch.randn(10, 32)
    right = module(x[None], x[None], x[None])[0][0]
    heads = separate_heads(module, x)
    concatenated = heads.transpose(0, 1).flatten(1)
    assert gap(concatenated, right) > 0.1
    w_o = module.out_proj.weight.detach().T
    assert gap(concatenated @ w_o, right) < 1e-14
    # The product with W_O is a sum over heads, each with its own block of rows.
    blocks = w_o.view(4, 8, 32)
    assert gap(sum(z @ w for z, w in zip(heads, blocks, strict=True)), right) < 1e-14


def test_e87_heads_stand_side_by_side_and_have_their_own_matrices():
    module = nn.MultiheadAttention(512, 8, bias=False, batch_first=True)
    x = torch.randn(10, 512)
    heads = separate_heads(module, x)
    w_o = module.out_proj.weight.detach().T
    stacked = torch.cat(tuple(heads), dim=0)
    assert stacked.shape == (80, 64)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        stacked @ w_o
    side_by_side = torch.cat(tuple(heads), dim=1)
    assert side_by_side.shape == (10, 512)
    right = module(x[None], x[None], x[None])[0][0]
    assert gap(side_by_side @ w_o, right) < 1e-13
    # Without a head index there is one Q and one K, of full width: another function.
    q, k, v = (x @ w.T for w in module.in_proj_weight.detach().chunk(3))
    assert gap(F.scaled_dot_product_attention(q, k, v) @ w_o, right) > 0.01


def test_e94_a_mask_is_added_before_the_softmax_and_torch_has_two_conventions():
    scores, causal = torch.randn(5, 5), torch.ones(5, 5, dtype=torch.bool).tril()
    right = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    assert gap(right.sum(-1), torch.ones(5)) < 1e-15
    assert right[~causal].max() == 0
    # Scores times the mask: a forbidden key keeps the weight of exp(0).
    assert (scores * causal).softmax(-1)[~causal].min() > 0.02
    # Weights times the mask: the rows no longer sum to one.
    sums = (scores.softmax(-1) * causal).sum(-1)
    assert sums[0] < 0.5
    assert sums[-1] == pytest.approx(1)

    # The same boolean mask means opposite things; both have a key in every row.
    x = torch.randn(1, 5, 8)
    mask = (torch.arange(5)[:, None] + torch.arange(5)) % 2 == 0
    module = nn.MultiheadAttention(8, 1, bias=False, batch_first=True)
    z = separate_heads(module, x[0])
    assert z.shape == (1, 5, 8)
    q, k, v = (x @ w.T for w in module.in_proj_weight.detach().chunk(3))
    w_o = module.out_proj.weight.detach().T
    by_function = F.scaled_dot_product_attention(q, k, v, attn_mask=mask) @ w_o
    assert gap(module(x, x, x, attn_mask=mask)[0], by_function) > 0.1
    assert gap(module(x, x, x, attn_mask=~mask)[0], by_function) < 1e-14

    # Nothing allowed: 0 from the function; nan or 0 from the module, by path.
    nobody = torch.zeros(5, 5, dtype=torch.bool)
    assert (F.scaled_dot_product_attention(q, k, v, attn_mask=nobody) == 0).all()
    module = nn.MultiheadAttention(8, 2, batch_first=True)  # the fast path takes even numbers only
    assert module(x, x, x, attn_mask=~nobody)[0].isnan().all()
    assert (module(x, x, x, attn_mask=~nobody, need_weights=False)[0] == 0).all()
    module.eval()
    with torch.no_grad():
        assert module(x, x, x, attn_mask=~nobody, need_weights=False)[0].isnan().all()

    # One new query, five keys: top-left alignment lets it see the oldest key only.
    newest = F.scaled_dot_product_attention(q[:, -1:], k, v, is_causal=True)
    assert gap(newest, v[:, :1]) < 1e-15
    last_row = F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, -1:]
    assert gap(newest, last_row) > 0.1
    assert gap(F.scaled_dot_product_attention(q[:, -1:], k, v), last_row) < 1e-14
