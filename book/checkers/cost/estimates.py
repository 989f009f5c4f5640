"""Estimates from data sheets and configurations."""

from __future__ import annotations

from book.checkers.cost.device import Device
from book.checkers.questions import WrongNumber, choice, number

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

_POSITION = 2 * 80 * 8 * 128 * 2  # keys and values, layers, heads, features, bytes

SEQUENCES = number(
    "How many sequences fit?",
    value=lambda: float((160e9 - 70e9) // (4096 * _POSITION)),
    within=0.001,
    because="A position takes 327,680 bytes, a sequence 1.34 GB, and 90 GB are left: {value} of "
    "them.",
    wrong=[
        WrongNumber(
            "the weights forgotten",
            "70 GB of the 160 are taken by the weights.",
            lambda: float(160e9 // (4096 * _POSITION)),
        ),
        WrongNumber(
            "keys without values",
            "Keys and values are both cached, so a position takes twice as much.",
            lambda: float(90e9 // (4096 * _POSITION / 2)),
        ),
        WrongNumber(
            "weights in 16 bits",
            "The weights are in 8 bits, one byte each. The cache is in 16 bits.",
            lambda: float(20e9 // (4096 * _POSITION)),
        ),
        WrongNumber(
            "one device",
            "There are two devices, and the weights are on them once.",
            lambda: float(10e9 // (4096 * _POSITION)),
        ),
        WrongNumber(
            "one layer",
            "Every layer has a cache of its own.",
            lambda: float(90e9 // (4096 * _POSITION / 80)),
        ),
    ],
)


def _step(devices: int, *, per_layer: int = 2, rounds: int = 2) -> float:
    """Seconds of one token: the slices are read, then the steps of the rings start."""
    starts = sum(rounds * (devices - 1) for _ in range(80 * per_layer))
    return 139e9 / devices / 3.35e12 + 2e-6 * starts


DEVICES = number(
    "How many devices?",
    value=lambda: float(min((2, 4, 8, 16, 32), key=_step)),
    within=0.001,
    because="{value} devices read for 5.2 ms and wait for 4.5 ms, 9.7 ms in all. Half as many need "
    "12.3 ms and twice as many 12.2 ms.",
    wrong=[
        WrongNumber(
            "reading alone",
            "Every device more makes reading shorter, and waiting longer: with 32 devices they "
            "wait for nearly 20 ms.",
            lambda: 32.0,
        ),
        WrongNumber(
            "the fewest on which it fits",
            "The weights fit on two devices, but these read for more than 20 ms.",
            lambda: 2.0,
        ),
        WrongNumber(
            "half of the steps",
            "There are two all-reduces in a layer, and each takes 2 (p - 1) steps: p - 1 to add up "
            "and p - 1 to pass on. With half as many this would be the best number.",
            lambda: float(min((2, 4, 8, 16, 32), key=lambda p: _step(p, rounds=1))),
        ),
    ],
)

UTILIZATION = number(
    "Check a published run",
    value=lambda: 6 * 6_738_415_616 * 2.0e12 / (184_320 * 3600 * 312e12),
    within=0.03,
    because="8.1e22 operations were needed and 2.1e23 possible: {value}.",
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

_CROSSING = Device.READING / Device.ROW

KNEE = number(
    "Where does a row stop getting cheaper?",
    value=lambda: _CROSSING,
    within=0.1,
    because="Few rows take 4.4 ms whatever their number, many take 25 µs each, and the two lines "
    "cross at {value} rows.",
    wrong=[
        WrongNumber(
            "first calls timed",
            "The first call with a number of rows is slow. Call each once before the clock counts.",
            lambda: (Device.READING + Device.FIRST) / (Device.ROW + Device.FIRST / 4096),
        ),
        WrongNumber(
            "the first level size",
            "At 256 rows a row costs the least already, at 128 it does not yet. In between: how "
            "many rows at the lowest time of a row take as long as a call with a single one?",
            lambda: 256.0,
        ),
        WrongNumber(
            "the last falling size",
            "From 128 to 256 rows a row still gets cheaper, by less than half. In between: how "
            "many rows at the lowest time of a row take as long as a call with a single one?",
            lambda: 128.0,
        ),
        WrongNumber(
            "twice the time",
            "With so many rows a call takes twice as long as with one. It became longer at half "
            "as many.",
            lambda: 2 * _CROSSING,
        ),
        WrongNumber(
            "the time in place of the rows",
            "That is the time of a row, in microseconds. Asked for is a number of rows.",
            lambda: 1e6 * Device.ROW,
        ),
    ],
)
