"""How an answer is checked: the conditions, the probes, what is forbidden, and every message."""

import random
import sys
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from book import checkers
from book.checkers import core
from book.checkers.core import probes, state
from book.checkers.core.forbidden import Rule, autograd, broken
from book.checkers.core.run import BookFaultError


def _double(x, factor):
    return x * factor


def a_case(**changed):
    made = {
        "name": "two rows",
        "inputs": lambda: (torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), 2.0),
        "grad": True,
    }
    return core.Case(**(made | changed))


def doubling(**changed):
    made = {
        "title": "Doubling",
        "oracle": _double,
        "cases": (a_case(), a_case(name="one row", inputs=lambda: (torch.ones(1, 3), 3.0))),
        "wrong": (
            core.WrongAnswer("added", "It says times and not plus.", lambda x, factor: x + factor),
            core.WrongAnswer("squared", "It says times the factor.", lambda x, factor: x * x),
        ),
        "variants": (lambda x, factor: factor * x,),
    }
    return core.Exercise(**(made | changed))


def said(answer, **changed):
    return str(core.grade("toy.double", doubling(**changed), answer))


# ---------------------------------------------------------------- the same conditions for all


def test_gradients_are_compared_in_a_session_without_gradients():
    def detached(x, factor):
        return x.detach() * factor

    with torch.no_grad():
        report = core.grade("toy.double", doubling(), detached)
        assert not torch.is_grad_enabled()
    assert "gradient of x" in str(report)
    assert core.grade("toy.double", doubling(), lambda x, factor: x * factor).passed


def test_an_answer_has_the_default_dtype_of_the_chapters_whatever_the_session_has():
    def through_a_default(x, factor):
        return x * torch.ones(x.shape[-1]) * factor

    before = torch.get_default_dtype()
    cases = (a_case(inputs=lambda: (torch.ones(2, 2, dtype=torch.float64), 2.0), grad=False),)
    plain = dict.fromkeys(probes.NAMES, "the case alone")
    assert said(through_a_default, cases=cases, spared=plain).endswith("right in all 1 cases.")
    assert torch.get_default_dtype() is before
    float32 = doubling(cases=cases, spared=plain, default_dtype=torch.float32)
    assert core.grade("toy.double", float32, through_a_default).passed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: torch.set_grad_enabled(False), "it switches gradients off and leaves them off"),
        (lambda: torch.set_default_dtype(torch.float16), "it sets the default dtype to torch.flo"),
        (lambda: torch.manual_seed(7), "it sets the seed of torch"),
        (lambda: torch.set_num_threads(2), "it sets torch to 2 threads"),
        (lambda: torch.use_deterministic_algorithms(True), "it switches deterministic algorithms"),
        (lambda: torch.autograd.set_detect_anomaly(True), "it switches the detection of anomali"),
    ],
)
def test_what_an_answer_changes_globally_is_said_and_undone(change, told):
    def answer(x, factor):
        change()
        return x * factor

    def settings():
        return (
            torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(),
            torch.get_rng_state().tolist(), random.getstate(),
        )  # fmt: skip

    torch.set_num_threads(1)
    before = settings()
    spared = dict.fromkeys(probes.NAMES, "the case alone")
    assert f"Besides: {told}" in said(answer, spared=spared, cases=(a_case(grad=False),))
    assert settings() == before


def test_random_numbers_are_the_same_in_every_run_and_the_sessions_go_on():
    drawn = []
    torch.manual_seed(3)
    state_before = torch.get_rng_state()
    for _ in range(2):
        core.grade("toy.double", doubling(), lambda x, factor: drawn.append(torch.rand(2)) or x)
    assert all(torch.equal(drawn[0], other) for other in drawn)
    assert torch.equal(torch.get_rng_state(), state_before)


def test_an_exception_of_the_books_own_answer_is_no_expectation():
    def fails(x, factor):
        raise ValueError("the book's own")

    with pytest.raises(BookFaultError, match="the book's own answer raises"):
        core.grade("toy.double", doubling(oracle=fails), fails)
    declared = (a_case(raises=ValueError),)
    assert core.grade("toy.double", doubling(oracle=fails, cases=declared), fails).passed
    with pytest.raises(BookFaultError, match="should raise ValueError, and does"):
        core.grade("toy.double", doubling(cases=declared), _double)


