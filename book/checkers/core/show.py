"""Shows the arguments of a case: whole if they are small, else what one can act on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import torch

# A tensor of at most this many numbers is shown whole, as is a row of this many.
SMALL = 12


def arguments(named: Sequence[tuple[str, Any]], at: tuple[int, ...] | None) -> str:
    """The arguments in one line: `x = [[1, 2]] (float32); dim = -1`.

    Args:
        named: the names and values.
        at: the place in the result that is wrong; of a large argument its row there is shown.
    """
    return "; ".join(f"{name} = {_argument(value, at)}" for name, value in named)


def _argument(value: Any, at: tuple[int, ...] | None) -> str:
    if isinstance(value, torch.Tensor):
        return _tensor(value.detach(), at)
    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
        inside = ", ".join(_argument(v, None) for v in value[:4])
        more = f", … {len(value) - 4} more" if len(value) > 4 else ""
        return f"[{inside}{more}]" if isinstance(value, list) else f"({inside}{more})"
    if isinstance(value, torch.nn.Module):
        return f"a {type(value).__name__}"
    if inspect.isroutine(value) or inspect.isclass(value):
        return getattr(value, "__name__", "a function").strip("_<>")
    # An address says nothing, and is another one in each run.
    text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(value).split()))
    return text if len(text) <= 100 else text[:97] + "..."


def _tensor(x: torch.Tensor, at: tuple[int, ...] | None) -> str:
    dtype = str(x.dtype)[6:]
    layout = "" if x.is_contiguous() else ", not contiguous"
    if x.dim() == 0:
        return f"{_number(x)} ({dtype})"
    if x.numel() <= SMALL:
        return f"{_numbers(x)} ({dtype}{layout})"
    text = f"{dtype} of shape {tuple(x.shape)}{layout}"
    # The row in the place of the result, if there is one in that place.
    lead = at[: x.dim() - 1] if at is not None and len(at) >= x.dim() - 1 else None
    if lead is not None and all(i < n for i, n in zip(lead, x.shape, strict=False)):
        row = x[lead] if lead else x
        if row.dim() == 1 and row.numel() <= SMALL:
            text += f", in it {list(lead)} = {_numbers(row)}"
    return text


def _numbers(x: torch.Tensor) -> str:
    if x.dim() == 0:
        return _number(x)
    return "[" + ", ".join(_numbers(row) for row in x) + "]"


def _number(x: torch.Tensor) -> str:
    value = x.item()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
