"""What can be counted of how a chapter teaches: pictures, words between them, kinds of exercises.

`python -m book.teaching notebooks/05_attention.ipynb` prints the measures of a chapter and what is
off. They are those of the page as a reader meets it: what is folded (setup, library versions,
witnesses, hints, solutions, the section *Further*) counts neither as words nor as code, and the
lists at the end of a chapter are no longer its text. A number is no verdict on a page: look at it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from book.chapters import chapters, read, tags

WORDS_BEFORE_THE_FIRST_PICTURE = 150
WORDS_BETWEEN = 300
CELLS_BETWEEN = 3
EXERCISES = range(6, 9)
# What an exercise asks for. At most half of a chapter's exercises are to build something.
KINDS = ("predict", "repair", "experiment", "estimate", "design", "build")
EFFORT = re.compile(
    rf"^\*\d+ minutes, (?:easy|medium|hard)(?:, (?P<kind>{'|'.join(KINDS)}))?\b[^*]*\*", re.M
)
# Parts that are looked up rather than read, and what only some readers want.
_LISTS = re.compile(
    r"## (?:Further|Questions you may be asked|What is often written and wrong|References)\b"
)
_FOLDED = {"setup", "library", "witness", "hide-input", "finding", "solution", "exercise"}
_FENCE = re.compile(r"(?P<mark>`{3,}|:{3,})(?P<rest>.*)")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?")


@dataclass
class Exercise:
    """An exercise, with what stands on the page above it."""

    title: str
    kind: str = ""
    checks: str = ""  # the name that its cell calls `check` for
    above: list[str] = field(default_factory=list)  # definitions that a reader has seen


@dataclass
class Measures:
    """What was counted of one chapter."""

    before: int | None = None  # words before the first picture; None: there is no picture
    gap: int = 0  # the most words without a picture or a table of numbers
    gap_at: str = ""  # the heading under which they end
    cells: int = 0  # the most visible code cells between two pictures
    cells_at: str = ""
    exercises: list[Exercise] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What is off, one line each."""
        found = []
        if self.before is None:
            found.append("there is no picture")
        elif self.before > WORDS_BEFORE_THE_FIRST_PICTURE:
            found.append(f"{self.before} words stand before the first picture")
        if self.gap > WORDS_BETWEEN:
            found.append(f"{self.gap} words without a picture or a table, up to {self.gap_at!r}")
        if self.cells > CELLS_BETWEEN:
            found.append(f"{self.cells} code cells without a picture, up to {self.cells_at!r}")
        if len(self.exercises) not in EXERCISES:
            found.append(f"a chapter has six to eight exercises, this one {len(self.exercises)}")
        for one in self.exercises:
            if one.kind not in KINDS:
                found.append(f"{one.title!r} does not say its kind: one of {', '.join(KINDS)}")
        built = sum(one.kind == "build" for one in self.exercises)
        if 2 * built > len(self.exercises):
            found.append(f"{built} of {len(self.exercises)} exercises are to build something")
        return found


def measures(notebook: Any) -> Measures:
    """Count in a notebook, in the order of its page."""
    found = Measures()
    words = since = code = 0
    heading = ""
    seen: list[str] = []

    def gap() -> None:
        if since > found.gap:
            found.gap, found.gap_at = since, heading

    for kind, value in _told(notebook):
        match kind:
            case "heading":
                heading = str(value)
            case "words":
                words, since = words + int(value), since + int(value)
            case "picture" | "table" | "numbers":
                gap()
                since = 0
                if kind == "picture" and found.before is None:
                    found.before = words
                code = code if kind == "numbers" else 0
            case "code":
                seen += defined(str(value))
                code += 1
                if code > found.cells:
                    found.cells, found.cells_at = code, heading
            case "exercise":
                found.exercises.append(Exercise(str(value), above=[*seen]))
            case "kind":
                if found.exercises:
                    found.exercises[-1].kind = str(value)
            case "checks":
                if found.exercises:
                    found.exercises[-1].checks = str(value)
    gap()
    return found


def defined(source: str) -> list[str]:
    """The functions and classes that a cell defines."""
    source = re.sub(r"^\s*[%!].*$", "", source, flags=re.M)  # IPython's own lines
    kinds = ast.FunctionDef | ast.ClassDef
    return [node.name for node in ast.parse(source).body if isinstance(node, kinds)]


