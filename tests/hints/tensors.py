"""Chapter 01: what its exercises and questions print, and from where it is known."""

import math

import torch
from torch import nn

from book.checkers.tensors.modules import _Gains
from book.formulas.relations import Call

from .texts import Code, Entries, Formula, LeftOut, draw, oracle


def scaled():
    x, rows, columns = draw(3, 4), draw(3), draw(4)
    return {r"\text{rows}": rows, r"\text{columns}": columns, "X": x,
            "Y": oracle("tensors.scale")(x, rows, columns)}  # fmt: skip


def gains():
    """The reference's module, after some learning."""
    x, mask = draw(4), (draw(4, seed=1) > -0.5).double() * 2
    module = _Gains(3, mask)
    for n, gain in enumerate(module.gains):
        gain.data = draw(4, seed=2 + n)
    return {"x": x, r"\text{mask}": mask, r"\text{depth}": 3, "y": module(x).detach(),
            "g": {n + 1: gain.detach() for n, gain in enumerate(module.gains)}}  # fmt: skip


def linear():
    layer = nn.Linear(4, 3, dtype=torch.float64)
    x = draw(4)
    return Call({"x": x, "A": layer.weight.detach(), "b": layer.bias.detach(),
                 "z": layer(x).detach(), "y": (layer(x) - layer.bias).detach()},
                define=["W"])  # fmt: skip


ENTRIES: Entries = {
    ("ex-memory", "x.T.reshape(2, 3)"): Code(
        lambda: ({"x": torch.arange(6).view(2, 3)}, torch.tensor([[0, 3, 1], [4, 2, 5]])),
        ("x.reshape(2, 3)", "x.T.T"),
    ),
    ("ex-scale", r"\operatorname{diag}(\text{rows})\,X\operatorname{diag}(\text{columns})"): (
        Formula(scaled, claim="Y=@0")
    ),
    ("ex-register-gains", r"x\odot\text{mask}\odot g_1\odot\dots\odot g_{\text{depth}}"): (
        Formula(
            gains,
            claim="y=@0",
            says=("`forward` returns",),
            swap={r"\odot\dots\odot": r"\odot g_2\odot"},
        )  # three gains
    ),
    ("ex-is-softmax", r"\operatorname{softmax}(x)_{ij}=e^{x_{ij}}/\sum_ke^{x_{ik}}"): Formula(
        lambda: {
            "x": draw(3, 4),
            "e": math.e,
            r"\operatorname{softmax}": lambda x: x.softmax(-1),
        }
    ),
    ("ex-is-softmax", "F.softmax(x, dim=-1)"): Code(
        lambda: ({"x": draw(3, 4)}, draw(3, 4).exp() / draw(3, 4).exp().sum(1, keepdim=True)),
        ("F.softmax(x, dim=0)", "F.log_softmax(x, dim=-1)"),
    ),
    ("ex-is-softmax", "e^x"): LeftOut("asks which inputs make it overflow"),
    ("What shape is the weight of nn.Linear(4, 3)?", r"xA^\top+b", "y=xW", r"W=A^\top"): Formula(
        linear, claim=r"z=@0,\qquad @1,\qquad @2", says=("The layer computes",)
    ),
    (
        "What is a Hadamard product, and where does a Transformer use it?",
        r"\operatorname{diag}(\gamma)",
    ): Formula(
        lambda: {r"\gamma": draw(4), "X": draw(3, 4), "Y": draw(4) * draw(3, 4)},
        claim="Y=X@0",
        says=("equals a matrix product with",),
    ),
}
