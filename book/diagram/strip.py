"""The whole model as a strip, from left to right: what every chapter begins with.

    Strip(diagram, "2017")

The strip is drawn from the traced graph when the cell of chapter 02 runs, as SVG whose boxes say
which part they are (`data-part`) and lead to their chapters. `book.you_are_here` takes it from
there and lights the part of a chapter; that needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby

from book.diagram.draw import Diagram
from book.diagram.layout import Lane, Plan
from book.diagram.parts import PARTS, chapter_of, key_of, node_counts

TALL = 20.0  # of a box
BETWEEN = 4.0  # from the stream down to what stands beside it
GAP = 3.0
EDGE = 1.5
LETTER = 5.1
LANE = 2 * TALL + BETWEEN
OFTEN = 28.0  # the width of how often a layer stands there
Place = tuple[float, float, float]  # x, y of the upper edge, width


@dataclass(frozen=True)
class Strip:
    """A diagram as a strip, under a name by which the pages find it."""

    diagram: Diagram
    name: str

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/html": self.svg(), "text/plain": self.text()}

    def text(self) -> str:
        """Every part, how often it stands in the model, and its chapter."""
        parts = self.diagram.parts()
        rows = [f"The strip of {self.name}"]
        for key, nodes in parts.items():
            times = sum(node_counts(self.diagram.graph, node) for node in nodes)
            rows.append(f"{PARTS[key].label}: {times} ×, {chapter_of(PARTS[key].topic)}")
        return "\n".join(rows)

    def svg(self) -> str:
        """The drawing."""
        view = self.diagram.view()
        plan = Plan(view)
        lanes = plan.lanes()
        made: list[str] = []
        behind: list[str] = []
        right = 0.0
        for i, lane in enumerate(lanes):
            # The streams run outside, so that what stands beside them meets in the middle.
            up = i == len(lanes) - 1 and i > 0
            top = EDGE + i * (LANE + GAP + 3)  # a frame goes 1 beyond its lane on either side
            places, stream = self._places(plan, lane, top, up)
            right = max(right, *(x + w for x, _, w in places.values()))
            behind.append(_line("M{:g} {:g}H{:g}", places[lane.stream[0]][0], stream, 0, "stream"))
            end = max(places[k][0] + places[k][2] for k in lane.stream)
            behind[-1] = behind[-1].replace('H0"', f'H{end:g}"')
            behind += self._frames(places, top)
            behind += self._branches(plan, lane, places, stream, up)
            made += [self._box(key, places[key]) for key in lane.keys if key in places]
            lane_places = places
            if i == 0:
                first = places
        if len(lanes) == 2:
            behind += self._between(plan, lanes, first, lane_places)
        width = right + EDGE
        height = 2 * EDGE + len(lanes) * LANE + (len(lanes) - 1) * (GAP + 3) + 0.5
        return (
            f'<svg class="tp-strip" data-strip="{escape(self.name)}" '
            f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">'
            f"{''.join(behind)}{''.join(made)}</svg>"
        )

    def _places(
        self, plan: Plan, lane: Lane, top: float, up: bool
    ) -> tuple[dict[int, Place], float]:
        """Where the boxes of a lane stand, and the height of its stream."""
        on, beside = (top + TALL + BETWEEN, top) if up else (top, top + TALL + BETWEEN)
        places: dict[int, Place] = {}
        x = EDGE
        keys = sorted(lane.keys, key=lambda k: (lane.rank[k], k not in lane.stream))
        for _, row in groupby(keys, key=lambda k: lane.rank[k]):
            start, ends = x, [x]
            for key in row:
                if plan.is_sum(key):
                    # Above the end of what it adds.
                    last = max(
                        (places[b] for b in plan.before[key] if b not in lane.stream),
                        default=(x, 0, TALL),
                    )
                    places[key] = (last[0] + last[2] / 2 - TALL / 2, on, TALL)
                    continue
                short = self._short(key)
                width = max(24.0, 5 + LETTER * len(short)) if short else 6.0
                places[key] = (start, on if key in lane.stream else beside, width)
                ends.append(start + width + GAP)
            x = max(ends)
            for inside in self.diagram.view().within.values():
                held = [places[k] for k in inside if k in places]
                if held and max(lane.rank.get(k, -1) for k in inside) == lane.rank[key]:
                    x += OFTEN * (_free_y(held, top) is None)
        return places, on + TALL / 2

    def _short(self, number: int) -> str:
        key = key_of(self.diagram.graph, number)
        node = self.diagram.graph.nodes[number]
        if node.kind in ("input", "output"):
            return ""
        return PARTS[key].short if key in PARTS else key

    def _box(self, number: int, place: Place) -> str:
        """A box with its name, which leads to its chapter."""
        graph = self.diagram.graph
        key, node = key_of(graph, number), graph.nodes[number]
        x, y, w = place
        if key not in PARTS:
            return ""
        part = PARTS[key]
        learned = " tp-learned" if node.learned else ""
        round_ = TALL / 2 if key == "sum" else 4
        side = TALL if key == "sum" else w
        # However wide the reader's font is, the name fits.
        length = min(_length(part.short), side - 4)
        fit = f' textLength="{length:g}" lengthAdjust="spacingAndGlyphs"' if key != "sum" else ""
        return (
            f'<a class="tp-part{learned}" data-part="{escape(key)}" '
            f'href="{chapter_of(part.topic)}.ipynb" aria-label="{escape(part.label)}">'
            f'<rect x="{x:g}" y="{y:g}" width="{side:g}" height="{TALL:g}" rx="{round_:g}"/>'
            f'<text x="{x + side / 2:g}" y="{y + TALL / 2 + 3.2:g}"{fit}>'
            f"{escape(part.short)}</text></a>"
        )

    def _frames(self, places: dict[int, Place], top: float) -> Iterator[str]:
        """A frame around a repeated layer, with how often it stands there."""
        graph = self.diagram.graph
        for number, inside in self.diagram.view().within.items():
            found = [places[k] for k in inside if k in places]
            if not found:
                continue
            x = min(p[0] for p in found) - 2
            right = max(p[0] + p[2] for p in found) + 2
            key, times = key_of(graph, number), graph.nodes[number].times
            y = _free_y(found, top)
            if y is None:  # behind the layer, in the row where no stream runs
                right += OFTEN
                y = max(p[1] for p in found) + TALL / 2 + 3.2
            yield (
                f'<g class="tp-layer" data-part="{escape(key)}">'
                f'<rect x="{x:g}" y="{top - 1:g}" width="{right - x:g}" '
                f'height="{LANE + 2:g}" rx="5"/>'
                f'<text x="{right - 4:g}" y="{y:g}">{times} ×</text></g>'
            )

    def _branches(
        self, plan: Plan, lane: Lane, places: dict[int, Place], stream: float, up: bool
    ) -> Iterator[str]:
        """From the stream to what stands beside it, on to the next, and back to the "+"."""
        for key in lane.keys:
            if key in lane.stream or key not in places:
                continue
            x, y, w = places[key]
            near = y + TALL if up else y
            for before in plan.before[key]:
                if before in lane.stream:
                    yield _line("M{:g} {:g}V{:g}", x + 5, stream, near)
                elif before in places:
                    a = places[before]
                    yield _line("M{:g} {:g}H{:g}", a[0] + a[2], y + TALL / 2, x)
            if any(plan.is_sum(after) for after in plan.after[key]):
                yield _line("M{:g} {:g}V{:g}", x + w / 2, near, stream)

    def _between(
        self, plan: Plan, lanes: list[Lane], first: dict[int, Place], second: dict[int, Place]
    ) -> Iterator[str]:
        """From the end of the first lane to where the second lane takes it in."""
        x, y, w = first[lanes[0].stream[-1]]
        for key in plan.after[lanes[0].stream[-1]]:
            if key in second:
                to_x, to_y, to_w = second[key]
                end = to_x + to_w / 2 + 4
                middle = y + TALL / 2
                yield (
                    f'<path class="tp-line" d="M{x + w:g} {middle:g}H{x + w + 6:g}'
                    f'V{to_y - 4:g}H{end:g}V{to_y:g}"/>'
                )


def _length(text: str) -> float:
    """About how long a text is in 9 units, a little narrower than in most fonts."""
    wide = {
        "m": 8.0,
        "w": 7.0,
        "+": 6.0,
        "i": 2.4,
        "l": 2.4,
        "r": 3.4,
        "t": 3.4,
        "f": 3.0,
        " ": 2.6,
    }
    return sum(wide.get(letter, 6.0 if letter.isupper() else 5.0) for letter in text)


def _free_y(found: list[Place], top: float) -> float | None:
    """The row of a frame whose right end is free, if one is."""
    right = max(p[0] + p[2] for p in found)
    taken = {y for x, y, w in found if x + w > right - 18}
    row = next((y for y in (top, top + TALL + BETWEEN) if y not in taken), None)
    return None if row is None else row + TALL / 2 + 3.2


def _line(path: str, x: float, y: float, end: float, kind: str = "line") -> str:
    return f'<path class="tp-{kind}" d="{path.format(x, y, end)}"/>'
