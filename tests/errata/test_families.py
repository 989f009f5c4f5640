"""Misconceptions of the chapter on families."""

import json

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from book.checkers import exercises
from book.kinship import plan_of
from book.own import FOLDER, encode
from book.own.recipe import padded
from book.own.tokens import PAD_ID
from book.stories import stories
from transformer_parts.families import (
    FamilyDecoder,
    assemble,
    cache_numbers,
    load_weights,
)


def test_e148_every_tensor_fits_and_the_model_is_wrong():
    config = json.loads((FOLDER / "config.json").read_text())
    tensors = load_file(FOLDER / "model.safetensors")
    told = stories("families")
    x = padded([encode(next(told).words) for _ in range(8)])

    @torch.no_grad()
    def loss(family):
        model = load_weights(assemble({**config, "model_type": family}), tensors)
        logits = model(x[:, :-1]).flatten(0, 1)
        return F.cross_entropy(logits, x[:, 1:].flatten(), ignore_index=PAD_ID).item()

    assert loss("llama") < 1.0  # nats per word, as what it is
    assert loss("gemma") > 2 * loss("llama")


def test_e149_the_same_lines_make_two_models():
    lines = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2, "intermediate_size": 24,
             "max_position_embeddings": 32}  # fmt: skip
    names = {
        family: {n for n, _ in assemble({"model_type": family, **lines}).named_parameters()}
        for family in ("llama", "qwen2")
    }
    assert names["llama"] != names["qwen2"]
    assert names["qwen2"] - names["llama"] == {f"layers.0.attn.{part}_proj.bias" for part in "qkv"}


def test_e150_eight_times_the_cache_at_the_same_size():
    plans = [plan_of(family) for family in ("llama", "mistral")]
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in FamilyDecoder(plan).parameters()) for plan in plans]
    assert [round(n / 1e9, 1) for n in sizes] == [6.7, 7.2]
    kept = [cache_numbers(plan, 8192) for plan in plans]
    assert kept[0] != kept[1]
    assert kept[0] == 8 * kept[1]


def test_e151_three_blocks_are_right_for_one_group_only():
    split = exercises()["families.split"].oracle
    for groups in (1, 2, 4):
        heads, dim = 4, 3
        qkv = torch.arange((heads + 2 * groups) * dim)
        blocks = torch.split(qkv, [heads * dim, groups * dim, groups * dim])
        same = all(map(torch.equal, blocks, split(qkv, heads, groups)))
        assert same == (groups == 1)
    orders = {
        family: plan_of(family).data["fused_qkv"]
        for family in ("gpt2", "gpt_neox", "bloom", "falcon")
    }
    assert orders.pop("gpt2") == "parts"
    assert set(orders.values()) == {"groups"}
