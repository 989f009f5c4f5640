"""The explorers of chapter 12: frequencies by their formulas, a reader that is trained anew."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from book.explorer import Box, Curve, Dot, Lines, Scene, Segment, Text
from transformer_parts.long_context import ntk_aware_base
from transformer_parts.rope import rope_frequencies

from .reading import Seen, check_explorer, says


@check_explorer("explore-rows", {"method": "NTK", "trained length": "4,096", "times longer": "8"})
def test_a_larger_base_keeps_only_the_last_pair_in_its_range():
    larger = 10_000 * 8 ** (128 / 126)
    before = np.array([2 * math.pi * 10_000 ** (k / 64) for k in range(64)])
    after = np.array([2 * math.pi * larger ** (k / 64) for k in range(64)])
    slow = before > 4096
    # In 8 * 4,096 positions a slow pair turns further than in training, or not.
    lost = slow & (8 * 4096 / after > (1 + 1e-9) * 4096 / before)
    assert (slow.sum(), lost.sum()) == (18, 17)
    here = math.log10(4096)
    shapes = {
        "unseen": Box(here, -66, 6.4 - here, 69, fill=0.12),
        "before": Curve(np.log10(before), [-k for k in range(64)]),
        "trained": Segment(here, -66, here, 3),
        "handle": Dot(here, -58, size=2),
        "length": Text(here - 0.45, -58, "4,096"),
    }
    for j, name in enumerate(("none", "PI", "NTK", "by parts")):
        fill = 0.3 if name == "NTK" else None
        place = (0.65 + 1.42 * j, 5, 1.36, 9)
        shapes[name] = Box(*place, name, fill=fill, strong=name == "NTK")
    slower = after / before
    # Pair 46 is the first slow one; 8 times as slow, three doublings, are needed.
    by = {
        "slow": Box(-0.4, -66, 5.8, 20.5, fill=0.12),
        "needed": Segment(3, -66, 3, -45.5),
        "name": Text(3.15, -55.75, "needed"),
    }
    for j, name in enumerate(("full turns", "in range", "new angles")):
        by[f"mark {j}"] = Dot(1.9 * j - 0.2, 9, size=(0.25, 0.4, 0.9)[j])
        by[f"mark of {name}"] = Text(1.9 * j, 9, name)
    for k in range(64):
        role, size = ("bad", 0.9) if lost[k] else ("good", 0.4) if slow[k] else ("data", 0.25)
        shapes[f"pair {k}"] = Dot(math.log10(after[k]), -k, size=size, role=role)
        by[f"pair {k}"] = Dot(math.log2(slower[k]), -k, size=size, role=role)
    ends = (("10", "100", "1,000", "10⁴", "10⁵", "10⁶"), (0, 16, 32, 48, 63))
    return Seen(
        says(
            "Trained on {} positions, {} of {} pairs never made a full turn. Read at {} positions "
            "with the NTK-aware base, {} of them meet angles they never saw. The fastest pair's "
            "frequency is divided by {}, the middle one's by {}, the slowest's by {}",
            *(4096, 18, 64, 8 * 4096, 17, slower[0], slower[32], slower[63]),
        ),
        Scene(
            "positions in a full turn",
            shapes,
            xlim=(0.6, 6.4),
            ylim=(-66, 15),
            xlabel="positions",
            ylabel="pair, from fast to slow",
            axes="box",
            equal=False,
            xticks=list(enumerate(ends[0], 1)),
            yticks=[(-k, str(k)) for k in ends[1]],
        ),
        Scene(
            "what each frequency is divided by",
            by,
            xlim=(-0.4, 5.4),
            ylim=(-66, 15),
            xlabel="divided by",
            ylabel="pair, from fast to slow",
            axes="box",
            equal=False,
            xticks=list(enumerate(("1", "2", "4", "8", "16"))),
            yticks=[(-k, str(k)) for k in ends[1]],
        ),
    )


def test_the_numbers_of_the_methods_at_four_times_the_length():
    """NTK-aware: base 40,890, and pairs that turn 1.00, 2.02 and 4.00 times slower."""
    base = ntk_aware_base(10_000, 4, 128)
    assert round(base) == 40_890
    slower = rope_frequencies(128, 10_000) / rope_frequencies(128, base)
    assert [round(slower[k].item(), 2) for k in (0, 32, 63)] == [1.0, 2.02, 4.0]


@check_explorer(
    "explore-methods",
    {"model": "Llama 3: 128, 500,000, 8192", "method": "NTK-aware", "scale": "8"},
)
def test_a_larger_base_slows_only_the_last_pair_enough():
    base, trained, scale = 500_000, 8192, 8
    larger = base * scale ** (128 / 126)
    divided = [(larger / base) ** (k / 64) for k in range(64)]
    met = [min(1, trained * base ** (-k / 64) / (2 * math.pi)) for k in range(64)]
    reached = [min(1, trained * scale * larger ** (-k / 64) / (2 * math.pi)) for k in range(64)]
    alone = sum(by == 1 for by in divided)
    whole = sum(by > scale - 1e-6 for by in divided)
    lost = sum(m < 1 and r > m + 1e-9 for m, r in zip(met, reached, strict=True))
    return Seen(
        says(
            "NTK-aware, scale {}, {} pairs. Left as they are: {}. Divided by {} or more: {}. "
            "At angles that they never saw: {}",
            *(scale, 64, alone, scale, whole, lost),
        ),
        Lines(
            "share of the circle: met in training, and reached now",
            range(30, 64),
            {"met in training": met[30:], "reached at the new length": reached[30:]},
            "pair, from fast to slow",
            "turns, at most one",
        ),
    )


@check_explorer(
    "explore-ramps",
    {"base": "100,000", "training length": "8192", "beta, turns": "16", "scale": "4"},
)
def test_two_ramps_called_yarn():
    base, trained, beta, scale = 100_000, 8192, 16, 4
    turns = [trained * base ** (-k / 64) / (2 * math.pi) for k in range(64)]
    paper = np.array([min(1, max(0, (r - 1) / (beta - 1))) for r in turns])
    # The published code is linear in the pair, from the whole pair before beta turns to the one
    # after a single turn.
    low = max(k for k in range(64) if turns[k] >= beta)
    high = min(k for k in range(64) if turns[k] <= 1)
    code = np.array([min(1, max(0, (high - k) / (high - low))) for k in range(64)])
    above = (code + (1 - code) / scale) / (paper + (1 - paper) / scale) - 1
    return Seen(
        says(
            "Base {}, trained on {}, beta {}, scale {}: the code's frequencies lie up to {} above "
            "the paper's, most at pair {} of {}",
            *(base, trained, beta, scale, above.max(), int(above.argmax()), 64),
        ),
        Lines(
            "share of the frequency that is kept",
            range(64),
            {"paper": paper, "code": code},
            "pair",
            "share",
        ),
        Lines(
            "the code's frequency above the paper's",
            range(64),
            {"difference": 100 * above},
            "pair",
            "per cent",
        ),
    )


def questions(count, length, seed):
    """The chapter's task: symbols, kinds of question, answers; eight facts come first."""
    g = torch.Generator().manual_seed(seed)
    symbol = torch.randint(8, (count, length), generator=g)
    order = torch.rand(count, 8, generator=g).argsort(-1)
    value = symbol[:, :8].gather(1, order.argsort(-1))
    name = torch.randint(8, (count, length), generator=g)
    far = torch.rand(count, length, generator=g) < 0.5
    kind = torch.where(far, 1 + name, 0)
    kind[:, :8] = 9 + order
    answer = torch.where(far, value.gather(1, name), symbol.roll(3, 1))
    answer[:, :8] = -100
    return symbol, kind, answer


