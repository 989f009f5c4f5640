"""A causal mask that is aligned at the bottom right, as with a cache."""

from __future__ import annotations

import torch
from torch import Tensor

from book.checkers.attention.drawn import lower
from book.checkers.core import Case, Exercise, WrongAnswer


def _causal(query_len: int, key_len: int) -> Tensor:
    places = torch.arange(key_len)
    return places <= places[key_len - query_len :, None]


def _causal_loops(query_len: int, key_len: int) -> Tensor:
    rows = [[j <= i + key_len - query_len for j in range(key_len)] for i in range(query_len)]
    return torch.tensor(rows)


CAUSAL_MASK = Exercise(
    title="A causal mask aligned at the bottom right",
    oracle=_causal,
    cases=tuple(
        Case(name, lambda sizes=sizes: sizes)  # type: ignore[misc]
        for name, sizes in {
            "five queries, five keys": (5, 5),
            "one new query, six keys": (1, 6),
            "two new queries, six keys": (2, 6),
            "three new queries, four keys": (3, 4),
            "one query, one key": (1, 1),
        }.items()
    ),
    variants=(_causal_loops, lambda t, s: lower(t, s, s - t)),
    wrong=(
        WrongAnswer(
            "aligned at the top left",
            "As torch's `is_causal` does. The first query then sees only the first key, although "
            "it is one of the newest positions.",
            lambda t, s: lower(t, s),
        ),
        WrongAnswer(
            "diagonal forbidden",
            "A token may attend to itself. Without the diagonal the first one has nothing to see.",
            lambda t, s: lower(t, s, s - t - 1),
        ),
        WrongAnswer(
            "True = blocked",
            "True means may attend. This is the convention of `nn.MultiheadAttention`.",
            lambda t, s: ~_causal(t, s),
        ),
        WrongAnswer(
            "upper triangle",
            "The rows are queries and the columns keys; keys to the left of the diagonal are in "
            "the past. `triu` keeps the future.",
            lambda t, s: torch.ones(t, s, dtype=torch.bool).triu(s - t),
        ),
        WrongAnswer(
            "an additive mask",
            "0 and -inf are what is added to the scores. Asked for is the boolean mask.",
            lambda t, s: torch.zeros(t, s).masked_fill(~_causal(t, s), -torch.inf),
        ),
        WrongAnswer(
            "keys by queries",
            "There is a row per query and a column per key. This is the transpose.",
            lambda t, s: _causal(t, s).T,
        ),
        WrongAnswer(
            "square, for the keys only",
            "This is the mask of all positions. The queries are only the last of them: keep the "
            "last rows.",
            lambda t, s: lower(s, s),
        ),
    ),
)
