"""Protects findings: what does not hold for every seed, or by more than the spread, is refused."""

import math
import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from book import finding as module
from book.finding import FindingError, Measured, check, finding, margins, read_stored, said

NUMBERS = {"low": [1.0, 1.1, 0.9], "high": [2.0, 2.1, 1.9]}


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """What the finding displays: a list of MIME bundles."""
    boxes = []
    monkeypatch.setattr(module, "display", lambda box: boxes.append(box._repr_mimebundle_()))
    return boxes


# ---------------------------------------------------------------- what passes


def test_a_finding_runs_the_experiment_once_for_each_seed_and_says_the_sentence(shown):
    asked = []

    def measure(seed):
        asked.append(seed)
        return {"small": 1 + 0.01 * seed, "large": 3.0}

    finding("It is {small:.2f}, not {large:g}.", measure, "small < 0.5 * large", seeds=[3, 1, 2])
    assert asked == [3, 1, 2]
    [bundle] = shown
    assert bundle["text/plain"] == (
        "Finding (seeds 3, 1, 2): It is 1.02, not 3.\n"
        "  holds: small < 0.5 * large\n"
        "  small: 1.03 1.01 1.02\n"
        "  large: 3 3 3"
    )
    assert bundle["text/markdown"] == (
        "**Finding.** It is 1.02, not 3.\n\n"
        "*In each of the runs with seeds 3, 1, 2:* `small < 0.5 * large` by 0.48 ± 0.01."
    )


def test_a_chain_is_shown_as_it_is_written_with_the_margin_of_each_link(shown):
    finding("{a:g}", {"a": [1.0, 1.1, 0.9]}, "0.5 < a < 2", range(3))
    assert "`0.5 < a < 2` by 0.5 ± 0.1 and 1 ± 0.1." in shown[0]["text/markdown"]


def test_five_seeds_are_the_rule(shown):
    finding("{a:g}", lambda seed: {"a": 1.0 + seed / 100}, "a > 0.9")
    assert read_stored(shown[0]["text/plain"]).seeds == [0, 1, 2, 3, 4]


def test_seeds_may_come_from_a_generator(shown):
    finding("{a:g}", lambda seed: {"a": 1.0 + seed / 100}, "a > 0.9", (s for s in (7, 8, 9)))
    assert "seeds 7, 8, 9" in shown[0]["text/plain"]
    assert "seeds 7, 8, 9" in shown[0]["text/markdown"]


def test_numbers_may_be_handed_over_as_a_list_by_seed(shown):
    finding("{low:.1f} to {high:.1f}", NUMBERS, "low < high", seeds=[0, 1, 2])
    assert "1.0 to 2.0" in shown[0]["text/markdown"]


def test_what_does_not_depend_on_chance_is_computed_once(shown):
    calls = []

    def measure(seed):
        calls.append(seed)
        return {"n": 12_288, "m": 4096}

    finding("{n:,.0f} are more than [{m:,.0f}](x).", measure, "n > 2 * m", seeds=None)
    finding("{n:,.0f}", {"n": 3}, "n > 2", seeds=None)
    assert len(calls) == 1
    assert shown[0]["text/plain"] == (
        "Finding (computed): 12,288 are more than [4,096](x).\n"
        "  holds: n > 2 * m\n  n: 12288\n  m: 4096"
    )
    assert "*Computed:* `n > 2 * m` by 4.1e+03." in shown[0]["text/markdown"]
    assert shown[1]["text/markdown"].startswith("**Finding.** 3\n")


@pytest.mark.parametrize(
    "claim",
    [
        "low < high",
        "high > low",
        "0.5 < low < high < 3",
        "low < 1.5 < high",
        "low ** 2 + 1 < 2 * high",
        "-high < -low",
        "abs(low - high) > 0.5",
        "low / high < 0.75",
        "high - low > 1 / 2",
    ],
)
def test_a_comparison_of_sums_and_products_holds(claim):
    assert check(claim, NUMBERS)


