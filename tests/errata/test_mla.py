"""What people get wrong about multi-head latent attention: wrong forms fail, right ones hold."""

import pytest
import torch
import torch.nn.functional as F

from transformer_parts.mla import (
    LatentCache,
    MultiHeadLatentAttention,
    mla_attention_flops,
    mla_cache_elements,
)
from transformer_parts.rope import RotaryEmbedding, rotation_matrix


def gap(a, b):
    return (a - b).abs().max().item()


def layer_and_rope(**sizes):
    given = {"d_model": 32, "num_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
    given |= {"v_head_dim": 8, "kv_lora_rank": 12, "q_lora_rank": 16}
    layer = MultiHeadLatentAttention(**(given | sizes))
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5)
    return layer, RotaryEmbedding(4, max_seq_len=32, dtype=torch.float64)


def test_e116_the_matrices_store_nothing_and_queries_are_not_cached():
    layer, rope = layer_and_rope()
    cache, x = LatentCache(1, 9, 12, 4), torch.randn(1, 9, 32)
    before = {name: p.clone() for name, p in layer.named_parameters()}
    with torch.no_grad():
        full = layer(x, rope(torch.arange(9)))
        steps = [
            layer(x[:, i : i + 1], rope(torch.arange(i, i + 1)), cache=cache) for i in range(9)
        ]
    assert gap(torch.cat(steps, 1), full) < 1e-12
    # The matrices are as before; per token the cache grew by a latent and one shared key.
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())
    assert cache.latents[0, : cache.length].numel() == 9 * (12 + 4)
    # Nothing in the cache depends on a matrix that makes queries.
    again = LatentCache(1, 9, 12, 4)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.startswith("q_"):
                p.normal_()
        changed = layer(x, rope(torch.arange(9)), cache=again)
    assert gap(changed, full) > 0.1
    assert gap(again.latents, boxed(layer, rope, x)) < 1e-12
    assert gap(again.latents, cache.latents) < 1e-12


def boxed(layer, rope, x):
    """The two boxed equations, from the residual stream."""
    down = F.linear(x, layer.kv_down_proj.weight)
    c = layer.kv_norm(down[..., :12])
    cos, sin = rope(torch.arange(x.shape[1]))
    a, b = down[..., 12::2], down[..., 13::2]
    return torch.cat([c, torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)], -1)


def test_e117_rope_can_follow_the_way_up_but_then_no_matrix_can_be_absorbed():
    d_model, d_h, d_c = 12, 8, 6
    w_q, w_uk = torch.randn(d_model, d_h) / 4, torch.randn(d_c, d_h) / 4
    x, c = torch.randn(20, d_model), torch.randn(20, d_c)
    R = {m: rotation_matrix(m, d_h) for m in range(-20, 20)}

    def score(i, j):
        return (x[i] @ w_q @ R[i].T) @ (c[j] @ w_uk @ R[j].T)

    merged = {t: w_q @ R[t] @ w_uk.T for t in range(-19, 20)}
    # It can be done, and the score does depend on the distance alone ...
    for i, j in ((5, 2), (12, 9), (0, 7), (3, 3)):
        assert abs(score(i, j) - x[i] @ merged[j - i] @ c[j]) < 1e-12
    # ... but through another matrix for each distance, so that one matrix is wrong.
    assert gap(merged[1], merged[0]) > 0.1
    assert gap(merged[5], merged[1]) > 0.1
    assert abs(score(5, 2) - x[5] @ merged[0] @ c[2]) > 0.05
    # The rotation would have to commute with the up-projection; for square matrices one can ask.
    square = torch.randn(d_h, d_h)
    assert gap(square @ R[1].T, R[1].T @ square) > 0.5
    # The decoupled layer has position, and absorbs.
    layer, rope = layer_and_rope()
    x = torch.randn(1, 6, 32)
    near, far = rope(torch.arange(6)), rope(3 * torch.arange(6))
    assert gap(layer.forward_naive(x, near), layer.forward_absorbed(x, near)) < 1e-12
    assert gap(layer.forward_naive(x, near), layer.forward_naive(x, far)) > 1e-2


def test_e118_absorption_is_an_identity_low_rank_is_not_and_only_decoding_is_wide():
    layer, rope = layer_and_rope()
    x, tables = torch.randn(2, 7, 32), rope(torch.arange(7))
    assert gap(layer.forward_naive(x, tables), layer.forward_absorbed(x, tables)) < 1e-12
    # Keys of four heads of eight features could have rank 32. These have the latent's.
    w_uk, _ = layer.absorb_weights()
    latents = torch.randn(100, 12)
    keys = torch.cat([latents @ w for w in w_uk], -1)
    assert keys.shape[-1] == 32
    assert torch.linalg.matrix_rank(keys) == 12
    # The scale belongs to the narrow rows; a library's default for the wide ones is wrong.
    cache = LatentCache(2, 7, 12, 4)
    want = layer.forward_naive(x, tables, cache=cache)
    narrow = layer.scale
    assert narrow == (8 + 4) ** -0.5
    layer.scale = (12 + 4) ** -0.5
    assert gap(layer.forward_absorbed(x, tables), want) > 1e-2
    # 3.4 times the arithmetic per pair, in the absorbed form only.
    sizes = (128, 128, 64, 128, 512)
    pair = [
        b - a for a, b in zip(*(mla_attention_flops(1, s, *sizes) for s in (8, 9)), strict=True)
    ]
    ready = 2 * 128 * (128 + 64 + 128)
    assert (pair[1], ready) == (278_528, 81_920)
    assert pair[1] / ready == pytest.approx(3.4)
    naive, absorbed = mla_attention_flops(4096, 4096, *sizes)
    assert absorbed > 3 * naive  # a prompt takes the narrow form
    naive, absorbed = mla_attention_flops(1, 4096, *sizes)
    assert absorbed < naive / 100  # a token the wide one


def test_e120_how_much_the_cache_shrinks_depends_on_what_it_is_compared_with():
    v2 = mla_cache_elements(60, 512, 64)
    assert v2 == 34_560
    assert 1 - v2 / (95 * 2 * 8 * 128) == pytest.approx(0.822, abs=5e-4)  # DeepSeek 67B
    assert v2 / (60 * 2 * 128 * 128) == pytest.approx(0.0176, abs=5e-5)  # MHA, the same heads
    assert v2 / (60 * 2 * 128) == 2.25  # groups of GQA
    # Parameters fall as well, in this layer by more than half.
    with torch.device("meta"):
        layer = MultiHeadLatentAttention(5120, 128, 128, 64, 128, 512, 1536)
    count = sum(p.numel() for p in layer.parameters())
    assert count / (4 * 5120 * 128 * 128) == pytest.approx(0.445, abs=5e-4)


def test_p8_the_93_percent_need_six_bits_and_another_model(evidence):
    v2, dense = mla_cache_elements(60, 512, 64), 95 * 2 * 8 * 128
    assert dense == 194_560
    evidence(v2)
    assert 1 - v2 * 6 / (dense * 16) == pytest.approx(0.9334, abs=5e-5)
    assert 1 - v2 / dense == pytest.approx(0.8224, abs=5e-5)  # without the bits
    grouped = 60 * 2 * 8 * 128  # the latent replaced by eight groups, the rest kept
    assert 1 - grouped * 6 / (dense * 16) == pytest.approx(0.763, abs=5e-4)
