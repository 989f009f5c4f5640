r"""The formulas in the texts of the exercises and of the questions, and how each is checked.

A text is found by the label of its exercise or by the title of its question. Every formula in it
that is more than a symbol, and every expression in backticks, has an entry in the module of its
chapter's topic: `(label, formula, ...)` -> `Formula`, `Code` or `LeftOut`. The formulas of an entry
are those that the notebook prints, compared character by character; only what the text says in
words, such as "the gated layer has ... parameters", is added in `claim`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from book.chapters import read, without_code
from book.checkers import exercise
from book.formulas.names import symbol
from book.formulas.reading import FormulaError, spell
from book.formulas.reading import read as formula
from book.formulas.relations import Call

# Superscripts that are part of a name; so is one in brackets, a head or a layer.
PARTS_OF_NAMES = ("R", "*")
MATH = re.compile(r"(?<![\\$])\$(?!\$)((?:[^$\\]|\\.)+?)\$")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
RELATION = re.compile(r"[=<>]|\\(?:le|ge|ne|approx|in|to|leftarrow|sim|propto)(?![a-z])")
ROLE = re.compile(r"\{[a-z:]+\}`[^`]*`")


# ---------------------------------------------------------------- entries


@dataclass(frozen=True)
class Formula:
    """A formula that is evaluated: `claim` is the statement, with @0, @1 for what is printed.

    `call` binds its symbols from another route. What `claim` takes from the words around stands in
    `says`, as in the text. `swap` replaces in the printed formula what is wrong on purpose, or what
    cannot be read; without it the formula must not pass. `true` holds mutants that are true
    statements too, and why.
    """

    call: Callable[[], Call | Mapping[str, Any]]
    claim: str = "@0"
    says: tuple[str, ...] = ()
    swap: Mapping[str, str] = field(default_factory=dict)
    true: Mapping[str, str] = field(default_factory=dict)

    def latex(self, key: tuple[str, ...], *, swapped: bool = True) -> str:
        """The statement with the printed formulas of `key` in their places."""
        formulas = [_swap(latex, self.swap if swapped else {}) for latex in key[1:]]
        return re.sub(r"@(\d)", lambda place: formulas[int(place[1])], self.claim)

    def bound(self) -> Call:
        """The bindings, as a call."""
        made = self.call()
        return made if isinstance(made, Call) else Call(made)


def _swap(text: str, swap: Mapping[str, str]) -> str:
    for old, new in swap.items():
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Code:
    """An expression in backticks: its value under these names is the wanted one, others are not."""

    # The names, and the value wanted.
    given: Callable[[], tuple[Mapping[str, Any], Any]]
    # Expressions that somebody might write in its place, each of which gives something else.
    wrong: tuple[str, ...]
    # What of the value is compared.
    of: Callable[[Any, Mapping[str, Any]], Any] = lambda value, names: value
    # What stands for an ellipsis in the text.
    swap: Mapping[str, str] = field(default_factory=dict)

    def holds(self, source: str) -> bool:
        """Whether an expression has the value wanted."""
        names, want = self.given()
        try:
            value = eval(_swap(source, self.swap), {"torch": torch, "F": F, "nn": nn, **names})
            return alike(self.of(value, names), want)
        except (RuntimeError, ValueError, TypeError, LookupError, NotImplementedError):
            return False


@dataclass(frozen=True)
class LeftOut:
    """A formula that states nothing: why."""

    reason: str


Entries = Mapping[tuple[str, ...], Formula | Code | LeftOut]


# ---------------------------------------------------------------- helpers of the entries


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers in float64, the same each time."""
    generator = torch.Generator().manual_seed(1 + seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def row(*numbers: float) -> torch.Tensor:
    """A row of float64."""
    return torch.tensor(numbers, dtype=torch.float64)


def oracle(name: str) -> Callable[..., Any]:
    """The reference of an exercise."""
    return exercise(name).oracle


def alike(got: Any, want: Any) -> bool:
    """Equal shapes and values, up to rounding; tuples entry by entry."""
    if isinstance(want, torch.Tensor):
        return (
            isinstance(got, torch.Tensor)
            and got.shape == want.shape
            and bool(torch.allclose(got.double(), want.double(), rtol=1e-9, equal_nan=True))
        )
    if isinstance(want, tuple | list):
        return (
            isinstance(got, tuple | list) and len(got) == len(want) and all(map(alike, got, want))
        )
    return type(got) is type(want) and got == want


# ---------------------------------------------------------------- what is printed


@functools.cache
def texts(path: Path) -> dict[str, str]:
    """Label or title, and text, of every exercise and every question of a chapter."""
    found: dict[str, str] = {}
    part, label = "", ""
    for cell in read(path).cells:
        if cell.cell_type != "markdown":
            continue
        cuts = r"^(?=## |```\{exercise\}|```\{dropdown\}|```\{solution-end\})"
        pieces = re.split(cuts, cell.source, flags=re.M)
        for piece in pieces:
            head = piece.partition("\n")[0]
            if head.startswith("## "):
                part, label = head.removeprefix("## "), ""
            elif head.startswith("```{solution-end}"):
                label = ""
            elif head.startswith("```{exercise}"):
                [label] = re.findall(r"^:label: (\S+)$", piece, re.M)
            elif part == "Questions you may be asked" and head.startswith("```{dropdown}"):
                label = head.removeprefix("```{dropdown}").strip()
            if label:
                found[label] = found.get(label, "") + piece + "\n"
    return found


def stands(text: str) -> tuple[list[str], list[str]]:
    """Every formula of a text, and every expression in backticks that is no role."""
    plain = ROLE.sub(" ", without_code(text))
    return MATH.findall(CODE.sub(" ", plain)), CODE.findall(plain)


def wanted(label: str, text: str) -> set[str]:
    """The formulas and expressions of a text that want an entry."""
    formulas, codes = stands(text)
    if not label.startswith("ex-"):
        return {latex for latex in formulas if states_a_relation(latex)}
    return {latex for latex in formulas if more_than_a_symbol(latex)} | {
        code for code in codes if states_something(code)
    }


@functools.cache
def more_than_a_symbol(latex: str) -> bool:
    """Whether a formula is more than one name with its indices."""
    try:
        statements = formula(latex).kids
    except FormulaError:
        return True  # what cannot be read wants an entry that says so
    node = statements[0].kids[0]
    node = node.kids[0] if node.kind == "chain" and len(node.kids) == 1 else node
    one = symbol(node)
    if len(statements) > 1 or one is None or one.base == "\\infty":
        return True
    return not all(part.kind == "paren" or spell(part) in PARTS_OF_NAMES for part in one.sups)


def states_a_relation(latex: str) -> bool:
    """Whether a formula holds a relation."""
    return bool(RELATION.search(latex))


def states_something(code: str) -> bool:
    """Whether code in backticks is an expression; the reader's signatures are tied elsewhere."""
    try:
        tree = ast.parse(code, mode="eval").body
    except SyntaxError:
        return False
    if isinstance(tree, ast.Call):
        arguments = [*tree.args, *(k.value for k in tree.keywords)]
        return isinstance(tree.func, ast.Attribute) or not all(
            isinstance(a, ast.Name) for a in arguments
        )
    plain = ast.Name | ast.Constant | ast.Attribute | ast.Tuple | ast.List
    return not isinstance(tree, plain)
