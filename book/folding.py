"""What the pages fold away: imports, library versions, long docstrings, and the witnesses.

In JupyterLab all of these are cells like any other. On the page

- a cell tagged `setup` is one line, *Setup*;
- a cell tagged `library` is one line that says what it adds and how long it is;
- of a docstring the first line is shown, and the rest opens below it;
- a witness is a mark beside the number of its equation, which opens to the cell and its output;
- a section *Further* is its heading and one line that names its parts.

Each is a `<details>`, so keyboard, search in the page and paper work without a script, and nothing
is taken away: the code of a page is the code of its cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from book.chapters import calls_of_witness, library_adds

# The heading of a section that only some readers want.
FURTHER = "Further"


class Fold(nodes.General, nodes.Element):  # type: ignore[misc]
    """A box that is closed at first. Its first child is the line that opens it."""


class FoldLine(nodes.Part, nodes.TextElement):  # type: ignore[misc]
    """The line that stays when a box is closed."""


class Equation(nodes.General, nodes.Element):  # type: ignore[misc]
    """A displayed equation, and behind a mark beside its number what checks it."""


class CheckMark(nodes.Part, nodes.Element):  # type: ignore[misc]
    """The mark: it opens the fold that it stands in, or leads to the one in `refid`."""


class DocumentedCode(nodes.literal_block):  # type: ignore[misc]
    """Code with a docstring of several lines."""


# ---------------------------------------------------------------- in the tree of a page


def fold_page(app: Sphinx, doctree: nodes.document) -> None:
    """Fold everything that a page folds."""
    cells = [c for c in doctree.findall(nodes.container) if c.get("nb_element") == "cell_code"]
    for cell in cells:
        _fold_docstrings(cell)
        if "tag_setup" in cell["classes"]:
            _behind_a_line(cell, "tp-setup", "Setup")
        elif "tag_library" in cell["classes"]:
            _behind_a_line(cell, "tp-library", library_line(source_of(cell)))
    _fold_witnesses(doctree, [c for c in cells if "tag_witness" in c["classes"]])
    for section in list(doctree.findall(nodes.section)):
        if section[0].astext() == FURTHER:
            _fold_section(section)


def source_of(cell: nodes.Element) -> str:
    """The code of a cell; empty if the page does not hold it."""
    inputs = (c for c in cell.children if _is(c, "cell_code_source"))
    return "\n".join(block.astext() for c in inputs for block in c.findall(nodes.literal_block))


def library_line(source: str) -> str:
    """`Library version, 84 lines: adds ...`, from the first comment of the cell."""
    count = len(source.strip().splitlines())
    lines = "1 line" if count == 1 else f"{count} lines"
    return f"Library version, {lines}: {library_adds(source) or ''}".removesuffix(": ")


def _is(node: nodes.Node, element: str) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == element


def _behind_a_line(cell: nodes.Element, kind: str, line: str) -> None:
    """Put a whole cell into a fold. Between backticks the line is code."""
    cell.attributes.pop("hide_mode", None)  # one fold is enough
    box = Fold("", FoldLine("", "", *_inline(line)), classes=["tp-fold", kind])
    cell.parent.replace(cell, box)
    box += cell


def _inline(line: str) -> Iterator[nodes.Node]:
    for i, piece in enumerate(line.split("`")):
        if piece:
            yield nodes.literal(piece, piece) if i % 2 else nodes.Text(piece)


def _fold_docstrings(cell: nodes.Element) -> None:
    """Mark code whose docstrings fold. That of an exercise is what the reader is asked to do."""
    if "tag_exercise" in cell["classes"]:
        return
    for part in cell.children:
        if _is(part, "cell_code_source"):
            for block in list(part.findall(nodes.literal_block)):
                if LONG_DOCSTRING.search(block.astext()):
                    text = block.astext()
                    block.parent.replace(block, DocumentedCode(text, text, **block.attributes))


def _fold_section(section: nodes.section) -> None:
    """Below its heading a section is one line, which names the sections in it."""
    title, *rest = section.children
    parts = [part[0].astext() for part in rest if isinstance(part, nodes.section)]
    line = FoldLine("", "; ".join(parts) or "Read on")
    section.children = [title]
    section += Fold("", line, *rest, classes=["tp-fold", "tp-further"])


# A line that opens a docstring and does not end it.
LONG_DOCSTRING = re.compile(r'^\s*[rR]?("""|\'\'\')(?!.*\1).*$', re.M)


def _fold_witnesses(doctree: nodes.document, cells: list[nodes.container]) -> None:
    """Move each witness to the first of its equations; the marks of its others lead there."""
    shown = {m["label"]: m for m in doctree.findall(nodes.math_block) if m.get("label")}
    order = list(shown)
    home: dict[str, str] = {}  # of each checked equation: the one at which its cell folds
    moved: dict[str, list[nodes.container]] = {}
    said: dict[str, str] = {}
    for cell in cells:
        labels = [label for label, _ in calls_of_witness(source_of(cell)) if label in shown]
        if not labels:  # lint names a witness without an equation; the page shows the cell
            continue
        first = min(labels, key=order.index)
        home |= {label: home.get(label, first) for label in labels}
        moved.setdefault(first, []).append(cell)
        said |= dict(HOLDS.findall(cell.astext()))
    for label, place in home.items():
        math = shown[label]
        box = Equation()
        math.parent.replace(math, box)
        mark = CheckMark(said=said.get(label, ""))
        if label in moved:
            inside = Fold("", mark, classes=["tp-fold", "tp-witness"])
            for number, cell in enumerate(moved[label]):
                cell.attributes.pop("hide_mode", None)
                cell.parent.remove(cell)
                cell["ids"] = [*cell["ids"], *([] if number else [_anchor(label)])]
                inside += cell
            box += [math, inside]
        else:
            mark["refid"] = _anchor(place)
            box += [math, mark]


