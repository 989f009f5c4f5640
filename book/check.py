"""Everything that concerns one chapter, for its author: `make check NB=notebooks/08_...ipynb`.

The chapter is linted, its cells and its modules are looked at by ruff, it is run and compared with
what it stores, its formulas with a sample of their mutants. Of the tests those run that have to do
with it: by the names of the house, the files called after its topic, and of the files that look at
all chapters the cases of this one. What concerns the whole book is left to `make test`.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from book import errata, lint, weave
from book.chapters import CHAPTER, ROOT, chapters, read, topic

# Folders of tests that concern no single chapter, or all of them at once.
HOUSE = ("house", "site", "classroom", "own")
# Folders in which a test file is called after the topic whose tests it holds, or is shared.
TOPICS = ("parts", "explorers", "errata", "hints", "chapters")
# Files in them that look at all chapters, case by case.
SHARED = (
    "chapters/test_chapters.py",
    "chapters/test_exercises_texts.py",
    "chapters/test_findings.py",
    "chapters/test_links.py",
    "chapters/test_printed_formulas.py",
    "chapters/test_teaching.py",
    "errata/test_errata.py",
    "hints/test_hints.py",
    "parts/test_checkers.py",
    "parts/test_edited_answers.py",
    "parts/test_edited_solutions.py",
    "parts/test_oracles.py",
    "parts/test_promises.py",
    "parts/test_questions.py",
    "parts/test_two_mistakes.py",
    "parts/test_written_answers.py",
)
# Files in them that look at the book as a whole: too slow, or of no use, for one chapter.
WHOLE = (
    "chapters/test_reproducible.py",
    "chapters/test_the_net_catches_fish.py",
    "explorers/test_covered.py",
    "explorers/test_reading_scenes.py",
    "parts/test_other_device.py",
    "parts/test_transformations.py",
)


def owner(file: str, topics: Sequence[str]) -> str | None:
    """Whom a test file under `tests/` belongs to: a topic, "shared", "house"; None: to nobody.

    `parts/test_decoder_hugging_face.py` belongs to `decoder`; of two topics that fit the longer
    name is meant.
    """
    folder, _, name = file.partition("/")
    if folder in HOUSE or file in WHOLE:
        return "house"
    if file in SHARED:
        return "shared"
    if folder not in TOPICS:
        return None
    stem = name.removeprefix("test_").removesuffix(".py")
    fits = [one for one in topics if stem == one or stem.startswith(f"{one}_")]
    return max(fits, key=len, default=None)


def files_of_tests() -> list[str]:
    """Every test file, as its path under `tests/`."""
    folder = ROOT / "tests"
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("test_*.py"))


def files_of(name: str) -> list[str]:
    """The test files that hold tests of a topic, the shared ones included."""
    topics = [topic(path) for path in chapters()]
    return [f"tests/{f}" for f in files_of_tests() if owner(f, topics) in (name, "shared")]


class Case:
    """Which cases of the shared files have to do with a chapter, by what stands in brackets."""

    def __init__(self, path: Path) -> None:
        match = CHAPTER.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name} is no chapter")
        self.topic = match["topic"]
        notebook = read(path)
        text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
        labels = {*lint.labels(notebook), *re.findall(r"^:label: (\S+)$", text, re.M)}
        entries = {one.id for one in errata.load() if one.chapter == path.stem}
        self.words = {path.stem, self.topic, *labels, *entries}
        begins = "|".join(map(re.escape, (path.stem, self.topic)))
        # A case begins with the chapter's file, its topic before a sign, or its number.
        self.begins = re.compile(rf"(?:{begins})(?![a-z0-9_])|{match['number']} ")

    def concerns(self, nodeid: str) -> bool:
        """Whether a test with this id is one of the chapter's."""
        file, _, test = nodeid.partition("::")
        if f"tests/{file.removeprefix('tests/')}" in own_files(self.topic):
            return True
        case = test.partition("[")[2].removesuffix("]")
        return bool(self.begins.match(case)) or not self.words.isdisjoint(_words(case))


