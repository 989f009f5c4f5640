"""Estimates of a cache, and predictions of schedules, drafts and scales."""

from __future__ import annotations

import heapq
import itertools
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


def _done(jobs: list[float], places: int) -> list[float]:
    """When each job is done, if a place takes the next job as soon as it is free."""
    free = [0.0] * places
    ends = []
    for job in jobs:
        start = heapq.heappop(free)
        ends.append(start + job)
        heapq.heappush(free, start + job)
    return ends


_JOBS = [2.0, 5.0, 3.5, 8.0]

JOBS = number(
    "Four jobs, two places",
    value=lambda: sum(_done(_JOBS, 2)) / 4,
    within=0.001,
    because="They are done after 2, 5, 5.5 and 13 seconds: {value} on average.",
    wrong=[
        WrongNumber(
            "fixed batches",
            "That is the mean if each batch of two comes back when all of it is done.",
            lambda: (5.0 + 5.0 + 13.0 + 13.0) / 4,
        ),
        WrongNumber(
            "own times alone",
            "That is how long the jobs run. Two of them have to wait first.",
            lambda: sum(_JOBS) / 4,
        ),
        WrongNumber(
            "the last one",
            "Then all are done. Asked for is the mean over the four jobs.",
            lambda: max(_done(_JOBS, 2)),
        ),
        WrongNumber(
            "one at a time",
            "Two jobs run at once, so they do not wait for all that came before.",
            lambda: sum(itertools.accumulate(_JOBS)) / 4,
        ),
    ],
)

CHUNK = choice(
    "What do chunks buy?",
    right="B",
    because="The longest pass is shorter, so nobody waits long for a token. The prompt shares its "
    "passes with the others' tokens and caches, so its own first token comes a little later.",
    tempting={
        "A": (
            "less work",
            "Each token of the prompt goes through all weights once, in chunks as without.",
        ),
        "C": (
            "the other way round",
            "Read whole, the prompt has a pass to itself. Cut up, it shares its passes.",
        ),
        "D": (
            "only the sum",
            "The sum is the same, but not how long a single pass is, and everybody waits for it.",
        ),
    },
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
