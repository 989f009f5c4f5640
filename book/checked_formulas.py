"""What the page on how the book is checked tells of the printed formulas."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from book.chapters import chapters, read
from book.lint import witness_calls
from book.markdown import table
from book.measured import measured

KINDS = {
    "sign": "a sign turned",
    "index": "another index, or the next one",
    "symbol": "another symbol of the same shape",
    "factor": "a factor dropped",
    "constant": "another constant",
    "square": "a power dropped",
    "power": "a power dropped",
    "transpose": "a transpose dropped",
    "root": "a root dropped",
    "fraction": "a fraction upside down",
    "function": "another function",
    "relation": "a relation turned round",
    "odot": "an entrywise product made a matrix product",
}


def readings(notebook: Any) -> dict[str, str]:
    """The labels that a notebook's witnesses name -> why the formula is not read; empty if it is.

    A formula of which one witness reads some statements counts as read.
    """
    found: dict[str, str] = {}
    for label, node in witness_calls(notebook):
        if len(node.args) == 2:
            found[label] = ""
            continue
        reasons = [k.value for k in node.keywords if k.arg == "unread"]
        reason = reasons[0].value if reasons and isinstance(reasons[0], ast.Constant) else None
        if found.get(label) != "":
            found[label] = str(reason or "no reason is given")
    return found


def as_markdown() -> str:
    """How many formulas are read, which are not and why, and what became of wrong versions."""
    rows: list[tuple[Any, ...]] = []
    unread: list[tuple[str, str, str]] = []
    mutants = measured("mutants")
    for path in chapters():
        said = readings(read(path))
        kept = [label for label, reason in said.items() if not reason]
        link = f"[{path.stem[:2]}](../../notebooks/{path.name})"
        counts: Counter[str] = Counter()
        for name, one in mutants.items():
            if name.split(".")[0] in said:
                for kind in one["kinds"].values():
                    counts.update(kind)
        rows.append((link, len(said), len(kept), *_verdicts(counts)))
        unread += [(link, f"`{label}`", reason) for label, reason in said.items() if reason]
    whole = all(one["run"] == "all" for one in mutants.values())
    tried = "every wrong version of every formula" if whole else "a fixed sample for every formula"
    total: tuple[Any, ...] = ("all", *(sum(r[k] for r in rows) for k in range(1, 6)))
    if not mutants:
        rows = [row[:3] for row in rows]
        total = total[:3]
    head = ("chapter", "formulas", "read as printed", "by value", "by error", "true, listed")
    parts = [
        "The LaTeX of a formula is what is evaluated: its symbols are bound to values that come "
        "from another route, and every relation in it has to hold. Wrong versions of the same "
        "LaTeX, one small change each, then have to fail.",
        table(head[: len(total)], [*rows, total]),
    ]
    if mutants:
        parts.append(f"Tried was {tried}, by kind of change:\n\n{_kinds(mutants)}")
    parts.append(
        "These formulas are not read; each is checked as two computations instead:\n\n"
        + table(("chapter", "formula", "why"), unread, left=3)
        if unread
        else "Every formula is read."
    )
    return "\n\n".join(parts)


def _verdicts(counts: Counter[str]) -> tuple[int, int, int]:
    return counts["value"], counts["error"], counts["accepted"]


def _kinds(mutants: dict[str, dict[str, Any]]) -> str:
    by_kind: dict[str, Counter[str]] = {}
    for one in mutants.values():
        for kind, counts in one["kinds"].items():
            by_kind.setdefault(KINDS.get(kind, kind), Counter()).update(counts)
    rows = [
        (kind, counts["value"], counts["error"], counts["equivalent"], counts["accepted"])
        for kind, counts in sorted(by_kind.items())
    ]
    head = ("change", "refused by value", "refused by an error", "says the same", "true, listed")
    return table(head, rows)
