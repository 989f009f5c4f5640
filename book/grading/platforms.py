"""Gives results back to a learning platform: its own gradebook filled in, pages under its names.

The gradebook is the table that the platform exports; only one column of it is changed (in Moodle's
grading worksheet the comment too), so that it is taken back whatever else is in it. The forms:

- Canvas: `Student,ID,SIS User ID,SIS Login ID,Section,Parts (77)`, then a line `Points Possible`;
- Moodle: `Identifier,Full name,…,Grade,Maximum Grade,…,Feedback comments`;
- Blackboard: `Last Name,First Name,Username,…,Parts [Total Pts: 10 Score] |123`, often in UTF-16
  with tabs;
- Brightspace: `OrgDefinedId,…,Parts Points Grade <Numeric MaxPoints:10>,End-of-Line Indicator`.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from book.grading import feedback, late, names, roster, tables

_MAXIMUM = re.compile(r"(?:Total Pts: |MaxPoints:)([\d.,]+)")
# What a platform writes after the name of an assignment.
_TAIL = re.compile(r" \(\d+\)$| \[Total Pts.*$| Points Grade.*$| \(Real\)$", re.S)


class PlatformError(ValueError):
    """A gradebook or an archive that cannot be made; says what is wrong."""


@dataclass
class Filled:
    """A gradebook that was filled in, and what was not."""

    data: bytes
    count: int = 0
    # Students of whom nothing was entered, with the reason.
    left: list[str] = field(default_factory=list)


def fill(
    rows: Iterable[dict[str, Any]], export: bytes, *, column: str = "", scale: bool = False
) -> Filled:
    """The gradebook `export` with the points of `rows`, a record of `grade`.

    Points are entered for what was graded and counts. What was not handed in or could not be read
    is left as it is, and so is what waits for points by hand, and a line that two rows are of.

    Raises:
        PlatformError: if the column is not found, or has another maximum and `scale` is false, or
            none that `scale` could go by.
        tables.TableError: if the table is no gradebook.
    """
    rows = [row for row in rows if row.get("counts", True)]
    if not rows:
        raise PlatformError("there is no row in the record")
    table = tables.read(export, "the gradebook")
    people = roster.of(table)
    head, lines = table.head, [line for _, line in table.lines]
    place = _column(head, column, rows[0]["assignment"])
    whole = _maximum(head, place, lines)
    filled = Filled(b"")
    entered: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        fit = _whose(row, people)
        if (person := fit.person) is None:
            why = "fits several lines of" if fit.people else "not in"
            filled.left.append(f"{row['student']}: {why} the gradebook")
        elif row["status"] != "graded" and not any(t.get("by_hand") for t in row["tests"]):
            filled.left.append(f"{row['student']}: {row['status']}")
        else:
            entered.setdefault(person.line, []).append(row)
    comment = head.index("Feedback comments") if "Feedback comments" in head else None
    for number, some in entered.items():
        row, line = some[0], lines[number]
        if len(some) > 1:
            # Nobody but the teacher knows which of them is the student's.
            together = ", ".join(r["student"] for r in some)
            filled.left.append(f"{together}: of one line of the gradebook, line "
                               f"{table.lines[number][0]}; none is entered")  # fmt: skip
            continue
        if open_ := row.get("by_hand"):
            filled.left.append(f"{row['student']}: waits for points by hand: {', '.join(open_)}")
            continue
        line += [""] * (len(head) - len(line))
        line[place] = _points(row, whole, scale=scale, column=head[place])
        if comment is not None:
            line[comment] = _comment(row)
        filled.count += 1
    filled.data = tables.encoded(table.text(), export)
    return filled


def _points(row: dict[str, Any], whole: str, *, scale: bool, column: str) -> str:
    """The points of a row, as they are written in a column with the maximum `whole`."""
    points, own = float(row["score"]), float(row.get("whole", row["max"]))
    most = tables.number(whole)
    if most is None and (whole or scale):
        says = f"says {whole!r}" if whole else "does not say"
        raise PlatformError(f"the gradebook {says} where the maximum of {column!r} should stand")
    # Rows of one record may have different maxima: each was graded with the source of its time.
    if most is not None and most != own:
        if not scale:
            raise PlatformError(
                f"the column {column!r} has {most:g} points, the assignment {own:g}: change the "
                "one or the other, or say --scale"
            )
        points *= most / own if own else 1.0
    told = f"{round(points, 4):.10g}"
    return told.replace(".", ",") if "," in whole else told


def _whose(row: dict[str, Any], people: roster.Roster) -> roster.Fit:
    """Whose line is a student's; the id that `grade` found with a roster comes first."""
    sender = names.Sender(**row["sender"]) if row.get("sender") else None
    by_id = people.fit(row.get("id", row["student"]))
    by_name = people.fit(row["student"], sender)
    if not (by_id.person and by_name.person):
        return by_id if by_id.person else by_name
    # A school's id may be by chance a platform's number of another one.
    return roster.Fit(tuple(dict.fromkeys([by_id.person, by_name.person])))


