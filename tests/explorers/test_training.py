"""The explorers of the chapter on training.

The stored run is read from its files, models are trained with torch's own optimizer, and paths,
schedules and clipped gradients are computed by closed forms.
"""

import itertools
import json
import math

import numpy as np
import torch
import torch.nn.functional as F

from book.chapters import ROOT
from book.explorer import Arrow, Box, Circle, Curve, Dot, Grid, Lines, Scene, Text
from book.own.tokens import ID
from book.stories import follow, stories
from transformer_parts.decoder import (
    DecoderOnlyTransformer,
    ModelConfig,
    from_pretrained_config,
    load_hf_state_dict,
)

from .reading import Seen, check_explorer, says

MODEL = ROOT / "model"


@check_explorer("explore-run", {"step": "250"})
def test_the_run_after_250_steps():
    made = json.loads((MODEL / "made.json").read_text())
    taken = json.loads((MODEL / "snapshots.json").read_text())["steps"]
    loss = {one["step"]: one["loss"] for one in made["curve"]}
    now = next(one for one in taken if one["step"] == 250)
    words = now["said"].split()[:11]
    said = " ".join(words)
    head = now["maps"][1][0]
    weights = np.full((13, 13), np.nan)
    for row, numbers in enumerate(head):
        weights[row, : len(numbers)] = numbers
    tokens = [
        "<s>",
        "baby",
        ":",
        "lake",
        "purple",
        "six",
        "june",
        ",",
        "lake",
        "purple",
        "six",
        "june",
        ".",
    ]
    lines = ["one bright morning leo , anna", "and nora met . there"]
    assert " ".join(lines) == said
    shapes = {
        "curve": Curve([math.log10(s) for s in loss], [*loss.values()], role="data"),
        "now": Dot(math.log10(250), loss[250], size=3, role="gradient"),
        "loss": Text(0.1, 2.85, f"loss {loss[250]:.2f}", anchor="start", strong=True),
    }
    for step, at in loss.items():
        shapes[f"step {step}"] = Dot(math.log10(step), at, size=0.8, role="data")
    for n, line in enumerate(lines):
        shapes[f"line {n}"] = Text(0.1, 0.26 - 0.34 * n, line, anchor="start", small=True)
    return Seen(
        says(
            "After step {} the loss on stories that it has not seen is {}. Asked for a story, it "
            f"begins: “{said}”. In the map, the second “purple” (tenth row) gives {{}} of its "
            "attention to “six” (sixth column), the word that followed the first “purple”",
            *(250, loss[250], head[9][5]),
        ),
        Scene(
            "loss, and what it says",
            shapes,
            xlim=(-0.05, 3.65),
            ylim=(-0.75, 6),
            axes="box",
            xlabel="step",
            ylabel="loss (nats per word)",
            xticks=[(0, "1"), (1, "10"), (2, "100"), (3, "1000")],
            yticks=[(n, str(n)) for n in range(1, 7)],
        ),
        Grid(
            "where a head of layer 2 looks",
            weights,
            tokens,
            list("sb:lpsj,lpsj."),
            text="",
            limits=(0, 1),
            role="weight",
            xlabel="attends to (first letters)",
            ylabel="from",
        ),
    )


def shown_story():
    told = itertools.islice(stories("held out"), 400)
    return next(s.words for s in told if len(s.words) < 79)


@check_explorer("explore-surprise", {"model": "guessing"})
def test_the_surprise_of_somebody_who_guesses():
    story = shown_story()
    floor = [-math.log(follow(story)[i - 1][story[i]]) for i in range(54, 72)]
    s = math.log(len(ID))
    shapes = {
        "mean": Text(
            9.8, 0.3, f"mean {s:.2f}, floor {sum(floor) / 18:.2f}", anchor="end", strong=True
        )
    }
    for row, low in enumerate(floor):
        word, y = story[54 + row], 18 - row
        shapes[f"bar {row}"] = Box(
            0, y, s, 0.62, role="data", fill=0.7,
            detail=f"{word}: probability {1 / len(ID):.3f}, surprise {s:.2f}; in the language "
            f"{math.exp(-low):.3f}, {low:.2f}",
        )  # fmt: skip
    return Seen(
        says(
            "guessing: mean surprise {} nats, perplexity {}. The language itself has {} and {} on "
            "these words",
            *(s, float(len(ID)), sum(floor) / 18, math.exp(sum(floor) / 18)),
        ),
        Scene(
            "",
            shapes,
            xlim=(-1.9, 9.9),
            ylim=(-0.1, 18.8),
            axes="box",
            xlabel="surprise (nats)",
            xticks=[(n, str(n)) for n in range(0, 9, 2)],
            yticks=[],
        ),
    )


@check_explorer("explore-valley", {"optimizer": "momentum", "learning rate": "0.005", "steps": "4"})
def test_four_steps_with_momentum():
    x, y, bx, by = 1.0, 1.0, 0.0, 0.0
    path = [(x, y)]
    for _ in range(4):
        bx, by = 0.9 * bx + x, 0.9 * by + 100 * y
        x, y = x - 0.005 * bx, y - 0.005 * by
        path.append((x, y))
    path += [path[-1]] * 106  # drawn with 111 corners, for the crossings of the edges
    turns = [math.tau * k / 48 for k in range(49)]
    levels = {
        f"level {v}": Curve(
            [math.sqrt(2 * v) * math.cos(a) for a in turns],
            [math.sqrt(v / 50) * math.sin(a) for a in turns],
            role="quiet",
        )
        for v in (0.02, 0.1, 0.4, 1.0)
    }
    return Seen(
        says(
            "momentum at rate {}: after {} steps at ({}, {}), loss {}",
            *(0.005, 4, x, y, (x**2 + 100 * y**2) / 2),
        ),
        Scene(
            "",
            {
                **levels,
                "path": Curve(*zip(*path, strict=True), role="gradient"),
                "here": Dot(x, y, size=3, role="gradient"),
                "gone": Text(-1.4, 1.0, "", anchor="start", small=True, shown=False),
                **{
                    f"{k} before": Dot(*path[max(4 - k, 0)], size=1.1, role="data")
                    for k in range(1, 11)
                },
            },
            xlim=(-1.5, 1.5),
            ylim=(-1.2, 1.2),
            axes="box",
            xlabel="x",
            ylabel="y, a hundred times steeper",
        ),
    )


