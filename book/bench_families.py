"""Assembled families against Hugging Face's eager models, in one run: a part of `book.bench`.

Both have the same weights, float32 on the CPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from transformer_parts.families import FamilyDecoder, assemble, greedy, load_weights

__all__ = ["FAMILIES", "against_hugging_face", "report"]

# Norms on both sides, a cap and windows; normed queries and keys; the parts of 2019.
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 64, "head_dim": 32},
    "qwen3": {"head_dim": 32},
    "gpt2": {},
}
Alternate = Callable[[Mapping[str, Callable[[], object]], int, float], dict[str, list[float]]]


def _sizes(width: int, length: int) -> dict[str, Any]:
    return {
        "vocab_size": 1024, "hidden_size": width, "intermediate_size": 3 * width,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "max_position_embeddings": max(512, 2 * length), "bos_token_id": None,
        "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip


def _models(family: str, width: int, length: int) -> tuple[FamilyDecoder, Any]:
    """This book's model and theirs, eager, with the same weights."""
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        CONFIG_MAPPING,
        AutoModelForCausalLM,
    )

    kind = CONFIG_MAPPING[family]
    known = {*kind().to_dict(), *getattr(kind, "attribute_map", {})}
    sizes = {k: v for k, v in _sizes(width, length).items() if k in known}
    config = kind(**sizes, **FAMILIES[family])
    config._attn_implementation = "eager"
    theirs = AutoModelForCausalLM.from_config(config).eval()
    ours = load_weights(assemble(config.to_dict()), theirs.state_dict())
    return ours.eval(), theirs


def against_hugging_face(
    alternate: Alternate, rounds: int = 7, length: int = 128, width: int = 256, new: int = 48
) -> dict[str, Any]:
    """Our time over theirs for forward and backward, and how many times faster we decode.

    Args:
        alternate: what times several tasks in turn: `book.bench.alternate`.
        rounds: how often each is timed.
        length: tokens of each of two sequences.
        width: features of a token.
        new: tokens that are decoded with the cache.

    Returns:
        A dictionary with the key `skipped` (why) if transformers is not installed.
    """
    rows = []
    for family in FAMILIES:
        torch.manual_seed(0)
        try:
            ours, theirs = _models(family, width, length)
        except ImportError:
            return {"skipped": "transformers is not installed: pip install transformers"}
        tokens = torch.randint(1, 1024, (2, length))
        prompt = tokens[:1, :16]

        def train(logits: Callable[[Tensor], Tensor], model: torch.nn.Module) -> float:
            model.zero_grad()
            loss = logits(tokens).float().logsumexp(-1).mean()  # noqa: B023
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()

        def generate() -> Tensor:
            made: Tensor = theirs.generate(  # noqa: B023
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False,  # noqa: B023
                max_new_tokens=new, min_new_tokens=new,
            )  # fmt: skip
            return made

        training = {
            "ours": lambda: train(ours, ours),  # noqa: B023
            "theirs": lambda: train(lambda x: theirs(x, use_cache=False).logits, theirs),  # noqa: B023
        }
        decoding = {"ours": lambda: greedy(ours, prompt, new), "theirs": generate}  # noqa: B023
        row: dict[str, Any] = {
            "family": family,
            "apart": abs(training["ours"]() - training["theirs"]()),
            "same_tokens": bool(torch.equal(decoding["ours"](), decoding["theirs"]())),
        }
        times = alternate(training, rounds, 0.0)
        ratios = [a / b for a, b in zip(times["ours"], times["theirs"], strict=True)]
        row["both"] = statistics.quantiles(ratios, n=4)
        times = alternate(decoding, rounds, 0.0)
        ratios = [b / a for a, b in zip(times["ours"], times["theirs"], strict=True)]
        row["decode"] = statistics.quantiles(ratios, n=4)
        rows.append(row)
    return {"rows": rows}


def report(result: Mapping[str, Any]) -> list[str]:
    """The lines for people."""
    lines = ["", "families, against the eager models of transformers"]
    if "skipped" in result:
        return [*lines, f"  left out: {result['skipped']}"]
    for row in result["rows"]:
        (low, both, high), (_, decode, _) = row["both"], row["decode"]
        good = "yes" if both <= 1.05 and decode >= 1.2 else "NO"
        same = "yes" if row["same_tokens"] and row["apart"] < 1e-4 else "NO"
        lines.append(
            f"  {row['family']:8} forward and backward {both:5.2f} of their time ({low:.2f} to "
            f"{high:.2f})   decoding {decode:5.2f} times as fast   at most 1.05, at least 1.2: "
            f"{good}   the same results: {same}"
        )
    return lines
