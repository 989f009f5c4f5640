"""Looks for solutions and hidden tests where students can see them.

Secrets are the lines of solution regions and hidden tests that stand nowhere in the public part of
the sources, or in `public`. They are looked for without regard to spaces, and in every dress:
plain, in the strings of JSON and scripts, between the tags of HTML, in archives. A site's search
index holds words and not lines, so there the words are looked for that only the secrets contain.
"""

from __future__ import annotations

import gzip
import html
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from book.grading import notebooks

# A shorter line, such as `return x`, says nothing by itself.
LINE = 14
WORD = 6
COMMON = 3
_MARKERS = (notebooks.BEGIN_SOLUTION, notebooks.BEGIN_HIDDEN, notebooks.BEGIN_SCHEME)
_SKIPPED = {".png", ".jpg", ".jpeg", ".gif", ".woff", ".woff2", ".ttf", ".ico", ".lock"}


@dataclass(frozen=True)
class Secrets:
    """What must not be found: lines without their spaces, and words, each with where it is from.

    And the markers of the regions, unless something public (this book's teaching guide) shows them.
    """

    lines: dict[str, str]
    words: dict[str, str]
    markers: tuple[str, ...] = _MARKERS


def search(
    sources: Iterable[Path], places: Iterable[Path], public: Iterable[Path] = ()
) -> tuple[list[str], int]:
    """The leaks of `sources` in `places`, in words, and how many files were searched.

    Raises:
        notebooks.NotebookError: if a source has no secret, so that nothing could be found.
        FileNotFoundError: if a place does not exist.
    """
    files = [p for source in sources for p in _notebooks(source)]
    own = {p.resolve() for p in files}
    secrets = secrets_of(files, [p for place in public for p in _files(place)])
    found: list[str] = []
    searched = 0
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place}: there is no such file or folder")
        for path in _files(place):
            if path.resolve() in own:
                found.append(f"{path}: the teacher's source itself")
                searched += 1
                continue
            for name, text in _texts(path):
                searched += 1
                found += [f"{name}: {what}" for what in _found(name, text, secrets)]
    return found, searched


def secrets_of(files: list[Path], public: list[Path]) -> Secrets:
    """The secrets of these sources, less what is public."""
    secret: list[tuple[str, str]] = []
    open_: list[str] = []
    if not files:
        raise notebooks.NotebookError("there is no source notebook to take secrets from")
    for path in files:
        before = len(secret)
        notebook, _ = notebooks.parse(path.read_bytes())
        for cell in notebooks.cells(notebook):
            hidden, shown = _split(cell)
            where = f"{path.stem}, {cell.grade_id or 'a cell'}"
            secret += [(line, where) for line in hidden]
            open_ += shown
        if len(secret) == before:
            raise notebooks.NotebookError(f"{path}: there is no solution and no hidden test in it")
    printed = "\n".join(t for path in public for _, t in _texts(path))
    markers = tuple(m for m in _MARKERS if m not in printed)
    text = "\n".join([*open_, printed])
    squeezed = _squeezed(text)
    for form in _forms(text):
        squeezed += form
    words = set(re.findall(r"\w+", text.lower()))
    lines = {
        s: where for line, where in secret
        if len(s := _squeezed(line)) >= LINE and s not in squeezed and not line.startswith("#")
    }  # fmt: skip
    only = {
        word: where for line, where in secret
        for word in re.findall(r"[^\W\d]\w+", line.lower())
        if len(word) >= WORD and word not in words
    }  # fmt: skip
    return Secrets(lines, only, markers)


def _split(cell: notebooks.Cell) -> tuple[list[str], list[str]]:
    """The lines of a cell that are secret, and those that are not."""
    secret: list[str] = []
    for begin, end in (
        (notebooks.BEGIN_SOLUTION, notebooks.END_SOLUTION),
        (notebooks.BEGIN_HIDDEN, notebooks.END_HIDDEN),
        (notebooks.BEGIN_SCHEME, notebooks.END_SCHEME),
    ):
        secret += [line.strip() for _, line in notebooks.inside(cell.source, begin, end)]
    # A cell that is released whole but for its mark scheme is a question; others are answers.
    parted = notebooks.BEGIN_SOLUTION in cell.source or notebooks.BEGIN_SCHEME in cell.source
    if cell.kind in ("solution", "manual") and not parted:
        secret = [line.strip() for line in cell.source.split("\n")]
    hidden = set(secret)
    return secret, [s for line in cell.source.split("\n") if (s := line.strip()) not in hidden]


def _found(name: str, text: str, secrets: Secrets) -> Iterator[str]:
    if name.lower().endswith("searchindex.js"):
        terms = set(re.findall(r"\w+", text.lower()))
        common: dict[str, set[str]] = {}
        for word, where in secrets.words.items():
            # The index keeps stems: "normalised" is there as "normalis".
            stems = {word, *(word[:n] for n in range(max(WORD, len(word) - 4), len(word)))}
            if hit := stems & terms:
                if "_" in word or any(c.isdigit() for c in word):
                    yield f"the word {min(hit)!r}, which is only in a secret of {where}"
                else:
                    common.setdefault(where, set()).add(min(hit))
        # One English word may stand on any page; several of one cell are no accident.
        for where, hits in common.items():
            if len(hits) >= COMMON:
                yield f"the words {', '.join(sorted(hits))}, which are only in a secret of {where}"
    forms = [_squeezed(text), *_forms(text)]
    for line, where in secrets.lines.items():
        if any(line in form for form in forms):
            yield f"a secret line of {where}: {line[:60]}"
    for marker in secrets.markers:
        if f"###{marker}" in text.replace("### ", "###"):
            yield f"the marker {marker!r}"


def _forms(text: str) -> list[str]:
    """`text` as it reads in other dresses, squeezed."""
    forms = [text]
    # JSON in a string of JSON, as a script may carry it.
    for _ in range(2):
        one = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), forms[-1])
        forms.append(one.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
    for one in list(forms):
        if "<" in one or "&" in one:
            forms.append(html.unescape(re.sub(r"<[^<>]*>", "", one)))
    return [_squeezed(one) for one in forms]


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _notebooks(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(p for p in source.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not found:
        raise notebooks.NotebookError(f"{source}: there is no notebook in it")
    return found


def _files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file())


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """The texts in a file: its own, or those of an archive's members."""
    if path.suffix.lower() not in _SKIPPED:
        yield from _unpacked(str(path), path.read_bytes(), 0)


def _unpacked(name: str, data: bytes, depth: int) -> Iterator[tuple[str, str]]:
    if depth < 3 and data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield from _unpacked(f"{name}!{member}", archive.read(member), depth + 1)
    elif depth < 3 and data[:2] == b"\x1f\x8b":
        yield from _unpacked(name, gzip.decompress(data), depth + 1)
    else:
        yield name, data.decode(errors="replace")
