"""Every solution of the book with one operation changed is rejected, or means the same.

The changed solutions that still pass are listed in `edits_that_mean_the_same.yml`, with the reason
why they are right, or cannot be told from right ones.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib
import io
import warnings
from pathlib import Path

import pytest
import torch

from book.chapters import chapters, read, tags, topic
from book.checkers import core, exercises
from book.checkers.core.state import Watch
from book.checkers.questions import Question
from book.data import read_yaml
from book.edits import edits
from book.measured import record

SAME = Path(__file__).with_name("edits_that_mean_the_same.yml")
FUNCTIONS = {name: e for name, e in exercises().items() if not isinstance(e, Question)}


@pytest.fixture(autouse=True)
def short_watch(monkeypatch):
    """A changed loop that never ends is not waited for as long as a reader's."""
    monkeypatch.setattr(core, "Watch", functools.partial(Watch, 2.0))


@functools.cache
def same():
    """Exercise -> changed line -> why it is right all the same."""
    return read_yaml(SAME)


@functools.cache
def solutions():
    """Exercise -> (its topic, the chapter's setup and functions, what defines the answer, it)."""
    found = {}
    for path in chapters():
        cells = [c for c in read(path).cells if c.cell_type == "code"]
        setup = [c.source for c in cells if "setup" in tags(c)]
        others = [c for c in cells if not {"solution", "exercise"} & {*tags(c)}]
        helpers = [made for c in others for made in functions(c.source)]
        for cell in read(path).cells:
            if "solution" not in tags(cell):
                continue
            tree = ast.parse(cell.source)
            (call,) = (
                n for n in ast.walk(tree)
                if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "check"
            )  # fmt: skip
            # What only prints, or comes after the check, is no part of the answer.
            kept = [n for n in tree.body if n.lineno < call.lineno and not isinstance(n, ast.Expr)]
            definitions = "\n".join(ast.unparse(n) for n in kept)
            answer = ast.unparse(call.args[1])
            found[call.args[0].value] = topic(path), setup, helpers, definitions, answer
    return found


def functions(source):
    """The functions that a cell of the chapter defines: a solution may use them."""
    return [ast.unparse(n) for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]


def space(of):
    """The names that a solution may use: its chapter's imports, and the parts of its chapter."""
    name, setup, helpers, *_ = solutions()[of]
    library = vars(importlib.import_module(f"transformer_parts.{name}"))
    names = {k: v for k, v in library.items() if not k.startswith("__")}
    dtype = torch.get_default_dtype()
    try:
        for cell in setup:
            exec(compile(cell, "<setup>", "exec"), names)
        for function in helpers:
            # One whose defaults are made in the chapter is used by no solution.
            with contextlib.suppress(NameError):
                exec(compile(function, "<chapter>", "exec"), names)
    finally:
        torch.set_default_dtype(dtype)
    return names


def built(source, names, answer):
    scope = dict(names)
    exec(compile(source, "<solution>", "exec"), scope)
    return eval(answer, scope)


def passes(exercise, answer):
    """Whether the checker lets an answer pass.

    Most edited answers fail on one of the first cases, and the others are not run. What is right
    on every case gets the whole verdict, with probes and rules.
    """
    # An edited answer warns, prints and divides by zero.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return not fails(exercise, answer) and core.grade("edited", exercise, answer).passed


def fails(exercise, answer):
    """Whether one of the cases fails, of which none after it is run."""
    names = core.parameters(exercise)
    with core.Watch() as watch:
        for case in exercise.cases:
            have = core.run(answer, case, names, exercise.default_dtype, watch)
            want = core.expected(exercise, case, names)
            if core.difference(want, have, case.tol, case.relative) is not None:
                return True
    return False


def changed_lines(before, after):
    """The lines of `after` that are not those of `before`, as one text."""
    old = ast.unparse(ast.parse(before)).splitlines()
    return " / ".join(line.strip() for line in after.splitlines() if line not in old)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_solution_with_one_operation_changed_is_rejected(name):
    *_, source, answer = solutions()[name]
    names = space(name)
    # Names of mistakes are no matter of this, and cost most of the time.
    exercise = dataclasses.replace(FUNCTIONS[name], wrong=())
    core.keep(exercise)
    assert passes(exercise, built(source, names, answer))
    made, passed = 0, {}
    for edit in edits(source):
        try:
            wrong = built(edit.source, names, answer)
        except Exception:  # it does not even begin
            continue
        made += 1
        if passes(exercise, wrong):
            passed[changed_lines(source, edit.source)] = edit.what
    known = same().get(name, {})
    for line in list(passed):
        # An entry that ends in "…" is for all lines that begin like it.
        start = [k for k in known if k.endswith("…") and line.startswith(k[:-1])]
        if start:
            passed[start[0]] = passed.pop(line)
    record("edits", name, {"made": made, "passed": len(passed)})
    assert passed.keys() - known.keys() == set(), "pass, and nothing says why"
    assert known.keys() - passed.keys() == set(), "are rejected now"


def test_every_exercise_has_edits_and_each_that_means_the_same_has_a_reason():
    for name in FUNCTIONS:
        assert len(edits(solutions()[name][-2])) >= 1, name
    for name, lines in same().items():
        assert name in FUNCTIONS
        for line, why in lines.items():
            assert len(why.split()) >= 3, (name, line)
