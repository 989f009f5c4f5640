"""Late days: what is known of the time, what late days cover, and what the rest costs."""

import json
from datetime import datetime

import pytest
from quick import Quick
from sample import submission, write

from book.grading import __main__ as command
from book.grading import late, platforms, stats

DUE = ("--due", "2026-03-01 23:59")


def given(top, **times):
    """A submission of each, and the platform's table of their times."""
    for name in times:
        write(top, f"given/{name}/parts.ipynb", submission())
    lines = [f"{name},{when}" for name, when in times.items()]
    return "--times", write(top, "times.csv", "\n".join(["id,submitted", *lines]).encode())


def row(rows, name):
    (one,) = [r for r in rows if r["id"] == name]
    return one


@pytest.mark.parametrize(
    ("text", "when"),
    [("2026-03-01 23:59", datetime(2026, 3, 1, 23, 59)),
     ("2026-03-01T23:59:30", datetime(2026, 3, 1, 23, 59, 30)),
     ("Sunday, 1 March 2026, 11:59 PM", datetime(2026, 3, 1, 23, 59)),
     ("1 March 2026, 23:59", datetime(2026, 3, 1, 23, 59)),
     ("Mar 1, 2026 11:59 PM", datetime(2026, 3, 1, 23, 59)),
     ("01.03.2026 23:59", datetime(2026, 3, 1, 23, 59))],
)  # fmt: skip
def test_times_are_read_as_platforms_write_them(text, when):
    assert late.moment(text) == when
    with_zone = late.moment("2026-03-01 15:59:00 -0800")
    assert with_zone == late.moment("2026-03-01T23:59Z")
    with pytest.raises(late.LateError, match="is no time"):
        late.moment("soon")


def test_each_day_that_has_begun_counts_and_late_days_come_first(tmp_path, grade):
    times = given(tmp_path, inti="2026-03-01 23:59", mini="2026-03-02 00:00",
                  days="2026-03-04 12:00", none="")  # fmt: skip
    said, _, rows = grade(*DUE, *times, "--late-days", "1", "--late-cost", "10")
    # Quick's score is the length of the file's name: 11 points.
    found = {r["id"]: (r["late"], r["days_late"], r["late_days"], r["deduction"], r["score"])
             for r in rows}  # fmt: skip
    assert found == {
        "inti": ("no", "0", "", "", "11"), "mini": ("yes", "1", "1", "0", "11"),
        "days": ("yes", "3", "1", "2.2", "8.8"), "none": ("no", "", "", "", "11"),
    }  # fmt: skip
    assert "3 days late, 1 taken from the late days, 2.2 points taken off" in row(
        rows, "days")["remarks"]  # fmt: skip
    page = (tmp_path / "pages" / "days.html").read_text()
    assert "3 days late, 1 taken from the late days, 2.2 points taken off" in page
    assert "8.8 of" in page
    # The statistics are about what the class can do.
    assert stats.of(json.loads((tmp_path / "o.json").read_text())).scores == [11.0] * 4
    # Another deadline says what it changes.
    said, _, _ = grade("--due", "2026-03-09", *times, "--late-days", "1", "--late-cost", "10")
    assert "changed: days: 8.8 -> 11 (late: -2.2 -> -0)" in said


def test_what_earlier_assignments_used_is_used_up(tmp_path, grade):
    times = given(tmp_path, ann="2026-03-03 12:00", ben="2026-03-03 12:00")
    before = [
        {"assignment": "first", "id": "ann", "counts": True, "late_days": 2},
        {"assignment": "first", "id": "ann", "counts": False, "late_days": 2},
        # The record of this assignment is not one of an earlier one.
        {"assignment": "parts", "id": "ben", "counts": True, "late_days": 2},
    ]
    record = write(tmp_path, "first.json", json.dumps(before).encode())
    _, _, rows = grade(*DUE, *times, "--late-days", "3", "--late-cost", "50", "--late-before",
                       record)  # fmt: skip
    assert (row(rows, "ann")["late_days"], row(rows, "ann")["score"]) == ("1", "5.5")
    assert (row(rows, "ben")["late_days"], row(rows, "ben")["score"]) == ("2", "11")
    # What this run says is what the next assignment is given.
    told = json.loads((tmp_path / "o.json").read_text())
    assert late._used([tmp_path / "o.json"], "second") == {r["id"]: r["late_days"] for r in told}


def test_a_deadline_of_ones_own_stands_in_the_roster(tmp_path, grade):
    times = given(tmp_path, ann="2026-03-03 12:00", ben="2026-03-03 12:00")
    roster = write(tmp_path, "r.csv", b"id,due\nann,2026-03-05 23:59\nben,\ncho,\n")
    _, _, rows = grade(*DUE, *times, "--late-cost", "60", "--roster", roster)
    assert [(r["id"], r["late"], r["score"]) for r in rows] == [
        ("ann", "no", "11"), ("ben", "yes", "0"), ("cho", "no", "0"),
    ]  # fmt: skip


