"""Estimates from data sheets and configurations."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

LATENCY = number(
    "Milliseconds from a data sheet",
    value=lambda: 1e3 * 30e9 / 2.039e12,
    within=0.03,
    because="30 GB are read for each token, which takes {value} ms. The arithmetic is done in less "
    "than a fiftieth of that.",
    wrong=[
        WrongNumber(
            "two bytes a weight",
            "In 8 bits a weight has one byte. Twice as many bytes would take twice as long.",
            lambda: 1e3 * 60e9 / 2.039e12,
        ),
        WrongNumber(
            "bits for bytes",
            "8 bits are one byte, and the bandwidth is in bytes.",
            lambda: 1e3 * 240e9 / 2.039e12,
        ),
        WrongNumber(
            "the arithmetic",
            "That is how long the operations take. Reading the weights takes far longer.",
            lambda: 1e3 * 2 * 30e9 / 312e12,
        ),
        WrongNumber(
            "in seconds",
            "The number is right in seconds. Asked for are milliseconds.",
            lambda: 30e9 / 2.039e12,
        ),
    ],
)

CONTEXT = choice(
    "Sixteen times the context",
    right="B",
    because="Per token the other twelve parts stay and attention's one part becomes sixteen, so "
    "its share is 16 of 28.",
    tempting={
        "A": (
            "all grow alike",
            "All parts grow with the number of tokens. Attention's products also grow with how "
            "many positions each token looks at.",
        ),
        "C": (
            "the square of the length",
            "Attention does grow 256-fold, but the other parts grow 16-fold. Only the ratio of the "
            "two counts for the share, and that grows 16-fold.",
        ),
        "D": (
            "the root of the length",
            "Nothing in a Transformer grows with the root of the length.",
        ),
    },
)

SEQUENCES = number(
    "How many sequences fit?",
    value=lambda: float((80e9 - 14e9) // (4096 * 2 * 32 * 8 * 128 * 2)),
    within=0.001,
    because="A position takes 131,072 bytes, a sequence 537 MB, and 66 GB are left: {value} of "
    "them.",
    wrong=[
        WrongNumber(
            "the weights forgotten",
            "14 GB of the 80 are taken by the weights.",
            lambda: float(80e9 // (4096 * 2 * 32 * 8 * 128 * 2)),
        ),
        WrongNumber(
            "keys without values",
            "Keys and values are both cached, so a position takes twice as much.",
            lambda: float(66e9 // (4096 * 32 * 8 * 128 * 2)),
        ),
        WrongNumber(
            "one byte a number",
            "In 16 bits a number takes two bytes, in the weights and in the cache.",
            lambda: float(73e9 // (4096 * 2 * 32 * 8 * 128)),
        ),
        WrongNumber(
            "one layer",
            "Every layer has a cache of its own.",
            lambda: float(66e9 // (4096 * 2 * 8 * 128 * 2)),
        ),
        WrongNumber(
            "as many heads as queries",
            "There are 8 heads of keys and values, shared by 32 heads of queries.",
            lambda: float(66e9 // (4096 * 2 * 32 * 32 * 128 * 2)),
        ),
    ],
)

UTILIZATION = number(
    "Check a published run",
    value=lambda: 6 * 6_738_415_616 * 2.0e12 / (184_320 * 3600 * 312e12),
    within=0.03,
    because="8.1e22 operations were needed and 2.1e23 possible: {value}. That is a usual share for "
    "a run of that size.",
    wrong=[
        WrongNumber(
            "the forward pass alone",
            "2 N is the forward pass. Training has the backward pass too: 6 N.",
            lambda: 2 * 6_738_415_616 * 2.0e12 / (184_320 * 3600 * 312e12),
        ),
        WrongNumber(
            "hours for seconds",
            "FLOP/s are per second, and an hour has 3,600 of them.",
            lambda: 6 * 6_738_415_616 * 2.0e12 / (184_320 * 312e12),
        ),
        WrongNumber(
            "the sparse peak",
            "Twice 312 TFLOP/s hold for matrices of which half of the entries are zero.",
            lambda: 6 * 6_738_415_616 * 2.0e12 / (184_320 * 3600 * 624e12),
        ),
        WrongNumber(
            "in percent",
            "Asked for is a number between 0 and 1.",
            lambda: 100 * 6 * 6_738_415_616 * 2.0e12 / (184_320 * 3600 * 312e12),
        ),
    ],
)
