"""How the book's own model is trained: data, start, schedule, steps."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from book.own.muon import Muon
from book.own.tokens import PAD_ID, encode
from book.stories import VOCABULARY, Story, stories
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.residual import linear_warmup


@dataclass(frozen=True)
class Recipe:
    """All that decides which weights come out.

    Attributes:
        d_model, num_layers, num_heads, d_ff: sizes.
        max_seq_len: positions; a story is shorter.
        steps, batch: how many steps of how many stories.
        lr, warmup, last: the peak of the learning rate, the steps that it rises, and the part of it
            that is left at the end of a cosine.
        weight_decay, clip: of the matrices, and the largest norm of a gradient.
        optimizer: "muon" (AdamW for embedding and gains) or "adamw".
        common: size of a vector that all embeddings share at the start, in standard deviations of
            an entry; a query can ask for a distance with it, whatever the word.
        seed: of weights and stories.
    """

    d_model: int = 128
    num_layers: int = 2
    num_heads: int = 4
    d_ff: int = 344
    max_seq_len: int = 320
    steps: int = 3000
    batch: int = 32
    lr: float = 3e-3
    warmup: int = 100
    last: float = 0.05
    weight_decay: float = 0.1
    clip: float = 1.0
    optimizer: str = "muon"
    common: float = 1.0
    seed: int = 0

    def config(self) -> ModelConfig:
        """The architecture: a small Llama."""
        return ModelConfig(
            vocab_size=len(VOCABULARY),
            d_model=self.d_model,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            d_ff=self.d_ff,
            max_seq_len=self.max_seq_len,
            tie_embeddings=True,
        )


def new_model(recipe: Recipe) -> DecoderOnlyTransformer:
    """The model before its first step."""
    torch.manual_seed(recipe.seed)
    model = DecoderOnlyTransformer(recipe.config())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                # An output of each matrix is as large as its inputs are; an embedding has length 1.
                nn.init.normal_(p, std=p.shape[1] ** -0.5)
            if name.endswith(("out_proj.weight", "w_down.weight")):
                p.div_(math.sqrt(2 * recipe.num_layers))
        shared = recipe.common * torch.randn(recipe.d_model) * recipe.d_model**-0.5
        model.embed.weight.add_(shared)
    return model


def optimizers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks and AdamW for the rest, or AdamW for all.

    Raises:
        ValueError: if the recipe names another optimizer.
    """
    named = list(model.named_parameters())
    matrices = {name for name, p in named if p.dim() == 2 and name.startswith("layers.")}
    inside = [p for name, p in named if name in matrices]
    rest = [p for name, p in named if name not in matrices]
    adam = {"lr": recipe.lr, "betas": (0.9, 0.95), "weight_decay": 0.0}
    if recipe.optimizer == "adamw":
        decayed = {"params": inside, "weight_decay": recipe.weight_decay}
        return [torch.optim.AdamW([decayed, {"params": rest}], **adam)]  # type: ignore[arg-type]
    if recipe.optimizer != "muon":
        raise ValueError(f"optimizer must be 'muon' or 'adamw', got {recipe.optimizer!r}")
    return [
        Muon(inside, lr=recipe.lr, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(rest, **adam),  # type: ignore[arg-type]
    ]


def schedule(recipe: Recipe, step: int) -> float:
    """The part of the peak of the learning rate that step `step` takes, counted from 0."""
    up = linear_warmup(step + 1, recipe.warmup, 1.0)
    down = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    return up * (recipe.last + (1 - recipe.last) * down)


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of numbers as one tensor, shape (B, longest row), filled up with PAD_ID."""
    return pad_sequence([torch.tensor(r) for r in rows], batch_first=True, padding_value=PAD_ID)


def training_stories(recipe: Recipe) -> Iterator[Story]:
    """What the model is trained on, in the order of telling."""
    return stories(f"train {recipe.seed}")


def batches(recipe: Recipe) -> Iterator[Tensor]:
    """Stories that were never seen before, 20 batches at a time sorted by length."""
    told, order = training_stories(recipe), random.Random(f"order {recipe.seed}")
    while True:
        rows = sorted((encode(next(told).words) for _ in range(20 * recipe.batch)), key=len)
        parts = [rows[i : i + recipe.batch] for i in range(0, len(rows), recipe.batch)]
        order.shuffle(parts)
        yield from map(padded, parts)


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """Mean surprise of each word after the first of its row, in nats; padding does not count."""
    logits: Tensor = model(tokens[:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=PAD_ID)


def train(
    recipe: Recipe,
    model: DecoderOnlyTransformer | None = None,
    on_step: Callable[[int, float, DecoderOnlyTransformer], Any] = lambda *_: None,
    stop: int | None = None,
) -> DecoderOnlyTransformer:
    """The model after its training.

    Args:
        recipe: what decides the outcome.
        model: one to start from; None for `new_model`.
        on_step: called after each step with the number of steps, the loss before it, and the model.
        stop: steps after which to leave off, the schedule being that of all.
    """
    model = new_model(recipe) if model is None else model
    all_optimizers = optimizers(model, recipe)
    groups = [g for o in all_optimizers for g in o.param_groups]
    data = batches(recipe)
    for step in range(recipe.steps if stop is None else stop):
        for group in groups:
            group["lr"] = recipe.lr * schedule(recipe, step)
        loss = loss_of(model, next(data))
        for o in all_optimizers:
            o.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for o in all_optimizers:
            o.step()
        on_step(step + 1, loss.item(), model)
    return model
