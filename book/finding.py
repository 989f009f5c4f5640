"""A conclusion that is executed: the sentence, the experiment behind it, and the comparison it claims.

A cell tagged `finding` ends in `finding("... {number} ...", measure, holds, seeds)`. The experiment
is run for every seed, the comparison must hold for each of them with a margin larger than the spread
between seeds, and the sentence is printed with the numbers that were measured. The page shows the
sentence in a box; what would not hold for another seed cannot be said there.
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
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


class FindingError(AssertionError):
    """The experiment does not show what the sentence says."""


class Measured(float):
    """A number measured once for each seed: formats as their mean; `low` and `high` are the ends."""

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
) -> None:
    """Run an experiment for every seed, require what the sentence says, and show the sentence.

    Args:
        sentence: Markdown; `{name:.2f}` stands for a measured number (its mean over the seeds),
            `{name.low}` and `{name.high}` for its ends.
        measure: seed -> the numbers by name. Or the numbers themselves: a list by seed for each
            name, or plain numbers if `seeds` is None.
        holds: one or more comparisons of sums and products of these names, such as
            `"last < 0.5 * first"`; each must hold for every seed, and by more than the spread.
        seeds: at least three; None for what does not depend on chance.

    Raises:
        FindingError: if a comparison fails for a seed, holds by less than the spread, or a measured
            number is not finite.
        ValueError: if there are fewer than three seeds, a comparison cannot be read, or a name in
            the sentence or in a comparison was not measured.
    """
    numbers = {name: Measured(v) for name, v in _values(measure, seeds).items()}
    claims = [holds] if isinstance(holds, str) else list(holds)
    if not claims:
        raise ValueError("finding: `holds` is empty, so the sentence claims nothing")
    known = set(numbers)
    said = {f.split(".")[0].split("[")[0] for _, f, _, _ in string.Formatter().parse(sentence) if f}
    if unknown := said - known:
        raise ValueError(f"finding: the sentence names {sorted(unknown)}, measured are {sorted(known)}")
    for claim in claims:
        check(claim, {name: number.values for name, number in numbers.items()})
    text = sentence.format(**numbers)
    how = "computed" if seeds is None else f"seeds {', '.join(map(str, seeds))}"
    rows = "".join(
        f"\n  {name}: {' '.join(f'{v:.3g}' for v in number.values)}"
        for name, number in numbers.items()
    )
    checked = "; ".join(claims)
    display(
        _Box(
            f"Finding ({how}): {text}\n  holds: {checked}{rows}",
            f"{text}\n\n*{'Computed' if seeds is None else 'In each of the ' + how}:* `{checked}`",
        )
    )


def check(claim: str, values: Mapping[str, Sequence[float]]) -> None:
    """Require that the comparison `claim` holds for every seed, by more than the spread of its margin.

    Raises:
        FindingError: if it does not.
        ValueError: if `claim` is no comparison of arithmetic of the names in `values`.
    """
    for text, gaps in margins(claim, values):
        if min(gaps) <= 0:
            raise FindingError(f"finding: {text} fails for seed number {gaps.index(min(gaps))}")
        if len(gaps) > 1 and fmean(gaps) <= MARGIN * stdev(gaps):
            raise FindingError(
                f"finding: {text} holds by {fmean(gaps):.3g} on average, which is not more than "
                f"{MARGIN:g} times its spread {stdev(gaps):.3g}; say that it varies"
            )


def margins(
    claim: str, values: Mapping[str, Sequence[float]]
) -> Iterable[tuple[str, list[float]]]:
    """For each link of a chain `a < b < c`: its text, and by how much it holds for each seed."""
    try:
        tree = ast.parse(claim, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"finding: {claim!r} cannot be read: {error.msg}") from None
    if not isinstance(tree, ast.Compare):
        raise ValueError(f"finding: {claim!r} is no comparison")
    sides = [tree.left, *tree.comparators]
    count = max(map(len, values.values()))
    for left, how, right in zip(sides, tree.ops, sides[1:], strict=False):
        if type(how) not in _COMPARE:
            raise ValueError(f"finding: {claim!r} compares with something other than < and >")
        gaps = []
        for k in range(count):
            here = {name: v[k] for name, v in values.items()}
            gap = _COMPARE[type(how)](_number(left, here, claim), _number(right, here, claim))
            gaps.append(float(gap))
        sign = "<" if isinstance(how, ast.Lt) else ">"
        yield f"{ast.unparse(left)} {sign} {ast.unparse(right)}", gaps


def _number(node: ast.expr, values: Mapping[str, float], claim: str) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise ValueError(f"finding: {claim!r} names {node.id}, measured are {sorted(values)}")
        return values[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _number(node.left, values, claim), _number(node.right, values, claim)
        return float(_ARITHMETIC[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _ARITHMETIC:
        return float(_ARITHMETIC[type(node.op)](_number(node.operand, values, claim)))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "abs" and len(node.args) == 1:
        return abs(_number(node.args[0], values, claim))
    raise ValueError(f"finding: {ast.unparse(node)!r} in {claim!r} is no arithmetic of names")


def _values(
    measure: Callable[[int], Mapping[str, float]] | Mapping[str, float | Sequence[float]],
    seeds: Iterable[int] | None,
) -> dict[str, list[float]]:
    if seeds is None:
        found = measure if isinstance(measure, Mapping) else measure(0)
        values = {name: [float(v)] for name, v in found.items()}  # type: ignore[arg-type]
    else:
        seeds = list(seeds)
        if len(seeds) < 3 or len(set(seeds)) < len(seeds):
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
    for name, vs in values.items():
        if not all(abs(v) < float("inf") for v in vs):
            raise FindingError(f"finding: {name} is not finite: {vs}")
    return values
