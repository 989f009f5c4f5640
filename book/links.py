"""Links that say one thing and lead to another: the text of a link against its address.

Sphinx finds an address that does not exist. What it cannot see is `[E-13](...#e-31)`, a
"chapter 05" that leads to chapter 06, or an equation that is said to stand in another chapter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<address>[^)\s]+)\)")
_ENTRY = re.compile(r"\b[EP]-\d+\b")
_ENTRY_ANCHOR = re.compile(r"[ep]-\d+")
_CHAPTER = re.compile(r"(?:.*/)?(?P<number>\d\d)_[a-z0-9_]+\.ipynb")
# "05", "5", "chapter 5", "05 · Attention": a number that can only be that of a chapter.
_NUMBERED = re.compile(
    r"(?:chapter\s+|part\s+)?0?(?P<number>\d{1,2})(?!\d)(?:\s*·.*)?", re.I | re.S
)
_SPOKEN = re.compile(r"\bchapters?\s+(\d\d?)(?!\d)", re.I)
_PLACED = re.compile(
    r"\{eq\}`(?P<label>[^`]+)`\s+(?:of|in|from)\s+\[?chapter\s+0?(?P<after>\d{1,2})(?!\d)"
    r"|chapter\s+0?(?P<before>\d{1,2})\]?(?:\([^)]*\))?,\s+(?:equation\s+)?\{eq\}`(?P<label2>[^`]+)`",
    re.I,
)
# Words that every title could hold.
_EMPTY = {
    "about",
    "chapter",
    "check",
    "claim",
    "from",
    "modern",
    "their",
    "this",
    "that",
    "what",
    "with",
}


@dataclass(frozen=True)
class Book:
    """What links may lead to."""

    titles: Mapping[str, str]  # stem of a chapter -> its title
    entries: Collection[str]  # ids of the misconceptions, "E-07"
    equations: Mapping[str, str] = field(default_factory=dict)  # label -> stem of its chapter


def problems(text: str, book: Book) -> Iterator[str]:
    """What the links of a piece of Markdown say wrongly, one line each."""
    for match in LINK.finditer(text):
        said = " ".join(match["text"].split())
        path, _, anchor = match["address"].partition("#")
        yield from _about_entries(said, path, anchor, match[0])
        if chapter := _CHAPTER.fullmatch(path):
            yield from _about_a_chapter(said, path.rpartition("/")[2], anchor, chapter, book)
    for name in sorted(set(_ENTRY.findall(text)) - set(book.entries)):
        yield f"there is no misconception {name}"
    known = {int(stem[:2]) for stem in book.titles}
    for number in _SPOKEN.findall(text):
        if int(number) not in known:
            yield f"there is no chapter {number}"
    for match in _PLACED.finditer(text):
        label, said = match["label"] or match["label2"], match["after"] or match["before"]
        stem = book.equations.get(label)
        if stem is not None and int(stem[:2]) != int(said):
            yield f"{label} is said to stand in chapter {said}, it stands in {stem[:2]}"


def _about_entries(said: str, path: str, anchor: str, link: str) -> Iterator[str]:
    name = _ENTRY.findall(said)
    leads_to_one = _ENTRY_ANCHOR.fullmatch(anchor) and path.rpartition("/")[2] in (
        "",
        "misconceptions.md",
    )
    if (name or leads_to_one) and [n.lower() for n in name] != [anchor]:
        yield f"{link} says {' and '.join(name) or 'no id'} and leads to {anchor or path}"


def _about_a_chapter(
    said: str, file: str, anchor: str, chapter: re.Match[str], book: Book
) -> Iterator[str]:
    stem = file.removesuffix(".ipynb")
    if stem not in book.titles:
        yield f"[{said}] leads to {file}, which is no chapter"
        return
    numbered = _NUMBERED.fullmatch(said)
    if numbered and int(numbered["number"]) != int(chapter["number"]):
        yield f"[{said}] leads to chapter {chapter['number']}"
        return
    words = _words(re.sub(r"^.*·", "", said))
    # Where it leads to a section, the section's heading is what the text is about.
    own = _words(f"{book.titles[stem]} {stem[3:]} {anchor}".replace("_", " ").replace("-", " "))
    if words and not words & own:
        others = sorted(s[:2] for s, title in book.titles.items() if words & _words(f"{title} {s}"))
        about = f"; that is the topic of {', '.join(others)}" if others else ""
        yield f"[{said}] leads to {file}, whose title shares no word with it{about}"


def _words(text: str) -> set[str]:
    """The beginnings of the words that say what a title is about."""
    found = re.findall(r"[a-z]{4,}|kv|mla", text.lower().replace("_", " "))
    return {word[:5] for word in found if word not in _EMPTY}
