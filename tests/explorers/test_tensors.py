"""The explorers of chapter 1: tolerances by their definition, sums in NumPy and in fractions."""

import math
from fractions import Fraction

import numpy as np

from book.explorer import Bars, Grid, Lines

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


@check_explorer("explore-broadcasting", {"shape of A": "(1, 4)", "shape of B": "(2, 4)"})
def test_a_row_broadcast_to_two():
    row, two = np.arange(4) / 3, np.arange(8).reshape(2, 4) / 7
    a, b = np.broadcast_arrays(row[None], two)
    canvas = np.full((2, 3, 4), np.nan)
    names = ["0", "1", "2"], ["0", "1", "2", "3"]
    canvas[0, :2], canvas[1, :2] = a, b
    return Seen(
        says(
            "A ({}, {}) and B ({}, {}) give ({}, {}). Numbers stored: {} for A, {} for B; numbers "
            "in the result: {}",
            *(1, 4, 2, 4, *a.shape, row.size, two.size, a.size),
        ),
        *(
            Grid(
                f"{name}, repeated to fit", t, *names, xlabel="column", ylabel="row", limits=(0, 1)
            )
            for name, t in zip("AB", canvas, strict=True)
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
            "{} terms in float16: {} forwards, {} backwards, {} exactly. Relative errors {} and "
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
