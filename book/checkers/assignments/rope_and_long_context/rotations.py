"""Questions of the assignment: partial_rope, rope_backward, rope_2d, repair_keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, thetas, turned_halves, turned_pairs
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts


def _one_after_the_other(x: Tensor, angles: Tensor) -> Tensor:
    """As if the first of each pair were overwritten before the second is made."""
    a, b = x[..., ::2], x[..., 1::2]
    a = a * angles.cos() - b * angles.sin()
    b = a * angles.sin() + b * angles.cos()
    return torch.stack([a, b], -1).flatten(-2)


# --- partial_rope ---------------------------------------------------------------------------------


def _partial(x: Tensor, position_ids: Tensor, rotary_dim: int, base: float) -> Tensor:
    angles = position_ids.to(torch.float64)[:, None] * thetas(rotary_dim, base)
    turned = turned_pairs(x[..., :rotary_dim], angles) if rotary_dim else x[..., :0]
    return torch.cat([turned, x[..., rotary_dim:]], -1)


@in_parts
def _partial_with(
    freqs: Callable[[int, int, float], Tensor] = lambda d, r, base: thetas(r, base),
    turn: Callable[[Tensor, Tensor], Tensor] = turned_pairs,
    last: bool = False,
    rest: Callable[[Tensor], Tensor] = lambda x: x,
    positions: Callable[[Tensor], Tensor] = lambda p: p,
) -> Answer:
    def answer(x: Tensor, position_ids: Tensor, rotary_dim: int, base: float) -> Tensor:
        d = x.shape[-1]
        if rotary_dim == 0:
            return rest(x).clone()
        angles = positions(position_ids).to(x.dtype)[:, None] * freqs(d, rotary_dim, base)
        if last:
            return torch.cat([x[..., : d - rotary_dim], turn(x[..., d - rotary_dim :], angles)], -1)
        return torch.cat([turn(x[..., :rotary_dim], angles), rest(x[..., rotary_dim:])], -1)

    return answer


def _partial_by_pairs(x: Tensor, position_ids: Tensor, rotary_dim: int, base: float) -> Tensor:
    columns = list(x.unbind(-1))
    for k in range(rotary_dim // 2):
        angle = position_ids.to(x.dtype) * base ** (-2 * k / rotary_dim)
        a, b = columns[2 * k], columns[2 * k + 1]
        columns[2 * k] = a * angle.cos() - b * angle.sin()
        columns[2 * k + 1] = a * angle.sin() + b * angle.cos()
    return torch.stack(columns, -1)


def _partial_case(name: str, d: int, r: int, positions: Sequence[int], base: float = 1e4) -> Case:
    def inputs() -> tuple[Any, ...]:
        x = draw(2, 3, len(positions), d).requires_grad_()
        return x, torch.tensor(positions), r, base

    return Case(name, inputs, EXACT, grad=True)


_PARTIAL = Exercise(
    title="Only some of the features turn",
    oracle=_partial,
    cases=(
        _partial_case("values: a half of eight features", 8, 4, [0, 1, 2, 3]),
        _partial_case("values: a quarter of sixteen", 16, 4, [0, 1, 2]),
        _partial_case("values: six of eight", 8, 6, [5, 6, 7]),
        _partial_case("values: six of ten, another base", 10, 6, [3, 900, 2], 500_000.0),
        _partial_case("corners: positions out of order", 12, 6, [7, 0, 7, 100]),
        _partial_case("corners: a width that is odd", 9, 4, [2, 4, 6]),
        _partial_case("corners: every feature", 6, 6, [1, 2, 3]),
        _partial_case("corners: none", 4, 0, [1, 2]),
    ),
    wrong=(
        WrongAnswer(
            "frequencies from the whole width",
            "The exponent is -2k over the number of features that turn, not over d_head.",
            _partial_with(freqs=lambda d, r, base: thetas(d, base)[: r // 2] if d % 2 == 0 else
                          base ** (-torch.arange(0, r, 2, dtype=torch.float64) / d)),
        ),
        WrongAnswer(
            "frequencies in single precision",
            "x is in double precision: then frequencies and angles have to be, too.",
            _partial_with(
                freqs=lambda d, r, base: (
                    (base ** (-torch.arange(0, r, 2, dtype=torch.float32) / r)).double()
                )
            ),
        ),
        WrongAnswer(
            "the last features turn",
            "The first rotary_dim features turn; those behind them pass through.",
            _partial_with(last=True),
        ),
        WrongAnswer(
            "the rest set to zero",
            "Features that do not turn carry content. They are returned as they came.",
            _partial_with(rest=torch.zeros_like),
        ),
        WrongAnswer(
            "halves as pairs",
            "Here neighbours form a pair: (0, 1), (2, 3), ...",
            _partial_with(turn=turned_halves),
        ),
        WrongAnswer(
            "turned the wrong way",
            "A positive angle takes (1, 0) to (cos, sin): the sine of the first goes with a plus.",
            _partial_with(turn=lambda x, angles: turned_pairs(x, -angles)),
        ),
        WrongAnswer(
            "rows counted instead of position_ids",
            "The positions are given. Row t need not stand at position t.",
            _partial_with(positions=lambda p: torch.arange(len(p))),
        ),
        WrongAnswer(
            "the exponent without the 2",
            "Pair k is made of two features, so that the exponents go down to almost -1, not to "
            "-1 / 2.",
            _partial_with(freqs=lambda d, r, base: thetas(r, base).sqrt()),
        ),
        WrongAnswer(
            "positions counted from 1",
            "The positions are given as they are. A row at position 0 is not turned at all.",
            _partial_with(positions=lambda p: p + 1),
        ),
        WrongAnswer(
            "the second of a pair from the turned first",
            "Both features of a pair are made of the old two. Here the first is overwritten "
            "before the second is made.",
            _partial_with(turn=_one_after_the_other),
        ),
    ),
    variants=(_partial_by_pairs, _partial_with()),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)  # fmt: skip


# --- rope_backward --------------------------------------------------------------------------------


def _backward(
    grad_out: Tensor, x: Tensor, position_ids: Tensor, inv_freq: Tensor
) -> tuple[Tensor, Tensor]:
    x_, f = x.detach().clone().requires_grad_(), inv_freq.detach().clone().requires_grad_()
    out = turned_halves(x_, position_ids.to(x.dtype)[:, None] * f)
    gx, gf = torch.autograd.grad(out, (x_, f), grad_out)
    return gx, gf


@in_parts
def _backward_with(
    turn: Callable[[Tensor, Tensor], Tensor] = lambda g, a: turned_halves(g, -a),
    weigh: Callable[[Tensor, Tensor], Tensor] = lambda ga, p: (ga * p[:, None]).sum(0),
    before: bool = False,
    sign: float = 1.0,
    over: str = "all",
    counted: bool = False,
    along: bool = False,
) -> Answer:
    """By hand: the gradient of an angle is that of the turned pair times the pair's tangent."""

    def answer(
        grad_out: Tensor, x: Tensor, position_ids: Tensor, inv_freq: Tensor
    ) -> tuple[Tensor, Tensor]:
        p = position_ids.to(x.dtype)
        if counted:
            p = torch.arange(len(p)).to(x.dtype)
        angles = p[:, None] * inv_freq
        a, b = (x if before else turned_halves(x, angles)).chunk(2, -1)
        ga, gb = grad_out.chunk(2, -1)
        each = sign * (gb * a - ga * b)
        if along:
            each = ga * a + gb * b
        rows = each.flatten(0, -3)
        total = rows.sum(0) if over == "all" else rows.mean(0)
        return turn(grad_out, angles), weigh(total, p)

    return answer


