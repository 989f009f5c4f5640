"""The exercises of chapter 05: attention, masks, a leak test, heads, and the backward pass.

The oracles are torch's own operators and autograd, never the book's library. As in the other
chapters a builder is the right computation in parts, and a wrong answer replaces one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer

EXACT = 1e-11


def _draw(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    """The same normal numbers on every call."""
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=rng, dtype=torch.float64)


def _lower(t: int, s: int, offset: int = 0) -> Tensor:
    return torch.ones(t, s, dtype=torch.bool).tril(offset)


def _some(*shape: int, seed: int = 9) -> Tensor:
    """A mask in which every query may attend to key 0 and to about half of the others."""
    mask = _draw(*shape, seed=seed) > 0
    mask[..., 0] = True
    return mask


# --- sdpa -----------------------------------------------------------------------------------------


def _sdpa(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


def _qkv(
    name: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    mask: Callable[[], Tensor | None] = lambda: None,
    scale: float = 1.0,
    layout: Callable[[Tensor], Tensor] = lambda t: t,
) -> Case:
    def inputs() -> tuple[Any, ...]:
        tensors = [_draw(*shape, seed=i, scale=scale) for i, shape in enumerate((q, k, v))]
        return (*(layout(t).requires_grad_() for t in tensors), mask())

    return Case(name, inputs, EXACT, grad=True)


def _with_empty_row() -> Tensor:
    mask = _some(4, 5)
    mask[1] = False
    return mask


def _one_sequence_of_padding() -> Tensor:
    mask = _some(2, 1, 1, 5)
    mask[1] = False
    return mask


SDPA_CASES = (
    _qkv("no mask, square", (4, 4), (4, 4), (4, 4)),
    _qkv("more keys than queries", (2, 3, 6), (2, 5, 6), (2, 5, 2)),
    _qkv("more queries than keys", (6, 3), (2, 3), (2, 3)),
    _qkv("batch and heads", (2, 3, 4, 8), (2, 3, 4, 8), (2, 3, 4, 8)),
    _qkv("rows of one feature", (3, 1), (3, 1), (3, 1)),
    _qkv("one query, one key", (1, 4), (1, 4), (1, 4)),
    _qkv("a causal mask", (5, 4), (5, 4), (5, 4), lambda: _lower(5, 5)),
    _qkv("a mask of another shape", (4, 6), (5, 6), (5, 3), lambda: _some(4, 5)),
    _qkv(
        "a padding mask per sequence",
        (2, 3, 4, 6),
        (2, 3, 5, 6),
        (2, 3, 5, 6),
        lambda: _some(2, 1, 1, 5),
    ),
    _qkv("a query that may attend to nothing", (4, 6), (5, 6), (5, 3), _with_empty_row),
    _qkv(
        "a sequence of nothing but padding",
        (2, 2, 4, 6),
        (2, 2, 5, 6),
        (2, 2, 5, 6),
        _one_sequence_of_padding,
    ),
    _qkv("scores of size 1000", (4, 6), (5, 6), (5, 3), lambda: _some(4, 5), scale=25.0),
    _qkv("transposed, not contiguous", (4, 4), (4, 4), (4, 4), layout=lambda t: t.T.detach()),
)

Softmax = Callable[[Tensor], Tensor]


def _sdpa_with(
    *,
    scaled: Callable[[Tensor, int], Tensor] = lambda s, d: s / math.sqrt(d),
    mask: Callable[[Tensor, Tensor], Tensor] = lambda s, m: s.masked_fill(~m, -torch.inf),
    softmax: Softmax = lambda s: s.softmax(-1),
    after: Callable[[Tensor, Tensor], Tensor] = lambda a, m: a,
    guarded: bool = True,
) -> Answer:
    """Attention in parts; `guarded` is the care for rows in which nothing is allowed."""

    def answer(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> Tensor:
        scores = scaled(query @ key.transpose(-2, -1), query.shape[-1])
        if attn_mask is None:
            return softmax(scores) @ value
        empty = ~attn_mask.any(-1, keepdim=True) if guarded else torch.tensor(False)
        weights = softmax(mask(scores, attn_mask | empty))
        return after(weights, attn_mask).masked_fill(empty, 0.0) @ value

    return answer


def _by_exponentials(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    allowed = torch.ones_like(scores) if attn_mask is None else attn_mask.to(scores)
    top = scores.masked_fill(allowed.expand_as(scores) == 0, -torch.inf).amax(-1, keepdim=True)
    shifted = (scores - top.masked_fill(top == -torch.inf, 0.0)).clamp(max=0.0)
    e = allowed * shifted.exp()
    total = e.sum(-1, keepdim=True)
    mean: Tensor = e @ v / total.masked_fill(total == 0, 1.0)
    return mean


SDPA = Exercise(
    title="Scaled dot-product attention",
    oracle=_sdpa,
    cases=SDPA_CASES,
    variants=(
        _sdpa_with(),
        _by_exponentials,
        # The nan of a row without keys, removed after the softmax: the mask stops its gradient.
        _sdpa_with(guarded=False, after=lambda a, m: a.masked_fill(~m, 0.0)),
    ),
    wrong=(
        WrongAnswer(
            "scale forgotten",
            "The scores are divided by the root of the number of features. Without it they grow "
            "with the width and the softmax saturates.",
            _sdpa_with(scaled=lambda s, d: s),
        ),
        WrongAnswer(
            "divided by d in place of its root",
            "The standard deviation of a dot product is the root of d. Divided by d, the scores "
            "shrink as the width grows, and the weights become nearly equal.",
            _sdpa_with(scaled=lambda s, d: s / d),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of each query sum to one, over the keys: that is the last axis of the "
            "scores. Here each key's weights sum to one.",
            _sdpa_with(softmax=lambda s: s.softmax(-2)),
        ),
        WrongAnswer(
            "mask after the softmax",
            "The forbidden keys are still counted in the denominator, so the rows sum to less "
            "than one. Mask the scores with -inf, before the softmax.",
            _sdpa_with(mask=lambda s, m: s, after=lambda a, m: a * m),
        ),
        WrongAnswer(
            "scores multiplied by the mask",
            "A score of 0 is not a forbidden one: it has the weight of exp(0). Set forbidden "
            "scores to -inf.",
            _sdpa_with(mask=lambda s, m: s * m),
        ),
        WrongAnswer(
            "boolean mask added",
            "Adding True to a score raises it by 1. Turn the mask into 0 and -inf first.",
            _sdpa_with(mask=lambda s, m: s + m),
        ),
        WrongAnswer(
            "mask the wrong way round",
            "True means may attend here. `nn.MultiheadAttention` has it the other way round.",
            lambda q, k, v, m: _sdpa_with()(q, k, v, None if m is None else ~m),
        ),
        WrongAnswer(
            "nan where nothing is allowed",
            "A row of nothing but -inf has no softmax. Replace its scores before the softmax and "
            "set its weights to zero afterwards.",
            _sdpa_with(guarded=False),
        ),
        WrongAnswer(
            "the mean where nothing is allowed",
            "With a large negative number in place of -inf such a row becomes the plain mean of "
            "all values, the forbidden ones. It should be zero.",
            _sdpa_with(guarded=False, mask=lambda s, m: s.masked_fill(~m, -1e9)),
        ),
        WrongAnswer(
            "exponentials without the maximum subtracted",
            "exp overflows for scores above 709. Subtract the largest score of each row first, or "
            "call softmax, which does.",
            _sdpa_with(softmax=lambda s: s.exp() / s.exp().sum(-1, keepdim=True)),
        ),
    ),
)


# --- causal_mask ----------------------------------------------------------------------------------


def _causal(query_len: int, key_len: int) -> Tensor:
    places = torch.arange(key_len)
    return places <= places[key_len - query_len :, None]


def _causal_loops(query_len: int, key_len: int) -> Tensor:
    rows = [[j <= i + key_len - query_len for j in range(key_len)] for i in range(query_len)]
    return torch.tensor(rows)


CAUSAL_MASK = Exercise(
    title="A causal mask aligned at the bottom right",
    oracle=_causal,
    cases=tuple(
        Case(name, lambda sizes=sizes: sizes)  # type: ignore[misc]
        for name, sizes in {
            "five queries, five keys": (5, 5),
            "one new query, six keys": (1, 6),
            "two new queries, six keys": (2, 6),
            "three new queries, four keys": (3, 4),
            "one query, one key": (1, 1),
        }.items()
    ),
    variants=(_causal_loops, lambda t, s: _lower(t, s, s - t)),
    wrong=(
        WrongAnswer(
            "aligned at the top left",
            "As torch's `is_causal` does. The first query then sees only the first key, although "
            "it is one of the newest positions.",
            lambda t, s: _lower(t, s),
        ),
        WrongAnswer(
            "diagonal forbidden",
            "A token may attend to itself. Without the diagonal the first one has nothing to see.",
            lambda t, s: _lower(t, s, s - t - 1),
        ),
        WrongAnswer(
            "True = blocked",
            "True means may attend. This is the convention of `nn.MultiheadAttention`.",
            lambda t, s: ~_causal(t, s),
        ),
        WrongAnswer(
            "upper triangle",
            "The rows are queries and the columns keys; keys to the left of the diagonal are in "
            "the past. `triu` keeps the future.",
            lambda t, s: torch.ones(t, s, dtype=torch.bool).triu(s - t),
        ),
        WrongAnswer(
            "an additive mask",
            "0 and -inf are what is added to the scores. Asked for is the boolean mask.",
            lambda t, s: torch.zeros(t, s).masked_fill(~_causal(t, s), -torch.inf),
        ),
        WrongAnswer(
            "keys by queries",
            "There is a row per query and a column per key. This is the transpose.",
            lambda t, s: _causal(t, s).T,
        ),
        WrongAnswer(
            "square, for the keys only",
            "This is the mask of all positions. The queries are only the last of them: keep the "
            "last rows.",
            lambda t, s: _lower(s, s),
        ),
    ),
)


# --- leaks ----------------------------------------------------------------------------------------

Rows = Callable[[Tensor], Tensor]


def _attend(allowed: Rows) -> Rows:
    """Self-attention on x, with the weights that `allowed` makes of the scores."""
    return lambda x: allowed(x @ x.T / math.sqrt(x.shape[1])) @ x


def _past(x: Tensor) -> Tensor:
    return _lower(len(x), len(x))


def _shifted(step: int) -> Rows:
    """Row i is x[i] plus a little of x[i + step]."""
    return lambda x: x + 0.1 * F.pad(x, (0, 0, 0, step))[step:]


def _one_feature(x: Tensor) -> Tensor:
    later = F.pad(x, (0, 0, 0, 1))[1:, 1:2]
    return x.cumsum(0) + later


def _last_to_first(x: Tensor) -> Tensor:
    return torch.cat([x[:1] + x[-1:], x[1:]])


def _only(row: int) -> Rows:
    """One row, and no other, sees the next one."""
    return lambda x: torch.stack([x[i] + (i == row) * x[(i + 1) % len(x)] for i in range(len(x))])


def _rounding(x: Tensor) -> Tensor:
    return x.cumsum(0) + 1e-13 * x.sum(0)


def _sum_free(x: Tensor) -> Tensor:
    """Depends on the differences between the later rows' features only."""
    return x.cumsum(0) + (x - x.mean(1, keepdim=True)).flip(0).cumsum(0).flip(0)


