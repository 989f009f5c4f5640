"""Protects explorers: what is shown is what was computed, and a mistake is named at once."""

import base64
import gzip
import html
import json
import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from making import curve

from book.chapters import chapters, read
from book.explorer import (
    MISSING,
    Axis,
    Bars,
    Choice,
    Explorer,
    Frame,
    Heat,
    Lines,
    Picture,
    Points,
    Slider,
    describe,
    unpacked,
)

ISLAND = re.compile(r'<script type="application/json" class="tp-spec">(.*?)</script>', re.S)
ONE = {"a": Slider("a", [1.0, 2.0])}
BUDGET = 150_000


def panel_of(*panels, controls=None):
    """The description of the panel that is seen in frames like these."""
    frames = iter(panels)
    controls = controls or {"a": Slider("a", list(range(len(panels))))}
    return describe("T", controls, lambda a: Frame("One sentence.", next(frames)))["panels"][0]


def values_of(panel):
    return list(base64.b64decode(panel["data"]["bytes"]))


def line(y, x=(0.0, 1.0, 2.0), **options):
    return Lines("title", x, {"y": y}, "x", "y", **options)


# ---------------------------------------------------------------- structure


@pytest.mark.parametrize(
    ("controls", "frame", "said"),
    [
        ({}, lambda: Frame("s", line([1, 2, 3])), "at least one control"),
        (
            {"a": Slider("a", [])},
            lambda a: Frame("s", line([1, 2, 3])),
            "'a' starts at index 0 of 0",
        ),
        ({"a": Slider("a", [1], start=1)}, lambda a: Frame("s", line([1, 2, 3])), "index 1 of 1"),
        ({"a": Slider("a", [1], start=-1)}, lambda a: Frame("s", line([1, 2, 3])), "index -1 of 1"),
        (ONE, lambda a: Frame("s"), "at least one panel"),
        (ONE, lambda a: Frame("" if a > 1 else "s", line([1, 2, 3])), "frame 1 has no sentence"),
        (ONE, lambda a: Frame("  ", line([1, 2, 3])), "frame 0 has no sentence"),
        (ONE, lambda a: Frame("s", *[line([1, 2, 3])] * int(a)), "frame 1"),
        (ONE, lambda a: Frame("s", line([1, 2, 3][: int(3 - a)], [1, 2][: int(3 - a)])), "frame 1"),
        (ONE, lambda a: Frame("s", Lines("t", [0, 1], {f"{a}": [1, 2]}, "x", "y")), "frame 1"),
        (ONE, lambda a: Frame("s", Lines(f"{a}", [0, 1], {"y": [1, 2]}, "x", "y")), "frame 1"),
        (ONE, lambda a: Frame("s", line([1, 2, 3], x=[0, 1, a])), "frame 1"),
        (ONE, lambda a: Frame("s", Lines("t", [0, 1], {"y": [1, 2]}, f"x in {a}", "y")), "frame 1"),
        (ONE, lambda a: Frame("s", line([1, 2, 3], ylim=(0, a))), "frame 1"),
        (
            ONE,
            lambda a: Frame("s", line([1, 2, 3], yscale="log" if a > 1 else "linear")),
            "frame 1",
        ),
        (ONE, lambda a: Frame("s", Bars("t", ["p", f"{a}"], {"y": [1, 2]}, "x", "y")), "frame 1"),
        (
            ONE,
            lambda a: Frame(
                "s", (Heat if a > 1 else Lines)("t", [[1]], *([{"y": [[1]]}] * (a < 2)), "x", "y")
            ),
            "frame 1",
        ),
        (ONE, lambda a: Frame("s", line([1, 2, 3], x=[0, 1])), "2 places on x"),
        (ONE, lambda a: Frame("s", Bars("t", ["p"], {"y": [1, 2]}, "x", "y")), "1 label"),
        (ONE, lambda a: Frame("s", Heat("t", [1, 2], "x", "y")), "matrix"),
        (ONE, lambda a: Frame("s", Points("t", {"p": ([1, 2], [1])}, "x", "y")), "'p'"),
        (ONE, lambda a: Frame("s", line([1, 2, 3], xscale="log")), "place on x"),
        (ONE, lambda a: Frame("s", line([1, 2, 3], x=[0, 1, float("nan")])), "place on x"),
    ],
)
def test_a_mistake_in_the_structure_is_refused_by_name(controls, frame, said):
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        describe("The title", controls, frame)
    assert "The title" in str(error.value)


