"""Estimates of a cache, of chunks and drafts, and a prediction of scales."""

from __future__ import annotations

import math

from book.checkers.questions import WrongNumber, choice, number

_POSITION = 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, features, bytes
_FREE = 80e9 - 2 * 8e9


def _chats(positions: float, free: float = _FREE) -> float:
    return math.floor(free / (positions * _POSITION))


FITS = number(
    "How many chats fit?",
    value=lambda: _chats(704) / _chats(8192),
    within=0.02,
    because="44 blocks, 704 positions, against 8,192: {value} times as many, 693 chats against 59.",
    wrong=[
        WrongNumber(
            "half of the length",
            "A place is reserved for the longest text, not for the mean of the two lengths.",
            lambda: _chats(704) / _chats((700 + 8192) / 2),
        ),
        WrongNumber(
            "the wrong way round",
            "Asked for is blocks against places. With blocks more chats fit.",
            lambda: _chats(8192) / _chats(704),
        ),
        WrongNumber(
            "the number of chats",
            "That many fit with blocks. How many times as many is that?",
            lambda: _chats(704),
        ),
        WrongNumber(
            "16 positions for each chat",
            "A block has 16 positions, and a chat of 700 tokens holds many blocks.",
            lambda: 8192 / 16,
        ),
    ],
)


_PROMPT, _WRITERS, _BUDGET = 8192, 32, 512
_RIDGE = 989e12 / 3.35e12  # tokens with which arithmetic takes as long as the weights' bytes


def _in_chunks(others: int = _WRITERS, ridge: float = _RIDGE, short: bool = True) -> float:
    """How many times as long a prompt takes in chunks as whole, in tokens that bound a pass."""
    left, time = _PROMPT, 0.0
    while left > 0:
        part = min(left, _BUDGET - others)
        time += max(part + others if short else _BUDGET, ridge)
        left -= part
    return time / (_PROMPT + others)


CHUNK = number(
    "What do chunks cost?",
    value=_in_chunks,
    within=0.005,
    because="A pass has room for 480 tokens of the prompt, so it takes 17 full passes and a last "
    "one of 64 tokens, which the weights' bytes bound: {value} times as long in all.",
    wrong=[
        WrongNumber(
            "as if nobody wrote",
            "Each pass also has a token for each of the 32 texts, so less of the prompt fits in.",
            lambda: _in_chunks(others=0),
        ),
        WrongNumber(
            "the last pass by its operations",
            "The last pass has 64 tokens. So few take as long as the weights' bytes do.",
            lambda: _in_chunks(ridge=0.0),
        ),
        WrongNumber(
            "18 full passes",
            "The last pass is not full: there are only 32 tokens of the prompt left.",
            lambda: _in_chunks(short=False),
        ),
        WrongNumber(
            "one pass against the other",
            "That is how long the others wait at a time. The prompt's first token comes after all "
            "of its passes.",
            lambda: _BUDGET / (_PROMPT + _WRITERS),
        ),
        WrongNumber(
            "the other way round",
            "Asked for is the time in chunks over that in one pass.",
            lambda: 1 / _in_chunks(),
        ),
    ],
)


def _speed(k: int, alpha: float = 0.8, drafting: float = 0.1) -> float:
    """Tokens in the time of a pass, by the chance of each number of accepted tokens."""
    chances = [alpha**j * (1 - alpha) for j in range(k)] + [alpha**k]
    return sum(p * (j + 1) for j, p in enumerate(chances)) / (1 + drafting * k)


DRAFT = number(
    "How many tokens to draft?",
    value=lambda: float(max(range(1, 21), key=_speed)),
    within=0.001,
    because="With {value} drafted tokens a round gives 3.69 tokens in 1.5 times the time of a "
    "pass. One more and one fewer are hardly worse.",
    wrong=[
        WrongNumber(
            "drafting for nothing",
            "If drafting took no time, more would always be better. It takes a tenth of a pass "
            "for each token.",
            lambda: 20.0,
        ),
        WrongNumber(
            "only until the draft fails",
            "That is how many tokens are accepted on average without an end. It leaves out what "
            "they cost.",
            lambda: 4.0,
        ),
        WrongNumber(
            "one at a time",
            "One drafted token gives 1.8 tokens in 1.1 times the time. More give more.",
            lambda: 1.0,
        ),
    ],
)

SCALE = choice(
    "One loud feature",
    right="C",
    because="Only the group that holds the loud entry has a large scale. The rest of the row, all "
    "other groups, keeps its digits.",
    tempting={
        "A": (
            "one scale",
            "The loud column sets the step for the whole matrix, a hundred times too large for "
            "the rest.",
        ),
        "B": (
            "rows",
            "Each row has one entry of the loud column, so each row's scale is set by it.",
        ),
        "D": (
            "both",
            "Rows do not help: the column crosses all of them.",
        ),
    },
)
