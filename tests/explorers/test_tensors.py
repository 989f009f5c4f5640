"""The explorers of chapter 1: tolerances by their definition, sums in NumPy and in fractions."""

import math
from fractions import Fraction

import numpy as np

from book.explorer import Arrow, Bars, Box, Dot, Grid, Lines, Scene, Segment, Text

from .reading import Seen, check_explorer, says


@check_explorer(
    "explore-who-notices",
    {"size of the error, power of ten": "-4", "error in": "one value of 81"},
)
def test_who_notices_one_wrong_value():
    x = np.arange(-40, 41) / 10
    gelu = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
    ours = gelu + np.where(x == 2, 1e-4, 0)
    error = np.abs(ours - gelu)
    # One pixel of 250; then atol + rtol * |official| of torch: allclose, assert_close in float32.
    eye = error.max() > np.ptp(gelu) / 250
    allclose = (error > 1e-8 + 1e-5 * np.abs(gelu)).any()
    in_float32 = (error > 1e-5 + 1.3e-6 * np.abs(gelu)).any()
    parity = error.max() > 1e-12 * (1 + np.abs(gelu).max())
    assert (eye, allclose, in_float32, parity) == (False, True, True, True)
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
            {"distance": np.where(x == 2, 1e-4, np.nan)},
            "x",
            "distance from F.gelu",
            yscale="log",
        ),
        Bars(
            "who notices",
            ["eye", "allclose", "close f32", "parity"],
            {"notices": [eye, allclose, in_float32, parity]},
            "check",
            "no 0, yes 1",
        ),
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
            "x[:, {}:]: shape ({}, {}), strides ({}, {}), start {}. It reads the memory of x, and "
            "not in its order.",
            *(1, *part.shape, *step, start),
        ),
        Scene("", shapes, xlim=(-0.6, 6.6), ylim=(-0.1, 6.2)),
    )


@check_explorer("explore-products", {"product": "A @ B.T: ik,jk->ij"})
def test_rows_times_rows():
    a, b = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    result = [[sum(x * y for x, y in zip(r, s, strict=True)) for s in b] for r in a]

    def how(i, j):
        terms = " + ".join(f"{x}·{y}" for x, y in zip(a[i], b[j], strict=True))
        return f"{terms} = {result[i][j]}"

    lines = ["0", "1"]
    return Seen(
        says(
            "einsum('ik,jk->ij'): summed over k. The result has {} dimensions: {}, {}, {}, {}.",
            *(2, *result[0], *result[1]),
        ),
        *(
            Grid(name, t, lines, lines, text="{:g}", detail=said, limits=(0, 250), role=role)
            for name, t, said, role in (
                ("A", a, None, "query"),
                ("B", b, None, "key"),
                ("result", result, how, "data"),
            )
        ),
    )


@check_explorer("explore-layer", {"weights": "as torch keeps it, A"})
def test_two_tokens_through_a_layer_that_keeps_the_transpose():
    x, w, bias = [[1, 0, 2], [0, 1, -1]], [[1, 3, 5], [2, 4, 6]], [0.5, -0.5]
    y = [
        [sum(a * b for a, b in zip(r, c, strict=True)) + s for c, s in zip(w, bias, strict=True)]
        for r in x
    ]

    def sums(i, j):
        terms = " + ".join(f"{a}·{b}" for a, b in zip(x[i], w[j], strict=True))
        said = f"{terms} + {bias[j]:g} = {y[i][j]:g}"
        return said.replace("+ -", "− ").replace("-", "−")

    tokens, outs = ["token 0", "token 1"], ["out 0", "out 1"]
    ins = [f"in {k}" for k in range(3)]
    look = {"text": "{:g}", "limits": (-5, 20)}
    return Seen(
        says(
            "x @ A.T + b: the weights are {} by {}, one row for each output, and the two tokens "
            "give ({}, {}) and ({}, {})",
            *(2, 3, *y[0], *y[1]),
        ),
        Grid("x", x, tokens, ins, role="data", **look),
        Grid(
            "the weights",
            [*w, [math.nan] * 3],
            [f"row {k}" for k in range(3)],
            [f"column {k}" for k in range(3)],
            role="weight",
            **look,
        ),
        Grid("y, with b = (0.5, −0.5)", y, tokens, outs, detail=sums, role="data", **look),
    )


@check_explorer("explore-gains", {"gains": "one for each token"})
def test_gains_of_two_tokens():
    x, gain = [[1, 2, 3], [4, 5, 6]], [10, -1]
    result = [[g * v for v in row] for g, row in zip(gain, x, strict=True)]
    tokens, three = ["token 0", "token 1"], ["0", "1", "2"]
    look = {"text": "{:g}", "limits": (-6, 60)}
    nan = math.nan

    def how(i, j):
        return f"{x[i][j]} · {gain[i]} = {result[i][j]}".replace("-", "−")

    return Seen(
        says(
            "Gains, one for each token: {}, {}. The same as diag(gains) @ X, with {} × {} numbers "
            "of which {} are used.",
            *(*gain, 2, 2, 2),
        ),
        Grid("X", x, tokens, three, role="data", **look),
        Grid(
            "diag(gains)",
            [[10, 0, nan], [0, -1, nan], [nan] * 3],
            three,
            three,
            role="weight",
            **look,
        ),
        Grid("gains ⊙ X", result, tokens, three, detail=how, role="data", **look),
    )


@check_explorer("explore-linear-backwards", {"gradient of": "the input, dX"})
def test_the_gradient_of_the_input_of_a_layer():
    arrives, w = [[1, 0], [2, -1]], [[1, 2], [3, 4], [5, 6]]
    found = [[sum(g * v for g, v in zip(row, k, strict=True)) for k in w] for row in arrives]
    nan = math.nan

    def sums(i, j):
        if i > 1:
            return ""
        terms = " + ".join(f"{g}·{v}" for g, v in zip(arrives[i], w[j], strict=True))
        return f"{terms} = {found[i][j]}".replace("-", "−")

    three = ["0", "1", "2"]
    look = {"text": "{:g}", "limits": (-5, 8)}
    transposed = [[row[k] for row in w] for k in range(2)]
    return Seen(
        says(
            "The gradient of the input, dX, is dY @ W.T: {} by {} numbers, each a sum over {} "
            "outputs.",
            *(2, 3, 2),
        ),
        Grid(
            "first factor",
            [[*arrives[0], nan], [*arrives[1], nan], [nan] * 3],
            three,
            three,
            role="ink",
            **look,
        ),
        Grid("second factor", [*transposed, [nan] * 3], three, three, role="ink", **look),
        Grid(
            "the gradient",
            [*found, [nan] * 3],
            three,
            three,
            detail=sums,
            role="gradient",
            **look,
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
            "With {} binary digits {} is rounded to {}, off by {} of its size; at most it can be "
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
