"""The drawing of one state of a panel, as SVG: what the page shows before, and without, a script.

static/explorer.js moves what this module draws. It finds the moving parts by their classes, and the
place of the axes in `data-box`; both compute the same paths from the same bytes.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from book.explorer.axis import MISSING
from book.explorer.columns import text_at
from book.explorer.draw_scene import number, scene

W, H = 340.0, 228.0  # a chart, in its own units
STEPS = 254
COLORS = 6
DASHES = ("", "7 4", "9 3 2 3", "2 3", "12 4", "4 2 1 2")
LETTER = 6.4  # the width of one, about
State = Sequence[int]
Box = tuple[float, float, float, float]


def drawing(panel: Mapping[str, Any], sizes: Sequence[int], state: State, says: str) -> str:
    """The `<svg>` of a panel in this state; `says` is the sentence of the state."""
    if panel["kind"] == "scene":
        return scene(panel, sizes, state, says)
    if panel["kind"] in ("heat", "grid"):
        return _cells(panel, sizes, state, says)
    if panel["kind"] == "picture":
        return _picture(panel, sizes, state, says)
    return _chart(panel, sizes, state, says)


def opening(
    panel: Mapping[str, Any], width: float, height: float, says: str, *, box: Box, touch: bool
) -> str:
    """The start of a panel's `<svg>`."""
    name = escape(": ".join(part for part in (panel["title"], says) if part))
    role = "group" if touch else "img"
    place = " ".join(map(number, box))
    return (
        f'<svg class="tp-drawing" viewBox="0 0 {number(width)} {number(height)}" role="{role}" '
        f'aria-label="{name}" data-box="{place}">'
    )


def bytes_at(panel: Mapping[str, Any], sizes: Sequence[int], state: State) -> Any:
    """The bytes of one state."""
    every = np.frombuffer(base64.b64decode(panel["data"]["bytes"]), np.uint8)
    frames = int(np.prod(sizes))
    return every.reshape(frames, -1)[int(np.ravel_multi_index(tuple(state), tuple(sizes)))]


def label(x: float, y: float, text: str, kind: str, turn: float = 0) -> str:
    """A text, `turn` degrees counterclockwise."""
    turned = f' transform="rotate({number(-turn)} {number(x)} {number(y)})"' if turn else ""
    return f'<text x="{number(x)}" y="{number(y)}" class="{kind}"{turned}>{escape(text)}</text>'


# ---------------------------------------------------------------- charts


def _chart(panel: Mapping[str, Any], sizes: Sequence[int], state: State, says: str) -> str:
    left = 24 + LETTER * max((len(text) for _, text in panel["yticks"]), default=0)
    ticks, below = _xticks(panel, W - 10 - left)
    height = H - 18 + below
    box: Box = (left, 8.0, W - 10 - left, H - 50)
    if "aspect" in panel:
        height, box = _square(panel["aspect"], left, below)
    x0, y0, w, h = box
    made = [opening(panel, W, height, says, box=box, touch=False)]
    for at, _ in panel["xticks"]:
        if panel["kind"] != "bars":
            x = x0 + at * w
            made.append(_line(x, y0, x, y0 + h))
    for at, text in panel["yticks"]:
        y = y0 + (1 - at) * h
        made.append(_line(x0, y, x0 + w, y))
        made.append(label(x0 - 5, y + 4, text, "tp-ytick"))
    if "zero" in panel and 0 < panel["zero"] < 1:
        y = y0 + (1 - panel["zero"]) * h
        made.append(_line(x0, y, x0 + w, y, "tp-zero"))
    for at, lines, turn in ticks:
        for k, text in enumerate(lines):
            kind = "tp-ytick" if turn else "tp-xtick"
            # A long one at the end would be cut off.
            over = x0 + at * w + LETTER * len(text) / 2 - W
            x = x0 + at * w - (over if over > 3 and not turn else 0)
            made.append(label(x, y0 + h + 15 + 13 * k, text, kind, turn))
    made.append(label(x0 + w / 2, height - 6, panel["xlabel"], "tp-label"))
    middle = y0 + h / 2
    made.append(label(12, middle, panel["ylabel"], "tp-label", 90))
    made += [
        f'<path class="{kind} tp-c{s % COLORS}" d="{d}"{_dashed(s) if kind == "tp-line" else ""}/>'
        for kind, s, d in paths(panel, bytes_at(panel, sizes, state), box, marks=_marks(panel))
    ]
    return "".join(made) + "</svg>"


