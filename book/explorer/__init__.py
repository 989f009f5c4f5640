"""Explorers: pictures that can be touched, in a live kernel and on a page without one.

    Explorer(
        "RMSNorm and the size of its input",
        {"s": Slider("size of x", [0.01, 0.1, 1.0])},
        lambda s: Frame(f"At size {s:g} the output has size 1.", Lines("output", x, ...)),
    )

torch computes every state when the cell runs (`spec`), values packed in a byte or two each
(`axis`, `columns`). Python draws the first state (`draw`, `page`), so a page is complete without a
script; static/explorer.js then moves what changes, on the page and in a notebook alike.
"""

from book.explorer.axis import MISSING, Axis
from book.explorer.controls import Choice, Guess, Slider, Steps
from book.explorer.page import page
from book.explorer.panels import Bars, Frame, Grid, Heat, Lines, Picture, Points, Scene
from book.explorer.shapes import (
    Arc,
    Arrow,
    Box,
    Cell,
    Circle,
    Curve,
    Dot,
    Polygon,
    Segment,
    Shape,
    Text,
)
from book.explorer.spec import describe, packed, unpacked
from book.explorer.typed import TypedTokens
from book.explorer.widget import STATIC, Explorer

__all__ = [
    "MISSING", "STATIC", "Arc", "Arrow", "Axis", "Bars", "Box", "Cell", "Choice", "Circle", "Curve",
    "Dot", "Explorer", "Frame", "Grid", "Guess", "Heat", "Lines", "Picture", "Points", "Polygon",
    "Scene", "Segment", "Shape", "Slider", "Steps", "Text", "TypedTokens", "describe",
    "packed", "page", "unpacked",
]  # fmt: skip
