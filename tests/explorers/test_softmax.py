"""The explorers of chapter 3: softmax and its Jacobian by torch, half precision by NumPy."""

import math

import numpy as np
import torch
from torch.autograd.functional import jacobian
from torch.distributions import Categorical

from book.explorer import Bars, Grid, Lines

from .reading import Seen, check_explorer, says


@check_explorer("explore-temperature", {"temperature": "0.5", "first score": "1"})
def test_temperature_and_a_first_score():
    grid = np.arange(-4, 8.01, 0.25)
    entropies, norms = [], []
    for first in grid:
        scores = torch.tensor([first, 1, 0.5, 0, -1]) / 0.5
        entropies.append(Categorical(logits=scores).entropy().item())
        norms.append(torch.linalg.matrix_norm(jacobian(lambda z: z.softmax(0), scores), 2).item())
    p = torch.softmax(torch.tensor([1, 1, 0.5, 0, -1]) / 0.5, 0)
    there = grid.tolist().index(1)
    share = np.array(entropies) / math.log(5)
    return Seen(
        says(
            "Temperature {}, first score {}: its weight is {}, the entropy is {} of at most {}, "
            "and ‖J‖₂ is {} of at most {}",
            *(0.5, 1, p[0], entropies[there], math.log(5), norms[there], 0.5),
        ),
        Bars("weights", list("12345"), {"p": p}, "entry", "weight"),
        Lines(
            "for every first score",
            grid,
            {
                "entropy / ln 5": share,
                "2 ‖J‖₂": 2 * np.array(norms),
                "this entropy": np.where(grid == 1, share, np.nan),
            },
            "first score",
            "share of the maximum",
        ),
    )


@check_explorer(
    "explore-overflow", {"largest score z": "12", "dtype": "float16", "maximum": "not subtracted"}
)
def test_half_precision_overflows_at_twelve():
    scores = np.array([12, 11, 10, 8])
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(scores.astype(np.float16))
        computed = powers / powers.sum(dtype=np.float16)
    exact = np.exp(scores - 12.0) / np.exp(scores - 12.0).sum()
    return Seen(
        says(
            "float16, largest score {}, maximum not subtracted: {} of {} weights are nan",
            *(12, int(np.isnan(computed).sum()), 4),
        ),
        Bars(
            "weights",
            ["z", "z − 1", "z − 2", "z − 4"],
            {"computed": computed, "exact": exact},
            "score",
            "weight",
        ),
    )


@check_explorer("explore-jacobian", {"scores": "one leads", "times": "3"})
def test_the_jacobian_of_one_score_that_leads():
    scores = torch.tensor([3.0, 0, 0, 0, 0, 0])
    p, j = scores.softmax(0).numpy(), jacobian(lambda z: z.softmax(0), scores).numpy()
    eigenvalues = np.sort(np.linalg.eigvals(j).real)[::-1]
    return Seen(
        says(
            "one leads, scores times {}: largest weight {}, ‖J‖₂ = {}, largest row sum of |J| {}",
            *(3, p[0], eigenvalues[0], np.abs(j).sum(1).max()),
        ),
        Bars("weights", list("123456"), {"p": p}, "entry", "weight"),
        Grid(
            "Jacobian: touch an entry",
            j,
            ["p₁", "p₂", "p₃", "p₄", "p₅", "p₆"],
            ["z₁", "z₂", "z₃", "z₄", "z₅", "z₆"],
            detail=lambda r, c: f"{p[r]:.3f} · ({1 if r == c else 0} − {p[c]:.3f}) = {j[r, c]:.3f}",
            limits=(-0.25, 0.25),
            diverging=True,
        ),
        Bars("eigenvalues", list("123456"), {"of J": eigenvalues}, "number", "eigenvalue"),
    )
