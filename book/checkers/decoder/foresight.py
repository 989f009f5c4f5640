"""What is said or estimated before it is computed."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

BEST_CHANGE = choice(
    "Which change helps here?",
    right="D",
    because="The first grammar asks for a word at a fixed distance, and with RoPE a score depends "
    "on the distance by construction. In the second the word that decides is the one at which the "
    "model stands, so it need not look back.",
    tempting={
        "A": (
            "what every model has",
            "Where the norm stands matters in deep models. This one has two layers, and both ways "
            "of it train.",
        ),
        "B": (
            "gates are better",
            "At equal parameters and after so few steps a gate gains a few hundredths of a nat "
            "where words far back decide, and nothing where all is learned already.",
        ),
        "C": (
            "RoPE is better everywhere",
            "It makes looking back at a distance easy. Where the last word alone decides, the "
            "original form has learned nearly all there is, and nothing is left to gain.",
        ),
    },
)

DIAGNOSIS = choice(
    "Which text has the wrong pairs?",
    right="B",
    because="The sentences begin well and go on with words that mostly fit, so embeddings, values "
    "and feed-forward layers do their work. What goes wrong is who and what is looked back at.",
    tempting={
        "A": (
            "nothing is wrong with it",
            "It keeps track of people and things from its first sentence to its last. This is the "
            "file as it was meant.",
        ),
        "C": (
            "wrong from the very first word",
            "The first new words look back at very little, and they are wrong already. With wrong "
            "pairs they would still be right.",
        ),
        "D": (
            "the same word again and again",
            "Its first words are right and then one word repeats without any grammar. The "
            "feed-forward layers, which hold that grammar, are what is wrong.",
        ),
    },
)

CROSSING = number(
    "When attention costs as much as the matrices",
    value=lambda: 7.5e9 / (2 * 32 * 4096),
    within=0.02,
    because="A token costs two FLOPs for each of 7.5 billion entries, and 4 times 32 times 4096 "
    "for each key: they are equal at {value} keys.",
    wrong=[
        WrongNumber(
            "scores only",
            "Attention has two products, the scores and the weighted sum of the values.",
            lambda: 7.5e9 / (32 * 4096),
        ),
        WrongNumber(
            "one FLOP for each entry",
            "A multiplication and an addition for each entry of a matrix, as for each number of a "
            "key.",
            lambda: 7.5e9 / (4 * 32 * 4096),
        ),
        WrongNumber(
            "key-value heads",
            "All 32 query heads compute their scores, however few keys they share.",
            lambda: 7.5e9 / (2 * 32 * 1024),
        ),
        WrongNumber(
            "one layer of attention",
            "Every one of the 32 layers attends.",
            lambda: 7.5e9 / (2 * 4096),
        ),
    ],
)
