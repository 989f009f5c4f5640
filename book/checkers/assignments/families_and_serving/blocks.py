"""Questions of the assignment: reorder, texts_that_fit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _args(name: str, *args: Any, raises: type[Exception] | None = None) -> Case:
    return Case(name, lambda: copy.deepcopy(args), raises=raises)


# --- reorder --------------------------------------------------------------------------------------

Tables = list[list[int]]
Reordered = tuple[list[int], Tables, list[tuple[int, int]]]


def _reorder(
    users: Sequence[int], tables: Sequence[Sequence[int]], parents: Sequence[int], length: int,
    size: int,
) -> Reordered:  # fmt: skip
    """With sets of the beams that hold a block, beside what others hold."""
    holders: dict[int, list[int]] = {}
    for beam, parent in enumerate(parents):
        for block in tables[parent]:
            holders.setdefault(block, []).append(beam)
    others = [n - sum(list(t).count(b) for t in tables) for b, n in enumerate(users)]
    counts = [others[b] + len(holders.get(b, [])) for b in range(len(users))]
    made = [list(tables[parent]) for parent in parents]
    copies: list[tuple[int, int]] = []
    for table in made:
        if length % size and counts[table[-1]] == 1:
            continue
        new = min(b for b, n in enumerate(counts) if n == 0)
        counts[new] = 1
        if length % size:
            counts[table[-1]] -= 1
            copies.append((table[-1], new))
            table[-1] = new
        else:
            table.append(new)
    return counts, made, copies


@in_parts
def _reorder_with(
    origin: Callable[[Sequence[int], int], int] = lambda parents, beam: parents[beam],
    release: bool = True,
    acquire: bool = True,
    full: Callable[[int, int], bool] = lambda length, size: length % size == 0,
    shared: Callable[[int], bool] = lambda n: n > 1,
    leave: int = 1,
    note: Callable[[int, int], tuple[int, int]] = lambda old, new: (old, new),
    copied: bool = True,
    free: Callable[[list[int]], int] = lambda users: users.index(0),
    own: int = 1,
    alias: bool = False,
) -> Answer:
    def answer(
        users: Sequence[int], tables: Sequence[Sequence[int]], parents: Sequence[int],
        length: int, size: int,
    ) -> Reordered:  # fmt: skip
        counts = list(users)
        before = [list(t) for t in tables]
        made = [
            before[origin(parents, beam)] if alias else list(tables[origin(parents, beam)])
            for beam in range(len(parents))
        ]
        if acquire:
            for table in made:
                for block in table:
                    counts[block] += 1
        if release:
            for old_table in tables:
                for block in old_table:
                    counts[block] -= 1
        copies = []
        for table in made:
            if full(length, size):
                new = free(counts)
                table.append(new)
                counts[new] = own
            elif shared(counts[table[-1]]):
                old, new = table[-1], free(counts)
                counts[old] -= leave
                counts[new] = own
                table[-1] = new
                if copied:
                    copies.append(note(old, new))
        return counts, made, copies

    return answer


def _beams(name: str, users: list[int], tables: Tables, parents: list[int], n: int,
           size: int) -> Case:  # fmt: skip
    return _args(name, users, tables, parents, n, size)


_REORDER = Exercise(
    title="Beams that share blocks",
    oracle=_reorder,
    cases=(
        _beams("values: both from the first", [2, 1, 1, 0, 0, 0], [[0, 1], [0, 2]], [0, 0], 6, 4),
        _beams("values: exchanged", [2, 1, 1, 0, 0], [[0, 1], [0, 2]], [1, 0], 300, 256),
        _beams("values: three from one", [3, 1, 1, 1, 0, 0, 0], [[0, 1], [0, 2], [0, 3]],
               [1, 1, 1], 3, 2),
        _beams("values: two and one", [0, 3, 1, 1, 0, 1, 0], [[1, 2], [1, 3], [1, 5]],
               [2, 2, 0], 7, 4),
        _beams("values: four beams, long tables", [4, 2, 2, 1, 1, 1, 1, 0, 0, 0],
               [[0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 2, 6]], [0, 0, 2, 3], 11, 4),
        _beams("values: each its own", [2, 1, 1, 0, 0], [[0, 1], [0, 2]], [0, 1], 7, 4),
        _beams("full: all blocks are full", [2, 1, 1, 0, 0, 0], [[0, 1], [0, 2]], [0, 0], 8, 4),
        _beams("full: three beams", [3, 0, 1, 1, 1, 0, 0], [[0, 2], [0, 3], [0, 4]],
               [2, 0, 2], 4, 2),
        _beams("full: blocks of one position", [1, 1, 0, 0, 0], [[0], [1]], [1, 1], 1, 1),
        _beams("full: nothing yet", [0, 0, 1, 0], [[], []], [0, 0], 0, 4),
        _beams("others: the prompt belongs to others too", [5, 1, 1, 2, 0, 0],
               [[0, 1], [0, 2]], [1, 1], 6, 4),
        _beams("others: the last block is also another text's", [3, 2, 1, 0, 0, 0],
               [[0, 1], [0, 2]], [0, 1], 5, 4),
        _beams("others: a single beam, shared with another text", [2, 2, 0, 1, 0], [[0, 1]], [0],
               7, 4),
    ),
    wrong=(
        WrongAnswer(
            "the parent's number and the beam's exchanged",
            "Beam i goes on from beam parents[i], not the other way round.",
            _reorder_with(origin=lambda parents, beam: (
                parents.index(beam) if beam in parents else beam)),
        ),
        WrongAnswer(
            "every beam goes on from itself",
            "The search keeps the best continuations: beam i goes on from beam parents[i].",
            _reorder_with(origin=lambda parents, beam: beam),
        ),
        WrongAnswer(
            "the old tables keep their blocks",
            "The old tables are gone, and each of their blocks has a user less.",
            _reorder_with(release=False),
        ),
        WrongAnswer(
            "one table for two beams",
            "Two beams from one parent need a table each, or both are changed at once.",
            _reorder_with(alias=True),
        ),
        WrongAnswer(
            "a full block copied",
            "Nothing is written into a full block: it stays shared, and a new one follows.",
            _reorder_with(full=lambda length, size: False),
        ),
        WrongAnswer(
            "a new block for each token",
            "A block that is not full has room for the next position.",
            _reorder_with(full=lambda length, size: True),
        ),
        WrongAnswer(
            "copied though nobody else holds it",
            "Who holds a block alone may write into it: a copy is needed where it is shared.",
            _reorder_with(shared=lambda n: n >= 1),
        ),
        WrongAnswer(
            "never copied",
            "Two beams that write into one block overwrite each other.",
            _reorder_with(shared=lambda n: False),
        ),
        WrongAnswer(
            "the last one copies too",
            "When the others have left with their copies, the last beam holds the block alone.",
            _reorder_with(leave=0),
        ),
        WrongAnswer(
            "copies the wrong way round",
            "A copy goes from the shared block to the new one.",
            _reorder_with(note=lambda old, new: (new, old)),
        ),
        WrongAnswer(
            "copies not told",
            "The new block has to be filled: say from where to where.",
            _reorder_with(copied=False),
        ),
        WrongAnswer(
            "the last free block taken",
            "Of the blocks without users the one with the lowest number is taken.",
            _reorder_with(free=lambda users: len(users) - 1 - users[::-1].index(0)),
        ),
        WrongAnswer(
            "the new block has no user",
            "A block that was taken has one user, or the next beam takes it again.",
            _reorder_with(own=0),
        ),
    ),
    variants=(_reorder_with(),),
)  # fmt: skip


# --- texts_that_fit -------------------------------------------------------------------------------


def _texts_that_fit(
    memory: int, weight_bytes: int, windows: Sequence[int | None], num_kv_heads: int,
    head_dim: int, dtype_bytes: int, devices: int, block: int, length: int,
) -> int:  # fmt: skip
    heads = num_kv_heads // devices if devices < num_kv_heads else 1
    blocks = 0
    for window in windows:
        kept = length if window is None or window > length else window
        blocks += -(-kept // block)
    of_text = blocks * block * 2 * heads * head_dim * dtype_bytes
    room = memory - -(-weight_bytes // devices)
    return max(0, room // of_text)


@in_parts
def _fit_with(
    heads: Callable[[int, int], float] = lambda g, devices: max(1, g // devices),
    kept: Callable[[int | None, int], int] = lambda w, n: n if w is None else min(w, n),
    whole: Callable[[int, int], float] = lambda n, block: math.ceil(n / block) * block,
    each: bool = True,
    weights: Callable[[int, int], int] = lambda n, devices: math.ceil(n / devices),
    both: int = 2,
    never_negative: bool = True,
    per_byte: bool = True,
    result: Callable[[float, float], int] = lambda room, size: int(room // size),
) -> Answer:
    def answer(
        memory: int, weight_bytes: int, windows: Sequence[int | None], num_kv_heads: int,
        head_dim: int, dtype_bytes: int, devices: int, block: int, length: int,
    ) -> int:  # fmt: skip
        rows = [kept(w, length) for w in windows]
        positions = sum(whole(n, block) for n in rows) if each else whole(sum(rows), block)
        size = both * positions * heads(num_kv_heads, devices) * head_dim
        size *= dtype_bytes if per_byte else 1
        found = result(memory - weights(weight_bytes, devices), size)
        return max(0, found) if never_negative else found

    return answer


_GB = 10**9
_FIT = Exercise(
    title="How many texts fit on a team of devices",
    oracle=_texts_that_fit,
    cases=(
        _args("values: one device", 80 * _GB, 16 * _GB, [None] * 32, 8, 128, 2, 1, 16, 3000),
        _args("values: four devices", 80 * _GB, 140 * _GB, [None] * 80, 8, 128, 2, 4, 16, 8191),
        _args("values: more devices than heads", 80 * _GB, 140 * _GB, [None] * 80, 4, 128, 2, 8,
              16, 5000),
        _args("values: as many devices as heads", 24 * _GB, 30 * _GB, [None] * 20, 4, 64, 1, 4,
              32, 700),
        _args("values: windows and full layers", 24 * _GB, 16 * _GB, ([1024] * 5 + [None]) * 8, 8,
              128, 2, 1, 16, 131072),
        _args("values: a window that no block divides", 10**8, 10**7, [100, None, 37], 2, 64, 2,
              1, 16, 555),
        _args("values: caches in 8 bits", 40 * _GB, 26 * _GB, [None] * 40, 40, 128, 1, 2, 16, 2049),
        _args("corners: a text shorter than the window", 10**8, 10**7, [4096, None], 2, 64, 2, 1,
              16, 100),
        _args("corners: no room beside the weights", 10**7, 2 * 10**7, [None] * 4, 2, 64, 2, 1,
              16, 100),
        _args("corners: exactly as many as fit", 3 * 65536 + 999, 999,
              [None] * 4, 2, 64, 2, 1, 16, 30),
        _args("corners: one byte too few", 3 * 65536 + 998, 999, [None] * 4, 2,
              64, 2, 1, 16, 30),
        _args("corners: weights that no number of devices divides", 8 * 4096 + 333, 1000, [None],
              3, 16, 2, 3, 16, 64),
        _args("corners: blocks of one position", 10**6, 10**5, [None, 7], 1, 32, 2, 1, 1, 99),
    ),
    wrong=(
        WrongAnswer(
            "heads cut finer than one",
            "A head is not cut: with more devices than heads several devices hold the same one.",
            _fit_with(heads=lambda g, devices: g / devices),
        ),
        WrongAnswer(
            "every device holds all heads",
            "The key-value heads are shared out among the devices.",
            _fit_with(heads=lambda g, devices: g),
        ),
        WrongAnswer(
            "every device holds all weights",
            "The weights are cut among the devices like the heads.",
            _fit_with(weights=lambda n, devices: n),
        ),
        WrongAnswer(
            "weights rounded down",
            "What does not divide evenly is rounded up.",
            _fit_with(weights=lambda n, devices: n // devices),
        ),
        WrongAnswer(
            "weights forgotten",
            "The weights take their share of the memory first.",
            _fit_with(weights=lambda n, devices: 0),
        ),
        WrongAnswer(
            "all layers full",
            "A layer with a window keeps no more positions than the window.",
            _fit_with(kept=lambda w, n: n),
        ),
        WrongAnswer(
            "windows full from the start",
            "A text shorter than the window fills a part of it only.",
            _fit_with(kept=lambda w, n: n if w is None else w),
        ),
        WrongAnswer(
            "positions in place of whole blocks",
            "Memory is given out in blocks: the last one of a layer counts whole.",
            _fit_with(whole=lambda n, block: n),
        ),
        WrongAnswer(
            "blocks counted over all layers together",
            "Each layer has blocks of its own, and a last one that is not full.",
            _fit_with(each=False),
        ),
        WrongAnswer(
            "keys without values",
            "A position has a key and a value in each layer.",
            _fit_with(both=1),
        ),
        WrongAnswer(
            "numbers taken for bytes",
            "A number of the cache takes dtype_bytes bytes.",
            _fit_with(per_byte=False),
        ),
        WrongAnswer(
            "a negative number of texts",
            "If the weights alone are too large, no text fits: 0.",
            _fit_with(never_negative=False),
        ),
        WrongAnswer(
            "rounded up",
            "A text that fits in part does not fit.",
            _fit_with(result=lambda room, size: math.ceil(room / size)),
        ),
    ),
    variants=(_fit_with(),),
)  # fmt: skip


EXERCISES = {
    "reorder": _REORDER,
    "texts_that_fit": _FIT,
}
