"""Configuration, block, model, sampling, generation and the loader, without Hugging Face."""

import dataclasses
import json
import math
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_parts import decoder as ours
from transformer_parts import long_context
from transformer_parts.decoder import (
    DecoderBlock,
    DecoderOnlyTransformer,
    ModelConfig,
    RopeScaling,
    from_pretrained_config,
    generate,
    load_hf_state_dict,
    next_token_probs,
)
from transformer_parts.kv_cache import check_cache_law
from transformer_parts.rope import rope_frequencies
from transformer_parts.tensors import assert_parity

F64 = torch.float64
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 1e-1}
BASE = ModelConfig(61, 24, 2, 4, num_kv_heads=2, d_ff=40, max_seq_len=48)
MLA = {
    "attention": "mla",
    "num_kv_heads": None,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
}
DYNAMIC = RopeScaling("dynamic", 2.0, 16)
SWITCHES = {
    "llama": {},
    "layer norm": {"norm": "layer"},
    "relu": {"gated": False, "activation": "relu", "mlp_bias": True},
    "gelu": {"gated": False, "activation": "gelu"},
    "geglu": {"activation": "gelu"},
    "sinusoidal": {"position": "sinusoidal"},
    "no position": {"position": "none"},
    "mha": {"num_kv_heads": None},
    "mqa": {"num_kv_heads": 1, "head_dim": 10},
    "mla": MLA,
    "mla with ranks": {**MLA, "q_lora_rank": 9, "qkv_bias": True, "out_bias": True},
    "mla without position": {**MLA, "position": "none"},
    "post-norm": {"norm_first": False},
    "the model of 2017": {
        "norm": "layer",
        "norm_first": False,
        "position": "sinusoidal",
        "gated": False,
        "activation": "relu",
        "num_kv_heads": None,
        "mlp_bias": True,
        "tie_embeddings": True,
    },
    "qwen2": {"qkv_bias": True, "tie_embeddings": True},
    "qwen3": {"qk_norm": True, "head_dim": 8},
    "all biases": {"qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "sliding": {"sliding_window": 5},
    "one layer slides": {"sliding_window": 4, "sliding_layers": (1,)},
    "sliding mla": {**MLA, "sliding_window": 3},
    "linear": {"rope_scaling": RopeScaling("linear", 3.0)},
    "llama 3.1": {"rope_scaling": RopeScaling("llama3", 8.0, 32)},
    "yarn": {"rope_scaling": RopeScaling("yarn", 4.0, 16)},
}
switches = pytest.mark.parametrize("options", SWITCHES.values(), ids=SWITCHES)


def model_of(dtype=F64, seed=0, **options):
    torch.manual_seed(seed)
    model = DecoderOnlyTransformer(dataclasses.replace(BASE, **options))
    for name, p in model.named_parameters():  # norms and biases too are told apart
        p.data.add_(0.1 * torch.randn_like(p)) if "norm" in name else None
    return model.to(dtype)


def text(batch=2, length=18, seed=0, vocab=61):
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def draw(*shape, seed=0, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def on_meta(config):
    with torch.device("meta"):
        return DecoderOnlyTransformer(config)


def count(model):
    return sum(p.numel() for p in model.parameters())


# --- Published sizes ------------------------------------------------------------------------------

LLAMA = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5}
PUBLISHED = {
    # LLaMA-7B has neither num_key_value_heads nor rope_theta in its file.
    6_738_415_616: {
        **LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
        "num_hidden_layers": 32, "vocab_size": 32000, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "float16",
    },
    68_976_648_192: {
        **LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
        "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 4096, "rope_scaling": None, "pretraining_tp": 1,
    },
    8_030_261_248: {
        **LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "rope_theta": 500000.0, "attention_bias": False,
    },
    7_241_732_096: {
        "model_type": "mistral", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 32768, "rope_theta": 10000.0, "sliding_window": 4096,
    },
    7_615_616_512: {
        "model_type": "qwen2", "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
        "max_position_embeddings": 131072, "rope_theta": 1000000.0, "sliding_window": 131072,
        "use_sliding_window": False, "max_window_layers": 28, "tie_word_embeddings": False,
    },
    8_190_735_360: {
        "model_type": "qwen3", "hidden_act": "silu", "rms_norm_eps": 1e-6, "head_dim": 128,
        "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
        "num_hidden_layers": 36, "num_key_value_heads": 8, "vocab_size": 151936,
        "max_position_embeddings": 40960, "rope_theta": 1000000, "rope_scaling": None,
        "attention_bias": False, "sliding_window": None, "use_sliding_window": False,
    },
    # Qwen2.5-0.5B: the head is the embedding.
    494_032_768: {
        "model_type": "qwen2", "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936,
        "max_position_embeddings": 32768, "rope_theta": 1000000.0, "sliding_window": 32768,
        "use_sliding_window": False, "max_window_layers": 24, "tie_word_embeddings": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("total", PUBLISHED)
def test_published_parameter_counts(total):
    hf = PUBLISHED[total]
    config = from_pretrained_config(hf)
    assert count(on_meta(config)) == total
    assert config.sliding_window == (4096 if hf["model_type"] == "mistral" else None)
    assert config.rope_base == hf.get("rope_theta", 10000.0)
    assert config.max_seq_len == hf["max_position_embeddings"]
    assert config.eps == hf["rms_norm_eps"]


def test_the_formula_of_the_audit():
    for total, hf in PUBLISHED.items():
        v, d, layers = (hf[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers"))
        h, f = hf["num_attention_heads"], hf["intermediate_size"]
        kv = hf.get("num_key_value_heads", h)
        if hf["model_type"] in ("llama", "mistral"):
            block = 2 * d * d + 2 * d * kv * (d // h) + 3 * d * f + 2 * d
            assert 2 * v * d + layers * block + d == total


def test_nothing_is_allocated_on_meta():
    model = on_meta(from_pretrained_config(PUBLISHED[68_976_648_192]))
    assert all(p.is_meta for p in model.parameters())
    assert all(b.is_meta for b in model.buffers())


# --- Configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0), ("d_model", -1), ("num_layers", 0), ("num_heads", 1.5),
        ("max_seq_len", 0), ("num_kv_heads", 3), ("num_kv_heads", 0), ("head_dim", 7),
        ("d_ff", 0), ("norm", "batch"), ("eps", 0.0), ("activation", "swoosh"),
        ("position", "alibi"), ("rope_base", -1.0), ("sliding_window", 0),
        ("sliding_layers", (2,)), ("attention", "linear"), ("kv_lora_rank", 8),
        ("q_lora_rank", 8), ("v_head_dim", 8), ("num_heads", 5),
    ],
)  # fmt: skip
def test_the_impossible_field_is_named(field, value):
    options = {"num_kv_heads": None} if (field, value) == ("num_heads", 5) else {}
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(BASE, **options, **{field: value})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({**MLA, "kv_lora_rank": None}, "kv_lora_rank"),
        ({**MLA, "qk_rope_head_dim": 3}, "even"),
        ({**MLA, "num_kv_heads": 2}, "num_kv_heads"),
        ({**MLA, "head_dim": 8}, "head_dim"),
        ({**MLA, "qk_norm": True}, "qk_norm"),
        ({**MLA, "qkv_bias": True}, "out_bias"),
        ({"position": "none", "rope_scaling": DYNAMIC}, "rope_scaling"),
    ],
)
def test_fields_that_do_not_go_together(options, match):
    with pytest.raises(ValueError, match=match):
        dataclasses.replace(BASE, **options)


def test_rope_scaling_names_its_fields():
    with pytest.raises(ValueError, match="rope_type must be one of linear"):
        RopeScaling("longrope", 2.0, 16)
    with pytest.raises(ValueError, match="factor must be at least 1"):
        RopeScaling("yarn", 0.5, 16)
    with pytest.raises(ValueError, match="original_max_len"):
        RopeScaling("yarn", 2.0)


def test_what_is_none_follows_from_the_rest():
    config = ModelConfig(10, 768, 2, 12)
    assert (config.kv_heads, config.d_head, config.d_hidden, config.d_rope) == (12, 64, 2048, 64)
    assert dataclasses.replace(config, gated=False).d_hidden == 4 * 768
    assert dataclasses.replace(config, num_heads=6).d_head == 128
    assert dataclasses.replace(BASE, **MLA).d_rope == 4
    sliding = dataclasses.replace(BASE, sliding_window=7, sliding_layers=(1,))
    assert [sliding.window(i) for i in range(2)] == [None, 7]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 1


# --- The block, against plain torch ---------------------------------------------------------------


def plain_block(x, p, cos, sin, heads=4, kv_heads=2, qk_norm=False):
    """A Llama block from torch's own functions; RoPE with cos and sin repeated per pair."""
    b, t, _ = x.shape

    def norm(h, weight):
        return F.rms_norm(h, weight.shape, weight, 1e-6)

    def turn(h):
        flipped = torch.stack([-h[..., 1::2], h[..., 0::2]], -1).flatten(-2)
        return h * cos.repeat_interleave(2, -1) + flipped * sin.repeat_interleave(2, -1)

    y = norm(x, p["attn.norm.weight"])
    q, k, v = (
        (y @ p[f"attn.sublayer.{n}_proj.weight"].T).view(b, t, h, -1).transpose(1, 2)
        for n, h in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    )
    if qk_norm:
        q, k = (norm(h, p[f"attn.sublayer.{n}_norm.weight"]) for n, h in (("q", q), ("k", k)))
    k, v = (h.repeat_interleave(heads // kv_heads, 1) for h in (k, v))
    out = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
    x = x + out.transpose(1, 2).reshape(b, t, -1) @ p["attn.sublayer.out_proj.weight"].T
    y = norm(x, p["ffn.norm.weight"])
    gate, up, down = (p[f"ffn.sublayer.w_{n}.weight"].T for n in ("gate", "up", "down"))
    return x + (F.silu(y @ gate) * (y @ up)) @ down


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(2, 7), (1, 1), (3, 13)])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_the_block_is_the_formula(dtype, shape, qk_norm):
    model = model_of(dtype, qk_norm=qk_norm)
    block = model.layers[1]
    tables = model.rope(torch.arange(shape[1]))
    p = dict(block.named_parameters())
    tol = TOLERANCE[dtype]

    def plain(x):
        if dtype != torch.bfloat16:
            return plain_block(x, p, *(t.to(dtype) for t in tables), qk_norm=qk_norm)
        wide = {k: v.float() for k, v in p.items()}
        return plain_block(x.float(), wide, *tables, qk_norm=qk_norm).to(dtype)

    assert_parity(
        lambda x: block(x, tables), plain, draw(*shape, 24, dtype=dtype), atol=tol, rtol=tol
    )


def test_post_norm_is_the_norm_of_the_sum():
    block = model_of(norm_first=False, norm="layer").layers[0]
    x, attn, ffn = draw(2, 5, 24), block.attn, block.ffn
    y = F.layer_norm(x + attn.sublayer(x), (24,), attn.norm.weight, attn.norm.bias, 1e-6)
    z = F.layer_norm(y + ffn.sublayer(y), (24,), ffn.norm.weight, ffn.norm.bias, 1e-6)
    torch.testing.assert_close(block(x), z, rtol=0, atol=1e-12)


def test_the_model_is_its_blocks():
    model = model_of(qkv_bias=True)
    tokens = text()
    x = model.embed.weight[tokens]
    for block in model.layers:
        x = block(x, model.rope(torch.arange(18)))
    want = F.rms_norm(x, (24,), model.norm.weight, 1e-6) @ model.lm_head.weight.T
    torch.testing.assert_close(model(tokens), want, rtol=0, atol=1e-12)
    assert torch.equal(model.logits(model.hidden_states(tokens)), model(tokens))


def test_sinusoidal_positions_are_added_to_the_scaled_embedding():
    model = model_of(position="sinusoidal")
    seen = []
    model.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(text())
    k = torch.arange(0, 24, 2, dtype=F64)
    angles = torch.arange(18, dtype=F64)[:, None] * 10000 ** (-k / 24)
    pe = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    want = model.embed.weight[text()] * math.sqrt(24) + pe
    torch.testing.assert_close(seen[0], want, rtol=0, atol=1e-6)  # the table is float32


# --- Every switch: causality, the cache, gradients, padding ---------------------------------------


@switches
def test_the_future_is_not_seen(options):
    model = model_of(**options)
    tokens = text()
    for t in (1, 9, 17):
        other = tokens.clone()
        other[:, t] = (other[:, t] + 1) % 61
        change = (model(other) - model(tokens)).abs().amax((0, 2))
        assert (change[:t] == 0).all()
        assert change[t] > 1e-9


@switches
def test_the_law_of_the_cache(options):
    model = model_of(**options)
    worst = check_cache_law(
        lambda x, cache: model(x, cache), text(), lambda: model.new_cache(2, 20)
    )
    assert worst < 1e-12


@switches
def test_every_parameter_gets_a_gradient(options):
    model = model_of(**options)
    logits = model(text())
    assert logits.shape == (2, 18, 61)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), text()[:, 1:].flatten()).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        if not name.endswith("k_proj.bias") or "position" in options or "qk_norm" in options:
            assert p.grad.abs().max() > 1e-12, name


