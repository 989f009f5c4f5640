"""Questions of the assignment: masked_mean, binary_cross_entropy, seeded_dropout."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Case, Exercise, WrongAnswer

Pair = tuple[Tensor, Tensor]


# --- masked_mean ----------------------------------------------------------------------------------


def _masked_mean(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    m = mask.expand(x.shape)
    total = torch.where(m, x, torch.zeros((), dtype=x.dtype)).sum(dim)
    count = m.sum(dim)
    return total / torch.where(count == 0, 1, count)


def _mean_by_weights(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    kept = x.masked_fill(~mask, 0.0)
    return kept.sum(dim) / mask.broadcast_to(x.shape).sum(dim).clamp(min=1)


def _mask(*shape: int, seed: int = 5) -> Tensor:
    return draw(*shape, seed=seed) > -0.3


def _with_junk(x: Tensor, mask: Tensor, junk: float) -> Tensor:
    return x.masked_fill(~mask, junk)


def _empty_row(x: Tensor) -> tuple[Tensor, Tensor, int]:
    mask = _mask(*x.shape)
    mask[1] = False
    return x, mask, -1


def _leaf_case(name: str, make: Callable[[], tuple[Tensor, Tensor, int]]) -> Case:
    def inputs() -> tuple[Tensor, Tensor, int]:
        x, mask, dim = make()
        return x.requires_grad_(), mask, dim

    return Case(name, inputs, EXACT, grad=True)


MASKED_MEAN = Exercise(
    title="The mean of what is not padding",
    oracle=_masked_mean,
    cases=[
        _leaf_case("values: the last dimension", lambda: (draw(4, 6), _mask(4, 6), -1)),
        _leaf_case("values: the middle dimension", lambda: (draw(2, 5, 3), _mask(2, 5, 3), 1)),
        _leaf_case("values: a mask that broadcasts", lambda: (draw(2, 5, 3), _mask(2, 5, 1), 1)),
        _leaf_case("values: everything kept", lambda: (draw(3, 3), _mask(3, 3) | True, 0)),
        _leaf_case("corners: a row without any entry", lambda: _empty_row(draw(3, 4))),
        Case(
            "corners: infinities in the padding",
            lambda: (_with_junk(draw(3, 4), _mask(3, 4), math.inf), _mask(3, 4), -1),
            EXACT,
        ),
        Case(
            "corners: nan in the padding",
            lambda: (_with_junk(draw(3, 4), _mask(3, 4), math.nan), _mask(3, 4), -1),
            EXACT,
        ),
        _leaf_case("corners: a mask for the rows only", lambda: (draw(4, 4), _mask(4, 1), 0)),
        _leaf_case("corners: whole rows kept or not", lambda: (draw(4, 5), _mask(4, 1), -1)),
    ],
    variants=(_mean_by_weights,),
    wrong=(
        WrongAnswer(
            "divided by the whole length",
            "The padding counts for nothing: divide by how many entries the mask keeps.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).mean(dim),
        ),
        WrongAnswer(
            "mask multiplied in",
            "0 times inf is nan, so that junk in the padding reaches the result. Replace the "
            "entries instead, with `where` or `masked_fill`.",
            lambda x, m, dim: (x * m).sum(dim) / m.expand(x.shape).sum(dim).clamp(min=1),
        ),
        WrongAnswer(
            "0 / 0 for a row without entries",
            "Nothing to average gives 0 / 0. The task asks for 0 there, with a gradient of 0.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / m.expand(x.shape).sum(dim),
        ),
        WrongAnswer(
            "entries counted before broadcasting",
            "A mask of size 1 along a dimension stands for all of its entries. Expand it to the "
            "shape of x before counting.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / m.sum(dim).clamp(min=1),
        ),
        WrongAnswer(
            "multiplied by the mask and divided by its sum",
            "That is right for ordinary numbers only: 0 times inf is nan, a mask of size 1 along a "
            "dimension counts once for all of its entries, and a row without entries gives 0 / 0.",
            lambda x, m, dim: (x * m).sum(dim) / m.sum(dim),
        ),
        WrongAnswer(
            "divided by the mask's sum as it is",
            "A mask of size 1 along a dimension counts once for all of its entries, and a row "
            "without entries gives 0 / 0.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / m.sum(dim),
        ),
        WrongAnswer(
            "divided by the sum of the whole mask",
            "Each row has a count of its own. Sum the mask along the same dimension as x.",
            lambda x, m, dim: (x * m).sum(dim) / m.sum(),
        ),
        WrongAnswer(
            "mask turned over",
            "True keeps an entry in this book's masks. This averages the padding.",
            lambda x, m, dim: _masked_mean(x, ~m, dim),
        ),
        WrongAnswer(
            "one more in the denominator",
            "A safe denominator is at least 1. Adding 1 to it changes every row.",
            lambda x, m, dim: x.masked_fill(~m, 0.0).sum(dim) / (m.expand(x.shape).sum(dim) + 1),
        ),
        WrongAnswer(
            "dim ignored",
            "The mean runs over the dimension that is asked for, which is not always the last.",
            lambda x, m, dim: _masked_mean(x, m, -1),
        ),
    ),
)


# --- binary_cross_entropy -------------------------------------------------------------------------


def _bce(logits: Tensor, target: Tensor) -> Pair:
    x = logits.detach().clone().requires_grad_()
    loss = F.binary_cross_entropy_with_logits(x, target)
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def _bce_by_softplus(logits: Tensor, target: Tensor) -> Pair:
    loss = F.softplus(logits) - target * logits
    return loss.mean(), (torch.sigmoid(logits) - target) / logits.numel()


def _bce_by_sides(logits: Tensor, target: Tensor) -> Pair:
    loss = target * F.softplus(-logits) + (1 - target) * F.softplus(logits)
    return loss.mean(), (torch.sigmoid(logits) - target) / logits.numel()


def _bce_logs(logits: Tensor, target: Tensor) -> Pair:
    p = torch.sigmoid(logits)
    loss = -(target * p.log() + (1 - target) * (1 - p).log())
    return loss.mean(), (p - target) / logits.numel()


def _bce_eps(logits: Tensor, target: Tensor) -> Pair:
    p = torch.sigmoid(logits)
    loss = -(target * (p + 1e-8).log() + (1 - target) * (1 - p + 1e-8).log())
    return loss.mean(), (p - target) / logits.numel()


def _bce_naive_exp(logits: Tensor, target: Tensor) -> Pair:
    loss = torch.log(1 + torch.exp(logits)) - target * logits
    return loss.mean(), (torch.sigmoid(logits) - target) / logits.numel()


def _loss_case(
    name: str, logits: Callable[[], Tensor], hard: bool = False, tol: float = EXACT
) -> Case:
    def inputs() -> Pair:
        x = logits()
        target = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
        return x, target.round() if hard else target

    return Case(name, inputs, tol)


def _bce_with(
    loss: Callable[[Tensor, Tensor], Tensor] = lambda x, t: _bce_by_softplus(x, t)[0],
    grad: Callable[[Tensor, Tensor], Tensor] = lambda x, t: _bce_by_softplus(x, t)[1],
) -> Callable[[Tensor, Tensor], Pair]:
    return lambda x, t: (loss(x, t), grad(x, t))


def _bce_clamped(logits: Tensor, target: Tensor) -> Pair:
    p = torch.sigmoid(logits).clamp(1e-7, 1 - 1e-7)
    loss = -(target * p.log() + (1 - target) * (1 - p).log())
    return loss.mean(), (p - target) / logits.numel()


BINARY_CROSS_ENTROPY = Exercise(
    title="Binary cross-entropy from logits, with its gradient",
    oracle=_bce,
    cases=[
        _loss_case("values: hard labels", lambda: draw(8), hard=True),
        _loss_case("values: soft labels", lambda: draw(6, offset=0.5)),
        _loss_case("values: a matrix", lambda: draw(3, 4)),
        _loss_case("values: one logit", lambda: draw(1)),
        _loss_case("corners: logits of size 1000", lambda: draw(6, scale=1000.0), hard=True),
        _loss_case("corners: far left", lambda: draw(4, offset=-800.0), hard=True),
        _loss_case("corners: far right", lambda: draw(4, offset=800.0), hard=True),
        _loss_case("corners: float32", lambda: draw(8, dtype=torch.float32, scale=20.0), tol=1e-6),
    ],
    variants=(_bce_by_softplus, _bce_by_sides),
    wrong=(
        WrongAnswer(
            "logarithm of a rounded sigmoid",
            "sigmoid rounds to 0 or 1 far from the origin, and its logarithm is -inf. Take the "
            "logarithm of the sigmoid in one step, as a softplus.",
            _bce_logs,
        ),
        WrongAnswer(
            "a small number inside the logarithm",
            "1e-8 hides the infinity and puts a wrong value there: no loss can exceed 18.4 then.",
            _bce_eps,
        ),
        WrongAnswer(
            "exponential that overflows",
            "exp(x) is infinite beyond 709 in float64. log(1 + exp(x)) has to be taken as "
            "max(x, 0) + log1p(exp(-|x|)).",
            _bce_naive_exp,
        ),
        WrongAnswer(
            "gradient of the sum",
            "The loss is a mean, so each entry of the gradient is divided by their number.",
            _bce_with(grad=lambda x, t: torch.sigmoid(x) - t),
        ),
        WrongAnswer(
            "gradient of the wrong sign",
            "The loss falls where the logit moves towards its label: sigmoid(x) - target.",
            _bce_with(grad=lambda x, t: (t - torch.sigmoid(x)) / x.numel()),
        ),
        WrongAnswer(
            "derivative of the sigmoid left in",
            "It cancels: the loss's derivative in p is (p - t) / (p (1 - p)), and the sigmoid's "
            "derivative is p (1 - p).",
            _bce_with(
                grad=lambda x, t: (
                    (torch.sigmoid(x) - t) * torch.sigmoid(x) * torch.sigmoid(-x) / x.numel()
                )
            ),
        ),
        WrongAnswer(
            "sum in place of the mean",
            "The task asks for the mean over all entries, in the loss and in the gradient.",
            lambda x, t: (_bce_by_softplus(x, t)[0] * x.numel(), torch.sigmoid(x) - t),
        ),
        WrongAnswer(
            "only the positive labels counted",
            "An entry with label 0 has a loss as well: the softplus of its logit.",
            _bce_with(loss=lambda x, t: (t * F.softplus(-x)).mean()),
        ),
        WrongAnswer(
            "probability clamped",
            "A clamp hides the infinity and cuts the loss off: beyond it a logit that is ten "
            "times as wrong costs no more.",
            _bce_clamped,
        ),
        WrongAnswer(
            "gradient divided by the number of rows",
            "The mean is one over all entries. Of a matrix those are more than its rows.",
            _bce_with(grad=lambda x, t: (torch.sigmoid(x) - t) / len(x)),
        ),
    ),
)


# --- seeded_dropout -------------------------------------------------------------------------------


def _numbers(x: Tensor, seed: int) -> Tensor:
    return torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(seed))


def _seeded_dropout(x: Tensor, p: float, seed: int) -> Tensor:
    if p == 1:
        return x * 0
    return torch.where(_numbers(x, seed) < p, torch.zeros((), dtype=x.dtype), x / (1 - p))


def _dropout_by_mask(x: Tensor, p: float, seed: int) -> Tensor:
    keep = (_numbers(x, seed) >= p).to(x.dtype)
    return x * keep / (1 - p if p < 1 else 1)


def _dropout_case(
    name: str, x: Callable[[], Tensor], p: float, seed: int, tol: float = EXACT
) -> Case:
    return Case(name, lambda: (x().requires_grad_(), p, seed), tol, grad=True)


def _global_seed(x: Tensor, p: float, seed: int) -> Tensor:
    numbers = torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    return x * (numbers >= p) / (1 - p if p < 1 else 1)


SEEDED_DROPOUT = Exercise(
    title="Dropout that can be repeated",
    oracle=_seeded_dropout,
    cases=[
        _dropout_case("values: a tenth dropped", lambda: draw(5, 8), 0.1, 3),
        _dropout_case("values: seven tenths dropped", lambda: draw(5, 8), 0.7, 4),
        _dropout_case("values: another seed", lambda: draw(5, 8), 0.7, 5),
        _dropout_case("values: three dimensions", lambda: draw(2, 3, 7), 0.2, 1),
        _dropout_case("corners: nothing dropped", lambda: draw(3, 4), 0.0, 1),
        _dropout_case("corners: everything dropped", lambda: draw(3, 4), 1.0, 1),
        _dropout_case("corners: float32", lambda: draw(4, 8, dtype=torch.float32), 0.3, 2, 1e-6),
    ],
    variants=(_dropout_by_mask,),
    wrong=(
        WrongAnswer(
            "not rescaled",
            "What is kept is divided by 1 - p, so that the expected value stays what it was.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p),
        ),
        WrongAnswer(
            "divided by p",
            "A share of 1 - p is kept, so what is kept is divided by 1 - p.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p) / (p if p > 0 else 1),
        ),
        WrongAnswer(
            "multiplied by 1 - p",
            "Multiplying by 1 - p makes the expected value smaller still. Divide by it.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p) * (1 - p),
        ),
        WrongAnswer(
            "p as the share that is kept",
            "p is the probability of being dropped: keep where the draw is at least p.",
            lambda x, p, seed: x * (_numbers(x, seed) < p) / (1 - p if p < 1 else 1),
        ),
        WrongAnswer(
            "seed ignored",
            "Another seed has to give another mask: seed the generator with the argument.",
            _global_seed,
        ),
        WrongAnswer(
            "one mask for all rows",
            "Each entry is dropped by itself: draw numbers of the shape of x, not of one row.",
            lambda x, p, seed: (
                x * (_numbers(x.flatten(0, -2)[0], seed) >= p) / (1 - p if p < 1 else 1)
            ),
        ),
        WrongAnswer(
            "0 / 0 where everything is dropped",
            "For p = 1 the share that is kept is 0, and 0 / 0 is nan. The task asks for 0 there.",
            lambda x, p, seed: x * (_numbers(x, seed) >= p) / (1 - p),
        ),
        WrongAnswer(
            "numbers drawn in another dtype",
            "torch draws other numbers for float64 than for float32, so that other entries are "
            "dropped. Draw in the dtype of x.",
            lambda x, p, seed: x * (_numbers(x.double(), seed) >= p) / (1 - p if p < 1 else 1),
        ),
        WrongAnswer(
            "kept where the draw is small",
            "That keeps as many entries, but others: here it is the small draws that drop.",
            lambda x, p, seed: x * (_numbers(x, seed) < 1 - p) / (1 - p if p < 1 else 1),
        ),
        WrongAnswer(
            "divided by the share kept by chance",
            "The expected value is over all draws. How many were kept in this one differs from it, "
            "and p is known.",
            lambda x, p, seed: (
                x
                * (_numbers(x, seed) >= p)
                / (_numbers(x, seed) >= p).to(x.dtype).mean().clamp(min=1 / x.numel())
            ),
        ),
    ),
)


EXERCISES = {
    "masked_mean": MASKED_MEAN,
    "binary_cross_entropy": BINARY_CROSS_ENTROPY,
    "seeded_dropout": SEEDED_DROPOUT,
}
