"""Chapter 14: answers to its exercises that the checkers do not know."""

import math

import torch

from . import Right, Wrong

# mla.absorbed


def by_keys_and_values(q, c, w_uk, w_uv):
    k = torch.einsum("bsc,hcd->bhsd", c, w_uk)
    v = torch.einsum("bsc,hcd->bhsd", c, w_uv)
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def no_scale(q, c, w_uk, w_uv):
    wide = torch.einsum("bhtd,hcd->bhtc", q, w_uk)
    scores = torch.einsum("bhtc,bsc->bhts", wide, c)
    mixed = torch.einsum("bhts,bsc->bhtc", scores.softmax(-1), c)
    return torch.einsum("bhtc,hcv->bhtv", mixed, w_uv)


def the_first_head_for_all(q, c, w_uk, w_uv):
    return row_after_row(q, c, w_uk[:1].expand_as(w_uk), w_uv[:1].expand_as(w_uv))


def causal_too(q, c, w_uk, w_uv):
    wide = torch.einsum("bhtd,hcd->bhtc", q, w_uk)
    scores = torch.einsum("bhtc,bsc->bhts", wide, c) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    mixed = torch.einsum("bhts,bsc->bhtc", scores.masked_fill(~mask, -math.inf).softmax(-1), c)
    return torch.einsum("bhtc,hcv->bhtv", mixed, w_uv)


def row_after_row(q, c, w_uk, w_uv):
    heads = []
    for h in range(len(w_uk)):
        weights = (q[:, h] @ w_uk[h].T @ c.mT * q.shape[-1] ** -0.5).softmax(-1)
        heads.append((weights @ c) @ w_uv[h])
    return torch.stack(heads, 1)


# mla.decode


def decode_with(at=None, scale=None, own=True, stored=True):
    """A step of decoding, with keys and values made after all."""

    def answer(q_nope, q_rope, c, k_rope, latents, shared, w_uk, w_uv, rotate):
        here = latents.shape[1] if at is None else at(latents.shape[1])
        latents = torch.cat([latents, c.unsqueeze(1)], 1)
        key = rotate(k_rope, here) if stored else k_rope
        shared = torch.cat([shared, key.unsqueeze(1)], 1)
        n = latents.shape[1] if own or latents.shape[1] == 1 else latents.shape[1] - 1
        k = torch.einsum("bsc,hcd->bhsd", latents[:, :n], w_uk)
        v = torch.einsum("bsc,hcd->bhsd", latents[:, :n], w_uv)
        s = torch.einsum("bhd,bhsd->bhs", q_nope, k)
        s = s + torch.einsum("bhr,bsr->bhs", rotate(q_rope, here), shared[:, :n])
        wide = q_nope.shape[-1] + q_rope.shape[-1]
        root = wide if scale is None else scale(c.shape[-1], q_rope.shape[-1])
        return torch.einsum("bhs,bhsv->bhv", (s / root**0.5).softmax(-1), v), latents, shared

    return answer


def decode_step_by_step(q_nope, q_rope, c, k_rope, latents, shared, w_uk, w_uv, rotate):
    s = latents.shape[1]
    latents = torch.cat((latents, c[:, None]), dim=1)
    shared = torch.cat((shared, rotate(k_rope, s)[:, None]), dim=1)
    rows = torch.cat([latents, shared], -1)
    q = torch.einsum("bhd,hcd->bhc", q_nope, w_uk)
    q = torch.cat([q, rotate(q_rope, s)], -1)
    p = (q @ rows.mT * (q_nope.shape[-1] + q_rope.shape[-1]) ** -0.5).softmax(-1)
    return torch.einsum("bhs,bsc,hcv->bhv", p, latents, w_uv), latents, shared


# mla.budget


def tried(budget, tokens, layers, shared, new, ridge, key=lambda d_c, shared: d_c + shared):
    """The sizes that fit, all of them, and the largest one."""
    fits = [d for d in range(64, 8192, 64) if 2 * key(d, shared) * tokens * layers <= budget]
    d_c = max(fits)
    per_byte = [2 * h * (2 * d_c + shared) / (2 * (d_c + shared)) for h in range(16, 2049, 16)]
    return d_c, 16 * sum(new * i <= ridge for i in per_byte)


def keys_of_every_latent(*given):
    return tried(*given, key=lambda d_c, shared: 2 * d_c + shared)


def below_the_ridge(budget, tokens, layers, shared, new, ridge):
    d_c, heads = tried(budget, tokens, layers, shared, new, ridge)
    met = new * heads * (2 * d_c + shared) == ridge * (d_c + shared)
    return d_c, heads - 16 * met


# mla.devices


def drawn_up(heads, groups, features, latent, rotated, devices, share=1):
    """The owner of each head written down, and its group; then counted."""
    owner = [device for device in range(devices) for _ in range(heads // devices)]
    group = [g for g in range(groups) for _ in range(heads // groups)]
    both = set(zip(owner, group, strict=True))
    most = max(sum(o == d for o, _ in both) for d in range(devices))
    return features * 2 * most, (latent + rotated) // share


def split_too(*given):
    return drawn_up(*given, share=given[-1])


def divided(heads, groups, features, latent, rotated, devices):
    return 2 * features * groups / devices, latent + rotated


def at_least_one(heads, groups, features, latent, rotated, devices):
    return 2 * features * max(1, groups // devices), rotated + latent


WRONG = [
    Wrong(
        "mla.absorbed",
        "by keys and values",
        by_keys_and_values,
        says="without making a key or a value of any head",
    ),
    Wrong("mla.absorbed", "no scale", no_scale, named="no scale"),
    Wrong("mla.absorbed", "the first head for all", the_first_head_for_all),
    Wrong("mla.absorbed", "causal", causal_too),
    Wrong(
        "mla.decode",
        "the root of the rows",
        decode_with(scale=lambda d_c, d_r: d_c + d_r),
        named="the scale of the wide rows",
    ),
    Wrong("mla.decode", "without itself", decode_with(own=False), named="the new token left out"),
    Wrong(
        "mla.decode",
        "one place before",
        decode_with(at=lambda s: max(s - 1, 0)),
        named="one position back",
    ),
    Wrong(
        "mla.decode",
        "the key as it is",
        decode_with(stored=False),
        named="the key stored before its rotation",
    ),
    Wrong(
        "mla.budget",
        "two latents",
        keys_of_every_latent,
        named="a latent for keys and one for values",
    ),
    Wrong("mla.budget", "below the ridge", below_the_ridge),
    Wrong("mla.devices", "a part of the latent", split_too, named="the latent split"),
    Wrong("mla.devices", "a part of a group", divided, named="the groups divided by the devices"),
    Wrong("mla.devices", "at least one group", at_least_one, named="one group at the least"),
]
RIGHT = [
    Right("mla.absorbed", "head by head", row_after_row),
    Right("mla.decode", "with keys and values", decode_with()),
    Right("mla.decode", "in the absorbed form", decode_step_by_step),
    Right("mla.budget", "all sizes tried", tried),
    Right("mla.devices", "all heads written down", drawn_up),
]
