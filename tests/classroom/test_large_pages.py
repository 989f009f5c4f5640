"""Large pages: memory that a process has already, before it forks."""

import os
import sys
from pathlib import Path

import pytest

from book.grading import pages

SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# Since Linux 6.1, unless large pages are switched off.
LINUX = sys.platform == "linux" and SWITCH.is_file() and "[never]" not in SWITCH.read_text()
RELEASE = tuple(map(int, os.uname().release.split(".")[:2])) if hasattr(os, "uname") else (0, 0)


def large_kb():
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    [line] = [line for line in rollup.splitlines() if line.startswith("AnonHugePages")]
    return int(line.split()[1])


@pytest.mark.skipif(not LINUX or RELEASE < (6, 1), reason="this kernel makes none when asked")
def test_memory_is_put_into_large_pages_and_holds_what_it_held():
    held = [bytes([n % 256]) * 1000 for n in range(40_000)]
    before = large_kb()
    assert pages.collapse() > 0
    assert large_kb() >= before
    assert all(one == bytes([n % 256]) * 1000 for n, one in enumerate(held))


def test_where_there_are_none_nothing_happens(monkeypatch):
    monkeypatch.setattr(pages, "c_library", lambda: None)
    assert pages.collapse() == 0
