"""What is said or estimated before it is computed."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

PAST = choice(
    "Which caches are still right?",
    right="B",
    because="Up to the input of layer 2 nothing has looked ahead, and keys and values are made of "
    "the input. The outputs of layer 2 change at every position, and from them layers 3 and 4 make "
    "their keys and values.",
    tempting={
        "A": (
            "a key belongs to its own token",
            "In layer 3 it is made of what layer 2 gave that token, and layer 2 has now looked at "
            "the new token.",
        ),
        "C": (
            "the mask of its own layer",
            "A causal layer keeps its past only if its inputs keep theirs, and those of layers 3 "
            "and 4 come from a layer that looks ahead.",
        ),
        "D": (
            "what looks ahead cannot be kept",
            "The outputs of layer 2 cannot. Its keys and values are made of what the causal layer "
            "1 gave, before layer 2 has looked at anything.",
        ),
    },
)

_PER_LAYER = 2 * 8 * 128 * 2  # bytes of a token in one layer


BITS = choice(
    "Few bits, but for which?",
    right="B",
    because="With the keys in two bits the loss rises by more than a tenth of a nat per word, with "
    "the values by about a hundredth. The output is a mean of the values, so their errors partly "
    "cancel. An error in a key moves a score, and the weights depend on it exponentially.",
    tempting={
        "A": (
            "the softmax evens errors out",
            "The softmax takes exponentials of the scores, so it makes of an error in a key a "
            "factor on the weight. Measure `loss_with(2, 4)`.",
        ),
        "C": (
            "as many numbers, as much loss",
            "They take the same memory, but they enter at different places. Measure "
            "`loss_with(2, 4)` and `loss_with(4, 2)`.",
        ),
        "D": (
            "two bits are too few for anything",
            "With one of the two in four bits the loss is far from doubled. Measure both ways.",
        ),
    },
)

_ROOM, _READABLE = 80e9 - 26e9, 0.020 * 3.35e12 - 26e9  # bytes for the caches
_ONE = 24 * _PER_LAYER  # bytes of a token of each text in one layer


def _windows(budget: float, kept: int = 2048, one: float = _ONE) -> int:
    """Layers that need a window, so that the caches are no more than `budget` bytes."""
    fits = (n for n in range(40) if one * (40 * 16384 - n * (16384 - kept)) <= budget)
    return next(fits, 40)


WINDOWS = number(
    "How many windows?",
    value=lambda: _windows(min(_ROOM, _READABLE)),
    within=0.0,
    because="In 20 ms 67 billion bytes are read, and 41 billion of them may be caches; the room "
    "would allow 54 billion. Without windows the caches are 64.4 billion bytes, and each window "
    "takes 1.41 billion off: {value} layers.",
    wrong=[
        WrongNumber(
            "the room alone",
            "That many make the caches fit, but a step then reads for longer than 20 ms.",
            lambda: _windows(_ROOM),
        ),
        WrongNumber(
            "one too few",
            "With that many a step still takes a little more than 20 ms. Round up.",
            lambda: _windows(_READABLE) - 1,
        ),
        WrongNumber(
            "the weights not read, or keys without values",
            "A step reads the weights too, and of each token a key and a value.",
            lambda: _windows(_READABLE, one=_ONE / 2),
        ),
        WrongNumber(
            "windows that keep nothing",
            "A layer with a window still keeps and reads 2048 tokens of every text.",
            lambda: _windows(_READABLE, kept=0),
        ),
        WrongNumber(
            "the layers without a window",
            "So many keep all tokens. Asked for are the others.",
            lambda: 40 - _windows(_READABLE),
        ),
        WrongNumber(
            "every layer",
            "So many windows are not needed: with fewer a step already takes less than 20 ms.",
            lambda: 40,
        ),
    ],
)

_WEIGHTS, _WITH_32 = 2 * 7e9, 2 * 32 * 32 * 128 * 2  # bytes, and bytes per token


def _enough(weights: float = _WEIGHTS, per_token: float = _WITH_32, kept: float = 1 / 8) -> float:
    """Tokens at which a step with `kept` of the cache reads half as many bytes as with all."""
    return weights / (per_token * (1 - 2 * kept))


NOT_FASTER = number(
    "It was not faster",
    value=_enough,
    within=0.03,
    because="With M tokens a step reads 14 billion bytes of weights and M times 524,288 bytes of "
    "caches, with four heads M times 65,536. The first sum is twice the second at {value:,.0f} "
    "tokens. At 200 tokens the caches are less than a hundredth of the weights, so a step takes as "
    "long with either.",
    wrong=[
        WrongNumber(
            "shared caches that cost nothing",
            "There the caches of 32 heads are as large as the weights. But with four heads an "
            "eighth of them is still read.",
            lambda: _enough(kept=0.0),
        ),
        WrongNumber(
            "the small caches as large as the weights",
            "With so many tokens a step is 4.5 times as fast. Asked for is twice as fast.",
            lambda: 8 * _WEIGHTS / _WITH_32,
        ),
        WrongNumber(
            "keys without values",
            "A token leaves a key and a value.",
            lambda: _enough(per_token=_WITH_32 / 2),
        ),
        WrongNumber(
            "a byte for each weight",
            "In 16 bits a weight has two bytes.",
            lambda: _enough(weights=_WEIGHTS / 2),
        ),
        WrongNumber(
            "one layer",
            "Each of the 32 layers has a cache of its own.",
            lambda: _enough(per_token=_WITH_32 / 32),
        ),
    ],
)
