"""Protects what a reader does inside the model of the X-ray page: opens, points, writes."""

import base64
import re

import pytest
import torch
from xraying import PACKED, at_work, plainly

from book import xray
from book.own import encode, own_model
from book.stories import VOCABULARY
from book.xray.compute import taken_out, tensors
from transformer_parts.decoder import generate

WORDS = xray.first()["words"]
AT = xray.first()["at"]


@pytest.fixture(scope="module")
def _page(browser, served, built):
    yield from at_work(browser, served, built, viewport={"width": 1280, "height": 900})


@pytest.fixture
def page(_page):
    """The page with the first example, all parts at work and no tensor open."""
    _page.get_by_role("button", name="a question").click()
    _page.get_by_role("button", name="the likeliest word").click()
    _page.evaluate("document.querySelector('.tp-xray-flow [aria-expanded=true]')?.click()")
    return _page


@pytest.fixture(scope="module")
def model():
    return own_model().double()


def logits_of(model, words, off=()):
    with torch.no_grad(), taken_out(model, off):
        return model(torch.tensor([encode(words)]))[0]


def surprise(logits, words):
    tokens = torch.tensor(encode(words))
    return float(-logits.log_softmax(-1)[:-1].gather(-1, tokens[1:, None]).mean())


def tensor(page, name):
    """The button of a tensor, by the first words on it."""
    return page.locator(".tp-xray-flow li > button", has=page.locator(f"b:text-is('{name}')"))


# ---- every tensor

OPEN = (
    f"([layer, head]) => {{ {PACKED}"
    + """
  const one = (s, of = document) => of.querySelector(s), all = (s, of = document) => [...of.querySelectorAll(s)];
  const color = (name) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(`--tp-${name}`).trim();
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  };
  one(`[aria-label="layer ${layer}"]`).click();
  one(`[aria-label="head ${head}"]`).click();
  return all(".tp-xray-flow li > button").map((button) => {
    button.click();
    const panel = button.nextElementSibling, canvas = one(".tp-xray-cells canvas", panel);
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const image = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    const out = {
      expanded: button.getAttribute("aria-expanded"), shape: one(".tp-xray-shape", button).textContent,
      width: canvas.width, height: canvas.height, pixels: asText(image),
      colors: { ground: color("ground"), quiet: color("quiet"), role: color(panel.dataset.role) },
      cells: all(".tp-xray-numbers button", panel).map((b) => b.lastChild.textContent),
      pressed: all(".tp-xray-numbers button", panel).findIndex((b) => b.getAttribute("aria-pressed") === "true"),
      rows: all(".tp-xray-side span", panel).map((s) => s.textContent),
      number: one(".tp-xray-number", panel).textContent, shown: one(".tp-xray-number b", panel).textContent,
      open: all(".tp-xray-panel").length,
    };
    button.click();
    return out;
  });
}"""  # noqa: E501
)
ORDER = (
    "tokens", "embedding", "before", "seen", "q", "k", "v", "turnedQ", "turnedK", "scores",
    "weights", "mixed", "attention", "middle", "between", "gate", "up", "hidden", "down", "after",
    "last", "logits", "probabilities",
)  # fmt: skip


def number(text):
    """A number of the page."""
    return float(plainly(text).replace("∞", "inf"))


@pytest.mark.parametrize(("layer", "head"), [(0, 2), (1, 0)])
def test_each_tensor_opens_and_shows_its_numbers(page, model, layer, head):
    tokens = torch.tensor([encode(WORDS)])
    want = tensors(model, tokens)
    want |= want["layers"][layer] | {"tokens": tokens.T.double()}
    want["probabilities"] = want["logits"].softmax(-1)
    for name, got in zip(ORDER, page.evaluate(OPEN, [layer, head]), strict=True):
        value = want[name][head] if want[name].dim() == 3 else want[name]
        value = (
            value.masked_fill(~torch.ones_like(value).tril().bool(), 0)
            if name == "scores"
            else value
        )
        rows, columns = value.shape
        assert (got["expanded"], got["open"], got["rows"]) == ("true", 1, WORDS), name
        assert got["shape"] == (f"{rows} × {columns}" if columns > 1 else f"{rows}"), name
        assert (got["width"], got["height"]) == (columns, rows), name
        # Each pixel is the color of its number.
        data = bytearray(base64.b64decode(got["pixels"]))
        pixels = torch.frombuffer(data, dtype=torch.uint8).view(rows, columns, 4).double()
        share = (value.abs() / value.abs().max()).sqrt()[..., None]
        ground, quiet, role = (torch.tensor(got["colors"][c]) for c in ("ground", "quiet", "role"))
        color = ground + (torch.where(value[..., None] < 0, quiet, role) - ground) * share
        shown = pixels[..., 3] > 0
        assert shown.all() or (name == "scores" and shown.equal(torch.ones_like(shown).tril())), (
            name
        )
        assert (pixels[..., :3] - color)[shown].abs().max() < 1.1, name
        # The numbers of the chosen word, and the largest of them first of all.
        row = value[AT, : AT + 1] if name in ("scores", "weights") else value[AT]
        if name == "tokens":
            assert [int(c) for c in got["cells"]] == value[:, 0].tolist()
            assert got["pressed"] == AT
        else:
            assert [number(c) for c in got["cells"]] == pytest.approx(row.tolist(), abs=0.0051)
            assert got["pressed"] == row.abs().argmax(), name
        assert number(got["shown"]) == pytest.approx(float(row[row.abs().argmax()]), rel=6e-3), name
        assert "“pear”" in got["number"]


