"""Where the boxes of a view stand: from the input below to the output on top.

A residual stream is drawn as what it is, a straight line from bottom to top. What it feeds and what
is added to it again stands beside it; what it passes through, a norm after the sum say, stands on
it. Two inputs that meet late, such as the two languages of a translation, have a lane each.

All lengths are in units of the page, y upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from book.diagram.trace import Node, Shape
from book.diagram.view import View

Point = tuple[float, float]
SUM = 24.0  # the width and height of a "+", which a finger can hit


@dataclass(frozen=True)
class Style:
    """Sizes of a diagram."""

    width: float = 322.0
    height: float = 27.0  # of a box
    gap: float = 12.0  # between two rows
    gutter: float = 10.0  # between two lanes
    indent: float = 20.0  # from a lane's edge to a box beside the stream
    widest: float = 180.0  # of a box outside a lane with a stream
    above: float = 10.0  # more room above a repeated layer, for how often it stands there


@dataclass(frozen=True)
class Placed:
    """A box, a sum or a port with its place; (x, y) is its lower left corner."""

    number: int
    what: str  # box, sum or port
    label: str
    x: float
    y: float
    w: float
    h: float

    @property
    def middle(self) -> Point:
        """The center."""
        return self.x + self.w / 2, self.y + self.h / 2


@dataclass(frozen=True)
class Line:
    """An arrow along these corners; the shape is that of the tensor."""

    source: int
    target: int
    shape: Shape
    points: tuple[Point, ...]
    stream: bool = False


@dataclass(frozen=True)
class Frame:
    """A frame around the boxes of a repeated layer."""

    number: int
    x: float
    y: float
    w: float
    h: float
    label: str


@dataclass(frozen=True)
class Layout:
    """A whole diagram."""

    width: float
    height: float
    placed: Mapping[int, Placed]
    lines: tuple[Line, ...]
    frames: tuple[Frame, ...] = ()


@dataclass
class Lane:
    """Boxes that are reached from one input first, in rows."""

    keys: list[int]
    rank: dict[int, int] = field(default_factory=dict)
    stream: list[int] = field(default_factory=list)


class Plan:
    """What the arrows of a view say about its boxes."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.keys = [n.number for n in view.boxes] + [p.number for p in view.ports]
        self.nodes: dict[int, Node] = {n.number: n for n in view.boxes}
        self.before: dict[int, list[int]] = {k: [] for k in self.keys}
        self.after: dict[int, list[int]] = {k: [] for k in self.keys}
        for link in view.links:
            if link.source not in self.before[link.target]:
                self.before[link.target].append(link.source)
                self.after[link.source].append(link.target)
        self.order = self._sorted()
        self.position = {k: i for i, k in enumerate(self.order)}

    def _sorted(self) -> list[int]:
        """All keys, each after those that feed it."""
        done: list[int] = []
        waiting = sorted(self.keys, key=lambda k: (k < -1, abs(k)))
        while waiting:
            ready = [k for k in waiting if all(b in done for b in self.before[k])]
            if not ready:
                raise ValueError("the arrows run in a circle")
            done.append(ready[0])
            waiting.remove(ready[0])
        return done

    def starts(self) -> list[int]:
        """What is fed by nothing in the view."""
        return [k for k in self.order if not self.before[k]]

    def reached(self, start: int) -> set[int]:
        """What a box feeds, directly or through others."""
        found, todo = {start}, [start]
        while todo:
            for k in self.after[todo.pop()]:
                if k not in found:
                    found.add(k)
                    todo.append(k)
        return found

    def is_sum(self, key: int) -> bool:
        """Whether a key is a "+" in which two arrows meet."""
        node = self.nodes.get(key)
        return bool(
            node and node.kind == "operation" and node.name == "add" and not node.parameters
        )

    def skip(self, key: int) -> int | None:
        """Of a sum with a residual connection: the box from which the connection comes."""
        if not self.is_sum(key):
            return None
        for a in self.before[key]:
            if any(b in self.reached(a) for b in self.before[key] if b != a):
                return a
        return None

    def lanes(self) -> list[Lane]:
        """A lane for each input that has a stream of its own, in the order of the inputs."""
        inputs = [k for k in self.starts() if self.nodes.get(k) and self.nodes[k].kind == "input"]
        if len(inputs) < 2:
            return [self._lane(self.order)]
        lanes: list[list[int]] = [[] for _ in inputs]
        for key in self.order:
            # The last input that leads here: the target of a translation sees the source, too.
            fed = [i for i, start in enumerate(inputs) if key in self.reached(start)]
            lanes[fed[-1] if fed else 0].append(key)
        return [self._lane(keys) for keys in lanes if keys]

    def _lane(self, keys: Sequence[int]) -> Lane:
        lane = Lane(list(keys))
        inside = set(keys)
        for key in keys:
            feeding = [lane.rank[b] for b in self.before[key] if b in inside]
            lane.rank[key] = 1 + max(feeding) if feeding else 0
        # What nothing feeds stands just below what it feeds first, or below its repeated layer.
        starts = [k for k in keys if not [b for b in self.before[k] if b in inside]]
        for key in starts:
            targets = [a for a in self.after[key] if a in inside]
            if key != self._main(starts) and targets:
                around = [
                    k
                    for f in self.view.within.values()
                    for k in f
                    if f & {*targets} and key not in f
                ]
                lane.rank[key] = min(lane.rank[a] for a in [*targets, *around]) - 1
        lowest = min(lane.rank.values())
        lane.rank = {k: r - lowest for k, r in lane.rank.items()}
        if any(self.skip(k) in inside for k in keys):
            lane.stream = self._stream(keys)
        return lane

    def _main(self, starts: Sequence[int]) -> int:
        """The start that feeds most."""
        return max(starts, key=lambda k: (len(self.reached(k)), -abs(k)))

    def _stream(self, keys: Sequence[int]) -> list[int]:
        """From the lane's last box backwards, at a sum along the residual connection."""
        inside = set(keys)
        ends = [k for k in keys if not [a for a in self.after[k] if a in inside]]
        at: int | None = max(ends, key=lambda k: self.position[k])
        found: list[int] = []
        while at is not None:
            found.append(at)
            feeding = [b for b in self.before[at] if b in inside]
            skip = self.skip(at)
            at = skip if skip in inside else max(feeding, key=self._depth, default=None)
        return found[::-1]

    def _depth(self, key: int) -> int:
        """How far a key is from where it starts; the stream comes from furthest below."""
        return max((1 + self._depth(b) for b in self.before[key]), default=0)


