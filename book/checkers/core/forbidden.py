"""What an exercise's text forbids is seen while the answer runs: the call, and its line."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Rule:
    """At most `most` calls of the functions whose names end in one of `names`.

    `says` is what the exercise's text says, as it stands there. A name is that of a function of
    torch ("softmax" stands for `torch.softmax`, `F.softmax` and `Tensor.softmax`) or of what they
    all end in ("aten._softmax"), which no other way around avoids.
    """

    says: str
    names: Sequence[str]
    most: int = 0


@dataclass(frozen=True)
class Call:
    """A call that a rule counts: its name and the reader's line."""

    name: str
    line: str


class _Functions(TorchFunctionMode):
    """Sees every function of torch that Python calls."""

    def __init__(self, see: Callable[[str], None]) -> None:
        super().__init__()
        self.see = see

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', '')}"
        self.see(resolve_name(func) or own)
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that runs, whatever called it."""

    def __init__(self, see: Callable[[str], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.see = see

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.see(str(func).rsplit(".", 1)[0])  # aten.mm.default: without the overload
        return func(*args, **(kwargs or {}))


def broken(rules: Sequence[Rule], run: Callable[[], Any], own: str) -> tuple[Rule, Call] | None:
    """The first rule that `run` breaks, and the call that breaks it.

    Args:
        rules: what is forbidden.
        run: runs the answer. What it raises is no matter of this.
        own: the file of the answer, whose lines are quoted.
    """
    if not rules:
        return None
    found: list[list[Call]] = [[] for _ in rules]

    def see(name: str) -> None:
        for rule, calls in zip(rules, found, strict=True):
            if any(name == n or name.endswith("." + n) for n in rule.names):
                calls.append(Call(name, _line(sys._getframe(2), own)))

    try:
        with _Functions(see), _Operators(see):
            run()
    except Exception:  # said by the case that it fails
        pass
    for rule, calls in zip(rules, found, strict=True):
        # The same call may be seen as a function and as an operator: which of the two is counted is
        # for the rule's names to say.
        if len(calls) > rule.most:
            return rule, calls[rule.most]
    return None


def _line(frame: FrameType | None, own: str) -> str:
    while frame is not None and frame.f_code.co_filename != own:
        frame = frame.f_back
    if frame is None:
        return ""
    return linecache.getline(own, frame.f_lineno).strip()


def autograd() -> Rule:
    """By hand: autograd may not be asked for the gradient."""
    return Rule(
        "without autograd",
        ("autograd.grad", "backward"),
    )
