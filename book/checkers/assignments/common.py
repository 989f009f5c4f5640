"""What the questions of several assignments share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from book.checkers.core.forbidden import Rule, autograd

# An honest float64 answer differs from the oracle by rounding only, which is far below this.
EXACT = 1e-10


def draw(
    *shape: int,
    scale: float = 1.0,
    offset: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (offset + scale * numbers).to(dtype)


def gradients(f: Callable[..., Tensor], grad_out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What autograd sends back to `inputs` when `grad_out` arrives at `f(*inputs)`."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    found = torch.autograd.grad(f(*leaves), leaves, grad_out, materialize_grads=True)
    return tuple(found)


def each(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The derivative of the elementwise `f` at every entry of `x`, by autograd."""
    return gradients(f, torch.ones_like(x), x)[0]


def thetas(d: int, base: float) -> Tensor:
    """The radians per position of the d / 2 pairs, each from its own power."""
    return torch.tensor([base ** (-2 * k / d) for k in range(d // 2)], dtype=torch.float64)


def turned_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """Neighbouring features of `x` (..., d) turned by `angles` (..., d / 2)."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def turned_halves(x: Tensor, angles: Tensor) -> Tensor:
    """The same for features k and k + d / 2 of `x` as pairs."""
    a, b = x.chunk(2, -1)
    c, s = angles.cos(), angles.sin()
    return torch.cat([a * c - b * s, b * c + a * s], -1)


# What the assignments' text forbids: "Do not call the operator that a question asks for, nor
# autograd." The grader remarks it; in a right answer it costs no points by itself.
_OPERATORS: dict[str, tuple[str, ...]] = {
    "activations_and_ffn.hard_swish": ("hardswish", "hardswish_"),
    "activations_and_ffn.geglu_backward": (),
    "activations_and_ffn.mish_grad": ("mish_backward",),
    "activations_and_ffn.prelu_backward": ("_prelu_kernel_backward",),
    "activations_and_ffn.ffn_backward": (),
    "embeddings_and_attention.tied_backward": ("embedding_dense_backward",),
    "embeddings_and_attention.biased_attention": ("scaled_dot_product_attention",),
    "embeddings_and_attention.memory_backward": (),
    "normalization_and_residuals.group_norm": ("group_norm", "native_group_norm"),
    "normalization_and_residuals.partial_rms_norm": ("rms_norm", "_fused_rms_norm"),
    "normalization_and_residuals.batch_norm_backward": ("native_batch_norm_backward",),
    "normalization_and_residuals.block_backward": (),
    "normalization_and_residuals.layer_norm_jvp": ("layer_norm", "native_layer_norm"),
    "normalization_and_residuals.clip_gradients": ("clip_grad_norm_",),
    "tensors_and_softmax.scale_shift_backward": (),
    "tensors_and_softmax.binary_cross_entropy": (
        "binary_cross_entropy_with_logits", "binary_cross_entropy",
    ),
    "tensors_and_softmax.log_softmax": ("log_softmax", "_log_softmax"),
    "tensors_and_softmax.numeric_gradient": (),
    "tensors_and_softmax.seeded_dropout": ("dropout", "native_dropout", "dropout_"),
    "tensors_and_softmax.running_logsumexp": ("logsumexp",),
    "tensors_and_softmax.temperature_backward": ("_softmax_backward_data",),
    "transformer.smoothed_loss": ("cross_entropy", "cross_entropy_loss"),
    "cache_and_mla.grouped_backward": (),
    "rope_and_long_context.rope_backward": (),
}  # fmt: skip
FORBIDDEN: dict[str, tuple[Rule, ...]] = {
    question: (
        autograd(),
        *([Rule("without the operator that the question asks for", names)] if names else []),
    )
    for question, names in _OPERATORS.items()
}
