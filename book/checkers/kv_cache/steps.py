"""Steps with a cache: the mask of a chunk, a step with RoPE, and a step with a window.

The oracles are loops and torch's own operator, never the book's library. Every section has the
same order: the oracle, the cases, the wrong answers, the exercise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw
from book.checkers.kv_cache.common import EXACT

# --- chunk_mask -----------------------------------------------------------------------------------


def _mask(tokens: Tensor, query_len: int) -> Tensor:
    b, s = tokens.shape
    mask = torch.zeros(b, 1, query_len, s, dtype=torch.bool)
    for n in range(b):
        for i in range(query_len):
            for j in range(s - query_len + i + 1):
                mask[n, 0, i, j] = tokens[n, j]
    return mask


def _causal(t: int, s: int, offset: int) -> Tensor:
    return torch.ones(t, s, dtype=torch.bool).tril(offset)


@in_parts
def _mask_with(
    causal: Callable[[int, int], Tensor] = lambda t, s: _causal(t, s, s - t),
    keys: Callable[[Tensor, int], Tensor] = lambda tokens, t: tokens[:, None, None, :],
) -> Answer:
    def answer(tokens: Tensor, query_len: int) -> Tensor:
        b, s = tokens.shape
        mask = causal(query_len, s) & keys(tokens, query_len)
        return mask.expand(b, 1, query_len, s).clone()

    return answer


def _keys_seen_by_new_only(tokens: Tensor, t: int) -> Tensor:
    old = torch.arange(tokens.shape[1]) < tokens.shape[1] - t
    return (tokens | old)[:, None, None, :]


def _mask_case(name: str, rows: list[str], t: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return torch.tensor([[c == "x" for c in row] for row in rows]), t

    return Case(name, inputs, EXACT)


CHUNK_MASK = Exercise(
    title="The mask of a chunk",
    oracle=_mask,
    cases=(
        _mask_case("everything is new", ["..xxx", "xxxxx"], 5),
        _mask_case("three new, two cached", ["..xxx", "xxxxx"], 3),
        _mask_case("one new", [".xxxx", "xxxxx", "...xx"], 1),
        _mask_case("padding on the right", ["xxx..", "xxxxx"], 2),
        _mask_case("padding in the middle", ["xx..xx"], 2),
        _mask_case("nothing but padding", [".....", "xxxxx"], 2),
        _mask_case("one position", ["x"], 1),
        _mask_case("all but one are new", ["x.xxx", ".xxxx"], 4),
    ),
    wrong=(
        WrongAnswer(
            "causal at the top left",
            "That is for a chunk at the beginning. Behind a cache query i stands at position "
            "S - T + i.",
            _mask_with(causal=lambda t, s: _causal(t, s, 0)),
        ),
        WrongAnswer(
            "a token does not see itself",
            "The diagonal is allowed: a query may attend to the key of its own position.",
            _mask_with(causal=lambda t, s: _causal(t, s, s - t - 1)),
        ),
        WrongAnswer(
            "no causality",
            "Within the chunk the earlier queries must not see the later keys.",
            _mask_with(causal=lambda t, s: torch.ones(t, s, dtype=torch.bool)),
        ),
        WrongAnswer(
            "no padding",
            "Padding has keys too, and nothing may attend to them.",
            _mask_with(keys=lambda tokens, t: torch.ones_like(tokens)[:, None, None, :]),
        ),
        WrongAnswer(
            "padding of the cached keys forgotten",
            "Padding that is in the cache is still padding. It must stay masked in every step.",
            _mask_with(keys=_keys_seen_by_new_only),
        ),
        WrongAnswer(
            "padding applied to the queries",
            "What is forbidden is padding as a key, a row. Here rows of queries are blanked.",
            _mask_with(
                keys=lambda tokens, t: tokens[:, None, tokens.shape[1] - t :, None],
            ),
        ),
        WrongAnswer(
            "True for blocked",
            "Here, as in F.scaled_dot_product_attention, True means that a query may attend.",
            lambda tokens, query_len: ~_mask(tokens, query_len),
        ),
        WrongAnswer(
            "see the next token",
            "One diagonal too many: query i may see up to position S - T + i, not further.",
            _mask_with(causal=lambda t, s: _causal(t, s, s - t + 1)),
        ),
    ),
    variants=(_mask_with(),),
)


# --- cached_step ----------------------------------------------------------------------------------

Rotate = Callable[[Tensor, Tensor], Tensor]


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Pairs (0, 1), (2, 3), ... turned by position / 3**pair."""
    angles = positions[:, None] / 3.0 ** torch.arange(x.shape[-1] // 2, dtype=x.dtype)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def _step(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    a, t = keys.shape[2], q.shape[2]
    here = torch.arange(a, a + t)
    keys, values = torch.cat([keys, rotate(k, here)], 2), torch.cat([values, v], 2)
    out = F.scaled_dot_product_attention(rotate(q, here), keys, values, _causal(t, a + t, a))
    return out, keys, values


def _step_one_by_one(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    """The chunk token by token, without any mask."""
    outs = []
    for i in range(q.shape[2]):
        here = torch.tensor([keys.shape[2]])
        one = slice(i, i + 1)
        keys = torch.cat([keys, rotate(k[:, :, one], here)], 2)
        values = torch.cat([values, v[:, :, one]], 2)
        scores = rotate(q[:, :, one], here) @ keys.mT / math.sqrt(q.shape[-1])
        outs.append(scores.softmax(-1) @ values)
    return torch.cat(outs, 2), keys, values


@in_parts
def _step_with(
    *,
    first: Callable[[int, int], int] = lambda a, t: a,
    mask: Callable[[int, int], Tensor] = lambda a, t: _causal(t, a + t, a),
    turn_q: bool = True,
    turn_v: bool = False,
    turn_old: bool = False,
    store: str = "rotated",
    give: str = "all",
) -> Answer:
    """A cached step of which one part can be replaced."""

    def answer(
        q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rotate: Rotate
    ) -> tuple[Tensor, Tensor, Tensor]:
        a, t = keys.shape[2], q.shape[2]
        here = torch.arange(t) + first(a, t)
        new, v = rotate(k, here), rotate(v, here) if turn_v else v
        old = rotate(keys, torch.arange(a)) if turn_old and a else keys
        used, values_ = torch.cat([old, new], 2), torch.cat([values, v], 2)
        query = rotate(q, here) if turn_q else q
        out = F.scaled_dot_product_attention(query, used, values_, mask(a, t))
        kept = torch.cat([keys, k], 2) if store == "raw" else used
        return (out, kept, values_) if give == "all" else (out, new, v)

    return answer


def _step_case(name: str, a: int, t: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        new = [draw(2, 3, t, 4, seed=i).requires_grad_() for i in range(3)]
        old = [draw(2, 3, a, 4, seed=i) for i in (3, 4)]
        return *new, *old, _rotate

    return Case(name, inputs, EXACT, grad=True)


CACHED_STEP = Exercise(
    title="One cached step with RoPE",
    oracle=_step,
    cases=(
        _step_case("an empty cache", 0, 4),
        _step_case("one new token", 5, 1),
        _step_case("a chunk of three", 4, 3),
        _step_case("a chunk longer than the cache", 2, 6),
        _step_case("the first token", 0, 1),
        _step_case("two and two", 2, 2),
    ),
    wrong=(
        WrongAnswer(
            "the chunk's positions start at 0",
            "The first new token stands behind all that is cached: its position is the number "
            "of cached keys.",
            _step_with(first=lambda a, t: 0),
        ),
        WrongAnswer(
            "positions off by one",
            "With a positions cached, 0 to a - 1 are taken. The first new one is a.",
            _step_with(first=lambda a, t: a + 1),
        ),
        WrongAnswer(
            "causal at the top left",
            "Query i of the chunk stands at position a + i and sees that many keys, not i.",
            _step_with(mask=lambda a, t: _causal(t, a + t, 0)),
        ),
        WrongAnswer(
            "no mask",
            "The queries of a chunk must not see its later keys. Only for T = 1 is no mask needed.",
            _step_with(mask=lambda a, t: torch.ones(t, a + t, dtype=torch.bool)),
        ),
        WrongAnswer(
            "keys cached before the rotation",
            "The keys that come back next time are used as they are, so they have to be stored "
            "rotated.",
            _step_with(store="raw"),
        ),
        WrongAnswer(
            "cached keys rotated again",
            "They were rotated when they were stored. A key is rotated once in its life.",
            _step_with(turn_old=True),
        ),
        WrongAnswer(
            "queries not rotated",
            "The score depends on the distance only if both the query and the key are rotated.",
            _step_with(turn_q=False),
        ),
        WrongAnswer(
            "values rotated",
            "Positions belong into the scores. Values are summed up as they are.",
            _step_with(turn_v=True),
        ),
        WrongAnswer(
            "only the new keys returned",
            "The next step needs all keys and values so far, the old ones followed by the new.",
            _step_with(give="new"),
        ),
    ),
    variants=(_step_one_by_one, _step_with()),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)


# --- window_step ----------------------------------------------------------------------------------


def _window(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, length: int, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    """Slot by slot: what is in a slot, or nothing, decides what the query attends to."""
    room, here = keys.shape[2], torch.tensor([length])
    slots = list(range(room))
    new_keys = torch.stack(
        [rotate(k, here)[:, :, 0] if s == length % room else keys[:, :, s] for s in slots], 2
    )
    new_values = torch.stack(
        [v[:, :, 0] if s == length % room else values[:, :, s] for s in slots], 2
    )
    filled = [s for s in slots if s <= length]
    scores = rotate(q, here) @ new_keys[:, :, filled].mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ new_values[:, :, filled], new_keys, new_values


@in_parts
def _window_with(
    *,
    place: Callable[[int, int], int] = lambda length, room: length,
    slot: Callable[[int, int], int] = lambda length, room: length % room,
    filled: Callable[[int, int], int] = lambda length, room: min(length + 1, room),
    turn_q: bool = True,
    store: Callable[[Tensor, Tensor], Tensor] = lambda k, turned: turned,
) -> Answer:
    """A step with a window of which one part can be replaced."""

    def answer(
        q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, length: int, rotate: Rotate
    ) -> tuple[Tensor, Tensor, Tensor]:
        room = keys.shape[2]
        here, at = torch.tensor([place(length, room)]), slot(length, room)
        index = torch.tensor([at])
        keys = keys.index_copy(2, index, store(k, rotate(k, here)))
        values = values.index_copy(2, index, v)
        count = filled(length, room)
        query = rotate(q, here) if turn_q else q
        scores = query @ keys[:, :, :count].mT / math.sqrt(q.shape[-1])
        return scores.softmax(-1) @ values[:, :, :count], keys, values

    return answer


def _shifted(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, length: int, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    """All that is kept moves up by one, and the new token comes last."""
    here = torch.tensor([length])
    keys = torch.cat([keys[:, :, 1:], rotate(k, here)], 2)
    values = torch.cat([values[:, :, 1:], v], 2)
    count = min(length + 1, keys.shape[2])
    scores = rotate(q, here) @ keys[:, :, -count:].mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ values[:, :, -count:], keys, values


def _window_case(name: str, room: int, length: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        new = [draw(2, 3, 1, 6, seed=i) for i in range(3)]
        old = [draw(2, 3, room, 6, seed=i) for i in (3, 4)]
        for kept in old:
            kept[:, :, length:] = 0.0  # nothing has been written there
        return *new, *old, length, _rotate

    return Case(name, inputs, EXACT)


WINDOW_STEP = Exercise(
    title="A step with a window",
    oracle=_window,
    cases=(
        _window_case("the first token", 4, 0),
        _window_case("three tokens in a window of five", 5, 3),
        _window_case("the last free slot", 4, 3),
        _window_case("the window is full", 4, 4),
        _window_case("once around and two more", 4, 6),
        _window_case("a window of one", 1, 5),
        _window_case("far into a long text", 3, 70_001),
    ),
    wrong=(
        WrongAnswer(
            "rotated by the slot",
            "The position is the number of tokens so far, and goes on growing. Only the slot "
            "starts again at 0.",
            _window_with(place=lambda length, room: length % room),
        ),
        WrongAnswer(
            "rotated by what fits",
            "The position goes on growing when the window is full. A position that stays at the "
            "last slot gives later tokens the distance 0.",
            _window_with(place=lambda length, room: min(length, room - 1)),
        ),
        WrongAnswer(
            "empty slots attended to",
            "Before the window is full some slots hold nothing. A key of zeros has the score 0, "
            "and that is a weight like another.",
            _window_with(filled=lambda length, room: room),
        ),
        WrongAnswer(
            "the new token left out",
            "The new token is in the window too and attends to itself.",
            _window_with(filled=lambda length, room: max(1, min(length, room))),
        ),
        WrongAnswer(
            "the next slot",
            "The token at position 0 is in slot 0, and so on, so the oldest of a full window is "
            "in slot length % room.",
            _window_with(slot=lambda length, room: (length + 1) % room),
        ),
        WrongAnswer(
            "the last slot once it is full",
            "A full window forgets its oldest token. Here the newest but one is forgotten, and "
            "the oldest stays for ever.",
            _window_with(slot=lambda length, room: min(length, room - 1)),
        ),
        WrongAnswer(
            "query not rotated",
            "The keys are rotated by their positions, so the query must be too.",
            _window_with(turn_q=False),
        ),
        WrongAnswer(
            "keys stored as they are",
            "A stored key is used again as it is, so it is stored rotated.",
            _window_with(store=lambda k, turned: k),
        ),
        WrongAnswer(
            "everything moved up",
            "The outputs are right, and all that is kept has been copied. The new token goes into "
            "the slot of the oldest, and nothing else moves.",
            _shifted,
        ),
    ),
    variants=(_window_with(),),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)
