"""Every checker accepts what is right and names what is wrong. One test for all chapters."""

import pytest

from book.checkers import exercises
from book.checkers.core import grade

ALL = exercises()
WRONG = [(name, w.name) for name, e in ALL.items() for w in e.wrong]


def test_there_are_exercises():
    assert ALL


@pytest.mark.parametrize("name", ALL)
def test_accepts_the_oracle_and_every_independent_right_answer(name):
    exercise = ALL[name]
    assert exercise.variants, "an exercise needs a right answer that is not the oracle"
    for answer in (exercise.oracle, *exercise.variants):
        report = grade(name, exercise, answer)
        assert report.passed, f"{answer}: {report}"


@pytest.mark.parametrize(("name", "mistake"), WRONG, ids=[f"{n}-{w}" for n, w in WRONG])
def test_rejects_and_names_every_wrong_answer(name, mistake):
    exercise = ALL[name]
    wrong = next(w for w in exercise.wrong if w.name == mistake)
    report = grade(name, exercise, wrong.answer)
    assert not report.passed
    assert report.looks_like is not None, str(report)
    assert report.looks_like.name == mistake, str(report)
    assert wrong.why in str(report)


@pytest.mark.parametrize("name", ALL)
def test_wrong_answers_have_different_names_and_reasons(name):
    wrong = ALL[name].wrong
    assert len(wrong) >= 3
    assert len({w.name for w in wrong}) == len(wrong)
    assert all(len(w.why.split()) >= 6 for w in wrong)


@pytest.mark.parametrize("name", ALL)
def test_an_untouched_stub_is_not_called_wrong(name):
    def stub(*args):
        raise NotImplementedError

    report = grade(name, ALL[name], stub)
    assert not report.attempted
    assert not report.passed
