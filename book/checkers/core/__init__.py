"""How an exercise is checked: against an oracle, and then against the known wrong answers.

An `Exercise` (`exercise`) holds the right function, the oracle, cases that are chosen to be hard,
and *named* wrong answers. `probes` makes further cases from those. Every run has the same
conditions (`state`) and is kept as an outcome (`run`), which is compared with the oracle's
(`compare`). An answer that fails is told what it fails on (`show`, `report`), which mistake it
looks like and why that is one (`naming`), and what the text forbids and it did (`forbidden`).
"""

from __future__ import annotations

import builtins
import functools
import inspect
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from book.checkers.core.compare import Difference, difference, shared
from book.checkers.core.exercise import Answer, Case, Exercise, WrongAnswer, both, in_parts
from book.checkers.core.forbidden import Rule, autograd, broken
from book.checkers.core.naming import mistakes
from book.checkers.core.probes import SIXTEEN_BITS, probed
from book.checkers.core.report import Report
from book.checkers.core.run import (
    BookFaultError,
    Outcome,
    labels,
    own_file,
    parameters,
    run,
)
from book.checkers.core.show import arguments
from book.checkers.core.state import TookTooLongError, Watch, fair

__all__ = [
    "SIXTEEN_BITS", "Answer", "BookFaultError", "Case", "Exercise", "Outcome", "Report", "Rule",
    "WrongAnswer", "autograd", "both", "difference", "every_case", "expected", "grade", "in_parts",
    "inputs_of", "keep",
]  # fmt: skip


def every_case(exercise: Exercise) -> list[Case]:
    """The cases as they are written, and then those that the probes make."""
    return [*exercise.cases, *(case for _, _, case in probed(exercise))]


def inputs_of(exercise: Exercise, case: Case) -> tuple[Any, ...]:
    """The arguments of a case, made under the conditions of a run."""
    with fair(case.default_dtype or exercise.default_dtype):
        return case.inputs()


def grade(name: str, exercise: Exercise, answer: Answer) -> Report:
    """Run `answer` on every case of `exercise` and say what came out.

    Raises:
        TypeError: if `answer` cannot be called.
        BookFaultError: if the oracle does what its case does not say. That is no fault of `answer`.
    """
    if not callable(answer):
        raise TypeError(
            f"{name}: the answer must be a function or class, got {type(answer).__name__}"
        )
    names = parameters(exercise)
    cases = exercise.cases
    if refused := _cannot_be_called(exercise, answer, names):
        return Report(name, len(cases), (), refused=refused)
    with Watch() as watch:
        got = _all(exercise, answer, cases, names, watch)
        if all(isinstance(o.error, NotImplementedError) for o in got):
            return Report(name, len(got), (), attempted=False)
        want = [expected(exercise, case, names) for case in cases]
        failures = _failures(cases, want, got)
        left: list[str] = []
        probing = not failures
        if not failures:
            # Only an answer that is right so far can be told something new by the probes.
            left = [note for o in got for note in o.left]
            more, before = _probe(exercise, answer, names, want, watch), len(cases)
            cases, want, got = [*cases, *more[0]], [*want, *more[1]], [*got, *more[2]]
            failures = _failures(cases, want, got, right=before)
    notes = tuple(dict.fromkeys([*left, *(note for o in got for note in o.left)]))
    if failures:
        found = mistakes(
            exercise, cases, want, got, lambda a, c: _known(a, c, names, exercise.default_dtype)
        )
        return Report(
            name,
            len(exercise.cases),
            tuple((case.name, difference.text) for _, case, difference in failures),
            found.names,
            either=found.either,
            probing=probing,
            again=_again(name, exercise, names, *failures[0][1:]),
            raised=_raised(got[k].error for k, _, _ in failures),
            notes=notes,
        )
    refused = _forbidden(exercise, answer, names)
    return Report(name, len(exercise.cases), (), refused=refused, notes=notes)


def _all(
    exercise: Exercise,
    answer: Answer,
    cases: Sequence[Case],
    names: Sequence[str],
    watch: Watch,
) -> list[Outcome]:
    """The outcomes; after one that did not end, the others are not waited for."""
    got: list[Outcome] = []
    for case in cases:
        late = next((o for o in got if isinstance(o.error, TookTooLongError)), None)
        got.append(late or run(answer, case, names, exercise.default_dtype, watch))
    return got


def _failures(
    cases: Sequence[Case], want: Sequence[Outcome], got: Sequence[Outcome], right: int = 0
) -> list[tuple[int, Case, Difference]]:
    """What is different, case by case; the values of the first `right` are known to be right."""
    habit = shared(want, got)
    return [
        (k, case, found)
        for k, (case, w, g) in enumerate(zip(cases, want, got, strict=True))
        if (
            found := (None if k < right else difference(w, g, case.tol, case.relative))
            or habit.get(k)
        )
        is not None
    ]


