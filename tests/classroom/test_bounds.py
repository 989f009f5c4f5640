"""Bounds that hold: one clock and one memory for a submission, whatever it starts or forges."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest
from sample import SOFTMAX, notebook, submission, write, write_source
from test_runs import needs_sandbox

from book.grading import memory, notebooks, values
from book.grading.border import Peer
from book.grading.channel import BLOB_LIMIT, Channel, GoneError
from book.grading.engine import Engine
from book.grading.submissions import Submission
from book.grading.values import EQUAL_HASHES, MIRROR_LIMIT

# ---------------------------------------------------------------- forged replies


def forged(value, blobs=(), more=None):
    """What a peer makes of a reply with this value in it, and what it holds afterwards."""
    near, far = socket.socketpair()
    with near, far:
        peer = Peer(Channel(near), trusted=True, limit=20)
        reply = {"op": "value", "v": value, "u": [], **(more or {})}
        sender = threading.Thread(target=lambda: Channel(far).send(reply, list(blobs)))
        sender.start()
        try:
            return peer.ask({"op": "get", "name": "x"}), peer
        finally:
            near.close()
            sender.join()


def ints(some):
    return [{"t": "i", "v": hex(n)} for n in some]


# Python's hash of an integer is its remainder by this.
PRIME = (1 << 61) - 1


@pytest.mark.parametrize("kind", ["s", "f", "d"])
def test_values_that_share_a_hash_are_refused_before_they_are_compared(kind):
    some = ints(PRIME * k for k in range(1, 20_000))
    value = {"t": kind, "v": [[n, n] for n in some[:9000]] if kind == "d" else some}
    began = time.process_time()
    with pytest.raises(GoneError, match="share a hash"):
        forged(value)
    assert time.process_time() - began < 2
    # Sets and dictionaries of an honest size and kind are taken.
    few = ints(range(5000))
    value = {"t": kind, "v": [[n, n] for n in few] if kind == "d" else few}
    assert len(forged(value)[0]) == 5000
    assert len(forged({"t": "s", "v": ints(PRIME * k for k in range(EQUAL_HASHES))})[0]) > 1


def test_one_piece_of_data_named_again_and_again_is_counted_each_time():
    one = {"t": "T", "s": [1 << 20], "st": None, "d": "float32", "b": 0, "p": False}
    data = bytes(4 << 20)
    assert len(forged({"t": "l", "v": [one] * 20}, [data])[0]) == 20
    with pytest.raises(GoneError, match="128 MB of tensors"):
        forged({"t": "l", "v": [one] * 200}, [data])
    # Of a stride of 0 it is what it would take when it is written out.
    wide = {"t": "T", "s": [8 << 20], "st": [0], "d": "float64", "b": 0, "p": False}
    assert forged(wide, [bytes(8)])[0].shape == (8 << 20,)
    with pytest.raises(GoneError, match="128 MB of tensors"):
        forged({"t": "l", "v": [wide] * 3}, [bytes(8)])


def test_parameters_that_both_sides_keep_are_bounded_over_all_replies(monkeypatch):
    assert MIRROR_LIMIT <= 512 << 20
    # A smaller bound is reached sooner.
    monkeypatch.setattr(values, "MIRROR_LIMIT", limit := MIRROR_LIMIT // 8)
    near, far = socket.socketpair()
    size = BLOB_LIMIT // 32

    def answers():
        with far:
            for key in range(40):
                one = {"t": "M", "i": key, "s": [size // 4], "st": None, "d": "float32", "b": 0,
                       "p": True}  # fmt: skip
                try:
                    Channel(far).receive(20)
                    Channel(far).send({"op": "value", "v": one, "u": []}, [bytes(size)])
                except (OSError, EOFError):
                    return

    thread = threading.Thread(target=answers)
    thread.start()
    with near:
        peer = Peer(Channel(near), trusted=True, limit=20)

        def all_of_them():
            for _ in range(40):
                peer.ask({"op": "get", "name": "x"})

        with pytest.raises(GoneError, match="MB of parameters"):
            all_of_them()
        held = sum(2 * m.tensor.numel() * 4 for m in peer.mirrors.values())
        assert limit // 2 < held <= limit
    thread.join()


def test_more_values_than_an_honest_side_sends_are_refused():
    # One message holds them in its four megabytes.
    with pytest.raises(GoneError, match="more values"):
        forged({"t": "l", "v": [{"t": "."}] * 210_000})


# ---------------------------------------------------------------- large sources


def test_a_large_cell_is_not_read_for_what_it_defines():
    assert notebooks.defines("x = 1\n" * 10) is not None
    assert notebooks.defines("x = 1\n" * 20_000) is None


def test_more_code_than_a_person_writes_is_refused_with_words():
    work = notebooks.assignment_of("parts", notebooks.cells(source_of()))
    given = notebooks.cells(submission(last="x = 1\n" * 900_000))
    with pytest.raises(notebooks.NotebookError, match="5 MB of code, and 4 are the most"):
        notebooks.plan(work, given)
    assert notebooks.plan(work, notebooks.cells(submission(last="x = 1\n" * 600_000)))


def source_of():
    from sample import source

    return source()


# ---------------------------------------------------------------- memory


def test_the_default_is_the_machines_memory_divided_by_the_jobs(monkeypatch):
    for whole, jobs, wanted in ((24_000, 2, 4096), (8000, 2, 3000), (8000, 6, 1000), (1000, 8, 512),
                                (None, 2, 4096)):  # fmt: skip
        monkeypatch.setattr(memory, "machine_mb", lambda whole=whole: whole)
        assert memory.default_mb(jobs) == wanted


def test_this_machines_memory_is_known():
    if not sys.platform.startswith("linux"):
        pytest.skip("nobody says")
    assert 256 < memory.machine_mb() < 1 << 24
    assert memory.size_mb() > 100


TREE = """
import os, sys, time, mmap
held = bytearray(30 << 20)
shared = mmap.mmap(-1, 20 << 20)
shared.write(b"x" * (20 << 20))
for n in range(3):
    if os.fork() == 0:
        own = bytearray(b"y") * (10 << 20)
        time.sleep(60)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_tree_of_processes_is_found_and_measured():
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE) as one:
        assert one.stdout.readline() == b"ready\n"
        try:
            for _ in range(100):
                below = memory.below(one.pid)
                # Right after the fork they have all of the parent's, and nothing of their own yet.
                exact = [memory.exact(p) for p in below]
                if len(below) == 3 and (None in exact or min(exact) > 10 << 20):
                    break
                time.sleep(0.05)
            assert len(below) == 3
            assert memory.usage(one.pid).shared >= 20 << 20
            assert None in exact or all(10 << 20 < n < 40 << 20 for n in exact)
        finally:
            for pid in (*memory.below(one.pid), one.pid):
                os.kill(pid, 9)
    assert memory.usage(one.pid) is None
    assert memory.below(one.pid) == []


