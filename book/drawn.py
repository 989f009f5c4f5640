"""What is drawn badly in a figure, as far as a program can see it.

`book.figures.show` asks here before it shows a figure. A reader must be able to read every text,
to find every mark of a legend in the plot and to tell from a picture's cells what they are worth;
and where both axes are directions of one plane, a rotation must not change a length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.offsetbox import DrawingArea, HPacker, TextArea
from matplotlib.patches import Patch
from matplotlib.quiver import Quiver
from matplotlib.text import Text
from matplotlib.transforms import Bbox

# Pixels at 72 dpi by which two texts may touch, or a text pass the edge: the box of a text has
# room above its letters and below.
SLACK = 1.5
Corners = np.ndarray[Any, np.dtype[np.float64]]


def problems(fig: Figure, plane: bool | None = None) -> list[str]:
    """What is wrong with a figure that was drawn, one line each.

    Args:
        fig: the figure. It is laid out anew, so save it before you ask.
        plane: whether the axes are planes, whose two directions have one unit. None: those are
            in which an arrow is drawn, or a curve that runs back over its own x.
    """
    fig.draw_without_rendering()
    texts = list(_texts(fig))
    found = list(_clipped(fig, texts))
    found += _overlapping(texts)
    for axes in fig.axes:
        if axes.get_visible():
            found += _unequal(axes, plane)
            found += _without_key(axes, fig)
            found += _without_mark(axes)
            found += _covered(axes)
    for legend in fig.legends:
        found += _unmarked(legend, fig.axes)
    return found


# ---------------------------------------------------------------- texts


@dataclass(frozen=True)
class Place:
    """A text or a legend, and the four corners of its box in pixels."""

    what: str
    corners: Corners

    @property
    def box(self) -> Bbox:
        """The upright box around it."""
        return Bbox([self.corners.min(0), self.corners.max(0)])


def _texts(fig: Figure) -> Iterator[Place]:
    """All that can be read: titles, labels, ticks, free texts, and each legend as one box."""
    inside = {t for legend in fig.findobj(Legend) for t in legend.findobj(Text)}
    of_axes: set[Text] = set()
    for axes in fig.axes:
        for axis in _axes_of(axes):
            ticks = (*axis.majorTicks, *axis.minorTicks)
            of_axes |= {label for tick in ticks for label in (tick.label1, tick.label2)}
            of_axes |= {axis.label, axis.offsetText}
            if axes.get_visible() and axes.axison and axis.get_visible():
                named = (axis.label, axis.offsetText, *_tick_labels(axis))
                yield from (_place(text) for text in named if _is_read(text))
    for text in fig.findobj(Text):
        if text in inside or text in of_axes or not _is_read(text):
            continue
        home = text.axes
        if not (isinstance(home, Axes) and text.get_clip_on() and not _starts_in(text, home)):
            yield _place(text)
    for legend in fig.findobj(Legend):
        if legend.get_visible():
            (x0, y0), (x1, y1) = legend.get_window_extent().get_points()
            corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
            words = ", ".join(t.get_text() for t in legend.get_texts())
            yield Place(f"the legend {words!r}", corners)


def _axes_of(axes: Axes) -> list[Axis]:
    """Two, or three where a space is drawn."""
    return [axes.xaxis, axes.yaxis, *([axes.zaxis] if hasattr(axes, "zaxis") else [])]


def _is_read(text: Text) -> bool:
    hidden = isinstance(text.axes, Axes) and not text.axes.get_visible()
    return text.get_visible() and not hidden and bool(text.get_text().strip())


def _starts_in(text: Text, axes: Axes) -> bool:
    x, y = text.get_transform().transform(text.get_unitless_position())
    return bool(axes.bbox.padded(1).contains(x, y))


def _tick_labels(axis: Axis) -> Iterator[Text]:
    """The labels that are drawn: those of ticks within the limits."""
    low, high = sorted(axis.get_transform().transform(np.array(axis.get_view_interval())))
    edge = 1e-6 * (high - low)
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        at = float(axis.get_transform().transform(np.array([tick.get_loc()]))[0])
        if tick.get_visible() and low - edge <= at <= high + edge:
            for label in (tick.label1, tick.label2):
                if label.get_visible() and label.get_text().strip():
                    yield label


def _place(text: Text) -> Place:
    """The box of a text, turned as the text is."""
    upright = text.get_window_extent()
    angle = math.radians(text.get_rotation())
    centre = np.array([upright.x0 + upright.width / 2, upright.y0 + upright.height / 2])
    c, s = abs(math.cos(angle)), abs(math.sin(angle))
    if abs(c * c - s * s) < 0.05:  # at 45 degrees only the sum of width and height is known
        rotation = text.get_rotation()
        text.set_rotation(0)
        width, height = text.get_window_extent().width, text.get_window_extent().height
        text.set_rotation(rotation)
    else:
        width = (upright.width * c - upright.height * s) / (c * c - s * s)
        height = (upright.height * c - upright.width * s) / (c * c - s * s)
    half = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return Place(repr(text.get_text()), centre + half @ turn)


def _clipped(fig: Figure, texts: Iterable[Place]) -> Iterator[str]:
    room = fig.bbox.padded(SLACK)
    for place in texts:
        box = place.box
        if box.x0 < room.x0 or box.y0 < room.y0 or box.x1 > room.x1 or box.y1 > room.y1:
            yield f"{place.what} is cut off by the edge of the figure"


def _overlapping(texts: list[Place]) -> Iterator[str]:
    for one, other in combinations(texts, 2):
        if _depth(one.corners, other.corners) > SLACK:
            yield f"{one.what} and {other.what} overlap"


def _depth(one: Corners, other: Corners) -> float:
    """By how many pixels two turned boxes overlap, in the direction in which it is least."""
    least = math.inf
    for corners in (one, other):
        for side in (corners[1] - corners[0], corners[3] - corners[0]):
            length = math.hypot(*side)
            if length == 0:
                return 0.0
            a, b = one @ side / length, other @ side / length
            least = min(least, min(a.max(), b.max()) - max(a.min(), b.min()))
    return float(least)


# ---------------------------------------------------------------- planes


def _unequal(axes: Axes, plane: bool | None) -> Iterator[str]:
    is_other = hasattr(axes, "_colorbar") or not axes.axison or bool(axes.images)
    if is_other or axes.name == "3d" or plane is False:
        return
    if (plane or _is_plane(axes)) and axes.get_aspect() != 1:
        yield (
            f"the axes titled {axes.get_title()!r} are a plane, but not equal: "
            'call set_aspect("equal"), or say plane=False if they have two units'
        )


def _is_plane(axes: Axes) -> bool:
    """Whether something is drawn that has a direction: arrows, or a curve that turns back."""
    arrows = any(
        getattr(text, "arrow_patch", None) is not None and not text.get_text()
        for text in axes.texts
    )
    return (
        arrows
        or any(isinstance(c, Quiver) for c in axes.collections)
        or any(_turns_back(line) for line in axes.lines)
    )


def _turns_back(line: Line2D) -> bool:
    if line.get_linestyle() in ("None", "", " "):
        return False
    steps = np.diff(np.asarray(line.get_xdata(orig=False), dtype=float))
    ups = np.diff(np.asarray(line.get_ydata(orig=False), dtype=float))
    # A curve over y is no plane either: it turns back in both.
    return all(bool((d > 0).any() and (d < 0).any()) for d in (steps, ups))


# ---------------------------------------------------------------- pictures of matrices


def _without_key(axes: Axes, fig: Figure) -> Iterator[str]:
    """A picture says at its edges which cells these are, and beside it what a colour is worth."""
    meshes = [c for c in axes.collections if isinstance(c, QuadMesh)]
    if hasattr(axes, "_colorbar"):
        return
    for picture in (*axes.images, *meshes):
        values = picture.get_array()
        if values is None or not isinstance(picture, AxesImage | QuadMesh):
            continue
        across, along = axes.get_shared_x_axes(), axes.get_shared_y_axes()
        for name, shared in (("x", across), ("y", along)):
            if not any(_ticked(one, name) for one in shared.get_siblings(axes)):
                yield f"the picture in {axes.get_title()!r} has no ticks along {name}"
        if np.ndim(values) == 3:
            continue  # its colours are no scale
        told = [text for text in axes.texts if text.get_text().strip()]
        if not _has_bar(picture, fig) and len(told) < np.ma.count(values):
            yield (
                f"the picture in {axes.get_title()!r} has neither a colour bar nor a number "
                "in each cell"
            )
    for dots in axes.collections:
        coloured = isinstance(dots, PathCollection) and dots.get_array() is not None
        if coloured and not _has_bar(dots, fig):
            yield f"the colours of the dots in {axes.get_title()!r} have no colour bar"


def _ticked(axes: Axes, name: str) -> bool:
    """Whether the cells are numbered or named along this side."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    return axes.axison and any(_tick_labels(axis))


