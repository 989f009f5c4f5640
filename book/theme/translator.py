"""From the document tree to HTML, where the book wants other elements than Sphinx writes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge
from sphinx.writers.html5 import HTML5Translator

# Kinds of code that keep the color of the text: names, punctuation, blanks, operators, and numbers,
# which are known by their digits and would be every fourth element of a page.
PLAIN = frozenset({"", "n", "p", "w", "o", "nn", "kn-w", "x", "fm", "nc-w"})
PLAIN |= frozenset({"m", "mi", "mf", "mb", "mh", "mo", "nb", "ow", "kc", "bp"})
PLAIN |= frozenset({"s", "s1", "s2", "sa", "se", "si", "sb", "sr", "sx", "dl"})  # so are quotes
# An image that is no wider can be read in the column of a phone; others are moved sideways there.
FITS = 500
# A wider one is moved sideways, unless it is so tall that it is large enough at that width.
TALL = 0.75
# A formula in a line, and the signs that touch it: browsers would break the line between them.
_BEFORE = re.compile(r"[(“]$")
_AFTER = re.compile(r"^[-,.;:?!)’”]+")
# Blanks of which a browser would show one.
_MANY = re.compile(r" {2,}")


class CodeFormatter(HtmlFormatter):  # type: ignore[misc]
    """Pygments' HTML, with elements only where a color begins."""

    def _get_css_class(self, ttype: Any) -> str:
        name = str(super()._get_css_class(ttype))
        return "" if name in PLAIN else name

    def _wrap_pre(self, inner: Any) -> Any:
        for kind, line in super()._wrap_pre(inner):
            yield kind, line.replace("<span></span>", "")


class Translator(HTML5Translator):
    """Sphinx's translator, which also knows the sizes of images and the ways of wide tables."""

    def visit_image(self, node: nodes.image) -> None:
        """An image with its width and height, so that nothing moves when it comes."""
        width, height = _given(node) or _size(Path(self.builder.srcdir) / node["uri"])
        shape = f'width="{width}" height="{height}" ' if width else ""
        for name in ("width", "height", "scale"):
            node.attributes.pop(name, None)
        if 0 < width <= FITS:
            node["classes"] = [*node["classes"], "tp-fits"]
        elif height > TALL * width > 0:
            node["classes"] = [*node["classes"], "tp-tall"]
        start = len(self.body)
        super().visit_image(node)
        made = "".join(self.body[start:])
        del self.body[start:]
        self.body.append(made.replace("<img ", f'<img {shape}decoding="async" ', 1))

    def visit_literal(self, node: nodes.literal) -> None:
        """Code in a line without the element that Sphinx puts around every word of it."""
        if node["classes"] or node["ids"]:
            super().visit_literal(node)
            return
        text = _MANY.sub(lambda blanks: "\xa0" * (len(blanks[0]) - 1) + " ", node.astext())
        self.body.append(f'<code class="notranslate">{self.encode(text)}</code>')
        raise nodes.SkipNode

    def visit_table(self, node: nodes.table) -> None:
        """A table in a box that can be moved sideways.

        Below an empty corner stand the names of the rows.
        """
        self.body.append('<div class="tp-table">')
        heads = [e for head in node.findall(nodes.thead) for e in head.findall(nodes.entry)]
        if heads and not heads[0].astext().strip():
            next(iter(node.findall(nodes.colspec)))["stub"] = 1
        node["classes"] = [*node["classes"], "colwidths-auto"]
        super().visit_table(node)

    def depart_table(self, node: nodes.table) -> None:
        """The end of the box too."""
        super().depart_table(node)
        self.body.append("</div>\n")

    def visit_citation(self, node: nodes.citation) -> None:
        """An entry of the references, without the roles that its elements may not have."""
        if not isinstance(node.previous_sibling(), nodes.citation):
            self.body.append('<div class="citation-list">\n')
        self.body.append(self.starttag(node, "div", CLASS="citation"))

    def visit_entry(self, node: nodes.entry) -> None:
        """The empty corner of a table heads nothing."""
        if node.astext().strip() or not isinstance(node.parent.parent, nodes.thead):
            super().visit_entry(node)
            return
        node.parent.column += 1
        self.body.append("<td></td>\n")
        raise nodes.SkipNode


def _given(node: nodes.image) -> tuple[int, int] | None:
    """The width and height that the node states, in pixels."""
    found = [re.match(r"([\d.]+)(?:px)?$", str(node.get(k, ""))) for k in ("width", "height")]
    width, height = found
    return (round(float(width[1])), round(float(height[1]))) if width and height else None


@cache
def _size(path: Path) -> tuple[int, int]:
    if path.suffix not in (".png", ".webp", ".jpg", ".jpeg", ".gif") or not path.exists():
        return 0, 0
    with Image.open(path) as image:
        return image.size


def hold_signs(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Keep a formula in a line of text together with the signs that touch it."""
    if app.builder.format != "html":
        return
    for math in list(doctree.findall(nodes.math)):
        parent = math.parent
        at = parent.index(math)
        before, after = _text(parent, at - 1), _text(parent, at + 1)
        left, right = _BEFORE.search(before), _AFTER.search(after)
        if not left and not right:
            continue
        held = nodes.inline(classes=["tp-hold"])
        if left:
            parent[at - 1] = nodes.Text(before[: left.start()])
            held += nodes.Text(left[0])
        if right:
            parent[at + 1] = nodes.Text(after[right.end() :])
        parent[at] = held
        held += math
        if right:
            held += nodes.Text(right[0])


def _text(parent: nodes.Element, at: int) -> str:
    inside = 0 <= at < len(parent)
    return str(parent[at]) if inside and isinstance(parent[at], nodes.Text) else ""


def setup(app: Sphinx) -> None:
    """Use this translator, and the formatter for code."""
    PygmentsBridge.html_formatter = CodeFormatter
    app.set_translator("html", Translator)
    app.connect("doctree-resolved", hold_signs)
