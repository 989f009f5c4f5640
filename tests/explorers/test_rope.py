"""The explorers of chapter 11: rotation by complex numbers, or by sines and cosines."""

import math

import numpy as np
import torch

from book.explorer import Lines, Points

from .reading import Seen, check_explorer, says


@check_explorer(
    "explore-positions",
    {
        "position m of the query": "10",
        "position n of the key": "4",
        "formula": "R(m − n), the slip",
    },
)
def test_the_hands_turn_and_the_slip_gives_another_score():
    query, key = 1 + 0.3j, 0.5 + 0.9j
    turned = [v * np.exp(0.3j * position) for v, position in ((query, 10), (key, 4))]
    score = (turned[0] * turned[1].conjugate()).real
    apart = np.arange(-12, 13)
    slipped = (query * (key * np.exp(0.3j * apart)).conjugate()).real
    part = np.arange(11) / 10
    hands = [(part * hand.real, part * hand.imag) for hand in turned]
    return Seen(
        says(
            "Query at {}, key at {}: the score of the turned vectors is {}, and the formula with "
            "R(m − n), the slip gives {} for distance {}",
            *(10, 4, score, slipped[apart.tolist().index(6)], 6),
        ),
        Points(
            "the two hands",
            {"query": hands[0], "key": hands[1]},
            "first feature",
            "second feature",
        ),
        Lines(
            "score over the distance",
            apart,
            {
                "by the formula": slipped,
                "of the turned vectors": np.where(apart == 6, score, np.nan),
            },
            "distance m − n",
            "score",
        ),
    )


@check_explorer("explore-base", {"base": "100000", "context": "8192", "features per head": "64"})
def test_wavelengths_of_a_larger_base():
    waves = [2 * math.pi * 100_000 ** (k / 32) for k in range(32)]
    full = sum(wave <= 8192 for wave in waves)
    return Seen(
        says(
            "Base {}, {} features per head: {} of {} pairs complete a turn within {} positions; "
            "the slowest needs about {} thousand",
            *(100_000, 64, full, 32, 8192, waves[-1] / 1000),
        ),
        Lines(
            "positions in a full turn",
            np.arange(64) / 64,
            # 32 pairs on an axis with room for 64.
            {"wavelength": np.repeat(waves, 2), "context": [8192] * 64},
            "pair, as a fraction of all pairs",
            "positions",
            yscale="log",
        ),
    )


@check_explorer("explore-decay", {"query and key": "random", "base": "100"})
def test_a_random_query_and_key_do_not_decay():
    torch.manual_seed(4)
    query, key = torch.randn(128).numpy(), torch.randn(128).numpy()
    distances = [*range(128), *range(128, 1025, 8)]

    def cosine(distance):
        turned = np.empty(128)
        for k in range(64):
            angle = distance * 100.0 ** (-k / 64)
            turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            turned[2 * k : 2 * k + 2] = turn @ query[2 * k : 2 * k + 2]
        return turned @ key / np.linalg.norm(query) / np.linalg.norm(key)

    cosines = [cosine(distance) for distance in distances]
    best = distances[int(np.argmax(cosines))]
    return Seen(
        says(
            "random, base {}: the cosine of the turned vectors is {} at distance {}, {} at {}, {} "
            "at {} and {} at {}; it is largest at distance {}",
            *(100, cosine(0), 0, cosine(3), 3, cosine(100), 100, cosine(1024), 1024, best),
        ),
        Lines(
            "cosine of the turned query and key",
            distances,
            {"cosine": cosines},
            "distance m − n",
            "cosine",
        ),
    )
