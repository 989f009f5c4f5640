"""Protects the witness: it says yes to what is equal, and to nothing else."""

import math

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from book import witness as module
from book.formulas.printed import formula as printed_formula
from book.formulas.reading import FormulaError
from book.witness import WitnessError, witness

x, y = sympy.symbols("x y")
ones = torch.ones(3, dtype=torch.float64)
nan, inf = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ((x + y) ** 2, x**2 + 2 * x * y + y**2, "the difference simplifies to 0 (SymPy)"),
        (
            sympy.Matrix([x - x, 1]),
            sympy.Matrix([0, sympy.sin(x) ** 2 + sympy.cos(x) ** 2]),
            "all 2 entries",
        ),
        (sympy.Integer(2), sympy.Rational(4, 2), "simplifies to 0"),
        (ones * 3, ones + 2, "3 numbers equal to within 1e-10"),
        (0.1 + 0.2, 0.3, "1 number equal"),
        ([1.0, 2.0], [1.0, 2.0], "2 numbers"),
        (torch.tensor([True, False]), torch.tensor([1, 0]), "2 numbers"),
        (torch.zeros(2), ones[:2] - 1, "2 numbers"),
    ],
)
def test_what_is_equal_passes_and_the_printed_line_says_how_it_was_checked(
    left, right, said, capsys
):
    witness("eq-some", left, right)
    out = capsys.readouterr().out
    assert out.startswith("eq-some holds: ")
    assert said in out


@pytest.mark.parametrize(
    ("left", "right", "why"),
    [
        (x**2, x**3, "does not simplify to zero"),
        (sympy.Matrix([x, y]), sympy.Matrix([x, x]), "does not simplify to zero"),
        (sympy.nan, sympy.nan + 0 * x, "does not simplify|same object"),
        (sympy.oo, sympy.oo * 2, "does not simplify|same object"),
        (sympy.Matrix([x, y]), sympy.Matrix([[x, y]]), "shapes differ"),
        (sympy.Matrix(0, 0, []), sympy.Matrix(0, 0, []), "no entries"),
        (ones, ones * (1 + 1e-6), "differ by"),
        (ones, -ones, "differ by"),
        (ones, torch.ones(3, 1, dtype=torch.float64), "shapes differ"),
        (1.0, ones, "shapes differ"),
        (torch.ones(0), torch.ones(0), "no entries"),
        (ones * nan, ones * nan, "nan or infinity"),
        (ones, torch.tensor([1.0, 1.0, nan], dtype=torch.float64), "nan or infinity"),
        (ones * inf, ones * inf, "nan or infinity"),
        (x, 1.0, "one side is symbolic"),
        (ones, sympy.Integer(1), "one side is symbolic"),
    ],
)
def test_what_is_not_equal_or_proves_nothing_fails(left, right, why, capsys):
    with pytest.raises(WitnessError, match=why) as error:
        witness("eq-some", left, right)
    assert str(error.value).startswith("eq-some: ")
    assert "holds" not in capsys.readouterr().out


def test_a_witness_that_fails_is_an_assertion_that_fails():
    assert issubclass(WitnessError, AssertionError)


@pytest.mark.parametrize("same", [ones, x + 1, sympy.Matrix([x, 1]), [1.0]], ids=str)
def test_one_and_the_same_object_proves_nothing(same):
    with pytest.raises(WitnessError, match="same object"):
        witness("eq-some", same, same)


def test_a_symbolic_number_may_be_the_same_object_since_sympy_keeps_only_one():
    assert sympy.Integer(1) is sympy.Rational(2, 2)
    witness("eq-some", sympy.Integer(1), sympy.Rational(2, 2))


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e12])
def test_the_tolerance_is_relative_so_a_tiny_wrong_side_is_seen(size):
    witness("eq-some", size * ones, size * ones.clone())
    with pytest.raises(WitnessError, match="differ by"):
        witness("eq-some", 1.001 * size * ones, size * ones)
    with pytest.raises(WitnessError, match="differ by"):
        witness("eq-some", 0 * ones, size * ones)


def test_against_zero_the_tolerance_is_absolute():
    witness("eq-some", 1e-11 * ones, 0 * ones)
    with pytest.raises(WitnessError, match="differ by"):
        witness("eq-some", 1e-9 * ones, 0 * ones)


def test_a_single_wrong_entry_among_many_is_seen():
    left = torch.linspace(0, 1, 1000, dtype=torch.float64)
    right = left.clone()
    right[3] += 1e-9
    with pytest.raises(WitnessError, match="differ by"):
        witness("eq-some", left, right)


def test_the_imaginary_part_is_compared_too():
    witness("eq-some", torch.tensor([1 + 2j]), torch.tensor([1 + 2j]))
    with pytest.raises(WitnessError):
        witness("eq-some", torch.tensor([1 + 2j]), torch.tensor([1 + 3j]))


