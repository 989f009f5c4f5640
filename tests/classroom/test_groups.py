"""Control groups: found where they may be made, with a bound, and gone when nobody needs them."""

import os
import subprocess
import sys
import time

import pytest

from book.grading import groups, memory


@pytest.fixture
def tree(tmp_path):
    """Folders and files as the kernel has them, in a session of a user's."""
    root = tmp_path / "cgroup"
    own = root / "user.slice" / "app.slice" / "term.scope"
    own.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    for folder, handed in ((own, ""), (own.parent, "memory pids\n"), (root, "memory\n")):
        (folder / "cgroup.subtree_control").write_text(handed)
        (folder / "cgroup.procs").write_text("")
    mine = tmp_path / "mine"
    mine.write_text("1:name=systemd:/\n0::/user.slice/app.slice/term.scope\n")
    return root, own, mine


def test_the_nearest_group_that_hands_memory_down_is_the_place(tree, tmp_path, monkeypatch):
    root, own, mine = tree
    assert groups.place((tmp_path / "none", root), mine) == own.parent
    (own.parent / "cgroup.subtree_control").write_text("pids\n")
    assert groups.place((root,), mine) == root
    # What may not be written to is none, and nor is a group of another namespace.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert groups.place((root,), mine) is None
    monkeypatch.undo()
    mine.write_text("0::/../../elsewhere\n")
    assert groups.place((root,), mine) is None
    # The first version only, and no such system at all.
    mine.write_text("4:memory:/x\n")
    assert groups.place((root,), mine) is None
    assert groups.place((tmp_path / "none",), tmp_path / "none") is None


def test_a_group_has_a_bound_takes_what_is_found_and_counts_what_the_kernel_ended(tree):
    root, own, _ = tree
    one = groups.Group(own.parent, "grading-1-2", 600 << 20)
    told = {p.name: p.read_text().strip() for p in one.path.iterdir()}
    assert told == {"memory.max": str(600 << 20), "memory.swap.max": "0", "memory.oom.group": "1"}
    # A process may start another one while the first is being taken.
    found = iter([[7], [7, 8], [7, 8]])
    one.take(lambda: next(found))
    assert (one.path / "cgroup.procs").read_text() == "8\n"
    assert one.kills() == 0
    (one.path / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    assert one.kills() == 3
    one.close()
    assert (one.path / "cgroup.kill").read_text() == "1\n"
    with pytest.raises(OSError, match="grading"):
        groups.Group(root / "gone", "grading-1-3", 1)


def test_what_the_kernel_left_of_a_submission_is_ended(tree):
    if not sys.platform.startswith("linux"):
        pytest.skip("/proc is Linux's")
    _, own, _ = tree
    shell = "import subprocess, time; subprocess.Popen(['sleep', '60']); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", shell]) as keeper:
        while not memory.below(keeper.pid):
            time.sleep(0.01)
        (left,) = memory.below(keeper.pid)
        watch = memory.Watch(1 << 40, group=groups.Group(own.parent, "grading-1-4", 1 << 40))
        watch.keep(keeper.pid)
        assert (watch.group.path / "cgroup.procs").read_text() == f"{left}\n"
        watch.look()
        assert memory.usage(left)
        (watch.group.path / "memory.events").write_text("oom_kill 1\n")
        watch.next = 0.0
        assert not watch.look()
        for _ in range(100):
            if not (memory.usage(left) or memory.Usage(0, 0, 0)).size:
                break
            time.sleep(0.02)
        assert not (memory.usage(left) or memory.Usage(0, 0, 0)).size
        keeper.kill()


@pytest.mark.skipif(groups.place() is None, reason="no control group with memory may be made here")
def test_the_kernel_ends_what_uses_too_much():
    code = "import sys; sys.stdin.readline(); x = bytearray(b'x') * (400 << 20); print('alive')"
    one = groups.Group(groups.place(), f"grading-test-{os.getpid()}", 100 << 20)
    try:
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as hog:  # fmt: skip
            one.take(lambda: [hog.pid])
            said, _ = hog.communicate(b"\n", timeout=60)
        assert said == b""
        assert hog.returncode == -9
        assert one.kills() >= 1
    finally:
        one.close()
    assert not one.path.exists()
