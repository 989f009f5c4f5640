"""Questions of the assignment: training_length, base_for_context, llama3_classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

# --- training_length ------------------------------------------------------------------------------


def _training_length(pairs: int, head_dim: int, base: float) -> int:
    slowest = math.pow(base, -2 * (pairs - 1) / head_dim)
    length = max(1, math.floor(2 * math.pi / slowest) - 1)
    while length * slowest < 2 * math.pi:
        length += 1
    return length


@in_parts
def _length_with(
    index: Callable[[int], int] = lambda n: n - 1,
    width: Callable[[int], float] = lambda d: d,
    circle: float = 2 * math.pi,
    whole: Callable[[float], float] = math.ceil,
) -> Answer:
    def answer(pairs: int, head_dim: int, base: float) -> float:
        return whole(circle * math.pow(base, 2 * index(pairs) / width(head_dim)))

    return answer


def _args(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


_LENGTH = Exercise(
    title="How long must training be?",
    oracle=_training_length,
    cases=(
        _args("corners: the first pair", 1, 8, 1e4),
        _args("values: two pairs of four", 2, 8, 1e4),
        _args("values: all pairs of eight features", 4, 8, 1e4),
        _args("values: 46 pairs of a head of 128", 46, 128, 1e4),
        _args("corners: all 64 of them", 64, 128, 1e4),
        _args("values: half of them at base 500000", 32, 128, 5e5),
        _args("corners: a head of 64", 20, 64, 1e6),
    ),
    wrong=(
        WrongAnswer(
            "pairs counted from 1",
            "The first pair has index 0 and frequency 1, so that the n-th has index n - 1.",
            _length_with(index=lambda n: n),
        ),
        WrongAnswer(
            "radians taken for turns",
            "A full turn is 2 pi radians.",
            _length_with(circle=1.0),
        ),
        WrongAnswer(
            "rounded down",
            "One position fewer, and the turn is not complete.",
            _length_with(whole=math.floor),
        ),
        WrongAnswer(
            "half a turn",
            "A wavelength is a whole turn: 2 pi, not pi.",
            _length_with(circle=math.pi),
        ),
        WrongAnswer(
            "the exponent over the number of pairs",
            "The exponent of pair k is 2 k / head_dim. Over the pairs it would be k.",
            _length_with(width=lambda d: d / 2),
        ),
        WrongAnswer(
            "the fastest pair",
            "Pair 0 is round first. Each of the pairs has to complete its turn, also the slowest.",
            _length_with(index=lambda n: 0),
        ),
        WrongAnswer(
            "rounded to the nearest",
            "Where that rounds down, the last pair has not quite come round.",
            _length_with(whole=round),
        ),
        WrongAnswer(
            "one position more",
            "The length that completes the turn is enough; one that is longer is not the smallest.",
            _length_with(whole=lambda length: math.ceil(length) + 1),
        ),
        WrongAnswer(
            "the exponent without the 2",
            "Pair k is made of two features, so that the exponents go down to almost -1, not to "
            "-1 / 2.",
            _length_with(width=lambda d: 2 * d),
        ),
        WrongAnswer(
            "a length that is no whole number",
            "Positions are counted: the smallest whole number that is long enough, of type int.",
            _length_with(whole=float),
        ),
    ),
    variants=(_length_with(),),
)


# --- base_for_context -----------------------------------------------------------------------------


def _base_for(head_dim: int, context: float, turns: float) -> float:
    """By bisection on the logarithm of the base."""
    low, high = -200.0, 400.0
    exponent = (head_dim - 2) / head_dim
    for _ in range(200):
        middle = (low + high) / 2
        made = math.log(context / (2 * math.pi)) - middle * exponent
        low, high = (middle, high) if made > math.log(turns) else (low, middle)
    return math.exp(low)


@in_parts
def _base_with(
    exponent: Callable[[int], float] = lambda d: d / (d - 2),
    circle: float = 2 * math.pi,
    share: Callable[[float], float] = lambda turns: 1 / turns,
    length: Callable[[float], float] = lambda context: context,
    outside: bool = False,
    done: Callable[[float], float] = float,
) -> Answer:
    def answer(head_dim: int, context: float, turns: float) -> float:
        turn = length(context) / circle
        if outside:
            return done(share(turns) * math.pow(turn, exponent(head_dim)))
        return done(math.pow(turn * share(turns), exponent(head_dim)))

    return answer


_BASE = Exercise(
    title="The base for a context",
    oracle=_base_for,
    cases=(
        _args("values: half a turn in 4096", 128, 4096, 0.5),
        _args("values: one turn in 8192", 128, 8192, 1.0),
        _args("values: a quarter of a turn in 131072", 64, 131072, 0.25),
        _args("values: two turns in 512", 32, 512, 2.0),
        _args("corners: four features", 4, 100, 0.5),
        _args("corners: a million positions", 256, 1_000_000, 0.1),
    ),
    wrong=(
        WrongAnswer(
            "the exponent 1",
            "The slowest pair has index head_dim / 2 - 1: its exponent is (d - 2) / d, not 1.",
            _base_with(exponent=lambda d: 1.0),
        ),
        WrongAnswer(
            "the exponent upside down",
            "The base to the power (d - 2) / d is known. Take it to the power d / (d - 2).",
            _base_with(exponent=lambda d: (d - 2) / d),
        ),
        WrongAnswer(
            "radians taken for turns",
            "A turn is 2 pi radians; divide the context by 2 pi.",
            _base_with(circle=1.0),
        ),
        WrongAnswer(
            "more turns, larger base",
            "A larger base is slower, so that more turns need a smaller base: divide by them.",
            _base_with(share=lambda turns: turns),
        ),
        WrongAnswer(
            "always one turn",
            "The number of turns is an argument and does not show up here.",
            _base_with(share=lambda turns: 1.0),
        ),
        WrongAnswer(
            "half a turn",
            "A turn is 2 pi radians; with pi the pair comes round twice as often.",
            _base_with(circle=math.pi),
        ),
        WrongAnswer(
            "the exponent without the 2",
            "The exponent of pair k is -2 k / head_dim. Without the 2 the slowest pair is too "
            "fast.",
            _base_with(exponent=lambda d: 2 * d / (d - 2)),
        ),
        WrongAnswer(
            "turns outside the power",
            "The turns belong to the angle, and what the angle has goes into the power as a whole.",
            _base_with(outside=True),
        ),
        WrongAnswer(
            "the last position, not the context",
            "The text counts the turns at m = context. One position less is another base.",
            _base_with(length=lambda context: context - 1),
        ),
        WrongAnswer(
            "rounded to a whole number",
            "A base is a float. Rounded, the pair does not make exactly that many turns.",
            _base_with(done=lambda base: float(round(base))),
        ),
    ),
    variants=(
        _base_with(),
        lambda head_dim, context, turns: math.exp(
            math.log(context / (2 * math.pi * turns)) / (1 - 2 / head_dim)
        ),
    ),
)


# --- llama3_classes -------------------------------------------------------------------------------


def _classes(
    head_dim: int, base: float, original_max_len: int, low: float, high: float
) -> tuple[int, int, int]:
    kept = mixed = divided = 0
    for k in range(head_dim // 2):
        turns = original_max_len * base ** (-2 * k / head_dim) / (2 * math.pi)
        kept += turns > high
        divided += turns < low
        mixed += low <= turns <= high
    return kept, mixed, divided


@in_parts
def _classes_with(
    turns: Callable[..., Tensor] = lambda d, b, n: (
        n * b ** (-torch.arange(0, d, 2, dtype=torch.float64) / d) / (2 * math.pi)
    ),
    result: Callable[[int, int, int], tuple[Any, ...]] = lambda k, m, d: (k, m, d),
    bounds: Callable[[float, float], tuple[float, float]] = lambda low, high: (low, high),
) -> Answer:
    def answer(
        head_dim: int, base: float, original_max_len: int, low: float, high: float
    ) -> tuple[Any, ...]:
        t = turns(head_dim, base, original_max_len)
        low, high = bounds(low, high)
        kept, divided = int((t > high).sum()), int((t < low).sum())
        return result(kept, len(t) - kept - divided, divided)

    return answer


_CLASSES = Exercise(
    title="Which pairs does Llama 3.1 change?",
    oracle=_classes,
    cases=(
        _args("values: Llama 3.1", 128, 5e5, 8192, 1.0, 4.0),
        _args("values: Llama 3.2, heads of 64", 64, 5e5, 8192, 1.0, 4.0),
        _args("values: the paper's limits", 128, 1e4, 4096, 1.0, 32.0),
        _args("corners: every pair turns often", 16, 10.0, 8192, 1.0, 4.0),
        _args("corners: no pair completes a turn", 16, 1e4, 5, 1.0, 4.0),
        _args("corners: other limits", 96, 1e4, 2048, 2.0, 11.0),
    ),
    wrong=(
        WrongAnswer(
            "kept and divided exchanged",
            "Fast pairs, with many turns in training, are kept. The slow ones are divided.",
            _classes_with(result=lambda k, m, d: (d, m, k)),
        ),
        WrongAnswer(
            "radians taken for turns",
            "A turn is 2 pi radians: the angle at the end of training is divided by 2 pi.",
            _classes_with(
                turns=lambda d, b, n: n * b ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
            ),
        ),
        WrongAnswer(
            "features counted, not pairs",
            "A head has head_dim / 2 pairs. The three numbers must add up to that.",
            _classes_with(result=lambda k, m, d: (2 * k, 2 * m, 2 * d)),
        ),
        WrongAnswer(
            "a ramp between pair indices",
            "The limits are numbers of turns, not shares of the list of pairs.",
            lambda head_dim, base, original_max_len, low, high: (
                head_dim // 2 - round(head_dim / 2 * (high - low) / high) - int(low),
                round(head_dim / 2 * (high - low) / high),
                int(low),
            ),
        ),
        WrongAnswer(
            "the exponent over the number of pairs",
            "The exponent of pair k is -2 k / head_dim; over the pairs it would be -k.",
            _classes_with(
                turns=lambda d, b, n: (
                    n * b ** (-torch.arange(0, d, 2, dtype=torch.float64) * 2 / d) / (2 * math.pi)
                )
            ),
        ),
        WrongAnswer(
            "mixed pairs counted as divided",
            "Between the limits a pair is neither kept nor divided but a mixture of both.",
            _classes_with(result=lambda k, m, d: (k, 0, m + d)),
        ),
        WrongAnswer(
            "mixed pairs counted as kept",
            "Between the limits a pair is divided in part. Only above the higher limit it stays "
            "as it was.",
            _classes_with(bounds=lambda low, high: (low, low)),
        ),
        WrongAnswer(
            "the exponent without the 2",
            "Pair k is made of two features, so that the exponents go down to almost -1, not to "
            "-1 / 2.",
            _classes_with(
                turns=lambda d, b, n: (
                    n * b ** (-torch.arange(d // 2, dtype=torch.float64) / d) / (2 * math.pi)
                )
            ),
        ),
        WrongAnswer(
            "in another order",
            "Kept, mixed, divided was asked for, from the fast pairs to the slow ones.",
            _classes_with(result=lambda k, m, d: (k, d, m)),
        ),
        WrongAnswer(
            "tensors in place of numbers",
            "A sum of a tensor is a tensor, also if it holds one number. Three ints were asked "
            "for.",
            _classes_with(result=lambda k, m, d: tuple(map(torch.tensor, (k, m, d)))),
        ),
        WrongAnswer(
            "pairs counted from 1",
            "The first pair has index 0 and turns once in 2 pi positions, whatever the base is.",
            _classes_with(
                turns=lambda d, b, n: (
                    n * b ** (-torch.arange(2, d + 2, 2, dtype=torch.float64) / d) / (2 * math.pi)
                )
            ),
        ),
    ),
    variants=(_classes_with(),),
)


EXERCISES = {
    "training_length": _LENGTH,
    "base_for_context": _BASE,
    "llama3_classes": _CLASSES,
}
