"""Grouped-query attention against torch's operators, the cache, and the cache law."""

import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_parts.attention import MultiHeadAttention, causal_mask
from transformer_parts.kv_cache import (
    GroupedQueryAttention,
    KVCache,
    attention_intensity,
    causal_padding_mask,
    check_cache_law,
    kv_cache_bytes_per_token,
    mha_to_gqa,
    padding_position_ids,
    repeat_kv,
)
from transformer_parts.long_context import alibi_bias, yarn_frequencies
from transformer_parts.rope import RotaryEmbedding
from transformer_parts.tensors import assert_parity

F64 = torch.float64
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def make(*args, dtype=F64, **options):
    torch.manual_seed(0)
    layer = GroupedQueryAttention(*args, **options)
    for p in layer.parameters():  # gains and biases too, so that they show
        nn.init.normal_(p, std=0.4)
    return layer.to(dtype)


def by_hand(layer, x, mask=None):
    """Heads one by one in float64, with softmax written out."""
    x, (b, t) = x.double(), x.shape[:2]
    h, g, d = layer.num_heads, layer.num_kv_heads, layer.head_dim
    allowed = torch.ones(t, t).tril().bool() if mask is None else mask
    allowed = allowed.expand(b, h, t, t)

    def project(linear, heads):
        bias = None if linear.bias is None else linear.bias.double()
        return F.linear(x, linear.weight.double(), bias).reshape(b, t, heads, d)

    q, k, v = project(layer.q_proj, h), project(layer.k_proj, g), project(layer.v_proj, g)
    if layer.q_norm is not None:
        q = F.rms_norm(q, (d,), layer.q_norm.weight.double(), layer.q_norm.eps)
        k = F.rms_norm(k, (d,), layer.k_norm.weight.double(), layer.k_norm.eps)
    heads = []
    for i in range(h):
        scores = torch.einsum("btd,bsd->bts", q[:, :, i], k[:, :, i // (h // g)]) / d**0.5
        if allowed.dtype == torch.bool:
            e = scores.exp() * allowed[:, i]
        else:
            e = (scores + allowed[:, i]).exp()
        total = e.sum(-1, keepdim=True)
        weights = e / total.where(total > 0, 1.0)
        heads.append(weights @ v[:, :, i // (h // g)])
    bias = None if layer.out_proj.bias is None else layer.out_proj.bias.double()
    return F.linear(torch.cat(heads, -1), layer.out_proj.weight.double(), bias)


# --- helpers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rep", [1, 3])
def test_repeat_kv_puts_copies_side_by_side(n_rep):
    x = draw(0, 2, 3, 5, 4)
    assert_parity(partial(repeat_kv, n_rep=n_rep), lambda x: x.repeat_interleave(n_rep, 1), x)
    assert repeat_kv(x[:, :, :0], n_rep).shape == (2, 3 * n_rep, 0, 4)
    with pytest.raises(
        ValueError, match=r"x must have shape \(B, G, S, head_dim\), got \(3, 5, 4\)"
    ):
        repeat_kv(x[0], n_rep)
    with pytest.raises(ValueError, match="n_rep must be at least 1, got 0"):
        repeat_kv(x, 0)


TOKENS = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]]).bool()


@pytest.mark.parametrize("t", [0, 1, 3, 5])
def test_causal_padding_mask_is_causal_and_sees_tokens_only(t):
    mask = causal_padding_mask(TOKENS, t)
    assert mask.shape == (4, 1, t, 5)
    assert mask.dtype == torch.bool
    for b, i, j in itertools.product(range(4), range(t), range(5)):
        assert mask[b, 0, i, j] == (TOKENS[b, j] and j <= 5 - t + i)
    assert torch.equal(causal_padding_mask(TOKENS), causal_padding_mask(TOKENS, 5))


def test_padding_position_ids_count_tokens():
    got = padding_position_ids(TOKENS)
    assert got.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 1, 2, 2], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("helper", [causal_padding_mask, padding_position_ids])
@pytest.mark.parametrize("bad", [TOKENS[0], TOKENS.long(), TOKENS[None]])
def test_helpers_name_a_bad_tokens_argument(helper, bad):
    with pytest.raises(ValueError, match=r"tokens must be boolean of shape \(B, S\), got"):
        helper(bad)


