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
