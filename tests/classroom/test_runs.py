"""Runs that are killed, that meet, or that have no sandbox: no row is lost, none graded twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from sample import ROW, submission, write, write_source

from book.grading import sandbox, submissions
from book.grading.journal import BusyError, Journal, run_key
from book.grading.limits import Limits

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = shutil.which("bwrap") is not None
needs_sandbox = pytest.mark.skipif(
    not SANDBOX and not os.environ.get("REQUIRE_SANDBOX"), reason="bubblewrap is not installed"
)


def start(*words, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "book.grading", "grade", *map(str, words)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@pytest.fixture
def course(tmp_path):
    teacher = write_source(tmp_path / "source")
    for n in range(6):
        last = "import time; time.sleep(1)" if n == 5 else f"# {n}"
        write(tmp_path / "given", f"s{n}/parts.ipynb", submission(last=last))
    return teacher, tmp_path / "given", tmp_path


def lines(path):
    return path.read_bytes().splitlines() if path.exists() else []


@needs_sandbox
def test_a_killed_run_goes_on_two_graders_share_what_is_left_and_an_interrupted_one_ends(course):
    teacher, given, top = course
    words = (teacher, given, "--json", top / "o.json", "--jobs", "1")
    kept = top / ".o.json.journal"
    first = start(*words)
    while len(lines(kept)) < 2:
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    first.kill()
    first.communicate()
    before = lines(kept)
    both = [start(*words) for _ in range(2)]
    said = [one.communicate(timeout=400)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    for one in (f"{len(before)} were finished before.", "6 were finished before."):
        assert sum(one in text for text in said) == 1
    assert sum("waiting for it to finish" in text for text in said) == 1
    assert lines(kept)[: len(before)] == before
    assert len(lines(kept)) == 6
    assert [r["score"] for r in json.loads((top / "o.json").read_text())] == [10] * 6
    # What changed is graded again, and nothing else; and a run that is interrupted ends what it
    # started and writes what it has.
    write(given, "s0/parts.ipynb", submission(q3="def double(n): return n"))
    write(given, "s1/parts.ipynb", submission(first="while True: pass"))
    again = start(*words[:-1], "2", start_new_session=True, preexec_fn=_heeds_interrupts)
    while len(lines(kept)) < 7:
        assert again.poll() is None
        time.sleep(0.02)
    again.send_signal(signal.SIGINT)
    said, errors = again.communicate(timeout=60)
    assert again.returncode == 130
    assert "4 were finished before" in said
    assert "Finished rows are kept" in errors
    rows = {r["student"]: r["score"] for r in json.loads((top / "o.json").read_text())}
    assert rows == {"s0": 6} | {f"s{n}": 10 for n in range(2, 6)}
    for _ in range(100):
        left = [p for p in Path("/proc").glob("[0-9]*") if _session(p) == again.pid]
        if not left:
            break
        time.sleep(0.1)
    assert left == []


# The command with an engine of a few lines, which starts no torch and so can be killed often.
QUICK = """
import sys, time
from book.grading import __main__ as command
from book.grading import running

class Quick:
    contained, warnings = True, []
    def __init__(self, source, **settings): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def start(self): pass
    def graded(self, submissions, jobs):
        for one in submissions:
            time.sleep(0.003)
            with open(sys.argv[1], "a") as log:
                log.write(one.student + "\\n")
            yield one, {**ROW, "student": one.student, "file": one.label}

