"""The numbers of a finding's rows, drawn: a bar to the mean, a line from the lowest to the highest.

`book.finding` writes a table with a column for the ends. Here each of its cells gets bar and line,
all of a table to one scale; the ends stay in the cell as text, for who listens to the page.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from sphinx.application import Sphinx

_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def numbers(text: str) -> list[float]:
    """The numbers in a text, as `book.finding` prints them."""
    return [float(n.replace(",", "").replace("−", "-")) for n in _NUMBER.findall(text)]


def spread(low: float, mean: float, high: float, scale: tuple[float, float]) -> str:
    """Bar and line, as SVG; `scale` is what the left and the right edge stand for."""
    left, right = scale

    def across(a: float, b: float, least: float) -> str:
        begin, end = sorted(100 * (value - left) / (right - left) for value in (a, b))
        width = max(end - begin, least)
        begin = max(0, min(begin, 100 - width))  # within the picture, rounding errors too
        return f'x="{begin:.1f}" width="{width:.1f}"'

    return (
        '<svg class="tp-spread" viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect {across(0, mean, 0.4)} y="3" height="10"/>'
        + (f'<rect {across(low, high, 0.8)} y="6.5" height="3"/>' if low < high else "")
        + "</svg>"
    )


def draw(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Draw the rows of the findings of a page."""
    if app.builder.format != "html":
        return
    cells = (c for c in doctree.findall(nodes.container) if "tag_finding" in c["classes"])
    for table in [table for cell in cells for table in cell.findall(nodes.table)]:
        rows = [row for body in table.findall(nodes.tbody) for row in body]
        if any(len(row) != 3 for row in rows):
            continue
        told = []
        for _, mean, ends in (map(nodes.Element.astext, row) for row in rows):
            told.append(numbers(mean) + (numbers(ends) or 2 * numbers(mean)))
        if any(len(row) != 3 for row in told):
            raise ValueError(
                f"{page}: a row of a finding does not hold a mean and two ends: {told}"
            )
        every = [0.0, *(n for row in told for n in row)]
        scale = min(every), max(every)
        if scale[0] == scale[1]:
            scale = (0.0, 1.0)
        for row, (mean, low, high) in zip(rows, told, strict=True):
            said = f'<span class="tp-ends">{escape(row[2].astext())}</span>'
            html = said + spread(low, mean, high, scale)
            row[2].children = []
            row[2] += nodes.paragraph("", "", nodes.raw("", html, format="html"))
        table["classes"] = [*table["classes"], "tp-rows"]


def setup(app: Sphinx) -> None:
    """Draw when all is resolved."""
    app.connect("doctree-resolved", draw)
