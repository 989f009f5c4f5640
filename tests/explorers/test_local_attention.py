"""The explorers of chapter 21: masks walked pair by pair, and sums over keys in a loop."""

import math

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from book.explorer import Arrow, Bars, Box, Cell, Grid, Lines, Scene, Text

from .reading import Seen, check_explorer, says


def attended(q, k, v, keys):
    """The output of one query over these keys, by a loop."""
    powers = [math.exp(float(q @ k[j]) / math.sqrt(len(q))) for j in keys]
    return sum(p * v[j] for p, j in zip(powers, keys, strict=True)) / sum(powers)


def twelve():
    return torch.randn(3, 12, 8, generator=torch.Generator().manual_seed(3)).numpy()


TWELVE = [str(i) for i in range(12)]


def marks(scores, outputs):
    """Cells for the scores, {(query, key): (mark, fill)}, and for the outputs."""
    shapes = {
        f"{i}, {j}": Cell(i, j, mark, fill=fill, role="weight")
        for (i, j), (mark, fill) in scores.items()
    }
    for i, (mark, fill) in enumerate(outputs):
        shapes[f"output {i}"] = Cell(i, 12.8, mark, fill=fill, role="value")
    return Scene("scores", shapes, xlim=(-2.4, 14.6), ylim=(-15.1, 1.7))


def differences(off):
    title = "how far each output is from full attention"
    return Bars(title, TWELVE, {"difference": off}, "query", "largest difference", (0, 2))


@check_explorer("two-answers", {"computed": "a window of 4", "step of the work": "5"})
def test_ten_queries_of_a_window():
    q, k, v = twelve()
    picture, off = {}, np.full(12, math.nan)
    computed = dropped = 0
    for query in range(12):
        for key in range(query + 1):
            near = query - key < 4
            ready = query < 10
            picture[query, key] = ("✗", 0.1) if not near else ("■", 1.0) if ready else (" ", 0.0)
            computed += ready and near
            dropped += ready and not near
        if query < 10:
            near = attended(q[query], k, v, range(max(0, query - 3), query + 1))
            off[query] = np.abs(near - attended(q[query], k, v, range(query + 1))).max()
    return Seen(
        says(
            "A window of {}, step {} of {}: {} of {} scores are computed, {} of them are in memory "
            "now. {} outputs are ready. Of their scores {} were dropped; these outputs differ from "
            "those of full attention by up to {}",
            *(4, 5, 6, int(computed), 78, int(computed), 10, int(dropped), np.nanmax(off)),
        ),
        marks(picture, [("✓", 0.5)] * 10 + [(" ", 0.0)] * 2),
        differences(off),
    )


@check_explorer("two-answers", {"computed": "tiles of 4", "step of the work": "5"})
def test_five_tiles():
    picture, off = {}, np.full(12, math.nan)
    walk = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    computed = held = 0
    for query in range(12):
        for key in range(query + 1):
            tile = query // 4, key // 4
            gone = ("·", 0.4) if tile in walk else (" ", 0.0)
            picture[query, key] = ("■", 1.0) if tile == walk[-1] else gone
            computed += tile in walk
            held += tile == walk[-1]
    off[:8] = 0.0  # the rows of which all tiles are done
    return Seen(
        says(
            "Tiles of {}, step {} of {}: {} of {} scores are computed, {} of them are in memory "
            "now. {} outputs are ready. Of their scores {} were dropped; these outputs differ from "
            "those of full attention by up to {}",
            *(4, 5, 6, computed, 78, held, 8, 0, 0.0),
        ),
        marks(picture, [("✓", 0.5)] * 8 + [("…", 0.2)] * 4),
        differences(off),
    )


@check_explorer("tiles-by-hand", {"step": "a larger score"})
def test_what_the_first_tile_is_once_it_is_measured_from_two():
    cells = np.full((5, 4), math.nan)
    cells[0] = 1, 1 + math.exp(-1), 0, 10  # the scores 1 and 0, the values (0, 10) and (0, 0)
    cells[1] = 2, math.exp(-1) + math.exp(-2), 0, 10 * math.exp(-1)
    # The keys 1 and 2 are overwritten; key 3, with score 2 and value (10, 0), is on the chip.
    shapes = {
        f"{row}, {j}": Cell(row, j, text, fill=fill, role="value" if row else "weight")
        for row, told in enumerate(["2", "10", "0"])
        for j, (text, fill) in enumerate([("·", 0.0), ("·", 0.0), (told, 0.5)])
    }
    return Seen(
        says(
            "The second tile brings the score {}. What was measured from {} is now measured from "
            "{}: sum and output shrink by {}",
            *(2, 1, 2, math.exp(-1)),
        ),
        Scene("what is on the chip", shapes, xlim=(-3.6, 3.2), ylim=(-4.1, 1.5)),
        Grid(
            "what is carried along",
            cells,
            ["first tile", "measured from 2", "second tile", "together", "o / z"],
            ["m", "z", "o, first", "o, second"],
            text=lambda x: str(round(x, 3)).removesuffix(".0"),
            limits=(0, 10),
            empty="·",
        ),
    )


