"""One model for all encoders, assembled from the parts of the other chapters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_parts.families import weights
from transformer_parts.families.encoders.fronts import FrameEmbedding, PatchEmbedding
from transformer_parts.families.encoders.names import pieces
from transformer_parts.families.encoders.plan import EncoderPlan, read_encoder_plan
from transformer_parts.families.encoders.stack import FamilyStack, LayerCache
from transformer_parts.families.model import ACTIVATIONS, FamilyDecoder
from transformer_parts.families.plan import Plan
from transformer_parts.kv_cache import KVCache
from transformer_parts.normalization import LayerNorm

__all__ = [
    "FamilyEncoder",
    "assemble_encoder",
    "greedy",
    "load_weights",
    "published_weights",
]


# From notebooks/22_families.ipynb#encoders-from-the-same-parts
class _MaskedHead(nn.Module):
    """What BERT puts between the last state and the embedding: dense, bend, norm."""

    def __init__(self, p: Plan, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.dense = nn.Linear(p.d_model, p.d_model, bias=options["dense_bias"])
        self.activation = ACTIVATIONS[options["activation"]]()
        self.norm = LayerNorm(p.d_model, p.eps, bias=options["norm_bias"])
        self.bias = nn.Parameter(torch.zeros(p.vocab_size)) if options["bias"] else None

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        """Scores of all tokens, (*, vocab_size), for `h` of shape (*, d_model)."""
        h = self.norm(self.activation(self.dense(h)))
        return F.linear(h, embedding, self.bias)


class FamilyEncoder(nn.Module):
    """An encoder of any family that its data describe, perhaps with a decoder.

    Args:
        plan: from `read_encoder_plan`.

    Shapes: see `forward`. Masks are boolean, (B, S), True = a token.
    """

    def __init__(self, plan: EncoderPlan) -> None:
        super().__init__()
        self.plan, p, inputs = plan, plan.encoder.plan, dict(plan.inputs)
        words = (plan.decoder or plan.encoder).plan.vocab_size
        self.embed = nn.Embedding(words, p.d_model) if words else None
        types = inputs.pop("types", 0)
        self.types = nn.Embedding(types, p.d_model) if types else None
        self.front: PatchEmbedding | FrameEmbedding | None = None
        self.first: nn.Parameter | None = None
        if plan.front == "patches":
            self.front = PatchEmbedding(d_model=p.d_model, **inputs)
            self.first = nn.Parameter(torch.zeros(1, 1, p.d_model))
        elif plan.front == "frames":
            self.front = FrameEmbedding(d_model=p.d_model, **inputs)
        self.encoder = FamilyStack(plan.encoder)
        self.decoder = None if plan.decoder is None else FamilyStack(plan.decoder)
        self.head: nn.Module | None = None
        if plan.head["kind"] == "masked":
            self.head = _MaskedHead(p, plan.head)
        elif plan.head["kind"] == "classes":
            self.head = nn.Linear(p.d_model, plan.head["classes"])
        elif not plan.tie:
            self.head = nn.Linear(p.d_model, words, bias=False)

    def forward(
        self,
        inputs: Tensor,
        tokens: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """The scores of the head.

        Args:
            inputs: what is encoded; see `encode`.
            tokens: for a model with a decoder, what it has written, (B, T).
            mask: boolean, (B, S), True = a token; for tokens alone.
            types: token types, integers, (B, S), where the model has them.

        Returns:
            (B, S, vocab_size) of a masked language model, (B, classes) of a classifier,
            (B, T, vocab_size) of a decoder.

        Raises:
            ValueError: on another shape, on `tokens` without a decoder and the other
                way round, and as `encode`.
        """
        if (tokens is None) != (self.decoder is None):
            has = "no decoder" if self.decoder is None else "a decoder"
            raise ValueError(
                f"{self.plan.family} has {has}, "
                f"but tokens is {'missing' if tokens is None else 'given'}"
            )
        states = self.encode(inputs, mask, types)
        if tokens is not None:
            return self.decode(tokens, states, mask)
        if self.plan.head["kind"] == "classes":
            states = states[:, 0]
        return self.logits(states)

    def encode(
        self, inputs: Tensor, mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """The encoder's states, (B, S, d_model).

        Args:
            inputs: tokens (B, S), images (B, channels, height, width) or frames
                (B, bins, frames).
            mask: boolean, (B, S), True = a token; for tokens alone.
            types: token types, integers, (B, S); None for all 0.

        Raises:
            ValueError: on another shape, a mask or types that the model does not take,
                or positions beyond its table.
        """
        if self.front is not None:
            if mask is not None or types is not None:
                raise ValueError(
                    f"mask and types are for tokens, not {self.plan.front}"
                )
            x = self.front(inputs)
            if self.first is not None:
                x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
            return cast(Tensor, self.encoder(x))
        x = self._embedded(inputs)
        if types is not None and self.types is None:
            raise ValueError(f"{self.plan.family} has no token types")
        for name, given in (("mask", mask), ("types", types)):
            if given is not None and given.shape != inputs.shape:
                raise ValueError(
                    f"{name} must have shape {tuple(inputs.shape)}, "
                    f"got {tuple(given.shape)}"
                )
        if mask is not None and mask.dtype != torch.bool:
            raise ValueError(f"mask must be boolean, got {mask.dtype}")
        if self.types is not None:
            x = x + self.types(torch.zeros_like(inputs) if types is None else types)
        return cast(Tensor, self.encoder(x, mask, self._rows(inputs)))

    def decode(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """Scores of the token after each of the newest T, (B, T, vocab_size).

        Args:
            tokens: what was written, (B, T); with a cache, only what is new.
            memory: from `encode`.
            memory_mask: that of the encoder.
            cache: from `new_cache`; it is extended by these positions.
        """
        if self.decoder is None:
            raise ValueError(f"{self.plan.family} has no decoder")
        x = self._embedded(tokens)
        h = self.decoder(x, memory=memory, memory_mask=memory_mask, cache=cache)
        return self.logits(h)

    def logits(self, h: Tensor) -> Tensor:
        """The head's scores for states of shape (*, d_model)."""
        scale = self.plan.head["scale"]
        h = h if scale == 1.0 else h * scale
        if isinstance(self.head, _MaskedHead):
            return self.head(h, cast(nn.Embedding, self.embed).weight)  # type: ignore[no-any-return]
        if self.head is not None:
            return cast(Tensor, self.head(h))
        return F.linear(h, cast(nn.Embedding, self.embed).weight)

    def new_cache(self, batch: int, max_len: int) -> list[LayerCache]:
        """An empty cache for every layer of the decoder, for `max_len` positions."""
        if self.decoder is None or self.embed is None:
            raise ValueError(f"{self.plan.family} has no decoder")
        p, like = self.decoder.stack.plan, self.embed.weight
        sizes = batch, p.num_kv_heads, max_len, p.head_dim
        return [
            LayerCache(KVCache(*sizes, dtype=like.dtype, device=like.device))
            for _ in p.layers
        ]

    def pieces(self, ours: str) -> list[Any]:
        """Where published weights hold a parameter of this model."""
        return list(pieces(ours, self.get_parameter(ours), self.plan))

    def _embedded(self, tokens: Tensor) -> Tensor:
        if tokens.dim() != 2 or tokens.is_floating_point():
            raise ValueError(
                f"tokens must be integers of shape (B, T), "
                f"got {tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        return cast(Tensor, cast(nn.Embedding, self.embed)(tokens))

    def _rows(self, tokens: Tensor) -> Tensor | None:
        """Rows of the table of positions, where they count tokens: RoBERTa's."""
        pad = self.plan.inputs.get("count_from")
        if pad is None:
            return None
        real = tokens != pad
        rows: Tensor = real.cumsum(1) * real + pad
        length = self.encoder.stack.plan.max_seq_len
        if tokens.shape[1] + pad + 1 > length:
            raise ValueError(
                f"the input must end within {length - pad - 1} positions, "
                f"got {tokens.shape[1]}"
            )
        return rows


def assemble_encoder(
    config: Mapping[str, Any] | str | Path, *, ignore: Collection[str] = ()
) -> FamilyEncoder:
    """The model that a published config.json describes: `read_encoder_plan`, built."""
    return FamilyEncoder(read_encoder_plan(config, ignore=ignore))


def load_weights(
    model: FamilyEncoder, state: Mapping[str, Tensor] | str | Path
) -> FamilyEncoder:
    """Copy published weights into the model, and return it.

    Args and errors: as `load_weights` of the decoders.
    """
    weights.load_weights(cast(FamilyDecoder, model), state)
    return model


def published_weights(model: FamilyEncoder) -> dict[str, Tensor]:
    """The model's weights under their published names: what `load_weights` read."""
    return weights.published_weights(cast(FamilyDecoder, model))


@torch.no_grad()
def greedy(
    model: FamilyEncoder, inputs: Tensor, new: int, mask: Tensor | None = None
) -> Tensor:
    """The most probable token, again and again, from the start token on, with a cache.

    Args:
        model: one with a decoder.
        inputs: what is encoded, once.
        new: how many tokens to write.
        mask: of the inputs, as `encode`.

    Returns:
        Shape (B, new), without the start token.

    Raises:
        ValueError: if the model has no decoder, or its configuration no start token.
    """
    cache = model.new_cache(len(inputs), max(new, 1))
    if model.plan.start is None:
        raise ValueError("decoder_start_token_id is not given")
    memory = model.encode(inputs, mask)
    start = torch.full((len(inputs), 1), model.plan.start, device=memory.device)
    out, newest = [start[:, :0]], start
    for _ in range(new):
        scores = model.decode(newest, memory, mask, cache)
        newest = scores[:, -1].argmax(-1, keepdim=True)
        out.append(newest)
    return torch.cat(out, 1)