@switches
def test_padding_at_the_left_changes_nothing(options):
    model = model_of(**options)
    tokens, lengths = text(3), [18, 7, 12]
    mask = torch.arange(18) >= 18 - torch.tensor(lengths)[:, None]
    got = model(tokens, key_padding_mask=mask)
    assert got.isfinite().all()
    for row, n in enumerate(lengths):
        alone = model(tokens[row : row + 1, 18 - n :])[0]
        torch.testing.assert_close(got[row, 18 - n :], alone, rtol=0, atol=1e-12)
    cache = model.new_cache(3, 18)
    parts = [
        model(tokens[:, a:b], cache, key_padding_mask=mask[:, :b])
        for a, b in ((0, 11), (11, 12), (12, 18))
    ]
    torch.testing.assert_close(torch.cat(parts, 1)[mask], got[mask], rtol=0, atol=1e-12)


@switches
def test_generation_with_and_without_the_cache(options):
    model = model_of(**options)
    want = text()
    for _ in range(10):
        want = torch.cat([want, model(want)[:, -1:].argmax(-1)], 1)
    for use_cache in (True, False):
        assert torch.equal(generate(model, text(), 10, 0, use_cache=use_cache), want)
    padded = torch.cat([torch.zeros(2, 4, dtype=torch.long), text()], 1)
    for use_cache in (True, False):
        got = generate(model, padded, 10, 0, use_cache=use_cache, prompt_lengths=[18, 18])
        assert torch.equal(got[:, 4:], want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@switches
def test_other_dtypes(options, dtype):
    model = model_of(**options)
    want = model(text())
    narrow = model.to(dtype)
    got = narrow(text())
    assert got.dtype == dtype
    atol = {torch.float32: 1e-4, torch.bfloat16: 0.25}[dtype] * want.abs().max().item()
    torch.testing.assert_close(got.double(), want, rtol=0, atol=atol)
    assert generate(narrow, text(), 3, top_k=5).shape == (2, 21)
    cache = narrow.new_cache(2, 20)
    torch.testing.assert_close(narrow(text(), cache), got, rtol=0, atol=atol)


# --- Masks and positions --------------------------------------------------------------------------


def test_the_sliding_window_counts_the_query_itself():
    model = model_of(sliding_window=5, num_layers=1)
    every = torch.arange(18)
    band = (every <= every[:, None]) & (every > every[:, None] - 5)
    want = model_of(num_layers=1)(text(), attn_mask=band)
    torch.testing.assert_close(model(text()), want, rtol=0, atol=1e-13)
    other = text()
    other[:, 3] = (other[:, 3] + 1) % 61
    change = (model(other) - model(text())).abs().amax((0, 2))
    assert (change[3:8] > 1e-9).all()
    assert (change[8:] == 0).all()


def test_documents_that_do_not_see_each_other():
    model = model_of()
    document = torch.tensor([0] * 7 + [1] * 11)
    same = document == document[:, None]
    positions = torch.cat([torch.arange(7), torch.arange(11)])
    parts = [model(text()[:, :7]), model(text()[:, 7:])]
    for mask in (same, same.expand(2, 1, 18, 18)):
        got = model(text(), attn_mask=mask, position_ids=positions)
        torch.testing.assert_close(got, torch.cat(parts, 1), rtol=0, atol=1e-12)
    got = model(text(), attn_mask=same, position_ids=positions.expand(2, -1))
    torch.testing.assert_close(got, torch.cat(parts, 1), rtol=0, atol=1e-12)


def test_a_query_with_nothing_else_sees_itself():
    model = model_of()
    nothing = torch.zeros(18, 18, dtype=torch.bool)
    alone = [model(text()[:, i : i + 1], position_ids=torch.tensor([i])) for i in range(18)]
    got = model(text(), attn_mask=nothing)
    torch.testing.assert_close(got, torch.cat(alone, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"sliding_window": 5}])
