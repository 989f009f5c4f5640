"""What crosses between the student's process and the trusted one: plain data, decoded strictly.

Numbers, text, lists and tensors cross by value. A function or an object stays where it is, and the
other side holds a handle (`Remote`) on it, which can be called. Nothing is ever unpickled, and a
value of a subclass does not pass as a value of its base class.

Both sides run this module, and a call may be answered by a call back: a test may pass a function of
its own to the student's function. Gradients cross too. The side that computed a result keeps its
graph; on the other side the result comes out of `_Across`, whose backward asks for the gradients.
Parameters of a student's module have a mirror on the trusted side, an ordinary leaf tensor, so that
`loss.backward()` fills `module.weight.grad` and an optimiser may step.

The trusted side answers calls and backward passes only, and only for what a test handed over.
This module needs torch and nothing else: it is all of the book that enters the sandbox, with
`student`, `channel` and `seen`.
"""

from __future__ import annotations

import itertools
import math
import re
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from book.grading.channel import (
    BLOB_LIMIT,
    BorderError,
    Channel,
    GoneError,
    StudentError,
    TimeLimitError,
)
from book.grading.seen import MOST, recorded

TEXT_LIMIT = 100_000
# Values in one message, and how deep lists may nest.
COUNT_LIMIT = 200_000
DEPTH_LIMIT = 20
INT_BITS = 100_000
ITEMS_LIMIT = 10_000
NESTED_CALLS = 40
GRAPHS_KEPT = 1000
# What the parameters that both sides keep may take on the trusted one, in bytes.
MIRROR_LIMIT = 8 * BLOB_LIMIT
# Entries of a set or keys of a dictionary that may share a hash: each is compared with all others.
EQUAL_HASHES = 16

DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
        torch.complex128, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.bool,
    )
}  # fmt: skip
# Exceptions that one text makes. They are raised again as themselves: a test may expect one.
_RAISABLE: tuple[type[Exception], ...] = (
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, Exception,
    FloatingPointError, ImportError, IndexError, KeyError, LookupError, MemoryError,
    ModuleNotFoundError, NameError, NotImplementedError, OSError, OverflowError,
    RecursionError, ReferenceError, RuntimeError, SyntaxError, TypeError, UnboundLocalError,
    ValueError, ZeroDivisionError,
)  # fmt: skip
RAISABLE = {one.__name__: one for one in _RAISABLE}


# ---- tensors


def _packed(tensor: torch.Tensor) -> tuple[list[int], list[int] | None, bytes]:
    """Shape, strides (None if contiguous) and bytes. Only the entries of the tensor itself go.

    The memory between the entries of a strided view may hold what the other side must not see, so
    it is sent as zeros.
    """
    x = tensor.detach()
    if x.layout is not torch.strided or x.device.type != "cpu":
        raise BorderError(f"a tensor on {x.device} with layout {x.layout} cannot be checked")
    if str(x.dtype).removeprefix("torch.") not in DTYPES:
        raise BorderError(f"a tensor of dtype {x.dtype} cannot be checked")
    x = x.resolve_conj().resolve_neg()
    shape = list(x.shape)
    if x.numel() * x.element_size() > BLOB_LIMIT:
        raise BorderError(f"a tensor of shape {tuple(shape)} is too large to check")
    strides: list[int] | None = None
    if x.numel() == 0:
        return shape, None, b""
    if not x.is_contiguous():
        extent = 1 + sum((s - 1) * t for s, t in zip(shape, x.stride(), strict=True))
        if extent <= 8 * x.numel() + 64:
            strides = list(x.stride())
            buffer = torch.zeros(extent, dtype=x.dtype)
            # Expanded dimensions repeat one entry, which can be written only once.
            once = x[tuple(slice(0, 1) if t == 0 else slice(None) for t in strides)]
            try:
                buffer.as_strided(once.shape, strides).copy_(once)
            except RuntimeError:  # windows that overlap: torch does not write into them
                return shape, None, _bytes(x.contiguous())
            return shape, strides, _bytes(buffer)
    return shape, None, _bytes(x.contiguous())


