"""Chapter 12: what its exercises and questions print, and from where it is known."""

import math

import torch

from book.formulas.relations import Call

from .texts import Code, Entries, Formula, LeftOut, draw, oracle

BASE, SCALE, D = 50.0, 3.0, 8


def frequencies(base, d=D):
    return torch.tensor([base ** (-2 * k / d) for k in range(d // 2)], dtype=torch.float64)


def stretched():
    """The base of the reference, and the frequencies with it."""
    new = oracle("long_context.ntk_base")(BASE, SCALE, D)
    return {"b": BASE, "b'": new, r"\theta": frequencies(BASE), r"\theta'": frequencies(new),
            "s": SCALE, "d": D}  # fmt: skip


def some(*names):
    bound = stretched()
    return {name: bound[name] for name in names}


def scores():
    """Five keys, more than the three positions of training, so the base has changed."""
    query, keys, length = draw(6), draw(5, 6), 3
    theta = frequencies(oracle("long_context.ntk_base")(BASE, 5 / length, 6), 6)
    return {
        "z": oracle("long_context.dynamic_scores")(query, keys, BASE, length),
        "q": torch.complex(query[0::2], query[1::2]),
        r"\bar k": torch.complex(keys[:, 0::2], -keys[:, 1::2]),
        r"\theta'": theta, "n": 5, "e": math.e, r"\mathrm i": 1j,
    }  # fmt: skip


def turn_of(speed):
    """Positions until a hand of this speed points where it began, by halving."""
    low, high = 3.2 / speed, 9.4 / speed  # its sine rises through 0 between half turns
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.sin(middle * speed) < 0 else (low, middle)
    return low


def alibi():
    bias = oracle("long_context.alibi_bias")(3, 5)
    return {"b": bias, "m": -bias[:, 1, 0]}


ENTRIES: Entries = {
    ("ex-ntk-base", "head_dim / 2"): Code(
        lambda: ({"head_dim": D}, len(frequencies(BASE))),
        ("head_dim", "head_dim / 4"),
        of=lambda pairs, names: int(pairs),
    ),
    ("ex-ntk-base", r"\theta'_{d/2-1}=\theta_{d/2-1}/s"): Formula(
        lambda: some(r"\theta", r"\theta'", "s", "d")
    ),
    ("ex-ntk-base", r"\theta'_{d/2-1}=\theta_{d/2-1}/s", "-d/(d-2)"): Formula(
        lambda: some(r"\theta", "s", "d", "b'"),
        claim=r"b'=(\theta_{d/2-1}/s)^{@1}",
        says=("to the power",),
    ),
    ("ex-kept-share", "k=32"): LeftOut("an example to try, with no value said"),
    ("ex-dynamic-scores", "f=1"): LeftOut("says from which factor dynamic NTK starts"),
    ("ex-dynamic-scores", r"(n-1)\theta'", r"j\theta'"): Formula(
        scores,
        claim=r"z_j=\sum_k\operatorname{Re}\bigl[q_ke^{\mathrm i\cdot{@0}_k}\,"
              r"\bar k_{jk}e^{-\mathrm i\cdot{@1}_k}\bigr]",
        says=("the real part of query times conjugate key, summed over pairs",),
    ),
    ("ex-base-million", r"2\pi"): Formula(
        lambda: {"w": 0.3, "n": turn_of(0.3), r"\pi": math.pi},
        claim=r"n=\frac{@0}{w}",
        says=("over the frequency",),
    ),
    ("ex-alibi", "1/256"): Formula(
        lambda: Call({"m": -oracle("long_context.alibi_bias")(8, 2)[-1, 1, 0]},
                     draws=[{"m": -oracle("long_context.alibi_bias")(3, 2)[-1, 1, 0]}]),
        claim="m=@0",
        says=("when the number of heads is a power of two",),
    ),
    ("ex-alibi", "i-j"): Formula(
        alibi, claim=r"b_{hij}=-m_h(@0)\text{ for }j\le i", says=("the bias is never positive",)
    ),
    (
        "Derive the NTK-aware base.", r"b'^{-(d-2)/d}=b^{-(d-2)/d}/s", r"b'=b\,s^{d/(d-2)}",
    ): Formula(lambda: some("b", "b'", "s", "d"), claim=r"@0,\qquad @1"),
    (
        "Why is the scale of NTK-aware set larger than the ratio of lengths?", "s^{2k/(d-2)}",
    ): Formula(
        lambda: some(r"\theta", r"\theta'", "s", "d"),
        claim=r"\theta'_k=\theta_k/@0",
        says=("is divided by",),
    ),
}  # fmt: skip
