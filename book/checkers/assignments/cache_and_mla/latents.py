"""Questions of the assignment: longest_context, low_rank, absorb_output."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.cache_and_mla.heads import apart
from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# --- longest_context ------------------------------------------------------------------------------


def _longest(
    memory: int, batch: int, full_layers: int, window_layers: int, window: int, row_bytes: int
) -> int | None:
    def fits(length: int) -> bool:
        rows = full_layers * length + window_layers * min(length, window)
        return batch * rows * row_bytes <= memory

    if not full_layers and fits(window):
        return None
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@in_parts
def _longest_with(
    short: Callable[[float, int, int], float] = lambda rows, f, w: rows / (f + w),
    long: Callable[[float, int, int, int], float] = lambda rows, f, w, n: (rows - w * n) / f,
    size: Callable[[int, int], int] = lambda batch, row: batch * row,
    whole: Callable[[float], int] = math.floor,
    endless: bool = True,
) -> Answer:
    def answer(
        memory: int, batch: int, full_layers: int, window_layers: int, window: int, row_bytes: int
    ) -> int | None:
        rows = memory / size(batch, row_bytes)
        if short(rows, full_layers, window_layers) < window:
            return whole(short(rows, full_layers, window_layers))
        if not full_layers:
            return None if endless else window
        return whole(long(rows, full_layers, window_layers, window))

    return answer


_LONGEST = Exercise(
    title="The longest context that fits",
    oracle=_longest,
    cases=(
        Case.of("values: all layers full", 10**9, 4, 32, 0, 1, 2048),
        Case.of("values: half of the layers have a window", 10**9, 4, 16, 16, 1024, 2048),
        Case.of("values: five windows to one full layer", 2 * 10**9, 3, 10, 52, 1024, 8192),
        Case.of("values: shorter than the window", 10**8, 4, 16, 16, 4096, 2048),
        Case.of("corners: windows only, with room", 10**9, 1, 0, 32, 512, 1000),
        Case.of("corners: windows only, too little room", 10**7, 1, 0, 32, 4096, 1000),
        Case.of("corners: room for nothing", 1000, 8, 16, 16, 1024, 2048),
        Case.of("corners: exactly ten", 10 * 7 * 3 * 5, 3, 4, 3, 100, 5),
    ),
    wrong=(
        WrongAnswer(
            "windows treated as full layers",
            "A layer with a window keeps no more than `window` positions.",
            _longest_with(long=lambda rows, f, w, n: rows / (f + w)),
        ),
        WrongAnswer(
            "windows treated as free",
            "They are bounded, not empty: min(length, window) positions each.",
            _longest_with(short=lambda rows, f, w: rows / f if f else math.inf,
                          long=lambda rows, f, w, n: rows / f),
        ),
        WrongAnswer(
            "full windows in a short text",
            "Below `window` positions a layer with a window grows like any other.",
            _longest_with(short=lambda rows, f, w: math.inf,
                          long=lambda rows, f, w, n: max(0, (rows - w * n) / f)),
        ),
        WrongAnswer(
            "one sequence",
            "Each of the `batch` sequences has a cache of its own.",
            _longest_with(size=lambda batch, row: row),
        ),
        WrongAnswer(
            "rounded up",
            "A position that does not fit as a whole does not fit. Round down.",
            _longest_with(whole=math.ceil),
        ),
        WrongAnswer(
            "no length is too long, and still a number",
            "Without full layers the cache stops growing: any length fits, which is None here.",
            _longest_with(endless=False),
        ),
        WrongAnswer(
            "one window for all layers together",
            "Every layer with a window keeps a window of its own; here one of them is taken off "
            "the memory.",
            _longest_with(long=lambda rows, f, w, n: (rows - n) / f),
        ),
        WrongAnswer(
            "the rest shared with the windows",
            "Once the windows are full they need nothing more. What is left belongs to the full "
            "layers.",
            _longest_with(long=lambda rows, f, w, n: (rows - w * n) / (f + w)),
        ),
        WrongAnswer(
            "an exact fit refused",
            "What takes all of the memory still fits. `<` where `<=` is meant loses one "
            "position.",
            _longest_with(whole=lambda x: max(0, math.ceil(x) - 1)),
        ),
        WrongAnswer(
            "no limit although the windows do not fit",
            "Without full layers there is no limit only if there is room for full windows. Here "
            "that is not looked at.",
            _longest_with(short=lambda rows, f, w: rows / (f + w) if f else math.inf),
        ),
        WrongAnswer(
            "keys and values counted",
            "`row_bytes` is what a position takes in a layer, keys and values together. It is "
            "doubled here.",
            _longest_with(size=lambda batch, row: 2 * batch * row),
        ),
    ),
    variants=(_longest_with(),),
)  # fmt: skip


# --- low_rank -------------------------------------------------------------------------------------


def _kept(product: Tensor, weight: Tensor) -> tuple[Tensor, float]:
    return product, (product.square().sum() / weight.square().sum()).item()


def _best(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    """By the eigenvectors of W W^T: project the outputs on the strongest of them."""
    values, vectors = torch.linalg.eigh(weight @ weight.mT)
    strongest = vectors[:, -rank:]
    return strongest @ strongest.mT @ weight, (values[-rank:].sum() / values.sum()).item()


def _multiplied(factor: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> Answer:
    def answer(weight: Tensor, rank: int) -> tuple[Tensor, float]:
        down, up = factor(weight, rank)
        return _kept(up @ down, weight)

    return answer


def _norms(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    product, share = _best(weight, rank)
    return product, math.sqrt(share)


def _sizes(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    s = torch.linalg.svdvals(weight)
    return _best(weight, rank)[0], (s[:rank].sum() / s.sum()).item()


def _lost(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    product, share = _best(weight, rank)
    return product, 1 - share


def _share_of_ranks(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    return _best(weight, rank)[0], rank / min(weight.shape)


def _centred(weight: Tensor, rank: int) -> tuple[Tensor, float]:
    u, s, vt = torch.linalg.svd(weight - weight.mean(0), full_matrices=False)
    share = s[:rank].square().sum() / s.square().sum()
    return (u[:, :rank] * s[:rank]) @ vt[:rank], share.item()


def _not_transposed(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    u, s, vt = torch.linalg.svd(weight, full_matrices=False)
    return vt[:, :rank].mT, u[:, :rank] * s[:rank]


@in_parts
def _factors(
    choose: Callable[[Tensor, int], Tensor] = lambda s, r: torch.arange(r),
    left: float = 0.5,
    right: float = 0.5,
) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    def answer(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        u, s, vt = torch.linalg.svd(weight, full_matrices=False)
        i = choose(s, rank)
        return s[i, None] ** right * vt[i], u[:, i] * s[i] ** left

    return answer


def _first_rows(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    return weight[:rank], torch.eye(weight.shape[0], rank, dtype=weight.dtype)


def _rank_case(name: str, rows: int, columns: int, rank: int) -> Case:
    return Case(name, lambda: (draw(rows, columns), rank), 1e-8)


_LOW_RANK = Exercise(
    title="A latent for keys that exist",
    oracle=_best,
    cases=(
        _rank_case("values: six by ten, rank 2", 6, 10, 2),
        _rank_case("values: ten by six, rank 3", 10, 6, 3),
        _rank_case("values: square", 8, 8, 5),
        _rank_case("corners: rank 1", 5, 7, 1),
        _rank_case("corners: nothing is lost", 4, 9, 4),
        _rank_case("corners: all but one", 9, 5, 4),
    ),
    wrong=(
        WrongAnswer(
            "the smallest singular values kept",
            "The error is the size of what is left out. Leave out the smallest.",
            _multiplied(_factors(choose=lambda s, r: torch.arange(len(s) - r, len(s)))),
        ),
        WrongAnswer(
            "singular values left out",
            "U and V have rows of length 1. The sizes are in S, which must go to one of them.",
            _multiplied(_factors(left=0.0, right=0.0)),
        ),
        WrongAnswer(
            "singular values taken twice",
            "Give S to one factor, or its root to both, but not S to both.",
            _multiplied(_factors(left=1.0, right=1.0)),
        ),
        WrongAnswer(
            "the first rows of the matrix",
            "This keeps some outputs and drops the others. The best subspace mixes all of them.",
            _multiplied(_first_rows),
        ),
        WrongAnswer(
            "the share of the norm",
            "The share of the sum of squares was asked for; this is its root.",
            _norms,
        ),
        WrongAnswer(
            "singular values not squared",
            "The sum of squares of a matrix is the sum of the squares of its singular values.",
            _sizes,
        ),
        WrongAnswer(
            "the share that is lost",
            "This is the share of what is left out. The share of what the product keeps was "
            "asked for.",
            _lost,
        ),
        WrongAnswer(
            "the share of the ranks",
            "Singular values are not all the same, so that a third of them keeps more than a "
            "third.",
            _share_of_ranks,
        ),
        WrongAnswer(
            "columns of V taken from its transpose",
            "torch's `svd` returns V transposed already: its rows, not its columns, are the "
            "directions.",
            _multiplied(_not_transposed),
        ),
        WrongAnswer(
            "centred as for principal components",
            "The mean of the rows is part of the matrix too. Taken away it is missing in the "
            "product.",
            _centred,
        ),
    ),
    variants=(
        _multiplied(_factors()),
        _multiplied(_factors(left=1.0, right=0.0)),
        _multiplied(_factors(left=0.0, right=1.0)),
    ),
    spared=dict.fromkeys(SIXTEEN_BITS, "torch decomposes no matrix in 16 bits"),
)


# --- absorb_output --------------------------------------------------------------------------------


def _absorb(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """Column by column: what one input feature of one head becomes in the output."""
    d_in, d_head = w_v.shape[1], w_v.shape[0] // num_kv_heads
    out = torch.zeros(num_heads, d_in, w_o.shape[0], dtype=w_v.dtype)
    for h in range(num_heads):
        for i in range(d_in):
            value = torch.zeros(num_heads * d_head, dtype=w_v.dtype)
            g = h // (num_heads // num_kv_heads)
            value[h * d_head : (h + 1) * d_head] = w_v[g * d_head : (g + 1) * d_head, i]
            out[h, i] = F.linear(value, w_o)
    return out


@in_parts
def _absorb_with(
    spread: Callable[[Tensor, int], Tensor] = lambda x, n: x.repeat_interleave(n, 0),
    cut: Callable[[Tensor, int], Tensor] = lambda w, h: apart(w, 1, (h, -1)).permute(1, 2, 0),
    own: Callable[[Tensor, int], Tensor] = lambda w, g: apart(w, 0, (g, -1)).mT,
    done: Callable[[Tensor], Tensor] = lambda x: x,
) -> Answer:
    def answer(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
        values = own(w_v, num_kv_heads)
        return done(spread(values, num_heads // num_kv_heads) @ cut(w_o, num_heads))

    return answer


def _absorb_by_einsum(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    v = w_v.reshape(num_kv_heads, -1, w_v.shape[1])
    o = w_o.reshape(len(w_o), num_kv_heads, num_heads // num_kv_heads, -1)
    return torch.einsum("gdi,ogrd->grio", v, o).flatten(0, 1)


def _absorb_per_group(w_v: Tensor, w_o: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    return apart(_absorb_with()(w_v, w_o, num_heads, num_kv_heads), 0, (num_kv_heads, -1)).sum(1)


def _absorb_case(name: str, h: int, g: int, d_in: int, d_head: int, d_out: int) -> Case:
    return Case(
        name, lambda: (draw(g * d_head, d_in), draw(d_out, h * d_head, seed=1), h, g), EXACT
    )


_ABSORB = Exercise(
    title="The values' matrix into the output's",
    oracle=_absorb,
    cases=(
        _absorb_case("values: six heads in two groups", 6, 2, 5, 3, 7),
        _absorb_case("values: four heads in two groups, square", 4, 2, 8, 2, 8),
        _absorb_case("values: six heads in three groups", 6, 3, 4, 6, 5),
        _absorb_case("corners: every head its own", 4, 4, 5, 3, 5),
        _absorb_case("corners: one group", 4, 1, 6, 4, 3),
        _absorb_case("corners: one head", 1, 1, 3, 2, 4),
    ),
    wrong=(
        WrongAnswer(
            "repeat for repeat_interleave",
            "Query heads of a group are neighbours: head h uses the values of head h // (H / G).",
            _absorb_with(spread=lambda x, n: x.repeat(n, 1, 1)),
        ),
        WrongAnswer(
            "the output's columns cut the other way",
            "The concatenated heads lie one behind the other: head h has columns h d to h d + d.",
            _absorb_with(cut=lambda w, h: apart(w, 1, (-1, h)).permute(2, 1, 0)),
        ),
        WrongAnswer(
            "inputs and outputs exchanged",
            "Rows are multiplied from the left here, x @ M[h]: inputs first, then outputs.",
            _absorb_with(done=lambda x: x.mT),
        ),
        WrongAnswer(
            "summed over the heads",
            "Each head weighs the positions differently, so that each keeps a matrix of its own.",
            _absorb_with(done=lambda x: x.sum(0, keepdim=True).expand_as(x)),
        ),
        WrongAnswer(
            "mean over the heads",
            "The output is the sum over the heads. Nothing is divided by their number.",
            _absorb_with(done=lambda x: x / len(x)),
        ),
        WrongAnswer(
            "the values' rows cut the other way",
            "The heads of the values lie one behind the other in the rows of w_v: head g has "
            "rows g d to g d + d.",
            _absorb_with(own=lambda w, g: apart(w, 0, (-1, g)).permute(1, 2, 0)),
        ),
        WrongAnswer(
            "the values' matrix reshaped, not transposed",
            "The shape fits, but its numbers are in other places: a reshape reads them in their "
            "old order.",
            _absorb_with(own=lambda w, g: w.reshape(g, w.shape[1], -1)),
        ),
        WrongAnswer(
            "the output's matrix reshaped, not transposed",
            "Heads are cut from the columns of w_o, and a reshape cuts rows: the shape fits, "
            "the numbers do not.",
            _absorb_with(cut=lambda w, h: w.reshape(h, -1, w.shape[0])),
        ),
        WrongAnswer(
            "one matrix per group",
            "The heads of a group share their values, but not their weights: what they give "
            "cannot be added before the weights are known.",
            _absorb_per_group,
        ),
        WrongAnswer(
            "stacked to one matrix",
            "Inputs of all heads in one dimension: the heads' own dimension was asked for, in "
            "front.",
            _absorb_with(done=lambda x: x.flatten(0, 1)),
        ),
    ),
    variants=(_absorb_with(), _absorb_by_einsum),
)  # fmt: skip


EXERCISES = {
    "longest_context": _LONGEST,
    "low_rank": _LOW_RANK,
    "absorb_output": _ABSORB,
}
