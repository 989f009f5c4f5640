"""The decks of slides in a browser: nothing sticks out of a slide, and they turn as they should."""

import functools
import re
from collections import Counter
from html import unescape
from urllib.parse import unquote, urlsplit

import pytest
from axe import complaints
from visiting import Visitor

from book.chapters import chapters
from book.slides.__main__ import make

NAMES = [path.stem for path in chapters()]
WINDOW = {"width": 1280, "height": 720}

# What is cut off or sticks out, slide by slide, with the answers open; and how large things are.
LOOK = """() => {
  const { slides, show } = bookSlides;
  const wrong = [], sizes = [];
  const inside = (e, frame) => {
    const a = e.getBoundingClientRect(), b = frame.getBoundingClientRect();
    const across = a.left >= b.left - 1 && a.right <= b.right + 1;
    return across && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  };
  const low = (e) => e.getBoundingClientRect().bottom, high = (e) => e.getBoundingClientRect().top;
  const outer = ".sl-head, .sl-over, h2, .sl-before > *, .sl-after > *, .sl-show";
  const inner = ".sl-fit, .sl-fit > *, .tp-panel, img, table, math[display]";
  const moves = ".math-display, pre, .tp-table, .cell_output, .text_html, .tp-scrolled";
  slides.forEach((slide, i) => {
    const tell = (e, what) => wrong.push(`${i + 1}: ${e.className || e.localName} ${what}`);
    const one = (selector) => slide.querySelector(selector);
    show(i);
    for (const step of slide.querySelectorAll(".sl-step")) step.open = true;
    const page = one(".sl-page"), frame = one(".sl-show");
    for (const e of slide.querySelectorAll(outer)) if (!inside(e, page)) tell(e, "sticks out");
    const before = one(".sl-before"), after = one(".sl-after");
    if (before && after && low(before) > high(after) + 1) tell(before, "meets the other text");
    if (!frame) return;
    const above = before && !page.matches(".sl-side");
    if (above && low(before) > high(frame) + 1) tell(before, "meets the picture");
    for (const e of frame.querySelectorAll(inner)) {
      if (!e.checkVisibility() || e.closest(".tp-scrolled")) continue;
      if (!inside(e, frame)) tell(e, "is cut off");
    }
    for (const e of frame.querySelectorAll(moves)) {
      if (e.scrollWidth > e.clientWidth + 1) tell(e, "has to be moved sideways");
    }
    sizes.push([Number(slide.dataset.size), i + 1, slide.dataset.kind]);
    for (const step of slide.querySelectorAll(".sl-step")) step.open = false;
  });
  return { count: slides.length, wrong, sizes };
}"""


@pytest.fixture(scope="session")
def decks(built, tmp_path_factory):
    out = tmp_path_factory.mktemp("slides")
    made = make(out, built)
    assert [deck.name for deck in made] == NAMES
    return out


@pytest.fixture(scope="module")
def shown(browser, decks):
    """Opens decks from the folder, one after the other in one window. They ask for nothing else."""
    one = Visitor(browser, "", decks)
    context = one.context(viewport=WINDOW, color_scheme="light", offline=True)
    page = one.open("file:index.html", context=context)

    def turn(name, place=""):
        page.goto("about:blank")
        page.goto(one.url(f"file:{name}.html") + place)
        page.evaluate("globalThis.bookSlides?.ready")
        return page

    yield turn
    one.close()
    assert one.heard() == []


def slide(page):
    return page.locator(".sl.sl-now")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_sticks_out_of_a_slide(shown, name, record_property):
    seen = shown(name).evaluate(LOOK)
    assert seen["wrong"] == []
    assert 25 <= seen["count"] <= 70
    # A tall picture is made smaller; the words of an explorer are not (slides.css).
    least = {"figure": 0.45, "title": 0.45}
    small = [(k, number) for k, number, kind in seen["sizes"] if k < least.get(kind, 0.6)]
    record_property("smallest", min(seen["sizes"]))
    assert small == []


def test_what_sticks_out_is_found(shown):
    page = shown("22_families", "#4")
    page.evaluate("""() => {
      const { slides } = bookSlides;
      const line = document.createElement("p");
      line.textContent = "one more line ".repeat(900);
      slides[2].querySelector(".sl-fit").append(line);
      const wide = document.createElement("pre");
      wide.textContent = "a long line of code ".repeat(60);
      slides[3].querySelector(".sl-fit").append(wide);
    }""")
    found = page.evaluate(LOOK)["wrong"]
    assert {line.split(":")[0] for line in found} == {"3", "4"}, found


