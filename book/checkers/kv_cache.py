"""The exercises of chapter 13: shared heads, masks of chunks, a cached step, pooling, and costs.

The oracles are torch's own operators and sums written out, never the book's library. Every section
has the same order: the oracle, the cases, the wrong answers, the exercise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, Rule, WrongAnswer, in_parts

EXACT = 1e-11


def _draw(*shape: int, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- grouped_attention ----------------------------------------------------------------------------


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def _by_copies(spread: Callable[[Tensor, int], Tensor], scale: float | None = None) -> Answer:
    """Attention with keys and values spread over the query heads."""

    def answer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        h = q.shape[1]
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        weights = (q @ spread(k, h).mT * factor).softmax(-1)
        return weights @ spread(v, h)

    return answer


def _neighbours(x: Tensor, h: int) -> Tensor:
    return x.repeat_interleave(h // x.shape[1], 1)


def _stacked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = q.reshape(len(q), k.shape[1], -1, q.shape[-1])
    return F.scaled_dot_product_attention(rows, k, v).reshape(q.shape)


def _stacked_across(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries interleaved by position when stacked, and cut into heads when taken apart."""
    b, h, t, d = q.shape
    g = k.shape[1]
    rows = q.reshape(b, g, h // g, t, d).transpose(2, 3).reshape(b, g, -1, d)
    return F.scaled_dot_product_attention(rows, k, v).reshape(q.shape)


def _mean_of_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    g = k.shape[1]
    means = q.unflatten(1, (g, -1)).mean(2)  # type: ignore[no-untyped-call]
    out = F.scaled_dot_product_attention(means, k, v)
    return out.repeat_interleave(q.shape[1] // g, 1)


def _over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = _neighbours(k, q.shape[1]), _neighbours(v, q.shape[1])
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-2)
    return weights @ v


def _grouped_case(name: str, h: int, g: int, t: int = 3, s: int = 5, d: int = 4) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((2, h, t, d), (2, g, s, d), (2, g, s, d))
        return tuple(_draw(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes))

    return Case(name, inputs, EXACT, grad=True)


_GROUPED = Exercise(
    title="Heads that share",
    oracle=_grouped,
    rules=(Rule("without `enable_gqa`", ("scaled_dot_product_attention(enable_gqa=True)",)),),
    cases=(
        _grouped_case("six heads in two groups", 6, 2),
        _grouped_case("six heads in three groups", 6, 3),
        _grouped_case("one group", 4, 1),
        _grouped_case("every head its own, as many queries as keys", 4, 4, t=5),
        _grouped_case("one query, many keys", 8, 2, t=1, s=9),
        _grouped_case("heads of three features, more queries than keys", 4, 2, t=6, s=2, d=3),
    ),
    wrong=(
        WrongAnswer(
            "repeat for repeat_interleave",
            "That is key-value head h mod G. The heads of a group are neighbours: head h uses "
            "key-value head h // (H / G).",
            _by_copies(lambda x, h: x.repeat(1, h // x.shape[1], 1, 1)),
        ),
        WrongAnswer(
            "the first key-value head for all",
            "All G of them are used, each by its own group of query heads.",
            _by_copies(lambda x, h: x[:, :1].expand(-1, h, -1, -1)),
        ),
        WrongAnswer(
            "key-value heads averaged",
            "Heads are shared, not averaged. The mean belongs to the conversion of weights.",
            _by_copies(lambda x, h: x.mean(1, keepdim=True).expand(-1, h, -1, -1)),
        ),
        WrongAnswer(
            "groups counted from the end",
            "Group 0 is that of the first query heads.",
            _by_copies(lambda x, h: _neighbours(x.flip(1), h)),
        ),
        WrongAnswer(
            "scale forgotten",
            "The scores are divided by the root of head_dim, with groups as without.",
            _by_copies(_neighbours, scale=1.0),
        ),
        WrongAnswer(
            "queries stacked in another order than taken apart",
            "When the queries of a group become rows of one matrix, a head's queries must stay "
            "together, or the result must be taken apart the same way.",
            _stacked_across,
        ),
        WrongAnswer(
            "queries of a group averaged",
            "The query heads of a group share keys and values. Each still asks its own question.",
            _mean_of_queries,
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of one query over all keys add up to one: the last axis.",
            _over_queries,
        ),
    ),
    variants=(_by_copies(_neighbours), _stacked),
)


# --- chunk_mask -----------------------------------------------------------------------------------


def _mask(tokens: Tensor, query_len: int) -> Tensor:
    b, s = tokens.shape
    mask = torch.zeros(b, 1, query_len, s, dtype=torch.bool)
    for n in range(b):
        for i in range(query_len):
            for j in range(s - query_len + i + 1):
                mask[n, 0, i, j] = tokens[n, j]
    return mask


def _causal(t: int, s: int, offset: int) -> Tensor:
    return torch.ones(t, s, dtype=torch.bool).tril(offset)


@in_parts
def _mask_with(
    causal: Callable[[int, int], Tensor] = lambda t, s: _causal(t, s, s - t),
    keys: Callable[[Tensor, int], Tensor] = lambda tokens, t: tokens[:, None, None, :],
) -> Answer:
    def answer(tokens: Tensor, query_len: int) -> Tensor:
        b, s = tokens.shape
        mask = causal(query_len, s) & keys(tokens, query_len)
        return mask.expand(b, 1, query_len, s).clone()

    return answer


def _keys_seen_by_new_only(tokens: Tensor, t: int) -> Tensor:
    old = torch.arange(tokens.shape[1]) < tokens.shape[1] - t
    return (tokens | old)[:, None, None, :]


def _mask_case(name: str, rows: list[str], t: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return torch.tensor([[c == "x" for c in row] for row in rows]), t

    return Case(name, inputs, EXACT)


_CHUNK_MASK = Exercise(
    title="The mask of a chunk",
    oracle=_mask,
    cases=(
        _mask_case("everything is new", ["..xxx", "xxxxx"], 5),
        _mask_case("three new, two cached", ["..xxx", "xxxxx"], 3),
        _mask_case("one new", [".xxxx", "xxxxx", "...xx"], 1),
        _mask_case("padding on the right", ["xxx..", "xxxxx"], 2),
        _mask_case("padding in the middle", ["xx..xx"], 2),
        _mask_case("nothing but padding", [".....", "xxxxx"], 2),
        _mask_case("one position", ["x"], 1),
        _mask_case("all but one are new", ["x.xxx", ".xxxx"], 4),
    ),
    wrong=(
        WrongAnswer(
            "causal at the top left",
            "That is for a chunk at the beginning. Behind a cache query i stands at position "
            "S - T + i.",
            _mask_with(causal=lambda t, s: _causal(t, s, 0)),
        ),
        WrongAnswer(
            "a token does not see itself",
            "The diagonal is allowed: a query may attend to the key of its own position.",
            _mask_with(causal=lambda t, s: _causal(t, s, s - t - 1)),
        ),
        WrongAnswer(
            "no causality",
            "Within the chunk the earlier queries must not see the later keys.",
            _mask_with(causal=lambda t, s: torch.ones(t, s, dtype=torch.bool)),
        ),
        WrongAnswer(
            "no padding",
            "Padding has keys too, and nothing may attend to them.",
            _mask_with(keys=lambda tokens, t: torch.ones_like(tokens)[:, None, None, :]),
        ),
        WrongAnswer(
            "padding of the cached keys forgotten",
            "Padding that is in the cache is still padding. It must stay masked in every step.",
            _mask_with(keys=_keys_seen_by_new_only),
        ),
        WrongAnswer(
            "padding applied to the queries",
            "What is forbidden is padding as a key, a row. Here rows of queries are blanked.",
            _mask_with(
                keys=lambda tokens, t: tokens[:, None, tokens.shape[1] - t :, None],
            ),
        ),
        WrongAnswer(
            "True for blocked",
            "Here, as in F.scaled_dot_product_attention, True means that a query may attend.",
            lambda tokens, query_len: ~_mask(tokens, query_len),
        ),
        WrongAnswer(
            "see the next token",
            "One diagonal too many: query i may see up to position S - T + i, not further.",
            _mask_with(causal=lambda t, s: _causal(t, s, s - t + 1)),
        ),
    ),
    variants=(_mask_with(),),
)


# --- cached_step ----------------------------------------------------------------------------------

Rotate = Callable[[Tensor, Tensor], Tensor]


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Pairs (0, 1), (2, 3), ... turned by position / 3**pair."""
    angles = positions[:, None] / 3.0 ** torch.arange(x.shape[-1] // 2, dtype=x.dtype)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def _step(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    a, t = keys.shape[2], q.shape[2]
    here = torch.arange(a, a + t)
    keys, values = torch.cat([keys, rotate(k, here)], 2), torch.cat([values, v], 2)
    out = F.scaled_dot_product_attention(rotate(q, here), keys, values, _causal(t, a + t, a))
    return out, keys, values


def _step_one_by_one(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    """The chunk token by token, without any mask."""
    outs = []
    for i in range(q.shape[2]):
        here = torch.tensor([keys.shape[2]])
        one = slice(i, i + 1)
        keys = torch.cat([keys, rotate(k[:, :, one], here)], 2)
        values = torch.cat([values, v[:, :, one]], 2)
        scores = rotate(q[:, :, one], here) @ keys.mT / math.sqrt(q.shape[-1])
        outs.append(scores.softmax(-1) @ values)
    return torch.cat(outs, 2), keys, values


@in_parts
def _step_with(
    *,
    first: Callable[[int, int], int] = lambda a, t: a,
    mask: Callable[[int, int], Tensor] = lambda a, t: _causal(t, a + t, a),
    turn_q: bool = True,
    turn_v: bool = False,
    turn_old: bool = False,
    store: str = "rotated",
    give: str = "all",
) -> Answer:
    """A cached step of which one part can be replaced."""

    def answer(
        q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rotate: Rotate
    ) -> tuple[Tensor, Tensor, Tensor]:
        a, t = keys.shape[2], q.shape[2]
        here = torch.arange(t) + first(a, t)
        new, v = rotate(k, here), rotate(v, here) if turn_v else v
        old = rotate(keys, torch.arange(a)) if turn_old and a else keys
        used, values_ = torch.cat([old, new], 2), torch.cat([values, v], 2)
        query = rotate(q, here) if turn_q else q
        out = F.scaled_dot_product_attention(query, used, values_, mask(a, t))
        kept = torch.cat([keys, k], 2) if store == "raw" else used
        return (out, kept, values_) if give == "all" else (out, new, v)

    return answer


def _step_case(name: str, a: int, t: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        new = [_draw(2, 3, t, 4, seed=i).requires_grad_() for i in range(3)]
        old = [_draw(2, 3, a, 4, seed=i) for i in (3, 4)]
        return *new, *old, _rotate

    return Case(name, inputs, EXACT, grad=True)


_CACHED_STEP = Exercise(
    title="One cached step with RoPE",
    oracle=_step,
    cases=(
        _step_case("an empty cache", 0, 4),
        _step_case("one new token", 5, 1),
        _step_case("a chunk of three", 4, 3),
        _step_case("a chunk longer than the cache", 2, 6),
        _step_case("the first token", 0, 1),
        _step_case("two and two", 2, 2),
    ),
    wrong=(
        WrongAnswer(
            "the chunk's positions start at 0",
            "The first new token stands behind all that is cached: its position is the number "
            "of cached keys.",
            _step_with(first=lambda a, t: 0),
        ),
        WrongAnswer(
            "positions off by one",
            "With a positions cached, 0 to a - 1 are taken. The first new one is a.",
            _step_with(first=lambda a, t: a + 1),
        ),
        WrongAnswer(
            "causal at the top left",
            "Query i of the chunk stands at position a + i and sees that many keys, not i.",
            _step_with(mask=lambda a, t: _causal(t, a + t, 0)),
        ),
        WrongAnswer(
            "no mask",
            "The queries of a chunk must not see its later keys. Only for T = 1 is no mask needed.",
            _step_with(mask=lambda a, t: torch.ones(t, a + t, dtype=torch.bool)),
        ),
        WrongAnswer(
            "keys cached before the rotation",
            "The keys that come back next time are used as they are, so they have to be stored "
            "rotated.",
            _step_with(store="raw"),
        ),
        WrongAnswer(
            "cached keys rotated again",
            "They were rotated when they were stored. A key is rotated once in its life.",
            _step_with(turn_old=True),
        ),
        WrongAnswer(
            "queries not rotated",
            "The score depends on the distance only if both the query and the key are rotated.",
            _step_with(turn_q=False),
        ),
        WrongAnswer(
            "values rotated",
            "Positions belong into the scores. Values are summed up as they are.",
            _step_with(turn_v=True),
        ),
        WrongAnswer(
            "only the new keys returned",
            "The next step needs all keys and values so far, the old ones followed by the new.",
            _step_with(give="new"),
        ),
    ),
    variants=(_step_one_by_one, _step_with()),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)


# --- pool_heads -----------------------------------------------------------------------------------


def _pool(weight: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    group = num_heads // num_kv_heads
    d = len(weight) // num_heads
    rows = []
    for g in range(num_kv_heads):
        for j in range(d):
            rows.append(sum(weight[(g * group + h) * d + j] for h in range(group)) / group)
    return torch.stack([torch.as_tensor(row) for row in rows])


def _pool_with(
    cut: Callable[[Tensor, int, int], Tensor],
    pool: Callable[[Tensor], Tensor] = lambda heads: heads.mean(1),
) -> Answer:
    """`cut` gives (G, heads of the group, head_dim, ...), `pool` removes the second axis."""

    def answer(weight: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
        pooled = pool(cut(weight, num_heads, num_kv_heads))
        return pooled.reshape(-1, *weight.shape[1:])

    return answer


def _cut(weight: Tensor, h: int, g: int) -> Tensor:
    return weight.reshape(g, h // g, len(weight) // h, *weight.shape[1:])


def _pool_case(name: str, h: int, g: int, d: int, *rest: int) -> Case:
    return Case(name, lambda: (_draw(h * d, *rest).requires_grad_(), h, g), EXACT, grad=True)


_POOL = Exercise(
    title="From many heads to few",
    oracle=_pool,
    cases=(
        _pool_case("six heads to two", 6, 2, 4, 5),
        _pool_case("six heads to three", 6, 3, 4, 5),
        _pool_case("to one", 4, 1, 3, 7),
        _pool_case("as many as before", 4, 4, 2, 3),
        _pool_case("a bias", 6, 2, 4),
        _pool_case("heads of one feature", 8, 2, 1, 3),
    ),
    wrong=(
        WrongAnswer(
            "the first head of each group",
            "One head is not the closest to all of them. The least squares are at the mean.",
            _pool_with(_cut, lambda heads: heads[:, 0]),
        ),
        WrongAnswer(
            "the sum",
            "Divide by the heads in a group: the sum is r times too large, and so are the scores.",
            _pool_with(_cut, lambda heads: heads.sum(1)),
        ),
        WrongAnswer(
            "divided by all heads",
            "The mean of a group divides by r = H / G, the heads in it, and not by H.",
            lambda weight, num_heads, num_kv_heads: (
                _pool_with(_cut, lambda heads: heads.sum(1))(weight, num_heads, num_kv_heads)
                / num_heads
            ),
        ),
        WrongAnswer(
            "every G-th head",
            "A group is made of neighbours, h // r, not of the heads with the same h mod G.",
            _pool_with(
                lambda w, h, g: w.reshape(h // g, g, len(w) // h, *w.shape[1:]).transpose(0, 1)
            ),
        ),
        WrongAnswer(
            "heads in the wrong axis",
            "The features of one head are neighbours in the rows of the weight: (H, head_dim), "
            "not (head_dim, H).",
            _pool_with(
                lambda w, h, g: (
                    w.reshape(len(w) // h, g, h // g, *w.shape[1:]).movedim(0, 2).contiguous()
                )
            ),
        ),
        WrongAnswer(
            "neighbouring rows averaged",
            "Average over heads and keep their features apart: row j of one head with row j of "
            "the next.",
            _pool_with(
                lambda w, h, g: w.reshape(-1, h // g, *w.shape[1:]),
            ),
        ),
        WrongAnswer(
            "the median",
            "That minimises absolute differences, entry by entry. Squares have their minimum at "
            "the mean.",
            _pool_with(_cut, lambda heads: heads.median(1).values),
        ),
    ),
    variants=(_pool_with(_cut),),
)


# --- max_batch ------------------------------------------------------------------------------------


def _max_batch(
    memory: float,
    parameters: float,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    length: int,
    dtype_bytes: float,
) -> int:
    free = memory - parameters * dtype_bytes
    one = 2 * num_layers * num_kv_heads * head_dim * dtype_bytes * length
    return max(0, math.floor(free / one))


@in_parts
def _batch_with(
    free: Callable[..., float] = lambda memory, parameters, b: memory - parameters * b,
    per_token: Callable[..., float] = lambda layers, g, d, b: 2 * layers * g * d * b,
    count: Callable[[float], float] = lambda sequences: max(0, math.floor(sequences)),
    long: Callable[[int], int] = lambda length: length,
) -> Answer:
    def answer(
        memory: float,
        parameters: float,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        length: int,
        dtype_bytes: float,
    ) -> float:
        bytes_each = per_token(num_layers, num_kv_heads, head_dim, dtype_bytes) * long(length)
        return count(free(memory, parameters, dtype_bytes) / bytes_each)

    return answer


def _batch_case(name: str, *args: float) -> Case:
    return Case(name, lambda: args)


_MAX_BATCH = Exercise(
    title="How many sequences fit?",
    oracle=_max_batch,
    cases=(
        _batch_case("LLaMA-2-7B on 80 GB", 80_000_000_000, 6_738_415_616, 32, 32, 128, 4096, 2),
        _batch_case("Llama-3-8B on 80 GB", 80_000_000_000, 8_030_261_248, 32, 8, 128, 8192, 2),
        _batch_case("Llama-2-70B on 640 GB", 640_000_000_000, 68_976_648_192, 80, 8, 128, 4096, 2),
        _batch_case("the weights do not fit", 80_000_000_000, 68_976_648_192, 80, 8, 128, 4096, 2),
        _batch_case("one byte for each number", 24_000_000_000, 8_030_261_248, 32, 8, 128, 8192, 1),
        _batch_case(
            "room for less than one", 16_000_000_000, 6_738_415_616, 32, 32, 128, 131072, 2
        ),
        _batch_case("a small one, in 32 bit", 1_000_000, 100_000, 3, 2, 16, 50, 4),
    ),
    wrong=(
        WrongAnswer(
            "keys or values, not both",
            "Each position leaves a key and a value: the 2 in front.",
            _batch_with(per_token=lambda layers, g, d, b: layers * g * d * b),
        ),
        WrongAnswer(
            "one layer only",
            "Every layer has keys and values of its own, so that the layers multiply.",
            _batch_with(per_token=lambda layers, g, d, b: 2 * g * d * b),
        ),
        WrongAnswer(
            "weights forgotten",
            "The weights lie in the same memory. Only what they leave is there for caches.",
            _batch_with(free=lambda memory, parameters, b: memory),
        ),
        WrongAnswer(
            "weights counted as one byte each",
            "Numbers are given, bytes are needed: the parameters take dtype_bytes each.",
            _batch_with(free=lambda memory, parameters, b: memory - parameters),
        ),
        WrongAnswer(
            "rounded up",
            "Half a sequence does not fit. Round down.",
            _batch_with(count=lambda n: max(0, math.ceil(n))),
        ),
        WrongAnswer(
            "tokens instead of sequences",
            "This is how many tokens fit. Divide by the length of a sequence.",
            _batch_with(long=lambda length: 1),
        ),
        WrongAnswer(
            "negative room",
            "If not even the weights fit, the answer is zero and not a negative number.",
            _batch_with(count=math.floor),
        ),
        WrongAnswer(
            "numbers instead of bytes in the cache",
            "The cache is counted in numbers here. Each of them takes dtype_bytes bytes.",
            _batch_with(per_token=lambda layers, g, d, b: 2 * layers * g * d),
        ),
    ),
    variants=(
        _batch_with(
            count=lambda n: max(0, int(n)),
            per_token=lambda layers, g, d, b: sum(2 * g * d * b for _ in range(layers)),
        ),
    ),
)


# --- intensity ------------------------------------------------------------------------------------


def _intensity(
    num_heads: int, num_kv_heads: int, query_len: int, key_len: int, dtype_bytes: float
) -> float:
    flops = 4 * num_heads * query_len * key_len
    numbers = 2 * num_kv_heads * key_len + 2 * num_heads * query_len
    return flops / (numbers * dtype_bytes)


@in_parts
def _intensity_with(
    flops: Callable[..., float] = lambda h, t, s: 4 * h * t * s,
    numbers: Callable[..., float] = lambda h, g, t, s: 2 * g * s + 2 * h * t,
    use_bytes: bool = True,
) -> Answer:
    def answer(
        num_heads: int, num_kv_heads: int, query_len: int, key_len: int, dtype_bytes: float
    ) -> float:
        moved = numbers(num_heads, num_kv_heads, query_len, key_len)
        return flops(num_heads, query_len, key_len) / (moved * (dtype_bytes if use_bytes else 1))

    return answer


def _by_harmonic_mean(
    num_heads: int, num_kv_heads: int, query_len: int, key_len: int, dtype_bytes: float
) -> float:
    rows = num_heads * query_len / num_kv_heads
    return 2 / dtype_bytes * rows * key_len / (rows + key_len)


def _limit(
    num_heads: int, num_kv_heads: int, query_len: int, key_len: int, dtype_bytes: float
) -> float:
    return 2 * num_heads * query_len / num_kv_heads / dtype_bytes


_INTENSITY = Exercise(
    title="The intensity, derived",
    oracle=_intensity,
    cases=tuple(
        Case(name, lambda args=args: args)  # type: ignore[misc]
        for name, args in {
            "multi-head, one query": (8, 8, 1, 4096, 2),
            "64 heads in 8 groups": (64, 8, 1, 4096, 2),
            "multi-query, 128 heads": (128, 1, 1, 4096, 2),
            "several new tokens": (32, 8, 5, 100, 2),
            "prefill": (32, 8, 1024, 1024, 2),
            "32 bit": (64, 8, 1, 512, 4),
            "few keys": (16, 2, 1, 3, 2),
        }.items()
    ),
    wrong=(
        WrongAnswer(
            "only the limit of many keys",
            "Queries and outputs are moved too. They vanish only against very many keys.",
            _limit,
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _intensity_with(flops=lambda h, t, s: 2 * h * t * s),
        ),
        WrongAnswer(
            "keys and values of every query head",
            "G heads of keys and values are read, not H: that is what sharing is for.",
            _intensity_with(numbers=lambda h, g, t, s: 2 * h * s + 2 * h * t),
        ),
        WrongAnswer(
            "queries and outputs of G heads",
            "Queries and outputs have H heads. Only keys and values are shared.",
            _intensity_with(numbers=lambda h, g, t, s: 2 * g * s + 2 * g * t),
        ),
        WrongAnswer(
            "scores written to memory",
            "A fused kernel keeps the scores to itself; nothing of size T x S is moved.",
            _intensity_with(numbers=lambda h, g, t, s: 2 * g * s + 2 * h * t + 2 * h * t * s),
        ),
        WrongAnswer(
            "numbers instead of bytes",
            "The intensity is per byte. Each number that is moved takes dtype_bytes.",
            _intensity_with(use_bytes=False),
        ),
        WrongAnswer(
            "outputs forgotten",
            "The outputs are written, as many numbers as there are queries.",
            _intensity_with(numbers=lambda h, g, t, s: 2 * g * s + h * t),
        ),
        WrongAnswer(
            "operations of G heads",
            "All H heads compute. Sharing keys saves no operation.",
            lambda num_heads, num_kv_heads, query_len, key_len, dtype_bytes: (
                _intensity(num_heads, num_kv_heads, query_len, key_len, dtype_bytes)
                * num_kv_heads
                / num_heads
            ),
        ),
    ),
    variants=(_by_harmonic_mean,),
)


EXERCISES = {
    "grouped_attention": _GROUPED,
    "chunk_mask": _CHUNK_MASK,
    "cached_step": _CACHED_STEP,
    "pool_heads": _POOL,
    "max_batch": _MAX_BATCH,
    "intensity": _INTENSITY,
}
