"""A run with nudged random numbers finds outputs that depend on rounding, and only those."""

import sys

import nbformat
import pytest

from book.chapters import ROOT
from book.refresh import execute

CELLS = {
    "kinds": """
import torch
torch.set_default_dtype(torch.float64); torch.manual_seed(0)
with torch.device("meta"):
    kind = torch.randn(2).device
w, b = torch.randn(3, requires_grad=True), torch.nn.Linear(2, 2).bias
print(kind, w.is_leaf and w.requires_grad, b.is_leaf and b.requires_grad)""",
    "numbers": "print(*map(repr, w.tolist() + b.tolist()))",
    "steady": "x = torch.rand(())\nfor _ in range(10): x = 3.9 * x * (1 - x)\nprint(f'{x:.3f}')",
    "chaotic": "x = torch.rand(())\nfor _ in range(200): x = 3.9 * x * (1 - x)\nprint(f'{x:.3f}')",
}


def printed():
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    cells = execute(nbformat.v4.new_notebook(cells=cells)).cells
    return {name: c.outputs[0].text.split() for name, c in zip(CELLS, cells, strict=True)}


@pytest.fixture(scope="module")
def plain():
    return printed()


@pytest.fixture(scope="module")
def nudged():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSTARTUP", str(ROOT / "book" / "nudged.py"))
        return printed()


def test_random_numbers_move_by_a_rounding_error_and_stay_what_they_are(plain, nudged):
    assert plain["kinds"] == nudged["kinds"] == ["meta", "True", "True"]
    for a, b in zip(map(float, plain["numbers"]), map(float, nudged["numbers"]), strict=True):
        assert 0 < abs(a - b) < 8 * sys.float_info.epsilon * abs(a)


def test_an_output_that_enlarges_rounding_errors_differs_and_another_does_not(plain, nudged):
    assert plain["chaotic"] != nudged["chaotic"]
    assert plain["steady"] == nudged["steady"]
