"""The scheduler's choice of one pass: who is in it, and how many tokens of each are read.

The oracle hands the budget out token by token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

Text = tuple[int, int]


def _plan(running: list[Text], waiting: list[Text], slots: int, budget: int) -> list[int]:
    texts = list(running)
    for text in waiting:
        if len(texts) < slots:
            texts.append(text)
    left = {at: known - read for at, (known, read) in enumerate(texts)}
    writing = [at for at, todo in left.items() if todo == 1]
    given = dict.fromkeys(left, 0)
    for at in writing + [at for at in left if at not in writing]:
        while left[at] and sum(given.values()) < budget:
            left[at] -= 1
            given[at] += 1
    return list(given.values())


def _writers_first(todo: list[int]) -> list[int]:
    return sorted(range(len(todo)), key=lambda at: todo[at] > 1)


def _to_the_slots(running: list[Text], waiting: list[Text], slots: int) -> list[Text]:
    return waiting[: max(0, slots - len(running))]


@in_parts
def _plan_with(
    *,
    order: Callable[[list[int]], list[int]] = _writers_first,
    admitted: Callable[[list[Text], list[Text], int], list[Text]] = _to_the_slots,
    part: Callable[[int, int], int] = min,
    spent: bool = True,
) -> Answer:
    """The choice in parts: who comes in, who is served first, how much of a text, what is left."""

    def answer(running: list[Text], waiting: list[Text], slots: int, budget: int) -> list[int]:
        texts = [*running, *admitted(running, waiting, slots)]
        todo = [known - read for known, read in texts]
        plan = [0] * len(texts)
        for at in order(todo):
            plan[at] = part(todo[at], budget)
            if spent:
                budget -= plan[at]
        return plan

    return answer


def _case(name: str, running: list[Text], waiting: list[Text], slots: int, budget: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return list(running), list(waiting), slots, budget

    return Case(name, inputs)


PLAN = Exercise(
    title="Who is in the next pass?",
    oracle=_plan,
    cases=(
        _case("two write and a prompt waits", [(12, 11), (40, 39)], [(30, 0)], 4, 12),
        _case("a prompt stands in front", [(30, 8), (9, 8)], [], 4, 10),
        _case("a prompt between two that write", [(9, 8), (30, 8), (7, 6)], [], 4, 10),
        _case("a long prompt before a short one", [(40, 0), (12, 0), (7, 6)], [], 4, 16),
        _case("two tokens are left of a prompt", [(30, 28), (9, 8)], [], 4, 2),
        _case("no slot is free", [(5, 4), (6, 5)], [(9, 0)], 2, 20),
        _case("one slot is free", [(5, 4)], [(9, 0), (4, 0)], 2, 20),
        _case("nobody runs", [], [(6, 0), (3, 0)], 3, 4),
        _case("nobody at all", [], [], 2, 8),
        _case("the budget is over", [(3, 2), (4, 3), (9, 8)], [], 4, 2),
        _case("a prompt of one token", [(20, 4), (1, 0)], [(8, 0)], 3, 12),
        _case(
            "many texts",
            [(100 + n, 99 + n) for n in range(20)],
            [(600, 0), (50, 0), (70, 0)],
            22,
            512,
        ),
    ),
    variants=(_plan_with(),),
    wrong=(
        WrongAnswer(
            "in order of arrival",
            "A prompt that stands in front takes the whole budget, and texts that have one token "
            "to read wait for it. They go first.",
            _plan_with(order=lambda todo: list(range(len(todo)))),
        ),
        WrongAnswer(
            "the shortest prompt first",
            "Behind the texts with one token the others have their turn in the order in which "
            "they stand, or a long prompt may wait for ever.",
            _plan_with(order=lambda todo: sorted(range(len(todo)), key=lambda at: todo[at])),
        ),
        WrongAnswer(
            "prompts first",
            "Then each text that is being written waits for every prompt. One token each goes "
            "first.",
            _plan_with(order=lambda todo: sorted(range(len(todo)), key=lambda at: todo[at] == 1)),
        ),
        WrongAnswer(
            "nobody comes in",
            "While there are slots, texts that wait come in, from the front.",
            _plan_with(admitted=lambda running, waiting, slots: []),
        ),
        WrongAnswer(
            "more than the slots",
            "No more than `slots` texts are in a pass.",
            _plan_with(admitted=lambda running, waiting, slots: waiting),
        ),
        WrongAnswer(
            "a fixed batch",
            "Whoever waits comes in as soon as a slot is free, and not when all have left.",
            _plan_with(admitted=lambda running, waiting, slots: [] if running else waiting[:slots]),
        ),
        WrongAnswer(
            "prompts whole or not at all",
            "If a prompt is longer than what is left of the budget, a part of it is read.",
            _plan_with(part=lambda todo, left: todo if todo <= left else 0),
        ),
        WrongAnswer(
            "the whole budget for each",
            "The budget is that of the pass: what one text takes, the next ones do not have.",
            _plan_with(spent=False),
        ),
    ),
)
