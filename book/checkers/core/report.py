"""The verdict on an answer. Printed, it is what the reader sees."""

from __future__ import annotations

from dataclasses import dataclass, field

from book.checkers.core.exercise import WrongAnswer


@dataclass(frozen=True)
class Report:
    """The verdict: what fails, and which mistakes it looks like."""

    name: str
    total: int
    # Name of a case, and what is wrong there.
    failures: tuple[tuple[str, str], ...]
    mistakes: tuple[WrongAnswer, ...] = ()
    # Whether it looks like one of the mistakes or another, and not like all of them at once.
    either: bool = False
    attempted: bool = True
    # Every case that is written is right, and what fails is made from those.
    probing: bool = False
    # How to see the first failing case again: its arguments, and a line that makes them.
    again: tuple[str, ...] = ()
    # The types of Python's own exceptions that it raises where it should not.
    raised: tuple[str, ...] = ()
    # What the answer leaves changed in the session.
    notes: tuple[str, ...] = ()
    # What is wrong whatever the case: a signature, or something that is forbidden.
    refused: str = ""
    lines: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", self._lines())

    @property
    def passed(self) -> bool:
        """Whether every case is right, and nothing was done that the text forbids."""
        return self.attempted and not self.failures and not self.refused

    @property
    def looks_like(self) -> WrongAnswer | None:
        """The first of the mistakes."""
        return self.mistakes[0] if self.mistakes else None

    def _lines(self) -> list[str]:
        if not self.attempted:
            return [f"{self.name}: nothing to check yet. Replace the NotImplementedError."]
        notes = [f"Besides: {note}." for note in self.notes]
        if self.passed:
            return [f"{self.name}: right in all {self.total} cases.", *notes]
        if self.refused:
            return [f"{self.name}: not yet. {self.refused}", *notes]
        right = f"{self.total - len(self.failures)} of {self.total} cases are right."
        if self.probing:
            right = f"All {self.total} cases are right, but not:"
        lines = [f"{self.name}: not yet. {right}"]
        for k, (case, what) in enumerate(self.failures[:3]):
            lines.append(f"  {case}: {what}")
            if k == 0:
                lines += [f"    {line}" for line in self.again]
        if len(self.failures) > 3:
            lines.append(f"  ... and {len(self.failures) - 3} more")
        for k, mistake in enumerate(self.mistakes):
            start = (
                "It looks like this mistake"
                if k == 0
                else "Or this one"
                if self.either
                else "And this one"
            )
            lines.append(f"{start}: {mistake.name}. {mistake.why}")
        return lines + notes

    def __str__(self) -> str:
        return "\n".join(self.lines)
