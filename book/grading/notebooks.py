"""Reads notebooks for grading: any JSON file that a student may hand in, and the teacher's source.

The files are read with `json` and checked here. The package nbformat would validate them by a
schema: that costs seconds at import, and refuses notebooks that can be graded.
"""

from __future__ import annotations

import ast
import builtins
import codecs
import functools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGIN_SOLUTION, END_SOLUTION = "BEGIN SOLUTION", "END SOLUTION"
BEGIN_HIDDEN, END_HIDDEN = "BEGIN HIDDEN TESTS", "END HIDDEN TESTS"
BEGIN_SCHEME, END_SCHEME = "BEGIN MARK SCHEME", "END MARK SCHEME"


# More code than that is not a person's. In characters: of a notebook, and of a cell that is read
# for what it defines, which takes some hundred times its size.
CODE_LIMIT = 4 << 20
PARSED_LIMIT = 100_000
# Characters of an answer that a person reads.
ANSWER_LIMIT = 20_000


class NotebookError(ValueError):
    """A file that is not a notebook, or a source that is not an assignment."""


@dataclass(frozen=True)
class Cell:
    """One cell, with what nbgrader's metadata say about it."""

    kind: str  # "solution", "test", "given", "manual" or "free"
    type: str
    source: str
    grade_id: str = ""
    cell_id: str = ""
    points: float = 0.0


# ---- any notebook


def parse(data: bytes) -> tuple[dict[str, Any], list[str]]:
    """The notebook in `data`, and remarks about how it had to be read.

    Raises:
        NotebookError: if there is none in it.
    """
    text, remarks = _decoded(data)
    if not text.strip():
        raise NotebookError("the file is empty; save the notebook and hand it in again")
    try:
        notebook = json.loads(text)
    except RecursionError:
        raise NotebookError("the JSON is nested too deep for a notebook") from None
    except ValueError as error:
        raise NotebookError(
            f"the file is not JSON ({error}); a notebook is saved as .ipynb, not exported or edited"
        ) from None
    if not isinstance(notebook, dict):
        raise NotebookError("the file is JSON but not a notebook: it holds no cells")
    if not isinstance(notebook.get("cells"), list):
        sheets = notebook.get("worksheets")
        if not isinstance(sheets, list):
            raise NotebookError("the file is JSON but not a notebook: it holds no cells")
        # Format 3, of 2013.
        cells: list[Any] = []
        for sheet in sheets:
            if isinstance(sheet, dict) and isinstance(sheet.get("cells"), list):
                cells += sheet["cells"]
        notebook["cells"] = cells
        remarks.append("the notebook is in format 3; read as format 4")
    return notebook, remarks


def _decoded(data: bytes) -> tuple[str, list[str]]:
    for mark, name in ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"),
                       (codecs.BOM_UTF16_BE, "utf-16")):  # fmt: skip
        if data.startswith(mark):
            remarks = [] if name == "utf-8-sig" else ["the file is in UTF-16, not UTF-8"]
            return data.decode(name, errors="replace"), remarks
    try:
        return data.decode(), []
    except UnicodeDecodeError:
        pass
    # Notebooks that went through an editor on a Chinese Windows.
    try:
        return data.decode("gb18030"), ["the file is not UTF-8; read as GB 18030"]
    except UnicodeDecodeError:
        return data.decode("latin-1"), ["the file is not UTF-8; read as Latin-1"]


def cells(notebook: dict[str, Any]) -> list[Cell]:
    """The cells of a notebook; what is not a cell is left out."""
    return [c for raw in notebook["cells"] if (c := _cell(raw)) is not None]


