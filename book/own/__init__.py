"""The book's own model: a small Llama, trained on stories of which everything is known.

`own_model()` gives the trained weights from the folder `model`; `made()` what was measured of them.
`python -m book.own` trains it again.
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

__all__ = ["FOLDER", "decode", "encode", "made", "own_model"]

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
