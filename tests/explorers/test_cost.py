"""The explorers of chapter 16: every product of a published model counted by hand."""

import math

import numpy as np
import torch

from book.explorer import Arrow, Bars, Box, Cell, Curve, Dot, Grid, Lines, Scene, Segment, Text

from .counting import counted
from .reading import Seen, check_explorer, says


def weights_of(layers, width, heads, kv_heads, hidden, vocabulary):
    """The weights of a Llama's matrix products, by what they do."""
    head = width // heads
    return {
        "projections": layers
        * (width * head * (heads + kv_heads + kv_heads) + heads * head * width),
        "feed-forward": layers * (width * hidden + width * hidden + hidden * width),
        "vocabulary": width * vocabulary,
    }


@check_explorer("dot", {"batch": "256", "tokens of context": "4,096"})
def test_a_batch_whose_caches_do_not_fit_on_the_device():
    batch, context, layers, heads, kv_heads, width = 256, 4096, 32, 32, 8, 128
    # Seven billion weights are a matrix of 10,000 by 700,000.
    linear = counted(((batch, 10_000), (10_000, 700_000)))
    scores = layers * counted(
        ((batch * heads, 1, width), (batch * heads, width, context)),
        ((batch * heads, 1, context), (batch * heads, context, width)),
    )
    weights = torch.empty(10_000, 700_000, dtype=torch.bfloat16, device="meta").nbytes
    shape = (2, layers, batch, kv_heads, context, width)
    caches = torch.empty(shape, dtype=torch.bfloat16, device="meta").nbytes
    peak, bandwidth, memory = 989e12, 3.35e12, 80e9  # NVIDIA's table of the H100 SXM
    read, fetched, worked = weights / bandwidth, caches / bandwidth, (linear + scores) / peak
    intensity = (linear + scores) / (weights + caches)
    assert read > linear / peak
    assert fetched > scores / peak  # both parts wait for memory, one after the other
    seconds = read + fetched
    assert weights + caches > memory

    corner, x = math.log10(peak / bandwidth), math.log10(intensity)
    top, y = math.log10(989), math.log10((linear + scores) / seconds / 1e12)
    unused = 1 - worked / seconds
    dot = {
        "roof": Curve([-0.3, corner, 3.7], [top - corner - 0.3, top, top]),
        "share": Text(x, top + 0.28, f"{unused:.1%} unused", role="bad"),
        "unused": Segment(x, y, x, top, dash=True, role="bad"),
        "batch": Dot(x, y, size=3, role="bad"),
        "name": Text(x + 0.15, y - 0.3, "batch 256", anchor="start"),
    }
    full = weights + caches  # the bar is as long as all that is to be kept
    own, limit = weights / full, memory / full
    assert limit < 0.7
    bars = {
        "moving": Text(
            0, 5.2, f"moving weights {1e3 * read:.1f} ms, caches {1e3 * fetched:.1f} ms",
            anchor="start",
        ),
        "multiplying": Text(
            0, 3.2, f"multiplying {1e3 * linear / peak:.2f} ms, attention "
            f"{1e3 * scores / peak:.2f} ms", anchor="start",
        ),
        "held": Text(
            0, 1.2, f"memory {(weights + caches) / 1e9:.0f} of 80 GB: does not fit", anchor="start"
        ),
        "weights moved": Box(0, 4, read / seconds, 0.8, role="data", fill=0.6),
        "caches moved": Box(read / seconds, 4, fetched / seconds, 0.8, role="key", fill=0.6),
        "multiplied": Box(0, 2, linear / peak / seconds, 0.8, role="good", fill=0.6),
        "attended": Box(read / seconds, 2, scores / peak / seconds, 0.8, role="good", fill=0.6),
        "device": Box(0, 0, limit, 0.8, dash=True),
        "weights kept": Box(0, 0, own, 0.8, role="data", fill=0.6),
        # It ends at the edge of the picture, beyond the frame of the device.
        "limit": Segment(limit, -0.08, limit, 0.88, strong=True),
        "caches kept": Box(own, 0, 1 - own, 0.8, role="bad", fill=0.6),
    }  # fmt: skip
    ticks = [(0, "1"), (1, "10"), (2, "100"), (3, "1,000")]
    return Seen(
        says(
            "{} FLOPs per byte, and the ridge is at {}: in a step of {} ms the multipliers are "
            "idle for {} of the time and the memory for {}. That is {} tokens per second, but {} "
            "GB do not fit in {} GB",
            *(intensity, peak / bandwidth, 1e3 * seconds, unused, 0.0, batch / seconds),
            *((weights + caches) / 1e9, 80),
        ),
        Scene(
            "drag the dot: a larger batch", dot, xlim=(-0.3, 3.7), ylim=(0, 3.6), axes="box",
            xticks=ticks, yticks=ticks, xlabel="FLOPs per byte", ylabel="TFLOP/s",
        ),
        Scene("the time of one step, and the memory", bars, xlim=(0, 1), ylim=(-0.1, 5.8)),
    )  # fmt: skip


