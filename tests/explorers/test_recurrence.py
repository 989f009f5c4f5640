"""The explorers of chapter 24: memories kept as plain lists, written pair by pair."""

import math

import numpy as np
import torch

from book.explorer import Bars, Grid, Lines

from .reading import Seen, check_explorer, says

KEYS = [(1.0, 0.0), (0.6, 0.8), (0.0, 1.0)]
VALUES = [(10.0, 0.0), (0.0, 10.0), (0.0, 0.0)]
VALUED = ["1: (10, 0)", "2: (0, 10)", "3: (0, 0)"]


def reads(memory, key):
    return [sum(key[i] * memory[i][j] for i in range(2)) for j in range(2)]


def seen_memory(rule, count, memory):
    read = [reads(memory, key) for key in KEYS]
    off = max(
        abs(r - v)
        for line, value in list(zip(read, VALUES, strict=True))[:count]
        for r, v in zip(line, value, strict=True)
    )
    return Seen(
        says(
            f"Rule: {rule}. After {{}} of {{}} tokens the newest key reads ({{}}, {{}}); the "
            "largest error among the keys written so far is {}",
            *(count, 3, *read[count - 1], off),
        ),
        Grid(
            "the memory",
            memory,
            ["key 1st", "key 2nd"],
            ["value 1st", "value 2nd"],
            text=lambda x: f"{x:.1f}",
            xlabel="feature of the value",
            ylabel="feature of the key",
            limits=(-16, 16),
            diverging=True,
        ),
        Bars(
            "what each key reads",
            VALUED,
            {"first feature": [r[0] for r in read], "second feature": [r[1] for r in read]},
            "token: the value of its key",
            "read",
            (-6, 18),
        ),
    )


@check_explorer("one-memory", {"rule": "correct", "written so far": "token 3"})
def test_three_corrections():
    memory = [[0.0, 0.0], [0.0, 0.0]]
    for key, value in zip(KEYS, VALUES, strict=True):
        missing = [v - r for v, r in zip(value, reads(memory, key), strict=True)]
        for i in range(2):
            for j in range(2):
                memory[i][j] += key[i] * missing[j]
    return seen_memory("correct", 3, memory)


@check_explorer("one-memory", {"rule": "fade by half, then add", "written so far": "token 3"})
def test_three_tokens_that_fade():
    left = [0.25, 0.5, 1.0]
    memory = [
        [sum(p * k[i] * v[j] for p, k, v in zip(left, KEYS, VALUES, strict=True)) for j in range(2)]
        for i in range(2)
    ]
    return seen_memory("fade by half, then add", 3, memory)


@check_explorer("chunk-picture", {"tokens of a chunk": "8", "features of a head": "16"})
def test_two_chunks_of_eight():
    cells = np.full((16, 16), math.nan)
    together = 0
    for query in range(16):
        for key in range(query + 1):
            cells[query, key] = float((query < 8) == (key < 8))
            together += int(cells[query, key])
    squares = 2 * 8 * 8 * (16 + 16)  # two chunks; a product needs 16, its value 16
    tables = 2 * 16 * 16 * 16  # every token reads a table, and writes into it
    whole = 16 * 16 * (16 + 16)
    shares = [100 * n / whole for n in (squares, tables, squares + tables)]
    names = [str(i) for i in range(16)]
    return Seen(
        says(
            "Chunks of {}, heads of {} features. Steps one behind the other: {}; {} of {} pairs "
            "meet in their chunk. {} multiplications inside the chunks and {} for the table, {} in "
            "all: {} % of the parallel form's {}",
            *(8, 16, 2, together, 136, squares, tables, squares + tables, shares[2], whole),
        ),
        Grid(
            "■ in the chunk, · through the table",
            cells,
            names,
            names,
            text=lambda x: "■" if x else "·",
            xlabel="key",
            ylabel="query",
            limits=(0, 1),
            empty="",
        ),
        Bars(
            "multiplications",
            ["inside chunks", "for the table", "in all"],
            {"multiplications": shares},
            "where",
            "in % of the parallel form",
            (0, 160),
        ),
    )


@check_explorer("step-explorer", {"β, size of the step": "1.5", "length of the key": "1.4"})
def test_a_step_that_is_too_long():
    left = 1 - 1.5 * 1.4**2
    # The key reads 0.6 of the first value's feature; of its own value, nothing yet.
    first = [0.6 * 1.4 * 10 * left**n for n in range(6)]
    second = [10 - 10 * left**n for n in range(6)]
    inside = [[x if -20 <= x <= 30 else math.nan for x in line] for line in (first, second)]
    return Seen(
        says(
            "A key of length {} and steps of {}: each step multiplies the error by {}. After one "
            "step the key reads ({}, {}), after {} steps ({}, {})",
            *(1.4, 1.5, left, first[1], second[1], 5, first[5], second[5]),
        ),
        Lines(
            "what the key reads, of (0, 10)",
            list(range(6)),
            {"first feature": inside[0], "second feature": inside[1]},
            "steps with this key and value",
            "read",
            ylim=(-20, 30),
        ),
    )


