"""Where two outcomes differ, in words: the place, what was expected, and what came."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from book.checkers.core.run import Outcome
from book.checkers.core.state import SECONDS, TookTooLongError

# How much more than its tolerance a near miss may be off, relative to the number: what a constant
# in lower precision, a small eps or another order of operations does, and no other formula.
NEAR = 1e-5


@dataclass(frozen=True)
class Difference:
    """One difference. `at` is the place in the result, if it is one of a tensor."""

    text: str
    at: tuple[int, ...] | None = None
    # Off by so little that it is rounding.
    near: bool = False

    def __str__(self) -> str:
        return self.text


def difference(
    want: Outcome, have: Outcome, tol: float, relative: bool = False
) -> Difference | None:
    """What is different about `have`; `None` if nothing is.

    Args:
        want: what the oracle gave.
        have: what the answer gave.
        tol: how far a number may be off, where it is below 1; above, how far relative to it.
        relative: relative to the largest number of a tensor, however small or large that is.
    """
    if want.error is not None:
        if have.error is None:
            return Difference(
                f"should raise {type(want.error).__name__}, but returned "
                f"{described(have.values[0])}"
            )
        # A subclass of what is asked for is what is asked for.
        if not isinstance(have.error, type(want.error)):
            return Difference(f"should raise {type(want.error).__name__}, raised {_named(have)}")
        return None
    if have.error is not None:
        return Difference(_named(have))
    # Lengths differ only if one result has no gradients, and then the results differ first.
    for place, a, b in zip(want.places, want.values, have.values, strict=False):
        if place.startswith("whether") and a != b:
            how = "is now" if b else "is no longer"
            return Difference(place.removeprefix("whether ") + f"it {how} part of the graph")
        if place.startswith("gradient") and b is None and a is not None:
            return Difference(
                place + "nothing in the result depends on it, as far as autograd can see"
            )
        if (found := value_difference(a, b, tol, relative)) is not None:
            return Difference(place + found.text, found.at if not place else None, found.near)
    if len(want.values) != len(have.values):
        return Difference("the result has no gradient")
    return None


def shared(want: Sequence[Outcome], have: Sequence[Outcome]) -> dict[int, Difference]:
    """The outcomes whose result shares memory with an argument, where the oracle's does not.

    In a single case that is an accident, as where nothing has to be moved; only a habit counts.
    """
    new = {
        i: [n for n in h.shares if n not in w.shares]
        for i, (w, h) in enumerate(zip(want, have, strict=True))
    }
    found = {
        i: Difference(f"the result shares its memory with {names[0]}: who changes one changes both")
        for i, names in new.items()
        if names
    }
    return found if len(found) > len(have) / 2 else {}


def _named(have: Outcome) -> str:
    error = have.error
    if isinstance(error, TookTooLongError):
        return f"had not ended after {SECONDS:g} seconds" + _on(have.line)
    text = str(error).splitlines()
    if "leaf Variable that requires grad is being used in an in-place" in str(error):
        return "raised RuntimeError: an argument is changed in place; make a new tensor" + _on(
            have.line
        )
    kind = type(error).__name__
    return "raised " + (f"{kind}: {text[0]:.200}" if text else kind) + _on(have.line)


def _on(line: str) -> str:
    return f"\n      in your line: {line}" if line else ""


def value_difference(want: Any, have: Any, tol: float, relative: bool = False) -> Difference | None:
    """What is different about one value, compared as by `difference`."""
    if isinstance(want, torch.Tensor):
        return _tensor_difference(want.detach(), have, tol, relative)
    if isinstance(want, list | tuple):
        if not isinstance(have, list | tuple) or len(want) != len(have):
            return Difference(f"expected {len(want)} values, got {described(have)}")
        parts = (value_difference(a, b, tol, relative) for a, b in zip(want, have, strict=True))
        found = next(((i, p) for i, p in enumerate(parts) if p), None)
        return found and Difference(f"value {found[0]}: {found[1].text}", found[1].at)
    if isinstance(want, dict):
        if not isinstance(have, dict) or want.keys() != have.keys():
            return Difference(f"expected the keys {list(want)}, got {described(have)}")
        for key in want:
            if (p := value_difference(want[key], have[key], tol, relative)) is not None:
                return Difference(f"{key!r}: {p.text}", p.at)
        return None
    if isinstance(want, float) and isinstance(have, int | float) and not isinstance(have, bool):
        return _number_difference(want, have, tol, relative)
    if isinstance(have, torch.Tensor) or type(want) is not type(have) or want != have:
        return Difference(f"expected {_short(want)}, got {described(have, want)}")
    return None


def _number_difference(want: float, have: float, tol: float, relative: bool) -> Difference | None:
    off = abs(want - have) if math.isfinite(want) and math.isfinite(have) else math.inf
    scale = abs(want) if relative else max(1.0, abs(want))
    if want == have or (want != want and have != have):
        return None
    if math.isfinite(off) and off <= tol * scale:
        return None
    if math.isfinite(off) and off <= NEAR * abs(want):
        return Difference(_missed(want, off), near=True)
    return Difference(f"expected {want:.6g}, got {have:.6g}")


def _missed(want: float, off: float) -> str:
    return (
        f"expected {want:.6g}, and the answer misses it by {off:.1e}: so little that it is "
        "rounding, a constant with too few digits, or a step in lower precision"
    )


def _tensor_difference(
    want: torch.Tensor, have: Any, tol: float, relative: bool
) -> Difference | None:
    if not isinstance(have, torch.Tensor):
        return Difference(f"expected a tensor of shape {tuple(want.shape)}, got {described(have)}")
    have = have.detach()
    if want.shape != have.shape:
        return Difference(f"expected shape {tuple(want.shape)}, got {tuple(have.shape)}")
    if want.dtype != have.dtype:
        return Difference(f"expected dtype {want.dtype}, got {have.dtype}")
    if torch.equal(want, have):  # most are, as an argument that is looked at after the call
        return None
    if not (want.is_floating_point() or want.is_complex()):
        at = _first(want != have)
        return Difference(f"{_where(at)}expected {want[at].item()}, got {have[at].item()}", at)
    wide = torch.complex128 if want.is_complex() else torch.float64
    # With NumPy: the tensors are small, and an operation of torch takes five times as long.
    a, b = (x.to(wide).resolve_conj().resolve_neg().numpy() for x in (want, have))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps, sizes = np.abs(a - b), np.abs(a)
        finite = np.isfinite(a)
        largest = float(sizes[finite].max(initial=0.0))
        off = ~(gaps <= (tol * largest if relative else tol * (1 + sizes)))
    both = finite & np.isfinite(b)
    if not both.all():
        off = np.where(both, off, (a != b) & ~(np.isnan(a) & np.isnan(b)))
    if not off.any():
        return None
    at = _first(torch.as_tensor(off))
    x, y = a[at].item(), b[at].item()
    gap = abs(x - y)
    worst = float(gaps[off].max())
    if (
        math.isfinite(worst)
        and worst <= max(NEAR, 3 * tol) * largest
        and want.dtype.is_floating_point
    ):
        return Difference(_where(at) + _missed(x, gap), at, near=True)
    return Difference(f"{_where(at)}expected {x:.4g}, got {y:.4g}", at)


def _first(off: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in off.nonzero()[0])


def _where(at: tuple[int, ...]) -> str:
    return f"at {list(at)} " if at else ""


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def described(value: Any, want: Any = None) -> str:
    """A value in a few words, with what is likely to have gone wrong."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1 and isinstance(want, int | float | bool):
            return f"a tensor that holds {value.item()} (`.item()` makes a number of it)"
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, types.GeneratorType):
        return "a generator (`list(...)` or `tuple(...)` makes values of it)"
    if isinstance(value, tuple | list):
        few = len(value) <= 8 and all(isinstance(v, int | float | str | bool) for v in value)
        return _short(value) if few else f"a {type(value).__name__} of {len(value)}"
    if type(value).__module__ == "numpy":
        return f"a NumPy {type(value).__name__} (stay in torch)"
    if inspect.isclass(value):
        return f"the class {value.__name__}, not an instance of it"
    if inspect.isroutine(value):
        return "a function"
    return f"{type(value).__name__} {_short(value)}"
