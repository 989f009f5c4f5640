"""Protects the comparison of figures and explorers: rounding passes, a change does not."""

import base64
import copy

import matplotlib.pyplot as plt
import numpy as np
import pytest
from making import curve, flat, printed, result, shown
from making import stored as stored_figure

from book.explorer import Bars, Choice, Explorer, Frame, Heat, Lines, Slider, page
from book.outputs import PIXEL_STEP, STRAY_PIXELS, picture_differences


def compared(old, new):
    return picture_differences([shown(old)], [shown(new)])


# ---------------------------------------------------------------- figures


def test_the_same_figure_agrees_with_itself():
    assert compared(curve(), curve()) == []


@pytest.mark.parametrize("jitter", [1e-15, 1e-9, 1e-5])
def test_rounding_in_the_data_does_not_count(jitter):
    assert curve(jitter=1e-3) != curve(), "this jitter would not change a byte: the test is empty"
    assert compared(curve(), curve(jitter=jitter)) == []


def test_a_shimmer_along_the_edge_of_the_line_does_not_count():
    assert compared(curve(), curve(jitter=1e-3)) == []


@pytest.mark.parametrize(
    "change",
    [{"shift": 0.05}, {"shift": 1.0}, {"ylabel": "x"}, {"legend": "p = 2"}, {"ylabel": "yy"}],
    ids=str,
)
def test_a_moved_line_or_another_label_counts(change):
    [problem] = compared(curve(), curve(**change))
    assert "pixels differ" in problem


@pytest.mark.parametrize(("pixels", "found"), [(STRAY_PIXELS, False), (STRAY_PIXELS + 1, True)])
@pytest.mark.parametrize("stored_first", [True, False])
def test_a_few_stray_pixels_pass_and_more_do_not(pixels, found, stored_first):
    spots = [(3 * i + 1, 10) for i in range(pixels)]
    pair = flat("white"), flat("white", spots=spots)
    assert bool(compared(*(pair if stored_first else pair[::-1]))) == found


@pytest.mark.parametrize(("step", "found"), [(PIXEL_STEP, False), (PIXEL_STEP + 1, True)])
def test_a_shade_passes_up_to_a_step_and_no_further(step, found):
    assert bool(compared(flat((100, 100, 100, 255)), flat((100, 100 + step, 100, 255)))) == found
    assert bool(compared(flat((100, 100 + step, 100, 255)), flat((100, 100, 100, 255)))) == found


def test_another_size_counts_and_is_named():
    [problem] = compared(curve(), curve(size=(7.0, 3.0)))
    assert "1008x46" in problem
    assert "1008x432" in problem


def test_a_transparent_ground_is_read_as_white():
    assert compared(flat((0, 0, 0, 0)), flat("white")) == []
    assert compared(flat((0, 0, 0, 0)), flat("black"))


@pytest.mark.parametrize(
    "colours", ["white black", "#777777 #bb7777", "#777777 #77bb77", "#777777 #7777bb"]
)
def test_a_change_of_any_colour_channel_counts(colours):
    assert compared(*map(flat, colours.split()))


def test_a_heat_map_agrees_up_to_rounding_and_no_further():
    def heat(change=0.0, jitter=0.0):
        values = np.outer(np.arange(6.0), np.arange(6.0)) + jitter * np.sin(np.arange(36)).reshape(
            6, 6
        )
        values[2, 3] += change
        figure, axes = plt.subplots()
        figure.colorbar(axes.imshow(values, vmin=0, vmax=25), label="product")
        axes.set(xlabel="column", ylabel="row")
        return stored_figure(figure)

    assert compared(heat(), heat(jitter=1e-6)) == []
    assert compared(heat(), heat(change=8.0))


def test_a_missing_and_an_added_figure_count():
    one, two = [shown(curve())], [shown(curve()), shown(curve())]
    assert "1 outputs of type image/png are stored, 2 came" in picture_differences(one, two)[0]
    assert picture_differences(two, one)
    assert picture_differences(one, [printed("nothing")])


def about(**change):
    """The output of a cell that shows a figure, with something else said about it."""
    output = copy.deepcopy(shown(curve()))
    output.metadata["image/png"].update(width=672, height=307, needs_background="light")
    output.metadata["image/png"].update(change)
    return output


@pytest.mark.parametrize(
    "change",
    [
        {"alt": "A curve that bends downwards, for the tests of the house."},
        {"width": 673},
        {"height": 600},
        {"needs_background": "dark"},
        {"title": "A parabola"},
    ],
    ids=str,
)
def test_what_is_said_about_a_figure_is_compared(change):
    """The site shows the alt text and the size that stand in the metadata, not in the data."""
    assert picture_differences([about()], [about()]) == []
    for pair in ((about(), about(**change)), (about(**change), about())):
        [problem] = picture_differences(*([output] for output in pair))
        assert problem.startswith("output 0: metadata.image/png")


def test_what_is_said_about_an_output_after_some_printing_is_compared():
    old, new = [printed("1"), about()], [printed("1"), about(alt="Something else.")]
    assert picture_differences(old, old) == []
    assert picture_differences(old, new)
    bare = copy.deepcopy(new)
    bare[1].metadata = {}
    assert picture_differences(old, bare)
    assert picture_differences(bare, old)