def test_an_endless_loop_ends_and_the_other_cases_are_not_waited_for(monkeypatch):
    def endless(x, factor):
        while True:
            pass

    monkeypatch.setattr(state.Watch, "__init__", _short_watch)
    began = time.monotonic()
    text = said(endless)
    assert time.monotonic() - began < 5
    assert "had not ended after 10 seconds" in text
    assert "in your line: " in text


original = state.Watch.__init__


def _short_watch(self):
    original(self, seconds=0.3)


def _for_ever():
    while True:
        pass


def test_a_quick_answer_does_not_meet_the_watch_of_a_slow_one():
    with state.Watch(seconds=0.05) as watch:
        for _ in range(3):
            with pytest.raises(state.TookTooLongError), watch.call():
                _for_ever()
            with watch.call():
                pass
        time.sleep(0.1)


# ---------------------------------------------------------------- probes

KEPT = {}


def _kept_by_shape(x, factor):
    return KEPT.setdefault((x.shape, x.dtype), x.detach() * factor) + 0 * x


def _kept_by_place(x, factor, kept=[]):  # noqa: B006  # the mistake that is looked for
    kept.append(x.detach() * factor)
    return kept[min(len(kept) - 1, 1)] + 0 * x if len(kept) > 2 else x * factor


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda x, factor: x.view(-1).mul(factor).view(x.shape), "not contiguous: raised Runtim"),
        (lambda x, factor: x * torch.tensor(factor, dtype=x.dtype).double(), ""),
        (lambda x, factor: x.double() * factor, "in float32: expected dtype torch.float32"),
        (_kept_by_shape, "with the numbers in other places: at [0, 0] expected"),
        (_kept_by_place, "two rows"),
    ],
)
def test_a_probe_finds_what_no_case_asked_for(answer, told):
    KEPT.clear()
    double = a_case(
        inputs=lambda: (
            torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64, requires_grad=True),
            2.0,
        ),
        grad=False,
    )
    text = said(answer, cases=(double,))
    assert told in text if told else "right in all" in text


def test_every_probe_is_made_and_keeps_what_belongs_together():
    same = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    lists = core.Exercise(
        "toy", lambda a, b, box, name: a @ b + box[0],
        (core.Case("all", lambda: (same, same, [same.detach()], "x"), grad=True),), (), (),
        leading={"a": 1, "b": 1},
    )  # fmt: skip
    made = {probe.name: case.inputs() for _, probe, case in probes.probed(lists)}
    assert tuple(made) == probes.NAMES
    for name, (a, b, box, word) in made.items():
        assert a is b
        assert a.requires_grad
        assert a.is_leaf
        assert word == "x"
        assert isinstance(box, list)
        dtype = getattr(torch, name) if "float" in name else torch.float64
        assert a.dtype is box[0].dtype is dtype
    assert not made["layout"][0].is_contiguous()
    assert made["layout"][0].storage_offset() == 2
    assert torch.equal(made["layout"][0], same)
    assert made["other values"][0].tolist() == [[3, 4], [1, 2]]