BLACK_BOXES: dict[str, Rows] = {
    "attention with a causal mask": _attend(
        lambda s: s.masked_fill(~_past(s), -torch.inf).softmax(-1)
    ),
    "attention without a mask": _attend(lambda s: s.softmax(-1)),
    "attention with scores times 0": _attend(lambda s: (s * _past(s)).softmax(-1)),
    "attention masked after the softmax": _attend(lambda s: s.softmax(-1) * _past(s)),
    "a running sum": lambda x: x.cumsum(0),
    "each row by itself": lambda x: x.square(),
    "one row ahead": _shifted(1),
    "four rows ahead": _shifted(4),
    "one feature of the next row": _one_feature,
    "the last row seen by the first": _last_to_first,
    "a middle row seen by the one before": _only(2),
    "the last row seen by the one before": _only(4),
    "differences of later features": _sum_free,
    "a running sum with rounding noise": _rounding,
    "a constant": torch.ones_like,
}


def _leaks(f: Rows, x: Tensor) -> bool:
    before = f(x)
    for j in range(1, len(x)):
        changed = x.clone()
        changed[j] += _draw(x.shape[1], seed=j)
        if (f(changed) - before)[:j].abs().amax() > 1e-9:
            return True
    return False


def _leaks_by_prefixes(f: Rows, x: Tensor) -> bool:
    """What comes later is replaced by something else altogether."""
    full = f(x)
    for j in range(1, len(x)):
        other = torch.cat([x[:j], _draw(*x[j:].shape, seed=j)])
        if (f(other) - full)[:j].abs().max() > 1e-9:
            return True
    return False


