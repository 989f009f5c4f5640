"""Grades one submission: the students' cells there, the teacher's tests here.

First all cells of the submission run, leaving a snapshot where tests stand. Only then do the tests
run, so that nothing the student's cells print or raise can come from a hidden test. Tests share a
snapshot, as they share the kernel in a notebook, if the cells between them only define what no
earlier cell mentions. When the student's process dies or does not answer, a new one runs the other
cells again and the next test goes on.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import math
import os
import re
import signal
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from book import grading
from book.grading import notebooks, prints
from book.grading.border import Peer, Remote
from book.grading.channel import BorderError, Channel, GoneError, StudentError, TimeLimitError
from book.grading.notebooks import Assignment, Plan, Step
from book.grading.sandbox import ColdStart, SandboxError, Session, Zygote
from book.grading.student import Capped

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Times in seconds, sizes in MB."""

    cell: float = 30.0
    call: float = 10.0
    test: float = 60.0
    total: float = 180.0
    cpu: float = 120.0
    memory_mb: int = 4096
    disk_mb: int = 64
    file_mb: int = 32
    processes: int = 64
    output: int = 2000

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Outside:
    """What a judge has to know of the process that started it."""

    # When the submission's time is over, on the clock of `time.monotonic`.
    until: float
    # Takes the number of the process above the student's.
    keeper: Callable[[int], None] = lambda pid: None
    # How often the student's processes were ended for their memory.
    ended: Callable[[], int] = lambda: 0


class _TestLimitError(BaseException):
    """A test cell ran too long. No checker that catches exceptions may catch this one."""


