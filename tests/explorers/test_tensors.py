"""The explorers of chapter 1: tolerances by their definition, sums in NumPy and in fractions."""

import math
from fractions import Fraction

import numpy as np
import torch
from torch import nn

from book.explorer import Arrow, Bars, Box, Dot, Grid, Lines, Scene, Segment, Text

from .reading import Seen, check_explorer, says


def _gelu():
    x = np.arange(-40, 41) / 10
    return x, np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])


def _seen_by(error):
    """Who sees these errors of the values: one pixel of 250, and atol + rtol * |official|."""
    _, gelu = _gelu()
    return {
        "the eye": error.max() > np.ptp(gelu) / 250,
        "allclose": (error > 1e-8 + 1e-5 * np.abs(gelu)).any(),
        "assert_close in float32": (error > 1e-5 + 1.3e-6 * np.abs(gelu)).any(),
        "assert_parity": (error > 1e-12 * (1 + np.abs(gelu))).any(),
    }


def _thresholds(seen, power):
    """The panel of sizes, -13 to -1, of which those that a check notices are filled."""
    shapes = {}
    for row, who in enumerate(seen[-1]):
        shapes[who] = Text(-0.4, 3.47 - row, who.split(" in ")[0], anchor="end", small=True)
        for k in range(13):
            sees = bool(seen[k - 13][who])
            shapes[f"{who}, {k}"] = Box(
                k, 3 - row, 0.94, 0.94, role="good" if sees else "quiet",
                fill=0.8 if sees else 0.0,
                detail=f"{who}, 1e{k - 13}: {'noticed' if sees else 'not noticed'}",
            )  # fmt: skip
    for k in range(0, 13, 3):
        shapes[f"power {k}"] = Text(k + 0.47, -0.6, f"1e−{13 - k}", small=True)
    shapes["here"] = Text(power + 13.47, 4.5, "▼")
    return Scene("who notices: the filled sizes", shapes, xlim=(-5.4, 13.1), ylim=(-2, 5))


@check_explorer(
    "explore-who-notices",
    {"size of the error, power of ten": "-4", "error in": "one value of 81"},
)
def test_who_notices_one_wrong_value():
    x, gelu = _gelu()
    ours = gelu + np.where(x == 2, 1e-4, 0)
    seen = {p: _seen_by(np.where(x == 2, 10.0**p, 0)) for p in range(-13, 0)}
    assert [*seen[-4].values()] == [False, True, True, True]
    return Seen(
        says(
            "An error of {} in one value of {}: noticed by allclose, assert_close in float32, "
            "assert_parity.",
            *(1e-4, 81),
        ),
        Lines("overlay", x, {"official": gelu, "ours": ours}, "x", "GELU(x)"),
        Lines(
            "difference",
            x,
            {"values": np.where(x == 2, 1e-4, np.nan), "gradients": x * np.nan},
            "x",
            "distance from F.gelu",
            yscale="log",
        ),
        _thresholds(seen, -4),
    )


@check_explorer(
    "explore-who-notices",
    {"size of the error, power of ten": "-2", "error in": "the gradient only"},
)
def test_who_notices_a_wrong_gradient():
    x, gelu = _gelu()
    slope = np.array(
        [
            (1 + math.erf(v / math.sqrt(2))) / 2 + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi)
            for v in x
        ]
    )
    # With a random weight on each value the error is 10**p times the weight, as is the limit.
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(81, generator=rng, dtype=torch.float64).numpy()
    seen = {}
    for p in range(-13, 0):
        seen[p] = _seen_by(0 * x)
        off = np.abs(weights) * 10.0**p > 1e-12 * (1 + np.abs(weights * slope))
        seen[p]["assert_parity"] = off.any()
    return Seen(
        says("An error of {} in the gradient only: noticed by assert_parity.", 1e-2),
        Lines("overlay", x, {"official": gelu, "ours": gelu}, "x", "GELU(x)"),
        Lines(
            "difference",
            x,
            {"values": x * np.nan, "gradients": x * 0 + 1e-2},
            "x",
            "distance from F.gelu",
            yscale="log",
        ),
        _thresholds(seen, -2),
    )


