"""The statistics of a class: numbers recomputed by hand, and a page that names no student."""

import json
import re
import statistics

import pytest
from sample import cell, notebook, write
from test_runs import ROW

from book import grading
from book.checkers import core, exercise
from book.grading import __main__ as command
from book.grading import notebooks, stats

SHARES = {"ann": (1, 1), "ben": (1, 0.5), "cho": (0.5, 0), "dee": (1, 0)}
MISTAKES = {"ben": ["eps < 0"], "cho": ["eps < 0", "no root"], "dee": ["no root"]}


def rows():
    found = []
    for name, (first, second) in SHARES.items():
        tests = [
            {"id": "t1", "score": 4.0 * first, "max": 4.0, "passed": first == 1, "mistakes": []},
            {"id": "t<2>", "score": 6.0 * second, "max": 6.0, "passed": second == 1,
             "mistakes": MISTAKES.get(name, [])},
        ]  # fmt: skip
        found.append({**ROW, "student": name, "tests": tests, "max": 10.0, "counts": True,
                      "score": 4.0 * first + 6.0 * second, "late": name == "dee"})  # fmt: skip
    extra = {**found[0], "student": "ann", "score": 0.0, "counts": False}
    gone = {**ROW, "student": "eve", "status": "missing", "max": 10.0, "counts": True}
    return [*found, extra, gone, {**gone, "student": "fay", "status": "unreadable"}]


def test_the_numbers_are_those_of_the_rows_that_count():
    told = stats.of(rows())
    assert sorted(told.scores) == [2, 4, 7, 10]
    assert told.mean == 23 / 4
    assert told.spread == pytest.approx((sum((s - 23 / 4) ** 2 for s in (2, 4, 7, 10)) / 4) ** 0.5)
    assert told.counts == {"graded": 4, "missing": 1, "unreadable": 1, "late": 1}
    assert told.histogram() == [0, 0, 1, 0, 1, 0, 0, 1, 0, 1]
    by_id = {t.id: t for t in told.tests}
    assert by_id["t1"].mean == 3.5 / 4
    assert by_id["t1"].full == 3 / 4
    assert by_id["t<2>"].mean == 1.5 / 4
    assert by_id["t<2>"].spread == statistics.pstdev([1, 0.5, 0, 0])
    assert [t.id for t in stats.hardest(told.tests)] == ["t<2>", "t1"]
    assert told.mistakes == [("t<2>", "eps < 0", 2), ("t<2>", "no root", 2)]


def test_the_page_shows_them_in_pictures_and_names_nobody():
    page = stats.page(stats.of(rows()))
    # The other pictures: as long as the means are large, with lines as long as the spreads.
    bars = [float(w) for w in re.findall(r'<rect x="280" y="\d+" width="([\d.]+)"', page)]
    assert bars == 2 * [240 * 1.5 / 4, 240 * 3.5 / 4]
    lines = [(float(a), float(b)) for a, b in re.findall(r'd="M([\d.]+) \d+H([\d.]+)"', page)]
    spread = 240 * statistics.pstdev([1, 0.5, 0, 0])
    assert lines[0] == (280, pytest.approx(280 + bars[0] + spread, abs=0.06))
    assert "38 ± 41 %" in page
    heights = [float(h) for h in re.findall(r'height="([\d.]+)" fill', page)][:10]
    assert [h > 0 for h in heights] == [False, False, True, False, True, False, False, True, False,
                                        True]  # fmt: skip
    assert "t&lt;2&gt;" in page
    assert "eps &lt; 0" in page
    assert page.count('role="img" aria-label="') == 3
    assert "<script" not in page
    assert not re.search(r"\b(ann|ben|cho|dee|eve|fay)\b", page)


