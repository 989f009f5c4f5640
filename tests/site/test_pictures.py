"""Protects the pictures: the script draws what Python draws, and fingers and keys can hold it."""

import re

import pytest
from test_explorers import BOOK, LAST, mounted, reset

from book.explorer import (
    Arrow,
    Box,
    Cell,
    Choice,
    Dot,
    Explorer,
    Frame,
    Grid,
    Guess,
    Scene,
    Slider,
    Steps,
)
from book.explorer.draw import drawing

# Everything in a drawing that is placed, filled or written.
PARTS = """(boxes) => boxes.map((box) => {
  const names = ["d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "rx",
                 "fill-opacity", "text-anchor", "stroke-dasharray", "visibility", "transform"];
  const parts = [...box.querySelectorAll("*")].map((e) => [
    e.tagName, (e.getAttribute("class") || "").replace(/ ?tp-(lit|held)/g, ""),
    ...names.map((name) => e.getAttribute(name) || ""),
    e.firstElementChild ? "" : e.textContent,
    // On the site a link to a notebook leads to its page.
    (e.getAttribute("href") || "").replace(/\\.ipynb$/, ".html").length,
  ].join("|"));
  return parts.join("\\n");
})"""
# The same of a drawing that Python made now.
MADE = f"""(drawings) => {{
  const place = document.createElement("div");
  place.innerHTML = drawings.join("");
  return ({PARTS})([...place.children]);
}}"""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def unlike(one, other):
    """Where two drawings differ by more than the last digit of a number."""
    for a, b in zip(one.split("\n"), other.split("\n"), strict=True):
        if a == b:
            continue
        numbers = [[float(n) for n in _NUMBER.findall(text)] for text in (a, b)]
        if _NUMBER.sub("#", a) != _NUMBER.sub("#", b) or any(
            abs(x - y) > 0.11 for x, y in zip(*numbers, strict=True)
        ):
            return f"{a[:300]}\n{b[:300]}"
    return None


def differences(root, spec, places):
    """What the script shows otherwise than Python draws it, with the controls at these places."""
    sizes = [len(control["values"]) for control in spec["controls"]]
    says = root.locator(".tp-sentence").text_content()
    ours = [drawing(panel, sizes, places, says) for panel in spec["panels"]]
    shown = root.locator(".tp-drawing").evaluate_all(PARTS)
    made = root.page.evaluate(MADE, ours)
    return [problem for a, b in zip(shown, made, strict=True) if (problem := unlike(a, b))]


def last(spec):
    return [len(control["values"]) - 1 for control in spec["controls"]]


@pytest.mark.parametrize("name", BOOK)
def test_the_script_draws_what_python_draws_at_the_start_at_the_end_and_back(opened, name):
    page = opened(name)
    for number, spec in enumerate(BOOK[name]):
        root = mounted(page, number)
        start = [control["start"] for control in spec["controls"]]
        assert differences(root, spec, start) == [], spec["title"]
        root.evaluate(LAST)
        assert differences(root, spec, last(spec)) == [], spec["title"]
        if start != last(spec):
            moved = differences(root, spec, start)
            assert moved or len(spec["sentences"]) < 3, "the drawing does not depend on anything"
        reset(root)
        assert differences(root, spec, start) == [], spec["title"]


@pytest.mark.parametrize("width", [1280, 320])
def test_a_picture_that_comes_alive_keeps_its_height(visitor, width):
    name = "notebooks/08_normalization.html"
    heights = "(all) => all.map((e) => e.getBoundingClientRect().height)"
    size = {"viewport": {"width": width, "height": 900}}
    still = visitor.open(name, **size, java_script_enabled=False).locator(".tp-explorer")
    before = still.evaluate_all(heights)
    page = visitor.open(name, **size)
    for number in range(len(before)):
        mounted(page, number)
    after = page.locator(".tp-explorer").evaluate_all(heights)
    # Without scripts there is one line more that says how to bring it to life.
    hints = still.evaluate_all(
        "(all) => all.map((e) => { const p = e.querySelector('.tp-hint'), s = getComputedStyle(p);"
        " return p.offsetHeight + parseFloat(s.marginTop) + parseFloat(s.marginBottom); })"
    )
    assert [b - h for b, h in zip(before, hints, strict=True)] == pytest.approx(after, abs=8)


# ---------------------------------------------------------------- touching

