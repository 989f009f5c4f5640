"""Each erratum is tested in float64 and with the same numbers in every run."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _exact():
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
