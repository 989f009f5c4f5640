"""Questions of the assignment: config_parameters, decode_flops, step_shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

# --- config_parameters ----------------------------------------------------------------------------


Config = dict[str, int | bool]


def _config_parameters(config: Config) -> int:
    d, d_ff, v = (int(config[n]) for n in ("d_model", "d_ff", "vocab_size"))
    enc, dec = int(config["encoder_layers"]), int(config["decoder_layers"])
    with torch.device("meta"):
        e = torch.nn.TransformerEncoderLayer(d, 1, d_ff)
        c = torch.nn.TransformerDecoderLayer(d, 1, d_ff)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (e, c)]
    norms = 4 * d if config["norm_first"] else 0
    positions = int(config["max_len"]) * d if config["learned_positions"] else 0
    return (
        enc * sizes[0] + dec * sizes[1] + norms + positions + v * d * (1 if config["tied"] else 3)
    )


@in_parts
def _count(
    decoder_attentions: int = 2, tables: int = 3, biases: bool = True, final: bool = True,
    norm: int = 2, positions: Callable[[int, bool], int] = lambda rows, learned: rows * learned,
    heads: bool = False,
    decoder_norms: int = 3, ends: Callable[[int], int] = lambda norm: norm + norm,
    bias: Callable[[int], int] | None = None,
) -> Callable[[Config], int]:  # fmt: skip
    def answer(config: Config) -> int:
        d, d_ff = config["d_model"], config["d_ff"]
        attention = 4 * d * (d + biases)
        ffn = 2 * d * d_ff + (d_ff + d) * biases
        enc = config["encoder_layers"] * (attention + ffn + 2 * norm * d)
        dec = config["decoder_layers"] * (
            decoder_attentions * attention + ffn + decoder_norms * norm * d
        )
        total = enc + dec + config["vocab_size"] * d * (1 if config["tied"] else tables)
        if final and config["norm_first"]:
            total += ends(norm) * d
        if bias:
            total += bias(config["vocab_size"])
        total += positions(config["max_len"], bool(config["learned_positions"])) * d
        return int(total)

    return answer


def _config_case(name: str, tied: bool, norm_first: bool, learned: bool, d: int = 8, d_ff: int = 32,
                 enc: int = 2, dec: int = 3, v: int = 50, max_len: int = 20) -> Case:  # fmt: skip
    return Case(
        name,
        lambda: ({"d_model": d, "d_ff": d_ff, "encoder_layers": enc, "decoder_layers": dec,
                  "vocab_size": v, "tied": tied, "norm_first": norm_first,
                  "learned_positions": learned, "max_len": max_len},),
    )  # fmt: skip


CONFIG_PARAMETERS = Exercise(
    title="The parameters of a configuration",
    oracle=_config_parameters,
    cases=[
        _config_case("tied: the base model", True, False, False, 512, 2048, 6, 6, 37000, 0),
        _config_case("tied: Pre-Norm", True, True, False),
        _config_case("tied: learned positions", True, False, True),
        _config_case("tied: an encoder only", True, False, False, enc=4, dec=0),
        _config_case("untied: the base model", False, False, False, 512, 2048, 6, 6, 37000, 0),
        _config_case("untied: Pre-Norm, learned positions", False, True, True),
        _config_case("untied: a wide layer", False, False, False, 16, 200),
    ],
    variants=(_count(),),
    wrong=(
        WrongAnswer(
            "one attention in a decoder layer",
            "A decoder layer has two: over its own tokens and over the memory.",
            _count(decoder_attentions=1),
        ),
        WrongAnswer(
            "two tables when untied",
            "Untied, there are three: source embedding, target embedding and output layer.",
            _count(tables=2),
        ),
        WrongAnswer(
            "biases forgotten",
            "All eight linear maps of a decoder layer's attentions, and both of the "
            "feed-forward part, have biases here.",
            _count(biases=False),
        ),
        WrongAnswer(
            "final norms forgotten",
            "With Pre-Norm each stack ends with a norm of its own.",
            _count(final=False),
        ),
        WrongAnswer(
            "norms without a bias",
            "A LayerNorm has a gain and a bias: 2 d_model.",
            _count(norm=1),
        ),
        WrongAnswer(
            "learned positions forgotten",
            "Learned positions are a table of max_len rows, which both stacks share here.",
            _count(positions=lambda rows, learned: 0),
        ),
        WrongAnswer(
            "two norms in a decoder layer",
            "Three sublayers have three norms: two for attention, one for the FFN.",
            _count(decoder_norms=2),
        ),
        WrongAnswer(
            "one final norm for both stacks",
            "Encoder and decoder are two stacks, and each ends with a norm of its own.",
            _count(ends=lambda norm: norm),
        ),
        WrongAnswer(
            "positions counted though they are not learned",
            "Sinusoidal positions are computed. Only with `learned_positions` is there a table.",
            _count(positions=lambda rows, learned: rows),
        ),
        WrongAnswer(
            "output layer with a bias",
            "The text says that the output has no bias, tied or not.",
            _count(bias=lambda vocab_size: vocab_size),
        ),
    ),
)


# --- decode_flops ---------------------------------------------------------------------------------


def _decode_flops(
    t: int, src_len: int, d_model: int, d_ff: int, num_layers: int, vocab_size: int
) -> int:
    products = [
        *[(1, d_model, d_model)] * 4,  # q, k, v and output over its own tokens
        (1, d_model, t), (1, t, d_model),
        *[(1, d_model, d_model)] * 2,  # q and output over the memory
        (1, d_model, src_len), (1, src_len, d_model),
        (1, d_model, d_ff), (1, d_ff, d_model),
    ]  # fmt: skip
    layer = sum(2 * m * k * n for m, k, n in products)
    return num_layers * layer + 2 * d_model * vocab_size


@in_parts
def _step_flops(
    cross: int = 4, two: int = 2, head: bool = True, own: Callable[[int], int] = lambda t: t,
    products: int = 2, per_layer: bool = True, memory: int = 0,
    ffn: Callable[[int, int], int] = lambda d, d_ff: d * d_ff + d * d_ff,
    seen: Callable[[int, int], int] = lambda own, s: own + s,
) -> Callable[..., int]:  # fmt: skip
    def answer(t: int, s: int, d: int, d_ff: int, layers: int, v: int) -> int:
        weights = (4 + cross // 2) * d * d + ffn(d, d_ff) + 2 * memory * s * d * d
        layer = two * (weights + products * d * seen(own(t), s))
        return (layers if per_layer else 1) * layer + (two * d * v if head else 0)

    return answer


DECODE_FLOPS = Exercise(
    title="The FLOPs of one decoding step with caches",
    oracle=_decode_flops,
    cases=[
        Case("values: an early step", lambda: (1, 20, 64, 256, 2, 100)),
        Case("values: a late step", lambda: (50, 20, 64, 256, 2, 100)),
        Case("values: the base model", lambda: (30, 30, 512, 2048, 6, 37000)),
        Case("values: one layer", lambda: (5, 7, 16, 48, 1, 30)),
        Case("values: a long source", lambda: (3, 4000, 64, 256, 4, 100)),
    ],
    variants=(_step_flops(),),
    wrong=(
        WrongAnswer(
            "keys and values of the memory made again",
            "They do not depend on the step, so they are cached once after the encoder.",
            _step_flops(memory=1),
        ),
        WrongAnswer(
            "multiplications only",
            "A multiplication and its addition count as two.",
            _step_flops(two=1),
        ),
        WrongAnswer(
            "output layer forgotten",
            "Every step ends with a product with the (d_model, vocab_size) matrix.",
            _step_flops(head=False),
        ),
        WrongAnswer(
            "all earlier steps again",
            "With a cache only one row of queries is new: t scores for each head dimension, "
            "not t squared.",
            _step_flops(own=lambda t: t * t),
        ),
        WrongAnswer(
            "scores without values",
            "Attention has two products with the cache: scores, and the sum of the values.",
            _step_flops(products=1),
        ),
        WrongAnswer(
            "own token not counted",
            "The new token attends to itself, so t counts it: the caches hold t rows.",
            _step_flops(own=lambda t: t - 1),
        ),
        WrongAnswer(
            "cross-attention's projections forgotten",
            "The query and the output of cross-attention are made anew in every step.",
            _step_flops(cross=0),
        ),
        WrongAnswer(
            "a single layer",
            "Every one of the num_layers layers does this work, one after the other.",
            _step_flops(per_layer=False),
        ),
        WrongAnswer(
            "one matrix in the feed-forward part",
            "The feed-forward part goes from d_model to d_ff and back again.",
            _step_flops(ffn=lambda d, d_ff: d * d_ff),
        ),
        WrongAnswer(
            "memory not attended to",
            "The new token is compared with the src_len tokens of the source too.",
            _step_flops(seen=lambda own, s: own),
        ),
    ),
)

# --- step_shapes ----------------------------------------------------------------------------------


Shapes = list[tuple[int, ...]]


def _step_shapes(
    batch: int, t: int, src_len: int, d_model: int, num_heads: int, vocab_size: int
) -> Shapes:
    d = d_model // num_heads
    q, k, memory = (torch.empty(batch, num_heads, n, d, device="meta") for n in (1, t, src_len))
    own, cross = q @ k.mT, q @ memory.mT
    merged = (cross @ memory).transpose(1, 2).flatten(2)
    logits = torch.empty(batch, 1, d_model, device="meta") @ torch.empty(
        d_model, vocab_size, device="meta"
    )
    return [tuple(x.shape) for x in (q, k, own, memory, cross, merged, logits)]


@in_parts
def _shaped(
    new: Callable[[int], int] = lambda t: 1,
    width: Callable[[int, int], int] = lambda d, h: d // h,
    cached: Callable[[int], int] = lambda t: t,
    swap: bool = False,
    heads: bool = True,
    memory: Callable[[int, int], int] = lambda s, t: s,
    then: Callable[[Shapes], Shapes] = lambda rows: rows,
) -> Callable[..., Shapes]:
    def answer(b: int, t: int, s: int, d: int, h: int, v: int) -> Shapes:
        n, c, m, w = new(t), cached(t), memory(s, t), width(d, h)
        rows: Shapes = [
            (b, h, n, w), (b, h, c, w), (b, h, n, c), (b, h, m, w), (b, h, n, m),
            (b, n, d), (b, n, v),
        ]  # fmt: skip
        if swap:
            rows[2], rows[4] = (b, h, c, n), (b, h, m, n)
        if not heads:
            rows[2], rows[4] = (b, n, c), (b, n, m)
        return then(rows)

    return answer


def _squeezed(rows: Shapes) -> Shapes:
    return [r if k in (1, 3) else (*r[:-2], r[-1]) for k, r in enumerate(rows)]


def _heads_behind(rows: Shapes) -> Shapes:
    return [(r[0], r[2], r[1], r[3]) if k in (0, 1, 3) else r for k, r in enumerate(rows)]


STEP_SHAPES = Exercise(
    title="The shapes of one decoding step",
    oracle=_step_shapes,
    cases=[
        Case("values: a late step", lambda: (2, 7, 5, 12, 3, 40)),
        Case("values: an early step", lambda: (3, 2, 9, 8, 2, 30)),
        Case("values: the base model", lambda: (8, 30, 25, 512, 8, 37000)),
        Case("values: one head", lambda: (4, 6, 3, 16, 1, 50)),
        Case("values: one sequence, step 1", lambda: (1, 1, 4, 8, 4, 20)),
    ],
    variants=(_shaped(),),
    wrong=(
        WrongAnswer(
            "all tokens as queries",
            "With a cache only the newest token is a query; earlier rows are not made again.",
            _shaped(new=lambda t: t),
        ),
        WrongAnswer(
            "heads of full width",
            "The heads share the width of the model: each has d_model / num_heads features.",
            _shaped(width=lambda d, h: d),
        ),
        WrongAnswer(
            "new token not in the cache",
            "Its key and value are appended first, so that the cache holds t rows.",
            _shaped(cached=lambda t: t - 1),
        ),
        WrongAnswer(
            "scores transposed",
            "Queries are the rows of the scores, keys the columns.",
            _shaped(swap=True),
        ),
        WrongAnswer(
            "one score matrix for all heads",
            "Every head has its own scores.",
            _shaped(heads=False),
        ),
        WrongAnswer(
            "memory as long as the target",
            "Cross-attention looks at the source: its keys and values have src_len rows.",
            _shaped(memory=lambda s, t: t),
        ),
        WrongAnswer(
            "dimension of the new token dropped",
            "Every result keeps its dimension for the one new token, with the size 1.",
            _shaped(then=_squeezed),
        ),
        WrongAnswer(
            "heads behind the tokens",
            "The heads are dimension 1, so that each head has a matrix of its tokens.",
            _shaped(then=_heads_behind),
        ),
        WrongAnswer(
            "logits of all tokens",
            "Earlier tokens have been chosen: only what follows the newest is asked for.",
            _shaped(then=lambda rows: [*rows[:6], (rows[6][0], rows[1][2], rows[6][2])]),
        ),
        WrongAnswer(
            "heads not merged",
            "Before the output projection the heads stand side by side again, as one vector per "
            "token.",
            _shaped(then=lambda rows: [*rows[:5], rows[0], rows[6]]),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "config_parameters": CONFIG_PARAMETERS,
    "decode_flops": DECODE_FLOPS,
    "step_shapes": STEP_SHAPES,
}
