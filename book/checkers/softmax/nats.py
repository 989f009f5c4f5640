"""Chapter 03: what a loss is in numbers, before training and over two texts."""

from __future__ import annotations

import math

from book.checkers.questions import WrongNumber, number

FIRST_LOSS = number(
    "The first number",
    value=lambda: math.log(50_257),
    within=0.01,
    because="A model without knowledge gives each of the 50,257 tokens about the same share, and "
    "the surprise of one of them is ln 50,257 = {value}.",
    wrong=[
        WrongNumber(
            "in bits",
            "With the natural logarithm a loss is in nats.",
            lambda: math.log2(50_257),
        ),
        WrongNumber(
            "the logarithm to the base ten",
            "With the natural logarithm a loss is in nats.",
            lambda: math.log10(50_257),
        ),
        WrongNumber(
            "the probability",
            "That is the share of each token. The loss is its negative logarithm.",
            lambda: 1 / 50_257,
        ),
        WrongNumber(
            "no loss",
            "A loss of zero needs a model that is certain and right.",
            lambda: 0.0,
        ),
        WrongNumber(
            "the perplexity",
            "That is e to the power of the loss: as many candidates as there are tokens.",
            lambda: 50_257.0,
        ),
    ],
)

PERPLEXITY = number(
    "Two perplexities",
    value=lambda: math.sqrt(100 * 4),
    within=0.01,
    because="The mean loss is (ln 100 + ln 4)/2, and e to the power of it is the root of "
    "100 · 4, which is {value}.",
    wrong=[
        WrongNumber(
            "the mean of the perplexities",
            "The losses are averaged, and the perplexity is e to the power of the mean loss.",
            lambda: 52.0,
        ),
        WrongNumber(
            "the harmonic mean",
            "That is the mean of the probabilities. Losses are averaged, that is, logarithms.",
            lambda: 2 / (1 / 100 + 1 / 4),
        ),
        WrongNumber(
            "the product",
            "The loss is a mean over the tokens, so half of each logarithm counts.",
            lambda: 400.0,
        ),
        WrongNumber(
            "the loss",
            "That is the mean loss in nats. The perplexity is e to the power of it.",
            lambda: math.log(400) / 2,
        ),
    ],
)
