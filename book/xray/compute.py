"""What the X-ray page shows, computed by torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from book.measured import fingerprint
from book.own import FOLDER, encode, own_model
from book.own.inside import attention_maps, blocks, heads_off
from book.stories import BEGIN, VOCABULARY, follow, surprise
from transformer_parts.decoder import DecoderOnlyTransformer

TOP = 8


@torch.no_grad()
def levels(model: DecoderOnlyTransformer, tokens: Tensor) -> dict[str, Tensor]:
    """What the head would say of the stream after each layer: name -> probabilities (T, V).

    Args:
        model: with two residual branches in each block.
        tokens: shape (1, T), integers.
    """
    streams: dict[str, Tensor] = {}

    def note(name: str, index: int) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            value = (inputs[0], output)[index]
            streams[name] = value[0] if isinstance(value, tuple) else value

        return hook

    hooks = []
    for number, block in enumerate(blocks(model)):
        if number == 0:
            hooks.append(block.register_forward_hook(note("embedding", 0)))
        hooks.append(block.attn.register_forward_hook(note(f"attention {number}", 1)))
        hooks.append(block.register_forward_hook(note(f"feed-forward {number}", 1)))
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    order = ["embedding"]
    for number in range(len(blocks(model))):
        order += [f"attention {number}", f"feed-forward {number}"]
    return {name: model.logits(model.norm(streams[name])).softmax(-1)[0] for name in order}


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
