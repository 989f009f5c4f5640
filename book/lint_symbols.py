"""One letter, one meaning: what must hold between the formulas and the tables of their symbols.

Every symbol that a displayed formula prints has a row in `book/symbols/<topic>.yml`, or in
`common.yml` if it means the same in all chapters; every row is printed; a letter with two meanings
in a chapter says with `only` in which formulas it has the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from book.chapters import chapters, read, topic
from book.formulas.names import parsed
from book.formulas.reading import FormulaError
from book.formulas.symbols import FOLDER, ROLES, Meaning, occurrences, rows

COLUMNS = {"name", "shape", "role", "only", "color"}
COLORS = ("query", "key", "value", "weight", "data")


def problems(topic: str, formulas: Iterable[tuple[str, str]], folder: Path = FOLDER) -> list[str]:
    """What is wrong between the labelled formulas of a chapter and the table of its symbols."""
    formulas = [(label, latex) for label, latex in formulas if label]
    name = f"book/symbols/{topic}.yml"
    if not formulas:
        return []
    if not (folder / f"{topic}.yml").exists():
        return [f"{name}: there is no table of the chapter's symbols"]
    return [
        *(f"{name}: {p}" for p in _table(topic, folder)),
        *(f"{name}: {p}" for p in _printed(topic, formulas, folder)),
    ]


def house(folder: Path = FOLDER) -> list[str]:
    """What is wrong with the symbols that all chapters share, and with the files as such."""
    topics = {topic(path): path for path in chapters()}
    found = [f"book/symbols/common.yml: {p}" for p in _table("common", folder)]
    for path in sorted(folder.glob("*.yml")):
        if path.stem not in {"common", *topics}:
            found.append(f"book/symbols/{path.name}: there is no such chapter")
    shared = set(rows("common", folder))
    for one, path in topics.items():
        shared -= set(meanings(one, _formulas(path), folder))
    return found + [
        f"book/symbols/common.yml: {one.key} ({one.name}): no formula prints it"
        for one in sorted(shared, key=lambda row: row.key)
    ]


def _formulas(path: Path) -> list[tuple[str, str]]:
    from book.lint import displayed  # which asks this module

    return displayed(read(path))


def _table(name: str, folder: Path) -> Iterator[str]:
    text = (folder / f"{name}.yml").read_text(encoding="utf-8")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data: dict[str, Any] = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        yield f"this is no YAML: {' '.join(str(error).split())}"
        return
    spelled: dict[tuple[Any, ...], str] = {}
    for key_node, _ in node.value if node else []:
        key = str(key_node.value)
        try:
            name_of = parsed(key)
        except FormulaError as error:
            yield f"{key} is not the name of a symbol: {error}"
            continue
        if name_of in spelled:
            yield f"{key} has two entries; a second meaning is one of a list, with `only`"
        spelled[name_of] = key
    for key, entries in data.items():
        yield from _entries(str(key), entries if isinstance(entries, list) else [entries])


def _entries(key: str, entries: list[dict[str, Any]]) -> Iterator[str]:
    everywhere = 0
    claimed: Counter[str] = Counter()
    for row in entries:
        if not str(row.get("name") or "").strip():
            yield f"{key} has no name"
        if unknown := sorted(set(row) - COLUMNS):
            yield f"{key} has an unknown column: {', '.join(unknown)}"
        if row.get("role") not in ROLES:
            yield f"{key} has the role {row.get('role')!r}, not one of {', '.join(ROLES)}"
        if row.get("color", COLORS[0]) not in COLORS:
            yield f"{key} has the color {row['color']!r}, not one of {', '.join(COLORS)}"
        claimed.update(row.get("only", ()))
        everywhere += not row.get("only")
    if everywhere > 1:
        yield f"{key} has {everywhere} meanings in one chapter; say with `only` where it has which"
    for label in sorted(label for label, count in claimed.items() if count > 1):
        yield f"{key} has two meanings in {label}"


def _printed(topic: str, formulas: list[tuple[str, str]], folder: Path) -> Iterator[str]:
    labels = {label for label, _ in formulas}
    try:
        own = rows(topic, folder)
        used = meanings(topic, formulas, folder)
    except (yaml.YAMLError, KeyError, AttributeError, FormulaError):
        return  # the table itself is wrong, and says so
    for label, latex in formulas:
        try:
            found = occurrences(latex, topic, label, folder)
        except FormulaError:  # then its witness says why it is not read
            continue
        for key in dict.fromkeys(one.key for one in found if one.meaning is None):
            yield f"{label} prints {key}, which has no row"
    for one in own:
        told = f"{one.key} ({one.name})"
        for label in one.only:
            if label not in labels:
                yield f"{told}: this chapter has no formula {label}"
            elif label not in used.get(one, ()):
                yield f"{told}: {label} does not print it"
        if not one.only and one not in used:
            yield f"{told}: no formula prints it"


def meanings(topic: str, formulas: list[tuple[str, str]], folder: Path) -> dict[Meaning, list[str]]:
    """The meanings that these formulas print, each with their labels in order."""
    used: dict[Meaning, list[str]] = {}
    for label, latex in formulas:
        try:
            found = occurrences(latex, topic, label, folder)
        except FormulaError:
            continue
        for one in dict.fromkeys(one.meaning for one in found):
            if one is not None:
                used.setdefault(one, []).append(label)
    return used
