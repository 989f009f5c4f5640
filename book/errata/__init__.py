"""The misconceptions: a YAML file per chapter, checked here and rendered for page and chapters.

The files `NN_topic.yml` beside this module are the single source. Each entry says what is often
believed or written, why it is tempting and what is right; an entry that can be executed names the
function in `tests/errata` that shows the wrong form failing and the right one holding. The others
cite their evidence. What a reader may believe has a `belief` too, and stands, with its correction,
in the list at the end of its chapter: `python -m book.errata` writes these lists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import nbformat

from book.chapters import NOTEBOOKS, chapters, headings, read, title
from book.data import read_yaml

ERRATA = Path(__file__).parent
HEADING = "## What is often written and wrong"
_SECTION = re.compile(rf"(?<=^{HEADING}\n).*?(?=^## |\Z)", re.M | re.S)

# E-01 is an error in common notes, P-1 a slip in a published paper.
ID = re.compile(r"E-(?:0[1-9]|[1-9]\d+)|P-[1-9]\d*")
SEVERITIES = ("wrong", "imprecise", "dubious", "label", "gap")  # told apart on the page


@dataclass(frozen=True)
class Erratum:
    """One entry of a file. Texts are MyST Markdown, with inline mathematics in dollars."""

    id: str
    severity: str  # one of SEVERITIES
    chapter: str  # the stem of a notebook, such as 08_normalization
    section: str  # the anchor of one of its headings
    title: str  # what is right, in a line
    belief: str | None  # what a reader may believe, in a line; without one, no chapter lists it
    claim: str  # what is commonly written
    tempting: str
    right: str
    evidence: str  # its numbers are the ones that `test` asserts, or are cited
    test: str | None  # a function in tests/errata
    source: tuple[str, ...]  # "citation key, section or equation"
    exercise: str | None  # the label of an exercise in the chapter
    also: tuple[str, ...] = ()  # other chapters whose lists hold it

    @property
    def order(self) -> tuple[str, int]:
        """E before P, then by number."""
        kind, number = self.id.split("-")
        return kind, int(number)

    @property
    def slug(self) -> str:
        """The anchor of the entry on the misconceptions page."""
        return self.id.lower()

    @property
    def citations(self) -> tuple[str, ...]:
        """The keys of `references.bib` that the entry cites, in its sources and in its texts."""
        texts = " ".join((self.claim, self.tempting, self.right, self.evidence))
        in_text = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", texts)
        return (*(s.partition(",")[0] for s in self.source), *in_text)


def load(folder: Path = ERRATA) -> list[Erratum]:
    """The entries of all files of `folder`, by their ids.

    Raises:
        ValueError: if an entry is not as `Erratum` says, an id is used twice, or the order within
            a file is not that of the ids. The message names the entry and the field.
    """
    entries = [entry for path in sorted(folder.glob("*.yml")) for entry in _of_chapter(path)]
    entries.sort(key=lambda entry: entry.order)
    for before, after in pairwise(entries):
        if before.order == after.order:
            raise ValueError(f"{after.id}: field 'id' is used twice")
    return entries


def _of_chapter(path: Path) -> list[Erratum]:
    raw = read_yaml(path)
    # ValueError throughout: the file is at fault, not the caller.
    if not isinstance(raw, list):
        raise ValueError(  # noqa: TRY004
            f"{path.name}: expected a list of entries, got {type(raw).__name__}"
        )
    if not (NOTEBOOKS / f"{path.stem}.ipynb").is_file():
        raise ValueError(f"{path.name}: the file must have the name of a chapter's notebook")
    entries = [_entry(item, position, path.stem) for position, item in enumerate(raw, 1)]
    for before, after in pairwise(entries):
        if before.order > after.order:
            raise ValueError(f"{after.id}: field 'id' must come before {before.id} in the file")
    return entries


def as_markdown(folder: Path = ERRATA) -> str:
    """The entries as MyST Markdown: a heading per chapter, and under it a heading per entry.

    What readers may believe comes first in a chapter, slips of single texts and papers after it.
    """
    parts = []
    entries = load(folder)
    for chapter in sorted({entry.chapter for entry in entries}):
        parts.append(f"## {title(chapter)}")
        mine = [entry for entry in entries if entry.chapter == chapter]
        for entry in sorted(mine, key=lambda e: e.belief is None):
            parts += _paragraphs(entry)
    return "\n\n".join(parts) + "\n"


def _paragraphs(erratum: Erratum) -> Iterator[str]:
    yield f"### {erratum.id}"
    # The classes are what the filter of the page goes by (static/pages.js).
    yield f"::::{{container}} tp-erratum tp-ch-{erratum.chapter[:2]} tp-sev-{erratum.severity}"
    yield f"**{erratum.title}** ({erratum.severity})"
    yield f"*Often written:* {erratum.claim}"
    yield f"*Why it is tempting:* {erratum.tempting}"
    yield f"*Right:* {erratum.right}"
    yield f"*Evidence:* {erratum.evidence}" + (f" Test: `{erratum.test}`." if erratum.test else "")
    place = f"{title(erratum.chapter)}: {headings(erratum.chapter)[erratum.section]}"
    links = f"[{place}](../../notebooks/{erratum.chapter}.ipynb#{erratum.section})"
    if erratum.exercise:
        links += f", {{ref}}`{erratum.exercise}`"
    yield f"*In the chapter:* {links}."
    if erratum.source:
        yield f"*Source:* {'; '.join(map(_cited, erratum.source))}."
    yield "::::"


def for_chapter(chapter: str, folder: Path = ERRATA) -> str:
    """What the chapter's section lists: each belief with what is right, and where the evidence is.

    Args:
        chapter: the stem of its notebook.
        folder: where the files are.
    """
    page = "../book/pages/misconceptions.md"
    lines = [
        f"- *{entry.belief}* {entry.title}: [{entry.id}]({page}#{entry.slug})."
        for entry in load(folder)
        if chapter in (entry.chapter, *entry.also) and entry.belief
    ]
    return f"The [misconceptions page]({page}) has the evidence.\n\n" + "\n".join(lines) + "\n"


def listed(path: Path) -> str:
    """What the section of the chapter at `path` holds.

    Raises:
        ValueError: if the chapter has no such section.
    """
    for cell in read(path).cells:
        if cell.cell_type == "markdown" and (found := _SECTION.search(cell.source)):
            return found[0].strip() + "\n"
    raise ValueError(f"{path.name}: a chapter has a section {HEADING!r}")


def write(path: Path) -> bool:
    """Put `for_chapter` into the chapter at `path`; was it another text before?"""
    wanted = for_chapter(path.stem)
    if listed(path) == wanted:
        return False
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and _SECTION.search(cell.source):
            text = _SECTION.sub(lambda _: f"\n{wanted}\n", cell.source)
            cell.source = text.strip("\n")
    nbformat.write(notebook, path)
    return True


def _cited(source: str) -> str:
    key, comma, place = source.partition(",")
    return f"{{cite:t}}`{key}`{comma}{place}"


def _entry(item: object, position: int, chapter: str) -> Erratum:
    if not isinstance(item, dict):
        raise ValueError(  # noqa: TRY004
            f"entry {position}: expected a mapping, got {type(item).__name__}"
        )
    name = item.get("id", f"entry {position}")
    known = [f.name for f in fields(Erratum) if f.name != "chapter"]
    for field in known:
        if field not in item and field != "also":
            raise ValueError(f"{name}: field {field!r} is missing")
    for field, value in item.items():
        if field not in known:
            raise ValueError(
                f"{name}: field {field!r} is unknown; the fields are {', '.join(known)}"
            )
        if problem := _problem(field, value):
            raise ValueError(f"{name}: field {field!r} {problem}, got {value!r}")
    known_sections = headings(chapter)
    if item["section"] not in known_sections:
        raise ValueError(
            f"{name}: field 'section' must be one of {', '.join(known_sections)}, "
            f"got {item['section']!r}"
        )
    prefix = f"test_{item['id'].lower().replace('-', '')}_"
    if not (item["test"] or prefix).startswith(prefix):
        raise ValueError(f"{name}: field 'test' must start with {prefix}, got {item['test']!r}")
    if not (item["test"] or item["source"]):
        raise ValueError(f"{name}: field 'test' or field 'source' must say what the evidence is")
    lists = {field: tuple(item.get(field) or ()) for field in ("source", "also")}
    return Erratum(**{**item, "chapter": chapter, **lists})


def _problem(field: str, value: object) -> str | None:
    """What is wrong with the value of one field, if anything is."""
    if field == "source":
        listed = isinstance(value, list) and all(isinstance(s, str) and s.strip() for s in value)
        return None if value is None or listed else "must be null or a list of texts"
    if field == "also":
        named = isinstance(value, list) and all(
            isinstance(s, str) and (NOTEBOOKS / f"{s}.ipynb").is_file() for s in value
        )
        return None if named else "must be a list of chapters, such as 08_normalization"
    if value is None and field in ("belief", "test", "exercise"):
        return None
    if not isinstance(value, str) or not value.strip():
        return "must be a text"
    return _badly_formed(field, value)


def _badly_formed(field: str, value: str) -> str | None:
    match field:
        case "id" if not ID.fullmatch(value):
            return "must be like E-07 or P-1"
        case "severity" if value not in SEVERITIES:
            return f"must be one of {', '.join(SEVERITIES)}"
        case "title" if value.strip()[-1] in ".:":
            return "must not end with a stop"
        case "test" if not re.fullmatch(r"test_[ep]\d+_[a-z0-9_]+", value):
            return "must be like test_e07_what_it_shows"
        case "exercise" if not re.fullmatch(r"ex-[a-z0-9-]+", value):
            return "must be like ex-layer-norm"
    return None


if __name__ == "__main__":
    for name in chapters():
        if write(name):
            sys.stdout.write(f"{name.name}: the list of misconceptions is renewed\n")
