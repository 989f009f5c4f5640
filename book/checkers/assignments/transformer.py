"""Assignment 5, chapters 2 and 10: masks, cached memory, losses, beams, and counts of a model."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts


def _tokens(*shape: int, low: int = 0, high: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


# --- prefix_mask ----------------------------------------------------------------------------------


def _prefix_mask(length: int, prefixes: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.zeros(len(prefixes), length, length, dtype=torch.bool)
    for b, (prefix, real) in enumerate(zip(prefixes.tolist(), lengths.tolist(), strict=True)):
        for i in range(length):
            mask[b, i, : min(max(i + 1, prefix), real)] = True
    return mask


@in_parts
def _prefix(
    both: bool = False, off: int = 0, pad: bool = True, turned: bool = False, causal: bool = True,
    flip: bool = False,
) -> Callable[[int, Tensor, Tensor], Tensor]:  # fmt: skip
    def answer(length: int, prefixes: Tensor, lengths: Tensor) -> Tensor:
        i = torch.arange(length)
        past = i[:, None] >= i
        inside = i < prefixes[:, None, None] + off
        if both:
            inside = inside & inside.mT
        if flip:
            inside = inside.mT
        mask = (past if causal else torch.zeros_like(past)) | inside
        if pad:
            mask = mask & (i < lengths[:, None, None])
        return ~mask if turned else mask

    return answer


PREFIX_MASK = Exercise(
    title="The mask of a prefix language model",
    oracle=_prefix_mask,
    cases=[
        Case("values: one prefix of 3", lambda: (6, torch.tensor([3]), torch.tensor([6]))),
        Case(
            "values: prefixes of different length",
            lambda: (5, torch.tensor([1, 2, 4]), torch.tensor([5, 5, 5])),
        ),
        Case(
            "values: prefixes and padding", lambda: (6, torch.tensor([2, 3]), torch.tensor([4, 6]))
        ),
        Case("corners: no prefix", lambda: (4, torch.tensor([0, 0]), torch.tensor([4, 4]))),
        Case("corners: nothing but a prefix", lambda: (4, torch.tensor([4]), torch.tensor([4]))),
        Case(
            "corners: a prefix longer than the text",
            lambda: (5, torch.tensor([4, 3]), torch.tensor([2, 5])),
        ),
        Case("corners: one token", lambda: (1, torch.tensor([0, 1]), torch.tensor([1, 1]))),
    ],
    variants=(_prefix(), _prefix(both=True)),
    wrong=(
        WrongAnswer(
            "causal everywhere",
            "Inside the prefix attention goes both ways: later prefix tokens are visible too.",
            _prefix(off=-1000),
        ),
        WrongAnswer(
            "prefix one too long",
            "A prefix of p tokens holds the positions 0 to p - 1.",
            _prefix(off=1),
        ),
        WrongAnswer(
            "queries of the prefix see everything",
            "Prefix tokens may see the prefix, not the text that follows it.",
            _prefix(flip=True),
        ),
        WrongAnswer(
            "later tokens see the prefix only",
            "Behind the prefix a token sees the prefix and everything up to itself.",
            _prefix(causal=False),
        ),
        WrongAnswer(
            "padding not masked",
            "No query may attend to positions from lengths[b] on.",
            _prefix(pad=False),
        ),
        WrongAnswer(
            "True where attention is forbidden",
            "In this book, as in F.scaled_dot_product_attention, True means: may attend.",
            _prefix(turned=True),
        ),
    ),
)

# --- cross_attention_step -------------------------------------------------------------------------


def _cross(
    x: Tensor, keys: Tensor, values: Tensor, w_q: Tensor, w_o: Tensor, lengths: Tensor
) -> Tensor:
    b, heads, s, d = keys.shape
    q = (x @ w_q).reshape(b, -1, heads, d).transpose(1, 2)
    mask = torch.arange(s) < lengths[:, None, None, None]
    y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    return y.transpose(1, 2).flatten(2) @ w_o


@in_parts
def _look(
    scale: Callable[[Tensor, Tensor], float] = lambda x, k: k.shape[-1] ** -0.5,
    pad: str = "before", merge: bool = True, view: bool = False, causal: bool = False,
    project: bool = True,
) -> Callable[..., Tensor]:  # fmt: skip
    def answer(
        x: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_o: Tensor, lengths: Tensor
    ) -> Tensor:
        b, heads, s, d = k.shape
        t = x.shape[1]
        q = x @ w_q
        q = q.reshape(b, heads, t, d) if view else q.reshape(b, t, heads, d).transpose(1, 2)
        scores = q @ k.mT * scale(x, k)
        padding = torch.arange(s) >= lengths[:, None, None, None]
        if pad == "before":
            scores = scores.masked_fill(padding, -math.inf)
        if causal:
            scores = scores.masked_fill(~torch.ones(t, s, dtype=torch.bool).tril(), -math.inf)
        a = scores.softmax(-1)
        if pad == "after":
            a = a.masked_fill(padding, 0.0)
        y = a @ v
        y = y.transpose(1, 2).reshape(b, t, -1) if merge else y.reshape(b, t, -1)
        return y @ w_o if project else y

    return answer


def _cross_by_head(
    x: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_o: Tensor, lengths: Tensor
) -> Tensor:
    heads, d = k.shape[1], k.shape[-1]
    total = torch.zeros(*x.shape[:2], w_o.shape[1], dtype=x.dtype)
    far = (torch.arange(k.shape[2]) >= lengths[:, None])[:, None]
    for h in range(heads):
        part = slice(h * d, (h + 1) * d)
        scores = (x @ w_q[:, part]) @ k[:, h].mT / math.sqrt(d)
        total = total + scores.masked_fill(far, -math.inf).softmax(-1) @ v[:, h] @ w_o[part]
    return total


def _cross_case(name: str, b: int, t: int, s: int, heads: int, d: int, lengths: list[int],
                scale: float = 1.0) -> Case:  # fmt: skip
    width = heads * d
    return Case(
        name,
        lambda: (draw(b, t, width, seed=1, scale=scale), draw(b, heads, s, d, seed=2),
                 draw(b, heads, s, d, seed=3), draw(width, width, seed=4),
                 draw(width, width, seed=5), torch.tensor(lengths)),
        EXACT,
    )  # fmt: skip


CROSS_ATTENTION_STEP = Exercise(
    title="Cross-attention to a memory that is cached",
    oracle=_cross,
    cases=[
        _cross_case("values: three queries", 2, 3, 5, 2, 4, [5, 5]),
        _cross_case("values: padding", 3, 2, 4, 2, 3, [4, 2, 1]),
        _cross_case("values: four heads", 1, 4, 6, 4, 2, [6]),
        _cross_case("corners: one step", 2, 1, 5, 2, 3, [5, 3]),
        _cross_case("corners: everything of one size", 3, 3, 3, 3, 3, [3, 2, 1]),
        _cross_case("corners: more queries than keys", 2, 5, 2, 2, 3, [2, 1]),
        _cross_case("corners: large scores", 2, 2, 4, 2, 3, [4, 3], scale=100.0),
    ],
    variants=(_look(), _cross_by_head),
    wrong=(
        WrongAnswer(
            "padding of the memory not masked",
            "Keys from lengths[b] on belong to no source token.",
            _look(pad="no"),
        ),
        WrongAnswer(
            "padding masked after the softmax",
            "Weights that are set to 0 after the softmax leave the others too small.",
            _look(pad="after"),
        ),
        WrongAnswer(
            "causal mask over the memory",
            "The source is known as a whole. Every target token may look at all of it.",
            _look(causal=True),
        ),
        WrongAnswer(
            "scaled by the width of the model",
            "The scalar products have head_dim terms, so they are divided by sqrt(head_dim).",
            _look(scale=lambda x, k: x.shape[-1] ** -0.5),
        ),
        WrongAnswer(
            "not scaled",
            "The scores are divided by sqrt(head_dim).",
            _look(scale=lambda x, k: 1.0),
        ),
        WrongAnswer(
            "heads merged without a transpose",
            "Bring (batch, heads, tokens, d) back to (batch, tokens, heads, d) before merging.",
            _look(merge=False),
        ),
        WrongAnswer(
            "heads cut by a view",
            "Split the features into heads first, then exchange tokens and heads.",
            _look(view=True),
        ),
        WrongAnswer(
            "output projection forgotten",
            "The merged heads go through w_o.",
            _look(project=False),
        ),
    ),
)

# --- smoothed_loss --------------------------------------------------------------------------------


def _smoothed_loss(logits: Tensor, target: Tensor, pad: int, smoothing: float) -> Tensor:
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad, label_smoothing=smoothing
    )


@in_parts
def _smoothed(
    uniform: Callable[[Tensor, int, Tensor], Tensor] = lambda logp, pad, right: logp.mean(-1),
    count: Callable[[Tensor], Tensor | int] = lambda real: real.sum(),
    real: Callable[[Tensor, int], Tensor] = lambda t, pad: t != pad,
    weight: Callable[[float], float] = lambda s: 1 - s,
    per_row: bool = False,
) -> Callable[..., Tensor]:
    def answer(logits: Tensor, target: Tensor, pad: int, smoothing: float) -> Tensor:
        logp = logits.log_softmax(-1)
        right = logp.gather(-1, target[..., None])[..., 0]
        loss = -weight(smoothing) * right - smoothing * uniform(logp, pad, right)
        kept = real(target, pad)
        loss = loss.masked_fill(~kept, 0.0)
        if per_row:
            return (loss.sum(-1) / kept.sum(-1)).mean()
        return loss.sum() / count(kept)

    return answer


def _others(logp: Tensor, pad: int, right: Tensor) -> Tensor:
    return (logp.sum(-1) - right) / (logp.shape[-1] - 1)


def _without_pad(logp: Tensor, pad: int, right: Tensor) -> Tensor:
    return (logp.sum(-1) - logp[..., pad]) / (logp.shape[-1] - 1)


def _loss_case(name: str, b: int, t: int, v: int, pad: int, smoothing: float,
               lengths: list[int], scale: float = 1.0) -> Case:  # fmt: skip
    def inputs() -> tuple[object, ...]:
        target = _tokens(b, t, high=v, seed=4)
        target = torch.where(target == pad, (pad + 1) % v, target)
        for row, n in enumerate(lengths):
            target[row, n:] = pad
        return draw(b, t, v, seed=3, scale=scale).requires_grad_(), target, pad, smoothing

    return Case(name, inputs, EXACT, grad=True)


SMOOTHED_LOSS = Exercise(
    title="Label smoothing with padding",
    oracle=_smoothed_loss,
    cases=[
        _loss_case("values: a tenth, no padding", 2, 4, 6, 0, 0.1, [4, 4]),
        _loss_case("values: padding", 3, 5, 7, 0, 0.1, [5, 2, 3]),
        _loss_case("values: much smoothing", 2, 4, 5, 0, 0.6, [4, 1]),
        _loss_case("corners: no smoothing", 2, 4, 6, 0, 0.0, [4, 2]),
        _loss_case("corners: the last token is the padding", 2, 4, 6, 5, 0.1, [3, 2]),
        _loss_case("corners: large logits", 2, 4, 6, 0, 0.2, [3, 4], scale=1000.0),
        _loss_case("corners: a sequence of padding only", 2, 3, 5, 0, 0.1, [3, 0]),
    ],
    variants=(
        _smoothed(),
        lambda logits, target, pad, s: (
            torch.logsumexp(logits, -1)
            - (1 - s) * logits.gather(-1, target[..., None])[..., 0]
            - s * logits.mean(-1)
        )[target != pad].mean(),
    ),
    wrong=(
        WrongAnswer(
            "padding counted in the mean",
            "Padding adds nothing to the sum, so it may not count in the denominator.",
            _smoothed(count=lambda real: real.numel()),
        ),
        WrongAnswer(
            "padding scored",
            "Positions whose target is padding have no loss.",
            _smoothed(real=lambda t, pad: torch.ones_like(t, dtype=torch.bool)),
        ),
        WrongAnswer(
            "smoothing over the other classes",
            "torch spreads the smoothing evenly over all classes, the right one included.",
            _smoothed(uniform=_others),
        ),
        WrongAnswer(
            "padding left out of the uniform part",
            "Tensor2tensor leaves the padding class out. torch, and the task, do not.",
            _smoothed(uniform=_without_pad),
        ),
        WrongAnswer(
            "mean of the sequences' means",
            "Every token weighs the same: one mean over all real tokens.",
            _smoothed(per_row=True),
        ),
        WrongAnswer(
            "right class not reduced",
            "The smoothing is taken from the right class, which keeps 1 - smoothing.",
            _smoothed(weight=lambda s: 1.0),
        ),
        WrongAnswer(
            "padding taken to be token 0",
            "The index of the padding is an argument.",
            _smoothed(real=lambda t, pad: t != 0),
        ),
    ),
)

# --- beam_step ------------------------------------------------------------------------------------

Beams = tuple[Tensor, Tensor]


def _beam_step(beams: Tensor, scores: Tensor, log_probs: Tensor, eos: int, pad: int) -> Beams:
    candidates: list[tuple[float, list[int]]] = []
    for row, score, nexts in zip(beams.tolist(), scores.tolist(), log_probs.tolist(), strict=True):
        if eos in row:
            candidates.append((score, [*row, pad]))
            continue
        candidates += [(score + p, [*row, token]) for token, p in enumerate(nexts)]
    best = sorted(candidates, key=lambda c: -c[0])[: len(beams)]
    return (
        torch.tensor([row for _, row in best]),
        torch.tensor([score for score, _ in best], dtype=scores.dtype),
    )


@in_parts
def _beamed(
    freeze: str = "pad", joint: bool = True, add: bool = True, order: str = "beam",
    mean: bool = False,
) -> Callable[..., Beams]:  # fmt: skip
    def answer(beams: Tensor, scores: Tensor, log_probs: Tensor, eos: int, pad: int) -> Beams:
        k, v = log_probs.shape
        done = (beams == eos).any(-1)
        steps = log_probs.clone()
        if freeze == "pad":
            steps[done] = -math.inf
            steps[done, pad] = 0.0
        elif freeze == "dropped":
            steps[done] = -math.inf
        elif freeze == "copies":
            steps[done] = 0.0
        elif freeze == "charged":
            kept = steps[done, pad]
            steps[done] = -math.inf
            steps[done, pad] = kept
        totals = (scores[:, None] if add else 0.0) + steps
        if mean:
            totals = totals / (beams.shape[1] + 1)
        if joint:
            best, where = totals.flatten().topk(k)
            rows, tokens = where // v, where % v
            if order == "token":
                rows, tokens = where % k, where // k
        else:
            best, tokens = totals.max(-1)
            rows = torch.arange(k)
        kept_rows = beams if order == "stay" else beams[rows]
        return torch.cat([kept_rows, tokens[:, None]], 1), best

    return answer


def _beam_case(name: str, rows: list[list[int]], scores: list[float], v: int = 6, seed: int = 0,
               even: bool = False, eos: int = 2, pad: int = 0) -> Case:  # fmt: skip
    def inputs() -> tuple[object, ...]:
        logits = draw(len(rows), v, seed=seed, scale=0.2 if even else 1.5)
        return (
            torch.tensor(rows), torch.tensor(scores, dtype=torch.float64), logits.log_softmax(-1),
            eos, pad,
        )  # fmt: skip

    return Case(name, inputs, EXACT)


BEAM_STEP = Exercise(
    title="One step of a beam search",
    oracle=_beam_step,
    cases=[
        _beam_case("values: two beams", [[1, 3], [1, 4]], [-0.5, -0.9]),
        _beam_case("values: both from one beam", [[1, 3], [1, 4]], [-0.1, -6.0], even=True),
        _beam_case(
            "values: three beams", [[1, 3, 3], [1, 4, 5], [1, 5, 5]], [-1.0, -1.2, -1.5], seed=1
        ),
        _beam_case("values: another draw", [[1, 5], [1, 3]], [-0.7, -0.8], seed=3),
        _beam_case("finished: the better beam has ended", [[1, 2], [1, 4]], [-0.5, -0.9]),
        _beam_case("finished: other special tokens", [[0, 5], [0, 4]], [-0.5, -0.9], eos=5, pad=1),
        _beam_case("finished: the worse beam has ended", [[1, 3], [1, 2]], [-0.5, -1.0], even=True),
        _beam_case("finished: both have ended", [[1, 3, 2], [1, 2, 0]], [-1.1, -1.4]),
        _beam_case(
            "finished: one of three, far behind",
            [[1, 3], [1, 2], [1, 4]],
            [-0.5, -90.0, -0.6],
            seed=2,
        ),
    ],
    variants=(_beamed(),),
    wrong=(
        WrongAnswer(
            "finished beams go on",
            "A beam with eos is complete: it stays in the race with its score, and gets padding.",
            _beamed(freeze="no"),
        ),
        WrongAnswer(
            "finished beams thrown away",
            "A complete sequence may still be the best. It keeps its place by its score.",
            _beamed(freeze="dropped"),
        ),
        WrongAnswer(
            "finished beams copied for every token",
            "A complete beam is one candidate. With a score for each token it fills all places.",
            _beamed(freeze="copies"),
        ),
        WrongAnswer(
            "padding charged to a finished beam",
            "Its sequence has ended, so no further log-probability is added.",
            _beamed(freeze="charged"),
        ),
        WrongAnswer(
            "best token of each beam",
            "The beams compete: both survivors may come from the same one. Take the best of all.",
            _beamed(joint=False),
        ),
        WrongAnswer(
            "old scores forgotten",
            "The score of a longer sequence is the old score plus the new log-probability.",
            _beamed(add=False),
        ),
        WrongAnswer(
            "beam and token exchanged",
            "In (beams, vocabulary) the flat index is beam * vocabulary + token.",
            _beamed(order="token"),
        ),
        WrongAnswer(
            "rows not reordered",
            "The survivor continues its own beam: take the rows that the best scores came from.",
            _beamed(order="stay"),
        ),
    ),
)

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
    norm: int = 2, positions: bool = True, heads: bool = False, decoder_norms: int = 3,
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
            total += 2 * norm * d
        if positions and config["learned_positions"]:
            total += config["max_len"] * d
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
            _count(positions=False),
        ),
        WrongAnswer(
            "two norms in a decoder layer",
            "Three sublayers have three norms: two for attention, one for the FFN.",
            _count(decoder_norms=2),
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
) -> Callable[..., int]:  # fmt: skip
    def answer(t: int, s: int, d: int, d_ff: int, layers: int, v: int) -> int:
        weights = (4 + cross // 2) * d * d + 2 * d * d_ff + 2 * memory * s * d * d
        layer = two * (weights + products * d * (own(t) + s))
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
    ),
)

# --- training_pair --------------------------------------------------------------------------------


def _training_pair(tokens: Tensor, bos: int, eos: int, pad: int) -> Beams:
    width = tokens.shape[1] + 1
    inputs, labels = [], []
    for row in tokens.tolist():
        real = [t for t in row if t != pad]
        inputs.append([bos, *real] + [pad] * (width - len(real) - 1))
        labels.append([*real, eos] + [pad] * (width - len(real) - 1))
    return torch.tensor(inputs), torch.tensor(labels)


@in_parts
def _pair(
    place: str = "end of text", start: bool = True, end_in_input: bool = False, cut: bool = False,
) -> Callable[..., Beams]:  # fmt: skip
    def answer(tokens: Tensor, bos: int, eos: int, pad: int) -> Beams:
        b = len(tokens)
        lengths = (tokens != pad).sum(1)
        more = F.pad(tokens, (0, 1), value=pad)
        if place == "end of text":
            labels = more.scatter(1, lengths[:, None], eos)
        elif place == "last column":
            labels = more.clone()
            labels[:, -1] = eos
        else:
            labels = more
        first = torch.full((b, 1), bos)
        source = labels[:, :-1] if end_in_input else tokens
        inputs = torch.cat([first, source], 1) if start else more
        if cut:
            return inputs[:, :-1], labels[:, :-1]
        return inputs, labels

    return answer


def _padded(*rows: list[int], pad: int = 0) -> Tensor:
    width = max(len(r) for r in rows)
    return torch.tensor([r + [pad] * (width - len(r)) for r in rows])


TRAINING_PAIR = Exercise(
    title="Decoder input and labels from padded sequences",
    oracle=_training_pair,
    cases=[
        Case("values: one full sequence", lambda: (_padded([5, 6, 7]), 1, 2, 0)),
        Case(
            "values: sequences of different length",
            lambda: (_padded([5, 6, 7, 8], [4, 3], [9]), 1, 2, 0),
        ),
        Case("values: other special tokens", lambda: (_padded([5, 6, 0], [7], pad=13), 11, 12, 13)),
        Case("corners: an empty sequence", lambda: (_padded([5, 6], []), 1, 2, 0)),
        Case("corners: one token", lambda: (_padded([5]), 1, 2, 0)),
        Case("corners: tokens equal to each other", lambda: (_padded([5, 5, 5], [5, 5]), 1, 2, 0)),
    ],
    variants=(_pair(),),
    wrong=(
        WrongAnswer(
            "eos in the last column",
            "eos follows the last real token, before the padding, or short sequences learn to "
            "go on with padding.",
            _pair(place="last column"),
        ),
        WrongAnswer(
            "no eos at all",
            "Without eos among the labels the model never learns to stop.",
            _pair(place="nowhere"),
        ),
        WrongAnswer(
            "input not shifted",
            "At each position the decoder may see earlier tokens only: start with bos.",
            _pair(start=False),
        ),
        WrongAnswer(
            "eos fed into the decoder",
            "Nothing is predicted after eos, so a short sequence's input is padding there.",
            _pair(end_in_input=True),
        ),
        WrongAnswer(
            "last column cut off",
            "n tokens give n + 1 predictions, the last one being eos.",
            _pair(cut=True),
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
    new: Callable[[int], int] = lambda t: 1, width: Callable[[int, int], int] = lambda d, h: d // h,
    cached: Callable[[int], int] = lambda t: t, swap: bool = False, heads: bool = True,
    memory: Callable[[int, int], int] = lambda s, t: s,
) -> Callable[..., Shapes]:  # fmt: skip
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
        return rows

    return answer


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
    ),
)

EXERCISES: dict[str, Exercise] = {
    "prefix_mask": PREFIX_MASK,
    "cross_attention_step": CROSS_ATTENTION_STEP,
    "smoothed_loss": SMOOTHED_LOSS,
    "beam_step": BEAM_STEP,
    "config_parameters": CONFIG_PARAMETERS,
    "decode_flops": DECODE_FLOPS,
    "training_pair": TRAINING_PAIR,
    "step_shapes": STEP_SHAPES,
}
