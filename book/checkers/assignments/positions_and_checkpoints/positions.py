"""Questions of the assignment: packed_angles, alibi_rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

INF = math.inf


# --- packed_angles --------------------------------------------------------------------------------


def _packed(segments: Tensor, inv_freq: Tensor, original_max_len: int) -> Tensor:
    rows = []
    for row in segments.tolist():
        seen: dict[int, int] = {}
        for document in row:
            position = seen.get(document, 0) if document else 0
            seen[document] = seen.get(document, 0) + 1
            factor = max(1.0, row.count(document) / original_max_len)
            rows.append(position * inv_freq / factor)
    return torch.stack(rows).reshape(*segments.shape, len(inv_freq))


def _same(segments: Tensor) -> Tensor:
    return segments[:, :, None] == segments[:, None, :]


def _own_position(segments: Tensor) -> Tensor:
    return _same(segments).tril(-1).sum(-1) * (segments > 0)


def _own_length(segments: Tensor) -> Tensor:
    return _same(segments).sum(-1) * (segments > 0)


@in_parts
def _packed_with(
    position: Callable[[Tensor], Tensor] = _own_position,
    length: Callable[[Tensor], Tensor] = _own_length,
    factor: Callable[[Tensor, int], Tensor] = lambda n, m: (n.double() / m).clamp(min=1),
) -> Answer:
    def answer(segments: Tensor, inv_freq: Tensor, original_max_len: int) -> Tensor:
        by = factor(length(segments), original_max_len)
        return (position(segments) / by)[..., None].to(inv_freq.dtype) * inv_freq

    return answer


def _since_first(segments: Tensor) -> Tensor:
    first = _same(segments).long().argmax(-1)
    return (torch.arange(segments.shape[1]) - first) * (segments > 0)


def _all_tokens(segments: Tensor) -> Tensor:
    return ((segments > 0).long().cumsum(1) - 1).clamp(min=0) * (segments > 0)


def _row_length(segments: Tensor) -> Tensor:
    return (segments > 0).sum(1, keepdim=True).expand_as(segments)


def _longest(segments: Tensor) -> Tensor:
    return _own_length(segments).max().expand_as(segments)


_PAIRS = (1.0, 0.31, 0.07)


def _packed_case(name: str, rows: list[list[int]], length: int, freqs: Any = _PAIRS) -> Case:
    def inputs() -> tuple[Any, ...]:
        return torch.tensor(rows), torch.tensor(freqs, dtype=torch.float64), length

    return Case(name, inputs, EXACT)


_PACKED = Exercise(
    title="Packed documents, each interpolated as it needs",
    oracle=_packed,
    cases=(
        _packed_case("values: two documents and filling", [[1, 1, 1, 2, 2, 2, 2, 2, 0, 0]], 3),
        _packed_case("values: two rows with the same numbers",
                     [[1, 1, 1, 1, 1, 2, 2, 0], [0, 1, 1, 2, 2, 2, 2, 2]], 3),
        _packed_case("values: numbers in no order",
                     [[9, 9, 4, 4, 4, 4, 4, 7], [7, 7, 7, 7, 7, 7, 7, 2]], 6),
        _packed_case("values: four documents, long and short",
                     [[1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 0, 0]], 3),
        _packed_case("corners: filling inside a document",
                     [[0, 5, 5, 0, 0, 5, 5, 5, 6, 0, 6, 0, 6, 6]], 3),
        _packed_case("corners: documents that alternate", [[1, 2, 1, 2, 2, 1, 2, 2, 1, 1, 2]], 3),
        _packed_case("corners: huge numbers", [[2**60 + 1, 2**60 + 1, 2**60, 2**60, 2**60]], 2),
        _packed_case("corners: nothing is too long", [[1, 1, 1, 1, 2, 2, 0], [3] * 7], 7, (0.5,)),
        _packed_case("corners: filling alone", [[0, 0, 0, 0], [1, 1, 1, 1]], 3),
    ),
    wrong=(
        WrongAnswer(
            "the row as one document",
            "Each document begins at position 0, whatever stands before it in the row.",
            _packed_with(position=_all_tokens),
        ),
        WrongAnswer(
            "places counted, not tokens",
            "A position is the number of earlier tokens of the document; nothing else counts.",
            _packed_with(position=_since_first),
        ),
        WrongAnswer(
            "filling as a document",
            "The number 0 is filling, and filling stands at position 0 everywhere.",
            _packed_with(position=lambda s: _same(s).tril(-1).sum(-1),
                         length=lambda s: _same(s).sum(-1)),
        ),
        WrongAnswer(
            "short documents stretched",
            "A factor below 1 would enlarge the angles. It is never less than 1.",
            _packed_with(factor=lambda n, m: (n.double() / m).clamp(min=1e-3)),
        ),
        WrongAnswer(
            "the length of the row",
            "The factor is that of the document's own tokens, not of all in its row.",
            _packed_with(length=_row_length),
        ),
        WrongAnswer(
            "the longest document for all",
            "Each document has a factor of its own; its neighbours do not slow it down.",
            _packed_with(length=_longest),
        ),
        WrongAnswer(
            "the length so far",
            "One document has one factor, from its full length, so that distances stay distances.",
            _packed_with(length=lambda s: _own_position(s) + 1),
        ),
        WrongAnswer(
            "the factor rounded up",
            "The factor is the quotient of the lengths and need not be whole.",
            _packed_with(factor=lambda n, m: (n.double() / m).ceil().clamp(min=1)),
        ),
        WrongAnswer(
            "positions from 1",
            "The first token of a document has position 0 and angle 0.",
            _packed_with(position=lambda s: (_own_position(s) + 1) * (s > 0)),
        ),
        WrongAnswer(
            "the factor in single precision",
            "Integers divided become float32. Change them to the dtype of inv_freq before.",
            _packed_with(factor=lambda n, m: (n / m).clamp(min=1)),
        ),
    ),
    variants=(_packed_with(),),
)  # fmt: skip


# --- alibi_rows -----------------------------------------------------------------------------------


def _slopes(num_heads: int) -> list[float]:
    power = 1
    while 2 * power <= num_heads:
        power *= 2
    own = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    finer = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(2 * power)]
    return own + finer[::2][: num_heads - power]


def _alibi(tokens: Tensor, query_len: int, num_heads: int, rank: int, ranks: int) -> Tensor:
    batch, s = tokens.shape
    each = num_heads // ranks
    slopes = _slopes(num_heads)[rank * each : (rank + 1) * each]
    out = torch.zeros(batch, each, query_len, s, dtype=torch.float64)
    for b, row in enumerate(tokens.tolist()):
        for t in range(query_len):
            i = s - query_len + t
            if not row[i]:
                continue
            for j in range(s):
                seen = row[j] and j <= i
                for h, slope in enumerate(slopes):
                    out[b, h, t, j] = -slope * sum(row[j + 1 : i + 1]) if seen else -INF
    return out


@in_parts
def _alibi_with(
    slopes: Callable[[int, int, int], list[float]] = lambda h, r, n: _slopes(h)[
        r * h // n : (r + 1) * h // n
    ],
    positions: Callable[[Tensor], Tensor] = lambda tokens: tokens.long().cumsum(1),
    last: bool = True,
    sign: float = -1.0,
    future: bool = False,
    filling_seen: bool = False,
    filling_asks: float | None = 0.0,
) -> Answer:
    def answer(tokens: Tensor, query_len: int, num_heads: int, rank: int, ranks: int) -> Tensor:
        s = tokens.shape[1]
        rows = torch.arange(s - query_len, s) if last else torch.arange(query_len)
        at, keys = positions(tokens), torch.arange(s)
        far = (at[:, rows, None] - at[:, None, :]).abs().double()
        hidden = (keys > rows[:, None]) & (not future)
        hidden = hidden | (~tokens[:, None, :] & (not filling_seen))
        m = torch.tensor(slopes(num_heads, rank, ranks), dtype=torch.float64)
        bias = sign * m[:, None, None] * far[:, None]
        bias = bias.masked_fill(hidden[:, None], -INF)
        if filling_asks is None:
            return bias
        asks = tokens[:, s - query_len :]
        return bias.masked_fill(~asks[:, None, :, None], filling_asks)

    return answer


def _plain_slopes(num_heads: int, rank: int, ranks: int) -> list[float]:
    each = num_heads // ranks
    return [2.0 ** (-8 * (h + 1) / num_heads) for h in range(rank * each, (rank + 1) * each)]


def _alibi_case(name: str, rows: Sequence[str], t: int, h: int, rank: int, ranks: int) -> Case:
    """`rows` has a 1 for each token and a 0 for each place of filling."""

    def inputs() -> tuple[Any, ...]:
        return torch.tensor([[c == "1" for c in row] for row in rows]), t, h, rank, ranks

    return Case(name, inputs, EXACT)


_ALIBI = Exercise(
    title="ALiBi for a chunk, on one of several machines",
    oracle=_alibi,
    cases=(
        _alibi_case("values: eight heads on two machines", ["0011111", "1111111"], 3, 8, 1, 2),
        _alibi_case("values: a token behind a prompt that was filled up",
                    ["1110011", "1111111"], 2, 12, 1, 3),
        _alibi_case("values: the first of two machines", ["0111011", "0001111"], 4, 4, 0, 2),
        _alibi_case("values: six heads, the last machine", ["1101111", "1111101"], 3, 6, 2, 3),
        _alibi_case("queries: a whole batch with filling at the left", ["0011", "1111"], 4, 4, 1,
                    2),
        _alibi_case("queries: filling between the queries", ["11010", "10101"], 4, 6, 1, 2),
        _alibi_case("queries: filling at the end", ["111100", "111110"], 3, 8, 3, 4),
        _alibi_case("corners: one machine, twelve heads", ["01111"], 2, 12, 0, 1),
        _alibi_case("corners: a machine for each of five heads", ["11011"], 3, 5, 4, 5),
        _alibi_case("corners: one query", ["00101111", "11111111"], 1, 16, 1, 4),
        _alibi_case("corners: one head", ["1011"], 2, 1, 0, 1),
    ),
    wrong=(
        WrongAnswer(
            "slopes for the machine's own number of heads",
            "The slopes belong to the heads of the whole model; a machine takes its part of them.",
            _alibi_with(slopes=lambda h, r, n: _slopes(h // n)),
        ),
        WrongAnswer(
            "the first heads on every machine",
            "Machine `rank` has the heads from rank H / ranks on, not those from 0 on.",
            _alibi_with(slopes=lambda h, r, n: _slopes(h)[: h // n]),
        ),
        WrongAnswer(
            "heads dealt out in turn",
            "A machine has heads that follow one another, not every ranks-th.",
            _alibi_with(slopes=lambda h, r, n: _slopes(h)[r::n]),
        ),
        WrongAnswer(
            "one formula for all numbers of heads",
            "Five, six or twelve heads take the slopes of a power of two, and then finer ones.",
            _alibi_with(slopes=_plain_slopes),
        ),
        WrongAnswer(
            "filling counted in the distance",
            "A distance counts tokens: filling between query and key is not on the way.",
            _alibi_with(positions=lambda tokens: torch.arange(tokens.shape[1]).expand(
                tokens.shape)),
        ),
        WrongAnswer(
            "the first rows instead of the last",
            "With a cache the queries are the newest query_len positions, at the end.",
            _alibi_with(last=False),
        ),
        WrongAnswer(
            "filling can be seen",
            "Keys of filling get minus infinity: they hold nothing.",
            _alibi_with(filling_seen=True),
        ),
        WrongAnswer(
            "filling asks like a token",
            "The row of a query that is filling is 0 everywhere, so that no softmax gives nan.",
            _alibi_with(filling_asks=None),
        ),
        WrongAnswer(
            "a bonus for distance",
            "The bias is negative: a key loses by its distance.",
            _alibi_with(sign=1.0),
        ),
        WrongAnswer(
            "the future can be seen",
            "The decoder is causal: keys behind the query get minus infinity.",
            _alibi_with(future=True),
        ),
    ),
    variants=(_alibi_with(),),
)  # fmt: skip


EXERCISES = {
    "packed_angles": _PACKED,
    "alibi_rows": _ALIBI,
}
