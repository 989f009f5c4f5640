"""What the symbols of a chapter mean: `book/symbols/<topic>.yml`, name -> meaning, shape, role.

The tables serve three readers: the witnesses, which hold the shapes against what is bound; the
pages, on which every symbol answers; and the notation page, which is made from them. The pages are
built without torch, so what looks at bound values is in `bindings`.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from pathlib import Path

from book.chapters import ROOT
from book.data import read_yaml
from book.formulas.names import PREFIXES, Names, Symbol, symbol
from book.formulas.reading import closed, read

FOLDER = ROOT / "book/symbols"
ROLES = (
    "data", "learned", "gradient", "index", "size", "constant", "function", "set", "random",
)  # fmt: skip


@dataclass(frozen=True)
class Meaning:
    """A symbol of a chapter: its LaTeX, what it is in words, its shape and its role."""

    key: str
    name: str
    shape: str
    role: str
    only: tuple[str, ...] = ()  # the labels for which this meaning is declared; empty: all
    color: str = ""  # query, key, value, weight or data: its color in formulas and pictures


@functools.cache
def rows(name: str, folder: Path = FOLDER) -> tuple[Meaning, ...]:
    """The rows of one file, in its order; none if there is no such file."""
    path = folder / f"{name}.yml"
    if not path.exists():
        return ()
    found = []
    for key, entries in (read_yaml(path) or {}).items():
        for row in entries if isinstance(entries, list) else [entries]:
            shape, role = str(row.get("shape", "")), str(row.get("role", ""))
            only, color = tuple(row.get("only", ())), str(row.get("color", ""))
            found.append(Meaning(key, str(row["name"]), shape, role, only, color))
    return tuple(found)


@functools.cache
def table(topic: str, folder: Path = FOLDER) -> dict[str, list[Meaning]]:
    """The symbols of a chapter, those that all chapters share included; LaTeX -> its meanings."""
    found: dict[str, list[Meaning]] = {}
    for row in rows(topic, folder):
        found.setdefault(row.key, []).append(row)
    for row in rows("common", folder):
        # A chapter may give a letter that all chapters share another meaning.
        if all(own.only for own in found.get(row.key, [])):
            found.setdefault(row.key, []).append(row)
    return found


def meaning(topic: str, label: str, key: str, folder: Path = FOLDER) -> Meaning | None:
    """What a symbol of a chapter means in one formula; None if its table does not say."""
    found = table(topic, folder).get(key, [])
    return next((r for r in found if label in r.only), next((r for r in found if not r.only), None))


@dataclass(frozen=True)
class Occurrence:
    """A symbol at a place of a formula, with its meaning; None if the table lacks it."""

    start: int
    end: int
    key: str
    meaning: Meaning | None


@functools.cache  # the page of a chapter and that of the notation ask for the same
def occurrences(
    latex: str, topic: str, label: str, folder: Path = FOLDER
) -> tuple[Occurrence, ...]:
    """Every symbol that a formula prints, in the order of the source."""
    names = Names(table(topic, folder))
    found: list[Occurrence] = []
    skipped: set[int] = set()
    within: set[int] = set()  # scripts that belong to a name, with all below them
    for node in read(latex).walk():
        if node.kind == "item":
            skipped.add(id(node.kids[0]))
        if node.kind == "term":
            for first, second in itertools.pairwise(node.kids):
                one, after = symbol(first), symbol(second)
                if one and after and one.base in PREFIXES:
                    hit = names.find(after, one.base)
                    if hit:
                        skipped |= {id(first), id(second)}
                        taken = {id(n) for n in [*after.subs[: hit[1]], *after.sups[: hit[2]]]}
                        skipped |= taken
                        within |= taken
                        end = after.stop if not hit[1] + hit[2] else second.end
                        found.append(
                            Occurrence(
                                first.start, end, hit[0], meaning(topic, label, hit[0], folder)
                            )
                        )
        if id(node) in skipped:
            skipped |= {id(kid) for kid in node.kids if id(node) in within}
            within |= {id(kid) for kid in node.kids if id(node) in within}
            continue
        one = symbol(node)
        if one is None or one.base in UNNAMED:
            continue
        hit = names.find(one)
        if hit is None and one.primes:
            hit = names.find(Symbol(one.base, 0, one.subs, one.sups, one.start, one.end, one.stop))
        if hit is not None:
            taken = {id(n) for n in [*one.subs[: hit[1]], *one.sups[: hit[2]]]}
            skipped |= taken
            within |= taken
        if hit is None:
            found.append(Occurrence(node.start, one.stop, one.letter, None))
        else:
            end = one.stop if not hit[1] + hit[2] else closed(latex, node)
            found.append(Occurrence(node.start, end, hit[0], meaning(topic, label, hit[0], folder)))
    return tuple(sorted(found, key=lambda o: o.start))


# What is typography or a sign of mathematics, not a symbol that could mean something else.
UNNAMED = {
    "\\partial", "\\mathrm{d}", "\\top", "*", "\\ast", "\\infty", "\\mathbb{R}", "\\mathbb{Z}",
}  # fmt: skip
