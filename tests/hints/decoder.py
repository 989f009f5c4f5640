"""Chapter 15: what its exercises and questions print, and from where it is known."""

import cmath

import torch
import torch.nn.functional as F

from book.checkers import exercise
from book.formulas.relations import Call

from .cost import BLOCK as ONE_TOKEN
from .cost import as_much_again
from .rope import turning
from .texts import Code, Entries, Formula, draw, oracle, row

LLAMA = {r"n_\text{vocab}": 128256, "d": 4096, "L": 32, "H": 32, "G": 8,
         r"d_\text{head}": 128, r"d_\text{ff}": 14336}  # fmt: skip


def unequal():
    """A model of the exercise whose heads are wider than d_model / num_heads."""
    for case in exercise("decoder.parameter_count").cases:
        _, d_model, _, heads, _, head_dim, *_ = case.inputs()
        if heads * head_dim != d_model:
            return {"H": heads, r"d_\text{head}": head_dim, r"d_\text{model}": d_model}
    raise AssertionError("no case has such heads")


def cut():
    logits = row(0.3, 2.0, -1.0, 1.1)
    return {"y": oracle("decoder.top_p")(logits, 0.6), "z": logits}


def sorted_mask():
    """Which tokens are dropped, known in the sorted order, and in that of the tokens."""
    logits, drop = draw(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    drop[0, 3:], drop[1, 1:] = True, True
    index = logits.argsort(-1, descending=True)
    want = torch.stack([
        torch.tensor([bool(drop[i][(logits[i] > logits[i, v]).sum()]) for v in range(5)])
        for i in range(2)
    ])  # fmt: skip
    return {"mask": drop, "index": index}, want


def permuted():
    weight = draw(6, 1)
    new, *_ = oracle("decoder.convert")(weight, weight, weight, weight[:, 0], weight[:, 0], 1, 1)
    return Call({"v": weight[:, 0], "w": new[:, 0], r"d_\text{head}": 6}, ranges={"k": range(3)})


def equal_work():
    """Keys at which the two products of all heads cost what the matrices do, counted one by one."""
    one_key = sum(2 * 2 * 128 for _ in range(32) for _ in range(32))  # layers, heads
    return {"S": 15e9 / one_key}


def step(which):
    """One half of a block, with the other half doing nothing."""
    x, w = draw(3, 4), draw(4, 4)
    parts = {"GQA": lambda t: t @ w, "SwiGLU": lambda t: F.silu(t) @ w}
    norm = torch.nn.RMSNorm(4, eps=1e-5, dtype=torch.float64)
    used = [parts[name] if name == which else torch.zeros_like for name in parts]
    y = oracle("transformer.encoder_layer")(x, *used, norm, norm, True)
    return {"x": x, "y": y.detach(), r"\operatorname{RMSNorm}": lambda t: F.rms_norm(t, (4,), None,
            1e-5), rf"\operatorname{{{which}}}": parts[which]}  # fmt: skip


def parameters():
    v, d, layers, h, g, head, ff = LLAMA.values()
    count = oracle("decoder.parameter_count")(v, d, layers, h, g, head, ff, False, False, False)
    return {**LLAMA, "N": count}


BLOCK = "Draw the block of a Llama. What changed since the original Transformer?"
SETTINGS = [rf"{name}={value}" for name, value in LLAMA.items()]
FORM = r"2n_\text{vocab}d+L\,(2d\,d_\text{head}(H+G)+3d\,d_\text{ff}+2d)+d"


def bias_term():
    """The score of two rows of zeros with biases, both rotated; the distance is three."""
    b_q, b_k = draw(2), draw(2, seed=1)
    places = {"m": 4, "n": 7}
    turned = [
        torch.view_as_real(torch.view_as_complex(b) * cmath.exp(1j * 0.7 * at))
        for b, at in zip((b_q, b_k), places.values(), strict=True)
    ]
    return {"b_Q": b_q, "b_K": b_k, **places, "R": {3: turning(3, 0.7)},
            "s": turned[0] @ turned[1]}  # fmt: skip


def second_part():
    """The FLOPs of one token's scores and values in all layers, from the reference."""
    bound, keys = as_much_again(), 11
    flops = oracle("cost.block_flops")
    attention = flops(**ONE_TOKEN, keys=keys) - flops(**ONE_TOKEN, products=0)
    return {**{k: v for k, v in bound.items() if k != "S"}, "S": keys, "T": bound["S"],
            "A": bound["L"] * attention}  # fmt: skip


ENTRIES: Entries = {
    ("ex-dec-parameters", r"Hd_\text{head}=d_\text{model}"): Formula(
        unequal, says=("Do not assume that",), swap={"=": r"\ne "}
    ),
    ("ex-dec-top-p", r"-\infty"): Formula(
        cut, claim=r"y_v=\begin{cases}z_v&\text{if }v=1\\@0&\text{otherwise}\end{cases}",
        says=("for every token outside the nucleus",),
    ),
    ("ex-dec-top-p", "torch.zeros_like(mask).scatter(-1, index, mask)"): Code(
        sorted_mask,
        ("mask.gather(-1, index)", "mask", "torch.zeros_like(mask).scatter(0, index, mask)"),
    ),
    ("ex-dec-convert", "2k", r"k+d_\text{head}/2", "2k+1"): Formula(
        permuted,
        claim=r"w_{@0}=v_k,\qquad w_{@2}=v_{@1}",
        says=("feature $k$ of a head goes to place $2k$, feature $k+d_\\text{head}/2$ to $2k+1$",),
    ),
    ("ex-dec-crossing", r"2\cdot7.5\cdot10^9", r"4\cdot128"): Formula(
        equal_work,
        claim=r"S=@0/(32\cdot32\cdot@1)",
        says=("The matrices cost", "in one head of one layer"),
    ),
    (BLOCK, r"x\leftarrow x+\operatorname{GQA}(\operatorname{RMSNorm}(x))"): Formula(
        lambda: step("GQA"), swap={r"x\leftarrow": "y="}
    ),
    (BLOCK, r"x\leftarrow x+\operatorname{SwiGLU}(\operatorname{RMSNorm}(x))"): Formula(
        lambda: step("SwiGLU"), swap={r"x\leftarrow": "y="}
    ),
    ("How many parameters has Llama 3 8B? Show the formula.", FORM, *SETTINGS): Formula(
        parameters,
        claim="N=@0\\text{ for }" + ",\\ ".join(f"@{n + 1}" for n in range(len(SETTINGS))),
    ),
    ("What can the biases of Qwen2's queries, keys and values do?", r"b_QR_{n-m}b_K^\top"): Formula(
        bias_term, claim="s=@0", says=("depends on the distance alone",)
    ),
    (
        "How many FLOPs does one token cost?",
        r"4LHd_\text{head}S", r"N_\text{mat}/(2LHd_\text{head})",
    ): Formula(
        second_part,
        claim=r"A=@0,\qquad T=@1",
        says=("Twice the entries of all matrices, plus", "The two parts are equal at"),
    ),
}  # fmt: skip
