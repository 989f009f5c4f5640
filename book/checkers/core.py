"""How an exercise is checked: against an oracle, and then against the known wrong answers.

An `Exercise` holds the right function (the oracle), cases that are chosen to be hard, and *named*
wrong answers. An answer that fails a case is compared with each wrong answer too, so that the
reader is told which mistake it looks like, and why that is one.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Answer = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One set of arguments. `inputs` makes them afresh, since an answer may change them."""

    name: str
    inputs: Callable[[], tuple[Any, ...]]
    tol: float = 1e-10
    # Also compare the gradients with respect to the inputs that require one.
    grad: bool = False


@dataclass(frozen=True)
class WrongAnswer:
    """A mistake that people make, with its name and the reason why it is one."""

    name: str
    why: str
    answer: Answer


@dataclass(frozen=True)
class Exercise:
    """An exercise: its oracle, its cases, the named wrong answers, and other right answers.

    `variants` are right answers written in another way; the tests require that they pass, so that
    a checker asks for the result and not for one way to write it.
    """

    title: str
    oracle: Answer
    cases: Sequence[Case]
    wrong: Sequence[WrongAnswer]
    variants: Sequence[Answer]


@dataclass(frozen=True)
class Outcome:
    """What an answer did with a case: results, or the exception that it raised."""

    values: tuple[Any, ...] = ()
    # What each value is, in words; nothing for the result itself.
    places: tuple[str, ...] = ()
    error: BaseException | None = None


@dataclass(frozen=True)
class Report:
    """The verdict. Printed, it is what the reader sees."""

    name: str
    total: int
    failures: tuple[tuple[str, str], ...]
    looks_like: WrongAnswer | None = None
    attempted: bool = True
    lines: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", self._lines())

    @property
    def passed(self) -> bool:
        """Whether every case is right."""
        return self.attempted and not self.failures

    def _lines(self) -> list[str]:
        if not self.attempted:
            return [f"{self.name}: nothing to check yet. Replace the NotImplementedError."]
        if self.passed:
            return [f"{self.name}: right in all {self.total} cases."]
        lines = [
            f"{self.name}: not yet. "
            f"{self.total - len(self.failures)} of {self.total} cases are right."
        ]
        lines += [f"  {case}: {what}" for case, what in self.failures[:3]]
        if len(self.failures) > 3:
            lines.append(f"  ... and {len(self.failures) - 3} more")
        if self.looks_like:
            lines.append(
                f"It looks like this mistake: {self.looks_like.name}. {self.looks_like.why}"
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines)


def grade(name: str, exercise: Exercise, answer: Answer) -> Report:
    """Run `answer` on every case of `exercise` and say what came out.

    Raises:
        TypeError: if `answer` cannot be called.
    """
    if not callable(answer):
        raise TypeError(
            f"{name}: the answer must be a function or class, got {type(answer).__name__}"
        )
    names = _names(exercise)
    got = [_run(answer, case, names) for case in exercise.cases]
    if all(isinstance(o.error, NotImplementedError) for o in got):
        return Report(name, len(got), (), attempted=False)
    expected = [_known(exercise.oracle, case, names) for case in exercise.cases]
    failures = tuple(
        (case.name, problem)
        for case, want, have in zip(exercise.cases, expected, got, strict=True)
        if (problem := difference(want, have, case.tol)) is not None
    )
    return Report(
        name, len(got), failures, _closest(exercise, names, expected, got) if failures else None
    )


def _names(exercise: Exercise) -> list[str]:
    return [
        n
        for n, parameter in inspect.signature(exercise.oracle).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]


# What oracles and wrong answers gave, where many answers to one exercise are checked. The objects
# are kept too, so that their identities stay theirs.
_kept: dict[tuple[int, int], tuple[Answer, Case, Outcome]] = {}