@check_explorer("tree-explorer", {"level": "all"})
def test_the_tree_at_its_last_level():
    x = [8, 4, 2, 6, 1, 5, 3, 7]

    def added(first, last):
        return sum(x[n] / 2 ** (last - n) for n in range(first, last + 1))

    cells = np.full((6, 8), math.nan)
    cells[0] = x
    for end in (1, 3, 5, 7):
        cells[1, end] = added(end - 1, end)
    for end in (3, 7):
        cells[2, end] = added(end - 3, end)
    cells[3, 7] = added(0, 7)
    for end in (1, 3, 5, 7):
        cells[4, end] = added(0, end)
    cells[5] = [added(0, end) for end in range(8)]
    levels = ["tokens", "pairs", "fours", "all eight", "down to pairs", "all"]
    return Seen(
        says(
            "All, level {} of {}: {} joins so far. Place {} joins tokens {} to {}, with {}, and "
            "token {}, with {}: {} / {} + {} = {}",
            *(5, 5, 4 + 2 + 1 + 1 + 3, 7, 1, 6, added(0, 5), 7, x[6]),
            *(added(0, 5), 2, x[6], added(0, 6)),
        ),
        Grid(
            "what a stretch adds to the state",
            cells,
            levels,
            [str(n) for n in range(1, 9)],
            text=lambda x: f"{x:.3g}",
            xlabel="last token of the stretch",
            limits=(0, 12),
            empty="",
        ),
    )


def what_a_table_holds(width, beta):
    """Right answers and scaled errors, pair after pair; no beta: add."""
    shares, errors = [], []
    for pairs in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        right, left = 0, 0.0
        for seed in range(3):
            draw = torch.Generator().manual_seed(seed)
            normal = torch.randn(8, pairs, width, generator=draw, dtype=torch.float64)
            keys = normal / normal.norm(dim=-1, keepdim=True)
            _, values = torch.randn(2, 8, pairs, width, generator=draw, dtype=torch.float64)
            memory = torch.zeros(8, width, width, dtype=torch.float64)
            for n in range(pairs):
                k, v = keys[:, n], values[:, n]
                if beta is not None:
                    v = beta * (v - torch.einsum("mi,mij->mj", k, memory))
                memory = memory + torch.einsum("mi,mj->mij", k, v)
            read = torch.einsum("mni,mij->mnj", keys, memory)
            cosines = torch.cosine_similarity(read[:, :, None], values[:, None], dim=-1)
            right += int((cosines.argmax(-1) == torch.arange(pairs)).sum())
            both = (read * values).sum() ** 2
            left += 1 - (both / read.square().sum() / values.square().sum()).item()
        shares.append(100 * right / (3 * 8 * pairs))
        errors.append(left / 3)
    return shares, errors


@check_explorer("fits-explorer", {"features of a key": "8", "β, size of the step": "0.25"})
def test_what_a_small_table_holds():
    counts = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    added, added_off = what_a_table_holds(8, None)
    right, off = what_a_table_holds(8, 0.25)
    at = counts.index(16)
    return Seen(
        says(
            "{} features. Of {} pairs adding reads {} % rightly, with a scaled error of {}. "
            "Correcting with steps of {} reads {} %, with an error of {}",
            *(8, 16, added[at], added_off[at], 0.25, right[at], off[at]),
        ),
        Lines(
            "right answers",
            counts,
            {"add": added, "correct": right},
            "pairs written",
            "right, in %",
            xscale="log",
            ylim=(0, 105),
        ),
        Lines(
            "squared error after the best factor",
            counts,
            {"add": added_off, "correct": off},
            "pairs written",
            "share of the values' square",
            xscale="log",
            ylim=(0, 1.05),
        ),
    )


@check_explorer("cost-explorer", {"tokens": "32,768", "layers with attention": "6"})
def test_six_caches_and_forty_two_memories():
    one = torch.empty(2, 2, 256, dtype=torch.bfloat16, device="meta").nbytes / 2**20
    memory = torch.empty(32, 128, 128, dtype=torch.float32, device="meta").nbytes / 2**20
    at = [2.0**n for n in range(7, 18)]
    stack = [6 * one * n + 42 * memory for n in at]
    here = [math.nan] * 11
    here[at.index(32768)] = stack[at.index(32768)]
    now = stack[at.index(32768)]
    return Seen(
        says(
            "{} tokens, {} of {} layers with attention: caches of {} MiB and memories of {} MiB, "
            "{} MiB in all. With attention in all layers it would be {} MiB, {} times as much",
            *(32768, 6, 48, 6 * one * 32768, 42 * memory, now, 48 * one * 32768),
            48 * one * 32768 / now,
        ),
        Lines(
            "kept for one sequence",
            at,
            {
                "attention in all layers": [48 * one * n for n in at],
                "this stack": stack,
                "memories alone": [48 * memory] * 11,
                "the length chosen": here,
            },
            "tokens",
            "MiB",
            "log",
            "log",
            (5, 20000),
        ),
    )
