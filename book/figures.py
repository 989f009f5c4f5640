"""Figures: one palette, one style, and no figure without a text alternative.

Drawn once, read in light and dark mode: figures have a transparent ground and the site inverts
their lightness (not their hue) in dark mode, so prose must not say "the darker cells".
"""

from __future__ import annotations

import base64
import io
from typing import Any

import matplotlib.pyplot as plt
from cycler import cycler
from IPython.display import display
from matplotlib.figure import Figure
from PIL import Image

from book import drawn

# Okabe and Ito's colours, which stay apart for the usual kinds of colour blindness, in the order
# of use. Each has its own dash pattern, so that colour is never the only difference.
PALETTE = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
}
DPI = 144

plt.rcParams.update(
    {
        "figure.figsize": (7.0, 3.2),
        "figure.dpi": 72,
        "figure.constrained_layout.use": True,
        "axes.prop_cycle": cycler(
            color=list(PALETTE.values()),
            linestyle=["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-"],
        ),
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": "medium",
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "image.cmap": "cividis",
        "font.size": 10,
    }
)


def show(fig: Figure, *, alt: str, plane: bool | None = None) -> None:
    """Show `fig` in the notebook and on the site, with `alt` as its text alternative, and close it.

    Args:
        fig: the figure. Every axes that is switched on must name its x and y axis, a colour bar
            what it measures.
        alt: what a reader who cannot see the figure needs to know: what is drawn, what it shows.
        plane: whether the axes are planes, whose two directions have one unit and must be drawn
            so. By default those are in which an arrow is drawn, or a curve that turns back.

    Raises:
        ValueError: if `alt` says too little, an axis has no label, or something is drawn badly
            (book/drawn.py): a text that is cut off or covered, a plane that is stretched, a
            picture without ticks or key, a legend whose mark is not in the plot.
    """
    if len(alt.split()) < 8:
        raise ValueError(f"alt must say what the figure shows, in a sentence or two; got {alt!r}")
    for axes in fig.axes:
        names = [bool(axes.get_xlabel()), bool(axes.get_ylabel())]
        # A colour bar is an axes too, with one axis.
        if axes.axison and not (any(names) if hasattr(axes, "_colorbar") else all(names)):
            raise ValueError(f"the axes titled {axes.get_title()!r} lack the label of an axis")
    png = io.BytesIO()
    # No Software entry: the file must not change with the version of matplotlib.
    fig.savefig(png, format="png", dpi=DPI, transparent=True, metadata={"Software": None})
    if bad := drawn.problems(fig, plane):
        raise ValueError("this figure cannot be shown:\n  " + "\n  ".join(bad))
    width, height = (round(inches * 96) for inches in fig.get_size_inches())
    small = io.BytesIO()
    # 256 colours are enough for a drawing and make the file a third of the size.
    Image.open(png).quantize(256, Image.Quantize.FASTOCTREE).save(small, "PNG", optimize=True)
    data: dict[str, Any] = {
        "image/png": base64.b64encode(small.getvalue()).decode(),
        "text/plain": f"Figure. {alt}",
    }
    # needs_background: JupyterLab then keeps a light ground under the figure in its dark theme.
    shown = {"alt": alt, "width": width, "height": height, "needs_background": "light"}
    display(data, raw=True, metadata={"image/png": shown})  # type: ignore[no-untyped-call]
    plt.close(fig)
