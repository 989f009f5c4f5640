"""What crosses between the student's process and the trusted one: plain data, decoded strictly.

Numbers, text, lists and tensors cross by value (`values`, `packing`). A function or an object
stays where it is, and the other side holds a handle on it, which can be called (`remote`). Nothing
is ever unpickled, and a value of a subclass does not pass as a value of its base class.

Both sides run this module, and a call may be answered by a call back: a test may pass a function of
its own to the student's function. Gradients cross too. The side that computed a result keeps its
graph; on the other side the result comes out of `Across`, whose backward asks for the gradients.
Parameters of a student's module have a mirror on the trusted side, an ordinary leaf tensor, so that
`loss.backward()` fills `module.weight.grad` and an optimiser may step.

The trusted side answers calls and backward passes only, and only for what a test handed over.
It needs torch and nothing else: with `student` and what these import it is all of the book that
enters the sandbox.
"""

from __future__ import annotations

import itertools
import time
from typing import Any, Literal

import torch

from book.grading.channel import (
    BorderError,
    Channel,
    GoneError,
    StudentError,
    TimeLimitError,
)
from book.grading.packing import Leaf, as_bytes, same
from book.grading.remote import Across
from book.grading.seen import MOST, recorded
from book.grading.values import ITEMS_LIMIT, Reader, Writer

NESTED_CALLS = 40
GRAPHS_KEPT = 1000
# Exceptions that one text makes. They are raised again as themselves: a test may expect one.
_RAISABLE: tuple[type[Exception], ...] = (
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, Exception,
    FloatingPointError, ImportError, IndexError, KeyError, LookupError, MemoryError,
    ModuleNotFoundError, NameError, NotImplementedError, OSError, OverflowError,
    RecursionError, ReferenceError, RuntimeError, SyntaxError, TypeError, UnboundLocalError,
    ValueError, ZeroDivisionError,
)  # fmt: skip
RAISABLE = {one.__name__: one for one in _RAISABLE}

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
        self.leaves: dict[int, Leaf] = {}
        self.mirrors: dict[int, Leaf] = {}
        self.mirror_bytes = 0
        # Where what the other side's calls do is counted, while that is asked for, and what of it:
        # the names of what they call, or only whether they change the random state.
        self.seen: dict[str, int] | None = None
        self.watch: Literal["calls", "state"] = "calls"
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
        writer = Writer(self)
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
            head["watch"] = self.watch
        if self.trusted and _seeded:
            # One way only: a test that sets the seed means the student's numbers too.
            _seeded.clear()
            head["rng"] = writer.blob(as_bytes(torch.get_rng_state()))
        self.depth += 1
        try:
            if self.depth > NESTED_CALLS:
                raise StudentError("the calls go back and forth without end")
            return self._exchange(head, writer)
        finally:
            self.depth -= 1

    def _exchange(self, head: dict[str, Any], writer: Writer) -> Any:
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
        reader = Reader(self, blobs, args)
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
        wrapped = Across.apply(self, graph, reader.outs, *inputs)  # type: ignore[no-untyped-call]
        again = Reader(self, blobs, args)
        again.wrapped = list(wrapped)
        return again.value(reply["v"])

    # -- keeping leaves and arguments equal on both sides

    def updates(self, writer: Writer, leaves: dict[int, Leaf], owner: str = "r") -> list[Any]:
        """Leaves that changed since both sides agreed. `owner`: whose they are, "r"eceiver's."""
        changed = [(k, leaf) for k, leaf in leaves.items() if leaf.changed()]
        entries = [[owner, k, writer.plain(leaf.tensor)] for k, leaf in changed]
        for _, leaf in changed:
            leaf.agree()
        return entries

    def apply(self, updates: Any, reader: Reader, args: list[torch.Tensor]) -> None:
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
        writer = Writer(self)
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

    def _answer(self, m: dict[str, Any], blobs: list[bytes], writer: Writer) -> dict[str, Any]:
        op = m["op"]
        if self.trusted and op not in ("call", "backward"):
            raise BorderError("only functions of a test can be called, not looked into")
        for key in m["drop"]:
            self.graphs.pop(key, None)
        reader = Reader(self, blobs, [])
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
                if op == "call" and not self.trusted and "watch" in m:
                    with recorded(calls=m["watch"] == "calls") as seen:
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
            ["a", n, None if same(x, old) else writer.plain(x), x.requires_grad]
            for n, (x, old, needed) in enumerate(before)
            if not same(x, old) or x.requires_grad != needed
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