def _backward_loops(
    grad_out: Tensor, x: Tensor, position_ids: Tensor, inv_freq: Tensor
) -> tuple[Tensor, Tensor]:
    half = len(inv_freq)
    gx, gf = torch.zeros_like(x), torch.zeros_like(inv_freq)
    for t, p in enumerate(position_ids.tolist()):
        for k in range(half):
            c, s = (p * inv_freq[k]).cos(), (p * inv_freq[k]).sin()
            a, b = x[..., t, k], x[..., t, k + half]
            g, h = grad_out[..., t, k], grad_out[..., t, k + half]
            gx[..., t, k], gx[..., t, k + half] = g * c + h * s, h * c - g * s
            gf[k] += (p * (g * (-a * s - b * c) + h * (a * c - b * s))).sum()
    return gx, gf


def _backward_case(name: str, lead: tuple[int, ...], d: int, positions: Sequence[int]) -> Case:
    def inputs() -> tuple[Any, ...]:
        shape = (*lead, len(positions), d)
        # No powers of one base, so that nothing can be rebuilt from the width.
        freqs = draw(d // 2, seed=2).abs()
        return draw(*shape), draw(*shape, seed=1), torch.tensor(positions), freqs

    return Case(name, inputs, 1e-9)


_BACKWARD = Exercise(
    title="A rotation backwards, with its frequencies",
    oracle=_backward,
    cases=(
        _backward_case("values: one head, three rows", (1, 1), 4, [0, 1, 2]),
        _backward_case("values: batch and heads", (2, 3), 6, [0, 1, 2, 3]),
        _backward_case("corners: a chunk behind a cache", (2, 2), 4, [301, 302, 303]),
        _backward_case("corners: positions out of order", (1, 3), 8, [5, 0, 40, 5]),
        _backward_case("corners: one pair", (2, 1), 2, [3, 4]),
        _backward_case("corners: one row", (3, 2), 4, [6]),
    ),
    wrong=(
        WrongAnswer(
            "turned forwards again",
            "The gradient goes through the transpose of R, which turns by the negative angle.",
            _backward_with(turn=turned_halves),
        ),
        WrongAnswer(
            "gradient not turned",
            "A rotation keeps lengths, but the gradient's direction has to be turned back.",
            _backward_with(turn=lambda g, a: g.clone()),
        ),
        WrongAnswer(
            "the position left out of the chain rule",
            "The angle is position times frequency, so a frequency's gradient has the factor p.",
            _backward_with(weigh=lambda ga, p: ga.sum(0)),
        ),
        WrongAnswer(
            "the tangent of the row before it was turned",
            "The derivative of a turned pair (a, b) by its angle is (-b, a), of the turned pair.",
            _backward_with(before=True),
        ),
        WrongAnswer(
            "the sign of the frequencies' gradient",
            "With the turned pair (a, b) and its gradient (g, h) it is h a - g b.",
            _backward_with(sign=-1.0),
        ),
        WrongAnswer(
            "mean over batch and heads",
            "All heads of all sequences share the frequencies: their gradients add up.",
            _backward_with(over="mean"),
        ),
        WrongAnswer(
            "neighbours as pairs",
            "In this question feature k goes with feature k + d_head / 2.",
            lambda grad_out, x, position_ids, inv_freq: _neighbours_backward(
                grad_out, x, position_ids, inv_freq
            ),
        ),
        WrongAnswer(
            "rows counted instead of position_ids",
            "The positions are given. Row t need not stand at position t, nor does the first "
            "one at 0.",
            _backward_with(counted=True),
        ),
        WrongAnswer(
            "the gradient along the pair",
            "A pair that is turned moves across itself, not along: a longer pair has the same "
            "angle.",
            _backward_with(along=True),
        ),
        WrongAnswer(
            "mean over the rows",
            "All rows are turned with the same frequencies, so that what comes back from them "
            "adds up.",
            _backward_with(weigh=lambda ga, p: (ga * p[:, None]).mean(0)),
        ),
    ),
    variants=(_backward_with(), _backward_loops),
)


def _neighbours_backward(
    grad_out: Tensor, x: Tensor, position_ids: Tensor, inv_freq: Tensor
) -> tuple[Tensor, Tensor]:
    angles = position_ids.to(x.dtype)[:, None] * inv_freq
    y = turned_pairs(x, angles)
    each = grad_out[..., 1::2] * y[..., ::2] - grad_out[..., ::2] * y[..., 1::2]
    total = each.flatten(0, -3).sum(0)
    return turned_pairs(grad_out, -angles), (total * position_ids.to(x.dtype)[:, None]).sum(0)


# --- rope_2d --------------------------------------------------------------------------------------


def _two_d(x: Tensor, height: int, width: int, base: float) -> Tensor:
    d = x.shape[-1]
    out = []
    for n in range(height * width):
        row, column = divmod(n, width)
        theta = thetas(d // 2, base)
        out.append(turned_pairs(x[..., n, :], torch.cat([row * theta, column * theta])))
    return torch.stack(out, -2)


@in_parts
def _two_d_with(
    freqs: Callable[[int, float], Tensor] = lambda d, base: thetas(d // 2, base),
    where: Callable[[Tensor, int, int], tuple[Tensor, Tensor]] = lambda n, h, w: (n // w, n % w),
    order: str = "halves",
    turn: Callable[[Tensor, Tensor], Tensor] = turned_pairs,
) -> Answer:
    def answer(x: Tensor, height: int, width: int, base: float) -> Tensor:
        theta = freqs(x.shape[-1], base)
        row, column = where(torch.arange(height * width), height, width)
        a, b = row[:, None] * theta, column[:, None] * theta
        angles = torch.cat([a, b], -1) if order == "halves" else torch.stack([a, b], -1).flatten(-2)
        return turn(x, angles)

    return answer


def _two_d_one_after_the_other(x: Tensor, height: int, width: int, base: float) -> Tensor:
    grid = x.unflatten(-2, (height, width))  # type: ignore[no-untyped-call]
    a, b = grid.chunk(2, -1)
    theta = thetas(x.shape[-1] // 2, base)
    rows = torch.arange(height, dtype=x.dtype)[:, None, None] * theta
    columns = torch.arange(width, dtype=x.dtype)[:, None] * theta
    turned = torch.cat(
        [
            turned_pairs(a, rows.expand(height, width, -1)),
            turned_pairs(b, columns.expand(height, width, -1)),
        ],
        -1,
    )
    return turned.flatten(-3, -2)


def _two_d_case(name: str, height: int, width: int, d: int, base: float = 100.0) -> Case:
    def inputs() -> tuple[Any, ...]:
        return draw(2, 2, height * width, d).requires_grad_(), height, width, base

    return Case(name, inputs, EXACT, grad=True)


_TWO_D = Exercise(
    title="Rows and columns of an image",
    oracle=_two_d,
    cases=(
        _two_d_case("values: two rows of three", 2, 3, 8),
        _two_d_case("values: five rows of two", 5, 2, 8),
        _two_d_case("values: a square", 3, 3, 16),
        _two_d_case("corners: one row", 1, 5, 8),
        _two_d_case("corners: one column", 4, 1, 12),
        _two_d_case("values: twelve features, base 10000", 4, 3, 12, 1e4),
        _two_d_case("corners: one pair each", 3, 2, 4),
    ),
    wrong=(
        WrongAnswer(
            "rows and columns exchanged",
            "The first half of the features turns with the row, the second with the column.",
            _two_d_with(where=lambda n, h, w: (n % w, n // w)),
        ),
        WrongAnswer(
            "divided by the height",
            "Patches are numbered row by row: the row is n // width, the column n % width.",
            _two_d_with(where=lambda n, h, w: (n // h, n % w)),
        ),
        WrongAnswer(
            "numbered column by column",
            "Patches are numbered row by row: patch 1 is to the right of patch 0, not below it.",
            _two_d_with(where=lambda n, h, w: (n % h, n // h)),
        ),
        WrongAnswer(
            "the position in the sequence",
            "The number of a patch does not tell which one is below it. Use its row and column.",
            _two_d_with(where=lambda n, h, w: (n, n)),
        ),
        WrongAnswer(
            "frequencies from the whole width",
            "Each half is a rotation of its own, with all frequencies of d_head / 2 features.",
            _two_d_with(freqs=lambda d, base: thetas(d, base)[: d // 4]),
        ),
        WrongAnswer(
            "rows and columns take turns",
            "The first d_head / 4 pairs are for the row, the others for the column.",
            _two_d_with(order="alternate"),
        ),
        WrongAnswer(
            "halves as pairs",
            "Here neighbours form a pair: (0, 1), (2, 3), ...",
            _two_d_with(turn=turned_halves),
        ),
        WrongAnswer(
            "counted from 1",
            "The first patch stands in row 0 and column 0 and is not turned at all.",
            _two_d_with(where=lambda n, h, w: (n // w + 1, n % w + 1)),
        ),
        WrongAnswer(
            "turned the wrong way",
            "A positive angle takes (1, 0) to (cos, sin): the sine of the first goes with a plus.",
            _two_d_with(turn=lambda x, angles: turned_pairs(x, -angles)),
        ),
        WrongAnswer(
            "row and column added",
            "The sum is the same for all patches of a diagonal. Each direction has features of "
            "its own.",
            _two_d_with(where=lambda n, h, w: (n // w + n % w, n // w + n % w)),
        ),
    ),
    variants=(_two_d_with(), _two_d_one_after_the_other),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)


# --- repair_keys ----------------------------------------------------------------------------------


def _starts(chunks: Sequence[int]) -> Tensor:
    return torch.tensor([sum(chunks[:i]) for i, n in enumerate(chunks) for _ in range(n)])


def _repair(keys: Tensor, chunks: Sequence[int], inv_freq: Tensor) -> Tensor:
    out = keys.detach().clone()
    place = 0
    for n in chunks:
        for t in range(place, place + n):
            out[..., t, :] = turned_pairs(keys[..., t, :], place * inv_freq)
        place += n
    return out


@in_parts
def _repair_with(
    offsets: Callable[[Sequence[int]], Tensor] = _starts,
    turn: Callable[[Tensor, Tensor], Tensor] = turned_pairs,
) -> Answer:
    def answer(keys: Tensor, chunks: Sequence[int], inv_freq: Tensor) -> Tensor:
        return turn(keys, offsets(chunks).to(keys.dtype)[:, None] * inv_freq)

    return answer


def _within(chunks: Sequence[int]) -> Tensor:
    return torch.cat([torch.arange(n) for n in chunks])


def _repair_from_raw(keys: Tensor, chunks: Sequence[int], inv_freq: Tensor) -> Tensor:
    raw = turned_pairs(keys, -_within(chunks).to(keys.dtype)[:, None] * inv_freq)
    return turned_pairs(raw, torch.arange(sum(chunks)).to(keys.dtype)[:, None] * inv_freq)


def _previous(chunks: Sequence[int]) -> Tensor:
    before = [0, *chunks[:-1]]
    return torch.tensor([before[i] for i, n in enumerate(chunks) for _ in range(n)])


def _ends(chunks: Sequence[int]) -> Tensor:
    return torch.tensor([sum(chunks[: i + 1]) for i, n in enumerate(chunks) for _ in range(n)])


def _repair_in_place(keys: Tensor, chunks: Sequence[int], inv_freq: Tensor) -> Tensor:
    return keys.copy_(_repair(keys, chunks, inv_freq))


def _repair_case(name: str, chunks: Sequence[int], d: int = 6) -> Case:
    def inputs() -> tuple[Any, ...]:
        return draw(2, 2, sum(chunks), d), list(chunks), draw(d // 2, seed=1).abs()

    return Case(name, inputs, EXACT)


_REPAIR = Exercise(
    title="Keys that were cached at the wrong positions",
    oracle=_repair,
    cases=(
        _repair_case("values: a prompt and three tokens", [4, 1, 1, 1]),
        _repair_case("values: three chunks of unequal length", [2, 5, 3]),
        _repair_case("values: token by token", [1, 1, 1, 1, 1]),
        _repair_case("values: equal chunks", [3, 3, 3], d=4),
        _repair_case("corners: a chunk that is empty", [2, 0, 3, 2]),
        _repair_case("corners: one pair", [3, 2, 2], d=2),
        _repair_case("corners: one chunk, nothing to repair", [6]),
    ),
    wrong=(
        WrongAnswer(
            "turned by the whole position",
            "The keys are turned by their place in the chunk already. Only the start is missing.",
            _repair_with(offsets=lambda chunks: torch.arange(sum(chunks))),
        ),
        WrongAnswer(
            "the offset of the second chunk for all",
            "Each chunk stands behind all earlier ones, so that its start is their sum.",
            _repair_with(offsets=_previous),
        ),
        WrongAnswer(
            "turned back instead of on",
            "The keys have turned too little. The missing angle is added, not taken away.",
            _repair_with(turn=lambda x, angles: turned_pairs(x, -angles)),
        ),
        WrongAnswer(
            "the number of the chunk as the offset",
            "Positions count tokens, not chunks: add up the lengths.",
            _repair_with(
                offsets=lambda chunks: torch.tensor([i for i, n in enumerate(chunks)
                                                     for _ in range(n)])
            ),
        ),
        WrongAnswer(
            "the first position of a chunk off by one",
            "The tokens before a chunk have positions 0 to n - 1, so that it starts at n.",
            _repair_with(offsets=lambda chunks: (_starts(chunks) - 1).clamp(min=0)),
        ),
        WrongAnswer(
            "halves as pairs",
            "Here neighbours form a pair: (0, 1), (2, 3), ...",
            _repair_with(turn=turned_halves),
        ),
        WrongAnswer(
            "the end of each chunk",
            "A sum that has the chunk itself in it is where the next one starts.",
            _repair_with(offsets=_ends),
        ),
        WrongAnswer(
            "turned once more within the chunk",
            "The place in the chunk is what the keys have been turned by. It is the rest that "
            "is missing.",
            _repair_with(offsets=_within),
        ),
        WrongAnswer(
            "the second of a pair from the turned first",
            "Both features of a pair are made of the old two. Here the first is overwritten "
            "before the second is made.",
            _repair_with(turn=_one_after_the_other),
        ),
        WrongAnswer(
            "the broken cache changed",
            "A new tensor was asked for; the keys that were passed in must stay as they were.",
            _repair_in_place,
        ),
    ),
    variants=(_repair_with(), _repair_from_raw),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)  # fmt: skip


EXERCISES = {
    "partial_rope": _PARTIAL,
    "rope_backward": _BACKWARD,
    "rope_2d": _TWO_D,
    "repair_keys": _REPAIR,
}
