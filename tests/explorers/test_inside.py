"""The explorers of the chapter on looking inside.

The model is Hugging Face's Llama with the same weights. Its own attention maps and its own streams
are compared; heads are switched off, and vectors exchanged, inside of it.
"""

import functools
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from book.explorer import Arrow, Bars, Box, Grid, Scene, Text
from book.own import encode
from book.stories import VOCABULARY, follow, stories, words

from .llama import llama
from .reading import Seen, check_explorer, says

ID = {word: k for k, word in enumerate(VOCABULARY)}
HEADS = [f"{layer}.{head}" for layer in range(2) for head in range(4)]
LEVELS = ["embedding", "attention 0", "feed-forward 0", "attention 1", "feed-forward 1"]
SHORT = ["emb", "att 0", "ffn 0", "att 1", "ffn 1"]


def row(text):
    return torch.tensor([encode(text)])


def batched(some, n):
    return [some[k : k + n] for k in range(0, len(some), n)]


@contextmanager
def changed(modules, hook):
    handles = [m.register_forward_pre_hook(hook(k)) for k, m in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def outputs():
    return [(k, layer.self_attn.o_proj) for k, layer in enumerate(llama().model.layers)]


def without(heads, means=None):
    """Llama with some heads writing nothing, or their means."""

    def hook(layer):
        def change(_, inputs):
            x = inputs[0].clone()
            for which, head in heads:
                if which == layer:
                    part = slice(32 * head, 32 * (head + 1))
                    x[..., part] = 0 if means is None else means[layer][part]
            return (x,)

        return change

    return changed(outputs(), hook)


@torch.no_grad()
def maps(tokens):
    """Attention weights, (layers, B, H, T, T)."""
    return torch.stack(llama()(tokens, output_attentions=True).attentions)


# ---------------------------------------------------------------- maps


@check_explorer("explore-heads", {"head": "0.0"})
def test_the_map_of_head_0_0():
    text = "baby : lake purple six june , lake purple six june ."
    shown = ["⟨s⟩", *text.split()]
    weights = maps(row(text))[0, 0, 0].numpy()
    looked = int(weights[8].argmax())
    future = np.triu(np.ones((13, 13), bool), 1)
    return Seen(
        says(
            "Head {}: the second “lake”, row {}, gives {} of its weight to “"
            f"{shown[looked]}” in column {{}}.",
            *(0.0, 8, weights[8, looked], looked),
        ),
        Grid(
            "who looks at whom",
            np.where(future, np.nan, weights),
            [f"{k} {token}" for k, token in enumerate(shown)],
            [str(k) for k in range(13)],
            text="",
            detail=lambda r, c: (
                f"{shown[r]} cannot see {shown[c]}, which comes later"
                if c > r
                else f"{shown[r]} looks at {shown[c]} with weight {weights[r, c]:.2f}"
            ),
            xlabel="is looked at",
            ylabel="looks",
            limits=(0, 1),
            role="weight",
        ),
    )


@check_explorer("explore-two-steps", {"step": "what it copies"})
def test_two_layers_by_hand():
    # The second A: the scores of the rows before it and of its own are 0, 1, 0 and 0.
    weight = np.exp(20.0) / (np.exp(20.0) + 3)
    other = 1 / (np.exp(20.0) + 3)
    rows = ["0 A", "1 B", "2 C", "3 A"]
    stream = [[1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 1]]
    return Seen(
        says(
            "Softmax of {} times the scores: the weight of row {} is {}, so row {} copies the word "
            "of row {}, which is B.",
            *(20, 1, weight, 3, 1),
        ),
        Grid(
            "the stream",
            np.array(stream, float),
            rows,
            ["is A", "is B", "is C", "after A", "after B", "after C"],
            text="{:.0f}",
            limits=(0, 1),
            role="data",
        ),
        Grid(
            "the query of row 3, in layer 1",
            np.array([[0, 1, 0, 0], [other, weight, other, other]]),
            ["score", "weight"],
            rows,
            text="{:.0f}",
            limits=(0, 1),
            role="weight",
            xlabel="keys",
        ),
        Grid(
            "what row 3 copies",
            np.array([[2 * other, weight, other]]),
            ["row 3"],
            list("ABC"),
            text="{:.0f}",
            limits=(0, 1),
            role="value",
        ),
    )


# ---------------------------------------------------------------- detectors


@check_explorer("explore-detected", {"switched off": "head 0.0"})
def test_without_the_head_that_looks_back():
    rng = torch.Generator().manual_seed(0)
    names = [ID[w] for w in words.ANYTHING]
    drawn = torch.tensor(names)[torch.randint(len(names), (40, 12), generator=rng)]
    tokens = torch.cat([torch.full((40, 1), ID["<s>"]), drawn, drawn], 1)
    with without([(0, 0)]):
        mean = maps(tokens).mean(1).flatten(0, 1).numpy()
    back = np.array([np.mean([m[t, t - 1] for t in range(1, 25)]) for m in mean])
    after = np.array([np.mean([m[t, t - 11] for t in range(13, 25)]) for m in mean])
    return Seen(
        says(
            "With head {} off, head {} still looks (its map comes before what it writes, and only "
            "that is taken away) and gives {} of its weight to the word before. Head {} gives {} "
            "to the word after the earlier one.",
            *(0.0, 0.0, back[0], 1.0, after[4]),
        ),
        Bars(
            "on random words, said twice",
            HEADS,
            {"one back": back, "after the earlier one": after},
            "head",
            "mean weight",
            ylim=(0, 1),
        ),
    )


# ---------------------------------------------------------------- heads off

COLUMNS = ["who", "what", "which", "where", "how", "daily", "past", "sum"]
KINDS = ["who", "what", "which", "where", "how", "every", "yesterday", "together"]


@functools.cache
def means():
    seen = [[], []]

    def hook(layer):
        return lambda _, inputs: seen[layer].append(inputs[0][0])

    with changed(outputs(), hook), torch.no_grad():
        for story in islice(stories("means"), 20):
            llama()(row(story.words))
    return [torch.cat(s).mean(0) for s in seen]


@functools.cache
def asking():
    """Stories until each kind was asked forty times, those that bring no new ones left out."""
    asked, told = dict.fromkeys(KINDS, 0), []
    for story in stories("inside"):
        if min(asked.values()) >= 40:
            break
        if any(asked[q.kind] < 40 for q in story.questions):
            told.append(story)
            for q in story.questions:
                asked[q.kind] += 1
    return told, asked


@torch.no_grad()
def shares(heads):
    right = {kind: [] for kind in KINDS}
    with without(heads, means()):
        for told in batched(sorted(asking()[0], key=lambda one: len(one.words)), 32):
            # What comes after a text changes nothing in it.
            rows = pad_sequence([row(one.words)[0] for one in told], batch_first=True)
            for story, best in zip(told, llama()(rows).logits.argmax(-1), strict=True):
                for q in story.questions:
                    right[q.kind].append(VOCABULARY[best[q.at - 1]] == q.answer)
    return [np.mean(r) for r in right.values()]


@check_explorer("explore-off", {"in place of the head": "mean"})
def test_means_in_the_place_of_heads():
    every = [shares([])] + [shares([(k // 4, k % 4)]) for k in range(8)]
    table = np.array(every)
    worst = int(table[1:].mean(1).argmin())
    asked = list(asking()[1].values())
    return Seen(
        says(
            "In place of the head: mean. Without head {} the model answers {} of the questions, "
            "as a mean over the kinds; with all heads {}.",
            *(float(HEADS[worst]), table[1 + worst].mean(), table[0].mean()),
        ),
        Grid(
            "right answers without a head, in percent",
            100 * table.T,
            [f"{name}, {number} asked" for name, number in zip(COLUMNS, asked, strict=True)],
            ["all", *HEADS],
            text="{:.0f}",
            detail=lambda r, c: (
                f"{COLUMNS[r]}: {table[c, r]:.0%} of {asked[r]} right "
                + ("with all heads" if c == 0 else f"without head {HEADS[c - 1]}")
            ),
            xlabel="all heads, or without this one",
            limits=(0, 100),
            role="data",
        ),
    )


@torch.no_grad()
def surprise(heads):
    """Every word of the stories that is to be foreseen, and its loss."""
    found, said = [], []
    with without(heads, means()):
        for told in batched(sorted(asking()[0], key=lambda one: len(one.words)), 32):
            rows = pad_sequence([row(one.words)[0] for one in told], batch_first=True)
            chances = llama()(rows).logits.double().log_softmax(-1)
            for story, own in zip(told, chances, strict=True):
                names = story.words[1:]
                said += names
                found += [-own[k, ID[word]].item() for k, word in enumerate(names)]
    return said, np.array(found)


def group(word):
    """What kind of word this is, in the picture of what each head is for."""
    signs = {"?": "question mark", ",": "comma", ".": "full stop", "</s>": "the end"}
    for name, some in (
        ("names", words.NAMES),
        ("things", words.THINGS),
        ("colours", words.COLOURS),
        ("places", words.PLACES),
        ("numbers", words.NUMBERS),
        ("there, they, met", ("there", "they", "met")),
        ("how, together", ("how", "together")),
        ("what, every, yesterday", ("what", "every", "yesterday")),
    ):
        if word in some:
            return name
    if any(word == verb or word in forms for verb, forms in words.FORMS.items()):
        return "verbs"
    return signs.get(word, "all others")


@check_explorer("explore-loss", {"in place of the head": "mean"})
def test_which_words_suffer_without_a_head():
    names = ["names", "things", "colours", "places", "verbs", "numbers", "there, they, met"]
    names += ["how, together", "what, every, yesterday", "question mark", "comma", "full stop"]
    names += ["the end", "all others"]
    said, before = surprise([])
    kinds = np.array([group(word) for word in said])
    more = [surprise([(k // 4, k % 4)])[1] - before for k in range(8)]
    whole = [m.mean() for m in more]
    percent = np.array([[100 * m[kinds == name].sum() / m.sum() for m in more] for name in names])
    return Seen(
        says(
            "In place of the head: mean. Without head {} the loss rises by {} nats a word, without "
            "head {} by {}. Of the rise without head {} the end of the stories has {}.",
            *(0.0, whole[0], 1.1, whole[5], 1.3, percent[names.index("the end"), 7] / 100),
        ),
        Bars(
            "rise of the loss",
            HEADS,
            {"rise": np.array(whole)},
            "without this head",
            "nats a word",
            ylim=(0, 1.2),
        ),
        Grid(
            "which words share in it, in percent",
            percent,
            names,
            HEADS,
            text=lambda v: f"{v:.0f}" if abs(v) >= 0.5 else "",
            detail=lambda r, c: (
                f"{names[r]}: {percent[r, c]:.1f}% of the {whole[c]:.3f} nats a word by which "
                f"the loss rises without head {HEADS[c]}"
            ),
            xlabel="without this head",
            limits=(0, 80),
            role="data",
        ),
    )


# ---------------------------------------------------------------- exchanging


@torch.no_grad()
def streams(text, level=None, at=None, vector=None):
    """The stream after each part of Llama, and its last logits; one vector may be exchanged."""
    model, seen, residual, handles = llama(), [None] * 5, {}, []

    def embed(_, inputs, output):
        if level == 0:
            output = output.clone()
            output[:, at] = vector
        seen[0] = output[0]
        return output

    def keep(name):
        return lambda _, inputs: residual.__setitem__(name, inputs[0])

    def part(number, name):
        def hook(_, inputs, output):
            added = output[0] if isinstance(output, tuple) else output
            if level == number:
                added = added.clone()
                added[:, at] = vector - residual[name][:, at]
            seen[number] = (residual[name] + added)[0]
            return (added, *output[1:]) if isinstance(output, tuple) else added

        return hook

    handles.append(model.model.embed_tokens.register_forward_hook(embed))
    for k, layer in enumerate(model.model.layers):
        for norm, module, number in (
            (layer.input_layernorm, layer.self_attn, 2 * k + 1),
            (layer.post_attention_layernorm, layer.mlp, 2 * k + 2),
        ):
            handles.append(norm.register_forward_pre_hook(keep(number)))
            handles.append(module.register_forward_hook(part(number, number)))
    logits = model(row(text)).logits[0, -1]
    for handle in handles:
        handle.remove()
    return seen, logits


FIRST = (
    "one sunny day anna and ben met . there was a red kite for anna . "
    "there was a blue drum for ben . who has what ? "
)
OTHER = (
    "one sunny day anna and ben met . there was a red kite for ben . "
    "there was a blue drum for anna . who has what ? "
)


def lead(logits):
    return (logits[ID["anna"]] - logits[ID["ben"]]).item()


@check_explorer("explore-patch", {"asked for": "drum"})
def test_the_owner_of_the_drum():
    clean = lead(streams(FIRST + "drum")[1])
    others, logits = streams(OTHER + "drum")
    other = lead(logits)
    effect = np.full((15, 5), np.nan)
    for level in range(5):
        for at in range(15, 30):
            if at in (15, 23) if level == 0 else at == 29 if level > 2 else True:
                _, logits = streams(FIRST + "drum", level, at, others[level][at])
                effect[at - 15, level] = (clean - lead(logits)) / (clean - other)
    # Words that are neither a name nor the last one: the largest of their effects in size.
    rows = [effect[0], abs(effect[1:8]).max(0), effect[8], abs(effect[9:14]).max(0), effect[14]]
    names = ["word 15, anna", "words 16 to 22", "word 23, ben", "words 24 to 28", "word 29, drum"]

    def why(r, c):
        said = f"{names[r]}, after {LEVELS[c]}: "
        if c == 0 and np.isnan(rows[r][c]):
            return said + "0, since both stories have the same vector here"
        if np.isnan(rows[r][c]):
            return said + "0, since no later attention carries it to the last word"
        if c > 2:
            return said + "1, since the logits are computed from this vector"
        return said + ("effects at most" if r in (1, 3) else "effect") + f" {rows[r][c]:.3f}"

    return Seen(
        says(
            "Asked for the drum: D is {} in the one story and {} in the other. After feed-forward "
            "{}, exchanging the stream of word {}, anna, has the effect {}, and of word {}, ben, "
            "{}.",
            *(clean, other, 0, 15, effect[0, 2], 23, effect[8, 2]),
        ),
        Grid(
            "effect of exchanging one vector",
            np.array(rows),
            ["15 anna", "16 to 22, at most", "23 ben", "24 to 28, at most", "29 asked for"],
            SHORT,
            text=lambda v: "0" if abs(v) < 0.005 else f"{v:.2f}".rstrip("0").rstrip("."),
            detail=why,
            empty="·",
            xlabel="exchanged after this part",
            limits=(0, 1),
            role="weight",
        ),
    )


@torch.no_grad()
def head_outputs(text):
    """What the heads of each layer write at each word, (T, 128) for each layer."""
    seen = [None, None]

    def hook(layer):
        return lambda _, inputs: seen.__setitem__(layer, inputs[0][0])

    with changed(outputs(), hook):
        logits = llama()(row(text)).logits[0, -1]
    return seen, logits


@check_explorer("explore-carries", {"asked for": "drum"})
@torch.no_grad()
def test_head_1_0_hands_over_the_name():
    mine, logits = head_outputs(FIRST + "drum")
    theirs, theirs_logits = head_outputs(OTHER + "drum")
    effects, swaps = [], []
    for layer in range(2):
        for head in range(4):
            part = slice(32 * head, 32 * (head + 1))

            for found, places, written in (
                (effects, [-1], theirs[layer][[-1]]),
                (swaps, [15, 23], mine[layer][[23, 15]]),
            ):

                def hook(which, layer=layer, part=part, places=places, written=written):
                    def change(_, inputs):
                        x = inputs[0].clone()
                        if which == layer:
                            x[0, places, part] = written[:, part]
                        return (x,)

                    return change

                with changed(outputs(), hook):
                    patched = lead(llama()(row(FIRST + "drum")).logits[0, -1])
                found.append((lead(logits) - patched) / (lead(logits) - lead(theirs_logits)))
    looks = maps(row(FIRST + "drum"))[:, 0, 0].numpy()
    places = [*range(13, 16), *range(20, 24)]
    text = ["⟨s⟩", *FIRST.split()]
    return Seen(
        says(
            "Asked for the drum: exchanging what head {} writes at the last word has the effect "
            "{}, and swapping what head {} writes at the two names {}. Head {} looks at word {} "
            "ben with weight {}, where head {} looks two words back, with weight {}.",
            *(1.0, effects[4], 0.0, swaps[0], 1.0, 23, looks[1, 29, 23], 0.0, looks[0, 23, 21]),
        ),
        Bars(
            "what one head writes, exchanged",
            HEADS,
            {"at the last word": np.array(effects), "swapped at the names": np.array(swaps)},
            "head",
            "effect",
            ylim=(-0.1, 1.1),
        ),
        Grid(
            "where the two heads look",
            np.stack([looks[0, 15], looks[0, 23], looks[1, 29]], 1)[places],
            [f"{k} {text[k]}" for k in places],
            ["0.0 at 15", "0.0 at 23", "1.0 at 29"],
            text=lambda v: f"{v:.2f}" if v >= 0.005 else "",
            xlabel="head, and the word that looks",
            limits=(0, 1),
            role="weight",
        ),
    )


# ---------------------------------------------------------------- the lens


@check_explorer("explore-lens", {"word": "26 can"})
@torch.no_grad()
def test_after_can():
    text = (
        "one sunny day anna and ben met . there was a red kite for anna . "
        "there was a blue drum for ben . ben can sing ."
    )
    at = text.split().index("can")
    exact = follow(text.split())[at + 1]
    chances, best = [], []
    for x in streams(text)[0]:
        logits = llama().lm_head(llama().model.norm(x[at + 1]))
        p = logits.softmax(0)
        chances.append(p[ID["sing"]].item())
        best.append(f"“{VOCABULARY[p.argmax()]}”")
    return Seen(
        says(
            "After “can”, word {}, comes “sing”: its probability at the end is {}, in the language "
            f"{{}}. The likeliest words, level by level: {', '.join(best)}.",
            *(at + 1, chances[-1], exact["sing"]),
        ),
        Bars(
            "the word that comes next",
            SHORT,
            {"probability": np.array(chances)},
            "read after",
            "probability",
            ylim=(0, 1),
        ),
    )


# ---------------------------------------------------------------- directions


@check_explorer("explore-near", {"word": "sings"})
def test_the_neighbours_of_sings():
    rows = llama().get_input_embeddings().weight.detach()
    rows = F.normalize(rows - rows.mean(0), dim=1)
    cosines = rows @ rows[ID["sings"]]
    order = cosines.argsort(descending=True)[1:7]
    shapes, found = {}, []
    for k, index in enumerate(order.tolist()):
        name, c, y = VOCABULARY[index], cosines[index].item(), 5.4 - k
        found += [name, c]
        shapes[f"name {k}"] = Text(2.6, y + 0.3, name, anchor="end")
        shapes[f"bar {k}"] = Box(
            2.8, y, 5 * c, 0.6, role="data", fill=0.5, detail=f"{name}: {c:.3f}"
        )
        shapes[f"value {k}"] = Text(2.9 + 5 * c, y + 0.3, f"{c:.2f}", anchor="start", role="quiet")
    template = ", ".join(f"{name} {{}}" for name in found[::2])
    return Seen(
        says(f"The rows that point most like that of “sings”: {template}.", *found[1::2]),
        Scene("cosine", shapes, xlim=(0, 9), ylim=(0, 6.2)),
    )


# ---------------------------------------------------------------- a neuron


@functools.cache
def activity():
    """The words of 40 stories, and what the neurons of layer 1 give at each."""
    seen, read = [], []
    mlp = llama().model.layers[1].mlp

    def note(_, inputs):
        x = inputs[0][0]
        seen.append(F.silu(mlp.gate_proj(x)) * mlp.up_proj(x))

    handle = mlp.register_forward_pre_hook(note)
    with torch.no_grad():
        for story in islice(stories("neurons 0"), 40):
            read += encode(story.words)
            llama()(row(story.words))
    handle.remove()
    return np.array(read), torch.cat(seen)


def picked():
    """The shares of each word of what a neuron does, and the six neurons that are shown.

    Three that are the most given to one word, each to another; then those a quarter, a half and
    three quarters down the same order.
    """
    read, acts = activity()
    squares = acts.square().numpy()
    by_word = np.stack([squares[read == k].sum(0) for k in range(len(VOCABULARY))])
    by_word = by_word / by_word.sum(0)
    order = np.argsort(-by_word.max(0), kind="stable")
    first = {}
    for n in order:
        first.setdefault(by_word[:, n].argmax(), int(n))
    down = [int(order[344 * quarter // 4]) for quarter in (1, 2, 3)]
    return by_word, [*list(first.values())[:3], *down]


def test_six_neurons_are_offered():
    from .reading import explorers

    [control] = explorers("inside")["explore-neuron"]["controls"]
    assert control["values"] == [str(number) for number in picked()[1]]


SECOND = "73"


@check_explorer("explore-neuron", {"neuron": SECOND})
def test_a_neuron_fires_and_writes():
    by_word, _ = picked()
    number = int(SECOND)
    acts = activity()[1][:, number]
    sign = acts[acts.abs().argmax()].sign()
    column = llama().model.layers[1].mlp.down_proj.weight.detach()[:, number] * sign
    pushed = llama().lm_head.weight.detach() @ (column * llama().model.norm.weight.detach())
    writes = [VOCABULARY[k] for k in pushed.argsort(descending=True)[:5].tolist()]
    order = np.argsort(-by_word[:, number], kind="stable")[:5]
    shapes = {
        "fires": Text(1.9, 6.0, "fires on", strong=True),
        "writes": Text(7.6, 6.0, "writes", strong=True),
        "in": Arrow(3.4, 2.9, 4.3, 2.9, role="data"),
        "neuron": Box(4.4, 2.4, 1.2, 1.0, label=str(number), role="weight", fill=0.3),
        "out": Arrow(5.7, 2.9, 6.6, 2.9, role="data"),
    }
    for k, index in enumerate(order):
        share = by_word[index, number]
        shapes[f"fires {k}"] = Text(
            1.8, 4.9 - k, VOCABULARY[index], anchor="end", faint=bool(share < 0.01)
        )
        shapes[f"share {k}"] = Text(2.1, 4.9 - k, f"{share:.2f}", anchor="start", role="quiet")
        shapes[f"writes {k}"] = Text(7.6, 4.9 - k, writes[k])
    return Seen(
        says(
            "Neuron {} of layer {} has {} of its squared activity on "
            f"“{VOCABULARY[order[0]]}”. Its "
            "strongest activation is {}, and with this sign it writes in the direction of "
            f"{', '.join(writes)}.",
            *(number, 1, by_word[order[0], number], acts[acts.abs().argmax()].item()),
        ),
        Scene("", shapes, xlim=(0, 10), ylim=(0.4, 6.6)),
    )
