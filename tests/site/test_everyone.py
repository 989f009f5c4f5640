"""Protects the readers who do not see, do not use a mouse, enlarge, print, or want no motion."""

import re

import pytest
from looking import UNFOLD
from visiting import CHAPTERS, Visitor

from book.theme.page import plain

CHAPTER = "notebooks/08_normalization.html"
# Chromium's whole accessibility tree takes seconds: the shortest chapter and the longest.
TOLD = [f"notebooks/{name}.html" for name in ("10_transformer", "15_decoder")]
WIDE = "(e) => e.checkVisibility() && e.scrollWidth > e.clientWidth"


def focused(page):
    return page.evaluate(
        """() => {
          const e = document.activeElement;
          return [e.tagName, e.className, e.textContent.trim()];
        }"""
    )


def test_the_first_key_leads_past_the_navigation(visitor):
    page = visitor.open(CHAPTER)
    page.keyboard.press("Tab")
    assert focused(page)[2] == "Skip to main content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main-content")


def test_the_search_is_reached_and_left_by_keyboard_and_finds(visitor):
    page = visitor.open(CHAPTER)
    field = page.locator(".tp-search input")
    page.locator(".tp-colours").focus()
    page.keyboard.press("Control+k")
    assert field.evaluate("(e) => e === document.activeElement && e.checkVisibility()")
    page.keyboard.press("Escape")
    assert "tp-colours" in focused(page)[1], "Escape leads back"
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"search\.html\?q=softmax"))
    page.wait_for_selector("#search-results li a")


def test_on_a_phone_the_search_is_a_page_of_its_own(visitor):
    page = visitor.open(CHAPTER, viewport={"width": 390, "height": 800})
    page.locator(".tp-to-search").press("Enter")
    page.wait_for_url(re.compile(r"search\.html$"))
    page.wait_for_function("() => document.activeElement.id === 'tp-query'")
    assert page.locator("#tp-query").is_visible()


def test_the_menu_of_downloads_works_by_keyboard(visitor):
    page = visitor.open(CHAPTER)
    button = page.locator(".tp-open-more")
    button.press("ArrowDown")
    assert button.get_attribute("aria-expanded") == "true"
    items = page.locator("#tp-more :is(a, button)")
    here = "(e) => e === document.activeElement && e.checkVisibility()"
    assert items.first.evaluate(here)
    page.keyboard.press("ArrowUp")
    assert items.last.evaluate(here)
    page.keyboard.press("Escape")
    assert button.get_attribute("aria-expanded") == "false"
    assert not items.first.is_visible()
    assert button.evaluate("(e) => e === document.activeElement")


@pytest.mark.parametrize("scripts", [True, False], ids=["with script", "without"])
@pytest.mark.parametrize("name", ["contents", "sections"])
def test_the_chapters_open_and_close_by_keyboard_on_a_phone(visitor, name, scripts):
    size = {"width": 390, "height": 800}
    page = visitor.open(CHAPTER, viewport=size, java_script_enabled=scripts)
    drawer = page.locator("#tp-contents")
    assert not drawer.is_visible()
    page.locator(f".tp-open-{name}").press("Enter")
    drawer.wait_for(state="visible")
    assert drawer.locator("a").count() > 20
    if scripts:
        first = page.locator(".tp-here > a" if name == "contents" else "#tp-sections a").first
        page.wait_for_function("(e) => e === document.activeElement", arg=first.element_handle())
        assert 0 <= first.bounding_box()["y"] < 400, "it opens where the reader is"
    page.keyboard.press("Escape")
    drawer.wait_for(state="hidden")
    if scripts:
        assert f"tp-open-{name}" in focused(page)[1]


def test_a_link_to_a_section_closes_the_drawer_and_arrives(visitor):
    page = visitor.open(CHAPTER, viewport={"width": 390, "height": 800})
    page.locator(".tp-open-sections").press("Enter")
    link = page.locator("#tp-sections a").nth(2)
    link.wait_for(state="visible")
    link.press("Enter")
    page.locator("#tp-contents").wait_for(state="hidden")
    assert page.url.endswith(link.get_attribute("href"))


def test_colours_change_by_keyboard_and_stay(visitor):
    page = visitor.open(CHAPTER, color_scheme="light")
    button = page.locator(".tp-colours")
    themes = []
    for _ in range(3):
        button.press("Enter")
        themes.append(page.evaluate("document.documentElement.dataset.theme"))
    assert set(themes) == {"dark", "light"}
    button.press("Enter")
    kept = page.evaluate("document.documentElement.dataset.theme")
    assert kept == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_solution_opens_by_keyboard_and_a_link_into_it_opens_it(visitor):
    page = visitor.open(CHAPTER)
    solution = page.locator("details.solution").first
    assert not solution.evaluate("(e) => e.open")
    solution.locator("summary").first.press("Enter")
    assert solution.evaluate("(e) => e.open")
    inner = solution.evaluate(
        "(e) => { e.open = false; return (e.querySelector('section').id = 'aim'); }"
    )
    page.evaluate(f"location.hash = '{inner}'")
    page.wait_for_selector("details.solution[open]")


