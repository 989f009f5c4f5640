r"""The machine check of a numbered equation: the printed formula is the formula that is evaluated.

A cell tagged `witness` ends in `witness("eq-...", {"x": X, r"\gamma": gain, ...})`. The LaTeX of
that label is read from the notebook and evaluated with its symbols bound to these values, which
come from another route: torch's operator, autograd, a loop, SymPy. What the reading cannot take
(statements about distributions, qualitative arrows) is checked as two sides, and says why in
`unread`. CI fails on a labelled equation without a witness.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from book.formulas import bindings, mutants
from book.formulas.call import Call, RelationError
from book.formulas.printed import formula
from book.formulas.reading import FormulaError
from book.formulas.relations import holds


class WitnessError(AssertionError):
    """The two sides of an equation differ, or comparing them would prove nothing."""


_MISSING = object()


def witness(
    label: str,
    symbols: Any,
    right: Any = _MISSING,
    *,
    tol: float | None = None,
    unread: str = "",
    ranges: Mapping[str, Sequence[int]] | None = None,
    draws: Sequence[Mapping[str, Any]] = (),
    tight: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    define: Sequence[str] = (),
    only: Sequence[int] | None = None,
    approx: float | None = None,
    limit: Mapping[str, Sequence[float]] | None = None,
    halving: str | None = None,
) -> None:
    r"""Evaluate the printed formula `label` and check every relation in it; say what was checked.

    Args:
        label: the label of the displayed equation, `eq-...`.
        symbols: LaTeX of a symbol, without free indices -> what it stands for: a tensor, a number,
            a function, a list of these for what is indexed by a layer or a head, or SymPy
            expressions, then the check is exact. Use small sizes that differ, never 1, and no
            neutral value. With `right`: the left side.
        right: the other side, for what cannot be read; then `unread` says why it cannot.
        tol: the largest difference allowed, relative to the largest entry.
        unread: with two sides, why the formula cannot be read.
        ranges: the values of a free index whose range cannot be seen from where it stands.
        draws: more bindings, each of which replaces some; the formula must hold for all of them.
        tight: bindings under which each bound (`\\le`, `\\ge`) is attained; one of them for each.
        define: symbols that the formula itself defines and uses in another statement.
        only: the numbers of the statements to check here; another call checks the others.
        approx: how close an approximation must be, relative; also the end of a limit.
        limit: the symbol that goes to a limit, and the series of its values.
        halving: the bound symbol that is halved to see the order of a remainder, `O(h^4)`.

    Raises:
        WitnessError: if a relation fails, or if comparing would prove nothing.
        FormulaError: if the formula cannot be read or evaluated, at which character.
        ValueError: if `label` does not start with `eq-` or no chapter shows it.
    """
    if not label.startswith("eq-"):
        raise ValueError(f"label must be that of an equation, 'eq-...', got {label!r}")
    if right is not _MISSING:
        _two_sides(label, symbols, right, 1e-10 if tol is None else tol)
        return
    if not isinstance(symbols, Mapping):
        raise TypeError(f"{label}: the symbols are a dictionary, got {type(symbols).__name__}")
    call = Call(
        symbols, ranges or {}, draws, [tight] if isinstance(tight, Mapping) else tight, define,
        approx, limit or {}, halving, only, 1e-9 if tol is None else tol,
    )  # fmt: skip
    latex, chapter = formula(label)
    try:
        report = holds(latex, call)
        bindings.check(chapter, label, latex, call)
    except RelationError as error:
        raise WitnessError(f"{label}: {error}") from None
    except FormulaError as error:
        raise FormulaError(f"{label}: {error}\n{_pointer(latex, error.at)}") from None
    relations = "1 relation" if report.relations == 1 else f"{report.relations} relations"
    numbers = "1 number" if report.numbers == 1 else f"{report.numbers} numbers"
    how = "exactly (SymPy)" if report.exact else f"{numbers} to within {call.tol:g}"
    print(f"{label} holds: read as printed, {relations}, {how}")
    if wanted := os.environ.get(mutants.SWITCH):
        mutants.run(label, latex, call, wanted)


def _pointer(latex: str, at: int | None) -> str:
    """The line of the formula and a mark under the character."""
    if at is None:
        return latex
    begin = latex.rfind("\n", 0, at) + 1
    end = latex.find("\n", at)
    return f"{latex[begin : end if end >= 0 else None]}\n{' ' * (at - begin)}^"


def _two_sides(label: str, left: Any, right: Any, tol: float) -> None:
    """Check `left == right`, two computations of an equation that cannot be read."""
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
