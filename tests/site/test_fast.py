"""Protects the speed of every page: what is loaded, what is laid out, and that nothing jumps.

Lighthouse is no part of the tests; these are the things that make its score. Times depend on the
machine, so they have generous bounds; bytes, requests and elements do not.
"""

import gzip
import re
from urllib.parse import unquote, urlsplit

import pytest
from visiting import CHAPTERS, Visitor, pages_of

from book.theme.assets import SCRIPTS

PACKED = (".html", ".css", ".js", ".svg")

# What the browser says about a page from its start until now.
MEASURES = """() => new Promise((done) => {
  const sum = { shift: 0, blocked: 0 };
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) if (!e.hadRecentInput) sum.shift += e.value;
  }).observe({ type: "layout-shift", buffered: true });
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) sum.blocked += Math.max(0, e.duration - 50);
  }).observe({ type: "longtask", buffered: true });
  const shown = (e) => e.checkVisibility({ contentVisibilityAuto: true });
  setTimeout(() => done({
    ...sum,
    elements: document.querySelectorAll("*").length,
    laidOut: [...document.querySelectorAll("article *")].filter(shown).length,
    sections: document.querySelectorAll("article [data-tall]").length,
  }), 300);
})"""

# Which explorers are drawn, and which are so far below that they need not be.
EXPLORERS = """() => {
  const all = [...document.querySelectorAll(".tp-explorer")];
  const numbers = (chosen) => all.flatMap((e, number) => (chosen(e) ? [number] : []));
  return {
    explorers: numbers(() => true),
    drawn: numbers((e) => e.matches(".tp-live")),
    far: numbers((e) => e.getBoundingClientRect().top > innerHeight + 400),
    near: numbers((e) => e.getBoundingClientRect().top < innerHeight + 200),
  };
}"""


@pytest.fixture(scope="module")
def first_views(browser, served, built):
    """What the first view of each chapter on a phone asks for and measures."""
    visitor = Visitor(browser, served, built)
    seen = {}
    for name in CHAPTERS:
        # A context of its own has nothing in its cache.
        context = visitor.context(viewport={"width": 412, "height": 823}, is_mobile=True)
        page = context.new_page()
        asked = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(visitor.url(name))
        page.wait_for_load_state("networkidle")
        measures = page.evaluate(MEASURES) | page.evaluate(EXPLORERS)
        seen[name] = ([u for u in asked if not u.startswith("data:")], measures)
        context.close()
    assert visitor.heard() == []
    return seen


def weight(built, served, url):
    """The bytes of a file on the wire, from a server that packs text as every host does."""
    data = (built / unquote(urlsplit(url.removeprefix(served)).path)).read_bytes()
    return len(gzip.compress(data, 6)) if url.split("?")[0].endswith(PACKED) else len(data)


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_first_view_asks_for_little(first_views, built, served, name, record_property):
    asked, _ = first_views[name]
    assert any(url.endswith(name) for url in asked), "the page itself was not seen: a hole"
    assert len(asked) <= 15, asked
    sizes = {url.rsplit("/", 1)[-1]: weight(built, served, url) for url in asked}
    record_property("bytes on the wire", sizes)
    assert sum(sizes.values()) <= 200_000, sizes


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_first_view_lays_out_what_is_seen_and_nothing_jumps(first_views, name):
    _, measures = first_views[name]
    assert measures["shift"] < 0.02, measures
    assert measures["blocked"] < 1500, measures
    assert measures["elements"] < 12_000, measures
    assert measures["sections"] >= 10, measures
    assert measures["laidOut"] < measures["elements"] / 3, measures


@pytest.mark.parametrize("name", CHAPTERS)
def test_no_explorer_is_drawn_before_it_is_about_to_be_seen(first_views, name):
    _, measures = first_views[name]
    assert measures["far"], "no explorer is below the fold: the test is empty"
    assert not set(measures["drawn"]) & set(measures["far"])
    assert set(measures["near"]) <= set(measures["drawn"]) <= set(measures["explorers"])


