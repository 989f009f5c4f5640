"""Releasing, checking before handing in, and finding leaks."""

import copy
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sample import DOUBLE, cell, notebook, source, submission, write, write_source

from book.grading import __main__ as command
from book.grading import leaks, notebooks
from book.grading.release import release, released

ROOT = Path(__file__).resolve().parents[2]


def run(*words):
    return command.main([str(w) for w in words])


@pytest.fixture
def teacher(tmp_path):
    return write_source(tmp_path / "source")


def test_a_release_holds_no_solution_and_no_hidden_test(teacher, tmp_path, capsys):
    assert run("release", teacher.parent, tmp_path / "out") == 0
    text = (tmp_path / "out" / "parts.ipynb").read_text()
    assert "1 notebook released" in capsys.readouterr().out
    for secret in ("271828", "amax", "SOLUTION", "HIDDEN", "require"):
        assert secret not in text
    assert "raise NotImplementedError()" in text
    assert run("leaks", teacher.parent, "--in", tmp_path / "out") == 0


def test_other_files_of_an_assignment_come_along_and_hidden_ones_do_not(teacher, tmp_path):
    (teacher.parent / "data.csv").write_text("1,2")
    write(teacher.parent, ".ipynb_checkpoints/parts.ipynb", source())
    release(teacher.parent, tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").rglob("*")) == ["data.csv", "parts.ipynb"]


def test_a_release_does_not_replace_its_source(teacher, capsys):
    before = teacher.read_bytes()
    assert run("release", teacher, teacher.parent) == 2
    assert "would replace the source" in capsys.readouterr().err
    assert teacher.read_bytes() == before


BAD = {
    "without its 'END SOLUTION'": ("q1", "### BEGIN SOLUTION\nx = 1"),
    "comes before the last one's": (
        "q1",
        "### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION",
    ),
    "not a solution cell": ("imports", "### BEGIN SOLUTION\n### END SOLUTION"),
    "not a test cell": ("imports", "### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS"),
    "AUTOTEST": ("t1", "### AUTOTEST double(3)"),
}


@pytest.mark.parametrize("message", BAD)
def test_a_source_that_would_leak_is_refused(message):
    where, text = BAD[message]
    broken = source()
    for one in broken["cells"]:
        if one["id"] == where:
            one["source"] = text
    with pytest.raises(notebooks.NotebookError, match=message) as caught:
        released(json.dumps(broken).encode())
    assert where in str(caught.value)


def test_two_cells_of_one_id_are_refused():
    broken = source()
    broken["cells"].append(copy.deepcopy(broken["cells"][3]))
    with pytest.raises(notebooks.NotebookError, match="'q1'"):
        released(json.dumps(broken).encode())


ANSWERS = {"right": {}, "wrong": {"q3": "def double(n): return n"},
           "stub": {"q1": "raise NotImplementedError()"},
           "exits": {"q1": "raise SystemExit(0)"}}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_check_passes_right_answers_and_fails_others(tmp_path, capsys, name):
    path = write(tmp_path, f"{name}.ipynb", submission(**ANSWERS[name]))
    assert run("check", path) == (0 if name == "right" else 1)
    said = capsys.readouterr().out
    assert ("3 of 3 tests pass" in said) == (name == "right")
    assert ("FAIL" in said) == (name != "right")


def test_check_without_tests_is_an_error(tmp_path, capsys):
    assert run("check", write(tmp_path, "a.ipynb", notebook(cell("x = 1")))) == 2
    assert run("check", tmp_path / "none.ipynb") == 2
    assert "No such file" in capsys.readouterr().err


HTML = "<pre><span>return</span> <span>2</span> * n # twice the secret_ingredient &amp; more</pre>"
DRESSES = {
    "a.ipynb": lambda s: json.dumps({"cells": [{"source": s}]}),
    "a.html": lambda s: "<p>" + s.replace("&", "&amp;").replace(" ", "</span> <span>") + "</p>",
    "a.txt": lambda s: s.replace(" ", "   "),
    "a.js": lambda s: f"x = {json.dumps(json.dumps(s))}",
    "a.txt.gz": lambda s: gzip.compress(s.encode()),
}


@pytest.mark.parametrize("name", DRESSES)
@pytest.mark.parametrize(
    "secret", ['assert double("a&b") == "a&ba&b"', "    result = n + n + zero"]
)
def test_leaks_are_found_in_every_dress(tmp_path, name, secret):
    teacher = source()
    kind = 8 if "assert" in secret else 7
    marks = ("HIDDEN TESTS", "HIDDEN TESTS") if kind == 8 else ("SOLUTION", "SOLUTION")
    teacher["cells"][kind]["source"] = f"### BEGIN {marks[0]}\n{secret}\n### END {marks[1]}"
    path = write(tmp_path, "source/parts.ipynb", teacher)
    content = DRESSES[name](f"before\n{secret}\nafter")
    write(tmp_path, f"site/{name}", content if isinstance(content, bytes) else content.encode())
    found, searched = leaks.search([path], [tmp_path / "site"])
    assert searched == 1
    assert any("secret line" in one for one in found)


def test_the_search_index_may_not_hold_words_of_a_hidden_test(teacher, tmp_path):
    write(tmp_path, "site/searchindex.js", b'index({"terms":{"softmax":0,"secret_numb":1}})')
    found, _ = leaks.search([teacher], [tmp_path / "site"])
    assert len(found) == 1
    assert "secret_numb" in found[0]


def test_what_is_public_anyway_is_no_leak(teacher, tmp_path):
    line = "    f = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x"
    write(tmp_path, "site/a.html", line.encode())
    chapter = write(tmp_path, "chapter.py", line.encode())
    assert leaks.search([teacher], [tmp_path / "site"])[0]
    assert leaks.search([teacher], [tmp_path / "site"], [chapter])[0] == []


def test_a_marker_is_a_leak_unless_something_public_explains_it(teacher, tmp_path):
    guide = b"Write ### BEGIN SOLUTION before it."
    write(tmp_path, "site/guide.html", guide)
    (found,), _ = leaks.search([teacher], [tmp_path / "site"])
    assert found.endswith("the marker 'BEGIN SOLUTION'")
    public = write(tmp_path, "guide.md", guide)
    assert leaks.search([teacher], [tmp_path / "site"], [public])[0] == []
    write(tmp_path, "site/a.txt", b"### BEGIN HIDDEN TESTS")
    assert len(leaks.search([teacher], [tmp_path / "site"], [public])[0]) == 1


def test_the_source_itself_is_a_leak_and_nothing_to_search_is_an_error(teacher, tmp_path, capsys):
    assert run("leaks", teacher, "--in", teacher.parent) == 1
    assert "the teacher's source itself" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert run("leaks", teacher, "--in", tmp_path / "empty") == 2
    assert run("leaks", tmp_path / "empty", "--in", teacher) == 2
    bare = write(tmp_path, "bare.ipynb", notebook(cell(DOUBLE)))
    assert run("leaks", bare, "--in", teacher) == 2


@pytest.mark.parametrize("word", ["release", "check", "grade", "leaks", ""])
def test_every_command_has_help(word, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main([*([word] if word else []), "--help"])
    assert caught.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_only_names_of_the_solution_come_from_the_student():
    code = [cell("import torch\nabs = 3\nx = torch", "g", "given"),
            cell("import math\ndef f(n): return math.pi\ny, z = 1, 2\nabs = x = 4", "q",
                 "solution"),
            cell("f(abs)", "t", "test", points=1)]  # fmt: skip
    work = notebooks.assignment_of("a", notebooks.cells(notebook(*code)))
    assert work.names == {"f", "y", "z"}
    assert any("`x`" in w for w in work.warnings)


def test_copies_and_added_cells_are_run_and_copies_of_tests_are_not():
    copied = submission(last="extra = 1")
    copied["cells"].insert(4, {**copied["cells"][3], "source": "def my_softmax(x, dim): return 2"})
    copied["cells"].insert(6, copied["cells"][5])
    work = notebooks.assignment_of("parts", notebooks.cells(source()))
    plan = notebooks.plan(work, notebooks.cells(copied))
    assert [s.student for s in plan.steps if s.kind == "added"] == [
        "def my_softmax(x, dim): return 2", "extra = 1"]  # fmt: skip
    assert plan.remarks == ["2 cells are copies of others; all versions were run"]
    assert [s.name for s in plan.steps if s.kind == "test"] == ["t1", "t2", "t3"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [([cell("x = 1")], "no test cell"),
     ([cell("def f(:", "q", "solution"), cell("f()", "t", "test", points=1)], "cell q: line 1"),
     ([cell("f()", "t", "test", points=1), cell("f()", "t", "test", points=1)], "two cells"),
     ([cell("f()", "t", "test", points=-1)], "points of 't'")],
)  # fmt: skip
def test_a_source_that_cannot_be_graded_is_refused(cells, message):
    with pytest.raises(notebooks.NotebookError, match=message):
        notebooks.assignment_of("a", notebooks.cells(notebook(*cells)))


# ---- on GitHub


def test_the_workflow_runs_the_visible_tests_and_reports_their_points(tmp_path, capsys):
    teacher = write_source(tmp_path / "source")
    asked = ["release", str(teacher), str(tmp_path / "out"), "--github", "me/my-book"]
    assert command.main(asked) == 0
    said = capsys.readouterr().out
    path = tmp_path / "out" / ".github" / "workflows" / "classroom.yml"
    assert f"wrote {path}" in said
    steps = yaml.safe_load(path.read_text())["jobs"]["run-autograding-tests"]["steps"]
    assert steps[1]["with"] == {"repository": "me/my-book", "path": ".book"}
    # Its last step, as it stands there, with this repository in the place of the one it fetches.
    (tmp_path / "out" / ".book").symlink_to(ROOT)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = "print('::notice title=Autograding complete::Points 10/10')"
    for q3, points, code in ((DOUBLE, 10, 0), (DOUBLE.replace("2 * n", "3 * n"), 6, 1)):
        write(tmp_path / "out", "parts.ipynb", submission(q3=q3 + "\n" + printed))
        summary = tmp_path / f"{points}.md"
        env = {**os.environ, **steps[-1]["env"], "GITHUB_STEP_SUMMARY": str(summary), "PATH": path}
        done = subprocess.run(
            steps[-1]["run"], shell=True, cwd=tmp_path / "out", env=env, text=True,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        lines = done.stdout.splitlines()
        # Between these two GitHub takes no commands.
        stop = lines.index(next(x for x in lines if x.startswith("::stop-commands::")))
        token = lines[stop].removeprefix("::stop-commands::")
        after = lines[lines.index(f"::{token}::") + 1 :]
        assert after[0] == f"::notice title=Autograding complete::Points {points}/10"
        told = after[1].removeprefix("::notice title=Autograding report::")
        assert json.loads(told) == {"totalPoints": points, "maxPoints": 10}
        assert not [x for x in lines[:stop] + after[2:] if x.startswith("::")]
        assert f"| **all** | **{points} of 10** |" in summary.read_text()
        assert "| t3 | 4 of 4 |" in summary.read_text() or points == 6


@pytest.mark.parametrize(
    ("book", "name"), [("no-owner", "parts"), ("a/b; rm", "p"), ("a/b", "p q")]
)
def test_a_workflow_with_a_name_that_would_run_is_refused(tmp_path, book, name, capsys):
    teacher = write(tmp_path, f"{name}.ipynb", source())
    assert command.main(["release", str(teacher), str(tmp_path / "o"), "--github", book]) == 2
    assert "error: " in capsys.readouterr().err