def test_frames_are_numbered_with_the_last_control_running_fastest():
    controls = {"a": Slider("a", [1, 2]), "b": Choice("b", ["p", "q", "r"], start=1)}
    spec = describe("T", controls, lambda a, b: Frame(f"{a}{b}", line([1, 2, 3])))
    assert spec["sentences"] == ["1p", "1q", "1r", "2p", "2q", "2r"]
    assert [c["start"] for c in spec["controls"]] == [0, 1]


def test_the_first_state_is_the_one_where_all_controls_start():
    controls = {"a": Slider("a", [1, 2], start=1), "b": Choice("b", ["p", "q", "r"], start=2)}
    explorer = Explorer("T", controls, lambda a, b: Frame(f"It is {a}{b}.", line([1, 2, 3])))
    assert ' aria-live="polite">It is 2r.</p>' in bundle(explorer)["text/html"]


def test_places_on_x_may_be_computed_anew_for_every_frame():
    controls = {"a": Slider("a", [1.0, 2.0])}
    spec = describe("T", controls, lambda a: Frame("s", line([a, a, a], x=torch.linspace(0, 1, 3))))
    assert spec["panels"][0]["x"] == [0.0, 0.5, 1.0]


def test_a_slider_shows_its_values_in_words():
    controls = {
        "a": Slider("size", [0.001, 10.0]),
        "b": Slider("p", [0.5], show=lambda v: f"{v:.0%}"),
    }
    spec = describe("T", controls, lambda a, b: Frame("s", line([1, 2, 3])))
    assert [c["values"] for c in spec["controls"]] == [["0.001", "10"], ["50%"]]


def test_a_frame_is_computed_once_for_every_grid_point():
    calls = []

    def frame(a):
        calls.append(a)
        return Frame("s", line([a, a, a]))

    describe("T", {"a": Slider("a", [1.0, 2.0, 3.0])}, frame)
    assert calls == [1.0, 2.0, 3.0]


# ---------------------------------------------------------------- values

numbers = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(st.lists(numbers, min_size=3, max_size=3))
def test_a_stored_value_is_within_half_a_step_of_the_computed_one(values):
    v = np.array(values)
    spread = v.max() - v.min()
    assume(spread == 0 or spread > 1e-6 * max(1e-3, np.abs(v).max()))
    axis = Axis.over([v], None)
    assert axis.low <= v.min() <= v.max() <= axis.high, "a value is cut off"
    assert spread == 0 or axis.high - axis.low <= 1.2 * spread, "the axis wastes its steps"
    stored = np.array(values_of(panel_of(line(values))))
    decoded = axis.low + stored / 254 * (axis.high - axis.low)
    rounding = 1e-9 * np.abs(v).max()
    assert np.abs(decoded - v).max() <= (axis.high - axis.low) / 508 + rounding


@given(st.lists(st.floats(-30, 30), min_size=3, max_size=3))
def test_on_a_log_axis_the_step_is_one_of_the_exponent(exponents):
    e = np.array(exponents)
    spread = e.max() - e.min()
    assume(spread == 0 or spread > 1e-6)
    v = 10.0**e
    axis = Axis.over([v], None, "log")
    low, high = np.log10(axis.low), np.log10(axis.high)
    assert low <= e.min() + 1e-9
    assert e.max() - 1e-9 <= high
    assert spread == 0 or high - low <= 1.2 * spread
    stored = np.array(values_of(panel_of(line(v, yscale="log"))))
    decoded = low + stored / 254 * (high - low)
    assert np.abs(decoded - e).max() <= (high - low) / 508 + 1e-9


@pytest.mark.parametrize(
    "values", [[1000.1, 1000.2, 1000.15], [1e6, 1e6 + 1, 1e6 + 2], [-5e4, -5e4 - 1, -5e4]]
)
def test_a_small_change_of_a_large_number_is_still_seen(values):
    stored = values_of(panel_of(line(values)))
    assert max(stored) - min(stored) > 200


