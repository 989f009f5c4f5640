"""The explorers of chapter 6: formulas in NumPy, half precision step by step."""

import math
from statistics import NormalDist

import numpy as np

from book.explorer import Bars, Lines

from .reading import Seen, check_explorer, says


@check_explorer("explore-beta", {"β": "3"})
def test_swish_at_three_lies_close_to_relu():
    x = np.arange(-60, 61) / 10
    gate = 1 / (1 + np.exp(-3 * x))
    fine = np.linspace(-6, 6, 120_001)
    swish = fine / (1 + np.exp(-3 * fine))
    far = (fine.clip(0) - swish).max()
    return Seen(
        says(
            "At β = {} its smallest value is {}, near x = {}, and its slope at {} is {}; on "
            "[{}, {}] it is up to {} below ReLU",
            *(3, swish.min(), fine[swish.argmin()], 0, 0.5, -6, 6, far),
        ),
        Lines("value", x, {"Swish": x * gate, "ReLU": x.clip(0)}, "x", "value"),
        Lines("slope", x, {"Swish": gate + 3 * x * gate * (1 - gate)}, "x", "slope"),
    )


@check_explorer("explore-c", {"c": "0.0465"})
def test_the_error_of_the_tanh_form_with_another_constant():
    def error_of_phi(x):
        phi = np.array([math.erf(v / math.sqrt(2)) for v in x])
        return (np.tanh(math.sqrt(2 / math.pi) * (x + 0.0465 * x**3)) - phi) / 2

    x, wide = np.arange(1, 121) / 20, np.arange(1, 6001) / 1000
    error = wide * abs(error_of_phi(wide))
    return Seen(
        says(
            "With c = {} the error for GELU is at most {}, near x = {}; the error for Φ is at most "
            "{}",
            *(0.0465, error.max(), wide[error.argmax()], abs(error_of_phi(wide)).max()),
        ),
        Lines(
            "error of the tanh form",
            x,
            {"for Φ": 1e4 * error_of_phi(x), "for GELU": 1e4 * x * error_of_phi(x)},
            "x",
            "error, in units of 0.0001",
        ),
    )


@check_explorer("explore-alpha", {"α": "2"})
def test_above_one_the_maximum_is_another_function():
    x = np.arange(-30, 31) / 10
    leaky = [v if v > 0 else 2 * v for v in x]
    largest = [max(v, 2 * v) for v in x]
    gap = np.abs(np.subtract(leaky, largest)).max()
    # At a tie torch takes the mean of both slopes.
    return Seen(
        says(
            "At α = {} the two forms are up to {} apart on [{}, {}]; the slope at {} is {} for the "
            "maximum and {} for Leaky ReLU",
            *(2, gap, -3, 3, 0, (1 + 2) / 2, 2),
        ),
        Lines("value", x, {"Leaky ReLU": leaky, "max(x, αx)": largest}, "x", "value"),
    )


@check_explorer("explore-nan", {"dtype": "float16", "function": "softplus", "side": "x < 0"})
def test_softplus_by_hand_loses_its_value_far_on_the_left():
    half = np.float16
    sizes = 10 ** (np.arange(-72, 17) / 4)
    near = sizes[:, None] * 10 ** (np.arange(16) / 64)
    x = -near.astype(half)
    power = np.exp(x)
    exact = x.astype(float)

    def off(mine, right):
        # What is below the smallest normal number does not count.
        counts = right >= 2.0**-14
        share = np.abs(mine.astype(float) - right) * counts / np.where(counts, right, 1)
        return share.clip(4 * 2.0**-10)

    value = off(np.log(half(1) + power), np.log1p(np.exp(exact)))
    slope = off(half(1) / (half(1) + power) * power, np.exp(exact) / (1 + np.exp(exact)))
    assert slope.max() == 4 * 2.0**-10  # so the sentence calls it right up to rounding
    return Seen(
        says(
            "softplus by hand in float16, x < {}: the value is off by up to {} of itself, near "
            "|x| = {}, and never breaks; the slope is right up to rounding and never breaks",
            *(0, value.max(), near[value > 0.9 * value.max()][0]),
        ),
        Lines(
            "error as a share of the exact number",
            sizes,
            {"value": value.max(1), "slope": slope.max(1)},
            "|x|",
            "relative error",
            xscale="log",
            yscale="log",
        ),
    )


@check_explorer("explore-bend", {"activation": "tanh", "units": "6"})
def test_six_smooth_units_follow_a_curve():
    x = np.linspace(-3, 3, 121)
    wanted = np.sin(1.5 * x) + 0.3 * x
    places = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    columns = np.c_[np.ones(121), x, np.tanh(2 * (x[:, None] - places))]
    made = columns @ (np.linalg.pinv(columns) @ wanted)
    return Seen(
        says("{} tanh units: the sum misses the curve by up to {}", 6, abs(made - wanted).max()),
        Lines("", x, {"wanted": wanted, "the sum": made}, "x", "y"),
    )


@check_explorer("explore-saturation", {"activation": "GELU", "weight": "4", "bias": "-2"})
def test_a_smooth_unit_is_stuck_far_out_on_the_left():
    normal = NormalDist()
    pre = np.array([4 * normal.inv_cdf((k + 0.5) / 1000) - 2 for k in range(1000)])
    slopes = np.array([normal.cdf(t) + t * normal.pdf(t) for t in pre])
    flat = abs(slopes) < 0.01
    along = np.arange(-80, 81) / 10
    curve = np.array([normal.cdf(t) + t * normal.pdf(t) for t in along])
    bars = {
        name: np.histogram(pre[chosen].clip(-8, 7.99), 16, (-8, 8))[0] / 10
        for name, chosen in (("learns", ~flat), ("slope below 0.01", flat))
    }
    return Seen(
        says(
            "GELU, weight {}, bias {}: at {} of the inputs the slope is below 0.01",
            *(4, -2, flat.mean()),
        ),
        Bars(
            "what comes in",
            [str(b) if b % 2 == 0 else "" for b in range(-8, 8)],
            bars,
            "weight times input plus bias, from (ends: all beyond)",
            "% of the inputs",
        ),
        Lines(
            "slope of the activation",
            along,
            {
                "learns": np.where(abs(curve) < 0.01, np.nan, curve),
                "slope below 0.01": np.where(abs(curve) < 0.01, curve, np.nan),
            },
            "weight times input plus bias",
            "slope",
        ),
    )
