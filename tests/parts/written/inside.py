"""Chapter 19: answers to its exercises that the checkers do not know."""

import torch

from . import Right, Wrong


# induction
def by_loop(weights, length):
    size = weights.shape[-1]
    total = 0
    for t in range(size - length, size):
        total = total + weights[..., t, t - length + 1]
    return total / length


def by_gather(weights, length):
    size = weights.shape[-1]
    rows = torch.arange(size - length, size)
    return weights[..., rows, rows - (length - 1)].mean(-1)


def first_half(weights, length):
    return weights.diagonal(1 - length, -2, -1)[..., :length].mean(-1)


def largest(weights, length):
    return weights.diagonal(1 - length, -2, -1)[..., -length:].amax(-1)


def over_heads_too(weights, length):
    return weights.diagonal(1 - length, -2, -1)[..., -length:].mean()


def one_row_less(weights, length):
    return weights.diagonal(1 - length, -2, -1)[..., -length:-1].mean(-1)


# attribution
def by_einsum(parts, gain, eps, row):
    whole = torch.einsum("kd->d", parts)
    scale = torch.rsqrt(whole.pow(2).mean() + eps)
    return torch.einsum("kd,d,d->k", parts, gain, row) * scale


def total_only(parts, gain, eps, row):
    whole = parts.sum(0)
    return (whole * gain / (whole.square().mean() + eps).sqrt()) @ row


def detached_scale(parts, gain, eps, row):
    whole = parts.sum(0).detach()
    return parts @ (gain * row) / (whole.square().mean() + eps).sqrt()


def eps_outside(parts, gain, eps, row):
    whole = parts.sum(0)
    return parts @ (gain * row) / (whole.square().mean().sqrt() + eps)


def centred(parts, gain, eps, row):
    parts = parts - parts.mean(-1, keepdim=True)
    return parts @ (gain * row) / (parts.sum(0).square().mean() + eps).sqrt()


WRONG = [
    Wrong("inside.induction", "the first rows that have an entry", first_half),
    Wrong("inside.induction", "the largest instead of the mean", largest),
    Wrong("inside.induction", "the heads averaged as well", over_heads_too),
    Wrong("inside.induction", "the last row forgotten", one_row_less),
    Wrong("inside.attribution", "only the sum", total_only),
    Wrong("inside.attribution", "eps outside the root", eps_outside),
    Wrong("inside.attribution", "centred, as LayerNorm does", centred),
    Wrong("inside.attribution", "no gradient through the norm", detached_scale),
]

RIGHT = [
    Right("inside.induction", "a loop over rows", by_loop),
    Right("inside.induction", "two rows of indices", by_gather),
    Right("inside.attribution", "einsum", by_einsum),
]
