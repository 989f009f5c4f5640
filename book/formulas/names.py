"""Which symbol a printed name is: the longest name among the bound ones, the rest are indices.

`W_Q^{(h)}` with `W_Q` bound is that symbol with the index h; with `W_Q^{(h)}` bound it is a name
of its own. Names are given as LaTeX, spelled in any way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from book.formulas.reading import FormulaError, Node, read, spell
from book.formulas.tokens import ACCENTS

# Letters that mark a derivative or a difference, and with the next name make a name: dX, \nabla L.
PREFIXES = {"d", "\\mathrm{d}", "\\nabla", "\\Delta", "\\partial"}


@dataclass(frozen=True)
class Symbol:
    """A printed symbol: its letter with primes, and its scripts in order."""

    base: str
    primes: int
    subs: tuple[Node, ...]
    sups: tuple[Node, ...]
    start: int
    end: int
    # Where the name itself ends, before its scripts.
    stop: int

    @property
    def letter(self) -> str:
        """The letter with its primes."""
        return self.base + "'" * self.primes


def symbol(node: Node) -> Symbol | None:
    """The symbol that a node prints; None if it prints something else."""
    atom, scripts = (node.kids[0], node.kids[1:]) if node.kind == "item" else (node, [])
    if atom.kind != "name":
        return None
    subs: list[Node] = []
    sups: list[Node] = []
    primes, stop = 0, atom.end
    for script in scripts:
        if script.kind == "prime":
            primes += 1
            stop = script.end
        elif script.kind == "sub":
            subs += entries(script.kids[0])
        else:
            sups += raised(script.kids[0])
    return Symbol(str(atom.text), primes, tuple(subs), tuple(sups), node.start, node.end, stop)


def entries(inner: Node) -> list[Node]:
    """The indices in a subscript: `ij` and `i,j` are two, `2k+1` is one."""
    found: list[Node] = []
    for part in inner.kids if inner.kind == "list" else [inner]:
        names = part.kind == "term" and all(
            k.kind == "name" or (k.kind == "item" and all(s.kind == "prime" for s in k.kids[1:]))
            for k in part.kids
        )
        found += part.kids if names else [part]
    return found


def raised(inner: Node) -> list[Node]:
    r"""The parts of a superscript: `C(h)` and `(h)\top` are two, `2k` and `i(m-n)t` are one."""
    kids = inner.kids if inner.kind == "term" else [inner]
    last = kids[:-1] if spell(kids[-1]) == "\\top" else kids
    named = [k.kind for k in last[:-1]] == ["name"] * (len(last) - 1)
    if len(kids) > 1 and named and (last[-1].kind == "paren" or last is not kids):
        return list(kids)
    return [inner]


class Names:
    """The bound names."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._table: dict[str, list[tuple[tuple[str, ...], tuple[str, ...], str]]] = {}
        for key in keys:
            letter, subs, sups = parsed(key)
            self._table.setdefault(letter, []).append((subs, sups, key))

    def find(self, one: Symbol, prefix: str = "") -> tuple[str, int, int] | None:
        """The key of the longest bound name, and how many subscripts and superscripts it takes."""
        best = None
        for subs, sups, key in self._table.get(prefix + one.letter, []):
            n, m = len(subs), len(sups)
            printed = tuple(map(spell, one.subs[:n])), tuple(map(spell, one.sups[:m]))
            if printed == (subs, sups) and (best is None or n + m > best[1] + best[2]):
                best = (key, n, m)
        return best

    def known(self, letter: str) -> bool:
        """Whether some bound name begins with this letter."""
        return letter in self._table


@functools.lru_cache(maxsize=4096)
def parsed(key: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """A bound name as letter, subscripts and superscripts.

    Raises:
        FormulaError: if it is no name.
    """
    if key.removeprefix("\\") in ACCENTS:  # what an accent does to what stands under it
        return key, (), ()
    node = read(key)
    while node.kind in ("start", "statement", "chain") and len(node.kids) == 1:
        node = node.kids[0]
    prefix = ""
    if node.kind == "term" and len(node.kids) == 2 and spell(node.kids[0]) in PREFIXES:
        prefix, node = spell(node.kids[0]), node.kids[1]
    if node.kind in ("func", "big"):
        return f"\\{node.text}", (), ()
    if node.kind == "number":  # \mathbf 1 is a name, 1 is not
        raise FormulaError(f"{key!r} is a number, not a name")
    one = symbol(node)
    if one is None:
        raise FormulaError(f"{key!r} is not the name of a symbol")
    return prefix + one.letter, tuple(map(spell, one.subs)), tuple(map(spell, one.sups))
