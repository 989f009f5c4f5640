"""Every part computes where its arguments are. Without a GPU the device is `meta`.

It has shapes and no numbers; torch refuses to mix it with the CPU, as it does a GPU. On a GPU
`python -m book.accelerator parts` compares values and gradients too.
"""

import copy

import pytest
import torch
from transformable import FUNCTIONS, MODULES

from book.accelerator import __main__ as command
from book.accelerator import parts


@pytest.fixture(autouse=True)
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("part", MODULES + FUNCTIONS, ids=lambda part: part.name)
def test_a_part_computes_where_its_arguments_are(part):
    module, args = part.make().eval(), part.inputs(2, 5)
    want = parts.flat(module(*args))
    have = parts.flat(copy.deepcopy(module).to("meta")(*parts.moved(args, "meta")))
    assert [(t.device.type, t.dtype, t.shape) for t in have] == [
        ("meta", t.dtype, t.shape) for t in want
    ]


class Faulty(torch.nn.Module):
    """What `parts` has to find: its copy, which stands for the other device, is wrong."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.gain = torch.nn.Parameter(torch.ones(3))
        self.wrong = False

    def __deepcopy__(self, memo):
        made = Faulty(self.how)
        made.wrong = True
        return made

    def forward(self, x):
        y = x * self.gain
        if self.wrong and self.how == "value":
            return y + 1e-6
        if self.wrong and self.how == "gradient":
            return y.detach() + 2 * (self.gain - self.gain.detach())
        if self.wrong and self.how == "nan":
            return torch.where(torch.arange(3) == 1, torch.nan, y)
        return y


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("none", None),
        ("value", "values differ"),
        ("gradient", "gradient"),
        ("nan", "values differ"),
    ],
)
def test_a_difference_is_found(how, found):
    told = parts.differs(Faulty(how), (torch.tensor([1.0, 2.0, 3.0]),), "cpu")
    assert told is None if found is None else found in told


def test_a_device_that_is_not_there_is_an_error(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert command.main(["parts"]) == 2
    assert "torch finds no device 'cuda' here" in capsys.readouterr().err
