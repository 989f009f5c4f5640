"""Small random models of each family: ours against Hugging Face's, in float64.

Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import importlib
import json

import pytest
import torch
from hugging_face import (
    WITHOUT_THEIR_WARNINGS,
    load_file,
    safetensors,
    save_file,
    transformers,
)
from torch import nn

from book.measured import record
from transformer_parts import decoder
from transformer_parts.decoder import (
    DecoderOnlyTransformer,
    from_pretrained_config,
    generate,
    load_hf_state_dict,
)

pytestmark = WITHOUT_THEIR_WARNINGS

SMALL = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
MLA = {
    **SMALL,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 20,
    "q_lora_rank": None,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}
LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
YARN_V3 = {**YARN, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.7}

# name: family, what differs from SMALL or MLA, in the keys of published files
CASES = {
    "llama-2": ("llama", {"num_key_value_heads": 4}),
    "llama-3": ("llama", {"rope_theta": 500000.0}),
    "llama-3.1": ("llama", {"rope_theta": 10000.0, "rope_scaling": LLAMA31}),
    "llama-biases-tied": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 16},
    ),
    "llama-linear": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-dynamic": (
        "llama",
        {"max_position_embeddings": 16, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    ),
    "llama-yarn": ("llama", {"rope_scaling": YARN}),
    "mistral-sliding": ("mistral", {"sliding_window": 7}),
    "mistral-nemo": ("mistral", {"sliding_window": None, "head_dim": 20}),
    "qwen2": ("qwen2", {"use_sliding_window": False, "sliding_window": 5}),
    "qwen2.5-sliding": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen2.5-yarn-tied": ("qwen2", {"rope_scaling": YARN, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3-sliding-tied": (
        "qwen3",
        {
            "head_dim": 16,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "deepseek-v2-lite": ("deepseek_v2", {}),
    "deepseek-v2": ("deepseek_v2", {"q_lora_rank": 24, "rope_scaling": YARN_V3}),
    "deepseek-v2-biases": ("deepseek_v2", {"q_lora_rank": 24, "attention_bias": True}),
    "deepseek-v3": ("deepseek_v3", {"q_lora_rank": 24, "rope_scaling": YARN_V3}),
    "deepseek-v3-plain": ("deepseek_v3", {}),
}
CLASSES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "deepseek_v2": "DeepseekV2",
    "deepseek_v3": "DeepseekV3",
}
every_case = pytest.mark.parametrize("case", CASES)
# One with biases, one with norms of queries and keys, one tied, one with latents.
some_cases = pytest.mark.parametrize("case", ["qwen2", "qwen3-sliding-tied", "deepseek-v3"])


def modeling(family):
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def published(case):
    """The contents of a config.json as the families' authors published it."""
    family, options = CASES[case]
    base = MLA if family.startswith("deepseek") else SMALL
    return {"model_type": family, **base, **options}


def build(case, dtype=torch.float64, seed=0):
    """Hugging Face's model with random weights, norms and biases too."""
    family, _ = CASES[case]
    values = {k: v for k, v in published(case).items() if k != "model_type"}
    config = getattr(transformers, CLASSES[family] + "Config")(**json.loads(json.dumps(values)))
    model = getattr(transformers, CLASSES[family] + "ForCausalLM")(config).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = 0.2 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.data.copy_(noise + 1.0 if "norm" in name else noise)
    return model


def ours(case, state, dtype=torch.float64):
    model = DecoderOnlyTransformer(from_pretrained_config(published(case))).to(dtype)
    return load_hf_state_dict(model, state)


def prompt(batch=2, length=24, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, SMALL["vocab_size"], (batch, length), generator=generator)


# --- Hugging Face without its detours through float32 ---------------------------------------------


