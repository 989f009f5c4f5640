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


def _step(devices: int) -> float:
    """Seconds of one token: the slices are read, then the steps of the rings start."""
    starts = sum(2 * (devices - 1) for _ in range(80 * 2))  # two all-reduces in each layer
    return 139e9 / devices / 3.35e12 + 1e-6 * starts


DEVICES = number(
    "How many devices?",
    value=lambda: float(min(p for p in (2, 4, 8, 16, 32) if _step(p) <= 11e-3)),
    within=0.001,
    because="{value} devices read for 5.2 ms and wait for 2.2 ms, 7.4 ms in all. Four need 11.3 "
    "ms, and sixteen take 7.4 ms too, for twice the price.",
    wrong=[
        WrongNumber(
            "the fastest",
            "Sixteen are faster by half a percent and cost twice as much. Eight are enough.",
            lambda: float(min((2, 4, 8, 16, 32), key=_step)),
        ),
        WrongNumber(
            "the starts forgotten, or counted by half",
            "Four devices read for 10.4 ms. Each of the two all-reduces in a layer takes 2 (p - 1) "
            "steps, p - 1 to add up and p - 1 to pass on; that makes 0.96 ms more.",
            lambda: 4.0,
        ),
        WrongNumber(
            "reading alone",
            "Every device more makes reading shorter, and waiting longer: 32 devices wait for "
            "nearly 10 ms, and miss the limit.",
            lambda: 32.0,
        ),
        WrongNumber(
            "the fewest on which it fits",
            "The weights fit on two devices, but these read for more than 20 ms.",
            lambda: 2.0,
        ),
    ],
)

_SHARE = 6 * 6_738_415_616 * 2.0e12 / (184_320 * 3600 * 312e12)


def _days(*, share: float = _SHARE, peak: float = 989e12, devices: int = 256) -> float:
    """Days for 13 billion parameters and a trillion tokens."""
    return 6 * 13e9 * 1e12 / (devices * share * peak) / 86_400


UTILIZATION = number(
    "Plan a run from a published one",
    value=_days,
    within=0.03,
    because="Llama 2 used 39% of the peak: 8.1e22 operations were needed and 2.1e23 possible. At "
    "that share yours takes {value} days.",
    wrong=[
        WrongNumber(
            "at the full peak",
            "So long it would take at the whole peak. Llama 2 reached 39% of it.",
            lambda: _days(share=1.0),
        ),
        WrongNumber(
            "the share taken as it is",
            "That is Llama 2's share of the peak. Asked for are the days of your run.",
            lambda: _SHARE,
        ),
        WrongNumber(
            "the peak of the published run",
            "Your devices have a peak of 989 TFLOP/s each, and reach the same share of that.",
            lambda: _days(peak=312e12),
        ),
        WrongNumber(
            "one device",
            "These are the days of one device, and there are 256.",
            lambda: _days(devices=1),
        ),
        WrongNumber(
            "hours for days",
            "These are hours. A day has 24 of them.",
            lambda: 24 * _days(),
        ),
        WrongNumber(
            "the sparse peak",
            "Twice 989 TFLOP/s hold for matrices of which half of the entries are zero.",
            lambda: _days(peak=2 * 989e12),
        ),
        WrongNumber(
            "two for six",
            "2 N is the forward pass. Training has the backward pass too: 6 N, in both runs.",
            lambda: _days() / 3,
        ),
        WrongNumber(
            "their two for your six",
            "Llama 2's run had its backward passes too: 6 N in both runs.",
            lambda: 3 * _days(),
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
