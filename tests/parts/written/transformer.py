"""Chapter 10: answers to its exercises that the checkers do not know."""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from . import Right, Wrong

# transformer.encoder_layer


def added_to_the_norm(x, attend, feed, norm1, norm2, norm_first):
    if norm_first:
        x = norm1(x)
        x = x + attend(x)
        x = norm2(x)
        return x + feed(x)
    x = norm1(x + attend(x))
    return norm2(x + feed(x))


def always_post(x, attend, feed, norm1, norm2, norm_first):
    x = norm1(x + attend(x))
    return norm2(x + feed(x))


def side_by_side(x, attend, feed, norm1, norm2, norm_first):
    if norm_first:
        return x + attend(norm1(x)) + feed(norm2(x))
    return norm2(norm1(x + attend(x)) + feed(x))


def added_in_place(x, attend, feed, norm1, norm2, norm_first):
    if norm_first:
        x += attend(norm1(x))
        x += feed(norm2(x))
        return x
    x = norm1(x + attend(x))
    return norm2(x + feed(x))


def one_norm(x, attend, feed, norm1, norm2, norm_first):
    if norm_first:
        x = x + attend(norm1(x))
        return x + feed(norm1(x))
    x = norm1(x + attend(x))
    return norm1(x + feed(x))


def norm_of_the_branch(x, attend, feed, norm1, norm2, norm_first):
    if norm_first:
        x = x + attend(norm1(x))
        return x + feed(norm2(x))
    x = x + norm1(attend(x))
    return x + norm2(feed(x))


def torch_norm(x, attend, feed, norm1, norm2, norm_first):
    norm = functools.partial(F.layer_norm, normalized_shape=x.shape[-1:])
    if norm_first:
        x = x + attend(norm(x))
        return x + feed(norm(x))
    x = norm(x + attend(x))
    return norm(x + feed(x))


def feeds_twice(x, attend, feed, norm1, norm2, norm_first):
    if norm_first:
        y = x + attend(norm1(x))
        return y + feed(norm2(y))
    y = x + attend(x)
    y = norm1(y)
    return norm2(y + feed(feed(y)))


def sub_layer_by_sub_layer(x, attend, feed, norm1, norm2, norm_first):
    for part, norm in ((attend, norm1), (feed, norm2)):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def one_order_by_the_identity(x, attend, feed, norm1, norm2, norm_first):
    def same(t):
        return t

    before = (norm1, norm2) if norm_first else (same, same)
    after = (same, same) if norm_first else (norm1, norm2)
    x = after[0](torch.add(x, attend(before[0](x))))
    return after[1](torch.add(feed(before[1](x)), x))


# transformer.decoder_layer


def normalized_memory(x, memory, attend, look, feed, norms, norm_first):
    a, b, c = norms
    if norm_first:
        x = x + attend(a(x))
        x = x + look(b(x), b(memory))
        return x + feed(c(x))
    x = a(x + attend(x))
    x = b(x + look(x, memory))
    return c(x + feed(x))


def look_first(x, memory, attend, look, feed, norms, norm_first):
    parts = (lambda t: look(t, memory), attend, feed)
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def memory_asks(x, memory, attend, look, feed, norms, norm_first):
    parts = (attend, lambda t: look(memory, t), feed)
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def looks_back_at_itself(x, memory, attend, look, feed, norms, norm_first):
    parts = (attend, lambda t: look(t, t), feed)
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def norms_used_up(x, memory, attend, look, feed, norms, norm_first):
    for part in (attend, lambda t: look(t, memory), feed):
        norm = norms.pop(0)
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def norms_from_the_end(x, memory, attend, look, feed, norms, norm_first):
    parts = [attend, lambda t: look(t, memory), feed]
    for part, norm in zip(parts, reversed(norms), strict=True):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def two_norms(x, memory, attend, look, feed, norms, norm_first):
    if norm_first:
        t = norms[0](x)
        x = x + attend(t) + look(t, memory)
        return x + feed(norms[2](x))
    x = norms[1](x + attend(x) + look(x, memory))
    return norms[2](x + feed(x))


def memory_added(x, memory, attend, look, feed, norms, norm_first):
    parts = (attend, lambda t: look(t, memory) + memory, feed)
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x


def not_normalized_before_it_looks(x, memory, attend, look, feed, norms, norm_first):
    a, b, c = norms
    if norm_first:
        x = x + attend(a(x))
        x = b(x + look(x, memory))
        return x + feed(c(x))
    x = a(x + attend(x))
    x = b(x + look(x, memory))
    return c(x + feed(x))


def by_an_inner_function(x, memory, attend, look, feed, norms, norm_first):
    def sublayer(t, part, norm):
        return t + part(norm(t)) if norm_first else norm(t + part(t))

    x = sublayer(x, attend, norms[0])
    x = sublayer(x, lambda t: look(t, memory), norms[1])
    return sublayer(x, feed, norms[-1])


