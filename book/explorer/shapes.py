"""The shapes of a `Scene`, in data units with y upwards.

Every shape has a role, which gives it its color, and may be out of sight (`shown=False`), `faint`
or `strong`. What a reader may do with it: `drag={"x": control, "y": control}` moves its head,
`sets={control: value}` chooses, and `detail` is shown and spoken when it is pointed at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Role = Literal["query", "key", "value", "weight", "data", "gradient", "ink", "quiet", "good", "bad"]
ROLES = ("query", "key", "value", "weight", "data", "gradient", "ink", "quiet", "good", "bad")


@dataclass(frozen=True, kw_only=True)
class _Look:
    role: Role = "ink"
    shown: bool = True
    faint: bool = False
    strong: bool = False
    detail: str = ""
    sets: Mapping[str, Any] = field(default_factory=dict)
    drag: Mapping[str, str] = field(default_factory=dict)
    kind: ClassVar[str]
    # The numbers that place it, in the order in which a drawing takes them.
    xs: ClassVar[tuple[str, ...]] = ()
    ys: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Arrow(_Look):
    """From (x0, y0) to its head (x1, y1), where the label stands."""

    x0: float
    y0: float
    x1: float
    y1: float
    label: str = ""
    dash: bool = False
    kind = "arrow"
    xs, ys = ("x0", "x1"), ("y0", "y1")


@dataclass(frozen=True)
class Segment(_Look):
    """A line from (x0, y0) to (x1, y1); its label stands in the middle, beside it."""

    x0: float
    y0: float
    x1: float
    y1: float
    label: str = ""
    dash: bool = False
    kind = "segment"
    xs, ys = ("x0", "x1"), ("y0", "y1")


@dataclass(frozen=True)
class Dot(_Look):
    """A dot; `size` is its area, 1 for a dot of five units of the drawing."""

    x: float
    y: float
    label: str = ""
    size: float = 1.0
    kind = "dot"
    xs, ys = ("x",), ("y",)


@dataclass(frozen=True)
class Circle(_Look):
    """An empty circle of radius `r`, in units of x."""

    x: float
    y: float
    r: float
    dash: bool = False
    kind = "circle"
    xs, ys = ("x",), ("y",)


@dataclass(frozen=True)
class Arc(_Look):
    """A piece of a circle, counterclockwise from the angle `start` to `stop`, in radians."""

    x: float
    y: float
    r: float
    start: float
    stop: float
    label: str = ""
    dash: bool = False
    kind = "arc"
    xs, ys = ("x",), ("y",)


@dataclass(frozen=True)
class Curve(_Look):
    """A line through all places; what lies outside the scene is cut off."""

    x: Sequence[float]
    y: Sequence[float]
    dash: bool = False
    kind = "curve"
    xs, ys = ("x",), ("y",)


@dataclass(frozen=True)
class Polygon(_Look):
    """A surface with these (x, y) corners."""

    points: Sequence[tuple[float, float]]
    kind = "polygon"


@dataclass(frozen=True)
class Box(_Look):
    """A rectangle with the lower left corner (x, y); `fill` in 0..1 is how full its color is."""

    x: float
    y: float
    w: float
    h: float
    label: str = ""
    fill: float | None = None
    href: str = ""
    dash: bool = False
    kind = "box"
    xs, ys = ("x",), ("y",)


@dataclass(frozen=True)
class Cell(_Look):
    """A square of side 1 in a row and a column, row 0 on top.

    It spans x from `column` to `column + 1` and y from `-row - 1` to `-row`.
    """

    row: float
    column: float
    text: str = ""
    fill: float | None = None
    dash: bool = False
    kind = "cell"


@dataclass(frozen=True)
class Text(_Look):
    """A line of text, or several, parted by newlines; (x, y) is its middle, start or end."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "middle"
    small: bool = False
    kind = "text"
    xs, ys = ("x",), ("y",)


Shape = Arrow | Segment | Dot | Circle | Arc | Curve | Polygon | Box | Cell | Text
