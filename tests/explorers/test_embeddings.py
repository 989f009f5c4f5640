"""The explorers of chapter 4: the waves and their turns, number by number."""

import math

import numpy as np

from book.explorer import Heat, Lines, Points

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
        ),
        Heat("the matrix M", matrix, "column", "row", limits=(-1, 1), diverging=True),
    )
