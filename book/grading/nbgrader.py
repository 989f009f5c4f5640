"""The engine as nbgrader's execution step, for a course that is kept in nbgrader.

In `nbgrader_config.py`:

    from book.grading.nbgrader import configure
    c = get_config()
    configure(c)

Then `nbgrader autograde` grades with the engine: cells that were copied or deleted are forgiven,
and `nbgrader generate_feedback` shows no hidden tests and runs nothing that a student wrote.
Everything else stays nbgrader's own.
It reads the teacher's notebooks in the course's source folder. Only this module imports nbgrader.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from nbconvert.filters import clean_html, markdown2html
from nbconvert.preprocessors import ClearMetadataPreprocessor, CSSHTMLHeaderPreprocessor
from nbformat import from_dict
from nbformat.v4 import new_output
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    GetGrades,
    IgnorePattern,
    LimitOutput,
    NbGraderPreprocessor,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)
from traitlets import Dict, Unicode

from book.grading import notebooks, release
from book.grading.engine import Engine
from book.grading.submissions import Submission

_engines: dict[tuple[str, str, str], Engine] = {}


def configure(c: Any) -> None:
    """Put the engine into nbgrader's configuration `c`."""
    c.Autograde.sanitize_preprocessors = [
        ClearOutput, Deduplicate, Restore, OverwriteKernelspec, OverwriteCells,
        CheckCellMetadata,
    ]  # fmt: skip
    c.Autograde.autograde_preprocessors = [
        TrustedExecute, IgnorePattern, ClearMetadataPreprocessor, LimitOutput, SaveAutoGrades,
        AssignLatePenalties, CheckCellMetadata,
    ]  # fmt: skip
    c.OverwriteCells.add_missing_cells = True
    c.GenerateFeedback.preprocessors = [GetGrades, HideTests, CSSHTMLHeaderPreprocessor]
    # What a student writes into a text cell, or lets a cell show, must not run in a browser.
    # (nbgrader's own template does not ask the setting for the text cells.)
    c.HTMLExporter.sanitize_html = True
    c.HTMLExporter.filters = {"markdown2html": harmless}


def harmless(text: str) -> str:
    """Markdown as HTML, without script, handlers and links that run something."""
    return str(clean_html(markdown2html(text)))


class Deduplicate(DeduplicateIds):  # type: ignore[misc]
    """Makes the copy of a cell an ordinary cell.

    nbgrader leaves an empty record in it, which its next step takes for an old format, and stops.
    """

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        """Remove the empty record."""
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.metadata.get("nbgrader") == {}:
            del cell.metadata["nbgrader"]
        return cell, resources


class Restore(NbGraderPreprocessor):  # type: ignore[misc]
    """Puts back the cells that were lost, all of them if need be.

    nbgrader's own way puts each one behind the one that came before it, and stops the student's
    grading if that one is lost too.
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Insert each lost cell, as it was released, behind the one before it or at the end."""
        released = json.loads(release.released(_source(self, resources).read_bytes()))
        place = {cell.metadata.get("nbgrader", {}).get("grade_id"): n
                 for n, cell in enumerate(nb.cells)}  # fmt: skip
        before = None
        for cell in released["cells"]:
            own = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if own is None:
                continue
            if own not in place:
                at = place[before] + 1 if before in place else len(nb.cells)
                nb.cells.insert(at, from_dict({**cell, "source": "".join(cell["source"])}))
                place = {k: n + (n >= at) for k, n in place.items()} | {own: at}
            before = own
        return nb, resources


def _source(one: Any, resources: Any) -> Path:
    """The teacher's notebook of a submission.

    Raises:
        notebooks.NotebookError: if it is not there.
    """
    own = resources["nbgrader"]
    course = _course(one)
    folder = course.format_path(course.source_directory, ".", own["assignment"])
    source = Path(folder) / f"{own['notebook']}.ipynb"
    if not source.is_file():
        raise notebooks.NotebookError(
            f"{source}: the engine needs the teacher's notebook to grade submissions"
        )
    return source


def _course(one: Any) -> Any:
    course = one.parent.coursedir if hasattr(one.parent, "coursedir") else None
    return course if course is not None else one.parent.parent.coursedir


class TrustedExecute(NbGraderPreprocessor):  # type: ignore[misc]
    """Runs a submission with the engine and writes its results as outputs of the cells."""

    mode = Unicode(
        "sandbox", help='"sandbox", or "open": accept that submissions run uncontained'
    ).tag(config=True)
    limits = Dict(help="the limits of book.grading.limits.Limits that differ").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Grade the notebook."""
        row = self._graded(nb, resources)
        tests = {t["id"]: t for t in row["tests"]}
        told = {c["name"]: c for c in row["cells"]}
        for cell in nb.cells:
            if cell.cell_type != "code":
                continue
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            cell.execution_count, cell.outputs = None, []
            if grade_id in tests:
                cell.outputs = _test_outputs(tests[grade_id])
            elif grade_id in told:
                cell.outputs = _cell_outputs(told[grade_id])
        return nb, resources

    def _graded(self, nb: Any, resources: Any) -> dict[str, Any]:
        own = resources["nbgrader"]
        course, source = _course(self), _source(self, resources)
        key = (str(source), str(source.stat().st_mtime_ns), self.mode)
        if key not in _engines:
            _engines[key] = Engine(source, mode=self.mode, limits={"output": 20_000, **self.limits})
            atexit.register(_engines[key].close)
        with tempfile.TemporaryDirectory() as place:
            # As it was handed in, so that the points are those that it gets without nbgrader: in
            # `nb` the cells that lost their metadata come before the stubs that replaced them.
            path = (
                Path(
                    course.format_path(
                        course.submitted_directory, own["student"], own["assignment"]
                    )
                )
                / f"{own['notebook']}.ipynb"
            )
            if not path.is_file():
                path = Path(place) / f"{own['notebook']}.ipynb"
                path.write_text(json.dumps(nb), encoding="utf-8")
            (row,) = _engines[key].grade([Submission(own["student"], path)])
        if row["status"] == "error":
            raise RuntimeError(f"{own['student']}: {row['reason']}")
        return row


def _test_outputs(test: dict[str, Any]) -> list[Any]:
    """Outputs from which nbgrader reads the score: an error is 0, a number is partial credit."""
    if test["passed"]:
        return []
    if test["score"]:
        shown = [new_output("stream", name="stdout", text=test["reason"] + "\n")]
        score = new_output(
            "execute_result", data={"text/plain": str(test["score"])}, execution_count=None
        )
        return [*shown, score]
    return [_error("Wrong", test["reason"])]


def _cell_outputs(told: dict[str, Any]) -> list[Any]:
    outputs = [new_output("stream", name="stdout", text=told["out"])] if told["out"] else []
    if error := told["error"]:
        outputs.append(_error(error["name"], "\n".join([error["text"], *error["lines"]])))
    return outputs


def _error(name: str, text: str) -> Any:
    return new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


class HideTests(NbGraderPreprocessor):  # type: ignore[misc]
    """Takes hidden tests out of what is shown as feedback."""

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        """Remove the hidden part of a test cell."""
        if cell.metadata.get("nbgrader", {}).get("grade", False):
            source, found = notebooks.without(
                cell.source, notebooks.BEGIN_HIDDEN, notebooks.END_HIDDEN
            )
            if found:
                cell.source = source + "\n# Further tests are hidden."
        return cell, resources


def environment() -> dict[str, str]:
    """The variables with which nbgrader finds the book when it is not installed beside it."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
