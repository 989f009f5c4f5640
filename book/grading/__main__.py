"""Release an assignment, check a notebook, grade submissions, find leaks."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from book.grading import (
    github,
    hand,
    journal,
    late,
    leaks,
    notebooks,
    platforms,
    release,
    running,
    tables,
)
from book.grading.engine import EngineError

_MEMORY = "three quarters of the machine's divided by the jobs; at least 512, at most 4096"
LIMITS: dict[str, tuple[float | None, str]] = {
    "cell": (30.0, "seconds for one cell of the submission"),
    "call": (10.0, "seconds for one call that a test makes"),
    "test": (60.0, "seconds for one test cell"),
    "total": (180.0, "seconds for one submission"),
    "memory_mb": (None, "memory of a submission, all its processes together, in MB"),
    "disk_mb": (64, "what a submission may write, in MB"),
    "processes": (64, "processes and threads of a submission"),
}


def main(words: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 if all is well, 1 if not, 2 if it could not run."""
    options = _parser().parse_args(words)
    try:
        result: int = options.run(options)
    except (notebooks.NotebookError, tables.TableError, platforms.PlatformError, hand.HandError,
            late.LateError, EngineError, journal.BusyError, OSError) as error:  # fmt: skip
        for line in f"error: {error}".split("\n"):
            running.printable(line, sys.stderr)
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
    one.add_argument(
        "--github", metavar="OWNER/BOOK",
        help="also a workflow that runs the visible tests with this repository's `check`",
    )  # fmt: skip
    one.set_defaults(run=_release)

    one = commands.add_parser("check", help="run a notebook's visible tests, before handing it in")
    one.add_argument("notebook", type=Path)
    one.add_argument(
        "--github", action="store_true",
        help="report the points as GitHub's autograding does, for the workflow of `release`",
    )  # fmt: skip
    one.set_defaults(run=_check)

    one = commands.add_parser(
        "grade",
        help="grade submissions; each gets a row, whatever it does",
        description="Grade notebooks, folders with one folder or file per student, and archives, "
        "also as Canvas, Moodle, Blackboard and Brightspace give them. Everybody of whom there is "
        "anything gets a row. A run that was interrupted goes on where it was when the same "
        "command is given again.",
    )
    one.add_argument("source", type=Path, help="the teacher's notebook, or its folder")
    one.add_argument("submissions", type=Path, nargs="+")
    one.add_argument(
        "--jobs", type=_natural, default=2,
        help="submissions at the same time (2); each may take its memory, see --limit-memory-mb",
    )  # fmt: skip
    one.add_argument("--csv", type=Path, metavar="FILE", help="a table for the gradebook")
    one.add_argument("--json", type=Path, metavar="FILE", help="everything, for the teacher")
    one.add_argument("--feedback", type=Path, metavar="DIR", help="a page for each student")
    one.add_argument(
        "--journal", type=Path, metavar="FILE",
        help="where finished rows are kept (default: beside the first output)",
    )  # fmt: skip
    one.add_argument(
        "--roster", type=Path, metavar="FILE",
        help="a table of the course (id, name, e-mail, section): who handed in nothing has a row",
    )  # fmt: skip
    several = one.add_mutually_exclusive_group()
    several.add_argument(
        "--latest", dest="which", action="store_const", const="latest", default="name",
        help="of several notebooks of a student take the last one, not the assignment's name",
    )  # fmt: skip
    several.add_argument(
        "--best", dest="which", action="store_const", const="best",
        help="of several notebooks of a student grade all (the last five), and count the best",
    )  # fmt: skip
    one.add_argument(
        "--hand", type=Path, nargs="+", default=[], metavar="FILE",
        help="points by hand, also in the place of a test's: tables with id, cell, points, reason",
    )  # fmt: skip
    one.add_argument(
        "--hand-sheet", type=Path, metavar="FILE",
        help="write such a table for the answers that still need points by hand",
    )  # fmt: skip
    one.add_argument(
        "--only", nargs="+", default=[], metavar="STUDENT",
        help="grade these anew; all others keep the rows that they have",
    )  # fmt: skip
    late_days = one.add_argument_group("late days")
    late_days.add_argument(
        "--due", default="", metavar="TIME",
        help="the deadline, as 2026-03-01 23:59; a column `due` of the roster has people's own",
    )  # fmt: skip
    late_days.add_argument(
        "--times", type=Path, metavar="FILE",
        help="a table of the platform's that says who handed in when",
    )  # fmt: skip
    late_days.add_argument(
        "--late-days", type=int, default=0, metavar="N",
        help="days that a student may be late in the whole course without a cost (0)",
    )  # fmt: skip
    late_days.add_argument(
        "--late-before", type=Path, nargs="+", default=[], metavar="RECORD",
        help="what `grade --json` wrote for earlier assignments: late days are used up there",
    )  # fmt: skip
    late_days.add_argument(
        "--late-cost", type=float, default=0.0, metavar="PERCENT",
        help="of the points, for each further day (0)",
    )  # fmt: skip
    one.add_argument("--afresh", action="store_true", help="grade again what was graded before")
    one.add_argument(
        "--unsafe-no-sandbox", action="store_true",
        help="accept that the students' code can do what you can do",
    )  # fmt: skip
    one.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    for name, (value, what) in LIMITS.items():
        usual = f"{value:g}" if value is not None else _MEMORY
        one.add_argument(
            f"--limit-{name.replace('_', '-')}", dest=f"limit_{name}", metavar="N",
            type=int if value is None else type(value), default=value, help=f"{what} ({usual})",
        )  # fmt: skip
    one.set_defaults(run=_grade)

    one = commands.add_parser(
        "gradebook",
        help="enter the points into the gradebook that a platform exported",
        description="Fill in one column of the table that Canvas, Moodle (the grading worksheet), "
        "Blackboard or Brightspace exports, to be imported there again.",
    )
    one.add_argument("record", type=Path, help="what `grade --json` wrote")
    one.add_argument("export", type=Path, help="the table that the platform exported")
    one.add_argument("out", type=Path, help="the table to import")
    one.add_argument(
        "--column", default="", metavar="NAME",
        help="the column of the points (the one of the assignment's name)",
    )  # fmt: skip
    one.add_argument(
        "--scale", action="store_true",
        help="where its maximum is another one, enter the same share of it",
    )  # fmt: skip
    one.set_defaults(run=_gradebook)

    one = commands.add_parser(
        "feedback", help="pack the pages as Canvas and Moodle take them back",
        description="A zip file of the feedback pages under names by which the platform knows "
        "whose they are. What was graded must have come from there.",
    )  # fmt: skip
    one.add_argument("record", type=Path, help="what `grade --json` wrote")
    one.add_argument("pages", type=Path, help="what `grade --feedback` wrote")
    one.add_argument("out", type=Path, help="the zip file to write")
    one.set_defaults(run=_feedback)

    one = commands.add_parser(
        "stats",
        help="what the class did: the hardest questions, mistakes by name, a page to show",
    )
    one.add_argument("record", type=Path, help="what `grade --json` wrote")
    one.add_argument("--page", type=Path, metavar="FILE", help="write a page with pictures")
    one.set_defaults(run=_stats)

    one = commands.add_parser(
        "gradescope", help="pack an autograder for Gradescope; it holds the hidden tests"
    )
    one.add_argument("source", type=Path, help="the teacher's notebook, or its folder")
    one.add_argument("out", type=Path, help="the zip file to upload")
    one.set_defaults(run=_gradescope)

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
        if options.github:
            try:
                print(f"wrote {github.write(path.parent, path.name, options.github)}")
            except ValueError as error:
                raise notebooks.NotebookError(str(error)) from None
    print(f"{len(written)} notebook{'s' * (len(written) != 1)} released.")
    return 0


