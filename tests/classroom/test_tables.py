"""The table, the record and the pages: a row for everybody, a page for each, nothing mixed up."""

import csv
import json
import os
import sys

import pytest
from quick import Quick, table
from sample import ROW, submission, write

from book.grading import __main__ as command
from book.grading import feedback, running

TEST = {"id": "t", "score": 0.5, "max": 1.0, "passed": False, "reason": "", "detail": ""}


def pages(top):
    return sorted(p.name for p in (top / "pages").glob("*.html"))


ROSTER = "id,name,email,section\ns1,Ann Lee,a@x,A\ns2,Ben Poe,b@x,B\n+49,Cho Kim,c@x,B\n"


def test_who_handed_in_nothing_has_a_row_and_everybody_the_rosters_id(tmp_path, grade):
    write(tmp_path, "given/Ann Lee/parts.ipynb", submission())
    write(tmp_path, "given/+49/parts.ipynb", submission())
    write(tmp_path, "given/zoe/parts.ipynb", submission())
    roster = write(tmp_path, "roster.csv", ROSTER.encode())
    said, errors, rows = grade("--roster", roster)
    assert [(r["id"], r["student"], r["email"], r["section"], r["status"]) for r in rows] == [
        ("s1", "Ann Lee", "a@x", "A", "graded"), ("s2", "Ben Poe", "b@x", "B", "missing"),
        ("+49", "Cho Kim", "c@x", "B", "graded"), ("zoe", "zoe", "", "", "graded"),
    ]  # fmt: skip
    assert "1 handed in nothing: Ben Poe." in said
    assert "warning: not in the roster: zoe" in errors
    assert rows[3]["remarks"] == "not in the roster; the engine's"
    missing = json.loads((tmp_path / "o.json").read_text())[1]
    assert (missing["score"], missing["page"], missing["max"]) == (0, "", 10)
    assert [t["id"] for t in missing["tests"]] == ["t1", "t2", "t3"]
    assert pages(tmp_path) == ["Ann Lee.html", "Cho Kim.html", "zoe.html"]


def test_a_roster_that_is_wrong_ends_the_command_with_words(tmp_path, grade, monkeypatch, capsys):
    write(tmp_path, "given/ann/parts.ipynb", submission())
    asked = ["grade", tmp_path / "source/parts/parts.ipynb", tmp_path / "given", "--roster",
             write(tmp_path, "r.csv", b"x\n1\n")]  # fmt: skip
    assert command.main(list(map(str, asked))) == 2
    assert "no column `id` or `name`" in capsys.readouterr().err


def test_files_of_the_teachers_in_the_folder_are_no_submissions(tmp_path, grade):
    write(tmp_path, "given/ann.ipynb", submission())
    roster = write(tmp_path, "given/roster.csv", b"id\nann\n")
    _, _, rows = grade("--roster", roster)
    assert [r["student"] for r in rows] == ["ann"]


def test_which_file_counts_is_said_and_one_counts(tmp_path, grade):
    for n, name in enumerate(("aaaa", "bb", "ccc")):
        path = write(tmp_path, f"given/ann/{name}.ipynb", submission(last=name))
        os.utime(path, (n, n))
    write(tmp_path, "given/ben/parts.ipynb", submission())

    def counts(*words):
        said, _, rows = grade(*words)
        assert "Several files each from: ann." in said or len(rows) == 2
        return {r["file"].rsplit("/", 1)[1] for r in rows if r["counts"] == "yes"}

    assert counts() == {"ccc.ipynb", "parts.ipynb"}
    assert counts("--best") == {"aaaa.ipynb", "parts.ipynb"}
    assert counts("--latest") == {"ccc.ipynb", "parts.ipynb"}
    assert len(table(tmp_path)) == 2
    with pytest.raises(SystemExit):
        command.main(["grade", "a", "b", "--best", "--latest"])


def test_names_that_look_alike_are_warned_about_and_have_pages_of_their_own(tmp_path, grade):
    for name in ("a:b", "a_b", "ann", "Ann", "bob"):
        write(tmp_path, f"given/{name}/parts.ipynb", submission())
    _, errors, rows = grade()
    assert "warning: names that look alike: a:b, a_b" in errors
    assert "warning: names that look alike: Ann, ann" in errors
    told = {r["student"]: r for r in rows}
    assert "the name looks like another one's: a_b" in told["a:b"]["remarks"]
    assert "looks like" not in told["bob"]["remarks"]
    assert sorted(r["page"] for r in rows) == pages(tmp_path)
    assert told["bob"]["page"] == "bob.html"
    for r in rows:
        page = (tmp_path / "pages" / r["page"]).read_text()
        assert f"<p>{r['student']}: <strong>" in page
    # The roster's ids tell them apart.
    roster = write(tmp_path, "r.csv", b"id\na:b\na_b\nann\nAnn\nbob\n")
    _, errors, rows = grade("--roster", roster)
    assert "look" not in errors + "".join(r["remarks"] for r in rows)


