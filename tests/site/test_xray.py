"""Protects the X-ray page: its numbers are torch's, and it works for everyone who reads it."""

import json
import random
import re
from collections import Counter
from itertools import islice

import pytest
import torch
from axe import complaints
from looking import OVERFLOW, UNFOLD
from test_fast import weight
from xraying import AGREED, LOAD, PACKED, PAGE, ready, texts, unpacked, with_faults

from book import xray
from book.own import own_model
from book.stories import BEGIN, VOCABULARY, NotOfTheLanguageError, follow, stories
from book.xray.compute import seen

# Numbers travel as bytes: logits, probabilities and maps of all heads.
COMPUTE = (
    f"([words, off]) => {{ {PACKED}"
    + """
  const { model, run } = globalThis.tpXray;
  const numbers = words.map((w) => model.vocabulary.indexOf(w)), began = performance.now();
  const out = run(model, numbers, new Set(off)), took = performance.now() - began;
  return {
    took, logits: packed(out.logits.data), probabilities: packed(out.probabilities.data),
    maps: out.maps.map((layer) => layer.map((head) => packed(head.data))),
    levels: out.levels.map(([name, p]) => [name, packed(p.data)]),
  };
}"""
)


@pytest.fixture(scope="module")
def model():
    return own_model()


def differences(page, model, words, off=()):
    """How far the page is from torch: logits, probabilities, weights of heads, levels; and ms."""
    tokens = [BEGIN, *words]
    got = page.evaluate(COMPUTE, [tokens, [f"{layer}.{head}" for layer, head in off]])
    want = seen(model, tokens, off)
    size, all_words = len(tokens), len(VOCABULARY)
    maps = torch.stack(
        [torch.stack([unpacked(h, size, size) for h in layer]) for layer in got["maps"]]
    )
    assert [name for name, _ in got["levels"]] == list(want["levels"])
    apart = [
        (unpacked(got["logits"], size, all_words) - want["logits"]).abs().max(),
        (unpacked(got["probabilities"], size, all_words) - want["logits"].softmax(-1)).abs().max(),
        (maps - want["maps"]).abs().max(),
        max(
            (unpacked(p, size, all_words) - want["levels"][name]).abs().max()
            for name, p in got["levels"]
        ),
    ]
    return [float(a) for a in apart], got["took"] / size


# ---- the numbers


