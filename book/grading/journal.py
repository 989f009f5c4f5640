"""Remembers finished rows, so that a run which was killed goes on where it was.

One line of JSON per row, appended and flushed when the row is finished. A line that a kill cut
short is dropped at the next start. A row counts for what was graded: the key is a digest of the
source, the limits, the engine and the submission. One grader at a time holds the lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class BusyError(RuntimeError):
    """Another grader holds the journal."""


class Journal:
    """The finished rows of one place."""

    def __init__(self, path: Path, waiting: Callable[[], None] | None = None) -> None:
        """Open the journal; wait for another grader, after telling `waiting`, or refuse without it.

        Raises:
            BusyError: if another grader has it and nobody wants to wait.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        # The lock is not on the journal itself: a reader may always look at that.
        self.lock = (path.parent / (path.name + ".lock")).open("a+")
        if not _locked(self.lock.fileno()):
            if waiting is None:
                self.lock.close()
                raise BusyError(f"another grader works with {path}")
            waiting()
            while not _locked(self.lock.fileno()):
                time.sleep(0.2)
        self.rows: dict[str, dict[str, Any]] = {}
        self._load()
        self.file = path.open("ab")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.lock.close()

    def _load(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        good = 0
        for line in data.splitlines(keepends=True):
            entry = _entry(line)
            if entry is not None:
                self.rows[entry["key"]] = entry["row"]
            elif not line.endswith(b"\n"):
                break
            good += len(line)
        if good < len(data):
            with self.path.open("r+b") as file:
                file.truncate(good)

    def last(self, ending: str) -> dict[str, Any] | None:
        """The row that was kept last under a key with this ending, whatever it was graded with."""
        return next((r for k, r in reversed(self.rows.items()) if k.endswith(ending)), None)

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Remember a finished row, before anything else is done with it."""
        text = json.dumps({"key": key, "sum": _sum(key, row), "row": row})
        self.file.write(text.encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.rows[key] = row


def _sum(key: str, row: dict[str, Any]) -> str:
    # A name may hold bytes that are no text.
    told = (key + json.dumps(row, sort_keys=True)).encode(errors="surrogatepass")
    return hashlib.sha256(told).hexdigest()[:16]


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
        if line.endswith(b"\n") and entry["sum"] == _sum(entry["key"], entry["row"]):
            return dict(entry)
    except (ValueError, KeyError, TypeError):
        pass
    return None


def run_key(source: Path, settings: dict[str, Any]) -> str:
    """What the rows of a run depend on, apart from the submission."""
    hashed = hashlib.sha256(source.read_bytes())
    hashed.update(json.dumps(settings, sort_keys=True).encode())
    package = HERE.parent
    for path in sorted([*HERE.glob("*.py"), *(package / "checkers").rglob("*.py")]):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


if sys.platform == "win32":
    import msvcrt

    def _locked(descriptor: int) -> bool:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
