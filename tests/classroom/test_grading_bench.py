"""The benchmark: its submissions are ordinary ones, and it says when two ways disagree."""

import json
import subprocess
import sys

import pytest
from sample import source, write_source

from book.grading import bench, notebooks


def test_the_submissions_are_right_empty_missing_and_wrong(tmp_path):
    given = bench.write(write_source(tmp_path), tmp_path / "given", 24)
    assert len({one.student for one in given}) == len(given) == 24
    texts = [one.path.read_text(encoding="utf-8") for one in given]
    assert all("HIDDEN" not in text and "271828" not in text for text in texts)
    answers = [
        {c.grade_id: c.source for c in notebooks.cells(json.loads(t)) if c.kind == "solution"}
        for t in texts
    ]
    assert "amax" in answers[0]["q1"]
    assert all("raise NotImplementedError" in text for text in answers[1].values())
    assert answers[3] == {**answers[0], "q1": bench.returns_its_argument(answers[0]["q1"])}
    # Each question is missing once; q2 is a class, which is not made wrong.
    assert len({json.dumps(a) for a in answers}) == 2 + 3 + 2


def test_a_function_that_returns_its_argument():
    assert (
        bench.returns_its_argument("def f(x, y):\n    return x + y") == "def f(x, y):\n    return x"
    )
    assert bench.returns_its_argument("def f():\n    return 1") is None
    assert bench.returns_its_argument("x = 1") is None


def test_it_prints_the_ratio_and_fails_when_the_scores_differ(tmp_path, monkeypatch, capsys):
    path = write_source(tmp_path)
    scores = {f"student-{n:03}": 10.0 for n in range(1, 25)}
    ours = bench.Timing(2.0, 2.4, 24, scores)
    theirs = {"same": bench.Timing(4.0, 48.0, 24, scores),
              "other": bench.Timing(4.0, 48.0, 24, {**scores, "student-003": 9.0})}  # fmt: skip
    monkeypatch.setattr(bench, "with_engine", lambda *a, **k: ours)
    for name, expected in (("same", 0), ("other", 1)):
        monkeypatch.setattr(bench, "with_nbgrader", lambda *a, name=name, **k: theirs[name])
        assert bench.main([str(path), "--nbgrader", sys.executable, "--count", "0"]) == expected
        said = capsys.readouterr().out
        assert "20.0 times without the start, 11.8 times with it" in said
        assert ("the same for all 24" in said) == (name == "same")
        assert ("the same for all 6" in said) == (name == "same")
        assert ("different for student-003" in said) == (name == "other")


def test_a_python_named_from_here_is_the_one_that_is_started(tmp_path, monkeypatch, capsys):
    path = write_source(tmp_path)
    program = tmp_path / "other" / "python"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    scores = {f"student-{n:03}": 10.0 for n in range(1, 25)}
    timing = bench.Timing(2.0, 2.4, 24, scores)
    named = []
    monkeypatch.setattr(bench, "with_engine", lambda *a, **k: timing)
    monkeypatch.setattr(bench, "with_nbgrader", lambda n, *a, **k: named.append(n) or timing)
    assert bench.main([str(path), "--nbgrader", "other/python", "--count", "0"]) == 0
    assert set(named) == {str(program)}
    with pytest.raises(SystemExit):
        bench.main([str(path), "--nbgrader", "none/python", "--count", "0"])
    assert "no program 'none/python'" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked at on Linux only")
def test_the_peak_counts_the_memory_of_processes_that_were_started(monkeypatch):
    monkeypatch.setattr(bench, "LOOK", 0.01)
    with bench.Peak() as plain:
        pass
    code = "x = bytearray(b'1' * 200_000_000); print('there', flush=True); input()"
    with bench.Peak() as peak:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        child.stdout.readline()
        for _ in range(3):
            seen = peak.looks
            while peak.looks == seen:
                pass
        child.communicate(b"\n")
    assert 190e6 < peak.bytes - plain.bytes < 450e6


@pytest.mark.parametrize("words", [["none.ipynb"], []])
def test_a_source_that_is_not_there_is_an_error(tmp_path, capsys, words):
    assert bench.main([str(tmp_path / w) for w in words] or [str(tmp_path)]) == 2
    assert "error: " in capsys.readouterr().err


def test_the_sample_has_all_kinds_of_cells():
    assert {c.kind for c in notebooks.cells(source())} >= {"solution", "test", "given"}
