"""Release an assignment, check a notebook, grade submissions, find leaks."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from book.grading import feedback, journal, leaks, notebooks, release, submissions
from book.grading.engine import Engine, EngineError

LIMITS = {
    "cell": (30.0, "seconds for one cell of the submission"),
    "call": (10.0, "seconds for one call that a test makes"),
    "test": (60.0, "seconds for one test cell"),
    "total": (180.0, "seconds for one submission"),
    "memory_mb": (4096, "address space of one process of the student's, in MB"),
    "disk_mb": (64, "what a submission may write, in MB"),
    "processes": (64, "processes and threads of a submission"),
}


def main(words: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 if all is well, 1 if not, 2 if it could not run."""
    options = _parser().parse_args(words)
    try:
        result: int = options.run(options)
    except (notebooks.NotebookError, EngineError, journal.BusyError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped. Finished rows are kept; run the same command to go on.", file=sys.stderr)
        return 130
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m book.grading", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("release", help="make the students' version of an assignment")
    one.add_argument("source", type=Path, help="the teacher's notebook, or its folder")
    one.add_argument("out", type=Path, help="the folder to write to")
    one.set_defaults(run=_release)

    one = commands.add_parser("check", help="run a notebook's visible tests, before handing it in")
    one.add_argument("notebook", type=Path)
    one.set_defaults(run=_check)

    one = commands.add_parser(
        "grade",
        help="grade submissions; each gets a row, whatever it does",
        description="Grade notebooks, folders with one folder or file per student, and zip files. "
        "A run that was interrupted goes on where it was when the same command is given again.",
    )
    one.add_argument("source", type=Path, help="the teacher's notebook, or its folder")
    one.add_argument("submissions", type=Path, nargs="+")
    one.add_argument("--jobs", type=_natural, default=2, help="submissions at the same time (2)")
    one.add_argument("--csv", type=Path, metavar="FILE", help="a table for the gradebook")
    one.add_argument("--json", type=Path, metavar="FILE", help="everything, for the teacher")
    one.add_argument("--feedback", type=Path, metavar="DIR", help="a page for each student")
    one.add_argument(
        "--journal", type=Path, metavar="FILE",
        help="where finished rows are kept (default: beside the first output)",
    )  # fmt: skip
    one.add_argument("--afresh", action="store_true", help="grade again what was graded before")
    one.add_argument(
        "--unsafe-no-sandbox", action="store_true",
        help="accept that the students' code can do what you can do",
    )  # fmt: skip
    one.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    for name, (value, what) in LIMITS.items():
        one.add_argument(
            f"--limit-{name.replace('_', '-')}", dest=f"limit_{name}", metavar="N",
            type=type(value), default=value, help=f"{what} ({value:g})",
        )  # fmt: skip
    one.set_defaults(run=_grade)

    one = commands.add_parser(
        "leaks",
        help="search files for solutions and hidden tests",
        description="Search folders that students can see (the released notebooks, the website and "
        "its search index) for text of the solutions and hidden tests.",
    )
    one.add_argument(
        "source", type=Path, nargs="+", help="the teacher's notebooks or their folders"
    )
    one.add_argument("--in", dest="places", type=Path, nargs="+", required=True, metavar="OUT",
                     help="files and folders to search")  # fmt: skip
    one.add_argument("--public", type=Path, nargs="*", default=[],
                     help="what may be shown anyway, such as the chapters")  # fmt: skip
    one.set_defaults(run=_leaks)
    return parser


def _natural(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _release(options: argparse.Namespace) -> int:
    written = release.release(options.source, options.out)
    for path in written:
        print(f"released {path}")
    print(f"{len(written)} notebook{'s' * (len(written) != 1)} released.")
    return 0


def _check(options: argparse.Namespace) -> int:
    from book.grading.check import check

    return 0 if check(options.notebook) else 1


def _leaks(options: argparse.Namespace) -> int:
    found, searched = leaks.search(options.source, options.places, options.public)
    for leak in found:
        print(leak)
    if not searched:
        print("error: there was no file to search", file=sys.stderr)
        return 2
    print(f"{len(found)} leaks in {searched} files." if found else f"No leak in {searched} files.")
    return 1 if found else 0


@dataclass
class _Run:
    """One run of `grade`."""

    options: argparse.Namespace
    rows: dict[str, dict[str, Any]]
    began: float

    def outputs(self) -> None:
        """Write what is finished."""
        o = self.options
        feedback.write_all(list(self.rows.values()), table=o.csv, record=o.json, pages=o.feedback)


def _grade(options: argparse.Namespace) -> int:
    source = notebooks.only(options.source)
    work = notebooks.assignment(source)
    everything = submissions.find(options.submissions, work.name)
    if not everything:
        raise notebooks.NotebookError("there is no .ipynb or .zip file in what is to be graded")
    limits = {name: getattr(options, f"limit_{name}") for name in LIMITS}
    mode = "sandbox"
    if options.cold:
        mode = "cold"
    elif options.unsafe_no_sandbox:
        mode = "open"
    first = options.json or options.csv or (options.feedback and options.feedback / "feedback")
    place = options.journal or (first and first.parent / f".{first.name}.journal")
    # Ending by a signal is an interruption like Ctrl+C.
    signal.signal(signal.SIGTERM, _interrupted)
    for warning in work.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{work.name}: {len(everything)} submissions, {work.maximum:g} points")
    if place is None:
        return _run(options, source, everything, None, mode, limits)

    def waiting() -> None:
        print(f"Another grader works with {place}; waiting for it to finish.", flush=True)

    with journal.Journal(place, waiting) as kept:
        return _run(options, source, everything, kept, mode, limits)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _run(
    options: argparse.Namespace, source: Path, everything: list[submissions.Submission],
    kept: journal.Journal | None, mode: str, limits: dict[str, Any],
) -> int:  # fmt: skip
    run = _Run(options, {}, time.monotonic())
    base = journal.run_key(source, {"mode": mode, **limits})
    keys = {s: f"{base}:{s.label}:{s.student}:{submissions.digest(s)}" for s in everything}
    left = []
    for one in everything:
        known = kept.rows.get(keys[one]) if kept and not options.afresh else None
        # A fault of the machine is not kept against the student.
        if known and known["status"] != "error":
            run.rows[one.label] = known
        else:
            left.append(one)
    if run.rows:
        print(f"{len(run.rows)} were finished before.")
    by_label = {s.label: s for s in left}
    try:
        if left:
            with Engine(source, mode=mode, limits=limits) as engine:
                engine.start()
                if not engine.contained:
                    _say_uncontained(mode)
                for row in engine.grade(left, options.jobs):
                    # First: an interruption while it is being kept must not lose it here.
                    run.rows[row["file"]] = row
                    if kept:
                        kept.add(keys[by_label[row["file"]]], row)
                    _progress(row, len(run.rows), len(everything))
    finally:
        if run.rows:
            run.outputs()
    _summary(run, everything)
    return 1 if any(r["status"] == "error" for r in run.rows.values()) else 0


def _say_uncontained(mode: str) -> None:
    from book.grading.sandbox import NOT_CONTAINED

    print(f"warning: {NOT_CONTAINED}", file=sys.stderr)


def _progress(row: dict[str, Any], count: int, total: int) -> None:
    why = f"  {row['reason'].splitlines()[0][:90]}" if row["reason"] else ""
    name = (
        row["student"]
        .encode(sys.stdout.encoding or "utf-8", "replace")
        .decode(sys.stdout.encoding or "utf-8", "replace")
    )
    text = (
        f"[{count}/{total}] {name}: {row['score']:g}/{row['max']:g} ({row['seconds']:.1f} s){why}"
    )
    # What a student wrote must not steer the terminal.
    print("".join(c if c.isprintable() else "?" for c in text), flush=True)


def _summary(run: _Run, everything: list[submissions.Submission]) -> None:
    rows = list(run.rows.values())
    seconds = time.monotonic() - run.began
    odd = {s: sum(r["status"] == s for r in rows) for s in ("unreadable", "error")}
    print(f"{len(rows)} of {len(everything)} graded in {seconds:.1f} s.", end="")
    if odd["unreadable"]:
        print(f" {odd['unreadable']} could not be read.", end="")
    if odd["error"]:
        print(f" {odd['error']} not graded by a fault of the grader; run it again.", end="")
    print()
    students = [r["student"] for r in rows]
    if twice := sorted({s for s in students if students.count(s) > 1}):
        print(f"Several files each from: {', '.join(twice)}. Every file has its own row.")
    for path in (run.options.csv, run.options.json, run.options.feedback):
        if path:
            print(f"wrote {path}")


def limit_names() -> list[str]:
    """The limits that are options; all of them exist in `judge.Limits`."""
    from book.grading.judge import Limits

    return [f.name for f in fields(Limits) if f.name in LIMITS]


if __name__ == "__main__":
    sys.exit(main())
