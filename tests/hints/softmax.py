"""Chapter 03: what its exercises and questions print, and from where it is known."""

import math

import torch
import torch.nn.functional as F

from book.checkers.softmax.loss import LOSSES
from book.formulas.relations import Call

from .texts import Code, Entries, Formula, draw, oracle

SCORES = draw(5)
P = SCORES.softmax(-1)
E = {"e": math.e}


def jacobian(z):
    return torch.func.jacrev(lambda t: t.softmax(-1))(z)


def backward():
    dp = draw(5, seed=1)
    dz = oracle("softmax.softmax_backward")(dp, P, -1)
    return {"dp": dp, "p": P, "J": jacobian(SCORES), "dz": dz}


def smoothed():
    """The target that cross-entropy smooths, from its gradient: softmax minus target."""
    z = SCORES.clone().requires_grad_()
    F.cross_entropy(z, torch.tensor(2), label_smoothing=0.3).backward()
    return {"q": P - z.grad, "z": SCORES, "c": 2, r"\varepsilon": 0.3,
            r"\operatorname{mean}": torch.mean}  # fmt: skip


def cross_entropy():
    q = draw(5, seed=3).softmax(-1)
    return {r"\ell": F.cross_entropy(SCORES, q), "z": SCORES, "q": q,
            r"\operatorname{lse}": lambda z: z.logsumexp(-1)}  # fmt: skip


def double_softmax(weights):
    """The loss of torch at these weights taken for scores, for two numbers of classes."""
    made = [{**E, "d": d, **weights(d)} for d in (5, 7)]
    for m in made:
        m[r"\ell"] = F.cross_entropy(m["p"], torch.tensor(m["c"]))
    return Call(made[0], draws=made[1:])


def one_hot(place, d):
    return F.one_hot(torch.tensor(place), d).double()


def logits():
    z, target = draw(4, 3), torch.tensor([2, 0, 1, 1])
    want = oracle("softmax.cross_entropy")(z, target, 0.2)
    return {"logits": z, "target": target, "label_smoothing": 0.2}, want


def from_scores():
    z = SCORES.clone().requires_grad_()
    loss = F.cross_entropy(z, torch.tensor(2))
    [g] = torch.autograd.grad(loss, z)
    return {r"\ell": loss.detach(), "g": g, "z": SCORES, "p": P, "c": 2, "y": one_hot(2, 5),
            r"\operatorname{lse}": lambda z: z.logsumexp(-1)}  # fmt: skip


def best_lead():
    """Newton's method on the lead of the right score, until the gradient of torch's loss is 0."""
    lead, eps, d = torch.zeros((), dtype=torch.float64, requires_grad=True), 0.3, 5
    for _ in range(30):
        z = F.pad(lead[None], (0, d - 1))
        loss = F.cross_entropy(z, torch.tensor(0), label_smoothing=eps)
        [slope] = torch.autograd.grad(loss, lead, create_graph=True)
        [bend] = torch.autograd.grad(slope, lead)
        lead = (lead - slope / bend).detach().requires_grad_()
    return {"l": lead.detach(), r"\varepsilon": eps, "d": d}


def held_out():
    scores, right, tau = draw(6, 3), torch.tensor([2, 0, 1, 1, 0, 2]), 1.7
    logs = (scores / tau).log_softmax(1)
    names = {"held_scores": scores, "held_right": right, "tau": tau}
    return names, -logs[torch.arange(6), right].mean()


