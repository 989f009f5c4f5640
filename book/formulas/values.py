"""The value of a printed formula, from what its symbols are bound to.

Nothing is defined here but arithmetic: a name without a binding is an index if it stands as one, and
an error otherwise; so is whatever cannot be evaluated. Free indices and sums range over the
dimensions at which they stand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
import torch

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.names import PREFIXES, Names, Symbol, symbol
from book.formulas.reading import FormulaError, Node, spell

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
        made = Scope(**{**self.__dict__, **changes})
        return made

    def with_index(self, values: Mapping[str, int]) -> Scope:
        """This scope with indices set."""
        return self.at(index={**self.index, **values})


# ---------------------------------------------------------------- what a symbol is


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


def evaluate(node: Node, scope: Scope) -> Value:
    """The value of a piece of a formula.

    Raises:
        FormulaError: if it has none; the message names the symbol and its place.
    """
    return _EVALUATE[node.kind](node, scope)


def _unknown(one: Symbol, scope: Scope) -> FormulaError:
    near = [k for k in scope.values if k.startswith(one.base)]
    hint = f"; bound are {', '.join(near)}" if near else ""
    return FormulaError(f"the symbol {one.letter} is bound to nothing{hint}", one.start)


def _symbol(one: Symbol, scope: Scope, prefix: str = "") -> tuple[Value, list[Node], list[Node]]:
    """A symbol's value with its indices taken, and the scripts that are left: unused, and raised."""
    found = scope.names.find(one, prefix)
    if found is None and one.primes and not prefix:
        plain = Symbol(one.base, 0, one.subs, one.sups, one.start, one.end, one.stop)
        found = scope.names.find(plain)
        if found and callable(scope.values[found[0]]):
            value, left, sups = _symbol(plain, scope)
            return _derivative_of(value, one.primes, one.start), left, sups
        found = None
    if found is None:
        letter = one.letter
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
        chosen = {n: _whole(i, scope) for n, i in zip(names, indices, strict=True)}
        return evaluate(body, scope.with_index(chosen)), [], rest
    value = scope.values[key]
    while indices and not callable(value) and not isinstance(value, Over | Expectation):
        value = _take(value, indices.pop(0), key, scope)
    return value, indices, rest


def _take(value: Value, index: Node, key: str, scope: Scope) -> Value:
    if index.kind == "all":
        return _rest(value, key)
    if index.kind == "slice":
        low, high = (_whole(k, scope) for k in index.kids)
        if not 0 <= low <= high <= len(value):
            raise FormulaError(f"{key} has {len(value)} rows, not {low}:{high}", index.start)
        return value[low:high]
    i = _whole(index, scope)
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
        if not 0 <= i < self.value.shape[1]:
            raise FormulaError(f"{self.key} has {self.value.shape[1]} columns, none at {i}", at)
        return self.value[:, i : i + 1]


def _rest(value: Value, key: str) -> Value:
    """`:` keeps a dimension: of a row taken from a matrix all of it, of a matrix its rows."""
    if algebra.is_array(value) and value.ndim == 2:
        return _Columns(value, key)
    return value


def _whole(node: Node, scope: Scope) -> int:
    value = algebra.whole(evaluate(node, scope))
    if value is None:
        raise FormulaError(f"the index {spell(node)} is not a whole number", node.start)
    return value


def _derivative_of(function: Callable[..., Value], times: int, at: int) -> Callable[..., Value]:
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


# ---------------------------------------------------------------- terms


def _term(node: Node, scope: Scope) -> Value:
    return _Term(node.kids, scope).value()


