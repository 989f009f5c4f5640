"""Softmax itself, its backward pass, how steep it can be, and what a long row does to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.questions import WrongNumber, number
from book.checkers.softmax.common import EXACT, draw, row, widened

# --- softmax --------------------------------------------------------------------------------------


def _softmax(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, dim)


def _by_logarithms(x: Tensor, dim: int) -> Tensor:
    h = widened(x)
    h = h - h.max(dim, keepdim=True).values.detach()
    return torch.exp(h - h.exp().sum(dim, keepdim=True).log()).to(x.dtype)


def _one_row_at_a_time(x: Tensor, dim: int) -> Tensor:
    rows = [widened(row) for row in x.movedim(dim, 0).reshape(x.shape[dim], -1).unbind(1)]
    if not rows:
        return x.clone()
    powers = [torch.pow(math.e, row - row.max().detach()) for row in rows]
    shares = torch.stack([power / power.sum() for power in powers], 1)
    return shares.reshape(x.movedim(dim, 0).shape).movedim(0, dim).to(x.dtype)


@in_parts
def _softmax_with(
    *,
    shift: Callable[[Tensor, int], Tensor | float] = lambda h, dim: h.detach().amax(
        dim, keepdim=True
    ),
    weight: Callable[[Tensor], Tensor] = torch.exp,
    total: Callable[[Tensor, int], Tensor] = lambda e, dim: e.sum(dim, keepdim=True),
    axis: Callable[[Tensor, int], int] = lambda x, dim: dim,
    widen: Callable[[Tensor], Tensor] = widened,
) -> Answer:
    def answer(x: Tensor, dim: int) -> Tensor:
        h, along = widen(x), axis(x, dim)
        e = weight(h - shift(h, along))
        return (e / total(e, along)).to(x.dtype)

    return answer


def _softmax_case(
    name: str, make: Callable[[], Tensor], dim: int, tol: float = EXACT, grad: bool = True
) -> Case:
    return Case(name, lambda: (make().requires_grad_(grad), dim), tol, grad)


SOFTMAX = Exercise(
    title="Softmax that survives",
    oracle=_softmax,
    leading={"x": 2},
    cases=(
        _softmax_case("rows that differ, dim 1", lambda: draw(4, 6, scale=2), 1),
        _softmax_case("columns, dim 0", lambda: draw(4, 6, scale=2), 0),
        _softmax_case("a square matrix, dim 0", lambda: draw(5, 5), 0),
        _softmax_case("three dimensions, the middle one", lambda: draw(3, 4, 5), 1),
        _softmax_case("three dimensions, dim -3", lambda: draw(3, 4, 5), -3),
        _softmax_case("three dimensions, dim -1", lambda: draw(3, 4, 5), -1),
        _softmax_case("a single vector", lambda: draw(7), 0),
        _softmax_case("a single entry", lambda: draw(3, 1), 1),
        _softmax_case("a transposed matrix, not contiguous", lambda: draw(6, 4).T, 1),
        _softmax_case("scores near 10,000", lambda: 1e4 + draw(3, 5), 1),
        _softmax_case("scores near -10,000", lambda: -1e4 + draw(3, 5), 1),
        # Values only: where they are nan, the gradients depend on whether the maximum was detached.
        _softmax_case(
            "one row at 800, one at -800", lambda: row(800, -800).T + draw(2, 5), 1, grad=False
        ),
        _softmax_case("scores 800 apart in one row", lambda: row(0, 800, 799, 2), 1),
        _softmax_case("a masked score", lambda: row(1, -math.inf, 0.5, 2), 1),
        _softmax_case(
            "float16 scores around 12",
            lambda: row(12, 11, 9, dtype=torch.float16),
            1,
            1e-3,
            grad=False,
        ),
        _softmax_case(
            "float16, 3,000 equal scores",
            lambda: torch.zeros(1, 3000, dtype=torch.float16),
            1,
            1e-6,
            grad=False,
        ),
        # A row in which rounding anything but the result to 16 bits shows in the result.
        _softmax_case(
            "bfloat16 scores",
            lambda: draw(1, 7, scale=2, seed=147, dtype=torch.bfloat16),
            1,
            1e-4,
            grad=False,
        ),
    ),
    variants=(_by_logarithms, _one_row_at_a_time),
    rules=(
        Rule(
            "no `softmax`, no `logsumexp`",
            (
                "softmax",
                "log_softmax",
                "softmin",
                "logsumexp",
                "aten._softmax",
                "aten._log_softmax",
                "aten._safe_softmax",
                "aten.logsumexp",
            ),
        ),
    ),
    wrong=(
        WrongAnswer(
            "maximum not subtracted",
            "exp overflows at 710 in float64 and at 12 in float16, and far below zero all "
            "exponentials vanish. Subtract the maximum of each row first.",
            _softmax_with(shift=lambda h, dim: 0.0),
        ),
        WrongAnswer(
            "one maximum for the whole tensor",
            "Each row needs its own maximum. A row that lies far below the largest one of the "
            "tensor has only exponentials that are zero.",
            _softmax_with(shift=lambda h, dim: h.detach().max()),
        ),
        WrongAnswer(
            "minimum subtracted",
            "After subtracting the minimum the largest exponent is positive, and a masked score "
            "makes the minimum -inf. Subtract the maximum.",
            _softmax_with(shift=lambda h, dim: h.amin(dim, keepdim=True)),
        ),
        WrongAnswer(
            "always along the last dimension",
            "The weights add up to one along `dim`, whichever it is.",
            _softmax_with(axis=lambda x, dim: -1),
        ),
        WrongAnswer(
            "always along the first dimension",
            "The weights add up to one along `dim`, whichever it is. `dim=1` of a matrix means "
            "within each row.",
            _softmax_with(axis=lambda x, dim: 0),
        ),
        WrongAnswer(
            "divided by the sum of the whole tensor",
            "Every row adds up to one by itself. Here the tensor does.",
            _softmax_with(total=lambda e, dim: e.sum()),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the sum lines up with the wrong dimension, or does not fit.",
            _softmax_with(total=lambda e, dim: e.sum(dim)),
        ),
        WrongAnswer(
            "sigmoid of each score",
            "A sigmoid looks at one score at a time. The weights of softmax compete: they share "
            "a denominator.",
            lambda x, dim: torch.sigmoid(x),
        ),
        WrongAnswer(
            "logarithm returned",
            "That is log_softmax. The weights themselves are asked for.",
            lambda x, dim: torch.log_softmax(x, dim),
        ),
        WrongAnswer(
            "half precision not computed in float32",
            "In 16 bits each step rounds to two or three digits. Widen `x` first, and round once, "
            "at the end.",
            _softmax_with(widen=lambda x: x),
        ),
        WrongAnswer(
            "float32 result for half precision",
            "Computing in float32 is right, but the result has the dtype of `x`.",
            lambda x, dim: torch.softmax(widened(x), dim),
        ),
    ),
)


# --- softmax_backward -----------------------------------------------------------------------------


def _softmax_backward(grad_out: Tensor, p: Tensor, dim: int) -> Tensor:
    """Autograd through torch's softmax, at scores that have the weights `p`."""
    scores = p.detach().log().requires_grad_()
    (grad,) = torch.autograd.grad(torch.softmax(scores, dim), scores, grad_out)
    return grad


