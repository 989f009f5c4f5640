"""Chapter 08: what its exercises and questions print, and from where it is known."""

import torch
import torch.nn.functional as F

from .texts import Entries, Formula, draw, oracle

X, GAIN, OFFSET = draw(4), draw(4, seed=1), draw(4, seed=2)
QUOTIENT = {r"\partial\ell/\partial y": r"\frac{\partial\ell}{\partial y}"}


def gradient():
    """A loss of the output; its gradient with respect to the normalised row is g."""
    hat = F.layer_norm(X, (4,)).requires_grad_()
    y = (GAIN * hat + OFFSET).detach().requires_grad_()

    def loss(out):
        return (out**3).sum() + out.prod()

    [g] = torch.autograd.grad(loss(GAIN * hat + OFFSET), hat)
    return {"g": g, r"\gamma": GAIN, "y": y, r"\ell": loss(y)}


def folded():
    weight, bias = draw(3, 4), draw(3)
    hat = F.layer_norm(X, (4,))
    y = F.linear(F.layer_norm(X, (4,), GAIN, OFFSET), weight, bias)
    return {"y": y, r"\gamma": GAIN, r"\hat x": hat, r"\beta": OFFSET, "W": weight, "b": bias}


def slopes():
    """The slope of RMSNorm at zero, and of one with epsilon beside the root, near zero."""
    eps, tiny = 0.02, 1e-14
    inside = torch.func.grad(lambda x: F.rms_norm(x, (3,), eps=eps)[0])
    row = torch.zeros(3, dtype=torch.float64)
    row[0] = tiny
    beside = row[0] / (row.norm() / 3**0.5 + eps) / tiny
    return {"a": inside(torch.zeros(3, dtype=torch.float64))[0], "b": beside, r"\varepsilon": eps}


ENTRIES: Entries = {
    ("ex-layer-norm", "d-1"): Formula(
        lambda: {"v": torch.var(X), "x": X, r"\mu": X.mean(), "d": 4},
        claim=r"v=\sum_j(x_j-\mu)^2/(@0)",
        says=("`torch.var` divides by",),
    ),
    ("ex-batch-norm", "N/(N-1)"): Formula(
        lambda: {"v": X.var(), "u": X.var(correction=0), "N": 4}, claim="v=u@0"
    ),
    ("ex-norm-eps", r"\varepsilon=10^{-5}", r"2\cdot10^{-3}"): Formula(
        lambda: {r"\varepsilon": 1e-5, "e": oracle("normalization.eps")()},
        claim=r"@0,\qquad \sqrt{(@1)^2+e}=@1+\varepsilon",
    ),
    ("ex-norm-eps", r"2r\varepsilon+\varepsilon^2"): Formula(
        lambda: {"e": (0.3 + 0.02) ** 2 - 0.3**2, "r": 0.3, r"\varepsilon": 0.02},
        claim="e=@0",
        says=("under the root in place of",),
    ),
    ("ex-layer-norm-backward", r"g=\gamma\odot\partial\ell/\partial y"): Formula(
        gradient, swap=QUOTIENT
    ),
    ("ex-center-linear", r"\sum_j(\gamma_j\hat x_j+\beta_j)W_{oj}+b_o"): Formula(
        folded, claim="y_o=@0", says=("Write out one output",)
    ),
    ("Write the backward pass of LayerNorm.", r"g=\gamma\odot\partial\ell/\partial y"): Formula(
        gradient, swap=QUOTIENT
    ),
    (
        "Where does ε go, and why does it matter?",
        r"1/\sqrt\varepsilon",
        r"1/\varepsilon",
    ): Formula(slopes, claim=r"a=@0,\qquad b=@1", says=("the slope at a row of zeros is",)),
}
