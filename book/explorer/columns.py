"""What varies over the states of a picture, packed for the page: numbers and texts.

A column holds one value for each state. What never changes is stored as itself; what depends on
some controls only is stored over these alone. Numbers are whole steps in one or two bytes each, and
texts are words with numbers in them, or places in a list of distinct texts, whichever is shorter.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]
# A place is stored to a tenth of a unit of the drawing, about a tenth of a pixel.
STEP = 0.1
# Breaks ties, so that the last bits of a value do not decide how it is rounded.
_TIE = 1e-6
_NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?")
_TYPES = {1: "<u1", 2: "<u2", 4: "<u4"}


def pack_numbers(values: Numbers, sizes: Sequence[int], step: float = STEP) -> Any:
    """A column of numbers, or of rows of `count` numbers, one for each state."""
    steps = np.floor(np.asarray(values, dtype=np.float64) / step + 0.5 + _TIE).astype(np.int64)
    over, steps = _over(steps.reshape(len(steps), -1), sizes)
    low = int(steps.min())
    if not over and steps.size == 1:
        return _short(low * step)
    column = {"over": over, **_whole(steps - low, "bytes"), "low": _short(low * step), "step": step}
    return column | ({"count": steps.shape[-1]} if values.ndim > 1 else {})


def numbers_at(column: Any, state: Sequence[int], sizes: Sequence[int]) -> Any:
    """The number of a column in this state; an array where the column has rows."""
    if not isinstance(column, dict):
        return column
    count = column.get("count", 1)
    place = _place(column["over"], state, sizes) * count
    steps = _unpacked(column, "bytes")[place : place + count]
    values = column["low"] + steps * column["step"]
    return values if "count" in column else float(values[0])


def pack_texts(texts: Sequence[str], sizes: Sequence[int]) -> Any:
    """A column of texts, one for each state, in the shortest of its forms."""
    forms = [_listed(texts, sizes)]
    if not isinstance(forms[0], str) and not any("{}" in text for text in texts):
        forms.append(_filled(texts, sizes))
    return min(forms, key=lambda form: len(json.dumps(form, ensure_ascii=False)))


def text_at(column: Any, state: Sequence[int], sizes: Sequence[int]) -> str:
    """The text of a column in this state."""
    if isinstance(column, str):
        return column
    if isinstance(column, list):  # one text for each state
        return str(column[_place(range(len(sizes)), state, sizes)])
    if "words" in column:
        words = text_at(column["words"], state, sizes).split("{}")
        slots = [text_at(slot, state, sizes) for slot in column["slots"][: len(words) - 1]]
        return words[0] + "".join(map("".join, zip(slots, words[1:], strict=True)))
    place = _place(column["over"], state, sizes)
    if "texts" in column:
        return str(column["texts"][_unpacked(column, "index")[place]])
    return _printed(int(_unpacked(column, "whole")[place]) + column["low"], column)


def every_text(column: Any, sizes: Sequence[int]) -> list[str]:
    """The texts of a column in all states, the last control running fastest."""
    return [text_at(column, state, sizes) for state in np.ndindex(*sizes)]


# ---------------------------------------------------------------- inside


def _over(values: Any, sizes: Sequence[int]) -> tuple[list[int], Any]:
    """The controls that a column depends on, and its values over these alone."""
    grid = values.reshape(*sizes, *values.shape[1:])
    over = []
    for axis in range(len(sizes)):
        first = grid.take([0], axis)
        if (grid == first).all():
            grid = first
        else:
            over.append(axis)
    return over, grid.reshape(-1, *values.shape[1:])


def _place(over: Sequence[int], state: Sequence[int], sizes: Sequence[int]) -> int:
    place = 0
    for axis in over:
        place = place * sizes[axis] + state[axis]
    return place


def _whole(steps: Any, name: str) -> dict[str, Any]:
    """Whole numbers from 0 on as base64, in as few bytes each as hold the largest."""
    top = int(steps.max(initial=0))
    width = 1 if top < 255 else 2 if top < 65_535 else 4
    text = base64.b64encode(steps.astype(_TYPES[width]).tobytes()).decode()
    return {name: text} | ({"width": width} if width > 1 else {})


def _unpacked(column: dict[str, Any], name: str) -> Any:
    kind = _TYPES[column.get("width", 1)]
    return np.frombuffer(base64.b64decode(column[name]), kind).astype(np.int64)


def _listed(texts: Sequence[str], sizes: Sequence[int]) -> Any:
    known: dict[str, int] = {}
    index = np.array([known.setdefault(text, len(known)) for text in texts])
    if len(known) == 1:
        return texts[0]
    over, index = _over(index, sizes)
    return {"over": over, "texts": list(known), **_whole(index, "index")}


def _filled(texts: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """Words with gaps, and a column for what stands in each gap."""
    found = [_NUMBER.findall(text) for text in texts]
    words = [_NUMBER.sub("{}", text) for text in texts]
    slots = []
    for k in range(max(map(len, found))):
        column = [numbers[k] if k < len(numbers) else "" for numbers in found]
        slots.append(_counted(column, sizes) or _listed(column, sizes))
    return {"words": _listed(words, sizes), "slots": slots}


def _counted(texts: Sequence[str], sizes: Sequence[int]) -> dict[str, Any] | None:
    """Numbers printed alike as whole multiples of their last digit; `None` where that fails."""
    form: dict[str, Any] = {"places": max(len(text.partition(".")[2]) for text in texts)}
    form |= {"minus": "−"} if any("−" in text for text in texts) else {}
    form |= {"commas": 1} if any("," in text for text in texts) else {}
    plain = [text.replace("−", "-").replace(",", "") for text in texts]
    whole = np.array([round(float(text or 0) * 10 ** form["places"]) for text in plain])
    if any(_printed(n, form) != text for n, text in zip(whole, texts, strict=True) if text):
        return None
    if np.ptp(whole) > 2**31 or len(set(texts)) == 1:
        return None
    over, steps = _over(whole, sizes)
    low = int(whole.min())
    return {"over": over, **_whole(steps - low, "whole"), "low": low, **form}


def _printed(whole: int, form: dict[str, Any]) -> str:
    places = form["places"]
    text = f"{abs(whole) / 10**places:{',' if 'commas' in form else ''}.{places}f}"
    return (form.get("minus", "-") if whole < 0 else "") + text


def _short(value: float) -> float:
    rounded = round(value, 6)
    return int(rounded) if math.isclose(rounded, int(rounded), abs_tol=1e-9) else rounded
