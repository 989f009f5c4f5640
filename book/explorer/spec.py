"""From frames to the description that the page draws: everything as plain JSON data."""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from book.explorer.axis import Axis, array, to_bytes
from book.explorer.columns import every_text, pack_texts
from book.explorer.controls import Control, chosen
from book.explorer.panels import Bars, Frame, Grid, Heat, Lines, Panel, Picture, Points, Scene
from book.explorer.scene import scene


def describe(
    title: str, controls: Mapping[str, Control], frame: Callable[..., Frame]
) -> dict[str, Any]:
    """Everything that is needed to draw the explorer, as plain JSON data."""
    if not controls:
        raise ValueError(f"{title!r}: an explorer needs at least one control")
    states = {name: control.states() for name, control in controls.items()}
    for name, control in controls.items():
        if not 0 <= control.start < len(states[name]):
            raise ValueError(
                f"{title!r}: control {name!r} starts at index {control.start} "
                f"of {len(states[name])} values"
            )
    grid = itertools.product(*states.values())
    frames = [_split(frame(**dict(zip(controls, point, strict=True)))) for point in grid]
    _same_structure(title, frames)
    try:
        panels = [
            _panel([f.panels[i] for f in frames], states) for i in range(len(frames[0].panels))
        ]
    except ValueError as error:
        raise ValueError(f"{title!r}: {error}") from error
    return {
        "title": title,
        "controls": [
            {"kind": c.kind, "label": c.label, "start": c.start, "values": c.texts()}
            | ({"hidden": True} if c.hidden else {})
            for c in controls.values()
        ],
        "panels": panels,
        "sentences": [f.sentence for f in frames],
    }


def sizes_of(spec: Mapping[str, Any]) -> list[int]:
    """How many places each control has."""
    return [len(control["values"]) for control in spec["controls"]]


def start_of(spec: Mapping[str, Any]) -> list[int]:
    """Where each control starts."""
    return [control["start"] for control in spec["controls"]]


def packed(spec: dict[str, Any]) -> dict[str, Any]:
    """The description as the page stores it: its sentences as a column of texts."""
    return spec | {"sentences": pack_texts(spec["sentences"], sizes_of(spec))}


def unpacked(spec: dict[str, Any]) -> dict[str, Any]:
    """The description with its sentences in a list, the last control running fastest."""
    return spec | {"sentences": every_text(spec["sentences"], sizes_of(spec))}


def _split(frame: Frame) -> Frame:
    """A scene with a second arrangement is two panels, of which a page shows one."""
    panels: list[Panel] = []
    for panel in frame.panels:
        panels.append(panel)
        if isinstance(panel, Scene) and panel.narrow is not None:
            panels.append(panel.narrow)
    return Frame(frame.sentence, *panels)


def _same_structure(title: str, frames: list[Frame]) -> None:
    if not frames[0].panels:
        raise ValueError(f"{title!r}: a frame needs at least one panel")
    for number, frame in enumerate(frames):
        if not frame.sentence.strip():
            raise ValueError(f"{title!r}: frame {number} has no sentence")
        for panel in frame.panels:
            if problem := _panel_problem(panel):
                raise ValueError(f"{title!r}: frame {number}, panel {panel.title!r}: {problem}")
        was, now = ([_structure(p) for p in f.panels] for f in (frames[0], frame))
        if was != now:
            raise ValueError(
                f"{title!r}: frame {number} is not built like frame 0: {now}, was {was}"
            )


def _panel_problem(panel: Panel) -> str | None:
    """What is wrong with a panel by itself."""
    if isinstance(panel, Lines):
        x = array(panel.x)
        if not np.isfinite(x).all() or (panel.xscale == "log" and (x <= 0).any()):
            return "a place on x is not a number of that axis"
        for label, y in zip(panel.series, panel.values(), strict=True):
            if y.shape != x.shape:
                return f"{label!r} has values of shape {y.shape} for {x.size} places on x"
    elif isinstance(panel, Bars):
        for label, y in zip(panel.series, panel.values(), strict=True):
            if y.shape != (len(panel.labels),):
                return f"{label!r} has heights of shape {y.shape} for {len(panel.labels)} labels"
    elif isinstance(panel, Points):
        for label, (x, y) in panel.series.items():
            if array(x).shape != array(y).shape or array(x).ndim != 1:
                return f"{label!r} has {array(x).shape} values of x and {array(y).shape} of y"
    elif isinstance(panel, Heat | Grid):
        [matrix] = panel.values()
        if matrix.ndim != 2:
            return f"the matrix has shape {matrix.shape}"
        for names, length in zip((panel.rows, panel.columns), matrix.shape, strict=True):
            if (names or isinstance(panel, Grid)) and len(names) != length:
                return f"{len(names)} names for {length} lines of cells"
    return None


