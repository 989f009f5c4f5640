"""One run of `grade`: what is to be graded, the rows as they come, and the files that hold them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from book.grading import (
    feedback,
    hand,
    journal,
    late,
    memory,
    names,
    notebooks,
    prints,
    roster,
    submissions,
)
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
        self.whose = {s: people.whose(s) if people else None for s in everything}
        self.names = {s: p.name if (p := self.whose[s]) else s.student for s in everything}
        self.alike = _look_alikes(self.names, self.whose)
        self.marks = hand.read(options.hand, work)
        self.lateness = _lateness(options, work)
        # What the last run said, to say what is different now.
        self.before = _record(options.json)
        self.prints: dict[Submission, dict[str, list[int]]] = {}
        self.pages = self._pages()
        self._written = 0.0

    def _pages(self) -> dict[Submission, str]:
        """The name of each page, known before the first is written."""
        if not self.options.feedback:
            return {}
        rows = [{"student": self.names[s], "file": s.label, "assignment": self.work.name}
                for s in self.everything]  # fmt: skip
        feedback.name_pages(rows, self.options.feedback)
        return {s: row["page"] for s, row in zip(self.everything, rows, strict=True)}

    def add(self, one: Submission, row: dict[str, Any]) -> dict[str, Any]:
        """Take a finished row; it is given back with whose it is."""
        person = self.whose[one]
        remarks = [*one.remarks]
        if self.people and person is None:
            remarks.append("not in the roster")
        remarks += self.alike.get(one, [])
        self.rows[one] = {
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
        hand.merge(self.rows[one], self.marks, self.work)
        if self.lateness:
            self.lateness.merge(self.rows[one], one, person.due if person else "")
        self.prints[one] = self.rows[one].pop("prints", {})
        return self.rows[one]

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
        if self.people and len(self.rows) == len(self.everything):
            seen = [p for p in self.whose.values() if p]
            rows += [self._missing(p) for p in self.people.missing(seen)]
        return rows

    def _counts(self, one: Submission) -> tuple[Any, ...]:
        row = self.rows[one]
        readable = row["status"] != "unreadable"
        if self.options.which == "best":
            return readable, row["score"], one.time, one.label
        named = names.asked_for(one.file, self.work.name)
        return readable, named and self.options.which == "name", one.time, one.label

    def _missing(self, person: roster.Person) -> dict[str, Any]:
        why = "nothing was handed in"
        row = {
            "student": person.name, "id": person.id, "email": person.email,
            "section": person.section, "file": "", "assignment": self.work.name,
            "status": "missing", "score": 0.0, "max": self.work.maximum, "reason": why,
            "cells": [], "remarks": [], "cut": 0, "seconds": 0.0, "counts": True,
            "by_hand": [c.grade_id for c in self.work.cells if c.kind == "manual"],
            "late": False, "page": "", "sender": None,
            "tests": [{"id": c.grade_id, "score": 0.0, "max": c.points, "passed": False,
                       "reason": why, "detail": why, "seconds": 0.0}
                      for c in self.work.cells if c.kind == "test"],
        }  # fmt: skip
        # Somebody may have handed in on paper.
        hand.merge(row, self.marks, self.work)
        return row

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
        by_id = {self.rows[s]["id"]: some for s, some in self.prints.items()
                 if self.rows[s]["counts"]}  # fmt: skip
        found = prints.alike(by_id, given)
        called = {self.rows[s]["id"]: self.names[s] for s in self.rows}
        for row in self.rows.values():
            others = found.get(row["id"], {}) if row["counts"] else {}
            row["alike"] = [f"{called[who]}: {', '.join(cells)}"
                            for who, cells in sorted(others.items())]  # fmt: skip

    def write_all(self) -> None:
        """Write everything; only a whole run removes the pages of students who are gone."""
        o, rows = self.options, self.finished()
        self.compare()
        if len(self.rows) == len(self.everything):
            feedback.write_all(rows, table=o.csv, record=o.json, pages=o.feedback)
            return
        if o.feedback:
            for row in rows:
                feedback.write_page(row, o.feedback)
        feedback.write_all(rows, table=o.csv, record=o.json, pages=None)

    def changes(self, rows: list[dict[str, Any]]) -> list[str]:
        """What is different from the record of the last run, old against new."""
        old = {(r["id"], r["file"]): r for r in self.before}
        found = []
        for row in rows:
            then = old.get((row["id"], row["file"]))
            if then is None or then["score"] == row["score"]:
                continue
            points = {t["id"]: t["score"] for t in then["tests"]}
            tests = [f"{t['id']}: {points.get(t['id'], 0):g} -> {t['score']:g}"
                     for t in row["tests"] if points.get(t["id"], 0) != t["score"]]  # fmt: skip
            if then.get("deduction", 0) != row.get("deduction", 0):
                tests.append(f"late: -{then.get('deduction', 0):g} -> -{row.get('deduction', 0):g}")
            found.append(f"changed: {row['student']}: {then['score']:g} -> {row['score']:g} "
                         f"({', '.join(tests)})")  # fmt: skip
        return found

    # -- words

    def warn(self) -> None:
        """Say what a teacher should know before the first row."""
        told = list(self.work.warnings)
        together = {tuple(sorted({self.names[one], *words})) for one, words in self.alike.items()}
        for group in names.alike(self.names.values()):
            if any(set(group) & set(words) for words in together):
                told.append(f"names that look alike: {', '.join(map(names.escaped, group))}")
        if self.people:
            unknown = sorted({s.student for s, person in self.whose.items() if not person})
            if unknown:
                told.append(f"not in the roster: {', '.join(map(names.escaped, unknown))}")
        people = [p.id for p in self.people.people] if self.people else []
        mine = map(self.id, self.everything)
        if nobody := self.marks.unknown([*people, *mine]):
            told.append(f"points by hand for nobody's id: {', '.join(map(names.escaped, nobody))}")
        for text in told:
            print(f"warning: {text}", file=sys.stderr)

    def progress(self, row: dict[str, Any]) -> None:
        """Say that a row is finished."""
        why = f"  {row['reason'].splitlines()[0][:90]}" if row["reason"] else ""
        printable(
            f"[{len(self.rows)}/{len(self.everything)}] {row['student']}: "
            f"{row['score']:g}/{row['max']:g} ({row['seconds']:.1f} s){why}"
        )

    def summary(self) -> None:
        """Say how the run ended."""
        rows = self.finished()
        odd = {s: [r for r in rows if r["status"] == s] for s in ("unreadable", "error", "missing")}
        seconds = time.monotonic() - self.began
        told = f"{len(self.rows)} of {len(self.everything)} graded in {seconds:.1f} s."
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
        for line in self.changes(rows):
            printable(line)
        remarked = sum(bool(r["remarks"]) for r in rows)
        if remarked:
            printable(f"{remarked} rows have remarks: see the table's column of that name.")
        for path in (self.options.csv, self.options.json, self.options.feedback):
            if path:
                print(f"wrote {path}")


def printable(text: str) -> None:
    """Print a line; what a student wrote must not steer the terminal."""
    coding = sys.stdout.encoding or "utf-8"
    text = text.encode(coding, "replace").decode(coding, "replace")
    print("".join(c if c.isprintable() else "?" for c in text), flush=True)


def _record(path: Path | None) -> list[dict[str, Any]]:
    """The rows of an earlier run's record; none if there is none."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8")) if path else []
        return [r for r in rows if {"id", "file", "score", "tests"} <= r.keys()]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def _look_alikes(
    called: dict[Submission, str], whose: dict[Submission, roster.Person | None]
) -> dict[Submission, list[str]]:
    """A remark for each submission whose student could be taken for another one."""
    # People of the roster have ids, which tell them apart.
    loose = {one: name for one, name in called.items() if whose[one] is None}
    found: dict[Submission, list[str]] = {}
    for group in names.alike(called.values()):
        for one, name in loose.items():
            if name in group:
                others = ", ".join(names.escaped(n) for n in group if n != name)
                found[one] = [f"the name looks like another one's: {others}"]
    return found


