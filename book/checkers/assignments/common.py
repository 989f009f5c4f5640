"""What the questions of several assignments share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