def _structure(panel: Panel) -> dict[str, Any]:
    """What must be the same in every frame: all but the values themselves."""
    same = {f.name: getattr(panel, f.name) for f in fields(panel)}
    for name in ("series", "matrix", "numbers", "figure", "shapes", "narrow", "empty"):
        same.pop(name, None)
    for name in ("text", "detail", "sets"):
        if name in same:
            same[name] = bool(same[name])
    if isinstance(panel, Lines | Points | Bars):
        same["series"] = list(panel.series)
    if isinstance(panel, Lines):
        same["x"] = array(panel.x).tolist()
    if isinstance(panel, Scene):
        same["shapes"] = {name: (s.kind, bool(s.detail)) for name, s in panel.shapes.items()}
    if isinstance(panel, Scene | Picture):
        return {"kind": panel.kind, **same}
    return {"kind": panel.kind, **same, "shape": [v.shape for v in panel.values()]}


# ---------------------------------------------------------------- one panel over all frames


def _panel(frames: list[Any], states: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The description of one panel over all frames."""
    one = frames[0]
    base = {"kind": one.kind, "title": one.title}
    if isinstance(one, Picture):
        return base | {"frames": [_webp(f.figure) for f in frames]}
    if isinstance(one, Scene):
        return base | scene(frames, states)
    base |= {"xlabel": one.xlabel, "ylabel": one.ylabel}
    values = [np.concatenate([v.ravel() for v in f.values()]) for f in frames]
    if isinstance(one, Heat | Grid):
        return base | _cells(frames, values, states)
    base["series"] = [{"label": label} for label in one.series]
    if isinstance(one, Points):
        pairs = [v.reshape(-1, 2) for v in values]
        x = Axis.over([p[:, 0] for p in pairs], one.xlim)
        y = Axis.over([p[:, 1] for p in pairs], one.ylim)
        mixed = [np.stack([x.fraction(p[:, 0]), y.fraction(p[:, 1])], -1).ravel() for p in pairs]
        for entry, group in zip(base["series"], one.values(), strict=True):
            entry["count"] = len(group)
        if one.equal:
            base["aspect"] = round((x.high - x.low) / (y.high - y.low), 4)
        return base | {
            "xticks": x.ticks(),
            "yticks": y.ticks(),
            "data": to_bytes(mixed, Axis(0, 1)),
        }
    if isinstance(one, Bars):
        y = Axis.over([*values, np.zeros(1)], one.ylim)
        slots = [[round((i + 0.5) / len(one.labels), 4), s] for i, s in enumerate(one.labels)]
        zero = round(float(y.fraction(np.zeros(1))[0]), 4)
        names = {"labels": list(one.labels), "zero": zero, "xticks": slots}
        return base | names | {"yticks": y.ticks(), "data": to_bytes(values, y)}
    x = Axis.over([array(one.x)], None, one.xscale, pad=0)
    y = Axis.over(values, one.ylim, one.yscale)
    places = [round(float(v), 4) for v in x.fraction(array(one.x))]
    return base | {
        "x": places,
        "xticks": x.ticks(),
        "yticks": y.ticks(),
        "data": to_bytes(values, y),
    }


def _cells(frames: list[Any], values: list[Any], states: Mapping[str, list[Any]]) -> dict[str, Any]:
    """A matrix: its colors in bytes, its names, and what its cells say."""
    one: Heat | Grid = frames[0]
    axis = Axis.over(values, one.limits, pad=0)
    if one.diverging and one.limits is None:
        biggest = max(abs(axis.low), abs(axis.high))
        axis = Axis(-biggest, biggest)
    rows, columns = one.values()[0].shape
    made: dict[str, Any] = {"rows": rows, "columns": columns, "diverging": one.diverging}
    made["ends"] = [f"{end:.3g}".replace("-", "−") for end in (axis.low, axis.high)]
    if one.rows:
        made["rownames"] = list(one.rows)
    if one.columns:
        made["columnnames"] = list(one.columns)
    if isinstance(one, Grid):
        sizes = [len(values) for values in states.values()]
        if one.role:
            made["role"] = one.role
        for name in ("texts", "details"):
            cells = zip(*(getattr(frame, name)() for frame in frames), strict=True)
            if any(packs := [pack_texts(texts, sizes) for texts in cells]):
                made[name] = packs
        if one.sets is not None:
            made["sets"] = [
                chosen([frame.sets(row, column) for frame in frames], states)
                for row in range(rows)
                for column in range(columns)
            ]
    return made | {"data": to_bytes(values, axis)}


def _webp(figure: Figure) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    plt.close(figure)
    out = io.BytesIO()
    Image.open(png).save(out, "WEBP", quality=60)
    return base64.b64encode(out.getvalue()).decode()
