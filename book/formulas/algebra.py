"""Arithmetic of what symbols stand for: numbers, rows and matrices, in float64 or exactly (SymPy).

A tensor with one dimension is a row. What does not fit is an error, which is how a lost transpose
is found: there is no broadcasting but that of a row over the rows of a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy
import torch

from book.formulas.tokens import FormulaError

Value = Any


def bound(value: Any) -> Value:
    """A bound value as the arithmetic takes it: tensors in float64, SymPy matrices as arrays."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return value.to(torch.complex128)
        return value.to(torch.float64)
    if isinstance(value, sympy.MatrixBase):
        made = np.array(value.tolist(), dtype=object)
        return made[0] if made.shape[0] == 1 else made
    if isinstance(value, bool):
        return int(value)
    return value


def exact(value: Value) -> bool:
    """Whether a value is SymPy's."""
    return isinstance(value, sympy.Basic | np.ndarray)


def is_array(value: Value) -> bool:
    """Whether a value has dimensions."""
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def shape(value: Value) -> tuple[int, ...]:
    """The shape of a value; a number's is empty."""
    return tuple(value.shape) if isinstance(value, torch.Tensor | np.ndarray) else ()


def says(value: Value) -> str:
    """A value in a message: its shape."""
    return f"shape {shape(value)}" if is_array(value) else "a number"


def _plain(value: Value) -> Value:
    """An array without dimensions is a number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    return value


def _tensors(a: Value, b: Value) -> tuple[Value, Value]:
    """Two tensors of one kind: complex if one of them is."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        return a.to(torch.complex128), b.to(torch.complex128)
    return a, b


def add(a: Value, b: Value, sign: int, at: int) -> Value:
    """`a + sign * b`: equal shapes, or a row and a matrix with rows of that length."""
    sa, sb = shape(a), shape(b)
    if sa != sb and not (sa and sb and sa[-1] == sb[-1] and {len(sa), len(sb)} == {1, 2}):
        raise FormulaError(f"{says(a)} and {says(b)} cannot be added", at)
    return _plain(a + b) if sign > 0 else _plain(a - b)


def multiply(a: Value, b: Value, at: int) -> Value:
    """The product by the shapes: of numbers, of a number and a matrix, of matrices, of a row."""
    if not is_array(a) or not is_array(b):
        return a * b
    if a.ndim > 2 or b.ndim > 2:
        raise FormulaError(f"{says(a)} and {says(b)}: no product of more than two dimensions", at)
    a, b = _tensors(a, b)
    if b.ndim == 1:  # a column times a row is a matrix; anything else does not fit
        if a.ndim != 2 or a.shape[1] != 1:
            raise FormulaError(f"{says(a)} times {says(b)} does not fit", at)
        return a @ b[None, :]
    if a.shape[-1] != b.shape[0]:
        raise FormulaError(f"{says(a)} times {says(b)} does not fit", at)
    made = a @ b
    if made.ndim == 1 and b.shape[1] == 1:
        return made[0]
    return made


def hadamard(a: Value, b: Value, at: int) -> Value:
    """The product entry by entry; a row goes over a matrix's rows, a column over its columns."""
    sa, sb = shape(a), shape(b)
    if sa and sb and sa != sb:
        row = {len(sa), len(sb)} == {1, 2} and sa[-1] == sb[-1]
        column = len(sa) == len(sb) == 2 and sa[0] == sb[0] and 1 in (sa[1], sb[1])
        if not row and not column:
            raise FormulaError(f"{says(a)} and {says(b)} have no entrywise product", at)
    a, b = _tensors(a, b)
    return _plain(a * b)


def divide(a: Value, b: Value, at: int) -> Value:
    """`a / b` for a number `b`."""
    if is_array(b):
        raise FormulaError(f"a division by {says(b)}", at)
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise FormulaError("a division by zero", at)
        return a // b if a % b == 0 else a / b
    if not exact(b) and not isinstance(b, torch.Tensor) and b == 0:
        raise FormulaError("a division by zero", at)
    return a / b


def transpose(a: Value, at: int) -> Value:
    """A row becomes a column, a column a row, a matrix its transpose."""
    if not is_array(a):
        raise FormulaError("the transpose of a number", at)
    if a.ndim == 1:
        return a[:, None]
    if a.ndim > 2:
        raise FormulaError(f"the transpose of {says(a)}", at)
    if a.shape[1] == 1:
        return a[:, 0]
    return a.T


