"""Protects every page of the site in a real browser: it needs nobody and fits a phone."""

import re
from dataclasses import dataclass
from itertools import pairwise

import pytest
from visiting import Visitor

from book.chapters import chapters
from book.sphinx_ext import site_problems
from book.take_away.pages import entries

WIDTHS = (1280, 390, 320)
CHAPTERS = [f"notebooks/{path.stem}.html" for path in chapters()]

# Everything that a reader can unfold or scroll to is on show after this: sections too, which the
# browser would lay out only when they come near. A sheet that a script makes is no style in the
# page, so the policy does not mind it.
UNFOLD = """async () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("[data-tall] { content-visibility: visible !important }");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const hidden of document.querySelectorAll(".toggle-hidden")) {
    hidden.classList.remove("toggle-hidden");
  }
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (const explorer of document.querySelectorAll(".tp-explorer")) {
    explorer.scrollIntoView();
    for (let i = 0; i < 50 && !explorer.querySelector("svg"); i++) await frame();
  }
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
  await document.fonts.ready;
}"""

# What sticks out on the right, so that the page could be pushed sideways.
OVERFLOW = """() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const wide = [...document.querySelectorAll("main *")]
    .filter((e) => e.getBoundingClientRect().right > room + 1);
  return [`${document.documentElement.scrollWidth} px in ${room}`,
          ...wide.slice(0, 4).map((e) => `${e.tagName.toLowerCase()}.${e.className}`)];
}"""

FACTS = """() => {
  const drawn = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const shown = (e) => e.checkVisibility({ visibilityProperty: true });
  const formulas = [...document.querySelectorAll("math")].filter(shown);
  const images = [...document.images].filter(shown);
  const plain = (family) => family.split(",")[0].replaceAll('"', "");
  const ratio = (i) => (i.width / i.height) / (i.naturalWidth / i.naturalHeight);
  return {
    formulas: formulas.length,
    emptyFormulas: formulas.filter((e) => !drawn(e)).map((e) => e.textContent),
    mathFonts: [...new Set(formulas.map((e) => plain(getComputedStyle(e).fontFamily)))],
    loadedFonts: [...document.fonts]
      .filter((f) => f.status === "loaded").map((f) => plain(f.family)),
    images: images.length,
    silentImages: images.filter((i) => !(i.alt || "").trim()).map((i) => i.src),
    brokenImages: images.filter((i) => !i.naturalWidth || !drawn(i)).map((i) => i.src),
    squeezedImages: images.filter((i) => Math.abs(ratio(i) - 1) > 0.02).map((i) => i.src),
    explorers: document.querySelectorAll(".tp-explorer").length,
    mounted: document.querySelectorAll(".tp-explorer svg[role=img]").length,
  };
}"""


@dataclass
class Seen:
    """What one look at every page has found."""

    pages: list[str]
    foreign: list[str]
    complaints: list[str]
    overflow: dict[tuple[str, int], list[str]]
    facts: dict[str, dict]
    requests: list[str]


def listed():
    """The pages of the table of contents, in order."""
    return [entry.document for entry in entries()]


def pages_of(folder):
    found = sorted(folder.rglob("*.html"))
    return [p.relative_to(folder).as_posix() for p in found if "_static" not in p.parts]


@pytest.fixture(scope="module")
def visit(browser, served, built):
    """Looks at every page once; `by` is "" for the server and "file:" for the folder."""
    kept = {}

    def look(by: str) -> Seen:
        widths = () if by else WIDTHS
        if by not in kept:
            visitor = Visitor(browser, served, built)
            seen = Seen(pages_of(built), visitor.foreign, visitor.complaints, {}, {}, [])
            context = visitor.context(viewport={"width": 1280, "height": 900})
            context.on("request", lambda request: seen.requests.append(request.url))
            page = context.new_page()
            page.on("websocket", lambda socket: visitor.foreign.append(socket.url))
            for name in seen.pages:
                page.set_viewport_size({"width": 1280, "height": 900})
                page.goto(visitor.url(by + name))
                if name == "index.html":  # it leads on to the first page
                    page.wait_for_url(re.compile(r"book/pages/index\.html"))
                page.evaluate(UNFOLD)
                seen.facts[name] = page.evaluate(FACTS)
                for width in widths:
                    page.set_viewport_size({"width": width, "height": 900})
                    if found := page.evaluate(OVERFLOW):
                        seen.overflow[name, width] = found
            visitor.close()
            kept[by] = seen
        return kept[by]

    return look


