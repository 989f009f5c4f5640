"""Every family of the data file against Hugging Face's model of it, small, random, in float64.

Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import json

import pytest
import torch
from family_cases import CASES, family
from hugging_face import WITHOUT_THEIR_WARNINGS, transformers
from torch.overrides import TorchFunctionMode

from transformer_parts.families import (
    FAMILIES,
    assemble,
    greedy,
    load_weights,
    published_weights,
)

pytestmark = WITHOUT_THEIR_WARNINGS

SIZES = {
    "vocab_size": 61, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 48, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
LENGTH, NEW = 21, 6


class InDouble(TorchFunctionMode):
    """No tensor of float64 becomes one of float32: their detours would hide nine digits."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        double = bool(args) and getattr(args[0], "dtype", None) == torch.float64
        if double and kwargs.get("dtype") == torch.float32:
            kwargs["dtype"] = torch.float64
        if double and func is torch.Tensor.float:
            return args[0]
        if double and func in (torch.Tensor.to, torch.Tensor.type):
            args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        if func is torch.polar:  # which has another last digit than cos and sin
            size, angle = args
            return torch.complex(size * angle.cos(), size * angle.sin())
        if func is torch.log1p:  # of positions
            args = (args[0].double(),)
        return func(*args, **kwargs)


def built(case):
    """Their model with random weights, its configuration as a file has it."""
    kind = transformers.CONFIG_MAPPING[family(case)]
    plain = kind()
    known = {**plain.to_dict(), **dict.fromkeys(getattr(kind, "attribute_map", {}))}
    sizes = {k: v for k, v in SIZES.items() if k in known}
    config = kind(**{**sizes, **json.loads(json.dumps(CASES[case]))})
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
    for module, name, table in tables:  # of angles they compute in float32 whatever the model
        setattr(module, name, table)
    generator = torch.Generator().manual_seed(0)
    for name, p in model.named_parameters():
        noise = 0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        shift = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        p.data.copy_(noise + shift)
    for name, b in model.named_buffers():
        if "correction" in name:  # experts are chosen otherwise than they are weighed
            b.copy_(0.3 * torch.randn(b.shape, generator=generator, dtype=torch.float64))
    model.tie_weights()
    return model


def tokens(batch=2, length=LENGTH):
    return torch.randint(1, 61, (batch, length), generator=torch.Generator().manual_seed(1))


def logits(model, x):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of quotients of whole numbers
    try:
        with torch.no_grad(), InDouble():
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


def test_every_family_has_a_case():
    assert {family(case) for case in CASES} == set(FAMILIES)
    assert len(FAMILIES) >= 48
