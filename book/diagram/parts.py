"""The parts of a Transformer: what a box is called, what it does, and which chapter opens it.

The one place that says so, for the map of chapter 02, for the strip that begins every chapter, and
for the sentences. It needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from book.chapters import chapters, topic

if TYPE_CHECKING:
    from book.diagram.trace import Graph, Node


@dataclass(frozen=True)
class Part:
    """One part: its name, a short one for the strip, its chapter, and what it does.

    `narrow` is its name where the box is too narrow for the whole one.
    """

    label: str
    short: str
    topic: str
    does: str
    role: str = "ink"
    narrow: str = ""


PARTS: dict[str, Part] = {
    "embedding": Part(
        "Embedding", "embed", "embeddings", "looks up one learned row for each token"
    ),
    "positions": Part(
        "Positions",
        "+ pos",
        "embeddings",
        "adds a pattern to each row that depends on its place alone",
    ),
    "rope": Part(
        "RoPE",
        "RoPE",
        "rope",
        "keeps the angles by which queries and keys of each place are turned",
    ),
    "self-attention": Part(
        "Self-attention",
        "attn",
        "attention",
        "lets each row gather from all rows of its sequence",
        "weight",
    ),
    "masked self-attention": Part(
        "Masked self-attention",
        "attn",
        "attention",
        "lets each row gather from itself and from the rows before it",
        "weight",
        "Masked self-attn.",
    ),
    "cross-attention": Part(
        "Cross-attention",
        "cross",
        "attention",
        "lets each row of the target gather from the source",
        "weight",
    ),
    "grouped-query attention": Part(
        "Grouped-query attention",
        "attn",
        "kv_cache",
        "is masked self-attention in which groups of queries share their keys and values",
        "weight",
    ),
    "latent attention": Part(
        "Multi-head latent attention",
        "attn",
        "mla",
        "is masked self-attention whose keys and values are made from one short row per token",
        "weight",
    ),
    "feed-forward": Part(
        "Feed-forward",
        "FFN",
        "feed_forward",
        "works on each row alone: up to a wider row, through an activation, and down again",
    ),
    "gated feed-forward": Part(
        "Gated feed-forward",
        "FFN",
        "feed_forward",
        "works on each row alone, and multiplies one wider row by another, the gate",
    ),
    "norm": Part(
        "LayerNorm",
        "norm",
        "normalization",
        "brings each row to mean 0 and variance 1, then applies a learned gain and bias",
    ),
    "rms norm": Part(
        "RMSNorm",
        "norm",
        "normalization",
        "brings each row to root mean square 1, then applies a learned gain",
    ),
    "sum": Part(
        "Residual sum",
        "+",
        "residual",
        "adds what a part has made to the stream that ran around it",
        "data",
    ),
    "encoder layer": Part(
        "Encoder layer",
        "layer",
        "transformer",
        "is attention, then a feed-forward part, each with its residual sum and its norm",
    ),
    "decoder layer": Part(
        "Decoder layer",
        "layer",
        "transformer",
        "has one part more than an encoder layer, which looks at the source",
    ),
    "decoder block": Part(
        "Decoder block",
        "block",
        "decoder",
        "is attention, then a feed-forward part, each behind a norm and added to the stream",
    ),
    "linear": Part(
        "Linear", "linear", "transformer", "gives every token of the vocabulary a score"
    ),
    "softmax": Part("Softmax", "softmax", "softmax", "turns scores into shares that sum to 1"),
    # Boxes inside the parts
    "queries": Part(
        "Queries", "Q", "attention", "is a linear layer that makes the queries", "query"
    ),
    "keys": Part("Keys", "K", "attention", "is a linear layer that makes the keys", "key"),
    "values": Part("Values", "V", "attention", "is a linear layer that makes the values", "value"),
    "scores": Part(
        "Scores", "QK", "attention", "multiplies each query by each key and scales", "weight"
    ),
    "mask": Part(
        "Mask",
        "mask",
        "attention",
        "sets the scores of later rows, and of padding, to minus infinity",
    ),
    "padding mask": Part(
        "Padding mask",
        "mask",
        "attention",
        "would set the scores of padding to minus infinity; these sequences have none",
    ),
    "mean of values": Part(
        "Mean of values", "AV", "attention", "takes the mean of the values with these weights"
    ),
    "attention": Part(
        "Attention",
        "A",
        "attention",
        "compares queries with keys, and takes the mean of the values with these weights",
        "weight",
    ),
    "mixing": Part("Output", "O", "attention", "is a linear layer that mixes the heads"),
    "up": Part("Up", "up", "feed_forward", "is a linear layer to a wider row"),
    "gate": Part("Gate", "gate", "feed_forward", "is a linear layer that makes the gate"),
    "down": Part("Down", "down", "feed_forward", "is a linear layer back to the stream's width"),
    "relu": Part("ReLU", "ReLU", "activations", "keeps what is positive and makes the rest 0"),
    "gelu": Part("GELU", "GELU", "activations", "is a smooth ReLU"),
    "silu": Part("SiLU", "SiLU", "activations", "multiplies each number by its sigmoid"),
    "product": Part("×", "×", "tensors", "multiplies number by number"),
    "join": Part(
        "Join", "join", "tensors", "puts queries and keys side by side, so that one call turns both"
    ),
    "rotation": Part(
        "Rotate", "rot", "rope", "turns each pair of features by the angle of its place"
    ),
    "table": Part("Table of positions", "table", "embeddings", "is computed once and not learned"),
}

_BY_KIND = {
    "TokenEmbedding": "embedding",
    "SinusoidalPositionalEncoding": "positions",
    "RotaryEmbedding": "rope",
    "FeedForward": "feed-forward",
    "GatedFeedForward": "gated feed-forward",
    "GroupedQueryAttention": "grouped-query attention",
    "MultiHeadLatentAttention": "latent attention",
    "LayerNorm": "norm",
    "RMSNorm": "rms norm",
    "TransformerEncoderLayer": "encoder layer",
    "TransformerDecoderLayer": "decoder layer",
    "DecoderBlock": "decoder block",
    "Softmax": "softmax",
    "table": "table",
}
_BY_NAME = {
    "q_proj": "queries",
    "k_proj": "keys",
    "v_proj": "values",
    "out_proj": "mixing",
    "w_up": "up",
    "w_gate": "gate",
    "w_down": "down",
    "lm_head": "linear",
    "add": "sum",
    "multiply": "product",
    "rotate": "rotation",
}


def key_of(graph: Graph, number: int) -> str:
    """Which part a box is: a key of `PARTS`, or its own name if it is none of them.

    What kind of attention it is follows from the run: whether queries and keys come from one
    tensor, and whether it was asked to be causal.
    """
    node = graph.nodes[number]
    if node.kind in ("input", "output"):
        return node.kind
    if node.kind == "MultiHeadAttention":
        if node.sources[0] != node.sources[1]:
            return "cross-attention"
        return "masked self-attention" if node.options.get("is_causal") else "self-attention"
    name = node.name.rpartition(".")[2]
    if name == "mask" and node.parent is not None:
        causal = key_of(graph, node.parent) == "masked self-attention"
        return "mask" if causal else "padding mask"
    if node.kind == "operation" and name == "product":
        # A product with what a softmax made is the mean of the values.
        makers = {graph.nodes[s].name for sources in node.sources for s in sources}
        return "mean of values" if "softmax" in makers else "scores"
    return _BY_KIND.get(node.kind) or _BY_NAME.get(name) or name


def label_of(graph: Graph, number: int) -> str:
    """What stands in a box."""
    key = key_of(graph, number)
    if key == "sum":
        return "+"
    return PARTS[key].label if key in PARTS else key


def chapter_of(topic_name: str) -> str:
    """The file name of the chapter of a topic, without its ending."""
    return next(path.stem for path in chapters() if topic(path) == topic_name)


def shape_text(shape: tuple[int, ...] | None, letters: dict[int, str]) -> str:
    """A shape without its batch: (1, 8, 5, 64) is "8 × T × 64" if 5 is T."""
    if shape is None:
        return ""
    sizes = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    return " × ".join(letters.get(n, f"{n:,}" if n > 9999 else str(n)) for n in sizes)


def node_counts(graph: Graph, node: Node) -> int:
    """How many times a box stands in the model: once for each copy of the layers around it."""
    times = 1
    for number in graph.ancestors(node.number):
        times *= graph.nodes[number].times
    return times
