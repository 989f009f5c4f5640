"""The book's own model with its last feed-forward layer open: others are trained in its place.

All other weights stay as they are, so what comes into the layer is computed once, and a layer is
trained in seconds, for the task that it has in the model: to make the next word likely.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from book.own import encode, own_model
from book.own.inside import blocks
from book.stories import VOCABULARY, stories
from transformer_parts.decoder import DecoderOnlyTransformer
from transformer_parts.experts import expert_load, load_balancing_loss, update_correction

__all__ = ["Rows", "loss", "rows", "train"]


@dataclass(frozen=True)
class Rows:
    """Every word of some stories, as the last feed-forward layer meets it, in float64.

    Attributes:
        stream: (N, 128), before the layer.
        inputs: (N, 128), the same after the layer's norm: what it reads.
        words: (N,), the number of the word that stands there.
        targets: (N,), the number of the word that comes next.
        story: (N,), which story.
        place: (N,), how far from its beginning.
    """

    stream: Tensor
    inputs: Tensor
    words: Tensor
    targets: Tensor
    story: Tensor
    place: Tensor

    def __len__(self) -> int:
        return len(self.words)

    def spelled(self) -> list[str]:
        """The words themselves."""
        return [VOCABULARY[int(number)] for number in self.words]


@functools.cache
def _frozen() -> tuple[DecoderOnlyTransformer, nn.Module, Tensor]:
    """The model, its last norm and its output matrix, without gradients."""
    model = own_model().double().requires_grad_(False)
    return model, model.norm, model.embed.weight


@torch.no_grad()
def rows(count: int, seed: int | str) -> Rows:
    """What the layer meets in `count` stories told with `seed`."""
    model, _, _ = _frozen()
    part = blocks(model)[-1].ffn
    seen: list[Tensor] = []
    hook = part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0, :-1]))
    numbers = [torch.tensor(encode(story.words)) for story in islice(stories(seed), count)]
    for story in numbers:
        model(story[None])
    hook.remove()
    stream = torch.cat(seen)
    return Rows(
        stream,
        part.norm(stream),
        torch.cat([story[:-1] for story in numbers]),
        torch.cat([story[1:] for story in numbers]),
        torch.cat([torch.full((len(s) - 1,), k) for k, s in enumerate(numbers)]),
        torch.cat([torch.arange(len(story) - 1) for story in numbers]),
    )


def loss(y: Tensor, of: Rows, chosen: Tensor | slice = slice(None)) -> Tensor:
    """Nats per word, if the layer writes `y` to the stream; of the rows `chosen`."""
    _, norm, output = _frozen()
    return F.cross_entropy(norm(of.stream[chosen] + y) @ output.T, of.targets[chosen])


def train(
    layer: nn.Module,
    of: Rows,
    seed: int,
    steps: int = 150,
    batch: int = 512,
    lr: float = 3e-3,
    *,
    balance: float = 0.0,
    speed: float = 0.0,
) -> list[Tensor]:
    """Train `layer` by Adam; returns the load of its experts at each step, as shares.

    Args:
        layer: from (n, 128) to (n, 128), in float64; a `MixtureOfExperts`, or one without experts,
            which has no load.
        of: the rows of the training.
        seed: which rows come when.
        steps: how many.
        batch: rows in each.
        lr: of Adam.
        balance: the factor of the load-balancing loss.
        speed: of the correction bias.
    """
    optimizer = torch.optim.Adam(layer.parameters(), lr=lr)
    order = torch.Generator().manual_seed(seed)
    # The chapter has a class of its own, which is woven into the library.
    router: Any = getattr(layer, "router", None)
    loads = []
    for _ in range(steps):
        chosen = torch.randint(len(of), (batch,), generator=order)
        x = of.inputs[chosen]
        if router is not None:
            routing = router(x)
            total = loss(layer(x, routing), of, chosen)
            if balance:
                total = total + balance * load_balancing_loss(routing.scores, routing.chosen)
            if speed:
                update_correction(router, routing.chosen, speed)
            load = expert_load(routing.chosen, router.num_experts)
            loads.append(load / load.sum())
        else:
            total = loss(layer(x), of, chosen)
        optimizer.zero_grad()
        torch.autograd.backward(total)
        optimizer.step()
    return loads
