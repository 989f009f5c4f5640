"""The exercises of chapter 04: the sinusoidal table, its shift matrix, and the token embedding.

The oracles are built from complex exponentials and torch's own operators, never from the book's
library. A wrong answer is the right one with one thing changed, so that its line shows the mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, autograd, in_parts
from book.checkers.questions import choice

F64 = torch.float64


def _draw(*shape: int, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


# --- The table in parts ---------------------------------------------------------------------------

# From the pair index k and the width to the power of 1 / base.
Exponent = Callable[[Tensor, int], Tensor]


def _exponent(k: Tensor, d_model: int) -> Tensor:
    return 2 * k / d_model


def _waves(
    positions: Tensor,
    d_model: int,
    base: float,
    *,
    exponent: Exponent = _exponent,
    layout: Callable[[Tensor, Tensor], Tensor] = lambda s, c: torch.stack([s, c], -1).flatten(1),
    angle: Callable[[Tensor], Tensor] = lambda a: a,
) -> Tensor:
    """The table for these positions; a wrong answer replaces one of the parts."""
    k = torch.arange(d_model // 2, dtype=F64)
    a = angle(positions.to(F64)[:, None] * base ** -exponent(k, d_model))
    return layout(a.sin(), a.cos())


def _by_polar(max_len: int, d_model: int, base: float) -> Tensor:
    k = torch.arange(d_model // 2, dtype=F64)
    n = torch.arange(max_len, dtype=F64)[:, None]
    z = torch.polar(torch.ones(1, dtype=F64), n * torch.exp(-2 * k / d_model * math.log(base)))
    return torch.view_as_real(z).flip(-1).flatten(1)


def _per_feature(positions: Tensor, d_model: int, base: float) -> Tensor:
    """The index of the feature, twice over, where that of the pair belongs."""
    j = torch.arange(d_model, dtype=F64)
    a = positions.to(F64)[:, None] * base ** (-2 * j / d_model)
    return torch.where(j % 2 == 0, a.sin(), a.cos())


def _per_raw_feature(positions: Tensor, d_model: int, base: float) -> Tensor:
    """Every feature has a frequency of its own: the two of a pair do not belong together."""
    j = torch.arange(d_model, dtype=F64)
    a = positions.to(F64)[:, None] * base ** (-j / d_model)
    return torch.where(j % 2 == 0, a.sin(), a.cos())


# --- row() ----------------------------------------------------------------------------------------


def _row(position: float = 6, **parts: Any) -> Answer:
    return lambda: _waves(torch.tensor([position]), 4, 10000.0, **parts)[0].tolist()


_ROW = Exercise(
    title="The encoding of position 6 for d = 4",
    oracle=_row(),
    cases=[Case("four numbers, to four decimals", lambda: (), tol=6e-5)],
    wrong=[
        WrongAnswer(
            "degrees in place of radians",
            "The angles are in radians. Pair 0 has turned by 6 of them, which is most of the way "
            "round, so the sine is negative.",
            _row(angle=torch.deg2rad),
        ),
        WrongAnswer(
            "the positions counted from one",
            "The first position is 0, so position 6 is the seventh row of the table.",
            _row(position=5),
        ),
        WrongAnswer(
            "past the whole turn",
            "Six radians are less than a whole turn. What is missing has to be turned back, so the "
            "sine of pair 0 is negative.",
            lambda: [-_row()()[0], *_row()()[1:]],
        ),
        WrongAnswer(
            "the missing angle for its sine",
            "What is missing of the turn is an angle of 0.2832. Its sine is smaller by a sixth of "
            "its cube, which shows in the third decimal.",
            lambda: [6 - 2 * math.pi, *_row()()[1:]],
        ),
        WrongAnswer(
            "a frequency for every feature",
            "The index in the exponent counts pairs. For d = 4 both features of pair 1 have "
            "frequency 1/100, and both of pair 0 have 1.",
            lambda: _per_raw_feature(torch.tensor([6]), 4, 10000.0)[0].tolist(),
        ),
        WrongAnswer(
            "sine and cosine exchanged",
            "Even features are sines: position 0 is (0, 1, 0, 1).",
            _row(layout=lambda s, c: torch.stack([c, s], -1).flatten(1)),
        ),
        WrongAnswer(
            "a slow cosine of one",
            "cos 0.06 is 1 - 0.06^2 / 2 up to a tiny term, which is 18 in the fourth decimal below "
            "one.",
            lambda: [*_row()()[:3], 1.0],
        ),
    ],
    variants=[
        lambda: [-0.2794, 0.9602, 0.06, 0.9982],
        lambda: [-0.27942, 0.96017, 0.059964, 0.99820054],
    ],
    rules=(Rule("typed in", ("aten.sin", "aten.cos", "aten.polar", "aten.lift_fresh")),),
)


# --- table(max_len, d_model, base) ----------------------------------------------------------------


def _table(**parts: Any) -> Answer:
    return lambda max_len, d_model, base: _waves(torch.arange(max_len), d_model, base, **parts)


def _by_columns(max_len: int, d_model: int, base: float) -> Tensor:
    table = torch.zeros(max_len, d_model, dtype=F64)
    for n in range(max_len):
        for k in range(d_model // 2):
            a = n / base ** (2 * k / d_model)
            table[n, 2 * k], table[n, 2 * k + 1] = math.sin(a), math.cos(a)
    return table


def _size(max_len: int, d_model: int, base: float = 10000.0) -> Case:
    name = f"{max_len} positions, d_model = {d_model}, base {base:g}"
    return Case(name, lambda: (max_len, d_model, base), tol=1e-11)


_TABLE = Exercise(
    title="The sinusoidal table",
    oracle=_by_polar,
    cases=[
        _size(3, 4),
        _size(10, 8),
        _size(8, 8, 100.0),
        _size(5, 2),
        _size(1, 6),
        _size(0, 4),
        _size(300, 16),
        _size(7, 10, 2.5),
        _size(6, 6, 500000.0),
    ],
    wrong=[
        WrongAnswer(
            "the index of the feature doubled",
            "In 2k/d the k is the number of the pair, up to d/2 - 1. With that of the feature the "
            "exponents go up to nearly 2 instead of nearly 1.",
            lambda t, d, base: _per_feature(torch.arange(t), d, base),
        ),
        WrongAnswer(
            "a frequency for every feature",
            "Sine and cosine of a pair share one frequency. Otherwise the pair does not move on a "
            "circle, and no shift matrix exists.",
            lambda t, d, base: _per_raw_feature(torch.arange(t), d, base),
        ),
        WrongAnswer(
            "exponent k/d",
            "The exponent is 2k/d. Without the 2 each power of the base is only the root of what "
            "it should be, and the slow waves are much too short.",
            _table(exponent=lambda k, d: k / d),
        ),
        WrongAnswer(
            "exponents up to one",
            "The exponents are k / (d/2), so the last one is below 1. Some libraries divide by "
            "d/2 - 1; that is another table.",
            _table(exponent=lambda k, d: k / max(d / 2 - 1, 1)),
        ),
        WrongAnswer(
            "frequencies that grow",
            "The position is divided by the power of the base. Multiplied by it, the later pairs "
            "turn ever faster, where they should turn ever more slowly.",
            _table(exponent=lambda k, d: -2 * k / d),
        ),
        WrongAnswer(
            "all sines before all cosines",
            "Sine and cosine of a pair stand next to each other: `torch.stack(..., -1)` and "
            "`flatten`, not `torch.cat`.",
            _table(layout=lambda s, c: torch.cat([s, c], -1)),
        ),
        WrongAnswer(
            "sine and cosine exchanged",
            "Even features are sines, odd ones cosines: row 0 is (0, 1, 0, 1, ...).",
            _table(layout=lambda s, c: torch.stack([c, s], -1).flatten(1)),
        ),
        WrongAnswer(
            "positions counted from one",
            "The first row belongs to position 0: (0, 1, 0, 1, ...).",
            lambda t, d, base: _waves(1 + torch.arange(t), d, base),
        ),
        WrongAnswer(
            "the base fixed at 10000",
            "The argument `base` is not used. Other models take other bases.",
            lambda t, d, base: _by_polar(t, d, 10000.0),
        ),
        WrongAnswer(
            "computed in float32",
            "float32 keeps seven digits of the angle. Take the positions in float64, and round "
            "once, at the end, if at all.",
            lambda t, d, base: _waves(torch.arange(t), d, base, angle=lambda a: a.float().to(F64)),
        ),
    ],
    variants=[_table(), _by_columns],
)


# --- shift(offset, d_model, base) -----------------------------------------------------------------


def _shift_oracle(offset: float, d_model: int, base: float) -> Tensor:
    """The rotation that takes p_0 to p_offset, from the exponential of its generator."""
    generator = torch.zeros(d_model, d_model, dtype=F64)
    for k in range(d_model // 2):
        generator[2 * k + 1, 2 * k] = base ** (-2 * k / d_model)
    matrix: Tensor = torch.linalg.matrix_exp(offset * (generator - generator.T))
    return matrix


Block = Callable[[float, float], list[list[float]]]


@in_parts
def _shift(
    *,
    block: Block = lambda c, s: [[c, -s], [s, c]],
    angle: Callable[[float, float], float] = lambda offset, omega: offset * omega,
    exponent: Callable[[int, int], float] = lambda k, d: 2 * k / d,
) -> Answer:
    def answer(offset: float, d_model: int, base: float) -> Tensor:
        angles = [angle(offset, base ** -exponent(k, d_model)) for k in range(d_model // 2)]
        blocks = [block(math.cos(a), math.sin(a)) for a in angles]
        matrix: Tensor = torch.block_diag(*(torch.tensor(b, dtype=F64) for b in blocks))  # type: ignore[no-untyped-call]
        return matrix

    return answer


def _shift_in_halves(offset: float, d_model: int, base: float) -> Tensor:
    a = offset * base ** (-torch.arange(0, d_model, 2, dtype=F64) / d_model)
    c, s = torch.diag(a.cos()), torch.diag(a.sin())
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)])


def _shift_by_scatter(offset: float, d_model: int, base: float) -> Tensor:
    a = offset * base ** (-torch.arange(0, d_model, 2, dtype=F64) / d_model)
    cosines = torch.diag(a.cos().repeat_interleave(2))
    sines = torch.stack([a.sin(), torch.zeros_like(a)], -1).flatten()[:-1]
    return cosines + torch.diag(sines, -1) - torch.diag(sines, 1)


def _moves(offset: float, d_model: int, base: float = 10000.0) -> Case:
    name = f"offset {offset:g}, d_model = {d_model}, base {base:g}"
    return Case(name, lambda: (offset, d_model, base), tol=1e-11)


_SHIFT = Exercise(
    title="The matrix that moves every position by an offset",
    oracle=_shift_oracle,
    cases=[
        _moves(1, 2),
        _moves(1, 4),
        _moves(3, 8, 100.0),
        _moves(-2, 6, 50.0),
        _moves(0, 4),
        _moves(7, 10),
        _moves(-700, 6),
        _moves(5, 8, 1.0),
    ],
    wrong=[
        WrongAnswer(
            "the transposed matrix",
            "This one moves the other way. It is the right one for columns, M p; for a row on the "
            "left the minus sign stands at the upper right.",
            _shift(block=lambda c, s: [[c, s], [-s, c]]),
        ),
        WrongAnswer(
            "no minus sign",
            "The cosine row has a minus: cos(a + b) = cos a cos b - sin a sin b. Without it the "
            "matrix is not orthogonal.",
            _shift(block=lambda c, s: [[c, s], [s, c]]),
        ),
        WrongAnswer(
            "only the sine row",
            "Both entries of a pair change. Here the sine moves on and the cosine stays.",
            _shift(block=lambda c, s: [[c, 0.0], [s, 1.0]]),
        ),
        WrongAnswer(
            "one frequency for all pairs",
            "Pair k turns by its own angle, offset times omega_k.",
            _shift(exponent=lambda k, d: 0.0),
        ),
        WrongAnswer(
            "the offset forgotten",
            "These are the blocks of one step. For `offset` steps the angle is multiplied by it.",
            _shift(angle=lambda offset, omega: omega),
        ),
        WrongAnswer(
            "the absolute value of the offset",
            "A negative offset turns back. The cosine does not feel the sign, the sine must.",
            _shift(angle=lambda offset, omega: abs(offset) * omega),
        ),
        WrongAnswer(
            "the layout of halves",
            "In this table a sine and its cosine are neighbours, so the blocks stand on the "
            "diagonal.",
            _shift_in_halves,
        ),
    ],
    variants=[_shift(), _shift_by_scatter],
)


# --- equivariance(f, count, width) ----------------------------------------------------------------

Rows = Callable[[Tensor], Tensor]
Orders = Callable[[int], Iterable[Sequence[int]]]


def _small(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() < 1e-9)


def _equivariant(f: Rows, count: int, width: int) -> bool:
    """Every order, up to five rows; beyond, every exchange of two and every turn."""
    x = _draw(count, width, seed=3)
    if count <= 5:
        orders = [*itertools.permutations(range(count))]
    else:
        turns = (tuple(range(k, count)) + tuple(range(k)) for k in range(count))
        orders = [*turns, *_exchanges(count, every=True)]
    for order in orders:
        shuffle = torch.eye(count, dtype=F64)[list(order)]
        if not torch.allclose(f(shuffle @ x), shuffle @ f(x), rtol=0, atol=1e-9):
            return False
    return True


def _exchanges(count: int, every: bool = False) -> list[tuple[int, ...]]:
    """The exchanges of two neighbours, or of every two."""
    found = []
    for i, j in itertools.combinations(range(count), 2):
        if every or j == i + 1:
            order = list(range(count))
            order[i], order[j] = j, i
            found.append(tuple(order))
    return found


def _some_orders(count: int) -> list[tuple[int, ...]]:
    """The exchanges of neighbours, and a turn, which is not its own inverse."""
    return [*_exchanges(count), (*range(1, count), 0)]


@in_parts
def _tested(
    *,
    agree: Callable[[Rows, Tensor, Tensor], bool] = lambda f, x, o: _small(f(x[o]), f(x)[o]),
    orders: Orders = _some_orders,
    rows: Callable[[int, int], Tensor] = lambda t, d: _draw(t, d, seed=5),
) -> Answer:
    def answer(f: Rows, count: int, width: int) -> bool:
        x = rows(count, width)
        return all(agree(f, x, torch.tensor(order)) for order in orders(count))

    return answer


def _one_after_the_other(f: Rows, count: int, width: int) -> bool:
    """Each exchange with rows of its own, and the output turned back."""
    for seed, order in enumerate(_exchanges(count, every=True)):
        x, o = _draw(count, width, seed=seed), torch.tensor(order)
        if not _small(f(x[o])[o.argsort()], f(x)):
            return False
    return True


def _attention(x: Tensor, is_causal: bool = False) -> Tensor:
    x = x[None, None]
    return F.scaled_dot_product_attention(x, x, x, is_causal=is_causal)[0, 0]


def _numbers(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0], dtype=x.dtype)[:, None]


def _of_order(x: Tensor) -> Tensor:
    """The same number everywhere: under another order all entries grow, or all fall."""
    return torch.ones_like(x) * (_numbers(x) * x).sum()


def _doubled(row: Callable[[int], int]) -> Rows:
    """The row of this number, given how many there are, counts double."""
    return lambda x: x * (1 + (_numbers(x) == row(len(x))))


def _function(name: str, f: Rows, count: int = 4, width: int = 3) -> Case:
    return Case(name, lambda: (f, count, width))


_EQUIVARIANCE = Exercise(
    title="Does a function treat rows as attention without positions does?",
    oracle=_equivariant,
    cases=[
        _function("attention", _attention),
        _function("causal attention", lambda x: _attention(x, is_causal=True)),
        _function("attention after positions are added", lambda x: _attention(x + _numbers(x))),
        _function("a function of each row", torch.tanh),
        _function("a function of each row, square input", torch.exp, width=4),
        _function("the mean, repeated for each row", lambda x: x.mean(0).expand_as(x)),
        _function("the running sum", lambda x: x.cumsum(0)),
        _function("rows reversed", lambda x: x.flip(0)),
        _function("rows turned round by one", lambda x: x.roll(1, 0)),
        _function("rows sorted", lambda x: x.sort(0).values),
        _function("the last row doubled", _doubled(lambda count: count - 1)),
        _function("the first row doubled", _doubled(lambda count: 0)),
        _function("the fifth of six rows doubled", _doubled(lambda count: 4), count=6),
        _function("attention, two rows", _attention, count=2, width=1),
        _function("attention, seven rows", _attention, count=7),
        _function("a change of 1e-3 in row 0", lambda x: x + 1e-3 * (_numbers(x) == 0)),
        _function(
            "a change of 5e-9 in row 0, beside numbers of size 10,000",
            lambda x: 1e4 * x.tanh() + 5e-9 * (_numbers(x) == 0),
        ),
        _function("a number of the order, for every row", _of_order),
        _function("its negative, for every row", lambda x: -_of_order(x)),
        _function("running mean of the sines", lambda x: x.sin().cumsum(0) / (1 + _numbers(x))),
    ],
    wrong=[
        WrongAnswer(
            "invariance in place of equivariance",
            "f(x[order]) need not equal f(x): the outputs are shuffled as the inputs are. Only "
            "a summary of all rows, such as the mean, is invariant.",
            _tested(agree=lambda f, x, order: _small(f(x[order]), f(x))),
        ),
        WrongAnswer(
            "the inverse order on the output",
            "If the input is x[order], the output is f(x)[order]. `order.argsort()` undoes a "
            "shuffle, so it belongs on the other side.",
            _tested(agree=lambda f, x, order: _small(f(x[order]), f(x)[order.argsort()])),
        ),
        WrongAnswer(
            "the output not computed from shuffled rows",
            "f(x)[order] is compared with itself, or with what never saw a shuffle. Call f on "
            "x[order] as well, with an order that changes something.",
            _tested(agree=lambda f, x, order: _small(f(x)[order], f(x)[order])),
        ),
        WrongAnswer(
            "rows compared as a set",
            "It matters which row comes out where. Sorting both sides hides that.",
            _tested(
                agree=lambda f, x, order: _small(
                    f(x[order]).sort(0).values, f(x)[order].sort(0).values
                )
            ),
        ),
        WrongAnswer(
            "a wide tolerance",
            "The limit is 1e-9. A small dependence on the position is one all the same.",
            _tested(agree=lambda f, x, order: torch.allclose(f(x[order]), f(x)[order], atol=1e-2)),
        ),
        WrongAnswer(
            "a limit that grows with the numbers",
            "torch.allclose adds `rtol` times the number to the limit, 1e-5 unless you say 0, so "
            "that large numbers may differ by more than 1e-9.",
            _tested(agree=lambda f, x, order: torch.allclose(f(x[order]), f(x)[order], atol=1e-9)),
        ),
        WrongAnswer(
            "only sums over the rows compared",
            "A sum does not know in which row its parts stood. Compare row by row.",
            _tested(agree=lambda f, x, order: _small(f(x[order]).sum(0), f(x).sum(0))),
        ),
        WrongAnswer(
            "all rows turned round by one, and no other order",
            "A function that turns the rows round, too, passes this test. Try the exchange of "
            "every two neighbours.",
            _tested(orders=lambda t: [(*range(1, t), 0)]),
        ),
        WrongAnswer(
            "the reversed order, and no other",
            "A function that reverses the rows passes this test. Try the exchange of every two "
            "neighbours.",
            _tested(orders=lambda t: [tuple(reversed(range(t)))]),
        ),
        WrongAnswer(
            "the first two rows exchanged, and no others",
            "What a function does to the other rows is not seen. Try the exchange of every two "
            "neighbours.",
            _tested(orders=lambda t: _exchanges(t)[:1]),
        ),
        WrongAnswer(
            "the last two rows exchanged, and no others",
            "What a function does to the other rows is not seen. Try the exchange of every two "
            "neighbours.",
            _tested(orders=lambda t: _exchanges(t)[-1:]),
        ),
        WrongAnswer(
            "all rows alike",
            "Rows that are equal can be shuffled unseen. Draw them at random.",
            _tested(rows=lambda t, d: torch.ones(t, d, dtype=F64)),
        ),
        WrongAnswer(
            "rounding taken for a difference",
            "A sum in another order differs in its last digits: by less than 1e-9 in float64, by "
            "more in float32. Draw the rows in float64, and let 1e-9 pass.",
            _tested(rows=lambda t, d: _draw(t, d, seed=5).float()),
        ),
        WrongAnswer(
            "a tensor in place of a bool",
            "Convert the result with `bool(...)`: a caller may write `is True`.",
            lambda f, count, width: torch.tensor(_tested()(f, count, width)),
        ),
    ],
    variants=[
        _tested(),
        _tested(orders=lambda t: _exchanges(t, every=True)),
        _one_after_the_other,
    ],
)


# --- backward(grad_out, tokens, vocab_size) -------------------------------------------------------


def _backward_oracle(grad_out: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    table = torch.zeros(vocab_size, grad_out.shape[-1], dtype=grad_out.dtype, requires_grad=True)
    return torch.autograd.grad(F.embedding(tokens, table), table, grad_out)[0]


def _by_one_hot(grad_out: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    hot = F.one_hot(tokens.flatten(), vocab_size).to(grad_out.dtype)
    return hot.T @ grad_out.reshape(-1, grad_out.shape[-1])


def _summed(grad_out: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    flat = grad_out.reshape(-1, grad_out.shape[-1])
    return flat.new_zeros(vocab_size, flat.shape[1]).index_add(0, tokens.flatten(), flat)


def _counts(tokens: Tensor, vocab_size: int) -> Tensor:
    return tokens.flatten().bincount(minlength=vocab_size)[:, None]


def _kept(grad_out: Tensor, tokens: Tensor, vocab_size: int, last: bool) -> Tensor:
    """The first or the last of the rows that belong to a token."""
    flat, ids = grad_out.reshape(-1, grad_out.shape[-1]), tokens.flatten().tolist()
    grad = flat.new_zeros(vocab_size, flat.shape[1])
    for i in range(len(ids)) if last else reversed(range(len(ids))):
        grad[ids[i]] = flat[i]
    return grad


def _ids(name: str, tokens: Any, vocab_size: int = 6, d: int = 3) -> Case:
    def inputs() -> tuple[Any, ...]:
        ids = torch.tensor(tokens, dtype=torch.int64)
        return _draw(*ids.shape, d), ids, vocab_size

    return Case(name, inputs, tol=1e-12)


_BACKWARD = Exercise(
    title="The gradient of a lookup",
    oracle=_backward_oracle,
    leading={"grad_out": 1, "tokens": 0},
    cases=[
        _ids("five different tokens", [3, 0, 4, 1, 5]),
        _ids("a token that occurs three times", [3, 0, 3, 5, 3]),
        _ids("a batch of two", [[3, 0, 3], [0, 0, 2]]),
        _ids("one token, no other dimension", 4),
        _ids("no tokens", []),
        _ids("two leading dimensions", [[[1, 1], [2, 1]], [[0, 0], [5, 1]]]),
        _ids("as many tokens as rows", [0, 1, 1, 2], vocab_size=4, d=4),
    ],
    wrong=[
        WrongAnswer(
            "the last occurrence wins",
            "`grad[tokens] = ...` and `grad[tokens] += ...` keep one row per token. All "
            "occurrences have to be added: `index_add_`.",
            lambda g, t, v: _kept(g, t, v, last=True),
        ),
        WrongAnswer(
            "the first occurrence wins",
            "Every occurrence of a token used its row, so every one contributes.",
            lambda g, t, v: _kept(g, t, v, last=False),
        ),
        WrongAnswer(
            "the mean over the occurrences",
            "The contributions are added, not averaged: the chain rule has a sum.",
            lambda g, t, v: _summed(g, t, v) / _counts(t, v).clamp_min(1),
        ),
        WrongAnswer(
            "divided by the number of tokens",
            "If the loss is a mean, grad_out already contains that division.",
            lambda g, t, v: _summed(g, t, v) / max(t.numel(), 1),
        ),
        WrongAnswer(
            "the factor of the scaled embedding",
            "This is the gradient of the lookup alone. The factor sqrt(d) belongs to the layer "
            "that multiplies by it.",
            lambda g, t, v: _summed(g, t, v) * math.sqrt(g.shape[-1]),
        ),
        WrongAnswer(
            "a gradient for the rows read only",
            "The gradient has the shape of the table; tokens that do not occur have rows of zeros.",
            lambda g, t, v: _summed(g, t, v)[t.flatten().unique()],
        ),
        WrongAnswer(
            "transposed",
            "The table has one row per token: shape (vocab_size, d).",
            lambda g, t, v: _summed(g, t, v).T,
        ),
    ],
    variants=[_summed, _by_one_hot],
    rules=(autograd(),),
)


# --- tied(weight, tokens, h) ----------------------------------------------------------------------


def _tied_oracle(weight: Tensor, tokens: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    return F.embedding(tokens, weight) * weight.shape[1] ** 0.5, F.linear(h, weight)


@in_parts
def _tied(
    embed: Callable[[Tensor, float], Tensor] = lambda rows, d: rows * math.sqrt(d),
    head: Callable[[Tensor, float], Tensor] = lambda scores, d: scores,
    read: Callable[[Tensor], Tensor] = lambda weight: weight,
    write: Callable[[Tensor], Tensor] = lambda weight: weight,
) -> Answer:
    def answer(weight: Tensor, tokens: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        d = weight.shape[1]
        return embed(read(weight)[tokens], d), head(h @ write(weight).T, d)

    return answer


def _used(name: str, tokens: Any, vocab_size: int, d: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        ids = torch.tensor(tokens)
        weight, h = _draw(vocab_size, d), _draw(*ids.shape, d, seed=1)
        return weight.requires_grad_(), ids, h.requires_grad_()

    return Case(name, inputs, tol=1e-11, grad=True)


_TIED = Exercise(
    title="One matrix as the embedding and as the output head",
    oracle=_tied_oracle,
    leading={"tokens": 0, "h": 1},
    cases=[
        _used("five tokens", [3, 0, 3, 5, 2], 6, 4),
        _used("a batch of two", [[3, 0, 3], [0, 0, 2]], 6, 3),
        _used("one token", 1, 5, 7),
        _used("a square matrix", [1, 0, 2], 4, 4),
        _used("a width of 16", [1, 9, 9], 10, 16),
    ],
    wrong=[
        WrongAnswer(
            "no factor",
            "The embedding is multiplied by sqrt(d_model), so that it is not drowned by the "
            "positions.",
            _tied(embed=lambda rows, d: rows),
        ),
        WrongAnswer(
            "divided by the root",
            "sqrt(d) multiplies the rows. They start with length one and should have length "
            "sqrt(d).",
            _tied(embed=lambda rows, d: rows / math.sqrt(d)),
        ),
        WrongAnswer(
            "the factor at the head too",
            "Only the embedding is scaled. The scores of unit-size rows have size one already.",
            _tied(head=lambda scores, d: scores * math.sqrt(d)),
        ),
        WrongAnswer(
            "the scores divided by the root",
            "That is attention's scale. The head is h times the transposed matrix, nothing more.",
            _tied(head=lambda scores, d: scores / math.sqrt(d)),
        ),
        WrongAnswer(
            "the head detached",
            "The values are right, but the weight gets a gradient from the lookup only. Tied "
            "means one parameter, not a copy.",
            _tied(write=lambda weight: weight.detach()),
        ),
        WrongAnswer(
            "the embedding detached",
            "The values are right, but the weight gets a gradient from the head only.",
            _tied(read=lambda weight: weight.detach()),
        ),
        WrongAnswer(
            "the matrix not transposed",
            "The head needs one score per token: h has d features, so it meets the transposed "
            "matrix.",
            lambda weight, tokens, h: (weight[tokens] * math.sqrt(weight.shape[1]), h @ weight),
        ),
    ],
    variants=[
        _tied(),
        lambda weight, tokens, h: (
            F.one_hot(tokens, len(weight)).to(weight) @ weight * math.sqrt(weight.shape[1]),
            torch.einsum("...d,vd->...v", h, weight),
        ),
    ],
)


# --- mask -----------------------------------------------------------------------------------------

MASK = choice(
    "What a mask changes",
    right="B",
    because="Each of the first two sees other rows than before. The third and the fourth see the "
    "same rows in another order, and a weighted mean does not depend on the order: they stay.",
    tempting={
        "A": (
            "blind to all order",
            "Without a mask that is so, up to the exchange. With one, the first position sees one "
            "row only, and that is another row now.",
        ),
        "C": (
            "order reaches everybody",
            "It takes a second layer for that: only there do the inputs of the later positions "
            "depend on the order of the earlier ones.",
        ),
        "D": (
            "the change comes late",
            "It is the other way round: the later positions see the same set of rows as before.",
        ),
    },
)


# --- blocks ---------------------------------------------------------------------------------------

BLOCKS = choice(
    "What breaks beyond the training length",
    right="D",
    because="What such an entry adds depends on where the two positions stand, not on their "
    "distance alone, and beyond the training length a slow pair has angles it never had before.",
    tempting={
        "A": (
            "the slow pairs by themselves",
            "The damage has to do with them, but their own blocks do none: without these the "
            "learned matrix still finds only a few predecessors beyond 64.",
        ),
        "B": (
            "whatever joins two pairs",
            "The fast pairs have gone all the way round within the training length, so what joins "
            "them was tried at every angle. It does no harm.",
        ),
        "C": (
            "half of the set",
            "These are among them, but the entries between two different slow pairs do damage of "
            "their own.",
        ),
    },
)


EXERCISES = {
    "mask": MASK,
    "blocks": BLOCKS,
    "row": _ROW,
    "table": _TABLE,
    "shift": _SHIFT,
    "equivariance": _EQUIVARIANCE,
    "backward": _BACKWARD,
    "tied": _TIED,
}
