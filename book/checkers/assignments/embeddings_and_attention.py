"""Assignment 2, chapters 4 and 5: positions with a cache, masks, biases, attention backwards."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts


def _tokens(*shape: int, high: int = 7, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def _frequencies(d: int, base: float = 10000.0) -> Tensor:
    return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)


# --- embed_at -------------------------------------------------------------------------------------


def _positions(start: int, length: int, d: int) -> Tensor:
    angle = torch.arange(start, start + length)[:, None] * _frequencies(d)
    # exp(i a) has (cos, sin); the encoding has (sin, cos).
    return torch.view_as_real(torch.polar(torch.ones_like(angle), angle)).flip(-1).flatten(-2)


def _embed_at(tokens: Tensor, weight: Tensor, offset: int) -> Tensor:
    d = weight.shape[1]
    return F.embedding(tokens, weight) * math.sqrt(d) + _positions(offset, tokens.shape[1], d)


def _table(length: int, d: int, halves: bool = False, step: int = 2) -> Tensor:
    angle = torch.arange(length)[:, None] * 10000.0 ** (
        -step * torch.arange(d // 2, dtype=torch.float64) / d
    )
    if halves:
        return torch.cat([angle.sin(), angle.cos()], -1)
    table = torch.empty(length, d, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


@in_parts
def _embed(
    scale: Callable[[int], float] = math.sqrt,
    first: Callable[[int], int] = lambda offset: offset,
    halves: bool = False,
    step: int = 2,
    scale_all: bool = False,
) -> Callable[[Tensor, Tensor, int], Tensor]:
    def answer(tokens: Tensor, weight: Tensor, offset: int) -> Tensor:
        d, start = weight.shape[1], max(first(offset), 0)
        positions = _table(start + tokens.shape[1], d, halves, step)[start:]
        if scale_all:
            return scale(d) * (weight[tokens] + positions)
        return scale(d) * weight[tokens] + positions

    return answer


def _embed_across(tokens: Tensor, weight: Tensor, offset: int) -> Tensor:
    d = weight.shape[1]
    rows = _table(offset + len(tokens), d)[offset:]
    return weight[tokens] * math.sqrt(d) + rows[:, None]


EMBED_AT = Exercise(
    title="Tokens and positions, with an offset for a cache",
    oracle=_embed_at,
    cases=[
        Case("values: from the start", lambda: (_tokens(2, 5), draw(7, 8), 0), EXACT),
        Case("values: five tokens into a text", lambda: (_tokens(2, 3), draw(7, 8), 5), EXACT),
        Case("values: width 6", lambda: (_tokens(3, 4), draw(7, 6), 2), EXACT),
        Case("corners: one new token, far on", lambda: (_tokens(2, 1), draw(7, 8), 4000), EXACT),
        Case("corners: as many sequences as tokens", lambda: (_tokens(4, 4), draw(7, 4), 1), EXACT),
        Case("corners: width 2", lambda: (_tokens(1, 6), draw(7, 2), 3), EXACT),
        Case(
            "corners: gradients of the table",
            lambda: (_tokens(2, 5), draw(7, 4).requires_grad_(), 2),
            EXACT,
            grad=True,
        ),
    ],
    variants=(_embed(),),
    wrong=(
        WrongAnswer(
            "offset ignored",
            "With a cache the new tokens stand at positions offset, offset + 1 and so on.",
            _embed(first=lambda offset: 0),
        ),
        WrongAnswer(
            "offset one too small",
            "Positions count from 0, so after `offset` tokens the next one stands at `offset`.",
            _embed(first=lambda offset: offset - 1),
        ),
        WrongAnswer(
            "embedding not scaled",
            "Rows of the table are multiplied by sqrt(d_model) before positions are added.",
            _embed(scale=lambda d: 1.0),
        ),
        WrongAnswer(
            "positions scaled too",
            "Only the embedding is multiplied by sqrt(d_model). The encoding is added as it is.",
            _embed(scale_all=True),
        ),
        WrongAnswer(
            "sines in one half and cosines in the other",
            "Feature 2i holds the sine and 2i + 1 the cosine of the same angle.",
            _embed(halves=True),
        ),
        WrongAnswer(
            "frequencies fall half as fast",
            "The exponent is -2i / d_model for the pair i. With i / d_model the slowest pair is "
            "a hundred times too fast.",
            _embed(step=1),
        ),
        WrongAnswer(
            "positions along the batch",
            "Positions run along the sequence, dimension 1. All sequences share them.",
            _embed_across,
        ),
    ),
)

# --- move_back ------------------------------------------------------------------------------------


def _move_back(encodings: Tensor, k: float, base: float) -> Tensor:
    pairs = torch.view_as_complex(torch.unflatten(encodings, -1, (-1, 2)).flip(-1).contiguous())
    angle = -k * _frequencies(encodings.shape[-1], base)
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flip(-1).flatten(-2)


@in_parts
def _turned(
    sign: float = 1.0, halves: bool = False, step: float = 1.0, one_angle: bool = False,
    base: float | None = None, shear: float = 1.0,
) -> Callable[[Tensor, float, float], Tensor]:  # fmt: skip
    def answer(encodings: Tensor, k: float, own_base: float) -> Tensor:
        d = encodings.shape[-1]
        angle = sign * k * _frequencies(d, base or own_base) ** step
        angle = angle[:1].expand(d // 2) if one_angle else angle
        c, s = angle.cos(), angle.sin()
        if halves:
            sine, cosine = encodings.chunk(2, -1)
            return torch.cat([sine * c - cosine * s, cosine * c + sine * s], -1)
        sine, cosine = encodings[..., 0::2], encodings[..., 1::2]
        return torch.stack([sine * c - cosine * s, cosine * c + shear * sine * s], -1).flatten(-2)

    return answer


def _encodings(positions: list[float], d: int, base: float = 10000.0) -> Tensor:
    angle = torch.tensor(positions, dtype=torch.float64)[:, None] * _frequencies(d, base)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


MOVE_BACK = Exercise(
    title="Move encodings back without knowing their positions",
    oracle=_move_back,
    cases=[
        Case("values: three places back", lambda: (_encodings([3, 4, 9], 8), 3, 10000.0), EXACT),
        Case("values: one place back", lambda: (_encodings([1, 7], 4), 1, 10000.0), EXACT),
        Case("values: another base", lambda: (_encodings([2, 5, 6], 8, 100.0), 2, 100.0), EXACT),
        Case("corners: half a place", lambda: (_encodings([0.5, 2], 6), 0.5, 10000.0), EXACT),
        Case(
            "corners: forward, by a negative k", lambda: (_encodings([0, 1], 6), -4, 10000.0), EXACT
        ),
        Case("corners: nowhere", lambda: (_encodings([5], 6), 0, 10000.0), EXACT),
        Case("corners: beyond the start", lambda: (_encodings([1], 8), 40, 10000.0), EXACT),
        Case("corners: far back", lambda: (_encodings([700], 8), 401, 10000.0), EXACT),
    ],
    variants=(_turned(),),
    wrong=(
        WrongAnswer(
            "moved forward",
            "sin(a - b) = sin a cos b - cos a sin b. The other sign adds the offset.",
            _turned(sign=-1.0),
        ),
        WrongAnswer(
            "halves taken as pairs",
            "The sine and the cosine of one angle are neighbours: features 2i and 2i + 1.",
            _turned(halves=True),
        ),
        WrongAnswer(
            "one angle for all pairs",
            "Pair i turns by k times its own frequency, base ** (-2i / d_model).",
            _turned(one_angle=True),
        ),
        WrongAnswer(
            "exponent without the 2",
            "The frequency of pair i is base ** (-2i / d_model), not its root.",
            _turned(step=0.5),
        ),
        WrongAnswer(
            "base fixed at 10000",
            "The base is an argument; the frequencies of the encodings depend on it.",
            _turned(base=10000.0),
        ),
        WrongAnswer(
            "matrix that does not turn",
            "In a rotation the two sines have opposite signs. With equal ones lengths change.",
            _turned(shear=-1.0),
        ),
    ),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the text leaves the dtype open"),
)

# --- tied_backward --------------------------------------------------------------------------------


def _tied_backward(
    grad_embedded: Tensor, grad_logits: Tensor, tokens: Tensor, h: Tensor, weight: Tensor
) -> Tensor:
    w = weight.detach().clone().requires_grad_()
    scaled = F.embedding(tokens, w) * math.sqrt(w.shape[1])
    total = (scaled * grad_embedded).sum() + (F.linear(h, w) * grad_logits).sum()
    return torch.autograd.grad(total, w)[0]


@in_parts
def _tied(
    lookup: bool = True, head: bool = True, scale: Callable[[int], float] = math.sqrt,
    add: bool = True, scale_head: bool = False,
) -> Callable[..., Tensor]:  # fmt: skip
    def answer(ge: Tensor, gl: Tensor, tokens: Tensor, h: Tensor, weight: Tensor) -> Tensor:
        d = weight.shape[1]
        rows = torch.zeros_like(weight)
        sent = scale(d) * ge.reshape(-1, d)
        if add:
            rows.index_add_(0, tokens.flatten(), sent)
        else:
            for token, row in zip(tokens.flatten().tolist(), sent, strict=True):
                rows[token] = row
        columns = torch.einsum("...v,...d->vd", gl, h)
        columns = columns * (math.sqrt(d) if scale_head else 1.0)
        return rows * lookup + columns * head

    return answer


def _tied_one_hot(ge: Tensor, gl: Tensor, tokens: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    v, d = weight.shape
    hot = F.one_hot(tokens.flatten(), v).to(ge.dtype)
    root: float = d**0.5
    return root * hot.T @ ge.reshape(-1, d) + gl.reshape(-1, v).T @ h.reshape(-1, d)


def _tied_case(name: str, tokens: Callable[[], Tensor], v: int = 7, d: int = 4) -> Case:
    def inputs() -> tuple[Tensor, ...]:
        t = tokens()
        return (
            draw(*t.shape, d, seed=1), draw(*t.shape, v, seed=2), t, draw(*t.shape, d, seed=3),
            draw(v, d, seed=4),
        )  # fmt: skip

    return Case(name, inputs, EXACT)


TIED_BACKWARD = Exercise(
    title="The gradient of a matrix that is used twice",
    oracle=_tied_backward,
    cases=[
        _tied_case("values: two sequences", lambda: _tokens(2, 5)),
        _tied_case("values: width 6", lambda: _tokens(2, 3), d=6),
        _tied_case("values: distinct tokens", lambda: torch.arange(6)[None]),
        _tied_case("corners: one token again and again", lambda: torch.full((2, 4), 3)),
        _tied_case("corners: a single token", lambda: _tokens(1, 1)),
        _tied_case("corners: vocabulary as large as the width", lambda: _tokens(2, 5, high=4), v=4),
    ],
    variants=(_tied(), _tied_one_hot),
    wrong=(
        WrongAnswer(
            "only the lookup counted",
            "The output head uses the same matrix, so its gradient is added.",
            _tied(head=False),
        ),
        WrongAnswer(
            "only the output head counted",
            "The lookup uses the same matrix, so the gradients of its rows are added.",
            _tied(lookup=False),
        ),
        WrongAnswer(
            "scale of the embedding forgotten",
            "The lookup is multiplied by sqrt(d_model), and so is what comes back through it.",
            _tied(scale=lambda d: 1.0),
        ),
        WrongAnswer(
            "divided by the scale",
            "A factor of the forward pass is the same factor, not its inverse, backwards.",
            _tied(scale=lambda d: d**-0.5),
        ),
        WrongAnswer(
            "head scaled too",
            "Only the lookup is multiplied by sqrt(d_model); the logits are h @ weight.T.",
            _tied(scale_head=True),
        ),
        WrongAnswer(
            "repeated tokens written over",
            "A token that occurs twice gets both gradients: add them, do not assign them.",
            _tied(add=False),
        ),
    ),
)

# --- biased_attention -----------------------------------------------------------------------------


def _distance(q: Tensor, k: Tensor) -> Tensor:
    rows, columns = q.shape[-2], k.shape[-2]
    return torch.arange(columns - rows, columns)[:, None] - torch.arange(columns)


def _biased_attention(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
    distance = _distance(query, key)
    bias = -slopes[:, None, None] * distance
    bias = bias.masked_fill(distance < 0, -math.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


@in_parts
def _biased(
    sign: float = -1.0, align: bool = True, causal: bool = True, inside: bool = False,
    after: bool = False, per_head: bool = True, reverse: bool = False,
) -> Callable[..., Tensor]:  # fmt: skip
    def answer(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
        rows, columns = q.shape[-2], k.shape[-2]
        first = columns - rows if align else 0
        distance = torch.arange(first, first + rows)[:, None] - torch.arange(columns)
        slope = slopes if per_head else slopes[:1].expand(len(slopes))
        bias = sign * slope[:, None, None] * (distance.abs() if not causal else distance)
        scores = q @ k.mT
        root = q.shape[-1] ** 0.5
        scores = (scores + bias) / root if inside else scores / root + (0 if after else bias)
        if causal:
            scores = scores.masked_fill(distance < 0, -math.inf)
        weights = scores.softmax(-1)
        if after:
            weights = weights * bias.exp()
        found: Tensor = weights @ v
        return found

    return answer


def _attended(
    heads: int, rows: int, columns: int, slopes: list[float], d: int = 4, scale: float = 1.0
) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (
        draw(2, heads, rows, d, seed=1, scale=scale),
        draw(2, heads, columns, d, seed=2, scale=scale),
        draw(2, heads, columns, 3, seed=3), torch.tensor(slopes, dtype=torch.float64),
    )  # fmt: skip


def _attended_leaves() -> tuple[Tensor, ...]:
    q, k, v, slopes = _attended(2, 4, 4, [0.5, 0.25])()
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), slopes


BIASED_ATTENTION = Exercise(
    title="Causal attention that favours near keys",
    oracle=_biased_attention,
    cases=[
        Case("values: two heads", _attended(2, 5, 5, [0.5, 0.1]), EXACT),
        Case("values: four heads", _attended(4, 4, 4, [1.0, 0.5, 0.25, 0.125], d=6), EXACT),
        Case("values: gradients", _attended_leaves, EXACT, grad=True),
        Case("corners: three queries and a cache", _attended(2, 3, 7, [0.5, 0.1]), EXACT),
        Case("corners: one query and a cache", _attended(2, 1, 6, [0.5, 2.0]), EXACT),
        Case("corners: slopes of zero", _attended(2, 4, 4, [0.0, 0.0]), EXACT),
        Case("corners: scores of size 1000", _attended(2, 4, 6, [0.5, 0.1], scale=30.0), EXACT),
        Case("corners: as many heads as tokens", _attended(3, 3, 3, [0.5, 0.3, 0.1]), EXACT),
    ],
    variants=(_biased(),),
    wrong=(
        WrongAnswer(
            "far keys favoured",
            "The bias is minus slope times distance, so that far keys get smaller scores.",
            _biased(sign=1.0),
        ),
        WrongAnswer(
            "aligned at the top left",
            "The last query stands at the last key. Query i is at key_len - query_len + i.",
            _biased(align=False),
        ),
        WrongAnswer(
            "future not masked",
            "A bias makes later keys less likely, and the mask has to exclude them.",
            _biased(causal=False),
        ),
        WrongAnswer(
            "bias divided by sqrt(d) too",
            "Only the scalar products are scaled; the bias is added after that.",
            _biased(inside=True),
        ),
        WrongAnswer(
            "bias applied after the softmax",
            "Weights that are multiplied after the softmax no longer sum to 1. Add the bias to "
            "the scores.",
            _biased(after=True),
        ),
        WrongAnswer(
            "one slope for all heads",
            "Head h has slopes[h]. They line up with dimension 1 of the scores.",
            _biased(per_head=False),
        ),
    ),
)

# --- window_mask ----------------------------------------------------------------------------------


def _window_mask(query_len: int, key_len: int, window: int, lengths: Tensor) -> Tensor:
    mask = torch.zeros(len(lengths), query_len, key_len, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        for i in range(query_len):
            at = key_len - query_len + i
            for j in range(max(0, at - window + 1), min(at + 1, length)):
                mask[b, i, j] = True
    return mask


@in_parts
def _window(
    align: bool = True, wide: int = 0, future: bool = False, pad: bool = True,
    turned: bool = False, left: bool = False,
) -> Callable[[int, int, int, Tensor], Tensor]:  # fmt: skip
    def answer(query_len: int, key_len: int, window: int, lengths: Tensor) -> Tensor:
        first = key_len - query_len if align else 0
        distance = torch.arange(first, first + query_len)[:, None] - torch.arange(key_len)
        near = (
            distance.abs() < window + wide
            if future
            else (distance >= 0) & (distance < window + wide)
        )
        columns = torch.arange(key_len)
        if left:
            columns = columns.flip(0)
        real = columns < lengths[:, None, None]
        mask = near & (real if pad else torch.ones_like(real))
        return ~mask if turned else mask

    return answer


WINDOW_MASK = Exercise(
    title="The mask of a sliding window with padding",
    oracle=_window_mask,
    cases=[
        Case("values: a window of 3", lambda: (6, 6, 3, torch.tensor([6, 6]))),
        Case("values: sequences of different length", lambda: (5, 5, 2, torch.tensor([5, 3, 4]))),
        Case("values: a window wider than the text", lambda: (4, 4, 9, torch.tensor([4, 2]))),
        Case("corners: two new queries and a cache", lambda: (2, 7, 3, torch.tensor([7, 6]))),
        Case("corners: one query", lambda: (1, 5, 2, torch.tensor([5, 4, 3]))),
        Case("corners: a window of 1", lambda: (4, 4, 1, torch.tensor([4, 4]))),
        Case("corners: queries that see nothing", lambda: (5, 5, 2, torch.tensor([0, 1]))),
    ],
    variants=(_window(),),
    wrong=(
        WrongAnswer(
            "aligned at the top left",
            "The last query stands at the last key. Query i is at key_len - query_len + i.",
            _window(align=False),
        ),
        WrongAnswer(
            "window one too wide",
            "A window of w keys ends w - 1 places back: the query's own place is one of them.",
            _window(wide=1),
        ),
        WrongAnswer(
            "window one too narrow",
            "A window of w keys holds the query's own place and w - 1 places before it.",
            _window(wide=-1),
        ),
        WrongAnswer(
            "window on both sides",
            "The mask is causal: no query may attend to a later key.",
            _window(future=True),
        ),
        WrongAnswer(
            "padding not masked",
            "Keys from lengths[b] on are padding, and no query of sequence b may attend to them.",
            _window(pad=False),
        ),
        WrongAnswer(
            "padding taken to be at the left",
            "The first lengths[b] keys of a sequence are real; the padding follows.",
            _window(left=True),
        ),
        WrongAnswer(
            "True where attention is forbidden",
            "In this book, as in F.scaled_dot_product_attention, True means: may attend.",
            _window(turned=True),
        ),
    ),
)

# --- memory_backward ------------------------------------------------------------------------------


def _memory_backward(
    grad_out: Tensor, weights: Tensor, memory: Tensor, w_v: Tensor
) -> tuple[Tensor, ...]:
    return gradients(lambda a, m, w: a @ (m @ w), grad_out, weights, memory, w_v)


def _remember(
    of_a: Callable[..., Tensor] = lambda g, a, m, w: g @ (m @ w).mT,
    of_m: Callable[..., Tensor] = lambda g, a, m, w: a.mT @ g @ w.T,
    of_w: Callable[..., Tensor] = lambda g, a, m, w: (m.mT @ a.mT @ g).sum(0),
) -> Callable[..., tuple[Tensor, ...]]:
    return lambda g, a, m, w: (of_a(g, a, m, w), of_m(g, a, m, w), of_w(g, a, m, w))


def _remember_einsum(g: Tensor, a: Tensor, m: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    at_values = torch.einsum("bts,btd->bsd", a, g)
    return (
        torch.einsum("btd,bse,ed->bts", g, m, w),
        torch.einsum("bsd,ed->bse", at_values, w),
        torch.einsum("bse,bsd->ed", m, at_values),
    )


def _memory_case(name: str, b: int, t: int, s: int, d_m: int, d: int) -> Case:
    return Case(
        name,
        lambda: (draw(b, t, d, seed=1), draw(b, t, s, seed=2).softmax(-1),
                 draw(b, s, d_m, seed=3), draw(d_m, d, seed=4)),
        EXACT,
    )  # fmt: skip


MEMORY_BACKWARD = Exercise(
    title="The values of cross-attention, backwards",
    oracle=_memory_backward,
    cases=[
        _memory_case("values: three queries, five keys", 2, 3, 5, 4, 6),
        _memory_case("values: five queries, three keys", 2, 5, 3, 6, 4),
        _memory_case("values: one sequence", 1, 3, 4, 5, 2),
        _memory_case("corners: everything of one size", 3, 3, 3, 3, 3),
        _memory_case("corners: a single key", 2, 3, 1, 4, 4),
        _memory_case("corners: a single query", 2, 1, 4, 3, 5),
    ],
    variants=(_remember(), _remember_einsum),
    wrong=(
        WrongAnswer(
            "attention weights not transposed",
            "Key j gets what arrived at every query i, times the weight of j there: the "
            "transposed matrix of weights.",
            _remember(of_m=lambda g, a, m, w: a @ g @ w.T),
        ),
        WrongAnswer(
            "value matrix left out",
            "The memory goes through w_v, so what comes back goes through its transpose.",
            _remember(of_m=lambda g, a, m, w: a.mT @ g),
        ),
        WrongAnswer(
            "value matrix not transposed",
            "What comes back through m @ w_v is multiplied by w_v transposed.",
            _remember(of_m=lambda g, a, m, w: a.mT @ g @ w),
        ),
        WrongAnswer(
            "gradient of w_v not summed over the batch",
            "All sequences share w_v, so its gradient is the sum over them.",
            _remember(of_w=lambda g, a, m, w: m.mT @ a.mT @ g),
        ),
        WrongAnswer(
            "gradient of w_v averaged over the batch",
            "The gradients of the sequences add up. A mean belongs into the loss.",
            _remember(of_w=lambda g, a, m, w: (m.mT @ a.mT @ g).mean(0)),
        ),
        WrongAnswer(
            "weights multiplied in",
            "The gradient of the weights themselves is asked for. A factor of the weights belongs "
            "to the softmax before them.",
            _remember(of_a=lambda g, a, m, w: a * (g @ (m @ w).mT)),
        ),
    ),
)

# --- split_qkv ------------------------------------------------------------------------------------


def _split_qkv(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    parts = torch.unflatten(qkv, -1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def _split_by_chunks(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    return tuple(torch.stack(part.chunk(num_heads, -1), 1) for part in qkv.chunk(3, -1))


def _split(
    cut: Callable[[Tensor], tuple[Tensor, ...]],
) -> Callable[[Tensor, int], tuple[Tensor, ...]]:
    def answer(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
        return tuple(torch.unflatten(t, -1, (num_heads, -1)).transpose(1, 2) for t in cut(qkv))

    return answer


def _split_by_view(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    b, t, width = qkv.shape
    d = width // 3 // num_heads
    return tuple(p.reshape(b, num_heads, t, d) for p in qkv.chunk(3, -1))


def _split_per_head(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    return tuple(torch.unflatten(qkv, -1, (num_heads, 3, -1)).permute(3, 0, 2, 1, 4))


def _split_dims_first(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    return tuple(
        torch.unflatten(p, -1, (-1, num_heads)).permute(0, 3, 1, 2) for p in qkv.chunk(3, -1)
    )


def _split_leaf() -> tuple[Tensor, int]:
    return draw(2, 3, 12).requires_grad_(), 2


SPLIT_QKV = Exercise(
    title="Repair the split of a fused projection into heads",
    oracle=_split_qkv,
    cases=[
        Case("values: two heads", lambda: (draw(2, 3, 12), 2), EXACT),
        Case("values: four heads", lambda: (draw(1, 5, 24), 4), EXACT),
        Case("values: gradients", _split_leaf, EXACT, grad=True),
        Case("corners: one head", lambda: (draw(2, 3, 12), 1), EXACT),
        Case("corners: heads of one feature", lambda: (draw(2, 3, 9), 3), EXACT),
        Case("corners: as many tokens as heads", lambda: (draw(2, 3, 27), 3), EXACT),
        Case("corners: not contiguous", lambda: (draw(3, 2, 12).transpose(0, 1), 2), EXACT),
    ],
    variants=(_split_by_chunks, _split(lambda qkv: qkv.chunk(3, -1))),
    wrong=(
        WrongAnswer(
            "tokens and heads mixed by a view",
            "A view to (batch, heads, tokens, d) cuts the memory in the wrong order: split the "
            "features first, then exchange the two dimensions.",
            _split_by_view,
        ),
        WrongAnswer(
            "q, k and v cut inside each head",
            "All of q comes first, then all of k, then all of v. Cut into three before heads.",
            _split_per_head,
        ),
        WrongAnswer(
            "heads interleaved",
            "Head h has d_head neighbouring features, so (heads, d_head) and not the reverse.",
            _split_dims_first,
        ),
        WrongAnswer(
            "keys and queries exchanged",
            "The order of the fused projection is q, k, v.",
            lambda qkv, h: tuple(_split_qkv(qkv, h)[i] for i in (1, 0, 2)),
        ),
        WrongAnswer(
            "transpose forgotten",
            "Attention runs over the last but one dimension, so tokens stand there and heads "
            "before them.",
            lambda qkv, h: tuple(torch.unflatten(p, -1, (h, -1)) for p in qkv.chunk(3, -1)),
        ),
        WrongAnswer(
            "every third feature",
            "q, k and v are three blocks of neighbouring features, not every third feature.",
            _split(lambda qkv: (qkv[..., 0::3], qkv[..., 1::3], qkv[..., 2::3])),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "embed_at": EMBED_AT,
    "move_back": MOVE_BACK,
    "tied_backward": TIED_BACKWARD,
    "biased_attention": BIASED_ATTENTION,
    "window_mask": WINDOW_MASK,
    "memory_backward": MEMORY_BACKWARD,
    "split_qkv": SPLIT_QKV,
}
