"""Protects the tests of the explorers: none is missing, and a fault is found by its own name."""

import pytest

from book.chapters import chapters, topic
from book.explorer import Bars

from .reading import Seen, differences, every_check, explorers, says


def test_every_explorer_of_the_book_is_recomputed_and_no_state_of_it_twice():
    stored = [(topic(path), cell) for path in chapters() for cell in explorers(topic(path))]
    checks = every_check()
    assert sorted({(check.topic, check.cell) for check in checks}) == sorted(stored)
    # One explorer may have two tests, of two states.
    states = [(check.topic, check.cell, *sorted(check.at.items())) for check in checks]
    assert len(states) == len(set(states))


@pytest.mark.parametrize(
    ("sentence", "said", "agrees"),
    [
        ("Size 257 in 5 tiles.", says("Size {} in {} tiles", 257, 5), True),
        ("Size 258 in 5 tiles.", says("Size {} in {} tiles", 257, 5), False),
        ("Size 257 in 5 tiles.", says("Size {} ... {} rows", 257, 5), False),
        ("Size 257 in 5 tiles.", says("Size {}", 257), False),
        ("Size 257 in 5 tiles.", says("Size ... {} tiles", 5), False),
        ("It takes -0.35 of 1,000.", says("takes {} of {}", -0.3512, 1000), True),
        ("It takes −0.35 of 1,000.", says("takes {} of {}", 0.3512, 1000), False),
        ("It takes -0.35 of 1,000.", says("takes {} of {}", -0.3449, 1000), False),
        ("It takes 12.5% at 1e-05.", says("takes {} at {}", 0.12461, 1e-5), True),
        ("It takes 12.5% at 1e-05.", says("takes {} at {}", 12.461, 1e-5), False),
        ("Memory is the limit.", says("memory is the limit"), False),
    ],
)
def test_a_sentence_says_every_number_that_was_computed_and_no_other(sentence, said, agrees):
    panel = {"kind": "bars", "title": "t", "xlabel": "x", "ylabel": "y", "labels": ["a"]}
    panel |= {"xticks": [[0.5, "a"]], "yticks": [[0, "0"], [1, "1"]], "zero": 0}
    panel |= {"series": [{"label": "s"}], "data": {"bytes": "/g=="}}  # one value, at the top
    control = {"kind": "slider", "label": "k", "values": ["1"], "start": 0}
    spec = {"controls": [control], "panels": [panel], "sentences": [sentence]}
    bars = Bars("t", ["a"], {"s": [1.0]}, "x", "y")
    assert (differences(spec, {"k": "1"}, Seen(said, bars)) == []) == agrees
    assert differences(spec, {"k": "1"}, Seen(said, Bars("t", ["a"], {"s": [0.99]}, "x", "y")))
    assert differences(spec, {"k": "2"}, Seen(said, bars))
