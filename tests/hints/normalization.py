"""Chapter 08: what its exercises and questions print, and from where it is known."""

import torch
import torch.nn.functional as F

from .texts import Entries, Formula, draw

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


ENTRIES: Entries = {
    ("ex-layer-norm", "d-1"): Formula(
        lambda: {"v": torch.var(X), "x": X, r"\mu": X.mean(), "d": 4},
        claim=r"v=\sum_j(x_j-\mu)^2/(@0)",
        says=("`torch.var` divides by",),
    ),
    ("ex-layer-norm-backward", r"g=\gamma\odot\partial\ell/\partial y"): Formula(
        gradient, swap=QUOTIENT
    ),
    ("ex-fold-gain", r"\sum_j(\gamma_j\hat x_j+\beta_j)W_{oj}+b_o"): Formula(
        folded, claim="y_o=@0", says=("Write out one output",)
    ),
    ("Write the backward pass of LayerNorm.", r"g=\gamma\odot\partial\ell/\partial y"): Formula(
        gradient, swap=QUOTIENT
    ),
}