def _words(case: str) -> set[str]:
    return {case, *re.findall(r"(?:ex|eq)-[\w-]+|E-\d+", case)}


@functools.cache
def own_files(name: str) -> frozenset[str]:
    """The test files that hold tests of this topic alone."""
    shared = {f"tests/{file}" for file in SHARED}
    return frozenset(file for file in files_of(name) if file not in shared)


class Only:
    """A plugin of pytest that runs the tests of one chapter."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Leave out what does not concern the chapter."""
        kept = [item for item in items if self.case.concerns(item.nodeid)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def modules_of(name: str) -> list[str]:
    """The Python files that belong to a topic, tests included."""
    places = [
        "transformer_parts/{}.py",
        "book/checkers/{}.py",
        "book/checkers/{}",
        "tests/hints/{}.py",
    ]
    found = [place.format(name) for place in places if (ROOT / place.format(name)).exists()]
    return [*found, *sorted(own_files(name))]


# ---------------------------------------------------------------- the steps


def _static(path: Path) -> tuple[bool, str]:
    """Lint, weave and ruff."""
    found = [*lint.problems(read(path)), *lint.symbol_problems(path)]
    found += [f"transformer_parts/{name} differs from its notebook" for name in weave.stale()]
    files = [str(path), *modules_of(topic(path))]
    for command in (["check", "-q", "--output-format=concise"], ["format", "-q", "--check"]):
        done = _run([sys.executable, "-m", "ruff", *command, *files])
        if done.returncode:
            found.append(done.stdout + done.stderr or f"ruff {command[0]} is not content")
    return not found, "\n".join(found)


def _notebook(path: Path) -> tuple[bool, str]:
    """Run the chapter and compare; in it each witness tries a sample of wrong formulas."""
    return _pytest([str(path)])


def _tests(path: Path) -> tuple[bool, str]:
    """The tests of the chapter, in a process of their own: `python -m book.check --tests`."""
    done = _run([sys.executable, "-m", "book.check", "--tests", str(path)])
    return done.returncode == 0, done.stdout + done.stderr


def _pytest(arguments: list[str]) -> tuple[bool, str]:
    done = _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments])
    return done.returncode == 0, done.stdout + done.stderr


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


STEPS = {"lint, weave, ruff": _static, "the notebook": _notebook, "its tests": _tests}


def main(argv: list[str] | None = None) -> int:
    """Check one chapter; print what is off and how long each step took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--tests", action="store_true", help="run only the tests, as pytest does")
    asked = parser.parse_args(argv)
    path = asked.notebook.resolve()
    if path not in chapters():
        parser.error(f"{asked.notebook} is no chapter of the book")
    if asked.tests:
        import pytest

        arguments = ["-q", "-p", "no:cacheprovider", *files_of(topic(path))]
        return int(pytest.main(arguments, plugins=[Only(Case(path))]))
    began = time.perf_counter()
    good = True
    with ThreadPoolExecutor(len(STEPS)) as pool:  # each waits for a process of its own
        running = {name: pool.submit(_timed, step, path) for name, step in STEPS.items()}
        for name, future in running.items():
            passed, told, seconds = future.result()
            good &= passed
            print(f"{'ok  ' if passed else 'OFF '} {name}, {seconds:.0f} s", flush=True)
            if not passed:
                print(told.rstrip())
            elif counts := re.findall(r"\d+ passed", told):
                print(f"      {counts[-1]}")
    print(f"{path.stem}: {'nothing is off' if good else 'see above'}, "
          f"{time.perf_counter() - began:.0f} s")  # fmt: skip
    return 0 if good else 1


def _timed(step: Any, path: Path) -> tuple[bool, str, float]:
    began = time.perf_counter()
    passed, told = step(path)
    return passed, told, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