def power(a: Value, b: Value, at: int) -> Value:
    """A number to a power, or a square matrix to a whole one."""
    if is_array(b):
        raise FormulaError(f"an exponent of {says(b)}", at)
    if is_array(a):
        if a.ndim != 2 or a.shape[0] != a.shape[1] or whole(b) is None:
            raise FormulaError(f"{says(a)} to a power; write the entrywise power with an index", at)
        if isinstance(a, np.ndarray):
            return bound(sympy.Matrix(a) ** whole(b))
        return torch.linalg.matrix_power(a, whole(b))
    if isinstance(a, int) and isinstance(b, int):
        if b >= 0:
            return a**b
        return 1 / a ** (-b)
    if exact(a) or exact(b):
        return sympy.sympify(a) ** sympy.sympify(b)
    if isinstance(a, complex) or isinstance(b, complex):
        return torch.as_tensor(a, dtype=torch.complex128) ** b
    try:
        return torch.as_tensor(a, dtype=_kind(a)) ** b
    except (RuntimeError, TypeError) as error:
        raise FormulaError(f"this power cannot be computed: {error}", at) from None


def _kind(value: Value) -> torch.dtype:
    complicated = isinstance(value, complex) or (
        isinstance(value, torch.Tensor) and value.is_complex()
    )
    return torch.complex128 if complicated else torch.float64


def whole(value: Value) -> int | None:
    """The integer that a value is; None if it is none."""
    if isinstance(value, int):
        return value
    if isinstance(value, torch.Tensor):
        if value.ndim or value.is_complex():
            return None
        value = value.item()
    if isinstance(value, sympy.Basic):
        return int(value) if value.is_Integer else None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


_SYMPY = {"ln": sympy.log, "abs": sympy.Abs, "conj": sympy.conjugate}
_TORCH = {"ln": torch.log, "conj": torch.conj, "arcsin": torch.asin, "arctan": torch.atan,
          "arccos": torch.acos}  # fmt: skip


def apply(name: str, value: Value, at: int) -> Value:
    """A function of the standard list, entry by entry."""
    if exact(value):
        function = _SYMPY.get(name) or getattr(sympy, name)
        return (
            np.vectorize(function, otypes=[object])(value) if is_array(value) else function(value)
        )
    function = _TORCH.get(name) or getattr(torch, name, None)
    if function is None:
        raise FormulaError(f"\\{name} has no value here", at)
    return function(torch.as_tensor(value, dtype=_kind(value)))


def norm(value: Value, kind: str, at: int) -> Value:
    """The length of a row, the Frobenius norm of a matrix; with `2` its largest singular value."""
    if kind not in ("", "2", "F"):
        raise FormulaError(f"a norm of kind {kind!r}", at)
    if exact(value):
        if kind == "2" and is_array(value) and value.ndim == 2 and 1 not in value.shape:
            raise FormulaError("the spectral norm needs numbers, not symbols", at)
        flat = value.flatten() if is_array(value) else [value]
        return sympy.sqrt(sum(sympy.Abs(v) ** 2 for v in flat))
    tensor = torch.as_tensor(value, dtype=_kind(value))
    if kind == "2" and tensor.ndim == 2:
        return torch.linalg.matrix_norm(tensor, 2)
    return torch.linalg.vector_norm(tensor)


def join(parts: Sequence[Value], at: int) -> Value:
    """`[a, b]`: numbers make a row, rows a longer row, matrices stand side by side."""
    if any(exact(p) for p in parts):
        parts = [np.asarray(p, dtype=object) for p in parts]
        if len({p.ndim == 2 for p in parts}) > 1:
            raise FormulaError("a matrix beside a row or a number", at)
        return np.concatenate([np.atleast_1d(p) for p in parts], axis=-1)
    tensors = [torch.as_tensor(p, dtype=_kind(p)) for p in parts]
    if len({t.ndim == 2 for t in tensors}) > 1:
        raise FormulaError("a matrix beside a row or a number", at)
    heights = {t.shape[0] for t in tensors if t.ndim == 2}
    if len(heights) > 1:
        raise FormulaError(f"matrices of {sorted(heights)} rows side by side", at)
    tensors = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    if any(t.is_complex() for t in tensors):
        tensors = [t.to(torch.complex128) for t in tensors]
    return torch.cat(tensors, dim=-1)


def blocks(rows: Sequence[Sequence[Value]], at: int) -> Value:
    """A matrix from its cells, numbers or blocks; one row of numbers is a row."""
    if len({len(row) for row in rows}) > 1:
        raise FormulaError("the rows of this matrix have different lengths", at)
    if any(exact(v) for row in rows for v in row):
        cells = [[np.atleast_2d(np.asarray(v, dtype=object)) for v in row] for row in rows]
        made: Any = np.block(cells)
    else:
        try:
            made = torch.cat(
                [torch.cat([_cell(v) for v in row], 1) for row in rows],
                0,
            )
        except RuntimeError as error:
            raise FormulaError(f"the cells of this matrix do not fit: {error}", at) from None
    return made[0] if made.shape[0] == 1 else made


def _cell(value: Value) -> torch.Tensor:
    tensor = torch.as_tensor(value, dtype=_kind(value))
    return tensor.reshape(1, -1) if tensor.ndim < 2 else tensor


