"""The explorers of chapter 7: widths in whole numbers and fractions, gates by their formulas."""

import math
from fractions import Fraction

import numpy as np

from book.explorer import Bars, Heat, Lines

from .reading import Seen, check_explorer, says


def llama_width(d_model, multiple, factor=Fraction(1)):
    """Two thirds of 4 d_model, times the factor, each cut to a whole number, and rounded up."""
    width = math.floor(factor * (8 * d_model // 3))
    return next(n for n in range(multiple, 10**6, multiple) if n >= width)


@check_explorer("explore-width", {"d_model": "512", "multiple": "128"})
def test_what_rounding_to_128_adds_at_width_512():
    width = llama_width(512, 128)
    grid = sorted({round(32 * 256 ** (n / 60)) for n in range(61)})
    curve = [3 * x * llama_width(x, 128) / (2 * x * 4 * x) for x in grid]
    ratio = 3 * 512 * width / (8 * 512**2)
    return Seen(
        says(
            "d_model {}, multiple {}: 8d/3 = {} becomes {}, {}; the layer has {} times",
            *(512, 128, 8 * 512 / 3, width, width - 8 * 512 / 3, ratio),
        ),
        Bars(
            "hidden width, clipped at 12",
            ["plain", "8/3", "rounded"],
            {"width": [4, 8 / 3, width / 512]},
            "rule",
            "d_ff / d_model",
        ),
        Lines(
            "parameters, relative to 8d²",
            grid,
            {"all d_model": curve, "this one": [ratio if x == 512 else np.nan for x in grid]},
            "d_model",
            "ratio",
            xscale="log",
            yscale="log",
        ),
    )


@check_explorer("explore-factor", {"model": "d_model 8192, multiple 4096", "factor": "0.85"})
def test_a_factor_before_rounding_to_4096():
    factors = [Fraction(50 + 5 * n, 100) for n in range(31)]
    widths = [llama_width(8192, 4096, factor) for factor in factors]
    [width] = [w for w, factor in zip(widths, factors, strict=True) if factor == Fraction("0.85")]
    return Seen(
        says(
            "d_model 8192, multiple 4096, factor {}: {} hidden units, {} times d_model; {} of the "
            "{} factors give this width",
            *(0.85, width, width / 8192, widths.count(width), 31),
        ),
        Lines(
            "hidden width for every factor",
            [float(factor) for factor in factors],
            {
                "after rounding": [w / 8192 for w in widths],
                "before rounding": [float(factor * 8 / 3) for factor in factors],
                "this one": [width / 8192 if f == Fraction("0.85") else np.nan for f in factors],
            },
            "factor",
            "d_ff / d_model",
        ),
    )


@check_explorer("explore-gate", {"function on the gate": "GELU (GEGLU)", "value u": "-2"})
def test_what_gelu_lets_through_of_minus_two():
    gate = np.arange(-16, 17) / 4
    share = np.array([(1 + math.erf(g / math.sqrt(2))) / 2 for g in gate])
    slope = share + gate * np.exp(-(gate**2) / 2) / math.sqrt(2 * math.pi)
    through = gate * share * -2
    surface = np.array([[g * s * u for g, s in zip(gate, share, strict=True)] for u in gate[::-1]])
    return Seen(
        says(
            "GELU (GEGLU), value {}: a gate of {} lets {} through, a gate of {} lets {} through",
            *(-2, -2, through[8], 2, through[24]),
        ),
        Heat(
            "φ(g)·u",
            surface[::2, ::2],
            "gate g",
            "value u",
            limits=(-8, 8),
            diverging=True,
            rows=["4", "", "", "", "2", "", "", "", "0", "", "", "", "-2", "", "", "", "-4"],
            columns=["-4", "", "", "", "-2", "", "", "", "0", "", "", "", "2", "", "", "", "4"],
        ),
        Lines(
            "along the chosen value",
            gate,
            {"φ(g)·u": through, "its derivative by g": -2 * slope},
            "gate g",
            "result",
        ),
    )
