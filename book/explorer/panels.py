"""What a frame shows: charts, grids, scenes, and a sentence that says it in numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from book.explorer.axis import Array, Limits, Scale, array
from book.explorer.shapes import Role, Shape


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
        return [array(y) for y in self.series.values()]


@dataclass(frozen=True)
class Points:
    """Dots in the plane; `series` maps a label to (x values, y values) of this frame.

    `equal` gives both axes one unit, for a plane in which lengths and angles mean something.
    """

    title: str
    series: Mapping[str, tuple[Any, Any]]
    xlabel: str
    ylabel: str
    xlim: Limits = None
    ylim: Limits = None
    equal: bool = False
    kind = "points"

    def values(self) -> list[Array]:
        """One (n, 2) array per group of dots."""
        return [np.stack([array(x), array(y)], axis=-1) for x, y in self.series.values()]


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
        return [array(y) for y in self.series.values()]


@dataclass(frozen=True)
class Heat:
    """A matrix as colored cells; nan leaves a cell empty. `diverging` centers the colors on 0.

    `rows` and `columns` name the lines of cells, with tokens for instance; else they are numbered.
    """

    title: str
    matrix: Any
    xlabel: str
    ylabel: str
    limits: Limits = None
    diverging: bool = False
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    kind = "heat"

    def values(self) -> list[Array]:
        """The matrix, alone in a list."""
        return [array(self.matrix)]


def _minus(text: str) -> str:
    """A printed number with the sign that stands level with its digits, and none before zero."""
    return text[1:] if re.fullmatch(r"-0(\.0+)?", text) else re.sub("^-", "−", text)


@dataclass(frozen=True)
class Grid:
    """Numbers in cells, with names on rows and columns; a cell answers with its arithmetic.

    Args:
        title: names the panel.
        numbers: a matrix; nan leaves a cell empty.
        rows: a name for each row, such as its token.
        columns: a name for each column.
        text: how a number is printed in its cell, a format or a function; "" prints none.
        detail: (row, column) -> what is shown and spoken when that cell is pointed at.
        sets: (row, column) -> the values of controls that touching that cell chooses.
        xlabel: what the columns are.
        ylabel: what the rows are.
        limits: the numbers with the palest and the fullest color; default: over all frames.
        diverging: centers the colors on 0.
        role: whose color the cells have.
        empty: what stands in a cell without a number, such as "?" where a later step fills it.
    """

    title: str
    numbers: Any
    rows: Sequence[str]
    columns: Sequence[str]
    text: str | Callable[[float], str] = "{:.2f}"
    detail: Callable[[int, int], str] | None = None
    sets: Callable[[int, int], Mapping[str, Any]] | None = None
    xlabel: str = ""
    ylabel: str = ""
    limits: Limits = None
    diverging: bool = False
    role: Role | None = None
    empty: str = ""
    kind = "grid"

    def values(self) -> list[Array]:
        """The matrix, alone in a list."""
        return [array(self.numbers)]

    def texts(self) -> list[str]:
        """What stands in the cells, row by row."""
        form = self.text
        show = form if callable(form) else lambda v: _minus(form.format(v))
        flat = array(self.numbers).ravel()
        filled = show if self.text else lambda v: ""
        return [self.empty if np.isnan(v) else filled(float(v)) for v in flat]

    def details(self) -> list[str]:
        """What the cells answer, row by row."""
        rows, columns = array(self.numbers).shape
        ask = self.detail or (lambda row, column: "")
        return [ask(row, column) for row in range(rows) for column in range(columns)]


@dataclass(frozen=True)
class Scene:
    """Named shapes in a plane, each with the same name and kind in every frame.

    Args:
        title: names the panel; "" leaves the title to the explorer.
        shapes: name -> shape, in the order in which they are drawn.
        xlim: the ends of x.
        ylim: the ends of y, upwards.
        width: of the drawing, at most 340 so that a phone shows it unscaled.
        height: of the drawing.
        xlabel: names x where there are axes.
        ylabel: names y.
        axes: "none", a "cross" through the origin, or a "box" with ticks.
        equal: whether x and y have one unit.
        xticks: (place, text) pairs instead of numbers.
        yticks: likewise.
        narrow: the same shapes arranged for a phone, where `width` exceeds 340.
    """

    title: str
    shapes: Mapping[str, Shape]
    xlim: tuple[float, float] = (0.0, 1.0)
    ylim: tuple[float, float] = (0.0, 1.0)
    width: float = 340
    height: float = 240
    xlabel: str = ""
    ylabel: str = ""
    axes: Literal["none", "cross", "box"] = "none"
    equal: bool = True
    xticks: Sequence[tuple[float, str]] | None = None
    yticks: Sequence[tuple[float, str]] | None = None
    narrow: Scene | None = None
    kind = "scene"


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure as an image, for what the script cannot draw. Prefer the others."""

    title: str
    figure: Figure
    kind = "picture"


Panel = Lines | Points | Bars | Heat | Grid | Scene | Picture


@dataclass(frozen=True)
class Frame:
    """What is seen at one grid point: panels, and a sentence that says it in numbers."""

    sentence: str
    panels: tuple[Panel, ...] = field(default=())

    def __init__(self, sentence: str, *panels: Panel) -> None:
        object.__setattr__(self, "sentence", sentence)
        object.__setattr__(self, "panels", panels)
