"""What is said or estimated before it is computed."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

PAST = choice(
    "Which caches are still right?",
    right="B",
    because="The first layer's keys and values come from the embeddings, which do not change. Its "
    "outputs do, at every position, and from them the later layers make their keys and values.",
    tempting={
        "A": (
            "a key belongs to its own token",
            "In layer 2 it is made of what layer 1 gave that token, and layer 1 has now looked at "
            "the new token.",
        ),
        "C": (
            "the mask of its own layer",
            "A causal layer keeps its past only if its inputs keep theirs, and these come from a "
            "layer that looks ahead.",
        ),
        "D": (
            "what looks ahead cannot be kept",
            "The outputs of layer 1 cannot. Its keys and values are made of embeddings, before "
            "anything has been looked at.",
        ),
    },
)

_PER_LAYER = 2 * 8 * 128 * 2  # bytes of a token in one layer


def _gib(full: int, window: int, kept: int = 4096, length: int = 32768) -> float:
    return (full * length + window * kept) * _PER_LAYER / 2**30


MIXED = number(
    "Half of the layers with a window",
    value=lambda: _gib(24, 24),
    within=0.01,
    because="A token takes 4 KiB in a layer. 24 layers keep 32,768 tokens, 3 GiB, and 24 keep "
    "4096, 0.375 GiB: {value} GiB.",
    wrong=[
        WrongNumber(
            "no window",
            "That is what 48 layers keep that forget nothing.",
            lambda: _gib(48, 0),
        ),
        WrongNumber(
            "a window in every layer",
            "Only 24 of the 48 layers have a window. The others keep every token.",
            lambda: _gib(0, 48),
        ),
        WrongNumber(
            "keys or values, not both",
            "A token leaves a key and a value in each layer.",
            lambda: _gib(24, 24) / 2,
        ),
        WrongNumber(
            "every query head",
            "What is kept has as many heads as there are for keys and values, 8 and not 40.",
            lambda: _gib(24, 24) * 5,
        ),
        WrongNumber(
            "four bytes a number",
            "A number of 16 bits takes two bytes.",
            lambda: _gib(24, 24) * 2,
        ),
        WrongNumber(
            "the windows forgotten",
            "A layer with a window keeps 4096 tokens, which is little and not nothing.",
            lambda: _gib(24, 0),
        ),
    ],
)

_WEIGHTS, _TOKEN = 26e9, 2 * 40 * 40 * 128 * 2

OUTWEIGHED = number(
    "When caches outweigh the weights",
    value=lambda: _WEIGHTS / _TOKEN,
    within=0.03,
    because="A token leaves 819,200 bytes, and 26 billion bytes are {value} tokens, in all "
    "sequences together. A step then takes twice as long as with empty caches.",
    wrong=[
        WrongNumber(
            "parameters for bytes",
            "Thirteen billion weights in 16 bits are 26 billion bytes.",
            lambda: _WEIGHTS / 2 / _TOKEN,
        ),
        WrongNumber(
            "keys or values, not both",
            "A token leaves a key and a value in each head of each layer.",
            lambda: 2 * _WEIGHTS / _TOKEN,
        ),
        WrongNumber(
            "one layer only",
            "A token leaves keys and values in each of the 40 layers.",
            lambda: 40 * _WEIGHTS / _TOKEN,
        ),
        WrongNumber(
            "a head of one number",
            "A key of one head has 128 numbers.",
            lambda: 128 * _WEIGHTS / _TOKEN,
        ),
    ],
)

NOT_FASTER = choice(
    "Why was it not faster?",
    right="C",
    because="At 200 tokens the caches are less than a hundredth of the weights, so a step "
    "takes as long as reading the weights, with either kind of attention. The copies that the "
    "program writes come on top.",
    tempting={
        "A": (
            "the operations",
            "They are the same for both kinds, and in decoding arithmetic is not what is waited "
            "for.",
        ),
        "B": (
            "the query heads",
            "As many queries are made as before. What is shared is what they read.",
        ),
        "D": (
            "sharing never pays",
            "It pays where caches are what is read: with long texts or many sequences.",
        ),
    },
)
