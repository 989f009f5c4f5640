"""How many layers of a hybrid may attend, if what they keep has to fit into a budget."""

from __future__ import annotations

from collections.abc import Callable

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _attending(
    layers: int, kv_heads: int, head_dim: int, state: int, length: int, budget: int
) -> int:
    """By trying one number after the other, the largest first."""
    for attend in range(layers, -1, -1):
        keys_and_values = attend * 2 * kv_heads * head_dim * length
        if 2 * (keys_and_values + (layers - attend) * state) <= budget:
            return attend
    raise ValueError(f"no number of {layers} layers fits into {budget} bytes")


def _floor(room: int, price: int) -> int:
    return room // price


@in_parts
def _attending_with(
    *,
    bytes_each: int = 2,
    kinds: int = 2,
    replaced: bool = True,
    states: bool = True,
    capped: bool = True,
    divided: Callable[[int, int], int] = _floor,
    short: bool = True,
    strict: bool = False,
    raises: bool = True,
) -> Answer:
    """The budget without all memories, divided by what one more layer costs."""

    def answer(
        layers: int, kv_heads: int, head_dim: int, state: int, length: int, budget: int
    ) -> int:
        room = (budget - strict) // bytes_each - states * layers * state
        each = kinds * kv_heads * head_dim * length - (state if replaced and states else 0)
        if each <= 0:
            fits = layers if room >= layers * each and (short or room >= 0) else -1
        else:
            fits = divided(room, each)
        if fits < 0:
            if raises:
                raise ValueError("nothing fits")
            return 0
        return min(fits, layers) if capped else fits

    return answer


SPEND = Exercise(
    title="How many layers may attend?",
    oracle=_attending,
    cases=(
        Case.of("a quarter of 48 layers", 48, 2, 256, 550_000, 32_768, 900_000_000),
        Case.of("none attends", 8, 2, 64, 5_000, 4_096, 100_000),
        Case.of("all attend", 6, 2, 8, 300, 100, 1_000_000),
        Case.of("one that just fits", 4, 1, 4, 10, 20, 380),
        Case.of("a byte short of it", 4, 1, 4, 10, 20, 379),
        Case.of("a part of a layer left over", 5, 1, 4, 30, 20, 1_000),
        Case.of("memories that leave room for one more", 10, 1, 10, 100, 10, 3_000),
        Case.of("a short text, where attention keeps less", 6, 1, 8, 1_000, 10, 2_000),
        Case.of("a text for which both keep the same", 6, 1, 8, 160, 10, 1_920),
        Case.of(
            "the memories alone are too much", 8, 2, 64, 5_000, 4_096, 79_998, raises=ValueError
        ),
        Case.of("too little for a short text", 6, 1, 8, 1_000, 10, 1_919, raises=ValueError),
    ),
    variants=(_attending_with(),),
    wrong=(
        WrongAnswer(
            "numbers in place of bytes",
            "The budget is in bytes, and a number of 16 bits takes two of them.",
            _attending_with(bytes_each=1),
        ),
        WrongAnswer(
            "keys without values",
            "A layer that attends keeps keys and values.",
            _attending_with(kinds=1),
        ),
        WrongAnswer(
            "a layer that has both",
            "A layer that attends has no memory, so its numbers are saved.",
            _attending_with(replaced=False),
        ),
        WrongAnswer(
            "the memories forgotten",
            "The layers that do not attend keep their memories.",
            _attending_with(states=False),
        ),
        WrongAnswer(
            "more than all layers",
            "No more layers can attend than there are.",
            _attending_with(capped=False),
        ),
        WrongAnswer(
            "rounded up",
            "The budget may not be exceeded, so round down.",
            _attending_with(divided=lambda room, price: -(-room // price)),
        ),
        WrongAnswer(
            "none attends, or none fits",
            "After a short text a layer that attends keeps less than a memory. All may then fit, "
            "although the memories alone do not.",
            _attending_with(short=False),
        ),
        WrongAnswer(
            "less than the budget",
            "The layers may keep exactly as many bytes as the budget has.",
            _attending_with(strict=True),
        ),
        WrongAnswer(
            "no error",
            "If no number of layers fits, raise a ValueError.",
            _attending_with(raises=False),
        ),
    ),
)
