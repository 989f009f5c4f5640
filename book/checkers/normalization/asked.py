"""What is asked for a number or a choice: eps, scale, decay."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from book.checkers.questions import WrongNumber, choice, number

# --- eps ------------------------------------------------------------------------------------------

OTHER_EPS = number(
    "An eps for the other convention",
    value=lambda: (2e-3 + 1e-5) ** 2 - 2e-3**2,
    within=0.02,
    because="The root of the mean square 4e-6 plus {value} is 2.01e-3, which is what the rows were "
    "divided by. For rows of another size it is another number.",
    wrong=[
        WrongNumber(
            "the same eps",
            "Under the root 1e-5 is added to a mean square of 4e-6, so the rows would be divided "
            "by 3.7e-3 in place of 2.01e-3.",
            lambda: 1e-5,
        ),
        WrongNumber(
            "eps squared",
            "The square of a sum has a mixed term, and here it is by far the larger one. The "
            "square of eps alone does for a row of zeros.",
            lambda: 1e-10,
        ),
        WrongNumber(
            "the mixed term once",
            "In the square of a sum the mixed term stands twice.",
            lambda: 2e-8,
        ),
        WrongNumber(
            "the root of eps",
            "What is added beside the root is added to a size, what is added under it to a square: "
            "the number under the root is the smaller one.",
            lambda: 1e-5**0.5,
        ),
    ],
)

# --- scale ----------------------------------------------------------------------------------------

SCALE = choice(
    "Networks with LayerNorm, and large or small weights",
    right="C",
    because="The weights have to move as far as they are large to change the function as much, and "
    "the gradient that moves them is larger the smaller they are. So a step is a ninth of what it "
    "should be for the large ones, and about 200 times as much for the small ones.",
    tempting={
        "A": (
            "the same function learns the same",
            "The function is the same at the start, and so is the loss. A step of gradient "
            "descent moves the weights, though, and how much it changes the function depends on "
            "how large they are.",
        ),
        "B": (
            "large weights mean large gradients",
            "So it is without a norm. Here the loss does not change when all weights are "
            "stretched, so a change of the weights counts by its share in them.",
        ),
        "D": (
            "large weights explode, small ones vanish",
            "So they do without a norm. LayerNorm divides by the size of its input, so the rows "
            "have the same size whatever the weights are.",
        ),
        "E": (
            "the smaller the weights, the faster",
            "A smaller weight does change by a larger share in each step, and that helps as long "
            "as the steps were too short. By how much does the share grow if the weights are "
            "divided by fourteen and their gradient is multiplied by it?",
        ),
    },
)

# --- decay ----------------------------------------------------------------------------------------


def _settled_size_exponent() -> float:
    """The exponent of the weight decay in the size at which weights before a norm settle."""
    decays, rate, steps = torch.tensor([0.01, 0.03, 0.1, 0.3]), 0.3, 1500
    g = torch.Generator().manual_seed(0)
    weights = torch.randn(len(decays), 8, 8, generator=g).requires_grad_()
    sizes = []
    for _ in range(steps):
        x, target = torch.randn(2, len(decays), 16, 8, generator=g)
        error = F.layer_norm(x @ weights, (8,), eps=0.0) - target
        [grad] = torch.autograd.grad(error.square().mean((1, 2)).sum(), weights)
        with torch.no_grad():
            weights.mul_(1 - rate * decays[:, None, None]).sub_(rate * grad)
            sizes.append(weights.square().sum((1, 2)).sqrt())
    size = torch.stack(sizes[steps // 2 :]).mean(0).log()
    a, b = (v - v.mean() for v in (decays.log(), size))
    return (a @ b / (a @ a)).item()


DECAY = number(
    "Weight decay before a norm",
    value=_settled_size_exponent,
    within=0.15,
    because="The checker's own run found {value}. The steps push the weights out by the square of "
    "a gradient that is itself inversely proportional to their size, so they settle at the fourth "
    "root.",
    wrong=[
        WrongNumber(
            "the gradient taken for independent of the size",
            "That would be the square root. It is also what the squared size does: the exponent "
            "of the size is half of that.",
            lambda: -0.5,
        ),
        WrongNumber(
            "the size inversely proportional to the decay",
            "Ten times the decay does not divide the size by ten: smaller weights get larger "
            "gradients, which push back.",
            lambda: -1.0,
        ),
        WrongNumber(
            "the size left alone by the decay",
            "The function does not depend on the size, but the decay acts on the weights all the "
            "same.",
            lambda: 0.0,
        ),
        WrongNumber(
            "the sign turned round",
            "More decay makes the weights smaller, so the exponent is negative.",
            lambda: 0.25,
        ),
    ],
)
