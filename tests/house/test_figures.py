"""Protects `figures.show`: no figure without a text alternative or the names of its axes."""

import base64
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from book import figures
from book.figures import PALETTE, show

ALT = "A line that rises from one to nine, faster and faster."


@pytest.fixture
def displayed(monkeypatch):
    """What `show` hands to the front end."""
    calls = []
    monkeypatch.setattr(figures, "display", lambda data, **options: calls.append((data, options)))
    yield calls
    plt.close("all")


def drawn(xlabel="n", ylabel="n squared"):
    figure, axes = plt.subplots(figsize=(5.0, 3.0))
    axes.plot([1, 2, 3], [1, 4, 9])
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure


@pytest.mark.parametrize("alt", ["", "   ", "plot", "a line that rises"])
def test_a_missing_or_empty_text_alternative_is_refused(displayed, alt):
    with pytest.raises(ValueError, match="alt must say what the figure shows"):
        show(drawn(), alt=alt)
    assert displayed == []


def test_the_text_alternative_has_no_default():
    with pytest.raises(TypeError, match="alt"):
        show(drawn())


@pytest.mark.parametrize("labels", [{"xlabel": ""}, {"ylabel": ""}, {"xlabel": "", "ylabel": ""}])
def test_an_axis_without_a_name_is_refused(displayed, labels):
    with pytest.raises(ValueError, match="lack the label of an axis"):
        show(drawn(**labels), alt=ALT)
    assert displayed == []


def test_every_axes_of_the_figure_is_looked_at(displayed):
    figure, (left, right) = plt.subplots(1, 2)
    left.set(xlabel="a", ylabel="b")
    right.set(title="the second", xlabel="a")
    with pytest.raises(ValueError, match="the second"):
        show(figure, alt=ALT)


def test_axes_that_are_switched_off_need_no_names(displayed):
    figure, axes = plt.subplots()
    axes.set_axis_off()
    show(figure, alt=ALT)
    assert len(displayed) == 1


def test_a_colour_bar_needs_the_name_of_what_it_measures_and_no_other(displayed):
    figure, axes = plt.subplots()
    image = axes.imshow(np.eye(3))
    axes.set(xlabel="column", ylabel="row")
    bar = figure.colorbar(image)
    with pytest.raises(ValueError, match="lack the label"):
        show(figure, alt=ALT)
    bar.set_label("weight")
    show(figure, alt=ALT)
    assert len(displayed) == 1


def test_the_output_carries_the_picture_its_size_and_the_text(displayed):
    show(drawn(), alt=ALT)
    [(data, options)] = displayed
    assert options["raw"] is True
    assert options["metadata"]["image/png"]["alt"] == ALT
    assert data["text/plain"] == f"Figure. {ALT}"
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    shown = options["metadata"]["image/png"]
    assert (shown["width"], shown["height"]) == (480, 288)
    assert picture.size == (5 * figures.DPI, 3 * figures.DPI)
    ground = picture.convert("RGBA").getpixel((0, 0))
    assert ground[3] == 0, "the ground must be transparent: dark mode turns it over"


def test_the_file_names_neither_program_nor_date(displayed):
    show(drawn(), alt=ALT)
    png = base64.b64decode(displayed[0][0]["image/png"])
    assert Image.open(io.BytesIO(png)).info.keys() <= {"transparency", "gamma"}


def test_the_same_figure_gives_the_same_bytes(displayed):
    show(drawn(), alt=ALT)
    show(drawn(), alt=ALT)
    assert displayed[0][0]["image/png"] == displayed[1][0]["image/png"]


def test_a_shown_figure_is_closed_so_that_it_is_not_shown_twice(displayed):
    figure = drawn()
    assert plt.fignum_exists(figure.number)
    show(figure, alt=ALT)
    assert not plt.fignum_exists(figure.number)


def test_curves_differ_in_more_than_colour():
    cycle = list(plt.rcParams["axes.prop_cycle"])
    assert [entry["color"] for entry in cycle] == list(PALETTE.values())
    assert len({str(entry["linestyle"]) for entry in cycle[:6]}) == 6


