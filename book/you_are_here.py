"""You are here: the strip of the model at the top of every chapter, with the chapter's part lit.

Chapter 02 traces the models and stores the strips (`book.diagram.strip`). The site takes them from
its notebook, so building it needs no torch. `PLACES` is the one place that says which parts a
chapter is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from book.chapters import NOTEBOOKS, chapters, read, topic
from book.diagram.parts import PARTS

MAP = "map"
PICTURE = "explorer-map"  # the cell of chapter 02 whose picture the first page shows, too
_STRIP = re.compile(r'<svg class="tp-strip" data-strip="([^"]+)".*?</svg>', re.S)
_PART = re.compile(r'(?P<start><(?:a|g) class="tp-(?:part|layer)[^"]*)" data-part="(?P<key>[^"]+)"')
_LINK = re.compile(r'href="(?P<stem>\d\d_[a-z0-9_]+)\.ipynb"')


@dataclass(frozen=True)
class Place:
    """Where a chapter stands: on which strip, which parts are lit, and the same in words."""

    strip: str
    parts: tuple[str, ...]
    words: str


ATTENTION = ("self-attention", "masked self-attention", "cross-attention")
STREAM = "stream"  # not a box: the arrows themselves

PLACES: dict[str, Place] = {
    "tensors": Place("2017", (STREAM,), "the arrows, each of which is a tensor"),
    "map": Place("2017", ("all",), "the whole map"),
    "softmax": Place(
        "2017", ("softmax",), "softmax, the last box, which works inside every attention too"
    ),
    "embeddings": Place(
        "2017", ("embedding", "positions"), "embeddings and positions, where tokens become rows"
    ),
    "attention": Place(
        "2017", ATTENTION, "attention, the only part in which rows look at each other"
    ),
    "activations": Place("2017", ("feed-forward",), "the bend inside every feed-forward part"),
    "feed_forward": Place("2017", ("feed-forward",), "the feed-forward part of every layer"),
    "normalization": Place(
        "2017", ("norm",), "the norms, here two in an encoder layer and three in a decoder layer"
    ),
    "residual": Place("2017", ("sum", STREAM), "the stream and its sums, in every layer"),
    "transformer": Place(
        "2017",
        ("encoder layer", "decoder layer", "linear"),
        "the layers, and the two stacks that are made of them",
    ),
    "rope": Place("today", ("rope",), "RoPE, which tells attention the positions"),
    "long_context": Place(
        "today", ("rope",), "RoPE again, on texts longer than those of the training"
    ),
    "kv_cache": Place(
        "today", ("grouped-query attention",), "attention, and the keys and values it keeps"
    ),
    "mla": Place(
        "today", ("grouped-query attention",), "attention, with a smaller cache in its place"
    ),
    "decoder": Place(
        "today",
        ("decoder block", "embedding", "linear"),
        "the decoder of today, a stack of equal blocks",
    ),
    "cost": Place("today", ("all",), "every box, and what it costs"),
    "tokens": Place(
        "today", ("embedding",), "what comes before the first box: a text becomes numbers"
    ),
    "training": Place("today", ("all",), "every box, and how its numbers are found"),
    "inside": Place("today", ("all",), "the whole model, after its training"),
    "experts": Place(
        "today", ("gated feed-forward",), "the feed-forward part, many of them in the place of one"
    ),
    "local_attention": Place(
        "today", ("grouped-query attention",), "attention, over fewer keys or in tiles"
    ),
    "families": Place("today", ("all",), "every box, and what a family puts into it"),
    "serving": Place("today", ("all",), "every box, run for many users at once"),
    "recurrence": Place(
        "today",
        ("grouped-query attention",),
        "a memory of fixed size, in the place of attention",
    ),
}


@cache
def _stored() -> dict[str, str]:
    """What the cells of chapter 02 show as HTML: id of the cell -> HTML."""
    path = next(p for p in chapters(NOTEBOOKS) if topic(p) == MAP)
    return {
        cell.id: "".join(output["data"]["text/html"])
        for cell in read(path).cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    }


def strips() -> dict[str, str]:
    """The strips that chapter 02 stores: name -> SVG."""
    found = (match for html in _stored().values() for match in _STRIP.finditer(html))
    return {match[1]: match[0] for match in found}


def picture() -> str:
    """The map of chapter 02, as Markdown for another page."""
    return f"````{{raw}} html\n{_stored()[PICTURE]}\n````"


def lit(strip: str, parts: tuple[str, ...]) -> str:
    """A strip with some of its parts lit; each of the others is a link once, for the keyboard.

    Raises:
        ValueError: if the strip has no such part.
    """
    seen: set[str] = set()
    there: set[str] = set()

    def mark(match: re.Match[str]) -> str:
        key = match["key"]
        there.add(key)
        start = match["start"]
        if "all" in parts or key in parts:
            start += " tp-lit"
        again = ' tabindex="-1"' if key in seen else ""
        seen.add(key)
        return f'{start}" data-part="{key}"{again}'

    made = _PART.sub(mark, strip)
    if missing := {*parts} - there - {"all", STREAM}:
        raise ValueError(f"the strip has no part {sorted(missing)}, but {sorted(there)}")
    if "all" in parts:
        made = made.replace('class="tp-strip"', 'class="tp-strip tp-lit-all"')
    if STREAM in parts:
        made = made.replace('class="tp-strip"', 'class="tp-strip tp-lit-stream"')
    return made


def here(name: str, address: Callable[[str], str]) -> str:
    """The strip of a chapter as HTML; `address` turns a chapter's file name into a link.

    Raises:
        KeyError: if the topic has no place yet: give it one in `PLACES`.
    """
    if name not in PLACES:
        raise KeyError(
            f"the chapter {name!r} has no place on the map: add it to PLACES in {__name__}"
        )
    place = PLACES[name]
    drawing = with_links(lit(strips()[place.strip], place.parts), address)
    drawing = drawing.replace(
        "<svg ", f'<svg role="group" aria-label="{escape(described(name))}" ', 1
    )
    return (
        f'<nav class="tp-here" aria-label="You are here">{drawing}'
        f"<p>You are here: {escape(place.words)}.</p></nav>"
    )


def described(name: str) -> str:
    """What the strip of a chapter shows, in words."""
    place = PLACES[name]
    model = {"2017": "The Transformer of 2017", "today": "A decoder of today"}[place.strip]
    labels = [PARTS[key].label for key in place.parts if key in PARTS]
    return f"{model} as a strip. Lit: {', '.join(labels) or place.words}."


def with_links(html: str, address: Callable[[str], str]) -> str:
    """Links to notebooks as links to their pages."""
    return _LINK.sub(lambda match: f'href="{escape(address(match["stem"]))}"', html)


# ---------------------------------------------------------------- Sphinx


def _insert(app: Sphinx, doctree: Any, page: str) -> None:
    """Under the title of a chapter its place on the map; links of pictures lead to pages."""
    if app.builder.format != "html":
        return

    def address(stem: str) -> str:
        # Sphinx has no name for a page on the page itself.
        return app.builder.get_relative_uri(page, f"notebooks/{stem}") or f"{stem}.html"

    for node in doctree.findall(nodes.raw):
        if node.get("format") == "html" and ".ipynb" in node.astext():
            text = with_links(node.astext(), address)
            node.children = [nodes.Text(text)]
    title = next(doctree.findall(nodes.title), None)
    if page.startswith("notebooks/") and title is not None:
        html = here(topic(Path(f"{page}.ipynb")), address)
        place = title.parent.index(title) + 1
        title.parent.insert(place, nodes.raw("", html, format="html"))


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.connect("doctree-resolved", _insert)
