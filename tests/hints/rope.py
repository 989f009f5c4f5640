"""Chapter 11: what its exercises and questions print, and from where it is known."""

import cmath
import math

import torch

from book.formulas.relations import Call
from transformer_parts.rope import build_rope_cache

from .texts import Code, Entries, Formula, draw, oracle

THETA = 0.7


def turning(m, theta=THETA):
    """R_m of one pair: as complex numbers, unit rows e become e R^T."""
    rows = torch.view_as_complex(torch.eye(2, dtype=torch.float64))
    return torch.view_as_real(rows * cmath.exp(1j * m * theta)).T.contiguous()


def pair(m, n):
    q, k = draw(2), draw(2, seed=1)
    turned_q, turned_k = (
        torch.view_as_real(torch.view_as_complex(x) * cmath.exp(1j * at * THETA))
        for x, at in ((q, m), (k, n))
    )
    return {
        "q": q, "k": k, "R": {at: turning(at) for at in {m, n, n - m}}, "m": m, "n": n,
        "c": {at: math.cos(at * THETA) for at in {m, n, m - n}},
        "z": {at: math.sin(at * THETA) for at in {m, n, m - n}},
        "x": turned_q, "s": (turned_q * turned_k).sum(), r"\theta": THETA,
        "M": oracle("rope.relative_matrix")(m, n, THETA), "u": (turning(m).T @ turning(n))[0, 1],
    }  # fmt: skip


def some(*names, at=(2, 5)):
    bound = pair(*at)
    return {name: bound[name] for name in names}


def reached():
    """Between the last pair that completes a turn and the first that does not, in proportion."""
    turn = [2 * math.pi * 10000 ** (k / 64) for k in range(64)]
    k = max(k for k in range(64) if turn[k] <= 4096)
    k += math.log(4096 / turn[k]) / math.log(turn[k + 1] / turn[k])
    return {"k": k, "d": 128, "b": 10000.0, r"\pi": math.pi}


def converted():
    weight = draw(6)
    return Call({"v": weight, "w": oracle("rope.to_interleaved")(weight, 1),
                 r"d_\text{head}": 6}, ranges={"k": range(3)})  # fmt: skip


def cache():
    """Tables that are long enough for the largest position, and wide enough for a head."""
    ids = torch.tensor([0, 5, 9])
    angles = [[n / 10000 ** (k / 4) for k in range(4)] for n in ids.tolist()]
    names = {"q": draw(2, 3, 8), "position_ids": ids, "build_rope_cache": build_rope_cache}
    return names, tuple(
        torch.tensor([[round(f(a), 5) for a in row] for row in angles], dtype=torch.float64)
        for f in (math.cos, math.sin)
    )


def rows_used(tables, names):
    """What the tables, which are in float32, hold for the positions."""
    return tuple(table[names["position_ids"]].double().round(decimals=5) for table in tables)


def two_features():
    a, b = draw(2, 3), draw(2, 3, seed=1)
    side = torch.tensor([[[a[i, k], b[i, k]] for k in range(3)] for i in range(2)])
    return {"a": a, "b": b}, side.reshape(2, 6)


def invertible(m, n):
    """A score that depends on the distance, which is three, alone."""
    q, k, a = draw(3), draw(3, seed=1), draw(3, 3) / 2 + torch.eye(3, dtype=torch.float64)
    return {"q": q, "k": k, "A": a, "m": m, "n": n, "s": (q @ a @ a @ a * k).sum()}