def _raised(errors: Iterable[BaseException | None]) -> tuple[str, ...]:
    """The names of Python's own exceptions among them; another's name could say anything."""
    kinds = [type(one).__name__ for one in errors if one is not None]
    return tuple(dict.fromkeys(name for name in kinds if hasattr(builtins, name)))


def _probe(
    exercise: Exercise,
    answer: Answer,
    names: Sequence[str],
    want: Sequence[Outcome],
    watch: Watch,
) -> tuple[Sequence[Case], list[Outcome], list[Outcome]]:
    made = probed(exercise)
    cases = [case for _, _, case in made]
    wanted = [
        want[k] if probe.same_values else expected(exercise, case, names) for k, probe, case in made
    ]
    return cases, wanted, _all(exercise, answer, cases, names, watch)


def expected(exercise: Exercise, case: Case, names: Sequence[str]) -> Outcome:
    """What the oracle gives.

    Raises:
        BookFaultError: if it raises what the case does not say, or does not raise what it says.
    """
    outcome = _known(exercise.oracle, case, names, exercise.default_dtype)
    if case.raises is None and outcome.error is not None:
        raise BookFaultError(
            f"{exercise.title}: {case.name}: the book's own answer raises {outcome.error!r}"
        ) from outcome.error
    if case.raises is not None and type(outcome.error) is not case.raises:
        raise BookFaultError(
            f"{exercise.title}: {case.name}: the book's own answer should raise "
            f"{case.raises.__name__}, and does {outcome.error!r}"
        )
    return outcome


# What oracles and wrong answers gave, where many answers to one exercise are checked. The objects
# are kept too, so that their identities stay theirs.
_kept: dict[tuple[int, int], tuple[Answer, Case, Outcome]] = {}


def keep(exercise: Exercise) -> None:
    """Run the oracle and the wrong answers of `exercise` now and not again in this process."""
    names = parameters(exercise)
    for answer in (exercise.oracle, *(wrong.answer for wrong in exercise.wrong)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for case in every_case(exercise):
                outcome = run(answer, case, names, exercise.default_dtype)
                _kept[id(answer), id(case)] = answer, case, outcome


def _known(answer: Answer, case: Case, names: Sequence[str], default_dtype: torch.dtype) -> Outcome:
    kept = _kept.get((id(answer), id(case)))
    return kept[2] if kept else run(answer, case, names, default_dtype)


def _cannot_be_called(exercise: Exercise, answer: Answer, names: Sequence[str]) -> str:
    """Why `answer` cannot be called with the arguments of any case, or nothing."""
    if inspect.isclass(answer) and not any(
        inspect.isclass(right) for right in (exercise.oracle, *exercise.variants)
    ):
        return (
            f"`{answer.__name__}` is a class, and a function is asked for: "
            "give a function, or an instance that can be called."
        )
    try:
        signature = inspect.signature(answer)
    except (TypeError, ValueError):  # of functions written in C
        return ""
    for case in exercise.cases:
        try:
            signature.bind(*inputs_of(exercise, case))
        except TypeError as error:
            why = str(error)
        else:
            return ""
    wanted = ", ".join(labels(names, len(inputs_of(exercise, exercise.cases[0]))))
    return f"The signature is ({wanted}); yours is {signature}: {why}."


def _again(
    name: str, exercise: Exercise, names: Sequence[str], case: Case, found: Difference
) -> tuple[str, ...]:
    """The arguments of a failing case, and how to have them again."""
    inputs = inputs_of(exercise, case)
    if not inputs:
        return ()
    named = list(zip(labels(names, len(inputs)), inputs, strict=True))
    return (
        f"with {arguments(named, found.at)}",
        f'again: your_answer(*inputs("{name}", "{case.name}"))',
    )


def _forbidden(exercise: Exercise, answer: Answer, names: Sequence[str]) -> str:
    """What a right answer did that the text forbids, or nothing."""
    # The reference is often the very function that is forbidden; and of an answer that runs
    # elsewhere, across the border of the grader, no call is seen here.
    if answer is exercise.oracle or not own_file(answer):
        return ""
    cases = [case for case in exercise.cases if case.raises is None]
    # Seeing every call takes time. The last case is often of another kind than the first.
    for case in dict.fromkeys([*cases[:1], *cases[-1:]]):
        # What autograd makes for the comparison of gradients is not the answer's.
        case = replace(case, grad=False)
        found = broken(
            exercise.rules,
            functools.partial(run, answer, case, names, exercise.default_dtype),
            own_file(answer),
            inputs_of(exercise, case),
        )
        if found is not None:
            rule, call = found
            where = f", in your line: {call.line}" if call.line else ""
            return f"The result is right, but the exercise says {rule.says}: {call}{where}"
    return ""
