"""Protects explorers on a static page: by keyboard, announced, lazy, printed, without a server."""

import gzip
import json
import re

import pytest
from visiting import SITE

from book.chapters import chapters, read
from book.explorer import STATIC, Explorer, packed, unpacked
from book.explorer import page as page_of

ISLAND = re.compile(r'<script type="application/json" class="tp-spec">(.*?)</script>', re.S)
BUDGET = 150_000

# The drawing is long: a number that depends on all of it is enough to see that it has changed.
STATE = """(root) => {
  const digest = (text) => {
    let [high, low] = [1, 1];
    for (let i = 0; i < text.length; i++) {
      low = (low * 31 + text.charCodeAt(i)) % 0x1fffffff;
      high = (high * 37 + low) % 0x1fffffff;
    }
    return `${text.length} ${high} ${low}`;
  };
  // Not where the keyboard has been.
  const drawn = (box) => [...box.querySelectorAll("*")].map((e) => [
    e.tagName, e.firstElementChild ? "" : e.textContent,
    ...[...e.attributes].filter((a) => a.name !== "tabindex")
      .map((a) => `${a.name}=${a.value.replace(" tp-lit", "")}`).sort(),
  ].join()).join();
  const all = (what, get) => [...root.querySelectorAll(what)].map(get);
  return {
    drawing: all(".tp-drawing", (box) => digest(drawn(box))).join(),
    names: all(".tp-drawing", (box) => box.getAttribute("aria-label")),
    sentence: root.querySelector(".tp-sentence").textContent,
    said: all("input[type=range]", (slider) => slider.getAttribute("aria-valuetext")),
    shown: all("output", (output) => output.textContent),
  };
}"""

# Every text and every mark of an explorer, with its colour and the ground it stands on.
COLOURS = """(root) => {
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/^(transparent|rgba\\(.*, 0\\))$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const seen = (name, e, property) => [name, getComputedStyle(e)[property], ground(e)];
  const texts = [...root.querySelectorAll("p, label, output, button, select, li, text")]
    .filter((e) => e.textContent.trim() && e.checkVisibility())
    .map((e) => seen(e.textContent.trim().slice(0, 30), e, e.closest("svg") ? "fill" : "color"));
  const marks = [...root.querySelectorAll(
    ".tp-drawing path:not(.tp-hit), .tp-drawing circle:not(.tp-grip)")]
    .map((e) => seen(e.tagName, e, getComputedStyle(e).fill === "none" ? "stroke" : "fill"));
  return { texts, marks };
}"""


# Counts the controls, and from now on notes which of them the keyboard comes to, and whether that
# can be seen.
FOLLOW = """(root) => {
  const controls = [...root.querySelectorAll("input, select, button, [tabindex='0']")]
    .filter((e) => e.checkVisibility({ visibilityProperty: true }));
  root.steps = [];
  root.addEventListener("focusin", ({ target }) => {
    const { outlineStyle, boxShadow } = getComputedStyle(target);
    const grip = target.querySelector(".tp-grip"); // what is dragged shows it there
    const ring = grip && getComputedStyle(grip).stroke !== "none";
    root.steps.push([controls.indexOf(target), ring || outlineStyle + boxShadow !== "nonenone"]);
  });
  return controls.length;
}"""


def specs(path):
    """The explorers that a notebook stores, in order."""
    found = []
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            html = "".join(output.get("data", {}).get("text/html", ""))
            found += [unpacked(json.loads(island)) for island in ISLAND.findall(html)]
    return found


BOOK = {f"notebooks/{path.stem}.html": specs(path) for path in chapters()}
# From a folder, the model chapter and the last stand for all: the script is the same.
FROM_FOLDER = ("notebooks/08_normalization.html", "notebooks/16_cost.html")
BOTH = pytest.mark.parametrize(
    ("by", "name"), [*(("", name) for name in BOOK), *(("file:", name) for name in FROM_FOLDER)]
)


def mounted(page, number):
    """The explorer of that number, scrolled to and drawn."""
    root = page.locator(".tp-explorer").nth(number)
    root.evaluate("(e) => e.matches('.tp-live') || e.scrollIntoView()")
    page.wait_for_function("(e) => e.matches('.tp-live')", arg=root.element_handle())
    return root


def state(root):
    return root.evaluate(STATE)


def reset(root):
    """Everything where it starts, as before printing."""
    root.page.evaluate("dispatchEvent(new Event('beforeprint'))")


def sentence_at(spec, **places):
    """The sentence of the grid point at these places; the others are where they start."""
    at = 0
    for number, control in enumerate(spec["controls"]):
        place = places.get(f"c{number}", control["start"])
        at = at * len(control["values"]) + place
    return spec["sentences"][at]


