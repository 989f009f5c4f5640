"""A course in nbgrader itself: the same release, and the engine as its execution step.

nbgrader has an environment of its own, since it brings JupyterLab along: NBGRADER_PYTHON names its
Python. Without it these tests are skipped, unless REQUIRE_NBGRADER=1.
"""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sample import source, submission, text, write

from book.grading.release import release

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("NBGRADER_PYTHON", sys.executable)
CONFIG = """
import sys
sys.path.insert(0, {root!r})
c = get_config()
c.CourseDirectory.course_id = "parts"
c.Exchange.root = {exchange!r}
c.CourseDirectory.root = {course!r}
"""
ENGINE = "from book.grading.nbgrader import configure\nconfigure(c)\n"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course whose assignment is released with nbgrader."""
    asked = subprocess.run([PYTHON, "-c", "import nbgrader"], capture_output=True, text=True)
    if asked.returncode:
        reason = (
            "nbgrader is not importable: set NBGRADER_PYTHON to a Python that has nbgrader==0.9.6"
        )
        if os.environ.get("REQUIRE_NBGRADER"):
            pytest.fail(reason)
        pytest.skip(reason)
    top = tmp_path_factory.mktemp("course")
    (top / "exchange").mkdir(mode=0o777)
    (top / "exchange").chmod(0o777)
    write(top / "c" / "source" / "parts", "parts.ipynb", source())
    setting = CONFIG.format(root=str(ROOT), exchange=str(top / "exchange"), course=str(top / "c"))
    (top / "c" / "nbgrader_config.py").write_text(setting + ENGINE)
    nbgrader(top, "generate_assignment", "parts")
    return top


def environment(home):
    """Nbgrader calls other programs of its environment by name."""
    path = os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]])
    return {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "PATH": path}


def nbgrader(top, *words):
    done = subprocess.run(
        [PYTHON, "-m", "nbgrader", *words], cwd=top / "c", capture_output=True, text=True,
        env=environment(top), timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def test_the_release_is_the_one_that_nbgrader_makes(course, tmp_path):
    (mine,) = release(course / "c" / "source" / "parts", tmp_path)
    theirs = course / "c" / "release" / "parts" / "parts.ipynb"
    assert json.loads(mine.read_text()) == json.loads(theirs.read_text())
    assert mine.read_text() == theirs.read_text()


def test_every_assignment_is_released_as_nbgrader_releases_it(course, tmp_path):
    # All as notebooks of one assignment: nbgrader's start is paid once.
    sources = sorted((ROOT / "notebooks" / "assignments").glob("*/*.ipynb"))
    assert len(sources) >= 15
    for path in sources:
        write(course / "c" / "source" / "all", path.name, path.read_bytes())
    nbgrader(course, "generate_assignment", "all")
    mine = release(course / "c" / "source" / "all", tmp_path)
    theirs = sorted((course / "c" / "release" / "all").glob("*.ipynb"))
    assert [p.name for p in sorted(mine)] == [p.name for p in theirs] == [p.name for p in sources]
    different = [p.name for p in theirs if p.read_text() != (tmp_path / p.name).read_text()]
    assert different == []


def test_a_course_from_release_to_export(course):
    copied = submission()
    copied["cells"].insert(4, copied["cells"][3])
    lost = submission()
    del lost["cells"][4]
    hostile = submission("def my_softmax(x, dim):\n    return x", first="import os, torch\n"
                         "torch.allclose = lambda *a, **k: True")  # fmt: skip
    exits = submission("def my_softmax(x, dim):\n    import os; os._exit(0)")
    bare = submission()
    for n, one in enumerate(bare["cells"]):
        one["metadata"], one["id"] = {}, f"new-{n}"
    page = submission(last="from IPython.display import HTML\nHTML('<script>shown()</script>')")
    page["cells"].insert(
        1,
        text(
            "Look: <script>alert(1)</script><img src=x onerror=alert(2)>\n\n"
            "[here](java&#115;cript:alert(3)) and $a_1 < b$ **bold**"
        ),
    )
    given = {"ann": (submission(), 10), "copied": (copied, 10), "lost": (lost, 10),
             "hostile": (hostile, 7), "exits": (exits, 7), "bare": (bare, 10),
             "page": (page, 10)}  # fmt: skip
    for name, (content, _) in given.items():
        write(course / "c" / "submitted" / name / "parts", "parts.ipynb", content)
    nbgrader(course, "autograde", "parts", "--create")
    nbgrader(course, "generate_feedback", "parts")
    nbgrader(course, "export", "--to", str(course / "grades.csv"))
    with (course / "grades.csv").open() as file:
        scores = {r["student_id"]: float(r["score"] or 0) for r in csv.DictReader(file)}
    assert scores == {name: float(score) for name, (_, score) in given.items()}
    pages = list((course / "c" / "feedback").rglob("*.html"))
    assert len(pages) == len(given)
    for path in pages:
        shown = path.read_text()
        assert "271828" not in shown
        assert "x_secret_input" not in shown
        assert "Further tests are hidden" in shown
    (one,) = [p for p in pages if "/page/" in str(p)]
    shown = one.read_text()
    assert "Look:" in shown
    assert "<strong>bold</strong>" in shown
    # Its words may be there as text, but no script, no handler, no link that runs.
    assert not re.search(r"<script[^>]*>\s*(alert|shown)|<[^>]*onerror|href=.javascript", shown)


def test_collecting_from_the_exchange(course):
    nbgrader(course, "release_assignment", "parts", "--force")
    there = course / "exchange" / "parts" / "outbound" / "parts" / "parts.ipynb"
    assert "SOLUTION" not in there.read_text()
    home = course / "student"
    write(home / "parts", "parts.ipynb", submission())
    (home / "nbgrader_config.py").write_text((course / "c" / "nbgrader_config.py").read_text())
    done = subprocess.run(
        [PYTHON, "-m", "nbgrader", "submit", "parts"], cwd=home, capture_output=True, text=True,
        env=environment(home), timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    nbgrader(course, "collect", "parts")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert (course / "c" / "submitted" / user / "parts" / "parts.ipynb").is_file()
    nbgrader(course, "autograde", "parts", "--student", user, "--create")
    assert (course / "c" / "autograded" / user / "parts" / "parts.ipynb").is_file()
