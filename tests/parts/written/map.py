"""Chapter 02: answers to its exercises that the checkers do not know."""

import itertools
from fractions import Fraction

import torch
from torch import nn

from . import Right, Wrong

# map.shapes


def _shapes(S, T, d, H, ff, V, **others):
    h = d // H
    shapes = {
        "source": (S, d),
        "queries": (S, h),
        "encoder": (S, S),
        "decoder": (T, T),
        "cross": (T, S),
        "values": (S, h),
        "result": (T, h),
        "hidden": (T, ff),
        "logits": (T, V),
    }
    return list((shapes | others).values())


def keys_ask(S, T, d, H, ff, V):
    return _shapes(S, T, d, H, ff, V, cross=(S, T))


def hidden_of_the_encoder(S, T, d, H, ff, V):
    return _shapes(S, T, d, H, ff, V, hidden=(S, ff))


def logits_of_the_last_token(S, T, d, H, ff, V):
    return _shapes(S, T, d, H, ff, V, logits=(V,))


def results_joined(S, T, d, H, ff, V):
    return _shapes(S, T, d, H, ff, V, result=(T, d))


def values_of_the_target(S, T, d, H, ff, V):
    return _shapes(S, T, d, H, ff, V, values=(T, d // H))


def width_by_division(S, T, d, H, ff, V):
    h = d / H
    return _shapes(S, T, d, H, ff, V, queries=(S, h), values=(S, h), result=(T, h))


def width_of_64(S, T, d, H, ff, V):
    return _shapes(S, T, d, H, ff, V, queries=(S, 64), values=(S, 64), result=(T, 64))


def transposed_everywhere(S, T, d, H, ff, V):
    return [s[::-1] for s in _shapes(S, T, d, H, ff, V)]


def with_a_batch_of_one(S, T, d, H, ff, V):
    return [(1, *s) for s in _shapes(S, T, d, H, ff, V)]


def shapes_of_tensors(S, T, d, H, ff, V):
    head = d // H
    source, target = torch.empty(S, d), torch.empty(T, d)
    W = torch.empty(d, head)
    q, k, v = source @ W, source @ W, source @ W
    asks = target @ W
    tensors = [source, q, q @ k.T, asks @ asks.T, asks @ k.T, v, asks @ k.T @ v,
               target @ torch.empty(d, ff), target @ torch.empty(d, V)]  # fmt: skip
    return [t.shape for t in tensors]


def by_names(src_len, tgt_len, d_model, num_heads, d_ff, vocab_size):
    d_head, rest = divmod(d_model, num_heads)
    assert not rest
    rows = [src_len, src_len, src_len, tgt_len, tgt_len, src_len, tgt_len, tgt_len, tgt_len]
    columns = [d_model, d_head, src_len, tgt_len, src_len, d_head, d_head, d_ff, vocab_size]
    return list(zip(rows, columns, strict=True))


# map.decoder_parameters


def torch_counts(d_model, num_heads, d_ff, bias):
    layer = nn.TransformerDecoderLayer(d_model, num_heads, d_ff, bias=bias)
    return sum(p.numel() for p in layer.parameters())


def torch_counts_without_memory(d_model, num_heads, d_ff, bias):
    with torch.device("meta"):
        layer = nn.TransformerDecoderLayer(d_model, num_heads, d_ff, bias=bias)
    return sum(p.numel() for p in layer.parameters())


def heads_of_full_width(d, H, ff, bias):
    n = 2 * 4 * H * d * d + 2 * d * ff + 3 * d
    return n + (2 * 4 * d + ff + d + 3 * d if bias else 0)


def norms_keep_their_biases(d, H, ff, bias):
    n = 2 * 4 * d * d + 2 * d * ff + 2 * 3 * d
    return n + (2 * 4 * d + ff + d if bias else 0)


def norms_are_all_bias(d, H, ff, bias):
    n = 2 * 4 * d * d + 2 * d * ff
    return n + (2 * 4 * d + ff + d + 6 * d if bias else 0)


def four_times_as_wide(d, H, ff, bias):
    return 16 * d * d + 3 * d + (2 * 4 * d + 4 * d + d + 3 * d if bias else 0)


def no_output_projection(d, H, ff, bias):
    n = 2 * 3 * d * d + 2 * d * ff + 3 * d
    return n + (2 * 3 * d + ff + d + 3 * d if bias else 0)


def hidden_bias_twice(d, H, ff, bias):
    n = 2 * 4 * d * d + 2 * d * ff + 3 * d
    return n + (2 * 4 * d + 2 * ff + 3 * d if bias else 0)


def a_float(d, H, ff, bias):
    return 2 * d * (4 * d + ff + 1.5) + (8 * d + ff + 4 * d if bias else 0)


def matrix_by_matrix(d_model, num_heads, d_ff, bias):
    linears = [(d_model, d_model)] * 8 + [(d_model, d_ff), (d_ff, d_model)]
    count = sum(n * m + m * bias for n, m in linears)
    return count + sum(d_model * (1 + bias) for _ in range(3))


def head_by_head(d_model, num_heads, d_ff, bias):
    d_head = d_model // num_heads
    block = num_heads * 4 * d_model * d_head
    if bias:
        block += 4 * d_model
    norm = d_model + (d_model if bias else 0)
    feed = d_ff * (d_model + int(bias)) + d_model * (d_ff + int(bias))
    return 2 * block + 3 * norm + feed


# map.total


def _total(d, H, ff, N, V, tied, block=None, norms=5, copies=3, feed=None):
    block = 4 * d * d if block is None else block
    feed = 2 * d * ff + ff + d if feed is None else feed
    return N * (3 * block + 2 * feed + norms * 2 * d) + V * d * (1 if tied else copies)


def attention_with_biases(d, H, ff, N, V, tied):
    return _total(d, H, ff, N, V, tied, block=4 * d * d + 4 * d)


def a_norm_after_each_stack(d, H, ff, N, V, tied):
    return _total(d, H, ff, N, V, tied) + 4 * d


def two_matrices_untied(d, H, ff, N, V, tied):
    return _total(d, H, ff, N, V, tied, copies=2)


def layers_of_both_stacks_together(d, H, ff, N, V, tied):
    return _total(d, H, ff, N, V, tied) // 2 + V * d * (1 if tied else 3) // 2


def base_whatever_is_asked(d, H, ff, N, V, tied):
    return 63_045_632


def wide_as_in_the_paper(d, H, ff, N, V, tied):
    return _total(d, H, 4 * d, N, V, tied)


def heads_of_width_64(d, H, ff, N, V, tied):
    return _total(d, H, ff, N, V, tied, block=4 * d * H * 64)


def in_millions(d, H, ff, N, V, tied):
    return round(_total(d, H, ff, N, V, tied) / 1e6, 2)


def output_with_a_bias(d, H, ff, N, V, tied):
    return _total(d, H, ff, N, V, tied) + V


def layer_by_layer(d_model, num_heads, d_ff, num_layers, vocab_size, tied):
    count = 0
    attention, norm = 4 * d_model**2, 2 * d_model
    feed = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    for _ in range(num_layers):
        count += attention + norm + feed + norm
        count += attention + norm + attention + norm + feed + norm
    tables = {"source", "target", "output"} if not tied else {"all"}
    return count + len(tables) * vocab_size * d_model


def module_by_module(d_model, num_heads, d_ff, num_layers, vocab_size, tied):
    with torch.device("meta"):
        encoder = nn.TransformerEncoderLayer(d_model, num_heads, d_ff)
        decoder = nn.TransformerDecoderLayer(d_model, num_heads, d_ff)
    count = sum(
        p.numel() * num_layers
        for name, p in itertools.chain(encoder.named_parameters(), decoder.named_parameters())
        if not ("attn" in name and name.endswith("bias"))
    )
    return count + vocab_size * d_model * (3 - 2 * tied)


# map.crossover


def searched(d_model, d_ff):
    T = 1
    while 2 * (2 * T * T * d_model) < 4 * 2 * T * d_model**2 + 2 * 2 * T * d_model * d_ff:
        T += 1
    return T


def of_fractions(d_model, d_ff):
    per_token = Fraction(8 * d_model**2 + 4 * d_model * d_ff)
    return int(per_token / (4 * d_model))


# map.order

REAL = [
    "target embedding", "positions", "masked self-attention", "add & norm 1", "cross-attention",
    "add & norm 2", "feed-forward", "add & norm 3", "linear", "softmax",
]  # fmt: skip


def removed_on_the_way(described):
    for name in described:
        if name not in REAL:
            described.remove(name)
    return sorted(set(described), key=REAL.index)


def sorted_where_it_is(described):
    described[:] = [name for name in REAL if name in described]
    return described


def norm_first(described):
    order = ["target embedding", "positions", "add & norm 1", "masked self-attention",
             "add & norm 2", "cross-attention", "add & norm 3", "feed-forward", "linear",
             "softmax"]  # fmt: skip
    return [name for name in order if name in described]


def parts_of_names(described):
    return [name for name in REAL if any(name in d for d in described)]


def neighbours_dropped(described):
    kept = sorted((d for d in described if d in REAL), key=REAL.index)
    return [name for i, name in enumerate(kept[:-1]) if kept[i + 1] != name]


def by_a_dictionary(described):
    place = {name: k for k, name in enumerate(REAL)}
    return sorted({d: None for d in described if d in place}, key=place.__getitem__)


def step_by_step(described):
    found = []
    for part in REAL:
        for name in described:
            if name == part and part not in found:
                found += [part]
    return found


WRONG = [
    Wrong(
        "map.shapes",
        "cross-attention transposed",
        keys_ask,
        named="cross-attention the wrong way round",
    ),
    Wrong("map.shapes", "hidden rows of the source", hidden_of_the_encoder),
    Wrong("map.shapes", "logits of one token", logits_of_the_last_token),
    Wrong("map.shapes", "the heads joined", results_joined),
    Wrong("map.shapes", "values of the target", values_of_the_target),
    Wrong("map.shapes", "a float for the width of a head", width_by_division),
    Wrong("map.shapes", "heads of 64", width_of_64),
    Wrong("map.shapes", "tokens in columns", transposed_everywhere),
    Wrong("map.shapes", "a batch of one", with_a_batch_of_one),
    Wrong("map.decoder_parameters", "torch's own layer", torch_counts, says="says by arithmetic"),
    Wrong(
        "map.decoder_parameters",
        "torch's own layer on meta",
        torch_counts_without_memory,
        says="says by arithmetic",
    ),
    Wrong("map.decoder_parameters", "every head as wide as the model", heads_of_full_width),
    Wrong(
        "map.decoder_parameters",
        "norms with biases always",
        norms_keep_their_biases,
        named="norms keep their bias",
    ),
    Wrong("map.decoder_parameters", "no norms without biases", norms_are_all_bias),
    Wrong("map.decoder_parameters", "d_ff is 4 d_model", four_times_as_wide),
    Wrong("map.decoder_parameters", "no output projection", no_output_projection),
    Wrong("map.decoder_parameters", "both biases d_ff wide", hidden_bias_twice),
    Wrong("map.decoder_parameters", "a float", a_float),
    Wrong("map.total", "attention with biases", attention_with_biases, named="biases in attention"),
    Wrong("map.total", "a norm after each stack", a_norm_after_each_stack),
    Wrong("map.total", "untied, two matrices", two_matrices_untied, named="untied: two tables"),
    Wrong("map.total", "half of the layers in each stack", layers_of_both_stacks_together),
    Wrong("map.total", "the base model's number", base_whatever_is_asked),
    Wrong("map.total", "d_ff is 4 d_model, whatever is given", wide_as_in_the_paper),
    Wrong("map.total", "heads of width 64", heads_of_width_64),
    Wrong("map.total", "in millions", in_millions),
    Wrong(
        "map.total", "a bias in the output", output_with_a_bias, named="a bias in the output layer"
    ),
    Wrong(
        "map.crossover",
        "six widths",
        lambda d_model, d_ff: 6 * d_model,
        named="six times d_model whatever d_ff is",
    ),
    Wrong(
        "map.crossover",
        "three projections",
        lambda d_model, d_ff: (3 * d_model + 2 * d_ff) // 2,
        named="three projections",
    ),
    Wrong(
        "map.crossover",
        "the scores alone",
        lambda d_model, d_ff: 4 * d_model + 2 * d_ff,
        named="one product with the scores",
    ),
    Wrong("map.crossover", "a quotient", lambda d, f: (8 * d**2 + 4 * d * f) / (4 * d)),
    Wrong(
        "map.crossover",
        "without the feed-forward part",
        lambda d_model, d_ff: 2 * d_model,
        named="projections only",
    ),
    Wrong(
        "map.crossover",
        "one feed-forward matrix",
        lambda d, f: 2 * d + f // 2,
        named="one feed-forward matrix",
    ),
    Wrong("map.order", "removed while it is read", removed_on_the_way),
    Wrong("map.order", "the list itself", sorted_where_it_is),
    Wrong("map.order", "Pre-Norm", norm_first, named="norms before the sub-layers"),
    Wrong("map.order", "names that contain one", parts_of_names),
    Wrong("map.order", "the last one lost", neighbours_dropped),
    Wrong(
        "map.order",
        "all of them",
        lambda described: list(REAL),
        named="the whole column, whatever was described",
    ),
    Wrong(
        "map.order",
        "as described",
        lambda described: [d for d in described if d in REAL],
        named="the order of the description",
    ),
    Wrong(
        "map.order",
        "each as often as described",
        lambda d: sorted(filter(REAL.count, d), key=REAL.index),
        named="what is described twice is met twice",
    ),
    Wrong(
        "map.order",
        "the result of sort",
        lambda d: list({n for n in d if n in REAL}).sort(key=REAL.index),
    ),
]
RIGHT = [
    Right("map.shapes", "shapes of tensors", shapes_of_tensors),
    Right("map.shapes", "rows and columns", by_names),
    Right("map.decoder_parameters", "a list of matrices", matrix_by_matrix),
    Right("map.decoder_parameters", "head by head", head_by_head),
    Right("map.total", "layer by layer", layer_by_layer),
    Right("map.total", "torch's modules", module_by_module),
    Right("map.crossover", "searched", searched),
    Right("map.crossover", "a fraction", of_fractions),
    Right("map.order", "a dictionary", by_a_dictionary),
    Right("map.order", "two loops", step_by_step),
]
