"""Every public part on another device: the values and gradients it has on the CPU, in float64."""

from __future__ import annotations

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE = 1e-10


def run(device: str) -> int:
    """Print each part that differs, and how many agree; 1 if one differs."""
    # The parts and their inputs are those of the test of torch's transformations.
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "parts"))
    listed = importlib.import_module("transformable")
    every = [*listed.MODULES, *listed.FUNCTIONS]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    wrong = []
    try:
        for part in every:
            torch.manual_seed(0)
            try:
                reason = differs(part.make().eval(), part.inputs(2, 5), device)
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            if reason:
                wrong.append(part.name)
                print(f"{part.name}: {reason}")
    finally:
        torch.set_default_dtype(before)
    right = len(every) - len(wrong)
    print(f"{right} of {len(every)} parts agree on {device} with the CPU to {TOLERANCE}")
    return 1 if wrong else 0


def differs(module: nn.Module, args: tuple[Any, ...], device: str) -> str | None:
    """What is not as on the CPU, or None."""
    there = copy.deepcopy(module).to(device)
    here, elsewhere = moved(args), moved(args, device)
    want, have = flat(module(*here)), flat(there(*elsewhere))
    if any(t.device.type != torch.device(device).type for t in have):
        return "the output is on another device than the input"
    apart = max((_apart(a, b) for a, b in zip(have, want, strict=True)), default=0.0)
    if apart > TOLERANCE:
        return f"values differ by {apart:.1e}"
    if not any(t.requires_grad for t in want):
        return None
    for each in (want, have):
        total = sum((t.square() + 0.3 * t).sum() for t in each if t.requires_grad)
        assert isinstance(total, Tensor)
        torch.autograd.backward(total)
    for name, a, b in [
        *(
            (name, p.grad, q.grad)
            for (name, p), q in zip(module.named_parameters(), there.parameters(), strict=True)
        ),
        *(
            (f"input {i}", p.grad, q.grad)
            for i, (p, q) in enumerate(zip(flat(here), flat(elsewhere), strict=True))
        ),
    ]:
        if (a is None) != (b is None):
            return f"only one of the two has a gradient of {name}"
        if a is not None and b is not None and _apart(b, a) > TOLERANCE:
            return f"the gradient of {name} differs by {_apart(b, a):.1e}"
    return None


def _apart(there: Tensor, here: Tensor) -> float:
    """The largest difference relative to the largest entry; nan must meet nan."""
    there = there.detach().cpu()
    if there.dtype != here.dtype or there.shape != here.shape:
        return float("inf")
    if not here.is_floating_point():
        return float((there != here).sum())
    here = here.detach()
    if not torch.equal(there.isnan(), here.isnan()):
        return float("inf")
    same = (there == here) | here.isnan()  # infinities, too
    gap = torch.where(same, 0.0, there - here).abs()
    size = here[here.isfinite()].abs().amax() if here.isfinite().any() else torch.tensor(1.0)
    return float(gap.amax() / size.clamp(min=1)) if gap.numel() else 0.0


def flat(value: Any) -> list[Tensor]:
    """The tensors in a tensor, or in a nest of tuples."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for one in value for tensor in flat(one)]


def moved(value: Any, device: str = "cpu") -> Any:
    """Fresh leaves with these values on the device."""
    if isinstance(value, Tensor):
        made = value.detach().clone().to(device)
        return made.requires_grad_() if made.is_floating_point() else made
    return tuple(moved(one, device) for one in value)