@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_that_is_added_says_what_a_boolean_one_says(options, padded):
    model = model_of(**options)
    seen = torch.rand(2, 1, 18, 18, generator=torch.Generator().manual_seed(3)) < 0.5
    added = torch.zeros(2, 1, 18, 18, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    rows = torch.arange(18) >= torch.tensor([[0], [4]]) if padded else None
    want = model(text(), attn_mask=seen, key_padding_mask=rows)
    got = model(text(), attn_mask=added, key_padding_mask=rows)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_a_mask_that_is_added_is_added_to_the_scores():
    model = model_of(num_layers=1)
    tilt = torch.zeros(18, 18, dtype=torch.float64)
    tilt[:, 0] = 60.0  # so much that every query attends to the first position only
    first = torch.eye(18, dtype=torch.bool).logical_not().tril()
    first[:, 1:], first[0, 0] = False, True
    got = model(text(), attn_mask=tilt)
    alone = model(text(), attn_mask=torch.where(first, 0.0, -60.0).double())
    torch.testing.assert_close(got, alone, rtol=0, atol=1e-12)
    assert (got - model(text())).abs().max() > 1e-3


def test_masks_and_tables_are_made_once(monkeypatch):
    model = model_of(num_layers=4, sliding_window=5, sliding_layers=(0, 2))
    made, looked = [], []
    real = ours._attention_mask
    monkeypatch.setattr(ours, "_attention_mask", lambda *a: made.append(a[2]) or real(*a))
    model.rope.register_forward_hook(lambda *_: looked.append(1))
    want = model(text())
    assert sorted(made, key=str) == [5, None]
    assert looked == []  # consecutive positions are a slice of the tables
    assert torch.equal(model(text(), position_ids=torch.arange(18)), want)
    assert looked == [1]


def test_no_mask_where_causality_suffices():
    for t, s in ((18, 18), (1, 18)):
        assert ours._attention_mask(t, s, None, None, torch.device("cpu")) is None
        assert ours._attention_mask(t, s, 18, None, torch.device("cpu")) is None
        assert ours._attention_mask(t, s, 17, None, torch.device("cpu")).shape == (t, s)
    assert ours._attention_mask(3, 18, None, None, torch.device("cpu")).sum() == 16 + 17 + 18


def test_positions_end_with_the_tables():
    model = model_of()
    assert model(text(1, 48)).shape == (1, 48, 61)
    with pytest.raises(ValueError, match="max_seq_len=48 positions, got 49"):
        model(text(1, 49))
    cache = model.new_cache(1, 60)
    model(text(1, 40), cache)
    with pytest.raises(ValueError, match="max_seq_len=48 positions, got 49"):
        model(text(1, 9), cache)
    with pytest.raises(ValueError, match="max_seq_len"):
        generate(model, text(1, 40), 10, 0)
    assert generate(model, text(1, 40), 9, 0).shape == (1, 49)  # the last one is not read
    assert model_of(position="none")(text(1, 60)).shape == (1, 60, 61)


def test_each_scaling_reaches_the_tables():
    plain = rope_frequencies(6)
    yarn = RopeScaling(
        "yarn", 4.0, 16, beta_fast=3.0, beta_slow=0.5, mscale=0.8, mscale_all_dim=0.3
    )
    expected = {
        RopeScaling("linear", 3.0): (plain / 3.0, 1.0),
        RopeScaling("llama3", 8.0, 32): (
            long_context.llama3_frequencies(plain, 8.0, 1.0, 4.0, 32),
            1.0,
        ),
        yarn: long_context.yarn_frequencies(6, 10000.0, 4.0, 16, 3.0, 0.5, 0.8, 0.3),
    }
    assert expected[yarn][1] > 1.05
    for scaling, (inv_freq, factor) in expected.items():
        cos, sin = model_of(rope_scaling=scaling).rope(torch.arange(48))
        angles = torch.outer(torch.arange(48.0), inv_freq)
        torch.testing.assert_close(cos, factor * angles.cos())
        torch.testing.assert_close(sin, factor * angles.sin())
        assert not torch.allclose(inv_freq, plain)


def test_dynamic_scaling_starts_after_the_old_length():
    model, plain = model_of(rope_scaling=DYNAMIC), model_of()
    assert torch.equal(model(text(2, 16)), plain(text(2, 16)))
    base = 10000.0 * (2.0 * 40 / 16 - 1.0) ** (6 / 4)
    stretched = model_of(rope_base=base)
    torch.testing.assert_close(model(text(2, 40)), stretched(text(2, 40)), rtol=0, atol=1e-5)
    assert (model(text(2, 40)) - plain(text(2, 40))).abs().max() > 1e-3
    assert model(text(2, 60)).shape == (2, 60, 61)  # no limit
    assert torch.equal(model(text(2, 16)), plain(text(2, 16)))  # and nothing remembered


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"tokens": torch.zeros(3, dtype=torch.long)}, r"tokens must have shape \(B, T\)"),
        ({"attn_mask": torch.ones(18, 17, dtype=torch.bool)}, r"attn_mask .* got .*\(18, 17\)"),
        ({"attn_mask": torch.ones(18, 18).long()}, "attn_mask must be boolean or floating"),
        ({"attn_mask": torch.ones(2, 18, 18, dtype=torch.bool)}, "attn_mask"),
        ({"key_padding_mask": torch.ones(2, 17, dtype=torch.bool)}, "key_padding_mask .* got"),
        ({"key_padding_mask": torch.ones(2, 18)}, "key_padding_mask must be boolean"),
        ({"position_ids": torch.arange(17)}, r"position_ids .* got \(17,\)"),
    ],
)
def test_errors_name_the_argument(kwargs, match):
    with pytest.raises(ValueError, match=match):
        model_of()(**{"tokens": text(), **kwargs})


