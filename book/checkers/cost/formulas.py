"""Formulas as functions: a block, enough rows, tokens per second."""

from __future__ import annotations

import math
from collections.abc import Callable

from book.checkers.core import Case, Exercise, WrongAnswer

# --- block_flops(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff) -----------------


def _block_flops(
    batch: int,
    length: int,
    d_model: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    d_ff: int,
    *,
    per_multiply_add: int = 2,
    ffn: int = 3,
    kv: int | None = None,
    out: bool = True,
    products: int = 2,
    rows: int | None = None,
    score_heads: int | None = None,
    keys: int | None = None,
) -> int:
    rows = batch * length if rows is None else rows
    kv = num_kv_heads if kv is None else kv
    matrices = [(d_model, num_heads * head_dim), *[(d_model, kv * head_dim)] * 2]
    matrices += [(num_heads * head_dim, d_model)] * out + [(d_model, d_ff)] * ffn
    linear = sum(rows * a * b for a, b in matrices)
    heads = num_heads if score_heads is None else score_heads
    scores = products * batch * heads * length * (length if keys is None else keys) * head_dim
    return per_multiply_add * (linear + scores)


_BLOCKS = [
    (1, 1, 4, 1, 1, 4, 8), (2, 3, 8, 2, 1, 4, 16), (4, 512, 512, 8, 2, 64, 1536),
    (1, 5, 6, 3, 3, 4, 7), (3, 7, 16, 4, 2, 2, 24), (1, 4096, 4096, 32, 8, 128, 14336),
]  # fmt: skip

_Sizes = tuple[int, int, int, int, int, int, int]


def _block_by_formula(
    batch: int, length: int, d_model: int, num_heads: int, num_kv_heads: int, head_dim: int,
    d_ff: int,
) -> int:  # fmt: skip
    weights = d_model * (head_dim * (2 * num_heads + 2 * num_kv_heads) + 3 * d_ff)
    return batch * length * (2 * weights + 4 * num_heads * head_dim * length)


BLOCK_FLOPS = Exercise(
    title="The FLOPs of the matrix products of one block with SwiGLU, forward",
    oracle=_block_flops,
    cases=[
        Case("B, T, d_model, H, G, head_dim, d_ff = " + ", ".join(map(str, s)), lambda s=s: s)  # type: ignore[misc]
        for s in _BLOCKS
    ],
    variants=(_block_by_formula,),
    wrong=(
        WrongAnswer(
            "multiply-adds counted once",
            "A multiplication and an addition are two operations, so a product of an (n, a) with "
            "an (a, b) matrix costs 2nab.",
            lambda *s: _block_flops(*s, per_multiply_add=1),
        ),
        WrongAnswer(
            "two feed-forward matrices",
            "SwiGLU has three: gate, up and down.",
            lambda *s: _block_flops(*s, ffn=2),
        ),
        WrongAnswer(
            "keys and values for every query head",
            "With grouped queries the key and value projections have num_kv_heads heads.",
            lambda *s: _block_flops(*s, kv=s[3]),
        ),
        WrongAnswer(
            "output projection forgotten",
            "The heads' outputs go through a fourth matrix back to d_model.",
            lambda *s: _block_flops(*s, out=False),
        ),
        WrongAnswer(
            "only the scores",
            "Attention has two products per head: queries with keys, and weights with values.",
            lambda *s: _block_flops(*s, products=1),
        ),
        WrongAnswer(
            "attention linear in the length",
            "Every query meets every key, so the scores cost length times length.",
            lambda *s: _block_flops(*s, keys=1),
        ),
        WrongAnswer(
            "attention by key-value heads",
            "Sharing keys saves memory, not arithmetic: every query head still has its products.",
            lambda *s: _block_flops(*s, score_heads=s[4]),
        ),
        WrongAnswer(
            "weights counted for one token",
            "Every one of the batch * length tokens goes through the matrices.",
            lambda *s: _block_flops(*s, rows=1),
        ),
    ),
)


# --- critical_batch(d_in, d_out, ridge, dtype_bytes) ----------------------------------------------


def _intensity(
    n: int, d_in: int, d_out: int, dtype_bytes: int, *, weights_only: bool = False, per: int = 2
) -> float:
    moved = d_in * d_out if weights_only else n * d_in + d_in * d_out + n * d_out
    return per * n * d_in * d_out / (dtype_bytes * moved)


def _critical(d_in: int, d_out: int, ridge: float, dtype_bytes: int) -> int | None:
    # The limit of many rows is 2 / (b (1 / d_in + 1 / d_out)).
    if 2 * d_in * d_out <= ridge * dtype_bytes * (d_in + d_out):
        return None
    high = 1
    while _intensity(high, d_in, d_out, dtype_bytes) < ridge:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if _intensity(middle, d_in, d_out, dtype_bytes) < ridge:
            low = middle
        else:
            high = middle
    return high


def _critical_by_formula(
    d_in: int,
    d_out: int,
    ridge: float,
    dtype_bytes: int,
    *,
    whole: Callable[[float], int] = math.ceil,
    traffic: bool = True,
    per: float = 2.0,
    size: float | None = None,
) -> int | None:
    b = dtype_bytes if size is None else size
    # In whole numbers as far as the arguments are: where the bound is tight, 1 / d would round.
    per_row = per * d_in * d_out - (ridge * b * (d_in + d_out) if traffic else 0)
    return whole(ridge * b * d_in * d_out / per_row) if per_row > 0 else None