def _check(options: argparse.Namespace) -> int:
    from book.grading.check import check

    return 0 if check(options.notebook, on_github=options.github) else 1


def _record(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(row, dict) and {"student", "tests"} <= row.keys() for row in rows):
            return rows
    except (ValueError, TypeError):
        pass
    raise platforms.PlatformError(f"{path}: not a record that `grade --json` wrote")


def _gradebook(options: argparse.Namespace) -> int:
    export = options.export.read_bytes()
    filled = platforms.fill(
        _record(options.record), export, column=options.column, scale=options.scale
    )
    options.out.write_bytes(filled.data)
    for text in filled.left:
        running.printable(f"left out: {text}")
    print(f"{filled.count} entered; wrote {options.out}")
    return 0


def _feedback(options: argparse.Namespace) -> int:
    count, left = platforms.archive(_record(options.record), options.pages, options.out)
    for student in left:
        running.printable(f"left out: {student}: the platform's name does not say which file it is")
    print(f"{count} pages; wrote {options.out}")
    return 0


def _stats(options: argparse.Namespace) -> int:
    from book.grading import feedback, stats

    try:
        numbers = stats.of(_record(options.record))
    except ValueError as error:
        raise platforms.PlatformError(f"{options.record}: {error}") from None
    for line in stats.text(numbers).split("\n"):
        running.printable(line)
    if options.page:
        feedback.write(options.page, stats.page(numbers))
        print(f"wrote {options.page}")
    return 0


def _gradescope(options: argparse.Namespace) -> int:
    from book.grading import gradescope

    print(f"{gradescope.pack(options.source, options.out)} files; wrote {options.out}")
    return 0


def _leaks(options: argparse.Namespace) -> int:
    found, searched = leaks.search(options.source, options.places, options.public)
    for leak in found:
        print(leak)
    if not searched:
        print("error: there was no file to search", file=sys.stderr)
        return 2
    print(f"{len(found)} leaks in {searched} files." if found else f"No leak in {searched} files.")
    return 1 if found else 0


def _grade(options: argparse.Namespace) -> int:
    limits = {name: getattr(options, f"limit_{name}") for name in LIMITS}
    mode = "sandbox"
    if options.cold:
        mode = "cold"
    elif options.unsafe_no_sandbox:
        mode = "open"
    return running.run(options, mode, limits)


def limit_names() -> list[str]:
    """The limits that are options; all of them exist in `limits.Limits`."""
    from book.grading.limits import Limits

    return [f.name for f in fields(Limits) if f.name in LIMITS]


if __name__ == "__main__":
    sys.exit(main())
