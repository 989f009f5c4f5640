"""The explorers of chapter 16: every product of a published model counted by hand."""

import math

import numpy as np

from book.explorer import Bars, Lines

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


@check_explorer(
    "explore-roofline",
    {
        "sequences": "32",
        "positions of each": "32768",
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
    grid = 10 ** np.linspace(-1, 3.5, 46)

    def roof(intensity):
        return min(peak, intensity * bandwidth) / 1e12

    def point(intensity):
        nearest = min(range(46), key=lambda n: abs(math.log(grid[n] / intensity)))
        return [roof(intensity) if n == nearest else math.nan for n in range(46)]

    return Seen(
        says(
            "{} FLOPs per byte: the step waits for memory and uses at most {} of the peak. Devices "
            "needed: {}; tokens per second for each: at most {}",
            *(step, step * bandwidth / peak, devices, per_second),
        ),
        Lines(
            "rate over intensity",
            grid,
            {
                "roof": [roof(intensity) for intensity in grid],
                "linear layers": point(linear / read),
                "attention": point(scores / cached),
                "the step": point(step),
            },
            "FLOPs per byte",
            "TFLOP/s",
            xscale="log",
            yscale="log",
        ),
    )


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
            "70 B, {} positions: attention's products are {} of the FLOPs, the vocabulary {}; the "
            "rule 6N, with the weights of all matrix products for N, gives {} of the count",
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
