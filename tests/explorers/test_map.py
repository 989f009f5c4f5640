"""The explorers of chapter 2: sizes of torch's own layers, work as torch counts it."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from book.diagram.draw import Diagram
from book.diagram.models import WATCHED, WithSoftmax
from book.diagram.trace import Graph, trace
from book.diagram.view import fold
from book.explorer import Arrow, Bars, Box, Scene, Segment
from book.facts import fact
from book.own import encode
from book.stories import VOCABULARY
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.transformer import Transformer

from .counting import counted
from .llama import llama
from .reading import Seen, check_explorer, says


def panels(graph: Graph, opened: list[str], letters: dict[int, str], part: str) -> list[Scene]:
    """The two pictures of a traced model, but for how often its layers stand there."""
    numbers = {graph.find(name).number for name in opened}
    scenes = Diagram(graph, numbers, letters).frame(part).panels
    return [
        replace(s, shapes={k: v for k, v in s.shapes.items() if not k.startswith("times")})
        for s in scenes
    ]


@check_explorer("explorer-map", {"part": "Cross-attention"})
def test_the_map_of_a_model_with_numbers_in_it():
    """The stored map is that of shapes alone; here a model of two layers runs with numbers."""
    tokens = {"source": torch.arange(7)[None], "target": torch.arange(5)[None]}
    model = Transformer(37_000, 37_000, num_encoder_layers=2, num_decoder_layers=2, max_len=256)
    graph = fold(trace(WithSoftmax(model), tokens, watch=WATCHED))
    opened = ["model", "model.encoder.0", "model.decoder.0"]
    torch_has = sum(p.numel() for p in nn.MultiheadAttention(512, 8).parameters())
    said = says(
        "Cross-attention ... T × {} and S × {} in, T × {} out; {} learned numbers. It stands here "
        "{} times; chapter {} is about it",
        *(512, 512, 512, torch_has, fact("transformer-base", "num_layers"), 5),
    )
    return Seen(said, *panels(graph, opened, {7: "S", 5: "T"}, "cross-attention"))


@check_explorer("explorer-decoder", {"part": "Gated feed-forward"})
def test_the_decoder_of_today_with_two_blocks():
    config = ModelConfig(128_256, 4096, 2, 32, num_kv_heads=8, d_ff=14_336)
    with torch.device("meta"):  # as large as it is, numbers would not fit
        model = WithSoftmax(DecoderOnlyTransformer(config))
        tokens = {"tokens": torch.zeros(1, 5, dtype=torch.long)}
    graph = fold(trace(model, tokens, watch=WATCHED))
    opened = ["model", "model.layers.0", "model.layers.0.attn", "model.layers.0.ffn"]
    gate_up_and_down = 3 * 4096 * fact("llama-3-8b", "d_ff")
    said = says(
        "T × {} in, T × {} out; {} learned numbers. It stands here {} times; chapter {} is about",
        *(4096, 4096, gate_up_and_down, fact("llama-3-8b", "num_layers"), 7),
    )
    return Seen(said, *panels(graph, opened, {5: "T"}, "gated feed-forward"))


@check_explorer(
    "explorer-shapes", {"source tokens S": "100", "target tokens T": "700", "heads H": "4"}
)
def test_which_tensors_grow_with_the_square_of_the_length():
    s, t, heads = 100, 700, 4
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
            *(4, 128, 100, 512, 700, 512),
            *(size for tensor in scores for size in tensor.shape),
        ),
        Bars(
            "Numbers in each tensor, as a power of ten",
            ["source", "target", "A enc.", "A dec.", "A cross"],
            {"exponent": np.log10(held)},
            "rows of the source and target, attention weights A",
            "power of ten",
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


@check_explorer("explore-lanes", {"level": "attention 1"})
def test_the_last_lane_fetches_what_came_after_its_word():
    # Another route: Hugging Face's model with the same weights.
    words = ["baby", ":", "lake", "purple", "six", ",", "lake"]
    lanes = ["start", *words]
    model = llama()
    with torch.no_grad():
        out = model(
            torch.tensor([encode(words)]), output_attentions=True, output_hidden_states=True
        )
    looks = [layer[0, 0] for layer in out.attentions]  # head 0 of each layer
    seen = []
    hook = model.model.layers[1].post_attention_layernorm.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0][0, -1])
    )
    with torch.no_grad():
        model(torch.tensor([encode(words)]))
    hook.remove()
    row = seen[0].detach()
    said = model.lm_head(model.model.norm(row)).softmax(-1).detach()
    best = int(said.argmax())
    known = [VOCABULARY.index(word) for word in ("lake", "purple", "six")]
    others = [n for n in range(len(VOCABULARY)) if n not in known]
    shapes = {}
    for k in range(len(lanes)):
        shapes[f"track {k}"] = Segment(k, 0, k, 4.75, role="quiet", faint=True)
        shapes[f"lane {k}"] = Segment(k, 0, k, 3.75, role="data")
        for layer in range(2):
            weight, at = (v.item() for v in looks[layer][k].max(0))
            shapes[f"link {layer}, {k}"] = Arrow(
                at,
                0.9 + 2 * layer,
                k,
                1.65 + 2 * layer,
                role="weight",
                strong=k == 7,
                shown=k > 0 and weight > 0.5 and at < k,
            )
            shapes[f"box {layer}, {k}"] = Box(
                k - 0.22, 1.95 + 2 * layer, 0.44, 0.5, role="key", fill=0.5, shown=layer == 0
            )
    weight, at = (v.item() for v in looks[1][7].max(0))
    return Seen(
        says(
            "After attention {}, the row of the last word would say "
            f"“{VOCABULARY[best]}”, with {{}}. In head {{}} it looks at “{lanes[at]}”, with the "
            "weight {}. The row's root mean square is {}.",
            *(1, said[best].item(), 0, weight, row.square().mean().sqrt().item()),
        ),
        Scene("a lane for each token", shapes, xlim=(-0.6, 8.9), ylim=(-0.9, 5.0)),
        Bars(
            "what the last lane would say",
            ["lake", "purple", "six", "others"],
            {"probability": [*(said[n].item() for n in known), said[others].sum().item()]},
            "next word",
            "probability",
        ),
    )
