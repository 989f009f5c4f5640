"""Protects what a picture packs: columns come back as they were, mistakes in a scene are named."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from book.chapters import chapters, read
from book.explorer import (
    Arrow,
    Box,
    Cell,
    Curve,
    Dot,
    Explorer,
    Frame,
    Grid,
    Guess,
    Points,
    Scene,
    Segment,
    Slider,
    Steps,
    Text,
    describe,
    page,
)
from book.explorer.columns import every_text, numbers_at, pack_numbers, pack_texts, text_at
from book.explorer.shapes import ROLES
from book.redraw import redraw

ISLAND = re.compile(r'<script type="application/json" class="tp-spec">(.*?)</script>', re.S)
SIZES = [3, 4, 2]
STATES = list(itertools.product(*map(range, SIZES)))


# ---------------------------------------------------------------- columns


@given(st.lists(st.floats(-2000, 2000), min_size=24, max_size=24))
def test_a_number_comes_back_to_half_a_step(values):
    column = pack_numbers(np.array(values), SIZES)
    for value, state in zip(values, STATES, strict=True):
        assert numbers_at(column, state, SIZES) == pytest.approx(value, abs=0.0501)


@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_a_column_is_stored_over_the_controls_it_depends_on(axes):
    weight = [100, 10, 1]
    values = [sum(weight[a] * state[a] for a in axes) for state in STATES]
    column = pack_numbers(np.array(values, dtype=float), SIZES)
    if not axes:
        assert column == 0
        return
    assert column["over"] == list(axes)
    texts = pack_texts([f"{v} of {v + 0.5}" for v in values], SIZES)
    assert every_text(texts, SIZES) == [f"{v} of {v + 0.5}" for v in values]


def test_rows_of_numbers_come_back_as_rows():
    rows = np.array([[a + 0.1 * k for k in range(5)] for a, _, _ in STATES])
    column = pack_numbers(rows, SIZES)
    assert column["over"] == [0]
    for row, state in zip(rows, STATES, strict=True):
        assert numbers_at(column, state, SIZES) == pytest.approx(row)


def test_the_last_bits_of_a_value_do_not_move_a_tie():
    ties = np.array([0.05, 0.15, 120.05, 33.25] * 6)
    assert pack_numbers(ties, SIZES) == pack_numbers(ties - 1e-13, SIZES)
    assert pack_numbers(ties, SIZES) != pack_numbers(ties + 0.1, SIZES)


texts = st.one_of(
    st.sampled_from(
        ["masked", "", "{}", "a {} b", "−0.00", "-0", "1,024 tokens", "01", "x = 1e-05"]
    ),
    st.floats(-1e4, 1e4).map("score {:.2f}".format),
    st.floats(-1e6, 1e6).map(lambda v: f"{v:,.1f} and {v:.3g}".replace("-", "−")),
    st.text(max_size=8),
)


@given(st.lists(texts, min_size=24, max_size=24))
def test_a_text_comes_back_letter_by_letter(written):
    column = json.loads(json.dumps(pack_texts(written, SIZES)))
    assert every_text(column, SIZES) == written


def test_numbers_in_a_sentence_take_bytes_and_not_letters():
    said = [
        f"The weight is {k / 997:.3f}, the sum of the first {k:,} is {k * k:,}." for k in range(441)
    ]
    column = pack_texts(said, [21, 21])
    assert every_text(column, [21, 21]) == said
    assert len(json.dumps(column)) < 441 * 15


def test_441_states_of_a_dragged_arrow_with_15_moving_shapes_take_at_most_60_kb():
    values = [k / 10 - 1 for k in range(21)]
    keys = [(math.cos(t), math.sin(t)) for t in range(6)]

    def frame(x, y):
        scores = [x * a + y * b for a, b in keys]
        total = sum(map(math.exp, scores))
        weights = [math.exp(s) / total for s in scores]
        out = [sum(w * k[i] for w, k in zip(weights, keys, strict=True)) for i in (0, 1)]
        shapes = {"q": Arrow(0, 0, x, y, f"({x:.1f}, {y:.1f})", drag={"x": "x", "y": "y"})}
        shapes |= {"out": Dot(*out, f"({out[0]:.2f}, {out[1]:.2f})")}
        shapes |= {"way": Segment(0, 0, *out)}
        for k, (weight, score) in enumerate(zip(weights, scores, strict=True)):
            shapes[f"bar {k}"] = Box(-1 + 0.3 * k, -1, 0.2, weight, f"{weight:.2f}", fill=weight)
            shapes[f"score {k}"] = Dot(-0.9 + 0.3 * k, score / 3, f"{score:.1f}")
        assert len(shapes) == 15
        says = "; ".join(f"{w:.2f}" for w in weights)
        return Frame(f"q = ({x:.1f}, {y:.1f}): {says}.", Scene("p", shapes, (-2, 2), (-2, 2)))

    controls = {"x": Slider("x", values, start=15), "y": Slider("y", values, start=12)}
    made = Explorer("T", controls, frame)
    assert len(made.page.encode()) <= 60_000


# ---------------------------------------------------------------- scenes and grids


def scene(shape, other=None, **options):
    controls = {"k": Slider("k", [0, 1])}
    shapes = [{"s": shape}, {"s": other if other is not None else shape}]
    return describe(
        "The title", controls, lambda k: Frame("One sentence.", Scene("p", shapes[k], **options))
    )


@pytest.mark.parametrize(
    ("shape", "other", "said"),
    [
        (Dot(0, 0), Text(0, 0, "t"), "frame 1"),
        (Dot(0, 0, role="queen"), None, "the role 'queen'"),
        (Dot(math.nan, 0), None, "'s' has no place in state 0"),
        (Dot(0, 0, drag={"x": "j"}), None, "'s' is dragged by 'x': 'j'"),
        (Dot(0, 0, drag={"z": "k"}), None, "'s' is dragged by 'z'"),
        (Dot(0, 0, sets={"j": 0}), None, "no control 'j'"),
        (Dot(0, 0, sets={"k": 7}), None, "the value 7 to choose"),
    ],
)
def test_a_mistake_in_a_scene_is_refused_by_name(shape, other, said):
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        scene(shape, other)
    assert "The title" in str(error.value)


def test_a_shape_that_is_out_of_sight_needs_no_place():
    spec = scene(Dot(0.5, 0.5), Dot(math.nan, math.nan, shown=False))
    [shape] = spec["panels"][0]["shapes"]
    assert [numbers_at(shape["shown"], [k], [2]) for k in (0, 1)] == [1, 0]


def test_equal_units_are_equal_and_a_cell_is_a_square_in_its_row():
    panel = scene(Cell(1, 2), xlim=(0, 4), ylim=(-3, 0), height=200)["panels"][0]
    plane, [cell] = panel["plane"], panel["shapes"]
    units = plane["inner_width"] / 4, plane["inner_height"] / 3
    assert units[0] == pytest.approx(units[1], abs=1e-3)
    assert cell["w"] == pytest.approx(cell["h"]) == pytest.approx(units[0] - 1, abs=0.06)
    assert cell["x"] == pytest.approx(plane["left"] + 2 * units[0] + 0.5, abs=0.06)
    assert cell["y"] == pytest.approx(plane["top"] + units[1] + 0.5, abs=0.06)


def test_what_touching_chooses_may_change_with_the_state():
    spec = scene(Dot(0, 0, sets={"k": 1}), Dot(0, 0, sets={"k": 0}))
    [shape] = spec["panels"][0]["shapes"]
    assert [numbers_at(shape["sets"]["0"], [k], [2]) for k in (0, 1)] == [1, 0]


def test_steps_count_from_zero_and_a_guess_begins_with_none():
    asked = []

    def frame(step, guess):
        asked.append((step, guess))
        return Frame("One sentence.", Points("t", {"p": ([0], [0])}, "x", "y"))

    controls = {"step": Steps("Step", ["one", "two"]), "guess": Guess("How many?", ["a", "b"])}
    spec = describe("T", controls, frame)
    assert asked == [(k, g) for k in (0, 1) for g in (None, "a", "b")]
    assert [c["values"] for c in spec["controls"]] == [["one", "two"], ["no guess yet", "a", "b"]]
    assert Steps("Step", 3).texts() == ["1", "2", "3"]


def test_a_grid_prints_its_numbers_and_an_empty_cell_says_nothing():
    grid = Grid("t", [[0.25, -0.001], [math.nan, -2]], ["a", "b"], ["c", "d"])
    assert grid.texts() == ["0.25", "0.00", "", "−2.00"]
    assert replace(grid, empty="?").texts() == ["0.25", "0.00", "?", "−2.00"]
    with pytest.raises(ValueError, match="3 names for 2 lines"):
        describe(
            "T",
            {"k": Slider("k", [0])},
            lambda k: Frame("One.", Grid("t", [[1, 2]] * 2, ["a"] * 3, ["c", "d"])),
        )


def test_a_plane_of_dots_has_equal_units():
    dots = Points("t", {"p": ([0, 4], [0, 1])}, "x", "y", xlim=(0, 4), ylim=(0, 1), equal=True)
    spec = describe("T", {"k": Slider("k", [0])}, lambda k: Frame("One sentence.", dots))
    [place] = re.findall(r'data-box="([^"]+)"', page(spec))
    _, _, width, height = map(float, place.split())
    assert width / height == pytest.approx(4, rel=0.01)


# ---------------------------------------------------------------- the page


def everything(k):
    shapes = {role: Dot(0.1, 0.1, role, role=role) for role in ROLES}
    shapes |= {"<i>": Text(0.5, 0.5, "a < b & c\nd", detail='say "<b>"')}
    shapes |= {"curve": Curve([0, 1], [k, 1]), "box": Box(0, 0, 0.5, 0.5, href="a.html?b&c")}
    return Frame("One < two.", Scene("p & q", shapes, axes="cross"))


def test_a_page_has_no_style_in_an_attribute_and_no_text_that_could_be_a_tag():
    made = Explorer("<T>", {"k": Slider("a < b", [0.0, 1.0])}, everything)
    drawn = ISLAND.sub("", made.page)
    assert " style=" not in drawn
    assert "<b>" not in drawn
    assert "<i>" not in drawn
    assert "<T>" not in drawn
    assert "&lt;T&gt;" in drawn


def test_every_role_and_class_of_a_drawing_has_its_rule_in_the_style_sheet():
    made = Explorer("T", {"k": Slider("k", [0.0, 1.0])}, everything)
    css = (Path(page.__code__.co_filename).parents[1] / "static/explorer.css").read_text("utf-8")
    svg = "".join(re.findall(r"<svg.*?</svg>", made.page, re.S))
    used = {name for names in re.findall(r'class="([^"]+)"', svg) for name in names.split()}
    assert {f"tp-role-{role}" for role in ROLES} <= used
    for name in used - {"tp-is-curve"}:
        assert re.search(rf"\.{name}\b", css), name


@pytest.mark.parametrize("path", chapters(), ids=lambda p: p.stem)
def test_a_stored_page_is_what_its_description_draws(path):
    """So no drawing in the book is older, or newer, than the numbers beside it."""
    found = 0
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            html = "".join(output.get("data", {}).get("text/html", ""))
            for island in ISLAND.findall(html):
                assert html == page(json.loads(island)), cell.id
                found += 1
    assert found, f"{path.name} stores no picture"


def test_a_text_is_looked_up_by_the_controls_of_its_column():
    column = pack_texts([f"{b} of {c}" for _, b, c in STATES], SIZES)
    assert text_at(column, (2, 3, 1), SIZES) == "3 of 1"


def test_a_stored_picture_can_be_drawn_anew_without_running_its_cell(tmp_path):
    path = tmp_path / "03_softmax.ipynb"
    [original] = [p for p in chapters() if p.name == path.name]
    stored = original.read_text(encoding="utf-8")
    path.write_text(stored.replace("tp-grid", "tp-old", 3), encoding="utf-8")
    assert redraw(path) == 1
    assert path.read_text(encoding="utf-8") == stored
    assert redraw(path) == 0
