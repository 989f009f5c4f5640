"""The exercises of chapter 03: softmax and its backward pass, its slope, and its loss.

The oracles are torch's own operators and autograd, never the book's library. A wrong answer is the
right computation with one part replaced, so that its line shows the mistake and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts

# An honest float64 answer differs from the oracle by rounding only, which is far below this.
EXACT = 1e-11


def _draw(
    *shape: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * numbers).to(dtype)


def _row(*numbers: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([numbers], dtype=dtype)


def _widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


# --- softmax --------------------------------------------------------------------------------------


def _softmax(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, dim)


def _by_logarithms(x: Tensor, dim: int) -> Tensor:
    h = _widened(x)
    h = h - h.max(dim, keepdim=True).values.detach()
    return torch.exp(h - h.exp().sum(dim, keepdim=True).log()).to(x.dtype)


def _one_row_at_a_time(x: Tensor, dim: int) -> Tensor:
    rows = [_widened(row) for row in x.movedim(dim, 0).reshape(x.shape[dim], -1).unbind(1)]
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
    widen: Callable[[Tensor], Tensor] = _widened,
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
        _softmax_case("rows that differ, dim 1", lambda: _draw(4, 6, scale=2), 1),
        _softmax_case("columns, dim 0", lambda: _draw(4, 6, scale=2), 0),
        _softmax_case("a square matrix, dim 0", lambda: _draw(5, 5), 0),
        _softmax_case("three dimensions, the middle one", lambda: _draw(3, 4, 5), 1),
        _softmax_case("three dimensions, dim -3", lambda: _draw(3, 4, 5), -3),
        _softmax_case("three dimensions, dim -1", lambda: _draw(3, 4, 5), -1),
        _softmax_case("a single vector", lambda: _draw(7), 0),
        _softmax_case("a single entry", lambda: _draw(3, 1), 1),
        _softmax_case("a transposed matrix, not contiguous", lambda: _draw(6, 4).T, 1),
        _softmax_case("scores near 10,000", lambda: 1e4 + _draw(3, 5), 1),
        _softmax_case("scores near -10,000", lambda: -1e4 + _draw(3, 5), 1),
        # Values only: where they are nan, the gradients depend on whether the maximum was detached.
        _softmax_case(
            "one row at 800, one at -800", lambda: _row(800, -800).T + _draw(2, 5), 1, grad=False
        ),
        _softmax_case("scores 800 apart in one row", lambda: _row(0, 800, 799, 2), 1),
        _softmax_case("a masked score", lambda: _row(1, -math.inf, 0.5, 2), 1),
        _softmax_case(
            "float16 scores around 12",
            lambda: _row(12, 11, 9, dtype=torch.float16),
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
            lambda: _draw(1, 7, scale=2, seed=147, dtype=torch.bfloat16),
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
            lambda x, dim: torch.softmax(_widened(x), dim),
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
        return torch.empty_like(p).copy_(_draw(*p.shape, seed=1)), p, dim

    return Case(name, inputs, EXACT)


SOFTMAX_BACKWARD = Exercise(
    title="Backwards without the Jacobian",
    oracle=_softmax_backward,
    spared=dict.fromkeys(("tiny", "huge"), "the weights of a row add up to one"),
    cases=(
        _backward_case("rows, dim 1", 1, lambda: _draw(3, 9)),
        _backward_case("columns, dim 0", 0, lambda: _draw(4, 6)),
        _backward_case("a square matrix, dim 1", 1, lambda: _draw(5, 5)),
        _backward_case("three dimensions, the middle one", 1, lambda: _draw(3, 4, 5)),
        _backward_case("five dimensions, dim -1", -1, lambda: _draw(2, 1, 3, 4, 5)),
        _backward_case("a single vector", 0, lambda: _draw(7)),
        _backward_case("a single entry", 1, lambda: _draw(3, 1)),
        _backward_case("sharp weights", 1, lambda: _draw(3, 8, scale=20)),
        _backward_case("not contiguous", 1, lambda: _draw(6, 4).T),
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


# --- norm_bound -----------------------------------------------------------------------------------


def _norm_bound(p: Tensor) -> Tensor:
    """The largest row sum of |J|, from the matrix that autograd gives."""
    rows = p.reshape(-1, p.shape[-1])
    jacobians = [torch.func.jacrev(lambda z: z.softmax(-1))(row.log()) for row in rows]
    sums = [torch.linalg.matrix_norm(J, torch.inf) for J in jacobians]
    return torch.stack(sums).reshape(p.shape[:-1]) if sums else p[..., 0]


def _nearest_to_half(p: Tensor) -> Tensor:
    return 0.5 - 2 * (p - 0.5).abs().amin(-1).square()


NORM_BOUND = Exercise(
    title="Prove that the norm is at most one half",
    oracle=_norm_bound,
    leading={"p": 1},
    spared=dict.fromkeys(("tiny", "huge"), "the weights of a row add up to one"),
    cases=tuple(
        Case(name, inputs, EXACT)
        for name, inputs in (
            ("one row as a vector", lambda: (_draw(6).softmax(-1),)),
            ("rows of a matrix", lambda: (_draw(5, 7, scale=2).softmax(-1),)),
            ("two batch dimensions", lambda: (_draw(2, 3, 4).softmax(-1),)),
            ("equal weights", lambda: (torch.full((2, 5), 0.2, dtype=torch.float64),)),
            ("two entries of one half", lambda: (_row(0.5, 0.5),)),
            ("a largest weight above one half", lambda: (_row(0.9, 0.05, 0.05),)),
            ("two weights near one half", lambda: (_row(0.55, 0.43, 0.02),)),
            ("a single entry", lambda: (torch.ones(3, 1, dtype=torch.float64),)),
        )
    ),
    variants=(
        _nearest_to_half,
        lambda p: 2 * p.amax(-1) * (1 - p.amax(-1)),  # the largest weight has the largest sum
    ),
    rules=(Rule("without building the matrix", entries=lambda p: 3 * p.numel()),),
    wrong=(
        WrongAnswer(
            "diagonal only",
            "p (1 - p) is the diagonal entry. The other entries of the row add as much again.",
            lambda p: (p * (1 - p)).amax(-1),
        ),
        WrongAnswer(
            "row sum without absolute values",
            "With their signs the entries of a row add up to zero. The bound needs absolute "
            "values.",
            lambda p: 0 * p.amax(-1),
        ),
        WrongAnswer(
            "always one half",
            "One half bounds the row sums of every p. Asked for is the largest row sum of this p.",
            lambda p: torch.full(p.shape[:-1], 0.5, dtype=p.dtype),
        ),
        WrongAnswer(
            "sum over the rows",
            "The row sums are compared, not added. Added they give twice the trace.",
            lambda p: (2 * p * (1 - p)).sum(-1),
        ),
        WrongAnswer(
            "square forgotten",
            "A row of |J| adds up to p (1 - p) + p (1 - p); the factor p is missing here.",
            lambda p: (2 * (1 - p)).amax(-1),
        ),
        WrongAnswer(
            "one number for the whole tensor",
            "Each row of p has its own Jacobian, so the maximum runs over the last dimension only.",
            lambda p: (2 * p * (1 - p)).max(),
        ),
        WrongAnswer(
            "exact norm in place of the bound",
            "That is the largest eigenvalue itself. Asked for is the largest row sum, which is "
            "at least as large and needs no matrix.",
            lambda p: torch.linalg.matrix_norm(
                torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2), 2
            ),
        ),
    ),
)


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
        _loss_case("four rows", lambda: _draw(4, 6, scale=2), [0, 5, 2, 2]),
        _loss_case("smoothing 0.1", lambda: _draw(4, 6, scale=2), [0, 5, 2, 2], 0.1),
        _loss_case("smoothing 0.5, many classes", lambda: _draw(3, 20), [0, 7, 19], 0.5),
        _loss_case("smoothing 1", lambda: _draw(4, 3), [0, 1, 2, 2], 1.0),
        _loss_case("two classes, smoothing 0.2", lambda: _draw(5, 2), [0, 1, 1, 0, 1], 0.2),
        _loss_case("one row", lambda: _draw(1, 5), [3], 0.1),
        _loss_case("a square matrix", lambda: _draw(4, 4), [1, 0, 3, 3], 0.1),
        _loss_case("scores near 10,000", lambda: 1e4 + _draw(3, 5), [0, 1, 2]),
        _loss_case("sure and wrong, by 2,000", lambda: _row(2000, 0, 10), [1]),
        _loss_case("sure and wrong, smoothing 0.1", lambda: _row(2000, 0, 10), [1], 0.1),
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


# --- merge ----------------------------------------------------------------------------------------


def _merge(m1: Tensor, s1: Tensor, o1: Tensor, m2: Tensor, s2: Tensor, o2: Tensor) -> Tensor:
    """The averages of the parts, weighed by a softmax over their log-sum-exps."""
    share = torch.softmax(torch.stack([m1 + s1.log(), m2 + s2.log()], -1), -1)
    averages = [o / torch.where(s > 0, s, 1.0).unsqueeze(-1) for s, o in ((s1, o1), (s2, o2))]
    return (share.unsqueeze(-2) @ torch.stack(averages, -2)).squeeze(-2)


@in_parts
def _merge_with(
    *,
    base: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
    scale: Callable[[Tensor, Tensor], Tensor] = lambda m_i, m: torch.exp(m_i - m),
    column: Callable[[Tensor], Tensor] = lambda scale: scale.unsqueeze(-1),
    for_sum: Callable[[Tensor], Tensor] = lambda scale: scale,
    for_output: Callable[[Tensor], Tensor] = lambda scale: scale,
    for_first: Callable[[Tensor], Tensor] = lambda scale: scale,
    for_second: Callable[[Tensor], Tensor] = lambda scale: scale,
    finish: Callable[[Tensor, Tensor], Tensor] = lambda o, s: o / s.unsqueeze(-1),
) -> Answer:
    def answer(m1: Tensor, s1: Tensor, o1: Tensor, m2: Tensor, s2: Tensor, o2: Tensor) -> Tensor:
        m = base(m1, m2)
        a, b = for_first(scale(m1, m)), for_second(scale(m2, m))
        s = s1 * for_sum(a) + s2 * for_sum(b)
        o = o1 * column(for_output(a)) + o2 * column(for_output(b))
        return finish(o, s)

    return answer


def _merge_case(name: str, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> Case:
    """Each part is given as its scores, shape (*, keys); its values are drawn."""

    def inputs() -> tuple[Any, ...]:
        states: list[Tensor] = []
        for seed, z in enumerate((first(), second())):
            m = z.max(-1).values
            shift = torch.where(m.isinf(), 0.0, m).unsqueeze(-1)
            weights = torch.exp(z - shift)
            values = _draw(*z.shape, 3, seed=10 + seed)
            states += [m, weights.sum(-1), (weights.unsqueeze(-2) @ values).squeeze(-2)]
        return tuple(states)

    return Case(name, inputs, EXACT)


_ones_like = torch.ones_like

MERGE = Exercise(
    title="Merge two halves of a row",
    oracle=_merge,
    leading={"m1": 0, "s1": 0, "o1": 1, "m2": 0, "s2": 0, "o2": 1},
    cases=(
        _merge_case("one row, 5 and 9 keys", lambda: _draw(5), lambda: _draw(9, seed=1)),
        _merge_case("four rows", lambda: _draw(4, 5, scale=3), lambda: _draw(4, 6, seed=1)),
        _merge_case("three rows of three features", lambda: _draw(3, 5), lambda: _draw(3, 8)),
        _merge_case("two batch dimensions", lambda: _draw(2, 3, 5), lambda: 2 + _draw(2, 3, 4)),
        _merge_case("the first part leads by 4", lambda: 4 + _draw(3, 5), lambda: _draw(3, 5)),
        _merge_case("the second part leads by 4", lambda: _draw(3, 5), lambda: 4 + _draw(3, 5)),
        _merge_case("scores near 1,000", lambda: 1000 + _draw(2, 5), lambda: 1001 + _draw(2, 3)),
        _merge_case("scores near -1,000", lambda: _draw(2, 5) - 999, lambda: _draw(2, 3) - 1000),
        _merge_case("800 apart", lambda: _draw(2, 5), lambda: 800 + _draw(2, 5)),
        _merge_case(
            "scores near -12,000",
            lambda: _draw(2, 5) - 12_000,
            lambda: _draw(2, 3, seed=1) - torch.tensor([[11_996.0], [12_004.0]]),
        ),
        _merge_case(
            "one row of the first part is masked",
            lambda: _draw(3, 5) + torch.tensor([[-math.inf], [0.0], [2.0]]),
            lambda: _draw(3, 4, seed=1),
        ),
        _merge_case(
            "the first part is masked",
            lambda: torch.full((2, 3), -math.inf, dtype=torch.float64),
            lambda: _draw(2, 5),
        ),
        _merge_case(
            "the second part is masked",
            lambda: _draw(2, 5) - 3,
            lambda: torch.full((2, 3), -math.inf, dtype=torch.float64),
        ),
    ),
    variants=(
        _merge_with(),
        lambda m1, s1, o1, m2, s2, o2: _merge(m2, s2, o2, m1, s1, o1),
    ),
    wrong=(
        WrongAnswer(
            "parts added as they are",
            "The two parts are measured from different maxima. Bring both to the common maximum "
            "before adding.",
            _merge_with(scale=lambda m_i, m: _ones_like(m_i)),
        ),
        WrongAnswer(
            "plain average of the two averages",
            "A part with larger scores or more keys has to count more.",
            lambda m1, s1, o1, m2, s2, o2: (o1 / s1.unsqueeze(-1) + o2 / s2.unsqueeze(-1)) / 2,
        ),
        WrongAnswer(
            "only the sums rescaled",
            "The output was measured from the old maximum too, and needs the same factor.",
            _merge_with(for_output=_ones_like),
        ),
        WrongAnswer(
            "only the outputs rescaled",
            "The sum was measured from the old maximum too, and needs the same factor.",
            _merge_with(for_sum=_ones_like),
        ),
        WrongAnswer(
            "exponent with the wrong sign",
            "The factor is exp(m_old - m_new), which is at most one.",
            _merge_with(scale=lambda m_i, m: torch.exp(m - m_i)),
        ),
        WrongAnswer(
            "only the first part rescaled",
            "Either part may have the smaller maximum, so both get their factor.",
            _merge_with(for_second=_ones_like),
        ),
        WrongAnswer(
            "only the second part rescaled",
            "Either part may have the smaller maximum, so both get their factor. One of the "
            "factors is 1.",
            _merge_with(for_first=_ones_like),
        ),
        WrongAnswer(
            "measured from the smaller maximum",
            "Then a factor is larger than one and can overflow. Take the larger maximum.",
            _merge_with(base=torch.minimum),
        ),
        WrongAnswer(
            "no common maximum",
            "exp(m) overflows for scores near 1,000. Only differences of maxima may be "
            "exponentiated.",
            _merge_with(scale=lambda m_i, m: torch.exp(m_i)),
        ),
        WrongAnswer(
            "a number in place of minus infinity",
            "However low it is, all scores may lie below it: then both maxima become that number. "
            "exp(-inf) is 0, which is what is wanted.",
            lambda m1, s1, o1, m2, s2, o2: _merge_with()(
                m1.clamp(min=-1e4), s1, o1, m2.clamp(min=-1e4), s2, o2
            ),
        ),
        WrongAnswer(
            "not divided by the sum",
            "The merged output is a sum over all keys. Divided by the merged sum it is an average.",
            _merge_with(finish=lambda o, s: o),
        ),
        WrongAnswer(
            "factor without its own dimension",
            "There is one factor per row, and `o` has one dimension more. Without `[..., None]` "
            "the factors line up with the features.",
            _merge_with(column=lambda scale: scale),
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


EXERCISES: dict[str, Exercise] = {
    "softmax": SOFTMAX,
    "softmax_backward": SOFTMAX_BACKWARD,
    "norm_bound": NORM_BOUND,
    "cross_entropy": CROSS_ENTROPY,
    "merge": MERGE,
    "double_softmax_range": DOUBLE_SOFTMAX_RANGE,
}