def first(spec, kind):
    return next((i for i, control in enumerate(spec["controls"]) if control["kind"] == kind), None)


# Every control at its last place.
LAST = """(root) => {
  for (const control of root.querySelectorAll(".tp-control")) {
    const input = control.querySelector("input, select");
    if (input) {
      input.value = input.max || input.options.length - 1;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    }
    const next = control.querySelector(".tp-next");
    while (next && next.getAttribute("aria-disabled") !== "true") next.click();
    [...control.querySelectorAll("[aria-pressed]")].at(-1)?.click();
  }
}"""


def test_the_book_has_explorers_and_the_model_chapter_three():
    assert all(BOOK.values()), BOOK.keys()
    assert len(BOOK["notebooks/08_normalization.html"]) >= 3


@BOTH
def test_a_slider_moved_by_keyboard_changes_the_drawing_and_what_is_said(opened, by, name):
    page = opened(by + name)
    assert page.locator(".tp-explorer").count() == len(BOOK[name])
    for number, spec in enumerate(BOOK[name]):
        root = mounted(page, number)
        assert root.locator(".tp-title").text_content() == spec["title"]
        assert root.locator(".tp-sentence").text_content() == sentence_at(spec)
        place = first(spec, "slider")
        if place is None:
            continue
        values = spec["controls"][place]["values"]
        slider = root.locator("input[type=range]").first
        slider.focus()
        seen = []
        for key, at in (("Home", 0), ("ArrowRight", 1), ("End", len(values) - 1)):
            page.keyboard.press(key)
            now = state(root)
            where = f"{spec['title']}: {key}"
            assert now["said"][0] == values[at], where
            assert values[at] in now["shown"], where
            assert now["sentence"] == sentence_at(spec, **{f"c{place}": at}), where
            assert all(now["sentence"] in label for label in now["names"]), where
            seen.append(now)
        # What is said changes with every step. A drawing may stand still for some of them, as
        # softmax does while its scores are shifted, but not for all.
        drawings = {now["drawing"] for now in seen}
        page.keyboard.press("Home")
        for _ in values[1:]:
            if len(drawings) > 1:
                break
            page.keyboard.press("ArrowRight")
            drawings.add(state(root)["drawing"])
        reset(root)
        assert len(drawings) > 1, f"{spec['title']}: the drawing never changes"
        for before, after in ((seen[0], seen[1]), (seen[0], seen[2])):
            for part in ("sentence", "said"):
                assert before[part] != after[part], f"{spec['title']}: {part} did not change"


@BOTH
def test_a_choice_changes_the_drawing_and_what_is_said(opened, by, name):
    if all(first(spec, "choice") is None for spec in BOOK[name]):
        assert first(BOOK[name][0], "slider") is not None
        return
    page = opened(by + name)
    for number, spec in enumerate(BOOK[name]):
        place = first(spec, "choice")
        if place is None:
            continue
        root = mounted(page, number)
        select = root.locator("select").first
        assert select.locator("option").all_text_contents() == spec["controls"][place]["values"]
        before = state(root)
        start = spec["controls"][place]["start"]
        last = len(spec["controls"][place]["values"]) - 1
        select.focus()
        page.keyboard.press("ArrowDown" if start < last else "ArrowUp")
        after = state(root)
        moved = {f"c{place}": start + 1 if start < last else start - 1}
        assert after["sentence"] == sentence_at(spec, **moved), spec["title"]
        assert after["sentence"] != before["sentence"], spec["title"]
        assert after["drawing"] != before["drawing"], spec["title"]
        reset(root)


@pytest.mark.parametrize("name", BOOK)
def test_the_sentence_is_announced_and_every_control_has_a_name(opened, name):
    page = opened(name)
    for number, spec in enumerate(BOOK[name]):
        root = mounted(page, number)
        sentence = root.locator(".tp-sentence")
        assert sentence.get_attribute("role") == "status"
        assert sentence.get_attribute("aria-live") == "polite"
        for control in spec["controls"]:
            role = {"slider": "slider", "choice": "combobox"}.get(control["kind"], "group")
            controls = root.locator(".tp-controls")
            assert controls.get_by_role(role, name=control["label"], exact=True).count() == 1
        assert root.get_by_role("group", name=spec["title"], exact=True).count() == 1
        drawings = root.locator(".tp-drawing")
        assert drawings.count() == len(spec["panels"])
        for k in range(drawings.count()):
            assert drawings.nth(k).get_attribute("role") in ("img", "group")


