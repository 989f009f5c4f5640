"""Protects the brackets and bars of the formulas; how they come out is measured in tests/site."""

import pytest
from math_core import LatexToMathML

from book.mathml import well_drawn

latex = LatexToMathML(fancy_error=False)


def drawn(formula):
    before = str(latex.convert_with_local_state(formula, displaystyle=True))
    return before, well_drawn(before)


@pytest.mark.parametrize("script", ["^2", "_i", "_i^2"])
def test_a_sized_bracket_under_a_script_gets_a_row_of_its_own(script):
    before, after = drawn(rf"\bigl(a+b\bigr){script}")
    assert after != before
    assert '><mrow><mo minsize="1.2em" maxsize="1.2em">)</mo></mrow><m' in after


def test_brackets_that_are_drawn_well_stay_as_they_are():
    for formula in (r"\left(\frac ab\right)^2", r"(a+b)^2", r"\bigl(a\bigr)", r"x^{\bigl(a\bigr)}"):
        before, after = drawn(formula)
        assert after == before


@pytest.mark.parametrize(
    ("formula", "strut"),
    [
        (r"\bar K", 'height="0.8em"'),
        (r"\bar v", 'height="0.6em"'),
        (r"\bar\mu", 'height="0.6em"'),
        (r"\underline k", 'depth="0.12em"'),
        (r"\underline q", 'depth="0.34em"'),
    ],
)
def test_a_bar_is_kept_from_its_letter(formula, strut):
    before, after = drawn(formula)
    assert f"<mspace {strut}/></mrow>" in after
    assert '<mo stretchy="false">¯</mo>' in after
    assert before.count("<mi") == after.count("<mi") == 1


def test_a_bar_under_a_whole_term_and_other_accents_stay():
    for formula in (r"\underline{f(x,m)}", r"\hat x", r"\tilde Y", r"\widehat{xy}"):
        before, after = drawn(formula)
        assert after == before


def test_a_letter_that_answers_keeps_its_number():
    before, _ = drawn(r"\bar k")
    marked = before.replace("<mover", '<mover data-s="7"').replace("<mi", '<mi data-s="3"')
    assert '<mover data-s="7"' in well_drawn(marked)
    assert '<mi data-s="3">k</mi><mspace' in well_drawn(marked)
