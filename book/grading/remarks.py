"""What a right answer did that the text forbids: a remark for the teacher, and for the student.

It costs no points by itself. The answer runs in the student's process and is watched there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from book.checkers import core
from book.checkers.assignments.common import FORBIDDEN
from book.checkers.core.run import parameters, run
from book.grading.remote import Remote
from book.grading.seen import RANDOM_STATE


def of(name: str, exercise: core.Exercise, answer: Any) -> list[str]:
    """Remarks about an answer of the student's that every case found right."""
    if not isinstance(answer, Remote):
        return []
    peer = answer.__dict__["_peer"]
    rules = [*exercise.rules, *FORBIDDEN.get(name, ())]
    cases = [case for case in exercise.cases if case.raises is None]
    names = parameters(exercise)
    found: list[str] = []
    # The last case is often of another kind than the first.
    for case in dict.fromkeys([*cases[:1], *cases[-1:]]):
        peer.seen = {}
        # To see every call takes time, and without a rule nobody asks for one.
        peer.watch = "calls" if rules else "state"
        try:
            run(answer, replace(case, grad=False), names, exercise.default_dtype)
        finally:
            seen, peer.seen = peer.seen, None
        found += _broken(rules, seen)
    return list(dict.fromkeys(f"{name.partition('.')[2]}: {text}" for text in found))


def _broken(rules: Sequence[core.Rule], seen: dict[str, int]) -> list[str]:
    found = []
    for rule in rules:
        called = {
            there: count for there, count in seen.items()
            if any(there == n or there.endswith("." + n) for n in rule.names)
        }  # fmt: skip
        # One call may be seen as a function and as the operator that it is.
        if called and max(called.values()) > rule.most:
            first = min(called, key=len)
            found.append(f"the text says {rule.says}, and the answer calls `{first}`")
    if RANDOM_STATE in seen:
        found.append("the answer changes the global random state")
    return found
