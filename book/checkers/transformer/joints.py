"""Where the parts meet: what a leak costs, a loss to repair, and the model's own mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.questions import WrongNumber, choice, number

# --- exact and penalty ----------------------------------------------------------------------------

EXACT = choice(
    "Its own mistakes",
    right="B",
    because="Up to the first mistake the model's own prefix is the right one, so it sees what it "
    "sees with teacher forcing and makes the same first mistake, or none.",
    tempting={
        "A": (
            "mistakes that add up",
            "They do, after the first one: fewer single characters are right. But a date with one "
            "mistake was already not among those that count.",
        ),
        "C": (
            "a choice that suits",
            "Where all characters are right there was nothing to choose: the inputs are the same.",
        ),
        "D": (
            "independent characters",
            "The ten places are not equally hard. The product of their own shares is smaller than "
            "the power of the mean, and both ways have the same first mistakes.",
        ),
    },
)

# The table of the chapter: log-probabilities of the two outputs, and their tokens with the end.
SHORT, LONG = math.log(0.40 * 0.50), math.log(0.40 * 0.46 * 0.90 * 0.97)


def _change(short: float, long: float) -> float:
    """The α at which both scores are equal, for penalties with these bases."""
    return math.log(LONG / SHORT) / math.log(long / short)


PENALTY = number(
    "Where the output changes",
    value=lambda: _change((5 + 2) / 6, (5 + 4) / 6),
    within=0.02,
    because="At α = {value} both outputs have the same score: (9/7)^α equals the ratio of their "
    f"log-probabilities, ln {math.exp(LONG):.4f} / ln {math.exp(SHORT):.4f} = {LONG / SHORT:.3f}.",
    wrong=[
        WrongNumber(
            "the next step of the slider",
            "There the long output has already won. The change lies between two steps.",
            lambda: 0.6,
        ),
        WrongNumber(
            "the step before",
            "There the short output still wins. The change lies between two steps.",
            lambda: 0.3,
        ),
        WrongNumber(
            "the end token not counted",
            "The lengths are 2 and 4: the end token is one of the tokens.",
            lambda: _change((5 + 1) / 6, (5 + 3) / 6),
        ),
        WrongNumber(
            "divided by the length alone",
            "The penalty is the power of (5 + length) / 6, not of the length.",
            lambda: _change(2, 4),
        ),
        WrongNumber(
            "the ratio of the probabilities",
            "What is divided by the penalty is the log-probability.",
            lambda: (SHORT - LONG) / math.log(9 / 7),
        ),
        WrongNumber(
            "one beam",
            "With one beam the search never sees B; there the change comes later.",
            lambda: (
                math.log(math.log(0.5 * 0.26 * 0.9 * 0.97) / math.log(0.5 * 0.3)) / math.log(9 / 7)
            ),
        ),
    ],
)


# --- loss -----------------------------------------------------------------------------------------

Decode = Callable[[Tensor, Tensor, Tensor], Tensor]
VOCAB = 7


def _ones(mask: Tensor) -> Tensor:
    """1 where the mask is True; a mask that is not boolean is refused."""
    return torch.where(mask, 1.0, 0.0).double()


def _decoder(scale: float, src: Tensor) -> Decode:
    """Logits that depend on all tokens that may be seen, and on the place."""
    rng = torch.Generator().manual_seed(3)
    table = scale * torch.randn(12, VOCAB, generator=rng, dtype=torch.float64)
    table.requires_grad_()

    def decode(inputs: Tensor, past: Tensor, source: Tensor) -> Tensor:
        rows, length = inputs.shape
        own = _ones(past).expand(rows, length, length) @ table[inputs]
        given = _ones(source).expand(rows, length, -1) @ table[src].flip(-1)
        logits: Tensor = own + given + 0.1 * table[:length]
        return logits

    return decode


def _past(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()


def _source(src: Tensor, tgt: Tensor, pad: int) -> Tensor:
    return (src != pad)[:, None]


def _shifted(tgt: Tensor, bos: int) -> Tensor:
    return F.pad(tgt[:, :-1], (1, 0), value=bos)


def _surprises(logits: Tensor, tgt: Tensor) -> Tensor:
    """The surprise of each token of `tgt`, (B, T)."""
    return -logits.log_softmax(-1).gather(-1, tgt[..., None])[..., 0]


@in_parts
def _loss(
    shifted: Callable[[Tensor, int], Tensor] = _shifted,
    counts: Callable[[Tensor, int], Tensor] = lambda tgt, pad: tgt != pad,
    over: Callable[[Tensor], Tensor] = lambda kept: kept.sum(),
    past: Callable[[int], Tensor] = _past,
    source: Callable[[Tensor, Tensor, int], Tensor] = _source,
) -> Answer:
    def answer(decode: Decode, src: Tensor, tgt: Tensor, bos: int, pad: int) -> Tensor:
        kept = counts(tgt, pad)
        logits = decode(shifted(tgt, bos), past(tgt.shape[1]), source(src, tgt, pad))
        return (_surprises(logits, tgt) * kept).sum() / over(kept)

    return answer


def _loss_in_loops(decode: Decode, src: Tensor, tgt: Tensor, bos: int, pad: int) -> Tensor:
    """Token by token, each from its own prefix."""
    found = []
    for t in range(tgt.shape[1]):
        logits = decode(_shifted(tgt, bos)[:, : t + 1], _past(t + 1), _source(src, tgt, pad))
        for row, token in enumerate(tgt[:, t].tolist()):
            if token != pad:
                found.append(F.cross_entropy(logits[row, -1], tgt[row, t]))
    return torch.stack(found).mean()


def _loss_of_torch(decode: Decode, src: Tensor, tgt: Tensor, bos: int, pad: int) -> Tensor:
    """With full masks, padding of the target included, and torch's own loss."""
    inputs = torch.cat([torch.full_like(tgt[:, :1], bos), tgt[:, :-1]], 1)
    past = _past(tgt.shape[1]) & (inputs != pad)[:, None]
    source = (src != pad)[:, None].expand(-1, tgt.shape[1], -1)
    return F.cross_entropy(decode(inputs, past, source).mT, tgt, ignore_index=pad)