ENTRIES: Entries = {
    ("ex-rope-sign", r"qR_m^\top"): Formula(
        lambda: some("x", "q", "R", "m"), claim="x=@0", says=("is turned to",)
    ),
    ("ex-rope-sign", r"2\times2"): Formula(
        lambda: some("M"), claim=r"M\in\mathbb R^{@0}", says=("matrix $M$",)
    ),
    ("ex-rope-sign", r"\langle qR_m^\top,kR_n^\top\rangle=qMk^\top"): Formula(
        lambda: some("s", "q", "k", "R", "M", "m", "n"), claim="s=@0"
    ),
    ("ex-rope-sign", r"c_m=\cos m\theta", r"s_m=\sin m\theta"): Formula(
        lambda: some("c", "z", "m", r"\theta"), claim=r"@0,\qquad @1", swap={"s_m": "z_m"}
    ),
    (
        "ex-rope-sign",
        r"R_m^\top R_n=\begin{pmatrix}c_m&s_m\\-s_m&c_m\end{pmatrix}"
        r"\begin{pmatrix}c_n&-s_n\\s_n&c_n\end{pmatrix}",
    ): Formula(
        lambda: some("R", "m", "n", "c", "z"), swap={"s_": "z_"}, says=("somebody writes",)
    ),
    (
        "ex-rope-sign",
        r"\begin{pmatrix}c_{m-n}&-s_{m-n}\\s_{m-n}&c_{m-n}\end{pmatrix}",
    ): Formula(
        lambda: some("m", "n", "c", "z", "M"),
        claim="M=@0",
        says=("Which entries of it are wrong?", "for the product"),
        swap={r"&-s_{m-n}\\s_{m-n}": r"&z_{m-n}\\-z_{m-n}"},
    ),
    ("ex-rope-sign", r"-\cos m\theta\sin n\theta+\sin m\theta\cos n\theta"): Formula(
        lambda: some("u", "m", "n", r"\theta"), claim="u=@0", says=("the upper right entry",)
    ),
    ("ex-rope-apply", "x[..., ::2]"): Code(
        lambda: ({"x": draw(2, 4, 6)}, draw(2, 4, 6).unflatten(-1, (3, 2)).select(-1, 0)),
        ("x[..., 1::2]", "x[::2]", "x[..., :3]"),
    ),
    ("ex-rope-apply", "x[..., 1::2]"): Code(
        lambda: ({"x": draw(2, 4, 6)}, draw(2, 4, 6).unflatten(-1, (3, 2)).select(-1, 1)),
        ("x[..., ::2]", "x[1::2]", "x[..., 3:]"),
    ),
    ("ex-rope-apply", "torch.stack(..., dim=-1).flatten(-2)"): Code(
        two_features,
        ("torch.cat((a, b), dim=-1)", "torch.stack((a, b), dim=-2).flatten(-2)"),
        swap={"...": "(a, b)"},
    ),
    ("ex-rope-reach", r"k=\frac d2\cdot\frac{\ln(4096/2\pi)}{\ln b}"): Formula(
        reached, says=("is 45.03 with base 10000",)
    ),
    ("ex-rope-attention", "build_rope_cache(q.shape[-1], int(position_ids.max()) + 1)"): Code(
        cache,
        ("build_rope_cache(q.shape[-1], int(position_ids.max()))",
         "build_rope_cache(q.shape[-1], len(position_ids))",
         "build_rope_cache(2 * q.shape[-1], int(position_ids.max()) + 1)"),
        of=rows_used,
    ),
    ("ex-rope-convert", "2k", "2k+1"): Formula(
        converted,
        claim=r"w_{@0}=v_k,\qquad w_{@1}=v_{k+d_\text{head}/2}",
        says=("of the new layout is feature $k$ of the old one",),
    ),
    (
        "Prove it in one line.",
        r"\operatorname{Re}[(\underline qe^{\mathrm im\theta})(\underline ke^{\mathrm in\theta})^*]"
        r"=\operatorname{Re}[\underline q\,\underline k^*e^{\mathrm i(m-n)\theta}]",
    ): Formula(
        lambda: {
            "s": pair(2, 5)["s"], r"\theta": THETA, "m": 2, "n": 5, "e": math.e, r"\mathrm i": 1j,
            **{rf"\underline {name}": complex(*pair(2, 5)[name].tolist()) for name in "qk"},
        },
        claim="s=@0",
    ),
    ("Prove it in one line.", r"R_m^\top R_n=R_{n-m}"): Formula(
        lambda: some("M", "R", "m", "n"), claim="M=@0"
    ),
    ("Is a rotation the only way?", "qA^m", r"k(A^{-\top})^n"): Formula(
        lambda: Call({**invertible(4, 1), "s": invertible(4, 1)["s"]},
                     draws=[invertible(6, 3), invertible(5, 2)]),
        claim=r"s=\langle @0,@1\rangle",
        says=("any invertible matrix works",),
    ),
}  # fmt: skip