def _column(head: list[str], column: str, assignment: str) -> int:
    plain = [_TAIL.sub("", cell) for cell in head]
    if column:
        found = [n for n, cell in enumerate(head) if column in (cell, plain[n])]
    elif "Identifier" in head and "Grade" in head:
        return head.index("Grade")  # Moodle's worksheet is of one assignment
    else:
        wanted = names.folded(assignment)
        found = [n for n, cell in enumerate(plain) if names.folded(cell) == wanted]
    if len(found) != 1:
        what = f"column {column!r}" if column else f"column of the assignment {assignment!r}"
        how = "no" if not found else f"more than one ({len(found)})"
        raise PlatformError(
            f"the gradebook has {how} {what}: name it with --column; there are {', '.join(head)}"
        )
    return found[0]


def _maximum(head: list[str], place: int, lines: list[list[str]]) -> str:
    """What the gradebook says of the column's maximum; nothing if it says none."""
    texts = [found[1]] if (found := _MAXIMUM.search(head[place])) else []
    if "Maximum Grade" in head:
        n = head.index("Maximum Grade")
        texts += [line[n] for line in lines if n < len(line)]
    texts += [line[place] for line in lines
              if line and line[0].strip() == "Points Possible" and place < len(line)]  # fmt: skip
    return next((text.strip() for text in texts if text.strip()), "")


def _comment(row: dict[str, Any]) -> str:
    told = [f"{t['id']}: {feedback.public(t['reason'])}" for t in row["tests"] if t["reason"]]
    late_ = [f"{late.told(row)}."] if row.get("days_late") and "deduction" in row else []
    return "\n".join([f"{row['score']:g} of {row['max']:g} points.", *late_, *told])


# ---- pages


def archive(rows: Iterable[dict[str, Any]], pages: Path, out: Path) -> tuple[int, list[str]]:
    """Write the pages into a zip file, under names by which the platform knows whose they are.

    Canvas knows them by its numbers of the student and of the file that was handed in, and Moodle
    by the number of the participant; both stand in the names of what was downloaded. Returns how
    many pages are in it, and of whom there is none.

    Raises:
        PlatformError: if nobody's file came from Canvas or Moodle, or a page is missing.
    """
    found: dict[str, bytes] = {}
    left: list[str] = []
    for row in rows:
        if not (row.get("page") and row.get("counts", True)):
            continue
        sender = names.Sender(**row["sender"]) if row.get("sender") else None
        name = _returned(sender, row["assignment"]) if sender else ""
        if not name:
            left.append(row["student"])
            continue
        try:
            found[name] = (pages / row["page"]).read_bytes()
        except OSError as error:
            raise PlatformError(f"{pages / row['page']}: {error.strerror}") from None
    if not found:
        raise PlatformError(
            "no file in the record came from Canvas or Moodle: grade what the platform gives to "
            "download, under the names that it has there"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in sorted(found.items()):
            packed.writestr(name, data)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(buffer.getvalue())
    return len(found), left


def _returned(sender: names.Sender, assignment: str) -> str:
    """The page's name for the platform; none if it takes no pages, or not for this file."""
    if sender.platform == "Moodle":
        return f"{sender.name}_{sender.key}_assignfeedback_file_{assignment}.html"
    if sender.platform == "Canvas" and sender.title:
        return f"{sender.given[: -len(sender.title)]}{assignment}.html"
    return ""
