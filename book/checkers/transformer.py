"""Exercises of chapter 10: the layers, shifting, counting and greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

Fn = Callable[[Tensor], Tensor]
D = 6


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _linear(seed: int) -> Fn:
    """A sub-layer that mixes features, so that the order of operations shows."""
    weight = _draw(D, D, seed=seed)
    return lambda t: torch.tanh(t @ weight)


def _norm(seed: int) -> Fn:
    weight, bias = 1 + 0.3 * _draw(D, seed=seed), _draw(D, seed=seed + 1)
    return lambda t: F.layer_norm(t, (D,), weight, bias)


def _mix(t: Tensor, memory: Tensor) -> Tensor:
    """A cross-attention without projections."""
    mixed: Tensor = F.scaled_dot_product_attention(t, memory, memory)
    return mixed


def _mistake(name: str, why: str, answer: Answer) -> WrongAnswer:
    return WrongAnswer(name, why, answer)


# --- encoder_layer --------------------------------------------------------------------------------


def _encoder(x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool) -> Tensor:
    for sublayer, norm in ((attend, norm1), (feed, norm2)):
        x = x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
    return x


def _encoder_in_lines(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    if not norm_first:
        a = norm1(attend(x).add(x))
        return norm2(feed(a).add(a))
    a = attend(norm1(x)).add(x)
    return feed(norm2(a)).add(a)


def _encoder_cases() -> list[Case]:
    def inputs(norm_first: bool, scale: float) -> Callable[[], tuple[Any, ...]]:
        return lambda: (
            (scale * _draw(2, 3, D)).requires_grad_(),
            _linear(1),
            _linear(2),
            _norm(3),
            _norm(5),
            norm_first,
        )

    return [
        Case(f"{name}, rows of size {scale:g}", inputs(first, scale), grad=True)
        for name, first in (("Post-Norm", False), ("Pre-Norm", True))
        for scale in (1.0, 30.0, 0.05)
    ]


def _both_orders(step: Callable[[Tensor, Fn, Fn, bool], Tensor]) -> Answer:
    """An encoder layer that does `step` for each of its sub-layers."""

    def answer(x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool) -> Tensor:
        return step(step(x, attend, norm1, norm_first), feed, norm2, norm_first)

    return answer


def _right_step(x: Tensor, sublayer: Fn, norm: Fn, first: bool) -> Tensor:
    return x + sublayer(norm(x)) if first else norm(x + sublayer(x))


STEP_MISTAKES: list[tuple[str, str, Callable[[Tensor, Fn, Fn, bool], Tensor]]] = [
    (
        "norm_first ignored: always Post-Norm",
        "With norm_first the norm stands on the way into the sub-layer, not after the addition.",
        lambda x, f, n, first: n(x + f(x)),
    ),
    (
        "norm_first ignored: always Pre-Norm",
        "Without norm_first the sum is normalised, and the sub-layer sees x as it is.",
        lambda x, f, n, first: x + f(n(x)),
    ),
    (
        "the two orders exchanged",
        "norm_first means Pre-Norm: the norm comes first, then the sub-layer.",
        lambda x, f, n, first: n(x + f(x)) if first else x + f(n(x)),
    ),
    (
        "residual forgotten",
        "The input of each sub-layer is added to its output. Without that the layer is no "
        "longer close to the identity.",
        lambda x, f, n, first: f(n(x)) if first else n(f(x)),
    ),
    (
        "residual taken after the norm",
        "In Pre-Norm x itself is added, not its normalised copy; otherwise the stream is "
        "normalised at every step.",
        lambda x, f, n, first: n(x) + f(n(x)) if first else n(x + f(x)),
    ),
    (
        "norm on the sub-layer's output only",
        "In Post-Norm the sum is normalised, not the sub-layer's output before it is added.",
        lambda x, f, n, first: x + f(n(x)) if first else x + n(f(x)),
    ),
    (
        "a norm on both sides",
        "Each sub-layer has one norm, before it or after the addition, not both.",
        lambda x, f, n, first: n(x + f(n(x))),
    ),
]


def _encoder_one_norm(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    return _encoder(x, attend, feed, norm1, norm1, norm_first)


def _encoder_feed_first(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    return _encoder(x, feed, attend, norm1, norm2, norm_first)


def _encoder_parallel(
    x: Tensor, attend: Fn, feed: Fn, norm1: Fn, norm2: Fn, norm_first: bool
) -> Tensor:
    if norm_first:
        return x + attend(norm1(x)) + feed(norm2(x))
    return norm2(norm1(x + attend(x)) + feed(x))


ENCODER_LAYER = Exercise(
    title="The encoder layer",
    oracle=_encoder,
    cases=_encoder_cases(),
    variants=(_encoder_in_lines, _both_orders(_right_step)),
    wrong=[
        *(_mistake(name, why, _both_orders(step)) for name, why, step in STEP_MISTAKES),
        _mistake(
            "the same norm twice",
            "Each sub-layer has a norm of its own, with its own gain and offset.",
            _encoder_one_norm,
        ),
        _mistake(
            "feed-forward before attention",
            "Attention comes first: tokens exchange what they hold, then each one is processed.",
            _encoder_feed_first,
        ),
        _mistake(
            "both sub-layers on the same input",
            "The feed-forward network works on what attention has produced, not on x.",
            _encoder_parallel,
        ),
    ],
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the layer under test is in float64"),
)


# --- decoder_layer --------------------------------------------------------------------------------

Look = Callable[[Tensor, Tensor], Tensor]


@in_parts
def _decoder_by(
    step: Callable[[Tensor, Fn, Fn, bool], Tensor] = _right_step,
    order: Sequence[int] = (0, 1, 2),
    norms_used: Sequence[int] = (0, 1, 2),
    memory_norm: bool = False,
    swapped: bool = False,
) -> Answer:
    """A decoder layer whose parts can be replaced one by one."""

    def answer(
        x: Tensor, memory: Tensor, attend: Fn, look: Look, feed: Fn, norms: Any, norm_first: bool
    ) -> Tensor:
        def cross(t: Tensor) -> Tensor:
            seen: Tensor = norms[1](memory) if memory_norm else memory
            return look(seen, t) if swapped else look(t, seen)

        sublayers = (attend, cross, feed)
        for k, n in zip(order, norms_used, strict=True):
            x = step(x, sublayers[k], norms[n], norm_first)
        return x

    return answer


def _decoder_in_lines(
    x: Tensor,
    memory: Tensor,
    attend: Fn,
    look: Look,
    feed: Fn,
    norms: Sequence[Fn],
    norm_first: bool,
) -> Tensor:
    n1, n2, n3 = norms
    if norm_first:
        a = attend(n1(x)) + x
        b = look(n2(a), memory) + a
        return feed(n3(b)) + b
    a = n1(attend(x) + x)
    b = n2(look(a, memory) + a)
    return n3(feed(b) + b)


def _decoder_cases() -> list[Case]:
    def inputs(norm_first: bool, scale: float) -> Callable[[], tuple[Any, ...]]:
        return lambda: (
            (scale * _draw(2, 4, D)).requires_grad_(),
            # As long as the target: exchanging the two then changes no shape.
            _draw(2, 4, D, seed=7).requires_grad_(),
            _linear(1),
            _mix,
            _linear(2),
            (_norm(3), _norm(5), _norm(7)),
            norm_first,
        )

    return [
        Case(f"{name}, rows of size {scale:g}", inputs(first, scale), grad=True)
        for name, first in (("Post-Norm", False), ("Pre-Norm", True))
        for scale in (1.0, 20.0, 0.05)
    ]


DECODER_LAYER = Exercise(
    title="The decoder layer",
    oracle=_decoder_by(),
    cases=_decoder_cases(),
    variants=(_decoder_in_lines,),
    wrong=[
        *(_mistake(name, why, _decoder_by(step)) for name, why, step in STEP_MISTAKES),
        _mistake(
            "cross-attention forgotten",
            "Without cross-attention the decoder never looks at the source.",
            _decoder_by(order=(0, 2), norms_used=(0, 2)),
        ),
        _mistake(
            "cross-attention before self-attention",
            "The target's tokens talk to each other first, then they ask the source.",
            _decoder_by(order=(1, 0, 2)),
        ),
        _mistake(
            "one norm for all three",
            "There are three norms, one for each sub-layer, each with its own gain and offset.",
            _decoder_by(norms_used=(0, 0, 0)),
        ),
        _mistake(
            "the memory is normalised again",
            "The encoder's output is passed on as it is. Its own stack has normalised it.",
            _decoder_by(memory_norm=True),
        ),
        _mistake(
            "queries from the source",
            "The queries come from the target, the keys and values from the source.",
            _decoder_by(swapped=True),
        ),
    ],
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the layer under test is in float64"),
)


# --- shift_right ----------------------------------------------------------------------------------


def _shift_right(tokens: Tensor, bos: int) -> Tensor:
    return torch.cat([tokens.new_full((len(tokens), 1), bos), tokens[:, :-1]], 1)


def _shift_by_roll(tokens: Tensor, bos: int) -> Tensor:
    out = tokens.roll(1, dims=1)
    out[:, 0] = bos
    return out


def _tokens(*shape: int) -> Tensor:
    return torch.randint(3, 30, shape, generator=torch.Generator().manual_seed(1))


def _filled_in_place(tokens: Tensor, bos: int) -> Tensor:
    tokens[:, 1:] = tokens[:, :-1].clone()
    tokens[:, 0] = bos
    return tokens


def _no_start(tokens: Tensor, bos: int) -> Tensor:
    return torch.cat([tokens[:, :1], tokens[:, :-1]], 1)


SHIFT_RIGHT = Exercise(
    title="Shift right",
    oracle=_shift_right,
    cases=[
        Case("three rows of five", lambda: (_tokens(3, 5), 1)),
        Case("a square batch", lambda: (_tokens(4, 4), 1)),
        Case("one row", lambda: (_tokens(1, 6), 2)),
        Case("one token per row", lambda: (_tokens(3, 1), 1)),
        Case("no rows", lambda: (_tokens(0, 4), 1)),
        Case("a view that is not contiguous", lambda: (_tokens(5, 3).T, 1)),
        Case("32-bit integers", lambda: (_tokens(2, 4).int(), 1)),
    ],
    variants=(_shift_by_roll,),
    wrong=[
        _mistake(
            "not shifted",
            "Then the input at each position is the token to be predicted, and the model copies.",
            lambda tokens, bos: tokens.clone(),
        ),
        _mistake(
            "shifted to the left",
            "The input at position t is the token before, not the token after it.",
            lambda tokens, bos: torch.cat(
                [tokens[:, 1:], tokens.new_full((len(tokens), 1), bos)], 1
            ),
        ),
        _mistake(
            "rolled: the last token comes to the front",
            "Position 0 sees the start token. With roll it sees the end of the answer.",
            lambda tokens, bos: tokens.roll(1, dims=1),
        ),
        _mistake(
            "one token too long",
            "The last token is nobody's input, so it is dropped; input and target have one length.",
            lambda tokens, bos: torch.cat([tokens.new_full((len(tokens), 1), bos), tokens], 1),
        ),
        _mistake(
            "first token overwritten",
            "The first token of the target must still be the input at position 1.",
            lambda tokens, bos: torch.cat(
                [tokens.new_full((len(tokens), 1), bos), tokens[:, 1:]], 1
            ),
        ),
        _mistake(
            "shifted along the batch",
            "The shift is along the positions, dimension 1, not along the rows of the batch.",
            lambda tokens, bos: torch.cat(
                [tokens.new_full((1, tokens.shape[1]), bos), tokens[:-1]], 0
            ),
        ),
        _mistake(
            "changed in place",
            "The targets are still needed for the loss, so they must not be changed.",
            _filled_in_place,
        ),
        _mistake(
            "start token forgotten",
            "Position 0 has nothing before it and gets the start token.",
            _no_start,
        ),
        _mistake(
            "returned as floating point",
            "Tokens are integers; an embedding cannot look up a floating-point number.",
            lambda tokens, bos: _shift_right(tokens, bos).double(),
        ),
    ],
)


# --- count_parameters -----------------------------------------------------------------------------


def _count(
    d: int,
    d_ff: int,
    n_enc: int,
    n_dec: int,
    vocab: int,
    *,
    bias: int = 1,
    ffn_bias: int = 1,
    cross: int = 1,
    norms: tuple[int, int] = (2, 3),
    per_norm: int = 2,
    embeddings: int = 1,
    output_bias: int = 0,
    once: bool = False,
    heads_matrices: int = 4,
) -> int:
    attention = heads_matrices * (d * d + bias * d)
    ffn = 2 * d * d_ff + ffn_bias * (d_ff + d)
    encoder = attention + ffn + norms[0] * per_norm * d
    decoder = (1 + cross) * attention + ffn + norms[1] * per_norm * d
    layers = encoder + decoder if once else n_enc * encoder + n_dec * decoder
    return layers + embeddings * vocab * d + output_bias * vocab


def _count_by_torch(
    d_model: int, d_ff: int, num_encoder_layers: int, num_decoder_layers: int, vocab_size: int
) -> int:
    """By torch's own layers, on the device that holds no numbers."""
    with torch.device("meta"):
        encoder = nn.TransformerEncoderLayer(d_model, 1, d_ff)
        decoder = nn.TransformerDecoderLayer(d_model, 1, d_ff)
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in (encoder, decoder)]
    layers = num_encoder_layers * sizes[0] + num_decoder_layers * sizes[1]
    return layers + vocab_size * d_model