def run(options: argparse.Namespace, mode: str, limits: dict[str, Any]) -> int:
    """Grade what `options` name; the command's exit code."""
    source = notebooks.only(options.source)
    work = notebooks.assignment(source)
    people = roster.read(options.roster) if options.roster else None
    everything = submissions.find(options.submissions, work.name, options.which)
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


def _lateness(options: argparse.Namespace, work: notebooks.Assignment) -> late.Policy | None:
    if not options.due:
        if options.times or options.late_days or options.late_cost or options.late_before:
            raise late.LateError("late days need a deadline: --due '2026-03-01 23:59'")
        return None
    return late.policy(
        options.due, budget=options.late_days, cost=options.late_cost, times=options.times,
        before=options.late_before, assignment=work.name,
    )  # fmt: skip


def _check_only(
    only: list[str], everything: list[Submission], people: roster.Roster | None
) -> None:
    known = {s.student for s in everything}
    for one in everything:
        if person := people.whose(one) if people else None:
            known |= {person.id, person.name}
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
    for one in run.everything:
        known = kept.rows.get(keys[one]) if kept and not run.options.afresh else None
        if run.options.only:
            known = None
            if not {one.student, run.names[one], run.id(one)} & set(run.options.only):
                # As it was, even if the source is another one by now.
                known = kept.last(keys[one].removeprefix(base)) if kept else None
                if known is None:
                    continue
        # A fault of the machine is not kept against the student.
        if known and known["status"] != "error":
            run.add(one, known)
        else:
            left.append(one)
    if run.rows:
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
