"""A traced model as a picture that opens: the whole on one side, the inside of a part on the other.

    Diagram(folded, opened={...}, letters={7: "S", 5: "T"}).explorer("The Transformer", start="...")

Every part of the whole chooses what the second panel shows. What is drawn comes from the graph;
what is said about a part comes from `book.diagram.parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from book.diagram.layout import Layout, Line, Placed, Style, arrange
from book.diagram.parts import (
    PARTS,
    Part,
    chapter_of,
    key_of,
    label_of,
    node_counts,
    shape_text,
)
from book.diagram.trace import Graph, Node
from book.diagram.view import View, look
from book.explorer import Arrow, Box, Choice, Curve, Explorer, Frame, Scene, Text
from book.explorer.draw_scene import LETTER
from book.explorer.shapes import Role

LEARNED = 0.3  # how full a box is that holds learned numbers
INSIDE = Style(height=25.0, gap=21.0, above=0.0)
TITLE = 34.0  # the height of the line above an inner diagram
SMALL = 6.2  # the width of a letter of a small text
Area = tuple[float, float, float, float]  # left, right, low, high
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class _Pieces:
    """What does not depend on which part is open: the whole, and the inside of every part."""

    whole: Layout
    opened: Mapping[str, Mapping[str, Any]]
    height: float


@dataclass(frozen=True)
class Diagram:
    """A folded graph with the boxes that its first panel opens.

    Args:
        graph: from `book.diagram.view.fold`.
        opened: the numbers of the boxes of which the whole shows the inside.
        letters: size -> letter, for the lengths of the sequences.
    """

    graph: Graph
    opened: Set[int]
    letters: Mapping[int, str]

    # ------------------------------------------------------------ what there is

    def view(self) -> View:
        """The boxes of the whole."""
        return look(self.graph, self.graph.root.number, self.opened)

    def parts(self) -> dict[str, list[Node]]:
        """The kinds of parts of the whole, and the boxes of each kind, in the order of the run."""
        view = self.view()
        found: dict[str, list[Node]] = {}
        for node in (*view.boxes, *view.frames):
            key = key_of(self.graph, node.number)
            if key in PARTS:
                found.setdefault(key, []).append(node)
        return found

    def sentence(self, key: str) -> str:
        """What a part does, its shapes, its learned numbers and how often it stands there."""
        part, nodes = PARTS[key], self.parts()[key]
        node = nodes[-1]
        times = sum(node_counts(self.graph, n) for n in nodes)
        learned = f"{node.learned:,} learned numbers" if node.learned else "no learned numbers"
        if shared := self._shared(node):
            learned += f", one table for {' and '.join(shared)}"
        often = "once" if times == 1 else f"{times} times"
        number = chapter_of(part.topic)[:2]
        return (
            f"{part.label} {part.does}. {self._flow(nodes)}; {learned}. "
            f"It stands here {often}; chapter {number} is about it."
        )

    def _flow(self, nodes: Sequence[Node]) -> str:
        """What goes in and out of the boxes of one kind, on either side of a translation."""
        flows: dict[tuple[str, str], None] = {}
        for node in nodes:
            given = [shape_text(shape, dict(self.letters)) for shape in node.inputs]
            flows[
                " and ".join(dict.fromkeys(given)), shape_text(node.output, dict(self.letters))
            ] = None
        if len(flows) > 1 and all(into == out for into, out in flows):
            return f"{' or '.join(out for _, out in flows)}, in and out"
        return ", or ".join(f"{into} in, {out} out" for into, out in flows)

    def _shared(self, node: Node) -> list[str]:
        """The kinds of parts that hold the very numbers of a box, its own among them."""
        numbers = sorted({node.number, *node.same} & {*self.graph.nodes})
        names = dict.fromkeys(label_of(self.graph, n) for n in numbers)
        return [*names] if len(numbers) > 1 else []

    # ------------------------------------------------------------ pictures

    def explorer(self, title: str, start: str) -> Explorer:
        """The picture that opens; it begins with the part `start` open."""
        pieces = self._pieces()
        keys = [*self.parts()]
        choice = Choice("part", keys, keys.index(start), lambda key: PARTS[key].label)
        return Explorer(title, {"part": choice}, lambda part: self._frame(part, pieces))

    def frame(self, part: str) -> Frame:
        """What is seen while a part is open."""
        return self._frame(part, self._pieces())

    def _pieces(self) -> _Pieces:
        view = self.view()
        inner = {key: self._inside(nodes[-1]) for key, nodes in self.parts().items()}
        height = max(lay.height for lay in inner.values()) + TITLE
        opened = {key: _numbered(self._opened(key, lay, height)) for key, lay in inner.items()}
        return _Pieces(arrange(view, self._names(view)), opened, height)

    def _frame(self, part: str, pieces: _Pieces) -> Frame:
        whole = pieces.whole
        shapes = _pooled(pieces.opened) | dict(pieces.opened[part])
        return Frame(
            self.sentence(part),
            self._scene("The whole", dict(self._whole(whole, part)), whole.height),
            self._scene("Inside the part", shapes, pieces.height),
        )

    def _scene(self, title: str, shapes: Mapping[str, Any], height: float) -> Scene:
        # A unit of the layout is a unit of the page: the margins of a scene are 18 in all.
        return Scene(
            title,
            shapes,
            xlim=(0, Style().width),
            ylim=(-2, height + 2),
            width=340,
            height=height + 4 + 18,
        )

    def _names(self, view: View) -> Any:
        """What stands in the boxes and ports of a view."""
        texts = {
            node.number: label_of(self.graph, node.number)
            for node in view.boxes
            if node.number in self.graph.nodes
        }
        into = [port for port in view.ports if port.comes_in]
        for port in view.ports:
            shape = shape_text(port.shape, dict(self.letters))
            name = self._port(port.outside, alone=len(into) == 1)
            texts[port.number] = f"{name}: {shape}" if port.comes_in else shape
        for node in view.boxes:
            if node.kind == "parameter":
                texts[node.number] = f"{node.name}: {shape_text(node.output, {})}"
            if node.kind in ("input", "output"):
                shape = shape_text(node.output, dict(self.letters))
                name = node.name if node.kind == "input" else "probabilities"
                texts[node.number] = f"{name}: {shape}"
        return texts.__getitem__

    def _port(self, outside: tuple[int, ...], *, alone: bool) -> str:
        """What comes in through a port: named, where there are several, by the box it is from."""
        keys = {key_of(self.graph, number) for number in outside}
        for key, name in {"rope": "angles", "encoder layer": "memory"}.items():
            if key in keys:
                return name
        return "in" if alone else label_of(self.graph, outside[0])

    def _inside(self, node: Node) -> Layout:
        view = look(self.graph, node.number, self._residuals(node.number))
        return arrange(view, self._names(view), INSIDE)

    def _residuals(self, inside: int) -> set[int]:
        """The boxes around a part and its sum: they have no name of their own."""
        return {
            n
            for n, node in self.graph.nodes.items()
            if n in self.opened and n != inside and inside in self.graph.ancestors(n)
        }

    def _whole(self, lay: Layout, part: str) -> Iterator[tuple[str, Any]]:
        """The shapes of the whole, with one part of it lit."""
        for i, frame in enumerate(lay.frames):
            key = key_of(self.graph, frame.number)
            yield (
                f"layer {i}",
                Box(
                    frame.x, frame.y, frame.w, frame.h,
                    dash=True, role="quiet", sets={"part": key}, strong=key == part,
                    detail=PARTS[key].label,
                ),
            )  # fmt: skip
            yield (
                f"times {i}",
                Text(
                    frame.x + (30 if frame.x < 100 else 8),
                    frame.y + frame.h + 6,
                    frame.label,
                    anchor="start",
                    role="quiet",
                    small=True,
                ),
            )
        if len({line.points[0][0] for line in lay.lines if line.stream}) > 1:
            yield from _key(lay.height)
        yield from _lines(lay.lines, "line")
        for i, placed in enumerate(lay.placed.values()):
            key = key_of(self.graph, placed.number)
            if key in PARTS:
                shape = self._box(placed, PARTS[key])
                if LETTER * len(shape.label) > placed.w - 4:
                    shape = replace(shape, label=PARTS[key].narrow or shape.label)
                yield (
                    f"box {i}",
                    replace(shape, sets={"part": key}, strong=key == part),
                )
            else:
                yield f"box {i}", Text(*placed.middle, placed.label, role="data")

    def _box(self, placed: Placed, part: Part | None) -> Box:
        """A box: full if it holds learned numbers, empty if not."""
        node = self.graph.nodes.get(placed.number)
        return Box(
            placed.x,
            placed.y,
            placed.w,
            placed.h,
            placed.label,
            fill=LEARNED if node is None or node.learned else None,
            role=part.role if part else "ink",  # type: ignore[arg-type]
        )

    def _opened(self, key: str, lay: Layout, height: float) -> Iterator[tuple[str, Any]]:
        """The shapes of an inner diagram, its name and the way to its chapter."""
        part = PARTS[key]
        stem = chapter_of(part.topic)
        up = height - TITLE - lay.height
        yield "text start", Text(0, height - 14, part.label, anchor="start", strong=True)
        yield (
            f"chapter {stem[:2]}",
            Box(
                212, height - 27, 110, 26, f"Chapter {stem[:2]} →", role="quiet",
                href=f"{stem}.ipynb",
            ),
        )  # fmt: skip
        moved = [
            replace(line, points=tuple((x, y + up) for x, y in line.points)) for line in lay.lines
        ]
        for name, shape in _lines(moved, "line", corners=4):
            yield name.split()[0] + " end" * name.endswith("end"), shape
        yield from self._shapes(lay, up)
        for placed in lay.placed.values():
            placed = replace(placed, y=placed.y + up)
            if placed.what == "port":
                yield "text middle", Text(*placed.middle, placed.label, role="data")
                continue
            if placed.number not in self.graph.nodes:
                shape = self._box(placed, None)
                yield "box", replace(shape, detail=f"{placed.label}: a learned parameter.")
                continue
            inner = key_of(self.graph, placed.number)
            shape = self._box(placed, PARTS.get(inner))
            yield "box", replace(shape, detail=self._detail(placed.number))

    def _shapes(self, lay: Layout, up: float) -> Iterator[tuple[str, Any]]:
        """The shape of what each box of an inner diagram makes, beside its first arrow."""
        known = {line.shape for line in lay.lines for end in (line.source, line.target) if end < 0}
        made: dict[int, list[Line]] = {}
        for line in lay.lines:
            if line.shape not in known and line.source in self.graph.nodes:
                made.setdefault(line.source, []).append(line)
        taken = [*_taken(lay)]
        # The longest ways choose first: their texts stand between those of others.
        for lines in sorted(made.values(), key=lambda some: -_rise(lay, some[0])):
            shapes = dict.fromkeys(shape_text(line.shape, dict(self.letters)) for line in lines)
            text = _together([*shapes])
            x, y, anchor = _room(lay, lines[0], SMALL * len(text), taken)
            taken.append(_area(x, y, SMALL * len(text), anchor))
            yield (
                f"text {anchor}",
                Text(x, y + up, text, anchor=anchor, role="data", small=True),
            )

    def _detail(self, number: int) -> str:
        """What is said about a box inside a part."""
        node = self.graph.nodes[number]
        key = key_of(self.graph, number)
        does = (
            f"{PARTS[key].label} {PARTS[key].does}"
            if key in PARTS
            else label_of(self.graph, number)
        )
        held = "; ".join(
            f"{name} {shape_text(shape, {})}" for name, shape in node.parameters.items()
        )
        if len(node.parameters) > 4 or not node.learned:
            held = f"{node.learned:,} learned numbers" if node.learned else "no learned numbers"
        else:
            held = f"learned: {held}"
        return f"{does}. Out: {shape_text(node.output, dict(self.letters))}; {held}."


def _together(shapes: Sequence[str]) -> str:
    """Several shapes in one text: "32 and 8 × T × 128" for two that differ in the first size."""
    firsts, rests = zip(*(shape.partition(" × ")[::2] for shape in shapes), strict=True)
    return f"{' and '.join(firsts)} × {rests[0]}" if len({*rests}) == 1 else ", ".join(shapes)


def _area(x: float, y: float, width: float, anchor: str) -> Area:
    """Where a text in a small font stands."""
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return left, left + width, y - 5, y + 5


def _taken(lay: Layout) -> Iterator[Area]:
    """Where boxes, ports and arrows leave no room for a text."""
    for p in lay.placed.values():
        if p.what == "port":
            left, right, _, _ = _area(p.middle[0], 0, LETTER * len(p.label), "middle")
            yield left, right, p.y + 5, p.y + p.h - 5
        else:
            yield p.x, p.x + p.w, p.y, p.y + p.h
    for line in lay.lines:
        for (xa, ya), (xb, yb) in pairwise(line.points):
            yield min(xa, xb) - 2, max(xa, xb) + 2, min(ya, yb) - 1, max(ya, yb) + 1


def _rise(lay: Layout, line: Line) -> float:
    """How far up an arrow leads."""
    return lay.placed[line.target].y - line.points[0][1]


def _room(
    lay: Layout, line: Line, width: float, taken: Sequence[Area]
) -> tuple[float, float, Anchor]:
    """Where a text beside the start of an arrow has room, and how it is anchored there.

    On a long way up it stands further up, where there is more room. Where there is room nowhere, it
    stands where it would stand first.
    """
    x, foot = line.points[0]
    step = INSIDE.height + INSIDE.gap
    rows = [step, 2 * step, 0.0] if _rise(lay, line) > 1.5 * INSIDE.gap else [0.0]
    sides: list[tuple[float, Anchor]] = [(x + 5, "start"), (x - 5, "end")]
    if x > 0.75 * lay.width:
        sides.reverse()
    places = [(at, foot + 7 + row, anchor) for row in rows for at, anchor in sides]

    def free(place: tuple[float, float, Anchor]) -> bool:
        left, right, low, high = _area(place[0], place[1], width, place[2])
        return (
            left >= 0
            and right <= lay.width
            and not any(
                left < x1 and x0 < right and low < y1 and y0 < high for x0, x1, y0, y1 in taken
            )
        )

    return next(filter(free, places), places[0])


def _key(top: float) -> Iterator[tuple[str, Any]]:
    """What the looks of boxes and lines mean, in the corner that two lanes leave free."""
    looks: tuple[tuple[str, float | None, Role], ...] = (
        ("learned numbers", LEARNED, "ink"),
        ("attention: learned, too", LEARNED, "weight"),
        ("no learned numbers", None, "ink"),
    )
    for i, (text, fill, role) in enumerate(looks):
        y = top - 16 - 22 * i
        yield f"key {i}", Box(0, y, 22, 14, fill=fill, role=role)
        yield f"key text {i}", Text(28, y + 7, text, anchor="start", role="quiet", small=True)
    y = top - 75
    yield "key line", Arrow(0, y, 22, y, role="data", strong=True)
    yield "key text line", Text(28, y, "data", anchor="start", role="quiet", small=True)


def _lines(lines: Any, name: str, corners: int = 0) -> Iterator[tuple[str, Any]]:
    """Arrows with corners: a curve to the last corner, and an arrow from there.

    A curve that is to stand for others in other states has as many corners as these.
    """
    line: Line
    for i, line in enumerate(lines):
        *before, last, end = line.points
        if before:
            points = [*before, *[last] * max(1, corners - len(before))]
            xs, ys = zip(*points, strict=True)
            yield f"{name} {i}", Curve(xs, ys, role="data", strong=line.stream)
        yield f"{name} {i} end", Arrow(*last, *end, role="data", strong=line.stream)


def _pooled(opened: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A shape for every name that occurs: in states that lack it, it is out of sight."""
    kinds = ("line", "text", "box", "chapter")  # what comes later lies on top
    found = {name: shape for shapes in opened.values() for name, shape in shapes.items()}
    order = sorted(found, key=lambda name: [name.startswith(kind) for kind in kinds][::-1])
    return {name: replace(found[name], shown=False) for name in order}


def _numbered(shapes: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Shapes by name, those of one name with a number each."""
    made: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for name, shape in shapes:
        counts[name] = counts.get(name, 0) + 1
        made[f"{name} {counts[name]}"] = shape
    return made
