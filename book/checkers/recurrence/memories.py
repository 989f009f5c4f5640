"""A memory in chunks, and one token of the gated delta rule.

The oracles write out sums over all earlier tokens, or one column after the other, and never call
the book's library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.drawn import draw

EXACT = 1e-10


def _faded(q: Tensor, k: Tensor, v: Tensor, g: Tensor, size: int) -> Tensor:
    """The whole table of products, with what is left of each."""
    since = g.cumsum(0)
    past = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).tril()
    left = (since[:, None] - since).masked_fill(~past, -torch.inf).exp()
    return (q @ k.T * left) @ v


@in_parts
def _in_chunks(
    *,
    read: Callable[[Tensor], Tensor] = torch.exp,
    hand_on: Callable[[Tensor], Tensor] = lambda since: since[-1].exp(),
    rest: Callable[[Tensor], Tensor] = lambda since: (since[-1] - since).exp(),
    inside: Callable[[Tensor], Tensor] = lambda since: (since - since.T).tril().exp().tril(),
    order: str = "read first",
) -> Answer:
    """The loop over chunks in parts."""

    def answer(q: Tensor, k: Tensor, v: Tensor, g: Tensor, size: int) -> Tensor:
        memory, outs = q.new_zeros(q.shape[1], v.shape[1]), []
        for a in range(0, len(q), size):
            qc, kc, vc = (x[a : a + size] for x in (q, k, v))
            since = g[a : a + size].cumsum(0)[:, None]
            new = hand_on(since) * memory + (kc * rest(since)).T @ vc
            if order == "write first":
                memory = new
            outs.append((qc @ kc.T * inside(since)) @ vc + (qc * read(since)) @ memory)
            memory = new
        return torch.cat(outs)

    return answer


def _token_by_token(q: Tensor, k: Tensor, v: Tensor, g: Tensor, size: int) -> Tensor:
    memory, outs = q.new_zeros(q.shape[1], v.shape[1]), []
    for q_t, k_t, v_t, g_t in zip(q, k, v, g, strict=True):
        memory = g_t.exp() * memory + k_t[:, None] * v_t
        outs.append(q_t @ memory)
    return torch.stack(outs)


def _chunk_case(name: str, t: int, size: int, fade: float = 0.3) -> Case:
    def inputs() -> tuple[Any, ...]:
        q, k, v = draw(t, 5, seed=1), draw(t, 5, seed=2), draw(t, 3, seed=3)
        g = -fade * draw(t, seed=4).abs()
        return (*(x.requires_grad_() for x in (q, k, v, g)), size)

    return Case(name, inputs, EXACT, grad=True)


def _most(q: Tensor, k: Tensor, v: Tensor, g: Tensor, size: int) -> int:
    """The numbers of the largest tensor that is needed."""
    return max(q.numel(), k.numel(), v.numel(), len(q) * min(size, len(q)), q.shape[1] * v.shape[1])


CHUNKED = Exercise(
    title="Bug hunt: chunks that fade",
    oracle=_faded,
    rules=(
        Rule("without making a table of all T by T products", entries=_most),
    ),
    cases=(
        _chunk_case("three chunks and a rest", 11, 3),
        _chunk_case("chunks that fit", 8, 4),
        _chunk_case("one chunk", 6, 6),
        _chunk_case("a chunk larger than the text", 5, 8),
        _chunk_case("chunks of one token", 7, 1),
        _chunk_case("no fading", 9, 2, fade=0.0),
        _chunk_case("a memory that fades at once", 12, 5, fade=400.0),
        _chunk_case("a long text", 300, 32, fade=0.02),
    ),
    wrong=(
        WrongAnswer(
            "the old memory is read as it was before the chunk",
            "By the time a token of the chunk reads it, it has faded by the decays of the chunk's "
            "tokens so far, its own included.",
            _in_chunks(read=torch.ones_like),
        ),
        WrongAnswer(
            "the memory is handed on as it was",
            "Over a chunk the old memory fades by the decays of all its tokens.",
            _in_chunks(hand_on=lambda since: torch.ones_like(since[-1])),
        ),
        WrongAnswer(
            "what is written does not fade until the end of the chunk",
            "A token that wrote early in the chunk fades with each later token of it.",
            _in_chunks(rest=torch.ones_like),
        ),
        WrongAnswer(
            "faded since the beginning of the chunk",
            "What a token writes fades from this token to the end of the chunk, and not before.",
            _in_chunks(rest=torch.exp),
        ),
        WrongAnswer(
            "no fading inside the chunk",
            "Inside the chunk, too, a product fades from the token that wrote to the one that "
            "reads.",
            _in_chunks(inside=lambda since: torch.ones_like(since @ since.T).tril()),
        ),
        WrongAnswer(
            "the future is seen",
            "Inside the chunk a token may not see those behind it.",
            _in_chunks(inside=lambda since: (since - since.T).clamp(max=0).exp()),
        ),
        WrongAnswer(
            "the chunk counts twice",
            "What the chunk's own tokens write stands in the products already. Read the memory "
            "before they have written.",
            _in_chunks(order="write first"),
        ),
    ),
    variants=(_in_chunks(), _token_by_token),
    spared={
        "float16": "sums over a text are rounded on the way",
        "bfloat16": "sums over a text are rounded on the way",
    },
)  # fmt: skip


def _columns(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """By the matrix that acts on the memory."""
    d = k.shape[-1]
    eye = torch.eye(d, dtype=S.dtype, device=S.device)
    outer = k[..., :, None] * k[..., None, :]
    keep = alpha[..., None, None] * (eye - beta[..., None, None] * outer)
    new = keep @ S + beta[..., None, None] * k[..., :, None] * v[..., None, :]
    return torch.einsum("...d,...de->...e", q, new), new


@in_parts
def _step_with(
    *,
    fade: str = "first",
    missing: str = "value less read",
    step: bool = True,
    read: str = "new",
    place: Callable[[Tensor, Tensor], Tensor] = lambda k, w: k[..., :, None] * w[..., None, :],
) -> Answer:
    """A step in parts."""

    def answer(
        S: Tensor, q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        factor = alpha[..., None, None]
        old = factor * S if fade == "first" else S
        reads = torch.einsum("...d,...de->...e", k, old)
        wanted = {"value less read": v - reads, "value": v, "read less value": reads - v}[missing]
        if step:
            wanted = beta[..., None] * wanted
        new = old + place(k, wanted)
        if fade == "last":
            new = factor * new
        seen = {"new": new, "old": old}[read]
        return torch.einsum("...d,...de->...e", q, seen), new

    return answer


def _reads_before_it_fades(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    missing = v - torch.einsum("...d,...de->...e", k, S)
    written = k[..., :, None] * (beta[..., None] * missing)[..., None, :]
    new = alpha[..., None, None] * S + written
    return torch.einsum("...d,...de->...e", q, new), new


def _step_case(name: str, *lead: int, d: int = 4, e: int = 3, unit: bool = True) -> Case:
    def inputs() -> tuple[Any, ...]:
        S, q, v = draw(*lead, d, e, seed=1), draw(*lead, d, seed=2), draw(*lead, e, seed=3)
        k = draw(*lead, d, seed=4)
        if unit:
            k = k / k.norm(dim=-1, keepdim=True)
        alpha, beta = (draw(*lead, seed=i).sigmoid() for i in (5, 6))
        return tuple(x.requires_grad_() for x in (S, q, k, v, alpha, beta))

    return Case(name, inputs, EXACT, grad=True)


DELTA = Exercise(
    title="One token of a gated delta net",
    oracle=_columns,
    leading={"S": 2, "q": 1, "k": 1, "v": 1, "alpha": 0, "beta": 0},
    cases=(
        _step_case("two sequences, three heads", 2, 3),
        _step_case("as many features as values", 2, d=3, e=3),
        _step_case("a key that is not of length 1", 2, unit=False),
        _step_case("one feature", 3, d=1, e=2),
    ),
    wrong=(
        WrongAnswer(
            "the value added as it is",
            "The delta rule writes what is missing: the value less what the key reads already.",
            _step_with(missing="value"),
        ),
        WrongAnswer(
            "a step away from the value",
            "What the key reads is subtracted from the value, not the value from it.",
            _step_with(missing="read less value"),
        ),
        WrongAnswer(
            "the memory fades last",
            "The memory fades before the token writes, so that what it writes is whole.",
            _step_with(fade="last"),
        ),
        WrongAnswer(
            "the key reads before the memory fades",
            "The correction is measured on the memory that has faded already.",
            _reads_before_it_fades,
        ),
        WrongAnswer(
            "no fading",
            "The memory fades by `alpha` first.",
            _step_with(fade="never"),
        ),
        WrongAnswer(
            "the whole correction",
            "Only the part `beta` of what is missing is written.",
            _step_with(step=False),
        ),
        WrongAnswer(
            "the query reads before the token has written",
            "The query reads from the new memory.",
            _step_with(read="old"),
        ),
    ),
    variants=(_step_with(), _columns),
    spared={
        "float16": "products are rounded on the way, in an order that is free",
        "bfloat16": "products are rounded on the way, in an order that is free",
        "huge": "keys of a length of 800 make the two sides of a difference equally large",
    },
)