def _square(aspect: float, left: float, below: float) -> tuple[float, Box]:
    """The height and the box of a chart with equal units on both axes."""
    w = W - 10 - left
    h = w / aspect
    if h > 280:
        w, h = 280 * aspect, 280.0
    return h + 32 + below, (left + (W - 10 - left - w) / 2, 8.0, w, h)


def _xticks(
    panel: Mapping[str, Any], width: float
) -> tuple[list[tuple[float, list[str], float]], float]:
    """Where the marks along x stand, in how many lines or turned, and the room they take."""
    ticks = panel["xticks"]
    room = width / max(len(ticks), 1) / LETTER
    lines = [[text] for _, text in ticks]
    if panel["kind"] == "bars" and any(len(text) > room for _, text in ticks):
        lines = [_wrapped(text, room) for _, text in ticks]
        longest = max(len(part) for parts in lines for part in parts)
        if longest > room + 1:
            longest = max(len(text) for _, text in ticks)
            return [(at, [text], 35.0) for at, text in ticks], 14 + 0.6 * LETTER * longest
    rows = max(map(len, lines), default=1)
    return [(at, parts, 0.0) for (at, _), parts in zip(ticks, lines, strict=True)], 5 + 13.0 * rows


def _wrapped(text: str, room: float) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "tp-grid") -> str:
    a, b, c, d = map(number, (x1, y1, x2, y2))
    return f'<line class="{kind}" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>'


