"""Chapter 16: answers to its exercises that the checkers do not know."""

import itertools
import math
from fractions import Fraction

from . import Right, Wrong


# block_flops
def heads_times_d_model(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    weights = 2 * d_model**2 + 2 * d_model * num_kv_heads * head_dim + 3 * d_model * d_ff
    return batch * length * (2 * weights + 4 * length * num_heads * head_dim)


def causal_pairs(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    weights = d_model * (2 * head_dim * (num_heads + num_kv_heads) + 3 * d_ff)
    pairs = length * (length + 1) // 2
    return 2 * batch * length * weights + 4 * batch * num_heads * head_dim * pairs


def pairs_across_the_batch(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    rows = batch * length
    weights = d_model * (2 * head_dim * (num_heads + num_kv_heads) + 3 * d_ff)
    return 2 * rows * weights + 4 * rows**2 * num_heads * head_dim


def forward_and_backward(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    return 3 * product_by_product(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff)


def without_attention(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    weights = d_model * (2 * head_dim * (num_heads + num_kv_heads) + 3 * d_ff)
    return 2 * batch * length * weights


def product_by_product(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    def product(n, a, b, times=1):
        return times * 2 * n * a * b

    rows, width, narrow = batch * length, num_heads * head_dim, num_kv_heads * head_dim
    return (
        product(rows, d_model, width)
        + product(rows, d_model, narrow, times=2)
        + product(rows, width, d_model)
        + product(length, head_dim, length, times=batch * num_heads)
        + product(length, length, head_dim, times=batch * num_heads)
        + product(rows, d_model, d_ff, times=2)
        + product(rows, d_ff, d_model)
    )


def by_groups(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    group = num_heads / num_kv_heads
    projections = (2 * group + 2) * num_kv_heads * head_dim * d_model
    token = 2 * (projections + 3 * d_model * d_ff) + 4 * num_heads * head_dim * length
    return sum(token for _ in range(batch)) * length


def by_whole_groups(batch, length, d_model, num_heads, num_kv_heads, head_dim, d_ff):
    width, narrow = num_heads * head_dim, num_kv_heads * head_dim
    token = 4 * (width + narrow) * d_model + 6 * d_model * d_ff + 4 * width * length
    return sum(token for _ in range(batch)) * length


# critical_batch
def harmonic_in_fractions(d_in, d_out, ridge, dtype_bytes):
    left = 2 / (Fraction(ridge) * dtype_bytes) - Fraction(1, d_in) - Fraction(1, d_out)
    return math.ceil(1 / left) if left > 0 else None


def by_bisection(d_in, d_out, ridge, dtype_bytes):
    def enough(n):
        moved = dtype_bytes * (n * d_in + d_in * d_out + n * d_out)
        return 2 * n * d_in * d_out >= Fraction(ridge) * moved

    if 2 * d_in * d_out <= Fraction(ridge) * dtype_bytes * (d_in + d_out):
        return None
    high = next(2**k for k in itertools.count() if enough(2**k))
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def rounded(d_in, d_out, ridge, dtype_bytes):
    left = 2 / (ridge * dtype_bytes) - 1 / d_in - 1 / d_out
    return round(1 / left) if left > 0 else None


def infinity_for_none(d_in, d_out, ridge, dtype_bytes):
    n = harmonic_in_fractions(d_in, d_out, ridge, dtype_bytes)
    return math.inf if n is None else n


def the_output_forgotten(d_in, d_out, ridge, dtype_bytes):
    left = Fraction(2) / (Fraction(ridge) * dtype_bytes) - Fraction(1, d_out)
    return math.ceil(1 / left) if left > 0 else None


def a_search_that_gives_up(d_in, d_out, ridge, dtype_bytes):
    for n in range(1, 513):
        moved = dtype_bytes * (n * d_in + d_in * d_out + n * d_out)
        if 2 * n * d_in * d_out >= ridge * moved:
            return n
    return None


def negative_where_never(d_in, d_out, ridge, dtype_bytes):
    return math.ceil(
        1 / (2 / (Fraction(ridge) * dtype_bytes) - Fraction(d_in + d_out, d_in * d_out))
    )


# decode_rate
def steps(weight_bytes, cache_bytes, batch, length, bandwidth):
    return bandwidth / (weight_bytes + batch * length * cache_bytes)


def one_position_more(weight_bytes, cache_bytes, batch, length, bandwidth):
    return batch * bandwidth / (weight_bytes + batch * (length + 1) * cache_bytes)


def whole_tokens(weight_bytes, cache_bytes, batch, length, bandwidth):
    return batch * bandwidth // (weight_bytes + batch * length * cache_bytes)


def of_all_positions(weight_bytes, cache_bytes, batch, length, bandwidth):
    return batch * length * bandwidth / (weight_bytes + batch * length * cache_bytes)


def one_over_the_time_of_a_token(weight_bytes, cache_bytes, batch, length, bandwidth):
    seconds = weight_bytes / bandwidth / batch + length * cache_bytes / bandwidth
    return 1 / seconds


def sum_over_the_sequences(weight_bytes, cache_bytes, batch, length, bandwidth):
    read = weight_bytes + sum([length * cache_bytes] * batch)
    return sum(bandwidth / read for _ in range(batch))


WRONG = [
    Wrong("cost.block_flops", "d_model for H head_dim", heads_times_d_model),
    Wrong("cost.block_flops", "causal pairs alone", causal_pairs),
    Wrong("cost.block_flops", "pairs across the batch", pairs_across_the_batch),
    Wrong("cost.block_flops", "with the backward pass", forward_and_backward),
    Wrong("cost.block_flops", "a float", by_groups),
    Wrong("cost.block_flops", "no attention", without_attention),
    Wrong("cost.critical_batch", "rounded to the nearest", rounded),
    Wrong("cost.critical_batch", "infinity for None", infinity_for_none),
    Wrong("cost.critical_batch", "the output moves nothing", the_output_forgotten),
    Wrong("cost.critical_batch", "512 rows at most", a_search_that_gives_up),
    Wrong("cost.critical_batch", "negative where never", negative_where_never),
    Wrong("cost.decode_rate", "steps", steps, named="tokens of one sequence"),
    Wrong("cost.decode_rate", "the new position read too", one_position_more),
    Wrong("cost.decode_rate", "whole tokens", whole_tokens),
    Wrong("cost.decode_rate", "all positions are tokens", of_all_positions),
]

RIGHT = [
    Right("cost.block_flops", "product by product", product_by_product),
    Right("cost.block_flops", "by groups", by_whole_groups),
    Right("cost.critical_batch", "fractions", harmonic_in_fractions),
    Right("cost.critical_batch", "a bisection", by_bisection),
    Right("cost.decode_rate", "one over the time of a token", one_over_the_time_of_a_token),
    Right("cost.decode_rate", "a sum over the sequences", sum_over_the_sequences),
]
