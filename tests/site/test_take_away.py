"""Protects the PDF and the EPUB: they are made from two pages of the built site, and opened.

The whole book is checked by `make pdf` and `make epub`, which take minutes.
"""

import re
import zipfile
from dataclasses import replace

import pytest

from book.take_away import epub, pdf
from book.take_away.pages import about, chosen, collect, dead_links, document, entries

NAMES = ["transformer", "quiz"]


@pytest.fixture(scope="module")
def pages(browser, built):
    return collect(browser, built, chosen(entries(), NAMES))


@pytest.fixture(scope="module")
def paper(browser, built, pages, tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "book.pdf"
    return out, pdf.write(browser, built, pages, about(), out)


@pytest.fixture(scope="module")
def box(browser, built, pages, tmp_path_factory):
    out = tmp_path_factory.mktemp("box") / "book.epub"
    assert epub.write(browser, built, pages, about(), out) == []
    return out


# ---------------------------------------------------------------- what is taken from a page


def test_the_pages_hold_what_the_site_shows(pages, opened):
    for page in pages:
        tab = opened(f"{page.entry.document}.html")
        article = tab.locator("article.bd-article")
        # Those in the marks of links and folds are of the screen; one swatch per key stays.
        assert page.xhtml.count("<math") == article.locator("math").count() > 0
        assert page.xhtml.count("<pre") == article.locator("pre").count()
        assert (
            page.xhtml.count('class="tp-unfolded"')
            == article.locator("details.sd-dropdown").count()
        )
        assert len(page.images) == article.locator("img").count()
        assert len(page.solutions) == article.locator(".solution").count()


def test_nothing_is_left_that_needs_a_script_or_another_page(pages):
    files = {f"{p.name}.xhtml": document(p.title, "", p.xhtml) for p in pages}
    assert dead_links(files) == []
    for text in files.values():
        assert not re.search(r"<(script|details|summary|button|input|select|iframe)", text)
        assert not re.search(r'href="(file:|\.\.|/)', text)
        assert "Run the cell above" not in text


def test_explorers_are_pictures_in_plain_colours_with_their_state_and_sentence(pages):
    chapter = pages[0]
    boxes = re.findall(r'<div class="tp-explorer".*?</svg>', chapter.xhtml, re.S)
    assert boxes
    for box in boxes:
        assert re.search(r'class="tp-state">Drawn at: \S', box)
        assert re.search(r'class="tp-sentence">\w', box)
        assert re.search(r'role="img"[^>]*aria-label="\w', box)
    drawn = "".join(re.findall(r'<div class="tp-panel".*?</svg>', chapter.xhtml, re.S))
    assert re.search(r'fill="#[0-9a-f]{6}"', drawn)
    assert not re.search(r"var\(|color-mix|oklab", drawn)


# ---------------------------------------------------------------- the PDF


@pytest.fixture(scope="module")
def read(paper):
    """The open PDF, and the text of its pages."""
    return pdf.read(paper[0])


def test_the_pdf_is_as_it_should_be(paper, read, pages):
    assert paper[1] == []
    # Whether this machine has Chinese characters is no fault of the book.
    found = pdf.compared(*read, pages, about())
    assert [p for p in found if "no font on this machine" not in p] == []
    assert len(read[1]) > 10


def test_what_the_pdf_does_not_hold_is_reported(read, pages):
    other = replace(pages[0], title="Another chapter", solutions=["def nowhere(): pass"])
    found = pdf.compared(*read, [other, pages[1]], replace(about(), title="Another book"))
    for problem in (
        "it does not say that its title is 'Another book'",
        "transformer: not in the outline",
        "transformer: the table of contents does not show its page",
        "transformer: the solution 'defnowhere():pass' is not there",
    ):
        assert problem in found
    swapped = pdf.compared(*read, pages[::-1], about())
    assert any("where it does not begin" in problem for problem in swapped)


def test_characters_and_pages_that_are_missing_are_reported(read, pages):
    book, texts = read
    page = replace(pages[0], chinese="\u9f8d")
    found = pdf.compared(book, [*texts[:4], "5", *texts[5:]], [page, pages[1]], about())
    assert "page 5 is empty" in found
    assert any("no font on this machine holds \u9f8d" in problem for problem in found)


def test_what_sticks_out_of_the_paper_is_reported(browser, built, pages, tmp_path):
    wide = '<p style="width: 900px">a line</p></section>'
    page = replace(pages[1], xhtml=pages[1].xhtml[: -len("</section>")] + wide)
    found = pdf.write(browser, built, [page], about(), tmp_path / "wide.pdf")
    assert any("wider than the page: quiz: <p> a line" in problem for problem in found)


# ---------------------------------------------------------------- the EPUB


def test_the_epub_is_as_it_should_be(box, pages):
    assert epub.problems(box, pages, about()) == []


def test_its_pages_open_as_xhtml(box, browser, tmp_path):
    with zipfile.ZipFile(box) as inside:
        inside.extractall(tmp_path)
    complaints = []
    tab = browser.new_page(viewport={"width": 600, "height": 900}, java_script_enabled=True)
    tab.on("console", lambda m: complaints.append(m.text))
    tab.on("requestfailed", lambda r: complaints.append(r.url))
    files = sorted((tmp_path / "book").glob("*.xhtml"))
    assert len(files) == 4
    for file in files:
        tab.goto(file.as_uri())
        assert tab.evaluate("document.contentType") == "application/xhtml+xml"
        assert tab.locator("parsererror").count() == 0
        assert tab.evaluate("[...document.images].every((i) => i.naturalWidth > 0)")
        assert tab.evaluate(
            "[...document.querySelectorAll('math, .tp-panel > svg')]"
            ".every((e) => e.getBoundingClientRect().width > 0)"
        )
        room = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert room[0] <= room[1], file.name
    tab.close()
    assert complaints == []
