"""Families with recurrent layers: caches, counts, older files, refusals. Without Hugging Face."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from transformer_parts.families import (
    FAMILIES,
    FamilyDecoder,
    assemble,
    cache_numbers,
    greedy,
    load_weights,
    parameters,
    plan_differences,
    published_weights,
    read_plan,
    token_flops,
)
from transformer_parts.families.mixers import (
    MIXERS,
    LayerLightning,
    StateCache,
    _FamilyMamba2,
    _mixer,
    _mixer_sizes,
)
from transformer_parts.kv_cache import KVCache, check_cache_law

SIZES = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
         "max_position_embeddings": 64}  # fmt: skip
BOTH = {"layer_types": ["linear_attention", "full_attention"]}
STATE = {"mamba_n_heads": 4, "mamba_d_state": 5, "mamba_n_groups": 2, "mamba_d_conv": 3}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3,
         "linear_value_head_dim": 5, "linear_conv_kernel_dim": 3}  # fmt: skip
CONFIGS = {
    "mamba": {**SIZES, "state_size": 4},
    "mamba2": {**SIZES, "num_heads": 8, "head_dim": 8, "state_size": 5, "n_groups": 2},
    "jamba": {**HEADS, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4,
              "mamba_d_state": 4},
    "bamba": {**HEADS, **STATE, "attn_layer_indices": [1]},
    "falcon_h1": {**HEADS, **STATE, "mamba_d_ssm": 24, "key_multiplier": 0.5},
    "granitemoehybrid": {**HEADS, **STATE, **BOTH, "num_local_experts": 4},
    "nemotron_h": {**HEADS, "hybrid_override_pattern": "-M*", "head_dim": 8, "mamba_num_heads": 4,
                   "mamba_head_dim": 6, "ssm_state_size": 5, "n_groups": 2},
    "lfm2": {**HEADS, "full_attn_idxs": [1]},
    "lfm2_moe": {**HEADS, "full_attn_idxs": [1], "num_dense_layers": 1, "num_experts": 4,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 12},
    "qwen3_next": {**HEADS, **DELTA, **BOTH, "head_dim": 8, "num_experts": 4,
                   "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                   "shared_expert_intermediate_size": 8},
    "olmo_hybrid": {**HEADS, **DELTA, **BOTH, "linear_num_key_heads": 4},
    "kimi_linear": {**HEADS, **BOTH, "linear_num_heads": 3, "linear_head_dim": 4,
                    "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
                    "v_head_dim": 5, "num_experts": 8, "num_experts_per_token": 2,
                    "num_shared_experts": 1, "moe_intermediate_size": 12},
    "minimax": {**HEADS, **BOTH, "num_local_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip


def config(name, **options):
    return {**CONFIGS[name], "model_type": name, **options}


def tokens(batch=2, length=11):
    return torch.randint(0, 61, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", CONFIGS)
def test_chunks_through_a_state_give_what_one_pass_gives(name):
    torch.manual_seed(0)
    model = assemble(config(name)).double().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    check_cache_law(model, tokens(), lambda: model.new_cache(2, 11))
    want = tokens()
    for _ in range(3):
        want = torch.cat([want, model(want)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(greedy(model, tokens(), 3), want)


def test_the_law_finds_a_state_that_is_lost():
    model = assemble(config("mamba2")).double().eval()
    with pytest.raises(AssertionError):
        check_cache_law(
            lambda x, cache: model(x, cache and model.new_cache(2, 11)), tokens(),
            lambda: model.new_cache(2, 11),
        )  # fmt: skip


@pytest.mark.parametrize("name", ["minimax", "qwen3_next", "mamba"])
def test_a_model_without_memory_gets_its_states_too(name):
    source = assemble(config(name))
    with torch.device("meta"):
        model = assemble(config(name))
    load_weights(model, published_weights(source))
    torch.testing.assert_close(model(tokens()), source(tokens()), rtol=0, atol=0)


def test_the_decay_of_lightning_attention_follows_from_the_place_of_the_layer():
    first, last = (LayerLightning(16, 4, 4, (i, 3)).rates for i in (0, 2))
    by_hand = torch.tensor([2.0 ** -(8 / 4 * (h + 1)) for h in range(4)])
    torch.testing.assert_close(first, by_hand * (1 + 1e-5), rtol=1e-6, atol=0)
    assert (last < 2e-5 * by_hand).all()  # the last layer hardly forgets
    assert LayerLightning(16, 4, 4, (1, 3)).double().rates.dtype == torch.float32


def test_what_a_layer_keeps():
    caches = assemble(config("nemotron_h")).new_cache(1, 9)
    kinds = [StateCache, StateCache, KVCache]  # a layer of units counts positions, no more
    assert [type(c) for c in caches] == kinds
    beside = assemble(config("falcon_h1")).new_cache(1, 9)[0]
    assert isinstance(beside.keys, KVCache)
    assert StateCache().nbytes == 0
    model = assemble(config("falcon_h1")).eval()
    cache = model.new_cache(1, 9)
    with torch.no_grad():
        want = model(tokens(1, 4), cache)
        empty = beside.nbytes
        assert cache[0].length == 4
        assert cache[0].nbytes == empty + sum(4 * t.numel() for t in cache[0].state)
        for layer in cache:
            layer.truncate(4)  # nothing to forget
            with pytest.raises(ValueError, match="4 positions cannot go back to 2"):
                layer.truncate(2)
            layer.truncate(0)
            assert (layer.state, layer.length, layer.keys.length) == (None, 0, 0)
        torch.testing.assert_close(model(tokens(1, 4), cache), want, rtol=0, atol=0)


def test_a_router_that_softens_its_sum():
    torch.manual_seed(0)
    router = assemble(config("lfm2_moe")).double().layers[1].ffn.router
    x = torch.randn(5, 32, dtype=torch.float64)
    found = router(x)
    scores = (x @ router.weight.T).sigmoid().gather(-1, found.chosen)
    want = scores / (scores.sum(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(found.weights, want, rtol=0, atol=1e-15)
    assert (found.weights.sum(-1) < 1 - 1e-7).all()


# --- Counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_counted_is_what_the_model_has_and_keeps(name):
    plan = read_plan(config(name))
    model = FamilyDecoder(plan)
    found = parameters(plan)
    assert found["total"] == sum(p.numel() for p in model.parameters())
    parts = ("embedding", "attention", "recurrent", "feed_forward", "norms", "head")
    assert sum(found[part] for part in parts) == found["total"]
    assert found["recurrent"] > 0
    caches = model.new_cache(1, 9)
    with torch.no_grad():
        model(tokens(1, 9), caches)
    held = 0
    for c in caches:
        state, keys = (c.state, c.keys) if isinstance(c, StateCache) else (None, c)
        held += sum(
            t.numel() for t in ([state] if isinstance(state, torch.Tensor) else state or ())
        )
        held += 0 if keys is None else keys.nbytes // 4  # full, of 4 bytes a number
    assert cache_numbers(plan, 9) == held


def test_operations_by_hand():
    plan = read_plan(config("mamba2"))
    wide, mixed, memory = 64, 64 + 2 * 2 * 5, 8 * 5 * 8
    layer = 32 * (wide + mixed + 8) + 4 * mixed + wide * 32
    assert cache_numbers(plan, 5) == cache_numbers(plan, 500) == 2 * (3 * mixed + memory)
    want = 2 * (2 * layer + 61 * 32) + 2 * 2 * 2 * memory
    assert token_flops(plan, 5) == token_flops(plan, 500) == want
    # The delta rule asks, writes and reads: three times through the memory.
    assert _mixer_sizes(32, read_plan(config("qwen3_next")).layers[0])[1] == 2 * 3 * 4 * 3 * 5
    assert _mixer_sizes(32, read_plan(config("lfm2")).layers[0]) == (2 * 32, 0)
    assert _mixer_sizes(32, read_plan(config("lfm2")).layers[1]) == (0, 0)
    grown = [token_flops(read_plan(config("bamba")), n) for n in (10, 11)]
    assert grown[1] - grown[0] == 4 * 4 * 8  # one layer attends


# --- The data ---------------------------------------------------------------------------------


def test_every_kind_of_memory_is_in_some_family():
    kinds = set()
    for name in FAMILIES:
        if name in CONFIGS:
            kinds |= {layer.mixer["kind"] for layer in read_plan(config(name)).layers
                      if layer.mixer}  # fmt: skip
    assert kinds == set(MIXERS)


def test_keys_of_older_files():
    new = read_plan(config("lfm2", intermediate_size=60, tie_word_embeddings=False))
    old = {k: v for k, v in config("lfm2").items() if k != "intermediate_size"}
    old = read_plan({**old, "block_ff_dim": 60, "tie_embedding": False})
    assert plan_differences(new, old) == []
    new = read_plan(config("nemotron_h", n_groups=4, conv_kernel=3, time_step_min=0.2,
                           use_conv_bias=False))  # fmt: skip
    old = {k: v for k, v in config("nemotron_h").items() if k != "n_groups"}
    old = read_plan({**old, "mamba_n_groups": 4, "mamba_d_conv": 3, "mamba_dt_min": 0.2,
                     "mamba_conv_bias": False})  # fmt: skip
    assert plan_differences(new, old) == []
    assert read_plan(config("bamba")).ropes["full_attention"].dim == 4  # half a head
    names = {"layer_types": ["mamba", "attention"]}  # as Granite 4's file calls them
    assert read_plan(config("granitemoehybrid", **names)) == read_plan(config("granitemoehybrid"))
    endless = {"__float__": "Infinity"}
    read = read_plan(config("mamba2", time_step_limit=[0.0, endless])).layers[0].mixer["limits"]
    assert read == [0.0, float("inf")]
    of_kimi = {"full_attn_layers": [2], "kda_layers": [1], "num_heads": 3, "head_dim": 4,
               "short_conv_kernel_size": 4}  # fmt: skip
    old = {k: v for k, v in config("kimi_linear").items()
           if k not in ("layer_types", "linear_num_heads", "linear_head_dim")}  # fmt: skip
    old = read_plan({**old, "linear_attn_config": of_kimi})
    assert plan_differences(old, read_plan(config("kimi_linear"))) == []


def test_layers_whose_kinds_no_file_names():
    def attend(name, layers=8, **options):
        given = {k: v for k, v in config(name, **options).items() if k != "layer_types"}
        plan = read_plan({**given, "num_hidden_layers": layers})
        return [i for i, layer in enumerate(plan.layers) if layer.attention]

    assert attend("qwen3_next") == [3, 7]
    assert attend("qwen3_next", full_attention_interval=3) == [2, 5]
    assert attend("olmo_hybrid") == [3, 7]
    assert attend("olmo_hybrid", 3) == [2]
    assert attend("kimi_linear") == [4]
    assert attend("minimax") == [0, 2, 4, 6]
    assert attend("jamba") == [1, 3, 5, 7]
    assert attend("mamba2") == []


REFUSED = {
    "nemotron_h": ({"hybrid_override_pattern": "ME*"}, "experts without a gate"),
    "nemotron_h-none": ({"hybrid_override_pattern": None}, "hybrid_override_pattern or layers_b"),
    "nemotron_h-windows": ({"sliding_window": 4}, "windows"),
    "mamba2": ({"head_dim": 4}, "heads that are not as wide as the inputs together"),
    "mamba": ({"hidden_act": "gelu"}, "another activation than silu in a recurrent layer"),
    "qwen3_next": ({"attention_bias": True}, "biases of queries and their gates"),
    "qwen3_next-kind": ({"layer_types": ["conv", "full_attention"]}, "layer 0: conv"),
    "kimi_linear": ({"mla_use_nope": False}, "rotations beside a memory"),
    "minimax": ({"sliding_window": 4}, "windows"),
    "lfm2_moe": ({"full_attn_idxs": None}, "neither layer_types nor full_attn_idxs is given"),
    "lfm2": ({"conv_L_cache": None}, "mixer.kernel is not given"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_these_parts_do_not_have_is_named(case):
    name = case.split("-")[0]
    options, said = REFUSED[case]
    with pytest.raises(ValueError, match=rf"{name} .*lacks:\n(.*\n)*  {re.escape(said)}"):
        read_plan(config(name, **options))


def test_a_family_without_recurrent_layers_refuses_them():
    llama = {**HEADS, "model_type": "llama", **BOTH}
    with pytest.raises(ValueError, match="layer 0: linear_attention"):
        read_plan(llama)


def test_parts_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match="norm must be 'after', 'before' or 'none', got 'soon'"):
        _FamilyMamba2(8, 4, 2, 4, norm="soon")
    layer = read_plan(config("mamba2")).layers[0]
    assert _mixer(32, replace(layer, mixer=None)) is None
    with pytest.raises(KeyError, match="kittens"):
        _mixer(32, replace(layer, mixer={"kind": "kittens"}))