@pytest.mark.parametrize("name", BOOK)
def test_tab_leads_from_control_to_control_and_shows_where_it_is(opened, name):
    page = opened(name)
    for number, _ in enumerate(BOOK[name]):
        root = mounted(page, number)
        # The keyboard goes on from here.
        root.locator(".tp-title").evaluate("(e) => { e.tabIndex = -1; e.focus(); }")
        controls = root.evaluate(FOLLOW)
        for _ in range(controls):
            page.keyboard.press("Tab")
        page.keyboard.press("Shift+Tab")
        steps = root.evaluate("(root) => root.steps")
        # Back from the only control there is nothing of this explorer to come to.
        back = [controls - 2] if controls > 1 else []
        assert [place for place, _ in steps] == [*range(controls), *back]
        assert all(shown for _, shown in steps), "the focus cannot be seen"


@pytest.mark.parametrize("name", BOOK)
def test_an_explorer_costs_at_most_150_kb_on_the_wire(built, name, record_property):
    page = (built / name).read_text(encoding="utf-8")
    islands = [island.encode() for island in ISLAND.findall(page)]
    assert [unpacked(json.loads(island)) for island in islands] == BOOK[name]
    shared = [f.read_bytes() for f in sorted((built / "_static").glob("book-*.?s*"))]
    assert len(shared) == 2
    packed = sum(len(gzip.compress(part, 6)) for part in shared)
    sizes = {
        spec["title"]: (len(island), len(gzip.compress(island, 6)) + packed)
        for spec, island in zip(BOOK[name], islands, strict=True)
    }
    record_property("bytes per explorer (raw, gzip with script and style)", sizes)
    assert all(raw <= BUDGET and sent <= BUDGET for raw, sent in sizes.values()), sizes
    # The script and style of the whole site, without the letters of its text, which are not ours.
    plain = (re.sub(rb'url\("data:font[^)]*\)', b"", part) for part in shared)
    assert sum(len(gzip.compress(part, 6)) for part in plain) < 35_000


@pytest.mark.parametrize(("motion", "steps"), [("reduce", 1), ("no-preference", 4)])
def test_play_runs_on_only_for_readers_who_did_not_ask_for_less_motion(visitor, motion, steps):
    name, number = next(
        (name, number)
        for name, found in BOOK.items()
        for number, spec in enumerate(found)
        if (place := first(spec, "slider")) is not None
        and len(spec["controls"][place]["values"]) >= 6
    )
    spec = BOOK[name][number]
    place = first(spec, "slider")
    page = visitor.open(name, clock=True, reduced_motion=motion)
    root = mounted(page, number)
    slider = root.locator("input[type=range]").first
    button = root.locator(".tp-play").first
    slider.press("Home")
    label = spec["controls"][place]["label"]
    assert button.get_attribute("aria-label") == f"Play: {label}"
    button.press("Enter")
    page.clock.run_for(3_100)
    assert slider.input_value() == str(steps)
    assert state(root)["sentence"] == sentence_at(spec, **{f"c{place}": steps})
    if motion == "reduce":
        button.press("Enter")
        assert slider.input_value() == "2"
        slider.press("End")
        button.press("Enter")
        assert slider.input_value() == "0", "after the last value comes the first"
    else:
        assert button.get_attribute("aria-label") == f"Pause: {label}"
        button.press("Enter")
    stopped = slider.input_value()
    page.clock.run_for(5_000)
    assert slider.input_value() == stopped, "it cannot be stopped"
    assert button.get_attribute("aria-label") == f"Play: {label}"


DRAWN = "(all) => all.map((e) => e.querySelectorAll('.tp-drawing').length)"
SEEN = """(all) => all.map((e) =>
  [...e.querySelectorAll('.tp-drawing')].some((d) => d.checkVisibility()))"""
LIVE = "(all) => all.map((e) => e.matches('.tp-live'))"


@pytest.mark.parametrize("name", BOOK)
def test_paper_shows_every_explorer_in_its_first_state_and_without_controls(opened, name):
    page = opened(name)
    root = mounted(page, 0)
    before = state(root)
    root.evaluate(LAST)
    assert state(root) != before
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    explorers = page.locator(".tp-explorer")
    assert explorers.evaluate_all(DRAWN) == [len(spec["panels"]) for spec in BOOK[name]]
    assert all(explorers.evaluate_all(SEEN))
    for shown, part in ((True, ".tp-sentence"), (False, ".tp-controls")):
        parts = page.locator(f".tp-explorer {part}")
        seen = parts.evaluate_all("(all) => all.map((e) => e.checkVisibility())")
        assert seen == [shown] * len(BOOK[name]), part
    sentences = page.locator(".tp-explorer .tp-sentence").all_text_contents()
    assert sentences == [sentence_at(spec) for spec in BOOK[name]]
    assert state(root) == before
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")


