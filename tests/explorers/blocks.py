"""Attention and feed-forward on plain tensors, for the small models that tests train again.

Only the drawn weights of a model come from the book, by the names that it gives them.
"""

import torch
import torch.nn.functional as F


def drawn(model):
    """The initial weights of a model, as leaves of their own."""
    return {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}


def waves(length, width):
    """The sinusoidal encoding: an angle for each pair, as its sine and its cosine."""
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def linear(w, name, x):
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def heads_of(w, name, x, heads):
    """The projection of rows, (batch, heads, positions, features)."""
    return linear(w, name, x).unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(w, name, x, memory, heads, sees):
    """The output of a block; `sees` is true where a query may look."""
    q, k, v = (
        heads_of(w, f"{name}.{part}_proj", rows, heads)
        for part, rows in (("q", x), ("k", memory), ("v", memory))
    )
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
    return linear(w, f"{name}.out_proj", mixed.transpose(1, 2).flatten(2))


def feed_forward(w, name, x):
    return linear(w, f"{name}.w_down", linear(w, f"{name}.w_up", x).relu())


def past(length):
    """What a query may look at: itself, and all before it."""
    return torch.ones(length, length, dtype=torch.bool).tril()
