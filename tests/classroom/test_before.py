"""What a run does with the rows of the run before: it keeps them, and says what is different."""

import csv
import json
import shutil

import pytest
from quick import table
from sample import ROW, submission, write
from test_hand import Graded

from book.grading import __main__ as command
from book.grading import before, running

NAMES = ("ann", "ben", "cho", "dee")


@pytest.fixture
def course(tmp_path, grade, monkeypatch):
    """Four who handed in and one who did not; the engine gives every test the same points."""
    monkeypatch.setattr(running, "Engine", Graded)
    Graded.points = 1.0
    for n, name in enumerate(NAMES):
        write(tmp_path, f"given/{name}/parts.ipynb", submission(last=f"# {n}"))
    write(tmp_path, "r.csv", "\n".join(["id", *NAMES, "eve", ""]).encode())
    return grade


def run(top, *words, code=0, given="given", roster=True):
    people = ["--roster", top / "r.csv"] if roster else []
    asked = ["grade", top / "source/parts/parts.ipynb", top / given, *people, *words]
    assert command.main(list(map(str, asked))) == code


def scores(top):
    with (top / "o.csv").open(encoding="utf-8-sig") as file:
        return {r["id"]: r["score"] for r in csv.DictReader(file)}


ALL = {"ann": "5", "ben": "5", "cho": "5", "dee": "5", "eve": "0"}


def test_other_rows_stay_whatever_became_of_their_files_and_of_the_journal(tmp_path, course):
    course("--roster", tmp_path / "r.csv")
    assert scores(tmp_path) == ALL
    Graded.points = 2.0
    write(tmp_path, "given/ben/parts.ipynb", submission(last="# another"))
    shutil.rmtree(tmp_path / "given/cho")
    _, errors, _ = course("--roster", tmp_path / "r.csv", "--only", "ann")
    assert scores(tmp_path) == {**ALL, "ann": "7"}
    assert "the file may be another by now, but --only does not name: ben\n" in errors
    (tmp_path / ".o.json.journal").unlink()
    Graded.points = 3.0
    said, errors, _ = course("--roster", tmp_path / "r.csv", "--only", "dee")
    assert scores(tmp_path) == {**ALL, "ann": "7", "dee": "9"}
    assert "changed: dee: 5 -> 9 (t2: 1 -> 3, t3: 1 -> 3)" in said
    assert said.count("changed") == 1
    assert "4 rows stay as they are." in said
    # Their pages too, also that of the one whose file is gone.
    pages = {p.name for p in (tmp_path / "pages").glob("*.html")}
    assert pages == {f"{name}.html" for name in NAMES}
    record = json.loads((tmp_path / "o.json").read_text())
    assert sum(r["counts"] for r in record) == 5


def test_only_the_folder_of_the_one_may_be_given(tmp_path, course, capsys):
    course("--roster", tmp_path / "r.csv")
    Graded.points = 2.0
    out = ["--csv", tmp_path / "o.csv", "--json", tmp_path / "o.json"]
    run(tmp_path, *out, "--only", "ann", given="given/ann")
    assert scores(tmp_path) == {**ALL, "ann": "7"}
    marks = write(tmp_path, "m.csv", b"id,cell,points,reason\nben,t2,1,as it was\n")
    capsys.readouterr()
    run(tmp_path, *out, "--only", "ann", "--hand", marks, given="given/ann", roster=False)
    assert "nobody's id" not in capsys.readouterr().err
    # Nor is somebody missing who was not given.
    assert {r["status"] for r in table(tmp_path) if r["id"] != "eve"} == {"graded"}


def test_a_row_that_is_known_nowhere_is_not_dropped_but_asked_for(tmp_path, course, capsys):
    run(tmp_path, "--json", tmp_path / "a.json", "--csv", tmp_path / "o.csv")
    whole = (tmp_path / "o.csv").read_bytes()
    capsys.readouterr()
    # The journal is beside the record, and nobody names that.
    run(tmp_path, "--csv", tmp_path / "o.csv", "--only", "ann", code=2)
    errors = capsys.readouterr().err
    assert "--only: there is no row to keep of ben, cho, dee: give the record" in errors
    run(tmp_path, "--csv", tmp_path / "o.csv", "--only", "ann", code=2, given="given/ann",
        roster=False)  # fmt: skip
    assert f"{tmp_path / 'o.csv'} has rows of ben, cho, dee, eve" in capsys.readouterr().err
    assert (tmp_path / "o.csv").read_bytes() == whole
    Graded.points = 2.0
    run(tmp_path, "--csv", tmp_path / "o.csv", "--only", "ann", "--journal",
        tmp_path / ".a.json.journal")  # fmt: skip
    assert scores(tmp_path) == {**ALL, "ann": "7"}
    run(tmp_path, "--csv", tmp_path / "o.csv", "--json", tmp_path / "a.json", "--only", "ben")
    # The record is that of the first run.
    assert scores(tmp_path) == {**ALL, "ben": "7"}


@pytest.mark.parametrize("record", [True, False])
def test_an_interrupted_run_leaves_the_old_rows(tmp_path, course, monkeypatch, record):
    out = ["--csv", tmp_path / "o.csv", "--journal", tmp_path / "j"]
    out += ["--json", tmp_path / "o.json"] if record else []
    run(tmp_path, *out)

    class Stopped(Graded):
        def graded(self, some, jobs):
            yield from super().graded(some[:1], jobs)
            raise KeyboardInterrupt

    Graded.points = 2.0
    monkeypatch.setattr(running, "Engine", Stopped)
    run(tmp_path, *out, "--only", "ann", "ben", code=130)
    assert scores(tmp_path) == {**ALL, "ann": "7"}


