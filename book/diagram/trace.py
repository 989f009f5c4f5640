"""What a module does with its inputs, recorded while it runs.

    graph = trace(model, {"src": src, "tgt": tgt})

The boxes of a diagram are calls: of modules, of the operations in `OPERATIONS` that join or bend
data, and of functions that the caller names. The arrows are tensors, followed from the call that
made them to the calls that take them. What only changes the form of a tensor (a transpose, a split
into heads, a cast) is no box: the tensor is followed through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Shape = tuple[int, ...]

# Functions of torch that become boxes, by the name under which torch calls them. A sum or a
# product is a box only if two tensors meet in it, neither of which is a plain number.
OPERATIONS = {
    "add": "add",
    "__add__": "add",
    "__radd__": "add",
    "mul": "multiply",
    "__mul__": "multiply",
    "__rmul__": "multiply",
    "matmul": "product",
    "__matmul__": "product",
    "cat": "join",
    "softmax": "softmax",
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "scaled_dot_product_attention": "attention",
}
_MEETING = {"add", "multiply", "join"}
# Modules that leave their input as it is when nothing is dropped.
_UNSEEN = (nn.Dropout, nn.Identity)


@dataclass(frozen=True)
class Node:
    """One box: a call of a module or of an operation, or a list of modules that were called.

    `inputs` and `sources` go together: the shape of each tensor given, and the boxes that made it.
    `options` are the arguments by keyword that are no tensors, such as `is_causal`.
    """

    number: int
    parent: int | None
    name: str  # as in named_modules; of an operation, what it is
    kind: str  # the class of the module; "operation", "input", "output", "table" for the others
    inputs: tuple[Shape, ...] = ()
    sources: tuple[frozenset[int], ...] = ()
    output: Shape | None = None
    parameters: Mapping[str, Shape] = field(default_factory=dict)  # its own and its parts'
    options: Mapping[str, object] = field(default_factory=dict)
    times: int = 1  # equal boxes in a row, of which this is the first
    same: frozenset[int] = frozenset()  # other boxes that hold the very same parameters

    @property
    def learned(self) -> int:
        """How many learned numbers it holds."""
        return sum(_size(shape) for shape in self.parameters.values())


@dataclass(frozen=True)
class Edge:
    """One arrow: a tensor of this shape, from the box that made it to one that takes it."""

    source: int
    target: int
    shape: Shape


@dataclass(frozen=True)
class Graph:
    """Boxes by number, in the order of the calls, and the arrows between innermost boxes."""

    nodes: Mapping[int, Node]
    edges: tuple[Edge, ...]

    @property
    def root(self) -> Node:
        """The module itself."""
        return next(iter(self.nodes.values()))

    def children(self, number: int) -> list[Node]:
        """The boxes directly inside one."""
        return [node for node in self.nodes.values() if node.parent == number]

    def ancestors(self, number: int) -> Iterator[int]:
        """A box, the one around it, and so on to the module itself."""
        at: int | None = number
        while at is not None:
            yield at
            at = self.nodes[at].parent

    def find(self, name: str) -> Node:
        """The first box of this name.

        Raises:
            KeyError: if there is none.
        """
        for node in self.nodes.values():
            if node.name == name:
                return node
        raise KeyError(
            f"no box is called {name!r}; there are {[n.name for n in self.nodes.values()]}"
        )


def _size(shape: Shape) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def trace(
    module: nn.Module,
    inputs: Mapping[str, Tensor] | Sequence[Tensor],
    *,
    watch: Mapping[str, tuple[object, str]] | None = None,
    closed: tuple[type[nn.Module], ...] = (),
) -> Graph:
    """Run a module once and return the graph of what happened.

    Args:
        module: any module; it runs in evaluation mode, and no gradients are recorded. On the device
            "meta", where tensors have shapes and no numbers, whatever asks for a number gets 0.
        inputs: what it is called with, by position, or by name for boxes that say it.
        watch: further functions that are boxes: name of the box -> (owner, attribute), such as
            {"rotate": (kv_cache, "apply_rotary_emb")}. Its inside is not shown.
        closed: classes of modules whose inside is not shown either. A module without parts is
            always closed.

    Masks, that is tensors of True and False, are not followed.
    """
    named = (
        inputs if isinstance(inputs, Mapping) else {f"input {i}": t for i, t in enumerate(inputs)}
    )
    recorder = _Recorder(module, closed)
    training = module.training
    module.eval()
    with ExitStack() as stack:
        stack.callback(module.train, training)
        stack.enter_context(torch.no_grad())
        for name, owner in (watch or {}).items():
            stack.enter_context(_watched(recorder, name, *owner))
        for handle in recorder.hooks():
            stack.callback(handle.remove)
        stack.enter_context(recorder)
        recorder.give(named)
        result = module(*named.values())
        recorder.finish(result)
    return recorder.graph()


def _watched(recorder: _Recorder, name: str, owner: object, attribute: str) -> Any:
    """A patch that makes a box of every call of a function."""
    function = getattr(owner, attribute)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        node = recorder.begin(name, "function", args, kwargs)
        if args and isinstance(args[0], nn.Module):  # a method: its module's weights are at work
            recorder.learns(node, args[0])
        recorder.closed_depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            recorder.closed_depth -= 1
        recorder.made(node, result)
        return result

    return mock.patch.object(owner, attribute, wrapper)


class _Recorder(TorchFunctionMode):
    """Follows tensors: which box made each of them."""

    def __init__(self, module: nn.Module, closed: tuple[type[nn.Module], ...]) -> None:
        super().__init__()
        self.module, self.closed = module, closed
        self.nodes: dict[int, Node] = {}
        self.edges: dict[Edge, None] = {}
        self.stack: list[int] = []
        self.closed_depth = 0
        self.lists: dict[tuple[int | None, str], int] = {}
        self.held: dict[int, frozenset[int]] = {}  # the identities of a box's parameters
        self.origin: dict[int, frozenset[int]] = {}
        self.kept: list[Tensor] = []  # so that no tensor gets the id of an earlier one
        self.tables = {id(t): name for name, t in _own_tensors(module)}

    # ------------------------------------------------------------ boxes

    def begin(
        self, name: str, kind: str, args: Any, kwargs: Mapping[str, Any] | None = None
    ) -> int:
        """A new box at the place where the run is now."""
        given = [t for t in (*tensors(args), *tensors(kwargs or {})) if t.dtype != torch.bool]
        number = len(self.nodes)
        options = {
            k: v for k, v in (kwargs or {}).items() if isinstance(v, bool | int | float | str)
        }
        self.nodes[number] = Node(
            number,
            self.stack[-1] if self.stack else None,
            name,
            kind,
            tuple(tuple(t.shape) for t in given),
            tuple(self.sources(t) for t in given),
            options=options,
        )
        return number

    def made(self, number: int, result: object) -> None:
        """A closed box has made these tensors out of its inputs."""
        node = self.nodes[number]
        for shape, sources in zip(node.inputs, node.sources, strict=True):
            for source in sorted(sources):
                self.edges[Edge(source, number, shape)] = None
        for t in tensors(result):
            self.set(t, frozenset([number]))
        self.shaped(number, result)

    def shaped(self, number: int, result: object) -> None:
        """Note the shape of the first tensor that a box returns."""
        first = next(tensors(result), None)
        if first is not None:
            self.nodes[number] = replace(self.nodes[number], output=tuple(first.shape))

    def learns(self, number: int, module: nn.Module) -> None:
        """Note the parameters of a box."""
        parameters = {name: tuple(p.shape) for name, p in module.named_parameters()}
        self.nodes[number] = replace(self.nodes[number], parameters=parameters)
        self.held[number] = frozenset(id(p) for p in module.parameters())

    def sources(self, t: Tensor) -> frozenset[int]:
        """The boxes that made a tensor; a box for a table of the module at its first use."""
        if id(t) in self.origin:
            return self.origin[id(t)]
        name = self.tables.get(id(t))
        if name is None or self.closed_depth or not self.stack:
            return frozenset()
        key = (self.stack[-1], name)  # a box in each place where it is used
        if key not in self.lists:
            number = self.lists[key] = len(self.nodes)
            learned = {name: tuple(t.shape)} if isinstance(t, nn.Parameter) else {}
            self.nodes[number] = Node(
                number, key[0], name, "table", output=tuple(t.shape), parameters=learned
            )
        return frozenset([self.lists[key]])

    def set(self, t: Tensor, sources: frozenset[int]) -> None:
        """Remember who made a tensor."""
        self.kept.append(t)
        self.origin[id(t)] = sources

    def give(self, named: Mapping[str, Tensor]) -> None:
        """The boxes of the module itself and of its inputs."""
        self.nodes[0] = Node(0, None, "", type(self.module).__name__)
        for name, t in named.items():
            number = len(self.nodes)
            self.nodes[number] = Node(number, 0, name, "input", output=tuple(t.shape))
            self.set(t, frozenset([number]))

    def finish(self, result: object) -> None:
        """The box of what comes out."""
        self.stack.append(0)
        number = self.begin("output", "output", result)
        self.made(number, ())
        self.stack.pop()
        self.shaped(number, result)

    # ------------------------------------------------------------ modules

    def hooks(self) -> Iterator[Any]:
        """Hooks on every module, before and after its call."""
        for name, module in self.module.named_modules():
            if isinstance(module, _UNSEEN):
                continue
            open_ = any(True for _ in module.children()) and not isinstance(module, self.closed)
            yield module.register_forward_pre_hook(
                lambda m, args, kwargs, name=name, open_=open_: self._before(
                    name, m, args, kwargs, open_
                ),
                with_kwargs=True,
            )
            yield module.register_forward_hook(
                lambda m, args, result, open_=open_: self._after(result, open_)
            )

    def _before(self, name: str, module: nn.Module, args: Any, kwargs: Any, open_: bool) -> None:
        if self.closed_depth:
            self.closed_depth += 1
            return
        if not self.stack:
            self.stack.append(0)
            self.closed_depth += 0 if open_ else 1
            return
        self._lists(name)
        number = self.begin(name, type(module).__name__, args, kwargs)
        self.learns(number, module)
        self.stack.append(number)
        self.closed_depth += 0 if open_ else 1

    def _after(self, result: object, open_: bool) -> None:
        if self.closed_depth > 1:
            self.closed_depth -= 1
            return
        self.closed_depth -= 0 if open_ else 1
        number = self.stack[-1]
        if not open_:
            self.made(number, result)
        self.shaped(number, result)
        while self.nodes[self.stack.pop()].kind in _LISTS:
            pass
        while self.stack and self.nodes[self.stack[-1]].kind in _LISTS:
            self.stack.pop()

    def _lists(self, name: str) -> None:
        """Enter the lists that hold a module: they are called by nobody, and hold its box."""
        around = self.nodes[self.stack[-1]].name
        inner = name[len(around) + 1 :] if around and name.startswith(around + ".") else name
        start = name[: len(name) - len(inner)]
        parts = inner.split(".")[:-1]
        for k in range(len(parts)):
            path = start + ".".join(parts[: k + 1])
            owner = self.module.get_submodule(path)
            if not isinstance(owner, nn.ModuleList | nn.ModuleDict):
                continue
            key = (self.stack[-1], path)
            if key not in self.lists:
                self.lists[key] = len(self.nodes)
                self.nodes[self.lists[key]] = Node(
                    self.lists[key],
                    self.stack[-1],
                    path,
                    type(owner).__name__,
                    parameters={k: tuple(p.shape) for k, p in owner.named_parameters()},
                )
            self.stack.append(self.lists[key])

    # ------------------------------------------------------------ operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function of torch, and note what it did with whose tensors."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _NUMBERS and args[0].is_meta:
            return _NUMBERS[name]()
        inputs = [*tensors(args), *tensors(kwargs)]
        if self.closed_depth or name in ("__get__", "__set__"):
            return func(*args, **kwargs)
        known = [t for t in inputs if t.dtype != torch.bool and self.sources(t)]
        box = OPERATIONS.get(name)
        if box in _MEETING and len({self.sources(t) for t in known}) < 2:
            box = None
        number = self.begin(box, "operation", known) if box and known else None
        result = func(*args, **kwargs)
        if number is not None:
            self.made(number, result)
        elif known:
            union = frozenset().union(*(self.sources(t) for t in known))
            for t in tensors(result):
                if t.dtype != torch.bool:
                    self.set(t, union)
        return result

    def graph(self) -> Graph:
        """What was recorded, without boxes in which nothing happened."""
        ends = {n for e in self.edges for n in (e.source, e.target)}
        alive: set[int] = {0}
        for number in ends:
            at: int | None = number
            while at is not None:
                alive.add(at)
                at = self.nodes[at].parent
        nodes = {k: node for k, node in sorted(self.nodes.items()) if k in alive}
        graph = Graph(nodes, tuple(self.edges))
        shared = {k: self._same(graph, k) for k in nodes}
        return replace(graph, nodes={k: replace(n, same=shared[k]) for k, n in nodes.items()})

    def _same(self, graph: Graph, number: int) -> frozenset[int]:
        """The boxes that hold the very parameters of one, but for those around and inside it."""
        held = self.held.get(number)
        return frozenset(
            k
            for k in graph.nodes
            if held
            and self.held.get(k) == held
            and k not in graph.ancestors(number)
            and number not in graph.ancestors(k)
        )


_LISTS = ("ModuleList", "ModuleDict")
_NUMBERS: dict[str, Callable[[], Any]] = {
    "__int__": int,
    "__index__": int,
    "__float__": float,
    "__bool__": bool,
    "item": int,
}


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers of the modules that have parts, which use them by themselves."""
    for path, part in module.named_modules():
        if any(True for _ in part.children()):
            for own in (part.named_parameters(recurse=False), part.named_buffers(recurse=False)):
                for name, t in own:
                    yield f"{path}.{name}".lstrip("."), t


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors in a value, in order: through tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors(part)
