"""The loss: cross-entropy with label smoothing, and a test for a double softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.softmax.common import EXACT, draw, row

# --- cross_entropy --------------------------------------------------------------------------------


def _cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    return F.cross_entropy(logits, target, label_smoothing=label_smoothing)


def _by_smoothed_target(logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    d = logits.shape[1]
    y = F.one_hot(target, d).to(logits.dtype)
    q = (1 - label_smoothing) * y + label_smoothing / d
    return -(q * (logits - torch.logsumexp(logits, 1, keepdim=True))).sum(1).mean()


def _as_mixture(logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    z = logits - logits.amax(1, keepdim=True).detach()
    logs = z - z.exp().sum(1, keepdim=True).log()
    plain = F.nll_loss(logs, target)
    return (1 - label_smoothing) * plain - label_smoothing * logs.mean()


@in_parts
def _loss_with(
    *,
    logs: Callable[[Tensor], Tensor] = lambda z: torch.log_softmax(z, 1),
    target_weights: Callable[[Tensor, float], Tensor] = lambda y, eps: (
        (1 - eps) * y + eps / y.shape[1]
    ),
    reduce: Callable[[Tensor], Tensor] = lambda loss: loss.mean(),
) -> Answer:
    def answer(logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        y = F.one_hot(target, logits.shape[1]).to(logits.dtype)
        return reduce(-(target_weights(y, label_smoothing) * logs(logits)).sum(1))

    return answer


def _loss_case(
    name: str, make: Callable[[], Tensor], target: list[int], smoothing: float = 0.0
) -> Case:
    return Case(
        name, lambda: (make().requires_grad_(), torch.tensor(target), smoothing), EXACT, True
    )


CROSS_ENTROPY = Exercise(
    title="Cross-entropy with label smoothing",
    oracle=_cross_entropy,
    cases=(
        _loss_case("four rows", lambda: draw(4, 6, scale=2), [0, 5, 2, 2]),
        _loss_case("smoothing 0.1", lambda: draw(4, 6, scale=2), [0, 5, 2, 2], 0.1),
        _loss_case("smoothing 0.5, many classes", lambda: draw(3, 20), [0, 7, 19], 0.5),
        _loss_case("smoothing 1", lambda: draw(4, 3), [0, 1, 2, 2], 1.0),
        _loss_case("two classes, smoothing 0.2", lambda: draw(5, 2), [0, 1, 1, 0, 1], 0.2),
        _loss_case("one row", lambda: draw(1, 5), [3], 0.1),
        _loss_case("a square matrix", lambda: draw(4, 4), [1, 0, 3, 3], 0.1),
        _loss_case("scores near 10,000", lambda: 1e4 + draw(3, 5), [0, 1, 2]),
        _loss_case("sure and wrong, by 2,000", lambda: row(2000, 0, 10), [1]),
        _loss_case("sure and wrong, smoothing 0.1", lambda: row(2000, 0, 10), [1], 0.1),
    ),
    variants=(_by_smoothed_target, _as_mixture),
    rules=(
        Rule(
            "neither `cross_entropy` nor `log_softmax`",
            ("cross_entropy", "log_softmax", "aten._log_softmax", "aten.cross_entropy_loss"),
        ),
    ),
    wrong=(
        WrongAnswer(
            "logarithm of the softmax",
            "A weight that underflows has the logarithm -inf. Use z - lse(z), which has no such "
            "limit.",
            _loss_with(logs=lambda z: torch.softmax(z, 1).log()),
        ),
        WrongAnswer(
            "small constant in the logarithm",
            "log(p + 1e-9) hides the -inf, but its value and its gradient are wrong where the "
            "model is sure and wrong. Use z - lse(z).",
            _loss_with(logs=lambda z: (torch.softmax(z, 1) + 1e-9).log()),
        ),
        WrongAnswer(
            "log-sum-exp without the shift",
            "log(exp(z).sum()) overflows for large scores. Subtract the maximum before exp.",
            _loss_with(logs=lambda z: z - z.exp().sum(1, keepdim=True).log()),
        ),
        WrongAnswer(
            "softmax twice",
            "The loss takes scores. A softmax before it makes scores between 0 and 1 of them, "
            "and the loss cannot fall below ln(e + d - 1) - 1.",
            _loss_with(logs=lambda z: torch.log_softmax(torch.softmax(z, 1), 1)),
        ),
        WrongAnswer(
            "softmax over the rows",
            "The classes are in dimension 1. Here the weights of the rows compete.",
            _loss_with(logs=lambda z: torch.log_softmax(z, 0)),
        ),
        WrongAnswer(
            "smoothing spread over the wrong classes only",
            "torch spreads epsilon over all d classes, the right one included: the right one "
            "gets 1 - epsilon + epsilon / d.",
            _loss_with(
                target_weights=lambda y, eps: (1 - eps) * y + eps * (1 - y) / (y.shape[1] - 1)
            ),
        ),
        WrongAnswer(
            "smoothing ignored",
            "With label smoothing the target is (1 - epsilon) y + epsilon / d.",
            _loss_with(target_weights=lambda y, eps: y),
        ),
        WrongAnswer(
            "epsilon not divided by the number of classes",
            "The share epsilon is spread over d classes, so each gets epsilon / d.",
            _loss_with(target_weights=lambda y, eps: (1 - eps) * y + eps),
        ),
        WrongAnswer(
            "sum in place of the mean",
            "The loss is the mean over the rows, so that it does not grow with the batch.",
            _loss_with(reduce=lambda loss: loss.sum()),
        ),
        WrongAnswer(
            "sign forgotten",
            "Logarithms of weights are negative, the loss is positive.",
            _loss_with(reduce=lambda loss: -loss.mean()),
        ),
    ),
)


# --- double_softmax -------------------------------------------------------------------------------

Loss = Callable[[Tensor, Tensor], Tensor]


def _loss(
    *,
    first: Callable[[Tensor], Tensor] = lambda z: z,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> Loss:
    """Somebody's cross-entropy; `first` is what is done to the scores before it."""
    return lambda scores, target: F.cross_entropy(
        first(scores), target, label_smoothing=smoothing, reduction=reduction
    )