def spelled_out(x, memory, attend, look, feed, norms, norm_first):
    first, second, third = norms
    if not norm_first:
        asked = first(attend(x) + x)
        seen = second(look(asked, memory) + asked)
        return third(seen + feed(seen))
    asked = attend(first(x)) + x
    seen = look(second(asked), memory) + asked
    return feed(third(seen)) + seen


# transformer.shift_right


def rolled(tokens, bos):
    out = tokens.roll(1)
    out[:, 0] = bos
    return out


def written_into(tokens, bos):
    tokens[:, 1:] = tokens[:, :-1].clone()
    tokens[:, 0] = bos
    return tokens


def one_longer(tokens, bos):
    return F.pad(tokens, (1, 0), value=bos)


def first_dropped(tokens, bos):
    start = tokens.new_full((len(tokens), 1), bos)
    return torch.cat([start, tokens[:, 1:]], 1)


def start_of_the_default_integers(tokens, bos):
    start = torch.full((len(tokens), 1), bos)
    return torch.cat([start, tokens[:, :-1]], 1)


def floats(tokens, bos):
    out = torch.zeros(tokens.shape)
    out[:, 0] = bos
    out[:, 1:] = tokens[:, :-1]
    return out


def shifted_left(tokens, bos):
    return torch.cat([tokens[:, 1:], tokens.new_full((len(tokens), 1), bos)], 1)


def down_the_batch(tokens, bos):
    return torch.cat([tokens.new_full((1, tokens.shape[1]), bos), tokens[:-1]])


def one_row(tokens, bos):
    return torch.tensor([[bos, *tokens.tolist()[0][:-1]]])


def padded(tokens, bos):
    return F.pad(tokens, (1, -1), value=bos)


def rolled_and_written(tokens, bos):
    out = torch.roll(tokens, 1, dims=1)
    out[:, :1] = bos
    return out


def lists(tokens, bos):
    rows = [[bos, *row][: len(row)] for row in tokens.tolist()]
    return torch.tensor(rows, dtype=tokens.dtype).reshape(tokens.shape)


# transformer.count_parameters


def _count(d, ff, encoders, decoders, V, attention=None, norms=(2, 3), tables=1, output=0, extra=0):
    block = 4 * d * d + 4 * d if attention is None else attention
    feed = 2 * d * ff + ff + d
    layers = encoders * (block + feed + norms[0] * 2 * d)
    layers += decoders * (2 * block + feed + norms[1] * 2 * d)
    return layers + tables * V * d + output + extra


def as_many_layers_in_both(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, encoders, V)


def stacks_exchanged(d, ff, encoders, decoders, V):
    return _count(d, ff, decoders, encoders, V)


def attention_without_biases(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, decoders, V, attention=4 * d * d)


def two_tables(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, decoders, V, tables=2)


def with_final_norms(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, decoders, V, extra=4 * d)


def final_norms_of_nn_transformer(d, ff, encoders, decoders, V):
    with torch.device("meta"):
        model = nn.Transformer(d, 1, encoders, decoders, ff, batch_first=True)
    return sum(p.numel() for p in model.parameters()) + V * d


def output_bias(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, decoders, V, output=V)


def two_norms_in_a_decoder(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, decoders, V, norms=(2, 2))


def hidden_layer_of_four_widths(d, ff, encoders, decoders, V):
    return _count(d, 4 * d, encoders, decoders, V)


def norms_with_gains_only(d, ff, encoders, decoders, V):
    return _count(d, ff, encoders, decoders, V, extra=-(2 * encoders + 3 * decoders) * d)


def layers_of_torch(d, ff, encoders, decoders, V):
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(d, 1, ff) for _ in range(encoders)]
        layers += [nn.TransformerDecoderLayer(d, 1, ff) for _ in range(decoders)]
    return sum(p.numel() for layer in layers for p in layer.parameters()) + d * V


def linear(n, m):
    return n * m + m


def linear_by_linear(d_model, d_ff, num_encoder_layers, num_decoder_layers, vocab_size):
    attention = 4 * linear(d_model, d_model)
    feed = linear(d_model, d_ff) + linear(d_ff, d_model)
    norm = 2 * d_model
    encoder = sum([attention, norm, feed, norm])
    decoder = encoder + attention + norm
    return num_encoder_layers * encoder + num_decoder_layers * decoder + vocab_size * d_model


# transformer.greedy


def _start(batch_size, bos):
    return torch.full((batch_size, 1), bos, dtype=torch.long)


def with_the_start_token(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len):
        new = step(tokens).argmax(-1).masked_fill(ended, pad)
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended = ended | (new == eos)
        if ended.all():
            break
    return tokens


