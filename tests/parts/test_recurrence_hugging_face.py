"""Published layers with random weights: ours against theirs, values and gradients, in float64.

Theirs go through float32 on the way (`.float()`, `.to(torch.float32)`), which would hide all that
is smaller than 1e-7, so `InDouble` switches these detours off while their layer runs;
`test_the_detour_is_switched_off` shows that it does. Without `transformers` the file is skipped,
see `tests/hugging_face.py`.
"""

import importlib

import pytest
import torch
from hugging_face import WITHOUT_THEIR_WARNINGS, InDouble, transformers

from book.measured import record
from transformer_parts.recurrence import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba2,
    delta_rule,
    l2_norm,
    linear_attention,
    selective_scan,
)

pytestmark = WITHOUT_THEIR_WARNINGS

B, T, D = 2, 23, 24
COMMON = {
    "vocab_size": 61,
    "hidden_size": D,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def heads(x):
    return x.transpose(1, 2)


def modeling(family):
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def qwen():
    config = transformers.Qwen3NextConfig(
        **COMMON, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=5,
        linear_value_head_dim=6, linear_conv_kernel_dim=3, num_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    theirs = modeling("qwen3_next").Qwen3NextGatedDeltaNet(config, 0)
    return theirs, GatedDeltaNet(D, 2, 4, 5, 6, kernel=3)


def kimi():
    config = transformers.KimiLinearConfig(
        **COMMON, linear_head_dim=5, linear_num_heads=3, linear_conv_kernel_dim=4
    )
    theirs = modeling("kimi_linear").KimiLinearDeltaAttention(config, 0)
    return theirs, KimiDeltaAttention(D, 3, 5)


def mamba2():
    config = transformers.Mamba2Config(
        vocab_size=61, hidden_size=D, num_heads=6, head_dim=8, state_size=7, n_groups=2,
        num_hidden_layers=2, conv_kernel=4, expand=2, chunk_size=8,
        pad_token_id=0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    theirs = modeling("mamba2").Mamba2Mixer(config, 0)
    return theirs, Mamba2(D, 7, 6, 8, num_groups=2)


def minimax():
    config = transformers.MiniMaxConfig(**COMMON, head_dim=6, block_size=8)
    theirs = modeling("minimax").MiniMaxLightningAttention(config, 1).double()
    for name, factor in zip(
        ("query_decay", "key_decay", "diagonal_decay"),
        theirs.decay_factors(theirs.slope_rate),
        strict=True,
    ):
        setattr(theirs, name, factor)  # made in float32 before
    return theirs, LightningAttention(D, 4, 6, theirs.slope_rate.flatten())


LAYERS = {"qwen3_next": qwen, "kimi_linear": kimi, "mamba2": mamba2, "minimax": minimax}


def both(family):
    """Their layer and ours with the same random weights, A_log and D included."""
    theirs, ours = (layer.double() for layer in LAYERS[family]())
    for seed, p in enumerate(theirs.parameters()):
        p.data.copy_(0.5 * draw(*p.shape, seed=seed))
    needed = dict(theirs.named_parameters())
    assert {n: p.shape for n, p in ours.named_parameters()} == {
        n: p.shape for n, p in needed.items()
    }
    buffers = dict(ours.named_buffers())
    ours.load_state_dict({n: p.detach() for n, p in needed.items()} | buffers)
    return theirs, ours


def run_theirs(layer, x):
    extra = {} if not hasattr(layer, "slope_rate") else {
        "position_embeddings": None, "attention_mask": None,
    }  # fmt: skip
    with InDouble() as switched:
        out = layer(x, **extra)
    return (out[0] if isinstance(out, tuple) else out), switched.detours


@pytest.mark.parametrize("family", LAYERS)
def test_a_layer_gives_the_same_outputs_and_gradients(family):
    theirs, ours = both(family)
    x, weigh = draw(B, T, D, seed=90), draw(B, T, D, seed=91)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    want, _ = run_theirs(theirs, a)
    want_grads = torch.autograd.grad((want * weigh).sum(), [a, *theirs.parameters()])
    for form in ("recurrent", "parallel", "chunked"):
        have, _ = ours(b, form=form, chunk_size=7)
        grads = dict(
            zip(
                ["x", *(n for n, _ in ours.named_parameters())],
                torch.autograd.grad((have * weigh).sum(), [b, *ours.parameters()]),
                strict=True,
            )
        )
        assert (have - want).abs().max() < 1e-10 * want.abs().max()
        names = ["x", *(n for n, _ in theirs.named_parameters())]
        for name, w in zip(names, want_grads, strict=True):
            assert (grads[name] - w).abs().max() < 1e-10 * w.abs().max().clamp(min=1), name
    record(
        "oracle",
        f"24 {family}",
        {
            "chapter": "24",
            "part": type(ours).__name__,
            "reference": f"transformers, {family}",
            "case": "a layer, in chunks of 7",
            "dtype": "float64",
            "gradients": True,
            "error": (have - want).abs().max().item(),
            "tolerance": 1e-10,
        },
    )


def test_the_detour_is_switched_off():
    theirs, ours = both("qwen3_next")
    x = draw(B, T, D)
    want, detours = run_theirs(theirs, x)
    assert detours >= 6
    assert 1e-9 < (theirs(x) - want).abs().max() < 1e-3
    assert torch.allclose(ours(x)[0], want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["chunk", "recurrent"])
@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear"])
def test_both_paths_of_the_delta_rule(family, name):
    module = modeling(family)
    function = {
        ("qwen3_next", "chunk"): "torch_chunk_gated_delta_rule",
        ("qwen3_next", "recurrent"): "torch_recurrent_gated_delta_rule",
        ("kimi_linear", "chunk"): "chunk_kimi_delta_attention",
        ("kimi_linear", "recurrent"): "recurrent_kimi_delta_attention",
    }[family, name]
    q, k, v = draw(B, T, 3, 4, seed=1), draw(B, T, 3, 4, seed=2), draw(B, T, 3, 5, seed=3)
    shape = (B, T, 3, 4) if family == "kimi_linear" else (B, T, 3)
    g, beta, state = -draw(*shape, seed=4).abs(), draw(B, T, 3, seed=5).sigmoid(), draw(B, 3, 4, 5)
    leaves = [x.requires_grad_() for x in (q, k, v, g, beta, state)]
    with InDouble():
        want, end = getattr(module, function)(
            q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )  # fmt: skip
    have, memory = delta_rule(
        l2_norm(heads(q)) / 2, l2_norm(heads(k)), heads(v), heads(beta), heads(g), state
    )
    assert (heads(have) - want).abs().max() < 1e-10
    assert (memory - end).abs().max() < 1e-10
    weigh, late = draw(*want.shape, seed=8), draw(*end.shape, seed=9)
    a = torch.autograd.grad((want * weigh).sum() + (end * late).sum(), leaves)
    b = torch.autograd.grad((heads(have) * weigh).sum() + (memory * late).sum(), leaves)
    assert all((x - y).abs().max() < 1e-10 for x, y in zip(a, b, strict=True))


def test_mambas_selective_scan():
    theirs = modeling("mamba").mamba_selective_scan
    u, dt = draw(B, T, 6, seed=1), draw(B, T, 6, seed=2).exp()
    a, b, c, d = -draw(6, 3).exp(), draw(B, T, 3, seed=3), draw(B, T, 3, seed=4), draw(6, seed=5)
    leaves = [x.requires_grad_() for x in (u, dt, a, b, c, d)]
    with InDouble():
        want, end = theirs(u.mT, dt.mT, a, b.mT, c.mT, d, return_last_state=True)
    weigh = draw(B, T, 6, seed=6)
    grads = torch.autograd.grad((want.mT * weigh).sum(), leaves)
    for form in ("recurrent", "parallel", "chunked"):
        have, state = selective_scan(u, dt, a, b, c, d, form=form, chunk_size=5)
        assert (have - want.mT).abs().max() < 1e-10
        assert (state - end).abs().max() < 1e-10
        own = torch.autograd.grad((have * weigh).sum(), leaves)
        assert all((x - y).abs().max() < 1e-10 for x, y in zip(grads, own, strict=True))


def test_mamba2s_scan_is_linear_attention_with_a_decay():
    theirs = modeling("mamba2").mamba2_chunk_scan
    x, dt = draw(B, T, 4, 5, seed=1), draw(B, T, 4, seed=2).exp()
    a, b, c = -draw(4).exp(), draw(B, T, 2, 3, seed=3), draw(B, T, 2, 3, seed=4)
    start = draw(B, 4, 5, 3, seed=5)
    with InDouble():
        want, end = theirs(
            x, dt, a, b, c, chunk_size=8, initial_states=start, return_final_states=True
        )
    have, memory = linear_attention(
        heads(c).repeat_interleave(2, 1), heads(b).repeat_interleave(2, 1),
        heads(x * dt[..., None]), heads(dt * a), start.mT, chunk_size=6,
    )  # fmt: skip
    assert (heads(have) - want).abs().max() < 1e-10
    assert (memory.mT - end).abs().max() < 1e-10


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear", "mamba2"])
def test_a_step_with_a_state_is_their_step_with_a_cache(family):
    theirs, ours = both(family)
    x = draw(B, 6, D, seed=7)
    cache = transformers.DynamicCache(config=theirs_config(family))
    state = None
    with torch.no_grad(), InDouble():
        for part in (x[:, :4], x[:, 4:5], x[:, 5:]):
            want = theirs(part, cache_params=cache)
            have, state = ours(part, state)
            assert (have - want).abs().max() < 1e-5  # their cache keeps float32


def theirs_config(family):
    return {
        "qwen3_next": lambda: transformers.Qwen3NextConfig(**COMMON),
        "kimi_linear": lambda: transformers.KimiLinearConfig(**COMMON),
        "mamba2": lambda: transformers.Mamba2Config(num_hidden_layers=2),
    }[family]()
