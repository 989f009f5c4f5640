"""Where the parts meet: what a leak costs, a test that finds it, and the model's own mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer
from book.checkers.questions import WrongNumber, choice, number

# --- leak -----------------------------------------------------------------------------------------

LEAK = number(
    "The loss of a leak",
    value=lambda: math.log(1000) / 20,
    within=0.02,
    because="Nineteen of the twenty tokens stand in the input one place further on and cost "
    "nothing. The last has to be guessed, which costs ln 1000 = 6.91, and the mean is {value}.",
    wrong=[
        WrongNumber(
            "the loss of guessing",
            "All but the last can be read off: without the mask every place sees the whole input.",
            lambda: math.log(1000),
        ),
        WrongNumber(
            "no loss at all",
            "The last token is the one that the shift drops: it stands in no input.",
            lambda: 0.0,
        ),
        WrongNumber(
            "as in the run above",
            "There the vocabulary had 50 tokens and a sequence ten.",
            lambda: math.log(50) / 10,
        ),
        WrongNumber(
            "in bits",
            "The loss is in nats, with the natural logarithm.",
            lambda: math.log2(1000) / 20,
        ),
        WrongNumber(
            "the sum instead of the mean",
            "One place pays 6.91 nats, and the loss is the mean over twenty places.",
            lambda: math.log(1000) / 19,
        ),
    ],
)

EXACT = choice(
    "Its own mistakes",
    right="B",
    because="Up to the first mistake the model's own prefix is the right one, so it sees what it "
    "sees with teacher forcing and makes the same first mistake, or none.",
    tempting={
        "A": (
            "mistakes that add up",
            "They do, after the first one: fewer single signs are right. But a date with one "
            "mistake was already not among those that count.",
        ),
        "C": (
            "a choice that suits",
            "Where all signs are right there was nothing to choose: the inputs are the same.",
        ),
        "D": (
            "independent signs",
            "Mistakes are not spread evenly over the dates, and anyway both ways have the same "
            "first mistakes.",
        ),
    },
)


# --- causal ---------------------------------------------------------------------------------------

Decoder = Callable[[Tensor], Tensor]


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _other(x: Tensor, t: int) -> Tensor:
    """The same rows before t, and others from there on."""
    other = x.clone()
    other[t:] = 3 - 2 * other[t:]
    return other


def _moved(decoder: Decoder, x: Tensor, t: int) -> Tensor:
    """Which rows of the output move if row t and all later ones are others."""
    return (decoder(_other(x, t)) != decoder(x)).any(-1)


def _causal(decoder: Decoder) -> bool:
    x = _draw(7, 4)
    return not any(bool(_moved(decoder, x, t)[:t].any()) for t in range(1, len(x)))


def _causal_by_autograd(decoder: Decoder) -> bool:
    x = _draw(6, 3, seed=1)
    x.requires_grad_()
    for t in range(len(x) - 1):
        out = decoder(x)[t].sum()
        if out.requires_grad:
            (grad,) = torch.autograd.grad(out, x, allow_unused=True)
            if grad is not None and grad[t + 1 :].any():
                return False
    return True


def _attention(mask: Callable[[int], Tensor]) -> Decoder:
    def decoder(x: Tensor) -> Tensor:
        weights = (x @ x.T).masked_fill(~mask(len(x)), -torch.inf).softmax(-1)
        return weights @ x

    return decoder


def _lower(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


def _one_more(n: int) -> Tensor:
    """With one entry too many, in the third row; a short sequence has none."""
    mask = _lower(n)
    mask[min(2, n - 1), min(3, n - 1)] = True
    return mask


_DECODERS: dict[str, Decoder] = {
    "a causal attention": _attention(_lower),
    "a causal attention without the place itself": lambda x: torch.cat(
        [torch.zeros_like(x[:1]), _attention(_lower)(x)[:-1]]
    ),
    "a layer that takes each row alone": lambda x: torch.tanh(x) * 2,
    "a running sum": lambda x: x.cumsum(0),
    "a decoder that always says the same": torch.ones_like,
    "an attention without a mask": _attention(lambda n: torch.ones(n, n, dtype=torch.bool)),
    "a mask that is off by one": _attention(lambda n: torch.ones(n, n).tril(1).bool()),
    "a mask that looks forward": _attention(lambda n: _lower(n).T),
    "one place that sees its successor": _attention(_one_more),
    "a very small leak": lambda x: x.cumsum(0) + 1e-6 * x.sum(0),
    "a norm over the whole sequence": lambda x: F.layer_norm(x.cumsum(0), x.shape),
    "a leak into one feature": lambda x: torch.cat([x[:, :-1], x[:, -1:].flip(0)], 1),
}


def _case(name: str) -> Case:
    return Case(name, lambda: (_DECODERS[name],))


CAUSAL = Exercise(
    "A test for leaks",
    oracle=_causal,
    cases=tuple(_case(name) for name in _DECODERS),
    wrong=(
        WrongAnswer(
            "only the last row changed",
            "A decoder that looks one place ahead somewhere else keeps its secret. Change every "
            "row in turn.",
            lambda decoder: not bool(_moved(decoder, _draw(7, 4), 6)[:6].any()),
        ),
        WrongAnswer(
            "only the first output watched",
            "The leak may be at any place, so every row before the change has to stay.",
            lambda decoder: not bool(_moved(decoder, _draw(7, 4), 1)[:1].any()),
        ),
        WrongAnswer(
            "the changed row counted too",
            "A row may depend on itself and on earlier ones. Only the rows before the change have "
            "to stay.",
            lambda decoder: (
                not any(bool(_moved(decoder, _draw(7, 4), t)[: t + 1].any()) for t in range(1, 7))
            ),
        ),
        WrongAnswer(
            "nearly equal is equal",
            "A small leak is a leak. Rows that do not depend on a change come out the same to the "
            "last bit.",
            lambda decoder: (
                not any(
                    bool(
                        ((decoder(x := _draw(7, 4)) - decoder(_other(x, t))).abs()[:t] > 1e-3).any()
                    )
                    for t in range(1, 7)
                )
            ),
        ),
        WrongAnswer(
            "asked whether it looks forward at all",
            "True means that no row depends on a later one.",
            lambda decoder: not _causal(decoder),
        ),
        WrongAnswer(
            "shapes only",
            "All of these decoders keep the shape.",
            lambda decoder: decoder(_draw(7, 4)).shape == (7, 4),
        ),
    ),
    variants=(_causal_by_autograd,),
)