class Reader(nn.Module):
    """One layer of two heads; its weights are drawn in the order of the chapter's."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 32), nn.Embedding(17, 32)
        linear = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False), nn.Linear(32, 8)
        self.layers = nn.ModuleList([*self.embed, *linear])
        self.gains = nn.Parameter(torch.ones(2, 32))

    def forward(self, symbol, kind, frequencies):
        symbols, kinds, projection, out, answer = self.layers
        batch, length = symbol.shape
        x = symbols(symbol) + kinds(kind)
        rows = projection(F.rms_norm(x, (32,), self.gains[0])).view(batch, length, 3, 2, 16)
        q, k, v = rows.permute(2, 0, 3, 1, 4)
        angles = torch.arange(length)[:, None] * frequencies
        turn = torch.polar(torch.ones_like(angles), angles)
        q, k = (torch.view_as_complex(t.unflatten(-1, (8, 2)).contiguous()) * turn for t in (q, k))
        scores = (q @ k.mT.conj()).real / 4
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
        x = x + out(mixed.transpose(1, 2).reshape(batch, length, 32))
        return answer(F.rms_norm(x, (32,), self.gains[1]))


def trained_reader():
    torch.manual_seed(0)
    reader = Reader()
    frequencies = 100.0 ** (-torch.arange(8) / 8)
    optimizer = torch.optim.Adam(reader.parameters(), 1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, 250, pct_start=0.1)
    for step in range(250):
        symbol, kind, answer = questions(4, 64, 1000 * 64 + step)
        logits = reader(symbol, kind, frequencies).log_softmax(-1)
        asked = answer >= 0
        loss = -logits[asked, answer[asked]].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return reader


@check_explorer("explore-trained", {"method": "NTK-aware", "length": "128"})
def test_a_trained_reader_at_twice_its_length():
    reader, length = trained_reader(), 128
    frequencies = (100.0 * 2 ** (16 / 14)) ** (-torch.arange(8) / 8)
    symbol, kind, answer = questions(4096 // length, length, 1)
    with torch.no_grad():
        hits = reader(symbol, kind, frequencies).argmax(-1) == answer
    shares, ends = {}, []
    for name, asked in (
        ("near questions", kind == 0),
        ("far questions", (kind >= 1) & (kind <= 8)),
    ):
        windows = [(hits[:, n : n + 16], asked[:, n : n + 16]) for n in range(0, length, 16)]
        known = [hit[here].double().mean().item() for hit, here in windows]
        shares[name] = [*known, *[math.nan] * (32 - len(known))]
        ends.append(hits[:, 96:][asked[:, 96:]].double().mean().item())
    return Seen(
        says(
            "NTK-aware, {} positions after training on {}: in the last quarter {} of the near and "
            "{} of the far answers are right",
            *(length, 64, *ends),
        ),
        Lines(
            "right answers along the sequence",
            range(8, 512, 16),
            shares,
            "position",
            "share",
        ),
    )
