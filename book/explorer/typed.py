"""A box to type in: the text is cut by byte-pair encoding while it is typed.

The first text is cut by Python, so that the page is complete without a script; static/tokens.js
cuts what is typed, by the same merges. A test in a browser compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import anywidget
import traitlets

from book.explorer.page import control_html
from book.explorer.widget import STATIC

LONGEST = 600  # letters that can be typed


def label(token: bytes) -> str:
    """What is printed of a token: its text, or its bytes where they are no text."""
    try:
        return token.decode().replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    except UnicodeDecodeError:
        return " ".join(f"{byte:02X}" for byte in token)


class TypedTokens(anywidget.AnyWidget):  # type: ignore[misc]
    """A text that the reader types, and its tokens after as many merges as a slider says.

    Args:
        title: names the box.
        merges: pairs of tokens, in the order in which they were learned.
        pattern: the regular expression that cuts a text into pieces, with classes of Unicode.
        cut: (text, number of merges) -> the bytes of each token, for the first frame.
        text: what stands in the box at first.
        start: the number of merges at first.

    Raises:
        ValueError: if the text is longer than the box, or `start` is no number of merges.
    """

    _esm = (
        (STATIC / "tokens.js").read_text(encoding="utf-8")
        + "\nexport default { render({ model, el }) {"
        + " el.dataset.lmSuppressShortcuts = 'true';"
        + " el.addEventListener('keydown', (event) => event.stopPropagation());"
        + " el.innerHTML = model.get('page'); globalThis.transformerTokens(el); } };\n"
    )
    _css = STATIC / "explorer.css"
    page = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        title: str,
        merges: Sequence[tuple[bytes, bytes]],
        pattern: str,
        cut: Callable[[str, int], Sequence[bytes]],
        text: str,
        start: int,
    ) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"the box holds {LONGEST} letters, the text has {len(text)}")
        if not 0 <= start <= len(merges):
            raise ValueError(f"start must be from 0 to {len(merges)}, got {start}")
        ids = {bytes([byte]): byte for byte in range(256)}
        rows = [[ids[a], ids[b], ids.setdefault(a + b, len(ids))] for a, b in merges]
        tokens = cut(text, start)
        self._says = sentence(text, tokens)
        slider = {"kind": "slider", "label": "merges", "start": start}
        slider["values"] = [str(k) for k in range(len(merges) + 1)]
        island = json.dumps({"merges": rows, "pattern": pattern}, separators=(",", ":"))
        chips = "".join(chip(token, ids[token]) for token in tokens)
        super().__init__(
            page='<div class="tp-typed">'
            f'<p class="tp-title">{escape(title)}</p>'
            f'<label class="tp-field"><span>your text, up to {LONGEST} characters</span> '
            f'<textarea rows="2" maxlength="{LONGEST}" spellcheck="false" autocapitalize="off" '
            f'autocomplete="off" disabled>{escape(text)}</textarea></label>'
            f'<div class="tp-controls">{control_html(slider)}</div>'
            f'<p class="tp-sentence" role="status">{escape(self._says)}</p>'
            f'<p class="tp-chips">{chips}</p>'
            '<p class="tp-hint">Run the cell above to type a text of your own.</p>'
            '<script type="application/json" class="tp-merges">'
            f"{island.replace('<', chr(92) + 'u003c')}</script></div>"
        )
        self.title = title

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        text = f"{self.title}\n{self._says}"
        return {**(data or {}), "text/plain": text, "text/html": self.page}, metadata


def sentence(text: str, tokens: Sequence[bytes]) -> str:
    """What the box says of a text and its tokens."""
    size, count = len(text.encode()), len(tokens)
    if not count:
        return "Nothing is typed: 0 tokens."
    plural = "token" if count == 1 else "tokens"
    return f"{size} bytes become {count} {plural}, {size / count:.1f} bytes a token."


def chip(token: bytes, number: int) -> str:
    """A token as it is shown: its text, and its number."""
    return f"<span>{escape(label(token))}<small>{number}</small></span> "
