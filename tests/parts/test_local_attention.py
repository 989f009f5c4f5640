"""Local attention and tiles: masks, patterns, the ring, sinks, and tiles in both passes."""

import pytest
import torch
import torch.nn.functional as F

from transformer_parts.attention import scaled_dot_product_attention
from transformer_parts.local_attention import (
    RollingKVCache,
    SlowMemory,
    cache_positions,
    chunk_mask,
    layer_windows,
    merge_partials,
    reach,
    sink_attention,
    soft_cap,
    tiled_attention,
    window_mask,
)

F64 = torch.float64


def draw(*shape, dtype=F64, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    x = torch.randn(shape, generator=generator, dtype=F64).to(dtype)
    return x.requires_grad_() if grad else x


def assert_close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


# ---------------------------------------------------------------- masks and patterns


@pytest.mark.parametrize(("t", "s"), [(7, 7), (3, 9), (1, 6), (0, 4)])
@pytest.mark.parametrize("size", [1, 2, 4, 20])
def test_masks_pair_by_pair(t, s, size):
    window, chunk = window_mask(t, s, size), chunk_mask(t, s, size)
    assert window.shape == chunk.shape == (t, s)
    for i in range(t):
        at = s - t + i
        assert window[i].tolist() == [at - size < j <= at for j in range(s)]
        assert chunk[i].tolist() == [j // size == at // size and j <= at for j in range(s)]


def test_more_queries_than_keys_see_nothing_at_first():
    assert not window_mask(5, 2, 3)[:3].any()
    with pytest.raises(ValueError, match="query_len must be at most key_len=2, got 5"):
        chunk_mask(5, 2, 3)


@pytest.mark.parametrize("mask", [window_mask, chunk_mask])
def test_masks_refuse_what_is_no_size(mask):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        mask(3, 3, 0)
    with pytest.raises(ValueError, match="key_len must be at least 0, got -1"):
        mask(0, -1, 2)


def test_the_pattern_of_a_stack():
    assert layer_windows(7, 3, 16) == [16, 16, None, 16, 16, None, 16]
    assert layer_windows(2, 1, 16) == [None, None]
    assert layer_windows(2, 5, 16) == [16, 16]
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        layer_windows(4, 0, 16)


@pytest.mark.parametrize("windows", [[4, 4, 4], [1, 1], [2, 5, 3], []])
def test_reach_is_what_a_gradient_reaches(windows):
    x = draw(30, 3, grad=True)
    stream = x
    for window in windows:
        stream = F.scaled_dot_product_attention(stream, stream, stream, window_mask(30, 30, window))
    (received,) = torch.autograd.grad(stream[-1].sum(), x)
    assert int((received != 0).any(1).sum()) == reach(windows)
    assert reach([*windows, None]) is None


def test_positions_of_a_cache():
    assert cache_positions([4, None, 4], 10) == 18
    assert cache_positions([4, None, 4], 3) == 9
    assert cache_positions([4], 0) == 0
    with pytest.raises(ValueError, match="length must be at least 0, got -1"):
        cache_positions([4], -1)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        cache_positions([0], 5)


# ---------------------------------------------------------------- the ring


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("pieces", [[1] * 20, [7, 1, 5, 7], [20], [2, 18]])
def test_a_ring_gives_what_a_mask_gives(window, pieces):
    q, k, v = (draw(2, 3, 20, 4, seed=i) for i in range(3))
    want = F.scaled_dot_product_attention(q, k, v, window_mask(20, 20, window))
    ring = RollingKVCache(2, 3, window, 4, dtype=F64)
    before, outs = ring.nbytes, []
    for qs, ks, vs in zip(*(x.split(pieces, 2) for x in (q, k, v)), strict=True):
        keys, values = ring.update(ks, vs)
        assert keys.shape[2] <= window - 1 + ks.shape[2]
        seen = window_mask(qs.shape[2], keys.shape[2], window)
        outs.append(F.scaled_dot_product_attention(qs, keys, values, seen))
    assert_close(torch.cat(outs, 2), want)
    assert ring.length == 20
    assert ring.nbytes == before == 2 * 2 * 3 * window * 4 * 8


def test_a_ring_keeps_its_slots_and_can_be_used_again():
    ring = RollingKVCache(1, 1, 3, 1, dtype=F64)
    text = torch.arange(5, dtype=F64).view(1, 1, 5, 1)
    ring.update(text, text)
    assert ring.keys.flatten().tolist() == [3, 4, 2]
    ring.reset()
    keys, _ = ring.update(text[:, :, :1], text[:, :, :1])
    assert keys.flatten().tolist() == [0]
    assert ring.window == 3


def test_a_ring_refuses_what_does_not_fit():
    ring = RollingKVCache(1, 2, 3, 4, dtype=F64)
    good = draw(1, 2, 1, 4)
    for k, v in ((draw(1, 2, 1, 5), good), (good, good.float()), (good, draw(1, 1, 1, 4))):
        with pytest.raises(ValueError, match="must be as the cache"):
            ring.update(k, v)
    assert ring.length == 0
    with pytest.raises(ValueError, match="window must be at least 1"):
        RollingKVCache(1, 2, 0, 4)
    with pytest.raises(ValueError, match="batch must be at least 0"):
        RollingKVCache(-1, 2, 3, 4)


# ---------------------------------------------------------------- sinks and caps


def test_a_sink_is_a_key_whose_value_is_nothing():
    q, k, v = (draw(2, 3, n, 4, seed=i, grad=True) for i, n in enumerate((5, 7, 7)))
    sinks, mask = draw(3, grad=True), window_mask(5, 7, 3)
    out = sink_attention(q, k, v, sinks, mask)
    # The same by torch's operator: one key more, whose score is the sink, and whose value is 0.
    wide = torch.cat([q, torch.ones(2, 3, 5, 1, dtype=F64)], -1)
    extra = torch.cat(
        [torch.zeros(2, 3, 1, 4, dtype=F64), 2 * sinks.view(1, 3, 1, 1).expand(2, 3, 1, 1)], -1
    )
    keys = torch.cat([torch.cat([k, torch.zeros(2, 3, 7, 1, dtype=F64)], -1), extra], 2)
    values = torch.cat([v, torch.zeros(2, 3, 1, 4, dtype=F64)], 2)
    seen = torch.cat([mask, torch.ones(5, 1, dtype=torch.bool)], 1)
    want = F.scaled_dot_product_attention(wide, keys, values, seen, scale=0.5)
    assert_close(out, want)
    wish = draw(2, 3, 5, 4, seed=9)
    inputs = (q, k, v, sinks)
    for a, b in zip(
        torch.autograd.grad(out, inputs, wish), torch.autograd.grad(want, inputs, wish), strict=True
    ):
        assert_close(a, b)


def test_a_sink_scales_by_the_logistic_function_of_the_log_sum_exp():
    q, k, v = (draw(3, n, 4, seed=i) for i, n in enumerate((5, 7, 7)))
    sinks = draw(3)
    plain, lse = tiled_attention(q, k, v, return_lse=True)
    gate = torch.sigmoid(lse - sinks[:, None])
    assert_close(sink_attention(q, k, v, sinks), gate[..., None] * plain)


def test_a_sink_for_a_query_that_sees_nothing_and_at_its_extremes():
    q, k, v = (draw(2, n, 4, seed=i) for i, n in enumerate((3, 5, 5)))
    nothing = torch.zeros(3, 5, dtype=torch.bool)
    assert torch.equal(sink_attention(q, k, v, draw(2), nothing), torch.zeros(2, 3, 4, dtype=F64))
    off = torch.full((2,), -torch.inf, dtype=F64)
    assert_close(sink_attention(q, k, v, off), F.scaled_dot_product_attention(q, k, v))
    assert sink_attention(q, k, v, torch.full((2,), 1e4, dtype=F64)).abs().max() < 1e-300


def test_sinks_refuse_other_shapes():
    q = draw(2, 3, 4)
    with pytest.raises(ValueError, match=r"sinks must have one logit for each head"):
        sink_attention(q, q, q, draw(3))
    with pytest.raises(ValueError, match="attn_mask must be boolean"):
        sink_attention(q, q, q, draw(2), torch.zeros(3, 3))


def test_a_cap_bounds_and_leaves_small_scores():
    s = torch.tensor([-1e6, -3.0, 0.0, 1e-3, 1e6, torch.inf], dtype=F64)
    capped = soft_cap(s, 50.0)
    assert capped.abs().max() <= 50
    assert_close(capped[1:4], s[1:4], 4e-3)
    assert soft_cap(s.float(), 2.0).dtype == torch.float32
    with pytest.raises(ValueError, match="cap must be positive"):
        soft_cap(s, 0.0)


# ---------------------------------------------------------------- tiles

SHAPES = {
    "as many queries as keys": ((2, 3, 13), 13),
    "a cache in front": ((2, 3, 5), 17),
    "one query": ((1, 2, 1), 19),
    "more queries than keys": ((1, 1, 9), 4),
    "no leading dimension": ((11,), 11),
}
BLOCKS = [(4, 3), (1, 1), (64, 64), (13, 2), (3, 19)]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("causal", ["full", "causal", "window"])
@pytest.mark.parametrize("name", SHAPES)
def test_tiles_are_exact_forwards_and_backwards(name, causal, block):
    (*lead, t), s = SHAPES[name]
    q = draw(*lead, t, 6, seed=1, grad=True)
    k, v = draw(*lead, s, 6, seed=2, grad=True), draw(*lead, s, 5, seed=3, grad=True)
    window = 4 if causal == "window" else None
    mask = None if causal == "full" else window_mask(t, s, window or 1000)
    out, lse = tiled_attention(
        q, k, v, causal != "full", window=window, block_size=block, return_lse=True
    )
    want = scaled_dot_product_attention(q, k, v, mask)
    assert_close(out, want)
    scores = q @ k.mT / 6**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    sums = scores.logsumexp(-1)
    assert_close(lse, sums)
    # Both results count in the loss; where a query sees nothing its log-sum-exp cannot.
    seen = sums > -torch.inf
    wish, lean = draw(*out.shape, seed=4), draw(*lse.shape, seed=5)

    def loss(out, lse):
        return (out * wish).sum() + (lse[seen] * lean[seen]).sum()

    ours = torch.autograd.grad(loss(out, lse), (q, k, v))
    theirs = torch.autograd.grad(loss(want, sums), (q, k, v))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_the_gradient_is_the_slope():
    inputs = [draw(2, 5, 3, seed=i, grad=True) for i in range(3)]

    def both(q, k, v):
        return tiled_attention(q, k, v, True, window=3, block_size=(2, 2), return_lse=True)

    assert torch.autograd.gradcheck(both, inputs)


def test_large_scores_and_a_scale():
    q, k, v = (300 * draw(2, 9, 4, seed=i) for i in range(3))
    assert_close(
        tiled_attention(q, k, v, scale=0.3, block_size=(2, 2)),
        F.scaled_dot_product_attention(q, k, v, scale=0.3),
        1e-9,
    )


def test_no_tensor_has_all_scores():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                self.numbers = max(self.numbers, made.numel())
            return made

    q, k, v = (draw(200, 4, seed=i, grad=True) for i in range(3))
    with Largest() as seen:
        tiled_attention(q, k, v, True, block_size=(20, 30)).sum().backward()
    assert seen.numbers == 200 * 4
    with Largest() as seen:
        F.softmax(q @ k.T, -1)
    assert seen.numbers == 200 * 200


def test_tiles_that_nobody_sees_are_skipped():
    x = draw(24, 3)

    def loaded(**switches):
        memory = SlowMemory()
        tiled_attention(x, x, x, block_size=(4, 4), memory=memory, **switches)
        return (memory.loaded - x.nbytes) // (2 * 4 * 3 * 8)  # tiles: keys and values of each

    assert loaded() == 36
    assert loaded(is_causal=True) == 21
    # A window of 5 needs the block before; one that begins exactly at a border does not.
    assert loaded(is_causal=True, window=5) == 11
    assert loaded(is_causal=True, window=1) == 6
    assert loaded(is_causal=True, window=6) == 15


def test_what_is_counted_backwards():
    q, k, v = (draw(12, 4, seed=i, grad=True) for i in range(3))
    memory = SlowMemory()
    out = tiled_attention(q, k, v, block_size=(3, 4), memory=memory)
    forwards = memory.moved
    out.sum().backward()
    tiles, row, column = 4 * 3, 3 * 4, 4 * 4
    loads = 2 * 12 * 4 + 3 * 2 * column + tiles * (3 * row + 2 * 3)
    stores = 12 + tiles * row + 3 * 2 * column
    assert (memory.moved - forwards) // 8 == loads + stores


def test_the_small_memory_may_be_too_small():
    q = draw(2, 16, 4)
    memory = SlowMemory()
    tiled_attention(q, q, q, block_size=(4, 4), memory=memory)
    tiled_attention(q, q, q, block_size=(4, 4), memory=SlowMemory(memory.held))
    with pytest.raises(MemoryError, match="bytes at once"):
        tiled_attention(q, q, q, block_size=(4, 4), memory=SlowMemory(memory.held - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype):
    q, k, v = (draw(2, 33, 8, seed=i, dtype=dtype, grad=True) for i in range(3))
    out, lse = tiled_attention(q, k, v, True, block_size=(8, 8), return_lse=True)
    assert out.dtype == dtype
    assert lse.dtype == torch.float32
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    assert_close(out.double(), exact, 2 * tolerance)
    (received,) = torch.autograd.grad(out.sum(), q)
    assert received.dtype == dtype


def test_tiles_refuse_what_does_not_fit():
    q = draw(2, 5, 4)
    with pytest.raises(ValueError, match="query, key and value must have shapes"):
        tiled_attention(q, draw(2, 5, 3), q)
    with pytest.raises(ValueError, match="query, key and value must have shapes"):
        tiled_attention(q, draw(3, 5, 4), draw(3, 5, 4))
    with pytest.raises(ValueError, match="block of keys must be at least 1, got 0"):
        tiled_attention(q, q, q, block_size=(2, 0))
    with pytest.raises(ValueError, match="a window needs is_causal=True"):
        tiled_attention(q, q, q, window=3)
    with pytest.raises(ValueError, match="window must be at least 1"):
        tiled_attention(q, q, q, True, window=0)
    with pytest.raises(ValueError, match="needs a floating-point dtype"):
        tiled_attention(q.long(), q.long(), q.long())


# ---------------------------------------------------------------- parts of the keys


@pytest.mark.parametrize("sizes", [[19], [1, 18], [4, 4, 4, 4, 3], [1] * 19])
def test_parts_are_merged_exactly_with_gradients(sizes):
    q, k, v = (draw(2, n, 6, seed=i, grad=True) for i, n in enumerate((3, 19, 19)))
    reports = [
        tiled_attention(q, ks, vs, block_size=(2, 2), return_lse=True)
        for ks, vs in zip(k.split(sizes, 1), v.split(sizes, 1), strict=True)
    ]
    outs, sums = (torch.stack(x) for x in zip(*reports, strict=True))
    out, lse = merge_partials(outs, sums)
    want = F.scaled_dot_product_attention(q, k, v)
    assert_close(out, want)
    assert_close(lse, (q @ k.mT / 6**0.5).logsumexp(-1))
    wish = draw(2, 3, 6, seed=7)
    ours = torch.autograd.grad(out, (q, k, v), wish)
    theirs = torch.autograd.grad(want, (q, k, v), wish)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_parts_without_a_key_and_far_apart():
    outs = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]]], dtype=F64)
    sums = torch.tensor([[0.0, -torch.inf], [900.0, -torch.inf]], dtype=F64)
    out, lse = merge_partials(outs, sums)
    assert out.tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert lse.tolist() == [900.0, -torch.inf]


def test_parts_that_do_not_fit_are_refused():
    for outs, sums in (
        (draw(2, 3, 4), draw(2, 4)),
        (draw(0, 3, 4), draw(0, 3)),
        (draw(2, 4), draw(2)),
    ):
        with pytest.raises(ValueError, match="outputs and lses must have shapes"):
            merge_partials(outs, sums)
