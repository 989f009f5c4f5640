"""The explorer itself: a widget in a notebook, and the same picture on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from book.explorer.columns import every_text
from book.explorer.controls import Control
from book.explorer.page import page
from book.explorer.panels import Frame
from book.explorer.spec import describe, packed, sizes_of

STATIC = Path(__file__).parents[1] / "static"


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
    """A picture that is computed for every combination of its controls, and moved by the reader.

    Args:
        title: names the explorer.
        controls: argument name of `frame` -> `Slider`, `Choice`, `Steps` or `Guess`.
        frame: a pure function of the controls' values. Every frame must have the same panels
            (kinds, titles, labels, sizes); axes are scaled once, over all frames.

    Raises:
        ValueError: if there is no control, a control has no values or starts outside them, a frame
            has no panel or an empty sentence, or the frames differ in structure.
    """

    _esm = (
        (STATIC / "explorer.js").read_text(encoding="utf-8")
        + "\nexport default { render({ model, el }) {"
        # JupyterLab would take the arrow keys for itself: its shortcuts, and its notebook.
        + " el.dataset.lmSuppressShortcuts = 'true';"
        + " el.addEventListener('keydown', (event) => event.stopPropagation());"
        + " globalThis.transformerParts.show(el, model.get('page')); } };\n"
    )
    _css = STATIC / "explorer.css"
    page = traitlets.Unicode().tag(sync=True)

    def __init__(
        self, title: str, controls: Mapping[str, Control], frame: Callable[..., Frame]
    ) -> None:
        spec = packed(describe(title, controls, frame))
        super().__init__(page=page(spec))
        self.spec = spec

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {
            **(data or {}),
            "text/plain": self._as_text(),
            "text/html": self.page,
        }, metadata

    def _as_text(self) -> str:
        """Every sentence: what nbval compares, and what a terminal shows."""
        sentences = every_text(self.spec["sentences"], sizes_of(self.spec))
        return "\n".join([f"Explorer: {self.spec['title']}", *sentences])
