"""A control group for each submission: the kernel itself then bounds its memory.

Where the grader may make groups (version 2, with the memory controller handed down to it, as in a
user's session under systemd), all processes of a submission are put into one of their own: at its
limit the kernel ends them, whatever they did since the last look of `memory.Watch`. Elsewhere that
look is all there is, as it is for the processes that a group does not hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
MINE = Path("/proc/self/cgroup")


def place(mounts: tuple[Path, ...] = MOUNTS, mine: Path = MINE) -> Path | None:
    """The folder in which groups with a bound on memory can be made; None if there is none.

    It is the nearest group above this process that hands the memory controller down and may be
    written to. Nothing is changed to find it.
    """
    root = next((m for m in mounts if (m / "cgroup.controllers").exists()), None)
    if root is None:
        return None
    try:
        lines = mine.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::/")), None)
    if own is None or ".." in Path(own).parts:
        return None
    here = root / own.lstrip("/")
    for folder in (here, *here.parents):
        with suppress(OSError):
            handed = (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
            # To move a process needs the right to write here, the group above both places.
            if "memory" in handed and all(
                os.access(p, os.W_OK) for p in (folder, folder / "cgroup.procs")
            ):
                return folder
        if folder == root:
            break
    return None


class Group:
    """The group of one submission."""

    def __init__(self, where: Path, name: str, limit: int) -> None:
        """Make it, with `limit` bytes of memory.

        Raises:
            OSError: if it cannot be made.
        """
        self.path = where / name
        self.path.mkdir()
        try:
            self._write("memory.max", limit)
        except OSError:
            self.close()
            raise
        with suppress(OSError):  # a kernel that does not count what was moved out
            self._write("memory.swap.max", 0)
        with suppress(OSError):
            self._write("memory.oom.group", 1)

    def _write(self, name: str, value: int) -> None:
        (self.path / name).write_text(f"{value}\n", encoding="ascii")

    def take(self, find: Callable[[], list[int]]) -> None:
        """Take the processes that `find` finds, until there is no new one."""
        taken: set[int] = set()
        for _ in range(100):
            new = set(find()) - taken
            if not new:
                return
            for pid in new:
                with suppress(OSError):  # it has ended
                    self._write("cgroup.procs", pid)
            taken |= new

    def kills(self) -> int:
        """How many processes the kernel has ended in it for their memory."""
        with suppress(OSError, ValueError):
            for line in (self.path / "memory.events").read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def close(self) -> None:
        """End what is in it, and remove it."""
        with suppress(OSError):
            self._write("cgroup.kill", 1)
        for _ in range(50):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)  # until the kernel has taken them away
            else:
                return
