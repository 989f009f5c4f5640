"""Turning: a matrix, a row, an attention, a checkpoint, and a key."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# An honest float64 answer differs from the oracle by rounding only, which is far below this.
EXACT = 1e-10
BASE = 10000.0


def _draw(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, grad: bool = False
) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype).requires_grad_(grad)


def _ids(*positions: int) -> Tensor:
    return torch.tensor(positions, dtype=torch.int64)


def _wide(x: Tensor) -> Tensor:
    """`x` in float32 if it is shorter than that, otherwise as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


# --- relative_matrix ------------------------------------------------------------------------------


def _turn(angle: float) -> Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def _relative_matrix(m: float, n: float, theta: float) -> Tensor:
    return _turn(m * theta).T @ _turn(n * theta)


RELATIVE_MATRIX = Exercise(
    title="The matrix between a query and a key",
    oracle=_relative_matrix,
    cases=[
        Case("positions 3 and 1, frequency 0.5", lambda: (3, 1, 0.5), EXACT),
        Case("the key comes after the query", lambda: (2, 9, 0.3), EXACT),
        Case("equal positions", lambda: (7, 7, 0.9), EXACT),
        Case("the query at position 0", lambda: (0, 4, 0.7), EXACT),
        Case("negative and fractional positions", lambda: (-1.5, 2.25, 1.1), EXACT),
        Case("far along the sequence", lambda: (1003, 1000, 0.01), EXACT),
    ],
    variants=(
        lambda m, n, theta: _turn((n - m) * theta),
        lambda m, n, theta: torch.linalg.matrix_exp(
            (n - m) * theta * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
        ),
    ),
    wrong=(
        WrongAnswer(
            "R(m - n) in place of R(n - m)",
            "The cosines agree and the sines have the other sign. The matrix stands in front of "
            "the key and turns it by n - m.",
            lambda m, n, theta: _turn((m - n) * theta),
        ),
        WrongAnswer(
            "the distance without its sign",
            "A key before the query and one after it are turned in opposite directions: the angle "
            "is (n - m) theta with its sign.",
            lambda m, n, theta: _turn(abs(n - m) * theta),
        ),
        WrongAnswer(
            "angles added",
            "Without the transpose the angles add up to m + n, which is not a distance. The "
            "first factor is the transpose of R_m.",
            lambda m, n, theta: _turn((m + n) * theta),
        ),
        WrongAnswer(
            "the second factor transposed too",
            "q R_m^T times the transpose of k R_n^T is q R_m^T R_n k^T: transposing undoes the "
            "second transpose.",
            lambda m, n, theta: _turn(m * theta).T @ _turn(n * theta).T,
        ),
        WrongAnswer(
            "a reflection",
            "One of the two sines has lost its sign, so the matrix is symmetric: that is a "
            "reflection, of determinant -1, and not a rotation.",
            lambda m, n, theta: (
                torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
                @ _turn((m - n) * theta)
            ),
        ),
        WrongAnswer(
            "the frequency forgotten",
            "A position is turned by its position times theta, not by as many radians as its "
            "position says.",
            lambda m, n, theta: _turn(n - m),
        ),
        WrongAnswer(
            "sine and cosine exchanged",
            "At equal positions nothing is turned, so the matrix has to be the identity there: "
            "the cosines stand on the diagonal.",
            lambda m, n, theta: _turn(math.pi / 2 - (n - m) * theta),
        ),
    ),
)


# --- apply ----------------------------------------------------------------------------------------


def _angles(positions: Tensor, d: int, base: float, dtype: torch.dtype) -> Tensor:
    exponents = torch.arange(0, d, 2, dtype=torch.float64).to(dtype) / d
    return positions.to(dtype)[:, None] / base**exponents


