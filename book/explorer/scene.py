"""A scene over all states: its plane, and each shape as columns of places in the drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from book.explorer.axis import Axis
from book.explorer.columns import pack_numbers, pack_texts
from book.explorer.controls import chosen
from book.explorer.panels import Scene
from book.explorer.shapes import ROLES, Arc, Box, Cell, Circle, Curve, Dot, Polygon, Shape

GAP = 1.0  # between two cells
DOT = 5.0  # the radius of a dot of size 1
_FLAGS = ("faint", "strong", "dash", "small")


@dataclass(frozen=True)
class Plane:
    """Data units to units of the drawing: x from its left, y from its top."""

    width: float
    height: float
    left: float
    top: float
    inner_width: float
    inner_height: float
    xlim: tuple[float, float]
    ylim: tuple[float, float]

    @staticmethod
    def of(one: Scene) -> Plane:
        """The plane of a scene, between its margins, with equal units where it asks for them."""
        box = one.axes == "box"
        left = 50.0 if box else 8.0
        bottom = (40.0 if box else 8.0) if one.axes != "cross" else 8.0
        w, h = one.width - left - 10, one.height - 10 - bottom
        (a, b), (c, d) = one.xlim, one.ylim
        top, iw, ih = 10.0, w, h
        if one.equal:
            scale = min(w / (b - a), h / (d - c))
            iw, ih = scale * (b - a), scale * (d - c)
            left, top = left + (w - iw) / 2, top + (h - ih) / 2
        return Plane(one.width, one.height, left, top, iw, ih, one.xlim, one.ylim)

    @property
    def scales(self) -> tuple[float, float]:
        """Units of the drawing in a unit of x and of y."""
        (a, b), (c, d) = self.xlim, self.ylim
        return self.inner_width / (b - a), self.inner_height / (d - c)

    def x(self, values: Any) -> Any:
        """Places from the left of the drawing."""
        return self.left + (np.asarray(values, dtype=float) - self.xlim[0]) * self.scales[0]

    def y(self, values: Any) -> Any:
        """Places from the top of the drawing."""
        return self.top + (self.ylim[1] - np.asarray(values, dtype=float)) * self.scales[1]

    def described(self) -> dict[str, Any]:
        """As the page stores it."""
        names = ("width", "height", "left", "top", "inner_width", "inner_height")
        return {name: round(float(getattr(self, name)), 3) for name in names} | {
            "xlim": [float(v) for v in self.xlim],
            "ylim": [float(v) for v in self.ylim],
        }


def scene(frames: Sequence[Scene], states: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The description of a scene over all states."""
    one = frames[0]
    plane = Plane.of(one)
    made: dict[str, Any] = {"plane": plane.described(), "axes": one.axes}
    made |= {"xlabel": one.xlabel, "ylabel": one.ylabel}
    if one.axes != "none":
        for name, ends, given in (
            ("xticks", one.xlim, one.xticks),
            ("yticks", one.ylim, one.yticks),
        ):
            axis = Axis(*ends)
            made[name] = (
                axis.ticks()
                if given is None
                else [[round(float(axis.fraction(np.array(v))), 4), text] for v, text in given]
            )
    made["shapes"] = [
        _shape(name, [frame.shapes[name] for frame in frames], plane, states) for name in one.shapes
    ]
    if one.narrow is not None:
        made["breadth"] = "wide"
    elif one.width > 340:
        made["breadth"] = "scrolled"
    return made


