"""What an exercise's text forbids is seen while the answer runs: the call, and its line."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, get_ignored_functions, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Rule:
    """At most `most` calls of the functions whose names end in one of `names`.

    `says` is what the exercise's text says, as it stands there. A name is that of a function of
    torch ("softmax" stands for `torch.softmax`, `F.softmax` and `Tensor.softmax`) or of what they
    all end in ("aten._softmax"), which no other way around avoids. A switch of a function is
    "softmax(keepdim=True)".

    `entries` is for what may not be built: how many numbers a tensor may hold, of the arguments of
    the case. One that holds more breaks the rule; what shares the memory of a smaller one does not.
    """

    says: str
    names: Sequence[str] = ()
    most: int = 0
    entries: Callable[..., int] | None = None


@dataclass(frozen=True)
class Call:
    """A call that a rule counts: its name and the reader's line, and what it made if too large."""

    name: str
    line: str
    shape: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.shape is None:
            return f"`{self.name}` is called"
        return f"`{self.name}` makes a tensor of shape {self.shape}"


class _Functions(TorchFunctionMode):
    """Sees every function of torch that Python calls."""

    def __init__(self, see: Callable[[str], None]) -> None:
        super().__init__()
        self.see = see

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', '')}"
        name = resolve_name(func) or own
        self.see(name)
        for word, value in (kwargs or {}).items():
            if isinstance(value, bool):
                self.see(f"{name}({word}={value})")
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that runs, whatever called it."""

    def __init__(
        self, see: Callable[[str], None], made: Callable[[str, torch.Tensor], None]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.see, self.made = see, made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).rsplit(".", 1)[0]  # aten.mm.default: without the overload
        self.see(name)
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor):
                self.made(name, one)
        return out


def broken(
    rules: Sequence[Rule],
    run: Callable[[], Any],
    own: str,
    arguments: Sequence[Any] = (),
) -> tuple[Rule, Call] | None:
    """The first rule that `run` breaks, and the call that breaks it.

    Args:
        rules: what is forbidden.
        run: runs the answer. What it raises is no matter of this.
        own: the file of the answer, whose lines are quoted.
        arguments: those that it is run with, for the rules on what may not be built.
    """
    if not rules:
        return None
    found: list[list[Call]] = [[] for _ in rules]

    def see(name: str) -> None:
        for rule, calls in zip(rules, found, strict=True):
            if any(name == n or name.endswith("." + n) for n in rule.names):
                calls.append(Call(name, _line(sys._getframe(2), own)))

    limits = [rule.entries and rule.entries(*arguments) for rule in rules]

    def made(name: str, x: torch.Tensor) -> None:
        held = x.untyped_storage().nbytes() // x.element_size()
        for rule, calls, limit in zip(rules, found, limits, strict=True):
            if limit is not None and held > limit and len(calls) <= rule.most:
                calls.append(Call(name, _line(sys._getframe(2), own), tuple(x.shape)))

    hidden = _hidden()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in hidden:
            see(hidden[frame.f_code])

    before = sys.getprofile()
    try:
        sys.setprofile(called)
        with _Functions(see), _Operators(see, made):
            run()
    except Exception:  # said by the case that it fails
        pass
    finally:
        sys.setprofile(before)
    for rule, calls in zip(rules, found, strict=True):
        # The same call may be seen as a function and as an operator: which of the two is counted is
        # for the rule's names to say.
        if len(calls) > rule.most:
            return rule, calls[rule.most]
    return None


@functools.cache
def _hidden() -> dict[CodeType, str]:
    """Functions of torch that take no tensors: no mode sees them, but Python's own profile does."""
    return {
        code: f"{f.__module__}.{f.__qualname__}"
        for f in get_ignored_functions()
        if (code := getattr(f, "__code__", None))
    }


def _line(frame: FrameType | None, own: str) -> str:
    while frame is not None and frame.f_code.co_filename != own:
        frame = frame.f_back
    if frame is None:
        return ""
    return linecache.getline(own, frame.f_lineno).strip()


def autograd(*operators: str) -> Rule:
    """By hand: autograd may not be asked for the gradient, forwards or backwards.

    Args:
        operators: those of autograd's own that would be the answer, as "gelu_backward".
    """
    return Rule("without autograd", ("autograd.grad", "backward", "_make_dual", *operators))