@check_explorer("explore-broadcasting", {"shape of A": "(3, 1)", "shape of B": "(4,)"})
def test_a_column_and_a_row_are_each_read_again():
    column, row = [1, 2, 3], [10, 20, 30, 40]
    shapes = {}
    for i, a in enumerate(column):
        for j, b in enumerate(row):
            places = {
                "A": (a, j, 6 - i, "data", j > 0),
                "B": (b, 5 + j, 6 - i, "key", i > 0),
                "A + B": (a + b, 2.5 + j, 1.6 - i, "weight", False),
            }
            for name, (number, x, y, role, again) in places.items():
                shapes[f"{name} {i}, {j}"] = Box(
                    x, y, 0.94, 0.94, str(number), role=role, fill=0.0 if again else 0.35,
                    dash=again,
                )  # fmt: skip
    shapes["sum"] = Text(4.5, 2.85, "A + B", small=True)
    return Seen(
        says(
            "A ({}, {}) and B ({},) give ({}, {}). Numbers stored: {} for A, {} for B; numbers "
            "in the result: {}",
            *(3, 1, 4, 3, 4, 3, 4, 12),
        ),
        Scene("", shapes, xlim=(-0.1, 9.1), ylim=(-0.5, 7.6)),
    )


@check_explorer("explore-rows", {"sums": "sum(1, keepdim=True)", "counts": "2 2 / 3 1"})
def test_each_row_divided_by_its_own_sum():
    counts = [[2, 2], [3, 1]]
    shapes = {}
    for i, row in enumerate(counts):
        total = sum(row)
        for j, count in enumerate(row):
            for k, number in enumerate((count, total, count / total)):
                ghost = k == 1 and j == 1  # the column of sums is read once more to the right
                shapes[f"block {k}, {i}, {j}"] = Box(
                    3 * k + j,
                    1 - i,
                    0.94,
                    0.94,
                    f"{number:.3g}".replace("0.", "."),
                    role=("data", "key", "weight")[k],
                    fill=0.0 if ghost else 0.35,
                    dash=ghost,
                )
        shapes[f"total {i}"] = Text(8.15, 1.45 - i, "1", anchor="start")
    return Seen(
        says(
            "The sums have the shape ({}, {}). The rows of the result add up to {} and {}.",
            *(2, 1, 1, 1),
        ),
        Scene("", shapes, xlim=(-0.1, 9.1), ylim=(-0.1, 2.7)),
    )


@check_explorer("explore-shapes", {"line": "x.mT @ x", "its shape": "(2, 3, 4)"})
def test_a_guess_that_is_not_the_shape_of_a_batch_of_products():
    x = np.zeros((2, 3, 4))
    found = np.matmul(x.swapaxes(1, 2), x).shape
    return Seen(
        says(
            "x has the shape ({}, {}, {}). The line is x.mT @ x. It gives ({}, {}, {}), not "
            "({}, {}, {}).",
            *(2, 3, 4, *found, 2, 3, 4),
        ),
        Grid(
            "sizes, aligned at the right",
            [[2, 3, 4], [2, 4, 3], [*found]],
            ["x", "the other", "the result"],
            ["−3", "−2", "−1"],
            text="{:.0f}",
            xlabel="dimension",
            limits=(0, 8),
            role="data",
            empty="·",
        ),
    )


