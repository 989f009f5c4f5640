"""The explorers of chapter 4: the waves and their turns, number by number."""

import math

import numpy as np
import torch

from book.explorer import Arrow, Bars, Box, Curve, Heat, Lines, Scene, Text
from book.own import own_model
from book.stories import VOCABULARY

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
        Heat("the table", table, "feature", "position", limits=(-1, 1), diverging=True),
        Lines(
            "wavelength of each pair",
            range(17),
            {"wavelength": [*waves, *[math.nan] * 13], "20 positions": [20] * 17},
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
    shapes = {"hands": Text(3.9, 1.45, "dashed: position 20, solid: position 13")}
    for k in range(4):
        x, circle = 2.6 * k, np.exp(1j * np.linspace(0, 2 * math.pi, 49))
        shapes[f"face {k}"] = Curve((x + circle.imag).tolist(), circle.real.tolist(), role="quiet")
        shapes[f"old {k}"] = Arrow(x, 0, x + old[2 * k], old[2 * k + 1], dash=True)
        shapes[f"new {k}"] = Arrow(x, 0, x + new[2 * k], new[2 * k + 1], role="data", strong=True)
        shapes[f"pair {k}"] = Text(x, -1.45, f"pair {k}")
        turned = f"{turns[k] / (2 * math.pi):.2f} turns".replace("-", "−")
        shapes[f"turn {k}"] = Text(x, -1.95, turned)
    return Seen(
        says(
            "From position {} to {}: the pairs make {}, {}, {}, {} turns, wherever they stand. "
            "The dot product of old and new is {} of {}",
            *(20, 13, *(turn / (2 * math.pi) for turn in turns), old @ new, 4),
        ),
        Scene("", shapes, xlim=(-1.3, 9.1), ylim=(-2.2, 1.8)),
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
        Heat("cosine of input rows", cosines, "place", "place", limits=(-1, 1), diverging=True),
    )


@check_explorer("explore-clocks", {"position": "7"})
def test_the_four_hands_at_position_seven():
    shapes, turns = {}, []
    for k in range(4):
        turn = np.exp(1j * 7 * 10 ** (-k / 2))
        x, s, c = 2.6 * k, turn.imag, turn.real
        circle = np.exp(1j * np.linspace(0, 2 * math.pi, 49))
        shapes[f"face {k}"] = Curve((x + circle.imag).tolist(), circle.real.tolist(), role="quiet")
        shapes[f"hand {k}"] = Arrow(x, 0, x + s, c, role="data", strong=True)
        shapes[f"sine {k}"] = Text(x, -1.45, f"sin {s:.2f}".replace("-", "−"))
        shapes[f"cosine {k}"] = Text(x, -1.95, f"cos {c:.2f}".replace("-", "−"))
        turns.append(7 * 10 ** (-k / 2) * 180 / math.pi)
    return Seen(
        says(
            "Position {}: the hands have come round {}, {}, {}, {} times and stand at "
            "{}°, {}°, {}°, {}°",
            *(7, *(turn // 360 for turn in turns), *(turn % 360 for turn in turns)),
        ),
        Scene("", shapes, xlim=(-1.3, 9.1), ylim=(-2.2, 1.3)),
    )


@check_explorer("explore-neighbours", {"word": "bridge"})
def test_the_nearest_words_to_a_place():
    rows = own_model().double().embed.weight.detach().numpy()
    lengths = np.sqrt((rows**2).sum(1))
    at = VOCABULARY.index("bridge")
    cosines = rows @ rows[at] / lengths / lengths[at]
    pairs = sorted(zip(cosines, VOCABULARY, strict=True), reverse=True)[1:8]
    others = np.delete(cosines, at).mean()
    shapes = {}
    for k, (value, word) in enumerate([*pairs, (others, "any other")]):
        y, role = (7 - k, "data") if k < 7 else (-0.4, "quiet")
        shapes[f"word {k}"] = Text(-0.04, y + 0.3, word)
        shapes[f"bar {k}"] = Box(0, y, value, 0.6, role=role, fill=0.6)
        shapes[f"value {k}"] = Text(value + 0.02, y + 0.3, f"{value:.2f}")
    names = [word for _, word in pairs]
    return Seen(
        says(
            f"Nearest to “bridge” are “{names[0]}”, with the cosine {{}}, “{names[1]}” and "
            f"“{names[2]}”. Any other word has {{}} on average",
            *(pairs[0][0], others),
        ),
        Scene("", shapes, xlim=(-0.5, 1.05), ylim=(-0.6, 7.8)),
    )