def test_points_by_hand_of_others_stay(tmp_path, course):
    marks = write(tmp_path, "m.csv", b"id,cell,points,reason\nben,t2,3,unclear\ndee,t2,3,unclear\n")
    course("--roster", tmp_path / "r.csv", "--hand", marks)
    Graded.points = 2.0
    write(tmp_path, "m.csv", b"id,cell,points,reason\nben,t2,2,less\ndee,t2,3,unclear\n")
    _, errors, _ = course("--roster", tmp_path / "r.csv", "--only", "ann", "--hand", marks)
    assert scores(tmp_path) == {**ALL, "ann": "7", "ben": "7", "dee": "7"}
    assert "points by hand are not entered, since --only does not name the student: ben: t2\n" in (
        errors
    )
    _, errors, _ = course("--roster", tmp_path / "r.csv", "--only", "ann")
    assert scores(tmp_path)["dee"] == "7"
    assert "by hand" not in errors


def test_who_is_new_and_not_named_has_no_row_and_is_asked_for(tmp_path, course):
    course("--roster", tmp_path / "r.csv")
    write(tmp_path, "given/zoe/parts.ipynb", submission())
    write(tmp_path, "given/eve/parts.ipynb", submission())
    _, errors, _ = course("--roster", tmp_path / "r.csv", "--only", "ann", code=2)
    assert "no row to keep of zoe" in errors
    _, errors, _ = course("--roster", tmp_path / "r.csv", "--only", "ann", "zoe")
    # Who was missing has the row of before, and it is said that there is a file now.
    assert scores(tmp_path) == {**ALL, "zoe": "5"}
    assert "does not name: eve\n" in errors


def test_alike_answers_are_seen_among_those_who_stay(tmp_path, course, monkeypatch):
    prints = {"prints": {"q1": list(range(100))}}

    class Printing(Graded):
        def graded(self, some, jobs):
            for one, row in super().graded(some, jobs):
                yield one, row | (prints if one.student in ("ann", "ben") else {})

    monkeypatch.setattr(running, "Engine", Printing)
    course()
    alike = {r["student"]: r["alike"] for r in table(tmp_path)}
    assert alike["ann"] == "ben: q1"
    course("--only", "ann")
    assert {r["student"]: r["alike"] for r in table(tmp_path)} == alike


# ---------------------------------------------------------------- old against new


def test_changes_are_told_whatever_way_the_paths_are_typed(tmp_path, course, monkeypatch, capsys):
    course()
    monkeypatch.chdir(tmp_path)
    Graded.points = 2.0
    asked = ["grade", "source/parts/parts.ipynb", "./given/../given", "--json", "o.json",
             "--afresh"]  # fmt: skip
    assert command.main(asked) == 0
    said = capsys.readouterr().out
    assert said.count("changed: ") == 4
    assert "changed: ann: 5 -> 7 (t2: 1 -> 2, t3: 1 -> 2)" in said
    # Known by the file, with the id of a roster, and gone.
    write(tmp_path, "r.csv", b"id,name\ns1,ann\n")
    shutil.rmtree(tmp_path / "given/dee")
    Graded.points = 3.0
    assert command.main([*asked, "--roster", "r.csv"]) == 0
    said = capsys.readouterr().out
    assert "changed: ann: 7 -> 9" in said
    assert "changed: dee: 7 -> no row" in said
    assert said.count("changed: ") == 4


def test_points_by_hand_that_are_not_given_again_are_told(tmp_path, course):
    marks = write(tmp_path, "m.csv", b"id,cell,points,reason\nben,t2,3,unclear\n")
    course("--hand", marks)
    said, errors, _ = course()
    assert "points by hand that the record has are not given again (--hand): ben: t2\n" in errors
    assert "changed: ben: 7 -> 5 (t2: 3 -> 1)" in said
    said, errors, _ = course()
    assert "by hand" not in errors
    assert "changed" not in said


def row(score, *, essay=None, **more):
    tests = [{"id": "t", "score": score, "max": 5.0}]
    if essay is not None:
        tests.append({"id": "essay", "score": essay, "max": 5.0, "by_hand": True})
    return {**ROW, "id": "a", "counts": True, "tests": tests, "score": score + (essay or 0),
            **more}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [(row(2, essay=4), row(2), ["a: 6 -> 2 (essay: 4 -> none)"]),
     # The sum is the same, and not what it is of.
     (row(2, essay=0), row(2), ["a: 2 -> 2 (essay: 0 -> none)"]),
     (row(2, essay=3), row(3, essay=2), ["a: 5 -> 5 (t: 2 -> 3, essay: 3 -> 2)"]),
     (row(2, deduction=1), row(2), ["a: 2 -> 2 (late: -1 -> -0)"]),
     (row(2), row(2, remarks=["x"]), []),
     (row(2), row(3, counts=False), ["a: 2 -> no row"]),
     (row(2, assignment="other"), row(3), [])],
)  # fmt: skip
def test_what_is_different_is_told_with_the_tests(tmp_path, old, new, said):
    record = write(tmp_path, "o.json", json.dumps([old]).encode())
    assert before.Before(record, "x").changes([new]) == [f"changed: {text}" for text in said]


def test_what_is_no_record_is_none(tmp_path):
    for data in (b"", b"{}", b"[1]", b"null", b'[{"id": 1}]'):
        assert before.Before(write(tmp_path, "o.json", data), "x").rows == []
    assert before.Before(tmp_path / "none", "x").rows == []


def test_a_table_of_another_assignment_is_in_nobodys_way(tmp_path):
    for text in ("id,assignment\nann,other\n", "x\n1\n", 'id,assignment\n"', ""):
        path = write(tmp_path, "t.csv", text.encode())
        before.check_table(path, [], "parts")
    before.check_table(None, [], "parts")
