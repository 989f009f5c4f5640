"""Chapter 07: what its exercises and questions print, and from where it is known."""

import torch
import torch.nn.functional as F

from book.formulas.relations import Call

from .map import layers
from .texts import Code, Entries, Formula, draw, oracle


def gated():
    """The hidden row of the reference: its layer with nothing behind it."""
    x, gate, up = draw(3), draw(4, 3), draw(4, 3, seed=1)
    hidden = oracle("feed_forward.swiglu")(x, gate, up, torch.eye(4).double())
    return {"h": hidden, "g": F.linear(x, gate), "u": F.linear(x, up),
            r"\operatorname{SiLU}": F.silu}  # fmt: skip


def rounded_up():
    """A multiple of m stays what it is, so adding one more would move it."""
    return {"multiple_of": 8}, oracle("feed_forward.hidden_width")(9, 8, None)


def truncated():
    """For some m the first d at which truncating matters, d = 1 for m = 1, and both widths."""
    made = []
    for m in (7, 6, 1):
        d = oracle("feed_forward.first_truncation")(m)
        exact = next(n for n in range(0, 9 * d + m, m) if 3 * n >= 8 * d)
        width = oracle("feed_forward.hidden_width")(d, m, None)
        assert width != exact
        made.append({"m": m, "d": d, "t": width, "n": exact})
    return Call(made[0], draws=made[1:2], tight=made[2:])


def ceiling(n, m):
    """A quotient with its remainder, and the ceiling counted by going up."""
    q, r = divmod(n, m)
    return {"n": n, "m": m, "q": q, "r": r, "c": next(c for c in range(n) if c * m >= n)}


def without_n(n, m):
    return {key: value for key, value in ceiling(n, m).items() if key != "n"}


def parts():
    bound = layers()
    return {**{k: bound[k] for k in ("N_A", "N_F")}, "d": bound[r"d_\text{model}"],
            r"d_\text{ff}": bound[r"d_\text{ff}"]}  # fmt: skip


PROOF = "Prove that (n + m - 1) // m is the ceiling of n / m."
REST = r"q+\lfloor(r+m-1)/m\rfloor"

ENTRIES: Entries = {
    ("ex-ffn-backward", r"h=\operatorname{SiLU}(g)\odot u"): Formula(gated),
    ("ex-ffn-backward", r"g\operatorname{sigmoid}(g)"): Formula(
        lambda: {"g": draw(3)[0], "s": F.silu(draw(3)[0]),
                 r"\operatorname{sigmoid}": torch.sigmoid},
        claim="s=@0",
        says=("SiLU is",),
    ),
    ("ex-ffn-kept", r"d_\text{ff}=\frac83d"): Formula(
        lambda: {"d": 48, r"d_\text{ff}": oracle("feed_forward.hidden_width")(48, 1, None)}
    ),
    ("ex-ffn-width", "multiple_of - 1"): Code(
        rounded_up,
        ("multiple_of", "multiple_of + 1", "0 * multiple_of - 1"),
        of=lambda added, names: (24 + added) // names["multiple_of"] * names["multiple_of"],
    ),
    ("ex-ffn-truncation", r"d\ge1", r"\frac83d", "m"): Formula(
        truncated,
        claim=r"@0,\qquad t=@2\lceil\lfloor@1\rfloor/@2\rceil,\qquad n=@2\lceil@1/@2\rceil",
        true={
            r"{m}\ge1,\qquad t=m\lceil\lfloor\frac83d\rfloor/m\rceil,\qquad "
            r"n=m\lceil\frac83d/m\rceil": "m counts from one, too"
        },
        says=("truncating $\\frac83d$ to an integer before rounding up to a multiple of $m$",),
    ),
    ("ex-ffn-truncation", "3m", "d", "m"): Formula(
        lambda: Call({"m": 6, "d": 4}, draws=[{"m": 5, "d": 7}, {"m": 7, "d": 2}]),
        claim=r"8(d+@0)\bmod @0=8d\bmod @0",
        says=("A remainder modulo $3m$ repeats in $d$ after at most $3m$ steps",),
    ),
    ("Why does LLaMA have a hidden width of 11008?", r"43\cdot256=11008"): Formula(
        lambda: {"n": oracle("feed_forward.hidden_width")(4096, 256, None)}, claim="n=@0"
    ),
    (
        "Where are the parameters of a Transformer layer?", r"d_\text{ff}=4d", "8d^2", "4d^2",
    ): Formula(
        parts,
        claim=r"N_F=@1\text{ for }@0,\qquad N_A=@2",
        says=("in the feed-forward layer and",),
    ),
    (PROOF, "n=qm+r", r"0\le r<m", REST): Formula(
        lambda: Call(ceiling(9, 5), draws=[ceiling(20, 5), ceiling(21, 4)],
                     tight=[ceiling(20, 5)]),
        claim=r"@0,\qquad @1,\qquad c=@2",
        true={rf"n=qm+r,\qquad 0\le r<{{n}},\qquad c={REST}": "n is larger than its remainder"},
    ),
    (PROOF, "r=0", REST): Formula(
        lambda: Call(without_n(20, 5)),
        claim=r"c=q\text{ for }@0,\qquad c=@1",
        says=("so the floor is 0",),
    ),
    (PROOF, r"1\le r\le m-1", REST): Formula(
        lambda: Call(without_n(21, 5),
                     draws=[{"r": 4}], tight=[{}, {"r": 4}]),
        claim=r"@0,\qquad c=q+1,\qquad c=@1",
        says=("so the floor is 1",),
    ),
}  # fmt: skip
