"""Exercises that are answered with a letter or a number: what is right, and what is said."""

import math

import pytest
import torch

from book.checkers import exercises, verdict
from book.checkers.questions import Question, WrongNumber, choice, number

QUESTIONS = {name: one for name, one in exercises().items() if isinstance(one, Question)}

COLOR = choice(
    "The colour of the sky",
    right="B",
    because="Short waves are scattered most.",
    tempting={
        "A": ("red, as at sunset", "In the evening the light has a longer way through the air."),
        "C": ("black", "It would be, without air: nothing would scatter the light."),
        "D": ("green", "Green is scattered too, but less than blue is."),
    },
)
HALF = number(
    "The area of a triangle",
    value=lambda: 0.5 * 3 * 4,
    within=0.02,
    because="The triangle is half of the rectangle: {value}.",
    wrong=[
        WrongNumber("factor 1/2 forgotten", "This is the area of the rectangle.", lambda: 12.0),
        WrongNumber("sides added", "An area is a product of two lengths.", lambda: 3.0 + 4.0),
        WrongNumber("the third side", "Pythagoras gives a length and no area.", lambda: 5.0),
    ],
)


def said(question, answer):
    return str(verdict("topic.name", question, answer))


@pytest.mark.parametrize("answer", ["B", "b", " B "])
def test_the_right_letter_is_right_and_the_reason_is_said(answer):
    assert verdict("topic.name", COLOR, answer).passed
    assert said(COLOR, answer) == "topic.name: right. Short waves are scattered most."


@pytest.mark.parametrize("letter", ["A", "C", "D"])
def test_a_tempting_letter_is_told_why_it_tempts(letter):
    report = verdict("topic.name", COLOR, letter)
    assert not report.passed
    wrong = COLOR.wrong["ACD".index(letter)]
    assert str(report) == f"topic.name: {letter} is not it.\n  {wrong.name}: {wrong.why}"
    assert "Short waves" not in str(report)


def test_a_number_does_not_depend_on_who_asks_for_it_first():
    def measured():
        return float(torch.randn(3).sum())

    made = [
        number("a sum", value=measured, within=0.0, because="", wrong=[]).oracle for _ in range(3)
    ]
    first = made[0]()
    torch.manual_seed(7)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert made[1]() == first
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        assert made[2]() == first


def test_nothing_is_no_answer():
    for question, what in ((COLOR, "A, B, C or D, in quotes"), (HALF, "a number")):
        report = verdict("topic.name", question, None)
        assert not report.attempted
        assert not report.passed
        assert str(report) == f"topic.name: no answer yet. It asks for {what}."


@pytest.mark.parametrize("answer", ["E", "", 1, True, lambda: "B", ["B"]])
def test_what_is_no_letter_of_the_question_is_refused(answer):
    with pytest.raises(TypeError, match=r"the answer is A, B, C or D, in quotes, got"):
        verdict("topic.name", COLOR, answer)


@pytest.mark.parametrize("answer", ["6", True, lambda: 6.0, [6.0], math.nan, math.inf, 1j])
def test_what_is_no_number_is_refused(answer):
    with pytest.raises(TypeError, match=r"the answer is a (finite )?number, got"):
        verdict("topic.name", HALF, answer)


@pytest.mark.parametrize("answer", [6, 6.0, 6.11, 5.89, torch.tensor(6.0), torch.tensor([[6.1]])])
def test_a_number_within_the_limit_is_right(answer):
    assert said(HALF, answer) == "topic.name: right. The triangle is half of the rectangle: 6."


@pytest.mark.parametrize(("answer", "how"), [(6.13, "large"), (5.87, "small"), (-6.0, "small")])
def test_a_number_beyond_the_limit_is_too_large_or_too_small(answer, how):
    assert said(HALF, answer) == f"topic.name: {answer:.4g} is too {how}."


def test_a_known_wrong_number_is_named_and_the_right_one_is_not_given_away():
    assert said(HALF, 12) == (
        "topic.name: 12 is too large.\n  factor 1/2 forgotten: This is the area of the rectangle."
    )
    assert "6" not in said(HALF, 12)


def test_a_mistake_that_cannot_be_told_from_the_right_number_is_not_named():
    near = [WrongNumber("rounded", "It was rounded once too often.", lambda: 6.1)]
    question = number("t", value=lambda: 6.0, within=0.02, because="", wrong=near)
    assert said(question, 6.2) == "topic.name: 6.2 is too large."


def test_a_small_number_is_judged_relative_to_itself():
    question = number("t", value=lambda: 1e-3, within=0.1, because="Right.", wrong=[])
    assert verdict("topic.name", question, 1.05e-3).passed
    assert not verdict("topic.name", question, 2e-3).passed


def test_a_count_is_exact_and_zero_is_zero():
    question = number("t", value=lambda: 12, within=0.0, because="{value}", wrong=[])
    assert said(question, 12) == "topic.name: right. 12"
    assert not verdict("topic.name", question, 12.001).passed
    nothing = number("t", value=lambda: 0.0, within=0.1, because="", wrong=[])
    assert verdict("topic.name", nothing, 0).passed
    assert not verdict("topic.name", nothing, 1e-12).passed


def test_the_checkers_own_run_is_made_once_and_not_before_it_is_needed():
    runs = []
    question = number("t", value=lambda: runs.append(1) or 6.0, within=0.1, because="", wrong=[])
    assert runs == []
    verdict("topic.name", question, None)
    assert runs == []
    verdict("topic.name", question, 6.0)
    verdict("topic.name", question, 7.0)
    assert runs == [1]


@pytest.mark.parametrize("name", [n for n, one in QUESTIONS.items() if not one.choices])
def test_a_number_of_the_book_is_as_exact_as_its_question_says(name):
    question = QUESTIONS[name]
    right = question.oracle()
    assert verdict(name, question, right * (1 + 0.9 * question.within)).passed
    assert not verdict(name, question, right * (1 + 1.1 * question.within) + 1e-9).passed
    # The limit of a measured number; half of the way to a known mistake is wrong, too.
    assert question.within <= 0.25


@pytest.mark.parametrize("name", [n for n, one in QUESTIONS.items() if one.choices])
def test_the_letters_of_a_question_of_the_book_follow_each_other(name):
    assert "".join(QUESTIONS[name].choices) == "ABCDEFGH"[: len(QUESTIONS[name].choices)]
