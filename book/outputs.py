"""Do two runs of a cell agree? Figures are compared by pixels, explorers by their numbers."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from PIL import Image

from book.explorer import page

# A pixel differs if no pixel beside it in the other figure has its colour, to within this much
# (of 255): rounding moves the edge of an antialiased line by less than that.
PIXEL_STEP = 32
# So many stray pixels pass. A changed digit or a moved line changes more than ten.
STRAY_PIXELS = 6
# One step of the 254 that an explorer's values are stored in.
VALUE_STEP = 1
# What an explorer stores for nan (book.explorer).
MISSING = 255

# MIME types that are compared here, not as text. A widget's id is random.
PICTURES = ("image/png", "text/html")
RANDOM = "application/vnd.jupyter.widget-view+json"

Pixels = np.ndarray[Any, np.dtype[np.int16]]

_ISLAND = re.compile(r'<script type="application/json" class="tp-spec">(.*?)</script>', re.S)
# What book.explorer draws from the description alone: it is compared there, with its rounding.
_DRAWING = re.compile(r'<svg class="tp-drawing".*?</svg>', re.S)


def picture_differences(stored: Iterable[Any], new: Iterable[Any]) -> list[str]:
    """What differs between the figures and explorers of two runs of a cell, one line each.

    That includes the metadata of every output: the alt text and the size of a figure, which the
    site shows, stand there.
    """
    stored, new = list(stored), list(new)
    old, fresh = (
        {kind: [o["data"][kind] for o in run if kind in o.get("data", {})] for kind in PICTURES}
        for run in (stored, new)
    )
    found = list(_metadata_differences(stored, new))
    for kind in PICTURES:
        if len(old[kind]) != len(fresh[kind]):
            found.append(
                f"{len(old[kind])} outputs of type {kind} are stored, {len(fresh[kind])} came"
            )
        differ = _image_difference if kind == "image/png" else _html_difference
        for i, pair in enumerate(zip(old[kind], fresh[kind], strict=False)):
            if problem := differ(*(_joined(text) for text in pair)):
                found.append(f"{kind} output {i}: {problem}")
    return found


def _metadata_differences(stored: list[Any], new: list[Any]) -> Iterator[str]:
    """What two runs say differently *about* their outputs, such as a figure's alt text."""
    old, fresh = (
        [json.loads(json.dumps(o.get("metadata", {}))) for o in run if "data" in o]
        for run in (stored, new)
    )
    # Where one run has an output more, what it holds is reported, and that is enough.
    for i, (a, b) in enumerate(zip(old, fresh, strict=False)):
        if problem := _value_difference("metadata", a, b):
            yield f"output {i}: {problem}"


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else "".join(text)


def _image_difference(stored: str, new: str) -> str | None:
    a, b = (_pixels(png) for png in (stored, new))
    if a.shape != b.shape:
        return (
            f"the stored figure is {a.shape[1]}x{a.shape[0]}, the new one {b.shape[1]}x{b.shape[0]}"
        )
    strays = int((_unlike(a, b) | _unlike(b, a)).sum())
    return f"{strays} pixels differ (allowed: {STRAY_PIXELS})" if strays > STRAY_PIXELS else None


def _unlike(a: Pixels, b: Pixels) -> Any:
    """Where `a` has a colour that `b` has neither there nor one pixel beside it."""
    padded = np.pad(b, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows, columns = b.shape[:2]
    near = [padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    low, high = np.minimum.reduce(near), np.maximum.reduce(near)
    return np.any((a < low - PIXEL_STEP) | (a > high + PIXEL_STEP), axis=-1)


def _pixels(png: str) -> Pixels:
    """The figure on a white ground, as (height, width, 3)."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA")
    ground = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(ground, image).convert("RGB"), dtype=np.int16)


def _html_difference(stored: str, new: str) -> str | None:
    specs = [[json.loads(text) for text in _ISLAND.findall(html)] for html in (stored, new)]
    if problem := _value_difference("explorer", *specs):
        return problem
    # A drawing that is older than the way it would be drawn today makes room for the new one.
    if any(_DRAWING.search(stored) and page(spec) != stored for spec in specs[0]):
        return "it would be drawn otherwise today"
    rest = [_DRAWING.sub("", _ISLAND.sub("", text)) for text in (stored, new)]
    return None if rest[0] == rest[1] else "the HTML differs"


def _value_difference(where: str, a: Any, b: Any) -> str | None:
    """The first place at which two explorer descriptions differ."""
    if type(a) is not type(b):
        return f"{where}: {type(a).__name__} became {type(b).__name__}"
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return f"{where}: the keys differ, {sorted(a.keys() ^ b.keys())}"
        if "bytes" in a:
            return _byte_difference(where, a, b)
        found = (_value_difference(f"{where}.{k}", a[k], b[k]) for k in a)
        return next((f for f in found if f), None)
    if isinstance(a, list):
        if len(a) != len(b):
            return f"{where}: {len(a)} entries became {len(b)}"
        found = (
            _value_difference(f"{where}[{i}]", *p) for i, p in enumerate(zip(a, b, strict=True))
        )
        return next((f for f in found if f), None)
    if isinstance(a, float):
        return None if abs(a - b) <= 1e-3 else f"{where}: {a} became {b}"
    return None if a == b else f"{where}: {a!r} became {b!r}"


def _byte_difference(where: str, a: Any, b: Any) -> str | None:
    if a.keys() - {"bytes"} and any(a[k] != b[k] for k in a.keys() - {"bytes", "low"}):
        return f"{where}: what its bytes mean has changed"
    old, new = (_whole(x) for x in (a, b))
    if old.shape != new.shape:
        return f"{where}: {old.size} values became {new.size}"
    # Bytes of an axis: a column of places has a lowest one, and none is missing.
    if "low" not in a and ((old == MISSING) != (new == MISSING)).any():
        return f"{where}: a value became nan, or was nan and is none"
    # A column of places begins at its smallest one, which may be rounded otherwise too.
    old, new = (v + round(x.get("low", 0) / x.get("step", 1)) for v, x in ((old, a), (new, b)))
    step = np.abs(old - new).max(initial=0)
    return None if step <= VALUE_STEP else f"{where}: a value moved by {step} of 254 steps"


def _whole(column: Any) -> Any:
    kind = {1: "<u1", 2: "<u2", 4: "<u4"}[column.get("width", 1)]
    return np.frombuffer(base64.b64decode(column["bytes"]), kind).astype(int)