def test_keys_turn_the_slides_and_the_address_follows(shown):
    page = shown("05_attention", "#7")
    count = page.locator(".sl").count()
    assert slide(page).get_attribute("id") == "slide-7"
    for key, number in [("ArrowRight", 8), ("PageDown", 9), (" ", 10), ("ArrowLeft", 9)]:
        page.keyboard.press(key)
        assert slide(page).get_attribute("id") == f"slide-{number}"
        assert page.url.endswith(f"#{number}")
    page.keyboard.press("End")
    assert page.locator(".sl-count").inner_text() == f"{count} of {count}"
    page.keyboard.press("ArrowRight")
    assert slide(page).get_attribute("id") == f"slide-{count}"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert slide(page).get_attribute("id") == "slide-1"


def test_an_explorer_on_a_slide_is_alive_and_keeps_its_keys(shown):
    page = shown("05_attention", "#1")
    page.wait_for_selector(".sl-now .tp-explorer.tp-live")
    says = page.locator(".sl-now .tp-sentence")
    before = says.inner_text()
    page.locator(".sl-now select").first.select_option("1")
    assert says.inner_text() != before
    # Dragged: the slide is scaled, and the arrow follows the pointer all the same.
    page.set_viewport_size({"width": 1700, "height": 900})
    grip = page.locator(".sl-now .tp-drag .tp-grip").first
    grip.wait_for(state="attached")
    box = grip.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    before = says.inner_text()
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] - 70, middle[1], steps=4)
    page.mouse.up()
    now = grip.bounding_box()
    assert says.inner_text() != before
    assert abs(now["x"] + now["width"] / 2 - (middle[0] - 70)) < 40
    # Its own keys do not turn the slide.
    page.locator(".sl-now .tp-drag").first.focus()
    page.keyboard.press("ArrowLeft")
    assert slide(page).get_attribute("id") == "slide-1"
    page.set_viewport_size(WINDOW)


def test_a_question_comes_before_its_answer(shown):
    page = shown("05_attention")
    number = page.evaluate("bookSlides.slides.findIndex((s) => s.matches('.sl-is-question')) + 1")
    page.goto(page.url.split("#")[0] + f"#{number}")
    steps = slide(page).locator(".sl-step")
    states = lambda: steps.evaluate_all("(all) => all.map((e) => e.open)")  # noqa: E731
    total = steps.count()
    assert states() == [False] * total
    page.keyboard.press("ArrowRight")
    assert states() == [True] + [False] * (total - 1)
    for _ in range(total):
        page.keyboard.press("ArrowRight")
    assert slide(page).get_attribute("id") == f"slide-{number + 1}"
    page.keyboard.press("ArrowLeft")
    assert states() == [True] * total
    page.keyboard.press("ArrowLeft")
    assert states() == [True] * (total - 1) + [False]


def test_hints_notes_and_all_slides(shown):
    page = shown("22_families")
    number = page.evaluate("bookSlides.slides.findIndex((s) => s.matches('.sl-is-exercise')) + 1")
    page.goto(page.url.split("#")[0] + f"#{number}")
    assert slide(page).locator("details[open]").count() == 0
    page.keyboard.press("h")
    assert slide(page).locator("details[open] p").first.is_visible()
    page.keyboard.press("n")
    notes = page.get_by_role("complementary", name="Notes")
    assert notes.is_visible()
    page.keyboard.press("n")
    assert not notes.is_visible()
    page.keyboard.press("o")
    links = page.locator(".sl-go:visible")
    assert links.count() == page.locator(".sl").count()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert links.count() == 0
    assert slide(page).get_attribute("id") == f"slide-{number + 1}"


def test_a_finger_turns_the_slides_of_a_phone(browser, decks):
    one = Visitor(browser, "", decks)
    size = {"width": 390, "height": 760}
    page = one.open("file:22_families.html", viewport=size, has_touch=True, is_mobile=True)
    count = page.locator(".sl").count()
    page.evaluate("""() => {
      const head = document.querySelector(".sl-now .sl-head");
      const finger = (x) => [new Touch({ identifier: 1, target: head, clientX: x, clientY: 60 })];
      const send = (type, touches, changed) => head.dispatchEvent(
        new TouchEvent(type, { bubbles: true, touches, changedTouches: changed }));
      send("touchstart", finger(300), finger(300));
      send("touchend", [], finger(120));
    }""")
    assert slide(page).get_attribute("id") == "slide-2"
    for number in range(count):
        page.evaluate("(i) => bookSlides.show(i)", number)
        wide = page.evaluate("""() => {
          const stage = document.querySelector(".sl-stage");
          return Math.max(stage.scrollWidth, document.documentElement.scrollWidth) - innerWidth;
        }""")
        assert wide <= 0, number + 1
    one.close()
    assert one.heard() == []


