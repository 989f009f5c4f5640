"""What a configuration says, what a child counts, and what no comparison of shapes can see."""

from __future__ import annotations

import torch

from book.checkers.questions import WrongNumber, choice, number
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig

TASTING = choice(
    "What a configuration says",
    right="B",
    because="Four heads of 256 features each for keys and as many for values are 2,048 numbers.",
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
    within=1e-12,  # to the last digit
    because="The heads save 805,306,368 and the wider feed-forward layers cost 1,308,622,848, so "
    "the child has 7,241,732,096.",
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
    because="A matrix that is not square has another shape when it is transposed. The other three "
    "leave all names and shapes as they are.",
    tempting={
        "A": (
            "rows in another order",
            "Whatever the order of its rows, the fused matrix has the same shape, and so have the "
            "three blocks that are cut from it.",
        ),
        "B": (
            "a square matrix",
            "A square matrix has the same shape when it is transposed.",
        ),
        "D": (
            "a window left out",
            "A window has no tensor at all, so nothing is missing and nothing is left over.",
        ),
    },
)

PATIENT = choice(
    "The patient",
    right="B",
    because="All parts of the first layer agree. In the second the attention differs, but not at "
    "the first token, whose only key has the weight 1 whatever its score. So queries, keys or "
    "their positions are wrong there, and of these the keys are among the four.",
    tempting={
        "A": (
            "the first layer",
            "All that the first layer gives is the same to within rounding.",
        ),
        "C": (
            "the values",
            "At the first token the output of attention is its own value, projected. Other values "
            "would show there, and nothing does.",
        ),
        "D": (
            "the hidden units",
            "The second layer's attention comes before its hidden units, and it differs already.",
        ),
    },
)
