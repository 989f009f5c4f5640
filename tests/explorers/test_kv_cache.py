"""The explorers of chapter 13: masks by counting keys, memory and rooflines from the sizes."""

import math

import numpy as np
import torch

from book.explorer import Bars, Heat, Lines

from .reading import Seen, check_explorer, says

# NVIDIA's table of the H100 SXM, and Llama 2 70B's own configuration.
PEAK, BANDWIDTH, MEMORY = 989e12, 3.35e12, 80e9
LLAMA_2_70B = {"parameters": 68_976_648_192, "layers": 80, "head": 128}


@check_explorer(
    "explore-chunk",
    {"positions in the cache": "3", "new positions": "4", "mask aligned at the": "top-left"},
)
def test_a_mask_from_the_top_left_hides_what_is_in_the_cache():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 8, 8).squeeze(1).numpy()

    def output(query, keys):
        scores = np.exp([q[query] @ k[j] / math.sqrt(8) for j in keys])
        return sum(s * v[j] for s, j in zip(scores, keys, strict=True)) / scores.sum()

    picture = 0.15 * np.tri(8)
    errors, hidden, needed = np.zeros(8), 0, 0
    for new, query in enumerate(range(3, 7)):
        sees, should = range(new + 1), range(query + 1)
        errors[query] = np.abs(output(query, sees) - output(query, should)).max()
        hidden += len(should) - len(sees)
        needed += len(should)
        picture[query, list(should)] = 0.45
        picture[query, list(sees)] = 1
    wrong = int((errors > 1e-9).sum())
    return Seen(
        says(
            "{} cached positions and a chunk of {}, mask from the top-left: {} of {} needed keys "
            "are hidden, and {} of {} outputs are wrong, by up to {}",
            *(3, 4, hidden, needed, wrong, 4, errors.max()),
        ),
        Heat("full: seen, half: hidden", picture, "key", "query at position", limits=(0, 1)),
        Bars("error of each output", list("01234567"), {"error": errors}, "position", "error"),
    )


@check_explorer(
    "explore-memory",
    {"key-value heads": "4", "tokens per sequence": "32768", "bits per cached number": "8"},
)
def test_what_fits_into_the_memory_of_eight_h100():
    weights = 2 * LLAMA_2_70B["parameters"]
    sequence = 32768 * LLAMA_2_70B["layers"] * 2 * 4 * LLAMA_2_70B["head"]  # a byte each
    fits = max(n for n in range(1, 2000) if weights + n * sequence <= 8 * MEMORY)

    def per_second(n):
        return n / ((weights + n * sequence) / (8 * BANDWIDTH))

    batches = [2**k for k in range(11)]
    # The second curve begins at the last batch that fits, so that the two meet.
    held = [per_second(n) if n <= fits else math.nan for n in batches]
    beyond = [per_second(n) if 2 * n > fits else math.nan for n in batches]
    both = weights + 16 * sequence
    return Seen(
        says(
            "{} key-value heads, {} tokens, {} bit: {} KiB per token, {} GB per sequence; "
            "{} sequences fit ... at most {} tokens per second",
            *(4, 32768, 8, sequence // 32768 // 1024, sequence / 1e9, fits, per_second(fits)),
        ),
        Lines(
            "tokens per second of the whole batch, at most",
            batches,
            {
                "fits into memory": held,
                "would not fit": beyond,
                "limit of large batches": [8 * BANDWIDTH / sequence] * 11,
            },
            "sequences in the batch",
            "tokens per second",
            xscale="log",
            yscale="log",
        ),
        Bars(
            "what a step reads, 16 sequences",
            ["weights", "caches"],
            {"share": [weights / both, 16 * sequence / both]},
            "read from memory",
            "share of the bytes",
        ),
    )


@check_explorer(
    "explore-roof", {"query heads per key-value head": "4", "new tokens": "8", "keys": "1024"}
)
def test_where_a_kernel_stands_under_the_roof():
    group, new, keys, width = 4, 8, 1024, 128
    scores = values = 2 * group * new * keys * width  # a multiplication and an addition each
    read = {"keys and values": 2 * keys * width * 2, "queries and outputs": 2 * group * new * width}
    read["queries and outputs"] *= 2  # bytes
    intensity = (scores + values) / sum(read.values())
    ridge = PEAK / BANDWIDTH
    grid = np.sort([2.0 ** (k / 2) for k in range(-2, 28)] + [ridge])
    roof = np.array([min(PEAK, g * BANDWIDTH) / 1e12 for g in grid])
    nearest = min(range(len(grid)), key=lambda k: abs(math.log(grid[k] / intensity)))
    here = np.full(len(grid), np.nan)
    here[nearest] = roof[nearest]
    assert intensity < ridge
    return Seen(
        says(
            "{} heads ... {} new tokens, {} keys: intensity {}, memory is the limit, at most {} of",
            *(4, 8, 1024, intensity, intensity / ridge),
        ),
        Lines(
            "the roofline, and this kernel",
            grid,
            {"roof": roof, "this kernel": here},
            "FLOPs per byte",
            "TFLOP/s",
            xscale="log",
            yscale="log",
        ),
        Bars(
            "where the bytes go",
            list(read),
            {"share": np.array([*read.values()]) / sum(read.values())},
            "what",
            "share of the bytes",
        ),
    )
