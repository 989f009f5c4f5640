"""What people get wrong about decoding: the wrong form fails, the right one holds."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transformer_parts.kv_cache import attention_intensity

RIDGE = 989e12 / 3.35e12  # H100 SXM: dense 16-bit FLOP/s over bytes per second


def counted_intensity(heads, kv_heads, queries, keys, value_dim=None, d=4):
    """Matrix products and 16-bit operands of attention, counted by torch."""
    rows = heads // kv_heads * queries
    q = torch.zeros(kv_heads, rows, d, dtype=torch.float16)
    k = torch.zeros(kv_heads, keys, d, dtype=torch.float16)
    v = torch.zeros_like(k) if value_dim is None else k[..., :value_dim]
    with FlopCounterMode(display=False) as counter:
        out = torch.bmm(torch.bmm(q, k.mT), v)
    read = [q, k] if value_dim is not None else [q, k, v]  # values that are part of the keys
    return counter.get_total_flops() / sum(t.nbytes for t in (*read, out))


def test_e119_decoding_waits_for_memory_and_prefill_does_not():
    keys = 32768
    decoding = {(64, 64): 1, (64, 8): 8, (128, 1): 128}
    for (heads, kv_heads), want in decoding.items():
        counted = counted_intensity(heads, kv_heads, 1, keys)
        assert counted == pytest.approx(attention_intensity(heads, kv_heads, 1, keys), rel=1e-12)
        assert counted == pytest.approx(want, rel=0.01)
        assert counted < RIDGE
    # The claim fails where many queries share the keys: in prefill.
    assert counted_intensity(8, 8, 1024, 1024) == 512 > RIDGE
    assert counted_intensity(8, 8, 100, 100) == 50 < RIDGE  # in that of a long prompt
    # Absorbed latent attention: 128 heads, keys of 576 numbers whose first 512 are the values.
    absorbed = counted_intensity(128, 1, 1, keys, value_dim=512, d=576)
    assert 239 < absorbed < 242 < RIDGE
    assert absorbed > 0.8 * RIDGE
    # A longer context does not help decoding, a batch helps the weights only.
    assert attention_intensity(8, 8, 1, 10**6) < 1 + 1e-6
