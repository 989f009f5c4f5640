"""What a configuration says, what a child counts, and what no comparison of shapes can see."""

from __future__ import annotations

import torch

from book.checkers.questions import WrongNumber, choice, number
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig

TASTING = choice(
    "What a configuration says",
    right="B",
    because="Eight heads of queries share four heads of keys and values, two of them each.",
    tempting={
        "A": (
            "heads that fill the width",
            "Eight heads of 256 features are 2,048, less than the width. The output projection "
            "leads from 2,048 to 2,304.",
        ),
        "C": (
            "the width divided by the heads",
            "The heads have 256 features, not 2,304 / 8, and the scale has a field of its own: "
            "scores are divided by the root of 256.",
        ),
        "D": (
            "a window in every layer",
            "The field says how wide a window is. Which layers have one, another field says, or "
            "the code of the family: here it is every second layer.",
        ),
    },
)


def _parameters(kv_heads: int, d_ff: int) -> int:
    """A Llama of 32 layers of width 4,096, counted on a model without memory."""
    with torch.device("meta"):
        config = ModelConfig(32000, 4096, 32, 32, num_kv_heads=kv_heads, d_ff=d_ff)
        model = DecoderOnlyTransformer(config)
    return sum(p.numel() for p in model.parameters())


CHILD = number(
    "The child's count",
    value=lambda: _parameters(8, 14336),
    within=0,
    because="The heads save 805,306,368 and the wider feed-forward layers cost 1,308,622,848, so "
    "the child has {value}.",
    wrong=[
        WrongNumber(
            "the feed-forward layer forgotten",
            "The heads alone save that much. The wider hidden layer has to be paid for.",
            lambda: _parameters(8, 11008),
        ),
        WrongNumber(
            "the heads forgotten",
            "The feed-forward layer alone costs that much. Keys and values have become narrower.",
            lambda: _parameters(32, 14336),
        ),
        WrongNumber(
            "two matrices in place of three",
            "A gated layer has three matrices: gate, up and down.",
            lambda: _parameters(8, 14336) - 32 * 4096 * (14336 - 11008),
        ),
        WrongNumber(
            "keys without values",
            "Keys and values have a projection each, and both have become narrower.",
            lambda: _parameters(8, 14336) + 32 * 4096 * 24 * 128,
        ),
        WrongNumber(
            "queries and output narrowed too",
            "The 32 heads of queries stay, and with them their projection and the one of the "
            "output.",
            lambda: _parameters(8, 14336) - 2 * 32 * 4096 * 24 * 128,
        ),
        WrongNumber(
            "one layer",
            "Each of the 32 layers changes.",
            lambda: _parameters(32, 11008) - 2 * 4096 * 24 * 128 + 3 * 4096 * 3328,
        ),
    ],
)

SILENT = choice(
    "Which mistake is loud?",
    right="C",
    because="With too many heads of keys and values two matrices of each layer have another shape. "
    "The other three change what is done with tensors of the same names and shapes.",
    tempting={
        "A": (
            "another gain",
            "A gain has one number for each feature, whether it is stored as it is or less one.",
        ),
        "B": (
            "another order of the features",
            "To exchange rows of a matrix leaves its shape as it is.",
        ),
        "D": (
            "a cap left out",
            "A cap has no tensor at all, so nothing is missing and nothing is left over.",
        ),
    },
)
