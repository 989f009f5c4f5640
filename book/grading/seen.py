"""What a call of a student's function asks torch for, seen where it runs.

The student's process counts, so that the count is no proof: it is worth a remark.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, get_ignored_functions, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

# Different names that are told.
MOST = 400
RANDOM_STATE = "the global random state"


class _Functions(TorchFunctionMode):
    """Sees every function of torch that Python calls."""

    def __init__(self, count: dict[str, int]) -> None:
        super().__init__()
        self.count = count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', '')}"
        name = _name(func) or own
        _seen(self.count, name)
        for word, value in (kwargs or {}).items():
            if isinstance(value, bool):
                _seen(self.count, f"{name}({word}={value})")
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that runs, whatever called it."""

    def __init__(self, count: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = count

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be guarded against compilation, for which torch would import its compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _seen(self.count, str(func).rsplit(".", 1)[0])
        return func(*args, **(kwargs or {}))


@functools.cache
def _name(func: Any) -> str | None:
    """The name that torch gives a function; to look it up takes as long as what is counted."""
    name: str | None = resolve_name(func)
    return name


def _seen(count: dict[str, int], name: str) -> None:
    if name in count or len(count) < MOST:
        count[name] = count.get(name, 0) + 1


@contextlib.contextmanager
def recorded(*, calls: bool = True) -> Iterator[dict[str, int]]:
    """Count what is called within, and see whether the random state is another one afterwards.

    The state is one that nobody sets by accident, and afterwards what it was. Without `calls`
    nothing else is looked at.
    """
    count: dict[str, int] = {}
    kept, pythons = torch.get_rng_state(), random.getstate()
    torch.default_generator.manual_seed(0x5EED5EED5EED)
    before = torch.get_rng_state()
    try:
        with _counted(count) if calls else contextlib.nullcontext():
            yield count
    finally:
        if not torch.equal(torch.get_rng_state(), before) or random.getstate() != pythons:
            count[RANDOM_STATE] = 1
        torch.set_rng_state(kept)


@contextlib.contextmanager
def _counted(count: dict[str, int]) -> Iterator[None]:
    hidden, profile = _hidden(), sys.getprofile()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in hidden:
            _seen(count, hidden[frame.f_code])

    try:
        sys.setprofile(called)
        with _Functions(count), _Operators(count):
            yield
    finally:
        sys.setprofile(profile)


def warm_up() -> None:
    """Do once, for all forks, what the first record would: it lists every function of torch."""
    with recorded():
        torch.ones(1).sum()


@functools.cache
def _hidden() -> dict[CodeType, str]:
    """Functions that take no tensors, or that no mode sees; Python's own profile does."""
    found = {
        code: f"{f.__module__}.{f.__qualname__}"
        for f in get_ignored_functions()
        if (code := getattr(f, "__code__", None))
    }
    for name, one in (("grad", torch.autograd.grad), ("backward", torch.autograd.backward),
                      ("clip_grad_norm_", torch.nn.utils.clip_grad_norm_)):  # fmt: skip
        if code := getattr(one, "__code__", None):
            found[code] = f"{one.__module__}.{name}"
    return found
