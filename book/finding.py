"""A conclusion that is executed: the sentence, the experiment behind it, and what it claims.

A cell tagged `finding` ends in `finding("... {number} ...", measure, holds, seeds)`. The experiment
is run for every seed, the comparison must hold for each of them with a margin larger than the
spread between seeds, and the sentence is printed with the numbers that were measured. The page
shows the sentence in a box; what would not hold for another seed cannot be said there.

The text form of the output holds the sentence, the comparisons and every measured number, with so
many digits that the comparisons can be checked from it again: `read_stored` reads it, and
`tests/chapters/test_findings.py` does that for the whole book without running anything.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from IPython.display import display

_COMPARE: dict[type, Callable[[float, float], float]] = {
    ast.Lt: lambda a, b: b - a,
    ast.Gt: lambda a, b: a - b,
}
_ARITHMETIC: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
# The mean margin must be this many standard deviations (over the seeds) away from a tie.
MARGIN = 2.0
SEEDS_AT_LEAST = 3
# Below this a number of float64 may be a rounding error, which differs between machines.
NOISE = 1e-9


class FindingError(AssertionError):
    """The experiment does not show what the sentence says."""


class Measured(float):
    """A number, measured for each seed: formats as their mean; `low` and `high` are the ends."""

    def __new__(cls, values: Sequence[float]) -> Measured:
        """The mean of `values`, which keeps the smallest and the largest of them."""
        self = super().__new__(cls, fmean(values))
        self.values = list(values)
        self.low, self.high = min(values), max(values)
        return self

    values: list[float]
    low: float
    high: float


class _Box:
    """What the cell shows: the sentence for the page, every measured value for the comparison."""

    def __init__(self, plain: str, markdown: str) -> None:
        self.plain, self.markdown = plain, markdown

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.plain, "text/markdown": self.markdown}


def finding(
    sentence: str,
    measure: Callable[[int], Mapping[str, float]] | Mapping[str, float | Sequence[float]],
    holds: str | Iterable[str],
    seeds: Iterable[int] | None = range(5),
    *,
    quantity: str = "",
    rows: Mapping[str, str] | None = None,
) -> None:
    """Run an experiment for every seed, require what the sentence says, and show the sentence.

    Args:
        sentence: Markdown; `{name:.2f}` stands for a measured number (its mean over the seeds),
            `{name.low}` and `{name.high}` for its ends. Braces of LaTeX are written twice.
        measure: seed -> the numbers by name. Or the numbers themselves: a list by seed for each
            name, or plain numbers if `seeds` is None. A rounding error may be compared with a
            bound, but the sentence must not state it: on another machine it is another.
        holds: one or more comparisons of sums and products of these names, such as
            `"last < 0.5 * first"`; each must hold for every seed, and by more than the spread.
        seeds: at least three; None for what does not depend on chance.
        quantity: what the numbers of `rows` are, with its unit: the head of their table.
        rows: what a table below the sentence compares, at least two numbers of one unit: name, and
            how the number is printed, such as `"without it": "{off:.0%}"`. With seeds each row has
            the mean and the ends; the page draws them to one scale.

    Raises:
        FindingError: if a comparison fails for a seed, holds by less than the spread, or a measured
            number is not finite.
        ValueError: if there are fewer than three seeds, a comparison cannot be read or compares
            nothing that was measured, or the sentence, a row or a comparison names what was not
            measured.
    """
    seeds = None if seeds is None else list(seeds)
    values = _values(measure, seeds)
    claims = [" ".join(c.split()) for c in ([holds] if isinstance(holds, str) else holds)]
    if not claims:
        raise ValueError("finding: `holds` is empty, so the sentence claims nothing")
    for claim in claims:
        check(claim, values, seeds)
    sentence += table(quantity, rows or {}, seeds is not None)
    text = said(sentence, values)
    values = _without_noise(sentence, claims, values)
    print_as = _digits(claims, values, seeds)
    printed = "".join(
        f"\n  {name}: {' '.join(print_as(v) for v in numbers)}" for name, numbers in values.items()
    )
    how = "computed" if seeds is None else f"seeds {', '.join(map(str, seeds))}"
    ran = "Computed" if seeds is None else f"In each of the runs with {how}"
    margin = "; ".join(
        f"`{claim}` by {' and '.join(_spread(gaps) for _, gaps in check(claim, values, seeds))}"
        for claim in claims
    )
    plain = f"Finding ({how}): {text}\n  holds: {'; '.join(claims)}{printed}"
    markdown = f"**Finding.** {text}\n\n*{ran}:* {margin}."
    display(_Box(plain, markdown))  # type: ignore[no-untyped-call]


def fields(sentence: str) -> list[str]:
    """The names of the measured numbers that a sentence states, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None]


