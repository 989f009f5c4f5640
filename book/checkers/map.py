"""The exercises of chapter 02: shapes, wires, parameters and operations.

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

from book.checkers.core import Case, Exercise, Rule, WrongAnswer, in_parts
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


# --- fault(model, src, tgt) -----------------------------------------------------------------------

FAULTS = ("memory", "mask", "positions")


class _Wired(nn.Module):
    """The whole model out of torch's layers, with some of its wires in the wrong place.

    `memories` says for each decoder layer what it gets: the output of encoder layer `k`, counted
    from the end, so that -1 is right; "source" is what goes into the encoder, and "target" what
    the decoder layer itself gets. `masks` says for each decoder layer from which diagonal on the
    scores are hidden: 1 is right, and None hides nothing.
    """

    def __init__(
        self,
        seed: int,
        encoder_layers: int,
        memories: Sequence[int | str],
        masks: Sequence[int | None],
        places: str = "added",
    ) -> None:
        super().__init__()
        d, generator = 12, torch.Generator().manual_seed(seed)
        sizes: dict[str, Any] = {"dropout": 0.0, "batch_first": True}
        self.table, self.positions = nn.Embedding(20, d), nn.Embedding(9, d)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 3, 20, **sizes),
            encoder_layers,
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(d, 3, 20, **sizes), len(masks)
        )
        self.linear = nn.Linear(d, 20)
        self.memories, self.masks, self.places = memories, masks, places
        self.double()
        for p in self.parameters():
            # Large enough for every wire to show, and no two layers are equal.
            p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.6
            p.requires_grad_(False)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Tokens (B, S) and (B, T) -> logits (B, T, 20)."""
        x, y = self.table(src), self.table(tgt) + self.positions.weight[: tgt.shape[1]]
        if self.places == "added":
            x = x + self.positions.weight[: src.shape[1]]
        elif self.places == "the first one":
            x = x + self.positions.weight[0]
        source, outputs = x, []
        for layer in self.encoder.layers:
            x = layer(x)
            outputs.append(x)
        size = tgt.shape[1]
        for layer, from_, diagonal in zip(
            self.decoder.layers, self.memories, self.masks, strict=True
        ):
            memory = {"source": source, "target": y}.get(str(from_))
            if memory is None:
                memory = outputs[int(from_)]
            mask = None
            if diagonal is not None:
                full = torch.full((size, size), -torch.inf, dtype=torch.float64)
                mask = full.triu(diagonal)
            y = layer(y, memory, tgt_mask=mask)
        logits: torch.Tensor = self.linear(y)
        return logits


def _wired(name: str, *wires: Any, lengths: tuple[int, int] = (6, 5), **options: Any) -> Case:
    """A model with two sentences for it, whose tokens all differ."""

    def inputs() -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(len(name))
        tokens = [
            torch.stack([torch.randperm(20, generator=generator)[:n] for _ in range(2)])
            for n in lengths
        ]
        return (_Wired(len(name), *wires, **options), *tokens)

    return Case(name, inputs)