def _cell(raw: Any) -> Cell | None:
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input", ""))
    if isinstance(source, list):
        source = "".join(s for s in source if isinstance(s, str))
    if not isinstance(source, str):
        return None
    meta = _dict(_dict(raw.get("metadata")).get("nbgrader"))
    grade, solution = meta.get("grade") is True, meta.get("solution") is True
    locked, task = meta.get("locked") is True, meta.get("task") is True
    kind = "free"
    if task or (grade and solution):
        kind = "manual"
    elif solution:
        kind = "solution"
    elif grade:
        kind = "test"
    elif locked:
        kind = "given"
    points = meta.get("points", 0)
    numeric = isinstance(points, int | float) and not isinstance(points, bool)
    return Cell(
        kind=kind,
        type="code" if raw.get("cell_type") == "code" else "text",
        source=source.replace("\r\n", "\n"),
        grade_id=str(meta.get("grade_id", ""))[:200] if kind != "free" else "",
        cell_id=str(raw.get("id", ""))[:100],
        points=float(points) if numeric else 0.0,
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- regions between markers


def without(source: str, begin: str, end: str, stub: str | None = None) -> tuple[str, bool]:
    """`source` without the lines from one with `begin` to one with `end`, as nbgrader does it.

    `stub` takes their place, indented as the first of them was.

    Raises:
        NotebookError: if a region is not closed or another one opens in it.
    """
    kept, inside, found = [], False, False
    for line in source.split("\n"):
        if begin in line:
            if inside:
                raise NotebookError(f"a line with {begin!r} comes before the last one's {end!r}")
            inside = found = True
            if stub is not None:
                indent = line[: len(line) - len(line.lstrip())]
                kept += [indent + s for s in stub.split("\n")]
        elif end in line:
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        raise NotebookError(f"there is a {begin!r} without its {end!r}")
    return "\n".join(kept), found


def inside(source: str, begin: str, end: str) -> list[tuple[int, str]]:
    """The lines between the markers, with their numbers from 1."""
    lines, within = [], False
    for number, line in enumerate(source.split("\n"), 1):
        if begin in line:
            within = True
        elif end in line:
            within = False
        elif within:
            lines.append((number, line))
    return lines


# ---- the teacher's source


@dataclass(frozen=True)
class Assignment:
    """The source notebook of an assignment."""

    name: str
    cells: tuple[Cell, ...]
    # The names that may come from the student, and those of them that a cell refers to.
    names: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    @property
    def maximum(self) -> float:
        """The points of the tests."""
        return sum(c.points for c in self.cells if c.kind == "test")


def only(path: Path) -> Path:
    """The notebook at `path`, or the only one in that folder.

    Raises:
        NotebookError: if the folder has none, or several.
    """
    if not path.is_dir():
        return path
    found = sorted(p for p in path.glob("*.ipynb") if not p.name.startswith("."))
    if len(found) != 1:
        raise NotebookError(f"{path}: expected one notebook in the folder, found {len(found)}")
    return found[0]


def assignment(path: Path) -> Assignment:
    """The assignment whose source is the notebook at `path`, or the only one in that folder.

    Raises:
        NotebookError: if it is not one, with what is missing.
    """
    path = only(path)
    try:
        notebook, _ = parse(path.read_bytes())
        return assignment_of(path.stem, cells(notebook))
    except OSError as error:
        raise NotebookError(f"{path}: {error.strerror}") from None
    except NotebookError as error:
        raise NotebookError(f"{path}: {error}") from None


def assignment_of(name: str, all_cells: list[Cell]) -> Assignment:
    """The assignment made of these cells.

    Raises:
        NotebookError: if they are none.
    """
    if not any(c.kind == "test" for c in all_cells):
        raise NotebookError(
            "there is no test cell in it. Grade with the teacher's source, and mark the cells with "
            "tests in its metadata: nbgrader = {grade: true, solution: false, points: 1, ...}"
        )
    seen: set[str] = set()
    for c in all_cells:
        if c.kind in ("free",):
            continue
        if not c.grade_id:
            raise NotebookError(f"a {c.kind} cell has no grade_id: {_first_line(c.source)}")
        if c.grade_id in seen:
            raise NotebookError(f"two cells have the grade_id {c.grade_id!r}")
        seen.add(c.grade_id)
        if c.points < 0 or c.points != c.points or c.points == float("inf"):
            raise NotebookError(f"the points of {c.grade_id!r} are not a number of points")
    defined: set[str] = set()
    imported: set[str] = set()
    given: set[str] = set()
    modules: set[str] = set()
    for c in all_cells:
        if c.type != "code":
            continue
        tree = _tree(c)
        if c.kind in ("solution", "manual"):
            made, brought = _bound(tree)
            defined |= made
            imported |= brought
        elif c.kind != "test":
            given |= set().union(*_bound(tree))
            modules |= _modules(tree)
    clash = sorted(defined & given)
    remarks = [
        f"`{n}` is defined by a given cell and by a solution cell: tests use the given one"
        for n in clash
    ]
    names = defined - imported - given - set(dir(builtins))
    return Assignment(
        name, tuple(all_cells), frozenset(names), tuple(remarks), tuple(sorted(modules))
    )


@functools.cache
def referred(source: str) -> frozenset[str]:
    """The names that `source`, the teacher's, mentions."""
    try:
        tree = ast.parse(plain(source))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset(re.findall(r"\w+", source))
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))


def plain(source: str) -> str:
    """`source` with the lines that only IPython understands turned into `pass`."""
    return re.sub(r"(?m)^([ \t]*)[%!?][^\n]*$", r"\1pass", source)


def _tree(cell: Cell) -> ast.Module:
    try:
        return ast.parse(plain(cell.source))
    except SyntaxError as error:
        name = cell.grade_id or _first_line(cell.source)
        raise NotebookError(f"cell {name}: line {error.lineno}: {error.msg}") from None


