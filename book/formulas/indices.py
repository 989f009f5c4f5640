"""Running indices: what is free in a formula, what a sum binds, and over what each runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.names import PREFIXES, Symbol, entries, raised, symbol
from book.formulas.reading import FormulaError, Node, spell
from book.formulas.scope import (
    Expectation,
    Over,
    Scope,
    bare,
    bracketed,
    differential_sign,
    evaluate,
    is_index,
    under_accent,
    whole,
)
from book.formulas.truth import truth


def binder(sub: Node, sup: Node | None, body: Node, scope: Scope, name: str) -> Iterator[Scope]:
    """The scopes in which the body of a sum is evaluated, one for each value of its index."""
    letters, condition = dummies(sub, scope)
    if sup is not None:
        if condition is None or condition.kind != "chain" or condition.text != ["="]:
            raise FormulaError("a sum with an end needs a beginning, `k=0`", sub.start)
        low = whole(condition.kids[1], scope)
        high = whole(sup, scope)
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
            if after.kind == "item" and bracketed(after) and symbol(before):
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
        hidden, taken = set(inner), None
        for kid, after in zip(kids, [*kids[1:], None], strict=True):
            if taken is not None:
                _left_scripts(kid, taken, scope, frozenset(hidden), found)
                taken = None
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
                if one.base in PREFIXES and joined:
                    taken = scope.names.find(joined, one.base)
                    if taken is not None:
                        continue
                if one.base == "O" and after is not None and bracketed(after):
                    continue  # O(h^2), or a bound function
                _one(one, kid, scope, frozenset(hidden), found)
            elif kid.kind == "item" and atom.kind == "norm":  # the index of a norm names it
                _letters(atom, scope, frozenset(hidden), found)
            elif kid.kind == "item":
                within = hidden | table_indices(kid, scope)
                for part in kid.kids:
                    _letters(part, scope, frozenset(within), found)
            elif kid is not node:
                _letters(kid, scope, frozenset(hidden), found)
        return
    if node.kind == "name":
        one = symbol(node)
        if one is not None:
            _one(one, node, scope, inner, found)
        return
    if node.kind == "frac" and differential_sign(node):
        for side in node.kids:
            kids = side.kids[1:] if side.kind == "term" else []
            for kid in kids:
                _letters(kid, scope, inner, found)
        return
    for kid in node.kids:
        _letters(kid, scope, inner, found)


def table_indices(item: Node, scope: Scope) -> set[str]:
    """The indices that `[...]_{ij}` makes a matrix of; empty for any other item."""
    if item.kids[0].kind != "bracket" or item.kids[0].kids[0].kind == "list":
        return set()
    subs = [s for s in item.kids[1:] if s.kind == "sub"]
    indices = [is_index(e, scope) for s in subs for e in entries(s.kids[0])]
    return {i for i in indices if i} if indices and all(indices) else set()


def _left_scripts(
    kid: Node, taken: tuple[str, int, int], scope: Scope, inner: frozenset[str],
    found: dict[str, None],
) -> None:  # fmt: skip
    """The indices of a symbol whose name, together with a prefix, took some of its scripts."""
    one, (_, n, m) = symbol(kid), taken
    for script in [*one.subs[n:], *one.sups[m:]] if one else []:
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
    if known is None and (under := under_accent(one, scope)):
        _letters(under[1], scope, inner, found)
        known = (under[0], 0, 0)
    if known is None and not one.subs:
        special = one.letter.startswith("\\operatorname{") or one.letter in _NO_INDEX
        if not special and one.letter not in inner:
            found.setdefault(one.letter)
    for script in [*one.subs[n:], *one.sups[m:]]:
        _letters(script, scope, inner, found)
