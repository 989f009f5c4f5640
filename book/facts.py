"""Facts from papers and model cards: `book/facts.yml`, one entry each with its source.

A page does not type such a fact: it links to it, `[11,008](../book/pages/facts.md#llama-2-7b)`, and
`book.lint_facts` compares the link's text with the entry. Code takes it with
`fact("llama-2-7b", "d_ff")`. On the site a link to a fact says its source and place in its title.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from book.chapters import ROOT
from book.data import read_yaml

FILE = ROOT / "book/facts.yml"
BIBLIOGRAPHY = ROOT / "book/pages/references.bib"
PAGE = "book/pages/facts"
ID = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")
# A link to a fact, from a chapter, from a page of the reference part, or from the README.
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)*(?:book/pages/)?facts\.md#(?P<id>[\w.-]+)\)")
QUOTE_AT_MOST = 180
NOT_SEEN = "not seen; taken from the first edition"


@dataclass(frozen=True)
class Fact:
    """One entry: `values` by name, or `texts` that pages may use, and where they come from."""

    id: str
    what: str
    source: str  # a key of references.bib, or an https address
    place: str  # in the source: a section, table, equation, file
    quote: str  # one line of it; NOT_SEEN where nobody looked
    values: dict[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The anchor of the entry on its page."""
        return f"fact-{re.sub(r'[^a-z0-9]+', '-', self.id)}"


@functools.cache
def load(path: Path = FILE) -> dict[str, Fact]:
    """All facts by id, in the order of the file.

    Raises:
        ValueError: if an entry lacks a field or has an unknown one, or an id stands there twice.
    """
    known = [f.name for f in fields(Fact)]
    found: dict[str, Fact] = {}
    for entry in read_yaml(path) or []:
        name = entry.get("id", f"the entry after {list(found)[-1:]}")
        for missing in (f for f in known[:5] if not entry.get(f)):
            raise ValueError(f"{path.name}: {name} has no {missing}")
        if unknown := sorted(set(entry) - set(known)):
            raise ValueError(f"{path.name}: {name} has unknown fields: {', '.join(unknown)}")
        one = Fact(**{**entry, "texts": tuple(str(t) for t in entry.get("texts") or ())})
        if one.id in found:
            raise ValueError(f"{path.name}: {one.id} stands there twice")
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
        raise KeyError(
            f"the fact {name!r} has no {value!r}; it has {', '.join(entries[name].values)}"
        )
    return entries[name].values[value]


def shown(entry: Fact) -> set[str]:
    """How a page may write the entry: its texts, its values, numbers with or without commas."""
    forms = set(entry.texts)
    for value in entry.values.values():
        forms.add(str(value))
        if isinstance(value, int) and not isinstance(value, bool):
            forms.add(f"{value:,}")
    return forms


def fits(text: str, entry: Fact) -> bool:
    """Whether a link's text is one of the entry's forms; 1.960 is written for 1.96 too."""
    plain = " ".join(text.split())
    if plain in shown(entry):
        return True
    floats = [v for v in entry.values.values() if isinstance(v, float)]
    return bool(re.fullmatch(r"\d+\.\d*0", plain)) and any(float(plain) == v for v in floats)


# ---------------------------------------------------------------- is the file in order?


def problems(entries: Iterable[Fact], bibliography: str, used: set[str]) -> Iterator[str]:
    """What is wrong with these facts, of which the book uses those in `used`, one line each."""
    keys = set(re.findall(r"^@\w+\{([^,\s]+),", bibliography, re.M))
    for one in entries:
        if not ID.fullmatch(one.id):
            yield f"{one.id}: an id has small letters and digits, joined by - or ."
        if one.source not in keys and not re.fullmatch(r"https://\S+", one.source):
            yield f"{one.id}: the source {one.source} is no key of references.bib and no address"
        if len(one.quote) > QUOTE_AT_MOST or "\n" in one.quote.strip():
            yield f"{one.id}: the quote is longer than a line ({len(one.quote)} characters)"
        if not one.values and not one.texts:
            yield f"{one.id}: has neither values nor texts"
        if odd := [k for k, v in one.values.items() if not isinstance(v, str | int | float)]:
            yield f"{one.id}: the values {', '.join(odd)} are neither numbers nor words"
        if one.id not in used:
            yield f"{one.id}: no page uses it"


# ---------------------------------------------------------------- the page


