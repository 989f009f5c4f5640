"""The exercises of chapter 14: what MLA caches, how it is absorbed, and what that saves.

The oracles take the long way round: keys and values of each head are made, rotations are matrices
or complex numbers, bytes are counted tensor by tensor. A wrong answer is the right computation
with one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, Rule, WrongAnswer, in_parts

EXACT = 1e-11


def _draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """The same normal numbers on every call, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def _pairs(x: Tensor, halves: bool = False) -> tuple[Tensor, Tensor]:
    if halves:
        a, b = x.chunk(2, -1)
        return a, b
    return x[..., 0::2], x[..., 1::2]


def _turned(x: Tensor, cos: Tensor, sin: Tensor, halves: bool = False) -> Tensor:
    """The rows of `x` with their pairs rotated."""
    a, b = _pairs(x, halves)
    new = [a * cos - b * sin, a * sin + b * cos]
    return torch.cat(new, -1) if halves else torch.stack(new, -1).flatten(-2)


# --- Attention without keys -----------------------------------------------------------------------


def _with_keys(
    q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    k, v = c[:, None] @ w_uk, c[:, None] @ w_uv
    shared = k_rope[:, None].expand(-1, len(w_uk), -1, -1)
    q = torch.cat([q_nope, q_rope], -1)
    return F.scaled_dot_product_attention(q, torch.cat([k, shared], -1), v)


def _most_of_absorbed(
    q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
) -> int:
    """The numbers of the largest tensor without keys: an argument, the scores, wide rows."""
    b, h, t, _ = q_nope.shape
    s, wide = c.shape[1], c.shape[2] + k_rope.shape[2]
    given = max(x.numel() for x in (q_nope, q_rope, c, k_rope, w_uk, w_uv))
    return max(given, b * h * t * max(s, wide), b * s * wide)


def _absorbed_case(name: str, *sizes: int, scale: float = 1.0) -> Case:
    """Sizes B, H, T, S, d_h, d_R, d_v, d_c."""
    b, h, t, s, d_h, d_r, d_v, d_c = sizes

    def inputs() -> tuple[Any, ...]:
        shapes = ((b, h, t, d_h), (b, h, t, d_r), (b, s, d_c), (b, s, d_r))
        drawn = [_draw(*shape, seed=i, scale=scale) for i, shape in enumerate(shapes)]
        drawn += [_draw(h, d_c, d_h, seed=5) / d_c**0.5, _draw(h, d_c, d_v, seed=6)]
        return tuple(x.requires_grad_() for x in drawn)

    return Case(name, inputs, EXACT, grad=True)


@in_parts
def _absorbed(
    query: Callable[[Tensor, Tensor], Tensor] = lambda q, w: q @ w.mT,
    scale: Callable[[int, int, int], float] = lambda d_h, d_r, d_c: (d_h + d_r) ** -0.5,
    weights: Callable[[Tensor, Tensor], Tensor] = lambda a, b: (a + b).softmax(-1),
    up: Callable[[Tensor, Tensor], Tensor] = lambda o, w: o @ w,
) -> Answer:
    def answer(
        q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
    ) -> Tensor:
        factor = scale(q_nope.shape[-1], q_rope.shape[-1], c.shape[-1])
        what = factor * query(q_nope, w_uk) @ c[:, None].mT
        where = factor * q_rope @ k_rope[:, None].mT
        return up(weights(what, where) @ c[:, None], w_uv)

    return answer


def _by_einsum(
    q_nope: Tensor, q_rope: Tensor, c: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    scores = torch.einsum("bhtd,hcd,bsc->bhts", q_nope, w_uk, c)
    scores = scores + torch.einsum("bhtr,bsr->bhts", q_rope, k_rope)
    p = torch.softmax(scores / (q_nope.shape[-1] + q_rope.shape[-1]) ** 0.5, -1)
    return torch.einsum("bhts,bsc,hcv->bhtv", p, c, w_uv)


ABSORBED = Exercise(
    title="Attention without keys",
    oracle=_with_keys,
    rules=(Rule("without making a key or a value of any head", entries=_most_of_absorbed),),
    cases=(
        # So many keys that a key of each head is more than all that a right answer makes.
        _absorbed_case("one query, many keys", 1, 4, 1, 40, 6, 2, 5, 10),
        _absorbed_case("sizes that all differ", 2, 3, 5, 7, 8, 4, 6, 12),
        _absorbed_case("a latent as wide as a key", 2, 3, 4, 6, 8, 2, 8, 8),
        _absorbed_case("one head, as many queries as keys", 2, 1, 5, 5, 4, 4, 3, 7),
        _absorbed_case("one key", 1, 2, 3, 1, 4, 2, 3, 5),
        _absorbed_case("large scores", 1, 2, 3, 6, 8, 4, 4, 16, scale=4.0),
    ),
    wrong=(
        WrongAnswer(
            "the scale of the wide rows",
            "The rows compared are d_c + d_R wide now, but their product is still the score of "
            "rows of d_h + d_R features, so the root is that of d_h + d_R.",
            _absorbed(scale=lambda d_h, d_r, d_c: (d_c + d_r) ** -0.5),
        ),
        WrongAnswer(
            "the scale without the rotated part",
            "A score has d_h + d_R terms; dividing by the root of d_h leaves it too large.",
            _absorbed(scale=lambda d_h, d_r, d_c: d_h**-0.5),
        ),
        WrongAnswer(
            "no scale",
            "The scores have to be divided by the root of d_h + d_R before the softmax.",
            _absorbed(scale=lambda d_h, d_r, d_c: 1.0),
        ),
        WrongAnswer(
            "no position",
            "The rotated parts of query and shared key belong to the score; without them it has no "
            "position at all.",
            _absorbed(weights=lambda a, b: a.softmax(-1)),
        ),
        WrongAnswer(
            "two softmaxes",
            "The two parts are one score: they are added before the softmax, not after it.",
            _absorbed(weights=lambda a, b: (a.softmax(-1) + b.softmax(-1)) / 2),
        ),
        WrongAnswer(
            "softmax over the queries",
            "The weights of one query sum to 1 over the keys, which are the last axis.",
            _absorbed(weights=lambda a, b: (a + b).softmax(-2)),
        ),
        WrongAnswer(
            "W_UK not transposed",
            "Making a key is c @ w_uk; the query goes the other way, with the transpose. Only for "
            "d_c = d_h do the shapes hide it.",
            _absorbed(query=lambda q, w: q @ w),
        ),
        WrongAnswer(
            "one head's matrix for all",
            "Each head has a W_UK of its own; with the first one for all the heads would be one.",
            _absorbed(query=lambda q, w: q @ w[:1].mT),
        ),
        WrongAnswer(
            "left in the latent space",
            "The mean of latents has d_c features; each head's W_UV takes it up to d_v.",
            _absorbed(up=lambda o, w: o),
        ),
    ),
    variants=(_absorbed(), _by_einsum),
)


# --- What goes into the cache ---------------------------------------------------------------------


def _entry_oracle(
    x: Tensor, w_down: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rank = len(gain)
    c = F.rms_norm(x @ w_down[:, :rank], (rank,), gain, eps)
    k = x @ w_down[:, rank:]
    k = k.reshape(*k.shape[:-1], -1, 2)
    turned = torch.view_as_complex(k) * torch.complex(cos, sin)
    return c, torch.view_as_real(turned).flatten(-2)


def _entry_case(
    name: str, *sizes: int, scale: float = 1.0, start: int = 0, eps: float = 1e-6
) -> Case:
    """Sizes B, T, d_model, d_c, d_R."""
    b, t, d_model, d_c, d_r = sizes

    def inputs() -> tuple[Any, ...]:
        speed = 50.0 ** (-torch.arange(0, d_r, 2, dtype=torch.float64) / d_r)
        angles = torch.arange(start, start + t, dtype=torch.float64)[:, None] * speed
        x, w = _draw(b, t, d_model, scale=scale), _draw(d_model, d_c + d_r, seed=1) / d_model**0.5
        gain = 1 + 0.3 * _draw(d_c, seed=2)
        leaves = [v.requires_grad_() for v in (x, w, gain)]
        return *leaves, angles.cos(), angles.sin(), eps

    return Case(name, inputs, EXACT, grad=True)


Entry = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def _root(u: Tensor, eps: float) -> Tensor:
    return (u.square().mean(-1, keepdim=True) + eps).sqrt()


@in_parts
def _entry(
    cut: Callable[[Tensor, int], tuple[Tensor, Tensor]] = lambda u, n: (u[..., :n], u[..., n:]),
    norm: Entry = lambda c, k, gain, eps: (gain * c / _root(c, eps), k),
    turn: Callable[[Tensor, Tensor, Tensor], Tensor] = _turned,
) -> Answer:
    def answer(
        x: Tensor, w_down: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        c, k = cut(x @ w_down, len(gain))
        c, k = norm(c, k, gain, eps)
        return c, turn(k, cos, sin)

    return answer


def _joint(c: Tensor, k: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    root = _root(torch.cat([c, k], -1), eps)
    return gain * c / root, k / root


CACHE_ENTRY = Exercise(
    title="What goes into the cache",
    oracle=_entry_oracle,
    cases=(
        _entry_case("sizes that all differ", 2, 5, 9, 6, 4),
        _entry_case("a latent as wide as the key", 2, 3, 8, 4, 4),
        _entry_case("positions from 100 on, a larger eps", 1, 4, 7, 5, 8, start=100, eps=0.1),
        _entry_case("one token", 1, 1, 6, 3, 2, start=3),
        _entry_case("rows of size 1e-3", 2, 3, 8, 6, 4, scale=1e-3),
        _entry_case("rows of size 1e3", 2, 3, 8, 6, 4, scale=1e3),
    ),
    wrong=(
        WrongAnswer(
            "cached before the norm",
            "The RMSNorm stands between the latent and the matrices up. Cached is its result, so "
            "that nothing has to be done to it again.",
            _entry(norm=lambda c, k, gain, eps: (c, k)),
        ),
        WrongAnswer(
            "one norm over both parts",
            "The norm is the latent's: its mean square runs over d_c features, without the key's.",
            _entry(norm=_joint),
        ),
        WrongAnswer(
            "the key normalised too",
            "The shared key is not normalised, it is only rotated.",
            _entry(norm=lambda c, k, gain, eps: (gain * c / _root(c, eps), k / _root(k, eps))),
        ),
        WrongAnswer(
            "no gain",
            "The RMSNorm has a gain, one number for each feature of the latent.",
            _entry(norm=lambda c, k, gain, eps: (c / _root(c, eps), k)),
        ),
        WrongAnswer(
            "eps outside the root",
            "Epsilon is added to the mean square, under the root; small rows show the difference.",
            _entry(norm=lambda c, k, gain, eps: (gain * c / (_root(c, 0.0) + eps), k)),
        ),
        WrongAnswer(
            "the key not rotated",
            "The key is cached after its rotation; its position never changes, so once is enough.",
            _entry(turn=lambda k, cos, sin: k),
        ),
        WrongAnswer(
            "halves instead of neighbours",
            "Here the pairs are neighbours, (0, 1), (2, 3), ...; with halves the features pair up "
            "differently and every angle goes to another pair.",
            _entry(turn=lambda k, cos, sin: _turned(k, cos, sin, halves=True)),
        ),
        WrongAnswer(
            "rotated the wrong way",
            "A pair (a, b) becomes (a cos - b sin, a sin + b cos); this turns by the "
            "negative angle.",
            _entry(turn=lambda k, cos, sin: _turned(k, cos, -sin)),
        ),
        WrongAnswer(
            "the parts exchanged",
            "The first d_c columns are the latent's and the last d_R the key's, not the reverse.",
            _entry(cut=lambda u, n: (u[..., -n:], u[..., : u.shape[-1] - n])),
        ),
    ),
    variants=(_entry(),),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)


# --- The matrix in between ------------------------------------------------------------------------


def _rotation(m: float, theta: Tensor) -> Tensor:
    """A block-diagonal matrix whose transpose turns rows by the position `m`."""
    matrix = torch.zeros(2 * len(theta), 2 * len(theta), dtype=theta.dtype)
    for k, angle in enumerate(m * theta):
        row = [angle.cos(), -angle.sin(), angle.sin(), angle.cos()]
        matrix[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = torch.stack(row).view(2, 2)
    return matrix


def _between_oracle(w_q: Tensor, w_uk: Tensor, i: int, j: int, theta: Tensor) -> Tensor:
    return (w_q @ _rotation(i, theta).T) @ (w_uk @ _rotation(j, theta).T).T


@in_parts
def _between(
    angle: Callable[[int, int], int] = lambda i, j: i - j,
    halves: bool = False,
    result: Callable[[Tensor], Tensor] = lambda m: m,
) -> Answer:
    def answer(w_q: Tensor, w_uk: Tensor, i: int, j: int, theta: Tensor) -> Tensor:
        turn = angle(i, j) * theta
        return result(_turned(w_q, turn.cos(), turn.sin(), halves) @ w_uk.T)

    return answer


def _between_case(name: str, i: int, j: int, *sizes: int) -> Case:
    """Sizes d_model, d_c, d_h."""
    d_model, d_c, d_h = sizes

    def inputs() -> tuple[Any, ...]:
        theta = 20.0 ** (-torch.arange(0, d_h, 2, dtype=torch.float64) / d_h)
        w_q, w_uk = _draw(d_model, d_h), _draw(d_c, d_h, seed=1)
        return w_q.requires_grad_(), w_uk.requires_grad_(), i, j, theta

    return Case(name, inputs, EXACT, grad=True)


BETWEEN = Exercise(
    title="The matrix in between",
    oracle=_between_oracle,
    cases=(
        _between_case("a key three places back", 5, 2, 7, 5, 8),
        _between_case("a query at position 0", 0, 4, 7, 5, 8),
        _between_case("a key at position 0", 6, 0, 7, 5, 8),
        _between_case("the same position", 3, 3, 7, 5, 4),
        _between_case("far apart", 1000, 301, 6, 4, 6),
        _between_case("a square matrix", 4, 1, 6, 6, 6),
        _between_case("one pair", 2, 1, 3, 4, 2),
    ),
    wrong=(
        WrongAnswer(
            "the other direction",
            "The key's rotation is transposed in the product, so what is left is R of j - i, and "
            "rows times R of j - i turn by i - j.",
            _between(angle=lambda i, j: j - i),
        ),
        WrongAnswer(
            "no rotation",
            "This is the one matrix that absorption would need. It is right only for i = j.",
            _between(angle=lambda i, j: 0),
        ),
        WrongAnswer(
            "the query's rotation only",
            "The key was turned as well, by its own position j, and that stands in the product "
            "too.",
            _between(angle=lambda i, j: i),
        ),
        WrongAnswer(
            "the key's rotation only",
            "The query was turned as well, by its own position i, and that stands in the product "
            "too.",
            _between(angle=lambda i, j: -j),
        ),
        WrongAnswer(
            "the angles added",
            "One rotation is transposed, so the angles are subtracted: scores feel the distance.",
            _between(angle=lambda i, j: i + j),
        ),
        WrongAnswer(
            "halves instead of neighbours",
            "theta belongs to pairs of neighbouring features, (0, 1), (2, 3), and so on.",
            _between(halves=True),
        ),
        WrongAnswer(
            "transposed",
            "The token's row stands on the left, so M has shape (d_model, d_c), not the reverse.",
            _between(result=lambda m: m.T),
        ),
    ),
    variants=(
        _between(),
        lambda w_q, w_uk, i, j, theta: w_q @ _rotation(j - i, theta) @ w_uk.T,
    ),
)


# --- Grouped queries as a latent ------------------------------------------------------------------


def _gqa_oracle(num_heads: int, num_kv_heads: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Read off from what happens to each unit vector of the latent."""
    width = num_kv_heads * head_dim
    unit = torch.eye(2 * width)
    parts = (unit[:, :width], unit[:, width:])
    w_uk, w_uv = (
        part.reshape(2 * width, num_kv_heads, head_dim)
        .repeat_interleave(num_heads // num_kv_heads, 1)
        .transpose(0, 1)
        .contiguous()
        for part in parts
    )
    return w_uk, w_uv


@in_parts
def _gqa(
    group: Callable[[int, int, int], int] = lambda h, H, G: h * G // H,
    keys: Callable[[int, int], int] = lambda g, G: g,
    values: Callable[[int, int], int] = lambda g, G: G + g,
    result: Callable[[Tensor], Tensor] = lambda w: w,
) -> Answer:
    def answer(num_heads: int, num_kv_heads: int, head_dim: int) -> tuple[Tensor, ...]:
        made = []
        for row in (keys, values):
            w = torch.zeros(num_heads, 2 * num_kv_heads, head_dim, head_dim)
            for h in range(num_heads):
                g = group(h, num_heads, num_kv_heads)
                w[h, row(g, num_kv_heads)] = torch.eye(head_dim)
            made.append(result(w.flatten(1, 2)))
        return tuple(made)

    return answer


def _gqa_case(*sizes: int) -> Case:
    return Case("{} heads, {} groups, {} features".format(*sizes), lambda: sizes)


GQA_UP = Exercise(
    title="Grouped queries as a latent",
    oracle=_gqa_oracle,
    cases=tuple(
        _gqa_case(*s) for s in ((4, 2, 3), (6, 2, 4), (6, 3, 2), (8, 4, 1), (4, 4, 3), (4, 1, 5))
    ),
    wrong=(
        WrongAnswer(
            "groups dealt out in turn",
            "Neighbouring heads share a group (repeat_interleave); h % G deals the groups out like "
            "cards (repeat).",
            _gqa(group=lambda h, H, G: h % G),
        ),
        WrongAnswer(
            "everybody in group 0",
            "Each group has its own key; with the first one for all it is multi-query attention.",
            _gqa(group=lambda h, H, G: 0),
        ),
        WrongAnswer(
            "groups in reverse",
            "Head 0 belongs to group 0, whose key stands first in the latent.",
            _gqa(group=lambda h, H, G: G - 1 - h * G // H),
        ),
        WrongAnswer(
            "values taken from the keys",
            "The values stand after all keys: their block is G + g, not g.",
            _gqa(values=lambda g, G: g),
        ),
        WrongAnswer(
            "keys and values exchanged",
            "The latent holds the keys first, then the values.",
            _gqa(keys=lambda g, G: G + g, values=lambda g, G: g),
        ),
        WrongAnswer(
            "a key, a value, a key, a value",
            "In this latent all keys come first; they do not alternate with the values.",
            _gqa(keys=lambda g, G: 2 * g, values=lambda g, G: 2 * g + 1),
        ),
        WrongAnswer(
            "transposed",
            "The latent is a row on the left: each matrix has 2 G d rows and d columns.",
            _gqa(result=lambda w: w.mT.contiguous()),
        ),
    ),
    variants=(_gqa(),),
)


# --- The 93.3 % -----------------------------------------------------------------------------------


def _saving_oracle(
    layers: int, rank: int, rope_dim: int, bits: float,
    gqa_layers: int, gqa_kv_heads: int, gqa_head_dim: int, gqa_bits: float,
) -> float:  # fmt: skip
    """Counted on tensors without memory."""
    c = torch.empty(layers, rank, device="meta").numel()
    k = torch.empty(layers, rope_dim, device="meta").numel()
    shape = (gqa_layers, 2, gqa_kv_heads, gqa_head_dim)
    other = torch.empty(shape, device="meta").numel()
    return 1.0 - (c + k) * bits / (other * gqa_bits)


@in_parts
def _saving(
    mla: Callable[[int, int], int] = lambda rank, rope: rank + rope,
    gqa: Callable[[int, int], int] = lambda heads, dim: 2 * heads * dim,
    layers: Callable[[int, int], float] = lambda mine, other: mine / other,
    bits: Callable[[float, float], float] = lambda mine, other: mine / other,
    result: Callable[[float], float] = lambda ratio: 1 - ratio,
) -> Answer:
    def answer(
        mla_layers: int, rank: int, rope_dim: int, mla_bits: float,
        gqa_layers: int, gqa_kv_heads: int, gqa_head_dim: int, gqa_bits: float,
    ) -> float:  # fmt: skip
        ratio = mla(rank, rope_dim) / gqa(gqa_kv_heads, gqa_head_dim)
        return result(ratio * layers(mla_layers, gqa_layers) * bits(mla_bits, gqa_bits))

    return answer


SAVING = Exercise(
    title="How much smaller is the cache?",
    oracle=_saving_oracle,
    cases=(
        Case("DeepSeek-V2 and DeepSeek 67B", lambda: (60, 512, 64, 6, 95, 8, 128, 16)),
        Case("the same, both in 16 bits", lambda: (60, 512, 64, 16, 95, 8, 128, 16)),
        Case("equal layers", lambda: (32, 256, 32, 8, 32, 8, 128, 16)),
        Case("MHA with 128 heads", lambda: (60, 512, 64, 16, 60, 128, 128, 16)),
        Case("a larger latent than the groups", lambda: (10, 640, 64, 16, 10, 2, 64, 16)),
        Case("4 bits against 8", lambda: (27, 512, 64, 4, 40, 10, 96, 8)),
    ),
    wrong=(
        WrongAnswer(
            "bits left out",
            "The two caches store their numbers in different widths, so numbers are not bytes.",
            _saving(bits=lambda mine, other: 1.0),
        ),
        WrongAnswer(
            "layers left out",
            "Each layer has a cache of its own, and the models differ in layers.",
            _saving(layers=lambda mine, other: 1.0),
        ),
        WrongAnswer(
            "keys without values",
            "GQA caches a key and a value for each group: twice as many numbers.",
            _saving(gqa=lambda heads, dim: heads * dim),
        ),
        WrongAnswer(
            "the latent counted twice",
            "One latent serves as key and as value; it is cached once.",
            _saving(mla=lambda rank, rope: 2 * rank + rope),
        ),
        WrongAnswer(
            "the shared key forgotten",
            "The rotated key of d_R numbers is cached beside the latent.",
            _saving(mla=lambda rank, rope: rank),
        ),
        WrongAnswer(
            "what is left, not what is saved",
            "The share that is saved is 1 minus the ratio of the two caches.",
            _saving(result=lambda ratio: ratio),
        ),
        WrongAnswer(
            "in percent",
            "The share is asked for as a number up to 1, not in percent.",
            _saving(result=lambda ratio: 100 * (1 - ratio)),
        ),
    ),
    variants=(_saving(),),
)


# --- A latent for a budget ------------------------------------------------------------------------


def _rank_oracle(budget: int, layers: int, tokens: int, rope_dim: int, bits: int) -> int:
    """Tried out, one multiple of 64 after the other."""
    rank = 0
    while (rank + 64 + rope_dim) * layers * tokens * bits <= 8 * budget:
        rank += 64
    return rank


@in_parts
def _rank(
    numbers: Callable[[int, int, int, int], float] = lambda n, layers, tokens, bits: (
        8 * n / (layers * tokens * bits)
    ),
    left: Callable[[float, int], float] = lambda numbers, rope: numbers - rope,
    rounded: Callable[[float], int] = lambda rank: max(0, int(rank // 64) * 64),
) -> Answer:
    def answer(budget: int, layers: int, tokens: int, rope_dim: int, bits: int) -> int:
        return rounded(left(numbers(budget, layers, tokens, bits), rope_dim))

    return answer


GIB = 2**30
LARGEST_RANK = Exercise(
    title="A latent for a budget",
    oracle=_rank_oracle,
    cases=(
        Case("4 GiB, 60 layers, 64k tokens, 16 bits", lambda: (4 * GIB, 60, 65536, 64, 16)),
        Case("8 GiB, 32 layers, 128k tokens, 8 bits", lambda: (8 * GIB, 32, 131072, 64, 8)),
        Case("2 GiB, 27 layers, 32k tokens, 16 bits", lambda: (2 * GIB, 27, 32768, 48, 16)),
        Case("an exact fit", lambda: (576 * 2 * 10 * 1000, 10, 1000, 64, 16)),
        Case(
            "one byte less than an exact fit", lambda: (576 * 2 * 10 * 1000 - 1, 10, 1000, 64, 16)
        ),
        Case("room for the shared key only", lambda: (100 * 2 * 4 * 512, 4, 512, 64, 16)),
        Case("not even room for the shared key", lambda: (10 * 2 * 4 * 512, 4, 512, 64, 16)),
    ),
    wrong=(
        WrongAnswer(
            "the shared key forgotten",
            "The rotated key takes d_R numbers of each token's room before the latent gets any.",
            _rank(left=lambda numbers, rope: numbers),
        ),
        WrongAnswer(
            "room for keys and values",
            "The latent is cached once, not once as keys and once as values.",
            _rank(left=lambda numbers, rope: numbers / 2 - rope),
        ),
        WrongAnswer(
            "one layer's cache",
            "The budget is for all layers, and each has a cache of its own.",
            _rank(numbers=lambda n, layers, tokens, bits: 8 * n / (tokens * bits)),
        ),
        WrongAnswer(
            "bits taken for bytes",
            "A number of 16 bits has 2 bytes; the budget is in bytes.",
            _rank(numbers=lambda n, layers, tokens, bits: n / (layers * tokens * bits)),
        ),
        WrongAnswer(
            "rounded to the nearest",
            "Rounding up does not fit the budget; round down to a multiple of 64.",
            _rank(rounded=lambda rank: max(0, int((rank + 32) // 64) * 64)),
        ),
        WrongAnswer(
            "not a multiple of 64",
            "A multiple of 64 is asked for, as kernels like it.",
            _rank(rounded=lambda rank: max(0, int(rank))),
        ),
        WrongAnswer(
            "a negative width",
            "If nothing is left after the shared key, no latent fits, which is 0.",
            _rank(rounded=lambda rank: int(rank // 64) * 64),
        ),
    ),
    variants=(_rank(),),
)

EXERCISES = {
    "absorbed": ABSORBED,
    "cache_entry": CACHE_ENTRY,
    "between": BETWEEN,
    "gqa_up": GQA_UP,
    "saving": SAVING,
    "largest_rank": LARGEST_RANK,
}