def test_paper_shows_explorers_that_were_never_near(visitor):
    name = "notebooks/08_normalization.html"
    explorers = visitor.open(name).locator(".tp-explorer")
    assert False in explorers.evaluate_all(LIVE), "all came alive before: the test is empty"
    assert explorers.evaluate_all(DRAWN) == [len(spec["panels"]) for spec in BOOK[name]]
    parts = explorers.locator(".tp-drawing").evaluate_all(
        "(all) => all.map((e) => e.querySelectorAll('path[d^=M], rect, circle').length)"
    )
    assert all(parts), "a drawing is empty"


def luminance(colour):
    channels = [float(c) / 255 for c in re.findall(r"[\d.]+", colour)[:3]]
    assert colour.startswith("rgb"), colour
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", BOOK)
def test_texts_and_lines_stand_out_in_light_and_in_dark(opened, name, scheme):
    page = opened(name)
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector(f"html[data-theme={scheme}]", state="attached")
    for number, spec in enumerate(BOOK[name]):
        colours = mounted(page, number).evaluate(COLOURS)
        assert len(colours["texts"]) >= 8
        weak = [t for t in colours["texts"] if contrast(*t[1:]) < 4.5]
        weak += [m for m in colours["marks"] if contrast(*m[1:]) < 3.0]
        assert weak == [], f"{spec['title']} ({scheme})"
    page.emulate_media(color_scheme="light")


def test_dark_mode_is_dark(opened):
    ground = "(e) => getComputedStyle(e).backgroundColor"
    name = "notebooks/08_normalization.html"
    light, dark = (
        mounted(page, 0).evaluate(ground)
        for page in (opened(name), opened(name, color_scheme="dark"))
    )
    assert luminance(light) > 0.8
    assert luminance(dark) < 0.05


def test_without_scripts_a_chapter_and_the_first_sentences_of_its_explorers_can_be_read(visitor):
    context = visitor.context(java_script_enabled=False)
    for name, described in BOOK.items():
        page = visitor.open(name, context=context)
        # Folds open without a script.
        page.locator("details").evaluate_all("(all) => all.forEach((e) => { e.open = true; })")
        for what in ("article h1", ".math-display math", ".cell_output img"):
            assert page.locator(what).first.is_visible(), (name, what)
        shown = "(all) => all.filter((e) => e.checkVisibility()).map((e) => e.textContent)"
        for part, expected in (
            (".tp-title", [spec["title"] for spec in described]),
            (".tp-sentence", [sentence_at(spec) for spec in described]),
            ("script", []),
        ):
            assert page.locator(f".tp-explorer {part}").evaluate_all(shown) == expected, name
        page.close()


def test_a_live_notebook_draws_what_the_page_draws(opened):
    """The front end of the widget gets the description from the kernel, and is the same script."""
    name = "notebooks/08_normalization.html"
    page = opened(name)
    on_page = [state(mounted(page, number)) for number in range(len(BOOK[name]))]
    # A notebook has no policy, and its front end comes as a module.
    blank = opened("search.html", bypass_csp=True)
    for spec, expected in zip(BOOK[name], on_page, strict=True):
        drawn = blank.evaluate_handle(
            """async ([esm, page]) => {
              const address = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
              const { default: front } = await import(address);
              const el = document.createElement("div");
              document.body.replaceChildren(el);
              el.style.width = "40rem";
              front.render({ model: { get: (key) => ({ page })[key] }, el });
              return el;
            }""",
            [str(Explorer._esm), page_of(packed(spec))],
        ).as_element()
        assert drawn.evaluate(STATE) == expected
        if (slider := drawn.query_selector("input[type=range]")) is not None:
            slider.press("End" if spec["controls"][first(spec, "slider")]["start"] == 0 else "Home")
            assert drawn.evaluate(STATE)["drawing"] != expected["drawing"]


def test_the_script_and_style_of_the_site_are_those_of_the_book(built):
    assert built == SITE
    [script] = (built / "_static").glob("book-*.js")
    there = script.read_text(encoding="utf-8")
    lines = (STATIC / "explorer.js").read_text(encoding="utf-8").splitlines()
    wanted = [line.strip() for line in lines if line.strip() and line.strip()[:2] != "//"]
    assert len(wanted) > 100
    assert "\n".join(wanted) in there, "run `make book`"
