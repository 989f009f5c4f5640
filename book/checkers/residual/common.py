"""What the exercises of this chapter draw their inputs from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]


def draw(*shape: int, seed: int = 0, scale: float = 1.0, offset: float = 0.0) -> Tensor:
    """The same normal numbers on every call."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return offset + scale * numbers
