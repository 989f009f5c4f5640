"""The explorers of chapter 3: softmax and its Jacobian by torch, half precision by NumPy."""

import math

import numpy as np
import torch
from torch.autograd.functional import jacobian
from torch.distributions import Categorical

from book.explorer import Bars, Box, Curve, Grid, Lines, Scene

from .reading import Seen, check_explorer, says


@check_explorer("explore-temperature", {"temperature": "0.5", "first score": "1"})
def test_temperature_and_a_first_score():
    grid = np.arange(-4, 8.01, 0.25)
    rivals = np.exp(np.array([1, 0.5, 0, -1]) / 0.5).sum()
    weight = 1 / (1 + rivals * np.exp(-grid / 0.5))
    scores = torch.tensor([1, 1, 0.5, 0, -1])
    p = torch.softmax(scores / 0.5, 0)
    entropy = Categorical(p).entropy().item()
    slope = jacobian(lambda z: (z / 0.5).softmax(0), scores)
    return Seen(
        says(
            "Temperature {}, first score {}: its weight is {}, the entropy is {} of at most {}, "
            "and the slope ‖J‖₂/τ is {} of at most {}",
            *(0.5, 1, p[0], entropy, math.log(5), torch.linalg.matrix_norm(slope, 2).item(), 1.0),
        ),
        Bars("weights", list("12345"), {"p": p}, "entry", "weight"),
        Lines(
            "for every first score",
            grid,
            {"its weight": weight, "here": np.where(grid == 1, weight, np.nan)},
            "first score",
            "weight of the first",
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
            "float16, largest score {}, maximum not subtracted: "
            "of {} weights {} are nan and {} are 0",
            *(12, 4, int(np.isnan(computed).sum()), int((computed == 0).sum())),
        ),
        Bars(
            "weights",
            ["z", "z − 1", "z − 2", "z − 4"],
            {"computed": computed, "exact": exact},
            "score",
            "weight",
        ),
        Grid(
            "the same in numbers",
            np.stack([computed, exact]),
            ["computed", "exact"],
            ["z", "z − 1", "z − 2", "z − 4"],
            "{:.3f}",
            limits=(0, 1),
            empty="nan",
        ),
    )


@check_explorer("explore-jacobian", {"scores": "one leads", "times": "3"})
def test_the_jacobian_of_one_score_that_leads():
    scores = torch.tensor([3.0, 0, 0, 0, 0, 0])
    p, j = scores.softmax(0).numpy(), jacobian(lambda z: z.softmax(0), scores).numpy()
    return Seen(
        says(
            "one leads, scores times {}: largest weight {}, ‖J‖₂ = {}",
            *(3, p[0], np.linalg.eigvals(j).real.max()),
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
    )


@check_explorer("explore-scores", {"first score": "4", "second score": "-1", "temperature": "2"})
def test_the_third_share_and_the_second_do_not_care_for_the_first():
    powers = np.exp(np.array([4, -1, 0]) / 2)
    shares = powers / powers.sum()
    return Seen(
        says(
            "Scores {}, {} and 0, divided by the temperature {}: the shares are {}, {} and {}. "
            "The second is {} times the third",
            *(4, -1, 2, *shares, np.exp(-1 / 2)),
        ),
        Bars("scores", ["first", "second", "third"], {"score": [4, -1, 0]}, "", "score"),
        Bars("shares", ["first", "second", "third"], {"share": shares}, "", "share"),
    )


@check_explorer(
    "explore-belief",
    {
        "belief in the first": "0.8",
        "of the rest, to the second": "0.2",
        "truth and belief": "swapped",
    },
)
def test_what_a_wrong_belief_costs():
    belief, truth = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.8, 0.04, 0.16])
    one, other = Categorical(truth), Categorical(belief)
    price = torch.distributions.kl_divergence(one, other).item()
    back = torch.distributions.kl_divergence(other, one).item()
    least = one.entropy().item()
    areas = [w * -math.log(p) for w, p in ((0.8, 0.5), (0.04, 0.3), (0.16, 0.2))]
    places = ((0, 0.8, 0.5), (0.8, 0.04, 0.3), (0.84, 0.16, 0.2))
    names, roles = ["first", "second", "third"], ["query", "value", "weight"]
    shapes = {
        name: Box(
            x,
            0,
            w,
            -math.log(p),
            fill=0.35,
            role=role,
            detail=f"{name}: {w:.2f} wide, {-math.log(p):.3f} high, {area:.3f} nats",
        )
        for name, role, (x, w, p), area in zip(names, roles, places, areas, strict=True)
    }
    tops = [-math.log(w) for w in (0.8, 0.8, 0.04, 0.04, 0.16, 0.16)]
    shapes["entropy"] = Curve([0, 0.8, 0.8, 0.84, 0.84, 1], tops, dash=True)
    return Seen(
        says(
            "Truth {}, {}, {}, belief {}, {}, {}: the areas {}, {} and {} are {} nats. {} of "
            "these, the area under the dashed line, nobody can avoid, and {} are the price of the "
            "wrong belief. With truth and belief exchanged the price is {}",
            *(0.8, 0.04, 0.16, 0.5, 0.3, 0.2, *areas, least + price, least, price, back),
        ),
        Bars("probabilities", names, {"truth": truth, "belief": belief}, "", "probability"),
        Scene(
            "mean surprise: the area, touch a rectangle",
            shapes,
            xlim=(0, 1),
            ylim=(0, 3.5),
            equal=False,
            axes="box",
            xlabel="first, second, third: how often each is the answer",
            ylabel="surprise of the belief, nats",
        ),
    )


def points(seed, count):
    """Twenty features, of which two lie around the center of the class."""
    drawn = torch.Generator().manual_seed(seed)
    centers = torch.tensor([[0.0, 1.5], [-1.3, -0.75], [1.3, -0.75]], dtype=torch.float64)
    right = torch.arange(count) % 3
    x = torch.randn(count, 20, generator=drawn, dtype=torch.float64)
    x[:, :2] += centers[right]
    return x, right


@check_explorer("explore-calibration", {"temperature": "3"})
def test_at_a_temperature_of_three_the_confidence_is_that_of_the_answers():
    x, right = points(0, 60)
    layer = torch.nn.Linear(20, 3, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    descent = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(300):
        descent.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), right).backward()
        descent.step()
    x, right = points(200, 3000)
    with torch.no_grad():
        scores = layer(x) / 3
    shares = np.exp(scores.numpy() - scores.logsumexp(1, keepdim=True).numpy())
    sure, hits = shares.max(1), shares.argmax(1) == right.numpy()
    groups = np.argsort(sure).reshape(5, 600)
    loss = torch.nn.functional.cross_entropy(scores, right).item()
    return Seen(
        says(
            "Temperature {}: the confidence is {}, {}, {}, {}, {} in the groups, {} on average; "
            "right are {}, {}, {}, {}, {}, on average {}. The loss is {}",
            *(3, *sure[groups].mean(1), sure.mean()),
            *(*hits[groups].mean(1), hits.mean(), loss),
        ),
        Bars(
            "confidence, and what happens",
            ["1", "2", "3", "4", "5"],
            {"confidence": sure[groups].mean(1), "right": hits[groups].mean(1)},
            "group of 600 points, least sure first",
            "share",
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
