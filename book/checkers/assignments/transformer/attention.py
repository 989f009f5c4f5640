"""Questions of the assignment: prefix_mask, cross_attention_step."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

# --- prefix_mask ----------------------------------------------------------------------------------


def _prefix_mask(length: int, prefixes: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.zeros(len(prefixes), length, length, dtype=torch.bool)
    for b, (prefix, real) in enumerate(zip(prefixes.tolist(), lengths.tolist(), strict=True)):
        for i in range(length):
            mask[b, i, : min(max(i + 1, prefix), real)] = True
    return mask


@in_parts
def _prefix(
    both: bool = False,
    off: int = 0,
    turned: bool = False,
    flip: bool = False,
    past: Callable[[Tensor, Tensor], Tensor] = lambda query, key: query >= key,
    whose: Callable[[Tensor], Tensor] = lambda prefixes: prefixes,
    seen: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda a, inside, real: (a | inside) & real,
) -> Callable[[int, Tensor, Tensor], Tensor]:
    def answer(length: int, prefixes: Tensor, lengths: Tensor) -> Tensor:
        i = torch.arange(length)
        inside = i < whose(prefixes)[:, None, None] + off
        if both:
            inside = inside & inside.mT
        if flip:
            inside = inside.mT
        mask = seen(past(i[:, None], i), inside, i < lengths[:, None, None])
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
            _prefix(past=lambda query, key: torch.zeros_like(query >= key)),
        ),
        WrongAnswer(
            "padding not masked",
            "No query may attend to positions from lengths[b] on.",
            _prefix(seen=lambda a, inside, real: a | inside),
        ),
        WrongAnswer(
            "True where attention is forbidden",
            "In this book, as in F.scaled_dot_product_attention, True means: may attend.",
            _prefix(turned=True),
        ),
        WrongAnswer(
            "tokens blind to themselves",
            "Behind the prefix a token sees all tokens up to itself, and itself among them: the "
            "diagonal belongs to the mask.",
            _prefix(past=lambda query, key: query > key),
        ),
        WrongAnswer(
            "one prefix for the whole batch",
            "Each sequence has a prefix of its own, as long as `prefixes` says for it.",
            _prefix(whose=lambda prefixes: prefixes[:1].expand(len(prefixes))),
        ),
        WrongAnswer(
            "rows of the padding cut in place of columns",
            "Keys are the columns. It is what is looked at that must be real, not the token that "
            "looks.",
            _prefix(seen=lambda a, inside, real: (a | inside) & real.mT),
        ),
        WrongAnswer(
            "padding cut before the prefix is added",
            "A prefix may be longer than the text, and brings padding back if it is added last.",
            _prefix(seen=lambda a, inside, real: (a & real) | inside),
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
    project: bool = True, softmax: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1),
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
        elif pad == "zero":
            scores = scores.masked_fill(padding, 0.0)
        if causal:
            scores = scores.masked_fill(~torch.ones(t, s, dtype=torch.bool).tril(), -math.inf)
        a = softmax(scores)
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
        WrongAnswer(
            "scores of the padding set to zero",
            "A score of 0 still has the weight exp(0) = 1 in the softmax.",
            _look(pad="zero"),
        ),
        WrongAnswer(
            "softmax over the queries",
            "Every query spreads a weight of 1 over the keys, so that each row of the scores "
            "adds up to 1, not each column.",
            _look(softmax=lambda scores: scores.softmax(-2)),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "prefix_mask": PREFIX_MASK,
    "cross_attention_step": CROSS_ATTENTION_STEP,
}