def _leak_test(
    *,
    changed: Callable[[int], Iterator[int] | range] = lambda n: range(1, n),
    by: Callable[[Tensor], Tensor] = lambda x: torch.arange(1.0, x.shape[1] + 1).to(x),
    seen: Callable[[Tensor, int], Tensor] = lambda moved, j: moved[:j],
    limit: float = 1e-9,
    in_place: bool = False,
) -> Answer:
    """A leak test in parts: which rows are changed, by what, and which are looked at."""

    def answer(f: Rows, x: Tensor) -> bool:
        before = f(x)
        for j in changed(len(x)):
            other = x if in_place else x.clone()
            other[j] += by(x)
            if (seen(f(other) - before, j).abs() > limit).any():
                return True
        return False

    return answer


LEAKS = Exercise(
    title="A leak test for a black box",
    oracle=_leaks,
    cases=tuple(
        Case(name, lambda f=f: (f, _draw(6, 4)))  # type: ignore[misc]
        for name, f in BLACK_BOXES.items()
    ),
    variants=(_leak_test(), _leaks_by_prefixes),
    wrong=(
        WrongAnswer(
            "only the last row changed",
            "The leak may be in the middle of the sequence. Change each row in turn.",
            _leak_test(changed=lambda n: range(n - 1, n)),
        ),
        WrongAnswer(
            "only the first output looked at",
            "All outputs before the changed row must stay, not only the first.",
            _leak_test(seen=lambda moved, j: moved[:1]),
        ),
        WrongAnswer(
            "only the row just before looked at",
            "A leak may jump over rows. Look at all outputs before the changed row.",
            _leak_test(seen=lambda moved, j: moved[j - 1 : j]),
        ),
        WrongAnswer(
            "the changed row's own output looked at",
            "A row may depend on itself. Only the outputs before it must stay.",
            _leak_test(seen=lambda moved, j: moved[: j + 1]),
        ),
        WrongAnswer(
            "all features changed by the same amount",
            "A function that looks at differences of features does not notice that. Change each "
            "feature by another amount.",
            _leak_test(by=torch.ones_like),
        ),
        WrongAnswer(
            "one feature changed",
            "The leak may go through another feature. Change all of them.",
            _leak_test(by=lambda x: torch.eye(x.shape[1])[0].to(x)),
        ),
        WrongAnswer(
            "no room for rounding",
            "A change of 1e-13 is the rounding of another order of summation, not a leak.",
            _leak_test(limit=0.0),
        ),
        WrongAnswer(
            "x changed in place",
            "The changes pile up, and the caller's x is another one afterwards. Change a clone.",
            _leak_test(in_place=True),
        ),
    ),
)


