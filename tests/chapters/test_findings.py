"""Protects the findings of the chapters as they are stored: sentence, comparison and numbers agree.

Nothing is run here. The stored text of a finding holds every number that was measured, so that its
comparisons can be checked again, and reversed. That the numbers are true is what the run shows.
"""

import ast
import math
import random
import re
import string
from decimal import Decimal

import pytest

from book.chapters import chapters, read, tagged
from book.finding import (
    SEEDS_AT_LEAST,
    FindingError,
    Measured,
    check,
    links,
    margins,
    read_stored,
    table,
)
from book.lint import findings

CELLS = [
    pytest.param(cell, id=f"{path.stem}-{cell.id}")
    for path in chapters()
    for cell in tagged(read(path), "finding")
]
EVERY_FINDING = pytest.mark.parametrize("cell", CELLS)


def stored(cell):
    """(what the text form says, the Markdown) of each finding that the cell shows."""
    shown = (o.get("data", {}) for o in cell.outputs)
    boxes = [data for data in shown if "text/markdown" in data]
    return [
        (read_stored("".join(b["text/plain"])), "".join(b["text/markdown"]).split("\n\n*", 1)[0])
        for b in boxes
    ]


def reversed_links(claim):
    """Each link of a comparison, the other way round."""
    for left, how, right in links(claim):
        sign = ">" if isinstance(how, ast.Lt) else "<"
        yield f"{ast.unparse(left)} {sign} {ast.unparse(right)}"


# ---------------------------------------------------------------- numbers as they are printed


def rounding(number):
    """By how much a printed number may differ from the one that was measured."""
    digits = Decimal(number)
    if digits.is_zero():
        return 1e-9
    if re.fullmatch(r"-?\d{4,}", number):
        return 0.0  # a count, in full
    shown = max(3, len(digits.as_tuple().digits))
    return 0.5 * 10.0 ** (digits.adjusted() - shown + 1)


def problem_with_sentence(sentence, said, printed):
    """Where a sentence as it is shown is not the one of the source with the stored numbers."""
    pattern, fields = "", []
    for literal, name, spec, _ in string.Formatter().parse(sentence):
        pattern += re.escape(literal)
        if name is not None:
            pattern += r"(-?[\d.,]+(?:e[-+]?\d+)?%?)"
            fields.append((name, spec))
    match = re.fullmatch(pattern, said)
    if match is None:
        return f"{said!r} is not {sentence!r}"
    for shown, (name, spec) in zip(match.groups(), fields, strict=True):
        name, _, end = name.partition(".")
        values, off = [float(v) for v in printed[name]], max(map(rounding, printed[name]))
        middle = getattr(Measured(values), end) if end else float(Measured(values))
        low, high = (
            float(format(middle + side, spec).replace(",", "").rstrip("%")) for side in (-off, off)
        )
        here = float(shown.replace(",", "").rstrip("%"))
        if not spec:  # all digits of the mean are shown
            low, high = middle - off, middle + off
        slack = 1e-9 * max(abs(low), abs(high))
        if not low - slack <= here <= high + slack:
            return f"{{{name}}} is shown as {shown}, stored are {printed[name]}"
    return None


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ("It is 1.20, of 12,288.", True),
        ("It is 1.21, of 12,288.", False),
        ("It is 1.20, of 12,289.", False),
        ("It was 1.20, of 12,288.", False),
        ("It is 1.20, of 12,288", False),
        ("It is 1.2, of 12,288.", True),  # the same number
    ],
)
def test_a_sentence_is_compared_with_the_stored_numbers(said, good):
    printed = {"a": ["1.1", "1.2", "1.3"], "n": ["12288"]}
    assert (problem_with_sentence("It is {a:.2f}, of {n:,.0f}.", said, printed) is None) == good


# ---------------------------------------------------------------- the chapters


def test_there_are_findings():
    assert len(CELLS) >= len(chapters())


@EVERY_FINDING
def test_a_finding_has_an_id_that_says_so_and_its_output(cell):
    assert re.fullmatch(r"finding-[a-z0-9-]+", cell.id)
    calls = findings(cell)
    assert calls
    assert len(stored(cell)) == len(calls)


@EVERY_FINDING
def test_it_was_measured_for_at_least_three_seeds_or_does_not_depend_on_any(cell):
    for one, _ in stored(cell):
        counts = {len(numbers) for numbers in one.printed.values()}
        if one.seeds is None:
            assert counts == {1}
        else:
            assert len(set(one.seeds)) == len(one.seeds) >= SEEDS_AT_LEAST
            assert counts == {len(one.seeds)}


@EVERY_FINDING
def test_what_it_claims_holds_with_the_stored_numbers(cell):
    for one, _ in stored(cell):
        for claim in one.claims:
            assert check(claim, one.values, one.seeds)


@EVERY_FINDING
def test_every_reversed_comparison_fails(cell):
    for one, _ in stored(cell):
        for claim in one.claims:
            for wrong in reversed_links(claim):
                with pytest.raises(FindingError):
                    check(wrong, one.values, one.seeds)


@EVERY_FINDING
def test_a_comparison_could_have_failed(cell):
    """A comparison that holds for whatever is measured claims nothing."""
    dice = random.Random(0)
    for one, _ in stored(cell):
        for claim in one.claims:
            seen = set()
            for _ in range(300):
                draw = {n: [dice.choice((-1, 1)) * 10 ** dice.uniform(-6, 6)] for n in one.values}
                try:
                    seen |= {(text, gaps[0] > 0) for text, gaps in margins(claim, draw)}
                except FindingError:
                    continue
            always = {text for text, good in seen if good} - {t for t, good in seen if not good}
            assert always == set(), f"{always} cannot fail"


@EVERY_FINDING
def test_the_sentence_and_its_rows_are_those_of_the_source_with_the_stored_numbers(cell):
    for call, (one, markdown) in zip(findings(cell), stored(cell), strict=True):
        assert markdown == f"**Finding.** {one.text}"
        given = {k.arg: k.value for k in call.keywords if k.arg in ("quantity", "rows")}
        given = {name: ast.literal_eval(value) for name, value in given.items()}
        compared = table(given.get("quantity", ""), given.get("rows", {}), one.seeds is not None)
        sentence = call.args[0].value + compared
        assert problem_with_sentence(sentence, one.text, one.printed) is None


@EVERY_FINDING
def test_the_comparisons_are_those_of_the_source(cell):
    for call, (one, _) in zip(findings(cell), stored(cell), strict=True):
        given = call.args[2] if call.args[2:] else None
        given = next((k.value for k in call.keywords if k.arg == "holds"), given)
        try:
            written = ast.literal_eval(given)
        except ValueError:
            continue  # made by the cell, such as one comparison for each of several models
        written = [written] if isinstance(written, str) else list(written)
        assert [" ".join(claim.split()) for claim in written] == one.claims


@EVERY_FINDING
def test_every_number_is_finite(cell):
    for one, _ in stored(cell):
        assert all(math.isfinite(v) for row in one.values.values() for v in row)
