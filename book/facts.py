"""Facts from papers and model cards: `book/facts.yml`, one entry each with its source.

A page does not type such a fact: it links to it, `[11,008](../book/pages/facts.md#llama-2-7b)`, and
`book.lint` compares the link's text with the entry. Code takes it with `fact("llama-2-7b", "d_ff")`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from book.chapters import ROOT

FILE = ROOT / "book/facts.yml"
PAGE = "book/pages/facts"
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)*(?:book/pages/)?facts\.md#(?P<id>[\w-]+)\)")


@dataclass(frozen=True)
class Fact:
    """One entry: `values` by name, or `text` forms that pages may use, and where they come from."""

    id: str
    what: str
    source: str
    place: str
    quote: str
    values: dict[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = ()


@functools.cache
def load() -> dict[str, Fact]:
    """All facts by id, in the order of the file."""
    found: dict[str, Fact] = {}
    for entry in yaml.safe_load(FILE.read_text(encoding="utf-8")) or []:
        one = Fact(**{**entry, "texts": tuple(str(t) for t in entry.get("texts", ()))})
        if one.id in found:
            raise ValueError(f"facts.yml: {one.id} stands there twice")
        found[one.id] = one
    return found


def fact(name: str, value: str) -> Any:
    """The number or word `value` of the entry `name`.

    Raises:
        KeyError: if there is no such entry or value; the message lists what there is.
    """
    entries = load()
    if name not in entries:
        raise KeyError(f"no fact {name!r} in facts.yml; there are {', '.join(entries)}")
    if value not in entries[name].values:
        raise KeyError(f"the fact {name!r} has no {value!r}; it has {', '.join(entries[name].values)}")
    return entries[name].values[value]


def shown(entry: Fact) -> set[str]:
    """How a page may write the entry: its texts, its values, numbers with or without commas."""
    forms = set(entry.texts)
    for value in entry.values.values():
        forms.add(str(value))
        if isinstance(value, int) and not isinstance(value, bool):
            forms.add(f"{value:,}")
    return forms