def test_a_complex_side_equals_a_real_one_only_if_it_has_no_imaginary_part():
    witness("eq-some", torch.tensor([1 + 0j, 2 + 0j]), torch.tensor([1.0, 2.0]))
    witness("eq-some", torch.tensor([1.0]), torch.tensor([1 + 0j]))
    with pytest.raises(WitnessError):
        witness("eq-some", torch.tensor([1 + 1j, 1 + 1j]), torch.tensor([1.0, 1.0]))
    with pytest.raises(WitnessError):
        witness("eq-some", torch.tensor([1.0]), torch.tensor([1 + 1j]))


def test_a_tolerance_so_loose_that_a_slip_would_pass_is_refused():
    witness("eq-some", ones, ones + 1e-7, tol=1e-6)
    with pytest.raises(WitnessError, match="so loose"):
        witness("eq-some", ones, ones + 1e-7, tol=1e-4)
    with pytest.raises(WitnessError, match="so loose"):
        witness("eq-some", ones, ones.clone(), tol=inf)


def test_a_simplification_that_says_yes_to_everything_is_refused(monkeypatch):
    witness("eq-some", (x + 1) * (x - 1), x**2 - 1)
    monkeypatch.setattr(module.sympy, "simplify", lambda entry: sympy.Integer(0))
    with pytest.raises(WitnessError, match="wrong right-hand side passes too"):
        witness("eq-some", (x + 1) * (x - 1), x**2 - 1)


def test_a_label_that_is_not_an_equation_is_refused():
    with pytest.raises(ValueError, match="eq-"):
        witness("rms", 1.0, 2.0 - 1.0)


def test_gradients_are_not_kept():
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    witness("eq-some", weight * 2, torch.full((3,), 2.0, dtype=torch.float64))
    assert weight.grad is None


finite = st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6)


@given(st.lists(finite, min_size=1, max_size=8), st.data())
def test_any_slip_of_a_millionth_of_the_largest_entry_is_seen(values, data):
    right = torch.tensor(values, dtype=torch.float64)
    left = right.clone()
    witness("eq-some", left, right)
    at = data.draw(st.integers(0, len(values) - 1))
    left[at] += 1e-6 * (right.abs().max().item() or 1.0)
    assert not math.isclose(left[at].item(), right[at].item(), rel_tol=1e-12, abs_tol=1e-13)
    with pytest.raises(WitnessError, match="differ by"):
        witness("eq-some", left, right)


# ---------------------------------------------------------------- formulas that are read


@pytest.fixture
def printed(monkeypatch):
    """Let a label stand for a formula."""
    formulas = {"eq-line": r"y=xW+b,\qquad y_j=\sum_kx_kW_{kj}+b_j"}
    monkeypatch.setattr(module, "formula", lambda label: (formulas[label], "no_such_topic"))


def line():
    x, w, b = torch.tensor([2.0, 3.0, 5.0]), torch.arange(6.0).reshape(3, 2), torch.tensor([7.0, 9])
    return {"x": x, "W": w, "b": b, "y": torch.nn.functional.linear(x, w.T, b)}


def test_a_formula_is_evaluated_as_printed_and_the_line_says_so(printed, capsys):
    witness("eq-line", line())
    assert capsys.readouterr().out == (
        "eq-line holds: read as printed, 2 relations, 4 numbers to within 1e-09\n"
    )


def test_a_binding_that_does_not_fit_the_print_fails(printed):
    with pytest.raises(WitnessError, match="eq-line: the sides of `y = x W"):
        witness("eq-line", {**line(), "y": torch.ones(2)})


def test_what_cannot_be_evaluated_is_shown_with_a_mark_under_the_character(printed):
    bound = line()
    del bound["b"]
    with pytest.raises(FormulaError) as error:
        witness("eq-line", bound)
    assert "eq-line: the symbol b is bound to nothing" in str(error.value)
    *_, formula, mark = str(error.value).splitlines()
    assert formula[mark.index("^")] == "b"


def test_the_symbols_are_a_dictionary(printed):
    with pytest.raises(TypeError, match="dictionary"):
        witness("eq-line", torch.ones(2))


def test_the_mutants_of_a_formula_are_tried_where_that_is_asked(printed, monkeypatch, capsys):
    monkeypatch.setenv("BOOK_MUTANTS", "all")
    witness("eq-line", line())
    assert "mutants {" in capsys.readouterr().out
    zero = {**line(), "b": torch.zeros(2), "y": line()["y"] - line()["b"]}
    monkeypatch.setenv("BOOK_MUTANTS", "sample")
    monkeypatch.setattr(module.mutants, "SAMPLE", 100)
    with pytest.raises(AssertionError, match="a wrong formula passes too"):
        witness("eq-line", zero)  # the sign of b cannot be seen


def test_a_label_that_no_chapter_shows_is_an_error():
    with pytest.raises(ValueError, match="no chapter shows"):
        witness("eq-that-nobody-wrote", {"x": 1.0})


def test_every_chapter_s_formula_is_found_by_its_label():
    latex, chapter = printed_formula("eq-row-vector")
    assert chapter == "tensors"
    assert latex.startswith("y=xW+b")
