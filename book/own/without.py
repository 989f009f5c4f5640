"""The same training with one part of the model taken out: `python -m book.own.without`.

Each variant is trained with several seeds, shorter than the model itself; the file `without.json`
beside the model keeps what came out. A part that is not missed here may be missed elsewhere: the
language, the size and the number of steps are those of the book's model.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from book.own import FOLDER
from book.own.inside import blocks
from book.own.measure import held_out, measure
from book.own.recipe import Recipe, new_model, train
from transformer_parts.decoder import DecoderOnlyTransformer

STEPS, SEEDS = 1000, (0, 1, 2)


class BranchAlone(nn.Module):
    """A sub-layer behind its norm, without the stream that its output would be added to."""

    def __init__(self, sublayer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.sublayer, self.norm = sublayer, norm

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """The branch of `x`, shape (*, d_model)."""
        y: Tensor = self.sublayer(self.norm(x), *args)
        return y


class Times(nn.Module):
    """A linear layer whose output is multiplied."""

    def __init__(self, layer: nn.Module, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = layer, factor

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output times the factor."""
        y: Tensor = self.layer(x) * self.factor
        return y


def _no_norm(model: DecoderOnlyTransformer) -> None:
    for block in blocks(model):
        block.attn.norm = block.ffn.norm = nn.Identity()
    model.norm = nn.Identity()


def _no_residual(model: DecoderOnlyTransformer) -> None:
    for block in blocks(model):
        block.attn = BranchAlone(block.attn.sublayer, block.attn.norm)
        block.ffn = BranchAlone(block.ffn.sublayer, block.ffn.norm)


def _no_positions(model: DecoderOnlyTransformer) -> None:
    model.rope = None


def _no_feed_forward(model: DecoderOnlyTransformer) -> None:
    for block in blocks(model):
        block.ffn = nn.Identity()


def _no_root(model: DecoderOnlyTransformer) -> None:
    for block in blocks(model):
        attention = block.attn.sublayer
        attention.q_proj = Times(attention.q_proj, model.config.d_head**0.5)


def _nothing(model: DecoderOnlyTransformer) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is changed: fields of the recipe, and the new model."""

    says: str
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    change: Callable[[DecoderOnlyTransformer], None] = _nothing


VARIANTS = {
    "whole": Variant("nothing is missing"),
    "norm": Variant("no norm anywhere", change=_no_norm),
    "residual": Variant(
        "each sub-layer's output takes the place of its input", change=_no_residual
    ),
    "positions": Variant("queries and keys are not rotated", change=_no_positions),
    "feed-forward": Variant("attention alone", change=_no_feed_forward),
    "heads": Variant("one head as wide as the model", {"num_heads": 1}),
    "root": Variant("scores are not divided by the root of the head's width", change=_no_root),
    "layer": Variant("one layer", {"num_layers": 1}),
    "common": Variant("embeddings share no direction at the start", {"common": 0.0}),
    "muon": Variant("AdamW for all parameters", {"optimizer": "adamw"}),
}


def new(name: str, seed: int, steps: int = STEPS) -> tuple[Recipe, DecoderOnlyTransformer]:
    """The recipe of a variant, and its model before the first step."""
    variant = VARIANTS[name]
    recipe = dataclasses.replace(Recipe(), steps=steps, seed=seed, **variant.recipe)
    model = new_model(recipe)
    variant.change(model)
    return recipe, model


def start(name: str, seed: int, steps: int = 3) -> list[float]:
    """The loss before each of the first steps of a variant."""
    losses: list[float] = []
    recipe, model = new(name, seed)
    train(recipe, model, lambda step, loss, _: losses.append(round(loss, 4)), stop=steps)
    return losses


def run(name: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """Train one variant with one seed; its loss, excess and answers, and the loss on the way."""
    recipe, model = new(name, seed, steps)
    recent: list[float] = []
    curve: list[float] = []

    def look(step: int, loss: float, _: DecoderOnlyTransformer) -> None:
        recent.append(loss)
        if step % 100 == 0:
            curve.append(round(sum(recent) / len(recent), 4))
            recent.clear()

    found = measure(train(recipe, model, look), held_out())
    return {
        "seed": seed,
        "loss": round(found.loss, 4),
        "excess": round(found.excess, 4),
        "right": {kind: round(a.right, 4) for kind, a in sorted(found.questions.items())},
        "start": start(name, seed),
        "curve": curve,
    }


def main() -> None:
    """Train all variants that the file does not have yet, and add them to it."""
    parser = argparse.ArgumentParser(prog="python -m book.own.without", description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER / "without.json")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    known: dict[str, Any] = {"steps": STEPS, "variants": {}}
    if args.to.exists():
        known = json.loads(args.to.read_text(encoding="utf-8"))
    for name, variant in VARIANTS.items():
        known["variants"].setdefault(name, {"says": variant.says, "runs": []})
    runs = {name: known["variants"][name]["runs"] for name in VARIANTS}
    missing = [
        (name, seed)
        for seed in SEEDS
        for name in VARIANTS
        if seed not in [one["seed"] for one in runs[name]]
    ]
    # A thread for each worker: two for each would wait for one another.
    with ProcessPoolExecutor(
        args.workers, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        names, seeds = zip(*missing, strict=True) if missing else ((), ())
        for name, one in zip(names, pool.map(run, names, seeds), strict=True):
            runs[name].append(one)
            print(f"{name:13} seed {one['seed']}: {one['excess']:.4f} above the floor", flush=True)
            args.to.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