@check_explorer("explore-memory", {"tensor": "x[:, 1:]"})
def test_two_columns_read_from_the_storage_of_three():
    x = np.arange(6).reshape(2, 3)
    part = x[:, 1:]
    step = [s // x.itemsize for s in part.strides]
    start = (part.ctypes.data - x.ctypes.data) // x.itemsize
    shapes = {}
    for i in range(3):
        for j in range(3):
            there = i < 2 and j < 2
            place = start + i * step[0] + j * step[1]
            shapes[f"entry {i}, {j}"] = Box(
                1.5 + j, 2 - i, 0.94, 0.94, str(part[i, j]) if there else "", role="data",
                fill=0.35, shown=there,
                detail=f"{start} + {i}·{step[0]} + {j}·{step[1]} = place {place}",
            )  # fmt: skip
        shapes[f"row {i}"] = Text(1.3, 2.47 - i, str(i), anchor="end", small=True, shown=i < 2)
        shapes[f"column {i}"] = Text(1.97 + i, 3.15, str(i), small=True, shown=i < 2)
    for place in range(6):
        used = place in part  # x holds its places
        shapes[f"place {place}"] = Box(
            place, 4.2, 0.94, 0.94, str(place), role="data" if used else "quiet",
            fill=0.35 if used else 0.0,
        )  # fmt: skip
    return Seen(
        says(
            "x[:, {}:]: shape ({}, {}), strides ({}, {}), start {}. Row by row it reads places {}, "
            "{}, {}, {} of the memory of x: not contiguous.",
            *(1, *part.shape, *step, start, *part.flatten()),
        ),
        Scene("", shapes, xlim=(-0.6, 6.6), ylim=(-0.1, 6.2)),
    )


def _equation(size, signs, *blocks, lit=None):
    """Matrices side by side: heading, rows, role, and the arithmetic of an entry or None.

    `lit` has the entries of each matrix that stand out.
    """
    shapes = {}
    for k, (heading, matrix, role, how) in enumerate(blocks):
        down, across = len(matrix), len(matrix[0])
        for i in range(size):
            for j in range(size):
                there = i < down and j < across
                said = how(i, j) if how and there else "no entry" if how else ""
                shapes[f"block {k}, {i}, {j}"] = Box(
                    k * (size + 1) + (size - across) / 2 + j,
                    (size + down) / 2 - 1 - i,
                    0.94,
                    0.94,
                    f"{matrix[i][j]:g}".replace("-", "−") if there else "",
                    role=role,
                    fill=0.35 if lit is None else 0.6 if (i, j) in lit[k] else 0.05,
                    shown=there,
                    detail=said,
                )
        shapes[f"heading {k}"] = Text(
            k * (size + 1) + size / 2 - 0.03, size + 0.6, heading, small=True
        )
    for k, sign in enumerate(signs):
        shapes[f"sign {k}"] = Text((k + 1) * (size + 1) - 0.53, size / 2 - 0.03, sign)
    return Scene("", shapes, xlim=(-0.1, 3 * size + 2.1), ylim=(-0.1, size + 1.3))


@check_explorer("explore-products", {"product": "A @ B.T: ik,jk->ij", "entry": "first"})
def test_rows_times_rows():
    a, b = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    result = [[sum(x * y for x, y in zip(r, s, strict=True)) for s in b] for r in a]

    def how(i, j):
        terms = " + ".join(f"{x}·{y}" for x, y in zip(a[i], b[j], strict=True))
        return f"{terms} = {result[i][j]}"

    return Seen(
        says(
            "einsum('ik,jk->ij'): summed over k. The entry i = {}, j = {} is {}·{} + {}·{} = {}.",
            *(0, 0, 1, 5, 2, 6, 17),
        ),
        _equation(
            2,
            (",", "→"),
            ("A\nik", a, "query", None),
            ("B\njk", b, "key", None),
            ("result\nij", result, "data", how),
            lit=({(0, 0), (0, 1)}, {(0, 0), (0, 1)}, {(0, 0)}),
        ),
    )


@check_explorer("explore-products", {"product": "columns, sums: ki,kj->i", "entry": "last"})
def test_a_product_that_leaves_one_dimension():
    a, b = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    result = [[sum(a[k][i] * b[k][j] for j in range(2) for k in range(2))] for i in range(2)]

    def how(i, j):
        terms = [f"{a[k][i]}·{b[k][n]}" for n in range(2) for k in range(2)]
        return " + ".join(terms) + f" = {result[i][0]}"

    return Seen(
        says(
            "einsum('ki,kj->i'): summed over j and k. The entry i = {} is {}·{} + {}·{} + {}·{} + "
            "{}·{} = {}.",
            *(1, 2, 5, 4, 7, 2, 6, 4, 8, 82),
        ),
        _equation(
            2,
            (",", "→"),
            ("A\nki", a, "query", None),
            ("B\nkj", b, "key", None),
            ("result\ni", result, "data", how),
            lit=({(0, 1), (1, 1)}, {(0, 0), (0, 1), (1, 0), (1, 1)}, {(1, 0)}),
        ),
    )


@check_explorer("explore-layer", {"weights": "as torch keeps it, A"})
def test_two_tokens_through_a_layer_that_keeps_the_transpose():
    x, w, bias = [[1, 0, 2], [0, 1, -1]], [[1, 3, 5], [2, 4, 6]], [1, -1]
    y = [
        [sum(a * b for a, b in zip(r, c, strict=True)) + s for c, s in zip(w, bias, strict=True)]
        for r in x
    ]

    def sums(i, j):
        terms = " + ".join(f"{a}·{b}" for a, b in zip(x[i], w[j], strict=True))
        said = f"{terms} + {bias[j]} = {y[i][j]}"
        return said.replace("+ -", "− ").replace("-", "−")

    return Seen(
        says(
            "x @ A.T + b with b = ({}, {}): the weights are {} by {}, one row for each output, and "
            "the two tokens give ({}, {}) and ({}, {})",
            *(*bias, 2, 3, *y[0], *y[1]),
        ),
        _equation(
            3,
            (",", "→"),
            ("x\n2 tokens × 3 in", x, "data", None),
            ("A\n2 out × 3 in", w, "weight", None),
            ("y\n2 tokens × 2 out", y, "data", sums),
        ),
    )


@check_explorer("explore-gains", {"gains": "one for each token"})
def test_gains_of_two_tokens():
    x, gain = [[1, 2, 3], [4, 5, 6]], [10, -1]
    result = [[g * v for v in row] for g, row in zip(gain, x, strict=True)]

    def how(i, j):
        return f"{x[i][j]} · {gain[i]} = {result[i][j]}".replace("-", "−")

    return Seen(
        says(
            "Gains, one for each token: {}, {}. The same as diag(gains) @ X, with {} × {} numbers "
            "of which {} are used.",
            *(*gain, 2, 2, 2),
        ),
        _equation(
            3,
            "@=",
            ("diag(gains)\n2 × 2", [[10, 0], [0, -1]], "weight", None),
            ("X\n2 × 3", x, "data", None),
            ("gains ⊙ X\n2 × 3", result, "data", how),
        ),
    )


@check_explorer("explore-linear-backwards", {"gradient of": "the input, dX", "entry": "last"})
def test_the_gradient_of_the_input_of_a_layer():
    arrives, w = [[1, 0], [2, -1]], [[1, 2], [3, 4], [5, 6]]
    found = [[sum(g * v for g, v in zip(row, k, strict=True)) for k in w] for row in arrives]

    def sums(i, j):
        terms = " + ".join(f"{g}·{v}" for g, v in zip(arrives[i], w[j], strict=True))
        return f"{terms} = {found[i][j]}".replace("-", "−")

    transposed = [[row[k] for row in w] for k in range(2)]
    return Seen(
        says(
            "The gradient of the input, dX, is dY @ W.T: {} by {} numbers, each a sum over {} "
            "outputs. The last is {}·{} + {}·{} = {}.",
            *(2, 3, 2, 2, 5, -1, 6, 4),
        ),
        _equation(
            3,
            "@=",
            ("dY\n2 tokens × 2 out", arrives, "ink", None),
            ("W.T\n2 out × 3 in", transposed, "ink", None),
            ("dX\n2 tokens × 3 in", found, "gradient", sums),
            lit=({(1, 0), (1, 1)}, {(0, 2), (1, 2)}, {(1, 2)}),
        ),
    )


@check_explorer("explore-line", {"binary digits p": "4", "number": "2.85"})
def test_a_number_between_two_with_four_digits():
    every = [
        Fraction(k, 8) * 2**e for e in (-1, 0, 1) for k in range(8, 16)
    ] + [Fraction(4)]  # fmt: skip
    value = Fraction(285, 100)
    near = float(min(every, key=lambda n: abs(n - value)))
    shapes = {
        f"number {k}": Segment(
            float(every[min(k, 24)]), -0.12, float(every[min(k, 24)]), 0.12, role="data",
            shown=k < len(every),
        )
        for k in range(49)
    }  # fmt: skip
    shapes["value"] = Dot(2.85, 0.45, role="query", size=2)
    shapes["to"] = Arrow(2.85, 0.4, near, 0.14, role="query")
    shapes["result"] = Dot(near, 0, role="query", size=2)
    return Seen(
        says(
            "With {} binary digits {} is rounded to {}, off by {} of its size; the bound u is "
            "{}. The next number after {} is {}.",
            *(4, 2.85, near, abs(near / 2.85 - 1), 1 / 16, 1, 1 + 1 / 8),
        ),
        Scene(
            "",
            shapes,
            xlim=(0.4, 4.1),
            ylim=(-0.3, 0.6),
            axes="box",
            xlabel="all numbers from 1/2 to 4 that there are",
            xticks=[(0.5, "1/2"), (1, "1"), (2, "2"), (3, "3"), (4, "4")],
            yticks=[],
        ),
    )


@check_explorer("explore-rounding", {"number of terms": "300", "dtype": "float16"})
def test_harmonic_sums_in_half_precision():
    lengths = [10, 30, 100, 300, 1000, 3000]

    def added(terms):
        total = np.float16(0)
        for term in terms:
            total = np.float16(total + term)
        return float(total)

    terms = [np.float16(1 / n) for n in range(1, 3001)]
    forwards = {n: added(terms[:n]) for n in lengths}
    backwards = {n: added(terms[:n][::-1]) for n in lengths}
    exact = {n: float(sum(Fraction(float(term)) for term in terms[:n])) for n in lengths}

    def relative(sums):
        errors = [abs(sums[n] - exact[n]) / exact[n] for n in lengths]
        return [error or math.nan for error in errors]

    worst = [(n - 1) * 2.0**-11 for n in lengths]
    there = lengths.index(300)
    sums = forwards[300], backwards[300], exact[300]
    return Seen(
        says(
            "{} terms in float16: {} forwards, {} backwards, {} exact. Relative errors {} and "
            "{}; the worst case is {}",
            *(300, *sums),
            *(relative(forwards)[there], relative(backwards)[there], worst[there]),
        ),
        Lines(
            "errors",
            lengths,
            {
                "worst case (n-1)u": worst,
                "forwards": relative(forwards),
                "backwards": relative(backwards),
                "this n": [
                    w if n == 300 else math.nan for n, w in zip(lengths, worst, strict=True)
                ],
            },
            "terms n",
            "relative error",
            xscale="log",
            yscale="log",
        ),
        Bars(
            "the sums for this n",
            ["forwards", "backwards", "exact"],
            {"sum": sums},
            "order",
            "sum",
        ),
    )


@check_explorer("explore-five-ways", {"tensor": "in_list", "it is": "saved and moved"})
def test_a_parameter_in_a_list_is_lost_to_the_module():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.held = [nn.Parameter(torch.ones(3, dtype=torch.float64))]

    holder = Holder().to(torch.float32)
    moved = holder.held[0].dtype == torch.float32
    facts = {
        "learned": bool([*holder.parameters()]),
        "saved": bool(holder.state_dict()),
        "moved": moved,
    }
    shapes = {"tensor": Text(3.65, 2.3, "in_list", strong=True)}
    for k, (end, fact) in enumerate(facts.items()):
        shapes[end] = Box(
            2.5 * k, 0, 2.3, 1, "yes" if fact else "no", role="good" if fact else "quiet",
            fill=0.5 if fact else 0.0,
        )  # fmt: skip
        shapes[f"name {k}"] = Text(2.5 * k + 1.15, 1.4, end)
    return Seen(
        says("in_list holds {} numbers. It is none of the three. You said: saved and moved.", 3),
        Scene("", shapes, xlim=(-2, 9.3), ylim=(-0.1, 2.8)),
    )