def _blocks(angles: Tensor) -> Tensor:
    """One block-diagonal matrix per row of angles."""
    d = 2 * angles.shape[-1]
    out = torch.zeros(len(angles), d, d, dtype=angles.dtype)
    for k in range(d // 2):
        c, s = angles[:, k].cos(), angles[:, k].sin()
        out[:, 2 * k, 2 * k], out[:, 2 * k, 2 * k + 1] = c, -s
        out[:, 2 * k + 1, 2 * k], out[:, 2 * k + 1, 2 * k + 1] = s, c
    return out


def _apply(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    h = _wide(x)
    matrices = _blocks(_angles(position_ids, x.shape[-1], base, h.dtype))
    return torch.einsum("...tj,tij->...ti", h, matrices).to(x.dtype)


@in_parts
def _pairwise(
    *,
    angles: Callable[[Tensor, int, float, torch.dtype], Tensor] = _angles,
    first: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = lambda a, b, c, s: a * c - b * s,
    second: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = lambda a, b, c, s: a * s + b * c,
    split: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda x: (x[..., ::2], x[..., 1::2]),
    join: Callable[[Tensor, Tensor], Tensor] = lambda a, b: torch.stack([a, b], -1).flatten(-2),
    widen: Callable[[Tensor], Tensor] = _wide,
) -> Answer:
    """RoPE in parts."""

    def answer(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
        h = widen(x)
        theta = angles(position_ids, x.shape[-1], base, h.dtype)
        a, b = split(h)
        c, s = theta.cos(), theta.sin()
        return join(first(a, b, c, s), second(a, b, c, s)).to(x.dtype)

    return answer


def _by_complex(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    h = _wide(x)
    theta = _angles(position_ids, x.shape[-1], base, h.dtype)
    z = torch.complex(h[..., ::2], h[..., 1::2]) * torch.polar(torch.ones_like(theta), theta)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


def _with_rounded_tables(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    theta = _angles(position_ids, x.shape[-1], base, _wide(x).dtype)
    c, s = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x.chunk(2, -1)
    return a, b


APPLY = Exercise(
    title="RoPE with neighbors as pairs",
    oracle=_apply,
    leading={"x": 2},
    cases=[
        Case(
            "heads of width 8, positions 0 to 4",
            lambda: (_draw(2, 3, 5, 8, grad=True), torch.arange(5), BASE),
            EXACT,
            grad=True,
        ),
        Case(
            "positions in another order, with gaps",
            lambda: (_draw(2, 4, 6, seed=1, grad=True), _ids(40, 3, 7, 3), BASE),
            EXACT,
            grad=True,
        ),
        Case("a single pair", lambda: (_draw(3, 2, seed=2), _ids(5, 6, 7), BASE), EXACT),
        Case("another base", lambda: (_draw(2, 4, 8, seed=3), _ids(1, 2, 3, 4), 500000.0), EXACT),
        Case("one new position", lambda: (_draw(1, 2, 1, 8, seed=4), _ids(1000), BASE), EXACT),
        Case(
            "as many heads as positions",
            lambda: (_draw(2, 4, 4, 4, seed=5), _ids(0, 2, 4, 6), BASE),
            EXACT,
        ),
        Case(
            "a transposed view",
            lambda: (_draw(5, 3, 8, seed=6).transpose(0, 1), torch.arange(5), BASE),
            EXACT,
        ),
        Case(
            "bfloat16 at position 300 and beyond",
            lambda: (_draw(3, 8, seed=7, dtype=torch.bfloat16), _ids(300, 301, 1999), BASE),
            2e-2,
        ),
        # Rounded once, at the end, a number is off by less than this; two roundings are seen.
        Case(
            "a single pair in bfloat16, near position 0",
            lambda: (_draw(99, 2, seed=8, dtype=torch.bfloat16), torch.arange(99), BASE),
            4e-3,
        ),
    ],
    variants=(_pairwise(), _by_complex),
    wrong=(
        WrongAnswer(
            "turned the wrong way",
            "The sign of both sines is exchanged, so position m is turned by -m. Scores of q and "
            "k turned alike would still be right for equal positions only.",
            _pairwise(
                first=lambda a, b, c, s: a * c + b * s, second=lambda a, b, c, s: b * c - a * s
            ),
        ),
        WrongAnswer(
            "a reflection",
            "The second line is x0 sin + x1 cos. With a minus there the lengths are still right, "
            "but the scores depend on m + n.",
            _pairwise(second=lambda a, b, c, s: a * s - b * c),
        ),
        WrongAnswer(
            "both signs plus",
            "Exactly one of the two sines carries a minus. Without it the length of the vector "
            "changes with its position.",
            _pairwise(first=lambda a, b, c, s: a * c + b * s),
        ),
        WrongAnswer(
            "halves as pairs",
            "That is the half-split layout, where feature k is paired with k + d/2. Here the "
            "pairs are neighbors.",
            _pairwise(split=_halves, join=lambda a, b: torch.cat([a, b], -1)),
        ),
        WrongAnswer(
            "not put together again",
            "The two features of a pair belong next to each other again. `torch.cat` leaves all "
            "first features in front; `torch.stack(..., -1).flatten(-2)` interleaves.",
            _pairwise(join=lambda a, b: torch.cat([a, b], -1)),
        ),
        WrongAnswer(
            "positions counted from 0",
            "The rows have the positions that `position_ids` says, not 0, 1, 2, ...",
            _pairwise(angles=lambda p, d, b, t: _angles(torch.arange(len(p)), d, b, t)),
        ),
        WrongAnswer(
            "pairs numbered from 1",
            "The first pair has k = 0 and turns by one radian per position. The exponents are "
            "0, 2, 4, ... over d.",
            _pairwise(angles=lambda p, d, b, t: _angles(p, d, b, t) / b ** (2 / d)),
        ),
        WrongAnswer(
            "the 2 of the exponent forgotten",
            "theta_k = base ** (-2k / d). Without the 2 the slowest pair is only half-way down.",
            _pairwise(
                angles=lambda p, d, b, t: p.to(t)[:, None] / b ** (torch.arange(d // 2).to(t) / d)
            ),
        ),
        WrongAnswer(
            "base fixed at 10000",
            "The base is an argument. Models for long contexts are trained with larger ones.",
            _pairwise(angles=lambda p, d, b, t: _angles(p, d, BASE, t)),
        ),
        WrongAnswer(
            "angles in bfloat16",
            "bfloat16 holds whole numbers exactly only up to 256, so that position 301 becomes "
            "302. Compute the angles in float32.",
            _pairwise(widen=lambda x: x),
        ),
        WrongAnswer(
            "turned in bfloat16",
            "The angles are right, but cosines, sines, products and sums are rounded to three "
            "digits, one after the other. Turn in float32, and round once.",
            _with_rounded_tables,
        ),
    ),
)


# --- attention ------------------------------------------------------------------------------------


def _attention(q: Tensor, k: Tensor, v: Tensor, position_ids: Tensor) -> Tensor:
    q, k = (_apply(t, position_ids, BASE) for t in (q, k))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@in_parts
def _attend(
    *,
    turn_q: Answer = _apply,
    turn_k: Answer = _apply,
    turn_v: Answer = lambda v, ids, base: v,
    hidden: float = -math.inf,
    sees: Callable[[Tensor], Tensor] = lambda ids: torch.ones(len(ids), len(ids)).tril().bool(),
    scale: Callable[[int], float] = lambda d: d**-0.5,
) -> Answer:
    """Attention in parts, by hand."""

    def answer(q: Tensor, k: Tensor, v: Tensor, position_ids: Tensor) -> Tensor:
        q, k, v = (
            turn(t, position_ids, BASE) for turn, t in ((turn_q, q), (turn_k, k), (turn_v, v))
        )
        scores = _wide(q @ k.mT) * scale(q.shape[-1])
        scores = scores.masked_fill(~sees(position_ids), hidden)
        return scores.softmax(-1).to(v.dtype) @ v

    return answer


def _before_the_split(
    x: Tensor, position_ids: Tensor, base: float, turn: Answer = _apply
) -> Tensor:
    """Frequencies of d_model, as if the heads lay side by side."""
    merged = x.transpose(1, 2).flatten(2)
    turned: Tensor = turn(merged, position_ids, base)
    return turned.view(*turned.shape[:2], x.shape[1], x.shape[3]).transpose(1, 2)


def _as_found(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    """The turn of the program to repair: another width, positions from 0, angles in x's dtype."""
    return _before_the_split(x, torch.arange(x.shape[2]), base, _pairwise(widen=lambda x: x))


def _along_heads(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    return _apply(x.transpose(1, 2), torch.arange(x.shape[1]), base).transpose(1, 2)


def _as_it_is(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    return x


_in_its_dtype = _pairwise(widen=lambda x: x)


def _from_zero(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    """The first rows of the tables, whatever the positions are."""
    return _apply(x, torch.arange(len(position_ids)), base)


def _float_tables(x: Tensor, position_ids: Tensor, base: float) -> Tensor:
    return _apply(x.float(), position_ids, base)


def _qkv(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, grad: bool = False
) -> tuple[Tensor, ...]:
    return tuple(_draw(*shape, seed=seed + i, dtype=dtype, grad=grad) for i in range(3))


ATTENTION = Exercise(
    title="Causal attention with RoPE in every head",
    oracle=_attention,
    cases=[
        Case(
            "two heads, positions 0 to 4",
            lambda: (*_qkv(2, 2, 5, 8, grad=True), torch.arange(5)),
            EXACT,
            grad=True,
        ),
        Case(
            "positions with gaps, and not in order",
            lambda: (*_qkv(1, 3, 4, 6, seed=3), _ids(2, 300, 10, 40)),
            EXACT,
        ),
        Case(
            "as many heads as positions",
            lambda: (*_qkv(2, 4, 4, 4, seed=6), _ids(0, 1, 5, 6)),
            EXACT,
        ),
        Case("one position", lambda: (*_qkv(1, 2, 1, 4, seed=9), _ids(7)), EXACT),
        Case(
            "bfloat16 at positions 300 to 304",
            lambda: (*_qkv(1, 2, 5, 8, seed=12, dtype=torch.bfloat16), torch.arange(300, 305)),
            5e-2,
        ),
    ],
    variants=(_attend(),),
    wrong=(
        WrongAnswer(
            "the program as it was found",
            "All five mistakes are still in it. In float64, with one head at the positions 0, 1, "
            "2, ..., only two of them show: begin with these.",
            _attend(
                turn_q=_as_found,
                turn_k=_as_found,
                turn_v=_as_found,
                sees=lambda ids: torch.ones(len(ids), len(ids)).bool(),
            ),
        ),
        WrongAnswer(
            "nothing but the mask repaired",
            "Later keys are hidden now, and four mistakes are left. With one head at the positions "
            "0, 1, 2, ..., in float64, one of them shows: the values.",
            _attend(turn_q=_as_found, turn_k=_as_found, turn_v=_as_found),
        ),
        WrongAnswer(
            "turned as in the program that was found",
            "Three of the five mistakes are in its turn, since it takes only `x`: the width, the "
            "positions and the dtype of the angles. Try two heads, then other positions.",
            _attend(turn_q=_as_found, turn_k=_as_found),
        ),
        WrongAnswer(
            "frequencies from d_model",
            "The vectors were turned before they were split, so the heads have different "
            "frequencies, and the last ones hardly turn. Each head gets all of them, from d_head.",
            _attend(turn_q=_before_the_split, turn_k=_before_the_split),
        ),
        WrongAnswer(
            "no causal mask",
            "A position may not see the later ones. RoPE says where a key is, and does not hide "
            "it.",
            _attend(sees=lambda ids: torch.ones(len(ids), len(ids)).bool()),
        ),
        WrongAnswer(
            "causal by the positions",
            "The rows stand in the order in which they came: row i sees the rows up to i, whatever "
            "positions they have.",
            _attend(sees=lambda ids: ids[:, None] >= ids),
        ),
        WrongAnswer(
            "a large negative number for minus infinity",
            "Scores may be as large as that number, and then a later key is seen. Minus infinity "
            "is never reached.",
            _attend(hidden=-1e4),
        ),
        WrongAnswer(
            "angles in bfloat16",
            "bfloat16 holds whole numbers exactly only up to 256, so that position 301 becomes "
            "302. Compute the angles in float32.",
            _attend(turn_q=_in_its_dtype, turn_k=_in_its_dtype),
        ),
        WrongAnswer(
            "the first rows of the tables",
            "The positions are those in `position_ids`. With gaps between them, the rows 0, 1, "
            "2, ... of the tables are the wrong ones.",
            _attend(turn_q=_from_zero, turn_k=_from_zero),
        ),
        WrongAnswer(
            "the values turned too",
            "Only queries and keys are turned. A turned value takes its absolute position into "
            "the output.",
            _attend(turn_v=_apply),
        ),
        WrongAnswer(
            "only the queries turned",
            "With the key left alone the score depends on m, not on m - n.",
            _attend(turn_k=_as_it_is),
        ),
        WrongAnswer(
            "turned along the heads",
            "The dimension of positions is the last but one. Here heads were taken for positions.",
            _attend(turn_q=_along_heads, turn_k=_along_heads),
        ),
        WrongAnswer(
            "no scale",
            "The scores are divided by the root of d_head, with RoPE as without.",
            _attend(scale=lambda d: 1.0),
        ),
        WrongAnswer(
            "float32 for every input",
            "Turned in float32, the queries no longer have the dtype of the values: float64 "
            "loses half its digits, and bfloat16 fails at the product with v.",
            lambda q, k, v, ids: F.scaled_dot_product_attention(
                _float_tables(q, ids, BASE), _float_tables(k, ids, BASE), v.float(), is_causal=True
            ),
        ),
    ),
)


# --- to_interleaved -------------------------------------------------------------------------------


def _to_interleaved(weight: Tensor, num_heads: int) -> Tensor:
    d = weight.shape[0] // num_heads
    rows = []
    for head in range(num_heads):
        for k in range(d // 2):
            rows += [weight[head * d + k], weight[head * d + d // 2 + k]]
    return torch.stack(rows)


def _reordered(order: Callable[[int], Tensor], *, per_head: bool = True) -> Answer:
    def answer(weight: Tensor, num_heads: int) -> Tensor:
        heads = num_heads if per_head else 1
        by_head = weight.reshape(heads, -1, *weight.shape[1:])
        return by_head[:, order(by_head.shape[1])].reshape(weight.shape)

    return answer


def _evens_first(d: int) -> Tensor:
    return torch.cat([torch.arange(0, d, 2), torch.arange(1, d, 2)])


TO_INTERLEAVED = Exercise(
    title="A projection from the half-split to the interleaved layout",
    oracle=_to_interleaved,
    cases=[
        Case("two heads of width 8", lambda: (_draw(16, 12), 2), EXACT),
        Case("three heads of width 6", lambda: (_draw(18, 18, seed=1), 3), EXACT),
        Case("one head", lambda: (_draw(8, 5, seed=2), 1), EXACT),
        Case("a bias", lambda: (_draw(16, seed=3), 2), EXACT),
        Case("a square matrix", lambda: (_draw(24, 24, seed=4), 3), EXACT),
        Case("heads of a single pair", lambda: (_draw(8, 4, seed=5), 4), EXACT),
        Case("a transposed view", lambda: (_draw(7, 24, seed=6).T, 2), EXACT),
    ],
    variants=(
        _reordered(lambda d: _evens_first(d).argsort()),
        lambda weight, num_heads: (
            weight.reshape(num_heads, 2, -1, *weight.shape[1:])
            .transpose(1, 2)
            .reshape(weight.shape)
        ),
    ),
    wrong=(
        WrongAnswer(
            "the other way",
            "Taking the even rows first turns interleaved into half-split. The way back is the "
            "inverse permutation, `argsort` of that one.",
            _reordered(_evens_first),
        ),
        WrongAnswer(
            "all heads at once",
            "Each head is reordered by itself. Across the whole matrix, features of different "
            "heads are mixed.",
            _reordered(lambda d: _evens_first(d).argsort(), per_head=False),
        ),
        WrongAnswer(
            "columns in place of rows",
            "`nn.Linear` stores (out, in), so the features of the query are the rows. The columns "
            "belong to the residual stream.",
            lambda weight, num_heads: (
                _reordered(lambda d: _evens_first(d).argsort())(
                    weight.mT if weight.dim() == 2 else weight, num_heads
                ).mT
                if weight.dim() == 2
                else _to_interleaved(weight, num_heads)
            ),
        ),
        WrongAnswer(
            "nothing changed",
            "The shapes fit without any conversion, and the model runs. Its scores are those of "
            "other pairs.",
            lambda weight, num_heads: weight.clone(),
        ),
        WrongAnswer(
            "halves exchanged",
            "The halves do not change places: row 2k is the old row k, and row 2k + 1 the old row "
            "k + d/2.",
            _reordered(lambda d: torch.arange(d).roll(d // 2)),
        ),
        WrongAnswer(
            "pairs exchanged",
            "Row 2k comes from the first half and row 2k + 1 from the second. The other way round "
            "the pairs turn backwards.",
            _reordered(lambda d: _evens_first(d).argsort().view(-1, 2).flip(-1).flatten()),
        ),
        WrongAnswer(
            "heads exchanged with features",
            "The rows are head after head: (num_heads, d_head, ...), not (d_head, num_heads, ...).",
            lambda weight, num_heads: (
                weight.reshape(2, -1, num_heads, *weight.shape[1:])
                .transpose(0, 1)
                .reshape(weight.shape)
            ),
        ),
    ),
)


# --- look_back ------------------------------------------------------------------------------------


def _look_back(q: Tensor, distance: int, base: float) -> Tensor:
    return _apply(q[None], _ids(distance), base)[0]


def _by_rotation(turned: Answer) -> Answer:
    """A key made from the query by one of the ways to turn it."""
    return lambda q, distance, base: turned(q[None], _ids(distance), base)[0]


LOOK_BACK = Exercise(
    title="A key for a distance",
    oracle=_look_back,
    cases=[
        Case("three positions back", lambda: (_draw(8), 3, BASE), EXACT),
        Case("three hundred positions back", lambda: (_draw(128, seed=1), 300, BASE), EXACT),
        Case("the token itself", lambda: (_draw(6, seed=2), 0, BASE), EXACT),
        Case("another base", lambda: (_draw(16, seed=3), 40, 500000.0), EXACT),
        Case("a single pair", lambda: (_draw(2, seed=4), 5, BASE), EXACT),
    ],
    variants=(
        _by_rotation(_pairwise()),
        lambda q, distance, base: torch.linalg.solve(
            _blocks(_angles(_ids(-distance), len(q), base, q.dtype))[0], q
        ),
    ),
    wrong=(
        WrongAnswer(
            "the query itself",
            "That key is met best by a query at the same position: after turning, the two lie on "
            "each other at distance 0.",
            lambda q, distance, base: q.clone(),
        ),
        WrongAnswer(
            "turned the other way",
            "This key is the best one for a query that stands before it. The query is turned "
            "further than the key, so the key needs those turns beforehand.",
            lambda q, distance, base: _apply(q[None], _ids(-distance), base)[0],
        ),
        WrongAnswer(
            "halves as pairs",
            "That is the half-split layout, where feature k is paired with k + d/2. Here the "
            "pairs are neighbors.",
            _by_rotation(_pairwise(split=_halves, join=lambda a, b: torch.cat([a, b], -1))),
        ),
        WrongAnswer(
            "base fixed at 10000",
            "The base is an argument: with another one each pair has another speed.",
            lambda q, distance, base: _look_back(q, distance, BASE),
        ),
        WrongAnswer(
            "of length one",
            "The direction is right, but the key is to be as long as the query.",
            lambda q, distance, base: _look_back(q, distance, base) / torch.linalg.vector_norm(q),
        ),
        WrongAnswer(
            "one position too many",
            "The distance is the difference of the two positions; a key at the query's own "
            "position has the distance 0.",
            lambda q, distance, base: _look_back(q, distance + 1, base),
        ),
        WrongAnswer(
            "one speed for all pairs",
            "Each pair turns by a speed of its own, so each has to be brought back by its own "
            "angle.",
            _by_rotation(_pairwise(angles=lambda p, d, b, t: p.to(t)[:, None].expand(-1, d // 2))),
        ),
    ),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)
