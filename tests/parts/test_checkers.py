"""Every checker accepts what is right and names what is wrong. One test for all chapters."""

import dataclasses
import functools
import math

import pytest
import torch

from book.checkers import exercises, verdict
from book.checkers.core import grade, keep
from book.checkers.core.probes import NAMES, probed
from book.checkers.questions import Question
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


@functools.cache
def exercise_of(name):
    """The exercise; what its wrong answers give is run once, and not for each of them."""
    if not isinstance(ALL[name], Question):
        keep(ALL[name])
    return ALL[name]


def judged(name, answer):
    """What a reader sees who gives this answer: of a question, its value."""
    exercise = exercise_of(name)
    return verdict(name, exercise, answer() if isinstance(exercise, Question) else answer)


@pytest.mark.parametrize("name", ALL)
def test_accepts_the_oracle_and_every_independent_right_answer(name, results):
    exercise = ALL[name]
    assert exercise.variants, "an exercise needs a right answer that is not the oracle"
    for answer in (exercise.oracle, *exercise.variants):
        report = judged(name, answer)
        # The reference is often the very function that the text forbids.
        allowed = answer is exercise.oracle and bool(report.refused) and not report.failures
        assert report.passed or allowed, f"{answer}: {report}"
        results[name]["right"] += 1


@pytest.mark.parametrize(("name", "mistake"), WRONG, ids=[f"{n}-{w}" for n, w in WRONG])
def test_rejects_and_names_every_wrong_answer(name, mistake, results):
    exercise = ALL[name]
    wrong = next(w for w in exercise.wrong if w.name == mistake)
    report = judged(name, wrong.answer)
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


# ---------------------------------------------------------------- how close an answer has to be

# The loosest tolerance of a case, by what its answer holds. Answers in 16 bits differ by a rounding
# or two, those in float32 by the order of a few hundred additions, those in float64 by nothing.
LOOSEST = {"float64": 1e-9, "float": 1e-9, "float32": 1e-5, "float16": 2.5e-3, "bfloat16": 2e-2}
# Cases that need more room, with the reason.
LOOSER = {
    # A mean of 8192 leaves the spread of 1 about ten bits in float32.
    "normalization.layer_norm: float32 rows of mean 8192 and spread 1": 1e-2,
    "normalization.rms_norm: float32 rows of mean 8192 and spread 1": 1e-2,
    "normalization.layer_norm_backward: float32 rows of mean 8192 and spread 1": 1e-2,
    "normalization.batch_norm: training: float32 of mean 8192 and spread 1": 1e-2,
    # A module of the reader's, which may keep its parameters in float32.
    **dict.fromkeys(
        (
            f"tensors.register_gains: the output {when}, depth {depth}"
            for when in ("of a new module", "after one training step",
                         "after saving, tripling and loading")
            for depth in (2, 3)
        ),
        1e-5,
    ),
    "embeddings.row: four numbers, to four decimals": 6e-5,
    # Scores in bfloat16, then a softmax.
    "rope.attention: bfloat16 at positions 300 to 304": 5e-2,
}  # fmt: skip


def leaves(value):
    """The numbers and tensors of a result, in order."""
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def rebuilt(value, parts):
    if isinstance(value, list | tuple):
        # A named tuple is rebuilt as a plain one: a checker looks at the values.
        kind = list if isinstance(value, list) else tuple
        return kind([rebuilt(part, parts) for part in value])
    return next(parts)