def _never_infinite(scores: Tensor, target: Tensor) -> Tensor:
    right = scores.softmax(1).gather(1, target[:, None])
    return -(right + 1e-9).log().mean()


def _softmax_first(scores: Tensor) -> Tensor:
    return scores.softmax(1)


# name -> a loss and its number of classes
LOSSES: dict[str, tuple[Loss, int]] = {
    "the scores": (_loss(), 10),
    "the scores, two classes": (_loss(), 2),
    "the scores, 1,000 classes": (_loss(), 1000),
    "summed": (_loss(reduction="sum"), 10),
    "smoothed by 0.1": (_loss(smoothing=0.1), 100),
    "smoothed by 0.9, two classes": (_loss(smoothing=0.9), 2),
    "temperature 10": (_loss(first=lambda z: z / 10), 100),
    "temperature 0.1": (_loss(first=lambda z: z / 0.1), 10),
    "log_softmax first, which changes nothing": (_loss(first=lambda z: z.log_softmax(1)), 10),
    "ln(p + 1e-9)": (_never_infinite, 10),
    "ln(p + 1e-9), 1,000 classes": (_never_infinite, 1000),
    "softmax first": (_loss(first=_softmax_first), 10),
    "softmax first, two classes": (_loss(first=_softmax_first), 2),
    "softmax first, 1,000 classes": (_loss(first=_softmax_first), 1000),
    "softmax first, summed": (_loss(first=_softmax_first, reduction="sum"), 100),
    "softmax first, smoothed by 0.1": (_loss(first=_softmax_first, smoothing=0.1), 10),
    "softmax first, smoothed by 0.9": (_loss(first=_softmax_first, smoothing=0.9), 2),
    "softmax first, temperature 10": (_loss(first=lambda z: (z / 10).softmax(1)), 10),
    "softmax first, temperature 0.1": (_loss(first=lambda z: (z / 0.1).softmax(1)), 100),
    "softmax twice before": (_loss(first=lambda z: z.softmax(1).softmax(1)), 10),
}


