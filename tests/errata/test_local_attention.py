"""Misconceptions of the chapter on local attention and FlashAttention."""

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from transformer_parts.local_attention import soft_cap, tiled_attention, window_mask


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_e144_tiles_are_exact_and_a_window_is_not():
    for seed in range(5):
        q, k, v = draw(3, 64, 8, seed=seed)
        full = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        for block in ((1, 1), (7, 5), (16, 64), (100, 100)):
            tiles = tiled_attention(q, k, v, is_causal=True, block_size=block)
            assert (tiles - full).abs().max() < 1e-12
        near = F.scaled_dot_product_attention(q, k, v, window_mask(64, 64, 8))
        assert (near - full).abs().max() > 0.1


def test_e145_three_windows_of_four_reach_ten_tokens():
    x = draw(30, 3).requires_grad_()
    stream = x
    for _ in range(3):
        stream = F.scaled_dot_product_attention(stream, stream, stream, window_mask(30, 30, 4))
    (received,) = torch.autograd.grad(stream[-1].sum(), x)
    reached = int((received != 0).any(1).sum())
    assert reached != 12
    assert reached == 10


def test_e146_tiles_compute_as_much_forwards_and_more_backwards():
    q, k, v = (draw(24, 8, seed=i).requires_grad_() for i in range(3))

    def counted(compute):
        with FlopCounterMode(display=False) as forwards:
            out = compute()
        with FlopCounterMode(display=False) as backwards:
            out.sum().backward()
        return forwards.get_total_flops(), backwards.get_total_flops()

    plain = counted(lambda: (q @ k.T / 8**0.5).softmax(-1) @ v)
    tiles = counted(lambda: tiled_attention(q, k, v, block_size=(6, 8)))
    assert tiles[0] == plain[0]
    assert tiles[1] / plain[1] == 5 / 4


def test_e147_a_mask_before_the_cap_hides_nothing():
    scores, hidden = torch.zeros(1, 2), torch.tensor([[False, True]])
    before = soft_cap(scores.masked_fill(hidden, -torch.inf), 2.0).softmax(-1)
    after = soft_cap(scores, 2.0).masked_fill(hidden, -torch.inf).softmax(-1)
    assert before[0, 1] > 0.1
    assert after[0, 1] == 0
