"""Families as data: what is read, what is refused, what is counted. Hugging Face is not needed."""

import json
import re

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_parts import families
from transformer_parts.decoder import (
    DecoderOnlyTransformer,
    from_pretrained_config,
    load_hf_state_dict,
)
from transformer_parts.families import (
    FAMILIES,
    MISSING,
    Layer,
    assemble,
    cache_numbers,
    differences,
    family_data,
    greedy,
    lineage,
    load_weights,
    own_lines,
    parameters,
    plan_differences,
    published_weights,
    read_plan,
    token_flops,
)
from transformer_parts.kv_cache import check_cache_law

LLAMA = {
    "model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip
OF = {
    "gemma2": {"sliding_window": 4, "head_dim": 8, "attn_logit_softcapping": 2.0},
    "llama4_text": {
        "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 40,
        "attention_chunk_size": 4, "num_hidden_layers": 4, "floor_scale": 3,
    },
    "deepseek_v3": {
        "kv_lora_rank": 12, "q_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
        "v_head_dim": 5, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 12, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
    },
    "gpt_oss": {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4, "rope_theta": 1.5e5,
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False,
                         "original_max_position_embeddings": 32},
    },
    "bloom": {"n_layer": 2, "n_head": 4},
    "olmo2": {}, "cohere": {}, "llama": {},
}  # fmt: skip


# What these families' code does not ask of the lines above.
NOT_READ = {
    "bloom": {"rms_norm_eps", "num_key_value_heads", "max_position_embeddings",
              "intermediate_size", "num_hidden_layers", "num_attention_heads"},
    "cohere": {"rms_norm_eps"}, "cohere2": {"rms_norm_eps"},
    "gpt2": {"rms_norm_eps", "num_key_value_heads", "intermediate_size"},
}  # fmt: skip


def config(name, **options):
    lines = {k: v for k, v in LLAMA.items() if k not in NOT_READ.get(name, ())}
    return {**lines, "model_type": name, **OF.get(name, {}), **options}


def tokens(batch=2, length=11):
    return torch.randint(0, 61, (batch, length), generator=torch.Generator().manual_seed(1))


