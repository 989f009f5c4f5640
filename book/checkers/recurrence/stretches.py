"""The half-life of somebody's memory, and the joining of two stretches of a text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

Write = Callable[[Tensor, Tensor, Tensor], Tensor]


def _adds(factor: float) -> Write:
    return lambda S, k, v: factor * S + torch.outer(k, v)


def _corrects(factor: float, beta: float) -> Write:
    def write(S: Tensor, k: Tensor, v: Tensor) -> Tensor:
        S = factor * S
        return S + beta * torch.outer(k, v - k @ S)

    return write


def _with_a_gain(factor: float, gain: float) -> Write:
    """What is written is scaled, as by the step size of a state space."""
    return lambda S, k, v: factor * S + gain * torch.outer(k, v)


MEMORIES: dict[str, tuple[Write, int]] = {
    "adds and fades": (_adds(0.9), 4),
    "adds and keeps all": (_adds(1.0), 3),
    "fades fast": (_adds(0.3), 5),
    "fades slowly": (_adds(0.999), 4),
    "corrects and keeps all": (_corrects(1.0, 1.0), 4),
    "corrects and fades": (_corrects(0.8, 1.0), 3),
    "corrects in part and fades": (_corrects(0.95, 0.4), 6),
    "writes a part": (_with_a_gain(0.7, 0.05), 4),
    "one feature": (_corrects(0.85, 0.5), 1),
}
_FACTORS = {
    "adds and fades": 0.9,
    "adds and keeps all": 1.0,
    "fades fast": 0.3,
    "fades slowly": 0.999,
    "corrects and keeps all": 1.0,
    "corrects and fades": 0.8,
    "corrects in part and fades": 0.95,
    "writes a part": 0.7,
    "one feature": 0.85,
}


def _known(write: Write, d: int) -> float:
    """The half-life from a table of random numbers that fades."""
    before = draw(d, d, seed=3)
    nothing = torch.zeros(d, dtype=before.dtype)
    factor = float((write(before, nothing, nothing) / before).mean())
    return math.inf if abs(factor - 1) < 1e-12 else math.log(0.5) / math.log(factor)


@in_parts
def _measured(
    *,
    left: Callable[[float], float] = lambda factor: math.log(0.5) / math.log(factor),
    further: str = "nothing",
    never: float = math.inf,
) -> Answer:
    """The measurement in parts: what is written meanwhile, and what is made of the factor."""

    def answer(write: Write, d: int) -> float:
        one = torch.zeros(d, dtype=torch.float64)
        one[0] = 1.0
        zero = torch.zeros(d, dtype=torch.float64)
        before = write(torch.zeros(d, d, dtype=torch.float64), one, one)
        key, value = {"nothing": (zero, zero), "the same": (one, one), "no value": (one, zero)}[
            further
        ]
        after = write(before, key, value)
        start = 1.0 if further == "from the value" else float(before.norm())
        factor = float(after.norm()) / start
        return never if abs(factor - 1) < 1e-12 or not factor else left(factor)

    return answer


def _from_the_value(write: Write, d: int) -> float:
    """Compares with what was meant to be written."""
    one, zero = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    one[0] = 1.0
    after = write(write(torch.zeros(d, d, dtype=torch.float64), one, one), zero, zero)
    factor = float(after.norm())
    return math.inf if factor == 1 else math.log(0.5) / math.log(factor)


def _by_many_steps(write: Write, d: int) -> float:
    """From the decay over a hundred tokens."""
    one, zero = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    one[-1] = 2.0
    first = write(torch.zeros(d, d, dtype=torch.float64), one, one)
    memory = first
    for _ in range(100):
        memory = write(memory, zero, zero)
    change = math.log(float(memory.norm() / first.norm()))
    return math.inf if change == 0 else 100 * math.log(0.5) / change


def _box(name: str) -> Case:
    write, d = MEMORIES[name]
    return Case(name, lambda: (write, d), 1e-11, relative=True)


HALF_LIFE = Exercise(
    title="The half-life of a memory",
    oracle=_known,
    cases=tuple(_box(name) for name in MEMORIES),
    wrong=(
        WrongAnswer(
            "the lifetime",
            "After that many tokens 1/e is left, 37 percent, and not one half.",
            _measured(left=lambda factor: -1 / math.log(factor)),
        ),
        WrongAnswer(
            "the factor itself",
            "That is what is left after one token. Asked is after how many tokens a half is left.",
            _measured(left=lambda factor: factor, never=1.0),
        ),
        WrongAnswer(
            "rounded up",
            "The number is asked for as it is, not rounded to whole tokens.",
            _measured(left=lambda factor: float(math.ceil(math.log(0.5) / math.log(factor)))),
        ),
        WrongAnswer(
            "the wrong way round",
            "The logarithm of one half is divided by that of the factor.",
            _measured(left=lambda factor: math.log(factor) / math.log(0.5), never=0.0),
        ),
        WrongAnswer(
            "the key was used again",
            "A memory that corrects erases under the key that it is given. Give it a key that "
            "writes nothing.",
            _measured(further="no value"),
        ),
        WrongAnswer(
            "compared with what was meant to be written",
            "The memory may have written less than the whole value. Compare with the table as it "
            "was after the first token.",
            _from_the_value,
        ),
        WrongAnswer(
            "0 for a memory that does not fade",
            "A memory that keeps everything never comes to a half: return `math.inf`.",
            _measured(never=0.0),
        ),
    ),
    variants=(_measured(), _by_many_steps),
    spared=dict.fromkeys(
        [*SIXTEEN_BITS], "the memories that are given compute in the dtype they are called with"
    ),
)


def _block(A1: Tensor, B1: Tensor, A2: Tensor, B2: Tensor) -> tuple[Tensor, Tensor]:
    """By what happens to a basis of tables, and by what passes through the second stretch."""
    eye = torch.eye(A1.shape[-1], dtype=A1.dtype, device=A1.device)
    moved = torch.einsum("...ij,...jk->...ik", A2, torch.einsum("...ij,jk->...ik", A1, eye))
    passed = torch.einsum("...ij,...jk->...ik", A2, B1)
    return moved, passed + B2


@in_parts
def _join_with(
    *,
    order: str = "later on the left",
    through: str = "A2 @ B1",
    second: bool = True,
) -> Answer:
    """Joining in parts."""

    def answer(A1: Tensor, B1: Tensor, A2: Tensor, B2: Tensor) -> tuple[Tensor, Tensor]:
        a = {"later on the left": A2 @ A1, "later on the right": A1 @ A2, "sum": A1 + A2,
             "entries": A1 * A2}[order]  # fmt: skip
        b = {"A2 @ B1": A2 @ B1, "B1": B1, "A1 @ B1": A1 @ B1}[through]
        return a, b + B2 if second else b

    return answer


def _second_through_the_first(
    A1: Tensor, B1: Tensor, A2: Tensor, B2: Tensor
) -> tuple[Tensor, Tensor]:
    return A1 @ A2, A1 @ B2 + B1


def _join_case(name: str, *lead: int, d: int = 3, e: int = 2) -> Case:
    def inputs() -> tuple[Any, ...]:
        return tuple(
            draw(*lead, *shape, seed=i).requires_grad_()
            for i, shape in enumerate([(d, d), (d, e), (d, d), (d, e)])
        )

    return Case(name, inputs, 1e-11, grad=True)


JOIN = Exercise(
    title="Join two stretches",
    oracle=_block,
    leading={"A1": 2, "B1": 2, "A2": 2, "B2": 2},
    cases=(
        _join_case("two sequences", 2),
        _join_case("one", d=4, e=4),
        _join_case("one number", 3, d=1, e=1),
        _join_case("heads", 2, 3, d=2, e=5),
    ),
    wrong=(
        WrongAnswer(
            "the matrices the wrong way round",
            "The later stretch acts on what the earlier one has made, so its matrix stands on the "
            "left.",
            _join_with(order="later on the right"),
        ),
        WrongAnswer(
            "the stretches exchanged",
            "The earlier stretch comes first: what it wrote passes through the later one.",
            _second_through_the_first,
        ),
        WrongAnswer(
            "what was written first is not changed by the second stretch",
            "What the first stretch wrote is part of the table that the second one multiplies.",
            _join_with(through="B1"),
        ),
        WrongAnswer(
            "what was written first multiplied by its own stretch",
            "`B1` was written by the end of the first stretch. It still passes through the second.",
            _join_with(through="A1 @ B1"),
        ),
        WrongAnswer(
            "the second summand is missing",
            "The second stretch writes as well.",
            _join_with(second=False),
        ),
        WrongAnswer(
            "products entry by entry",
            "`A1` and `A2` are matrices. Their product is a matrix product.",
            _join_with(order="entries"),
        ),
        WrongAnswer(
            "the matrices added",
            "One matrix acts after the other, which is a product.",
            _join_with(order="sum"),
        ),
    ),
    variants=(_join_with(), _block),
    spared={
        "float16": "three products are rounded on the way, in an order that is free",
        "bfloat16": "three products are rounded on the way, in an order that is free",
    },
)