def rms_norm_forward(self, x):
    """Their RMSNorm, less `.to(torch.float32)`: in float64 that would cost nine digits."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def v2_apply_rotary_emb(xq, xk, freqs_cis):
    """Their rotation of DeepSeek-V2, less `.float()`."""
    turn = freqs_cis.unsqueeze(1).to(torch.complex128)
    pairs = (torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (xq, xk))
    q, k = (torch.view_as_real(x * turn).flatten(3) for x in pairs)
    return q, k


def v2_rotary_forward(self, x, position_ids):
    """Their table of DeepSeek-V2 from cos and sin: torch.polar has another last digit."""
    angles = position_ids[..., None].float() * self.inv_freq.float()
    table = torch.complex(angles.cos(), angles.sin())
    polar = torch.polar(torch.ones_like(angles), angles)
    assert (table - polar).abs().max() < 2e-7
    return table * self.attention_scaling


def kept(case, dtype, got, want, tolerance):
    """Keep the largest error for the page that shows how the book is checked."""
    size = want.abs().max().item()
    values = {
        "chapter": "15",
        "part": "DecoderOnlyTransformer",
        "reference": f"transformers, {case}",
        "case": "logits",
        "dtype": dtype,
        "gradients": False,
        "error": (got - want).abs().max().item() / size,
        "tolerance": tolerance,
    }
    record("oracle", f"15 {case} {dtype}", values)


@pytest.fixture
def exact(monkeypatch):
    for family, name in CLASSES.items():
        monkeypatch.setattr(
            getattr(modeling(family), f"{name}RMSNorm"), "forward", rms_norm_forward
        )
    v2 = modeling("deepseek_v2")
    monkeypatch.setattr(v2, "apply_rotary_emb", v2_apply_rotary_emb)
    monkeypatch.setattr(v2.DeepseekV2RotaryEmbedding, "forward", v2_rotary_forward)


# --- Logits and tokens ----------------------------------------------------------------------------


@every_case
@torch.no_grad()
def test_logits_in_float64(exact, case):
    theirs = build(case)
    model = ours(case, theirs.state_dict())
    tokens = prompt(3, 40)
    want, got = theirs(tokens).logits, model(tokens)
    assert want.std() > 0.3
    kept(case, "float64", got, want, 1e-10)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


@every_case
@torch.no_grad()
def test_logits_in_float32_as_published(case):
    theirs = build(case, torch.float32)
    got, want = ours(case, theirs.state_dict(), torch.float32)(prompt()), theirs(prompt()).logits
    assert got.dtype == torch.float32
    kept(case, "float32", got, want, 3e-5)
    torch.testing.assert_close(got, want, rtol=0, atol=3e-5 * want.abs().max().item())


@every_case
@torch.no_grad()
def test_greedy_tokens_with_the_cache(exact, case):
    theirs = build(case)
    model = ours(case, theirs.state_dict())
    want = theirs.generate(prompt(), max_new_tokens=24, do_sample=False)
    got = generate(model, prompt(), 24, temperature=0)
    assert want.shape == (2, 48)
    assert torch.equal(got, want)


@every_case
@torch.no_grad()
def test_prompts_of_unequal_length(exact, case):
    theirs = build(case)
    model = ours(case, theirs.state_dict())
    lengths = torch.tensor([24, 9, 17])
    tokens = prompt(3)
    mask = torch.arange(24) >= 24 - lengths[:, None]
    tokens = tokens.masked_fill(~mask, 0)
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    want = theirs(tokens, attention_mask=mask.long(), position_ids=positions).logits
    got = model(tokens, key_padding_mask=mask)
    torch.testing.assert_close(got[mask], want[mask], rtol=0, atol=1e-10)
    if "dynamic" not in case:  # theirs keeps the frequencies of the longest sequence so far
        alone = theirs(tokens[1:2, -9:]).logits
        torch.testing.assert_close(got[1:2, -9:], alone, rtol=0, atol=1e-10)
    theirs = build(case)
    want = theirs.generate(tokens, attention_mask=mask.long(), max_new_tokens=20, do_sample=False)
    got = generate(model, tokens, 20, temperature=0, prompt_lengths=lengths)
    assert torch.equal(got, want)


@some_cases
def test_gradients_in_float64(exact, case):
    theirs = build(case)
    model = ours(case, theirs.state_dict())
    weights = torch.randn(2, 24, 101, generator=torch.Generator().manual_seed(3)).double()
    for m, logits in ((theirs, theirs(prompt()).logits), (model, model(prompt()))):
        m.zero_grad()
        (logits * weights).sum().backward()
    names = {decoder._hf_name(k, model.config): k for k, _ in model.named_parameters()}
    assert set(names) == {k for k, _ in theirs.named_parameters()}
    for name, p in theirs.named_parameters():
        want = decoder._to_our_layout(names[name], p.grad, model.config)
        got = model.get_parameter(names[name]).grad
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9 * want.abs().max().item())


# --- Configurations -------------------------------------------------------------------------------


@every_case
def test_both_forms_of_the_configuration(case, tmp_path):
    old = published(case)
    model = build(case, torch.float32)
    model.config.save_pretrained(tmp_path)
    new = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in new
    assert "rope_theta" not in new
    want = from_pretrained_config(old)
    assert from_pretrained_config(new) == want
    assert from_pretrained_config(tmp_path) == want
    assert from_pretrained_config(str(tmp_path / "config.json")) == want


@every_case
def test_parameters_are_as_many(case):
    config = from_pretrained_config(published(case))
    with torch.device("meta"):
        model = DecoderOnlyTransformer(config)
    count = sum(p.numel() for p in build(case, torch.float32).parameters())
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("family", CLASSES)
def test_absent_keys_mean_what_they_mean_there(family):
    config = getattr(transformers, CLASSES[family] + "Config")
    options = {"first_k_dense_replace": 99} if family.startswith("deepseek") else {}
    sizes = {"num_hidden_layers": 2, "vocab_size": 50, "hidden_size": 4096}
    sizes |= {"num_attention_heads": 32, "intermediate_size": 128}
    full = config(**sizes, **options).to_dict()
    sparse = {"model_type": family, **sizes, **options}
    assert from_pretrained_config(sparse) == from_pretrained_config(full)


# --- Files ----------------------------------------------------------------------------------------


@some_cases
@pytest.mark.parametrize("shard", ["1GB", "20KB"])
@torch.no_grad()
def test_files_written_by_save_pretrained(exact, case, shard, tmp_path, monkeypatch):
    theirs = build(case)
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    files = sorted(tmp_path.glob("*.safetensors"))
    index = tmp_path / "model.safetensors.index.json"
    assert (len(files) > 3) == index.exists() == (shard == "20KB")
    opened, at_once, real = [0, 0], [], safetensors.safe_open

    class Counting:
        def __init__(self, *args, **kwargs):
            self.file = real(*args, **kwargs)

        def __enter__(self):
            opened[0] += 1
            at_once.append(opened[0])
            return self.file.__enter__()

        def __exit__(self, *args):
            opened[0] -= 1
            return self.file.__exit__(*args)

    monkeypatch.setattr(safetensors, "safe_open", Counting)
    want = ours(case, theirs.state_dict()).state_dict()
    config = from_pretrained_config(tmp_path)
    for path in (tmp_path, str(tmp_path), index if shard == "20KB" else files[0]):
        with torch.device("meta"):
            model = DecoderOnlyTransformer(config).double()
        for target in (DecoderOnlyTransformer(config).double(), model):
            got = load_hf_state_dict(target, path)
            assert got is target
            assert got.state_dict().keys() == want.keys()
            assert all(torch.equal(got.state_dict()[k], want[k]) for k in want)
            torch.testing.assert_close(got(prompt()), theirs(prompt()).logits, rtol=0, atol=1e-10)
    assert set(at_once) == {1}  # never two files at once


@some_cases
def test_a_shard_with_faults_is_named_and_nothing_is_copied(case, tmp_path):
    theirs = build(case)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    last = sorted(tmp_path.glob("*.safetensors"))[-1]
    tensors = load_file(last)
    gone = sorted(tensors)[0]
    shape = tuple(tensors.pop(gone).shape)
    save_file({**tensors, "model.extra": torch.zeros(3)}, last)
    model = DecoderOnlyTransformer(from_pretrained_config(tmp_path)).double()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match="2 tensors") as error:
        load_hf_state_dict(model, tmp_path)
    assert f"{gone}: missing, expected shape {shape}" in str(error.value)
    assert "model.extra: unexpected, got shape (3,)" in str(error.value)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    last.unlink()
    with pytest.raises(FileNotFoundError, match=last.name):
        load_hf_state_dict(model, tmp_path)


def test_a_file_of_another_dtype(tmp_path):
    theirs = build("qwen2").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    model = ours("qwen2", tmp_path, torch.float32)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    want = theirs.model.embed_tokens.weight.float()
    assert torch.equal(model.embed.weight, want)
    quantised = {
        k: v.to(torch.float8_e4m3fn) for k, v in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(quantised, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight: got dtype F8_E4M3"):
        ours("qwen2", tmp_path)


@pytest.mark.parametrize("case", ["llama-biases-tied", "qwen3-sliding-tied", "qwen2.5-yarn-tied"])
@torch.no_grad()
def test_a_tied_head_with_and_without_its_tensor(exact, case):
    theirs = build(case)
    state = theirs.state_dict()
    want = theirs(prompt()).logits
    without = {k: v for k, v in state.items() if k != "lm_head.weight"}
    both = {**without, "lm_head.weight": without["model.embed_tokens.weight"].clone()}
    for given in (without, both):
        torch.testing.assert_close(ours(case, given)(prompt()), want, rtol=0, atol=1e-10)
    other = {**both, "lm_head.weight": both["lm_head.weight"] + 1}
    with pytest.raises(ValueError, match=r"lm_head.weight: differs from model.embed_tokens"):
        ours(case, other)


# --- Faults that the comparison must see ----------------------------------------------------------


@pytest.mark.parametrize(
    "case", [c for c, (family, _) in CASES.items() if not family.startswith("deepseek")]
)
@torch.no_grad()
def test_the_wrong_layout_is_seen(exact, case, monkeypatch):
    theirs = build(case)
    monkeypatch.setattr(decoder, "_to_our_layout", lambda name, tensor, config: tensor)
    error = ours(case, theirs.state_dict())(prompt()) - theirs(prompt()).logits
    assert error.abs().max() > 1e-2


@some_cases
@torch.no_grad()
def test_every_tensor_matters(exact, case):
    """Each of layer 1's parameters, disturbed, moves the logits: none is loaded in vain."""
    theirs = build(case)
    model = ours(case, theirs.state_dict())
    want = model(prompt(1, 8))
    moved = 0
    for name, p in model.named_parameters():
        if name.startswith("layers.1.") and not name.endswith("k_proj.bias"):
            kept = p.clone()
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(5)))
            assert (model(prompt(1, 8)) - want).abs().max() > 1e-6, name
            p.copy_(kept)
            moved += 1
    assert moved >= 9
    assert isinstance(model.layers[1], nn.Module)
