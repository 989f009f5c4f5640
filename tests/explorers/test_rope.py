"""The explorers of chapter 11: rotation by complex numbers, or by sines and cosines."""

import cmath
import math

import numpy as np
import torch

from book.explorer import Arc, Arrow, Bars, Curve, Dot, Lines, Scene, Text
from transformer_parts.rope import rotation_matrix

from .reading import Seen, check_explorer, says


@check_explorer(
    "explore-dials", {"query's position": "5", "key's position": "2", "move both along by": "100"}
)
def test_arrows_at_a_right_angle_stay_there_wherever_they_move():
    right = torch.tensor([1.0, 0.0])
    angles = [30 * speed for speed in (1, 0.4, 0.16, 0.064)]
    q, k = ([rotation_matrix(p * math.radians(a), 2) @ right for a in angles] for p in (105, 102))
    scores = [abs((x @ y).item()) for x, y in zip(q, k, strict=True)]
    assert scores[0] < 1e-12
    # The key points up and to the left of it, at 102 * 30 = 180 degrees; the query is a quarter on.
    drawn = [Arrow(0, 0, *k[0], "k", role="key"), Arrow(0, 0, *q[0], "q", role="query")]
    one = dict(zip(("pair key", "pair query"), drawn, strict=True))
    one["between"] = Arc(0, 0, 0.35, math.pi, 1.5 * math.pi)
    one["score"] = Text(0, -1.4, f"cos 90° = {scores[0]:.2f}")
    four = {}
    for j in range(4):
        x = 2.6 * j
        four[f"pair {j} key"] = Arrow(x, 0, x + k[j][0], k[j][1], role="key")
        four[f"pair {j} query"] = Arrow(x, 0, x + q[j][0], q[j][1], role="query")
        four[f"score {j}"] = Text(x, -1.4, f"{scores[j]:.2f}")
    return Seen(
        says(
            "Query at position {}, key at {}: {} steps of {}° lie between the arrows, and the "
            "score is {}; with the three slower pairs it is {}",
            *(105, 102, 3, 30, scores[0], sum(scores)),
        ),
        Scene("one pair", one, xlim=(-1.3, 1.3), ylim=(-1.6, 1.3)),
        Scene("four pairs: degrees a step, and score", four, xlim=(-1.2, 9), ylim=(-1.75, 1.75)),
    )


def test_the_numbers_by_hand():
    """Positions (5, 3) and (105, 103) score one half, (5, 2) scores nothing."""
    right = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for m, n, score in ((5, 3, 0.5), (105, 103, 0.5), (5, 2, 0.0)):
        q, k = (rotation_matrix(p * math.radians(30), 2) @ right for p in (m, n))
        assert abs((q @ k).item() - score) < 1e-12


@check_explorer(
    "explore-positions",
    {
        "position m of the query": "10",
        "position n of the key": "4",
        "formula": "the slip R(m − n)",
    },
)
def test_the_arrows_turn_and_the_slip_gives_another_score():
    query, key = 1 + 0.3j, 0.4 + 0.7j
    turned = [v * np.exp(0.3j * position) for v, position in ((query, 10), (key, 4))]
    score = (turned[0] * turned[1].conjugate()).real
    apart = np.arange(-12, 13)
    slipped = (query * (key * np.exp(0.3j * apart)).conjugate()).real
    query, key = ((hand.real, hand.imag) for hand in turned)
    return Seen(
        says(
            "Query at {}, key at {}: the score of the turned vectors is {}, and the formula with "
            "the slip R(m − n) gives {} for distance {}",
            *(10, 4, score, slipped[apart.tolist().index(6)], 6),
        ),
        Scene(
            "the two arrows",
            {
                "query": Arrow(0, 0, *query, "q", role="query"),
                "key": Arrow(0, 0, *key, "k", role="key"),
            },
            xlim=(-1.3, 1.3),
            ylim=(-1.3, 1.3),
            axes="cross",
        ),
        Scene(
            "curve: formula, dot: turned vectors",
            {"formula": Curve(apart, slipped), "score": Dot(6, score, f"{score:.2f}")},
            xlim=(-12.5, 12.5),
            ylim=(-1.4, 1.4),
            xlabel="distance m − n",
            ylabel="score",
            axes="box",
            equal=False,
        ),
    )


@check_explorer("explore-base", {"base": "100000", "context": "8192", "features per head": "64"})
def test_wavelengths_of_a_larger_base():
    waves = [2 * math.pi * 100_000 ** (k / 32) for k in range(32)]
    full = sum(wave <= 8192 for wave in waves)
    return Seen(
        says(
            "Base {}, {} features per head: {} of {} pairs complete a turn within {} positions; "
            "the slowest needs {}.",
            *(100_000, 64, full, 32, 8192, round(waves[-1])),
        ),
        Lines(
            "positions in a full turn",
            np.arange(64),
            # 32 pairs on an axis with room for 64.
            {"wavelength": [*waves, *[math.nan] * 32], "context": [8192] * 64},
            "pair k",
            "positions",
            yscale="log",
        ),
    )


@check_explorer("explore-decay", {"query and key": "random", "base": "100"})
def test_a_random_query_and_key_do_not_decay():
    torch.manual_seed(4)
    query, key = torch.randn(128).numpy(), torch.randn(128).numpy()
    distances = list(range(513))

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
            *(100, cosine(0), 0, cosine(3), 3, cosine(100), 100, cosine(300), 300, best),
        ),
        Lines(
            "cosine of the turned query and key",
            distances,
            {"cosine": cosines},
            "distance m − n",
            "cosine",
        ),
    )


@check_explorer("explore-layouts", {"layout": "interleaved"})
def test_weights_of_one_layout_run_with_it():
    x = [0.9, 0.3, -0.4, 0.8, 0.5, -0.7, 0.2, 1.0]
    y = [0.5, -0.4, -0.6, 0.3, 0.4, 0.2, 0.3, 0.5]
    scores = []
    for n in range(6):
        total = 0.0
        for k in range(4):
            z = complex(x[2 * k], x[2 * k + 1]) * cmath.exp(1j * n / 100 ** (k / 4))
            total += z.real * y[2 * k] + z.imag * y[2 * k + 1]
        scores.append(total)
    joined = {f"feature {k}": Text(k, -0.6, str(k)) for k in range(8)}
    for k in range(4):  # half a circle over the two neighbors
        joined[f"pair {k}"] = Arc(2 * k + 0.5, 0, 0.5, 0, math.pi)
        joined[f"number {k}"] = Text(2 * k + 0.5, 0.85, str(k))
        joined[f"one of {k}"], joined[f"other of {k}"] = Dot(2 * k, 0), Dot(2 * k + 1, 0)
    return Seen(
        says(
            "interleaved: features {} and {} form pair {}. With weights trained for neighbors the "
            "scores are right at all distances.",
            *(0, 1, 0),
        ),
        Scene(
            "eight features, and the two of each pair",
            joined,
            xlim=(-0.6, 7.6),
            ylim=(-1, 2.9),
        ),
        Bars(
            "scores of weights trained for neighbors",
            [str(n) for n in range(6)],
            {"trained": scores, "as it runs": scores},
            "distance",
            "score",
            ylim=(0, 1.8),
        ),
    )
