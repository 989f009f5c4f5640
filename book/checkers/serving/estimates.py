"""Estimates of a cache and of what devices send, and budgets and drafts in numbers."""

from __future__ import annotations

import itertools
import math

import torch

from book.checkers.questions import WrongNumber, number

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


_PROMPT, _WRITERS, _LIMIT, _CACHES = 8192, 32, 20.0, 3.0  # tokens, texts, milliseconds
_TOKEN = 1e3 * 2 * 8.03e9 / 989e12  # a token's arithmetic, in milliseconds
_WEIGHTS = 1e3 * 2 * 8.03e9 / 3.35e12  # the bytes of the weights


def _passes(budget: int, others: int = _WRITERS) -> list[float]:
    """How long each pass takes until the prompt has been read, in milliseconds."""
    whole, rest = divmod(_PROMPT, budget - others)
    tokens = [budget] * whole + ([rest + others] if rest else [])
    return [_CACHES + max(n * _TOKEN, _WEIGHTS) for n in tokens]


def _largest() -> int:
    """The most tokens of a pass that keeps the promise."""
    return int((_LIMIT - _CACHES) / _TOKEN)


def _first(others: int = _WRITERS) -> float:
    """The time to the first token by the best of all budgets that keep the promise."""
    return min(sum(_passes(n, others)) for n in range(others + 1, _largest() + 1))


CHUNK = number(
    "A budget for a promise",
    value=_first,
    within=0.005,
    because="A pass may have 1,046 tokens, so the prompt needs nine passes. With 943 to 1,023 "
    "tokens arithmetic bounds the last one, too: the first token comes after {value} ms.",
    wrong=[
        WrongNumber(
            "the largest budget",
            "With the largest budget few tokens are left for the last pass, which takes as long as "
            "the weights' bytes do. A smaller one deals them out better.",
            lambda: sum(_passes(_largest())),
        ),
        WrongNumber(
            "as if nobody wrote",
            "Each pass also has a token for each of the 32 texts, so less of the prompt fits in.",
            lambda: _first(others=0),
        ),
        WrongNumber(
            "the promise broken",
            "That is the prompt in one pass, and the others wait for all of it.",
            lambda: sum(_passes(_PROMPT + _WRITERS)),
        ),
        WrongNumber(
            "nine times the limit",
            "The passes need not be as long as the promise allows.",
            lambda: 9 * _LIMIT,
        ),
        WrongNumber(
            "chunks of 512",
            "Chunks of 512 keep the promise, but in more passes than are needed: each reads the "
            "caches again.",
            lambda: sum(_passes(512)),
        ),
    ],
)


def _chance() -> float:
    """How often a token drafted by a table of three words stands, along the exercise's samples."""
    # Asked for only here, so that the other exercises need no model.
    from book.own import encode, own_model
    from book.own.draft import ngram_draft
    from book.stories import stories

    model, draft = own_model().double(), ngram_draft(order=4, counted=1000)
    stands = []
    for told in itertools.islice(stories("measured"), 6):
        text = torch.tensor(encode(told.words)[:60])
        with torch.no_grad():
            p = model(text[None])[0].softmax(-1)
        for at in range(10, len(text)):
            stands.append((draft(text[:at]) - p[at - 1]).abs().sum() / 2)
    return 1 - float(torch.stack(stands).mean())


def _speed(k: int, alpha: float, drafting: float = 0.1) -> float:
    """Tokens in the time of a pass, by the chance of each number of accepted tokens."""
    chances = [alpha**j * (1 - alpha) for j in range(k)] + [alpha**k]
    return sum(p * (j + 1) for j, p in enumerate(chances)) / (1 + drafting * k)


def _fastest(alpha: float, drafting: float = 0.1) -> float:
    return max(_speed(k, alpha, drafting) for k in range(1, 21))


DRAFT = number(
    "Which table, and how many tokens?",
    value=lambda: _fastest(_chance()),
    within=0.04,
    because="With three or four words and about four drafted tokens, {value} tokens are written "
    "in the time of a pass.",
    wrong=[
        WrongNumber(
            "drafting for nothing",
            "That is without an end, as if drafting took no time. It takes a tenth of a pass for "
            "each token.",
            lambda: 1 / (1 - 0.66),
        ),
        WrongNumber(
            "tokens a pass",
            "A round also takes the time of its drafts. Divide by it.",
            lambda: _speed(4, 0.66, 0.0),
        ),
        WrongNumber(
            "one at a time",
            "One drafted token is better than none, but more give more.",
            lambda: _speed(1, 0.66),
        ),
        WrongNumber(
            "two words",
            "A table that looks at two words has a competitor that is accepted more often.",
            lambda: _fastest(0.617),
        ),
        WrongNumber(
            "one word",
            "A table that looks at one word is accepted least of all.",
            lambda: _fastest(0.485),
        ),
        WrongNumber(
            "the share that is accepted",
            "That is how often a drafted token stands. How many tokens does a round write, and "
            "how long does it take?",
            lambda: 0.66,
        ),
    ],
)

_WIDTH, _HIDDEN = 4096, 14336

SPLIT = number(
    "The other way round",
    value=lambda: 2 * _HIDDEN / _WIDTH,
    within=0.01,
    because="Both products are sums over parts of the input, and have to be whole before the "
    "activation: 2 · 14,336 numbers for each token against 4,096, {value} times as many. The "
    "outputs are only put side by side.",
    wrong=[
        WrongNumber(
            "one of both products",
            "The gate's product and the other one are both sums over parts of the input.",
            lambda: _HIDDEN / _WIDTH,
        ),
        WrongNumber(
            "as many",
            "The outputs need no sum now: each device has some of them whole. What has to be "
            "summed before the activation?",
            lambda: 1.0,
        ),
        WrongNumber(
            "the outputs too",
            "W_down is cut by columns, so a device has whole outputs. They are put side by side, "
            "not summed.",
            lambda: (2 * _HIDDEN + _WIDTH) / _WIDTH,
        ),
        WrongNumber(
            "once, after the gate",
            "The gate's activation is taken of whole sums, and so is its product with the other "
            "half. A sum of the products of shares is another number.",
            lambda: (_HIDDEN + _WIDTH) / _WIDTH,
        ),
        WrongNumber(
            "the wrong way round",
            "Is more or less sent, if the sums are taken where the layer is wide?",
            lambda: _WIDTH / (2 * _HIDDEN),
        ),
    ],
)