def test_pointing_at_a_number_shows_how_it_came_about(page, model):
    want = tensors(model, torch.tensor([encode(WORDS)]))["layers"][1]
    page.get_by_role("button", name="layer 1", exact=True).click()
    page.get_by_role("button", name="head 0", exact=True).click()
    tensor(page, "scores").click()
    told = page.locator(".tp-xray-number")
    before = told.inner_text()
    cells = page.locator(".tp-xray-cells")
    cells.scroll_into_view_if_needed()
    page.evaluate("document.querySelector('.tp-xray-heat').scrollTo(0, 0)")
    row, column = 14, 9
    place = {"x": 15 * column + 7, "y": 15 * row + 7}
    cells.hover(position=place)
    assert f"from “{WORDS[row]}” to “{WORDS[column]}”, word {column}" in told.inner_text()
    shown = number(page.locator(".tp-xray-number b").inner_text())
    assert shown == pytest.approx(float(want["scores"][0, row, column]), rel=6e-3)
    assert "/ √32 =" in page.locator(".tp-xray-expression").inner_text()
    assert page.locator(".tp-xray-terms tr").count() == 4
    page.mouse.move(5, 5)
    assert told.inner_text() == before
    # A later word may not be looked at, and a click goes to the word of the row.
    cells.hover(position={"x": 15 * 20 + 7, "y": place["y"]})
    assert "−∞" in told.inner_text()
    assert page.locator(".tp-xray-expression").count() == 0
    cells.click(position=place)
    page.mouse.move(5, 5)
    assert f"After “{WORDS[row]}” comes" in page.locator(".tp-xray-told").inner_text()
    assert page.get_by_label("word", exact=True).input_value() == str(row)
    assert f"from “{WORDS[row]}” to “{WORDS[column]}”" in told.inner_text()
    number_9 = page.locator(".tp-xray-numbers button").nth(column)
    assert number_9.get_attribute("aria-pressed") == "true"
    page.locator(".tp-xray-numbers button").nth(3).hover()
    assert f"to “{WORDS[3]}”, word 3" in told.inner_text()


def test_tensors_are_opened_and_read_by_keyboard_alone(page):
    page.get_by_label("word", exact=True).focus()
    page.keyboard.press("ArrowUp")
    assert "After “?”" in page.locator(".tp-xray-told").inner_text()
    page.keyboard.press("ArrowDown")
    query = tensor(page, "query")
    query.focus()
    page.keyboard.press("Enter")
    assert query.get_attribute("aria-expanded") == "true"
    told = page.locator(".tp-xray-number")
    assert page.locator(".tp-xray-answer [role=status] .tp-xray-number").count() == 1
    feature = int(re.search(r"feature (\d+)", told.inner_text())[1])
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    focused = "document.activeElement.className || document.activeElement.localName"
    assert page.evaluate(focused) == "tp-xray-heat"
    page.keyboard.press("Home")
    assert "at “pear”, feature 0:" in told.inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert "at “?”, feature 1:" in told.inner_text()
    assert page.evaluate(focused) == "tp-xray-heat"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.column") == "1"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert int(page.evaluate("document.activeElement.dataset.column")) > 4
    page.keyboard.press("End")
    assert "at “?”, feature 31:" in told.inner_text()
    assert feature < 32
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Chapter 5")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert page.locator(".tp-xray-panel").count() == 0


