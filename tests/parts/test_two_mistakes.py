"""Protects the names: of an answer with two of the named mistakes at once both are said."""

import contextlib
import functools
import io
import itertools
import random
import warnings

import pytest

from book.checkers import core, exercises
from book.checkers.core import naming
from book.checkers.questions import Question
from book.measured import record

FUNCTIONS = {name: e for name, e in exercises().items() if not isinstance(e, Question)}
SAMPLED = 4


def outcomes(exercise, answer):
    """What is said of an answer, as far as it depends on what the answer gives."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # what overflows in a wrong answer
        return core.grade("pair", exercise, answer)


@contextlib.contextmanager
def remembered():
    """Within this a mistake, or two of them at once, run on a case once and not for each answer."""
    known, ran = core._known, {}

    def once(answer, case, *how):
        key = id(answer), id(case)
        if key not in ran:  # the objects too, so that their identities stay theirs
            ran[key] = answer, case, known(answer, case, *how)
        return ran[key][-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "_known", once)
        patch.setattr(naming, "both", functools.cache(naming.both))
        yield


def pairs(name):
    """Up to `SAMPLED` pairs of mistakes that can be made at once, and the answer with both."""
    exercise = FUNCTIONS[name]
    made = [
        (a, b, answer)
        for a, b in itertools.combinations(exercise.wrong, 2)
        if (answer := core.both(a.answer, b.answer)) is not None
    ]
    return random.Random(name).sample(made, min(SAMPLED, len(made)))


@functools.cache
def told(name):
    """The pairs that fail otherwise than one of the two alone, and how they are told."""
    exercise = FUNCTIONS[name]
    failures = functools.cache(lambda wrong: outcomes(exercise, wrong.answer).failures)
    counts = {"pairs": 0, "both": 0, "wrong": 0}
    with remembered():
        for a, b, answer in pairs(name):
            report = outcomes(exercise, answer)
            alone = {w.name: failures(w) for w in (a, b)}
            if report.passed or report.failures in alone.values():  # one hides the other
                continue
            counts["pairs"] += 1
            counts["both"] += {a.name, b.name} <= {m.name for m in report.mistakes}
            # A third that gives the same in every case is no wrong name: yes and no say little.
            others = [m for m in report.mistakes if m.name not in alone]
            counts["wrong"] += any(failures(m) != report.failures for m in others)
    return counts


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_mistakes_at_once_get_no_third_name(name):
    counts = told(name)
    record("two mistakes", name, counts)
    assert counts["wrong"] == 0


def test_of_two_mistakes_at_once_both_are_told():
    counts = [told(name) for name in FUNCTIONS]
    total, both = sum(c["pairs"] for c in counts), sum(c["both"] for c in counts)
    assert total >= 100
    assert both >= 0.8 * total, f"{both} of {total}"