def test_the_second_figure_of_a_cell_is_compared_too():
    old = [shown(curve()), shown(curve())]
    new = [shown(curve()), shown(curve(shift=1.0))]
    [problem] = picture_differences(old, new)
    assert "output 1" in problem


def test_text_is_not_compared_here():
    assert picture_differences([printed("1")], [printed("2")]) == []


# ---------------------------------------------------------------- explorers


@pytest.fixture(scope="module")
def explorer():
    return Explorer(
        "A line",
        {"a": Slider("slope", [1.0, 2.0]), "kind": Choice("kind", ["up", "down"])},
        lambda a, kind: Frame(
            f"{kind} with slope {a:g}",
            Lines("line", [0.0, 0.5, 1.0], {"y": [0.0, 0.5 * a, a]}, "x", "y"),
            Bars("bars", ["p", "q"], {"y": [a, -a]}, "which", "height"),
            Heat("heat", [[a, 0.0], [0.0, -a]], "column", "row"),
        ),
    )


def stored(spec):
    """The stored output of an explorer that has this description."""
    return [result({"text/html": page(spec)})]


def changed(explorer, change):
    spec = copy.deepcopy(explorer.spec)
    change(spec)
    return picture_differences(stored(explorer.spec), stored(spec))


def moved(panel, place, steps):
    """A change of one stored value by a number of steps."""

    def change(spec):
        data = spec["panels"][panel]["data"]
        values = bytearray(base64.b64decode(data["bytes"]))
        values[place] += steps if values[place] + abs(steps) <= 254 else -steps
        data["bytes"] = base64.b64encode(bytes(values)).decode()

    return change


def test_the_same_explorer_agrees_with_itself(explorer):
    assert changed(explorer, lambda spec: None) == []


@pytest.mark.parametrize("panel", [0, 1, 2])
def test_one_step_of_rounding_does_not_count_and_two_do(explorer, panel):
    assert changed(explorer, moved(panel, 1, 1)) == []
    assert changed(explorer, moved(panel, 1, -1)) == []
    [problem] = changed(explorer, moved(panel, 1, 2))
    assert f"panels[{panel}].data: a value moved by 2" in problem
    assert changed(explorer, moved(panel, 1, -2))


def test_a_value_that_became_nan_counts_even_at_the_top_of_the_axis(explorer):
    def top(value):
        def change(spec):
            data = spec["panels"][0]["data"]
            values = bytearray(base64.b64decode(data["bytes"]))
            values[2] = value
            data["bytes"] = base64.b64encode(bytes(values)).decode()

        return change

    at_top, missing = copy.deepcopy(explorer.spec), copy.deepcopy(explorer.spec)
    top(254)(at_top)
    top(255)(missing)
    assert picture_differences(stored(at_top), stored(missing))
    assert picture_differences(stored(missing), stored(at_top))
    assert picture_differences(stored(missing), stored(missing)) == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda s: s["sentences"]["texts"].__setitem__(3, "another"), "sentences.texts[3]"),
        (lambda s: s["panels"][0]["series"][0].update(label="z"), "series[0].label"),
        (lambda s: s["panels"][0]["yticks"][1].__setitem__(1, "7"), "yticks[1][1]"),
        (lambda s: s["panels"][0]["x"].__setitem__(1, 0.4), "panels[0].x[1]"),
        (lambda s: s["controls"][0]["values"].__setitem__(1, "3"), "controls[0].values"),
        (lambda s: s["controls"][0].update(start=1), "controls[0].start"),
        (lambda s: s["panels"].pop(), "panels"),
        (lambda s: s["panels"][1].update(zero=0.25), "zero"),
        (lambda s: s["panels"][2].update(rownames=["p", "q"]), "rownames"),
    ],
)
def test_any_other_change_counts_and_is_named(explorer, change, where):
    [problem] = changed(explorer, change)
    assert where in problem


def test_a_changed_first_sentence_counts_outside_the_island_too(explorer):
    html = stored(explorer.spec)[0]["data"]["text/html"]
    other = html.replace('aria-live="polite">up', 'aria-live="polite">down')
    assert other != html
    [problem] = picture_differences([result({"text/html": html})], [result({"text/html": other})])
    assert "the HTML differs" in problem


def test_html_stored_as_a_list_of_lines_is_read_as_one_text(explorer):
    html = stored(explorer.spec)[0]["data"]["text/html"]
    lines = [
        {"output_type": "execute_result", "data": {"text/html": html.splitlines(keepends=True)}}
    ]
    assert picture_differences(lines, stored(explorer.spec)) == []


def test_a_drawing_that_is_not_what_its_description_draws_is_replaced(explorer):
    html = stored(explorer.spec)[0]["data"]["text/html"]
    older = html.replace('class="tp-grid"', 'class="tp-line"', 1)
    assert older != html
    [problem] = picture_differences([result({"text/html": older})], stored(explorer.spec))
    assert "drawn otherwise today" in problem
