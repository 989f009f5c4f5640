"""The teaching guide: its commands exist and do what it says, and it knows every assignment."""

import re
import shlex
from pathlib import Path

import pytest

from book.grading import __main__ as command
from book.grading import bench

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "book/pages/teaching.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.S)
LINES = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
OURS = [line for line in LINES if "book.grading" in line]
NBGRADER = [line for line in LINES if line.startswith("nbgrader ")]


def words(line):
    program, *rest = shlex.split(line)
    assert program == ".venv/bin/python"
    assert rest[:2] == ["-m", "book.grading"]
    return rest[2:]


def test_every_command_is_of_a_kind_that_is_checked_here():
    assert [x for x in LINES if x not in OURS + NBGRADER] == ["rm -r ../course"]
    assert {words(line)[0] for line in OURS} == {"release", "check", "grade", "leaks"}


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
    with pytest.raises(SystemExit):
        command.main(["leaks", "--help"])
    known += capsys.readouterr().out
    with pytest.raises(SystemExit):
        bench.main(["--help"])
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
    assert re.findall(r"^\| (\d+) \|", section, re.M) == [str(n) for n in range(1, 17)]


def test_the_exercises_that_it_sets_are_in_their_chapters():
    section = GUIDE.split("## What each chapter needs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|[^|]*\|[^|]*\| ([^|]*) \|", section, re.M)
    assert len(rows) == 16
    for number, titles in rows:
        (path,) = (ROOT / "notebooks").glob(f"{int(number):02}_*.ipynb")
        text = path.read_text(encoding="utf-8")
        assert [t for t in titles.split("; ") if f"{{exercise}} {t}" not in text] == []
