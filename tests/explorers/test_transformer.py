"""The explorers of chapter 10: the dates learned again, the search over prefixes by hand."""

import datetime
import functools
import math
import random

import torch
import torch.nn.functional as F

from book.diagram.models import WATCHED, WithSoftmax
from book.diagram.trace import trace
from book.diagram.view import fold
from book.explorer import Box, Cell, Scene, Segment, Text
from book.facts import fact
from transformer_parts.transformer import Transformer

from .blocks import attend, drawn, feed_forward, heads_of, past, waves
from .reading import Seen, check_explorer, says
from .test_map import panels

# ---------------------------------------------------------------- the chapter's dates

MONTHS = [datetime.date(2000, m, 1).strftime("%B").lower() for m in range(1, 13)]
SYMBOLS = ["<pad>", "<bos>", "<eos>", *sorted(set("0123456789-./, " + "".join(MONTHS)))]
NUMBER = {symbol: k for k, symbol in enumerate(SYMBOLS)}


def written(day, form):
    month = MONTHS[day.month - 1]
    return (
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{day.day:02d}.{day.month:02d}.{day.year}",
        f"{day.month}/{day.day}/{day.year}",
    )[form]


def batch(days, forms):
    texts = [written(day, form) for day, form in zip(days, forms, strict=True)]
    longest = max(map(len, texts))
    source = [[*(NUMBER[c] for c in text), *[0] * (longest - len(text))] for text in texts]
    target = [[*(NUMBER[c] for c in day.isoformat()), 2] for day in days]
    return torch.tensor(source), torch.tensor(target)


def forward(w, source, target):
    """Logits for each character, and by the name of an attention what it compares."""

    def norm(name, x):
        return F.layer_norm(x, (64,), w[f"{name}.weight"], w[f"{name}.bias"])

    table, tokens = w["tgt_embed.weight"], (source != 0)[:, None, None]
    x, compared = table[source] * 8 + waves(source.shape[1], 64), {}
    for layer in ("encoder.0", "encoder.1"):
        y = norm(f"{layer}.norm1", x)
        compared[f"{layer}.self_attn"] = y, y
        x = x + attend(w, f"{layer}.self_attn", y, y, 4, tokens)
        x = x + feed_forward(w, f"{layer}.ffn", norm(f"{layer}.norm2", x))
    memory = norm("encoder_norm", x)
    shifted = F.pad(target[:, :-1], (1, 0), value=1)
    x = table[shifted] * 8 + waves(shifted.shape[1], 64)
    for layer in ("decoder.0", "decoder.1"):
        y = norm(f"{layer}.norm1", x)
        compared[f"{layer}.self_attn"] = y, y
        x = x + attend(w, f"{layer}.self_attn", y, y, 4, past(y.shape[1]))
        y = norm(f"{layer}.norm2", x)
        compared[f"{layer}.cross_attn"] = y, memory
        x = x + attend(w, f"{layer}.cross_attn", y, memory, 4, tokens)
        x = x + feed_forward(w, f"{layer}.ffn", norm(f"{layer}.norm3", x))
    return norm("decoder_norm", x) @ table.T, compared