def test_nothing_in_nothing_out():
    model = model_of()
    assert model(text(0, 5)).shape == (0, 5, 61)
    assert model(text(2, 0)).shape == (2, 0, 61)


# --- Sampling -------------------------------------------------------------------------------------

LOGITS = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625], dtype=F64).log()


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, [0.5, 0.25, 0.125, 0.0625, 0.0625]),
        ({"temperature": 0.5}, [64, 16, 4, 1, 1]),
        ({"temperature": 0}, [1, 0, 0, 0, 0]),
        ({"top_k": 2}, [2, 1, 0, 0, 0]),
        ({"top_k": 99}, [8, 4, 2, 1, 1]),
        ({"top_k": 1}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.45}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.55}, [2, 1, 0, 0, 0]),
        ({"top_p": 0.76}, [4, 2, 1, 0, 0]),
        ({"top_p": 1.0}, [8, 4, 2, 1, 1]),
        ({"top_p": 1e-9}, [1, 0, 0, 0, 0]),
        # top-p is measured after top-k: of the two, the first alone has 2/3
        ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e-12}, [1, 0, 0, 0, 0]),
        ({"min_p": 0.24}, [8, 4, 2, 0, 0]),
        ({"min_p": 0.26}, [8, 4, 0, 0, 0]),
        ({"min_p": 1.0}, [1, 0, 0, 0, 0]),
        ({"min_p": 0.0}, [8, 4, 2, 1, 1]),
        # min-p compares with the largest at this temperature: the ratios are 1, 1/4, 1/16
        ({"temperature": 0.5, "min_p": 0.2}, [4, 1, 0, 0, 0]),
        ({"top_k": 3, "top_p": 0.9, "min_p": 0.3}, [2, 1, 0, 0, 0]),
    ],
)
def test_the_distribution_by_hand(options, want):
    want = torch.tensor(want, dtype=F64)
    order = torch.tensor([3, 0, 4, 2, 1])
    for shift in (0.0, -300.0, 700.0):
        got = next_token_probs((LOGITS + shift)[order], **options)
        torch.testing.assert_close(got, (want / want.sum())[order], rtol=0, atol=1e-12)