def _bytes(x: torch.Tensor) -> bytes:
    # A new tensor: of a single number torch takes any stride for contiguous, and bytes need 1.
    flat = torch.empty(x.numel(), dtype=x.dtype).copy_(x.reshape(-1))
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def _unpacked(shape: Any, strides: Any, dtype: Any, data: bytes) -> torch.Tensor:
    kind = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if kind is None or not _naturals(shape):
        raise BorderError("a malformed tensor")
    count, size = math.prod(shape), kind.itemsize
    if count * size > BLOB_LIMIT:
        raise BorderError("a tensor that is too large")
    extent = count
    if strides is not None:
        if not _naturals(strides) or len(strides) != len(shape) or not count:
            raise BorderError("a malformed tensor")
        extent = 1 + sum((s - 1) * t for s, t in zip(shape, strides, strict=True))
    if extent * size != len(data):
        raise BorderError("a malformed tensor")
    flat = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
    if kind is torch.bool:
        # A byte other than 0 and 1 is no truth value; torch would compute with it.
        flat = flat.view(torch.uint8) != 0
    return flat.reshape(shape) if strides is None else flat.as_strided(shape, strides)


def _bytes_of(shape: Any, dtype: Any) -> int:
    """What a tensor takes when every entry of it is written out."""
    kind = DTYPES.get(dtype) if isinstance(dtype, str) else None
    return math.prod(shape) * kind.itemsize if kind and _naturals(shape) else 0


def _apart(values: list[Any]) -> list[Any]:
    """The values, of which not many have the same hash.

    Raises:
        BorderError: if they have: to put them into a set would take the square of their number.
    """
    count: dict[int, int] = {}
    for one in values:
        mark = hash(one)
        count[mark] = count.get(mark, 0) + 1
        if count[mark] > EQUAL_HASHES:
            raise BorderError("too many values that share a hash")
    return values


def _naturals(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) <= 64
        and all(type(n) is int and 0 <= n < 1 << 40 for n in value)
    )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes: nan equals nan, 0 is not -0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.numel() == 0 or _bytes(a.detach().contiguous()) == _bytes(b.detach().contiguous())


class _Leaf:
    """A leaf tensor that both sides have, and what it held when they last agreed."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.known = tensor.detach().clone()

    def changed(self) -> bool:
        """Whether it holds something else by now."""
        return not _same(self.tensor, self.known)

    def agree(self) -> None:
        """Remember what it holds now."""
        self.known = self.tensor.detach().clone()


# ---- handles


class Remote:
    """A function or object of the other side. It can be called; its data can be asked for.

    Comparisons and the truth value are not asked for: they would let the student's `__eq__` decide.
    """

    def __init__(self, peer: Peer, handle: int, name: str, *, module: bool = False) -> None:
        self.__dict__.update(_peer=peer, _handle=handle, _module=module, __name__=name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Send one request and wait for its answer."""
        return self._peer.ask({"op": "call", "h": self._handle}, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._peer.ask({"op": "attr", "h": self._handle, "name": name})

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask({"op": "set", "h": self._handle, "name": name}, (value,))

    def __len__(self) -> int:
        length = self._peer.ask({"op": "len", "h": self._handle})
        if type(length) is not int or length < 0:
            raise StudentError("len() of the object is not a number")
        return length

    def __iter__(self) -> Iterator[Any]:
        items = self._peer.ask({"op": "iter", "h": self._handle})
        return iter(items if isinstance(items, list) else [])

    def __getitem__(self, key: Any) -> Any:
        return self._peer.ask({"op": "item", "h": self._handle}, (key,))

    def __bool__(self) -> bool:
        raise StudentError(f"expected a plain value, got an object of type {self.__name__}")

    def __repr__(self) -> str:
        return f"<{self.__name__} of the student's code>"

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # A test may ask isinstance(layer, nn.Module).
        return torch.nn.Module if self.__dict__["_module"] else type(self)


def _remote(peer: Peer, handle: int, name: str, module: bool) -> Remote:
    """A `Remote` whose class has the name of the student's, for the messages of the checkers."""
    own = name if re.fullmatch(r"[A-Za-z_]\w{0,39}", name) else "object"
    return cast(Remote, type(own, (Remote,), {})(peer, handle, own, module=module))


class _Across(torch.autograd.Function):
    """A result of the other side, with the way back to the gradients there."""

    @staticmethod
    def forward(ctx: Any, peer: Peer, graph: int, outs: list[torch.Tensor], *inputs: Any) -> Any:
        ctx.peer, ctx.graph = peer, graph
        ctx.shapes = [(i.shape, i.dtype) for i in inputs]
        ctx.set_materialize_grads(False)
        weakref.finalize(ctx, peer.drops.append, graph)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "a second derivative through a student's function cannot be computed here: "
                "test it with values, or call backward without create_graph"
            )
        got = ctx.peer.ask({"op": "backward", "graph": ctx.graph}, grads)
        if type(got) is not list or len(got) != len(ctx.shapes):
            raise StudentError("the gradients are not what was asked for")
        for g, (shape, dtype) in zip(got, ctx.shapes, strict=True):
            if g is not None and (
                not isinstance(g, torch.Tensor) or g.shape != shape or g.dtype != dtype
            ):
                raise StudentError("a gradient has not the shape and dtype of its tensor")
        return None, None, None, *got


