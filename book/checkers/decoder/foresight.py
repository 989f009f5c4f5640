"""What is said or estimated before it is computed."""

from __future__ import annotations

from book.checkers.questions import WrongNumber, choice, number

BEST_CHANGE = choice(
    "What is a sinusoid worth here?",
    right="C",
    because="With RoPE a score depends on the distance by construction. From a sinusoid the "
    "matrices of queries and keys have to learn it first, and 80 steps are few for that.",
    tempting={
        "A": (
            "both tell where a word stands",
            "Both hold the place of each word. But from a sum of word and sinusoid the place has "
            "to be read off, by matrices that start at random, before one can look three places "
            "back.",
        ),
        "B": (
            "between the two",
            "It does lie between the two, and much nearer to the one without positions: 80 steps "
            "are few to learn to look three places back.",
        ),
        "D": (
            "absolute places are easier",
            "The grammar asks for a distance and not for a place: three back, wherever one stands. "
            "RoPE has the distance in every score.",
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
    "for each key: they are equal at {value:,.0f} keys.",
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
