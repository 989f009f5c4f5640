"""Protects the checkers from answers nobody listed: wrong ones are told, right ones pass."""

import importlib
import pkgutil
from collections import Counter

import pytest
import written

from book.checkers import exercise, verdict

# What an answer warns of is the reader's to read.
pytestmark = pytest.mark.filterwarnings("ignore")
FILES = {
    m.name: importlib.import_module(f"{written.__name__}.{m.name}")
    for m in pkgutil.iter_modules(written.__path__)
}
WRONG = [one for file in FILES.values() for one in file.WRONG]
RIGHT = [one for file in FILES.values() for one in file.RIGHT]


def label(one):
    return f"{one.exercise}: {one.what}"


@pytest.mark.parametrize("one", WRONG, ids=label)
def test_a_wrong_answer_is_rejected_and_told_what_it_is(one):
    report = verdict(one.exercise, exercise(one.exercise), one.answer)
    assert not report.passed
    said = {mistake.name for mistake in report.mistakes}
    if one.named is not None:
        assert one.named in said, report
    else:
        assert not said, report
    assert (one.says or "again: ") in str(report), report


@pytest.mark.parametrize("one", RIGHT, ids=label)
def test_a_right_answer_passes_in_whatever_way_it_is_written(one):
    report = verdict(one.exercise, exercise(one.exercise), one.answer)
    assert report.passed, report


def test_labels_are_their_own():
    twice = [k for k, n in Counter(map(label, [*WRONG, *RIGHT])).items() if n > 1]
    assert not twice
