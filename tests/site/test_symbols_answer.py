"""Protects symbols that answer: by mouse, finger and keyboard, aloud, in all colours and widths."""

import gzip
import json
import re
from collections import Counter
from unicodedata import normalize

import pytest
from axe import complaints
from looking import AT_REST, PASS_BY, UNFOLD
from test_explorers import contrast
from visiting import CHAPTERS

from book.take_away.pages import chosen, collect, entries

CHAPTER = "notebooks/08_normalization.html"
FORWARD = "[id='equation-eq-ln-forward']"  # LayerNorm: ten symbols, some of them twice
ISLAND = re.compile(r'<script type="application/json" class="tp-symbols">(.*?)</script>', re.S)
BUDGET = 25_000

# Where everything in the article stands, and how tall the page is.
PLACES = """() => [document.documentElement.scrollHeight,
  ...[...document.querySelectorAll("article .math-display, article .math-display *, article p")]
    .map((e) => { const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })]"""

CARD = """() => {
  const card = document.querySelector(".tp-card"), room = document.documentElement;
  if (card.hidden) return null;
  const formula = document.querySelector(".tp-this").closest(".math-display");
  const a = card.getBoundingClientRect(), b = formula.getBoundingClientRect();
  return {
    words: card.innerText.replace(/\\s*\\n\\s*/g, "\\n"),
    apart: a.top >= b.bottom || a.bottom <= b.top,
    inside: a.left >= 0 && a.top >= 0 && a.right <= room.clientWidth && a.bottom <= innerHeight,
    pushed: room.scrollWidth > room.clientWidth,
  };
}"""
MARKED = "() => [...document.querySelectorAll('.tp-same')].map((e) => e.dataset.s)"


def formula(page, where=FORWARD):
    """The formula, near the middle of the window and laid out, and all around it at rest."""
    box = page.locator(where)
    box.evaluate("(e) => e.scrollIntoView({ block: 'center', behavior: 'instant' })")
    page.evaluate("document.fonts.ready")
    page.wait_for_selector(f"{where}[role=group]")
    page.evaluate(AT_REST)
    return box


def symbol(box, name):
    """The first element of the formula that stands for the symbol of this name."""
    entries = json.loads(box.page.locator("script.tp-symbols").text_content())
    number = next(i for i, entry in enumerate(entries) if entry[1] == name)
    return box.locator(f"[data-s='{number}']").first


def card(page):
    """What the card says, in one line; where it is; None if there is none."""
    found = page.evaluate(CARD)
    if found:
        found["words"] = " ".join(normalize("NFKC", found["words"]).split())
        found["words"] = re.sub(r"\s*([(),])\s*", r"\1", found["words"])
    return found


def test_pointing_tells_what_a_symbol_is_and_marks_it_everywhere_and_moves_nothing(visitor):
    page = visitor.open(CHAPTER, viewport={"width": 1280, "height": 900})
    box = formula(page)
    gain = symbol(box, "gain")
    before = page.evaluate(PLACES)
    gain.hover()
    seen = card(page)
    assert seen["words"] == "γ gain shape(d),learned"
    assert seen["apart"], "the card hides the formula"
    assert seen["inside"]
    assert page.evaluate(PLACES) == before, "something moved"
    number = gain.get_attribute("data-s")
    marked = page.evaluate(MARKED)
    assert set(marked) == {number}
    assert len(marked) == page.locator(f"[data-s='{number}']").count() > 2
    style = gain.evaluate("(e) => [getComputedStyle(e).color, getComputedStyle(e).boxShadow]")
    plain = box.evaluate("(e) => getComputedStyle(e).color")
    assert style[0] != plain
    assert style[1] != "none", "a colour alone is no mark"
    # The card can be pointed at; away from both, it goes.
    page.locator(".tp-card").hover()
    page.wait_for_timeout(500)
    assert card(page)
    page.mouse.move(2, 450)
    page.locator(".tp-card").wait_for(state="hidden")
    assert page.evaluate(MARKED) == []


