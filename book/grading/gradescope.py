"""The engine as a Gradescope autograder: the archive to upload, and `results.json`.

    python -m book.grading gradescope SOURCE autograder.zip

Gradescope unpacks the archive into `/autograder/source`, runs `setup.sh` once, and for every
submission, in a container of its own, `run_autograder`, which runs this module. The form of both
is that of Gradescope's autograder specifications.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from book.grading import feedback, memory, notebooks, submissions
from book.grading.engine import ROOT, Engine, EngineError
from book.grading.submissions import Submission

# What the engine and the checkers import, in the versions of the environment that packs.
NEEDED = ("torch", "numpy", "nbformat", "PyYAML", "ipython")

_SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image.
set -eu
apt-get update
apt-get install -y --no-install-recommends bubblewrap python3-pip
python3 -m pip install uv
export UV_PYTHON_INSTALL_DIR=/opt/python
python3 -m uv venv --python 3.11 /autograder/env
python3 -m uv pip install --python /autograder/env/bin/python -r /autograder/source/requirements.txt
chmod -R go-rwx /autograder/source
"""
_RUN = """\
#!/usr/bin/env bash
# Gradescope runs this for every submission. The two variables are for trying it elsewhere.
set -eu
place="${{AUTOGRADER:-/autograder}}"
cd "$place/source/repository"
export PYTHONPATH=. OMP_NUM_THREADS=1
exec "${{PYTHON:-$place/env/bin/python}}" -m book.grading.gradescope \\
  "$place/source/assignment/{name}.ipynb" "$place/submission" "$place/results/results.json"
"""


def pack(source: Path, out: Path) -> int:
    """Write the archive for an assignment to `out`; how many files are in it.

    It holds the hidden tests: it is for Gradescope only.

    Raises:
        notebooks.NotebookError: if the source is no assignment, or a package is missing here.
    """
    source = notebooks.only(source)
    work = notebooks.assignment(source)
    files: dict[str, bytes] = {}
    for folder in ("book", "transformer_parts"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yml") and "__pycache__" not in path.parts:
                files[f"repository/{path.relative_to(ROOT).as_posix()}"] = path.read_bytes()
    # What is known of the book's own model, beside which the capstone is measured.
    files["repository/model/made.json"] = (ROOT / "model/made.json").read_bytes()
    files[f"assignment/{work.name}.ipynb"] = source.read_bytes()
    try:
        wanted = [f"{name}=={importlib.metadata.version(name)}" for name in NEEDED]
    except importlib.metadata.PackageNotFoundError as error:
        raise notebooks.NotebookError(f"{error.name} is not installed here") from None
    # The label behind a + says how torch was built, and only some places have it.
    files["requirements.txt"] = "".join(f"{w.split('+')[0]}\n" for w in wanted).encode()
    files["setup.sh"] = _SETUP.encode()
    files["run_autograder"] = _RUN.format(name=work.name).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            program = name in ("setup.sh", "run_autograder")
            info.external_attr = (0o100755 if program else 0o100644) << 16
            archive.writestr(info, data)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(buffer.getvalue())
    return len(files)


def results(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the engine in the form of `results.json`; nothing in it comes from hidden tests."""
    told = []
    if row["status"] != "graded":
        told.append(f"It could not be graded: {feedback.public(row['reason'])}")
    told += [f"Remark: {text}" for text in row["remarks"]]
    for cell in row["cells"]:
        if error := cell["error"]:
            said = "\n".join([f"{error['name']}: {error['text']}", *error["lines"]])
            told.append(f"The cell {cell['name']} did not run:\n{said}")
    return {
        "score": row["score"],
        "execution_time": round(row["seconds"]),
        "output": "\n\n".join(told),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": test["id"],
                "score": test["score"],
                "max_score": test["max"],
                "status": "passed" if test["passed"] else "failed",
                "output": feedback.public(test["reason"]) or "right",
                "output_format": "text",
                "visibility": "visible",
            }
            for test in row["tests"]
        ],
    }


def graded(source: Path, one: Submission) -> dict[str, Any]:
    """The row of a submission: in the sandbox, or without it where the container allows none.

    Raises:
        EngineError: if it cannot be graded at all.
    """
    limits = {"memory_mb": memory.default_mb(1)}
    try:
        with Engine(source, limits=limits) as engine:
            engine.start()
            return next(engine.grade([one]))
    except EngineError as error:
        # For the teacher, who alone sees what is printed.
        print(f"{error}\nGraded without the sandbox: full marks are no proof.")
    with Engine(source, mode="open", limits=limits) as engine:
        engine.start()
        return next(engine.grade([one]))


def main(words: list[str]) -> int:
    """Grade what is in a folder and write the results: SOURCE FOLDER RESULTS."""
    source, folder, out = map(Path, words)
    work = notebooks.assignment(source)
    row = graded(source, submissions.of_one(folder, "submission", work.name))
    if row["status"] == "error":
        # Without results Gradescope says that the autograder failed, not the student.
        print(row["reason"])
        return 1
    feedback.write(out, json.dumps(results(row), indent=1) + "\n")
    print(f"{row['score']:g} of {row['max']:g} points")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (notebooks.NotebookError, EngineError, OSError) as error:
        print(f"error: {error}")
        sys.exit(2)
