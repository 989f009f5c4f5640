"""Late days: how late a submission came, what of it late days cover, and what the rest costs.

A time is known from a table of the platform's (`--times`) or from a name that the platform gave to
the file. The date of a file is none: it says when somebody copied it. Each student has so many late
days in the whole course; what earlier assignments used stands in their records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from book.grading import roster, tables
from book.grading.submissions import Submission

# What the column of the times is called, without case, spaces and signs.
COLUMNS = ("submitted", "submittedat", "submissiontime", "lastmodifiedsubmission", "handedin",
           "timestamp", "time", "提交时间")  # fmt: skip
FORMS = (
    "%A, %d %B %Y, %I:%M %p", "%A, %d %B %Y, %H:%M", "%d %B %Y, %I:%M %p", "%d %B %Y, %H:%M",
    "%b %d, %Y %I:%M %p", "%b %d, %Y, %I:%M %p", "%d.%m.%Y %H:%M", "%d.%m.%Y, %H:%M",
)  # fmt: skip
DAYS = ("%A, %d %B %Y", "%d %B %Y", "%b %d, %Y", "%d.%m.%Y")
DAY = timedelta(days=1)


class LateError(ValueError):
    """A deadline, a table of times or a record that cannot be used; says what is wrong."""


def moment(text: str, where: str = "") -> datetime:
    """The time that a person or a platform wrote.

    Raises:
        LateError: if it is none.
    """
    plain = " ".join(text.split())
    # `2026-03-01 23:59:00 -0800` of Gradescope.
    head, _, zone = plain.rpartition(" ")
    joined = head + zone if zone[:1] in ("+", "-") and zone[1:].isdigit() else plain
    try:
        return datetime.fromisoformat(joined)
    except ValueError:
        pass
    for form in FORMS:
        try:
            return datetime.strptime(plain, form)
        except ValueError:
            continue
    if day := _day(plain):
        return datetime.combine(day, time())
    raise LateError(f"{where}{text!r} is no time; write it as 2026-03-01 23:59")


def deadline(text: str, where: str = "") -> datetime:
    """As `moment`; of a day without a time it is the end of that day.

    Raises:
        LateError: if it is no time.
    """
    day = _day(" ".join(text.split()))
    return datetime.combine(day, time(23, 59, 59)) if day else moment(text, where)


def _day(text: str) -> date | None:
    """The day that stands there without a time."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass
    for form in DAYS:
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            continue
    return None


@dataclass
class Policy:
    """The deadline of an assignment, and what being late costs."""

    due: datetime
    # Late days of each student in the whole course, and the ones used before, by id.
    budget: int = 0
    used: dict[str, int] = field(default_factory=dict)
    # What a day that no late day covers costs, in percent of the points.
    cost: float = 0.0
    times: roster.Roster | None = None
    when: tuple[str, ...] = ()
    # Deadlines of people's own, by id.
    own: dict[str, datetime] = field(default_factory=dict)

    def check(self, some: Iterable[Submission]) -> None:
        """See to it that all times are known before the first submission is graded.

        Raises:
            LateError: if one of them cannot be read.
        """
        for one in some:
            self.time(one)

    def time(self, one: Submission) -> datetime | None:
        """When it was handed in; None if nobody says."""
        text, where = "", f"{one.student}: "
        if self.times and (person := self.times.whose(one)):
            text, where = self.when[person.line], f"{self.times.path}, line {person.number}: "
        if not text.strip(" -"):
            text = one.sender.when if one.sender else ""
        return moment(text, where) if text else None

    def days(self, one: Submission, who: str) -> int | None:
        """Days late, each that has begun, of the student with the id `who`; None if unknown."""
        when = self.time(one)
        if when is None:
            return None
        due = _aware(self.own.get(who, self.due), self.due)
        return max(0, math.ceil((_aware(when, due) - due) / DAY))

    def merge(self, row: dict[str, Any], one: Submission) -> None:
        """Put the lateness into a row whose points are known."""
        days = self.days(one, row["id"])
        if days is None:
            if row["late"]:
                row["remarks"].append("how late it came is not known: nothing was taken off")
            return
        row["late"] = days > 0
        if not days or row["status"] != "graded":
            row["days_late"] = days
            return
        free = min(days, max(0, self.budget - self.used.get(row["id"], 0)))
        share = min(1.0, (days - free) * self.cost / 100)
        lost = round(row["score"] * share, 4)
        row |= {"days_late": days, "late_days": free, "deduction": lost,
                "score": round(row["score"] - lost, 4)}  # fmt: skip
        row["remarks"].append(told(row))


def told(row: dict[str, Any]) -> str:
    """The sentence about it, for the student."""
    days, free, lost = row["days_late"], row["late_days"], row["deduction"]
    parts = [f"{days} day{'s' * (days != 1)} late"]
    if free:
        parts.append(f"{free} taken from the late days")
    if lost:
        parts.append(f"{lost:g} points taken off")
    return ", ".join(parts)


def _aware(when: datetime, like: datetime) -> datetime:
    """A time with a zone: without one of its own, that of `like`, or this machine's."""
    if when.tzinfo is not None:
        return when
    return when.replace(tzinfo=like.tzinfo) if like.tzinfo else when.astimezone()


def policy(
    due: str, *, budget: int, cost: float, times: Path | None, before: Sequence[Path],
    assignment: str, people: roster.Roster | None = None,
) -> Policy:  # fmt: skip
    """What `grade`'s options and the roster say about lateness.

    Raises:
        LateError: if one of them cannot be used.
        tables.TableError: if the table of times cannot be read, or names nobody.
    """
    if not 0 <= cost <= 100:
        raise LateError(f"--late-cost: {cost:g} is no share from 0 to 100 percent")
    if budget < 0:
        raise LateError(f"--late-days: {budget} are no days")
    found = Policy(deadline(due, "--due: "), budget, _used(before, assignment), cost)
    for person in people.people if people else ():
        if person.due:
            where = f"{people.path}, line {person.number}: " if people else ""
            found.own[person.id] = deadline(person.due, where)
    if times:
        table = tables.load(times)
        places = [n for n, cell in enumerate(table.head) if tables.plain(cell) in COLUMNS]
        if not places:
            raise LateError(
                f"{times}: no column says when something was handed in, such as `submitted`; "
                f"there are {', '.join(table.head)}"
            )
        found.times = roster.of(table)
        found.when = tuple(
            line[places[0]] if places[0] < len(line) else "" for _, line in table.lines
        )
    return found


def _used(before: Iterable[Path], assignment: str) -> dict[str, int]:
    """Late days that each student used, by the records of other assignments."""
    found: dict[str, int] = {}
    for path in before:
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            for row in rows:
                if row["assignment"] != assignment and row["counts"]:
                    found[row["id"]] = found.get(row["id"], 0) + int(row.get("late_days", 0))
        except OSError as error:
            raise LateError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LateError(f"{path}: not a record that `grade --json` wrote") from None
    return found
