"""Local layers of five families: Hugging Face's attention against ours, in float64.

A small random model of each family reads a text that is longer than its windows. What its layers
hand to their attention (queries, keys, values, the mask that the library made) is kept, and ours
has to make of the same queries, keys and values the same outputs and gradients, with masks, caps
and sinks of its own. Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import importlib

import pytest
import torch
import torch.nn.functional as F
from hugging_face import WITHOUT_THEIR_WARNINGS, transformers

from transformer_parts.local_attention import (
    RollingKVCache,
    chunk_mask,
    layer_windows,
    sink_attention,
    soft_cap,
    tiled_attention,
    window_mask,
)

pytestmark = WITHOUT_THEIR_WARNINGS

LENGTH, WINDOW = 29, 7
SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
# Family: the module, the classes, and what its configuration says beside SMALL.
FAMILIES = {
    "mistral": ("Mistral", "", {"num_hidden_layers": 2, "sliding_window": WINDOW}),
    "gemma2": ("Gemma2", "", {"num_hidden_layers": 4, "sliding_window": WINDOW,
               "query_pre_attn_scalar": 11, "attn_logit_softcapping": 1.5}),
    "gemma3": ("Gemma3", "Text", {"num_hidden_layers": 12, "sliding_window": WINDOW,
               "query_pre_attn_scalar": 11}),
    "gpt_oss": ("GptOss", "", {"num_hidden_layers": 4, "sliding_window": WINDOW, **EXPERTS}),
    "llama4": ("Llama4", "Text", {"num_hidden_layers": 8, "attention_chunk_size": WINDOW,
               "intermediate_size_mlp": 40, **EXPERTS}),
}  # fmt: skip


def modeling(family):
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def built(family):
    name, text, options = FAMILIES[family]
    config = getattr(transformers, f"{name}{text}Config")(**SMALL, **options)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(modeling(family), f"{name}ForCausalLM")(config).double().eval()
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        p.data.copy_(0.4 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model


def tokens(length=LENGTH):
    return torch.randint(1, 61, (2, length), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def kept(monkeypatch):
    """What each call of their attention was given, and what it returned; softmax in float64."""
    calls = []

    def watched(original):
        def attention(module, query, key, value, mask, *args, **kwargs):
            given = [x.detach().clone().requires_grad_() for x in (query, key, value)]
            out, weights = original(module, *given, mask, *args, **kwargs)
            calls.append((module, given, mask, kwargs, out))
            return out.detach(), weights

        return attention

    for family in FAMILIES:
        module = modeling(family)
        monkeypatch.setattr(
            module, "eager_attention_forward", watched(module.eager_attention_forward)
        )
    # Some of them ask for float32 there, which would cost nine digits.
    softmax = torch.softmax
    monkeypatch.setattr(F, "softmax", lambda x, dim=-1, dtype=None, **_: softmax(x, dim))
    return calls


def ours(family, layer, query, key, value, scale, sinks):
    """The same layer from our parts."""
    (t, s), count = (query.shape[2], key.shape[2]), FAMILIES[family][2]["num_hidden_layers"]
    key, value = (x.repeat_interleave(2, 1) for x in (key, value))
    every = {"mistral": count + 1, "gemma2": 2, "gemma3": 6, "gpt_oss": 2, "llama4": 4}[family]
    width = layer_windows(count, every, WINDOW)[layer]
    if width is None:
        mask = window_mask(t, s, s)
    else:
        mask = chunk_mask(t, s, width) if family == "llama4" else window_mask(t, s, width)
    if family == "gpt_oss":
        return sink_attention(query, key, value, sinks, mask, scale)
    if family == "gemma2":
        scores = soft_cap(scale * query @ key.mT, 1.5).masked_fill(~mask, -torch.inf)
        return scores.softmax(-1) @ value
    if family == "llama4" and width is not None:
        return F.scaled_dot_product_attention(query, key, value, mask, scale=scale)
    return tiled_attention(query, key, value, True, scale, window=width, block_size=(8, 5))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_gives_the_same_outputs_and_gradients(family, kept):
    model = built(family)
    model(tokens(), use_cache=False)
    layers = FAMILIES[family][2]["num_hidden_layers"]
    assert [call[0].layer_idx for call in kept] == list(range(layers))
    narrow = 0
    for module, given, mask, kwargs, out in kept:
        sinks = getattr(module, "sinks", None)
        got = ours(family, module.layer_idx, *given, kwargs["scaling"], sinks)
        got = got.transpose(1, 2)
        torch.testing.assert_close(got, out, rtol=1e-10, atol=1e-10)
        narrow += int((mask[0, 0, -1] < -1).sum() > 0)
        wish = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=out.dtype)
        leaves = given if sinks is None else [*given, sinks]
        for a, b in zip(
            torch.autograd.grad(got, leaves, wish),
            torch.autograd.grad(out, leaves, wish),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    # Their mask hides something from the last query in the local layers, and in no other.
    assert narrow == {"mistral": 2, "gemma2": 2, "gemma3": 10, "gpt_oss": 2, "llama4": 6}[family]


def test_llama_4_rotates_in_its_chunked_layers_only():
    attention = [layer.self_attn for layer in built("llama4").model.layers]
    chunked = [w is not None for w in layer_windows(8, 4, WINDOW)]
    assert [bool(one.use_rope) for one in attention] == chunked
    assert [t == "chunked_attention" for t in built("llama4").config.layer_types] == chunked


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gemma3", "gpt_oss"])
def test_their_windows_stand_where_ours_do(family):
    config = built(family).config
    count = config.num_hidden_layers
    if family == "mistral":
        assert config.sliding_window == WINDOW
        return
    every = 6 if family == "gemma3" else 2
    local = [kind == "sliding_attention" for kind in config.layer_types]
    assert local == [w is not None for w in layer_windows(count, every, WINDOW)]


@torch.no_grad()
def test_decoding_with_their_cache_keeps_what_our_ring_keeps(kept):
    model, text = built("mistral"), tokens()
    whole = model(text, use_cache=False).logits
    once = {call[0].layer_idx: call[1] for call in kept}  # all keys, in one pass
    kept.clear()
    cache = transformers.DynamicCache(config=model.config)
    rings = [RollingKVCache(2, 2, WINDOW, 8, dtype=torch.float64) for _ in range(2)]
    start = 0
    for piece in text.split([11, *[1] * 12, 6], 1):
        logits = model(piece, past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(
            logits, whole[:, start : start + piece.shape[1]], rtol=1e-10, atol=1e-10
        )
        for module, (_, key, value), *_ in kept:
            _, all_keys, all_values = once[module.layer_idx]
            new = slice(start, start + piece.shape[1])
            keys, values = rings[module.layer_idx].update(
                all_keys[:, :, new], all_values[:, :, new]
            )
            torch.testing.assert_close(keys, key, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(values, value, rtol=1e-10, atol=1e-10)
        kept.clear()
        start += piece.shape[1]
    assert start == LENGTH
    assert rings[0].keys.shape[2] == WINDOW