ENTRIES: Entries = {
    ("ex-softmax-stable", "x.amax(dim, keepdim=True)"): Code(
        lambda: ({"x": draw(3, 4), "dim": 1}, draw(3, 4).max(1, keepdim=True).values),
        ("x.amax(dim)", "x.amin(dim, keepdim=True)", "x.amax(keepdim=True)"),
    ),
    ("ex-softmax-backward", r"dp\,J=dp\operatorname{diag}(p)-(dp\,p^\top)\,p"): Formula(
        backward, claim="dz=@0"
    ),
    ("ex-softmax-calibration", "F.cross_entropy(held_scores / tau, held_right)"): Code(
        held_out,
        (
            "F.cross_entropy(held_scores * tau, held_right)",
            "F.cross_entropy(held_scores, held_right)",
        ),
    ),
    (
        "ex-softmax-cross-entropy",
        "F.cross_entropy(logits, target, label_smoothing=label_smoothing)",
    ): Code(
        logits,
        (
            "F.cross_entropy(logits, target)",
            "F.cross_entropy(logits, target, label_smoothing=label_smoothing, reduction='sum')",
        ),
    ),
    ("ex-softmax-cross-entropy", r"\ell=\operatorname{lse}(z)-\sum_jq_jz_j"): Formula(
        cross_entropy
    ),
    (
        "ex-softmax-cross-entropy",
        r"\sum_jq_jz_j=(1-\varepsilon)z_c+\varepsilon\operatorname{mean}(z)",
    ): Formula(smoothed),
    ("ex-softmax-long-row", r"\ln8"): Formula(
        lambda: {**E, "w": torch.tensor(1.7, dtype=torch.float64)},
        claim=r"\frac{e^{8+@0}}{e^{8+@0}+8000w}=\frac{e^8}{e^8+1000w}",
        says=("would need a score that is",),
    ),
    ("ex-softmax-norm", "torch.func.jacrev(lambda t: t.softmax(0))(z)"): Code(
        lambda: ({"z": SCORES}, torch.diag(P) - torch.outer(P, P)),
        ("torch.func.jacrev(lambda t: t.softmax(0))(2 * z)",),
    ),
    ("ex-softmax-norm", "torch.linalg.matrix_norm(J, 2)"): Code(
        lambda: ({"J": jacobian(SCORES)}, torch.linalg.eigvalsh(jacobian(SCORES))[-1]),
        ("torch.linalg.matrix_norm(J)", "torch.linalg.matrix_norm(J, 1)"),
    ),
    ("ex-softmax-twice", r"-\ln(p_c+10^{-9})"): Formula(
        lambda: {
            "p": P,
            "c": 2,
            r"\ell": LOSSES["ln(p + 1e-9)"][0](P.log()[None], torch.tensor([2])),
        },
        claim=r"\ell=@0",
    ),
    ("ex-softmax-norm", r"\frac16"): Formula(
        lambda: {"n": torch.linalg.matrix_norm(jacobian(torch.zeros(6, dtype=P.dtype)), 2)},
        claim="n=@0",
        says=("reaches only",),
    ),
    ("ex-softmax-twice", r"\ln\sum_ke^{p_k}-p_c"): Formula(
        lambda: {**E, "p": P, "c": 2, r"\ell": F.cross_entropy(P, torch.tensor(2))},
        claim=r"\ell=@0",
        says=("The loss is",),
    ),
    ("ex-softmax-twice", "p_k=1", r"k\ne c", r"\ln(e+d-1)"): Formula(
        lambda: double_softmax(lambda d: {"p": one_hot(1, d), "k": 1, "c": 3}),
        claim=r"\ell=@2\text{ for }@0,\ @1",
        true={
            rf"\ell=\ln(e+d-1)\text{{ for }}p_k=1,\ {{{other}}}\ne c": "differs from c too"
            for other in "ed"
        },
    ),
    ("ex-softmax-twice", r"\sum_ke^{p_k}"): Formula(
        lambda: Call({**E, "p": P, "d": 5}, tight=[{"p": one_hot(1, 5)}]),
        claim=r"@0\le e+d-1",
        says=("largest at a corner",),
    ),
    ("ex-softmax-twice", r"-p_c\le0"): Formula(
        lambda: Call({"p": P, "c": 2}, tight=[{"p": one_hot(1, 5)}]),
        true={r"-p_{c+1}\le0": "no probability is negative"},
    ),
    (
        "With 100 classes a loss falls to 3.62 and stays there. What do you look for?",
        "d=100",
        r"\ln(e+d-1)-1",
    ): Formula(
        lambda: Call(
            {**E, "d": 100, r"\ell": F.cross_entropy(one_hot(2, 100), torch.tensor(2))},
            approx=0.002,
        ),
        claim=r"\ell=@1\approx3.62\text{ for }@0",
        says=("that is 3.62",),
    ),
    (
        "Write the Jacobian of softmax, and its rank.",
        r"\operatorname{diag}(p)-p^\top p",
        "d-1",
    ): Formula(
        lambda: {"J": jacobian(SCORES), "p": P, "d": 5},
        claim=r"J=@0,\qquad\operatorname{rank}J=@1",
        says=("the rank is",),
    ),
    (
        "Why does F.cross_entropy take scores and not probabilities?",
        r"\operatorname{lse}(z)-z_c",
        "p-y",
        r"-\ln p_c",
    ): Formula(
        from_scores,
        claim=r"\ell=@0,\qquad g=@1,\qquad\ell=@2",
        says=("The loss is", "has the gradient"),
    ),
    ("How can softmax be computed in one pass?", "e^{m-m'}"): Formula(
        lambda: {**E, "s": (P - 0.3).exp().sum(), "s'": (P - 1.7).exp().sum(), "m": 0.3, "m'": 1.7},
        claim="s'=s@0",
        says=("from $m$ to $m'$, multiply the sum",),
    ),
    (
        "What does label smoothing do to the scores?",
        r"\ln(1+(1-\varepsilon)d/\varepsilon)",
    ): Formula(best_lead, claim="l=@0", says=("the best lead of the right score",)),
}
