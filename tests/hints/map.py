"""Chapter 02: what its exercises and questions print, and from where it is known."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from book.formulas.relations import Call
from book.own import encode, own_model
from book.own.inside import attention_maps
from book.stories import VOCABULARY

from .texts import Code, Entries, Formula, LeftOut, draw, oracle

WIDTHS = {"d_model": 6, "num_heads": 2, "d_ff": 10, "bias": False}


def flops(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def costs(length, d, d_ff):
    """FLOPs of scores and values, and of the projections and the feed-forward part, counted."""
    x, square, up, down = draw(length, d), draw(d, d), draw(d, d_ff), draw(d_ff, d)
    return flops(lambda: (x @ x.T) @ x), flops(lambda: (x @ square @ square @ square @ square,
                                                         x @ up @ down))  # fmt: skip


def crossing(length, d, d_ff):
    table, rest = costs(length, d, d_ff)
    return {"T": length, r"d_\text{model}": d, "C": table, "P": rest}


def divided():
    crossover = oracle("map.crossover")(3, 11)
    return {**crossing(7, 3, 11), "n": crossover}


def quadratic():
    """Lengths at which the parts are equal, and others."""
    pairs = ((18, 3), (17, 3), (19, 3), (29, 5))
    at = [{**crossing(t, d, 4 * d), r"d_\text{ff}": 4 * d} for t, d in pairs]
    return Call(at[0], draws=at[1:])


def numel(module):
    return sum(p.numel() for p in module.parameters())


def layers():
    d, h = 6, 24
    sizes = {"nhead": 2, "dim_feedforward": h, "bias": False, "device": "meta"}
    norm = numel(nn.LayerNorm(d, bias=False))
    return {
        r"d_\text{model}": d, r"d_\text{ff}": h,
        "N_E": numel(nn.TransformerEncoderLayer(d, **sizes)) - 2 * norm,
        "N_D": numel(nn.TransformerDecoderLayer(d, **sizes)) - 3 * norm,
        "N_A": numel(nn.MultiheadAttention(d, 2, bias=False)),
        "N_F": numel(nn.Linear(d, h, bias=False)) + numel(nn.Linear(h, d, bias=False)),
    }  # fmt: skip


def heads():
    made = [
        {"H": n, r"d_\text{head}": 12 // n, r"d_\text{model}": 12,
         "N": numel(nn.MultiheadAttention(12, n, bias=False))}
        for n in (3, 2, 6)
    ]  # fmt: skip
    return Call(made[0], draws=made[1:])


def last_word():
    """The small model and the text of the exercise."""
    words = ["baby", ":", "lake", "purple", "six", ",", "six"]
    return {
        "READER": own_model(), "tokens": torch.tensor([encode(words)]), "VOCABULARY": VOCABULARY,
        "attention_maps": attention_maps, "number": encode(["six"])[-1],
    }  # fmt: skip


def looks_at_the_comma():
    """The right answer of the exercise: of the start token and the words, the comma is number 6."""
    return last_word(), 6


def says_the_full_stop():
    return last_word(), VOCABULARY.index(".")


def largest(value, names):
    return value.argmax().item()


GIVEN = LeftOut("a shape of what is given, which the models of the checker have")

ENTRIES: Entries = {
    ("ex-map-fetched", "attention_maps(READER, tokens)[1][0, 0, -1]"): Code(
        looks_at_the_comma,
        ("attention_maps(READER, tokens)[1][0, 0, 1]",
         "attention_maps(READER, tokens)[1][0, 2, 3]"),
        of=largest,
    ),
    ("ex-map-fetched", "READER(tokens)[0, -1]"): Code(
        says_the_full_stop, ("READER(tokens)[0, 0]", "READER(tokens)[0, 1]"), of=largest
    ),
    ("ex-map-fetched", "VOCABULARY[number]"): Code(
        lambda: (last_word(), "six"), ("VOCABULARY[number + 1]", "VOCABULARY[number - 1]")
    ),
    ("ex-map-fault", r"B\times S"): GIVEN,
    ("ex-map-fault", r"B\times T"): GIVEN,
    ("ex-map-fault", r"B\times T\times n_\text{vocab}"): GIVEN,
    (
        "ex-map-decoder-parameters",
        "nn.TransformerDecoderLayer(d_model, num_heads, d_ff, bias=bias)",
    ): Code(
        lambda: (WIDTHS, oracle("map.decoder_parameters")(*WIDTHS.values())),
        ("nn.TransformerDecoderLayer(d_model, num_heads, d_ff)",
         "nn.TransformerEncoderLayer(d_model, num_heads, d_ff, bias=bias)"),
        of=lambda layer, names: numel(layer),
    ),
    ("ex-map-crossover", r"4d_\text{model}"): LeftOut("a width that `d_ff` need not have"),
    ("ex-map-crossover", r"4Td_\text{model}"): Formula(
        divided, claim=r"C=@0\,T,\qquad P/C=n/T", says=("Divide both sides by",)
    ),
    (
        "How many parameters has an encoder layer? A decoder layer?",
        r"d_\text{ff}=4d_\text{model}", r"12d_\text{model}^2", r"16d_\text{model}^2",
        r"4d_\text{model}^2", r"8d_\text{model}^2",
    ): Formula(
        layers,
        claim=r"N_E=@1\text{ for }@0,\qquad N_D=@2\text{ for }@0,\qquad N_A=@3,\qquad "
              r"N_F=@4\text{ for }@0",
    ),
    ("What changes with the number of heads?", r"Hd_\text{head}=d_\text{model}"): Formula(
        heads, claim=r"N=4d_\text{model}^2\text{ for }@0", says=("Not the parameters",)
    ),
    (
        "Is attention quadratic?",
        r"4T^2d_\text{model}", r"d_\text{ff}=4d_\text{model}", r"T=6d_\text{model}",
        r"24Td_\text{model}^2",
    ): Formula(
        quadratic,
        claim=r"C=@0,\qquad P=@3\text{ for }@1,\qquad @0=@3\iff @2,\qquad "
        r"@0<@3\iff T<6d_\text{model}",
        says=("below $T=6d_\\text{model}$ the linear terms,", "are larger"),
    ),
}  # fmt: skip