def _mean_of_means(decode: Decode, src: Tensor, tgt: Tensor, bos: int, pad: int) -> Tensor:
    kept = tgt != pad
    logits = decode(_shifted(tgt, bos), _past(tgt.shape[1]), _source(src, tgt, pad))
    return ((_surprises(logits, tgt) * kept).sum(1) / kept.sum(1)).mean()


def _first_not_asked(decode: Decode, src: Tensor, tgt: Tensor, bos: int, pad: int) -> Tensor:
    logits = decode(tgt[:, :-1], _past(tgt.shape[1] - 1), _source(src, tgt, pad))
    return F.cross_entropy(logits.mT, tgt[:, 1:], ignore_index=pad)


def _loss_case(
    name: str,
    sources: list[list[int]],
    targets: list[list[int]],
    pad: int = 0,
    bos: int = 1,
    scale: float = 1.0,
) -> Case:
    def filled(rows: list[list[int]]) -> Tensor:
        length = max(map(len, rows))
        return torch.tensor([[*row, *[pad] * (length - len(row))] for row in rows])

    def inputs() -> tuple[Any, ...]:
        src = filled(sources)
        return _decoder(scale, src), src, filled(targets), bos, pad

    return Case(name, inputs)


LOSS = Exercise(
    "Repair a loss",
    oracle=_loss(),
    cases=(
        _loss_case(
            "all of one length", [[5, 3], [4, 4], [3, 6]], [[3, 4, 2], [5, 6, 2], [4, 4, 2]]
        ),
        _loss_case("a shorter target", [[6, 3, 5], [4, 4, 3]], [[3, 4, 5, 2], [6, 2]]),
        _loss_case("a shorter source", [[6, 3, 5], [4]], [[3, 4, 5, 2], [6, 5, 4, 2]]),
        _loss_case(
            "another padding token",
            [[4, 0, 3], [0], [5, 2]],
            [[3, 4, 5, 2], [0, 2], [4, 0, 2]],
            pad=6,
            bos=5,
        ),
        _loss_case("one pair", [[5, 3, 6]], [[3, 3, 4, 2]]),
        _loss_case(
            "much padding",
            [[5], [6, 5, 4, 3, 6, 5, 4], [3, 3]],
            [[3, 4, 5, 6, 3, 4, 5, 6, 2], [2], [4, 2]],
        ),
        _loss_case("logits of size 800", [[6, 3], [4]], [[3, 4, 5, 2], [6, 2]], scale=400.0),
    ),
    wrong=(
        WrongAnswer(
            "not shifted",
            "At each place the decoder sees the very token that it has to say.",
            _loss(shifted=lambda tgt, bos: tgt),
        ),
        WrongAnswer(
            "shifted to the left",
            "Then each place is shown the token after the one that it has to say.",
            _loss(shifted=lambda tgt, bos: F.pad(tgt[:, 1:], (0, 1), value=bos)),
        ),
        WrongAnswer(
            "no start token",
            "The first place has to see the start token, not the last token of the target.",
            _loss(shifted=lambda tgt, bos: tgt.roll(1, 1)),
        ),
        WrongAnswer(
            "the first token never asked",
            "Writing begins with the start token, so the first token has to be learnt from it.",
            _first_not_asked,
        ),
        WrongAnswer(
            "no causal mask",
            "Each place but the last then finds its token in the input of the place after it.",
            _loss(past=lambda length: torch.ones(length, length).bool()),
        ),
        WrongAnswer(
            "the padding of the source is seen",
            "What fills up a short source is no part of it. Only its tokens may be looked at.",
            _loss(source=lambda src, tgt, pad: torch.ones_like(src, dtype=torch.bool)[:, None]),
        ),
        WrongAnswer(
            "the source masked where it has tokens",
            "A mask is True where a place may look: at the tokens.",
            _loss(source=lambda src, tgt, pad: (src == pad)[:, None]),
        ),
        WrongAnswer(
            "padding counted",
            "The places that only fill up a sequence are no tokens of the target.",
            _loss(counts=lambda tgt, pad: torch.ones_like(tgt, dtype=torch.bool)),
        ),
        WrongAnswer(
            "padding left in the count",
            "The sum leaves the padding out, so the number it is divided by has to do so too.",
            _loss(over=lambda kept: torch.tensor(kept.numel())),
        ),
        WrongAnswer(
            "the sum instead of the mean",
            "Divide by the number of tokens that are not padding.",
            _loss(over=lambda kept: torch.ones(())),
        ),
        WrongAnswer(
            "the mean of the sequences' means",
            "Each token counts the same. In a mean of means those of short sequences count more.",
            _mean_of_means,
        ),
    ),
    variants=(_loss_in_loops, _loss_of_torch),
)