# ---------------------------------------------------------------- whole submissions


HOG = """
import os, time
for n in range(8):
    if os.fork() == 0:
        block = bytearray(b'x') * (200 << 20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
# What no process's own size shows: files of memory, and blocks that belong to nobody.
NOBODYS = """
import ctypes
c = ctypes.CDLL(None, use_errno=True)
made = [c.memfd_create(b'x', 0), c.shmget(0, 1 << 20, 0o1600), c.msgget(0, 0o1600)]
print('made', made)
"""
SHARED = """
import mmap, os, time
for n in range(8):
    if os.fork() == 0:
        block = mmap.mmap(-1, 200 << 20)
        for _ in range(200):
            block.write(b'x' * (1 << 20))
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
SETS = """
def double(n):
    import os, json, struct
    P = (1 << 61) - 1
    v = [{'t': 'i', 'v': hex(P * k)} for k in range(1, 100_000)]
    m = json.dumps({'op': 'value', 'v': {'t': 's', 'v': v}, 'u': [], 'b': []}).encode()
    for fd in range(3, 64):
        try: os.write(fd, struct.pack('>I', len(m)) + m)
        except OSError: pass
    return 0
"""


def deep():
    return ('{"cells": [], "x": [' + ",".join(["[[],[]]"] * 7_000_000) + "]}").encode()


def wide():
    return notebook(
        {"cell_type": "code", "source": "x = [" + "(1)," * 2_500_000 + "]", "metadata": {}}
    )