class Judge:
    """One submission under way."""

    def __init__(
        self, work: Assignment, plan: Plan, side: Zygote | ColdStart, limits: Limits,
        outside: Outside,
    ) -> None:  # fmt: skip
        self.work, self.steps, self.side, self.limits = work, plan.steps, side, limits
        self.outside = outside
        self.remarks = list(plan.remarks)
        self.ended = outside.ended()
        self.session: Session | None = None
        self.snapshots: dict[int, Channel] = {}
        # Cells that ended their process, which a second run leaves out.
        self.fatal: set[int] = set()
        self.told: dict[int, dict[str, Any]] = {}
        self.place = _places(self.steps)
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

    # -- the student's cells

    def left(self, limit: float) -> float:
        """`limit`, or what is left of the submission's time.

        Raises:
            TimeLimitError: if nothing is left.
        """
        rest = self.outside.until - time.monotonic()
        if rest <= 0:
            raise TimeLimitError(f"the submission used all of its {self.limits.total:g} s")
        return min(limit, rest)

    def close(self) -> None:
        """End the student's process."""
        self._let_go()
        if self.session:
            self.session.close()
            self.session = None
        for channel in self.snapshots.values():
            channel.connection.close()
        self.snapshots.clear()

    def run_cells(self, first: int = 0) -> None:
        """Run the cells, leaving snapshots for the served steps from `first` on."""
        while (died := self._try_cells(first, len(self.steps))) is not None:
            self.fatal.add(died)

    def _try_cells(self, first: int, stop: int) -> int | None:
        """Run the cells before `stop`; the number of the one that ended the process, if one did."""
        self.close()
        self.left(1)
        self.session = self.side.session(self.limits.as_dict())
        self.session.start(self.left(60))
        self.outside.keeper(self.session.keeper)
        ran = 0
        try:
            for n, step in enumerate(self.steps[:stop]):
                if n and self.place[n] != self.place[n - 1]:
                    self._leave(self.place[n - 1], first)
                if step.student is not None and n not in self.fatal:
                    ran = n
                    self._cell(n, step)
            if stop == len(self.steps):
                self._leave(self.place[-1], first)
        except TimeoutError:
            self._fault(ran, "TimeLimit", f"not finished within {self.limits.cell:g} s")
        except (EOFError, OSError, BorderError, GoneError, KeyError, TypeError) as error:
            how = "" if isinstance(error, EOFError | OSError) else " by writing into its files"
            told = self._too_much() or f"the code ended its own process{how}"
            self._fault(ran, "ProcessEnded", told)
        else:
            return None
        return ran

    def _leave(self, place: int, first: int) -> None:
        """Leave a snapshot for the served steps of `place` from `first` on, if there are any."""
        assert self.session is not None
        if any(s.served and self.place[n] == place for n, s in enumerate(self.steps) if n >= first):
            channel = self.session.snapshot(self.left(self.limits.cell))
            if channel:
                self.snapshots[place] = channel

    def _cell(self, n: int, step: Step) -> None:
        assert self.session is not None
        request = {"op": "cell", "source": step.student, "name": step.name}
        answer = self.session.ask(request, self.left(self.limits.cell))
        out, cut = str(answer["out"]), answer["cut"]
        if type(cut) is not int or cut < 0:
            raise BorderError("not an answer")
        told = {
            "out": out[: self.limits.output],
            "cut": cut + max(0, len(out) - self.limits.output),
            "error": _error_of(answer["error"]),
        }
        self.told.setdefault(n, told)

    def _too_much(self) -> str:
        """What to say if the process was ended for its memory, or nothing."""
        before, self.ended = self.ended, self.outside.ended()
        if self.ended == before:
            return ""
        return f"the code used more than {self.limits.memory_mb} MB of memory"

    def _fault(self, n: int, name: str, text: str) -> None:
        self.told[n] = {"out": "", "cut": 0, "error": {"name": name, "text": text, "lines": []}}

    def at(self, n: int) -> Channel:
        """The student's process as it is at step `n`, waiting to serve.

        Raises:
            GoneError, TimeLimitError: if it cannot be had.
        """
        place = self.place[n]
        if place in self.snapshots:
            return self.snapshots.pop(place)
        if isinstance(self.side, Zygote):
            self.run_cells(n)
            if place in self.snapshots:
                return self.snapshots.pop(place)
        # Without a fork: a process of its own that ran the cells up to the last test of this place.
        last = max(m for m, s in enumerate(self.steps) if s.served and self.place[m] == place)
        while (died := self._try_cells(len(self.steps), last + 1)) is not None:
            self.fatal.add(died)
        assert self.session is not None
        try:
            self.session.channel.send({"op": "serve"})
        except OSError:
            raise GoneError("the code ended its own process") from None
        return self.session.channel

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
            elif told := self._too_much():
                peer.dead = GoneError(told)
            dead: BaseException = peer.dead
            if not isinstance(error, grading.WrongAnswerError):
                error = dead
        if peer is None or peer.dead or peer.waiting:
            self._let_go()
        score = _score(value, step.points) if error is None else 0.0
        reason, detail = self._reason(error, step, peer.dead if peer else None)
        if error is not None and "NameError" in f"{type(error).__name__} {reason} {detail}":
            reason += self._cause()
        if error is None and score < step.points:
            reason, detail = " ".join(grading.hints) or "partly right", out.text()
        self.called |= notebooks.BEGIN_HIDDEN in (step.trusted or "")
        self._look_at_right(peer)
        return {
            "id": step.name,
            "score": score,
            "max": step.points,
            "passed": error is None and score == step.points,
            "reason": reason[:2000],
            "detail": detail[:4000],
            "mistakes": list(dict.fromkeys(grading.mistakes)),
        }

    def _cause(self) -> str:
        """Which cells did not run: a name that is missing is often one of theirs."""
        failed = [
            f"`{self.steps[n].name}` ({told['error']['name']})"
            for n, told in sorted(self.told.items())
            if told["error"] and self.steps[n].kind in ("solution", "added", "given")
            and told["error"]["name"] not in ("NotImplementedError", "NameError")
        ]  # fmt: skip
        if not failed:
            return ""
        return f"; first repair what did not run: {', '.join(failed[:3])}"

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

    def _reason(
        self, error: BaseException | None, step: Step, dead: StudentError | None
    ) -> tuple[str, str]:
        """Why a test failed: for the student, and for the teacher.

        The student's text says nothing that came from a hidden test, nor repeats what the student's
        code said or returned there: that may be a hidden test's arguments.
        """
        if error is None:
            return "", ""
        by_student = getattr(error, "by_student", None)
        text = str(error) or type(error).__name__
        full = text if by_student or isinstance(error, AssertionError | StudentError) else (
            f"{type(error).__name__}: {text}"
        )  # fmt: skip
        if by_student:
            full = f"your code raised {by_student}: {text}"
        source = step.trusted or ""
        line = _line_of(error, f"<{step.name}>")
        hidden = [n for n, _ in notebooks.inside(source, notebooks.BEGIN_HIDDEN,
                                                 notebooks.END_HIDDEN)]  # fmt: skip
        code = source.split("\n")[line - 1].strip() if 0 < line <= source.count("\n") + 1 else ""
        detail = f"{full}\n  line {line}: {code}" if code else full
        if not hidden or (line and line < hidden[0]):
            if self.called:
                # What the student's code says by now may be what an earlier hidden test gave it.
                full = self._without_values(error, source, line)
            wrong = isinstance(error, grading.WrongAnswerError)
            return f"{full}\n  line {line}: {code}" if code and not wrong else full, detail
        if isinstance(error, grading.WrongAnswerError):
            ended = f" The code gave up in one: {dead}." if dead else ""
            return f"{error.hint}{ended}", detail
        if isinstance(error, TimeLimitError | GoneError):
            return f"in a hidden test: {error}", detail
        if by_student:
            kind = by_student if hasattr(builtins, by_student) else "an error of its own"
            return f"in a hidden test your code raised {kind}", detail
        if isinstance(error, NameError) and (name := getattr(error, "name", "")) in self.work.names:
            return f"`{name}` is not defined", detail
        return f"a hidden test failed{_constant_message(source, line)}", detail

    @staticmethod
    def _without_values(error: BaseException, source: str, line: int) -> str:
        """What is wrong, without anything that the student's code said or returned."""
        if isinstance(error, grading.WrongAnswerError):
            return error.hint
        if isinstance(error, TimeLimitError | GoneError):
            return str(error)
        if by_student := getattr(error, "by_student", None):
            kind = by_student if hasattr(builtins, by_student) else "an error of its own"
            return f"your code raised {kind}"
        return f"{type(error).__name__}{_constant_message(source, line)}"


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


def _places(steps: list[Step]) -> list[int]:
    """A number for each step: those with the same one may see the state after the last of them."""
    places: list[int] = []
    known: set[str] = set()
    place = 0
    for step in steps:
        if step.student is not None:
            told = notebooks.defines(step.student)
            place += told is None or bool(told[0] & known)
            known |= told[1] if told else set(re.findall(r"\w+", step.student))
        places.append(place)
    return places


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


def _error_of(told: Any) -> dict[str, Any] | None:
    if not isinstance(told, dict):
        return None
    lines = told.get("lines")
    return {
        "name": str(told.get("name"))[:80],
        "text": str(told.get("text"))[:1000],
        "lines": [str(x)[:200] for x in lines[-5:]] if isinstance(lines, list) else [],
    }


def _line_of(error: BaseException, filename: str) -> int:
    """The line of the test cell at which `error` arose; 0 if none is known."""
    found = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == filename:
            found = frame.lineno or 0
    return found


def _constant_message(source: str, line: int) -> str:
    """The teacher's own words in the assertion at `line`, if they are a plain text."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse(notebooks.plain(source))):
            if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
                said = node.msg
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    return f": {said.value}"
    return ""


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
