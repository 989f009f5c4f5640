"""What the exercises on softmax share."""

from __future__ import annotations

import torch
from torch import Tensor

# An honest float64 answer differs from the oracle by rounding only, which is far below this.
EXACT = 1e-11


def draw(
    *shape: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * numbers).to(dtype)


def row(*numbers: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """One row with these numbers, shape (1, d)."""
    return torch.tensor([numbers], dtype=dtype)


def widened(x: Tensor) -> Tensor:
    """`x`, in float32 if it is in half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
