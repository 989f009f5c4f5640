"""Grades one submission: the students' cells there, the teacher's tests here.

First all cells of the submission run, leaving a snapshot where tests stand (`stages`). Only then do
the tests run, so that nothing the student's cells print or raise can come from a hidden test. Tests
share a snapshot, as they share the kernel in a notebook, if the cells between them only define what
no earlier cell mentions. What a student is told of a lost test is made in `reasons`.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import math
import os
import signal
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from book import grading
from book.grading import notebooks, prints
from book.grading.border import Peer
from book.grading.channel import GoneError, StudentError, TimeLimitError
from book.grading.limits import Limits, Outside
from book.grading.notebooks import Assignment, Plan, Step
from book.grading.reasons import cause, reason
from book.grading.remote import Remote
from book.grading.sandbox import ColdStart, SandboxError, Zygote
from book.grading.stages import Stages
from book.grading.student import Capped

Emit = Callable[[dict[str, Any]], None]


class _TestLimitError(BaseException):
    """A test cell ran too long. No checker that catches exceptions may catch this one."""


class Judge(Stages):
    """One submission under way."""

    def __init__(
        self, work: Assignment, plan: Plan, side: Zygote | ColdStart, limits: Limits,
        outside: Outside,
    ) -> None:  # fmt: skip
        super().__init__(plan.steps, side, limits, outside)
        self.work = work
        self.remarks = list(plan.remarks)
        # The side that served the last test, its place, the names asked for, and what it gave.
        self.serving: tuple[int, Peer, list[str]] | None = None
        self.bound: dict[str, Any] = {}
        # Whether the student's code was called by a hidden test, whose arguments it may have kept.
        self.called = False
        self.right: list[tuple[str, Any, Any]] = []
        self.space: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
        asked = {s.name: notebooks.referred(s.trusted) for s in self.steps if s.trusted}
        given = set().union(
            *(asked[s.name] for s in self.steps if s.trusted and s.kind != "test"), set()
        )
        self.asked = {name: sorted((names | given) & work.names) for name, names in asked.items()}

    # -- the side that serves tests

    def close(self) -> None:
        """End the student's process."""
        self._let_go()
        super().close()

    def _peer(self, n: int) -> Peer:
        """The side that serves step `n`.

        Raises:
            GoneError, TimeLimitError: if it cannot be had.
        """
        limit, names = self.left(self.limits.call), self.asked[self.steps[n].name]
        if self.serving and self.serving[0] == self.place[n]:
            _, peer, before = self.serving
            peer.limit = limit
            # With each question the parameters that both sides keep equal are more.
            if names != before and peer.mirrors:
                self._forget()
                peer = peer.renewed()
        else:
            self._let_go()
            peer = Peer(self.at(n), trusted=True, limit=limit)
        self.serving = self.place[n], peer, names
        return peer

    def _let_go(self) -> None:
        """Be done with the side that served last."""
        if self.serving:
            self.serving[1].channel.connection.close()
            self.serving = None
        self._forget()

    def _forget(self) -> None:
        self.bound.clear()
        grading.verdicts = {}

    # -- the teacher's tests

    def judge(self, done: dict[str, dict[str, Any]], emit: Emit) -> None:
        """Run everything, telling each result. Tests in `done` have theirs already."""
        try:
            self.run_cells()
        except TimeLimitError as error:
            self.remarks.append(str(error))
        for n, step in enumerate(self.steps):
            if step.trusted is None or step.name in done:
                continue
            emit({"event": "begin", "test": step.name if step.kind == "test" else None})
            began = time.monotonic()
            result = self._test(n, step) if step.served else self._given(step)
            if step.kind == "test":
                result["seconds"] = round(time.monotonic() - began, 3)
                emit({"event": "test", "result": result})
        self.close()

    def _given(self, step: Step) -> dict[str, Any]:
        with contextlib.suppress(Exception, SystemExit), _quiet(Capped(0)):
            self._execute(step)
        return {}

    def _test(self, n: int, step: Step) -> dict[str, Any]:
        out = Capped()
        error: BaseException | None = None
        peer: Peer | None = None
        value = None
        grading.hints.clear()
        grading.mistakes.clear()
        grading.watch = self._watch
        try:
            for attempt in (1, 2):
                peer = self._peer(n)
                try:
                    self._bind(peer, self.asked[step.name])
                    break
                except GoneError:
                    # Another test's calls may have ended this one's snapshot.
                    self._let_go()
                    if attempt == 2:
                        raise
            with _quiet(out), _alarm(self.left(self.limits.test)):
                value = self._execute(step)
        except SandboxError:
            raise
        except _TestLimitError:
            error = TimeLimitError(f"the test was not finished within {self.limits.test:g} s")
        except BaseException as caught:  # the tests' own SystemExit too
            error = caught
        if peer and peer.dead:
            # Whatever the test made of it: a process that died did not answer it.
            if isinstance(peer.dead, TimeLimitError):
                self.close()
            elif told := self.too_much():
                peer.dead = GoneError(told)
            dead: BaseException = peer.dead
            if not isinstance(error, grading.WrongAnswerError):
                error = dead
        if peer is None or peer.dead or peer.waiting:
            self._let_go()
        score = _score(value, step.points) if error is None else 0.0
        why, detail = reason(
            error, step, peer.dead if peer else None, names=self.work.names, called=self.called
        )
        if error is not None and "NameError" in f"{type(error).__name__} {why} {detail}":
            why += cause(self.steps, self.told)
        if error is None and score < step.points:
            why, detail = " ".join(grading.hints) or "partly right", out.text()
        self.called |= notebooks.BEGIN_HIDDEN in (step.trusted or "")
        self._look_at_right(peer)
        return {
            "id": step.name,
            "score": score,
            "max": step.points,
            "passed": error is None and score == step.points,
            "reason": why[:2000],
            "detail": detail[:4000],
            "mistakes": list(dict.fromkeys(grading.mistakes)),
        }

    def _watch(self, name: str, exercise: Any, answer: Any) -> None:
        """Keep in mind a right answer, to see whether it does what the text forbids."""
        self.right.append((name, exercise, answer))

    def _look_at_right(self, peer: Peer | None) -> None:
        """Remark what right answers do that the text forbids. It costs nobody a point."""
        from book.grading import remarks

        right, self.right = self.right, []
        for name, exercise, answer in right:
            if peer is None or peer.dead:
                return
            with (
                contextlib.suppress(Exception, _TestLimitError),
                _quiet(Capped(0)),
                _alarm(self.left(self.limits.test)),
            ):
                found = remarks.of(name, exercise, answer)
                self.remarks += [r for r in found if r not in self.remarks]
        if peer and right and (peer.dead or peer.waiting):
            self._let_go()

    def _bind(self, peer: Peer, names: list[str]) -> None:
        """Give the test the student's values of these names, and no others."""
        for name in self.work.names:
            self.space.pop(name, None)
        # A function stays what it was for the last test; data may have changed.
        self.space.update((name, self.bound[name]) for name in names if name in self.bound)
        names = [name for name in names if name not in self.bound]
        there = peer.ask({"op": "names", "name": names}) if names else []
        for name in names:
            if isinstance(there, list) and name in there:
                try:
                    self.space[name] = peer.ask({"op": "get", "name": name})
                    if isinstance(self.space[name], Remote):
                        self.bound[name] = self.space[name]
                except (GoneError, TimeLimitError):
                    raise
                except Exception as error:
                    # A value that cannot cross is as good as none, until a test asks for it.
                    self.space[name] = _Unusable(name, str(error))

    def _execute(self, step: Step) -> Any:
        """Run the teacher's code; the value of its last line, as a notebook shows it."""
        assert step.trusted is not None
        body, last = compiled(step.trusted, f"<{step.name}>")
        exec(body, self.space)
        return eval(last, self.space) if last else None