def _inputs_of_layers(
    model: nn.Module, src: torch.Tensor, tgt: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """The logits, the output of each encoder layer, and the memory that each decoder layer gets."""
    made: list[torch.Tensor] = []
    memories: list[torch.Tensor] = []
    wired: Any = model
    handles = [
        layer.register_forward_hook(lambda part, given, out: made.append(out))
        for layer in wired.encoder.layers
    ]
    handles += [
        layer.register_forward_pre_hook(lambda part, given: memories.append(given[1]))
        for layer in wired.decoder.layers
    ]
    try:
        logits = model(src, tgt)
    finally:
        for handle in handles:
            handle.remove()
    return logits, made, memories


Parts = Callable[..., bool]


def _memory_is_wrong(made: list[torch.Tensor], memories: list[torch.Tensor]) -> bool:
    return any(memory is not made[-1] for memory in memories)


def _sees_later(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> bool:
    whole, cut = model(src, tgt)[:, :-1], model(src, tgt[:, :-1])
    return bool((whole - cut).abs().max() > 1e-6)


def _has_no_order(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> bool:
    return bool((model(src, tgt) - model(src.flip(1), tgt)).abs().max() < 1e-6)


@in_parts
def _fault_with(
    *,
    memory: Parts = _memory_is_wrong,
    mask: Parts = _sees_later,
    positions: Parts = _has_no_order,
) -> Callable[..., str]:
    """The right answer, of which one test is another."""

    def fault(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> str:
        _, made, memories = _inputs_of_layers(model, src, tgt)
        if memory(made, memories):
            return "memory"
        if mask(model, src, tgt):
            return "mask"
        return "positions" if positions(model, src, tgt) else "none"

    return fault


def _of_its_own_height(made: list[torch.Tensor], memories: list[torch.Tensor]) -> bool:
    return any(memory is not made[min(k, len(made) - 1)] for k, memory in enumerate(memories))


def _changed_first(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> bool:
    other = tgt.clone()
    other[:, 0] = tgt[:, 1]
    return bool((model(src, tgt) - model(src, other))[:, 1:].abs().max() > 1e-6)


def _first_row_only(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> bool:
    whole, cut = model(src, tgt)[:, 0], model(src, tgt[:, :-1])[:, 0]
    return bool((whole - cut).abs().max() > 1e-6)


def _target_turned(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> bool:
    return bool((model(src, tgt) - model(src, tgt.flip(1))).abs().max() < 1e-6)


def _fault_by_values(model: nn.Module, src: torch.Tensor, tgt: torch.Tensor) -> str:
    """A right answer that compares values, and looks at every place for itself."""
    logits, made, memories = _inputs_of_layers(model, src, tgt)
    if not all(m.shape == made[-1].shape and torch.equal(m, made[-1]) for m in memories):
        return "memory"
    for place in range(1, tgt.shape[1]):
        other = tgt.clone()
        other[:, place] = tgt[:, place - 1]
        if not torch.allclose(model(src, other)[:, :place], logits[:, :place]):
            return "mask"
    return "positions" if torch.allclose(model(src.roll(1, 1), tgt), logits) else "none"


_FAULT = Exercise(
    title="Which translator is broken?",
    oracle=_fault_with(),
    cases=[
        _wired("a right model", 2, [-1, -1], [1, 1]),
        _wired("one layer each, and right", 1, [-1], [1]),
        _wired("three encoder layers, two decoder layers, right", 3, [-1, -1], [1, 1]),
        _wired("each decoder layer gets the encoder layer of its own height", 2, [0, 1], [1, 1]),
        _wired("the last decoder layer gets the first encoder layer", 2, [-1, 0], [1, 1]),
        _wired("the first decoder layer gets the first encoder layer", 2, [0, -1], [1, 1]),
        _wired("the decoder gets the source before the encoder", 2, ["source"] * 2, [1, 1]),
        _wired("the decoder asks itself", 1, ["target"], [1], lengths=(4, 5)),
        _wired("no mask", 2, [-1, -1], [None, None]),
        _wired("no mask in the second decoder layer", 2, [-1, -1], [1, None]),
        _wired("a mask that starts one too late", 1, [-1], [2]),
        _wired("no positions in the source", 2, [-1, -1], [1, 1], places="none"),
        _wired("the same position everywhere", 1, [-1], [1], places="the first one"),
    ],
    wrong=[
        WrongAnswer(
            "only the first decoder layer",
            "Every decoder layer has a cross-attention; the fault may be in a later one.",
            _fault_with(memory=lambda made, memories: memories[0] is not made[-1]),
        ),
        WrongAnswer(
            "the memory by its shape",
            "Every encoder layer returns the same shape. Compare the tensors themselves.",
            _fault_with(
                memory=lambda made, memories: any(m.shape != made[-1].shape for m in memories)
            ),
        ),
        WrongAnswer(
            "each decoder layer with the encoder layer of its height",
            "The memory is the output of the last encoder layer, the same for every decoder layer.",
            _fault_with(memory=_of_its_own_height),
        ),
        WrongAnswer(
            "a right mask is taken for none",
            "Later rows may see earlier tokens, so they change with them in a right model, too. "
            "Change or leave out a later token, and look at the rows before it.",
            _fault_with(mask=_changed_first),
        ),
        WrongAnswer(
            "the mask by the first row and the last token",
            "A mask that starts one place too late lets each row see only the next token: the "
            "first row does not notice the last. Compare all rows but the last.",
            _fault_with(mask=_first_row_only),
        ),
        WrongAnswer(
            "missing positions are not found",
            "The positions asked about are those of the source: turn the source round, and keep "
            "the target. Without positions the logits stay what they were.",
            _fault_with(positions=_target_turned),
        ),
    ],
    variants=[_fault_by_values],
    spared={"default dtype": "the model has a dtype of its own"},
)


# --- estimates ------------------------------------------------------------------------------------

_FETCHED = choice(
    "Another last word",
    right="C",
    because="The head does what it did before: it looks at what came after the earlier “six”, and "
    "that is the comma. The model does not copy it but says the full stop, with which the "
    "second list ends. It needs the head for that: switched off, the full stop is lost.",
    tempting={
        "A": (
            "the same word",
            "The head looks for a row before which the word stood, so it passes by the word itself "
            "and lands one place behind it.",
        ),
        "B": (
            "what the head looks at is what is said",
            "The look at the comma is right. But the parts above the head work on what it "
            "brings, and in the stories no comma follows a second list.",
        ),
        "D": (
            "the list begins again",
            "“lake” comes after the comma. The head looks one place behind the earlier “six”, at "
            "the comma itself, and a second list is not followed by a third.",
        ),
    },
)

_REACH = choice(
    "How far a change reaches",
    right="B",
    because="In the encoder all source rows gather from the changed word, and every row of the "
    "decoder asks them. In the target the mask lets a word into its own row and those behind it.",
    tempting={
        "A": (
            "a word goes where it is needed",
            "A small weight is not 0: softmax gives some to every word that is not masked. So each "
            "row of the decoder gets a little of every source row.",
        ),
        "C": (
            "attention sees everything",
            "That holds for the source. In the target the mask hides later words, so the rows "
            "before “chat” have not heard of it, in any layer.",
        ),
        "D": (
            "the source is masked, too",
            "The source is there as a whole before the first word is written, and row 0 needs its "
            "noun to choose between “le” and “la”. Only the target is masked.",
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

_UNMASKED = choice(
    "Without the mask",
    right="C",
    because="The word that row i has to say stands in row i + 1, and without a mask row i can "
    "read it there. So the rows learn to copy, and the loss cannot tell. In use there is no later "
    "row to copy from.",
    tempting={
        "A": (
            "later words confuse",
            "They do the opposite: the next row holds the very word that is asked for, so every "
            "row is right as long as the translation is read.",
        ),
        "B": (
            "the source is enough",
            "It would be enough, and the masked model shows it. But training takes the easier way: "
            "copying the next row needs no translation.",
        ),
        "D": (
            "a harder task",
            "Without the mask the task gets easier, since the answer can be read. What is learned "
            "then is of no use where it cannot be read.",
        ),
    },
)

EXERCISES = {
    "fetched": _FETCHED,
    "unmasked": _UNMASKED,
    "reach": _REACH,
    "shapes": _SHAPES,
    "fault": _FAULT,
    "gpt2": _GPT2,
    "decoder_parameters": _DECODER,
    "crossover": _CROSSOVER,
}
