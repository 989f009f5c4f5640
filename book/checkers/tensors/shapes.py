"""Shapes and products: which number meets which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from book.checkers.core import Case, Exercise, Rule, WrongAnswer, in_parts
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


# --- scale(x, rows, columns) ----------------------------------------------------------------------


def _scale_oracle(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return torch.einsum("...ij,i,j->...ij", x, rows, columns)


def _in_place(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    x *= rows[:, None]
    x *= columns
    return x


def _rows_at_the_front(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return x * rows.reshape(-1, *[1] * (x.dim() - 1)) * columns


def _matrices(
    name: str,
    *shape: int,
    grad: bool = True,
    tol: float = 1e-11,
    dtype: torch.dtype = torch.float64,
    change: Callable[[Tensor], Tensor] = lambda x: x,
    sign: int = 1,
) -> Case:
    """`x` of that shape, changed, with a gain for each row and each column, none of them 1."""

    def inputs() -> tuple[Tensor, ...]:
        x = change(draw(*shape, dtype=dtype))
        rows, columns = (2 + draw(x.shape[k], seed=-k, dtype=dtype) for k in (-2, -1))
        return tuple(t.requires_grad_(grad) for t in (x, sign * rows, columns))

    return Case(name, inputs, tol=tol, grad=grad)


def _with_infinity(x: Tensor) -> Tensor:
    x[0, 1] = -torch.inf
    return x


SCALE = Exercise(
    title="A gain per token and a gain per feature",
    oracle=_scale_oracle,
    leading={"x": 2},
    cases=[
        _matrices("a 3 x 4 matrix", 3, 4),
        _matrices("a square matrix", 4, 4),
        _matrices("a batch of two", 2, 3, 4),
        _matrices("as many matrices as rows", 3, 3, 4),
        _matrices("leading dimensions 2, 1 and 3", 2, 1, 3, 5, 4),
        _matrices("a single row", 1, 5),
        _matrices("a single column", 5, 1),
        _matrices("no rows at all", 0, 4),
        _matrices("a transposed matrix", 4, 3, change=lambda t: t.mT),
        _matrices("numbers of size 1e150", 3, 4, change=lambda t: 1e150 * t),
        _matrices("float32", 3, 4, dtype=torch.float32, tol=1e-5),
        _matrices("an infinite entry, without gradients", 3, 4, grad=False, change=_with_infinity),
        _matrices(
            "an infinite entry and negative gains", 3, 4, grad=False, change=_with_infinity, sign=-1
        ),
        _matrices("a square matrix, without gradients", 3, 3, grad=False),
    ],
    wrong=[
        WrongAnswer(
            "rows and columns exchanged",
            "A vector meets the last dimension, the columns. If x is square no error is raised.",
            lambda x, rows, columns: x * columns[:, None] * rows,
        ),
        WrongAnswer(
            "rows not turned into a column",
            "`x * rows` aligns `rows` with the last dimension, so it scales columns too.",
            lambda x, rows, columns: x * rows * columns,
        ),
        WrongAnswer(
            "rows aligned with the first dimension",
            "With leading dimensions the rows are the last but one: shape (N, 1), not (N, 1, 1).",
            _rows_at_the_front,
        ),
        WrongAnswer(
            "the gain per row left out",
            "`rows` is not used: diag(rows) stands on the left of X.",
            lambda x, rows, columns: x * columns,
        ),
        WrongAnswer(
            "the gain per column left out",
            "`columns` is not used: diag(columns) stands on the right of X.",
            lambda x, rows, columns: x * rows[:, None],
        ),
        WrongAnswer(
            "added, not multiplied",
            "A gain multiplies. Adding a row or a column is a shift.",
            lambda x, rows, columns: x + rows[:, None] + columns,
        ),
        WrongAnswer(
            "a matrix product with the vector",
            "`rows @ x` adds up over the rows, so a dimension is gone; a gain keeps the shape.",
            lambda x, rows, columns: (rows @ x) * columns,
        ),
        WrongAnswer(
            "diagonal matrices multiplied out",
            "In exact arithmetic it is the same, but the zeros beside the diagonal are multiplied "
            "too: 0 times infinity is nan, and it is d times the work.",
            lambda x, rows, columns: torch.diag(rows) @ x @ torch.diag(columns),
        ),
        WrongAnswer(
            "changed in place",
            "The caller's `x` is overwritten; with gradients, torch refuses.",
            _in_place,
        ),
        WrongAnswer(
            "gains without a gradient",
            "`detach` or `.data` cuts the gains off: the values are right, but they never learn.",
            lambda x, rows, columns: x * rows.detach()[:, None] * columns.detach(),
        ),
    ],
    variants=[
        lambda x, rows, columns: x * rows.unsqueeze(-1) * columns,
        lambda x, rows, columns: x * torch.outer(rows, columns),
        lambda x, rows, columns: (x.mT * rows).mT * columns,
    ],
    rules=(
        Rule(
            "without a matrix product",
            ("aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.addmm", "aten.baddbmm"),
        ),
    ),
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
