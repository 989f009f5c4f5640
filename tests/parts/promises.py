"""What the texts of exercises promise and ask for, and the cases that have to stand for it.

A promise is a pattern in the text of an exercise. What has to hold for it is asked of every case of
the exercise: of its arguments, and of what the oracle makes of them.
"""

import functools
import importlib
import inspect
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from book.chapters import chapters, read, tags
from book.checkers import core, exercises
from book.checkers.questions import Question

parameters = importlib.import_module("book.checkers.core.run").parameters


@functools.cache
def texts():
    """Exercise -> its text in the chapter."""
    found = {}
    for path in chapters():
        text = ""
        for cell in read(path).cells:
            if cell.cell_type == "markdown":
                blocks = re.findall(r"```\{exercise\}.*?\n(.*?)```", cell.source, re.DOTALL)
                text = blocks[-1] if blocks else text
            elif "exercise" in tags(cell):
                (name,) = re.findall(r'check\(\s*"([^"]+)"', cell.source)
                found[name] = re.sub(r"^:label:.*\n", "", text).strip()
    return found


def functions():
    """The exercises that ask for a function."""
    return {name: e for name, e in exercises().items() if not isinstance(e, Question)}


@dataclass
class Facts:
    """Every case of an exercise: its arguments, by name, and what the oracle makes of them."""

    exercise: core.Exercise
    cases: list[core.Case] = field(init=False)
    given: list[dict[str, object]] = field(init=False)
    outcomes: list[core.Outcome] = field(init=False)

    def __post_init__(self):
        names = parameters(self.exercise)
        self.cases = core.every_case(self.exercise)
        self.given, self.outcomes = [], []
        for case in self.cases:
            arguments = core.inputs_of(self.exercise, case)
            self.given.append(dict(zip(names, arguments, strict=False)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.outcomes.append(core.expected(self.exercise, case, names))

    def results(self):
        """What the oracle returns, in the cases in which it does."""
        return [o.values[0] for o in self.outcomes if o.error is None]

    def tensors(self):
        """Every tensor among the arguments and the results, and what a function is called with."""
        for given in (*self.given, *({"": r} for r in self.results())):
            for value in given.values():
                yield from flat(value)
        yield from self._called_with()

    def _called_with(self):
        """What the oracle calls the functions among the arguments with: they are its cases."""
        seen = []

        def recorded(function):
            def call(*args):
                seen.extend(t.detach() for t in flat(args))
                return function(*args)

            return call

        for given in self.given:
            if any(inspect.isfunction(v) for v in given.values()):
                self.exercise.oracle(
                    *(recorded(v) if inspect.isfunction(v) else v for v in given.values())
                )
        return seen

    def scalars(self):
        """Every argument that is no tensor, by its name: the values that it takes."""
        found = {}
        for given in self.given:
            for name, value in given.items():
                if value is None or isinstance(value, bool | int | float | str):
                    found.setdefault(name, set()).add((type(value), value))
        return {name: {v for _, v in values} for name, values in found.items()}


def flat(value):
    """The tensors in a value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from flat(v)


@dataclass(frozen=True)
class Promise:
    """What a text says where it matches `pattern`, and what the cases then have to show."""

    says: str
    pattern: str
    shown: Callable[[Facts], bool]

    def made_by(self, text):
        return re.search(self.pattern, text) is not None


def _dimensions(facts):
    counts = {}
    for given in facts.given:
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                counts.setdefault(name, set()).add(value.dim())
    return any(max(c) - min(c) >= 4 for c in counts.values())


def _kinds(*kinds):
    return lambda facts: all(type(r) in kinds for r in facts.results())


def _both_truths(facts):
    return {r for r in facts.results() if isinstance(r, bool)} == {True, False}


def _truths_inside(facts):
    """Both truth values, be it as results or within them."""
    found = set()
    for r in facts.results():
        if isinstance(r, bool):
            found.add(r)
        for t in flat(r):
            if t.dtype is torch.bool:
                found |= {bool(v) for v in t.flatten()}
    return found == {True, False}


def _none(facts):
    there = [None in given.values() for given in facts.given]
    back = [r is None for r in facts.results()]
    inside = [
        any(isinstance(v, dict) and None in v.values() for v in given.values())
        for given in facts.given
    ]
    return any(0 < sum(found) < len(found) for found in (there, back, inside))


def _changed_in_place(facts):
    for given, outcome in zip(facts.given, facts.outcomes, strict=True):
        for place, value in zip(outcome.places, outcome.values, strict=True):
            name = place.removesuffix(" after the call: ")
            before = given.get(name)
            both = isinstance(before, torch.Tensor) and isinstance(value, torch.Tensor)
            if both and not torch.equal(before, value):
                return True
    return False


def _sixteen_bits(facts):
    dtypes = {t.dtype for t in facts.tensors()}
    return {torch.float16, torch.bfloat16} <= dtypes


def _infinite(facts):
    return any(bool(t.isinf().any()) for t in facts.tensors() if t.is_floating_point()) or any(
        bool((~t).any()) for t in facts.tensors() if t.dtype is torch.bool
    )


def _nan(facts):
    asked = any(bool(t.isnan().any()) for t in facts.tensors() if t.is_floating_point())
    return asked or any(case.grad for case in facts.cases)


def _float64_anyway(facts):
    return any(
        case.default_dtype is torch.float32
        and all(t.dtype is torch.float64 for t in flat(outcome.values[0]))
        for case, outcome in zip(facts.cases, facts.outcomes, strict=True)
    )


def _shares_nothing(facts):
    return not any(o.shares for o in facts.outcomes)


def _size_zero(facts):
    return any(
        isinstance(v, torch.Tensor) and 0 in v.shape
        for given in facts.given
        for v in given.values()
    )


def _negative(facts):
    return any(isinstance(v, int | float) and v < 0 for vs in facts.scalars().values() for v in vs)


PROMISES = [
    Promise(
        "any number of leading dimensions",
        r"\((?:\.\.\.|…|\*)[,)]|any shape|any number of dimensions",
        _dimensions,
    ),
    Promise(
        "it raises a ValueError",
        r"`ValueError`",
        lambda facts: any(case.raises is ValueError for case in facts.cases),
    ),
    Promise("an argument is changed in place", r"in place\b(?! of)", _changed_in_place),
    Promise("the results are new tensors", r"as new tensors", _shares_nothing),
    Promise(
        "something is forbidden",
        r"(?i)\bno `|neither `|nor `|\bwithout (?:it\b|autograd|`|a matrix product|building|making)"
        r"|\bno (?:autograd\b|torch\b(?! is))|do not (?:call|build)",
        lambda facts: bool(facts.exercise.rules),
    ),
    Promise("16 bits", r"(?i)float16|half precision|dtype of `", _sixteen_bits),
    Promise("an integer comes back", r"as an (?:int|integer)\b|, an integer,", _kinds(int)),
    Promise("a float comes back", r"as a float\b", _kinds(float)),
    Promise("a list comes back", r"as a list\b", _kinds(list)),
    Promise("a tuple comes back", r"as a tuple|the tuple|the pair", _kinds(tuple)),
    Promise("yes and no", r"`True` if|Return True if|is `True` exactly if", _both_truths),
    Promise("a mask", r"(?i)boolean mask", _truths_inside),
    Promise("None is possible", r"`None`|\bbe None|or None\b", _none),
    Promise("what is infinite", r"(?i)−inf|minus infinity|-\\infty|infinite entries", _infinite),
    Promise("what is masked", r"[Mm]asked scores|keys are masked", _infinite),
    Promise("nan", r"\bnan\b", _nan),
    Promise("float64 whatever the default", r"in float64", _float64_anyway),
    Promise("a size of 0", r"may be 0|\bempty\b", _size_zero),
    Promise("negative numbers", r"may be negative|below 0", _negative),
    Promise(
        "both of two dtypes",
        r"float32 or float64",
        lambda facts: {torch.float32, torch.float64} <= {t.dtype for t in facts.tensors()},
    ),
]

# Arguments that count positions: beyond 256 a number of 16 bits is rounded.
POSITIONS = re.compile(r"position_ids|positions|^length$|max_len|offset|^[ijmn]$|^k$")
LONG = 256


def far(facts):
    """The arguments that count positions and never reach far."""
    missing = []
    for name in {n for given in facts.given for n in given if POSITIONS.search(n)}:
        reached = 0.0
        for given in facts.given:
            value = given.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                reached = max(reached, abs(value))
            for t in flat(value):
                if not t.is_floating_point() and t.numel():
                    reached = max(reached, t.abs().max().item())
                elif t.is_floating_point():
                    reached = math.inf  # a key of that name, and no position
        if reached <= LONG:
            missing.append(name)
    return missing


def constant(facts):
    """The arguments that are no tensors and have the same value in every case."""
    return sorted(name for name, values in facts.scalars().items() if len(values) < 2)


def lengths(facts):
    """Whether queries are as many as keys: the answers of all cases."""
    pairs = [("query", "key"), ("q", "k"), ("q", "c")]
    q, k = next(p for p in pairs if all(n in given for n in p for given in facts.given))
    return {given[q].shape[-2] == given[k].shape[-2] for given in facts.given}
