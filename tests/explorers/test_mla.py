"""The explorers of chapter 14: rotation by complex numbers, work by torch's counter."""

import numpy as np
import torch

from book.explorer import Bars, Heat, Lines

from .counting import counted
from .reading import Seen, check_explorer, says


def turned(row, position, speed):
    """Neighbouring features as complex numbers, each turned by its angle; the base is 100."""
    z = row[0::2] + 1j * row[1::2]
    angles = speed * position * 100.0 ** (-2 * np.arange(len(z)) / len(row))
    z = z * np.exp(1j * angles)
    return np.stack([z.real, z.imag], -1).ravel()


@check_explorer(
    "explore-where",
    {"rotation": "the latent, before the up-projection", "speed of rotation": "0.5"},
)
def test_rotating_the_latent_makes_scores_depend_on_the_place():
    torch.manual_seed(5)
    query, latent = torch.randn(1, 8).numpy()[0], torch.randn(1, 8).numpy()[0]
    up = torch.randn(8, 8).numpy() / 3
    scores = np.zeros((8, 8))
    for m in range(8):
        for n in range(8):
            key = up.T @ turned(latent, n, 0.5)
            scores[m, n] = turned(query, m, 0.5) @ key
    by_distance = [
        [scores[m, n] for m in range(8) for n in range(8) if m - n == k] for k in range(-7, 8)
    ]
    uneven = max(max(same) - min(same) for same in by_distance)
    shown = scores - scores[0, 0]
    axes = {"limits": (-2.5, 2.5), "diverging": True}
    # The latent lies rotated in the cache, so the query may be projected instead: no difference.
    return Seen(
        says(
            "Rotated: the latent, before the up-projection, at {} times ... vary by {} with "
            "position; at one and the same distance by {}. The absorbed form is off by up to {}",
            *(0.5, np.ptp(scores), uneven, 0.0),
        ),
        Heat("scores with keys, less the first", shown, "key position", "query position", **axes),
        Heat("absorbed scores, less that one", shown, "key position", "query position", **axes),
    )


@check_explorer(
    "explore-sizes",
    {"latent, d_c": "256", "shared rotated key, d_R": "32", "query heads": "64"},
)
def test_the_cache_of_a_latent_and_what_reading_it_costs():
    latent, rotated, heads, head = 256, 32, 64, 128
    cached = latent + rotated
    all_heads = [16, 32, 64, 128]
    # Per cached position a query of each head takes a product with the key and one with the value.
    ready = sum(2 * (head + rotated) + 2 * head for _ in range(heads))
    absorbed = sum(2 * (latent + rotated) + 2 * latent for _ in range(heads))
    mha = sum(4 * head for _ in range(heads)) / (2 * heads * head * 2)
    grouped = sum(4 * head for _ in range(heads)) / (2 * 8 * head * 2)
    single = sum(4 * head for _ in range(heads)) / (2 * head * 2)
    return Seen(
        says(
            "Latent {}, shared key {}, {} heads of {}: {} numbers ... {} of MHA's ... {} GQA "
            "groups ... {} times the work of ready keys ... {} FLOPs per byte",
            *(latent, rotated, heads, head, cached),
            *(cached / (heads * head * 2), cached / (2 * head)),
            *(absorbed / ready, absorbed / (2 * cached)),
        ),
        Lines(
            "numbers cached per token and layer",
            all_heads,
            {
                "MHA": [h * (head + head) for h in all_heads],
                "GQA, 8 groups": [8 * (head + head)] * 4,
                "MLA": [cached] * 4,
                "MQA": [head + head] * 4,
            },
            "query heads",
            "numbers",
            xscale="log",
            yscale="log",
        ),
        Bars(
            "FLOPs per byte of cache, 16 bits",
            ["MHA", "GQA-8", "MQA", "MLA"],
            {"decoding": [mha, grouped, single, absorbed / (2 * cached)]},
            "attention",
            "FLOPs per byte",
        ),
    )


@check_explorer("explore-chunk", {"new tokens": "64", "tokens in the cache before": "256"})
def test_the_work_of_the_two_forms_as_torch_counts_it():
    # DeepSeek-V2: heads, features of a head without and with rotation, of a value, of the latent.
    h, d_h, d_r, d_v, d_c = 128, 128, 64, 128, 512
    new, total = 64, 64 + 256
    naive = [
        counted(((total, d_c), (d_c, h * (d_h + d_v)))),
        counted(((h, new, d_h + d_r), (h, d_h + d_r, total)), ((h, new, total), (h, total, d_v))),
    ]
    absorbed = [
        counted(((h, new, d_h), (h, d_h, d_c)), ((h, new, d_c), (h, d_c, d_v))),
        counted(((h * new, d_c + d_r), (d_c + d_r, total)), ((h * new, total), (total, d_c))),
    ]
    ratio = sum(absorbed) / sum(naive)
    assert ratio < 1
    return Seen(
        says(
            "New tokens: {}, after {} in the cache. The absorbed form does {} times the work of "
            "the naive one, so the layer takes the absorbed form",
            *(new, 256, ratio),
        ),
        Bars(
            "work, in percent of the naive form's total",
            ["projections", "scores and means"],
            {
                "naive": [100 * part / sum(naive) for part in naive],
                "absorbed": [100 * part / sum(naive) for part in absorbed],
            },
            "part",
            "percent",
        ),
    )
