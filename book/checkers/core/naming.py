"""Which mistake an answer looks like: it does what the mistake does, where that shows."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from book.checkers.core.compare import difference
from book.checkers.core.exercise import Answer, Case, Exercise, WrongAnswer, both
from book.checkers.core.run import Outcome

Runs = Callable[[Answer, Case], Outcome]
# A mistake that shows up only in the last digits depends on the order of operations, so that a
# second look is a coarser one.
LOOKS = (0.0, 1e-6)


@dataclass(frozen=True)
class Found:
    """Mistakes that an answer makes: all of them, or `either` of them."""

    names: tuple[WrongAnswer, ...] = ()
    either: bool = False


@dataclass(frozen=True)
class _Mistake:
    names: tuple[WrongAnswer, ...]
    results: list[Outcome]


def mistakes(
    exercise: Exercise,
    cases: Sequence[Case],
    expected: Sequence[Outcome],
    got: Sequence[Outcome],
    known: Runs,
) -> Found:
    """The named mistakes that an answer makes; none if it makes others.

    A mistake explains a failing case if it gives there what the answer gives and the oracle does
    not. One that explains them all is the answer's; then two made at once that do; then one that
    explains most of them, with another for the rest; then any two that explain them between them.
    Mistakes that cannot be told apart by the cases are all given.
    """
    looks = [_Look(cases, expected, got, coarsest) for coarsest in LOOKS]
    single = [_made((w,), w.answer, cases, known) for w in exercise.wrong]
    for look in looks:
        if found := look.whole(single):
            return found
    pairs = []
    for a, b in itertools.combinations(exercise.wrong, 2):
        answer = both(a.answer, b.answer)
        if answer is None:
            continue
        # There are many pairs: most can be told by one case not to be it.
        first = looks[-1].failing[0]
        there = _made((a, b), answer, [cases[first]], known).results[0]
        if looks[-1].agrees(there, first):
            pairs.append(_made((a, b), answer, cases, known))
    for look in looks:
        if found := look.whole(pairs):
            return found
    for look in looks:
        if found := look.most(single):
            return found
    return Found()


def _made(
    names: tuple[WrongAnswer, ...], answer: Answer, cases: Sequence[Case], known: Runs
) -> _Mistake:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a wrong answer's warning is not the reader's
        return _Mistake(names, [known(answer, case) for case in cases])


class _Look:
    """Compares mistakes with an answer, case by case, no finer than `coarsest`."""

    def __init__(
        self,
        cases: Sequence[Case],
        expected: Sequence[Outcome],
        got: Sequence[Outcome],
        coarsest: float,
    ) -> None:
        self.expected, self.got = expected, got
        self.cases = cases
        self.tolerances = [max(case.tol, coarsest) for case in cases]
        self.failing = [
            i
            for i, (w, g, case) in enumerate(zip(expected, got, cases, strict=True))
            if difference(w, g, case.tol, case.relative) is not None
        ]

    def agrees(self, result: Outcome, i: int) -> bool:
        """Whether the answer gave this in case `i`."""
        return _alike(result, self.got[i], self.tolerances[i], self.cases[i].relative)

    def explained(self, mistake: _Mistake) -> set[int]:
        """The failing cases in which the answer is this mistake, and the mistake is one."""
        return {
            i for i in self.failing if self.agrees(mistake.results[i], i) and self.shows(mistake, i)
        }

    def shows(self, mistake: _Mistake, i: int) -> bool:
        """Whether the mistake is one in case `i`."""
        want, relative = self.expected[i], self.cases[i].relative
        return difference(want, mistake.results[i], self.tolerances[i], relative) is not None

    def possible(self, mistake: _Mistake) -> bool:
        """Whether nothing speaks against the mistake.

        Two tensors are not equal by accident; a number, a word, a yes or no may well be. There an
        answer that is right where the mistake is wrong does not make it. Nor does any answer that
        is right in most of the cases in which the mistake is wrong.
        """
        shown = [i for i in range(len(self.got)) if self.shows(mistake, i)]
        against = [i for i in shown if not self.agrees(mistake.results[i], i)]
        if any(self._is_number(i) for i in against if i not in self.failing):
            return False
        return 2 * len(against) <= len(shown)

    def _is_number(self, i: int) -> bool:
        """Whether case `i` has a result, and no tensor in it."""
        return self.expected[i].error is None and not _has_tensors(self.expected[i])

    def agreed(self, mistake: _Mistake) -> int:
        """In how many of all cases the answer gave what the mistake gives."""
        return sum(self.agrees(result, i) for i, result in enumerate(mistake.results))

    def whole(self, made: Sequence[_Mistake]) -> Found | None:
        """What explains every failing case; the closest in the others too."""
        fit = [m for m in made if len(self.explained(m)) == len(self.failing) and self.possible(m)]
        if not fit:
            return None
        closest = max(self.agreed(m) for m in fit)
        ties = [m for m in fit if self.agreed(m) == closest]
        # Pairs that cannot be told apart have a mistake in common, if anything can be said.
        if len(ties) > 1 and len(ties[0].names) > 1:
            ties = ties[:1]
        return Found(_names(ties), either=len(ties) > 1)

    def most(self, made: Sequence[_Mistake]) -> Found | None:
        """What explains most of the failing cases, and what the rest; or two for all of them."""
        explained = {
            k: found
            for k, m in enumerate(made)
            if (found := self.explained(m)) and self.possible(m)
        }
        if not explained:
            return None
        scores = {k: (len(found), self.agreed(made[k])) for k, found in explained.items()}
        first = max(scores, key=lambda k: scores[k])
        rest = set(self.failing) - explained[first]
        second = [k for k, found in explained.items() if found >= rest]
        if second:
            return Found(_names([made[first], made[second[0]]]))
        if len(explained[first]) < 0.6 * len(self.failing):
            return None
        ties = [made[k] for k in scores if scores[k] == scores[first]]
        return Found(_names(ties), either=len(ties) > 1)


def _has_tensors(outcome: Outcome) -> bool:
    """Whether the result of a case is a tensor, or holds one."""
    value = outcome.values[0] if outcome.values else None
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, torch.Tensor) for v in values)


def _names(made: Sequence[_Mistake]) -> tuple[WrongAnswer, ...]:
    found = [w for m in made for w in m.names]
    return tuple(w for i, w in enumerate(found) if w not in found[:i])


def _alike(wrong: Outcome, have: Outcome, tol: float, relative: bool) -> bool:
    """Whether two outcomes agree. Errors agree if they say the same, but for the numbers in it."""
    if wrong.error is not None and have.error is not None:
        said = [re.sub(r"\d+", "0", str(e)) for e in (wrong.error, have.error)]
        return type(wrong.error) is type(have.error) and said[0] == said[1]
    return difference(wrong, have, tol, relative) is None