def test_magnitudes_are_changed_and_compared_with_their_own_size():
    def keeps_what_is_large(x, factor):
        return torch.where(x.abs() > 1e-12, x * factor, torch.zeros_like(x))

    def overflows(x, factor):
        return (x * factor).exp().log() if x.max() > 100 else x * factor

    case = a_case(inputs=lambda: (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 2.0), grad=False)
    told = said(keeps_what_is_large, cases=(case,))
    assert "with all numbers times 1e-30: at [0, 0] expected 2e-30, got 0" in told
    told = said(overflows, cases=(case,))
    assert "with all numbers times 800: at [0, 0] expected 1600, got inf" in told
    # The last digits are rounding, of small numbers too.
    assert "right in all" in said(lambda x, factor: x * (factor * (1 + 1e-15)), cases=(case,))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda x, y: x @ y.transpose(1, 2), "without leading dimensions: raised IndexError"),
        (lambda x, y: torch.einsum("nij,nkj->nik", x, y), "without leading dimensions: raised"),
        (
            lambda x, y: torch.stack([a @ b.mT for a, b in zip(x, y, strict=True)])
            if x.dim() == 3
            else x @ y.mT if x.dim() == 2 else x.flatten(0, -3) @ y.flatten(0, -3).mT,
            "with four leading dimensions: expected shape (2, 3, 1, 3, 2, 2), got (18, 2, 2)",
        ),
        (
            lambda x, y: torch.stack([a @ b.mT for a, b in zip(x, y, strict=True)])
            if x.dim() == 3
            else x @ y.mT,
            "with a leading dimension of size 0: raised RuntimeError",
        ),
    ],
)  # fmt: skip
def test_any_number_of_leading_dimensions_is_asked_for(answer, told):
    product = core.Exercise(
        "Product", lambda x, y: x @ y.mT,
        (core.Case("three", lambda: (torch.ones(3, 2, 4), torch.ones(3, 2, 4))),), (), (),
        leading={"x": 2, "y": 2},
    )  # fmt: skip
    assert core.grade("toy.product", product, lambda x, y: (y @ x.mT).mT).passed
    assert told in str(core.grade("toy.product", product, answer))


def test_leading_dimensions_are_those_of_arguments():
    with pytest.raises(ValueError, match="leading dimensions of no argument: \\['z'\\]"):
        probes.probed(doubling(leading={"z": 1}))


def test_a_spared_probe_is_not_made_and_an_unknown_one_is_an_error():
    assert len(probes.probed(doubling(spared={"layout": "why"}))) < len(probes.probed(doubling()))
    with pytest.raises(ValueError, match="spared probes that there are not: \\['lay'\\]"):
        probes.probed(doubling(spared={"lay": "why"}))


def test_a_result_that_shares_the_memory_of_an_argument_is_found_and_an_accident_is_not():
    def same(x, factor):
        return x

    doubled = doubling(oracle=lambda x, factor: x.clone(), wrong=())
    assert "the result shares its memory with x" in str(core.grade("toy.copy", doubled, same))
    once = doubling(
        oracle=lambda x, factor: x.clone(),
        wrong=(),
        cases=(*doubling().cases, a_case(name="third")),
        spared=dict.fromkeys(probes.NAMES, "the cases alone"),
    )
    accident = core.grade("toy.copy", once, lambda x, f: x if f == 3 else x.clone())
    assert accident.passed


def test_a_changed_list_or_dictionary_is_found():
    def empties(box, table):
        box.pop()
        return 1

    def fills(box, table):
        table["new"] = 1
        return 1

    exercise = core.Exercise(
        "toy", lambda box, table: 1, (core.Case("a list", lambda: ([1, 2], {"a": 1})),), (), ()
    )
    assert "box after the call: expected 2 values" in str(core.grade("toy", exercise, empties))
    assert "table after the call: expected the keys" in str(core.grade("toy", exercise, fills))


# ---------------------------------------------------------------- what is forbidden


def by_function(x):
    return F.softmax(x, -1)


def by_method(x):
    return x.softmax(-1)


def by_module(x):
    return torch.nn.Softmax(-1)(x)


def by_back_door(x):
    return torch.ops.aten._softmax(x, -1, False)


def by_hand(x):
    e = (x - x.max()).exp()
    return e / e.sum(-1, keepdim=True)


SOFTMAX = Rule("without a softmax of torch's", ("softmax", "aten._softmax"))


@pytest.mark.parametrize("answer", [by_function, by_method, by_module, by_back_door])
def test_a_forbidden_function_is_seen_by_whatever_way(answer):
    rule, call = broken([SOFTMAX], lambda: answer(torch.ones(2, 2)), __file__)
    assert rule is SOFTMAX
    assert "return " in call.line


def test_a_function_without_tensors_is_seen_and_the_profile_is_put_back():
    before = sys.getprofile()
    rule = Rule("without torch", ("broadcast_shapes",))
    found = broken([rule], lambda: torch.broadcast_shapes((2, 1), (3,)), __file__)
    assert found is not None
    assert found[1].name == "torch.functional.broadcast_shapes"
    assert sys.getprofile() is before


