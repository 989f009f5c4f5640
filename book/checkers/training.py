"""The exercises on training: steps, rates, batches whole and in pieces, and what a run costs.

The oracles are torch's own optimizer and the formulas written out, never the book's library. Every
section has the same order: the oracle, the cases, the wrong answers, the exercise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts
from book.checkers.questions import WrongNumber, choice, number


def _draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- edge -----------------------------------------------------------------------------------------

_A = torch.tensor([[3.0, 1.0, 0.0], [1.0, 4.0, 2.0], [0.0, 2.0, 5.0]], dtype=torch.float64)


def _stable(rate: float) -> bool:
    theta, velocity = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for _ in range(1500):
        velocity = 0.9 * velocity + theta @ _A
        theta = theta - rate * velocity
    return bool(theta.norm() < 1)


def _edge() -> float:
    low, high = 0.0, 2.0
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if _stable(middle) else (low, middle)
    return low


def _curvatures() -> list[float]:
    values: list[float] = torch.linalg.eigvalsh(_A).tolist()
    return values


EDGE = number(
    "The edge of momentum",
    value=_edge,
    within=0.01,
    because="The checker's own run found {value}, which is 3.8 over the largest curvature; plain "
    "gradient descent has 2 over it.",
    wrong=[
        WrongNumber(
            "the edge without momentum",
            "That is the edge of plain gradient descent. Momentum has another one: keep the "
            "velocity from step to step.",
            lambda: 2 / _curvatures()[-1],
        ),
        WrongNumber(
            "a tenth of the edge",
            "Momentum goes ten times as far only where the gradients agree. At the edge they "
            "change their sign at every step.",
            lambda: 0.2 / _curvatures()[-1],
        ),
        WrongNumber(
            "ten times the edge",
            "Gradients whose sign changes cancel in the velocity down to about half of one, not to "
            "a tenth.",
            lambda: 20 / _curvatures()[-1],
        ),
        WrongNumber(
            "the flattest direction",
            "At this rate the steep directions have long run away. The largest curvature decides.",
            lambda: 3.8 / _curvatures()[0],
        ),
        WrongNumber(
            "an entry of the matrix",
            "That would be right if the largest entry on the diagonal were the largest curvature. "
            "The steepest direction is no axis.",
            lambda: 3.8 / 5,
        ),
        WrongNumber(
            "half the rate",
            "At this rate the run still comes to rest, and at nearly twice of it too.",
            lambda: 1.9 / _curvatures()[-1],
        ),
        WrongNumber(
            "the curvature itself",
            "That is the largest curvature. The rate has the inverse unit.",
            lambda: _curvatures()[-1],
        ),
    ],
)


# --- steady ---------------------------------------------------------------------------------------

STEADY = choice(
    "Steady and restless",
    right="C",
    because=(
        "For a constant gradient m and the root of v are equal, so each step is the rate: 100 "
        "times 0.1. For 1 and -1 in turn v is 1, and m shakes between 1/19 and -1/19, so a step is "
        "0.1 / 19 = 0.0053, back and forth."
    ),
    tempting={
        "A": (
            "steps in proportion to the gradient",
            "That is SGD. Adam divides by the root of the mean square, so the size of a gradient "
            "cancels.",
        ),
        "B": (
            "the sign of each gradient taken",
            "That is so at the first step only. Later m averages: gradients that contradict each "
            "other nearly cancel in it, and v does not see their signs.",
        ),
        "D": (
            "a step of the rate whatever the gradients",
            "The rate is the step for gradients that agree. Those of the second parameter change "
            "sign, and so do its steps.",
        ),
    },
)


# --- adamw ----------------------------------------------------------------------------------------

Three = tuple[Tensor, Tensor, Tensor]


def _adamw(
    theta: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> Three:
    """By torch's own optimizer, whose state is set."""
    p = torch.nn.Parameter(theta.detach().clone())
    optimizer = torch.optim.AdamW([p], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    state = optimizer.state[p]
    state["step"] = torch.tensor(float(t - 1))
    state["exp_avg"], state["exp_avg_sq"] = m.detach().clone(), v.detach().clone()
    p.grad = g.detach().clone()
    optimizer.step()
    return p.detach(), state["exp_avg"], state["exp_avg_sq"]


@in_parts
def _adamw_with(
    correct_m: bool = True,
    correct_v: bool = True,
    inside: bool = False,
    decay: str = "decoupled",
    square: bool = True,
    returns: str = "averages",
    up: bool = False,
    exponent: str = "t",
) -> Callable[..., Three]:
    """AdamW with some of its parts done otherwise."""

    def answer(
        theta: Tensor,
        g: Tensor,
        m: Tensor,
        v: Tensor,
        t: int,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> Three:
        if decay == "in the gradient":
            g = g + weight_decay * theta
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * (g * g if square else g.abs())
        times = t if exponent == "t" else t - 1 if exponent == "from 0" else 1
        one = (1 - betas[0] ** times) if correct_m else 1.0
        two = (1 - betas[1] ** times) if correct_v else 1.0
        m_hat, v_hat = m / (one or 1.0), v / (two or 1.0)
        root = (v_hat + eps).sqrt() if inside else v_hat.sqrt() + eps
        step = lr * m_hat / root
        factor = {"decoupled": lr * weight_decay, "without the rate": weight_decay}.get(decay, 0.0)
        theta = theta - factor * theta + (step if up else -step)
        return (theta, m_hat, v_hat) if returns == "corrected" else (theta, m, v)

    return answer


def _adamw_by_factors(
    theta: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> Three:
    """The corrections moved into the rate, as torch has it."""
    m, v = m.lerp(g, 1 - betas[0]), v.lerp(g.square(), 1 - betas[1])
    root = v.sqrt() / (1 - betas[1] ** t) ** 0.5 + eps
    return theta * (1 - lr * weight_decay) - lr / (1 - betas[0] ** t) * m / root, m, v


def _adamw_case(
    name: str,
    t: int,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    decay: float = 0.1,
    lr: float = 0.01,
    size: float = 1.0,
) -> Case:
    def inputs() -> tuple[Any, ...]:
        theta, g, m = (_draw(3, 4, seed=t + k) for k in range(3))
        v = _draw(3, 4, seed=t + 3).square() + 0.1
        if t == 1:
            m, v = torch.zeros_like(m), torch.zeros_like(v)
        return theta, size * g, size * m, size**2 * v, t, lr, betas, eps, decay

    return Case(name, inputs)


ADAMW = Exercise(
    "One step of AdamW",
    oracle=_adamw,
    cases=(
        _adamw_case("the first step", 1),
        _adamw_case("step 2", 2, (0.8, 0.9), 1e-2, 0.5, 0.1),
        _adamw_case("step 7, large eps", 7, (0.9, 0.999), 0.3, 0.0, 0.05),
        _adamw_case("step 300, strong decay", 300, (0.9, 0.95), 1e-8, 3.0, 0.02),
        _adamw_case("small gradients", 4, (0.7, 0.99), 1e-3, 0.2, 0.1, 1e-3),
    ),
    wrong=(
        WrongAnswer(
            "no bias correction",
            "Both averages begin at zero. Without the corrections the first steps have another "
            "size.",
            _adamw_with(correct_m=False, correct_v=False),
        ),
        WrongAnswer(
            "m not corrected",
            "The mean of the gradients begins at zero too, and is divided by 1 - beta1 ** t.",
            _adamw_with(correct_m=False),
        ),
        WrongAnswer(
            "v not corrected",
            "The mean of the squares begins at zero too, and is divided by 1 - beta2 ** t.",
            _adamw_with(correct_v=False),
        ),
        WrongAnswer(
            "eps inside the root",
            "eps is added to the root of v, not to v.",
            _adamw_with(inside=True),
        ),
        WrongAnswer(
            "decay in the gradient",
            "That is an L2 penalty: it goes through the division by the root of v. In AdamW the "
            "decay stays outside of both averages.",
            _adamw_with(decay="in the gradient"),
        ),
        WrongAnswer(
            "decay without the rate",
            "The decay is multiplied by the learning rate.",
            _adamw_with(decay="without the rate"),
        ),
        WrongAnswer(
            "no decay",
            "The W of AdamW is missing: every weight also shrinks by lr times weight_decay.",
            _adamw_with(decay="none"),
        ),
        WrongAnswer(
            "the gradient not squared",
            "v averages the squares; its root is then the size of a gradient.",
            _adamw_with(square=False),
        ),
        WrongAnswer(
            "corrected averages returned",
            "The corrected averages are for this step. Returned, they would be corrected twice at "
            "the next one.",
            _adamw_with(returns="corrected"),
        ),
        WrongAnswer(
            "uphill",
            "The step goes against the gradient.",
            _adamw_with(up=True),
        ),
        WrongAnswer(
            "steps counted from 0",
            "t is 1 at the first step, so the corrections have t as the exponent.",
            _adamw_with(exponent="from 0"),
        ),
        WrongAnswer(
            "the same correction at every step",
            "1 - beta is right at the first step only. The exponent t is missing.",
            _adamw_with(exponent="1"),
        ),
    ),
    variants=(_adamw_by_factors,),
    spared=dict.fromkeys(
        ("float32", *SIXTEEN_BITS), "the order of the operations decides the last digits"
    ),
)


# --- batch ----------------------------------------------------------------------------------------

BATCH = choice(
    "Three times the batch",
    right="B",
    because=(
        "With 10 stories the best step has 1 / (1 + 9) = 0.1 of the noiseless gain, with 30 it has "
        "1 / (1 + 3) = 0.25. So 0.1 / 0.25 = 0.4 of the steps do, with 3 * 0.4 = 1.2 times the "
        "stories."
    ),
    tempting={
        "A": (
            "a gain in proportion to the batch",
            "That is so only if the batch is very small against the noise scale. Here the gain "
            "grows from 0.1 to 0.25 of the noiseless one, and not to 0.3.",
        ),
        "C": (
            "the root of the batch",
            "The error of the gradient does fall with the root of the batch. But the gain of a "
            "step depends on the square of that error, against the square of the gradient.",
        ),
        "D": (
            "no gain from a larger batch",
            "The mean gradient is the same, but with less noise the best rate is larger, and so is "
            "the gain of a step.",
        ),
    },
)


# --- accumulate -----------------------------------------------------------------------------------

Parts = Sequence[tuple[Tensor, Tensor]]


def _accumulate(weight: Tensor, parts: Parts) -> Tensor:
    """The gradient of the large batch, in one piece."""
    w = weight.detach().requires_grad_()
    x, target = (torch.cat(column) for column in zip(*parts, strict=True))
    keep = target != -100
    loss = F.cross_entropy(x[keep] @ w, target[keep])
    grad: Tensor = torch.autograd.grad(loss, w)[0]
    return grad


def _accumulate_with(how: str) -> Callable[..., Tensor]:
    def answer(weight: Tensor, parts: Parts) -> Tensor:
        total = torch.zeros_like(weight)
        tokens = sum(int((target != -100).sum()) for _, target in parts)
        places = sum(target.numel() for _, target in parts)
        for x, target in parts:
            keep = target != -100
            if not keep.any():
                continue
            p = (x[keep] @ weight).softmax(-1) - F.one_hot(target[keep], weight.shape[1])
            total = total + x[keep].T @ p / (int(keep.sum()) if how == "sum of means" else 1)
        by = {
            "sum of means": 1,
            "sums": 1,
            "padding": places,
            "parts": len(parts),
            "right": tokens,
        }
        return total / by[how]

    return answer


def _means(weight: Tensor, parts: Parts) -> Tensor:
    w = weight.detach().requires_grad_()
    losses = [F.cross_entropy(x @ w, t, ignore_index=-100) for x, t in parts]
    grad: Tensor = torch.autograd.grad(torch.stack(losses).mean(), w)[0]
    return grad


def _last_alone(weight: Tensor, parts: Parts) -> Tensor:
    return _accumulate(weight, [p for p in parts if (p[1] != -100).any()][-1:])


def _parts_case(name: str, *lengths: tuple[int, int]) -> Case:
    """Micro-batches as pairs of tokens and of padding behind them."""

    def inputs() -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        parts = []
        for k, (tokens, padding) in enumerate(lengths):
            x = _draw(tokens + padding, 4, seed=10 * len(lengths) + k)
            rng = torch.Generator().manual_seed(k)
            target = torch.randint(0, 5, (tokens + padding,), generator=rng)
            target[tokens:] = -100
            parts.append((x, target))
        return _draw(4, 5, seed=len(lengths)), parts

    return Case(name, inputs)


ACCUMULATE = Exercise(
    "Repair the accumulation",
    oracle=_accumulate,
    cases=(
        _parts_case("pieces of 2, 9 and 5 tokens", (2, 0), (9, 0), (5, 0)),
        _parts_case("padding", (3, 4), (7, 0)),
        _parts_case("a piece of padding alone", (6, 1), (0, 5), (2, 2)),
        _parts_case("one piece", (4, 1)),
    ),
    wrong=(
        WrongAnswer(
            "mean of means",
            "Each micro-batch counts alike, so a token in a short one counts more, and one that is "
            "padding alone has the mean 0/0. Add up sums, and divide by the number of all tokens.",
            _means,
        ),
        WrongAnswer(
            "sum of means",
            "Means add up to a gradient as many times too long as there are micro-batches.",
            _accumulate_with("sum of means"),
        ),
        WrongAnswer(
            "not divided",
            "The sum over all tokens has to be divided by their number.",
            _accumulate_with("sums"),
        ),
        WrongAnswer(
            "padding counted",
            "Places with the target -100 are no tokens; they do not count in the mean.",
            _accumulate_with("padding"),
        ),
        WrongAnswer(
            "divided by the number of micro-batches",
            "The sum over all tokens is divided by the number of tokens, not of micro-batches.",
            _accumulate_with("parts"),
        ),
        WrongAnswer(
            "only the last micro-batch",
            "The gradients of all micro-batches are added up.",
            _last_alone,
        ),
    ),
    variants=(_accumulate_with("right"),),
    spared=dict.fromkeys(
        ("float32", *SIXTEEN_BITS), "sums over pieces are rounded in another order than the whole"
    ),
)


# --- diagnose -------------------------------------------------------------------------------------

DIAGNOSE = choice(
    "What is broken?",
    right="A",
    because=(
        "Copying is perfectly solvable, of the word that is read or, without a mask, of the next "
        "one: both losses fall to 0, below what a perfect memory reaches. A tied embedding favors "
        "the word that is read, so the run that begins at 4.3 has the unshifted targets. One word "
        "without its context gives at best what counting pairs gives, and parameters that no "
        "optimizer has do not move."
    ),
    tempting={
        "B": (
            "the two leaks exchanged",
            "Both leaks end at 0.00. Which of the two targets, the word that is read or the next "
            "one, does a tied embedding favor before any training?",
        ),
        "C": (
            "a loss that stands still taken for a missing context",
            "One word does tell something about the next. A loss that does not move at all means "
            "that nothing is trained.",
        ),
        "D": (
            "a leak and the missing context exchanged",
            "Seeing only its own word, a place cannot know its successor for certain, unless its "
            "own word is the target.",
        ),
    },
)


# --- memory ---------------------------------------------------------------------------------------

_PARAMETERS = 6_738_415_616


def _gigabytes(each: float) -> float:
    return _PARAMETERS * each / 1e9


def _on_one_of_eight(whole: float, divided: float) -> float:
    return _gigabytes(whole + divided / 8)


MEMORY = number(
    "Seven billion on eight devices",
    value=functools.partial(_on_one_of_eight, 4, 12),
    within=0.02,
    because="2 bytes each for weight and gradient, and an eighth of three times 4, are 5.5 bytes a "
    "parameter: {value} GB.",
    wrong=[
        WrongNumber(
            "nothing divided",
            "That is what one device alone would need. Copy, m and v are divided among eight.",
            lambda: _on_one_of_eight(16, 0),
        ),
        WrongNumber(
            "everything divided",
            "Weights and gradients are on every device as a whole.",
            lambda: _on_one_of_eight(0, 16),
        ),
        WrongNumber(
            "the gradients divided too",
            "Each device has the gradients of its own batch, all of them.",
            lambda: _on_one_of_eight(2, 14),
        ),
        WrongNumber(
            "the copy not divided",
            "The 32-bit copy is needed for the step alone, and is divided like m and v.",
            lambda: _on_one_of_eight(8, 8),
        ),
        WrongNumber(
            "no 32-bit copy",
            "Steps are too small for 16 bits to hold them, so a copy of the weights in 32 bits is "
            "kept, an eighth of it on each device.",
            lambda: _on_one_of_eight(4, 8),
        ),
        WrongNumber(
            "the gradients forgotten",
            "Each parameter has a gradient, 2 bytes here.",
            lambda: _on_one_of_eight(2, 12),
        ),
        WrongNumber(
            "the optimizer forgotten",
            "An eighth of the copy, of m and of v is on each device as well.",
            lambda: _on_one_of_eight(4, 0),
        ),
        WrongNumber(
            "everything in 32 bits",
            "Weight and gradient take 2 bytes each here.",
            lambda: _on_one_of_eight(8, 12),
        ),
        WrongNumber(
            "bits for bytes",
            "These are gigabits: a byte has 8 bits.",
            lambda: 8 * _on_one_of_eight(4, 12),
        ),
        WrongNumber(
            "powers of 1024",
            "That is in GiB. A gigabyte has 10^9 bytes.",
            lambda: _on_one_of_eight(4, 12) * 1e9 / 2**30,
        ),
    ],
)


# --- rates ----------------------------------------------------------------------------------------


def _rates(theta: float, a: float, tau: float, steps: int) -> list[float]:
    """In closed form: each step adds a^2 / tau^2 to the inverse of the mean square."""
    return [a / (tau**2 / theta**2 + t * a**2) for t in range(1, steps + 1)]


def _rates_with(
    square: bool = True, noise: str = "all", power: int = 2, kept: str = "both"
) -> Callable[..., list[float]]:
    """Step by step, with some parts done otherwise."""

    def answer(theta: float, a: float, tau: float, steps: int) -> list[float]:
        left, rates = theta**2 if square else abs(theta), []
        error = tau**2 if noise == "all" else tau
        for _ in range(steps):
            rate = a * left / (a**power * left + error)
            rates.append(rate)
            if kept != "start":
                left = (1 - rate * a) ** 2 * left + (rate**2 * error if kept == "both" else 0.0)
        return rates

    return answer


def _rates_case(name: str, *arguments: float) -> Case:
    return Case(name, lambda: arguments, 1e-9)


RATES = Exercise(
    "Design a schedule",
    oracle=_rates,
    cases=(
        _rates_case("far away, little noise", 10.0, 1.0, 0.5, 6),
        _rates_case("steep", 1.0, 4.0, 2.0, 8),
        _rates_case("from the other side", -3.0, 0.5, 1.5, 5),
        _rates_case("near, with much noise", 0.2, 2.0, 3.0, 7),
        _rates_case("one step", 2.0, 3.0, 0.7, 1),
    ),
    wrong=(
        WrongAnswer(
            "the rate without noise",
            "One over the curvature arrives in a single step if the gradient is exact. With an "
            "error in it, it jumps away again at every step.",
            lambda theta, a, tau, steps: [1 / a] * steps,
        ),
        WrongAnswer(
            "the best first rate kept",
            "That is the best first rate. The second step finds less left, so for it the error "
            "counts for more.",
            _rates_with(kept="start"),
        ),
        WrongAnswer(
            "the error forgotten in what is left",
            "The error of this step is in the weight that the next step finds: rate ** 2 * "
            "tau ** 2 is left of it.",
            _rates_with(kept="the shrunken start"),
        ),
        WrongAnswer(
            "tau not squared",
            "tau is a standard deviation. The mean square takes its square.",
            _rates_with(noise="tau"),
        ),
        WrongAnswer(
            "theta not squared",
            "What shrinks by the formula is the mean square, and it begins at theta ** 2.",
            _rates_with(square=False),
        ),
        WrongAnswer(
            "the curvature once",
            "The gradient is a times theta, so its square has the square of a.",
            _rates_with(power=1),
        ),
        WrongAnswer(
            "one step late",
            "These rates begin as if there were no noise at the first step. The start is known, so "
            "the first rate already weighs it against the error.",
            lambda theta, a, tau, steps: [
                a / (tau**2 / theta**2 + t * a**2) if t else 1 / a for t in range(steps)
            ],
        ),
    ),
    variants=(_rates_with(),),
)


EXERCISES = {
    "edge": EDGE,
    "steady": STEADY,
    "adamw": ADAMW,
    "batch": BATCH,
    "accumulate": ACCUMULATE,
    "diagnose": DIAGNOSE,
    "memory": MEMORY,
    "rates": RATES,
}