# --- sum_of_heads ---------------------------------------------------------------------------------


def _sum_of_heads(heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(heads.transpose(1, 2).flatten(-2), weight, bias)


def _heads_case(name: str, b: int, h: int, t: int, d: int, out: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = ((b, h, t, d), (out, h * d), (out,))
        return tuple(_draw(*s, seed=i).requires_grad_() for i, s in enumerate(shapes))

    return Case(name, inputs, EXACT, grad=True)


def _by_blocks(heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    blocks = weight.reshape(len(weight), heads.shape[1], -1)
    return bias + torch.einsum("bhtc,ohc->bto", heads, blocks)


def _merge_with(
    *,
    merged: Callable[[Tensor], Tensor] = lambda heads: heads.transpose(1, 2).flatten(-2),
    multiplied: Callable[[Tensor, Tensor], Tensor] = lambda x, w: x @ w.T,
    times_bias: Callable[[int], float] = lambda h: 1.0,
) -> Answer:
    def answer(heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return multiplied(merged(heads), weight) + times_bias(heads.shape[1]) * bias

    return answer


def _averaged(heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    zero = torch.zeros_like(bias)
    return _sum_of_heads(heads, weight, zero) / heads.shape[1] + bias


def _same_block(heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return heads.sum(1) @ weight[:, : heads.shape[-1]].T + bias


SUM_OF_HEADS = Exercise(
    title="Concatenation and W_O as a sum over heads",
    oracle=_sum_of_heads,
    cases=(
        _heads_case("three heads of two features", 2, 3, 4, 2, 6),
        _heads_case("two heads of two features, two positions", 1, 2, 2, 2, 4),
        _heads_case("one head", 2, 1, 3, 4, 4),
        _heads_case("heads of one feature", 1, 4, 3, 1, 4),
        _heads_case("an output of another width", 2, 2, 3, 3, 5),
        _heads_case("a single position", 2, 3, 1, 2, 6),
    ),
    variants=(
        _by_blocks,
        _merge_with(),
    ),
    wrong=(
        WrongAnswer(
            "weight not transposed",
            "torch stores the transpose: `weight` is (out, in), and the layer computes x @ "
            "weight.T. Without the T a square one gives another product.",
            _merge_with(multiplied=lambda x, w: x @ w),
        ),
        WrongAnswer(
            "bias added once per head",
            "The bias belongs to the layer and is added once. Inside the sum it counts H times.",
            _merge_with(times_bias=float),
        ),
        WrongAnswer(
            "bias forgotten",
            "The sum over heads gives x @ weight.T; the bias of the layer is still to be added.",
            _merge_with(times_bias=lambda h: 0.0),
        ),
        WrongAnswer(
            "mean over the heads",
            "The heads add up. Nothing divides by their number.",
            _averaged,
        ),
        WrongAnswer(
            "the same block for all heads",
            "Head h has its own block: columns h*d_head to (h+1)*d_head - 1 of `weight`.",
            _same_block,
        ),
        WrongAnswer(
            "every H-th column",
            "The features of a head are neighbours: head 0 comes first with all its features. "
            "`weight[:, h::H]` takes one feature of each head.",
            _merge_with(merged=lambda heads: heads.permute(0, 2, 3, 1).flatten(-2)),
        ),
        WrongAnswer(
            "view without transpose",
            "The heads must be carried behind the positions before they are put side by side. "
            "A view or reshape of (B, H, T, d_head) mixes positions.",
            _merge_with(
                merged=lambda heads: heads.reshape(len(heads), heads.shape[2], -1),
            ),
        ),
    ),
)


# --- backward -------------------------------------------------------------------------------------


def _backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    q, k, v = leaves
    out = F.scaled_dot_product_attention(q, k, v, scale=scale)
    return torch.autograd.grad((out * grad_out).sum(), leaves)


def _backward_case(name: str, t: int, s: int, d: int, d_v: int, *lead: int, scale: float) -> Case:
    shapes = ((t, d_v), (t, d), (s, d), (s, d_v))
    return Case(
        name,
        lambda: (*(_draw(*lead, *shape, seed=i) for i, shape in enumerate(shapes)), scale),
        EXACT,
    )


def _through_softmax(a: Tensor, grad_a: Tensor) -> Tensor:
    return a * (grad_a - (a * grad_a).sum(-1, keepdim=True))


def _backward_with(
    *,
    through: Callable[[Tensor, Tensor], Tensor] = _through_softmax,
    scale_q: Callable[[float], float] = lambda scale: scale,
    scale_k: Callable[[float], float] = lambda scale: scale,
    to_value: Callable[[Tensor, Tensor], Tensor] = lambda a, g: a.mT @ g,
    to_key: Callable[[Tensor, Tensor], Tensor] = lambda grad_s, q: grad_s.mT @ q,
    swapped: bool = False,
) -> Answer:
    def answer(
        grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, ...]:
        a = (scale * query @ key.mT).softmax(-1)
        grad_s = through(a, grad_out @ value.mT)
        to_query = scale_q(scale) * grad_s @ key
        result = to_query, scale_k(scale) * to_key(grad_s, query), to_value(a, grad_out)
        return result[::-1] if swapped else result

    return answer


def _backward_by_output(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, ...]:
    """The row sums from the output, and the Jacobian of each row written out."""
    a = torch.softmax(scale * torch.einsum("...ic,...jc->...ij", query, key), -1)
    delta = (grad_out * (a @ value)).sum(-1)[..., None]
    grad_s = a * (torch.einsum("...ic,...jc->...ij", grad_out, value) - delta) * scale
    return (
        torch.einsum("...ij,...jc->...ic", grad_s, key),
        torch.einsum("...ij,...ic->...jc", grad_s, query),
        torch.einsum("...ij,...ic->...jc", a, grad_out),
    )


BACKWARD = Exercise(
    title="Attention backwards",
    oracle=_backward,
    cases=(
        _backward_case("square, scale 0.5", 4, 4, 4, 4, scale=0.5),
        _backward_case("more keys than queries", 3, 5, 2, 4, scale=0.7),
        _backward_case("more queries than keys", 6, 2, 3, 3, scale=0.6),
        _backward_case("batch and heads", 4, 5, 3, 2, 2, 3, scale=0.4),
        _backward_case("scale 1", 4, 4, 3, 3, scale=1.0),
        _backward_case("a large scale", 3, 4, 5, 2, scale=3.0),
        _backward_case("one key", 3, 1, 2, 2, scale=0.5),
    ),
    variants=(_backward_with(), _backward_by_output),
    wrong=(
        WrongAnswer(
            "scale forgotten",
            "The scores are scale * q @ k.T, so the scale is a factor of both gradients.",
            _backward_with(scale_q=lambda s: 1.0, scale_k=lambda s: 1.0),
        ),
        WrongAnswer(
            "scale only for the query",
            "The scale multiplies the product, so it appears in the gradient of the key too.",
            _backward_with(scale_k=lambda s: 1.0),
        ),
        WrongAnswer(
            "softmax passed over",
            "The gradient with respect to the weights is not the one with respect to the scores. "
            "Between them lies the Jacobian of the softmax.",
            _backward_with(through=lambda a, g: g),
        ),
        WrongAnswer(
            "only the diagonal of the Jacobian",
            "a * (1 - a) is the derivative of a sigmoid. In a softmax each weight depends on all "
            "the scores of its row.",
            _backward_with(through=lambda a, g: a * (1 - a) * g),
        ),
        WrongAnswer(
            "weighted mean not subtracted",
            "The rows of the softmax's Jacobian sum to zero. Subtract from each row of the "
            "gradient its mean under the weights.",
            _backward_with(through=lambda a, g: a * g),
        ),
        WrongAnswer(
            "plain mean subtracted",
            "The mean is the one under the weights of the row, not the plain one.",
            _backward_with(through=lambda a, g: a * (g - g.mean(-1, keepdim=True))),
        ),
        WrongAnswer(
            "sum over the queries",
            "Each query has a softmax of its own, so the sum runs over the keys, the last axis.",
            _backward_with(through=lambda a, g: a * (g - (a * g).sum(-2, keepdim=True))),
        ),
        WrongAnswer(
            "weights not transposed for the values",
            "A value collects from all queries: the sum runs over the rows of the weights. That is "
            "the transpose.",
            _backward_with(to_value=lambda a, g: a @ g),
        ),
        WrongAnswer(
            "not transposed for the keys",
            "A key collects from all queries: the sum runs over the rows of the gradient of the "
            "scores. That is the transpose.",
            _backward_with(to_key=lambda grad_s, q: grad_s @ q),
        ),
        WrongAnswer(
            "value, key, query",
            "The gradients are asked for in the order query, key, value.",
            _backward_with(swapped=True),
        ),
    ),
)


# --- self_attention -------------------------------------------------------------------------------


def _self_attention(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    parts = zip(*(w.chunk(num_heads, 1) for w in (w_q, w_k, w_v)), strict=True)
    total = torch.zeros_like(x)
    for (a, b, c), o in zip(parts, w_o.chunk(num_heads, 0), strict=True):
        total = total + F.scaled_dot_product_attention(x @ a, x @ b, x @ c, is_causal=True) @ o
    return total


def _self_case(name: str, b: int, t: int, width: int, heads: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        x = _draw(b, t, width)
        matrices = (_draw(width, width, seed=1 + i) for i in range(4))
        return (*(m.requires_grad_() for m in (x, *matrices)), heads)

    return Case(name, inputs, 1e-10, grad=True)


def _split(x: Tensor, h: int) -> Tensor:
    return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)


def _split_by_view(x: Tensor, h: int) -> Tensor:
    b, t, width = x.shape
    return x.reshape(b, h, t, width // h)


def _masked_softmax(scores: Tensor, past: Tensor) -> Tensor:
    return scores.masked_fill(~past, -torch.inf).softmax(-1)


def _self_with(
    *,
    split: Callable[[Tensor, int], Tensor] = _split,
    width: Callable[[int, int], float] = lambda d_model, h: d_model / h,
    weights: Callable[[Tensor, Tensor], Tensor] = _masked_softmax,
    merge: Callable[[Tensor], Tensor] = lambda z: z.transpose(1, 2).flatten(-2),
    out: Callable[[Tensor, Tensor], Tensor] = lambda z, w_o: z @ w_o,
    layout: Callable[[Tensor], Tensor] = lambda w: w,
) -> Answer:
    def answer(
        x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
    ) -> Tensor:
        q, k, v = (split(x @ layout(w), num_heads) for w in (w_q, w_k, w_v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width(x.shape[-1], num_heads))
        return out(merge(weights(scores, _past(x[0])) @ v), layout(w_o))

    return answer


def _by_einsum(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    d = x.shape[-1] // num_heads
    q, k, v = (
        torch.einsum("btm,mhc->bthc", x, w.reshape(-1, num_heads, d)) for w in (w_q, w_k, w_v)
    )
    scores = torch.einsum("bihc,bjhc->bhij", q, k) * d**-0.5
    z = torch.einsum("bhij,bjhc->bihc", _masked_softmax(scores, _past(x[0])), v)
    return torch.einsum("bihc,hcm->bim", z, w_o.reshape(num_heads, d, -1))


SELF_ATTENTION = Exercise(
    title="Causal multi-head self-attention",
    oracle=_self_attention,
    cases=(
        _self_case("two heads of three features", 2, 5, 6, 2),
        _self_case("as many positions as heads", 1, 3, 6, 3),
        _self_case("four heads of two features", 2, 4, 8, 4),
        _self_case("heads of one feature", 1, 4, 4, 4),
        _self_case("one head", 2, 4, 4, 1),
    ),
    variants=(_self_with(), _by_einsum),
    wrong=(
        WrongAnswer(
            "scale forgotten",
            "The scores of each head are divided by the root of its number of features.",
            _self_with(width=lambda d_model, h: 1.0),
        ),
        WrongAnswer(
            "root of d_model in place of d_head",
            "A head's dot product runs over d_model / num_heads features, and the variance of "
            "the scores is that number.",
            _self_with(width=lambda d_model, h: d_model),
        ),
        WrongAnswer(
            "view without transpose",
            "A view keeps the order of the numbers, so `.view(B, H, T, d_head)` cuts the positions "
            "into groups. View as (B, T, H, d_head), then transpose.",
            _self_with(split=_split_by_view),
        ),
        WrongAnswer(
            "no transpose before the heads are merged",
            "(B, H, T, d_head) goes back to (B, T, H, d_head) before the reshape. Without that "
            "positions and heads are mixed.",
            _self_with(merge=lambda z: z.reshape(z.shape[0], z.shape[2], -1)),
        ),
        WrongAnswer(
            "features dealt out to the heads in turn",
            "Head h owns d_head neighbouring columns, not every num_heads-th one.",
            _self_with(split=lambda x, h: x.reshape(*x.shape[:2], -1, h).permute(0, 3, 1, 2)),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of each query sum to one, over the keys: the last axis of the scores.",
            _self_with(weights=lambda s, m: s.masked_fill(~m, -torch.inf).softmax(-2)),
        ),
        WrongAnswer(
            "mask after the softmax",
            "The future is hidden but still counted in the denominator. Mask the scores with "
            "-inf, before the softmax.",
            _self_with(weights=lambda s, m: s.softmax(-1) * m),
        ),
        WrongAnswer(
            "no mask",
            "Each token sees the future. The attention was to be causal.",
            _self_with(weights=lambda s, m: s.softmax(-1)),
        ),
        WrongAnswer(
            "scores transposed",
            "The rows of the scores are queries, q @ k.T. In k @ q.T they are keys.",
            _self_with(weights=lambda s, m: _masked_softmax(s.transpose(-2, -1), m)),
        ),
        WrongAnswer(
            "output projection left out",
            "The heads side by side are still to be multiplied by w_o, which mixes them.",
            _self_with(out=lambda z, w_o: z + 0 * w_o.sum()),
        ),
        WrongAnswer(
            "matrices in torch's layout",
            "The matrices are in the book's layout, x @ W. Only nn.Linear stores the transpose.",
            _self_with(layout=lambda w: w.T),
        ),
    ),
)


EXERCISES: dict[str, Exercise] = {
    "sdpa": SDPA,
    "causal_mask": CAUSAL_MASK,
    "leaks": LEAKS,
    "sum_of_heads": SUM_OF_HEADS,
    "backward": BACKWARD,
    "self_attention": SELF_ATTENTION,
}
