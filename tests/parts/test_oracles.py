"""The oracle matrix: each part against a reference, in every dtype and on the awkward inputs.

One row is a part, a reference (torch's operator, Hugging Face's module, or the gradient by autograd
for a backward pass by hand), a case and a dtype. The largest error is recorded for the page that
shows how the book is checked. The error is relative to the size of the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_weights import copied

from book.measured import record
from transformer_parts import (
    activations,
    attention,
    feed_forward,
    kv_cache,
    local_attention,
    mla,
    normalization,
    rope,
    softmax,
    tensors,
    transformer,
)

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
# The machine's precision, with room for the order of a few hundred additions.
ALLOWED = {F64: 1e-12, F32: 2e-5, BF16: 2e-2, F16: 4e-3}
EXACT = {F64: 1e-12, F32: 2e-5}
# The same in units of a dtype's own precision. A row may be stricter, never looser: an error of ten
# times this much is planted into every row below.
NEEDED = {F64: 5000, F32: 200, BF16: 3, F16: 5}


def draw(dtype, *shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (scale * torch.randn(shape, generator=generator, dtype=F64)).to(dtype)


@dataclass(frozen=True)
class Oracle:
    """A part and what it has to equal. `cases` make the inputs for a dtype."""

    chapter: str
    part: str
    reference: str
    ours: Callable
    official: Callable
    cases: dict[str, Callable]
    allowed: dict = field(default_factory=lambda: ALLOWED)
    gradients: bool = True


LARGE = "large, 100"


def tame(*shapes):
    """Without the large inputs: their scores are so far apart that no gradient is left."""
    return {name: case for name, case in plain(*shapes).items() if name != LARGE}


def plain(*shapes):
    """Cases that every part has: ordinary, of odd sizes and strides, large, small."""
    return {
        "ordinary": lambda t: [draw(t, *s) for s in shapes],
        "not contiguous": lambda t: [draw(t, *s[::-1]).permute(*range(len(s))[::-1])
                                     for s in shapes],
        "small, 1e-3": lambda t: [draw(t, *s, scale=1e-3) for s in shapes],
        LARGE: lambda t: [draw(t, *s, scale=100) for s in shapes],
    }  # fmt: skip


def extreme(*values):
    """Numbers at which a formula taken at its word overflows or loses its digits."""
    return {"extreme": lambda t: [torch.tensor(values, dtype=t)]}


ROW = (3, 5, 8)
LARGE_GRADIENT = {
    "large gradient, 100": lambda t: [draw(t, *ROW, scale=100), draw(t, *ROW, seed=1)]
}
EDGES = (0.0, 1e-8, -1e-8, 1e-3, -1e-3, 0.5, -0.5, 5.0, -5.0, 80.0, -80.0, 1e4, -1e4)


def mha_pair(dtype):
    torch.manual_seed(0)
    ours = attention.MultiHeadAttention(8, 2)
    official = nn.MultiheadAttention(8, 2, batch_first=True)
    nn.init.normal_(official.in_proj_bias)
    ours.load_from_torch(official)
    return ours.to(dtype), official.to(dtype)


PADDED = torch.arange(5) < torch.tensor([[5], [3], [2]])


def ours_mha(x):
    return mha_pair(x.dtype)[0](x, x, x, key_padding_mask=PADDED, attn_mask=FUTURE)


def torchs_mha(x):
    module = mha_pair(x.dtype)[1]
    blocked = {"key_padding_mask": ~PADDED, "attn_mask": ~FUTURE}
    return module(x, x, x, **blocked, need_weights=False)[0]


FUTURE = torch.ones(5, 5, dtype=torch.bool).tril()


def layer_pair(kind, official_kind, norm_first, dtype):
    torch.manual_seed(0)
    official = official_kind(8, 2, 16, 0.0, batch_first=True, norm_first=norm_first).to(dtype)
    return copied(kind(8, 2, 16, 0.0, norm_first=norm_first).to(dtype), official), official


def layer(which, norm_first, place):
    kinds = {
        "encoder": (transformer.TransformerEncoderLayer, nn.TransformerEncoderLayer),
        "decoder": (transformer.TransformerDecoderLayer, nn.TransformerDecoderLayer),
    }[which]

    def run(x, *memory):
        module = layer_pair(*kinds, norm_first, x.dtype)[place]
        if not memory:
            return module(x)
        if place == 0:
            return module(x, *memory)
        return module(x, *memory, tgt_mask=~FUTURE)

    return run


def gated(x):
    torch.manual_seed(0)
    return feed_forward.GatedFeedForward(8, 12).to(x.dtype)


def torchs_gated(x):
    module = gated(x)
    return module.w_down(F.silu(module.w_gate(x)) * module.w_up(x))


def by_autograd(function, inputs):
    """A backward pass by hand gets what autograd computes for the official operator."""
    grad_out, *leaves = inputs
    leaves = [x.detach().requires_grad_() for x in leaves]
    return torch.autograd.grad(function(*leaves), leaves, grad_out)


def rotated_by_matrices(x):
    """The reference that needs no trick: one rotation matrix per position."""
    rows = [
        x[..., m, :] @ rope.rotation_matrix(m, x.shape[-1]).to(x.dtype).T
        for m in range(x.shape[-2])
    ]
    return torch.stack(rows, -2)


def rotated(x, interleaved=True):
    cos, sin = rope.build_rope_cache(x.shape[-1], x.shape[-2], dtype=F64)
    return rope.apply_rotary_emb(x, cos.to(x.dtype), sin.to(x.dtype), interleaved=interleaved)


def rotated_halves(x):
    order = rope.interleaved_to_half_permutation(x.shape[-1])
    return rotated_by_matrices(x[..., order.argsort()])[..., order]


def gqa(x, groups=2):
    torch.manual_seed(0)
    return kv_cache.GroupedQueryAttention(16, 4, groups).to(x.dtype)


def torchs_gqa(x, groups=2):
    module = gqa(x, groups)
    q, k, v = (
        p(x).unflatten(-1, (-1, 4)).transpose(1, 2)
        for p in (module.q_proj, module.k_proj, module.v_proj)
    )
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return module.out_proj(out.transpose(1, 2).flatten(-2))


def latent(x, form):
    torch.manual_seed(0)
    module = mla.MultiHeadLatentAttention(16, 4, 8, 4, 6, 10, q_lora_rank=12).to(x.dtype)
    tables = rope.RotaryEmbedding(4, 16, dtype=F64)(torch.arange(x.shape[1]))
    return getattr(module, form)(x, rope=tuple(t.to(x.dtype) for t in tables))


ORACLES = [
    Oracle("01", "hadamard", "torch.mul", tensors.hadamard, torch.mul, plain(ROW, (5, 1))),
    Oracle("03", "softmax", "torch.softmax", lambda x: softmax.softmax(x, -1),
           lambda x: torch.softmax(x, -1), plain(ROW) | extreme(*EDGES)),
    Oracle("03", "log_softmax", "F.log_softmax", lambda x: softmax.log_softmax(x, -1),
           lambda x: F.log_softmax(x, -1), plain(ROW) | extreme(*EDGES)),
    Oracle("03", "logsumexp", "torch.logsumexp", lambda x: softmax.logsumexp(x, -1),
           lambda x: torch.logsumexp(x, -1), plain(ROW) | extreme(*EDGES)),
    Oracle("03", "cross_entropy", "F.cross_entropy",
           lambda x: softmax.cross_entropy(x, torch.tensor([1, 0, 4]), label_smoothing=0.1),
           lambda x: F.cross_entropy(x, torch.tensor([1, 0, 4]), label_smoothing=0.1),
           plain((3, 5)), EXACT),
    Oracle("03", "online_softmax", "softmax, then a product",
           lambda s, v: softmax.online_softmax(s, v, 3),
           lambda s, v: torch.softmax(s, -1) @ v, plain((7,), (7, 4)), EXACT),
    Oracle("03", "softmax_backward", "autograd of torch.softmax",
           lambda g, x: softmax.softmax_backward(g, torch.softmax(x, -1), -1),
           lambda g, x: by_autograd(lambda x: torch.softmax(x, -1), (g, x))[0],
           plain(ROW, ROW) | LARGE_GRADIENT, EXACT, gradients=False),
    Oracle("05", "scaled_dot_product_attention", "F.scaled_dot_product_attention",
           lambda q, k, v: attention.scaled_dot_product_attention(q, k, v, is_causal=True),
           lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
           plain((2, 5, 8), (2, 5, 8), (2, 5, 8))),
    Oracle("05", "scaled_dot_product_attention", "F.scaled_dot_product_attention, mask",
           lambda q, k, v: attention.scaled_dot_product_attention(q, k, v, PADDED[1:, None]),
           lambda q, k, v: F.scaled_dot_product_attention(q, k, v, PADDED[1:, None]),
           plain((2, 3, 8), (2, 5, 8), (2, 5, 4))),
    Oracle("05", "attention_backward", "autograd of F.scaled_dot_product_attention",
           lambda g, q, k, v: attention.attention_backward(g, q, k, v),
           lambda g, q, k, v: by_autograd(F.scaled_dot_product_attention, (g, q, k, v)),
           plain((2, 3, 4), (2, 3, 8), (2, 5, 8), (2, 5, 4)), EXACT, gradients=False),
    Oracle("05", "MultiHeadAttention", "nn.MultiheadAttention, masked and padded", ours_mha,
           torchs_mha, tame((3, 5, 8)), EXACT),
    *(
        Oracle("06", name, reference, ours, official, plain(ROW) | extreme(*EDGES))
        for name, reference, ours, official in [
            ("tanh", "torch.tanh", activations.tanh, torch.tanh),
            ("sigmoid", "torch.sigmoid", activations.sigmoid, torch.sigmoid),
            ("relu", "F.relu", activations.relu, F.relu),
            ("leaky_relu", "F.leaky_relu", activations.leaky_relu, F.leaky_relu),
            ("softplus", "F.softplus", activations.softplus, F.softplus),
            ("gelu", "F.gelu", activations.gelu, F.gelu),
            ("gelu, tanh", "F.gelu, tanh", lambda x: activations.gelu(x, "tanh"),
             lambda x: F.gelu(x, approximate="tanh")),
            ("silu", "F.silu", activations.silu, F.silu),
        ]
    ),
    Oracle("07", "glu", "F.glu", feed_forward.glu, F.glu, plain(ROW)),
    Oracle("07", "GatedFeedForward", "F.silu and three linear layers",
           lambda x: gated(x)(x), torchs_gated, plain(ROW)),
    Oracle("08", "layer_norm", "F.layer_norm",
           lambda x, w, b: normalization.layer_norm(x, 8, w, b),
           lambda x, w, b: F.layer_norm(x, (8,), w, b), plain(ROW, (8,), (8,))),
    Oracle("08", "rms_norm", "F.rms_norm", lambda x, w: normalization.rms_norm(x, 8, w, 1e-5),
           lambda x, w: F.rms_norm(x, (8,), w, 1e-5), plain(ROW, (8,))),
    Oracle("08", "batch_norm", "F.batch_norm",
           lambda x, w, b: normalization.batch_norm(x, None, None, w, b, training=True),
           lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
           plain((6, 5), (5,), (5,)), EXACT),
    Oracle("08", "layer_norm_backward", "autograd of F.layer_norm",
           normalization.layer_norm_backward,
           lambda g, x, w: (*by_autograd(lambda x, w: F.layer_norm(x, (8,), w), (g, x, w)),
                            g.sum((0, 1))),
           plain(ROW, ROW, (8,)), EXACT, gradients=False),
    Oracle("08", "rms_norm_backward", "autograd of F.rms_norm",
           normalization.rms_norm_backward,
           lambda g, x, w: by_autograd(lambda x, w: F.rms_norm(x, (8,), w, 1e-5), (g, x, w)),
           plain(ROW, ROW, (8,)), EXACT, gradients=False),
    *(
        Oracle("10", f"Transformer{which.capitalize()}Layer",
               f"nn.Transformer{which.capitalize()}Layer, {'Pre' if first else 'Post'}-Norm",
               layer(which, first, 0), layer(which, first, 1),
               tame((3, 5, 8), (3, 7, 8)) if which == "decoder" else tame((3, 5, 8)), EXACT)
        for which in ("encoder", "decoder") for first in (False, True)
    ),
    Oracle("11", "apply_rotary_emb", "rotation matrices, neighbours", rotated,
           rotated_by_matrices, plain((2, 5, 8))),
    Oracle("11", "apply_rotary_emb", "rotation matrices, halves",
           lambda x: rotated(x, interleaved=False), rotated_halves, plain((2, 5, 8))),
    *(
        Oracle("13", "GroupedQueryAttention", f"F.scaled_dot_product_attention, {g} KV heads",
               lambda x, g=g: gqa(x, g)(x), lambda x, g=g: torchs_gqa(x, g),
               plain((2, 5, 16)), EXACT)
        for g in (1, 2, 4)
    ),
    Oracle("14", "MultiHeadLatentAttention, absorbed", "the same, naive",
           lambda x: latent(x, "forward_absorbed"), lambda x: latent(x, "forward_naive"),
           plain((2, 5, 16)), EXACT),
    *(
        Oracle("21", "tiled_attention", f"F.scaled_dot_product_attention, {mask}",
               lambda q, k, v, s=switches: local_attention.tiled_attention(
                   q, k, v, block_size=(2, 3), **s),
               lambda q, k, v, w=window: F.scaled_dot_product_attention(
                   q, k, v, local_attention.window_mask(5, 7, w) if w else None),
               plain((2, 5, 8), (2, 7, 8), (2, 7, 4)))
        for mask, window, switches in [
            ("no mask", 0, {}),
            ("causal", 7, {"is_causal": True}),
            ("window", 3, {"is_causal": True, "window": 3}),
        ]
    ),
]  # fmt: skip


def name_of(oracle, case, dtype):
    return f"{oracle.chapter} {oracle.part} - {oracle.reference} - {case} - {str(dtype)[6:]}"


# With scores in the hundreds, torch's own backward passes in 16 bits are off by whole factors: they
# start from results that were rounded to steps of 1. In float32 the gradient of a softmax of such
# scores is what rounding leaves of a difference: against float64 torch is off by 5e-5, the part by
# 4e-5. There the case "large gradient" takes the place of that of large scores.
ROWS = [
    (oracle, case, dtype)
    for oracle in ORACLES
    for case in oracle.cases
    for dtype in oracle.allowed
    if not (case == LARGE and dtype in (BF16, F16))
    and not (case == LARGE and dtype is F32 and oracle.part == "softmax_backward")
]


def results(function, inputs, gradients):
    leaves = [x.detach().clone().requires_grad_() for x in inputs] if gradients else inputs
    out = function(*leaves)
    outs = list(out) if isinstance(out, tuple) else [out]
    if not gradients:
        return outs
    # Uneven weights: the gradient of a plain sum hides what is constant along a row.
    weights = torch.arange(outs[0].numel(), dtype=F64).cos().reshape(outs[0].shape)
    return outs + list(torch.autograd.grad(outs[0], leaves, weights.to(outs[0].dtype)))


# Gradients that are as good as nothing, behind scores that are hundreds apart.
VANISHED = 1e-30


def error(got, want):
    """The largest difference, relative to the largest number of the reference."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    got, want = got.detach().to(F64), want.detach().to(F64)
    assert torch.equal(got.isnan(), want.isnan())
    finite = want.isfinite() & got.isfinite()
    assert torch.equal(torch.where(finite, 0, got), torch.where(finite, 0, want))
    if not finite.any():
        return 0.0
    difference = (got - want)[finite].abs().max().item()
    return difference / max(want[finite].abs().max().item(), VANISHED) if difference else 0.0


