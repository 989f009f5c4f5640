"""Protects the reading of scenes and grids: what is shown is read back, and what lies is found."""

import base64
import math

import numpy as np
import pytest

from book.explorer import (
    Arc,
    Arrow,
    Box,
    Cell,
    Circle,
    Curve,
    Dot,
    Frame,
    Grid,
    Polygon,
    Scene,
    Segment,
    Slider,
    Text,
    describe,
)

from .reading import Seen, differences, faults, says
from .reading_scenes import shape_at

X = [k / 10 for k in range(-20, 21)]


def plane(x, y, **changed):
    """Every kind of shape, each in its own way dependent on x and y."""
    shapes = {
        "floor": Segment(-2, -2, 2, -2),
        "arrow": Arrow(0, 0, x, y, f"({x:.1f}, {y:.1f})", role="query", drag={"x": "x", "y": "y"}),
        "dot": Dot(y, x, size=1 + x * x, detail=f"its area is {1 + x * x:.2f}"),
        "circle": Circle(0, 0, 0.5 + 0.25 * abs(x), strong=x > 0),
        "arc": Arc(0, 0, 1, 0, 0.5 + abs(math.atan2(y, x))),
        "curve": Curve([-1, 0, 1], [y, x, 0]),
        "surface": Polygon([(0, 0), (x, 0), (0, y)]),
        "box": Box(x / 2, y / 2, 0.5 + 0.1 * abs(x), 0.5, f"{x * y:.2f}", fill=abs(x) / 2),
        "cell": Cell(0, 0, text="seen" if x > 0 else "masked", fill=abs(y) / 2, shown=y > -1),
        "text": Text(0.3 * x, 1.5, f"x is {x:.1f}", role="good" if x > 0 else "bad"),
    }
    return Scene("plane", shapes | changed, xlim=(-3, 3), ylim=(-3, 3), axes="cross")


def table(x, y):
    return Grid(
        "table", [[x, y], [x + y, x * y]], ["p", "q"], ["left", "right"], limits=(-4, 4),
        detail=lambda r, c: f"cell {r}, {c} of x = {x:.1f}",
    )  # fmt: skip


def frame(x, y):
    return Frame(f"The sum of {x:.1f} and {y:.1f} is {x + y:.1f}.", plane(x, y), table(x, y))


@pytest.fixture(scope="module")
def spec():
    controls = {"x": Slider("x", X, start=3), "y": Slider("y", X)}
    return describe("T", controls, frame)


def at(x, y):
    return {"x": f"{x:g}", "y": f"{y:g}"}


def seen(x, y, *panels):
    said = says("The sum of {} and {} is {}", x, y, x + y)
    return Seen(said, *(panels or (plane(x, y), table(x, y))))


@pytest.mark.parametrize(("x", "y"), [(1.3, 0.7), (-0.4, 2.0), (-2.0, -2.0), (0.0, 0.1)])
def test_what_a_scene_shows_is_read_back_as_it_was_computed(spec, x, y):
    assert differences(spec, at(x, y), seen(x, y)) == []


def test_every_planted_fault_is_found_and_each_kind_is_planted(spec):
    number = X.index(1.3) * len(X) + X.index(0.7)
    planted = list(faults(spec, number))
    names = " ".join(name for name, _ in planted)
    for kind in (
        "'arrow' x1 moved", "'arrow' label lies", "'dot' r moved", "'dot' detail lies",
        "'circle' strong the other way", "'arc' stop moved", "'curve' y moved", "'surface' x moved",
        "'box' fill moved", "'cell' comes and goes", "'cell' label lies", "'text' role lies",
        "rownames moved", "columnnames moved", "cell 3: '0.96'", "cells' scaled",
        "the values of 'y' moved by one",
    ):  # fmt: skip
        assert kind in names, kind
    missed = [
        name for name, wrong in planted if not differences(wrong, at(1.3, 0.7), seen(1.3, 0.7))
    ]
    assert missed == []


def altered(spec, name, key, change):
    """A copy in which the stored column of one shape is changed."""
    panel = spec["panels"][0]
    shapes = [s | {key: change(s[key])} if s["name"] == name else s for s in panel["shapes"]]
    return spec | {"panels": [panel | {"shapes": shapes}, *spec["panels"][1:]]}


def test_a_wrong_byte_in_a_column_is_found_in_its_state_and_in_no_other(spec):
    def one_byte(column):
        raw = np.frombuffer(base64.b64decode(column["bytes"]), "<u2").copy()
        raw[X.index(1.3)] += 3
        return column | {"bytes": base64.b64encode(raw.tobytes()).decode()}

    wrong = altered(spec, "arrow", "x1", one_byte)
    [problem] = differences(wrong, at(1.3, 0.7), seen(1.3, 0.7))
    assert "'arrow': x1 is off by" in problem
    assert differences(wrong, at(1.2, 0.7), seen(1.2, 0.7)) == []


def test_two_columns_exchanged_are_found(spec):
    [arrow] = [s for s in spec["panels"][0]["shapes"] if s["name"] == "arrow"]
    wrong = altered(spec, "arrow", "x1", lambda column: arrow["y1"])
    assert any("x1 is off" in p for p in differences(wrong, at(1.3, 0.7), seen(1.3, 0.7)))


def test_a_column_over_the_other_control_is_found(spec):
    wrong = altered(spec, "arrow", "x1", lambda column: column | {"over": [1]})
    assert any("x1 is off" in p for p in differences(wrong, at(1.3, 0.7), seen(1.3, 0.7)))


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("arrow", Arrow(0, 0, 1.3, 0.75, "(1.3, 0.7)", role="query")),
        ("arrow", Arrow(0, 0, 1.3, 0.7, "(1.3, 0.9)", role="query")),
        ("dot", Dot(0.7, 1.3, size=2.69, detail="its area is 2.96")),
        ("box", Box(0.65, 0.35, 0.63, 0.5, "0.91", fill=0.6)),
        ("cell", Cell(0, 0, text="masked", fill=0.35)),
        ("text", Text(0.39, 1.5, "x is 1.3", role="bad")),
    ],
)
def test_a_shape_that_lies_is_named(spec, name, lie):
    found = differences(
        spec, at(1.3, 0.7), seen(1.3, 0.7, plane(1.3, 0.7, **{name: lie}), table(1.3, 0.7))
    )
    assert found != []
    assert all(f"{name!r}" in problem for problem in found)


def test_what_moves_must_be_computed_and_what_stands_may_be_left_out(spec):
    whole = plane(1.3, 0.7)

    def without(name):
        shapes = {key: shape for key, shape in whole.shapes.items() if key != name}
        return Scene("plane", shapes, xlim=(-3, 3), ylim=(-3, 3), axes="cross")

    assert differences(spec, at(1.3, 0.7), seen(1.3, 0.7, without("floor"), table(1.3, 0.7))) == []
    [problem] = differences(spec, at(1.3, 0.7), seen(1.3, 0.7, without("dot"), table(1.3, 0.7)))
    assert "'dot' varies, and was not computed" in problem


def test_one_shape_can_be_asked_for_in_data_units(spec):
    number = X.index(1.3) * len(X) + X.index(0.7)
    arrow = shape_at(spec, spec["panels"][0], "arrow", number)
    assert arrow["x1"] == pytest.approx(1.3, abs=0.002)
    assert arrow["y1"] == pytest.approx(0.7, abs=0.002)
    assert (arrow["label"], arrow["role"]) == ("(1.3, 0.7)", "query")
