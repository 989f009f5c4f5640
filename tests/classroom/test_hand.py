"""Points by hand merge with those of the tests and survive a regrade; a change has a reason."""

import csv
import json

import pytest
from quick import Idle, table
from sample import ROW, source, submission, write
from test_tables import ROSTER

from book.grading import __main__ as command
from book.grading import notebooks, running

TESTS = {"t1": 3.0, "t2": 3.0, "t3": 4.0}


def essay(text):
    marks = {"grade": True, "solution": True, "locked": False, "task": False, "grade_id": "essay",
             "points": 5, "schema_version": 3}  # fmt: skip
    return {"cell_type": "markdown", "id": "essay", "metadata": {"nbgrader": marks}, "source": text}


def with_essay(whole, text):
    whole["cells"].append(essay(text))
    return whole


class Graded(Idle):
    """An engine that gives full marks for t1 and what `Graded.points` says for the others."""

    points = 1.0

    def graded(self, some, jobs):
        for one in some:
            cells = notebooks.cells(json.loads(one.path.read_text()))
            scores = {"t1": 3.0, "t2": Graded.points, "t3": Graded.points}
            tests = [{"id": n, "score": scores[n], "max": m, "passed": False, "reason": "r",
                      "detail": "", "seconds": 0.0} for n, m in TESTS.items()]  # fmt: skip
            answers = notebooks.by_hand(self.work, cells)
            row = {"tests": tests, "score": sum(scores.values()), "max": 10.0,
                   "by_hand": ["essay"], "answers": answers}  # fmt: skip
            yield one, {**ROW, "assignment": "parts", **row}


@pytest.fixture
def grade(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "Engine", Graded)
    Graded.points = 1.0
    scheme = "### BEGIN MARK SCHEME\nTwo for a, three for b.\n### END MARK SCHEME\nWhy?"
    teacher = write(tmp_path, "source/parts.ipynb", with_essay(source(), scheme))
    for n, name in enumerate(("ann", "ben", "=cho")):
        write(tmp_path, f"given/{name}/parts.ipynb", with_essay(submission(), f"Because {n}."))

    def run(*words, code=0):
        asked = ["grade", teacher, tmp_path / "given", "--csv", tmp_path / "o.csv", "--json",
                 tmp_path / "o.json", "--feedback", tmp_path / "pages", *words]  # fmt: skip
        assert command.main(list(map(str, asked))) == code
        said = capsys.readouterr()
        return said.out, said.err, {r["student"].lstrip("'"): r for r in table(tmp_path)}

    return run


def test_a_sheet_is_written_filled_in_and_merged(tmp_path, grade):
    sheet = tmp_path / "sheet.csv"
    _, _, rows = grade("--hand-sheet", sheet)
    assert rows["ann"]["by_hand"] == "essay"
    lines = list(csv.DictReader(sheet.read_text("utf-8-sig").splitlines()))
    assert [(x["id"], x["cell"], x["max"], x["rubric"], x["answer"]) for x in lines] == [
        ("'=cho", "essay", "5", "Two for a, three for b.", "Because 2."),
        ("ann", "essay", "5", "Two for a, three for b.", "Because 0."),
        ("ben", "essay", "5", "Two for a, three for b.", "Because 1."),
    ]
    lines[0] |= {"points": "2,5", "reason": "a, and half of b"}
    lines[1] |= {"points": "5"}
    filled = tmp_path / "filled.csv"
    with filled.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        writer.writerows(lines)
    said, _, rows = grade("--hand", filled, "--hand-sheet", sheet)
    assert [(r["score"], r["max"], r["by_hand"]) for r in rows.values()] == [
        ("7.5", "15", ""), ("10", "15", ""), ("5", "10", "essay")]  # fmt: skip
    assert rows["ann"]["essay"] == "5"
    assert "changed: ann: 5 -> 10 (essay: 0 -> 5)" in said
    # Only what is still to be done.
    assert [x["id"] for x in csv.DictReader(sheet.read_text("utf-8-sig").splitlines())] == ["ben"]
    pages = "".join(p.read_text() for p in (tmp_path / "pages").glob("*cho*.html"))
    assert "a, and half of b" in pages