class _Term:
    """Items side by side and the signs between them, read from left to right.

    A product by juxtaposition binds first, then `/`, then the dot, then the entrywise product. A
    sum, a maximum over an index, a derivative or a mean takes all that follows in its term.
    """

    def __init__(self, kids: Sequence[Node], scope: Scope) -> None:
        self.kids, self.scope, self.at = list(kids), scope, 0

    def value(self) -> Value:
        operands: list[Value] = []
        between: list[tuple[str, int]] = []
        while self.at < len(self.kids):
            kid = self.kids[self.at]
            if kid.kind == "operator":
                between.append((str(kid.text), kid.start))
                self.at += 1
            elif len(between) < len(operands):
                between.append(("", kid.start))
            operands.append(self.operand())
        return self._reduce(operands, between)

    def _reduce(self, operands: list[Value], between: list[tuple[str, int]]) -> Value:
        for level in (("",), ("/", "mod"), ("cdot",), ("odot",)):
            kept, signs_kept = [operands[0]], []
            for value, (sign, at) in zip(operands[1:], between, strict=True):
                if sign in level:
                    kept[-1] = self._combine(kept[-1], value, sign, at)
                else:
                    kept.append(value)
                    signs_kept.append((sign, at))
            operands, between = kept, signs_kept
        return operands[0]

    def _combine(self, a: Value, b: Value, sign: str, at: int) -> Value:
        if sign == "/":
            return algebra.divide(a, b, at)
        if sign == "mod":
            x, y = algebra.whole(a), algebra.whole(b)
            if x is None or not y:
                raise FormulaError("the remainder of something that is no whole number", at)
            return x % y
        return algebra.hadamard(a, b, at) if sign == "odot" else algebra.multiply(a, b, at)

    def _next(self) -> Node | None:
        return self.kids[self.at] if self.at < len(self.kids) else None

    def _rest_of_term(self, after: Node) -> Node:
        rest = self.kids[self.at :]
        if not rest:
            raise FormulaError("nothing follows here", after.end)
        self.at = len(self.kids)
        if rest[0].kind == "operator":
            raise FormulaError("nothing stands before this sign", rest[0].start)
        return rest[0] if len(rest) == 1 else Node("term", rest, "", rest[0].start, rest[-1].end)

    def operand(self) -> Value:
        kid = self.kids[self.at]
        self.at += 1
        atom = kid.kids[0] if kid.kind == "item" else kid
        if atom.kind == "big":
            return self._big(kid)
        if atom.kind == "func":
            return self._function(kid)
        if atom.kind == "frac" and (wrt := _differential(atom)):
            return _derive(wrt, self._rest_of_term(kid), self.scope)
        one = symbol(kid)
        if one is not None:
            return self._named(kid, one)
        return evaluate(kid, self.scope)

    def _named(self, kid: Node, one: Symbol) -> Value:
        scope, following = self.scope, self._next()
        prefix = ""
        if one.base in PREFIXES and not one.subs and not one.sups and following is not None:
            after = symbol(following)
            if after is not None and scope.names.find(after, one.base):
                prefix, one = one.base, after
                self.at += 1
                following = self._next()
        if not prefix and (builtin := self._standard(one)):
            return self._applied(builtin, kid, list(one.sups))
        value, left, raised = _symbol(one, scope, prefix)
        if isinstance(value, Expectation):
            return self._expected(value, kid, raised)
        if isinstance(value, Over):
            return self._over(value, kid, left)
        if callable(value):
            return self._called(value, kid, left, raised)
        if left:
            raise FormulaError(f"{one.letter} has too many indices", one.start)
        return _raise_to(value, raised, scope)

    def _standard(self, one: Symbol) -> Callable[..., Value] | None:
        if not one.base.startswith("\\operatorname{") or one.subs or one.primes:
            return None
        if self.scope.names.find(one):
            return None
        return algebra.standard(one.base[len("\\operatorname{") : -1])

    def _called(
        self, value: Callable[..., Value], kid: Node, left: list[Node], raised: list[Node]
    ) -> Value:
        following = self._next()
        if following is not None and _bracketed(following):
            parameters = [evaluate(n, self.scope) for n in left]
            return self._applied(lambda *a: value(*a, *parameters), kid, raised)
        if left:  # a family: R_{n-m}
            chosen = call(value, [_index_or_value(n, self.scope) for n in left], kid.start)
            return _raise_to(chosen, raised, self.scope)
        return self._applied(value, kid, raised)

    def _applied(self, function: Callable[..., Value], kid: Node, raised: list[Node]) -> Value:
        """A function with its argument: the bracket that follows, or what stands beside it."""
        following = self._next()
        if following is None or following.kind == "operator":
            raise FormulaError("this function has no argument", kid.end)
        if _bracketed(following):
            self.at += 1
            item = following if following.kind == "item" else Node("item", [following])
            made = call(function, _arguments(item.kids[0], self.scope), kid.start)
            if raised:  # f^2(x)
                made = _raise_to(made, raised, self.scope)
            return _scripted(made, item.kids[1:], self.scope, item)
        made = call(function, [self._beside()], kid.start)
        return _raise_to(made, raised, self.scope) if raised else made

    def _beside(self) -> Value:
        """An argument without brackets: up to the next function, sign or sum."""
        kids: list[Node] = []
        first = self.kids[self.at]
        atom = first.kids[0] if first.kind == "item" else first
        if atom.kind in ("big", "func") or self._is_function(first):
            return self.operand()
        while (kid := self._next()) is not None and kid.kind != "operator":
            atom = kid.kids[0] if kid.kind == "item" else kid
            if atom.kind in ("func", "big") or self._is_function(kid):
                break
            kids.append(kid)
            self.at += 1
        return _Term(kids, self.scope).value()

    def _is_function(self, kid: Node) -> bool:
        one = symbol(kid)
        if one is None:
            return False
        if self._standard(one):
            return True
        found = self.scope.names.find(one)
        value = self.scope.values.get(found[0]) if found else None
        return callable(value) or isinstance(value, Over | Expectation)

    def _function(self, kid: Node) -> Value:
        atom, scripts = (kid.kids[0], kid.kids[1:]) if kid.kind == "item" else (kid, [])
        name = str(atom.text)
        primes = sum(s.kind == "prime" for s in scripts)
        raised = [s.kids[0] for s in scripts if s.kind == "sup"]
        if any(s.kind == "sub" for s in scripts):
            raise FormulaError(f"\\{name} with an index", kid.start)
        function: Callable[..., Value] = lambda x: algebra.apply(name, x, kid.start)  # noqa: E731
        if primes:
            function = _derivative_of(function, primes, kid.start)
        return self._applied(function, kid, raised)

    def _big(self, kid: Node) -> Value:
        atom, scripts = (kid.kids[0], kid.kids[1:]) if kid.kind == "item" else (kid, [])
        name = str(atom.text)
        subs = [s.kids[0] for s in scripts if s.kind == "sub"]
        sups = [s.kids[0] for s in scripts if s.kind == "sup"]
        if not subs:
            following = self._next()
            if name not in ("max", "min") or following is None or not _bracketed(following):
                raise FormulaError(f"\\{name} without an index", kid.start)
            return self._applied(
                lambda *a: algebra.extreme(_flat(a), name == "max", kid.start), kid, []
            )
        body = self._rest_of_term(kid)
        if name in ("argmin", "argmax"):
            return _argument_of_extreme(subs[0], body, self.scope, name == "argmax")
        chosen = list(binder(subs[0], sups[0] if sups else None, body, self.scope, name))
        found = [evaluate(body, inner) for inner in chosen]
        if not found:
            if name == "sum":
                return 0
            if name == "prod":
                return 1
            raise FormulaError(f"\\{name} over nothing", kid.start)
        if name in ("max", "min", "sup", "inf"):
            return algebra.extreme(found, name in ("max", "sup"), kid.start)
        total = found[0]
        for value in found[1:]:
            total = (
                algebra.add(total, value, 1, kid.start)
                if name == "sum"
                else algebra.multiply(total, value, kid.start)
            )
        return total

    def _expected(self, mean: Expectation, kid: Node, raised: list[Node]) -> Value:
        following = self._next()
        scripts: list[Node] = []
        if following is not None and _bracketed(following):
            self.at += 1
            item = following if following.kind == "item" else Node("item", [following])
            body, scripts = item.kids[0].kids[0], item.kids[1:]
        else:
            body = self._rest_of_term(kid)
        values = []
        for k in range(mean.count):
            sample = {key: algebra.bound(v[k]) for key, v in mean.over.items()}
            values.append(evaluate(body, self.scope.at(values={**self.scope.values, **sample})))
        found = algebra.stack(values, kid.start)
        weights = mean.weights.to(torch.float64).reshape(-1, *[1] * (found.ndim - 1))
        average = (weights * found).sum(0)
        if mean.variance:
            average = (weights * (found - average) ** 2).sum(0)
        return _scripted(_raise_to(average, raised, self.scope), scripts, self.scope, kid)

    def _over(self, over: Over, kid: Node, left: list[Node]) -> Value:
        following = self._next()
        if len(left) != 1 or following is None or not _bracketed(following):
            raise FormulaError("this function wants one index and a bracket", kid.start)
        self.at += 1
        item = following if following.kind == "item" else Node("item", [following])
        body, index = item.kids[0].kids[0], is_index(left[0], self.scope)
        if index is None or index not in self.scope.index:
            raise FormulaError("this function runs over an index that is not one", left[0].start)
        every = self.scope.ranges[index]
        row = algebra.stack(
            [evaluate(body, self.scope.with_index({index: v})) for v in every], kid.start
        )
        made = call(over.function, [row], kid.start)
        return made[list(every).index(self.scope.index[index])]