@check_explorer(
    "explore-roofline",
    {
        "sequences": "512",
        "positions of each": "512",
        "key–value heads, of 64": "8",
        "machine": "H100",
    },
)
def test_a_step_of_a_model_of_70_billion_whose_parts_wait_for_different_things():
    peak, bandwidth, memory = 989e12, 3.35e12, 80e9  # NVIDIA's table of the H100 SXM
    batch, length, layers = 512, 512, 80
    weights = sum(weights_of(layers, 8192, 64, 8, 28672, 128256).values())
    read, cached = 2 * weights, 2 * batch * length * layers * 2 * 8 * 128
    linear = 2 * batch * weights
    scores = batch * layers * 64 * (2 * 128 * length + 2 * length * 128)
    assert linear / peak > read / bandwidth  # arithmetic
    assert scores / peak < cached / bandwidth  # memory
    first, second = linear / peak, cached / bandwidth
    seconds = first + second
    devices = math.ceil((read + 2 * 128256 * 8192 + cached) / memory)
    corner, top = math.log10(peak / bandwidth), math.log10(989)
    rate = (linear + scores) / seconds
    found = {
        "the step": ((linear + scores) / (read + cached), rate, 5, "data"),
        "linear layers": (linear / read, peak, 2.5, "good"),
        "attention": (scores / cached, scores / second, 1, "key"),
    }
    assert top - math.log10(rate / 1e12) > 0.1  # below the roof
    shapes = {"roof": Curve([-0.5, corner, 4], [top - corner - 0.5, top, top])}
    lines = ("the step: 320", "linear layers: 512", "attention: 8")
    for k, ((name, (i, r, size, role)), line) in enumerate(zip(found.items(), lines, strict=True)):
        shapes[name] = Dot(math.log10(i), math.log10(r / 1e12), size=size, role=role)
        shapes[f"{name} key"] = Dot(1.8, -0.7 - 0.6 * k, size=size, role=role)
        shapes[f"{name} told"] = Text(2.1, -0.7 - 0.6 * k, line, anchor="start", role=role)
    return Seen(
        says(
            "The linear layers wait for arithmetic, {} of the time, attention for memory, {}. The "
            "step uses at most {} of the peak. Devices needed: {}; tokens per second for each: at "
            "most {}",
            *(first / seconds, second / seconds, rate / peak, devices, batch / seconds),
        ),
        Scene(
            "rate over intensity", shapes, xlim=(-0.5, 4), ylim=(-2.2, 3.5), axes="box",
            xticks=[(0, "1"), (1, "10"), (2, "100"), (3, "1,000")],
            yticks=[(-1, "0.1"), (0, "1"), (1, "10"), (2, "100"), (3, "1,000")],
            xlabel="FLOPs per byte", ylabel="TFLOP/s",
        ),
    )  # fmt: skip


def work_of_70_billion(length):
    """The FLOPs of a forward pass, by what they are for."""
    weights = weights_of(80, 8192, 64, 8, 28672, 128256)
    work = {name: 2 * n * length for name, n in weights.items()}
    work["attention"] = 80 * 64 * 2 * (2 * length * 128 * length)
    return weights, work


@check_explorer("explore-split", {"model": "70 B", "positions": "32,768"})
def test_where_the_work_of_a_model_of_70_billion_goes():
    length, lengths = 32768, [2**k for k in range(9, 21)]
    weights, work = work_of_70_billion(length)
    total = 3 * sum(work.values())  # forward, and twice as much backward
    order = ["projections", "attention", "feed-forward", "vocabulary"]
    every = [work_of_70_billion(n)[1] for n in lengths]
    shares = {name: [100 * w[name] / sum(w.values()) for w in every] for name in order}
    here = [
        share if n == length else math.nan
        for n, share in zip(lengths, shares["attention"], strict=True)
    ]
    return Seen(
        says(
            "70 B, {} positions: attention's products are {} of the FLOPs, the vocabulary {}. The "
            "rule 6N gives {} of the count if N leaves out the embedding table, and {} if N "
            "includes it",
            *(length, 3 * work["attention"] / total, 3 * work["vocabulary"] / total),
            6 * sum(weights.values()) * length / total,
            6 * (sum(weights.values()) + 128256 * 8192) * length / total,
        ),
        Lines(
            "what the FLOPs are for", lengths, shares | {"here": here},
            "positions of the sequence", "% of the FLOPs", xscale="log",
        ),
    )  # fmt: skip


@check_explorer("explore-rounding", {"tile": "64", "size": "257"})
def test_a_size_just_above_a_multiple_wastes_most_of_a_tile():
    sizes = list(range(1, 1201, 3))
    useful = [n / (64 * len(range(0, n, 64))) for n in sizes]
    share = 257 / (5 * 64)
    # The places drawn are three apart: the mark stands on the one beside 257.
    here = [share if n in (256, 258) else math.nan for n in sizes]
    return Seen(
        says("Size {} in tiles of {}: {} tiles, {} of the work is wasted", 257, 64, 5, 1 - share),
        Lines(
            "useful share of the work",
            sizes,
            {"all sizes": useful, "this size": here},
            "size",
            "share",
        ),
    )


