"""The numbers in the evidence of a misconception, and where its test has them.

A number that an entry prints has to stand in the test as well, as a literal of an assertion or of
what it is computed from; or the test hands the number it has computed to the fixture `evidence`,
which compares it with what is printed. A number of an entry without a test, or one that a source
says and no test computes, is a link to the facts page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

# What is no number of the evidence: code, links, citations, versions, places, names, indices.
_SKIPPED = re.compile(
    r"`[^`]*`|\\t?frac\d\d|\\[a-zA-Z]+|\[[^\]]*\]\([^)]*\)|\btorch \d[\d.]*"
    r"|\b(?:section|figure|table|equation|appendix|chapter|version|part)s? \d[\d.]*"
    r"|_\{?\d+\}?|\bLlama \d|\b[A-Za-z]+[\d.]*-\d+B\b|\bDeepSeek \d+B|(?<![\d.])[A-Za-z]+-\d+"
)
_NUMBER = re.compile(
    r"(?<![\w.\\])(?P<digits>\d{1,3}(?:,\d{3})+(?![\d,]*\d)|\d+(?:\.\d+)?)"
    r"(?:e(?P<e>-?\d+)|\s*\^\s*\{?(?P<power>-?\d+)\}?)?(?P<percent>\s?\\?%)?(?!\w)"
)


@dataclass(frozen=True)
class Number:
    """A number as a text prints it."""

    text: str
    value: float
    step: float  # one unit of its last digit; 0 if it is no rounding of anything
    percent: bool = False

    def says(self, value: float, computed: bool = False) -> bool:
        """Whether `value` is printed like this: it is it, or it rounds to it.

        One digit is a rounding only of what was `computed`; else 0.7 would say 0.66 and 0.74.
        """
        for size in (abs(value), 100 * abs(value)) if self.percent else (abs(value),):
            if abs(size - self.value) <= 1e-12 * self.value:
                return True
            rounds = abs(size - self.value) <= 0.5 * self.step * (1 + 1e-6)
            if rounds and (computed or self.rounded):
                return True
        # "within 15% of" is 0.85 or 1.15.
        return self.percent and any(
            abs(abs(value) - (1 + sign * self.value / 100)) < 1e-9 for sign in (1, -1)
        )

    @property
    def rounded(self) -> bool:
        """Whether it may be the rounding of a longer number: it has two digits that count."""
        return len(re.sub(r"e.*|\D", "", self.text).lstrip("0")) >= 2


def numbers(text: str) -> list[Number]:
    """The numbers that `text` prints, but for single digits, which are mostly counts."""
    found = []
    for match in _NUMBER.finditer(_SKIPPED.sub(" ", text.replace("−", "-"))):
        digits, percent = match["digits"].replace(",", ""), bool(match["percent"])
        if match["power"] is not None:
            exponent = int(match["power"])
            if len(digits) == 1:
                continue
            if digits != "10":  # 12^2, for which there is no digit to round
                value = float(digits) ** exponent
                found.append(Number(match[0].strip(), value, 0.0, percent))
                continue
            digits = "1"
        else:
            exponent = int(match["e"] or 0)
            if re.fullmatch(r"\d", digits) and not (percent or match["e"]):
                continue
        places = len(digits.partition(".")[2])
        scale = 10.0**exponent
        found.append(
            Number(match[0].strip(), float(digits) * scale, 10.0**-places * scale, percent)
        )
    return found


def literals(function: ast.AST, module: ast.Module | None = None) -> list[float]:
    """The numbers in the source of a test, and in the constants of its module that it uses.

    Those in strings count, and quotients, products and powers of two.
    """
    found: list[float] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Constant):
            found += _numbers_of(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.Div | ast.Mult):
            left, right = (getattr(side, "value", None) for side in (node.left, node.right))
            if _is_number(left) and _is_number(right) and abs(right) < 1e300:
                found.append(float(eval(compile(ast.Expression(node), "", "eval"))))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fraction":
            parts = [getattr(argument, "value", None) for argument in node.args]
            if all(isinstance(part, int) for part in parts):
                found.append(float(Fraction(*parts)))
    if module is not None:
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for node in module.body:
            if isinstance(node, ast.Assign) and used & {getattr(t, "id", "") for t in node.targets}:
                found += literals(node.value)
    return found


def _numbers_of(value: object) -> list[float]:
    if _is_number(value):
        return [float(value)]
    if isinstance(value, str):
        # What an assertion says a number is printed as, such as "5.4e-02".
        return [float(value)] if re.fullmatch(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", value) else []
    return []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def unsupported(text: str, known: list[float], computed: Sequence[float] = ()) -> list[str]:
    """The numbers that `text` prints and that are none of the `known` and `computed` ones."""
    return [
        n.text
        for n in numbers(text)
        if not any(n.says(value) for value in known)
        and not any(n.says(value, computed=True) for value in computed)
    ]


class Report:
    """The numbers that the test of an entry has computed, against those that the entry prints.

    `report(x)` fails if none of the printed numbers is x, rounded. When the test is over, no
    printed number may be left that it neither computed nor has as a literal.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.computed: list[float] = []

    def __call__(self, *values: float) -> None:
        printed = numbers(self.text)
        for value in map(float, values):
            assert any(number.says(value, computed=True) for number in printed), (
                f"{self.name}: {value:.6g} was computed; printed are {[n.text for n in printed]}"
            )
            self.computed.append(value)

    def finish(self, function: ast.AST, module: ast.Module | None = None) -> None:
        assert self.computed, f"{self.name}: nothing was handed to `evidence`"
        left = unsupported(self.text, literals(function, module), self.computed)
        assert left == [], f"{self.name}: neither computed nor in the test: {left}"