# ---- the two sides


class _Writer:
    """Encodes the values of one message."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.blobs: list[bytes] = []
        self.count = 0
        # The arguments of the call, in the order in which they first appear.
        self.arguments: list[torch.Tensor] = []
        self.outs: list[torch.Tensor] = []

    def value(self, v: Any, mode: str, depth: int = 0) -> Any:
        """`mode`: what a tensor is here; an "argument", a "result", or "data" only."""
        self.count += 1
        if depth > DEPTH_LIMIT or self.count > COUNT_LIMIT:
            raise BorderError("the value is too deep or too long to check")
        t = type(v)
        if v is None or t is bool or t is float:
            return {"t": "p", "v": v}
        if t is str:
            if len(v) > TEXT_LIMIT:
                raise BorderError("the text is too long to check")
            return {"t": "p", "v": v}
        if t is int:
            if v.bit_length() > INT_BITS:
                raise BorderError("the number is too long to check")
            return {"t": "i", "v": hex(v)}
        if t is complex:
            return {"t": "c", "v": [v.real, v.imag]}
        if t is bytes:
            return {"t": "y", "b": self.blob(v)}
        if t in _SEQUENCES or (issubclass(t, tuple) and t.__module__ == "torch.return_types"):
            kind = _SEQUENCES.get(t, "u")
            return {"t": kind, "v": [self.value(x, mode, depth + 1) for x in v]}
        if t is dict or t.__name__ == "OrderedDict":
            if len(v) > ITEMS_LIMIT:
                raise BorderError("the dictionary is too long to check")
            return {
                "t": "d",
                "v": [
                    [self.value(k, "data", depth + 1), self.value(x, mode, depth + 1)]
                    for k, x in v.items()
                ],
            }
        if t is torch.dtype:
            return {"t": "e", "v": str(v).removeprefix("torch.")}
        if t is torch.device:
            return {"t": "v", "v": v.type}
        if t is slice:
            return {
                "t": "k",
                "v": [self.value(x, "data", depth + 1) for x in (v.start, v.stop, v.step)],
            }
        if v is Ellipsis:
            return {"t": "."}
        if t is torch.Tensor or t is torch.nn.Parameter:
            return self.tensor(v, mode)
        if t.__module__ == "numpy":
            import numpy as np

            if isinstance(v, np.ndarray | np.generic):
                shape, strides, data = _packed(torch.from_numpy(np.array(v)))
                dtype = str(torch.from_numpy(np.array(v)).dtype).removeprefix("torch.")
                return {
                    "t": "n", "s": shape, "st": strides, "d": dtype, "b": self.blob(data),
                    "one": isinstance(v, np.generic),
                }  # fmt: skip
        return self.handle(v)

    def blob(self, data: bytes) -> int:
        """Add bytes to the message; their number."""
        self.blobs.append(data)
        if sum(map(len, self.blobs)) > BLOB_LIMIT:
            raise BorderError(f"more than {BLOB_LIMIT >> 20} MB of data")
        return len(self.blobs) - 1

    def handle(self, v: Any) -> Any:
        """What stands for an object that does not cross."""
        if isinstance(v, Remote) and v.__dict__["_peer"] is self.peer:
            return {"t": "own", "h": v.__dict__["_handle"]}
        if self.peer.trusted and not callable(v):
            raise BorderError(
                f"a test cannot pass an object of type {type(v).__name__} to a student's function"
            )
        self.peer.objects.append(v)
        return {
            "t": "h",
            "h": len(self.peer.objects) - 1,
            "name": _name(v),
            "module": isinstance(v, torch.nn.Module),
        }

    def tensor(self, v: torch.Tensor, mode: str) -> Any:
        """A tensor, as `value` has it."""
        for n, argument in enumerate(self.arguments):
            if argument is v:
                return {"t": "A", "i": n}
        if mode == "argument":
            self.arguments.append(v)
        if (entry := self.leaf(v, mode)) is not None:
            return entry | ({"a": True} if mode == "argument" else {})
        entry = self.plain(v)
        if mode == "argument":
            entry |= {"g": v.requires_grad, "i": len(self.arguments) - 1}
        elif mode == "result" and v.requires_grad:
            entry["o"] = len(self.outs)
            self.outs.append(v)
        return entry

    def plain(self, v: torch.Tensor) -> dict[str, Any]:
        """The numbers of a tensor, without its graph."""
        shape, strides, data = _packed(v)
        return {
            "t": "T", "s": shape, "st": strides, "d": str(v.dtype).removeprefix("torch."),
            "b": self.blob(data), "p": type(v) is torch.nn.Parameter,
        }  # fmt: skip

    def leaf(self, v: torch.Tensor, mode: str) -> dict[str, Any] | None:
        """`v` as a leaf that both sides have, if it is one or becomes one."""
        for key, mirror in self.peer.mirrors.items():
            if mirror.tensor is v:
                return {"t": "L", "i": key}
        for key, leaf in self.peer.leaves.items():
            if leaf.tensor is v:
                return {"t": "M", "i": key}
        if mode != "result" or not (v.is_leaf and v.requires_grad):
            return None
        key = len(self.peer.leaves)
        entry = self.plain(v)
        self.peer.leaves[key] = _Leaf(v)
        return {**entry, "t": "M", "i": key}


class _Reader:
    """Decodes the values of one message, and believes nothing about it."""

    def __init__(self, peer: Peer, blobs: list[bytes], arguments: list[torch.Tensor]) -> None:
        self.peer = peer
        self.blobs = blobs
        self.arguments = arguments
        self.outs: list[torch.Tensor] = []
        # Results with a graph are wrapped only when all are there; here they are in order.
        self.wrapped: list[torch.Tensor] = []
        # What the message may still hold: values, and bytes of tensors, each time they are named.
        self.values = COUNT_LIMIT + 1000
        self.room = 2 * BLOB_LIMIT

    def value(self, j: Any, depth: int = 0) -> Any:
        try:
            return self._value(j, depth)
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            raise BorderError("a malformed value") from error

    def take(self, count: int) -> None:
        """Count bytes of a tensor."""
        self.room -= count
        if self.room < 0:
            raise BorderError(f"more than {2 * BLOB_LIMIT >> 20} MB of tensors")

    def _value(self, j: Any, depth: int) -> Any:
        self.values -= 1
        if self.values < 0:
            raise BorderError("more values than can be checked")
        if depth > DEPTH_LIMIT + 1 or type(j) is not dict:
            raise BorderError("a malformed value")
        t = j["t"]
        if t == "p":
            if j["v"] is None or type(j["v"]) in (bool, float, str):
                return j["v"]
            raise BorderError("a malformed value")
        if t == "i":
            if type(j["v"]) is not str or len(j["v"]) > INT_BITS // 4 + 8:
                raise BorderError("a malformed value")
            return int(j["v"], 16)
        if t == "c":
            return complex(float(j["v"][0]), float(j["v"][1]))
        if t == "y":
            return self.blob(j["b"])
        if t in _MADE:
            if type(j["v"]) is not list:
                raise BorderError("a malformed value")
            made = [self._value(x, depth + 1) for x in j["v"]]
            return _MADE[t](_apart(made) if t in "sf" else made)
        if t == "d":
            if len(j["v"]) > ITEMS_LIMIT:
                raise BorderError("a malformed value")
            keys = _apart([self._value(k, depth + 1) for k, _ in j["v"]])
            return dict(zip(keys, (self._value(x, depth + 1) for _, x in j["v"]), strict=True))
        if t == "e":
            return DTYPES.get(j["v"]) or Unknown(f"torch.{j['v']}"[:40])
        if t == "v":
            return torch.device(j["v"] if j["v"] in ("cpu", "cuda", "meta", "mps") else "cpu")
        if t == "k":
            return slice(*[self._value(x, depth + 1) for x in j["v"][:3]])
        if t == ".":
            return Ellipsis
        if t == "n":
            array = self.unpacked(j).numpy()
            return array[()] if j["one"] and array.ndim == 0 else array
        if t in ("T", "A", "L", "M"):
            return self.tensor(j)
        if t == "own":
            return self.peer.object(j["h"])
        if t == "h":
            if type(j["h"]) is not int or type(j["name"]) is not str:
                raise BorderError("a malformed value")
            return _remote(self.peer, j["h"], j["name"], j["module"] is True)
        raise BorderError("a malformed value")

    def blob(self, index: Any) -> bytes:
        if type(index) is not int or not 0 <= index < len(self.blobs):
            raise BorderError("a malformed value")
        return self.blobs[index]

    def tensor(self, j: dict[str, Any]) -> torch.Tensor:
        if j["t"] == "A":
            if type(j["i"]) is not int or j["i"] < 0:
                raise BorderError("a malformed value")
            return self.arguments[j["i"]]
        if j["t"] in ("L", "M"):
            leaf: torch.Tensor
            leaf = self.peer.leaves[j["i"]].tensor if j["t"] == "L" else self.mirror(j)
            if "a" in j:
                self.arguments.append(leaf)
            return leaf
        x = self.plain(j)
        if "i" in j:
            if j["g"] is True:
                x.requires_grad_()
            self.arguments.append(x)
        elif "o" in j:
            if not (x.is_floating_point() or x.is_complex()) or j["o"] != len(self.outs):
                raise BorderError("a malformed tensor")
            self.outs.append(x)
            if self.wrapped:
                across: torch.Tensor = self.wrapped[j["o"]]
                return across
        return x

    def unpacked(self, j: dict[str, Any]) -> torch.Tensor:
        data = self.blob(j["b"])
        # One piece of data may be named again and again, and a stride of 0 repeats an entry.
        self.take(max(len(data), _bytes_of(j["s"], j["d"])))
        return _unpacked(j["s"], j["st"], j["d"], data)

    def plain(self, j: dict[str, Any]) -> torch.Tensor:
        x = self.unpacked(j)
        if j["p"] is True:
            return torch.nn.Parameter(x, requires_grad=False)
        return x

    def mirror(self, j: dict[str, Any]) -> torch.Tensor:
        key = j["i"]
        if type(key) is not int or not 0 <= key < 1 << 20:
            raise BorderError("a malformed value")
        if key not in self.peer.mirrors:
            x = self.plain(j)
            if x.is_floating_point() or x.is_complex():
                x.requires_grad_()
            self.peer.mirror_bytes += 2 * x.numel() * x.element_size()
            if self.peer.mirror_bytes > MIRROR_LIMIT:
                raise BorderError(f"more than {MIRROR_LIMIT >> 21} MB of parameters")
            self.peer.mirrors[key] = _Leaf(x)
        return self.peer.mirrors[key].tensor


class Unknown:
    """A value that this side has no type for; its text says what it was."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_SEQUENCES: dict[type, str] = {
    list: "l", tuple: "u", torch.Size: "z", set: "s", frozenset: "f", range: "r",
}  # fmt: skip
_MADE: dict[str, Callable[[list[Any]], Any]] = {
    "l": list, "u": tuple, "z": torch.Size, "s": set, "f": frozenset, "r": list,
}  # fmt: skip