def _dashed(s: int) -> str:
    dash = DASHES[s % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _alone(panel: Mapping[str, Any]) -> Any:
    """For each curve, whether some, and whether all, of its values have no neighbors: dots."""
    every = np.frombuffer(base64.b64decode(panel["data"]["bytes"]), np.uint8)
    known = every.reshape(-1, len(panel["series"]), len(panel["x"])) != MISSING
    beside = np.pad(known, ((0, 0), (0, 0), (1, 1)))
    alone = known & ~beside[..., :-2] & ~beside[..., 2:]
    return alone.any((0, 2)), alone.any((0, 2)) & (alone == known).all((0, 2))


def _marks(panel: Mapping[str, Any]) -> bool:
    """Whether a curve of this panel has dots in some state."""
    return panel["kind"] == "lines" and bool(_alone(panel)[0].any())


def paths(
    panel: Mapping[str, Any], data: Any, box: Box, *, marks: bool
) -> list[tuple[str, int, str]]:
    """The moving parts of a chart: class, number of the series, path."""
    x0, y0, w, h = box

    def y(byte: float) -> float:
        return y0 + (1 - byte / STEPS) * h

    found = []
    series, start = panel["series"], 0
    for s, one in enumerate(series):
        if panel["kind"] == "lines":
            n = len(panel["x"])
            x = [x0 + at * w for at in panel["x"]]
            line, dots = _curve(x, data[s * n : (s + 1) * n], y)
            found.append(("tp-line", s, line))
            if marks:
                found.append(("tp-mark", s, dots))
        elif panel["kind"] == "points":
            d = ""
            for k in range(start, start + 2 * one["count"], 2):
                if MISSING not in data[k : k + 2]:
                    d += _dot(x0 + data[k] / STEPS * w, y(data[k + 1]), s)
            start += 2 * one["count"]
            found.append(("tp-mark", s, d))
        else:
            n, k = len(panel["labels"]), len(series)
            breadth, d = 0.8 * w / n / k, ""
            base = y0 + (1 - panel["zero"]) * h
            for i in range(n):
                if (value := data[s * n + i]) != MISSING:
                    left, top = x0 + w * (i + 0.1) / n + s * breadth, y(value)
                    top = top if abs(top - base) >= 1 else base - 1
                    a, b, c, e = map(number, (left, base, top, left + breadth))
                    d += f"M{a} {b}V{c}H{e}V{b}z"
            found.append(("tp-mark", s, d))
    return found


def _curve(x: list[float], data: Any, y: Any) -> tuple[str, str]:
    """A line through all values that have a neighbor, and dots for the others."""
    line, dots = "", ""
    known = [value != MISSING for value in data]
    for i, value in enumerate(data):
        if not known[i]:
            continue
        before = i > 0 and known[i - 1]
        if not before and not (i + 1 < len(known) and known[i + 1]):
            dots += _dot(x[i], y(value), 0, 4.5)
        else:
            line += f"{'L' if before else 'M'}{number(x[i])} {number(y(value))}"
    return line, dots


def _dot(x: float, y: float, series: int, r: float = 3.2) -> str:
    """The mark of a series: round, square, or a cross, in turn."""
    a, b, c = number(x - r), number(y), number(2 * r)
    if series % 3 == 1:
        return f"M{a} {number(y - r)}h{c}v{c}h-{c}z"
    if series % 3 == 2:
        t, u = number(0.4 * r), number(0.6 * r)
        upper = f"l{t}-{t} {u} {u} {u}-{u} {t} {t}-{u} {u}"
        lower = f" {u} {u}-{t} {t}-{u}-{u}-{u} {u}-{t}-{t} {u}-{u}z"
        return f"M{a} {number(y - 0.6 * r)}{upper}{lower}"
    k = number(r)
    return f"M{a} {b}a{k} {k} 0 1 0 {c} 0a{k} {k} 0 1 0 -{c} 0z"


def key_mark(panel: Mapping[str, Any], s: int) -> str:
    """The mark of a series, as it is in the chart."""
    kind = f"tp-c{s % COLORS}"
    if panel["kind"] == "lines" and _alone(panel)[1][s]:
        inner = f'<path class="tp-mark {kind}" d="{_dot(14, 5, 0, 4.5)}"/>'
    elif panel["kind"] == "lines":
        inner = f'<path class="tp-line {kind}" d="M0 5H28"{_dashed(s)}/>'
    elif panel["kind"] == "points":
        inner = f'<path class="tp-mark {kind}" d="{_dot(14, 5, s, 4)}"/>'
    else:
        inner = f'<path class="tp-mark {kind}" d="M9 10V0H19V10z"/>'
    return f'<svg class="tp-swatch" viewBox="0 0 28 10" aria-hidden="true">{inner}</svg>'


# ---------------------------------------------------------------- cells


def _cells(panel: Mapping[str, Any], sizes: Sequence[int], state: State, says: str) -> str:
    rows, columns = panel["rows"], panel["columns"]
    names: list[str] = panel.get("rownames", [])
    tops: list[str] = panel.get("columnnames", [])
    grid = panel["kind"] == "grid"
    left = (20 if panel["ylabel"] else 4) + LETTER * max(map(len, names or ["00"])) + 6
    room = (W - left - 8) / columns
    side = min(room, 46 if grid else 36, (420 if grid else 230) / rows)
    if not grid:  # the drawing of a heat map is as wide as it can be
        side = min(room, 230 / rows)
    left += (W - left - 8 - side * columns) / 2
    # Names stand side by side where they fit; some may be left empty.
    named = [k for k, name in enumerate(tops) if name]
    apart = min((b - a for a, b in itertools.pairwise(named)), default=1)
    turned = bool(tops) and LETTER * max(map(len, tops)) > apart * side - 2
    above = 6.0
    if tops:
        above += 0.75 * LETTER * max(map(len, tops)) + 8 if turned else 14
    bottom = above + side * rows
    ticks = 0 if tops else 16
    height = bottom + ticks + (18 if panel["xlabel"] else 2) + (18 if _keyed(panel) else 2)
    touch = "details" in panel or "sets" in panel
    box: Box = (left, above, side * columns, side * rows)
    made = [opening(panel, W, height, says, box=box, touch=touch)]
    for k in range(rows):
        if names or k % _every(rows, side) == 0:
            y = above + (k + 0.5) * side + 4
            made.append(label(left - 5, y, names[k] if names else str(k), "tp-ytick"))
    for k in range(columns):
        x = left + (k + 0.5) * side
        if tops and turned:
            made.append(label(x + 3, above - 5, tops[k], "tp-start", 50))
        elif tops:
            made.append(label(x, above - 5, tops[k], "tp-xtick"))
        elif k % _every(columns, side) == 0:
            made.append(label(x, bottom + 14, str(k), "tp-xtick"))
    if panel["xlabel"]:
        y = bottom + ticks + 13
        made.append(label(left + side * columns / 2, y, panel["xlabel"], "tp-label"))
    if panel["ylabel"]:
        made.append(label(12, above + side * rows / 2, panel["ylabel"], "tp-label", 90))
    corner = " ".join(f'{k}="{number(v)}"' for k, v in zip(_RECT, box, strict=True))
    made.append(f'<rect class="tp-mid" {corner}/>')
    data = bytes_at(panel, sizes, state)
    for i in range(rows * columns):
        made.append(_cell(panel, sizes, state, i, int(data[i]), (left, above, side)))
    if _keyed(panel):
        made.append(_color_key(panel, left + side * columns / 2, height - 12))
    return "".join(made) + "</svg>"


_RECT = ("x", "y", "width", "height")


def _every(count: int, side: float) -> int:
    """Number every line of cells, or every second, fifth, tenth."""
    return next((step for step in (1, 2, 5, 10, 20, 50) if step * side >= 15), 100)


def tint(panel: Mapping[str, Any], value: int) -> tuple[str, float]:
    """The class and the opacity of a cell. Under a text no color is full."""
    if value == MISSING:
        return "tp-none", 1.0
    t = value / STEPS
    full = 0.55 if panel.get("texts") else 1.0
    high = f"tp-role-{panel['role']}" if "role" in panel else "tp-high"
    if panel["diverging"]:
        return ("tp-low" if t < 0.5 else high), full * abs(2 * t - 1)
    return high, full * t


def _cell(
    panel: Mapping[str, Any],
    sizes: Sequence[int],
    state: State,
    i: int,
    value: int,
    place: tuple[float, float, float],
) -> str:
    left, above, side = place
    row, column = divmod(i, panel["columns"])
    x, y = left + column * side, above + row * side
    kind, opacity = tint(panel, value)
    gap = 1 if side > 6 else 0
    rect = (
        f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" width="{number(side - gap)}" '
        f'height="{number(side - gap)}" fill-opacity="{round(opacity, 3):g}"/>'
    )
    if panel["kind"] != "grid":
        return rect
    text = text_at(panel["texts"][i], state, sizes) if "texts" in panel else ""
    size = "tp-number" if LETTER * len(text) < side - 1 else "tp-number tp-tight"
    inside = label(x + (side - gap) / 2, y + side / 2 + 4, text, size) if "texts" in panel else ""
    names = panel["rownames"][row], panel["columnnames"][column]
    spoken = f"{names[0]}, {names[1]}" + (f": {text}" if text else "")
    if "details" in panel:
        spoken += f". {text_at(panel['details'][i], state, sizes)}"
    if "sets" not in panel and "details" not in panel:
        return f"<g>{rect}{inside}</g>"
    role = "button" if "sets" in panel else "img"
    # One stop of the keyboard; the arrow keys lead on from it.
    stop = "0" if i == 0 else "-1"
    return (
        f'<g class="tp-touch" data-cell="{i}" role="{role}" tabindex="{stop}" '
        f'aria-label="{escape(spoken)}">{rect}{inside}</g>'
    )


def _keyed(panel: Mapping[str, Any]) -> bool:
    """Whether colors want a key: not where each cell says itself what it holds."""
    return "ends" in panel and "texts" not in panel


def _color_key(panel: Mapping[str, Any], x: float, y: float) -> str:
    """What the palest and the fullest color stand for."""
    count, width = 11, 9.0
    start = x - count * width / 2
    made = [label(start - 5, y + 8, panel["ends"][0], "tp-ytick")]
    for k in range(count):
        kind, opacity = tint(panel, round(k * STEPS / (count - 1)))
        place = f'x="{number(start + k * width)}" y="{number(y)}" width="{number(width)}"'
        made.append(f'<rect class="tp-mid" {place} height="9"/>')
        made.append(f'<rect class="{kind}" {place} height="9" fill-opacity="{opacity:.2g}"/>')
    made.append(label(start + count * width + 5, y + 8, panel["ends"][1], "tp-start"))
    return f'<g class="tp-ends">{"".join(made)}</g>'


def _picture(panel: Mapping[str, Any], sizes: Sequence[int], state: State, says: str) -> str:
    at = int(np.ravel_multi_index(tuple(state), tuple(sizes)))
    image = (
        f'<image width="{W:g}" height="{H:g}" href="data:image/webp;base64,{panel["frames"][at]}"/>'
    )
    return opening(panel, W, H, says, box=(0, 0, W, H), touch=False) + image + "</svg>"