def test_a_family_is_a_few_lines():
    lengths = [sum(len(v) if isinstance(v, dict) else 1 for v in own_lines(n).values())
               for n in FAMILIES]  # fmt: skip
    assert sorted(lengths)[len(lengths) // 2] <= 12
    assert len(FAMILIES) >= 48
    assert not set(FAMILIES) & set(MISSING)


def test_every_choice_is_one_that_is_read():
    known = set(family_data("llama"))
    for name in FAMILIES:
        assert set(own_lines(name)) - {"like"} <= known, name
        assert set(family_data(name)["experts"]) == set(family_data("llama")["experts"])


def test_lineages_and_differences():
    assert lineage("gemma3_text") == ["gemma3_text", "gemma2", "gemma", "llama"]
    assert differences("llama", "internlm3") == []
    found = {d.field: (d.a, d.b) for d in differences("llama", "helium")}
    assert found == {"interleaved": (False, True)}
    named = {d.field for d in differences("qwen3", "hunyuan_v1_dense", names=True)}
    assert {"names.q_norm", "qk_norm_after_rope"} <= named
    for call in (own_lines, lineage, family_data):
        with pytest.raises(ValueError, match="family must be one of"):
            call("kittens")


def test_the_same_model_as_the_decoder_of_its_own_chapter():
    theirs = DecoderOnlyTransformer(from_pretrained_config(config("llama"))).double()
    model = assemble(config("llama")).double()
    state = published_weights(model)
    load_hf_state_dict(theirs, state)
    x = tokens()
    torch.testing.assert_close(model(x), theirs(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OF)
def test_the_law_of_the_cache(name):
    torch.manual_seed(0)
    model = assemble(config(name)).double().eval()
    check_cache_law(model, tokens(), lambda: model.new_cache(2, 11))
    out = greedy(model, tokens(), 3)
    want = tokens()
    for _ in range(3):
        want = torch.cat([want, model(want)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(out, want)


@pytest.mark.parametrize("name", OF)
def test_a_model_without_memory_gets_it_with_its_weights(name):
    source = assemble(config(name))
    with torch.device("meta"):
        model = assemble(config(name))
    load_weights(model, published_weights(source))
    torch.testing.assert_close(model(tokens()), source(tokens()), rtol=0, atol=0)


def test_kinds_of_layers_where_an_older_file_does_not_name_them():
    def full(name, layers=8, **options):
        plan = read_plan(config(name, num_hidden_layers=layers, sliding_window=4, **options))
        return [i for i, layer in enumerate(plan.layers) if layer.window is None]

    assert full("gemma2") == [1, 3, 5, 7]
    assert full("gemma3_text", 13) == [5, 11]
    assert full("cohere2") == [3, 7]
    assert full("mistral") == []
    assert full("gpt_oss", **{k: v for k, v in OF["gpt_oss"].items() if k != "sliding_window"}) == [
        1, 3, 5, 7
    ]  # fmt: skip
    assert full("qwen2", use_sliding_window=False, max_window_layers=0) == list(range(8))
    assert full("qwen2", use_sliding_window=True, max_window_layers=6) == list(range(6))
    assert full("olmo3") == [3, 7]
    plan = read_plan(config("llama4_text", num_hidden_layers=8))
    assert [layer.chunk for layer in plan.layers] == [4, 4, 4, None] * 2
    assert [layer.rope for layer in plan.layers] == [True, True, True, False] * 2
    assert read_plan(config("llama")).layers[0] == Layer("full_attention", None, None, True, False,
                                                         40)  # fmt: skip


def test_both_forms_of_the_rotation():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    old = read_plan(config("llama", rope_theta=5e5, rope_scaling=scaling))
    new = read_plan(config("llama", rope_parameters={"rope_theta": 5e5, **scaling}))
    assert plan_differences(old, new) == []
    two = {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
           "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}  # fmt: skip
    new = read_plan(config("gemma3_text", num_hidden_layers=6, sliding_window=4,
                           rope_parameters=two))  # fmt: skip
    old = read_plan(config("gemma3_text", num_hidden_layers=6, sliding_window=4, rope_theta=1e6,
                           rope_local_base_freq=1e4,
                           rope_scaling={"rope_type": "linear", "factor": 8.0}))  # fmt: skip
    assert plan_differences(old, new) == []
    assert new.ropes["sliding_attention"].scaling is None


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="zamba2 needs parts that are missing: blocks that"):
        read_plan(config("zamba2"))
    with pytest.raises(ValueError, match="'kittens' is not known; known are llama"):
        read_plan(config("kittens"))
    with pytest.raises(ValueError, match="hidden_size is not given"):
        read_plan({k: v for k, v in LLAMA.items() if k != "hidden_size"})
    bad = config(
        "gemma2",
        hidden_activation="snake",
        use_bidirectional_attention=True,
        rope_scaling={"rope_type": "spiral", "factor": 2.0},
        layer_types=["linear_attention", "full_attention"],
    )
    with pytest.raises(ValueError, match="gemma2 with this configuration lacks") as error:
        read_plan(bad)
    for what in ("attention to later tokens", "linear_attention", "'spiral'", "'snake'"):
        assert what in str(error.value)
    with pytest.raises(ValueError, match="quantization_config"):
        read_plan(config("llama", quantization_config={"bits": 4}))
    with pytest.raises(ValueError, match="t5 has an encoder: read_encoder_plan reads it"):
        read_plan(config("t5"))
    with pytest.raises(ValueError, match="key heads that divides 4: 3 are given"):
        read_plan(config("llama", num_key_value_heads=3))
    with pytest.raises(ValueError, match="divided by the number of the layer"):
        read_plan(config("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=16,
                         scale_attn_by_inverse_layer_idx=True))  # fmt: skip


# A Llama's file with a line that another family's file may have, and what turns nothing on.
OF_OTHERS = {
    "final_logit_softcapping": (30.0, None), "residual_multiplier": (0.2, 1.0),
    "n_routed_experts": (8, 0), "use_qk_norm": (True, False), "sliding_window": (16, None),
    "foo": ("bar", ""), "attention_chunk_size": (4, None), "experts": ([1], []),
}  # fmt: skip


@pytest.mark.parametrize("key", OF_OTHERS)
def test_a_key_that_nobody_reads_is_named(key):
    on, off = OF_OTHERS[key]
    with pytest.raises(ValueError, match=rf"llama .*lacks:\n  {key} = .*: a key that") as error:
        read_plan(config("llama", **{key: on}))
    assert repr(on) in str(error.value)
    plain = read_plan(config("llama"))
    for same in (
        read_plan(config("llama", **{key: off})),
        read_plan(config("llama", **{key: on}), ignore=[key]),
        assemble(config("llama", **{key: on}), ignore=[key]).plan,
    ):
        assert plan_differences(plain, same) == []


def test_keys_that_choose_no_part_may_stand_in_any_file():
    published = {
        "_name_or_path": "x", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": [2, 3], "initializer_range": 0.02, "use_cache": True,
        "attention_dropout": 0.1, "pretraining_tp": 1, "transformers_version": "4.31.0.dev0",
        "output_router_logits": True, "router_aux_loss_coef": 0.01, "auto_map": {"a": "b"},
    }  # fmt: skip
    assert read_plan(config("llama", **published)) == read_plan(config("llama"))
    # What a family's own lines speak of counts as read, whether or not it comes to that.
    asleep = {"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 1}
    assert read_plan(config("qwen2", **asleep)) == read_plan(config("qwen2"))


def test_weights_that_do_not_fit_are_named_and_nothing_is_copied():
    model = assemble(config("llama"))
    before = published_weights(model)
    state = dict(before)
    state["model.norm.weight"] = torch.ones(31)
    state["model.extra"] = torch.ones(2)
    del state["lm_head.weight"]
    state["model.layers.0.mlp.up_proj.weight"] = torch.ones(40, 32, dtype=torch.int64)
    with pytest.raises(ValueError, match="4 tensors do not fit") as error:
        load_weights(model, state)
    for name in ("model.norm.weight: got shape", "model.extra: unexpected",
                 "lm_head.weight: missing", "up_proj.weight: got dtype"):  # fmt: skip
        assert name in str(error.value)
    assert all(torch.equal(before[k], v) for k, v in published_weights(model).items())


def test_bad_tokens_are_refused():
    model = assemble(config("llama"))
    with pytest.raises(ValueError, match=re.escape("tokens must have shape (B, T), got (3,)")):
        model(torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="max_seq_len=64 positions, got 65"):
        model(torch.zeros(1, 65, dtype=torch.long))


@pytest.mark.parametrize("name", OF)
def test_parameters_by_part_are_those_of_the_model(name):
    plan = read_plan(config(name))
    found = parameters(plan)
    model = families.FamilyDecoder(plan)
    assert found["total"] == sum(p.numel() for p in model.parameters())
    parts = ("embedding", "attention", "feed_forward", "norms", "head")
    assert sum(found[part] for part in parts) == found["total"]
    assert (found["active"] < found["total"]) == (plan.experts is not None)


def test_counts_by_hand():
    plan = read_plan(config("llama"))
    d, f, v = 32, 40, 61
    layer = 2 * d * d + 2 * d * (d // 2) + 3 * d * f
    assert parameters(plan)["total"] == 2 * (layer + 2 * d) + d + 2 * v * d
    assert cache_numbers(plan, 10) == 2 * 2 * 16 * 10
    assert token_flops(plan, 10) == 2 * (2 * layer + v * d) + 2 * 2 * 4 * 16 * 10
    windowed = read_plan(config("gemma2"))
    assert cache_numbers(windowed, 10) == 2 * 16 * (4 + 10)
    latent = read_plan(config("deepseek_v3"))
    assert cache_numbers(latent, 10) == 2 * (12 + 4) * 10
    tied = read_plan(config("llama", tie_word_embeddings=True))
    assert token_flops(tied, 10) == token_flops(plan, 10)


@pytest.mark.parametrize("latent", [False, True])
def test_operations_of_a_token_are_those_that_torch_counts(latent):
    lines = {k: OF["deepseek_v3"][k] for k in ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
                                   "qk_rope_head_dim", "v_head_dim")}  # fmt: skip
    model = assemble(config("minicpm3", **lines) if latent else config("llama"))
    for length in (2, 9, 30):
        cache = model.new_cache(1, length)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            model(tokens(1, length - 1), cache)
            with FlopCounterMode(display=False) as counted:
                model(tokens(1, 1), cache)
        assert counted.get_total_flops() == token_flops(model.plan, length)


def test_biases_of_experts_are_no_matrices():
    plan = read_plan(config("gpt_oss"))
    d, f, v = 32, 40, 61
    layer = 2 * d * d + 2 * d * (d // 2) + 2 * 3 * d * f + 4 * d  # two experts and the router
    assert token_flops(plan, 0) == 2 * (2 * layer + v * d)


@pytest.mark.parametrize("family", ["gpt2", "gptj", "opt", "xglm", "gpt_neox", "persimmon"])
def test_a_family_without_shared_keys_does_not_read_their_number(family):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "ffn_dim": 40,
             "d_model": 32, "num_layers": 2, "attention_heads": 4}  # fmt: skip
    given = config(family, num_key_value_heads=2, **sizes)
    with pytest.raises(ValueError, match="num_key_value_heads = 2: a key that"):
        read_plan(given, ignore=sizes)
    assert read_plan(given, ignore=given).num_kv_heads == 4


def test_what_a_missing_size_follows_from_is_said():
    given = {"model_type": "jamba", "vocab_size": 61, "hidden_size": 32,
             "num_hidden_layers": 2, "num_attention_heads": 8}  # fmt: skip
    with pytest.raises(ValueError, match="jamba with this configuration lacks") as error:
        read_plan(given)
    for key in ("max_position_embeddings", "intermediate_size"):
        assert f"is not given: it follows from {key}" in str(error.value)
    with pytest.raises(ValueError, match="rwkv needs parts that are missing: time mixing"):
        read_plan(config("rwkv"))
    with pytest.raises(ValueError, match="nemotron_h with this configuration lacks") as error:
        read_plan(config("nemotron_h"))
    assert "head_dim is not given" in str(error.value)
    hybrid = {k: v for k, v in config("falcon_h1").items() if k != "num_key_value_heads"}
    with pytest.raises(ValueError, match="key heads that divides 4: 8 are given"):
        read_plan(hybrid, ignore=hybrid)


def test_a_config_in_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config("qwen3")), encoding="utf-8")
    assert read_plan(tmp_path) == read_plan(config("qwen3")) == read_plan(tmp_path / "config.json")
