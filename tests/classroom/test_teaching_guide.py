"""The teaching guide: its commands exist and do what it says, and it knows every assignment."""

import re
import shlex
from pathlib import Path

import pytest

from book import colab
from book.chapters import chapters, read
from book.grading import __main__ as command
from book.grading import bench

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "book/pages/teaching.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.S)
LINES = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
OURS = [line for line in LINES if "book.grading" in line]
NBGRADER = [line for line in LINES if line.startswith("nbgrader ")]
MAKE = [line for line in LINES if line.startswith("make ")]


def words(line):
    program, *rest = shlex.split(line)
    assert program == ".venv/bin/python"
    assert rest[:2] == ["-m", "book.grading"]
    return rest[2:]


def test_every_command_is_of_a_kind_that_is_checked_here():
    assert [x for x in LINES if x not in OURS + NBGRADER + MAKE] == ["rm -r ../course"]
    assert {words(line)[0] for line in OURS} == {
        "release", "check", "grade", "gradebook", "feedback", "gradescope", "stats", "leaks",
    }  # fmt: skip


@pytest.mark.parametrize("line", MAKE)
def test_what_make_is_asked_for_exists(line):
    makefile = (ROOT / "Makefile").read_text()
    for target in shlex.split(line, comments=True)[1:]:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize("line", OURS)
def test_verbs_and_options_exist(line):
    asked = words(line)
    command._parser().parse_args(asked)
    for path in asked:
        if path.startswith("notebooks/"):
            assert any(ROOT.glob(path)), path


@pytest.mark.parametrize("line", NBGRADER)
def test_nbgrader_commands_are_run_by_a_test(line):
    run = (ROOT / "tests/classroom/test_nbgrader.py").read_text()
    verb, *rest = shlex.split(line)[1:]
    assert f'"{verb}"' in run
    for option in rest:
        assert not option.startswith("-") or f'"{option}"' in run


def test_options_in_the_text_exist(capsys):
    with pytest.raises(SystemExit):
        command.main(["grade", "--help"])
    known = capsys.readouterr().out
    for verb in ("leaks", "gradebook", "feedback", "stats"):
        with pytest.raises(SystemExit):
            command.main([verb, "--help"])
        known += capsys.readouterr().out
    for main in (bench.main, colab.main):
        with pytest.raises(SystemExit):
            main(["--help"])
    known += capsys.readouterr().out + (ROOT / "tests/classroom/test_nbgrader.py").read_text()
    prose = re.sub(r"```.*?```", "", GUIDE, flags=re.S)
    options = set(re.findall(r"`(?:[^`]* )?(--[a-z][a-z-]+)[^`]*`", prose)) - {"--security-opt"}
    assert options > {"--csv", "--jobs", "--unsafe-no-sandbox"}
    assert [o for o in sorted(options) if o not in known] == []
    assert "from book.grading.nbgrader import configure" in GUIDE


def test_release_and_leaks_say_what_the_guide_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    course = str(tmp_path / "course")
    first, last = OURS[0], next(line for line in OURS if words(line)[0] == "leaks")
    for line in (first, last):
        assert command.main([w.replace("../course", course) for w in words(line)]) == 0
        said = capsys.readouterr().out.replace(course, "../course")
        assert f"```text\n{said}```" in GUIDE


def test_the_guide_names_every_assignment_and_no_other():
    there = {p.parent.name for p in (ROOT / "notebooks/assignments").glob("*/*.ipynb")}
    plan = "\n".join(line for line in GUIDE.splitlines() if line.startswith("| "))
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", plan))
    assert named - {"reshape"} == there
    assert f"{'Fifteen' if len(there) == 15 else len(there)} assignments" in GUIDE


def test_every_chapter_has_its_row():
    section = GUIDE.split("## What each chapter needs")[1].split("\n## ")[0]
    assert re.findall(r"^\| (\d+) \|", section, re.M) == [
        str(int(path.name[:2])) for path in chapters()
    ]


# ---------------------------------------------------------------- times


def opening_and_exercises(number):
    """What a chapter says in its opening about its time, and the minutes of its exercises."""
    (path,) = (ROOT / "notebooks").glob(f"{int(number):02}_*.ipynb")
    cells = [c.source for c in read(path).cells if c.cell_type == "markdown"]
    told = next(line for line in cells[0].splitlines() if "**Time**" in line)
    minutes = re.findall(r"^\*(\d+) minutes, (?:easy|medium|hard)\b", "\n".join(cells), re.M)
    return told, sum(map(int, minutes))


