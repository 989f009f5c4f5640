"""The autograder for Gradescope: the archive has the documented form and grades where it is put."""

import json
import os
import stat
import subprocess
import sys
import zipfile

import pytest
from sample import submission, write, write_source
from test_runs import ROW, needs_sandbox

from book.grading import __main__ as command
from book.grading import gradescope, submissions

# What Gradescope's specifications allow: of the whole, and of a test.
WHOLE = {"score": float, "execution_time": int, "output": str, "output_format": str,
         "visibility": str, "stdout_visibility": str, "extra_data": dict, "tests": list,
         "leaderboard": list}  # fmt: skip
TEST = {"score": float, "max_score": float, "status": str, "name": str, "name_format": str,
        "number": str, "output": str, "output_format": str, "tags": list, "visibility": str,
        "extra_data": dict}  # fmt: skip
VISIBLE = {"hidden", "after_due_date", "after_published", "visible"}


def has_the_documented_form(told):
    for one, known in [(told, WHOLE), *((test, TEST) for test in told["tests"])]:
        assert one.keys() <= known.keys()
        for name, value in one.items():
            assert isinstance(value, (int, float) if known[name] is float else known[name]), name
        assert one["visibility"] in VISIBLE
        assert one["output_format"] in {"text", "html", "simple_format", "md", "ansi"}
    assert told["stdout_visibility"] == "hidden"
    assert {test["status"] for test in told["tests"]} <= {"passed", "failed"}
    return True


def test_results_say_what_a_student_may_know():
    right = {"id": "t1", "score": 3.0, "max": 3.0, "passed": True, "reason": "", "detail": ""}
    wrong = {"id": "t2", "score": 0.0, "max": 7.0, "passed": False}
    wrong |= {"reason": "a hidden test failed", "detail": "secret 271828"}
    tests = [right, wrong]
    error = {"name": "NameError", "text": "no x", "lines": ["line 1"]}
    told = gradescope.results(
        {**ROW, "score": 3.0, "tests": tests, "remarks": ["missing cells: q1"],
         "cells": [{"name": "q2", "error": error}, {"name": "q3", "error": None}]}
    )  # fmt: skip
    assert has_the_documented_form(told)
    assert [t["status"] for t in told["tests"]] == ["passed", "failed"]
    assert [t["output"] for t in told["tests"]] == ["right", "a hidden test failed"]
    assert "Remark: missing cells: q1" in told["output"]
    assert "The cell q2 did not run:\nNameError: no x\nline 1" in told["output"]
    assert "271828" not in json.dumps(told)
    lost = gradescope.results({**ROW, "status": "unreadable", "reason": "the file is empty"})
    assert lost["output"] == "It could not be graded: the file is empty"
    assert has_the_documented_form(lost)


def test_all_that_lies_in_the_folder_is_one_students(tmp_path):
    write(tmp_path, "hw_1_2_a.ipynb", submission())
    write(tmp_path, "data/other.ipynb", submission())
    write(tmp_path, "Parts-1.ipynb", submission())
    assert submissions.of_one(tmp_path, "s", "parts").file == "Parts-1.ipynb"
    (tmp_path / "empty").mkdir()
    assert "is empty" in submissions.of_one(tmp_path / "empty", "s", "parts").problem
    write(tmp_path, "pdf/hw.pdf", b"x")
    assert "saw: hw.pdf" in submissions.of_one(tmp_path / "pdf", "s", "parts").problem


@needs_sandbox
def test_the_archive_grades_where_gradescope_puts_it(tmp_path, capsys):
    teacher = write_source(tmp_path / "teacher")
    packed = tmp_path / "out" / "autograder.zip"
    assert command.main(["gradescope", str(teacher), str(packed)]) == 0
    assert f"wrote {packed}" in capsys.readouterr().out
    top = tmp_path / "autograder"
    with zipfile.ZipFile(packed) as archive:
        at_top = {name for name in archive.namelist() if "/" not in name}
        assert at_top == {"setup.sh", "run_autograder", "requirements.txt"}
        for name in ("setup.sh", "run_autograder"):
            assert archive.getinfo(name).external_attr >> 16 & stat.S_IXUSR
            assert archive.read(name).startswith(b"#!/usr/bin/env bash\n")
        archive.extractall(top / "source")
    assert "torch==" in (top / "source/requirements.txt").read_text()
    # As `setup.sh` makes it and Gradescope copies it.
    program = top / "run_autograder"
    program.write_bytes((top / "source/run_autograder").read_bytes())
    program.chmod(0o755)
    (top / "results").mkdir()
    write(top, "submission/parts.ipynb", submission(q3="def double(n): return n"))
    env = {**os.environ, "AUTOGRADER": str(top), "PYTHON": sys.executable}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 of 10 points" in done.stdout
    told = json.loads((top / "results/results.json").read_text())
    assert has_the_documented_form(told)
    assert told["score"] == sum(t["score"] for t in told["tests"]) == 6
    assert {t["name"]: t["max_score"] for t in told["tests"]} == {"t1": 3, "t2": 3, "t3": 4}
    assert "271828" not in json.dumps(told)


@pytest.mark.parametrize("name", ["none.ipynb", "."])
def test_a_source_that_is_none_is_an_error(tmp_path, name, capsys):
    assert command.main(["gradescope", str(tmp_path / name), str(tmp_path / "o.zip")]) == 2
    assert "error: " in capsys.readouterr().err
