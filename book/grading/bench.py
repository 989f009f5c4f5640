"""Times the engine, and plain nbgrader beside it on the same submissions in the same run.

    python -m book.grading.bench --nbgrader ../nbgrader-env/bin/python

`--nbgrader` names a Python that has nbgrader 0.9.6 and torch, in an environment of its own. A class
of 24 and one of 6 are graded by both, and one of 300 by the engine, whose memory is looked at. The
submissions are ordinary ones: the solution, the empty release, and answers of which one is missing
or wrong. Only the ratio means something on another machine, and only on one that does nothing else.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from book.grading import memory, notebooks, release, sandbox
from book.grading.engine import ROOT, Engine, EngineError
from book.grading.submissions import Submission

EVERYDAY = ROOT / "notebooks" / "assignments" / "activations-and-ffn"
# How many hand in. With few, the start counts.
CLASSES = (24, 6)
# Seconds between two looks at the memory.
LOOK = 1.0
# So many submissions are graded while the memory is looked at.
LOOKED_AT = 60
# Plain nbgrader, which has to find the checkers that the hidden tests import.
CONFIG = """
c = get_config()
c.CourseDirectory.root = {course!r}
c.CourseDirectory.course_id = "bench"
"""


@dataclass(frozen=True)
class Timing:
    """What one way took for these submissions, in seconds, and the scores that it gave."""

    start: float
    rest: float
    count: int
    scores: dict[str, float]

    @property
    def each(self) -> float:
        """Seconds per submission, without the start."""
        return self.rest / self.count

    @property
    def each_with_start(self) -> float:
        """Seconds per submission when only these are graded."""
        return (self.start + self.rest) / self.count


def main(words: list[str] | None = None) -> int:
    """Time it and print the result; 1 if the two ways give different scores."""
    parser = argparse.ArgumentParser(
        prog="python -m book.grading.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "source", type=Path, nargs="?", default=EVERYDAY,
        help="the teacher's notebook, or its folder (activations-and-ffn)",
    )  # fmt: skip
    parser.add_argument(
        "--nbgrader", type=_python, metavar="PYTHON", help="compare with this one's nbgrader"
    )
    parser.add_argument("--count", type=int, default=300, help="submissions in the long run (300)")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time in the long run (2)")
    parser.add_argument("--unsafe-no-sandbox", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    mode = "open" if options.unsafe_no_sandbox else "sandbox"
    try:
        return _run(options, mode)
    except (notebooks.NotebookError, EngineError, sandbox.SandboxError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _python(named: str) -> str:
    """The whole path of this Python, which is started in another folder.

    Links are not followed: the link in an environment's folder is what makes it that environment's.
    """
    found = shutil.which(named)
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no program {named!r}")
    return os.path.abspath(found)  # noqa: PTH100 - Path.resolve would follow the link


def _run(options: argparse.Namespace, mode: str) -> int:
    source = notebooks.only(options.source)
    same = True
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for size in CLASSES:
            same &= _compared(source, top / f"class-{size}", size, options.nbgrader, mode)
        if options.count:
            many = write(source, top / "many", options.count)
            long = with_engine(source, many, jobs=options.jobs, mode=mode)
            print(
                f"{options.count} submissions, {options.jobs} at a time: "
                f"{long.start + long.rest:.1f} s, {long.start:.1f} s of it the start"
            )
            # Apart, since to look at the memory takes a quarter of the machine's time.
            some = many[:LOOKED_AT]
            with Peak() as peak:
                with_engine(source, some, jobs=options.jobs, mode=mode)
            print(f"at most {peak.bytes >> 20} MiB for all processes, in {len(some)} of these")
    return 0 if same else 1


def _compared(source: Path, folder: Path, size: int, nbgrader: str | None, mode: str) -> bool:
    """Grade a class of this size with the engine, and with nbgrader if there is one.

    False if they give different scores.
    """
    given = write(source, folder / "given", size)
    print(f"{source.stem}: {len(given)} ordinary submissions, one at a time")
    ours = with_engine(source, given, jobs=1, mode=mode)
    print(_line("engine", ours))
    if not nbgrader:
        return True
    theirs = with_nbgrader(nbgrader, source, given, folder / "course")
    print(_line("nbgrader autograde", theirs))
    print(
        f"  ratio               {theirs.each / ours.each:8.1f} times without the start, "
        f"{theirs.each_with_start / ours.each_with_start:.1f} times with it"
    )
    odd = [n for n in ours.scores if abs(ours.scores[n] - theirs.scores.get(n, -1)) > 0.01]
    said = f"different for {', '.join(odd)}" if odd else f"the same for all {len(given)}"
    print(f"  scores              {said}")
    return not odd


class Peak:
    """The most memory that this process and all that it starts have while this is open.

    What several processes share counts once, and what lies in files not at all. Linux only; 0
    elsewhere.
    """

    def __init__(self) -> None:
        self.bytes = self.looks = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            processes = [os.getpid(), *memory.below(os.getpid())]
            self.bytes = max(self.bytes, sum(memory.exact(one) or 0 for one in processes))
            self.looks += 1
            if self._closed.wait(LOOK):
                return


def _line(name: str, one: Timing) -> str:
    return (
        f"  {name:<20}{one.each:8.3f} s each, {one.each_with_start:.3f} s with the start "
        f"of {one.start:.1f} s; the scores' mean is {statistics.mean(one.scores.values()):.1f}"
    )


# ---- submissions


def write(source: Path, folder: Path, count: int) -> list[Submission]:
    """Write `count` ordinary submissions, each in a folder of its own."""
    found = []
    for number, text in enumerate(islice(cycle(ordinary(source.read_bytes())), count), 1):
        path = folder / f"student-{number:03}" / source.name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        found.append(Submission(path.parent.name, path))
    return found


def ordinary(data: bytes) -> Iterator[str]:
    """Submissions to the source in `data`: right, empty, and with one answer missing or wrong."""
    solved, _ = notebooks.parse(data)
    empty = json.loads(release.released(data))
    places = [n for n, c in enumerate(notebooks.cells(solved)) if c.kind == "solution"]
    yield _handed_in(solved, empty, {})
    yield json.dumps(empty)
    for place in places:
        yield _handed_in(solved, empty, {place: _text(empty, place)})
        if (wrong := returns_its_argument(_text(solved, place))) is not None:
            yield _handed_in(solved, empty, {place: wrong})


def _text(notebook: dict[str, Any], place: int) -> str:
    return notebooks.cells(notebook)[place].source


def _handed_in(solved: dict[str, Any], empty: dict[str, Any], other: dict[int, str]) -> str:
    """The released notebook with the solutions in it, but for the cells in `other`."""
    result = json.loads(json.dumps(empty))
    for place, one in enumerate(notebooks.cells(solved)):
        if one.kind == "solution":
            result["cells"][place]["source"] = other.get(place, one.source)
    return json.dumps(result)


def returns_its_argument(source: str) -> str | None:
    """The cell with a first function that returns its first argument; None if there is none."""
    tree = ast.parse(notebooks.plain(source))
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and one.args.args:
            argument = ast.Name(one.args.args[0].arg, ast.Load())
            one.body = [ast.Return(argument)]
            return ast.unparse(ast.fix_missing_locations(tree))
    return None


# ---- the two ways


def with_engine(source: Path, given: list[Submission], *, jobs: int, mode: str) -> Timing:
    """Grade with the engine, as `grade` does."""
    began = time.monotonic()
    with Engine(source, mode=mode, limits={}) as engine:
        engine.start()
        ready = time.monotonic()
        rows = list(engine.grade(given, jobs))
        end = time.monotonic()
    lost = [f"{r['student']}: {r['reason']}" for r in rows if r["status"] != "graded"]
    if lost:
        raise EngineError(f"not graded: {'; '.join(lost)}")
    scores = {r["student"]: float(r["score"]) for r in rows}
    return Timing(ready - began, end - ready, len(given), scores)


def with_nbgrader(python: str, source: Path, given: list[Submission], course: Path) -> Timing:
    """Grade with nbgrader as it is. Its start is what one submission takes more than another."""
    name = source.stem
    place = course / "source" / name / source.name
    place.parent.mkdir(parents=True)
    place.write_bytes(source.read_bytes())
    (course / "nbgrader_config.py").write_text(CONFIG.format(course=str(course)), encoding="utf-8")
    for one in given:
        path = course / "submitted" / one.student / name / source.name
        path.parent.mkdir(parents=True)
        path.write_bytes(one.path.read_bytes())
    _nbgrader(python, course, "generate_assignment", name)
    first, *others = given
    began = time.monotonic()
    _nbgrader(python, course, "autograde", name, "--create", "--student", first.student)
    one_took = time.monotonic() - began
    # All the others in one command, as a course would; the first one's result is kept.
    began = time.monotonic()
    _nbgrader(python, course, "autograde", name, "--create")
    others_took = time.monotonic() - began
    _nbgrader(python, course, "export", "--to", str(course / "grades.csv"))
    with (course / "grades.csv").open(encoding="utf-8") as file:
        scores = {r["student_id"]: float(r["score"] or 0) for r in csv.DictReader(file)}
    # others_took = start + (n - 1) each, and one_took = start + each.
    each = max(0.0, others_took - one_took) / max(1, len(others) - 1)
    return Timing(max(0.0, one_took - each), each * len(given), len(given), scores)


def _nbgrader(python: str, course: Path, *words: str) -> None:
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [python, "-m", "nbgrader", *words], cwd=course, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "HOME": str(course)}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise EngineError(f"nbgrader {words[0]} failed:\n{done.stderr[-1500:]}")


if __name__ == "__main__":
    sys.exit(main())
