"""Cases made from cases: what every exercise with tensors is asked beside what is written for it.

A probe changes the arguments of a case and nothing else. Where the values stay what they were, the
oracle's result on the case is expected; elsewhere the oracle is asked again. An exercise that does
not have a probe says why (`Exercise.spared`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from book.checkers.core.exercise import Case, Exercise
from book.checkers.core.run import parameters
from book.checkers.core.state import fair

Change = Callable[[torch.Tensor], torch.Tensor]
# Changes the first dimensions of a tensor: it has so many of those, the arguments at most so many.
Leading = Callable[[torch.Tensor, int, int], torch.Tensor]


@dataclass(frozen=True)
class Probe:
    """A kind of case that is made from others.

    `says` names it in the verdict, `change` makes an argument of one. `tol` is its tolerance if the
    case's own does not hold any more, and `cases` of how many cases it is made.
    """

    name: str
    says: str
    change: Change
    tol: float | None = None
    cases: int = 2
    # The oracle's result on the case itself is what is expected.
    same_values: bool = False
    default_dtype: torch.dtype | None = None
    # Numbers far from 1: what is compared is relative to the largest.
    relative: bool = False
    # Only values: the gradients vanish there, and what is left of them is rounding.
    grad: bool = True
    # In place of `change`, of the arguments in `Exercise.leading`.
    leading: Leading | None = None


def _laid_out(x: torch.Tensor) -> torch.Tensor:
    """The same numbers as a part of a larger tensor: strides, an offset, and nan all around.

    The last dimension keeps its step of 1, as in a transposed head, unless it is the only one.
    """
    if x.dim() == 0 or not x.numel():
        return x
    *lead, n = x.shape
    around = float("nan") if x.is_floating_point() else 1
    if lead:
        view = torch.full((*lead, n + 4), around, dtype=x.dtype)[..., 2 : n + 2]
    else:
        view = torch.full((2 * n + 1,), around, dtype=x.dtype)[1::2]
    view.copy_(x)
    return view


def _other_values(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in other places: the first dimension with several entries turned round."""
    if not x.is_floating_point():
        return x
    for dim, n in enumerate(x.shape):
        if n > 1:
            return x.flip(dim)
    return x


def _times(factor: float) -> Change:
    def change(x: torch.Tensor) -> torch.Tensor:
        return x * factor if x.dtype is torch.float64 else x

    return change


def _without(x: torch.Tensor, own: int, most: int) -> torch.Tensor:
    return x[(0,) * own] if x.numel() else x


def _with_four(x: torch.Tensor, own: int, most: int) -> torch.Tensor:
    if own < most or most >= 4:  # fewer than another: it is broadcast as it is
        return x
    return x.expand(*(2, 3, 1, 2)[: 4 - most], *x.shape).contiguous()


def _with_none_of_them(x: torch.Tensor, own: int, most: int) -> torch.Tensor:
    if own < most:
        return x
    return (x if own else x[None])[:0]


def _as(dtype: torch.dtype) -> Change:
    def change(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype) if x.dtype is torch.float64 else x

    return change


# In the order in which they run. Tolerances as those of the cases: 16 bits may be off by a few
# roundings, 32 bits by the order of a few hundred additions.
PROBES = (
    Probe("layout", "the same, not contiguous", _laid_out, cases=3, same_values=True),
    Probe("float32", "the same in float32", _as(torch.float32), tol=1e-5),
    Probe("bfloat16", "the same in bfloat16", _as(torch.bfloat16), tol=5e-2, cases=1),
    Probe("float16", "the same in float16", _as(torch.float16), tol=1e-2, cases=1),
    # What an answer makes takes its dtype from the arguments, or from what the text says.
    Probe(
        "default dtype",
        "the same, where torch makes float32 if it is not told",
        lambda x: x,
        cases=1,
        default_dtype=torch.float32,
    ),
    # What overflows, vanishes, or is taken for zero by a fixed threshold.
    Probe("tiny", "with all numbers times 1e-30", _times(1e-30), cases=1, relative=True),
    Probe("huge", "with all numbers times 800", _times(800.0), cases=1, relative=True, grad=False),
    Probe("no leading", "without leading dimensions", lambda x: x, cases=1, leading=_without),
    Probe("four leading", "with four leading dimensions", lambda x: x, cases=1, leading=_with_four),
    Probe(
        "empty",
        "with a leading dimension of size 0",
        lambda x: x,
        cases=1,
        leading=_with_none_of_them,
    ),
    # A result that was kept, by shape or by place, is now another one's.
    Probe("other values", "with the numbers in other places", _other_values),
    Probe("again", "once more, after all others", lambda x: x, cases=1, same_values=True),
)
SIXTEEN_BITS = ("bfloat16", "float16")
NAMES = tuple(probe.name for probe in PROBES)


