"""The shortest list of tokens that reaches a probability, and rows on which filters disagree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw


@in_parts
def _filter(
    keeps: Callable[[Tensor, float], Tensor] = lambda p, P: p.cumsum(-1) - p < P,
    first: bool = True,
    fill: float = -torch.inf,
    descending: bool = True,
    back: bool = True,
) -> Answer:
    def top_p_filter(logits: Tensor, top_p: float) -> Tensor:
        probs, index = logits.softmax(-1).sort(-1, descending=descending)
        keep = keeps(probs, top_p)
        if first:
            keep = torch.cat([torch.ones_like(keep[..., :1]), keep[..., 1:]], -1)
        if back:
            keep = torch.zeros_like(keep).scatter(-1, index, keep)
        return logits.masked_fill(~keep, fill)

    return top_p_filter


def _top_p_by_rank(logits: Tensor, top_p: float) -> Tensor:
    """Row by row, with a loop over the ranks."""
    out = torch.full_like(logits, -torch.inf)
    for row, target in zip(
        logits.reshape(-1, logits.shape[-1]), out.view(-1, out.shape[-1]), strict=True
    ):
        p, total = row.softmax(-1), 0.0
        for j in p.argsort(descending=True).tolist():
            target[j] = row[j]
            total += p[j].item()
            if total >= top_p:
                break
    return out


def _renormalised(logits: Tensor, top_p: float) -> Tensor:
    kept = _filter()(logits, top_p)
    return torch.as_tensor(kept.softmax(-1))


def _by_threshold(logits: Tensor, top_p: float) -> Tensor:
    return logits.masked_fill(logits.softmax(-1) < 1 - top_p, -torch.inf)


def _top_p_case(name: str, make: Callable[[], Tensor], top_p: float) -> Case:
    return Case(name, lambda: (make(), top_p))


TOP_P = Exercise(
    title="The top-p filter",
    oracle=_filter(),
    leading={"logits": 1},
    cases=[
        _top_p_case("nine tokens", lambda: draw(9), 0.8),
        _top_p_case("a batch", lambda: 2 * draw(4, 11, seed=1), 0.9),
        _top_p_case("two batch dimensions", lambda: draw(2, 3, 7, seed=2), 0.6),
        _top_p_case("the first token alone exceeds it", lambda: 6 * draw(3, 8, seed=3), 0.1),
        _top_p_case("a very small nucleus", lambda: draw(5, 8, seed=4), 1e-6),
        _top_p_case("nearly everything", lambda: draw(2, 6, seed=5), 0.999999),
        _top_p_case("float32", lambda: draw(3, 9, seed=6).float(), 0.7),
        _top_p_case(
            "half of it in one token, and half is asked for",
            lambda: torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64).log(),
            0.5,
        ),
        _top_p_case("large logits", lambda: 1000 + draw(3, 9, seed=7), 0.5),
    ],
    variants=(_top_p_by_rank, _filter(first=False)),
    wrong=(
        WrongAnswer(
            "the token that crosses the line is dropped",
            "The sum up to and including a token says whether it is the last one. A token stays "
            "if the sum before it is below top_p; otherwise the nucleus falls short.",
            _filter(keeps=lambda p, P: p.cumsum(-1) <= P, first=False),
        ),
        WrongAnswer(
            "the crossing token is dropped, the first one saved",
            "Saving the first token avoids an empty nucleus but the others are still one too "
            "few: compare the sum before each token.",
            _filter(keeps=lambda p, P: p.cumsum(-1) <= P),
        ),
        WrongAnswer(
            "one token too many",
            "The list ends with the token that reaches top_p. The next one starts at or above it.",
            _filter(keeps=lambda p, P: F.pad((p.cumsum(-1) - p < P)[..., :-1], (1, 0), value=True)),
        ),
        WrongAnswer(
            "the mask left in sorted order",
            "The mask belongs to the sorted tokens. Scatter it back to their places.",
            _filter(back=False),
        ),
        WrongAnswer(
            "the least probable tokens first",
            "The nucleus is made of the most probable tokens: sort in descending order.",
            _filter(descending=False),
        ),
        WrongAnswer(
            "zeros in place of minus infinity",
            "A logit of zero is a probability like any other. Only minus infinity is none.",
            _filter(fill=0.0),
        ),
        WrongAnswer(
            "probabilities returned",
            "The function filters logits; a softmax comes later, and once.",
            _renormalised,
        ),
        WrongAnswer(
            "a threshold on single probabilities",
            "top_p is about the sum of the most probable tokens, not about each probability.",
            _by_threshold,
        ),
        WrongAnswer(
            "logits summed instead of probabilities",
            "The sum that has to reach top_p is one of probabilities: softmax first.",
            lambda logits, top_p: logits.masked_fill(
                logits.sort(-1, descending=True).values.cumsum(-1) > top_p, -torch.inf
            ),
        ),
    ),
)


# --- filters(judge, size, top_p, min_p) -----------------------------------------------------------


def _judge(size: int, top_p: float, min_p: float) -> Callable[[Tensor, Tensor], tuple[bool, ...]]:
    """What the two filters keep of two rows: the four conditions, in the order of the text."""

    def kept(logits: Tensor) -> tuple[int, int]:
        if tuple(logits.shape) != (size,):
            raise ValueError(f"a row must have shape ({size},), got {tuple(logits.shape)}")
        probs = logits.double().softmax(-1).sort(descending=True).values
        before = probs.cumsum(-1) - probs
        # A share that is met exactly counts, whatever the last digit says.
        reached = probs >= min_p * probs[0] * (1 - 1e-6)
        return int((before < top_p).sum()), int(reached.sum())

    def judge(first: Tensor, second: Tensor) -> tuple[bool, ...]:
        (sum_1, share_1), (sum_2, share_2) = kept(first), kept(second)
        return 2 * sum_1 >= size, share_1 == 1, sum_2 == 1, share_2 > 1

    return judge


@in_parts
def _rows(
    above: Callable[[float], float] = lambda min_p: 2 / min_p,
    best: Callable[[float, float], float] = lambda top_p, min_p: (top_p + 1 / (1 + min_p)) / 2,
    logit: Callable[[Tensor], Tensor] = torch.log,
    exchanged: bool = False,
) -> Answer:
    """Rows whose first token has `above` times the probability of each other, and `best`."""

    def rows(
        judge: Callable[[Tensor, Tensor], Any], size: int, top_p: float, min_p: float
    ) -> tuple[bool, ...]:
        first = logit(torch.tensor([above(min_p)] + [1.0] * (size - 1), dtype=torch.float64))
        p = best(top_p, min_p)
        rest = torch.full((size - 2,), 1e-12, dtype=torch.float64)
        second = logit(torch.cat([torch.tensor([p, 1 - p], dtype=torch.float64), rest]))
        answer: tuple[bool, ...] = judge(second, first) if exchanged else judge(first, second)
        return answer

    return rows


def _tail_and_runner_up(
    judge: Callable[[Tensor, Tensor], Any], size: int, top_p: float, min_p: float
) -> Any:
    """The largest token last, and the second row by the smallest probability that will do."""
    first, second = torch.zeros(size), torch.full((size,), -60.0)
    first[-1] = 1.5 * torch.tensor(1 / min_p).log()
    share = top_p + 0.1 * (1 / (1 + min_p) - top_p)
    second[3], second[1] = torch.tensor(share).log(), torch.tensor(1 - share).log()
    return judge(first, second)


def _filters_case(name: str, size: int, top_p: float, min_p: float) -> Case:
    return Case(name, lambda: (_judge(size, top_p, min_p), size, top_p, min_p))


FILTERS = Exercise(
    title="Two filters that disagree",
    oracle=_rows(),
    cases=[
        _filters_case("top-p 0.9 and min-p 0.05", 1000, 0.9, 0.05),
        _filters_case("top-p 0.95 and min-p 0.04", 5000, 0.95, 0.04),
        _filters_case("top-p 0.6 and min-p 0.5", 2000, 0.6, 0.5),
        _filters_case("top-p 0.8 and min-p 0.1", 1000, 0.8, 0.1),
        _filters_case("a vocabulary of 50,000", 50_000, 0.9, 0.1),
    ],
    variants=(_tail_and_runner_up,),
    wrong=(
        WrongAnswer(
            "the others reach the share",
            "A token with the share min_p of the largest, or with more, stays. In the first row "
            "all others have to have less.",
            _rows(above=lambda min_p: 1 / min_p),
        ),
        WrongAnswer(
            "probabilities in place of logits",
            "The rows are logits: the logarithm of what a token is to have, but for a constant.",
            _rows(logit=lambda p: p),
        ),
        WrongAnswer(
            "the first row's largest token takes nearly all",
            "Where one token has more than top_p, top-p stops there as well. The tail has to be "
            "low and heavy.",
            _rows(above=lambda min_p: 1e9),
        ),
        WrongAnswer(
            "the second row nearly certain",
            "Where the first token has nearly all, nothing is left with the share that min-p asks "
            "for.",
            _rows(best=lambda top_p, min_p: 1 - 1e-9),
        ),
        WrongAnswer(
            "the best of the second row short of top_p",
            "Top-p goes on until top_p is reached. The first token must have that much on its own.",
            _rows(best=lambda top_p, min_p: 0.5),
        ),
        WrongAnswer(
            "the rows exchanged",
            "The first row is the one of which top-p keeps at least half.",
            _rows(exchanged=True),
        ),
    ),
)
