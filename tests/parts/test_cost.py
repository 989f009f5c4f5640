"""The cost formulas against torch's counter, direct counts, and their error messages."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_parts import cost
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig

TOY = {"d_model": 24, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "d_ff": 40}
LLAMA_7B = ModelConfig(32000, d_model=4096, num_layers=32, num_heads=32, d_ff=11008)


def counted(compute):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        compute()
    return counter.get_total_flops()


@settings(max_examples=20)
@given(n=st.integers(1, 9), d_in=st.integers(1, 9), d_out=st.integers(1, 9))
def test_linear_flops_are_torchs_forward_and_half_of_them_backward(n, d_in, d_out):
    x, layer = torch.randn(n, d_in, requires_grad=True), torch.nn.Linear(d_in, d_out)
    forward = cost.linear_flops(n, d_in, d_out)
    assert counted(lambda: layer(x)) == forward
    y = layer(x).sum()
    assert counted(y.backward) == 2 * forward


@pytest.mark.parametrize(("h", "t", "s", "d"), [(1, 1, 1, 1), (4, 3, 7, 2), (2, 5, 5, 8)])
def test_attention_flops_are_torchs(h, t, s, d):
    q, k, v = torch.randn(3, h, t, d), torch.randn(3, h, s, d), torch.randn(3, h, s, d)
    assert counted(lambda: F.scaled_dot_product_attention(q, k, v)) == 3 * cost.attention_flops(
        h, d, t, s
    )


@pytest.mark.parametrize(("t", "s"), [(1, 1), (1, 9), (4, 4), (3, 8)])
def test_causal_attention_counts_the_visible_pairs(t, s):
    visible = int(torch.ones(t, s).tril(s - t).sum())
    assert cost.attention_flops(2, 3, t, s, causal=True) == 4 * 2 * 3 * visible


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"num_kv_heads": None}, {"num_kv_heads": 1, "head_dim": 10}, {"gated": False},
        {"tie_embeddings": True}, {"position": "none", "d_ff": None}, {"qk_norm": True},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("batch", [1, 3])
def test_model_flops_are_torchs_forward_and_in_training(changes, batch):
    config = ModelConfig(50, **(TOY | changes))
    model, tokens = DecoderOnlyTransformer(config), torch.randint(0, 50, (batch, 7))
    forward = cost.model_flops(config, batch, 7)
    assert counted(lambda: model(tokens)) == sum(forward.values())
    training = cost.model_flops(config, batch, 7, training=True)
    assert counted(lambda: model(tokens).sum().backward()) == sum(training.values())
    assert training == {name: 3 * value for name, value in forward.items()}


def test_model_flops_of_a_decoding_step_are_torchs():
    config = ModelConfig(50, **TOY)
    model, tokens = DecoderOnlyTransformer(config), torch.randint(0, 50, (2, 6))
    with torch.inference_mode():
        cache = model.new_cache(2, 6)
        model(tokens[:, :5], cache)
        step = counted(lambda: model(tokens[:, 5:], cache))
    assert step == sum(cost.model_flops(config, 2, 1, 6).values())


def test_causal_model_flops_change_attention_only():
    dense, half = (cost.model_flops(LLAMA_7B, 1, 64, causal=c) for c in (False, True))
    assert half["attention"] == dense["attention"] * 65 / 128
    assert {k: v for k, v in half.items() if k != "attention"} == {
        k: v for k, v in dense.items() if k != "attention"
    }


def test_the_weights_of_llama_7b_are_the_published_ones():
    weights = sum(cost.matmul_parameters(LLAMA_7B).values())
    assert weights + 32000 * 4096 + 65 * 4096 == 6_738_415_616


def test_forward_bytes_are_those_of_weights_and_cache():
    config = ModelConfig(50, **TOY)
    model = DecoderOnlyTransformer(config)
    weights = sum(p.nbytes for p in model.parameters() if p.dim() == 2) - model.embed.weight.nbytes
    for batch, length in ((1, 3), (4, 9)):
        cache = sum(c.keys.nbytes + c.values.nbytes for c in model.new_cache(batch, length))
        assert cost.forward_bytes(config, batch, length, 4) == weights + cache
    assert cost.forward_bytes(config, 1, 3) * 2 == cost.forward_bytes(config, 1, 3, 4)


def test_intensity_roofline_and_time_agree_with_each_other():
    machine = {"peak_flops": 100.0, "bandwidth": 4.0}
    for flops, nbytes in ((1e3, 1e3), (1e5, 10.0), (25.0, 1.0)):
        rate = cost.roofline(cost.arithmetic_intensity(flops, nbytes), **machine)
        assert math.isclose(flops / rate, cost.time_bound(flops, nbytes, **machine))
    assert cost.roofline(25.0, **machine) == 100.0
    assert cost.roofline(5.0, **machine) == 20.0
    assert cost.time_bound(0.0, 8.0, **machine) == 2.0


@pytest.mark.parametrize(("n", "i", "o", "b"), [(1, 8, 8, 2), (7, 3, 5, 4), (512, 512, 512, 1)])
def test_linear_intensity_is_flops_over_bytes(n, i, o, b):
    direct = cost.linear_flops(n, i, o) / (b * (n * i + i * o + n * o))
    assert math.isclose(cost.linear_intensity(n, i, o, b), direct)


def test_forward_bound_is_the_longer_of_both():
    one, many = (cost.forward_bound(LLAMA_7B, batch, 1, 128, 1e15, 1e12) for batch in (1, 4096))
    assert math.isclose(one, cost.forward_bytes(LLAMA_7B, 1, 128) / 1e12)
    wide = cost.forward_bound(LLAMA_7B, 1, 1, 128, 1e15, 1e12, dtype_bytes=4)
    assert math.isclose(wide, 2 * one)
    assert many > one


def test_forward_bound_adds_up_parts_that_take_turns():
    """70 billion parameters on an H100, 512 sequences of 512: one part waits for each."""
    model = ModelConfig(
        128256, d_model=8192, num_layers=80, num_heads=64, num_kv_heads=8, d_ff=28672,
        max_seq_len=1,
    )  # fmt: skip
    weights = 80 * (2 * 8192 * 64 * 128 + 2 * 8192 * 8 * 128 + 3 * 8192 * 28672) + 8192 * 128256
    multiplying = 2 * weights * 512 / 989e12
    reading = 512 * 512 * 80 * 2 * 8 * 128 * 2 / 3.35e12
    bound = cost.forward_bound(model, 512, 1, 512, 989e12, 3.35e12)
    assert math.isclose(bound, multiplying + reading)
    assert 0.0975 < bound < 0.0977
    scores = 512 * 80 * 4 * 64 * 128 * 512
    together = max(multiplying + scores / 989e12, 2 * weights / 3.35e12 + reading)
    assert 1.3 < bound / together < 1.4


def test_in_prefill_the_head_waits_for_its_weights_and_the_rest_for_arithmetic():
    bound = cost.forward_bound(LLAMA_7B, 1, 4096, 4096, 989e12, 3.35e12)
    blocks = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    pairs = 4096 * 4097 // 2
    arithmetic = (2 * 4096 * blocks + 4 * 32 * 4096 * pairs) / 989e12
    assert math.isclose(bound, arithmetic + 2 * 4096 * 32000 / 3.35e12)


@pytest.mark.parametrize(("new", "length"), [(1024, 8192), (4096, 4096), (32768, 32768)])
def test_forward_bound_counts_what_a_causal_model_needs_to_continue(new, length):
    bound = cost.forward_bound(LLAMA_7B, 1, new, length, 1e12, 1e15)
    blocks = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    pairs = sum(length - new + t for t in range(1, new + 1))
    flops = 2 * new * blocks + 4 * 32 * 4096 * pairs + 2 * 4096 * 32000
    assert math.isclose(bound, flops / 1e12)
    everything = sum(cost.model_flops(LLAMA_7B, 1, new, length).values()) / 1e12
    assert bound < everything
    if new == 32768:  # all pairs cost 1.39 times as much, all logits a little more
        pairs_too = flops + 4 * 32 * 4096 * (new * length - pairs)
        assert 1.38 < pairs_too / flops < 1.40 < everything / bound < 1.42


def test_logits_of_the_last_position_cost_one_row_of_the_head():
    every, last = (cost.model_flops(LLAMA_7B, 3, 64, logits_len=n) for n in (None, 1))
    assert every["vocabulary"] == 64 * last["vocabulary"] == 2 * 3 * 64 * 4096 * 32000
    assert {k: v for k, v in every.items() if k != "vocabulary"} == {
        k: v for k, v in last.items() if k != "vocabulary"
    }


def test_at_a_long_context_the_batch_still_helps_by_more_than_ten():
    """70 billion parameters, 8 key-value heads, an H100: from 1 to 512 sequences."""
    model = ModelConfig(
        128256, d_model=8192, num_layers=80, num_heads=64, num_kv_heads=8, d_ff=28672,
        max_seq_len=1,
    )  # fmt: skip
    rates = [
        batch / cost.forward_bound(model, batch, 1, 32768, 989e12, 3.35e12)
        for batch in (1, 128, 512)
    ]
    assert 13 < rates[2] / rates[0] < 13.5
    assert 1 < rates[2] / rates[1] < 1.2


@settings(max_examples=40)
@given(n=st.integers(1, 40), k=st.integers(1, 40), m1=st.integers(1, 16), m2=st.integers(1, 16))
def test_padded_fraction_counts_the_tiles(n, k, m1, m2):
    computed = len(range(0, n, m1)) * m1 * len(range(0, k, m2)) * m2
    assert math.isclose(
        cost.padded_fraction((n, k), (m1, m2)), (computed - n * k) / computed, abs_tol=1e-12
    )


def test_traffic_counts_reading_and_writing_and_no_views():
    x = torch.ones(10, 8)
    with cost.Traffic() as moved:
        y = x.t().reshape(8, 10).expand(8, 10)
        assert moved.bytes == 0 or "clone" in moved.operators[0]
    with cost.Traffic() as moved:
        x.view(8, 10).unsqueeze(0).transpose(0, 1)
    assert (moved.bytes, moved.operators) == (0, [])
    with cost.Traffic() as moved:
        torch.sin(x.double())
    assert moved.bytes == 80 * (4 + 8) + 80 * (8 + 8)
    assert moved.operators == ["aten._to_copy.default", "aten.sin.default"]
    with cost.Traffic() as moved:
        x.mul_(2)
    assert moved.bytes == 2 * 80 * 4
    with cost.Traffic() as moved:
        x + torch.ones(1, 8).expand(10, 8)
    assert moved.bytes == 8 * 4 + 80 * 4 + 8 * 4 + 80 * 4  # ones; x, the row, the result
    with cost.Traffic() as moved:
        torch.var_mean(x, 1)
    assert moved.bytes == 4 * (80 + 10 + 10)
    assert y.shape == (8, 10)


WRONG = {
    "rows": lambda: cost.linear_flops(0, 1, 1),
    "d_in": lambda: cost.linear_flops(1, -1, 1),
    "head_dim": lambda: cost.attention_flops(1, 0, 1, 1),
    "query_len must be at most": lambda: cost.attention_flops(1, 1, 3, 2, causal=True),
    "nbytes": lambda: cost.arithmetic_intensity(1.0, 0.0),
    "dtype_bytes": lambda: cost.linear_intensity(1, 1, 1, 0),
    "peak_flops": lambda: cost.roofline(1.0, 0.0, 1.0),
    "bandwidth": lambda: cost.time_bound(1.0, 1.0, 1.0, 0.0),
    "tiles must have 2": lambda: cost.padded_fraction((1, 2), (1,)),
    "tiles must have 1": lambda: cost.padded_fraction((1,), (1, 2)),
    "tiles must be positive": lambda: cost.padded_fraction((1,), (0,)),
    "batch": lambda: cost.model_flops(LLAMA_7B, 0, 1),
    "logits_len must be from 1 to query_len=4, got 5": lambda: cost.model_flops(
        LLAMA_7B, 1, 4, logits_len=5
    ),
    "logits_len must be from 1": lambda: cost.model_flops(LLAMA_7B, 1, 4, logits_len=0),
    "key_len": lambda: cost.forward_bytes(LLAMA_7B, 1, 0),
    "sliding_window": lambda: cost.model_flops(ModelConfig(50, **TOY, sliding_window=4), 1, 8),
    "attention must be 'gqa'": lambda: cost.matmul_parameters(
        ModelConfig(
            50, 24, 2, 4, attention="mla", kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2,
            v_head_dim=4,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_argument(name):
    with pytest.raises(ValueError, match=name):
        WRONG[name]()