@pytest.mark.parametrize(
    "text",
    ["ID;Cell; Points ;Max\nann;essay;2,5;5\n", "sep=;\r\nid;cell;points\r\nann;essay;2,5\r\n",
     "id,cell,points\rann,essay,2.5\r", "id\tcell\tpoints\nann\tessay\t2.50\n"],
)  # fmt: skip
@pytest.mark.parametrize("coding", ["utf-8", "utf-16-le"])
def test_points_are_read_however_a_spreadsheet_wrote_them(tmp_path, grade, text, coding):
    _, _, rows = grade("--hand", write(tmp_path, "m.csv", text.encode(coding)))
    assert (rows["ann"]["score"], rows["ann"]["max"]) == ("7.5", "15")


def test_a_changed_test_has_its_reason_and_survives_a_regrade(tmp_path, grade):
    marks = write(tmp_path, "m.csv", b"id,cell,points,reason\nann,t2,3,the text was unclear\n")
    _, _, rows = grade("--hand", marks)
    assert (rows["ann"]["score"], rows["ann"]["t2"], rows["ben"]["score"]) == ("7", "3", "5")
    assert (
        "by hand: the text was unclear (the test gave 1)"
        in (tmp_path / "pages/ann.html").read_text()
    )
    Graded.points = 2.0
    said, _, rows = grade("--hand", marks, "--afresh")
    assert (rows["ann"]["score"], rows["ann"]["t2"], rows["ben"]["score"]) == ("8", "3", "7")
    assert "changed: ann: 7 -> 8 (t3: 1 -> 2)" in said
    assert "changed: ben: 5 -> 7 (t2: 1 -> 2, t3: 1 -> 2)" in said


def test_only_those_who_are_named_are_graded_anew(tmp_path, grade):
    grade()
    Graded.points = 2.0
    # Even with another source: a test was repaired for one student.
    write(tmp_path, "source/parts.ipynb", with_essay(source(), "Why not?"))
    said, _, rows = grade("--only", "ann")
    assert {n: r["score"] for n, r in rows.items()} == {"ann": "7", "ben": "5", "=cho": "5"}
    assert [x for x in said.splitlines() if x.startswith("changed")] == [
        "changed: ann: 5 -> 7 (t2: 1 -> 2, t3: 1 -> 2)"
    ]
    _, errors, _ = grade("--only", "zoe", code=2)
    assert "--only: nobody of that name: zoe" in errors


def test_points_for_somebody_who_handed_in_on_paper(tmp_path, grade):
    roster = write(tmp_path, "roster.csv", ROSTER.encode())
    marks = write(tmp_path, "m.csv", b"id;cell;points;reason\ns1;t1;3;on paper\nx9;t1;1;?\n")
    _, errors, rows = grade("--hand", marks, "--roster", roster)
    assert (rows["Ann Lee"]["status"], rows["Ann Lee"]["score"]) == ("missing", "3")
    assert "points by hand for nobody's id: x9" in errors


WRONG = {
    "id,points\nann,1\n": "no column cell",
    "id,cell,points\nann,t9,1\n": "line 2: there is no cell 't9'; there are t1, t2, t3, essay",
    "id,cell,points\nann,essay,six\n": "'six' are no points",
    "id,cell,points\nann,essay,6\n": "6 points; 'essay' has 5",
    "id,cell,points\nann,essay,-1\n": "-1 points; 'essay' has 5",
    "id,cell,points\nann,essay,nan\n": "'nan' are no points",
    "id,cell,points\nann,t1,1\n": "need a reason",
    "id,cell,points\nann,essay,1\nann,essay,2\n": "line 3: another line gives 'ann' other points",
    "id,cell,points\n,essay,1\n": "line 2: points, and no id",
    "points,id,cell\n1,ann\n": "line 2: there is no cell ''",
    # Not 2 points for the reason 5.
    "id,cell,points,reason\nann,essay,2,5,half\n": "line 2: more cells than columns",
    "id,Points,cell,points\nann,1,essay,2\n": "more than one column points",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_table_that_cannot_be_used_says_why(tmp_path, grade, text):
    _, errors, _ = grade_first(grade, write(tmp_path, "m.csv", text.encode()))
    assert WRONG[text] in errors


def grade_first(grade, marks):
    grade()
    return grade("--hand", marks, code=2)