def test_code_is_copied_by_keyboard(visitor):
    page = visitor.open(CHAPTER, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("document.querySelectorAll('article details').forEach(d => { d.open = true; })")
    block = page.locator("article .cell_input div.highlight:has(.tp-code)")
    block = block.filter(has_text="def layer_norm(").first
    block.scroll_into_view_if_needed()
    block.locator("button.copybtn").press("Enter")
    page.wait_for_selector("button[aria-label=Copied]")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[1] == "def layer_norm(", "below the line that says what it adds"
    assert "Returns:" in copied, "what is folded is copied too"
    assert copied == block.locator(".tp-code").text_content().strip("\n")


def test_what_is_wider_than_a_phone_is_reached_by_keyboard(visitor):
    page = visitor.open(CHAPTER, viewport={"width": 320, "height": 800})
    page.evaluate(UNFOLD)
    wide = page.locator("article .math-display, article pre")
    last = next(e for e in wide.all() if e.evaluate(WIDE))
    last.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    assert last.get_attribute("tabindex") == "0"


def test_every_heading_and_formula_is_told_to_a_screen_reader(start, served, built):
    # With a screen reader Chromium tells of everything on a page, also of the sections that it has
    # not laid out yet. No mouse and no key has touched the page here.
    chromium = start("--force-renderer-accessibility")
    visitor = Visitor(chromium, served, built)
    for name in TOLD:
        page = visitor.open(name, viewport={"width": 1280, "height": 900})
        written = page.evaluate(
            """() => {
              const folded = (e) => e.closest("details");
              const count = (what) =>
                [...document.querySelectorAll(`article ${what}`)].filter((e) => !folded(e)).length;
              return [count("math"), count(":is(h1, h2, h3, h4)")];
            }"""
        )
        session = page.context.new_cdp_session(page)
        tree = session.send("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in tree if not node["ignored"] and "role" in node]
        assert min(written) >= 8, (name, written)
        assert sum(role in ("math", "MathMLMath") for role in roles) >= written[0], name
        assert roles.count("heading") >= written[1], name
        page.context.close()
    chromium.close()
    assert visitor.heard() == []


def test_nothing_moves_for_readers_who_asked_for_that(visitor):
    page = visitor.open(CHAPTER, reduced_motion="reduce")
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((e) => {
          const s = getComputedStyle(e);
          return s.scrollBehavior === "smooth" || s.animationName !== "none"
            || s.transitionProperty !== "none" && parseFloat(s.transitionDuration) > 0;
        }).length"""
    )
    assert moving == 0


@pytest.mark.parametrize("wanted", [True, False], ids=["with", "without"])
def test_a_chapter_prints_with_its_solutions_or_without(visitor, wanted):
    page = visitor.open(CHAPTER)
    page.locator("#tp-with-solutions").set_checked(wanted)
    page.reload()
    assert page.locator("#tp-with-solutions").is_checked() == wanted, "the choice was not kept"
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article h1").is_visible()
    solution = page.locator("details.solution")
    assert solution.count() >= 3
    seen = solution.evaluate_all("(all) => all.map((e) => e.checkVisibility())")
    assert set(seen) == {wanted}
    if wanted:
        assert solution.first.locator("pre").first.is_visible()
    brief = page.locator("article details:is(.tp-witness, .tp-docstring, .tp-drawing, .tp-setup)")
    assert not any(brief.evaluate_all("(all) => all.map((e) => e.open)"))
    others = page.locator(
        "article details:not(.solution, .tp-witness, .tp-docstring, .tp-drawing, .tp-setup)"
    )
    for gone in page.locator("article details:is(.tp-drawing, .tp-setup)").all():
        assert not gone.is_visible()
    assert page.locator("svg.tp-drawing").first.is_visible()
    assert others.evaluate_all("(all) => all.every((e) => e.open || e.closest('.solution'))")
    for gone in (".tp-bar", ".tp-contents", ".tp-tools", ".tp-turn", ".tp-footer"):
        assert not page.locator(gone).first.is_visible(), gone
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not solution.first.evaluate("(e) => e.open")


def test_a_chapter_becomes_a_document_of_many_pages(visitor):
    page = visitor.open(CHAPTER)
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) >= 10


def test_progress_is_kept_in_this_browser_and_can_be_forgotten(visitor):
    page = visitor.open("book/pages/index.html")
    line = page.locator(".tp-progress")
    line.filter(has_text="You have read 0 of").wait_for()
    page.goto(visitor.url(CHAPTER))
    page.keyboard.press("End")
    page.wait_for_timeout(300)
    page.keyboard.press("End")
    page.wait_for_function(
        "() => (localStorage.getItem('transformer-parts-read') || '').includes('08_')"
    )
    page.goto(visitor.url("book/pages/index.html"))
    line.filter(has_text="You have read 1 of").wait_for()
    assert page.locator("#tp-contents .tp-sign").count() == 1
    line.locator("button").press("Enter")
    line.filter(has_text="You have read 0 of").wait_for()


def test_a_page_works_where_nothing_may_be_kept(visitor):
    context = visitor.context()
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('forbidden'); } })"
    )
    page = context.new_page()
    page.goto(visitor.url(CHAPTER))
    page.locator(".tp-colours").press("Enter")
    page.locator(
        "article .cell:not(details .cell) > .cell_input"
    ).first.scroll_into_view_if_needed()
    page.locator("button.copybtn").first.wait_for(state="attached")
    assert page.locator("#tp-with-solutions").is_checked()


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_says_how_long_it_takes_and_offers_its_notebook(built, name):
    page = (built / name).read_text(encoding="utf-8")
    [line] = re.findall(r'<p class="tp-tools">(.*?)</p>', page, re.S)
    assert re.search(r"Reading time [1-9]\d* minutes", plain(line))
    [source] = re.findall(r'href="([^"]+)" download', line)
    assert (built / name).parent.joinpath(source).resolve().stat().st_size > 1000
