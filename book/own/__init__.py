"""The book's own model: a small Llama, trained on stories of which everything is known.

`own_model()` gives the trained weights from the folder `model`; `made()` what was measured of them;
`snapshots()` what it said and looked at on the way; `ablations()` the runs with one part taken
out. `python -m book.own` trains the model again, `python -m book.own.without` makes those runs.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from book.chapters import ROOT
from book.own.tokens import decode, encode
from transformer_parts.decoder import (
    DecoderOnlyTransformer,
    from_pretrained_config,
    load_hf_state_dict,
)

__all__ = ["FOLDER", "ablations", "decode", "encode", "made", "own_model", "snapshots"]

FOLDER = ROOT / "model"


def own_model(folder: Path = FOLDER) -> DecoderOnlyTransformer:
    """The trained model, in evaluation mode; a new object at each call.

    Raises:
        FileNotFoundError: if the folder holds no model.
    """
    model = DecoderOnlyTransformer(from_pretrained_config(folder / "config.json"))
    return load_hf_state_dict(model, folder).eval()


@functools.cache
def made(folder: Path = FOLDER) -> dict[str, Any]:
    """How the model was made and what was measured of it: the file made.json."""
    content: dict[str, Any] = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    return content


@functools.cache
def snapshots(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """What the model said and looked at after some of its steps: the file snapshots.json.

    See `book.own.snapshots.snapshot`; the steps are those of the curve in `made()`.
    """
    content = json.loads((folder / "snapshots.json").read_text(encoding="utf-8"))
    steps: list[dict[str, Any]] = content["steps"]
    return steps


@functools.cache
def ablations(folder: Path = FOLDER) -> dict[str, list[dict[str, Any]]]:
    """What was taken out -> its runs, one for each seed: the file without.json.

    A run has the seed, the loss on held-out stories, its excess over the floor, the part of the
    questions of each kind that is answered, the first losses, and the mean loss of every 100 steps.
    """
    content = json.loads((folder / "without.json").read_text(encoding="utf-8"))
    return {name: variant["runs"] for name, variant in content["variants"].items()}
