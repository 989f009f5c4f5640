"""Families with recurrent layers against Hugging Face's: gradients, their caches, other choices.

Logits, files and greedy tokens are compared in `test_families_hugging_face.py`, as for every
family. Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

from dataclasses import replace

import pytest
import torch
from family_cases import CASES, family
from hugging_face import WITHOUT_THEIR_WARNINGS
from hybrid_cases import DELTA, HYBRIDS, MIXED
from test_families_hugging_face import NEW, InCosines, built, contents, logits, tokens

from book.measured import record
from transformer_parts.families import (
    FamilyDecoder,
    greedy,
    load_weights,
    published_weights,
    read_plan,
)

pytestmark = WITHOUT_THEIR_WARNINGS


def both(case):
    theirs = built(case)
    plan = read_plan(contents(theirs.config))
    return theirs, load_weights(FamilyDecoder(plan).double(), theirs.state_dict())


# A parameter of the recurrent part that no other part has, by the kind of layer.
ONE = {"mamba": "A_log", "mamba2": "A_log", "delta": "A_log", "split_delta": "A_log",
       "kimi_delta": "forget_gate.A_log", "lightning": "qkv_proj.weight",
       "conv": "conv.weight"}  # fmt: skip


@pytest.mark.parametrize("case", HYBRIDS)
def test_the_gradient_of_a_weight_is_theirs(case):
    theirs, model = both(case)
    i, layer = next((i, x) for i, x in enumerate(model.plan.layers) if x.mixer)
    one = ONE[layer.mixer["kind"]]
    names = model.plan.data["names"]
    theirs_name = f"{names['layer'].format(i=i)}{names['recurrent']}.{one}"
    x = tokens()
    weigh = torch.randn(*x.shape, 61, generator=torch.Generator().manual_seed(3),
                        dtype=torch.float64)  # fmt: skip
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InCosines():
            want_logits = theirs(x, use_cache=False).logits
            want = torch.autograd.grad(
                (want_logits * weigh).sum(), theirs.get_parameter(theirs_name)
            )[0]
    finally:
        torch.set_default_dtype(default)
    ours = model.get_parameter(f"layers.{i}.recurrent.{one}")
    have = torch.autograd.grad((model(x) * weigh).sum(), ours)[0]
    size = max(1.0, want.abs().max().item())
    assert want.abs().max() > 1e-3  # it matters
    error = (have - want).abs().max().item()
    assert error < 1e-10 * size
    record(
        "oracle",
        f"22 {case}",
        {
            "chapter": "22",
            "part": f"FamilyDecoder, {family(case)}",
            "reference": f"transformers, {family(case)}",
            "case": "logits of a model, the gradient of a weight of its recurrent layer",
            "dtype": "float64",
            "gradients": True,
            "error": error / size,
            "tolerance": 1e-10,
        },
    )


# In a step with a cache they leave out the limits of the time step, which a whole text has.
UNLIMITED = [c for c in HYBRIDS if "limits" not in HYBRIDS[c] and "time_step_limit" not in
             HYBRIDS[c] and family(c) != "nemotron_h"]  # fmt: skip


@pytest.mark.parametrize("case", UNLIMITED)
def test_their_cache_gives_the_tokens_of_ours(case):
    theirs, model = both(case)
    x = tokens()
    ids = theirs.generate(x, max_new_tokens=NEW, do_sample=False, use_cache=True,
                          attention_mask=torch.ones_like(x), pad_token_id=0)  # fmt: skip
    assert torch.equal(greedy(model, x, NEW), ids)


def test_widths_of_their_own_for_keys_and_values():
    """Published files hold three convolutions; keys and values need not be as wide."""
    CASES["olmo_hybrid-wide"] = {**DELTA, "linear_num_key_heads": 4, **MIXED}
    try:
        theirs, model = both("olmo_hybrid-wide")
    finally:
        del CASES["olmo_hybrid-wide"]
    keys, values = 4 * 6, 4 * 5
    state = dict(theirs.state_dict())
    fused = state.pop("model.layers.0.linear_attn.conv1d.weight")
    for name, part in zip("qkv", fused.split([keys, keys, values]), strict=True):
        state[f"model.layers.0.linear_attn.{name}_conv1d.weight"] = part
    again = load_weights(FamilyDecoder(model.plan).double(), state)
    want = logits(theirs, tokens())
    with torch.no_grad():
        for one in (model, again):
            assert (one(tokens()) - want).abs().max() < 1e-10 * want.abs().max()
    out = published_weights(again)
    assert torch.equal(out["model.layers.0.linear_attn.conv1d.weight"], fused)


# What the plan says of a recurrent layer, and something else that it could say.
OTHERWISE = {
    "eps": 0.5, "limits": [0.55, 0.6], "norm": "before", "scales": [1.0, 2.0, 1.0, 1.0, 1.0],
    "in_scale": 3.0, "out_scale": 3.0, "step": 1.5, "place": (1, 5), "norms": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "case", ["mamba2-limited", "falcon_h1", "falcon_h1-gated", "falcon_mamba", "olmo_hybrid",
             "kimi_linear", "minimax", "qwen3_next"]
)  # fmt: skip
def test_another_choice_of_a_recurrent_layer_makes_another_model(case):
    theirs = built(case)
    state, x = theirs.state_dict(), tokens()
    want = logits(theirs, x)
    plan = read_plan(contents(theirs.config))

    def off(changed):
        with torch.no_grad():
            model = load_weights(FamilyDecoder(changed).double(), state)
            return (model(x) - want).abs().max().item()

    tried = 0
    assert off(plan) < 1e-10 * want.abs().max()
    first = next(layer for layer in plan.layers if layer.mixer)
    for key in first.mixer.keys() & OTHERWISE.keys():
        if key == "eps" and first.mixer.get("norm") == "none":
            continue
        other = OTHERWISE[key]
        if key == "norm" and first.mixer["norm"] == "none":
            continue  # it has no gain to load
        layers = [replace(x, mixer={**x.mixer, key: other}) if x.mixer else x
                  for x in plan.layers]  # fmt: skip
        assert off(replace(plan, layers=tuple(layers))) > 1e-6, key
        tried += 1
    for k in range(4):
        scales = tuple(1.3 if j == k else s for j, s in enumerate(first.scales))
        layers = [replace(x, scales=scales) for x in plan.layers]
        there = k < 2 or any(layer.d_ff != 0 for layer in plan.layers)
        assert (off(replace(plan, layers=tuple(layers))) > 1e-6) == there, k
    assert tried >= 1