@pytest.mark.parametrize("t", [-1, 6])
def test_causal_padding_mask_refuses_an_impossible_length(t):
    with pytest.raises(ValueError, match=f"query_len must be from 0 to S=5, got {t}"):
        causal_padding_mask(TOKENS, t)


class Written(TorchDispatchMode):
    """The sizes of what is written to memory: new tensors and copies, but not views."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        old = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        in_place = func is torch.ops.aten.copy_.default
        for o in out if isinstance(out, tuple | list) else (out,):
            if isinstance(o, torch.Tensor) and (
                in_place or o.untyped_storage().data_ptr() not in old
            ):
                self.sizes.append(o.numel())
        return out


# --- the cache ------------------------------------------------------------------------------------


def test_the_cache_appends_in_place_and_returns_views():
    cache = KVCache(2, 3, 7, 4, dtype=F64)
    k, v = draw(0, 2, 3, 7, 4), draw(1, 2, 3, 7, 4)
    where = cache.keys.data_ptr(), cache.values.data_ptr()
    end = 0
    for size in (2, 0, 1, 4):
        new = slice(end, end + size)
        end += size
        keys, values = cache.update(k[:, :, new], v[:, :, new])
        assert cache.length == end
        assert torch.equal(keys, k[:, :, :end])
        assert torch.equal(values, v[:, :, :end])
        assert (keys.data_ptr(), values.data_ptr()) == where
    assert cache.max_len == 7
    assert cache.nbytes == 2 * 2 * 3 * 7 * 4 * 8


def test_an_update_copies_only_what_is_new():
    cache = KVCache(1, 1, 1000, 4, dtype=F64)
    cache.update(draw(0, 1, 1, 900, 4), draw(1, 1, 1, 900, 4))
    one = draw(2, 1, 1, 1, 4)
    with Written() as written:
        cache.update(one, one)
    assert written.sizes == [4, 4]  # the new key and the new value


BAD = {
    "another batch": ((3, 3, 1, 4), (3, 3, 1, 4), F64, F64),
    "a batch of one, which would broadcast": ((1, 3, 1, 4), (1, 3, 1, 4), F64, F64),
    "another number of heads": ((2, 6, 1, 4), (2, 6, 1, 4), F64, F64),
    "one head, which would broadcast": ((2, 1, 1, 4), (2, 1, 1, 4), F64, F64),
    "another head_dim": ((2, 3, 1, 8), (2, 3, 1, 8), F64, F64),
    "three dimensions": ((3, 1, 4), (3, 1, 4), F64, F64),
    "another dtype": ((2, 3, 1, 4), (2, 3, 1, 4), torch.float32, torch.float32),
    "values shorter than keys": ((2, 3, 2, 4), (2, 3, 1, 4), F64, F64),
    "values of another dtype": ((2, 3, 1, 4), (2, 3, 1, 4), F64, torch.float32),
    "values of another head_dim": ((2, 3, 1, 4), (2, 3, 1, 1), F64, F64),
    "too long": ((2, 3, 4, 4), (2, 3, 4, 4), F64, F64),
}


@pytest.mark.parametrize("name", BAD)
def test_an_update_that_fails_leaves_nothing_behind(name):
    k_shape, v_shape, k_dtype, v_dtype = BAD[name]
    cache = KVCache(2, 3, 5, 4, dtype=F64)
    cache.keys.zero_(), cache.values.zero_()
    cache.update(draw(0, 2, 3, 2, 4), draw(1, 2, 3, 2, 4))
    before = cache.keys.clone(), cache.values.clone()
    said = "max_len=5" if name == "too long" else "batch, num_kv_heads, T, head_dim"
    with pytest.raises(ValueError, match=said) as error:
        cache.update(draw(2, *k_shape, dtype=k_dtype), draw(3, *v_shape, dtype=v_dtype))
    assert str(error.value).startswith("v must" if name.startswith("values") else ("k must", "the"))
    if name != "too long":
        wrong = (v_shape, v_dtype) if name.startswith("values") else (k_shape, k_dtype)
        assert f"got {wrong[0]}, {wrong[1]}" in str(error.value)
    assert cache.length == 2
    assert torch.equal(cache.keys, before[0])
    assert torch.equal(cache.values, before[1])


@pytest.mark.parametrize("which", ["k", "v"])
def test_another_device_is_an_error(which):
    cache, x = KVCache(1, 1, 3, 2, dtype=F64), draw(0, 1, 1, 1, 2)
    pair = [x.to("meta"), x] if which == "k" else [x, x.to("meta")]
    with pytest.raises(ValueError, match=f"{which} must be as the cache.*got .* on meta"):
        cache.update(*pair)
    assert cache.length == 0


def test_truncate_and_reset():
    cache, k, v = KVCache(1, 2, 6, 3, dtype=F64), draw(0, 1, 2, 6, 3), draw(1, 1, 2, 6, 3)
    cache.update(k, v)
    cache.truncate(4)
    other = draw(2, 1, 2, 1, 3)
    keys, values = cache.update(other, other)
    assert torch.equal(keys, torch.cat([k[:, :, :4], other], 2))
    assert torch.equal(values, torch.cat([v[:, :, :4], other], 2))
    for bad in (-1, 6):
        with pytest.raises(ValueError, match=f"length must be from 0 to 5, got {bad}"):
            cache.truncate(bad)
    assert cache.length == 5
    cache.update(other.requires_grad_(), other)
    assert cache.keys.requires_grad
    cache.reset()
    assert cache.length == 0
    assert not cache.keys.requires_grad
    assert torch.equal(cache.update(k, v)[0], k)


def test_the_cache_is_made_as_asked():
    cache = KVCache(2, 3, 5, 4)
    assert cache.keys.shape == cache.values.shape == (2, 3, 5, 4)
    assert cache.keys.dtype == torch.get_default_dtype()
    assert KVCache(1, 1, 1, 1, torch.bfloat16, "meta").values.dtype == torch.bfloat16
    assert KVCache(1, 1, 1, 1, torch.bfloat16, "meta").keys.device.type == "meta"
    for sizes in ((-1, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)):
        with pytest.raises(ValueError, match="batch, num_kv_heads, max_len, head_dim"):
            KVCache(*sizes)


# --- the layer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("length", [1, 7])
def test_values_and_gradients_are_those_of_heads_one_by_one(dtype, kv_heads, length):
    layer = make(12, 6, kv_heads, dtype=dtype)
    x = draw(1, 2, length, 12, dtype=dtype)
    tol = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    assert_parity(
        layer, lambda x: by_hand(layer, x).to(dtype), x, check_grad=dtype != torch.bfloat16, **tol
    )
    assert layer(x).dtype == dtype


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_every_option_and_the_gradients_of_the_parameters(kv_heads):
    layer = make(10, 4, kv_heads, head_dim=6, bias=True, out_bias=True, qk_norm=True, eps=1e-3)
    x, weights = draw(1, 2, 5, 10), draw(2, 2, 5, 10)
    parameters = list(layer.parameters())
    assert len(parameters) == 10
    ours, official = layer(x), by_hand(layer, x)
    torch.testing.assert_close(ours, official, atol=1e-12, rtol=1e-12)
    grads = [torch.autograd.grad((y * weights).sum(), parameters) for y in (ours, official)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


def test_with_as_many_key_value_heads_it_is_multi_head_attention():
    torch.manual_seed(0)
    old = MultiHeadAttention(12, 3, bias=False).double()
    new = GroupedQueryAttention(12, 3, 3).double()
    new.load_state_dict(old.state_dict())
    assert_parity(new, lambda x: old(x, x, x, is_causal=True), draw(0, 2, 5, 12))


def test_grouped_is_multi_head_with_repeated_weights():
    layer, full = make(12, 6, 2), make(12, 6, 6)
    full.load_state_dict(layer.state_dict() | {
        name: layer.state_dict()[name].reshape(2, 1, 2, 12).expand(2, 3, 2, 12).reshape(12, 12)
        for name in ("k_proj.weight", "v_proj.weight")
    })  # fmt: skip
    assert_parity(layer, full, draw(1, 2, 5, 12))


def masks_for(b, h, t):
    """Every shape that broadcasts to (B, H, T, T), boolean and added; all rows see key 0."""
    for i, shape in enumerate([(t,), (t, t), (h, t, t), (1, t, t), (b, h, t, t), (b, 1, 1, t),
                               (b, 1, t, t), (1, h, t, 1), (b, h, 1, t)]):  # fmt: skip
        mask = draw(10 + i, *shape) > 0
        mask[..., 0] = True
        yield mask
        yield draw(20 + i, *shape)


@pytest.mark.parametrize("t", [1, 4])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_a_mask_says_everything(t, kv_heads):
    layer = make(8, 4, kv_heads)
    x, count = draw(3, 2, t, 8), 0
    for mask in masks_for(2, 4, t):
        assert_parity(
            lambda x, m=mask: layer(x, attn_mask=m),
            lambda x, m=mask: by_hand(layer, x, m),
            x, atol=1e-11, rtol=1e-11,
        )  # fmt: skip
        count += 1
    assert count == 18


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_one_token_behind_a_cache_with_a_mask_of_its_own_for_each_head(kv_heads):
    layer, x = make(8, 4, kv_heads), draw(3, 2, 6, 8)
    full = draw(4, 2, 4, 6, 6) > 0
    full[..., 0] = True
    want = by_hand(layer, x, full)
    cache = KVCache(2, kv_heads, 6, 2, dtype=F64)
    with torch.no_grad():
        for i in range(6):
            out = layer(x[:, i : i + 1], attn_mask=full[:, :, i : i + 1, : i + 1], cache=cache)
            causal = by_hand(layer, x, full & causal_mask(6, 6))[:, i : i + 1]
            torch.testing.assert_close(out, causal, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(out, want[:, 5:], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_an_added_mask_may_have_another_precision(dtype, precision):
    layer, x = make(8, 4, 2, dtype=dtype), draw(3, 2, 5, 8, dtype=dtype)
    bias = alibi_bias(4, 5, dtype=precision)
    want = by_hand(layer, x, bias.double())
    got = layer(x, attn_mask=bias).double()
    torch.testing.assert_close(got, want, atol=max(TOLERANCE[dtype], 1e-6), rtol=3e-2)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("kind", ["boolean", "added"])
def test_a_query_that_may_attend_to_nothing_gets_zero_and_finite_gradients(dtype, t, kind):
    layer = make(8, 4, 2, dtype=dtype, out_bias=True)
    x = draw(0, 2, t, 8, dtype=dtype).requires_grad_()
    mask = torch.ones(2, 1, t, t, dtype=torch.bool)
    mask[0, :, 0] = False
    if kind == "added":
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)
    out = layer(x, attn_mask=mask)
    assert torch.equal(out[0, 0], layer.out_proj.bias)
    out.float().square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8), (0, 0, 8), (0, 1, 8)])
def test_empty_inputs(shape):
    layer, x = make(8, 4, 2), draw(0, *shape).requires_grad_()
    out = layer(x)
    assert out.shape == shape
    out.sum().backward()
    assert x.grad.shape == shape
    cache = KVCache(shape[0], 2, 4, 2, dtype=F64)
    assert layer(x, cache=cache).shape == shape


def test_rope_turns_queries_and_keys_and_nothing_else():
    layer, x = make(8, 2, 1), draw(0, 2, 5, 8)
    rope = RotaryEmbedding(4, dtype=F64)
    plain, turned = layer(x), layer(x, rope(torch.arange(5)))
    assert (plain - turned).abs().max() > 1e-3
    shifted = layer(x, rope(torch.arange(7, 12)))
    torch.testing.assert_close(turned, shifted, atol=1e-12, rtol=1e-12)
    alike = layer(x, rope(torch.full((5,), 9)))
    torch.testing.assert_close(plain, alike, atol=1e-12, rtol=1e-12)
    per_sequence = layer(x, rope(torch.stack([torch.arange(5), torch.arange(5) + 3])))
    torch.testing.assert_close(turned, per_sequence, atol=1e-12, rtol=1e-12)


def test_cached_keys_are_normalised_and_rotated_values_are_neither():
    layer, x = make(8, 2, 1, qk_norm=True), draw(0, 1, 3, 8)
    rope, cache = RotaryEmbedding(4, dtype=F64), KVCache(1, 1, 3, 4, dtype=F64)
    layer(x, rope(torch.arange(3)), cache=cache)
    k = F.rms_norm(F.linear(x, layer.k_proj.weight), (4,), layer.k_norm.weight, layer.k_norm.eps)
    cos, sin = rope(torch.arange(3))
    a, b = k[0, :, 0::2], k[0, :, 1::2]
    want = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    torch.testing.assert_close(cache.keys[0, 0], want, atol=1e-12, rtol=1e-12)
    v = F.linear(x, layer.v_proj.weight)
    torch.testing.assert_close(cache.values[0, 0], v[0], atol=1e-12, rtol=1e-12)


def test_gradients_pass_through_one_update_and_are_refused_after_a_second():
    layer, x = make(8, 4, 2), draw(0, 2, 5, 8)
    cache = KVCache(2, 2, 8, 2, dtype=F64)

    def cached(x):
        cache.reset()
        return layer(x, cache=cache)

    assert_parity(cached, layer, x)
    cache.reset()
    first = layer(x, cache=cache)
    layer(x[:, :1], cache=cache)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()


def test_decoding_makes_nothing_as_large_as_the_cache():
    layer, cache = make(16, 8, 2), KVCache(1, 2, 512, 2, dtype=F64)
    with torch.no_grad():
        layer(draw(0, 1, 500, 16), cache=cache)
        with Written() as written:
            layer(draw(1, 1, 1, 16), cache=cache)
    assert 0 < max(written.sizes) < 500


CONSTRUCTOR = {
    "num_heads must be a multiple of num_kv_heads.*got 6, 4 and 12": (12, 6, 4),
    "num_heads must be a multiple of num_kv_heads.*got 6, 0 and 12": (12, 6, 0),
    "d_model must be a multiple of num_heads if head_dim is None, got 10 and 4": (10, 4, 2),
    "head_dim must be at least 1, got 0": (12, 6, 2, 0),
}


@pytest.mark.parametrize("said", CONSTRUCTOR)
def test_a_layer_that_cannot_be_built_says_why(said):
    with pytest.raises(ValueError, match=said):
        GroupedQueryAttention(*CONSTRUCTOR[said])


@pytest.mark.parametrize("shape", [(2, 5, 7), (5, 8), (2, 5, 1, 8)])
def test_a_bad_input_is_named(shape):
    with pytest.raises(ValueError, match=r"x must have shape \(B, T, 8\), got"):
        make(8, 4, 2)(draw(0, *shape))


@pytest.mark.parametrize(
    ("shape", "t"),
    [((2, 2), 2), ((3, 1, 2, 5), 2), ((3, 2, 5), 2), ((1, 1, 1, 2, 5), 2), ((2,), 1)],
)
def test_a_mask_that_does_not_fit_is_named_and_the_cache_is_as_before(shape, t):
    layer, cache = make(8, 4, 2), KVCache(2, 2, 9, 2, dtype=F64)
    layer(draw(0, 2, 3, 8), cache=cache)
    keys = cache.keys.clone()
    with pytest.raises(ValueError, match=r"attn_mask must broadcast to \(B, H, T, S\) = \(2, 4, "):
        layer(draw(1, 2, t, 8), attn_mask=torch.ones(shape, dtype=torch.bool), cache=cache)
    assert cache.length == 3
    assert torch.equal(cache.keys[:, :, :3], keys[:, :, :3])


@pytest.mark.parametrize("t", [1, 4])
def test_a_scale_of_its_own(t):
    x = draw(0, 2, t, 8)
    torch.manual_seed(0)
    plain = GroupedQueryAttention(8, 4, 2).double()
    scaled = GroupedQueryAttention(8, 4, 2, scale=0.5).double()
    scaled.load_state_dict(plain.state_dict())
    before = [layer(x) for layer in (plain, scaled)]
    with torch.no_grad():
        plain.q_proj.weight.mul_(0.5 * 2**0.5)  # head_dim is 2
    torch.testing.assert_close(plain(x), before[1], rtol=0, atol=1e-13)
    assert t == 1 or not torch.allclose(before[0], before[1])


def test_a_mask_of_integers_is_refused():
    with pytest.raises(ValueError, match=r"attn_mask must be boolean or floating, got torch.int64"):
        make(8, 4, 2)(draw(0, 2, 3, 8), attn_mask=torch.ones(3, 3, dtype=torch.long))


# --- the law --------------------------------------------------------------------------------------

SPAN, BATCH, HEADS, DIM = 9, 3, 4, 6
PADDING = {
    "no padding": torch.ones(BATCH, SPAN, dtype=torch.bool),
    "left padding": torch.arange(SPAN) >= torch.tensor([[0], [3], [6]]),
    "right padding": torch.arange(SPAN) < torch.tensor([[9], [7], [4]]),
}


def tables(positions, dtype):
    if positions == "RoPE":
        return RotaryEmbedding(DIM, SPAN, dtype=dtype)
    if positions == "YaRN":
        inv_freq, factor = yarn_frequencies(DIM, 10000.0, 4.0, 16, dtype=dtype)
        return RotaryEmbedding(DIM, SPAN, inv_freq=inv_freq, attention_factor=factor, dtype=dtype)
    return None


def stepper(layer, positions, tokens, dtype=F64):
    table, places, mask = tables(positions, dtype), padding_position_ids(tokens), None
    if tokens is not PADDING["no padding"]:
        mask = causal_padding_mask(tokens)
    if positions == "ALiBi":
        mask = alibi_bias(HEADS, SPAN, dtype=dtype).where(causal_padding_mask(tokens), -torch.inf)

    def step(new, cache):
        a = 0 if cache is None else cache.length
        b = a + new.shape[1]
        rope = None if table is None else table(places[:, a:b])
        return layer(new, rope, None if mask is None else mask[:, :, a:b, :b], cache)

    return step


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("positions", ["none", "RoPE", "YaRN", "ALiBi"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_the_cache_law(kv_heads, positions, padding):
    layer = make(10, HEADS, kv_heads, head_dim=DIM, bias=True, qk_norm=positions == "YaRN")
    step = stepper(layer, positions, PADDING[padding])
    new_cache = partial(KVCache, BATCH, kv_heads, SPAN, DIM, F64)
    error = check_cache_law(step, draw(0, BATCH, SPAN, 10), new_cache, where=PADDING[padding])
    assert error < 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_cache_law_at_lower_precision(dtype):
    layer = make(10, HEADS, 2, head_dim=DIM, dtype=dtype)
    step = stepper(layer, "RoPE", PADDING["left padding"], torch.float32)
    new_cache = partial(KVCache, BATCH, 2, SPAN, DIM, dtype)
    x = draw(0, BATCH, SPAN, 10, dtype=dtype)
    assert check_cache_law(step, x, new_cache, where=PADDING["left padding"]) < 0.03


@pytest.mark.parametrize("positions", ["RoPE", "YaRN"])
@pytest.mark.parametrize("padding", PADDING)
def test_a_padded_sequence_comes_out_as_if_alone(positions, padding):
    layer, tokens = make(10, HEADS, 2, head_dim=DIM), PADDING[padding]
    x, table = draw(0, BATCH, SPAN, 10), tables(positions, F64)
    out = stepper(layer, positions, tokens)(x, None)
    for row, real, y in zip(x, tokens, out, strict=True):
        alone = layer(row[real][None], table(torch.arange(int(real.sum()))))
        torch.testing.assert_close(y[real], alone[0], atol=1e-12, rtol=1e-12)


class Lists:
    """A cached layer in few lines, with one part that can be replaced."""

    def __init__(self, mask=None, start=None, store=True):
        self.weights = draw(5, 3, 6, 6)
        self.mask, self.start, self.store = mask or causal_mask, start or (lambda a: a), store
        self.rope = RotaryEmbedding(6, 32, dtype=F64)

    def __call__(self, new, cache):
        cache = [] if cache is None else cache
        a, t = (cache[0].shape[1] if cache else 0), new.shape[1]
        q, k, v = (new @ w for w in self.weights)
        cos, sin = self.rope(torch.arange(t) + self.start(a))

        def turn(x):
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2)

        q, k = turn(q), turn(k)
        if cache:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        if self.store or not cache:
            cache[:] = k, v
        return F.scaled_dot_product_attention(q, k, v, self.mask(t, k.shape[1]))


def test_the_law_holds_for_any_kind_of_cache():
    assert check_cache_law(Lists(), draw(0, 2, 8, 6), list) < 1e-13


WRONG = {
    "top-left mask": Lists(mask=partial(causal_mask, align="top-left")),
    "no mask": Lists(mask=lambda t, s: torch.ones(t, s, dtype=torch.bool)),
    "offset forgotten": Lists(start=lambda a: 0),
    "offset one too many": Lists(start=lambda a: a + (a > 0)),
    "only the first chunk is stored": Lists(store=False),
    "wrong only for one new token": Lists(
        mask=lambda t, s: causal_mask(t, s) if t > 1 else torch.arange(s)[None] >= s // 2
    ),
    "wrong only for chunks behind a cache": Lists(
        mask=lambda t, s: causal_mask(t, s, align="top-left" if t > 1 else "bottom-right")
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_law_catches(name):
    with pytest.raises(AssertionError, match=r"in chunks of .*, position \d+ is the first"):
        check_cache_law(WRONG[name], draw(0, 2, 8, 6), list)


def test_the_law_says_where():
    x = draw(0, 2, 8, 6)
    with pytest.raises(AssertionError, match=r"in chunks of \(3, 5\), position 3 is the first"):
        check_cache_law(WRONG["offset forgotten"], x, list, chunks=[(8,), (3, 5)])
    after = torch.arange(8) < torch.tensor([[3], [3]])
    assert check_cache_law(WRONG["offset forgotten"], x, list, [(3, 5)], where=after) < 1e-13


def test_the_law_asks_for_a_new_cache_each_time_and_no_gradient():
    made, modes = [], []

    def new_cache():
        made.append([])
        return made[-1]

    def step(new, cache):
        modes.append(torch.is_grad_enabled())
        return Lists()(new, cache)

    check_cache_law(step, draw(0, 1, 5, 6), new_cache)
    assert len(made) == 5
    assert {c[0].shape[1] for c in made} == {5}
    assert not any(modes)
    made.clear()
    check_cache_law(step, draw(0, 1, 5, 6), new_cache, chunks=[(2, 3)])
    assert len(made) == 1


def test_the_law_takes_token_ids_and_sees_nan():
    table = draw(0, 11, 4)

    def ids(new, cache):
        """A running sum of embeddings; the cache is a list with the sum so far."""
        before = cache[0] if cache else 0.0
        out = table[new].cumsum(1) + before
        if cache is not None:
            cache[:] = [out[:, -1:]]
        return out

    tokens = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(0))
    assert check_cache_law(ids, tokens, list) < 1e-14
    with pytest.raises(AssertionError, match=r"position 0 is the first.*inf"):
        check_cache_law(lambda n, c: ids(n, c) * (torch.nan if c else 1.0), tokens, list)


def test_the_law_tolerance_is_relative_and_can_be_set():
    def rough(new, cache):
        return new * (1.0 if cache is None else 1 + 1e-4)

    x = draw(0, 2, 4, 3)
    for scale in (1e-8, 1.0, 1e8):
        assert check_cache_law(rough, scale * x, list, tol=1e-3) == pytest.approx(1e-4)
        with pytest.raises(AssertionError, match=r"the largest error is 1.0e-04"):
            check_cache_law(rough, scale * x, list)
    assert check_cache_law(lambda n, c: 0 * n, x, list) == 0.0


def test_the_law_refuses_what_it_cannot_test():
    x, step = draw(0, 2, 8, 6), Lists()
    with pytest.raises(ValueError, match=r"x must have at least 2 positions, got \(2, 1, 6\)"):
        check_cache_law(step, x[:, :1], list)
    with pytest.raises(ValueError, match=r"chunks \(3, 4\) must add up to 8 positions"):
        check_cache_law(step, x, list, chunks=[(3, 4)])
    with pytest.raises(ValueError, match=r"where must have shape \(2, 8\), got \(2, 7\)"):
        check_cache_law(step, x, list, where=torch.ones(2, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match="where must be True at some position"):
        check_cache_law(step, x, list, where=torch.zeros(2, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"step must return \(B, T, ...\)"):
        check_cache_law(lambda n, c: step(n, c)[:, -1:], x, list)


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "kib"),
    [
        ((32, 32, 128), 512),  # LLaMA-2-7B
        ((32, 8, 128), 128),  # Llama-3-8B
        ((80, 8, 128), 320),  # Llama-2-70B
        ((95, 8, 128), 380),  # DeepSeek-67B
        ((60, 1, (512 + 64) / 2), 67.5),  # DeepSeek-V2: 576 numbers in place of 2 G head_dim
        ((32, 8, 128, 0.5), 32),
    ],
)
def test_bytes_per_token_of_published_models(shape, kib):
    assert kv_cache_bytes_per_token(*shape) == kib * 1024


def test_bytes_per_token_is_what_a_cache_takes():
    caches = [KVCache(3, 2, 10, 8, torch.float16) for _ in range(5)]
    assert sum(c.nbytes for c in caches) == 3 * 10 * kv_cache_bytes_per_token(5, 2, 8)
    with pytest.raises(ValueError, match=r"must be positive, got \(5, 0, 8, 2\)"):
        kv_cache_bytes_per_token(5, 0, 8)


def test_intensity_counts_operations_and_bytes():
    for h, g, t, s, b in [(8, 2, 3, 50, 2), (4, 4, 1, 7, 4), (128, 1, 1, 4096, 2)]:
        want = 4 * h * t * s / (b * (2 * g * s + 2 * h * t))
        assert attention_intensity(h, g, t, s, b) == pytest.approx(want, rel=1e-14)
    for h, g, want in [(64, 64, 1), (64, 8, 8), (128, 1, 128)]:
        assert attention_intensity(h, g, 1, 10**9) == pytest.approx(want, rel=1e-5)
    with pytest.raises(ValueError, match="must be positive"):
        attention_intensity(8, 2, 0, 5)


@pytest.mark.parametrize("rest", [(5,), ()])
@pytest.mark.parametrize("kv_heads", [6, 3, 1])
def test_pooling_is_the_mean_of_each_group(rest, kv_heads):
    weight = draw(0, 24, *rest)
    r = 6 // kv_heads
    heads = weight.reshape(6, 4, *rest)
    want = torch.cat([heads[g * r : (g + 1) * r].mean(0) for g in range(kv_heads)])
    assert_parity(lambda w: mha_to_gqa(w, 6, kv_heads), lambda w: want + 0 * w.sum(), weight,
                  check_grad=False)  # fmt: skip
    (grad,) = torch.autograd.grad(mha_to_gqa(weight.requires_grad_(), 6, kv_heads).sum(), weight)
    assert torch.equal(grad, torch.full_like(grad, 1 / r))


def test_pooling_a_model_whose_heads_agree_changes_nothing():
    full, grouped = make(8, 4, 4), make(8, 4, 2)
    for name in ("k_proj", "v_proj"):
        w = getattr(full, name).weight.data.reshape(2, 2, 2, 8)
        w[:, 1] = w[:, 0]
    state = full.state_dict()
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = mha_to_gqa(state[name], 4, 2)
    grouped.load_state_dict(state)
    x = draw(0, 2, 5, 8)
    torch.testing.assert_close(grouped(x), full(x), atol=1e-12, rtol=1e-12)


def test_pooling_names_what_does_not_divide():
    with pytest.raises(ValueError, match="multiple of num_kv_heads, got 6 and 4"):
        mha_to_gqa(draw(0, 24, 5), 6, 4)
    with pytest.raises(ValueError, match=r"num_heads=6, got \(20, 5\)"):
        mha_to_gqa(draw(0, 20, 5), 6, 3)