def test_a_symbol_within_a_symbol_answers_for_itself(visitor):
    page = visitor.open("notebooks/14_mla.html")
    inner = page.locator("[data-s] [data-s]").first
    outer = inner.evaluate("(e) => e.parentElement.closest('[data-s]').dataset.s")
    where = inner.evaluate("(e) => e.closest('.math-display').id")
    formula(page, f"[id='{where}']")
    inner.hover()
    assert page.locator(".tp-this").get_attribute("data-s") == inner.get_attribute("data-s")
    assert inner.get_attribute("data-s") != outer


def test_a_formula_is_one_stop_and_the_arrows_lead_through_its_symbols(visitor):
    page = visitor.open(CHAPTER)
    box = formula(page)
    numbers = box.locator("[data-s]").evaluate_all("(all) => all.map((e) => e.dataset.s)")
    distinct = list(dict.fromkeys(numbers))
    assert len(distinct) < len(numbers)
    box.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    active = "document.activeElement.id"
    assert page.evaluate(active) == box.get_attribute("id")
    outline = box.evaluate("(e) => getComputedStyle(e).outlineStyle")
    assert outline != "none", "the focus cannot be seen"
    now = page.locator(".tp-this").first
    seen, said = [now.get_attribute("data-s")], []
    for _ in distinct:
        page.keyboard.press("ArrowRight")
        seen.append(now.get_attribute("data-s"))
        said.append(page.locator(".tp-said").text_content())
        assert card(page)["apart"]
    assert seen == [*distinct, distinct[0]]
    assert len(set(said)) == len(distinct)
    assert "gamma: gain, shape d, learned" in said
    page.keyboard.press("ArrowLeft")
    assert now.get_attribute("data-s") == distinct[-1]
    top = page.evaluate("scrollY")
    page.keyboard.press("Escape")
    assert card(page) is None
    assert page.evaluate(MARKED) == []
    assert page.evaluate("scrollY") == top
    page.keyboard.press("ArrowRight")
    assert card(page)
    page.keyboard.press("Tab")
    assert card(page) is None
    assert not page.evaluate("document.activeElement.closest('math')")
    assert page.evaluate(active) != box.get_attribute("id")


def test_a_formula_and_its_symbols_are_told_to_a_screen_reader(visitor):
    page = visitor.open(CHAPTER)
    box = formula(page)
    assert page.get_by_role("group", name="Formula (2)", exact=True).count() == 1
    told = page.locator(f"#{box.get_attribute('aria-describedby')}")
    assert not told.is_visible()
    words = told.text_content().removesuffix(".").split("; ")
    entries = json.loads(page.locator("script.tp-symbols").text_content())
    numbers = box.locator("[data-s]").evaluate_all("(all) => all.map((e) => +e.dataset.s)")
    assert words == [entries[n][4] for n in dict.fromkeys(numbers)]
    assert "gamma: gain, shape d, learned" in words
    said = page.locator(".tp-said")
    assert said.get_attribute("role") == "status"
    assert said.evaluate("(e) => getComputedStyle(e).display !== 'none'")
    formulas = page.locator("article .math-display:has([data-s])")
    assert formulas.evaluate_all("(all) => all.every((e) => e.tabIndex === 0 && e.ariaLabel)")
    assert page.locator("math[tabindex], math [tabindex]").count() == 0


def test_a_finger_need_not_hit_a_small_symbol_and_a_tap_elsewhere_closes_the_card(visitor):
    page = visitor.open(
        CHAPTER, viewport={"width": 320, "height": 700}, has_touch=True, is_mobile=True
    )
    box = formula(page)
    gain = symbol(box, "gain")
    gain.evaluate("(e) => e.scrollIntoView({ block: 'nearest', inline: 'center' })")
    place = gain.bounding_box()
    page.touchscreen.tap(place["x"] + 2, place["y"] + place["height"] + 8)
    seen = card(page)
    assert seen, "a tap beside the symbol is lost"
    entries = json.loads(page.locator("script.tp-symbols").text_content())
    near = page.locator(".tp-this").get_attribute("data-s")
    assert seen["words"].split(" ", 1)[1].startswith(entries[int(near)][1].split()[0])
    gain.tap()
    seen = card(page)
    assert seen["words"] == "γ gain shape(d),learned"
    assert seen["apart"]
    assert seen["inside"]
    assert not seen["pushed"]
    page.locator("article p:visible").last.evaluate("(e) => e.click()")
    assert card(page) is None