def _flat(values: Sequence[Value]) -> list[Value]:
    """The values whose maximum is asked for: several, or the entries of one row or set."""
    if len(values) == 1 and (isinstance(values[0], list) or algebra.is_array(values[0])):
        return list(values[0])
    return list(values)


def _index_or_value(node: Node, scope: Scope) -> Value:
    value = evaluate(node, scope)
    number = algebra.whole(value)
    return value if number is None else number


def _bracketed(node: Node) -> bool:
    return (node.kids[0] if node.kind == "item" else node).kind in BRACKETS


def _arguments(bracket: Node, scope: Scope) -> list[Value]:
    inner = bracket.kids[0]
    if inner.kind == "such_that":
        raise FormulaError("a set with a condition cannot be evaluated", inner.start)
    return list(_expanded(inner, scope)) if inner.kind == "list" else [evaluate(inner, scope)]


def _raise_to(value: Value, raised: Sequence[Node], scope: Scope) -> Value:
    """A value with its superscripts: transposes, conjugates, powers."""
    for script in raised:
        text = spell(script)
        if text in ("\\top", "T") and (text == "\\top" or scope.names.find(symbol(script)) is None):  # type: ignore[arg-type]
            value = algebra.transpose(value, script.start)
        elif text == "-\\top":
            value = algebra.transpose(algebra.power(value, -1, script.start), script.start)
        elif text in ("*", "\\ast"):
            value = algebra.apply("conj", value, script.start)
        else:
            value = algebra.power(value, evaluate(script, scope), script.start)
    return value


