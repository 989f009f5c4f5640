"""Whether a printed condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from book.formulas import algebra
from book.formulas.reading import FormulaError, Node
from book.formulas.scope import Scope, evaluate, whole

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
            a, b = whole(left, scope), whole(right, scope)
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