def table(quantity: str, rows: Mapping[str, str], ranges: bool) -> str:
    """The Markdown of a table of `rows`, to be filled by `said`; nothing without rows.

    Raises:
        ValueError: if a row has not exactly one number, there is only one row, or the quantity has
            no name.
    """
    if not rows:
        if quantity:
            raise ValueError(f"finding: the quantity {quantity!r} has no rows")
        return ""
    if not quantity or len(rows) < 2:
        raise ValueError("finding: rows are at least two numbers of a quantity that has a name")
    lines = [f"| {quantity} | {'mean | lowest to highest' if ranges else '|'} |", "|:--|--:|:--|"]
    for name, form in rows.items():
        typed = "".join(literal for literal, *_ in string.Formatter().parse(form))
        if len(fields(form)) != 1 or re.search(r"[\d|]", typed):
            raise ValueError(f"finding: the row {name!r} should hold one number, got {form!r}")
        ends = [re.sub(r"\{(\w+)", rf"{{\1.{end}", form) for end in ("low", "high")]
        lines.append(f"| {name} | {form} | {' to '.join(ends) if ranges else ''} |")
    return "\n\n" + "\n".join(lines)


def said(sentence: str, values: Mapping[str, Sequence[float]]) -> str:
    """The sentence with its numbers.

    Raises:
        ValueError: if it names something that was not measured.
    """
    for name in fields(sentence):
        if not re.fullmatch(r"\w+(\.low|\.high)?", name):
            raise ValueError(
                f"finding: {{{name}}} in the sentence should be a name, name.low or name.high; "
                "braces of LaTeX are written twice"
            )
        if name.partition(".")[0] not in values:
            raise ValueError(f"finding: the sentence names {name!r}, measured are {sorted(values)}")
    return sentence.format(**{name: Measured(numbers) for name, numbers in values.items()})


def check(
    claim: str, values: Mapping[str, Sequence[float]], seeds: Sequence[int] | None = None
) -> list[tuple[str, list[float]]]:
    """Require that the comparison `claim` holds for every seed, by more than its margin's spread.

    Returns:
        For each link of the chain, its text and by how much it holds for each seed.

    Raises:
        FindingError: if it does not.
        ValueError: if `claim` is no comparison of arithmetic of the names in `values`.
    """
    found = list(margins(claim, values))
    for text, gaps in found:
        worst = min(gaps)
        if not worst > 0:
            where = gaps.index(worst)
            seed = "" if len(gaps) == 1 else f" for seed {(seeds or range(len(gaps)))[where]}"
            raise FindingError(f"finding: {text} fails{seed}, by {0 - worst:.3g}")
        if len(gaps) > 1 and fmean(gaps) <= MARGIN * stdev(gaps):
            raise FindingError(
                f"finding: {text} holds by {fmean(gaps):.3g} on average, which is not more than "
                f"{MARGIN:g} times its spread {stdev(gaps):.3g}; say that it varies"
            )
    return found


def margins(claim: str, values: Mapping[str, Sequence[float]]) -> Iterator[tuple[str, list[float]]]:
    """For each link of a chain `a < b < c`: its text, and by how much it holds for each seed."""
    for left, how, right in links(claim):
        text = f"{ast.unparse(left)} {'<' if isinstance(how, ast.Lt) else '>'} {ast.unparse(right)}"
        # `abs` is the only function, not a number.
        named = {n.id for side in (left, right) for n in ast.walk(side) if isinstance(n, ast.Name)}
        if unknown := sorted(named - {"abs"} - set(values)):
            raise ValueError(
                f"finding: {claim!r} names {', '.join(unknown)}, measured are {sorted(values)}"
            )
        if not named - {"abs"}:
            raise ValueError(f"finding: {text!r} compares nothing that was measured")
        gaps = []
        for k in range(max(map(len, values.values()))):
            here = {name: numbers[k] for name, numbers in values.items()}
            try:
                sides = _number(left, here, claim), _number(right, here, claim)
            except ArithmeticError as error:
                raise FindingError(f"finding: {text} cannot be computed: {error}") from None
            gaps.append(_COMPARE[type(how)](*sides))
        if not all(map(math.isfinite, gaps)):
            raise FindingError(f"finding: {text} compares what is not finite: {gaps}")
        yield text, gaps