def largest_error(ours, official):
    """The largest error among the results and gradients of a row."""
    assert len(ours) == len(official)
    return max(error(a, b) for a, b in zip(ours, official, strict=True))


def passes(oracle, found, dtype):
    return found <= oracle.allowed[dtype]


def off_by(result, step):
    """The result with its largest finite number made smaller by `step`, relative to itself."""
    values = result.detach().to(F64).clone(memory_format=torch.contiguous_format).flatten()
    sizes = torch.where(values.isfinite(), values.abs(), -1.0)
    at = sizes.argmax()
    if sizes[at] < VANISHED:
        return None
    # Numbers below the smallest normal one have steps that are wider than that.
    info = torch.finfo(result.dtype)
    smaller = sizes[at] - max(step * sizes[at].item(), info.smallest_normal * info.eps)
    values[at] = smaller.copysign(values[at])
    return values.reshape(result.shape).to(result.dtype)


@pytest.mark.parametrize(("oracle", "case", "dtype"), ROWS, ids=[name_of(*row) for row in ROWS])
def test_a_part_equals_its_reference(oracle, case, dtype):
    inputs = oracle.cases[case](dtype)
    ours, official = (results(f, inputs, oracle.gradients) for f in (oracle.ours, oracle.official))
    found = largest_error(ours, official)
    record(
        "oracle",
        name_of(oracle, case, dtype),
        {
            "chapter": oracle.chapter,
            "part": oracle.part,
            "reference": oracle.reference,
            "case": case,
            "dtype": str(dtype).removeprefix("torch."),
            "gradients": oracle.gradients,
            "error": found,
            "tolerance": oracle.allowed[dtype],
        },
    )
    assert passes(oracle, found, dtype)
    # Ten times what is needed must not pass, in any of the results and gradients.
    step = 10 * NEEDED[dtype] * torch.finfo(dtype).eps
    assert oracle.allowed[dtype] <= step / 10
    noticed = 0
    for k, right in enumerate(ours):
        if (wrong := off_by(right, step)) is not None:
            harmed = [*ours[:k], wrong, *ours[k + 1 :]]
            assert not passes(oracle, largest_error(harmed, official), dtype), k
            noticed += 1
    assert noticed, "no result and no gradient of this row has a number to change"


def test_a_tolerance_a_thousand_times_larger_is_noticed():
    for dtype, allowed in ALLOWED.items():
        assert allowed <= NEEDED[dtype] * torch.finfo(dtype).eps < 1000 * allowed
    assert all(oracle.allowed[t] <= ALLOWED[t] for oracle in ORACLES for t in oracle.allowed)


def test_the_matrix_notices_a_planted_error_of_any_kind():
    x = draw(F64, *ROW)
    want = results(torch.tanh, [x], True)
    assert max(error(a, a) for a in want) == 0
    off = results(lambda x: torch.tanh(x) * (1 + 1e-9), [x], True)
    assert max(error(a, b) for a, b in zip(off, want, strict=True)) > 1e-12
    wrong_gradient = results(lambda x: torch.tanh(x.detach()) + 0 * x, [x], True)
    assert error(wrong_gradient[0], want[0]) == 0
    assert error(wrong_gradient[1], want[1]) > 0.1
    with pytest.raises(AssertionError):
        error(want[0].float(), want[0])
    with pytest.raises(AssertionError):
        error(torch.full_like(x, torch.nan), x)