def test_a_question_is_its_tests_together():
    some = rows()
    for row in some:
        row["tests"] = [{**t, "question": "q"} for t in row["tests"]]
    told = stats.of(some)
    (one,) = told.questions
    # Shares of ten points, not means of two shares.
    shares = [1, 0.7, 0.2, 0.4]
    assert (one.id, one.points) == ("q", 10)
    assert one.mean == pytest.approx(statistics.fmean(shares))
    assert one.spread == pytest.approx(statistics.pstdev(shares))
    assert one.full == 1 / 4
    assert "questions, the hardest first:\n   57.5 %  ± 30.3  q\n" in stats.text(told)
    assert f">{100 * one.mean:.0f} ± 30 %<" in stats.page(told)


def test_tests_that_begin_with_the_name_of_their_solution_are_a_question(tmp_path):
    path = write(tmp_path, "x.ipynb", notebook(
        cell("a = 1", "gain", "solution"), cell("assert a", "gain-values", "test", points=1),
        cell("assert a", "gain-corners", "test", points=1), cell("a", "quiz", "solution"),
        cell("assert a", "first", "test", points=1),
        cell("assert a", "gain-late", "test", points=1),
    ))  # fmt: skip
    assert stats.questions(notebooks.assignment(path)) == {
        "gain-values": "gain", "gain-corners": "gain", "first": "first", "gain-late": "gain-late",
    }  # fmt: skip


def test_what_waits_for_points_by_hand_is_in_nobodys_sum():
    some = rows()
    essay = {"id": "essay", "score": 5.0, "max": 5.0, "passed": True, "by_hand": True}
    for row in some:
        row["by_hand"] = ["essay"]
    some[0] |= {"by_hand": [], "tests": [*some[0]["tests"], essay], "score": 15.0, "max": 15.0}
    told = stats.of(some)
    assert (told.most, sorted(told.scores)) == (10, [2, 4, 7, 10])
    said = stats.text(told)
    assert "mean 5.8 of 10" in said
    assert "without what waits for points by hand: essay of 3" in said
    assert "essay (of 1)" in said
    assert "waits for points by hand: essay of 3" in stats.page(told)
    # When all have them, they count.
    for row in some:
        if row["by_hand"] and row["status"] == "graded":
            row |= {"by_hand": [], "tests": [*row["tests"], essay], "score": row["score"] + 5,
                    "max": 15.0}  # fmt: skip
    assert (stats.of(some).most, sorted(stats.of(some).scores)) == (15, [7, 9, 12, 15])
    # A row of another source's: the same share.
    some[1] |= {"max": 30.0}
    assert sorted(stats.of(some).scores) == [6, 7, 9, 15]


def test_the_command_prints_and_writes(tmp_path, capsys):
    record = write(tmp_path, "o.json", json.dumps(rows()).encode())
    assert command.main(["stats", str(record), "--page", str(tmp_path / "p.html")]) == 0
    said = capsys.readouterr().out
    assert "x: 4 graded, mean 5.8 of 10, spread 3.0, median 5.5" in said
    assert "besides: 1 unreadable, 1 missing, 1 late" in said
    assert "     2  t<2>: eps < 0" in said
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    for some, why in (([], "nothing was graded"), ([*rows(), {**rows()[0], "assignment": "y"}],
                                                    "several assignments: x, y")):  # fmt: skip
        record = write(tmp_path, "o.json", json.dumps(some).encode())
        assert command.main(["stats", str(record)]) == 2
        assert why in capsys.readouterr().err


def test_a_mistake_that_a_test_sees_is_noted_by_its_name(capsys):
    one = exercise("softmax.softmax")
    grading.mistakes.clear()
    wrong = one.wrong[0]
    with pytest.raises(grading.WrongAnswerError):
        grading.require("softmax.softmax", wrong.answer)
    assert grading.mistakes == [wrong.name]
    grading.mistakes.clear()
    grading.require("softmax.softmax", one.oracle)
    assert grading.mistakes == []
    assert core.grade("softmax.softmax", one, wrong.answer).looks_like.name == wrong.name