def test_one_axis_holds_all_frames_so_that_frames_can_be_compared():
    panel = panel_of(line([0, 0, 0]), line([0, 1, 10]))
    first, second = values_of(panel)[:3], values_of(panel)[3:]
    assert first == [second[0]] * 3
    assert second[0] < second[1] < second[2]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_nan_is_a_gap_and_changes_no_other_value(scale):
    with_gap = values_of(panel_of(line([1.0, float("nan"), 4.0], yscale=scale)))
    without = values_of(panel_of(line([1.0, 2.0, 4.0], yscale=scale)))
    assert with_gap[1] == MISSING
    assert [with_gap[0], with_gap[2]] == [without[0], without[2]]
    assert MISSING not in without


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("infinity", [float("inf"), float("-inf")])
def test_infinity_does_not_stretch_the_axis(scale, infinity):
    stored = values_of(panel_of(line([1.0, infinity, 4.0], yscale=scale)))
    without = values_of(panel_of(line([1.0, 2.0, 4.0], yscale=scale)))
    assert [stored[0], stored[2]] == [without[0], without[2]]
    assert stored[1] in (0, 254, MISSING)


def test_what_has_no_logarithm_is_a_gap_on_a_log_axis():
    stored = values_of(panel_of(line([-1.0, 0.0, 10.0, 100.0], x=[0, 1, 2, 3], yscale="log")))
    assert stored[:2] == [MISSING, MISSING]
    assert stored[2] < stored[3]


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("constant", [0.0, 0.1, 7.0, 1e-8, 1e12])
def test_a_constant_line_lies_in_the_middle(scale, constant):
    if scale == "log" and constant == 0:
        constant = 1.0
    assert set(values_of(panel_of(line([constant] * 3, yscale=scale)))) <= {126, 127, 128}


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_nothing_to_draw_is_all_gaps(scale):
    nan = float("nan")
    assert values_of(panel_of(line([nan, nan, nan], yscale=scale))) == [MISSING] * 3


def test_ticks_of_a_log_axis_are_powers_of_ten_in_their_places():
    panel = panel_of(line([1e-3, 1.0, 1e3], yscale="log"))
    labels = [label for _, label in panel["yticks"]]
    assert labels == ["10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹", "10²", "10³"]
    places = [place for place, _ in panel["yticks"]]
    assert np.allclose(np.diff(places), places[1] - places[0], atol=2e-4)
    assert values_of(panel)[1] == 127


def test_a_log_axis_over_less_than_a_decade_has_ticks_too():
    panel = panel_of(line([0.2, 0.3, 0.6], yscale="log"))
    assert len(panel["yticks"]) >= 2


def test_ticks_of_a_linear_axis_are_where_they_say():
    panel = panel_of(line([0.0, 5.0, 10.0], ylim=(0, 10)))
    assert all(place == pytest.approx(float(label) / 10) for place, label in panel["yticks"])
    assert len(panel["yticks"]) >= 4


def test_limits_given_by_the_author_are_kept_and_values_beyond_them_lie_on_the_edge():
    assert values_of(panel_of(line([-1.0, 0.5, 9.0], ylim=(0, 1)))) == [0, 127, 254]


def test_the_last_bits_of_a_value_move_neither_axis_nor_ticks():
    a = panel_of(line([0.1, 0.7, 1.3]))
    b = panel_of(line([0.1 + 1e-14, 0.7, 1.3 - 1e-14]))
    assert (a["yticks"], a["x"]) == (b["yticks"], b["x"])
    assert np.abs(np.array(values_of(a)) - np.array(values_of(b))).max() <= 1


def test_bars_stand_on_zero():
    panel = panel_of(Bars("t", ["p", "q"], {"y": [2.0, 4.0]}, "x", "y"))
    assert panel["zero"] < values_of(panel)[0] / 254 < values_of(panel)[1] / 254
    assert panel["zero"] == pytest.approx(0.04 / 1.08, abs=0.01)
    below = panel_of(Bars("t", ["p", "q"], {"y": [-2.0, 2.0]}, "x", "y"))
    assert below["zero"] == pytest.approx(0.5, abs=0.01)


def test_dots_keep_their_groups_and_both_coordinates():
    panel = panel_of(
        Points("t", {"p": ([0, 1], [5, 6]), "q": ([2], [7])}, "x", "y", xlim=(0, 2), ylim=(5, 7))
    )
    assert [(s["label"], s["count"]) for s in panel["series"]] == [("p", 2), ("q", 1)]
    assert values_of(panel) == [0, 0, 127, 127, 254, 254]


def test_a_matrix_is_stored_row_by_row_and_zero_is_the_middle_of_a_diverging_one():
    panel = panel_of(Heat("t", [[0.0, 1.0], [2.0, 4.0]], "column", "row"))
    assert (panel["rows"], panel["columns"]) == (2, 2)
    assert values_of(panel) == [0, 64, 127, 254]
    diverging = panel_of(
        Heat("t", [[0.0, 1.0], [-4.0, float("nan")]], "column", "row", diverging=True)
    )
    assert values_of(diverging) == [127, 159, 0, MISSING]


