"""Every right answer that the checkers know, with one operation changed, is rejected.

The answers are those of the graded questions, which have no printed solution, and of the exercises
whose solution is too short to be changed in ten ways. What passes all the same is listed in
`edits_of_answers.yml` with the reason why it is right, or cannot be told from a right one.
"""

import ast
import dataclasses
import functools
import inspect
import sys
import textwrap
from pathlib import Path

import pytest
from test_edited_solutions import FUNCTIONS, passes, solutions

from book.checkers import core
from book.checkers.assignments import questions
from book.checkers.core.state import Watch
from book.checkers.questions import Question
from book.data import read_yaml
from book.edits import edits
from book.measured import record

SAME = Path(__file__).with_name("edits_of_answers.yml")
ENOUGH = 10
GRADED = {n: e for n, e in questions().items() if not isinstance(e, Question)}
SHORT = {n: e for n, e in FUNCTIONS.items() if len(edits(solutions()[n][-2])) < ENOUGH}
ASKED = GRADED | SHORT


@pytest.fixture(autouse=True)
def short_watch(monkeypatch):
    """A changed loop that never ends is not waited for as long as a reader's."""
    monkeypatch.setattr(core, "Watch", functools.partial(Watch, 2.0))


@functools.cache
def same():
    """Exercise -> beginning of a changed line -> why it is right all the same."""
    return read_yaml(SAME)


def written(answer):
    """Where a right answer is written: its source, its module, and how it is made of what is there.

    None if it has no source of its own, as a function of torch.
    """
    inner = inspect.unwrap(answer)
    if hasattr(answer, "made_of"):
        factory, arguments, parts = answer.made_of
        return inspect.unwrap(factory), lambda made: made(*arguments, **parts)
    outer, _, rest = getattr(inner, "__qualname__", "<lambda>").partition(".<locals>")
    if not inspect.isfunction(inner) or outer == "<lambda>":
        return None
    if not rest:
        return inner, lambda made: made
    factory = inspect.unwrap(getattr(sys.modules[inner.__module__], outer))
    needed = [p for p in inspect.signature(factory).parameters.values() if p.default is p.empty]
    return None if needed else (factory, lambda made: made())


def built(source, function, make, **more):
    """The answer of a changed source; None if it does not even begin."""
    space = vars(sys.modules[function.__module__]) | more
    try:
        exec(compile(source, "<edit>", "exec"), space)
        made = make(space[function.__name__])
    except Exception:
        return None
    return made if callable(made) else None


def changed_answers(exercise):
    """Each answer with one operation changed: the line, the answer, the edit, where it is from."""
    seen, count = set(), 0
    for answer in (*exercise.variants, exercise.oracle):
        found = written(answer)
        if found is None or found[0] in seen or count >= ENOUGH:
            continue
        function, make = found
        seen.add(function)
        source = textwrap.dedent(inspect.getsource(function))
        old = ast.unparse(ast.parse(source)).splitlines()
        for edit in edits(source):
            if (wrong := built(edit.source, function, make)) is None:
                continue
            count += 1
            lines = [s.strip() for s in edit.source.splitlines() if s not in old]
            yield f"{function.__name__}: {' / '.join(lines)}", wrong, edit, found


def runs(exercise, edit, found):
    """Whether what was changed runs in the right answer, and not in the named mistakes alone."""
    ran = []
    watched = built(edit.watched, *found, ran=lambda: ran.append(True))
    return bool(ran) or (watched is not None and passes(exercise, watched) and bool(ran))


@pytest.mark.parametrize("name", ASKED)
def test_a_right_answer_with_one_operation_changed_is_rejected(name):
    # Names of mistakes are no matter of this, and cost most of the time.
    exercise = dataclasses.replace(ASKED[name], wrong=())
    core.keep(exercise)
    made, passed = 0, set()
    for line, answer, *where in changed_answers(exercise):
        if not passes(exercise, answer):
            made += 1
        elif runs(exercise, *where):
            made += 1
            passed.add(line)
    known = same().get(name, {})
    used = {start for start in known for line in passed if line.startswith(start)}
    record("edited answers", name, {"made": made, "passed": len(passed)})
    assert [p for p in passed if not any(p.startswith(start) for start in known)] == []
    assert known.keys() - used == set(), "are rejected now"


def test_what_passes_has_a_reason():
    for name, lines in same().items():
        assert name in ASKED
        assert all(len(why.split()) >= 3 for why in lines.values()), name