def test_every_one_of_several_comparisons_is_required(shown):
    finding("{low:g}", NUMBERS, ["low < high", "low > 0"], range(3))
    with pytest.raises(FindingError, match="low > 1 fails"):
        finding("{low:g}", NUMBERS, ["low < high", "low > 1"], range(3))
    assert len(shown) == 1, "nothing is shown where one of them fails"


def test_the_ends_of_a_measured_number_can_be_named():
    assert said("{low.low} to {low.high}, {low:.1f}", NUMBERS) == "0.9 to 1.1, 1.0"
    one = Measured([1, 2, 6])
    assert (one, one.low, one.high, one.values) == (3, 1, 6, [1, 2, 6])


def test_braces_of_latex_are_written_twice():
    assert said(r"$\sqrt{{d}}$ is {low:.0f}", NUMBERS) == r"$\sqrt{d}$ is 1"


# ---------------------------------------------------------------- what fails, and what is said


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("high < low", "high < low fails for seed 0, by 1"),
        ("low > 1.05", "low > 1.05 fails for seed 2, by 0.15"),
        ("0.5 < low < 1.05 < high", "low < 1.05 fails for seed 1, by 0.05"),
        ("low < low", "low < low fails for seed 0, by 0"),
        ("low < low + 1e-9 * high / high - 1e-9", "fails for seed"),
        # The mean is 0.15 and the spread 0.1: it may well be less than nothing for another seed.
        ("low > 0.85", "holds by 0.15 on average, which is not more than 2 times its spread 0.1;"),
        ("high / (low - low) > 1", "cannot be computed: float division by zero"),
        ("high ** 1e9 > 1", "cannot be computed"),
        ("(low - high) ** 0.5 > 0", "is no real number"),
        ("high * 1e308 * 1e308 > low", "compares what is not finite"),
    ],
)
def test_a_comparison_that_does_not_hold_is_refused(claim, words):
    with pytest.raises(FindingError, match=re.escape(words)):
        check(claim, NUMBERS)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("low <", "cannot be read"),
        ("low", "is no comparison"),
        ("low < high and high < 3", "is no comparison"),
        ("not low > high", "is no comparison"),
        *((f"low {how} high", "something other than < and >") for how in ("<=", ">=", "==", "!=")),
        ("low < high <= 3", "something other than < and >"),
        ("low in high", "something other than < and >"),
        ("low < height", "names height, measured are ['high', 'low']"),
        ("1 < 2", "'1 < 2' compares nothing that was measured"),
        ("low < high > 1 > 0", "'1 > 0' compares nothing that was measured"),
        ("low < max(high, 3)", "names max"),
        ("low < abs(high, 3)", "is no arithmetic of names"),
        ("low.real < high", "is no arithmetic of names"),
        ("low < high if low else 1", "is no comparison"),
        ("low < (high if low else 1)", "is no arithmetic of names"),
        ("low < 'high'", "compares nothing|no arithmetic"),
        ("low < True", "is no arithmetic of names"),
        ("low // 1 < high", "is no arithmetic of names"),
        ("low < high[0]", "is no arithmetic of names"),
    ],
)
def test_what_is_no_comparison_of_measured_numbers_is_refused(claim, words):
    pattern = words if "|" in words else re.escape(words)
    with pytest.raises(ValueError, match=pattern):
        check(claim, NUMBERS)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused(bad):
    with pytest.raises(FindingError, match="a is not finite"):
        finding("{a}", {"a": [1, bad, 1]}, "a > 0", range(3))
    with pytest.raises(FindingError, match="b is not finite"):
        finding("{a}", {"a": 1, "b": bad}, "a > 0", seeds=None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{a}", lambda s: {"a": 1.0}, "a > 0", [1, 2]), "at least three different seeds"),
        (("{a}", lambda s: {"a": 1.0}, "a > 0", [1, 2, 2]), "at least three different seeds"),
        (("{a}", lambda s: {"a": 1.0}, "a > 0", 3 * [0]), "at least three different seeds"),
        (("{a}", lambda s: {"a": 1.0}, [], range(3)), "`holds` is empty"),
        (("{a}", lambda s: {}, "a > 0", range(3)), "nothing was measured"),
        (("{a}", lambda s: {"ab"[s % 2]: 1.0}, "a > 0", range(3)), "measured different names"),
        (("{a}", {"a": [1.0, 2.0]}, "a > 0", range(3)), "['a'] do not hold one number for each"),
        (("{b}", lambda s: {"a": 1.0}, "a > 0", range(3)), "the sentence names 'b', measured"),
        (("{}", lambda s: {"a": 1.0}, "a > 0", range(3)), "{} in the sentence should be a name"),
        (("{a.imag}", lambda s: {"a": 1.0}, "a > 0", range(3)), "{a.imag} in the sentence"),
        (("{a[0]}", lambda s: {"a": 1.0}, "a > 0", range(3)), "{a[0]} in the sentence"),
        (("{a}", {"a b": 1}, "1 > 0", None), "['a b'] cannot be names"),
        (("{holds}", {"holds": 1}, "holds > 0", None), "['holds'] cannot be names"),
    ],
)
def test_a_finding_that_is_not_put_together_rightly_is_refused(shown, arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        finding(*arguments)
    assert shown == []


# ---------------------------------------------------------------- in general

numbers = st.floats(-1e6, 1e6, allow_nan=False)
runs = st.integers(3, 6).flatmap(
    lambda n: st.tuples(*(st.lists(numbers, min_size=n, max_size=n) for _ in "ab"))
)


def holds(claim, values):
    try:
        check(claim, values)
    except FindingError:
        return False
    return True


@given(runs)
def test_a_comparison_and_its_reversal_never_both_hold(ab):
    values = dict(zip("ab", ab, strict=True))
    assert not (holds("a < b", values) and holds("a > b", values))


@given(runs)
def test_what_holds_does_so_for_every_seed_and_by_more_than_twice_the_spread(ab):
    values = dict(zip("ab", ab, strict=True))
    gaps = [b - a for a, b in zip(*ab, strict=True)]
    assume(all(math.isfinite(gap) for gap in gaps))
    mean = math.fsum(gaps) / len(gaps)
    spread = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1))
    assume(abs(mean - 2 * spread) > 1e-9 * (abs(mean) + spread))  # not at the border itself
    assert holds("a < b", values) == (min(gaps) > 0 and mean > 2 * spread)


