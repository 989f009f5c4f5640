"""Chapter 02: answers to its exercises that the checkers do not know."""

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


# map.crossover


def searched(d_model, d_ff):
    T = 1
    while 2 * (2 * T * T * d_model) < 4 * 2 * T * d_model**2 + 2 * 2 * T * d_model * d_ff:
        T += 1
    return T


def of_fractions(d_model, d_ff):
    per_token = Fraction(8 * d_model**2 + 4 * d_model * d_ff)
    return int(per_token / (4 * d_model))


# map.fault


def _tapped(model, src, tgt):
    """What the layers of the model got and gave."""
    encoded, memories, handles = [], [], []
    for layer in model.encoder.layers:
        handles.append(layer.register_forward_hook(lambda m, i, o: encoded.append(o)))
    for layer in model.decoder.layers:
        handles.append(layer.register_forward_hook(lambda m, i, o: memories.append(i[1])))
    logits = model(src, tgt)
    [h.remove() for h in handles]
    return encoded, memories, logits


def last_decoder_layer_only(model, src, tgt):
    encoded, memories, logits = _tapped(model, src, tgt)
    if memories[-1] is not encoded[-1]:
        return "memory"
    if not torch.allclose(model(src, tgt[:, :-1]), logits[:, :-1]):
        return "mask"
    return "positions" if torch.allclose(model(src.flip(1), tgt), logits) else "none"


def any_encoder_layer_will_do(model, src, tgt):
    encoded, memories, logits = _tapped(model, src, tgt)
    if any(all(m is not e for e in encoded) for m in memories):
        return "memory"
    if not torch.allclose(model(src, tgt[:, :-1]), logits[:, :-1]):
        return "mask"
    return "positions" if torch.allclose(model(src.flip(1), tgt), logits) else "none"


def never_looks_at_positions(model, src, tgt):
    said = checked_by_cutting(model, src, tgt)
    return "none" if said == "positions" else said


def first_encoder_layer(model, src, tgt):
    encoded, memories, _ = _tapped(model, src, tgt)
    return "memory" if any(m is not encoded[0] for m in memories) else "none"


def mask_of_one_token(model, src, tgt):
    """A row alone against a row among others: it sees earlier ones in a right model, too."""
    said = checked_by_cutting(model, src, tgt)
    if said in ("none", "positions") and tgt.shape[1] > 1:
        alone = model(src, tgt[:, 1:2])
        if not torch.allclose(alone, model(src, tgt)[:, 1:2]):
            return "mask"
    return said


def two_answers(model, src, tgt):
    return checked_by_cutting(model, src, tgt), "none"


def capital(model, src, tgt):
    return checked_by_cutting(model, src, tgt).capitalize()


def no_answer_for_a_right_one(model, src, tgt):
    said = checked_by_cutting(model, src, tgt)
    return None if said == "none" else said


def checked_by_cutting(model, src, tgt):
    encoded, memories, logits = _tapped(model, src, tgt)
    if any(m is not encoded[-1] for m in memories):
        return "memory"
    for n in range(1, tgt.shape[1]):
        if (model(src, tgt[:, :n]) - logits[:, :n]).abs().max() > 1e-8:
            return "mask"
    return "positions" if torch.allclose(model(src.roll(2, 1), tgt), logits) else "none"


def by_wrapping_the_layers(model, src, tgt):
    last, got = {}, []
    spies = [
        model.encoder.layers[-1].register_forward_hook(lambda m, i, o: last.update(out=o)),
        *(
            layer.register_forward_pre_hook(lambda m, i: got.append(i[1].clone()))
            for layer in model.decoder.layers
        ),
    ]
    before = model(src, tgt)
    for spy in spies:
        spy.remove()
    if not all(g.shape == last["out"].shape and torch.equal(g, last["out"]) for g in got):
        return "memory"
    changed = torch.cat([tgt[:, :-1], src[:, :1]], 1)
    changed = torch.where(changed == tgt, (tgt + 1) % 20, changed)
    changed[:, :-1] = tgt[:, :-1]
    if (model(src, changed) - before)[:, :-1].abs().max() > 1e-8:
        return "mask"
    swapped = src.clone()
    swapped[:, [0, -1]] = src[:, [-1, 0]]
    return "none" if (model(swapped, tgt) - before).abs().max() > 1e-8 else "positions"


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
    Wrong("map.fault", "the last decoder layer only", last_decoder_layer_only),
    Wrong("map.fault", "the output of any encoder layer", any_encoder_layer_will_do),
    Wrong(
        "map.fault",
        "positions are never looked at",
        never_looks_at_positions,
        named="missing positions are not found",
    ),
    Wrong("map.fault", "the first encoder layer as memory", first_encoder_layer),
    Wrong(
        "map.fault",
        "a row alone against the same row",
        mask_of_one_token,
        named="a right mask is taken for none",
    ),
    Wrong("map.fault", "two answers", two_answers),
    Wrong("map.fault", "another spelling", capital),
    Wrong("map.fault", "None for a right model", no_answer_for_a_right_one),
]
RIGHT = [
    Right("map.fault", "every length of the target", checked_by_cutting),
    Right("map.fault", "a last token changed, two source tokens swapped", by_wrapping_the_layers),
    Right("map.shapes", "shapes of tensors", shapes_of_tensors),
    Right("map.shapes", "rows and columns", by_names),
    Right("map.decoder_parameters", "a list of matrices", matrix_by_matrix),
    Right("map.decoder_parameters", "head by head", head_by_head),
    Right("map.crossover", "searched", searched),
    Right("map.crossover", "a fraction", of_fractions),
]
