"""Each erratum is tested in float64 and with the same numbers in every run."""

import ast
import inspect

import pytest
import torch

from book.errata import load

from .evidence import Report


@pytest.fixture(autouse=True)
def _exact():
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def evidence(request):
    """Takes the numbers that a test has computed and that the evidence of its entry prints."""
    name = request.node.name
    entry = next(e for e in load() if e.test == name)
    report = Report(entry.id, entry.evidence)
    yield report
    module = ast.parse(inspect.getsource(request.module))
    report.finish(next(f for f in module.body if getattr(f, "name", "") == name), module)
