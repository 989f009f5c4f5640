"""Putting a row behind a text whose cache is in blocks, with copy on write.

The oracle keeps every row of every text apart and never copies a block by its number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

State = tuple[Tensor, list[int], list[int]]


def _append(memory: Tensor, users: list[int], table: list[int], length: int, row: Tensor) -> State:
    size = memory.shape[1]
    blocks = [memory[n] for n in range(len(memory))]
    counts, own = dict(enumerate(users)), list(table)
    fresh = min((n for n, count in counts.items() if not count), default=-1)
    offset = length - size * (length // size)
    if offset == 0:
        own, counts[fresh] = [*own, fresh], 1
    elif counts[own[-1]] != 1:
        counts[own[-1]] -= 1
        blocks[fresh], counts[fresh] = blocks[own[-1]], 1
        own[-1] = fresh
    changed = blocks[own[-1]].clone()
    changed[offset] = row
    blocks[own[-1]] = changed
    return torch.stack(blocks), [counts[n] for n in range(len(users))], own


@in_parts
def _append_with(
    *,
    copies: bool = True,
    brings: bool = True,
    leaves: bool = True,
    takes: bool = True,
    always: bool = False,
    late: bool = False,
) -> Answer:
    """The steps in parts: who copies, what a copy brings along, and what is counted."""

    def answer(
        memory: Tensor, users: list[int], table: list[int], length: int, row: Tensor
    ) -> State:
        memory, users, table = memory.clone(), list(users), list(table)
        size = memory.shape[1]
        at = length % size
        if at == 0:
            table.append(users.index(0))
            users[table[-1]] = 1 if takes else 0
        elif copies and (users[table[-1]] > 1 or always):
            old, new = table[-1], users.index(0)
            if brings:
                memory[new] = memory[old]
            users[old] -= 1 if leaves else 0
            users[new] = 1 if takes else 0
            table[-1] = new
        memory[table[-1], (at + 1) % size if late else at] = row
        return memory, users, table

    return answer


def _case(
    name: str, users: list[int], table: list[int], length: int, size: int = 4, d: int = 3
) -> Case:
    def inputs() -> tuple[Any, ...]:
        memory = draw(len(users), size, d, seed=len(table))
        return memory, list(users), list(table), length, draw(d, seed=9)

    return Case(name, inputs)


APPEND = Exercise(
    title="Bug hunt: who owns the last block?",
    oracle=_append,
    cases=(
        _case("a block with room, of its own", [1, 1, 0, 0], [0, 1], 6),
        _case("a full block", [1, 0, 1, 0], [0, 2], 8),
        _case("nothing yet", [0, 0], [], 0),
        _case("a shared block with room", [2, 2, 0, 0], [0, 1], 6),
        _case("shared by three", [3, 3, 1, 0], [0, 1], 5),
        _case("a full block that is shared", [2, 2, 0], [0, 1], 8),
        _case("the free block stands before", [0, 2, 1], [2, 1], 7),
        _case("blocks of one row", [1, 2, 0], [0, 1], 2, size=1),
        _case("positions beyond 256", [1] * 40 + [2, 0], [*range(40), 40], 325, size=8),
    ),
    variants=(_append_with(),),
    wrong=(
        WrongAnswer(
            "no copy on write",
            "The last block has another user, who would read this row as part of his own text.",
            _append_with(copies=False),
        ),
        WrongAnswer(
            "an empty copy",
            "The new block must hold the rows that stand in the old one. Copy them first.",
            _append_with(brings=False),
        ),
        WrongAnswer(
            "the old block still counted",
            "This text does not use the old block any more: it has one user less.",
            _append_with(leaves=False),
        ),
        WrongAnswer(
            "the new block not counted",
            "A block that is taken has one user. Without that it is given away again.",
            _append_with(takes=False),
        ),
        WrongAnswer(
            "always a copy",
            "The only user of a block may write into it.",
            _append_with(always=True),
        ),
        WrongAnswer(
            "one row too far",
            "Rows are counted from 0: the next one stands at `length % size`.",
            _append_with(late=True),
        ),
    ),
)