def _with(**changes: Any) -> Answer:
    return lambda d, d_ff, n_enc, n_dec, vocab: _count(d, d_ff, n_enc, n_dec, vocab, **changes)


COUNT_PARAMETERS = Exercise(
    title="Count the parameters",
    oracle=_count_by_torch,
    cases=[
        Case("the base model", lambda: (512, 2048, 6, 6, 37_000)),
        Case("the big model", lambda: (1024, 4096, 6, 6, 37_000)),
        Case("odd sizes", lambda: (24, 40, 1, 3, 11)),
        Case("no encoder", lambda: (16, 64, 0, 2, 5)),
        Case("no layers at all", lambda: (8, 32, 0, 0, 100)),
        Case("d_ff smaller than d_model", lambda: (64, 32, 2, 1, 10)),
    ],
    variants=(_with(),),
    wrong=[
        _mistake(
            "no biases in attention",
            "Here each of the four projections has a bias of d_model numbers.",
            _with(bias=0),
        ),
        _mistake(
            "no biases in the feed-forward network",
            "The two layers have biases of d_ff and of d_model numbers.",
            _with(ffn_bias=0),
        ),
        _mistake(
            "one norm per decoder layer",
            "A decoder layer has three norms, one for each sub-layer.",
            _with(norms=(2, 1)),
        ),
        _mistake(
            "two norms per decoder layer",
            "A decoder layer has three sub-layers and so three norms, cross-attention's included.",
            _with(norms=(2, 2)),
        ),
        _mistake(
            "cross-attention forgotten",
            "A decoder layer has two attention blocks.",
            lambda d, d_ff, n_enc, n_dec, vocab: _count(d, d_ff, n_enc, n_dec, vocab, cross=0),
        ),
        _mistake(
            "norms without offset",
            "LayerNorm has a gain and an offset, two vectors.",
            _with(per_norm=1),
        ),
        _mistake(
            "three embedding matrices",
            "Source, target and output share one matrix, which counts once.",
            _with(embeddings=3),
        ),
        _mistake(
            "two embedding matrices",
            "The output layer is tied to the shared embedding, so there is one matrix in all.",
            _with(embeddings=2),
        ),
        _mistake(
            "a bias in the output layer",
            "The tied output layer has no bias.",
            _with(output_bias=1),
        ),
        _mistake(
            "each kind of layer counted once",
            "The layers of a stack have the same shapes but separate numbers.",
            _with(once=True),
        ),
        _mistake(
            "output projection of attention forgotten",
            "After the heads are joined there is a fourth matrix.",
            _with(heads_matrices=3),
        ),
        _mistake(
            "embedding forgotten",
            "The shared embedding has vocab_size rows of d_model numbers.",
            _with(embeddings=0),
        ),
    ],
)