@check_explorer("explore-pipeline", {"pieces of the batch": "3"})
def test_a_pipeline_in_which_a_device_waits_for_the_one_before():
    devices, pieces, steps = 4, 3, 11
    busy = np.full((devices, steps), np.nan)
    finished = [[-1] * pieces for _ in range(devices + 1)]  # row 0 is ready from the start
    for device in range(1, devices + 1):
        for piece in range(pieces):
            free = finished[device][piece - 1] if piece else -1
            start = max(free, finished[device - 1][piece]) + 1
            finished[device][piece] = start
            busy[device - 1, start] = piece + 1
    end = finished[-1][-1] + 1
    busy[:, :end] = np.nan_to_num(busy[:, :end])
    idle = (busy[:, :end] == 0).mean()
    return Seen(
        f"3 pieces on 4 devices take {end} steps. Each device works for 3 of them and has "
        f"nothing to do in {idle:.0%} of the time.",
        Grid(
            "which piece a device works on",
            busy,
            ["device 1", "device 2", "device 3", "device 4"],
            [str(step) for step in range(1, 12)],
            text=lambda v: f"{int(v)}" if v else "–",
            xlabel="step",
            limits=(0, 8),
            role="data",
        ),
    )


@check_explorer("explore-cut", {"devices": "4"})
def test_a_feed_forward_layer_cut_over_four_devices():
    """Unit by unit: 1 · 1 + 1 · 1 = 2, 2, 3 and 1, each times its row of the second matrix."""
    first, second = [[1, 0, 2, 1], [1, 2, 1, 0]], [[1, 0], [0, 2], [1, 1], [2, 1]]
    hidden = [a + b for a, b in zip(*first, strict=True)]
    apart = [[h * v for v in row] for h, row in zip(hidden, second, strict=True)]
    whole = [sum(column) for column in zip(*apart, strict=True)]
    roles = ("query", "key", "value", "weight")
    shapes = {}
    for d, role in enumerate(roles):
        for i in range(2):
            shapes[f"first {i} {d}"] = Cell(i, 3 + d, str(first[i][d]), fill=0.5, role=role)
        shapes[f"hidden 0 {d}"] = Cell(2.6, 3 + d, str(hidden[d]), fill=0.5, role=role)
        for j in range(2):
            shapes[f"second {d} {j}"] = Cell(d, 9 + j, str(second[d][j]), fill=0.5, role=role)
            shapes[f"part {d} {j}"] = Cell(5 + d, 3 + j, str(apart[d][j]), fill=0.5, role=role)
        shapes[f"column of {d}"] = Text(3.5 + d, 0.35, str(d + 1), small=True)
        shapes[f"row of {d}"] = Text(8.6, -0.5 - d, str(d + 1), small=True)
        shapes[f"device {d + 1}"] = Text(2.8, -5.5 - d, f"device {d + 1}", anchor="end")
    for j in range(2):
        shapes[f"sum 0 {j}"] = Cell(6.5, 9 + j, str(whole[j]), fill=0.5)
    shapes["added up"] = Arrow(5.3, -7, 8.7, -7)
    shapes["all-reduce"] = Text(6.9, -6.6, "all-reduce")
    return Seen(
        "4 devices, 4 of the 16 weights on each: 1 of the 4 columns and 1 of the 4 "
        f"rows. The partial sums are {', '.join(f'({a}, {b})' for a, b in apart)}, in all "
        f"({whole[0]}, {whole[1]}). To add up, a device sends {2 * 3 / 4 * 2:g} numbers in a ring.",
        Scene("", shapes, xlim=(-0.4, 11.4), ylim=(-9.3, 1.5)),
    )


@check_explorer("explore-devices", {"µs for a step of the ring": "4", "bits of a weight": "8"})
def test_links_that_start_slowly_make_few_devices_the_fastest():
    many, layers, start = (1, 2, 4, 8, 16, 32), 80, 4e-6
    weights = sum(weights_of(layers, 8192, 64, 8, 28672, 128256).values())  # of one byte
    reading = {p: weights / 3.35e12 / p for p in many}
    waiting = {p: sum(p - 1 + p - 1 for _ in range(2 * layers)) * start for p in many}
    sending = {
        p: sum(2 * (p - 1) * (8192 * 2 / p) for _ in range(2 * layers)) / 450e9 for p in many
    }
    token = {p: reading[p] + sending[p] + waiting[p] for p in many}
    best = min(many, key=token.__getitem__)
    assert best == 4
    series = {"reading": reading, "waiting": waiting, "a token": token}
    return Seen(
        says(
            "Weights in {} bits, {} µs for a step of the ring: {} devices are the fastest, {} ms "
            "for a token. They read for {} ms, send for {} ms and wait for {} ms, and each keeps "
            "{} GB",
            *(8, 4, best, 1e3 * token[best], 1e3 * reading[best], 1e3 * sending[best]),
            *(1e3 * waiting[best], weights / best / 1e9),
        ),
        Bars(
            "the time of one token",
            [str(p) for p in many],
            {name: [1e3 * found[p] for p in many] for name, found in series.items()},
            "devices",
            "ms",
        ),
    )
