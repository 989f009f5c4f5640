"""Questions of the assignment: biased_attention, window_mask, memory_backward, split_qkv."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

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


def _biased_by(
    scores: Callable[[Tensor, Tensor], Tensor] = lambda q, k: q @ k.mT / q.shape[-1] ** 0.5,
    slope: Callable[[Tensor], Tensor] = lambda slopes: slopes[:, None, None],
    hidden: float = -math.inf,
    late: bool = False,
) -> Callable[..., Tensor]:
    """The same with its masking replaced; `late` masks the weights instead of the scores."""

    def answer(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
        distance = _distance(q, k)
        biased = scores(q, k) - slope(slopes) * distance
        future = distance < 0
        if late:
            return biased.softmax(-1).masked_fill(future, 0.0) @ v
        return biased.masked_fill(future, hidden).softmax(-1) @ v

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
        WrongAnswer(
            "scores not scaled",
            "The scalar products grow with the width of a head. They are divided by its root.",
            _biased_by(scores=lambda q, k: q @ k.mT),
        ),
        WrongAnswer(
            "masked scores set to 0",
            "A score of 0 is no small one: the softmax still gives it weight.",
            _biased_by(hidden=0.0),
        ),
        WrongAnswer(
            "masked after the softmax",
            "The later keys have taken their share of the weights by then, and what is left no "
            "longer sums to 1.",
            _biased_by(late=True),
        ),
        WrongAnswer(
            "slopes along the batch",
            "Slopes that line up with dimension 0 belong to the sequences. That fits by accident "
            "where there are as many of those as heads.",
            _biased_by(slope=lambda slopes: slopes[:, None, None, None]),
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


def _window_short(query_len: int, key_len: int, window: int, lengths: Tensor) -> Tensor:
    mask: Tensor = _window()(query_len, key_len, window, lengths + 1)
    return mask


def _window_of_real(query_len: int, key_len: int, window: int, lengths: Tensor) -> Tensor:
    own = torch.arange(key_len - query_len, key_len)[:, None]
    return _window_mask(query_len, key_len, window, lengths) & (own < lengths[:, None, None])


def _window_opened(query_len: int, key_len: int, window: int, lengths: Tensor) -> Tensor:
    mask = _window_mask(query_len, key_len, window, lengths)
    return mask | ~mask.any(-1, keepdim=True)


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
        WrongAnswer(
            "first key of the padding seen",
            "Keys count from 0, so that key number lengths[b] is padding already.",
            _window_short,
        ),
        WrongAnswer(
            "queries of the padding masked too",
            "Only keys are masked by the length. What a query of the padding gives is not used, "
            "and the text does not take its keys away.",
            _window_of_real,
        ),
        WrongAnswer(
            "queries without keys given all of them",
            "A query may be left without any key, and its row is False then. To open it lets it "
            "see padding and later keys.",
            _window_opened,
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


def _through_softmax(g: Tensor, a: Tensor, m: Tensor, w: Tensor) -> Tensor:
    arrived = g @ (m @ w).mT
    return a * (arrived - (a * arrived).sum(-1, keepdim=True))


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
        WrongAnswer(
            "softmax's own backward added",
            "What arrives at the weights is asked for. That the softmax takes off the mean of it "
            "comes one step later.",
            _remember(of_a=_through_softmax),
        ),
        WrongAnswer(
            "memory in place of the values",
            "The weights multiply the values, memory @ w_v, and not the memory itself.",
            _remember(of_a=lambda g, a, m, w: g @ m.mT),
        ),
        WrongAnswer(
            "attention weights left out of the gradient of w_v",
            "A row of the memory has its part in the output by the weights alone. They stand "
            "between it and what arrives.",
            _remember(of_w=lambda g, a, m, w: (m.mT @ g).sum(0)),
        ),
        WrongAnswer(
            "gradient of w_v transposed",
            "w_v is (d_m, d) here, and multiplied from the right. The shape (d, d_m) is that of "
            "the weight of an nn.Linear.",
            _remember(of_w=lambda g, a, m, w: (g.mT @ a @ m).sum(0)),
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


def _split_as_given(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    b, t, width = qkv.shape
    return qkv.reshape(b, num_heads, t, width // num_heads).chunk(3, dim=-1)


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
        WrongAnswer(
            "the version that was to be repaired",
            "It has the right shapes only: its heads hold numbers of several tokens, and each of "
            "the three results has numbers of all of q, k and v.",
            _split_as_given,
        ),
        WrongAnswer(
            "keys and values exchanged",
            "The values come last in the fused projection, behind the keys.",
            lambda qkv, h: tuple(_split_qkv(qkv, h)[i] for i in (0, 2, 1)),
        ),
        WrongAnswer(
            "tokens and features of a head exchanged",
            "The features of a head are its last dimension, for the keys too: the scores "
            "transpose them when they are made.",
            lambda qkv, h: tuple(p.mT for p in _split_qkv(qkv, h)),
        ),
        WrongAnswer(
            "batch and heads in one dimension",
            "Four dimensions are asked for: sequences and heads keep a dimension each.",
            lambda qkv, h: tuple(p.flatten(0, 1) for p in _split_qkv(qkv, h)),
        ),
    ),
)


EXERCISES = {
    "biased_attention": BIASED_ATTENTION,
    "window_mask": WINDOW_MASK,
    "memory_backward": MEMORY_BACKWARD,
    "split_qkv": SPLIT_QKV,
}