def test_a_slide_is_a_sheet(shown, tmp_path):
    pikepdf = pytest.importorskip("pikepdf")
    page = shown("22_families")
    count = page.locator(".sl").count()
    page.emulate_media(media="print")
    (tmp_path / "deck.pdf").write_bytes(page.pdf(prefer_css_page_size=True))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert (
        page.evaluate("""() => bookSlides.slides.filter((slide) => {
      const sheet = slide.getBoundingClientRect(), text = slide.querySelector(".sl-foot");
      const drawn = [...slide.querySelectorAll(".tp-drawing, img")];
      const shown = !drawn.length || drawn.some((e) => e.checkVisibility());
      const answered = [...slide.querySelectorAll(".sl-step")].every((step) => step.open);
      return !shown || !answered || text.getBoundingClientRect().bottom > sheet.bottom;
    }).map((slide) => slide.id)""")
        == []
    )
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    with pikepdf.open(tmp_path / "deck.pdf") as paper:
        assert len(paper.pages) == count
        boxes = {tuple(round(float(x)) for x in sheet.mediabox) for sheet in paper.pages}
    assert boxes == {(0, 0, 960, 540)}


def test_there_are_no_barriers(browser, decks):
    one = Visitor(browser, "", decks)
    context = one.context(viewport=WINDOW, color_scheme="light")
    page = one.open("file:index.html", context=context)
    assert complaints(page, Counter()) == []
    page = one.open("file:22_families.html", context=context)
    kinds = page.evaluate("bookSlides.slides.map((s) => s.dataset.kind)")
    known: Counter[str] = Counter()
    for kind in ("title", "text", "exercise", "question"):
        page.evaluate("(i) => bookSlides.show(i)", kinds.index(kind))
        assert complaints(page, known) == [], kind
    page.keyboard.press("n")
    page.keyboard.press("o")
    assert complaints(page, known) == []
    page.keyboard.press("o")
    page.keyboard.press("d")
    for kind in ("title", "exercise"):
        page.evaluate("(i) => bookSlides.show(i)", kinds.index(kind))
        assert complaints(page, Counter(), small=True) == [], f"{kind}, dark"
    one.close()


def test_the_site_itself_is_not_overwritten(built):
    with pytest.raises(ValueError, match="is the site itself"):
        make(built, built)


def test_every_link_leads_somewhere(decks, built):
    @functools.cache
    def anchors(path):
        return set(re.findall(r'\sid="([^"]+)"', path.read_text(encoding="utf-8")))

    dead, seen = [], Counter()
    for path in sorted(decks.glob("*.html")):
        text = path.read_text(encoding="utf-8")
        for link in map(
            unescape, re.findall(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]+)"', text)
        ):
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", link
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            seen[target.suffix] += 1
            there = target.is_file() and (
                not parts.fragment
                or (target == path and f"slide-{parts.fragment}" in anchors(path))
                or unquote(parts.fragment) in anchors(target)
            )
            if not there:
                dead.append(f"{path.name}: {link}")
    assert dead == []
    assert min(seen[kind] for kind in (".html", ".png", ".css", ".js")) >= 24


# What every deck has of its page: the numbers of equations, the titles of explorers, the exercises,
# the findings and the questions.
SHOWN = {
    "equations": r'<span class="eqno">(\(\d+\))',
    "explorers": r'<div class="tp-(?:explorer|typed)\b[^>]*>\s*<p class="tp-title">(.*?)</p>',
    "exercises": r"(Exercise \d+)",
    "findings": r"<strong>Finding\.</strong>\s*(.{40})",
    "pictures": r'<img\b[^>]*\bsrc="(?:\.\./)?(_images/[^"]+)"',
}


@pytest.mark.parametrize("name", NAMES)
def test_a_deck_has_what_the_page_shows_and_no_solution(decks, built, name):
    page = (built / f"notebooks/{name}.html").read_text(encoding="utf-8").partition("<article")[2]
    deck = (decks / f"{name}.html").read_text(encoding="utf-8")
    further = r'<section[^>]*\bid="further".*?(?=<section[^>]*\bid="questions-)'
    page = re.sub(further, "", page, flags=re.S)
    for what, pattern in SHOWN.items():
        there, shown = (set(map(unescape, re.findall(pattern, t, re.S))) for t in (page, deck))
        assert there, f"the page has no {what}: the test is empty"
        assert there <= shown, what
    asked = page.partition('id="questions-you-may-be-asked"')[2].partition("<section")[0]
    assert deck.count('class="sl-step"') == asked.count("<summary>") > 4
    assert "tag_solution" in page
    assert "tag_solution" not in deck
    assert "Solution to Exercise" not in deck
