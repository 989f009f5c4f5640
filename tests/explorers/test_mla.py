"""The explorers of chapter 14: rotation by complex numbers, work by torch's counter."""

from dataclasses import replace

import numpy as np
import torch

from book.diagram.trace import trace
from book.diagram.view import look
from book.explorer import Arrow, Box, Curve, Dot, Heat, Polygon, Scene, Segment, Text

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
    torch.manual_seed(35)
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
    axes = {"limits": (-3.5, 3.5), "diverging": True}
    # The latent lies rotated in the cache, so the query may be projected instead: no difference.
    return Seen(
        says(
            "Rotated: the latent, before the up-projection, at {} times ... vary by {} with "
            "position; at one and the same distance by {}. The absorbed form is off by up to {}",
            *(0.5, np.ptp(scores), uneven, 0.0),
        ),
        Heat(
            "scores with keys, minus that at (0, 0)",
            shown,
            "key position",
            "query position",
            **axes,
        ),
        Heat(
            "absorbed scores, minus the same number",
            shown,
            "key position",
            "query position",
            **axes,
        ),
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
    numbers = {
        "MHA": ([h * (head + head) for h in all_heads], "query"),
        "GQA-8": ([8 * (head + head)] * 4, "value"),
        "MQA": ([head + head] * 4, "weight"),
        "MLA": ([cached] * 4, "key"),
    }
    shapes = {}
    for name, (row, role) in numbers.items():
        mine, x, heights = name == "MLA", np.log2(all_heads), np.log2(row)
        shapes[name] = Curve(x, heights, role=role, strong=mine)
        at = (4.2, heights[0] + 0.45) if mine else (7.1, heights[-1])
        shapes[f"name of {name}"] = Text(*at, name, role=role, anchor="start")
    shapes["now"] = Dot(np.log2(heads), np.log2(cached), role="key")
    columns = {}
    for x, (name, high) in enumerate(
        {"MHA": mha, "GQA-8": grouped, "MQA": single, "MLA": absorbed / (2 * cached)}.items()
    ):
        role = numbers[name][1]
        columns[f"column of {name}"] = Box(x + 0.15, 0, 0.7, high, role=role, fill=0.6)
        columns[f"number of {name}"] = Text(x + 0.5, high + 14, str(round(high)))
    ridge = 989 / 3.35  # an H100's TFLOP/s over its TB/s
    columns["ridge"] = Segment(0, ridge, 4, ridge, role="ink", dash=True)
    columns["name of the ridge"] = Text(0.1, ridge + 16, "H100: 295", anchor="start")
    return Seen(
        says(
            "Latent {}, shared key {}, {} heads of {}: {} numbers ... {} of MHA's ... {} GQA "
            "groups ... {} times the work of ready keys ... {} FLOPs per byte",
            *(latent, rotated, heads, head, cached),
            *(cached / (heads * head * 2), cached / (2 * head)),
            *(absorbed / ready, absorbed / (2 * cached)),
        ),
        Scene(
            "numbers cached per token and layer",
            shapes,
            xlim=(3.8, 8.3),
            ylim=(5.5, 15.5),
            xlabel="query heads",
            ylabel="numbers",
            axes="box",
            xticks=[(np.log2(h), str(h)) for h in all_heads],
            yticks=[(6, "64"), (8, "256"), (10, "1k"), (12, "4k"), (14, "16k")],
        ),
        Scene(
            "FLOPs per byte of cache, 16 bits",
            columns,
            xlim=(0, 4),
            ylim=(0, 330),
            xlabel="attention, MLA in the absorbed form",
            ylabel="FLOPs per byte",
            axes="box",
            xticks=[(0.5, "MHA"), (1.5, "GQA-8"), (2.5, "MQA"), (3.5, "MLA")],
        ),
    )


def parts_counted(new, total):
    """DeepSeek-V2: projections, then scores and means, in the naive and the absorbed form."""
    # Heads, features of a head without and with rotation, of a value, of the latent.
    h, d_h, d_r, d_v, d_c = 128, 128, 64, 128, 512
    naive = [
        counted(((total, d_c), (d_c, h * (d_h + d_v)))),
        counted(((h, new, d_h + d_r), (h, d_h + d_r, total)), ((h, new, total), (h, total, d_v))),
    ]
    absorbed = [
        counted(((h, new, d_h), (h, d_h, d_c)), ((h, new, d_c), (h, d_c, d_v))),
        counted(((h * new, d_c + d_r), (d_c + d_r, total)), ((h * new, total), (total, d_c))),
    ]
    return naive, absorbed


@check_explorer("explore-chunk", {"new tokens": "256", "tokens in the cache before": "1024"})
def test_the_work_of_the_two_forms_as_torch_counts_it():
    ratios = {}
    for k in range(13):
        one, other = parts_counted(2**k, 2**k + 1024)
        ratios[2**k] = sum(other) / sum(one)
    naive, absorbed = parts_counted(256, 256 + 1024)
    assert ratios[256] > 1
    # Halved again and again: where the two forms cost the same.
    low, high = 64.0, 256.0
    for _ in range(60):
        middle = (low + high) / 2
        up, wider = 512 * (128 + 128), 2 * 512 - 128 - 128
        cheaper = middle * (1024 + middle) * wider < 1024 * up
        low, high = (middle, high) if cheaper else (low, middle)
    x = np.log2(low)
    curve = Curve(range(13), np.log2(list(ratios.values())), role="data", strong=True)
    ratio = {
        "as much": Segment(0, 0, 12, 0, role="ink", dash=True),
        "above": Text(0.2, 1.3, "naive is cheaper", anchor="start", role="query"),
        "below": Text(11.9, -3, "absorbed\nis cheaper", anchor="end", role="key"),
        "ratio": curve,
        "even": Segment(x, -7.5, x, 0, role="ink", dash=True),
        "even at": Text(x + 0.2, -6.9, f"T = {round(low)}", anchor="start"),
        "now": Dot(8, np.log2(ratios[256]), role="data"),
    }
    parts = {
        "swatch of scores": Box(0.2, 139, 0.16, 9, role="weight", fill=0.6),
        "name of scores": Text(0.45, 143.5, "scores and means", anchor="start"),
        "swatch of projections": Box(0.2, 124, 0.16, 9, role="value", fill=0.6),
        "name of projections": Text(0.45, 128.5, "projections", anchor="start"),
    }
    dearer = max(sum(naive), sum(absorbed))
    for x, name, (first, second) in ((0.5, "naive", naive), (2.1, "absorbed", absorbed)):
        first, second = 100 * first / dearer, 100 * second / dearer
        parts[f"projections, {name}"] = Box(x, 0, 1, first, role="value", fill=0.6)
        parts[f"scores, {name}"] = Box(x, first, 1, second, role="weight", fill=0.6)
        parts[f"total, {name}"] = Text(x + 0.5, first + second + 6, str(round(first + second)))
    return Seen(
        says(
            "New tokens: {}, after {} in the cache. The absorbed form does {} times the work of "
            "the naive one, so the layer takes the naive form. Both cost the same at {} new tokens",
            *(256, 1024, ratios[256], low),
        ),
        Scene(
            "work of the absorbed form / of the naive",
            ratio,
            xlim=(-0.4, 12.4),
            ylim=(-7.5, 2.4),
            xlabel="new tokens T",
            ylabel="ratio",
            axes="box",
            xticks=[(0, "1"), (3, "8"), (6, "64"), (9, "512"), (12, "4096")],
            yticks=[(-6, "1/64"), (-4, "1/16"), (-2, "1/4"), (0, "1"), (2, "4")],
        ),
        Scene(
            "work, in percent of the costlier form",
            parts,
            xlim=(0, 3.6),
            ylim=(0, 155),
            xlabel="form",
            ylabel="percent",
            axes="box",
            xticks=[(1, "naive"), (2.6, "absorbed")],
        ),
    )


@check_explorer(
    "hourglass", {"the up-projection": "on the query", "query": "(2, 1)", "key turned by": "90°"}
)
def test_a_turned_key_and_an_absorbed_query_disagree():
    latent, up, query = sum((1, 1, 2)), np.array([3.0, 1.0]), np.array([2.0, 1.0])
    key = latent * up
    turned = np.array([-key[1], key[0]])  # a quarter turn
    score, narrow = query @ turned, query @ up
    there = {"shown": False}  # the way over the key
    shapes = {
        "row": Box(0.4, -1.5, 3.2, 0.7, label="(1, 1, 2)", role="data", fill=0.2),
        "row of": Text(2, -1.8, "row of the token", role="data"),
        "narrowing": Polygon(
            [(0.4, -0.8), (1.6, 0.2), (2.4, 0.2), (3.6, -0.8)], role="ink", faint=True
        ),
        "narrowing matrix": Text(2, -0.4, "× (1, 1, 1)"),
        "latent": Box(1.4, 0.2, 1.2, 0.7, label="4", role="key", strong=True, fill=0.5),
        "stored": Text(1.2, 0.55, "stored", anchor="end", role="key"),
        "up-projection of the key": Polygon(
            [(1.6, 0.9), (0.4, 1.9), (3.6, 1.9), (2.4, 0.9)], role="ink", faint=True, **there
        ),
        "its matrix": Text(2, 1.45, "× (3, 1)", **there),
        "unturned": Box(0.4, 1.9, 3.2, 0.7, label="(12, 4)", role="key", fill=0.1, **there),
        "turn": Box(0.8, 2.6, 2.4, 0.9, label="turn by 90°", fill=0.05, **there),
        "key": Box(0.4, 3.5, 3.2, 0.7, label="(−4, 12)", role="key", fill=0.2, dash=True, **there),
        "made": Text(2, 4.45, "key, for this score only", role="key", **there),
        "query": Box(5.9, 3.5, 2.8, 0.7, label="(2, 1)", role="query", fill=0.3),
        "asked": Text(7.3, 4.45, "query", role="query"),
        "up-projection of the query": Polygon(
            [(6.9, 0.9), (5.9, 3.5), (8.7, 3.5), (7.7, 0.9)], role="ink", faint=True
        ),
        "the same matrix": Text(7.3, 2.4, "× (3, 1)"),
        "absorbed query": Box(6.7, 0.2, 1.2, 0.7, label="7", role="query", fill=0.3),
        "absorbed": Text(7.3, -0.1, "absorbed query", role="query"),
        "compared wide": Segment(3.6, 3.85, 5.9, 3.85, role="weight", strong=True, **there),
        "compared narrow": Segment(2.6, 0.55, 6.7, 0.55, role="weight", strong=True),
        "score above": Text(4.75, 4.1, "score 4", role="weight", **there),
        "score below": Text(4.65, 0.9, "score 28", role="weight"),
        "struck": Segment(3.85, 0.88, 5.45, 0.88, role="bad"),
        "right score": Text(4.65, 1.35, "turned key: 4", role="bad"),
    }
    assert (score, narrow) == (4, 7)
    return Seen(
        says(
            "The up-projection stands on the query: ({}, {}) times ({}, {}) is {}, the "
            "absorbed query; {} times {} is {}. That is wrong: the score of the key turned by "
            "{}° is {}. An absorbed query of {} would give it",
            *(2, 1, 3, 1, int(narrow), int(narrow), int(latent), int(narrow * latent)),
            *(90, int(score), int(score / latent)),
        ),
        Scene("", shapes, xlim=(0, 9.2), ylim=(-2.1, 4.8)),
    )


class Named(torch.nn.Module):
    """A part with a name, whose output has a shape that is given."""

    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, *given):
        return sum(t.sum() for t in given) * torch.ones(self.shape)


