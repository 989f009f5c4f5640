"""Handles on what stays on the other side of the border, and the way back to gradients there."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from book.grading.channel import StudentError

if TYPE_CHECKING:
    from book.grading.border import Peer


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


def remote(peer: Peer, handle: int, name: str, module: bool) -> Remote:
    """A `Remote` whose class has the name of the student's, for the messages of the checkers."""
    own = name if re.fullmatch(r"[A-Za-z_]\w{0,39}", name) else "object"
    return cast(Remote, type(own, (Remote,), {})(peer, handle, own, module=module))


class Across(torch.autograd.Function):
    """A result of the other side, with the way back to the gradients there."""

    @staticmethod
    def forward(ctx: Any, peer: Peer, graph: int, outs: list[torch.Tensor], *inputs: Any) -> Any:
        """The results as they are; `inputs` are the leaves that they depend on there."""
        ctx.peer, ctx.graph = peer, graph
        ctx.shapes = [(i.shape, i.dtype) for i in inputs]
        ctx.set_materialize_grads(False)
        weakref.finalize(ctx, peer.drops.append, graph)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Ask the other side for the gradients of its leaves."""
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
