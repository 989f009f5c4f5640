"""From the LaTeX of a displayed formula to its tree.

`read(latex)` gives a tree of `Node`s, each of which knows where it stands in the source. The
grammar is `grammar.lark`; the tree says what is printed and nothing about values.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lark
from lark.lexer import Lexer

from book.formulas.tokens import FormulaError, Token, tokens

__all__ = ["FormulaError", "Node", "read", "spell"]


@dataclass(eq=False)
class Node:
    """A piece of a formula.

    Args:
        kind: `chain`, `list`, `sum`, `term`, `item`, `name`, `number`, ..., as in the grammar.
        kids: the pieces it is made of.
        text: a name, a number, an operator, the signs of a sum or the relations of a chain.
        start: where it begins in the source.
        end: where it ends.
    """

    kind: str
    kids: list[Node] = field(default_factory=list)
    text: Any = ""
    start: int = 0
    end: int = 0
    # Conditions printed over the relations of a chain, by number of the relation.
    over: dict[int, Node] = field(default_factory=dict)
    # Where its own signs and braces stand in the source.
    marks: list[tuple[int, int]] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for kid in self.kids:
            yield from kid.walk()


class _Placed(lark.Token):
    """A token for lark that keeps the condition printed over it."""

    over: tuple[str, int] | None

    @classmethod
    def of(cls, token: Token) -> _Placed:
        made = cls(token.kind, token.text, start_pos=token.start, end_pos=token.end)
        made.over = token.over
        return made


class _Tokens(Lexer):
    def __init__(self, conf: Any) -> None:
        pass

    def lex(self, data: Any, parser_state: Any = None) -> Iterator[lark.Token]:
        for token in data:
            yield _Placed.of(token)


@functools.cache
def _parser() -> lark.Lark:
    text = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(text, parser="lalr", lexer=_Tokens, maybe_placeholders=False)


@functools.lru_cache(maxsize=4096)
def read(latex: str, offset: int = 0) -> Node:
    """The tree of a displayed formula.

    Raises:
        FormulaError: if it cannot be read; the message points at the character.
    """
    found = tokens(latex, offset)
    if not found:
        raise FormulaError("there is no formula", offset)
    try:
        tree = _parser().parse(found)
    except lark.UnexpectedToken as error:
        at = error.token.start_pos
        if error.token.type == "$END":
            raise FormulaError("the formula ends too early", found[-1].end) from None
        raise FormulaError(f"{str(error.token)!r} cannot stand here", at) from None
    return _build(tree, latex, offset)


def _build(tree: Any, latex: str, offset: int) -> Node:
    kids: list[Node] = []
    marks: list[Any] = []
    for child in tree.children:
        if isinstance(child, lark.Token):
            marks.append(child)
        else:
            kids.append(_build(child, latex, offset))
    places = [(m.start_pos, m.end_pos) for m in marks] + [(k.start, k.end) for k in kids]
    start = min((p[0] for p in places), default=offset)
    end = max((p[1] for p in places), default=offset)
    kind = str(tree.data)
    if kind == "expr":
        kind = "sum"
    make = _MAKE.get(kind)
    node = Node(kind, kids, "", start, end)
    node.marks = [(m.start_pos, m.end_pos) for m in marks]
    return make(node, marks, tree) if make else node


def _place(mark: Any) -> tuple[int, int]:
    return mark.start_pos, mark.end_pos


def _leaf(node: Node, marks: list[Any], tree: Any) -> Node:
    node.text = str(marks[0])
    return node


def _statement(node: Node, marks: list[Any], tree: Any) -> Node:
    node.text = str(marks[0]) if marks else ""
    return node


def _implication(node: Node, marks: list[Any], tree: Any) -> Node:
    node.text = [str(m) for m in marks]
    return node.kids[0] if len(node.kids) == 1 else node


def _chain(node: Node, marks: list[Any], tree: Any) -> Node:
    node.text = [str(m) for m in marks]
    for number, mark in enumerate(marks):
        if getattr(mark, "over", None):
            inside, begin = mark.over
            node.over[number] = read(inside, begin)
    return node


def _list(node: Node, marks: list[Any], tree: Any) -> Node:
    return node.kids[0] if len(node.kids) == 1 else node


def _sum(node: Node, marks: list[Any], tree: Any) -> Node:
    signs = [str(m) for m in marks]
    first = tree.children[0]
    explicit = isinstance(first, lark.Token)
    node.text = signs if explicit else ["", *signs]
    if len(node.kids) == 1 and not explicit:
        return node.kids[0]
    return node


def _term(node: Node, marks: list[Any], tree: Any) -> Node:
    kids, rest = [], iter(node.kids)
    for child in tree.children:
        if isinstance(child, lark.Token):
            kids.append(Node("operator", [], str(child), *_place(child)))
        else:
            kids.append(next(rest))
    node.kids = kids
    if kids[0].kind == "operator":
        raise FormulaError("nothing stands before this sign", kids[0].start)
    if kids[-1].kind == "operator":
        raise FormulaError("nothing stands after this sign", kids[-1].end)
    for one, after in itertools.pairwise(kids):
        if one.kind == after.kind == "operator":
            raise FormulaError("nothing stands between these signs", after.start)
    return kids[0] if len(kids) == 1 else node


def _item(node: Node, marks: list[Any], tree: Any) -> Node:
    return node.kids[0] if len(node.kids) == 1 else node


def _inner(node: Node, marks: list[Any], tree: Any) -> Node:
    chain = node.kids[0]
    return chain.kids[0] if chain.kind == "chain" and len(chain.kids) == 1 else chain


def _such_that(node: Node, marks: list[Any], tree: Any) -> Node:
    chain = node.kids[1]
    if len(chain.kids) == 1:
        node.kind, node.kids = "slice", [node.kids[0], chain.kids[0]]
    return node


def _row(node: Node, marks: list[Any], tree: Any) -> Node:
    # An empty cell of a matrix is a cell: `None` keeps its place.
    cells: list[Node] = []
    filled, rest = False, iter(node.kids)
    for child in tree.children:
        if isinstance(child, lark.Token):
            if not filled:
                cells.append(Node("empty", [], "", _place(child)[0], _place(child)[0]))
            filled = False
        else:
            cells.append(next(rest))
            filled = True
    if not filled:
        cells.append(Node("empty", [], "", node.end, node.end))
    node.kids = cells
    return node


def _logic(node: Node, marks: list[Any], tree: Any) -> Node:
    node.text = [str(m) for m in marks if m.type == "LOGIC"]
    return node


_MAKE = {
    **dict.fromkeys(("name", "number", "big", "func", "dots", "all", "accent"), _leaf),
    "statement": _statement,
    "implication": _implication,
    "chain": _chain,
    "list": _list,
    "sum": _sum,
    "term": _term,
    "item": _item,
    "inner": _inner,
    "such_that": _such_that,
    "row": _row,
    "logic": _logic,
}


def spell(node: Node) -> str:
    """A piece of a formula in one canonical spelling: equal pieces are spelled alike."""
    inside = [spell(kid) for kid in node.kids]
    if node.kind in ("name", "number", "operator", "dots", "all"):
        return str(node.text)
    if node.kind in ("func", "big"):
        return f"\\{node.text}"
    if node.kind == "item":
        return "".join(inside)
    if node.kind == "prime":
        return "'"
    if node.kind in ("sub", "sup"):
        return f"{'_' if node.kind == 'sub' else '^'}{{{inside[0]}}}"
    if node.kind == "sum":
        return "".join(f"{s}{t}" for s, t in zip(node.text, inside, strict=True))
    if node.kind == "chain":
        signs = [*node.text, ""]
        return "".join(f"{t}{s}" for t, s in zip(inside, signs, strict=True))
    if node.kind == "term":
        return " ".join(inside)
    return f"{node.kind}({','.join(inside)})"


def closed(latex: str, node: Node) -> int:
    """The end of an item in the source, with the brace of its last script or argument."""
    end, depth = node.end, 0
    for c in latex[node.start : end]:
        depth += (c == "{") - (c == "}")
    while depth > 0 and end < len(latex):
        depth += (latex[end] == "{") - (latex[end] == "}")
        end += 1
    return end
