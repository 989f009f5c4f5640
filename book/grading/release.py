"""Makes the students' version of an assignment, as `nbgrader generate_assignment` does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from book.grading.notebooks import (
    BEGIN_HIDDEN,
    BEGIN_SCHEME,
    BEGIN_SOLUTION,
    END_HIDDEN,
    END_SCHEME,
    END_SOLUTION,
    NotebookError,
    parse,
    without,
)

CODE_STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
TEXT_STUB = "YOUR ANSWER HERE"
_KEYS = ("schema_version", "grade", "solution", "locked", "task", "grade_id", "points")


def release(source: Path, out: Path) -> list[Path]:
    """Write the students' version of a notebook, or of a folder with all its other files.

    Raises:
        NotebookError: with the file, the cell and what is wrong, if the source cannot be released.
    """
    if source.is_file():
        return [_write(source, out / source.name if out.suffix != ".ipynb" else out)]
    if not source.is_dir():
        raise NotebookError(f"{source}: there is no such file or folder")
    written = []
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_dir() or any(part.startswith((".", "__")) for part in relative.parts):
            continue
        target = out / relative
        if path.suffix == ".ipynb":
            written.append(_write(path, target))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    if not written:
        raise NotebookError(f"{source}: there is no notebook in it")
    return written


def _write(source: Path, target: Path) -> Path:
    if target.exists() and target.samefile(source):
        raise NotebookError(f"{source}: the students' version would replace the source")
    try:
        text = released(source.read_bytes())
    except NotebookError as error:
        raise NotebookError(f"{source}: {error}") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8", newline="\n")
    return target


def released(data: bytes) -> str:
    """The text of the students' version of the notebook in `data`.

    Raises:
        NotebookError: if a region is in the wrong kind of cell, or cells share an id.
    """
    notebook, _ = parse(data)
    if notebook.get("nbformat") != 4:
        raise NotebookError("the source is not in notebook format 4; save it with Jupyter")
    notebook["cells"] = [_released(cell) for cell in notebook["cells"]]
    ids = [c["metadata"]["nbgrader"].get("grade_id") for c in notebook["cells"]
           if "nbgrader" in c["metadata"]]  # fmt: skip
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise NotebookError(f"several cells have the grade_id {', '.join(map(repr, twice))}")
    meta = notebook.setdefault("metadata", {})
    for key in ("celltoolbar", "orig_nbformat", "orig_nbformat_minor", "signature"):
        meta.pop(key, None)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _released(cell: dict[str, Any]) -> dict[str, Any]:
    cell = dict(cell)
    source = cell.get("source", "")
    source = "".join(source) if isinstance(source, list) else source
    code = cell["cell_type"] == "code"
    cell["metadata"] = metadata = dict(cell.get("metadata") or {})
    # Some versions of Jupyter write whether the cell was trusted, which nbformat removes.
    metadata.pop("trusted", None)
    meta = metadata.get("nbgrader")
    if meta is not None:
        meta = metadata["nbgrader"] = {k: v for k, v in meta.items() if k in (*_KEYS, "cell_type")}
        meta.setdefault("task", False)
    meta = meta or {}
    grade, solution, task = (bool(meta.get(k)) for k in ("grade", "solution", "task"))
    locked = not solution and (grade or bool(meta.get("locked")))
    where = f"cell {meta.get('grade_id') or source.strip()[:40]!r}"
    if "### AUTOTEST" in source or "### HASHED AUTOTEST" in source:
        raise NotebookError(f"{where}: AUTOTEST lines need nbgrader itself; write the tests out")
    if meta:
        _complete(meta, where, grade or solution or locked or task)
    if grade or solution or locked:
        metadata["deletable"] = False
        if not solution:
            metadata["editable"] = False
    try:
        source, found = without(source, BEGIN_SOLUTION, END_SOLUTION,
                                CODE_STUB if code else TEXT_STUB)  # fmt: skip
        if found and not solution:
            raise NotebookError("a solution region stands in a cell that is not a solution cell")
        if solution and not found:
            source = CODE_STUB if code else TEXT_STUB
        source, found = without(source, BEGIN_HIDDEN, END_HIDDEN)
        if found and not grade:
            raise NotebookError("hidden tests stand in a cell that is not a test cell")
        source, found = without(source, BEGIN_SCHEME, END_SCHEME)
        if found and not task:
            raise NotebookError("a mark scheme stands in a cell that is not a task cell")
    except NotebookError as error:
        raise NotebookError(f"{where}: {error}") from None
    if code:
        cell["outputs"], cell["execution_count"] = [], None
        for key in ("collapsed", "scrolled"):
            metadata.pop(key, None)
    if grade or solution or locked:
        meta["checksum"] = _checksum(source, cell["cell_type"], meta, grade, solution, locked)
        meta["cell_type"] = cell["cell_type"]
    cell["source"] = source.splitlines(keepends=True)
    return cell


def _complete(meta: dict[str, Any], where: str, marked: bool) -> None:
    if meta.get("schema_version") != 3:
        raise NotebookError(f"{where}: nbgrader's metadata need schema_version 3")
    if marked and not meta.get("grade_id"):
        raise NotebookError(f"{where}: it needs a grade_id")
    if meta.get("grade") and "points" not in meta:
        raise NotebookError(f"{where}: a test cell needs points")


def _checksum(source: str, cell_type: str, meta: dict[str, Any], *flags: bool) -> str:
    """Nbgrader's checksum of a cell, by which it sees that one was changed."""
    parts = [source, cell_type, *map(str, flags), meta["grade_id"]]
    if flags[0]:
        parts.append(str(float(meta["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()
