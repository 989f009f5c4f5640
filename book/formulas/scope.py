"""What the names mean at one place of a formula, and what a printed symbol stands for there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
import torch

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.names import Names, Symbol, symbol
from book.formulas.reading import FormulaError, Node, spell

# Node kind -> how it is evaluated; filled by `terms` and `pieces`.
EVALUATE: dict[str, Callable[[Node, Scope], Value]] = {}

BRACKETS = ("paren", "bracket", "set")


DIFFERENTIALS = ("\\partial", "\\mathrm{d}")


class Over:
    """A function of a row that is printed with the index that it runs over: `softmax_j(...)`."""

    def __init__(self, function: Callable[[Value], Value]) -> None:
        self.function = function


class Expectation:
    """An exact mean: every sample of the random symbols, with its weight.

    Args:
        over: symbol -> its samples, along the first dimension, of one length for all symbols.
        weights: the weight of each sample; equal if not given.
        variance: give the variance of the expression in place of its mean.
    """

    def __init__(
        self, over: Mapping[str, torch.Tensor], weights: torch.Tensor | None = None,
        *, variance: bool = False,
    ) -> None:  # fmt: skip
        counts = {len(v) for v in over.values()}
        if len(counts) != 1:
            raise ValueError(f"the symbols have different numbers of samples: {sorted(counts)}")
        (self.count,) = counts
        self.over, self.variance = dict(over), variance
        self.weights = torch.full((self.count,), 1 / self.count) if weights is None else weights


def signs(*shape: int) -> torch.Tensor:
    """Every array of the given shape with entries 1 and -1, along the first dimension."""
    size = int(np.prod(shape))
    one = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    every = torch.cartesian_prod(*[one] * size).reshape(2**size, size)
    return every.reshape(2**size, *shape)


@dataclass
class Scope:
    """What the names mean at one place of a formula."""

    names: Names
    values: dict[str, Value]
    index: dict[str, int] = field(default_factory=dict)
    # The values that each running index takes, for what runs over all of them.
    ranges: dict[str, Sequence[int]] = field(default_factory=dict)
    given: dict[str, Sequence[int]] = field(default_factory=dict)
    defined: dict[str, tuple[tuple[str, ...], Node]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def at(self, **changes: Any) -> Scope:
        """This scope with changes."""
        return Scope(**{**self.__dict__, **changes})

    def with_index(self, values: Mapping[str, int]) -> Scope:
        """This scope with indices set."""
        return self.at(index={**self.index, **values})


def evaluate(node: Node, scope: Scope) -> Value:
    """The value of a piece of a formula.

    Raises:
        FormulaError: if it has none; the message names the symbol and its place.
    """
    return EVALUATE[node.kind](node, scope)


def bare(node: Node) -> str | None:
    """The letter that a node prints without scripts but primes; None if it prints more."""
    one = symbol(node)
    return one.letter if one and not one.subs and not one.sups else None


def is_index(node: Node, scope: Scope) -> str | None:
    """The name of the index that a node is: a bare letter that nothing is bound to."""
    letter = bare(node)
    if letter is None:
        return None
    one = symbol(node)
    return None if one is None or scope.names.find(one) else letter


def _unknown(one: Symbol, scope: Scope) -> FormulaError:
    near = [k for k in scope.values if k.startswith(one.base)]
    hint = f"; bound are {', '.join(near)}" if near else ""
    return FormulaError(f"the symbol {one.letter} is bound to nothing{hint}", one.start)


def symbol_value(
    one: Symbol, scope: Scope, prefix: str = ""
) -> tuple[Value, list[Node], list[Node]]:
    """A symbol's value with its indices taken, and the scripts left: unused, and raised."""
    found = scope.names.find(one, prefix)
    if found is None and one.primes and not prefix:
        plain = Symbol(one.base, 0, one.subs, one.sups, one.start, one.end, one.stop)
        found = scope.names.find(plain)
        if found and callable(scope.values[found[0]]):
            value, left, sups = symbol_value(plain, scope)
            return derivative_of(value, one.primes, one.start), left, sups
        found = None
    if found is None:
        letter = one.letter
        if (accented := _accented(one, scope)) is not None:
            value, rest = accented, [s for s in one.sups if s.kind != "paren"]
            for index in [*(s for s in one.sups if s.kind == "paren"), *one.subs]:
                value = take(value, index, letter, scope)
            return value, [], rest
        if not prefix and letter in scope.index and not one.subs:
            return scope.index[letter], [], list(one.sups)
        if letter in ("\\infty",):
            return float("inf"), [], list(one.sups)
        raise _unknown(one, scope)
    key, n, m = found
    scope.used.add(key)
    indices = [s for s in one.sups[m:] if s.kind == "paren"] + list(one.subs[n:])
    rest = [s for s in one.sups[m:] if s.kind != "paren"]
    if key in scope.defined:
        names, body = scope.defined[key]
        if len(names) != len(indices):
            raise FormulaError(f"{key} is defined with {len(names)} indices", one.start)
        chosen = {n: whole(i, scope) for n, i in zip(names, indices, strict=True)}
        return evaluate(body, scope.with_index(chosen)), [], rest
    value = scope.values[key]
    while indices and not callable(value) and not isinstance(value, Over | Expectation):
        value = take(value, indices.pop(0), key, scope)
    return value, indices, rest


