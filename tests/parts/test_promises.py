"""Protects the cases: what the text of an exercise promises is asked for by one of them."""

import dataclasses
import functools

import pytest
import torch
from promises import PROMISES, Facts, constant, far, functions, lengths, texts

from book.checkers import core
from book.checkers.assignments import questions
from book.checkers.core.forbidden import Rule
from book.checkers.questions import Question

FUNCTIONS = functions()
GRADED = {n: e for n, e in questions().items() if not isinstance(e, Question)}
# Exercise -> arguments that are the same in every case, or never reach far, and why.
ONE_VALUE = {
    "attention.sdpa": {"attn_mask": "a tensor or None, and None is no number"},
}
NEVER_FAR = {
    "experts.layer": {"k": "a number of experts"},
    "long_context.kept_share": {"k": "a pair of features, and no position"},
    "normalization_and_residuals.partial_rms_norm": {"k": "a number of features"},
    "positions_and_checkpoints.packed_angles": {
        "original_max_len": "a length that short texts exceed"
    },
    "positions_and_checkpoints.repair_dynamic_cache": {
        "original_max_len": "a length that short texts exceed"
    },
    "transformer.prefix_mask": {"length": "the size of a mask, which no number is made of"},
}


@functools.cache
def facts(name):
    return Facts((FUNCTIONS | GRADED)[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_text_promises_is_asked_for(name):
    text = texts()[name]
    missing = [p.says for p in PROMISES if p.made_by(text) and not p.shown(facts(name))]
    assert not missing


@pytest.mark.parametrize("name", FUNCTIONS | GRADED)
def test_every_constant_has_a_second_value(name):
    assert constant(facts(name)) == sorted(ONE_VALUE.get(name, {}))


@pytest.mark.parametrize("name", FUNCTIONS | GRADED)
def test_positions_reach_beyond_what_16_bits_can_count(name):
    assert sorted(far(facts(name))) == sorted(NEVER_FAR.get(name, {}))


@pytest.mark.parametrize(
    "name", [n for n in FUNCTIONS if "T, d" in texts()[n] and "S, d" in texts()[n]]
)
def test_there_are_as_many_queries_as_keys_and_others(name):
    assert lengths(facts(name)) == {True, False}


# ---------------------------------------------------------------- and the promises themselves


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.says)
def test_each_promise_is_made_by_a_text(promise):
    assert any(promise.made_by(texts()[name]) for name in FUNCTIONS)


def case(name, *arguments, **more):
    return core.Case(name, lambda: arguments, **more)


def exercise(oracle, *cases, **more):
    return core.Exercise("toy", oracle, cases, (), (), **more)


def _halves(x):
    if x.shape[-1] % 2:
        raise ValueError("an odd size")
    return x[..., ::2] * 1


ROW, PLANE = torch.ones(2), torch.ones(1, 1, 1, 1, 2)
BROKEN = {
    "any number of leading dimensions": (
        exercise(_halves, case("row", ROW)),
        exercise(_halves, case("row", ROW), case("five", PLANE)),
    ),
    "it raises a ValueError": (
        exercise(_halves, case("row", ROW)),
        exercise(_halves, case("odd", ROW[:1], raises=ValueError)),
    ),
    "something is forbidden": (
        exercise(_halves, case("row", ROW)),
        exercise(_halves, case("row", ROW), rules=(Rule("no sum", ("sum",)),)),
    ),
    "an argument is changed in place": (
        exercise(_halves, case("row", ROW)),
        exercise(lambda x: x.mul_(2), core.Case("row", lambda: (torch.ones(2),))),
    ),
    "the results are new tensors": (
        exercise(lambda x: x, case("row", ROW)),
        exercise(_halves, case("row", ROW)),
    ),
    "yes and no": (
        exercise(lambda x: bool(x.sum() > 0), case("row", ROW)),
        exercise(lambda x: bool(x.sum() > 0), case("row", ROW), case("minus", -ROW)),
    ),
    "None is possible": (
        exercise(lambda x: x, case("one", 1)),
        exercise(lambda x: x, case("one", 1), case("none", None)),
    ),
    "an integer comes back": (
        exercise(lambda x: x / 2, case("two", 2)),
        exercise(lambda x: x // 2, case("two", 2)),
    ),
    "negative numbers": (exercise(abs, case("two", 2)), exercise(abs, case("two", -2))),
    "a size of 0": (exercise(_halves, case("row", ROW)), exercise(_halves, case("none", ROW[:0]))),
    "what is infinite": (
        exercise(_halves, case("row", ROW)),
        exercise(_halves, case("row", ROW / 0)),
    ),
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_promise_that_no_case_keeps_is_seen(says):
    (promise,) = (p for p in PROMISES if p.says == says)
    broken, kept = BROKEN[says]
    assert not promise.shown(Facts(broken))
    assert promise.shown(Facts(kept))


def test_a_constant_with_one_value_and_a_short_range_are_seen():
    def scaled(x, eps, length):
        return x * eps * length

    one = exercise(scaled, case("row", ROW, 1e-5, 7), case("again", 2 * ROW, 1e-5, 9))
    assert constant(Facts(one)) == ["eps"]
    assert far(Facts(one)) == ["length"]
    more = dataclasses.replace(one, cases=(*one.cases, case("more", ROW, 1e-3, 300)))
    assert constant(Facts(more)) == far(Facts(more)) == []