class Layer(torch.nn.Module):
    """Equations 37 to 47 as a flow of shapes: 5 tokens of 40, 3 heads."""

    def __init__(self, absorbed):
        super().__init__()
        shapes = {
            "query latent": (5, 10), "queries": (3, 5, 8), "q rotated": (3, 5, 4),
            "latent": (5, 12), "k rotated": (5, 4), "keys": (3, 5, 8), "values": (3, 5, 6),
            "absorb": (3, 5, 12), "attention": (3, 5, 12 if absorbed else 6),
            "mean values": (3, 5, 6), "project": (5, 40),
        }  # fmt: skip
        self.absorbed = absorbed
        for name, shape in shapes.items():
            self.add_module(name, Named(*shape))

    def forward(self, x):
        part = self._modules
        c_q, c, k_r = (part[name](x) for name in ("query latent", "latent", "k rotated"))
        q, q_r = part["queries"](c_q), part["q rotated"](c_q)
        if self.absorbed:
            o = part["attention"](part["absorb"](q), q_r, c, k_r, c)
            return part["project"](part["mean values"](o))
        return part["project"](part["attention"](q, q_r, part["keys"](c), k_r, part["values"](c)))


# Middle, width, row and matrix of each box.
PLACES = {
    "x": (164, 318, 0), "query latent": (76, 134, 1, "W_DQ, norm"),
    "latent": (195, 92, 1, "W_DKV, norm"), "k rotated": (284, 78, 1, "W_KR"),
    "queries": (41, 66, 2, "W_UQ"), "q rotated": (113, 66, 2, "W_QR"), "keys": (174, 50, 2, "W_UK"),
    "values": (229, 52, 2, "W_UV"), "absorb": (41, 66, 3, "W_UKᵀ"),
    "attention": (164, 318, 4, "softmax"), "mean values": (164, 120, 5, "W_UV"),
    "project": (164, 120, 6, "W_O"), "y": (164, 120, 7),
}  # fmt: skip


