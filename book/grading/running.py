"""One run of `grade`: what is to be graded, the rows as they come, and the files that hold them."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from book.grading import (
    before,
    feedback,
    hand,
    journal,
    late,
    memory,
    names,
    notebooks,
    prints,
    roster,
    stats,
    submissions,
)
from book.grading.belonging import Belonging
from book.grading.engine import Engine
from book.grading.submissions import Submission

# Of the time that a run takes, what writing the record of what is finished so far may cost.
RECORD_SHARE = 0.02


class Run:
    """The submissions of one assignment, and what is known of each."""

    def __init__(
        self, work: notebooks.Assignment, everything: list[Submission],
        people: roster.Roster | None, options: argparse.Namespace,
    ) -> None:  # fmt: skip
        self.work, self.everything, self.people, self.options = work, everything, people, options
        self.rows: dict[Submission, dict[str, Any]] = {}
        self.began = time.monotonic()
        self.belonging = Belonging(everything, people)
        self.whose, self.names = self.belonging.whose, self.belonging.names
        self.marks = hand.read(options.hand, work)
        self.lateness = _lateness(options, work, people)
        if self.lateness:
            self.lateness.check(everything)
        # What the last run said, to say what is different now.
        self.before = before.Before(options.json, work.name)
        # Whose rows this run makes, and with --only those that stay.
        self.mine = everything
        self.kept: before.Kept | None = None
        self.questions = stats.questions(work)
        self.prints: dict[Submission, dict[str, list[int]]] = {}
        self.pages = self._pages()
        self._written = 0.0

    def _pages(self) -> dict[Submission, str]:
        """The name of each page, known before the first is written."""
        if not self.options.feedback:
            return {}
        rows = [{"student": self.belonging.page(s), "file": s.label, "assignment": self.work.name}
                for s in self.everything]  # fmt: skip
        feedback.name_pages(rows, self.options.feedback)
        return {s: row["page"] for s, row in zip(self.everything, rows, strict=True)}

    def add(self, one: Submission, row: dict[str, Any]) -> dict[str, Any]:
        """Take a finished row; it is given back with whose it is."""
        self.rows[one] = self._full(one, row)
        self.prints[one] = self.rows[one].pop("prints", {})
        return self.rows[one]

    def _full(self, one: Submission, row: dict[str, Any]) -> dict[str, Any]:
        """The engine's row with whose it is, the points by hand and the lateness."""
        person = self.whose[one]
        remarks = [*one.remarks, *self.belonging.remarks(one)]
        full = {
            **row,
            "student": self.names[one],
            "id": self.id(one),
            "email": person.email if person else "",
            "section": person.section if person else "",
            "file": one.label,
            "late": bool(one.sender and one.sender.late),
            "counts": True,
            "page": self.pages.get(one, ""),
            "sender": one.sender.__dict__ if one.sender else None,
            "remarks": [*remarks, *row["remarks"]],
        }
        hand.merge(full, self.marks, self.work)
        if self.lateness:
            self.lateness.merge(full, one)
        return self._counted(full)

    def _counted(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with what is needed to count it: of which questions its tests are, and of what.

        `max` is the maximum of what has points; what waits for points by hand is in `whole` alone.
        """
        tests = [{**t, "question": self.questions.get(t["id"], t["id"])} for t in row["tests"]]
        return {**row, "tests": tests, "whole": hand.whole(self.work)}

    def id(self, one: Submission) -> str:
        """What identifies the student: the roster's, or the name as it was handed in."""
        person = self.whose[one]
        return person.id if person else one.student

    def finished(self) -> list[dict[str, Any]]:
        """All rows so far, of which one counts for each student, and those of the missing."""
        by_student: dict[str, list[Submission]] = {}
        for one in self.rows:
            by_student.setdefault(self.rows[one]["id"], []).append(one)
        for several in by_student.values():
            best = max(several, key=self._counts)
            for one in several:
                self.rows[one]["counts"] = one is best
        rows = list(self.rows.values())
        if self.kept:
            rows = self._with_kept(self.kept)
        if self.people and (self.kept or len(self.rows) == len(self.mine)):
            seen = [p for p in self.whose.values() if p]
            there = {row["id"] for row in rows}
            rows += [self._missing(p) for p in self.people.missing(seen) if p.id not in there]
        return rows

    def _with_kept(self, kept: before.Kept) -> list[dict[str, Any]]:
        """The rows of this run and those that stay; of whom not all is graded yet, the old ones."""
        open_ = {self.id(s) for s in kept.anew if s not in self.rows}
        waiting = {who for who in open_ if kept.until[who]}
        return [
            *(row for row in self.rows.values() if row["id"] not in waiting),
            *(row for who in sorted(waiting) for row in kept.until[who]),
            *kept.rows,
        ]

    def _counts(self, one: Submission) -> tuple[Any, ...]:
        row = self.rows[one]
        readable = row["status"] != "unreadable"
        if self.options.which == "best":
            return readable, not one.apart, row["score"], one.time, one.label
        named = names.asked_for(one.file, self.work.name) and self.options.which == "name"
        return readable, not one.apart, named, one.time, one.label

    def _missing(self, person: roster.Person) -> dict[str, Any]:
        why = "nothing was handed in"
        row = {
            "student": self.belonging.called(person), "id": person.id, "email": person.email,
            "section": person.section, "file": "", "assignment": self.work.name,
            "status": "missing", "score": 0.0, "max": self.work.maximum, "reason": why,
            "cells": [], "cut": 0, "seconds": 0.0, "counts": True,
            "remarks": self.belonging.perhaps(person),
            "by_hand": [c.grade_id for c in self.work.cells if c.kind == "manual"],
            "late": False, "page": "", "sender": None,
            "tests": [{"id": c.grade_id, "score": 0.0, "max": c.points, "passed": False,
                       "reason": why, "detail": why, "seconds": 0.0}
                      for c in self.work.cells if c.kind == "test"],
        }  # fmt: skip
        # Somebody may have handed in on paper.
        hand.merge(row, self.marks, self.work)
        return self._counted(row)

    def keep(
        self, last: Callable[[Submission], dict[str, Any] | None], *, journal: bool
    ) -> None:  # fmt: skip
        """Take the rows of all whom --only does not name from the run before.

        `last` is what the journal has of a submission.

        Raises:
            notebooks.NotebookError: if somebody's row would be lost.
        """
        only = set(self.options.only)
        anew = [s for s in self.everything if only & {s.student, self.names[s], self.id(s)}]
        ids = {s: self.id(s) for s in self.everything}
        kept = before.keep(self.everything, anew, ids, self.before, last, journal=journal)
        for one in anew:
            if not kept.until[ids[one]] and (row := last(one)):
                kept.until[ids[one]].append(self._full(one, {**row, "prints": {}}))
        people = [p.id for p in self.people.people] if self.people else []
        there = [*people, *ids.values(), *(row["id"] for row in kept.rows)]
        before.check_table(self.options.csv, there, self.work.name)
        self._keep_pages(kept)
        # Who is alike is seen among all.
        for one in kept.of:
            if row := last(one):
                self.prints[one] = row.get("prints", {})
        self.kept, self.mine = kept, [*anew, *kept.known]

    def _keep_pages(self, kept: before.Kept) -> None:
        """Give nobody the page of somebody who is not in this run."""
        if not self.options.feedback:
            return
        for one, row in kept.of.items():
            row["page"] = row.get("page") or self.pages[one]
        taken = {row.get("page", "").casefold() for row in kept.rows}
        for one in kept.anew:
            mine = [r.get("page") for r in kept.until[self.id(one)] if r["file"] == one.label]
            if mine and mine[0]:
                self.pages[one] = mine[0]
            elif self.pages[one].casefold() in taken:
                called = f"{self.names[one]} ({one.label})"
                self.pages[one] = f"{names.page_names([called])[called]}.html"

    # -- files

    def write(self, row: dict[str, Any]) -> None:
        """Write what is finished, after each row: a run that is killed leaves its table."""
        o, rows = self.options, self.finished()
        if o.feedback:
            feedback.write_page(row, o.feedback)
        if o.csv:
            feedback.write(o.csv, feedback.csv_of(rows))
        # The record grows to megabytes. The journal has all of it at any time.
        began = time.monotonic()
        if o.json and self._written <= RECORD_SHARE * (began - self.began):
            feedback.write_record(rows, o.json)
            self._written += time.monotonic() - began

    def compare(self) -> None:
        """Say in the table and the record, not on a page, whose answers are alike."""
        given = {c.grade_id: prints.prints(c.source) for c in self.work.cells
                 if c.kind == "solution"}  # fmt: skip
        rows = self.rows | self.kept.of if self.kept else self.rows
        by_id = {rows[s]["id"]: some for s, some in self.prints.items() if rows[s]["counts"]}
        found = prints.alike(by_id, given)
        called = {row["id"]: row["student"] for row in rows.values()}
        for one, row in rows.items():
            if one not in self.prints:
                continue  # a row that stays, and of which no more is known
            others = found.get(row["id"], {}) if row["counts"] else {}
            row["alike"] = [f"{called[who]}: {', '.join(cells)}"
                            for who, cells in sorted(others.items())]  # fmt: skip

    def write_all(self) -> None:
        """Write everything; only a whole run removes the pages of students who are gone."""
        o, rows = self.options, self.finished()
        self.compare()
        if len(self.rows) == len(self.mine):
            feedback.write_all(rows, table=o.csv, record=o.json, pages=o.feedback)
            return
        if o.feedback:
            for row in rows:
                feedback.write_page(row, o.feedback)
        feedback.write_all(rows, table=o.csv, record=o.json, pages=None)

    # -- words

    def warn(self) -> None:
        """Say what a teacher should know before the first row."""
        told = list(self.work.warnings)
        told += self.belonging.warnings()
        people = [p.id for p in self.people.people] if self.people else []
        mine = [self.id(s) for s in self.everything]
        if self.options.only:
            mine += [row["id"] for row in self.before.rows]
        if nobody := self.marks.unknown([*people, *mine]):
            told.append(f"points by hand for nobody's id: {', '.join(map(names.escaped, nobody))}")
        for text in told:
            printable(f"warning: {text}", sys.stderr)

    def warn_of_the_record(self) -> None:
        """Say what the record of the run before has, and this one will not have."""
        told = {}
        ids = {self.id(s) for s in self.mine}
        if self.kept:
            told["the file may be another by now, but --only does not name"] = self.kept.changed
            told["points by hand are not entered, since --only does not name the student"] = (
                self.kept.unheard(self.marks)
            )
        else:
            ids |= {row["id"] for row in self.before.rows}
        told["points by hand that the record has are not given again (--hand)"] = (
            self.before.without(self.marks, ids)
        )
        for what, some in told.items():
            if some:
                more = f" and {len(some) - 10} more" if len(some) > 10 else ""
                listed = ", ".join(names.escaped(s) for s in some[:10])
                printable(f"warning: {what}: {listed}{more}", sys.stderr)

    def progress(self, row: dict[str, Any]) -> None:
        """Say that a row is finished."""
        why = f"  {row['reason'].splitlines()[0][:90]}" if row["reason"] else ""
        printable(
            f"[{len(self.rows)}/{len(self.mine)}] {row['student']}: "
            f"{row['score']:g}/{row['max']:g} ({row['seconds']:.1f} s){why}"
        )

    def summary(self) -> None:
        """Say how the run ended."""
        rows = self.finished()
        odd = {s: [r for r in rows if r["status"] == s] for s in ("unreadable", "error", "missing")}
        seconds = time.monotonic() - self.began
        told = f"{len(self.rows)} of {len(self.mine)} graded in {seconds:.1f} s."
        if odd["unreadable"]:
            told += f" {len(odd['unreadable'])} could not be read."
        if odd["error"]:
            told += f" {len(odd['error'])} not graded by a fault of the grader; run it again."
        printable(told)
        if odd["missing"]:
            some = ", ".join(r["student"] for r in odd["missing"][:10])
            more = f" and {len(odd['missing']) - 10} more" if len(odd["missing"]) > 10 else ""
            printable(f"{len(odd['missing'])} handed in nothing: {some}{more}.")
        ids = [r["id"] for r in rows]
        if twice := sorted({r["student"] for r in rows if ids.count(r["id"]) > 1}):
            printable(f"Several files each from: {', '.join(twice)}. Every file has its own row; "
                      "`counts` says which one counts.")  # fmt: skip
        if like := [r["student"] for r in rows if r.get("alike")]:
            printable(f"Answers much alike, a hint and no verdict: {', '.join(like)}; see the "
                      "table's column `alike`.")  # fmt: skip
        for line in self.before.changes(rows):
            printable(line)
        remarked = sum(bool(r["remarks"]) for r in rows)
        if remarked:
            printable(f"{remarked} rows have remarks: see the table's column of that name.")
        for path in (self.options.csv, self.options.json, self.options.feedback):
            if path:
                print(f"wrote {path}")


def printable(text: str, file: TextIO | None = None) -> None:
    """Print a line; what a student wrote must not steer the terminal."""
    coding = (file or sys.stdout).encoding or "utf-8"
    text = text.encode(coding, "replace").decode(coding, "replace")
    print("".join(c if c.isprintable() else "?" for c in text), flush=True, file=file)


def run(options: argparse.Namespace, mode: str, limits: dict[str, Any]) -> int:
    """Grade what `options` name; the command's exit code."""
    source = notebooks.only(options.source)
    work = notebooks.assignment(source)
    people = roster.read(options.roster) if options.roster else None
    everything = submissions.find(options.submissions, work.name, options.which, people)
    o = options
    mine = (o.roster, o.times, o.csv, o.json, o.hand_sheet, *o.hand, *o.late_before)
    own = {p.resolve() for p in mine if p}
    everything = [s for s in everything if s.path.parent.resolve() / s.path.name not in own]
    if not everything and people is None:
        raise notebooks.NotebookError("there is nothing in what is to be graded")
    if options.only:
        _check_only(options.only, everything, people)
    one = Run(work, everything, people, options)
    first = options.json or options.csv or (options.feedback and options.feedback / "feedback")
    place = options.journal or (first and first.parent / f".{first.name}.journal")
    # Ending by a signal is an interruption like Ctrl+C.
    signal.signal(signal.SIGTERM, _interrupted)
    one.warn()
    print(f"{work.name}: {len(everything)} submissions, {work.maximum:g} points")
    if place is None:
        return _grade(one, source, None, mode, limits)

    def waiting() -> None:
        print(f"Another grader works with {place}; waiting for it to finish.", flush=True)

    with journal.Journal(Path(place), waiting) as kept:
        return _grade(one, source, kept, mode, limits)


def _lateness(
    options: argparse.Namespace, work: notebooks.Assignment, people: roster.Roster | None
) -> late.Policy | None:
    if not options.due:
        if options.times or options.late_days or options.late_cost or options.late_before:
            raise late.LateError("late days need a deadline: --due '2026-03-01 23:59'")
        return None
    return late.policy(
        options.due, budget=options.late_days, cost=options.late_cost, times=options.times,
        before=options.late_before, assignment=work.name, people=people,
    )  # fmt: skip


def _check_only(
    only: list[str], everything: list[Submission], people: roster.Roster | None
) -> None:
    known = {s.student for s in everything}
    for one in everything:
        if people and (person := people.whose(one)):
            known |= {person.id, people.called(person)}
    if lost := sorted(set(only) - known):
        raise notebooks.NotebookError(f"--only: nobody of that name: {', '.join(lost)}")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _grade(
    run: Run, source: Path, kept: journal.Journal | None, mode: str, limits: dict[str, Any]
) -> int:
    base = journal.run_key(source, {"mode": mode, **limits})
    # Not the path, which may be typed in another way or be another one's by now.
    keys = {s: f"{base}:{s.student}:{submissions.digest(s)}" for s in run.everything}
    left = []
    if run.options.only:
        # As it was, even if the source is another one by now.
        run.keep(
            lambda one: kept.last(keys[one].removeprefix(base)) if kept else None,
            journal=bool(kept and kept.rows),
        )
    run.warn_of_the_record()
    for one in run.mine:
        if run.kept:
            known = run.kept.known.get(one)
        else:
            known = kept.rows.get(keys[one]) if kept and not run.options.afresh else None
        # A fault of the machine is not kept against the student.
        if known and known["status"] != "error":
            run.add(one, known)
        else:
            left.append(one)
    if run.kept:
        print(f"{len(run.rows) + len(run.kept.rows)} rows stay as they are.")
    elif run.rows:
        print(f"{len(run.rows)} were finished before.")
    try:
        if left:
            # Not a part of the key: on another machine the rows hold too.
            if limits["memory_mb"] is None:
                limits = {**limits, "memory_mb": memory.default_mb(run.options.jobs)}
            with Engine(source, mode=mode, limits=limits) as engine:
                engine.start()
                if not engine.contained:
                    _say_uncontained()
                for one, row in engine.graded(left, run.options.jobs):
                    # First: an interruption while it is being kept must not lose it here.
                    full = run.add(one, row)
                    if kept:
                        kept.add(keys[one], row)
                    run.progress(full)
                    run.write(full)
    finally:
        if run.rows or run.people:
            run.write_all()
        if run.options.hand_sheet:
            feedback.write(run.options.hand_sheet, hand.sheet(run.finished(), run.work))
    run.summary()
    return 1 if any(r["status"] == "error" for r in run.rows.values()) else 0


def _say_uncontained() -> None:
    from book.grading.sandbox import NOT_CONTAINED

    print(f"warning: {NOT_CONTAINED}", file=sys.stderr)
