"""Protects the first screen of a chapter, and what is too wide for a phone."""

import re

import pytest
from looking import UNFOLD
from visiting import CHAPTERS

PHONE = {"width": 390, "height": 844}
# The chapters whose picture stands at the top.
PICTURED = [
    c for c in CHAPTERS if c.split("/")[1][:2] in ("05", "08", "09", "11", "12", "13", "16")
]
# Has a formula that is wider than a small phone.
WIDE = "notebooks/14_mla.html"
FORMULAS = ["notebooks/05_attention.html", "notebooks/08_normalization.html"]


@pytest.mark.parametrize("name", PICTURED)
def test_the_picture_begins_within_the_first_screen_of_a_phone(visitor, name):
    page = visitor.open(name, viewport=PHONE)
    assert page.locator(".tp-explorer").first.bounding_box()["y"] < PHONE["height"]


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_title_and_tools_are_small(visitor, width):
    page = visitor.open(FORMULAS[0], viewport={"width": width, "height": 800})
    assert page.locator("h1").evaluate("(e) => parseFloat(getComputedStyle(e).fontSize)") <= 28
    tools = page.locator(".tp-tools")
    assert tools.bounding_box()["height"] < 40, "more than one line"
    assert re.search(r"\d+ minutes", tools.inner_text())
    assert tools.get_by_role("link", name="Notebook").is_visible()
    note = page.locator(".tp-opening")
    assert note.bounding_box()["height"] < 40, "more than one line"
    note.locator("summary").press("Enter")
    assert note.get_by_text("You will be able to").is_visible()


def test_what_a_chapter_is_about_stands_beside_its_opening_on_a_wide_screen(visitor):
    for width in (1280, 1600):
        page = visitor.open(FORMULAS[0], viewport={"width": width, "height": 900})
        listed = page.locator(".tp-opening li").first.bounding_box()
        picture = page.locator(".tp-explorer").first.bounding_box()
        assert listed["x"] > picture["x"] + picture["width"]
        assert listed["y"] < picture["y"]


def test_a_wide_picture_at_the_top_leaves_the_note_its_place(visitor):
    page = visitor.open("notebooks/08_normalization.html", viewport={"width": 1600, "height": 900})
    assert page.locator(".tag_wide .tp-explorer").count() > 0
    note = page.locator(".tp-opening").bounding_box()
    picture = page.locator(".tp-explorer").first.bounding_box()
    assert picture["x"] + picture["width"] <= note["x"]


def test_tab_goes_on_from_where_the_text_was_clicked(visitor):
    page = visitor.open(FORMULAS[0], viewport={"width": 1280, "height": 900})
    page.locator("article section section p").first.click(position={"x": 2, "y": 2})
    page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('article')")


def test_the_skip_link_leads_into_the_text(visitor):
    page = visitor.open(FORMULAS[0])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    # The browser follows the link after the key was pressed; on a busy machine some frames later.
    page.wait_for_function("location.hash && document.querySelector(':target')")
    page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('article')")


# Numbers and marks of equations that lie on a formula, or outside the screen.
COVERED = """() => {
  const drawn = (math) => {
    const range = document.createRange();
    range.selectNodeContents(math);
    return range.getBoundingClientRect();
  };
  const wrong = [];
  let seen = 0;
  for (const box of document.querySelectorAll("article .math-display")) {
    const math = drawn(box.querySelector("math"));
    const about = box.closest(".tp-equation") || box;
    const signs = about.querySelectorAll(".eqno, .tp-checked, .tp-witness > summary");
    if (!math.width) continue;
    if (math.left < box.getBoundingClientRect().left - 1) wrong.push(`${box.id} begins outside`);
    for (const sign of signs) {
      const r = sign.getBoundingClientRect();
      seen += 1;
      const across = Math.min(r.right, math.right) - Math.max(r.left, math.left);
      const down = Math.min(r.bottom, math.bottom) - Math.max(r.top, math.top);
      if (across > 1 && down > 1) wrong.push(`${sign.textContent} on ${box.id}`);
      if (r.right > innerWidth) wrong.push(`${sign.textContent} of ${box.id} is outside`);
    }
  }
  return [seen, wrong];
}"""


def test_the_mark_of_a_formula_is_touched_on_a_phone(visitor):
    page = visitor.open(FORMULAS[0], viewport=PHONE, has_touch=True)
    fold = page.locator(".tp-witness").first
    mark = fold.locator("summary")
    mark.tap()
    assert fold.evaluate("(e) => e.open")


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_number_of_a_formula_stands_beside_or_below_it(visitor, name, width):
    page = visitor.open(name, viewport={"width": width, "height": 800})
    page.evaluate(UNFOLD)
    seen, wrong = page.evaluate(COVERED)
    assert seen > 15
    assert wrong == []


def test_what_goes_on_sideways_fades_at_that_edge(visitor):
    page = visitor.open(WIDE, viewport={"width": 320, "height": 800})
    page.evaluate(UNFOLD)
    fade = """(e) => {
      const { maskImage, animationName } = getComputedStyle(e);
      const [left, right] = ["left", "right"].map(
        (side) => parseFloat(getComputedStyle(e).getPropertyValue(`--tp-fade-${side}`)));
      return [maskImage.includes("gradient"), left, right];
    }"""
    wide = "(e) => e.checkVisibility() && e.scrollWidth - e.clientWidth"
    boxes = page.locator("article .math-display").all()
    moved = next(e for e in boxes if e.evaluate(wide) > 40)
    moved.scroll_into_view_if_needed()
    moved.evaluate("(e) => e.scrollLeft = 0")
    page.wait_for_timeout(200)
    masked, left, right = moved.evaluate(fade)
    assert masked
    assert (left, right > 16) == (0, True)
    number = moved.locator(".eqno")
    before = number.bounding_box()
    moved.evaluate("(e) => e.scrollLeft = e.scrollWidth")
    page.wait_for_timeout(200)
    assert number.bounding_box() == before, "the number stays at the mark"
    _, left, right = moved.evaluate(fade)
    assert (left > 16, right) == (True, 0)
    still = next(e for e in boxes if e.evaluate(wide) == 0)
    assert still.evaluate(fade) == [False, 0, 0]


def test_a_small_figure_fits_a_phone_and_a_large_one_is_moved(visitor):
    page = visitor.open(FORMULAS[0], viewport=PHONE)
    page.evaluate(UNFOLD)
    small = page.locator("article .cell_output img.tp-fits")
    assert small.count() > 0
    for image in small.all():
        assert int(image.get_attribute("width")) <= 500
        box = image.bounding_box()
        assert box["x"] + box["width"] <= PHONE["width"]
    for image in page.locator("article .cell_output img:not(.tp-fits)").all():
        assert int(image.get_attribute("width")) > 500