# On a busy machine the clock may be first.
ENDED = "used more than 600 MB of memory|within 3 s"
TOGETHER = 600  # MB for a submission, all its processes together
HOSTILE = {
    "a tree of processes": (submission(HOG + SOFTMAX), 7, ENDED),
    "a tree in a call": (
        submission("def my_softmax(x, dim):\n" + HOG.replace("\n", "\n    ")), 7,
        ENDED),
    "shared memory": (submission(SHARED + SOFTMAX), 7, ENDED),
    "memory that is nobody's": (submission(last=NOBODYS), 10, ""),
    "sockets": (
        submission(last="import socket\nfor f in (16, 17, 40, 38, 2, 10, 1):\n    try:\n"
                   "        socket.socket(f, socket.SOCK_DGRAM); print(f, 'made')\n"
                   "    except OSError as e: print(f, e.errno)"), 10, ""),
    "equal hashes": (submission(q3=SETS.strip()), 6, ""),
    "deep json": (deep, 0, "reading the notebook takes more than|used all of its|end twice"),
    "a large cell": (wide, 0, "9 MB of code"),
    "loops in every cell and call": (
        submission(*["def my_softmax(x, dim):\n    while True: pass",
                     "class Gain:\n    def __init__(self, n):\n        while True: pass",
                     "def double(n):\n    while True: pass"], first="while True: pass"), 0, ""),
    "honest": (submission(), 10, ""),
}  # fmt: skip
TIMES = {"cell": 3.0, "call": 3.0, "test": 5.0, "total": 8.0}


def tree_mb(pid):
    """What a process and those below it use together, in MB."""
    total = 0
    for one in (pid, *memory.below(pid)):
        exact = memory.exact(one)
        used = memory.usage(one)
        total += exact if exact is not None else used.own if used else 0
    return total >> 20


def graded(engine, submission):
    """A submission graded by itself: its row, its seconds, and the most memory."""
    before, peak, ended = tree_mb(engine.process.pid), [0], threading.Event()

    def look():
        took = 0.0
        # A look at many processes takes long, and would slow down what it looks at.
        while not ended.wait(max(0.02, 2 * took)):
            then = time.monotonic()
            peak[0] = max(peak[0], tree_mb(engine.process.pid))
            took = time.monotonic() - then

    thread = threading.Thread(target=look)
    thread.start()
    began = time.monotonic()
    (row,) = engine.grade([submission])
    seconds = time.monotonic() - began
    ended.set()
    thread.join()
    return row, seconds, peak[0] - before


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Each hostile submission graded by itself: its row, its seconds, and the most memory."""
    top = tmp_path_factory.mktemp("bounds")
    seen = {}
    with Engine(write_source(top / "source"), limits={**TIMES, "memory_mb": TOGETHER}) as engine:
        engine.start()
        for name, (content, _, _) in HOSTILE.items():
            content = content() if callable(content) else content
            path = write(top, f"{name}/parts.ipynb", content)
            seen[name] = graded(engine, Submission(name, path))
    return seen


@needs_sandbox
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_submission_stays_within_its_clock_and_its_memory(run, name):
    row, seconds, used = run[name]
    _, score, said = HOSTILE[name]
    assert row["score"] == score, row
    told = row["reason"] + json.dumps(row["cells"]) + " ".join(row["remarks"])
    assert re.search(said, told)
    assert row["status"] in ("graded", "unreadable")
    assert seconds < TIMES["total"] + 5
    assert used < 1.1 * TOGETHER, f"{used} MB"


@needs_sandbox
def test_memory_that_belongs_to_no_process_cannot_be_made(run):
    told = {c["name"]: c["out"] for c in run["memory that is nobody's"][0]["cells"]}
    assert told["added cell 1"].strip() == "made [-1, -1, -1]"


@needs_sandbox
def test_sockets_past_the_namespaces_cannot_be_made(run):
    told = {c["name"]: c["out"] for c in run["sockets"][0]["cells"]}["added cell 1"]
    assert told.split("\n")[:4] == ["16 1", "17 1", "40 1", "38 1"]
    assert told.split("\n")[4:7] == ["2 made", "10 made", "1 made"]


@needs_sandbox
def test_the_clock_goes_on_whatever_is_started_again(run):
    row, seconds, _ = run["loops in every cell and call"]
    assert seconds > TIMES["total"] - 3
    assert "used all of its 8 s" in row["reason"]
    assert all(t["reason"] for t in row["tests"])