def test_the_distribution_of_a_batch():
    logits = draw(3, 4, 61)
    got = next_token_probs(logits, 0.7, 20, 0.8)
    rows = [next_token_probs(row, 0.7, 20, 0.8) for row in logits.flatten(0, 1)]
    torch.testing.assert_close(got.flatten(0, 1), torch.stack(rows), rtol=0, atol=1e-14)
    kept = (got > 0).sum(-1)
    assert (kept <= 20).all()
    assert (kept > 1).any()


@settings(max_examples=60)
@given(seed=st.integers(0, 999), top_p=st.floats(0.01, 1), scale=st.floats(0.1, 30))
def test_top_p_keeps_the_fewest_that_reach_it(seed, top_p, scale):
    logits = scale * draw(17, seed=seed)
    p, kept = logits.softmax(-1), next_token_probs(logits, top_p=top_p) > 0
    n = int(kept.sum())
    assert p[kept].min() >= p[~kept].max() if n < 17 else True
    assert p[kept].sum() >= top_p - 1e-12
    assert n == 1 or p[kept].sum() - p[kept].min() < top_p + 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, F64])
def test_the_distribution_is_wide_and_sums_to_one(dtype):
    logits = draw(5, 4000, dtype=dtype)
    for options in ({}, {"top_k": 300}, {"top_p": 0.9}, {"temperature": 0}):
        got = next_token_probs(logits, **options)
        assert got.dtype == (F64 if dtype == F64 else torch.float32)
        torch.testing.assert_close(got.sum(-1), torch.ones(5, dtype=got.dtype))
    forbidden = logits.clone()
    forbidden[:, ::2] = -torch.inf
    assert (next_token_probs(forbidden, 0.5, top_p=0.99)[:, ::2] == 0).all()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": -1}, "temperature"), ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"top_p": 1.5}, "top_p"),
        ({"min_p": -0.1}, "min_p"), ({"min_p": 1.1}, "min_p"),
    ],
)  # fmt: skip
def test_errors_of_sampling(options, match):
    with pytest.raises(ValueError, match=match):
        next_token_probs(LOGITS, **options)
    with pytest.raises(ValueError, match=match):
        generate(model_of(), text(), 2, **options)


# --- Generation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.6, "top_k": 12, "top_p": 0.8, "min_p": 0.1}]
)
def test_tokens_come_from_the_distribution(options):
    model = model_of()
    with torch.no_grad():
        model.lm_head.weight.mul_(6)
    prompt = text(1, 6)
    want = next_token_probs(model(prompt)[0, -1].detach(), **options)
    out = generate(
        model, prompt.expand(8000, -1), 1, **options, generator=torch.Generator().manual_seed(0)
    )
    got = torch.bincount(out[:, -1], minlength=61) / 8000
    assert (got - want).abs().sum() / 2 < 0.04
    assert (got[want == 0] == 0).all()