Made = list[tuple[int, Probe, Case]]
# By the identity of an exercise, which is kept too. The same cases each time, so that what an
# answer gave on one can be looked up.
_made: dict[int, tuple[Exercise, Made]] = {}


def probed(exercise: Exercise) -> Made:
    """The cases that the probes make: the number of the case each comes from, and what it is.

    Raises:
        ValueError: if the exercise is spared a probe that there is not.
    """
    if id(exercise) not in _made:
        _made[id(exercise)] = exercise, _probes_of(exercise)
    return _made[id(exercise)][1]


def _probes_of(exercise: Exercise) -> Made:
    unknown = set(exercise.spared) - set(NAMES)
    if unknown:
        raise ValueError(f"{exercise.title}: spared probes that there are not: {sorted(unknown)}")
    found = []
    for probe in PROBES:
        if probe.name in exercise.spared:
            continue
        made = 0
        for number, case in enumerate(exercise.cases):
            if made == probe.cases:
                break
            new = _case(exercise, probe, case)
            if case.raises is None and _concerns(probe, case, new, exercise.default_dtype):
                found.append((number, probe, new))
                made += 1
    return found


def _concerns(probe: Probe, case: Case, new: Case, default_dtype: torch.dtype) -> bool:
    """Whether the probe changes something in the case, or wants nothing changed."""
    if probe.default_dtype is not None:
        return True
    with fair(default_dtype):
        before, after = list(_tensors_in(case.inputs())), list(_tensors_in(new.inputs()))
    if not before:
        return False
    if probe.name == "again":
        return True
    return any(_differs(x, y) for x, y in zip(before, after, strict=True))


def _differs(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.dtype != y.dtype or x.stride() != y.stride() or not torch.equal(x, y)


def _case(exercise: Exercise, probe: Probe, case: Case) -> Case:
    def inputs() -> tuple[Any, ...]:
        seen: dict[int, Any] = {}
        given = case.inputs()
        if probe.leading is None:
            return tuple(_changed(i, probe.change, seen) for i in given)
        return _led(exercise, probe.leading, given, seen)

    # Gradients in 16 bits are what rounding makes of them.
    grad = case.grad and probe.grad and probe.name not in SIXTEEN_BITS
    tol = case.tol if probe.tol is None else max(probe.tol, case.tol)
    return replace(
        case,
        name=f"{case.name}, {probe.says}",
        inputs=inputs,
        tol=tol,
        grad=grad,
        default_dtype=probe.default_dtype,
        relative=case.relative or probe.relative,
    )


def _led(
    exercise: Exercise, change: Leading, given: tuple[Any, ...], seen: dict[int, Any]
) -> tuple[Any, ...]:
    """The arguments, those in `exercise.leading` with other leading dimensions.

    Raises:
        ValueError: if the exercise has no argument of such a name.
    """
    names = parameters(exercise)
    if unknown := set(exercise.leading) - set(names):
        raise ValueError(f"{exercise.title}: leading dimensions of no argument: {sorted(unknown)}")
    own = {
        k: x.dim() - exercise.leading[name]
        for k, (name, x) in enumerate(zip(names, given, strict=False))
        if name in exercise.leading and isinstance(x, torch.Tensor)
    }
    most = max(own.values(), default=0)
    return tuple(
        _changed(x, lambda t, k=k: change(t, own[k], most), seen) if k in own else x  # type: ignore[misc]
        for k, x in enumerate(given)
    )


def _tensors_in(value: Any) -> Any:
    if type(value) is torch.Tensor:
        yield value
    elif type(value) in (list, tuple):
        for v in value:
            yield from _tensors_in(v)
    elif type(value) is dict:
        for v in value.values():
            yield from _tensors_in(v)


def _changed(value: Any, change: Change, seen: dict[int, Any]) -> Any:
    """A value with its tensors changed; the same tensor twice stays the same twice."""
    if type(value) is torch.Tensor:
        if id(value) not in seen:
            made = change(value.detach())
            if value.requires_grad and made.is_floating_point():
                made = made.detach().requires_grad_()
            # The old one too, so that its identity stays its own.
            seen[id(value)] = (value, made)
        return seen[id(value)][1]
    if type(value) in (list, tuple):
        return type(value)(_changed(v, change, seen) for v in value)
    if type(value) is dict:
        return {k: _changed(v, change, seen) for k, v in value.items()}
    return value