# ---------------------------------------------------------------- drawn badly


def refused(figure, displayed, **options):
    """What `show` says against a figure; it shows none that it refuses."""
    with pytest.raises(ValueError, match="this figure cannot be shown") as error:
        show(figure, alt=ALT, **options)
    assert displayed == []
    plt.close(figure)
    return str(error.value)


def test_a_text_that_the_edge_cuts_off_is_refused(displayed):
    figure = drawn()
    figure.axes[0].text(2.9, 5, "a word that does not end before the edge", clip_on=False)
    figure.axes[0].texts[0].set_in_layout(False)
    assert "'a word that does not end before the edge' is cut off" in refused(figure, displayed)


def test_a_text_outside_its_axes_that_nobody_sees_is_none(displayed):
    figure = drawn()
    figure.axes[0].text(40, 5, "far away", clip_on=True)
    show(figure, alt=ALT)
    assert len(displayed) == 1


def test_tick_labels_that_run_into_one_another_are_refused(displayed):
    figure = drawn()
    figure.axes[0].set_xticks([1.5, 1.53], ["1.8", "1.8"])
    assert "'1.8' and '1.8' overlap" in refused(figure, displayed)


def test_ticks_beyond_the_limits_are_not_drawn_and_not_asked_for(displayed):
    figure = drawn()
    figure.axes[0].set_xticks([1.5, 40, 40.01], ["1.8", "far", "far"])
    figure.axes[0].set_xlim(1, 2)
    show(figure, alt=ALT)
    assert len(displayed) == 1


def test_long_names_may_stand_side_by_side_at_a_slant(displayed):
    figure = drawn()
    figure.axes[0].set_xticks([1, 1.5, 2, 2.5], ["a long name of it"] * 4, rotation=90)
    show(figure, alt=ALT)
    assert len(displayed) == 1
    slanted = drawn()
    slanted.axes[0].set_xticks([1, 1.5, 2, 2.5], ["a long name"] * 4, rotation=45)
    show(slanted, alt=ALT)
    assert len(displayed) == 2


def test_a_text_over_another_and_over_the_legend_is_refused(displayed):
    figure = drawn()
    axes = figure.axes[0]
    axes.text(2, 5, "one text")
    axes.text(2.05, 5.1, "another")
    assert "'one text' and 'another' overlap" in refused(figure, displayed)
    figure, axes = plt.subplots()
    axes.plot([1, 2], [1, 1], label="level")
    axes.set(xlabel="n", ylabel="n squared", ylim=(0, 5))
    axes.legend(loc="upper right")
    axes.text(1.9, 4.6, "ridge")
    assert "'ridge' and the legend 'level' overlap" in refused(figure, displayed)


def test_a_curve_through_the_legend_is_refused(displayed):
    figure, axes = plt.subplots()
    axes.plot([1, 2, 3], [1, 4, 9], label="a square")
    axes.set(xlabel="n", ylabel="n squared")
    axes.legend(loc="upper right")
    assert "'a square' of '' runs through the legend" in refused(figure, displayed)


@pytest.mark.parametrize("kind", ["arrow", "turning", "said"])
def test_a_plane_has_equal_axes(displayed, kind):
    def plane():
        figure, axes = plt.subplots()
        if kind == "arrow":
            axes.quiver([0], [0], [1], [1])
        elif kind == "turning":
            around = np.linspace(0, 6.28, 30)
            axes.plot(np.cos(around), np.sin(around))
        else:
            axes.plot([0, 1], [0, 1])
        axes.set(xlabel="first feature", ylabel="second feature")
        return figure

    asked = {"plane": True} if kind == "said" else {}
    assert "are a plane, but not equal" in refused(plane(), displayed, **asked)
    equal = plane()
    equal.axes[0].set_aspect("equal")
    show(equal, alt=ALT, **asked)
    show(plane(), alt=ALT, plane=False)
    assert len(displayed) == 2


