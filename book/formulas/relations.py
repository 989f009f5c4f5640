"""Whether a printed formula holds: every relation in it, for every value of its free indices.

`holds(latex, call)` reads the formula, binds its symbols and checks each relation. A relation
that fails raises `RelationError`; whatever cannot be evaluated raises `FormulaError`. Nothing is
passed over: the number of relations checked is the number printed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.call import Call, RelationError, Report
from book.formulas.limits import bounded, limit, remainder
from book.formulas.names import Names, symbol
from book.formulas.reading import FormulaError, Node, read, spell
from book.formulas.values import Scope, bare, evaluate, extent, is_index, letters, truth


@dataclass
class _Claim:
    """One statement of a formula, with the conditions that follow it."""

    node: Node
    number: int
    conditions: list[Node] = field(default_factory=list)


def holds(latex: str, call: Call) -> Report:
    """Check a printed formula.

    Raises:
        RelationError: if a relation in it does not hold.
        FormulaError: if it cannot be read or evaluated; the message points at the character.
    """
    tree = read(latex)
    claims = statements(tree)
    report = Report()
    symbols = {**call.symbols}
    draws = [symbols, *({**symbols, **draw} for draw in call.draws)]
    chosen = [c for c in claims if call.only is None or c.number in call.only]
    if call.only is not None and len(chosen) != len(set(call.only)):
        raise FormulaError(f"the formula has {len(claims)} statements, not {list(call.only)}")
    checked: dict[int, int] = {c.number: 0 for c in chosen}
    sides: dict[int, set[bool]] = {}
    for draw in draws:
        scope, defined = scope_of(claims, draw, call)
        for claim in chosen:
            checked[claim.number] += _claim(claim, scope, call, report, sides, defined)
        report.used |= scope.used
        report.exact |= any(algebra.exact(v) for v in scope.values.values())
    for claim in chosen:
        if not checked[claim.number]:
            raise FormulaError("the condition of this statement is never true", claim.node.start)
        _strict(claim, claims, call)
        seen = sides.get(claim.number)
        if seen is not None and seen != {True, False}:
            raise FormulaError(
                f"this equivalence was seen only where both sides are {seen.pop()}; add draws",
                claim.node.start,
            )
        report.relations += sum(len(c.text) for c in _chains(claim.node)) or 1
    unused = set(symbols) - report.used - {"\\mathbb{R}", "\\mathbb R"}
    if unused:
        raise FormulaError(f"bound, but not in this formula: {', '.join(sorted(unused))}")
    for name in call.define:
        if name not in report.used:
            raise FormulaError(f"{name} is defined by the formula and used by nothing")
    return report


def statements(tree: Node) -> list[_Claim]:
    """The statements of a formula, each with the conditions printed behind it."""
    found: list[_Claim] = []
    for statement in tree.kids:
        node = statement.kids[0]
        if statement.text:
            if not found:
                raise FormulaError("a condition of nothing", statement.start)
            found[-1].conditions.append(node)
        elif (inner := _parenthesised(node)) is not None:
            if not found:
                raise FormulaError("a condition of nothing", statement.start)
            found[-1].conditions.append(inner)
        elif node.kind == "chain" and not node.text:
            raise FormulaError("this states nothing: there is no relation", node.start)
        else:
            found.append(_Claim(node, len(found)))
    return found


def _parenthesised(node: Node) -> Node | None:
    r"""The relation in a statement such as `(x \\le 0)`, which is a condition."""
    if node.kind == "chain" and len(node.kids) == 1 and node.kids[0].kind == "paren":
        inner = node.kids[0].kids[0]
        return inner if inner.kind == "chain" and inner.text else None
    return None


def _chains(node: Node) -> list[Node]:
    return node.kids if node.kind == "implication" else [node]


def scope_of(
    claims: Sequence[_Claim], symbols: Mapping[str, Any], call: Call
) -> tuple[Scope, set[int]]:
    """The scope of a draw, and the numbers of the statements whose first relation defines."""
    keys = [*symbols, *call.define]
    values = {key: algebra.bound(value) for key, value in symbols.items()}
    for key, value in values.items():
        if isinstance(value, torch.Tensor) and value.isnan().any():
            raise FormulaError(f"{key} is bound to nan")
    scope = Scope(Names(keys), values, given={k: list(v) for k, v in call.ranges.items()})
    defining: set[int] = set()
    for claim in claims:
        chain = _chains(claim.node)[0]
        one = symbol(chain.kids[0])
        found = scope.names.find(one) if one else None
        if one and found and found[0] in call.define and chain.text[:1] == ["="]:
            key, n, m = found
            indices = [s.kids[0] for s in one.sups[m:] if s.kind == "paren"] + list(one.subs[n:])
            names = [is_index(i, scope) for i in indices]
            if any(name is None for name in names):
                raise FormulaError(f"{key} is defined at an index that is bound", one.start)
            if key not in scope.defined:
                scope.defined[key] = (tuple(str(x) for x in names), chain.kids[1])
                defining.add(claim.number)
    for key in call.define:
        if key not in scope.defined:
            raise FormulaError(f"the formula does not define {key}")
    return scope, defining


def _claim(
    claim: _Claim, scope: Scope, call: Call, report: Report,
    sides: dict[int, set[bool]], defining: set[int],
) -> int:  # fmt: skip
    """Check one statement in one draw; returns how often its conditions held."""
    node = claim.node
    domain = _domain(node, scope)
    if domain is not None:
        letter, values = domain
        _same_domain(letter, values, claim, scope, call)
        return 1
    times = 0
    for inner in assignments(node, claim.conditions, scope):
        if node.kind == "implication":
            _implication(node, inner, call, report, sides.setdefault(claim.number, set()))
            if "iff" not in node.text:
                sides.pop(claim.number, None)
        else:
            _chain(node, inner, call, report, skip_first=claim.number in defining)
        times += 1
    return times


def assignments(node: Node, conditions: Sequence[Node], scope: Scope) -> Iterator[Scope]:
    """The scopes of a statement: all values of its free indices that meet its conditions."""
    real = [c for c in conditions if c.kind != "chain" or c.text]
    free = letters(node, scope)
    names = [n for n in free if n not in scope.index]
    spans: list[Sequence[int]] = []
    ranges = dict(scope.given)
    for condition in list(real):
        domain = _domain(condition, scope)
        if domain is not None:
            ranges.setdefault(domain[0], domain[1])
            real.remove(condition)
    for name in names:
        span = ranges.get(name) or extent(name, [node], scope)
        if span is None:
            place = next(
                (k.start for k in node.walk() if k.kind == "name" and bare(k) == name), None
            )
            raise FormulaError(
                f"the symbol {name} is bound to nothing, and over what it would run as an index "
                "cannot be seen (bind it, or state it in ranges=)", place,
            )  # fmt: skip
        spans.append(span)
    if _has_sign(node):
        names, spans = [*names, "±"], [*spans, (1, -1)]
    every = dict(zip(names, spans, strict=True))
    for values in itertools.product(*spans):
        inner = scope.at(
            index={**scope.index, **dict(zip(names, values, strict=True))},
            ranges={**scope.ranges, **every},
        )
        if all(truth(c, inner) for c in real):
            yield inner


def _has_sign(node: Node) -> bool:
    return any(k.kind == "sum" and {"±", "∓"} & set(k.text) for k in node.walk())


# ---------------------------------------------------------------- domains of an index


def _domain(node: Node, scope: Scope) -> tuple[str, list[int]] | None:
    """The values that `k = 0, ..., d/2 - 1` or `0 <= k < d/2` gives an index."""
    if node.kind != "chain" or not node.text:
        return None
    indices = [is_index(k, scope) for k in node.kids]
    if sum(i is not None for i in indices) != 1 or _free_elsewhere(node, scope):
        return None
    position = next(p for p, i in enumerate(indices) if i is not None)
    letter = indices[position]
    assert letter is not None
    if node.text == ["="] and position == 0 and node.kids[1].kind == "list":
        kids = node.kids[1].kids
        if any(k.kind == "dots" for k in kids):
            low, high = (algebra.whole(evaluate(k, scope)) for k in (kids[0], kids[-1]))
            second = algebra.whole(evaluate(kids[1], scope)) if kids[1].kind != "dots" else None
            if low is None or high is None or (second is not None and second != low + 1):
                raise FormulaError("this list is no range of whole numbers", node.start)
            return letter, list(range(low, high + 1))
        return letter, [algebra.whole(evaluate(k, scope)) or 0 for k in kids]
    if len(node.kids) == 3 and position == 1 and set(node.text) <= {"<", "<="}:
        low, high = (algebra.whole(evaluate(node.kids[p], scope)) for p in (0, 2))
        if low is None or high is None:
            raise FormulaError("the ends of this range are no whole numbers", node.start)
        start = low if node.text[0] == "<=" else low + 1
        return letter, list(range(start, high + (node.text[1] == "<=")))
    return None


def _free_elsewhere(node: Node, scope: Scope) -> bool:
    return len(set(letters(node, scope))) != 1


def _same_domain(letter: str, values: list[int], claim: _Claim, scope: Scope, call: Call) -> None:
    """A printed domain must be the one over which the index runs."""
    expected = call.ranges.get(letter)
    if expected is None:
        raise FormulaError(
            f"state over what {letter} runs in ranges=, to compare", claim.node.start
        )
    if values != list(expected):
        raise RelationError(
            f"{letter} is printed to run over {values}, and runs over {list(expected)}"
        )


# ---------------------------------------------------------------- relations


def _chain(
    node: Node, scope: Scope, call: Call, report: Report, *, skip_first: bool = False
) -> None:
    for number, how in enumerate(node.text):
        if number == 0 and skip_first:
            continue
        left, right = node.kids[number], node.kids[number + 1]
        over = node.over.get(number)
        if over is not None and how != "limit":
            condition = over.kids[0].kids[0]
            if not truth(condition, scope):
                raise FormulaError("the condition over this relation is not true", over.start)
        _relation(left, how, right, scope, call, report, over)


def _relation(
    left: Node, how: str, right: Node, scope: Scope, call: Call, report: Report, over: Node | None
) -> None:
    at = right.start
    if how == "in":
        _membership(left, right, scope, report)
        return
    if how in ("limit", "to"):
        limit(left, right, scope, call, report, over)
        return
    if how == "=" and (order := remainder(right)) is not None:
        bounded(left, right, order, scope, call, report)
        return
    a, b = evaluate(left, scope), evaluate(right, scope)
    for side, value in ((left, a), (right, b)):
        if isinstance(value, torch.Tensor) and value.isnan().any():
            raise FormulaError(f"`{spell(side)}` is not a number here", side.start)
    if how == "=":
        gap, count = algebra.difference(a, b, at)
        report.numbers += count
        if not gap <= call.tol:
            apart = (
                f"differ by {gap:.3g}"
                if math.isfinite(gap) or algebra.exact(a)
                else ("differ, and one of them is not finite")
            )
            raise RelationError(_says(left, "=", right, scope, apart, a, b))
        return
    if how == "~":
        if call.approx is None:
            raise FormulaError("state how close ≈ is meant, approx=", at)
        gap, count = algebra.difference(a, b, at)
        report.numbers += count
        if not gap <= call.approx:
            raise RelationError(_says(left, "≈", right, scope, f"differ by {gap:.3g}", a, b))
        return
    if how in ("nmid", "!="):
        unequal = algebra.difference(a, b, at)[0] > 1e-12 if how == "!=" else b % a != 0
        report.numbers += 1
        if not unequal:
            raise RelationError(_says(left, how, right, scope, "does not hold", a, b))
        return
    x, y = (
        torch.as_tensor(float(v) if algebra.exact(v) else v, dtype=torch.float64) for v in (a, b)
    )
    if x.ndim and y.ndim and x.shape != y.shape:
        raise FormulaError(f"the sides are {algebra.says(a)} and {algebra.says(b)}", at)
    slack = 1e-9 * max(1.0, y.abs().max().item()) if math.isfinite(y.abs().max().item()) else 0.0
    gaps = {"<=": y - x + slack, ">=": x - y + slack, "<": y - x, ">": x - y}[how]
    report.numbers += gaps.numel()
    inside = gaps >= 0 if how in ("<=", ">=") else gaps > 0
    if not inside.all():
        raise RelationError(_says(left, how, right, scope, "does not hold", a, b))


def _says(left: Node, how: str, right: Node, scope: Scope, what: str, a: Value, b: Value) -> str:
    where = ", ".join(f"{k}={v}" for k, v in scope.index.items())
    values = "" if algebra.is_array(a) or algebra.is_array(b) else f": {_short(a)} and {_short(b)}"
    return (
        f"the sides of `{spell(left)} {how} {spell(right)}` {what}{values}"
        f"{f' for {where}' if where else ''} (character {right.start})"
    )


def _short(value: Value) -> str:
    return f"{value.item():.6g}" if isinstance(value, torch.Tensor) else str(value)[:60]


def _strict(claim: _Claim, claims: Sequence[_Claim], call: Call) -> None:
    """A bound must be attained: among the draws in tight= is one where both sides are equal."""
    chain = claim.node
    if chain.kind != "chain" or not {"<=", ">="} & set(chain.text):
        return
    scope, _ = scope_of(claims, call.symbols, call)
    if _domain(chain, scope) is not None:
        return
    if not call.tight:
        raise FormulaError("show that this bound is attained, tight=", chain.start)
    attained = [how not in ("<=", ">=") for how in chain.text]
    for draw in call.tight:
        scope, _ = scope_of(claims, {**call.symbols, **draw}, call)
        for inner in assignments(chain, claim.conditions, scope):
            for number, (left, right) in enumerate(itertools.pairwise(chain.kids)):
                if not attained[number]:
                    a, b = evaluate(left, inner), evaluate(right, inner)
                    x, y = (torch.as_tensor(v, dtype=torch.float64) for v in (a, b))
                    gap = (x - y).abs().min().item()
                    attained[number] = gap <= 1e-6 * max(1.0, y.abs().max().item())
    for number, (left, right) in enumerate(itertools.pairwise(chain.kids)):
        if not attained[number]:
            raise RelationError(
                f"`{spell(left)} {chain.text[number]} {spell(right)}` is attained by no draw in "
                "tight="
            )


def _membership(left: Node, right: Node, scope: Scope, report: Report) -> None:
    value = evaluate(left, scope)
    if right.kind == "item" and spell(right.kids[0]).replace(" ", "") == "\\mathbb{R}":
        sizes = []
        for script in right.kids[1:]:
            inner = script.kids[0]
            parts = [inner] if inner.kind != "term" else _factors(inner)
            for part in parts:
                size = algebra.whole(evaluate(part, scope))
                if size is None:
                    raise FormulaError("a dimension that is no whole number", part.start)
                sizes.append(size)
        found = list(algebra.shape(value))
        if found != sizes and [1, *found] != sizes:
            raise RelationError(
                f"`{spell(left)}` has shape {tuple(found)}, printed is {tuple(sizes)}"
            )
        report.numbers += 1
        return
    if not truth(Node("chain", [left, right], ["in"], left.start, right.end), scope):
        raise RelationError(f"`{spell(left)}` is not in `{spell(right)}`")
    report.numbers += 1


def _factors(node: Node) -> list[Node]:
    """The factors around the signs × of a shape."""
    found: list[list[Node]] = [[]]
    for kid in node.kids:
        if kid.kind == "operator" and kid.text == "cdot":
            found.append([])
        else:
            found[-1].append(kid)
    return [g[0] if len(g) == 1 else Node("term", g, "", g[0].start, g[-1].end) for g in found]


def _implication(node: Node, scope: Scope, call: Call, report: Report, seen: set[bool]) -> None:
    """`A => B`: B holds where A does. `A <=> B`: both hold or neither."""
    held = [_holds(chain, scope, call, report) for chain in node.kids]
    for number, how in enumerate(node.text):
        before, after = held[number], held[number + 1]
        if how == "iff":
            seen.add(before)
            if before != after:
                raise RelationError(
                    f"one side holds and the other does not: `{spell(node.kids[number])}`"
                )
        elif before and not after:
            raise RelationError(f"`{spell(node.kids[number + 1])}` does not follow")
        elif not before:
            raise FormulaError("what this follows from is not true here", node.kids[number].start)


def _holds(chain: Node, scope: Scope, call: Call, report: Report) -> bool:
    try:
        _chain(chain, scope, call, report)
    except RelationError:
        return False
    return True


# ---------------------------------------------------------------- limits and remainders
