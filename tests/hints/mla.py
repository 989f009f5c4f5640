"""Chapter 14: what its exercises and questions print, and from where it is known."""

import torch

from book.formulas.relations import Call

from .map import flops
from .texts import Code, Entries, Formula, draw, oracle


def absorbed():
    q, c, w = draw(4), draw(3), draw(3, 4)
    return {"q": q, "c": c, "W": w, "s": torch.einsum("d,cd,c->", q, w, c)}


def form_costs():
    """FLOPs of both forms for one prompt, counted; each side of the bound."""
    made = []
    for d_c, d_h, d_v in ((5, 4, 3), (4, 6, 5), (4, 5, 3), (6, 5, 4), (3, 2, 7), (3, 4, 1)):
        q, k, v, c = draw(4, d_h), draw(4, d_h), draw(4, d_v), draw(4, d_c)
        naive = flops(lambda q=q, k=k, v=v: (q @ k.T) @ v)
        wide = flops(lambda c=c: (c @ c.T) @ c)
        made.append({"d_c": d_c, "d_h": d_h, "d_v": d_v, "N": naive, "A": wide})
    return Call(made[0], draws=made[1:])


def same_scale():
    """What the reference divides by: two keys that differ, and the ratio of their weights.

    The values are the latents themselves, so the weights can be read off the output.
    """
    d_h, d_r, scores = 4, 2, torch.tensor([0.9, -0.4], dtype=torch.float64)
    q, w_uk = torch.zeros(1, 1, d_h).double(), torch.zeros(1, 2, d_h).double()
    q[..., 0], w_uk[0, :, 0] = 1.0, scores
    before, newest = torch.eye(2).double().split(1)  # two latents, one of them in the cache
    still = torch.zeros(1, d_r).double()
    out, *_ = oracle("mla.decode")(
        q, still[None], newest, still, before[None], still[None], w_uk,
        torch.eye(2)[None].double(), lambda row, position: row,
    )  # fmt: skip
    weights = out.flatten()
    scale = (weights[0] / weights[1]).log() / (scores[0] - scores[1])
    return {"g": scale, "d_h": d_h, "d_R": d_r}


def scale_without_position():
    """What the reference without a rotated part divides by, read off in the same way."""
    d_h, scores = 4, torch.tensor([0.9, -0.4], dtype=torch.float64)
    q, w_uk = torch.zeros(1, 1, 1, d_h).double(), torch.zeros(1, 2, d_h).double()
    q[..., 0], w_uk[0, :, 0] = 1.0, scores
    latents = torch.eye(2).double()[None]
    weights = oracle("mla.absorbed")(q, latents, w_uk, latents).flatten()
    return {"g": (weights[0] / weights[1]).log() / (scores[0] - scores[1]), "d_h": d_h}


def left_by_a_token():
    """Keys and values of a token in all layers of DeepSeek 67B, as tensors."""
    return {"n": sum(torch.empty(8, 128).numel() for _ in range(2 * 95))}


def made_of_a_latent():
    """What three heads make of one latent, counted."""
    c, up_k, up_v = draw(12), draw(3, 12, 8), draw(3, 12, 6)
    made = [torch.einsum("c,hcd->hd", c, up) for up in (up_k, up_v)]
    return {"H": 3, "d_h": 8, "d_v": 6, "n": sum(m.numel() for m in made)}


def wide_score():
    """The operations of one query with one row of the cache."""
    return {"d_c": 12, "d_R": 4, "n": flops(lambda: draw(1, 12 + 4) @ draw(12 + 4, 1))}


def narrow_score():
    """The operations of one query with the key of a head."""
    return {"d_h": 8, "d_R": 4, "n": flops(lambda: draw(1, 8 + 4) @ draw(8 + 4, 1))}


def multiples(distance):
    """Something of the kind of an absorbed query: a row for each distance."""
    return distance * torch.tensor([1.0, -2.0])


ENTRIES: Entries = {
    ("ex-mla-absorbed", r"\sqrt{d_h}"): Formula(
        scale_without_position, claim="g=1/@0", says=("divided by",)
    ),
    ("ex-mla-span", "torch.stack([absorbed_at(distance) for distance in range(201)])"): Code(
        lambda: ({"absorbed_at": multiples}, torch.arange(201.0)[:, None] * multiples(1)),
        ("torch.stack([absorbed_at(distance) for distance in range(200)])",
         "torch.stack([absorbed_at(distance) for distance in range(1, 201)])",
         "torch.cat([absorbed_at(distance) for distance in range(201)])"),
    ),
    ("ex-mla-bits", r"95\cdot2\cdot8\cdot128"): Formula(
        left_by_a_token, claim="n=@0", says=("A token leaves",)
    ),
    ("Is the latent narrower than a key?", "H(d_h+d_v)"): Formula(
        made_of_a_latent, claim="n=@0", says=("all heads make of it",)
    ),
    ("Is the latent narrower than a key?", "2(d_c+d_R)"): Formula(
        wide_score, claim="n=@0", says=("a score in the absorbed form takes",)
    ),
    ("Is the latent narrower than a key?", "2(d_h+d_R)"): Formula(
        narrow_score, claim="n=@0", says=("where a ready key takes",)
    ),
    ("Is the absorbed form always better?", "2d_c>d_h+d_v"): Formula(
        form_costs, claim=r"A>N\iff @0", says=("the naive form wins as long as",)
    ),
    ("What is absorption?", r"q(cW)^\top=(qW^\top)c^\top"): Formula(absorbed, claim="s=@0"),
    ("Which scale belongs to the absorbed form?", r"1/\sqrt{d_h+d_R}"): Formula(
        same_scale, claim="g=@0", says=("The same as to the naive one",)
    ),
}  # fmt: skip
