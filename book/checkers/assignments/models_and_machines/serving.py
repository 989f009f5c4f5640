"""Questions of the assignment: prefix_batch, absorb_from, largest_chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _args(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


# --- prefix_batch ---------------------------------------------------------------------------------


def _prefix_batch(
    num_heads: int, num_kv_heads: int, prefix: int, own: int,
    cache_bytes: float, activation_bytes: float, ridge: float,
) -> int | None:  # fmt: skip
    # FLOPs minus ridge times bytes, over 2 d_head: a straight line over the batch.
    once = -Fraction(ridge) * Fraction(cache_bytes) * num_kv_heads * prefix
    each = 2 * num_heads * (prefix + own) - Fraction(ridge) * (
        Fraction(cache_bytes) * num_kv_heads * own + Fraction(activation_bytes) * num_heads
    )
    if once + each >= 0:
        return 1
    return math.ceil(-once / each) if each > 0 else None


@in_parts
def _prefix_with(
    flops: Callable[..., float] = lambda h, p, s: 2 * h * (p + s),
    cached_heads: Callable[[int, int], int] = lambda h, g: g,
    moved: Callable[[float, float], float] = lambda c, a: a,
    crossing: Callable[[int, int], int] = lambda h, g: h,
    per_sequence: bool = False,
    whole: Callable[[float], int] = math.ceil,
    never: Callable[[], int | None] = lambda: None,
) -> Answer:
    def answer(
        num_heads: int, num_kv_heads: int, prefix: int, own: int,
        cache_bytes: float, activation_bytes: float, ridge: float,
    ) -> int | None:  # fmt: skip
        heads = cached_heads(num_heads, num_kv_heads)
        each = own + prefix * per_sequence
        active = moved(cache_bytes, activation_bytes) * crossing(num_heads, num_kv_heads)
        gain = flops(num_heads, prefix, own) - ridge * (cache_bytes * heads * each + active)
        once = 0.0 if per_sequence else ridge * cache_bytes * heads * prefix
        if gain <= 0:
            return never() if gain < 0 or once > 0 else 1
        return max(1, whole(once / gain))

    return answer


def _prefix_search(
    num_heads: int, num_kv_heads: int, prefix: int, own: int,
    cache_bytes: float, activation_bytes: float, ridge: float,
) -> int | None:  # fmt: skip
    for batch in range(1, 10_000):
        flops = 4 * num_heads * batch * (prefix + own)
        moved = 2 * cache_bytes * num_kv_heads * (prefix + batch * own)
        moved += 2 * activation_bytes * num_heads * batch
        if flops / moved >= ridge:
            return batch
    return None


_PREFIX = Exercise(
    title="A prompt that all sequences share",
    oracle=_prefix_batch,
    cases=(
        _args("values: 64 heads in 8 groups, 16 bit", 64, 8, 32768, 100, 2, 2, 295.0),
        _args("values: a cache in 8 bits", 64, 8, 32768, 500, 1, 2, 295.0),
        _args("values: a cache in 4 bits", 32, 8, 8192, 512, 0.5, 2, 150.0),
        _args("values: multi-query, a short prefix", 32, 1, 500, 20, 2, 2, 153.0),
        _args("values: multi-head", 16, 16, 20000, 40, 2, 2, 40.0),
        _args("values: activations in 32 bit", 32, 4, 4096, 64, 1, 4, 200.0),
        _args("values: exactly at the ridge", 64, 8, 240, 8, 2, 2, 64.0),
        _args("values: at the ridge, 8 bits", 32, 2, 100, 16, 1, 2, 64.0),
        _args("corners: the queries alone are too much", 64, 8, 100, 20, 2, 2, 295.0),
        _args("corners: long answers, no batch is enough", 64, 8, 2000, 2000, 2, 2, 295.0),
        _args("corners: no prefix, above the ridge", 128, 1, 0, 4096, 2, 2, 100.0),
        _args("corners: no prefix, below the ridge", 64, 8, 0, 4096, 2, 2, 100.0),
        _args("corners: no prefix, exactly at the ridge", 32, 2, 0, 16, 2, 2, 8.0),
        _args("corners: one sequence is enough", 128, 1, 4096, 64, 1, 2, 20.0),
        _args("corners: approached but never reached", 64, 8, 88, 8, 2, 2, 48.0),
    ),
    wrong=(
        WrongAnswer(
            "the prefix read by every sequence",
            "That is what sharing avoids: the prefix's keys and values are read once.",
            _prefix_with(per_sequence=True),
        ),
        WrongAnswer(
            "operations with own positions only",
            "Every query meets the prefix too. Sharing saves bytes, not operations.",
            _prefix_with(flops=lambda h, p, s: 2 * h * s),
        ),
        WrongAnswer(
            "activations as small as the cache",
            "Queries and outputs stay in activation_bytes; only the cache is quantised.",
            _prefix_with(moved=lambda c, a: c),
        ),
        WrongAnswer(
            "queries and outputs forgotten",
            "Each sequence reads its queries and writes its outputs, in H heads.",
            _prefix_with(moved=lambda c, a: 0),
        ),
        WrongAnswer(
            "queries and outputs of G heads",
            "Queries and outputs have H heads. Only keys and values are shared.",
            _prefix_with(crossing=lambda h, g: g),
        ),
        WrongAnswer(
            "keys and values of every query head",
            "G heads of keys and values are read, not H.",
            _prefix_with(cached_heads=lambda h, g: h),
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _prefix_with(flops=lambda h, p, s: h * (p + s)),
        ),
        WrongAnswer(
            "one sequence too many at the ridge",
            "A batch that reaches the ridge exactly is enough: at least, not above.",
            _prefix_with(whole=lambda x: math.floor(x) + 1),
        ),
        WrongAnswer(
            "rounded down",
            "One sequence fewer, and the intensity is below the ridge.",
            _prefix_with(whole=math.floor),
        ),
        WrongAnswer(
            "a number where no batch is enough",
            "The intensity has a limit as the batch grows. Below the ridge the answer is None.",
            _prefix_with(never=lambda: 1),
        ),
    ),
    variants=(_prefix_with(), _prefix_search),
)


# --- absorb_from ----------------------------------------------------------------------------------


def _absorb_from(
    query_len: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int,
    kv_lora_rank: int,
) -> int | None:  # fmt: skip
    def lead(key_len: int) -> int:
        """The FLOPs that absorption saves, over 2 H."""
        seen = sum(key_len - t for t in range(query_len))
        up = kv_lora_rank * (qk_nope_head_dim + v_head_dim)
        naive = key_len * up + seen * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim)
        return naive - query_len * up - seen * (2 * kv_lora_rank + qk_rope_head_dim)

    if lead(query_len) > 0:
        return query_len
    if lead(query_len + 1) <= lead(query_len):
        return None  # a straight line that does not rise
    low, high = query_len, query_len + 1
    while lead(high) <= 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lead(middle) <= 0 else (low, middle)
    return high


@in_parts
def _absorb_with(
    hidden: Callable[[int], int] = lambda t: t * (t - 1) // 2,
    more: Callable[..., int] = lambda h, r, v, c: 2 * c - h - v,
    up: Callable[..., int] = lambda h, r, v, c: c * (h + v),
    start: Callable[[int], int] = lambda t: t,
    ties: int = 1,
    result: Callable[[int, int], int] = lambda s, t: s,
    shortest: Callable[[int], int] = lambda t: t,
    never: Callable[[int], int | None] = lambda t: None,
) -> Answer:
    def answer(
        query_len: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int,
        kv_lora_rank: int,
    ) -> int | None:  # fmt: skip
        t = query_len
        sizes = qk_nope_head_dim, qk_rope_head_dim, v_head_dim, kv_lora_rank
        # slope * S > level; absorbed expands for start(t) positions, naive for S.
        extra = more(*sizes)
        slope = up(*sizes) - t * extra
        level = start(t) * up(*sizes) - extra * hidden(t)
        if slope <= 0:
            return never(t)
        return result(max(shortest(t), (level - 1 + ties) // slope + 1), t)

    return answer


_ABSORB = Exercise(
    title="From how many positions on does absorbing pay?",
    oracle=_absorb_from,
    cases=(
        _args("values: DeepSeek-V3, one token", 1, 128, 64, 128, 512),
        _args("values: DeepSeek-V3, a chunk of 64", 64, 128, 64, 128, 512),
        _args("values: DeepSeek-V3, a chunk of 128", 128, 128, 64, 128, 512),
        _args("values: DeepSeek-V3, a chunk of 170", 170, 128, 64, 128, 512),
        _args("values: wide values", 40, 64, 32, 192, 256),
        _args("values: no rotated part", 12, 32, 0, 32, 96),
        _args("values: small sizes", 3, 8, 4, 8, 24),
        _args("corners: DeepSeek-V3, a chunk of 171", 171, 128, 64, 128, 512),
        _args("corners: a long prompt", 4096, 128, 64, 128, 512),
        _args("corners: as many features as two latents", 7, 64, 32, 64, 64),
        _args("corners: heads wider than the latent", 5, 64, 16, 96, 48),
        _args("corners: heads much wider than the latent", 8, 16, 4, 16, 2),
        _args("corners: the lines are parallel", 8, 4, 2, 4, 8),
        _args("corners: equal first, cheaper one later", 2, 6, 3, 6, 12),
        _args("corners: one token of a tiny layer", 1, 1, 0, 1, 3),
    ),
    wrong=(
        WrongAnswer(
            "every pair counted",
            "The mask forbids pairs inside the chunk, and they are not computed here.",
            _absorb_with(hidden=lambda t: 0),
        ),
        WrongAnswer(
            "a whole chunk of hidden pairs",
            "The first of T queries misses T - 1 keys, the last none: T (T - 1) / 2 pairs.",
            _absorb_with(hidden=lambda t: t * (t + 1) // 2),
        ),
        WrongAnswer(
            "one product in the latent space",
            "Absorbed, both the scores and the means have the latent's width.",
            _absorb_with(more=lambda h, r, v, c: c - h - v),
        ),
        WrongAnswer(
            "rotated features in one form only",
            "Both forms compare the rotated part, so that it cancels out.",
            _absorb_with(more=lambda h, r, v, c: 2 * c + r - h - v),
        ),
        WrongAnswer(
            "only keys made from the latent",
            "Values are made from the latent too: d_c (d_h + d_v) per position.",
            _absorb_with(up=lambda h, r, v, c: c * h),
        ),
        WrongAnswer(
            "absorption for nothing",
            "T queries go down into the latent space and T means come up again.",
            _absorb_with(start=lambda t: 0),
        ),
        WrongAnswer(
            "equal counted as cheaper",
            "Absorption has to take fewer operations, not as many.",
            _absorb_with(ties=0),
        ),
        WrongAnswer(
            "the chunk not counted",
            "S is the cache with the chunk in it, not what was there before.",
            _absorb_with(result=lambda s, t: s - t),
        ),
        WrongAnswer(
            "fewer positions than the chunk has",
            "The cache holds at least the chunk itself: S is T or more.",
            _absorb_with(shortest=lambda t: 1),
        ),
        WrongAnswer(
            "a number where it never pays",
            "If each position costs the absorbed form more, its lead never comes: None.",
            _absorb_with(never=lambda t: t),
        ),
    ),
    variants=(_absorb_with(),),
)


# --- largest_chunk --------------------------------------------------------------------------------


def _largest_chunk(
    weights: int, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int,
    lengths: Sequence[int], read: int, left: int,
    seconds: float, peak_flops: float, bandwidth: float, dtype_bytes: float,
) -> int:  # fmt: skip
    pairs, positions = sum(lengths), sum(lengths) + read
    best = 0
    for chunk in range(1, left + 1):
        pairs += read + chunk
        positions += 1
        flops = 2 * weights * (len(lengths) + chunk) + 4 * num_layers * num_heads * head_dim * pairs
        cached = 2 * num_layers * num_kv_heads * head_dim * positions
        if flops / peak_flops > seconds or dtype_bytes * (weights + cached) / bandwidth > seconds:
            break
        best = chunk
    return best


@in_parts
def _chunk_with(
    tokens: Callable[[int, int], int] = lambda b, t: b + t,
    pairs: Callable[[int, int], float] = lambda p, t: t * p + t * (t + 1) // 2,
    others: bool = True,
    scores: bool = True,
    weight_reads: Callable[[int, int], int] = lambda b, t: 1,
    positions: Callable[[int, int, int], int] = lambda s, p, t: s + p + t,
    cached_heads: Callable[[int, int], int] = lambda h, g: g,
    time: Callable[[float, float], float] = max,
    limit: Callable[[int], int] = lambda left: left,
) -> Answer:
    def answer(
        weights: int, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int,
        lengths: Sequence[int], read: int, left: int,
        seconds: float, peak_flops: float, bandwidth: float, dtype_bytes: float,
    ) -> int:  # fmt: skip
        b, s = len(lengths), sum(lengths)
        heads = cached_heads(num_heads, num_kv_heads)

        def fits(t: int) -> bool:
            met = scores * (pairs(read, t) + s * others)
            flops = 2 * weights * tokens(b, t) + 4 * num_layers * num_heads * head_dim * met
            cached = 2 * num_layers * heads * head_dim * positions(s, read, t)
            nbytes = dtype_bytes * (weights * weight_reads(b, t) + cached)
            return time(flops / peak_flops, nbytes / bandwidth) <= seconds

        low, high = 0, limit(left) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    return answer


_H100 = (989e12, 3.35e12)
_EIGHT_B = (7_504_658_432, 32, 32, 8, 128)
_TOY = (1000, 2, 4, 2, 8)

_CHUNK = Exercise(
    title="How much of a prompt fits beside decoding?",
    oracle=_largest_chunk,
    cases=(
        _args("values: 8 billion weights, 32 sequences", *_EIGHT_B, [2000] * 32, 0, 8192,
              0.012, *_H100, 2),
        _args("values: the end of a long prompt", *_EIGHT_B, [500, 9000, 30000], 60000, 4096,
              0.03, *_H100, 2),
        _args("values: long sequences, little time", *_EIGHT_B, [8192] * 40, 1000, 8192,
              0.02, *_H100, 2),
        _args("values: small numbers", *_TOY, [5, 9], 7, 100, 0.06, 1e6, 1e6, 2),
        _args("values: small numbers, long cache", *_TOY, [50, 400], 300, 500, 0.5, 1e6, 1e6, 1),
        _args("values: a slow memory", *_TOY, [20, 30, 40], 10, 1000, 0.1, 1e8, 2e5, 2),
        _args("values: a slow memory, multi-head", 1000, 2, 4, 4, 8, [20, 30], 5, 1000,
              0.15, 1e8, 2e5, 2),
        _args("values: many tokens of decoding", *_TOY, [3] * 60, 0, 100, 0.2, 1e6, 1e7, 2),
        _args("corners: nobody decodes", *_TOY, [], 0, 1000, 0.3, 1e6, 1e6, 2),
        _args("corners: all that is left", *_TOY, [10], 20, 12, 1.0, 1e6, 1e6, 2),
        _args("corners: decoding alone takes too long", *_EIGHT_B, [32768] * 64, 0, 512,
              0.02, *_H100, 2),
        _args("corners: the weights alone take too long", *_TOY, [1], 0, 50, 0.009, 1e6, 2e5, 2),
        _args("corners: nothing is left", *_TOY, [10], 30, 0, 1.0, 1e6, 1e6, 2),
        _args("corners: nothing in the cache, one token fits", *_TOY, [], 0, 40, 0.003,
              1e6, 1e6, 2),
    ),
    wrong=(
        WrongAnswer(
            "arithmetic and transfer one after the other",
            "They overlap: the step takes as long as the longer of the two.",
            _chunk_with(time=lambda a, b: a + b),
        ),
        WrongAnswer(
            "arithmetic only",
            "The bytes have to be read in the same time. With a slow memory they decide.",
            _chunk_with(time=lambda a, b: a),
        ),
        WrongAnswer(
            "memory only",
            "The operations have to be done in the same time, and a chunk has many.",
            _chunk_with(time=lambda a, b: b),
        ),
        WrongAnswer(
            "attention's operations left out",
            "Scores and means are operations too, four for each pair and feature of a head.",
            _chunk_with(scores=False),
        ),
        WrongAnswer(
            "attention of decoding left out",
            "Each decoding token meets all the positions of its own sequence.",
            _chunk_with(others=False),
        ),
        WrongAnswer(
            "every token of the chunk meets the whole chunk",
            "Under the causal mask token t of the chunk meets the first t of it.",
            _chunk_with(pairs=lambda p, t: t * (p + t)),
        ),
        WrongAnswer(
            "the chunk's tokens do not see themselves",
            "A token attends to its own position too: t of the chunk, not t - 1.",
            _chunk_with(pairs=lambda p, t: t * p + t * (t - 1) // 2),
        ),
        WrongAnswer(
            "the chunk sees only itself",
            "What was read of the prompt before is in the cache, and the chunk attends to it.",
            _chunk_with(pairs=lambda p, t: t * (t + 1) // 2, positions=lambda s, p, t: s + t),
        ),
        WrongAnswer(
            "the tokens of decoding not multiplied",
            "Each sequence brings one token, which meets every weight like the chunk's.",
            _chunk_with(tokens=lambda b, t: t),
        ),
        WrongAnswer(
            "caches not read",
            "The step reads the keys and values of all sequences, besides the weights.",
            _chunk_with(positions=lambda s, p, t: 0),
        ),
        WrongAnswer(
            "weights read for each sequence",
            "All tokens of the step share one reading of the weights.",
            _chunk_with(weight_reads=lambda b, t: b + 1),
        ),
        WrongAnswer(
            "caches of all query heads",
            "The cache holds G heads of keys and values, not H.",
            _chunk_with(cached_heads=lambda h, g: h),
        ),
        WrongAnswer(
            "more than is left of the prompt",
            "The chunk cannot be longer than what is left of the prompt.",
            _chunk_with(limit=lambda left: 1_000_000),
        ),
    ),
    variants=(_chunk_with(),),
)  # fmt: skip


EXERCISES = {
    "prefix_batch": _PREFIX,
    "absorb_from": _ABSORB,
    "largest_chunk": _CHUNK,
}