def _has_bar(picture: AxesImage | Collection, fig: Figure) -> bool:
    """Whether a colour bar of the figure has this picture's colours and limits."""
    for axes in fig.axes:
        bar = getattr(axes, "_colorbar", None)
        if bar is not None and (
            bar.mappable is picture
            or (bar.mappable.cmap == picture.cmap and bar.mappable.get_clim() == picture.get_clim())
        ):
            return True
    return False


# ---------------------------------------------------------------- legends


def _without_mark(axes: Axes) -> Iterator[str]:
    legend = axes.get_legend()
    if legend is not None:
        twins = axes.get_shared_x_axes().get_siblings(axes)
        yield from _unmarked(
            legend, [axes, *(t for t in twins if t.bbox.bounds == axes.bbox.bounds)]
        )


def _covered(axes: Axes) -> Iterator[str]:
    """A legend has no ground of its own, so that no curve may run through its words."""
    legend = axes.get_legend()
    if legend is None or not legend.get_visible():
        return
    box = legend.get_window_extent().padded(-SLACK)
    for line in axes.lines:
        path = line.get_transform().transform_path(line.get_path())
        is_drawn = line.get_visible() and _has_stroke(line) and _stroke(line)
        if is_drawn and path.intersects_bbox(box, filled=False):
            name, title = line.get_label(), axes.get_title()
            yield f"the curve {name!r} of {title!r} runs through the legend"


