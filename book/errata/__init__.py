"""The misconceptions: one YAML file, checked here and rendered for the site.

`errata.yml` is the single source. Each entry says what is commonly written, why it is tempting and
what is right; an entry that can be executed names the function in `tests/errata` that shows the
wrong form failing and the right one holding. The others cite their evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

import yaml

from book.chapters import CHAPTER, NOTEBOOKS, read, slug, title, without_code

ERRATA = Path(__file__).with_name("errata.yml")

# E-01 is an error in common notes, P-1 a slip in a published paper.
ID = re.compile(r"E-(?:0[1-9]|[1-9]\d+)|P-[1-9]\d*")
SEVERITIES = ("wrong", "imprecise", "dubious", "label", "gap")  # told apart on the page


@dataclass(frozen=True)
class Erratum:
    """One entry of `errata.yml`. Texts are MyST Markdown, with inline mathematics in dollars."""

    id: str
    severity: str  # one of SEVERITIES
    chapter: str  # the stem of a notebook, such as 08_normalization
    section: str  # the anchor of one of its headings
    title: str
    claim: str  # what is commonly written
    tempting: str
    right: str
    evidence: str  # its numbers are the ones that `test` asserts, or are cited
    test: str | None  # a function in tests/errata
    source: tuple[str, ...]  # "citation key, section or equation"
    exercise: str | None  # the label of an exercise in the chapter

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


def load(path: Path = ERRATA) -> list[Erratum]:
    """The entries of the file at `path`, in its order.

    Raises:
        ValueError: if an entry is not as `Erratum` says, an id is used twice, or the order is not
            that of the ids. The message names the entry and the field.
    """
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    # ValueError throughout: the file is at fault, not the caller.
    if not isinstance(raw, list):
        raise ValueError(  # noqa: TRY004
            f"{path.name}: expected a list of entries, got {type(raw).__name__}"
        )
    entries = [_entry(item, position) for position, item in enumerate(raw, 1)]
    for before, after in pairwise(entries):
        if before.order == after.order:
            raise ValueError(f"{after.id}: field 'id' is used twice")
        if before.order > after.order:
            raise ValueError(f"{after.id}: field 'id' must come before {before.id} in the file")
    return entries


def as_markdown(path: Path = ERRATA) -> str:
    """The entries as MyST Markdown: a heading per chapter, and under it a heading per entry."""
    parts = []
    for chapter, group in groupby(sorted(load(path), key=_by_chapter), lambda e: e.chapter):
        parts.append(f"## {title(chapter)}")
        parts += (paragraph for erratum in group for paragraph in _paragraphs(erratum))
    return "\n\n".join(parts) + "\n"


def _by_chapter(erratum: Erratum) -> tuple[str, tuple[str, int]]:
    return erratum.chapter, erratum.order


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


@cache
def headings(chapter: str) -> dict[str, str]:
    """The headings of a chapter, by their anchors."""
    path = NOTEBOOKS / f"{chapter}.ipynb"
    texts = [without_code(c.source) for c in read(path).cells if c.cell_type == "markdown"]
    found = re.findall(r"^#{2,3} +(.+?) *$", "\n".join(texts), re.M)
    return {slug(heading): heading.strip() for heading in found}


def _cited(source: str) -> str:
    key, comma, place = source.partition(",")
    return f"{{cite:t}}`{key}`{comma}{place}"


def _entry(item: object, position: int) -> Erratum:
    if not isinstance(item, dict):
        raise ValueError(  # noqa: TRY004
            f"entry {position}: expected a mapping, got {type(item).__name__}"
        )
    name = item.get("id", f"entry {position}")
    known = [f.name for f in fields(Erratum)]
    for field in known:
        if field not in item:
            raise ValueError(f"{name}: field {field!r} is missing")
    for field, value in item.items():
        if field not in known:
            raise ValueError(
                f"{name}: field {field!r} is unknown; the fields are {', '.join(known)}"
            )
        if problem := _problem(field, value):
            raise ValueError(f"{name}: field {field!r} {problem}, got {value!r}")
    if not (NOTEBOOKS / f"{item['chapter']}.ipynb").is_file():
        raise ValueError(f"{name}: field 'chapter' must be a chapter, got {item['chapter']!r}")
    known_sections = headings(item["chapter"])
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
    return Erratum(**{**item, "source": tuple(item["source"] or ())})


def _problem(field: str, value: object) -> str | None:
    """What is wrong with the value of one field, if anything is."""
    if field == "source":
        listed = isinstance(value, list) and all(isinstance(s, str) and s.strip() for s in value)
        return None if value is None or listed else "must be null or a list of texts"
    if value is None and field in ("test", "exercise"):
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
        case "chapter" if not CHAPTER.fullmatch(f"{value}.ipynb"):
            return "must be the stem of a chapter, such as 08_normalization"
        case "test" if not re.fullmatch(r"test_[ep]\d+_[a-z0-9_]+", value):
            return "must be like test_e07_what_it_shows"
        case "exercise" if not re.fullmatch(r"ex-[a-z0-9-]+", value):
            return "must be like ex-layer-norm"
    return None
