"""The explorers of chapter 7: widths in whole numbers and fractions, gates by their formulas."""

import math
from fractions import Fraction

import numpy as np
import torch

from book.explorer import Arrow, Box, Circle, Curve, Dot, Heat, Lines, Scene, Segment, Text
from book.own import encode, own_model
from book.own.measure import held_out
from book.stories import VOCABULARY

from .reading import Seen, check_explorer, says


def llama_width(d_model, multiple, factor=Fraction(1)):
    """Two thirds of 4 d_model, times the factor, each cut to a whole number, and rounded up."""
    width = math.floor(factor * (8 * d_model // 3))
    return next(n for n in range(multiple, 10**6, multiple) if n >= width)


def corners(d_model, multiple):
    """Where the rounded width steps up between 0.5 and 2, found factor by factor of 1 / 2h."""
    whole = 8 * d_model // 3  # h: the product with a factor is cut to a whole number
    xs, ys = [0.5], [llama_width(d_model, multiple, Fraction(1, 2)) / d_model]
    for step in range(whole // 2 + 1, 2 * whole):
        width = llama_width(d_model, multiple, Fraction(step, whole)) / d_model
        if width != ys[-1]:
            xs += [step / whole, step / whole]
            ys += [ys[-1], width]
    rest = 130 - len(xs)
    return xs + [2.0] * rest, ys + ys[-1:] * rest


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
        Scene(
            "hidden width before and after rounding",
            {
                "before": Segment(0.5, 4 / 3, 2, 16 / 3, dash=True),
                "after": Curve(*corners(8192, 4096), role="data"),
                "this one": Dot(0.85, width / 8192, role="query", strong=True),
                "told": Text(2.05, 1.0, "dashed: before rounding"),
            },
            xlim=(0.4, 2.1),
            ylim=(0, 6),
            axes="box",
            xlabel="factor",
            ylabel="d_ff / d_model",
        ),
    )


@check_explorer("explore-gate", {"function on the gate": "GELU (GEGLU)", "value u": "−2"})
def test_what_gelu_lets_through_of_minus_two():
    gate = np.arange(-32, 33) / 8
    share = np.array([(1 + math.erf(g / math.sqrt(2))) / 2 for g in gate])
    slope = share + gate * np.exp(-(gate**2) / 2) / math.sqrt(2 * math.pi)
    through = gate * share * -2
    surface = np.array([[g * s * u for g, s in zip(gate, share, strict=True)] for u in gate[::-1]])
    beside = np.full((17, 2), np.nan)
    beside[12, 0] = 8.0  # -2 is the thirteenth value from above
    return Seen(
        says(
            "GELU (GEGLU), value {}: a gate of {} lets {} through, a gate of {} lets {} through",
            *(-2, -2, through[16], 2, through[48]),
        ),
        Heat(
            "φ(g)·u, cut off at ±8",
            np.hstack([beside, surface[::4, ::4]]),
            "gate g",
            "value u",
            limits=(-8, 8),
            diverging=True,
            rows=["4", "", "", "", "2", "", "", "", "0", "", "", "", "−2", "", "", "", "−4"],
            columns=[
                "",
                "",
                "−4",
                "",
                "",
                "",
                "−2",
                "",
                "",
                "",
                "0",
                "",
                "",
                "",
                "2",
                "",
                "",
                "",
                "4",
            ],
        ),
        Lines(
            "along the chosen value",
            gate,
            {"φ(g)·u": through, "its derivative by g": -2 * slope},
            "gate g",
            "result",
        ),
    )


@check_explorer("explore-units", {"token, to the right": "−0.75", "token, upwards": "1"})
def test_one_unit_of_three_fires():
    x, y = -0.75, 1.0
    fires = [max(0.0, x), max(0.0, -0.6 * x + 0.8 * y), max(0.0, -y)]
    directions = [(1.0, 0.0), (-0.6, 0.8), (0.0, -1.0)]
    writes = [(0.0, 1.2), (1.2, 0.0), (-0.8, -0.8)]
    names = [(0.6, -0.125), (-0.62, 0.375), (0.22, -0.625)]
    aside = np.array([[0.18, 0.0], [0.0, 0.18], [0.15, -0.15]])
    along = (0.5, 0.3, 0.5)
    read, wrote = {}, {}
    at = np.array([x, y])
    for k, role in enumerate(("query", "key", "value")):
        end = at + fires[k] * np.array(writes[k])
        on = fires[k] > 0
        read[f"fires {k}"] = Arrow(0, 0, *directions[k], role=role, faint=not on)
        foot = fires[k] * np.array(directions[k])
        read[f"foot {k}"] = Segment(x, y, *foot, role=role, dash=True, shown=on)
        read[f"name {k}"] = Text(*names[k], f"unit {k + 1}", role=role)
        wrote[f"whole {k}"] = Arrow(0, 0, *writes[k], role=role, dash=True)
        wrote[f"writes {k}"] = Arrow(*at, *end, role=role, shown=on)
        beside = at + along[k] * (end - at) + aside[k]
        wrote[f"name {k}"] = Text(*beside, f"{k + 1}", role=role, shown=on)
        at = end
    read["token"] = Dot(x, y, role="data", strong=True)
    wrote["token"] = Dot(x, y, role="data", strong=True)
    wrote["new token"] = Circle(*at, 0.1, role="data")
    return Seen(
        says(
            "The token is ({}, {}): unit 2 fires with {}. The layer writes ({}, {}), and the token "
            "becomes ({}, {})",
            *(x, y, fires[1], *(at - (x, y)), *at),
        ),
        Scene(
            "● token, and what the units fire on",
            read,
            xlim=(-1.2, 1.2),
            ylim=(-1.3, 1.3),
            axes="box",
        ),
        Scene(
            "● token + what they write = ○", wrote, xlim=(-2.0, 1.5), ylim=(-2.0, 2.4), axes="box"
        ),
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
    arrow = model.norm.weight * part.w_down.weight[:, 60]
    scores = sign * (model.embed.weight @ arrow).detach().numpy()
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
            f"It pushes “{top[0][1]}” most, by {{}} per {{}} of firing, then “{top[1][1]}”",
            *(60, at[0][0], at[1][0], top[0][0], 1),
        ),
        listed("fires at, on average", at, "data"),
        listed("pushes, per 1 of firing", top, "value"),
    )


@check_explorer(
    "explore-both", {"layer": "gated, SiLU", "first feature": "−1", "second feature": "2"}
)
def test_a_token_in_a_gated_layer_of_three_units():
    x = (-1, 2)
    ups, gates = [(1, 1), (-1, 1), (1, -1)], [(1, 0), (1, -2), (0, 1)]
    downs = [(1, 0), (0, 1), (1, 1)]
    u, g = ([a * x[0] + b * x[1] for a, b in units] for units in (ups, gates))
    h = [value * gate / (1 + math.exp(-gate)) for value, gate in zip(u, g, strict=True)]
    y = [sum(fires * row[j] for fires, row in zip(h, downs, strict=True)) for j in range(2)]
    left = {"x": 4.5, "g": 0.3, "u": 7.1, "h": 3.7, "y": 4.5}
    low = {"x": 7.2, "g": 4.6, "u": 4.6, "h": 2.2, "y": 0.0}
    shapes = {}

    def wire(one, i, other, j):
        shapes[f"{one}{i} {other}{j}"] = Segment(
            left[one] + 1.6 * i + 0.75,
            low[one],
            left[other] + 1.6 * j + 0.75,
            low[other] + 0.8,
            role="quiet",
            faint=True,
        )

    for i in range(3):
        for j in range(2):
            wire("x", j, "g", i)
            wire("x", j, "u", i)
            wire("h", i, "y", j)
        wire("g", i, "h", i)
        wire("u", i, "h", i)
    roles = {"x": "data", "g": "key", "u": "query", "h": "weight", "y": "value"}
    for (name, role), numbers in zip(roles.items(), (x, g, u, h, y), strict=True):
        for k, number in enumerate(numbers):
            at = left[name] + 1.6 * k
            shapes[f"box {name}{k}"] = Box(at, low[name], 1.5, 0.8, role=role, fill=0.25)
            shown = f"{number:.2f}".replace("-", "−")
            shapes[f"{name}{k}"] = Text(at + 0.75, low[name] + 0.4, shown)
    shapes["token"] = Text(4.2, 7.6, "token x")
    shapes["gate"] = Text(0.3, 6.4, "gate g")
    shapes["value"] = Text(11.8, 6.4, "value u")
    shapes["hidden"] = Text(3.4, 2.6, "SiLU(g) · u")
    shapes["out"] = Text(4.2, 0.4, "written")
    return Seen(
        says(
            "Token ({}, {}), gated, SiLU: SiLU of the gates {}, {}, {} times the values "
            "{}, {}, {} is {}, {}, {}. The layer writes ({}, {})",
            *(*x, *g, *u, *h, *y),
        ),
        Scene("a token on its way through the layer", shapes, xlim=(0, 12.1), ylim=(-0.3, 8.3)),
    )
