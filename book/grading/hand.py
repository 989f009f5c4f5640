"""Points by hand: of answers that no test reads, and in the place of a test's, with a reason.

They stand in tables of the teacher's, with the columns `id`, `cell`, `points` and `reason`, and are
merged into the rows after these were graded. So they hold for every run to which the table is
given, whatever is graded anew. `sheet` makes the table to fill in.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from book.grading import notebooks, tables

COLUMNS = ("id", "student", "cell", "max", "points", "reason", "rubric", "answer")
NEEDED = ("id", "cell", "points")


class HandError(ValueError):
    """A table of points that cannot be used; says which line and what is wrong."""


@dataclass(frozen=True)
class Mark:
    """Points that a person gave."""

    points: float
    reason: str


@dataclass
class Marks:
    """The points by hand, by student and cell."""

    given: dict[tuple[str, str], Mark] = field(default_factory=dict)

    def unknown(self, ids: Iterable[str]) -> list[str]:
        """The ids of nobody's row."""
        return sorted({who for who, _ in self.given} - set(ids))


def read(paths: Sequence[Path], work: notebooks.Assignment) -> Marks:
    """The points in these tables. A line without points is one that is still to be done.

    Raises:
        HandError: if a column is missing, a cell is not the assignment's, points are not within
            its points, a test's are changed without a reason, or two lines disagree.
        tables.TableError: if a file cannot be read, or is no table.
    """
    most = {c.grade_id: c.points for c in work.cells if c.kind in ("test", "manual")}
    tests = {c.grade_id for c in work.cells if c.kind == "test"}
    marks = Marks()
    for path in paths:
        for where, line in _lines(tables.load(path)):
            if not line["points"]:
                continue
            cell, who = line["cell"], line["id"].removeprefix("'")
            if not who:
                raise HandError(f"{where}: points, and no id that says whose")
            if cell not in most:
                raise HandError(f"{where}: there is no cell {cell!r}; there are {', '.join(most)}")
            points = tables.number(line["points"])
            if points is None:
                raise HandError(f"{where}: {line['points']!r} are no points")
            if not 0 <= points <= most[cell]:
                raise HandError(f"{where}: {points:g} points; {cell!r} has {most[cell]:g}")
            if cell in tests and not line["reason"]:
                raise HandError(f"{where}: points in the place of a test's need a reason")
            mark = Mark(points, line["reason"])
            if marks.given.setdefault((who, cell), mark) != mark:
                raise HandError(f"{where}: another line gives {who!r} other points for {cell!r}")
    return marks


def _lines(table: tables.Table) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line of a table of points, with where it stands."""
    # A spreadsheet or a person may write `ID` or `Points `.
    called = [tables.plain(cell) for cell in table.head]
    if lack := [name for name in NEEDED if name not in called]:
        raise HandError(f"{table.path}: the first line has no column {', '.join(lack)}")
    if twice := [name for name in (*NEEDED, "reason") if called.count(name) > 1]:
        raise HandError(f"{table.path}: more than one column {', '.join(twice)}")
    for number, cells in table.lines:
        where = f"{table.path}, line {number}"
        if any(cell.strip() for cell in cells[len(called) :]):
            raise HandError(f"{where}: more cells than columns; one with {table.separator!r} in it "
                            "stands in quotation marks")  # fmt: skip
        line = dict(zip(called, (cell.strip() for cell in cells), strict=False))
        yield where, {name: line.get(name, "") for name in (*NEEDED, "reason")}


def whole(work: notebooks.Assignment) -> float:
    """The points of an assignment, those that a person gives included."""
    return sum(c.points for c in work.cells if c.kind in ("test", "manual"))


def merge(row: dict[str, Any], marks: Marks, work: notebooks.Assignment) -> None:
    """Put the points by hand into a row, whose `id` is known."""
    if not any(who == row["id"] for who, _ in marks.given):
        return
    most = {c.grade_id: c.points for c in work.cells if c.kind == "manual"}
    tests = []
    for test in row["tests"]:
        mark = marks.given.get((row["id"], test["id"]))
        if mark is not None:
            told = f"by hand: {mark.reason} (the test gave {test['score']:g})"
            test = {**test, "score": mark.points, "passed": mark.points == test["max"],
                    "by_hand": True, "reason": told}  # fmt: skip
        tests.append(test)
    for cell in row["by_hand"]:
        if (mark := marks.given.get((row["id"], cell))) is not None:
            tests.append(
                {"id": cell, "score": mark.points, "max": most[cell], "by_hand": True,
                 "passed": mark.points == most[cell], "reason": mark.reason, "detail": mark.reason,
                 "seconds": 0.0}
            )  # fmt: skip
    row["by_hand"] = [c for c in row["by_hand"] if (row["id"], c) not in marks.given]
    row["tests"] = tests
    row["score"] = round(sum(t["score"] for t in tests), 4)
    row["max"] = sum(t["max"] for t in tests)


def sheet(rows: Iterable[dict[str, Any]], work: notebooks.Assignment) -> str:
    """The table to fill in: a line for each answer that nobody has given points for."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    cells = {c.grade_id: c for c in work.cells if c.kind == "manual"}
    for row in rows:
        if not row.get("counts", True) or row["status"] != "graded":
            continue
        for name in row["by_hand"]:
            cell = cells[name]
            begin, end = notebooks.BEGIN_SCHEME, notebooks.END_SCHEME
            rubric = "\n".join(line for _, line in notebooks.inside(cell.source, begin, end))
            answer = row.get("answers", {}).get(name, "")
            # A spreadsheet takes none of it for a formula.
            told = {"id": row["id"], "student": row["student"], "cell": name,
                    "max": f"{cell.points:g}", "rubric": rubric, "answer": answer}  # fmt: skip
            writer.writerow({k: f"'{v}" if v[:1] in tuple("=+-@\t") and v else v
                             for k, v in told.items()})  # fmt: skip
    return "\ufeff" + out.getvalue()