def _scripted(value: Value, scripts: Sequence[Node], scope: Scope, node: Node) -> Value:
    """A bracket or a call with its scripts."""
    from book.formulas.names import entries, raised

    for script in scripts:
        if script.kind == "prime":
            raise FormulaError("a prime behind a bracket", script.start)
        if script.kind == "sub":
            for index in entries(script.kids[0]):
                value = _take(value, index, "this bracket", scope)
        else:
            for part in raised(script.kids[0]):
                if part.kind == "paren":
                    value = _take(value, part, "this bracket", scope)
                else:
                    value = _raise_to(value, [part], scope)
    return value


# ---------------------------------------------------------------- running indices


def binder(sub: Node, sup: Node | None, body: Node, scope: Scope, name: str) -> Iterator[Scope]:
    """The scopes in which the body of a sum is evaluated, one for each value of its index."""
    letters, condition = dummies(sub, scope)
    if sup is not None:
        if condition is None or condition.kind != "chain" or condition.text != ["="]:
            raise FormulaError("a sum with an end needs a beginning, `k=0`", sub.start)
        low = _whole(condition.kids[1], scope)
        high = _whole(sup, scope)
        steps = range(low, high + 1)
        if low > high + 1 or (name == "prod" and low > high):
            if name != "prod":
                raise FormulaError(f"a sum from {low} to {high}", sub.start)
            steps = range(low, high - 1, -1)
        yield from _chosen(letters, [steps], None, scope)
        return
    if condition is not None and condition.kind == "chain" and condition.text == ["in"]:
        members = evaluate(condition.kids[1], scope)
        numbers = [algebra.whole(m) for m in members]
        if any(n is None for n in numbers):
            raise FormulaError("this set holds something that is no index", condition.start)
        yield from _chosen(letters, [numbers], None, scope)  # type: ignore[list-item]
        return
    spans = []
    for letter in letters:
        span = scope.given.get(letter) or extent(letter, [body, sub], scope)
        if span is None:
            raise FormulaError(
                f"over what {letter} runs cannot be seen; state it in ranges=", sub.start
            )
        spans.append(span)
    yield from _chosen(letters, spans, condition, scope)


def _chosen(
    letters: Sequence[str], spans: Sequence[Sequence[int]], condition: Node | None, scope: Scope
) -> Iterator[Scope]:
    kept = [dict(zip(letters, values, strict=True)) for values in itertools.product(*spans)]
    if condition is not None:
        kept = [v for v in kept if truth(condition, scope.with_index(v))]
    if len(letters) == 1:
        ranges = {**scope.ranges, letters[0]: [v[letters[0]] for v in kept]}
    else:
        ranges = {**scope.ranges, **dict(zip(letters, spans, strict=True))}
    for values in kept:
        yield scope.at(index={**scope.index, **values}, ranges=ranges)


def dummies(sub: Node, scope: Scope) -> tuple[list[str], Node | None]:
    """The indices that a sum binds, and the condition or the beginning printed under it."""
    condition: Node | None = None
    head = sub
    if sub.kind == "such_that":
        head, condition = sub.kids
    elif sub.kind == "chain":
        head, condition = sub.kids[0], sub
        if is_index(head, scope) is None:
            found = [k for k in sub.kids if is_index(k, scope)]
            if not found:
                raise FormulaError("no index stands under this sign", sub.start)
            head = found[0]
    letters = []
    from book.formulas.names import entries

    for part in entries(head):
        letter = is_index(part, scope)
        if letter is None:
            raise FormulaError(f"{spell(part)} is bound, so it is no running index", part.start)
        letters.append(letter)
    return letters, condition


def extent(letter: str, nodes: Sequence[Node], scope: Scope) -> Sequence[int] | None:
    """Over what an index runs: the dimension at which it stands. None if it stands at none."""
    found: dict[int, str] = {}
    for node in nodes:
        for size, key in _sizes(letter, node, scope):
            found.setdefault(size, key)
    if len(found) > 1:
        where = ", ".join(f"{size} at {key}" for size, key in found.items())
        raise FormulaError(
            f"{letter} stands at dimensions of different size: {where}", nodes[0].start
        )
    return range(next(iter(found))) if found else None


def _sizes(letter: str, node: Node, scope: Scope) -> Iterator[tuple[int, str]]:
    from book.formulas.names import entries, raised

    one = symbol(node)
    if one is not None:
        found = scope.names.find(one)
        if found:
            key, n, m = found
            indices = [s for s in one.sups[m:] if s.kind == "paren"] + list(one.subs[n:])
            if key in scope.defined:
                names, body = scope.defined[key]
                for name, index in zip(names, indices, strict=False):
                    if _stands(letter, index):
                        yield from _sizes(name, body, scope)
            else:
                yield from _along(letter, scope.values[key], indices, key)
    elif node.kind == "item" and node.kids[0].kind not in ("big", "func", "name"):
        indices = []
        for script in node.kids[1:]:
            if script.kind == "sub":
                indices += entries(script.kids[0])
            elif script.kind == "sup":
                indices += [p for p in raised(script.kids[0]) if p.kind == "paren"]
        if any(_stands(letter, i) for i in indices):
            value = _guess(node.kids[0], scope)
            yield from _along(letter, value, indices, "a bracket")
    if node.kind == "term":
        # The result of a call, with an index behind its bracket.
        for before, after in itertools.pairwise(node.kids):
            if after.kind == "item" and _bracketed(after) and symbol(before):
                indices = [i for s in after.kids[1:] if s.kind == "sub" for i in entries(s.kids[0])]
                if any(_stands(letter, i) for i in indices):
                    plain = Node("term", [before, after.kids[0]], "", before.start, after.end)
                    yield from _along(letter, _guess(plain, scope), indices, "a call")
    for kid in node.kids:
        yield from _sizes(letter, kid, scope)


