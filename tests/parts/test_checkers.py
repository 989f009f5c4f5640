"""Every checker accepts what is right and names what is wrong. One test for all chapters."""

import pytest
import torch

from book.checkers import exercises
from book.checkers.core import grade
from book.measured import record

ALL = exercises()
WRONG = [(name, w.name) for name, e in ALL.items() for w in e.wrong]


@pytest.fixture(scope="module", autouse=True)
def results():
    """Mistakes named and right answers accepted, counted for the page on how it is checked."""
    counts = {name: {"named": 0, "right": 0} for name in ALL}
    yield counts
    for name, exercise in ALL.items():
        sizes = {"wrong": len(exercise.wrong), "cases": len(exercise.cases)}
        record("checker", name, sizes | counts[name])


def test_there_are_exercises():
    assert ALL


@pytest.mark.parametrize("name", ALL)
def test_accepts_the_oracle_and_every_independent_right_answer(name, results):
    exercise = ALL[name]
    assert exercise.variants, "an exercise needs a right answer that is not the oracle"
    for answer in (exercise.oracle, *exercise.variants):
        report = grade(name, exercise, answer)
        assert report.passed, f"{answer}: {report}"
        results[name]["right"] += 1


@pytest.mark.parametrize(("name", "mistake"), WRONG, ids=[f"{n}-{w}" for n, w in WRONG])
def test_rejects_and_names_every_wrong_answer(name, mistake, results):
    exercise = ALL[name]
    wrong = next(w for w in exercise.wrong if w.name == mistake)
    report = grade(name, exercise, wrong.answer)
    assert not report.passed
    assert report.looks_like is not None, str(report)
    assert report.looks_like.name == mistake, str(report)
    assert wrong.why in str(report)
    results[name]["named"] += 1


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


@pytest.mark.parametrize("largest", ["x.max()", "x.amax()", "x.detach().max()"])
def test_one_maximum_for_all_rows_is_named_however_it_is_taken(largest):
    def softmax(x, dim):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        e = torch.exp(wide - eval(largest, {"x": wide}))
        return (e / e.sum(dim, keepdim=True)).to(x.dtype)

    report = grade("softmax.softmax", ALL["softmax.softmax"], softmax)
    assert report.looks_like is not None
    assert report.looks_like.name == "one maximum for the whole tensor"
