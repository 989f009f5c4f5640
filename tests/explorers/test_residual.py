"""The explorers of the chapter on residual connections.

Stacks are written anew, one sequence after the other, differentiated by `backward`, and trained
seed by seed with torch's own modules.
"""

import functools
import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from book.explorer import (
    Arrow,
    Bars,
    Box,
    Curve,
    Grid,
    Lines,
    Points,
    Polygon,
    Scene,
    Segment,
    Text,
)

from .reading import Seen, check_explorer, says

# ---------------------------------------------------------------- a stack before training


def drawn(seed, layers):
    """The chapter's random numbers for one seed: tokens, and four matrices per layer."""
    rng = torch.Generator().manual_seed(seed)
    x = F.layer_norm(torch.randn(8, 32, generator=rng), (32,))
    return x, torch.randn(layers, 4, 32, 32, generator=rng) / math.sqrt(32)


def norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def sizes(layers, post):
    """Root mean squares of the stream and of its gradient, by seed and sub-layer."""
    rng = torch.Generator().manual_seed(1000)
    heads = torch.randn(128, 32, 32, generator=rng) / math.sqrt(32)
    targets = torch.randint(0, 32, (128, 8), generator=rng)
    found = np.zeros((2, 128, 2 * layers + 1))
    for seed in range(128):
        x, matrices = drawn(seed, layers)
        stream = [x.requires_grad_()]
        for value, out, up, down in matrices:
            x, uniform = stream[-1], torch.full((8, 8), 1 / 8)
            mixed = uniform @ (x if post else norm(x)) @ value @ out
            stream.append(norm(x + mixed) if post else x + mixed)
            x = stream[-1]
            fed = ((x if post else norm(x)) @ up).clamp(min=0) @ down
            stream.append(norm(x + fed) if post else x + fed)
        for level in stream:
            level.retain_grad()
        logits = (stream[-1] if post else norm(stream[-1])) @ heads[seed]
        (logits.logsumexp(1) - logits[range(8), targets[seed]]).mean().backward()
        for k, level in enumerate(stream):
            found[0, seed, k] = level.detach().square().mean().sqrt()
            found[1, seed, k] = level.grad.square().mean().sqrt()
    return found


def pipe(sizes, middle):
    """Corners of a pipe that is as wide as the logarithm, 1 for size 1 and 2 at most."""
    places = np.linspace(0, len(sizes) - 1, 5)
    half = np.interp(places, np.arange(len(sizes)), np.log10(sizes)) / 8 + 1
    half = np.clip(half, 0.03, 2)
    y = 1.2 + 7.6 * places / (len(sizes) - 1)
    right = list(zip(middle + half, y, strict=True))
    left = list(zip(middle - half, y, strict=True))
    return right + left[::-1]


@check_explorer("explore-stack", {"around each sub-layer": "Post-Norm", "layers": "8"})
def test_eight_layers_of_post_norm():
    signal, gradient = np.exp(np.log(sizes(8, post=True)).mean(1))
    gradient = gradient / gradient[-1]
    shapes = {
        "up": Polygon(pipe(signal, 2.5), role="data"),
        "down": Polygon(pipe(gradient, 7.5), role="gradient"),
        "out": Text(2.5, 9.15, f"{signal[-1]:.2f}"),
        "in": Text(2.5, 0.8, f"{signal[0]:.2f}"),
        "arrives": Text(7.5, 0.8, f"{gradient[0]:.2f}"),
        "starts": Text(7.5, 9.15, "1.00"),
        # The middle line, where the width is zero, and a ruler of powers of ten from there.
        "zero 2.5": Segment(2.5, 1.2, 2.5, 8.8, role="quiet"),
        "2.5 ten to -4": Segment(3.0, 0.1, 3.0, -0.1, role="quiet"),
        "7.5 ten to 2": Segment(8.75, 0.1, 8.75, -0.1, role="quiet"),
        "2.5 ten to -8 said": Text(2.5, -0.45, "10⁻⁸", role="quiet", small=True),
        "7.5 ten to 8 said": Text(9.5, -0.45, "10⁸", role="quiet", small=True),
    }
    return Seen(
        says(
            "Post-Norm, {} layers: a signal of size {} arrives at the top with size {}. A gradient "
            "of size {} at the top arrives at the bottom with size {}",
            *(8, 1, signal[-1], 1, gradient[0]),
        ),
        Scene("", shapes, xlim=(0, 10), ylim=(-1.4, 10)),
    )