def _stands(letter: str, index: Node) -> bool:
    if index.kind == "paren":
        index = index.kids[0]
    return bare(index) == letter


def _along(
    letter: str, value: Value, indices: Sequence[Node], key: str
) -> Iterator[tuple[int, str]]:
    for index in indices:
        if value is None or callable(value) or isinstance(value, Over | Expectation | dict):
            return
        if not isinstance(value, list | tuple) and not algebra.is_array(value):
            return
        if _stands(letter, index):
            yield len(value), key
        if not len(value):
            return
        value = algebra.bound(value[0])


def _guess(node: Node, scope: Scope) -> Value:
    """The value of a piece with every unknown index at its first value, to see its shape."""
    unknown = {n: (scope.given.get(n) or [0])[0] for n in letters(node, scope)}
    ranges = {n: scope.given.get(n) or [0] for n in unknown}
    try:
        return evaluate(
            node, scope.at(index={**unknown, **scope.index}, ranges={**ranges, **scope.ranges})
        )
    except FormulaError:
        return None


def letters(node: Node, scope: Scope) -> list[str]:
    """The free indices of a piece of a formula, in the order of their first use."""
    found: dict[str, None] = {}
    _letters(node, scope, frozenset(), found)
    return list(found)


def _letters(node: Node, scope: Scope, inner: frozenset[str], found: dict[str, None]) -> None:
    if node.kind in ("term", "item", "big"):
        kids = node.kids if node.kind == "term" else [node]
        hidden, skip = set(inner), False
        for kid, after in zip(kids, [*kids[1:], None], strict=True):
            if skip:
                skip = False
                _scripts(kid, scope, frozenset(hidden), found)
                continue
            atom = kid.kids[0] if kid.kind == "item" else kid
            if atom.kind == "big":
                for script in kid.kids[1:]:
                    sub = script.kids[0]
                    if script.kind == "sub" and atom.text not in ("argmin", "argmax"):
                        hidden |= set(dummies(sub, scope)[0])
                for script in kid.kids[1:]:
                    _letters(script.kids[0], scope, frozenset(hidden), found)
                continue
            one = symbol(kid)
            if one is not None:
                joined = symbol(after) if after is not None else None
                if one.base in PREFIXES and joined and scope.names.find(joined, one.base):
                    skip = True
                    continue
                if one.base == "O" and after is not None and _bracketed(after):
                    continue  # O(h^2), or a bound function
                _one(one, kid, scope, frozenset(hidden), found)
            elif kid.kind == "item":
                for part in kid.kids:
                    _letters(part, scope, frozenset(hidden), found)
            elif kid is not node:
                _letters(kid, scope, frozenset(hidden), found)
        return
    if node.kind == "name":
        one = symbol(node)
        if one is not None:
            _one(one, node, scope, inner, found)
        return
    if node.kind == "frac" and _over_differential(node):
        for side in node.kids:
            kids = side.kids[1:] if side.kind == "term" else []
            for kid in kids:
                _letters(kid, scope, inner, found)
        return
    for kid in node.kids:
        _letters(kid, scope, inner, found)


def _scripts(kid: Node, scope: Scope, inner: frozenset[str], found: dict[str, None]) -> None:
    """The indices of a symbol whose name is known to be bound together with a prefix."""
    for script in kid.kids[1:] if kid.kind == "item" else []:
        _letters(script, scope, inner, found)


_NO_INDEX = ("\\infty", "\\top", "*", "\\ast", "\\mathbb{R}", "\\mathbb{Z}")


def _one(
    one: Symbol, kid: Node, scope: Scope, inner: frozenset[str], found: dict[str, None]
) -> None:
    known = scope.names.find(one)
    plain = Symbol(one.base, 0, one.subs, one.sups, one.start, one.end, one.stop)
    if known is None and one.primes:
        known = scope.names.find(plain)
    n, m = known[1:] if known else (0, 0)
    if known is None and not one.subs:
        special = one.letter.startswith("\\operatorname{") or one.letter in _NO_INDEX
        if not special and one.letter not in inner:
            found.setdefault(one.letter)
    for script in [*one.subs[n:], *one.sups[m:]]:
        _letters(script, scope, inner, found)


# ---------------------------------------------------------------- derivatives