def to_the_end(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len):
        new = step(tokens).argmax(-1).masked_fill(ended, pad)
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended = ended | (new == eos)
    return tokens[:, 1:]


def asks_once_more(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    while tokens.shape[1] <= max_len:
        logits = step(tokens)
        if ended.all():
            break
        new = torch.where(ended, pad, logits.argmax(-1))
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended |= new == eos
    return tokens[:, 1:]


def end_is_overwritten(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len):
        new = step(tokens).argmax(-1)
        ended |= new == eos
        new = new.masked_fill(ended, pad)
        tokens = torch.cat([tokens, new[:, None]], 1)
        if ended.all():
            break
    return tokens[:, 1:]


def ends_by_the_last_token(step, batch_size, bos, eos, pad, max_len):
    tokens = _start(batch_size, bos)
    for _ in range(max_len):
        last = tokens[:, -1]
        ended = (last == eos) | (last == pad)
        if ended.all():
            break
        new = torch.where(ended, pad, step(tokens).argmax(-1))
        tokens = torch.cat([tokens, new[:, None]], 1)
    return tokens[:, 1:]


def rows_go_on(step, batch_size, bos, eos, pad, max_len):
    tokens = _start(batch_size, bos)
    for _ in range(max_len):
        new = step(tokens).argmax(-1)
        new[tokens[:, -1] == eos] = pad
        tokens = torch.cat([tokens, new[:, None]], 1)
        if (tokens == eos).any(1).all():
            break
    return tokens[:, 1:]


def first_end_ends_all(step, batch_size, bos, eos, pad, max_len):
    tokens = _start(batch_size, bos)
    for _ in range(max_len):
        new = step(tokens).argmax(-1)
        tokens = torch.cat([tokens, new[:, None]], 1)
        if (new == eos).any():
            break
    return tokens[:, 1:]


def one_token_of_context(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len):
        new = step(tokens[:, -1:]).argmax(-1).masked_fill(ended, pad)
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended |= new == eos
        if ended.all():
            break
    return tokens[:, 1:]


def padding_of_zeros(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len):
        new = step(tokens).argmax(-1) * ~ended
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended |= new == eos
        if ended.all():
            break
    return tokens[:, 1:]


def drawn(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    for _ in range(max_len):
        new = torch.multinomial(step(tokens).softmax(-1), 1)[:, 0].masked_fill(ended, pad)
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended |= new == eos
        if ended.all():
            break
    return tokens[:, 1:]


def length_with_the_start(step, batch_size, bos, eos, pad, max_len):
    tokens, ended = _start(batch_size, bos), torch.zeros(batch_size, dtype=torch.bool)
    while tokens.shape[1] < max_len and not ended.all():
        new = step(tokens).argmax(-1).masked_fill(ended, pad)
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended |= new == eos
    return tokens[:, 1:]


def into_a_table(step, batch_size, bos, eos, pad, max_len):
    table = torch.full((batch_size, max_len + 1), pad, dtype=torch.int64)
    table[:, 0] = bos
    going = torch.ones(batch_size, dtype=torch.bool)
    t = 0
    while t < max_len and going.any():
        _, best = step(table[:, : t + 1]).max(dim=-1)
        table[going, t + 1] = best[going]
        going &= table[:, t + 1] != eos
        t += 1
    return table[:, 1 : t + 1]


def row_by_row(step, batch_size, bos, eos, pad, max_len):
    rows = [[bos] for _ in range(batch_size)]
    done = [False] * batch_size
    for _ in range(max_len):
        if all(done):
            break
        best = step(torch.tensor(rows)).argmax(-1).tolist()
        for k, token in enumerate(best):
            rows[k].append(pad if done[k] else token)
            done[k] = done[k] or token == eos
    return torch.tensor([row[1:] for row in rows], dtype=torch.long).reshape(batch_size, -1)


WRONG = [
    Wrong(
        "transformer.encoder_layer",
        "added to what was normalized",
        added_to_the_norm,
        named="residual taken after the norm",
    ),
    Wrong(
        "transformer.encoder_layer",
        "Post-Norm always",
        always_post,
        named="norm_first ignored: always Post-Norm",
    ),
    Wrong(
        "transformer.encoder_layer",
        "the sub-layers side by side",
        side_by_side,
        named="both sub-layers on the same input",
    ),
    Wrong("transformer.encoder_layer", "x changed in place", added_in_place),
    Wrong("transformer.encoder_layer", "one norm for both", one_norm, named="the same norm twice"),
    Wrong(
        "transformer.encoder_layer",
        "the norm of the branch",
        norm_of_the_branch,
        named="norm on the sub-layer's output only",
    ),
    Wrong("transformer.encoder_layer", "torch's norm for the given ones", torch_norm),
    Wrong("transformer.encoder_layer", "fed twice", feeds_twice),
    Wrong(
        "transformer.decoder_layer",
        "the memory normalized",
        normalized_memory,
        named="the memory is normalised again",
    ),
    Wrong(
        "transformer.decoder_layer",
        "cross-attention first",
        look_first,
        named="cross-attention before self-attention",
    ),
    Wrong(
        "transformer.decoder_layer", "the memory asks", memory_asks, named="queries from the source"
    ),
    Wrong("transformer.decoder_layer", "no memory", looks_back_at_itself),
    Wrong("transformer.decoder_layer", "the list of norms is emptied", norms_used_up),
    Wrong("transformer.decoder_layer", "norms from the end", norms_from_the_end),
    Wrong("transformer.decoder_layer", "both attentions at once", two_norms),
    Wrong("transformer.decoder_layer", "the memory on the residual path", memory_added),
    Wrong(
        "transformer.decoder_layer", "one of three stays Post-Norm", not_normalized_before_it_looks
    ),
    Wrong(
        "transformer.shift_right", "the targets are changed", written_into, named="changed in place"
    ),
    Wrong("transformer.shift_right", "one token more", one_longer, named="one token too long"),
    Wrong(
        "transformer.shift_right",
        "the first token replaced",
        first_dropped,
        named="first token overwritten",
    ),
    Wrong("transformer.shift_right", "a start of int64", start_of_the_default_integers),
    Wrong("transformer.shift_right", "floats", floats, named="returned as floating point"),
    Wrong("transformer.shift_right", "to the left", shifted_left, named="shifted to the left"),
    Wrong(
        "transformer.shift_right",
        "along the batch",
        down_the_batch,
        named="shifted along the batch",
    ),
    Wrong("transformer.shift_right", "the first row only", one_row),
    Wrong("transformer.count_parameters", "one number of layers", as_many_layers_in_both),
    Wrong("transformer.count_parameters", "stacks exchanged", stacks_exchanged),
    Wrong(
        "transformer.count_parameters",
        "attention without biases",
        attention_without_biases,
        named="no biases in attention",
    ),
    Wrong(
        "transformer.count_parameters",
        "a table for each language",
        two_tables,
        named="two embedding matrices",
    ),
    Wrong("transformer.count_parameters", "final norms", with_final_norms),
    Wrong("transformer.count_parameters", "nn.Transformer as it is", final_norms_of_nn_transformer),
    Wrong(
        "transformer.count_parameters",
        "a bias in the output",
        output_bias,
        named="a bias in the output layer",
    ),
    Wrong(
        "transformer.count_parameters",
        "two norms in a decoder layer",
        two_norms_in_a_decoder,
        named="two norms per decoder layer",
    ),
    Wrong("transformer.count_parameters", "d_ff is 4 d_model", hidden_layer_of_four_widths),
    Wrong(
        "transformer.count_parameters",
        "norms without biases",
        norms_with_gains_only,
        named="norms without offset",
    ),
    Wrong(
        "transformer.greedy",
        "the start token stays",
        with_the_start_token,
        named="start token returned",
    ),
    Wrong("transformer.greedy", "always max_len tokens", to_the_end, named="never stops early"),
    Wrong("transformer.greedy", "one step too many", asks_once_more, named="never stops early"),
    Wrong(
        "transformer.greedy",
        "padding over the end",
        end_is_overwritten,
        named="end token replaced by padding",
    ),
    Wrong("transformer.greedy", "a chosen pad ends the row", ends_by_the_last_token),
    Wrong("transformer.greedy", "rows begin again", rows_go_on),
    Wrong(
        "transformer.greedy",
        "the first end ends all",
        first_end_ends_all,
        named="stops when the first row ends",
    ),
    Wrong("transformer.greedy", "the last token alone", one_token_of_context),
    Wrong("transformer.greedy", "padding of 0", padding_of_zeros),
    Wrong("transformer.greedy", "drawn", drawn),
    Wrong(
        "transformer.greedy",
        "max_len with the start token",
        length_with_the_start,
        named="one token too few",
    ),
]
RIGHT = [
    Right("transformer.encoder_layer", "a loop", sub_layer_by_sub_layer),
    Right(
        "transformer.encoder_layer", "the identity in place of a norm", one_order_by_the_identity
    ),
    Right("transformer.decoder_layer", "an inner function", by_an_inner_function),
    Right("transformer.decoder_layer", "spelled out", spelled_out),
    Right("transformer.shift_right", "padded by -1", padded),
    Right("transformer.shift_right", "rolled and written", rolled_and_written),
    Right("transformer.shift_right", "lists", lists),
    Right("transformer.shift_right", "rolled as one long row", rolled),
    Right("transformer.count_parameters", "torch's layers", layers_of_torch),
    Right("transformer.count_parameters", "linear by linear", linear_by_linear),
    Right("transformer.greedy", "into a table", into_a_table),
    Right("transformer.greedy", "row by row", row_by_row),
]
