"""What goes into the decoder, and how many parameters there are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from book.checkers.core import Answer, Case, Exercise, WrongAnswer


def _mistake(name: str, why: str, answer: Answer) -> WrongAnswer:
    return WrongAnswer(name, why, answer)


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