def _highest(num_classes: int) -> float:
    """The highest loss that a softmax before the loss leaves."""
    return math.log(math.e + num_classes - 1)


def _at_a_lead(loss: Loss, num_classes: int, lead: float, *, right: bool = False) -> float:
    scores = lead * F.one_hot(torch.tensor([0]), num_classes).double()
    return loss(scores, torch.tensor([0 if right else 1])).item()


def _double_softmax(loss: Loss, num_classes: int) -> bool:
    return _at_a_lead(loss, num_classes, 1e4) < _highest(num_classes) + 1e-6


def _stays_as_the_lead_grows(loss: Loss, num_classes: int) -> bool:
    low, high = (_at_a_lead(loss, num_classes, lead) for lead in (1e3, 1e5))
    return abs(high - low) < 1e-6 and high < 20


@in_parts
def _test_with(
    *,
    lead: float = 1000.0,
    limit: Callable[[int], float] = lambda d: _highest(d) + 0.1,
    verdict: Callable[[float, float], bool] = lambda loss, limit: loss < limit,
    right: bool = False,
    rows: int = 1,
) -> Answer:
    def answer(loss: Loss, num_classes: int) -> bool:
        z = torch.zeros(rows, num_classes, dtype=torch.float64)
        z[:, 0] = lead
        target = torch.full((rows,), 0 if right else 1)
        return verdict(loss(z, target).item(), limit(num_classes))

    return answer


DOUBLE_SOFTMAX = Exercise(
    title="Find the double softmax",
    oracle=_double_softmax,
    cases=tuple(Case(name, lambda pair=pair: pair) for name, pair in LOSSES.items()),  # type: ignore[misc]
    variants=(_test_with(), _stays_as_the_lead_grows),
    wrong=(
        WrongAnswer(
            "sure and right, where there should be no loss",
            "A smoothed loss punishes a sure and right answer, although it gets the scores.",
            _test_with(
                right=True,
                limit=lambda d: _highest(d) - 1.1,
                verdict=lambda loss, limit: loss > limit,
            ),
        ),
        WrongAnswer(
            "the same verdict for every loss",
            "Every loss gives True. (With equal scores, for one, the loss is ln d with and without "
            "a second softmax.) Ask where the two differ.",
            _test_with(
                lead=0.0,
                limit=lambda d: math.log(d),
                verdict=lambda loss, limit: abs(loss - limit) < 1e-6,
            ),
        ),
        WrongAnswer(
            "a lead that a temperature can hide",
            "A lead of 10 at the temperature 10 is a lead of 1, which is what a softmax leaves. "
            "Take a lead of hundreds.",
            _test_with(lead=10.0),
        ),
        WrongAnswer(
            "several rows",
            "A loss that sums over the rows exceeds the bound of one row. Give it one row.",
            _test_with(rows=8),
        ),
        WrongAnswer(
            "ln d as the highest loss",
            "Worse than equal weights is to be sure of a wrong class: ln(e + d - 1).",
            _test_with(limit=lambda d: math.log(d)),
        ),
        WrongAnswer(
            "one bound for every number of classes",
            "The highest loss on top of a softmax is ln(e + d - 1). It grows with the number of "
            "classes.",
            _test_with(limit=lambda d: 5.0),
        ),
        WrongAnswer(
            "any bounded loss",
            "ln(p + 1e-9) is bounded too, by about 20.7. On top of a softmax the loss is at most "
            "ln(e + d - 1).",
            _test_with(limit=lambda d: 100.0),
        ),
        WrongAnswer(
            "the verdict turned around",
            "True says that there is a softmax before the loss.",
            _test_with(verdict=lambda loss, limit: loss >= limit),
        ),
    ),
)