def small_run(seed, lr, warmup):
    """The loss of the last ten of 40 steps, by torch's AdamW without decay."""
    torch.manual_seed(seed)
    config = ModelConfig(
        vocab_size=len(ID), d_model=32, num_layers=1, num_heads=2, d_ff=64, max_seq_len=320,
        tie_embeddings=True,
    )  # fmt: skip
    model = DecoderOnlyTransformer(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                p.normal_(std=1 / math.sqrt(p.shape[1]))
            if name.endswith(("out_proj.weight", "w_down.weight")):
                p.div_(math.sqrt(2))
        model.embed.weight.add_(torch.randn(32) / math.sqrt(32))
    told = stories(f"train {seed}")
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    losses = []
    for step in range(40):
        rows = torch.tensor([[ID[w] for w in next(told).words[:17]] for _ in range(8)])
        optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / max(warmup, 1))
        logp = model(rows[:, :-1]).log_softmax(-1)
        loss = -logp.gather(2, rows[:, 1:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


@check_explorer("explore-rate", {"warm-up": "10 steps"})
def test_the_loss_against_the_rate_with_a_warm_up():
    rates = (0.003, 0.007, 0.015, 0.025, 0.05)
    ends = np.array([[small_run(seed, lr, 10) for lr in rates] for seed in range(3)])
    mean, x = ends.mean(0), np.log10(rates)
    assert mean.argmin() == 3
    without = np.array([[small_run(seed, lr, 0) for lr in rates] for seed in range(3)])
    shapes = {
        "other": Curve(x, without.mean(0), dash=True, role="quiet"),
        "mean": Curve(x, mean, role="data"),
        "best": Dot(x[3], mean[3], size=2.5, role="good"),
        "said": Text(x[3], mean[3] - 0.12, f"{mean[3]:.2f}", strong=True),
    }
    for seed, k in itertools.product(range(3), range(5)):
        name = f"seed {seed} at {rates[k]:g}"
        shapes[name] = Dot(x[k], ends[seed, k], size=1.4, role="quiet")
    return Seen(
        says(
            "Warm-up: {} steps. The best of these rates is {}, with a mean loss of {}. At {} it is "
            "{}; at {} it is {}, from {} to {}",
            *(10, 0.025, mean[3], 0.003, mean[0], 0.05, mean[4]),
            *(ends[:, 4].min(), ends[:, 4].max()),
        ),
        Scene(
            "steps 31 to 40: three seeds, their mean (dashed: the other choice)",
            shapes,
            xlim=(-2.6, -1.22),
            ylim=(0.85, 2.65),
            axes="box",
            xlabel="learning rate",
            ylabel="loss (nats per word)",
            xticks=[(at, f"{lr:g}") for at, lr in zip(x, rates, strict=True)],
        ),
    )


@check_explorer(
    "explore-schedule",
    {"fall": "line", "steps of warm-up": "20", "share at the end": "0.3"},
)
def test_a_line_down_to_a_third():
    steps = np.arange(1, 101)
    rate = np.where(steps <= 20, steps / 20, 0.3 + 0.7 * (100 - steps) / 80)
    return Seen(
        says(
            "line, warm-up over {} of {} steps, down to {}: the first step has {} of the "
            "peak, step {} has {}, the last {}. On average {}",
            *(20, 100, 0.3, rate[0], 50, rate[49], rate[99], rate.mean()),
        ),
        Lines("", steps, {"rate": rate}, "step", "part of the peak"),
    )


@check_explorer(
    "explore-clip", {"first entry": "-1.5", "second entry": "-2", "largest length c": "2"}
)
def test_a_gradient_of_length_two_and_a_half():
    return Seen(
        says(
            "The gradient ({}, {}) has length {} and is shortened to {}: factor {}, ({}, {})",
            *(-1.5, -2, 2.5, 2, 0.8, -1.2, -1.6),
        ),
        Scene(
            "",
            {
                "limit": Circle(0, 0, 2, dash=True, role="quiet"),
                "gradient": Arrow(0, 0, -1.5, -2, "g", role="gradient", dash=True),
                "clipped": Arrow(0, 0, -1.2, -1.6, "clipped", role="data"),
                "c": Text(-2.6, 3.0, "circle: c = 2", role="quiet", small=True),
            },
            xlim=(-3.4, 3.4),
            ylim=(-3.4, 3.4),
            axes="cross",
        ),
    )


def test_the_surprise_of_the_trained_model_is_that_of_its_files():
    """The page starts with the trained model: its mean surprise, by the log of a softmax."""
    config = from_pretrained_config(MODEL / "config.json")
    model = load_hf_state_dict(DecoderOnlyTransformer(config), MODEL).eval().double()
    story = shown_story()
    ids = torch.tensor([[ID[w] for w in story]])
    with torch.no_grad():
        each = F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="none")
    mean = each[53:71].mean().item()
    notebook = (ROOT / "notebooks" / "18_training.ipynb").read_text(encoding="utf-8")
    assert f"the trained model: mean surprise {mean:.2f} nats" in notebook
