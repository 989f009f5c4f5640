"""MLA against the equations written out, against torch's attention, and in both of its forms."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_parts import mla as ours
from transformer_parts.mla import LatentCache, MultiHeadLatentAttention
from transformer_parts.rope import RotaryEmbedding, rotation_matrix

F64 = torch.float64
SIZES = {"d_model": 22, "num_heads": 3, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4}
SIZES |= {"v_head_dim": 7, "kv_lora_rank": 6}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 5e-2}
FORMS = ("forward", "forward_naive", "forward_absorbed")


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def layer_of(dtype=F64, seed=0, **changed):
    """A layer with weights of an odd size: every matrix, gain and bias matters to the result."""
    layer = MultiHeadLatentAttention(**(SIZES | changed)).to(dtype)
    for k, p in enumerate(layer.parameters()):
        p.data = (draw(seed + k, *p.shape) / p.shape[-1] ** 0.5).to(dtype)
    return layer


def rope_of(layer, dtype=F64):
    return RotaryEmbedding(layer.qk_rope_head_dim, max_seq_len=64, dtype=dtype)


def cache_of(layer, batch, max_len, dtype=F64):
    return LatentCache(batch, max_len, layer.kv_lora_rank, layer.qk_rope_head_dim, dtype=dtype)


def rms(u, norm):
    """RMSNorm from its formula, so that a layer with another norm would not pass."""
    return norm.weight * u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def written_out(layer, x, rotate=True, start=0):
    """Equations 37 to 47 of DeepSeek-V2 for one sequence (T, d_model), position by position."""
    H, d_h, rank = layer.num_heads, layer.qk_nope_head_dim, layer.kv_lora_rank
    if layer.q_lora_rank is None:
        q = F.linear(x, layer.q_proj.weight)
    else:
        down = F.linear(x, layer.q_down_proj.weight, layer.q_down_proj.bias)
        q = F.linear(rms(down, layer.q_norm), layer.q_up_proj.weight)
    q = q.view(len(x), H, -1)
    down = F.linear(x, layer.kv_down_proj.weight, layer.kv_down_proj.bias)
    up = F.linear(rms(down[:, :rank], layer.kv_norm), layer.kv_up_proj.weight)
    up, y = up.view(len(x), H, -1), []
    for i in range(len(x)):
        heads = []
        for h in range(H):
            scores = []
            for j in range(i + 1):
                key, query = down[j, rank:], q[i, h, d_h:]
                if rotate:
                    # absolute positions, turned one after the other
                    key = rotation_matrix(start + j, len(key)).to(x.dtype) @ key
                    query = rotation_matrix(start + i, len(key)).to(x.dtype) @ query
                scores.append((q[i, h, :d_h] @ up[j, h, :d_h] + query @ key) * layer.scale)
            p = torch.stack(scores).softmax(0)
            heads.append(sum(p[j] * up[j, h, d_h:] for j in range(i + 1)))
        y.append(torch.cat(heads))
    return F.linear(torch.stack(y), layer.out_proj.weight, layer.out_proj.bias)


def with_gradients(layer, f, x):
    x = x.clone().requires_grad_()
    y = f(x)
    weights = torch.linspace(-1, 2, y.numel(), dtype=F64).view_as(y).to(y.dtype)
    return y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], weights)


# --- against the equations ------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [
    {}, {"q_lora_rank": 9}, {"bias": True, "q_lora_rank": 9}, {"bias": True}, {"scale": 0.3},
    {"num_heads": 1}, {"qk_nope_head_dim": 1, "v_head_dim": 1, "qk_rope_head_dim": 2},
    {"kv_lora_rank": 1, "q_lora_rank": 1}, {"kv_lora_rank": 40},
])  # fmt: skip
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rotate", [True, False])
def test_values_and_all_gradients_are_those_of_the_equations(changed, form, rotate):
    layer, x = layer_of(**changed), draw(99, 6, SIZES["d_model"])
    tables = rope_of(layer)(torch.arange(6)) if rotate else None
    want = with_gradients(layer, lambda x: written_out(layer, x, rotate), x)
    have = with_gradients(layer, lambda x: getattr(layer, form)(x[None], tables)[0], x)
    torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    heads=st.integers(1, 4), d_h=st.integers(1, 6), pairs=st.integers(1, 3),
    d_v=st.integers(1, 6), d_c=st.integers(1, 9), d_q=st.sampled_from([None, 1, 5]),
    batch=st.integers(0, 3), length=st.integers(1, 7), seed=st.integers(0, 99),
)  # fmt: skip
def test_absorbed_is_naive_for_every_size(heads, d_h, pairs, d_v, d_c, d_q, batch, length, seed):
    layer = layer_of(
        seed=seed, num_heads=heads, qk_nope_head_dim=d_h, qk_rope_head_dim=2 * pairs,
        v_head_dim=d_v, kv_lora_rank=d_c, q_lora_rank=d_q,
    )  # fmt: skip
    x, tables = draw(seed, batch, length, 22), rope_of(layer)(torch.arange(length))
    naive = with_gradients(layer, lambda x: layer.forward_naive(x, tables), x)
    absorbed = with_gradients(layer, lambda x: layer.forward_absorbed(x, tables), x)
    assert naive[0].shape == (batch, length, 22)
    torch.testing.assert_close(absorbed, naive, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("form", FORMS)
def test_every_dtype_has_its_own_precision(dtype, form):
    exact, layer = layer_of(q_lora_rank=9), layer_of(dtype, q_lora_rank=9)
    exact.load_state_dict({k: v.double() for k, v in layer.state_dict().items()})
    x = draw(1, 2, 9, 22).to(dtype)
    want = with_gradients(
        exact, lambda x: exact.forward_naive(x, rope_of(exact)(torch.arange(9))), x.double()
    )
    have = with_gradients(
        layer, lambda x: getattr(layer, form)(x, rope_of(layer)(torch.arange(9))), x
    )
    assert all(g.dtype == dtype for g in have)
    for h, w in zip(have, want, strict=True):
        error = (h.double() - w).abs().max() / w.abs().max()
        assert error < TOLERANCE[dtype]


def test_gradcheck_knows_neither_form():
    layer = layer_of(d_model=4, num_heads=2, qk_nope_head_dim=2, qk_rope_head_dim=2, kv_lora_rank=3)
    x, tables = draw(3, 1, 3, 4).requires_grad_(), rope_of(layer)(torch.arange(3))
    assert torch.autograd.gradcheck(lambda x: layer.forward_naive(x, tables), (x,))
    assert torch.autograd.gradcheck(lambda x: layer.forward_absorbed(x, tables), (x,))


# --- against torch's attention --------------------------------------------------------------------


def test_it_is_multi_query_attention_with_one_wide_key():
    layer, x = layer_of(), draw(5, 2, 7, 22)
    cache, tables = cache_of(layer, 2, 7), rope_of(layer)(torch.arange(7))
    want = layer.forward_naive(x, tables, cache=cache)
    w_uk, w_uv = layer.absorb_weights()
    q = F.linear(x, layer.q_proj.weight).view(2, 7, 3, 9).transpose(1, 2)
    turn = torch.stack([rotation_matrix(i, 4) for i in range(7)])
    q_rope = torch.einsum("tab,nhtb->nhta", turn, q[..., 5:])
    query = torch.cat([torch.einsum("nhtd,hcd->nhtc", q[..., :5], w_uk), q_rope], -1)
    key = cache.latents[:, None]
    out = F.scaled_dot_product_attention(
        query, key, key[..., :6], is_causal=True, scale=9**-0.5, enable_gqa=True
    )
    out = torch.einsum("nhtc,hcv->nthv", out, w_uv).flatten(-2)
    torch.testing.assert_close(F.linear(out, layer.out_proj.weight), want, rtol=0, atol=1e-12)


def test_without_rotation_and_with_selecting_matrices_it_is_grouped_query_attention():
    H, G, d = 4, 2, 3
    layer = layer_of(
        d_model=10, num_heads=H, qk_nope_head_dim=d, qk_rope_head_dim=2, v_head_dim=d,
        kv_lora_rank=2 * G * d, scale=d**-0.5,
    )  # fmt: skip
    with torch.no_grad():
        layer.q_proj.weight.view(H, d + 2, 10)[:, d:] = 0  # no score from the rotated part
        up = torch.zeros(H, 2 * d, 2 * G * d, dtype=F64)
        for h in range(H):
            g = h // (H // G)
            up[h, :d, g * d : (g + 1) * d] = torch.eye(d)
            up[h, d:, (G + g) * d : (G + g + 1) * d] = torch.eye(d)
        layer.kv_up_proj.weight.copy_(up.flatten(0, 1))
        layer.kv_norm.weight.fill_(1.0)
    x = draw(7, 2, 5, 10)
    q = F.linear(x, layer.q_proj.weight).view(2, 5, H, d + 2)[..., :d].transpose(1, 2)
    c = F.rms_norm(F.linear(x, layer.kv_down_proj.weight)[..., : 2 * G * d], (2 * G * d,), eps=1e-6)
    k, v = (t.view(2, 5, G, d).transpose(1, 2) for t in c.chunk(2, -1))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    want = F.linear(out.transpose(1, 2).flatten(-2), layer.out_proj.weight)
    torch.testing.assert_close(layer.forward_absorbed(x), want, rtol=0, atol=1e-12)


# --- with a cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cuts", [(0, 8), (0, 5, 6, 7, 8), (0, 1, 8), tuple(range(9)), (0, 0, 8)])
@pytest.mark.parametrize("changed", [{}, {"q_lora_rank": 9, "bias": True}])
def test_decoding_with_a_cache_gives_the_rows_of_one_pass(form, cuts, changed):
    layer, x = layer_of(**changed), draw(11, 2, 8, 22)
    rope = rope_of(layer)
    want = torch.stack([written_out(layer, row) for row in x])
    cache, parts = cache_of(layer, 2, 8), []
    with torch.no_grad():
        for a, b in pairwise(cuts):
            tables = rope(torch.arange(a, b))
            parts.append(getattr(layer, form)(x[:, a:b], tables, cache=cache))
    assert cache.length == 8
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=0, atol=1e-12)


def test_positions_count_from_the_start_and_only_their_distance_matters():
    layer, x = layer_of(), draw(12, 1, 6, 22)
    first = layer(x, rope_of(layer)(torch.arange(6)))
    later = layer(x, rope_of(layer)(torch.arange(30, 36)))
    torch.testing.assert_close(first, later, rtol=0, atol=1e-12)
    assert (first - layer(x, rope_of(layer)(2 * torch.arange(6)))).abs().max() > 1e-3
    per_row = rope_of(layer)(torch.tensor([[0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9]]))
    both = layer(x.expand(2, -1, -1), per_row)
    torch.testing.assert_close(both, first.expand(2, -1, -1), rtol=0, atol=1e-12)


def test_the_cache_holds_the_finished_latent_and_the_turned_key_and_no_more():
    layer, x = layer_of(), draw(13, 2, 5, 22)
    cache = cache_of(layer, 2, 7)
    layer(x, rope_of(layer)(torch.arange(5)), cache=cache)
    assert cache.latents.shape == (2, 7, 6 + 4)
    assert cache.latents[:, :5].numel() == 2 * 5 * ours.mla_cache_elements(1, 6, 4)
    down = F.linear(x, layer.kv_down_proj.weight)
    keys = [rotation_matrix(i, 4) @ down[:, i, 6:].mT for i in range(5)]
    latents = rms(down[..., :6], layer.kv_norm)
    torch.testing.assert_close(cache.latents[:, :5, :6], latents, rtol=0, atol=1e-12)
    turned = torch.stack(keys).permute(2, 0, 1)
    torch.testing.assert_close(cache.latents[:, :5, 6:], turned, rtol=0, atol=1e-12)


def test_the_cheaper_form_is_taken(monkeypatch):
    layer, taken = layer_of(), []
    for form in FORMS[1:]:
        original = getattr(MultiHeadLatentAttention, form)

        def spy(self, *args, _form=form, _original=original):
            taken.append(_form)
            return _original(self, *args)

        monkeypatch.setattr(MultiHeadLatentAttention, form, spy)
    cache, x = cache_of(layer, 1, 60), draw(14, 1, 60, 22)
    layer(x)
    for a, b in ((0, 20), (20, 21), (21, 41), (41, 60)):
        naive, absorbed = ours.mla_attention_flops(b - a, b, 3, 5, 4, 7, 6)
        layer(x[:, a:b], cache=cache)
        assert taken[-1] == ("forward_absorbed" if absorbed < naive else "forward_naive")
    assert taken[:3] == ["forward_naive", "forward_naive", "forward_absorbed"]


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 6), (3, 6, 6), (1, 6, 6), (2, 1, 6, 6), (2, 3, 6, 6),
                                   (1, 1, 1, 6), (2, 1, 1, 6)])  # fmt: skip
@pytest.mark.parametrize("boolean", [True, False])
def test_a_mask_says_everything_and_the_same_to_both_forms(shape, boolean):
    layer, x = layer_of(), draw(15, 2, 6, 22)
    mask = draw(16, *shape)
    if boolean:
        mask = (mask > 0).index_fill(-1, torch.tensor([0]), True)
    both = [getattr(layer, form)(x, attn_mask=mask) for form in FORMS]
    torch.testing.assert_close(both[1], both[2], rtol=0, atol=1e-12)
    assert torch.equal(both[0], both[1])
    causal = layer(x)
    assert (both[0] - causal).abs().max() > 1e-3  # the mask replaces the causal one


def test_a_mask_with_a_cache_covers_all_positions():
    layer, x = layer_of(), draw(17, 2, 6, 22)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    mask[5, 1:3] = False
    want = layer(x, attn_mask=mask)[:, 4:]
    for form in FORMS:
        cache = cache_of(layer, 2, 6)
        layer(x[:, :4], cache=cache)
        have = getattr(layer, form)(x[:, 4:], attn_mask=mask[4:], cache=cache)
        torch.testing.assert_close(have, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_no_position_sees_a_later_one(form):
    layer, x = layer_of(), draw(18, 1, 7, 22).requires_grad_()
    y = getattr(layer, form)(x, rope_of(layer)(torch.arange(7)))
    for i in range(7):
        (g,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        assert (g[0, i + 1 :] == 0).all()
        assert (g[0, : i + 1] != 0).any(-1).all()


def test_a_row_that_may_attend_to_nothing_gives_the_bias():
    layer, x = layer_of(bias=True), draw(19, 1, 3, 22)
    nothing = torch.zeros(3, 3, dtype=torch.bool)
    for form in FORMS:
        y = getattr(layer, form)(x, attn_mask=nothing)
        torch.testing.assert_close(y, layer.out_proj.bias.expand(1, 3, -1))


# --- parameters -----------------------------------------------------------------------------------


def test_the_parameters_are_those_of_a_deepseek_checkpoint():
    with torch.device("meta"):
        layer = MultiHeadLatentAttention(5120, 128, 128, 64, 128, 512, 1536)
        short = MultiHeadLatentAttention(2048, 16, 128, 64, 128, 512)
        biased = MultiHeadLatentAttention(8, 2, 3, 2, 5, 4, 6, bias=True)
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {
        "q_down_proj.weight": (1536, 5120),
        "q_norm.weight": (1536,),
        "q_up_proj.weight": (128 * 192, 1536),
        "kv_down_proj.weight": (576, 5120),
        "kv_norm.weight": (512,),
        "kv_up_proj.weight": (128 * 256, 512),
        "out_proj.weight": (5120, 128 * 128),
    }
    assert sum(p.numel() for p in layer.parameters()) == 149_227_520
    names = {name for name, _ in short.named_parameters()}
    assert names == {"q_proj.weight", *(k for k in shapes if not k.startswith("q_"))}
    assert {name for name, _ in biased.named_parameters() if "bias" in name} == {
        "q_down_proj.bias", "kv_down_proj.bias", "out_proj.bias"
    }  # fmt: skip
    assert layer.scale == short.scale == 192**-0.5
    assert layer.q_norm.eps == layer.kv_norm.eps == 1e-6
    assert MultiHeadLatentAttention(**SIZES, scale=0.5, eps=1e-5).kv_norm.eps == 1e-5


def test_absorb_weights_are_views_of_the_way_up():
    layer, c = layer_of(), draw(20, 4, 6)
    w_uk, w_uv = layer.absorb_weights()
    assert w_uk.shape == (3, 6, 5)
    assert w_uv.shape == (3, 6, 7)
    up = F.linear(c, layer.kv_up_proj.weight).view(4, 3, 12).transpose(0, 1)
    torch.testing.assert_close(c @ w_uk, up[..., :5], rtol=0, atol=1e-12)
    torch.testing.assert_close(c @ w_uv, up[..., 5:], rtol=0, atol=1e-12)
    storage = layer.kv_up_proj.weight.untyped_storage().data_ptr()
    assert {w.untyped_storage().data_ptr() for w in (w_uk, w_uv)} == {storage}


# --- the two counts -------------------------------------------------------------------------------


def test_cache_elements_are_those_of_the_paper():
    assert ours.mla_cache_elements(60, 512, 64) == 34_560
    assert ours.mla_cache_elements(1, 6, 4) == 10


@pytest.mark.parametrize(
    "sizes", [(3, 11, 3, 8, 4, 6, 12), (1, 9, 2, 5, 2, 3, 4), (5, 5, 1, 1, 2, 1, 7)]
)
def test_flops_are_those_that_torch_counts(sizes):
    t, s, heads, d_h, d_r, d_v, d_c = sizes
    c, k, q_r = draw(0, s, d_c), draw(1, heads, s, d_r), draw(2, heads, t, d_r)
    q, w_uk, w_uv = draw(3, heads, t, d_h), draw(4, heads, d_c, d_h), draw(5, heads, d_c, d_v)
    with FlopCounterMode(display=False) as naive:
        ((q @ (c @ w_uk).mT + q_r @ k.mT).softmax(-1)) @ (c @ w_uv)
    with FlopCounterMode(display=False) as absorbed:
        ((q @ w_uk.mT @ c.T + q_r @ k.mT).softmax(-1) @ c) @ w_uv
    counted = (naive.get_total_flops(), absorbed.get_total_flops())
    assert ours.mla_attention_flops(*sizes) == counted


def test_flops_of_deepseek_v2():
    sizes = (128, 128, 64, 128, 512)
    more = [ours.mla_attention_flops(1, s, *sizes) for s in (1000, 1001)]
    assert more[1][1] - more[0][1] == 278_528
    assert more[1][0] - more[0][0] == 33_554_432 + 81_920


# --- the cache by itself, and errors --------------------------------------------------------------


def test_update_appends_and_returns_views_of_everything():
    cache = LatentCache(2, 5, 3, 2, dtype=F64)
    assert cache.length == 0
    assert cache.latents.dtype == F64
    c, k = draw(0, 2, 5, 3), draw(1, 2, 5, 2)
    for a, b in ((0, 2), (2, 2), (2, 5)):
        all_c, all_k = cache.update(c[:, a:b], k[:, a:b])
        assert torch.equal(all_c, c[:, :b])
        assert torch.equal(all_k, k[:, :b])
        assert cache.length == b
    assert all_c.untyped_storage().data_ptr() == cache.latents.untyped_storage().data_ptr()


@pytest.mark.parametrize(("c", "k", "message"), [
    ((2, 1, 4), (2, 1, 2), r"c must have shape \(2, T, 3\), got \(2, 1, 4\)"),
    ((1, 1, 3), (1, 1, 2), r"c must have shape \(2, T, 3\), got \(1, 1, 3\)"),
    ((2, 3), (2, 2), r"c must have shape \(2, T, 3\), got \(2, 3\)"),
    ((2, 1, 3), (2, 1, 3), r"k_rope must have shape \(2, 1, 2\), got \(2, 1, 3\)"),
    ((2, 1, 3), (2, 2, 2), r"k_rope must have shape \(2, 1, 2\), got \(2, 2, 2\)"),
    ((2, 4, 3), (2, 4, 2), r"room for 5 positions, got 6"),
])  # fmt: skip
def test_the_cache_refuses_what_does_not_fit_and_stays_as_it_was(c, k, message):
    cache = LatentCache(2, 5, 3, 2, dtype=F64)
    cache.update(draw(0, 2, 2, 3), draw(1, 2, 2, 2))
    before = cache.latents[:, :2].clone()
    with pytest.raises(ValueError, match=message):
        cache.update(draw(2, *c), draw(3, *k))
    assert cache.length == 2
    assert torch.equal(cache.latents[:, :2], before)


@pytest.mark.parametrize(("c", "k", "message"), [
    (torch.float32, F64, "c must be torch.float64 on cpu as the cache, got torch.float32"),
    (F64, torch.bfloat16, "k_rope must be torch.float64 on cpu as the cache, got torch.bfloat16"),
])  # fmt: skip
def test_the_cache_has_one_dtype(c, k, message):
    cache = LatentCache(2, 5, 3, 2, dtype=F64)
    with pytest.raises(ValueError, match=message):
        cache.update(draw(0, 2, 1, 3).to(c), draw(1, 2, 1, 2).to(k))
    assert cache.length == 0


@pytest.mark.parametrize("sizes", [(-1, 5, 3, 2), (2, 0, 3, 2), (2, 5, 0, 2), (2, 5, 3, 0)])
def test_the_sizes_of_a_cache_are_positive(sizes):
    with pytest.raises(ValueError, match="must be positive, got"):
        LatentCache(*sizes)


def test_a_cache_says_how_much_room_and_memory_it_has():
    cache = LatentCache(2, 5, 3, 4, dtype=torch.bfloat16)
    assert cache.max_len == 5
    assert cache.nbytes == 2 * 5 * (3 + 4) * 2
    assert LatentCache(0, 5, 3, 4).nbytes == 0


@torch.no_grad()
def test_tokens_can_be_taken_back_and_others_tried():
    layer, x, other = layer_of(), draw(0, 2, 6, 22), draw(1, 2, 1, 22)
    cache = cache_of(layer, 2, 6)
    layer(x[:, :4], cache=cache)
    layer(x[:, 4:5], cache=cache)
    cache.truncate(4)
    got = layer(other, cache=cache)
    want = layer(torch.cat([x[:, :4], other], 1))[:, 4:]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    for length in (-1, 6):
        with pytest.raises(ValueError, match=f"length must be from 0 to 5, got {length}"):
            cache.truncate(length)
    assert cache.length == 5


def test_a_cache_that_is_reset_serves_again_with_gradients():
    layer, x = layer_of(), draw(0, 2, 3, 22)
    cache = cache_of(layer, 2, 3)
    for _ in range(2):
        layer.zero_grad()
        layer(x, cache=cache).sum().backward()
        found = layer.kv_down_proj.weight.grad.clone()
        cache.reset()
        assert cache.length == 0
    layer.zero_grad()
    layer(x).sum().backward()
    torch.testing.assert_close(found, layer.kv_down_proj.weight.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 21), (2, 1, 5, 22)])
def test_x_has_three_dimensions_and_d_model_features(form, shape):
    with pytest.raises(ValueError, match=r"x must have shape \(B, T, 22\), got"):
        getattr(layer_of(), form)(draw(0, *shape))


@pytest.mark.parametrize("name", [*SIZES, "q_lora_rank"])
def test_sizes_are_at_least_one(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        MultiHeadLatentAttention(**(SIZES | {name: 0}))


def test_the_rotated_part_is_made_of_pairs():
    with pytest.raises(ValueError, match="qk_rope_head_dim must be even, got 3"):
        MultiHeadLatentAttention(**(SIZES | {"qk_rope_head_dim": 3}))


def test_only_the_learned_is_in_the_state_dict():
    layer = layer_of(q_lora_rank=9)
    assert set(layer.state_dict()) == {name for name, _ in layer.named_parameters()}
    assert isinstance(layer, nn.Module)
