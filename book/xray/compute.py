"""What the X-ray page shows, computed by torch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from book.measured import fingerprint
from book.own import FOLDER, encode, own_model
from book.own.inside import attention_maps, blocks, heads_off, streams
from book.stories import BEGIN, VOCABULARY, follow, surprise
from transformer_parts.attention import attention_weights, split_heads
from transformer_parts.decoder import DecoderOnlyTransformer
from transformer_parts.rope import apply_rotary_emb, interleaved_to_half_permutation

TOP = 8


@torch.no_grad()
def levels(model: DecoderOnlyTransformer, tokens: Tensor) -> dict[str, Tensor]:
    """What the head would say of the stream after each layer: name -> probabilities (T, V).

    Args:
        model: with two residual branches in each block.
        tokens: shape (1, T), integers.
    """
    parts = ("attention", "feed-forward")
    names = ["embedding", *(f"{part} {n}" for n in range(len(blocks(model))) for part in parts)]
    return {
        name: model.logits(model.norm(stream)).softmax(-1)[0]
        for name, stream in zip(names, streams(model, tokens), strict=True)
    }


@torch.no_grad()
def seen(
    model: DecoderOnlyTransformer, words: Sequence[str], off: Collection[tuple[int, int]] = ()
) -> dict[str, Any]:
    """Logits (T, V), maps (layers, heads, T, T) and levels for a text, with some heads off."""
    tokens = torch.tensor([encode(words)])
    with heads_off(model, off):
        return {
            "tokens": tokens[0],
            "logits": model(tokens)[0],
            "maps": torch.stack([weights[0] for weights in attention_maps(model, tokens)]),
            "levels": levels(model, tokens),
        }


@contextmanager
def taken_out(
    model: DecoderOnlyTransformer, off: Collection[str]
) -> Iterator[DecoderOnlyTransformer]:
    """The model without these parts, called as in run.js, for as long as the block lasts.

    A head and a sub-layer give zero; a norm multiplies by its gain and does not divide; without
    RoPE nothing is rotated.

    Raises:
        ValueError: naming a part that the model does not have.
    """
    norms: dict[str, Any] = {"last norm": model.norm}
    parts: dict[str, Any] = {}
    for number, block in enumerate(blocks(model)):
        norms[f"norm of attention {number}"] = block.attn.norm
        norms[f"norm of feed-forward {number}"] = block.ffn.norm
        parts[f"attention {number}"] = block.attn.sublayer
        parts[f"feed-forward {number}"] = block.ffn.sublayer
    c = model.config
    heads = {f"{i}.{j}": (i, j) for i in range(c.num_layers) for j in range(c.num_heads)}
    rope = model.rope
    with ExitStack() as stack:
        stack.enter_context(heads_off(model, [heads[name] for name in off if name in heads]))
        for name in off:
            if name in norms:
                hook = norms[name].register_forward_hook(
                    lambda norm, inputs, _: inputs[0] * norm.weight
                )
                stack.callback(hook.remove)
            elif name in parts:
                hook = parts[name].register_forward_hook(
                    lambda _, __, output: torch.zeros_like(output)
                )
                stack.callback(hook.remove)
            elif name == "RoPE":
                stack.callback(setattr, model, "rope", rope)
                model.rope = None
            elif name not in heads:
                raise ValueError(f"{name!r} is no part that can be taken out")
        yield model


@torch.no_grad()
def tensors(model: DecoderOnlyTransformer, tokens: Tensor) -> dict[str, Any]:
    """Every tensor of the forward pass, caught by hooks, called as in arithmetic.js.

    Args:
        model: with attention that has a key for each query's head, and two branches in a block.
        tokens: shape (1, T), integers.

    Returns:
        "embedding", "last", "logits" of shape (T, *); and "layers", for each layer the rest: what
        belongs to a head has the shape (H, T, *), else (T, *). Scores are not masked. The features
        of queries and keys stand as in the file, a pair half a head apart.
    """
    caught: dict[str, Tensor] = {}
    rope: dict[int, Any] = {}

    def give(name: str) -> Any:
        return lambda _, __, output: caught.__setitem__(name, output[0])

    def take(name: str) -> Any:
        return lambda _, inputs: caught.__setitem__(name, inputs[0][0])

    hooks = [
        model.embed.register_forward_hook(give("embedding")),
        model.norm.register_forward_hook(give("last")),
    ]
    for n, block in enumerate(blocks(model)):
        attention, gated = block.attn.sublayer, block.ffn.sublayer
        after = {
            "seen": block.attn.norm, "q": attention.q_proj, "k": attention.k_proj,
            "v": attention.v_proj, "attention": attention, "middle": block.attn,
            "between": block.ffn.norm, "gate": gated.w_gate, "up": gated.w_up,
            "down": gated, "after": block.ffn,
        }  # fmt: skip
        before = {"before": block, "mixed": attention.out_proj, "hidden": gated.w_down}
        hooks += [m.register_forward_hook(give(f"{n} {name}")) for name, m in after.items()]
        hooks += [m.register_forward_pre_hook(take(f"{n} {name}")) for name, m in before.items()]
        hooks.append(
            attention.register_forward_pre_hook(
                lambda _, inputs, n=n: rope.__setitem__(n, inputs[1])
            )
        )
    try:
        logits = model(tokens)[0]
    finally:
        for hook in hooks:
            hook.remove()
    layers = []
    for n in range(len(blocks(model))):
        of = {k.removeprefix(f"{n} "): v for k, v in caught.items() if k.startswith(f"{n} ")}
        for name in ("q", "k", "v", "mixed"):
            of[name] = split_heads(of[name][None], model.config.num_heads)[0]
        turned = [of[k] if rope[n] is None else apply_rotary_emb(of[k], *rope[n]) for k in "qk"]
        of["turnedQ"], of["turnedK"] = turned
        of["scores"] = turned[0] @ turned[1].mT / turned[0].shape[-1] ** 0.5
        of["weights"] = attention_weights(turned[0], turned[1], is_causal=True)
        order = interleaved_to_half_permutation(of["q"].shape[-1])
        of |= {k: of[k][..., order] for k in ("q", "k", "turnedQ", "turnedK")}
        layers.append(of)
    return {"logits": logits, "layers": layers, **{k: caught[k] for k in ("embedding", "last")}}


def frame(words: Sequence[str], at: int) -> dict[str, Any]:
    """What the first frame shows of a story's beginning.

    Args:
        words: of the story, without BEGIN.
        at: the chosen word, counted with BEGIN as 0; another one comes after it.
    """
    of = seen(own_model(), words)
    text = [BEGIN, *words]
    logp = of["logits"].log_softmax(-1)
    after = of["tokens"][at + 1]
    exact = follow(words)[at]
    values, indices = logp[at].exp().topk(TOP)
    best = zip(values.tolist(), [VOCABULARY[i] for i in indices.tolist()], strict=True)
    lens = []
    for name, p in of["levels"].items():
        value, index = p[at].max(-1)
        lens.append(
            [name, VOCABULARY[int(index)], round(float(value), 5), round(float(p[at, after]), 5)]
        )
    surprises = -logp[:-1].gather(-1, of["tokens"][1:, None])[:, 0]
    return {
        "weights": fingerprint(FOLDER / "model.safetensors"),
        "words": text,
        "at": at,
        "exact": round(exact[text[at + 1]], 5),
        "surprises": [round(s, 4) for s in surprises.tolist()],
        "floor": [round(s, 4) for s in surprise(words)],
        "next": [[word, round(p, 5), round(exact.get(word, 0.0), 5)] for p, word in best],
        "lens": lens,
        "maps": [
            [
                [[round(1000 * w) for w in row[: i + 1]] for i, row in enumerate(head.tolist())]
                for head in layer
            ]
            for layer in of["maps"]
        ],
    }
