"""The random inputs of the checkers' cases."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """The same normal numbers on every call, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)
