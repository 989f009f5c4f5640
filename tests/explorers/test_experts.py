"""The explorers on experts: routing by sorting lists, loads counted, means by drawing."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from book.explorer import Bars, Box, Grid, Lines, Scene, Segment, Text
from book.own.experts import rows, train
from transformer_parts.experts import MixtureOfExperts, Router

from .reading import Seen, check_explorer, says


def trained(num_experts, top_k, d_ff, **how):
    """The layer as the chapter trains it with seed 0, and what its router chose at each step."""
    told = rows(60, "experts")
    torch.manual_seed(0)
    router = Router(128, num_experts, top_k, norm_topk=top_k > 1, correction="speed" in how)
    layer = MixtureOfExperts(router, d_ff)
    return told, layer, train(layer, told, 0, steps=120, batch=256, **how)


@check_explorer(
    "explore-hall", {"added to A's logits": "4", "experts for each word": "2", "capacity": "3"}
)
def test_eight_words_that_are_pushed_to_a():
    told, layer, _ = trained(4, 2, 86, balance=0.02)
    words = told.spelled()[14:22]
    logits = (told.inputs[14:22] @ layer.router.weight.detach().T).tolist()
    shapes, held, over = {}, dict.fromkeys("ABCD", 0), 0
    for t, row in enumerate(logits):
        row[0] += 4
        best = sorted(range(4), key=lambda i: -row[i])[:2]
        first = math.exp(row[best[0]])
        share = first / (first + math.exp(row[best[1]]))
        for slot, (i, weight) in enumerate(zip(best, (share, 1 - share), strict=True)):
            name = "ABCD"[i]
            lost = held[name] >= 3
            shapes[f"{t}, choice {slot + 1}"] = Box(
                i + 0.04, held[name] + 0.06, 0.92, 0.88, words[t], fill=weight,
                role="bad" if lost else "data", dash=lost,
            )  # fmt: skip
            held[name] += 1
            over += lost
    shapes |= {n: Text(i + 0.5, -0.45, f"{n}: {held[n]}") for i, n in enumerate("ABCD")}
    shapes["capacity"] = Segment(0, 3, 4, 3, strong=True)
    return Seen(
        says(
            "{} pairs of a word and an expert, {} of them for A, {} for B, {} for C, {} for D. "
            "With room for {} each, {} are dropped",
            *(16, *held.values(), 3, over),
        ),
        Scene(
            "filled from below, in reading order; above the line: dropped",
            shapes,
            xlim=(0, 4),
            ylim=(-0.9, 8.1),
        ),
    )


@check_explorer("explore-choice", {"bias of C1": "+0.4", "groups that a token may visit": "2"})
def test_a_bias_opens_a_group():
    scores = [0.62, 0.55, 0.80, 0.10, 0.48, 0.45, 0.71, 0.30]
    wanted = [s + 0.4 * (i == 4) for i, s in enumerate(scores)]
    values = {g: wanted[2 * g] + wanted[2 * g + 1] for g in range(4)}
    kept = sorted(values, key=lambda g: -values[g])[:2]
    open_ = [i for i in range(8) if i // 2 in kept]
    two = sorted(sorted(open_, key=lambda i: -wanted[i])[:2])
    total = sum(scores[i] for i in two)
    names = ["A1", "A2", "B1", "B2", "C1", "C2", "D1", "D2"]
    nan = math.nan
    return Seen(
        says(
            "With {} for C{} and {} of {} groups, A{} and C{} are chosen, with the weights {}, {}",
            *(0.4, 1, 2, 4, 1, 1, *(scores[i] / total for i in two)),
        ),
        Grid(
            "two experts of eight",
            [
                scores,
                [values[i // 2] for i in range(8)],
                [wanted[i] if i in open_ else nan for i in range(8)],
                [scores[i] / total if i in two else nan for i in range(8)],
            ],
            ["score", "sum of the group", "for the choice", "weight"],
            names,
            limits=(0, 1.4),
            xlabel="expert, named by its group",
            detail=lambda row, column: (
                f"{names[column]}: score {scores[column]:.2f}, its group counts "
                f"{values[column // 2]:.2f}, the sum of its two"
            ),
        ),
    )


@check_explorer("explore-sort", {"step": "add up"})
def test_three_tokens_and_three_experts():
    gates = {1: {1: 0.7, 0: 0.3}, 2: {2: 0.6, 1: 0.4}, 3: {0: 0.9, 1: 0.1}}
    factors = [1, 10, 100]
    pairs = [(token, i) for i in range(3) for token in gates if i in gates[token]]
    out = [token * factors[i] for token, i in pairs]
    weighted = [gates[token][i] * y for (token, i), y in zip(pairs, out, strict=True)]
    sums = [sum(g * token * factors[i] for i, g in gates[token].items()) for token in gates]
    return Seen(
        says("added up at the token: token {} gets {}, from {} pairs", 1, sums[0], 2),
        Grid(
            "the pairs",
            [[t for t, _ in pairs], [i for _, i in pairs], [gates[t][i] for t, i in pairs],
             out, weighted],
            ["token", "expert", "weight", "output", "weighted"],
            ["1", "2", "3", "4", "5", "6"],
            text="{:g}", limits=(0, 200), xlabel="place",
        ),
        Grid(
            "the sums", [sums], ["y"], [str(t) for t in gates], text="{:g}",
            limits=(0, 200), xlabel="token",
        ),
    )  # fmt: skip


@check_explorer("explore-load", {"balanced by": "a bias, γ = 0.01", "step": "50"})
def test_the_load_after_fifty_steps_with_a_bias():
    _, _, loads = trained(16, 1, 43, speed=0.01)
    load = [100 * sum(float(step[i]) for step in loads[40:50]) / 10 for i in range(16)]
    in_use = math.prod((v / 100) ** (-v / 100) for v in load if v)
    return Seen(
        says(
            "After {} steps, balanced by a bias, γ = {}: by their entropy {} of {} experts are in "
            "use. The busiest has {} of the words, and {} have less than a tenth",
            *(50, 0.01, in_use, 16, max(load) / 100, sum(v < 100 / 160 for v in load)),
        ),
        Bars(
            "words for each expert",
            [str(i) for i in range(1, 17)], {"load": load}, "expert", "% of the words",
            ylim=(0, 100),
        ),
    )  # fmt: skip


@check_explorer("explore-bytes", {"model": "Qwen3-30B-A3B", "tokens in a step": "16"})
def test_sixteen_tokens_of_qwen3():
    """The chance that an expert is left alone, token by token."""

    def read(batch):
        left = 1.0
        for _ in range(batch):
            left *= math.comb(127, 8) / math.comb(128, 8)
        return 128 * (1 - left)

    one = sum(
        torch.empty(shape, dtype=torch.bfloat16, device="meta").nbytes
        for shape in ((768, 2048), (768, 2048), (2048, 768))
    )
    size = read(16) * one
    batches = np.array([2**k for k in range(10)])
    experts = np.array([read(int(b)) for b in batches])
    share, each = 100 * experts / 128, experts * one / 1e6 / batches
    here = np.where(batches == 16, 1.0, np.nan)
    return Seen(
        says(
            "Qwen3-{}B-A{}B, {} tokens in a step: {} of {} experts of a layer are read, {} MB in "
            "{} bits, or {} MB",
            *(30, 3, 16, read(16), 128, size / 1e6, 16, size / 16 / 1e6),
        ),
        Lines(
            "experts of a layer that are read", batches,
            {"experts read": share, "this step": share * here},
            "tokens in a step", "% of all experts", xscale="log", ylim=(0, 102),
        ),
        Lines(
            "what is read for each token", batches,
            {
                "the experts": each,
                "this step": each * here,
                "dense, as wide as all experts": 128 * one / 1e6 / batches,
                "dense, as wide as k experts": 8 * one / 1e6 / batches,
            },
            "tokens in a step", "MB", xscale="log", yscale="log",
        ),
    )  # fmt: skip


def test_the_words_of_the_hall_are_eight_of_one_story():
    told = rows(60, "experts")
    assert len(set(told.story[14:22].tolist())) == 1
    assert F.one_hot(told.story[:14]).shape[1] == 1
