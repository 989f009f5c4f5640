"""What the exercises on activations share."""

import math
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Case

# An honest float64 answer differs from the oracle by rounding only.
EXACT = 1e-11
CUBIC = 0.044715
ROOT = math.sqrt(2 / math.pi)


def draw(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=rng, dtype=torch.float64)


def leaf(numbers: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers whose gradient is wanted."""
    return torch.tensor(numbers, dtype=dtype).requires_grad_()


# Gradients are compared with the weights of `torch.linspace(-1, 2, n)`. One of these is zero if
# n - 1 is a multiple of 3, so no list here has such a length.
def points(name: str, numbers: list[float], *rest: Any, tol: float = EXACT) -> Case:
    """A case at these numbers, with the gradient there."""
    return Case(name, lambda: (leaf(numbers), *rest), tol, grad=True)


def scalar_cases(*rest: Any) -> list[Case]:
    """Inputs for a function of one number, its gradient included."""
    return [
        points("numbers around zero", [-2.0, -0.7, 0.3, 1.1, 2.5], *rest),
        points("exactly zero", [0.0], *rest),
        points("1e-8 and -1e-8", [-1e-8, 1e-8], *rest),
        points("20 and -20", [-20.0, 20.0], *rest),
        points("100 and -100", [-100.0, 100.0], *rest),
        points("1e4 and -1e4", [-1e4, 1e4], *rest),
        Case("a table", lambda: (draw(3, 5, scale=2.0).requires_grad_(), *rest), EXACT, grad=True),
    ]
