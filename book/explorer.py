"""Explorers: a figure with sliders that works in a live kernel and on a page without one.

    Explorer(
        "RMSNorm and the size of its input",
        {"s": Slider("size of x", [0.01, 0.1, 1.0])},
        lambda s: Frame(f"At size {s:g} the output has size 1.", Lines("output", x, ...)),
    )

torch computes every grid point when the cell runs. The values are stored in one byte each (254
steps of their axis), so hundreds of frames are a few kilobytes. One script, static/explorer.js,
draws them: as the front end of this widget in a notebook, and on the static page, where the
`text/html` output carries the same description as a JSON island.
"""

from __future__ import annotations

import base64
import html
import io
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import anywidget
import matplotlib.pyplot as plt
import numpy as np
import traitlets
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

STATIC = Path(__file__).parent / "static"
MISSING = 255
Scale = Literal["linear", "log"]
Limits = tuple[float, float] | None
Array = np.ndarray[Any, np.dtype[np.float64]]


# ---------------------------------------------------------------- controls


@dataclass(frozen=True)
class Slider:
    """A range input over `values`; `show` turns a value into the text beside the slider."""

    label: str
    values: Sequence[Any]
    start: int = 0
    show: Callable[[Any], str] = "{:g}".format
    kind = "slider"


@dataclass(frozen=True)
class Choice:
    """A drop-down list of names."""

    label: str
    values: Sequence[str]
    start: int = 0
    show: Callable[[Any], str] = str
    kind = "choice"


# ---------------------------------------------------------------- panels


@dataclass(frozen=True)
class Lines:
    """Curves over a fixed `x`; `series` maps a label to the y values of this frame."""

    title: str
    x: Any
    series: Mapping[str, Any]
    xlabel: str
    ylabel: str
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    ylim: Limits = None
    kind = "lines"

    def values(self) -> list[Array]:
        """One array of y values per curve."""
        return [_array(y) for y in self.series.values()]


@dataclass(frozen=True)
class Points:
    """Dots in the plane; `series` maps a label to (x values, y values) of this frame."""

    title: str
    series: Mapping[str, tuple[Any, Any]]
    xlabel: str
    ylabel: str
    xlim: Limits = None
    ylim: Limits = None
    kind = "points"

    def values(self) -> list[Array]:
        """One (n, 2) array per group of dots."""
        return [np.stack([_array(x), _array(y)], axis=-1) for x, y in self.series.values()]


@dataclass(frozen=True)
class Bars:
    """Bars named by `labels`, one group per entry of `series`, standing on zero."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Any]
    xlabel: str
    ylabel: str
    ylim: Limits = None
    kind = "bars"

    def values(self) -> list[Array]:
        """One array of heights per series."""
        return [_array(y) for y in self.series.values()]


@dataclass(frozen=True)
class Heat:
    """A matrix as coloured cells; nan leaves a cell empty. `diverging` centres the colours on 0."""

    title: str
    matrix: Any
    xlabel: str
    ylabel: str
    limits: Limits = None
    diverging: bool = False
    kind = "heat"

    def values(self) -> list[Array]:
        """The matrix, alone in a list."""
        return [_array(self.matrix)]


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure as an image, for what the script cannot draw. Prefer the others."""

    title: str
    figure: Figure
    kind = "picture"


Panel = Lines | Points | Bars | Heat | Picture


@dataclass(frozen=True)
class Frame:
    """What is seen at one grid point: panels, and a sentence that says it in numbers."""

    sentence: str
    panels: tuple[Panel, ...] = field(default=())

    def __init__(self, sentence: str, *panels: Panel) -> None:
        object.__setattr__(self, "sentence", sentence)
        object.__setattr__(self, "panels", panels)


