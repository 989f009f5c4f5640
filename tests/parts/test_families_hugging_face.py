"""Every family of the data file against Hugging Face's model of it, small, random, in float64.

Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import json
from dataclasses import replace

import pytest
import torch
from family_cases import CASES, family
from hugging_face import WITHOUT_THEIR_WARNINGS, InDouble, transformers
from hybrid_cases import NEEDED_BY_HYBRIDS, OLD_KEYS_OF_HYBRIDS
from transformers.models.ctrl.modeling_ctrl import CTRLModel, positional_encoding
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding

from transformer_parts.families import (
    FAMILIES,
    FamilyDecoder,
    assemble,
    greedy,
    lineage,
    load_weights,
    plan_differences,
    published_weights,
    read_plan,
)
from transformer_parts.families import plan as plan_module

pytestmark = WITHOUT_THEIR_WARNINGS

SIZES = {
    "vocab_size": 61, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 48, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
LENGTH, NEW = 21, 6


class InCosines(InDouble):
    """And angles in double, as cosine and sine, whose last digit is another than polar's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.polar:
            size, angle = args
            return torch.complex(size * angle.cos(), size * angle.sin())
        if func is torch.log1p:  # of positions
            args = (args[0].double(),)
        return super().__torch_function__(func, types, args, kwargs)


def configuration(name, options, **sizes):
    """Theirs, with our sizes where it knows them."""
    kind = transformers.CONFIG_MAPPING[name]
    known = {*kind().to_dict(), *getattr(kind, "attribute_map", {})}
    sizes = {k: v for k, v in {**SIZES, **sizes}.items() if k in known}
    return kind(**{**sizes, **json.loads(json.dumps(options))})


def contents(config):
    """What it would write into config.json, defaults too."""
    return json.loads(json.dumps(config.to_dict(), default=str))


def in_sinusoids(model):
    """Tables of positions, which CTRL and XGLM make in float32, in double."""
    for module in model.modules():
        if isinstance(module, XGLMSinusoidalPositionalEmbedding):
            table = module.weights
            k = torch.arange(table.shape[1] // 2).double()
            angle = torch.arange(len(table))[:, None] * 10000 ** (-k / (len(k) - 1))
            table.copy_(torch.cat([angle.sin(), angle.cos()], 1))
        elif isinstance(module, CTRLModel):
            module.pos_encoding = positional_encoding(*module.pos_encoding.shape, torch.float64)


def built(case):
    """Their model with random weights."""
    config = configuration(family(case), CASES[case])
    # Falcon's eager attention with ALiBi adds it twice: once in the mask, once beside it.
    config._attn_implementation = "sdpa" if case == "falcon-alibi" else "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tables = [
        (m, n, b.clone())
        for m in model.modules()
        for n, b in m.named_buffers(recurse=False)
        if "inv_freq" in n or n in ("cos_cached", "sin_cached")
    ]
    model = model.to(torch.float64)
    in_sinusoids(model)
    for module in model.modules():
        if hasattr(module, "slope_rate"):  # lightning attention's powers, made in float32 before
            powers = module.decay_factors(module.slope_rate)
            for name, power in zip(
                ("query_decay", "key_decay", "diagonal_decay"), powers, strict=True
            ):
                setattr(module, name, power)
    for module, name, table in tables:  # of angles they compute in float32 whatever the model
        setattr(module, name, table)
    generator = torch.Generator().manual_seed(0)
    for name, p in model.named_parameters():
        noise = 0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        shift = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        p.data.copy_(noise + shift)
    for name, b in model.named_buffers():
        if (
            "correction" in name or "expert_bias" in name
        ):  # experts are chosen otherwise than they are weighed
            b.copy_(0.3 * torch.randn(b.shape, generator=generator, dtype=torch.float64))
    model.tie_weights()
    return model


def tokens(batch=2, length=LENGTH):
    return torch.randint(1, 61, (batch, length), generator=torch.Generator().manual_seed(1))


def logits(model, x):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of quotients of whole numbers
    try:
        with torch.no_grad(), InCosines():
            return model(x, use_cache=False).logits
    finally:
        torch.set_default_dtype(default)


@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_tokens_are_theirs(case, tmp_path):
    theirs = built(case)
    theirs.save_pretrained(tmp_path)
    model = load_weights(assemble(tmp_path).double(), tmp_path)
    x = tokens()
    want = logits(theirs, x)
    with torch.no_grad():
        got = model(x)
    size = want.abs().max().item()
    assert (got - want).abs().max().item() < 1e-10 * max(1.0, size)
    out, state = published_weights(model), theirs.state_dict()
    for name, tensor in out.items():
        assert torch.equal(tensor, state[name]), name
    again = load_weights(assemble(tmp_path).double(), out)  # their names, out and in again
    with torch.no_grad():
        assert torch.equal(again(x), got)
    ids = x
    for _ in range(NEW):
        newest = logits(theirs, ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, newest], 1)
    assert torch.equal(greedy(model, x, NEW), ids)


# --- The data, line by line -----------------------------------------------------------------------

LATENT = {"head_dim": 8, "qk_rope_head_dim": 8, "num_key_value_heads": 4}
# What eight layers need beside their sizes, where the class alone would not do.
NEEDED = {
    "gpt_neo": {"attention_types": [[["global", "local"], 4]]},
    "cwm": {"bos_token_id": 1, "eos_token_id": 2},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v2": {"num_experts_per_tok": 2, **LATENT},
    **NEEDED_BY_HYBRIDS,
    **dict.fromkeys(("deepseek_v3", "glm4_moe_lite", "youtu", "minicpm3"), LATENT),
}
# A width, a number of heads or a length is not to be guessed; where it is left out all the same,
# these are the oldest meanings: as many key-value heads as heads, four times the width.
SIZES_LEFT_OUT = {"num_key_value_heads", "max_position_embeddings", "intermediate_size"}


