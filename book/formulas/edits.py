"""Small wrong changes of a printed formula, found in its tree."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from book.formulas import algebra
from book.formulas.call import Call
from book.formulas.names import PREFIXES, entries, raised, symbol
from book.formulas.reading import Node, closed, read, spell
from book.formulas.relations import scope_of, statements
from book.formulas.values import Expectation, Over, Scope, is_index, letters


@dataclass(frozen=True)
class Mutant:
    """A changed formula: what kind of change, and the LaTeX with it."""

    kind: str
    latex: str


def mutants(latex: str, call: Call) -> list[Mutant]:
    """All mutants of a formula whose symbols are bound as in `call`."""
    tree = read(latex)
    claims = statements(tree)
    scope, _ = scope_of(claims, call.symbols, call)
    nodes = [
        n
        for claim in claims
        if call.only is None or claim.number in call.only
        for root in (claim.node, *claim.conditions)
        for n in root.walk()
    ]
    found: dict[str, Mutant] = {}
    for kind, start, end, text in _edits(latex, _products(nodes, scope), scope):
        changed = latex[:start] + text + latex[end:]
        if changed != latex:
            found.setdefault(changed, Mutant(kind, changed))
    return list(found.values())


Edit = tuple[str, int, int, str]


def _products(nodes: list[Node], scope: Scope) -> list[Node]:
    """The nodes that can be changed on their own.

    Left out are the letter of a symbol with scripts, the indices `ij` side by side (no product),
    and the parts of a name such as dX, for which one node stands that spans both.
    """
    left_out: set[int] = set()
    made: list[Node] = []
    for node in nodes:
        if node.kind == "item":
            left_out.add(id(node.kids[0]))
            for script in node.kids[1:]:
                if script.kind == "sub":
                    left_out |= {
                        id(part) for part in entries(script.kids[0]) if is_index(part, scope)
                    }
                    inner = script.kids[0]
                    if inner.kind == "term" and len(entries(inner)) > 1:
                        left_out.add(id(inner))
                elif script.kind == "sup" and len(raised(script.kids[0])) > 1:
                    left_out.add(id(script.kids[0]))
        if node.kind == "term":
            for first, second in itertools.pairwise(node.kids):
                one, after = symbol(first), symbol(second)
                if one and after and one.base in PREFIXES and scope.names.find(after, one.base):
                    left_out |= {id(first), id(second)}
                    made.append(Node("joined", [first, second], "", first.start, second.end))
    return [n for n in nodes if id(n) not in left_out] + made


def _edits(latex: str, nodes: list[Node], scope: Scope) -> Iterator[Edit]:
    free = sorted({name for node in nodes if node.kind == "chain" for name in letters(node, scope)})
    for node in nodes:
        if node.kind == "sum":
            yield from _signs(node)
        elif node.kind == "number":
            yield "constant", node.start, node.end, f"{{{_next(str(node.text))}}}"
        elif node.kind == "sqrt" and len(node.kids) == 1:
            begin, end = node.start, _close(latex, node.marks[-1][0])
            inner = latex[node.marks[-2][0] : node.marks[-1][0]]
            yield "root", begin, end, f"\\left({inner}\\right)"
        elif node.kind == "frac":
            yield from _upside_down(latex, node)
        elif node.kind == "chain":
            yield from _relations(node)
        elif node.kind == "term":
            yield from _factors(latex, node, scope)
        elif node.kind in ("func", "big"):
            yield from _functions(latex, node)
        elif node.kind in ("floor", "ceil"):
            other = "ceil" if node.kind == "floor" else "floor"
            (a, b), (c, d) = node.marks[0], node.marks[-1]
            inside = latex[b:c]
            yield "function", a, d, f"\\l{other}{inside.removesuffix(chr(92) + 'right')}\\r{other}"
        elif node.kind == "joined":
            yield from _joined(latex, node, scope)
        yield from _symbols(latex, node, scope, free)


def _joined(latex: str, node: Node, scope: Scope) -> Iterator[Edit]:
    first, second = node.kids
    one, after = symbol(first), symbol(second)
    found = scope.names.find(after, one.base) if one and after else None
    if found and after:
        for other in _alike(found[0], scope)[:2]:
            yield "symbol", first.start, after.stop, f"{other} "


def _close(latex: str, at: int) -> int:
    """Behind the brace that ends an argument, if it has one."""
    return at + 1 if latex[at : at + 1] == "}" else at


def _next(number: str) -> str:
    return str(int(number) + 1) if number.isdigit() else str(round(float(number) * 1.5, 6))


def _signs(node: Node) -> Iterator[Edit]:
    signed = [(s, k) for s, k in zip(node.text, node.kids, strict=True) if s]
    for (sign, kid), (start, end) in zip(signed, node.marks, strict=True):
        if sign in "+-" and not spell(kid).startswith("O paren"):
            yield "sign", start, end, "-" if sign == "+" else "+"


def _upside_down(latex: str, node: Node) -> Iterator[Edit]:
    if "partial" in spell(node) or "\\mathrm{d}" in spell(node):
        return
    top, bottom = node.kids
    (a, _), (b, _), (c, _), (d, _) = node.marks[1:5]
    if spell(top) != spell(bottom):
        end = _close(latex, d)
        yield "fraction", node.start, end, f"\\frac{{{latex[c:d]}}}{{{latex[a:b]}}}"


def _relations(node: Node) -> Iterator[Edit]:
    for how, (start, end) in zip(node.text, node.marks, strict=True):
        turned = {"<=": "\\ge ", ">=": "\\le ", "<": ">", ">": "<", "!=": "="}.get(how)
        if turned and node.over.get(node.text.index(how)) is None:
            yield "relation", start, end, turned


def _factors(latex: str, node: Node, scope: Scope) -> Iterator[Edit]:
    kids = node.kids
    for position, kid in enumerate(kids):
        if kid.kind == "operator":
            if kid.text == "odot":
                yield "odot", kid.start, kid.end, ""
            elif kid.text == "/":
                yield "fraction", kid.start, kid.end, "\\cdot "
            continue
        atom = kid.kids[0] if kid.kind == "item" else kid
        one = symbol(kid)
        if atom.kind in ("big", "func", "dots") or (one and _is_function(one, scope)):
            continue
        if one and one.base in PREFIXES and after_is_joined(kids, position, scope):
            continue
        before = kids[position - 1] if position else None
        after = kids[position + 1] if position + 1 < len(kids) else None
        previous = symbol(before) if before is not None and before.kind != "operator" else None
        if previous and (_is_function(previous, scope) or previous.base in PREFIXES):
            continue  # that is an argument, or the rest of a name
        leading = before.kids[0] if before is not None and before.kind == "item" else before
        if leading is not None and leading.kind == "func":
            continue
        start, end = kid.start, closed(latex, kid)
        if leading is not None and leading.kind == "big":
            if kid.kind != "paren" or leading is not before:
                yield "factor", start, end, " 1"
            continue
        if before is not None and before.kind == "operator":
            start = before.start
        elif after is not None and after.kind == "operator":
            if after.text == "/":
                yield "factor", start, end, "1"
                continue
            end = after.end
        yield "factor", start, end, " "


def after_is_joined(kids: list[Node], position: int, scope: Scope) -> bool:
    """Whether the next item makes one name with this one, or is what it differentiates."""
    one = symbol(kids[position])
    after = symbol(kids[position + 1]) if position + 1 < len(kids) else None
    if one is None or one.base in ("\\partial", "\\mathrm{d}"):
        return True
    return after is not None and scope.names.find(after, one.base) is not None


def _is_function(one: Any, scope: Scope) -> bool:
    found = scope.names.find(one)
    value = scope.values.get(found[0]) if found else None
    return (
        callable(value)
        or isinstance(value, Over | Expectation)
        or (found is None and one.base.startswith("\\operatorname"))
    )


_OTHER = {
    "sin": "\\cos ", "cos": "\\sin ", "tanh": "\\sin ", "exp": "\\cos ", "ln": "\\exp ",
    "log": "\\exp ", "max": "\\min", "min": "\\max", "sum": "\\max", "prod": "\\sum",
}  # fmt: skip


def _functions(latex: str, node: Node) -> Iterator[Edit]:
    # A name such as x_\min is no function; it has no argument and is left alone by its error.
    if (other := _OTHER.get(str(node.text))) and latex[node.start : node.start + 1] == "\\":
        yield "function", node.start, node.end, other


def _symbols(latex: str, node: Node, scope: Scope, free: list[str]) -> Iterator[Edit]:
    one = symbol(node)
    if one is None:
        return
    found = scope.names.find(one)
    scripts = node.kids[1:] if node.kind == "item" else []
    for script in scripts:
        if script.kind == "sub":
            yield from _indices(latex, script, one, found, scope, free)
        elif script.kind == "sup":
            yield from _raised(latex, script, one, found)
    if found and not _is_function(one, scope) and found[0] not in scope.defined:
        key, n, m = found
        if n == len(one.subs) and m == len(one.sups):
            span = (node.start, closed(latex, node))
        elif n == 0 and m == 0:
            span = (node.start, one.stop)
        else:
            return
        for other in _alike(key, scope)[:2]:
            yield "symbol", *span, f"{{{other}}}" if not n + m else other
    elif found is None and not one.subs and one.letter in free:
        for other in [f for f in free if f != one.letter][:1]:
            yield "symbol", node.start, one.stop, f"{{{other}}}"


def _alike(key: str, scope: Scope) -> list[str]:
    """Other symbols of the same shape that stand for something else."""
    value = scope.values[key]
    found = []
    for other, candidate in scope.values.items():
        kindred = type(candidate) is type(value) or _numbers(value, candidate)
        if other == key or callable(candidate) or not kindred:
            continue
        if algebra.is_array(value) or algebra.is_array(candidate):
            if algebra.shape(value) != algebra.shape(candidate):
                continue
            if algebra.exact(value) != algebra.exact(candidate):
                continue
            if not algebra.exact(value) and torch.equal(value, candidate):
                continue
        elif isinstance(value, list | tuple | dict | Expectation | Over) or value == candidate:
            continue
        found.append(other)
    return found


def _numbers(a: Any, b: Any) -> bool:
    plain = int | float
    return isinstance(a, plain) and isinstance(b, plain)


def _indices(
    latex: str, script: Node, one: Any, found: Any, scope: Scope, free: list[str]
) -> Iterator[Edit]:
    parts = entries(script.kids[0])
    n = found[1] if found else 0
    (_, _), (begin, _), (end, _) = script.marks
    braces = latex[begin - 1] == "{"
    texts = [latex[p.start : closed(latex, p)] for p in parts]
    for position, part in enumerate(parts):
        if position < n:
            continue
        changes = []
        name = is_index(part, scope)
        if name is not None:
            changes += [other for other in free if other != name][:1]
        if part.kind not in ("all", "slice"):
            changes.append(f"{texts[position]}+1")
        for change in changes:
            inside = ",".join([*texts[:position], change, *texts[position + 1 :]])
            yield "index", begin, end, inside if braces else f"{{{inside}}}"


def _raised(latex: str, script: Node, one: Any, found: Any) -> Iterator[Edit]:
    inner = script.kids[0]
    (start, _), (begin, _), (end, _) = script.marks
    stop = _close(latex, end) if latex[begin - 1] == "{" else end
    text = spell(inner)
    if found and found[2]:
        return
    if text == "\\top":
        yield "transpose", start, stop, ""
    elif inner.kind == "number":
        yield "square", start, stop, ""
    elif inner.kind not in ("paren", "name", "term"):
        yield "power", start, stop, ""
