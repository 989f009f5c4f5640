"""The run before: what is different now, and the rows that stay when only some are graded anew."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from book.grading import hand, names, notebooks, tables
from book.grading.submissions import Submission

Row = dict[str, Any]
# What every row of a record has, of whichever version.
_WHOLE = {
    "student", "id", "file", "assignment", "status", "score", "max", "reason", "tests", "cells",
    "remarks", "cut", "by_hand", "seconds", "counts",
}  # fmt: skip


class Before:
    """The record that an earlier run wrote; without rows if there is none."""

    def __init__(self, path: Path | None, assignment: str) -> None:
        try:
            rows = json.loads(path.read_text(encoding="utf-8")) if path else []
            self.rows: list[Row] = [
                r for r in rows if r.keys() >= _WHOLE and r["assignment"] == assignment
            ]
        except (OSError, ValueError, AttributeError, TypeError):
            self.rows = []

    def of(self, who: str, files: Collection[str]) -> list[Row]:
        """The rows of the student with the id `who`, or of these files: a roster gives new ids."""
        if mine := [r for r in self.rows if r["id"] == who]:
            return mine
        return [
            r for where in {place(file) for file in files} for r in self._by_place.get(where, ())
        ]

    @functools.cached_property
    def _by_place(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row["file"]:
                found.setdefault(place(row["file"]), []).append(row)
        return found

    def changes(self, rows: Iterable[Row]) -> list[str]:
        """What is different in the rows that count, old against new."""
        old = {r["id"]: r for r in self.rows if r["counts"]}
        gone = dict(old)
        found = []
        for row in rows:
            if not row["counts"]:
                continue
            then = old.get(row["id"])
            if then is None and row["file"]:
                then = next((r for r in self.of(row["id"], [row["file"]]) if r["id"] in gone), None)
            if then is None:
                continue
            gone.pop(then["id"], None)
            tests = _differences(then, row)
            if tests or then["score"] != row["score"]:
                found.append(_told(then, f"{row['score']:g}", tests))
        return found + [_told(then, "no row", []) for then in gone.values()]

    def without(self, marks: hand.Marks, ids: Collection[str]) -> list[str]:
        """Points by hand that these students have in the record, and are not given again."""
        return [
            f"{row['student']}: {test['id']}"
            for row in self.rows
            if row["id"] in ids and row["counts"]
            for test in row["tests"]
            if test.get("by_hand") and (row["id"], test["id"]) not in marks.given
        ]


def place(file: str) -> str:
    """A file of a row, however its path was typed."""
    return str(Path(file).resolve())


def _differences(then: Row, now: Row) -> list[str]:
    """The tests whose points are others, and what being late costs."""
    old, new = ({t["id"]: t["score"] for t in row["tests"]} for row in (then, now))
    found = [f"{test}: {old.get(test, 0):g} -> {points:g}" for test, points in new.items()
             if old.get(test, 0) != points]  # fmt: skip
    found += [f"{test}: {points:g} -> none" for test, points in old.items() if test not in new]
    if then.get("deduction", 0) != now.get("deduction", 0):
        found.append(f"late: -{then.get('deduction', 0):g} -> -{now.get('deduction', 0):g}")
    return found


def _told(then: Row, now: str, tests: list[str]) -> str:
    why = f" ({', '.join(tests)})" if tests else ""
    return f"changed: {then['student']}: {then['score']:g} -> {now}{why}"


# ---- only some anew


@dataclass
class Kept:
    """What `grade --only` leaves as it is."""

    # Who is graded anew.
    anew: list[Submission]
    # Rows of all others, as the record has them, and that of a submission if it has one.
    rows: list[Row] = field(default_factory=list)
    of: dict[Submission, Row] = field(default_factory=dict)
    # Rows of others whom the record does not have, as the engine made them.
    known: dict[Submission, Row] = field(default_factory=dict)
    # The rows that those have who are graded anew, by id: they hold until these are finished.
    until: dict[str, list[Row]] = field(default_factory=dict)
    # Others whose file is not the one that was graded.
    changed: list[str] = field(default_factory=list)

    def unheard(self, marks: hand.Marks) -> list[str]:
        """Points by hand that are given now, and are not in the rows that stay."""
        return [
            f"{row['student']}: {cell}"
            for row in self.rows
            for (who, cell), mark in marks.given.items()
            if who == row["id"] and row["counts"]
            and (cell, mark.points, True) not in
                [(t["id"], t["score"], t.get("by_hand")) for t in row["tests"]]
        ]  # fmt: skip


def keep(
    everything: Sequence[Submission], anew: list[Submission], ids: dict[Submission, str],
    before: Before, last: Callable[[Submission], Row | None], *, journal: bool,
) -> Kept:  # fmt: skip
    """Find the rows that stay; `last` is what the journal has of a submission, as it is now.

    Raises:
        notebooks.NotebookError: if somebody who is not graded anew has no row.
    """
    found = Kept(anew)
    replaced: list[Row] = []
    for who in dict.fromkeys(ids[s] for s in anew):
        found.until[who] = before.of(who, [s.label for s in anew if ids[s] == who])
        replaced += found.until[who]
    found.rows = [r for r in before.rows if not any(r is one for one in replaced)]
    lost: list[str] = []
    for one in everything:
        if one in anew:
            continue
        old, known = before.of(ids[one], [one.label]), last(one)
        if old:
            files = [r for r in old if r["file"]]
            mine = [r for r in files if place(r["file"]) == place(one.label)]
            mine = mine or (files if len(files) == 1 else [])
            if mine:
                found.of[one] = mine[0]
            if known is None and (journal or not mine):
                found.changed.append(one.student)
        elif known is not None:
            found.known[one] = known
        else:
            lost.append(one.student)
    if lost:
        raise notebooks.NotebookError(
            f"--only: there is no row to keep of {_some(lost)}: give the record (--json) or the "
            "journal of the run before, or name them too"
        )
    return found


def check_table(path: Path | None, ids: Collection[str], assignment: str) -> None:
    """See to it that a table which is written anew loses nobody.

    Raises:
        notebooks.NotebookError: if the table that is there has rows of others than `ids`.
    """
    try:
        table = tables.load(path) if path and path.exists() else None
    except tables.TableError:
        table = None  # no table of ours
    if table is None or not {"id", "assignment"} <= set(table.head):
        return
    lines = [dict(zip(table.head, line, strict=False)) for _, line in table.lines]
    # In the table an id has a sign more where a spreadsheet would run it.
    known = {names.folded(who) for who in ids}
    there = [x["id"] for x in lines if x.get("assignment") == assignment]
    if lost := [who for who in there if names.folded(who) not in known]:
        raise notebooks.NotebookError(
            f"--only: {path} has rows of {_some(lost)}, which would be lost: give the record "
            "(--json) of the run before, or all submissions"
        )


def _some(students: Iterable[str]) -> str:
    told = [names.escaped(s) for s in dict.fromkeys(students)]
    more = f" and {len(told) - 10} more" if len(told) > 10 else ""
    return ", ".join(told[:10]) + more
