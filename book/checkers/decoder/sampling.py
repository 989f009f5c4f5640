"""The shortest list of tokens that reaches a probability."""

from __future__ import annotations

from collections.abc import Callable

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