@pytest.mark.parametrize("name", CHAPTERS[:2])
def test_nothing_jumps_while_a_page_is_read(visitor, name):
    page = visitor.open(name, viewport={"width": 1280, "height": 900})
    page.mouse.move(700, 500)
    for _ in range(25):
        page.mouse.wheel(0, 700)
        page.wait_for_timeout(40)
    assert page.evaluate("scrollY") > 8000, "the page was not moved: the test is empty"
    assert page.evaluate(MEASURES)["shift"] < 0.05


@pytest.mark.parametrize("width", [390, 1024, 1250, 1920])
def test_the_text_does_not_move_when_what_stands_around_it_comes(visitor, width):
    # On a slow line a reader sees the text before the script, which opens the notes beside it, and
    # before the end of the page.
    where = """() => {
      const first = [...document.querySelectorAll("article :is(h1, h2, p)")].slice(0, 12);
      return first.map((e) => {
        const { x, y, width } = e.getBoundingClientRect();
        return [x, y, width];
      });
    }"""
    size = {"width": width, "height": 900}
    page = visitor.open(CHAPTERS[0], viewport=size)
    ready = ".tp-colours[aria-label^='Colors:']"
    page.wait_for_selector(ready, state="attached")
    page.wait_for_timeout(300)
    there = page.evaluate(where)
    assert len(there) == 12
    page.evaluate("document.querySelectorAll('.tp-turn, .tp-footer').forEach((e) => e.remove())")
    assert page.evaluate(where) == there
    # Without the script only the line of tools is shorter, whose place is kept.
    context = visitor.context(viewport=size)
    context.route(re.compile(r"/book-\w+\.js$"), lambda route: route.abort())
    visitor.expected = "ERR_FAILED"
    page = visitor.open(CHAPTERS[0], context=context)
    assert page.locator(ready).count() == 0
    assert page.evaluate(where) == there


@pytest.mark.parametrize("name", CHAPTERS[:2])
def test_a_link_to_a_section_far_below_arrives_there(visitor, name):
    page = visitor.open(name)
    far = page.locator("#tp-sections a").last
    fragment = far.get_attribute("href")
    page.goto(visitor.url(name) + fragment)
    page.wait_for_timeout(500)
    top = page.locator(fragment).evaluate("(e) => e.getBoundingClientRect().top")
    room = page.evaluate(
        "document.documentElement.scrollHeight - innerHeight - scrollY"  # at the end of the page?
    )
    assert -5 <= top <= 150 or (room < 5 and top < 900), (top, room)


def test_all_that_is_below_the_fold_is_loaded_late(built):
    for name in CHAPTERS:
        page = (built / name).read_text(encoding="utf-8")
        for image in re.findall(r"<img\b[^>]*>", page.partition("<article")[2]):
            assert 'loading="lazy"' in image, image
            assert re.search(r'width="\d+"', image), image
            assert re.search(r'height="\d+"', image), image


def test_every_page_loads_one_style_sheet_and_one_script(built):
    named = {f.name for f in (built / "_static").glob("book-*")}
    assert len(named) == 2
    for name in pages_of(built):
        page = (built / name).read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script defer src|link rel="stylesheet" href)="([^"]+)"', page)
        theirs = {address.rsplit("/", 1)[-1] for address in loaded}
        if name == "index.html":
            assert theirs == set()
        elif name == "search.html":
            assert named < theirs
        else:
            assert theirs == named


def test_the_style_sheet_is_small_and_the_scripts_are_ours(built):
    [style] = (built / "_static").glob("book-*.css")
    [script] = (built / "_static").glob("book-*.js")
    assert style.stat().st_size < 90_000
    assert script.stat().st_size <= sum(path.stat().st_size for path in SCRIPTS)
    left = {p.name for p in (built / "_static").rglob("*.js")}
    assert all(re.fullmatch(r"(book|search|xray)-[0-9a-f]{8}\.js", name) for name in left), left
