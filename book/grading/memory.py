"""How much memory there is, and how much of it a submission uses, all its processes together.

A limit of the system's is one of each process, and a submission may have many. So the grading
process looks at them and ends those that use too much together (`Watch`), beside the kernel where
that can do it (`groups`). Linux only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from book.grading.groups import Group

LEAST_MB, MOST_MB = 512, 4096
# Of the machine's memory, what all submissions may use that are graded at the same time.
SHARE = 0.75
# Seconds between two looks at most and at least; between them so many that what is left is not
# used up meanwhile, at so many bytes a second.
SELDOM, OFTEN = 0.05, 0.001
RATE = 8 << 30
# Seconds between two exact looks, which are expensive.
EXACT = 1.0


def machine_mb() -> int | None:
    """The memory of this machine, or of the container that this is; None if nobody says."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        line = next(x for x in _lines("/proc/meminfo") if x.startswith("MemTotal"))
        found.append(int(line.split()[1]) >> 10)
    # The limit of a container: of the second version of control groups, and of the first.
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(place).read_text(encoding="ascii")) >> 20)
    return min(found) if found else None


def default_mb(jobs: int) -> int:
    """What a submission may use, in MB, where `jobs` of them are graded at the same time."""
    whole = machine_mb()
    if whole is None:
        return MOST_MB
    return max(LEAST_MB, min(MOST_MB, int(SHARE * whole / jobs)))


def size_mb() -> int:
    """The address space of this process, in MB; 0 if nobody says."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


@dataclass(frozen=True)
class Usage:
    """What one process has, in bytes: address space, memory of its own, memory it may share."""

    size: int
    own: int
    shared: int


def usage(pid: int) -> Usage | None:
    """What the process has; None if it is gone. Memory of files is not counted."""
    told = {"VmSize": 0, "RssAnon": 0, "RssShmem": 0}
    try:
        for line in _lines(f"/proc/{pid}/status"):
            name, _, value = line.partition(":")
            if name in told:
                told[name] = int(value.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        return None
    return Usage(told["VmSize"], told["RssAnon"], told["RssShmem"])


def exact(pid: int) -> int | None:
    """The process's share of the memory that it uses, in bytes; None if nobody may know."""
    total = 0
    try:
        for line in _lines(f"/proc/{pid}/smaps_rollup"):
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        return None
    return total


def below(pid: int) -> list[int]:
    """All processes that the process started, and those that they started."""
    found: list[int] = []
    left = [pid]
    while left:
        one = left.pop()
        with suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{one}/task"):  # noqa: PTH208
                text = Path(f"/proc/{one}/task/{task}/children").read_text(encoding="ascii")
                left += (mine := [int(word) for word in text.split()])
                found += mine
    return found


def _signal(pids: Iterable[int], which: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, which)


def _started(pid: int) -> str:
    """When a process started, which tells it from another one of the same number."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[19]
    return ""


@dataclass
class Watch:
    """Looks after the memory of one submission: its judge, and what its keepers started."""

    limit: int  # bytes
    judge: int = 0
    # What the judge had when it was forked, which it shares with its parent.
    before: int = 0
    keeper: int = 0
    fresh: Usage = field(default_factory=lambda: Usage(0, 0, 0))
    next: float = 0.0
    next_exact: float = 0.0
    # The kernel's own bound on the same, where there is one.
    group: Group | None = None
    _start: str = ""
    _kills: int = 0
    # What it used when it was looked at last, in bytes.
    _used: int = 0

    def keep(self, keeper: int) -> None:
        """Look after the processes below `keeper`, a fork that has done nothing yet."""
        self.keeper, self._start = keeper, _started(keeper)
        self.fresh = usage(keeper) or Usage(0, 0, 0)
        self.next_exact = time.monotonic() + EXACT
        if self.group:
            self.group.take(lambda: below(keeper))

    def look(self) -> bool:
        """Look, if it is time, and end what uses too much; whether that was done."""
        now = time.monotonic()
        if now < self.next:
            return False
        if self.group and (kills := self.group.kills()) > self._kills:
            # What the kernel left of the submission, if it cannot end all of a group at once.
            self._kills = kills
            _signal(below(self.keeper), signal.SIGKILL)
        pids = below(self.keeper) if self.keeper and _started(self.keeper) == self._start else []
        # A look takes time, most of it with many processes on a busy machine: near the limit they
        # stand still meanwhile, so that what is seen is what there is.
        still = 2 * self._used > self.limit
        _signal(pids if still else (), signal.SIGSTOP)
        there = {pid: one for pid in pids if (one := usage(pid))}
        judge = usage(self.judge) if self.judge else None
        mine = max(0, judge.own - self.before) if judge else 0
        used = mine + sum(self._about(one) for one in there.values())
        over = used > self.limit
        # What was put in the place of what forks share is not in it. Where even all of that would
        # be within the limit, nobody has to look exactly.
        hidden = len(there) * self.fresh.own
        if over or (now >= self.next_exact and used + hidden > self.limit):
            # What is shared was counted often, and what was put in the place of the shared, never.
            self.next_exact = now + EXACT
            if over and not still:
                # An exact look takes long enough to use much more in the meantime.
                still = True
                _signal(there, signal.SIGSTOP)
            told = [exact(pid) for pid in there]
            if None not in told:
                used = mine + sum(n for n in told if n is not None)
        self._used = used
        if used <= self.limit:
            _signal(pids if still else (), signal.SIGCONT)
            left = (self.limit - used) / RATE
            wait = min(SELDOM, max(OFTEN, left))
            if not still:  # then it may cost a tenth of the time, as far as there is that time
                wait = max(wait, min(9 * (time.monotonic() - now), 2 * left))
            self.next = time.monotonic() + wait
            return False
        theirs = used - mine
        if mine > theirs:
            _signal(there, signal.SIGCONT)
            _signal([self.judge], signal.SIGKILL)
        else:
            _signal(there, signal.SIGKILL)
        return True

    def _about(self, one: Usage) -> int:
        """About what a process has beyond what all forks share."""
        if one.size < self.fresh.size:  # it gave that up, or runs another program
            return one.own + one.shared
        return max(0, one.own - self.fresh.own) + one.shared
