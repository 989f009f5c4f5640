"""Protects what the pages fold: nothing is lost, and each line and mark says what it opens."""

import re
from copy import deepcopy
from html import unescape
from html.parser import HTMLParser

import nbformat
import pytest
from making import code, equation, notebook, printed, text
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx

from book.folding import LONG_DOCSTRING, folded_docstrings, library_line

SETUP = "import torch\nfrom book.witness import witness\n\nset_seed(0)"
LIBRARY = (
    '# Library version: adds masks and `dtype`.\ndef f(x):\n    """Double."""\n    return 2 * x'
)
LONG = '''\
class Norm:
    """A norm.

    Args:
        x: "quoted" & <marked>.

    """

    def forward(self, x):
        r\'\'\'Give \\hat x.

        Source: nobody.\'\'\'

        y = """a string

        that is no docstring"""
        return y'''
TWO = 'witness("eq-b", 1, 1)\nwitness("eq-c", 2, 2)'


PAGE = notebook(
    text("# Title"),
    code(SETUP, "setup"),
    equation("eq-a"),
    code(
        'witness("eq-a", {"y": y})',
        "witness",
        "hide-input",
        outputs=[printed("eq-a holds: read as printed, 1 relation\n")],
    ),
    equation("eq-b"),
    equation("eq-c"),
    text("Between."),
    code(TWO, "witness", "hide-input", outputs=[printed("eq-b holds: one\neq-c holds: two\n")]),
    text("```{admonition} A box\n$$\nz = 1\n$$ (eq-d)\n```"),
    code('for z in (1, 2):\n    witness("eq-d", z, z)', "witness", "hide-input"),
    equation("eq-e"),
    code(LONG, "export", "hide-input"),
    code(LIBRARY, "export", "library"),
    code(LONG, "exercise"),
    text("## Further\n\nFor the curious.\n\n### Deeper `x`\n\nMore.\n\n### Wider\n\nYet more."),
    text("## The end\n\nOut."),
)


class Tree(HTMLParser):
    """The elements of a page as nested lists: [tag, attributes, children]."""

    def __init__(self, html):
        super().__init__()
        self.open = [["page", {}, []]]
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        node = [tag, dict(attrs), []]
        self.open[-1][2].append(node)
        if tag not in ("link", "meta", "img", "br", "input", "hr"):
            self.open.append(node)

    def handle_endtag(self, tag):
        if tag == self.open[-1][0]:
            self.open.pop()

    def handle_data(self, data):
        self.open[-1][2].append(data)


def nodes(tree, kind):
    """The elements with this class, in order."""
    for child in tree[2]:
        if not isinstance(child, str):
            if kind in child[1].get("class", "").split():
                yield child
            yield from nodes(child, kind)


def words(tree):
    """The text of an element, as `textContent` has it."""
    return "".join(child if isinstance(child, str) else words(child) for child in tree[2])


def tags(tree, name):
    for child in tree[2]:
        if not isinstance(child, str):
            if child[0] == name:
                yield child
            yield from tags(child, name)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    PAGE.metadata["language_info"] = {"name": "python"}
    nbformat.write(PAGE, folder / "index.ipynb")
    config = {
        "extensions": ["myst_nb", "book.folding"],
        "nb_execution_mode": "off",
        "html_theme": "basic",
        "myst_enable_extensions": ["dollarmath"],
    }
    app = Sphinx(folder, None, folder / "out", folder / "trees", "html", config, status=None)
    app.build()
    html = (folder / "out/index.html").read_text(encoding="utf-8")
    # The parser of a browser drops the newline that comes first in a <pre>.
    tree = Tree(re.sub(r"<pre>\n", "<pre>", html)).open[0]
    return next(nodes(tree, "body"))


def test_setup_is_one_line(page):
    (box,) = nodes(page, "tp-setup")
    assert box[0] == "details"
    assert "open" not in box[1]
    assert words(next(tags(box, "summary"))) == "Setup"
    assert words(next(nodes(box, "cell_input"))).strip() == SETUP


def test_a_library_version_says_what_it_adds_and_how_long_it_is(page):
    (box,) = nodes(page, "tp-library")
    line = next(tags(box, "summary"))
    assert words(line) == "Library version, 4 lines: adds masks and dtype."
    assert words(next(tags(line, "code"))) == "dtype"
    assert words(next(nodes(box, "cell_input"))).strip() == LIBRARY
    assert library_line("# Library version: adds x.") == "Library version, 1 line: adds x."