# Filled when a test sets the seed.
_seeded: list[int] = []


def _watch_seed() -> None:
    """Note when a test calls `torch.manual_seed`: the state alone does not show a second time."""
    if getattr(torch.manual_seed, "watched", False):
        return
    plain = torch.manual_seed

    def manual_seed(seed: int) -> torch.Generator:
        _seeded.append(seed)
        return plain(seed)

    manual_seed.watched = True  # type: ignore[attr-defined]
    torch.manual_seed = manual_seed


class Peer:
    """One side of the border."""

    def __init__(
        self,
        channel: Channel,
        *,
        trusted: bool,
        limit: float | None = None,
        namespace: dict[str, Any] | None = None,
    ) -> None:
        self.channel = channel
        self.trusted = trusted
        self.limit = limit
        self.namespace = namespace or {}
        # Why there will be no more answers.
        self.dead: StudentError | None = None
        # Questions that wait for their answers. If one is given up, what comes is the wrong answer.
        self.waiting = 0
        self.objects: list[Any] = []
        self.leaves: dict[int, _Leaf] = {}
        self.mirrors: dict[int, _Leaf] = {}
        self.mirror_bytes = 0
        # Where the names of what the other side's calls call are counted, while that is asked for.
        self.seen: dict[str, int] | None = None
        self.graphs: dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        self.drops: list[int] = []
        self.numbers = itertools.count()
        self.depth = 0
        if trusted:
            _watch_seed()

    def renewed(self) -> Peer:
        """A side that has agreed on nothing yet, over the same channel; this one is done with.

        Raises:
            GoneError: if the other side is.
        """
        try:
            self.channel.send({"op": "renew"})
        except OSError:
            raise GoneError("the code ended its own process") from None
        self.dead = GoneError("the object belongs to a test that is over")
        return Peer(self.channel, trusted=self.trusted, limit=self.limit)

    def object(self, handle: Any) -> Any:
        """The object of ours that the other side means."""
        if type(handle) is not int or not 0 <= handle < len(self.objects):
            raise BorderError("a malformed handle")
        return self.objects[handle]

    # -- asking

    def ask(self, request: dict[str, Any], args: Any = (), kwargs: Any = None) -> Any:
        """Ask the other side, answering what it asks in between.

        Raises:
            StudentError: or the exception of Python's own that the other side raised.
        """
        if self.dead:
            raise type(self.dead)(str(self.dead))
        writer = _Writer(self)
        mode = "data" if request["op"] == "backward" else "argument"
        head = {
            **request,
            "a": [writer.value(x, mode) for x in args],
            "k": {k: writer.value(x, mode) for k, x in (kwargs or {}).items()},
            "grad": torch.is_grad_enabled(),
            "wide": torch.get_default_dtype() is torch.float64,
            "drop": [self.drops.pop() for _ in range(len(self.drops))],
            "u": self.updates(writer, self.mirrors) if self.trusted else [],
        }
        if self.seen is not None:
            head["watch"] = True
        if self.trusted and _seeded:
            # One way only: a test that sets the seed means the student's numbers too.
            _seeded.clear()
            head["rng"] = writer.blob(_bytes(torch.get_rng_state()))
        self.depth += 1
        try:
            if self.depth > NESTED_CALLS:
                raise StudentError("the calls go back and forth without end")
            return self._exchange(head, writer)
        finally:
            self.depth -= 1

    def _exchange(self, head: dict[str, Any], writer: _Writer) -> Any:
        self.waiting += 1
        try:
            self.channel.connection.settimeout(self.limit)
            self.channel.send(head, writer.blobs)
            end = None if self.limit is None else time.monotonic() + self.limit
            while True:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError  # also for one who asks back without end
                reply, blobs = self.channel.receive(left)
                if reply.get("op") in ("value", "error"):
                    break
                self.answer(reply, blobs)
            self.waiting -= 1
            if reply["op"] == "value":
                return self._result(reply, blobs, writer.arguments)
        except TimeoutError:
            self.dead = TimeLimitError(f"no answer within {self.limit:g} s")
        except (EOFError, OSError):
            self.dead = GoneError("the code ended its own process")
        except (BorderError, KeyError, TypeError, ValueError, IndexError) as error:
            if not self.trusted:
                raise
            # Another error's text may be the student's.
            what = str(error) if isinstance(error, BorderError) else ""
            self.dead = GoneError(f"the code answered with {what or 'nonsense'}")
        if self.dead:
            self.channel.connection.close()
            raise type(self.dead)(str(self.dead)) from None
        raise _raised(reply)

    def _result(self, reply: dict[str, Any], blobs: list[bytes], args: list[torch.Tensor]) -> Any:
        reader = _Reader(self, blobs, args)
        self.apply(reply["u"], reader, args)
        if self.seen is not None and type(told := reply.get("seen")) is dict:
            for name, count in list(told.items())[: 2 * MOST]:
                if type(count) is int and 0 < count < 1 << 40:
                    self.seen[name[:200]] = self.seen.get(name[:200], 0) + count
        value = reader.value(reply["v"])
        if not reader.outs:
            return value
        inputs = [reader.tensor(j) for j in reply["leaves"]]
        graph = reply["graph"]
        if type(graph) is not int:
            raise BorderError("a malformed value")
        wrapped = _Across.apply(self, graph, reader.outs, *inputs)  # type: ignore[no-untyped-call]
        again = _Reader(self, blobs, args)
        again.wrapped = list(wrapped)
        return again.value(reply["v"])

    # -- keeping leaves and arguments equal on both sides

    def updates(self, writer: _Writer, leaves: dict[int, _Leaf], owner: str = "r") -> list[Any]:
        """Leaves that changed since both sides agreed. `owner`: whose they are, "r"eceiver's."""
        changed = [(k, leaf) for k, leaf in leaves.items() if leaf.changed()]
        entries = [[owner, k, writer.plain(leaf.tensor)] for k, leaf in changed]
        for _, leaf in changed:
            leaf.agree()
        return entries

    def apply(self, updates: Any, reader: _Reader, args: list[torch.Tensor]) -> None:
        """Do to our tensors what the other side did to its copies."""
        for owner, key, j, *flag in updates:
            if owner == "a" and type(key) is int and key >= 0:
                _change(args[key], reader.plain(j) if j else None, flag[0] is True)
                continue
            if owner == "r" and self.trusted:
                raise BorderError("a change of a tensor of the tests")
            leaf = (self.leaves if owner == "r" else self.mirrors)[key]
            _change(leaf.tensor, reader.plain(j), leaf.tensor.requires_grad)
            leaf.agree()

    # -- answering

    def answer(self, m: dict[str, Any], blobs: list[bytes]) -> None:
        """Answer one request of the other side."""
        writer = _Writer(self)
        self.depth += 1
        try:
            if self.depth > NESTED_CALLS:
                raise RecursionError("the calls go back and forth without end")
            head = self._answer(m, blobs, writer)
            self.channel.send(head, writer.blobs)
            return
        except (TimeoutError, EOFError, GoneError, TimeLimitError):
            raise
        except BaseException as error:
            if self.trusted and isinstance(error, OSError):
                raise
            reply = _error(error)
        finally:
            self.depth -= 1
        self.channel.send(reply)

    def _answer(self, m: dict[str, Any], blobs: list[bytes], writer: _Writer) -> dict[str, Any]:
        op = m["op"]
        if self.trusted and op not in ("call", "backward"):
            raise BorderError("only functions of a test can be called, not looked into")
        for key in m["drop"]:
            self.graphs.pop(key, None)
        reader = _Reader(self, blobs, [])
        self.apply(m["u"], reader, [])
        if "rng" in m and not self.trusted:
            torch.set_rng_state(torch.frombuffer(bytearray(blobs[m["rng"]]), dtype=torch.uint8))
        args = [reader.value(j) for j in m["a"]]
        kwargs = {str(k): reader.value(j) for k, j in m["k"].items()}
        before = [(x, x.detach().clone(), x.requires_grad) for x in reader.arguments]
        if op == "backward":
            return {"op": "value", "v": writer.value(self._backward(m["graph"], args), "data"),
                    "u": []}  # fmt: skip
        seen: dict[str, int] = {}
        dtype = torch.get_default_dtype()
        if not self.trusted:
            torch.set_default_dtype(torch.float64 if m["wide"] is True else torch.float32)
        try:
            with torch.set_grad_enabled(m["grad"] is True):
                if op == "call" and not self.trusted and m.get("watch") is True:
                    with recorded() as seen:
                        result = self._done(op, m, args, kwargs)
                else:
                    result = self._done(op, m, args, kwargs)
        finally:
            torch.set_default_dtype(dtype)
        writer.arguments = reader.arguments
        head: dict[str, Any] = {"op": "value", "v": writer.value(result, "result")}
        if seen:
            head["seen"] = seen
        if writer.outs:
            number = next(self.numbers)
            leaves = [x for x in _graph_leaves(writer.outs) if x.requires_grad]
            head["graph"] = number
            head["leaves"] = [writer.tensor(x, "result") for x in leaves]
            self.graphs[number] = (writer.outs, leaves)
            if len(self.graphs) > GRAPHS_KEPT:
                del self.graphs[min(self.graphs)]
        head["u"] = [
            ["a", n, None if _same(x, old) else writer.plain(x), x.requires_grad]
            for n, (x, old, needed) in enumerate(before)
            if not _same(x, old) or x.requires_grad != needed
        ] + self.updates(writer, self.leaves, "o")
        return head

    def _done(self, op: str, m: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        if op == "get":
            return self.namespace[m["name"]]
        if op == "names":
            return [k for k in m["name"] if k in self.namespace]
        target = self.object(m["h"])
        if op == "call":
            return target(*args, **kwargs)
        if op == "attr":
            return getattr(target, m["name"])
        if op == "set":
            return setattr(target, m["name"], args[0])
        if op == "len":
            return len(target)
        if op == "item":
            return target[args[0]]
        if op == "iter":
            return list(itertools.islice(target, ITEMS_LIMIT))
        raise BorderError(f"no operation {op!r}")

    def _backward(self, graph: int, grads: list[Any]) -> list[Any]:
        if graph not in self.graphs:
            raise RuntimeError("the graph of this call is no longer kept")
        outs, leaves = self.graphs[graph]
        pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if g is not None]
        if not pairs or not leaves:
            return [None] * len(leaves)
        return list(
            torch.autograd.grad(
                [o for o, _ in pairs], leaves, [g for _, g in pairs],
                retain_graph=True, allow_unused=True,
            )
        )  # fmt: skip


