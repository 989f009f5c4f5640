"""What the files of this folder share."""

from __future__ import annotations

import torch
from torch import Tensor

EXACT = 1e-11


def pairs(x: Tensor, halves: bool = False) -> tuple[Tensor, Tensor]:
    """The first and the second features of all pairs: neighbours, or those of both halves."""
    if halves:
        a, b = x.chunk(2, -1)
        return a, b
    return x[..., 0::2], x[..., 1::2]


def turned(x: Tensor, cos: Tensor, sin: Tensor, halves: bool = False) -> Tensor:
    """The rows of `x` with their pairs rotated."""
    a, b = pairs(x, halves)
    new = [a * cos - b * sin, a * sin + b * cos]
    return torch.cat(new, -1) if halves else torch.stack(new, -1).flatten(-2)