def test_on_the_smallest_phone_every_card_is_in_the_window_and_beside_its_formula(visitor):
    page = visitor.open(CHAPTER, viewport={"width": 320, "height": 700})
    boxes = page.locator("article .math-display[role=group]")
    page.wait_for_selector(".math-display[role=group]", state="attached")
    for number in range(boxes.count()):
        where = boxes.nth(number).get_attribute("id")
        box = formula(page, f"[id='{where}']")
        box.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
            seen = card(page)
            assert seen["inside"], where
            assert seen["apart"], where
            assert not seen["pushed"], where


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_and_card_stand_out_and_axe_finds_nothing_in_them(visitor, scheme):
    page = visitor.open(CHAPTER, color_scheme=scheme)
    page.wait_for_selector(f"html[data-theme={scheme}]", state="attached")
    page.evaluate(UNFOLD)
    page.evaluate(PASS_BY)
    box = formula(page)
    symbol(box, "gain").click()
    looks = page.evaluate(
        """() => {
          const seen = getComputedStyle;
          const of = (e, ground) => [seen(e).color, seen(ground).backgroundColor];
          const card = document.querySelector(".tp-card");
          return [...document.querySelectorAll(".tp-same")].map((e) => of(e, e))
            .concat([...card.children].map((e) => of(e, card)));
        }"""
    )
    assert len(looks) >= 5
    assert all(contrast(*pair) >= 4.5 for pair in looks), looks
    assert complaints(page, Counter()) == []


def test_where_the_reader_chose_the_colours_a_mark_can_be_seen(visitor):
    page = visitor.open(CHAPTER, forced_colors="active")
    box = formula(page)
    symbol(box, "gain").hover()
    ground = "(e) => getComputedStyle(e).backgroundColor"
    mark = page.locator(".tp-this").first.evaluate(ground)
    assert mark not in (page.locator("body").evaluate(ground), "rgba(0, 0, 0, 0)")


def test_without_scripts_and_on_paper_there_are_formulas_and_nothing_else(visitor, browser, built):
    bare = visitor.open(CHAPTER, java_script_enabled=False)
    assert bare.locator(f"{FORWARD} math").is_visible()
    assert bare.locator(".tp-card, .math-display[role]").count() == 0
    page = visitor.open(CHAPTER)
    symbol(formula(page), "gain").click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert card(page) is None
    assert page.evaluate(MARKED) == []
    (taken,) = collect(browser, built, chosen(entries(), ["normalization"]))
    assert taken.xhtml.count("<math") > 50
    for clutter in ("data-s", "tp-symbols", "tp-same", "tp-said", "aria-describedby", "Formula ("):
        assert clutter not in taken.xhtml


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_chapter_answers_and_pays_little_for_it(built, name, record_property):
    page = (built / name).read_text(encoding="utf-8")
    (island,) = ISLAND.findall(page)
    numbers = {int(n) for n in re.findall(r'data-s="(\d+)"', page)}
    assert numbers == set(range(len(json.loads(island))))
    formulas = re.findall(r'<div class="math-display"[^>]*>(<math.*?</math>)', page, re.S)
    silent = [one for one in formulas if "data-s" not in one]
    # 3 = 3 has no symbols, and a formula that cannot be read has none that are known.
    assert len(silent) <= max(1, len(formulas) // 10)
    without = re.sub(r' data-s="\d+"', "", ISLAND.sub("", page))
    cost = len(gzip.compress(page.encode(), 6)) - len(gzip.compress(without.encode(), 6))
    record_property("bytes on the wire for symbols that answer", cost)
    assert 0 < cost < BUDGET