def test_the_generator_decides():
    model = model_of()
    runs = [
        generate(model, text(), 12, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    without = generate(
        model, text(), 12, use_cache=False, generator=torch.Generator().manual_seed(1)
    )
    assert torch.equal(runs[0], without)


@pytest.mark.parametrize("use_cache", [True, False])
def test_each_sequence_ends_for_itself(use_cache):
    model = model_of(seed=3)
    free = generate(model, text(3), 20, 0, use_cache=use_cache)
    new = free[:, 18:]
    first, second = int(new[0, 4]), int(new[1, 9])
    for eos in (first, [first, second], torch.tensor([first, second]).tolist()):
        ends = {eos} if isinstance(eos, int) else set(eos)
        got = generate(model, text(3), 20, 0, eos=eos, use_cache=use_cache)
        stops = []
        for row, want in zip(got[:, 18:].tolist(), new.tolist(), strict=True):
            stop = next((i for i, token in enumerate(want) if token in ends), 99)
            stops.append(stop)
            assert row[: stop + 1] == want[: len(row)][: stop + 1]
            assert all(token == want[stop] for token in row[stop:])
        assert got.shape[1] == 18 + min(20, max(stops) + 1)


def test_it_stops_when_all_have_ended():
    model = model_of()
    eos = int(generate(model, text(1), 1, 0)[0, -1])
    assert generate(model, text(1), 20, 0, eos=eos).shape == (1, 19)
    assert generate(model, text(1), 20, 0).shape == (1, 38)
    assert torch.equal(generate(model, text(1), 0, 0), text(1))


@pytest.mark.parametrize("use_cache", [True, False])
def test_only_one_position_meets_the_vocabulary(use_cache, monkeypatch):
    model = model_of()
    shapes, seen = [], []
    model.lm_head.register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0].shape)))
    model.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    generate(model, text(), 5, 0, use_cache=use_cache)
    assert shapes == [(2, 24)] * 5
    assert seen == ([18, 1, 1, 1, 1] if use_cache else [18, 19, 20, 21, 22])


def test_the_tokens_can_be_trained_on():
    model = model_of()
    out = generate(model, text(), 4)
    assert not out.is_inference()
    model(out).sum().backward()
    assert model.embed.weight.grad is not None
    assert torch.equal(out[:, :18], text())


def test_prompts_of_unequal_length_are_their_own():
    model = model_of()
    rows = [text(1, n, seed=n) for n in (3, 18, 1)]
    padded = torch.cat([F.pad(row, (18 - row.shape[1], 0), value=60) for row in rows])
    got = generate(model, padded, 12, 0, prompt_lengths=torch.tensor([3, 18, 1]))
    for row, line in zip(rows, got, strict=True):
        want = generate(model, row, 12, 0)[0]
        assert torch.equal(line[18 - row.shape[1] :], want)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"prompt": torch.zeros(3, dtype=torch.long)}, "prompt must have shape"),
        ({"prompt": torch.zeros(2, 0, dtype=torch.long)}, "prompt must have shape"),
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1"),
        ({"prompt_lengths": [1]}, "prompt_lengths must be 2 numbers"),
        ({"prompt_lengths": [0, 3]}, "from 1 to 18"),
        ({"prompt_lengths": [3, 19]}, "from 1 to 18"),
    ],
)
def test_errors_of_generate(kwargs, match):
    with pytest.raises(ValueError, match=match):
        generate(model_of(), **{"prompt": text(), "max_new_tokens": 2, **kwargs})


# --- The loader, with state dicts written here ----------------------------------------------------

TINY = {
    "model_type": "qwen3", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40,
    "max_position_embeddings": 48, "attention_bias": True,
}  # fmt: skip
SHAPES = {
    "self_attn.q_proj.weight": (32, 24), "self_attn.k_proj.weight": (16, 24),
    "self_attn.v_proj.weight": (16, 24), "self_attn.o_proj.weight": (24, 32),
    "self_attn.q_proj.bias": (32,), "self_attn.k_proj.bias": (16,),
    "self_attn.v_proj.bias": (16,), "self_attn.o_proj.bias": (24,),
    "self_attn.q_norm.weight": (8,), "self_attn.k_norm.weight": (8,),
    "mlp.gate_proj.weight": (40, 24), "mlp.up_proj.weight": (40, 24),
    "mlp.down_proj.weight": (24, 40), "input_layernorm.weight": (24,),
    "post_attention_layernorm.weight": (24,),
}  # fmt: skip


def state_of(tied=False):
    shapes = {"model.embed_tokens.weight": (61, 24), "model.norm.weight": (24,)}
    shapes |= {f"model.layers.{i}.{k}": v for i in range(2) for k, v in SHAPES.items()}
    shapes |= {} if tied else {"lm_head.weight": (61, 24)}
    return {k: draw(*v, seed=i) for i, (k, v) in enumerate(shapes.items())}


def half_split(h, base=10000.0):
    """RoPE as Hugging Face's Llama has it, feature k with feature k + d / 2."""
    d, t = h.shape[-1], h.shape[-2]
    angles = torch.arange(t)[:, None] * base ** (-torch.arange(0, d, 2) / d)
    angles = torch.cat([angles, angles], -1)
    a, b = h.chunk(2, -1)
    return h * angles.cos() + torch.cat([-b, a], -1) * angles.sin()


def published_forward(state, tokens):
    """A Qwen3 written out from its state dict, in the published layout."""

    def norm(h, name):
        return F.rms_norm(h, h.shape[-1:], state[name], 1e-6)

    def linear(h, name):
        return F.linear(h, state[name + ".weight"], state.get(name + ".bias"))

    b, t = tokens.shape
    x = state["model.embed_tokens.weight"][tokens]
    for i in range(2):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        y = norm(x, f"model.layers.{i}.input_layernorm.weight")
        q, k, v = (linear(y, f"{at}{n}_proj").view(b, t, -1, 8).transpose(1, 2) for n in "qkv")
        q, k = half_split(norm(q, at + "q_norm.weight")), half_split(norm(k, at + "k_norm.weight"))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(out.transpose(1, 2).flatten(2), at + "o_proj")
        y = norm(x, f"model.layers.{i}.post_attention_layernorm.weight")
        x = x + linear(
            F.silu(linear(y, mlp + "gate_proj")) * linear(y, mlp + "up_proj"), mlp + "down_proj"
        )
    return linear(norm(x, "model.norm.weight"), "lm_head")


