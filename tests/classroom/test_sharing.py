"""Tests that share one process of the student's see what they would see in the notebook."""

import os
import shutil

import pytest
from sample import DOUBLE, SOFTMAX, cell, source, submission, write

from book import grading
from book.checkers import assignments, core
from book.grading import notebooks, stages
from book.grading.engine import Engine
from book.grading.submissions import Submission

STILL = {
    "import torch\nfrom torch import nn": {"torch", "nn"},
    "def f(x: int = 3, *a, k=torch.float32) -> Tensor:\n    return g(x)": {"f"},
    "class A(nn.Module):\n    '''Doc.'''\n    size = 4\n    def f(self): print(1)": {"A"},
    "EPS = 1e-5\n'text'\npass": {"EPS"},
}
MOVING = [
    "f(3)", "x = f(3)", "def f(x=g()): pass", "@g\ndef f(): pass", "torch.allclose = f", "del f",
    "from torch import *", "class A(B()): pass", "class A:\n    f()", "class A(metaclass=M): pass",
    "x += 1", "for x in y: pass", "if x: f = g", "%time f()", "def f(:", "x = [f() for _ in y]",
    "async def f(): pass", "global f", "a.b = 1", "a[0] = 1", "x = (y := 1)", "import a; a.b()",
    "def f(x: g()): pass", "def f() -> g(): pass", "def f(*, x=g()): pass",
]  # fmt: skip


@pytest.mark.parametrize("text", STILL)
def test_a_cell_that_only_defines_is_known(text):
    told = notebooks.defines(text)
    assert told is not None
    assert told[0] == STILL[text]
    assert told[0] <= told[1]


@pytest.mark.parametrize("text", MOVING)
def test_a_cell_that_may_do_more_is_known(text):
    assert notebooks.defines(text) is None


def places(*sources):
    work = notebooks.assignment_of("parts", notebooks.cells(source()))
    step = notebooks.Step
    steps = [step("t", "test", None, s[1:], 1.0, True) if s[0] == "?" else step("q", "added", s)
             for s in sources]  # fmt: skip
    assert work.maximum == 10
    return stages.places(steps)


def test_definitions_that_touch_nothing_earlier_are_one_place():
    f, g = "def f(x): return help(x)", "def g(x): return x"
    assert places("import torch", f, "?f(1)", g, "?g(1)") == [0, 0, 0, 0, 0]
    # Again under the same name; a name that an earlier function looks for; a call.
    assert places(f, "?f(1)", "def f(x): return 2") == [0, 0, 1]
    assert places(f, "?f(1)", "def help(x): return 2", "?f(1)") == [0, 0, 1, 1]
    assert places(f, "?f(1)", "f(1)", "?f(1)") == [0, 0, 1, 1]
    assert places("f(1", "?f(1)", "f = 1") == [1, 1, 2]


def test_a_verdict_is_made_once_and_only_while_the_grader_says_so(monkeypatch):
    made = []
    monkeypatch.setattr(core, "grade", lambda *a: made.append(a) or "report")
    answers = [abs, len]
    for kept, expected in ((None, 4), ({}, 2)):
        made.clear()
        monkeypatch.setattr(grading, "verdicts", kept)
        for answer in (*answers, *answers):
            assert grading.verdict("x.y", None, answer) == "report"
        assert len(made) == expected
    assert assignments.verdict is grading.verdict


# A later cell defines anew what an earlier function uses; in the notebook that was tested before.
BY_HELPER = (
    SOFTMAX.replace("my_softmax", "helper") + "\ndef my_softmax(x, dim):\n    return helper(x, dim)"
)
GIVEN = {
    "right": (submission(), 10),
    "redefined": (submission(BY_HELPER, q3="def helper(*a): return None\n" + DOUBLE), 10),
    "data": (
        submission(
            "scale = 1.0\n" + SOFTMAX.replace("e / e.sum", "scale * e / e.sum"),
            q3="scale = 2.0\n" + DOUBLE,
        ),
        10,
    ),
    "ends": (submission("def my_softmax(x, dim):\n    import os; os._exit(0)"), 7),
    "counts": (
        submission(
            q3="n_calls = []\ndef double(n):\n    n_calls.append(n)\n"
            "    return 2 * n if len(n_calls) < 9 else 0"
        ),
        10,
    ),
}


# A question whose author gives points for a share of its cases, half of them at least. Those who
# have no answer to it have no points of it.
PARTIAL = """
from book.checkers.assignments import require_part_points
require_part_points("tensors_and_softmax.sum_to", sum_to, "values", 4, least=0.5)
""".strip()
SUM_TO = """
def sum_to(grad, shape):
    while grad.ndim > len(shape):
        grad = grad.sum(0)
    ones = tuple(d for d, n in enumerate(shape) if n == 1)
    return grad.sum(ones, keepdim=True) if ones else grad
""".strip()
SHARES = {
    "all cases": (SUM_TO, 4),
    "three of five": (SUM_TO.split("    ones")[0] + "    return grad", 2.4),
    "below the least": ("def sum_to(grad, shape):\n    return grad", 0),
    "no answer yet": ("def sum_to(grad, shape):\n    raise NotImplementedError", 0),
}


def with_share(whole, answer):
    whole["cells"] += [
        cell(answer, "q4", "solution"), cell(PARTIAL, "t4", "test", points=4),
    ]  # fmt: skip
    return whole


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    if shutil.which("bwrap") is None and not os.environ.get("REQUIRE_SANDBOX"):
        pytest.skip("bubblewrap is not installed")
    top = tmp_path_factory.mktemp("sharing")
    teacher = write(top, "source/parts.ipynb", with_share(source(), SUM_TO))
    whole = {name: content for name, (content, _) in GIVEN.items()}
    whole |= {name: with_share(submission(), answer) for name, (answer, _) in SHARES.items()}
    given = [Submission(n, write(top, f"{n}/parts.ipynb", one)) for n, one in whole.items()]
    with Engine(teacher, limits={}) as engine:
        return {r["student"]: r for r in engine.grade(given, 2)}


def test_the_scores_are_those_of_the_notebook(rows):
    assert {name: rows[name]["score"] for name in GIVEN} == {n: s for n, (_, s) in GIVEN.items()}


def test_a_part_gives_the_share_of_its_cases_where_its_author_says_so(rows):
    tests = {name: rows[name]["tests"][-1] for name in SHARES}
    assert {n: t["score"] for n, t in tests.items()} == {n: s for n, (_, s) in SHARES.items()}
    one = tests["three of five"]
    assert not one["passed"]
    assert one["mistakes"] == ["only the leading dimensions summed"]
    assert "It looks like this mistake: only the leading dimensions summed." in one["reason"]
    assert "There is nothing to check yet" in tests["no answer yet"]["reason"]
    assert tests["all cases"]["passed"]
    with pytest.raises(ValueError, match="no part 'middle'"):
        assignments.require_part_points("tensors_and_softmax.sum_to", abs, "middle", 3)
