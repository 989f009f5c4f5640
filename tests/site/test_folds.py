"""Protects what the built pages fold: it opens by keyboard and link, and nothing is lost."""

import pytest
from visiting import CHAPTERS

from book.chapters import ROOT, read

CHAPTER = "notebooks/08_normalization.html"
MARK = ".tp-equation > .tp-witness > summary"


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_code_of_a_page_is_the_code_of_its_cells(opened, name):
    shown = opened(name).evaluate(
        "() => [...document.querySelectorAll('article .cell_input')].map((e) => e.textContent)"
    )
    cells = read(ROOT / name.replace(".html", ".ipynb")).cells
    written = [c.source.strip() for c in cells if c.cell_type == "code" and c.source.strip()]
    assert sorted(code.strip() for code in shown) == sorted(written)


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_formula_with_a_witness_has_its_mark_and_no_witness_stands_in_the_text(opened, name):
    page = opened(name)
    numbers = page.locator("article .math-display .eqno").count()
    assert numbers >= 5
    marks = page.locator(f"article :is({MARK}, .tp-equation > a.tp-checked)")
    assert marks.count() == numbers
    names = marks.evaluate_all("(all) => all.map((e) => e.ariaLabel)")
    assert all(told.startswith("checked: equation ") for told in names)
    assert len({told.split(",")[0] for told in names}) == numbers, "two marks of one name"
    assert page.locator(".tag_witness").count() == page.locator(".tp-witness .tag_witness").count()


def test_a_mark_opens_cell_and_output_by_keyboard(visitor):
    page = visitor.open(CHAPTER)
    mark = page.locator(MARK).first
    fold = mark.locator("xpath=..")
    assert not fold.locator("pre").first.is_visible()
    mark.press("Enter")
    assert fold.locator(".cell_input pre").is_visible()
    assert "holds" in fold.locator(".cell_output pre").inner_text()
    box = mark.bounding_box()
    number = page.locator(".tp-equation .eqno").first.bounding_box()
    middle = number["y"] + number["height"] / 2
    assert abs(box["y"] + box["height"] / 2 - middle) < 4, "the mark has left its number"
    assert min(box["width"], box["height"]) >= 24
    mark.press("Enter")
    assert not fold.locator("pre").first.is_visible()


def test_the_mark_of_a_further_equation_leads_to_the_cell_and_opens_it(visitor):
    page = visitor.open(CHAPTER)
    link = page.locator("a.tp-checked").first
    target = page.locator(link.get_attribute("href"))
    assert not target.is_visible()
    link.press("Enter")
    target.wait_for(state="visible")


@pytest.mark.parametrize("kind", ["tp-setup", "tp-docstring"])
def test_a_line_opens_by_keyboard(visitor, kind):
    page = visitor.open(CHAPTER)
    fold = page.locator(f"article details.{kind}").first
    # A part of the library is folded as a whole, around the docstrings in it.
    fold.evaluate("e => { while ((e = e.parentElement.closest('details'))) e.open = true; }")
    line = fold.locator("> summary")
    line.scroll_into_view_if_needed()
    assert line.bounding_box()["height"] >= 12
    assert not fold.locator("pre").last.is_visible()
    line.press("Enter")
    assert fold.locator("pre").last.is_visible()


def test_what_is_folded_is_found_by_the_search_of_the_book(visitor):
    page = visitor.open("search.html?q=gradcheck64")
    page.wait_for_selector("#search-results li a")
    found = [a.get_attribute("href") for a in page.query_selector_all("#search-results li a")]
    assert any("08_normalization.html" in link for link in found), found