def test_a_matrix_of_zeros_is_drawn_and_not_empty():
    assert MISSING not in values_of(panel_of(Heat("t", np.zeros((2, 2)), "c", "r", diverging=True)))
    assert MISSING not in values_of(panel_of(Heat("t", np.zeros((2, 2)), "c", "r")))


def test_tensors_lists_and_arrays_give_the_same_explorer():
    values = [0.0, 1.5, 3.0]
    panels = [
        panel_of(line(kind(values), x=kind(values)))
        for kind in (list, np.array, torch.tensor, lambda v: torch.tensor(v, requires_grad=True))
    ]
    assert all(p == panels[0] for p in panels)


def test_a_picture_becomes_one_image_per_frame():
    import matplotlib.pyplot as plt

    panel = panel_of(
        Picture("t", plt.figure(figsize=(2, 1))), Picture("t", plt.figure(figsize=(2, 1)))
    )
    assert len(panel["frames"]) == 2
    assert base64.b64decode(panel["frames"][0])[8:12] == b"WEBP"
    assert plt.get_fignums() == []
    assert curve(), "other figures can still be drawn"


# ---------------------------------------------------------------- what a front end gets


@pytest.fixture(scope="module")
def explorer():
    return Explorer(
        'Is 1 < 2? </script><!-- & "so" -->',
        {"a": Slider("a", [1.0, 2.0], start=1)},
        lambda a: Frame(f"a is {a:g} </script> & more", line([a, 2 * a, 3 * a])),
    )


def bundle(explorer):
    return explorer._repr_mimebundle_()[0]


def test_a_notebook_a_page_and_a_terminal_each_get_their_form(explorer):
    data = bundle(explorer)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].splitlines()[0].startswith("Explorer: Is 1 < 2?")
    assert data["text/plain"].splitlines()[1:] == unpacked(explorer.spec)["sentences"]


def test_the_page_holds_the_same_description_as_the_widget(explorer):
    [island] = ISLAND.findall(bundle(explorer)["text/html"])
    assert json.loads(island) == explorer.spec


def test_the_island_is_strict_json_that_cannot_end_its_script_or_open_a_comment(explorer):
    [island] = ISLAND.findall(bundle(explorer)["text/html"])
    assert "</" not in island
    assert "<!--" not in island

    def refuse(name):
        raise AssertionError(f"{name} is not JSON: no browser reads it")

    json.loads(island, parse_constant=refuse)


def test_a_page_without_scripts_shows_the_title_and_the_sentence_of_the_first_state(explorer):
    page = ISLAND.sub("", bundle(explorer)["text/html"])
    assert html.escape(explorer.spec["title"]) in page
    first, second = unpacked(explorer.spec)["sentences"]
    assert html.escape(second) in page
    assert html.escape(first) not in page
    assert page.count("<script") == page.count("</script") == 0


def test_the_front_end_of_the_widget_is_the_script_of_the_page(explorer):
    from book.explorer import STATIC

    assert explorer._esm.startswith((STATIC / "explorer.js").read_text(encoding="utf-8"))
    assert "transformerParts.show(el, model.get('page'))" in explorer._esm
    assert explorer.page == bundle(explorer)["text/html"]


# ---------------------------------------------------------------- the explorers of the book


def islands(path):
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            yield from ISLAND.findall("".join(output.get("data", {}).get("text/html", "")))


@pytest.mark.parametrize("path", chapters(), ids=lambda p: p.stem)
def test_every_explorer_of_a_chapter_is_small(path, record_property):
    sizes = {}
    for island in islands(path):
        raw = island.encode()
        sizes[json.loads(island)["title"]] = (len(raw), len(gzip.compress(raw, 6)))
    record_property("bytes of each explorer (raw, gzip)", sizes)
    assert sizes, f"{path.name} stores no explorer"
    assert all(raw <= BUDGET and packed <= BUDGET for raw, packed in sizes.values()), sizes


@pytest.mark.parametrize("path", chapters(), ids=lambda p: p.stem)
def test_every_sentence_of_an_explorer_speaks_and_says_a_number(path):
    for island in islands(path):
        spec = unpacked(json.loads(island))
        for sentence in spec["sentences"]:
            assert len(sentence.split()) >= 5, f"{spec['title']}: {sentence!r} says too little"
            assert re.search(r"\d", sentence), f"{spec['title']}: {sentence!r} says no number"