_LAYERS: list[tuple[int, int, float, int]] = [
    (4096, 4096, 295.0, 2), (4096, 14336, 153.0, 2), (8192, 28672, 3000.0, 2), (64, 64, 295.0, 2),
    (512, 1536, 10.5, 4), (512, 512, 295.0, 2), (4096, 4096, 295.0, 1), (256, 256, 20.3, 4),
    (2, 2, 1.5, 1), (3, 6, 1.0, 4), (2, 2, 1.93, 1),
]  # fmt: skip

CRITICAL_BATCH = Exercise(
    title="The fewest rows for which a linear layer is limited by arithmetic",
    oracle=_critical,
    cases=[
        Case(
            f"{a} to {b}, ridge {r:g}, {n} bytes per number",
            lambda a=a, b=b, r=r, n=n: (a, b, r, n),  # type: ignore[misc]
        )
        for a, b, r, n in _LAYERS
    ],
    variants=(_critical_by_formula,),
    wrong=(
        WrongAnswer(
            "weights only",
            "Inputs and outputs cross the bus too. Without them the batch comes out too small, "
            "and a narrow layer seems to have one although it never gets there.",
            lambda *s: _critical_by_formula(*s, traffic=False),
        ),
        WrongAnswer(
            "rounded down",
            "One row less is still below the ridge.",
            lambda *s: _critical_by_formula(*s, whole=math.floor),
        ),
        WrongAnswer(
            "multiply-adds counted once",
            "A multiply-add is two operations, and so the machines' peaks count it.",
            lambda *s: _critical_by_formula(*s, per=1.0),
        ),
        WrongAnswer(
            "bytes per number ignored",
            "The intensity is per byte, not per number.",
            lambda *s: _critical_by_formula(*s, size=1.0),
        ),
        WrongAnswer(
            "always two bytes",
            "The size of a number is an argument.",
            lambda *s: _critical_by_formula(*s, size=2.0),
        ),
        WrongAnswer(
            "the ridge itself",
            "In 16 bit the batch is near the ridge, but it is not the ridge: it depends on the "
            "layer and on the size of a number.",
            lambda d_in, d_out, ridge, dtype_bytes: math.ceil(ridge),
        ),
        WrongAnswer(
            "one row too many",
            "Where the intensity reaches the ridge the layer is limited by arithmetic already.",
            lambda *s: None if (n := _critical_by_formula(*s)) is None else n + 1,
        ),
    ),
)


# --- decode_rate(weight_bytes, cache_bytes, batch, length, bandwidth) -----------------------------


def _decode_rate(
    weight_bytes: float, cache_bytes: float, batch: int, length: int, bandwidth: float
) -> float:
    read = weight_bytes + sum(cache_bytes * length for _ in range(batch))
    return batch * bandwidth / read


_DECODES = [
    (14e9, 5e5, 1, 4096, 2e12), (14e9, 5e5, 64, 4096, 2e12), (1.4e11, 3.3e5, 16, 8192, 3.35e12),
    (1e9, 0.0, 8, 128, 1e11), (1e6, 1e4, 3, 0, 5e10),
]  # fmt: skip

DECODE_RATE = Exercise(
    title="The most tokens per second that reading allows in decoding",
    oracle=_decode_rate,
    cases=[
        Case(
            "weights, cache per token, batch, length, bandwidth = "
            + ", ".join(f"{v:g}" for v in t),
            lambda t=t: t,  # type: ignore[misc]
        )
        for t in _DECODES
    ],
    variants=(lambda w, c, b, s, bw: bw / (w / b + s * c),),
    wrong=(
        WrongAnswer(
            "tokens of one sequence",
            "A step gives one token to every sequence of the batch.",
            lambda w, c, b, s, bw: bw / (w + b * s * c),
        ),
        WrongAnswer(
            "weights read for every sequence",
            "All sequences of the batch share one reading of the weights. That is what a batch is "
            "for.",
            lambda w, c, b, s, bw: bw / (w + s * c),
        ),
        WrongAnswer(
            "weights for each sequence and cache of one",
            "The weights are read once for the batch, and every sequence has a cache of its own: "
            "the batch stands beside the wrong term.",
            lambda w, c, b, s, bw: b * bw / (b * w + s * c),
        ),
        WrongAnswer(
            "nothing repaired",
            "What is read is the weights once and the cache of every sequence; and a step gives "
            "one token to each of them.",
            lambda w, c, b, s, bw: bw / (b * w + s * c),
        ),
        WrongAnswer(
            "cache of one sequence",
            "Weights are shared by the batch; caches are not.",
            lambda w, c, b, s, bw: b * bw / (w + s * c),
        ),
        WrongAnswer(
            "cache forgotten",
            "With long sequences and large batches the cache is most of what is read.",
            lambda w, c, b, s, bw: b * bw / w,
        ),
        WrongAnswer(
            "cache of one position",
            "A step reads the keys and values of all earlier positions, not of the last one.",
            lambda w, c, b, s, bw: b * bw / (w + b * c),
        ),
        WrongAnswer(
            "seconds per step",
            "This is the time of a step. The rate is the tokens of a step divided by it.",
            lambda w, c, b, s, bw: (w + b * s * c) / bw,
        ),
    ),
)