def as_markdown(path: Path = FILE) -> str:
    """The facts as MyST definition lists, models before the rest."""
    groups: dict[str, list[Fact]] = {
        "Models and their configurations": [],
        "Papers": [],
        "Documentation, code and data sheets": [],
    }
    models, papers, rest = groups.values()
    for one in load(path).values():
        sizes = {
            "d_model",
            "num_layers",
            "d_ff",
            "num_heads",
            "parameters",
            "hidden_size",
            "n_embd",
        }
        sizes &= set(one.values)
        group = models if sizes else rest if one.source.startswith("https:") else papers
        group.append(one)
    parts = []
    for title, ones in groups.items():
        if ones:
            parts += [f"## {title}", *(_entry(one) for one in ones)]
    return "\n\n".join(parts) + "\n"


def _entry(one: Fact) -> str:
    source = f"<{one.source}>" if one.source.startswith("https:") else f"{{cite:t}}`{one.source}`"
    values = [f"{_literal(k)} = {_number(v)}" for k, v in one.values.items()]
    said = "; ".join([*values, *(_escaped(text) for text in one.texts)])
    title = _escaped(one.what[0].upper() + one.what[1:])
    quote = one.quote.strip()
    words = (
        f"  > {_escaped(quote)}" if quote != NOT_SEEN else "  *This passage was not read again.*"
    )
    where = f"{source}, {_escaped(one.place)}."
    return f"({one.anchor})=\n\n**{title}**\n: {said}.\n\n: {where}\n\n{words}"


def _number(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else _escaped(str(value))


def _literal(text: str) -> str:
    return f"`{text}`"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; `code` in it stays code."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if k % 2 else re.sub(r"([\\*_\[\]<>{}$|#~^])", r"\\\1", piece)
        for k, piece in enumerate(pieces)
    )


def mark_links(doctree: Any, address: str, titles: dict[str, str]) -> None:
    """Give each link to a fact its class, and a title with source and place.

    Args:
        doctree: the resolved page.
        address: the address of the page of facts, seen from that page.
        titles: the title for each anchor.
    """
    from docutils import nodes  # here: notebooks import this module for `fact` alone

    for link in doctree.findall(nodes.reference):
        page, _, anchor = str(link.get("refuri", "")).partition("#")
        if page == address and anchor in titles:
            link["classes"] = [*link["classes"], "tp-fact"]
            link["reftitle"] = titles[anchor]


def name_works(doctree: Any, address: str, works: list[str]) -> None:
    """Give each citation the title of its work in place of the whole entry.

    Args:
        doctree: the resolved page.
        address: the address of the page of references, seen from that page.
        works: the titles of all works.
    """
    from docutils import nodes  # here: notebooks import this module for `fact` alone

    for link in doctree.findall(nodes.reference):
        if str(link.get("refuri", "")).partition("#")[0] != address:
            continue
        entry = str(link.get("reftitle", "")).casefold()
        if found := [w for w in works if w.casefold() in entry]:
            link["reftitle"] = max(found, key=len)


@functools.cache
def works() -> list[str]:
    """The titles of all works of the bibliography, as plain text."""
    entries = _entries(BIBLIOGRAPHY.read_text(encoding="utf-8"))
    return [re.sub(r"[{}\\]", "", e.fields["title"]) for e in entries.values()]


@functools.cache
def titles() -> dict[str, str]:
    """Anchor -> where the fact comes from, in words."""
    named = _sources(BIBLIOGRAPHY.read_text(encoding="utf-8"))
    return {
        one.anchor: f"{named.get(one.source, one.source)}, {one.place}" for one in load().values()
    }


def _sources(bibliography: str) -> dict[str, str]:
    """Key -> names of the authors and year, as `Vaswani et al. 2017`."""
    found = {}
    for key, entry in _entries(bibliography).items():
        people = [
            re.sub(r"[{}\\]", "", " ".join([*p.prelast_names, *p.last_names]))
            for p in entry.persons.get("author", [])
        ]
        who = people[0] if len(people) == 1 else f"{people[0]} et al." if people else key
        if len(people) == 2:
            who = f"{people[0]} and {people[1]}"
        found[key] = f"{who} {entry.fields.get('year', '')}".strip()
    return found


def _entries(bibliography: str) -> Any:
    """Key -> entry of a bibliography."""
    from pybtex.database import parse_string  # here: notebooks import this module for `fact` alone

    return parse_string(bibliography, "bibtex").entries