@functools.cache
def compiled(source: str, name: str) -> tuple[types.CodeType, types.CodeType | None]:
    """A cell of the teacher's, and its last line if that is an expression."""
    tree = ast.parse(notebooks.plain(source), name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = compile(tree, name, "exec")
    if not isinstance(last, ast.Expr):
        return body, None
    return body, compile(ast.Expression(last.value), name, "eval")


def prepare(work: Assignment) -> None:
    """Do once what every judge forked from this process would do for itself."""
    from book.checkers import assignments, core, exercises

    for c in work.cells:
        if c.type == "code":
            notebooks.referred(c.source)
        if c.type == "code" and c.kind in ("test", "given", "free"):
            number = work.cells.index(c) + 1
            with contextlib.suppress(SyntaxError, ValueError):
                compiled(c.source, f"<{c.grade_id or f'cell {number}'}>")
    tests = "\n".join(c.source for c in work.cells if c.kind == "test")
    if "require_statement" in tests:
        from book import quiz

        quiz.load()
    for name, one in {**exercises(), **assignments.questions()}.items():
        if f'"{name}"' in tests:
            core.keep(one)


class _Unusable:
    """Stands for a value of the student's that cannot be sent."""

    def __init__(self, name: str, why: str) -> None:
        self.__dict__["_why"] = f"`{name}` cannot be checked: {why}"

    def __getattr__(self, name: str) -> Any:
        raise StudentError(self.__dict__["_why"])

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise StudentError(self.__dict__["_why"])

    def __bool__(self) -> bool:
        raise StudentError(self.__dict__["_why"])


def _score(value: Any, points: float) -> float:
    """Points for the value of a test's last line: a number is partial credit, as in nbgrader."""
    if type(value) not in (int, float):
        return points
    return 0.0 if math.isnan(value) else max(0.0, min(float(value), points))


@contextlib.contextmanager
def _quiet(out: Capped) -> Iterator[None]:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupt Python code after `seconds`, where the system has alarms."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        raise _TestLimitError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge(
    work: Assignment, data: bytes, side: Zygote | ColdStart, limits: Limits,
    done: dict[str, dict[str, Any]], emit: Emit, outside: Outside | None = None,
) -> None:  # fmt: skip
    """Grade the notebook in `data` and tell every result through `emit`, the last one "end".

    `outside` is known where another process looks after this one.

    Raises:
        SandboxError: if the student's side fails by no fault of the student's.
    """
    began = time.monotonic()
    try:
        notebook, remarks = notebooks.parse(data)
        plan = notebooks.plan(work, notebooks.cells(notebook))
    except notebooks.NotebookError as error:
        emit({"event": "end", "problem": str(error), "cells": [], "remarks": [], "cut": 0})
        return
    plan.remarks[:0] = remarks
    answers = notebooks.by_hand(work, notebooks.cells(notebook))
    marks = {s.name: prints.prints(s.student) for s in plan.steps
             if s.kind == "solution" and s.student}  # fmt: skip
    del notebook, data
    one = Judge(work, plan, side, limits, outside or Outside(began + limits.total))
    try:
        one.judge(done, emit)
    finally:
        one.close()
    cells = [
        {"name": one.steps[n].name, "kind": one.steps[n].kind, **told}
        for n, told in sorted(one.told.items())
    ]
    emit(
        {
            "event": "end",
            "problem": None,
            "cells": [c for c in cells if c["error"] or c["out"] or c["cut"]],
            "remarks": one.remarks,
            "answers": answers,
            "prints": marks,
            "cut": sum(c["cut"] for c in cells),
            "seconds": round(time.monotonic() - began, 3),
            "pid": os.getpid(),
        }
    )
