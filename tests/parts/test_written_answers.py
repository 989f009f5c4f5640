"""Protects the checkers from answers nobody listed: wrong ones are told, right ones pass."""

import functools
import importlib
import pkgutil
from collections import Counter

import pytest
import written

from book.checkers import core, exercise, verdict
from book.checkers.core.state import Watch

# What an answer warns of is the reader's to read.
pytestmark = pytest.mark.filterwarnings("ignore")
FILES = {
    m.name: importlib.import_module(f"{written.__name__}.{m.name}")
    for m in pkgutil.iter_modules(written.__path__)
}
WRONG = [one for file in FILES.values() for one in file.WRONG]
RIGHT = [one for file in FILES.values() for one in file.RIGHT]


@functools.cache
def asked(name):
    """An exercise of which the oracle and the named mistakes have run: many answers meet them."""
    one = exercise(name)
    core.keep(one)
    return one


def label(one):
    return f"{one.exercise}: {one.what}"


@pytest.mark.parametrize("one", WRONG, ids=label)
def test_a_wrong_answer_is_rejected_and_told_what_it_is(one, monkeypatch):
    if one.what == "no end":  # it is not waited for as long as a reader's
        monkeypatch.setattr(core, "Watch", functools.partial(Watch, 2.0))
    report = verdict(one.exercise, asked(one.exercise), one.answer)
    assert not report.passed
    said = {mistake.name for mistake in report.mistakes}
    if one.named is not None:
        assert one.named in said, report
    else:
        assert not said, report
    assert (one.says or "again: ") in str(report), report


@pytest.mark.parametrize("one", RIGHT, ids=label)
def test_a_right_answer_passes_in_whatever_way_it_is_written(one):
    report = verdict(one.exercise, asked(one.exercise), one.answer)
    assert report.passed, report


def test_labels_are_their_own():
    twice = [k for k, n in Counter(map(label, [*WRONG, *RIGHT])).items() if n > 1]
    assert not twice
