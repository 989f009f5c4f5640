"""A repository for each student on GitHub: its workflow runs the visible tests and reports points.

The points are reported as GitHub Classroom's own autograding did, which its successors read too: a
notice "Autograding complete" that says `Points 12/20`, and one that says it in JSON. They are those
of the visible tests, run in the student's own repository: good to know before the deadline, no
mark.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

WORKFLOW = Path(".github") / "workflows" / "classroom.yml"

_TEMPLATE = """\
# Runs the visible tests of {notebook} at every push and reports the points.
name: Autograding Tests

on: [push, workflow_dispatch]

permissions:
  contents: read

jobs:
  run-autograding-tests:
    runs-on: ubuntu-latest
    timeout-minutes: 20
    steps:
      - uses: actions/checkout@v6
      - uses: actions/checkout@v6
        with:
          repository: {book}
          path: .book
      - uses: actions/setup-python@v6
        with:
          python-version: "3.11"
      - run: python -m pip install torch numpy
      - run: python -m book.grading check --github {notebook}
        env:
          PYTHONPATH: .book
          OMP_NUM_THREADS: "1"
"""


def write(folder: Path, notebook: str, book: str) -> Path:
    """Write the workflow of a repository in which `notebook` lies at the top.

    `book` is the repository from which the command comes, as `owner/name`.

    Raises:
        ValueError: if it is not written so, or the notebook's name would need quotes.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", book):
        raise ValueError(f"{book!r}: a repository is written owner/name")
    if not re.fullmatch(r"[\w.-]+", notebook):
        raise ValueError(f"{notebook!r}: use letters, digits, - and _ for the notebook's name")
    path = folder / WORKFLOW
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_TEMPLATE.format(notebook=notebook, book=book), encoding="utf-8", newline="\n")
    return path


def report(tests: list[tuple[str, float, float]]) -> None:
    """Report the points of tests: name, points, and the most that it gives.

    They are printed as notices, and added to the page of the run, where there is one.
    """
    points, most = sum(t[1] for t in tests), sum(t[2] for t in tests)
    told = json.dumps({"totalPoints": points, "maxPoints": most})
    print(f"::notice title=Autograding complete::Points {points:g}/{most:g}")
    print(f"::notice title=Autograding report::{told}")
    if place := os.environ.get("GITHUB_STEP_SUMMARY"):
        lines = ["| visible test | points |", "| --- | ---: |"]
        lines += [f"| {re.sub(r'[^-_. A-Za-z0-9]', '?', n)} | {p:g} of {m:g} |"
                  for n, p, m in tests]  # fmt: skip
        with Path(place).open("a", encoding="utf-8") as file:
            file.write("\n".join([*lines, f"| **all** | **{points:g} of {most:g}** |", ""]))