def test_the_code_of_the_page_is_the_code_of_its_cells(page):
    shown = [words(cell).strip() for cell in nodes(page, "cell_input")]
    assert sorted(shown) == sorted(c.source for c in PAGE.cells if c.cell_type == "code")


def test_a_witness_is_a_mark_beside_the_number_that_opens_to_cell_and_output(page):
    first = next(nodes(page, "tp-equation"))
    display, fold = [child for child in first[2] if not isinstance(child, str)]
    assert display[1]["id"] == "equation-eq-a"
    assert "tp-witness" in fold[1]["class"]
    mark = next(tags(fold, "summary"))
    assert words(mark) == "✓"
    assert mark[1]["aria-label"] == "checked: equation 1, read as printed, 1 relation"
    assert 'witness("eq-a"' in words(fold)
    assert "eq-a holds" in words(fold)
    assert len([*tags(fold, "details")]) == 0, "one fold is enough"


def test_the_marks_of_further_equations_lead_to_the_fold_of_the_first(page):
    boxes = [*nodes(page, "tp-equation")]
    assert [len([*nodes(box, "tp-witness")]) for box in boxes] == [1, 1, 0, 1]
    (link,) = nodes(page, "tp-checked")
    assert link in boxes[2][2]
    assert link[1]["aria-label"] == "checked: equation 3, two"
    (target,) = [cell for cell in nodes(page, "cell") if cell[1].get("id") == link[1]["href"][1:]]
    assert target in [*nodes(boxes[1], "cell")]
    assert TWO in words(target)


def test_the_text_runs_on_where_a_witness_stood(page):
    copy = deepcopy(page)
    for box in nodes(copy, "tp-equation"):
        box[2].clear()
    assert "witness(" not in words(copy)
    assert re.search(r"After eq-c\.\s+Between\.", words(copy))


def test_an_equation_without_a_witness_has_no_mark(page):
    boxes = [*nodes(page, "tp-equation")]
    marked = [box[1].get("id") for outer in boxes for box in nodes(outer, "math")]
    assert marked == [f"equation-eq-{letter}" for letter in "abcd"]
    assert "equation-eq-e" in [box[1].get("id") for box in nodes(page, "math")]


def test_of_a_long_docstring_the_first_line_is_shown_and_an_exercise_is_shown_whole(page):
    lines = [words(next(tags(box, "summary"))) for box in nodes(page, "tp-docstring")]
    assert lines == ['    """A norm.\n', "        r'''Give \\hat x.\n"]
    (box,) = nodes(page, "tp-code")
    assert words(box) == LONG + "\n"


def test_the_section_further_folds_as_a_whole_and_names_what_is_in_it(page):
    (section,) = [one for one in tags(page, "section") if one[1].get("id") == "further"]
    heading, box = [child for child in section[2] if not isinstance(child, str)]
    assert heading[0] == "h2"
    assert "tp-further" in box[1]["class"]
    assert words(next(tags(box, "summary"))) == "Deeper x; Wider"
    assert [one[1]["id"] for one in tags(box, "section")] == ["deeper-x", "wider"]
    assert "For the curious." in words(box)
    assert "Out." not in words(box)


def shown(source):
    block = highlight(source, PythonLexer(), HtmlFormatter(wrapcode=False))
    return block, folded_docstrings(block)


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """One line."""\n    return 1',
        'x = """a\nb"""',
        "def f():\n    return 1",
        'def f():\n    """Ends here: \'\'\'."""',
    ],
)
def test_code_without_a_long_docstring_stays_as_it_is(source):
    block, folded = shown(source)
    assert folded == block


@pytest.mark.parametrize("quotes", ['"""', "'''"])
@pytest.mark.parametrize("after", ["", "\n\n    return 1\n", "\n    x = 1\n\n\ndef g():\n    pass"])
def test_nothing_is_lost_between_the_pieces(quotes, after):
    source = f"def f():\n    {quotes}First.\n\n    Rest.\n    {quotes}{after}"
    assert LONG_DOCSTRING.search(source)
    block, folded = shown(source)
    assert folded.count("<details") == 1
    plain = [unescape(re.sub(r"<[^>]+>", "", html)) for html in (block, folded)]
    assert plain[0].split() == plain[1].split()
    # What a browser makes of it, line by line.
    tree = Tree(re.sub(r"<pre>\n", "<pre>", folded)).open[0]
    assert words(next(nodes(tree, "tp-code"))).rstrip("\n") == source.rstrip("\n")
