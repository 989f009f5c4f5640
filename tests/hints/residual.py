"""Chapter 09: what its exercises and questions print, and from where it is known."""

import torch
import torch.nn.functional as F

from .texts import Code, Entries, Formula, LeftOut, draw, oracle

X, W = draw(4), draw(4, 4)


def norm(x):
    return F.layer_norm(x, (4,), eps=0.0)


def sublayer(x):
    return x @ W


def one_block(x, branch, norm_first):
    """By the way of the branch, as torch's own layer has it."""
    y = torch.add(branch(norm(x) if norm_first else x), x)
    return y if norm_first else norm(y)


def block(norm_first):
    y = one_block(X, sublayer, norm_first)
    return {"x": X, "y": y, r"\operatorname{Norm}": norm, "F": sublayer}


def deepnorm_of_layers():
    """The branch made smaller by alpha; the matrices smaller by what keeps the step constant."""
    layers = 7
    alpha = (2 * layers) ** 0.25
    scaled = one_block(X, lambda x: sublayer(x) / alpha, norm_first=False)
    constants = {r"\alpha": alpha, r"\beta": 1 / (alpha * 2**0.5), "N": layers}
    return {**block(False), "y": scaled, **constants}


def power_law():
    """Least squares in the logarithms finds the exponent of a law again."""
    depths = torch.tensor([3.0, 7.0, 20.0], dtype=torch.float64)
    values = 1.4 * depths**0.6
    at, logs = depths.log() - depths.log().mean(), values.log()
    p = (at @ logs) / (at @ at)
    return {"c": 1.4, "L": 7.0, "p": p, "v": values[1]}


def handed_down():
    """A branch of variance v, orthogonal to the stream."""
    ones = torch.ones(24, 1, dtype=torch.float64)
    _, x, branch = torch.linalg.qr(torch.cat([ones, draw(24, 2)], 1))[0].T * 24**0.5
    branch = 0.3**0.5 * branch  # orthogonal to x, and both have the mean 0
    return {"v": 0.3, r"\sigma": (x + branch).std(correction=0)}


def designed():
    top = oracle("residual.init")(6, 3, 0.5, 1.5)
    return {"s": top, "t": 1.5, "v": 0.5, "n": 18}


ENTRIES: Entries = {
    ("ex-residual-zero", r"h\,W_2"): LeftOut("names the branch by its last two factors"),
    ("ex-residual-test", "x + norm(sublayer(norm(x)))"): LeftOut(
        "a wrong block, which is one of the checker's"
    ),
    ("ex-residual-dead", "x + branch"): LeftOut("names the addition of a branch"),
    ("ex-residual-dead", "x.detach().requires_grad_()"): Code(
        lambda: ({"x": (2 * X.clone().requires_grad_())}, (True, True)),
        ("x.requires_grad_()", "x.detach()", "x"),
        of=lambda value, names: (value.is_leaf, value.requires_grad),
    ),
    (
        "ex-residual-paradox",
        "10^{-7}",
        r"v=\frac12",
        r"\sigma",
        r"J_\text{Norm}",
        r"\|I\|_F^2",
        r"\|dx\|^2",
        "2^S",
    ): LeftOut("what is given, and the quantities that are asked about"),
    ("ex-residual-paradox", r"\|I\|_F^2=d"): Formula(
        lambda: {"I": torch.eye(5), "d": 5}
    ),
    ("ex-residual-paradox", r"\sigma^2=1+v", "1+v"): Formula(handed_down, claim=r"@0=@1"),
    ("ex-residual-init", "s^2"): Formula(
        designed, claim=r"t=1+nv@0", says=("multiplies the variance by",)
    ),
    ("ex-residual-init", "v=1"): LeftOut("a condition; no formula follows from it"),
    ("ex-residual-deep", "v=1", "r=6", r"\frac12,\frac13,\frac14,\dots", r"\ln(1+S)=6"): LeftOut(
        "what is given, the first terms of eq-sensitivity, and where its bound would end"
    ),
    ("ex-residual-exponent", r"1/\sqrt{2L}", r"1/\sqrt L", "L=4,8,16,32,64"): LeftOut(
        "the factor, the order of growth that is found, and the depths to measure"
    ),
    ("ex-residual-exponent", 'drawn("scaled", L)["matrices"]', "L // 2"): LeftOut(
        "a name of what the chapter has measured, and a layer's number"
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
        "an order of growth; the bounds behind it are those of eq-pre-bounds"
    ),
    (
        "What does DeepNorm change?", r"x\leftarrow\operatorname{Norm}(\alpha x+F(x))",
        r"\alpha=(2N)^{1/4}", r"\beta=(8N)^{-1/4}",
    ): Formula(deepnorm_of_layers, claim=r"@0,\qquad @1,\qquad @2", swap={r"x\leftarrow": "y="}),
}  # fmt: skip
