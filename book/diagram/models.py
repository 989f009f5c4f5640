"""The two models that the map shows, built from the book's own parts and traced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from book.diagram.draw import Diagram
from book.diagram.trace import trace
from book.diagram.view import fold
from book.facts import fact
from transformer_parts import attention, kv_cache
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.embeddings import TokenEmbedding
from transformer_parts.transformer import Transformer

SOURCE, TARGET = 7, 5  # tokens; as sizes they differ from all others of the models
VOCABULARY = 37_000

# Functions of the book that are boxes, as they are parts without being modules.
WATCHED: dict[str, tuple[object, str]] = {
    "linear": (TokenEmbedding, "logits"),
    "mask": (attention, "_masked"),
    "softmax": (attention, "softmax"),
    "rotate": (kv_cache, "apply_rotary_emb"),
}


class WithSoftmax(nn.Module):
    """A model that returns scores, with the softmax that makes them probabilities."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.softmax = model, nn.Softmax(dim=-1)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Probabilities of the next token at every position."""
        p: Tensor = self.softmax(self.model(*tokens))
        return p


def original(target: str = "target") -> Diagram:
    """The encoder-decoder of chapter 10 in the sizes of the paper's base model.

    `target` is the name of what the decoder reads.
    """
    with torch.device("meta"):  # shapes without numbers: the size costs nothing
        model = Transformer(
            VOCABULARY,
            VOCABULARY,
            int(fact("transformer-base", "d_model")),
            int(fact("transformer-base", "num_heads")),
            int(fact("transformer-base", "num_layers")),
            int(fact("transformer-base", "num_layers")),
            int(fact("transformer-base", "d_ff")),
            max_len=256,
        )
        tokens = {
            "source": torch.zeros(1, SOURCE, dtype=torch.long),
            target: torch.zeros(1, TARGET, dtype=torch.long),
        }
    graph = fold(trace(WithSoftmax(model), tokens, watch=WATCHED))
    opened = {graph.find(name).number for name in ("model", "model.encoder.0", "model.decoder.0")}
    return Diagram(graph, frozenset(opened), {SOURCE: "S", TARGET: "T"})


def today() -> Diagram:
    """The decoder of chapter 15 in the sizes of Llama 3 8B."""
    sizes: dict[str, Any] = {
        name: int(fact("llama-3-8b", name))
        for name in ("vocab_size", "d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff")
    }
    with torch.device("meta"):
        model = DecoderOnlyTransformer(ModelConfig(**sizes))
        tokens = {"tokens": torch.zeros(1, TARGET, dtype=torch.long)}
    graph = fold(trace(WithSoftmax(model), tokens, watch=WATCHED))
    names = ("model", "model.layers.0", "model.layers.0.attn", "model.layers.0.ffn")
    opened = {graph.find(name).number for name in names}
    return Diagram(graph, frozenset(opened), {TARGET: "T"})