def _backward_by_dots(grad_out: Tensor, p: Tensor, dim: int) -> Tensor:
    g, w = grad_out.movedim(dim, -1), p.movedim(dim, -1)
    mean = (g.unsqueeze(-2) @ w.unsqueeze(-1)).squeeze(-1)
    return torch.addcmul(w * g, w, mean, value=-1).movedim(-1, dim)


def _backward_in_two_parts(grad_out: Tensor, p: Tensor, dim: int) -> Tensor:
    weighted = grad_out * p
    return weighted - p * weighted.sum(dim, keepdim=True)


def _backward_case(name: str, dim: int, make: Callable[[], Tensor]) -> Case:
    """`make` gives scores; the answer gets the weights, and a gradient in their layout."""

    def inputs() -> tuple[Any, ...]:
        p = torch.softmax(make(), dim)
        return torch.empty_like(p).copy_(draw(*p.shape, seed=1)), p, dim

    return Case(name, inputs, EXACT)


SOFTMAX_BACKWARD = Exercise(
    title="Backwards without the Jacobian",
    oracle=_softmax_backward,
    spared=dict.fromkeys(("tiny", "huge"), "the weights of a row add up to one"),
    cases=(
        _backward_case("rows, dim 1", 1, lambda: draw(3, 9)),
        _backward_case("columns, dim 0", 0, lambda: draw(4, 6)),
        _backward_case("a square matrix, dim 1", 1, lambda: draw(5, 5)),
        _backward_case("three dimensions, the middle one", 1, lambda: draw(3, 4, 5)),
        _backward_case("five dimensions, dim -1", -1, lambda: draw(2, 1, 3, 4, 5)),
        _backward_case("a single vector", 0, lambda: draw(7)),
        _backward_case("a single entry", 1, lambda: draw(3, 1)),
        _backward_case("sharp weights", 1, lambda: draw(3, 8, scale=20)),
        _backward_case("not contiguous", 1, lambda: draw(6, 4).T),
    ),
    variants=(_backward_by_dots, _backward_in_two_parts),
    # A matrix of the first case has three times as many.
    rules=(Rule("without building the matrix", entries=lambda grad_out, p, dim: 2 * p.numel()),),
    wrong=(
        WrongAnswer(
            "diagonal only",
            "p (1 - p) is the diagonal of the Jacobian. Each score also changes the other "
            "weights, since they share a denominator.",
            lambda grad_out, p, dim: grad_out * p * (1 - p),
        ),
        WrongAnswer(
            "mean under p not subtracted",
            "The Jacobian is diag(p) less an outer product. Without the second part a common "
            "change of all scores would have an effect.",
            lambda grad_out, p, dim: grad_out * p,
        ),
        WrongAnswer(
            "plain sum subtracted",
            "What is subtracted is the mean of the gradient under p: weigh with p before adding.",
            lambda grad_out, p, dim: p * (grad_out - grad_out.sum(dim, keepdim=True)),
        ),
        WrongAnswer(
            "plain mean subtracted",
            "What is subtracted is the mean under the weights p, not the mean over the entries.",
            lambda grad_out, p, dim: p * (grad_out - grad_out.mean(dim, keepdim=True)),
        ),
        WrongAnswer(
            "not multiplied by p",
            "The Jacobian weighs the result with p. An entry without weight gets no gradient.",
            lambda grad_out, p, dim: grad_out - (grad_out * p).sum(dim, keepdim=True),
        ),
        WrongAnswer(
            "always along the last dimension",
            "The sum runs along `dim`, along which the weights add up to one.",
            lambda grad_out, p, dim: p * (grad_out - (grad_out * p).sum(-1, keepdim=True)),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the sum lines up with the wrong dimension, or does not fit.",
            lambda grad_out, p, dim: p * (grad_out - (grad_out * p).sum(dim)),
        ),
        WrongAnswer(
            "gradient of log_softmax",
            "That is the formula for a gradient that arrives at the logarithms of the weights.",
            lambda grad_out, p, dim: grad_out - p * grad_out.sum(dim, keepdim=True),
        ),
    ),
)


