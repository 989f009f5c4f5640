"""The explorers of chapter 15: sampling and sizes by hand, the ladder by training again."""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

from book.diagram.models import WATCHED, WithSoftmax
from book.diagram.trace import trace
from book.diagram.view import fold
from book.explorer import Bars, Grid, Lines, Points
from book.facts import fact
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig

from .blocks import attend, drawn, feed_forward, past, waves
from .reading import Seen, check_explorer, says
from .test_map import panels


@check_explorer("block", {"part": "RMSNorm"})
def test_the_decoder_at_the_top_with_two_blocks_instead_of_all():
    config = ModelConfig(128_256, 4096, 2, 32, num_kv_heads=8, d_ff=14_336)
    with torch.device("meta"):
        model = WithSoftmax(DecoderOnlyTransformer(config))
        tokens = {"tokens": torch.zeros(1, 5, dtype=torch.long)}
        gains = sum(p.numel() for p in torch.nn.RMSNorm(4096).parameters())
    graph = fold(trace(model, tokens, watch=WATCHED))
    opened = ["model", "model.layers.0", "model.layers.0.attn", "model.layers.0.ffn"]
    norms = 2 * fact("llama-3-8b", "num_layers") + 1
    said = says(
        "RMSNorm brings each row to root mean square {} ... T × {} in, T × {} out; {} learned "
        "numbers. It stands here {} times; chapter {} is about it",
        *(1, 4096, 4096, gains, norms, 8),
    )
    return Seen(said, *panels(graph, opened, {5: "T"}, "rms norm"))


@check_explorer(
    "explore-sampling",
    {
        "model": "unsure",
        "temperature": "0.7",
        "filter": "min-p 0.5",
        "order": "temperature last",
    },
)
def test_temperature_after_min_p():
    logits = np.array([2.0, 1.8, 1.5, 1.2, 0.9, 0.6, 0.3, 0.0, -0.3, -0.7, -1.1, -1.6])
    own = np.exp(logits) / np.exp(logits).sum()
    kept = sum(1 for p in own if p >= 0.5 * max(own))
    drawn_from = np.full(12, math.nan)  # no bars for what is removed
    drawn_from[:kept] = own[:kept] ** (1 / 0.7)
    drawn_from /= np.nansum(drawn_from)

    def entropy(p):
        return -sum(x * math.log(x) for x in p if x > 0)

    return Seen(
        says(
            "Temperature {} last, filter min-p {}: {} of {} tokens kept, with {} of the model's "
            "own probability; entropy {} nats instead of {}",
            *(0.7, 0.5, kept, 12, own[:kept].sum(), entropy(drawn_from), entropy(own)),
        ),
        Bars(
            "probability of each token",
            [str(rank) for rank in range(1, 13)],
            {"the model's own": own, "drawn from": drawn_from},
            "token, by rank",
            "probability",
        ),
    )


