"""The numbers and masks that the cases of this chapter are made of."""

from __future__ import annotations

import torch
from torch import Tensor

EXACT = 1e-11


def draw(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=rng, dtype=torch.float64)


def lower(t: int, s: int, offset: int = 0) -> Tensor:
    """A mask with True up to the diagonal."""
    return torch.ones(t, s, dtype=torch.bool).tril(offset)


def some(*shape: int, seed: int = 9) -> Tensor:
    """A mask in which every query may attend to key 0 and to about half of the others."""
    mask = draw(*shape, seed=seed) > 0
    mask[..., 0] = True
    return mask


def past(x: Tensor) -> Tensor:
    """The causal mask of as many queries and keys as x has rows."""
    return lower(len(x), len(x))