def _change(tensor: torch.Tensor, new: torch.Tensor | None, needs_grad: bool) -> None:
    """Give `tensor` the content of `new`, and whether it needs a gradient."""
    if new is not None:
        if new.shape == tensor.shape and new.dtype == tensor.dtype:
            with torch.no_grad():
                tensor.copy_(new)
        elif new.dtype == tensor.dtype:
            tensor.data = new.detach()
        else:
            raise StudentError("the code changes the dtype of an argument")
    if needs_grad != tensor.requires_grad:
        if not tensor.is_leaf:
            raise StudentError("the code detaches an argument from its graph")
        tensor.requires_grad_(needs_grad)


def _graph_leaves(outs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaf tensors that `outs` depend on, as far as autograd can see."""
    leaves: dict[int, torch.Tensor] = {}
    nodes = [o.grad_fn for o in outs if o.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if (leaf := getattr(node, "variable", None)) is not None:
            leaves[id(leaf)] = leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return list(leaves.values())


def _name(v: Any) -> str:
    name = getattr(v, "__name__", None) if isinstance(v, type) or callable(v) else None
    return name[:40] if type(name) is str else type(v).__name__[:40]


def _error(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:2000]
    except BaseException:  # a student's __str__ may do anything
        text = ""
    name = type(error).__name__
    return {"op": "error", "e": name[:80], "m": text, "own": RAISABLE.get(name) is type(error)}


def _raised(reply: dict[str, Any]) -> Exception:
    name, text = str(reply.get("e"))[:80], str(reply.get("m"))[:2000]
    kind = RAISABLE.get(name) if reply.get("own") is True else None
    error = kind(text) if kind else StudentError(f"{name}: {text}" if text else name)
    if name == "BorderError":
        error = StudentError(text)
    # Says that the text is the student's, which feedback on a hidden test must not repeat.
    error.by_student = name  # type: ignore[attr-defined]
    return error