@check_explorer(
    "explore-switches",
    {
        "feed-forward": "SwiGLU, 14336",
        "key-value heads": "8",
        "vocabulary": "128,256",
        "head": "tied",
        "biases": "QKV",
    },
)
def test_the_sizes_of_a_model_of_width_4096():
    width, hidden, groups, head = 4096, 14336, 8, 128
    projections = [(width, width), (groups * head, width), (groups * head, width), (width, width)]
    matrices = [(hidden, width), (hidden, width), (width, hidden)]
    biases, gains = width + 2 * groups * head, 2 * width
    table = 128_256 * width  # once: the head is the embedding
    attention, inner = (32 * sum(a * b for a, b in each) for each in (projections, matrices))
    old = [2 * 32_000 * width, 32 * 4 * width**2, 32 * 3 * width * 11008]  # at the start
    rest = 32 * (biases + gains) + width
    total = table + attention + inner + rest
    cache = 32 * 2 * groups * head * 2  # bytes per token
    context = [1024, 4096, 16384, 65536]
    products = 2 * (attention + inner + table)
    work = [(products + 32 * 2 * (2 * width * length)) / 1e9 for length in context]
    lengths = ["1k", "4k", "16k", "64k"]
    return Seen(
        says(
            "{} billion parameters, {} million of them gains and biases; {} KiB of cache per token "
            "in {} bit; {} GFLOP per token at {} tokens of context, {} at {}",
            *(total / 1e9, rest / 1e6, cache // 1024, 16, work[1], 4096, work[3], 65536),
        ),
        Bars(
            "parameters, billions",
            ["tables", "attention", "feed-forward"],
            {
                "as chosen": [table / 1e9, attention / 1e9, inner / 1e9],
                "at the start": [n / 1e9 for n in old],
            },
            "part",
            "billions",
        ),
        Bars(
            "cache of one sequence, GiB",
            lengths,
            {
                "as chosen": [cache * length / 2**30 for length in context],
                "at the start": [4 * cache * length / 2**30 for length in context],
            },
            "tokens of context",
            "GiB",
        ),
        Bars(
            "operations per token, GFLOP",
            lengths,
            {
                "as chosen": work,
                "at the start": [
                    (2 * (sum(old) - 32_000 * width) + 32 * 4 * width * length) / 1e9
                    for length in context
                ],
            },
            "tokens of context",
            "GFLOP",
        ),
    )


RULE = torch.randint(8, (8, 8), generator=torch.Generator().manual_seed(0))


def sentences(count, length, generator):
    """The chapter's data: a word follows from two before it, four times of five."""
    x = torch.randint(8, (count, length), generator=generator)
    obey = torch.rand(count, length, generator=generator) < 1 - 0.2
    for t in range(3, length):
        x[:, t] = torch.where(obey[:, t], RULE[x[:, t - 1], x[:, t - 3]], x[:, t])
    return x


def logits(w, tokens, first, kind):
    """A decoder of two layers; the norm stands before each block (first) or after it."""

    def norm(name, x):
        if kind == "rms":
            return F.rms_norm(x, (32,), w[f"{name}.weight"], 1e-6)
        return F.layer_norm(x, (32,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    length = tokens.shape[1]
    x = w["embed.weight"][tokens] * math.sqrt(32) + waves(length, 32)
    for layer in ("layers.0", "layers.1"):
        blocks = {
            f"{layer}.attn": lambda name, x: attend(w, name, x, x, 4, past(length)),
            f"{layer}.ffn": functools.partial(feed_forward, w),
        }
        for name, block in blocks.items():
            if first:
                x = x + block(f"{name}.sublayer", norm(f"{name}.norm", x))
            else:
                x = norm(f"{name}.norm", x + block(f"{name}.sublayer", x))
    return (norm("norm", x) if first else x) @ w["lm_head.weight"].T


def curve(seed, hidden, first, kind):
    """The excess over the entropy of the data, every 16 of 80 steps."""
    torch.manual_seed(seed)
    options = {"norm": kind, "norm_first": first, "gated": False, "activation": "relu"}
    biases = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
    config = ModelConfig(8, 32, 2, 4, d_ff=hidden, position="sinusoidal", **options, **biases)
    w = drawn(DecoderOnlyTransformer(config))
    optimizer = torch.optim.Adam(w.values(), fused=True)
    data, test = torch.Generator().manual_seed(100 + seed), torch.Generator().manual_seed(1)
    x = sentences(64, 16, test)
    truth = torch.full((8, 8, 8), 0.2 / 8).scatter_add(
        2, RULE[..., None], torch.full((8, 8, 1), 0.8)
    )
    p, found = truth[x[:, 2:], x[:, :-2]], []
    for step in range(81):
        if step % 16 == 0:
            with torch.no_grad():
                q = logits(w, x, first, kind)[:, 2:].log_softmax(-1)
            found.append(F.kl_div(q, p, reduction="none").sum(-1).mean().item())
        optimizer.param_groups[0]["lr"] = 0.01 * min(1, (step + 1) / 10) * (1 - step / 80)
        batch = sentences(16, 16, data)
        scores = logits(w, batch[:, :-1], first, kind)[:, 2:]
        loss = -scores.log_softmax(-1).gather(-1, batch[:, 3:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


def parameters(hidden, first, kind):
    block = 4 * (32 * 32 + 32) + (32 * hidden + hidden) + (hidden * 32 + 32)
    norms = 2 * 2 + (1 if first else 0)
    return 2 * 8 * 32 + 2 * block + norms * (64 if kind == "layer" else 32)


@check_explorer("explore-ladder", {"change": "2 RMSNorm", "seed": "1"})
def test_the_first_two_steps_of_the_ladder():
    steps = [(False, "layer"), (True, "layer"), (True, "rms")]
    goal = parameters(64, *steps[0])
    widths = [min(range(40, 70), key=lambda n: abs(parameters(n, *s) - goal)) for s in steps]
    curves = [
        [curve(seed, width, *step) for seed in range(3)]
        for width, step in zip(widths, steps, strict=True)
    ]
    ends = [[run[-1] for run in runs] for runs in curves]
    original, before, now = (runs[1] for runs in curves)
    later = [math.nan] * 5  # no dots yet
    return Seen(
        says(
            "After RMSNorm, seed {}: excess {} nats, the change before {}; over the seeds {} to "
            "{}. {} parameters, {} bytes of cache per token in {} bit",
            *(1, now[-1], before[-1], min(ends[2]), max(ends[2])),
            *(parameters(widths[2], *steps[2]), 2 * 2 * 32 * 2, 16),
        ),
        Lines(
            "learning curve",
            range(0, 81, 16),
            {"this change": now, "the change before": before, "original": original},
            "training step",
            "excess loss, nats",
        ),
        Points(
            "excess at the end, by change",
            {
                "others": (
                    [*range(8), *range(8)],
                    [y for k in (0, 2) for y in (*(runs[k] for runs in ends), *later)],
                ),
                "this seed": (range(8), [*(runs[1] for runs in ends), *later]),
            },
            "change; 4 is RoPE",
            "excess loss, nats",
            xlim=(-1.7, 7.4),
            ylim=(0, 0.9),
        ),
    )


@check_explorer("explore-window", {"window, w": "4", "layers, L": "2"})
def test_how_far_two_layers_with_a_window_of_four_reach():
    """Which inputs have a gradient at the last position, through attention that is real."""
    T, window, layers = 12, 4, 2
    mask = np.array([[m - window < n <= m for n in range(T)] for m in range(T)])
    x = stream = torch.randn(T, 3, requires_grad=True)
    reached = np.full((6, T), math.nan)  # empty for layers that the model does not have
    for n in range(layers):
        scores = (stream @ stream.T / 10).masked_fill(~torch.tensor(mask), -torch.inf)
        stream = stream + scores.softmax(-1) @ stream
        (slope,) = torch.autograd.grad(stream[-1].sum(), x, retain_graph=True)
        reached[n] = (slope.abs().sum(1) > 0).numpy()
    reach = reached[layers - 1]
    return Seen(
        says(
            "A window of {}: the last query sees {} positions, and after {} layers its output "
            "depends on {}, from position {} on",
            *(window, int(mask[-1].sum()), layers, int(reach.sum()), int(reach.argmax())),
        ),
        Grid(
            "what position 11 depends on",
            reached,
            ["1 layer", "2 layers", "3 layers", "4 layers", "5 layers", "6 layers"],
            [str(t) for t in range(T)],
            text=lambda v: "✓" if v else "",
            xlabel="position",
            limits=(0, 1),
        ),
    )
