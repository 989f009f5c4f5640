"""The gradients of attention by hand. The oracle is autograd through torch's operator."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.attention.drawn import EXACT, draw
from book.checkers.core import Answer, Case, Exercise, WrongAnswer


def _backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    q, k, v = leaves
    out = F.scaled_dot_product_attention(q, k, v, scale=scale)
    return torch.autograd.grad((out * grad_out).sum(), leaves)


def _backward_case(name: str, t: int, s: int, d: int, d_v: int, *lead: int, scale: float) -> Case:
    shapes = ((t, d_v), (t, d), (s, d), (s, d_v))
    return Case(
        name,
        lambda: (*(draw(*lead, *shape, seed=i) for i, shape in enumerate(shapes)), scale),
        EXACT,
    )


def _through_softmax(a: Tensor, grad_a: Tensor) -> Tensor:
    return a * (grad_a - (a * grad_a).sum(-1, keepdim=True))


def _backward_with(
    *,
    through: Callable[[Tensor, Tensor], Tensor] = _through_softmax,
    scale_q: Callable[[float], float] = lambda scale: scale,
    scale_k: Callable[[float], float] = lambda scale: scale,
    to_value: Callable[[Tensor, Tensor], Tensor] = lambda a, g: a.mT @ g,
    to_key: Callable[[Tensor, Tensor], Tensor] = lambda grad_s, q: grad_s.mT @ q,
    swapped: bool = False,
) -> Answer:
    def answer(
        grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, ...]:
        a = (scale * query @ key.mT).softmax(-1)
        grad_s = through(a, grad_out @ value.mT)
        to_query = scale_q(scale) * grad_s @ key
        result = to_query, scale_k(scale) * to_key(grad_s, query), to_value(a, grad_out)
        return result[::-1] if swapped else result

    return answer


def _backward_by_output(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, ...]:
    """The row sums from the output, and the Jacobian of each row written out."""
    a = torch.softmax(scale * torch.einsum("...ic,...jc->...ij", query, key), -1)
    delta = (grad_out * (a @ value)).sum(-1)[..., None]
    grad_s = a * (torch.einsum("...ic,...jc->...ij", grad_out, value) - delta) * scale
    return (
        torch.einsum("...ij,...jc->...ic", grad_s, key),
        torch.einsum("...ij,...ic->...jc", grad_s, query),
        torch.einsum("...ij,...ic->...jc", a, grad_out),
    )


BACKWARD = Exercise(
    title="Attention backwards",
    oracle=_backward,
    cases=(
        _backward_case("square, scale 0.5", 4, 4, 4, 4, scale=0.5),
        _backward_case("more keys than queries", 3, 5, 2, 4, scale=0.7),
        _backward_case("more queries than keys", 6, 2, 3, 3, scale=0.6),
        _backward_case("batch and heads", 4, 5, 3, 2, 2, 3, scale=0.4),
        _backward_case("scale 1", 4, 4, 3, 3, scale=1.0),
        _backward_case("a large scale", 3, 4, 5, 2, scale=3.0),
        _backward_case("one key", 3, 1, 2, 2, scale=0.5),
    ),
    variants=(_backward_with(), _backward_by_output),
    wrong=(
        WrongAnswer(
            "scale forgotten",
            "The scores are scale * q @ k.T, so the scale is a factor of both gradients.",
            _backward_with(scale_q=lambda s: 1.0, scale_k=lambda s: 1.0),
        ),
        WrongAnswer(
            "scale only for the query",
            "The scale multiplies the product, so it appears in the gradient of the key too.",
            _backward_with(scale_k=lambda s: 1.0),
        ),
        WrongAnswer(
            "softmax passed over",
            "The gradient with respect to the weights is not the one with respect to the scores. "
            "Between them lies the Jacobian of the softmax.",
            _backward_with(through=lambda a, g: g),
        ),
        WrongAnswer(
            "only the diagonal of the Jacobian",
            "a * (1 - a) is the derivative of a sigmoid. In a softmax each weight depends on all "
            "the scores of its row.",
            _backward_with(through=lambda a, g: a * (1 - a) * g),
        ),
        WrongAnswer(
            "weighted mean not subtracted",
            "The rows of the softmax's Jacobian sum to zero. Subtract from each row of the "
            "gradient its mean under the weights.",
            _backward_with(through=lambda a, g: a * g),
        ),
        WrongAnswer(
            "plain mean subtracted",
            "The mean is the one under the weights of the row, not the plain one.",
            _backward_with(through=lambda a, g: a * (g - g.mean(-1, keepdim=True))),
        ),
        WrongAnswer(
            "sum over the queries",
            "Each query has a softmax of its own, so the sum runs over the keys, the last axis.",
            _backward_with(through=lambda a, g: a * (g - (a * g).sum(-2, keepdim=True))),
        ),
        WrongAnswer(
            "weights not transposed for the values",
            "A value collects from all queries: the sum runs over the rows of the weights. That is "
            "the transpose.",
            _backward_with(to_value=lambda a, g: a @ g),
        ),
        WrongAnswer(
            "not transposed for the keys",
            "A key collects from all queries: the sum runs over the rows of the gradient of the "
            "scores. That is the transpose.",
            _backward_with(to_key=lambda grad_s, q: grad_s @ q),
        ),
        WrongAnswer(
            "value, key, query",
            "The gradients are asked for in the order query, key, value.",
            _backward_with(swapped=True),
        ),
    ),
)
