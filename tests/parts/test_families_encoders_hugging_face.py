"""Every encoder of the data file against Hugging Face's model of it, small, random, in float64.

Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import json
from functools import cache

import pytest
import torch
from encoder_cases import CASES, a_text, family, numbers, written
from hugging_face import WITHOUT_THEIR_WARNINGS, InDouble, save_file, transformers
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.whisper.modeling_whisper import sinusoids

from transformer_parts.families.encoders import (
    ENCODERS,
    FamilyEncoder,
    assemble_encoder,
    greedy,
    load_weights,
    published_weights,
    read_encoder_plan,
)
from transformer_parts.families.encoders import plan as plan_module
from transformer_parts.families.positions import relative_position_buckets

pytestmark = WITHOUT_THEIR_WARNINGS

HEADED = {
    "bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM",
    "modernbert": "ModernBertForMaskedLM", "vit": "ViTForImageClassification",
    "t5": "T5ForConditionalGeneration", "whisper": "WhisperForConditionalGeneration",
}  # fmt: skip
TOKENS = [case for case in CASES if family(case) in ("bert", "roberta", "modernbert")]
WRITERS = [case for case in CASES if family(case) in ("t5", "whisper")]
NEW = 8


def configuration(case):
    return transformers.CONFIG_MAPPING[family(case)](**json.loads(json.dumps(CASES[case])))


def contents(config):
    """What it would write into config.json, defaults too."""
    return json.loads(json.dumps(config.to_dict(), default=str))


@cache
def built(case):
    """Their model with random weights."""
    config = configuration(case)
    config._attn_implementation = "eager"
    model = getattr(transformers, HEADED[family(case)])(config).eval()
    tables = [
        (m, n, b.clone())
        for m in model.modules()
        for n, b in m.named_buffers(recurse=False)
        if "inv_freq" in n
    ]
    model = model.to(torch.float64)
    for module, name, table in tables:  # of angles they compute in float32 whatever the model
        setattr(module, name, table)
    if case == "t5-gated":  # its published weights have a head of their own
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    generator = torch.Generator().manual_seed(0)
    for name, p in model.named_parameters():
        noise = 0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        shift = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        size = 8.0 if "decoder.embed_positions" in name else 1.0  # not one word for ever
        p.data.copy_(size * noise + shift)
    return model


@cache
def ours(case):
    theirs = built(case)
    return load_weights(assemble_encoder(contents(theirs.config)).double(), theirs.state_dict())


def given(case):
    """Inputs of one case: ours, and theirs under their names."""
    name = family(case)
    if name == "vit":
        images = numbers(3, *ours(case).front.shape)
        return {"inputs": images}, {"pixel_values": images}
    if name == "whisper":
        frames = numbers(3, *ours(case).front.shape)
        return ({"inputs": frames, "tokens": written()},
                {"input_features": frames, "decoder_input_ids": written()})  # fmt: skip
    x, mask = a_text(CASES[case].get("pad_token_id", 0))
    mine = {"inputs": x, "mask": mask}
    other = {"input_ids": x, "attention_mask": mask.long()}
    if name == "t5":
        mine["tokens"] = other["decoder_input_ids"] = written()
    if CASES[case].get("type_vocab_size", 1) > 1:
        types = torch.arange(13).expand(3, 13) % 3
        mine["types"] = other["token_type_ids"] = types
    return mine, other


def in_double(model, **inputs):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            return model(**inputs)
    finally:
        torch.set_default_dtype(default)


def real(case, mine):
    """Which rows of the result belong to tokens, and not to padding."""
    masked = case in TOKENS and mine["mask"]
    return masked if case in TOKENS else ...


@pytest.mark.parametrize("case", CASES)
def test_scores_and_states_are_theirs(case):
    mine, other = given(case)
    model, theirs = ours(case), built(case)
    rows = real(case, mine)
    with torch.no_grad():
        want, got = in_double(theirs, **other).logits[rows], model(**mine)[rows]
        states = model.encode(mine["inputs"], mine.get("mask"), mine.get("types"))
        inner = theirs.get_encoder() if case in WRITERS else theirs.base_model
        other = {k: v for k, v in other.items() if not k.startswith("decoder")}
        hidden = in_double(inner, **other).last_hidden_state
    assert got.shape == want.shape
    assert (got - want).abs().max() < 1e-10 * want.abs().max().clamp(min=1)
    kept = mine.get("mask", ...)
    assert (states - hidden)[kept].abs().max() < 1e-10 * hidden.abs().max().clamp(min=1)


@pytest.mark.parametrize("case", CASES)
def test_all_gradients_are_theirs(case):
    mine, other = given(case)
    theirs, model = built(case), FamilyEncoder(ours(case).plan).double()
    load_weights(model, theirs.state_dict())
    for leaf in theirs.parameters():
        leaf.grad = None
    rows = real(case, mine)
    for scores in (in_double(theirs, **other).logits, model(**mine)):
        (scores[rows] * numbers(*scores[rows].shape)).sum().backward()
    for leaf in model.parameters():
        leaf.data = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    found, leaves = published_weights(model), dict(theirs.named_parameters())
    compared = 0
    for name, grad in found.items():
        if leaves[name].grad is None:
            assert not leaves[name].requires_grad or not grad.any(), name
            continue
        want = leaves[name].grad
        assert (grad - want).abs().max() < 1e-10 * want.abs().max().clamp(min=1), name
        compared += 1
    assert compared >= len(found) - 1  # Whisper's table of sinusoids is not learned


@pytest.mark.parametrize("case", CASES)
def test_weights_go_out_and_in_again(case, tmp_path):
    theirs, model = built(case), ours(case)
    out, state = published_weights(model), theirs.state_dict()
    for name, tensor in out.items():
        assert torch.equal(tensor, state[name]), name
    theirs.config.save_pretrained(tmp_path)
    save_file({k: v.contiguous() for k, v in out.items()}, tmp_path / "model.safetensors")
    again = load_weights(assemble_encoder(tmp_path).double(), tmp_path)
    mine, _ = given(case)
    with torch.no_grad():
        assert torch.equal(again(**mine), model(**mine))


def test_their_own_files_load(tmp_path):
    for case in ("vit", "t5"):
        built(case).save_pretrained(tmp_path / case)
        model = load_weights(assemble_encoder(tmp_path / case).double(), tmp_path / case)
        mine, _ = given(case)
        with torch.no_grad():
            assert torch.equal(model(**mine), ours(case)(**mine))


@pytest.mark.parametrize("case", WRITERS)
def test_greedy_tokens_are_theirs_with_a_cache(case):
    mine, other = given(case)
    theirs, model = built(case), ours(case)
    ids = torch.full((3, 1), model.plan.start)
    other.pop("decoder_input_ids")
    for _ in range(NEW):
        with torch.no_grad():
            scores = in_double(theirs, **other, decoder_input_ids=ids).logits
        ids = torch.cat([ids, scores[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(greedy(model, mine["inputs"], NEW, mine.get("mask")), ids[:, 1:])
    assert len(ids.unique()) > 3  # they do not say the same word for ever


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets", [(8, 10), (32, 128), (20, 33), (6, 300)])
def test_buckets_are_theirs_at_every_distance(bidirectional, buckets):
    distance = torch.arange(-400, 400)
    want = T5Attention._relative_position_bucket(distance, bidirectional, *buckets)
    assert torch.equal(relative_position_buckets(distance, *buckets, bidirectional), want)


def test_whispers_table_starts_as_their_sinusoids():
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        want = sinusoids(12, 32)
        table = assemble_encoder(CASES["whisper"] | {"model_type": "whisper"}).encoder.positions
    finally:
        torch.set_default_dtype(default)
    torch.testing.assert_close(table.weight, want, rtol=0, atol=1e-12)
    assert not table.weight.requires_grad


# --- The data, line by line -----------------------------------------------------------------------

HOW_TO_READ = {"like", "absent", "unsupported", "unread", "sizes", "ignored", "aliases"}
OFTEN_LEFT_OUT = {"layer_types", "rope_parameters", "hidden_act", "hidden_activation",
                  "activation_function", "layer_norm_eps", "norm_eps"}  # fmt: skip


def read(config):
    try:
        plan = read_encoder_plan(config)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return str(error)
    names = {k: plan.data[k] for k in ("names", "encoder_names", "decoder_names")}
    return plan, names, plan.data["gate_up"], plan.data["position_row"]


@pytest.mark.parametrize("name", ENCODERS)
def test_a_key_that_is_left_out_counts_as_their_default(name):
    whole = contents(transformers.CONFIG_MAPPING[name]())
    plan = read_encoder_plan(whole)
    for key in whole.keys() - {"model_type"}:
        try:
            cut = read_encoder_plan({k: v for k, v in whole.items() if k != key})
        except ValueError as error:
            assert "given" in str(error), key  # noqa: PT017
        else:
            assert cut == plan, key


def test_no_line_of_the_encoders_data_is_idle(monkeypatch):
    configs = {
        name: [contents(configuration(c)) for c in CASES if family(c) == name] for name in ENCODERS
    }
    for name, known in configs.items():
        known.append(contents(transformers.CONFIG_MAPPING[name]()))
        known.append({k: v for k, v in known[-1].items() if k not in OFTEN_LEFT_OUT})
    before = {name: [read(c) for c in configs[name]] for name in ENCODERS}
    idle = set()
    for name in ENCODERS:
        own = plan_module._DATA[name]
        heirs = [
            one for one in ENCODERS if one == name or plan_module._DATA[one].get("like") == name
        ]
        for key, value in own.items():
            if key in HOW_TO_READ:
                continue
            for part in value if isinstance(value, dict) else [None]:
                rest = {k: v for k, v in own.items() if k != key or part is not None}
                if part is not None:
                    rest[key] = {k: v for k, v in value.items() if k != part}
                monkeypatch.setitem(plan_module._DATA, name, rest)
                plan_module._own_keys.cache_clear()
                if all([read(c) for c in configs[one]] == before[one] for one in heirs):
                    idle.add((name, key if part is None else f"{key}.{part}"))
                monkeypatch.setitem(plan_module._DATA, name, own)
    plan_module._own_keys.cache_clear()
    assert idle == set()