ROW = {row!r}
running.Engine = Quick
sys.exit(command.main(sys.argv[2:]))
"""


def test_kills_at_random_moments_lose_no_row_and_cost_at_most_one_each(tmp_path):
    random = Random(7)
    teacher = write_source(tmp_path / "source")
    count = 80
    for n in range(count):
        write(tmp_path / "given", f"s{n:02}.ipynb", submission(last=f"# {n}"))
    log, kept, out = tmp_path / "log", tmp_path / "j", tmp_path / "o.json"
    words = [sys.executable, "-c", QUICK.replace("{row!r}", repr(ROW)), log, "grade", teacher,
             tmp_path / "given", "--json", out, "--journal", kept]  # fmt: skip
    kills, before = 0, []
    while True:
        one = subprocess.Popen(
            list(map(str, words)), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if kills < 8:
            # From the first row on, or it would only be the start that is killed.
            size = kept.stat().st_size if kept.exists() else 0
            while one.poll() is None and not (kept.exists() and kept.stat().st_size > size):
                time.sleep(0.001)
            time.sleep(random.random() * 0.05)
            one.send_signal(random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            one.communicate()
            kills += 1
            whole = [line for line in kept.read_bytes().splitlines(keepends=True) if b"\n" in line]
            assert whole[: len(before)] == before
            before = whole
            # As if the last row had been cut in the middle of writing it.
            with kept.open("ab") as file:
                file.write(random.choice([b"", b"{", before[-1][: random.randrange(1, 200)]]))
            continue
        said, errors = one.communicate(timeout=60)
        assert one.returncode == 0, errors
        break
    rows = json.loads(out.read_text())
    assert [r["student"] for r in rows] == [f"s{n:02}" for n in range(count)]
    assert f"[{count}/{count}]".encode() in said or b"80 were finished before" in said
    graded = log.read_text().split()
    assert set(graded) == {r["student"] for r in rows}
    assert len(graded) <= count + kills


def _heeds_interrupts():
    # A job in the background of a shell without job control inherits that they are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _session(folder):
    try:
        return int((folder / "stat").read_text().rsplit(")", 1)[1].split()[3])
    except OSError:
        return None


def test_without_a_sandbox_it_refuses_and_says_how_to_get_one(course, tmp_path):
    teacher, given, _ = course
    if not sys.platform.startswith("linux"):
        pytest.skip("there is no sandbox to miss")
    one = start(teacher, given, env={**os.environ, "PATH": str(tmp_path)})
    _, errors = one.communicate(timeout=300)
    assert one.returncode == 2
    assert "apt install bubblewrap" in errors
    assert "--unsafe-no-sandbox" in errors


REFUSALS = [
    "bwrap: setting up uid map: Permission denied",
    "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces.",
]


REMEDIES = (
    "/etc/apparmor.d/bwrap", "apparmor_restrict_unprivileged_userns=0", "--security-opt",
    "--unsafe-no-sandbox",
)  # fmt: skip


@pytest.fixture
def refusing(tmp_path, monkeypatch):
    """A system whose bwrap only says why it was refused."""
    if not sys.platform.startswith("linux"):
        pytest.skip("there is no sandbox to refuse")

    def says(said):
        fake = tmp_path / "bin" / "bwrap"
        fake.parent.mkdir()
        fake.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")

    return says


@pytest.mark.parametrize("said", REFUSALS)
def test_a_system_that_refuses_namespaces_is_named_with_the_remedy(refusing, said):
    refusing(said)
    side = sandbox.Zygote(confined=True, preload=[])
    try:
        with pytest.raises(sandbox.SandboxError) as caught:
            side.wait()
    finally:
        side.close()
    told = str(caught.value)
    assert said in told
    assert [r for r in REMEDIES if r not in told] == []
    assert "apt install" not in told


def test_the_command_says_what_the_system_refuses_and_ends(course, refusing):
    refusing(REFUSALS[0])
    teacher, given, _ = course
    one = start(teacher, given)
    _, errors = one.communicate(timeout=300)
    assert one.returncode == 2
    assert [r for r in (REFUSALS[0], *REMEDIES) if r not in errors] == []
    assert "Traceback" not in errors


@needs_sandbox
def test_a_refusal_inside_the_sandbox_is_seen_before_the_first_submission():
    # bwrap may start and what is done in it be refused, as some AppArmor profiles have it.
    side = sandbox.Zygote(confined=True, preload=[])
    try:
        side.wait()
        side.probe(Limits().as_dict())
        with pytest.raises(sandbox.SandboxError, match="mounting the work folder") as caught:
            side.probe({**Limits().as_dict(), "disk_mb": -1})
        assert "Traceback" not in str(caught.value)
        assert "--unsafe-no-sandbox" in str(caught.value)
        assert "/etc/apparmor.d/bwrap" in side._how("private mounts: Permission denied")
    finally:
        side.close()


@pytest.mark.parametrize("option", ["--unsafe-no-sandbox", "--cold"])
def test_without_a_sandbox_the_scores_are_the_same_and_the_risk_is_said(tmp_path, option):
    teacher = write_source(tmp_path / "source")
    # One submission: in the cold each of its tests starts torch.
    exits = submission("import os; os._exit(0)", q3="def double(n): return n")
    write(tmp_path / "given", "a/p.ipynb", exits)
    one = start(teacher, tmp_path / "given", option, "--json", tmp_path / "o.json")
    said, errors = one.communicate(timeout=400)
    assert one.returncode == 0, said + errors
    assert "Not contained" in errors
    assert [r["score"] for r in json.loads((tmp_path / "o.json").read_text())] == [3]


def test_the_command_imports_neither_torch_nor_jupyter():
    code = (
        "import sys; import book.grading.__main__; "
        "print([m for m in ('torch', 'nbformat', 'jsonschema', 'IPython') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_journal_keeps_whole_lines_only(tmp_path):
    path = tmp_path / "j"
    with Journal(path) as kept:
        # A name may hold bytes that are no text.
        kept.add("one \udcff", ROW)
        kept.add("two", ROW)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with Journal(path) as kept:
            assert len(kept.rows) == whole[:cut].count(b"\n")
            kept.add("three", ROW)
        with Journal(path) as kept:
            assert "three" in kept.rows
    path.write_bytes(whole.replace(b'"score": 1.0', b'"score": 2.0', 1))
    with Journal(path) as kept:
        assert list(kept.rows) == ["two"]


def test_one_grader_holds_a_journal(tmp_path):
    with Journal(tmp_path / "j"), pytest.raises(BusyError):
        Journal(tmp_path / "j")
    with Journal(tmp_path / "j") as kept:
        assert kept.rows == {}


def test_the_key_changes_with_the_source_and_the_limits(tmp_path):
    path = write_source(tmp_path)
    first = run_key(path, {"cell": 1})
    assert run_key(path, {"cell": 2}) != first
    path.write_bytes(path.read_bytes() + b" ")
    assert run_key(path, {"cell": 1}) != first


def test_students_are_named_by_their_folders_however_these_are_given(tmp_path):
    for who in ("ann", "bob"):
        write(tmp_path, f"nbgrader/{who}/parts/parts.ipynb", submission())
        write(tmp_path, f"flat/{who}.ipynb", submission())

    def students(*roots):
        return [s.student for s in submissions.find(list(roots), "parts")]

    assert students(tmp_path / "nbgrader") == ["ann", "bob"]
    assert students(tmp_path / "flat") == ["ann", "bob"]
    assert students(*(tmp_path / "nbgrader").iterdir()) == ["ann", "bob"]
    assert students(tmp_path / "nbgrader" / "ann") == ["ann"]
    assert students(*(tmp_path / "flat").iterdir()) == ["ann", "bob"]