def test_the_date_of_a_file_takes_nothing_off(tmp_path, grade):
    for name in ("poeben_LATE_502_9002_parts.ipynb", "leeann_501_9001_parts.ipynb"):
        write(tmp_path, f"given/{name}", submission())
    _, _, rows = grade("--due", "2001-01-01", "--late-cost", "50")
    assert [(r["student"], r["late"], r["deduction"]) for r in rows] == [
        ("leeann", "no", ""), ("poeben", "yes", "")]  # fmt: skip
    assert "how late it came is not known: nothing was taken off" in rows[1]["remarks"]


def test_a_platforms_name_says_when(tmp_path, grade):
    for name in ("77-1 - Ann Lee - Mar 2, 2026 1230 PM", "78-1 - Ben Poe - Mar 1, 2026 1230 PM"):
        write(tmp_path, f"given/{name}/parts.ipynb", submission())
    _, _, rows = grade(*DUE, "--late-cost", "100")
    assert [(r["student"], r["days_late"], r["score"]) for r in rows] == [
        ("Ann Lee", "1", "0"), ("Ben Poe", "0", "11")]  # fmt: skip


def test_the_comment_that_goes_back_says_it(tmp_path, grade):
    grade(*DUE, *given(tmp_path, ann="2026-03-02 12:00"), "--late-cost", "10")
    rows = json.loads((tmp_path / "o.json").read_text())
    export = b"Identifier,Full name,Grade,Maximum Grade,Feedback comments\r\n" \
             b"Participant 1,ann,,10,\r\n"  # fmt: skip
    filled = platforms.fill(rows, export).data.decode()
    assert "9.9" in filled
    assert "1 day late, 1.1 points taken off." in filled


@pytest.mark.parametrize("when", ["2026-03-05", "5 March 2026", "05.03.2026", "Mar 5, 2026"])
def test_a_deadline_without_a_time_is_the_end_of_its_day(tmp_path, grade, when):
    assert late.deadline(when) == datetime(2026, 3, 5, 23, 59, 59)
    # What was handed in on a day is not later than anybody can say.
    assert late.moment(when) == datetime(2026, 3, 5)
    times = given(tmp_path, ann="2026-03-05 18:00", ben="2026-03-06 00:30", cho="2026-03-05")
    roster = write(tmp_path, "r.csv", f'id,due\nann,\nben,\ncho,"{when}"\n'.encode())
    for words in (["--due", when], ["--due", "2026-03-05", "--roster", roster]):
        _, _, rows = grade(*words, *times)
        assert [(r["id"], r["days_late"]) for r in rows] == [("ann", "0"), ("ben", "1"),
                                                             ("cho", "0")]  # fmt: skip


def test_a_time_that_cannot_be_read_is_told_before_anything_is_graded(tmp_path, grade):
    times = given(tmp_path, ann="2026-03-01", ben="yesterday")
    _, errors, _ = no_table(grade, tmp_path, *DUE, *times)
    assert f"{times[1]}, line 3: 'yesterday' is no time" in errors
    roster = write(tmp_path, "r.csv", b"id,due\n\nann,soon\nben,\n")
    _, errors, _ = no_table(grade, tmp_path, *DUE, "--roster", roster)
    assert f"{roster}, line 3: 'soon' is no time" in errors
    assert Quick.asked == []
    # A line of nobody's may say what it likes.
    write(tmp_path, "times.csv", b"id,submitted\nann,2026-03-01\nzoe,never\n")
    assert len(grade(*DUE, *times)[2]) == 2


def no_table(grade, top, *words):
    """A run that ends before it has written anything."""
    write(top, "o.csv", b"")
    found = grade(*words, code=2)
    assert found[2] == []
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--late-days", "3"], "late days need a deadline"),
     (["--due", "soon"], "--due: 'soon' is no time"),
     ([*DUE, "--late-cost", "-10"], "--late-cost: -10 is no share"),
     ([*DUE, "--late-cost", "nan"], "--late-cost: nan is no share"),
     ([*DUE, "--late-days", "-1"], "--late-days: -1 are no days"),
     ([*DUE, "--times", "t.csv"], "no column says when"),
     ([*DUE, "--times", "gone.csv"], "gone.csv"),
     ([*DUE, "--late-before", "t.csv"], "not a record"),
     ([*DUE, "--late-before", "gone.json"], "gone.json")],
)  # fmt: skip
def test_what_cannot_be_used_is_said(tmp_path, grade, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "t.csv", b"id,name\n1,ann\n")
    write(tmp_path, "given/ann/parts.ipynb", submission())
    asked = ["grade", "source/parts/parts.ipynb", "given", *words]
    assert command.main(asked) == 2
    assert said in capsys.readouterr().err