def _over_differential(node: Node) -> str | None:
    """The sign of a fraction of differentials, `\\partial` or an upright d."""
    firsts = [k.kids[0] if k.kind == "term" else k for k in node.kids]
    spelled = [spell(f) for f in firsts]
    # The numerator may be raised, d^2; that is not read.
    return spelled[1] if spelled[0] == spelled[1] and spelled[1] in DIFFERENTIALS else None


def _differential(node: Node) -> Node | None:
    """The denominator of an operator such as ∂/∂z before what it acts on."""
    sign = _over_differential(node)
    return node.kids[1] if sign and node.kids[0].kind != "term" else None


def _fraction(node: Node, scope: Scope) -> Value:
    if _over_differential(node):
        top = node.kids[0]
        if top.kind != "term":
            raise FormulaError("nothing follows this derivative", node.end)
        rest = top.kids[1:]
        body = rest[0] if len(rest) == 1 else Node("term", rest, "", rest[0].start, top.end)
        return _derive(node.kids[1], body, scope)
    top, bottom = (evaluate(k, scope) for k in node.kids)
    return algebra.divide(top, bottom, node.start)


def _derive(bottom: Node, body: Node, scope: Scope) -> Value:
    """The derivative of `body` by the symbol in the denominator: rows are outputs."""
    one = symbol(bottom.kids[1]) if bottom.kind == "term" and len(bottom.kids) == 2 else None
    found = scope.names.find(one) if one else None
    if one is None or found is None:
        raise FormulaError("the derivative by something that is no bound symbol", bottom.start)
    key, n, m = found
    scope.used.add(key)
    indices = [s for s in one.sups[m:] if s.kind == "paren"] + list(one.subs[n:])
    leaf = scope.values[key]
    if key in scope.defined:
        raise FormulaError(f"the derivative by {key}, which is only defined", bottom.start)
    while isinstance(leaf, list | tuple):
        leaf = leaf[_whole(indices.pop(0), scope)]
    if algebra.exact(leaf):
        for index in indices:
            leaf = _take(leaf, index, key, scope)
        return _derive_exactly(evaluate(body, scope), leaf, bottom.start)
    if not isinstance(leaf, torch.Tensor):
        leaf = torch.as_tensor(leaf, dtype=torch.float64)
    if not leaf.requires_grad:
        leaf = leaf.to(torch.float64).detach().clone().requires_grad_()
        scope = scope.at(values={**scope.values, key: leaf})
    value = torch.as_tensor(evaluate(body, scope))
    if not value.requires_grad:
        raise FormulaError(f"this does not depend on {key}", body.start)
    rows = []
    for entry in value.flatten():
        (row,) = torch.autograd.grad(entry, leaf, retain_graph=True, allow_unused=True)
        if row is None:
            raise FormulaError(f"this does not depend on {key}", body.start)
        rows.append(row)
    made = torch.stack(rows).reshape((*value.shape, *leaf.shape)).to(torch.float64)
    for index in indices:
        made = made.select(
            value.ndim, _checked(_whole(index, scope), made.shape[value.ndim], index)
        )
    return made


def _checked(i: int, size: int, node: Node) -> int:
    if not 0 <= i < size:
        raise FormulaError(f"there is no entry {i} of {size}", node.start)
    return i


def _derive_exactly(value: Value, leaf: Value, at: int) -> Value:
    by = list(leaf) if algebra.is_array(leaf) else [leaf]
    if not all(isinstance(s, sympy.Symbol) for s in by):
        raise FormulaError("the derivative by something that is no symbol", at)
    outputs = list(value) if algebra.is_array(value) else [value]
    made = np.array([[sympy.diff(v, s) for s in by] for v in outputs], dtype=object)
    made = made if algebra.is_array(value) else made[0]
    if not algebra.is_array(leaf):
        made = made[..., 0]
    return made.item() if isinstance(made, np.ndarray) and not made.ndim else made


def _argument_of_extreme(sub: Node, body: Node, scope: Scope, largest: bool) -> Value:
    """Where the body is smallest or largest, by Newton's steps from the bound start."""
    one = symbol(sub)
    found = scope.names.find(one) if one else None
    if found is None:
        raise FormulaError("bind the variable of arg min to a start", sub.start)
    key = found[0]
    scope.used.add(key)
    start = torch.as_tensor(scope.values[key], dtype=torch.float64).detach()

    def objective(flat: torch.Tensor) -> torch.Tensor:
        inner = scope.at(values={**scope.values, key: flat.reshape(start.shape)})
        return torch.as_tensor(evaluate(body, inner))

    point = start.flatten().clone()
    for _ in range(30):
        gradient = torch.func.grad(objective)(point)
        hessian = torch.func.hessian(objective)(point)
        step = torch.linalg.solve(hessian, gradient)
        point = point - step
        if step.norm() < 1e-13 * (1 + point.norm()):
            break
    curvature = torch.linalg.eigvalsh(torch.func.hessian(objective)(point))
    if not ((curvature < 0) if largest else (curvature > 0)).all():
        raise FormulaError("the point found is no extreme of this kind", body.start)
    return point.reshape(start.shape)