def _shape(
    name: str, shapes: Sequence[Shape], plane: Plane, states: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """One shape over all states. What it is by default is left out."""
    one = shapes[0]
    sizes = [len(values) for values in states.values()]
    made: dict[str, Any] = {"name": name, "is": one.kind}
    for shape in shapes:
        if shape.role not in ROLES:
            raise ValueError(f"{name!r} has the role {shape.role!r}, not one of {ROLES}")
    made["role"] = pack_texts([s.role for s in shapes], sizes)
    if not all(s.shown for s in shapes):
        made["shown"] = pack_numbers(np.array([s.shown for s in shapes]), sizes, 1)
    for flag in _FLAGS:
        if any(getattr(s, flag, False) for s in shapes):
            made[flag] = pack_numbers(np.array([getattr(s, flag) for s in shapes]), sizes, 1)
    places = [_places(s, plane) for s in shapes]
    for key in places[0]:
        step = 0.001 if key in ("start", "stop", "fill") else 0.1
        values = _hidden_filled([p[key] for p in places], shapes, name, key)
        made[key] = pack_numbers(values, sizes, step)
    for key in ("label", "text", "detail"):
        if any(texts := [getattr(s, key, "") for s in shapes]):
            made["label" if key == "text" else key] = pack_texts(texts, sizes)
    for key in ("anchor", "href"):
        if value := getattr(one, key, ""):
            made[key] = value
    if one.drag:
        made["drag"] = _dragged(name, one.drag, states)
    if any(s.sets for s in shapes):
        made["sets"] = chosen([s.sets for s in shapes], states)
    return made


def _places(shape: Any, plane: Plane) -> dict[str, Any]:
    """Where a shape lies, in units of the drawing."""
    unit_x, unit_y = plane.scales
    if isinstance(shape, Cell):
        left, top = plane.x(shape.column) + GAP / 2, plane.y(-shape.row) + GAP / 2
        size = {"w": unit_x - GAP, "h": unit_y - GAP}
        return {"x": left, "y": top, **size, "fill": _fill(shape)}
    if isinstance(shape, Box):
        size = {"w": shape.w * unit_x, "h": shape.h * unit_y}
        return {
            "x": plane.x(shape.x),
            "y": plane.y(shape.y + shape.h),
            **size,
            "fill": _fill(shape),
        }
    if isinstance(shape, Polygon):
        corners = np.asarray(shape.points, dtype=float)
        return {"x": plane.x(corners[:, 0]), "y": plane.y(corners[:, 1])}
    if isinstance(shape, Curve):
        detached = [getattr(v, "detach", lambda v=v: v)() for v in (shape.x, shape.y)]
        y = np.clip(plane.y(detached[1]), -999, 2 * plane.height + 999)
        return {"x": plane.x(detached[0]), "y": y}
    made = {key: plane.x(getattr(shape, key)) for key in shape.xs}
    made |= {key: plane.y(getattr(shape, key)) for key in shape.ys}
    if isinstance(shape, Dot):
        made["r"] = DOT * np.sqrt(shape.size)
    if isinstance(shape, Circle | Arc):
        made["r"] = shape.r * unit_x
    if isinstance(shape, Arc):
        made |= {"start": shape.start, "stop": shape.stop}
    return made


def _fill(shape: Any) -> float:
    """How full the color is; −1 stands for the ground."""
    return -1.0 if shape.fill is None else float(np.clip(shape.fill, 0, 1))


def _hidden_filled(values: list[Any], shapes: Sequence[Shape], name: str, key: str) -> Any:
    """The places in all states; a shape that is out of sight lies where it is elsewhere."""
    known = [np.isfinite(v).all() for v in values]
    for number, (fine, shape) in enumerate(zip(known, shapes, strict=True)):
        if shape.shown and not fine:
            raise ValueError(f"{name!r} has no place in state {number}: {key} is {values[number]}")
    spare = next((v for v, fine in zip(values, known, strict=True) if fine), np.zeros(1))
    return np.array([v if fine else spare for v, fine in zip(values, known, strict=True)])


def _dragged(name: str, drag: Mapping[str, str], states: Mapping[str, list[Any]]) -> dict[str, int]:
    for way, control in drag.items():
        if way not in ("x", "y") or control not in states:
            raise ValueError(f"{name!r} is dragged by {way!r}: {control!r}, which is no control")
    return {way: [*states].index(control) for way, control in drag.items()}
