"""Questions of the assignment: embed_at, move_back, tied_backward."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
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


def _embed_cosines_first(tokens: Tensor, weight: Tensor, offset: int) -> Tensor:
    d = weight.shape[1]
    rows = _table(offset + tokens.shape[1], d)[offset:]
    return weight[tokens] * math.sqrt(d) + rows.reshape(-1, d // 2, 2).flip(-1).flatten(1)


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
        WrongAnswer(
            "offset one too large",
            "The first token of all has position 0, so the first new one has as many positions "
            "before it as there were tokens.",
            _embed(first=lambda offset: offset + 1),
        ),
        WrongAnswer(
            "embedding divided by the root",
            "Entries of the table are small, and are made larger by sqrt(d_model), not smaller.",
            _embed(scale=lambda d: d**-0.5),
        ),
        WrongAnswer(
            "cosine before sine",
            "In each pair of features the sine comes first. At position 0 it is 0, then 1.",
            _embed_cosines_first,
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


def _moved_by_difference(encodings: Tensor, k: float, base: float) -> Tensor:
    return encodings - _encodings([k], encodings.shape[-1], base)[0]


def _moved_without_sign(encodings: Tensor, k: float, base: float) -> Tensor:
    return _move_back(encodings, abs(k), base)


def _moved_by_first_pair(encodings: Tensor, k: float, base: float) -> Tensor:
    position = torch.atan2(encodings[..., 0], encodings[..., 1])
    angle = (position - k)[..., None] * _frequencies(encodings.shape[-1], base)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


def _moved_over_itself(encodings: Tensor, k: float, base: float) -> Tensor:
    out = encodings.clone()
    angle = k * _frequencies(encodings.shape[-1], base)
    sine, cosine = out[..., 0::2], out[..., 1::2]
    out[..., 0::2] = sine * angle.cos() - cosine * angle.sin()
    out[..., 1::2] = cosine * angle.cos() + sine * angle.sin()
    return out


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
        WrongAnswer(
            "encodings subtracted",
            "The sine of a difference is no difference of sines: nothing that is added moves all "
            "positions by the same k.",
            _moved_by_difference,
        ),
        WrongAnswer(
            "sign of k dropped",
            "A negative k moves forward. The sine keeps the sign of k, the cosine does not.",
            _moved_without_sign,
        ),
        WrongAnswer(
            "position read off the first pair",
            "The first pair comes round after 2 pi places and tells no position beyond. The "
            "positions need not be known.",
            _moved_by_first_pair,
        ),
        WrongAnswer(
            "sines overwritten before the cosines are made",
            "Both new features of a pair come from both old ones. A slice is a view: what is "
            "written in its place is what the next line reads.",
            _moved_over_itself,
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


def _tied_averaged(ge: Tensor, gl: Tensor, tokens: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    counts = torch.bincount(tokens.flatten(), minlength=len(weight)).clamp(min=1)
    return _tied(head=False)(ge, gl, tokens, h, weight) / counts[:, None] + _tied(lookup=False)(
        ge, gl, tokens, h, weight
    )


def _tied_across(ge: Tensor, gl: Tensor, tokens: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    columns = torch.einsum("...v,...d->dv", gl, h)
    found: Tensor = _tied(head=False)(ge, gl, tokens, h, weight) + columns
    return found


def _tied_padded(ge: Tensor, gl: Tensor, tokens: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = _tied()(ge * (tokens != 0)[..., None], gl, tokens, h, weight)
    return found


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
        WrongAnswer(
            "gradients of a repeated token averaged",
            "Each place where a token stands has its own effect on the loss, and the effects add "
            "up. Nothing divides by how many there are.",
            _tied_averaged,
        ),
        WrongAnswer(
            "gradient of the head transposed",
            "It has the shape of the matrix, (vocabulary, d_model). The other way round it fits "
            "by accident only, where both are equal.",
            _tied_across,
        ),
        WrongAnswer(
            "scaled by d_model",
            "The factor of the lookup is the root of d_model, and comes back as it went.",
            _tied(scale=float),
        ),
        WrongAnswer(
            "token 0 taken for padding",
            "Nothing says that token 0 is padding. Its row is looked up like every other one.",
            _tied_padded,
        ),
    ),
)


EXERCISES = {
    "embed_at": EMBED_AT,
    "move_back": MOVE_BACK,
    "tied_backward": TIED_BACKWARD,
}