# ---------------------------------------------------------------- truth, and the other pieces

_TRUTH: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b if isinstance(a, int) and isinstance(b, int) else abs(a - b) <= 1e-12,
    "!=": lambda a, b: not _TRUTH["="](a, b),
}


def truth(node: Node, scope: Scope) -> bool:
    """Whether a condition holds: a relation of numbers, or several joined by and, or."""
    if node.kind == "otherwise":
        return True
    if node.kind == "logic":
        made = truth(node.kids[0], scope)
        for word, kid in zip(node.text, node.kids[1:], strict=True):
            made = (made or truth(kid, scope)) if word == "or" else (made and truth(kid, scope))
        return made
    if node.kind != "chain" or not node.text:
        raise FormulaError("a condition without a relation", node.start)
    for left, how, right in zip(node.kids, node.text, node.kids[1:], strict=False):
        if how == "in":
            members = [algebra.whole(v) for v in evaluate(right, scope)]
            if algebra.whole(evaluate(left, scope)) not in members:
                return False
            continue
        if how == "nmid":
            a, b = _whole(left, scope), _whole(right, scope)
            if b % a == 0:
                return False
            continue
        if how not in _TRUTH:
            raise FormulaError("this relation is no condition", node.start)
        a, b = evaluate(left, scope), evaluate(right, scope)
        if algebra.is_array(a) or algebra.is_array(b):
            raise FormulaError("a condition on a row or matrix", node.start)
        if not bool(_TRUTH[how](a, b)):
            return False
    return True


def _sum(node: Node, scope: Scope) -> Value:
    total: Value = None
    for sign, kid in zip(node.text, node.kids, strict=True):
        value = evaluate(kid, scope)
        plus = 1
        if sign == "-":
            plus = -1
        elif sign in ("±", "∓"):
            if "±" not in scope.index:
                raise FormulaError("± outside a relation", kid.start)
            plus = scope.index["±"] * (1 if sign == "±" else -1)
        if total is None:
            total = value if plus > 0 else -value
        else:
            total = algebra.add(total, value, plus, kid.start)
    return total


def _item(node: Node, scope: Scope) -> Value:
    if symbol(node) is not None or node.kids[0].kind in ("big", "func"):
        return _Term([node], scope).value()
    if node.kids[0].kind == "norm":
        kinds = [s for s in node.kids[1:] if s.kind == "sub"]
        value = algebra.norm(
            evaluate(node.kids[0].kids[0], scope),
            spell(kinds[0].kids[0]) if kinds else "",
            node.start,
        )
        return _scripted(value, [s for s in node.kids[1:] if s.kind != "sub"], scope, node)
    if node.kids[0].kind == "bracket":
        subs = [s for s in node.kids[1:] if s.kind == "sub"]
        from book.formulas.names import entries

        if subs and node.kids[0].kids[0].kind != "list":
            indices = [is_index(e, scope) for e in entries(subs[0].kids[0])]
            if all(i is not None and i not in scope.index for i in indices):
                value = _table(node.kids[0].kids[0], [i for i in indices if i], scope)
                return _scripted(value, [s for s in node.kids[1:] if s.kind != "sub"], scope, node)
    return _scripted(evaluate(node.kids[0], scope), node.kids[1:], scope, node)


def _table(body: Node, indices: Sequence[str], scope: Scope) -> Value:
    """`[...]_{ij}`: the matrix with these entries."""
    if not indices:
        return evaluate(body, scope)
    span = scope.given.get(indices[0]) or extent(indices[0], [body], scope)
    if span is None:
        raise FormulaError(f"over what {indices[0]} runs cannot be seen", body.start)
    rows = [_table(body, indices[1:], scope.with_index({indices[0]: v})) for v in span]
    return algebra.stack(rows, body.start)


def _number(node: Node, scope: Scope) -> Value:
    text = str(node.text)
    symbolic = any(algebra.exact(v) for v in scope.values.values())
    if "." in text:
        return sympy.Rational(text) if symbolic else float(text)
    return sympy.Integer(text) if symbolic else int(text)


def _list(node: Node, scope: Scope) -> Value:
    return algebra.join(list(_expanded(node, scope)), node.start)


def _expanded(node: Node, scope: Scope) -> Iterator[Value]:
    """The members of a printed list, with those that an ellipsis stands for."""
    kids = node.kids
    dots = [p for p, kid in enumerate(kids) if kid.kind == "dots"]
    if not dots:
        yield from (evaluate(kid, scope) for kid in kids)
        return
    position = dots[0]
    if len(dots) > 1 or position == 0 or position != len(kids) - 2:
        raise FormulaError("a list with dots is printed as first, second, dots, last", node.start)
    first, last = _difference(kids[0], kids[-1])
    low, high = _whole(first, scope), _whole(last, scope)
    for step, kid in enumerate(kids[1:position], start=1):
        here, there = _difference(kids[0], kid)
        if here is not first or _whole(there, scope) != low + step:
            raise FormulaError("this member does not follow the one before", kid.start)
    if low > high:
        raise FormulaError(f"a list from {low} to {high}", node.start)
    for value in range(low, high + 1):
        yield evaluate(_replaced(kids[0], first, value), scope)


