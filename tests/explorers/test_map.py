"""The explorers of chapter 2: sizes of torch's own layers, work as torch counts it."""

import numpy as np
import torch
from torch import nn

from book.explorer import Bars

from .counting import counted
from .reading import Seen, check_explorer, says


@check_explorer(
    "explorer-shapes", {"source tokens S": "100", "target tokens T": "280", "heads H": "4"}
)
def test_which_tensors_grow_with_the_square_of_the_length():
    s, t, heads = 100, 280, 4
    source, target = (np.zeros((heads, n, 512 // heads)) for n in (s, t))
    scores = [
        q @ k.swapaxes(1, 2) for q, k in ((source, source), (target, target), (target, source))
    ]
    held = [tensor.size for tensor in (source, target, *scores)]
    return Seen(
        says(
            "With {} heads of {} features, the rows are {} × {} and {} × {}, and one layer's "
            "attention weights {} × {} × {} in the encoder, {} × {} × {} in the decoder, "
            "{} × {} × {} between them",
            *(4, 128, 100, 512, 280, 512),
            *(size for tensor in scores for size in tensor.shape),
        ),
        Bars(
            "Share of the numbers in these tensors",
            ["source", "target", "A enc.", "A dec.", "A cross"],
            {"percent": 100 * np.array(held) / sum(held)},
            "rows of the source and target, attention weights A",
            "percent",
        ),
    )


@check_explorer(
    "explorer-parameters", {"d_model": "256", "d_ff / d_model": "2", "layers per stack": "12"}
)
def test_the_parameters_of_twelve_layers_of_torch():
    with torch.device("meta"):
        sizes = {"d_model": 256, "nhead": 8, "dim_feedforward": 512}
        layers = nn.TransformerEncoderLayer(**sizes), nn.TransformerDecoderLayer(**sizes)
        embeddings = nn.Embedding(37_000, 256).weight.numel()
    kinds = {"self_attn": "self", "multihead_attn": "cross", "linear": "FFN", "norm": "norms"}
    parts = dict.fromkeys(["embed.", *kinds.values()], 0) | {"embed.": embeddings}
    for layer in layers:
        for name, parameter in layer.named_parameters():
            [kind] = [short for start, short in kinds.items() if name.startswith(start)]
            parts[kind] += 12 * parameter.numel()
    total = sum(parts.values())
    return Seen(
        says(
            "{} + {} layers of width {} with d_ff = {} have {} million parameters, {} of them "
            "feed-forward and {} embeddings",
            *(12, 12, 256, 512, total / 1e6, parts["FFN"] / total, parts["embed."] / total),
        ),
        Bars(
            "Share of the parameters, vocabulary 37,000",
            list(parts),
            {"percent": [100 * n / total for n in parts.values()]},
            "part (FFN: feed-forward)",
            "percent",
        ),
    )


@check_explorer(
    "explorer-flops", {"source tokens S": "250", "target tokens T": "2,500", "d_model": "256"}
)
def test_where_the_work_of_a_forward_pass_goes():
    s, t, d = 250, 2500, 256

    def projected(*tokens):
        return counted(*(((n, d), (d, d)) for n in tokens))

    def compared(queries, keys):
        return counted(((queries, d), (d, keys)), ((queries, keys), (keys, d)))

    # A block projects its queries, its output, and the keys and values; the decoder has two.
    parts = {
        "project": 6 * (projected(s, s, s, s) + projected(t, t, t, t) + projected(t, t, s, s)),
        "scores": 6 * (compared(s, s) + compared(t, t) + compared(t, s)),
        "FFN": 6
        * counted(*(p for n in (s, t) for p in (((n, d), (d, 4 * d)), ((n, 4 * d), (4 * d, d))))),
        "output": counted(((t, d), (d, 37_000))),
    }
    total = sum(parts.values())
    return Seen(
        says(
            "{} source and {} target tokens at width {} take {} GFLOPs, {} of them for scores and "
            "values and {} for the output layer",
            *(250, 2500, 256, total / 1e9, parts["scores"] / total, parts["output"] / total),
        ),
        Bars(
            "Share of the FLOPs by part",
            list(parts),
            {"percent": [100 * n / total for n in parts.values()]},
            "part (scores: with values)",
            "percent",
        ),
    )