def arrange(view: View, name: Callable[[int], str], style: Style | None = None) -> Layout:
    """Place the boxes of a view and draw its arrows; `name` says what stands in a box."""
    style = style or Style()
    plan = Plan(view)
    lanes = plan.lanes()
    width = (style.width - style.gutter * (len(lanes) - 1)) / len(lanes)
    placed: dict[int, Placed] = {}
    spine: dict[int, float] = {}  # x of the stream of each lane
    for i, lane in enumerate(lanes):
        left = i * (width + style.gutter)
        # Streams run outside, so that what stands beside them meets in the middle.
        right_side = len(lanes) > 1 and i == len(lanes) - 1
        spine[i] = left + (width - SUM / 2 if right_side else SUM / 2)
        _place(plan, lane, name, style, placed, left, width, right_side)
    height = max(p.y + p.h for p in placed.values())
    streams = {(a, b): spine[i] for i, lane in enumerate(lanes) for a, b in pairwise(lane.stream)}
    middle = width + style.gutter / 2
    lane_of = {k: i for i, lane in enumerate(lanes) for k in lane.keys}
    on_stream = {k: spine[i] for i, lane in enumerate(lanes) for k in lane.stream}
    lines = []
    for link in view.links:
        a, b = placed[link.source], placed[link.target]
        if (link.source, link.target) in streams:
            x = streams[link.source, link.target]
            points: tuple[Point, ...] = ((x, a.y + a.h), (x, b.y))
        elif lane_of[link.source] != lane_of[link.target]:
            y = b.y + b.h / 2
            up = a.y + a.h + style.gap / 2
            points = (
                (a.middle[0], a.y + a.h),
                (a.middle[0], up),
                (middle, up),
                (middle, y),
                (b.x if middle < b.x else b.x + b.w, y),
            )
        else:
            points = _elbow(plan, placed, link.source, link.target, on_stream, style)
        lines.append(
            Line(
                link.source, link.target, link.shape, points, (link.source, link.target) in streams
            )
        )
    frames = tuple(_frames(view, placed, style))
    return Layout(style.width, height, placed, tuple(lines), frames)


