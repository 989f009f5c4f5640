"""T5's buckets of distances, as its encoder has them."""

from __future__ import annotations

import math
from collections.abc import Callable

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _buckets(query: int, length: int, buckets: int, far: int) -> list[int]:
    """By counting the boundaries of the wider buckets that a distance has reached."""
    n, found = buckets // 2, []
    exact = n // 2
    wide = n - exact
    bounds = [exact ** (wide - step) * far**step for step in range(1, wide)]
    for key in range(length):
        away = abs(key - query)
        reached = sum(away**wide >= bound for bound in bounds)
        found.append(min(away, exact) + reached + (n if key > query else 0))
    return found


def _from_exact(away: int, exact: int, far: int) -> float:
    return math.log(away / exact) / math.log(far / exact)


def _from_one(away: int, exact: int, far: int) -> float:
    return math.log(away) / math.log(far)


def _evenly(away: int, exact: int, far: int) -> float:
    return (away - exact) / (far - exact)


@in_parts
def _buckets_with(
    *,
    share: Callable[[int, int, int], float] = _from_exact,
    rounded: Callable[[float], int] = math.floor,
    capped: bool = True,
    later: Callable[[int, int], bool] = lambda key, query: key > query,
    both: bool = True,
    exact_of: int = 2,
) -> Answer:
    """With the logarithm."""

    def answer(query: int, length: int, buckets: int, far: int) -> list[int]:
        n = buckets // 2 if both else buckets
        exact, found = n // exact_of, []
        for key in range(length):
            away = abs(key - query) if both else max(query - key, 0)
            bucket = away
            if away >= exact:
                wide = exact + rounded((n - exact) * share(away, exact, far))
                bucket = min(wide, n - 1) if capped else wide
            found.append(bucket + n * (both and later(key, query)))
        return found

    return answer


BUCKETS = Exercise(
    title="Buckets of distances",
    oracle=_buckets,
    cases=(
        Case.of("the picture's row", 10, 14, 32, 128),
        Case.of("the first of 30 positions", 0, 30, 16, 50),
        Case.of("the last of 30 positions", 29, 30, 16, 50),
        Case.of("farther than far", 20, 60, 8, 15),
        Case.of("a text of one position", 0, 1, 32, 128),
        Case.of("a hundred positions", 41, 100, 32, 100),
        Case.of("few buckets", 3, 9, 8, 5),
        Case.of("a long text", 33_000, 66_000, 32, 100),
    ),
    variants=(_buckets_with(),),
    wrong=(
        WrongAnswer(
            "the sides exchanged",
            "The first half is for keys at the query or before it, the second for later keys.",
            _buckets_with(later=lambda key, query: key < query),
        ),
        WrongAnswer(
            "the query's own position among the later ones",
            "The query's own position has distance 0 and the first bucket of the first half.",
            _buckets_with(later=lambda key, query: key >= query),
        ),
        WrongAnswer(
            "both sides alike",
            "A later key has a bucket of the second half.",
            _buckets_with(later=lambda key, query: False),
        ),
        WrongAnswer(
            "all buckets for the past, as in a decoder",
            "An encoder sees later keys, and they have half of the buckets.",
            _buckets_with(both=False),
        ),
        WrongAnswer(
            "more than the last bucket",
            "From some distance on, all share the last bucket of their half.",
            _buckets_with(capped=False),
        ),
        WrongAnswer(
            "the logarithm of the distance itself",
            "The wider buckets begin at e, so the logarithms are of a/e and of f/e.",
            _buckets_with(share=_from_one),
        ),
        WrongAnswer(
            "wider buckets of one width",
            "The widths grow by a constant factor: take logarithms.",
            _buckets_with(share=_evenly),
        ),
        WrongAnswer(
            "rounded to the nearest",
            "Round down: a bucket begins at its boundary.",
            _buckets_with(rounded=round),
        ),
        WrongAnswer(
            "a bucket for each of too few distances",
            "Half of the n buckets of a side hold one distance each.",
            _buckets_with(exact_of=4),
        ),
    ),
)