# --- greedy ---------------------------------------------------------------------------------------

Step = Callable[[Tensor], Tensor]


def _scripted(script: Sequence[Sequence[int]], vocab: int = 9, end: int = 2) -> Step:
    """A model that wants to write `script[row]`, and then its first word again and again.

    Once every row has ended it may not be asked any more.
    """

    def step(prefixes: Tensor) -> Tensor:
        rows, t = prefixes.shape
        if (prefixes[:, 1:] == end).any(1).all():
            raise RuntimeError("asked for another token, though every row has ended")
        logits = _draw(rows, vocab, seed=t).abs().neg()
        for row in range(rows):
            words = script[row]
            logits[row, words[t - 1] if t - 1 < len(words) else words[0]] = 5.0
        return logits

    return step


def _greedy(step: Step, batch_size: int, bos: int, eos: int, pad: int, max_len: int) -> Tensor:
    out = torch.full((batch_size, 1), bos)
    done = torch.zeros(batch_size, dtype=torch.bool)
    while out.shape[1] <= max_len and not done.all():
        token = step(out).argmax(-1).masked_fill(done, pad)
        done = done | (token == eos)
        out = torch.cat([out, token[:, None]], 1)
    return out[:, 1:]


def _greedy_in_lists(
    step: Step, batch_size: int, bos: int, eos: int, pad: int, max_len: int
) -> Tensor:
    rows: list[list[int]] = [[] for _ in range(batch_size)]
    for _ in range(max_len):
        if all(eos in row for row in rows):
            break
        best = step(torch.tensor([[bos, *row] for row in rows])).max(-1).indices.tolist()
        for row, token in zip(rows, best, strict=True):
            row.append(pad if eos in row else token)
    return torch.tensor(rows)