def moved(leaf, step):
    """The number or tensor with one entry off by `step`, relative as the checkers compare.

    What is compared exactly becomes another number or word.
    """
    if isinstance(leaf, str):
        return leaf + "."
    if isinstance(leaf, bytes):
        return leaf + b"."
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return leaf + 1
    if isinstance(leaf, float) and math.isfinite(leaf):
        return leaf + step * max(1.0, abs(leaf))
    if isinstance(leaf, torch.Tensor) and leaf.numel():
        places = leaf.detach().isfinite().nonzero()
        if len(places):
            at = tuple(places[len(places) // 2].tolist())
            shift = torch.zeros(leaf.shape, dtype=torch.float64)
            shift[at] = step * (1 + abs(leaf.detach()[at].item()))
            if leaf.dtype is torch.bool:
                return leaf ^ shift.bool()
            if not leaf.is_floating_point():
                return leaf + shift.bool()
            other = leaf + shift.to(leaf.dtype)
            # Where a last bit is more than the step, the last bit has to count.
            up = torch.full_like(leaf, math.inf)
            return torch.where((other == leaf) & shift.bool(), torch.nextafter(leaf, up), other)
    return leaf


def kind_of(leaf):
    return str(leaf.dtype)[6:] if isinstance(leaf, torch.Tensor) else type(leaf).__name__


def off_in(exercise, k, times):
    """The oracle, but leaf `k` of each result has an entry off by `times` the case's tolerance.

    Also the cases in which there was something to move, and what kinds of numbers the results hold.
    """
    cases, touched, kinds = iter(exercise.cases), [], {}

    def answer(*args):
        case = next(cases)
        result = exercise.oracle(*args)
        found = leaves(result)
        kinds[case.name] = {kind_of(leaf) for leaf in found}
        if k is not None and k < len(found):
            other = moved(found[k], times * case.tol)
            if other is not found[k]:
                touched.append(case.name)
                found[k] = other
        return rebuilt(result, iter(found))

    return answer, touched, kinds


def off_in_a_gradient(exercise, times):
    """The oracle, but the gradient of each input has an entry off by `times` the tolerance."""
    cases, touched = iter(exercise.cases), []

    def answer(*args):
        case = next(cases)
        inputs = list(args)
        for i, x in enumerate(args):
            if case.grad and isinstance(x, torch.Tensor) and x.requires_grad and x.numel():
                inputs[i] = x.view_as(x)
                inputs[i].register_hook(lambda g, t=case.tol: moved(g, times * t))
        result = exercise.oracle(*inputs)
        if any(a is not b for a, b in zip(args, inputs, strict=True)):
            touched.append(case.name)
        return result

    return answer, touched


def failing(name, exercise, answer):
    """The cases that the checker rejects. Mistakes have no name here, which saves their runs."""
    alone = dict.fromkeys(NAMES, "the cases alone are asked")
    report = grade(name, dataclasses.replace(exercise, wrong=(), spared=alone), answer)
    return [case for case, _ in report.failures]


@pytest.mark.parametrize("name", ALL)
def test_an_answer_off_by_ten_times_the_tolerance_is_rejected(name):
    exercise = ALL[name]
    seen = set()
    for k in range(8):
        answer, touched, _ = off_in(exercise, k, 10)
        assert failing(name, exercise, answer) == touched
        if not touched:
            break
        seen |= set(touched)
    assert seen, "there was nothing to move in the results of this exercise"


@pytest.mark.parametrize("name", ALL)
def test_a_gradient_off_by_ten_times_the_tolerance_is_rejected(name):
    exercise = ALL[name]
    answer, touched = off_in_a_gradient(exercise, 10)
    assert failing(name, exercise, answer) == touched
    if any(case.grad for case in exercise.cases):
        assert touched


def too_loose(name, exercise):
    """The cases whose tolerance is looser than the numbers in the right answer need."""
    answer, nothing, kinds = off_in(exercise, None, 0)
    assert failing(name, exercise, answer) == nothing == []
    found = []
    for case in exercise.cases:
        allowed = [LOOSEST[kind] for kind in kinds.get(case.name, ()) if kind in LOOSEST]
        if allowed and case.tol > LOOSER.get(f"{name}: {case.name}", max(allowed)):
            found.append(case.name)
    return found, any(kind in LOOSEST for case in kinds.values() for kind in case)


# How exact a question wants its number to be depends on the question; see test_questions.py.
FUNCTIONS = [name for name, exercise in ALL.items() if not isinstance(exercise, Question)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_that_an_answer_may_change_are_made_afresh(name):
    for case in ALL[name].cases:
        for one, other in zip(case.inputs(), case.inputs(), strict=True):
            assert one is not other or not isinstance(one, list | dict | torch.Tensor), case.name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_tolerance_is_looser_than_the_numbers_need(name):
    exercise = ALL[name]
    found, measures = too_loose(name, exercise)
    assert found == []
    # Planted: every tolerance a million times what it is, as 1e-10 and 1e-4 are.
    loose = [dataclasses.replace(case, tol=1e6 * case.tol) for case in exercise.cases]
    found, _ = too_loose(name, dataclasses.replace(exercise, cases=loose))
    assert bool(found) == measures


def test_every_looser_tolerance_is_used():
    used = {f"{name}: {case.name}": case.tol for name, e in ALL.items() for case in e.cases}
    assert {key: used.get(key) for key in LOOSER} == LOOSER


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_spared_a_probe_says_why_and_all_others_are_made(name):
    exercise = ALL[name]
    made = {probe.name for _, probe, _ in probed(exercise)}
    assert not made & exercise.spared.keys()
    assert all(len(why.split()) >= 5 for why in exercise.spared.values())
    tensors = any(isinstance(x, torch.Tensor) for c in exercise.cases for x in c.inputs())
    assert {"again", "layout"} <= made | exercise.spared.keys() or not tensors