# What a witness prints of an equation that holds.
HOLDS = re.compile(r"^(eq-\S+) holds: (.+)$", re.M)


def _anchor(label: str) -> str:
    return f"checked-{label}"


# ---------------------------------------------------------------- as HTML


def _open_fold(self: HTML5Translator, node: Fold) -> None:
    opened = {"open": "open"} if node.get("opened") else {}
    self.body.append(self.starttag(node, "details", **opened))


def _close_fold(self: HTML5Translator, node: Fold) -> None:
    self.body.append("</details>\n")


def _open_line(self: HTML5Translator, node: FoldLine) -> None:
    self.body.append("<summary>")


def _close_line(self: HTML5Translator, node: FoldLine) -> None:
    self.body.append("</summary>\n")


def _open_equation(self: HTML5Translator, node: Equation) -> None:
    self.body.append('<div class="tp-equation">\n')


def _close_equation(self: HTML5Translator, node: Equation) -> None:
    self.body.append("</div>\n")


def _mark(self: HTML5Translator, node: CheckMark) -> None:
    box = next(p for p in _parents(node) if isinstance(p, Equation))
    (math,) = box.findall(nodes.math_block)
    number = get_node_equation_number(self, math) if math.get("number") else ""
    which = f"equation {number}" if number else "this equation"
    name = self.attval(f"checked: {which}" + (f", {node['said']}" if node["said"] else ""))
    if "refid" in node:
        link = f'class="tp-checked" href="#{node["refid"]}"'
        self.body.append(f'<a {link} aria-label="{name}" title="{name}">✓</a>\n')
    else:
        self.body.append(f'<summary aria-label="{name}" title="{name}">✓</summary>\n')
    raise nodes.SkipNode


def _parents(node: nodes.Element) -> Iterator[nodes.Element]:
    while node.parent is not None:
        node = node.parent
        yield node


def _code(self: HTML5Translator, node: DocumentedCode) -> None:
    try:
        self.visit_literal_block(node)
    except nodes.SkipNode:
        self.body[-1] = folded_docstrings(self.body[-1])
        raise


# A line of highlighted code that begins with a docstring.
_OPENING = re.compile(
    r'(?:<span></span>)?(?:<span class="w">\s*</span>|\s*)(?:<span class="sa">\w+</span>)?'
    r'<span class="sd">(?P<quotes>(?:&quot;){3}|(?:&#39;){3}|"{3}|\'{3})(?P<rest>.*)</span>'
)


def folded_docstrings(block: str) -> str:
    """Highlighted code in pieces: below the first line of a long docstring the rest is folded.

    Together the pieces hold the text of the block as it was.
    """
    before, inner, after = re.split(r"<pre>|</pre>", block)
    lines = inner.splitlines(keepends=True)
    pieces: list[str] = []
    start = at = 0
    while at < len(lines):
        if last := _end(lines, at):
            code = "".join(lines[start:at])
            rest = "".join(lines[at + 1 : last + 1])
            line = f"<summary><code>{lines[at]}</code></summary>"
            pieces.append(_piece(code))
            pieces.append(f'<details class="tp-docstring">{line}{_piece(rest)}</details>')
            start = last + 1
        at = max(at, start - 1) + 1
    if not pieces:
        return block
    pieces.append(_piece("".join(lines[start:])))
    return f'{before}<div class="tp-code">{"".join(pieces)}</div>{after}'


def _piece(code: str) -> str:
    # A parser drops a newline that comes first, so one that counts gets another before it.
    newline = "\n" if code.startswith("\n") else ""
    return f"<pre>{newline}{code}</pre>" if code else ""


def _end(lines: list[str], at: int) -> int:
    """The last line of a docstring that begins in line `at` and is longer; 0 if there is none."""
    opening = _OPENING.match(lines[at])
    if opening is None or opening["rest"].endswith(opening["quotes"]):
        return 0
    closing = opening["quotes"] + "</span>"
    following = range(at + 1, len(lines))
    return next((i for i in following if lines[i].rstrip("\n").endswith(closing)), 0)


def setup(app: Sphinx) -> None:
    """Connect the folds to Sphinx; `book.sphinx_ext` calls this."""
    app.add_node(Fold, html=(_open_fold, _close_fold))
    app.add_node(FoldLine, html=(_open_line, _close_line))
    app.add_node(Equation, html=(_open_equation, _close_equation))
    app.add_node(CheckMark, html=(_mark, None))
    app.add_node(DocumentedCode, html=(_code, None))
    app.connect("doctree-read", fold_page)
