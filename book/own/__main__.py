"""Train the book's own model and write its files: `make model`."""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import torch

from book.own import FOLDER
from book.own.files import save, save_snapshots
from book.own.measure import Measured, held_out, measure, shelves
from book.own.recipe import Recipe, new_model, train
from book.own.snapshots import snapshot
from transformer_parts.decoder import DecoderOnlyTransformer

# How many stories the n-gram models count.
COUNTED = 20000


def _line(step: int, minutes: float, m: Measured) -> str:
    answers = "  ".join(f"{kind} {a.right:.2f}" for kind, a in sorted(m.questions.items()))
    return f"step {step:5d}  {minutes:5.1f} min  {m.excess:.4f} above the floor  {answers}"


def main() -> None:
    """Train, measure, save."""
    parser = argparse.ArgumentParser(prog="python -m book.own", description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder that is written")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    recipe, texts, began = Recipe(), held_out(), time.perf_counter()
    curve: list[dict[str, float]] = []
    taken: list[dict[str, Any]] = []

    def look(step: int, loss: float, model: DecoderOnlyTransformer) -> None:
        if step % 250 and step not in (1, 10, 30, 100, recipe.steps):
            return
        now = measure(model, texts)
        right = {kind: round(a.right, 4) for kind, a in now.questions.items()}
        curve.append({"step": step, "train": round(loss, 4), "loss": round(now.loss, 4), **right})
        taken.append({"step": step, **snapshot(model)})
        print(_line(step, (time.perf_counter() - began) / 60, now), flush=True)

    model = train(recipe, new_model(recipe), look)
    minutes = (time.perf_counter() - began) / 60
    save(model, recipe, {}, args.to)  # what was trained is kept, whatever happens while measuring
    final = measure(model, held_out(2000))
    known: dict[str, Any] = {
        "loss": round(final.loss, 4),
        "floor": round(final.floor, 4),
        "held_out": 2000,
        "questions": {
            kind: {
                "number": a.number,
                "right": round(a.right, 4),
                "short_cuts": {n: round(c, 4) for n, c in a.short_cuts.items()},
            }
            for kind, a in sorted(final.questions.items())
        },
        "shelves": {str(n): round(x, 4) for n, x in shelves(COUNTED, texts).items()},
        "counted": COUNTED,
        "curve": curve,
    }
    save(model, recipe, known, args.to)
    save_snapshots(taken, args.to)
    print(_line(recipe.steps, minutes, final))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{minutes:.1f} minutes of training on {args.threads} threads, at most {peak:.2f} GiB")


if __name__ == "__main__":
    main()
