"""Wrong programs made from a right one: one operation changed at a time.

The answers that a checker has to reject are those that a person writes, and those nobody thought
of. This makes the second kind from a solution, as `book.formulas.mutants` does from a formula.
"""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """A changed program: what was changed on which line, and its source."""

    what: str
    line: int
    source: str
    _tree: bytes = field(repr=False, compare=False)
    _number: int = field(repr=False, compare=False)

    @cached_property
    def watched(self) -> str:
        """The program as it was, but that it calls `ran()` where it was changed."""
        return _watched(self._tree, self._number)


def edits(source: str) -> list[Edit]:
    """Every program that differs from `source` in one operation.

    What is said to a reader (the texts of exceptions, docstrings) and annotations stay.
    """
    tree = ast.parse(source)
    stored = pickle.dumps(tree)  # a copy from it takes a tenth of `copy.deepcopy`'s time
    found = []
    seen = {ast.unparse(tree)}
    for number, node in enumerate(_nodes(tree)):
        for k in range(len(list(_changes(node)))):
            changed = pickle.loads(stored)
            target = list(_nodes(changed))[number]
            what, new = list(_changes(target))[k]
            text = ast.unparse(ast.fix_missing_locations(_Replace(target, new).visit(changed)))
            if text not in seen:
                seen.add(text)
                found.append(Edit(what, getattr(node, "lineno", 0), text, stored, number))
    return found


def _watched(stored: bytes, number: int) -> str:
    """The program with a call of `ran` in the place of a node, after which the node's value comes.

    A statement is watched by the expression in it.
    """
    watched = pickle.loads(stored)
    node = list(_nodes(watched))[number]
    at: Any = getattr(node, "value", node) if isinstance(node, ast.stmt) else node
    call = ast.Call(ast.Name("ran", ast.Load()), [], [])
    both = ast.Subscript(ast.Tuple([call, at], ast.Load()), ast.Constant(1), ast.Load())
    return ast.unparse(ast.fix_missing_locations(_Replace(at, both).visit(watched)))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes in which an operation stands, in order."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.Import):
                yield child
                yield from _nodes(child)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return self.new
        visited: ast.AST = self.generic_visit(node)
        return visited


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What can be put in the place of `node`, and what that is called."""
    if isinstance(node, ast.BinOp):
        yield from _of_product(node)
    elif isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
        op = BINARY[type(node.op)]()
        yield "another operator", ast.AugAssign(node.target, op, node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.Not):
        yield "without its sign", node.operand
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        ops = [COMPARED[type(node.ops[0])](), *node.ops[1:]]
        yield "another comparison", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and for or", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.IfExp):
        yield "the other branch", ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        if len(node.value.elts) > 1:
            a, b, *rest = node.value.elts
            yield "results exchanged", ast.Return(ast.Tuple([b, a, *rest], ast.Load()))
    elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield "not transposed", node.value


def _of_product(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    if type(node.op) in BINARY:
        yield "another operator", ast.BinOp(node.left, BINARY[type(node.op)](), node.right)
    if isinstance(node.op, ast.MatMult | ast.Sub | ast.Div):
        yield "operands exchanged", ast.BinOp(node.right, node.op, node.left)
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield "without the right operand", node.left


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield "the other truth", ast.Constant(not value)
    elif isinstance(value, int):
        yield "one more", ast.Constant(value + 1)
    elif isinstance(value, float) and value not in (0.0, float("inf")):
        yield "another number", ast.Constant(value * 1.5)


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for k, word in enumerate(node.keywords):
        if word.arg is not None:
            rest = [*node.keywords[:k], *node.keywords[k + 1 :]]
            yield f"without {word.arg}", ast.Call(node.func, node.args, rest)
    if isinstance(node.func, ast.Attribute):
        of = node.func.value
        function = isinstance(of, ast.Name) and of.id in ("torch", "F", "math", "nn")
        if not function:  # a method: `x.float()`, `x.transpose(1, 2)`
            yield f"without {node.func.attr}", of
        elif len(node.args) == 1 and not node.keywords:
            yield f"without {node.func.attr}", node.args[0]
