"""The book's parts on a GPU: are they right there, and how long do they take?

    python -m book.accelerator parts     every public part, values and gradients, against the CPU
    python -m book.accelerator clock FILE    chapter 16's estimates with a clock beside them

CI has no GPU. What the clock said on two is kept in h100.json and h200.json, and chapter 16 puts
it beside what their data sheets predict.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["clocked"]


def clocked(device: str) -> dict[str, Any]:
    """What `clock` measured on a device once, in seconds; `device` is "h100" or "h200".

    Raises:
        ValueError: if nothing is kept of such a device.
    """
    kept = {path.stem: path for path in Path(__file__).parent.glob("*.json")}
    if device not in kept:
        raise ValueError(f"device must be one of {', '.join(sorted(kept))}, got {device!r}")
    found: dict[str, Any] = json.loads(kept[device].read_text(encoding="utf-8"))
    return found