def _told(notebook: Any) -> Iterator[tuple[str, int | str]]:
    """What a reader meets, in order: words, headings, pictures, tables, code, exercises."""
    folded = False  # within a solution
    listed = False  # within a part that is looked up, or folded as a whole
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from _asked(cell)
            if folded or listed or "solution" in tags(cell):
                continue
            if not {*tags(cell)} & _FOLDED:
                yield "code", cell.source
            yield from _shown(cell)
            continue
        for piece in re.split(r"^(?=#{1,6} |```\{solution-)", cell.source, flags=re.M):
            if piece.startswith("## "):
                listed = _LISTS.match(piece) is not None
            if "{solution-start}" in piece[:40]:
                folded = True
            if "{solution-end}" in piece[:40]:
                folded = False
                piece = piece.partition("\n```")[2]
            if re.match(r"#{1,6} ", piece):
                title, _, piece = piece.partition("\n")
                if not listed:
                    yield "heading", title.lstrip("# ")
            if not folded:
                yield from _read(piece, counted=not listed)


def _asked(cell: Any) -> Iterator[tuple[str, str]]:
    """The exercise that a stub is checked by."""
    if "exercise" in tags(cell):
        for name in re.findall(r'^check\("([^"]+)"', cell.source, re.M):
            yield "checks", name


def _shown(cell: Any) -> Iterator[tuple[str, int | str]]:
    """Pictures and tables of numbers among the outputs of a cell, and a finding's sentence."""
    if "witness" in tags(cell):  # its output is folded with it
        return
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if any(kind.startswith("image/") or kind == "text/html" for kind in data):
            yield "picture", 1
        elif "finding" in tags(cell):
            yield from _read("".join(data.get("text/markdown", "")), counted=True)
        else:
            text = "".join(output.get("text", "") or data.get("text/plain", ""))
            rows = [line for line in text.splitlines() if len(_NUMBER.findall(line)) > 1]
            if len(rows) > 2:
                yield "numbers", 1


def _read(text: str, *, counted: bool) -> Iterator[tuple[str, int | str]]:
    """A piece of Markdown in order: words, tables, pictures, exercises with their kind."""
    for block in re.split(r"\n\s*\n", _without_folds(text)):
        for title in re.findall(r"^[`:]{3,}\{exercise\} (.+)$", block, re.M):
            yield "exercise", title
        for match in EFFORT.finditer(block):
            yield "kind", match["kind"] or ""
        if not counted:
            continue
        if re.search(r"^\|.*\d.*\|", block, re.M):
            yield "table", 1
        elif "{figure}" in block or "{image}" in block:
            yield "picture", 1
        else:
            yield "words", _words(block)


def _without_folds(text: str) -> str:
    """Markdown without its drop-downs, its formulas and its blocks of code."""
    text = re.sub(r"\$\$.*?\$\$(?:[ \t]*\([^)\s]+\))?", " ", text, flags=re.S)
    kept: list[str] = []
    until = ""  # the mark that ends what is left out
    for line in text.splitlines():
        fence = _FENCE.match(line.strip())
        if until:
            until = "" if line.strip() == until else until
        elif fence and re.match(r"\{dropdown\}|(?!\{)\S", fence["rest"]):
            until = fence["mark"]
        elif not re.match(r"\s*:[\w-]+:", line):
            kept.append(line)
    return "\n".join(kept)


def _words(text: str) -> int:
    """How many words of prose there are: no formulas, code, addresses or names of roles."""
    text = re.sub(r"\$[^$]+\$|`[^`]*`|\]\([^)]*\)|\{[\w:-]+\}", " ", text)
    return len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))


def main(argv: list[str] | None = None) -> int:
    """Print the measures of the chapters named, or of all, and what is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every chapter")
    named = parser.parse_args(argv).notebooks
    bad = 0
    print(f"{'chapter':22}{'before':>8}{'words':>8}{'cells':>8}  exercises")
    for path in named or chapters():
        found = measures(read(path))
        kinds = " ".join(one.kind or "?" for one in found.exercises)
        before = "none" if found.before is None else found.before
        print(f"{path.stem:22}{before:>8}{found.gap:>8}{found.cells:>8}  {kinds}")
        if named:
            print(*(f"  {problem}" for problem in found.problems()), sep="\n")
            bad += len(found.problems())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