def _bound(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The names that a cell binds at its top level, made there and imported."""
    made: set[str] = set()
    brought: set[str] = set()

    def look(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                made.add(node.name)
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                brought.update((a.asname or a.name).split(".")[0] for a in node.names)
                continue
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.stmt):
                    look([part])
                elif isinstance(part, ast.ExceptHandler | ast.match_case):
                    look(part.body)
                else:
                    made.update(
                        n.id for n in ast.walk(part)
                        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                    )  # fmt: skip

    look(tree.body)
    return made, brought


def _modules(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {m for m in found if m.split(".")[0] not in ("book", "transformer_parts")}


# What a definition may compute without doing anything else.
_STILL = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict,
    ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip


def defines(source: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """The names that a cell of a student's binds and those it mentions, if it only defines things.

    None if it may do more: what ran before it could then act in another way after it.
    """
    if len(source) > PARSED_LIMIT:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not all(_only_defines(one) for one in tree.body):
        return None
    bound = frozenset().union(*_bound(tree))
    return bound, bound | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _only_defines(one: ast.stmt) -> bool:
    if isinstance(one, ast.FunctionDef):
        a = one.args
        given = [
            *a.defaults,
            *(d for d in a.kw_defaults if d),
            *([one.returns] if one.returns else []),
        ]
        every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
        given += [x.annotation for x in every if x.annotation]
        return not one.decorator_list and _still(*given)
    if isinstance(one, ast.ClassDef):
        still = not one.decorator_list and not one.keywords and _still(*one.bases)
        return still and all(_only_defines(inner) for inner in one.body)
    if isinstance(one, ast.Assign):
        return all(isinstance(t, ast.Name) for t in one.targets) and _still(one.value)
    if isinstance(one, ast.Import | ast.ImportFrom):
        return all(a.name != "*" for a in one.names)
    return isinstance(one, ast.Pass) or (
        isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    )


def _still(*some: ast.expr) -> bool:
    return all(isinstance(node, _STILL) for one in some for node in ast.walk(one))


def _first_line(source: str) -> str:
    return repr(source.strip().split("\n")[0][:60])


# ---- a submission, laid over the source


@dataclass(frozen=True)
class Step:
    """One thing to do: run `student` in the student's process, then `trusted` in ours."""

    name: str
    kind: str
    student: str | None = None
    trusted: str | None = None
    points: float = 0.0
    # The student's process stays as it is here until `trusted` has run.
    served: bool = False


@dataclass
class Plan:
    """What is done with one submission, in order, and what was remarkable about it."""

    steps: list[Step] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def plan(work: Assignment, submitted: list[Cell]) -> Plan:
    """Lay a submission over the source.

    Raises:
        NotebookError: if it holds more code than a person writes.

    Tests and given cells are the teacher's, whatever was handed in. The source's order holds; cells
    that the student added run after the cell that they follow. A second copy of a cell is an added
    cell, so that of two versions of an answer the later one counts.
    """
    code = sum(len(c.source) for c in submitted if c.type == "code")
    if code > CODE_LIMIT:
        raise NotebookError(
            f"it holds {code >> 20} MB of code, and {CODE_LIMIT >> 20} are the most that is run; "
            "put data into a file or make them by a program"
        )
    source_by_grade = {c.grade_id: n for n, c in enumerate(work.cells) if c.grade_id}
    source_by_cell = {c.cell_id: n for n, c in enumerate(work.cells) if c.cell_id}
    mine: dict[int, Cell] = {}
    added: dict[int, list[Cell]] = {}
    copies = 0
    anchor = -1
    for c in submitted:
        n = source_by_grade.get(c.grade_id) if c.grade_id else None
        if n is None and not c.grade_id:
            n = source_by_cell.get(c.cell_id) if c.cell_id else None
        if n is not None and n not in mine and c.type == work.cells[n].type:
            mine[n], anchor = c, n
        elif c.type == "code" and c.source.strip():
            copies += n is not None
            if n is not None and work.cells[n].kind in ("test", "given"):
                continue
            added.setdefault(anchor, []).append(c)
    result = Plan()
    if copies:
        result.remarks.append(f"{copies} cells are copies of others; all versions were run")
    missing = [
        c.grade_id
        for n, c in enumerate(work.cells)
        if c.grade_id and n not in mine and c.kind != "text"
    ]
    if missing:
        result.remarks.append(f"missing cells: {', '.join(missing)}")
    _lay(work, mine, added, result)
    return result


def by_hand(work: Assignment, submitted: list[Cell]) -> dict[str, str]:
    """What a student wrote into the cells that a person reads, the beginning of each."""
    asked = {c.grade_id for c in work.cells if c.kind == "manual"}
    found: dict[str, str] = {}
    for c in submitted:
        if c.grade_id in asked:
            found.setdefault(c.grade_id, c.source[:ANSWER_LIMIT])
    return found


def _lay(
    work: Assignment, mine: dict[int, Cell], added: dict[int, list[Cell]], result: Plan
) -> None:
    number = 0
    for n in range(-1, len(work.cells)):
        if n >= 0 and work.cells[n].type == "code":
            c, own = work.cells[n], mine.get(n)
            name = c.grade_id or f"cell {n + 1}"
            served = bool(referred(c.source) & work.names)
            if c.kind == "test":
                result.steps.append(Step(name, "test", None, c.source, c.points, served=True))
            elif c.kind == "given":
                result.steps.append(Step(name, "given", c.source, c.source, served=served))
            elif c.kind == "free":
                # An example: the student's version runs there, the teacher's here.
                theirs = own.source if own else None
                result.steps.append(Step(name, "free", theirs, c.source, served=served))
            elif own:
                result.steps.append(Step(name, "solution", own.source, points=c.points))
        for extra in added.get(n, []):
            number += 1
            result.steps.append(Step(f"added cell {number}", "added", extra.source))
