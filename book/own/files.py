"""The model's files, in Hugging Face's format, with what is known of them."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from book.measured import fingerprint
from book.own.recipe import Recipe, training_stories
from book.own.tokens import BEGIN_ID, END_ID, PAD_ID, tokenizer_json
from book.stories import BEGIN, END, PAD
from transformer_parts import decoder
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.rope import convert_rope_layout


def llama_config(config: ModelConfig) -> dict[str, Any]:
    """The configuration as Hugging Face's Llama reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_seq_len,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_base,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "pad_token_id": PAD_ID,
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "dtype": "float32",
    }


def llama_weights(model: DecoderOnlyTransformer) -> dict[str, Tensor]:
    """The weights under Llama's names, queries and keys in its layout of pairs."""
    c, weights = model.config, {}
    for ours, tensor in model.state_dict().items():
        heads = {"q_proj": c.num_heads, "k_proj": c.kv_heads}.get(ours.split(".")[-2])
        if heads is not None:
            tensor = convert_rope_layout(tensor, heads, to="half")
        weights[decoder._hf_name(ours, c)] = tensor.contiguous()
    return weights


def digest_of_stories(recipe: Recipe, number: int = 1000) -> str:
    """A digest of the first stories that the model is trained on."""
    told = itertools.islice(training_stories(recipe), number)
    return hashlib.sha256("\n".join(" ".join(s.words) for s in told).encode()).hexdigest()[:16]


def save(model: DecoderOnlyTransformer, recipe: Recipe, known: dict[str, Any], to: Path) -> None:
    """Write config.json, model.safetensors, tokenizer.json, tokenizer_config.json and made.json.

    Args:
        model: after its training.
        recipe: what it was trained by.
        known: what was measured of it.
        to: the folder, made if it is not there.
    """
    from safetensors.torch import save_file

    to.mkdir(parents=True, exist_ok=True)
    weights = to / "model.safetensors"
    save_file(llama_weights(model), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors makes a file for its owner alone
    made = {
        "recipe": asdict(recipe),
        "stories": digest_of_stories(recipe),
        "weights": fingerprint(weights),
        **known,
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.max_seq_len,
    }
    for name, content in (
        ("config.json", llama_config(model.config)),
        ("tokenizer.json", tokenizer_json()),
        ("tokenizer_config.json", tokenizer),
        ("made.json", made),
    ):
        (to / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def save_snapshots(taken: list[dict[str, Any]], to: Path) -> None:
    """Write snapshots.json: what the model said and looked at while it became these weights."""
    content = {"weights": fingerprint(to / "model.safetensors"), "steps": taken}
    packed = json.dumps(content, separators=(",", ":")).replace('{"step"', '\n{"step"')
    (to / "snapshots.json").write_text(packed + "\n", encoding="utf-8")
