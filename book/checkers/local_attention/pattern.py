"""A pattern of local and full layers that fits a cache."""

from __future__ import annotations

from collections.abc import Callable

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

Windows = list[int | None]


def _kept(windows: Windows, length: int) -> int:
    return sum(length if w is None else min(w, length) for w in windows)


def _windows(num_layers: int, window: int, length: int, room: int) -> Windows:
    for every in range(1, num_layers + 2):
        made: Windows = [window] * num_layers
        made[every - 1 :: every] = [None] * len(made[every - 1 :: every])
        if _kept(made, length) <= room:
            return made
    raise ValueError(f"windows alone keep more than {room} positions")


def _by_counting(num_layers: int, window: int, length: int, room: int) -> Windows:
    near = min(window, length)
    for full in range(num_layers, 0, -1):
        every = next((e for e in range(1, num_layers + 1) if num_layers // e == full), 0)
        if every and full * length + (num_layers - full) * near <= room:
            return [None if layer % every == every - 1 else window for layer in range(num_layers)]
    if num_layers * near > room:
        raise ValueError("it does not fit")
    return [window] * num_layers


@in_parts
def _design(
    *,
    kept: Callable[[Windows, int], int] = _kept,
    fits: Callable[[int, int], bool] = lambda n, room: n <= room,
    first: Callable[[int], int] = lambda every: every - 1,
    order: Callable[[int], range] = lambda n: range(1, n + 2),
    raises: bool = True,
) -> Answer:
    """The search in parts: what a layer keeps, what fits, where the full layers stand."""

    def answer(num_layers: int, window: int, length: int, room: int) -> Windows:
        made: Windows = []
        for every in order(num_layers):
            made = [
                None if n >= first(every) and (n - first(every)) % every == 0 else window
                for n in range(num_layers)
            ]
            if every > num_layers:
                made = [window] * num_layers
            if fits(kept(made, length), room):
                return made
        if raises:
            raise ValueError("it does not fit")
        return made

    return answer


PATTERN = Exercise(
    title="A pattern under a budget",
    oracle=_windows,
    cases=(
        Case.of("five local layers for each full one", 12, 1024, 32768, 10 * 1024 + 2 * 32768),
        Case.of("one position too few for that", 12, 1024, 32768, 10 * 1024 + 2 * 32768 - 1),
        Case.of("room for everything", 6, 512, 4096, 6 * 4096),
        Case.of("every second layer", 8, 128, 1000, 4 * 128 + 4 * 1000 + 5),
        Case.of("windows alone", 7, 64, 500, 7 * 64),
        Case.of("not even windows", 7, 64, 500, 7 * 64 - 1, raises=ValueError),
        Case.of("a text shorter than the window", 5, 1024, 300, 5 * 300),
        Case.of("layers that are no multiple", 10, 16, 800, 3 * 800 + 7 * 16),
        Case.of("one layer", 1, 32, 400, 400),
        Case.of("one layer without room", 1, 32, 400, 399),
        Case.of("the largest number of layers", 62, 1024, 131072, 10 * 131072 + 52 * 1024),
    ),
    variants=(_design(), _by_counting),
    wrong=(
        WrongAnswer(
            "fewer than room, not at most",
            "A cache that is exactly as large as the room fits.",
            _design(fits=lambda n, room: n < room),
        ),
        WrongAnswer(
            "the full layer first",
            "The full layers are the last of each group: every - 1, 2 * every - 1, and so on.",
            _design(first=lambda every: 0),
        ),
        WrongAnswer(
            "only the full layers counted",
            "The local layers keep their windows, and there are many of them.",
            _design(kept=lambda ws, n: sum(n for w in ws if w is None)),
        ),
        WrongAnswer(
            "as few full layers as possible",
            "Asked for is the pattern with the most full layers that fits, so begin with every = "
            "1.",
            _design(order=lambda n: range(n + 1, 0, -1)),
        ),
        WrongAnswer(
            "no error",
            "If windows alone do not fit, there is no such pattern: raise a ValueError.",
            _design(raises=False),
        ),
    ),
)