@given(runs, st.permutations(range(3)))
def test_a_chain_holds_where_each_of_its_links_does(ab, order):
    values = dict(zip("ab", ab, strict=True))
    names = [("a", "b", "1")[k] for k in order]
    chain = " < ".join(names)
    links = [f"{x} < {y}" for x, y in pairwise(names)]
    assert holds(chain, values) == all(holds(link, values) for link in links)
    assert [text for text, _ in margins(chain, values)] == links


@given(runs, st.floats(1e-6, 1e6))
def test_the_stored_form_is_read_again_and_still_holds(ab, gap):
    a, offsets = ab
    scale = 10 * max(map(abs, offsets)) or 1
    ab = a, [one + gap * (1 + offset / scale) for one, offset in zip(*ab, strict=True)]
    values = dict(zip("ab", ab, strict=True))
    assume(holds("a < b", values))
    boxes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "display", boxes.append)
        finding("From {a:.3f}\nto {b:g}.", values, "a < b", range(len(ab[0])))
    again = read_stored(boxes[0].plain)
    assert again.seeds == list(range(len(ab[0])))
    assert again.text == said("From {a:.3f}\nto {b:g}.", values)
    assert again.claims == ["a < b"]
    for name, exact in values.items():
        assert again.values[name] == pytest.approx(exact, rel=5.1e-3, abs=module.NOISE)
    check("a < b", again.values)
    with pytest.raises(FindingError):
        check("a > b", again.values)


def test_as_many_digits_are_stored_as_the_comparison_needs(shown):
    close = {"a": [0.99993, 0.99994, 0.99996], "b": [0.123456] * 3, "n": [12_288] * 3}
    finding("{a}", close, "a < 1", range(3))
    again = read_stored(shown[0]["text/plain"])
    assert again.values["a"] == [0.99993, 0.99994, 0.99996], "0.9999, 0.9999, 1 would not be below"
    assert again.values["n"] == [12_288] * 3, "counts are stored in full"
    check("a < 1", again.values)


