"""Terms: items side by side, products, calls, sums over an index, means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.derivatives import argument_of_extreme, derive, differential_operator
from book.formulas.indices import binder
from book.formulas.names import PREFIXES, Symbol, entries, raised, symbol
from book.formulas.reading import FormulaError, Node, spell
from book.formulas.scope import (
    Expectation,
    Over,
    Scope,
    bracketed,
    call,
    derivative_of,
    evaluate,
    is_index,
    symbol_value,
    take,
    whole,
)


class Term:
    """Items side by side and the signs between them, read from left to right.

    A product by juxtaposition binds first, then `/`, then the dot, then the entrywise product. A
    sum, a maximum over an index, a derivative or a mean takes all that follows in its term.
    """

    def __init__(self, kids: Sequence[Node], scope: Scope) -> None:
        self.kids, self.scope, self.at = list(kids), scope, 0

    def value(self) -> Value:
        """The value of the whole term."""
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
        """The next item, with all that it takes from what follows."""
        kid = self.kids[self.at]
        self.at += 1
        atom = kid.kids[0] if kid.kind == "item" else kid
        if atom.kind == "big":
            return self._big(kid)
        if atom.kind == "func":
            return self._function(kid)
        if atom.kind == "frac" and (wrt := differential_operator(atom)):
            return derive(wrt, self._rest_of_term(kid), self.scope)
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
        value, left, raised = symbol_value(one, scope, prefix)
        if isinstance(value, Expectation):
            return self._expected(value, kid, raised)
        if isinstance(value, Over):
            return self._over(value, kid, left)
        if callable(value):
            return self._called(value, kid, left, raised)
        if left:
            raise FormulaError(f"{one.letter} has too many indices", one.start)
        return raise_to(value, raised, scope)

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
        if following is not None and bracketed(following):
            parameters = [evaluate(n, self.scope) for n in left]
            return self._applied(lambda *a: value(*a, *parameters), kid, raised)
        if left:  # a family: R_{n-m}
            chosen = call(value, [_index_or_value(n, self.scope) for n in left], kid.start)
            return raise_to(chosen, raised, self.scope)
        return self._applied(value, kid, raised)

    def _applied(self, function: Callable[..., Value], kid: Node, raised: list[Node]) -> Value:
        """A function with its argument: the bracket that follows, or what stands beside it."""
        following = self._next()
        if following is None or following.kind == "operator":
            raise FormulaError("this function has no argument", kid.end)
        if bracketed(following):
            self.at += 1
            item = following if following.kind == "item" else Node("item", [following])
            made = call(function, _arguments(item.kids[0], self.scope), kid.start)
            if raised:  # f^2(x)
                made = raise_to(made, raised, self.scope)
            return scripted(made, item.kids[1:], self.scope, item)
        made = call(function, [self._beside()], kid.start)
        return raise_to(made, raised, self.scope) if raised else made

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
        return Term(kids, self.scope).value()

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
            function = derivative_of(function, primes, kid.start)
        return self._applied(function, kid, raised)

    def _big(self, kid: Node) -> Value:
        atom, scripts = (kid.kids[0], kid.kids[1:]) if kid.kind == "item" else (kid, [])
        name = str(atom.text)
        subs = [s.kids[0] for s in scripts if s.kind == "sub"]
        sups = [s.kids[0] for s in scripts if s.kind == "sup"]
        if not subs:
            following = self._next()
            if name not in ("max", "min") or following is None or not bracketed(following):
                raise FormulaError(f"\\{name} without an index", kid.start)
            return self._applied(
                lambda *a: algebra.extreme(_flat(a), name == "max", kid.start), kid, []
            )
        body = self._rest_of_term(kid)
        if name in ("argmin", "argmax"):
            return argument_of_extreme(subs[0], body, self.scope, name == "argmax")
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
        if following is not None and bracketed(following):
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
        return scripted(raise_to(average, raised, self.scope), scripts, self.scope, kid)

    def _over(self, over: Over, kid: Node, left: list[Node]) -> Value:
        following = self._next()
        if len(left) != 1 or following is None or not bracketed(following):
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


def _arguments(bracket: Node, scope: Scope) -> list[Value]:
    inner = bracket.kids[0]
    if inner.kind == "such_that":
        raise FormulaError("a set with a condition cannot be evaluated", inner.start)
    return list(expanded(inner, scope)) if inner.kind == "list" else [evaluate(inner, scope)]


def expanded(node: Node, scope: Scope) -> Iterator[Value]:
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
    low, high = whole(first, scope), whole(last, scope)
    for step, kid in enumerate(kids[1:position], start=1):
        here, there = _difference(kids[0], kid)
        if here is not first or whole(there, scope) != low + step:
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


def raise_to(value: Value, raised: Sequence[Node], scope: Scope) -> Value:
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


def scripted(value: Value, scripts: Sequence[Node], scope: Scope, node: Node) -> Value:
    """A bracket or a call with its scripts."""
    for script in scripts:
        if script.kind == "prime":
            raise FormulaError("a prime behind a bracket", script.start)
        if script.kind == "sub":
            for index in entries(script.kids[0]):
                value = take(value, index, "this bracket", scope)
        else:
            for part in raised(script.kids[0]):
                if part.kind == "paren":
                    value = take(value, part, "this bracket", scope)
                else:
                    value = raise_to(value, [part], scope)
    return value