def test_the_net_sees_and_refuses_whatever_leaves_this_machine(visitor):
    # The page's own policy would stop them before the net does (see test_alone.py).
    page = visitor.open("search.html", bypass_csp=True)
    wanted = ["https://example.org/fetched", "http://example.org/shown.png", "http://127.0.0.1:9/x"]
    answers = page.evaluate(
        """async ([fetched, shown, near]) => {
          const answer = (url) =>
            fetch(url, { mode: "no-cors" }).then(() => "came", () => "refused");
          const image = new Image();
          const loaded = new Promise((done) => {
            image.onload = () => done("came");
            image.onerror = () => done("refused");
          });
          image.src = shown;
          return [await answer(fetched), await loaded, await answer(near)];
        }""",
        wanted,
    )
    assert answers == ["refused"] * 3
    assert sorted(visitor.foreign) == sorted(wanted)
    assert len(visitor.complaints) >= 3
    visitor.foreign.clear()
    visitor.complaints.clear()


BOTH = pytest.mark.parametrize("by", ["", "file:"], ids=["served", "file"])


def test_the_pages_are_those_of_the_table_of_contents_and_no_other(built):
    assert len(CHAPTERS) >= 2
    assert set(CHAPTERS) <= {f"{name}.html" for name in listed()}
    by_sphinx = {"index.html", "genindex.html", "search.html", "prf-prf.html"}
    assert set(pages_of(built)) - by_sphinx == {f"{name}.html" for name in listed()}


@BOTH
def test_no_page_asks_for_anything_from_elsewhere(visit, by):
    seen = visit(by)
    assert len(seen.requests) > 5 * len(seen.pages), (
        "too few requests were seen: the net has a hole"
    )
    assert seen.foreign == []


@BOTH
def test_no_page_complains_in_the_console(visit, by):
    assert visit(by).complaints == []


def test_no_page_can_be_pushed_sideways_on_a_desk_or_a_phone(visit):
    assert visit("").overflow == {}


@BOTH
@pytest.mark.parametrize("name", CHAPTERS)
def test_every_formula_is_drawn_in_the_font_of_the_site(visit, by, name):
    facts = visit(by).facts[name]
    assert facts["formulas"] >= 10
    assert facts["emptyFormulas"] == []
    assert len(facts["mathFonts"]) == 1, facts["mathFonts"]
    assert set(facts["mathFonts"]) <= set(facts["loadedFonts"])


def test_the_font_of_the_formulas_is_served_with_the_pages(visit, served, built):
    fonts = {url for url in visit("").requests if re.search(r"\.(woff2?|ttf|otf)\b", url)}
    assert any("_static/math.woff" in url for url in fonts), fonts
    assert all(url.startswith(served) for url in fonts)
    assert (built / "_static/math.woff").stat().st_size < 150_000


@BOTH
def test_every_image_is_shown_undistorted_and_has_a_text_alternative(visit, by):
    facts = visit(by).facts
    assert all(facts[name]["images"] >= 1 for name in CHAPTERS)
    for kind in ("silentImages", "brokenImages", "squeezedImages"):
        assert {name: f[kind] for name, f in facts.items() if f[kind]} == {}, kind


@BOTH
def test_every_explorer_is_drawn(visit, by):
    facts = visit(by).facts
    assert all(f["mounted"] >= f["explorers"] for f in facts.values())
    assert all(facts[name]["explorers"] >= 1 for name in CHAPTERS)


def test_every_link_within_the_site_leads_somewhere(built):
    documents = {name.removesuffix(".html") for name in pages_of(built)}
    assert documents >= {name.removesuffix(".html") for name in CHAPTERS}
    assert site_problems(built, documents) == []


def test_next_leads_through_the_book_in_the_order_of_the_table_of_contents(built):
    for name, following in pairwise(listed()):
        page = (built / f"{name}.html").read_text(encoding="utf-8")
        [link] = re.findall(r'<a class="right-next"\s+href="([^"]+)"', page)
        assert (built / name).parent.joinpath(link).resolve() == built / f"{following}.html"


@BOTH
def test_the_search_finds_a_chapter(visitor, by):
    # The excerpts under the results are fetched, which no browser allows from a folder. They
    # are fetched one by one, so the browser goes on complaining while the test ends.
    visitor.expected = "/search.html?q=" if by else None
    page = visitor.open(f"{by}search.html")
    page.fill("#searchbox input[name=q], main input[name=q]", "normalization")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    found = [a.get_attribute("href") for a in page.query_selector_all("#search-results li a")]
    assert any("08_normalization.html" in link for link in found), found


def test_without_scripts_a_page_shows_its_text_formulas_and_figures(visitor):
    context = visitor.context(java_script_enabled=False)
    for name in CHAPTERS:
        page = visitor.open(name, context=context)
        assert page.locator("article h1").is_visible()
        assert page.locator(".math-display math").first.is_visible()
        assert page.locator(".cell_output img").first.is_visible()
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_colour_scheme_of_the_machine(visitor, scheme):
    page = visitor.open("book/pages/index.html", color_scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert brightness > 200 if scheme == "light" else brightness < 60
