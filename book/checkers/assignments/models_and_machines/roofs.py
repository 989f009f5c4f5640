"""Questions of the assignment: fused_bytes, cheaper_from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _args(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


# --- fused_bytes ----------------------------------------------------------------------------------

Op = tuple[tuple[str, ...], str]


def _fused_bytes(
    ops: Sequence[Op], kernels: Sequence[int], outputs: Sequence[str], nbytes: Mapping[str, int]
) -> int:
    kernel_of = [k for k, count in enumerate(kernels) for _ in range(count)]
    made = {name: kernel_of[i] for i, (_, name) in enumerate(ops)}
    crossings: set[tuple[str, str, int]] = set()
    for i, (inputs, _) in enumerate(ops):
        for name in inputs:
            if made.get(name) != kernel_of[i]:
                crossings.add(("read", name, kernel_of[i]))
                if name in made:
                    crossings.add(("write", name, made[name]))
    crossings |= {("write", name, made[name]) for name in outputs if name in made}
    return sum(nbytes[name] for _, name, _ in crossings)


@in_parts
def _fused_with(
    reads: str = "once per kernel",
    inner_reads: bool = False,
    write: Callable[[bool, bool, bool], bool] = lambda inside, later, wanted: later or wanted,
    group: Callable[[Sequence[int]], list[int]] = list,
    count: bool = False,
) -> Answer:
    """By kernels; `write` is asked whether a result is used inside, used later, and asked for."""

    def answer(
        ops: Sequence[Op], kernels: Sequence[int], outputs: Sequence[str],
        nbytes: Mapping[str, int],
    ) -> int:  # fmt: skip
        total, start, seen = 0, 0, set[str]()
        size = (lambda name: 1) if count else nbytes.__getitem__
        for length in group(kernels):
            inside, after = ops[start : start + length], ops[start + length :]
            start += length
            made = [name for _, name in inside]
            read = [n for inputs, _ in inside for n in inputs if inner_reads or n not in made]
            if reads != "each time":
                read = list(dict.fromkeys(read))
            if reads == "once at all":
                read = [n for n in read if n not in seen]
                seen |= {*read, *made}
            total += sum(map(size, read))
            for name in made:
                uses = [any(name in inputs for inputs, _ in some) for some in (inside, after)]
                total += size(name) * write(uses[0], uses[1], name in outputs)
        return total

    return answer


def _chain(n: int) -> list[Op]:
    return [((f"x{i}",), f"x{i + 1}") for i in range(n)]


_SIZES = {f"x{i}": 1000 * (i + 1) for i in range(9)}
_NORM: list[Op] = [
    (("x",), "squares"), (("squares",), "mean"), (("x", "mean"), "scaled"),
    (("scaled", "gain"), "y"),
]  # fmt: skip
_NORM_SIZES = {"x": 4096, "squares": 4096, "mean": 16, "scaled": 4096, "gain": 512, "y": 4096}
_GATED: list[Op] = [
    (("x", "w1"), "gate"), (("gate",), "s"), (("gate", "s"), "act"), (("x", "w2"), "up"),
    (("act", "up"), "h"), (("h", "w3"), "out"), (("out", "x"), "sum"),
]  # fmt: skip
_GATED_SIZES = {
    "x": 640, "w1": 10240, "w2": 10240, "w3": 10241, "gate": 2560, "s": 2561, "act": 2562,
    "up": 2563, "h": 2564, "out": 641, "sum": 642,
}  # fmt: skip
_DEAD: list[Op] = [
    (("x",), "a"), (("a", "a"), "b"), (("a",), "dead"), (("b", "x"), "c"), (("c", "a"), "d"),
]  # fmt: skip
_DEAD_SIZES = {"x": 7, "a": 110, "b": 1300, "dead": 17000, "c": 190000, "d": 2300000}

_FUSED = Exercise(
    title="The bytes of a plan of kernels",
    oracle=_fused_bytes,
    cases=(
        _args("values: a chain, operator by operator", _chain(4), [1, 1, 1, 1], ["x4"], _SIZES),
        _args("values: a chain in one kernel", _chain(4), [4], ["x4"], _SIZES),
        _args("values: a chain in two kernels", _chain(5), [2, 3], ["x5"], _SIZES),
        _args("values: a norm, operator by operator", _NORM, [1, 1, 1, 1], ["y"], _NORM_SIZES),
        _args("values: a norm in one kernel", _NORM, [4], ["y"], _NORM_SIZES),
        _args("values: a norm in two kernels", _NORM, [2, 2], ["y"], _NORM_SIZES),
        _args("values: a gated layer in three kernels", _GATED, [3, 2, 2], ["sum"], _GATED_SIZES),
        _args("values: a gated layer in two kernels", _GATED, [5, 2], ["sum"], _GATED_SIZES),
        _args("values: a gated layer, two and five", _GATED, [2, 5], ["sum"], _GATED_SIZES),
        _args("corners: a result nobody needs", _DEAD, [3, 2], ["d"], _DEAD_SIZES),
        _args("corners: kept, but also used inside", _DEAD, [5], ["b", "d"], _DEAD_SIZES),
        _args("corners: used inside and later", _DEAD, [2, 1, 2], ["d"], _DEAD_SIZES),
        _args("corners: one operand twice", _DEAD[:2], [1, 1], ["b"], _DEAD_SIZES),
        _args("corners: kept for the backward pass", _NORM, [2, 2], ["y", "mean"], _NORM_SIZES),
        _args("corners: an input that is an output too", _chain(2), [2], ["x0", "x2"], _SIZES),
        _args("corners: nothing is needed", _chain(3), [3], [], _SIZES),
    ),
    wrong=(
        WrongAnswer(
            "operator by operator",
            "Inside a kernel a result is handed on without crossing memory.",
            _fused_with(group=lambda k: [1] * sum(k)),
        ),
        WrongAnswer(
            "all in one kernel",
            "Between two kernels a result is written and read again.",
            _fused_with(group=lambda k: [sum(k)]),
        ),
        WrongAnswer(
            "every result written",
            "A result that only its own kernel uses need not be written.",
            _fused_with(write=lambda inside, later, wanted: True),
        ),
        WrongAnswer(
            "results used inside are not written",
            "A result may be used inside, and again by a later kernel or at the end.",
            _fused_with(write=lambda inside, later, wanted: not inside and (later or wanted)),
        ),
        WrongAnswer(
            "a result nobody needs is written",
            "What no later kernel reads and nobody asked for is not written.",
            _fused_with(write=lambda inside, later, wanted: later or wanted or not inside),
        ),
        WrongAnswer(
            "only the outputs written",
            "What a later kernel reads has to be in memory by then.",
            _fused_with(write=lambda inside, later, wanted: wanted),
        ),
        WrongAnswer(
            "outputs written only for later kernels",
            "What was asked for is written, even if no kernel reads it.",
            _fused_with(write=lambda inside, later, wanted: later),
        ),
        WrongAnswer(
            "read again by every operator of a kernel",
            "A kernel reads a tensor once, however many of its operators use it.",
            _fused_with(reads="each time"),
        ),
        WrongAnswer(
            "what the kernel made is read from memory",
            "A kernel has its own results at hand. It reads only what others made.",
            _fused_with(inner_reads=True),
        ),
        WrongAnswer(
            "kept at hand between kernels",
            "Nothing stays between two kernels: each one reads what it needs.",
            _fused_with(reads="once at all"),
        ),
        WrongAnswer(
            "tensors counted instead of bytes",
            "Tensors have different sizes. Add their bytes, not their number.",
            _fused_with(count=True),
        ),
    ),
    variants=(_fused_with(),),
)


# --- cheaper_from ---------------------------------------------------------------------------------

Machine = tuple[float, float, float]


def _cheaper_from(a: Machine, b: Machine) -> float | None:
    """From the corners of the two roofs, as fractions."""
    (pa, wa), (pb, wb) = ([Fraction(x) / Fraction(m[2]) for x in m[:2]] for m in (a, b))
    corners = sorted({Fraction(0), pa / wa, pb / wb, pa / wb, pb / wa})
    probes = [(x + y) / 2 for x, y in itertools.pairwise(corners)] + [corners[-1] + 1]
    found = None
    for corner, probe in zip(reversed(corners), reversed(probes), strict=True):
        if not min(pb, probe * wb) > min(pa, probe * wa):
            break
        found = float(corner)
    return found


@in_parts
def _cheaper_with(
    price: Callable[[Machine], float] = lambda m: m[2],
    corner: Callable[..., float] = lambda pa, wa, pb, wb: pa / wb,
    at_once: Callable[[float, float], bool] = lambda wa, wb: wb > wa,
    never: Callable[[float, float], bool] = lambda pa, pb: pb <= pa,
    nowhere: float | None = None,
) -> Answer:
    def answer(a: Machine, b: Machine) -> float | None:
        (pa, wa), (pb, wb) = ([x / price(m) for x in m[:2]] for m in (a, b))
        if never(pa, pb):
            return nowhere
        return 0.0 if at_once(wa, wb) else corner(pa, wa, pb, wb)

    return answer


_CHEAPER = Exercise(
    title="Two machines, two roofs, two prices",
    oracle=_cheaper_from,
    cases=(
        _args("values: more arithmetic, slower memory", (312e12, 2e12, 2.0),
              (989e12, 1.5e12, 2.0)),
        _args("values: faster in both, but dearer", (312e12, 2.0e12, 1.5), (989e12, 3.35e12, 4.0)),
        _args("values: slower in both, but cheap", (1000.0, 80.0, 8.0), (300.0, 10.0, 2.0)),
        _args("values: a processor and a card", (1e12, 1e11, 0.2), (100e12, 1e12, 2.5)),
        _args("values: unequal prices turn the order round", (400.0, 40.0, 2.0),
              (500.0, 30.0, 1.0)),
        _args("values: close to each other", (120.0, 10.0, 3.0), (126.0, 9.0, 3.0)),
        _args("corners: cheaper at every intensity", (100.0, 10.0, 2.0), (120.0, 12.0, 2.0)),
        _args("corners: never cheaper", (300.0, 20.0, 1.0), (300.0, 10.0, 2.0)),
        _args("corners: cheaper on the slope only", (400.0, 10.0, 2.0), (100.0, 20.0, 2.0)),
        _args("corners: the same slope", (100.0, 8.0, 2.0), (400.0, 16.0, 4.0)),
        _args("corners: the same flat", (200.0, 10.0, 4.0), (100.0, 8.0, 2.0)),
        _args("corners: one machine twice", (100.0, 8.0, 2.0), (100.0, 8.0, 2.0)),
    ),
    wrong=(
        WrongAnswer(
            "prices passed over",
            "Operations per second are bought: divide both roofs by the price per hour.",
            _cheaper_with(price=lambda m: 1.0),
        ),
        WrongAnswer(
            "prices multiplied in",
            "A dearer hour has to do more, to be as cheap: a high price lowers the roof.",
            _cheaper_with(price=lambda m: 1 / m[2]),
        ),
        WrongAnswer(
            "b's own ridge",
            "b overtakes before its roof is flat: its slope crosses a's flat part.",
            _cheaper_with(corner=lambda pa, wa, pb, wb: pb / wb),
        ),
        WrongAnswer(
            "a's own ridge",
            "At a's ridge b is still below, if its slope is lower. Follow it further.",
            _cheaper_with(corner=lambda pa, wa, pb, wb: pa / wa),
        ),
        WrongAnswer(
            "b's peak over a's bandwidth",
            "a is flat where they meet, and b is rising: a's peak, b's bandwidth.",
            _cheaper_with(corner=lambda pa, wa, pb, wb: pb / wa),
        ),
        WrongAnswer(
            "the same slope taken for cheaper at once",
            "On a slope that they share neither is cheaper, up to the lower ridge.",
            _cheaper_with(at_once=lambda wa, wb: wb >= wa),
        ),
        WrongAnswer(
            "a number even if b is ahead from the start",
            "With both numbers higher per price, b is cheaper at every intensity: 0.",
            _cheaper_with(at_once=lambda wa, wb: False),
        ),
        WrongAnswer(
            "ahead for a while taken for ahead for good",
            "At high intensities only the peaks count, and there b is not cheaper: None.",
            _cheaper_with(never=lambda pa, pb: False),
        ),
        WrongAnswer(
            "as cheap taken for cheaper",
            "With equal peaks per price b is never cheaper in the end: None.",
            _cheaper_with(never=lambda pa, pb: pb < pa),
        ),
        WrongAnswer(
            "infinity for None",
            "Where there is no such intensity, None was asked for.",
            _cheaper_with(nowhere=math.inf),
        ),
    ),
    variants=(_cheaper_with(),),
)  # fmt: skip


EXERCISES = {
    "fused_bytes": _FUSED,
    "cheaper_from": _CHEAPER,
}