@check_explorer(
    "cone",
    {"layers": "chunks, each third layer full", "tokens in a window or chunk": "5"}
    | {"number of layers": "4"},
)
def test_a_full_layer_between_chunks():
    noise = torch.Generator().manual_seed(10)
    x = torch.randn(12, 8, generator=noise)
    weights = torch.randn(5, 3, 8, 8, generator=noise) / 8**0.5
    look = torch.randn(8, generator=noise)

    def sees(layer, query):
        """The keys of a query; the third layer is full, chunks begin at 0, 5 and 10."""
        return range(query + 1) if layer == 3 else range(5 * (query // 5), query + 1)

    needed = [{11}]
    for layer in (4, 3, 2, 1):
        needed.append({j for i in needed[-1] for j in sees(layer, i)})
    shapes = {}
    for row, layer in enumerate([5, 4, 3, 2, 1, 0]):
        there = layer < 5
        title = f"layer {layer}" if layer else "input"
        shapes[title] = Text(-0.3, -row - 0.5, title, anchor="end", shown=there)
        for j in range(12):
            used = there and j in needed[row - 1]
            mark, fill = ("■", 0.8) if used else (" ", 0.0)
            shapes[f"{layer}, {j}"] = Cell(row, j, mark, fill=fill, role="key", shown=there)

    x.requires_grad_()
    stream = x
    for layer in range(1, 5):
        w_q, w_k, w_v = weights[layer - 1]
        q, k, v = stream @ w_q, stream @ w_k, stream @ w_v
        rows = []
        for i in range(12):
            keys = torch.tensor(list(sees(layer, i)))
            scores = q[i] @ k[keys].T / math.sqrt(8)
            rows.append(torch.exp(scores - scores.logsumexp(0)) @ v[keys])
        stream = stream + torch.stack(rows)
    (stream[11] @ look).backward()
    size = x.grad.square().sum(1)
    share = (size / size.sum()).numpy()
    return Seen(
        says(
            "Chunks of {}, each third layer full, {} layers: the last output depends on {} of {} "
            "tokens. Those farther back than {} have {} of its squared gradient",
            *(5, 4, len(needed[-1]), 12, 4, float(share[:7].sum())),
        ),
        Scene("what the last output depends on", shapes, xlim=(-2.9, 12.1), ylim=(-6.8, 0.1)),
        Lines(
            "share of the squared gradient",
            range(12),
            {"share": np.where(share > 0, share, math.nan)},
            "token",
            "share",
            yscale="log",
            ylim=(1e-9, 1),
        ),
    )


@check_explorer("sink-explorer", {"scores of the keys": "2, 1, 0", "logit of the sink": "2"})
def test_a_sink_as_strong_as_the_best_key():
    powers = [math.exp(s) for s in (2, 1, 0)]
    plain = [p / sum(powers) for p in powers]
    weights = [p / (sum(powers) + math.exp(2)) for p in powers]
    rest = 1 - sum(weights)
    return Seen(
        says(
            "Scores {}, {}, {} and a sink of {}: the keys get {} of the weight. The output is ({}, "
            "{}); without a sink it would be ({}, {})",
            *(2, 1, 0, 2, sum(weights), 10 * weights[0], 10 * weights[1]),
            *(10 * plain[0], 10 * plain[1]),
        ),
        Bars(
            "where the weight goes",
            ["key 1", "key 2", "key 3", "sink"],
            {"with a sink": [*weights, rest], "without": [*plain, 0.0]},
            "key",
            "weight",
            (0, 1),
        ),
    )


X = {"Q": 0.8, "K": 3.4, "V": 6, "S": 8.7, "O": 17.6}
ROLE = {"Q": "query", "K": "key", "V": "value", "S": "weight", "O": "data"}
QUARTERS = ("S11", "S12", "S21", "S22")
STRIPS = [name + half for name in "QKVO" for half in "12"]


def two_memories(loaded, stored, on_chip, outputs, table):
    """What is moved {name: numbers}, the parts that move, and what lies where."""
    moving = {p for p in STRIPS if p in (loaded | stored)}
    shapes = {
        "table": Box(
            8.7, 0.8, 8, 8, table or "no table", role="weight", fill=0.5 if table else 0, dash=True
        )
    }
    for p in (*STRIPS, *QUARTERS):
        x = X[p[0]] + (4 if p in ("S12", "S22") else 0)
        drop = 8 if p[1] == "2" else 4
        if p in STRIPS:
            full = p[0] != "O" or p in outputs
            shapes[f"kept {p}"] = Box(
                x, 8.8 - drop, 1.8, 4, p, role=ROLE[p[0]], strong=p in moving, fill=0.5 * full
            )
        wide = 1.8 if p in STRIPS else 4
        shapes[f"made {p}"] = Box(
            x, -2.9 - drop, wide, 4, p, role=ROLE[p[0]], fill=0.5, shown=p in on_chip
        )
    for name, x in X.items():
        middle = x + (3 if name == "S" else 0.5)
        down = sum(n for p, n in loaded.items() if p[0] == name)
        up = sum(n for p, n in stored.items() if p[0] == name)
        shapes[f"load {name}"] = Arrow(middle, -0.1, middle, -2.1, shown=bool(down), strong=True)
        shapes[f"store {name}"] = Arrow(middle, -2.1, middle, -0.1, shown=bool(up), strong=True)
        shapes[f"moved {name}"] = Text(
            middle + 0.6, -1.1, str(down + up), anchor="start", shown=bool(down + up)
        )
    return Scene("8 queries, 8 keys, 2 features", shapes, xlim=(-0.3, 20.5), ylim=(-12.9, 10.7))


def moved_bars(written, tiled):
    return Bars(
        "numbers moved so far",
        ["written down", "in tiles"],
        {"numbers": [written, tiled]},
        "scores",
        "numbers",
        (0, 340),
    )


def moved_in_tiles(steps):
    """Numbers moved in so many steps of tiles of 4, three steps for each block of queries."""
    q, k, v = torch.randn(3, 8, 2)
    each = []
    for rows in q.split(4):
        for number, (keys, values) in enumerate(zip(k.split(4), v.split(4), strict=True)):
            each.append(keys.numel() + values.numel() + (rows.numel() if number == 0 else 0))
        each.append(rows.numel() + len(rows))  # the output, and a log-sum-exp for each query
    return sum(each[:steps])


@check_explorer("flow", {"scores": "written down", "step": "3"})
def test_three_steps_with_the_table_written_down():
    q, k = torch.randn(2, 8, 2)
    scores = q @ k.T
    moved = sum(t.numel() for t in (q, k, scores, scores))
    table = dict.fromkeys(QUARTERS, 16)
    return Seen(
        says(
            "Written down, step {}: loads the scores, makes weights. {} numbers loaded, {} stored, "
            "{} moved so far; {} scores or weights lie in the large memory",
            *(3, scores.numel(), 0, moved, scores.numel()),
        ),
        two_memories(table, {}, QUARTERS, (), "scores"),
        moved_bars(moved, moved_in_tiles(3)),
    )


@check_explorer("flow", {"scores": "in tiles", "step": "6"})
def test_six_steps_in_tiles():
    q, k, v = torch.randn(3, 8, 2)
    scores, out = q @ k.T, q
    plain = sum(t.numel() for t in (q, k, *[scores] * 4, v, out))
    moved = moved_in_tiles(6)
    return Seen(
        says(
            "In tiles, step {}: stores {} outputs and log-sum-exps. {} numbers loaded, {} stored, "
            "{} moved so far; {} scores or weights lie in the large memory",
            *(6, 4, 0, 12, moved, 0),
        ),
        two_memories({}, {"O2": 12}, ["O2"], ["O1", "O2"], ""),
        moved_bars(plain, moved),
    )


@check_explorer(
    "bytes-explorer",
    {"tokens": "2,048", "queries and keys of a tile": "256", "features of a head": "64"},
)
def test_a_narrow_head_in_wide_tiles():
    tokens, block, head = 2048, 256, 64
    rows = torch.empty(tokens, head, dtype=torch.float16, device="meta")
    scores = torch.empty(tokens, tokens, dtype=torch.float16, device="meta")
    one = torch.empty(block, head, dtype=torch.float16, device="meta").nbytes
    plain = 4 * rows.nbytes + 4 * scores.nbytes
    sums = torch.empty(tokens, dtype=torch.float32, device="meta").nbytes  # log-sum-exps
    tiled_by = {}
    for queries in range(16, 257, 16):
        tiled_by[queries] = sums + 2 * rows.nbytes  # Q and O once
        for _ in range(0, tokens, queries):
            tiled_by[queries] += 2 * rows.nbytes  # K and V for each block
    tiled = tiled_by[block]
    # Q, K and V with two bytes a number; O, the tile, and two numbers for each query with four.
    chip = 3 * one + 2 * one + 4 * block * block + 2 * 4 * block
    assert chip > 228 * 2**10
    with FlopCounterMode(display=False) as counter:
        (rows @ rows.T) @ rows
    flops = counter.get_total_flops()
    return Seen(
        says(
            "{} tokens, {} features, tiles of {}: the plain way moves {} MiB, tiles move {} MiB, "
            "a ratio of {}: {} and {} FLOPs for each byte. Beside inputs and output the large "
            "memory keeps {} MiB of scores, or {} KiB of log-sum-exps. A tile takes {} KiB of the "
            "chip's {}: it does not fit",
            *(tokens, head, block, plain / 2**20, tiled / 2**20, plain / tiled),
            *(flops / plain, flops / tiled),
            *(scores.nbytes / 2**20, sums / 2**10, chip / 2**10, 228),
        ),
        Bars(
            "FLOPs for each byte moved",
            ["plain", "tiles", "ridge"],
            {"FLOPs": [flops / plain, flops / tiled, 989 / 3.35]},
            "way",
            "FLOPs per byte",
            (0, 320),
        ),
        Lines(
            "MiB moved, by the size of a tile",
            list(tiled_by),
            {
                "written down": [plain / 2**20] * 16,
                "in tiles": [moved / 2**20 for moved in tiled_by.values()],
                "Q, K, V and O once": [4 * rows.nbytes / 2**20] * 16,
                "the tile chosen": [math.nan] * 15 + [tiled / 2**20],
            },
            "queries of a tile",
            "MiB",
            yscale="log",
            ylim=(0.3, 1000),
        ),
    )


def shared(values_of, workers):
    """For each worker its x and width, its share and its output, by sums over its keys."""
    scores, values = values_of
    powers = [math.exp(s) for s in scores]
    each = len(powers) // workers
    found = []
    for worker in range(workers):
        mine = range(each * worker, each * (worker + 1))
        own = sum(powers[j] for j in mine)
        out = sum(powers[j] * values[j] for j in mine) / own
        found.append((each * worker, each, own / sum(powers), out))
    return found


@check_explorer("split-explorer", {"workers": "4"})
def test_four_workers_with_two_keys_each():
    scores, values = [1, 0, 2, -1, 3, 0, 1, 2], [4, 0, 8, 2, 10, 6, 0, 4]
    told = shared((scores, values), 4)
    ((_, _, _, merged),) = shared((scores, values), 1)
    shapes = {}
    for j in range(8):
        shapes[f"score {j}"] = Cell(0, j, str(scores[j]).replace("-", "−"), fill=0.3, role="key")
        shapes[f"value {j}"] = Cell(1, j, str(values[j]), fill=0.3, role="value")
    for r, (first, each, share, out) in enumerate([*told, *4 * told[-1:]]):
        x, wide, there = first + 0.04, each - 0.08, r < 4
        shapes[f"worker {r}"] = Box(x, -3.3, wide, 1, str(r + 1), role="quiet", shown=there)
        shapes[f"share {r}"] = Box(
            *(x, -4.4, wide, 1, f"{share:.2f}".lstrip("0")), role="weight", fill=share, shown=there
        )
        shapes[f"output {r}"] = Box(
            x, -5.5, wide, 1, f"{out:.1f}", role="value", fill=0.3, shown=there
        )
    added = [share * out for _, _, share, out in told] + [math.nan] * 4
    return Seen(
        says(
            "{} workers with {} keys each. Worker {} reports {} and has the largest share, {}. The "
            "outputs, times their shares, add up to {}; one softmax over all keys gives {}",
            *(4, 2, 3, told[2][3], told[2][2], merged, merged),
        ),
        Scene("who reads and reports what", shapes, xlim=(-1.9, 8.1), ylim=(-5.7, 1)),
        Bars(
            "share times output",
            [str(n) for n in range(1, 9)],
            {"added": added},
            "worker",
            "added to the output",
            (0, 8),
        ),
    )


@check_explorer("begun-explorer", {"mask": "a window of 8 tokens"})
def test_the_tiles_of_a_band():
    cells = np.zeros((8, 8))
    for query in range(32):
        for key in range(max(0, query - 7), query + 1):
            cells[query // 4, key // 4] += 1
    begun, whole = int((cells > 0).sum()), int((cells == 16).sum())
    blocks = [str(n) for n in range(8)]
    return Seen(
        says(
            "Mask: a window of {} tokens. {} of {} tiles are begun, and {} of these need a mask "
            "inside. {} of {} scores are used",
            *(8, begun, 64, begun - whole, int(cells.sum()), 1024),
        ),
        Grid(
            "scores used in each tile of 4 by 4",
            cells,
            blocks,
            blocks,
            text=lambda x: f"{x:g}" if x else "",
            xlabel="block of keys",
            ylabel="block of queries",
            limits=(0, 16),
        ),
    )
