"""Chapter 18: what its exercises and questions print, and from where it is known."""

import torch
from torch import nn

from .texts import Code, Entries, Formula, LeftOut, draw

A = torch.tensor([[3.0, 1.0, 0.0], [1.0, 4.0, 2.0], [0.0, 2.0, 5.0]], dtype=torch.float64)


def quadratic():
    """The loss whose gradient autograd finds to be the row times the matrix."""
    theta = draw(3).requires_grad_()
    loss = sum(A[i, j] * theta[i] * theta[j] for i in range(3) for j in range(3)) / 2
    (grad,) = torch.autograd.grad(loss, theta)
    assert torch.allclose(grad, theta.detach() @ A)
    return {"A": A, r"\theta": theta.detach(), "v": loss.detach()}


def descended():
    theta = nn.Parameter(draw(3))
    begin = theta.detach().clone()
    optimizer = torch.optim.SGD([theta], lr=0.07)
    theta.grad = begin @ A
    optimizer.step()
    return {"theta": begin, "rate": 0.07, "A": A}, theta.detach()


def first_moments():
    """What the averages of torch's Adam have to be divided by after one step."""
    p = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    adam = torch.optim.Adam([p], betas=(0.7, 0.8))
    p.grad = torch.tensor(-3.0, dtype=torch.float64)
    adam.step()
    m, v = (adam.state[p][k].item() for k in ("exp_avg", "exp_avg_sq"))
    return {"m": m, "v": v, "g": -3.0, r"\beta_1": 0.7, r"\beta_2": 0.8}


def signed():
    return {"g": -3.0, "v": -1.0}


def run_of_flops():
    """The FLOPs of a linear stack, multiply-adds counted twice, up once and down twice."""
    flops = sum(2 * rows * 11 for rows in (13, 2 * 13))
    return {"N": 11, "D": 13, "v": flops}


ENTRIES: Entries = {
    ("ex-training-edge", r"\frac12\theta A\theta^\top"): Formula(quadratic, claim="v=@0"),
    ("ex-training-edge", "theta - rate * theta @ A"): Code(
        descended,
        ("theta + rate * theta @ A", "theta - theta @ A", "theta - rate * theta"),
    ),
    ("ex-training-first", r"1-\beta_1", r"1-\beta_2"): Formula(
        first_moments, claim=r"m=(@0)\,g,\qquad v=(@1)\,g^2"
    ),
    ("ex-training-first", r"g/\sqrt{g^2}"): Formula(signed, claim="v=@0"),
    ("ex-training-first", "100", "0.001", "0.1", "t=1", r"\sqrt{v_1}"): LeftOut(
        "what is given, and a quantity that is asked about"
    ),
    ("ex-training-schedule", "decay + 1"): Code(
        lambda: ({"decay": 20}, 21), ("decay", "decay - 1")
    ),
    ("ex-training-schedule", "steps - decay"): Code(
        lambda: ({"steps": 100, "decay": 20}, 80), ("steps + decay", "decay - steps")
    ),
    ("ex-training-schedule", "steps + 1"): Code(
        lambda: ({"steps": 100}, 101), ("steps", "steps - 1")
    ),
    ("ex-training-accumulate", "x @ weight"): Code(
        lambda: ({"x": draw(2, 4), "weight": A4}, nn.functional.linear(draw(2, 4), A4.T)),
        ("x @ weight.T", "weight @ x.T"),
    ),
    ("ex-training-accumulate", "0/0"): LeftOut("a mean over nothing, which has no value"),
    ("ex-training-days", "6ND"): Formula(run_of_flops, claim="v=@0"),
    (
        "What do Adam's two averages do, and why are they corrected?",
        r"1-\beta^t",
    ): LeftOut("named only; eq-train-bias has it"),
}
A4 = draw(4, 4, seed=3)