def keep(exercise: Exercise) -> None:
    """Run the oracle and the wrong answers of `exercise` now and not again in this process."""
    names = _names(exercise)
    for answer in (exercise.oracle, *(wrong.answer for wrong in exercise.wrong)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for case in exercise.cases:
                _kept[id(answer), id(case)] = answer, case, _run(answer, case, names)


def _known(answer: Answer, case: Case, names: Sequence[str]) -> Outcome:
    kept = _kept.get((id(answer), id(case)))
    return kept[2] if kept else _run(answer, case, names)


def _closest(
    exercise: Exercise, names: Sequence[str], expected: list[Outcome], got: list[Outcome]
) -> WrongAnswer | None:
    """The wrong answer that gives what `got` gives, at least on most of the failing cases."""
    tolerances = [case.tol for case in exercise.cases]
    failing = [
        i
        for i, (w, g, t) in enumerate(zip(expected, got, tolerances, strict=True))
        if difference(w, g, t) is not None
    ]
    outcomes = []
    for wrong in exercise.wrong:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a wrong answer's warning is not the reader's
            outcomes.append([_known(wrong.answer, case, names) for case in exercise.cases])
    # A mistake that shows up only in the last digits depends on the order of operations, so that a
    # second look is a coarser one.
    for coarsest in (0.0, 1e-6):
        scores = []
        for results in outcomes:
            agrees = [
                _alike(o, g, max(t, coarsest))
                for o, g, t in zip(results, got, tolerances, strict=True)
            ]
            # First how many of the failing cases it explains, then how many of all.
            scores.append((sum(agrees[i] for i in failing), sum(agrees)))
        best = max(range(len(scores)), key=scores.__getitem__, default=None)
        if best is not None and scores[best][0] >= 0.6 * len(failing):
            return exercise.wrong[best]
    return None


def _alike(wrong: Outcome, have: Outcome, tol: float) -> bool:
    """Whether two outcomes agree. Errors agree if they say the same, but for the numbers in it."""
    if wrong.error is not None and have.error is not None:
        said = [re.sub(r"\d+", "0", str(e)) for e in (wrong.error, have.error)]
        return type(wrong.error) is type(have.error) and said[0] == said[1]
    return difference(wrong, have, tol) is None


def _run(answer: Answer, case: Case, names: Sequence[str]) -> Outcome:
    inputs = case.inputs()
    tensors = [i for i in inputs if isinstance(i, torch.Tensor)]
    # An oracle with `*args` has fewer names than arguments.
    labels = [*names, *(f"argument {k}" for k in range(len(names), len(inputs)))]
    named = [n for n, i in zip(labels, inputs, strict=False) if isinstance(i, torch.Tensor)]
    # Asked for now, since an answer may change it.
    leaves = [i.requires_grad for i in tensors]
    try:
        output = answer(*inputs)
        values = (output, *tensors, *(i.requires_grad for i in tensors))
        places = ["", *(f"{n} after the call: " for n in named)]
        places += [f"whether {n} after the call: " for n in named]
        if case.grad and _is_tensors(output):
            values += _gradients(
                output, [i for i, leaf in zip(tensors, leaves, strict=True) if leaf]
            )
            places += [f"gradient of {n}: " for n, leaf in zip(named, leaves, strict=True) if leaf]
    except (Exception, SystemExit) as error:  # whatever the reader's code raises is an outcome
        return Outcome(error=error)
    return Outcome(values, tuple(places))


def _is_tensors(output: Any) -> bool:
    outputs = output if isinstance(output, tuple | list) else (output,)
    return all(isinstance(o, torch.Tensor) for o in outputs)


def _gradients(output: Any, leaves: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    outputs = [
        o for o in (output if isinstance(output, tuple | list) else (output,)) if o.requires_grad
    ]
    if not outputs:
        return (None,) * len(leaves)
    # Fixed, uneven weights: a plain sum hides every gradient that is constant along a row.
    weights = [
        torch.linspace(-1.0, 2.0, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outputs
    ]
    total = torch.stack([(o * w).sum() for o, w in zip(outputs, weights, strict=True)]).sum()
    return torch.autograd.grad(total, leaves, allow_unused=True)


def difference(want: Outcome, have: Outcome, tol: float) -> str | None:
    """What is different about `have`, in words; `None` if nothing is."""
    if want.error is not None:
        if have.error is None:
            return f"should raise {type(want.error).__name__}, but returned a value"
        if type(want.error) is not type(have.error):
            return f"should raise {type(want.error).__name__}, raised {_named(have.error)}"
        return None
    if have.error is not None:
        return f"raised {_named(have.error)}"
    # Lengths differ only if one result has no gradients, and then the results differ first.
    for place, a, b in zip(want.places, want.values, have.values, strict=False):
        if place.startswith("whether") and a != b:
            how = "is now" if b else "is no longer"
            return place.removeprefix("whether ") + f"it {how} part of the graph"
        if place.startswith("gradient") and b is None and a is not None:
            return place + "nothing in the result depends on it, as far as autograd can see"
        if (problem := _value_difference(a, b, tol)) is not None:
            return place + problem
    return None if len(want.values) == len(have.values) else "the result has no gradient"


def _named(error: BaseException) -> str:
    text = str(error).splitlines()
    if "leaf Variable that requires grad is being used in an in-place" in str(error):
        return "RuntimeError: an argument is changed in place; make a new tensor"
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _value_difference(want: Any, have: Any, tol: float) -> str | None:
    if isinstance(want, torch.Tensor):
        return _tensor_difference(want.detach(), have, tol)
    if isinstance(want, list | tuple):
        if not isinstance(have, list | tuple) or len(want) != len(have):
            return f"expected {len(want)} values, got {_described(have)}"
        parts = (_value_difference(a, b, tol) for a, b in zip(want, have, strict=True))
        return next((f"value {i}: {p}" for i, p in enumerate(parts) if p), None)
    if isinstance(want, float) and isinstance(have, int | float) and not isinstance(have, bool):
        close = want == have or (
            math.isfinite(want) and abs(want - have) <= tol * max(1.0, abs(want))
        )
        return None if close else f"expected {want:.6g}, got {have:.6g}"
    if isinstance(have, torch.Tensor) or type(want) is not type(have) or want != have:
        return f"expected {want!r}, got {_described(have)}"
    return None


def _tensor_difference(want: torch.Tensor, have: Any, tol: float) -> str | None:
    if not isinstance(have, torch.Tensor):
        return f"expected a tensor of shape {tuple(want.shape)}, got {_described(have)}"
    have = have.detach()
    if want.shape != have.shape:
        return f"expected shape {tuple(want.shape)}, got {tuple(have.shape)}"
    if want.dtype != have.dtype:
        return f"expected dtype {want.dtype}, got {have.dtype}"
    if not want.is_floating_point():
        return None if torch.equal(want, have) else "the entries differ"
    a, b = want.to(torch.float64), have.to(torch.float64)
    off = (a - b).abs() > tol * (1 + a.abs())
    off |= (a.isnan() != b.isnan()) | ((a.isinf() | b.isinf()) & (a != b))
    if not off.any():
        return None
    at = tuple(int(i) for i in off.nonzero()[0])
    want_text, have_text = f"{a[at].item():.4g}", f"{b[at].item():.4g}"
    if want_text == have_text:
        return (
            f"at {list(at)} expected {want_text}, got a number off by {abs(a - b)[at].item():.1e}"
        )
    return f"at {list(at)} expected {want_text}, got {have_text}"


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if type(value).__module__ == "numpy":
        return f"a NumPy {type(value).__name__} (stay in torch)"
    text = " ".join(repr(value).split())
    return "a function" if inspect.isroutine(value) else f"{type(value).__name__} {text:.60}"