def stack(values: Sequence[Value], at: int) -> Value:
    """Values of one shape as one tensor with a dimension more, in front."""
    if any(exact(v) for v in values):
        return np.array([np.asarray(v, dtype=object) for v in values], dtype=object)
    tensors = [torch.as_tensor(v, dtype=_kind(v)) for v in values]
    if len({t.shape for t in tensors}) != 1:
        raise FormulaError("these have different shapes", at)
    return torch.stack(tensors)


def extreme(values: Sequence[Value], largest: bool, at: int) -> Value:
    """The largest or smallest of several values, entry by entry; a number is held against each."""
    if any(exact(v) for v in values):
        return (sympy.Max if largest else sympy.Min)(*values)
    tensors = [torch.as_tensor(v, dtype=torch.float64) for v in values]
    choose = torch.maximum if largest else torch.minimum
    found = tensors[0]
    for tensor in tensors[1:]:
        if found.ndim and tensor.ndim and found.shape != tensor.shape:
            raise FormulaError(f"{says(found)} and {says(tensor)} cannot be compared", at)
        found = choose(found, tensor)
    return found


def standard(name: str) -> Callable[..., Value] | None:
    r"""What an `\\operatorname` means in every book of mathematics: diag, tr, det, sign, Re, ..."""
    return _STANDARD.get(name)


def _diag(*parts: Value) -> Value:
    line = len(parts) == 1 and is_array(parts[0]) and 1 in (parts[0].ndim, *parts[0].shape[1:])
    if line:  # a row, or a column
        row = parts[0].reshape(-1)
        return bound(sympy.diag(*row)) if exact(row) else torch.diag(row)
    if any(exact(p) for p in parts):
        return bound(sympy.diag(*[sympy.Matrix(p) if is_array(p) else p for p in parts]))
    return torch.block_diag(  # type: ignore[no-untyped-call]
        *[torch.as_tensor(p, dtype=_kind(p)) for p in parts]
    )


def _trace(value: Value) -> Value:
    if shape(value)[:1] != shape(value)[1:]:
        raise ValueError(f"the trace of {says(value)}")
    return value.trace() if exact(value) else torch.trace(value)


def _rank(value: Value) -> Value:
    return sympy.Matrix(value).rank() if exact(value) else int(torch.linalg.matrix_rank(value))


def _each(name: str) -> Callable[[Value], Value]:
    return lambda value: apply(name, value, 0)


_STANDARD: dict[str, Callable[..., Value]] = {
    "diag": _diag,
    "tr": _trace,
    "rank": _rank,
    "Re": lambda v: sympy.re(v) if exact(v) else torch.as_tensor(v, dtype=_kind(v)).real,
    **{name: _each(name) for name in ("sign", "erf", "erfc", "expm1", "log1p")},
}


def _plausible(gap: sympy.Expr) -> bool:
    """Whether a difference vanishes at one point: most wrong formulas fail here, quickly."""
    symbols = sorted(gap.free_symbols, key=str)
    point = {s: 0.7 + 0.31 * k + 0.013 * k * k for k, s in enumerate(symbols)}
    try:
        return abs(complex(gap.subs(point).evalf())) < 1e-9
    except (TypeError, ValueError):  # what has no number there is left to simplify
        return True


def difference(a: Value, b: Value, at: int) -> tuple[float, int]:
    """The largest difference of two sides, relative to the larger side, and how many numbers.

    A printed 0 may stand for a row or matrix of zeros.
    """
    if (isinstance(b, int) and b == 0) or (isinstance(a, int) and a == 0):
        b, a = (b, a) if isinstance(b, int) and b == 0 else (a, b)
        b = a - a
    if shape(a) != shape(b):
        raise FormulaError(f"the sides are {says(a)} and {says(b)}", at)
    if exact(a) or exact(b):
        pairs = zip(np.ravel(np.asarray(a, object)), np.ravel(np.asarray(b, object)), strict=True)
        gaps = [sympy.sympify(x) - sympy.sympify(y) for x, y in pairs]
        agree = all(_plausible(g) for g in gaps) and all(sympy.simplify(g) == 0 for g in gaps)
        return (0.0 if agree else math.inf), len(gaps)
    x, y = (torch.as_tensor(v, dtype=_kind(v)).detach() for v in (a, b))
    x, y = _tensors(x, y)
    if x.isnan().any() or y.isnan().any():
        raise FormulaError("a side holds nan", at)
    same = x == y  # infinite entries agree if they are the same
    x, y = torch.where(same, 0, x), torch.where(same, 0, y)
    if not (x.isfinite().all() and y.isfinite().all()):
        return math.inf, x.numel()
    kept = torch.as_tensor(b, dtype=_kind(b)).detach()
    kept = kept[kept.isfinite()].abs()
    scale = kept.max().item() if kept.numel() else 0.0
    gap = (x - y).abs().max().item() if x.numel() else 0.0
    return gap / (scale or 1.0), x.numel()
