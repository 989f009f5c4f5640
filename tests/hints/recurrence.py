"""Chapter 24: what its exercises and questions print, and from where it is known."""

import torch

from .texts import Code, Entries, Formula, draw


def what_a_key_reads():
    """With a loop over the features, in the shape that the hint speaks of."""
    memory, key = draw(2, 3, 4), draw(2, 3, seed=1)
    read = draw(2, 1, 4)
    for n in range(2):
        for column in range(4):
            read[n, 0, column] = sum(key[n, i] * memory[n, i, column] for i in range(3))
    return {"S": memory, "k": key}, read


def products_of_keys():
    """A key against every row of a rotation, all of length 1: no direction is preferred."""
    rows = torch.linalg.qr(draw(9, 9)).Q
    key = draw(9, seed=1)
    key = key / key.norm()
    return {"d": 9, "m": (rows @ key).square().mean()}


def what_a_token_does():
    """A gated delta net fades, then corrects: the table behind it, feature by feature."""
    table, key, value = draw(4, 4), draw(4, seed=1), draw(4, seed=2)
    behind = 0.7 * table
    missing = [value[e] - sum(key[i] * 0.7 * table[i, e] for i in range(4)) for e in range(4)]
    for i in range(4):
        for e in range(4):
            behind[i, e] += 0.6 * key[i] * missing[e]
    fade = 0.7 * (torch.eye(4, dtype=table.dtype) - 0.6 * torch.outer(key, key))
    return {"S": table, "A": fade, "B": 0.6 * torch.outer(key, value)}, behind


ENTRIES: Entries = {
    ("ex-rec-width", "1/d"): Formula(
        products_of_keys, claim="m=@0", says=("has mean 0 and mean square",)
    ),
    ("ex-rec-delta", "k[..., None, :] @ S"): Code(
        what_a_key_reads, ("k @ S", "S @ k[..., :, None]")
    ),
    ("ex-rec-combine", "A @ S + B"): Code(
        what_a_token_does, ("S @ A + B", "A @ S - B", "A @ (S + B)")
    ),
}
