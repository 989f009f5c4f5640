"""Scenes and grids of a stored explorer, read back in data units and compared with a test's own.

A test names every shape that moves, changes its color or comes and goes; what stands still may be
left out. Texts must agree but for the last digit of their numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from book.explorer.columns import numbers_at, text_at

# A place is stored to a tenth of a unit of the drawing.
PLACE = 0.06
FILL = 0.002
_NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?")
_GAP = 0.5  # around a cell
_FLAGS = {"faint": 0, "strong": 0, "shown": 1}
_X = ("x", "x0", "x1")
_Y = ("y", "y0", "y1")


def state_of(spec: dict[str, Any], number: int) -> tuple[list[int], list[int]]:
    """Where the controls stand in a frame, and how many places each has."""
    sizes = [len(control["values"]) for control in spec["controls"]]
    return [int(k) for k in np.unravel_index(number, sizes)], sizes


def shape_at(spec: dict[str, Any], panel: dict[str, Any], name: str, number: int) -> dict[str, Any]:
    """Everything about a shape in one frame, in data units: numbers, texts, role, flags."""
    [one] = [shape for shape in panel["shapes"] if shape["name"] == name]
    state, sizes = state_of(spec, number)
    plane = panel["plane"]
    (a, b), (c, d) = plane["xlim"], plane["ylim"]
    unit = {"x": (b - a) / plane["inner_width"], "y": (d - c) / plane["inner_height"]}
    seen: dict[str, Any] = {"is": one["is"], "role": text_at(one["role"], state, sizes)}
    for key in ("label", "detail"):
        seen[key] = text_at(one.get(key, ""), state, sizes)
    for key, usual in _FLAGS.items():
        seen[key] = bool(numbers_at(one.get(key, usual), state, sizes))
    for key in (*_X, *_Y, "r", "w", "h", "start", "stop", "fill"):
        if key in one:
            seen[key] = np.asarray(numbers_at(one[key], state, sizes), dtype=float)
    if one["is"] == "cell":
        seen["column"] = (seen.pop("x") - _GAP - plane["left"]) * unit["x"] + a
        seen["row"] = (seen.pop("y") - _GAP - plane["top"]) * unit["y"] - d
        del seen["w"], seen["h"]
        return seen
    if one["is"] == "box":
        seen["y"] = seen["y"] + seen["h"]
    for key in seen.keys() & {*_X}:
        seen[key] = (seen[key] - plane["left"]) * unit["x"] + a
    for key in seen.keys() & {*_Y}:
        seen[key] = d - (seen[key] - plane["top"]) * unit["y"]
    for key, way in (("w", "x"), ("h", "y")):
        if key in seen:
            seen[key] = seen[key] * unit[way]
    if one["is"] == "dot":
        seen["size"] = (seen.pop("r") / 5) ** 2
    elif "r" in seen:
        seen["r"] = seen["r"] * unit["x"]
    return seen


def scene_differences(
    spec: dict[str, Any],
    panel: dict[str, Any],
    ours: Any,
    number: int,
    sound: dict[str, Any] | None = None,
) -> Iterator[str]:
    """What a scene shows otherwise than was computed.

    With a sound scene, of which this is a copy with a fault, the shapes that both share were
    compared before and are passed over.
    """
    shared = sound["shapes"] if sound and sound["plane"] is panel["plane"] else []
    before = {id(shape) for shape in shared}
    if ours.axes != panel["axes"]:
        yield f"axes are {panel['axes']!r}, not {ours.axes!r}"
    if panel["axes"] != "none":
        yield from _ticks(panel, ours)
    shown = {shape["name"]: shape for shape in panel["shapes"]}
    for name in shown.keys() - ours.shapes.keys():
        if varies(shown[name]):
            yield f"{name!r} varies, and was not computed"
    plane = panel["plane"]
    unit_x = (plane["xlim"][1] - plane["xlim"][0]) / plane["inner_width"]
    unit_y = (plane["ylim"][1] - plane["ylim"][0]) / plane["inner_height"]
    for name, shape in ours.shapes.items():
        if name not in shown:
            yield f"there is no {name!r}"
            continue
        if id(shown[name]) in before:
            continue
        seen = shape_at(spec, panel, name, number)
        if seen["is"] != shape.kind:
            yield f"{name!r} is {seen['is']!r}, not {shape.kind!r}"
            continue
        slack = PLACE * max(unit_x, unit_y)
        for problem in _shape_problems(shown[name], seen, shape, slack):
            yield f"{name!r}: {problem}"


def varies(shape: dict[str, Any]) -> bool:
    """Whether anything about a shape changes from state to state, but what touching it chooses."""
    return any(isinstance(value, dict) for key, value in shape.items() if key not in _TOUCH)


_TOUCH = ("sets", "drag")


def _ticks(panel: dict[str, Any], ours: Any) -> Iterator[str]:
    for way in ("x", "y"):
        low, high = getattr(ours, f"{way}lim")
        if [float(low), float(high)] != panel["plane"][f"{way}lim"]:
            yield f"{way} spans {panel['plane'][f'{way}lim']}, not {[low, high]}"
            return
        given = getattr(ours, f"{way}ticks")
        if given is not None and [text for _, text in given] != [
            t for _, t in panel[f"{way}ticks"]
        ]:
            yield f"the ticks of {way} are {panel[f'{way}ticks']}"
            continue
        places = [v for v, _ in given] if given is not None else None
        for k, (at, text) in enumerate(panel[f"{way}ticks"]):
            value = places[k] if places else float(text.replace("−", "-"))
            if abs((value - low) / (high - low) - at) > 2e-4:
                yield f"the tick {text!r} of {way} stands elsewhere"


def _shape_problems(
    stored: dict[str, Any], seen: dict[str, Any], shape: Any, slack: float
) -> Iterator[str]:
    if seen["shown"] != shape.shown:
        yield f"is {'seen' if seen['shown'] else 'out of sight'}"
    if not seen["shown"] and not shape.shown:
        return
    for key in ("role", "faint", "strong"):
        if isinstance(stored.get(key), dict) and seen[key] != getattr(shape, key):
            yield f"{key} is {seen[key]!r}, not {getattr(shape, key)!r}"
    for key, value in seen.items():
        if not isinstance(value, np.ndarray | np.floating):
            continue
        wanted = _wanted(shape, key)
        # The lower edge of a box is the sum of two stored places.
        place = 2 * slack if (shape.kind, key) == ("box", "y") else slack
        allowed = {"fill": FILL, "start": 0.002, "stop": 0.002}.get(key, place)
        if key == "size":
            value, wanted, allowed = np.sqrt(value), np.sqrt(wanted), 0.02
        if np.shape(value) != np.shape(wanted):
            yield f"{key} has {np.size(value)} numbers, not {np.size(wanted)}"
        elif np.abs(value - wanted).max(initial=0) > allowed:
            yield f"{key} is off by {np.abs(value - wanted).max():.3g}"
    for key, text in (("label", _label(shape)), ("detail", shape.detail)):
        if text or re.search(r"\d", seen[key]):
            yield from text_differences(seen[key], text)


def _wanted(shape: Any, key: str) -> Any:
    if shape.kind == "polygon":
        return np.asarray(shape.points, dtype=float)[:, "xy".index(key)]
    value = getattr(shape, key)
    if key == "fill":
        return np.float64(-1 if value is None else value)
    return np.asarray(value.detach() if hasattr(value, "detach") else value, dtype=float)


def _label(shape: Any) -> str:
    return str(getattr(shape, "text", "") or getattr(shape, "label", ""))


def text_differences(seen: str, ours: str) -> Iterator[str]:
    """Where two texts differ by more than a unit of the last digit of a number."""
    numbers = [_NUMBER.findall(text) for text in (seen, ours)]
    words = [_NUMBER.sub("#", text) for text in (seen, ours)]
    if words[0] != words[1]:
        yield f"says {seen!r}, not {ours!r}"
        return
    for a, b in zip(*numbers, strict=True):
        x, y = (float(n.replace("−", "-").replace(",", "")) for n in (a, b))
        unit = 10.0 ** -len(a.partition(".")[2])
        if abs(x - y) > (1.01 * unit if "." in a else 0) or len(a.partition(".")[2]) != len(
            b.partition(".")[2]
        ):
            yield f"says {a} in {seen!r}, where {b} was computed"


# ---------------------------------------------------------------- cells of a grid


def cell_differences(
    spec: dict[str, Any], panel: dict[str, Any], ours: Any, number: int
) -> Iterator[str]:
    """What the names and the texts of a matrix's cells say otherwise than was computed."""
    for names, wanted in (("rownames", ours.rows), ("columnnames", ours.columns)):
        if panel.get(names, []) != list(wanted):
            yield f"{names} are {panel.get(names)}, not {list(wanted)}"
    if panel["kind"] != "grid":
        return
    state, sizes = state_of(spec, number)
    for key, wanted in (("texts", ours.texts()), ("details", ours.details())):
        columns = panel.get(key, [""] * len(wanted))
        for k, (column, text) in enumerate(zip(columns, wanted, strict=True)):
            seen = text_at(column, state, sizes)
            if text or re.search(r"\d", seen):
                for problem in text_differences(seen, text):
                    yield f"cell {k}, {key}: {problem}"


