"""Misconceptions of the chapter on recurrence."""

import torch
import torch.nn.functional as F

from transformer_parts.kv_cache import KVCache
from transformer_parts.recurrence import affine, associative_scan, delta_rule, linear_attention


def pairs(count, width, seed=0):
    draw = torch.Generator().manual_seed(seed)
    keys = F.normalize(torch.randn(count, width, generator=draw, dtype=torch.float64), dim=-1)
    return keys, torch.randn(count, width, generator=draw, dtype=torch.float64)


def right(read, values):
    return torch.cdist(read, values).argmin(1) == torch.arange(len(values))


def test_e164_linear_attention_is_another_layer():
    for seed in range(5):
        keys, values = pairs(64, 8, seed)
        sharp = F.scaled_dot_product_attention(keys, keys, values, scale=1000.0)
        assert right(sharp, values).all()
        assert right(keys @ linear_attention(keys, keys, values)[1], values).double().mean() < 0.5


def test_e165_correcting_favours_what_is_new():
    found = {"add": [], "whole": [], "small": []}
    for seed in range(20):
        keys, values = pairs(64, 32, seed)
        ones = torch.ones(64, dtype=torch.float64)
        for name, memory in (
            ("add", linear_attention(keys, keys, values)[1]),
            ("whole", delta_rule(keys, keys, values, ones)[1]),
            ("small", delta_rule(keys, keys, values, ones / 4)[1]),
        ):
            read = keys @ memory
            alike = F.normalize(read, dim=1) @ F.normalize(values, dim=1).T
            hits = (alike.argmax(1) == torch.arange(64)).double()
            best = (read * values).sum() / read.square().sum()
            raw, scaled = ((c * read - values).square().mean() for c in (1, best))
            found[name].append(torch.stack([hits.mean(), hits[-16:].mean(), raw, scaled]))
    added, whole, small = (torch.stack(found[name]).mean(0) for name in found)
    assert whole[0] < added[0] - 0.2
    assert whole[1] > added[1]
    assert whole[2] < 0.7 * added[2]
    assert whole[3] > added[3] + 0.1
    assert small[0] > added[0] - 0.05


def test_e166_a_scan_needs_few_rounds():
    rounds = []

    def join(earlier, later):
        rounds.append(len(later[0]))
        return affine(earlier, later)

    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 1024, generator=draw, dtype=torch.float64)
    _, states = associative_scan(join, (a, b))
    h = torch.zeros((), dtype=torch.float64)
    for t in range(1024):
        h = a[t] * h + b[t]
        assert (states[t] - h).abs() < 1e-10
    assert len(rounds) < 25
    assert sum(rounds) < 2 * 1024


def test_e167_what_a_hybrid_keeps_grows():
    def kept(tokens):
        x = torch.zeros(1, 1, tokens, 4)
        memories = 3 * linear_attention(x, x, x)[1].nbytes
        cache = KVCache(1, 1, tokens, 4)
        cache.update(x, x)
        return memories + cache.nbytes, 4 * cache.nbytes

    (small, small_full), (large, large_full) = kept(50), kept(250)
    assert large > small
    assert 4 * (large - small) == large_full - small_full