def test_what_is_allowed_breaks_no_rule():
    assert broken([SOFTMAX, autograd()], lambda: by_hand(torch.ones(2, 2)), __file__) is None


def by_grad(x):
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(leaf.exp().sum(), leaf)[0]


def by_backward(x):
    leaf = x.detach().requires_grad_()
    leaf.exp().sum().backward()
    return leaf.grad


def by_func(x):
    return torch.func.grad(lambda y: y.exp().sum())(x)


@pytest.mark.parametrize("answer", [by_grad, by_backward, by_func])
def test_autograd_is_seen(answer):
    assert broken([autograd()], lambda: answer(torch.ones(2, 2)), __file__)


def test_one_product_more_than_allowed_is_seen():
    one = Rule("as one matrix product", ("aten.mm", "aten.bmm"), most=1)
    x = torch.ones(2, 2)
    assert broken([one], lambda: x @ x, __file__) is None
    rule, call = broken([one], lambda: x @ x @ x, __file__)
    assert (rule, call.name) == (one, "aten.mm")


def _by_the_matrix(p):
    J = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return J.abs().sum(-1).amax(-1)


def _by_a_formula(p):
    return (2 * p * (1 - p)).amax(-1)


def test_what_may_not_be_built_is_seen_by_its_size():
    rule = Rule("without building J", entries=lambda p: p.numel())
    p = torch.full((3, 4), 0.25)
    own = __file__
    assert broken([rule], lambda: _by_a_formula(p), own, (p,)) is None
    assert broken([rule], lambda: p.expand(9, 3, 4), own, (p,)) is None
    found, call = broken([rule], lambda: _by_the_matrix(p), own, (p,))
    assert found is rule
    assert call.shape == (3, 4, 4)
    assert call.line.startswith("J = torch.diag_embed(p)")
    assert str(call).endswith("makes a tensor of shape (3, 4, 4)")


def test_the_message_quotes_the_forbidden_call_and_its_line():
    rules = (Rule("without `torch.mul`", ("mul", "aten.mul")),)
    text = said(lambda x, factor: torch.mul(x, factor), rules=rules)
    assert "The result is right, but the exercise says without `torch.mul`: `torch.mul` is" in text
    assert "in your line: text = said(lambda x, factor: torch.mul(x, factor)" in text


# ---------------------------------------------------------------- messages


def nothing(x, factor):
    x * factor


def numpys(x, factor):
    return (x * factor).detach().numpy()


def yields(x, factor):
    yield x


def breaks(x, factor):
    return x @ torch.ones(7, 7)


class Doubler:
    def __init__(self, x, factor):
        self.x = x


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (nothing, "expected a tensor of shape (2, 2), got None (is a `return` missing?)"),
        (numpys, "got a NumPy ndarray (stay in torch)"),
        (yields, "got a generator (`list(...)` or `tuple(...)` makes values of it)"),
        (breaks, "in your line: return x @ torch.ones(7, 7)"),
        (Doubler, "`Doubler` is a class, and a function is asked for"),
        (lambda x: x, "The signature is (x, factor); yours is (x): too many positional arguments."),
        (lambda x, factor: x, "at [0, 0] expected 2, got 1"),
        (lambda x, factor: x * factor * (1 + 1e-8), "so little that it is rounding"),
        (lambda x, factor: x.long() * 2, "expected dtype torch.float64, got torch.int64"),
        (lambda x, factor: x, "with x = [[1, 2], [3, 4]] (float64); factor = 2.0"),
        (lambda x, factor: x, 'again: your_answer(*inputs("toy.double", "two rows"))'),
    ],
)
def test_a_message_says_what_one_can_act_on(answer, told):
    assert told in said(answer, cases=(a_case(), a_case(name="again", grad=False)))