V = [k / 2 for k in range(-4, 5)]


def plane(x, y, mask, step, guess):
    chosen = {"mask": "no" if mask == "yes" else "yes"}
    shapes = {
        "still": Box(-2, -2, 1, 0.5, "box"),
        "arrow": Arrow(0, 0, x, y, "q", role="query", drag={"x": "x", "y": "y"}),
        "dot": Dot(-1, 1, "dot", detail=f"a dot, {x + y:g}"),
        "gone": Dot(1, -1.5, shown=mask == "no"),
        "key": Box(0.5, -2.4, 1.2, 0.8, "mask", sets=chosen, fill=float(mask == "yes")),
    }
    cells = {
        f"cell {k}": Cell(0, k, text=str(k), fill=float(k == step), sets={"step": k})
        for k in range(4)
    }
    return Frame(
        f"x = {x:g}, y = {y:g}, mask {mask}, step {step}, guess {guess}.",
        Scene("plane", shapes, xlim=(-2.5, 2.5), ylim=(-2.5, 2.5), axes="cross"),
        Scene("steps", cells, xlim=(0, 4), ylim=(-1, 0), height=100),
        Grid(
            "table", [[x, y]], ["row"], ["x", "y"], limits=(-2, 2), diverging=True,
            detail=lambda r, c: f"number {c} is {(x, y)[c]:.1f}",
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def made():
    controls = {
        "x": Slider("q, first", V, start=6),
        "y": Slider("q, second", V, start=5),
        "mask": Choice("mask", ["no", "yes"]),
        "step": Steps("Step", ["a first one", "a second", "a third", "the last"]),
        "guess": Guess("How many?", ["three", "five"]),
    }
    return Explorer("Touch it", controls, plane)


@pytest.fixture
def touched(visitor, made):
    """The picture on a phone, on top of a page of the site that has no other."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "bypass_csp": True}
    page = visitor.open("book/pages/notation.html", **phone)
    page.evaluate(
        """(text) => {
          const el = document.createElement("div");
          document.querySelector("main").prepend(el);
          transformerParts.show(el, text);
        }""",
        made.page,
    )
    return page.locator(".tp-explorer")


def says(root, **values):
    said = {"x": 1, "y": 0.5, "mask": "no", "step": 0, "guess": None} | values
    wanted = "x = {x:g}, y = {y:g}, mask {mask}, step {step}, guess {guess}.".format(**said)
    sentence = root.locator(".tp-sentence")
    for _ in range(20):  # the browser may take a moment to make a touch an event
        if sentence.text_content() == wanted:
            break
        root.page.wait_for_timeout(50)
    assert sentence.text_content() == wanted


def grip(root):
    box = root.locator(".tp-grip").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"]


def unit(root):
    """Pixels in a unit of the plane."""
    plane = root.locator(".tp-drawing").first.bounding_box()
    return plane["width"] / 340 * (240 - 18) / 5


def test_a_handle_that_is_dragged_takes_the_nearest_values(touched):
    touched.locator(".tp-drag").scroll_into_view_if_needed()
    page, (x, y, size) = touched.page, grip(touched)
    assert size >= 44, "a finger cannot hold it"
    step = unit(touched)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 2.1 * step, y + 0.9 * step, steps=5)
    says(touched, x=-1, y=-0.5)
    page.mouse.up()
    page.mouse.move(x, y)
    says(touched, x=-1, y=-0.5)
    values = touched.locator("input[type=range]").evaluate_all("(all) => all.map((e) => +e.value)")
    assert values == [V.index(-1), V.index(-0.5)], "the sliders follow"


def test_a_finger_drags_the_handle_and_not_the_page(touched):
    page = touched.page
    touched.locator(".tp-drag").scroll_into_view_if_needed()
    (x, y, _), step = grip(touched), unit(touched)
    send = page.context.new_cdp_session(page).send
    top = page.evaluate("scrollY")

    def finger(kind, *points):
        touches = [{"x": a, "y": b} for a, b in points]
        send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    finger("touchStart", (x, y))
    for k in range(1, 6):
        finger("touchMove", (x, y + k * 0.3 * step))
    finger("touchEnd")
    says(touched, y=-1)
    assert page.evaluate("scrollY") == top


def test_arrow_keys_move_the_handle_and_escape_leads_back(touched):
    press = touched.page.keyboard.press
    handle = touched.locator(".tp-drag")
    handle.focus()
    assert handle.get_attribute("role") == "slider"
    press("ArrowLeft")
    says(touched, x=0.5)
    press("ArrowUp")
    says(touched, x=0.5, y=1)
    assert handle.get_attribute("aria-valuetext") == "q, first 0.5, q, second 1"
    press("Escape")
    says(touched)


def test_touching_a_shape_chooses_toggles_or_answers(touched):
    shape = "[aria-label^='{}']".format
    touched.locator(shape("mask")).tap()
    says(touched, mask="yes")
    hidden = touched.locator("[data-shape='3']").first
    assert hidden.get_attribute("visibility") == "hidden"
    touched.locator(shape("mask")).press("Enter")
    says(touched)
    assert hidden.get_attribute("visibility") is None
    touched.locator(shape("dot")).tap()
    assert touched.locator(".tp-detail").first.text_content() == "a dot, 1.5"
    touched.locator("[data-cell='1']").tap()
    answer = touched.locator(".tp-detail").last
    assert answer.text_content() == "number 1 is 0.5"
    touched.page.keyboard.press("ArrowLeft")
    assert answer.text_content() == "number 0 is 1.0"
    focused = touched.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "row, x: 1.00. number 0 is 1.0"
    touched.page.keyboard.press("Escape")
    assert answer.text_content() == ""
    assert touched.locator(".tp-lit").count() == 0


def test_a_row_of_shapes_is_one_stop_and_the_arrow_keys_choose(touched):
    panel = touched.locator(".tp-drawing").nth(1)
    stops = "(all) => all.map((e) => e.getAttribute('tabindex')).join(' ')"
    cells = panel.locator(".tp-touch")
    assert cells.evaluate_all(stops) == "0 -1 -1 -1"
    cells.first.focus()
    for step in (1, 2):
        touched.page.keyboard.press("ArrowRight")
        says(touched, step=step)
    assert cells.evaluate_all(stops) == "-1 -1 0 -1"
    pressed = cells.evaluate_all("(all) => all.map((e) => e.getAttribute('aria-pressed'))")
    assert pressed == ["false", "false", "true", "false"]


def test_steps_go_by_button_key_and_swipe_and_a_guess_is_taken_back(touched):
    page, caption = touched.page, touched.locator(".tp-caption")
    touched.locator(".tp-next").tap()
    says(touched, step=1)
    assert caption.text_content() == "a second"
    page.keyboard.press("ArrowRight")
    says(touched, step=2)
    touched.locator(".tp-drawing").nth(1).scroll_into_view_if_needed()
    box = touched.locator(".tp-drawing").nth(1).bounding_box()
    x, y = box["x"] + 20, box["y"] + box["height"] - 4
    send = page.context.new_cdp_session(page).send
    touches = [("touchStart", [{"x": x, "y": y}])]
    touches += [("touchMove", [{"x": x + 20 * k, "y": y}]) for k in range(1, 6)]
    for kind, points in [*touches, ("touchEnd", [])]:
        send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    says(touched, step=1)
    touched.locator(".tp-back").press("Enter")
    says(touched)
    assert touched.locator(".tp-back").get_attribute("aria-disabled") == "true"
    touched.get_by_role("button", name="five").tap()
    says(touched, guess="five")
    touched.get_by_role("button", name="Guess again").tap()
    says(touched)


def test_the_picture_of_the_test_is_drawn_as_python_draws_it_everywhere(touched, made):
    spec = made.spec
    for places in ([0, 0, 1, 3, 2], [8, 0, 0, 2, 1], [4, 4, 1, 0, 0]):
        touched.evaluate(
            """(root, places) => {
              const controls = [...root.querySelectorAll(".tp-control")];
              places.forEach((k, c) => {
                const input = controls[c].querySelector("input, select");
                if (input) {
                  input.value = k;
                  input.dispatchEvent(new Event("input"));
                  return;
                }
                const back = controls[c].querySelector(".tp-back");
                while (back && back.getAttribute("aria-disabled") !== "true") back.click();
                const next = controls[c].querySelector(".tp-next");
                for (let i = 0; next && i < k; i++) next.click();
                if (!next) controls[c].querySelectorAll("button")[k ? k - 1 : 2].click();
              });
            }""",
            places,
        )
        assert differences(touched, spec, places) == []
