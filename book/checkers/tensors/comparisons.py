"""A slip to measure, and two tests to write: of two tensors, and of a function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.questions import WrongNumber, number

Numbers = Tensor | list[float] | list[list[float]]


# --- how a slip grows -----------------------------------------------------------------------------


def _slip_power() -> float:
    x = torch.randn(1000, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    large, small = (
        (F.layer_norm(s * x, (64,)) - F.layer_norm(s * x, (64,), eps=0.0)).abs().max().item()
        for s in (1.0, 0.1)
    )
    return math.log10(large / small)


SLIP = number(
    "An input that shows the slip",
    value=_slip_power,
    within=0.025,
    because="Measured between s = 1 and s = 0.1 it is {value}: the epsilon is added to the "
    "variance, which is a square.",
    wrong=[
        WrongNumber(
            "the size cancels",
            "Without the epsilon a LayerNorm does not depend on the size of its input. With it, it "
            "does: the epsilon stays as it is while the variance shrinks.",
            lambda: 0.0,
        ),
        WrongNumber(
            "the power of the standard deviation",
            "The epsilon is added before the root is taken, to the variance.",
            lambda: -1.0,
        ),
        WrongNumber(
            "the slip shrinks with the rows",
            "The sign: ten times smaller rows make it a hundred times larger, because the epsilon "
            "weighs more beside their variance.",
            lambda: 2.0,
        ),
    ],
)


# --- same(a, b, tol) ------------------------------------------------------------------------------


def _fits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _gaps(a: Tensor, b: Tensor) -> Tensor:
    """The differences; that of two equal infinities is 0, not nan."""
    return (a - b).where(a != b, 0)


def _same_oracle(a: Tensor, b: Tensor, tol: float) -> bool:
    if not _fits(a, b):
        return False
    return all(
        s == t or abs(s - t) <= tol
        for s, t in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
    )


def _same_by_max(a: Tensor, b: Tensor, tol: float) -> bool:
    if not _fits(a, b):
        return False
    return a.numel() == 0 or _gaps(a, b).abs().max().item() <= tol


def _same_by_isclose(a: Tensor, b: Tensor, tol: float) -> bool:
    return _fits(a, b) and torch.isclose(a, b, rtol=0, atol=tol).all().item() is True


def _same_without_shape(a: Tensor, b: Tensor, tol: float) -> bool:
    try:
        return a.dtype == b.dtype and bool((_gaps(a, b).abs() <= tol).all())
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
SAME = Exercise(
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
        _pair("equal infinities", [1.0, torch.inf, -torch.inf], [1.0, torch.inf, -torch.inf]),
        _pair("opposite infinities", [1.0, torch.inf], [1.0, -torch.inf]),
        _pair("an infinity and a number", [1.0, torch.inf], [1.0, 2.0]),
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
            lambda a, b, tol: _fits(a, b) and bool((_gaps(a, b) <= tol).all()),
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
            lambda a, b, tol: a.shape == b.shape and bool((_gaps(a, b).abs() <= tol).all()),
        ),
        WrongAnswer(
            "the mean of the differences",
            "Among many numbers one wrong one disappears in the mean. Every number has to pass.",
            lambda a, b, tol: (
                _fits(a, b)
                and (a.numel() == 0 or _gaps(a.double(), b.double()).abs().mean().item() <= tol)
            ),
        ),
        WrongAnswer(
            "the sum of the differences",
            "Errors of opposite sign cancel in a sum. Every number has to pass.",
            lambda a, b, tol: _fits(a, b) and abs(_gaps(a, b).sum().item()) <= tol,
        ),
        WrongAnswer(
            "one close number is enough",
            "`any` asks for one pair, `all` for every pair.",
            lambda a, b, tol: (
                _fits(a, b) and (a.numel() == 0 or bool((_gaps(a, b).abs() <= tol).any()))
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
            lambda a, b, tol: _fits(a, b) and bool((_gaps(a, b).abs() <= tol * b.abs()).all()),
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
            lambda a, b, tol: _fits(a, b) and bool((_gaps(a, b).abs() < tol).all()),
        ),
        WrongAnswer(
            "compared in float32",
            "float32 keeps seven digits: what differs in the ninth becomes the same number.",
            lambda a, b, tol: (
                _fits(a, b) and bool((_gaps(a.float(), b.float()).abs() <= tol).all())
            ),
        ),
        WrongAnswer(
            "bit for bit",
            "torch.equal allows no rounding at all; two right computations seldom pass it.",
            lambda a, b, tol: _fits(a, b) and torch.equal(a, b),
        ),
        WrongAnswer(
            "equal infinities told apart",
            "Infinity less infinity is nan, which passes no comparison. Equal numbers are the same "
            "without a subtraction.",
            lambda a, b, tol: _fits(a, b) and bool(((a - b).abs() <= tol).all()),
        ),
        WrongAnswer(
            "a tensor instead of a bool",
            "The result of `.all()` is a tensor; `bool(...)` makes it True or False.",
            lambda a, b, tol: _fits(a, b) and (_gaps(a, b).abs() <= tol).all(),
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


def _mean_shift(x: Tensor) -> Tensor:
    seen = x.where(x > -torch.inf, torch.nan)
    e = torch.exp(x - seen.nanmean(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _bounded_mask(x: Tensor) -> Tensor:
    return F.softmax(x.where(x > -torch.inf, -3.0), dim=-1)


def _no_keepdim(x: Tensor) -> Tensor:
    e = torch.exp(x - x.max())
    return e / e.sum(-1)


def _half_gradient(x: Tensor) -> Tensor:
    y = F.softmax(x, dim=-1)
    return 0.5 * (y + y.detach())


@in_parts
def _agrees(inputs: Sequence[Tensor], *, atol: float = 1e-10, grad: bool = True) -> Answer:
    """A test that compares with torch; what the weak ones leave out is an option."""

    def test(f: Answer) -> bool:
        for example in inputs:
            x = example.double().requires_grad_()
            want = F.softmax(x, dim=-1)
            try:
                have = f(x)
            except RuntimeError:
                return False
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
_WIDE = 1000 * _PLAIN
_MASKED = _PLAIN.where(torch.eye(3, 4) == 0, -torch.inf)
_ENOUGH = (_PLAIN, _FAR_APART, _WIDE, _MASKED)


def _given(f: Answer, x: Tensor) -> Tensor:
    """What `f` gives, and nan where it raises, as a wrong softmax of some shapes does."""
    try:
        return torch.as_tensor(f(x))
    except RuntimeError:
        return x * torch.nan


def _shape_only(f: Answer) -> bool:
    return bool(_given(f, _PLAIN).shape == _PLAIN.shape)


def _adds_up(f: Answer) -> bool:
    y = _given(f, _FAR_APART)
    return bool((y >= 0).all() and ((y.sum(-1) - 1).abs() < 1e-10).all())


def _histogram_only(f: Answer) -> bool:
    return all(
        torch.allclose(
            _given(f, x).flatten().sort()[0],
            F.softmax(x, dim=-1).flatten().sort()[0],
            rtol=0,
            atol=1e-10,
        )
        for x in _ENOUGH
    )


def _plain_sum(f: Answer) -> bool:
    for example in _ENOUGH:
        x = example.clone().requires_grad_()
        y = _given(f, x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        if not (
            torch.allclose(y, F.softmax(x, -1), rtol=0, atol=1e-10) and (grad.abs() < 1e-10).all()
        ):
            return False
    return True


def _softmax_case(verdict: str, f: Answer) -> Case:
    return Case(verdict, lambda: (f,))


IS_SOFTMAX = Exercise(
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
        _softmax_case("a wrong one: shifted by the row's mean", _mean_shift),
        _softmax_case("a wrong one: -3 in place of -inf", _bounded_mask),
        _softmax_case("a wrong one: the sums without keepdim", _no_keepdim),
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
            _agrees([_PLAIN, _MASKED]),
        ),
        WrongAnswer(
            "no row with numbers far apart",
            "The mean of a row is a good shift as long as no number is far above it. A row such as "
            "0, 0, 0, 2000 tells it from the maximum.",
            _agrees([_PLAIN, _FAR_APART, _MASKED]),
        ),
        WrongAnswer(
            "nothing masked",
            "The text allows entries of -inf, as a mask puts them. Their share is 0 exactly.",
            _agrees([_PLAIN, _FAR_APART, _WIDE]),
        ),
        WrongAnswer(
            "one row only",
            "With a single row a shift that is shared by all rows is not seen. Use rows far apart.",
            _agrees([_PLAIN[:1], _FAR_APART[:1], _WIDE[:1], _MASKED[:1]]),
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
                torch.tensor([[800.0, 0.0, -800.0], [0.0, 1.0, -torch.inf]]),
                torch.tensor([[0.0, 0.0, 0.0, 2000.0]]),
            ]
        ),
    ],
)