def flow(absorbed):
    graph = trace(Layer(absorbed), {"x": torch.randn(5, 40)})
    view = look(graph, graph.root.number)
    names = {node.number: node.name or "y" for node in view.boxes}
    names |= {n: "y" for n, name in names.items() if name == "output"}
    shapes = {}
    for link in view.links:
        ends = [names[link.source], names[link.target]]
        (a, wide_a, row_a, *_), (b, wide_b, row_b, *_) = (PLACES[name] for name in ends)
        x = a if wide_a <= wide_b else b  # the middle of the narrower box
        shapes[" to ".join(["arrow " + ends[0], ends[1]])] = Arrow(
            x, 70 * row_a + 52, x, 70 * row_b, role="data"
        )
    roles = dict.fromkeys(("latent", "k rotated", "keys"), "key")
    roles |= dict.fromkeys(("mean values", "values"), "value")
    roles |= dict.fromkeys(("query latent", "queries", "q rotated", "absorb"), "query")
    for node in view.boxes:
        name = names[node.number]
        x, wide, row, *matrix = PLACES[name]
        cached, size = name in ("latent", "k rotated"), "×".join(map(str, node.output or ()))
        shapes[f"box {name}"] = Box(
            x - wide / 2, 70 * row, wide, 52, role=roles.get(name, "ink"), strong=cached,
            fill=0.45 if cached else 0.12, detail=f"{name}: {size}",
        )  # fmt: skip
        highest = 70 * row + 27 + 7.5 * (1 + len(matrix))
        for n, line in enumerate([name, *matrix, size]):
            role = "data" if n == 1 + len(matrix) else "ink"
            shapes[f"line {n} of {name}"] = Text(x, highest - 15 * n, line, role=role, small=True)
    if absorbed:
        shapes["twice"] = Text(203, 168, "as key and\nas value", anchor="start", small=True)
    return len(view.boxes), shapes


@check_explorer("flow", {"form": "absorbed"})
def test_the_absorbed_form_makes_no_keys():
    (_, naive), (boxes, shapes) = flow(False), flow(True)
    hidden = {name: replace(s, shown=False) for name, s in (naive | shapes).items()}
    return Seen(
        says(
            "The absorbed form, {} boxes: {} + {} numbers of each token are cached, and {} are "
            "made from every cached latent",
            *(boxes, 12, 4, 0),
        ),
        Scene("", hidden | shapes, xlim=(0, 328), ylim=(-4, 548)),
    )