# ---- switches

SAID = {
    "head 1.2": (["1.2"], "Head 1.2 gives zero in place of the mean of its values."),
    "RoPE": (["RoPE"], "no query and no key is turned"),
    "attention 0": (["attention 0"], "The attention of layer 0 adds zero"),
    "feed-forward 1": (["feed-forward 1"], "The feed-forward layer of layer 1 adds zero"),
    "the norm of attention 1": (["norm of attention 1"], "The norm of attention 1 no longer"),
    "the last norm": (["last norm"], "The last norm no longer divides by the root mean square"),
    "all norms": (
        ["last norm", *(f"norm of {p} {n}" for p in ("attention", "feed-forward") for n in (0, 1))],
        "No norm divides by the root mean square any longer; the gains stay.",
    ),
}  # fmt: skip


def test_each_switch_says_what_it_replaces_and_what_comes_of_it(page, model):
    told = page.locator(".tp-xray-replaced")
    assert told.inner_text().startswith("All parts are at work.")
    whole = surprise(logits_of(model, WORDS), WORDS)
    for name, (off, sentence) in SAID.items():
        page.get_by_role("button", name=f"switch off {name}", exact=True).click()
        assert sentence in told.inner_text()
        mean, trained = re.search(
            r"surprise is ([\d.]+) nats per word now; as it was trained the model has ([\d.]+)\.$",
            told.inner_text(),
        ).groups()
        assert float(mean) == pytest.approx(surprise(logits_of(model, WORDS, off), WORDS), abs=6e-3)
        assert float(trained) == pytest.approx(whole, abs=6e-3)
        assert f"mean surprise is {mean} nats" in page.locator(".tp-xray-sum").inner_text()
        page.get_by_role("button", name="Everything on").click()
    assert told.inner_text().startswith("All parts are at work.")
    assert page.locator(".tp-xray-parts [aria-pressed=true]").count() == 0


def test_the_temperature_divides_the_logits(page, model):
    page.get_by_label("temperature").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert "divided by 2 before the softmax" in page.locator(".tp-xray-replaced").inner_text()
    logits = logits_of(model, WORDS)
    assert "At temperature 2 the mean" in page.locator(".tp-xray-sum").inner_text()
    mean = re.search(r"surprise is ([\d.]+)", page.locator(".tp-xray-sum").inner_text())[1]
    assert float(mean) == pytest.approx(surprise(logits / 2, WORDS), abs=6e-3)
    want, at = (logits[AT] / 2).softmax(-1).topk(8)
    rows = page.locator(".tp-xray-next tbody tr")
    for n in range(8):
        word, _, p, _ = rows.nth(n).locator("th, td").all_inner_texts()
        assert word == VOCABULARY[at[n]]
        assert float(p.strip("<>")) == pytest.approx(float(want[n]), abs=1.1e-3)


# ---- writing on


def press(page, name, times=1):
    for _ in range(times):
        page.get_by_role("button", name=name, exact=True).click()


def written(page):
    return page.locator(".tp-xray-text mark").all_inner_texts()


CACHE = """() => [...document.querySelectorAll(".tp-xray-cache figure")].map((figure) => {
  const canvas = figure.querySelector("canvas"), fresh = figure.querySelector("span");
  return [canvas.width, canvas.height, canvas.getAttribute("aria-label"), fresh.hidden,
          parseFloat(fresh.style.left) / parseFloat(fresh.style.width),
          parseFloat(canvas.style.width)];
})"""


def test_it_writes_on_after_the_chosen_word_and_the_cache_grows(page, model):
    assert page.locator(".tp-xray-text").inner_text().strip().endswith("who has what ? pear")
    held = page.evaluate(CACHE)
    assert [(w, h, hidden) for w, h, _, hidden, *_ in held] == [(AT + 1, 128, True)] * 4
    press(page, "Write a word", 5)
    prompt = torch.tensor([encode(WORDS[: AT + 1])])
    want = [VOCABULARY[n] for n in generate(model, prompt, 5, temperature=0)[0, AT + 1 :]]
    assert written(page) == want
    p = float(logits_of(model, [*WORDS[: AT + 1], *want[:4]])[-1].softmax(-1).max())
    said = page.locator(".tp-xray-wrote").inner_text()
    shown = f"{p:.3f}" if p < 0.9995 else ">0.999"
    assert said == f"“{want[-1]}”: the likeliest word, probability {shown}."
    size = AT + 6
    for n, (w, h, label, hidden, left, width) in enumerate(page.evaluate(CACHE)):
        assert (w, h, hidden) == (size, 128, False)
        assert left == pytest.approx(size - 1, abs=1e-3)
        assert width < 100
        kind = "values" if n % 2 else "keys"
        assert label == f"Layer {n // 2}: the {kind} of {size} words, a column for each"
    counted = page.locator(".tp-xray-counted").inner_text()
    assert f"{size} words: 2 layers × (K and V) × {size} × 128 = {512 * size:,} numbers" in counted
    assert f"the 512 of “{want[-1]}” are new" in counted
    # Another chosen word does not take away what is written, until the reader asks for it.
    page.locator(".tp-xray-word").nth(3).click()
    assert written(page) == want
    page.get_by_role("button", name="Start over after “day”").click()
    assert written(page) == []
    assert "after “day”, word 3" in page.locator(".tp-xray-wrote").inner_text()