# --- steepest -------------------------------------------------------------------------------------


def _norm_at(z: Tensor) -> float:
    J = torch.func.jacrev(lambda t: t.softmax(0))(z)
    return float(torch.linalg.matrix_norm(J, 2))


STEEPEST = number(
    "How steep can softmax be?",
    value=lambda: _norm_at(torch.tensor([0, 0, *4 * [-50]], dtype=torch.float64)),
    within=0.01,
    because="The norm approaches {value} where two scores share the lead and all others are far "
    "below. Raise one of the two a little and lower the other as much, and each of the two shares "
    "moves by half of that.",
    wrong=[
        WrongNumber(
            "a score and its own share",
            "p (1 - p) is at most one quarter, but that is one entry of J. A change of two scores "
            "in opposite directions moves more.",
            lambda: 0.25,
        ),
        WrongNumber(
            "equal scores",
            "With equal scores the norm is one sixth. Let the scores differ.",
            lambda: _norm_at(torch.zeros(6, dtype=torch.float64)),
        ),
        WrongNumber(
            "a bound that is not approached",
            "Shares lie between 0 and 1, so 1 is a bound, but softmax stays well below it.",
            lambda: 1.0,
        ),
        WrongNumber(
            "one score far ahead",
            "There softmax is flat. It is steep where scores compete.",
            lambda: 0.0,
        ),
        WrongNumber(
            "the sum of the eigenvalues",
            "That is the trace, which is largest for equal scores. The norm is the largest "
            "eigenvalue alone.",
            lambda: 5 / 6,
        ),
        WrongNumber(
            "the length of all entries",
            "The norm of a Jacobian is its largest eigenvalue, `matrix_norm(J, 2)`. Without the 2 "
            "one gets the Frobenius norm, the root of the sum of all squares. For two equal "
            "leaders both are one half, and for three the Frobenius norm is larger.",
            lambda: math.sqrt(2) / 3,
        ),
    ],
)


# --- long_row -------------------------------------------------------------------------------------


def _share_among(others: int, term: float) -> float:
    """The share of a score of 8 among others whose exponentials are `term` on average."""
    return math.exp(8) / (math.exp(8) + others * term)


LONG_ROW = number(
    "One key in a long row",
    value=lambda: _share_among(8000, math.exp(0.5)),
    within=0.05,
    because="The 8,000 others add 8,000 times e to the power of one half to the denominator, and "
    "e to the power of 8 over the whole of it is {value}.",
    wrong=[
        WrongNumber(
            "the share among 1,000",
            "With eight times as many others the denominator grows, so the share falls.",
            lambda: _share_among(1000, math.exp(0.5)),
        ),
        WrongNumber(
            "an eighth of the share among 1,000",
            "Only the part of the denominator that the others make grows eightfold. The key's own "
            "exponential stays.",
            lambda: _share_among(1000, math.exp(0.5)) / 8,
        ),
        WrongNumber(
            "the spread of the others left out",
            "Scores with mean 0 have exponentials whose mean is larger than 1: the high ones count "
            "for more than the low ones.",
            lambda: _share_among(8000, 1.0),
        ),
        WrongNumber(
            "the variance not halved",
            "The mean of the exponentials is e to the power of half the variance.",
            lambda: _share_among(8000, math.e),
        ),
        WrongNumber(
            "equal shares",
            "A score of 8 leads the others by far, so its share is far above one of 8,001.",
            lambda: 1 / 8001,
        ),
    ],
)
