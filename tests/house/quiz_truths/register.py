"""Where a function that computes a statement is kept, and what such functions share."""

from collections.abc import Callable

import torch
from torch import nn

from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig

TRUTHS: dict[str, Callable[[], bool]] = {}


def statement(name: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Registers the function that computes whether the statement `name` is true."""

    def register(function: Callable[[], bool]) -> Callable[[], bool]:
        assert name not in TRUTHS
        TRUTHS[name] = function
        return function

    return register


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-9) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() < tolerance)


def decoder(**changes: object) -> DecoderOnlyTransformer:
    sizes = {
        "vocab_size": 50,
        "d_model": 32,
        "num_layers": 2,
        "num_heads": 4,
        "d_ff": 64,
        "max_seq_len": 64,
    }
    return DecoderOnlyTransformer(ModelConfig(**(sizes | changes))).eval()