def matrix(ticks=True, numbers=False, bar=False):
    figure, axes = plt.subplots()
    picture = axes.imshow(np.eye(3))
    axes.set(xlabel="column", ylabel="row")
    axes.grid(visible=False)
    if not ticks:
        axes.set_xticks([])
    if numbers:
        for i in range(3):
            for j in range(3):
                axes.text(j, i, f"{i == j:d}")
    if bar:
        figure.colorbar(picture, label="entry")
    return figure


def test_a_picture_of_a_matrix_has_ticks_and_a_key(displayed):
    assert "neither a colour bar nor a number in each cell" in refused(matrix(), displayed)
    assert "has no ticks along x" in refused(matrix(ticks=False, bar=True), displayed)
    one_number_less = matrix(numbers=True)
    one_number_less.axes[0].texts[4].remove()
    assert "nor a number in each cell" in refused(one_number_less, displayed)
    show(matrix(numbers=True), alt=ALT)
    show(matrix(bar=True), alt=ALT)
    assert len(displayed) == 2


def test_a_bar_serves_all_pictures_with_its_colours_and_limits_and_no_other(displayed):
    def two(limit):
        figure, axes = plt.subplots(1, 2)
        for ax, high in zip(axes, (1, limit), strict=True):
            picture = ax.imshow(np.eye(3), vmin=0, vmax=high)
            ax.set(xlabel="column", ylabel="row")
        figure.colorbar(picture, ax=axes, label="entry")
        return figure

    show(two(1), alt=ALT)
    assert len(displayed) == 1
    displayed.clear()
    assert "neither a colour bar" in refused(two(2), displayed)


def test_dots_whose_colour_means_something_have_a_colour_bar(displayed):
    figure, axes = plt.subplots()
    dots = axes.scatter([1, 2, 3], [1, 2, 3], c=[0.1, 0.2, 0.9])
    axes.set(xlabel="n", ylabel="m")
    bare = refused(figure, displayed)
    assert "the colours of the dots in '' have no colour bar" in bare
    figure, axes = plt.subplots()
    dots = axes.scatter([1, 2, 3], [1, 2, 3], c=[0.1, 0.2, 0.9])
    axes.set(xlabel="n", ylabel="m")
    figure.colorbar(dots, label="weight")
    show(figure, alt=ALT)
    assert len(displayed) == 1


@pytest.mark.parametrize("fault", ["colour", "dash", "marker", "a dash for a dot", None])
def test_every_mark_of_a_legend_is_in_the_plot(displayed, fault):
    figure, axes = plt.subplots()
    y = [np.nan, 4.0, np.nan] if fault == "a dash for a dot" else [1.0, 4.0, 9.0]
    (line,) = axes.plot([1, 2, 3], y, "-", marker="o", label="hand")
    axes.plot([1, 2, 3], [2, 2, 2], "--", label="level")
    axes.bar([1, 2], [1, 2], width=0.1, color=PALETTE["sky"], label="bars")
    axes.set(xlabel="n", ylabel="n squared", ylim=(0, 20))
    axes.legend(loc="upper left")
    changed = {
        "colour": lambda: line.set_color("red"),
        "dash": lambda: line.set_linestyle(":"),
        "marker": lambda: line.set_marker("s"),
    }
    changed.get(fault, lambda: None)()
    if fault is None:
        show(figure, alt=ALT)
        assert len(displayed) == 1
    else:
        said = refused(figure, displayed)
        assert "the legend's mark for 'hand' is not in the plot" in said
        assert "level" not in said
        assert "bars" not in said


def test_two_entries_of_a_legend_have_two_marks(displayed):
    figure, axes = plt.subplots()
    for name, height in (("one", 1), ("other", 2)):
        axes.plot([1, 2], [height, height], "-", color=PALETTE["blue"], label=name)
    axes.set(xlabel="n", ylabel="height", ylim=(0, 9))
    axes.legend(loc="upper left")
    assert "'one' and 'other' have one mark in the legend" in refused(figure, displayed)
