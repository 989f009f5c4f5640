"""A module that knows its tensors: a class, seen through a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from book.checkers.core import Answer, Case, Exercise, WrongAnswer
from book.checkers.tensors.common import draw

# --- register_gains: a class, seen through a report -----------------------------------------------

# What a report looks at: each view builds the module afresh and returns plain values.
View = Callable[[Callable[[], nn.Module], Tensor], object]


def _output(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    out: Tensor = make()(x)
    return out.detach()


def _parameters(make: Callable[[], nn.Module], x: Tensor) -> list[tuple[int, ...]]:
    return sorted(tuple(p.shape) for p in make().parameters())


def _state(make: Callable[[], nn.Module], x: Tensor) -> list[tuple[int, ...]]:
    return sorted(tuple(t.shape) for t in make().state_dict().values())


def _trained(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    """The output after one step of gradient descent on every parameter."""
    module = make()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x).square().sum().backward()
    optimizer.step()
    out: Tensor = module(x)
    return out.detach()


def _moved(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    return _output(lambda: make().to(torch.float32), x.to(torch.float32))


def _reloaded(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    """The output after every saved tensor was tripled, saved and loaded into a new module."""
    saved = {name: 3 * t for name, t in make().state_dict().items()}
    fresh = make()
    fresh.load_state_dict(saved)
    return _output(lambda: fresh, x)


_VIEWS: dict[str, View] = {
    "the output of a new module": _output,
    "the shapes of its parameters": _parameters,
    "the shapes in its state_dict": _state,
    "the output after one training step": _trained,
    "the output after .to(torch.float32)": _moved,
    "the output after saving, tripling and loading": _reloaded,
}


def module_report(module: Callable[..., nn.Module]) -> Answer:
    """Turn a module class into a function that builds it and reports on it.

    `check` compares what functions return, and modules cannot be compared. The function takes
    the name of a view, an input for the module, and the two arguments of the class.
    """

    def report(view: str, x: Tensor, depth: int, mask: Tensor) -> object:
        return _VIEWS[view](lambda: module(depth, mask.clone()), x)

    return report


class _Gains(nn.Module):
    """The right answer, in pieces that the wrong ones replace."""

    mask: Tensor

    def __init__(self, depth: int, mask: Tensor) -> None:
        super().__init__()
        self.keep_gains([torch.ones_like(mask) for _ in range(depth)])
        self.keep_mask(mask)

    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains: Any = nn.ParameterList(gains)

    def keep_mask(self, mask: Tensor) -> None:
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.mask
        for gain in self.gains:
            x = x * gain
        return x


class _NamedGains(nn.Module):
    """A variant: every gain an attribute, the mask first cloned."""

    mask: Tensor

    def __init__(self, depth: int, mask: Tensor) -> None:
        super().__init__()
        self.depth = depth
        for i in range(depth):
            setattr(self, f"gain{i}", nn.Parameter(torch.ones(len(mask), dtype=mask.dtype)))
        self.register_buffer("mask", mask.clone())

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.depth):
            x = getattr(self, f"gain{i}") * x
        return x * self.mask


class _GainsInMatrix(_Gains):
    """Gains as the rows of one parameter: another number of parameters, so not accepted."""

    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains = nn.Parameter(torch.stack([*gains]))


class _GainsInList(_Gains):
    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains = [nn.Parameter(g) for g in gains]


class _OneGain(_Gains):
    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains = nn.ParameterList([nn.Parameter(gains[0])] * len(gains))


class _GainsAsBuffers(_Gains):
    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        for i, gain in enumerate(gains):
            self.register_buffer(f"gain{i}", gain)

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.mask
        for name, buffer in self.named_buffers():
            x = x * buffer if name != "mask" else x
        return x


class _DetachedGains(_Gains):
    def forward(self, x: Tensor) -> Tensor:
        x = x * self.mask
        for gain in self.gains:
            x = x * gain.data
        return x


class _PlainMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.mask = mask


class _LearnedMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.mask = nn.Parameter(mask)


class _FrozenMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.mask = nn.Parameter(mask, requires_grad=False)


class _UnsavedMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.register_buffer("mask", mask, persistent=False)


def _module_case(view: str, depth: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return view, draw(2, 4), depth, torch.tensor([1.0, 0.0, 0.5, 1.0], dtype=torch.float64)

    # A gain may have been made in float32, the default dtype outside the notebook.
    return Case(f"{view}, depth {depth}", inputs, tol=1e-5)


REGISTER_GAINS = Exercise(
    title="A module that knows its tensors",
    oracle=module_report(_Gains),
    cases=[_module_case(view, depth) for depth in (2, 3) for view in _VIEWS],
    wrong=[
        WrongAnswer(
            "gains that the module does not know",
            "A tensor in a Python list or dict, or one that is not an nn.Parameter, is not "
            "registered: no optimizer, state_dict or `.to()` will find it.",
            module_report(_GainsInList),
        ),
        WrongAnswer(
            "one gain, used again and again",
            "`[p] * depth` is one parameter under several names; every layer needs its own.",
            module_report(_OneGain),
        ),
        WrongAnswer(
            "all gains in one parameter",
            "It computes the same, but the exercise asks for `depth` parameters, each of the "
            "shape of the mask.",
            module_report(_GainsInMatrix),
        ),
        WrongAnswer(
            "gains as buffers",
            "A buffer is saved and moved, but it is not learned: parameters() does not list it.",
            module_report(_GainsAsBuffers),
        ),
        WrongAnswer(
            "gains cut off in forward",
            "`.data` and `detach` give the values without the graph, so no gradient arrives.",
            module_report(_DetachedGains),
        ),
        WrongAnswer(
            "the mask as a plain attribute",
            "It is neither saved nor moved with the module; use register_buffer.",
            module_report(_PlainMask),
        ),
        WrongAnswer(
            "the mask as a parameter",
            "Then an optimizer changes it. What is fixed but belongs to the model is a buffer.",
            module_report(_LearnedMask),
        ),
        WrongAnswer(
            "the mask as a frozen parameter",
            "It stays fixed, but it is listed and counted among the parameters; a buffer is not.",
            module_report(_FrozenMask),
        ),
        WrongAnswer(
            "the mask as a buffer that is not saved",
            "With persistent=False a buffer moves with the module but is not in its state_dict.",
            module_report(_UnsavedMask),
        ),
    ],
    variants=[module_report(_NamedGains)],
)
