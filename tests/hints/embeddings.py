"""Chapter 04: what its exercises print, and from where it is known."""

import math

import torch

from book.formulas.relations import Call

from .texts import Code, Entries, Formula, LeftOut, draw, oracle

D, BASE = 6, 100.0
ORDER = torch.tensor([2, 0, 3, 1])


def table():
    return oracle("embeddings.table")(9, D, BASE)


def shifted():
    shift = oracle("embeddings.shift")(3, D, BASE)
    return Call({"p": table(), "M": shift, r"\delta": 3}, ranges={"n": range(6)})


def one_pair():
    a, b = 0.4, 1.3
    return {"M": oracle("embeddings.shift")(b, 2, BASE), r"\alpha": a, r"\beta": b, "d": 2}


def angles(which):
    """The sines or cosines of the table, one number after the other."""
    rows = [[which(n / BASE ** (2 * k / D)) for k in range(D // 2)] for n in range(9)]
    return torch.tensor(rows, dtype=torch.float64)


def shuffled():
    x = draw(4, 3)
    return {r"\Pi": torch.eye(4, dtype=torch.float64)[ORDER], "X": x,
            "Y": torch.stack([x[n] for n in ORDER.tolist()])}  # fmt: skip


ENTRIES: Entries = {
    ("ex-embed-row", "d=4"): LeftOut("a size, compared with the reference as a constant"),
    ("ex-embed-table", "d/2"): Formula(
        lambda: {"d": D, "n": angles(math.sin).shape[1]}, claim="n=@0", says=("frequencies",)
    ),
    ("ex-embed-table", "table[:, 0::2]"): Code(
        lambda: ({"table": table()}, angles(math.sin)),
        ("table[:, 1::2]", "table[0::2]", "table[:, :3]"),
    ),
    ("ex-embed-table", "table[:, 1::2]"): Code(
        lambda: ({"table": table()}, angles(math.cos)), ("table[:, 0::2]", "table[:, 3:]")
    ),
    ("ex-embed-shift", r"p_{n+\delta}=p_nM"): Formula(shifted),
    (
        "ex-embed-shift", "d=2", r"(\sin\alpha,\cos\alpha)",
        r"(\sin(\alpha+\beta),\cos(\alpha+\beta))",
    ): Formula(one_pair, claim=r"@1M=@2\text{ for }@0", says=("from the right",)),
    ("ex-embed-equivariance", r"\Pi X"): Formula(shuffled, claim="Y=@0"),
    ("ex-embed-equivariance", "x[order]"): Code(
        lambda: ({"x": draw(4, 4), "order": ORDER}, torch.eye(4).double()[ORDER] @ draw(4, 4)),
        ("x[:, order]", "x[order.argsort()]"),
    ),
    ("Why is the embedding multiplied by √d_model?", r"\sqrt{d/2}", "d=512"): Formula(
        lambda: {"d": 512, "r": oracle("embeddings.table")(7, 512, 1e4)[5].norm()},
        claim=r"r=@0=16\text{ for }@1",
        says=("The position encodings have length", "is sixteen times that"),
    ),
}  # fmt: skip
