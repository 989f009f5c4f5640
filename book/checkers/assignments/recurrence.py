"""The questions of the assignment on recurrence.

The oracles go from token to token and solve what they undo, never through the book's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# --- undo_token -----------------------------------------------------------------------------------


def _undo_token(state: Tensor, k: Tensor, v: Tensor, alpha: float, beta: float) -> Tensor:
    """By solving the linear equations of the step."""
    d = len(k)
    step = torch.eye(d, dtype=state.dtype) - beta * torch.outer(k, k)
    if abs(1 - beta * float(k @ k)) < 1e-9 or alpha == 0:
        raise ValueError("the token erased what it wrote over")
    before: Tensor = torch.linalg.solve(alpha * step, state - beta * torch.outer(k, v))
    return before


@in_parts
def _undo_with(
    written: Callable[[float, Tensor, Tensor], Tensor] = (
        lambda beta, k, v: beta * torch.outer(k, v)
    ),
    factor: Callable[[float, float], float] = lambda beta, length: beta / (1 - beta * length),
    length: Callable[[Tensor], float] = lambda k: float(k @ k),
    put_back: Callable[[Tensor, Tensor], Tensor] = lambda k, rest: torch.outer(k, k @ rest),
    fade: Callable[[Tensor, float], Tensor] = lambda table, alpha: table / alpha,
    lost: Callable[[float, float, float], bool] = (
        lambda beta, length, alpha: abs(1 - beta * length) < 1e-9 or alpha == 0
    ),
    error: type[Exception] = ValueError,
) -> Answer:
    def answer(state: Tensor, k: Tensor, v: Tensor, alpha: float, beta: float) -> Tensor:
        n = length(k)
        if lost(beta, n, alpha):
            raise error("what was there is lost")
        rest = state - written(beta, k, v)
        scale = 1 - beta * n
        gain = factor(beta, n) if scale else math.inf
        return fade(rest + gain * put_back(k, rest), alpha or math.inf)

    return answer


def _undo_case(
    name: str, d: int, e: int, alpha: float, beta: float, *, size: float = 1.0,
    unit: bool = True, raises: type[Exception] | None = None,
) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        before, v = draw(d, e, seed=d + e), draw(e, seed=e)
        k = draw(d, seed=d)
        k = size * k / k.norm() if unit else torch.zeros_like(k)
        faded = alpha * before
        after = faded + beta * torch.outer(k, v - k @ faded)
        return after, k, v, alpha, beta

    return Case(name, inputs, 1e-8, raises=raises)


_UNDO = Exercise(
    title="A token taken back",
    oracle=_undo_token,
    cases=(
        _undo_case("values: half a step", 3, 4, 1.0, 0.5),
        _undo_case("values: a table that faded", 4, 3, 0.9, 0.6),
        _undo_case("values: a step too far", 3, 2, 0.8, 1.5),
        _undo_case("values: a long key", 4, 5, 0.95, 0.3, size=1.5),
        _undo_case("values: a short key", 5, 2, 0.7, 1.0, size=0.5),
        _undo_case("values: one column", 3, 1, 0.9, 0.4),
        _undo_case("corners: nothing was written", 3, 3, 0.5, 0.0),
        _undo_case("corners: a key of zeros", 3, 2, 0.6, 0.7, unit=False),
        _undo_case("corners: one row", 1, 3, 0.9, 0.25),
        _undo_case("lost: the old value was replaced", 3, 3, 0.9, 1.0, raises=ValueError),
        _undo_case("lost: a long key, a small step", 4, 2, 1.0, 0.25, size=2.0, raises=ValueError),
        _undo_case("lost: the table was emptied", 3, 3, 0.0, 0.5, raises=ValueError),
    ),
    wrong=(
        WrongAnswer(
            "what was written subtracted, and no more",
            "The step also took from the table what the key read: that has to come back.",
            _undo_with(put_back=lambda k, rest: torch.zeros_like(rest)),
        ),
        WrongAnswer(
            "the step made backwards",
            "A second step with minus beta is no inverse: what lay along the key shrank.",
            _undo_with(factor=lambda beta, length: beta),
        ),
        WrongAnswer(
            "the sign of the correction",
            "What is along the key shrank by 1 - beta, so that it has to be made larger.",
            _undo_with(factor=lambda beta, length: beta / (1 + beta * length)),
        ),
        WrongAnswer(
            "keys taken to have length 1",
            "A key may have any length: the part along it shrank by 1 - beta times its square.",
            _undo_with(length=lambda k: 1.0),
        ),
        WrongAnswer(
            "length for its square",
            "k k^T has the square of the key's length as its eigenvalue, not the length.",
            _undo_with(length=lambda k: float(k.norm())),
        ),
        WrongAnswer(
            "the fading left out",
            "The table faded before the token wrote: divide by alpha at the end.",
            _undo_with(fade=lambda table, alpha: table),
        ),
        WrongAnswer(
            "faded once more",
            "To undo a factor alpha, divide by it.",
            _undo_with(fade=lambda table, alpha: table * alpha),
        ),
        WrongAnswer(
            "the whole value taken out",
            "The token wrote beta times its value, not all of it.",
            _undo_with(written=lambda beta, k, v: torch.outer(k, v)),
        ),
        WrongAnswer(
            "the value not taken out",
            "First what the token wrote, beta times key times value, has to be taken out.",
            _undo_with(written=lambda beta, k, v: 0 * torch.outer(k, v)),
        ),
        WrongAnswer(
            "a lost table given back",
            "Where beta times the key's square is 1, or alpha is 0, what was there is lost.",
            _undo_with(lost=lambda beta, length, alpha: False),
        ),
        WrongAnswer(
            "only the emptied table refused",
            "A step that replaces the key's value erases it, and that cannot be undone either.",
            _undo_with(lost=lambda beta, length, alpha: alpha == 0),
        ),
        WrongAnswer(
            "another exception",
            "A `ValueError` was asked for where the table before cannot be known.",
            _undo_with(error=ZeroDivisionError),
        ),
    ),
    variants=(_undo_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "what was erased almost is not known in 16 bits"),
        **dict.fromkeys(("tiny", "huge"), "whether a key can be undone hangs on its length"),
    },
)  # fmt: skip


# --- fading_chunks --------------------------------------------------------------------------------


def _fading_chunks(q: Tensor, k: Tensor, v: Tensor, g: Tensor, size: int) -> Tensor:
    """Token by token; the size of the chunks does not matter."""
    table = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype)
    rows = []
    for t in range(len(q)):
        table = g[t].exp()[:, None] * table + torch.outer(k[t], v[t])
        rows.append(q[t] @ table)
    return torch.stack(rows) if rows else v.new_zeros(0, v.shape[1])


@in_parts
def _chunks_with(
    inside: Callable[[Tensor, Tensor], Tensor] = lambda a, b: a - b,
    mask: int = 0,
    read: Callable[[Tensor, Tensor], Tensor] = lambda since, g: since,
    kept: Callable[[Tensor], Tensor] = lambda since: since[-1:],
    write: Callable[[Tensor], Tensor] = lambda since: since[-1:] - since,
    carry: bool = True,
    per_feature: Callable[[Tensor], Tensor] = lambda g: g,
    start: Callable[[Tensor, int], Tensor] = lambda part, begin: part.cumsum(0),
    scale: float = 1.0,
) -> Answer:
    def answer(q: Tensor, k: Tensor, v: Tensor, g: Tensor, size: int) -> Tensor:
        table = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype)
        outs = []
        for begin in range(0, len(q), size):
            part = slice(begin, begin + size)
            a, b, c, h = scale * q[part], k[part], v[part], per_feature(g[part])
            since = start(h, begin)
            apart = inside(since[:, None], since[None])
            past = torch.ones(len(a), len(a), dtype=torch.bool).tril(mask)
            apart = apart.masked_fill(~past[..., None], -torch.inf)
            scores = torch.einsum("id,jd,ijd->ij", a, b, apart.exp())
            outs.append(scores @ c + (a * read(since, h).exp()) @ table)
            added = (b * write(since).exp()).mT @ c
            table = kept(since).exp().mT * table + added if carry else added
        return torch.cat(outs) if outs else v.new_zeros(0, v.shape[1])

    return answer


def _chunk_case(
    name: str, t: int, d: int, e: int, size: int, fade: float = 0.5, floor: float = 0.0
) -> Case:
    def inputs() -> tuple[Any, ...]:
        g = -draw(t, d, seed=3, scale=fade).abs() - floor
        return draw(t, d, seed=t), draw(t, d, seed=t + 1), draw(t, e, seed=t + 2), g, size

    return Case(name, inputs, 1e-9)


_CHUNKS = Exercise(
    title="Chunks whose features fade for themselves",
    oracle=_fading_chunks,
    cases=(
        _chunk_case("values: three chunks", 12, 3, 2, 4),
        _chunk_case("values: a last chunk that is shorter", 11, 2, 3, 4),
        _chunk_case("values: many small chunks", 9, 4, 2, 2, 1.0),
        _chunk_case("values: hardly any fading", 8, 3, 3, 3, 0.01),
        _chunk_case("values: one feature", 10, 1, 2, 5),
        _chunk_case("range: fading of e^-90 a token", 12, 2, 2, 4, 20.0, 90.0),
        _chunk_case("range: features that are gone at once", 9, 3, 2, 3, 400.0),
        _chunk_case("range: a long chunk that fades away", 40, 2, 2, 40, 30.0),
        _chunk_case("corners: a chunk for each token", 6, 3, 2, 1),
        _chunk_case("corners: one chunk for all", 6, 3, 2, 50),
        _chunk_case("corners: no token", 0, 3, 2, 4),
        _chunk_case("corners: no fading", 7, 3, 2, 3, 0.0),
    ),
    wrong=(
        WrongAnswer(
            "faded up to the end of the chunk",
            "Inside a chunk, key j fades by what lies between j and i, for each feature.",
            _chunks_with(inside=lambda a, b: a + 0 * b),
        ),
        WrongAnswer(
            "fading the wrong way round",
            "The later token's sum minus the earlier one's: that difference is at most 0.",
            _chunks_with(inside=lambda a, b: b - a),
        ),
        WrongAnswer(
            "no fading inside a chunk",
            "Tokens of one chunk fade for each other too.",
            _chunks_with(inside=lambda a, b: 0 * (a - b)),
        ),
        WrongAnswer(
            "divided by a decay that has vanished",
            "exp of the sum of a long chunk is 0, and nothing may be divided by it.",
            _chunks_with(inside=lambda a, b: (a.exp() / b.exp()).log()),
        ),
        WrongAnswer(
            "a token does not read itself",
            "A token writes first and reads then, so that it sees its own value.",
            _chunks_with(mask=-1),
        ),
        WrongAnswer(
            "later tokens of the chunk read",
            "A chunk is causal inside: token i sees the tokens up to i.",
            _chunks_with(mask=1000),
        ),
        WrongAnswer(
            "the table read without fading",
            "From the border of the chunk to token i the table has faded as well.",
            _chunks_with(read=lambda since, g: 0 * since),
        ),
        WrongAnswer(
            "the token's own fading left out when it reads",
            "The table fades before a token writes and reads, by this token's decay too.",
            _chunks_with(read=lambda since, g: since - g),
        ),
        WrongAnswer(
            "the table kept without fading",
            "Between the chunks the table fades by the whole chunk.",
            _chunks_with(kept=lambda since: 0 * since[-1:]),
        ),
        WrongAnswer(
            "written without fading",
            "What a token wrote has faded by the end of its chunk.",
            _chunks_with(write=lambda since: 0 * since),
        ),
        WrongAnswer(
            "written with the fading before it",
            "What a token wrote fades by what comes after it, not by what came before.",
            _chunks_with(write=lambda since: since),
        ),
        WrongAnswer(
            "the table begun anew",
            "What earlier chunks wrote stays, faded, beside what this one writes.",
            _chunks_with(carry=False),
        ),
        WrongAnswer(
            "one decay for all features",
            "Every feature of the keys fades for itself.",
            _chunks_with(per_feature=lambda g: g.mean(1, keepdim=True).expand(g.shape)),
        ),
        WrongAnswer(
            "queries divided by a root",
            "No factor on the queries was asked for: this is no softmax.",
            _chunks_with(scale=2**-0.5),
        ),
    ),
    variants=(_chunks_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "the text leaves the dtype open"),
        "float32": "the text leaves the dtype open",
        **dict.fromkeys(("tiny", "huge"), "a decay has no such size"),
    },
)  # fmt: skip


# --- chats_that_fit -------------------------------------------------------------------------------

Layer = tuple[Any, ...]


def _chats_that_fit(room: int, layers: Sequence[Layer], length: int, rollback: int) -> int:
    total = 0
    for kind, *sizes in layers:
        if kind == "delta":
            heads, d_k, d_v, taps = sizes
            state = 4 * heads * d_k * d_v + 2 * (taps - 1) * heads * (2 * d_k + d_v)
            total += state * (1 + rollback)
        else:
            heads, d, window = sizes
            kept = length + rollback
            if window is not None and kept > window + rollback:
                kept = window + rollback
            total += 2 * 2 * heads * d * kept
    return room // total


@in_parts
def _chats_with(
    state_bytes: int = 4,
    taps_of: Callable[[int], int] = lambda taps: taps - 1,
    rows: Callable[[int, int], int] = lambda d_k, d_v: 2 * d_k + d_v,
    conv_heads: bool = True,
    copies: Callable[[int], int] = lambda rollback: 1 + rollback,
    kept: Callable[[int | None, int, int], int] = lambda w, n, r: (
        n + r if w is None else min(n, w) + r
    ),
    both: int = 2,
    cache_bytes: int = 2,
    square: Callable[[int, int], int] = lambda d_k, d_v: d_k * d_v,
    grows: bool = False,
    whole: Callable[[float], int] = math.floor,
) -> Answer:
    def answer(room: int, layers: Sequence[Layer], length: int, rollback: int) -> int:
        total = 0
        for kind, *sizes in layers:
            if kind == "delta":
                heads, d_k, d_v, taps = sizes
                state = state_bytes * heads * square(d_k, d_v)
                conv = 2 * taps_of(taps) * rows(d_k, d_v) * (heads if conv_heads else 1)
                total += (state + conv) * copies(rollback) * (length if grows else 1)
            else:
                heads, d, window = sizes
                total += both * cache_bytes * heads * d * kept(window, length, rollback)
        return whole(room / total)

    return answer


_DELTA = ("delta", 32, 128, 128, 4)
_FULL = ("attention", 2, 256, None)
_NEAR = ("attention", 4, 128, 1024)
_GIB = 2**30
_CHATS = Exercise(
    title="How many chats a hybrid holds",
    oracle=_chats_that_fit,
    cases=(
        Case.of("values: three of four recur", 40 * _GIB, [_DELTA, _DELTA, _DELTA, _FULL] * 12,
                32768, 0),
        Case.of("values: all recur", 20 * _GIB, [_DELTA] * 24, 100_000, 0),
        Case.of("values: none recurs", 20 * _GIB, [_FULL] * 24, 10_000, 0),
        Case.of("values: windows between", 10 * _GIB, [_DELTA, _NEAR] * 10, 5000, 0),
        Case.of("values: keys narrower than values", 3 * _GIB,
                [("delta", 16, 64, 192, 3), _FULL] * 5, 2000, 0),
        Case.of("rollback: three tokens may be refused", 40 * _GIB,
                [_DELTA, _DELTA, _DELTA, _FULL] * 12, 32768, 3),
        Case.of("rollback: with windows", 10 * _GIB, [_DELTA, _NEAR] * 10, 5000, 5),
        Case.of("rollback: attention alone", _GIB, [_FULL] * 4, 300, 8),
        Case.of("corners: a text shorter than the window", _GIB, [_NEAR, _DELTA], 100, 0),
        Case.of("corners: a text as long as the window", _GIB, [_NEAR] * 3, 1024, 4),
        Case.of("corners: no short convolution", _GIB, [("delta", 8, 64, 64, 1)] * 3, 10, 0),
        Case.of("corners: exactly as many as fit", 5 * (4 * 2 * 4 * 6 + 2 * 3 * 2 * 14),
                [("delta", 2, 4, 6, 4)], 10, 0),
        Case.of("corners: one byte too few", 5 * (4 * 2 * 4 * 6 + 2 * 3 * 2 * 14) - 1,
                [("delta", 2, 4, 6, 4)], 10, 0),
        Case.of("corners: not even one", 1000, [_DELTA], 10, 0),
    ),
    wrong=(
        WrongAnswer(
            "tables in 16 bits",
            "A table sums up many tokens and is kept in 32 bits, four bytes a number.",
            _chats_with(state_bytes=2),
        ),
        WrongAnswer(
            "caches in 32 bits",
            "Keys and values of attention are in 16 bits, two bytes a number.",
            _chats_with(cache_bytes=4),
        ),
        WrongAnswer(
            "the convolution's past forgotten",
            "The short convolution keeps the last inputs, for queries, keys and values.",
            _chats_with(taps_of=lambda taps: 0),
        ),
        WrongAnswer(
            "a tap too many",
            "The newest input comes with the token: taps - 1 are kept.",
            _chats_with(taps_of=lambda taps: taps),
        ),
        WrongAnswer(
            "the convolution of the keys alone",
            "Queries, keys and values each have their convolution.",
            _chats_with(rows=lambda d_k, d_v: d_k),
        ),
        WrongAnswer(
            "the convolution of one head",
            "Every head has its queries, keys and values, which are all kept.",
            _chats_with(conv_heads=False),
        ),
        WrongAnswer(
            "a table with d_v rows and columns",
            "The table has a row for each feature of a key, a column for each of a value.",
            _chats_with(square=lambda d_k, d_v: d_v * d_v),
        ),
        WrongAnswer(
            "one table though tokens may be refused",
            "A table cannot be cut back: the one before each drafted token is kept too.",
            _chats_with(copies=lambda rollback: 1),
        ),
        WrongAnswer(
            "drafted tokens without the table they began with",
            "With r drafted tokens there are r + 1 tables: the one before them all as well.",
            _chats_with(copies=lambda rollback: max(1, rollback)),
        ),
        WrongAnswer(
            "no place for drafted tokens in the cache",
            "The cache holds the drafted tokens until they stand or fall.",
            _chats_with(kept=lambda w, n, r: n if w is None else min(n, w)),
        ),
        WrongAnswer(
            "windows counted whole or not at all",
            "A window keeps its last positions, and all of them while the text is shorter.",
            _chats_with(kept=lambda w, n, r: (n if w is None else w) + r),
        ),
        WrongAnswer(
            "the window keeps the whole text",
            "A layer with a window keeps no more than its window, besides the drafted tokens.",
            _chats_with(kept=lambda w, n, r: n + r),
        ),
        WrongAnswer(
            "keys without values",
            "A position of attention has a key and a value.",
            _chats_with(both=1),
        ),
        WrongAnswer(
            "a table for each token",
            "A table has one size, however long the text is. That is its point.",
            _chats_with(grows=True),
        ),
        WrongAnswer(
            "rounded up",
            "A chat that fits in part does not fit.",
            _chats_with(whole=math.ceil),
        ),
    ),
    variants=(_chats_with(),),
)  # fmt: skip


EXERCISES = {
    "undo_token": _UNDO,
    "fading_chunks": _CHUNKS,
    "chats_that_fit": _CHATS,
}