def _place(
    plan: Plan,
    lane: Lane,
    name: Callable[[int], str],
    style: Style,
    placed: dict[int, Placed],
    left: float,
    width: float,
    right_side: bool,
) -> None:
    """Give the boxes of a lane their places, row by row."""
    rows: dict[int, list[int]] = {}
    for key in lane.keys:
        rows.setdefault(lane.rank[key], []).append(key)
    tops = {
        max(lane.rank[k] for k in f if k in lane.rank)
        for f in plan.view.within.values()
        if f & {*lane.keys}
    }
    spine = left + (width - SUM / 2 if right_side else SUM / 2)
    y = 0.0
    for rank in sorted(rows):
        keys = rows[rank]
        tall = SUM if all(plan.is_sum(k) for k in keys) else style.height
        low, high = _free(plan, lane, placed, rank, left, width)
        beside = [k for k in keys if k not in lane.stream]
        for key in keys:
            own = width
            if plan.is_sum(key):
                x, own = _center(plan, placed, key, left + width / 2), SUM
                if key in lane.stream:
                    x = spine
            elif not lane.stream:
                slot = (high - low) / len(keys)
                own = min(slot - 8, style.widest)
                x = low + slot * (keys.index(key) + 0.5)
                if len(keys) == 1:
                    x = _center(plan, placed, key, x)
                x = min(max(x, low + own / 2), high - own / 2)
            elif key in lane.stream:
                own -= (width / 2 + 4) * bool(beside)
                x = left + (width - own / 2 if right_side else own / 2)
            else:
                # Beside the stream, or beside the box that stands on it here.
                room = width / 2 - 4 if len(beside) < len(keys) else width - style.indent
                start, end = (
                    (left, left + room) if right_side else (left + width - room, left + width)
                )
                start, end = max(start, low), min(end, high)
                slot = (end - start) / len(beside)
                own = slot - (4 if len(beside) > 1 else 0)
                x = start + slot * (beside.index(key) + 0.5)
            what = "sum" if plan.is_sum(key) else "box" if key in plan.nodes else "port"
            placed[key] = Placed(key, what, name(key), x - own / 2, y, own, tall)
        y += tall + style.gap + (style.above if rank in tops else 0)


def _free(
    plan: Plan,
    lane: Lane,
    placed: Mapping[int, Placed],
    rank: int,
    left: float,
    width: float,
) -> tuple[float, float]:
    """The part of a row through which no arrow passes on its way from below to above."""
    low, high = left, left + width
    for key in lane.keys:
        above = [lane.rank[a] for a in plan.after[key] if a in lane.rank and a not in lane.stream]
        if key not in lane.stream and lane.rank[key] < rank < max(above, default=0):
            x = placed[key].middle[0]
            low, high = (low, min(high, x - 6)) if x > left + width / 2 else (max(low, x + 6), high)
    return low, high


def _center(plan: Plan, placed: Mapping[int, Placed], key: int, default: float) -> float:
    """Above the middle of what feeds it."""
    feeding = [placed[b].middle[0] for b in plan.before[key] if b in placed]
    return sum(feeding) / len(feeding) if feeding else default


def _elbow(
    plan: Plan,
    placed: Mapping[int, Placed],
    source: int,
    target: int,
    on_stream: Mapping[int, float],
    style: Style,
) -> tuple[Point, ...]:
    """From the top of a box up, to the side just below the next one, and up into it."""
    a, b = placed[source], placed[target]
    feeding = sorted(
        (k for k in plan.before[target] if k in placed), key=lambda k: placed[k].middle[0]
    )
    share = (feeding.index(source) + 1) / (len(feeding) + 1) if source in feeding else 0.5
    x1 = b.x + b.w * share
    x0 = a.middle[0]
    if source in on_stream:
        x0, x1 = on_stream[source], b.middle[0]
    if target in on_stream and b.what == "sum":
        # Back to the stream: into the side of the "+".
        x1 = b.x + b.w if a.middle[0] > b.middle[0] else b.x
        y = b.y + b.h / 2
        return ((x0, a.y + a.h), (x0, y), (x1, y))
    below = b.y - min(style.gap / 2, 8)
    if abs(x0 - x1) < 0.5:
        return ((x0, a.y + a.h), (x0, b.y))
    start = (x0, a.y + a.h)
    if source in on_stream:
        start = (x0, below)  # it leaves the stream here, where the stream goes on
        if not any(t in on_stream for t in plan.after[source]):
            start = (x0, a.y + a.h)
    corners = [start, (x0, below), (x1, below), (x1, b.y)]
    return tuple(p for i, p in enumerate(corners) if i == 0 or p != corners[i - 1])


def _frames(view: View, placed: Mapping[int, Placed], style: Style) -> list[Frame]:
    """A frame around each repeated layer that is open."""
    made = []
    for node in view.frames:
        inner = [placed[n] for n in view.within[node.number]]
        x, y = min(p.x for p in inner), min(p.y for p in inner)
        right, top = max(p.x + p.w for p in inner), max(p.y + p.h for p in inner)
        space = style.gap / 2 - 1
        made.append(
            Frame(
                node.number, x - 3, y - space, right - x + 6, top - y + 2 * space, f"{node.times} ×"
            )
        )
    return made
