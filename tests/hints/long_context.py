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


def table_factor():
    """The factor on the tables at position 0, where every cosine is 1."""
    theta, scale = frequencies(BASE), 5.0
    cos, _ = oracle("long_context.yarn_tables")(theta, torch.ones(4).double(), scale, 2)
    return {"f": cos[0, 0], "t": (0.1 * math.log(scale) + 1) ** -2}


def ends():
    """The ends of the code's ramp by counting the turns of each pair."""
    d, base, length = 64, 1e4, 2048
    turns = [length * base ** (-2 * k / d) / (2 * math.pi) for k in range(d // 2)]
    low = max(k for k in range(d // 2) if turns[k] >= 32)
    high = min(k for k in range(d // 2) if turns[k] <= 1)

    def index(wanted):
        """Where between the pairs a turn count is reached, by halving."""
        a, b = 0.0, float(d)
        for _ in range(80):
            middle = (a + b) / 2
            more = length * base ** (-2 * middle / d) / (2 * math.pi) > float(wanted)
            a, b = (middle, b) if more else (a, middle)
        return a

    return {"l": low, "h": high, r"\kappa": index}


def quotient():
    theta, w, other, s = frequencies(BASE), 0.3, 0.8, SCALE
    return {r"\theta": theta, "w": w, "w'": other, "s": s, "r": (1 + other * (s - 1)) / (
        1 + w * (s - 1))}  # fmt: skip


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
    ("ex-yarn-tables", "1/t", r"\sqrt{1/t}"): Formula(
        table_factor,
        claim=r"f=@1,\qquad f^2=@0",
        says=("The score gets the factor of the tables twice",),
    ),
    ("ex-ramp-gap", r"\alpha=1"): LeftOut("a constant, compared with the reference as such"),
    ("ex-ramp-gap", r"\beta=32"): LeftOut("a constant, compared with the reference as such"),
    ("ex-ramp-gap", r"\lfloor\kappa(32)\rfloor", r"\lceil\kappa(1)\rceil"): Formula(
        ends, claim=r"l=@0,\qquad h=@1"
    ),
    ("ex-ramp-gap", "w", "w'", r"\theta_k/s"): Formula(
        quotient,
        claim=r"r=\frac{@1\theta_k+(1-@1)@2}{@0\theta_k+(1-@0)@2}",
        says=("cancels",),
    ),
    ("ex-alibi", "1/256"): Formula(
        lambda: Call({"m": -oracle("long_context.alibi_bias")(8, 2)[-1, 1, 0]},
                     draws=[{"m": -oracle("long_context.alibi_bias")(3, 2)[-1, 1, 0]}]),
        claim="m=@0",
        says=("for every number of heads",),
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
