"""Grades many submissions, from a process that imports neither torch nor Jupyter."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from book.grading.submissions import Submission

ROOT = Path(__file__).resolve().parent.parent.parent
# With large pages of memory, where the system has them, a fork takes half the time.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# A job that made the whole grading process end is tried this often.
TRIES = 2


class EngineError(RuntimeError):
    """The engine cannot grade at all; says why and what to do."""


class Engine:
    """The grading process of one assignment, started when first needed."""

    def __init__(self, source: Path, *, mode: str = "sandbox", limits: dict[str, Any]) -> None:
        self.settings = {"source": str(source.resolve()), "mode": mode, "limits": limits}
        self.process: subprocess.Popen[str] | None = None
        self.heard: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.contained = False
        self.together = True
        self.warnings: list[str] = []

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process and wait until it can grade.

        Raises:
            EngineError: if it cannot.
        """
        self.close()
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        self.heard = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "book.grading.server"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                 "OPENBLAS_NUM_THREADS": "1", **HUGE_PAGES},
        )  # fmt: skip
        threading.Thread(target=_listen, args=(self.process, self.heard), daemon=True).start()
        self._say(self.settings)
        hello = self.heard.get() or {"event": "refused", "text": "the grading process ended"}
        if hello["event"] != "ready":
            self.close()
            raise EngineError(hello["text"])
        self.contained, self.together = hello["contained"], hello["together"]
        self.warnings = hello["warnings"]

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe:
                    pipe.close()
            self.process = None

    def grade(self, submissions: list[Submission], jobs: int = 1) -> Iterator[dict[str, Any]]:
        """A row for each submission, as they are finished; see `graded`."""
        for _, row in self.graded(submissions, jobs):
            yield row

    def graded(
        self, submissions: list[Submission], jobs: int = 1
    ) -> Iterator[tuple[Submission, dict[str, Any]]]:
        """Each submission with its row, as they are finished.

        Raises:
            EngineError: if the process cannot be started.
        """
        waiting = list(enumerate(submissions))[::-1]
        tries: dict[int, int] = {}
        running: set[int] = set()
        limits = self.settings["limits"]
        assert isinstance(limits, dict)
        longest = 2 * (limits.get("total", 180.0) + limits.get("test", 60.0)) + 600
        while waiting or running:
            if self.process is None:
                self.start()
            while waiting and len(running) < (jobs if self.together else 1):
                number, one = waiting.pop()
                if tries.get(number, 0) >= TRIES:
                    yield one, self._lost(one)
                    continue
                tries[number] = tries.get(number, 0) + 1
                running.add(number)
                # The link itself, if it is one: it must not be followed.
                path = one.path.parent.resolve() / one.path.name
                where = {"student": one.student, "path": str(path),
                         "inside": one.inside, "problem": one.problem}  # fmt: skip
                self._say({"job": number, "submission": where})
            if not running:
                continue
            try:
                message = self.heard.get(timeout=longest)
            except queue.Empty:
                message = None
            if message is None:
                # The whole process ended: those that ran are tried once more, one at a time.
                self.close()
                waiting += [(n, submissions[n]) for n in sorted(running, reverse=True)]
                running.clear()
                jobs = 1
                continue
            running.discard(message["job"])
            one = submissions[message["job"]]
            yield one, {**message["row"], "file": one.label}

    def _lost(self, one: Submission) -> dict[str, Any]:
        from book.grading.notebooks import assignment

        work = assignment(Path(str(self.settings["source"])))
        why = "the grading process ended twice while it graded this submission"
        return {
            "student": one.student, "file": one.label, "assignment": work.name, "status": "error",
            "score": 0.0, "max": work.maximum, "reason": why, "cells": [], "remarks": [], "cut": 0,
            "by_hand": [], "seconds": 0.0,
            "tests": [{"id": c.grade_id, "score": 0.0, "max": c.points, "passed": False,
                       "reason": why, "detail": why, "seconds": 0.0}
                      for c in work.cells if c.kind == "test"],
        }  # fmt: skip

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except OSError:
            self.heard.put(None)


def _listen(process: subprocess.Popen[str], heard: queue.Queue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            heard.put(json.loads(line))
    except (ValueError, OSError):
        pass
    heard.put(None)


Progress = Callable[[dict[str, Any], int, int], None]
