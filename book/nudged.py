"""Every random number that torch draws, off by a rounding error.

What a notebook prints must not depend on how a machine rounds. `make portable` runs the notebooks
with `PYTHONSTARTUP` set to this file, so that their kernels begin with it: an output that differs
from the stored one then comes from a computation that enlarges rounding errors, a training run near
the edge of stability for instance, and another processor may print something else as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import _device_constructors

FUNCTIONS = ("rand", "randn", "rand_like", "randn_like", "normal")
METHODS = ("uniform_", "normal_")


def _off(value: torch.Tensor) -> torch.Tensor:
    """The same numbers, some units of their last place smaller."""
    if value.is_floating_point() and not value.is_meta:
        with torch.no_grad():
            value.mul_(1 - 4 * torch.finfo(value.dtype).eps)
    return value


def _nudged(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> torch.Tensor:
        learned = kwargs.pop("requires_grad", False)
        value = _off(draw(*args, **kwargs))
        return value.requires_grad_() if learned else value

    return drawn


def nudge() -> None:
    """Replace torch's random numbers, in this process, by ones that are off by a rounding error."""
    _device_constructors()  # keeps torch's own functions, which `with torch.device(...)` looks for
    for name in FUNCTIONS:
        setattr(torch, name, _nudged(getattr(torch, name)))
    for name in METHODS:
        setattr(torch.Tensor, name, _nudged(getattr(torch.Tensor, name)))


nudge()
