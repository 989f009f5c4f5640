"""Protects every page of the site in a real browser: it needs nobody and fits a phone."""

import re
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from axe import complaints
from looking import UNFOLD, Looker
from visiting import CHAPTERS, DOOR, Visitor, listed, pages_of

from book.sphinx_ext import site_problems

PAGES = [*(f"{name}.html" for name in listed()), "search.html"]
BOTH = pytest.mark.parametrize("by", ["", "file:"], ids=["served", "file"])


@pytest.fixture(scope="module")
def look(browser, served, built):
    """Looks at a page, once; `by` is "" for the server and "file:" for the folder."""
    lookers = {by: Looker(Visitor(browser, served, built), by) for by in ("", "file:")}
    yield cache(lambda by, name: lookers[by].look(name))
    for looker in lookers.values():
        looker.visitor.close()
        assert looker.visitor.heard() == []


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


def test_the_pages_are_those_of_the_table_of_contents_and_no_other(built):
    assert len(CHAPTERS) >= 2
    assert set(CHAPTERS) <= {f"{name}.html" for name in listed()}
    assert sorted(pages_of(built)) == sorted([*PAGES, DOOR])


@BOTH
@pytest.mark.parametrize("name", [*PAGES, DOOR])
def test_a_page_asks_for_nothing_from_elsewhere_and_does_not_complain(look, by, name):
    seen = look(by, name)
    assert any(url.endswith("/" + name) for url in seen.requests), "the net has a hole"
    assert seen.heard == []


@BOTH
def test_the_net_hears_more_than_the_pages_themselves(look, by):
    requests = [url for name in [*PAGES, DOOR] for url in look(by, name).requests]
    assert len(requests) > 5 * len([*PAGES, DOOR]), "too few: the net has a hole"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_cannot_be_pushed_sideways_on_a_desk_or_a_phone_or_at_twice_its_size(look, name):
    assert look("", name).overflow == {}


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_covered_or_out_of_line(look, name):
    assert look("", name).drawn == []


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(look, name):
    assert look("", name).barriers == []


def test_axe_finds_what_is_planted(visitor):
    page = visitor.open("book/pages/quiz.html")
    page.evaluate(UNFOLD)
    kinds = Counter()
    assert complaints(page, kinds) == []
    page.evaluate(
        """() => {
          const image = new Image();
          image.src = "../../_static/favicon.svg";
          const pale = document.createElement("p");
          pale.style.color = "#ccc";
          pale.textContent = "Hardly to be read";
          const line = document.createElement("p");
          const link = document.createElement("a");
          link.href = "#here";
          link.style.cssText = "color: rgb(60, 60, 60); text-decoration: none";
          link.textContent = "hardly seen";
          line.append("A link that ", link, " is a link");
          document.querySelector("article").prepend(
            image, pale, line, document.createElement("button"));
          for (const name of ["one", "two"]) {
            const tiny = document.createElement("button");
            tiny.textContent = name;
            tiny.style.cssText = "font-size: 5px; padding: 0; border: 0; display: block";
            document.querySelector("article").prepend(tiny);
          }
        }"""
    )
    colours = {"color-contrast", "link-in-text-block"}
    found = {complaint.split()[0] for complaint in complaints(page, kinds)}
    assert found >= colours | {"image-alt", "button-name"}
    found = {complaint.split()[0] for complaint in complaints(page, kinds, small=True)}
    assert found == colours | {"target-size"}


@BOTH
@pytest.mark.parametrize("name", CHAPTERS)
def test_every_formula_is_drawn_in_the_font_of_the_site(look, by, name):
    facts = look(by, name).facts
    assert facts["formulas"] >= 10
    assert facts["emptyFormulas"] == []
    assert len(facts["mathFonts"]) == 1, facts["mathFonts"]
    assert set(facts["mathFonts"]) <= set(facts["loadedFonts"])


def test_the_font_of_the_formulas_is_served_with_the_pages(look, served, built):
    asked = {url for name in PAGES for url in look("", name).requests}
    fonts = {url for url in asked if re.search(r"\.(woff2?|ttf|otf)\b", url)}
    assert any("_static/math.woff2" in url for url in fonts), fonts
    assert all(url.startswith(served) for url in fonts)
    assert (built / "_static/math.woff2").stat().st_size < 150_000


@BOTH
@pytest.mark.parametrize("name", PAGES)
def test_every_image_is_shown_undistorted_and_has_a_text_alternative(look, by, name):
    facts = look(by, name).facts
    assert facts["images"] >= (name in CHAPTERS)
    for kind in ("silentImages", "brokenImages", "squeezedImages"):
        assert facts[kind] == [], kind


@BOTH
@pytest.mark.parametrize("name", PAGES)
def test_every_explorer_is_drawn(look, by, name):
    facts = look(by, name).facts
    assert facts["mounted"] >= facts["explorers"] >= (name in CHAPTERS)


def test_every_link_within_the_site_leads_somewhere(built):
    documents = {name.removesuffix(".html") for name in pages_of(built)}
    assert documents >= {name.removesuffix(".html") for name in CHAPTERS}
    assert site_problems(built, documents) == []


def test_next_leads_through_the_book_in_the_order_of_the_table_of_contents(built):
    for name, following in pairwise(listed()):
        page = (built / f"{name}.html").read_text(encoding="utf-8")
        [link] = re.findall(r'<a class="tp-next" rel="next" href="([^"]+)"', page)
        assert (built / name).parent.joinpath(link).resolve() == built / f"{following}.html"


@BOTH
def test_the_search_finds_a_chapter(visitor, by):
    # The excerpts under the results are fetched, which no browser allows from a folder. They
    # are fetched one by one, so the browser goes on complaining while the test ends.
    visitor.expected = "/search.html?q=" if by else None
    page = visitor.open(f"{by}search.html")
    page.fill("main input[name=q]", "normalization")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    found = [a.get_attribute("href") for a in page.query_selector_all("#search-results li a")]
    assert any("08_normalization.html" in link for link in found), found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_colour_scheme_of_the_machine(visitor, scheme):
    page = visitor.open("book/pages/index.html", color_scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert brightness > 200 if scheme == "light" else brightness < 60


@pytest.mark.parametrize("width", [390, 1280])
def test_the_text_of_a_box_stays_in_its_box(visitor, width):
    # A section of the chapter may reach into the margin; the one in a box may not.
    page = visitor.open(CHAPTERS[4], viewport={"width": width, "height": 900})
    boxes = page.locator("article div.admonition:has(section)")
    assert boxes.count() > 5
    outside = boxes.evaluate_all(
        """(boxes) => boxes.flatMap((box) => {
          const edge = box.getBoundingClientRect().right;
          const parts = [...box.querySelectorAll("section, section > p")];
          return parts.filter((e) => e.getBoundingClientRect().right > edge).map((e) => box.id);
        })"""
    )
    assert outside == []