def test_rounding_errors_change_nothing_that_is_stored(shown):
    for error in (0.0, 1e-13, -1e-13):
        scaled = {
            "a": [v * (1 + error) for v in (1.0, 4096.0, 0.25)],
            "b": [9000.0 * (1 + error)] * 3,
            "zero": [error and -0.0] * 3,
        }
        finding("{a:.2f} {b:.0f}", scaled, ["a < b", "b > 2"], range(3))
    assert shown[0] == shown[1] == shown[2]


def test_a_rounding_error_is_compared_with_its_bound_and_not_stored(shown):
    for error in (0.0, 3e-16, -2e-13):
        gap = {"gap": [abs(error), 2 * abs(error), 0.0], "b": [1.0] * 3}
        finding("Equal; {b:.0f}.", gap, ["gap < 1e-10", "b > 0.5"], range(3))
    assert shown[0] == shown[1] == shown[2]
    assert "\n  gap: 0 0 0\n" in shown[0]["text/plain"]
    assert "`gap < 1e-10` by 1e-10 ± 0;" in shown[0]["text/markdown"]


def test_a_small_number_that_is_meant_stays(shown):
    small = {"p": [3.1e-14, 3.2e-14, 3.3e-14]}
    finding("It is {p:.1e}.", small, "p < 1e-10", range(3))
    finding("It is not zero.", small, "p > 0", range(3))
    for bundle in shown:
        assert "p: 3.1e-14 3.2e-14 3.3e-14" in bundle["text/plain"]


@pytest.mark.parametrize("text", ["", "Finding", "Finding (seeds 0): x", "Finding (computed): x\n"])
def test_what_is_no_stored_finding_is_not_read_as_one(text):
    with pytest.raises(ValueError, match="not the output of a finding"):
        read_stored(text)


# ---------------------------------------------------------------- rows

ROWS = {"with it": "{high:.1f}", "without it": "{low:.1f}"}


def test_rows_are_a_table_of_means_and_ends_below_the_sentence(shown):
    finding("Less.", NUMBERS, "low < high", range(3), quantity="length, in cm", rows=ROWS)
    table = (
        "Less.\n\n"
        "| length, in cm | mean | lowest to highest |\n"
        "|:--|--:|:--|\n"
        "| with it | 2.0 | 1.9 to 2.1 |\n"
        "| without it | 1.0 | 0.9 to 1.1 |"
    )
    assert shown[0]["text/markdown"].startswith(f"**Finding.** {table}\n\n*In each of the runs")
    assert read_stored(shown[0]["text/plain"]).text == table


def test_rows_of_what_was_computed_have_no_ends(shown):
    finding("Less.", {"a": 1, "b": 2}, "a < b", None, quantity="n", rows={"A": "{a}", "B": "{b} m"})
    assert (
        "| n | | |\n|:--|--:|:--|\n| A | 1.0 |  |\n| B | 2.0 m |  |\n"
        in (shown[0]["text/markdown"])
    )


@pytest.mark.parametrize(
    ("quantity", "rows", "says"),
    [
        ("", ROWS, "a quantity that has a name"),
        ("n", {"one": "{low}"}, "at least two"),
        ("n", {}, "'n' has no rows"),
        ("n", {**ROWS, "none": "many"}, "'none' should hold one number, got 'many'"),
        ("n", {**ROWS, "both": "{low} {high}"}, "'both' should hold one number"),
        ("n", {**ROWS, "typed": "{low} of 64"}, "'typed' should hold one number"),
        ("n", {**ROWS, "bar": "{low} | 3"}, "'bar' should hold one number"),
        ("n", {**ROWS, "else": "{other}"}, "names 'other'"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(quantity, rows, says, shown):
    with pytest.raises(ValueError, match=re.escape(says)):
        finding("x", NUMBERS, "low < high", range(3), quantity=quantity, rows=rows)
    assert not shown