def test_200_texts_give_what_torch_computes(loaded, model, record_property):
    worst, times, lengths = [0.0] * 4, [], []
    for n, (words, head) in enumerate(texts(200)):
        # Every third text a second time with a head off, stories and random words alike.
        for off in ((), (head,)) if n % 3 == 0 else ((),):
            apart, took = differences(loaded, model, words, off)
            worst = [max(pair) for pair in zip(worst, apart, strict=True)]
            times.append(took)
            assert max(apart) < AGREED, (words, off, apart)
        lengths.append(len(words))
    record_property("furthest from torch: logits, probabilities, weights, levels", worst)
    middle = sorted(times)[len(times) // 2]
    record_property("ms a word", middle)
    assert middle < 100
    assert min(lengths) < 5
    assert max(lengths) > 80


# A page with one of these would be wrong, and the comparison has to say so.
FAULTS = {
    "the next head is off": ("off.has(`${l}.${h}`)", "off.has(`${l}.${h + 1}`)"),
    "heads read their neighbour's queries": (
        "const mine = head * width",
        "const mine = (head ^ 1) * width",
    ),
    "pairs of RoPE lie side by side": (
        "at = i * x.columns + h * width + k;",
        "at = i * x.columns + h * width + 2 * k;",
    ),
    "RoPE turns the other way": (
        "y.data[at] = a * c - b * s",
        "y.data[at] = a * c + b * s",
    ),
    "positions a hundredth too far apart": (
        "angle = (from + i) * base",
        "angle = 1.01 * (from + i) * base",
    ),
    "another eps": ("square / n + eps", "square / n + 10 * eps"),
    "eps outside the root": (
        "1 / Math.sqrt(square / n + eps)",
        "1 / (Math.sqrt(square / n) + eps)",
    ),
    "no root of the width": ("row[j] = dot / root", "row[j] = dot"),
    "a gate without its sigmoid": ("g / (1 + Math.exp(-g)) * up", "g * up"),
    "no last norm": (
        'normed(x, weights["model.norm.weight"], config.rms_norm_eps, off.has("last norm"))',
        "x",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_far_from_torch(bench, model, fault):
    before, after = FAULTS[fault]
    changes = [(before, after)]
    if fault.startswith("pairs"):
        changes += [
            ("b = x.data[at + half]", "b = x.data[at + 1]"),
            ("y.data[at + half] =", "y.data[at + 1] ="),
        ]
    with_faults(bench, *changes)
    assert any(
        max(differences(bench, model, words, (head,) if "off" in fault else ())[0]) > AGREED
        for words, head in texts(8)
    )


def test_without_a_fault_nothing_is_far_from_torch(bench, model):
    with_faults(bench)
    for words, head in texts(8):
        assert max(differences(bench, model, words, (head,))[0]) < AGREED


# One text instead of many small values, each of which would be checked on its way here.
FOLLOW = """(texts) => JSON.stringify(texts.map((text) => {
  const { model, follow } = globalThis.tpXray;
  return follow(model.language, text);
}))"""


def test_the_floor_is_that_of_the_language(loaded):
    rng = random.Random("floor")
    wanted, asked = [], []
    for n, story in enumerate(islice(stories("floor"), 300)):
        words = list(story.words)
        if n % 3 == 1:
            words = words[: rng.randint(1, len(words))]
        elif n % 3 == 2:
            at = rng.randrange(1, len(words))
            words[at] = rng.choice(VOCABULARY[3:])
        asked.append(words)
        try:
            wanted.append((None, follow(words)))
        except NotOfTheLanguageError as error:
            wanted.append((int(re.match(r"word (\d+)", str(error))[1]), None))
    answers = json.loads(loaded.evaluate(FOLLOW, asked))
    kinds = Counter()
    for words, (at, chances), got in zip(asked, wanted, answers, strict=True):
        assert got["at"] == at, words
        kinds[at is None] += 1
        if at is not None:
            chances = follow(words[:at])
            assert set(got["could"]) == set(chances[-1])
        assert len(got["chances"]) == len(chances)
        for one, other in zip(got["chances"], chances, strict=True):
            assert one == pytest.approx(other, rel=1e-9)
    assert kinds[True] > 150
    assert kinds[False] > 50
    told = {w for words in asked for w in words}
    assert {"baby", "parrot", "together", "every", "yesterday", "now", "how"} <= told


# ---- the page


def test_the_first_view_is_light_and_asks_for_no_weights(visitor, built, served, record_property):
    context = visitor.context(viewport={"width": 412, "height": 823}, is_mobile=True)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(visitor.url(PAGE))
    page.wait_for_load_state("networkidle")
    page.mouse.wheel(0, 4000)
    page.wait_for_timeout(300)
    files = [url for url in asked if not url.startswith("data:")]
    assert not [url for url in files if "xray-" in url]
    sizes = {url.rsplit("/", 1)[-1]: weight(built, served, url) for url in files}
    record_property("bytes on the wire", sizes)
    assert "xray.html" in sizes
    assert sum(sizes.values()) < 200_000, sizes
    before = len(asked)
    ready(page)
    assert [url.rsplit("/", 1)[-1] for url in asked[before:]] == [xray.name()]
    size = (built / "_static" / xray.name()).stat().st_size
    assert size < 3_000_000
    said = re.search(r"Load the model \((\d\.\d) MB\)", (built / PAGE).read_text("utf-8"))[1]
    assert 0 <= float(said) * 1e6 - size < 1e5


SHOWN = """() => {
  const all = (s) => [...document.querySelectorAll(`.tp-xray ${s}`)];
  const texts = (s) => all(s).map((e) => e.textContent);
  return {
    sum: texts(".tp-xray-sum"), told: texts(".tp-xray-told"), words: texts(".tp-xray-word"),
    cells: texts("table :is(th, td, caption)"), heads: texts("figcaption span"),
    looks: texts(".tp-xray-looks"),
    levels: all(".tp-xray-word").map((e) => e.className.match(/tp-l\\d/)[0]),
    bars: all(".tp-xray-bar rect").map((e) => Number(e.getAttribute("width")).toFixed(1)),
    marks: all(".tp-xray-row").map((e) => e.getAttribute("y")),
    maps: all(".tp-xray-heads svg").map((e) => e.querySelectorAll("path").length),
  };
}"""
NUMBER = re.compile(r"\d+\.\d+")


def test_the_first_frame_is_what_the_script_shows(visitor):
    page = visitor.open(PAGE)
    before = page.evaluate(SHOWN)
    assert len(before["words"]) == len(xray.first()["words"])
    assert len(before["heads"]) == 8
    ready(page)
    after = page.evaluate(SHOWN)
    assert before.keys() == after.keys()
    for key in before:
        for one, other in zip(before[key], after[key], strict=True):
            if key in ("maps", "levels", "marks"):
                assert one == other, key
                continue
            assert NUMBER.sub("#", one) == NUMBER.sub("#", other)
            for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
                assert float(a) == pytest.approx(float(b), abs=0.011)


def test_without_the_script_the_frame_is_complete_and_offers_nothing(visitor):
    page = visitor.open(PAGE, java_script_enabled=False)
    assert not page.get_by_role("button", name=LOAD).is_visible()
    told = page.locator(".tp-xray-told").inner_text()
    assert "“pear” comes “lily”" in told
    assert page.locator(".tp-xray-heads svg").count() == 8
    assert page.locator(".tp-xray-word").count() == len(xray.first()["words"])


def test_from_a_folder_it_works_too(visitor):
    page = ready(visitor.open("file:" + PAGE))
    page.get_by_role("button", name="random words, twice").click()
    assert page.locator(".tp-xray-sum").inner_text().startswith("40 words.")
    page.locator(".tp-xray-flow li > button", has_text="head’s output").click()
    assert "Head’s output of head 1.0" in page.locator(".tp-xray-number").inner_text()
    page.get_by_role("button", name="Write a word").click()
    assert page.locator(".tp-xray-wrote").inner_text().startswith("“")


def test_a_model_that_does_not_arrive_is_said_and_asked_for_again(visitor):
    context = visitor.context()
    context.route(re.compile(r"/xray-\w+\.js$"), lambda route: route.abort())
    visitor.expected = "ERR_FAILED"
    page = visitor.open(PAGE, context=context)
    button = page.get_by_role("button", name=LOAD)
    button.click()
    page.get_by_text("did not arrive").wait_for()
    context.unroute(re.compile(r"/xray-\w+\.js$"))
    ready(page)
    assert page.evaluate("document.activeElement.id") == "tp-xray-field"


def mean_of(page):
    return float(re.search(r"surprise is (\d+\.\d+)", page.locator(".tp-xray-sum").inner_text())[1])


def test_it_is_worked_by_keyboard_alone(visitor):
    page = visitor.open(PAGE)
    page.get_by_role("button", name=LOAD).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".tp-xray textarea")
    field = page.get_by_label("Your text")
    assert field.evaluate("(e) => e === document.activeElement")
    page.keyboard.press("Tab")
    told = page.locator(".tp-xray-told")
    first = told.inner_text()
    assert page.evaluate("document.activeElement.textContent").startswith("pear")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent").startswith("?")
    assert told.inner_text() != first
    page.keyboard.press("End")
    assert "your text ends" in told.inner_text()
    page.keyboard.press("Home")
    assert "“<s>” comes “one”" in told.inner_text()
    whole = mean_of(page)
    page.get_by_role("button", name="switch off head 1.0").focus()
    page.keyboard.press("Space")
    assert mean_of(page) > whole + 0.1
    assert "head 1.0 switched off" in page.locator(".tp-xray-sum").inner_text()
    page.keyboard.press("Space")
    assert mean_of(page) == whole
    page.get_by_role("button", name="head 1.0", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.locator(".tp-xray-looks").inner_text().startswith("Under the words: the weights of")


def test_the_weights_of_a_head_stand_under_the_words(visitor, model):
    page = ready(visitor.open(PAGE))
    page.get_by_role("button", name="a question").click()
    at = xray.examples()[0]["at"]
    want = seen(model, xray.first()["words"])["maps"][1, 0, at]
    got = page.locator(".tp-xray-word small").all_inner_texts()
    for i, text in enumerate(got):
        assert (text == "") == (i > at)
        if text:
            assert float(text) == pytest.approx(float(want[i]), abs=0.0051)
    # Pointing into the picture of another head chooses it, and the word of that row.
    picture = page.locator("[data-head='0.0'] svg")
    box = picture.bounding_box()
    picture.click(position={"x": 3, "y": box["height"] * 10.5 / len(got)})
    assert "head 0.0 at “was”" in page.locator(".tp-xray-looks").inner_text()
    page.get_by_role("button", name="Surprise under the words").click()
    assert page.locator(".tp-xray-word small").last.inner_text() != ""


def test_a_word_outside_the_language_is_named_and_nothing_is_lost(visitor):
    page = ready(visitor.open(PAGE))
    before = page.locator(".tp-xray-sum").inner_text()
    page.get_by_role("button", name="a word it does not know").click()
    field, trouble = page.get_by_label("Your text"), page.locator(".tp-xray-trouble")
    assert "“dragon” is no word of the language" in trouble.inner_text()
    assert "red dragon for anna" in field.input_value()
    assert page.locator(".tp-xray-sum").inner_text() == before
    trouble.get_by_role("button").first.click()
    instead = re.search(r"red (\w+) for anna", field.input_value())[1]
    assert instead in VOCABULARY
    assert trouble.inner_text() == ""
    assert page.locator(".tp-xray-sum").inner_text().startswith("16 words.")
    field.fill("Anna  saw a KITE,Ben saw a <b>cat</b>.")
    page.get_by_text("“<b>cat</b>” is no word").wait_for()
    assert field.input_value() == "Anna  saw a KITE,Ben saw a <b>cat</b>."
    field.fill("Anna  saw a KITE,Ben.")
    page.get_by_text("7 words.").wait_for()
    assert "no story of the language goes like this" in page.locator(".tp-xray-sum").inner_text()
    assert "where “anna” stands as word 1, it has one." in page.locator(".tp-xray-sum").inner_text()


def test_no_text_is_too_short_or_too_long(visitor):
    page = ready(visitor.open(PAGE))
    field = page.get_by_label("Your text")
    field.fill("")
    page.get_by_text("No word yet").wait_for()
    assert "The model expects “one”" in page.locator(".tp-xray-told").inner_text()
    field.fill("kite " * 400)
    page.get_by_text("the first 319 of your 400 are shown").wait_for()
    assert page.locator(".tp-xray-word").count() == 320
    assert field.input_value() == "kite " * 400
    page.get_by_role("button", name="Write a word").click()
    assert "no place for more than 320" in page.locator(".tp-xray-wrote").inner_text()


@pytest.mark.parametrize("width", [390, 320])
def test_on_a_phone_it_is_used_by_touch_and_cannot_be_pushed_sideways(visitor, width):
    page = visitor.open(
        PAGE, viewport={"width": width, "height": 800}, has_touch=True, is_mobile=True
    )
    page.evaluate(UNFOLD)
    assert page.evaluate(OVERFLOW) == []
    page.get_by_role("button", name=LOAD).tap()
    page.wait_for_selector(".tp-xray textarea")
    for button in ("a question", "random words, twice", "switch off head 1.0", "head 0.0"):
        page.get_by_role("button", name=button, exact=True).tap()
        assert page.evaluate(OVERFLOW) == []
    page.locator(".tp-xray-word").nth(5).tap()
    assert "After “and”" in page.locator(".tp-xray-told").inner_text()
    page.get_by_label("Your text").fill("supercalifragilisticexpialidocious" * 3)
    page.get_by_text("is no word of the language").wait_for()
    assert page.evaluate(OVERFLOW) == []
    # Short words leave the widest numbers alone in their tables.
    page.get_by_label("Your text").fill("one sunny morning anna and ben met .")
    page.get_by_text("8 words.").wait_for()
    for button in ("a word by chance", "Write a word", "Write a word", "switch off RoPE"):
        page.get_by_role("button", name=button, exact=True).tap()
    assert page.evaluate(OVERFLOW) == []
    if width > 320:
        return
    tensors = page.locator(".tp-xray-flow li > button")
    for n in range(tensors.count()):
        if tensors.nth(n).get_attribute("aria-expanded") == "false":
            tensors.nth(n).evaluate("(button) => button.click()")
        assert page.evaluate(OVERFLOW) == [], tensors.nth(n).inner_text()
    assert n == 22
    page.locator(".tp-xray-numbers button").nth(7).tap()
    assert "of “can” after" in page.locator(".tp-xray-number").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_axe_finds_nothing_with_the_model_at_work(visitor, scheme, width):
    page = visitor.open(PAGE, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.evaluate(UNFOLD)
    ready(page)
    page.get_by_role("button", name="random words, twice").click()
    page.get_by_role("button", name="switch off head 1.0").click()
    page.locator(".tp-xray-flow li > button", has_text="rotated query").click()
    page.get_by_role("button", name="a word by chance").click()
    page.get_by_role("button", name="Write a word").click()
    page.get_by_label("Your text").fill("a dragon")
    page.get_by_text("is no word").wait_for()
    assert complaints(page, Counter()) == []
    assert complaints(page, Counter(), small=True) == []


def test_on_paper_stand_the_words_and_the_pictures_and_no_buttons(visitor):
    page = ready(visitor.open(PAGE))
    page.get_by_role("button", name="switch off head 1.0").click()
    page.emulate_media(media="print")
    for gone in ("textarea", ".tp-xray-examples", "figcaption button", ".tp-xray-inside"):
        assert not page.locator(f".tp-xray {gone}").first.is_visible(), gone
    for there in (".tp-xray-word", "table", "figure svg", ".tp-xray-sum"):
        assert page.locator(f".tp-xray {there}").first.is_visible(), there
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf())) >= 2


def test_the_file_of_the_site_is_the_one_of_this_model(built):
    assert [p.name for p in (built / "_static").glob("xray-*")] == [xray.name()]
    assert (built / "_static" / xray.name()).read_text("utf-8") == xray.script()
    given = re.search(r"unpacked\((\{.*\})\);\n", xray.script())[1]
    assert json.loads(given)["first"]["words"] == xray.first()["words"]
