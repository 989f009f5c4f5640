"""The block of Qwen3, written by the reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.drawn import draw

Fn = Callable[[Tensor], Tensor]
Weights = Mapping[str, Tensor]
Norm = Callable[[Tensor, Tensor, float], Tensor]
Step = Callable[[Tensor, Fn, Fn], Tensor]

NORMS = ("input_layernorm", "post_attention_layernorm")


def _rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], gain, eps)


def _layer(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, None, eps)


def _unit_length(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps) * gain


def _over_all_heads(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean((1, 3), keepdim=True) + eps) * gain


def _in_order(x: Tensor, times: int) -> Tensor:
    return x.repeat_interleave(times, 1)


def _by_turns(x: Tensor, times: int) -> Tensor:
    return x.repeat(1, times, 1, 1)


@in_parts
def _block(
    step: Step = lambda x, f, n: x + f(n(x)),
    norms: tuple[str, str] = NORMS,
    norm: Norm = _rms,
    head_norm: Norm = _rms,
    norm_first: bool = True,
    gains: tuple[str, str] = ("q_norm", "k_norm"),
    rotated: str = "qk",
    shared: Callable[[Tensor, int], Tensor] = _in_order,
    causal: bool = True,
    scale: float = -0.5,
    joined: Callable[[Tensor], Tensor] = lambda z: z.transpose(1, 2).flatten(2),
    gated: Callable[[Tensor, Tensor], Tensor] = lambda gate, up: F.silu(gate) * up,
    parallel: bool = False,
) -> Answer:
    """A block whose parts can be replaced one by one."""

    def answer(
        x: Tensor, w: Weights, rotate: Fn, num_heads: int, num_kv_heads: int, eps: float
    ) -> Tensor:
        def prepared(t: Tensor, name: str, gain: str) -> Tensor:
            turn: Fn = rotate if name in rotated else lambda t: t
            if norm_first:
                return turn(head_norm(t, w[gain], eps))
            return head_norm(turn(t), w[gain], eps)

        def attention(h: Tensor) -> Tensor:
            q, k, v = (
                torch.unflatten(h @ w[f"{name}_proj"].T, -1, (n, -1)).transpose(1, 2)
                for name, n in (("q", num_heads), ("k", num_kv_heads), ("v", num_kv_heads))
            )
            q, k = prepared(q, "q", gains[0]), prepared(k, "k", gains[1])
            v = rotate(v) if "v" in rotated else v
            k, v = (shared(t, num_heads // num_kv_heads) for t in (k, v))
            z = F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=q.shape[-1] ** scale
            )
            return joined(z) @ w["o_proj"].T

        def feed_forward(h: Tensor) -> Tensor:
            return gated(h @ w["gate_proj"].T, h @ w["up_proj"].T) @ w["down_proj"].T

        def one(t: Tensor) -> Tensor:
            return norm(t, w[norms[0]], eps)

        def two(t: Tensor) -> Tensor:
            return norm(t, w[norms[1]], eps)

        u = step(x, attention, one)
        return u + feed_forward(two(x)) if parallel else step(u, feed_forward, two)

    return answer


def _by_heads(
    x: Tensor, w: Weights, rotate: Fn, num_heads: int, num_kv_heads: int, eps: float
) -> Tensor:
    """Every query head by itself, with a softmax that is written out."""

    def norm(t: Tensor, name: str) -> Tensor:
        return w[name] * t / (t.square().mean(-1, keepdim=True) + eps).sqrt()

    def head_of(name: str, i: int) -> Tensor:
        rows = torch.unflatten(
            w[f"{name}_proj"], 0, (num_heads if name == "q" else num_kv_heads, -1)
        )
        made: Tensor = (h @ rows[i].T)[:, None]
        return made

    h, u = norm(x, NORMS[0]), x
    out = torch.unflatten(w["o_proj"], 1, (num_heads, -1))
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    for i in range(num_heads):
        j = i * num_kv_heads // num_heads
        q, k = (rotate(norm(head_of(n, m), f"{n}_norm")) for n, m in (("q", i), ("k", j)))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
        u = u + (scores.softmax(-1) @ head_of("v", j))[:, 0] @ out[:, i].T
    h = norm(u, NORMS[1])
    gate = h @ w["gate_proj"].T
    return u + gate * gate.sigmoid() * (h @ w["up_proj"].T) @ w["down_proj"].T


def _rotation(length: int, dim: int) -> Fn:
    """The rotation of neighbours, for positions counted from 0."""
    at = torch.arange(length, dtype=torch.float64)
    angle = torch.outer(at, 100.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim))
    turn = torch.polar(torch.ones_like(angle), angle)

    def rotate(x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[-2:] != (length, dim):
            raise ValueError(
                f"rotate expects the shape (B, heads, T, d_head), T = {length} and "
                f"d_head = {dim}, got {tuple(x.shape)}"
            )
        a, b = x[..., 0::2], x[..., 1::2]
        cos, sin = turn.real.to(x.dtype), turn.imag.to(x.dtype)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    return rotate


def _case(
    name: str, b: int, t: int, d: int, h: int, g: int, dim: int, ff: int, eps: float = 1e-3
) -> Case:
    def inputs() -> tuple[Any, ...]:
        shapes = {
            "q_proj": (h * dim, d), "k_proj": (g * dim, d), "v_proj": (g * dim, d),
            "o_proj": (d, h * dim), "gate_proj": (ff, d), "up_proj": (ff, d), "down_proj": (d, ff),
            "q_norm": (dim,), "k_norm": (dim,), NORMS[0]: (d,), NORMS[1]: (d,),
        }  # fmt: skip
        w = {
            n: draw(*s, seed=k + 1) / s[-1] ** 0.5 if "proj" in n else 1 + draw(*s, seed=k + 1) / 2
            for k, (n, s) in enumerate(shapes.items())
        }
        w = {n: t.requires_grad_() for n, t in w.items()}
        return draw(b, t, d).requires_grad_(), w, _rotation(t, dim), h, g, eps

    return Case(name, inputs, grad=True)


BLOCK = Exercise(
    title="The block of Qwen3",
    oracle=_block(),
    cases=[
        _case("four heads, two with keys", 2, 4, 8, 4, 2, 4, 12),
        _case("heads wider than d_model / num_heads", 1, 5, 6, 4, 2, 6, 10),
        _case("keys and values for every head", 2, 3, 8, 2, 2, 4, 8, eps=1e-6),
        _case("one head with keys", 1, 6, 10, 3, 1, 2, 7),
        _case("a single token", 3, 1, 8, 4, 2, 2, 5, eps=0.1),
    ],
    variants=(_by_heads,),
    wrong=(
        WrongAnswer(
            "norm after the addition",
            "The norm stands on the branch. On the stream itself stand sums only (Pre-Norm).",
            _block(step=lambda x, f, n: n(x + f(x))),
        ),
        WrongAnswer(
            "residual forgotten",
            "Each sub-layer's output is added to the stream that came in.",
            _block(step=lambda x, f, n: f(n(x))),
        ),
        WrongAnswer(
            "the normalised rows added",
            "x itself is added, not its normalised copy, which only the sub-layer sees.",
            _block(step=lambda x, f, n: n(x) + f(n(x))),
        ),
        WrongAnswer(
            "both sub-layers on the same input",
            "The feed-forward layer works on the sum after attention, not on x.",
            _block(parallel=True),
        ),
        WrongAnswer(
            "the two norms exchanged",
            "input_layernorm stands before attention; post_attention_layernorm, whatever it is "
            "called, before the feed-forward layer.",
            _block(norms=(NORMS[1], NORMS[0])),
        ),
        WrongAnswer(
            "LayerNorm in place of RMSNorm",
            "Nothing is subtracted: the norms before the sub-layers are RMSNorms.",
            _block(norm=_layer),
        ),
        WrongAnswer(
            "QK-norm forgotten",
            "Each head's query and key are normalised, with the gains q_norm and k_norm.",
            _block(head_norm=lambda x, gain, eps: x),
        ),
        WrongAnswer(
            "QK-norm after the rotation",
            "The gain differs within a pair of features, so it does not commute with the "
            "rotation: the scores would no longer depend on the distance alone.",
            _block(norm_first=False),
        ),
        WrongAnswer(
            "one QK-norm over all heads",
            "Each head's d_head features have their own root mean square in Qwen3. (OLMo 2 "
            "normalises over all heads.)",
            _block(head_norm=_over_all_heads),
        ),
        WrongAnswer(
            "queries and keys divided by their length",
            "RMSNorm divides by the root of the mean square, not of the sum.",
            _block(head_norm=_unit_length),
        ),
        WrongAnswer(
            "gains of queries and keys exchanged",
            "q_norm belongs to the queries and k_norm to the keys. Under the rotation that makes "
            "a difference.",
            _block(gains=("k_norm", "q_norm")),
        ),
        WrongAnswer(
            "nothing is rotated",
            "Queries and keys are rotated. Without that the block does not know the positions.",
            _block(rotated=""),
        ),
        WrongAnswer(
            "the values are rotated, too",
            "Only queries and keys are rotated. In the values the position would be mixed into "
            "what is passed on.",
            _block(rotated="qkv"),
        ),
        WrongAnswer(
            "keys and values dealt out in turn",
            "The first num_heads / num_kv_heads query heads share the first key-value head, the "
            "next ones the second: repeat_interleave, not repeat.",
            _block(shared=_by_turns),
        ),
        WrongAnswer(
            "no causal mask",
            "A position attends to itself and to what came before it.",
            _block(causal=False),
        ),
        WrongAnswer(
            "scale forgotten",
            "QK-norm does not replace the division by sqrt(d_head); both are there.",
            _block(scale=0.0),
        ),
        WrongAnswer(
            "heads joined without going back",
            "The heads stand before the positions, (B, heads, T, d_head). Their dimension goes "
            "back behind that of the positions before the features are joined.",
            _block(joined=lambda z: z.reshape(z.shape[0], z.shape[2], -1)),
        ),
        WrongAnswer(
            "gate and up exchanged",
            "The gate goes through SiLU, and up is multiplied as it is.",
            _block(gated=lambda gate, up: gate * F.silu(up)),
        ),
        WrongAnswer(
            "a sigmoid in place of SiLU",
            "SiLU is the number times its sigmoid. With the sigmoid alone it is a GLU.",
            _block(gated=lambda gate, up: gate.sigmoid() * up),
        ),
        WrongAnswer(
            "a feed-forward layer without a gate",
            "SwiGLU multiplies SiLU of the gate by up, feature by feature.",
            _block(gated=lambda gate, up: F.silu(up)),
        ),
    ),
)
