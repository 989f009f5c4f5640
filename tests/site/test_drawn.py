"""Protects the eyes: what is drawn badly on a page is found (drawing.py), one fault of each kind.

That the pages of the book have none of these is asked where they are opened anyway, in
test_pages.py.
"""

import pytest
from drawing import DRAWN
from looking import UNFOLD

from book.mathml import well_drawn

CHAPTER = "notebooks/11_rope.html"

# What is put at the start of the article, and what is said about it.
PLANTED = {
    "a line that its box cuts off": (
        "<p class='box'>These words do not fit into their box</p>",
        ".box { width: 6em; white-space: nowrap; overflow: hidden }",
        "cut off: These words",
    ),
    "a second line below the edge": (
        "<p class='box'>First a line<br>and a second one</p>",
        ".box { height: 1.2em; line-height: 1.2; overflow-y: clip }",
        "cut off: and a second one",
    ),
    "a word that no box of a pseudo element holds": (
        "<p class='box'>Solution</p>",
        ".box::after { content: 'Show more'; position: absolute; width: 1em; overflow: hidden }",
        "cut off: Show more",
    ),
    "a text that runs out of the box it stands in": (
        "<div class='admonition box'><p>An exercise</p></div>",
        ".box { width: 20em; background: silver } .box p { margin-right: -10em }",
        "runs out of its box: An exercise",
    ),
    "two labels of a picture on one another": (
        "<div class='tp-explorer'><svg viewBox='0 0 100 50' width='100' height='50'>"
        "<text x='10' y='20'>query</text><text x='14' y='22'>key</text></svg></div>",
        "",
        "overlap: query | key",
    ),
    "a label that leaves its picture": (
        "<div class='tp-explorer'><svg viewBox='0 0 100 50' width='100' height='50'>"
        "<text x='80' y='20'>position</text></svg></div>",
        "",
        "sticks out of the picture: position",
    ),
    "a formula that is not seen whole": (
        "<div class='math-display box'><math display='block'><mtext>"
        + "a + b + " * 40
        + "c</mtext></math></div>",
        ".box { overflow-x: auto; white-space: nowrap }",
        "a formula wider than its column: a + b",
    ),
    "a bracket that shrinks under its exponent": (
        "<math><mo minsize='1.6em' maxsize='1.6em'>(</mo><mi>a</mi>"
        "<msup><mo minsize='1.6em' maxsize='1.6em'>)</mo><mn>2</mn></msup></math>",
        "",
        "a bracket unlike its partner: (a)2",
    ),
    "a bar that touches its letter": (
        "<math><mover accent='true'><mi>k</mi><mo stretchy='false'>¯</mo></mover></math>",
        "",
        "a bar touches its letter: k¯",
    ),
    "a bar that runs under the next letter": (
        "<math><munder accentunder='true'><mi>q</mi><mo stretchy='true'>\u0332</mo></munder>"
        "<mi>k</mi></math>",
        "",
        "a bar runs to its neighbours: q\u0332",
    ),
}
PLANT = """([markup, style]) => {
  document.querySelector(".planted")?.remove();
  const place = document.createElement("div");
  place.className = "planted";
  place.innerHTML = markup;
  document.querySelector("article").prepend(place);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets.slice(0, 1), sheet];
}"""


@pytest.fixture(scope="module")
def page(_librarian):
    """A page with nothing wrong, on which faults are planted one after the other."""
    one, _ = _librarian
    opened = one.open(CHAPTER)
    opened.evaluate(UNFOLD)
    return opened


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(page, kind):
    markup, style, said = PLANTED[kind]
    page.evaluate(PLANT, ["", ""])
    before = page.evaluate(DRAWN)
    page.evaluate(PLANT, [markup, style])
    found = [one for one in page.evaluate(DRAWN) if one not in before]
    assert any(one.startswith(said) for one in found), found
    assert {one.partition(":")[0] for one in found} <= {
        said.partition(":")[0],
        # A long bar also lies close under its letter.
        *(["a bar touches its letter"] if "bar runs" in said else []),
    }


@pytest.mark.parametrize("kind", [kind for kind in PLANTED if "<math>" in PLANTED[kind][0]])
def test_the_formulas_of_the_book_are_set_without_these_faults(page, kind):
    markup, style, _ = PLANTED[kind]
    page.evaluate(PLANT, ["", ""])
    before = page.evaluate(DRAWN)
    mended = well_drawn(markup.replace("'", '"'))
    assert mended != markup.replace("'", '"')
    page.evaluate(PLANT, [mended, style])
    assert page.evaluate(DRAWN) == before


def test_what_may_be_scrolled_or_is_for_screen_readers_only_is_not_cut_off(page):
    page.evaluate(PLANT, ["", ""])
    before = page.evaluate(DRAWN)
    page.evaluate(
        PLANT,
        [
            "<p class='wide'>Code that may be moved sideways</p><p class='ear'>told only</p>"
            "<p class='fits'>fits</p>",
            ".wide { width: 6em; white-space: nowrap; overflow-x: auto }"
            ".ear { position: absolute; width: 1px; height: 1px; overflow: hidden }"
            ".fits { overflow: hidden }",
        ],
    )
    assert page.evaluate(DRAWN) == before