@functools.cache
def trained():
    rng = random.Random(0)
    days = [datetime.date(1900, 1, 1) + datetime.timedelta(k) for k in range(73049)]
    rng.shuffle(days)
    torch.manual_seed(0)
    sizes = (len(SYMBOLS), len(SYMBOLS), 64, 4, 2, 2, 128)
    w = drawn(Transformer(*sizes, dropout=0.0, norm_first=True, max_len=32))
    optimizer = torch.optim.Adam(w.values(), fused=True)
    for step in range(500):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (step + 1) / 50) * (1 - step / 500)
        source, target = batch(rng.sample(days[500:], 32), rng.choices(range(4), k=32))
        logits, _ = forward(w, source, target)
        loss = -logits.log_softmax(-1).gather(-1, target[..., None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return w


def looked(title, name, head, down, across, months, mask=None):
    """The panel of one attention on june 24, and the column at which the month looks most."""
    w = trained()
    _, compared = forward(w, *batch([datetime.date(1987, 6, 24)], [1]))
    rows = zip("qk", compared[name], strict=True)
    q, k = (heads_of(w, f"{name}.{part}_proj", x, 4)[0, head - 1] for part, x in rows)
    scores = q @ k.mT / 4  # features of a head: 16, with the root 4
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).detach()[: len(down), : len(across)]
    month = weights[list(months)].mean(0)
    best = int(month.argmax())
    shapes = {}
    for i in range(13):
        sign = down[i] if i < len(down) else " "
        shapes[f"row {i}"] = Text(-0.6, -0.5 - i, sign, strong=i in months)
        sign = across[i] if i < len(across) else " "
        shapes[f"column {i}"] = Text(i + 0.5, 0.6, sign, strong=i == best)
        for j in range(13):
            there = i < len(down) and j < (len(across) if mask is None else i + 1)
            shapes[f"weight {i}, {j}"] = Cell(
                i, j, fill=float(weights[i, j]) if there else 0.0, role="weight", shown=there
            )
    layer = int(name.split(".")[1]) + 1
    said = says(
        f"{title}; layer {{}}, head {{}}: the rows of the month look most at '{across[best]}' in "
        "column {}, with {} of their attention",
        *(layer, head, best + 1, month[best].item()),
    )
    title = "share of the attention; ^ is the start token"
    return Seen(said, Scene(title, shapes, xlim=(-2.6, 13), ylim=(-16.3, 2.6)))


@check_explorer(
    "explore-alignment",
    {
        "attention": "decoder: target sees target",
        "date written as": "june 24, 1987",
        "layer": "1",
        "head": "3",
    },
)
def test_where_the_target_looks_in_itself():
    target, name = "1987-06-24", "decoder.0.self_attn"
    title = "Decoder: target sees target"
    return looked(title, name, 3, target, "^" + target[:-1], (5, 6), past(11))


@check_explorer(
    "explore-alignment",
    {
        "attention": "encoder: source sees source",
        "date written as": "june 24, 1987",
        "layer": "2",
        "head": "2",
    },
)
def test_where_the_source_looks_in_itself():
    source, name = "june␣24,␣1987", "encoder.1.self_attn"
    return looked("Encoder: source sees source", name, 2, source, source, range(4))


# ---------------------------------------------------------------- beams

# The chapter's language: after a word, the probabilities of the end and of A, B, C, D.
WORDS = ["end", "A", "B", "C", "D"]
NEXT = {
    "": (0.02, 0.50, 0.40, 0.08, 0.00),
    "A": (0.30, 0.11, 0.09, 0.26, 0.24),
    "B": (0.50, 0.00, 0.00, 0.46, 0.04),
    "C": (0.04, 0.03, 0.02, 0.01, 0.90),
    "D": (0.97, 0.015, 0.01, 0.005, 0.00),
}


def searched(beams, alpha):
    """The best finished output when so many prefixes are kept, of six words at most."""
    prefixes, finished, kept = [((), 1.0)], [], []
    for length in range(1, 7):
        longer = [
            ((*words, word), p * q)
            for words, p in prefixes
            for word, q in zip(WORDS, NEXT[words[-1] if words else ""], strict=True)
            if q
        ]
        longer.sort(key=lambda pair: -pair[1])
        for words, p in longer[:beams]:
            if words[-1] == "end" or length == 6:
                finished.append((math.log(p) / ((5 + length) / 6) ** alpha, words, p))
        prefixes = [pair for pair in longer[: 2 * beams] if pair[0][-1] != "end"][:beams]
        kept.append(prefixes)
    return sorted(finished, reverse=True), kept


@check_explorer("explore-beam", {"beams": "3", "α of the length penalty": "1"})
def test_three_prefixes_find_what_one_misses():
    finished, kept = searched(3, 1.0)
    score, words, probability = finished[0]
    assert words != searched(1, 1.0)[0][0][1]
    assert words != searched(3, 0.0)[0][0][1]
    shapes = {
        "length": Text(0, 0.6, "tokens", small=True),
        "start": Text(0, -2, "start", role="value", strong=True, small=True),
        "head": Text(-0.5, -4.9, "ended, best first", anchor="start", small=True),
        "head p": Text(2.6, -4.9, "probability", small=True),
        "head score": Text(3.9, -4.9, "score", small=True),
    }
    above = {(): -2.0}  # where the prefixes of the column before stand
    for length, rows in enumerate(kept[:3], 1):
        x, places = 1.3 * length, {}
        shapes[f"length {length}"] = Text(x, 0.6, str(length), small=True)
        for rank in range(4):
            there = rank < len(rows)
            at = rank if there else 0  # what is out of sight lies on the first
            prefix, p = rows[at]
            places[prefix] = y = -4 * (at + 0.5) / len(rows)
            green = prefix == words[:length]
            look = {"role": "value" if green else "data", "strong": green, "shown": there}
            before = above[prefix[:-1]]
            shapes[f"line {length}, {rank}"] = Segment(x - 0.95, before, x - 0.35, y, **look)
            text = f"{''.join(prefix)}\n{p:.3f}"
            shapes[f"prefix {length}, {rank}"] = Text(x, y, text, **look)
        above = places
    for rank, (reached, said, p) in enumerate(finished[:3]):
        y, look = -5.5 - 0.6 * rank, {"role": "data" if rank else "value", "strong": not rank}
        shapes[f"ended {rank}"] = Text(-0.5, y, " ".join(said), anchor="start", **look)
        shapes[f"ended p {rank}"] = Text(2.6, y, f"{p:.3f}", **look)
        shapes[f"ended score {rank}"] = Text(3.9, y, f"{reached:.2f}", **look)
    return Seen(
        says(
            f"Prefixes kept: {{}}, α = {{}}: the output is '{' '.join(words)}' with probability "
            "{} and penalised score {}",
            *(3, 1, probability, score),
        ),
        Scene(
            "the prefixes that are kept, with their probabilities",
            shapes,
            xlim=(-0.6, 4.5),
            ylim=(-7.1, 1.0),
        ),
    )


# ---------------------------------------------------------------- what is seen in training


@check_explorer("explore-sees", {"input": "shifted right", "mask": "none", "place": "2"})
def test_without_a_mask_the_answer_stands_one_place_further_on():
    inputs, answer = ["start", "1", "9", "8"], "1987"
    told = inputs.index(answer[1])
    x = [3.4, 5.3, 7.2, 9.1]
    shapes = {}
    for u, sign in enumerate(inputs):
        look = {"role": "bad" if u == told else "data", "strong": u == told}
        shapes[f"line {u}"] = Segment(x[u], 1.6, x[1], 3.8, **look)
        shapes[f"input {u}"] = Text(x[u], 1.1, sign, **look)
        own = {"role": "query", "fill": 0.25} if u == 1 else {"role": "quiet"}
        shapes[f"place {u}"] = Box(x[u] - 0.7, 3.8, 1.4, 1.0, label=str(u + 1), **own)
        shapes[f"says {u}"] = Text(x[u], 6.3, answer[u], role="value", strong=u == 1, faint=u != 1)
        shapes[f"up {u}"] = Segment(x[u], 4.8, x[u], 5.9, role="value", strong=True, shown=u == 1)
    return Seen(
        says(
            "Input: shifted right, mask: none. Place {} sees start {} {} {} and has to say {}, "
            "which stands in input {}",
            *(2, 1, 9, 8, 9, told + 1),
        ),
        Scene("", shapes, xlim=(0, 10), ylim=(0.5, 7)),
    )


@check_explorer("explore-whole", {"part": "Masked self-attention"})
def test_the_whole_with_two_layers_in_each_stack():
    with torch.device("meta"):
        tokens = {
            name: torch.zeros(1, n, dtype=torch.long)
            for name, n in (("source", 7), ("target, shifted right", 5))
        }
        model = Transformer(37_000, 37_000, num_encoder_layers=2, num_decoder_layers=2, max_len=256)
    graph = fold(trace(WithSoftmax(model), tokens, watch=WATCHED))
    torch_has = sum(p.numel() for p in torch.nn.MultiheadAttention(512, 8).parameters())
    said = says(
        "Masked self-attention ... T × {} in, T × {} out; {} learned numbers. It stands here {} "
        "times; chapter {} is about it",
        *(512, 512, torch_has, fact("transformer-base", "num_layers"), 5),
    )
    opened = ["model", "model.encoder.0", "model.decoder.0"]
    return Seen(said, *panels(graph, opened, {7: "S", 5: "T"}, "masked self-attention"))
