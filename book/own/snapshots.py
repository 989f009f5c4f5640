"""What the model says and looks at while it is trained: snapshots for the chapter on training."""

from __future__ import annotations

from typing import Any

import torch

from book.own.inside import attention_maps
from book.own.tokens import BEGIN_ID, decode, encode
from transformer_parts.decoder import DecoderOnlyTransformer

# Random words said twice: a head that finds the earlier place has something to look at.
REPEATED = "baby : lake purple six june , lake purple six june ."
SAID = 24  # words that a snapshot lets the model say


@torch.no_grad()
def snapshot(model: DecoderOnlyTransformer) -> dict[str, Any]:
    """What the model says from a beginning of nothing, and all its heads' weights on REPEATED.

    Returns:
        `said`, a text drawn with a seed of its own; `maps`, layer, head, row, column -> weight with
        two decimals, each row as long as there are tokens up to its own.
    """
    rng = torch.Generator().manual_seed(0)
    told = [BEGIN_ID]
    for _ in range(SAID):
        chances = model(torch.tensor([told]))[0, -1].softmax(-1)
        told.append(int(torch.multinomial(chances, 1, generator=rng)))
    seen = attention_maps(model, torch.tensor([encode(REPEATED)]))
    maps = [
        [[[round(w, 2) for w in row[: i + 1]] for i, row in enumerate(head)] for head in layer]
        for layer in (weights[0].tolist() for weights in seen)
    ]
    return {"said": decode(told), "maps": maps}
