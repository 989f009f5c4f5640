"""The letters that keep their meaning: the first tables of the page on notation.

`letters.yml` says what a letter means in most of the book. What it stands for elsewhere is not
typed there: it is looked up in the symbols of all chapters, which the formulas' cards show too, so
the page cannot claim more than the chapters keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from book.chapters import chapters, read, topic
from book.data import read_yaml
from book.formulas.symbols import FOLDER
from book.lint import displayed
from book.lint_symbols import meanings

LETTERS = Path(__file__).with_name("letters.yml")


@dataclass(frozen=True)
class Letter:
    """A row of a table. Texts are MyST Markdown."""

    symbol: str  # LaTeX, as the chapters' symbols are keyed
    meaning: str
    zh: str
    code: str = ""
    says: str = ""  # finds the names of this meaning; empty for what is no letter


@dataclass(frozen=True)
class Table:
    """Letters of one kind, and what is to be said of them after the table."""

    title: str
    rows: tuple[Letter, ...]
    after: str = ""


def load(path: Path = LETTERS) -> list[Table]:
    """The tables of the file at `path`, in its order.

    Raises:
        ValueError: if a row has a missing or an unknown field, or a letter stands in two rows.
            The message names it.
    """
    known = {f.name for f in fields(Letter)}
    tables = []
    for item in read_yaml(path):
        for row in item["rows"]:
            if not {"symbol", "meaning", "zh"} <= set(row) <= known:
                raise ValueError(f"{row.get('symbol', row)}: the fields must be {sorted(known)}")
        rows = tuple(Letter(**row) for row in item["rows"])
        tables.append(Table(item["title"], rows, item.get("after", "")))
    letters = [letter.symbol for table in tables for letter in table.rows]
    if twice := {letter for letter in letters if letters.count(letter) > 1}:
        raise ValueError(f"{path.name}: stands in two rows: {', '.join(sorted(twice))}")
    return tables


def printed(folder: Path = FOLDER) -> dict[str, list[tuple[str, str]]]:
    """What every symbol stands for: its LaTeX -> pairs of a chapter's number and a meaning."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in chapters():
        for one in meanings(topic(path), displayed(read(path)), folder):
            found.setdefault(one.key, []).append((path.stem[:2], one.name))
    return found


def elsewhere(letter: Letter, found: list[tuple[str, str]]) -> dict[str, list[str]]:
    """What the letter stands for where it is not this meaning -> the chapters, by number."""
    other: dict[str, list[str]] = {}
    for chapter, name in found:
        if letter.says and not re.search(letter.says, name):
            places = other.setdefault(name, [])
            if chapter not in places:
                places.append(chapter)
    return other


def as_markdown(path: Path = LETTERS) -> str:
    """The tables as MyST Markdown, a heading for each."""
    found = printed()
    return "\n".join(line for table in load(path) for line in _lines(table, found))


def _lines(table: Table, found: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    yield f"## {table.title}\n"
    yield "| symbol | meaning | in code |"
    yield "| --- | --- | --- |"
    for letter in table.rows:
        other = elsewhere(letter, found.get(letter.symbol, []))
        said = "; ".join(f"{name} ({', '.join(places)})" for name, places in other.items())
        # One column for words: on a phone three of them would be a word wide each.
        meaning = f"{letter.meaning} · {letter.zh}" + (f". *Elsewhere:* {said}" if said else "")
        yield f"| ${letter.symbol}$ | {meaning} | {letter.code} |"
    yield f"\n{table.after}"