# ---------------------------------------------------------------- the explorer


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
    """A figure that is computed for every combination of its controls, and moved by the reader.

    Args:
        title: names the explorer.
        controls: argument name of `frame` -> `Slider` or `Choice`.
        frame: a pure function of the controls' values. Every frame must have the same panels
            (kinds, titles, labels, sizes); axes are scaled once, over all frames.

    Raises:
        ValueError: if there is no control, a control has no values or starts outside them, a frame
            has no panel or an empty sentence, or the frames differ in structure.
    """

    _esm = (
        (STATIC / "explorer.js").read_text(encoding="utf-8")
        + "\nexport default { render({ model, el }) {"
        + " const root = document.createElement('div'); root.className = 'tp-explorer';"
        # JupyterLab would take the arrow keys for itself: its shortcuts, and its notebook.
        + " root.dataset.lmSuppressShortcuts = 'true';"
        + " root.addEventListener('keydown', (event) => event.stopPropagation());"
        + " el.append(root);"
        + " globalThis.transformerParts.mount(root, model.get('spec')); } };\n"
    )
    _css = STATIC / "explorer.css"
    spec = traitlets.Dict().tag(sync=True)

    def __init__(
        self, title: str, controls: Mapping[str, Slider | Choice], frame: Callable[..., Frame]
    ) -> None:
        super().__init__(spec=describe(title, controls, frame))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {
            **(data or {}),
            "text/plain": self._as_text(),
            "text/html": self._as_html(),
        }, metadata

    def _as_text(self) -> str:
        """Every sentence: what nbval compares, and what a terminal shows."""
        return "\n".join([f"Explorer: {self.spec['title']}", *self.spec["sentences"]])

    def _as_html(self) -> str:
        island = json.dumps(
            self.spec, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).replace("<", "\\u003c")
        first = self.spec["sentences"][_start(self.spec["controls"])]
        return (
            '<div class="tp-explorer">'
            f'<p class="tp-title">{html.escape(self.spec["title"])}</p>'
            f'<p class="tp-sentence">{html.escape(first)}</p>'
            '<p class="tp-hint">Run the cell above to move the controls.</p>'
            f'<script type="application/json" class="tp-spec">{island}</script></div>'
        )


def describe(
    title: str, controls: Mapping[str, Slider | Choice], frame: Callable[..., Frame]
) -> dict[str, Any]:
    """Everything that the script needs to draw the explorer, as plain JSON data."""
    if not controls:
        raise ValueError(f"{title!r}: an explorer needs at least one control")
    for name, control in controls.items():
        if not 0 <= control.start < len(control.values):
            raise ValueError(
                f"{title!r}: control {name!r} starts at index {control.start} "
                f"of {len(control.values)} values"
            )
    grid = itertools.product(*(c.values for c in controls.values()))
    frames = [frame(**dict(zip(controls, point, strict=True))) for point in grid]
    _same_structure(title, frames)
    return {
        "title": title,
        "controls": [
            {
                "kind": c.kind,
                "label": c.label,
                "start": c.start,
                "values": [c.show(v) for v in c.values],
            }
            for c in controls.values()
        ],
        "panels": [_panel([f.panels[i] for f in frames]) for i in range(len(frames[0].panels))],
        "sentences": [f.sentence for f in frames],
    }


def _start(controls: list[dict[str, Any]]) -> int:
    """The number of the first frame shown, the last control running fastest."""
    at = 0
    for control in controls:
        at = at * len(control["values"]) + control["start"]
    return at


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
        x = _array(panel.x)
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
            if _array(x).shape != _array(y).shape or _array(x).ndim != 1:
                return f"{label!r} has {_array(x).shape} values of x and {_array(y).shape} of y"
    elif isinstance(panel, Heat) and _array(panel.matrix).ndim != 2:
        return f"the matrix has shape {_array(panel.matrix).shape}"
    return None


def _structure(panel: Panel) -> dict[str, Any]:
    """What must be the same in every frame: all but the values themselves."""
    same = {f.name: getattr(panel, f.name) for f in fields(panel)}
    for name in ("series", "matrix", "figure"):
        same.pop(name, None)
    if isinstance(panel, Lines | Points | Bars):
        same["series"] = list(panel.series)
    if isinstance(panel, Lines):
        same["x"] = _array(panel.x).tolist()
    shapes = [] if isinstance(panel, Picture) else [v.shape for v in panel.values()]
    return {"kind": panel.kind, **same, "shapes": shapes}


# ---------------------------------------------------------------- values -> bytes


