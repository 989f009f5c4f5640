"""The explorers of chapter 7: widths in whole numbers and fractions, gates by their formulas."""

import math
from fractions import Fraction

import numpy as np
import torch

from book.explorer import Arrow, Bars, Box, Heat, Lines, Scene, Text
from book.own import encode, own_model
from book.own.measure import held_out
from book.stories import VOCABULARY

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


@check_explorer("explore-units", {"token, to the right": "-1", "token, upwards": "1.5"})
def test_one_unit_of_three_fires():
    x, y = -1.0, 1.5
    fires = [max(0.0, x), max(0.0, -0.6 * x + 0.8 * y), max(0.0, -y)]
    directions = [(1.0, 0.0), (-0.6, 0.8), (0.0, -1.0)]
    writes = [(0.0, 1.0), (1.0, 0.0), (-0.7, -0.7)]
    read = {"token": Arrow(0, 0, x, y, role="data", strong=True)}
    wrote, total = {}, np.zeros(2)
    for k, role in enumerate(("query", "key", "value")):
        fx, fy = directions[k]
        written = fires[k] * np.array(writes[k])
        total += written
        read[f"fires {k}"] = Arrow(0, 0, fx, fy, role=role, faint=fires[k] == 0)
        wrote[f"writes {k}"] = Arrow(0, 0, *written, role=role, shown=fires[k] > 0)
    wrote["sum"] = Arrow(0, 0, *total, role="data", strong=True)
    return Seen(
        says(
            "The token is ({}, {}): unit 2 fires with {}. The layer writes ({}, {})",
            *(x, y, fires[1], *total),
        ),
        Scene("what they fire on", read, xlim=(-2.2, 2.2), ylim=(-2.2, 2.2)),
        Scene("what they write, and the sum", wrote, xlim=(-3.2, 3.2), ylim=(-3.2, 3.2)),
    )


@check_explorer("explore-cards", {"unit": "60: at “was”"})
def test_what_a_unit_of_the_trained_model_fires_at_and_writes():
    model, read, ids = own_model().double(), [], []
    part = model.layers[1].ffn.sublayer
    hook = part.register_forward_pre_hook(lambda _, x: read.append(x[0][0]))
    with torch.no_grad():
        for story in held_out(60):
            ids += encode(story.words)
            model(torch.tensor([encode(story.words)]))
    hook.remove()
    x = torch.cat(read)
    gate = x @ part.w_gate.weight[60].detach()
    activity = (gate * torch.sigmoid(gate) * (x @ part.w_up.weight[60].detach())).numpy()
    means = {}
    for word in range(len(VOCABULARY)):
        at = np.array(ids) == word
        if at.sum() >= 20:
            means[VOCABULARY[word]] = activity[at].mean()
    sign = np.sign(sum(means.values()))
    scores = sign * (model.embed.weight @ part.w_down.weight[:, 60]).detach().numpy()
    at = sorted(((sign * v, w) for w, v in means.items()), reverse=True)[:6]
    top = sorted(zip(scores, VOCABULARY, strict=True), reverse=True)[:6]

    def listed(title, found, role):
        shapes = {}
        for row, (value, word) in enumerate(found):
            shapes[f"word {row}"] = Text(-0.1, 6.3 - row, word)
            shapes[f"bar {row}"] = Box(
                0, 6 - row, max(1.6 * value / found[0][0], 0.01), 0.6, role=role, fill=0.6
            )
            shapes[f"value {row}"] = Text(1.66, 6.3 - row, f"{value:.2f}")
        return Scene(title, shapes, xlim=(-1.2, 2.2), ylim=(0.8, 6.8))

    return Seen(
        says(
            f"Unit {{}} fires at “was”, with {{}} on average, and next at “{at[1][1]}”, with {{}}. "
            f"It writes “{top[0][1]}”, “{top[1][1]}”, “{top[2][1]}”",
            *(60, at[0][0], at[1][0]),
        ),
        listed("fires at, on average", at, "data"),
        listed("writes, added to the score", top, "value"),
    )