def _unmarked(legend: Legend, axes: list[Axes]) -> Iterator[str]:
    """Every entry shows a mark that is in the plot, and no two entries the same one."""
    plotted = {mark for one in axes for mark in _marks(one)}
    seen: dict[Any, str] = {}
    for drawn, name in _entries(legend):
        marks = {mark for artist in drawn for mark in _mark(artist)}
        if not marks or not marks <= plotted:
            yield f"the legend's mark for {name!r} is not in the plot"
        for mark in marks:
            if mark in seen:
                yield f"{seen[mark]!r} and {name!r} have one mark in the legend"
            seen[mark] = name


def _entries(legend: Legend) -> Iterator[tuple[list[Artist], str]]:
    """What is drawn for each entry of a legend, and its name."""
    names = {id(text): text.get_text() for text in legend.get_texts()}
    for box in legend.findobj(HPacker):
        parts = box.get_children()
        # An entry is a drawing beside a text; what holds entries is a packer as well.
        if len(parts) == 2 and {type(part) for part in parts} == {DrawingArea, TextArea}:
            text = next(p for p in parts if isinstance(p, TextArea))
            drawing = next(p for p in parts if isinstance(p, DrawingArea))
            (label,) = (t for t in text.get_children() if id(t) in names)
            yield drawing.get_children(), names[id(label)]


def _marks(axes: Axes) -> Iterator[tuple[str, ...]]:
    for artist in axes.get_children():
        if isinstance(artist, Legend) or artist is axes.patch or not artist.get_visible():
            continue
        yield from _mark(artist, drawn=True)


def _mark(artist: Artist | Any, drawn: bool = False) -> Iterator[tuple[str, ...]]:
    """What is seen of an artist: the stroke of a line and its marker are one mark."""
    if isinstance(artist, BarContainer | ErrorbarContainer):
        for part in artist.get_children():
            yield from _mark(part, drawn)
    elif isinstance(artist, Line2D):
        stroke = "" if drawn and not _has_stroke(artist) else _stroke(artist)
        marker = str(artist.get_marker())
        marker = "" if marker in ("None", "none", "", " ") else marker
        if stroke or marker:
            yield ("line", _hex(artist.get_color()), stroke, marker)
    elif isinstance(artist, Patch):
        yield ("area", _hex(artist.get_facecolor()), str(artist.get_hatch() or ""))
    elif isinstance(artist, LineCollection):
        for colour in artist.get_colors():
            yield ("lines", _hex(colour))
    elif isinstance(artist, PathCollection):
        colours = np.atleast_2d(artist.get_facecolor())
        corners = str(np.shape(artist.get_paths()[0].vertices)[0])
        for colour in colours if colours.size else np.atleast_2d(artist.get_edgecolor()):
            yield ("dots", _hex(colour), corners)
    elif isinstance(artist, Collection):
        for colour in np.atleast_2d(artist.get_facecolor()):
            yield ("area", _hex(colour), str(artist.get_hatch() or ""))


def _hex(colour: Any) -> str:
    return to_hex(colour)


def _stroke(line: Line2D) -> str:
    dashes = getattr(line, "_unscaled_dash_pattern", (0, None))
    return "" if line.get_linestyle() in ("None", "", " ") else str(dashes[1])


def _has_stroke(line: Line2D) -> bool:
    """Whether two neighbouring points are there to be joined."""
    x, y = (np.asarray(d, dtype=float) for d in line.get_data(orig=False))
    seen = np.isfinite(x) & np.isfinite(y)
    return bool((seen[1:] & seen[:-1]).any())
