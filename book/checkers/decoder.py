"""The exercises of chapter 15: counting, reading configurations, sampling, layouts and the cache.

The oracles are torch's own operators and published numbers, never the book's library. Where it
helps, a wrong answer replaces one part of a right one, so that its line shows the mistake alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- Parameters of a published model --------------------------------------------------------------


@in_parts
def _count(
    embedding: Callable[[int, int, bool], int] = lambda v, d, tied: (2 - tied) * v * d,
    projections: Callable[[int, int, int, int], int] = lambda d, h, g, dh: 2 * d * dh * (h + g),
    biases: Callable[[int, int, int], int] = lambda h, g, dh: dh * (h + 2 * g),
    gains: Callable[[int, int, int], int] = lambda h, g, dh: 2 * dh,
    matrices: int = 3,
    norms: int = 2,
    final: int = 1,
) -> Answer:
    def parameter_count(
        vocab_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        d_ff: int,
        qkv_bias: bool,
        qk_norm: bool,
        tied: bool,
    ) -> int:
        h, g = num_heads, num_kv_heads
        block = projections(d_model, h, g, head_dim) + matrices * d_model * d_ff + norms * d_model
        block += qkv_bias * biases(h, g, head_dim) + qk_norm * gains(h, g, head_dim)
        return int(embedding(vocab_size, d_model, tied)) + num_layers * block + final * d_model

    return parameter_count


def _count_by_tensors(*sizes: Any) -> int:
    """Every tensor by its shape, on the meta device."""
    v, d, layers, h, g, dh, ff, qkv_bias, qk_norm, tied = sizes
    shapes: list[tuple[int, ...]] = [(v, d), (d,)] + ([] if tied else [(v, d)])
    for _ in range(layers):
        shapes += [(h * dh, d), (g * dh, d), (g * dh, d), (d, h * dh), (d,), (d,)]
        shapes += [(ff, d), (ff, d), (d, ff)]
        shapes += [(h * dh,), (g * dh,), (g * dh,)] if qkv_bias else []
        shapes += [(dh,), (dh,)] if qk_norm else []
    return sum(torch.empty(shape, device="meta").numel() for shape in shapes)


_PUBLISHED: dict[str, tuple[Any, ...]] = {
    "LLaMA-7B": (32000, 4096, 32, 32, 32, 128, 11008, False, False, False),
    "Llama-2-70B": (32000, 8192, 80, 64, 8, 128, 28672, False, False, False),
    "Llama-3-8B": (128256, 4096, 32, 32, 8, 128, 14336, False, False, False),
    "Mistral-7B": (32000, 4096, 32, 32, 8, 128, 14336, False, False, False),
    "Qwen2.5-7B": (152064, 3584, 28, 28, 4, 128, 18944, True, False, False),
    "Qwen3-8B": (151936, 4096, 36, 32, 8, 128, 12288, False, True, False),
    "Qwen3-0.6B, tied, wide heads": (151936, 1024, 28, 16, 8, 128, 3072, False, True, True),
    "a small one with everything": (11, 24, 3, 4, 2, 10, 17, True, True, True),
}


def _sizes_case(name: str, sizes: tuple[Any, ...]) -> Case:
    return Case(name, lambda: sizes)


PARAMETER_COUNT = Exercise(
    title="Parameters of a published model",
    oracle=_count(),
    cases=[_sizes_case(name, sizes) for name, sizes in _PUBLISHED.items()],
    variants=(_count_by_tensors,),
    wrong=(
        WrongAnswer(
            "keys and values with as many heads as queries",
            "Only the G key-value heads have their own key and value rows: two matrices of "
            "d_model * G * head_dim.",
            _count(projections=lambda d, h, g, dh: 4 * d * h * dh),
        ),
        WrongAnswer(
            "d_model squared for queries and output",
            "The queries have num_heads * head_dim features, which need not be d_model. In "
            "Qwen3-0.6B it is twice as much.",
            _count(projections=lambda d, h, g, dh: 2 * d * d + 2 * d * g * dh),
        ),
        WrongAnswer(
            "two matrices in the feed-forward layer",
            "A gated layer has three matrices: gate, up and down.",
            _count(matrices=2),
        ),
        WrongAnswer(
            "the output head forgotten",
            "Unless it is tied to the embedding, the head is a second matrix of "
            "vocab_size * d_model.",
            _count(embedding=lambda v, d, tied: v * d),
        ),
        WrongAnswer(
            "the head counted although it is tied",
            "A tied head is the embedding once more, and a parameter is counted once.",
            _count(embedding=lambda v, d, tied: 2 * v * d),
        ),
        WrongAnswer(
            "the last norm forgotten",
            "A Pre-Norm model has one more norm after the last block, with d_model gains.",
            _count(final=0),
        ),
        WrongAnswer(
            "one norm per block",
            "Both sub-layers of a block have a norm of their own.",
            _count(norms=1),
        ),
        WrongAnswer(
            "norms with a bias",
            "RMSNorm has a gain and no offset, so it has d_model parameters and not twice as many.",
            _count(norms=4, final=2),
        ),
        WrongAnswer(
            "a bias of the keys and values for every query head",
            "The bias has as many entries as the projection has outputs: G * head_dim for keys "
            "and for values.",
            _count(biases=lambda h, g, dh: 3 * h * dh),
        ),
        WrongAnswer(
            "QK-norm with a gain for every head",
            "One gain of head_dim numbers serves all query heads of a layer, another one all "
            "its key heads.",
            _count(gains=lambda h, g, dh: dh * (h + g)),
        ),
    ),
)


# --- Reading a configuration ----------------------------------------------------------------------


@in_parts
def _read(
    head_dim: Callable[[dict[str, Any]], int] | None = None,
    kv_heads: Callable[[dict[str, Any]], int] | None = None,
    qkv_bias: Callable[[dict[str, Any]], bool] | None = None,
    out_bias: Callable[[dict[str, Any]], bool] | None = None,
    qk_norm: Callable[[dict[str, Any]], bool] | None = None,
) -> Answer:
    def right_dim(hf: dict[str, Any]) -> int:
        if hf.get("head_dim") is not None:
            return int(hf["head_dim"])
        quotient = int(hf["hidden_size"] // hf["num_attention_heads"])
        return 128 if hf["model_type"] == "qwen3" else quotient

    def right_kv(hf: dict[str, Any]) -> int:
        given = hf.get("num_key_value_heads")
        return int(hf["num_attention_heads"] if given is None else given)

    def right_out(hf: dict[str, Any]) -> bool:
        return hf["model_type"] != "qwen2" and bool(hf.get("attention_bias", False))

    def right_qkv(hf: dict[str, Any]) -> bool:
        return hf["model_type"] == "qwen2" or right_out(hf)

    def read_config(hf: dict[str, Any]) -> tuple[int, int, bool, bool, bool]:
        return (
            (head_dim or right_dim)(hf),
            (kv_heads or right_kv)(hf),
            (qkv_bias or right_qkv)(hf),
            (out_bias or right_out)(hf),
            (qk_norm or (lambda hf: hf["model_type"] == "qwen3"))(hf),
        )

    return read_config


def _read_by_family(hf: dict[str, Any]) -> list[Any]:
    heads = hf["num_attention_heads"]
    defaults = {"llama": None, "qwen2": None, "qwen3": 128}
    dim = hf.get("head_dim") or defaults[hf["model_type"]] or hf["hidden_size"] // heads
    kv = hf.get("num_key_value_heads") or heads
    flag = hf.get("attention_bias", False)
    rest = {
        "llama": [flag, flag, False],
        "qwen2": [True, False, False],
        "qwen3": [flag, flag, True],
    }
    return [dim, kv, *rest[hf["model_type"]]]


def _config_case(name: str, family: str, width: int, heads: int, **more: Any) -> Case:
    hf = {"model_type": family, "hidden_size": width, "num_attention_heads": heads, **more}
    return Case(name, lambda: (dict(hf),))


READ_CONFIG = Exercise(
    title="Read a configuration",
    oracle=_read(),
    cases=[
        _config_case("LLaMA-7B", "llama", 4096, 32),
        _config_case("Llama-3-8B", "llama", 4096, 32, num_key_value_heads=8),
        _config_case(
            "a Llama with nulls", "llama", 4096, 32, head_dim=None, num_key_value_heads=None
        ),
        _config_case("a Llama with wide heads", "llama", 2048, 16, head_dim=256),
        _config_case("a Llama with biases", "llama", 512, 8, attention_bias=True),
        _config_case("Qwen2.5-7B", "qwen2", 3584, 28, num_key_value_heads=4),
        _config_case("a Qwen2 that says it has none", "qwen2", 896, 14, attention_bias=False),
        _config_case("a Qwen2 that says it has them", "qwen2", 896, 14, attention_bias=True),
        _config_case(
            "Qwen3-0.6B",
            "qwen3",
            1024,
            16,
            head_dim=128,
            num_key_value_heads=8,
            attention_bias=False,
        ),
        _config_case("a Qwen3 without head_dim", "qwen3", 1024, 16, num_key_value_heads=8),
        _config_case("a Qwen3 with biases", "qwen3", 1024, 8, attention_bias=True),
    ],
    variants=(_read_by_family,),
    wrong=(
        WrongAnswer(
            "head_dim always the quotient",
            "The configuration may give head_dim itself, and Qwen3's default is 128. Divide only "
            "if neither applies.",
            _read(head_dim=lambda hf: hf["hidden_size"] // hf["num_attention_heads"]),
        ),
        WrongAnswer(
            "the default of Qwen3 forgotten",
            "A Qwen3 without head_dim has heads of 128 features, whatever its width.",
            _read(
                head_dim=lambda hf: int(
                    hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"]
                )
            ),
        ),
        WrongAnswer(
            "nulls taken for values",
            "hf.get(key, default) gives None for a null in the file: the key is there. Test for "
            "None.",
            _read(
                kv_heads=lambda hf: hf.get("num_key_value_heads", hf["num_attention_heads"]),
                head_dim=lambda hf: hf.get(
                    "head_dim",
                    128
                    if hf["model_type"] == "qwen3"
                    else hf["hidden_size"] // hf["num_attention_heads"],
                ),
            ),
        ),
        WrongAnswer(
            "one key-value head where none is given",
            "An absent num_key_value_heads means multi-head attention: as many as query heads.",
            _read(kv_heads=lambda hf: hf.get("num_key_value_heads") or 1),
        ),
        WrongAnswer(
            "Qwen2 without biases",
            "Qwen2's configuration does not mention them; its model_type implies biases of q, k "
            "and v.",
            _read(qkv_bias=lambda hf: bool(hf.get("attention_bias", False))),
        ),
        WrongAnswer(
            "Qwen2 with a bias on the output",
            "In Qwen2 only q, k and v have biases. The output projection has none.",
            _read(
                out_bias=lambda hf: (
                    hf["model_type"] == "qwen2" or bool(hf.get("attention_bias", False))
                )
            ),
        ),
        WrongAnswer(
            "Llama's attention_bias without the output",
            "In Llama and Qwen3 attention_bias is for all four matrices of attention.",
            _read(out_bias=lambda hf: False),
        ),
        WrongAnswer(
            "QK-norm in Qwen2",
            "QK-norm came with Qwen3, in place of the biases.",
            _read(qk_norm=lambda hf: "qwen" in hf["model_type"]),
        ),
        WrongAnswer(
            "no QK-norm",
            "Qwen3 normalises queries and keys in every layer, and its configuration has no key "
            "for it.",
            _read(qk_norm=lambda hf: False),
        ),
    ),
)


# --- Top-p ----------------------------------------------------------------------------------------


@in_parts
def _filter(
    keeps: Callable[[Tensor, float], Tensor] = lambda p, P: p.cumsum(-1) - p < P,
    first: bool = True,
    fill: float = -torch.inf,
    descending: bool = True,
    back: bool = True,
) -> Answer:
    def top_p_filter(logits: Tensor, top_p: float) -> Tensor:
        probs, index = logits.softmax(-1).sort(-1, descending=descending)
        keep = keeps(probs, top_p)
        if first:
            keep = torch.cat([torch.ones_like(keep[..., :1]), keep[..., 1:]], -1)
        if back:
            keep = torch.zeros_like(keep).scatter(-1, index, keep)
        return logits.masked_fill(~keep, fill)

    return top_p_filter


def _top_p_by_rank(logits: Tensor, top_p: float) -> Tensor:
    """Row by row, with a loop over the ranks."""
    out = torch.full_like(logits, -torch.inf)
    for row, target in zip(
        logits.reshape(-1, logits.shape[-1]), out.view(-1, out.shape[-1]), strict=True
    ):
        p, total = row.softmax(-1), 0.0
        for j in p.argsort(descending=True).tolist():
            target[j] = row[j]
            total += p[j].item()
            if total >= top_p:
                break
    return out


def _renormalised(logits: Tensor, top_p: float) -> Tensor:
    kept = _filter()(logits, top_p)
    return torch.as_tensor(kept.softmax(-1))


def _by_threshold(logits: Tensor, top_p: float) -> Tensor:
    return logits.masked_fill(logits.softmax(-1) < 1 - top_p, -torch.inf)


def _top_p_case(name: str, make: Callable[[], Tensor], top_p: float) -> Case:
    return Case(name, lambda: (make(), top_p))


TOP_P = Exercise(
    title="The top-p filter",
    oracle=_filter(),
    leading={"logits": 1},
    cases=[
        _top_p_case("nine tokens", lambda: _draw(9), 0.8),
        _top_p_case("a batch", lambda: 2 * _draw(4, 11, seed=1), 0.9),
        _top_p_case("two batch dimensions", lambda: _draw(2, 3, 7, seed=2), 0.6),
        _top_p_case("the first token alone exceeds it", lambda: 6 * _draw(3, 8, seed=3), 0.1),
        _top_p_case("a very small nucleus", lambda: _draw(5, 8, seed=4), 1e-6),
        _top_p_case("nearly everything", lambda: _draw(2, 6, seed=5), 0.999999),
        _top_p_case("float32", lambda: _draw(3, 9, seed=6).float(), 0.7),
        _top_p_case(
            "half of it in one token, and half is asked for",
            lambda: torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64).log(),
            0.5,
        ),
        _top_p_case("large logits", lambda: 1000 + _draw(3, 9, seed=7), 0.5),
    ],
    variants=(_top_p_by_rank, _filter(first=False)),
    wrong=(
        WrongAnswer(
            "the token that crosses the line is dropped",
            "The sum up to and including a token says whether it is the last one. A token stays "
            "if the sum before it is below top_p; otherwise the nucleus falls short.",
            _filter(keeps=lambda p, P: p.cumsum(-1) <= P, first=False),
        ),
        WrongAnswer(
            "the crossing token is dropped, the first one saved",
            "Saving the first token avoids an empty nucleus but the others are still one too "
            "few: compare the sum before each token.",
            _filter(keeps=lambda p, P: p.cumsum(-1) <= P),
        ),
        WrongAnswer(
            "one token too many",
            "The list ends with the token that reaches top_p. The next one starts at or above it.",
            _filter(keeps=lambda p, P: F.pad((p.cumsum(-1) - p < P)[..., :-1], (1, 0), value=True)),
        ),
        WrongAnswer(
            "the mask left in sorted order",
            "The mask belongs to the sorted tokens. Scatter it back to their places.",
            _filter(back=False),
        ),
        WrongAnswer(
            "the least probable tokens first",
            "The nucleus is made of the most probable tokens: sort in descending order.",
            _filter(descending=False),
        ),
        WrongAnswer(
            "zeros in place of minus infinity",
            "A logit of zero is a probability like any other. Only minus infinity is none.",
            _filter(fill=0.0),
        ),
        WrongAnswer(
            "probabilities returned",
            "The function filters logits; a softmax comes later, and once.",
            _renormalised,
        ),
        WrongAnswer(
            "a threshold on single probabilities",
            "top_p is about the sum of the most probable tokens, not about each probability.",
            _by_threshold,
        ),
        WrongAnswer(
            "logits summed instead of probabilities",
            "The sum that has to reach top_p is one of probabilities: softmax first.",
            lambda logits, top_p: logits.masked_fill(
                logits.sort(-1, descending=True).values.cumsum(-1) > top_p, -torch.inf
            ),
        ),
    ),
)


# --- The layout of a projection -------------------------------------------------------------------


def _to_neighbours(weight: Tensor, num_heads: int) -> Tensor:
    return torch.unflatten(weight, 0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _to_neighbours_by_index(weight: Tensor, num_heads: int) -> Tensor:
    dim = weight.shape[0] // num_heads
    rows = []
    for head in range(num_heads):
        for k in range(dim // 2):
            rows += [head * dim + k, head * dim + k + dim // 2]
    return weight[rows]


def _to_halves(weight: Tensor, num_heads: int) -> Tensor:
    return torch.unflatten(weight, 0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _swapped_halves(weight: Tensor, num_heads: int) -> Tensor:
    return torch.unflatten(weight, 0, (num_heads, 2, -1)).flip(1).transpose(1, 2).flatten(0, 2)


def _columns(weight: Tensor, num_heads: int) -> Tensor:
    dim = weight.shape[0] // num_heads
    if weight.shape[1] % dim:
        raise ValueError("d_model is not a multiple of the head size")
    return torch.unflatten(weight, 1, (-1, 2, dim // 2)).transpose(2, 3).flatten(1)


PERMUTE = Exercise(
    title="Permute a projection",
    oracle=_to_neighbours,
    cases=[
        Case("two heads of eight", lambda: (_draw(16, 16), 2)),
        Case("one head", lambda: (_draw(8, 24, seed=1), 1)),
        Case("heads of six, a wide model", lambda: (_draw(24, 36, seed=2), 4)),
        Case("three heads of ten", lambda: (_draw(30, 20, seed=3), 3)),
        Case("a transposed matrix", lambda: (_draw(24, 32, seed=4).T, 4)),
        Case("with gradients", lambda: (_draw(16, 8, seed=5).requires_grad_(), 2), grad=True),
    ],
    variants=(_to_neighbours_by_index,),
    wrong=(
        WrongAnswer(
            "the inverse permutation",
            "This takes neighbours to halves, as Hugging Face's conversion script does. The way "
            "back starts from two halves: unflatten into (num_heads, 2, d_head / 2).",
            _to_halves,
        ),
        WrongAnswer(
            "all heads as one",
            "Pairs are formed within each head. Split into heads before the halves.",
            lambda weight, num_heads: _to_neighbours(weight, 1),
        ),
        WrongAnswer(
            "halves exchanged",
            "Feature k goes to place 2k and feature k + d_head / 2 to 2k + 1. The other way "
            "round turns every rotation backwards.",
            _swapped_halves,
        ),
        WrongAnswer(
            "columns permuted",
            "torch stores (out, in). Queries and keys are the outputs, so rows move.",
            _columns,
        ),
        WrongAnswer(
            "nothing permuted",
            "Both layouts have the same shapes, and loading without a change raises no error. "
            "It is wrong at every position but the first.",
            lambda weight, num_heads: weight * 1,
        ),
        WrongAnswer(
            "transposed without an exchange of axes",
            "view or reshape alone never moves a number. The two axes have to be transposed.",
            lambda weight, num_heads: (
                torch.unflatten(weight, 0, (num_heads, 2, -1)).flip(2).flatten(0, 2)
            ),
        ),
    ),
)


# --- QK-norm and rotation -------------------------------------------------------------------------


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


Norm = Callable[[Tensor, Tensor, float], Tensor]


def _rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], gain, eps)


@in_parts
def _qk(
    norm: Norm = _rms,
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor] = _rotate,
    norm_first: bool = True,
    scale: bool = True,
    keys_too: bool = True,
    swap: bool = False,
) -> Answer:
    def qk_norm_scores(
        q: Tensor, k: Tensor, q_gain: Tensor, k_gain: Tensor, cos: Tensor, sin: Tensor, eps: float
    ) -> Tensor:
        if swap:
            q_gain, k_gain = k_gain, q_gain

        def prepared(x: Tensor, gain: Tensor) -> Tensor:
            if norm_first:
                return rotate(norm(x, gain, eps), cos, sin)
            return norm(rotate(x, cos, sin), gain, eps)

        keys = prepared(k, k_gain) if keys_too else rotate(k, cos, sin)
        scores = prepared(q, q_gain) @ keys.transpose(-2, -1)
        return scores / q.shape[-1] ** 0.5 if scale else scores

    return qk_norm_scores


def _qk_by_complex(
    q: Tensor, k: Tensor, q_gain: Tensor, k_gain: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> Tensor:
    def prepared(x: Tensor, gain: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain
        return torch.view_as_complex(torch.unflatten(x, -1, (-1, 2))) * torch.complex(cos, sin)

    a, b = prepared(q, q_gain), prepared(k, k_gain)
    return torch.as_tensor((a @ b.conj().transpose(-2, -1)).real / q.shape[-1] ** 0.5)


def _over_all_heads(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    size = x.square().mean((1, 3), keepdim=True) + eps
    return x * torch.rsqrt(size) * gain


def _unit_length(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps) * gain


def _layer(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, None, eps)


def _outside(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * gain


def _tables(length: int, dim: int) -> tuple[Tensor, Tensor]:
    angle = torch.outer(
        torch.arange(length, dtype=torch.float64),
        100.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim),
    )
    return angle.cos(), angle.sin()


def _qk_case(
    name: str, b: int, h: int, t: int, dim: int, scale: float = 1.0, eps: float = 1e-3
) -> Case:
    def inputs() -> tuple[Any, ...]:
        q, k = (scale * _draw(b, h, t, dim, seed=s) for s in (0, 1))
        gains = (1 + 0.5 * _draw(dim, seed=s) for s in (2, 3))
        leaves = [x.requires_grad_() for x in (q, k, *gains)]
        return (*leaves, *_tables(t, dim), eps)

    return Case(name, inputs, grad=True)


QK_NORM = Exercise(
    title="QK-norm",
    oracle=_qk(),
    cases=[
        _qk_case("two heads of four", 1, 2, 5, 4),
        _qk_case("a batch, four heads of six", 2, 4, 7, 6),
        _qk_case("one head of two", 1, 1, 3, 2),
        _qk_case("small queries and keys", 2, 2, 4, 8, scale=0.02),
        _qk_case("large queries and keys", 2, 3, 4, 8, scale=1e3, eps=1e-6),
        _qk_case("sixteen features", 1, 2, 6, 16),
    ],
    variants=(_qk_by_complex,),
    wrong=(
        WrongAnswer(
            "norm after the rotation",
            "The gain differs within a pair of features, so it does not commute with the "
            "rotation: the scores would no longer depend on the distance alone.",
            _qk(norm_first=False),
        ),
        WrongAnswer(
            "only the queries normalised",
            "Keys are normalised as well, with a gain of their own. Otherwise they can still grow.",
            _qk(keys_too=False),
        ),
        WrongAnswer(
            "one norm over all heads",
            "Each head's d_head features have their own root mean square in Qwen3. (OLMo 2 "
            "normalises over all heads.)",
            _qk(norm=_over_all_heads),
        ),
        WrongAnswer(
            "divided by the length",
            "RMSNorm divides by the root of the mean square, not of the sum: the result has "
            "length sqrt(d_head), not 1.",
            _qk(norm=_unit_length),
        ),
        WrongAnswer(
            "LayerNorm in place of RMSNorm",
            "Nothing is subtracted: Qwen3 uses RMSNorm, as everywhere else.",
            _qk(norm=_layer),
        ),
        WrongAnswer(
            "without gains",
            "Without the learned gains every score is at most sqrt(d_head), and no head can "
            "become sharper than that.",
            _qk(norm=lambda x, gain, eps: _rms(x, torch.ones_like(gain), eps)),
        ),
        WrongAnswer(
            "gains exchanged",
            "q_gain belongs to the queries and k_gain to the keys. Under the rotation that makes "
            "a difference, and for their gradients too.",
            _qk(swap=True),
        ),
        WrongAnswer(
            "scale forgotten",
            "QK-norm does not replace the division by sqrt(d_head); both are there.",
            _qk(scale=False),
        ),
        WrongAnswer(
            "eps outside the root",
            "eps stands inside the root, next to the mean square. Beside the root it is felt "
            "differently by small queries.",
            _qk(norm=_outside),
        ),
        WrongAnswer(
            "halves as pairs",
            "The tables are for neighbouring features as pairs, (0, 1), (2, 3), and so on.",
            _qk(rotate=_rotate_halves),
        ),
    ),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)


# --- One step with a cache ------------------------------------------------------------------------


@in_parts
def _step(
    position: Callable[[int], int] = lambda s: s,
    key_position: Callable[[int], int] | None = None,
    group: Callable[[Tensor, int], Tensor] = lambda x, n: x.repeat_interleave(n, 1),
    append: Callable[[Tensor, Tensor], Tensor] = lambda old, new: torch.cat([old, new], 2),
    sees_itself: bool = True,
    top_left: bool = False,
    rotate_values: bool = False,
    rotated_cache: bool = True,
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor] = _rotate,
) -> Answer:
    def cached_step(
        q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n, n_rep = k_cache.shape[2], q.shape[1] // k.shape[1]
        at, key_at = position(n), (key_position or position)(n)
        turned = rotate(k, cos[key_at], sin[key_at])
        new_value = rotate(v, cos[at], sin[at]) if rotate_values else v
        keys = append(k_cache, turned if rotated_cache else k)
        values = append(v_cache, new_value)
        seen = slice(None) if sees_itself else slice(max(keys.shape[2] - 1, 0))
        seen = slice(1) if top_left else seen
        used, own = group(keys, n_rep)[:, :, seen], group(values, n_rep)[:, :, seen]
        out = F.scaled_dot_product_attention(rotate(q, cos[at], sin[at]), used, own)
        return out, keys, values

    return cached_step


def _step_by_groups(
    q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, ...]:
    turn = torch.complex(cos, sin)[k_cache.shape[2]]

    def rotated(x: Tensor) -> Tensor:
        z = torch.view_as_complex(torch.unflatten(x, -1, (-1, 2)).contiguous()) * turn
        return torch.view_as_real(z).flatten(-2)

    keys, values = torch.cat([k_cache, rotated(k)], 2), torch.cat([v_cache, v], 2)
    grouped = torch.unflatten(rotated(q), 1, (k.shape[1], -1))  # (B, G, H / G, 1, d_head)
    weights = torch.einsum("bgrtd,bgsd->bgrts", grouped, keys) / q.shape[-1] ** 0.5
    out = torch.einsum("bgrts,bgsd->bgrtd", weights.softmax(-1), values)
    return out.flatten(1, 2), keys, values


def _step_case(name: str, b: int, h: int, g: int, s: int, dim: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        q = _draw(b, h, 1, dim, seed=0)
        k, v = (_draw(b, g, 1, dim, seed=i) for i in (1, 2))
        caches = (_draw(b, g, s, dim, seed=i) for i in (3, 4))
        return (q, k, v, *caches, *_tables(s + 3, dim))

    return Case(name, inputs)


CACHED_STEP = Exercise(
    title="One step with a cache",
    oracle=_step(),
    cases=[
        _step_case("four heads on two, seven tokens", 1, 4, 2, 7, 6),
        _step_case("a batch, six heads on two", 3, 6, 2, 5, 4),
        _step_case("as many key-value heads", 2, 3, 3, 4, 8),
        _step_case("one key-value head", 2, 4, 1, 6, 4),
        _step_case("an empty cache", 1, 4, 2, 0, 6),
        _step_case("one token in the cache", 2, 8, 4, 1, 2),
    ],
    variants=(_step_by_groups,),
    wrong=(
        WrongAnswer(
            "the new token at position 0",
            "The new token stands after the S cached ones, at position S. Counting from 0 in each "
            "step rotates it as if it were the first.",
            _step(position=lambda s: 0),
        ),
        WrongAnswer(
            "the new token one place too late",
            "S tokens fill the positions 0 to S - 1, so the new one is at S and not at S + 1.",
            _step(position=lambda s: s + 1),
        ),
        WrongAnswer(
            "the new token at the place of the last cached one",
            "S tokens fill the positions 0 to S - 1; the new one comes after them, at S.",
            _step(position=lambda s: max(s - 1, 0)),
        ),
        WrongAnswer(
            "the key cached without its rotation",
            "The cache holds rotated keys, so the new key is rotated before it is stored.",
            _step(rotated_cache=False),
        ),
        WrongAnswer(
            "values rotated",
            "Only queries and keys are rotated. The values are what is read.",
            _step(rotate_values=True),
        ),
        WrongAnswer(
            "heads repeated in the wrong order",
            "Query head h uses key-value head h * G // H, so each key-value head is repeated in "
            "a row: repeat_interleave, not repeat.",
            _step(group=lambda x, n: x.repeat(1, n, 1, 1)),
        ),
        WrongAnswer(
            "the new token does not see itself",
            "A token attends to itself: append first, attend afterwards.",
            _step(sees_itself=False),
        ),
        WrongAnswer(
            "a causal mask from the top left",
            "is_causal=True lets the first query see the first key only. One new query may see "
            "everything, so it needs no mask.",
            _step(top_left=True),
        ),
        WrongAnswer(
            "the new token in front",
            "The cache is in the order of positions, and the new token goes to its end.",
            _step(append=lambda old, new: torch.cat([new, old], 2)),
        ),
        WrongAnswer(
            "the cache not extended",
            "The new key and value have to be in the caches that are returned, for the next step.",
            lambda q, k, v, k_cache, v_cache, cos, sin: (
                _step()(q, k, v, k_cache, v_cache, cos, sin)[0],
                k_cache,
                v_cache,
            ),
        ),
        WrongAnswer(
            "halves as pairs",
            "The tables are for neighbouring features as pairs, (0, 1), (2, 3), and so on.",
            _step(rotate=_rotate_halves),
        ),
    ),
    spared=dict.fromkeys(
        SIXTEEN_BITS,
        "turning by complex numbers is right, and torch has none in 16 bits",
    ),
)


EXERCISES: dict[str, Exercise] = {
    "parameter_count": PARAMETER_COUNT,
    "read_config": READ_CONFIG,
    "top_p": TOP_P,
    "permute": PERMUTE,
    "qk_norm": QK_NORM,
    "cached_step": CACHED_STEP,
}
