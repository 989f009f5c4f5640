"""The exercises of chapter 01: shapes, products, registration, and two tests to write.

The oracles are torch's own functions, never the book's library. A wrong answer is the right one
with one thing changed, so that its line shows the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts

Shape = tuple[int, ...]
Numbers = Tensor | list[float] | list[list[float]]


def _draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype)


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


_BROADCAST = Exercise(
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
        x = change(_draw(*shape, dtype=dtype))
        rows, columns = (2 + _draw(x.shape[k], seed=-k, dtype=dtype) for k in (-2, -1))
        return tuple(t.requires_grad_(grad) for t in (x, sign * rows, columns))

    return Case(name, inputs, tol=tol, grad=grad)


def _with_infinity(x: Tensor) -> Tensor:
    x[0, 1] = -torch.inf
    return x


_SCALE = Exercise(
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


# --- register_gains: a class, seen through a report -----------------------------------------------

# What a report looks at: each view builds the module afresh and returns plain values.
View = Callable[[Callable[[], nn.Module], Tensor], object]


def _output(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    out: Tensor = make()(x)
    return out.detach()


def _parameters(make: Callable[[], nn.Module], x: Tensor) -> list[Shape]:
    return sorted(tuple(p.shape) for p in make().parameters())


def _state(make: Callable[[], nn.Module], x: Tensor) -> list[Shape]:
    return sorted(tuple(t.shape) for t in make().state_dict().values())


def _trained(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    """The output after one step of gradient descent on every parameter."""
    module = make()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x).square().sum().backward()
    optimizer.step()
    out: Tensor = module(x)
    return out.detach()


def _moved(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    return _output(lambda: make().to(torch.float32), x.to(torch.float32))


def _reloaded(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    """The output after every saved tensor was tripled, saved and loaded into a new module."""
    saved = {name: 3 * t for name, t in make().state_dict().items()}
    fresh = make()
    fresh.load_state_dict(saved)
    return _output(lambda: fresh, x)


_VIEWS: dict[str, View] = {
    "the output of a new module": _output,
    "the shapes of its parameters": _parameters,
    "the shapes in its state_dict": _state,
    "the output after one training step": _trained,
    "the output after .to(torch.float32)": _moved,
    "the output after saving, tripling and loading": _reloaded,
}


def module_report(module: Callable[..., nn.Module]) -> Answer:
    """Turn a module class into a function that builds it and reports on it.

    `check` compares what functions return, and modules cannot be compared. The function takes
    the name of a view, an input for the module, and the two arguments of the class.
    """

    def report(view: str, x: Tensor, depth: int, mask: Tensor) -> object:
        return _VIEWS[view](lambda: module(depth, mask.clone()), x)

    return report


class _Gains(nn.Module):
    """The right answer, in pieces that the wrong ones replace."""

    mask: Tensor

    def __init__(self, depth: int, mask: Tensor) -> None:
        super().__init__()
        self.keep_gains([torch.ones_like(mask) for _ in range(depth)])
        self.keep_mask(mask)

    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains: Any = nn.ParameterList(gains)

    def keep_mask(self, mask: Tensor) -> None:
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.mask
        for gain in self.gains:
            x = x * gain
        return x


class _NamedGains(nn.Module):
    """A variant: every gain an attribute, the mask first cloned."""

    mask: Tensor

    def __init__(self, depth: int, mask: Tensor) -> None:
        super().__init__()
        self.depth = depth
        for i in range(depth):
            setattr(self, f"gain{i}", nn.Parameter(torch.ones(len(mask), dtype=mask.dtype)))
        self.register_buffer("mask", mask.clone())

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.depth):
            x = getattr(self, f"gain{i}") * x
        return x * self.mask


class _GainsInMatrix(_Gains):
    """Gains as the rows of one parameter: another number of parameters, so not accepted."""

    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains = nn.Parameter(torch.stack([*gains]))


class _GainsInList(_Gains):
    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains = [nn.Parameter(g) for g in gains]


class _OneGain(_Gains):
    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        self.gains = nn.ParameterList([nn.Parameter(gains[0])] * len(gains))


class _GainsAsBuffers(_Gains):
    def keep_gains(self, gains: Sequence[Tensor]) -> None:
        for i, gain in enumerate(gains):
            self.register_buffer(f"gain{i}", gain)

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.mask
        for name, buffer in self.named_buffers():
            x = x * buffer if name != "mask" else x
        return x


class _DetachedGains(_Gains):
    def forward(self, x: Tensor) -> Tensor:
        x = x * self.mask
        for gain in self.gains:
            x = x * gain.data
        return x


class _PlainMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.mask = mask


class _LearnedMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.mask = nn.Parameter(mask)


class _FrozenMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.mask = nn.Parameter(mask, requires_grad=False)


class _UnsavedMask(_Gains):
    def keep_mask(self, mask: Tensor) -> None:
        self.register_buffer("mask", mask, persistent=False)


def _module_case(view: str, depth: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return view, _draw(2, 4), depth, torch.tensor([1.0, 0.0, 0.5, 1.0], dtype=torch.float64)

    # A gain may have been made in float32, the default dtype outside the notebook.
    return Case(f"{view}, depth {depth}", inputs, tol=1e-5)


_REGISTER = Exercise(
    title="A module that knows its tensors",
    oracle=module_report(_Gains),
    cases=[_module_case(view, depth) for depth in (2, 3) for view in _VIEWS],
    wrong=[
        WrongAnswer(
            "gains that the module does not know",
            "A tensor in a Python list or dict, or one that is not an nn.Parameter, is not "
            "registered: no optimizer, state_dict or `.to()` will find it.",
            module_report(_GainsInList),
        ),
        WrongAnswer(
            "one gain, used again and again",
            "`[p] * depth` is one parameter under several names; every layer needs its own.",
            module_report(_OneGain),
        ),
        WrongAnswer(
            "all gains in one parameter",
            "It computes the same, but the exercise asks for `depth` parameters, each of the "
            "shape of the mask.",
            module_report(_GainsInMatrix),
        ),
        WrongAnswer(
            "gains as buffers",
            "A buffer is saved and moved, but it is not learned: parameters() does not list it.",
            module_report(_GainsAsBuffers),
        ),
        WrongAnswer(
            "gains cut off in forward",
            "`.data` and `detach` give the values without the graph, so no gradient arrives.",
            module_report(_DetachedGains),
        ),
        WrongAnswer(
            "the mask as a plain attribute",
            "It is neither saved nor moved with the module; use register_buffer.",
            module_report(_PlainMask),
        ),
        WrongAnswer(
            "the mask as a parameter",
            "Then an optimizer changes it. What is fixed but belongs to the model is a buffer.",
            module_report(_LearnedMask),
        ),
        WrongAnswer(
            "the mask as a frozen parameter",
            "It stays fixed, but it is listed and counted among the parameters; a buffer is not.",
            module_report(_FrozenMask),
        ),
        WrongAnswer(
            "the mask as a buffer that is not saved",
            "With persistent=False a buffer moves with the module but is not in its state_dict.",
            module_report(_UnsavedMask),
        ),
    ],
    variants=[module_report(_NamedGains)],
)


# --- same(a, b, tol) ------------------------------------------------------------------------------


def _fits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _same_oracle(a: Tensor, b: Tensor, tol: float) -> bool:
    if not _fits(a, b):
        return False
    return all(
        abs(s - t) <= tol for s, t in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
    )


def _same_by_max(a: Tensor, b: Tensor, tol: float) -> bool:
    if not _fits(a, b):
        return False
    return a.numel() == 0 or (a - b).abs().max().item() <= tol


def _same_by_isclose(a: Tensor, b: Tensor, tol: float) -> bool:
    return _fits(a, b) and torch.isclose(a, b, rtol=0, atol=tol).all().item() is True


def _same_without_shape(a: Tensor, b: Tensor, tol: float) -> bool:
    try:
        return a.dtype == b.dtype and bool(((a - b).abs() <= tol).all())
    except RuntimeError:
        return False


def _pair(name: str, a: Numbers, b: Numbers, tol: float = 1e-6) -> Case:
    """Two tensors; a list is one of float64."""

    def inputs() -> tuple[Any, ...]:
        made = (
            t.clone() if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64)
            for t in (a, b)
        )
        return (*made, tol)

    return Case(name, inputs)


_NAN = float("nan")
_SAME = Exercise(
    title="The same, up to a tolerance",
    oracle=_same_oracle,
    cases=[
        _pair("equal tensors", [1.0, -2.0, 3.0], [1.0, -2.0, 3.0]),
        _pair("differences below tol", [1.0, 2.0], [1.0 + 5e-7, 2.0 - 5e-7]),
        _pair("the last number too large", [1.0, 2.0, 3.1], [1.0, 2.0, 3.0]),
        _pair("the last number too small", [1.0, 2.0, 2.9], [1.0, 2.0, 3.0]),
        _pair("a difference of exactly tol", [1.0, 2.25], [1.0, 2.0], 0.25),
        _pair("errors that cancel", [1.1, 1.9], [1.0, 2.0]),
        _pair("all numbers too small", [0.9, 1.9], [1.0, 2.0]),
        _pair("one small error among a thousand", [*[0.0] * 999, 2e-6], [0.0] * 1000),
        _pair("nan on the left", [1.0, _NAN], [1.0, 2.0]),
        _pair("nan on the right", [1.0, 2.0], [_NAN, 2.0]),
        _pair("nan on both sides", [1.0, _NAN], [1.0, _NAN]),
        _pair("shapes (3,) and (1, 3)", [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0]]),
        _pair("shapes (2, 2) and (1, 2), equal rows", [[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0]]),
        _pair("shapes (2,) and (3,)", [1.0, 2.0], [1.0, 2.0, 3.0]),
        _pair("float32 and float64", torch.ones(3, dtype=torch.float32), [1.0, 1.0, 1.0]),
        _pair("tiny numbers, tiny tol", [2e-10, 0.0], [1e-10, 0.0], tol=1e-12),
        _pair("huge numbers, off by 1", [1e7 + 1.0], [1e7]),
        _pair("numbers near 1, off by 1e-9", [1.0, 1.0 + 1e-9], [1.0, 1.0], tol=1e-10),
        _pair("numbers near zero, off by less than tol", [3e-7, 0.0], [0.0, 0.0]),
        _pair("no numbers", torch.zeros(0, 4), torch.zeros(0, 4)),
        _pair("single numbers", torch.tensor(1.0), torch.tensor(1.0)),
        _pair("integers", torch.tensor([1, 2]), torch.tensor([1, 2])),
    ],
    wrong=[
        WrongAnswer(
            "the sign of the difference is kept",
            "Without `abs`, every number that is too small passes.",
            lambda a, b, tol: _fits(a, b) and bool((a - b <= tol).all()),
        ),
        WrongAnswer(
            "nan passes",
            "Every comparison with nan is false. `not (difference > tol)` accepts what it cannot "
            "compare; ask for `difference <= tol` everywhere.",
            lambda a, b, tol: _fits(a, b) and not bool(((a - b).abs() > tol).any()),
        ),
        WrongAnswer(
            "nan equals nan",
            "A nan is the same as nothing here: it is the sign of a failure, even on both sides.",
            lambda a, b, tol: (
                _fits(a, b) and torch.allclose(a, b, rtol=0, atol=tol, equal_nan=True)
            ),
        ),
        WrongAnswer(
            "shapes are not compared",
            "The subtraction broadcasts, so (3,) and (1, 3) count as the same.",
            _same_without_shape,
        ),
        WrongAnswer(
            "dtypes are not compared",
            "The subtraction promotes, so a result in float32 passes for one in float64.",
            lambda a, b, tol: a.shape == b.shape and bool(((a - b).abs() <= tol).all()),
        ),
        WrongAnswer(
            "the mean of the differences",
            "Among many numbers one wrong one disappears in the mean. Every number has to pass.",
            lambda a, b, tol: (
                _fits(a, b)
                and (a.numel() == 0 or (a.double() - b.double()).abs().mean().item() <= tol)
            ),
        ),
        WrongAnswer(
            "the sum of the differences",
            "Errors of opposite sign cancel in a sum. Every number has to pass.",
            lambda a, b, tol: _fits(a, b) and abs((a - b).sum().item()) <= tol,
        ),
        WrongAnswer(
            "one close number is enough",
            "`any` asks for one pair, `all` for every pair.",
            lambda a, b, tol: (
                _fits(a, b) and (a.numel() == 0 or bool(((a - b).abs() <= tol).any()))
            ),
        ),
        WrongAnswer(
            "allclose with its own limits",
            "torch.allclose brings an atol of 1e-8 and an rtol of 1e-5 unless told otherwise; "
            "`tol` is not used.",
            lambda a, b, tol: _fits(a, b) and torch.allclose(a, b),
        ),
        WrongAnswer(
            "the limit is relative",
            "`tol` times the size of the number allows much for large numbers and nothing for 0.",
            lambda a, b, tol: _fits(a, b) and bool(((a - b).abs() <= tol * b.abs()).all()),
        ),
        WrongAnswer(
            "a limit that grows with the numbers",
            "torch.allclose adds `rtol` times the number to the limit, 1e-5 unless you say 0, so "
            "that large numbers may differ by more than `tol`.",
            lambda a, b, tol: _fits(a, b) and torch.allclose(a, b, atol=tol),
        ),
        WrongAnswer(
            "less than tol",
            "The text says at most `tol`: a difference of exactly `tol` is allowed.",
            lambda a, b, tol: _fits(a, b) and bool(((a - b).abs() < tol).all()),
        ),
        WrongAnswer(
            "compared in float32",
            "float32 keeps seven digits: what differs in the ninth becomes the same number.",
            lambda a, b, tol: _fits(a, b) and bool(((a.float() - b.float()).abs() <= tol).all()),
        ),
        WrongAnswer(
            "bit for bit",
            "torch.equal allows no rounding at all; two right computations seldom pass it.",
            lambda a, b, tol: _fits(a, b) and torch.equal(a, b),
        ),
        WrongAnswer(
            "a tensor instead of a bool",
            "The result of `.all()` is a tensor; `bool(...)` makes it True or False.",
            lambda a, b, tol: _fits(a, b) and ((a - b).abs() <= tol).all(),
        ),
    ],
    variants=[_same_by_max, _same_by_isclose],
)


# --- is_softmax(f): the answer is a test, and the cases are softmaxes -----------------------------


def _stable(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True).detach())
    return e / e.sum(-1, keepdim=True)


def _by_logsumexp(x: Tensor) -> Tensor:
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


def _unshifted(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def _one_shift_for_all_rows(x: Tensor) -> Tensor:
    e = torch.exp(x - x.max())
    return e / e.sum(-1, keepdim=True)


def _with_epsilon(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / (e.sum(-1, keepdim=True) + 1e-6)


def _base_two(x: Tensor) -> Tensor:
    return F.softmax(x * torch.log(torch.tensor(2.0)).to(x), dim=-1)


def _half_gradient(x: Tensor) -> Tensor:
    y = F.softmax(x, dim=-1)
    return 0.5 * (y + y.detach())


@in_parts
def _agrees(inputs: Sequence[Tensor], *, atol: float = 1e-10, grad: bool = True) -> Answer:
    """A test that compares with torch; what the weak ones leave out is an option."""

    def test(f: Answer) -> bool:
        for example in inputs:
            x = example.double().requires_grad_()
            have, want = f(x), F.softmax(x, dim=-1)
            if have.shape != want.shape:
                return False
            weights = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).reshape(x.shape)
            pairs = [(have, want)]
            if grad:
                have_grad, want_grad = (
                    torch.autograd.grad((y * weights).sum(), x)[0] for y in (have, want)
                )
                pairs.append((have_grad, want_grad))
            if not all(torch.allclose(a, b, rtol=0, atol=atol) for a, b in pairs):
                return False
        return True

    return test


_PLAIN = torch.tensor(
    [[0.3, -1.2, 2.0, 0.7], [1.5, 0.1, -0.4, -2.0], [0.0, 1.0, 2.0, 4.0]], dtype=torch.float64
)
_FAR_APART = _PLAIN + torch.tensor([[1000.0], [0.0], [-1000.0]], dtype=torch.float64)
_ENOUGH = (_PLAIN, _FAR_APART)


def _shape_only(f: Answer) -> bool:
    return bool(f(_PLAIN).shape == _PLAIN.shape)


def _adds_up(f: Answer) -> bool:
    y = f(_FAR_APART)
    return bool((y >= 0).all() and ((y.sum(-1) - 1).abs() < 1e-10).all())


def _histogram_only(f: Answer) -> bool:
    return all(
        torch.allclose(
            f(x).flatten().sort()[0], F.softmax(x, dim=-1).flatten().sort()[0], rtol=0, atol=1e-10
        )
        for x in _ENOUGH
    )


def _plain_sum(f: Answer) -> bool:
    for example in _ENOUGH:
        x = example.clone().requires_grad_()
        y = f(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        if not (
            torch.allclose(y, F.softmax(x, -1), rtol=0, atol=1e-10) and (grad.abs() < 1e-10).all()
        ):
            return False
    return True


def _softmax_case(verdict: str, f: Answer) -> Case:
    return Case(verdict, lambda: (f,))


_IS_SOFTMAX = Exercise(
    title="A test for a softmax",
    oracle=_agrees(_ENOUGH),
    cases=[
        _softmax_case("torch's own softmax", lambda x: F.softmax(x, dim=-1)),
        _softmax_case("a right one: the row's maximum taken off first", _stable),
        _softmax_case("a right one: by the logarithm of the sum", _by_logsumexp),
        _softmax_case("a wrong one: over the other axis", lambda x: F.softmax(x, dim=0)),
        _softmax_case(
            "a wrong one: over all numbers at once",
            lambda x: F.softmax(x.flatten(), 0).reshape(x.shape),
        ),
        _softmax_case("a wrong one: exp(x) without a shift", _unshifted),
        _softmax_case("a wrong one: one shift for all rows", _one_shift_for_all_rows),
        _softmax_case("a wrong one: 1e-6 added to the sum", _with_epsilon),
        _softmax_case("a wrong one: powers of 2 for powers of e", _base_two),
        _softmax_case("a wrong one: each row in reverse", lambda x: F.softmax(x, dim=-1).flip(-1)),
        _softmax_case("a wrong one: the logarithm of it", lambda x: F.log_softmax(x, dim=-1)),
        _softmax_case("a wrong one: right values, half the gradient", _half_gradient),
        _softmax_case(
            "a wrong one: right values, no gradient for the sum",
            lambda x: (x - torch.logsumexp(x, -1, keepdim=True).detach()).exp(),
        ),
        _softmax_case(
            "a wrong one: as a matrix of shape (1, N, d)", lambda x: F.softmax(x, dim=-1)[None]
        ),
    ],
    wrong=[
        WrongAnswer(
            "only the shape is tested",
            "Nearly every wrong softmax has the right shape. Compare the numbers.",
            _shape_only,
        ),
        WrongAnswer(
            "only the sums of the rows are tested",
            "Many functions have positive rows that add up to one. Compare with F.softmax.",
            _adds_up,
        ),
        WrongAnswer(
            "only the histogram is tested",
            "Sorted values do not know where they stood: numbers in the wrong place pass.",
            _histogram_only,
        ),
        WrongAnswer(
            "values only",
            "Right values with a wrong gradient pass. Compare the gradients too.",
            _agrees(_ENOUGH, grad=False),
        ),
        WrongAnswer(
            "gradients of a plain sum",
            "A row of a softmax adds up to one, so that gradient is zero, right or wrong. "
            "Weight the entries differently.",
            _plain_sum,
        ),
        WrongAnswer(
            "small numbers only",
            "Without large inputs nothing overflows, and a softmax without a shift passes.",
            _agrees([_PLAIN]),
        ),
        WrongAnswer(
            "one row only",
            "With a single row a shift that is shared by all rows is not seen. Use rows far apart.",
            _agrees([_PLAIN[:1], _FAR_APART[:1]]),
        ),
        WrongAnswer(
            "equal numbers only",
            "For zeros or ones every row is 1/d, whatever the base and the order.",
            _agrees([torch.zeros(3, 4), 1000 * torch.ones(3, 4)]),
        ),
        WrongAnswer(
            "a limit that is too loose",
            "A tolerance of a thousandth lets a slip of a millionth pass. float64 allows 1e-12.",
            _agrees(_ENOUGH, atol=1e-3),
        ),
        WrongAnswer(
            "everything passes",
            "The test never says False. A check that cannot fail shows nothing.",
            lambda f: True,
        ),
    ],
    variants=[
        _agrees(
            [
                _PLAIN.flip(0),
                _FAR_APART.flip(1),
                torch.tensor([[800.0, 0.0, -800.0], [0.0, 1.0, 2.0]]),
            ]
        ),
    ],
)


EXERCISES = {
    "broadcast_shape": _BROADCAST,
    "scale": _SCALE,
    "register_gains": _REGISTER,
    "same": _SAME,
    "is_softmax": _IS_SOFTMAX,
}
