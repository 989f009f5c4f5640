"""The explorers of chapter 4: the waves and their turns, number by number."""

import math

import numpy as np
import torch

from book.explorer import Bars, Heat, Lines, Points

from .reading import Seen, check_explorer, says


def encoded(position, width, base):
    angles = [position * base ** (-2 * k / width) for k in range(width // 2)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


@check_explorer("explore-base", {"base": "1,000", "d_model": "8"})
def test_the_waves_of_eight_features():
    table = np.full((20, 32), np.nan)
    table[:, :8] = [encoded(n, 8, 1000) for n in range(20)]
    waves = [2 * math.pi * 1000 ** (k / 4) for k in range(4)]
    return Seen(
        says(
            "With base {} and d = {} the waves are {} to {} positions long; {} of {} pairs come "
            "round within {} positions",
            *(1000, 8, waves[0], waves[3], sum(wave <= 20 for wave in waves), 4, 20),
        ),
        Heat("the table", table, "feature", "position", limits=(-1, 1)),
        Lines(
            "wavelength of each pair",
            range(16),
            {"wavelength": [*waves, *[math.nan] * 12], "20 positions": [20] * 16},
            "pair",
            "positions",
            yscale="log",
        ),
    )


@check_explorer("explore-offset", {"position": "20", "offset δ": "-7"})
def test_seven_positions_back_are_a_turn():
    old, new = (np.array(encoded(n, 8, 100)) for n in (20, 13))
    turns = [-7 * 100 ** (-k / 4) for k in range(4)]
    # What takes every position's row to that of seven before.
    places = [encoded(n, 8, 100) for n in range(40)]
    before = [encoded(n - 7, 8, 100) for n in range(40)]
    matrix = np.linalg.lstsq(np.array(places), np.array(before), rcond=None)[0]
    return Seen(
        says(
            "From position {} to {}: the pairs turn by {}°, {}°, {}°, {}°, wherever they stand. "
            "The dot product of old and new is {} of {}",
            *(20, 13, *map(math.degrees, turns), old @ new, 4),
        ),
        Points(
            "the four pairs",
            {"old": (old[0::2], old[1::2]), "new": (new[0::2], new[1::2])},
            "sine",
            "cosine",
            equal=True,
        ),
        Heat("the matrix M", matrix, "column", "row", limits=(-1, 1), diverging=True),
    )


@check_explorer("explore-scale", {"factor √d": "no", "d_model": "64"})
def test_without_the_factor_a_word_is_hardly_heard():
    rng, rows = torch.Generator().manual_seed(2), {}
    for d in (16, 64, 256, 1024):
        rows[d] = torch.randn(2, d, generator=rng).numpy() / math.sqrt(d)
    words = np.array([rows[64][place % 2] for place in range(8)])
    positions = np.array([encoded(n, 64, 10_000) for n in range(8)])
    x = words + positions
    lengths = np.linalg.norm(x, axis=1)
    cosines = [[x[i] @ x[j] / (lengths[i] * lengths[j]) for j in range(8)] for i in range(8)]
    word, place = (np.linalg.norm(t, axis=1).mean() for t in (words, positions))
    return Seen(
        says(
            "d = {}, factor no: a word is {} times as long as its position encoding. Places {} and "
            "{} (same word) have cosine {}, places {} and {} (other word) {}",
            *(64, word / place, 0, 2, cosines[0][2], 0, 1, cosines[0][1]),
        ),
        Bars(
            "root mean square",
            ["word", "position"],
            {"size": [word / 8, place / 8]},
            "part of the sum",
            "rms",
        ),
        Heat("cosine of input rows", cosines, "place", "place", limits=(-1, 1)),
    )
