"""What a witness binds, held against the table of its chapter: shapes and roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from book.formulas import algebra
from book.formulas.call import Call
from book.formulas.names import Names
from book.formulas.reading import FormulaError, read
from book.formulas.symbols import Meaning, meaning
from book.formulas.values import Expectation, Over, Scope, evaluate


def check(topic: str, label: str, latex: str, call: Call) -> None:
    """Hold what a witness binds against the table of its chapter.

    Raises:
        FormulaError: if the table gives a bound symbol another shape or role.
    """
    sizes = {k: v for k, v in call.symbols.items() if algebra.whole(v) is not None}
    for key, value in call.symbols.items():
        row = meaning(topic, label, key)
        if row is None:
            continue
        if callable(value) or isinstance(value, Over | Expectation):
            if row.role not in ("function", "random", "learned", "data"):
                raise FormulaError(f"{key} is bound to a function; its table says {row.role}")
            continue
        if row.role in ("index", "function"):
            raise FormulaError(f"{key} is bound to a value; its table says {row.role}")
        _shape(key, row, value, sizes)


def _shape(key: str, row: Meaning, value: Any, sizes: Mapping[str, Any]) -> None:
    found = shape(value)
    printed = row.shape.strip().removeprefix("(").removesuffix(")")
    wanted = [part.strip() for part in printed.split(",") if part.strip()]
    if isinstance(value, dict) or found is None or printed == "*":
        return
    if len(found) != len(wanted):
        raise FormulaError(f"{key} is bound with shape {found}; its table says ({printed})")
    for size, text in zip(found, wanted, strict=True):
        node = read(text).kids[0].kids[0].kids[0]
        scope = Scope(Names(sizes), {k: algebra.whole(v) for k, v in sizes.items()})
        try:
            said = algebra.whole(evaluate(node, scope))
        except FormulaError:  # a size that this formula does not bind
            continue
        if said != size:
            raise FormulaError(f"{key} is bound with shape {found}; its table says ({printed})")


def shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a bound value, lists included; None for a list whose members differ in shape."""
    if isinstance(value, list | tuple):
        inner = {shape(v) for v in value if not callable(v)}
        return (len(value), *(inner.pop() or ())) if len(inner) == 1 else None
    return algebra.shape(algebra.bound(value))
