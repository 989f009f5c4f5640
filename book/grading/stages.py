"""The student's cells, run from the first to the last, with a snapshot where tests stand.

When the student's process dies or does not answer, a new one runs the other cells again, so that
the next test finds the state of its place in the notebook.
"""

from __future__ import annotations

import re
import time
from typing import Any

from book.grading import notebooks
from book.grading.channel import BorderError, Channel, GoneError, TimeLimitError
from book.grading.limits import Limits, Outside
from book.grading.notebooks import Step
from book.grading.sandbox import ColdStart, Session, Zygote


class Stages:
    """The cells of one submission under way."""

    def __init__(
        self, steps: list[Step], side: Zygote | ColdStart, limits: Limits, outside: Outside
    ) -> None:
        self.steps, self.side, self.limits, self.outside = steps, side, limits, outside
        self.ended = outside.ended()
        self.session: Session | None = None
        self.snapshots: dict[int, Channel] = {}
        # Cells that ended their process, which a second run leaves out.
        self.fatal: set[int] = set()
        # What each cell printed and raised.
        self.told: dict[int, dict[str, Any]] = {}
        self.place = places(steps)

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
            told = self.too_much() or f"the code ended its own process{how}"
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

    def too_much(self) -> str:
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


def places(steps: list[Step]) -> list[int]:
    """A number for each step: those with the same one may see the state after the last of them."""
    found: list[int] = []
    known: set[str] = set()
    place = 0
    for step in steps:
        if step.student is not None:
            told = notebooks.defines(step.student)
            place += told is None or bool(told[0] & known)
            known |= told[1] if told else set(re.findall(r"\w+", step.student))
        found.append(place)
    return found


def _error_of(told: Any) -> dict[str, Any] | None:
    if not isinstance(told, dict):
        return None
    lines = told.get("lines")
    return {
        "name": str(told.get("name"))[:80],
        "text": str(told.get("text"))[:1000],
        "lines": [str(x)[:200] for x in lines[-5:]] if isinstance(lines, list) else [],
    }
