"""Every submission of the corpus gets its right score, and nothing outside the sandbox changes."""

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus import CANARY, boxes, files, rows
from sample import POINTS, source, submission, write, write_source

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--limit-cell", "2", "--limit-call", "2", "--limit-test", "8", "--limit-total", "30"]
# A file system that takes any bytes for a name.
ODD_NAMES = sys.platform.startswith("linux")
# Students whose folders have names in other encodings than this system's.
ODD = {"王小明": "gb18030", "Jörg Müller": "latin-1"} if ODD_NAMES else {}
ROWS = rows()
FILES = files()
BOXES = boxes()


def grade(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "book.grading", "grade", *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=600, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The whole corpus graded once: the rows by student, and what was seen outside."""
    if shutil.which("bwrap") is None:
        if os.environ.get("REQUIRE_SANDBOX"):
            pytest.fail("bubblewrap is not installed: apt-get install bubblewrap")
        pytest.skip("bubblewrap is not installed")
    # Not under the folder of another test: submissions may try to read all of it.
    top = tmp_path_factory.mktemp("corpus")
    canary = top / "outside" / "canary"
    canary.parent.mkdir()
    canary.write_text(CANARY)
    teacher = write_source(top / "source")
    given = top / "submitted"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        for name, (content, _) in ROWS.items():
            text = json.dumps(content).replace("{canary}", str(canary)).replace("{port}", port)
            write(given, f"{name.replace('/', ' ')}/parts.ipynb", text.encode())
        for name, (content, *_) in FILES.items():
            write(given, name, content() if callable(content) else content)
        for name, (content, _) in BOXES.items():
            write(given, name, content)
        (given / "link").mkdir()
        (given / "link" / "parts.ipynb").symlink_to(canary)
        (given / "link to a folder").symlink_to(canary.parent)
        (given / "pipe").mkdir()
        os.mkfifo(given / "pipe" / "parts.ipynb")
        (given / "folder" / "parts.ipynb").mkdir(parents=True)
        (given / "nothing").mkdir()
        if ODD_NAMES:
            for student, coding in ODD.items():
                odd = given / os.fsdecode(student.encode(coding))
                write(odd, "parts.ipynb", json.dumps(submission()).encode())
        began = time.monotonic()
        done = grade(
            teacher, given, "--csv", top / "o.csv", "--json", top / "o.json", "--feedback",
            top / "pages", "--jobs", "6", *SMALL,
        )  # fmt: skip
        seconds = time.monotonic() - began
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads((top / "o.json").read_text())
    return {"top": top, "rows": found, "seconds": seconds, "said": done.stdout, "canary": canary}


def row(run, student):
    (one,) = [r for r in run["rows"] if r["student"] == student]
    return one


@pytest.mark.parametrize("name", ROWS)
def test_the_score_is_right(run, name):
    one = row(run, name.replace("/", " "))
    expected = ROWS[name][1]
    assert one["score"] in (expected if isinstance(expected, tuple) else (expected,)), one
    assert one["status"] == "graded"
    assert {t["id"]: t["max"] for t in one["tests"]} == POINTS
    assert all(t["passed"] or t["reason"] for t in one["tests"])


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_any_kind_gets_its_row(run, name):
    (one,) = [r for r in run["rows"] if f"submitted/{name}" in r["file"]]
    _, score, said = FILES[name]
    assert one["score"] == score, one
    assert said in one["reason"] + " ".join(one["remarks"])
    assert one["status"] == ("graded" if score or "two files" in name else "unreadable")


@pytest.mark.parametrize("name", BOXES)
def test_everybody_in_an_archive_of_a_platforms_has_a_row(run, name):
    found = [r for r in run["rows"] if f"submitted/{name}!" in r["file"]]
    assert {r["student"]: r["score"] for r in found} == BOXES[name][1]
    assert [r["student"] for r in found if r["late"]] == ["poeben"] * (name == "canvas.zip")


def test_links_and_pipes_are_not_followed(run):
    for name in ("link", "link to a folder", "pipe"):
        assert row(run, name)["status"] == "unreadable"


def test_an_empty_folder_and_a_name_in_another_encoding_have_their_rows(run):
    for name in ("folder", "nothing"):
        assert row(run, name)["reason"].startswith("no notebook found (")
    for student in ODD:
        assert row(run, student)["score"] == 10
        assert (run["top"] / "pages" / f"{student}.html").is_file()


def test_no_row_is_lost_and_the_end_is_told(run):
    boxed = sum(len(scores) for _, scores in BOXES.values())
    assert len(run["rows"]) == len(ROWS) + len(FILES) + boxed + 5 + len(ODD)
    table = list(csv.DictReader((run["top"] / "o.csv").read_text("utf-8-sig").splitlines()))
    assert len(table) == len(run["rows"]) == len(list((run["top"] / "pages").glob("*.html")))
    assert f"{len(table)} of {len(table)} graded" in run["said"]


def test_nothing_outside_was_touched_or_read(run):
    assert run["canary"].read_text() == CANARY
    assert [p.name for p in run["canary"].parent.iterdir()] == ["canary"]
    for path in run["top"].glob("o.*"):
        assert CANARY not in path.read_text()
    assert "root:x:0" not in (run["top"] / "o.json").read_text()


def test_no_process_is_left(run):
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if str(run["top"]).encode() in words or b"book.grading.server" in words:
            left.append(words)
    assert not [w for w in left if str(run["top"]).encode() in w]


def test_feedback_tells_nothing_of_the_hidden_tests(run):
    secrets = ("271828", "543656", "x_secret_input", "secret_number", "-10.0", "two rows")
    for path in (run["top"] / "pages").glob("*.html"):
        page = path.read_text()
        assert not [s for s in secrets if s in page], path.name
        assert "<script" not in page


def test_a_visible_test_does_not_repeat_what_a_hidden_one_said_before(run):
    one = row(run, "tells the hidden tests to a later one")
    lost = {t["id"]: t for t in one["tests"] if not t["passed"]}
    assert list(lost) == ["t2"]
    assert "kept" in lost["t2"]["detail"]
    assert "kept" not in lost["t2"]["reason"]
    assert "your code raised ValueError" in lost["t2"]["reason"]
    assert "layer = Gain(3)" in lost["t2"]["reason"]


def test_feedback_names_the_mistake(run):
    page = (run["top"] / "pages" / "nan everywhere.html").read_text()
    assert "double(2) == 4" in page
    page = (run["top"] / "pages" / "no gradient.html").read_text()
    assert "cases of a test are right" in page


def test_what_the_text_forbids_is_remarked_and_costs_nothing(run):
    one = row(run, "what the text forbids")
    told = " ".join(one["remarks"])
    assert "softmax: the text says no `softmax`, no `logsumexp`, and the answer calls `" in told
    assert "softmax: the answer changes the global random state" in told
    assert row(run, "right")["remarks"] == []
    page = (run["top"] / "pages" / "what the text forbids.html").read_text()
    assert "<li>softmax: the answer changes the global random state</li>" in page


def test_a_hidden_case_that_raises_names_the_kind_of_error_and_nothing_else(run):
    (lost,) = [t for t in row(run, "raises in a hidden case")["tests"] if not t["passed"]]
    assert "Your code raises IndexError." in lost["reason"]
    assert "saw" not in lost["reason"]


def test_a_broken_helper_is_named_as_what_to_repair_first(run):
    (lost,) = [t for t in row(run, "a broken helper")["tests"] if not t["passed"]]
    assert "first repair what did not run: `added cell 1` (SyntaxError)" in lost["reason"]
    (lost,) = [t for t in row(run, "syntax error")["tests"] if not t["passed"]]
    assert "first repair what did not run: `q1` (SyntaxError)" in lost["reason"]


def test_what_was_cut_is_said(run):
    assert row(run, "prints 200 MB")["cut"] > 199_000_000


def test_the_sandbox_shows_nothing(run):
    assert printed(run, "asks the kernel for more").split() == [
        "unshare", "-1", "mount", "-1", "setuid", "-1", "ptrace", "-1"]  # fmt: skip
    assert int(printed(run, "looks for other processes").split()[1]) <= 12
    assert printed(run, "searches the memory").strip() == "[]"


def printed(run, student):
    told = {c["name"]: c["out"] for c in row(run, student)["cells"]}
    assert "added cell 1" in told, f"the cell that {student!r} added was not run"
    return told["added cell 1"]


def test_a_spreadsheet_takes_no_name_for_a_formula(run):
    text = (run["top"] / "o.csv").read_text("utf-8-sig")
    assert "\n'=cmd(),'=cmd()," in text
    assert "\n'\uff1d1+1,'\uff1d1+1," in text


def test_the_sample_gives_full_marks_to_its_own_source():
    assert sum(POINTS.values()) == 10
    assert len([c for c in source()["cells"] if c["id"] in POINTS]) == 3
