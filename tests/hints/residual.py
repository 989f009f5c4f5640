"""Chapter 09: what its exercises and questions print, and from where it is known."""

import torch
import torch.nn.functional as F

from book.formulas.relations import Call
from book.formulas.values import Expectation, signs

from .texts import Code, Entries, Formula, LeftOut, draw, oracle

X, W = draw(4), draw(4, 4)


def norm(x):
    return F.layer_norm(x, (4,), eps=0.0)


def sublayer(x):
    return x @ W


def block(norm_first):
    y = oracle("residual.block")(X, sublayer, norm, norm_first)
    return {"x": X, "y": y, r"\operatorname{Norm}": norm, "F": sublayer}


def kept():
    rows = signs(3) * torch.tensor([0.4, 1.3, 2.0], dtype=torch.float64)
    return {r"\operatorname{E}": Expectation({"u": rows}), "u": rows[0], "f": torch.relu}


def deepnorm():
    """Encoder alone: two sub-layers a layer, S of them; two depths."""
    made = []
    for layers in (5, 9):
        alpha, beta = oracle("residual.deepnorm")(layers, None)
        made.append({r"\alpha": alpha, r"\beta": beta, "S": 2 * layers})
    return Call(made[0], draws=made[1:])


def published():
    alpha, beta, *_ = oracle("residual.deepnorm")(6, 3)
    return {r"\alpha": alpha, r"\beta": beta, "N": 6, "M": 3}


def deepnorm_of_layers():
    layers = 7
    alpha, beta = oracle("residual.deepnorm")(layers, None)
    scaled = oracle("residual.block")(X, lambda x: sublayer(x) / alpha, norm, False)
    return {**block(False), "y": scaled, r"\alpha": alpha, r"\beta": beta, "N": layers}


def power_law():
    """The reference finds the exponent of a law again."""
    depths = torch.tensor([3.0, 7.0, 20.0], dtype=torch.float64)
    values = 1.4 * depths**0.6
    p = oracle("residual.exponent")(depths, values)
    return {"c": 1.4, "L": 7.0, "p": p, "v": values[1]}


def highest():
    rates = {t: oracle("residual.noam")(t, 512, 4000) for t in range(3500, 4500)}
    best = max(rates, key=rates.__getitem__)
    return Call({r"d_\text{model}": 512, "w": 4000, "t": best, r"\eta": rates[best]}, approx=2e-3)


ENTRIES: Entries = {
    ("ex-residual-lemma", r"\|x_l\|^2"): LeftOut("names the quantity whose bounds are asked"),
    ("ex-residual-lemma", r"\|u\|^2", r"\frac12"): Formula(
        kept,
        claim=r"\operatorname{E}[\|f(u)\|^2]=@1\operatorname{E}[@0]",
        says=("is the share of", "for ReLU"),
    ),
    ("ex-residual-lemma", "kept * d"): Code(
        lambda: ({"kept": 0.25, "d": 8}, oracle("residual.bounds")(1, 8, 0.25)[0] - 8),
        ("kept + d", "d", "kept * d**2"),
    ),
    ("ex-residual-deepnorm", r"(\alpha,\beta)"): LeftOut("names the two numbers to return"),
    (
        "ex-residual-deepnorm",
        r"(\alpha_\text{enc},\beta_\text{enc},\alpha_\text{dec},\beta_\text{dec})",
    ): LeftOut("names the four numbers to return"),
    ("ex-residual-deepnorm", r"\alpha=S^{1/4}", r"\beta=(4S)^{-1/4}"): Formula(
        deepnorm, claim=r"@0,\qquad @1"
    ),
    ("ex-residual-deepnorm", "(N^4M)^{1/16}"): Formula(
        published,
        claim=r"\alpha=0.81@0,\qquad\beta=0.87/@0",
        says=("the published 0.81 and 0.87", "and its reciprocal for $\\beta$"),
    ),
    ("ex-residual-exponent", "cL^p", r"\log(cL^p)=\log c+p\log L"): Formula(
        power_law, claim=r"v=@0,\qquad @1"
    ),
    ("Post-Norm or Pre-Norm: write both.", r"x\leftarrow\operatorname{Norm}(x+F(x))"): Formula(
        lambda: block(False), swap={r"x\leftarrow": "y="}
    ),
    ("Post-Norm or Pre-Norm: write both.", r"x\leftarrow x+F(\operatorname{Norm}(x))"): Formula(
        lambda: block(True), swap={r"x\leftarrow": "y="}
    ),
    ("Why is Pre-Norm easier to train?", r"\|x_l\|\sim\sqrt{ld}"): LeftOut(
        "an order of growth; the bounds behind it are those of ex-residual-lemma"
    ),
    (
        "What does DeepNorm change?", r"x\leftarrow\operatorname{Norm}(\alpha x+F(x))",
        r"\alpha=(2N)^{1/4}", r"\beta=(8N)^{-1/4}",
    ): Formula(deepnorm_of_layers, claim=r"@0,\qquad @1,\qquad @2", swap={r"x\leftarrow": "y="}),
    (
        "What is the largest learning rate of the original schedule, and when?",
        r"(d_\text{model}w)^{-1/2}", "w", r"7\cdot10^{-4}", r"d_\text{model}=512", "w=4000",
    ): Formula(
        highest,
        claim=r"\eta=@0\approx@2\text{ for }@3,\ @4,\qquad t=@1",
        says=("at step $w$: about",),
    ),
}  # fmt: skip