def test_the_page_of_a_student_who_is_gone_is_removed_and_no_other(tmp_path, grade):
    for name in ("ann", "ben"):
        write(tmp_path, f"given/{name}/parts.ipynb", submission())
    grade()
    write(tmp_path, "pages/mine.html", b"the teacher's")
    assert pages(tmp_path) == ["ann.html", "ben.html", "mine.html"]
    (tmp_path / "given/ben/parts.ipynb").unlink()
    (tmp_path / "given/ben").rmdir()
    # A run that did not end knows nothing of who is gone.
    Quick.stop_after = 0
    grade("--afresh", code=130)
    assert pages(tmp_path) == ["ann.html", "ben.html", "mine.html"]
    Quick.stop_after = 10
    grade()
    assert pages(tmp_path) == ["ann.html", "mine.html"]


def test_two_assignments_may_have_their_pages_in_one_folder(tmp_path):
    for name in ("one", "two"):
        rows = [{**ROW, "student": "ann", "assignment": name}]
        feedback.write_all(rows, table=None, record=None, pages=tmp_path / "pages")
    assert pages(tmp_path) == ["ann - two.html", "ann.html"]
    assert "<h1>one</h1>" in (tmp_path / "pages/ann.html").read_text()


def test_there_is_a_table_after_every_row(tmp_path, grade, monkeypatch):
    for n in range(5):
        write(tmp_path, f"given/s{n}/parts.ipynb", submission())
    seen = []
    add = running.Run.write

    def looked(self, row):
        add(self, row)
        seen.append((len(table(tmp_path)), len(pages(tmp_path)), (tmp_path / "o.json").exists()))

    monkeypatch.setattr(running.Run, "write", looked)
    grade()
    assert [s[:2] for s in seen] == [(n, n) for n in range(1, 6)]
    assert seen[0][2]


def test_a_row_is_kept_for_its_content_wherever_that_lies_now(tmp_path, grade, monkeypatch):
    write(tmp_path, "given/ann/parts.ipynb", submission())
    grade()
    assert len(Quick.asked) == 1
    # Typed in another way, and under another folder.
    monkeypatch.chdir(tmp_path)
    words = ["grade", "source/parts/parts.ipynb", "given", "--csv", "o.csv", "--journal",
             ".o.json.journal"]  # fmt: skip
    assert command.main(words) == 0
    (tmp_path / "given/ann/parts.ipynb").rename(tmp_path / "given/ann/moved.ipynb")
    assert command.main(words) == 0
    assert len(Quick.asked) == 1
    assert table(tmp_path)[0]["file"] == os.path.join("given", "ann", "moved.ipynb")  # noqa: PTH118
    write(tmp_path, "given/ann/moved.ipynb", submission(q3="pass"))
    assert command.main(words) == 0
    assert len(Quick.asked) == 2


def test_a_name_that_is_no_text_ends_no_run_and_is_kept(tmp_path, grade):
    if sys.platform == "darwin":
        pytest.skip("the file system takes UTF-8 only")
    place = os.path.join(os.fsencode(tmp_path), b"given", "王小明".encode("gb18030"))  # noqa: PTH118
    os.makedirs(place)  # noqa: PTH103
    with open(os.path.join(place, b"parts.ipynb"), "w") as file:  # noqa: PTH118, PTH123
        json.dump(submission(), file)
    for _ in range(2):
        said, _, rows = grade()
        assert [r["student"] for r in rows] == ["王小明"]
    assert "1 were finished before" in said
    assert Quick.asked == [rows[0]["file"]]
    assert pages(tmp_path) == ["王小明.html"]


def test_pages_and_tables_take_text_for_text(tmp_path):
    odd = "<script>\x1b[2J\ud800\u202e=1"
    error = {"name": odd, "text": odd, "lines": [odd]}
    cells = [{"name": odd, "error": error}]
    one = {**ROW, "student": "../../etc/x", "reason": "=HYPERLINK(1)", "cells": cells,
           "tests": [{**TEST, "reason": odd}]}  # fmt: skip
    rows = [one, {**one, "file": "b"}, {**ROW, "student": "…"}]
    feedback.write_all(rows, table=tmp_path / "t.csv", record=None, pages=tmp_path / "pages")
    assert len(pages(tmp_path)) == 3
    for path in (tmp_path / "pages").glob("*.html"):
        assert "<script" not in path.read_text(encoding="utf-8")
    assert ",'=HYPERLINK(1)," in (tmp_path / "t.csv").read_text(encoding="utf-8-sig")


def test_an_id_stays_what_it_is_and_runs_nothing():
    # The id, and what stands beside it to be looked at.
    wanted = {
        "+1-1": ("+1-1", "'+1-1"), "@ann": ("@ann", "'@ann"), "-7": ("-7", "'-7"),
        "=1+1": ("'=1+1", "'=1+1"), "\uff1d1+1": ("'\uff1d1+1", "'\uff1d1+1"),
        "\uff0b49": ("\uff0b49", "'\uff0b49"), "@SUM(A1)": ("'@SUM(A1)", "'@SUM(A1)"),
        "+cmd|x!A1": ("'+cmd|x!A1", "'+cmd|x!A1"), "ann": ("ann", "ann"),
    }  # fmt: skip
    rows = [{**ROW, "student": name} for name in wanted]
    lines = list(csv.DictReader(feedback.csv_of(rows).removeprefix("\ufeff").splitlines()))
    assert sorted((r["id"], r["student"]) for r in lines) == sorted(wanted.values())
