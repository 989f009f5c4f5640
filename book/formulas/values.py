"""The value of a printed formula, from what its symbols are bound to.

Nothing is defined here but arithmetic: a name without a binding is an index if it stands as one,
and an error otherwise; so is whatever cannot be evaluated. Free indices and sums range over the
dimensions at which they stand.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.derivatives import derive
from book.formulas.indices import extent, letters
from book.formulas.names import symbol
from book.formulas.reading import FormulaError, Node, spell
from book.formulas.scope import (
    EVALUATE,
    Expectation,
    Over,
    Scope,
    bare,
    call,
    differential_sign,
    evaluate,
    is_index,
    signs,
)
from book.formulas.terms import Term, expanded, scripted
from book.formulas.truth import truth

__all__ = [
    "Expectation",
    "Over",
    "Scope",
    "bare",
    "evaluate",
    "extent",
    "is_index",
    "letters",
    "signs",
    "truth",
]


def _term(node: Node, scope: Scope) -> Value:
    return Term(node.kids, scope).value()


def _fraction(node: Node, scope: Scope) -> Value:
    if differential_sign(node):
        top = node.kids[0]
        if top.kind != "term":
            raise FormulaError("nothing follows this derivative", node.end)
        rest = top.kids[1:]
        body = rest[0] if len(rest) == 1 else Node("term", rest, "", rest[0].start, top.end)
        return derive(node.kids[1], body, scope)
    top, bottom = (evaluate(k, scope) for k in node.kids)
    return algebra.divide(top, bottom, node.start)


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
        return Term([node], scope).value()
    if node.kids[0].kind == "norm":
        kinds = [s for s in node.kids[1:] if s.kind == "sub"]
        value = algebra.norm(
            evaluate(node.kids[0].kids[0], scope),
            spell(kinds[0].kids[0]) if kinds else "",
            node.start,
        )
        return scripted(value, [s for s in node.kids[1:] if s.kind != "sub"], scope, node)
    if node.kids[0].kind == "bracket":
        subs = [s for s in node.kids[1:] if s.kind == "sub"]
        from book.formulas.names import entries

        if subs and node.kids[0].kids[0].kind != "list":
            indices = [is_index(e, scope) for e in entries(subs[0].kids[0])]
            if all(i is not None and i not in scope.index for i in indices):
                value = _table(node.kids[0].kids[0], [i for i in indices if i], scope)
                return scripted(value, [s for s in node.kids[1:] if s.kind != "sub"], scope, node)
    return scripted(evaluate(node.kids[0], scope), node.kids[1:], scope, node)


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
    return algebra.join(list(expanded(node, scope)), node.start)


def _paren(node: Node, scope: Scope) -> Value:
    inner = node.kids[0]
    if inner.kind in ("chain", "such_that"):
        raise FormulaError("a relation in brackets has no value", inner.start)
    return evaluate(inner, scope)


def _set(node: Node, scope: Scope) -> list[Value]:
    inner = node.kids[0]
    if inner.kind == "list":
        return list(expanded(inner, scope))
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
    lone = [row.kids[0] for row in node.kids if len(row.kids) == 1]
    if len(lone) == len(node.kids) and any(cell.kind == "dots" for cell in lone):
        stacked = Node("list", lone, "", node.start, node.end)
        return algebra.blocks([[value] for value in expanded(stacked, scope)], node.start)
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
    return Term([node], scope).value()


EVALUATE.update({
    "term": _term, "sum": _sum, "item": _item, "name": _single, "func": _single, "big": _single,
    "number": _number, "frac": _fraction, "binom": _binomial, "sqrt": _root, "accent": _accent,
    "braces": _paren, "paren": _paren, "bracket": _paren, "set": _set, "abs": _absolute,
    "norm": _norm, "floor": _rounded, "ceil": _rounded, "angle": _inner_product,
    "matrix": _matrix, "cases": _cases, "list": _list, "dots": _lonely, "all": _lonely,
    "chain": _lonely, "such_that": _lonely, "slice": _lonely, "empty": _lonely,
})  # fmt: skip