def _panel(frames: list[Any]) -> dict[str, Any]:
    """The description of one panel over all frames."""
    one = frames[0]
    base = {"kind": one.kind, "title": one.title}
    if isinstance(one, Picture):
        return base | {"frames": [_webp(f.figure) for f in frames]}
    base |= {"xlabel": one.xlabel, "ylabel": one.ylabel}
    values = [np.concatenate([v.ravel() for v in f.values()]) for f in frames]
    if isinstance(one, Heat):
        axis = Axis.over(values, one.limits, pad=0)
        if one.diverging and one.limits is None:
            biggest = max(abs(axis.low), abs(axis.high))
            axis = Axis(-biggest, biggest)
        rows, columns = one.values()[0].shape
        shape = {"rows": rows, "columns": columns, "diverging": one.diverging}
        return base | shape | {"data": _bytes(values, axis)}
    base["series"] = [{"label": label} for label in one.series]
    if isinstance(one, Points):
        pairs = [v.reshape(-1, 2) for v in values]
        x = Axis.over([p[:, 0] for p in pairs], one.xlim)
        y = Axis.over([p[:, 1] for p in pairs], one.ylim)
        mixed = [np.stack([x.fraction(p[:, 0]), y.fraction(p[:, 1])], -1).ravel() for p in pairs]
        for entry, group in zip(base["series"], one.values(), strict=True):
            entry["count"] = len(group)
        return base | {"xticks": x.ticks(), "yticks": y.ticks(), "data": _bytes(mixed, Axis(0, 1))}
    if isinstance(one, Bars):
        y = Axis.over([*values, np.zeros(1)], one.ylim)
        slots = [[round((i + 0.5) / len(one.labels), 4), s] for i, s in enumerate(one.labels)]
        zero = round(float(y.fraction(np.zeros(1))[0]), 4)
        names = {"labels": list(one.labels), "zero": zero, "xticks": slots}
        return base | names | {"yticks": y.ticks(), "data": _bytes(values, y)}
    x = Axis.over([_array(one.x)], None, one.xscale, pad=0)
    y = Axis.over(values, one.ylim, one.yscale)
    places = [round(float(v), 4) for v in x.fraction(_array(one.x))]
    return base | {"x": places, "xticks": x.ticks(), "yticks": y.ticks(), "data": _bytes(values, y)}


@dataclass(frozen=True)
class Axis:
    """Maps values to fractions 0..1 of an axis, and says where its ticks are."""

    low: float
    high: float
    scale: Scale = "linear"

    @staticmethod
    def over(
        values: list[Array], limits: Limits, scale: Scale = "linear", pad: float = 0.04
    ) -> Axis:
        """The axis that holds all finite `values`, or exactly `limits`."""
        if limits is not None:
            return Axis(*limits, scale)
        v = _scaled(np.concatenate([np.ravel(v) for v in values]), scale)
        v = v[np.isfinite(v)]
        low, high = (float(v.min()), float(v.max())) if v.size else (0.0, 1.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        if pad:
            # Rounded outwards, so that the last bits of a value do not move the axis.
            gap, unit = pad * (high - low), 10.0 ** (math.floor(math.log10(high - low)) - 2)
            low = math.floor((low - gap) / unit + 1e-3) * unit
            high = math.ceil((high + gap) / unit - 1e-3) * unit
        return Axis(10.0**low, 10.0**high, scale) if scale == "log" else Axis(low, high)

    def fraction(self, values: Array) -> Array:
        """Values as fractions of the axis: cut off at its ends, nan where nothing is drawn."""
        low, high = (float(_scaled(np.array(end), self.scale)) for end in (self.low, self.high))
        v = _scaled(values, self.scale)
        fractions = np.clip((v - low) / (high - low), 0, 1)
        return np.where(np.isnan(v) | np.isneginf(v), np.nan, fractions)

    def ticks(self) -> list[list[Any]]:
        """[fraction, label] pairs."""
        marks: list[tuple[float, str]] = []
        if self.scale == "log":
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, math.ceil((last - first) / 6))
            powers = range(first, last + 1, step)
            marks = [(10.0**k, "10" + str(k).translate(_SUPERSCRIPT)) for k in powers]
        if len(marks) < 2:
            found = MaxNLocator(nbins=6).tick_values(self.low, self.high)
            marks = [(v, f"{v:g}".replace("-", "−")) for v in found if self.low <= v <= self.high]
        return [[round(float(self.fraction(np.array([v]))[0]), 4), s] for v, s in marks]


def _scaled(values: Array, scale: Scale) -> Array:
    """The values themselves, or their exponents; what has none is nan."""
    if scale == "linear":
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log10(values), np.nan)


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _array(values: Any) -> Array:
    """Tensors, lists and arrays alike, as float64."""
    detach = getattr(values, "detach", None)
    return np.asarray(detach() if detach else values, dtype=np.float64)


def _bytes(values: list[Array], axis: Axis) -> dict[str, str]:
    fractions = axis.fraction(np.concatenate(values))
    steps = np.where(np.isnan(fractions), MISSING, np.rint(np.nan_to_num(fractions) * 254))
    return {"bytes": base64.b64encode(steps.astype(np.uint8).tobytes()).decode()}


def _webp(figure: Figure) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    plt.close(figure)
    out = io.BytesIO()
    Image.open(png).save(out, "WEBP", quality=60)
    return base64.b64encode(out.getvalue()).decode()
