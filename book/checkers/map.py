"""The exercises of chapter 02: shapes, parameters, operations and the order of the parts.

The oracles ask torch's own modules on the meta device, or torch's counter of FLOPs. A wrong answer
is the right one with one thing changed, so that its line shows the mistake.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from book.checkers.core import Case, Exercise, Rule, WrongAnswer
from book.checkers.questions import WrongNumber, choice, number

Shapes = list[tuple[int, ...]]


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _case(name: str, *numbers: Any) -> Case:
    return Case(name, lambda: copy.deepcopy(numbers))


# --- shapes(src_len, tgt_len, d_model, num_heads, d_ff, vocab_size) -------------------------------


def _shapes_oracle(
    src_len: int, tgt_len: int, d_model: int, num_heads: int, d_ff: int, vocab_size: int
) -> Shapes:
    with torch.device("meta"):
        block = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        x, y = torch.empty(1, src_len, d_model), torch.empty(1, tgt_len, d_model)

        def weights(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            found = block(queries, keys, keys, average_attn_weights=False)[1]
            assert isinstance(found, torch.Tensor)
            return found[0, 0]

        def one_head(rows: torch.Tensor) -> torch.Tensor:
            projected: torch.Tensor = nn.Linear(d_model, d_model)(rows)
            return projected[0].view(len(projected[0]), num_heads, -1)[:, 0]

        tensors = [
            x[0],
            one_head(x),
            weights(x, x),
            weights(y, y),
            weights(y, x),
            one_head(x),
            weights(y, x) @ one_head(x),
            nn.Linear(d_model, d_ff)(y)[0],
            nn.Linear(d_model, vocab_size)(y)[0],
        ]
    return [tuple(t.shape) for t in tensors]


def _shapes(
    s: int, t: int, d: int, h: int, f: int, v: int, *, changes: dict[int, tuple[int, int]]
) -> Shapes:
    """The right list with some entries replaced."""
    right = [(s, d), (s, d // h), (s, s), (t, t), (t, s), (s, d // h), (t, d // h), (t, f), (t, v)]
    return [changes.get(i, shape) for i, shape in enumerate(right)]


def _wrong_shapes(
    changes: Callable[[int, int, int, int, int, int], dict[int, tuple[int, int]]],
) -> Callable[..., Shapes]:
    return lambda s, t, d, h, f, v: _shapes(s, t, d, h, f, v, changes=changes(s, t, d, h, f, v))


def _shapes_as_lists(*sizes: int) -> list[list[int]]:
    return [list(shape) for shape in _shapes(*sizes, changes={})]


_SHAPES = Exercise(
    title="The shape table",
    oracle=_shapes_oracle,
    cases=[
        _case("the base model", 10, 7, 512, 8, 2048, 37_000),
        _case("one head", 10, 7, 512, 1, 2048, 37_000),
        _case("a long target", 3, 11, 64, 4, 100, 50),
        _case("one source token", 1, 5, 12, 2, 30, 9),
        _case("one target token", 5, 1, 12, 3, 30, 9),
        _case("as many heads as features", 4, 6, 8, 8, 20, 13),
    ],
    wrong=[
        WrongAnswer(
            "everything inside attention as wide as the model",
            "Each head works on d_model / num_heads features; only the joined result is d_model "
            "wide again.",
            _wrong_shapes(lambda s, t, d, h, f, v: {1: (s, d), 5: (s, d), 6: (t, d)}),
        ),
        WrongAnswer(
            "cross-attention the wrong way round",
            "The target asks: rows of the weights are target positions, columns source positions.",
            _wrong_shapes(lambda s, t, d, h, f, v: {4: (s, t)}),
        ),
        WrongAnswer(
            "cross-attention as a square of target tokens",
            "The keys come from the memory, which has one row per source token.",
            _wrong_shapes(lambda s, t, d, h, f, v: {4: (t, t), 5: (t, d // h)}),
        ),
        WrongAnswer(
            "the result of cross-attention in source rows",
            "Attention returns one row per query, and the queries are target positions.",
            _wrong_shapes(lambda s, t, d, h, f, v: {6: (s, d // h)}),
        ),
        WrongAnswer(
            "weights with the shape of the rows",
            "A weight belongs to a pair of positions: the matrix has no feature axis.",
            _wrong_shapes(
                lambda s, t, d, h, f, v: {2: (s, d // h), 3: (t, d // h), 4: (t, d // h)}
            ),
        ),
        WrongAnswer(
            "the heads stacked below each other",
            "The question is about one head. Joined, heads stand side by side, along the features.",
            _wrong_shapes(
                lambda s, t, d, h, f, v: {
                    1: (h * s, d // h),
                    5: (h * s, d // h),
                    6: (h * t, d // h),
                }
            ),
        ),
        WrongAnswer(
            "the width of a head is the number of heads",
            "A head has d_model / num_heads features; num_heads is how many there are.",
            _wrong_shapes(lambda s, t, d, h, f, v: {1: (s, h), 5: (s, h), 6: (t, h)}),
        ),
        WrongAnswer(
            "the feed-forward result instead of its hidden layer",
            "The hidden layer is d_ff wide; the part returns to d_model after it.",
            _wrong_shapes(lambda s, t, d, h, f, v: {7: (t, d)}),
        ),
        WrongAnswer(
            "logits for the source",
            "The scores for the next token belong to the target positions.",
            _wrong_shapes(lambda s, t, d, h, f, v: {8: (s, v)}),
        ),
    ],
    variants=[_shapes_as_lists],
)


# --- decoder_parameters(d_model, num_heads, d_ff, bias) -------------------------------------------


def _decoder_oracle(d_model: int, num_heads: int, d_ff: int, bias: bool) -> int:
    return _count(nn.TransformerDecoderLayer(d_model, num_heads, d_ff, bias=bias, device="meta"))


def _decoder(
    d: int,
    h: int,
    f: int,
    bias: bool,
    *,
    blocks: int = 2,
    norms: int = 3,
    attention_bias: bool = True,
    norm_bias: bool | None = None,
    matrices: int = 4,
) -> int:
    attention = matrices * d * d + (4 * d if bias and attention_bias else 0)
    ffn = 2 * d * f + (d + f if bias else 0)
    norm = d * (2 if (bias if norm_bias is None else norm_bias) else 1)
    return blocks * attention + ffn + norms * norm


def _decoder_by_list(d_model: int, num_heads: int, d_ff: int, bias: bool) -> int:
    shapes = [(d_model, d_model)] * 8 + [(d_model, d_ff), (d_ff, d_model)]
    return sum((m + bias) * n for m, n in shapes) + 3 * (1 + bias) * d_model


_DECODER = Exercise(
    title="The parameters of a decoder layer",
    oracle=_decoder_oracle,
    cases=[
        _case("the base model", 512, 8, 2048, True),
        _case("the base model without biases", 512, 8, 2048, False),
        _case("one head", 64, 1, 256, True),
        _case("many heads", 64, 16, 256, True),
        _case("a narrow feed-forward part", 24, 4, 7, True),
        _case("a narrow one without biases", 24, 4, 7, False),
        _case("the big model", 1024, 16, 4096, True),
    ],
    wrong=[
        WrongAnswer(
            "one norm instead of three",
            "Each of the three sub-layers is followed by a norm of its own.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, norms=1),
        ),
        WrongAnswer(
            "two norms, as in the encoder",
            "The cross-attention is a third sub-layer, with a third norm.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, norms=2),
        ),
        WrongAnswer(
            "no cross-attention",
            "A decoder layer has two attention blocks: on the target, and on the memory.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, blocks=1),
        ),
        WrongAnswer(
            "an encoder layer",
            "A decoder layer has a second attention block and a third norm.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, blocks=1, norms=2),
        ),
        WrongAnswer(
            "attention times the number of heads",
            "The heads share the width: each has d_model / num_heads features, so that their "
            "matrices together are as large as one of full width.",
            lambda d, h, f, bias: (
                _decoder(d, h, f, bias, blocks=0)
                + 2 * h * (_decoder(d, h, f, bias, blocks=1) - _decoder(d, h, f, bias, blocks=0))
            ),
        ),
        WrongAnswer(
            "queries, keys and values of a single head",
            "A table per head lists d_model × head_dim; there are num_heads of each.",
            lambda d, h, f, bias: _decoder(d, h, f, bias) - 6 * (d * d - d * (d // h)),
        ),
        WrongAnswer(
            "three matrices per attention block",
            "After queries, keys and values comes the output matrix, which joins the heads.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, matrices=3),
        ),
        WrongAnswer(
            "no biases in attention",
            "The paper writes none, but torch has four vectors of d_model per block.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, attention_bias=False),
        ),
        WrongAnswer(
            "norms keep their bias",
            "In torch bias=False takes it from the norms too; the gain stays.",
            lambda d, h, f, bias: _decoder(d, h, f, bias, norm_bias=True),
        ),
        WrongAnswer(
            "bias is ignored",
            "With bias=False the layer has matrices and gains only.",
            lambda d, h, f, bias: _decoder(d, h, f, True),
        ),
    ],
    variants=[_decoder_by_list],
    rules=(Rule("by arithmetic", ("aten.empty", "aten.zeros", "aten.ones", "aten.randn")),),
)


# --- total(d_model, num_heads, d_ff, num_layers, vocab_size, tied) --------------------------------


def _total_oracle(
    d_model: int, num_heads: int, d_ff: int, num_layers: int, vocab_size: int, tied: bool
) -> int:
    with torch.device("meta"):
        enc = nn.TransformerEncoderLayer(d_model, num_heads, d_ff)
        dec = nn.TransformerDecoderLayer(d_model, num_heads, d_ff)
        table = nn.Embedding(vocab_size, d_model)
    biases = [
        p
        for layer in (enc, dec)
        for name, p in layer.named_parameters()
        if "attn" in name and name.endswith("bias")
    ]
    layers = _count(enc) + _count(dec) - sum(p.numel() for p in biases)
    return num_layers * layers + (1 if tied else 3) * _count(table)


def _total(
    d: int,
    h: int,
    f: int,
    n: int,
    v: int,
    tied: bool,
    *,
    blocks: int = 3,
    norms: int = 5,
    extra: int = 0,
    tables: tuple[int, int] = (1, 3),
) -> int:
    layers = n * (blocks * 4 * d * d + 2 * (2 * d * f + d + f) + norms * 2 * d)
    return layers + tables[0 if tied else 1] * v * d + extra


def _total_by_stacks(d: int, h: int, f: int, n: int, v: int, tied: bool) -> int:
    ffn = d * f + f + f * d + d
    encoder = n * (4 * d**2 + ffn + 2 * (d + d))
    decoder = n * (8 * d**2 + ffn + 3 * (d + d))
    return encoder + decoder + v * d + (0 if tied else 2 * v * d)


_TOTAL = Exercise(
    title="The whole model",
    oracle=_total_oracle,
    cases=[
        _case("the base model", 512, 8, 2048, 6, 37_000, True),
        _case("the base model, untied", 512, 8, 2048, 6, 37_000, False),
        _case("the big model", 1024, 16, 4096, 6, 37_000, True),
        _case("one layer", 64, 4, 100, 1, 50, True),
        _case("one layer, untied", 64, 4, 100, 1, 50, False),
        _case("many heads", 64, 32, 100, 3, 500, True),
    ],
    wrong=[
        WrongAnswer(
            "biases in attention",
            "torch has them; the paper, and this exercise, do not.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, extra=n * 12 * d),
        ),
        WrongAnswer(
            "no cross-attention",
            "A pair of layers has three attention blocks: one in the encoder, two in the decoder.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, blocks=2),
        ),
        WrongAnswer(
            "two norms per decoder layer",
            "Three sub-layers, three norms: five per pair of layers.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, norms=4),
        ),
        WrongAnswer(
            "one norm per layer",
            "Every sub-layer has a norm of its own: two in the encoder, three in the decoder.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, norms=2),
        ),
        WrongAnswer(
            "no embeddings",
            "The table of n_vocab × d_model is a parameter, and a large one.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, tables=(0, 0)),
        ),
        WrongAnswer(
            "tied: two tables",
            "One matrix serves the source, the target and the output.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, tables=(2, 3)),
        ),
        WrongAnswer(
            "untied: two tables",
            "Source embedding, target embedding and output layer: three.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, tables=(1, 2)),
        ),
        WrongAnswer(
            "tying is ignored",
            "A tied matrix is one parameter, however often it is used.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, False),
        ),
        WrongAnswer(
            "a bias in the output layer",
            "The tied output layer has no bias in the paper.",
            lambda d, h, f, n, v, tied: _total(d, h, f, n, v, tied, extra=v),
        ),
    ],
    variants=[_total_by_stacks],
)


# --- crossover(d_model, d_ff) ---------------------------------------------------------------------


@functools.cache
def _flops(length: int, d_model: int, d_ff: int) -> int:
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(d_model, 1, d_ff, batch_first=True)
        x = torch.empty(1, length, d_model)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    return int(counter.get_total_flops())


def _crossover_oracle(d_model: int, d_ff: int) -> int:
    # A length T costs aT + bT²: three measurements would be one too many. They meet at a / b.
    one, two = (_flops(length, d_model, d_ff) for length in (1, 2))
    return (4 * one - two) // (two - 2 * one)


_CROSSOVER = Exercise(
    title="The crossover",
    oracle=_crossover_oracle,
    cases=[
        _case("the base model", 512, 2048),
        _case("the big model", 1024, 4096),
        _case("d_ff = d_model", 64, 64),
        _case("a wide feed-forward part", 64, 1024),
        _case("a narrow feed-forward part", 96, 32),
        _case("odd sizes", 15, 41),
    ],
    wrong=[
        WrongAnswer(
            "six times d_model whatever d_ff is",
            "That holds for d_ff = 4 d_model only.",
            lambda d, f: 6 * d,
        ),
        WrongAnswer(
            "projections only",
            "The feed-forward part is linear in the length too.",
            lambda d, f: 2 * d,
        ),
        WrongAnswer(
            "feed-forward only",
            "The four projections count as well.",
            lambda d, f: f,
        ),
        WrongAnswer(
            "one product with the scores",
            "There are two: queries with keys, and weights with values.",
            lambda d, f: 4 * d + 2 * f,
        ),
        WrongAnswer(
            "three projections",
            "Queries, keys, values, and the output matrix: four.",
            lambda d, f: (3 * d + 2 * f) // 2,
        ),
        WrongAnswer(
            "one feed-forward matrix",
            "The feed-forward part goes to d_ff and comes back: two matrices.",
            lambda d, f: (4 * d + f) // 2,
        ),
        WrongAnswer(
            "the length equals d_model",
            "There T² d and T d² are equal, but each has a factor in front.",
            lambda d, f: d,
        ),
        WrongAnswer(
            "scores counted as operations, the rest as multiplications",
            "Count 2 FLOPs per multiplication with its addition everywhere, or 1 everywhere.",
            lambda d, f: (2 * d + f) // 2,
        ),
    ],
    variants=[lambda d_model, d_ff: (8 * d_model**2 + 4 * d_model * d_ff) // (4 * d_model)],
)


# --- order(described) -----------------------------------------------------------------------------

_COLUMN = (
    "target embedding",
    "positions",
    "masked self-attention",
    "add & norm 1",
    "cross-attention",
    "add & norm 2",
    "feed-forward",
    "add & norm 3",
    "linear",
    "softmax",
)


def _in_order(described: Sequence[str], column: Sequence[str] = _COLUMN) -> list[str]:
    return [part for part in column if part in described]


def _swapped(first: str, second: str) -> Callable[[Sequence[str]], list[str]]:
    """The right order, but for two parts that changed places."""
    change = {first: second, second: first}
    column = [change.get(part, part) for part in _COLUMN]
    return lambda described: _in_order(described, column)


def _norms_first(described: Sequence[str]) -> list[str]:
    column = list(_COLUMN)
    for i in (2, 4, 6):
        column[i], column[i + 1] = column[i + 1], column[i]
    return _in_order(described, column)


def _with_strangers(described: Sequence[str]) -> list[str]:
    rest = [part for part in dict.fromkeys(described) if part not in _COLUMN]
    return _in_order(described) + rest


def _order_by_position(described: Sequence[str]) -> list[str]:
    places = {part: place for place, part in enumerate(_COLUMN)}
    return sorted(set(described) & set(places), key=lambda part: places[part])


_ORDER = Exercise(
    title="The part that does not exist",
    oracle=_in_order,
    cases=[
        _case("all parts, from the top to the bottom", [*reversed(_COLUMN)]),
        _case("all parts and a review", ["review", *_COLUMN[5:], *_COLUMN[:5]]),
        _case("a recurrence, a pooling", [*_COLUMN[::2], "recurrence", "pooling", *_COLUMN[1::2]]),
        _case("one layer only", [*_COLUMN[7:1:-1], "review"]),
        _case("the output only", ["softmax", "linear", "review"]),
        _case("some parts twice", ["positions", "softmax", *_COLUMN[:2], "linear", "softmax"]),
        _case("nothing real", ["review", "convolution"]),
        _case("names that hold a real one", ["linear attention", "softmax", "no positions"]),
        _case("nothing", []),
    ],
    wrong=[
        WrongAnswer(
            "the review is kept",
            "The original Transformer has an encoder and a decoder, and no part that reviews. "
            "What looks back at the source is cross-attention.",
            _with_strangers,
        ),
        WrongAnswer(
            "the order of the description",
            "The list is in no particular order; a token meets the parts in that of the map.",
            lambda described: [p for p in dict.fromkeys(described) if p in _COLUMN],
        ),
        WrongAnswer(
            "what is described twice is met twice",
            "A part is met once, however often it is mentioned.",
            lambda described: sorted(
                (p for p in described if p in _COLUMN), key=lambda part: _COLUMN.index(part)
            ),
        ),
        WrongAnswer(
            "the whole column, whatever was described",
            "Only parts that were described belong into the answer.",
            lambda described: list(_COLUMN),
        ),
        WrongAnswer(
            "norms before the sub-layers",
            "That is Pre-Norm, which came later. Here the norm follows the addition.",
            _norms_first,
        ),
        WrongAnswer(
            "cross-attention before self-attention",
            "The target first attends to itself, and then asks the memory.",
            _swapped("masked self-attention", "cross-attention"),
        ),
        WrongAnswer(
            "feed-forward before cross-attention",
            "The feed-forward part is the last sub-layer, in both kinds of layer.",
            _swapped("feed-forward", "cross-attention"),
        ),
        WrongAnswer(
            "softmax before linear",
            "The linear layer makes the scores that the softmax turns into probabilities.",
            _swapped("linear", "softmax"),
        ),
        WrongAnswer(
            "positions before the embedding",
            "Positions are added to embedded tokens, so these have to be there first.",
            _swapped("positions", "target embedding"),
        ),
        WrongAnswer(
            "from the top to the bottom",
            "A token enters at the embedding; the map is read upwards.",
            lambda described: _in_order(described)[::-1],
        ),
    ],
    variants=[_order_by_position],
)


# --- estimates ------------------------------------------------------------------------------------

_MOST = choice(
    "Where are most of the weights?",
    right="C",
    because="Twelve feed-forward parts have 8 d² each, 96 d² in all. Eighteen attention blocks "
    "have 4 d² each, 72 d², and the table about as many.",
    tempting={
        "A": (
            "the table",
            "37,000 rows of 512 are 19 million, a good quarter less than the twelve feed-forward "
            "parts. In a narrower model the table would win.",
        ),
        "B": (
            "what gave the paper its title",
            "An attention block has 4 d², half of a feed-forward part. There are 18 blocks and 12 "
            "feed-forward parts: 72 d² against 96 d².",
        ),
        "D": (
            "what stands in most places",
            "There are thirty norms, but each is two vectors of 512.",
        ),
    },
)

_GPT2 = number(
    "GPT-2 in your head",
    value=lambda: (12 * 12 * 768**2 + 50_257 * 768 + 1_024 * 768) / 1e6,
    within=0.02,
    because="12 layers of 12 · 768² are 84.9 million, the table of tokens 38.6 and that of "
    "positions 0.8: {value} million. With biases and norms it is 124.4.",
    wrong=[
        WrongNumber(
            "the table counted twice",
            "The table of tokens also serves as the output matrix: it is there once.",
            lambda: (12 * 12 * 768**2 + 2 * 50_257 * 768 + 1_024 * 768) / 1e6,
        ),
        WrongNumber(
            "the layers alone",
            "The table of 50,257 rows holds almost a third of the weights.",
            lambda: 12 * 12 * 768**2 / 1e6,
        ),
        WrongNumber(
            "layers of a decoder with cross-attention",
            "There is no second sequence and so no cross-attention: 12 d² a layer, not 16 d².",
            lambda: (12 * 16 * 768**2 + 50_257 * 768 + 1_024 * 768) / 1e6,
        ),
        WrongNumber(
            "one layer",
            "The model has twelve layers, and each of them counts.",
            lambda: (12 * 768**2 + 50_257 * 768 + 1_024 * 768) / 1e6,
        ),
        WrongNumber(
            "not in millions",
            "The number is asked for in millions.",
            lambda: 12.0 * 12 * 768**2 + 50_257 * 768 + 1_024 * 768,
        ),
    ],
)

_VOCABULARY = number(
    "Words or thoughts",
    value=lambda: 12.0 * 12 * 768,
    within=0.02,
    because="n · d = 12 · 12 d² gives n = 144 d, here {value}, more than twice the vocabulary that "
    "it has.",
    wrong=[
        WrongNumber(
            "decoder layers with cross-attention",
            "A layer has 12 d² weights here, because there is no cross-attention.",
            lambda: 12.0 * 16 * 768,
        ),
        WrongNumber(
            "a table for each end",
            "Input and output share one table, so it is compared with the layers once, not twice.",
            lambda: 6.0 * 12 * 768,
        ),
        WrongNumber(
            "twelve times the width",
            "Either one layer was counted, or a layer as one square matrix. All twelve layers are "
            "asked for, and each has 12 d².",
            lambda: 12.0 * 768,
        ),
    ],
)

EXERCISES = {
    "shapes": _SHAPES,
    "order": _ORDER,
    "most": _MOST,
    "gpt2": _GPT2,
    "vocabulary": _VOCABULARY,
    "decoder_parameters": _DECODER,
    "total": _TOTAL,
    "crossover": _CROSSOVER,
}
