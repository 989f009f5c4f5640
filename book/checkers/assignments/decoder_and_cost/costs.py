"""Questions of the assignment: moe_intensity, step_flops, busy_share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _numbers(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


# --- moe_intensity --------------------------------------------------------------------------------


def _moe_intensity(
    tokens: int, experts: int, top_k: int, d_in: int, d_out: int,
    weight_bytes: float, activation_bytes: float,
) -> float:  # fmt: skip
    rows = [0] * experts
    for i in range(tokens * top_k):
        rows[i % experts] += 1
    flops = moved = 0.0
    for n in rows:
        flops += 2 * n * d_in * d_out
        moved += weight_bytes * d_in * d_out * (n > 0) + activation_bytes * n * (d_in + d_out)
    return flops / moved


@in_parts
def _moe_intensity_with(
    read: Callable[[int, int, int], int] = lambda t, e, k: min(e, t * k),
    rows: Callable[[int, int], int] = lambda t, k: t * k,
    per: int = 2,
    wide: Callable[[int, int], int] = lambda a, b: a + b,
    same_bytes: bool = False,
    share: Callable[[float, float], float] = lambda flops, moved: flops / moved,
) -> Answer:
    def answer(
        tokens: int, experts: int, top_k: int, d_in: int, d_out: int,
        weight_bytes: float, activation_bytes: float,
    ) -> float:  # fmt: skip
        if same_bytes:
            activation_bytes = weight_bytes
        n = rows(tokens, top_k)
        moved = weight_bytes * read(tokens, experts, top_k) * d_in * d_out
        moved += activation_bytes * n * wide(d_in, d_out)
        return share(per * n * d_in * d_out, moved)

    return answer


_MOE_INTENSITY = Exercise(
    title="The intensity of a layer of experts",
    oracle=_moe_intensity,
    cases=(
        _numbers("values: 64 tokens, 8 of 128 experts", 64, 128, 8, 2048, 768, 2, 2),
        _numbers("values: weights of one byte", 256, 64, 6, 2048, 1408, 1, 2),
        _numbers("values: weights of half a byte", 16, 8, 2, 4096, 14336, 0.5, 2),
        _numbers("values: few tokens, most experts idle", 3, 128, 8, 2048, 768, 2, 4),
        _numbers("corners: one token", 1, 256, 8, 7168, 2048, 1, 2),
        _numbers("corners: one expert, an ordinary layer", 32, 1, 1, 4096, 4096, 2, 2),
        _numbers("corners: exactly one row each", 32, 64, 2, 512, 256, 2, 2),
    ),
    wrong=(
        WrongAnswer(
            "all experts read, even idle ones",
            "An expert that no token goes to is not read: min(experts, tokens times top_k).",
            _moe_intensity_with(read=lambda t, e, k: e),
        ),
        WrongAnswer(
            "one row for each token",
            "Every token goes to top_k experts and makes a row in each of them.",
            _moe_intensity_with(rows=lambda t, k: t),
        ),
        WrongAnswer(
            "top_k experts read",
            "The tokens do not all choose the same ones. By assumption they spread evenly.",
            _moe_intensity_with(read=lambda t, e, k: min(e, k)),
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _moe_intensity_with(per=1),
        ),
        WrongAnswer(
            "outputs forgotten",
            "The outputs are written: d_out numbers for each row.",
            _moe_intensity_with(wide=lambda a, b: a),
        ),
        WrongAnswer(
            "activations as small as the weights",
            "Weights and activations have different widths; each takes its own bytes.",
            _moe_intensity_with(same_bytes=True),
        ),
        WrongAnswer(
            "inputs forgotten",
            "The inputs are read: d_in numbers for each row.",
            _moe_intensity_with(wide=lambda a, b: b),
        ),
        WrongAnswer(
            "a matrix read for each row",
            "An expert's matrix is read once, however many rows it serves. That is what a batch "
            "is for.",
            _moe_intensity_with(read=lambda t, e, k: t * k),
        ),
        WrongAnswer(
            "activations moved for free",
            "What each expert reads and writes for its rows is moved as well.",
            _moe_intensity_with(wide=lambda a, b: 0),
        ),
        WrongAnswer(
            "bytes for each operation",
            "Intensity is operations over bytes. This is its inverse.",
            _moe_intensity_with(share=lambda flops, moved: moved / flops),
        ),
    ),
    variants=(_moe_intensity_with(),),
)


# --- step_flops -----------------------------------------------------------------------------------


def _step(
    tokens: int, block_weights: int, num_layers: int, head_weights: int, recomputed: int
) -> int:
    total = 0
    for layer in range(num_layers):
        forward = 2 * tokens * block_weights
        total += forward + 2 * forward + (forward if layer < recomputed else 0)
    return total + 6 * tokens * head_weights


@in_parts
def _step_with(
    again: Callable[..., int] = lambda t, b, n, h, r: 2 * t * b * r,
    plain: Callable[..., int] = lambda t, b, n, h: 6 * t * (n * b + h),
) -> Answer:
    def answer(
        tokens: int, block_weights: int, num_layers: int, head_weights: int, recomputed: int
    ) -> int:
        sizes = tokens, block_weights, num_layers, head_weights
        return plain(*sizes) + again(*sizes, recomputed)

    return answer


_STEP = Exercise(
    title="A training step that computes some layers twice",
    oracle=_step,
    cases=(
        _numbers("values: half of the layers", 4096, 200_000_000, 32, 500_000_000, 16),
        _numbers("values: all layers", 8192, 200_000_000, 32, 130_000_000, 32),
        _numbers("values: a large head", 100, 1000, 4, 50_000, 3),
        _numbers("corners: nothing twice", 512, 7_000_000, 12, 38_000_000, 0),
        _numbers("corners: one layer", 3, 5, 1, 7, 1),
        _numbers("corners: no head", 10, 11, 6, 0, 5),
    ),
    wrong=(
        WrongAnswer(
            "the head computed again too",
            "Only blocks are recomputed; the head's backward pass begins with what is there.",
            _step_with(again=lambda t, b, n, h, r: 2 * t * (b * r + h) if r else 0),
        ),
        WrongAnswer(
            "all layers computed again",
            "Only `recomputed` of the layers forget what they computed.",
            _step_with(again=lambda t, b, n, h, r: 2 * t * b * n if r else 0),
        ),
        WrongAnswer(
            "a whole step again",
            "Recomputing is a forward pass, 2 per weight and token. Backwards goes only once.",
            _step_with(again=lambda t, b, n, h, r: 6 * t * b * r),
        ),
        WrongAnswer(
            "recomputing is free",
            "The second forward pass of those layers is work like the first.",
            _step_with(again=lambda t, b, n, h, r: 0),
        ),
        WrongAnswer(
            "backwards as cheap as forwards",
            "Backwards there are two products, for the inputs and for the weights: 4, not 2.",
            _step_with(plain=lambda t, b, n, h: 4 * t * (n * b + h)),
        ),
        WrongAnswer(
            "the head forgotten",
            "The head is a product with weights too, forwards once and backwards twice.",
            _step_with(plain=lambda t, b, n, h: 6 * t * n * b),
        ),
        WrongAnswer(
            "the other layers again",
            "The layers that are counted in `recomputed` are those that compute twice.",
            _step_with(again=lambda t, b, n, h, r: 2 * t * b * (n - r)),
        ),
        WrongAnswer(
            "the backward pass again",
            "It is the forward pass that runs twice. Backwards goes once, in every layer.",
            _step_with(again=lambda t, b, n, h, r: 4 * t * b * r),
        ),
        WrongAnswer(
            "forwards only",
            "A training step goes backwards as well, for the inputs and for the weights.",
            _step_with(plain=lambda t, b, n, h: 2 * t * (n * b + h)),
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _step_with(again=lambda t, b, n, h, r: t * b * r,
                       plain=lambda t, b, n, h: 3 * t * (n * b + h)),
        ),
    ),
    variants=(_step_with(),),
)  # fmt: skip


# --- busy_share -----------------------------------------------------------------------------------


def _busy(rows: int, columns: int, tile_rows: int, tile_columns: int, processors: int) -> float:
    tiles = len(range(0, rows, tile_rows)) * len(range(0, columns, tile_columns))
    waves = len(range(0, tiles, processors))
    return rows * columns / (waves * processors * tile_rows * tile_columns)


@in_parts
def _busy_with(
    cut: Callable[[float], int] = math.ceil,
    waves: Callable[[float], float] = math.ceil,
    together: bool = False,
    waste: bool = False,
    sides: Callable[[int, int], tuple[int, int]] = lambda rows, columns: (rows, columns),
    useful: Callable[[float, int], float] = lambda inside, tiles: inside,
    at_once: Callable[[int], int] = lambda processors: processors,
) -> Answer:
    def answer(
        rows: int, columns: int, tile_rows: int, tile_columns: int, processors: int
    ) -> float:
        down, across = sides(tile_rows, tile_columns)
        tiles = cut(rows / down) * cut(columns / across)
        if together:
            tiles = cut(rows * columns / (tile_rows * tile_columns))
        time = waves(tiles / processors) * at_once(processors)
        share = useful(rows * columns / (tile_rows * tile_columns), tiles) / time
        return 1 - share if waste else share

    return answer


_BUSY = Exercise(
    title="Tiles that come in waves",
    oracle=_busy,
    cases=(
        _numbers("values: 4096 by 4096 on 132 processors", 4096, 4096, 128, 128, 132),
        _numbers("values: one row too many", 2049, 2048, 128, 128, 108),
        _numbers("values: wide tiles", 1000, 3000, 64, 256, 60),
        _numbers("values: tiles wider than the result is high", 100, 1000, 32, 256, 4),
        _numbers("values: a vocabulary", 512, 50257, 128, 256, 132),
        _numbers("values: edges on both sides", 130, 130, 64, 64, 4),
        _numbers("values: more edge than inside", 300, 70, 256, 64, 3),
        _numbers("corners: fewer tiles than processors", 100, 100, 64, 64, 132),
        _numbers("corners: nothing wasted", 256, 512, 64, 64, 16),
        _numbers("corners: one row", 1, 4096, 128, 128, 32),
    ),
    wrong=(
        WrongAnswer(
            "tiles only",
            "The last wave takes as long as a full one, even if most processors are idle.",
            _busy_with(waves=lambda x: x),
        ),
        WrongAnswer(
            "a single wave",
            "With more tiles than processors some of them wait for a second wave, or a third.",
            _busy_with(waves=lambda x: 1),
        ),
        WrongAnswer(
            "rounded up once for both dimensions",
            "Rows and columns are cut separately; each has an edge of its own.",
            _busy_with(together=True),
        ),
        WrongAnswer(
            "the share that is wasted",
            "The share of useful work was asked for: 1 minus this.",
            _busy_with(waste=True),
        ),
        WrongAnswer(
            "rounded down",
            "What is left over needs a tile, or a wave, of its own.",
            _busy_with(cut=lambda x: max(1, math.floor(x)), waves=lambda x: max(1, math.floor(x))),
        ),
        WrongAnswer(
            "partly filled tiles counted as useful",
            "What lies outside the result at its edges is computed and thrown away.",
            _busy_with(useful=lambda inside, tiles: tiles),
        ),
        WrongAnswer(
            "tile's sides exchanged",
            "Rows are cut by the tile's rows, columns by its columns.",
            _busy_with(sides=lambda rows, columns: (columns, rows)),
        ),
        WrongAnswer(
            "a tile more though it fits",
            "Where the size is a multiple of the tile's there is no rest that needs another tile.",
            _busy_with(cut=lambda x: math.floor(x) + 1),
        ),
        WrongAnswer(
            "a wave more though it fits",
            "If the tiles fill the last wave there is no wave after it.",
            _busy_with(waves=lambda x: math.floor(x) + 1),
        ),
        WrongAnswer(
            "time of one processor",
            "While a wave lasts all processors could work: their time counts, idle or not.",
            _busy_with(at_once=lambda processors: 1),
        ),
    ),
    variants=(_busy_with(),),
)

EXERCISES: dict[str, Exercise] = {
    "moe_intensity": _MOE_INTENSITY,
    "step_flops": _STEP,
    "busy_share": _BUSY,
}
