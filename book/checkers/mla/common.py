"""What the files of this folder share."""

from __future__ import annotations

import torch
from torch import Tensor

EXACT = 1e-11


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rows of `x` with their pairs of neighbours rotated."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
