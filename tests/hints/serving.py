"""Chapter 23: what its exercises and questions print, and from where it is known."""

import torch

from .texts import Code, Entries, Formula


def behind(length=11, size=4):
    """Where the next row stands in its block: rows are put in one after the other."""
    return [row for _ in range(length) for row in range(size)][length]


def three_drafted():
    """How often each of three tokens stands, by a coin for each of many thin slices."""
    p, q = torch.tensor([0.2, 0.5, 0.3]).double(), torch.tensor([0.4, 0.35, 0.25]).double()
    coins = (torch.arange(400_000) + 0.5) / 400_000
    stands = torch.stack([(coins * b < a).double().mean() for a, b in zip(p, q, strict=True)])
    return {"p": p, "q": q, "a": stands}


ENTRIES: Entries = {
    ("ex-serve-append", "length % size"): Code(
        lambda: ({"length": 11, "size": 4}, behind()),
        ("length // size", "(length - 1) % size", "(length + 1) % size"),
    ),
    ("ex-serve-residual", r"\min(1,p_x/q_x)"): Formula(three_drafted, claim="a_x=@0"),
    ("ex-serve-draft", "1 + 0.1 * k"): Code(
        lambda: ({"k": 6}, 1 + sum(0.1 for _ in range(6))),
        ("1 + 0.1 + k", "0.1 * k", "1 + 0.1 * (k + 1)"),
    ),
}
