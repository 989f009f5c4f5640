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
    entropies, slopes = [], []
    for first in grid:
        scores = torch.tensor([first, 1, 0.5, 0, -1]) / 0.5
        entropies.append(Categorical(logits=scores).entropy().item())
        slope = jacobian(lambda z: (z / 0.5).softmax(0), 0.5 * scores)
        slopes.append(torch.linalg.matrix_norm(slope, 2).item())
    p = torch.softmax(torch.tensor([1, 1, 0.5, 0, -1]) / 0.5, 0)
    there = grid.tolist().index(1)
    share = np.array(entropies) / math.log(5)
    return Seen(
        says(
            "Temperature {}, first score {}: its weight is {}, the entropy is {} of at most {}, "
            "and the slope ‖J‖₂/τ is {} of at most {}",
            *(0.5, 1, p[0], entropies[there], math.log(5), slopes[there], 1.0),
        ),
        Bars("weights", list("12345"), {"p": p}, "entry", "weight"),
        Lines(
            "for every first score",
            grid,
            {
                "entropy / ln 5": share,
                "slope · 2τ": np.array(slopes),
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


@check_explorer("explore-scores", {"first score": "4", "second score": "-1", "temperature": "2"})
def test_the_third_share_and_the_second_do_not_care_for_the_first():
    powers = np.exp(np.array([4, -1, 0]) / 2)
    shares = powers / powers.sum()
    return Seen(
        says(
            "Scores {}, {} and 0 at temperature {}: the shares are {}, {} and {}. The second is "
            "{} times the third",
            *(4, -1, 2, *shares, np.exp(-1 / 2)),
        ),
        Bars("scores", ["first", "second", "third"], {"score": [4, -1, 0]}, "", "score"),
        Bars("shares", ["first", "second", "third"], {"share": shares}, "", "share"),
    )


@check_explorer(
    "explore-belief", {"belief in the first": "0.8", "of the rest, to the second": "0.2"}
)
def test_what_a_wrong_belief_costs():
    truth, belief = Categorical(torch.tensor([0.5, 0.3, 0.2])), torch.tensor([0.8, 0.04, 0.16])
    price = torch.distributions.kl_divergence(truth, Categorical(belief)).item()
    least = truth.entropy().item()
    return Seen(
        says(
            "Believing in {}, {} and {}, one is surprised by {} nats on average. {} of these "
            "nobody can avoid, and {} are the price of the wrong belief",
            *(0.8, 0.04, 0.16, least + price, least, price),
        ),
        Bars(
            "probabilities",
            ["first", "second", "third"],
            {"truth": truth.probs, "belief": belief},
            "",
            "probability",
        ),
        Bars(
            "mean surprise",
            ["unavoidable", "price of the belief", "together"],
            {"nats": [least, price, least + price]},
            "",
            "nats",
        ),
    )


@check_explorer("explore-online", {"keys read": "4", "from the": "right"})
def test_four_keys_from_the_right():
    scores, values = np.array([1, 3, 2, 5, 4, 2]), np.array([4, 1, 2, 3, 0, 5])
    s, o = 1.0, 5.0  # after key 6, from its score of 2
    s, o = s * np.exp(2 - 4) + 1, o * np.exp(2 - 4)  # after key 5, from its score of 4
    s, o = s * np.exp(4 - 5) + 1, o * np.exp(4 - 5) + 3  # after key 4, from its score of 5
    s, o = s + np.exp(2 - 5), o + 2 * np.exp(2 - 5)  # key 3 changes no maximum
    whole = np.exp(scores - 5)
    weights = np.where(np.arange(6) < 2, np.nan, whole)

    def worked(row, key):
        if row < 2 or key < 2:
            return f"key {key + 1}: score {scores[key]}, value {values[key]}"
        power = f"e^({scores[key]} − 5) = {whole[key]:.3f}"
        times = f"{power}, times {values[key]} is {whole[key] * values[key]:.3f}"
        return power if row == 2 else times

    return Seen(
        says(
            "{} of {} keys read from the right: m = {}, s = {}, o = {}, and the average so far is "
            "o/s = {}. The last key multiplied what came before by {}. The whole row gives {}",
            *(4, 6, 5, s, o, o / s, 1.0, (whole * values).sum() / whole.sum()),
        ),
        Grid(
            "what is known of each key: touch a number",
            np.array([scores, values, weights, weights * values]),
            ["score z", "value v", "e^(z − m)", "times v"],
            [f"key {k}" for k in range(1, 7)],
            text=lambda x: f"{x:.0f}" if x % 1 == 0 else f"{x:.3f}",
            detail=worked,
            limits=(0, 5),
            empty="·",
        ),
        Bars(
            "carried along",
            ["m", "s", "o", "o/s"],
            {"so far": [5, s, o, o / s]},
            "a score, two sums, their ratio",
            "number",
        ),
    )
