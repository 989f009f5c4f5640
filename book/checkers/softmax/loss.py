"""The loss: cross-entropy with label smoothing, and the range of a double softmax."""

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


# --- double_softmax_range -------------------------------------------------------------------------


def _double_softmax_range(num_classes: int) -> tuple[float, float, float]:
    right, wrong = F.one_hot(torch.tensor([0, 1]), num_classes).double()
    equal = torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)
    losses = [F.cross_entropy(p, torch.tensor(0)).item() for p in (right, equal, wrong)]
    return losses[0], losses[1], losses[2]


def _range_from_floor(num_classes: int) -> tuple[float, float, float]:
    lowest = math.log1p((num_classes - 1) / math.e)
    return lowest, math.log(num_classes), lowest + 1


def _range_with(
    *,
    lowest: Callable[[int], float] = lambda d: math.log(math.e + d - 1) - 1,
    equal: Callable[[int], float] = lambda d: math.log(d),
    highest: Callable[[int], float] = lambda d: math.log(math.e + d - 1),
) -> Answer:
    return lambda num_classes: (lowest(num_classes), equal(num_classes), highest(num_classes))


DOUBLE_SOFTMAX_RANGE = Exercise(
    title="Find the double softmax",
    oracle=_double_softmax_range,
    cases=tuple(
        Case(f"{d} classes", lambda d=d: (d,), EXACT)  # type: ignore[misc]
        for d in (2, 3, 10, 100, 32_000)
    ),
    variants=(_range_from_floor,),
    spared={"default dtype": "the numbers are the reader's own, in the dtype of the session"},
    wrong=(
        WrongAnswer(
            "lowest loss zero",
            "That is the limit with scores. Here the right class leads by at most one, since the "
            "loss takes weights between 0 and 1 for scores.",
            _range_with(lowest=lambda d: 0.0),
        ),
        WrongAnswer(
            "score of the right class forgotten",
            "The loss is the log-sum-exp less the score of the right class, which is 1 at best.",
            _range_with(lowest=lambda d: math.log(math.e + d - 1)),
        ),
        WrongAnswer(
            "right class counted twice",
            "One of the d terms is e, and the d - 1 others are 1.",
            _range_with(
                lowest=lambda d: math.log(math.e + d) - 1, highest=lambda d: math.log(math.e + d)
            ),
        ),
        WrongAnswer(
            "other classes without a term",
            "A weight of 0 is a score of 0, and its exponential is 1, not 0.",
            _range_with(lowest=lambda d: 0.0, highest=lambda d: 1.0),
        ),
        WrongAnswer(
            "highest loss one above equal weights",
            "To be sure of a wrong class adds e - 1 under the logarithm, and not 1 to the loss.",
            _range_with(highest=lambda d: math.log(d) + 1),
        ),
        WrongAnswer(
            "equal weights as the worst case",
            "Worse than not knowing is to be sure of a wrong class.",
            _range_with(highest=lambda d: math.log(d)),
        ),
        WrongAnswer(
            "logarithm of the weights left out",
            "That is the negative weight of the right class. The loss still takes a log-sum-exp.",
            _range_with(lowest=lambda d: -1.0, equal=lambda d: -1 / d, highest=lambda d: 0.0),
        ),
        WrongAnswer(
            "bits in place of nats",
            "`F.cross_entropy` uses the natural logarithm, so that losses are in nats.",
            _range_with(
                lowest=lambda d: math.log2(math.e + d - 1) - math.log2(math.e),
                equal=lambda d: math.log2(d),
                highest=lambda d: math.log2(math.e + d - 1),
            ),
        ),
    ),
)
