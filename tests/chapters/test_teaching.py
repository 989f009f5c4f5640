"""Protects how the chapters of the second edition teach, as far as a program can count it."""

from importlib import import_module

import pytest
from test_chapters import SECOND_EDITION

from book.chapters import chapters, read, topic
from book.checkers import exercises, verdict
from book.checkers.questions import Question
from book.teaching import measures

CHAPTERS = [path for path in chapters() if path.stem in SECOND_EDITION]
EVERY_CHAPTER = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
ALL = exercises()


@EVERY_CHAPTER
def test_pictures_come_early_and_often_and_exercises_are_of_all_kinds(path):
    assert measures(read(path)).problems() == []


def given_away(name, above, module):
    """The parts among `above` that are the answer to an exercise: by their name, or by passing."""
    exercise = ALL[name]
    parts = {one: getattr(module, one) for one in above if one in module.__all__}
    if isinstance(exercise, Question):
        return []
    return [
        one
        for one, part in parts.items()
        if one == name.partition(".")[2] or verdict(name, exercise, part).passed
    ]


@EVERY_CHAPTER
def test_no_part_that_answers_an_exercise_can_be_read_above_it(path):
    module = import_module(f"transformer_parts.{topic(path)}")
    for one in measures(read(path)).exercises:
        assert given_away(one.checks, one.above, module) == [], one.title


def test_a_part_that_answers_an_exercise_is_found():
    module = import_module("transformer_parts.normalization")
    assert given_away("normalization.rms_norm", ["rms_norm", "no_part"], module) == ["rms_norm"]
    assert given_away("normalization.rms_norm", ["layer_norm"], module) == []
    # Under another name it is one too, if it passes.
    module = import_module("transformer_parts.attention")
    above = ["causal_mask", "scaled_dot_product_attention"]
    assert given_away("attention.sdpa", above, module) == above[1:]
