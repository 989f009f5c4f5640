"""Small notebooks and figures for the tests of the house, made by hand."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import nbformat
import numpy as np
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from book import figures


def text(source: str, *tags: str):
    return new_markdown_cell(source, metadata={"tags": list(tags)} if tags else {})


def code(source: str, *tags: str, outputs=(), count: int | None = 1, name: str | None = None):
    """A code cell with this id that was run, unless `count` is None."""
    cell = new_code_cell(source, outputs=list(outputs), execution_count=count)
    cell.metadata = nbformat.from_dict({"tags": list(tags)} if tags else {})
    if name is not None:
        cell["id"] = name
    return cell


def equation(label: str):
    """A text with a displayed equation of this label."""
    return text(f"Words.\n\n$$\ny = xW\n$$ ({label})\n\nAfter {label}.")


def notebook(*cells):
    book = new_notebook()
    book.cells = list(cells)  # not as an argument: nbformat would repair what is wrong with them
    return book


def saved(folder: Path, name: str, *cells) -> Path:
    """The notebook of these cells as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    nbformat.write(notebook(*cells), path)
    return path


def printed(words: str, name: str = "stdout"):
    return new_output("stream", name=name, text=words)


def shown(png: str, alt: str = "A curve that bends upwards, for the tests of the house."):
    """The output of a cell that shows a figure."""
    data = {"image/png": png, "text/plain": f"Figure. {alt}"}
    return new_output("display_data", data, metadata={"image/png": {"alt": alt}})


def result(data: dict[str, str], count: int = 1):
    return new_output("execute_result", data, execution_count=count)


def curve(
    shift: float = 0.0,
    jitter: float = 0.0,
    ylabel: str = "y",
    legend: str = "p = 1",
    size: tuple[float, float] = (7.0, 3.2),
) -> str:
    """A figure as `figures.show` stores it: a parabola with a legend."""
    figure, axes = plt.subplots(figsize=size)
    x = np.linspace(1.0, 3.0, 60)
    axes.plot(x, x**2 + shift + jitter * np.sin(99 * x), label=legend)
    axes.set(xlabel="n", ylabel=ylabel, title="A parabola", ylim=(0, 10))
    axes.legend()
    return stored(figure)


def stored(figure: Figure) -> str:
    """The PNG that `figures.show` hands to the front end, in base64."""
    calls = []
    with mock.patch.object(figures, "display", lambda data, **_: calls.append(data)):
        figures.show(figure, alt="A curve that bends upwards, for the tests of the house.")
    return calls[0]["image/png"]


def flat(colour: str | tuple[int, ...], spots: Iterable[tuple[int, int]] = ()) -> str:
    """A picture of one colour, with black spots, in base64."""
    image = Image.new("RGBA", (40, 20), colour)
    for spot in spots:
        image.putpixel(spot, (0, 0, 0, 255))
    png = io.BytesIO()
    image.save(png, "PNG")
    return base64.b64encode(png.getvalue()).decode()
