"""The drawing of one state of a scene; static/explorer.js moves its parts by the same rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from book.explorer.columns import numbers_at, text_at

LETTER = 6.6
LINE = 15.0
HEAD = 10.0  # the length of an arrow's head
GRIP = 22.0  # the radius of what a finger can hold
HIT = 13.0  # and of what it can touch
Label = tuple[float, float, str]


def scene(panel: Mapping[str, Any], sizes: Sequence[int], state: Sequence[int], says: str) -> str:
    """The `<svg>` of a scene in this state."""
    plane = panel["plane"]
    touch = any({"drag", "sets", "detail", "href"} & one.keys() for one in panel["shapes"])
    name = escape(": ".join(part for part in (panel["title"], says) if part))
    w, h = plane["width"], plane["height"]
    made = [
        f'<svg class="tp-drawing" viewBox="0 0 {w:g} {h:g}" role="{"group" if touch else "img"}" '
        f'aria-label="{name}">'
    ]
    made += _axes(panel)
    stop = next((k for k, one in enumerate(panel["shapes"]) if _roves(one)), None)
    for k, one in enumerate(panel["shapes"]):
        made.append(_shape(one, sizes, state, w, k, k == stop))
    return "".join(made) + "</svg>"


def _roves(one: Mapping[str, Any]) -> bool:
    """Whether the arrow keys lead to a shape from its neighbors."""
    return ("sets" in one or "detail" in one) and "drag" not in one


def number(value: float) -> str:
    """A place in the drawing, to a tenth."""
    text = f"{value + 1e-9:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


# ---------------------------------------------------------------- axes


def _axes(panel: Mapping[str, Any]) -> list[str]:
    kind, plane = panel["axes"], panel["plane"]
    if kind == "none":
        return []
    x, y = plane["left"], plane["top"]
    w, h = plane["inner_width"], plane["inner_height"]
    (a, b), (c, d) = plane["xlim"], plane["ylim"]
    made = []
    xs = [(x + at * w, text) for at, text in panel["xticks"]]
    ys = [(y + (1 - at) * h, text) for at, text in panel["yticks"]]
    made += [_line(at, y, at, y + h) for at, _ in xs]
    made += [_line(x, at, x + w, at) for at, _ in ys]
    floor, wall = y + h, x
    if kind == "cross":
        floor = y + h * d / (d - c) if c < 0 < d else floor
        wall = x - w * a / (b - a) if a < 0 < b else wall
        made += [_line(x, floor, x + w, floor, "tp-zero"), _line(wall, y, wall, y + h, "tp-zero")]
    for at, text in xs:
        if kind == "box" or abs(at - wall) > 1:
            made.append(_text(at, floor + 14, text, "tp-xtick"))
    for at, text in ys:
        if kind == "box" or abs(at - floor) > 1:
            made.append(_text(wall - 5, at + 4, text, "tp-ytick"))
    if kind == "box":
        made.append(_text(x + w / 2, floor + 32, panel["xlabel"], "tp-label"))
        middle = y + h / 2
        turned = f' transform="rotate(-90 12 {number(middle)})"'
        made.append(_text(12, middle, panel["ylabel"], "tp-label", turned))
    else:
        made.append(_text(x + w, floor - 6, panel["xlabel"], "tp-label tp-end"))
        made.append(_text(wall + 6, y + 8, panel["ylabel"], "tp-label tp-start"))
    return made


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "tp-grid") -> str:
    a, b, c, d = map(number, (x1, y1, x2, y2))
    return f'<line class="{kind}" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>'


def _text(x: float, y: float, text: str, kind: str, more: str = "") -> str:
    if not text:
        return ""
    return f'<text x="{number(x)}" y="{number(y)}" class="{kind}"{more}>{escape(text)}</text>'


# ---------------------------------------------------------------- shapes


def _shape(
    one: Mapping[str, Any],
    sizes: Sequence[int],
    state: Sequence[int],
    width: float,
    place: int,
    stop: bool,
) -> str:
    at = {key: numbers_at(one[key], state, sizes) for key in _NUMBERS if key in one}
    text = text_at(one.get("label", ""), state, sizes)
    detail = text_at(one.get("detail", ""), state, sizes)
    kinds = [f"tp-role-{text_at(one['role'], state, sizes)}", f"tp-is-{one['is']}"]
    kinds += [f"tp-{flag}" for flag in ("faint", "strong", "dash", "small") if at.get(flag)]
    more = "" if at.get("shown", 1) else ' visibility="hidden"'
    spoken = escape(". ".join(part for part in (text or one["name"], detail) if part))
    if "drag" in one:
        kinds.append("tp-drag")
        more += f' role="slider" tabindex="0" aria-label="{spoken}" aria-valuenow="0"'
    elif "sets" in one or "detail" in one:
        kinds.append("tp-touch")
        role = "button" if "sets" in one else "img"
        more += f' role="{role}" tabindex="{0 if stop else -1}" aria-label="{spoken}"'
    body, (x, y, anchor) = _body(one, at)
    if "label" in one:
        body += words(x, y, anchor, text, width)
    if "drag" in one:
        x, y = head(one["is"], at)
        body += f'<circle class="tp-grip" cx="{number(x)}" cy="{number(y)}" r="{GRIP:g}"/>'
    elif "sets" in one or "detail" in one:
        body += _hit(one["is"], body, at)
    if href := one.get("href"):
        body = f'<a href="{escape(href)}">{body}</a>'
    return f'<g class="{" ".join(kinds)}" data-shape="{place}"{more}>{body}</g>'


_NUMBERS = (
    *("x", "y", "x0", "y0", "x1", "y1", "r", "start", "stop", "w", "h", "fill"),
    *("shown", "faint", "strong", "dash", "small"),
)


def _hit(kind: str, body: str, at: Mapping[str, Any]) -> str:
    """What a finger hits of a thin or a small shape: the same, unseen and larger."""
    if kind == "dot":
        x, y = number(at["x"]), number(at["y"])
        return f'<circle class="tp-hit" cx="{x}" cy="{y}" r="{number(max(HIT, at["r"]))}"/>'
    if body.startswith("<path"):
        d = body.split(' d="')[1].split('"')[0]
        return f'<path class="tp-hit" d="{d}"/>'
    return ""


def head(kind: str, at: Mapping[str, Any]) -> tuple[float, float]:
    """The part of a shape that is held when it is dragged."""
    return (at["x1"], at["y1"]) if kind in ("arrow", "segment") else (at["x"], at["y"])


def _body(one: Mapping[str, Any], at: Mapping[str, Any]) -> tuple[str, Label]:
    """The drawing of a shape, and where its label stands."""
    kind = one["is"]
    if kind in ("box", "cell"):
        place = "".join(
            f' {name}="{number(at[key])}"'
            for name, key in (("x", "x"), ("y", "y"), ("width", "w"), ("height", "h"))
        )
        radius = 2 if kind == "cell" else 5
        ground = f'<rect class="tp-under" rx="{radius}"{place}/>' if kind == "box" else ""
        opacity = f"{round(0.55 * max(at['fill'], 0), 3):g}"
        rect = f'<rect class="tp-box" rx="{radius}"{place} fill-opacity="{opacity}"/>'
        return ground + rect, (at["x"] + at["w"] / 2, at["y"] + at["h"] / 2 + 4.5, "middle")
    if kind in ("dot", "circle"):
        shown = "tp-dot" if kind == "dot" else "tp-ring"
        x, y, r = map(number, (at["x"], at["y"], at["r"]))
        circle = f'<circle class="{shown}" cx="{x}" cy="{y}" r="{r}"/>'
        return circle, (at["x"], at["y"] - at["r"] - 5, "middle")
    if kind == "text":
        return "", (at["x"], at["y"] + 4.5, one.get("anchor", "middle"))
    shown = {"arrow": "tp-arrow", "polygon": "tp-area"}.get(kind, "tp-curve")
    d, label = _PATHS[kind](at)
    return f'<path class="{shown}" d="{d}"/>', label


def _arrow(at: Mapping[str, Any]) -> tuple[str, Label]:
    x0, y0, x1, y1 = (at[key] for key in ("x0", "y0", "x1", "y1"))
    length = math.hypot(x1 - x0, y1 - y0)
    if length < 0.5:
        return "", (x1, y1 - 8, "middle")
    u, v = (x1 - x0) / length, (y1 - y0) / length
    size = min(HEAD, length / 2)
    bx, by, side = x1 - u * size, y1 - v * size, 0.42 * size
    a, b, c, d = map(number, (x0, y0, bx, by))
    left = f"{number(bx - v * side)} {number(by + u * side)}"
    right = f"{number(bx + v * side)} {number(by - u * side)}"
    path = f"M{a} {b}L{c} {d}M{number(x1)} {number(y1)}L{left}L{right}z"
    anchor = "start" if u > 0.35 else "end" if u < -0.35 else "middle"
    return path, (x1 + 9 * u, y1 + 4.5 + 11 * v, anchor)


def _segment(at: Mapping[str, Any]) -> tuple[str, Label]:
    x0, y0, x1, y1 = (at[key] for key in ("x0", "y0", "x1", "y1"))
    a, b, c, d = map(number, (x0, y0, x1, y1))
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    u, v = (x1 - x0) / length, (y1 - y0) / length
    u, v = (u, v) if u >= 0 else (-u, -v)
    x, y = (x0 + x1) / 2 + 10 * v, (y0 + y1) / 2 - 10 * u
    return f"M{a} {b}L{c} {d}", (x, y + 4.5, "start" if abs(v) > 0.5 else "middle")


def _arc(at: Mapping[str, Any]) -> tuple[str, Label]:
    x, y, r, start, stop = (at[key] for key in ("x", "y", "r", "start", "stop"))
    turn = max(-6.283, min(6.283, stop - start))
    ways = [start, start + turn / 2, start + turn]
    (ax, ay), (bx, by), (cx, cy) = ((x + r * math.cos(t), y - r * math.sin(t)) for t in ways)
    sweep, k = (0 if turn >= 0 else 1), number(r)
    path = f"M{number(ax)} {number(ay)}"
    for to_x, to_y in ((bx, by), (cx, cy)):
        path += f"A{k} {k} 0 0 {sweep} {number(to_x)} {number(to_y)}"
    middle = start + turn / 2
    u, v = math.cos(middle), -math.sin(middle)
    anchor = "start" if u > 0.35 else "end" if u < -0.35 else "middle"
    return path, (x + (r + 7) * u, y + (r + 9) * v + 4.5, anchor)


def _curve(at: Mapping[str, Any]) -> tuple[str, Label]:
    pairs = [f"{number(x)} {number(y)}" for x, y in zip(at["x"], at["y"], strict=True)]
    return "M" + "L".join(pairs), (0, 0, "middle")


def _polygon(at: Mapping[str, Any]) -> tuple[str, Label]:
    path, label = _curve(at)
    return path + "z", label


_PATHS = {
    "arrow": _arrow, "segment": _segment, "arc": _arc, "curve": _curve, "polygon": _polygon,
}  # fmt: skip


def words(x: float, y: float, anchor: str, text: str, width: float) -> str:
    """A label, moved inside the drawing where it would leave it."""
    lines = text.split("\n")
    room = LETTER * max(map(len, lines))
    before = {"start": 0, "middle": room / 2, "end": room}[anchor]
    x = max(before + 2, min(x, width - 2 - room + before))
    y -= (len(lines) - 1) * LINE / 2
    place = f'x="{number(x)}" y="{number(y)}"'
    if len(lines) == 1:
        return f'<text {place} text-anchor="{anchor}">{escape(text)}</text>'
    spans = "".join(
        f'<tspan x="{number(x)}" dy="{LINE if k else 0:g}">{escape(line)}</tspan>'
        for k, line in enumerate(lines)
    )
    return f'<text {place} text-anchor="{anchor}">{spans}</text>'
