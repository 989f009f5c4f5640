"""The glossary, English and Chinese: one YAML file, a page of its own, and links from the chapters.

`glossary.yml` is the single source. On the site, the first time a chapter's text uses a term, it
becomes a link to the entry. The notebooks hold no such links, so that Jupyter shows plain text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes

from book.chapters import PLACE
from book.data import read_yaml

GLOSSARY = Path(__file__).with_name("glossary.yml")
PAGE = "book/pages/glossary"
# Text in these is not prose, or leads somewhere already.
_NOT_PROSE = (nodes.reference, nodes.literal, nodes.title, nodes.math, nodes.raw, nodes.pending)


@dataclass(frozen=True)
class Term:
    """One entry of `glossary.yml`."""

    term: str
    zh: str
    place: str  # "08_normalization#derivation"
    text: str  # one sentence
    also: tuple[str, ...] = ()  # other forms that the chapters use

    @property
    def anchor(self) -> str:
        """The anchor of the entry on its page."""
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.term.lower()).strip("-")


def load(path: Path = GLOSSARY) -> list[Term]:
    """The terms of the file at `path`, in its order.

    Raises:
        ValueError: if an entry has a missing or an unknown field, a form stands in two entries, or
            the entries are not sorted. The message names the entry.
    """
    terms = []
    for item in read_yaml(path):
        fields = {"term", "zh", "place", "text"}
        if not fields <= set(item) <= fields | {"also"} or not all(item.values()):
            raise ValueError(
                f"{item.get('term', item)}: the fields must be {sorted(fields)} and also"
            )
        if not PLACE.fullmatch(item["place"]):
            raise ValueError(f"{item['term']}: place must be like 08_normalization#derivation")
        terms.append(Term(**{**item, "also": tuple(item.get("also", ()))}))
    names = [t.term.lower() for t in terms]
    if names != sorted(names):
        raise ValueError(f"{path.name}: the terms are not sorted")
    forms = [form.lower() for t in terms for form in (t.term, *t.also)]
    if twice := {form for form in forms if forms.count(form) > 1}:
        raise ValueError(f"{path.name}: stands in two entries: {', '.join(sorted(twice))}")
    return terms


def as_markdown(path: Path = GLOSSARY) -> str:
    """The glossary as a MyST definition list."""
    parts = []
    for one in load(path):
        chapter, _, section = one.place.partition("#")
        link = f"[chapter {chapter[:2]}](../../notebooks/{chapter}.ipynb#{section})"
        # A plural is a form to look for and nothing to tell.
        other = [form for form in one.also if not form.lower().startswith(one.term.lower())]
        forms = f" ({', '.join(other)})" if other else ""
        parts.append(
            f"({one.anchor})=\n\n**{one.term}**{forms} · {one.zh}\n: {one.text} See {link}."
        )
    return "\n\n".join(parts) + "\n"


def link_first_uses(doctree: Any, address: str) -> None:
    """Link each term's first use in the paragraphs of `doctree` to its entry.

    Args:
        doctree: the resolved page.
        address: the glossary's address, seen from that page.
    """
    waiting = {form.lower(): t for t in load() for form in (t.term, *t.also)}
    longest = sorted(waiting, key=len, reverse=True)
    word = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})(?![\w-])", re.I)
    done: set[str] = set()
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            if not _is_prose(text):
                continue
            pieces = _linked(str(text), word, waiting, done, address)
            if len(pieces) > 1:
                text.parent.replace(text, pieces)


def _is_prose(text: Any) -> bool:
    node = text.parent
    while node is not None:
        if isinstance(node, _NOT_PROSE):
            return False
        node = node.parent
    return True


def _linked(
    text: str, word: re.Pattern[str], waiting: dict[str, Term], done: set[str], address: str
) -> list[nodes.Node]:
    pieces: list[nodes.Node] = []
    end = 0
    for match in word.finditer(text):
        term = waiting[match[0].lower()]
        if term.term in done:
            continue
        done.add(term.term)
        link = nodes.reference(
            "", match[0], refuri=f"{address}#{term.anchor}", internal=True,
            classes=["tp-term"], reftitle=term.zh,
        )  # fmt: skip
        pieces += [nodes.Text(text[end : match.start()]), link]
        end = match.end()
    return [*pieces, nodes.Text(text[end:])]