def test_with_a_part_taken_out_the_cache_is_filled_anew(page, model):
    press(page, "Write a word", 2)
    start = [*WORDS[: AT + 1], *written(page)]
    page.get_by_role("button", name="switch off RoPE").click()
    assert "filled anew" in page.locator(".tp-xray-wrote").inner_text()
    press(page, "Write a word", 3)
    with taken_out(model, ["RoPE"]):
        want = generate(model, torch.tensor([encode(start)]), 3, temperature=0)[0, -3:]
    assert written(page)[2:] == [VOCABULARY[n] for n in want]
    page.get_by_role("button", name="Put it into the text above").click()
    text = page.get_by_label("Your text").input_value()
    assert text.split()[-3:] == [VOCABULARY[n] for n in want]
    assert written(page) == []
    assert "your text ends" in page.locator(".tp-xray-told").inner_text()
    # A text that begins with the part out is written without it from its first word on.
    start = text.split()
    press(page, "Write a word", 6)
    with taken_out(model, ["RoPE"]):
        want = generate(model, torch.tensor([encode(start)]), 6, temperature=0)[0, -6:]
    assert written(page) == [VOCABULARY[n] for n in want]


def test_a_drawn_text_comes_again_with_its_seed_and_follows_the_temperature(page, model):
    page.get_by_label("Your text").fill("one")
    page.get_by_text("1 word.").wait_for()
    page.get_by_role("button", name="a word by chance").click()
    assert page.get_by_label("seed").is_visible()
    texts = []
    for seed in ("1", "7", "1"):
        page.get_by_label("seed").fill(seed)
        press(page, "Write a word", 8)
        texts.append(written(page))
    assert texts[0] == texts[2] != texts[1]
    page.get_by_label("temperature").fill("2")
    before = ["<s>", "one", *texts[2]]
    press(page, "Write a word")
    said = page.locator(".tp-xray-wrote").inner_text()
    word, u, p = re.fullmatch(
        r"“(\S+)”: drawn with (0\.\d{3}), probability ([<>]?[\d.]+)\.", said
    ).groups()
    want = (logits_of(model, before)[-1] / 2).softmax(-1)
    chance = float(want[VOCABULARY.index(word)])
    assert float(p.strip("<>")) == pytest.approx(chance, abs=1.1e-3)
    # The mark stands in the part of the drawn word.
    mark = page.locator(".tp-xray-line i").bounding_box()
    part = page.locator(".tp-xray-line span.tp-on").bounding_box()
    assert part["x"] - 2 <= mark["x"] <= part["x"] + part["width"] + 2
    line = page.locator(".tp-xray-line").bounding_box()
    assert (mark["x"] - line["x"]) / line["width"] == pytest.approx(float(u), abs=0.01)
    press(page, "the likeliest word")
    assert not page.get_by_label("seed").is_visible()


def test_it_runs_until_it_is_stopped_or_the_text_has_ended(page):
    press(page, "Write on")
    page.locator(".tp-xray-text mark").nth(1).wait_for()
    press(page, "Pause")
    count = len(written(page))
    page.wait_for_timeout(450)
    assert len(written(page)) == count
    page.get_by_label("Your text").fill(" ".join(WORDS[1:]) + " good night")
    page.get_by_text("70 words.").wait_for()
    press(page, "Write a word", 2)
    assert written(page) == [".", "</s>"]
    assert page.locator(".tp-xray-wrote").inner_text().endswith("With it the text has ended.")
    press(page, "Write a word")
    assert "The text has ended" in page.locator(".tp-xray-wrote").inner_text()
