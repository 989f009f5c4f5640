"""Boxes of the page: what folds, and notes beside the text.

A box that folds is a `<details>`, whatever made it: a `dropdown`, an admonition with the class
`dropdown` (solutions are), code that a page hides. Each is one line with a triangle until it is
opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from docutils.parsers.rst import directives
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from book.folding import Fold, FoldLine


class Dropdown(SphinxDirective):
    """The directive `dropdown`: a question, say, that opens to its answer."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"open": directives.flag, "class": directives.class_option}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """A fold with the argument as its line."""
        words, messages = self.state.inline_text(self.arguments[0], self.lineno)
        classes = ["tp-fold", "tp-question", *self.options.get("class", [])]
        box = Fold("", FoldLine("", "", *words), classes=classes, opened="open" in self.options)
        self.set_source_info(box)
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box, *messages]


class Margin(SphinxDirective):
    """The directive `margin`: a note beside the text; on a narrow screen one line that folds."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"class": directives.class_option}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """A fold that the style sheet puts beside the text where there is room."""
        words, messages = self.state.inline_text(self.arguments[0], self.lineno)
        classes = ["tp-fold", "tp-margin", *self.options.get("class", [])]
        box = Fold("", FoldLine("", "", *words), classes=classes)
        self.set_source_info(box)
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box, *messages]


def _in_line(line: FoldLine) -> FoldLine:
    """A line without links: within a line that opens something each would be a second control."""
    for link in list(line.findall(nodes.reference)):
        link.replace_self(link.children)
    return line


def _comparisons(cell: nodes.Element) -> Iterator[nodes.paragraph]:
    """Take the lines that say how clearly a finding holds out of what the cell shows.

    They speak of names of the experiment, so they stand with it. A reader wants the sentence.
    """
    for said in list(cell.findall(nodes.paragraph)):
        if (
            said.children
            and isinstance(said[0], nodes.emphasis)
            and _MARGINS.match(said[0].astext())
        ):
            said.parent.remove(said)
            said["classes"] = [*said["classes"], "tp-compared"]
            yield said


# How `book.finding` begins them.
_MARGINS = re.compile(r"(In each of the runs with seeds .*|Computed):$")


def fold_boxes(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Admonitions with the class `dropdown` and hidden code become folds, their lines one run."""
    if app.builder.format != "html":
        return
    for box in list(doctree.findall(nodes.Admonition)):
        if "dropdown" in box["classes"] and isinstance(box[0], nodes.title):
            classes = [c for c in box["classes"] if c not in ("dropdown", "toggle")]
            line = _in_line(FoldLine("", "", *box[0].children))
            made = Fold("", line, *box.children[1:], ids=box["ids"], names=box["names"])
            made["classes"] = ["tp-fold", "admonition", *classes]
            box.replace_self(made)
    for hidden in list(doctree.findall(HideCodeCellNode)):
        line = FoldLine("", hidden["prompt_show"])
        cell = hidden.parent
        made = Fold("", line, *hidden.children, classes=["tp-fold", "tp-code-fold"])
        if "tag_finding" in cell["classes"]:
            made += list(_comparisons(cell))
        else:
            made["classes"].append("tp-drawing")
        # What the code shows comes first, then the line behind which the code is.
        cell.remove(hidden)
        cell.append(made)
    # The line is a flex box, in which code or a formula between words would be a column of its own.
    for line in doctree.findall(FoldLine):
        if len(line) > 1:
            words = nodes.inline("", "", *line.children)
            line.children = []
            line += words


def setup(app: Sphinx) -> None:
    """Register the directives, and fold what is to fold."""
    app.add_directive("margin", Margin)
    app.add_directive("dropdown", Dropdown, override=True)
    app.connect("doctree-resolved", fold_boxes)
