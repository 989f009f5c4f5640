"""The values of one message: a writer that encodes them, and a reader that believes nothing.

Numbers, text, lists and tensors go by value; functions and objects as handles. A value of a
subclass does not pass as a value of its base class, and what a message may hold is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from book.grading.channel import BLOB_LIMIT, BorderError
from book.grading.packing import DTYPES, Leaf, bytes_of, packed, unpacked
from book.grading.remote import Remote, remote

if TYPE_CHECKING:
    from book.grading.border import Peer

TEXT_LIMIT = 100_000
# Values in one message, and how deep lists may nest.
COUNT_LIMIT = 200_000
DEPTH_LIMIT = 20
INT_BITS = 100_000
ITEMS_LIMIT = 10_000
# What the parameters that both sides keep may take on the trusted one, in bytes.
MIRROR_LIMIT = 8 * BLOB_LIMIT
# Entries of a set or keys of a dictionary that may share a hash: each is compared with all others.
EQUAL_HASHES = 16

SEQUENCES: dict[type, str] = {
    list: "l", tuple: "u", torch.Size: "z", set: "s", frozenset: "f", range: "r",
}  # fmt: skip
MADE: dict[str, Callable[[list[Any]], Any]] = {
    "l": list, "u": tuple, "z": torch.Size, "s": set, "f": frozenset, "r": list,
}  # fmt: skip


class Unknown:
    """A value that this side has no type for; its text says what it was."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Writer:
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
        if t in SEQUENCES or (issubclass(t, tuple) and t.__module__ == "torch.return_types"):
            kind = SEQUENCES.get(t, "u")
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
                shape, strides, data = packed(torch.from_numpy(np.array(v)))
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
            "name": name_of(v),
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
        shape, strides, data = packed(v)
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
        self.peer.leaves[key] = Leaf(v)
        return {**entry, "t": "M", "i": key}


class Reader:
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
        """The value that `j` stands for.

        Raises:
            BorderError: if it stands for none.
        """
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
        if t in MADE:
            if type(j["v"]) is not list:
                raise BorderError("a malformed value")
            made = [self._value(x, depth + 1) for x in j["v"]]
            return MADE[t](apart(made) if t in "sf" else made)
        if t == "d":
            if len(j["v"]) > ITEMS_LIMIT:
                raise BorderError("a malformed value")
            keys = apart([self._value(k, depth + 1) for k, _ in j["v"]])
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
            return remote(self.peer, j["h"], j["name"], j["module"] is True)
        raise BorderError("a malformed value")

    def blob(self, index: Any) -> bytes:
        """Bytes of the message, by their number."""
        if type(index) is not int or not 0 <= index < len(self.blobs):
            raise BorderError("a malformed value")
        return self.blobs[index]

    def tensor(self, j: dict[str, Any]) -> torch.Tensor:
        """A tensor: an argument, one that both sides have, or numbers."""
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
        """The numbers of a tensor, counted against what a message may hold."""
        data = self.blob(j["b"])
        # One piece of data may be named again and again, and a stride of 0 repeats an entry.
        self.take(max(len(data), bytes_of(j["s"], j["d"])))
        return unpacked(j["s"], j["st"], j["d"], data)

    def plain(self, j: dict[str, Any]) -> torch.Tensor:
        """A tensor of numbers, without a graph."""
        x = self.unpacked(j)
        if j["p"] is True:
            return torch.nn.Parameter(x, requires_grad=False)
        return x

    def mirror(self, j: dict[str, Any]) -> torch.Tensor:
        """The copy of a leaf of the other side's, made when it is first named."""
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
            self.peer.mirrors[key] = Leaf(x)
        return self.peer.mirrors[key].tensor


def apart(values: list[Any]) -> list[Any]:
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


def name_of(v: Any) -> str:
    """What to call an object in a message: its own name, or that of its class."""
    name = getattr(v, "__name__", None) if isinstance(v, type) or callable(v) else None
    return name[:40] if type(name) is str else type(v).__name__[:40]