# ---------------------------------------------------------------- faults


def scene_faults(
    spec: dict[str, Any], panel: dict[str, Any], number: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Copies of a scene with one fault each, in what varies: this is what a test has to compute."""
    state, sizes = state_of(spec, number)
    moving = [shape for shape in panel["shapes"] if varies(shape)]
    for shape in moving:
        hidden = "shown" in shape and not numbers_at(shape["shown"], state, sizes)
        if "shown" in shape:
            yield _fault(panel, shape, "comes and goes", shown=int(hidden))
        if hidden:
            continue
        for key, column in shape.items():
            if key in _TOUCH or not isinstance(column, dict) or key == "shown":
                continue
            if key in ("role", "label", "detail"):
                text = text_at(column, state, sizes)
                if match := re.search(r"\d(?=\D*$)", text):
                    other = str((int(match[0]) + 5) % 10)
                    text = text[: match.start()] + other + text[match.end() :]
                yield _fault(
                    panel, shape, f"{key} lies", **{key: text if match else f"{text} also"}
                )
                continue
            value = numbers_at(column, state, sizes)
            step = {"fill": 0.1, "start": 0.05, "stop": 0.05}.get(key, 1.0)
            if key in ("faint", "strong", "dash", "small"):
                if key in _FLAGS:
                    yield _fault(panel, shape, f"{key} the other way", **{key: 1 - int(value)})
                continue
            if "count" in column:
                wrong = {"over": [], "bytes": "", "low": 0, "step": step, "count": column["count"]}
                wrong |= _row(np.asarray(value) + 1.5)
                yield _fault(panel, shape, f"{key} moved", **{key: wrong})
            else:
                yield _fault(panel, shape, f"{key} moved", **{key: value + step})
    seen = [s for s in moving if numbers_at(s.get("shown", 1), state, sizes)]
    for one, other in itertools.combinations(seen, 2):
        if one["is"] == other["is"] and _apart(one, other, state, sizes):
            names = {one["name"]: other["name"], other["name"]: one["name"]}
            shapes = [
                s | {"name": names[s["name"]]} if s["name"] in names else s for s in panel["shapes"]
            ]
            yield f"{one['name']!r} called {other['name']!r}", panel | {"shapes": shapes}


def _row(values: Any) -> dict[str, Any]:
    """A row of numbers as a column that never changes."""
    import base64

    low = float(values.min())
    steps = np.rint((values - low) / 0.1).astype("<u2")
    return {
        "bytes": base64.b64encode(steps.tobytes()).decode(), "width": 2, "low": low, "step": 0.1,
    }  # fmt: skip


def _fault(
    panel: dict[str, Any], shape: dict[str, Any], what: str, **changed: Any
) -> tuple[str, dict[str, Any]]:
    # Still columns, so that what varies goes on varying.
    for key, value in changed.items():
        if isinstance(value, str):
            changed[key] = {"over": [], "texts": [value], "index": "AA=="}
        elif not isinstance(value, dict):
            changed[key] = {"over": [], "bytes": "AA==", "low": value, "step": 1}
    shapes = [s | changed if s["name"] == shape["name"] else s for s in panel["shapes"]]
    return f"{shape['name']!r} {what}", panel | {"shapes": shapes}


def _apart(one: Any, other: Any, state: list[int], sizes: list[int]) -> bool:
    """Whether two shapes lie at places that can be told apart."""
    for key in (*_X, *_Y, "w", "h"):
        if key in one and key in other:
            a, b = (np.asarray(numbers_at(s[key], state, sizes)) for s in (one, other))
            if a.shape != b.shape or np.abs(a - b).max() > 1:
                return True
    return False


def cell_faults(
    spec: dict[str, Any], panel: dict[str, Any], number: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Copies of a matrix with a wrong name, text or answer."""
    for names in ("rownames", "columnnames"):
        if len(set(panel.get(names, []))) > 1:
            yield f"{names} moved by one", panel | {names: panel[names][1:] + panel[names][:1]}
    state, sizes = state_of(spec, number)
    for key in ("texts", "details"):
        columns = panel.get(key, [])
        for k, column in enumerate(columns):
            text = text_at(column, state, sizes)
            if match := re.search(r"\d(?=\D*$)", text):
                other = str((int(match[0]) + 5) % 10)
                wrong = text[: match.start()] + other + text[match.end() :]
                yield (
                    f"cell {k}: {wrong!r}",
                    panel | {key: [*columns[:k], wrong, *columns[k + 1 :]]},
                )
