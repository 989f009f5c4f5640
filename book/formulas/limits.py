"""Relations that no single value shows: limits, and what is left of order h^n."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.call import Call, RelationError, Report
from book.formulas.reading import FormulaError, Node, spell
from book.formulas.values import Scope, bare, evaluate


def limit(
    left: Node, right: Node, scope: Scope, call: Call, report: Report, over: Node | None
) -> None:
    """The error shrinks along the series given in limit=, and has all but vanished at its end."""
    if not call.limit:
        raise FormulaError("give a series for this limit, limit=", left.start)
    ((key, series),) = call.limit.items()
    if over is not None:
        arrow = over.kids[0].kids[0]
        if arrow.kind != "chain" or arrow.text != ["to"] or bare(arrow.kids[0]) != key:
            raise FormulaError(f"this limit is not that of {key}", over.start)
        _goes_to(series, evaluate(arrow.kids[1], scope), over.start)
    errors = []
    for value in series:
        inner = scope.at(values={**scope.values, key: value})
        errors.append(
            algebra.difference(evaluate(left, inner), evaluate(right, inner), right.start)[0]
        )
    scope.used.add(key)
    report.numbers += len(errors)
    falls = all(b <= a for a, b in itertools.pairwise(errors))
    if len(errors) < 3 or not falls or errors[-1] > (call.approx or 1e-6):
        raise RelationError(f"the error does not vanish: {', '.join(f'{e:.3g}' for e in errors)}")


def _goes_to(series: Sequence[float], target: Value, at: int) -> None:
    away = [abs(v) if math.isinf(float(target)) else -abs(v - float(target)) for v in series]
    rising = all(b > a for a, b in itertools.pairwise(away))
    side = not math.isinf(float(target)) or all((v > 0) == (float(target) > 0) for v in series)
    if not rising or not side:
        raise FormulaError("the series does not go where the limit does", at)


def remainder(node: Node) -> Node | None:
    """The argument of `O(...)` at the end of a sum."""
    if node.kind != "sum":
        return None
    last = node.kids[-1]
    if last.kind == "term" and spell(last.kids[0]) == "O" and last.kids[1].kind == "paren":
        return last.kids[1].kids[0]
    return None


def bounded(left: Node, right: Node, order: Node, scope: Scope, call: Call, report: Report) -> None:
    """What is left of the two sides is of this order: its ratio to it settles as h halves."""
    if not call.halving:
        raise FormulaError("name the symbol to halve, halving=", order.start)
    key = call.halving
    first = float(scope.values[key])
    main = Node("sum", right.kids[:-1], right.text[:-1], right.start, right.kids[-2].end)
    ratios = []
    for k in range(4):
        inner = scope.at(values={**scope.values, key: first / 2**k})
        gap = algebra.add(evaluate(left, inner), evaluate(main, inner), -1, order.start)
        ratio = torch.as_tensor(gap) / torch.as_tensor(evaluate(order, inner))
        ratios.append(ratio.detach().item())
    scope.used.add(key)
    report.numbers += len(ratios)
    if not all(0.7 < b / a < 1.4 for a, b in itertools.pairwise(ratios)):
        raise RelationError(
            f"the remainder is not of this order: ratios {', '.join(f'{r:.3g}' for r in ratios)}"
        )