def _difference(a: Node, b: Node) -> tuple[Node, Node]:
    """The one place at which two members of a list differ."""
    same = a.kind == b.kind and len(a.kids) == len(b.kids) and a.text == b.text
    if not same or not a.kids:
        return a, b
    apart = [(x, y) for x, y in zip(a.kids, b.kids, strict=True) if spell(x) != spell(y)]
    if len(apart) != 1:
        raise FormulaError("these members differ in more than one place", b.start)
    return _difference(*apart[0])


def _replaced(node: Node, old: Node, value: int) -> Node:
    if node is old:
        return Node("number", [], str(value), node.start, node.end)
    made = Node(
        node.kind, [_replaced(k, old, value) for k in node.kids], node.text, node.start, node.end
    )
    made.over = node.over
    return made


def _paren(node: Node, scope: Scope) -> Value:
    inner = node.kids[0]
    if inner.kind in ("chain", "such_that"):
        raise FormulaError("a relation in brackets has no value", inner.start)
    return evaluate(inner, scope)


def _set(node: Node, scope: Scope) -> list[Value]:
    inner = node.kids[0]
    if inner.kind == "list":
        return list(_expanded(inner, scope))
    if inner.kind in ("chain", "such_that"):
        raise FormulaError("a set with a condition cannot be evaluated", inner.start)
    return [evaluate(inner, scope)]


def _rounded(node: Node, scope: Scope) -> int:
    value = evaluate(node.kids[0], scope)
    exactly = algebra.whole(value)
    if exactly is not None:
        return exactly
    if algebra.is_array(value):
        raise FormulaError("the floor of a row", node.start)
    function = sympy.floor if node.kind == "floor" else sympy.ceiling
    return int(function(sympy.nsimplify(value) if algebra.exact(value) else float(value)))


def _root(node: Node, scope: Scope) -> Value:
    value = evaluate(node.kids[-1], scope)
    if algebra.is_array(value):
        raise FormulaError("the root of a row or matrix", node.start)
    if len(node.kids) == 2:
        return algebra.power(value, 1 / evaluate(node.kids[0], scope), node.start)
    return algebra.apply("sqrt", value, node.start)


def _matrix(node: Node, scope: Scope) -> Value:
    cells = []
    for row in node.kids:
        cells.append([0 if c.kind == "empty" else evaluate(c, scope) for c in row.kids])
    return algebra.blocks(cells, node.start)


def _cases(node: Node, scope: Scope) -> Value:
    for case in node.kids:
        if truth(case.kids[1], scope):
            return evaluate(case.kids[0], scope)
    raise FormulaError("none of these cases applies", node.start)


def _inner_product(node: Node, scope: Scope) -> Value:
    inner = node.kids[0]
    if inner.kind != "list" or len(inner.kids) != 2:
        raise FormulaError("an inner product has two sides", node.start)
    a, b = (evaluate(k, scope) for k in inner.kids)
    if algebra.shape(a) != algebra.shape(b):
        raise FormulaError(
            f"{algebra.says(a)} and {algebra.says(b)} have no inner product", node.start
        )
    return algebra.hadamard(a, b, node.start).sum()


def _accent(node: Node, scope: Scope) -> Value:
    found = scope.values.get(str(node.text))
    if not callable(found):
        raise FormulaError(f"bind {node.text} to what it does", node.start)
    scope.used.add(str(node.text))
    return call(found, [evaluate(node.kids[0], scope)], node.start)


def _binomial(node: Node, scope: Scope) -> Value:
    top, bottom = (evaluate(k, scope) for k in node.kids)
    return int(sympy.binomial(int(top), int(bottom)))


def _lonely(node: Node, scope: Scope) -> Value:
    raise FormulaError(f"{node.text or node.kind} has no value here", node.start)


def _absolute(node: Node, scope: Scope) -> Value:
    return algebra.apply("abs", evaluate(node.kids[0], scope), node.start)


def _norm(node: Node, scope: Scope) -> Value:
    return algebra.norm(evaluate(node.kids[0], scope), "", node.start)


def _single(node: Node, scope: Scope) -> Value:
    return _Term([node], scope).value()


_EVALUATE: dict[str, Callable[[Node, Scope], Value]] = {
    "term": _term, "sum": _sum, "item": _item, "name": _single, "func": _single, "big": _single,
    "number": _number, "frac": _fraction, "binom": _binomial, "sqrt": _root, "accent": _accent,
    "braces": _paren, "paren": _paren, "bracket": _paren, "set": _set, "abs": _absolute,
    "norm": _norm, "floor": _rounded, "ceil": _rounded, "angle": _inner_product,
    "matrix": _matrix, "cases": _cases, "list": _list, "dots": _lonely, "all": _lonely,
    "chain": _lonely, "such_that": _lonely, "slice": _lonely, "empty": _lonely,
}  # fmt: skip