def hours(number):
    """Reading a chapter and doing all its exercises."""
    told, exercises = opening_and_exercises(number)
    return (int(re.search(r"(\d+) minutes to read", told)[1]) + exercises) / 60


def hours_of_assignment(name):
    """What an assignment says about its time."""
    cells = read(ROOT / f"notebooks/assignments/{name}/{name}.ipynb").cells
    opening = "\n".join(c.source for c in cells[:2])
    if found := re.search(r"about (\d+) hours", opening):
        return int(found[1])
    if found := re.search(r"(\d+) minutes", opening):
        return int(found[1]) / 60
    words = {"two": 2, "three": 3, "two and a half": 2.5}
    return words[re.search(r"about (two|three|two and a half) hours", opening)[1]]


def rows_of(title, columns):
    """The rows of the table in a section, as lists of cells, without their head."""
    section = GUIDE.split(f"## {title}")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in re.findall(r"^\|.*\|$", section, re.M)[2:]]
    assert {len(row) for row in rows} == {columns}
    return [[cell.strip() for cell in row] for row in rows]


def rounded(number):
    return f"{number:.1f}".removesuffix(".0")


def test_the_time_of_a_chapter_is_what_it_says_with_all_its_exercises():
    told = {row[0]: row[2] for row in rows_of("What each chapter needs", 5)}
    assert told == {number: rounded(hours(number)) for number in told}


def test_the_work_of_a_week_is_that_of_its_chapters_and_its_assignments():
    sums = []
    for _, read_in_it, _, assignments, work in rows_of("A course in twelve weeks", 5):
        reading = sum(hours(n) for n in re.findall(r"\d+", read_in_it))
        names = re.findall(r"`([a-z-]+)`", re.sub(r" or `[a-z-]+`", "", assignments))
        assigned = sum(map(hours_of_assignment, names))
        expected = rounded(reading) + (f" + {rounded(assigned)}" if names else "")
        assert work == expected, read_in_it
        sums.append(reading + assigned)
    words = ["five", "six", "seven", "eight", "nine", "ten"]
    mean, most = (words[round(n) - 5] for n in (sum(sums) / len(sums), max(sums)))
    assert f"about {mean} hours of own work a week, {most} in the last" in GUIDE
    assert max(sums) == sums[-1]


def test_the_work_of_the_second_half_is_that_of_its_chapters_and_its_assignments():
    for _, read_in_it, _, assignments, work in rows_of("Six weeks more", 5):
        reading = sum(hours(n) for n in re.findall(r"\d+", read_in_it))
        assigned = sum(map(hours_of_assignment, re.findall(r"`([a-z-]+)`", assignments)))
        told = [rounded(n) for n in (reading, assigned) if n]
        assert work == " + ".join(told), read_in_it


def hours_of_two(number, titles):
    """Reading a chapter and doing the exercises of these titles."""
    (path,) = (ROOT / "notebooks").glob(f"{int(number):02}_*.ipynb")
    text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    minutes = [
        int(re.search(rf"{{exercise}} {re.escape(t)}\n:label: \S+\n+\*(\d+) minutes", text)[1])
        for t in titles.split("; ")
    ]
    told, _ = opening_and_exercises(number)
    return (int(re.search(r"(\d+) minutes to read", told)[1]) + sum(minutes)) / 60


def test_the_work_of_the_short_course_is_reading_two_exercises_a_chapter_and_an_assignment():
    titles = {row[0]: row[3] for row in rows_of("What each chapter needs", 5)}
    weeks = []
    for _, read_in_it, assignments, _ in rows_of("A course in four weeks", 4):
        names = re.findall(r"`([a-z-]+)`", re.sub(r" or `[a-z-]+`", "", assignments))
        reading = sum(hours_of_two(n, titles[n]) for n in re.findall(r"\d+", read_in_it))
        weeks.append(reading + sum(map(hours_of_assignment, names)))
    words = ["seven", "eight", "nine", "ten"]
    assert f"about {words[round(sum(weeks) / 4) - 7]} hours of own work a week: reading" in GUIDE


def test_the_exercises_that_it_sets_are_in_their_chapters():
    section = GUIDE.split("## What each chapter needs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|[^|]*\|[^|]*\| ([^|]*) \|", section, re.M)
    assert len(rows) == len(chapters())
    for number, titles in rows:
        (path,) = (ROOT / "notebooks").glob(f"{int(number):02}_*.ipynb")
        text = path.read_text(encoding="utf-8")
        assert [t for t in titles.split("; ") if f"{{exercise}} {t}" not in text] == []
