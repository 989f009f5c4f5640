"""The explorers of chapter 5: softmax and its gradient by hand, masks by torch's own operator."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from book.explorer import Arrow, Box, Cell, Dot, Grid, Polygon, Scene, Text

from .reading import Seen, check_explorer, says

KEYS = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
VALUES = [[10.0, 0.0], [0.0, 10.0], [0.0, 0.0]]


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def weights_of(numbers, rows, columns, detail, **more):
    """A table of weights, as the chapter shows them."""
    names = {"title": "weights", "xlabel": "key", "ylabel": "query"} | more
    title = names.pop("title")
    return Grid(title, numbers, rows, columns, detail=detail, limits=(0, 1), role="weight", **names)


def minus(said):
    """A sum as it is printed: a minus sign, and none after a plus."""
    return said.replace("+ -", "− ").replace("-", "−")


def short(w):
    """A weight without its zero, and nothing for next to nothing."""
    return "" if w < 0.005 else f"{w:.2f}".lstrip("0")


@check_explorer(
    "explore-query",
    {
        "query, first feature": "2",
        "query, second feature": "1",
        "softmax of": "key 3 masked",
        "values are": "ten times the keys",
    },
)
def test_without_key_three_the_output_lies_between_the_values_of_keys_one_and_two():
    first, second = math.e / (math.e + 1), 1 / (math.e + 1)
    weights = [first, second, 0.0]
    plane = {
        f"key {i + 1}": Dot(x, y, role="key", faint=i == 2)
        for i, (x, y) in enumerate([(1, 0), (0, 1), (0, 0)])
    }
    plane["query"] = Arrow(0, 0, 2, 1, "q", role="query", strong=True)
    bars = {}
    for i, score in enumerate(("2", "1", "−∞")):
        y, wide = 2.2 - 0.9 * i, 4.4 * weights[i]
        bars[f"score {i + 1}"] = Text(3.4, y, score, anchor="end")
        bars[f"weight {i + 1}"] = Box(4.2, y - 0.3, wide, 0.6, fill=0.8, role="weight")
        bars[f"number {i + 1}"] = Text(9.8, y, f"{weights[i]:.2f}", anchor="end")
    corners = {
        f"value {i + 1}": Dot(x, y, role="value", faint=i == 2)
        for i, (x, y) in enumerate([(10, 0), (0, 10), (0, 0)])
    }
    corners["name 1"] = Text(10, -1.9, "value 1", role="value")
    corners["name 2"] = Text(4.2, 10.9, "value 2", role="value")
    corners["triangle"] = Polygon([(10, 0), (0, 10), (0, 10)], role="value", faint=True)
    # What is masked is faint, by its name too.
    plane["name of key 3"] = Text(-0.6, -0.75, "key 3", role="key", faint=True)
    corners["name 3"] = Text(-2.2, -1.1, "value 3", role="value", faint=True)
    bars["key 3"] = Text(1.9, 0.4, "key 3", anchor="end", role="key", faint=True)
    out = (10 * first, 10 * second)
    corners["output"] = Dot(*out, role="data", strong=True, size=2)
    ones = [(n, str(n)) for n in (1, 2, 3)]
    fives = [(5, "5"), (10, "10")]
    return Seen(
        says(
            "The query ({}, {}) has the scores {}, {} and puts the weights {} on key {}, {} on "
            "key {}. The output is ({}, {})",
            *(2, 1, 2, 1, first, 1, second, 2, 10 * first, 10 * second),
        ),
        Scene(
            "drag the query",
            plane,
            xlim=(-2.2, 3.6),
            ylim=(-2.2, 3.6),
            axes="cross",
            xticks=ones,
            yticks=ones,
        ),
        Scene(
            "values, and the output (large dot)",
            corners,
            xlim=(-4.4, 12.4),
            ylim=(-2.6, 12),
            axes="cross",
            xticks=fives,
            yticks=fives,
        ),
        Scene("scores and weights", bars, xlim=(0, 10), ylim=(0, 3.5)),
    )


@check_explorer("explore-ladder", {"step": "a softmax of scores and a mask"})
def test_scores_from_the_data_lean_on_some_tokens_of_the_past():
    words = ["the", "mole", "dug", "deep"]
    rows = [(4, 0), (0, 8), (2, 2), (6, 2)]
    scores = [[(a[0] * b[0] + a[1] * b[1]) / 8 for b in rows] for a in rows]
    sums = [sum(math.exp(scores[i][j]) for j in range(i + 1)) for i in range(4)]
    weights = [
        [math.exp(scores[i][j]) / sums[i] if j <= i else 0.0 for j in range(4)] for i in range(4)
    ]
    means = [[sum(w * x[c] for w, x in zip(row, rows, strict=True)) for c in (0, 1)]
             for row in weights]  # fmt: skip

    def how(i, j):
        if j > i:
            return "in the future: weight 0"
        return (
            f"exp({scores[i][j]:.2f}) = {math.exp(scores[i][j]):.2f}, of {sums[i]:.2f} in its row."
        )

    def parts(i, c):
        return " + ".join(f"{weights[i][j]:.2f}·{rows[j][c]}" for j in range(i + 1))

    return Seen(
        says(
            "Step {}: the weights of the last token are {}, {}, {}, {}, and its output ({}, {}) is",
            *(4, *weights[3], *means[3]),
        ),
        Grid(
            "each row is made from",
            [[scores[i][j] if j <= i else math.nan for j in range(4)] for i in range(4)],
            words,
            words,
            text="{:.1f}",
            xlabel="token that is read",
            ylabel="token that reads",
            limits=(0, 8),
            role="ink",
            empty="−∞",
        ),
        weights_of(
            [[w if j <= i else math.nan for j, w in enumerate(r)] for i, r in enumerate(weights)],
            *(words, words, how),
            xlabel="token that is read",
            ylabel="token that reads",
        ),
        Grid(
            "means",
            means,
            words,
            ["first", "second"],
            detail=parts,
            xlabel="feature",
            ylabel="token",
            limits=(0, 8),
            role="data",
        ),
    )


@check_explorer("explore-by-hand", {"step": "the mean of the values"})
def test_every_number_on_the_way_from_scores_to_the_output():
    score, power = [2, 1, 0], [math.e**2, math.e, 1.0]
    total = sum(power)
    weight = [p / total for p in power]
    said = {
        "score": [f"2·{a} + 1·{b} = {2 * a + b}" for a, b in ((1, 0), (0, 1), (0, 0))],
        "exp": [f"e to the power of {s} = {math.e**s:.3f}" for s in score]
        + [" + ".join(f"{p:.3f}" for p in power)],
        "weight": [f"{p:.3f} / {total:.3f} = {p / total:.3f}" for p in power]
        + [" + ".join(f"{w:.3f}" for w in weight)],
    }
    numbers = {"score": score, "exp": [*power, total], "weight": [*weight, 1]}
    places = {"score": (1.5, 0.9, 3, "key"), "exp": (2.6, 1.1, 12, "ink"),
              "weight": (3.9, 1.1, 1, "weight")}  # fmt: skip
    down = (3.2, 2.3, 1.4, 0.1)
    shapes = {}
    for name, (x, wide, most, role) in places.items():
        for i, (number, detail) in enumerate(zip(numbers[name], said[name], strict=True)):
            label = str(int(number)) if float(number).is_integer() else f"{number:.2f}"
            shapes[f"{name} {i + 1}"] = Box(
                *(x, down[i], wide, 0.8, label), fill=number / most, role=role, detail=detail
            )
    out = (10 * weight[0], 10 * weight[1])
    for c, name in enumerate(("first", "second")):
        for i, y in enumerate(down):
            number = out[c] if i in (c, 3) else 0
            value = 10 if i == c else 0
            detail = f"weight {weight[i % 3]:.3f} times value {value} = {number:.3f}"
            if i == 3:
                detail = " + ".join(f"{out[c] if j == c else 0:.3f}" for j in range(3))
            shapes[f"{name} {i + 1}"] = Box(
                *(6.5 + 1.15 * c, y, 1.1, 0.8, f"{number:.2f}" if number else "0"),
                fill=number / 10, role="data", detail=detail,
            )  # fmt: skip
    return Seen(
        says("The output is ({}, {})", *out),
        Scene("the query (2, 1) and three keys", shapes, xlim=(0, 8.8), ylim=(0, 5)),
    )


@check_explorer("explore-table", {"token": "her", "the future is": "hidden"})
def test_a_table_of_scores_by_hand_without_its_upper_half():
    words = ["Anna", "fed", "her", "cat", "."]
    asks = [(1, 3, 0, 0), (3, 0, 3, 0), (4, 0, 0, 0), (0, 3, 1, 0), (0, 0, 0, 0)]
    offers = [(2, 0, 0, 0), (0, 2, 0, 0), (1, 0, 0, 1), (0, 0, 2, 0), (0, 0, 0, 1)]
    scores = [[sum(map(math.prod, zip(q, k, strict=True))) / 2 for k in offers] for q in asks]
    sums = [sum(math.exp(scores[i][j]) for j in range(i + 1)) for i in range(5)]
    weights = [
        [math.exp(scores[i][j]) / sums[i] if j <= i else 0.0 for j in range(5)] for i in range(5)
    ]
    seen = [[scores[i][j] if j <= i else math.nan for j in range(5)] for i in range(5)]

    def marked(rows):
        # The row of 'her' has an arrow before it.
        return [[-1 if i == 2 else math.nan, *row] for i, row in enumerate(rows)]

    def score(i, j):
        products = " + ".join(f"{a}·{b}" for a, b in zip(asks[i], offers[j], strict=True))
        late = "in the future: no score"
        return f"({products}) / 2 = {scores[i][j]:g}" if j <= i else late

    def weight(i, j):
        late = "in the future: weight 0"
        return f"exp({scores[i][j]:g}) / {sums[i]:.2f} = {weights[i][j]:.2f}" if j <= i else late

    return Seen(
        says(
            "With the future hidden, 'her' may look at {} of {} tokens and puts its largest "
            "weight, {}, on 'Anna'",
            *(3, 5, max(weights[2])),
        ),
        Grid(
            "scores",
            marked(seen),
            words,
            ["", *words],
            text=lambda v: "→" if v < 0 else f"{v:.1f}",
            detail=lambda i, j: score(i, j - 1) if j else "",
            xlabel="key",
            ylabel="query",
            limits=(0, 4),
            role="key",
        ),
        weights_of(
            marked(
                [
                    [w if j <= i else math.nan for j, w in enumerate(r)]
                    for i, r in enumerate(weights)
                ]
            ),
            *(words, ["", *words], lambda i, j: weight(i, j - 1) if j else ""),
            title="weights: each row sums to 1",
            text=lambda v: "→" if v < 0 else f"{v:.2f}",
            sets=lambda i, j: {"row": words[i]},
        ),
    )


@check_explorer(
    "explore-paint", {f"key {j}": "masked" if j in (2, 4) else "allowed" for j in range(1, 5)}
)
def test_a_painted_mask_leaves_its_keys_out_of_the_sum():
    scores, allowed = [2, 1, 0, 1], [True, False, True, False]
    total = sum(math.exp(s) for s, a in zip(scores, allowed, strict=True) if a)
    weights = [math.exp(s) / total * a for s, a in zip(scores, allowed, strict=True)]
    shapes = {}
    for j in range(4):
        words = "may attend" if allowed[j] else "forbidden"
        sum_up = f"exp({scores[j]}) / {total:.2f} = {weights[j]:.3f}"
        rows = {
            "mask": ("✓" if allowed[j] else "−∞", words, 0.0),
            "score": (str(scores[j]), f"score {scores[j]}", 0.0),
            "weight": (
                f"{weights[j]:.2f}",
                sum_up if allowed[j] else "left out of the sum: weight 0",
                weights[j],
            ),
        }
        for i, (name, (text, detail, fill)) in enumerate(rows.items()):
            role = "weight" if name == "weight" else "ink"
            shapes[f"{name} {j}"] = Cell(
                i, j + 1.6, text, fill=fill, role=role, detail=f"key {j + 1}: {detail}"
            )
    return Seen(
        says(
            "The query may attend to {} of {} keys. The weights are {}, {}, {}, {}, and they "
            "sum to {}",
            *(2, 4, *map(float, weights), 1.0),
        ),
        Scene("touch a cell of the mask", shapes, xlim=(0, 5.7), ylim=(-3.1, 0.1)),
    )


@check_explorer("explore-shared", {"queries and keys from": "two matrices"})
def test_two_matrices_learn_to_look_at_the_left_neighbor():
    rng = torch.Generator().manual_seed(0)
    rows = [(0.3 * torch.randn(8, 8, generator=rng)).requires_grad_() for _ in range(2)]
    descent = torch.optim.Adam(rows, lr=0.05, fused=True)
    target = torch.arange(-1, 7) % 8
    for _ in range(200):
        descent.zero_grad()
        F.cross_entropy(rows[0] @ rows[1].T / 8**0.5, target).backward()
        descent.step()
    q, k = (row.detach().numpy() for row in rows)
    after = softmax(q @ k.T / 8**0.5)
    to = [np.mean([after[i, (i + k) % 8] for i in range(8)]) for k in (-1, 1, 0)]
    eight = [*"01234567"]

    return Seen(
        says(
            "Queries and keys from two matrices: in the trained ring a token gives {} to its left "
            "neighbor, {} to its right one and {} to itself",
            *map(float, to),
        ),
        weights_of(after, eight, eight, None, title="the ring, trained", text=short),
    )


@check_explorer("explore-backwards", {"gradient of the output": "(0, 1)"})
def test_the_gradients_of_three_scores_by_autograd():
    query = torch.tensor([2.0, 1.0], requires_grad=True)
    score = torch.tensor(KEYS) @ query
    weight = score.softmax(0)
    score.retain_grad()
    weight.retain_grad()
    values = torch.tensor(VALUES)
    (weight @ values)[1].backward()
    w, dw, ds = (t.tolist() for t in (weight.detach(), weight.grad, score.grad))
    products = [a * b for a, b in zip(w, dw, strict=True)]
    delta = sum(products)
    shown = [[*dw, math.nan], [*products, delta], [*ds, 0.0]]
    columns = ["key 1", "key 2", "key 3", "sum"]
    # Of keys and values that are leaves: their rows are columns of the picture.
    leaves = [torch.tensor(t, requires_grad=True) for t in (KEYS, VALUES)]
    out = (leaves[0] @ query.detach()).softmax(0) @ leaves[1]
    handed = torch.cat([t.T for t in torch.autograd.grad(out[1], leaves)]).tolist()

    to_query = [[s * key[c] + 0.0 for s, key in zip(ds, KEYS, strict=True)] for c in (0, 1)]
    assert np.allclose([sum(row) for row in to_query], query.grad)

    def to_the_query(i, j):
        if j == 3:
            return minus(" + ".join(f"{number:.3f}" for number in to_query[i]))
        return minus(f"ds {ds[j]:.3f} · key {KEYS[j][i]:g} = {to_query[i][j]:.3f}")

    def to_rows(i, j):
        by = ("q 2", "q 1", "dO 0", "dO 1")[i]
        factor = f"ds {ds[j]:.3f}" if i < 2 else f"weight {w[j]:.3f}"
        return minus(f"{factor} · {by} = {handed[i][j]:.3f}")

    def how(i, j):
        if j == 3:
            sums = " + ".join(f"{number:.3f}" for number in shown[i][:3])
            return ("", f"δ = {sums} = {delta:.3f}", minus(sums))[i]
        key = values[j].tolist()
        return (
            f"0·{key[0]:g} + 1·{key[1]:g} = {dw[j]:g}",
            f"{w[j]:.3f} · {dw[j]:g} = {products[j]:.3f}",
            minus(f"{w[j]:.3f} · ({dw[j]:g} − {delta:.3f}) = {ds[j]:.3f}"),
        )[i]

    return Seen(
        says(
            "With the output's gradient ({}, {}), δ is {}, and the scores get {}, {}, {}, "
            "which sum to {}. Times the keys, the query gets ({}, {})",
            *(0, 1, delta, *ds, 0, *query.grad.tolist()),
        ),
        Grid(
            "the weights, from the forward pass",
            [[*w, 1.0]],
            ["weight"],
            columns,
            limits=(0, 1),
            role="weight",
        ),
        Grid(
            "from the output's gradient to the scores'",
            shown,
            ["dA", "weight · dA", "ds"],
            columns,
            detail=how,
            diverging=True,
            role="gradient",
        ),
        Grid(
            "from there to the query",
            [[*row, sum(row)] for row in to_query],
            ["dQ, first", "dQ, second"],
            columns,
            detail=to_the_query,
            diverging=True,
            role="gradient",
        ),
        Grid(
            "to the keys and the values",
            handed,
            ["dK, first", "dK, second", "dV, first", "dV, second"],
            ["1", "2", "3"],
            detail=to_rows,
            xlabel="key and its value",
            diverging=True,
            role="gradient",
        ),
    )


@check_explorer("explore-masks", {"mask": "causal and padding"})
def test_behind_the_padding_a_query_sees_the_tokens_before_it():
    torch.manual_seed(7)
    q, k = torch.randn(6, 16), torch.randn(6, 16)
    sees = [[key <= query and key < 4 for key in range(6)] for query in range(6)]
    official = F.scaled_dot_product_attention(
        q[None], k[None], torch.eye(6)[None], torch.tensor(sees)[None]
    )[0].tolist()
    counts = [sum(row) for row in sees]
    return Seen(
        says(
            "Mask: causal and padding. Queries {} to {} may attend to {}, {}, {}, {}, {}, {} keys",
            *(0, 5, *counts),
        ),
        weights_of(
            official,
            [*"012345"],
            [*"012345"],
            None,
            text=lambda w: f"{w:.2f}" if w else "✕",
        ),
    )


@check_explorer("explore-letters", {"head": "after the same letter"})
def test_a_head_that_finds_what_came_after_its_letter():
    letters = "abcabdab"
    reader = [f"{c}{i}" for i, c in enumerate(letters)]
    scores = [[6 * (j > 0 and letters[j - 1] == c) for j in range(8)] for c in letters]
    sums = [sum(math.exp(s) for s in scores[i][: i + 1]) for i in range(8)]
    weights = [
        [math.exp(scores[i][j]) / sums[i] if j <= i else math.nan for j in range(8)]
        for i in range(8)
    ]

    return Seen(
        ["what came after my letter earlier?", "looks at c", 2, "d", 5, "with", weights[7][2]],
        weights_of(weights, reader, reader, None, text=short),
    )


@check_explorer("explore-two-heads", {"step": "mix the heads"})
def test_two_heads_by_plain_arithmetic():
    x = [(2, 0), (1, 1), (0, 2)]
    q, k, v = (
        [[f(a, b) for a, b in x] for f in pair]
        for pair in (
            (lambda a, b: a, lambda a, b: b),
            (lambda a, b: a, lambda a, b: a - b),
            (lambda a, b: 5 * b, lambda a, b: 3 * a),
        )
    )
    weights, means = [], []  # of token 2
    for h in (0, 1):
        powers = [math.exp(q[h][1] * k[h][j]) for j in range(3)]
        weights.append([p / sum(powers) for p in powers])
        means.append(sum(map(math.prod, zip(weights[h], v[h], strict=True))))
    a, b = means
    ends = [f"y₁ = z⁰ + z¹ = {a + b:.3f}", minus(f"y₂ = z⁰ − z¹ = {a - b:.3f}")]
    shapes = {}
    for h in (0, 1):
        left = 3.7 + 4.4 * h
        for i in range(3):
            at = (left + 3, 4.7 - i, 0.92, 0.85)
            w = weights[h][i]
            key = f"(−{-k[h][i]})" if k[h][i] < 0 else k[h][i]
            total = sum(math.exp(q[h][1] * k[h][m]) for m in range(3))
            shapes[f"a {h} {i}"] = Box(
                *(*at, short(w)), fill=w, role="weight",
                detail=f"exp({q[h][1]}·{key}) / {total:.2f} = {w:.4f}",
            )  # fmt: skip
        terms = zip(weights[h], v[h], strict=True)
        sums = " + ".join(f"{round(w, 4):g}·{n}" for w, n in terms)
        z = means[h]
        shapes[f"z {h}"] = Box(
            *(left, 1.5, 3.92, 0.85, f"z{'⁰¹'[h]} = {z:.3f}"), fill=(z + 4) / 16, role="data",
            detail=f"{sums} = {z:.3f}",
        )  # fmt: skip
        y = a + b if h == 0 else a - b
        mixed = f"{round(a, 3):g}·1 + {round(b, 3):g}·{'(−1)' if h else '1'}"
        shapes[f"y {h}"] = Box(
            *(1.3 + 5.4 * h, 0.3, 5.32, 0.85, ends[h]), fill=(y + 4) / 16, role="data",
            detail=minus(f"{mixed} = {y:.3f}"),
        )  # fmt: skip
        made = {"q": (q, "query", ("1", "0") if h == 0 else ("0", "1")),
                "k": (k, "key", ("1", "0") if h == 0 else ("1", "(−1)")),
                "v": (v, "value", ("0", "5") if h == 0 else ("3", "0"))}  # fmt: skip
        for c, (name, (part, role, by)) in enumerate(made.items()):
            for i in range(3):
                n = part[h][i]
                how = f"{x[i][0]}·{by[0]} + {x[i][1]}·{by[1]} = {n}"
                shapes[f"{name} {h} {i}"] = Box(
                    *(left + c, 4.7 - i, 0.92, 0.85, minus(str(n))), fill=(n + 2) / 12, role=role,
                    detail=minus(f"{name} of head {h}: {how}"),
                )  # fmt: skip
    return Seen(
        says("Step {}: times the output matrix, token 2 gets {} and {}", 4, a + b, a - b),
        Scene("token 2 asks all three", shapes, xlim=(0, 12.1), ylim=(0, 7.6)),
    )


@check_explorer("explore-cross", {"query": "blue"})
def test_blue_looks_at_the_house_and_never_at_the_padding():
    powers = [math.exp(score) for score in (0, 3, 1)]
    weights = [*(power / sum(powers) for power in powers), 0.0]
    shapes = {}
    for j, (word, w) in enumerate(zip(("la", "maison", "bleue", "padding"), weights, strict=True)):
        left = 2.4 * j
        shapes[f"source {j}"] = Box(left, 3, 2.2, 0.9, word, fill=w, dash=j == 3, role="weight")
        shapes[f"weight {j}"] = Text(left + 1.1, 4.35, f"{w:.2f}" if j < 3 else "masked")
        if j < 3:
            most = {"strong": j == 1, "faint": j != 1}
            shapes[f"to {j}"] = Arrow(7.1, 1.1, left + 1.1, 2.9, role="query", **most)
    for n, word in enumerate(("start", "the", "blue")):
        own = {"strong": n == 2, "faint": n != 2}
        shapes[f"target {n}"] = Box(1.2 + 2.4 * n, 0.1, 2.2, 0.9, word, role="query", **own)
    return Seen(
        says(
            "The query of 'blue' gives {} of its weight to 'maison' and {} to the padding. The "
            "table has {} rows, one for each query, and {} columns",
            *(weights[1], 0, 3, 4),
        ),
        Scene(
            "the source, and what is written so far",
            shapes,
            xlim=(-0.2, 9.6),
            ylim=(0, 4.7),
        ),
    )


@check_explorer("explore-split", {"cut": ".view(B, H, T, -1)"})
def test_a_view_alone_deals_out_tokens_and_not_features():
    entries = [10 * token + feature for token in range(1, 5) for feature in range(1, 5)]
    heads = [[entries[8 * h + 2 * i : 8 * h + 2 * i + 2] for i in range(4)] for h in (0, 1)]
    names = [f"token {i}" for i in range(1, 5)]

    inside = [f"head {h}, row {i}" for h in (0, 1) for i in range(1, 5)]

    def grid(title, table, rows, columns):
        return Grid(
            title,
            table,
            rows,
            columns,
            text="{:g}",
            limits=(0, 50),
            role="data",
        )

    return Seen(
        says("Head {} holds tokens {}, {}, and head {} holds tokens {}, {}", 0, 1, 2, 1, 3, 4),
        grid(
            "x: 23 is feature 3 of token 2",
            [entries[4 * i : 4 * i + 4] for i in range(4)],
            names,
            [*"1234"],
        ),
        grid("the heads", heads[0] + heads[1], inside, [*"12"]),
    )