def test_a_published_layout_gives_its_logits():
    model = load_hf_state_dict(
        DecoderOnlyTransformer(from_pretrained_config(TINY)).double(), state_of()
    )
    want = published_forward(state_of(), text())
    # Their angles are computed in float64 here, ours in float32 as the published code does.
    torch.testing.assert_close(model(text()), want, rtol=0, atol=1e-5 * want.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, F64])
@pytest.mark.parametrize("meta", [False, True])
def test_the_model_keeps_its_dtype(dtype, meta):
    config = from_pretrained_config(TINY)
    model = (on_meta(config) if meta else DecoderOnlyTransformer(config)).to(dtype)
    assert load_hf_state_dict(model, state_of()) is model
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(dtype, "cpu")}
    assert model.lm_head.weight.requires_grad
    assert torch.equal(model.lm_head.weight, state_of()["lm_head.weight"].to(dtype))
    plain = load_hf_state_dict(DecoderOnlyTransformer(config).to(dtype), state_of())
    assert torch.equal(model(text()), plain(text()))


def test_every_fault_is_named_at_once_and_nothing_is_copied():
    model = DecoderOnlyTransformer(from_pretrained_config(TINY))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = state_of()
    del state["model.layers.1.mlp.up_proj.weight"]
    state["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(24, 32)
    state["model.layers.2.mlp.up_proj.weight"] = torch.zeros(40, 24)
    state["model.norm.weight"] = torch.zeros(24, dtype=torch.int8)
    with pytest.raises(ValueError, match="4 tensors do not fit") as error:
        load_hf_state_dict(model, state)
    assert str(error.value).splitlines()[1:] == [
        "  model.layers.0.self_attn.q_proj.weight: got shape (24, 32), expected (32, 24)",
        "  model.layers.1.mlp.up_proj.weight: missing, expected shape (40, 24)",
        "  model.layers.2.mlp.up_proj.weight: unexpected, got shape (40, 24)",
        "  model.norm.weight: got dtype torch.int8, expected floating point",
    ]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("name", sorted(state_of()))
def test_each_missing_tensor_is_named(name):
    state = state_of()
    del state[name]
    model = on_meta(from_pretrained_config(TINY))
    with pytest.raises(ValueError, match="1 tensors") as error:
        load_hf_state_dict(model, state)
    assert f"\n  {name}: missing" in str(error.value)
    assert all(p.is_meta for p in model.parameters())


def test_old_files_hold_the_frequencies_too():
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    config = from_pretrained_config(TINY)
    model = load_hf_state_dict(DecoderOnlyTransformer(config), {**state_of(), **extra})
    assert torch.equal(model.norm.weight, state_of()["model.norm.weight"].float())


def test_a_tied_head():
    config = from_pretrained_config({**TINY, "tie_word_embeddings": True})
    model = DecoderOnlyTransformer(config).double()
    assert model.lm_head is None
    load_hf_state_dict(model, state_of(tied=True))
    want = model(text())
    both = {**state_of(tied=True), "lm_head.weight": state_of(True)["model.embed_tokens.weight"]}
    assert torch.equal(load_hf_state_dict(model, both)(text()), want)
    with pytest.raises(ValueError, match=r"lm_head.weight: differs"):
        load_hf_state_dict(model, state_of())


def test_without_safetensors_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    model = DecoderOnlyTransformer(from_pretrained_config(TINY))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ImportError, match="pip install safetensors"):
        load_hf_state_dict(model, tmp_path)
    assert load_hf_state_dict(model, state_of()) is model


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model.safetensors"):
        load_hf_state_dict(on_meta(from_pretrained_config(TINY)), tmp_path)


# --- Reading configurations -----------------------------------------------------------------------


def test_a_configuration_from_its_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    want = from_pretrained_config(TINY)
    for path in (tmp_path, str(tmp_path), tmp_path / "config.json"):
        assert from_pretrained_config(path) == want
    assert (want.d_model, want.num_kv_heads, want.head_dim, want.d_ff) == (24, 2, 8, 40)
    assert want.qkv_bias
    assert want.out_bias
    assert want.qk_norm
    assert not want.tie_embeddings


LLAMA31 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "scaling", "length"),
    [
        ({"rope_scaling": None}, None, 48),
        ({"rope_scaling": {"rope_type": "default"}}, None, 48),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, RopeScaling("linear", 4.0, 48), 192),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, RopeScaling("dynamic", 2, 48), 48),
        ({"rope_scaling": LLAMA31}, RopeScaling("llama3", 8.0, 8192, 1.0, 4.0), 65536),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            RopeScaling("yarn", 4.0, 48),
            192,
        ),
        (
            {
                "max_position_embeddings": 192,
                "rope_parameters": {
                    "rope_theta": 10000.0, "rope_type": "yarn", "factor": None,
                    "original_max_position_embeddings": 48, "beta_fast": 20, "truncate": False,
                    "mscale": 0.7, "mscale_all_dim": 0.9, "beta_slow": None,
                },
            },
            RopeScaling(
                "yarn", 4.0, 48, beta_fast=20, truncate=False, mscale=0.7, mscale_all_dim=0.9
            ),
            192,
        ),
    ],
)  # fmt: skip
def test_scalings_of_rope_are_read(options, scaling, length):
    config = from_pretrained_config({**TINY, **options})
    assert config.rope_scaling == scaling
    assert config.max_seq_len == length
    assert config.rope_base == 10000.0


def test_the_base_is_read_in_both_places():
    for options in ({"rope_theta": 5e5}, {"rope_parameters": {"rope_theta": 5e5}}):
        assert from_pretrained_config({**TINY, **options}).rope_base == 5e5


