"""The grading process: imports torch and the checkers once, then grades submissions.

It reads one line of JSON per job and writes lines of JSON. On Linux each submission has a judge of
its own, forked from this process, so that one that dies or hangs costs a test and not the run.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import selectors
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from book.grading import groups, memory, notebooks, pages, sandbox
from book.grading.confine import PR_SET_PDEATHSIG, c_library
from book.grading.limits import Limits, Outside
from book.grading.student import tasks, warm_up
from book.grading.submissions import Submission, UnreadableError, read

# A judge that is this much late has hung in a way that its own alarms do not end. In seconds.
GRACE = 2.0
# The memory of a judge beside what its parent has. The notebook and a student's tensors take it.
JUDGE_MB = 1024


@dataclass
class Job:
    """One submission in work. It has one clock, however many judges it takes."""

    number: int
    submission: Submission
    began: float = field(default_factory=time.monotonic)
    watch: memory.Watch = field(default_factory=lambda: memory.Watch(0))
    # How often its processes were ended for their memory: the judge may read it.
    ended: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 1))
    group: groups.Group | None = None
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    testing: str | None = None
    end: dict[str, Any] | None = None
    error: str = ""
    pid: int = 0
    buffer: bytes = b""
    deadline: float = 0.0
    # Judges that died without a test to blame.
    lost: int = 0

    def event(self, message: dict[str, Any]) -> None:
        """Take one message of the judge."""
        if message["event"] == "begin":
            self.testing = message["test"]
        elif message["event"] == "test":
            self.done[message["result"]["id"]] = message["result"]
            self.testing = None
        elif message["event"] == "keeper":
            self.watch.keep(message["pid"])
        elif message["event"] == "end":
            self.end = message
        else:
            self.error = message["text"]


class Server:
    """Grades for one assignment."""

    def __init__(self, out: TextIO, settings: dict[str, Any]) -> None:
        self.out = out
        self.work = notebooks.assignment(Path(settings["source"]))
        self.side = sandbox.start(settings["mode"], list(self.work.imports))
        # While the other side imports torch too.
        from book.grading import judge

        _import_checkers()
        self.judge = judge.judge
        judge.prepare(self.work)
        wanted = {"memory_mb": memory.default_mb(1), **settings["limits"]}
        self.limits = Limits(**{k: v for k, v in wanted.items() if v is not None})
        self.side.wait()
        self.side.probe(self.limits.as_dict())
        self.fork = isinstance(self.side, sandbox.Zygote)
        if self.fork and (threads := tasks()) != 1:
            raise sandbox.SandboxError(f"the grader has {threads} threads before its first fork")
        # Where each submission can have a control group of its own.
        self.groups = groups.place() if self.fork else None
        self.jobs: dict[int, Job] = {}
        self.selector = selectors.DefaultSelector() if self.fork else None

    def say(self, message: dict[str, Any]) -> None:
        """Tell the parent."""
        self.out.write(json.dumps(message) + "\n")
        self.out.flush()

    def close(self) -> None:
        """End everything that runs."""
        for job in self.jobs.values():
            with contextlib.suppress(OSError):
                os.kill(job.pid, signal.SIGKILL)
            if job.group:
                job.group.close()
        self.side.close()

    # -- one after the other, where there is no fork

    def run_in_turn(self, lines: TextIO) -> None:
        """Grade here, as far as the system allows no fork."""
        for line in lines:
            job = _job(line)
            with contextlib.redirect_stdout(sys.stderr):
                self._judge(job, job.event)
            self.finish(job)

    # -- forks

    def run_forked(self) -> None:
        """Grade in forks, as many at a time as the parent asks for."""
        assert self.selector is not None
        self.selector.register(0, selectors.EVENT_READ, None)
        gc.collect()
        gc.freeze()
        pages.collapse()
        asked = b""
        open_ = True
        while open_ or self.jobs:
            soonest = min((min(j.deadline, j.watch.next) for j in self.jobs.values()), default=None)
            wait = None if soonest is None else max(0.0, soonest - time.monotonic())
            for key, _ in self.selector.select(wait):
                data = os.read(key.fd, 1 << 16)
                if key.data is not None:
                    self._heard(key.fd, key.data, data)
                elif not data:
                    # The parent is gone, or has nothing more to ask.
                    self.selector.unregister(0)
                    open_ = False
                else:
                    *lines, asked = (asked + data).split(b"\n")
                    for line in lines:
                        self._fork(_job(line.decode()))
            for job in list(self.jobs.values()):
                if job.watch.look():
                    job.ended[0] = (job.ended[0] + 1) % 256
                if job.deadline < time.monotonic():
                    with contextlib.suppress(OSError):
                        os.kill(job.pid, signal.SIGKILL)
                    job.deadline = time.monotonic() + 3600

    def _fork(self, job: Job) -> None:
        assert self.selector is not None
        near, far = os.pipe()
        if self.groups and job.group is None:
            with contextlib.suppress(OSError):
                name = f"grading-{os.getpid()}-{job.number}"
                job.group = groups.Group(self.groups, name, self.limits.memory_mb << 20)
        job.pid = os.fork()
        if job.pid == 0:
            try:
                c_library().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                import resource

                size = (memory.size_mb() + JUDGE_MB) << 20
                resource.setrlimit(resource.RLIMIT_AS, (size, size))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.close(near)
                with os.fdopen(far, "w", encoding="utf-8") as pipe:

                    def emit(message: dict[str, Any]) -> None:
                        pipe.write(json.dumps(message) + "\n")
                        pipe.flush()

                    self._judge(job, emit)
            finally:
                os._exit(0)
        os.close(far)
        job.buffer = b""
        job.deadline = job.began + self.limits.total + GRACE
        now = memory.usage(os.getpid())
        job.watch = memory.Watch(
            self.limits.memory_mb << 20, judge=job.pid, before=now.own if now else 0,
            group=job.group,
        )  # fmt: skip
        self.jobs[job.number] = job
        self.selector.register(near, selectors.EVENT_READ, job)

    def _heard(self, fd: int, job: Job, data: bytes) -> None:
        assert self.selector is not None
        *lines, job.buffer = (job.buffer + data).split(b"\n")
        for line in lines:
            job.event(json.loads(line))
        if data:
            return
        self.selector.unregister(fd)
        os.close(fd)
        os.waitpid(job.pid, 0)
        del self.jobs[job.number]
        if job.end is not None or job.error:
            self.finish(job)
            return
        # The judge itself died; its test is lost, and the others go on.
        if job.testing is None:
            job.lost += 1
        else:
            why = "the grading process ended in this test (too much memory or time)"
            points = next((c.points for c in self.work.cells if c.grade_id == job.testing), 0.0)
            job.done[job.testing] = {
                "id": job.testing, "score": 0.0, "max": points, "passed": False,
                "reason": why, "detail": why, "seconds": 0.0,
            }  # fmt: skip
            job.testing = None
        if time.monotonic() >= job.began + self.limits.total:
            self._out_of_time(job)
            self.finish(job)
        elif job.lost > 1:
            why = "the notebook cannot be graded: it makes the grading process end twice"
            job.end = {"problem": why, "cells": [], "remarks": [], "cut": 0}
            self.finish(job)
        else:
            self._fork(job)

    def _out_of_time(self, job: Job) -> None:
        """The tests that are left are not run."""
        why = f"the submission used all of its {self.limits.total:g} s"
        for c in self.work.cells:
            if c.kind == "test" and c.grade_id not in job.done:
                job.done[c.grade_id] = {
                    "id": c.grade_id, "score": 0.0, "max": c.points, "passed": False,
                    "reason": why, "detail": why, "seconds": 0.0,
                }  # fmt: skip
        job.end = {"problem": None, "cells": [], "remarks": [why], "cut": 0}

    # -- both

    def _judge(self, job: Job, emit: Any) -> None:
        outside = Outside(
            job.began + self.limits.total,
            lambda pid: emit({"event": "keeper", "pid": pid}),
            lambda: job.ended[0] + 256 * (job.group.kills() if job.group else 0),
        )
        try:
            data = read(job.submission)
            self.judge(self.work, data, self.side, self.limits, job.done, emit, outside)
        except UnreadableError as error:
            emit({"event": "end", "problem": str(error), "cells": [], "remarks": [], "cut": 0})
        except MemoryError:
            why = f"reading the notebook takes more than {JUDGE_MB} MB; clear its outputs"
            emit({"event": "end", "problem": why, "cells": [], "remarks": [], "cut": 0})
        except sandbox.SandboxError as error:
            emit({"event": "error", "text": str(error)})
        except BaseException:
            emit({"event": "error", "text": "a fault of the grader:\n" + traceback.format_exc()})

    def finish(self, job: Job) -> None:
        """Make the row of a submission: every test is in it, whatever happened."""
        if job.group:
            job.group.close()
        end = job.end or {"problem": job.error, "cells": [], "remarks": [], "cut": 0}
        problem = end["problem"]
        tests = []
        for c in self.work.cells:
            if c.kind == "test":
                why = problem or "the test did not run"
                tests.append(
                    job.done.get(c.grade_id)
                    or {"id": c.grade_id, "score": 0.0, "max": c.points, "passed": False,
                        "reason": why, "detail": why, "seconds": 0.0}
                )  # fmt: skip
        status = "graded"
        if job.error:
            status = "error"
        elif problem:
            status = "unreadable"
        row = {
            "student": job.submission.student,
            "file": job.submission.label,
            "assignment": self.work.name,
            "status": status,
            "score": round(sum(t["score"] for t in tests), 4),
            "max": self.work.maximum,
            "reason": problem
            or "; ".join(f"{t['id']}: {t['reason']}" for t in tests if t["reason"]),
            "tests": tests,
            "cells": end["cells"],
            "remarks": end["remarks"],
            "cut": end["cut"],
            "answers": end.get("answers", {}),
            "prints": end.get("prints", {}),
            "by_hand": [c.grade_id for c in self.work.cells if c.kind == "manual"],
            "seconds": round(time.monotonic() - job.began, 3),
        }
        self.say({"event": "row", "job": job.number, "row": row})


def _job(line: str) -> Job:
    asked = json.loads(line)
    where = asked["submission"]
    return Job(
        asked["job"],
        Submission(where["student"], Path(where["path"]), tuple(where["inside"]), where["problem"]),
    )


def _import_checkers() -> None:
    """Import now what every judge would import, and start what torch starts late."""
    with contextlib.suppress(ImportError):
        from book.checkers import exercises

        exercises()
    import torch

    warm_up(torch)


def main() -> None:
    """Serve until the parent closes the pipe."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What C code prints must not come between the messages.
    os.dup2(2, 1)
    if sys.platform.startswith("linux"):
        c_library().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(os.read(0, 1 << 16) if hasattr(os, "fork") else sys.stdin.readline())
    try:
        server = Server(out, settings)
    except (notebooks.NotebookError, sandbox.SandboxError) as error:
        out.write(json.dumps({"event": "refused", "text": str(error)}) + "\n")
        out.flush()
        return
    contained = server.fork and settings["mode"] == "sandbox"
    server.say(
        {
            "event": "ready",
            "contained": contained,
            "together": server.fork,
            "warnings": list(server.work.warnings),
        }
    )
    try:
        if server.fork:
            server.run_forked()
        else:
            server.run_in_turn(sys.stdin)
    finally:
        server.close()


if __name__ == "__main__":
    main()
