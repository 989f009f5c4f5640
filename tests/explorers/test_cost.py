"""The explorers of chapter 16: every product of a published model counted by hand."""

import math

import numpy as np
import torch

from book.explorer import Bars, Box, Curve, Dot, Grid, Lines, Scene, Segment, Text

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
    seconds = read + fetched
    assert seconds > worked
    assert weights + caches > memory

    corner, x = math.log10(peak / bandwidth), math.log10(intensity)
    top, y = math.log10(989), math.log10(intensity * bandwidth / 1e12)
    unused = 1 - worked / seconds
    dot = {
        "roof": Curve([-0.3, corner, 3.7], [top - corner - 0.3, top, top]),
        "share": Text(x - 1.5, top - 0.3, f"{unused:.1%} unused", anchor="start", role="bad"),
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
        "multiplying": Text(0, 3.2, f"multiplying {1e3 * worked:.2f} ms", anchor="start"),
        "held": Text(
            0, 1.2, f"memory {(weights + caches) / 1e9:.0f} of 80 GB: does not fit", anchor="start"
        ),
        "weights moved": Box(0, 4, read / seconds, 0.8, role="data", fill=0.6),
        "caches moved": Box(read / seconds, 4, fetched / seconds, 0.8, role="key", fill=0.6),
        "multiplied": Box(0, 2, worked / seconds, 0.8, role="good", fill=0.6),
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
            "idle for {} of the time. That is {} tokens per second, but {} GB do not fit in {} GB",
            *(intensity, peak / bandwidth, 1e3 * seconds, unused, batch / seconds),
            *((weights + caches) / 1e9, 80),
        ),
        Scene(
            "drag the dot: a larger batch", dot, xlim=(-0.3, 3.7), ylim=(0, 3.3), axes="box",
            xticks=ticks, yticks=ticks, xlabel="FLOPs per byte", ylabel="TFLOP/s",
        ),
        Scene("the time of one step, and the memory", bars, xlim=(0, 1), ylim=(-0.1, 5.8)),
    )  # fmt: skip


@check_explorer(
    "explore-roofline",
    {
        "sequences": "32",
        "positions of each": "32,768",
        "key–value heads, of 64": "1",
        "machine": "A100",
    },
)
def test_a_step_of_a_model_of_70_billion_on_an_a100():
    peak, bandwidth, memory = 312e12, 2.039e12, 80e9  # NVIDIA's table of the A100 SXM, 80 GB
    batch, length, layers = 32, 32768, 80
    weights = sum(weights_of(layers, 8192, 64, 1, 28672, 128256).values())
    read, cached = 2 * weights, 2 * batch * length * layers * 2 * 1 * 128
    linear = 2 * batch * weights
    scores = batch * layers * 64 * (2 * 128 * length + 2 * length * 128)
    step = (linear + scores) / (read + cached)
    devices = math.ceil((read + 2 * 128256 * 8192 + cached) / memory)
    per_second = batch / max((linear + scores) / peak, (read + cached) / bandwidth)
    assert step < peak / bandwidth
    corner, top = math.log10(peak / bandwidth), math.log10(312)
    x_l, x_a, x_s = (math.log10(i) for i in (linear / read, scores / cached, step))
    assert x_l < x_s < x_a < corner  # the smaller one is named on the left of its dot

    def y(x):
        return math.log10(10**x * bandwidth / 1e12)

    dots = {
        "roof": Curve([-0.5, corner, 4], [y(-0.5), top, top]),
        "stem": Segment(x_s, -2.2, x_s, -1.7, role="data"),
        "step": Dot(x_s, y(x_s), size=5, role="data"),
        "step name": Text(x_s + 0.08, -2, "the step", anchor="start", role="data"),
        "linear layers": Dot(x_l, y(x_l), size=2.5, role="good"),
        "linear layers name": Text(x_l - 1.05, y(x_l) + 0.3, "linear layers", role="good"),
        "attention": Dot(x_a, y(x_a), size=2.5, role="key"),
        "attention name": Text(x_a + 0.85, y(x_a) - 0.45, "attention", role="key"),
    }
    return Seen(
        says(
            "{} FLOPs per byte: the step waits for memory and uses at most {} of the peak. Devices "
            "needed: {}; tokens per second for each: at most {}",
            *(step, step * bandwidth / peak, devices, per_second),
        ),
        Scene(
            "rate over intensity", dots, xlim=(-2, 4), ylim=(-2.2, 3.5), axes="box",
            xticks=[(0, "1"), (1, "10"), (2, "100"), (3, "1,000")],
            yticks=[(-1, "0.1"), (0, "1"), (1, "10"), (2, "100"), (3, "1,000")],
            xlabel="FLOPs per byte", ylabel="TFLOP/s",
        ),
    )  # fmt: skip


@check_explorer("explore-split", {"model": "70 B", "positions": "32,768"})
def test_where_the_work_of_a_model_of_70_billion_goes():
    length, layers = 32768, 80
    weights = weights_of(layers, 8192, 64, 8, 28672, 128256)
    work = {name: 2 * n * length for name, n in weights.items()}
    work["attention"] = layers * 64 * 2 * (2 * length * 128 * length)
    total = 3 * sum(work.values())  # forward, and twice as much backward
    order = ["projections", "attention", "feed-forward", "vocabulary"]
    shares = {name: 3 * work[name] / total for name in order}
    return Seen(
        says(
            "70 B, {} positions: attention's products are {} of the FLOPs, the vocabulary {}; six "
            "FLOPs for each weight of a matrix product give {} of the count",
            *(length, shares["attention"], shares["vocabulary"]),
            6 * sum(weights.values()) * length / total,
        ),
        Bars("share of the FLOPs", order, {"share": [*shares.values()]}, "part", "share"),
    )


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