@in_parts
def _greedy_with(
    *,
    keep_start: bool = False,
    stop: str = "all",
    extra: int = 0,
    fill: str = "pad",
    early: bool = False,
) -> Answer:
    """Greedy decoding with one of its parts replaced."""

    def answer(step: Step, batch_size: int, bos: int, eos: int, pad: int, max_len: int) -> Tensor:
        out = torch.full((batch_size, 1), bos)
        done = torch.zeros(batch_size, dtype=torch.bool)
        while out.shape[1] <= max_len + extra:
            if (stop == "all" and done.all()) or (stop == "any" and done.any()):
                break
            best = step(out).argmax(-1)
            if early:
                done = done | (best == eos)
            if fill != "nothing":
                best = best.masked_fill(done, eos if fill == "eos" else pad)
            if not early:
                done = done | (best == eos)
            out = torch.cat([out, best[:, None]], 1)
        return out if keep_start else out[:, 1:]

    return answer


GREEDY = Exercise(
    title="Greedy decoding",
    oracle=_greedy,
    cases=[
        Case(
            "rows of different length",
            lambda: (_scripted([[3, 4, 2], [5, 2], [6, 7, 8, 2]]), 3, 1, 2, 0, 8),
        ),
        Case("one row that ends at once", lambda: (_scripted([[2]]), 1, 1, 2, 0, 5)),
        Case("a row that never ends", lambda: (_scripted([[3, 4, 5], [2]]), 2, 1, 2, 0, 4)),
        Case(
            "the limit cuts all rows",
            lambda: (_scripted([[3, 4, 5, 6, 2], [7, 7, 7, 7, 2]]), 2, 1, 2, 0, 3),
        ),
        Case("all rows end at the limit", lambda: (_scripted([[3, 2], [4, 2]]), 2, 1, 2, 0, 2)),
        Case("padding is not zero", lambda: (_scripted([[3, 2], [4, 5, 6, 2]]), 2, 0, 2, 8, 6)),
        Case("a limit of one token", lambda: (_scripted([[3, 2], [2]]), 2, 1, 2, 0, 1)),
        Case(
            "another end token, and words 0 and 2 before it",
            lambda: (_scripted([[0, 2, 5], [2, 0, 0, 5]], end=5), 2, 1, 5, 0, 7),
        ),
        Case("260 tokens", lambda: (_scripted([[3, 4]]), 1, 1, 2, 0, 260)),
    ],
    variants=(_greedy_in_lists,),
    wrong=[
        _mistake(
            "goes on after the end token",
            "A row that has ended is filled with padding, whatever the model would write next.",
            _greedy_with(fill="nothing"),
        ),
        _mistake(
            "filled with the end token",
            "After the end token comes `pad`, so that the end can be told from the filling.",
            _greedy_with(fill="eos"),
        ),
        _mistake(
            "stops when the first row ends",
            "The other rows are not finished. Stop when all rows have ended.",
            _greedy_with(stop="any"),
        ),
        _mistake(
            "never stops early",
            "When all rows have ended there is nothing left to write, so stop.",
            _greedy_with(stop="never"),
        ),
        _mistake(
            "start token returned",
            "The start token is given, not produced, and does not belong to the output.",
            _greedy_with(keep_start=True),
        ),
        _mistake(
            "one token too many",
            "`max_len` counts the produced tokens, without the start token.",
            _greedy_with(extra=1),
        ),
        _mistake(
            "one token too few",
            "`max_len` counts the produced tokens; the start token does not use one up.",
            _greedy_with(extra=-1),
        ),
        _mistake(
            "end token replaced by padding",
            "The end token itself belongs to the output. The row counts as ended only after it.",
            _greedy_with(early=True),
        ),
    ],
)


EXERCISES: dict[str, Exercise] = {
    "encoder_layer": ENCODER_LAYER,
    "decoder_layer": DECODER_LAYER,
    "shift_right": SHIFT_RIGHT,
    "count_parameters": COUNT_PARAMETERS,
    "greedy": GREEDY,
}