def links(claim: str) -> list[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """The comparisons of a chain `a < b < c`: left side, relation, right side of each."""
    try:
        tree = ast.parse(claim, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"finding: {claim!r} cannot be read: {error.msg}") from None
    if not isinstance(tree, ast.Compare):
        raise ValueError(f"finding: {claim!r} is no comparison")  # noqa: TRY004
    if any(type(how) not in _COMPARE for how in tree.ops):
        raise ValueError(f"finding: {claim!r} compares with something other than < and >")
    sides = [tree.left, *tree.comparators]
    return list(zip(sides, tree.ops, sides[1:], strict=False))


def _spread(gaps: list[float]) -> str:
    """Mean and standard deviation, where there are several; rounding errors are no spread."""
    mean = fmean(gaps)
    if len(gaps) == 1:
        return f"{mean:.2g}"
    spread = stdev(gaps)
    return f"{mean:.2g} ± {spread if spread > 1e-9 * abs(mean) else 0:.1g}"


def _number(node: ast.expr, values: Mapping[str, float], claim: str) -> float:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            left, right = _number(node.left, values, claim), _number(node.right, values, claim)
            result = _ARITHMETIC[type(node.op)](left, right)
            if isinstance(result, complex):
                raise ArithmeticError(  # noqa: TRY004
                    f"{left:g} to the power of {right:g} is no real number"
                )
            return float(result)
        case ast.UnaryOp() if type(node.op) in _ARITHMETIC:
            return float(_ARITHMETIC[type(node.op)](_number(node.operand, values, claim)))
        case ast.Call(func=ast.Name(id="abs"), args=[inner], keywords=[]):
            return abs(_number(inner, values, claim))
    raise ValueError(f"finding: {ast.unparse(node)!r} in {claim!r} is no arithmetic of names")


def _values(
    measure: Callable[[int], Mapping[str, float]] | Mapping[str, float | Sequence[float]],
    seeds: list[int] | None,
) -> dict[str, list[float]]:
    if seeds is None:
        found = measure if isinstance(measure, Mapping) else measure(0)
        values = {name: [float(v)] for name, v in found.items()}  # type: ignore[arg-type]
    else:
        if len(seeds) < SEEDS_AT_LEAST or len(set(seeds)) < len(seeds):
            raise ValueError(f"finding: at least three different seeds, got {seeds}")
        if isinstance(measure, Mapping):
            values = {name: [float(v) for v in vs] for name, vs in measure.items()}  # type: ignore[union-attr]
        else:
            runs = [measure(seed) for seed in seeds]
            if any(set(run) != set(runs[0]) for run in runs):
                raise ValueError("finding: the seeds measured different names")
            values = {name: [float(run[name]) for run in runs] for name in runs[0]}
        if wrong := sorted(name for name, vs in values.items() if len(vs) != len(seeds)):
            raise ValueError(f"finding: {wrong} do not hold one number for each of {seeds}")
    if not values:
        raise ValueError("finding: nothing was measured")
    if odd := [name for name in values if not name.isidentifier() or name == "holds"]:
        raise ValueError(f"finding: {odd} cannot be names of what is measured")
    for name, vs in values.items():
        if not all(map(math.isfinite, vs)):
            raise FindingError(f"finding: {name} is not finite: {vs}")
    return values


# ---------------------------------------------------------------- the stored form


@dataclass(frozen=True)
class Stored:
    """What the text form of a finding's output says."""

    seeds: list[int] | None
    text: str  # the sentence
    claims: list[str]
    printed: dict[str, list[str]]  # name -> a number for each seed

    @property
    def values(self) -> dict[str, list[float]]:
        """The numbers, as far as they are printed."""
        return {name: [float(number) for number in row] for name, row in self.printed.items()}


_STORED = re.compile(
    r"Finding \((?:computed|seeds (?P<seeds>[-\d, ]+))\): (?P<text>.*)\n"
    r"  holds: (?P<claims>[^\n]*)(?P<rows>(?:\n  \w+: [^\n]*)+)",
    re.S,
)


def read_stored(plain: str) -> Stored:
    """The text form of a finding's output, read again.

    Raises:
        ValueError: if it is not one.
    """
    match = _STORED.fullmatch(plain)
    if match is None:
        raise ValueError(f"this is not the output of a finding: {plain[:80]!r}")
    rows = (line.strip().split(": ", 1) for line in match["rows"].strip("\n").split("\n"))
    printed = {name: numbers.split() for name, numbers in rows}
    seeds = [int(s) for s in match["seeds"].split(", ")] if match["seeds"] else None
    return Stored(seeds, match["text"], match["claims"].split("; "), printed)


def _without_noise(
    sentence: str, claims: list[str], values: dict[str, list[float]]
) -> dict[str, list[float]]:
    """Rounding errors as zeros: what is so small that neither sentence nor comparison needs it."""
    text = said(sentence, values)
    for name, numbers in values.items():
        flat = {**values, name: [0.0 if abs(v) < NOISE else v for v in numbers]}
        try:
            for claim in claims:
                check(claim, flat)
        except FindingError:
            continue
        if said(sentence, flat) == text:
            values = flat
    return values


def _digits(
    claims: list[str], values: dict[str, list[float]], seeds: list[int] | None
) -> Callable[[float], str]:
    """How to print the values: with three digits, or as many more as the claims need to be seen."""
    for digits in range(3, 17):

        def print_as(value: float, digits: int = digits) -> str:
            return _printed(value, digits)

        rounded = {name: [float(print_as(v)) for v in vs] for name, vs in values.items()}
        try:
            for claim in claims:
                check(claim, rounded, seeds)
        except FindingError:
            continue
        return print_as
    return repr


def _printed(value: float, digits: int) -> str:
    """A number; counts in full. What differs from a count by rounding only is printed as one."""
    count = round(value)
    if abs(value) < 1e12 and abs(value - count) <= 1e-12 * abs(value):
        return str(count)
    return f"{value:.{digits}g}"