def eight_layers(name):
    return contents(configuration(name, NEEDED.get(name, {}), num_hidden_layers=8))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_key_that_is_left_out_counts_as_their_default(name):
    whole = eight_layers(name)
    plan = read_plan(whole)
    for key in whole.keys() - SIZES_LEFT_OUT - {"model_type"}:
        try:
            cut = read_plan({k: v for k, v in whole.items() if k != key})
        except ValueError as error:
            assert "given" in str(error), key  # noqa: PT017
        else:
            assert plan_differences(plan, cut) == [], key


# Lines for the keys of older files, which their classes do not write any more.
OLD_KEYS = {
    "bloom": {"keys.hidden_size"},
    "gpt_neox": {"rope_base"},
    "minimax_m2": {"rotary"},
    "gemma3_text": {"rope_scaled"},
    "olmo3": {"rope_scaled"},
    # Patterns that `test_families.py` tries where a file has no `layer_types`.
    **{name: {"kind"} for name in ("smollm3", "phi3", "qwen3_moe", "cwm", "gpt_oss")},
    "qwen2": {"kind", "window"},
    **OLD_KEYS_OF_HYBRIDS,
}
OFTEN_LEFT_OUT = {
    "layer_types", "rope_parameters", "hidden_act", "hidden_activation", "activation_function",
    "afn", "activation", "tie_word_embeddings",
}  # fmt: skip
HOW_TO_READ = {"like", "absent", "unsupported", "unread", "sizes", "ignored", "aliases"}


def read(config):
    """The plan and where its weights stand, or why there is none."""
    try:
        found = read_plan(config)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return str(error)
    return found, {k: found.data[k] for k in plan_module._LAYOUT}


def test_no_line_of_the_data_is_idle(monkeypatch):
    configs = {
        name: [contents(configuration(name, CASES[c])) for c in CASES if family(c) == name]
        for name in FAMILIES
    }
    for name, known in configs.items():
        known.append(eight_layers(name))
        known.append({k: v for k, v in known[-1].items() if k not in OFTEN_LEFT_OUT})
        known.append({**known[0], "num_key_value_heads": 1})  # some do not know this key
    before = {name: [read(c) for c in configs[name]] for name in FAMILIES}
    idle = {}
    for name in FAMILIES:
        own = plan_module._DATA[name]
        heirs = [one for one in FAMILIES if name in lineage(one)]
        for key, value in own.items():
            if key in HOW_TO_READ:
                continue
            inner = value if isinstance(value, dict) else [None]
            for part in inner:
                rest = {k: v for k, v in own.items() if k != key or part is not None}
                if part is not None:
                    rest[key] = {k: v for k, v in value.items() if k != part}
                monkeypatch.setitem(plan_module._DATA, name, rest)
                same = (
                    read(config) == known
                    for one in heirs
                    for config, known in zip(configs[one], before[one], strict=True)
                )
                if all(same):
                    idle.setdefault(name, set()).add(key if part is None else f"{key}.{part}")
                monkeypatch.setitem(plan_module._DATA, name, own)
    assert idle == OLD_KEYS


# What a plan says, and something else that it could say.
OTHERWISE = {
    "embed_scale": 2.0, "embed_norm": True, "norm_plus_one": True, "eps": 0.1, "parallel": True,
    "residual_scale": 0.5, "qk_norm_after_rope": True, "qk_eps": 0.1, "attn_scale": 0.1,
    "attn_cap": 0.9, "clip": 0.3, "interleaved": True, "activation": "relu", "logit_scale": 0.7,
    "logit_cap": 0.9, "final_norm": False, "norm": "layer", "position_offset": 1,
    "alibi_scale": 0.9, "temperature": (0.3, 5, 0),
}  # fmt: skip


def without_effect(plan):
    """The fields that say nothing in this plan, because what they are about is not there."""
    idle = set() if plan.position == "alibi" else {"alibi_scale"}
    idle |= set() if plan.position == "learned" else {"position_offset"}
    idle |= set() if plan.ropes and plan.mla is None else {"interleaved"}
    if plan.qk_norm is None:
        idle |= {"qk_eps", "qk_norm_after_rope"}
    elif plan.qk_norm_over == "all" or not plan.qk_norm_gain:  # without a gain it commutes
        idle |= {"qk_norm_after_rope"}
    return idle | ({"activation"} if all(layer.experts for layer in plan.layers) else set())


@pytest.mark.parametrize(
    "case", ["gemma2", "llama4_text", "falcon-alibi", "granite_swa", "hunyuan_v1_dense", "cohere2",
             "olmoe", "phi", "opt", "deepseek_v3"]
)  # fmt: skip
def test_another_choice_makes_another_model(case):
    theirs = built(case)
    x, state = tokens(), theirs.state_dict()
    want = logits(theirs, x)
    plan = read_plan(contents(theirs.config))
    idle = set()
    for field, other in OTHERWISE.items():
        old = getattr(plan, field)
        if isinstance(other, bool):
            other = not old
        elif other == old or field == "norm":
            other = {"rms": "layer", "layer": "rms", "relu": "silu"}.get(old, 0.5)
        try:
            model = load_weights(FamilyDecoder(replace(plan, **{field: other})).double(), state)
            with torch.no_grad():
                got = model(x)
        except (ValueError, RuntimeError, KeyError, AttributeError):
            continue
        if (got - want).abs().max() < 1e-6:
            idle.add(field)
    assert idle == without_effect(plan)


def test_every_family_has_a_case():
    assert {family(case) for case in CASES} == set(FAMILIES)
    assert len(FAMILIES) >= 48
