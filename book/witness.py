"""The machine check of one numbered equation.

A cell tagged `witness` ends in `witness("eq-...", left, right)`. The two sides must come from
different routes: SymPy's algebra against the formula, autograd against the hand-derived gradient,
torch's operator against the sum written out. CI fails on a labelled equation without a witness.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch


class WitnessError(AssertionError):
    """The two sides of an equation differ, or comparing them would prove nothing."""


def witness(label: str, left: Any, right: Any, *, tol: float = 1e-10) -> None:
    """Check `left == right` for the equation `label` and print what was checked.

    Args:
        label: the label of the displayed equation, `eq-...`.
        left: one side, as a SymPy expression or matrix, or as a tensor or number.
        right: the other side, of the same kind and shape.
        tol: for numbers, the largest difference allowed, relative to the largest entry
            of `right` (absolute if that is 0).

    Raises:
        WitnessError: if the sides differ, hold nan or infinity, have different shapes or
            no entries, are one and the same object, or if the comparison is so loose that a
            slightly wrong right-hand side would pass too.
        ValueError: if `label` does not start with `eq-`.
    """
    if not label.startswith("eq-"):
        raise ValueError(f"label must be that of an equation, 'eq-...', got {label!r}")
    symbolic = isinstance(left, sympy.Basic | sympy.MatrixBase)
    if symbolic != isinstance(right, sympy.Basic | sympy.MatrixBase):
        raise WitnessError(f"{label}: one side is symbolic, the other is not")
    # SymPy keeps one object for each number, so there the same object is no sign of anything.
    if left is right and not isinstance(left, sympy.Number | int | float):
        raise WitnessError(f"{label}: both sides are the same object, so nothing is compared")
    how = _symbolic(label, left, right) if symbolic else _numeric(label, left, right, tol)
    print(f"{label} holds: {how}")


def _symbolic(label: str, left: Any, right: Any) -> str:
    left, right = sympy.Matrix([left]), sympy.Matrix([right])
    if left.shape != right.shape:
        raise WitnessError(f"{label}: shapes differ, {left.shape} and {right.shape}")
    if not len(right):
        raise WitnessError(f"{label}: there are no entries to compare")
    # A wrong right-hand side, to see that the comparison can fail: every entry off by a hair.
    wrong = right.applyfunc(lambda entry: entry + sympy.Rational(1, 10**6))
    if not _vanishes(left - right):
        raise WitnessError(
            f"{label}: the difference does not simplify to zero: {_first(left - right)}"
        )
    if _vanishes(left - wrong):
        raise WitnessError(f"{label}: a wrong right-hand side passes too")
    entries = "" if len(right) == 1 else f" in all {len(right)} entries"
    return f"the difference simplifies to 0{entries} (SymPy)"


def _vanishes(difference: Any) -> bool:
    return all(sympy.simplify(entry) == 0 for entry in difference)


def _first(difference: Any) -> Any:
    return next(s for entry in difference if (s := sympy.simplify(entry)) != 0)


def _numeric(label: str, left: Any, right: Any, tol: float) -> str:
    left, right = (torch.as_tensor(x).detach() for x in (left, right))
    if left.shape != right.shape:
        raise WitnessError(f"{label}: shapes differ, {tuple(left.shape)} and {tuple(right.shape)}")
    if not right.numel():
        raise WitnessError(f"{label}: there are no entries to compare")
    if left.is_complex() or right.is_complex():
        left, right = (torch.view_as_real(x.to(torch.complex128)) for x in (left, right))
    left, right = left.to(torch.float64), right.to(torch.float64)
    if not (left.isfinite().all() and right.isfinite().all()):
        raise WitnessError(f"{label}: a side holds nan or infinity")
    scale = right.abs().max().item() or 1.0
    error = (left - right).abs().max().item()
    if error > tol * scale:
        raise WitnessError(
            f"{label}: the sides differ by {error:.3g}, allowed is {tol * scale:.3g}"
        )
    # The smallest slip a formula makes is one part in 10^5 or so: the check has to see it.
    wrong = right + 1e-5 * scale
    if (left - wrong).abs().max().item() <= tol * scale:
        raise WitnessError(
            f"{label}: tol={tol:g} is so loose that a wrong right-hand side passes too"
        )
    numbers = "number" if right.numel() == 1 else "numbers"
    return f"{right.numel()} {numbers} equal to within {tol:g}"