# ---------------------------------------------------------------- spirals


class Net(nn.Module):
    """A stack for one seed; the numbers are handed to it."""

    def __init__(self, depth, add):
        super().__init__()
        self.add = add
        self.first = nn.Linear(2, 16)
        self.up = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(depth))
        self.head = nn.Linear(16, 2, bias=False)

    def forward(self, points, without=None):
        x = self.first(points)
        for k, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            if k == without:
                continue
            branch = down(F.relu(up(F.layer_norm(x, (16,)))))
            x = x + branch if self.add else branch
        return self.head(F.layer_norm(x, (16,)))


def spirals():
    t = torch.linspace(0.15, 1, 32)
    arm = torch.polar(t, 3 * math.pi * t)
    arm = torch.view_as_real(arm)
    return torch.cat([arm, -arm]), torch.tensor([0] * 32 + [1] * 32)


@functools.cache
def trained(depth, add, seed):
    """One network, and its losses."""
    rng = torch.Generator().manual_seed(seed)
    net, losses = Net(depth, add), []
    (points, kinds), draw = spirals(), functools.partial(torch.randn, generator=rng)
    with torch.no_grad():
        net.first.weight.copy_(draw(2, 16).T), net.first.bias.copy_(draw(1, 16)[0])
        for up, down in zip(net.up, net.down, strict=True):
            up.weight.copy_(draw(16, 16).T * (2 / 16) ** 0.5)
            down.weight.copy_(draw(16, 16).T / 4)
            draw(1, 16), up.bias.zero_()
        net.head.weight.copy_(draw(16, 2).T / 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3, fused=True)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, 150)
    for _ in range(150):
        loss = F.cross_entropy(net(points), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(), falling.step()
        losses.append(loss.item())
    return net, losses


def picture(net, without=None):
    """The points that the network gets right, by spiral, and those that it gets wrong."""
    points, kinds = spirals()
    with torch.no_grad():
        first = net(points, without).diff(dim=1)[:, 0] <= 0
    correct, groups = first == (kinds == 0), {}
    for name, mine in (
        ("spiral 1, right", correct & first),
        ("spiral 2, right", correct & ~first),
        ("wrong", ~correct),
    ):
        shown = np.where(mine[:, None], points, np.nan)
        groups[name] = (shown[:, 0], shown[:, 1])
    return Points(
        "the training points, and the first network",
        groups,
        "first coordinate",
        "second coordinate",
        equal=True,
    )


def right(net, without=None):
    points, kinds = spirals()
    with torch.no_grad():
        return (net(points, without).argmax(1) == kinds).double().mean().item()


@check_explorer(
    "explore-spirals",
    {"a block computes": "x + F(norm(x))", "blocks": "4", "learning rate": "0.008"},
)
def test_four_blocks_with_the_addition():
    nets, losses = zip(*(trained(4, True, seed) for seed in range(3)), strict=True)
    share = sum(right(net) for net in nets) / 3
    return Seen(
        says(
            "x + F(norm(x)), {} blocks, rate {}: after {} steps three networks have training "
            "losses of {}, {} and {}, and get {} of the training points right",
            *(4, 0.008, 150, *(curve[-1] for curve in losses), share),
        ),
        picture(nets[0]),
        Lines(
            "training loss",
            range(1, 151, 5),
            {f"seed {seed}": curve[::5] for seed, curve in enumerate(losses)},
            "step",
            "loss",
            yscale="log",
        ),
    )


@check_explorer(
    "explore-delete",
    {"network": "16 blocks with the addition", "block removed": "5"},
)
def test_one_of_sixteen_blocks_is_removed():
    net, _ = trained(16, True, 0)
    shares, blocks = [right(net, block) for block in range(16)], range(1, 17)
    return Seen(
        says(
            "16 blocks with the addition, without block {}: the first network gets {} of its "
            "training points right. Over all blocks, the median without one is {}",
            *(5, shares[4], float(np.median(shares))),
        ),
        picture(net, 4),
        Points(
            "right without this block",
            {
                "share": (blocks, [s if k != 4 else math.nan for k, s in enumerate(shares)]),
                "the one removed": (
                    blocks,
                    [s if k == 4 else math.nan for k, s in enumerate(shares)],
                ),
            },
            "block removed",
            "share of points right",
        ),
    )


# ---------------------------------------------------------------- by hand, and one block


def boxes(name, y, shares):
    """Pieces of a bar of length 10, with what they answer."""
    left, made = 0.0, {}
    for k, share in enumerate(shares):
        label = ("x" if k == 0 else str(k)) if share > 0.05 else ""
        what = "the input" if k == 0 else f"branch {k}"
        made[f"{name} {k}"] = Box(
            left,
            y,
            10 * share,
            1.0,
            label=label,
            role="data" if k == 0 else "value",
            fill=0.9 if k == 0 else 0.15 + 0.3 * (k % 2),
            detail=f"{name}: {what} has 1/{round(1 / share)}",
        )
        left += 10 * share
    return made


@check_explorer("explore-shares", {"branches added": "3"})
def test_what_the_stream_is_made_of_after_three_branches():
    doubling, equal = [1 / 8, 1 / 8, 1 / 4, 1 / 2], [1 / 4] * 4
    shapes = {
        **boxes("addition, no norm", 5.4, doubling),
        **boxes("Pre-Norm", 3.2, equal),
        **boxes("Post-Norm", 1.0, doubling),
        "addition, no norm size": Text(10, 6.75, "variance 8", anchor="end", role="quiet"),
        "Pre-Norm size": Text(10, 4.55, "variance 4", anchor="end", role="quiet"),
        "Post-Norm size": Text(10, 2.35, "variance 1", anchor="end", role="quiet"),
    }
    rest = itertools.product(("addition, no norm", "Pre-Norm", "Post-Norm"), range(4, 6))
    shapes |= {f"{name} {k}": Box(0, 0, 0, 0, shown=False) for name, k in rest}
    return Seen(
        says(
            "After {} branches, as shares of the variance. addition, no norm: variance {}, input "
            "{}/{}, newest {}/{}; Pre-Norm: variance {}, input {}/{}, newest {}/{}; Post-Norm: "
            "variance {}, input {}/{}, newest {}/{}",
            *(3, 8, 1, 8, 1, 2, 4, 1, 4, 1, 4, 1, 1, 8, 1, 2),
        ),
        Scene("", shapes, xlim=(0, 10), ylim=(0.6, 7.2)),
    )


@check_explorer("explore-block", {"placement": "norm at both ends"})
def test_a_block_with_two_norms():
    torch.manual_seed(15)
    x = 3 * norm(torch.randn(64))
    up, down = torch.randn(64, 64) / 8, torch.randn(64, 64) / 8

    def size(row):
        return (row.square().sum() / 64).sqrt().item()

    read = norm(x)
    made = (read @ up).clamp(min=0) @ down
    total = x + norm(made)
    rows = [46.0 * k for k in range(6)]  # from the bottom: boxes of 25, and 21 between them
    shapes = {
        "x": Text(2, 12, f"x: size {size(x):.2f}", anchor="start", role="data"),
        "output": Text(2, rows[5] - 1 + 12, f"next x: size {size(total):.2f}", anchor="start",
                       role="data"),
        "sum": Box(0, rows[4], 24, 24, label="+"),
        "to sum 0": Arrow(12, 25, 12, rows[4], role="data", strong=True),
        "to sum 1": Arrow(171, rows[4] + 12, 24, rows[4] + 12, role="data"),
        "to output 0": Arrow(12, rows[4] + 24, 12, rows[5] - 1, role="data", strong=True),
        "size of sum": Text(0, 0, "", shown=False),  # the next x says it
        "way 0": Curve([12, 171, 171], [38, 38, 38], role="data"),
        "to norm 1": Arrow(171, 38, 171, rows[1], role="data"),
        "to sublayer 0": Arrow(171, rows[1] + 25, 171, rows[2], role="data"),
        "to second 0": Arrow(171, rows[2] + 25, 171, rows[3], role="data"),
        "way 1": Curve([171, 171, 171], [rows[3] + 25, rows[4] + 12, rows[4] + 12], role="data"),
        "to sublayer 1": Arrow(0, 0, 0, 0, shown=False),
        "to norm 0": Arrow(0, 0, 0, 0, shown=False),
    }  # fmt: skip
    passed = (("norm", x, read), ("sublayer", read, made), ("second", made, norm(made)))
    for y, (name, given, out) in zip(rows[1:], passed, strict=False):
        shapes[name] = Box(
            20, y, 302, 25, label="sub-layer F" if name == "sublayer" else "Norm",
            role="value" if name == "sublayer" else "key", fill=0.25,
            detail=f"size {size(given):.2f} in, size {size(out):.2f} out",
        )  # fmt: skip
        shapes[f"size of {name}"] = Text(
            178, y + 34, f"size {size(out):.2f}", anchor="start", role="data", small=True
        )
    return Seen(
        says(
            "norm at both ends: the stream comes with size {}, the sub-layer reads size {}, what "
            "is added has size {}, and the stream leaves with size {}. On its way it is only added "
            "to",
            *(size(x), size(read), 1.0, size(total)),
        ),
        Scene("", shapes, xlim=(0, 322), ylim=(-2, 257)),
    )


# ---------------------------------------------------------------- a trained stream


class Adder(nn.Module):
    """Four Pre-Norm layers with their first seed's numbers; one row of six digits at a time."""

    def __init__(self):
        super().__init__()
        rng = torch.Generator().manual_seed(0)

        def new(*shape, scale):
            return nn.Parameter(scale * torch.randn(shape, generator=rng))

        self.tokens, self.positions = new(5, 32, scale=1.0), new(6, 32, scale=1.0)
        self.layers = nn.ParameterList(new(32, 32, scale=32**-0.5) for _ in range(24))
        self.head = new(32, 5, scale=32**-0.5)

    def forward(self, digits, without=None):
        """The logits (levels, rows, 6, 5) that are read from the stream at each level."""
        return norm(self.levels(digits, without)) @ self.head

    def levels(self, digits, without=None):
        """The stream (levels, rows, 6, 32) before the first and after each sub-layer."""
        x = norm(self.tokens[digits] + self.positions)
        levels = [x]
        for k in range(4):
            wq, wk, wv, wo, up, down = self.layers[6 * k : 6 * k + 6]
            u = norm(x)
            scores = (u @ wq) @ (u @ wk).mT / math.sqrt(32)
            future = torch.ones(6, 6, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(future, -math.inf).softmax(-1)
            if without != 2 * k:
                x = x + weights @ (u @ wv) @ wo
            levels.append(x)
            if without != 2 * k + 1:
                x = x + (norm(x) @ up).clamp(min=0) @ down
            levels.append(x)
        return torch.stack(levels)


def leads(model, row, without):
    """What each writing adds to the lead of the right answer: the change, with the top's norm."""
    levels = model.levels(row, without)[:, 0]
    spread = (levels[-1].var(-1, correction=0) + 1e-5).sqrt()[:, None]
    logits = (levels - levels.mean(-1, keepdim=True)) / spread @ model.head
    lead = logits[:, range(6), sums(row)[0]] - logits.mean(-1)
    return torch.diff(lead.mean(1), prepend=torch.zeros(1)).tolist()


def sums(digits):
    return (digits + torch.cat([digits[:, :1], digits[:, :-1]], 1)) % 5


@check_explorer("explore-stream", {"sub-layer removed": "feed-forward 1"})
def test_what_the_stream_says_without_the_first_feed_forward_layer():
    model, data = Adder(), torch.Generator().manual_seed(7)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    for step in range(1, 201):
        digits = torch.randint(0, 5, (16, 6), generator=data)
        loss = F.cross_entropy(model(digits)[-1].mT, sums(digits))
        optimizer.param_groups[0]["lr"] = 6e-3 * min(1, step / 20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    row = torch.tensor([[3, 1, 4, 1, 0, 2]])
    with torch.no_grad():
        said = model(row, without=1)[:, 0].softmax(-1)
        terms = leads(model, row, 1)
    target = sums(row)[0]
    chance = said[:, range(6), target].flip(0)
    answers, names = said[-1].argmax(-1), [
        f"{kind} {n}" for n in (4, 3, 2, 1) for kind in ("feed-forward", "attention")
    ]  # fmt: skip
    names.append("input")

    return Seen(
        says(
            "Without feed-forward {}: at the top the stream says {} {} {} {} {} {}, right at {} of "
            "{} places. The right answer has a probability of {} at the input, {} half-way up and "
            "{} at the top",
            *(1, *answers.tolist(), int((answers == target).sum()), 6),
            *(chance[k].mean().item() for k in (-1, 4, 0)),
        ),
        Grid(
            "probability of the right answer",
            chance,
            rows=names,
            columns=["3+3", "3+1", "1+4", "4+1", "1+0", "0+2"],
            text="{:.0%}",
            limits=(0, 1),
            role="data",
            xlabel="digit before + digit",
        ),
        Bars(
            "what each adds to the right answer's lead over the mean logit",
            ["in", *(f"{kind}{n}" for n in (1, 2, 3, 4) for kind in "AF")],
            {"share": terms},
            "input, attention, feed-forward",
            "mean over the places",
        ),
    )


# ---------------------------------------------------------------- paths


@check_explorer("explore-paths", {"path": "through 1 and 3"})
def test_a_path_through_two_of_three_blocks():
    """The sum over all subsets of the blocks is what a stack of linear layers gives."""
    stack = [nn.Linear(1, 1, bias=False) for _ in range(3)]
    x = torch.ones(1)
    with torch.no_grad():
        for layer, slope in zip(stack, (0.1, 0.2, 0.3), strict=True):
            layer.weight.fill_(slope)
            x = x + layer(x)
    subsets = [set(s) for n in range(4) for s in itertools.combinations(range(3), n)]
    products = [math.prod((0.1, 0.2, 0.3)[k] for k in s) for s in subsets]
    assert math.isclose(sum(products), x.item())
    shapes = {
        "sum": Text(5, 1.3, f"sum: {x.item():.3f}", anchor="start", role="data"),
        "out": Text(1.2, 9.7, f"output: {x.item():.3f}", role="data"),
    }
    for row, (subset, product) in enumerate(zip(subsets, products, strict=True)):
        number = sum(2**k for k in subset)
        factors = [f"{(0.1, 0.2, 0.3)[k]}" if k in subset else "1" for k in range(3)]
        lit = subset == {0, 2}
        shapes[f"path {number}"] = Text(
            5, 8.9 - 0.9 * row, f"{' · '.join(factors)} = {product:g}", anchor="start",
            role="data" if lit else "quiet", strong=lit, sets={"path": number},
        )  # fmt: skip
    for k, on in enumerate((True, False, True)):
        low, other = 0.9 + 2.8 * k, {"path": 5 ^ 2**k}
        lit = {"strong": on, "faint": not on, "role": "data", "sets": other}
        gone = {"strong": not on, "faint": on, "role": "data", "sets": other}
        shapes |= {
            f"past {k}": Segment(1.2, low, 1.2, low + 2.3, **gone),
            f"through {k}": Curve([1.2, 3, 3, 1.2], [low, low + 0.3, low + 2, low + 2.3], **lit),
            f"block {k}": Box(2.1, low + 0.7, 1.8, 0.9, label=f"· 0.{k + 1}", role="value",
                              fill=0.7 if on else 0.1, sets=other,
                              detail=f"block {k + 1}: slope 0.{k + 1}"),
        }  # fmt: skip
    terms = (1, 0.1, 0.2, 0.3, 0.02, 0.03, 0.06, 0.006)
    assert np.allclose(terms, products)
    return Seen(
        says(
            "The path through {} and {} brings {} of the input to the top. All eight bring "
            "{} + {} + {} + {} + {} + {} + {} + {} = {}, and the stack gives {}",
            *(1, 3, 0.1 * 0.3, *terms, sum(products), x.item()),
        ),
        Scene("", shapes, xlim=(0, 10), ylim=(0, 10)),
    )