def under_accent(one: Symbol, scope: Scope) -> tuple[str, Node] | None:
    """An accent that is bound as a function, and the letter under it; None if it is none."""
    parts = re.fullmatch(r"(\\[a-z]+)\{(.+)\}", one.base)
    if parts is None or one.primes or not callable(scope.values.get(parts[1])):
        return None
    return parts[1], Node("name", [], parts[2], one.start, one.stop)


def _accented(one: Symbol, scope: Scope) -> Value | None:
    found = under_accent(one, scope)
    if found is None:
        return None
    scope.used.add(found[0])
    return call(scope.values[found[0]], [evaluate(found[1], scope)], one.start)


def take(value: Value, index: Node, key: str, scope: Scope) -> Value:
    """A value at one printed index: an entry, a row, a slice."""
    if index.kind == "all":
        return _keep(value, key)
    if index.kind == "slice":
        low, high = (whole(k, scope) for k in index.kids)
        if not 0 <= low <= high <= len(value):
            raise FormulaError(f"{key} has {len(value)} rows, not {low}:{high}", index.start)
        return value[low:high]
    i = whole(index, scope)
    if isinstance(value, dict):
        if i not in value:
            raise FormulaError(f"{key} has no entry {i}", index.start)
        return algebra.bound(value[i])
    if isinstance(value, _Columns):
        return value.take(i, index.start)
    if not isinstance(value, list | tuple) and not algebra.is_array(value):
        raise FormulaError(f"{key} is a number and has no index", index.start)
    if not 0 <= i < len(value):
        raise FormulaError(f"{key} has {len(value)} entries, so none at {i}", index.start)
    found = value[i]
    return algebra.bound(found)


class _Columns:
    """A matrix whose rows are all taken, `W_{:,k}`: the next index chooses a column."""

    def __init__(self, value: Value, key: str) -> None:
        self.value, self.key = value, key

    def take(self, i: int, at: int) -> Value:
        """Column `i`, as a column."""
        if not 0 <= i < self.value.shape[1]:
            raise FormulaError(f"{self.key} has {self.value.shape[1]} columns, none at {i}", at)
        return self.value[:, i : i + 1]


def _keep(value: Value, key: str) -> Value:
    """`:` keeps a dimension: of a row taken from a matrix all of it, of a matrix its rows."""
    if algebra.is_array(value) and value.ndim == 2:
        return _Columns(value, key)
    return value


def whole(node: Node, scope: Scope) -> int:
    """The whole number that a piece of a formula is."""
    value = algebra.whole(evaluate(node, scope))
    if value is None:
        raise FormulaError(f"the index {spell(node)} is not a whole number", node.start)
    return value


def bracketed(node: Node) -> bool:
    """Whether a piece is something in brackets, with or without scripts."""
    return (node.kids[0] if node.kind == "item" else node).kind in BRACKETS


def differential_sign(node: Node) -> str | None:
    r"""The sign of a fraction of differentials, `\\partial` or an upright d."""
    firsts = [k.kids[0] if k.kind == "term" else k for k in node.kids]
    spelled = [spell(f) for f in firsts]
    # The numerator may be raised, d^2; that is not read.
    return spelled[1] if spelled[0] == spelled[1] and spelled[1] in DIFFERENTIALS else None


def derivative_of(function: Callable[..., Value], times: int, at: int) -> Callable[..., Value]:
    """f', f'', ...: by autograd, or by SymPy if the argument is a symbol."""

    def derived(x: Value, *more: Value) -> Value:
        if algebra.exact(x):
            t = sympy.Dummy("t", real=True)
            return sympy.diff(function(t, *more), t, times).subs(t, x)
        leaf = torch.as_tensor(x, dtype=torch.float64).detach().clone().requires_grad_()
        value = function(leaf, *more)
        for _ in range(times):
            if not value.requires_grad:
                raise FormulaError("this function does not depend on its argument", at)
            (value,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
        return value

    return derived


def call(function: Callable[..., Value], arguments: Sequence[Value], at: int) -> Value:
    """A bound function's value; what it raises is reported with the place of the call."""
    try:
        made = function(*arguments)
    except FormulaError:
        raise
    except Exception as first:
        # torch's functions want tensors, and a printed number is none.
        tensors = [
            torch.as_tensor(a, dtype=torch.float64) if isinstance(a, int | float) else a
            for a in arguments
        ]
        try:
            made = function(*tensors)
        except Exception:
            raise FormulaError(
                f"this function fails with {type(first).__name__}: {first}", at
            ) from first
    return algebra.bound(made)
