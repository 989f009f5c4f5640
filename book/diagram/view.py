"""What of a traced graph is shown: repeated layers once, some boxes open and the others closed.

folded = fold(graph)                       # six equal layers in a row become one, times 6
view = look(folded, inside=0, opened={3})  # the boxes inside box 0, those of box 3 among them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from book.diagram.trace import Edge, Graph, Node, Shape

LISTS = ("ModuleList", "ModuleDict")


@dataclass(frozen=True)
class Link:
    """An arrow between two boxes of a view; a port has a negative number."""

    source: int
    target: int
    shape: Shape


@dataclass(frozen=True)
class Port:
    """Where an arrow comes in from outside or goes out; `outside` are the boxes there."""

    number: int
    outside: tuple[int, ...]
    shape: Shape
    comes_in: bool


@dataclass(frozen=True)
class View:
    """The boxes that are seen, the arrows between them, and the frames around repeated boxes."""

    inside: int
    boxes: tuple[Node, ...]
    links: tuple[Link, ...]
    ports: tuple[Port, ...]
    frames: tuple[Node, ...]  # opened boxes that are repeated
    within: Mapping[int, frozenset[int]]  # the boxes inside each of these


# ---------------------------------------------------------------- repeated layers


def fold(graph: Graph) -> Graph:
    """The graph in which equal boxes that follow each other in a list are one box, `times` many.

    Equal means: the same classes, shapes and parameters inside, joined in the same way, and each
    fed by the one before as the next by it. Layers that differ stay apart.
    """
    for node in list(graph.nodes.values()):
        if node.kind in LISTS and node.number in graph.nodes:
            for run in _runs(graph, node.number):
                graph = _merge(graph, run)
    return graph


def _inner(graph: Graph, number: int) -> list[int]:
    """A box and all that is inside, in the order of the calls."""
    return [n for n in graph.nodes if number in graph.ancestors(n)]


def _signature(graph: Graph, number: int) -> tuple[Any, ...]:
    """What two equal boxes have in common."""
    inner = _inner(graph, number)
    place = {n: i for i, n in enumerate(inner)}
    start = len(graph.nodes[number].name)
    rows = [
        (
            node.kind,
            node.name[start:] if n != number and node.kind != "operation" else node.kind,
            place.get(-1 if node.parent is None else node.parent),
            node.inputs,
            node.output,
            tuple(node.parameters.items()),
            tuple(node.options.items()),
        )
        for n in inner
        for node in [graph.nodes[n]]
    ]
    within = [
        (place[e.source], place[e.target], e.shape)
        for e in graph.edges
        if e.source in place and e.target in place
    ]
    return (tuple(rows), tuple(sorted(within)))


def _fed(graph: Graph, before: int, number: int) -> set[tuple[int, bool, int]]:
    """Which places inside a box are fed by which places of the one before, or from elsewhere."""
    place = {n: i for i, n in enumerate(_inner(graph, number))}
    previous = {n: i for i, n in enumerate(_inner(graph, before))}
    return {
        (place[e.target], e.source in previous, previous.get(e.source, e.source))
        for e in graph.edges
        if e.target in place and e.source not in place
    }


def _runs(graph: Graph, number: int) -> Iterator[list[int]]:
    """The equal boxes in a row, two or more, inside a list."""
    children = [child.number for child in graph.children(number)]
    run: list[int] = []
    for child in children:
        fits = (
            bool(run)
            and _signature(graph, run[0]) == _signature(graph, child)
            and (len(run) < 2 or _fed(graph, run[-1], child) == _fed(graph, run[-2], run[-1]))
        )
        if not fits:
            if len(run) > 1:
                yield run
            run = []
        run.append(child)
    if len(run) > 1:
        yield run


def _merge(graph: Graph, run: list[int]) -> Graph:
    """Put the boxes of a run on top of the first of them."""
    first = _inner(graph, run[0])
    onto = {n: first[i] for copy in run for i, n in enumerate(_inner(graph, copy))}
    copy_of = {n: copy for copy in run for n in _inner(graph, copy)}
    edges: dict[Edge, None] = {}
    for e in graph.edges:
        a, b = copy_of.get(e.source), copy_of.get(e.target)
        if a is not None and b is not None and a != b:
            continue  # from one copy to the next
        edges[Edge(onto.get(e.source, e.source), onto.get(e.target, e.target), e.shape)] = None
    nodes = {n: node for n, node in graph.nodes.items() if onto.get(n, n) == n}
    nodes[run[0]] = replace(nodes[run[0]], times=len(run))
    return Graph(nodes, tuple(edges))


# ---------------------------------------------------------------- open and closed


def look(graph: Graph, inside: int, opened: Set[int] = frozenset()) -> View:
    """The boxes inside one; those of `opened`, and of lists, are replaced by what is in them."""
    # A box without anything inside shows itself, and what it has learned.
    shown = _shown(graph, inside, opened)
    boxes = shown or [inside]
    learned = {} if shown else _learned(graph.nodes[inside])
    seen: dict[int, int] = {}
    for n in graph.nodes:
        for around in graph.ancestors(n):
            if around in boxes:
                seen[n] = around
                break
    links = {Link(n, inside, node.output or ()): None for n, node in learned.items()}
    ports: dict[tuple[int, bool], Port] = {}
    outside = _outer(graph, inside)

    def port(other: int, shape: Shape, *, comes_in: bool) -> int:
        """The number of the port to or from a box outside; all arrows out share one."""
        key = (other if comes_in else -1, comes_in)
        one = ports.get(key) or Port(-2 - len(ports), (), shape, comes_in)
        ports[key] = replace(one, outside=tuple(dict.fromkeys((*one.outside, other))))
        return one.number

    for e in graph.edges:
        a, b = seen.get(e.source), seen.get(e.target)
        if a == b:
            continue
        if a is None:
            a = port(outside(e.source), e.shape, comes_in=True)
        if b is None:
            b = port(outside(e.target), e.shape, comes_in=False)
        links[Link(a, b, e.shape)] = None
    frames = tuple(
        graph.nodes[n]
        for n in graph.nodes
        if n in opened and graph.nodes[n].times > 1 and inside in graph.ancestors(n)
    )
    within = {
        f.number: frozenset(n for n in boxes if f.number in graph.ancestors(n)) for f in frames
    }
    nodes = (*(graph.nodes[n] for n in boxes), *learned.values())
    return View(inside, nodes, tuple(links), tuple(ports.values()), frames, within)


def _learned(node: Node) -> dict[int, Node]:
    """A box for each parameter of a box; their numbers are those of no call."""
    start = 1_000_000
    return {
        start + i: Node(
            start + i, node.number, name, "parameter", output=shape, parameters={name: shape}
        )
        for i, (name, shape) in enumerate(node.parameters.items())
    }


def _shown(graph: Graph, inside: int, opened: Set[int]) -> list[int]:
    found: list[int] = []
    for child in graph.children(inside):
        if child.number in opened or child.kind in LISTS:
            found += _shown(graph, child.number, opened)
        else:
            found.append(child.number)
    return found


def _outer(graph: Graph, inside: int) -> Callable[[int], int]:
    """Which box, seen from `inside`, a tensor from outside belongs to: its innermost named box."""
    around = set(graph.ancestors(inside))

    def outside(number: int) -> int:
        # The outermost box that does not hold `inside` too.
        kept = number
        for a in graph.ancestors(number):
            if a in around:
                break
            if graph.nodes[a].kind not in LISTS:
                kept = a
        return kept

    return outside
