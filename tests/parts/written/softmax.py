"""Chapter 03: answers to its exercises that the checkers do not know."""

import torch

from . import Right, Wrong


def minimum_as_a_negated_maximum(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide + (-wide).min(dim, keepdim=True).values)
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def one_row_after_the_other(x, dim):
    e = torch.exp(x - x.max())
    return e / e.sum(dim, keepdim=True)


WRONG = [
    Wrong(
        "softmax.softmax",
        "the maximum of the whole tensor, not widened",
        one_row_after_the_other,
        named="one maximum for the whole tensor",
    ),
]
RIGHT = [
    Right("softmax.softmax", "the maximum by a minimum", minimum_as_a_negated_maximum),
]
