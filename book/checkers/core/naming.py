"""Which mistake an answer looks like: it does what the mistake does, where that shows."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    not. One that explains them all is the answer's, or two that do so between them, or the two at
    once if they can be made at once. Mistakes that cannot be told apart by the cases are all given.
    """
    failing = [
        i
        for i, (w, g, c) in enumerate(zip(expected, got, cases, strict=True))
        if difference(w, g, c.tol) is not None
    ]
    single = [_made((w,), w.answer, cases, known) for w in exercise.wrong]
    for coarsest in LOOKS:
        if found := _explained(single, failing, cases, expected, got, coarsest):
            return found
    pairs = []
    for a, b in itertools.combinations(exercise.wrong, 2):
        if (answer := both(a.answer, b.answer)) is not None:
            pairs.append(_made((a, b), answer, cases, known))
    for coarsest in LOOKS:
        if found := _explained(pairs, failing, cases, expected, got, coarsest):
            return found
    return Found()


def _made(
    names: tuple[WrongAnswer, ...], answer: Answer, cases: Sequence[Case], known: Runs
) -> _Mistake:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a wrong answer's warning is not the reader's
        return _Mistake(names, [known(answer, case) for case in cases])


def _explained(
    made: Sequence[_Mistake],
    failing: Sequence[int],
    cases: Sequence[Case],
    expected: Sequence[Outcome],
    got: Sequence[Outcome],
    coarsest: float,
) -> Found | None:
    """The names of what explains the failing cases best, if that is most of them."""

    def agrees(m: _Mistake, i: int) -> bool:
        return _alike(m.results[i], got[i], max(cases[i].tol, coarsest))

    def explains(m: _Mistake, i: int) -> bool:
        shows = difference(expected[i], m.results[i], max(cases[i].tol, coarsest)) is not None
        return shows and agrees(m, i)

    explained = {k: {i for i in failing if explains(m, i)} for k, m in enumerate(made)}
    # First how many of the failing cases a mistake explains, then with how many of all it agrees.
    scores = {
        k: (len(found), sum(agrees(made[k], i) for i in range(len(cases))))
        for k, found in explained.items()
        if found
    }
    if not scores:
        return None
    best = max(scores.values())
    ties = [k for k, score in scores.items() if score == best]
    first = ties[0]
    if best[0] >= 0.6 * len(failing):
        # What is not explained yet may be a second mistake, elsewhere.
        rest = set(failing) - explained[first]
        second = [k for k in scores if rest and k not in ties and explained[k] >= rest]
        if second:
            return Found(_names(made, [first, second[0]]))
        return Found(_names(made, ties), either=len(ties) > 1)
    for a, b in itertools.combinations(scores, 2):
        if explained[a] | explained[b] >= set(failing):
            return Found(_names(made, [a, b]))
    return None


def _names(made: Sequence[_Mistake], which: Sequence[int]) -> tuple[WrongAnswer, ...]:
    found = [w for k in which for w in made[k].names]
    return tuple(w for i, w in enumerate(found) if w not in found[:i])


def _alike(wrong: Outcome, have: Outcome, tol: float) -> bool:
    """Whether two outcomes agree. Errors agree if they say the same, but for the numbers in it."""
    if wrong.error is not None and have.error is not None:
        said = [re.sub(r"\d+", "0", str(e)) for e in (wrong.error, have.error)]
        return type(wrong.error) is type(have.error) and said[0] == said[1]
    return difference(wrong, have, tol) is None
