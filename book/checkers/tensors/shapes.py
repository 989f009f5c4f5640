"""Shapes and products: which number meets which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Case, Exercise, Rule, WrongAnswer, autograd, in_parts
from book.checkers.questions import choice
from book.checkers.tensors.common import draw

Shape = tuple[int, ...]


# --- broadcast_shape(a, b) ------------------------------------------------------------------------


def _broadcast_oracle(a: Shape, b: Shape) -> Shape:
    try:
        return tuple(torch.broadcast_shapes(a, b))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _broadcast_by_sets(a: Shape, b: Shape) -> list[int]:
    sizes = []
    for k in range(max(len(a), len(b))):
        found = {s[-1 - k] for s in (a, b) if k < len(s)} - {1}
        if len(found) > 1:
            raise ValueError(a, b)
        sizes.append(found.pop() if found else 1)
    return sizes[::-1]


def _padded(a: Shape, b: Shape) -> tuple[Shape, Shape]:
    n = max(len(a), len(b))
    return (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b


def _pairwise(a: Shape, b: Shape, size: Callable[[int, int], int | None]) -> Shape:
    """The sizes that `size` gives for each pair; a ValueError where it gives None."""
    sizes = [size(s, t) for s, t in zip(a, b, strict=True)]
    if any(s is None for s in sizes):
        raise ValueError(a, b)
    return tuple(s for s in sizes if s is not None)


def _rule(s: int, t: int) -> int | None:
    if s == 1:
        return t
    return s if t in (1, s) else None


def _aligned_left(a: Shape, b: Shape) -> Shape:
    n = max(len(a), len(b))
    return _pairwise(a + (1,) * (n - len(a)), b + (1,) * (n - len(b)), _rule)


def _same_number_of_dimensions(a: Shape, b: Shape) -> Shape:
    if len(a) != len(b):
        raise ValueError(a, b)
    return _pairwise(a, b, _rule)


def _drops_leading(a: Shape, b: Shape) -> Shape:
    n = min(len(a), len(b))
    return _pairwise(a[len(a) - n :], b[len(b) - n :], _rule)


def _never_raises(a: Shape, b: Shape) -> Shape | None:
    try:
        return _broadcast_oracle(a, b)
    except ValueError:
        return None


def _torch_error(a: Shape, b: Shape) -> Shape:
    return tuple(torch.broadcast_shapes(a, b))  # type: ignore[no-untyped-call]


def _shapes(name: str, a: Shape, b: Shape) -> Case:
    return Case(f"{name}: {a} and {b}", lambda: (a, b))


BROADCAST_SHAPE = Exercise(
    title="The shape that two shapes broadcast to",
    oracle=_broadcast_oracle,
    cases=[
        _shapes("equal shapes", (3, 4), (3, 4)),
        _shapes("a missing dimension", (2, 3, 4), (4,)),
        _shapes("the longer shape second", (4,), (2, 3, 4)),
        _shapes("both are stretched", (3, 1), (1, 4)),
        _shapes("both are stretched, one is shorter", (5, 1, 4), (3, 1)),
        _shapes("a number and a vector", (), (5,)),
        _shapes("two numbers", (), ()),
        replace(_shapes("sizes that differ", (2, 3), (2, 4)), raises=ValueError),
        replace(_shapes("sizes that agree only at the left", (3, 4), (3,)), raises=ValueError),
        replace(_shapes("a size that divides the other", (4,), (2,)), raises=ValueError),
        _shapes("no numbers, and one", (0,), (1,)),
        replace(_shapes("no numbers, and two", (2, 0), (2, 2)), raises=ValueError),
    ],
    wrong=[
        WrongAnswer(
            "aligned at the left",
            "Shapes are aligned at the right: a missing dimension is a leading one.",
            _aligned_left,
        ),
        WrongAnswer(
            "the larger size always wins",
            "Sizes that differ are an error unless one of them is 1.",
            lambda a, b: _pairwise(*_padded(a, b), max),
        ),
        WrongAnswer(
            "the larger size of an allowed pair",
            "The result is the size that is not 1. For 0 and 1 that is 0, the smaller one.",
            lambda a, b: _pairwise(
                *_padded(a, b), lambda s, t: max(s, t) if s == t or 1 in (s, t) else None
            ),
        ),
        WrongAnswer(
            "only the second shape is stretched",
            "Either shape may have the 1, even both in different dimensions.",
            lambda a, b: _pairwise(*_padded(a, b), lambda s, t: s if t in (1, s) else None),
        ),
        WrongAnswer(
            "sizes must be equal",
            "A size of 1 fits every other size: it is stretched.",
            lambda a, b: _pairwise(*_padded(a, b), lambda s, t: s if s == t else None),
        ),
        WrongAnswer(
            "a size that divides the other is repeated",
            "Only a size of 1 is stretched. Size 2 is never repeated to make 4.",
            lambda a, b: _pairwise(
                *_padded(a, b),
                lambda s, t: (
                    _rule(s, t)
                    if _rule(s, t) is not None or 0 in (s, t) or max(s, t) % min(s, t)
                    else max(s, t)
                ),
            ),
        ),
        WrongAnswer(
            "the extra leading dimensions are dropped",
            "`zip` stops at the shorter shape; the longer one's other sizes belong to the result.",
            _drops_leading,
        ),
        WrongAnswer(
            "the shapes must be equally long",
            "A missing leading dimension counts as 1, so a vector fits a matrix.",
            _same_number_of_dimensions,
        ),
        WrongAnswer(
            "None instead of an error",
            "A caller that does not look will go on with None; the exercise asks for a ValueError.",
            _never_raises,
        ),
        WrongAnswer(
            "an error of another type",
            "The exercise asks for a ValueError; torch's own function raises a RuntimeError.",
            _torch_error,
        ),
    ],
    variants=[_broadcast_by_sets, lambda a, b: _pairwise(*_padded(a, b), _rule)],
    rules=(
        Rule(
            "without torch",
            (
                "broadcast_shapes",
                "broadcast_tensors",
                "aten.expand",
                "aten.empty",
                "aten.zeros",
                "aten.ones",
                "aten.rand",
                "aten.randn",
                "aten.full",
                "aten.add",
                "aten.mul",
            ),
        ),
    ),
)


# --- linear_backward(x, W, dY) --------------------------------------------------------------------


def _flat(t: Tensor) -> Tensor:
    return t.reshape(-1, t.shape[-1])


def _linear_backward_oracle(x: Tensor, W: Tensor, dY: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in (x, W, W.new_zeros(W.shape[1]))]
    y = F.linear(leaves[0], leaves[1].T, leaves[2])
    return torch.autograd.grad(y, leaves, dY)


@in_parts
def _linear_backward(
    of_x: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, W, dY: dY @ W.T,
    of_W: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, W, dY: _flat(x).T @ _flat(dY),
    of_b: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, W, dY: _flat(dY).sum(0),
) -> Callable[..., tuple[Tensor, ...]]:
    """The three gradients, each with what may be put in its place."""
    return lambda x, W, dY: (of_x(x, W, dY), of_W(x, W, dY), of_b(x, W, dY))


def _layer(
    name: str,
    *shape: int,
    to: int = 4,
    tol: float = 1e-11,
    dtype: torch.dtype = torch.float64,
) -> Case:
    """`x` of that shape, weights to `to` outputs, and a gradient of the outputs."""

    def inputs() -> tuple[Tensor, ...]:
        x, W = draw(*shape, dtype=dtype), draw(shape[-1], to, seed=1, dtype=dtype)
        return x, W, draw(*shape[:-1], to, seed=2, dtype=dtype)

    return Case(name, inputs, tol=tol)


LINEAR_BACKWARD = Exercise(
    title="Backwards through a linear layer",
    oracle=_linear_backward_oracle,
    leading={"x": 1, "dY": 1},
    cases=[
        _layer("a matrix of five tokens", 5, 3),
        _layer("as many tokens as features as outputs", 4, 4),
        _layer("a batch of two texts", 2, 5, 3),
        _layer("all sizes alike", 3, 3, 3, to=3),
        _layer("leading dimensions 2, 1 and 3", 2, 1, 3, 5),
        _layer("one token, a vector", 3),
        _layer("a matrix of one row", 1, 3),
        _layer("a batch of one text with one token", 1, 1, 3, to=2),
        _layer("one output", 2, 3, 5, to=1),
        _layer("one feature", 2, 3, 1),
        _layer("float32", 2, 5, 3, dtype=torch.float32, tol=1e-5),
    ],
    wrong=[
        WrongAnswer(
            "a gradient for each text",
            "All texts use the same `W` and the same b, so the sum runs over the texts too. A "
            "gradient has the shape of what it belongs to.",
            lambda x, W, dY: (dY @ W.T, x.mT @ dY, dY.sum(-2)),
        ),
        WrongAnswer(
            "the gradient of W for each text",
            "All texts use the same `W`, so the sum runs over the texts too.",
            _linear_backward(
                of_W=lambda x, W, dY: x.mT @ dY if x.dim() > 1 else torch.outer(x, dY)
            ),
        ),
        WrongAnswer(
            "the gradient of b summed over the tokens only",
            "All texts use the same b, so the sum runs over the texts too.",
            _linear_backward(of_b=lambda x, W, dY: dY.sum(-2) if dY.dim() > 1 else dY.clone()),
        ),
        WrongAnswer(
            "the gradient of b summed over the first dimension only",
            "For a batch the first dimension counts the texts, and their tokens remain.",
            _linear_backward(of_b=lambda x, W, dY: dY.sum(0) if dY.dim() > 1 else dY.clone()),
        ),
        WrongAnswer(
            "averaged over the texts",
            "The chain rule has a sum. Where a mean is wanted it stands in the loss, and so "
            "already in dY.",
            _linear_backward(
                of_W=lambda x, W, dY: _flat(x).T @ _flat(dY) / (x.shape[0] if x.dim() > 2 else 1),
                of_b=lambda x, W, dY: _flat(dY).sum(0) / (x.shape[0] if x.dim() > 2 else 1),
            ),
        ),
        WrongAnswer(
            "averaged over all tokens",
            "The chain rule has a sum. Where a mean is wanted it stands in the loss, and so "
            "already in dY.",
            _linear_backward(
                of_W=lambda x, W, dY: _flat(x).T @ _flat(dY) / max(len(_flat(x)), 1),
                of_b=lambda x, W, dY: _flat(dY).sum(0) / max(len(_flat(dY)), 1),
            ),
        ),
        WrongAnswer(
            "the gradient of W transposed",
            "That is the gradient of torch's stored weight. `W` has the inputs first: x.T @ dY.",
            _linear_backward(of_W=lambda x, W, dY: _flat(dY).T @ _flat(x)),
        ),
        WrongAnswer(
            "W where its transpose belongs",
            "An entry of x reaches the outputs by its row of `W`: dY @ W.T. If `W` is square, the "
            "mistake raises no error.",
            _linear_backward(of_x=lambda x, W, dY: dY @ (W if W.shape[0] == W.shape[1] else W.T)),
        ),
        WrongAnswer(
            "the gradient of x summed over the texts",
            "Each row of x is used once, by its own token, so nothing is summed over tokens or "
            "texts.",
            _linear_backward(of_x=lambda x, W, dY: (dY.sum(0) if dY.dim() > 2 else dY) @ W.T),
        ),
    ],
    variants=[
        _linear_backward(),
        lambda x, W, dY: (
            torch.einsum("...o,io->...i", dY, W),
            torch.einsum("...i,...o->io", x, dY),
            torch.einsum("...o->o", dY),
        ),
    ],
    rules=(autograd(),),
)


# --- mix(counts, values) --------------------------------------------------------------------------


def _mix_oracle(counts: Tensor, values: Tensor) -> Tensor:
    """Text by text, head by head, row by row."""
    B, H, T, _ = counts.shape
    rows = []
    for b in range(B):
        for t in range(T):
            heads = []
            for h in range(H):
                share = counts[b, h, t] / counts[b, h, t].sum()
                heads.append((share[:, None] * values[b, :, h]).sum(0))
            rows.append(torch.cat(heads))
    return torch.stack(rows).view(B, T, -1)


@in_parts
def _mix_with(
    divided: int | tuple[int, ...] | None = -1, order: str = "bthd", mean: bool = True
) -> Callable[..., Tensor]:
    """The mixture, with the sum taken over another dimension or the result in another order."""

    def mix(counts: Tensor, values: Tensor) -> Tensor:
        B, H, T, S = counts.shape
        weights = counts if divided is None else counts / counts.sum(divided, keepdim=True)
        if not mean:
            weights = weights / S
        mixed = torch.einsum(f"bhts,bshd->{order}", weights, values)
        return mixed.reshape(B, T, H * values.shape[-1])

    return mix


def _counts(
    name: str,
    B: int,
    H: int,
    T: int,
    S: int,
    d: int,
    dtype: torch.dtype = torch.float64,
    tol: float = 1e-11,
    grad: bool = True,
    scale: float = 1.0,
) -> Case:
    """Counts from 1 to 9, and values; no two heads are alike."""

    def inputs() -> tuple[Tensor, ...]:
        rng = torch.Generator().manual_seed(B + 2 * H + 3 * T + S)
        counts = torch.randint(1, 10, (B, H, T, S), generator=rng).to(dtype)
        values = scale * draw(B, S, H, d, seed=1, dtype=dtype)
        return tuple(t.requires_grad_(grad) for t in (counts, values))

    return Case(name, inputs, tol=tol, grad=grad)


MIX = Exercise(
    title="A mixture of values, head by head",
    oracle=_mix_oracle,
    cases=[
        _counts("two texts, two heads, 3 tokens take from 4", 2, 2, 3, 4, 5),
        _counts("as many tokens on both sides", 2, 3, 4, 4, 2),
        _counts("all sizes alike", 3, 3, 3, 3, 3),
        _counts("one head", 2, 1, 3, 4, 2),
        _counts("one token that takes, as in generation", 1, 4, 1, 6, 2),
        _counts("one token to take from", 2, 2, 3, 1, 4),
        _counts("values of size 1e150", 1, 2, 3, 4, 2, scale=1e150),
        _counts("float32", 2, 2, 3, 4, 5, dtype=torch.float32, tol=1e-5),
        _counts("without gradients", 2, 2, 5, 3, 2, grad=False),
    ],
    wrong=[
        WrongAnswer(
            "divided by the sums over the tokens that take",
            "Each token's weights should add up to 1 over those it takes from, the letter s: the "
            "last dimension, and not the one before it.",
            _mix_with(divided=-2),
        ),
        WrongAnswer(
            "divided by one sum of a whole head",
            "Every row of counts has a sum of its own.",
            _mix_with(divided=(-1, -2)),
        ),
        WrongAnswer(
            "not divided at all",
            "Counts are no weights: their sum over s is not 1.",
            _mix_with(divided=None),
        ),
        WrongAnswer(
            "the heads laid down before the tokens",
            "A tensor of shape (B, H, T, d) has all tokens of head 0 before those of head 1. Bring "
            "the heads beside the features first: (B, T, H, d).",
            _mix_with(order="bhtd"),
        ),
        WrongAnswer(
            "the features before the heads",
            "First come the d numbers of head 0, then those of head 1: (B, T, H, d), not "
            "(B, T, d, H).",
            _mix_with(order="btdh"),
        ),
        WrongAnswer(
            "the mean instead of the sum",
            "The weights add up to 1 already. Divide by S once more, and the result is S times too "
            "small.",
            _mix_with(mean=False),
        ),
    ],
    variants=[
        _mix_with(),
        lambda counts, values: (
            (counts / counts.sum(-1, keepdim=True) @ values.transpose(1, 2))
            .transpose(1, 2)
            .flatten(2)
        ),
    ],
)


# --- questions ------------------------------------------------------------------------------------

WHICH_CHECK = choice(
    "Which check would have caught it?",
    right="D",
    because="Three means do not fit four columns, so it does not even run. The least careful of "
    "the four checks is the only one with a table that is not square.",
    tempting={
        "A": (
            "a single row",
            "The mean of one row has the shape (1,), and that is taken off every column: it is the "
            "right number, so nothing is wrong with the result.",
        ),
        "B": (
            "four equal rows",
            "Equal rows have equal means. It does not matter then which row's mean a column gets.",
        ),
        "C": (
            "a mean of 0",
            "Each column loses a mean of some row, and in total the same number is taken off as "
            "should be. So the mean of the whole result is 0, and the shape is right too.",
        ),
    },
)
