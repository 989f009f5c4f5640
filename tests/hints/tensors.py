"""Chapter 01: what its exercises and questions print, and from where it is known."""

import math

import torch
from torch import nn

from book.checkers.tensors.modules import _Gains
from book.formulas.relations import Call

from .texts import Code, Entries, Formula, LeftOut, draw


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


def normed():
    x = draw(64)
    return {"x": x[3], r"\mu": x.mean(), r"\sigma^2": x.var(correction=0), r"\varepsilon": 1e-5,
            "y": nn.functional.layer_norm(x, (64,))[3]}  # fmt: skip


def linear_rows():
    X, W, b = draw(5, 3), draw(3, 4, seed=1), draw(4, seed=2)
    return {"X": X, "W": W, "b": b, "Y": nn.functional.linear(X, W.T, b)}


def backwards(of):
    """The gradient of one of them, from autograd, beside what the code may use."""
    layer = {name: linear_rows()[name].requires_grad_() for name in "XWb"}
    dY = draw(5, 4, seed=3)
    y = nn.functional.linear(layer["X"], layer["W"].T, layer["b"])
    (found,) = torch.autograd.grad(y, layer[of], dY)
    return {"dY": dY} | {n: t.detach() for n, t in layer.items()}, found


ENTRIES: Entries = {
    ("ex-which-check", "x - x.mean(1)"): Code(
        lambda: ({"x": draw(4, 4)}, draw(4, 4) - draw(4, 4).mean(1)[None]),
        ("x - x.mean(0)", "x - x.mean(1, keepdim=True)"),
    ),
    ("ex-which-check", "x.mean(1)"): Code(
        lambda: ({"x": draw(3, 4)}, draw(3, 4).sum(1) / 4),
        ("x.mean(0)", "x.mean(1, keepdim=True)"),
    ),
    ("ex-slip", r"(x-\mu)/\sqrt{\sigma^2+\varepsilon}"): Formula(normed, claim="y=@0"),
    ("ex-slip", "F.layer_norm(s * x, (64,))"): Code(
        lambda: (
            {"s": 0.1, "x": draw(3, 64)},
            nn.LayerNorm(64, dtype=torch.float64)(0.1 * draw(3, 64)),
        ),
        ("F.layer_norm(x, (64,))", "s * F.layer_norm(x, (64,))"),
    ),
    ("ex-linear-backward", "Y=XW+b"): Formula(linear_rows),
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
    ("What are the gradients of a linear layer?", "Y=XW+b"): Formula(linear_rows),
    ("What are the gradients of a linear layer?", "dY @ W.T"): Code(
        lambda: backwards("X"), ("dY @ W", "W.T @ dY")
    ),
    ("What are the gradients of a linear layer?", "X.T @ dY"): Code(
        lambda: backwards("W"), ("X @ dY", "dY.T @ X")
    ),
    ("What are the gradients of a linear layer?", "dY.sum(0)"): Code(
        lambda: backwards("b"), ("dY.sum(1)", "dY.sum()")
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