@pytest.mark.parametrize(
    ("want", "have", "told"),
    [
        (torch.tensor([1, 2, 3]), torch.tensor([1, 5, 3]), "at [1] expected 2, got 5"),
        (torch.tensor([True]), torch.tensor([False]), "at [0] expected True, got False"),
        (3, 4, "expected 3, got int 4"),
        (3, torch.tensor(3), "expected 3, got a tensor that holds 3 (`.item()` makes a number"),
        ((1, 2), (1, 3), "value 1: expected 2, got int 3"),
        ((1, 2), [1, 2, 3], "expected 2 values, got [1, 2, 3]"),
        ({"a": 1}, {"a": 2}, "'a': expected 1, got int 2"),
        ({"a": 1}, {"b": 1}, "expected the keys ['a'], got dict {'b': 1}"),
        (2.0, 2.5, "expected 2, got 2.5"),
        (None, 1, "expected None, got int 1"),
        (1, None, "expected 1, got None (is a `return` missing?)"),
        (1, Doubler, "got the class Doubler, not an instance of it"),
        (torch.tensor(2.0), np.float64(2.0), "got a NumPy float64 (stay in torch)"),
    ],
)
def test_a_difference_of_any_kind_says_where_expected_and_got(want, have, told):
    exercise = core.Exercise("toy", lambda: want, (core.Case("it", tuple),), (), ())
    text = str(core.grade("toy", exercise, lambda: have))
    assert told in text


def test_of_a_large_argument_the_row_is_shown():
    def row_wise(x):
        return x.clone()

    big = core.Case("big", lambda: (torch.arange(32.0).reshape(8, 4),))
    exercise = core.Exercise("toy", row_wise, (big,), (), ())

    def answer(x):
        y = x.clone()
        y[5, 1] = 0
        return y

    text = str(core.grade("toy", exercise, answer))
    assert "at [5, 1] expected 21, got 0" in text
    assert "x = float64 of shape (8, 4), in it [5] = [20, 21, 22, 23]" in text


def test_the_arguments_of_a_case_can_be_had_again():
    x, dim = checkers.inputs("softmax.softmax", "columns, dim 0")
    assert (x.shape, dim) == ((4, 6), 0)
    again, _ = checkers.inputs("softmax.softmax", "columns, dim 0, the same in float32")
    assert again.dtype is torch.float32
    with pytest.raises(ValueError, match="has no case 'columns'; it has"):
        checkers.inputs("softmax.softmax", "columns")


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match=r"no exercise is called 'softmax.softmx'; there are, fo"):
        checkers.check("softmax.softmx", None)


# ---------------------------------------------------------------- names


def _parts(*, times=lambda x, f: x * f, then=lambda y: y, zero=lambda y: y):
    def answer(x, factor):
        return zero(then(times(x, factor)))

    return answer


made = core.in_parts(_parts)
WRONG = (
    core.WrongAnswer("added", "It says times and not plus.", made(times=lambda x, f: x + f)),
    core.WrongAnswer("negative", "The sign is the factor's own.", made(then=lambda y: -y)),
)


def test_two_mistakes_at_once_are_both_named():
    exercise = doubling(wrong=WRONG)
    report = core.grade("toy", exercise, lambda x, factor: -(x + factor))
    assert [m.name for m in report.mistakes] == ["added", "negative"]
    assert "It looks like this mistake: added." in str(report)
    assert "And this one: negative." in str(report)
    assert core.both(WRONG[0].answer, WRONG[0].answer) is None
    assert core.both(WRONG[0].answer, _double) is None


def test_two_mistakes_in_different_cases_are_both_named():
    def answer(x, factor):
        return x + factor if factor == 3 else -x * factor

    report = core.grade("toy", doubling(wrong=WRONG), answer)
    assert {m.name for m in report.mistakes} == {"added", "negative"}


def test_two_names_that_fit_are_both_said():
    twins = (*WRONG, core.WrongAnswer("sum", "It says times.", lambda x, factor: factor + x))
    report = core.grade("toy", doubling(wrong=twins), lambda x, factor: x + factor)
    assert report.either
    assert [m.name for m in report.mistakes] == ["added", "sum"]
    assert "Or this one: sum." in str(report)


def test_a_mistake_is_named_only_where_it_shows():
    # Times one is right whatever one does with the factor: there the mistake is none.
    harmless = core.WrongAnswer("power", "It says times.", lambda x, factor: x * factor**1.0)
    report = core.grade("toy", doubling(wrong=(harmless,)), lambda x, f: x * f * (1 + 3e-8))
    assert not report.passed
    assert report.mistakes == ()
    assert "so little that it is rounding" in str(report)
