"""Chapter 18: what its exercises and questions print, and from where it is known."""

import torch
from torch import nn

from book.stories import VOCABULARY

from .texts import Call, Code, Entries, Formula, LeftOut, draw

A = torch.tensor([[3.0, 1.0, 0.0], [1.0, 4.0, 2.0], [0.0, 2.0, 5.0]], dtype=torch.float64)


def parabola():
    """The loss of curvature a: the area under its slope, which grows by a per unit."""
    a, theta = 1.3, 0.7
    way = torch.linspace(0, theta, 11, dtype=torch.float64)
    return {"a": a, r"\theta": theta, "v": torch.trapezoid(a * way, way).item()}


def quadratic():
    """The loss whose gradient autograd finds to be the row times the matrix."""
    theta = draw(3).requires_grad_()
    loss = sum(A[i, j] * theta[i] * theta[j] for i in range(3) for j in range(3)) / 2
    (grad,) = torch.autograd.grad(loss, theta)
    assert torch.allclose(grad, theta.detach() @ A)
    return {"A": A, r"\theta": theta.detach(), "v": loss.detach()}


def descended():
    """The second step of torch's momentum: its velocity, and the parameter that it leads to."""
    theta = nn.Parameter(draw(3))
    optimizer = torch.optim.SGD([theta], lr=0.07, momentum=0.9)
    for _ in range(2):
        begin = theta.detach().clone()
        theta.grad = begin @ A
        before = optimizer.state[theta].get("momentum_buffer", torch.zeros(3)).clone()
        optimizer.step()
    after = optimizer.state[theta]["momentum_buffer"].clone()
    return {"theta": begin, "b": before, "A": A}, after, theta.detach()


def velocity():
    given, after, _ = descended()
    return given, after


def moved():
    given, after, theta = descended()
    return {"theta": given["theta"], "rate": 0.07, "b": after}, theta


def guessing():
    """The loss of somebody who guesses among the words of the language, to two digits."""
    return Call({"V": len(VOCABULARY)}, approx=0.01)


def restless_mean():
    """The size of Adam's first average for gradients of 1 and -1 in turn, after many steps."""
    p = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    adam = torch.optim.Adam([p], betas=(0.9, 0.95))
    for t in range(2000):
        p.grad = torch.tensor((-1.0) ** t, dtype=torch.float64)
        adam.step()
    assert abs(adam.state[p]["exp_avg_sq"].item() - 1) < 1e-12
    return {"m": abs(adam.state[p]["exp_avg"].item())}


ENTRIES: Entries = {
    ("ex-training-edge", r"\frac12\theta A\theta^\top"): Formula(quadratic, claim="v=@0"),
    ("ex-training-edge", r"\mu=0.9"): LeftOut("a choice of the exercise, no claim"),
    ("ex-training-edge", "0.9 * b + theta @ A"): Code(
        velocity, ("b + theta @ A", "0.9 * b - theta @ A", "0.9 * (b + theta @ A)")
    ),
    ("ex-training-edge", "theta - rate * b"): Code(moved, ("theta + rate * b", "theta - b")),
    ("ex-training-steady", "m=0.1-0.9\\,m"): Formula(restless_mean, claim="@0"),
    ("ex-training-steady", r"\sqrt v"): LeftOut("a quantity that is asked about"),
    ("ex-training-rates", r"\frac a2\theta^2"): Formula(parabola, claim="v=@0"),
    ("ex-training-diagnose", r"\ln V\approx5.3"): Formula(guessing),
    ("ex-training-accumulate", "x @ weight"): Code(
        lambda: ({"x": draw(2, 4), "weight": A4}, nn.functional.linear(draw(2, 4), A4.T)),
        ("x @ weight.T", "weight @ x.T"),
    ),
    ("ex-training-accumulate", "0/0"): LeftOut("a mean over nothing, which has no value"),
    (
        "What do Adam's two averages do, and why are they corrected?",
        r"1-\beta^t",
    ): LeftOut("named only; eq-train-bias has it"),
}
A4 = draw(4, 4, seed=3)
