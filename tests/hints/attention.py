"""Chapter 05: what its exercises and questions print, and from where it is known."""

import torch
import torch.nn.functional as F

from book.formulas.relations import Call

from .map import quadratic
from .texts import Code, Entries, Formula, LeftOut, draw

Q, K, V = draw(4, 3), draw(6, 3, seed=1), draw(6, 5)
D_OUT = draw(4, 5, seed=2)


def backward():
    """All gradients of one head, by autograd."""
    scores = (torch.einsum("ic,jc->ij", Q, K) / 3**0.5).requires_grad_()
    weights = scores.softmax(-1)
    value = V.clone().requires_grad_()
    d_weights, d_value = torch.autograd.grad(weights @ value, (weights, value), D_OUT,
                                             retain_graph=True)  # fmt: skip
    [d_scores] = torch.autograd.grad(weights, scores, d_weights)
    leaves = [q, k] = [t.clone().requires_grad_() for t in (Q, K)]
    out = F.scaled_dot_product_attention(q, k, V)
    d_query, d_key = torch.autograd.grad(out, leaves, D_OUT)
    return {
        "A": weights.detach(), "a": weights.detach(), "dA": d_weights, "dV": d_value, "dO": D_OUT,
        "V": V, "ds": d_scores, "q": Q, "k": K, "dq": d_query, "dk": d_key, r"d_\text{head}": 3,
    }  # fmt: skip


def some(*names):
    return {name: value for name, value in backward().items() if name in names}


WEIGHTS = draw(4, 6).softmax(-1)


def every_score():
    """The scores of two sets of queries and keys, one product at a time."""
    q, k = draw(2, 4, 3).tolist(), draw(2, 5, 3).tolist()

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    return torch.tensor(
        [[[dot(a, b) for b in k[n]] for a in q[n]] for n in range(2)], dtype=torch.float64
    )


def largest():
    return torch.tensor([max(row) for row in WEIGHTS.tolist()], dtype=torch.float64)


def concatenated():
    heads, w_o = draw(2, 4, 3), draw(2, 3, 5)
    return {"Z": heads, "W_O": w_o, "Y": torch.cat([*heads], -1) @ torch.cat([*w_o])}


ENTRIES: Entries = {
    ("ex-attention-sdpa", r"-\infty"): Formula(
        lambda: {"f": lambda s: torch.full((3,), float(s)).softmax(-1).isnan().sum()},
        claim="f(@0)=3",
        says=("is nan",),
    ),
    ("ex-attention-decided", "q @ k.mT"): Code(
        lambda: ({"q": draw(2, 4, 3), "k": draw(2, 5, 3)}, every_score()),
        wrong=("k @ q.mT", "q * k", "q @ k"),
    ),
    ("ex-attention-decided", "weights.amax(-1)"): Code(
        lambda: ({"weights": WEIGHTS}, largest()),
        wrong=("weights.amax(0)", "weights.argmax(-1)", "weights.sum(-1)"),
    ),
    ("ex-attention-leak", "(x - 10).relu()"): Code(
        lambda: ({"x": torch.tensor([-12.0, 3.0, 11.0])}, torch.tensor([0.0, 0.0, 1.0])),
        wrong=("(10 - x).relu()", "x - 10", "(x + 10).relu()"),
    ),
    ("ex-attention-leak", "10^{-9}"): LeftOut("a tolerance, compared with the reference"),
    ("ex-attention-bug-hunt", "XW"): Formula(
        lambda: {"Y": F.linear(draw(4, 3), draw(5, 3)), "X": draw(4, 3), "W": draw(5, 3).T},
        claim="Y=@0",
    ),
    (
        "When does the quadratic part dominate?",
        r"4T^2d_\text{model}", r"24\,Td_\text{model}^2", r"T=6\,d_\text{model}",
        r"d_\text{ff}=4\,d_\text{model}",
    ): Formula(
        quadratic, claim=r"C=@0,\qquad P=@1\text{ for }@3,\qquad @0=@1\iff @2"
    ),
    ("Write the backward pass.", r"dV=A^\top dO", r"dA=dO\,V^\top"): Formula(
        lambda: some("dV", "A", "dO", "dA", "V"), claim=r"@0,\qquad @1"
    ),
    ("Write the backward pass.", r"dq_i=\sum_jds_{ij}k_j/\sqrt{d_\text{head}}"): Formula(
        lambda: Call(some("dq", "ds", "k", r"d_\text{head}"), ranges={"i": range(4)})
    ),
    ("Write the backward pass.", r"dk_j=\sum_ids_{ij}q_i/\sqrt{d_\text{head}}"): Formula(
        lambda: Call(some("dk", "ds", "q", r"d_\text{head}"), ranges={"j": range(6)})
    ),
    ("Does a saturated softmax stop all gradients?", r"\operatorname{diag}(a)-a^\top a"): Formula(
        lambda: {
            "J": torch.func.jacrev(lambda s: s.softmax(-1))(draw(4)),
            "a": draw(4).softmax(-1),
        },
        claim="J=@0",
        says=("the Jacobian",),
    ),
    ("Does a saturated softmax stop all gradients?", r"A^\top dO"): Formula(
        lambda: some("dV", "A", "dO"), claim="dV=@0", says=("The values receive",)
    ),
    ("What does W_O do?", r"\sum_h Z^{(h)}W_O^{(h)}"): Formula(
        concatenated, claim="Y=@0", says=("Concatenation followed by $W_O$ equals",)
    ),
}  # fmt: skip