DENSE = {
    **TINY, "model_type": "deepseek_v3", "first_k_dense_replace": 2, "q_lora_rank": None,
    "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model_type": "gpt2"}, "model_type must be one of llama.*got 'gpt2'"),
        ({"model_type": None}, "model_type"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "activation .* got 'gelu_pytorch_tanh'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1, got 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope_type .* got 'longrope'"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({**DENSE, "first_k_dense_replace": 1}, "n_routed_experts=256, first_k_dense_replace=1"),
        ({**DENSE, "rope_interleave": False}, "rope_interleave"),
    ],
)
def test_what_these_parts_cannot_do_is_named(options, match):
    with pytest.raises(ValueError, match=match):
        from_pretrained_config({**TINY, **options})


def test_deepseek_without_experts():
    config = from_pretrained_config({**DENSE, "n_routed_experts": None, "first_k_dense_replace": 0})
    assert config == from_pretrained_config(DENSE)
    assert config.attention == "mla"
    assert (config.kv_lora_rank, config.q_lora_rank, config.d_rope) == (8, None, 4)


def test_yarn_scales_the_scores_of_mla():
    scaling = {"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7}
    config = from_pretrained_config({**DENSE, "rope_scaling": scaling})
    mscale = 0.1 * 0.7 * math.log(40.0) + 1.0
    block = DecoderBlock(config)
    assert block.attn.sublayer.scale == pytest.approx(10**-0.5 * mscale**2, rel=1e-14)
    plain = DecoderBlock(from_pretrained_config(DENSE))
    assert plain.attn.sublayer.scale == pytest.approx(10**-0.5, rel=1e-14)


def test_windows_are_read():
    qwen = {**TINY, "model_type": "qwen2", "sliding_window": 7, "max_window_layers": 1}
    assert from_pretrained_config(qwen).sliding_window is None
    some = from_pretrained_config({**qwen, "use_sliding_window": True})
    assert [some.window(i) for i in range(2)] == [None, 7]
    types = ["sliding_attention", "full_attention"]
    other = from_pretrained_config({**qwen, "use_sliding_window": True, "layer_types": types})
    assert [other.window(i) for i in range(2)] == [7, None]
    mistral = from_pretrained_config({**TINY, "model_type": "mistral", "sliding_window": 7})
    assert [mistral.window(i) for i in range(2)] == [7, 7]
    none = from_pretrained_config({**TINY, "model_type": "mistral", "sliding_window": None})
    assert none.sliding_window is None


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_an_epsilon_that_a_configuration_leaves_out_is_that_of_its_class(family):
    """All configuration classes of Hugging Face's transformers have 1e-6."""
    hf = {name: value for name, value in TINY.items() if name != "rms_norm_eps"}
    assert from_pretrained_config({**hf, "model_type": family}).eps == 1e-6
    assert from_pretrained_config({**hf, "model_type": family, "rms_norm_eps": 2e-5}).eps == 2e-5


# --- What the chapter says in words ---------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_without_rms_norm_eps_in_the_file_it_is_1e_6(family):
    hf = {
        "model_type": family, "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
    }  # fmt: skip
    assert from_pretrained_config(hf).eps == 1e-6
    assert from_pretrained_config({**hf, "rms_norm_eps": 1e-5}).eps == 1e-5


def test_where_attention_costs_as_much_as_the_matrices_and_the_contexts():
    """Two models stay below the crossing with the contexts they were made for, two go beyond."""
    contexts = {
        6_738_415_616: (25_204, 2048), 8_030_261_248: (28_628, 8192),
        7_615_616_512: (35_227, 131_072), 8_190_735_360: (25_662, 40_960),
    }  # fmt: skip
    for total, (crossing, context) in contexts.items():
        c = from_pretrained_config(PUBLISHED[total])
        model = on_meta(c)
        matrices = sum(p.numel() for p in model.parameters() if p.dim() == 2)
        matrices -= c.vocab_size * c.d_model  # looked up; no model here is tied
        assert round(matrices / (2 * c.num_layers * c.num_heads * c.d_head)) == crossing
        assert (context > crossing) == (total in (7_615_616_512, 8_190_735_360))


def test_top_p_bounds_the_lost_probability_only_on_its_own():
    for seed in range(5):
        z = 2 * draw(1000, seed=seed)
        own = z.softmax(-1)
        alone, after = (next_token_probs(z, top_k=k, top_p=0.9) > 0 for k in (None, 10))
        assert own[alone].sum() >= 0.9 > 0.5 > own[after].sum()
        assert own[after].sum() >= 0.9 * own.topk(10).values.sum()


def test_temperature_and_top_p_do_not_commute():
    for seed in range(5):
        z = 2 * draw(1000, seed=seed)
        first = next_token_probs(z, 1.5, top_p=0.9) > 0
        last = next_token_probs(next_token_probs(z, top_p=0.9).log(), 1.5) > 0
        assert (last <= first).all()
        assert first.sum() > 1.3 * last.sum()


def test_windows_of_several_layers_reach_as_far_as_their_sum():
    model = model_of(num_layers=3, sliding_window=4)
    x = text(1, 16)
    base = model(x)
    for j in range(16):
        changed = x.clone()
        changed[0, j] = (x[0, j] + 1) % 61
        moved = (model(changed) != base).any(-1)[0].nonzero().flatten().tolist()
        assert moved == list(range(j, min(j + 3 * (4 - 1) + 1, 16)))


def test_the_cache_of_a_model_with_a_window_still_holds_every_position():
    model = model_of(sliding_window=4)
    cache = model.new_cache(2, 18)
    model(text(), cache)
    assert {layer.length for layer in cache} == {18}
