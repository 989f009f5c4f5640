"""Experts against Hugging Face's eager layers, in one run: a part of `python -m book.bench`.

Both have the same parameters, not copies of them, so that values and gradients can be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transformer_parts.experts import MixtureOfExperts, Router

__all__ = ["SIZES", "against_hugging_face", "report"]

# As in Mixtral, in OLMoE and in Qwen3: how many experts, how many of them for a token, their width.
SIZES = ((8, 2, 512), (64, 8, 128), (128, 8, 96))
Alternate = Callable[[Mapping[str, Callable[[], object]], int, float], dict[str, list[float]]]


def _layers(num_experts: int, top_k: int, d_ff: int, d_model: int) -> tuple[nn.Module, nn.Module]:
    """This book's layer, and Mixtral's with the same parameters, run by its eager loop."""
    from transformers import MixtralConfig  # type: ignore[import-not-found,unused-ignore]
    from transformers.models.mixtral.modeling_mixtral import (  # type: ignore[import-not-found,unused-ignore]
        MixtralSparseMoeBlock,
    )

    config = MixtralConfig(
        hidden_size=d_model, intermediate_size=d_ff, num_local_experts=num_experts,
        num_experts_per_tok=top_k,
    )  # fmt: skip
    config._experts_implementation = "eager"
    ours = MixtureOfExperts(Router(d_model, num_experts, top_k), d_ff)
    theirs: Any = MixtralSparseMoeBlock(config)
    theirs.gate.weight = ours.router.weight
    theirs.experts.gate_up_proj, theirs.experts.down_proj = ours.w_in, ours.w_down
    return ours, theirs


def against_hugging_face(
    alternate: Alternate, rounds: int = 7, tokens: int = 512, d_model: int = 256
) -> dict[str, Any]:
    """How many times as long Hugging Face's eager layer takes, forward alone and with backward.

    Args:
        alternate: what times several tasks in turn: `book.bench.alternate`.
        rounds: how often each is timed.
        tokens: rows that go through the layer.
        d_model: their width.

    Returns:
        A dictionary with the key `skipped` (why) if transformers is not installed.
    """
    rows = []
    for num_experts, top_k, d_ff in SIZES:
        torch.manual_seed(0)
        try:
            ours, theirs = _layers(num_experts, top_k, d_ff, d_model)
        except ImportError:
            return {"skipped": "transformers is not installed: pip install transformers"}
        x = torch.randn(1, tokens, d_model, requires_grad=True)
        upstream = torch.randn(1, tokens, d_model)
        leaves = (x, *ours.parameters())

        def both(layer: nn.Module) -> tuple[Tensor, ...]:
            return torch.autograd.grad(layer(x), leaves, upstream)  # noqa: B023

        def forward(layer: nn.Module) -> Tensor:
            with torch.no_grad():
                y: Tensor = layer(x)  # noqa: B023
            return y

        pairs = [(forward(ours), forward(theirs)), *zip(both(ours), both(theirs), strict=True)]
        apart = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
        row: dict[str, Any] = {"experts": num_experts, "top_k": top_k, "apart": apart}
        for name, compute in (("forward", forward), ("both", both)):
            tasks = {"ours": lambda c=compute: c(ours), "theirs": lambda c=compute: c(theirs)}  # noqa: B023
            times = alternate(tasks, rounds, 0.0)
            ratios = [a / b for a, b in zip(times["theirs"], times["ours"], strict=True)]
            row[name] = statistics.quantiles(ratios, n=4)
        rows.append(row)
    return {"rows": rows}


def report(result: Mapping[str, Any]) -> list[str]:
    """The lines for people."""
    lines = ["", "experts, against the eager layer of transformers: times as long as ours"]
    if "skipped" in result:
        return [*lines, f"  left out: {result['skipped']}"]
    for row in result["rows"]:
        (_, forward, _), (low, both, high) = row["forward"], row["both"]
        faster = "yes" if min(forward, both) >= 1 else "NO"
        lines.append(
            f"  {row['top_k']} of {row['experts']:3} experts   forward {forward:5.2f}   "
            f"with backward {both:5.2f} ({low:.2f} to {high:.2f})   at least 1: {faster}   "
            f"the same results: {'yes' if row['apart'] < 1e-4 else 'NO'}"
        )
    return lines
