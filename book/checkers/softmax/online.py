"""Two parts of a row, merged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.softmax.common import EXACT, draw

# --- merge ----------------------------------------------------------------------------------------


def _merge(m1: Tensor, s1: Tensor, o1: Tensor, m2: Tensor, s2: Tensor, o2: Tensor) -> Tensor:
    """The averages of the parts, weighed by a softmax over their log-sum-exps."""
    share = torch.softmax(torch.stack([m1 + s1.log(), m2 + s2.log()], -1), -1)
    averages = [o / torch.where(s > 0, s, 1.0).unsqueeze(-1) for s, o in ((s1, o1), (s2, o2))]
    return (share.unsqueeze(-2) @ torch.stack(averages, -2)).squeeze(-2)


@in_parts
def _merge_with(
    *,
    base: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
    scale: Callable[[Tensor, Tensor], Tensor] = lambda m_i, m: torch.exp(m_i - m),
    column: Callable[[Tensor], Tensor] = lambda scale: scale.unsqueeze(-1),
    for_sum: Callable[[Tensor], Tensor] = lambda scale: scale,
    for_output: Callable[[Tensor], Tensor] = lambda scale: scale,
    for_first: Callable[[Tensor], Tensor] = lambda scale: scale,
    for_second: Callable[[Tensor], Tensor] = lambda scale: scale,
    finish: Callable[[Tensor, Tensor], Tensor] = lambda o, s: o / s.unsqueeze(-1),
) -> Answer:
    def answer(m1: Tensor, s1: Tensor, o1: Tensor, m2: Tensor, s2: Tensor, o2: Tensor) -> Tensor:
        m = base(m1, m2)
        a, b = for_first(scale(m1, m)), for_second(scale(m2, m))
        s = s1 * for_sum(a) + s2 * for_sum(b)
        o = o1 * column(for_output(a)) + o2 * column(for_output(b))
        return finish(o, s)

    return answer


def _merge_case(name: str, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> Case:
    """Each part is given as its scores, shape (*, keys); its values are drawn."""

    def inputs() -> tuple[Any, ...]:
        states: list[Tensor] = []
        for seed, z in enumerate((first(), second())):
            m = z.max(-1).values
            shift = torch.where(m.isinf(), 0.0, m).unsqueeze(-1)
            weights = torch.exp(z - shift)
            values = draw(*z.shape, 3, seed=10 + seed)
            states += [m, weights.sum(-1), (weights.unsqueeze(-2) @ values).squeeze(-2)]
        return tuple(states)

    return Case(name, inputs, EXACT)


_ones_like = torch.ones_like

MERGE = Exercise(
    title="Merge two halves of a row",
    oracle=_merge,
    leading={"m1": 0, "s1": 0, "o1": 1, "m2": 0, "s2": 0, "o2": 1},
    cases=(
        _merge_case("one row, 5 and 9 keys", lambda: draw(5), lambda: draw(9, seed=1)),
        _merge_case("four rows", lambda: draw(4, 5, scale=3), lambda: draw(4, 6, seed=1)),
        _merge_case("three rows of three features", lambda: draw(3, 5), lambda: draw(3, 8)),
        _merge_case("two batch dimensions", lambda: draw(2, 3, 5), lambda: 2 + draw(2, 3, 4)),
        _merge_case("the first part leads by 4", lambda: 4 + draw(3, 5), lambda: draw(3, 5)),
        _merge_case("the second part leads by 4", lambda: draw(3, 5), lambda: 4 + draw(3, 5)),
        _merge_case("scores near 1,000", lambda: 1000 + draw(2, 5), lambda: 1001 + draw(2, 3)),
        _merge_case("scores near -1,000", lambda: draw(2, 5) - 999, lambda: draw(2, 3) - 1000),
        _merge_case("800 apart", lambda: draw(2, 5), lambda: 800 + draw(2, 5)),
        _merge_case(
            "scores near -12,000",
            lambda: draw(2, 5) - 12_000,
            lambda: draw(2, 3, seed=1) - torch.tensor([[11_996.0], [12_004.0]]),
        ),
        _merge_case(
            "one row of the first part is masked",
            lambda: draw(3, 5) + torch.tensor([[-math.inf], [0.0], [2.0]]),
            lambda: draw(3, 4, seed=1),
        ),
        _merge_case(
            "the first part is masked",
            lambda: torch.full((2, 3), -math.inf, dtype=torch.float64),
            lambda: draw(2, 5),
        ),
        _merge_case(
            "the second part is masked",
            lambda: draw(2, 5) - 3,
            lambda: torch.full((2, 3), -math.inf, dtype=torch.float64),
        ),
    ),
    variants=(
        _merge_with(),
        lambda m1, s1, o1, m2, s2, o2: _merge(m2, s2, o2, m1, s1, o1),
    ),
    wrong=(
        WrongAnswer(
            "parts added as they are",
            "The two parts are measured from different maxima. Bring both to the common maximum "
            "before adding.",
            _merge_with(scale=lambda m_i, m: _ones_like(m_i)),
        ),
        WrongAnswer(
            "plain average of the two averages",
            "A part with larger scores or more keys has to count more.",
            lambda m1, s1, o1, m2, s2, o2: (o1 / s1.unsqueeze(-1) + o2 / s2.unsqueeze(-1)) / 2,
        ),
        WrongAnswer(
            "only the sums rescaled",
            "The output was measured from the old maximum too, and needs the same factor.",
            _merge_with(for_output=_ones_like),
        ),
        WrongAnswer(
            "only the outputs rescaled",
            "The sum was measured from the old maximum too, and needs the same factor.",
            _merge_with(for_sum=_ones_like),
        ),
        WrongAnswer(
            "exponent with the wrong sign",
            "The factor is exp(m_old - m_new), which is at most one.",
            _merge_with(scale=lambda m_i, m: torch.exp(m - m_i)),
        ),
        WrongAnswer(
            "only the first part rescaled",
            "Either part may have the smaller maximum, so both get their factor.",
            _merge_with(for_second=_ones_like),
        ),
        WrongAnswer(
            "only the second part rescaled",
            "Either part may have the smaller maximum, so both get their factor. One of the "
            "factors is 1.",
            _merge_with(for_first=_ones_like),
        ),
        WrongAnswer(
            "measured from the smaller maximum",
            "Then a factor is larger than one and can overflow. Take the larger maximum.",
            _merge_with(base=torch.minimum),
        ),
        WrongAnswer(
            "no common maximum",
            "exp(m) overflows for scores near 1,000. Only differences of maxima may be "
            "exponentiated.",
            _merge_with(scale=lambda m_i, m: torch.exp(m_i)),
        ),
        WrongAnswer(
            "a number in place of minus infinity",
            "However low it is, all scores may lie below it: then both maxima become that number. "
            "exp(-inf) is 0, which is what is wanted.",
            lambda m1, s1, o1, m2, s2, o2: _merge_with()(
                m1.clamp(min=-1e4), s1, o1, m2.clamp(min=-1e4), s2, o2
            ),
        ),
        WrongAnswer(
            "not divided by the sum",
            "The merged output is a sum over all keys. Divided by the merged sum it is an average.",
            _merge_with(finish=lambda o, s: o),
        ),
        WrongAnswer(
            "factor without its own dimension",
            "There is one factor per row, and `o` has one dimension more. Without `[..., None]` "
            "the factors line up with the features.",
            _merge_with(column=lambda scale: scale),
        ),
    ),
)
